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

static uint32_t blocks_for(int64_t n, int64_t per_block) { return (uint32_t)((n + per_block - 1) / per_block); }

/* x is normed by rows or heads. */
static struct fo_cuda_pieces pieces_of(const struct fo_call *c)
{
	const int64_t cols = c->arg[0].cols, width = c->attr.head_dim ? c->attr.head_dim : cols;
	return (struct fo_cuda_pieces){ .n = c->arg[0].rows * (cols / width),
					.width = (int32_t)width,
					.count = fo_cuda_divisor_of((uint32_t)(cols / width)) };
}

static const char *norm_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	if (s->arg[0].cols > PIECES_MAX || pieces_of(s).n > PIECES_MAX)
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

static fo_status norm(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	(void)variant;
	const bool adds = c->kind == FO_OP_add_rmsnorm;
	const struct fo_tensor *a = c->arg, *g = &a[adds ? 2 : 1], *y = &a[adds ? 4 : 2], *rstd = &a[adds ? 5 : 3];
	const struct fo_tensor *t[] = { &a[0], g, y, &a[1], &a[3] };
	struct fo_cuda_norm_args args = { .x = fo_cuda_view_of(&a[0]),
					  .g = fo_cuda_view_of(g),
					  .y = fo_cuda_view_of(y),
					  .rstd = fo_cuda_view_of(rstd),
					  .pieces = pieces_of(c),
					  .eps = (float)c->attr.value };
	if (adds)
		args.b = fo_cuda_view_of(&a[1]), args.c = fo_cuda_view_of(&a[3]);
	struct fo_cuda_grid grid = { (uint32_t)args.pieces.n, 1, 1, THREADS, 0 };
	if (!is_fast(t, adds ? 5 : 3, rstd, args.pieces.width, WIDEST))
		return fo_cuda_launch(q, FO_CUDA_FN_norm_any, grid, &args);
	static const enum fo_cuda_function f[2][2][2] = {
		/* adds, pieces wider than SMALL, fp32 */
		{ { FO_CUDA_FN_norm_bf16_1, FO_CUDA_FN_norm_f32_1 },
		  { FO_CUDA_FN_norm_bf16_4, FO_CUDA_FN_norm_f32_4 } },
		{ { FO_CUDA_FN_add_norm_bf16_1, FO_CUDA_FN_add_norm_f32_1 },
		  { FO_CUDA_FN_add_norm_bf16_4, FO_CUDA_FN_add_norm_f32_4 } },
	};
	const bool wide = args.pieces.width > SMALL;
	args.pieces.team = team_of(args.pieces.width, wide ? 4 : 1);
	if (wide)
		grid.threads = (uint32_t)args.pieces.team;
	else
		grid.x = blocks_for(args.pieces.n, THREADS / args.pieces.team);
	return fo_cuda_launch(q, f[adds][wide][a[0].dtype != FO_BF16], grid, &args);
}
const struct fo_cuda_kernel fo_cuda_rmsnorm = { .by = "flatout", .cannot = norm_cannot, .run = norm };
const struct fo_cuda_kernel fo_cuda_add_rmsnorm = { .by = "flatout", .cannot = norm_cannot, .run = norm };

/* ---- backward ---- */

/* Blocks that stride over pieces: as many as stay on the device at once, and no more than share the pieces evenly.
 * Threads that a multiprocessor holds by the registers of each (ptxas: 128 of norm_bwd_bf16_2, 80 of _1, 40 of
 * norm_dg_bf16_2). */
static uint32_t blocks_of(const struct fo_cuda *c, const struct fo_cuda_pieces *p, bool dx)
{
	const int64_t threads = p->width > SMALL ? p->team : THREADS, teams = threads / p->team;
	const int64_t held = (!dx ? 1024 : p->width > SMALL ? 512 : 768) / threads, turns = blocks_for(p->n, teams);
	const int64_t most = c->info.multiprocessors * (held > 1 ? held : 1), each = (turns + most - 1) / most;
	return blocks_for(turns, each);
}

static struct fo_cuda_pieces pieces_bwd(const struct fo_call *c)
{
	struct fo_cuda_pieces p = pieces_of(c);
	p.team = team_of(p.width, p.width <= SMALL ? 1 : p.width <= WIDE_BWD ? 2 : 4);
	return p;
}

static fo_status norm_bwd_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	(void)variant;
	const struct fo_cuda_pieces p = pieces_bwd(s);
	*ws_bytes = p.width > WIDEST ? 0
				     : sizeof(float) * (size_t)p.width * blocks_of(c, &p, s->kind != FO_OP_rmsnorm_dg);
	return FO_OK;
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

/* rmsnorm_dx: x rstd g dy dx dres?; rmsnorm_dg: x rstd dy dg; rmsnorm_bwd: x rstd g dy dx dg dres? */
static fo_status norm_bwd(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	(void)variant;
	enum { DX, DG, BOTH };
	const int what = c->kind == FO_OP_rmsnorm_dx   ? DX
			 : c->kind == FO_OP_rmsnorm_dg ? DG
						       : BOTH,
		  at_dg = what == DG ? 3 : 5;
	const struct fo_tensor *a = c->arg, *dg = what == DX ? NULL : &a[at_dg],
			       *t[] = { &a[0], &a[what == DG ? 2 : 3], &a[2], &a[4], NULL };
	const bool store = dg && c->first >> at_dg & 1;
	int n = what == DG ? 2 : 4, at_dres = what == DX ? 5 : 6;
	struct fo_cuda_norm_bwd_args args = { .x = fo_cuda_view_of(t[0]),
					      .rstd = fo_cuda_view_of(&a[1]),
					      .dy = fo_cuda_view_of(t[1]),
					      .partial = q->ws,
					      .pieces = pieces_bwd(c) };
	if (what != DG) {
		args.g = fo_cuda_view_of(t[2]), args.dx = fo_cuda_view_of(t[3]);
		if (c->n > at_dres)
			args.dres = fo_cuda_view_of(t[n++] = &a[at_dres]);
	}
	if (!is_fast(t, n, &a[1], args.pieces.width, a[0].dtype == FO_BF16 ? WIDEST : WIDE_BWD))
		return norm_bwd_any(q, &args, dg, store);
	static const enum fo_cuda_function f[5][3] = {
		/* groups of a thread and type; what */
		{ FO_CUDA_FN_norm_dx_bf16_1, FO_CUDA_FN_norm_dg_bf16_1, FO_CUDA_FN_norm_bwd_bf16_1 },
		{ FO_CUDA_FN_norm_dx_f32_1, FO_CUDA_FN_norm_dg_f32_1, FO_CUDA_FN_norm_bwd_f32_1 },
		{ FO_CUDA_FN_norm_dx_bf16_2, FO_CUDA_FN_norm_dg_bf16_2, FO_CUDA_FN_norm_bwd_bf16_2 },
		{ FO_CUDA_FN_norm_dx_f32_2, FO_CUDA_FN_norm_dg_f32_2, FO_CUDA_FN_norm_bwd_f32_2 },
		{ FO_CUDA_FN_norm_dx_bf16_4, FO_CUDA_FN_norm_dg_bf16_4, FO_CUDA_FN_norm_bwd_bf16_4 },
	};
	const int row = (args.pieces.width <= SMALL      ? 0
			 : args.pieces.width <= WIDE_BWD ? 2
							 : 4) +
			(a[0].dtype != FO_BF16);
	struct fo_cuda_grid grid = { blocks_of(q->cuda, &args.pieces, what != DG), 1, 1, THREADS, 0 };
	if (args.pieces.width > SMALL)
		grid.threads = (uint32_t)args.pieces.team;
	FO_TRY(fo_cuda_launch(q, f[row][what], grid, &args));
	return dg ? sum_partials(q, dg, grid.x, store) : FO_OK;
}
const struct fo_cuda_kernel fo_cuda_rmsnorm_dx = { .by = "flatout", .cannot = norm_cannot, .run = norm_bwd };
const struct fo_cuda_kernel fo_cuda_rmsnorm_dg = {
	.by = "flatout", .cannot = norm_cannot, .prepare = norm_bwd_prepare, .run = norm_bwd
};
const struct fo_cuda_kernel fo_cuda_rmsnorm_bwd = {
	.by = "flatout", .cannot = norm_cannot, .prepare = norm_bwd_prepare, .run = norm_bwd
};

/* ---- gradient of a bias ---- */

/* Blocks of 256 columns and these rows fill the device eight times over: a block's sum of its warps is worth 64 rows at
 * least. */
static int64_t bias_rows(const struct fo_cuda *c, const struct fo_tensor *dy)
{
	enum { BLOCKS = 8, ROWS_LEAST = 64 };
	const int64_t slabs = blocks_for(dy->cols, THREADS),
		      wanted = (c->info.multiprocessors * BLOCKS + slabs - 1) / slabs;
	const int64_t rows = (dy->rows + wanted - 1) / wanted;
	return rows > ROWS_LEAST ? rows : ROWS_LEAST;
}

static fo_status bias_grad_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	(void)variant;
	const struct fo_tensor *dy = &s->arg[0];
	*ws_bytes = sizeof(float) * (size_t)dy->cols * blocks_for(dy->rows, bias_rows(c, dy));
	return FO_OK;
}

static fo_status bias_grad(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	(void)variant;
	const struct fo_tensor *dy = &c->arg[0], *db = &c->arg[1];
	const bool store = c->first >> 1 & 1;
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
