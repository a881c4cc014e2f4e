/* fuse-rope: the rotation of attention's gradients becomes part of the operation that makes them (attention_bwd_rope).
 *
 * A rotation of dq and one of dk follow attention_bwd, or one of both where they lie side by side (merge-qkv). Each is
 * fused where nothing between it and attention_bwd uses what it turns. The rotation of queries and keys in forward
 * stays: it stands between a library's matmul and a library's attention. */
#include "pass/pass.h"

/* Whether x is the rectangle of a, with b to its right (NULL: a alone). */
static bool covers(const struct fo_operand *x, const struct fo_operand *a, const struct fo_operand *b)
{
	struct fo_operand both = *a, right = *a;
	if (b) {
		both.nc += b->nc;
		right.c0 += a->nc;
		right.nc = b->nc;
	}
	return fo_edit_same(x, &both) && (!b || fo_edit_same(b, &right));
}

/* The rotation of a (and b) after operation i that may move up to it; -1: there is none. */
static int find(const struct fo_program *p, int block, int i, const struct fo_operand *a, const struct fo_operand *b)
{
	const struct fo_block *k = &p->block[block];
	for (int j = i + 1; j < k->n; j++) {
		const struct fo_op *o = &k->op[j];
		if (fo_op_family(o->kind) == FO_OPS_ROPE && fo_edit_beside(o, &k->op[i]) &&
		    o->attr.head_dim == k->op[i].attr.head_dim && covers(&o->arg[FO_ROPE_X], a, b))
			return fo_edit_can_move(p, block, j, i + 1) ? j : -1;
	}
	return -1;
}

static void fuse(struct fo_program *p, int block, int i)
{
	struct fo_op *o = p->block[block].op;
	const int both = find(p, block, i, &o[i].arg[FO_ATTENTION_BWD_DQ], &o[i].arg[FO_ATTENTION_BWD_DK]);
	const int q = both >= 0 ? both : find(p, block, i, &o[i].arg[FO_ATTENTION_BWD_DQ], NULL);
	const int k = both >= 0 ? both : find(p, block, i, &o[i].arg[FO_ATTENTION_BWD_DK], NULL);
	if (q < 0 || k < 0 || o[q].attr.sign != o[k].attr.sign ||
	    !fo_edit_same(&o[q].arg[FO_ROPE_POSITION], &o[k].arg[FO_ROPE_POSITION]) ||
	    !fo_edit_same(&o[q].arg[FO_ROPE_TABLE], &o[k].arg[FO_ROPE_TABLE]))
		return;
	struct fo_op fused = o[i];
	fused.kind = FO_OP_attention_bwd_rope;
	fused.attr.sign = o[q].attr.sign;
	fused.arg[FO_ATTENTION_BWD_ROPE_POSITION] = o[q].arg[FO_ROPE_POSITION];
	fused.arg[FO_ATTENTION_BWD_ROPE_TABLE] = o[q].arg[FO_ROPE_TABLE];
	fused.n = FO_ATTENTION_BWD_ROPE_TABLE + 1;
	o[i] = fused;
	fo_op_remove(p, block, q > k ? q : k);
	if (q != k)
		fo_op_remove(p, block, q < k ? q : k);
}

void fo_pass_fuse_rope(struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			if (p->block[b].op[i].kind == FO_OP_attention_bwd)
				fuse(p, b, i);
}
