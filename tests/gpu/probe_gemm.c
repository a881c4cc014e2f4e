/* Step 3: matrix products of Llama-3.1-8B at 8,192 tokens with cublasLt: five shapes, forward, data gradient and weight
 * gradient (accumulated into fp32), bf16 and fp8 with one scale per tensor and one per row. Every algorithm that the
 * heuristic names (at most 32) is timed, then the best four alternate for half a second each. Sampled elements are
 * checked on the host. */
#include "probe_util.h"

#include <cublasLt.h>

#define LT(call) lt((call), #call)
static int lt(cublasStatus_t s, const char *what)
{
	if (s != CUBLAS_STATUS_SUCCESS)
		printf("    %s: status %d\n", what, (int)s);
	return s == CUBLAS_STATUS_SUCCESS;
}

enum { TOKENS = 8192, ALGORITHMS = 32, FINALISTS = 4, SAMPLES = 24, MAX_ROUNDS = 400 };
enum { PATTERN = 16777213 };                     /* a prime: the repeated pattern does not line up with rows */
static const size_t workspace_bytes = 32u << 20; /* cublas documents 32 MiB for this architecture */
enum mode { BF16, FP8_TENSOR, FP8_ROW };
static const char *const mode_name[] = { "bf16", "fp8-tensor", "fp8-row" };

struct problem {
	enum mode mode;
	int64_t m, n, k; /* D(m,n) = op(A) op(B), column-major as cublas has it */
	int transpose_a, transpose_b, accumulate;
	cudaDataType_t type_a, type_b, type_d;
	void *a, *b, *d, *workspace;
	float *scale_a, *scale_b;
	cublasLtHandle_t handle;
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t layout_a, layout_b, layout_d;
	cublasLtMatmulAlgo_t algo;
	int failed;
};

/* Random operands: `pattern[i % PATTERN]` is element i of every operand. */
static uint16_t *bf16_pattern;
static uint8_t *fp8_pattern;

static float decode_fp8(uint8_t c, int e5m2)
{
	int mantissa_bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
	int mantissa = c & ((1 << mantissa_bits) - 1), exponent = (c & 0x7f) >> mantissa_bits;
	float x = exponent ? ldexpf(1 + ldexpf((float)mantissa, -mantissa_bits), exponent - bias)
			   : ldexpf((float)mantissa, 1 - bias - mantissa_bits);
	return c & 0x80 ? -x : x;
}

static void make_patterns(void)
{
	uint64_t seed = 7;
	bf16_pattern = malloc(PATTERN * sizeof *bf16_pattern);
	fp8_pattern = malloc(PATTERN);
	if (!bf16_pattern || !fp8_pattern) {
		printf("failed: no host memory\n");
		exit(1);
	}
	/* codes 0x20..0x47: as E4M3 from 1/8 to 3.75, as E5M2 from 1/128 to 7; finite in both, with varied mantissas */
	for (int i = 0; i < PATTERN; i++) {
		uint64_t x = next_random(&seed);
		bf16_pattern[i] = to_bf16((float)next_normal(&seed));
		fp8_pattern[i] = (uint8_t)(0x20 + x % 40 + (x >> 32 & 1) * 0x80);
	}
}

static int element_bytes(cudaDataType_t t) { return t == CUDA_R_32F ? 4 : t == CUDA_R_16BF ? 2 : 1; }

static void *device_operand(cudaDataType_t type, int64_t count)
{
	size_t size = (size_t)element_bytes(type), part = PATTERN * size, bytes = (size_t)count * size;
	const void *pattern = type == CUDA_R_16BF ? (const void *)bf16_pattern : fp8_pattern;
	char *p;
	if (cudaMalloc((void **)&p, bytes) != cudaSuccess)
		return NULL;
	for (size_t at = 0; at < bytes; at += part)
		CUDA(cudaMemcpy(p + at, pattern, bytes - at < part ? bytes - at : part, cudaMemcpyHostToDevice));
	return p;
}

static double host_element(cudaDataType_t type, int64_t i)
{
	return type == CUDA_R_16BF ? from_bf16(bf16_pattern[i % PATTERN])
				   : decode_fp8(fp8_pattern[i % PATTERN], type == CUDA_R_8F_E5M2);
}

static double row_scale(int64_t i) { return 1 + (double)(i % 7) / 8; } /* not all one, so that a dropped scale shows */

static float *device_scales(int64_t n, int rows)
{
	float *host = malloc((size_t)n * sizeof *host), *p;
	if (!host) {
		printf("failed: no host memory\n");
		exit(1);
	}
	for (int64_t i = 0; i < n; i++)
		host[i] = rows ? (float)row_scale(i) : 1;
	CUDA(cudaMalloc((void **)&p, (size_t)n * sizeof *p));
	CUDA(cudaMemcpy(p, host, (size_t)n * sizeof *p, cudaMemcpyHostToDevice));
	free(host);
	return p;
}

#define SET(attribute, value) LT(cublasLtMatmulDescSetAttribute(p->desc, attribute, &(value), sizeof(value)))

static int describe(struct problem *p)
{
	cublasOperation_t op_a = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
			  op_b = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
	uint64_t rows_a = (uint64_t)(p->transpose_a ? p->k : p->m), cols_a = (uint64_t)(p->transpose_a ? p->m : p->k);
	uint64_t rows_b = (uint64_t)(p->transpose_b ? p->n : p->k), cols_b = (uint64_t)(p->transpose_b ? p->k : p->n);
	if (!LT(cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)) ||
	    !LT(cublasLtMatrixLayoutCreate(&p->layout_a, p->type_a, rows_a, cols_a, (int64_t)rows_a)) ||
	    !LT(cublasLtMatrixLayoutCreate(&p->layout_b, p->type_b, rows_b, cols_b, (int64_t)rows_b)) ||
	    !LT(cublasLtMatrixLayoutCreate(&p->layout_d, p->type_d, (uint64_t)p->m, (uint64_t)p->n, p->m)))
		return 0;
	int ok = SET(CUBLASLT_MATMUL_DESC_TRANSA, op_a) && SET(CUBLASLT_MATMUL_DESC_TRANSB, op_b);
	if (ok && p->mode != BF16) {
		/* fast accumulation is for the forward product only: gradients need the split sums */
		int8_t fast = !p->accumulate && p->type_b == CUDA_R_8F_E4M3;
		ok = SET(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast) &&
		     SET(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p->scale_a) &&
		     SET(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p->scale_b);
	}
	if (ok && p->mode == FP8_ROW) {
		cublasLtMatmulMatrixScale_t outer = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
		ok = SET(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, outer) && SET(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, outer);
	}
	return ok;
}

static void run_problem(void *arg)
{
	struct problem *p = arg;
	float one = 1, beta = p->accumulate ? 1 : 0;
	if (cublasLtMatmul(p->handle, p->desc, &one, p->a, p->layout_a, p->b, p->layout_b, &beta, p->d, p->layout_d,
			   p->d, p->layout_d, &p->algo, p->workspace, workspace_bytes, 0) != CUBLAS_STATUS_SUCCESS)
		p->failed = 1;
}

/* Largest error of the sampled elements, in units of the root mean square that random products have, sqrt(k) rms(a)
 * rms(b). */
static double check(struct problem *p)
{
	CUDA(cudaMemset(p->d, 0, (size_t)(p->m * p->n * element_bytes(p->type_d))));
	run_problem(p);
	CUDA(cudaDeviceSynchronize());
	uint64_t seed = 3;
	double worst = 0;
	for (int s = 0; s < SAMPLES; s++) {
		int64_t i = (int64_t)(next_random(&seed) % (uint64_t)p->m),
			j = (int64_t)(next_random(&seed) % (uint64_t)p->n);
		double want = 0, squares = 0;
		for (int64_t k = 0; k < p->k; k++) {
			double x = host_element(p->type_a, p->transpose_a ? i * p->k + k : k * p->m + i) *
				   host_element(p->type_b, p->transpose_b ? k * p->n + j : j * p->k + k);
			want += x;
			squares += x * x;
		}
		double scale = p->mode == FP8_ROW ? row_scale(i) * row_scale(j) : 1, got;
		const char *at = (const char *)p->d + (i + j * p->m) * element_bytes(p->type_d);
		if (p->type_d == CUDA_R_32F) {
			float f;
			CUDA(cudaMemcpy(&f, at, sizeof f, cudaMemcpyDeviceToHost));
			got = f;
		} else {
			uint16_t h;
			CUDA(cudaMemcpy(&h, at, sizeof h, cudaMemcpyDeviceToHost));
			got = from_bf16(h);
		}
		double error = fabs(got - want * scale) / (scale * sqrt(squares));
		worst = error > worst || isnan(error) ? error : worst;
	}
	return worst;
}

struct result {
	cublasLtMatmulAlgo_t algo;
	double ms;
	int id;
};

static int faster(const void *a, const void *b)
{
	return compare_double(&((const struct result *)a)->ms, &((const struct result *)b)->ms);
}

/* Asks for algorithms and times each shortly; returns how many ran, fastest first. */
static int find_algorithms(struct problem *p, struct result *found)
{
	cublasLtMatmulPreference_t preference;
	cublasLtMatmulHeuristicResult_t answer[ALGORITHMS];
	int n = 0, kept = 0;
	if (!LT(cublasLtMatmulPreferenceCreate(&preference)))
		return 0;
	LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
						sizeof workspace_bytes));
	cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, p->layout_a, p->layout_b, p->layout_d,
							  p->layout_d, preference, ALGORITHMS, answer, &n);
	cublasLtMatmulPreferenceDestroy(preference);
	for (int i = 0; s == CUBLAS_STATUS_SUCCESS && i < n; i++) {
		double ms[3];
		p->algo = answer[i].algo;
		p->failed = 0;
		run_problem(p);
		for (int r = 0; r < 3; r++)
			ms[r] = time_once(run_problem, p);
		if (!p->failed)
			found[kept++] = (struct result){ answer[i].algo, median(ms, 3), i };
	}
	qsort(found, (size_t)kept, sizeof *found, faster);
	return kept;
}

/* Times and prints; returns 1 where a product is wrong. */
static int measure(struct problem *p, const char *shape, const char *pass)
{
	struct result found[ALGORITHMS];
	int n = find_algorithms(p, found), finalists = n < FINALISTS ? n : FINALISTS;
	printf("%-8s %-6s %-10s %7lld %7lld %6lld ", shape, pass, mode_name[p->mode], (long long)p->m, (long long)p->n,
	       (long long)p->k);
	if (!n) {
		printf("  no algorithm\n");
		return 0;
	}
	static double ms[FINALISTS][MAX_ROUNDS];
	int rounds = (int)(500 / found[0].ms);
	rounds = rounds < 10 ? 10 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
	for (int r = 0; r < rounds; r++)
		for (int f = 0; f < finalists; f++) {
			p->algo = found[f].algo;
			ms[f][r] = time_once(run_problem, p);
		}
	int best = 0;
	for (int f = 0; f < finalists; f++)
		if (median(ms[f], rounds) < median(ms[best], rounds))
			best = f;
	p->algo = found[best].algo;
	double mid = median(ms[best], rounds), flop = 2.0 * (double)p->m * (double)p->n * (double)p->k,
	       error = check(p);
	/* bf16 output: half a unit in the last place of values up to about five times the rms is 5 x 2^-9 = 0.01; fp32
	 * output of fp8 products is kept with about 13 bits by this hardware's accumulator, below that as well */
	int wrong = !(error < 0.02);
	printf("%8.3f ms %7.1f TFLOP/s  (%d algorithms, heuristic's rank %d; error %.1e%s)\n", mid, flop / mid * 1e-9,
	       n, found[best].id, error, wrong ? " WRONG" : "");
	return wrong;
}

/* One product of one pass. Row-major Y(T,N) = X(T,K) W(N,K)' is column-major Y'(N,T) = (W')' X'. */
static int product(cublasLtHandle_t handle, void *workspace, const char *shape, int64_t n_out, int64_t n_in, int pass,
		   enum mode mode)
{
	static const char *const pass_name[] = { "fprop", "dgrad", "wgrad" };
	struct problem p = { .mode = mode,
			     .handle = handle,
			     .workspace = workspace,
			     .accumulate = pass == 2,
			     .m = pass == 0 ? n_out : n_in,
			     .n = pass == 2 ? n_out : TOKENS,
			     .k = pass == 0   ? n_in
				  : pass == 1 ? n_out
					      : TOKENS,
			     .transpose_a = pass == 0 ||
					    mode != BF16, /* fp8 on this hardware takes K-major operands only */
			     .transpose_b = pass == 2 && mode == BF16,
			     .type_a = mode == BF16 ? CUDA_R_16BF : CUDA_R_8F_E4M3,
			     .type_b = mode == BF16 ? CUDA_R_16BF
				       : pass == 0  ? CUDA_R_8F_E4M3
						    : CUDA_R_8F_E5M2,
			     .type_d = pass == 2 ? CUDA_R_32F : CUDA_R_16BF };
	p.a = device_operand(p.type_a, p.m * p.k);
	p.b = device_operand(p.type_b, p.n * p.k);
	p.scale_a = device_scales(p.m, mode == FP8_ROW);
	p.scale_b = device_scales(p.n, mode == FP8_ROW);
	int wrong = 0;
	if (!p.a || !p.b || cudaMalloc(&p.d, (size_t)(p.m * p.n * element_bytes(p.type_d))) != cudaSuccess) {
		printf("%-8s %-6s %-10s does not fit into the device's memory\n", shape, pass_name[pass],
		       mode_name[mode]);
		cudaGetLastError();
	} else {
		CUDA(cudaMemset(p.d, 0, (size_t)(p.m * p.n * element_bytes(p.type_d))));
		if (describe(&p))
			wrong = measure(&p, shape, pass_name[pass]);
	}
	if (p.desc)
		cublasLtMatmulDescDestroy(p.desc);
	cublasLtMatrixLayout_t layout[] = { p.layout_a, p.layout_b, p.layout_d };
	for (int i = 0; i < 3; i++)
		if (layout[i])
			cublasLtMatrixLayoutDestroy(layout[i]);
	cudaFree(p.a);
	cudaFree(p.b);
	cudaFree(p.d);
	cudaFree(p.scale_a);
	cudaFree(p.scale_b);
	fflush(stdout);
	return wrong;
}

int main(void)
{
	/* Llama-3.1-8B: hidden 4,096, 32 heads and 8 kv heads of 128, ffn 14,336, vocabulary 128,256 */
	static const struct {
		const char *name;
		int64_t out, in;
	} shape[] = {
		{ "qkv", 6144, 4096 },   { "out", 4096, 4096 },    { "gate-up", 28672, 4096 },
		{ "down", 4096, 14336 }, { "head", 128256, 4096 },
	};
	int n = 0, wrong = 0;
	if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
		printf("skipped: no CUDA device\n");
		return 77;
	}
	struct cudaDeviceProp device;
	CUDA(cudaGetDeviceProperties(&device, 0));
	int fp8 = device.major > 8 || (device.major == 8 && device.minor == 9); /* fp8 products begin with 8.9 */
	cublasLtHandle_t handle;
	void *workspace;
	if (!LT(cublasLtCreate(&handle)))
		return 1;
	CUDA(cudaMalloc(&workspace, workspace_bytes));
	make_patterns();
	printf("shape    pass   mode             m       n      k   median of alternating runs, random data, %d "
	       "tokens\n",
	       TOKENS);
	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int pass = 0; pass < 3; pass++)
			for (enum mode mode = BF16; mode <= (fp8 ? FP8_ROW : BF16); mode++)
				wrong += product(handle, workspace, shape[s].name, shape[s].out, shape[s].in, pass,
						 mode);
	printf("products: %d wrong\n", wrong);
	return wrong != 0;
}
