/* The reference set in double precision against mathematics: central differences, <J u, y> = <u, J' y>, textbook loops,
 * and the count of multiply-accumulates. */
#include "check/engine/num.h"

#include "base/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Step of central differences: the truncation (h^2) and the rounding (1e-16 / h) both stay below 1e-9. */
#define STEP 1e-5
#define TOLERANCE 1e-7

static const struct fo_kernel *ref(int kind) { return &fo_kernels_ref.kernel[kind]; }

static void close_to(double got, double want)
{
	if (!(fabs(got - want) <= TOLERANCE * (1 + fabs(want))))
		fail_msg("got %.12g, expected %.12g", got, want);
}

/* n normal numbers, or the unit vector `unit` where it is >= 0. */
static double *vector(int64_t n, uint64_t seed, int64_t unit)
{
	double *v = calloc((size_t)n, sizeof *v);

	assert_non_null(v);
	for (int64_t i = 0; i < n; i++)
		v[i] = unit < 0 ? fo_rng_normal(seed, (uint64_t)i) : i == unit;
	return v;
}

static int64_t count(const struct fo_num_data *d, int arg) { return d->call.arg[arg].rows * d->call.arg[arg].cols; }

/* Operand `arg` (f64, tight) as a plain vector. */
static double *numbers(const struct fo_num_data *d, int arg)
{
	assert_int_equal(d->call.arg[arg].dtype, FO_F64);
	assert_int_equal(d->call.arg[arg].ld, d->call.arg[arg].cols);
	return d->call.arg[arg].data;
}

static double dot(const double *a, const double *b, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* <y, f(x + s u)>: f is the operation of `in`, x its operand `arg`, f(x) its operand `out`. */
static double shifted(const struct fo_num_data *in, int arg, const double *u, double s, int out, const double *y)
{
	struct fo_num_data d;
	double value;

	fo_num_data_copy(&d, in);
	for (int64_t i = 0; i < count(&d, arg); i++)
		numbers(&d, arg)[i] += s * u[i];
	assert_true(fo_num_run(ref(d.call.kind), &d, 2));
	value = dot(y, numbers(&d, out), count(&d, out));
	fo_num_data_free(&d);
	return value;
}

/* gradient = J' y of operand `out` by operand `arg`: along random directions (<J u, y> = <u, J' y>) and along single
 * elements. */
static void check_gradient(const struct fo_num_data *in, int arg, int out, const double *y, const double *gradient)
{
	int64_t n = count(in, arg);

	for (int64_t t = 0; t < 8; t++) {
		int64_t unit = t < 3 ? -1 : (int64_t)(fo_rng_uniform(99, (uint64_t)t) * (double)n);
		double *u = vector(n, 1000 + (uint64_t)t, unit);

		close_to(dot(u, gradient, n),
			 (shifted(in, arg, u, STEP, out, y) - shifted(in, arg, u, -STEP, out, y)) / (2 * STEP));
		free(u);
	}
}

/* ---- products ---- */

static void test_matmul(void **state)
{
	static const struct {
		int64_t m, n, k;
	} shape[] = { { 5, 7, 3 }, { 131, 137, 301 } }; /* beyond one block in each direction */

	(void)state;
	for (int s = 0; s < 2; s++)
		for (int t = 0; t < 8; t++) {
			int ta = t >> 1 & 1, tb = t & 1, first = t >> 2;
			int64_t m = shape[s].m, n = shape[s].n, depth = shape[s].k;
			struct fo_num_case c;
			struct fo_num_data d;
			double *a, *b, *before, macs = 0;

			fo_num_case_matmul(&c, m, n, depth, ta, tb, FO_F64, FO_F64, FO_ACC, first);
			fo_num_data_new(&d, &c, 3, true);
			before = calloc((size_t)(m * n), sizeof *before);
			memcpy(before, numbers(&d, 2), (size_t)(m * n) * sizeof *before);
			d.call.mac = &macs;
			assert_true(fo_num_run(ref(FO_OP_matmul), &d, 2));
			assert_true(macs == (double)(m * n * depth));
			a = numbers(&d, 0);
			b = numbers(&d, 1);
			for (int64_t i = 0; i < m; i++)
				for (int64_t j = 0; j < n; j++) {
					double sum = first ? 0 : before[i * n + j];

					for (int64_t k = 0; k < depth; k++)
						sum += (ta ? a[k * m + i] : a[i * depth + k]) *
						       (tb ? b[j * depth + k] : b[k * n + j]);
					close_to(numbers(&d, 2)[i * n + j], sum);
				}
			free(before);
			fo_num_data_free(&d);
		}
}

/* y = x w': dgrad is dy w, wgrad is dy' x. */
static void test_matmul_gradients(void **state)
{
	enum { M = 9, N = 11, K = 6 };
	struct fo_num_case c;
	struct fo_num_data forward, dgrad, wgrad;
	double *y = vector(M * N, 5, -1);

	(void)state;
	fo_num_case_matmul(&c, M, N, K, 0, 1, FO_F64, FO_F64, FO_DEF, true);
	fo_num_data_new(&forward, &c, 1, true);
	fo_num_case_matmul(&c, M, K, N, 0, 0, FO_F64, FO_F64, FO_DEF, true);
	fo_num_data_new(&dgrad, &c, 1, true);
	memcpy(numbers(&dgrad, 0), y, M * N * sizeof *y);
	memcpy(numbers(&dgrad, 1), numbers(&forward, 1), N * K * sizeof *y);
	fo_num_case_matmul(&c, N, K, M, 1, 0, FO_F64, FO_F64, FO_ACC, true);
	fo_num_data_new(&wgrad, &c, 1, true);
	memcpy(numbers(&wgrad, 0), y, M * N * sizeof *y);
	memcpy(numbers(&wgrad, 1), numbers(&forward, 0), M * K * sizeof *y);
	assert_true(fo_num_run(ref(FO_OP_matmul), &dgrad, 1));
	assert_true(fo_num_run(ref(FO_OP_matmul), &wgrad, 1));
	check_gradient(&forward, 0, 2, y, numbers(&dgrad, 2));
	check_gradient(&forward, 1, 2, y, numbers(&wgrad, 2));
	fo_num_data_free(&forward);
	fo_num_data_free(&dgrad);
	fo_num_data_free(&wgrad);
	free(y);
}

/* ---- attention ---- */

enum { TOKENS = 31, HEADS = 4, KV_HEADS = 2, DIM = 6 };

static void attention_pair(struct fo_num_data *forward, struct fo_num_data *backward, int window)
{
	static const int64_t cols[] = { HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM };
	struct fo_num_case f, b;

	fo_num_case_init(&f, FO_OP_attention);
	fo_num_case_init(&b, FO_OP_attention_bwd);
	for (int i = 0; i < 3; i++) {
		fo_num_case_arg(&f, FO_F64, TOKENS, cols[i], FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(&b, FO_F64, TOKENS, cols[i], FO_READ, FO_NUM_NORMAL, 1, 0);
	}
	fo_num_case_arg(&f, FO_I32, TOKENS, 1, FO_READ, FO_NUM_DOC_START, 0, 0);
	fo_num_case_arg(&f, FO_F64, TOKENS, HEADS * DIM, FO_DEF, FO_NUM_NAN, 0, 0);
	fo_num_case_arg(&f, FO_F64, TOKENS, HEADS, FO_DEF, FO_NUM_NAN, 0, 0);
	fo_num_case_arg(&b, FO_F64, TOKENS, HEADS * DIM, FO_READ, FO_NUM_FORWARD, 0, 0);
	fo_num_case_arg(&b, FO_F64, TOKENS, HEADS, FO_READ, FO_NUM_FORWARD, 0, 0);
	fo_num_case_arg(&b, FO_F64, TOKENS, HEADS * DIM, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(&b, FO_I32, TOKENS, 1, FO_READ, FO_NUM_DOC_START, 0, 0);
	for (int i = 0; i < 3; i++)
		fo_num_case_arg(&b, FO_F64, TOKENS, cols[i], FO_DEF, FO_NUM_NAN, 0, 0);
	f.call.attr.head_dim = b.call.attr.head_dim = DIM;
	f.call.attr.value = b.call.attr.value = 0.37;
	f.call.attr.window = b.call.attr.window = window;
	fo_num_data_new(backward, &b, 11, true);
	fo_num_data_new(forward, &f, 11, true);
	memcpy(forward->call.arg[3].data, backward->call.arg[6].data, TOKENS * sizeof(int32_t));
}

/* Head by head and row by row with an explicit softmax. */
static void check_attention(int window)
{
	struct fo_num_data f, b;
	const double *q, *k, *v;
	const int32_t *start;
	double macs = 0, pairs = 0;
	int documents = 0, cut = 0;

	attention_pair(&f, &b, window);
	f.call.mac = &macs;
	assert_true(fo_num_run(ref(FO_OP_attention), &f, 2));
	q = numbers(&f, 0);
	k = numbers(&f, 1);
	v = numbers(&f, 2);
	start = f.call.arg[3].data;
	for (int i = 0; i < TOKENS; i++) {
		int from = window && i - window >= start[i] ? i - window + 1 : start[i];

		pairs += i - from + 1;
		documents += start[i] == i;
		cut += from > start[i];
		for (int h = 0; h < HEADS; h++) {
			int g = h / (HEADS / KV_HEADS);
			double sum = 0, o[DIM] = { 0 };

			for (int j = from; j <= i; j++) {
				double p = exp(0.37 *
					       dot(q + (i * HEADS + h) * DIM, k + (j * KV_HEADS + g) * DIM, DIM));

				sum += p;
				for (int d = 0; d < DIM; d++)
					o[d] += p * v[(j * KV_HEADS + g) * DIM + d];
			}
			close_to(numbers(&f, 5)[i * HEADS + h], log(sum));
			for (int d = 0; d < DIM; d++)
				close_to(numbers(&f, 4)[(i * HEADS + h) * DIM + d], o[d] / sum);
		}
	}
	assert_true(documents > 1 && (cut > 0) == (window > 0));
	assert_true(macs == 2.0 * DIM * HEADS * pairs);
	macs = 0;
	b.call.mac = &macs;
	assert_true(fo_num_run(ref(FO_OP_attention_bwd), &b, 2));
	assert_true(macs == 5.0 * DIM * HEADS * pairs);
	fo_num_data_free(&f);
	fo_num_data_free(&b);
}

static void test_attention(void **state)
{
	(void)state;
	check_attention(0);
	check_attention(3);
}

static void check_attention_gradients(int window)
{
	struct fo_num_data f, b;

	attention_pair(&f, &b, window);
	assert_true(fo_num_run(ref(FO_OP_attention_bwd), &b, 2));
	for (int i = 0; i < 3; i++)
		check_gradient(&f, i, 4, numbers(&b, 5), numbers(&b, 7 + i));
	fo_num_data_free(&f);
	fo_num_data_free(&b);
}

static void test_attention_gradients(void **state)
{
	(void)state;
	check_attention_gradients(0);
	check_attention_gradients(3);
}

/* ---- row-wise operations ---- */

static void test_embed_gradient(void **state)
{
	enum { T = 12, V = 9, D = 70 };
	struct fo_num_case c;
	struct fo_num_data f, b;

	(void)state;
	fo_num_case_init(&c, FO_OP_embed);
	fo_num_case_arg(&c, FO_I32, T, 1, FO_READ, FO_NUM_INDEX, 0, V);
	fo_num_case_arg(&c, FO_F64, V, D, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(&c, FO_F64, T, D, FO_DEF, FO_NUM_NAN, 0, 0);
	fo_num_data_new(&f, &c, 2, true);
	fo_num_case_init(&c, FO_OP_embed_bwd);
	fo_num_case_arg(&c, FO_I32, T, 1, FO_READ, FO_NUM_INDEX, 0, V);
	fo_num_case_arg(&c, FO_F64, T, D, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(&c, FO_F64, V, D, FO_ACC, FO_NUM_NAN, 0, 0);
	c.call.first = 1 << 2;
	fo_num_data_new(&b, &c, 2, true);
	assert_true(fo_num_run(ref(FO_OP_embed_bwd), &b, 2));
	check_gradient(&f, 1, 2, numbers(&b, 1), numbers(&b, 2));
	fo_num_data_free(&f);
	fo_num_data_free(&b);
}

/* `heads` of D columns, each normed by itself: one norm per row where there is one head. */
static void check_rmsnorm(int heads)
{
	enum { T = 7, D = 13 };
	int W = heads * D, P = T * heads;
	struct fo_num_case c;
	struct fo_num_data f, dx, dg;
	double *y = vector(P * D, 3, -1), macs = 0;

	fo_num_case_init(&c, FO_OP_rmsnorm);
	fo_num_case_arg(&c, FO_F64, T, W, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(&c, FO_F64, 1, D, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(&c, FO_F64, T, W, FO_DEF, FO_NUM_NAN, 0, 0);
	fo_num_case_arg(&c, FO_F64, T, heads, FO_DEF, FO_NUM_NAN, 0, 0);
	c.call.attr.value = 0.01;
	c.call.attr.head_dim = heads > 1 ? D : 0;
	fo_num_data_new(&f, &c, 4, true);
	f.call.mac = &macs;
	assert_true(fo_num_run(ref(FO_OP_rmsnorm), &f, 1));
	assert_true(macs == P * D);
	f.call.mac = NULL;
	for (int i = 0; i < P; i++) {
		const double *x = numbers(&f, 0) + i * D;
		double rstd = 1 / sqrt(dot(x, x, D) / D + 0.01);

		close_to(numbers(&f, 3)[i], rstd);
		for (int k = 0; k < D; k++)
			close_to(numbers(&f, 2)[i * D + k], x[k] * rstd * numbers(&f, 1)[k]);
	}

	fo_num_case_init(&c, FO_OP_rmsnorm_dx);
	for (int i = 0; i < 5; i++)
		fo_num_case_arg(&c, FO_F64, i == 2 ? 1 : T,
				i == 1   ? heads
				: i == 2 ? D
					 : W,
				i == 4 ? FO_DEF : FO_READ, FO_NUM_NORMAL, 1, 0);
	c.call.attr.head_dim = heads > 1 ? D : 0;
	fo_num_data_new(&dx, &c, 4, true);
	fo_num_case_init(&c, FO_OP_rmsnorm_dg);
	for (int i = 0; i < 4; i++)
		fo_num_case_arg(&c, FO_F64, i == 3 ? 1 : T,
				i == 1   ? heads
				: i == 3 ? D
					 : W,
				i == 3 ? FO_ACC : FO_READ, FO_NUM_NORMAL, 1, 0);
	c.call.attr.head_dim = heads > 1 ? D : 0;
	c.call.first = 1 << 3;
	fo_num_data_new(&dg, &c, 4, true);
	for (int i = 0; i < 2; i++) {
		struct fo_num_data *d = i ? &dg : &dx;

		memcpy(numbers(d, 0), numbers(&f, 0), (size_t)(P * D) * sizeof *y);
		memcpy(numbers(d, 1), numbers(&f, 3), (size_t)P * sizeof *y);
		memcpy(numbers(d, i ? 2 : 3), y, (size_t)(P * D) * sizeof *y);
	}
	memcpy(numbers(&dx, 2), numbers(&f, 1), D * sizeof *y);
	macs = 0;
	dx.call.mac = dg.call.mac = &macs;
	assert_true(fo_num_run(ref(FO_OP_rmsnorm_dx), &dx, 1));
	assert_true(fo_num_run(ref(FO_OP_rmsnorm_dg), &dg, 1));
	assert_true(macs == 2 * P * D);
	check_gradient(&f, 0, 2, y, numbers(&dx, 4));
	check_gradient(&f, 1, 2, y, numbers(&dg, 3));
	fo_num_data_free(&f);
	fo_num_data_free(&dx);
	fo_num_data_free(&dg);
	free(y);
}

static void test_rmsnorm_gradients(void **state)
{
	(void)state;
	check_rmsnorm(1);
	check_rmsnorm(3);
}

/* db is the sum of dy over rows: y + b moves by as much in every row. */
static void test_bias_gradient(void **state)
{
	enum { T = 9, N = 70 };
	struct fo_num_case c;
	struct fo_num_data f, b;
	double *y = vector(T * N, 3, -1), macs = 0;

	(void)state;
	fo_num_case_init(&c, FO_OP_add_bias);
	fo_num_case_arg(&c, FO_F64, T, N, FO_UPDATE, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(&c, FO_F64, 1, N, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_data_new(&f, &c, 4, true);
	fo_num_case_init(&c, FO_OP_bias_grad);
	fo_num_case_arg(&c, FO_F64, T, N, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(&c, FO_F64, 1, N, FO_ACC, FO_NUM_NORMAL, 1, 0);
	c.call.first = 1 << 1;
	fo_num_data_new(&b, &c, 4, true);
	memcpy(numbers(&b, 0), y, T * N * sizeof *y);
	b.call.mac = &macs;
	assert_true(fo_num_run(ref(FO_OP_bias_grad), &b, 2));
	assert_true(macs == T * N);
	check_gradient(&f, 1, 0, y, numbers(&b, 1));
	fo_num_data_free(&f);
	fo_num_data_free(&b);
	free(y);
}

/* The gradient that passes by is added as it is. */
static void test_rmsnorm_residual(void **state)
{
	enum { T = 4, D = 9 };
	struct fo_num_case c;
	struct fo_num_data with, without;

	(void)state;
	fo_num_case_init(&c, FO_OP_rmsnorm_dx);
	for (int i = 0; i < 6; i++)
		fo_num_case_arg(&c, FO_F64, i == 2 ? 1 : T, i == 1 ? 1 : D, i == 4 ? FO_DEF : FO_READ, FO_NUM_NORMAL, 1,
				0);
	fo_num_data_new(&with, &c, 2, true);
	fo_num_data_copy(&without, &with);
	assert_true(fo_num_run(ref(FO_OP_rmsnorm_dx), &with, 1));
	memset(numbers(&without, 5), 0, T * D * sizeof(double));
	assert_true(fo_num_run(ref(FO_OP_rmsnorm_dx), &without, 1));
	for (int i = 0; i < T * D; i++)
		close_to(numbers(&with, 4)[i], numbers(&without, 4)[i] + numbers(&with, 5)[i]);
	fo_num_data_free(&with);
	fo_num_data_free(&without);
}

/* The backward operation of a rotation is the rotation by the opposite angle. */
static void test_rope(void **state)
{
	enum { T = 6, H = 3, Q = 8, S = 10 };
	struct fo_num_case c;
	struct fo_num_data f, b;
	const double *x, *table;
	double *before = calloc(T * H * Q, sizeof *before);
	const int32_t *position;

	(void)state;
	fo_num_case_init(&c, FO_OP_rope);
	fo_num_case_arg(&c, FO_F64, T, H * Q, FO_UPDATE, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(&c, FO_I32, T, 1, FO_READ, FO_NUM_INDEX, 0, S);
	fo_num_case_arg(&c, FO_F64, S, Q, FO_READ, FO_NUM_ROTATION, 0, 0);
	c.call.attr.head_dim = Q;
	c.call.attr.sign = 1;
	fo_num_data_new(&f, &c, 8, true);
	fo_num_data_copy(&b, &f);
	b.call.attr.sign = -1;
	for (int i = 0; i < T * H * Q; i++)
		numbers(&b, 0)[i] = fo_rng_normal(77, (uint64_t)i);
	memcpy(before, numbers(&b, 0), T * H * Q * sizeof *before);
	assert_true(fo_num_run(ref(FO_OP_rope), &b, 2));
	check_gradient(&f, 0, 0, before, numbers(&b, 0));

	memcpy(before, numbers(&f, 0), T * H * Q * sizeof *before);
	assert_true(fo_num_run(ref(FO_OP_rope), &f, 2));
	x = numbers(&f, 0);
	table = numbers(&f, 2);
	position = f.call.arg[1].data;
	for (int i = 0; i < T; i++)
		for (int h = 0; h < H; h++)
			for (int j = 0; j < Q / 2; j++) {
				const double *was = before + (i * H + h) * Q + j, *row = table + position[i] * Q + j;

				close_to(x[(i * H + h) * Q + j], was[0] * row[0] - was[Q / 2] * row[Q / 2]);
				close_to(x[(i * H + h) * Q + j + Q / 2], was[Q / 2] * row[0] + was[0] * row[Q / 2]);
			}
	fo_num_data_free(&f);
	fo_num_data_free(&b);
	free(before);
}

/* heads_together is the gradient of heads_apart, also where a head is on several ranks, and the other way round. Of 4
 * ranks each has 3 of 12 heads, or one of 2 as its neighbour has. */
static void test_heads_gradients(void **state)
{
	enum { T = 3, D = 4, RANKS = 4 };
	static const int heads[] = { 12, 2 }, each[] = { 3, 1 };

	(void)state;
	for (int i = 0; i < 4; i++) {
		const int together = i / 2, n = heads[i % 2] * D, own = each[i % 2] * D;
		const int kind[] = { FO_OP_heads_apart, FO_OP_heads_together };
		const int rows[] = { T, T * RANKS }, cols[] = { n, own };
		struct fo_num_case c;
		struct fo_num_data f, b;

		for (int k = 1; k >= 0; k--) {
			const int x = k ^ together;

			fo_num_case_init(&c, kind[x]);
			fo_num_case_arg(&c, FO_F64, rows[x], cols[x], FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(&c, FO_F64, rows[!x], cols[!x], FO_DEF, FO_NUM_NAN, 1, 0);
			c.call.attr.head_dim = D;
			fo_num_data_new(k ? &b : &f, &c, 5 + (uint64_t)k, true);
		}
		assert_true(fo_num_run(ref(b.call.kind), &b, 2));
		check_gradient(&f, 0, 1, numbers(&b, 0), numbers(&b, 1));
		fo_num_data_free(&f);
		fo_num_data_free(&b);
	}
}

static void test_swiglu_gradients(void **state)
{
	enum { T = 5, F = 17 };
	struct fo_num_case c;
	struct fo_num_data f, b;

	(void)state;
	fo_num_case_init(&c, FO_OP_swiglu);
	for (int i = 0; i < 3; i++)
		fo_num_case_arg(&c, FO_F64, T, F, i == 2 ? FO_DEF : FO_READ, FO_NUM_NORMAL, 2, 0);
	fo_num_data_new(&f, &c, 6, true);
	fo_num_case_init(&c, FO_OP_swiglu_bwd);
	for (int i = 0; i < 5; i++)
		fo_num_case_arg(&c, FO_F64, T, F, i > 2 ? FO_DEF : FO_READ, FO_NUM_NORMAL, 2, 0);
	fo_num_data_new(&b, &c, 6, true);
	assert_true(fo_num_run(ref(FO_OP_swiglu_bwd), &b, 2));
	check_gradient(&f, 0, 2, numbers(&b, 2), numbers(&b, 3));
	check_gradient(&f, 1, 2, numbers(&b, 2), numbers(&b, 4));
	fo_num_data_free(&f);
	fo_num_data_free(&b);
}

/* ---- loss ---- */

static void test_xent(void **state)
{
	enum { T = 19, V = 23 };
	struct fo_num_case c;
	struct fo_num_data in, d, e;
	const int32_t *target;
	double one = 1, sum = 0;
	int targets = 0;

	(void)state;
	fo_num_case_init(&c, FO_OP_xent);
	fo_num_case_arg(&c, FO_F64, T, V, FO_UPDATE, FO_NUM_NORMAL, 2, 0);
	fo_num_case_arg(&c, FO_I32, T, 1, FO_READ, FO_NUM_TARGET, 0, V);
	fo_num_case_arg(&c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
	fo_num_case_arg(&c, FO_F64, 1, 1, FO_ACC, FO_NUM_NORMAL, 1, 0);
	c.call.first = 1 << 3;
	fo_num_data_new(&in, &c, 12, true);
	fo_num_data_copy(&d, &in);
	assert_true(fo_num_run(ref(FO_OP_xent), &d, 2));
	check_gradient(&in, 0, 3, &one, numbers(&d, 0));

	target = in.call.arg[1].data;
	for (int i = 0; i < T; i++) {
		double total = 0;

		if (target[i] < 0) {
			for (int j = 0; j < V; j++)
				assert_true(numbers(&d, 0)[i * V + j] == 0);
			continue;
		}
		targets++;
		for (int j = 0; j < V; j++)
			total += exp(numbers(&in, 0)[i * V + j]);
		sum += log(total) - numbers(&in, 0)[i * V + target[i]];
	}
	assert_true(targets > 0 && targets < T);
	close_to(numbers(&d, 3)[0], sum / 37);
	in.call.first = 0; /* added to what is there */
	fo_num_data_copy(&e, &in);
	assert_true(fo_num_run(ref(FO_OP_xent), &e, 1));
	close_to(numbers(&e, 3)[0], numbers(&in, 3)[0] + sum / 37);
	fo_num_data_free(&e);

	fo_num_case_init(&c, FO_OP_xent_fwd);
	fo_num_case_arg(&c, FO_F64, T, V, FO_READ, FO_NUM_NORMAL, 2, 0);
	fo_num_case_arg(&c, FO_I32, T, 1, FO_READ, FO_NUM_TARGET, 0, V);
	fo_num_case_arg(&c, FO_F64, 1, 2, FO_ACC, FO_NUM_NAN, 1, 0);
	c.call.first = 1 << 2;
	fo_num_data_new(&e, &c, 12, true);
	assert_true(fo_num_run(ref(FO_OP_xent_fwd), &e, 2));
	close_to(numbers(&e, 2)[0], sum);
	assert_true(numbers(&e, 2)[1] == targets);
	fo_num_data_free(&e);
	fo_num_data_free(&in);
	fo_num_data_free(&d);
}

/* ---- optimizer ---- */

static void test_norm_and_clip(void **state)
{
	struct fo_num_case c;
	struct fo_num_data s, k;
	double norm;

	(void)state;
	fo_num_case_init(&c, FO_OP_sumsq);
	fo_num_case_arg(&c, FO_F64, 9, 31, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(&c, FO_F64, 1, 1, FO_ACC, FO_NUM_NAN, 0, 0);
	c.call.first = 1 << 1;
	fo_num_data_new(&s, &c, 1, true);
	assert_true(fo_num_run(ref(FO_OP_sumsq), &s, 2));
	close_to(numbers(&s, 1)[0], dot(numbers(&s, 0), numbers(&s, 0), 9 * 31));
	norm = sqrt(numbers(&s, 1)[0]);

	fo_num_case_init(&c, FO_OP_clip);
	fo_num_case_arg(&c, FO_F64, 1, 1, FO_READ, FO_NUM_POSITIVE, 1, 0);
	fo_num_case_arg(&c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
	fo_num_case_arg(&c, FO_F64, 1, 2, FO_DEF, FO_NUM_NAN, 0, 0);
	fo_num_data_new(&k, &c, 1, true);
	static const struct {
		double bound, acc, scale;
	} want[] = { { 1, 0.25, 1 }, { 0, 1e6, 1 }, { 2, 1e4, 0.02 } };
	for (int i = 0; i < 3; i++) {
		numbers(&k, 0)[0] = want[i].acc;
		numbers(&k, 1)[FO_HYPER_CLIP] = want[i].bound;
		assert_true(fo_num_run(ref(FO_OP_clip), &k, 1));
		close_to(numbers(&k, 2)[0], want[i].scale);
		close_to(numbers(&k, 2)[1], sqrt(want[i].acc));
	}
	numbers(&k, 0)[0] = norm * norm;
	assert_true(fo_num_run(ref(FO_OP_clip), &k, 1));
	assert_true(numbers(&k, 2)[0] == 2 / (norm + 1e-6));
	numbers(&k, 0)[0] = NAN;
	assert_true(fo_num_run(ref(FO_OP_clip), &k, 1));
	assert_true(numbers(&k, 2)[0] == -1 &&
		    isnan(numbers(&k, 2)[1])); /* a broken gradient must not look like a small one */
	numbers(&k, 0)[0] = INFINITY;
	assert_true(fo_num_run(ref(FO_OP_clip), &k, 1));
	assert_true(numbers(&k, 2)[0] == -1);
	/* With the loss as fourth operand: not finite, above the limit, at the limit, no limit. */
	struct fo_num_case with = c;
	struct fo_num_data l;
	fo_num_case_arg(&with, FO_F64, 1, 1, FO_READ, FO_NUM_POSITIVE, 1, 0);
	fo_num_data_new(&l, &with, 1, true);
	static const struct {
		double loss, limit;
		bool refused;
	} step[] = {
		{ NAN, 0, true }, { INFINITY, 0, true }, { 3.5, 3.4, true }, { 3.4, 3.4, false }, { 1e9, 0, false }
	};
	for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
		numbers(&l, 0)[0] = 0.25;
		numbers(&l, 1)[FO_HYPER_CLIP] = 1;
		numbers(&l, 1)[FO_HYPER_LOSS_LIMIT] = step[i].limit;
		numbers(&l, 3)[0] = step[i].loss;
		assert_true(fo_num_run(ref(FO_OP_clip), &l, 1));
		assert_true(numbers(&l, 2)[0] == (step[i].refused ? -1 : 1) && numbers(&l, 2)[1] == 0.5);
	}
	fo_num_data_free(&l);
	fo_num_data_free(&s);
	fo_num_data_free(&k);
}

/* The update as the paper writes it (Loshchilov and Hutter 2019, algorithm 2, decay by the scheduled rate as torch
 * does). */
static void test_adamw(void **state)
{
	enum { R = 3, C = 21 };

	(void)state;
	for (int decays = 0; decays < 2; decays++) {
		struct fo_num_case c;
		struct fo_num_data in, out;
		const double *h;

		fo_num_case_init(&c, FO_OP_adamw);
		fo_num_case_arg(&c, FO_F64, R, C, FO_UPDATE, FO_NUM_NORMAL, 0.1, 0);
		fo_num_case_arg(&c, FO_F64, R, C, FO_UPDATE, FO_NUM_POSITIVE, 0.1, 0);
		fo_num_case_arg(&c, FO_F64, R, C, FO_TAKE, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(&c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
		fo_num_case_arg(&c, FO_F64, 1, 2, FO_READ, FO_NUM_POSITIVE, 1, 0);
		fo_num_case_arg(&c, FO_F64, R, C, FO_UPDATE, FO_NUM_NORMAL, 1, 0);
		c.call.attr.value = decays;
		fo_num_data_new(&in, &c, 9, true);
		fo_num_data_copy(&out, &in);
		assert_true(fo_num_run(ref(FO_OP_adamw), &out, 2));
		h = numbers(&in, 3);
		for (int i = 0; i < R * C; i++) {
			double g = numbers(&in, 2)[i] * numbers(&in, 4)[0], w = numbers(&in, 5)[i];
			double m = h[FO_HYPER_BETA1] * numbers(&in, 0)[i] + (1 - h[FO_HYPER_BETA1]) * g;
			double v = h[FO_HYPER_BETA2] * numbers(&in, 1)[i] + (1 - h[FO_HYPER_BETA2]) * g * g;
			double step = m / h[FO_HYPER_CORR1] / (sqrt(v / h[FO_HYPER_CORR2]) + h[FO_HYPER_EPS]);

			close_to(numbers(&out, 0)[i], m);
			close_to(numbers(&out, 1)[i], v);
			close_to(numbers(&out, 5)[i], w - h[FO_HYPER_LR] * (step + decays * h[FO_HYPER_DECAY] * w));
		}
		fo_num_data_free(&in);
		fo_num_data_free(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matmul),
		cmocka_unit_test(test_matmul_gradients),
		cmocka_unit_test(test_attention),
		cmocka_unit_test(test_attention_gradients),
		cmocka_unit_test(test_embed_gradient),
		cmocka_unit_test(test_rmsnorm_gradients),
		cmocka_unit_test(test_bias_gradient),
		cmocka_unit_test(test_rmsnorm_residual),
		cmocka_unit_test(test_rope),
		cmocka_unit_test(test_swiglu_gradients),
		cmocka_unit_test(test_heads_gradients),
		cmocka_unit_test(test_xent),
		cmocka_unit_test(test_norm_and_clip),
		cmocka_unit_test(test_adamw),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
