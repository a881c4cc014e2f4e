/* fused-optimizer: one operation updates many tensors, and one sums the squares of many gradients.
 *
 * A block's tensors join whose steps differ in nothing but the tensor: decaying matrices together, norm weights and
 * biases together. An operation forks its threads once and shares them evenly over all its tensors, instead of once for
 * each of them, where small tensors leave threads idle. Bit for bit the same numbers: a tensor's own sums keep their
 * order. apex's and PyTorch's multi-tensor optimizers do the same. */
#include "pass/pass.h"

#include <string.h>

/* Whether y's tensor can join x's operation. Data types must be equal operand by operand, so that one kernel takes all
 * tensors. */
static bool alike(const struct fo_program *p, int many, const struct fo_op *x, const struct fo_op *y)
{
	if (x->kind != y->kind || !fo_edit_beside(x, y) || x->n != y->n ||
	    memcmp(&x->attr, &y->attr, sizeof x->attr) != 0)
		return false;
	for (int i = 0; i < x->n; i++) {
		const struct fo_operand *a = &x->arg[i], *b = &y->arg[i];
		bool common = fo_op_operand_of(many, 0, i) < fo_op_info(many)->common;
		if (a->access != b->access ||
		    (common ? !fo_edit_same(a, b) : p->buf[a->buf].dtype != p->buf[b->buf].dtype))
			return false;
	}
	return true;
}

/* Operation x as one on many tensors, so far its own. */
static struct fo_op begin_many(const struct fo_op *x, int many)
{
	struct fo_op o = *x;
	o.kind = (uint8_t)many;
	for (int i = 0; i < x->n; i++)
		o.arg[fo_op_operand_of(many, 0, i)] = x->arg[i];
	return o;
}

static void append(struct fo_op *o, const struct fo_op *y)
{
	int many = o->kind;
	int k = fo_op_tensors(many, o->n);
	for (int i = 0; i < y->n; i++)
		o->arg[fo_op_operand_of(many, k, i)] = y->arg[i];
	o->n = (uint8_t)(o->n + fo_op_info(many)->per_tensor);
}

void fo_pass_fused_optimizer(struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op x = p->block[b].op[i];
			int many = x.phase == FO_OPTIMIZER ? fo_op_many_of(x.kind, x.n) : -1;
			if (many < 0)
				continue;
			struct fo_op o = begin_many(&x, many);
			/* Operations that joined already have no order with later ones but through x's own operands. */
			for (int k = i + 1; k < p->block[b].n && o.n + fo_op_info(many)->per_tensor <= FO_MAX_OPERANDS;
			     k++) {
				if (!alike(p, many, &x, &p->block[b].op[k]) || !fo_edit_can_move(p, b, k, i + 1))
					continue;
				append(&o, &p->block[b].op[k]);
				fo_op_remove(p, b, k--);
			}
			if (o.n > x.n)
				p->block[b].op[i] = o;
		}
}
