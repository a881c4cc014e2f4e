/* Launches of fp8.cu and fp8_cast_t.cu. */
#include "kernel/cuda/cuda_int.h"

/* TILE: fp8.cuh. A block that takes columns' maxima has COLUMNS of them and sees at least ROWS_EACH rows: joining is
 * little beside it. */
enum { THREADS = FO_CUDA_THREADS, WARPS = THREADS / 32, GROUP = 16, TILE = 128, COLUMNS = THREADS, ROWS_EACH = 64 };

/* The tensor as one long row. */
static struct fo_tensor joined(struct fo_tensor t)
{
	t.cols = t.ld = t.rows * t.cols;
	t.rows = 1;
	return t;
}

/* ---- maxima ---- */

/* Blocks that look at all of x, each leaving one number, whatever the gaps between its rows. */
static uint32_t all_blocks(const struct fo_cuda *c, const struct fo_tensor *x)
{
	return fo_cuda_blocks(c, x->rows * x->cols, THREADS * GROUP);
}
static uint32_t column_groups(const struct fo_cuda *c, const struct fo_tensor *x)
{
	int64_t stripes = fo_ceil_div(x->cols, COLUMNS), groups = fo_ceil_div(x->rows, ROWS_EACH);
	int64_t blocks = fo_cuda_blocks(c, stripes * groups, 1);
	return (uint32_t)fo_ceil_div(blocks, stripes);
}

static const char *amax_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	if (!fo_cuda_is_float(&s->arg[FO_AMAX_X]))
		return "the operand is neither bf16 nor fp32";
	return s->arg[FO_AMAX_AMAX].dtype == FO_F32 ? NULL : "the maximum is not fp32";
}
static fo_status amax_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	const struct fo_tensor *x = &s->arg[FO_AMAX_X], *out = &s->arg[FO_AMAX_AMAX];
	if (out->rows == 1 && out->cols == 1)
		*ws_bytes = all_blocks(c, x) * sizeof(uint32_t);
	else
		*ws_bytes = out->cols == 1 ? 0 : (size_t)column_groups(c, x) * (size_t)x->cols * sizeof(uint32_t);
	return FO_OK;
}
static fo_status amax(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct fo_tensor *x = &c->arg[FO_AMAX_X], *out = &c->arg[FO_AMAX_AMAX];
	const bool bf16 = x->dtype == FO_BF16, all = out->rows == 1 && out->cols == 1;
	const struct fo_tensor t = all && x->ld == x->cols ? joined(*x) : *x;
	const struct fo_cuda_amax_args args = { .x = fo_cuda_view_of(&t),
						.partial = q->ws,
						.out = out->data,
						.out_ld = out->ld,
						.aligned = fo_cuda_aligned(x, t.rows == 1) };
	struct fo_cuda_amax_join_args join = { .partial = q->ws, .cols = 1, .out = out->data, .whole = all };
	uint32_t stripes = 1;
	if (all) {
		join.n = all_blocks(q->cuda, x);
		FO_TRY(fo_cuda_launch_blocks(q, bf16 ? FO_CUDA_FN_amax_all_bf16 : FO_CUDA_FN_amax_all_f32, join.n,
					     &args));
	} else if (out->cols == 1) {
		return fo_cuda_launch_blocks(q, bf16 ? FO_CUDA_FN_amax_rows_bf16 : FO_CUDA_FN_amax_rows_f32,
					     fo_cuda_blocks(q->cuda, x->rows, WARPS), &args);
	} else {
		stripes = (uint32_t)fo_ceil_div(x->cols, COLUMNS);
		join.n = column_groups(q->cuda, x), join.cols = x->cols;
		FO_TRY(fo_cuda_launch(q, bf16 ? FO_CUDA_FN_amax_cols_bf16 : FO_CUDA_FN_amax_cols_f32,
				      (struct fo_cuda_grid){ stripes, (uint32_t)join.n, 1, THREADS, 0 }, &args));
	}
	return fo_cuda_launch_blocks(q, FO_CUDA_FN_amax_join, stripes, &join);
}
const struct fo_cuda_kernel fo_cuda_amax = {
	.by = "flatout", .cannot = amax_cannot, .prepare = amax_prepare, .run = amax
};

/* ---- scales ---- */

static const char *scale_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	return s->arg[FO_FP8_SCALE_AMAX].dtype == FO_F32 && s->arg[FO_FP8_SCALE_SX].dtype == FO_F32
		       ? NULL
		       : "maxima or scales are not fp32";
}
static fo_status fp8_scale(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct fo_tensor *top = &c->arg[FO_FP8_SCALE_AMAX], *out = &c->arg[FO_FP8_SCALE_SX];
	const struct fo_cuda_fp8_scale_args args = { .amax = fo_cuda_view_of(top),
						     .out = fo_cuda_view_of(out),
						     .largest = (float)c->attr.value,
						     .power = c->attr.sign != 0 };
	return fo_cuda_launch_each(q, FO_CUDA_FN_fp8_scale, out->rows * out->cols, &args);
}
const struct fo_cuda_kernel fo_cuda_fp8_scale = { .by = "flatout", .cannot = scale_cannot, .run = fp8_scale };

/* Histories of all tensors in one launch. */
static const char *begin_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	for (int i = 0; i < s->n; i++)
		if (s->arg[i].dtype != FO_F32)
			return "maxima are not fp32";
	return NULL;
}
static fo_status fp8_begin(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	struct fo_cuda_fp8_begin_args args = { 0 };
	int n = fo_op_tensors(c->kind, c->n);
	int64_t rows = 0;
	for (int k = 0; k < n; k++) {
		const struct fo_call one = fo_call_one(c, k);
		args.history[k] = fo_cuda_view_of(&one.arg[FO_FP8_BEGIN_HISTORY]);
		args.amax[k] = fo_cuda_view_of(&one.arg[FO_FP8_BEGIN_AMAX]);
		rows = fo_max(rows, one.arg[FO_FP8_BEGIN_HISTORY].rows);
	}
	return fo_cuda_launch(q, FO_CUDA_FN_fp8_begin,
			      (struct fo_cuda_grid){ (uint32_t)rows, (uint32_t)n, 1, THREADS, 0 }, &args);
}
const struct fo_cuda_kernel fo_cuda_fp8_begin = { .by = "flatout", .cannot = begin_cannot, .run = fp8_begin };
_Static_assert((int)FO_CUDA_FP8_HISTORIES >= (int)FO_MAX_OPERANDS / 2, "room for all tensors of fp8_begin_many");
_Static_assert((int)FO_CUDA_AMAX_WORDS == (int)FO_FP8_AMAX_COLS, "device code knows the columns of amax");

/* ---- casts ---- */

static const char *cast_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	if (!fo_cuda_is_float(&s->arg[FO_FP8_CAST_X]))
		return "the operand is neither bf16 nor fp32";
	if (s->arg[FO_FP8_CAST_SX].dtype != FO_F32)
		return "the scale is not fp32";
	return fo_dtype_fp8(s->arg[FO_FP8_CAST_Y].dtype) ? NULL : "the result is not fp8";
}
/* x and y become one long row each where neither has gaps and there is one scale. */
static struct fo_cuda_fp8_cast_args cast_args(const struct fo_tensor *x, const struct fo_tensor *y, bool one)
{
	const bool whole = one && x->ld == x->cols && y->ld == y->cols;
	const struct fo_tensor from = whole ? joined(*x) : *x;
	const struct fo_tensor to = whole ? joined(*y) : *y;
	return (struct fo_cuda_fp8_cast_args){ .x = fo_cuda_view_of(&from),
					       .y = fo_cuda_view_of(&to),
					       .aligned = fo_cuda_aligned(x, from.rows == 1) &&
							  fo_cuda_aligned(y, from.rows == 1) };
}
static fo_status fp8_cast(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	enum { ONE, ROWS, COLS };
#define CASTS(from, to)                                                                            \
	{                                                                                          \
		FO_CUDA_FN_fp8_cast_##from##_##to##_one, FO_CUDA_FN_fp8_cast_##from##_##to##_rows, \
			FO_CUDA_FN_fp8_cast_##from##_##to##_cols                                   \
	}
	static const enum fo_cuda_function functions[2][2][3] = { { CASTS(f32, e4m3), CASTS(f32, e5m2) },
								  { CASTS(bf16, e4m3), CASTS(bf16, e5m2) } };
#undef CASTS
	const struct fo_tensor *x = &c->arg[FO_FP8_CAST_X], *scale = &c->arg[FO_FP8_CAST_SX],
			       *y = &c->arg[FO_FP8_CAST_Y];
	int scales = scale->rows > 1 ? ROWS : ONE;
	if (scale->cols > 1)
		scales = COLS;
	struct fo_cuda_fp8_cast_args args = cast_args(x, y, scales == ONE);
	args.scale = scale->data;
	args.scale_ld = scale->ld;
	return fo_cuda_launch_blocks(q, functions[x->dtype == FO_BF16][y->dtype == FO_E5M2][scales],
				     all_blocks(q->cuda, x), &args);
}
const struct fo_cuda_kernel fo_cuda_fp8_cast = { .by = "flatout", .cannot = cast_cannot, .run = fp8_cast };

static int64_t tiles(const struct fo_tensor *x) { return fo_ceil_div(x->rows, TILE) * fo_ceil_div(x->cols, TILE); }
static const char *cast_t_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	if (tiles(&s->arg[FO_FP8_CAST_T_X]) > INT32_MAX)
		return "the operand has more tiles than a grid has blocks";
	return s->arg[FO_FP8_CAST_T_YT].dtype == s->arg[FO_FP8_CAST_T_Y].dtype ? cast_cannot(c, s)
									       : "the results are not fp8 of one kind";
}
/* 16 elements at once; else any layout. */
static bool is_wide(const struct fo_tensor *x, const struct fo_tensor *y, const struct fo_tensor *yt)
{
	return fo_cuda_aligned(x, x->rows == 1) && fo_cuda_aligned(y, y->rows == 1) &&
	       fo_cuda_aligned(yt, yt->rows == 1) && x->rows % GROUP == 0 && x->cols % GROUP == 0;
}
static struct fo_cuda_fp8_cast_t_args cast_t_args(const struct fo_tensor *x, const struct fo_tensor *y,
						  const struct fo_tensor *yt)
{
	return (struct fo_cuda_fp8_cast_t_args){ .x = fo_cuda_view_of(x),
						 .y = fo_cuda_view_of(y),
						 .yt = fo_cuda_view_of(yt) };
}
static fo_status fp8_cast_t(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	static const enum fo_cuda_function functions[2][2] = {
		{ FO_CUDA_FN_fp8_cast_t_f32_e4m3, FO_CUDA_FN_fp8_cast_t_f32_e5m2 },
		{ FO_CUDA_FN_fp8_cast_t_bf16_e4m3, FO_CUDA_FN_fp8_cast_t_bf16_e5m2 }
	};
	const struct fo_tensor *x = &c->arg[FO_FP8_CAST_T_X], *y = &c->arg[FO_FP8_CAST_T_Y],
			       *yt = &c->arg[FO_FP8_CAST_T_YT];
	struct fo_cuda_fp8_cast_t_args args = cast_t_args(x, y, yt);
	args.scale = c->arg[FO_FP8_CAST_T_SX].data;
	return fo_cuda_launch_blocks(
		q, is_wide(x, y, yt) ? functions[x->dtype == FO_BF16][y->dtype == FO_E5M2] : FO_CUDA_FN_fp8_cast_t_any,
		tiles(x), &args);
}
const struct fo_cuda_kernel fo_cuda_fp8_cast_t = { .by = "flatout", .cannot = cast_t_cannot, .run = fp8_cast_t };

/* ---- casts by the scale of the step ---- */

static const char *cast_step_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	if (!fo_cuda_is_float(&s->arg[FO_FP8_CAST_STEP_X]))
		return "the operand is neither bf16 nor fp32";
	if (s->arg[FO_FP8_CAST_STEP_SX].dtype != FO_F32 || s->arg[FO_FP8_CAST_STEP_AMAX].dtype != FO_F32)
		return "scale or maximum is not fp32";
	if (tiles(&s->arg[FO_FP8_CAST_STEP_X]) > INT32_MAX)
		return "the operand has more tiles than a grid has blocks";
	return fo_dtype_fp8(s->arg[FO_FP8_CAST_STEP_Y].dtype) &&
			       (!fo_call_has(s, FO_FP8_CAST_STEP_YT) ||
				s->arg[FO_FP8_CAST_STEP_YT].dtype == s->arg[FO_FP8_CAST_STEP_Y].dtype)
		       ? NULL
		       : "the results are not fp8 of one kind";
}
fo_status fo_cuda_fp8_step_args(struct fo_cuda_queue *q, const struct fo_call *c, uint32_t parts,
				struct fo_cuda_fp8_step *out)
{
	const int at = fo_op_fp8_step(c->kind), amax = at + FO_FP8_STEP_AMAX;
	const bool e5m2 = c->arg[at + FO_FP8_STEP_Y].dtype == FO_E5M2;
	*out = (struct fo_cuda_fp8_step){ .amax = c->arg[amax].data,
					  .sx = c->arg[at + FO_FP8_STEP_SX].data,
					  .parts = parts,
					  .largest = e5m2 ? (float)FO_E5M2_MAX : (float)FO_E4M3_MAX };
	if (!fo_call_stores(c, amax))
		return FO_OK;
	/* Without fp8_begin before it: no history. */
	return fo_cuda_fill(q->cuda, out->amax, 0, FO_FP8_AMAX_COLS * sizeof(float), q->stream);
}
/* The second launch has a block for each multiprocessor at most: in all steps but the first it has nothing to do, and
 * few blocks end sooner than many. */
fo_status fo_cuda_fp8_step_launch(struct fo_cuda_queue *q, enum fo_cuda_function f, struct fo_cuda_grid grid,
				  const void *args, struct fo_cuda_fp8_step *step)
{
	const uint32_t few = (uint32_t)q->cuda->info.multiprocessors;
	FO_TRY(fo_cuda_launch(q, f, grid, args));
	step->second = 1;
	grid.x = grid.x < few ? grid.x : few;
	return fo_cuda_launch(q, f, grid, args);
}
static fo_status fp8_cast_step(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
#define CASTS(from)                                                                                      \
	{                                                                                                \
		{ FO_CUDA_FN_fp8_cast_step_##from##_e4m3, FO_CUDA_FN_fp8_cast_step_t_##from##_e4m3 },    \
		{                                                                                        \
			FO_CUDA_FN_fp8_cast_step_##from##_e5m2, FO_CUDA_FN_fp8_cast_step_t_##from##_e5m2 \
		}                                                                                        \
	}
	static const enum fo_cuda_function functions[2][2][2] = { CASTS(f32), CASTS(bf16) };
#undef CASTS
	const struct fo_tensor *x = &c->arg[FO_FP8_CAST_STEP_X], *y = &c->arg[FO_FP8_CAST_STEP_Y],
			       *yt = fo_call_has(c, FO_FP8_CAST_STEP_YT) ? &c->arg[FO_FP8_CAST_STEP_YT] : NULL;
	enum fo_cuda_function f = functions[x->dtype == FO_BF16][y->dtype == FO_E5M2][yt != NULL];
	struct fo_cuda_grid grid = { yt ? (uint32_t)tiles(x) : all_blocks(q->cuda, x), 1, 1, THREADS, 0 };
	if (!yt) {
		struct fo_cuda_fp8_cast_step_args args = { .cast = cast_args(x, y, true) };
		FO_TRY(fo_cuda_fp8_step_args(q, c, grid.x, &args.step));
		return fo_cuda_fp8_step_launch(q, f, grid, &args, &args.step);
	}
	struct fo_cuda_fp8_cast_step_t_args args = { .cast = cast_t_args(x, y, yt) };
	FO_TRY(fo_cuda_fp8_step_args(q, c, grid.x, &args.step));
	return fo_cuda_fp8_step_launch(q, is_wide(x, y, yt) ? f : FO_CUDA_FN_fp8_cast_step_t_any, grid, &args,
				       &args.step);
}
const struct fo_cuda_kernel fo_cuda_fp8_cast_step = { .by = "flatout",
						      .cannot = cast_step_cannot,
						      .run = fp8_cast_step };

/* ---- histories ---- */

static const char *push_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	return s->arg[FO_FP8_PUSH_AMAX].dtype == FO_F32 && s->arg[FO_FP8_PUSH_HISTORY].dtype == FO_F32
		       ? NULL
		       : "maxima are not fp32";
}
static fo_status fp8_push(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	const struct fo_cuda_fp8_push_args args = { c->arg[FO_FP8_PUSH_AMAX].data, c->arg[FO_FP8_PUSH_AMAX].ld,
						    fo_cuda_view_of(&c->arg[FO_FP8_PUSH_HISTORY]),
						    c->arg[FO_FP8_PUSH_SCALE].data };
	return fo_cuda_launch_blocks(q, FO_CUDA_FN_fp8_push, args.history.rows, &args);
}
const struct fo_cuda_kernel fo_cuda_fp8_push = { .by = "flatout", .cannot = push_cannot, .run = fp8_push };
