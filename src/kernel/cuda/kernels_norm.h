/* Norms and sums over rows (norm.cu, launch_norm.c). */
/* A piece is normed by itself: a row, or one of `count` heads of it, `width` columns wide. `team` threads take it: a
 * power of two up to 32, or a whole block. */
struct fo_cuda_pieces {
	int64_t n;
	int32_t width, team;
	struct fo_cuda_divisor count;
};
struct fo_cuda_norm_args {
	struct fo_cuda_view x, b, g, c, y, rstd; /* b and c without data: x is normed, not c = x + b */
	struct fo_cuda_pieces pieces;
	float eps;
};
struct fo_cuda_norm_bwd_args {
	struct fo_cuda_view x, rstd, g, dy, dx, dres; /* dres without data: none; g, dx: where dx is asked for */
	float *partial;                               /* (blocks, width): sums for dg of each block */
	struct fo_cuda_pieces pieces;
};
/* Sums of columns of dy, or of x rstd dy where x has data. */
struct fo_cuda_columns_args {
	struct fo_cuda_view x, rstd, dy, out;
	float *partial; /* columns_*: (blocks, width) */
	struct fo_cuda_pieces pieces;
	int32_t rows_per_block, add; /* add: to out, else stored */
};
struct fo_cuda_partials_args {
	const float *partial; /* (parts, columns of out) */
	struct fo_cuda_view out;
	int32_t parts, add;
};
#define FO_CUDA_KERNELS_NORM_BWD(X, type)                    \
	X(norm_dx_##type##_1, struct fo_cuda_norm_bwd_args)  \
	X(norm_dg_##type##_1, struct fo_cuda_norm_bwd_args)  \
	X(norm_bwd_##type##_1, struct fo_cuda_norm_bwd_args) \
	X(norm_dx_##type##_2, struct fo_cuda_norm_bwd_args)  \
	X(norm_dg_##type##_2, struct fo_cuda_norm_bwd_args)  \
	X(norm_bwd_##type##_2, struct fo_cuda_norm_bwd_args)
#define FO_CUDA_KERNELS_NORM(X)                          \
	X(norm_bf16_1, struct fo_cuda_norm_args)         \
	X(norm_f32_1, struct fo_cuda_norm_args)          \
	X(norm_bf16_4, struct fo_cuda_norm_args)         \
	X(norm_f32_4, struct fo_cuda_norm_args)          \
	X(add_norm_bf16_1, struct fo_cuda_norm_args)     \
	X(add_norm_f32_1, struct fo_cuda_norm_args)      \
	X(add_norm_bf16_4, struct fo_cuda_norm_args)     \
	X(add_norm_f32_4, struct fo_cuda_norm_args)      \
	X(norm_any, struct fo_cuda_norm_args)            \
	X(norm_dx_any, struct fo_cuda_norm_bwd_args)     \
	FO_CUDA_KERNELS_NORM_BWD(X, bf16)                \
	FO_CUDA_KERNELS_NORM_BWD(X, f32)                 \
	X(norm_dx_bf16_4, struct fo_cuda_norm_bwd_args)  \
	X(norm_dg_bf16_4, struct fo_cuda_norm_bwd_args)  \
	X(norm_bwd_bf16_4, struct fo_cuda_norm_bwd_args) \
	X(columns_bf16, struct fo_cuda_columns_args)     \
	X(columns_f32, struct fo_cuda_columns_args)      \
	X(columns_any, struct fo_cuda_columns_args)      \
	X(sum_partials, struct fo_cuda_partials_args)
