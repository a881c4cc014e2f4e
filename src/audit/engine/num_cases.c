/* The list of cases: every operation with the operands that lowering gives it, at shapes that leave remainders in every
 * blocking of ours (odd widths, one row, one column, just above powers of two). */
#include "audit/engine/num.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct list {
	struct fo_num_case *out;
	size_t n, cap;
	int dtype;
};

static struct fo_num_case *next(struct list *l, int kind)
{
	static struct fo_num_case spare;
	struct fo_num_case *c = l->n < l->cap ? &l->out[l->n] : &spare;

	l->n++;
	fo_num_case_init(c, kind);
	return c;
}

/* dtype of statistics, gradients of parameters, moments: fp32 unless all is f64 */
static int wide(const struct list *l) { return l->dtype == FO_F64 ? FO_F64 : FO_F32; }

static void acc_first(struct fo_num_case *c, int arg, bool first)
{
	size_t len = strlen(c->name);

	c->spec[arg].access = FO_ACC;
	c->spec[arg].fill = first ? FO_NUM_NAN : FO_NUM_NORMAL;
	c->call.first = (uint32_t)first << arg;
	snprintf(c->name + len, sizeof c->name - len, "%s", first ? " store" : " add");
}

void fo_num_case_matmul(struct fo_num_case *c, int64_t m, int64_t n, int64_t k, int ta, int tb, int ab, int cc,
			int access, bool first)
{
	size_t len;

	fo_num_case_init(c, FO_OP_matmul);
	fo_num_case_arg(c, ab, ta ? k : m, ta ? m : k, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(c, ab, tb ? n : k, tb ? k : n, FO_READ, FO_NUM_NORMAL, 1 / sqrt((double)k), 0);
	fo_num_case_arg(c, cc, m, n, FO_DEF, FO_NUM_NAN, 1, 0);
	c->call.attr.ta = (uint8_t)ta;
	c->call.attr.tb = (uint8_t)tb;
	len = strlen(c->name);
	snprintf(c->name + len, sizeof c->name - len, " ta=%d tb=%d", ta, tb);
	c->call.first = 1u << 2;
	if (access == FO_ACC)
		acc_first(c, 2, first);
}

static void list_matmul(struct list *l)
{
	static const struct {
		int m, n, k;
	} shape[] = { { 1, 1, 1 },    { 1, 71, 1040 },  { 2, 33, 40 },  { 3, 18, 300 },  { 4, 7, 131 },
		      { 37, 45, 29 }, { 130, 33, 300 }, { 5, 257, 64 }, { 96, 65, 1040 } };

	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int t = 0; t < 4; t++)
			fo_num_case_matmul(next(l, FO_OP_matmul), shape[s].m, shape[s].n, shape[s].k, t >> 1, t & 1,
					   l->dtype, l->dtype, FO_DEF, true);
	for (int first = 0; first < 2; first++)
		for (int t = 0; t < 4; t++) {
			fo_num_case_matmul(next(l, FO_OP_matmul), 67, 70, 131, t >> 1, t & 1, l->dtype, wide(l), FO_ACC,
					   first);
			fo_num_case_matmul(next(l, FO_OP_matmul), 64, 48, 32, t >> 1, t & 1, l->dtype, l->dtype, FO_ACC,
					   first);
		}
}

/* Lists the operands that a cast of (r, d) by the scale of the step writes. first: the history is empty, so the scale
 * is computed from the maximum of the cast tensor itself. */
static void list_step(struct list *l, struct fo_num_case *c, int format, int64_t r, int64_t d, bool first)
{
	fo_num_case_arg(c, wide(l), 1, 1, FO_DEF, FO_NUM_NAN, 0, 0);
	fo_num_case_arg(c, format, r, d, FO_DEF, FO_NUM_NAN, 0, 0);
	fo_num_case_arg(c, wide(l), 1, FO_FP8_AMAX_COLS, FO_ACC, FO_NUM_NAN, 1000,
			0); /* beyond all numbers: double precision saturates nothing */
	acc_first(c, fo_op_fp8_step(c->call.kind) + 2, first);
	if (!first)
		c->spec[fo_op_fp8_step(c->call.kind) + 2].fill = FO_NUM_POSITIVE;
}

/* Norms and SwiGLU of (r, d) that cast what they make. By a history: a scale of their own numbers is of rounded ones,
 * and double precision rounds none (tests/cuda/test_cuda_optimizer.c and tests/step/test_fp8_step.c have these, to the
 * bit). */
static void list_made(struct list *l, int64_t r, int64_t d, int z)
{
	static const enum fo_op_kind kind[] = { FO_OP_rmsnorm_fp8, FO_OP_add_rmsnorm_fp8, FO_OP_swiglu_fp8,
						FO_OP_swiglu_bwd_fp8 };

	for (int k = 0; k < 4; k++) {
		struct fo_num_case *c = next(l, kind[k]);
		int format = l->dtype == FO_F64 ? FO_F64 : FO_E4M3;
		int64_t cols = k == 3 ? 2 * d : d;

		for (int i = 0; i < (k == 0 ? 1 : k == 3 ? 3 : 2); i++)
			fo_num_case_arg(c, l->dtype, r, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		if (k < 2)
			fo_num_case_arg(c, l->dtype, 1, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		if (k == 1)
			fo_num_case_arg(c, l->dtype, r, d, FO_DEF, FO_NUM_NAN, 0, 0);
		if (k < 2)
			fo_num_case_arg(c, wide(l), r, 1, FO_DEF, FO_NUM_NAN, 0, 0);
		list_step(l, c, format, r, cols, false);
		if (z == 1 && cols != r) /* in double precision the shape alone says that it is the transpose */
			fo_num_case_arg(c, format, cols, r, FO_DEF, FO_NUM_NAN, 0, 0);
		if (z == 2)
			fo_num_case_arg(c, l->dtype, r, cols, FO_DEF, FO_NUM_NAN, 0, 0);
		c->call.attr.value = k < 2 ? 1e-5 : 0;
	}
}

/* Products of fp8 factors, scales of all or of each line; maxima, scales, casts, histories. In double precision nothing
 * is fp8: numbers are what they stand for, and a cast does not round. */
static void list_fp8(struct list *l)
{
	static const struct {
		int m, n, k;
	} shape[] = { { 1, 1, 1 }, { 3, 71, 40 }, { 37, 45, 29 }, { 130, 33, 300 }, { 5, 257, 64 }, { 67, 65, 1040 } };
	bool f64 = l->dtype == FO_F64;

	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int t = 0; t < 8; t++) {
			int64_t m = shape[s].m, n = shape[s].n, k = shape[s].k;
			int ta = t >> 1 & 1, tb = t & 1, lines = t >> 2, acc = s & 1;
			struct fo_num_case *c = next(l, FO_OP_matmul);

			fo_num_case_arg(c,
					f64     ? FO_F64
					: lines ? FO_E4M3
						: FO_E5M2,
					ta ? k : m, ta ? m : k, FO_READ, FO_NUM_NORMAL, 64, 0);
			fo_num_case_arg(c, f64 ? FO_F64 : FO_E4M3, tb ? n : k, tb ? k : n, FO_READ, FO_NUM_NORMAL, 64,
					0);
			fo_num_case_arg(c, acc ? wide(l) : l->dtype, m, n, acc ? FO_ACC : FO_DEF, FO_NUM_NAN, 1, 0);
			fo_num_case_arg(c, wide(l), lines && !ta ? m : 1, lines && ta ? m : 1, FO_READ, FO_NUM_POSITIVE,
					1, 0);
			fo_num_case_arg(c, wide(l), lines && tb ? n : 1, lines && !tb ? n : 1, FO_READ, FO_NUM_POSITIVE,
					1, 0);
			c->call.attr.ta = (uint8_t)ta;
			c->call.attr.tb = (uint8_t)tb;
			c->call.first = 1u << 2;
			if (acc)
				acc_first(c, 2, t & 1);
		}
	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int axis = 0; axis < 3; axis++) {
			int64_t r = shape[s].m, d = shape[s].k;
			struct fo_num_case *c = next(l, FO_OP_amax);

			fo_num_case_arg(c, l->dtype, r, d, FO_READ, FO_NUM_NORMAL, 3, 0);
			fo_num_case_arg(c, wide(l), axis == 1 ? r : 1, axis == 2 ? d : 1, FO_DEF, FO_NUM_NAN, 0, 0);

			c = next(l, FO_OP_fp8_scale);
			fo_num_case_arg(c, wide(l), axis == 1 ? r : 1, axis == 2 ? d : 1, FO_READ, FO_NUM_POSITIVE, 5,
					0);
			fo_num_case_arg(c, wide(l), axis == 1 ? r : 1, axis == 2 ? d : 1, FO_DEF, FO_NUM_NAN, 0, 0);
			c->call.attr.value = FO_E4M3_MAX;
			c->call.attr.sign = s & 1;

			c = next(l, FO_OP_fp8_cast);
			fo_num_case_arg(c, l->dtype, r, d, FO_READ, FO_NUM_NORMAL, 3, 0);
			fo_num_case_arg(c, wide(l), axis == 1 ? r : 1, axis == 2 ? d : 1, FO_READ, FO_NUM_POSITIVE, 1,
					0);
			fo_num_case_arg(c, f64 ? FO_F64 : s & 1 ? FO_E5M2 : FO_E4M3, r, d, FO_DEF, FO_NUM_NAN, 0, 0);
		}
	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
		struct fo_num_case *c = next(l, FO_OP_fp8_cast_t);
		int format = f64 ? FO_F64 : s & 1 ? FO_E5M2 : FO_E4M3;

		fo_num_case_arg(c, l->dtype, shape[s].m, shape[s].k, FO_READ, FO_NUM_NORMAL, 3, 0);
		fo_num_case_arg(c, wide(l), 1, 1, FO_READ, FO_NUM_POSITIVE, 1, 0);
		fo_num_case_arg(c, format, shape[s].m, shape[s].k, FO_DEF, FO_NUM_NAN, 0, 0);
		fo_num_case_arg(c, format, shape[s].k, shape[s].m, FO_DEF, FO_NUM_NAN, 0, 0);
	}
	for (size_t s = 0; s < sizeof shape / sizeof *shape;
	     s++) /* in E4M3, which double precision takes its largest number from */
		for (int both = 0; both < 2; both++) {
			struct fo_num_case *c = next(l, FO_OP_fp8_cast_step);
			int format = f64 ? FO_F64 : FO_E4M3;

			fo_num_case_arg(c, l->dtype, shape[s].m, shape[s].k, FO_READ, FO_NUM_NORMAL, 3, 0);
			list_step(l, c, format, shape[s].m, shape[s].k, s & 1);
			if (both)
				fo_num_case_arg(c, format, shape[s].k, shape[s].m, FO_DEF, FO_NUM_NAN, 0, 0);
		}
	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int z = 0; z < 3; z++) /* nothing beside the cast, its transpose, the numbers themselves */
			list_made(l, shape[s].m, shape[s].k, z);
	for (int steps = 1; steps < 20; steps += 9) {
		struct fo_num_case *c = next(l, steps > 1 ? FO_OP_fp8_begin_many : FO_OP_fp8_begin);

		for (int k = 0; k < (steps > 1 ? 3 : 1); k++) {
			fo_num_case_arg(c, wide(l), 5 + k, steps, FO_READ, FO_NUM_POSITIVE, 5, 0);
			fo_num_case_arg(c, wide(l), 5 + k, FO_FP8_AMAX_COLS, FO_DEF, FO_NUM_NAN, 0, 0);
		}

		c = next(l, FO_OP_fp8_push);
		fo_num_case_arg(c, wide(l), 3, 1, FO_READ, FO_NUM_POSITIVE, 1, 0);
		fo_num_case_arg(c, wide(l), 3, steps, FO_UPDATE, FO_NUM_POSITIVE, 1, 0);
		fo_num_case_arg(c, FO_F64, 1, 2, FO_READ, FO_NUM_POSITIVE, 1, 0);
	}
}

/* To host memory and back: the very bits. */
static void list_transfer(struct list *l)
{
	static const enum fo_op_kind kind[] = { FO_OP_offload, FO_OP_fetch };

	for (int k = 0; k < 2; k++)
		for (int rows = 1; rows < 40; rows += 19) {
			struct fo_num_case *c = next(l, kind[k]);

			fo_num_case_arg(c, l->dtype, rows, 37, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, l->dtype, rows, 37, FO_DEF, FO_NUM_NAN, 0, 0);
		}
}

static void list_attention(struct list *l)
{
	static const struct {
		int tokens, heads, kv, dim, window;
	} shape[] = { { 1, 1, 1, 8, 0 },   { 33, 4, 2, 16, 0 },  { 61, 3, 1, 20, 0 },  { 150, 2, 2, 64, 0 },
		      { 33, 4, 2, 16, 5 }, { 61, 3, 1, 20, 13 }, { 150, 2, 2, 64, 97 } };

	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
		int t = shape[s].tokens, q = shape[s].heads * shape[s].dim, kv = shape[s].kv * shape[s].dim;
		struct fo_num_case *c = next(l, FO_OP_attention);

		fo_num_case_arg(c, l->dtype, t, q, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, kv, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, kv, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, FO_I32, t, 1, FO_READ, FO_NUM_DOC_START, 0, 0);
		fo_num_case_arg(c, l->dtype, t, q, FO_DEF, FO_NUM_NAN, 0, 0);
		fo_num_case_arg(c, wide(l), t, shape[s].heads, FO_DEF, FO_NUM_NAN, 0, 0);
		c->call.attr.head_dim = shape[s].dim;
		c->call.attr.window = shape[s].window;
		c->call.attr.value = 1 / sqrt(shape[s].dim);

		if (t == 1)
			t = 3; /* dq and dk of a lone token are zero: no measure for a relative error */
		for (int turned = 0; turned < 2; turned++) {
			c = next(l, turned ? FO_OP_attention_bwd_rope : FO_OP_attention_bwd);
			fo_num_case_arg(c, l->dtype, t, q, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, l->dtype, t, kv, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, l->dtype, t, kv, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, l->dtype, t, q, FO_READ, FO_NUM_FORWARD, 0, 0);
			fo_num_case_arg(c, wide(l), t, shape[s].heads, FO_READ, FO_NUM_FORWARD, 0, 0);
			fo_num_case_arg(c, l->dtype, t, q, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, FO_I32, t, 1, FO_READ, FO_NUM_DOC_START, 0, 0);
			fo_num_case_arg(c, l->dtype, t, q, FO_DEF, FO_NUM_NAN, 0, 0);
			fo_num_case_arg(c, l->dtype, t, kv, FO_DEF, FO_NUM_NAN, 0, 0);
			fo_num_case_arg(c, l->dtype, t, kv, FO_DEF, FO_NUM_NAN, 0, 0);
			if (turned) {
				fo_num_case_arg(c, FO_I32, t, 1, FO_READ, FO_NUM_INDEX, 0, 40);
				fo_num_case_arg(c, wide(l), 40, shape[s].dim, FO_READ, FO_NUM_ROTATION, 0, 0);
				c->call.attr.sign = -1;
			}
			c->call.attr.head_dim = shape[s].dim;
			c->call.attr.window = shape[s].window;
			c->call.attr.value = 1 / sqrt(shape[s].dim);
		}
	}
}

/* One row of the batch and several; heads that share keys; documents, windows. */
static void list_eager(struct list *l)
{
	static const struct {
		int rows, seq, heads, kv, dim, window;
	} shape[] = { { 1, 3, 1, 1, 8, 0 }, { 1, 33, 4, 2, 16, 0 }, { 3, 21, 3, 1, 20, 0 },  { 1, 150, 2, 2, 64, 0 },
		      { 2, 9, 2, 1, 5, 4 }, { 2, 33, 4, 2, 16, 5 }, { 1, 401, 2, 1, 32, 97 } };

	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int bwd = 0; bwd < 2; bwd++) {
			int64_t t = shape[s].rows * shape[s].seq, q = shape[s].heads * shape[s].dim,
				kv = shape[s].kv * shape[s].dim, prob = shape[s].heads * shape[s].seq;
			struct fo_num_case *c = next(l, bwd ? FO_OP_attention_eager_bwd : FO_OP_attention_eager);

			fo_num_case_arg(c, l->dtype, t, q, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, l->dtype, t, kv, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, l->dtype, t, kv, FO_READ, FO_NUM_NORMAL, 1, 0);
			if (bwd) {
				fo_num_case_arg(c, l->dtype, t, prob, FO_READ, FO_NUM_FORWARD, 0, 0);
				fo_num_case_arg(c, l->dtype, t, q, FO_READ, FO_NUM_NORMAL, 1, 0);
				fo_num_case_arg(c, l->dtype, t, q, FO_DEF, FO_NUM_NAN, 0, 0);
				fo_num_case_arg(c, l->dtype, t, kv, FO_DEF, FO_NUM_NAN, 0, 0);
				fo_num_case_arg(c, l->dtype, t, kv, FO_DEF, FO_NUM_NAN, 0, 0);
			} else {
				fo_num_case_arg(c, FO_I32, t, 1, FO_READ, FO_NUM_DOC_START, 0, 0);
				fo_num_case_arg(c, l->dtype, t, q, FO_DEF, FO_NUM_NAN, 0, 0);
				fo_num_case_arg(c, l->dtype, t, prob, FO_DEF, FO_NUM_NAN, 0, 0);
			}
			c->call.attr.head_dim = shape[s].dim;
			c->call.attr.window = shape[s].window;
			c->call.attr.value = 1 / sqrt(shape[s].dim);
		}
}

/* Chunks at the beginning, in the middle, over several blocks of keys, padded, at the end of the cache; one row or
 * many. */
static void list_cached(struct list *l)
{
	static const struct {
		int tokens, before, count, context, heads, kv, dim, window;
	} shape[] = { { 1, 0, 1, 1, 1, 1, 8, 0 },        { 1, 300, 1, 320, 6, 2, 16, 0 },
		      { 1, 1023, 1, 1024, 2, 2, 64, 0 }, { 5, 0, 3, 40, 3, 1, 24, 0 },
		      { 20, 250, 20, 300, 4, 2, 32, 0 }, { 33, 7, 30, 60, 2, 1, 20, 9 },
		      { 9, 500, 9, 600, 4, 1, 128, 0 },  { 1, 700, 1, 800, 2, 1, 32, 200 },
		      { 40, 240, 37, 300, 4, 2, 16, 30 } };

	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
		int t = shape[s].tokens, q = shape[s].heads * shape[s].dim, kv = shape[s].kv * shape[s].dim;
		struct fo_num_case *c = next(l, FO_OP_attention_cached);

		fo_num_case_arg(c, l->dtype, t, q, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, shape[s].context, kv, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, shape[s].context, kv, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, FO_I32, 1, 2, FO_READ, FO_NUM_SPAN, shape[s].count, shape[s].before);
		fo_num_case_arg(c, l->dtype, t, q, FO_DEF, FO_NUM_NAN, 0, 0);
		c->call.attr.head_dim = shape[s].dim;
		c->call.attr.window = shape[s].window;
		c->call.attr.value = 1 / sqrt(shape[s].dim);

		c = next(l, FO_OP_cache_put);
		fo_num_case_arg(c, l->dtype, t, kv, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, FO_I32, 1, 2, FO_READ, FO_NUM_SPAN, shape[s].count, shape[s].before);
		fo_num_case_arg(c, l->dtype, shape[s].context, kv, FO_UPDATE, FO_NUM_NORMAL, 1, 0);

		c = next(l, FO_OP_last_row);
		fo_num_case_arg(c, l->dtype, t, q, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, FO_I32, 1, 2, FO_READ, FO_NUM_SPAN, shape[s].count, shape[s].before);
		fo_num_case_arg(c, l->dtype, 1, q, FO_DEF, FO_NUM_NAN, 0, 0);
	}
}

static const struct {
	int rows, cols;
} row_shape[] = { { 1, 1 }, { 13, 37 }, { 7, 600 }, { 40, 64 } };
enum { ROW_SHAPES = sizeof row_shape / sizeof *row_shape };

static void list_norm(struct list *l)
{
	for (int s = 0; s < ROW_SHAPES; s++) {
		int t = row_shape[s].rows, d = row_shape[s].cols;
		struct fo_num_case *c = next(l, FO_OP_rmsnorm);

		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, 1, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);
		fo_num_case_arg(c, wide(l), t, 1, FO_DEF, FO_NUM_NAN, 0, 0);
		c->call.attr.value = 1e-5;
		for (int residual = 0; residual < 2; residual++) {
			c = next(l, FO_OP_rmsnorm_dx);
			fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, wide(l), t, 1, FO_READ, FO_NUM_POSITIVE, 1, 0);
			fo_num_case_arg(c, l->dtype, 1, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);
			if (residual)
				fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			c->call.attr.value = 1e-5;
		}
		for (int first = 0; first < 2; first++) {
			c = next(l, FO_OP_rmsnorm_dg);
			fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, wide(l), t, 1, FO_READ, FO_NUM_POSITIVE, 1, 0);
			fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, wide(l), 1, d, FO_ACC, FO_NUM_NAN, 1, 0);
			acc_first(c, 3, first);
		}
	}
}

/* What pass fuse-elementwise makes of a norm and its neighbours; heads 0: whole rows. */
static void list_fused_norm(struct list *l, int t, int d, int heads)
{
	int width = heads ? d / heads : d, stats = heads ? heads : 1;

	for (int k = 0; k < 4; k++) { /* with and without a residual, stored and added to */
		struct fo_num_case *c = next(l, FO_OP_rmsnorm_bwd);

		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, wide(l), t, stats, FO_READ, FO_NUM_POSITIVE, 1, 0);
		fo_num_case_arg(c, l->dtype, 1, width, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);
		fo_num_case_arg(c, wide(l), 1, width, FO_ACC, FO_NUM_NAN, 1, 0);
		if (k & 1)
			fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		c->call.attr.head_dim = heads ? width : 0;
		acc_first(c, 5, k >> 1);
	}
	if (heads)
		return;
	struct fo_num_case *c = next(l, FO_OP_add_rmsnorm);
	fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(c, l->dtype, 1, d, FO_READ, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);
	fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);
	fo_num_case_arg(c, wide(l), t, 1, FO_DEF, FO_NUM_NAN, 0, 0);
	c->call.attr.value = 1e-5;
}

static void list_fused(struct list *l)
{
	for (int s = 0; s < ROW_SHAPES; s++)
		list_fused_norm(l, row_shape[s].rows, row_shape[s].cols, 0);
	list_fused_norm(l, 150, 40, 0); /* several groups of rows */
	list_fused_norm(l, 1, 4, 2);
	list_fused_norm(l, 13, 30, 3);
	list_fused_norm(l, 70, 256, 4);
}

/* Norms over heads: the weight is as wide as a head, there is an rstd per head. */
static void list_head_norm(struct list *l)
{
	static const struct {
		int rows, heads, dim;
	} shape[] = { { 1, 2, 2 }, { 13, 3, 10 }, { 40, 4, 64 }, { 7, 2, 600 } };

	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
		int t = shape[s].rows, h = shape[s].heads, q = shape[s].dim, d = h * q;
		struct fo_num_case *c = next(l, FO_OP_rmsnorm);

		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, 1, q, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);
		fo_num_case_arg(c, wide(l), t, h, FO_DEF, FO_NUM_NAN, 0, 0);
		c->call.attr.value = 1e-5;
		c->call.attr.head_dim = q;
		c = next(l, FO_OP_rmsnorm_dx);
		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, wide(l), t, h, FO_READ, FO_NUM_POSITIVE, 1, 0);
		fo_num_case_arg(c, l->dtype, 1, q, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);
		c->call.attr.head_dim = q;
		for (int first = 0; first < 2; first++) {
			c = next(l, FO_OP_rmsnorm_dg);
			fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, wide(l), t, h, FO_READ, FO_NUM_POSITIVE, 1, 0);
			fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, wide(l), 1, q, FO_ACC, FO_NUM_NAN, 1, 0);
			c->call.attr.head_dim = q;
			acc_first(c, 3, first);
		}
	}
}

static void list_bias(struct list *l)
{
	for (int s = 0; s < ROW_SHAPES; s++) {
		int t = row_shape[s].rows, d = row_shape[s].cols;
		struct fo_num_case *c = next(l, FO_OP_add_bias);

		fo_num_case_arg(c, l->dtype, t, d, FO_UPDATE, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, 1, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		for (int first = 0; first < 2; first++) {
			c = next(l, FO_OP_bias_grad);
			fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, wide(l), 1, d, FO_ACC, FO_NUM_NAN, 1, 0);
			acc_first(c, 1, first);
		}
	}
}

static void list_elementwise(struct list *l)
{
	for (int s = 0; s < ROW_SHAPES; s++) {
		int t = row_shape[s].rows, d = row_shape[s].cols;
		struct fo_num_case *c = next(l, FO_OP_add);

		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);

		c = next(l, FO_OP_swiglu);
		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 4, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);

		c = next(l, FO_OP_swiglu_bwd);
		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 4, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);
	}
	for (int s = 0; s < 4; s++) {
		static const struct {
			int tokens, heads, dim;
		} shape[] = { { 1, 1, 2 }, { 9, 3, 10 }, { 21, 2, 64 }, { 5, 1, 34 } };
		struct fo_num_case *c = next(l, FO_OP_rope);

		fo_num_case_arg(c, l->dtype, shape[s].tokens, shape[s].heads * shape[s].dim, FO_UPDATE, FO_NUM_NORMAL,
				1, 0);
		fo_num_case_arg(c, FO_I32, shape[s].tokens, 1, FO_READ, FO_NUM_INDEX, 0, 40);
		fo_num_case_arg(c, wide(l), 40, shape[s].dim, FO_READ, FO_NUM_ROTATION, 0, 0);
		c->call.attr.head_dim = shape[s].dim;
		c->call.attr.sign = s & 1 ? -1 : 1;
	}
}

static void list_embedding(struct list *l)
{
	for (int s = 0; s < ROW_SHAPES; s++) {
		int t = row_shape[s].rows, d = row_shape[s].cols, vocabulary = 19;
		struct fo_num_case *c = next(l, FO_OP_embed);

		fo_num_case_arg(c, FO_I32, t, 1, FO_READ, FO_NUM_INDEX, 0, vocabulary);
		fo_num_case_arg(c, l->dtype, vocabulary, d, FO_READ, FO_NUM_NORMAL, 1, 0);
		fo_num_case_arg(c, l->dtype, t, d, FO_DEF, FO_NUM_NAN, 0, 0);
		for (int first = 0; first < 2; first++) {
			c = next(l, FO_OP_embed_bwd);
			fo_num_case_arg(c, FO_I32, t, 1, FO_READ, FO_NUM_INDEX, 0, vocabulary);
			fo_num_case_arg(c, l->dtype, t, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, wide(l), vocabulary, d, FO_ACC, FO_NUM_NAN, 1, 0);
			acc_first(c, 2, first);
		}
	}
}

static void list_loss(struct list *l)
{
	for (int s = 0; s < ROW_SHAPES; s++)
		for (int first = 0; first < 2; first++) {
			int t = row_shape[s].rows, v = row_shape[s].cols;
			struct fo_num_case *c = next(l, FO_OP_xent);

			fo_num_case_arg(c, l->dtype, t, v, FO_UPDATE, FO_NUM_NORMAL, 3, 0);
			fo_num_case_arg(c, FO_I32, t, 1, FO_READ, FO_NUM_TARGET, 0, v);
			fo_num_case_arg(c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
			fo_num_case_arg(c, FO_F64, 1, 1, FO_ACC, FO_NUM_NAN, 1, 0);
			acc_first(c, 3, first);

			c = next(l, FO_OP_xent_fwd);
			fo_num_case_arg(c, l->dtype, t, v, FO_READ, FO_NUM_NORMAL, 3, 0);
			fo_num_case_arg(c, FO_I32, t, 1, FO_READ, FO_NUM_TARGET, 0, v);
			fo_num_case_arg(c, FO_F64, 1, 2, FO_ACC, FO_NUM_NAN, 1, 0);
			acc_first(c, 2, first);
		}
}

/* Moments in f32 or bf16, weights with or without an fp32 master, whole or in two halves. */
static void list_adamw(struct list *l, int r, int d, int moments, int master, int stochastic)
{
	struct fo_num_case *c = next(l, FO_OP_adamw);
	bool defined = master == FO_F32;

	fo_num_case_arg(c, moments, r, d, FO_UPDATE, FO_NUM_NORMAL, 0.1, 0);
	fo_num_case_arg(c, moments, r, d, FO_UPDATE, FO_NUM_POSITIVE, 0.1, 0);
	fo_num_case_arg(c, wide(l), r, d, FO_TAKE, FO_NUM_NORMAL, 1, 0);
	fo_num_case_arg(c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
	fo_num_case_arg(c, FO_F64, 1, 2, FO_READ, FO_NUM_POSITIVE, 1, 0);
	fo_num_case_arg(c, l->dtype, r, d, defined ? FO_DEF : FO_UPDATE, FO_NUM_NORMAL, 1, 0);
	if (defined)
		fo_num_case_arg(c, FO_F32, r, d, FO_UPDATE, FO_NUM_NORMAL, 1, 0);
	else if (master == FO_I16)
		fo_num_case_arg(c, FO_I16, r, d, FO_UPDATE, FO_NUM_INDEX, 1, 1 << 15);
	c->call.attr.value = d & 1;
	c->call.attr.stochastic = stochastic;
	c->call.attr.element = 1000;
}

/* Tensors of all sizes in one operation, so that threads' shares begin and end anywhere. */
static void list_many(struct list *l)
{
	static const struct {
		int tensors, rows[6], cols[6];
	} set[] = { { 1, { 3 }, { 17 } }, { 6, { 1, 40, 1, 7, 300, 1 }, { 33, 96, 5000, 1, 65, 1 } } };
	for (int s = 0; s < 2; s++) {
		struct fo_num_case *c;
		for (int first = 0; first < 2; first++) {
			c = next(l, FO_OP_sumsq_many);
			fo_num_case_arg(c, FO_F64, 1, 1, FO_ACC, FO_NUM_NAN, 1, 0);
			for (int k = 0; k < set[s].tensors; k++)
				fo_num_case_arg(c, wide(l), set[s].rows[k], set[s].cols[k], FO_READ, FO_NUM_NORMAL, 1,
						0);
			acc_first(c, 0, first);
		}
		for (int master = 0; master < 2; master++) {
			c = next(l, master ? FO_OP_adamw_master_many : FO_OP_adamw_many);
			fo_num_case_arg(c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
			fo_num_case_arg(c, FO_F64, 1, 2, FO_READ, FO_NUM_POSITIVE, 1, 0);
			for (int k = 0; k < set[s].tensors; k++) {
				int r = set[s].rows[k], d = set[s].cols[k];
				fo_num_case_arg(c, wide(l), r, d, FO_UPDATE, FO_NUM_NORMAL, 0.1, 0);
				fo_num_case_arg(c, wide(l), r, d, FO_UPDATE, FO_NUM_POSITIVE, 0.1, 0);
				fo_num_case_arg(c, wide(l), r, d, FO_TAKE, FO_NUM_NORMAL, 1, 0);
				fo_num_case_arg(c, l->dtype, r, d, master ? FO_DEF : FO_UPDATE, FO_NUM_NORMAL, 1, 0);
				if (master)
					fo_num_case_arg(c, wide(l), r, d, FO_UPDATE, FO_NUM_NORMAL, 1, 0);
			}
			c->call.attr.value = s;
		}
	}
}

static void list_optimizer(struct list *l)
{
	for (int s = 0; s < ROW_SHAPES; s++) {
		int r = row_shape[s].rows, d = row_shape[s].cols;
		struct fo_num_case *c;

		for (int first = 0; first < 2; first++) {
			c = next(l, FO_OP_sumsq);
			fo_num_case_arg(c, wide(l), r, d, FO_READ, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, FO_F64, 1, 1, FO_ACC, FO_NUM_NAN, 1, 0);
			acc_first(c, 1, first);
		}
		list_adamw(l, r, d, wide(l), l->dtype == FO_BF16 ? FO_F32 : -1, 0);
		if (l->dtype == FO_F64)
			continue;
		list_adamw(l, r, d, FO_BF16, l->dtype == FO_BF16 ? FO_F32 : -1, s & 1);
		if (l->dtype == FO_BF16) {
			list_adamw(l, r, d, s & 2 ? FO_BF16 : FO_F32, FO_I16, s & 1);
			list_adamw(l, r, d, s & 2 ? FO_BF16 : FO_F32, -1, s & 1);
		}
	}
	list_many(l);
	for (int s = 0; s < 2; s++) {
		struct fo_num_case *c = next(l, FO_OP_clip);

		fo_num_case_arg(c, FO_F64, 1, 1, FO_READ, FO_NUM_POSITIVE, s ? 100 : 1e-3, 0);
		fo_num_case_arg(c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
		fo_num_case_arg(c, FO_F64, 1, 2, FO_DEF, FO_NUM_NAN, 0, 0);
		c = next(l, FO_OP_clip_ahead);
		fo_num_case_arg(c, FO_F64, 1, FO_HYPER_COUNT, FO_READ, FO_NUM_HYPER, 0, 0);
		fo_num_case_arg(c, FO_F64, 1, 2, FO_DEF, FO_NUM_NAN, 0, 0);
		fo_num_case_arg(c, FO_F64, 1, 1, FO_READ, FO_NUM_POSITIVE, 1, 0);
		c = next(l, FO_OP_global_norm);
		fo_num_case_arg(c, FO_F64, 1, 1, FO_READ, FO_NUM_POSITIVE, s ? 100 : 1e-3, 0);
		fo_num_case_arg(c, FO_F64, 1, 2, FO_UPDATE, FO_NUM_POSITIVE, 1, 0);
	}
}

size_t fo_num_case_list(int dtype, struct fo_num_case *out, size_t cap)
{
	struct list l = { out, 0, cap, dtype };

	list_matmul(&l);
	list_fp8(&l);
	list_transfer(&l);
	list_attention(&l);
	list_eager(&l);
	list_cached(&l);
	list_norm(&l);
	list_head_norm(&l);
	list_fused(&l);
	list_bias(&l);
	list_elementwise(&l);
	list_embedding(&l);
	list_loss(&l);
	list_optimizer(&l);
	return l.n;
}
