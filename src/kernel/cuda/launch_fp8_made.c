/* Launches of fp8_made.cu: results that are made and cast at once. In other layouts and types the operation's own
 * kernel makes them into the workspace, and they are cast from there. */
#include "kernel/cuda/cuda_int.h"

/* Sizes of fp8_made.cu, fp8.cuh and norm.cu. */
enum {
	THREADS = FO_CUDA_THREADS,
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
	NONE = -1,            /* an operand that an operation does not have */
};

/* An operation: its kernel, the kernel that makes the numbers where that one does not take a call, and its
 * operands in the order of the arguments' views. The cast's operands follow from fo_op_fp8_step on. */
enum { X, B, DY, C, G, RSTD, VIEWS };
static const struct form {
	enum fo_op_kind kind;
	enum fo_cuda_function f;
	const struct fo_cuda_kernel *make;
	int8_t operand[VIEWS];
} forms[] = {
	{ FO_OP_rmsnorm_fp8,
	  FO_CUDA_FN_norm_fp8_bf16,
	  &fo_cuda_norm,
	  { FO_RMSNORM_FP8_X, NONE, NONE, NONE, FO_RMSNORM_FP8_G, FO_RMSNORM_FP8_RSTD } },
	{ FO_OP_add_rmsnorm_fp8,
	  FO_CUDA_FN_add_norm_fp8_bf16,
	  &fo_cuda_norm,
	  { FO_ADD_RMSNORM_FP8_A, FO_ADD_RMSNORM_FP8_B, NONE, FO_ADD_RMSNORM_FP8_C, FO_ADD_RMSNORM_FP8_G,
	    FO_ADD_RMSNORM_FP8_RSTD } },
	{ FO_OP_swiglu_fp8,
	  FO_CUDA_FN_swiglu_fp8_bf16,
	  &fo_cuda_map,
	  { FO_SWIGLU_FP8_GATE, FO_SWIGLU_FP8_UP, NONE, NONE, NONE, NONE } },
	{ FO_OP_swiglu_bwd_fp8,
	  FO_CUDA_FN_swiglu_bwd_fp8_bf16,
	  &fo_cuda_map,
	  { FO_SWIGLU_BWD_FP8_GATE, FO_SWIGLU_BWD_FP8_UP, FO_SWIGLU_BWD_FP8_DY, NONE, NONE, NONE } },
};
static const struct form *form_of(const struct fo_call *s)
{
	const struct form *m = forms;
	while (m->kind != s->kind)
		m++;
	return m;
}

/* ---- one kernel ---- */

/* Whether the one kernel takes a call: bf16, whole groups of 16, and for norms rows that are as wide as norm.cu's wide
 * kernels take them and whose strip finds room. Where data is not there yet (prepare) it will begin at 16 bytes:
 * buffers do, and so do rectangles of whole groups. */
static bool is_fast(const struct fo_cuda *c, const struct fo_call *s, const struct form *m)
{
	const int step = fo_op_fp8_step(s->kind);
	const struct fo_tensor *a = s->arg, *x = &a[m->operand[X]], *q = &a[step + FO_FP8_STEP_Y];
	const bool norm = m->operand[RSTD] >= 0, has_z = fo_call_has(s, step + FO_FP8_STEP_Z);
	for (int i = X; i < RSTD; i++)
		if (m->operand[i] >= 0 &&
		    (a[m->operand[i]].dtype != FO_BF16 || !fo_cuda_aligned(&a[m->operand[i]], false)))
			return false;
	if (!fo_cuda_aligned(q, false) || (has_z && !fo_cuda_aligned(&a[step + FO_FP8_STEP_Z], false)))
		return false;
	if (q->dtype != (m->operand[DY] >= 0 ? FO_E5M2 : FO_E4M3) || x->rows % GROUP || x->cols % GROUP)
		return false;
	return !norm || (a[m->operand[RSTD]].dtype == FO_F32 && x->cols > NARROW && x->cols <= WIDEST &&
			 (!has_z || fo_call_fp8_wide(s) ||
			  x->cols * FO_CUDA_FP8_STRIP <= c->info.shared_per_block - STATIC_SHARED));
}

static fo_status fast_run(struct fo_cuda_queue *q, const struct fo_call *s, const struct form *m)
{
	const int step = fo_op_fp8_step(s->kind);
	const struct fo_tensor *x = &s->arg[m->operand[X]];
	struct fo_cuda_fp8_made_args args = { .q = fo_cuda_view_of(&s->arg[step + FO_FP8_STEP_Y]),
					      .eps = (float)s->attr.value };
	struct fo_cuda_grid grid = { 0, 1, 1, THREADS, 0 };
	fo_cuda_views(&args.x, s, m->operand, VIEWS);
	if (fo_call_has(s, step + FO_FP8_STEP_Z))
		*(fo_call_fp8_wide(s) ? &args.z : &args.qt) = fo_cuda_view_of(&s->arg[step + FO_FP8_STEP_Z]);
	if (m->operand[RSTD] < 0) {
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
static const char *made_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	struct fo_call make, cast;
	struct fo_tensor x;
	fo_call_fp8_make(s, NULL, &make, &x);
	cast = fo_call_fp8_cast(s, x);
	const char *why = form_of(s)->make->cannot(c, &make);
	return why ? why : fo_cuda_fp8_cast_step.cannot(c, &cast);
}
static fo_status made_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	const bool fast = is_fast(c, s, form_of(s)); /* norms and maps need no workspace of their own */
	*ws_bytes = fast ? 0 : made_bytes(s);
	return FO_OK;
}
static fo_status made(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant)
{
	const struct form *m = form_of(s);
	struct fo_call make, cast;
	struct fo_tensor x;
	if (is_fast(q->cuda, s, m))
		return fast_run(q, s, m);
	fo_call_fp8_make(s, q->ws, &make, &x);
	cast = fo_call_fp8_cast(s, x);
	if (q->ws_bytes < made_bytes(s))
		return fo_fail(FO_EBUG, "%s: a rectangle that does not begin at 16 bytes", fo_op_info(s->kind)->name);
	FO_TRY(m->make->run(q, &make, 0));
	return fo_cuda_fp8_cast_step.run(q, &cast, 0);
}
const struct fo_cuda_kernel fo_cuda_fp8_made = {
	.by = "flatout", .cannot = made_cannot, .prepare = made_prepare, .run = made
};
