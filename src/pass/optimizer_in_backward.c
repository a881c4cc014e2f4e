/* optimizer-in-backward: a parameter is updated as soon as its gradient is complete, and the gradient's bytes are free
 * again.
 *
 * Slots move, operations stay. An optimizer slot moves up to the last slot that uses what it changes or takes: its
 * layer's backward of the last micro-batch (the embedding's, where the head shares its weights). The decision whether
 * the step is taken moves in front of the first update: the loss is known there, the gradient norm is not. So the bound
 * must be on the norm of the step before (clip's attribute), and a gradient that is not finite is seen only when
 * weights have changed. PyTorch's "optimizer step in backward" and LOMO (Lv et al. 2023) do the same. */
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

static fo_status find_clip(const struct fo_program *p, int *block, int *at)
{
	*block = -1;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			if (p->block[b].op[i].kind != FO_OP_clip)
				continue;
			if (*block >= 0)
				return fo_fail(FO_EARG, "the program decides twice whether a step is taken");
			*block = b;
			*at = i;
		}
	return *block >= 0 && p->block[*block].op[*at].n == FO_CLIP_LOSS + 1
		       ? FO_OK
		       : fo_fail(FO_EARG, "the program has no operation that knows loss and gradient norm");
}

fo_status fo_pass_optimizer_in_backward_legal(const struct fo_program *p)
{
	int block, at;
	if (p->run.mode != FO_MODE_TRAIN)
		return FO_OK;
	FO_TRY(find_clip(p, &block, &at));
	if (p->block[block].op[at].attr.value == 1)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG,
			       "clipping by the norm of all gradients needs the last of them before the first update"),
		       "optim.clip-norm=previous bounds by the norm of the step before; optim.clip=0 does not clip");
}

/* ---- the last slot that uses a buffer's instance ---- */

struct uses {
	int layers; /* instances of a buffer; gradients and what persists have no micro-batches */
	int *last;  /* [buffer][layer]: the newest slot of forward and backward; -1: none */
};

static int *last_use(const struct fo_program *p, const struct uses *u, const struct fo_slot *s,
		     const struct fo_operand *a)
{
	int layer = p->buf[a->buf].axes & FO_PER_LAYER ? s->layer + a->dlayer : 0;
	return &u->last[a->buf * u->layers + layer];
}

static void find_uses(const struct fo_program *p, struct uses *u)
{
	u->layers = (int)p->model.layers + 1;
	size_t n = (size_t)p->nbuf * (size_t)u->layers;
	u->last = fo_xmalloc((n + 1) * sizeof *u->last);
	memset(u->last, -1, n * sizeof *u->last);
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		for (int i = 0; b->role != FO_ROLE_OPTIMIZER && i < b->n; i++)
			for (int k = 0; k < b->op[i].n; k++)
				*last_use(p, u, &p->slot[s], &b->op[i].arg[k]) = s;
	}
}

/* ---- moving ---- */

enum what { STAYS, MEASURES, UPDATES };

/* How an optimizer slot uses gradients; it can do so after slot *behind. */
static enum what place_of(const struct fo_program *p, const struct uses *u, const struct fo_slot *s, int *behind)
{
	const struct fo_block *b = &p->block[s->block];
	enum what what = STAYS;
	*behind = -1;
	for (int i = 0; b->role == FO_ROLE_OPTIMIZER && i < b->n; i++)
		for (int k = 0; k < b->op[i].n; k++) {
			const struct fo_operand *a = &b->op[i].arg[k];
			int home = p->buf[a->buf].home;
			if (home == FO_HOME_GRAD)
				what = a->access == FO_TAKE || what == UPDATES ? UPDATES : MEASURES;
			if (home != FO_HOME_GRAD && !(fo_home_persists(home) && fo_access_writes(a->access)))
				continue;
			int last = *last_use(p, u, s, a);
			*behind = last > *behind ? last : *behind;
		}
	return what;
}

/* The slots in their new order. `ahead`: the decision, whose slot stands in front of the first update; `known`: the
 * slot after which the loss is complete. */
static struct fo_slot *reorder(const struct fo_program *p, const struct uses *u, struct fo_slot ahead, int known)
{
	struct fo_slot *to = fo_xmalloc((size_t)(p->nslot + 1) * sizeof *to);
	int *behind = fo_xmalloc((size_t)p->nslot * sizeof *behind),
	    *what = fo_xmalloc((size_t)p->nslot * sizeof *what);
	/* Moved slots by the slot before them, in their old order. */
	int *first = fo_xmalloc((size_t)p->nslot * sizeof *first), *next = fo_xmalloc((size_t)p->nslot * sizeof *next),
	    n = 0;
	bool decided = false;
	memset(first, -1, (size_t)p->nslot * sizeof *first);
	for (int s = p->nslot - 1; s >= 0; s--) {
		what[s] = place_of(p, u, &p->slot[s], &behind[s]);
		if (what[s] == UPDATES && behind[s] < known)
			behind[s] = known;
		if (what[s] == STAYS)
			continue;
		next[s] = first[behind[s]];
		first[behind[s]] = s;
	}
	for (int s = 0; s < p->nslot; s++) {
		if (what[s] == STAYS)
			to[n++] = p->slot[s];
		for (int k = first[s]; k >= 0; k = next[k]) {
			if (what[k] == UPDATES && !decided)
				to[n++] = ahead;
			decided |= what[k] == UPDATES;
			to[n++] = p->slot[k];
		}
	}
	free(behind);
	free(what);
	free(first);
	free(next);
	return to;
}

void fo_pass_optimizer_in_backward(struct fo_program *p)
{
	int block, at;
	struct uses u;
	if (p->run.mode != FO_MODE_TRAIN || find_clip(p, &block, &at) != FO_OK)
		return;
	/* One operation becomes two: the decision, and at the end the norm for the log and the next step. */
	const struct fo_op clip = p->block[block].op[at];
	int front = fo_block_add(p, "step.ahead", FO_ROLE_OPTIMIZER, FO_UNIT_STEP);
	struct fo_op *o = fo_op_insert(p, front, 0, FO_OP_clip_ahead, clip.phase, clip.lane);
	o->origin = clip.id;
	o->n = FO_CLIP_AHEAD_LOSS + 1;
	o->arg[FO_CLIP_AHEAD_HYPER] = clip.arg[FO_CLIP_HYPER];
	o->arg[FO_CLIP_AHEAD_SCALE] = clip.arg[FO_CLIP_SCALE];
	o->arg[FO_CLIP_AHEAD_LOSS] = clip.arg[FO_CLIP_LOSS];
	o = &p->block[block].op[at];
	o->kind = FO_OP_global_norm;
	o->attr.value = 0;
	o->n = FO_GLOBAL_NORM_SCALE + 1;
	o->arg[FO_GLOBAL_NORM_ACC] = clip.arg[FO_CLIP_ACC];
	o->arg[FO_GLOBAL_NORM_SCALE] = clip.arg[FO_CLIP_SCALE];
	o->arg[FO_GLOBAL_NORM_SCALE].access = FO_UPDATE;
	find_uses(p, &u);
	/* loss.out stands after everything; the newest forward slot makes the loss. */
	int known = -1;
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		for (int i = 0; i < b->n; i++)
			for (int k = 0; k < b->op[i].n; k++)
				if (b->op[i].arg[k].buf == clip.arg[FO_CLIP_LOSS].buf &&
				    fo_access_writes(b->op[i].arg[k].access))
					known = s;
	}
	struct fo_slot *to = reorder(p, &u, (struct fo_slot){ .block = (int16_t)front }, known);
	free(u.last);
	free(p->slot);
	p->slot = to;
	p->slot_cap = (size_t)++p->nslot;
}
