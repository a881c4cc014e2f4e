/* Launches of fp8_made.cu: what is made and cast at once. In other layouts and types it is made into the workspace by
 * the kernel of the operation that makes it, and cast from there. */
#include "kernel/cuda/cuda_int.h"

/* As in fp8_made.cu, fp8.cuh and norm.cu. */
enum {
	THREADS = 256,
	THREADS_NORM = 512,
	WARP = 32,
	WIDTH = 8,
	GROUP = 16,
	TILE = 128,
	NORM_GROUPS = 4,
	TEAMS_MOST = 16,
	NARROW = WARP * WIDTH,                       /* columns that parts of a warp norm */
	WIDEST = THREADS_NORM * NORM_GROUPS * WIDTH, /* and a block */
	STATIC_SHARED = 2048, /* bytes of shared memory that the kernels of norms have beside the strip, and more */
	ACCESS_BYTES = 16,
};

/* ---- one kernel ---- */

static bool at_16(const struct fo_tensor *t)
{
	const size_t bytes = fo_dtype_bytes(t->dtype);
	return (size_t)t->ld * bytes % ACCESS_BYTES == 0 && (uintptr_t)t->data % ACCESS_BYTES == 0;
}
/* The operands of one of these operations. Norms have rstd, additions c and b, the backward of SwiGLU dy; the cast's
 * operands follow from `step` on (FO_FP8_STEP_SX ...). */
struct form {
	enum fo_cuda_function f;
	const struct fo_cuda_kernel *make; /* makes the numbers where the one kernel does not take a call */
	int8_t x, b, dy, c, g, rstd, step; /* numbers of operands; -1: none */
};
static const struct form rmsnorm_form = { .f = FO_CUDA_FN_norm_fp8_bf16,
					  .make = &fo_cuda_rmsnorm,
					  .x = FO_RMSNORM_FP8_X,
					  .b = -1,
					  .dy = -1,
					  .c = -1,
					  .g = FO_RMSNORM_FP8_G,
					  .rstd = FO_RMSNORM_FP8_RSTD,
					  .step = FO_RMSNORM_FP8_SX };
static const struct form add_rmsnorm_form = { .f = FO_CUDA_FN_add_norm_fp8_bf16,
					      .make = &fo_cuda_add_rmsnorm,
					      .x = FO_ADD_RMSNORM_FP8_A,
					      .b = FO_ADD_RMSNORM_FP8_B,
					      .dy = -1,
					      .c = FO_ADD_RMSNORM_FP8_C,
					      .g = FO_ADD_RMSNORM_FP8_G,
					      .rstd = FO_ADD_RMSNORM_FP8_RSTD,
					      .step = FO_ADD_RMSNORM_FP8_SX };
static const struct form swiglu_form = { .f = FO_CUDA_FN_swiglu_fp8_bf16,
					 .make = &fo_cuda_swiglu,
					 .x = FO_SWIGLU_FP8_GATE,
					 .b = FO_SWIGLU_FP8_UP,
					 .dy = -1,
					 .c = -1,
					 .g = -1,
					 .rstd = -1,
					 .step = FO_SWIGLU_FP8_SX };
static const struct form swiglu_bwd_form = { .f = FO_CUDA_FN_swiglu_bwd_fp8_bf16,
					     .make = &fo_cuda_swiglu_bwd,
					     .x = FO_SWIGLU_BWD_FP8_GATE,
					     .b = FO_SWIGLU_BWD_FP8_UP,
					     .dy = FO_SWIGLU_BWD_FP8_DY,
					     .c = -1,
					     .g = -1,
					     .rstd = -1,
					     .step = FO_SWIGLU_BWD_FP8_SX };

/* Whether the one kernel takes a call: bf16, whole groups of 16, and for norms rows that are as wide as norm.cu's wide
 * kernels take them and whose strip finds room. Where data is not there yet (prepare) it will begin at 16 bytes:
 * buffers do, and so do rectangles of whole groups. */
static bool is_fast(const struct fo_cuda *c, const struct fo_call *s, const struct form *m)
{
	const struct fo_tensor *a = s->arg, *x = &a[m->x], *q = &a[m->step + FO_FP8_STEP_Y];
	const bool norm = m->rstd >= 0, turned = fo_call_has(s, m->step + FO_FP8_STEP_Z) && !fo_call_fp8_wide(s);
	const int numbers[] = { m->x, m->b, m->dy, m->c, m->g };
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (numbers[i] >= 0 && (a[numbers[i]].dtype != FO_BF16 || !at_16(&a[numbers[i]])))
			return false;
	if (!at_16(q) || (fo_call_has(s, m->step + FO_FP8_STEP_Z) && !at_16(&a[m->step + FO_FP8_STEP_Z])))
		return false;
	if (q->dtype != (m->dy >= 0 ? FO_E5M2 : FO_E4M3) || x->rows % GROUP || x->cols % GROUP)
		return false;
	return !norm || (a[m->rstd].dtype == FO_F32 && x->cols > NARROW && x->cols <= WIDEST &&
			 (!turned || x->cols * FO_CUDA_FP8_STRIP <= c->info.shared_per_block - STATIC_SHARED));
}

static fo_status fast_run(struct fo_cuda_queue *q, const struct fo_call *s, const struct form *m)
{
	const struct fo_tensor *a = s->arg, *x = &a[m->x];
	struct fo_cuda_fp8_made_args args = { .q = fo_cuda_view_of(&a[m->step + FO_FP8_STEP_Y]),
					      .eps = (float)s->attr.value };
	const struct {
		int operand;
		struct fo_cuda_view *to;
	} view[] = { { m->x, &args.x }, { m->b, &args.b }, { m->dy, &args.dy },
		     { m->c, &args.c }, { m->g, &args.g }, { m->rstd, &args.rstd } };
	struct fo_cuda_grid grid = { 0, 1, 1, THREADS, 0 };
	for (size_t i = 0; i < sizeof view / sizeof *view; i++)
		if (view[i].operand >= 0)
			*view[i].to = fo_cuda_view_of(&a[view[i].operand]);
	if (fo_call_has(s, m->step + FO_FP8_STEP_Z))
		*(fo_call_fp8_wide(s) ? &args.z : &args.qt) = fo_cuda_view_of(&a[m->step + FO_FP8_STEP_Z]);
	if (m->rstd < 0) {
		grid.x = (uint32_t)(fo_ceil_div(x->rows, TILE) * fo_ceil_div(x->cols, TILE));
	} else { /* teams as launch_norm.c makes them: sums have the same order */
		args.team = (int32_t)fo_round_up(fo_ceil_div(x->cols / WIDTH, NORM_GROUPS), WARP);
		args.teams = (int32_t)fo_min(THREADS_NORM / args.team, TEAMS_MOST);
		grid.x = (uint32_t)(x->rows / FO_CUDA_FP8_STRIP);
		grid.threads = (uint32_t)(args.team * args.teams);
		grid.shared_bytes = args.qt.data ? (uint32_t)x->cols * FO_CUDA_FP8_STRIP : 0;
	}
	FO_TRY(fo_cuda_fp8_step_args(q, s, grid.x, &args.step));
	return fo_cuda_fp8_step_launch(q, m->f, grid, &args, &args.step);
}

/* ---- two kernels ---- */

static size_t made_bytes(const struct fo_call *c)
{
	enum { ALIGNMENT = 256 };
	const struct fo_tensor *q = &c->arg[fo_op_fp8_step(c->kind) + FO_FP8_STEP_Y];
	if (fo_call_fp8_wide(c))
		return 0;
	return fo_round_up_bytes((size_t)(q->rows * q->cols) * fo_dtype_bytes(c->arg[FO_RMSNORM_FP8_X].dtype),
				 ALIGNMENT);
}
static const char *made_cannot(const struct fo_cuda *c, const struct fo_call *s, const struct form *m)
{
	struct fo_call make, cast;
	struct fo_tensor x;
	fo_call_fp8_make(s, NULL, &make, &x);
	cast = fo_call_fp8_cast(s, x);
	const char *why = m->make->cannot(c, &make);
	return why ? why : fo_cuda_fp8_cast_step.cannot(c, &cast);
}
static fo_status made_prepare(struct fo_cuda *c, const struct fo_call *s, const struct form *m, size_t *ws_bytes)
{
	struct fo_call make;
	struct fo_tensor x;
	size_t more = 0;
	*ws_bytes = 0;
	if (is_fast(c, s, m))
		return FO_OK;
	fo_call_fp8_make(s, NULL, &make, &x);
	if (m->make->prepare)
		FO_TRY(m->make->prepare(c, &make, 0, &more));
	*ws_bytes = made_bytes(s) + more;
	return FO_OK;
}
static fo_status made_run(struct fo_cuda_queue *q, const struct fo_call *s, const struct form *m)
{
	struct fo_call make, cast;
	struct fo_tensor x;
	struct fo_cuda_queue after = *q;
	if (is_fast(q->cuda, s, m))
		return fast_run(q, s, m);
	fo_call_fp8_make(s, q->ws, &make, &x);
	cast = fo_call_fp8_cast(s, x);
	if (q->ws_bytes < made_bytes(s))
		return fo_fail(FO_EBUG, "%s: a rectangle that does not begin at %d bytes", fo_op_info(s->kind)->name,
			       (int)ACCESS_BYTES);
	after.ws = (char *)q->ws + made_bytes(s);
	after.ws_bytes = q->ws_bytes - made_bytes(s);
	FO_TRY(m->make->run(&after, &make, 0));
	return fo_cuda_fp8_cast_step.run(q, &cast, 0);
}

#define MADE(name)                                                                                                     \
	static const char *name##_cannot(const struct fo_cuda *c, const struct fo_call *s)                             \
	{                                                                                                              \
		return made_cannot(c, s, &name##_form);                                                                \
	}                                                                                                              \
	static fo_status name##_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes) \
	{                                                                                                              \
		return made_prepare(c, s, &name##_form, ws_bytes);                                                     \
	}                                                                                                              \
	static fo_status name(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant)                       \
	{                                                                                                              \
		return made_run(q, s, &name##_form);                                                                   \
	}                                                                                                              \
	const struct fo_cuda_kernel fo_cuda_##name##_fp8 = {                                                           \
		.by = "flatout", .cannot = name##_cannot, .prepare = name##_prepare, .run = name                       \
	};
MADE(rmsnorm)
MADE(add_rmsnorm)
MADE(swiglu)
MADE(swiglu_bwd)
