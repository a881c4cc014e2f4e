/* fp8: maxima, scales, casts, histories (fp8.cu, fp8_cast_t.cu, launch_fp8.c). Maxima travel as bits of magnitudes, which are ordered as integers, what is
 * not a number above all; blocks leave theirs in the workspace. */
struct fo_cuda_amax_args {
	struct fo_cuda_view x;
	const float *history; /* not NULL: nothing is looked at where one of `steps` numbers is not zero */
	int64_t steps;
	uint32_t *partial; /* amax_all: of each block; amax_cols: row b of what block (., b) saw of each column */
	float *out;        /* amax_rows: of row i at i * out_ld */
	int64_t out_ld;
	int32_t aligned; /* every row begins at 16 bytes */
};
/* out[j] = maximum of n rows of partial; whole: out[0] of all numbers; added: and what stands in out. */
struct fo_cuda_amax_join_args {
	const uint32_t *partial;
	int64_t n, cols;
	float *out;
	int32_t whole, added;
};
struct fo_cuda_fp8_scale_args {
	struct fo_cuda_view amax, out;
	const uint32_t *partial; /* history: of x, blocks of them; NULL: there is no x */
	int64_t blocks;
	float largest;
	int32_t history, power; /* power: of two, rounded up */
};
struct fo_cuda_fp8_cast_args {
	struct fo_cuda_view x, y;
	const float *scale;
	int64_t scale_ld;
	uint32_t *partial; /* maximum of each block; NULL: not asked for */
	int32_t aligned;   /* rows of x and y begin at 16 bytes */
};
/* Block b takes tile b of x, 128 x 128 elements, row by row of tiles. */
struct fo_cuda_fp8_cast_t_args {
	struct fo_cuda_view x, y, yt;
	const float *scale;
	uint32_t *partial; /* maximum of each block; NULL: not asked for */
};
struct fo_cuda_fp8_push_args {
	const float *amax;
	int64_t amax_ld;
	struct fo_cuda_view history;
	const double *scale;
};
/* fp8_cast_<from>_<to>_<scale>: one, rows, cols; _max: with the maximum. */
#define FO_CUDA_KERNELS_FP8_CAST(X, args)                                                                              \
	X(fp8_cast_bf16_e4m3_one, args) X(fp8_cast_bf16_e4m3_one_max, args) X(fp8_cast_bf16_e4m3_rows, args)           \
	X(fp8_cast_bf16_e4m3_cols, args) X(fp8_cast_bf16_e5m2_one, args) X(fp8_cast_bf16_e5m2_one_max, args)           \
	X(fp8_cast_bf16_e5m2_rows, args) X(fp8_cast_bf16_e5m2_cols, args) X(fp8_cast_f32_e4m3_one, args)               \
	X(fp8_cast_f32_e4m3_one_max, args) X(fp8_cast_f32_e4m3_rows, args) X(fp8_cast_f32_e4m3_cols, args)             \
	X(fp8_cast_f32_e5m2_one, args) X(fp8_cast_f32_e5m2_one_max, args) X(fp8_cast_f32_e5m2_rows, args)              \
	X(fp8_cast_f32_e5m2_cols, args)
/* fp8_cast_t_<from>_<to>: 16 elements at once; _any: any layout. */
#define FO_CUDA_KERNELS_FP8_CAST_T(X, args)                                                                            \
	X(fp8_cast_t_bf16_e4m3, args) X(fp8_cast_t_bf16_e5m2, args) X(fp8_cast_t_f32_e4m3, args)                       \
	X(fp8_cast_t_f32_e5m2, args) X(fp8_cast_t_any, args)
#define FO_CUDA_KERNELS_FP8(X)                                                                                         \
	X(amax_all_bf16, struct fo_cuda_amax_args) X(amax_all_f32, struct fo_cuda_amax_args)                           \
	X(amax_rows_bf16, struct fo_cuda_amax_args) X(amax_rows_f32, struct fo_cuda_amax_args)                         \
	X(amax_cols_bf16, struct fo_cuda_amax_args) X(amax_cols_f32, struct fo_cuda_amax_args)                         \
	X(amax_join, struct fo_cuda_amax_join_args) X(fp8_scale, struct fo_cuda_fp8_scale_args)                        \
	FO_CUDA_KERNELS_FP8_CAST(X, struct fo_cuda_fp8_cast_args)                                                      \
	FO_CUDA_KERNELS_FP8_CAST_T(X, struct fo_cuda_fp8_cast_t_args) X(fp8_push, struct fo_cuda_fp8_push_args)
