/* The reference set: its table, and the choice of the arithmetic by the dtype of the operand that carries the numbers.
 */
#include "kernel/ref/ref.h"

#include <string.h>

#define RUN(id, data)                                 \
	static void run_##id(const struct fo_call *c) \
	{                                             \
		if (c->arg[data].dtype == FO_F64)     \
			fo_ref_f64_##id(c);           \
		else                                  \
			fo_ref_f32_##id(c);           \
	}
#define WS(id)                                                                                        \
	static size_t ws_##id(const struct fo_call *c)                                                \
	{                                                                                             \
		return c->arg[0].dtype == FO_F64 ? fo_ref_f64_##id##_ws(c) : fo_ref_f32_##id##_ws(c); \
	}

RUN(matmul, 0)
RUN(attention, 0)
RUN(attention_bwd, 0)
RUN(attention_eager, 0)
RUN(attention_eager_bwd, 0)
RUN(attention_cached, 0)
RUN(cache_put, 0)
RUN(last_row, 0)
RUN(embed, 1)
RUN(embed_bwd, 1)
RUN(rmsnorm, 0)
RUN(rmsnorm_dx, 0)
RUN(rmsnorm_dg, 0)
RUN(add_rmsnorm, 0)
RUN(rmsnorm_bwd, 0)
RUN(add_bias, 0)
RUN(bias_grad, 0)
RUN(add, 0)
RUN(rope, 0)
RUN(swiglu, 0)
RUN(swiglu_bwd, 0)
RUN(xent, 0)
RUN(xent_fwd, 0)
RUN(sumsq, 0)
RUN(adamw, 0)
RUN(amax, 0)
RUN(fp8_scale, 0)
RUN(fp8_cast, 0)
RUN(fp8_cast_t, 0)
RUN(fp8_begin, 0)
RUN(fp8_push, 0)
WS(matmul)
WS(attention)
WS(attention_bwd)
WS(attention_eager)
WS(attention_eager_bwd)
WS(attention_cached)
WS(xent)
WS(sumsq)

/* One after the other: the bits are those of the two operations. */
static void run_attention_bwd_rope(const struct fo_call *c)
{
	enum { DQ = 7, DK, DV, POSITION, TABLE };
	run_attention_bwd(c);
	for (int i = DQ; i <= DK; i++) {
		struct fo_call turn = { .kind = FO_OP_rope, .n = 3, .attr = c->attr, .threads = c->threads };
		turn.arg[0] = c->arg[i];
		turn.arg[1] = c->arg[POSITION];
		turn.arg[2] = c->arg[TABLE];
		run_rope(&turn);
	}
}

/* Many tensors: one after the other. */
static void run_each(const struct fo_call *c)
{
	for (int k = 0; k < fo_op_tensors(c->kind, c->n); k++) {
		const struct fo_call one = fo_call_one(c, k);
		fo_kernels_ref.kernel[one.kind].run(&one);
	}
}
static size_t ws_sumsq_many(const struct fo_call *c)
{
	size_t most = 0;
	for (int k = 0; k < fo_op_tensors(c->kind, c->n); k++) {
		const struct fo_call one = fo_call_one(c, k);
		size_t ws = ws_sumsq(&one);
		most = ws > most ? ws : most;
	}
	return most;
}

static void run_fp8_step(const struct fo_call *c) { fo_kernel_fp8_step(c, FO_ISA_REF); }
static size_t ws_fp8_step(const struct fo_call *c) { return fo_kernel_fp8_step_ws(c, FO_ISA_REF); }

/* Whole rows, end to end on both sides (ops.c). */
static void run_transfer(const struct fo_call *c)
{
	const struct fo_tensor *x = &c->arg[0], *y = &c->arg[1];
	memcpy(y->data, x->data, (size_t)(x->rows * x->cols) * fo_dtype_bytes(x->dtype));
}

/* HOST operations are ports of the training loop: their rows stay NULL. */
static const struct fo_kernel table[FO_OP_COUNT] = {
	[FO_OP_matmul] = { .run = run_matmul, .ws = ws_matmul },
	[FO_OP_attention] = { .run = run_attention, .ws = ws_attention },
	[FO_OP_attention_bwd] = { .run = run_attention_bwd, .ws = ws_attention_bwd },
	[FO_OP_attention_bwd_rope] = { .run = run_attention_bwd_rope, .ws = ws_attention_bwd },
	[FO_OP_attention_eager] = { .run = run_attention_eager, .ws = ws_attention_eager },
	[FO_OP_attention_eager_bwd] = { .run = run_attention_eager_bwd, .ws = ws_attention_eager_bwd },
	[FO_OP_attention_cached] = { .run = run_attention_cached, .ws = ws_attention_cached },
	[FO_OP_cache_put] = { .run = run_cache_put },
	[FO_OP_last_row] = { .run = run_last_row },
	[FO_OP_embed] = { .run = run_embed },
	[FO_OP_embed_bwd] = { .run = run_embed_bwd },
	[FO_OP_rmsnorm] = { .run = run_rmsnorm },
	[FO_OP_rmsnorm_dx] = { .run = run_rmsnorm_dx },
	[FO_OP_rmsnorm_dg] = { .run = run_rmsnorm_dg },
	[FO_OP_add_rmsnorm] = { .run = run_add_rmsnorm },
	[FO_OP_rmsnorm_bwd] = { .run = run_rmsnorm_bwd },
	[FO_OP_add_bias] = { .run = run_add_bias },
	[FO_OP_bias_grad] = { .run = run_bias_grad },
	[FO_OP_add] = { .run = run_add },
	[FO_OP_rope] = { .run = run_rope },
	[FO_OP_swiglu] = { .run = run_swiglu },
	[FO_OP_swiglu_bwd] = { .run = run_swiglu_bwd },
	[FO_OP_xent] = { .run = run_xent, .ws = ws_xent },
	[FO_OP_xent_fwd] = { .run = run_xent_fwd, .ws = ws_xent },
	[FO_OP_sumsq] = { .run = run_sumsq, .ws = ws_sumsq },
	[FO_OP_clip] = { .run = fo_ref_f64_clip },
	[FO_OP_clip_ahead] = { .run = fo_ref_f64_clip_ahead },
	[FO_OP_global_norm] = { .run = fo_ref_f64_global_norm },
	[FO_OP_adamw] = { .run = run_adamw },
	[FO_OP_sumsq_many] = { .run = run_each, .ws = ws_sumsq_many },
	[FO_OP_adamw_many] = { .run = run_each },
	[FO_OP_adamw_master_many] = { .run = run_each },
	[FO_OP_amax] = { .run = run_amax },
	[FO_OP_fp8_scale] = { .run = run_fp8_scale },
	[FO_OP_fp8_cast] = { .run = run_fp8_cast },
	[FO_OP_fp8_cast_t] = { .run = run_fp8_cast_t },
	[FO_OP_fp8_begin] = { .run = run_fp8_begin },
	[FO_OP_fp8_begin_many] = { .run = run_each },
	[FO_OP_fp8_cast_step] = { .run = run_fp8_step, .ws = ws_fp8_step },
	[FO_OP_rmsnorm_fp8] = { .run = run_fp8_step, .ws = ws_fp8_step },
	[FO_OP_add_rmsnorm_fp8] = { .run = run_fp8_step, .ws = ws_fp8_step },
	[FO_OP_swiglu_fp8] = { .run = run_fp8_step, .ws = ws_fp8_step },
	[FO_OP_swiglu_bwd_fp8] = { .run = run_fp8_step, .ws = ws_fp8_step },
	[FO_OP_fp8_push] = { .run = run_fp8_push },
	[FO_OP_offload] = { .run = run_transfer },
	[FO_OP_fetch] = { .run = run_transfer },
};

static bool have(void) { return true; }

static double peak_burst(int dtype, int64_t n)
{
	return dtype == FO_F64 ? fo_ref_f64_peak_burst(n) : fo_ref_f32_peak_burst(n);
}

const struct fo_kernel_set fo_kernels_ref = { "ref", FO_ISA_REF, have, NULL, table, peak_burst };
