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
/* Where data is not there yet (prepare) it will begin at 16 bytes: buffers do, and so do rectangles of whole groups.
 * bf16, whole groups of 16, and for norms rows that are as wide as norm.cu's wide kernels take them and whose strip
 * finds room. */
static bool is_fast(const struct fo_cuda *c, const struct fo_call *s)
{
	const int at = fo_op_fp8_step(s->kind);
	const struct fo_tensor *x = &s->arg[0], *rstd = &s->arg[at - 1];
	const bool norm = s->kind == FO_OP_rmsnorm_fp8 || s->kind == FO_OP_add_rmsnorm_fp8,
		   turned = s->n > at + 3 && !fo_call_fp8_wide(s);
	for (int i = 0; i < s->n; i++) {
		const struct fo_tensor *t = &s->arg[i];
		const bool number = i < at && !(norm && i == at - 1);
		if ((number && t->dtype != FO_BF16) || ((number || i == at + 1 || i == at + 3) && !at_16(t)))
			return false;
	}
	if (s->arg[at + 1].dtype != (s->kind == FO_OP_swiglu_bwd_fp8 ? FO_E5M2 : FO_E4M3) || x->rows % GROUP ||
	    x->cols % GROUP)
		return false;
	return !norm || (rstd->dtype == FO_F32 && x->cols > NARROW && x->cols <= WIDEST &&
			 (!turned || x->cols * FO_CUDA_FP8_STRIP <= c->info.shared_per_block - STATIC_SHARED));
}

static int64_t tiles(const struct fo_tensor *x)
{
	return ((x->rows + TILE - 1) / TILE) * ((x->cols + TILE - 1) / TILE);
}

static fo_status fast_run(struct fo_cuda_queue *q, const struct fo_call *s)
{
	const int at = fo_op_fp8_step(s->kind);
	const struct fo_tensor *a = s->arg, *z = s->n > at + 3 ? &a[at + 3] : NULL;
	struct fo_cuda_fp8_made_args args = { .x = fo_cuda_view_of(&a[0]),
					      .q = fo_cuda_view_of(&a[at + 1]),
					      .eps = (float)s->attr.value };
	struct fo_cuda_grid grid = { (uint32_t)(a[0].rows / FO_CUDA_FP8_STRIP), 1, 1, THREADS, 0 };
	enum fo_cuda_function f = FO_CUDA_FN_norm_fp8_bf16;
	if (z)
		*(fo_call_fp8_wide(s) ? &args.z : &args.qt) = fo_cuda_view_of(z);
	if (s->kind == FO_OP_rmsnorm_fp8) {
		args.g = fo_cuda_view_of(&a[1]), args.rstd = fo_cuda_view_of(&a[2]);
	} else {
		args.b = fo_cuda_view_of(&a[1]);
		f = s->kind == FO_OP_swiglu_fp8 ? FO_CUDA_FN_swiglu_fp8_bf16 : FO_CUDA_FN_swiglu_bwd_fp8_bf16;
	}
	if (s->kind == FO_OP_add_rmsnorm_fp8) {
		f = FO_CUDA_FN_add_norm_fp8_bf16;
		args.g = fo_cuda_view_of(&a[2]), args.c = fo_cuda_view_of(&a[3]), args.rstd = fo_cuda_view_of(&a[4]);
	}
	if (s->kind == FO_OP_swiglu_bwd_fp8)
		args.dy = fo_cuda_view_of(&a[2]);
	if (s->kind == FO_OP_swiglu_fp8 || s->kind == FO_OP_swiglu_bwd_fp8) {
		grid.x = (uint32_t)tiles(&a[0]);
	} else { /* teams as launch_norm.c makes them: sums have the same order */
		const int64_t need = (a[0].cols / WIDTH + NORM_GROUPS - 1) / NORM_GROUPS;
		args.team = (int32_t)((need + WARP - 1) / WARP * WARP);
		args.teams = THREADS_NORM / args.team < TEAMS_MOST ? THREADS_NORM / args.team : TEAMS_MOST;
		grid.threads = (uint32_t)(args.team * args.teams);
		grid.shared_bytes = args.qt.data ? (uint32_t)a[0].cols * FO_CUDA_FP8_STRIP : 0;
	}
	FO_TRY(fo_cuda_fp8_step_args(q, s, grid.x, &args.step));
	return fo_cuda_fp8_step_launch(q, f, grid, &args, &args.step);
}

/* ---- two kernels ---- */

static size_t made_bytes(const struct fo_call *c)
{
	enum { ALIGNMENT = 256 };
	const struct fo_tensor *q = &c->arg[fo_op_fp8_step(c->kind) + 1];
	size_t bytes = fo_call_fp8_wide(c) ? 0 : (size_t)(q->rows * q->cols) * fo_dtype_bytes(c->arg[0].dtype);
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}
static const char *made_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	struct fo_call make, cast;
	struct fo_tensor x;
	fo_call_fp8_make(s, NULL, &make, &x);
	cast = fo_call_fp8_cast(s, x);
	const char *why = fo_cuda_cannot(c, &make);
	return why ? why : fo_cuda_cannot(c, &cast);
}
static fo_status made_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	struct fo_call make;
	struct fo_tensor x;
	size_t more = 0;
	*ws_bytes = 0;
	if (is_fast(c, s))
		return FO_OK;
	fo_call_fp8_make(s, NULL, &make, &x);
	const struct fo_cuda_kernel *k = fo_cuda_kernel_of(make.kind);
	if (k->prepare)
		FO_TRY(k->prepare(c, &make, variant, &more));
	*ws_bytes = made_bytes(s) + more;
	return FO_OK;
}
static fo_status made_run(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant)
{
	struct fo_call make, cast;
	struct fo_tensor x;
	struct fo_cuda_queue behind = *q;
	if (is_fast(q->cuda, s))
		return fast_run(q, s);
	fo_call_fp8_make(s, q->ws, &make, &x);
	cast = fo_call_fp8_cast(s, x);
	if (q->ws_bytes < made_bytes(s))
		return fo_fail(FO_EBUG, "%s: a rectangle that does not begin at %d bytes", fo_op_info(s->kind)->name,
			       (int)ACCESS_BYTES);
	behind.ws = (char *)q->ws + made_bytes(s);
	behind.ws_bytes = q->ws_bytes - made_bytes(s);
	FO_TRY(fo_cuda_kernel_of(make.kind)->run(&behind, &make, variant));
	return fo_cuda_kernel_of(FO_OP_fp8_cast_step)->run(q, &cast, variant);
}
const struct fo_cuda_kernel fo_cuda_made_fp8 = {
	.by = "flatout", .cannot = made_cannot, .prepare = made_prepare, .run = made_run
};
