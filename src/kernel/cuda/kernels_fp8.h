/* fp8: maxima, scales, casts, histories (fp8.cu, fp8_cast_t.cu, launch_fp8.c). Maxima travel as the bits of magnitudes,
 * which are ordered as integers, with NaN above all; blocks leave theirs in the workspace. */
struct fo_cuda_amax_args {
	struct fo_cuda_view x;
	uint32_t *partial; /* amax_all: of each block; amax_cols: row b of what block (., b) saw of each column */
	float *out;        /* amax_rows: of row i at i * out_ld */
	int64_t out_ld;
	int32_t aligned; /* every row begins at 16 bytes */
};
/* out[j] = maximum of n rows of partial; whole: out[0] of all numbers. */
struct fo_cuda_amax_join_args {
	const uint32_t *partial;
	int64_t n, cols;
	float *out;
	int32_t whole, zero;
};
struct fo_cuda_fp8_scale_args {
	struct fo_cuda_view amax, out;
	float largest;
	int32_t power; /* of two, rounded up */
};
struct fo_cuda_fp8_cast_args {
	struct fo_cuda_view x, y;
	const float *scale;
	int64_t scale_ld;
	int32_t aligned; /* rows of x and y begin at 16 bytes */
};
/* Block b takes tile b of x, 128 x 128 elements, row by row of tiles. */
struct fo_cuda_fp8_cast_t_args {
	struct fo_cuda_view x, y, yt;
	const float *scale;
};

/* ---- by the scale of the step: its amax is what ops.def says of fp8_cast_step, as 32-bit words ---- */

enum {
	FO_CUDA_AMAX_STEP,
	FO_CUDA_AMAX_HISTORY,
	FO_CUDA_AMAX_OWN /* of an empty history */,
	FO_CUDA_AMAX_BLOCKS /* of the second launch that have ended */,
	FO_CUDA_AMAX_WORDS
};
struct fo_cuda_fp8_step {
	uint32_t *amax;
	float *sx;
	uint32_t parts;  /* of the work */
	float largest;   /* number of the format */
	uint32_t second; /* 1: the second launch, which casts where the history was empty */
	uint32_t zero;
};
/* x in parts of one share each; y. */
struct fo_cuda_fp8_cast_step_args {
	struct fo_cuda_fp8_cast_args cast; /* no scale */
	struct fo_cuda_fp8_step step;
};
/* In tiles, with the transpose. */
struct fo_cuda_fp8_cast_step_t_args {
	struct fo_cuda_fp8_cast_t_args cast; /* no scale */
	struct fo_cuda_fp8_step step;
};
/* Results that are made and cast in one kernel (fp8_made.cu): x is the first operand, the other views are what an
 * addition, SwiGLU or its backward takes. qt, z: data NULL: not wanted. SwiGLU works in tiles of gate's shape, norms in
 * strips of rows. */
enum { FO_CUDA_FP8_STRIP = 16 /* rows: what a transposed column of a strip has is one access */ };
struct fo_cuda_fp8_made_args {
	struct fo_cuda_view x, b, dy, c, g, rstd, q, qt, z;
	struct fo_cuda_fp8_step step;
	int32_t team, teams; /* norms: threads of a row, rows at once */
	float eps;
	int32_t zero;
};
/* Block (s, t): row s of history t. */
enum { FO_CUDA_FP8_HISTORIES = 16 };
struct fo_cuda_fp8_begin_args {
	struct fo_cuda_view history[FO_CUDA_FP8_HISTORIES], amax[FO_CUDA_FP8_HISTORIES];
};
struct fo_cuda_fp8_push_args {
	const float *amax;
	int64_t amax_ld;
	struct fo_cuda_view history;
	const double *scale;
};
/* fp8_cast_<from>_<to>_<scale>: one, rows, cols. */
#define FO_CUDA_KERNELS_FP8_CAST(X, args) \
	X(fp8_cast_bf16_e4m3_one, args)   \
	X(fp8_cast_bf16_e4m3_rows, args)  \
	X(fp8_cast_bf16_e4m3_cols, args)  \
	X(fp8_cast_bf16_e5m2_one, args)   \
	X(fp8_cast_bf16_e5m2_rows, args)  \
	X(fp8_cast_bf16_e5m2_cols, args)  \
	X(fp8_cast_f32_e4m3_one, args)    \
	X(fp8_cast_f32_e4m3_rows, args)   \
	X(fp8_cast_f32_e4m3_cols, args)   \
	X(fp8_cast_f32_e5m2_one, args)    \
	X(fp8_cast_f32_e5m2_rows, args)   \
	X(fp8_cast_f32_e5m2_cols, args)
#define FO_CUDA_KERNELS_FP8_CAST_STEP(X, args) \
	X(fp8_cast_step_bf16_e4m3, args)       \
	X(fp8_cast_step_bf16_e5m2, args)       \
	X(fp8_cast_step_f32_e4m3, args)        \
	X(fp8_cast_step_f32_e5m2, args)
/* fp8_cast_t_<from>_<to>: 16 elements at once; _any: any layout. */
#define FO_CUDA_KERNELS_FP8_CAST_T(X, args) \
	X(fp8_cast_t_bf16_e4m3, args)       \
	X(fp8_cast_t_bf16_e5m2, args)       \
	X(fp8_cast_t_f32_e4m3, args)        \
	X(fp8_cast_t_f32_e5m2, args)        \
	X(fp8_cast_t_any, args)
#define FO_CUDA_KERNELS_FP8_CAST_STEP_T(X, args) \
	X(fp8_cast_step_t_bf16_e4m3, args)       \
	X(fp8_cast_step_t_bf16_e5m2, args)       \
	X(fp8_cast_step_t_f32_e4m3, args)        \
	X(fp8_cast_step_t_f32_e5m2, args)        \
	X(fp8_cast_step_t_any, args)
#define FO_CUDA_KERNELS_FP8(X)                                                  \
	X(amax_all_bf16, struct fo_cuda_amax_args)                              \
	X(amax_all_f32, struct fo_cuda_amax_args)                               \
	X(amax_rows_bf16, struct fo_cuda_amax_args)                             \
	X(amax_rows_f32, struct fo_cuda_amax_args)                              \
	X(amax_cols_bf16, struct fo_cuda_amax_args)                             \
	X(amax_cols_f32, struct fo_cuda_amax_args)                              \
	X(amax_join, struct fo_cuda_amax_join_args)                             \
	X(fp8_scale, struct fo_cuda_fp8_scale_args)                             \
	X(swiglu_fp8_bf16, struct fo_cuda_fp8_made_args)                        \
	X(swiglu_bwd_fp8_bf16, struct fo_cuda_fp8_made_args)                    \
	X(norm_fp8_bf16, struct fo_cuda_fp8_made_args)                          \
	X(add_norm_fp8_bf16, struct fo_cuda_fp8_made_args)                      \
	X(fp8_begin, struct fo_cuda_fp8_begin_args)                             \
	FO_CUDA_KERNELS_FP8_CAST(X, struct fo_cuda_fp8_cast_args)               \
	FO_CUDA_KERNELS_FP8_CAST_STEP(X, struct fo_cuda_fp8_cast_step_args)     \
	FO_CUDA_KERNELS_FP8_CAST_T(X, struct fo_cuda_fp8_cast_t_args)           \
	FO_CUDA_KERNELS_FP8_CAST_STEP_T(X, struct fo_cuda_fp8_cast_step_t_args) \
	X(fp8_push, struct fo_cuda_fp8_push_args)
