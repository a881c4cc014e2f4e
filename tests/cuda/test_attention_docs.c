/* What surrounds cuDNN: the choice of a plan by documents, lengths and offsets made on the device, documents of one token, rows without
 * gaps, workspace. A double takes cuDNN's place: it computes what the description and the pointers say, plainly, in the stream. Results
 * must be those of our own kernels, which test_cuda_kernels holds to the reference. On a real device cuDNN itself is meant: skipped. */
#include "support/cuda.h"

#ifdef FO_CUDA_HEADERS
#include "base/clock.h"
#include "kernel/cuda/cudnn.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the double: all of cudnn.c's functions ---- */

enum { PLANS = 64 };
static struct fo_cuda_plan plan[PLANS];
static int plans, runs;
static const struct fo_test_soft *soft;

const struct fo_cuda_plan *fo_cuda_plan_at(const struct fo_cuda *c, int i)
{
	(void)c;
	return i < plans ? &plan[i] : NULL;
}
const struct fo_cuda_plan *fo_cuda_plan_find(const struct fo_cuda *c, const struct fo_dnn_shape *s)
{
	(void)c;
	for (int i = 0; i < plans; i++)
		if (!memcmp(&plan[i].shape, s, sizeof *s))
			return &plan[i];
	return NULL;
}
fo_status fo_cuda_plan_get(struct fo_cuda *c, const struct fo_dnn_shape *s, const struct fo_cuda_plan **out, bool *is_new)
{
	*out = fo_cuda_plan_find(c, s);
	*is_new = !*out;
	if (*out)
		return FO_OK;
	assert_true(plans < PLANS);
	plan[plans].shape = *s;
	plan[plans].made.workspace = 1000;
	*out = &plan[plans++];
	return FO_OK;
}
void fo_cuda_plans_free(struct fo_cuda *c)
{
	(void)c;
	plans = 0;
}

struct work {
	struct fo_dnn_shape s;
	void *at[FO_DNN_IDS];
	void *ws;
	float scale, window;
};
static float get(const struct work *w, int id, int64_t first, int64_t i, int64_t col)
{
	return fo_bf16_to_f32(((const uint16_t *)w->at[id])[first + i * w->s.ld[id] + col]);
}
static void put(const struct work *w, int id, int64_t first, int64_t i, int64_t col, float x)
{
	((uint16_t *)w->at[id])[first + i * w->s.ld[id] + col] = fo_bf16_from_f32(x);
}
static int64_t first_of(const struct work *w, int id, int64_t b)
{
	static const int offset[] = { [FO_DNN_Q] = FO_DNN_OFFSET_Q, [FO_DNN_K] = FO_DNN_OFFSET_K, [FO_DNN_V] = FO_DNN_OFFSET_V,
				      [FO_DNN_O] = FO_DNN_OFFSET_O, [FO_DNN_LSE] = FO_DNN_OFFSET_LSE, [FO_DNN_DO] = FO_DNN_OFFSET_O,
				      [FO_DNN_DQ] = FO_DNN_OFFSET_Q, [FO_DNN_DK] = FO_DNN_OFFSET_K, [FO_DNN_DV] = FO_DNN_OFFSET_V };
	return w->s.ragged ? ((const int64_t *)w->at[offset[id]])[b] : b * w->s.seq * w->s.ld[id];
}
static float dot(const struct work *w, int a, int64_t ai, int64_t ac, int b, int64_t bi, int64_t bc, int64_t doc)
{
	float x = 0;
	for (int64_t d = 0; d < w->s.dim; d++)
		x += get(w, a, first_of(w, a, doc), ai, ac + d) * get(w, b, first_of(w, b, doc), bi, bc + d);
	return x;
}
static int64_t first_key(const struct work *w, int64_t i) { return w->s.window && i + 1 > w->window ? i + 1 - (int64_t)w->window : 0; }

static void forward_row(const struct work *w, int64_t doc, int64_t h, int64_t i)
{
	const int64_t dim = w->s.dim, cq = h * dim, ck = h / (w->s.heads / w->s.kv) * dim, j0 = first_key(w, i);
	float score[1024], top = -INFINITY, sum = 0;
	for (int64_t j = j0; j <= i; j++) {
		score[j] = w->scale * dot(w, FO_DNN_Q, i, cq, FO_DNN_K, j, ck, doc);
		top = fmaxf(top, score[j]);
	}
	for (int64_t j = j0; j <= i; j++)
		sum += score[j] = expf(score[j] - top);
	for (int64_t d = 0; d < dim; d++) {
		float x = 0;
		for (int64_t j = j0; j <= i; j++)
			x += score[j] / sum * get(w, FO_DNN_V, first_of(w, FO_DNN_V, doc), j, ck + d);
		put(w, FO_DNN_O, first_of(w, FO_DNN_O, doc), i, cq + d, x);
	}
	((float *)w->at[FO_DNN_LSE])[first_of(w, FO_DNN_LSE, doc) + i * w->s.ld[FO_DNN_LSE] + h] = top + logf(sum);
}
static void backward_doc(const struct work *w, int64_t doc, int64_t n)
{
	const int64_t dim = w->s.dim, group = w->s.heads / w->s.kv;
	float *dk = calloc((size_t)(n * w->s.kv * dim), sizeof *dk), *dv = calloc((size_t)(n * w->s.kv * dim), sizeof *dv);
	for (int64_t h = 0; h < w->s.heads; h++)
		for (int64_t i = 0; i < n; i++) {
			const int64_t cq = h * dim, ck = h / group * dim;
			const float lse = ((float *)w->at[FO_DNN_LSE])[first_of(w, FO_DNN_LSE, doc) + i * w->s.ld[FO_DNN_LSE] + h];
			const float delta = dot(w, FO_DNN_DO, i, cq, FO_DNN_O, i, cq, doc);
			float dq[256] = { 0 };
			for (int64_t j = first_key(w, i); j <= i; j++) {
				const float p = expf(w->scale * dot(w, FO_DNN_Q, i, cq, FO_DNN_K, j, ck, doc) - lse);
				const float ds = p * (dot(w, FO_DNN_DO, i, cq, FO_DNN_V, j, ck, doc) - delta) * w->scale;
				for (int64_t d = 0; d < dim; d++) {
					dq[d] += ds * get(w, FO_DNN_K, first_of(w, FO_DNN_K, doc), j, ck + d);
					dk[(j * w->s.kv) * dim + ck + d] += ds * get(w, FO_DNN_Q, first_of(w, FO_DNN_Q, doc), i, cq + d);
					dv[(j * w->s.kv) * dim + ck + d] += p * get(w, FO_DNN_DO, first_of(w, FO_DNN_DO, doc), i, cq + d);
				}
			}
			for (int64_t d = 0; d < dim; d++)
				put(w, FO_DNN_DQ, first_of(w, FO_DNN_DQ, doc), i, cq + d, dq[d]);
		}
	for (int64_t j = 0; j < n; j++)
		for (int64_t c = 0; c < w->s.kv * dim; c++) {
			put(w, FO_DNN_DK, first_of(w, FO_DNN_DK, doc), j, c, dk[j * w->s.kv * dim + c]);
			put(w, FO_DNN_DV, first_of(w, FO_DNN_DV, doc), j, c, dv[j * w->s.kv * dim + c]);
		}
	free(dk);
	free(dv);
}
/* What cuDNN may write on the way, where the description says that it lies: too small a workspace shows. */
static void scribble(const struct work *w)
{
	const struct fo_dnn_shape *s = &w->s;
	memset(w->ws, 0xff, 1000);
	if (!s->backward)
		return;
	memset(w->at[FO_DNN_ROWSUM], 0xff, (size_t)(s->tokens * s->heads) * 4);
	memset(w->at[FO_DNN_DQ_SUM], 0xff, (size_t)(s->tokens * (s->ragged ? s->ld[FO_DNN_DQ] : s->heads * s->dim)) * 4);
	if (s->ragged && s->heads != s->kv) {
		memset(w->at[FO_DNN_DK_FULL], 0xff, (size_t)(s->tokens * s->ld[FO_DNN_DK] * (s->heads / s->kv)) * 2);
		memset(w->at[FO_DNN_DV_FULL], 0xff, (size_t)(s->tokens * s->ld[FO_DNN_DV] * (s->heads / s->kv)) * 2);
	}
}
/* Runs in the device's own thread, where a test cannot end: what was wrong is told, and looked at when the stream is idle. */
static const char *wrong;
static void compute(void *args)
{
	const struct work *w = args;
	int64_t end = 0;
	scribble(w);
	for (int64_t b = 0; b < w->s.batch; b++) {
		const int64_t n = w->s.ragged ? ((const int32_t *)w->at[FO_DNN_LENGTH])[b] : w->s.seq;
		const int64_t start = first_of(w, FO_DNN_Q, b) / w->s.ld[FO_DNN_Q];
		if (n < 0 || n > w->s.seq || n == 1 || start < end || start + n > w->s.tokens) {
			wrong = "documents are not in order, overlap, or are of one token";
			return;
		}
		end = start + n;
		if (w->s.backward)
			backward_doc(w, b, n);
		for (int64_t h = 0; !w->s.backward && h < w->s.heads; h++)
			for (int64_t i = 0; i < n; i++)
				forward_row(w, b, h, i);
	}
	if (w->s.ragged && ((const int64_t *)w->at[FO_DNN_OFFSET_Q])[w->s.batch] != w->s.tokens * w->s.ld[FO_DNN_Q])
		wrong = "the last offset is not the end";
}
fo_status fo_cuda_plan_run(struct fo_cuda_queue *q, const struct fo_cuda_plan *p, void *const *pointer, void *ws)
{
	struct work w = { .s = p->shape, .ws = ws, .scale = *(float *)pointer[FO_DNN_SCALE], .window = *(float *)pointer[FO_DNN_WINDOW] };
	memcpy(w.at, pointer, sizeof w.at);
	assert_true(*(float *)pointer[FO_DNN_MINUS_INF] < -1e30f && *(float *)pointer[FO_DNN_ONE] == 1);
	runs++;
	assert_int_equal(soft->enqueue(q->stream, compute, &w, sizeof w, "cuDNN's double"), 0);
	return FO_OK;
}

/* ---- calls ---- */

struct layout {
	int tokens, heads, kv, dim, window;
	bool fused; /* q, k, v in one row; so their gradients */
};
enum { Q, K, V, O, LSE, DO, DOC, DQ, DK, DV, OPERANDS };
struct data {
	struct layout l;
	struct fo_tensor t[OPERANDS]; /* on the software device, which is host memory */
	void *block[OPERANDS];
};
static struct fo_cuda *cuda;

static struct fo_tensor make(struct data *x, int i, int64_t rows, int64_t cols, int64_t ld, int dtype, double sigma)
{
	const size_t bytes = (size_t)(rows * ld) * fo_dtype_bytes((enum fo_dtype)dtype);
	assert_int_equal(fo_cuda_alloc(cuda, bytes, &x->block[i]), FO_OK);
	memset(x->block[i], 0xff, bytes);
	for (int64_t k = 0; sigma > 0 && k < rows * ld; k++)
		((uint16_t *)x->block[i])[k] = fo_bf16_from_f32((float)(sigma * fo_rng_normal((uint64_t)i + 7, (uint64_t)k)));
	return (struct fo_tensor){ .data = x->block[i], .rows = rows, .cols = cols, .ld = ld, .dtype = (uint8_t)dtype };
}
static void data_new(struct data *x, struct layout l)
{
	const int64_t q = l.heads * l.dim, k = l.kv * l.dim, row = q + 2 * k;
	*x = (struct data){ .l = l };
	for (int g = 0; g < 2; g++) {
		const int at = g ? DQ : Q;
		x->t[at] = make(x, at, l.tokens, q, l.fused ? row : q, FO_BF16, g ? 0 : 1);
		for (int i = 1; i < 3; i++) {
			if (!l.fused) {
				x->t[at + i] = make(x, at + i, l.tokens, k, k, FO_BF16, g ? 0 : 1);
				continue;
			}
			x->t[at + i] = x->t[at];
			x->t[at + i].cols = k;
			x->t[at + i].data = (uint16_t *)x->block[at] + q + (i - 1) * k;
		}
	}
	x->t[O] = make(x, O, l.tokens, q, q, FO_BF16, 0);
	x->t[DO] = make(x, DO, l.tokens, q, q, FO_BF16, 1);
	x->t[LSE] = make(x, LSE, l.tokens, l.heads, l.heads, FO_F32, 0);
	x->t[DOC] = make(x, DOC, l.tokens, 1, 1, FO_I32, 0);
}
static void data_free(struct data *x)
{
	for (int i = 0; i < OPERANDS; i++)
		fo_cuda_free(cuda, x->block[i]);
}
/* Documents of these lengths, the last one again and again. */
static void set_documents(struct data *x, const int *length, int n)
{
	int32_t *doc = x->block[DOC];
	for (int i = 0, k = 0, start = 0; i < x->l.tokens; i++) {
		if (i - start == length[k]) {
			start = i;
			k = k + 1 < n ? k + 1 : k;
		}
		doc[i] = start;
	}
}
static struct fo_call call_of(const struct data *x, bool backward)
{
	static const int forward_at[] = { Q, K, V, DOC, O, LSE }, backward_at[] = { Q, K, V, O, LSE, DO, DOC, DQ, DK, DV };
	struct fo_call c = { .kind = backward ? FO_OP_attention_bwd : FO_OP_attention, .n = backward ? 10 : 6 };
	for (int i = 0; i < c.n; i++)
		c.arg[i] = x->t[backward ? backward_at[i] : forward_at[i]];
	c.attr.head_dim = x->l.dim;
	c.attr.window = x->l.window;
	c.attr.value = 1 / sqrt(x->l.dim);
	return c;
}
static int64_t variant_of(const struct fo_call *c)
{
	const void *host[FO_MAX_OPERANDS] = { NULL };
	const int doc = c->kind == FO_OP_attention ? 3 : 6;
	host[doc] = c->arg[doc].data;
	return fo_cuda_kernel_of(c->kind)->variant(c, host);
}
static void run(const struct fo_call *c, int64_t variant)
{
	const struct fo_cuda_kernel *k = fo_cuda_kernel_of(c->kind);
	struct fo_call shape = *c;
	struct fo_cuda_queue q = { .cuda = cuda };
	for (int i = 0; i < c->n; i++)
		shape.arg[i].data = NULL;
	if (k->prepare(cuda, &shape, variant, &q.ws_bytes) != FO_OK)
		fail_msg("%s", fo_err_text());
	assert_int_equal(fo_cuda_alloc(cuda, q.ws_bytes, &q.ws), FO_OK);
	memset(q.ws, 0xff, q.ws_bytes);
	assert_int_equal(fo_cuda_stream_new(cuda, &q.stream), FO_OK);
	assert_int_equal(k->run(&q, c, variant), FO_OK);
	assert_int_equal(fo_cuda_stream_wait(cuda, q.stream), FO_OK);
	fo_cuda_stream_free(cuda, q.stream);
	fo_cuda_free(cuda, q.ws);
	if (wrong)
		fail_msg("%s", wrong);
}
static double number(const struct fo_tensor *t, int64_t r, int64_t c)
{
	return t->dtype == FO_F32 ? ((float *)t->data)[r * t->ld + c] : fo_bf16_to_f32(((uint16_t *)t->data)[r * t->ld + c]);
}
/* Largest difference over largest number; NaN counts as infinite. */
static double apart(const struct fo_tensor *a, const struct fo_tensor *b)
{
	double worst = 0, largest = 0;
	for (int64_t r = 0; r < a->rows; r++)
		for (int64_t c = 0; c < a->cols; c++) {
			const double x = number(a, r, c), y = number(b, r, c);
			if (!isfinite(x) || !isfinite(y))
				return INFINITY;
			worst = fmax(worst, fabs(x - y));
			largest = fmax(largest, fabs(y));
		}
	return worst == 0 ? 0 : worst / largest;
}

/* Both directions by the double under `forced` (0: the variant of the contents) and by our own kernels. */
static void compare(struct layout l, const int *length, int n, int64_t forced)
{
	static const int outputs[] = { O, LSE, DQ, DK, DV };
	struct data a, b;
	data_new(&a, l);
	data_new(&b, l);
	set_documents(&a, length, n);
	set_documents(&b, length, n);
	for (int backward = 0; backward < 2; backward++) {
		struct fo_call x = call_of(&a, backward), y = call_of(&b, backward);
		const int64_t variant = forced ? forced : variant_of(&x);
		const int before = runs;
		cuda->dnn_handle = (cudnnHandle_t)(void *)&cuda;
		assert_string_equal(fo_cuda_by(cuda, &x), "cuDNN");
		run(&x, variant);
		assert_true(runs > before);
		cuda->dnn_handle = NULL;
		assert_string_equal(fo_cuda_by(cuda, &y), "flatout");
		const int ours = runs;
		run(&y, variant);
		assert_int_equal(runs, ours);
	}
	for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
		if (apart(&a.t[outputs[i]], &b.t[outputs[i]]) > 0x1p-6) /* two roundings to bf16, o's enters the gradients */
			fail_msg("operand %d of %d tokens, documents of %d, %d, ...: %g apart", outputs[i], l.tokens, length[0],
				 length[n > 1], apart(&a.t[outputs[i]], &b.t[outputs[i]]));
	data_free(&a);
	data_free(&b);
}

static const struct layout plain = { 256, 4, 2, 16, 0, false }, fused = { 256, 4, 2, 16, 0, true }, alone = { 200, 2, 2, 32, 0, true };

static void test_fixed(void **state)
{
	(void)state;
	compare(plain, (const int[]){ 128 }, 1, 0);
	compare(fused, (const int[]){ 256 }, 1, 0);
	compare((struct layout){ 256, 4, 1, 32, 100, true }, (const int[]){ 256 }, 1, 0);
}
static void test_ragged(void **state)
{
	static const int mixed[] = { 1, 3, 90, 1, 1, 60, 2, 70, 1 }, few[] = { 5 };
	(void)state;
	compare(plain, mixed, 9, 0);
	compare(fused, mixed, 9, 0);
	compare(fused, few, 1, 0); /* 51 documents: the second bucket */
	compare(alone, (const int[]){ 200 }, 1, 0);
	compare(alone, (const int[]){ 1 }, 1, 0); /* nothing for cuDNN */
	compare((struct layout){ 256, 4, 2, 16, 40, true }, mixed, 9, 0);
}
static void test_variants(void **state)
{
	struct data x;
	int64_t documents, longest;
	bool ragged;
	(void)state;
	data_new(&x, fused);
	struct fo_call c = call_of(&x, false);
	set_documents(&x, (const int[]){ 128 }, 1);
	const int64_t two = variant_of(&c);
	fo_cuda_docs_of(&c, two, &documents, &longest, &ragged);
	assert_true(!ragged && documents == 2 && longest == 128);
	set_documents(&x, (const int[]){ 5 }, 1);
	const int64_t many = variant_of(&c);
	fo_cuda_docs_of(&c, many, &documents, &longest, &ragged);
	assert_true(ragged && documents == 64 && longest == 128);
	set_documents(&x, (const int[]){ 200, 1 }, 2);
	const int64_t one = variant_of(&c);
	fo_cuda_docs_of(&c, one, &documents, &longest, &ragged);
	assert_true(ragged && documents == 16 && longest == 256);
	/* One that serves all: of either content, and of contents that nobody knows. */
	const int64_t both = fo_cuda_attention.merge(&c, one, many), all = fo_cuda_attention.variant(&c, NULL);
	fo_cuda_docs_of(&c, both, &documents, &longest, &ragged);
	assert_true(ragged && documents == 64 && longest == 256);
	assert_int_equal(fo_cuda_attention.merge(&c, two, two), two);
	assert_int_equal(fo_cuda_attention.merge(&c, two, many), many);
	fo_cuda_docs_of(&c, all, &documents, &longest, &ragged);
	assert_true(ragged && documents >= 128 && longest == 256);
	compare(fused, (const int[]){ 128 }, 1, both);
	compare(fused, (const int[]){ 5 }, 1, both);
	compare(fused, (const int[]){ 200, 1 }, 2, both);
	compare(fused, (const int[]){ 2 }, 1, all);
	data_free(&x);
}
/* A graph made for fewer or shorter documents than it gets must not pass unseen. */
static void test_unfit(void **state)
{
	struct data x;
	(void)state;
	data_new(&x, fused);
	set_documents(&x, (const int[]){ 256 }, 1);
	struct fo_call c = call_of(&x, false), b = call_of(&x, true);
	set_documents(&x, (const int[]){ 100 }, 1);
	const int64_t small = variant_of(&c);
	set_documents(&x, (const int[]){ 200, 56 }, 2);
	cuda->dnn_handle = (cudnnHandle_t)(void *)&cuda;
	run(&c, small);
	run(&b, small);
	cuda->dnn_handle = NULL;
	for (int64_t r = 0; r < x.l.tokens; r++)
		assert_true(isnan(number(&x.t[O], r, 0)) && isnan(number(&x.t[LSE], r, 0)) && isnan(number(&x.t[DQ], r, 0)) &&
			    isnan(number(&x.t[DK], r, 0)) && isnan(number(&x.t[DV], r, 0)));
	data_free(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_fixed), cmocka_unit_test(test_ragged), cmocka_unit_test(test_variants),
					    cmocka_unit_test(test_unfit) };
	int status;

	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	soft = fo_test_soft(cuda);
	int failed = 77;
	if (soft)
		failed = cmocka_run_group_tests(tests, NULL, NULL);
	else
		printf("skipped: a double takes cuDNN's place on the software device only\n");
	fo_cuda_close(cuda);
	return failed;
}
#else
#include <stdio.h>
int main(void)
{
	printf("skipped: built without the CUDA toolkit\n");
	return 77;
}
#endif
