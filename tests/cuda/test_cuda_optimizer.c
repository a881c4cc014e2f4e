/* What the general cases (test_cuda_kernels.c) do not ask of losses, AdamW, norms and fp8 on a device: the bits of
 * `ref`, steps that are refused, rows longer than a block's turn, numbers that are not finite. */
#include "base/clock.h"
#include "kernel/round.h"
#include "support/cuda.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { AMAX_FILLS = 3 /* finite, an infinity, NaN */ };

static struct fo_cuda *cuda;

static const struct fo_kernel *ref(const struct fo_num_data *d) { return &fo_kernels_ref.kernel[d->call.kind]; }

static void check_same(const struct fo_num_case *c, const struct fo_num_data *a, const struct fo_num_data *b,
		       const char *what)
{
	for (int i = 0; i < c->call.n; i++)
		for (size_t k = 0; k < a->bytes[i]; k++)
			if (a->block[i][k] != b->block[i][k])
				fail_msg("%s: %s: operand %d, byte %zu of its block: 0x%02x, expected 0x%02x", c->name,
					 what, i, k, a->block[i][k], b->block[i][k]);
}

/* ---- AdamW ---- */

struct format {
	int moments, weight, master, gradient; /* master -1: none */
};

static void adamw_case(struct fo_num_case *c, int64_t rows, int64_t cols, struct format f, bool stochastic)
{
	fo_num_case_init(c, FO_OP_adamw);
	fo_num_case_arg(c, f.moments, rows, cols, FO_UPDATE, FO_NUM_NORMAL, 0.1, 0);
	fo_num_case_arg(c, f.moments, rows, cols, FO_UPDATE, FO_NUM_POSITIVE, 0.1, 0);
	fo_num_case_arg(c, f.gradient, rows, cols, FO_TAKE, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
	fo_num_case_arg(c, FO_F64, 1, 2, FO_READ, FO_NUM_POSITIVE, 1, 0);
	fo_num_case_arg(c, f.weight, rows, cols, FO_UPDATE, FO_NUM_NORMAL, 1, 0);
	if (f.master >= 0)
		fo_num_case_arg(c, f.master, rows, cols, FO_UPDATE, f.master == FO_I16 ? FO_NUM_INDEX : FO_NUM_NORMAL,
				1, 1 << 15);
	c->call.attr.value = cols & 1;
	c->call.attr.stochastic = stochastic;
	c->call.attr.element = ((int64_t)1 << 33) + 12345; /* numbers of elements are 32 bits of it */
	c->call.arg[5].layer = 3;
	c->call.arg[5].first = 777;
}

/* The processor's arithmetic, rounding for rounding: every format and layout gives ref's bits, also where a gradient is
 * 0, huge or not a number. */
static void adamw_check(int64_t rows, int64_t cols, struct format f, bool stochastic, bool tight)
{
	struct fo_num_case c;
	struct fo_num_data in, got, want;
	adamw_case(&c, rows, cols, f, stochastic);
	fo_num_data_new(&in, &c, 11, tight);
	fo_num_set(&in.call.arg[2], 0, 0, 0);
	fo_num_set(&in.call.arg[1], 0, 0, 0);
	fo_num_set(&in.call.arg[2], 0, cols / 2, 1e30);
	fo_num_set(&in.call.arg[2], rows - 1, cols - 1, 1e-30);
	fo_num_data_copy(&got, &in);
	fo_num_data_copy(&want, &in);
	fo_num_run(&fo_test_cuda_kernel, &got, 1);
	fo_num_run(ref(&want), &want, 1);
	check_same(&c, &got, &want, stochastic ? "at random" : "to nearest");
	fo_num_data_free(&got);
	/* A refused step: not one bit. */
	((double *)in.call.arg[4].data)[0] = -1;
	fo_num_data_copy(&got, &in);
	fo_num_run(&fo_test_cuda_kernel, &got, 1);
	check_same(&c, &got, &in, "refused");
	fo_num_data_free(&got);
	fo_num_data_free(&want);
	fo_num_data_free(&in);
}

static void test_adamw_bits(void **state)
{
	(void)state;
	static const struct {
		int64_t rows, cols;
	} shape[] = { { 1, 5 }, { 17, 33 }, { 3, 9000 } };
	static const int weights[][2] = {
		{ FO_BF16, -1 }, { FO_F32, -1 }, { FO_BF16, FO_F32 }, { FO_F32, FO_F32 }, { FO_BF16, FO_I16 }
	};
	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int w = 0; w < 5; w++)
			for (int k = 0; k < 16; k++) {
				struct format f = { k & 1 ? FO_BF16 : FO_F32, weights[w][0], weights[w][1],
						    k & 2 ? FO_BF16 : FO_F32 };
				if (shape[s].cols < 9000 || (k & 8))
					adamw_check(shape[s].rows, shape[s].cols, f, k & 4, k & 8);
			}
}

/* Tensors of one operation that differ in format and place: as each by itself. */
static void test_adamw_many(void **state)
{
	(void)state;
	static const int moments[] = { FO_F32, FO_BF16, FO_F32, FO_BF16 },
			 weights[] = { FO_BF16, FO_BF16, FO_F32, FO_BF16 };
	struct fo_num_case c;
	struct fo_num_data in, got;
	fo_num_case_init(&c, FO_OP_adamw_many);
	fo_num_case_arg(&c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
	fo_num_case_arg(&c, FO_F64, 1, 2, FO_READ, FO_NUM_POSITIVE, 1, 0);
	for (int k = 0; k < 4; k++) {
		int64_t rows = k + 1, cols = 4000 * k + 24;
		fo_num_case_arg(&c, moments[k], rows, cols, FO_UPDATE, FO_NUM_NORMAL, 0.1, 0);
		fo_num_case_arg(&c, moments[k], rows, cols, FO_UPDATE, FO_NUM_POSITIVE, 0.1, 0);
		fo_num_case_arg(&c, FO_F32, rows, cols, FO_TAKE, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(&c, weights[k], rows, cols, FO_UPDATE, FO_NUM_NORMAL, 1, 0);
		c.call.arg[5 + 4 * k].layer = k;
		c.call.arg[5 + 4 * k].first = 100 * k;
	}
	c.call.attr.stochastic = 1;
	fo_num_data_new(&in, &c, 3, true);
	fo_num_data_copy(&got, &in);
	fo_num_run(&fo_test_cuda_kernel, &got, 1);
	fo_num_run(ref(&in), &in, 1);
	check_same(&c, &got, &in, "many");
	fo_num_data_free(&got);
	fo_num_data_free(&in);
}

/* ---- norms ---- */

/* Many tensors give the bits of one after the other. */
static void test_sumsq_turns(void **state)
{
	(void)state;
	static const int64_t rows[] = { 1, 5, 300, 1, 2 }, cols[] = { 70001, 64, 65, 1, 16384 };
	for (int tight = 0; tight < 2; tight++) {
		struct fo_num_case c, one;
		struct fo_num_data many, d;
		double acc = 0.25;
		fo_num_case_init(&c, FO_OP_sumsq_many);
		fo_num_case_arg(&c, FO_F64, 1, 1, FO_ACC, FO_NUM_POSITIVE, 1, 0);
		for (int k = 0; k < 5; k++)
			fo_num_case_arg(&c, k & 1 ? FO_BF16 : FO_F32, rows[k], cols[k], FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_data_new(&many, &c, 5, tight);
		*(double *)many.call.arg[0].data = acc;
		for (int k = 0; k < 5; k++) {
			fo_num_case_init(&one, FO_OP_sumsq);
			fo_num_case_arg(&one, k & 1 ? FO_BF16 : FO_F32, rows[k], cols[k], FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(&one, FO_F64, 1, 1, FO_ACC, FO_NUM_POSITIVE, 1, 0);
			fo_num_data_new(&d, &one, 5, tight);
			for (int64_t r = 0; r < rows[k]; r++)
				for (int64_t j = 0; j < cols[k]; j++)
					fo_num_set(&d.call.arg[0], r, j, fo_num_get(&many.call.arg[k + 1], r, j));
			*(double *)d.call.arg[1].data = acc;
			fo_num_run(&fo_test_cuda_kernel, &d, 1);
			acc = *(double *)d.call.arg[1].data;
			fo_num_data_free(&d);
		}
		fo_num_run(&fo_test_cuda_kernel, &many, 1);
		assert_true(*(double *)many.call.arg[0].data == acc && acc > 0.25);
		fo_num_data_free(&many);
	}
}

static int64_t nonfinite(const struct fo_tensor *host, size_t bytes)
{
	struct fo_tensor t = *host;
	fo_cuda_stream s;
	int64_t *found;
	unsigned char *locked, *device;
	assert_int_equal(fo_cuda_stream_new(cuda, &s), FO_OK);
	assert_int_equal(fo_cuda_host_alloc(cuda, bytes + 8, (void **)&locked), FO_OK);
	assert_int_equal(fo_cuda_alloc(cuda, bytes, (void **)&device), FO_OK);
	assert_int_equal(fo_cuda_alloc(cuda, 8, (void **)&found), FO_OK);
	memcpy(locked, host->data, bytes);
	assert_int_equal(fo_cuda_copy_in(cuda, device, locked, bytes, s), FO_OK);
	t.data = device;
	struct fo_cuda_queue q = { .cuda = cuda, .stream = s };
	assert_int_equal(fo_cuda_find_nonfinite(&q, &t, found), FO_OK);
	assert_int_equal(fo_cuda_copy_out(cuda, locked, found, 8, s), FO_OK);
	assert_int_equal(fo_cuda_stream_wait(cuda, s), FO_OK);
	int64_t at = *(int64_t *)(void *)locked;
	fo_cuda_free(cuda, found);
	fo_cuda_free(cuda, device);
	fo_cuda_host_free(cuda, locked);
	fo_cuda_stream_free(cuda, s);
	return at;
}

static void test_nonfinite(void **state)
{
	(void)state;
	static const int types[] = { FO_F32, FO_BF16, FO_F64, FO_E4M3, FO_E5M2 };
	static const double large[] = { 3e38, -3e38, 1e300, 448, -57344 };
	enum { ROWS = 9, COLS = 300, LD = 307 };
	double room[ROWS * LD];
	for (int i = 0; i < 5; i++)
		for (int gaps = 0; gaps < 2; gaps++) {
			struct fo_tensor t = { .data = room, .rows = ROWS, .cols = COLS, .ld = gaps ? LD : COLS };
			t.dtype = (uint8_t)types[i];
			memset(room, gaps ? 0xff : 0, sizeof room); /* gaps are full of NaN */
			for (int64_t r = 0; r < ROWS; r++)
				for (int64_t c = 0; c < COLS; c++)
					fo_num_set(&t, r, c, large[i]);
			assert_int_equal(nonfinite(&t, sizeof room), -1);
			fo_num_set(&t, 7, 1, NAN);
			fo_num_set(&t, 8, 299, -INFINITY);
			assert_int_equal(nonfinite(&t, sizeof room), 7 * COLS + 1);
			fo_num_set(&t, 2, 290, INFINITY);
			assert_int_equal(nonfinite(&t, sizeof room), 2 * COLS + 290);
		}
}

/* ---- losses ---- */

static void xent_case(struct fo_num_case *c, int dtype, int64_t rows, int64_t cols, bool forward)
{
	fo_num_case_init(c, forward ? FO_OP_xent_fwd : FO_OP_xent);
	fo_num_case_arg(c, dtype, rows, cols, forward ? FO_READ : FO_UPDATE, FO_NUM_NORMAL, 3, 0);
	fo_num_case_arg(c, FO_I32, rows, 1, FO_READ, FO_NUM_TARGET, 0, cols);
	if (!forward)
		fo_num_case_arg(c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
	fo_num_case_arg(c, FO_F64, 1, forward ? 2 : 1, FO_ACC, FO_NUM_POSITIVE, 1, 0);
}

static double off_by(const struct fo_num_data *got, const struct fo_num_data *exact, int arg)
{
	double sum = 0, norm = 0;
	for (int64_t r = 0; r < got->call.arg[arg].rows; r++)
		for (int64_t j = 0; j < got->call.arg[arg].cols; j++) {
			double x = fo_num_get(&exact->call.arg[arg], r, j),
			       off = fo_num_get(&got->call.arg[arg], r, j) - x;
			sum += off * off;
			norm += x * x;
		}
	return sqrt(sum / norm);
}

/* Rows that take every thread of a block several turns, more rows than blocks run at once, columns that a mask took
 * out. */
static void xent_check(int dtype, int64_t rows, int64_t cols, bool forward)
{
	struct fo_num_case c;
	struct fo_num_data in, got, exact;
	xent_case(&c, dtype, rows, cols, forward);
	fo_num_data_new(&in, &c, 9, true);
	((int32_t *)in.call.arg[1].data)[0] = (int32_t)cols - 1;
	for (int64_t r = 0; r < rows; r++)
		for (int64_t j = cols / 3; j < cols / 2 && r % 2; j++)
			if (j != ((int32_t *)in.call.arg[1].data)[r])
				fo_num_set(&in.call.arg[0], r, j, -INFINITY);
	fo_num_set(&in.call.arg[0], rows - 1, 0, 300); /* far from where any sum began */
	fo_num_data_f64(&exact, &in);
	fo_num_run(ref(&exact), &exact, 1);
	fo_num_data_copy(&got, &in);
	fo_num_run(&fo_test_cuda_kernel, &got, 1);
	double loss = off_by(&got, &exact, forward ? 2 : 3), gradient = forward ? 0 : off_by(&got, &exact, 0);
	if (!(loss <= 1e-6) || !(gradient <= (dtype == FO_BF16 ? 0x1p-9 : 1e-6)))
		fail_msg("%s: the loss is off by %g, the gradient by %g", c.name, loss, gradient);
	fo_num_data_free(&got);
	/* A logit that is not a number must not be lost: the step is refused by its loss. */
	fo_num_set(&in.call.arg[0], 0, cols - 3, NAN);
	fo_num_run(&fo_test_cuda_kernel, &in, 1);
	assert_true(isnan(*(double *)in.call.arg[forward ? 2 : 3].data));
	fo_num_data_free(&in);
	fo_num_data_free(&exact);
}
static void test_xent(void **state)
{
	(void)state;
	xent_check(FO_BF16, 3, 66000, false);
	xent_check(FO_F32, 3, 40007, false); /* one by one */
	xent_check(FO_F32, 2, 66000, false);
	xent_check(FO_BF16, 3, 66000, true);
	xent_check(FO_BF16, 1200, 40, false);
	xent_check(FO_F32, 1200, 40, true);
}

/* ---- fp8 ---- */

static uint8_t byte_at(const struct fo_num_data *d, int64_t j) { return ((uint8_t *)d->call.arg[2].data)[j]; }
static bool is_nan(uint8_t b, int type) { return type == FO_E4M3 ? (b & 0x7f) == 0x7f : (b & 0x7f) > 0x7c; }

static void check_byte(const struct fo_num_case *c, const struct fo_num_data *got, const struct fo_num_data *want,
		       int64_t i, int type)
{
	uint8_t a = byte_at(got, i), b = byte_at(want, i);
	if (a != b && !(is_nan(a, type) && is_nan(b, type)))
		fail_msg("%s: scale %g: %a becomes 0x%02x, expected 0x%02x", c->name,
			 fo_num_get(&got->call.arg[1], 0, 0), fo_num_get(&got->call.arg[0], 0, i), a, b);
}

/* Every bf16 number and its neighbours in fp32, by several scales: ref's bytes, and NaN for NaN (its sign is the
 * device's own). */
static void test_fp8_bytes(void **state)
{
	(void)state;
	static const float scales[] = { 1, 0.037f, 3.7e5f, 0x1p-126f, 1.1f, NAN };
	for (int type = FO_E4M3; type <= FO_E5M2; type++)
		for (int k = 0; k < 12; k++) {
			struct fo_num_case c;
			struct fo_num_data got, want;
			bool bf16 = k & 1;
			fo_num_case_init(&c, FO_OP_fp8_cast);
			fo_num_case_arg(&c, bf16 ? FO_BF16 : FO_F32, 1, 65536, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(&c, FO_F32, 1, 1, FO_READ, FO_NUM_POSITIVE, 1, 0);
			fo_num_case_arg(&c, type, 1, 65536, FO_DEF, FO_NUM_NAN, 0, 0);
			fo_num_data_new(&got, &c, 1, true);
			for (uint32_t i = 0; i < 65536; i++)
				if (bf16)
					((uint16_t *)got.call.arg[0].data)[i] = (uint16_t)i;
				else
					((uint32_t *)got.call.arg[0].data)[i] = (i << 16) +
										(uint32_t)fo_rng_u64(k, i) % 0x10000;
			((float *)got.call.arg[1].data)[0] = scales[k / 2];
			fo_num_data_copy(&want, &got);
			fo_num_run(&fo_test_cuda_kernel, &got, 1);
			fo_num_run(ref(&want), &want, 1);
			for (int64_t i = 0; i < 65536; i++)
				check_byte(&c, &got, &want, i, type);
			fo_num_data_free(&got);
			fo_num_data_free(&want);
		}
}

enum max { ALONE, HISTORY, EMPTY, CASTS };

/* The cast that writes its transpose: the bytes of the cast alone, twice. By 16 elements at once, at tiles' ends too
 * (tight, multiples of 16), and in odd layouts; with numbers that are not finite. By the scale of the step, with the
 * transpose and without: ref's bits, maxima and scale too; two words are left as they were found, in several steps on
 * end. */
static void check_cast_t(int from, int type, int64_t rows, int64_t cols, bool tight, enum max max, bool both)
{
	struct fo_num_case c;
	struct fo_num_data got, want;
	const int out = 2, in_step = max != ALONE;
	fo_num_case_init(&c, in_step ? FO_OP_fp8_cast_step : FO_OP_fp8_cast_t);
	fo_num_case_arg(&c, from, rows, cols, FO_READ, FO_NUM_NORMAL, 3, 0);
	fo_num_case_arg(&c, FO_F32, 1, 1, in_step ? FO_DEF : FO_READ, FO_NUM_POSITIVE, 1, 0);
	fo_num_case_arg(&c, type, rows, cols, FO_DEF, FO_NUM_NAN, 0, 0);
	if (in_step)
		fo_num_case_arg(&c, FO_F32, 1, FO_FP8_AMAX_COLS, FO_ACC, FO_NUM_POSITIVE, 1, 0);
	if (both)
		fo_num_case_arg(&c, type, cols, rows, FO_DEF, FO_NUM_NAN, 0, 0);
	fo_num_data_new(&got, &c, 11, tight);
	if (in_step)
		for (int i = 0; i < FO_FP8_AMAX_COLS; i++)
			fo_num_set(&got.call.arg[3], 0, i, i == 1 && max == HISTORY ? 5 : 0);
	fo_num_data_copy(&want, &got);
	for (int turn = 0; turn < 2; turn++) { /* the second with smaller numbers, or such that are not finite */
		for (int64_t r = 0; r < rows; r++)
			for (int64_t j = 0; turn && j < cols; j++)
				fo_num_set(&got.call.arg[0], r, j, fo_num_get(&got.call.arg[0], r, j) / 2);
		if (turn && (type == FO_E4M3 || max == ALONE)) {
			fo_num_set(&got.call.arg[0], rows - 1, cols / 2, INFINITY);
			fo_num_set(&got.call.arg[0], rows / 2, cols - 1, max == ALONE ? NAN : -7000);
			fo_num_set(&got.call.arg[0], 0, 0, -0.0);
		}
		for (int64_t r = 0; r < rows; r++)
			for (int64_t j = 0; j < cols; j++)
				fo_num_set(&want.call.arg[0], r, j, fo_num_get(&got.call.arg[0], r, j));
		fo_num_run(&fo_test_cuda_kernel, &got, 1);
		fo_num_run(ref(&want), &want, 1);
		const struct fo_tensor *y = &got.call.arg[out], *of = &want.call.arg[out],
				       *yt = &got.call.arg[got.call.n - 1];
		for (int64_t r = 0; r < rows; r++)
			for (int64_t j = 0; j < cols; j++) {
				uint8_t w = ((uint8_t *)of->data)[r * of->ld + j],
					a = ((uint8_t *)y->data)[r * y->ld + j];
				uint8_t b = both ? ((uint8_t *)yt->data)[j * yt->ld + r] : a;
				if ((a != w && !(is_nan(a, type) && is_nan(w, type))) || b != a)
					fail_msg("%s: (%d,%d): 0x%02x and, transposed, 0x%02x; the cast alone gives "
						 "0x%02x",
						 c.name, (int)r, (int)j, a, b, w);
			}
		for (int i = 0; in_step && i < FO_FP8_AMAX_COLS; i++) {
			double a = fo_num_get(&got.call.arg[3], 0, i), w = fo_num_get(&want.call.arg[3], 0, i);
			assert_true(a == w && (i < 2 || a == 0));
		}
		double sx = fo_num_get(&got.call.arg[1], 0, 0), sw = fo_num_get(&want.call.arg[1], 0, 0);
		assert_true(sx == sw || (isnan(sx) && isnan(sw)));
	}
	fo_num_data_free(&got);
	fo_num_data_free(&want);
}
static void test_fp8_transposed(void **state)
{
	(void)state;
	static const int64_t shape[][2] = { { 256, 384 }, { 16, 144 }, { 176, 16 }, { 130, 70 }, { 1, 300 } };
	for (int s = 0; s < 5; s++)
		for (int k = 0; k < 4 * CASTS; k++) {
			check_cast_t(k & 1 ? FO_BF16 : FO_F32, k & 2 ? FO_E4M3 : FO_E5M2, shape[s][0], shape[s][1],
				     s != 4 && k % 3, k / 4, true);
			if (k >= 4)
				check_cast_t(k & 1 ? FO_BF16 : FO_F32, k & 2 ? FO_E4M3 : FO_E5M2, shape[s][0],
					     shape[s][1], k % 3, k / 4, false);
		}
	/* More tiles than blocks that are on a device at once: maxima of some are joined before others begin. The
	 * software device has one block at a time whatever the size. */
	for (int max = HISTORY; max < CASTS && !fo_cuda_info(cuda)->software; max++)
		check_cast_t(FO_BF16, FO_E4M3, 4096, 2048, true, max, true);
}

/* All numbers of `from`, into columns of `to` from c0 on. */
static void copy_numbers(const struct fo_tensor *to, int64_t c0, const struct fo_tensor *from)
{
	for (int64_t r = 0; r < from->rows; r++)
		for (int64_t j = 0; j < from->cols; j++)
			fo_num_set(to, r, c0 + j, fo_num_get(from, r, j));
}
static void check_numbers(const struct fo_num_case *c, const struct fo_tensor *got, int64_t c0,
			  const struct fo_tensor *want)
{
	for (int64_t r = 0; r < want->rows; r++)
		for (int64_t j = 0; j < want->cols; j++)
			if (fo_num_get(got, r, c0 + j) != fo_num_get(want, r, j))
				fail_msg("%s: (%d,%d) is %a, apart %a", c->name, (int)r, (int)(c0 + j),
					 fo_num_get(got, r, c0 + j), fo_num_get(want, r, j));
}

enum { NO_MORE, TRANSPOSE, NUMBERS, BESIDE };

/* What is made and cast at once, by one kernel: the bits of the two kernels apart, twice on end, where the history is
 * empty too. */
static void check_made(enum fo_op_kind fused, enum fo_op_kind apart, int64_t rows, int64_t cols, int z, bool empty)
{
	const bool norm = apart == FO_OP_rmsnorm || apart == FO_OP_add_rmsnorm, adds = apart == FO_OP_add_rmsnorm,
		   bwd = apart == FO_OP_swiglu_bwd;
	const int at = fo_op_fp8_step(fused), format = bwd ? FO_E5M2 : FO_E4M3,
		  inputs = apart == FO_OP_rmsnorm ? 1
			   : bwd                  ? 3
						  : 2;
	const int made = inputs + norm + adds;
	const int64_t width = bwd ? 2 * cols : cols;
	struct fo_num_case c[3];
	struct fo_num_data d[3]; /* fused, made, cast */
	fo_num_case_init(&c[0], fused), fo_num_case_init(&c[1], apart), fo_num_case_init(&c[2], FO_OP_fp8_cast_step);
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < inputs; i++)
			fo_num_case_arg(&c[k], FO_BF16, rows, cols, FO_READ, FO_NUM_NORMAL, 1, 0);
		if (norm)
			fo_num_case_arg(&c[k], FO_BF16, 1, cols, FO_READ, FO_NUM_NORMAL, 1, 0);
		if (adds)
			fo_num_case_arg(&c[k], FO_BF16, rows, cols, FO_DEF, FO_NUM_NAN, 1, 0);
		for (int i = 0; k && i <= bwd; i++)
			fo_num_case_arg(&c[k], FO_BF16, rows, cols, FO_DEF, FO_NUM_NAN, 1, 0);
		if (norm)
			fo_num_case_arg(&c[k], FO_F32, rows, 1, FO_DEF, FO_NUM_NAN, 1, 0);
		c[k].call.attr.value = norm ? 1e-5 : 0;
	}
	fo_num_case_arg(&c[2], FO_BF16, rows, width, FO_READ, FO_NUM_NORMAL, 1, 0);
	for (int k = 0; k < 3; k += 2) {
		fo_num_case_arg(&c[k], FO_F32, 1, 1, FO_DEF, FO_NUM_NAN, 1, 0);
		fo_num_case_arg(&c[k], format, rows, width, FO_DEF, FO_NUM_NAN, 1, 0);
		fo_num_case_arg(&c[k], FO_F32, 1, FO_FP8_AMAX_COLS, FO_ACC, FO_NUM_POSITIVE, 1, 0);
		if (z == TRANSPOSE)
			fo_num_case_arg(&c[k], format, width, rows, FO_DEF, FO_NUM_NAN, 1, 0);
		if (z == NUMBERS && k == 0)
			fo_num_case_arg(&c[k], FO_BF16, rows, width, FO_DEF, FO_NUM_NAN, 1, 0);
	}
	for (int k = 0; k < 3; k++)
		fo_num_data_new(&d[k], &c[k], 21, true);
	const struct fo_tensor *a = d[0].call.arg;
	size_t room = 1;
	assert_int_equal(fo_cuda_kernel_of(fused)->prepare(cuda, &d[0].call, 0, &room), FO_OK);
	assert_int_equal(room, 0); /* one kernel indeed: two need room between them */
	for (int i = 0; i < inputs + norm; i++)
		copy_numbers(&d[1].call.arg[i], 0, &a[i]);
	for (int k = 0; k < 3; k += 2)
		for (int i = 0; i < FO_FP8_AMAX_COLS; i++)
			fo_num_set(&d[k].call.arg[k ? 3 : at + 2], 0, i, i == 1 && !empty ? 3 : 0);
	for (int turn = 0; turn < 2; turn++) {
		for (int k = 0; k < 3; k++) {
			for (int i = 0; k == 2 && i <= bwd; i++)
				copy_numbers(&d[2].call.arg[0], i * cols, &d[1].call.arg[made + i]);
			assert_true(fo_num_run(&fo_test_cuda_kernel, &d[k], 1));
		}
		for (int i = 0; i < 3; i++)
			check_numbers(&c[0], &a[at + i], 0, &d[2].call.arg[1 + i]);
		if (adds)
			check_numbers(&c[0], &a[3], 0, &d[1].call.arg[3]);
		if (norm)
			check_numbers(&c[0], &a[at - 1], 0, &d[1].call.arg[made + 1]);
		if (z)
			check_numbers(&c[0], &a[at + 3], 0, &d[2].call.arg[z == TRANSPOSE ? 4 : 0]);
	}
	for (int k = 0; k < 3; k++)
		fo_num_data_free(&d[k]);
}
static void test_made(void **state)
{
	(void)state;
	static const enum fo_op_kind fused[] = { FO_OP_rmsnorm_fp8, FO_OP_add_rmsnorm_fp8, FO_OP_swiglu_fp8,
						 FO_OP_swiglu_bwd_fp8 },
				     apart[] = { FO_OP_rmsnorm, FO_OP_add_rmsnorm, FO_OP_swiglu, FO_OP_swiglu_bwd };
	/* a strip of 3,072 columns is 48 KiB: more than may be had unasked with the shared memory that the kernel has
	 * beside it */
	static const int64_t norm[][2] = { { 16, 3072 }, { 32, 272 }, { 48, 1024 }, { 16, 4096 }, { 32, 4112 } },
			     tile[][2] = { { 16, 16 }, { 144, 272 }, { 256, 128 } };
	for (int k = 0; k < 4; k++)
		for (int s = 0; s < (k < 2 ? 5 : 3); s++)
			for (int z = 0; z < BESIDE; z++)
				check_made(fused[k], apart[k], (k < 2 ? norm : tile)[s][0], (k < 2 ? norm : tile)[s][1],
					   z, (s + z) & 1);
}

/* Maxima with what is not finite in them, of all, rows and columns of a tensor wider and higher than a block. */
static void test_amax_nan(void **state)
{
	(void)state;
	for (int axis = 0; axis < 3; axis++)
		for (int tight = 0; tight < 2; tight++) {
			struct fo_num_case c;
			struct fo_num_data got, want;
			fo_num_case_init(&c, FO_OP_amax);
			fo_num_case_arg(&c, FO_BF16, 211, 520, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(&c, FO_F32, axis == 1 ? 211 : 1, axis == 2 ? 520 : 1, FO_DEF, FO_NUM_NAN, 0, 0);
			for (int k = 0; k < AMAX_FILLS; k++) {
				fo_num_data_new(&got, &c, 2, tight);
				fo_num_set(&got.call.arg[0], 133, 515, -5000);
				if (k)
					fo_num_set(&got.call.arg[0], 200, 7, k == 1 ? -INFINITY : NAN);
				fo_num_data_copy(&want, &got);
				fo_num_run(&fo_test_cuda_kernel, &got, 1);
				fo_num_run(ref(&want), &want, 1);
				const struct fo_tensor *t = &got.call.arg[1];
				for (int64_t r = 0; r < t->rows; r++)
					for (int64_t j = 0; j < t->cols; j++) {
						double a = fo_num_get(t, r, j), b = fo_num_get(&want.call.arg[1], r, j);
						assert_true(a == b || (isnan(a) && isnan(b)));
					}
				fo_num_data_free(&got);
				fo_num_data_free(&want);
			}
		}
}

/* A step begins with the largest numbers of all histories; they move on, but for refused steps. */
static void test_fp8_history(void **state)
{
	(void)state;
	for (int k = 0; k < 4; k++) {
		struct fo_num_case c;
		struct fo_num_data got, want;
		fo_num_case_init(&c, FO_OP_fp8_begin_many);
		for (int t = 0; t < 16; t++) {
			fo_num_case_arg(&c, FO_F32, 3 + t % 5, 300, FO_READ, FO_NUM_POSITIVE, 5, 0);
			fo_num_case_arg(&c, FO_F32, 3 + t % 5, FO_FP8_AMAX_COLS, FO_DEF, FO_NUM_NAN, 0, 0);
		}
		fo_num_data_new(&got, &c, 4, k & 1);
		fo_num_set(&got.call.arg[6], 1, 299, 1e6);
		fo_num_data_copy(&want, &got);
		fo_num_run(&fo_test_cuda_kernel, &got, 1);
		fo_num_run(ref(&want), &want, 1);
		check_same(&c, &got, &want, "begin");
		assert_true(fo_num_get(&got.call.arg[7], 1, 1) == 1e6);
		fo_num_data_free(&got);
		fo_num_data_free(&want);

		fo_num_case_init(&c, FO_OP_fp8_push);
		fo_num_case_arg(&c, FO_F32, 5, 1, FO_READ, FO_NUM_POSITIVE, 1, 0);
		fo_num_case_arg(&c, FO_F32, 5, 700, FO_UPDATE, FO_NUM_POSITIVE, 1, 0);
		fo_num_case_arg(&c, FO_F64, 1, 2, FO_READ, FO_NUM_POSITIVE, 1, 0);
		fo_num_data_new(&got, &c, 4, k & 1);
		fo_num_set(&got.call.arg[0], 2, 0, NAN);
		fo_num_set(&got.call.arg[0], 3, 0, INFINITY);
		if (k & 2)
			((double *)got.call.arg[2].data)[0] = -1;
		fo_num_data_copy(&want, &got);
		fo_num_run(&fo_test_cuda_kernel, &got, 1);
		fo_num_run(ref(&want), &want, 1);
		check_same(&c, &got, &want, "history");
		fo_num_data_free(&got);
		fo_num_data_free(&want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_adamw_bits),     cmocka_unit_test(test_adamw_many),
		cmocka_unit_test(test_sumsq_turns),    cmocka_unit_test(test_nonfinite),
		cmocka_unit_test(test_xent),           cmocka_unit_test(test_fp8_bytes),
		cmocka_unit_test(test_amax_nan),       cmocka_unit_test(test_fp8_history),
		cmocka_unit_test(test_fp8_transposed), cmocka_unit_test(test_made),
	};
	int status;
	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	fo_num_cuda_use(cuda);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_cuda_close(cuda);
	return failed;
}
