/* Element by element: additions, rotations, SwiGLU, tables (elementwise.cu, launch_elementwise.c). */
/* n / value = n x multiplier >> shift for n < 2^31 (rows.cuh; made by fo_cuda_divisor_of). */
struct fo_cuda_divisor {
	uint32_t value, multiplier, shift;
};
/* What is done eight neighbours at a time: `groups` of them, per_row in a row. */
struct fo_cuda_groups {
	uint32_t n;
	struct fo_cuda_divisor per_row;
};
/* Results whose elements are functions of the operands' elements at the same place: additions, SwiGLU. A
 * thread has FO_CUDA_MAP_SHARE groups, with a bias FO_CUDA_MAP_SHARE_BIAS. */
enum { FO_CUDA_MAP_SHARE = 2, FO_CUDA_MAP_SHARE_BIAS = 4, FO_CUDA_MAP_IN = 3, FO_CUDA_MAP_OUT = 2 };
struct fo_cuda_map_args {
	struct fo_cuda_view in[FO_CUDA_MAP_IN], out[FO_CUDA_MAP_OUT];
	struct fo_cuda_groups groups;
};
/* An item is eight pairs of FO_CUDA_ROPE_HEADS heads of one row: per_row of them in a row, per_slab for these heads. */
enum { FO_CUDA_ROPE_HEADS = 4 };
struct fo_cuda_rope_args {
	struct fo_cuda_view x, position, table;
	uint32_t items;
	struct fo_cuda_divisor per_row, per_slab;
	int32_t half, heads;
	float sign;
};
/* Rows of y from rows of x: which, `index` says by `mode`. */
enum fo_cuda_copy_mode {
	FO_CUDA_COPY_GATHER, /* y[r] = x[index[r]] */
	FO_CUDA_COPY_PUT,    /* y[index[0] + r] = x[r] for r < index[1] */
	FO_CUDA_COPY_LAST    /* y[0] = x[index[1] - 1] */
};
struct fo_cuda_copy_args {
	struct fo_cuda_view x, index, y;
	int32_t mode, rows; /* of the loop */
	uint32_t units;     /* of 16 bytes */
	struct fo_cuda_divisor per_row;
};
struct fo_cuda_zero_args {
	struct fo_cuda_view t;
};
/* order[p]: the token that is p-th when tokens are put in order of their id and, of one id, of their position; rank[p]: how many
 * of its id come before it. */
enum {
	FO_CUDA_EMBED_ORDERED = 32 /* positions per block of embed_order */,
	FO_CUDA_EMBED_FEW = 16 /* that one thread sums */
};
struct fo_cuda_embed_order_args {
	struct fo_cuda_view token;
	int32_t *order, *rank;
};
struct fo_cuda_embed_sum_args {
	struct fo_cuda_view token, dx, table;
	const int32_t *order, *rank;
	int32_t add; /* else stored */
};
#define FO_CUDA_KERNELS_MAP(X, name)            \
	X(name##_bf16, struct fo_cuda_map_args) \
	X(name##_f32, struct fo_cuda_map_args)  \
	X(name##_any, struct fo_cuda_map_args)
#define FO_CUDA_KERNELS_ELEMENTWISE(X)                    \
	FO_CUDA_KERNELS_MAP(X, add)                       \
	FO_CUDA_KERNELS_MAP(X, add_bias)                  \
	FO_CUDA_KERNELS_MAP(X, swiglu)                    \
	FO_CUDA_KERNELS_MAP(X, swiglu_bwd)                \
	X(rope_bf16, struct fo_cuda_rope_args)            \
	X(rope_f32, struct fo_cuda_rope_args)             \
	X(rope_any, struct fo_cuda_rope_args)             \
	X(copy_rows_16, struct fo_cuda_copy_args)         \
	X(copy_rows_any, struct fo_cuda_copy_args)        \
	X(zero_any, struct fo_cuda_zero_args)             \
	X(embed_order, struct fo_cuda_embed_order_args)   \
	X(embed_few_bf16, struct fo_cuda_embed_sum_args)  \
	X(embed_few_f32, struct fo_cuda_embed_sum_args)   \
	X(embed_many_bf16, struct fo_cuda_embed_sum_args) \
	X(embed_many_f32, struct fo_cuda_embed_sum_args)  \
	X(embed_any, struct fo_cuda_embed_sum_args)
