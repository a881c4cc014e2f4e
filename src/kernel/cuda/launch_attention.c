/* Attention's operations: cuDNN where it takes them (attention_dnn.c), else our own kernels (attention.cu). */
#include "kernel/cuda/cudnn.h"

enum {
	DIM_MOST = 256,   /* columns of a head: 8 per thread of a warp (kernels.h) */
	DIM_NARROW = 128, /* up to here 4 per thread */
	DECODE_ROWS = 8,  /* up to here a block for each query and head; above, tiles share the keys that they read */
};

/* Operands are bf16 or fp32, but for two that hold 32-bit indices. */
static const char *types_cannot(const struct fo_call *s, int index, int index_too)
{
	for (int i = 0; i < s->n; i++) {
		bool is_index = i == index || i == index_too;
		if (is_index ? s->arg[i].dtype != FO_I32 : !fo_cuda_is_float(&s->arg[i]))
			return "operands are neither bf16 nor fp32";
	}
	if (s->attr.head_dim > DIM_MOST)
		return "heads have more than 256 columns";
	if (s->arg[FO_ATTENTION_Q].rows > INT32_MAX / 2 || s->arg[FO_ATTENTION_K].rows > INT32_MAX / 2)
		return "there are more than 2^30 rows";
	return NULL;
}
static const char *forward_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	return types_cannot(s, FO_ATTENTION_DOC_START, FO_ATTENTION_DOC_START);
}
static const char *cached_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	return types_cannot(s, FO_ATTENTION_CACHED_SPAN, FO_ATTENTION_CACHED_SPAN);
}
static const char *backward_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	return types_cannot(s, FO_ATTENTION_BWD_DOC_START, FO_ATTENTION_BWD_ROPE_POSITION);
}

/* ---- our own kernels ---- */

static bool wide(const struct fo_call *s) { return s->attr.head_dim > DIM_NARROW; }

static struct fo_cuda_grid tiles(const struct fo_call *s, int64_t rows, int64_t heads)
{
	return (struct fo_cuda_grid){ (uint32_t)fo_ceil_div(rows, FO_CUDA_ATTENTION_ROWS), (uint32_t)heads, 1,
				      FO_CUDA_ATTENTION_THREADS, (uint32_t)FO_CUDA_ATTENTION_SHARED(s->attr.head_dim) };
}

/* The operands of attention and attention_cached come in the order of the arguments' views. */
static struct fo_cuda_attention_args forward_args(const struct fo_call *s)
{
	const struct fo_tensor *q = &s->arg[FO_ATTENTION_Q], *k = &s->arg[FO_ATTENTION_K];
	struct fo_cuda_attention_args args = { .scale = (float)s->attr.value,
					       .dim = s->attr.head_dim,
					       .heads = (int32_t)(q->cols / s->attr.head_dim),
					       .group = (int32_t)(q->cols / k->cols),
					       .window = s->attr.window };
	for (int i = 0; i < s->n; i++)
		(&args.q)[i] = fo_cuda_view_of(&s->arg[i]);
	return args;
}
static fo_status launch_tiles(struct fo_cuda_queue *q, const struct fo_call *s,
			      const struct fo_cuda_attention_args *args)
{
	return fo_cuda_launch(q, wide(s) ? FO_CUDA_FN_attention_8 : FO_CUDA_FN_attention_4,
			      tiles(s, args->q.rows, args->heads), args);
}
static fo_status own_forward(struct fo_cuda_queue *q, const struct fo_call *s)
{
	const struct fo_cuda_attention_args args = forward_args(s);
	return launch_tiles(q, s, &args);
}

static size_t own_backward_bytes(const struct fo_call *s)
{
	const struct fo_tensor *q = &s->arg[FO_ATTENTION_BWD_Q];
	return (size_t)(q->rows * (q->cols / s->attr.head_dim)) * sizeof(float);
}

static fo_status own_backward(struct fo_cuda_queue *q, const struct fo_call *s)
{
	const struct fo_tensor *k = &s->arg[FO_ATTENTION_BWD_K];
	const int32_t dim = s->attr.head_dim;
	struct fo_cuda_attention_bwd_args args = { .delta = q->ws,
						   .scale = (float)s->attr.value,
						   .dim = dim,
						   .heads = (int32_t)(s->arg[FO_ATTENTION_BWD_Q].cols / dim),
						   .group = (int32_t)(s->arg[FO_ATTENTION_BWD_Q].cols / k->cols),
						   .window = s->attr.window };
	for (int i = 0; i <= FO_ATTENTION_BWD_DV; i++) /* operands come in the order of the arguments' views */
		(&args.q)[i] = fo_cuda_view_of(&s->arg[i]);
	FO_TRY(fo_cuda_launch(q, wide(s) ? FO_CUDA_FN_attention_dq_8 : FO_CUDA_FN_attention_dq_4,
			      tiles(s, args.q.rows, args.heads), &args));
	FO_TRY(fo_cuda_launch(q, wide(s) ? FO_CUDA_FN_attention_dkv_8 : FO_CUDA_FN_attention_dkv_4,
			      tiles(s, k->rows, k->cols / dim), &args));
	return fo_cuda_is_turned(s) ? fo_cuda_attention_turn(q, s) : FO_OK;
}

/* ---- operations ---- */

static int64_t variant_of(const struct fo_call *s, const void *const *host)
{
	return fo_cuda_docs_variant(s, host ? host[fo_cuda_doc_of(s) - s->arg] : NULL);
}
static const char *by_of(const struct fo_cuda *c, const struct fo_call *s)
{
	/* A ragged plan stands for all: what takes such a one takes a fixed one too, and where (Ampere) it does not,
	 * the slower one is named. */
	return fo_cuda_dnn_may(c, s, fo_cuda_docs_variant(s, NULL)) && !fo_cuda_dnn_why(c, s) ? "cuDNN" : "flatout";
}

static fo_status forward_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	bool taken;
	*ws_bytes = 0;
	return fo_cuda_dnn_prepare(c, s, variant, ws_bytes, &taken);
}
static fo_status forward(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant)
{
	bool taken;
	FO_TRY(fo_cuda_dnn_run(q, s, variant, &taken));
	return taken ? FO_OK : own_forward(q, s);
}
static fo_status backward_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	const size_t own = own_backward_bytes(s);
	FO_TRY(forward_prepare(c, s, variant, ws_bytes));
	*ws_bytes = own > *ws_bytes ? own : *ws_bytes;
	return FO_OK;
}
static fo_status backward(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant)
{
	bool taken;
	FO_TRY(fo_cuda_dnn_run(q, s, variant, &taken));
	return taken ? FO_OK : own_backward(q, s);
}
static fo_status cached(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant)
{
	struct fo_cuda_attention_args args = forward_args(s);
	args.cached = 1;
	if (args.q.rows > DECODE_ROWS)
		return launch_tiles(q, s, &args);
	struct fo_cuda_grid grid = { (uint32_t)args.q.rows, (uint32_t)args.heads, 1, FO_CUDA_THREADS, 0 };
	return fo_cuda_launch(q, wide(s) ? FO_CUDA_FN_attention_decode_8 : FO_CUDA_FN_attention_decode_4, grid, &args);
}

static size_t forward_ws_most(const struct fo_cuda *c, const struct fo_call *s) { return fo_cuda_dnn_ws_most(s); }
static size_t backward_ws_most(const struct fo_cuda *c, const struct fo_call *s)
{
	size_t own = own_backward_bytes(s), dnn = fo_cuda_dnn_ws_most(s);
	return own > dnn ? own : dnn;
}

const struct fo_cuda_kernel fo_cuda_attention = {
	.by = "flatout",
	.by_of = by_of,
	.cannot = forward_cannot,
	.variant = variant_of,
	.merge = fo_cuda_docs_merge,
	.prepare = forward_prepare,
	.ws_most = forward_ws_most,
	.run = forward,
};
const struct fo_cuda_kernel fo_cuda_attention_bwd = {
	.by = "flatout",
	.by_of = by_of,
	.cannot = backward_cannot,
	.variant = variant_of,
	.merge = fo_cuda_docs_merge,
	.prepare = backward_prepare,
	.ws_most = backward_ws_most,
	.run = backward,
};
const struct fo_cuda_kernel fo_cuda_attention_cached = { .by = "flatout", .cannot = cached_cannot, .run = cached };
