/* Which kernel runs which operation. */
#include "kernel/cuda/cuda_int.h"

static const struct fo_cuda_kernel *const table[FO_OP_COUNT] = {
	[FO_OP_cache_put] = &fo_cuda_cache_put,
	[FO_OP_last_row] = &fo_cuda_last_row,
	[FO_OP_embed] = &fo_cuda_embed,
	[FO_OP_embed_bwd] = &fo_cuda_embed_bwd,
	[FO_OP_rmsnorm] = &fo_cuda_rmsnorm,
	[FO_OP_rmsnorm_dx] = &fo_cuda_rmsnorm_dx,
	[FO_OP_rmsnorm_dg] = &fo_cuda_rmsnorm_dg,
	[FO_OP_add_rmsnorm] = &fo_cuda_add_rmsnorm,
	[FO_OP_rmsnorm_bwd] = &fo_cuda_rmsnorm_bwd,
	[FO_OP_add_bias] = &fo_cuda_add_bias,
	[FO_OP_bias_grad] = &fo_cuda_bias_grad,
	[FO_OP_adamw] = &fo_cuda_adamw,
	[FO_OP_adamw_many] = &fo_cuda_adamw,
	[FO_OP_adamw_master_many] = &fo_cuda_adamw,
	[FO_OP_add] = &fo_cuda_add,
	[FO_OP_amax] = &fo_cuda_amax,
	[FO_OP_attention] = &fo_cuda_attention,
	[FO_OP_attention_bwd] = &fo_cuda_attention_bwd,
	[FO_OP_attention_cached] = &fo_cuda_attention_cached,
	[FO_OP_clip] = &fo_cuda_clip,
	[FO_OP_clip_ahead] = &fo_cuda_clip_ahead,
	[FO_OP_fp8_cast] = &fo_cuda_fp8_cast,
	[FO_OP_fp8_cast_t] = &fo_cuda_fp8_cast_t,
	[FO_OP_fp8_push] = &fo_cuda_fp8_push,
	[FO_OP_fp8_scale] = &fo_cuda_fp8_scale,
	[FO_OP_global_norm] = &fo_cuda_global_norm,
	[FO_OP_matmul] = &fo_cuda_matmul,
	[FO_OP_rope] = &fo_cuda_rope,
	[FO_OP_swiglu] = &fo_cuda_swiglu,
	[FO_OP_swiglu_bwd] = &fo_cuda_swiglu_bwd,
	[FO_OP_offload] = &fo_cuda_transfer,
	[FO_OP_fetch] = &fo_cuda_transfer,
	[FO_OP_sumsq] = &fo_cuda_sumsq,
	[FO_OP_sumsq_many] = &fo_cuda_sumsq,
	[FO_OP_xent] = &fo_cuda_xent,
	[FO_OP_xent_fwd] = &fo_cuda_xent_fwd,
};

const struct fo_cuda_kernel *fo_cuda_kernel_of(enum fo_op_kind kind) { return table[kind]; }

const char *fo_cuda_cannot(const struct fo_cuda *c, const struct fo_call *shape)
{
	const struct fo_cuda_kernel *k = table[shape->kind];
	return !k ? "there is no CUDA kernel for this operation" : k->cannot ? k->cannot(c, shape) : NULL;
}

size_t fo_cuda_ws_most(const struct fo_cuda_device *d, const struct fo_call *shape)
{
	const struct fo_cuda_kernel *k = table[shape->kind];
	struct fo_cuda like = { .info = *d };
	size_t bytes = 0;
	if (k && k->ws_most)
		return k->ws_most(&like, shape);
	if (k && k->prepare && k->prepare(&like, shape, 0, &bytes) != FO_OK)
		fo_err_clear(); /* such a call is refused when it is prepared */
	return bytes;
}

const char *fo_cuda_by(const struct fo_cuda *c, const struct fo_call *shape)
{
	const struct fo_cuda_kernel *k = table[shape->kind];
	return k->by_of ? k->by_of(c, shape) : k->by;
}
