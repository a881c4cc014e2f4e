/* recompute: backward makes values again that forward would have to keep.
 *
 * Forward operations of a layer are cloned into its backward block, each as late as its readers allow. A clone's DEF
 * begins a new generation, so the first one dies in forward by itself: nothing is renamed. Only what backward reads,
 * and what that is made from, is cloned (early stop: the layer's last matmul is not); an UPDATE comes with the DEF of
 * its buffer. Clones have phase recompute: work that runs and that no model needs. A maximum of all ranks for an fp8
 * scale is kept instead; gathers and sums of activations (pass tp) are made again like other operations.
 *
 * All of a layer from its input: Chen et al. 2016, "Training deep nets with sublinear memory cost". Only the cheap
 * operations: Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models". */
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

static bool touches(const struct fo_op *o, int buf, bool write)
{
	for (int i = 0; i < o->n; i++)
		if (o->arg[i].buf == buf && !o->arg[i].dlayer && (!write || fo_access_writes(o->arg[i].access)))
			return true;
	return false;
}

/* The set of operation `o` by its own row of ops.def. */
static int own_set(const struct fo_op *o)
{
	int set = fo_op_info(o->kind)->recompute;
	return set ? set : FO_RECOMPUTE_REST;
}

/* The set of matmul `at`, which writes `buf`: the first operation that reads its result says what it is for. */
static int set_of_matmul(const struct fo_block *f, int at, int buf)
{
	for (int i = at + 1; i < f->n; i++) {
		const struct fo_op *o = &f->op[i];
		if (!touches(o, buf, false) || touches(o, buf, true))
			continue;
		switch (own_set(o)) {
		case FO_RECOMPUTE_SWIGLU: return FO_RECOMPUTE_GATE_UP;
		case FO_RECOMPUTE_NORM:
		case FO_RECOMPUTE_ATTENTION: return FO_RECOMPUTE_QKV;
		case FO_RECOMPUTE_OUT: return FO_RECOMPUTE_OUT;
		default: return FO_RECOMPUTE_REST;
		}
	}
	return FO_RECOMPUTE_REST;
}

/* The set of the first operation up to `at` that writes `buf`; `at` itself does. */
static int set_of_maker(const struct fo_block *f, int at, int buf)
{
	for (int i = 0; i <= at; i++) {
		if (!touches(&f->op[i], buf, true))
			continue;
		int set = own_set(&f->op[i]);
		if (set == FO_RECOMPUTE_BY_READER)
			return set_of_matmul(f, i, buf);
		return set == FO_RECOMPUTE_BY_INPUT ? FO_RECOMPUTE_REST : set;
	}
	return FO_RECOMPUTE_REST;
}

int fo_recompute_set_of(const struct fo_block *f, int at)
{
	const struct fo_op *o = &f->op[at];
	if (own_set(o) == FO_RECOMPUTE_BY_INPUT) /* a cast belongs to what made its numbers */
		for (int i = 0, input = o->arg->buf; i < at; i++)
			if (touches(&f->op[i], input, true))
				return fo_recompute_set_of(f, i);
	/* An operation that writes into a buffer belongs to the one that made the buffer: a rotation or a bias to its
	 * matmul. */
	for (int k = 0; k < o->n; k++)
		if (fo_access_writes(o->arg[k].access) && !o->arg[k].dlayer)
			return set_of_maker(f, at, o->arg[k].buf);
	return FO_RECOMPUTE_REST;
}

/* Sets need[buf] for each buffer that the backward block reads and has not made itself. */
static void find_needs(const struct fo_program *p, const struct fo_block *b, bool *need)
{
	bool *own = fo_xmalloc((size_t)p->nbuf * sizeof *own);
	memset(own, 0, (size_t)p->nbuf * sizeof *own);
	for (int i = 0; i < b->n; i++)
		for (int k = 0; k < b->op[i].n; k++) {
			const struct fo_operand *a = &b->op[i].arg[k];
			if (a->dlayer)
				continue;
			if (a->access != FO_DEF && !own[a->buf])
				need[a->buf] = true;
			own[a->buf] |= fo_access_writes(a->access);
		}
	free(own);
}

/* Statistics of a norm: a number for each row or head. */
static bool is_statistic(const struct fo_op *o, int k)
{
	return fo_op_family(o->kind) == FO_OPS_NORM &&
	       fo_op_info(o->kind)->operand[fo_op_operand_row(o->kind, k)].type == FO_TYPE_WIDE;
}

/* Whether the operation writes a needed buffer. A buffer that it only adds to (a maximum for a history) does not count:
 * forward added its share already; nor do statistics, which are kept where nothing else of a norm is needed. */
static bool is_needed(const struct fo_program *p, const struct fo_op *o, const bool *need)
{
	for (int k = 0; k < o->n; k++) {
		const struct fo_operand *a = &o->arg[k];
		if (fo_access_writes(a->access) && a->access != FO_ACC && !a->dlayer && need[a->buf] &&
		    p->buf[a->buf].home == FO_HOME_ACT && !is_statistic(o, k))
			return true;
	}
	return false;
}

/* Inserts the clone before the first operation whose order to it matters. */
static void insert_clone(struct fo_program *p, int block, const struct fo_op *o)
{
	int at = 0;
	while (at < p->block[block].n && !fo_edit_conflict(&p->block[block].op[at], o))
		at++;
	fo_op_clone(p, block, at, o)->phase = FO_RECOMPUTE;
}

/* Clones the operations of `sets` from forward block f into backward block b. */
static void clone_into(struct fo_program *p, int f, int b, int64_t sets)
{
	bool *need = fo_xmalloc((size_t)p->nbuf * sizeof *need);
	memset(need, 0, (size_t)p->nbuf * sizeof *need);
	find_needs(p, &p->block[b], need);
	for (int i = p->block[f].n - 1; i >= 0; i--) {
		const struct fo_op o = p->block[f].op[i];
		if (!(fo_recompute_set_of(&p->block[f], i) & sets) || !is_needed(p, &o, need))
			continue;
		if (fo_op_info(o.kind)->max) {
			for (int k = 0; k < o.n; k++)
				if (fo_access_writes(o.arg[k].access))
					need[o.arg[k].buf] = false;
			continue;
		}
		insert_clone(p, b, &o);
		for (int k = 0; k < o.n; k++)
			if (o.arg[k].access == FO_DEF)
				need[o.arg[k].buf] = false;
		for (int k = 0; k < o.n; k++)
			if (o.arg[k].access != FO_DEF && !o.arg[k].dlayer)
				need[o.arg[k].buf] = true;
	}
	free(need);
}

static void put_sets(int64_t sets, struct fo_str *out)
{
	if (sets == FO_RECOMPUTE_FULL || !sets)
		fo_str_puts(out, sets ? "everything" : "nothing");
	else
		fo_recompute_sets_text(sets, ", ", out);
}

/* first in so many of a number of layers, rest in the others. */
static void put_repeat(int64_t first, int64_t rest, int64_t some, int64_t layers, struct fo_str *out)
{
	put_sets(first, out);
	if (!first || !some || some >= layers)
		return;
	fo_str_printf(out, " in the first %lld of %lld layers, ", (long long)some, (long long)layers);
	put_sets(rest, out);
	fo_str_puts(out, " in the rest");
}

static int64_t layers_of_stage(const struct fo_lowering *run, int64_t layers, int32_t stage)
{
	const struct fo_pp_shape shape = fo_lowering_pipeline(run);
	int64_t n = 0;
	for (int32_t c = 0, begin; c < shape.chunks; c++)
		n += fo_lowering_part(run, layers, fo_pp_position(&shape, stage, c), &begin);
	return n;
}

void fo_recompute_stage_text(const struct fo_lowering *run, int64_t layers, int32_t stage, struct fo_str *out)
{
	const struct fo_passes *c = &run->pass;
	const struct fo_stage_repeat *r = &run->stages.repeat[stage];
	if (run->stages.repeats)
		put_repeat(r->layers ? r->first : r->rest, r->rest, r->layers, layers_of_stage(run, layers, stage),
			   out);
	else
		put_repeat(c->recompute, c->recompute_rest, c->recompute_layers, layers, out);
}

static void put_stages(const struct fo_lowering *run, int64_t layers, struct fo_str *out)
{
	const struct fo_stage_repeat *r = run->stages.repeat;
	for (int32_t k = 0, end; k < run->stages.repeats; k = end) {
		const int64_t own = layers_of_stage(run, layers, k);
		for (end = k + 1; end < run->stages.repeats && !memcmp(&r[end], &r[k], sizeof *r) &&
				  layers_of_stage(run, layers, end) == own;)
			end++;
		fo_str_puts(out, k ? "; " : "");
		if (end - k > 1)
			fo_str_printf(out, "stages %d to %d: ", k, end - 1);
		else
			fo_str_printf(out, "stage %d: ", k);
		fo_recompute_stage_text(run, layers, k, out);
	}
}

void fo_recompute_text(const struct fo_lowering *run, int64_t layers, struct fo_str *out)
{
	if (run->stages.repeats)
		put_stages(run, layers, out);
	else
		fo_recompute_stage_text(run, layers, 0, out);
}

/* The forward block of the layer that a slot has; -1: none. */
static int forward_of(const struct fo_program *p, const struct fo_slot *of)
{
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		if (b->unit == FO_UNIT_LAYER && b->role == FO_ROLE_FORWARD && p->slot[s].layer == of->layer)
			return p->slot[s].block;
	}
	return -1;
}

/* Backward block b repeats c->recompute in its layers below `layers`, c->recompute_rest in the others; where it has
 * both, the first ones get a block of their own. */
static void repeat_in(struct fo_program *p, int b, int64_t layers)
{
	const struct fo_passes c = p->run.pass;
	bool *below = fo_xmalloc((size_t)(p->nslot + 1) * sizeof *below);
	int f = -1, first = 0, slots = 0;
	for (int s = 0; s < p->nslot; s++) {
		below[s] = p->slot[s].layer < layers;
		if (p->slot[s].block != b)
			continue;
		if (f < 0)
			f = forward_of(p, &p->slot[s]);
		first += below[s];
		slots++;
	}
	if (f >= 0 && first && first < slots)
		clone_into(p, f, fo_edit_split(p, b, "first", below), c.recompute);
	if (f >= 0)
		clone_into(p, f, b, first == slots ? c.recompute : c.recompute_rest);
	free(below);
}

fo_status fo_pass_recompute_legal(const struct fo_program *p)
{
	const struct fo_passes *c = &p->run.pass;
	if (c->recompute < 0 || c->recompute > FO_RECOMPUTE_FULL || c->recompute_rest < 0 ||
	    c->recompute_rest > FO_RECOMPUTE_FULL || c->recompute_layers < 0)
		return fo_fail(FO_EARG,
			       "what to repeat is a number of 0 to %d, not %lld in %lld layers and %lld in the rest",
			       FO_RECOMPUTE_FULL, (long long)c->recompute, (long long)c->recompute_layers,
			       (long long)c->recompute_rest);
	return FO_OK;
}

void fo_pass_recompute(struct fo_program *p)
{
	const struct fo_passes *c = &p->run.pass;
	if (p->run.mode != FO_MODE_TRAIN)
		return;
	/* The first layers' activations live longest; later ones keep theirs, or repeat less. */
	int64_t layers = c->recompute_layers && c->recompute_layers < p->model.layers ? c->recompute_layers
										      : p->model.layers;
	for (int b = 0, blocks = p->nblock; b < blocks; b++)
		if (p->block[b].unit == FO_UNIT_LAYER && p->block[b].role == FO_ROLE_BACKWARD)
			repeat_in(p, b, layers);
}
