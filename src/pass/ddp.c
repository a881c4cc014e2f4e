/* ddp: ranks have rows of their own; gradients are added over the ranks while backward goes on.
 *
 * Behind the slot that completes gradients comes one that adds them up over all ranks of the job, on the reduce lane.
 * With accumulation that is the last micro-batch's alone, so that each gradient travels once a step. The gradients of a
 * slot go into buckets, in the order in which they are complete: an operation that adds up many tensors waits for the
 * last of them, so a smaller bucket starts earlier, and a larger one is fewer calls. The loss is added up as soon as it
 * is complete. The gradient norm needs nothing: it is made of gradients that are sums already, the same on each rank.
 * Of what ranks of a tp group have terms of (fo_buffer.tp), the sum is over them too; of weights of keys and values
 * that a kv group shares, there comes a second one over that group.
 *
 * reduce_late is the baseline without overlap: all of it travels when backward is over.
 *
 * The loss and its gradient carry 1 / targets of the whole job (FO_HYPER_INV_TOKENS), so a sum is what is wanted, not a
 * mean. PyTorch's DistributedDataParallel (Li et al. 2020) does the same with buckets of 25 MiB. */
#include "pass/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fo_status fo_pass_ddp_legal(const struct fo_program *p)
{
	const int64_t dtype = p->run.pass.reduce_dtype;
	if (dtype < 0 || dtype >= FO_REDUCE_COUNT)
		return fo_fail(FO_EARG, "gradients travel in one of %d types", FO_REDUCE_COUNT);
	if (p->ranks > 1 && dtype == FO_REDUCE_BF16 && p->run.precision == FO_PRECISION_F64)
		return fo_fail(FO_EARG, "gradients in fp64 do not travel as bf16");
	return FO_OK;
}

/* What is complete after a slot: operands as its own block would name them. */
struct complete {
	struct fo_operand *arg;
	int n;
	size_t cap;
};

static void add(struct complete *c, struct fo_operand a, const struct fo_program *p)
{
	a.access = FO_UPDATE;
	a.r0 = a.c0 = 0;
	a.nr = (int32_t)p->buf[a.buf].rows;
	a.nc = (int32_t)p->buf[a.buf].cols;
	for (int i = 0; i < c->n; i++)
		if (c->arg[i].buf == a.buf && c->arg[i].dlayer == a.dlayer)
			return;
	fo_array_room(&c->arg, &c->cap, (size_t)c->n, sizeof *c->arg);
	c->arg[c->n++] = a;
}

/* Whose sums are complete, and when: those of a whole step, or the gradients in `of` (by buffer), each micro-batch but
 * the last. */
struct ends {
	int layers, mb; /* mb: -1: the step's */
	const bool *of; /* NULL: all */
	int *last;      /* [buffer][layer]: the newest slot that adds to the instance; -1: none */
};

/* The layer of an operand of slot s; 0 where all layers share the tensor. */
static int layer_of(const struct fo_program *p, int s, const struct fo_operand *a)
{
	return p->buf[a->buf].axes & FO_PER_LAYER ? p->slot[s].layer + a->dlayer : 0;
}

/* The newest slot that writes each buffer's instance before the optimizer: gradients, and what has no rows of tokens
 * and no micro-batches, which is the loss. */
static void find_ends(const struct fo_program *p, struct ends *e)
{
	memset(e->last, -1, (size_t)p->nbuf * (size_t)e->layers * sizeof *e->last);
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		if (b->role == FO_ROLE_OPTIMIZER || (e->mb >= 0 && p->slot[s].mb != e->mb))
			continue;
		for (int i = 0; i < b->n; i++)
			for (int k = 0; k < b->op[i].n; k++) {
				const struct fo_operand *a = &b->op[i].arg[k];
				int layer = layer_of(p, s, a);
				if (a->access == FO_ACC)
					e->last[a->buf * e->layers + layer] = s;
			}
	}
}

/* Sums over micro-batches that the optimizer reads: gradients and the loss. */
static bool is_summed(const struct fo_program *p, const struct ends *e, const struct fo_operand *a)
{
	const struct fo_buffer *b = &p->buf[a->buf];
	if (e->of && !e->of[a->buf])
		return false;
	if (b->tp != FO_TP_TERM && !fo_tp_is_kv(b->tp) && fo_mesh_group(&p->run.mesh, FO_GROUP_DATA, NULL, NULL) < 2)
		return false;
	return a->access == FO_ACC && !(b->axes & FO_PER_MICRO_BATCH) &&
	       (b->home == FO_HOME_GRAD ||
		(b->home == FO_HOME_ACT && b->dtype == FO_F64 && b->row_axis == FO_AXIS_ONE));
}

static void find_complete(const struct fo_program *p, const struct ends *e, int s, struct complete *out)
{
	const struct fo_block *b = &p->block[p->slot[s].block];
	out->n = 0;
	if (e->mb >= 0 && p->slot[s].mb != e->mb)
		return;
	/* In the order of their last writers within the block. */
	for (int i = 0; b->role != FO_ROLE_OPTIMIZER && i < b->n; i++)
		for (int k = 0; k < b->op[i].n; k++) {
			const struct fo_operand *a = &b->op[i].arg[k];
			int layer = layer_of(p, s, a);
			bool later = false;
			if (!is_summed(p, e, a) || e->last[a->buf * e->layers + layer] != s)
				continue;
			for (int j = i + 1; j < b->n; j++)
				for (int m = 0; m < b->op[j].n; m++)
					later |= b->op[j].arg[m].access == FO_ACC && b->op[j].arg[m].buf == a->buf &&
						 b->op[j].arg[m].dlayer == a->dlayer;
			if (!later)
				add(out, *a, p);
		}
}

static enum fo_group group_of(const struct fo_program *p, int buf)
{
	return p->buf[buf].tp == FO_TP_TERM ? FO_GROUP_ALL : FO_GROUP_DATA;
}

/* An operation takes tensors of one type and group up to a bucket's bytes. group: NONE: each tensor's own; KV: of those
 * that have one, in a second round. */
static void fill_round(struct fo_program *p, int block, const struct complete *c, enum fo_group group)
{
	const int64_t bucket = p->run.pass.ddp << 20;
	int64_t bytes = 0;
	struct fo_op *o = NULL;
	for (int i = 0; i < c->n; i++) {
		const struct fo_buffer *b = &p->buf[c->arg[i].buf];
		const enum fo_group over = group ? group : group_of(p, c->arg[i].buf);
		if (group ? !fo_tp_is_kv(b->tp) : fo_mesh_group(&p->run.mesh, over, NULL, NULL) < 2)
			continue;
		bool other = o && (p->buf[o->arg[0].buf].dtype != b->dtype || o->group != over);
		if (!o || other || o->n == FO_MAX_OPERANDS || bytes + fo_buffer_bytes(b) > bucket) {
			o = fo_op_insert(p, block, p->block[block].n, FO_OP_all_reduce_many, FO_TRANSFER,
					 FO_LANE_REDUCE);
			o->group = (uint8_t)over;
			o->attr.narrow = p->run.pass.reduce_dtype == FO_REDUCE_BF16 && b->dtype == FO_F32;
			bytes = 0;
		}
		o->arg[o->n++] = c->arg[i];
		bytes += fo_buffer_bytes(b);
	}
}

/* The sum over a kv group is of the whole step: behind each micro-batch it would count those before it again. */
static void fill_block(struct fo_program *p, int block, const struct complete *c, bool last)
{
	fill_round(p, block, c, FO_GROUP_NONE);
	if (last)
		fill_round(p, block, c, FO_GROUP_KV);
}

/* The block that adds up these, made where slots of `of` have not needed it yet. made: by block, the newest such block
 * of it; -1: none. */
static int reduce_block(struct fo_program *p, int of, int *made, const struct complete *c, bool last)
{
	char name[sizeof p->block->name];
	const struct fo_block *b = &p->block[of];
	int r = made[of], n = 0;
	for (int i = 0; r >= 0 && i < p->block[r].n; i++)
		for (int k = 0; r >= 0 && p->block[r].op[i].group != FO_GROUP_KV && k < p->block[r].op[i].n; k++, n++)
			if (n >= c->n || !fo_edit_same(&p->block[r].op[i].arg[k], &c->arg[n]))
				r = -1;
	if (r >= 0 && n == c->n)
		return r;
	snprintf(name, sizeof name, "%.16s.r", b->name);
	for (int k = 2; fo_block_find(p, name) >= 0; k++)
		snprintf(name, sizeof name, "%.16s.r%d", b->name, k);
	made[of] = fo_block_add(p, name, FO_ROLE_REDUCE, b->unit);
	fill_block(p, made[of], c, last);
	return made[of];
}

void fo_pass_put_sum(struct fo_program *p, int block, int at, int phase, const struct fo_operand of[3])
{
	struct fo_op *o = fo_op_insert(p, block, at, FO_OP_add, phase, FO_LANE_COMPUTE);
	for (int i = 0; i < 3; i++) {
		o->arg[o->n] = of[i];
		o->arg[o->n++].access = i < 2 ? FO_READ : FO_DEF;
	}
}

int fo_pass_ddp_norm(struct fo_program *p, const char *name, enum fo_group group, int own, int rest, int all)
{
	int b = fo_block_add(p, name, FO_ROLE_OPTIMIZER, FO_UNIT_STEP);
	struct fo_op *o = fo_op_insert(p, b, 0, FO_OP_all_reduce, FO_TRANSFER, FO_LANE_REDUCE);
	o->group = (uint8_t)group;
	fo_op_arg(p, o, own, 0, FO_UPDATE);
	if (rest < 0)
		return b;
	o = fo_op_insert(p, b, 1, FO_OP_add, FO_OPTIMIZER, FO_LANE_COMPUTE);
	fo_op_arg(p, o, own, 0, FO_READ);
	fo_op_arg(p, o, rest, 0, FO_READ);
	fo_op_arg(p, o, all, 0, FO_DEF);
	return b;
}

/* Does slot s add to what an earlier slot has completed for the micro-batch? In a pipeline those of the next one may
 * come between. */
static bool adds_again(const struct fo_program *p, const struct ends *e, int s)
{
	const struct fo_block *b = &p->block[p->slot[s].block];
	if (e->mb < 0 || p->slot[s].mb == e->mb || b->role == FO_ROLE_OPTIMIZER)
		return false;
	for (int i = 0; i < b->n; i++)
		for (int k = 0; k < b->op[i].n; k++) {
			const struct fo_operand *a = &b->op[i].arg[k];
			int layer = layer_of(p, s, a);
			int last = is_summed(p, e, a) ? e->last[a->buf * e->layers + layer] : -1;
			if (last >= 0 && last < s)
				return true;
		}
	return false;
}

/* Puts the sums behind the slots that complete them; with reduce_late behind the last of these, the newest sum first:
 * a lane is in order, so nothing travels before backward is over. A sum of one micro-batch goes in any case before the
 * next one adds to it. made: by block, as reduce_block has it. */
static void reduce_behind(struct fo_program *p, struct ends *e, int *made)
{
	const int slots = p->nslot;
	struct fo_slot *to = fo_xmalloc(2 * (size_t)slots * sizeof *to), *sum = fo_xmalloc((size_t)slots * sizeof *sum);
	struct complete c = { 0 };
	int n = 0, sums = 0, left = 0;
	find_ends(p, e);
	for (int s = 0; s < slots; s++) {
		find_complete(p, e, s, &c);
		left += c.n > 0;
	}
	for (int s = 0; s < slots; s++) {
		while (sums && adds_again(p, e, s))
			to[n++] = sum[--sums];
		to[n++] = p->slot[s];
		find_complete(p, e, s, &c);
		if (!c.n)
			continue;
		sum[sums] = p->slot[s];
		sum[sums++].block = (int16_t)reduce_block(p, p->slot[s].block, made, &c, e->mb < 0);
		left--;
		while (sums && (!p->run.pass.reduce_late || !left))
			to[n++] = sum[--sums];
	}
	free(p->slot);
	p->slot = to;
	p->nslot = n;
	p->slot_cap = 2 * (size_t)slots;
	free(sum);
	free(c.arg);
}

static void reduce(struct fo_program *p, const bool *of)
{
	struct ends e = { .layers = (int)p->model.layers + 1, .mb = of ? 0 : -1, .of = of };
	size_t n = (size_t)p->nbuf * (size_t)e.layers, blocks = (size_t)p->nblock;
	int *made = fo_xmalloc((blocks + 1) * sizeof *made);
	e.last = fo_xmalloc((n + 1) * sizeof *e.last);
	memset(made, -1, blocks * sizeof *made);
	do
		reduce_behind(p, &e, made);
	while (of && ++e.mb < p->run.micro_batches - 1);
	free(made);
	free(e.last);
}

void fo_pass_ddp_each(struct fo_program *p, const bool *of)
{
	if (p->run.micro_batches > 1)
		reduce(p, of);
}

void fo_pass_ddp(struct fo_program *p)
{
	if (p->ranks > 1) /* evaluation has no gradients: its loss alone is added up */
		reduce(p, NULL);
}
