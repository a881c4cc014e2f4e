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

/* ---- where ranks divide the vocabulary ---- */

/* Operands of one of these operations, -1 where it has none, and its kernels: by eights, bf16. */
struct part {
	int8_t target, max, sums, hyper;
	enum fo_cuda_function function[2][2];
};
#define PART_FUNCTIONS(name)                                                   \
	{                                                                      \
		{ FO_CUDA_FN_##name##_any_f32, FO_CUDA_FN_##name##_any_bf16 }, \
		{                                                              \
			FO_CUDA_FN_##name##_f32, FO_CUDA_FN_##name##_bf16      \
		}                                                              \
	}

static fo_status run_part(struct fo_cuda_queue *q, const struct fo_call *c, const struct part *k)
{
	const struct fo_tensor *logits = &c->arg[FO_XENT_LOGITS], *max = &c->arg[k->max];
	struct fo_cuda_xent_part_args args = {
		.logits = fo_cuda_view_of(logits), .first = c->attr.element, .max = max->data, .max_ld = max->ld
	};
	struct fo_cuda_grid grid = { 1, 1, 1, threads_for(logits->cols), 0 };
	if (k->sums >= 0) {
		args.target = c->arg[k->target].data;
		args.target_ld = c->arg[k->target].ld;
		args.sums = c->arg[k->sums].data;
		args.sums_ld = c->arg[k->sums].ld;
	}
	if (k->hyper >= 0)
		args.inv_tokens = (const double *)c->arg[k->hyper].data + FO_HYPER_INV_TOKENS;
	grid.x = blocks_for(q->cuda, logits, grid.threads);
	return fo_cuda_launch(q, k->function[fo_cuda_in_eights(&args.logits, 1)][logits->dtype == FO_BF16], grid,
			      &args);
}

static fo_status xent_max(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	static const struct part k = { -1, FO_XENT_MAX_MAX, -1, -1, PART_FUNCTIONS(xent_max) };
	return run_part(q, c, &k);
}
static fo_status xent_sums(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	static const struct part k = { FO_XENT_SUMS_TARGET, FO_XENT_SUMS_MAX, FO_XENT_SUMS_SUMS, -1,
				       PART_FUNCTIONS(xent_sums) };
	return run_part(q, c, &k);
}
static fo_status xent_grad(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	static const struct part k = { FO_XENT_GRAD_TARGET, FO_XENT_GRAD_MAX, FO_XENT_GRAD_SUMS, FO_XENT_GRAD_HYPER,
				       PART_FUNCTIONS(xent_grad) };
	return run_part(q, c, &k);
}
const struct fo_cuda_kernel fo_cuda_xent_max = { .by = "flatout", .cannot = cannot, .run = xent_max };
const struct fo_cuda_kernel fo_cuda_xent_sums = { .by = "flatout", .cannot = cannot, .run = xent_sums };
const struct fo_cuda_kernel fo_cuda_xent_grad = { .by = "flatout", .cannot = cannot, .run = xent_grad };

static const char *loss_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	return s->arg[FO_XENT_LOSS_SUMS].dtype == FO_F32 ? NULL : "sums are not fp32";
}

static fo_status loss_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	*ws_bytes = (size_t)s->arg[FO_XENT_LOSS_SUMS].rows * sizeof(double);
	return FO_OK;
}

static fo_status loss(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct fo_tensor *sums = &c->arg[FO_XENT_LOSS_SUMS], *target = &c->arg[FO_XENT_LOSS_TARGET];
	const struct fo_cuda_xent_loss_args rows = {
		sums->data, sums->ld, target->data, target->ld, sums->rows, q->ws
	};
	const struct fo_cuda_loss_sum_args sum = {
		.row_loss = q->ws,
		.target = target->data,
		.target_ld = target->ld,
		.rows = sums->rows,
		.inv_tokens = fo_call_has(c, FO_XENT_LOSS_HYPER)
				      ? (const double *)c->arg[FO_XENT_LOSS_HYPER].data + FO_HYPER_INV_TOKENS
				      : NULL,
		.loss = c->arg[FO_XENT_LOSS_LOSS].data,
		.stored = fo_call_stores(c, FO_XENT_LOSS_LOSS)
	};
	const struct fo_cuda_grid one = { 1, 1, 1, threads_for(sums->rows * WIDTH), 0 };
	FO_TRY(fo_cuda_launch_each(q, FO_CUDA_FN_xent_row_loss, sums->rows, &rows));
	return fo_cuda_launch(q, FO_CUDA_FN_loss_sum, one, &sum);
}

const struct fo_cuda_kernel fo_cuda_xent_loss = {
	.by = "flatout", .cannot = loss_cannot, .prepare = loss_prepare, .run = loss
};
