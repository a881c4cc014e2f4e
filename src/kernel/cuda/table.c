/* Which kernel runs which operation. */
#include "kernel/cuda/cuda_int.h"

static const struct fo_cuda_kernel *const table[FO_OP_COUNT] = {
	[FO_OP_add] = &fo_cuda_add,
	[FO_OP_attention] = &fo_cuda_attention,
	[FO_OP_attention_bwd] = &fo_cuda_attention_bwd,
	[FO_OP_attention_cached] = &fo_cuda_attention_cached,
	[FO_OP_matmul] = &fo_cuda_matmul,
};

const struct fo_cuda_kernel *fo_cuda_kernel_of(enum fo_op_kind kind) { return table[kind]; }

const char *fo_cuda_cannot(const struct fo_cuda *c, const struct fo_call *shape)
{
	const struct fo_cuda_kernel *k = table[shape->kind];
	return !k ? "there is no CUDA kernel for this operation" : k->cannot ? k->cannot(c, shape) : NULL;
}

const char *fo_cuda_by(const struct fo_cuda *c, const struct fo_call *shape)
{
	const struct fo_cuda_kernel *k = table[shape->kind];
	return k->by_of ? k->by_of(c, shape) : k->by;
}
