/* Launches of norm.cu. */
#include "kernel/cuda/cuda_int.h"

#include <limits.h>

/* As in norm.cu. A thread's groups of eight columns: 1, or 4 forward and 2 backward, where 4 leave no registers to read
 * ahead with. */
enum {
	THREADS = 256,
	THREADS_MAX = 512,
	WARP = 32,
	WIDTH = 8,
	SMALL = WARP * WIDTH,               /* columns of a piece that a part of a warp takes */
	WIDEST = THREADS_MAX * 4 * WIDTH,   /* columns of a piece that a block takes */
	WIDE_BWD = THREADS_MAX * 2 * WIDTH, /* backward with two groups per thread */
	PIECES_MAX = INT_MAX / 2,           /* so that a stride past the end stays below 2^31 */
	COLUMNS_ANY = 32                    /* columns of a block of columns_any and sum_partials */
};

static uint32_t blocks_for(int64_t n, int64_t per_block) { return (uint32_t)fo_ceil_div(n, per_block); }

/* The pieces that x is normed by: rows or heads. Every norm has x first (call.c). */
static struct fo_cuda_pieces pieces_of(const struct fo_call *c)
{
	const struct fo_tensor *x = &c->arg[FO_RMSNORM_X];
	const int64_t width = c->attr.head_dim ? c->attr.head_dim : x->cols;
	return (struct fo_cuda_pieces){ .n = x->rows * (x->cols / width),
					.width = (int32_t)width,
					.count = fo_cuda_divisor_of((uint32_t)(x->cols / width)) };
}

static const char *norm_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	if (s->arg[FO_RMSNORM_X].cols > PIECES_MAX || pieces_of(s).n > PIECES_MAX)
		return "there are more than 2^30 columns, rows or heads";
	return fo_cuda_floats_only(c, s);
}

/* All n tensors of one type that 16-byte accesses fit, statistics in fp32. */
static bool is_fast(const struct fo_tensor *const *t, int n, const struct fo_tensor *rstd, int32_t width,
		    int32_t widest)
{
	for (int i = 1; i < n; i++)
		if (t[i]->dtype != t[0]->dtype)
			return false;
	return rstd->dtype == FO_F32 && width % WIDTH == 0 && width <= widest && fo_cuda_vector(t, n) == WIDTH;
}

/* Threads per piece where each takes `groups` groups of eight. */
static int32_t team_of(int32_t width, int groups)
{
	int32_t team = 1, need = (width / WIDTH + groups - 1) / groups;
	if (groups > 1)
		return (need + WARP - 1) / WARP * WARP;
	while (team < need)
		team *= 2;
	return team;
}

/* ---- forward ---- */

/* x is normed, or c = x + b where there is b. */
struct norm_operands {
	const struct fo_tensor *x, *b, *g, *c, *y, *rstd;
};
static fo_status norm(struct fo_cuda_queue *q, const struct fo_call *call, struct norm_operands o)
{
	static const enum fo_cuda_function f[2][2][2] = {
		/* adds, pieces wider than SMALL, fp32 */
		{ { FO_CUDA_FN_norm_bf16_1, FO_CUDA_FN_norm_f32_1 },
		  { FO_CUDA_FN_norm_bf16_4, FO_CUDA_FN_norm_f32_4 } },
		{ { FO_CUDA_FN_add_norm_bf16_1, FO_CUDA_FN_add_norm_f32_1 },
		  { FO_CUDA_FN_add_norm_bf16_4, FO_CUDA_FN_add_norm_f32_4 } },
	};
	const struct fo_tensor *t[] = { o.x, o.g, o.y, o.b, o.c };
	const bool adds = o.b;
	struct fo_cuda_norm_args args = { .x = fo_cuda_view_of(o.x),
					  .g = fo_cuda_view_of(o.g),
					  .y = fo_cuda_view_of(o.y),
					  .rstd = fo_cuda_view_of(o.rstd),
					  .pieces = pieces_of(call),
					  .eps = (float)call->attr.value };
	if (adds)
		args.b = fo_cuda_view_of(o.b), args.c = fo_cuda_view_of(o.c);
	struct fo_cuda_grid grid = { (uint32_t)args.pieces.n, 1, 1, THREADS, 0 };
	if (!is_fast(t, adds ? 5 : 3, o.rstd, args.pieces.width, WIDEST))
		return fo_cuda_launch(q, FO_CUDA_FN_norm_any, grid, &args);
	const bool wide = args.pieces.width > SMALL;
	args.pieces.team = team_of(args.pieces.width, wide ? 4 : 1);
	if (wide)
		grid.threads = (uint32_t)args.pieces.team;
	else
		grid.x = blocks_for(args.pieces.n, THREADS / args.pieces.team);
	return fo_cuda_launch(q, f[adds][wide][o.x->dtype != FO_BF16], grid, &args);
}
static fo_status rmsnorm(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	return norm(q, c,
		    (struct norm_operands){ .x = &c->arg[FO_RMSNORM_X],
					    .g = &c->arg[FO_RMSNORM_G],
					    .y = &c->arg[FO_RMSNORM_Y],
					    .rstd = &c->arg[FO_RMSNORM_RSTD] });
}
static fo_status add_rmsnorm(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	return norm(q, c,
		    (struct norm_operands){ .x = &c->arg[FO_ADD_RMSNORM_A],
					    .b = &c->arg[FO_ADD_RMSNORM_B],
					    .g = &c->arg[FO_ADD_RMSNORM_G],
					    .c = &c->arg[FO_ADD_RMSNORM_C],
					    .y = &c->arg[FO_ADD_RMSNORM_Y],
					    .rstd = &c->arg[FO_ADD_RMSNORM_RSTD] });
}
const struct fo_cuda_kernel fo_cuda_rmsnorm = { .by = "flatout", .cannot = norm_cannot, .run = rmsnorm };
const struct fo_cuda_kernel fo_cuda_add_rmsnorm = { .by = "flatout", .cannot = norm_cannot, .run = add_rmsnorm };

/* ---- backward ---- */

/* Blocks that stride over pieces: as many as stay on the device at once, and no more than share the pieces evenly.
 * Threads that a multiprocessor holds by the registers of each (ptxas: 128 of norm_bwd_bf16_2, 80 of _1, 40 of
 * norm_dg_bf16_2). */
static uint32_t blocks_of(const struct fo_cuda *c, const struct fo_cuda_pieces *p, bool dx)
{
	const int64_t threads = p->width > SMALL ? p->team : THREADS, teams = threads / p->team;
	int64_t held = 1024; /* threads of a multiprocessor */
	if (dx)
		held = p->width > SMALL ? 512 : 768;
	const int64_t turns = blocks_for(p->n, teams), most = c->info.multiprocessors * fo_max(held / threads, 1);
	return blocks_for(turns, fo_ceil_div(turns, most));
}

/* Groups of eight columns of a thread. */
static int groups_bwd(int32_t width)
{
	if (width <= SMALL)
		return 1;
	return width <= WIDE_BWD ? 2 : 4;
}
static struct fo_cuda_pieces pieces_bwd(const struct fo_call *c)
{
	struct fo_cuda_pieces p = pieces_of(c);
	p.team = team_of(p.width, groups_bwd(p.width));
	return p;
}

/* A row of partial sums for dg of each block. */
static fo_status partials_of(const struct fo_cuda *c, const struct fo_call *s, bool dx, size_t *ws_bytes)
{
	const struct fo_cuda_pieces p = pieces_bwd(s);
	*ws_bytes = p.width > WIDEST ? 0 : sizeof(float) * (size_t)p.width * blocks_of(c, &p, dx);
	return FO_OK;
}
static fo_status dg_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	return partials_of(c, s, false, ws_bytes);
}
static fo_status bwd_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	return partials_of(c, s, true, ws_bytes);
}

static fo_status sum_partials(struct fo_cuda_queue *q, const struct fo_tensor *out, uint32_t parts, bool store)
{
	const struct fo_cuda_partials_args args = {
		.partial = q->ws, .out = fo_cuda_view_of(out), .parts = (int32_t)parts, .add = !store
	};
	const struct fo_cuda_grid grid = { blocks_for(out->cols, COLUMNS_ANY), 1, 1, THREADS_MAX, 0 };
	return fo_cuda_launch(q, FO_CUDA_FN_sum_partials, grid, &args);
}

/* One element at a time: dg before dx, which may lie over dy. */
static fo_status norm_bwd_any(struct fo_cuda_queue *q, const struct fo_cuda_norm_bwd_args *args,
			      const struct fo_tensor *dg, bool store)
{
	struct fo_cuda_grid grid = { blocks_for(args->pieces.width, COLUMNS_ANY), 1, 1, THREADS, 0 };
	if (dg) {
		const struct fo_cuda_columns_args columns = { .x = args->x,
							      .rstd = args->rstd,
							      .dy = args->dy,
							      .out = fo_cuda_view_of(dg),
							      .pieces = args->pieces,
							      .add = !store };
		FO_TRY(fo_cuda_launch(q, FO_CUDA_FN_columns_any, grid, &columns));
	}
	grid.x = (uint32_t)args->pieces.n;
	return args->dx.data ? fo_cuda_launch(q, FO_CUDA_FN_norm_dx_any, grid, args) : FO_OK;
}

/* g, dx and dres are there for dx, dg for dg; NULL else. store: dg is stored, not added to. */
struct bwd_operands {
	const struct fo_tensor *x, *rstd, *dy, *g, *dx, *dres, *dg;
	bool store;
};
static fo_status norm_bwd(struct fo_cuda_queue *q, const struct fo_call *c, struct bwd_operands o)
{
	static const enum fo_cuda_function f[3][2][3] = {
		/* groups of a thread, type, what: dx, dg, both */
		{ { FO_CUDA_FN_norm_dx_bf16_1, FO_CUDA_FN_norm_dg_bf16_1, FO_CUDA_FN_norm_bwd_bf16_1 },
		  { FO_CUDA_FN_norm_dx_f32_1, FO_CUDA_FN_norm_dg_f32_1, FO_CUDA_FN_norm_bwd_f32_1 } },
		{ { FO_CUDA_FN_norm_dx_bf16_2, FO_CUDA_FN_norm_dg_bf16_2, FO_CUDA_FN_norm_bwd_bf16_2 },
		  { FO_CUDA_FN_norm_dx_f32_2, FO_CUDA_FN_norm_dg_f32_2, FO_CUDA_FN_norm_bwd_f32_2 } },
		{ { FO_CUDA_FN_norm_dx_bf16_4, FO_CUDA_FN_norm_dg_bf16_4, FO_CUDA_FN_norm_bwd_bf16_4 } },
	};
	const struct fo_tensor *t[] = { o.x, o.dy, o.g, o.dx, o.dres };
	const bool f32 = o.x->dtype != FO_BF16;
	int tensors = 2, what = 1;
	struct fo_cuda_norm_bwd_args args = { .x = fo_cuda_view_of(o.x),
					      .rstd = fo_cuda_view_of(o.rstd),
					      .dy = fo_cuda_view_of(o.dy),
					      .partial = q->ws,
					      .pieces = pieces_bwd(c) };
	if (o.dx) {
		args.g = fo_cuda_view_of(o.g), args.dx = fo_cuda_view_of(o.dx);
		tensors = 4, what = o.dg ? 2 : 0;
	}
	if (o.dres)
		args.dres = fo_cuda_view_of(o.dres), tensors = 5;
	if (!is_fast(t, tensors, o.rstd, args.pieces.width, f32 ? WIDE_BWD : WIDEST))
		return norm_bwd_any(q, &args, o.dg, o.store);
	struct fo_cuda_grid grid = { blocks_of(q->cuda, &args.pieces, o.dx), 1, 1, THREADS, 0 };
	if (args.pieces.width > SMALL)
		grid.threads = (uint32_t)args.pieces.team;
	FO_TRY(fo_cuda_launch(q, f[groups_bwd(args.pieces.width) / 2][f32][what], grid, &args));
	return o.dg ? sum_partials(q, o.dg, grid.x, o.store) : FO_OK;
}
/* An operand that may be absent. */
static const struct fo_tensor *optional(const struct fo_call *c, int i)
{
	return fo_call_has(c, i) ? &c->arg[i] : NULL;
}

static fo_status rmsnorm_dx(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	return norm_bwd(q, c,
			(struct bwd_operands){ .x = &c->arg[FO_RMSNORM_DX_X],
					       .rstd = &c->arg[FO_RMSNORM_DX_RSTD],
					       .dy = &c->arg[FO_RMSNORM_DX_DY],
					       .g = &c->arg[FO_RMSNORM_DX_G],
					       .dx = &c->arg[FO_RMSNORM_DX_DX],
					       .dres = optional(c, FO_RMSNORM_DX_DRES) });
}
static fo_status rmsnorm_dg(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	return norm_bwd(q, c,
			(struct bwd_operands){ .x = &c->arg[FO_RMSNORM_DG_X],
					       .rstd = &c->arg[FO_RMSNORM_DG_RSTD],
					       .dy = &c->arg[FO_RMSNORM_DG_DY],
					       .dg = &c->arg[FO_RMSNORM_DG_DG],
					       .store = fo_call_stores(c, FO_RMSNORM_DG_DG) });
}
static fo_status rmsnorm_bwd(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	return norm_bwd(q, c,
			(struct bwd_operands){ .x = &c->arg[FO_RMSNORM_BWD_X],
					       .rstd = &c->arg[FO_RMSNORM_BWD_RSTD],
					       .dy = &c->arg[FO_RMSNORM_BWD_DY],
					       .g = &c->arg[FO_RMSNORM_BWD_G],
					       .dx = &c->arg[FO_RMSNORM_BWD_DX],
					       .dres = optional(c, FO_RMSNORM_BWD_DRES),
					       .dg = &c->arg[FO_RMSNORM_BWD_DG],
					       .store = fo_call_stores(c, FO_RMSNORM_BWD_DG) });
}
const struct fo_cuda_kernel fo_cuda_rmsnorm_dx = { .by = "flatout", .cannot = norm_cannot, .run = rmsnorm_dx };
const struct fo_cuda_kernel fo_cuda_rmsnorm_dg = {
	.by = "flatout", .cannot = norm_cannot, .prepare = dg_prepare, .run = rmsnorm_dg
};
const struct fo_cuda_kernel fo_cuda_rmsnorm_bwd = {
	.by = "flatout", .cannot = norm_cannot, .prepare = bwd_prepare, .run = rmsnorm_bwd
};

/* ---- gradient of a bias ---- */

/* Blocks of 256 columns and these rows fill the device eight times over: a block's sum of its warps is worth 64 rows at
 * least. */
static int64_t bias_rows(const struct fo_cuda *c, const struct fo_tensor *dy)
{
	enum { BLOCKS = 8, ROWS_LEAST = 64 };
	const int64_t slabs = blocks_for(dy->cols, THREADS),
		      wanted = fo_ceil_div(c->info.multiprocessors * BLOCKS, slabs);
	return fo_max(fo_ceil_div(dy->rows, wanted), ROWS_LEAST);
}

static fo_status bias_grad_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	const struct fo_tensor *dy = &s->arg[FO_BIAS_GRAD_DY];
	*ws_bytes = sizeof(float) * (size_t)dy->cols * blocks_for(dy->rows, bias_rows(c, dy));
	return FO_OK;
}

static fo_status bias_grad(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct fo_tensor *dy = &c->arg[FO_BIAS_GRAD_DY], *db = &c->arg[FO_BIAS_GRAD_DB];
	const bool store = fo_call_stores(c, FO_BIAS_GRAD_DB);
	struct fo_cuda_columns_args args = { .dy = fo_cuda_view_of(dy),
					     .out = fo_cuda_view_of(db),
					     .partial = q->ws,
					     .pieces = pieces_of(c),
					     .rows_per_block = (int32_t)bias_rows(q->cuda, dy),
					     .add = !store };
	struct fo_cuda_grid grid = { blocks_for(dy->cols, COLUMNS_ANY), 1, 1, THREADS, 0 };
	if (fo_cuda_vector(&dy, 1) != WIDTH)
		return fo_cuda_launch(q, FO_CUDA_FN_columns_any, grid, &args);
	grid.x = blocks_for(dy->cols, THREADS), grid.y = blocks_for(dy->rows, args.rows_per_block);
	FO_TRY(fo_cuda_launch(q, dy->dtype == FO_BF16 ? FO_CUDA_FN_columns_bf16 : FO_CUDA_FN_columns_f32, grid, &args));
	return sum_partials(q, db, grid.y, store);
}
const struct fo_cuda_kernel fo_cuda_bias_grad = {
	.by = "flatout", .cannot = norm_cannot, .prepare = bias_grad_prepare, .run = bias_grad
};
