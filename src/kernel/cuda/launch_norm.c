/* Launches of norm.cu. */
#include "kernel/cuda/cuda_int.h"

#include <limits.h>

/* Sizes of norm.cu. A thread's groups of eight columns: 1, or 4 forward and 2 backward, where 4 leave no registers to
 * read ahead with. */
enum {
	THREADS = FO_CUDA_THREADS,
	THREADS_MAX = 512,
	WARP = 32,
	WIDTH = 8,
	SMALL = WARP * WIDTH,               /* columns of a piece that a part of a warp takes */
	WIDEST = THREADS_MAX * 4 * WIDTH,   /* columns of a piece that a block takes */
	WIDE_BWD = THREADS_MAX * 2 * WIDTH, /* backward with two groups per thread */
	PIECES_MAX = INT_MAX / 2,           /* so that a stride past the end stays below 2^31 */
	COLUMNS_ANY = 32,                   /* columns of a block of columns_any and sum_partials */
	NONE = -1                           /* an operand that an operation does not have */
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

/* Whether all n views are of one type that 16-byte accesses fit, with statistics in fp32. */
static bool is_fast(const struct fo_cuda_view *v, int n, const struct fo_cuda_view *rstd, int32_t width, int32_t widest)
{
	return rstd->dtype == FO_F32 && width % WIDTH == 0 && width <= widest && fo_cuda_of_one_type(v, n) &&
	       fo_cuda_in_eights(v, n);
}

/* Threads per piece where each takes `groups` groups of eight. */
static int32_t team_of(int32_t width, int groups)
{
	int32_t team = 1, need = (width / WIDTH + groups - 1) / groups;
	if (groups > 1)
		return (int32_t)fo_round_up(need, WARP);
	while (team < need)
		team *= 2;
	return team;
}

/* ---- forward ---- */

/* x is normed, or c = x + b where there is b. */
static fo_status norm(struct fo_cuda_queue *q, const struct fo_call *call, int64_t variant)
{
	enum { X, B, G, C, Y, RSTD, VIEWS }; /* of the arguments, in their order */
	static const int8_t operand[2][VIEWS] = {
		{ FO_RMSNORM_X, NONE, FO_RMSNORM_G, NONE, FO_RMSNORM_Y, FO_RMSNORM_RSTD },
		{ FO_ADD_RMSNORM_A, FO_ADD_RMSNORM_B, FO_ADD_RMSNORM_G, FO_ADD_RMSNORM_C, FO_ADD_RMSNORM_Y,
		  FO_ADD_RMSNORM_RSTD },
	};
	static const enum fo_cuda_function f[2][2][2] = {
		/* adds, pieces wider than SMALL, fp32 */
		{ { FO_CUDA_FN_norm_bf16_1, FO_CUDA_FN_norm_f32_1 },
		  { FO_CUDA_FN_norm_bf16_4, FO_CUDA_FN_norm_f32_4 } },
		{ { FO_CUDA_FN_add_norm_bf16_1, FO_CUDA_FN_add_norm_f32_1 },
		  { FO_CUDA_FN_add_norm_bf16_4, FO_CUDA_FN_add_norm_f32_4 } },
	};
	const bool adds = fo_call_has(call, FO_ADD_RMSNORM_RSTD);
	struct fo_cuda_norm_args args = { .pieces = pieces_of(call), .eps = (float)call->attr.value };
	fo_cuda_views(&args.x, call, operand[adds], VIEWS);
	struct fo_cuda_grid grid = { (uint32_t)args.pieces.n, 1, 1, THREADS, 0 };
	if (!is_fast(&args.x, RSTD, &args.rstd, args.pieces.width, WIDEST))
		return fo_cuda_launch(q, FO_CUDA_FN_norm_any, grid, &args);
	const bool wide = args.pieces.width > SMALL;
	args.pieces.team = team_of(args.pieces.width, wide ? 4 : 1);
	if (wide)
		grid.threads = (uint32_t)args.pieces.team;
	else
		grid.x = blocks_for(args.pieces.n, THREADS / args.pieces.team);
	return fo_cuda_launch(q, f[adds][wide][args.x.dtype != FO_BF16], grid, &args);
}
const struct fo_cuda_kernel fo_cuda_norm = { .by = "flatout", .cannot = norm_cannot, .run = norm };

/* ---- backward ---- */

/* The operands in the order of the arguments' views, then dg. */
enum { X, DY, G, DX, DRES, RSTD, DG, OPERANDS };
enum what { MAKES_DX, MAKES_DG, MAKES_BOTH };
static const int8_t bwd_operand[][OPERANDS] = {
	[MAKES_DX] = { FO_RMSNORM_DX_X, FO_RMSNORM_DX_DY, FO_RMSNORM_DX_G, FO_RMSNORM_DX_DX, FO_RMSNORM_DX_DRES,
		       FO_RMSNORM_DX_RSTD, NONE },
	[MAKES_DG] = { FO_RMSNORM_DG_X, FO_RMSNORM_DG_DY, NONE, NONE, NONE, FO_RMSNORM_DG_RSTD, FO_RMSNORM_DG_DG },
	[MAKES_BOTH] = { FO_RMSNORM_BWD_X, FO_RMSNORM_BWD_DY, FO_RMSNORM_BWD_G, FO_RMSNORM_BWD_DX, FO_RMSNORM_BWD_DRES,
			 FO_RMSNORM_BWD_RSTD, FO_RMSNORM_BWD_DG },
};
static enum what what_of(const struct fo_call *s)
{
	if (s->kind == FO_OP_rmsnorm_dx)
		return MAKES_DX;
	return s->kind == FO_OP_rmsnorm_dg ? MAKES_DG : MAKES_BOTH;
}

/* Blocks that stride over pieces: as many as stay on the device at once, and no more than share the pieces evenly.
 * Threads that a multiprocessor holds by the registers of each (ptxas: 128 of norm_bwd_bf16_2, 80 of _1, 40 of
 * norm_dg_bf16_2). */
static uint32_t blocks_of(const struct fo_cuda *c, const struct fo_cuda_pieces *p, enum what what)
{
	const int64_t threads = p->width > SMALL ? p->team : THREADS, teams = threads / p->team;
	int64_t held = 1024; /* threads of a multiprocessor */
	if (what != MAKES_DG)
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
static fo_status norm_bwd_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	const struct fo_cuda_pieces p = pieces_bwd(s);
	const enum what what = what_of(s);
	*ws_bytes = what == MAKES_DX || p.width > WIDEST ? 0 : sizeof(float) * (size_t)p.width * blocks_of(c, &p, what);
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

/* Takes one element at a time: dg (NULL: none) before dx, which may lie over dy. */
static fo_status norm_bwd_any(struct fo_cuda_queue *q, const struct fo_cuda_norm_bwd_args *args,
			      const struct fo_tensor *dg, bool store)
{
	if (dg) {
		const struct fo_cuda_columns_args columns = { .x = args->x,
							      .rstd = args->rstd,
							      .dy = args->dy,
							      .out = fo_cuda_view_of(dg),
							      .pieces = args->pieces,
							      .add = !store };
		FO_TRY(fo_cuda_launch_blocks(q, FO_CUDA_FN_columns_any, blocks_for(args->pieces.width, COLUMNS_ANY),
					     &columns));
	}
	return args->dx.data ? fo_cuda_launch_blocks(q, FO_CUDA_FN_norm_dx_any, args->pieces.n, args) : FO_OK;
}

static fo_status norm_bwd(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	static const enum fo_cuda_function f[3][2][3] = {
		/* groups of a thread, type, what */
		{ { FO_CUDA_FN_norm_dx_bf16_1, FO_CUDA_FN_norm_dg_bf16_1, FO_CUDA_FN_norm_bwd_bf16_1 },
		  { FO_CUDA_FN_norm_dx_f32_1, FO_CUDA_FN_norm_dg_f32_1, FO_CUDA_FN_norm_bwd_f32_1 } },
		{ { FO_CUDA_FN_norm_dx_bf16_2, FO_CUDA_FN_norm_dg_bf16_2, FO_CUDA_FN_norm_bwd_bf16_2 },
		  { FO_CUDA_FN_norm_dx_f32_2, FO_CUDA_FN_norm_dg_f32_2, FO_CUDA_FN_norm_bwd_f32_2 } },
		{ { FO_CUDA_FN_norm_dx_bf16_4, FO_CUDA_FN_norm_dg_bf16_4, FO_CUDA_FN_norm_bwd_bf16_4 } },
	};
	const enum what what = what_of(c);
	const int dg_number = bwd_operand[what][DG];
	const struct fo_tensor *dg = what == MAKES_DX ? NULL : &c->arg[dg_number];
	const bool f32 = c->arg[FO_RMSNORM_X].dtype != FO_BF16, store = dg && fo_call_stores(c, dg_number);
	struct fo_cuda_norm_bwd_args args = { .partial = q->ws, .pieces = pieces_bwd(c) };
	fo_cuda_views(&args.x, c, bwd_operand[what], DG);
	const int32_t width = args.pieces.width;
	if (!is_fast(&args.x, RSTD, &args.rstd, width, f32 ? WIDE_BWD : WIDEST))
		return norm_bwd_any(q, &args, dg, store);
	struct fo_cuda_grid grid = { blocks_of(q->cuda, &args.pieces, what), 1, 1, THREADS, 0 };
	if (width > SMALL)
		grid.threads = (uint32_t)args.pieces.team;
	FO_TRY(fo_cuda_launch(q, f[groups_bwd(width) / 2][f32][what], grid, &args));
	return dg ? sum_partials(q, dg, grid.x, store) : FO_OK;
}
const struct fo_cuda_kernel fo_cuda_norm_bwd = {
	.by = "flatout", .cannot = norm_cannot, .prepare = norm_bwd_prepare, .run = norm_bwd
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
	struct fo_cuda_grid grid = { blocks_for(dy->cols, THREADS), blocks_for(dy->rows, args.rows_per_block), 1,
				     THREADS, 0 };
	if (!fo_cuda_in_eights(&args.dy, 1))
		return fo_cuda_launch_blocks(q, FO_CUDA_FN_columns_any, blocks_for(dy->cols, COLUMNS_ANY), &args);
	FO_TRY(fo_cuda_launch(q, dy->dtype == FO_BF16 ? FO_CUDA_FN_columns_bf16 : FO_CUDA_FN_columns_f32, grid, &args));
	return sum_partials(q, db, grid.y, store);
}
const struct fo_cuda_kernel fo_cuda_bias_grad = {
	.by = "flatout", .cannot = norm_cannot, .prepare = bias_grad_prepare, .run = bias_grad
};
