/* Which kernel runs which operation. */
#include "kernel/cuda/cuda_int.h"

#define ROW(id, kernel) [FO_OP_##id] = &fo_cuda_##kernel,
static const struct fo_cuda_kernel *const table[FO_OP_COUNT] = { FO_CUDA_OPERATIONS(ROW) };
#undef ROW

const struct fo_cuda_kernel *fo_cuda_kernel_of(enum fo_op_kind kind) { return table[kind]; }

const char *fo_cuda_cannot(const struct fo_cuda *c, const struct fo_call *shape)
{
	const struct fo_cuda_kernel *k = table[shape->kind];
	if (!k)
		return "there is no CUDA kernel for this operation";
	return k->cannot ? k->cannot(c, shape) : NULL;
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
