/* Calls made of other calls: one tensor's of an operation on many, a matmul, and what the fused fp8 operations stand
 * for. */
#include "kernel/kernel.h"

#include <math.h>

/* Operations of one family are run by the same kernels, which read the operands that all of them have by one name. */
#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "kernels read both by the same number")
SAME(FO_ATTENTION_Q, FO_ATTENTION_BWD_Q);
SAME(FO_ATTENTION_K, FO_ATTENTION_BWD_K);
SAME(FO_ATTENTION_V, FO_ATTENTION_BWD_V);
SAME(FO_ATTENTION_DOC_START, FO_ATTENTION_BLOCK_DOC_START);
SAME(FO_ATTENTION_O, FO_ATTENTION_BLOCK_O);
SAME(FO_ATTENTION_LSE, FO_ATTENTION_BLOCK_LSE);
SAME(FO_ATTENTION_BWD_DOC_START, FO_ATTENTION_BLOCK_BWD_DOC_START);
SAME(FO_ATTENTION_BWD_DQ, FO_ATTENTION_BLOCK_BWD_DQ);
SAME(FO_ATTENTION_BWD_DV, FO_ATTENTION_BLOCK_BWD_DV);
SAME(FO_ATTENTION_Q, FO_ATTENTION_CACHED_Q);
SAME(FO_ATTENTION_K, FO_ATTENTION_CACHED_K);
SAME(FO_ATTENTION_Q, FO_ATTENTION_EAGER_Q);
SAME(FO_ATTENTION_K, FO_ATTENTION_EAGER_K);
SAME(FO_ATTENTION_V, FO_ATTENTION_EAGER_V);
SAME(FO_ATTENTION_DOC_START, FO_ATTENTION_EAGER_DOC_START);
SAME(FO_ATTENTION_O, FO_ATTENTION_EAGER_O);
SAME(FO_ATTENTION_EAGER_Q, FO_ATTENTION_EAGER_BWD_Q);
SAME(FO_ATTENTION_EAGER_K, FO_ATTENTION_EAGER_BWD_K);
SAME(FO_ATTENTION_EAGER_V, FO_ATTENTION_EAGER_BWD_V);
SAME(FO_ATTENTION_BWD_DV, FO_ATTENTION_BWD_ROPE_DV); /* the operands before are those of attention_bwd */
SAME(FO_RMSNORM_X, FO_RMSNORM_DX_X);
SAME(FO_RMSNORM_X, FO_RMSNORM_DG_X);
SAME(FO_RMSNORM_X, FO_RMSNORM_BWD_X);
SAME(FO_RMSNORM_X, FO_ADD_RMSNORM_A);
SAME(FO_RMSNORM_DG_X, FO_BIAS_GRAD_DY); /* fo_column_sums_ws */
SAME(FO_XENT_LOGITS, FO_XENT_FWD_LOGITS);
SAME(FO_XENT_TARGET, FO_XENT_FWD_TARGET);
SAME(FO_XENT_LOGITS, FO_XENT_MAX_LOGITS);
SAME(FO_XENT_LOGITS, FO_XENT_SUMS_LOGITS);
SAME(FO_XENT_LOGITS, FO_XENT_GRAD_LOGITS);
SAME(FO_FP8_CAST_X, FO_FP8_CAST_T_X);
SAME(FO_FP8_CAST_SX, FO_FP8_CAST_T_SX);
SAME(FO_FP8_CAST_Y, FO_FP8_CAST_T_Y);
SAME(FO_OFFLOAD_X, FO_FETCH_X);
SAME(FO_OFFLOAD_Y, FO_FETCH_Y);
#undef SAME

struct fo_call fo_call_one(const struct fo_call *c, int k)
{
	const struct fo_op_info *f = fo_op_info(c->kind);
	struct fo_call one = { .kind = (uint8_t)f->base,
			       .n = (uint8_t)(f->per_tensor ? f->common + f->per_tensor : c->n),
			       .attr = c->attr,
			       .threads = c->threads,
			       .ws = c->ws,
			       .ws_bytes = c->ws_bytes,
			       .mac = c->mac };
	for (int i = 0; i < one.n; i++) {
		int at = fo_op_operand_of(c->kind, k, i);
		one.arg[i] = c->arg[at];
		if (at >= f->common || k == 0)
			one.first |= (c->first >> at & 1u) << i;
	}
	return one;
}

struct fo_call fo_call_matmul(struct fo_tensor a, bool ta, struct fo_tensor b, bool tb, struct fo_tensor c, bool store)
{
	return (struct fo_call){ .kind = FO_OP_matmul,
				 .n = FO_MATMUL_C + 1,
				 .attr = { .ta = ta, .tb = tb },
				 .first = (uint32_t)store << FO_MATMUL_C,
				 .arg = { [FO_MATMUL_A] = a, [FO_MATMUL_B] = b, [FO_MATMUL_C] = c } };
}

static struct fo_tensor numbers(int dtype, int64_t rows, int64_t cols, void *data)
{
	return (struct fo_tensor){ .data = data, .rows = rows, .cols = cols, .ld = cols, .dtype = (uint8_t)dtype };
}

static void add(struct fo_call *c, struct fo_tensor t, bool stored)
{
	c->first |= (uint32_t)stored << c->n;
	c->arg[c->n++] = t;
}

static struct fo_call begin(const struct fo_call *c, enum fo_op_kind kind)
{
	return (struct fo_call){ .kind = (uint8_t)kind, .attr = c->attr, .threads = c->threads, .mac = c->mac };
}

/* ---- attention by shape ---- */

struct fo_call fo_call_attention(enum fo_attention_form form, int64_t tokens, int64_t seq, int64_t heads,
				 int64_t kv_heads, int64_t head_dim, int dtype)
{
	static const uint8_t kind[] = { [FO_ATTENTION_FORWARD] = FO_OP_attention,
					[FO_ATTENTION_BACKWARD] = FO_OP_attention_bwd,
					[FO_ATTENTION_FORWARD_EAGER] = FO_OP_attention_eager,
					[FO_ATTENTION_BACKWARD_EAGER] = FO_OP_attention_eager_bwd };
	const struct fo_tensor q = numbers(dtype, tokens, heads * head_dim, NULL),
			       k = numbers(dtype, tokens, kv_heads * head_dim, NULL),
			       doc = numbers(FO_I32, tokens, 1, NULL), lse = numbers(FO_F32, tokens, heads, NULL),
			       prob = numbers(dtype, tokens, heads * seq, NULL);
	struct fo_call c = { .kind = kind[form],
			     .attr = { .head_dim = (int32_t)head_dim, .value = 1 / sqrt((double)head_dim) } };
	const struct fo_tensor *const operand[][10] = {
		[FO_ATTENTION_FORWARD] = { &q, &k, &k, &doc, &q, &lse },
		[FO_ATTENTION_BACKWARD] = { &q, &k, &k, &q, &lse, &q, &doc, &q, &k, &k },
		[FO_ATTENTION_FORWARD_EAGER] = { &q, &k, &k, &doc, &q, &prob },
		[FO_ATTENTION_BACKWARD_EAGER] = { &q, &k, &k, &prob, &q, &q, &k, &k },
	};
	for (int i = 0; i < fo_op_info(c.kind)->max_operands; i++)
		add(&c, *operand[form][i], false);
	return c;
}

/* ---- casts by the scale of the step ---- */

struct fo_call fo_call_fp8_cast(const struct fo_call *c, struct fo_tensor x)
{
	const int at = fo_op_fp8_step(c->kind), amax = at + FO_FP8_STEP_AMAX;
	struct fo_call one = begin(c, FO_OP_fp8_cast_step);
	add(&one, x, false);
	add(&one, c->arg[at + FO_FP8_STEP_SX], true);
	add(&one, c->arg[at + FO_FP8_STEP_Y], true);
	add(&one, c->arg[amax], fo_call_stores(c, amax));
	if (fo_call_has(c, at + FO_FP8_STEP_Z) && !fo_call_fp8_wide(c))
		add(&one, c->arg[at + FO_FP8_STEP_Z], true);
	return one;
}

bool fo_call_fp8_make(const struct fo_call *c, void *room, struct fo_call *make, struct fo_tensor *x)
{
	/* The operation whose result each of them casts. rmsnorm stores rstd after y, swiglu_bwd two gradients side by
	 * side. */
	static const uint8_t made_by[FO_OP_COUNT] = { [FO_OP_rmsnorm_fp8] = FO_OP_rmsnorm,
						      [FO_OP_add_rmsnorm_fp8] = FO_OP_add_rmsnorm,
						      [FO_OP_swiglu_fp8] = FO_OP_swiglu,
						      [FO_OP_swiglu_bwd_fp8] = FO_OP_swiglu_bwd };
	const int at = fo_op_fp8_step(c->kind);
	const bool norm = c->kind == FO_OP_rmsnorm_fp8 || c->kind == FO_OP_add_rmsnorm_fp8;
	const struct fo_tensor *q = &c->arg[at + FO_FP8_STEP_Y];
	if (c->kind == FO_OP_fp8_cast_step) {
		*x = c->arg[FO_FP8_CAST_STEP_X];
		return false;
	}
	*x = fo_call_fp8_wide(c) ? c->arg[at + FO_FP8_STEP_Z]
				 : numbers(c->arg[FO_FP8_CAST_STEP_X].dtype, q->rows, q->cols, room);
	*make = begin(c, made_by[c->kind]);
	for (int i = 0; i < at - norm; i++)
		add(make, c->arg[i], fo_call_stores(c, i));
	struct fo_tensor y = *x;
	if (c->kind == FO_OP_swiglu_bwd_fp8) {
		y.cols /= 2;
		add(make, y, true);
		y.data = (char *)y.data + (size_t)y.cols * fo_dtype_bytes(y.dtype);
	}
	add(make, y, true);
	if (norm)
		add(make, c->arg[at - 1], true);
	return true;
}
