/* The verifier, run after lowering and after every pass. It guards passes; only numbers prove them (tests/step). */
#include "program/program.h"
#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>

/* Two optimizer operations must not own the same element: with areas that add up this makes the cover exact. */
static bool same_layer_used(const struct fo_program *p, int a, int b, bool per_layer)
{
	uint8_t *seen = fo_xmalloc((size_t)INT16_MAX + 1); /* by layer; a weight without layers counts as layer 0 */
	bool twice = false;
	for (int round = 0; round < 2; round++)
		for (int s = 0; s < p->nslot && !(round && a == b); s++) {
			int layer = per_layer ? p->slot[s].layer : 0;
			if (p->slot[s].block != (round ? b : a))
				continue;
			twice |= round || a == b ? seen[layer] : 0;
			seen[layer] |= !round;
		}
	free(seen);
	return twice;
}

/* A walk over the weights that the optimizer operations of a block update. */
struct updates {
	int op, tensor;
};

/* NULL: no more. */
static const struct fo_operand *next_update(const struct fo_block *b, struct updates *at)
{
	for (; at->op < b->n; at->op++, at->tensor = 0) {
		const struct fo_op *o = &b->op[at->op];
		if (fo_op_family(o->kind) == FO_OPS_UPDATE && at->tensor < fo_op_tensors(o->kind, o->n))
			return &o->arg[fo_op_operand_of(o->kind, at->tensor++, FO_ADAMW_W)];
	}
	return NULL;
}

static fo_status check_two_blocks(const struct fo_program *p, int a, int b)
{
	const struct fo_operand *u, *v;
	for (struct updates x = { 0 }; (u = next_update(&p->block[a], &x));)
		for (struct updates y = { 0 }; (v = next_update(&p->block[b], &y));) {
			if (!fo_operands_overlap(u, v))
				continue;
			/* The same slot, or two slots of one layer (any two where the weight has no layers). */
			if ((a == b && u != v) || same_layer_used(p, a, b, p->buf[u->buf].axes & FO_PER_LAYER))
				return fo_fail(FO_EBUG, "elements of '%s' are updated twice, in blocks '%s' and '%s'",
					       p->buf[u->buf].name, p->block[a].name, p->block[b].name);
		}
	return FO_OK;
}

static fo_status check_disjoint(const struct fo_program *p)
{
	for (int a = 0; a < p->nblock; a++)
		for (int b = a; b < p->nblock; b++)
			FO_TRY(check_two_blocks(p, a, b));
	return FO_OK;
}

/* Every element of every parameter that this rank owns is updated exactly once per step. */
static fo_status check_owners(const struct fo_program *p)
{
	int layers = (int)p->model.layers;
	int64_t *area = fo_xmalloc((size_t)(p->nparam * layers + 1) * sizeof *area);
	fo_status st = FO_OK;
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		const struct fo_operand *w;
		for (struct updates at = { 0 }; (w = next_update(b, &at));) {
			for (int q = 0; q < p->nparam; q++) {
				const struct fo_param *pr = &p->param[q];
				int64_t first = w->r0 + p->buf[w->buf].row0; /* as though the buffer were whole */
				int64_t r0 = fo_max(pr->r0, first), c0 = fo_max(pr->c0, w->c0);
				int64_t r1 = fo_min(pr->r0 + pr->nr, first + w->nr);
				int64_t c1 = fo_min(pr->c0 + pr->nc, w->c0 + w->nc);
				int l = pr->per_layer ? p->slot[s].layer + w->dlayer : 0;
				if (pr->weight == w->buf && r0 < r1 && c0 < c1 && l >= 0 && l < layers)
					area[q * layers + l] += (r1 - r0) * (c1 - c0);
			}
		}
	}
	for (int q = 0; q < p->nparam && st == FO_OK; q++) {
		const struct fo_param *pr = &p->param[q];
		if (pr->r0 + (int64_t)pr->nr > fo_buffer_whole(&p->buf[pr->weight]))
			st = fo_fail(FO_EBUG, "parameter '%s' has more rows than its buffer", pr->name);
		const struct fo_buffer *b = &p->buf[pr->m >= 0 ? pr->m : pr->weight];
		int64_t from, rows = fo_param_rows(pr, b, &from);
		for (int l = 0; l < (pr->per_layer ? layers : 1) && st == FO_OK; l++) {
			const int64_t own = fo_program_has(p, b, l) ? rows * pr->nc : 0;
			if (area[q * layers + l] != own)
				st = fo_fail(FO_EBUG,
					     "parameter '%s' of layer %d: the optimizer updates %lld of the %lld "
					     "elements that are this rank's",
					     pr->name, l, (long long)area[q * layers + l], (long long)own);
		}
	}
	free(area);
	return st;
}

/* Weights, their state and tables lie where the store looks for them and have a type that it can fill. */
static fo_status check_homes(const struct fo_program *p)
{
	int32_t place, shard = fo_mesh_group(&p->run.mesh, FO_GROUP_SHARD, &place, NULL);
	for (int i = 0; i < p->nbuf; i++) {
		const struct fo_buffer *b = &p->buf[i];
		int64_t begin, rows = fo_mesh_part(fo_buffer_whole(b), place, shard, &begin);
		if (b->whole && (rows != b->rows || begin != b->row0))
			return fo_fail(FO_EBUG, "the rows of '%s' are not this rank's part of all %lld", b->name,
				       (long long)b->whole);
	}
	for (int i = 0; i < p->nbuf; i++)
		if (p->buf[i].home == FO_HOME_CONST &&
		    ((p->buf[i].dtype != FO_F32 && p->buf[i].dtype != FO_F64) || p->buf[i].cols % 2))
			return fo_fail(FO_EBUG, "table '%s' must be f32 or f64 with an even number of columns",
				       p->buf[i].name);
	for (int q = 0; q < p->nparam; q++) {
		const struct fo_param *pr = &p->param[q];
		const struct {
			int buf, home;
			bool needed, halves; /* halves: it may hold low halves */
		} part[] = { { pr->weight, FO_HOME_PARAM, true, false },
			     { pr->master, FO_HOME_STATE, false, true },
			     { pr->m, FO_HOME_STATE, false, false },
			     { pr->v, FO_HOME_STATE, false, false },
			     { pr->grad, FO_HOME_GRAD, false, false } };
		for (int k = 0; k < 5; k++) {
			const struct fo_buffer *b = part[k].buf < 0 ? NULL : &p->buf[part[k].buf];
			bool wrong = !b && part[k].needed;
			if (b)
				wrong = b->home != part[k].home || b->dtype == FO_I32 || fo_dtype_fp8(b->dtype) ||
					(b->dtype == FO_I16 && !part[k].halves);
			if (wrong)
				return fo_fail(FO_EBUG,
					       "parameter '%s': its weight, state or gradient has no buffer, or one of "
					       "another kind",
					       pr->name);
		}
	}
	return FO_OK;
}

/* This rank's part of the vocabulary: parts differ by a word. */
static double share_of_words(const struct fo_program *p)
{
	for (int q = 0; q < p->nparam; q++)
		if (p->buf[p->param[q].weight].tp && p->buf[p->param[q].weight].row_axis == FO_AXIS_VOCAB)
			return (double)p->param[q].nr / (double)p->param[q].rows;
	return 1.0 / fo_mesh_tp(&p->run.mesh);
}

/* FLOP per token, by rule mfu, of what this stage of a pipeline has of the model: its layers; the last one the head and
 * the norm in front of it, 6 FLOP per weight. */
static double stage_flop(const struct fo_program *p, const struct fo_flop *f)
{
	const double head = 3 * f->component[FO_COMP_HEAD].forward + 6.0 * (double)p->model.hidden,
		     layers = (f->mfu - head) * (double)fo_program_layers(p) / (double)p->model.layers;
	if (!p->staged)
		return f->mfu;
	return layers + (fo_program_has_head(p) ? head : 0);
}

static fo_status check(const struct fo_program *p)
{
	bool train = p->run.mode == FO_MODE_TRAIN, decode = p->run.mode == FO_MODE_DECODE;
	struct fo_unrolled u;
	FO_TRY(fo_unroll(p, &u));
	int dead = u.dead_stores;
	fo_unrolled_fini(&u);
	FO_TRY(check_homes(p));
	/* Forward-only programs leave values that backward would read: rstd and lse. */
	if (dead && train)
		return fo_fail(FO_EBUG, "%d values are written and never read", dead);
	if (train)
		FO_TRY(check_owners(p));
	if (train)
		FO_TRY(check_disjoint(p));
	struct fo_flop f = fo_model_flop_per_token(&p->model, decode ? p->run.context : p->run.seq);
	/* Forward alone is one third of every rule: one matmul of three, and 4 of 12 L H Q S. */
	double want = stage_flop(p, &f) * (double)p->tokens * (double)p->run.micro_batches / (train ? 1 : 3);
	if (decode) /* the head (and the norm before it, 2 FLOP per weight) sees only the last token */
		want -= (double)(p->tokens - 1) * (f.component[FO_COMP_HEAD].forward + 2.0 * (double)p->model.hidden);
	if (p->run.pass.tp) { /* the ranks of a tp group have the same rows */
		double head = fo_program_has_head(p) ? f.component[FO_COMP_HEAD].forward * (double)p->tokens *
							       (double)p->run.micro_batches * (train ? 3 : 1)
						     : 0;
		want = (want - head) / fo_mesh_tp(&p->run.mesh) + head * share_of_words(p);
	}
	double have = fo_program_cost(p, -1).model;
	if (fabs(have - want) > 1e-12 * want)
		return fo_fail(FO_EBUG, "model FLOP are %.17g, the closed formula says %.17g", have, want);
	return FO_OK;
}

fo_status fo_program_verify(const struct fo_program *p, const char *after)
{
	fo_status st = check(p);
	return st == FO_OK ? FO_OK : fo_wrap(st, "program after %s", after);
}
