/* master and moments: what the optimizer keeps, in fewer bytes.
 *
 * A bf16 run keeps per parameter a weight (2 bytes), an fp32 master (4) and two fp32 moments (8); gradients (4) come
 * and go. master=split stores of the master only what the weight does not already say, its low half (2): the pair is
 * the fp32 number, updated in fp32. master=none has the weight alone. moments=bf16 halves the moments. kernel/round.h
 * has the arithmetic of all three; where nothing keeps what rounding cuts off, rounding=1 rounds at random so that the
 * mean is right.
 *
 * Only the types of buffers and the operands of adamw change. Split: "Split-SGD-BF16" of Kalamkar et al. 2020
 * ("Optimizing Deep Learning Recommender Systems' Training on CPU Cluster Architectures"), whose weight is the upper
 * half cut off, not rounded. Rounding at random: kernel/round.h. */
#include "pass/pass.h"

#include <string.h>

/* ---- numbers of elements, for rounding at random ---- */

/* Elements are counted through the parameters in the list's order, those of layers and those outside them each for
 * themselves. Number of the first element of buffer `buf`, as though all of it were numbered: element (r, c) has
 * first + r cols + c. Of a buffer that ranks of a tp group divide, each counts its own part, one after the other; ranks
 * with the same part count it alike.
 * False where its parameters do not follow each other like that, or where numbers exceed 32 bits. */
static bool first_element(const struct fo_program *p, int buf, int64_t *first)
{
	int64_t next[2] = { 0, 0 }, parts = 0, whole = 0; /* whole: elements of parameters of the buffer, so far */
	bool found = false;
	for (int i = 0; i < p->nparam; i++) /* of ranks before this one */
		if (p->param[i].weight == buf)
			parts += p->param[i].global_r0 * p->param[i].cols + p->param[i].global_c0 * p->param[i].rows;
	for (int i = 0; i < p->nparam; i++) {
		const struct fo_param *q = &p->param[i];
		int64_t base = next[q->per_layer];
		next[q->per_layer] += q->rows * q->cols;
		if (next[q->per_layer] > (int64_t)1 << 32)
			return false;
		if (q->weight != buf)
			continue;
		const struct fo_buffer *b = &p->buf[buf];
		int64_t cols = b->cols, own = q->cols, off = q->r0 * cols + q->c0,
			at = base + q->global_r0 * q->cols + q->global_c0 - off;
		if (b->tp) {
			own = q->nc;
			at = base - whole + parts;
		}
		whole += q->rows * q->cols;
		if ((q->nr > 1 && own != cols) || (found && at != *first) || at < 0)
			return false;
		*first = at;
		found = true;
	}
	return found;
}

static fo_status check_numbers(const struct fo_program *p)
{
	int64_t first;
	if (!p->run.pass.rounding)
		return FO_OK;
	for (int i = 0; i < p->nparam; i++)
		if (!first_element(p, p->param[i].weight, &first))
			return fo_fail(FO_EARG,
				       "the elements of '%s' cannot be numbered: a layer, or what lies outside the "
				       "layers, has more than 2^32 of them, or its tensors do not lie in their order; "
				       "rounding at random needs the numbers",
				       p->buf[p->param[i].weight].name);
	return FO_OK;
}

/* Calls fn for each adamw; element numbers where rounding is asked for. */
static void each_adamw(struct fo_program *p, void fn(struct fo_program *p, struct fo_op *o))
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			struct fo_op *o = &p->block[b].op[i];
			if (fo_op_family(o->kind) != FO_OPS_UPDATE || fo_op_info(o->kind)->per_tensor)
				continue;
			fn(p, o);
			if (p->run.pass.rounding && first_element(p, o->arg[FO_ADAMW_W].buf, &o->attr.element))
				o->attr.stochastic = 1;
		}
}

/* ---- master ---- */

fo_status fo_pass_master_legal(const struct fo_program *p)
{
	int64_t master = p->run.pass.master;
	if (master < 0 || master >= FO_MASTER_COUNT)
		return fo_fail(FO_EARG, "%lld names no format of master weights", (long long)master);
	if (p->run.precision != FO_PRECISION_BF16)
		return fo_fail(FO_EARG, "weights in %s are the master: there is no other to store in fewer bytes",
			       fo_numerics_name[p->run.precision]);
	return master == FO_MASTER_NONE ? check_numbers(p) : FO_OK;
}

/* The weight is read now: it was defined anew from the whole master. */
static void split_operands(struct fo_program *p, struct fo_op *o)
{
	(void)p;
	if (o->n > FO_ADAMW_MASTER)
		o->arg[FO_ADAMW_W].access = FO_UPDATE;
}

static void drop_master(struct fo_program *p, struct fo_op *o)
{
	(void)p;
	o->arg[FO_ADAMW_W].access = FO_UPDATE;
	o->n = FO_ADAMW_MASTER;
}

void fo_pass_master(struct fo_program *p)
{
	bool split = p->run.pass.master == FO_MASTER_SPLIT;
	for (int i = 0; i < p->nparam; i++) {
		struct fo_param *q = &p->param[i];
		struct fo_buffer *b = q->master >= 0 ? &p->buf[q->master] : NULL;
		if (!b)
			continue;
		if (split && b->dtype != FO_I16) { /* several parameters may lie in it */
			b->dtype = FO_I16;
			memcpy(b->name, "low.", 4); /* was w32. */
		} else if (!split) {
			q->master = -1;
		}
	}
	each_adamw(p, split ? split_operands : drop_master);
	if (!split)
		fo_edit_sweep(p);
}

/* ---- moments ---- */

fo_status fo_pass_moments_legal(const struct fo_program *p)
{
	int64_t moments = p->run.pass.moments;
	if (moments < 0 || moments >= FO_MOMENTS_COUNT)
		return fo_fail(FO_EARG, "%lld names no format of moments", (long long)moments);
	if (p->run.precision == FO_PRECISION_F64)
		return fo_fail(FO_EARG, "moments of a program in fp64 are fp64");
	return check_numbers(p);
}

static void narrow_moments(struct fo_program *p, struct fo_op *o)
{
	p->buf[o->arg[FO_ADAMW_M].buf].dtype = p->buf[o->arg[FO_ADAMW_V].buf].dtype = FO_BF16;
}

void fo_pass_moments(struct fo_program *p) { each_adamw(p, narrow_moments); }
