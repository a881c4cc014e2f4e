/* Launches of elementwise.cu. */
#include "kernel/cuda/cuda_int.h"

#include <limits.h>

/* As in elementwise.cu: threads of a block, groups of eight (copies: of 16 bytes) per thread. */
enum { THREADS = 256, WIDTH = 8, COPY_SHARE = 4, ACCESS_BYTES = 16 };

const char *fo_cuda_floats_only(const struct fo_cuda *c, const struct fo_call *s)
{
	for (int i = 0; i < s->n; i++)
		if (!fo_cuda_is_float(&s->arg[i]) && s->arg[i].dtype != FO_I32)
			return "operands are neither bf16 nor fp32";
	return NULL;
}

struct fo_cuda_divisor fo_cuda_divisor_of(uint32_t value)
{
	/* With 2^log >= value: ceil(2^(31 + log) / value) is off by less than 1, and n < 2^31 makes less than 1 / value
	 * of it. */
	uint32_t log = 0;
	while ((1ull << log) < value)
		log++;
	const uint64_t scaled = 1ull << (31 + log);
	return (struct fo_cuda_divisor){ .value = value,
					 .multiplier = (uint32_t)((scaled + value - 1) / value),
					 .shift = 31 + log };
}

/* The n tensors, of one shape and one type, eight elements at a time; false: one at a time. */
static bool in_groups(const struct fo_tensor *const *t, int n, struct fo_cuda_groups *out)
{
	for (int i = 1; i < n; i++)
		if (t[i]->dtype != t[0]->dtype)
			return false;
	if (fo_cuda_vector(t, n) != WIDTH || t[0]->rows * (t[0]->cols / WIDTH) > INT_MAX)
		return false;
	*out = (struct fo_cuda_groups){ (uint32_t)(t[0]->rows * (t[0]->cols / WIDTH)),
					fo_cuda_divisor_of((uint32_t)(t[0]->cols / WIDTH)) };
	return true;
}

static uint32_t blocks_for(int64_t n, int64_t per_block) { return (uint32_t)fo_ceil_div(n, per_block); }

/* A map (elementwise.cu) by name: its kernel for bf16, fp32 and any types and layouts. */
#define MAP(name)                                                                          \
	{                                                                                  \
		FO_CUDA_FN_##name##_bf16, FO_CUDA_FN_##name##_f32, FO_CUDA_FN_##name##_any \
	}

/* Launches a map from in[0 .. ins) to out[0 .. outs). All have the shape of out[0], but for a bias (the last of `in`
 * where share says so), which is one row. */
static fo_status map(struct fo_cuda_queue *q, const enum fo_cuda_function f[3], int share,
		     const struct fo_tensor *const *in, int ins, const struct fo_tensor *const *out, int outs)
{
	const struct fo_tensor *all[FO_CUDA_MAP_IN + FO_CUDA_MAP_OUT], *like = out[0];
	struct fo_cuda_map_args args = { .groups.n = 0 };
	struct fo_cuda_grid grid = { 0, 1, 1, THREADS, 0 };
	for (int i = 0; i < outs; i++)
		all[i] = out[i], args.out[i] = fo_cuda_view_of(out[i]);
	for (int i = 0; i < ins; i++)
		all[outs + i] = in[i], args.in[i] = fo_cuda_view_of(in[i]);
	if (share == FO_CUDA_MAP_SHARE_BIAS)
		args.in[ins - 1].ld = 0;
	if (!in_groups(all, outs + ins, &args.groups)) {
		grid.x = fo_cuda_blocks(q->cuda, like->rows * like->cols, THREADS);
		return fo_cuda_launch(q, f[2], grid, &args);
	}
	grid.x = blocks_for(args.groups.n, (int64_t)THREADS * share);
	return fo_cuda_launch(q, f[like->dtype != FO_BF16], grid, &args);
}

static fo_status add(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	static const enum fo_cuda_function f[] = MAP(add);
	const struct fo_tensor *in[] = { &c->arg[FO_ADD_A], &c->arg[FO_ADD_B] }, *out = &c->arg[FO_ADD_C];
	return map(q, f, FO_CUDA_MAP_SHARE, in, 2, &out, 1);
}
const struct fo_cuda_kernel fo_cuda_add = { .by = "flatout", .cannot = fo_cuda_floats_only, .run = add };

static fo_status add_bias(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	static const enum fo_cuda_function f[] = MAP(add_bias);
	const struct fo_tensor *y = &c->arg[FO_ADD_BIAS_Y], *in[] = { y, &c->arg[FO_ADD_BIAS_B] };
	return map(q, f, FO_CUDA_MAP_SHARE_BIAS, in, 2, &y, 1);
}
const struct fo_cuda_kernel fo_cuda_add_bias = { .by = "flatout", .cannot = fo_cuda_floats_only, .run = add_bias };

static fo_status swiglu(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	static const enum fo_cuda_function f[] = MAP(swiglu);
	const struct fo_tensor *in[] = { &c->arg[FO_SWIGLU_GATE], &c->arg[FO_SWIGLU_UP] }, *out = &c->arg[FO_SWIGLU_Y];
	return map(q, f, FO_CUDA_MAP_SHARE, in, 2, &out, 1);
}
const struct fo_cuda_kernel fo_cuda_swiglu = { .by = "flatout", .cannot = fo_cuda_floats_only, .run = swiglu };

static fo_status swiglu_bwd(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	static const enum fo_cuda_function f[] = MAP(swiglu_bwd);
	const struct fo_tensor *in[] = { &c->arg[FO_SWIGLU_BWD_GATE], &c->arg[FO_SWIGLU_BWD_UP],
					 &c->arg[FO_SWIGLU_BWD_DY] };
	const struct fo_tensor *out[] = { &c->arg[FO_SWIGLU_BWD_DGATE], &c->arg[FO_SWIGLU_BWD_DUP] };
	return map(q, f, FO_CUDA_MAP_SHARE, in, 3, out, 2);
}
const struct fo_cuda_kernel fo_cuda_swiglu_bwd = { .by = "flatout", .cannot = fo_cuda_floats_only, .run = swiglu_bwd };

static const char *rope_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	if (s->arg[FO_ROPE_POSITION].dtype != FO_I32)
		return "positions are not 32-bit integers";
	return s->arg[FO_ROPE_X].cols > INT_MAX ? "a row has more than 2^31 columns" : fo_cuda_floats_only(c, s);
}
static fo_status rope(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct fo_tensor *x = &c->arg[FO_ROPE_X], *table = &c->arg[FO_ROPE_TABLE], *t[] = { x, table };
	const int64_t half = c->attr.head_dim / 2, heads = x->cols / c->attr.head_dim;
	const int64_t slabs = (heads + FO_CUDA_ROPE_HEADS - 1) / FO_CUDA_ROPE_HEADS,
		      items = x->rows * slabs * (half / WIDTH);
	struct fo_cuda_rope_args args = { .x = fo_cuda_view_of(x),
					  .position = fo_cuda_view_of(&c->arg[FO_ROPE_POSITION]),
					  .table = fo_cuda_view_of(table),
					  .half = (int32_t)half,
					  .heads = (int32_t)heads,
					  .sign = c->attr.sign };
	struct fo_cuda_grid grid = { 1, 1, 1, THREADS, 0 };
	if (half % WIDTH || table->dtype != FO_F32 || fo_cuda_vector(t, 2) != WIDTH || items > INT_MAX) {
		grid.x = fo_cuda_blocks(q->cuda, x->rows * heads * half, THREADS);
		return fo_cuda_launch(q, FO_CUDA_FN_rope_any, grid, &args);
	}
	args.items = (uint32_t)items;
	args.per_slab = fo_cuda_divisor_of((uint32_t)(half / WIDTH));
	args.per_row = fo_cuda_divisor_of((uint32_t)(slabs * (half / WIDTH)));
	grid.x = blocks_for(items, THREADS);
	return fo_cuda_launch(q, x->dtype == FO_BF16 ? FO_CUDA_FN_rope_bf16 : FO_CUDA_FN_rope_f32, grid, &args);
}
const struct fo_cuda_kernel fo_cuda_rope = { .by = "flatout", .cannot = rope_cannot, .run = rope };

/* ---- copies of rows ---- */

/* ---- rows from here to there ---- */

/* All three have x, the rows that say which, and y in places of their own. */
static const char *copy_cannot(const struct fo_cuda *c, const struct fo_call *s, int index, int y)
{
	if (s->arg[index].dtype != FO_I32)
		return "indices are not 32-bit integers";
	return s->arg[y].rows > INT_MAX ? "there are more than 2^31 rows" : fo_cuda_floats_only(c, s);
}

static fo_status copy_rows(struct fo_cuda_queue *q, enum fo_cuda_copy_mode mode, const struct fo_tensor *x,
			   const struct fo_tensor *index, const struct fo_tensor *y)
{
	const struct fo_tensor *t[] = { x, y };
	const int64_t per_row = y->cols * (int64_t)fo_dtype_bytes(y->dtype) / ACCESS_BYTES;
	/* All rows may go into the cache: how many of them count is known on the device alone. */
	struct fo_cuda_copy_args args = { .x = fo_cuda_view_of(x),
					  .index = fo_cuda_view_of(index),
					  .y = fo_cuda_view_of(y),
					  .mode = mode,
					  .rows = (int32_t)(mode == FO_CUDA_COPY_PUT ? x->rows : y->rows) };
	struct fo_cuda_grid grid = { fo_cuda_blocks(q->cuda, args.rows * y->cols, THREADS), 1, 1, THREADS, 0 };
	if (x->dtype != y->dtype || fo_cuda_vector(t, 2) != WIDTH || args.rows * per_row > INT_MAX)
		return fo_cuda_launch(q, FO_CUDA_FN_copy_rows_any, grid, &args);
	args.units = (uint32_t)(args.rows * per_row);
	args.per_row = fo_cuda_divisor_of((uint32_t)per_row);
	grid.x = blocks_for(args.units, THREADS * COPY_SHARE);
	return fo_cuda_launch(q, FO_CUDA_FN_copy_rows_16, grid, &args);
}

#define COPY(name, mode, from, index, to)                                                        \
	static const char *name##_cannot(const struct fo_cuda *c, const struct fo_call *s)       \
	{                                                                                        \
		return copy_cannot(c, s, index, to);                                             \
	}                                                                                        \
	static fo_status name(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant) \
	{                                                                                        \
		return copy_rows(q, mode, &c->arg[from], &c->arg[index], &c->arg[to]);           \
	}                                                                                        \
	const struct fo_cuda_kernel fo_cuda_##name = { .by = "flatout", .cannot = name##_cannot, .run = name };
COPY(embed, FO_CUDA_COPY_GATHER, FO_EMBED_TABLE, FO_EMBED_TOKEN, FO_EMBED_X)
COPY(cache_put, FO_CUDA_COPY_PUT, FO_CACHE_PUT_X, FO_CACHE_PUT_SPAN, FO_CACHE_PUT_CACHE)
COPY(last_row, FO_CUDA_COPY_LAST, FO_LAST_ROW_X, FO_LAST_ROW_SPAN, FO_LAST_ROW_Y)

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
	if (t->ld == t->cols)
		return fo_cuda_fill(q->cuda, t->data, 0, (size_t)(t->rows * t->cols) * fo_dtype_bytes(t->dtype),
				    q->stream);
	const struct fo_cuda_zero_args args = { fo_cuda_view_of(t) };
	const struct fo_cuda_grid grid = { fo_cuda_blocks(q->cuda, t->rows * t->cols, THREADS), 1, 1, THREADS, 0 };
	return fo_cuda_launch(q, FO_CUDA_FN_zero_any, grid, &args);
}

static fo_status embed_bwd(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct fo_tensor *token = &c->arg[FO_EMBED_BWD_TOKEN], *dx = &c->arg[FO_EMBED_BWD_DX],
			       *table = &c->arg[FO_EMBED_BWD_DTABLE], *t[] = { dx, table };
	const bool store = fo_call_stores(c, FO_EMBED_BWD_DTABLE), bf16 = dx->dtype == FO_BF16;
	int32_t *order = q->ws, *rank = order + token->rows;
	const struct fo_cuda_embed_order_args ordering = { fo_cuda_view_of(token), order, rank };
	const struct fo_cuda_embed_sum_args args = { .token = fo_cuda_view_of(token),
						     .dx = fo_cuda_view_of(dx),
						     .table = fo_cuda_view_of(table),
						     .order = order,
						     .rank = rank,
						     .add = !store };
	struct fo_cuda_grid grid = { blocks_for(token->rows, FO_CUDA_EMBED_ORDERED), 1, 1, THREADS, 0 };
	if (store)
		FO_TRY(zero(q, table));
	FO_TRY(fo_cuda_launch(q, FO_CUDA_FN_embed_order, grid, &ordering));
	grid.x = (uint32_t)token->rows;
	if (fo_cuda_vector(t, 2) != WIDTH)
		return fo_cuda_launch(q, FO_CUDA_FN_embed_any, grid, &args);
	grid.y = blocks_for(dx->cols, THREADS * WIDTH);
	FO_TRY(fo_cuda_launch(q, bf16 ? FO_CUDA_FN_embed_few_bf16 : FO_CUDA_FN_embed_few_f32, grid, &args));
	grid.x = blocks_for(token->rows, FO_CUDA_EMBED_FEW), grid.y = blocks_for(dx->cols, THREADS);
	return fo_cuda_launch(q, bf16 ? FO_CUDA_FN_embed_many_bf16 : FO_CUDA_FN_embed_many_f32, grid, &args);
}
const struct fo_cuda_kernel fo_cuda_embed_bwd = {
	.by = "flatout", .cannot = embed_bwd_cannot, .prepare = embed_bwd_prepare, .run = embed_bwd
};
