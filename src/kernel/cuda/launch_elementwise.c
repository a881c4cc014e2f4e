/* Launches of elementwise.cu. */
#include "kernel/cuda/cuda_int.h"

#include <limits.h>

enum { THREADS = FO_CUDA_THREADS, WIDTH = 8, ACCESS_BYTES = 16 };

/* ---- maps ---- */

/* An operation that is a map: its kernels for bf16, fp32 and any types and layouts; its operands are the `ins` that it
 * reads, then what it makes, from number `out` on. */
static const struct map {
	enum fo_op_kind kind;
	enum fo_cuda_function bf16, f32, any;
	int8_t share, ins, out, outs;
} maps[] = {
#define MAP(name) FO_OP_##name, FO_CUDA_FN_##name##_bf16, FO_CUDA_FN_##name##_f32, FO_CUDA_FN_##name##_any
	{ MAP(add), FO_CUDA_MAP_SHARE, 2, FO_ADD_C, 1 },
	{ MAP(add_bias), FO_CUDA_MAP_SHARE_BIAS, 2, FO_ADD_BIAS_Y, 1 },
	{ MAP(swiglu), FO_CUDA_MAP_SHARE, 2, FO_SWIGLU_Y, 1 },
	{ MAP(swiglu_bwd), FO_CUDA_MAP_SHARE, 3, FO_SWIGLU_BWD_DGATE, 2 },
#undef MAP
};

static fo_status map(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct map *m = maps;
	const struct fo_tensor *like = &c->arg[0];
	struct fo_cuda_map_args args = { .groups.n = 0 };
	while (m->kind != c->kind)
		m++;
	for (int i = 0; i < m->ins; i++)
		args.in[i] = fo_cuda_view_of(&c->arg[i]);
	for (int i = 0; i < m->outs; i++)
		args.out[i] = fo_cuda_view_of(&c->arg[m->out + i]);
	const int64_t per_row = like->cols / WIDTH, groups = like->rows * per_row;
	const bool fast = groups <= INT_MAX && fo_cuda_of_one_type(args.in, FO_CUDA_MAP_IN + FO_CUDA_MAP_OUT) &&
			  fo_cuda_in_eights(args.in, FO_CUDA_MAP_IN + FO_CUDA_MAP_OUT);
	if (m->kind == FO_OP_add_bias)
		args.in[FO_ADD_BIAS_B].ld = 0; /* one row for all */
	if (like->dtype == FO_F64)
		return fo_cuda_launch_each(q, FO_CUDA_FN_add_f64, like->rows * like->cols, &args);
	if (!fast)
		return fo_cuda_launch_each(q, m->any, like->rows * like->cols, &args);
	args.groups = (struct fo_cuda_groups){ (uint32_t)groups, fo_cuda_divisor_of((uint32_t)per_row) };
	return fo_cuda_launch_blocks(q, like->dtype == FO_BF16 ? m->bf16 : m->f32,
				     fo_ceil_div(groups, THREADS * m->share), &args);
}
static const char *map_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	bool doubles = s->kind == FO_OP_add;
	for (int i = 0; i < s->n; i++)
		doubles &= s->arg[i].dtype == FO_F64;
	return doubles ? NULL : fo_cuda_floats_only(c, s);
}
const struct fo_cuda_kernel fo_cuda_map = { .by = "flatout", .cannot = map_cannot, .run = map };

fo_status fo_cuda_add(struct fo_cuda_queue *q, const struct fo_tensor *to, const struct fo_tensor *from)
{
	struct fo_call c = { .kind = FO_OP_add, .n = 3 };
	c.arg[FO_ADD_A] = c.arg[FO_ADD_C] = *to;
	c.arg[FO_ADD_B] = *from;
	const char *why = fo_cuda_floats_only(q->cuda, &c);
	return why ? fo_fail(FO_EUNSUPPORTED, "the device does not add them: %s", why) : map(q, &c, 0);
}

/* ---- rotations ---- */

static const char *rope_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	if (s->arg[FO_ROPE_POSITION].dtype != FO_I32)
		return "positions are not 32-bit integers";
	return s->arg[FO_ROPE_X].cols > INT_MAX ? "a row has more than 2^31 columns" : fo_cuda_floats_only(c, s);
}
static fo_status rope(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct fo_tensor *x = &c->arg[FO_ROPE_X], *table = &c->arg[FO_ROPE_TABLE];
	const int64_t half = c->attr.head_dim / 2, heads = x->cols / c->attr.head_dim;
	const int64_t slabs = fo_ceil_div(heads, FO_CUDA_ROPE_HEADS), items = x->rows * slabs * (half / WIDTH);
	struct fo_cuda_rope_args args = { .x = fo_cuda_view_of(x),
					  .position = fo_cuda_view_of(&c->arg[FO_ROPE_POSITION]),
					  .table = fo_cuda_view_of(table),
					  .half = (int32_t)half,
					  .heads = (int32_t)heads,
					  .sign = c->attr.sign };
	if (half % WIDTH || table->dtype != FO_F32 || items > INT_MAX || !fo_cuda_in_eights(&args.x, 1) ||
	    !fo_cuda_in_eights(&args.table, 1))
		return fo_cuda_launch_each(q, FO_CUDA_FN_rope_any, x->rows * heads * half, &args);
	args.items = (uint32_t)items;
	args.per_slab = fo_cuda_divisor_of((uint32_t)(half / WIDTH));
	args.per_row = fo_cuda_divisor_of((uint32_t)(slabs * (half / WIDTH)));
	return fo_cuda_launch_blocks(q, x->dtype == FO_BF16 ? FO_CUDA_FN_rope_bf16 : FO_CUDA_FN_rope_f32,
				     fo_ceil_div(items, THREADS), &args);
}
const struct fo_cuda_kernel fo_cuda_rope = { .by = "flatout", .cannot = rope_cannot, .run = rope };

/* ---- rows from here to there ---- */

/* An operation that copies rows: x, the rows that say which, and y. */
static const struct copy {
	enum fo_op_kind kind;
	enum fo_cuda_copy_mode mode;
	int8_t x, index, y;
} copies[] = {
	{ FO_OP_embed, FO_CUDA_COPY_GATHER, FO_EMBED_TABLE, FO_EMBED_TOKEN, FO_EMBED_X },
	{ FO_OP_cache_put, FO_CUDA_COPY_PUT, FO_CACHE_PUT_X, FO_CACHE_PUT_SPAN, FO_CACHE_PUT_CACHE },
	{ FO_OP_last_row, FO_CUDA_COPY_LAST, FO_LAST_ROW_X, FO_LAST_ROW_SPAN, FO_LAST_ROW_Y },
};
static const struct copy *copy_of(const struct fo_call *s)
{
	const struct copy *m = copies;
	while (m->kind != s->kind)
		m++;
	return m;
}
static const char *copy_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	const struct copy *m = copy_of(s);
	if (s->arg[m->index].dtype != FO_I32)
		return "indices are not 32-bit integers";
	return s->arg[m->y].rows > INT_MAX ? "there are more than 2^31 rows" : fo_cuda_floats_only(c, s);
}
static fo_status copy_rows(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct copy *m = copy_of(c);
	const struct fo_tensor *x = &c->arg[m->x], *y = &c->arg[m->y];
	const int64_t per_row = y->cols * (int64_t)fo_dtype_bytes(y->dtype) / ACCESS_BYTES;
	/* All rows may go into the cache: how many of them count is known on the device alone. */
	struct fo_cuda_copy_args args = { .x = fo_cuda_view_of(x),
					  .index = fo_cuda_view_of(&c->arg[m->index]),
					  .y = fo_cuda_view_of(y),
					  .mode = m->mode,
					  .first = c->attr.element,
					  .rows = (int32_t)(m->mode == FO_CUDA_COPY_PUT ? x->rows : y->rows) };
	if (x->dtype != y->dtype || args.rows * per_row > INT_MAX || !fo_cuda_in_eights(&args.x, 1) ||
	    !fo_cuda_in_eights(&args.y, 1))
		return fo_cuda_launch_each(q, FO_CUDA_FN_copy_rows_any, args.rows * y->cols, &args);
	args.units = (uint32_t)(args.rows * per_row);
	args.per_row = fo_cuda_divisor_of((uint32_t)per_row);
	return fo_cuda_launch_blocks(q, FO_CUDA_FN_copy_rows_16, fo_ceil_div(args.units, THREADS * FO_CUDA_COPY_SHARE),
				     &args);
}
const struct fo_cuda_kernel fo_cuda_copy_rows = { .by = "flatout", .cannot = copy_cannot, .run = copy_rows };

/* ---- heads of the ranks of a cp group ---- */

static const char *heads_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	const struct fo_tensor *x = &s->arg[FO_HEADS_APART_X], *y = &s->arg[FO_HEADS_APART_Y];
	if (x->rows > INT_MAX || y->rows > INT_MAX || x->cols > INT_MAX || y->cols > INT_MAX)
		return "there are more than 2^31 rows or columns";
	return fo_cuda_floats_only(c, s);
}
static fo_status heads(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct fo_tensor *x = &c->arg[FO_HEADS_APART_X], *y = &c->arg[FO_HEADS_APART_Y];
	const bool together = fo_op_info(c->kind)->heads == FO_HEADS_TOGETHER;
	const struct fo_tensor *own = together ? y : x;
	const struct fo_tensor *by_rank = together ? x : y;
	const int64_t per_row = y->cols * (int64_t)fo_dtype_bytes(y->dtype) / ACCESS_BYTES;
	struct fo_cuda_heads_args args = { .x = fo_cuda_view_of(x),
					   .y = fo_cuda_view_of(y),
					   .ranks = (int32_t)(by_rank->rows / own->rows),
					   .heads = (int32_t)(own->cols / c->attr.head_dim),
					   .head_dim = c->attr.head_dim,
					   .together = together };
	if (x->dtype != y->dtype || (together && args.ranks > args.heads) || y->rows * per_row > INT_MAX ||
	    !fo_cuda_in_eights(&args.x, 1) || !fo_cuda_in_eights(&args.y, 1))
		return fo_cuda_launch_each(q, FO_CUDA_FN_heads_any, y->rows * y->cols, &args);
	args.units = (uint32_t)(y->rows * per_row);
	args.per_row = fo_cuda_divisor_of((uint32_t)per_row);
	return fo_cuda_launch_blocks(q, FO_CUDA_FN_heads_16, fo_ceil_div(args.units, THREADS), &args);
}
const struct fo_cuda_kernel fo_cuda_heads = { .by = "flatout", .cannot = heads_cannot, .run = heads };

/* ---- gradient of the embedding ---- */

static const char *embed_bwd_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	if (s->arg[FO_EMBED_BWD_TOKEN].dtype != FO_I32)
		return "tokens are not 32-bit integers";
	if (s->arg[FO_EMBED_BWD_TOKEN].rows > INT_MAX / 2 || s->arg[FO_EMBED_BWD_DX].cols > INT_MAX / 2)
		return "there are more than 2^30 tokens or columns";
	return fo_cuda_floats_only(c, s);
}

static fo_status embed_bwd_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	*ws_bytes = 2 * sizeof(int32_t) * (size_t)s->arg[FO_EMBED_BWD_TOKEN].rows;
	return FO_OK;
}

static fo_status zero(struct fo_cuda_queue *q, const struct fo_tensor *t)
{
	const struct fo_cuda_zero_args args = { fo_cuda_view_of(t) };
	if (t->ld == t->cols)
		return fo_cuda_fill(q->cuda, t->data, 0, (size_t)(t->rows * t->cols) * fo_dtype_bytes(t->dtype),
				    q->stream);
	return fo_cuda_launch_each(q, FO_CUDA_FN_zero_any, t->rows * t->cols, &args);
}

static fo_status embed_bwd(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct fo_tensor *token = &c->arg[FO_EMBED_BWD_TOKEN], *dx = &c->arg[FO_EMBED_BWD_DX],
			       *table = &c->arg[FO_EMBED_BWD_DTABLE];
	const bool store = fo_call_stores(c, FO_EMBED_BWD_DTABLE), bf16 = dx->dtype == FO_BF16;
	int32_t *order = q->ws, *rank = order + token->rows;
	const struct fo_cuda_embed_order_args ordering = { fo_cuda_view_of(token), order, rank };
	const struct fo_cuda_embed_sum_args args = { ordering.token, fo_cuda_view_of(dx), fo_cuda_view_of(table), order,
						     rank,           c->attr.element,     .add = !store };
	struct fo_cuda_grid grid = { (uint32_t)token->rows, 1, 1, THREADS, 0 };
	if (store)
		FO_TRY(zero(q, table));
	FO_TRY(fo_cuda_launch_blocks(q, FO_CUDA_FN_embed_order, fo_ceil_div(token->rows, FO_CUDA_EMBED_ORDERED),
				     &ordering));
	if (!fo_cuda_in_eights(&args.dx, 1) || !fo_cuda_in_eights(&args.table, 1))
		return fo_cuda_launch(q, FO_CUDA_FN_embed_any, grid, &args);
	grid.y = (uint32_t)fo_ceil_div(dx->cols, THREADS * WIDTH);
	FO_TRY(fo_cuda_launch(q, bf16 ? FO_CUDA_FN_embed_few_bf16 : FO_CUDA_FN_embed_few_f32, grid, &args));
	grid.x = (uint32_t)fo_ceil_div(token->rows, FO_CUDA_EMBED_FEW);
	grid.y = (uint32_t)fo_ceil_div(dx->cols, THREADS);
	return fo_cuda_launch(q, bf16 ? FO_CUDA_FN_embed_many_bf16 : FO_CUDA_FN_embed_many_f32, grid, &args);
}
const struct fo_cuda_kernel fo_cuda_embed_bwd = {
	.by = "flatout", .cannot = embed_bwd_cannot, .prepare = embed_bwd_prepare, .run = embed_bwd
};
