/* Attention's operations: cuDNN where it takes them (attention_dnn.c), else our own kernels (attention.cu). */
#include "kernel/cuda/cudnn.h"

enum {
	DIM_MOST = 256,   /* columns of a head: 8 per thread of a warp (kernels_attention.h) */
	DIM_NARROW = 128, /* ... 4 */
	DECODE_ROWS = 8,  /* up to here a block for each query and head; above, tiles share the keys that they read */
};

/* Which operand is what; -1: the operation has none. */
struct places {
	int8_t q, k, v, o, lse, dout, doc, dq, dk, dv, position;
};
static struct places places_of(const struct fo_call *c)
{
	switch (c->kind) {
	case FO_OP_attention: return (struct places){ 0, 1, 2, 4, 5, -1, 3, -1, -1, -1, -1 };
	case FO_OP_attention_cached: return (struct places){ 0, 1, 2, 4, -1, -1, 3, -1, -1, -1, -1 };
	default: return (struct places){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
	}
}

static const char *cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	const struct places at = places_of(s);
	(void)c;
	for (int i = 0; i < s->n; i++)
		if (i == at.doc || i == at.position ? s->arg[i].dtype != FO_I32 : !fo_cuda_is_float(&s->arg[i]))
			return "operands are neither bf16 nor fp32";
	if (s->attr.head_dim > DIM_MOST)
		return "heads have more than 256 columns";
	if (s->arg[0].rows > INT32_MAX / 2 || s->arg[1].rows > INT32_MAX / 2)
		return "there are more than 2^30 rows";
	return NULL;
}

/* ---- our own kernels ---- */

static bool wide(const struct fo_call *s) { return s->attr.head_dim > DIM_NARROW; }

static struct fo_cuda_grid tiles(const struct fo_call *s, int64_t rows, int64_t heads)
{
	return (struct fo_cuda_grid){ (uint32_t)((rows + FO_CUDA_ATTENTION_ROWS - 1) / FO_CUDA_ATTENTION_ROWS),
				      (uint32_t)heads, 1, FO_CUDA_ATTENTION_THREADS,
				      (uint32_t)FO_CUDA_ATTENTION_SHARED(s->attr.head_dim) };
}

static fo_status own_forward(struct fo_cuda_queue *q, const struct fo_call *s)
{
	const struct places at = places_of(s);
	const struct fo_tensor *a = s->arg;
	const bool cached = s->kind == FO_OP_attention_cached;
	const int32_t dim = s->attr.head_dim;
	struct fo_cuda_attention_args args = {
		.q = fo_cuda_view_of(&a[at.q]),
		.k = fo_cuda_view_of(&a[at.k]),
		.v = fo_cuda_view_of(&a[at.v]),
		.o = fo_cuda_view_of(&a[at.o]),
		.doc = fo_cuda_view_of(&a[at.doc]),
		.scale = (float)s->attr.value,
		.dim = dim,
		.heads = (int32_t)(a[at.q].cols / dim),
		.group = (int32_t)(a[at.q].cols / a[at.k].cols),
		.window = s->attr.window,
		.cached = cached,
	};
	if (!cached)
		args.lse = fo_cuda_view_of(&a[at.lse]);
	if (cached && a[at.q].rows <= DECODE_ROWS) {
		struct fo_cuda_grid grid = { (uint32_t)a[at.q].rows, (uint32_t)args.heads, 1, FO_CUDA_DECODE_THREADS,
					     0 };
		return fo_cuda_launch(q, wide(s) ? FO_CUDA_FN_attention_decode_8 : FO_CUDA_FN_attention_decode_4, grid,
				      &args);
	}
	return fo_cuda_launch(q, wide(s) ? FO_CUDA_FN_attention_8 : FO_CUDA_FN_attention_4,
			      tiles(s, a[at.q].rows, args.heads), &args);
}

static size_t own_backward_bytes(const struct fo_call *s)
{
	return (size_t)(s->arg[0].rows * (s->arg[0].cols / s->attr.head_dim)) * sizeof(float);
}
/* What a rotation of operand i would be. */
static struct fo_call turning(const struct fo_call *s, int i)
{
	struct fo_call c = { .kind = FO_OP_rope, .n = 3, .attr = s->attr };
	c.arg[0] = s->arg[i];
	c.arg[1] = s->arg[10];
	c.arg[2] = s->arg[11];
	return c;
}
fo_status fo_cuda_attention_turn(struct fo_cuda_queue *q, const struct fo_call *s)
{
	const struct places at = places_of(s);
	const struct fo_call dq = turning(s, at.dq), dk = turning(s, at.dk);
	FO_TRY(fo_cuda_rope.run(q, &dq, 0));
	return fo_cuda_rope.run(q, &dk, 0);
}

static fo_status own_backward(struct fo_cuda_queue *q, const struct fo_call *s)
{
	const struct places at = places_of(s);
	const struct fo_tensor *a = s->arg;
	const int32_t dim = s->attr.head_dim;
	const struct fo_cuda_attention_bwd_args args = {
		.q = fo_cuda_view_of(&a[at.q]),
		.k = fo_cuda_view_of(&a[at.k]),
		.v = fo_cuda_view_of(&a[at.v]),
		.o = fo_cuda_view_of(&a[at.o]),
		.lse = fo_cuda_view_of(&a[at.lse]),
		.dout = fo_cuda_view_of(&a[at.dout]),
		.doc = fo_cuda_view_of(&a[at.doc]),
		.dq = fo_cuda_view_of(&a[at.dq]),
		.dk = fo_cuda_view_of(&a[at.dk]),
		.dv = fo_cuda_view_of(&a[at.dv]),
		.delta = q->ws,
		.scale = (float)s->attr.value,
		.dim = dim,
		.heads = (int32_t)(a[at.q].cols / dim),
		.group = (int32_t)(a[at.q].cols / a[at.k].cols),
		.window = s->attr.window,
	};
	FO_TRY(fo_cuda_launch(q, wide(s) ? FO_CUDA_FN_attention_dq_8 : FO_CUDA_FN_attention_dq_4,
			      tiles(s, a[at.q].rows, args.heads), &args));
	FO_TRY(fo_cuda_launch(q, wide(s) ? FO_CUDA_FN_attention_dkv_8 : FO_CUDA_FN_attention_dkv_4,
			      tiles(s, a[at.k].rows, a[at.k].cols / dim), &args));
	return s->kind == FO_OP_attention_bwd_rope ? fo_cuda_attention_turn(q, s) : FO_OK;
}

/* ---- operations ---- */

static int64_t variant(const struct fo_call *s, const void *const *host)
{
	const int doc = places_of(s).doc;
	return fo_cuda_docs_variant(s, host ? host[doc] : NULL);
}
static const char *by_of(const struct fo_cuda *c, const struct fo_call *s)
{
	/* A ragged plan stands for all: what takes such a one takes a fixed one too, and where (Ampere) it does not,
	 * say the slower. */
	return fo_cuda_dnn_may(c, s, fo_cuda_docs_variant(s, NULL)) && !fo_cuda_dnn_why(c, s) ? "cuDNN" : "flatout";
}

static fo_status forward_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	bool taken;
	*ws_bytes = 0;
	return s->kind == FO_OP_attention ? fo_cuda_dnn_prepare(c, s, variant, ws_bytes, &taken) : FO_OK;
}
static fo_status forward(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant)
{
	bool taken = false;
	if (s->kind == FO_OP_attention)
		FO_TRY(fo_cuda_dnn_run(q, s, variant, &taken));
	return taken ? FO_OK : own_forward(q, s);
}
static fo_status backward_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	const size_t own = own_backward_bytes(s);
	bool taken;
	*ws_bytes = 0;
	FO_TRY(fo_cuda_dnn_prepare(c, s, variant, ws_bytes, &taken));
	*ws_bytes = own > *ws_bytes ? own : *ws_bytes;
	return FO_OK;
}
static fo_status backward(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant)
{
	bool taken;
	FO_TRY(fo_cuda_dnn_run(q, s, variant, &taken));
	return taken ? FO_OK : own_backward(q, s);
}

static size_t ws_most(const struct fo_cuda *c, const struct fo_call *s)
{
	(void)c;
	const bool backward = s->kind == FO_OP_attention_bwd || s->kind == FO_OP_attention_bwd_rope;
	size_t own = backward ? own_backward_bytes(s) : 0,
	       dnn = s->kind != FO_OP_attention_cached ? fo_cuda_dnn_ws_most(s) : 0;
	return own > dnn ? own : dnn;
}

const struct fo_cuda_kernel fo_cuda_attention = {
	.by = "flatout",
	.by_of = by_of,
	.cannot = cannot,
	.variant = variant,
	.merge = fo_cuda_docs_merge,
	.prepare = forward_prepare,
	.ws_most = ws_most,
	.run = forward,
};
const struct fo_cuda_kernel fo_cuda_attention_bwd = {
	.by = "flatout",
	.by_of = by_of,
	.cannot = cannot,
	.variant = variant,
	.merge = fo_cuda_docs_merge,
	.prepare = backward_prepare,
	.ws_most = ws_most,
	.run = backward,
};
const struct fo_cuda_kernel fo_cuda_attention_cached = {
	.by = "flatout", .cannot = cannot, .prepare = forward_prepare, .ws_most = ws_most, .run = forward
};
