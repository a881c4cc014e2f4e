/* Attention of the x86 sets against plain loops in double, with 8 lanes, 16 lanes where the processor has them, and the
 * 16-lane code lowered by the compiler to what this file is built for. What works on pairs of bf16 runs on hardware
 * that has such products and, with a model of them, on AVX2; it takes bf16 and head dimensions of whole multiples
 * of 16.
 *
 * Bound: the largest error of a tensor is at most twice that of the same plain loops in float, plus a floor of 1e-6
 * (f32) or 2^-9 (bf16: half a unit in the last place of the result) of the tensor's largest value. dq and dk are made
 * from differences of two sums of dim products of order 1, which may cancel (a document of one token has dq = 0): their
 * floor has at least 1e-6 of dim x scale x the size of q. */
#if defined __x86_64__
#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors wider than the target's registers never leave this file */
#endif
#define FO_LANES 16
#define FO_NAME(x) x##_wide
#include "kernel/x86/attention.inc"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct variant {
	const char *name;
	fo_kernel_fn *forward, *backward;
	bool (*can)(const struct fo_call *);
	size_t (*forward_ws)(const struct fo_call *), (*backward_ws)(const struct fo_call *);
};
#define DECLARE(isa)                                             \
	fo_kernel_fn fo_attention_##isa, fo_attention_bwd_##isa; \
	bool fo_attention_can_##isa(const struct fo_call *c);    \
	size_t fo_attention_ws_##isa(const struct fo_call *c);   \
	size_t fo_attention_bwd_ws_##isa(const struct fo_call *c);
DECLARE(avx2)
DECLARE(avx512)
DECLARE(avx512bf16)
DECLARE(pairs) /* tests/support/attention_pairs_avx2.c */
#define VARIANT(isa)                                                                                             \
	{                                                                                                        \
#isa, fo_attention_##isa, fo_attention_bwd_##isa, fo_attention_can_##isa, fo_attention_ws_##isa, \
			fo_attention_bwd_ws_##isa                                                                \
	}
static const struct variant variants[] = { VARIANT(wide), VARIANT(avx2), VARIANT(avx512), VARIANT(pairs),
					   VARIANT(avx512bf16) };
static int usable(const struct variant *v)
{
	if (!strcmp(v->name, "avx512bf16"))
		return fo_isa_have(FO_ISA_AVX512BF16);
	if (!strcmp(v->name, "avx2") || !strcmp(v->name, "pairs"))
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (!strcmp(v->name, "avx512"))
		return __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl");
	return 1;
}
static int on_pairs(const struct variant *v) { return !strcmp(v->name, "pairs") || !strcmp(v->name, "avx512bf16"); }

/* doc: tokens per document; 0: one document; -1: lengths 1, 2, 3, ... 9, 1, ...; window: keys that a query sees at
 * most, 0: all */
struct problem {
	int t, heads, kv, dim, doc, dtype;
	double spread, scale;
	int pad, threads, window;
};

/* Is this a problem for it? What works on pairs must refuse the others: test_can. */
static int serves(const struct variant *v, const struct problem *p)
{
	return usable(v) && (!on_pairs(v) || (p->dtype == FO_BF16 && p->dim % 16 == 0));
}
#define EACH_VARIANT(v, p)                                                                               \
	for (const struct variant *v = variants; v < variants + sizeof variants / sizeof *variants; v++) \
		if (serves(v, p))

enum { Q_, K_, V_, O_, LSE, DO_, DOC, DQ, DK, DV_, TENSORS };
enum { GUARD = 256, SENTINEL = 0xa5 };

/* A tensor with `pad` columns and GUARD bytes behind it that nobody may touch. */
struct buffer {
	struct fo_tensor t;
	unsigned char *memory;
	size_t bytes;
};
struct world {
	struct problem p;
	struct buffer b[TENSORS];
};

static double get(const struct fo_tensor *t, int64_t r, int64_t c)
{
	int64_t i = r * t->ld + c;
	return t->dtype == FO_BF16 ? fo_bf16_to_f32(((uint16_t *)t->data)[i]) : ((float *)t->data)[i];
}
static void put(const struct fo_tensor *t, int64_t r, int64_t c, double x)
{
	int64_t i = r * t->ld + c;
	if (t->dtype == FO_BF16)
		((uint16_t *)t->data)[i] = fo_bf16_from_f32((float)x);
	else
		((float *)t->data)[i] = (float)x;
}
static int first_of(const struct world *w, int i)
{
	int doc = ((int32_t *)w->b[DOC].t.data)[i * w->b[DOC].t.ld], oldest = i - w->p.window + 1;
	return w->p.window && oldest > doc ? oldest : doc;
}

static void fill(struct world *w, int which, double spread)
{
	for (int64_t r = 0; r < w->b[which].t.rows; r++)
		for (int64_t c = 0; c < w->b[which].t.cols; c++)
			put(&w->b[which].t, r, c,
			    spread * fo_rng_normal((uint64_t)which + 7, (uint64_t)(r * 4096 + c)));
}

static void world_new(struct world *w, const struct problem *p)
{
	w->p = *p;
	for (int i = 0; i < TENSORS; i++) {
		struct buffer *b = &w->b[i];
		bool kv = i == K_ || i == V_ || i == DK || i == DV_;
		int64_t cols = i == LSE ? p->heads : i == DOC ? 1 : (kv ? p->kv : p->heads) * (int64_t)p->dim;
		b->t = (struct fo_tensor){ .rows = p->t,
					   .cols = cols,
					   .ld = cols + p->pad,
					   .dtype = (uint8_t)(i == LSE   ? FO_F32
							      : i == DOC ? FO_I32
									 : p->dtype) };
		b->bytes = (size_t)(b->t.rows * b->t.ld) * fo_dtype_bytes(b->t.dtype) + GUARD;
		b->memory = malloc(b->bytes);
		memset(b->memory, SENTINEL, b->bytes);
		b->t.data = b->memory;
	}
	fill(w, Q_, p->spread), fill(w, K_, 1), fill(w, V_, 1), fill(w, DO_, 1);
	for (int i = 0, begin = 0, length = 1; i < p->t; i++) {
		if (p->doc > 0)
			begin = i / p->doc * p->doc;
		else if (p->doc < 0 && i - begin == length)
			begin = i, length = length % 9 + 1;
		((int32_t *)w->b[DOC].t.data)[i * w->b[DOC].t.ld] = begin;
	}
}
static void world_free(struct world *w)
{
	for (int i = 0; i < TENSORS; i++)
		free(w->b[i].memory);
}

/* Plain loops, in double and in float. x[i] (T x cols each) hold every tensor; LSE, O_ are written forward, D*
 * backward. */
#define PLAIN(type, EXP, LOG)                                                                                      \
	static void plain_forward_##type(const struct world *w, type **x)                                          \
	{                                                                                                          \
		const struct problem *p = &w->p;                                                                   \
		int hq = p->heads * p->dim, kq = p->kv * p->dim;                                                   \
		type *s = malloc(sizeof(type) * (size_t)p->t);                                                     \
		for (int h = 0; h < p->heads; h++) {                                                               \
			int g = h / (p->heads / p->kv) * p->dim;                                                   \
			for (int i = 0; i < p->t; i++) {                                                           \
				type max = -INFINITY, sum = 0;                                                     \
				for (int j = first_of(w, i); j <= i; j++) {                                        \
					type dot = 0;                                                              \
					for (int d = 0; d < p->dim; d++)                                           \
						dot += x[Q_][i * hq + h * p->dim + d] * x[K_][j * kq + g + d];     \
					s[j] = dot * (type)p->scale;                                               \
					max = s[j] > max ? s[j] : max;                                             \
				}                                                                                  \
				for (int j = first_of(w, i); j <= i; j++)                                          \
					sum += s[j] = EXP(s[j] - max);                                             \
				for (int d = 0; d < p->dim; d++) {                                                 \
					type o = 0;                                                                \
					for (int j = first_of(w, i); j <= i; j++)                                  \
						o += s[j] * x[V_][j * kq + g + d];                                 \
					x[O_][i * hq + h * p->dim + d] = o / sum;                                  \
				}                                                                                  \
				x[LSE][i * p->heads + h] = max + LOG(sum);                                         \
			}                                                                                          \
		}                                                                                                  \
		free(s);                                                                                           \
	}                                                                                                          \
	static void plain_backward_##type(const struct world *w, type **x)                                         \
	{                                                                                                          \
		const struct problem *p = &w->p;                                                                   \
		int hq = p->heads * p->dim, kq = p->kv * p->dim;                                                   \
		memset(x[DQ], 0, sizeof(type) * (size_t)(p->t * hq));                                              \
		memset(x[DK], 0, sizeof(type) * (size_t)(p->t * kq));                                              \
		memset(x[DV_], 0, sizeof(type) * (size_t)(p->t * kq));                                             \
		for (int h = 0; h < p->heads; h++) {                                                               \
			int g = h / (p->heads / p->kv) * p->dim;                                                   \
			for (int i = 0; i < p->t; i++) {                                                           \
				const type *q = x[Q_] + i * hq + h * p->dim, *dout = x[DO_] + i * hq + h * p->dim; \
				type delta = 0, *dq = x[DQ] + i * hq + h * p->dim;                                 \
				for (int d = 0; d < p->dim; d++)                                                   \
					delta += dout[d] * x[O_][i * hq + h * p->dim + d];                         \
				for (int j = first_of(w, i); j <= i; j++) {                                        \
					const type *k = x[K_] + j * kq + g, *v = x[V_] + j * kq + g;               \
					type s = 0, dp = 0;                                                        \
					for (int d = 0; d < p->dim; d++)                                           \
						s += q[d] * k[d], dp += dout[d] * v[d];                            \
					type prob = EXP(s * (type)p->scale - x[LSE][i * p->heads + h]);            \
					type ds = prob * (dp - delta) * (type)p->scale;                            \
					for (int d = 0; d < p->dim; d++) {                                         \
						x[DV_][j * kq + g + d] += prob * dout[d];                          \
						dq[d] += ds * k[d];                                                \
						x[DK][j * kq + g + d] += ds * q[d];                                \
					}                                                                          \
				}                                                                                  \
			}                                                                                          \
		}                                                                                                  \
	}
PLAIN(double, exp, log)
PLAIN(float, expf, logf)

struct plain {
	double *d[TENSORS];
	float *f[TENSORS];
};

static void plain_new(struct plain *x, const struct world *w)
{
	for (int i = 0; i < TENSORS; i++) {
		const struct fo_tensor *t = &w->b[i].t;
		x->d[i] = calloc((size_t)(t->rows * t->cols), sizeof(double));
		x->f[i] = calloc((size_t)(t->rows * t->cols), sizeof(float));
		for (int64_t n = 0; i != DOC && n < t->rows * t->cols; n++)
			x->f[i][n] = (float)(x->d[i][n] = get(t, n / t->cols, n % t->cols));
	}
}
static void plain_free(struct plain *x)
{
	for (int i = 0; i < TENSORS; i++)
		free(x->d[i]), free(x->f[i]);
}

static void check(const struct world *w, const struct plain *x, int which, const char *variant)
{
	static const char *const name[TENSORS] = { "q", "k", "v", "o", "lse", "do", "doc", "dq", "dk", "dv" };
	const struct fo_tensor *t = &w->b[which].t;
	double error = 0, naive = 0, largest = 0;
	for (int64_t n = 0; n < t->rows * t->cols; n++) {
		double want = x->d[which][n], got = get(t, n / t->cols, n % t->cols), plain = x->f[which][n];
		if (t->dtype == FO_BF16)
			plain = fo_bf16_to_f32(fo_bf16_from_f32((float)plain));
		if (!isfinite(got))
			error = INFINITY;
		error = fmax(error, fabs(got - want));
		naive = fmax(naive, fabs(plain - want));
		largest = fmax(largest, fabs(want));
	}
	double cancelled = which == DQ || which == DK ? w->p.dim * fabs(w->p.scale) * fmax(w->p.spread, 1) : 0;
	double bound = 2 * naive + fmax((t->dtype == FO_BF16 ? 0x1p-9 : 1e-6) * largest, 1e-6 * cancelled);
	if (getenv("FLATOUT_TEST_VERBOSE"))
		print_message("%-6s %-3s t %d dim %d: error %.3g, plain float %.3g, largest %.3g\n", variant,
			      name[which], w->p.t, w->p.dim, error, naive, largest);
	if (!(error <= bound))
		fail_msg("%s: %s, t %d heads %d kv %d dim %d doc %d dtype %d: error %g, bound %g", variant, name[which],
			 w->p.t, w->p.heads, w->p.kv, w->p.dim, w->p.doc, w->p.dtype, error, bound);
}

/* Nothing beside the rectangle was written. */
static void check_sentinels(const struct world *w)
{
	for (int i = 0; i < TENSORS; i++) {
		const struct buffer *b = &w->b[i];
		size_t size = fo_dtype_bytes(b->t.dtype), row = (size_t)b->t.ld * size, used = (size_t)b->t.cols * size;
		for (size_t n = 0; n < b->bytes; n++)
			if (n >= (size_t)b->t.rows * row || n % row >= used)
				assert_int_equal(b->memory[n], SENTINEL);
	}
}

static uint64_t inputs_hash(const struct world *w)
{
	static const int in[] = { Q_, K_, V_, DO_, DOC };
	uint64_t h = 0;
	for (size_t i = 0; i < sizeof in / sizeof *in; i++)
		for (size_t n = 0; n < w->b[in[i]].bytes; n++)
			h = (h ^ w->b[in[i]].memory[n]) * 0x100000001b3u;
	return h;
}

static struct fo_call call_of(const struct world *w, bool forward, int threads)
{
	static const int order[2][10] = { { Q_, K_, V_, O_, LSE, DO_, DOC, DQ, DK, DV_ },
					  { Q_, K_, V_, DOC, O_, LSE } };
	struct fo_call c = { .kind = forward ? FO_OP_attention : FO_OP_attention_bwd,
			     .n = forward ? 6 : 10,
			     .threads = threads };
	c.attr.head_dim = w->p.dim;
	c.attr.value = w->p.scale;
	c.attr.window = w->p.window;
	for (int i = 0; i < c.n; i++)
		c.arg[i] = w->b[order[forward][i]].t;
	return c;
}

/* Calls the kernel with a workspace of exactly the size it asked for, full of NaN. */
static void run(const struct world *w, const struct variant *v, bool forward, int threads)
{
	struct fo_call c = call_of(w, forward, threads);
	assert_true(v->can(&c));
	c.ws_bytes = (forward ? v->forward_ws : v->backward_ws)(&c);
	size_t room = (c.ws_bytes + GUARD + 63) / 64 * 64;
	c.ws = aligned_alloc(64, room);
	memset(c.ws, 0xff, room);
	uint64_t before = inputs_hash(w);
	(forward ? v->forward : v->backward)(&c);
	assert_true(inputs_hash(w) == before);
	for (size_t i = c.ws_bytes; i < room; i++)
		assert_int_equal(((unsigned char *)c.ws)[i], 0xff);
	free(c.ws);
}

static void test_problem(const struct problem *p)
{
	struct world w;
	struct plain x;
	world_new(&w, p);
	plain_new(&x, &w);
	plain_forward_double(&w, x.d);
	plain_forward_float(&w, x.f);
	EACH_VARIANT(v, p)
	{
		run(&w, v, true, p->threads);
		check(&w, &x, O_, v->name);
		check(&w, &x, LSE, v->name);
	}
	/* All backward versions get the same o and lse, as rounded for storage. */
	for (int i = O_; i <= LSE; i++) {
		const struct fo_tensor *t = &w.b[i].t;
		for (int64_t n = 0; n < t->rows * t->cols; n++) {
			put(t, n / t->cols, n % t->cols, x.d[i][n]);
			x.f[i][n] = (float)(x.d[i][n] = get(t, n / t->cols, n % t->cols));
		}
	}
	plain_backward_double(&w, x.d);
	plain_backward_float(&w, x.f);
	EACH_VARIANT(v, p)
	{
		run(&w, v, false, p->threads);
		for (int i = DQ; i <= DV_; i++)
			check(&w, &x, i, v->name);
	}
	check_sentinels(&w);
	plain_free(&x);
	world_free(&w);
}

static void test_head_dims(void **state)
{
	(void)state;
	static const int dims[] = { 8, 16, 24, 40, 64, 80, 96, 128, 256 };
	for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
		struct problem p = { 101, 2, 1, dims[i], 0, FO_F32, 1, 1 / sqrt(dims[i]), 0, 2, 0 };
		test_problem(&p);
		p.dtype = FO_BF16, p.t = 53, p.pad = 3;
		test_problem(&p);
	}
}

static void test_lengths(void **state)
{
	(void)state;
	static const int lengths[] = { 1, 2, 7, 23, 24, 25, 47, 48, 49, 95, 96, 97, 145, 193, 301 };
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		struct problem p = { lengths[i], 1, 1, 32, 0, FO_F32, 1, 0.2, 1, 2, 0 };
		test_problem(&p);
		p.dtype = FO_BF16;
		test_problem(&p);
	}
}

static void test_groups(void **state)
{
	(void)state;
	static const int heads[][2] = { { 1, 1 }, { 3, 3 }, { 4, 2 }, { 6, 2 }, { 9, 3 }, { 5, 1 } };
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		struct problem p = { 131, heads[i][0], heads[i][1], 24, 50, FO_F32, 1, 0.2, 5, 3, 0 };
		test_problem(&p);
		p.dtype = FO_BF16, p.dim = 32;
		test_problem(&p);
	}
}

static void test_documents(void **state)
{
	(void)state;
	static const int docs[] = { -1, 1, 2, 13, 24, 96, 100, 200 };
	for (size_t i = 0; i < sizeof docs / sizeof *docs; i++) {
		struct problem p = { 411, 2, 1, 16, docs[i], FO_F32, 1, 0.25, 0, 2, 0 };
		test_problem(&p);
		p.dtype = FO_BF16;
		test_problem(&p);
	}
}

/* Windows around the sizes of blocks, alone and with documents; one that is wider than the text is none. */
static void test_windows(void **state)
{
	(void)state;
	static const int windows[] = { 1, 2, 7, 24, 47, 96, 97, 130, 410, 411, 1000 };
	for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
		struct problem p = { 411, 2, 1, 16, 0, FO_F32, 1, 0.25, 0, 2, windows[i] };
		test_problem(&p);
		p.doc = 150, p.dtype = FO_BF16;
		test_problem(&p);
	}
}

/* Scores up to +-50 and beyond: where the running maximum grows late and where probabilities underflow. */
static void test_score_range(void **state)
{
	(void)state;
	for (int n = 0; n < 4; n++) {
		struct problem p = { 250, 2, 2, 64, 0, n / 2 ? FO_BF16 : FO_F32, 15, (n % 2 ? 1 : -1) / 8.0, 0, 2, 0 };
		test_problem(&p);
		p.doc = 77, p.spread = 60;
		test_problem(&p);
		p.spread = 0; /* all scores equal */
		test_problem(&p);
		p.spread = 1, p.scale = 0;
		test_problem(&p);
	}
}

/* More key/value heads than the workspace holds at once. */
static void test_rounds(void **state)
{
	(void)state;
	struct problem p = { 1100, 11, 11, 256, 10, FO_F32, 1, 1 / 16.0, 0, 2, 0 };
	struct world w;
	world_new(&w, &p);
	struct fo_call f = call_of(&w, true, 2), b = call_of(&w, false, 2);
	assert_true(fo_attention_ws_wide(&f) < (size_t)20 << 20);
	assert_true(fo_attention_bwd_ws_wide(&b) < (size_t)28 << 20);
	world_free(&w);
	test_problem(&p);
	p.dtype = FO_BF16, p.heads = p.kv = 21; /* half the bytes */
	test_problem(&p);
}

/* The same bits from every number of threads and every run. */
static void test_bits(void **state)
{
	(void)state;
	static const int threads[] = { 1, 2, 2, 2, 3, 5, 8 }, out[] = { O_, LSE, DQ, DK, DV_ };
	for (int dtype = FO_F32; dtype <= FO_BF16; dtype++) {
		struct problem p = { 700, 2, 1, dtype == FO_BF16 ? 48 : 40, 333, dtype, 1, 0.3, 0, 1, 0 };
		EACH_VARIANT(v, &p)
		{
			struct world w;
			unsigned char *want[TENSORS] = { 0 };
			world_new(&w, &p);
			for (size_t n = 0; n < sizeof threads / sizeof *threads; n++) {
				run(&w, v, true, threads[n]);
				run(&w, v, false, threads[n]);
				for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
					struct buffer *b = &w.b[out[i]];
					if (n == 0)
						want[out[i]] = memcpy(malloc(b->bytes), b->memory, b->bytes);
					assert_memory_equal(b->memory, want[out[i]], b->bytes);
					memset(b->memory, SENTINEL, b->bytes);
				}
			}
			for (int i = 0; i < TENSORS; i++)
				free(want[i]);
			world_free(&w);
		}
	}
}

static double loss(const struct world *w, double **x)
{
	plain_forward_double(w, x);
	double sum = 0;
	for (int i = 0; i < w->p.t * w->p.heads * w->p.dim; i++)
		sum += x[O_][i] * x[DO_][i];
	return sum;
}

/* Gradients are the slopes of sum(o do), forward in double. */
static void test_finite_differences(void **state)
{
	(void)state;
	struct problem p = { 67, 4, 2, 8, 30, FO_F32, 1, 0.4, 0, 2, 11 };
	struct world w;
	struct plain x;
	world_new(&w, &p);
	plain_new(&x, &w);
	EACH_VARIANT(v, &p)
	{
		run(&w, v, true, 2);
		run(&w, v, false, 2);
		for (int i = 0; i < 3; i++) {
			const struct fo_tensor *t = &w.b[DQ + i].t;
			for (int n = 0; n < 40; n++) {
				int64_t at = (int64_t)(fo_rng_u64(99, (uint64_t)(i * 40 + n)) %
						       (uint64_t)(t->rows * t->cols));
				double *e = &x.d[Q_ + i][at], old = *e, h = 1e-5;
				*e = old + h;
				double up = loss(&w, x.d);
				*e = old - h;
				double down = loss(&w, x.d);
				*e = old;
				/* fp32 arithmetic on values of order 1 to 10: 1e-5; the difference itself is good to
				 * about 1e-9 */
				assert_true(fabs(get(t, at / t->cols, at % t->cols) - (up - down) / (2 * h)) < 1e-5);
			}
		}
	}
	plain_free(&x);
	world_free(&w);
}

/* Blocks that see nothing of each other do not touch: infinities in one document stay there. */
static void check_skips_of(int dtype)
{
	struct problem p = { 600, 1, 1, 16, 200, dtype, 1, 0.25, 0, 2, 0 };
	EACH_VARIANT(v, &p)
	{
		struct world w;
		world_new(&w, &p);
		for (int i = 250; i < 350; i++)
			for (int d = 0; d < p.dim; d++)
				put(&w.b[K_].t, i, d, NAN), put(&w.b[V_].t, i, d, INFINITY);
		run(&w, v, true, 2);
		run(&w, v, false, 2);
		for (int i = 0; i < p.t; i++) {
			bool near = i >= 192 && i < 432; /* the document, and what shares a panel with it */
			for (int d = 0; d < p.dim && !near; d++) {
				assert_true(isfinite(get(&w.b[O_].t, i, d)) && isfinite(get(&w.b[DQ].t, i, d)));
				assert_true(isfinite(get(&w.b[DK].t, i, d)) && isfinite(get(&w.b[DV_].t, i, d)));
			}
		}
		for (int i = 250; i < 400; i++) /* and are not hidden where they count */
			assert_true(isnan(get(&w.b[O_].t, i, 0)) && isnan(get(&w.b[LSE].t, i, 0)) &&
				    isnan(get(&w.b[DQ].t, i, 0)));
		world_free(&w);
	}
}
static void test_skips(void **state)
{
	(void)state;
	check_skips_of(FO_F32);
	check_skips_of(FO_BF16);
}

/* A NaN in one query leaves another one of its panel alone, whose largest score, of a later block, is far above those
 * before: it must not hide that the maximum has grown. Lanes of all vectors of a panel (8 or 16 lanes) meet. */
static void check_nan_hides_nothing_of(int dtype)
{
	struct problem p = { 300, 1, 1, 16, 0, dtype, 1, 1, 0, 2, 0 };
	enum { SEES = 192, KEY = 150 }; /* the first query of a panel, and a key of the block before it */
	EACH_VARIANT(v, &p)
	{
		for (int bad = SEES + 8; bad < SEES + 48; bad += 8) {
			struct world w;
			world_new(&w, &p);
			for (int i = 0; i < p.t; i++)
				for (int d = 0; d < p.dim; d++) {
					put(&w.b[Q_].t, i, d, i == bad ? NAN : i == SEES && d == 0 ? 20 : 0);
					put(&w.b[K_].t, i, d, i == KEY && d == 0 ? 20 : 0);
				}
			run(&w, v, true, 2);
			for (int d = 0; d < p.dim; d++) {
				assert_true(get(&w.b[O_].t, SEES, d) ==
					    get(&w.b[V_].t, KEY, d)); /* e^400 against 192 times 1 */
				assert_true(isnan(get(&w.b[O_].t, bad, d)));
			}
			world_free(&w);
		}
	}
}
static void test_nan_hides_nothing(void **state)
{
	(void)state;
	check_nan_hides_nothing_of(FO_F32);
	check_nan_hides_nothing_of(FO_BF16);
}

/* Neither do blocks that a window hides from each other: 100 poisoned keys leave queries alone that lie a window behind
 * them. */
static void check_window_skips_of(int dtype)
{
	struct problem p = { 1100, 1, 1, 16, 0, dtype, 1, 0.25, 0, 2, 100 };
	EACH_VARIANT(v, &p)
	{
		struct world w;
		world_new(&w, &p);
		for (int i = 250; i < 350; i++)
			for (int d = 0; d < p.dim; d++)
				put(&w.b[K_].t, i, d, NAN), put(&w.b[V_].t, i, d, INFINITY);
		run(&w, v, true, 2);
		run(&w, v, false, 2);
		/* 448 is the last query that sees one; panels, tasks and blocks have at most 192 tokens. */
		for (int i = 0; i < p.t; i++)
			for (int d = 0; d < p.dim && (i < 250 - 192 || i >= 449 + 192); d++)
				assert_true(isfinite(get(&w.b[O_].t, i, d)) && isfinite(get(&w.b[DQ].t, i, d)) &&
					    isfinite(get(&w.b[DK].t, i, d)) && isfinite(get(&w.b[DV_].t, i, d)));
		for (int i = 250; i < 449; i++)
			assert_true(isnan(get(&w.b[O_].t, i, 0)));
		world_free(&w);
	}
}
static void test_window_skips(void **state)
{
	(void)state;
	check_window_skips_of(FO_F32);
	check_window_skips_of(FO_BF16);
}

/* Rows of doc_start that break the rules neither crash nor hang. */
static void check_bad_documents_of(int dtype)
{
	struct problem p = { 300, 2, 1, 16, 0, dtype, 1, 0.3, 0, 3, 0 };
	EACH_VARIANT(v, &p)
	{
		struct world w;
		world_new(&w, &p);
		for (int i = 0; i < p.t; i++)
			((int32_t *)w.b[DOC].t.data)[i] = (int32_t)fo_rng_u64(5, (uint64_t)i);
		run(&w, v, true, 3);
		run(&w, v, false, 3);
		check_sentinels(&w);
		world_free(&w);
	}
}
static void test_bad_documents(void **state)
{
	(void)state;
	check_bad_documents_of(FO_F32);
	check_bad_documents_of(FO_BF16);
}

static void test_can(void **state)
{
	(void)state;
	struct problem p = { 10, 4, 2, 16, 0, FO_BF16, 1, 0.3, 0, 1, 0 };
	struct world w;
	world_new(&w, &p);
	EACH_VARIANT(v, &p)
	{
		for (int forward = 0; forward < 2; forward++) {
			struct fo_call good = call_of(&w, forward, 1), c = good;
			assert_true(v->can(&c));
			c.attr.head_dim = 12;
			assert_false(v->can(&c));
			c.attr.head_dim = 8;
			assert_int_equal(v->can(&c), !on_pairs(v));
			c.attr.head_dim = 264;
			assert_false(v->can(&c));
			c = good, c.attr.head_dim = 0;
			assert_false(v->can(&c));
			c = good, c.arg[1].dtype = FO_F32;
			assert_false(v->can(&c));
			c = good, c.arg[forward ? 5 : 4].dtype = FO_BF16;
			assert_false(v->can(&c));
			c = good, c.arg[forward ? 3 : 6].dtype = FO_F32;
			assert_false(v->can(&c));
			c = good, c.arg[0].cols = 48;
			assert_false(v->can(&c));
			c = good, c.n = 7;
			assert_false(v->can(&c));
			c = good;
			for (int i = 0; i < good.n; i++)
				c.arg[i].dtype = c.arg[i].dtype == FO_BF16 ? FO_F32 : c.arg[i].dtype;
			assert_int_equal(v->can(&c), !on_pairs(v));
			for (int i = 0; i < good.n; i++)
				good.arg[i].dtype = good.arg[i].dtype == FO_BF16 ? FO_F64 : good.arg[i].dtype;
			assert_false(v->can(&good));
			/* no tokens: nothing to do */
			c = call_of(&w, forward, 1);
			for (int i = 0; i < c.n; i++)
				c.arg[i].rows = 0;
			assert_int_equal((forward ? v->forward_ws : v->backward_ws)(&c), 0);
			(forward ? v->forward : v->backward)(&c);
		}
	}
	check_sentinels(&w);
	world_free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_head_dims),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_documents),
		cmocka_unit_test(test_windows),
		cmocka_unit_test(test_window_skips),
		cmocka_unit_test(test_score_range),
		cmocka_unit_test(test_rounds),
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_nan_hides_nothing),
		cmocka_unit_test(test_finite_differences),
		cmocka_unit_test(test_skips),
		cmocka_unit_test(test_bad_documents),
		cmocka_unit_test(test_can),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) { return 77; }
#endif
