/* Launches of elementwise.cu. */
#include "kernel/cuda/cuda_int.h"

enum { THREADS = 256, WIDTH = 8 };

static const char *floats_only(const struct fo_cuda *c, const struct fo_call *s)
{
	(void)c;
	for (int i = 0; i < s->n; i++)
		if (s->arg[i].dtype != FO_F32 && s->arg[i].dtype != FO_BF16 && s->arg[i].dtype != FO_I32)
			return "operands are neither bf16 nor fp32";
	return NULL;
}

static fo_status add(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	(void)variant;
	const struct fo_tensor *t[] = { &c->arg[0], &c->arg[1], &c->arg[2] };
	const struct fo_cuda_add_args args = { fo_cuda_view_of(t[0]), fo_cuda_view_of(t[1]), fo_cuda_view_of(t[2]) };
	bool same = t[0]->dtype == t[2]->dtype && t[1]->dtype == t[2]->dtype, wide = same && fo_cuda_vector(t, 3) == WIDTH;
	enum fo_cuda_function f = !wide ? FO_CUDA_FN_add_any : t[2]->dtype == FO_BF16 ? FO_CUDA_FN_add_bf16 : FO_CUDA_FN_add_f32;
	struct fo_cuda_grid grid = { fo_cuda_blocks(q->cuda, t[2]->rows * t[2]->cols, wide ? THREADS * WIDTH : THREADS), 1, 1, THREADS, 0 };
	return fo_cuda_launch(q, f, grid, &args);
}
const struct fo_cuda_kernel fo_cuda_add = { .by = "flatout", .cannot = floats_only, .run = add };
