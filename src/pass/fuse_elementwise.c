/* fuse-elementwise: operations that follow each other over the same rows become one, which reads these rows once.
 *
 * - An addition to the residual stream and the norm of the sum (add_rmsnorm), in a block or across the border of two:
 * there the addition first moves to the front of the block that norms its sum. A block that does so in some of its
 * slots only (the first layer follows the embedding, not a layer) is cloned.
 * - The two gradients of a norm (rmsnorm_bwd).
 *
 * Fusion into matmuls would not pay here: docs/passes/fuse-elementwise.md has the figures. */
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

/* ---- across the border of two blocks ---- */

/* The addition that a block ends with, the norm of whole rows that one begins with; NULL: none. */
static const struct fo_op *last_add(const struct fo_program *p, int block)
{
	const struct fo_block *b = &p->block[block];
	return b->n && b->op[b->n - 1].kind == FO_OP_add ? &b->op[b->n - 1] : NULL;
}
static const struct fo_op *first_norm(const struct fo_program *p, int block)
{
	const struct fo_block *b = &p->block[block];
	return b->n && b->op[0].kind == FO_OP_rmsnorm && !b->op[0].attr.head_dim ? &b->op[0] : NULL;
}

/* The last addition of slot s as slot s + 1 would name its operands; false where it has none, where slot s + 1 does not
 * norm the sum, or where it cannot name them. */
static bool next_slots_add(const struct fo_program *p, int s, struct fo_op *out)
{
	if (s < 0 || s + 1 >= p->nslot)
		return false;
	const struct fo_slot *from = &p->slot[s], *to = from + 1;
	const struct fo_op *add = last_add(p, from->block), *norm = first_norm(p, to->block);
	if (!add || !norm || from->mb != to->mb || add->phase != norm->phase || add->lane != norm->lane)
		return false;
	*out = *add;
	for (int i = 0; i < out->n; i++) {
		struct fo_operand *a = &out->arg[i];
		int layer = a->dlayer + from->layer - to->layer;
		if (!(p->buf[a->buf].axes & FO_PER_LAYER))
			continue;
		if (layer < INT8_MIN || layer > INT8_MAX)
			return false;
		a->dlayer = (int8_t)layer;
	}
	return fo_edit_same(&out->arg[FO_ADD_C], &norm->arg[FO_RMSNORM_X]);
}

/* The state of a block while slots are matched. */
struct crossing {
	struct fo_op add; /* that it takes at its front */
	bool takes;       /* in some slot at least */
	bool keeps;       /* the next of some slot does not take what it ends with */
	bool passes;      /* hands on what it ends with */
};

/* Fills takes[s]: slot s begins with the addition of the slot before. All slots of a block that ends with an addition
 * must hand it on, because the block is written once; all that take one must take the same. A slot that fails this
 * changes its neighbours: the walk is repeated until nothing changes, at most once per block. */
static void find_takers(const struct fo_program *p, struct crossing *of, bool *takes)
{
	struct fo_op add;
	for (int s = 0; s <= p->nslot; s++)
		takes[s] = next_slots_add(p, s - 1, &add);
	for (bool changed = true; changed;) {
		changed = false;
		memset(of, 0, (size_t)p->nblock * sizeof *of);
		for (int s = 0; s < p->nslot; s++)
			of[p->slot[s].block].keeps |= !takes[s + 1];
		for (int s = 1; s < p->nslot; s++) {
			struct crossing *to = &of[p->slot[s].block];
			if (!takes[s] || !next_slots_add(p, s - 1, &add))
				continue;
			if (!to->takes)
				to->add = add;
			if (of[p->slot[s - 1].block].keeps || memcmp(add.arg, to->add.arg, sizeof add.arg) != 0)
				takes[s] = false, changed = true;
			else
				to->takes = true;
		}
	}
}

/* Additions at the end of a block move to the front of the next slot's block. */
static void move_across(struct fo_program *p)
{
	int blocks = p->nblock;
	bool *takes = fo_xmalloc((size_t)(p->nslot + 1) * sizeof *takes);
	struct crossing *of = fo_xmalloc((size_t)(2 * blocks + 1) * sizeof *of); /* room for clones */
	bool *plain = fo_xmalloc((size_t)(p->nslot + 1) * sizeof *plain);
	find_takers(p, of, takes);
	for (int s = 0; s < p->nslot; s++)
		plain[s] = !takes[s];
	for (int b = 0; b < blocks; b++)
		if (of[b].takes)
			fo_edit_split(p, b, "first", plain);
	for (int s = 1; s < p->nslot; s++)
		of[p->slot[s - 1].block].passes |= takes[s];
	for (int b = 0; b < p->nblock; b++) {
		if (of[b].passes)
			fo_op_remove(p, b, p->block[b].n - 1);
		if (of[b].takes)
			fo_op_clone(p, b, 0, &of[b].add);
	}
	free(takes);
	free(plain);
	free(of);
}

/* ---- inside a block ---- */

/* add_rmsnorm of an addition and the norm of its sum. */
static struct fo_op add_and_norm(const struct fo_op *add, const struct fo_op *norm)
{
	struct fo_op o = *norm;
	o.kind = FO_OP_add_rmsnorm;
	o.n = FO_ADD_RMSNORM_RSTD + 1;
	o.arg[FO_ADD_RMSNORM_A] = add->arg[FO_ADD_A];
	o.arg[FO_ADD_RMSNORM_B] = add->arg[FO_ADD_B];
	o.arg[FO_ADD_RMSNORM_G] = norm->arg[FO_RMSNORM_G];
	o.arg[FO_ADD_RMSNORM_C] = add->arg[FO_ADD_C];
	o.arg[FO_ADD_RMSNORM_Y] = norm->arg[FO_RMSNORM_Y];
	o.arg[FO_ADD_RMSNORM_RSTD] = norm->arg[FO_RMSNORM_RSTD];
	return o;
}

/* rmsnorm_bwd of rmsnorm_dg and rmsnorm_dx. */
static struct fo_op both_gradients(const struct fo_op *dg, const struct fo_op *dx)
{
	struct fo_op o = *dx;
	o.kind = FO_OP_rmsnorm_bwd;
	o.arg[FO_RMSNORM_BWD_DG] = dg->arg[FO_RMSNORM_DG_DG];
	if (dx->n > FO_RMSNORM_DX_DRES)
		o.arg[FO_RMSNORM_BWD_DRES] = dx->arg[FO_RMSNORM_DX_DRES];
	o.n = (uint8_t)(dx->n + 1);
	return o;
}

static bool is_add_and_norm(const struct fo_op *a, const struct fo_op *b)
{
	return a->kind == FO_OP_add && b->kind == FO_OP_rmsnorm && !b->attr.head_dim && a->phase == b->phase &&
	       fo_edit_same(&a->arg[FO_ADD_C], &b->arg[FO_RMSNORM_X]);
}

static bool is_both_gradients(const struct fo_op *a, const struct fo_op *b)
{
	return a->kind == FO_OP_rmsnorm_dg && b->kind == FO_OP_rmsnorm_dx && a->attr.head_dim == b->attr.head_dim &&
	       fo_edit_same(&a->arg[FO_RMSNORM_DG_X], &b->arg[FO_RMSNORM_DX_X]) &&
	       fo_edit_same(&a->arg[FO_RMSNORM_DG_RSTD], &b->arg[FO_RMSNORM_DX_RSTD]) &&
	       fo_edit_same(&a->arg[FO_RMSNORM_DG_DY], &b->arg[FO_RMSNORM_DX_DY]);
}

/* Operation k of the block takes in operation i < k, where one of them may move to the other. */
static bool fuse(struct fo_program *p, int block, int i, int k)
{
	struct fo_op *o = p->block[block].op, fused;
	if (o[i].lane != o[k].lane || o[i].group != o[k].group)
		return false;
	if (is_add_and_norm(&o[i], &o[k]))
		fused = add_and_norm(&o[i], &o[k]);
	else if (is_both_gradients(&o[i], &o[k]))
		fused = both_gradients(&o[i], &o[k]);
	else
		return false;
	return fo_edit_fuse(p, block, i, k, &fused);
}

void fo_pass_fuse_elementwise(struct fo_program *p)
{
	move_across(p);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = i + 1; k < p->block[b].n; k++)
				if (fuse(p, b, i, k))
					k = i; /* what stands at i now is looked at from the beginning */
}
