/* Launches of fp8.cu and fp8_cast_t.cu. */
#include "kernel/cuda/cuda_int.h"

enum { THREADS = 256, WARPS = THREADS / 32, GROUP = 16, ACCESS_BYTES = 16 };
enum { TILE = 128 /* fp8.cuh */ };
enum { COLUMNS = 256 /* of a block that takes columns' maxima */, ROWS_EACH = 64 /* it sees at least: joining is little beside it */ };

static bool aligned(const struct fo_tensor *t, bool whole)
{
	return (uintptr_t)t->data % ACCESS_BYTES == 0 && (whole || (size_t)t->ld * fo_dtype_bytes(t->dtype) % ACCESS_BYTES == 0);
}

/* As one long row. */
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
	int64_t stripes = (x->cols + COLUMNS - 1) / COLUMNS, groups = (x->rows + ROWS_EACH - 1) / ROWS_EACH;
	int64_t blocks = fo_cuda_blocks(c, stripes * groups, 1);
	return (uint32_t)((blocks + stripes - 1) / stripes);
}

static fo_status all_launch(struct fo_cuda_queue *q, const struct fo_tensor *x, const float *history, int64_t steps)
{
	struct fo_tensor t = x->ld == x->cols ? joined(*x) : *x;
	const struct fo_cuda_amax_args args = { .x = fo_cuda_view_of(&t), .history = history, .steps = steps, .partial = q->ws,
						.aligned = aligned(x, t.rows == 1) };
	return fo_cuda_launch(q, x->dtype == FO_BF16 ? FO_CUDA_FN_amax_all_bf16 : FO_CUDA_FN_amax_all_f32,
			      (struct fo_cuda_grid){ all_blocks(q->cuda, x), 1, 1, THREADS, 0 }, &args);
}
static fo_status join_launch(struct fo_cuda_queue *q, uint32_t n, float *out, bool added)
{
	const struct fo_cuda_amax_join_args args = { .partial = q->ws, .n = n, .cols = 1, .out = out, .whole = 1, .added = added };
	return fo_cuda_launch(q, FO_CUDA_FN_amax_join, (struct fo_cuda_grid){ 1, 1, 1, THREADS, 0 }, &args);
}

static const char *amax_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	(void)c;
	return !fo_cuda_is_float(&s->arg[0]) ? "the operand is neither bf16 nor fp32" :
	       s->arg[1].dtype != FO_F32     ? "the maximum is not fp32" :
					       NULL;
}
static fo_status amax_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	(void)variant;
	const struct fo_tensor *x = &s->arg[0], *out = &s->arg[1];
	if (out->rows == 1 && out->cols == 1)
		*ws_bytes = all_blocks(c, x) * sizeof(uint32_t);
	else
		*ws_bytes = out->cols == 1 ? 0 : (size_t)column_groups(c, x) * (size_t)x->cols * sizeof(uint32_t);
	return FO_OK;
}
static fo_status amax(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	(void)variant;
	const struct fo_tensor *x = &c->arg[0], *out = &c->arg[1];
	bool bf16 = x->dtype == FO_BF16;
	if (out->rows == 1 && out->cols == 1) {
		FO_TRY(all_launch(q, x, NULL, 0));
		return join_launch(q, all_blocks(q->cuda, x), out->data, false);
	}
	const struct fo_cuda_amax_args args = { .x = fo_cuda_view_of(x), .partial = q->ws, .out = out->data, .out_ld = out->ld,
						.aligned = aligned(x, x->rows == 1) };
	if (out->cols == 1)
		return fo_cuda_launch(q, bf16 ? FO_CUDA_FN_amax_rows_bf16 : FO_CUDA_FN_amax_rows_f32,
				      (struct fo_cuda_grid){ fo_cuda_blocks(q->cuda, x->rows, WARPS), 1, 1, THREADS, 0 }, &args);
	uint32_t stripes = (uint32_t)((x->cols + COLUMNS - 1) / COLUMNS), groups = column_groups(q->cuda, x);
	const struct fo_cuda_amax_join_args join = { .partial = q->ws, .n = groups, .cols = x->cols, .out = out->data };
	FO_TRY(fo_cuda_launch(q, bf16 ? FO_CUDA_FN_amax_cols_bf16 : FO_CUDA_FN_amax_cols_f32,
			      (struct fo_cuda_grid){ stripes, groups, 1, THREADS, 0 }, &args));
	return fo_cuda_launch(q, FO_CUDA_FN_amax_join, (struct fo_cuda_grid){ stripes, 1, 1, THREADS, 0 }, &join);
}
const struct fo_cuda_kernel fo_cuda_amax = { .by = "flatout", .cannot = amax_cannot, .prepare = amax_prepare, .run = amax };
_Static_assert((int)COLUMNS == (int)THREADS, "a block's columns are its threads where they are joined");

/* ---- scales ---- */

static bool from_history(const struct fo_call *c)
{
	return c->arg[0].rows != c->arg[1].rows || c->arg[0].cols != c->arg[1].cols || c->n > 2;
}
static const char *scale_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	(void)c;
	if (s->arg[0].dtype != FO_F32 || s->arg[1].dtype != FO_F32)
		return "maxima or scales are not fp32";
	if (s->n > 2 && !fo_cuda_is_float(&s->arg[2]))
		return "the operand is neither bf16 nor fp32";
	return from_history(s) && s->arg[0].rows != 1 ? "the history has several rows" : NULL;
}
static fo_status scale_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	(void)variant;
	*ws_bytes = s->n > 2 ? all_blocks(c, &s->arg[2]) * sizeof(uint32_t) : 0;
	return FO_OK;
}
static fo_status fp8_scale(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	(void)variant;
	const struct fo_tensor *top = &c->arg[0], *out = &c->arg[1];
	struct fo_cuda_fp8_scale_args args = { .amax = fo_cuda_view_of(top), .out = fo_cuda_view_of(out), .largest = (float)c->attr.value,
					       .history = from_history(c), .power = c->attr.sign != 0 };
	struct fo_cuda_grid grid = { args.history ? 1 : fo_cuda_blocks(q->cuda, out->rows * out->cols, THREADS), 1, 1, THREADS, 0 };
	if (c->n > 2) {
		args.partial = q->ws;
		args.blocks = all_blocks(q->cuda, &c->arg[2]);
		FO_TRY(all_launch(q, &c->arg[2], top->data, top->cols));
	}
	return fo_cuda_launch(q, FO_CUDA_FN_fp8_scale, grid, &args);
}
const struct fo_cuda_kernel fo_cuda_fp8_scale = { .by = "flatout", .cannot = scale_cannot, .prepare = scale_prepare, .run = fp8_scale };

/* ---- casts ---- */

static const char *cast_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	(void)c;
	if (!fo_cuda_is_float(&s->arg[0]))
		return "the operand is neither bf16 nor fp32";
	if (s->arg[1].dtype != FO_F32 || (s->n > 3 && s->arg[3].dtype != FO_F32))
		return "scale or maximum is not fp32";
	return fo_dtype_fp8(s->arg[2].dtype) ? NULL : "the result is not fp8";
}
static fo_status cast_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	(void)variant;
	*ws_bytes = s->n > 3 ? all_blocks(c, &s->arg[0]) * sizeof(uint32_t) : 0;
	return FO_OK;
}
static fo_status fp8_cast(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	(void)variant;
	enum { ONE, ONE_MAX, ROWS, COLS };
#define CASTS(from, to) { FO_CUDA_FN_fp8_cast_##from##_##to##_one, FO_CUDA_FN_fp8_cast_##from##_##to##_one_max,                \
			  FO_CUDA_FN_fp8_cast_##from##_##to##_rows, FO_CUDA_FN_fp8_cast_##from##_##to##_cols }
	static const enum fo_cuda_function functions[2][2][4] = { { CASTS(f32, e4m3), CASTS(f32, e5m2) },
								  { CASTS(bf16, e4m3), CASTS(bf16, e5m2) } };
#undef CASTS
	const struct fo_tensor *x = &c->arg[0], *scale = &c->arg[1], *y = &c->arg[2];
	int scales = scale->cols > 1 ? COLS : scale->rows > 1 ? ROWS : c->n > 3 ? ONE_MAX : ONE;
	bool whole = scales <= ONE_MAX && x->ld == x->cols && y->ld == y->cols;
	struct fo_tensor from = whole ? joined(*x) : *x, to = whole ? joined(*y) : *y;
	const struct fo_cuda_fp8_cast_args args = { .x = fo_cuda_view_of(&from), .y = fo_cuda_view_of(&to), .scale = scale->data,
						    .scale_ld = scale->ld, .partial = q->ws,
						    .aligned = aligned(x, from.rows == 1) && aligned(y, from.rows == 1) };
	if (c->n > 3 && scales != ONE_MAX) /* a maximum beside scales of lines: no pass asks for it, so it has no kernel of its own */
		FO_TRY(all_launch(q, x, NULL, 0));
	FO_TRY(fo_cuda_launch(q, functions[x->dtype == FO_BF16][y->dtype == FO_E5M2][scales],
			      (struct fo_cuda_grid){ all_blocks(q->cuda, x), 1, 1, THREADS, 0 }, &args));
	return c->n > 3 ? join_launch(q, all_blocks(q->cuda, x), c->arg[3].data, !(c->first >> 3 & 1)) : FO_OK;
}
const struct fo_cuda_kernel fo_cuda_fp8_cast = { .by = "flatout", .cannot = cast_cannot, .prepare = cast_prepare, .run = fp8_cast };

static int64_t tiles(const struct fo_tensor *x) { return ((x->rows + TILE - 1) / TILE) * ((x->cols + TILE - 1) / TILE); }
static const char *cast_t_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	(void)c;
	if (!fo_cuda_is_float(&s->arg[0]))
		return "the operand is neither bf16 nor fp32";
	if (s->arg[1].dtype != FO_F32 || (s->n > 4 && s->arg[4].dtype != FO_F32))
		return "scale or maximum is not fp32";
	if (tiles(&s->arg[0]) > INT32_MAX)
		return "the operand has more tiles than a grid has blocks";
	return fo_dtype_fp8(s->arg[2].dtype) && s->arg[3].dtype == s->arg[2].dtype ? NULL : "the results are not fp8 of one kind";
}
static fo_status cast_t_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	(void)c, (void)variant;
	*ws_bytes = s->n > 4 ? (size_t)tiles(&s->arg[0]) * sizeof(uint32_t) : 0;
	return FO_OK;
}
static fo_status fp8_cast_t(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	(void)variant;
	static const enum fo_cuda_function functions[2][2] = { { FO_CUDA_FN_fp8_cast_t_f32_e4m3, FO_CUDA_FN_fp8_cast_t_f32_e5m2 },
							       { FO_CUDA_FN_fp8_cast_t_bf16_e4m3, FO_CUDA_FN_fp8_cast_t_bf16_e5m2 } };
	const struct fo_tensor *x = &c->arg[0], *y = &c->arg[2], *yt = &c->arg[3];
	bool wide = aligned(x, x->rows == 1) && aligned(y, y->rows == 1) && aligned(yt, yt->rows == 1) && x->rows % GROUP == 0 &&
		    x->cols % GROUP == 0;
	const struct fo_cuda_fp8_cast_t_args args = { .x = fo_cuda_view_of(x), .y = fo_cuda_view_of(y), .yt = fo_cuda_view_of(yt),
						      .scale = c->arg[1].data, .partial = c->n > 4 ? q->ws : NULL };
	FO_TRY(fo_cuda_launch(q, wide ? functions[x->dtype == FO_BF16][y->dtype == FO_E5M2] : FO_CUDA_FN_fp8_cast_t_any,
			      (struct fo_cuda_grid){ (uint32_t)tiles(x), 1, 1, THREADS, 0 }, &args));
	return c->n > 4 ? join_launch(q, (uint32_t)tiles(x), c->arg[4].data, !(c->first >> 4 & 1)) : FO_OK;
}
const struct fo_cuda_kernel fo_cuda_fp8_cast_t = { .by = "flatout", .cannot = cast_t_cannot, .prepare = cast_t_prepare, .run = fp8_cast_t };

/* ---- histories ---- */

static const char *push_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	(void)c;
	return s->arg[0].dtype == FO_F32 && s->arg[1].dtype == FO_F32 ? NULL : "maxima are not fp32";
}
static fo_status fp8_push(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	(void)variant;
	const struct fo_cuda_fp8_push_args args = { c->arg[0].data, c->arg[0].ld, fo_cuda_view_of(&c->arg[1]), c->arg[2].data };
	return fo_cuda_launch(q, FO_CUDA_FN_fp8_push, (struct fo_cuda_grid){ (uint32_t)c->arg[1].rows, 1, 1, THREADS, 0 }, &args);
}
const struct fo_cuda_kernel fo_cuda_fp8_push = { .by = "flatout", .cannot = push_cannot, .run = fp8_push };
