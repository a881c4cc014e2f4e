/* What surrounds cuDNN: the choice of a plan by documents, lengths and offsets made on the device, documents of one
 * token, rows without gaps, workspace; and the graphs themselves, in every bucket, beside memory that is not a number.
 * On the software device its cuDNN computes what the graphs say (soft_cudnn.c), on a real one NVIDIA's does. Results
 * are held to the reference in double precision. */
#include "support/cuda.h"

#ifdef FO_CUDA_HEADERS
#include "base/clock.h"
#include "kernel/cuda/cudnn.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- calls ---- */

enum poison { NOTHING, ROWS /* behind lse and o */, ALL /* behind every operand */ };
struct layout {
	int tokens, heads, kv, dim, window;
	bool fused; /* q, k, v in one row; so their gradients */
	enum poison poison;
};
enum { Q, K, V, O, LSE, DO, DOC, DQ, DK, DV, POSITION, TABLE, OPERANDS };
enum kind { FORWARD, BACKWARD, TURNED };
enum { TAIL = 256 /* rows behind an operand, as many as the longest tile, and then some */ };
struct data {
	struct layout l;
	struct fo_tensor t[OPERANDS]; /* on the device */
	int in[OPERANDS];             /* whose block it lies in */
	void *block[OPERANDS], *host[OPERANDS];
	size_t bytes[OPERANDS];
};
static struct fo_cuda *cuda;
static fo_cuda_stream stream;

static void make(struct data *x, int i, int64_t cols, int64_t ld, int dtype, double sigma)
{
	const int64_t n = x->l.tokens * ld;
	const size_t width = fo_dtype_bytes((enum fo_dtype)dtype),
		     bytes = (size_t)(x->l.tokens + TAIL) * (size_t)ld * width;
	const bool poisoned = x->l.poison == ALL || (x->l.poison == ROWS && (i == O || i == LSE));
	must(fo_cuda_alloc(cuda, bytes, &x->block[i]));
	must(fo_cuda_host_alloc(cuda, bytes, &x->host[i]));
	memset(x->host[i], 0xff, bytes);
	if (!poisoned)
		memset((char *)x->host[i] + (size_t)n * width, 0, bytes - (size_t)n * width);
	for (int64_t k = 0; sigma > 0 && k < n; k++)
		((uint16_t *)x->host[i])[k] = fo_bf16_from_f32(
			(float)(sigma * fo_rng_normal((uint64_t)i + 7, (uint64_t)k)));
	x->bytes[i] = bytes;
	x->in[i] = i;
	x->t[i] = (struct fo_tensor){
		.data = x->block[i], .rows = x->l.tokens, .cols = cols, .ld = ld, .dtype = (uint8_t)dtype
	};
}
static void data_new(struct data *x, struct layout l)
{
	const int64_t q = l.heads * l.dim, k = l.kv * l.dim, row = q + 2 * k;
	*x = (struct data){ .l = l };
	for (int g = 0; g < 2; g++) {
		const int at = g ? DQ : Q;
		make(x, at, q, l.fused ? row : q, FO_BF16, g ? 0 : 1);
		for (int i = 1; i < 3; i++) {
			if (!l.fused) {
				make(x, at + i, k, k, FO_BF16, g ? 0 : 1);
				continue;
			}
			x->t[at + i] = x->t[at];
			x->t[at + i].cols = k;
			x->t[at + i].data = (uint16_t *)x->block[at] + q + (i - 1) * k;
			x->in[at + i] = at;
		}
	}
	make(x, O, q, q, FO_BF16, 0);
	make(x, DO, q, q, FO_BF16, 1);
	make(x, LSE, l.heads, l.heads, FO_F32, 0);
	make(x, DOC, 1, 1, FO_I32, 0);
	make(x, POSITION, 1, 1, FO_I32, 0);
	make(x, TABLE, l.dim, l.dim, FO_F32, 0);
	for (int i = 0; i < l.tokens; i++) {
		((int32_t *)x->host[POSITION])[i] = (i * 7) % l.tokens;
		for (int j = 0; j < l.dim; j++) {
			const double angle = (double)i * pow(100, -2.0 * (j % (l.dim / 2)) / l.dim);
			((float *)x->host[TABLE])[i * l.dim + j] = (float)(j < l.dim / 2 ? cos(angle) : sin(angle));
		}
	}
}
static void data_free(struct data *x)
{
	for (int i = 0; i < OPERANDS; i++) {
		fo_cuda_free(cuda, x->block[i]);
		fo_cuda_host_free(cuda, x->host[i]);
	}
}
static void move(const struct data *x, bool in)
{
	for (int i = 0; i < OPERANDS; i++)
		if (x->block[i])
			must(in ? fo_cuda_copy_in(cuda, x->block[i], x->host[i], x->bytes[i], stream)
				: fo_cuda_copy_out(cuda, x->host[i], x->block[i], x->bytes[i], stream));
	must(fo_cuda_stream_wait(cuda, stream));
}
/* Documents of these lengths, the last one again and again. */
static void set_documents(struct data *x, const int *length, int n)
{
	int32_t *doc = x->host[DOC];
	for (int i = 0, k = 0, start = 0; i < x->l.tokens; i++) {
		if (i - start == length[k]) {
			start = i;
			k = k + 1 < n ? k + 1 : k;
		}
		doc[i] = start;
	}
}
static struct fo_call call_of(const struct data *x, enum kind backward)
{
	static const int forward_at[] = { Q, K, V, DOC, O, LSE },
			 backward_at[] = { Q, K, V, O, LSE, DO, DOC, DQ, DK, DV, POSITION, TABLE };
	static const int kind[] = { FO_OP_attention, FO_OP_attention_bwd, FO_OP_attention_bwd_rope },
			 operands[] = { 6, 10, 12 };
	struct fo_call c = { .kind = (uint8_t)kind[backward], .n = (uint8_t)operands[backward] };
	for (int i = 0; i < c.n; i++)
		c.arg[i] = x->t[backward ? backward_at[i] : forward_at[i]];
	c.attr.head_dim = x->l.dim;
	c.attr.window = x->l.window;
	c.attr.value = 1 / sqrt(x->l.dim);
	c.attr.sign = -1;
	return c;
}
static int64_t variant_of(const struct data *x, const struct fo_call *c)
{
	const void *host[FO_MAX_OPERANDS] = { NULL };
	host[c->kind == FO_OP_attention ? 3 : 6] = x->host[DOC];
	return fo_cuda_kernel_of(c->kind)->variant(c, host);
}
static void run(const struct data *x, const struct fo_call *c, int64_t variant, const char *by)
{
	const struct fo_cuda_kernel *k = fo_cuda_kernel_of(c->kind);
	struct fo_call shape = *c;
	struct fo_cuda_queue q = { .cuda = cuda, .stream = stream };
	for (int i = 0; i < c->n; i++)
		shape.arg[i].data = NULL;
	must(k->prepare(cuda, &shape, variant, &q.ws_bytes));
	if (strcmp(fo_cuda_by(cuda, c), by) != 0)
		fail_msg("%s takes it: %s", fo_cuda_by(cuda, c),
			 fo_cuda_dnn_why(cuda, c) ? fo_cuda_dnn_why(cuda, c) : "no reason given");
	must(fo_cuda_alloc(cuda, q.ws_bytes, &q.ws));
	must(fo_cuda_fill(cuda, q.ws, 0xff, q.ws_bytes, stream));
	move(x, true);
	must(k->run(&q, c, variant));
	move(x, false);
	fo_cuda_free(cuda, q.ws);
}
static double number(const struct data *x, int i, int64_t r, int64_t c)
{
	struct fo_tensor t = x->t[i];
	t.data = (char *)x->host[x->in[i]] + ((char *)t.data - (char *)x->block[x->in[i]]);
	return fo_num_get(&t, r, c);
}

/* ---- the reference, in double precision ---- */

struct want {
	struct fo_num_data forward, backward;
	double *block[OPERANDS];
};
static void want_new(struct want *w, const struct data *x, enum kind backward)
{
	*w = (struct want){ 0 };
	struct fo_tensor t[OPERANDS];
	for (int i = 0; i < OPERANDS; i++) {
		t[i] = x->t[i];
		w->block[i] = calloc((size_t)(t[i].rows * t[i].cols), sizeof(double));
		assert_non_null(w->block[i]);
		const bool index = i == DOC || i == POSITION;
		t[i].data = index ? x->host[i] : w->block[i];
		t[i].ld = t[i].cols;
		t[i].dtype = index ? FO_I32 : FO_F64;
		for (int64_t r = 0; (i <= V || i == DO || i == TABLE) && r < t[i].rows; r++)
			for (int64_t c = 0; c < t[i].cols; c++)
				fo_num_set(&t[i], r, c, number(x, i, r, c));
	}
	struct data f64 = *x;
	memcpy(f64.t, t, sizeof t);
	w->forward.call = call_of(&f64, FORWARD);
	w->backward.call = call_of(&f64, backward);
	w->forward.call.first = w->backward.call.first = UINT32_MAX;
	assert_true(fo_num_run(&fo_kernels_ref.kernel[FO_OP_attention], &w->forward, 1));
	assert_true(fo_num_run(&fo_kernels_ref.kernel[w->backward.call.kind], &w->backward, 1));
}
static void want_free(struct want *w)
{
	for (int i = 0; i < OPERANDS; i++)
		free(w->block[i]);
}
static void held_to(const struct want *w, const struct data *x, const char *what)
{
	static const int outputs[] = { O, LSE, DQ, DK, DV };
	for (size_t k = 0; k < sizeof outputs / sizeof *outputs; k++) {
		const int i = outputs[k];
		double worst = 0, largest = 0;
		for (int64_t r = 0; r < x->t[i].rows; r++)
			for (int64_t c = 0; c < x->t[i].cols; c++) {
				const double got = number(x, i, r, c), want = w->block[i][r * x->t[i].cols + c];
				worst = isfinite(got) ? fmax(worst, fabs(got - want)) : INFINITY;
				largest = fmax(largest, fabs(want));
				if (!isfinite(got))
					fail_msg("%s: operand %d of token %lld, column %lld is %g, not %g", what, i,
						 (long long)r, (long long)c, got, want);
			}
		if (worst > 0x1p-6 * largest) /* two roundings to bf16, o's enters the gradients */
			fail_msg("%s: operand %d is %g apart of %g", what, i, worst, largest);
	}
}

/* Both directions under `forced` (0: the variant of the contents) by cuDNN; where neither plan nor poison is what is
 * asked about, by our own kernels too. */
static void compare_as(struct layout l, const int *length, int n, int64_t forced, enum kind gradients)
{
	cudnnHandle_t handle = cuda->dnn_handle;
	struct data x;
	struct want w;
	char what[128];
	data_new(&x, l);
	set_documents(&x, length, n);
	want_new(&w, &x, gradients);
	for (int own = 0; own < (forced || l.poison != NOTHING ? 1 : 2); own++) {
		cuda->dnn_handle = own ? NULL : handle;
		for (int backward = 0; backward < 2; backward++) {
			const struct fo_call c = call_of(&x, backward ? gradients : FORWARD);
			run(&x, &c, forced ? forced : variant_of(&x, &c), own ? "flatout" : "cuDNN");
		}
		snprintf(what, sizeof what, "%s, %d tokens, documents of %d, %d, ..., plan %llx",
			 own ? "our own" : "cuDNN", l.tokens, length[0], length[n > 1], (unsigned long long)forced);
		cuda->dnn_handle = handle;
		held_to(&w, &x, what);
	}
	want_free(&w);
	data_free(&x);
}

static void compare(struct layout l, const int *length, int n, int64_t forced)
{
	compare_as(l, length, n, forced, BACKWARD);
}

static const struct layout plain = { 256, 4, 2, 16, 0, false, NOTHING }, fused = { 256, 4, 2, 16, 0, true, NOTHING },
			   alone = { 200, 2, 2, 32, 0, true, NOTHING };
static const int mixed[] = { 1, 3, 90, 1, 1, 60, 2, 70, 1 };

static void test_fixed(void **state)
{
	(void)state;
	compare(plain, (const int[]){ 128 }, 1, 0);
	compare(fused, (const int[]){ 256 }, 1, 0);
	compare((struct layout){ 256, 4, 1, 32, 100, true, NOTHING }, (const int[]){ 256 }, 1, 0);
}
static void test_ragged(void **state)
{
	static const int few[] = { 5 };
	(void)state;
	compare(plain, mixed, 9, 0);
	compare(fused, mixed, 9, 0);
	compare(fused, few, 1, 0); /* 51 documents: the second bucket */
	compare(alone, (const int[]){ 200 }, 1, 0);
	compare(alone, (const int[]){ 1 }, 1, 0); /* nothing for cuDNN */
	compare((struct layout){ 256, 4, 2, 16, 40, true, NOTHING }, mixed, 9, 0);
}
/* Behind the last document lies memory of others: with NaN in it, whatever a tile reads there must not reach a result.
 * Lengths that end at a tile's border, one behind it and one before it. */
static void test_poisoned(void **state)
{
	static const int lengths[][2] = { { 200, 0 },  { 128, 72 }, { 129, 71 }, { 127, 73 },
					  { 136, 64 }, { 2, 198 },  { 198, 2 } };
	(void)state;
	for (int p = ROWS; p <= ALL; p++)
		for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
			struct layout l = alone;
			l.poison = (enum poison)p;
			compare(l, lengths[i], lengths[i][1] ? 2 : 1, 0);
			l.heads = 4; /* shared kv heads: their gradients pass through memory of their own */
			compare(l, lengths[i], lengths[i][1] ? 2 : 1, 0);
		}
}

/* Every number of documents that a plan is made for, each with the shortest and the longest longest document; most are
 * empty. */
static void test_buckets(void **state)
{
	enum { LEAST = 4, MOST = 14, SHORT = 7, LONG = 9 };
	const struct layout l = { 512, 4, 2, 16, 0, true, ROWS };
	(void)state;
	for (int64_t documents = LEAST; documents <= MOST; documents += 2)
		for (int64_t longest = SHORT; longest <= LONG; longest += LONG - SHORT) {
			compare(l, (const int[]){ 3, 120, 100 }, 3, longest << 8 | documents << 1);
			if (longest == LONG)
				compare(l, (const int[]){ 511, 1 }, 2, longest << 8 | documents << 1);
		}
	compare(l, (const int[]){ 2 }, 1, SHORT << 8 | 8 << 1); /* 256 of 256: full */
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
	const int64_t two = variant_of(&x, &c);
	fo_cuda_docs_of(&c, two, &documents, &longest, &ragged);
	assert_true(!ragged && documents == 2 && longest == 128);
	set_documents(&x, (const int[]){ 5 }, 1);
	const int64_t many = variant_of(&x, &c);
	fo_cuda_docs_of(&c, many, &documents, &longest, &ragged);
	assert_true(ragged && documents == 64 && longest == 128);
	set_documents(&x, (const int[]){ 200, 1 }, 2);
	const int64_t one = variant_of(&x, &c);
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
	const int64_t small = variant_of(&x, &c);
	set_documents(&x, (const int[]){ 200, 56 }, 2);
	run(&x, &c, small, "cuDNN");
	run(&x, &b, small, "cuDNN");
	for (int64_t r = 0; r < x.l.tokens; r++)
		assert_true(isnan(number(&x, O, r, 0)) && isnan(number(&x, LSE, r, 0)) && isnan(number(&x, DQ, r, 0)) &&
			    isnan(number(&x, DK, r, 0)) && isnan(number(&x, DV, r, 0)));
	data_free(&x);
}

/* ---- plans by themselves: documents that our own kernel never makes ---- */

static void *on_device(const void *from, size_t bytes)
{
	void *host, *to;
	must(fo_cuda_host_alloc(cuda, bytes, &host));
	must(fo_cuda_alloc(cuda, bytes, &to));
	if (from)
		memcpy(host, from, bytes);
	else
		memset(host, 0xff, bytes);
	must(fo_cuda_copy_in(cuda, to, host, bytes, stream));
	must(fo_cuda_stream_wait(cuda, stream));
	fo_cuda_host_free(cuda, host);
	return to;
}
static void run_plan(const struct data *x, bool backward, const int32_t *length, int64_t batch, int64_t seq)
{
	static const int8_t operand[] = {
		[FO_DNN_Q] = Q,   [FO_DNN_K] = K,   [FO_DNN_V] = V,   [FO_DNN_O] = O,  [FO_DNN_LSE] = LSE,
		[FO_DNN_DO] = DO, [FO_DNN_DQ] = DQ, [FO_DNN_DK] = DK, [FO_DNN_DV] = DV
	};
	const int64_t row = x->l.heads * x->l.dim, rows = x->l.tokens + TAIL;
	struct fo_dnn_shape d = { .batch = batch,
				  .seq = seq,
				  .tokens = x->l.tokens,
				  .heads = x->l.heads,
				  .kv = x->l.kv,
				  .dim = x->l.dim,
				  .ragged = true,
				  .backward = backward };
	float scale = 1 / sqrtf((float)x->l.dim), minus_inf = -INFINITY, one = 1;
	void *at[FO_DNN_IDS] = { [FO_DNN_SCALE] = &scale,
				 [FO_DNN_MINUS_INF] = &minus_inf,
				 [FO_DNN_ONE] = &one,
				 [FO_DNN_WINDOW] = &one },
	     *ws;
	const struct fo_cuda_plan *p;
	struct fo_cuda_queue q = { .cuda = cuda, .stream = stream };
	bool is_new;
	for (int i = FO_DNN_Q; i <= (backward ? FO_DNN_DV : FO_DNN_LSE); i++) {
		d.ld[i] = x->t[operand[i]].ld;
		at[i] = x->t[operand[i]].data;
	}
	must(fo_cuda_plan_get(cuda, &d, &p, &is_new));
	if (*p->why)
		fail_msg("%s", p->why);
	at[FO_DNN_LENGTH] = on_device(length, (size_t)batch * sizeof *length);
	for (int k = 0; k < FO_CUDA_DOCS_OFFSETS; k++) {
		int64_t offset[64] = { 0 };
		for (int64_t b = 0; b < batch; b++)
			offset[b + 1] = offset[b] + length[b] * d.ld[FO_DNN_Q + k];
		at[FO_DNN_OFFSET_Q + k] = on_device(offset, (size_t)(batch + 1) * sizeof *offset);
	}
	at[FO_DNN_ROWSUM] = on_device(NULL, (size_t)(rows * x->l.heads) * 4);
	at[FO_DNN_DQ_SUM] = on_device(NULL, (size_t)(rows * row) * 4);
	at[FO_DNN_DK_FULL] = on_device(NULL, (size_t)(rows * row) * 2);
	at[FO_DNN_DV_FULL] = on_device(NULL, (size_t)(rows * row) * 2);
	ws = on_device(NULL, (size_t)p->made.workspace + 1);
	move(x, true);
	must(fo_cuda_plan_run(&q, p, at, ws));
	move(x, false);
	for (int i = FO_DNN_ROWSUM; i <= FO_DNN_DV_FULL; i++)
		fo_cuda_free(cuda, at[i]);
	for (int i = FO_DNN_LENGTH; i < FO_DNN_IDS; i++)
		fo_cuda_free(cuda, at[i]);
	fo_cuda_free(cuda, ws);
}
/* Documents without a token in front, between others and behind them. */
static void test_empty(void **state)
{
	static const int32_t lengths[][8] = { { 0, 0, 90, 60, 50, 0, 0, 0 },
					      { 90, 0, 0, 60, 0, 50, 0, 0 },
					      { 0, 90, 0, 60, 0, 50, 0, 0 },
					      { 0, 0, 0, 0, 0, 90, 60, 50 },
					      { 90, 60, 50, 0, 0, 0, 0, 0 } };
	(void)state;
	for (int kv = 1; kv <= 2; kv++)
		for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
			struct data x;
			struct want w;
			data_new(&x, (struct layout){ 200, 2, kv, 32, 0, false, ROWS });
			set_documents(&x, (const int[]){ 90, 60, 50 }, 3);
			want_new(&w, &x, BACKWARD);
			run_plan(&x, false, lengths[i], 8, 128);
			run_plan(&x, true, lengths[i], 8, 128);
			held_to(&w, &x, "empty documents");
			want_free(&w);
			data_free(&x);
		}
}

/* Gradients that are turned as they are rounded: fixed and ragged, heads of their own and shared ones, rows with gaps,
 * lone tokens. */
static void turned(void)
{
	compare_as(plain, (const int[]){ 128 }, 1, 0, TURNED);
	compare_as(fused, (const int[]){ 256 }, 1, 0, TURNED);
	compare_as(fused, mixed, 9, 0, TURNED);
	compare_as((struct layout){ 256, 2, 2, 32, 100, true, ALL }, mixed, 9, 0, TURNED);
	compare_as((struct layout){ 128, 2, 2, 32, 0, false, ROWS }, (const int[]){ 128 }, 1, 0, TURNED);
}
static int refused_unfinished(void)
{
	const struct fo_cuda_plan *p;
	int refused = 0;
	for (int i = 0; (p = fo_cuda_plan_at(cuda, i)); i++)
		refused += p->shape.unfinished && *p->why;
	return refused;
}
static void test_turned(void **state)
{
	const struct fo_cuda_plan *p;
	int unfinished = 0;
	(void)state;
	turned();
	for (int i = 0; (p = fo_cuda_plan_at(cuda, i)); i++)
		unfinished += p->shape.unfinished && !*p->why;
	print_message("%d plans leave the end to us, %d were turned down\n", unfinished, refused_unfinished());
	if (!fo_cuda_info(cuda)->software)
		return;
	assert_int_equal(refused_unfinished(), 0);
	assert_int_equal(unfinished, 5);
	/* cuDNN that adds to what memory held is found out before a step, and finishes what it begins. */
	static const char *const how[] = { "adds", "adds-later" };
	for (int i = 0; i < 2; i++) {
		fo_cuda_plans_free(cuda);
		setenv("FLATOUT_SOFT_CUDNN", how[i], 1);
		turned();
		unsetenv("FLATOUT_SOFT_CUDNN");
		assert_int_equal(refused_unfinished(), 5);
		assert_null(fo_cuda_attention_note(cuda));
	}
	fo_cuda_plans_free(cuda);
}

/* What runs twice and compares bits must know when cuDNN's gradients were at work. The last run of a check is on rows
 * without gaps, which cuDNN takes. */
static void test_same_bits(void **state)
{
	enum { CASES = 1024 };
	struct fo_num_case *list = calloc(CASES, sizeof *list);
	cudnnHandle_t handle = cuda->dnn_handle;
	int seen[2] = { 0 };
	char why[512];
	(void)state;
	assert_non_null(list);
	fo_num_cuda_use(cuda);
	const size_t n = fo_num_case_list(FO_BF16, list, CASES);
	for (size_t i = 0; i < n && i < CASES; i++) {
		const struct fo_num_case *c = &list[i];
		const bool backward = c->call.kind == FO_OP_attention_bwd;
		if ((!backward && c->call.kind != FO_OP_attention) || c->call.attr.head_dim != 64)
			continue;
		for (int own = 0; own < 2; own++) {
			cuda->dnn_handle = own ? NULL : handle;
			if (!fo_num_check_device(c, &fo_test_cuda_kernel, fo_num_cuda_same_bits, NULL, why, sizeof why))
				fail_msg("%s", why);
			assert_true(fo_num_cuda_same_bits() == (own || !backward));
			cuda->dnn_handle = handle;
		}
		seen[backward]++;
	}
	assert_true(seen[0] && seen[1]);
	free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_fixed),  cmocka_unit_test(test_poisoned),
					    cmocka_unit_test(test_empty),  cmocka_unit_test(test_buckets),
					    cmocka_unit_test(test_ragged), cmocka_unit_test(test_variants),
					    cmocka_unit_test(test_unfit),  cmocka_unit_test(test_same_bits),
					    cmocka_unit_test(test_turned) };
	int status;

	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	int failed = 77;
	if (cuda->dnn_handle) {
		must(fo_cuda_stream_new(cuda, &stream));
		failed = cmocka_run_group_tests(tests, NULL, NULL);
		fo_cuda_stream_free(cuda, stream);
	} else {
		printf("skipped: no cuDNN: %s\n", cuda->dnn_why);
	}
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
