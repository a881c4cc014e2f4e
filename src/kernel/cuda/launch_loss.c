/* Launches of loss.cu. */
#include "kernel/cuda/cuda_int.h"

enum { WIDTH = 8, AT_ONCE = 4 /* accesses of a thread, loss.cu */, THREADS_LEAST = 128, THREADS_MOST = 1024 };

static const char *cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	const struct fo_tensor *logits = &s->arg[FO_XENT_LOGITS];
	if (!fo_cuda_is_float(logits))
		return "logits are neither bf16 nor fp32";
	return logits->cols < INT32_MAX ? NULL : "a row has 2^31 logits or more";
}

/* A loss of each row. */
static fo_status prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	*ws_bytes = (size_t)s->arg[FO_XENT_LOGITS].rows * sizeof(double);
	return FO_OK;
}

/* The most threads that a row keeps busy with a full turn of accesses each. */
static uint32_t threads_for(int64_t cols)
{
	uint32_t threads = THREADS_LEAST;
	while (threads < THREADS_MOST && (int64_t)threads * WIDTH * AT_ONCE < cols)
		threads *= 2;
	return threads;
}

/* Rows in flight fill half of L2; the other half is for what the multiprocessors write meanwhile. Each multiprocessor
 * has at least one block and at most 1024 threads. */
static uint32_t blocks_for(const struct fo_cuda *c, const struct fo_tensor *logits, uint32_t threads)
{
	int64_t row_bytes = logits->cols * (int64_t)fo_dtype_bytes(logits->dtype), processors = c->info.multiprocessors;
	int64_t each = fo_max(fo_min(c->info.l2_bytes / 2 / (processors * row_bytes), THREADS_MOST / threads), 1);
	return (uint32_t)fo_min(logits->rows, processors * each);
}

static fo_status xent(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	static const enum fo_cuda_function functions[2][2][2] = {
		{ { FO_CUDA_FN_xent_fwd_any_f32, FO_CUDA_FN_xent_fwd_any_bf16 },
		  { FO_CUDA_FN_xent_fwd_f32, FO_CUDA_FN_xent_fwd_bf16 } },
		{ { FO_CUDA_FN_xent_any_f32, FO_CUDA_FN_xent_any_bf16 },
		  { FO_CUDA_FN_xent_f32, FO_CUDA_FN_xent_bf16 } },
	};
	const struct fo_tensor *logits = &c->arg[FO_XENT_LOGITS], *target = &c->arg[FO_XENT_TARGET];
	const bool gradient = fo_call_has(c, FO_XENT_LOSS); /* xent_fwd has no hyper */
	const int loss = gradient ? FO_XENT_LOSS : FO_XENT_FWD_LOSS;
	const double *inv_tokens = gradient ? (const double *)c->arg[FO_XENT_HYPER].data + FO_HYPER_INV_TOKENS : NULL;
	const struct fo_cuda_xent_args rows = { fo_cuda_view_of(logits), target->data, target->ld, inv_tokens, q->ws };
	const struct fo_cuda_loss_sum_args sum = { .row_loss = q->ws,
						   .target = target->data,
						   .target_ld = target->ld,
						   .rows = logits->rows,
						   .inv_tokens = inv_tokens,
						   .loss = c->arg[loss].data,
						   .stored = fo_call_stores(c, loss) };
	struct fo_cuda_grid grid = { 1, 1, 1, threads_for(logits->cols), 0 },
			    one = { 1, 1, 1, threads_for(logits->rows * WIDTH), 0 };
	grid.x = blocks_for(q->cuda, logits, grid.threads);
	const bool wide = fo_cuda_in_eights(&rows.logits, 1);
	FO_TRY(fo_cuda_launch(q, functions[gradient][wide][logits->dtype == FO_BF16], grid, &rows));
	return fo_cuda_launch(q, FO_CUDA_FN_loss_sum, one, &sum);
}

const struct fo_cuda_kernel fo_cuda_xent = { .by = "flatout", .cannot = cannot, .prepare = prepare, .run = xent };
