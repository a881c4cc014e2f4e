/* A product as cuBLASLt describes and runs it. tune.c chooses its algorithm, matmul.c makes it from the operation. */
#include "kernel/cuda/product.h"

/* The pointer of a scale while algorithms are asked for: the library refuses lines of scales without one, and does not
 * read it then. */
static const uintptr_t any_scale = 256;

static cudaDataType_t type_of(int dtype)
{
	switch (dtype) {
	case FO_BF16: return CUDA_R_16BF;
	case FO_F32: return CUDA_R_32F;
	case FO_E4M3: return CUDA_R_8F_E4M3;
	default: return CUDA_R_8F_E5M2;
	}
}

/* cuBLAS, "cublasSetWorkspace": 32 MiB on compute capability 9.0 and 10.x, 12 MiB on 12.x, 4 MiB elsewhere. */
size_t fo_cuda_product_ws_most(const struct fo_cuda *c)
{
	switch (c->info.cc_major) {
	case 9:
	case 10: return (size_t)32 << 20;
	case 12: return (size_t)12 << 20;
	default: return (size_t)4 << 20;
	}
}

void fo_cuda_product_fini(const struct fo_cuda *c, struct fo_cuda_product_plan *p)
{
	cublasLtMatrixLayout_t layout[] = { p->a, p->b, p->d };
	for (int i = 0; i < 3; i++)
		if (layout[i])
			c->lt->cublasLtMatrixLayoutDestroy(layout[i]);
	if (p->desc)
		c->lt->cublasLtMatmulDescDestroy(p->desc);
	p->a = p->b = p->d = NULL;
	p->desc = NULL;
}

static bool set_scales(const struct fo_cuda *c, const struct fo_cuda_product_plan *p, const float *a, const float *b)
{
	return c->lt->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &a, sizeof a) ==
		       CUBLAS_STATUS_SUCCESS &&
	       c->lt->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &b, sizeof b) ==
		       CUBLAS_STATUS_SUCCESS;
}

void fo_cuda_product_describe(const struct fo_cuda *c, struct fo_cuda_product_plan *p)
{
	const struct fo_cublaslt_calls *lt = c->lt;
	const struct fo_cuda_product *k = &p->key;
	cublasOperation_t ta = k->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasOperation_t tb = k->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
	const int64_t m = k->m, n = k->n, d = k->k;
	bool fp8 = fo_dtype_fp8(k->type_a);
	int8_t fast = (int8_t)k->fast;
	int32_t mode = k->lines ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
	const float *any = (const float *)any_scale;
#define OK(call) ((call) == CUBLAS_STATUS_SUCCESS)
#define SET(attribute, value) OK(lt->cublasLtMatmulDescSetAttribute(p->desc, attribute, &(value), sizeof(value)))
#define LAYOUT(to, type, rows, cols, ld) \
	OK(lt->cublasLtMatrixLayoutCreate(to, type_of(type), (uint64_t)(rows), (uint64_t)(cols), ld))
	p->good = OK(lt->cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
		  SET(CUBLASLT_MATMUL_DESC_TRANSA, ta) && SET(CUBLASLT_MATMUL_DESC_TRANSB, tb) &&
		  LAYOUT(&p->d, k->type_d, m, n, k->ldd);
	p->good = p->good && (k->ta ? LAYOUT(&p->a, k->type_a, d, m, k->lda) : LAYOUT(&p->a, k->type_a, m, d, k->lda));
	p->good = p->good && (k->tb ? LAYOUT(&p->b, k->type_b, n, d, k->ldb) : LAYOUT(&p->b, k->type_b, d, n, k->ldb));
	if (p->good && fp8)
		p->good = SET(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast) && set_scales(c, p, any, any);
	if (p->good && fp8 && k->lines)
		p->good = SET(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode) && SET(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
#undef LAYOUT
#undef SET
#undef OK
	if (!p->good)
		fo_cuda_product_fini(c, p);
}

cublasStatus_t fo_cuda_product_run(const struct fo_cuda *c, struct fo_cuda_product_plan *p, const void *a,
				   const void *b, void *d, const float *scale_a, const float *scale_b, void *ws,
				   fo_cuda_stream s)
{
	static const float one = 1, zero = 0;
	if (fo_dtype_fp8(p->key.type_a) && !set_scales(c, p, scale_a, scale_b))
		return CUBLAS_STATUS_INVALID_VALUE;
	const float *beta = p->key.add ? &one : &zero;
	return c->lt->cublasLtMatmul(c->lt_handle, p->desc, &one, a, p->a, b, p->b, beta, d, p->d, d, p->d, &p->algo,
				     p->ws_bytes ? ws : NULL, p->ws_bytes, s);
}
