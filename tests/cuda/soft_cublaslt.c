/* libcublasLt of the tests: products on the software device, by the rules of the real one on Hopper.
 *
 * D (m,n) = alpha op(A) op(B) + beta C, column-major. Factors in fp32, bf16 or fp8, sums in fp32. fp8 wants A
 * transposed and B not, 16-byte steps everywhere, at most one factor in e5m2; scales of whole factors or of each row of
 * op(A) and column of op(B). What the real one would refuse or would do wrong is refused. Three algorithms, of which
 * one needs a workspace; they add in different orders. */
#define _GNU_SOURCE
#include "cuda/soft.h"
#include "kernel/kernel.h"

#include <cublasLt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PLAIN,
	SPLIT,  /* the depth in two halves, in the workspace */
	CHUNKS, /* sums of CHUNK products, one after another */
	ALGORITHMS,
	CHUNK = 64,
	MAGIC = 0x50f7a190,
	FP8_STEP = 16,
	TIRED = 32,
	WORKSPACE_ALIGN = 256
};

struct desc {
	cublasComputeType_t compute;
	cudaDataType_t scale_type;
	int32_t pointer_mode, transpose[2], epilogue, mode[4], sm_target;
	const void *scale[4]; /* of A, B, C, D */
	int8_t fast;
};
struct layout {
	cudaDataType type;
	int32_t order, batch;
	uint64_t rows, cols;
	int64_t ld;
};
struct preference {
	uint64_t workspace;
	uint32_t reduction, align[4];
};
struct algorithm {
	uint64_t magic;
	int32_t id, split, reduction;
};
_Static_assert(sizeof(struct desc) <= sizeof(cublasLtMatmulDescOpaque_t) &&
		       sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
		       sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t) &&
		       sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t),
	       "they fit into what callers hold");
static struct desc *desc_of(cublasLtMatmulDesc_t d) { return (struct desc *)(void *)d; }
static struct layout *layout_of(cublasLtMatrixLayout_t l) { return (struct layout *)(void *)l; }

static cublasStatus_t refuse(cublasStatus_t st, const char *format, ...) __attribute__((format(printf, 2, 3)));
static cublasStatus_t refuse(cublasStatus_t st, const char *format, ...)
{
	va_list list;
	if (!getenv("FLATOUT_SOFT_TRACE"))
		return st;
	fputs("software cuBLASLt: ", stderr);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	return st;
}

/* ---- handles and descriptors ---- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
	static char handle;
	*h = (cublasLtHandle_t)(void *)&handle;
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
	(void)h;
	return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
size_t cublasLtGetCudartVersion(void) { return CUBLAS_VERSION / 10000 * 1000; }
const char *cublasLtGetStatusName(cublasStatus_t st)
{
	return st == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_OTHER";
}
const char *cublasLtGetStatusString(cublasStatus_t st)
{
	return st == CUBLAS_STATUS_SUCCESS         ? "success"
	       : st == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
						   : "failure";
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, size_t size, cublasComputeType_t compute,
					       cudaDataType_t scale)
{
	memset(d, 0, size);
	*desc_of(d) = (struct desc){ .compute = compute, .scale_type = scale, .epilogue = CUBLASLT_EPILOGUE_DEFAULT };
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale)
{
	*d = malloc(sizeof **d);
	return *d ? cublasLtMatmulDescInit_internal(*d, sizeof **d, compute, scale) : CUBLAS_STATUS_ALLOC_FAILED;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
	free(d);
	return CUBLAS_STATUS_SUCCESS;
}

struct field {
	void *at;
	size_t bytes;
};
static struct field desc_field(struct desc *d, cublasLtMatmulDescAttributes_t a)
{
	switch (a) {
	case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return (struct field){ &d->compute, sizeof(int32_t) };
	case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return (struct field){ &d->scale_type, sizeof(int32_t) };
	case CUBLASLT_MATMUL_DESC_POINTER_MODE: return (struct field){ &d->pointer_mode, sizeof(int32_t) };
	case CUBLASLT_MATMUL_DESC_TRANSA: return (struct field){ &d->transpose[0], sizeof(int32_t) };
	case CUBLASLT_MATMUL_DESC_TRANSB: return (struct field){ &d->transpose[1], sizeof(int32_t) };
	case CUBLASLT_MATMUL_DESC_EPILOGUE: return (struct field){ &d->epilogue, sizeof(int32_t) };
	case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return (struct field){ &d->sm_target, sizeof(int32_t) };
	case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return (struct field){ &d->scale[0], sizeof(void *) };
	case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return (struct field){ &d->scale[1], sizeof(void *) };
	case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER: return (struct field){ &d->scale[2], sizeof(void *) };
	case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER: return (struct field){ &d->scale[3], sizeof(void *) };
	case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return (struct field){ &d->mode[0], sizeof(int32_t) };
	case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return (struct field){ &d->mode[1], sizeof(int32_t) };
	case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return (struct field){ &d->fast, sizeof(int8_t) };
	default: return (struct field){ NULL, 0 };
	}
}
static cublasStatus_t set(struct field f, const void *from, size_t bytes)
{
	if (!f.at || bytes != f.bytes)
		return refuse(CUBLAS_STATUS_INVALID_VALUE,
			      "an attribute that is not known here, or of %zu bytes instead of %zu", bytes, f.bytes);
	memcpy(f.at, from, bytes);
	return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t get(struct field f, void *to, size_t bytes, size_t *written)
{
	if (written)
		*written = f.bytes;
	if (!f.at || (bytes && bytes != f.bytes))
		return CUBLAS_STATUS_INVALID_VALUE;
	if (bytes)
		memcpy(to, f.at, bytes);
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a,
					      const void *from, size_t bytes)
{
	return set(desc_field(desc_of(d), a), from, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, void *to,
					      size_t bytes, size_t *written)
{
	return get(desc_field(desc_of(d), a), to, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t size, cudaDataType type,
						 uint64_t rows, uint64_t cols, int64_t ld)
{
	memset(l, 0, size);
	*layout_of(l) = (struct layout){ .type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1 };
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols,
					  int64_t ld)
{
	*l = malloc(sizeof **l);
	return *l ? cublasLtMatrixLayoutInit_internal(*l, sizeof **l, type, rows, cols, ld)
		  : CUBLAS_STATUS_ALLOC_FAILED;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
	free(l);
	return CUBLAS_STATUS_SUCCESS;
}
static struct field layout_field(struct layout *l, cublasLtMatrixLayoutAttribute_t a)
{
	switch (a) {
	case CUBLASLT_MATRIX_LAYOUT_TYPE: return (struct field){ &l->type, sizeof(uint32_t) };
	case CUBLASLT_MATRIX_LAYOUT_ORDER: return (struct field){ &l->order, sizeof(int32_t) };
	case CUBLASLT_MATRIX_LAYOUT_ROWS: return (struct field){ &l->rows, sizeof(uint64_t) };
	case CUBLASLT_MATRIX_LAYOUT_COLS: return (struct field){ &l->cols, sizeof(uint64_t) };
	case CUBLASLT_MATRIX_LAYOUT_LD: return (struct field){ &l->ld, sizeof(int64_t) };
	case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return (struct field){ &l->batch, sizeof(int32_t) };
	default: return (struct field){ NULL, 0 };
	}
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a,
						const void *from, size_t bytes)
{
	return set(layout_field(layout_of(l), a), from, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a, void *to,
						size_t bytes, size_t *written)
{
	return get(layout_field(layout_of(l), a), to, bytes, written);
}

static struct preference *preference_of(cublasLtMatmulPreference_t p) { return (struct preference *)(void *)p; }
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p, size_t size)
{
	memset(p, 0, size);
	*preference_of(p) = (struct preference){ .reduction = CUBLASLT_REDUCTION_SCHEME_MASK,
						 .align = { 256, 256, 256, 256 } };
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
	*p = malloc(sizeof **p);
	return *p ? cublasLtMatmulPreferenceInit_internal(*p, sizeof **p) : CUBLAS_STATUS_ALLOC_FAILED;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
	free(p);
	return CUBLAS_STATUS_SUCCESS;
}
static struct field preference_field(struct preference *p, cublasLtMatmulPreferenceAttributes_t a)
{
	static uint32_t unused;
	switch (a) {
	case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return (struct field){ &p->workspace, sizeof(uint64_t) };
	case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return (struct field){ &p->reduction, sizeof(uint32_t) };
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return (struct field){ &p->align[0], sizeof(uint32_t) };
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return (struct field){ &p->align[1], sizeof(uint32_t) };
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return (struct field){ &p->align[2], sizeof(uint32_t) };
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return (struct field){ &p->align[3], sizeof(uint32_t) };
	case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
	case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT: return (struct field){ &unused, sizeof(uint32_t) };
	default: return (struct field){ NULL, 0 };
	}
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
						    cublasLtMatmulPreferenceAttributes_t a, const void *from,
						    size_t bytes)
{
	return set(preference_field(preference_of(p), a), from, bytes);
}

/* ---- what a product is, and what is refused ---- */

struct product {
	const void *a, *b, *c, *scale_a, *scale_b, *alpha_at, *beta_at; /* *_at: on the device */
	void *d, *workspace;
	cudaDataType type_a, type_b, type_c, type_d;
	int64_t m, n, k, lda, ldb, ldc, ldd;
	float alpha, beta;
	int32_t ta, tb, outer, algorithm;
};

static size_t type_bytes(cudaDataType t)
{
	switch (t) {
	case CUDA_R_32F: return 4;
	case CUDA_R_16BF: return 2;
	case CUDA_R_8F_E4M3:
	case CUDA_R_8F_E5M2: return 1;
	default: return 0;
	}
}
static bool is_fp8(cudaDataType t) { return type_bytes(t) == 1; }

static cublasStatus_t check_types(const struct desc *d, const struct product *p)
{
	bool fp8 = is_fp8(p->type_a), out = p->type_d == CUDA_R_32F || p->type_d == CUDA_R_16BF;
	if (d->compute != CUBLAS_COMPUTE_32F &&
	    !(d->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p->type_a == CUDA_R_32F))
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "sums of type %d", (int)d->compute);
	if (d->scale_type != CUDA_R_32F || d->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "alpha and beta that are not fp32, or an epilogue");
	if (!type_bytes(p->type_a) || !out || p->type_c != p->type_d ||
	    (p->type_a == CUDA_R_32F && p->type_d != CUDA_R_32F) ||
	    (p->type_a != p->type_b && !(fp8 && is_fp8(p->type_b))))
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "types %d x %d, %d to %d", (int)p->type_a, (int)p->type_b,
			      (int)p->type_c, (int)p->type_d);
	if (!fp8)
		return p->scale_a || p->scale_b
			       ? refuse(CUBLAS_STATUS_NOT_SUPPORTED, "scales of factors that are not fp8")
			       : CUBLAS_STATUS_SUCCESS;
	if (p->type_a == CUDA_R_8F_E5M2 && p->type_b == CUDA_R_8F_E5M2)
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "both factors in e5m2");
	if (!p->ta || p->tb)
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 where A is not transposed or B is");
	if (p->m % FP8_STEP || p->n % FP8_STEP || p->k % FP8_STEP || p->lda % FP8_STEP || p->ldb % FP8_STEP ||
	    (size_t)p->ldd * type_bytes(p->type_d) % 16 || (size_t)p->ldc * type_bytes(p->type_c) % 16)
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 of %lld x %lld x %lld, ld %lld, %lld, %lld",
			      (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->lda, (long long)p->ldb,
			      (long long)p->ldd);
	if (d->mode[0] != d->mode[1] || (d->mode[0] != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
					 d->mode[0] != CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F))
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "scale modes %d and %d", d->mode[0], d->mode[1]);
	if (p->outer && (!p->scale_a || !p->scale_b))
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "scales of lines that are not given");
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t describe(const struct desc *d, const struct layout *a, const struct layout *b,
			       const struct layout *c, const struct layout *o, struct product *p)
{
	*p = (struct product){ .type_a = a->type,
			       .type_b = b->type,
			       .type_c = c->type,
			       .type_d = o->type,
			       .ta = d->transpose[0] != CUBLAS_OP_N,
			       .tb = d->transpose[1] != CUBLAS_OP_N,
			       .m = (int64_t)o->rows,
			       .n = (int64_t)o->cols,
			       .lda = a->ld,
			       .ldb = b->ld,
			       .ldc = c->ld,
			       .ldd = o->ld,
			       .scale_a = d->scale[0],
			       .scale_b = d->scale[1],
			       .outer = d->mode[0] == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F };
	p->k = (int64_t)(p->ta ? a->rows : a->cols);
	const struct layout *all[] = { a, b, c, o };
	for (int i = 0; i < 4; i++)
		if (all[i]->order != CUBLASLT_ORDER_COL || all[i]->batch != 1 || !all[i]->rows || !all[i]->cols ||
		    all[i]->ld < (int64_t)all[i]->rows)
			return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
				      "a layout in rows, of a batch, empty, or with ld %lld of %llu rows",
				      (long long)all[i]->ld, (unsigned long long)all[i]->rows);
	if ((int64_t)(p->ta ? a->cols : a->rows) != p->m || (int64_t)(p->tb ? b->cols : b->rows) != p->k ||
	    (int64_t)(p->tb ? b->rows : b->cols) != p->n || c->rows != o->rows || c->cols != o->cols)
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "shapes that do not fit each other: m %lld n %lld k %lld",
			      (long long)p->m, (long long)p->n, (long long)p->k);
	return check_types(d, p);
}

static size_t workspace_of(int algorithm, const struct product *p)
{
	return algorithm == SPLIT ? (size_t)(2 * p->m * p->n) * sizeof(float) : 0;
}

static void set_algorithm(cublasLtMatmulAlgo_t *to, int id)
{
	memset(to, 0, sizeof *to);
	struct algorithm *own = (struct algorithm *)(void *)to;
	*own = (struct algorithm){ .magic = MAGIC,
				   .id = id,
				   .split = id == SPLIT ? 2 : 1,
				   .reduction = id == SPLIT ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0 };
}
static int algorithm_of(const cublasLtMatmulAlgo_t *from)
{
	const struct algorithm *a = (const struct algorithm *)(const void *)from;
	return a->magic == MAGIC && a->id >= 0 && a->id < ALGORITHMS ? a->id : -1;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
					      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
					      cublasLtMatrixLayout_t o, cublasLtMatmulPreference_t pref, int most,
					      cublasLtMatmulHeuristicResult_t out[], int *found)
{
	struct product p;
	const struct preference *want = preference_of(pref);
	cublasStatus_t st = describe(desc_of(d), layout_of(a), layout_of(b), layout_of(c), layout_of(o), &p);
	(void)h;
	*found = 0;
	if (st != CUBLAS_STATUS_SUCCESS)
		return st;
	for (int i = 0; i < 4; i++)
		if (is_fp8(p.type_a) && want->align[i] < 16)
			return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 aligned to %u bytes", want->align[i]);
	for (int id = 0; id < ALGORITHMS && *found < most; id++) {
		if (workspace_of(id, &p) > want->workspace ||
		    (id == SPLIT && (p.k < 2 || !(want->reduction & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))))
			continue;
		cublasLtMatmulHeuristicResult_t *r = &out[(*found)++];
		*r = (cublasLtMatmulHeuristicResult_t){ .workspaceSize = workspace_of(id, &p),
							.state = CUBLAS_STATUS_SUCCESS,
							.wavesCount = 1 };
		set_algorithm(&r->algo, id);
	}
	return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
				       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t o,
				       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *out)
{
	struct product p;
	cublasStatus_t st = describe(desc_of(d), layout_of(a), layout_of(b), layout_of(c), layout_of(o), &p);
	int id = algorithm_of(algo);
	(void)h;
	if (st != CUBLAS_STATUS_SUCCESS)
		return st;
	if (id < 0 || (id == SPLIT && p.k < 2))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	*out = (cublasLtMatmulHeuristicResult_t){
		.algo = *algo, .workspaceSize = workspace_of(id, &p), .state = CUBLAS_STATUS_SUCCESS, .wavesCount = 1
	};
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
						    cublasLtMatmulAlgoConfigAttributes_t a, void *to, size_t bytes,
						    size_t *written)
{
	struct algorithm *own = (struct algorithm *)(void *)(uintptr_t)algo;
	int32_t zero = 0;
	switch (a) {
	case CUBLASLT_ALGO_CONFIG_ID: return get((struct field){ &own->id, 4 }, to, bytes, written);
	case CUBLASLT_ALGO_CONFIG_SPLITK_NUM: return get((struct field){ &own->split, 4 }, to, bytes, written);
	case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
		return get((struct field){ &own->reduction, 4 }, to, bytes, written);
	default: return get((struct field){ &zero, 4 }, to, bytes, written);
	}
}

/* ---- the product itself ---- */

/* GCC's own: the best of what the machine has. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FAST __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define FAST
#endif
enum { LANES = 8, ROWS = 4 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

static float number(const void *at, cudaDataType type, int64_t i)
{
	switch (type) {
	case CUDA_R_32F: return ((const float *)at)[i];
	case CUDA_R_16BF: return fo_bf16_to_f32(((const uint16_t *)at)[i]);
	case CUDA_R_8F_E4M3: return fo_e4m3_to_f32(((const uint8_t *)at)[i]);
	default: return fo_e5m2_to_f32(((const uint8_t *)at)[i]);
	}
}

/* lines x k, each line padded with zeros to whole lanes; element (i, l) lies at i step_i + l step_l. */
static float *unpack(const void *from, cudaDataType type, int64_t lines, int64_t k, int64_t step_i, int64_t step_l,
		     int64_t padded)
{
	float *to = aligned_alloc(64, ((size_t)(lines * padded) * sizeof *to + 63) / 64 * 64);
	if (!to)
		abort();
	for (int64_t i = 0; i < lines; i++) {
		for (int64_t l = 0; l < k; l++)
			to[i * padded + l] = number(from, type, i * step_i + l * step_l);
		for (int64_t l = k; l < padded; l++)
			to[i * padded + l] = 0;
	}
	return to;
}

/* out[r] = sum of a[r stride + l] b[l] over [0, k): a sum in each lane, then those. */
FAST static void dots(const float *a, int64_t stride, const float *b, int64_t k, float *out)
{
	lanes s[ROWS] = { 0 };
	for (int64_t l = 0; l < k; l += LANES)
		for (int r = 0; r < ROWS; r++)
			s[r] += *(const lanes *)(const void *)(a + r * stride + l) *
				*(const lanes *)(const void *)(b + l);
	for (int r = 0; r < ROWS; r++)
		out[r] = ((s[r][0] + s[r][4]) + (s[r][2] + s[r][6])) + ((s[r][1] + s[r][5]) + (s[r][3] + s[r][7]));
}

static void finish(const struct product *p, int64_t i, int64_t j, float sum, float alpha, float beta)
{
	if (p->scale_a)
		sum *= ((const float *)p->scale_a)[p->outer ? i : 0];
	if (p->scale_b)
		sum *= ((const float *)p->scale_b)[p->outer ? j : 0];
	float x = alpha * sum;
	if (beta != 0)
		x += beta * number(p->c, p->type_c, j * p->ldc + i);
	if (p->type_d == CUDA_R_32F)
		((float *)p->d)[j * p->ldd + i] = x;
	else
		((uint16_t *)p->d)[j * p->ldd + i] = fo_bf16_from_f32(x);
}

/* FLATOUT_SOFT_TIMES="100,110/130,100": what a product takes, in made-up microseconds, by algorithm; behind the stroke,
 * where there is one, from the TIRED-th run of the same algorithm in a row on, as on a device whose clock falls when an
 * algorithm draws much power. While it is set no other time passes on the device, so that a choice by time can be
 * foretold. */
static void take_time(int algorithm)
{
	static int last = -1, in_a_row;
	const char *p = getenv("FLATOUT_SOFT_TIMES");
	char *end;
	in_a_row = algorithm == last ? in_a_row + 1 : 1;
	last = algorithm;
	for (int i = 0; p && i < algorithm; i++) {
		p = strchr(p, ',');
		p += p != NULL;
	}
	if (!p)
		return;
	double us = strtod(p, &end);
	if (*end == '/' && in_a_row > TIRED)
		us = strtod(end + 1, &end);
	fo_software_takes(us);
}

static void product(void *args)
{
	const struct product *p = args;
	take_time(p->algorithm);
	const float alpha = p->alpha_at ? *(const float *)p->alpha_at : p->alpha,
		    beta = p->beta_at ? *(const float *)p->beta_at : p->beta;
	/* Halves of the depth begin at whole lanes. */
	const int64_t half = (p->k + 2 * LANES - 1) / (2 * LANES) * LANES, padded = 2 * half,
		      lines = (p->m + ROWS - 1) / ROWS * ROWS;
	float *a = unpack(p->a, p->type_a, p->m, p->k, p->ta ? p->lda : 1, p->ta ? 1 : p->lda, padded);
	float *b = unpack(p->b, p->type_b, p->n, p->k, p->tb ? 1 : p->ldb, p->tb ? p->ldb : 1, padded);
	float *part = p->workspace;
	if (lines != p->m) { /* the last rows are read four at a time */
		a = realloc(a, (size_t)(lines * padded) * sizeof *a);
		if (!a)
			abort();
		memset(a + p->m * padded, 0, (size_t)((lines - p->m) * padded) * sizeof *a);
	}
	if (part)
		memset(part, 0xff, workspace_of(p->algorithm, p));
	for (int64_t j = 0; j < p->n; j++)
		for (int64_t i = 0; i < p->m; i += ROWS) {
			float sum[ROWS] = { 0 }, one[ROWS];
			int64_t step = p->algorithm == CHUNKS ? CHUNK : p->algorithm == SPLIT ? half : padded;
			for (int64_t l = 0; l < padded; l += step) {
				dots(a + i * padded + l, padded, b + j * padded + l,
				     l + step < padded ? step : padded - l, one);
				for (int r = 0; r < ROWS && i + r < p->m; r++) {
					if (part)
						part[(l / half * p->n + j) * p->m + i + r] = one[r];
					sum[r] = l ? sum[r] + one[r] : one[r];
				}
			}
			for (int r = 0; r < ROWS && i + r < p->m; r++)
				finish(p, i + r, j,
				       part ? part[j * p->m + i + r] + part[(p->n + j) * p->m + i + r] : sum[r], alpha,
				       beta);
		}
	free(a);
	free(b);
}

static bool aligned(const void *p, size_t to) { return (uintptr_t)p % to == 0; }
static size_t extent(const struct layout *l)
{
	return ((size_t)l->ld * (size_t)(l->cols - 1) + (size_t)l->rows) * type_bytes(l->type);
}

static cublasStatus_t check_memory(const struct product *p, const struct layout *a, const struct layout *b,
				   const struct layout *c, const struct layout *o)
{
	const struct {
		const void *at;
		const struct layout *l;
		const char *name;
	} all[] = { { p->a, a, "A" }, { p->b, b, "B" }, { p->c, c, "C" }, { p->d, o, "D" } };
	for (int i = 0; i < 4; i++) {
		if (i == 2 && p->beta == 0 && !p->beta_at)
			continue; /* C is not read */
		if (!fo_software_holds(all[i].at, extent(all[i].l)))
			return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s is not in device memory", all[i].name);
		if (!aligned(all[i].at, is_fp8(p->type_a) ? 16 : type_bytes(all[i].l->type)))
			return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%s is not aligned", all[i].name);
	}
	if (p->c == p->d && p->beta != 0 && c->ld != o->ld)
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "C in the place of D in another layout");
	if ((p->scale_a && !fo_software_holds(p->scale_a, (size_t)(p->outer ? p->m : 1) * 4)) ||
	    (p->scale_b && !fo_software_holds(p->scale_b, (size_t)(p->outer ? p->n : 1) * 4)))
		return refuse(CUBLAS_STATUS_INVALID_VALUE, "scales that are not in device memory");
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
			      cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta,
			      const void *C, cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t o,
			      const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
			      cudaStream_t stream)
{
	struct product p;
	(void)h;
	cublasStatus_t st = describe(desc_of(desc), layout_of(a), layout_of(b), layout_of(c), layout_of(o), &p);
	if (st != CUBLAS_STATUS_SUCCESS)
		return st;
	p.a = A;
	p.b = B;
	p.c = C;
	p.d = D;
	if (desc_of(desc)->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
		p.alpha_at = alpha;
		p.beta_at = beta;
	} else {
		p.alpha = *(const float *)alpha;
		p.beta = *(const float *)beta;
	}
	p.algorithm = algo ? algorithm_of(algo) : PLAIN;
	if (p.algorithm < 0 || (p.algorithm == SPLIT && p.k < 2))
		return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an algorithm that is not of this library");
	size_t need = workspace_of(p.algorithm, &p);
	if (need > workspace_bytes ||
	    (need && (!aligned(workspace, WORKSPACE_ALIGN) || !fo_software_holds(workspace, workspace_bytes))))
		return refuse(CUBLAS_STATUS_INVALID_VALUE,
			      "a workspace of %zu bytes, not aligned, or not in device memory: %zu are needed",
			      workspace_bytes, need);
	p.workspace = need ? workspace : NULL;
	st = check_memory(&p, layout_of(a), layout_of(b), layout_of(c), layout_of(o));
	if (st != CUBLAS_STATUS_SUCCESS)
		return st;
	return fo_software_enqueue(stream, product, &p, sizeof p, "product") ? CUBLAS_STATUS_EXECUTION_FAILED
									     : CUBLAS_STATUS_SUCCESS;
}
