/* Activations to host memory and back (pass offload): copies in stream order, which the copy engines do while kernels
 * run.
 *
 * The host's side must be page-locked; whole rows lie end to end on both sides (program/ops.c). The driver takes the
 * direction from the addresses: device and page-locked memory share one address space. */
#include "kernel/cuda/cuda_int.h"

static const char *cannot_transfer(const struct fo_cuda *c, const struct fo_call *s)
{
	for (int i = FO_OFFLOAD_X; i <= FO_OFFLOAD_Y; i++)
		if (s->arg[i].rows > 1 && s->arg[i].ld != s->arg[i].cols)
			return "rows do not lie end to end";
	return NULL;
}

static fo_status run_transfer(struct fo_cuda_queue *q, const struct fo_call *call, int64_t variant)
{
	const struct fo_tensor *x = &call->arg[FO_OFFLOAD_X], *y = &call->arg[FO_OFFLOAD_Y];
	return fo_cuda_copy(q->cuda, y->data, x->data, (size_t)(x->rows * x->cols) * fo_dtype_bytes(x->dtype),
			    q->stream);
}

const struct fo_cuda_kernel fo_cuda_transfer = { .by = "CUDA", .cannot = cannot_transfer, .run = run_transfer };
