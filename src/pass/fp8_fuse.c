/* fp8-fuse: what a norm, SwiGLU or its backward makes is cast to fp8 by the operation that makes it.
 *
 * With delayed scaling the scale is known before the numbers are. An operation that makes numbers and the cast of them
 * (fp8_cast_step) become one, where nothing between them touches what both do: numbers go from registers into fp8, and
 * into the transposed copy where there is one. They are stored themselves only where somebody else reads them (weight
 * gradients of plain factors), and then there is no transposed copy: where both are wanted nothing is fused. After
 * fuse-elementwise, whose norms add; after recompute, whose clones are fused like the rest. docs/passes/fp8-fuse.md. */
#include "pass/pass.h"

#include <string.h>

/* The numbers that are cast: operand y of the operation that makes them, or n operands side by side. */
struct making {
	int fused; /* the operation that makes and casts; -1: there is none */
	int y, n;
};

static struct making making_of(const struct fo_op *o)
{
	struct making is = { .fused = fo_op_fp8_of(o->kind) };
	if (o->attr.head_dim && fo_op_family(o->kind) == FO_OPS_NORM) /* only norms of whole rows cast */
		is.fused = -1;
	if (is.fused >= 0)
		fo_op_cast_operands(is.fused, &is.y, &is.n);
	return is;
}

/* Whether `make` writes all of x and nothing else of its buffer. */
static bool makes(const struct fo_op *make, const struct making *is, const struct fo_operand *x)
{
	const struct fo_operand *y = &make->arg[is->y];
	struct fo_operand all = *y;
	if (is->n == 2) {
		if (y[0].buf != y[1].buf || y[0].dlayer != y[1].dlayer || y[0].r0 != y[1].r0 ||
		    y[0].c0 + y[0].nc != y[1].c0)
			return false;
		all.nc += y[1].nc;
	}
	return fo_edit_same(&all, x);
}

/* Whether operand x of one block and operand a of another name the same layer's instance in some pair of slots. */
static bool meet(const struct fo_program *p, int block, const struct fo_operand *x, int other,
		 const struct fo_operand *a)
{
	if (!(p->buf[x->buf].axes & FO_PER_LAYER))
		return true;
	for (int s = 0; s < p->nslot; s++)
		for (int t = 0; p->slot[s].block == block && t < p->nslot; t++)
			if (p->slot[t].block == other && p->slot[s].layer + x->dlayer == p->slot[t].layer + a->dlayer)
				return true;
	return false;
}

/* Whether an operation other than `cast` reads the generation of x that operation `make` of the block begins. A read
 * before a DEF in another block takes its value from elsewhere, so perhaps from here. */
static bool has_reader(const struct fo_program *p, int block, int make, int cast, const struct fo_operand *x)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = b == block ? make + 1 : 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			bool begins = false;
			for (int k = 0; k < o->n; k++) {
				const struct fo_operand *a = &o->arg[k];
				if (a->buf != x->buf)
					continue;
				begins |= a->access == FO_DEF;
				if (a->access != FO_DEF && !(b == block && i == cast) && meet(p, block, x, b, a))
					return true;
			}
			if (begins)
				break;
		}
	return false;
}

/* Operations make and cast as one. */
static struct fo_op fused_of(const struct fo_op *make, const struct making *is, const struct fo_op *cast, bool keeps)
{
	struct fo_op o = *make;
	struct fo_operand y = make->arg[is->y];
	o.kind = (uint8_t)is->fused;
	o.n = 0;
	for (int i = 0; i < make->n; i++)
		if (i < is->y || i >= is->y + is->n)
			o.arg[o.n++] = make->arg[i];
	for (int i = FO_FP8_CAST_STEP_SX; i < cast->n; i++)
		o.arg[o.n++] = cast->arg[i];
	if (keeps) {
		y.nc = cast->arg[FO_FP8_CAST_STEP_X].nc;
		o.arg[o.n++] = y;
	}
	return o;
}

/* Operation i of the block takes in operation k after it. */
static bool fuse(struct fo_program *p, int block, int i, int k)
{
	struct fo_op *o = p->block[block].op;
	const struct making is = making_of(&o[i]);
	if (is.fused < 0 || fo_op_family(o[k].kind) != FO_OPS_CAST || fo_op_fp8_step(o[k].kind) < 0 ||
	    !fo_edit_beside(&o[i], &o[k]) || !makes(&o[i], &is, &o[k].arg[FO_FP8_CAST_STEP_X]) ||
	    p->buf[o[i].arg[is.y].buf].dtype != p->buf[o[i].arg->buf].dtype)
		return false;
	bool keeps = has_reader(p, block, i, k, &o[k].arg[FO_FP8_CAST_STEP_X]);
	if (keeps && o[k].n > FO_FP8_CAST_STEP_YT)
		return false;
	const struct fo_op fused = fused_of(&o[i], &is, &o[k], keeps);
	return fo_edit_fuse(p, block, i, k, &fused);
}

fo_status fo_pass_fp8_fuse_legal(const struct fo_program *p)
{
	return p->run.pass.fp8 == FO_FP8_DELAYED
		       ? FO_OK
		       : fo_fail(FO_EARG, "only delayed scales are known before what they scale: fp8 is not delayed");
}

void fo_pass_fp8_fuse(struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = i + 1; k < p->block[b].n; k++)
				if (fuse(p, b, i, k))
					break;
}
