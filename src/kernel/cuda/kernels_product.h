/* What products need beside cuBLASLt (product.cu, matmul.c, tune.c). */
struct fo_cuda_fp8_transpose_args {
	const void *x; /* (rows, cols) bytes */
	void *y;       /* (cols, rows) bytes */
	int64_t rows, cols, ldx, ldy;
	int32_t wide; /* 1: x, y, ldx, ldy, rows and cols are multiples of 16 */
};
/* y(rows, ldy) in bf16 = x in fp8, exactly. */
struct fo_cuda_fp8_widen_args {
	struct fo_cuda_view x;
	uint16_t *y;
	int64_t ldy;
};
/* c = [c +] (sum(i,j) sa[i]) sb[j]; sum is (c.rows, c.cols) without gaps; a lone scale is everybody's. */
struct fo_cuda_product_scale_args {
	const float *sum;
	struct fo_cuda_view c, sa, sb;
	int32_t add;
};
/* to[i] = scale i of a row, a column or a lone one, for i below n. */
struct fo_cuda_product_lines_args {
	struct fo_cuda_view s;
	float *to;
	int64_t n;
};
/* n random elements of a type: bf16 and fp32 near N(0,1), fp8 of either sign with all bits of mantissa in use. */
struct fo_cuda_product_random_args {
	void *to;
	int64_t n;
	uint64_t seed;
	int32_t dtype;
};
#define FO_CUDA_KERNELS_PRODUCT(X)                          \
	X(fp8_transpose, struct fo_cuda_fp8_transpose_args) \
	X(fp8_widen, struct fo_cuda_fp8_widen_args)         \
	X(product_scale, struct fo_cuda_product_scale_args) \
	X(product_lines, struct fo_cuda_product_lines_args) \
	X(product_random, struct fo_cuda_product_random_args)
