/* Attention's operations: cuDNN where it takes them (attention_dnn.c), else our own kernels (attention.cu). */
#include "kernel/cuda/cudnn.h"
#include "program/ring.h"

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
					       .window = s->attr.window,
					       .ring = fo_ring_of(&s->attr) };
	for (int i = 0; i < s->n; i++)
		(&args.q)[i] = fo_cuda_view_of(&s->arg[i]);
	return args;
}
static fo_status launch_tiles(struct fo_cuda_queue *q, const struct fo_call *s,
			      const struct fo_cuda_attention_args *args)
{
	static const enum fo_cuda_function f[2][2] = {
		{ FO_CUDA_FN_attention_4, FO_CUDA_FN_attention_8 },
		{ FO_CUDA_FN_attention_block_4, FO_CUDA_FN_attention_block_8 },
	};
	return fo_cuda_launch(q, f[s->attr.cp != 0][wide(s)], tiles(s, args->q.rows, args->heads), args);
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
						   .window = s->attr.window,
						   .add = !fo_call_stores(s, FO_ATTENTION_BWD_DQ),
						   .ring = fo_ring_of(&s->attr) };
	static const enum fo_cuda_function dq[2][2] = {
		{ FO_CUDA_FN_attention_dq_4, FO_CUDA_FN_attention_dq_8 },
		{ FO_CUDA_FN_attention_block_dq_4, FO_CUDA_FN_attention_block_dq_8 },
	}, dkv[2][2] = {
		{ FO_CUDA_FN_attention_dkv_4, FO_CUDA_FN_attention_dkv_8 },
		{ FO_CUDA_FN_attention_block_dkv_4, FO_CUDA_FN_attention_block_dkv_8 },
	};
	const bool ring = s->attr.cp != 0;
	for (int i = 0; i <= FO_ATTENTION_BWD_DV; i++) /* operands come in the order of the arguments' views */
		(&args.q)[i] = fo_cuda_view_of(&s->arg[i]);
	FO_TRY(fo_cuda_launch(q, dq[ring][wide(s)], tiles(s, args.q.rows, args.heads), &args));
	FO_TRY(fo_cuda_launch(q, dkv[ring][wide(s)], tiles(s, k->rows, k->cols / dim), &args));
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

/* ---- blocks of a ring: our own kernels alone ---- */

/* Kernels count tokens of whole rows in 32 bits (fo_ring_int). */
static const char *ring_cannot(const struct fo_call *s)
{
	return s->arg[FO_ATTENTION_Q].rows > INT32_MAX / s->attr.cp ? "rows of the ring have more than 2^31 tokens"
								    : NULL;
}
static const char *block_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	const char *why = forward_cannot(c, s);
	return why ? why : ring_cannot(s);
}
static const char *block_bwd_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	const char *why = backward_cannot(c, s);
	return why ? why : ring_cannot(s);
}

static fo_status block(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant) { return own_forward(q, s); }
static fo_status block_bwd_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	*ws_bytes = own_backward_bytes(s);
	return FO_OK;
}
static fo_status block_bwd(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant)
{
	return own_backward(q, s);
}
static fo_status merge(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant)
{
	static const int8_t operand[] = { FO_ATTENTION_MERGE_OB, FO_ATTENTION_MERGE_LSEB, FO_ATTENTION_MERGE_O,
					  FO_ATTENTION_MERGE_LSE };
	const struct fo_tensor *o = &s->arg[FO_ATTENTION_MERGE_O];
	const int32_t dim = s->attr.head_dim;
	struct fo_cuda_attention_merge_args args = { .dim = dim, .heads = (int32_t)(o->cols / dim) };
	fo_cuda_views(&args.ob, s, operand, sizeof operand);
	return fo_cuda_launch_each(q, FO_CUDA_FN_attention_merge, o->rows * args.heads * 32, &args);
}

const struct fo_cuda_kernel fo_cuda_attention_block = { .by = "flatout", .cannot = block_cannot, .run = block };
const struct fo_cuda_kernel fo_cuda_attention_block_bwd = {
	.by = "flatout",
	.cannot = block_bwd_cannot,
	.prepare = block_bwd_prepare,
	.run = block_bwd,
};
const struct fo_cuda_kernel fo_cuda_attention_merge = { .by = "flatout", .cannot = fo_cuda_floats_only, .run = merge };

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
