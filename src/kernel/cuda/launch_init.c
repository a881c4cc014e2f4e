/* Weights of a new model, made on the device. */
#include "kernel/cuda/cuda_int.h"

enum { THREADS = 256 };

fo_status fo_cuda_init_weights(struct fo_cuda_queue *q, const struct fo_cuda_init *in)
{
	const struct fo_tensor *w = &in->weight, *m = &in->master;
	if (!fo_cuda_is_float(w) || (m->data && m->dtype != FO_F32 && m->dtype != FO_I16))
		return fo_fail(FO_EUNSUPPORTED, "the device does not make weights of type %s", fo_dtype_name[w->dtype]);
	const struct fo_cuda_init_weights_args args = { .weight = w->data,
							.master = m->data,
							.rows = w->rows,
							.cols = w->cols,
							.ld = w->ld,
							.first = in->first,
							.global_cols = in->global_cols,
							.stream = in->stream,
							.std = in->std,
							.weight_type = w->dtype,
							.master_type = m->dtype };
	struct fo_cuda_grid grid = { fo_cuda_blocks(q->cuda, w->rows * w->cols, THREADS), 1, 1, THREADS, 0 };
	return fo_cuda_launch(q, FO_CUDA_FN_init_weights, grid, &args);
}
