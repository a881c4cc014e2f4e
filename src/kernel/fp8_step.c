/* On a processor: casts by the scale of the step (fp8_cast_step), and operations that make numbers and cast them at
 * once, out of the kernels of what they stand for, one whole tensor after the other. The bits are those of these
 * operations by themselves; memory is what the operations apart move, for a processor gains nothing by these (pass
 * fp8-fuse). */
#include "kernel/kernel.h"
#include "kernel/ref/ref.h"

#include <string.h>

enum { LINE = 64 /* alignment of workspaces, bytes */ };

static size_t rounded(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

static struct fo_tensor numbers(int dtype, int64_t rows, int64_t cols, void *data)
{
	return (struct fo_tensor){ .data = data, .rows = rows, .cols = cols, .ld = cols, .dtype = (uint8_t)dtype };
}

static void add(struct fo_call *c, struct fo_tensor t, bool stored)
{
	c->first |= (uint32_t)stored << c->n;
	c->arg[c->n++] = t;
}

static struct fo_call begin(const struct fo_call *c, enum fo_op_kind kind)
{
	return (struct fo_call){ .kind = (uint8_t)kind, .attr = c->attr, .threads = c->threads, .mac = c->mac };
}

struct fo_call fo_call_fp8_cast(const struct fo_call *c, struct fo_tensor x)
{
	int at = fo_op_fp8_step(c->kind);
	struct fo_call one = begin(c, FO_OP_fp8_cast_step);
	add(&one, x, false);
	add(&one, c->arg[at], true);
	add(&one, c->arg[at + 1], true);
	add(&one, c->arg[at + 2], c->first >> (at + 2) & 1);
	if (c->n > at + 3 && !fo_call_fp8_wide(c))
		add(&one, c->arg[at + 3], true);
	return one;
}

static void run(const struct fo_call *shape, enum fo_isa isa, void *ws)
{
	struct fo_call c = *shape;
	const struct fo_kernel *k = fo_kernel_pick(isa, &c, NULL);
	c.ws = ws;
	c.ws_bytes = k->ws ? k->ws(&c) : 0;
	k->run(&c);
}

/* x is cast; one number of workspace. */
static void cast(const struct fo_call *c, enum fo_isa isa, void *ws)
{
	const struct fo_tensor *x = &c->arg[0], own = numbers(x->dtype == FO_F64 ? FO_F64 : FO_F32, 1, 1, ws);
	bool both = c->n > 4, f64 = x->dtype == FO_F64;
	struct fo_call most = begin(c, FO_OP_amax), scale = begin(c, FO_OP_fp8_cast_step),
		       to = begin(c, both ? FO_OP_fp8_cast_t : FO_OP_fp8_cast);
	add(&most, *x, false);
	add(&most, own, true);
	run(&most, isa, NULL);
	scale.attr = (struct fo_attr){ .value = c->arg[2].dtype == FO_E5M2 ? FO_E5M2_MAX : FO_E4M3_MAX };
	add(&scale, own, false);
	add(&scale, c->arg[1], true);
	add(&scale, c->arg[3], c->first >> 3 & 1);
	(f64 ? fo_ref_f64_fp8_cast_step : fo_ref_f32_fp8_cast_step)(&scale);
	add(&to, *x, false);
	add(&to, c->arg[1], false);
	add(&to, c->arg[2], true);
	if (both)
		add(&to, c->arg[4], true);
	run(&to, isa, NULL);
}

bool fo_call_fp8_make(const struct fo_call *c, void *room, struct fo_call *make, struct fo_tensor *x)
{
	int at = fo_op_fp8_step(c->kind), outputs = at;
	const struct fo_tensor *q = &c->arg[at + 1];
	if (c->kind == FO_OP_fp8_cast_step) {
		*x = c->arg[0];
		return false;
	}
	*x = fo_call_fp8_wide(c) ? c->arg[at + 3] : numbers(c->arg[0].dtype, q->rows, q->cols, room);
	*make = begin(c, c->kind == FO_OP_rmsnorm_fp8       ? FO_OP_rmsnorm
			 : c->kind == FO_OP_add_rmsnorm_fp8 ? FO_OP_add_rmsnorm
			 : c->kind == FO_OP_swiglu_fp8      ? FO_OP_swiglu
							    : FO_OP_swiglu_bwd);
	if (make->kind == FO_OP_rmsnorm || make->kind == FO_OP_add_rmsnorm)
		outputs--; /* rstd stands behind y */
	for (int i = 0; i < outputs; i++)
		add(make, c->arg[i], c->first >> i & 1);
	struct fo_tensor y = *x;
	if (make->kind == FO_OP_swiglu_bwd) {
		y.cols /= 2;
		add(make, y, true);
		y.data = (char *)y.data + (size_t)y.cols * fo_dtype_bytes(y.dtype);
	}
	add(make, y, true);
	if (outputs < at)
		add(make, c->arg[outputs], true);
	return true;
}

/* One number; what is cast, where it is stored nowhere else; what the kernel that makes it wants. */
static size_t room_for(const struct fo_call *c)
{
	const struct fo_tensor *q = &c->arg[fo_op_fp8_step(c->kind) + 1];
	if (c->kind == FO_OP_fp8_cast_step || fo_call_fp8_wide(c))
		return 0;
	return rounded((size_t)(q->rows * q->cols) * fo_dtype_bytes(c->arg[0].dtype));
}

size_t fo_kernel_fp8_step_ws(const struct fo_call *c, enum fo_isa isa)
{
	struct fo_call make;
	struct fo_tensor x;
	size_t ws = LINE + room_for(c);
	if (fo_call_fp8_make(c, NULL, &make, &x)) {
		const struct fo_kernel *k = fo_kernel_pick(isa, &make, NULL);
		ws += k->ws ? k->ws(&make) : 0;
	}
	return ws;
}

void fo_kernel_fp8_step(const struct fo_call *c, enum fo_isa isa)
{
	char *ws = c->ws;
	struct fo_call make, to;
	struct fo_tensor x;
	if (fo_call_fp8_make(c, ws + LINE, &make, &x))
		run(&make, isa, ws + LINE + room_for(c));
	to = fo_call_fp8_cast(c, x);
	cast(&to, isa, ws);
}
