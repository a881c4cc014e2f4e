/* Kernels over rows at the shapes of real models, which the cases of check/engine/num_cases.c are too small for: wide
 * rows, heads inside merged buffers, more pieces than blocks, words that occur often, operands of differing types. Each
 * against `ref` in double precision, allowed what fo_num_check allows; bytes around the rectangles stay; a second run,
 * in another order of blocks, gives the same bits. */
#include "support/cuda.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of an operand's columns, those from `at` on count: the rest is the neighbour in a merged buffer. */
struct part {
	int64_t at, cols;
};
struct one {
	struct fo_num_case c;
	struct part part[FO_MAX_OPERANDS];
	int over[FO_MAX_OPERANDS]; /* 1 + the operand that this output lies over; 0: none */
};

static struct fo_cuda *cuda;

static struct one *new_one(int kind)
{
	static struct one o;
	memset(&o, 0, sizeof o);
	fo_num_case_init(&o.c, kind);
	o.c.call.attr.value = 1e-5;
	return &o;
}
/* cols columns of a buffer that has `ld`, from column `at` on. */
static void arg_in(struct one *o, int dtype, int64_t rows, int64_t cols, int64_t ld, int64_t at, int access, int fill,
		   int64_t limit)
{
	o->part[o->c.call.n] = (struct part){ at, cols };
	o->c.call.first |= (uint32_t)(access == FO_DEF) << o->c.call.n;
	fo_num_case_arg(&o->c, dtype, rows, ld, access, fill, 1, limit);
}
static void arg(struct one *o, int dtype, int64_t rows, int64_t cols, int access, int fill, int64_t limit)
{
	arg_in(o, dtype, rows, cols, cols, 0, access, fill, limit);
}
/* An output that is stored or added to. */
static void acc(struct one *o, int dtype, int64_t rows, int64_t cols, bool store)
{
	o->c.call.first |= (uint32_t)store << o->c.call.n;
	arg(o, dtype, rows, cols, FO_ACC, store ? FO_NUM_NAN : FO_NUM_NORMAL, 0);
}

static void error_of(const struct fo_tensor *got, const struct fo_tensor *want, double *l2, double *worst)
{
	double norm = 0, sum = 0, top = 0, most = 0;
	for (int64_t r = 0; r < want->rows; r++)
		for (int64_t c = 0; c < want->cols; c++) {
			double x = fo_num_get(want, r, c), off = fabs(fo_num_get(got, r, c) - x);
			if (!(off <= 1e300))
				off = INFINITY;
			norm += x * x, sum += off * off;
			top = fmax(top, fabs(x)), most = fmax(most, off);
		}
	*l2 = sum > 0 ? sqrt(sum / norm) : 0;
	*worst = most > 0 ? most / top : 0;
}

static bool inside(const struct fo_tensor *t, const unsigned char *byte)
{
	const unsigned char *begin = t->data;
	size_t item = fo_dtype_bytes(t->dtype), line = (size_t)t->ld * item;
	if (byte < begin)
		return false;
	return (size_t)(byte - begin) / line < (size_t)t->rows &&
	       (size_t)(byte - begin) % line < (size_t)t->cols * item;
}

static void run(const struct one *o, struct fo_num_data *d)
{
	unsigned char *block[FO_MAX_OPERANDS];
	size_t bytes[FO_MAX_OPERANDS];
	for (int i = 0; i < d->call.n; i++) {
		const int in = o->over[i] ? o->over[i] - 1 : i;
		block[i] = d->block[in], bytes[i] = d->bytes[in];
	}
	fo_test_cuda_run(&d->call, block, bytes);
}

static void check(struct one *o)
{
	struct fo_num_data in, exact, naive, got, again;
	char note[64] = "";
	const char *cannot;
	fo_num_data_new(&in, &o->c, 7, true);
	for (int i = 0; i < in.call.n; i++) {
		struct fo_tensor *t = &in.call.arg[i];
		t->data = (unsigned char *)t->data + (size_t)o->part[i].at * fo_dtype_bytes(t->dtype);
		t->cols = o->part[i].cols;
	}
	fo_num_data_f64(&exact, &in);
	fo_num_run(&fo_kernels_ref.kernel[in.call.kind], &exact, 1);
	fo_num_data_copy(&naive, &in), fo_num_data_copy(&got, &in), fo_num_data_copy(&again, &in);
	fo_num_run(&fo_kernels_ref.kernel[in.call.kind], &naive, 1);
	struct fo_tensor apart[FO_MAX_OPERANDS];
	for (int i = 0; i < in.call.n; i++) {
		apart[i] = got.call.arg[i];
		if (o->over[i])
			got.call.arg[i] = got.call.arg[o->over[i] - 1],
			again.call.arg[i] = again.call.arg[o->over[i] - 1],
			snprintf(note + strlen(note), sizeof note - strlen(note), ", %d over %d", i, o->over[i] - 1);
	}
	cannot = fo_num_cuda_cannot(&o->c);
	if (cannot)
		fail_msg("%s: %s", o->c.name, cannot);
	run(o, &got);
	run(o, &again);
	for (int i = 0; i < in.call.n; i++) {
		const bool writes = fo_access_writes(o->c.spec[i].access);
		bool free_place = !o->over[i], lain_over = false;
		for (int k = 0; k < in.call.n; k++)
			lain_over |= o->over[k] == i + 1;
		for (size_t b = 0; b < in.bytes[i]; b++)
			if (got.block[i][b] != in.block[i][b] &&
			    !(((writes && free_place) || lain_over) && inside(&apart[i], &got.block[i][b])))
				fail_msg("%s%s: operand %d: byte %zu of its block was changed", o->c.name, note, i, b);
		if (memcmp(got.block[i], again.block[i], in.bytes[i]))
			fail_msg("%s%s: operand %d: two runs give different bits", o->c.name, note, i);
		double e[2], n[2];
		if (!writes)
			continue;
		error_of(&got.call.arg[i], &exact.call.arg[i], &e[0], &e[1]);
		error_of(&naive.call.arg[i], &exact.call.arg[i], &n[0], &n[1]);
		for (int k = 0; k < 2; k++)
			if (!(e[k] <= 2 * n[k] + FO_NUM_FLOOR))
				fail_msg("%s%s: operand %d: %s %.3g, naive %.3g", o->c.name, note, i,
					 k ? "worst element" : "relative error", e[k], n[k]);
	}
	fo_num_data_free(&in), fo_num_data_free(&exact), fo_num_data_free(&naive), fo_num_data_free(&got),
		fo_num_data_free(&again);
}

static const int types[] = { FO_BF16, FO_F32 };

static void test_swiglu(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++) {
		const int t = types[k];
		const int64_t rows = 7, f = 1032;
		struct one *o = new_one(FO_OP_swiglu);
		arg_in(o, t, rows, f, 2 * f, 0, FO_READ, FO_NUM_NORMAL, 0);
		arg_in(o, t, rows, f, 2 * f, f, FO_READ, FO_NUM_NORMAL, 0);
		arg(o, t, rows, f, FO_DEF, FO_NUM_NAN, 0);
		check(o);
		for (int over = 0; over < 2; over++) {
			o = new_one(FO_OP_swiglu_bwd);
			arg_in(o, t, rows, f, 2 * f, 0, FO_READ, FO_NUM_NORMAL, 0);
			arg_in(o, t, rows, f, 2 * f, f, FO_READ, FO_NUM_NORMAL, 0);
			arg(o, t, rows, f, FO_READ, FO_NUM_NORMAL, 0);
			arg_in(o, t, rows, f, 2 * f, 0, FO_DEF, FO_NUM_NAN, 0);
			arg_in(o, t, rows, f, 2 * f, f, FO_DEF, FO_NUM_NAN, 0);
			if (over)
				o->over[3] = 1 + 0, o->over[4] = 1 + 1;
			check(o);
		}
	}
}

/* Heads of a merged buffer: queries and keys of one row are rotated together, values behind them are not. */
static void test_rope(void **state)
{
	(void)state;
	static const struct {
		int heads, dim;
	} shape[] = { { 10, 128 }, { 7, 64 }, { 3, 16 }, { 2, 24 } };
	for (int k = 0; k < 8; k++) {
		const int64_t dim = shape[k / 2].dim, cols = shape[k / 2].heads * dim;
		struct one *o = new_one(FO_OP_rope);
		arg_in(o, types[k & 1], 37, cols, cols + 2 * dim, k & 2 ? dim : 0, FO_UPDATE, FO_NUM_NORMAL, 0);
		arg(o, FO_I32, 37, 1, FO_READ, FO_NUM_INDEX, 50);
		arg(o, FO_F32, 50, dim, FO_READ, FO_NUM_ROTATION, 0);
		o->c.call.attr.head_dim = (int32_t)dim, o->c.call.attr.sign = k & 4 ? -1 : 1;
		check(o);
	}
}

/* add_rmsnorm gives the bits of add and rmsnorm one after the other. */
static void test_fused_bits(void **state)
{
	(void)state;
	enum { ROWS = 40, COLS = 1032 };
	struct one *o = new_one(FO_OP_add_rmsnorm);
	struct fo_num_data fused, apart;
	for (int i = 0; i < 5; i++)
		arg(o, FO_BF16, i == 2 ? 1 : ROWS, COLS, i < 3 ? FO_READ : FO_DEF, i < 3 ? FO_NUM_NORMAL : FO_NUM_NAN,
		    0);
	arg(o, FO_F32, ROWS, 1, FO_DEF, FO_NUM_NAN, 0);
	fo_num_data_new(&fused, &o->c, 3, true), fo_num_data_copy(&apart, &fused);
	fo_test_cuda_run(&fused.call, fused.block, fused.bytes);
	const struct fo_tensor *a = apart.call.arg;
	struct fo_call add = { .kind = FO_OP_add, .n = 3, .first = 4, .arg = { a[0], a[1], a[3] } };
	struct fo_call norm = {
		.kind = FO_OP_rmsnorm, .n = 4, .attr = o->c.call.attr, .first = 12, .arg = { a[3], a[2], a[4], a[5] }
	};
	fo_test_cuda_kernel.run(&add);
	fo_test_cuda_kernel.run(&norm);
	for (int i = 3; i < 6; i++)
		assert_memory_equal(fused.block[i], apart.block[i], fused.bytes[i]);
	fo_num_data_free(&fused), fo_num_data_free(&apart);
}

static const struct {
	int rows, cols, heads;
} norm_shape[] = { { 37, 4096, 1 }, { 5, 3072, 1 },  { 300, 264, 1 }, { 9, 8448, 1 },
		   { 2, 16384, 1 }, { 2, 16392, 1 }, { 61, 1280, 10 } };
enum { NORM_SHAPES = sizeof norm_shape / sizeof *norm_shape };

static void test_norm(void **state)
{
	(void)state;
	for (int k = 0; k < 2 * NORM_SHAPES; k++) {
		const int t = types[k & 1];
		const int64_t rows = norm_shape[k / 2].rows, cols = norm_shape[k / 2].cols,
			      heads = norm_shape[k / 2].heads, width = cols / heads;
		struct one *o = new_one(FO_OP_rmsnorm);
		arg_in(o, t, rows, cols, cols + 64, 8, FO_READ, FO_NUM_NORMAL, 0);
		arg(o, t, 1, width, FO_READ, FO_NUM_NORMAL, 0);
		arg_in(o, t, rows, cols, cols + 16, 16, FO_DEF, FO_NUM_NAN, 0);
		arg(o, FO_F32, rows, heads, FO_DEF, FO_NUM_NAN, 0);
		o->c.call.attr.head_dim = heads > 1 ? (int32_t)width : 0;
		check(o);
		for (int over = 0; over < 2 && heads == 1; over++) {
			o = new_one(FO_OP_add_rmsnorm);
			arg(o, t, rows, cols, FO_READ, FO_NUM_NORMAL, 0);
			arg(o, t, rows, cols, FO_READ, FO_NUM_NORMAL, 0);
			arg(o, t, 1, width, FO_READ, FO_NUM_NORMAL, 0);
			arg(o, t, rows, cols, FO_DEF, FO_NUM_NAN, 0);
			arg(o, t, rows, cols, FO_DEF, FO_NUM_NAN, 0);
			arg(o, FO_F32, rows, 1, FO_DEF, FO_NUM_NAN, 0);
			if (over)
				o->over[3] = 1 + 1, o->over[4] = 1 + 0;
			check(o);
		}
	}
}

static void test_norm_backward(void **state)
{
	(void)state;
	for (int k = 0; k < 8 * NORM_SHAPES; k++) {
		const int t = types[k & 1];
		const bool residual = k & 2, store = k & 4;
		const int64_t rows = norm_shape[k / 8].rows, cols = norm_shape[k / 8].cols,
			      heads = norm_shape[k / 8].heads, width = cols / heads;
		struct one *o = new_one(FO_OP_rmsnorm_bwd);
		arg(o, t, rows, cols, FO_READ, FO_NUM_NORMAL, 0);
		arg(o, FO_F32, rows, heads, FO_READ, FO_NUM_POSITIVE, 0);
		arg(o, t, 1, width, FO_READ, FO_NUM_NORMAL, 0);
		arg_in(o, t, rows, cols, cols + 8, 8, FO_READ, FO_NUM_NORMAL, 0);
		arg_in(o, t, rows, cols, cols + 8, 8, FO_DEF, FO_NUM_NAN, 0);
		acc(o, FO_F32, 1, width, store);
		if (residual)
			arg(o, t, rows, cols, FO_READ, FO_NUM_NORMAL, 0);
		o->over[4] = store ? 1 + 3 : 0;
		o->c.call.attr.head_dim = heads > 1 ? (int32_t)width : 0;
		check(o);
		if (residual)
			continue;
		o = new_one(FO_OP_rmsnorm_dg);
		arg(o, t, rows, cols, FO_READ, FO_NUM_NORMAL, 0);
		arg(o, FO_F32, rows, heads, FO_READ, FO_NUM_POSITIVE, 0);
		arg(o, t, rows, cols, FO_READ, FO_NUM_NORMAL, 0);
		acc(o, FO_F32, 1, width, store);
		o->c.call.attr.head_dim = heads > 1 ? (int32_t)width : 0;
		check(o);
		o = new_one(FO_OP_rmsnorm_dx);
		arg(o, t, rows, cols, FO_READ, FO_NUM_NORMAL, 0);
		arg(o, FO_F32, rows, heads, FO_READ, FO_NUM_POSITIVE, 0);
		arg(o, t, 1, width, FO_READ, FO_NUM_NORMAL, 0);
		arg(o, t, rows, cols, FO_READ, FO_NUM_NORMAL, 0);
		arg(o, t, rows, cols, FO_DEF, FO_NUM_NAN, 0);
		if (store)
			arg(o, t, rows, cols, FO_READ, FO_NUM_NORMAL, 0);
		o->c.call.attr.head_dim = heads > 1 ? (int32_t)width : 0;
		check(o);
	}
}

static void test_bias(void **state)
{
	(void)state;
	for (int k = 0; k < 4; k++) {
		const int t = types[k & 1];
		const int64_t rows = k & 2 ? 3 : 700, cols = k & 2 ? 6144 : 264;
		struct one *o = new_one(FO_OP_add_bias);
		arg_in(o, t, rows, cols, cols + 8, 8, FO_UPDATE, FO_NUM_NORMAL, 0);
		arg(o, t, 1, cols, FO_READ, FO_NUM_NORMAL, 0);
		check(o);
		o = new_one(FO_OP_bias_grad);
		arg_in(o, t, rows, cols, cols + 8, 8, FO_READ, FO_NUM_NORMAL, 0);
		acc(o, FO_F32, 1, cols, k & 2);
		check(o);
	}
}

/* One word alone, a few words that occur often, words that hardly do; more tokens than a tile of the comparison. */
static void test_embedding(void **state)
{
	(void)state;
	static const struct {
		int tokens, vocabulary, cols;
	} shape[] = { { 300, 1, 264 }, { 300, 7, 264 }, { 200, 20, 2056 }, { 60, 2000, 520 },
		      { 1100, 40, 8 }, { 1100, 3, 7 },  { 17, 1, 8 },      { 16, 1, 8 } };
	for (size_t k = 0; k < 2 * sizeof shape / sizeof *shape; k++) {
		const int t = types[k & 1];
		const int64_t tokens = shape[k / 2].tokens, vocabulary = shape[k / 2].vocabulary,
			      cols = shape[k / 2].cols;
		struct one *o = new_one(FO_OP_embed);
		arg(o, FO_I32, tokens, 1, FO_READ, FO_NUM_INDEX, vocabulary);
		arg_in(o, t, vocabulary, cols, cols + 8, 8, FO_READ, FO_NUM_NORMAL, 0);
		arg(o, t, tokens, cols, FO_DEF, FO_NUM_NAN, 0);
		check(o);
		for (int store = 0; store < 2; store++) {
			o = new_one(FO_OP_embed_bwd);
			arg(o, FO_I32, tokens, 1, FO_READ, FO_NUM_INDEX, vocabulary);
			arg_in(o, t, tokens, cols, cols + 8, 8, FO_READ, FO_NUM_NORMAL, 0);
			acc(o, FO_F32, vocabulary, cols, store);
			check(o);
		}
	}
}

/* What programs mix: fp32 beside bf16. */
static void test_mixed(void **state)
{
	(void)state;
	struct one *o = new_one(FO_OP_add);
	arg(o, FO_BF16, 9, 264, FO_READ, FO_NUM_NORMAL, 0);
	arg(o, FO_F32, 9, 264, FO_READ, FO_NUM_NORMAL, 0);
	arg(o, FO_BF16, 9, 264, FO_DEF, FO_NUM_NAN, 0);
	check(o);
	o = new_one(FO_OP_rmsnorm);
	arg(o, FO_BF16, 9, 264, FO_READ, FO_NUM_NORMAL, 0);
	arg(o, FO_F32, 1, 264, FO_READ, FO_NUM_NORMAL, 0);
	arg(o, FO_F32, 9, 264, FO_DEF, FO_NUM_NAN, 0);
	arg(o, FO_F32, 9, 1, FO_DEF, FO_NUM_NAN, 0);
	check(o);
	o = new_one(FO_OP_rmsnorm_bwd);
	arg(o, FO_BF16, 9, 264, FO_READ, FO_NUM_NORMAL, 0);
	arg(o, FO_F32, 9, 1, FO_READ, FO_NUM_POSITIVE, 0);
	arg(o, FO_F32, 1, 264, FO_READ, FO_NUM_NORMAL, 0);
	arg(o, FO_BF16, 9, 264, FO_READ, FO_NUM_NORMAL, 0);
	arg(o, FO_BF16, 9, 264, FO_DEF, FO_NUM_NAN, 0);
	acc(o, FO_BF16, 1, 264, false);
	check(o);
	for (int store = 0; store < 2; store++) {
		o = new_one(FO_OP_bias_grad);
		arg(o, FO_BF16, 90, 264, FO_READ, FO_NUM_NORMAL, 0);
		acc(o, FO_BF16, 1, 264, store);
		check(o);
		o = new_one(FO_OP_embed_bwd);
		arg(o, FO_I32, 90, 1, FO_READ, FO_NUM_INDEX, 4);
		arg(o, FO_F32, 90, 264, FO_READ, FO_NUM_NORMAL, 0);
		acc(o, FO_BF16, 40, 264, store);
		check(o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_swiglu), cmocka_unit_test(test_rope),
		cmocka_unit_test(test_norm),   cmocka_unit_test(test_norm_backward),
		cmocka_unit_test(test_bias),   cmocka_unit_test(test_embedding),
		cmocka_unit_test(test_mixed),  cmocka_unit_test(test_fused_bits),
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
