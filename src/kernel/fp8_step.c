/* Casts by the scale of the step (fp8_cast_step), and operations that make numbers and cast them at once, on a
 * processor: the kernels of what they stand for run one after the other, each on a whole tensor. The bits are those of
 * these operations by themselves, and as many bytes move: a processor gains nothing by pass fp8-fuse. */
#include "kernel/kernel.h"

#include "base/count.h"
#include "kernel/ref/ref.h"

enum { LINE = 64 /* alignment of workspaces, bytes */ };

static void run(const struct fo_call *shape, const struct fo_kernel_set *const *sets, enum fo_isa isa, void *ws)
{
	struct fo_call c = *shape;
	const struct fo_kernel *k = fo_kernel_pick_of(sets, isa, &c, NULL);
	c.ws = ws;
	c.ws_bytes = k->ws ? k->ws(&c) : 0;
	k->run(&c);
}

/* Casts x: its maximum, which takes one number of workspace, then the scale, then the numbers. */
static void cast(const struct fo_call *c, const struct fo_kernel_set *const *sets, enum fo_isa isa, void *ws)
{
	const struct fo_tensor *x = &c->arg[FO_FP8_CAST_STEP_X], *sx = &c->arg[FO_FP8_CAST_STEP_SX],
			       *y = &c->arg[FO_FP8_CAST_STEP_Y], *amax = &c->arg[FO_FP8_CAST_STEP_AMAX];
	const bool both = fo_call_has(c, FO_FP8_CAST_STEP_YT), f64 = x->dtype == FO_F64;
	const struct fo_tensor own = { .data = ws, .rows = 1, .cols = 1, .ld = 1, .dtype = f64 ? FO_F64 : FO_F32 };
	const struct fo_call most = { .kind = FO_OP_amax,
				      .n = FO_AMAX_AMAX + 1,
				      .attr = c->attr,
				      .first = 1u << FO_AMAX_AMAX,
				      .arg = { [FO_AMAX_X] = *x, [FO_AMAX_AMAX] = own },
				      .threads = c->threads,
				      .mac = c->mac };
	run(&most, sets, isa, NULL);
	const struct fo_attr largest = { .value = y->dtype == FO_E5M2 ? FO_E5M2_MAX : FO_E4M3_MAX };
	(f64 ? fo_ref_f64_step_scale : fo_ref_f32_step_scale)(&largest, &own, sx, amax,
							      fo_call_stores(c, FO_FP8_CAST_STEP_AMAX));
	struct fo_call to = { .kind = FO_OP_fp8_cast,
			      .n = FO_FP8_CAST_Y + 1,
			      .attr = c->attr,
			      .first = 1u << FO_FP8_CAST_Y,
			      .arg = { [FO_FP8_CAST_X] = *x, [FO_FP8_CAST_SX] = *sx, [FO_FP8_CAST_Y] = *y },
			      .threads = c->threads,
			      .mac = c->mac };
	if (both) {
		to.kind = FO_OP_fp8_cast_t;
		to.n = FO_FP8_CAST_T_YT + 1;
		to.first |= 1u << FO_FP8_CAST_T_YT;
		to.arg[FO_FP8_CAST_T_YT] = c->arg[FO_FP8_CAST_STEP_YT];
	}
	run(&to, sets, isa, NULL);
}

/* Bytes for the numbers that are cast, where the call stores them nowhere else. */
static size_t room_for(const struct fo_call *c)
{
	const struct fo_tensor *q = &c->arg[fo_op_fp8_step(c->kind) + FO_FP8_STEP_Y];
	if (c->kind == FO_OP_fp8_cast_step || fo_call_fp8_wide(c))
		return 0;
	return fo_round_up_bytes((size_t)(q->rows * q->cols) * fo_dtype_bytes(c->arg[FO_FP8_CAST_STEP_X].dtype), LINE);
}

/* The workspace holds one number, what is cast, and what the kernel that makes it needs. */
size_t fo_kernel_fp8_step_ws(const struct fo_call *c, const struct fo_kernel_set *const *sets, enum fo_isa isa)
{
	struct fo_call make;
	struct fo_tensor x;
	size_t ws = LINE + room_for(c);
	if (fo_call_fp8_make(c, NULL, &make, &x)) {
		const struct fo_kernel *k = fo_kernel_pick_of(sets, isa, &make, NULL);
		ws += k->ws ? k->ws(&make) : 0;
	}
	return ws;
}

void fo_kernel_fp8_step(const struct fo_call *c, const struct fo_kernel_set *const *sets, enum fo_isa isa)
{
	char *ws = c->ws;
	struct fo_call make, to;
	struct fo_tensor x;
	if (fo_call_fp8_make(c, ws + LINE, &make, &x))
		run(&make, sets, isa, ws + LINE + room_for(c));
	to = fo_call_fp8_cast(c, x);
	cast(&to, sets, isa, ws);
}
