/* Divides a model's layers over the stages of a pipeline: what a layer, the embedding and the head cost is read off
 * small programs, built with the run's own passes, and schedule.h splits by that.
 *
 * The answer depends on the run file alone: rates are fixed (fo_choose_rates, whose ratios alone matter), and the room
 * is what memory.budget or memory.limit say, not what a machine has free. So all ranks divide alike, and a run that
 * goes on has the same stages.
 *
 * A stage's time is that of its blocks forward and backward, and its share of the optimizer's, which runs once a step.
 * Transfers are left out: every stage has them. */
#include "pass/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A share of the slowest stage's time below which the even division stays: rates cannot tell less apart. */
#define LEAST_GAIN 1e-3

/* The time and memory of a program of so many layers. */
struct whole {
	double seconds[FO_UNIT_COUNT]; /* of one micro-batch, forward and backward */
	double once[FO_UNIT_COUNT];    /* of the optimizer, once a step */
	double bytes[FO_UNIT_COUNT];   /* of parameters, state and gradients: a layer's, outside of layers */
	double held;                   /* activations that wait for backward, of one micro-batch */
	double work[FO_UNIT_COUNT];    /* other activations, at most at a time */
};

static double block_seconds(const struct fo_program *p, const struct fo_block *b, const struct fo_choose_rates *rates)
{
	double sum = 0;
	for (int i = 0; i < b->n; i++)
		if (b->op[i].lane == FO_LANE_COMPUTE)
			sum += fo_op_seconds(p, &b->op[i], rates);
	return sum;
}

static void find_seconds(const struct fo_program *p, const struct fo_choose_rates *rates, struct whole *w)
{
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		if (b->role == FO_ROLE_FORWARD || b->role == FO_ROLE_BACKWARD)
			w->seconds[b->unit] += block_seconds(p, b, rates);
		else if (b->role == FO_ROLE_OPTIMIZER)
			w->once[b->unit] += block_seconds(p, b, rates);
	}
}

static bool block_names(const struct fo_program *p, int unit, int buf)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; p->block[b].unit == unit && i < p->block[b].n; i++)
			for (int k = 0; k < p->block[b].op[i].n; k++)
				if (p->block[b].op[i].arg[k].buf == buf)
					return true;
	return false;
}

/* A tied embedding and head both name the matrix, and both ends have it. */
static void find_bytes(const struct fo_program *p, struct whole *w)
{
	for (int i = 0; i < p->nbuf; i++) {
		const struct fo_buffer *b = &p->buf[i];
		if (b->home != FO_HOME_PARAM && b->home != FO_HOME_STATE && b->home != FO_HOME_GRAD)
			continue;
		for (int u = 0; u < FO_UNIT_COUNT; u++)
			if ((u == FO_UNIT_LAYER) == !!(b->axes & FO_PER_LAYER) && block_names(p, u, i))
				w->bytes[u] += (double)fo_buffer_bytes(b);
	}
}

static const struct fo_block *block_at(const struct fo_program *p, const struct fo_unrolled *u, int instance)
{
	return &p->block[p->slot[u->slot[instance]].block];
}

/* Activations that live from forward to backward are held; all else comes and goes while a block works. */
static void find_held(const struct fo_program *p, const struct fo_unrolled *u, struct whole *w)
{
	double *live = fo_xmalloc((size_t)(u->n + 1) * sizeof *live), now = 0;
	for (int i = 0; i < u->nlife; i++) {
		const struct fo_life *l = &u->life[i];
		if (l->persists || p->buf[l->buf].home != FO_HOME_ACT)
			continue;
		if (block_at(p, u, l->first)->role == FO_ROLE_FORWARD &&
		    block_at(p, u, l->last)->role == FO_ROLE_BACKWARD) {
			w->held += (double)l->bytes;
		} else {
			live[l->first] += (double)l->bytes;
			live[l->last + 1] -= (double)l->bytes;
		}
	}
	for (int i = 0; i < u->n; i++) {
		double *most = &w->work[block_at(p, u, i)->unit];
		now += live[i];
		*most = fmax(*most, now);
	}
	free(live);
}

static fo_status measure(const struct fo_model *m, const struct fo_lowering *of, int64_t layers,
			 const struct fo_choose_rates *rates, struct whole *w)
{
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_model small = *m;
	struct fo_lowering run = *of;
	*w = (struct whole){ 0 };
	small.layers = layers;
	run.micro_batches = 1;
	run.pass.fp8_first = run.pass.fp8_last = run.pass.offload = 0; /* all layers count as alike */
	run.pass.pp = run.pass.pp_chunks = 0;
	run.mesh.rank %= fo_mesh_stage_ranks(&run.mesh);
	run.mesh.pp = 0;
	run.stages = (struct fo_staging){ 0 };
	if (run.pass.recompute)
		run.pass.recompute_layers = 0;
	FO_TRY(fo_pass_build(&p, &small, &run));
	fo_status st = fo_unroll(&p, &u);
	if (st == FO_OK) {
		find_seconds(&p, rates, w);
		find_bytes(&p, w);
		find_held(&p, &u, w);
		fo_unrolled_fini(&u);
	}
	fo_program_fini(&p);
	return st;
}

/* work: bytes that a stage takes while it computes, beside those of *c. */
static fo_status costs_of(const struct fo_model *m, const struct fo_lowering *run, const struct fo_choose_rates *rates,
			  struct fo_pp_costs *c, double *work)
{
	struct whole one, two;
	FO_TRY(measure(m, run, 1, rates, &one));
	FO_TRY(measure(m, run, 2, rates, &two));
	const double share = 1 / (double)run->micro_batches;
	const double *once = one.once, *work_of = one.work;
	/* Both ends update the matrix of a tied head. */
	const double tied = m->tied ? once[FO_UNIT_EMBED] : 0;
	*work = work_of[FO_UNIT_LAYER];
	*c = (struct fo_pp_costs){
		.layer_s = two.seconds[FO_UNIT_LAYER] - one.seconds[FO_UNIT_LAYER] +
			   share * (two.once[FO_UNIT_LAYER] - once[FO_UNIT_LAYER]),
		.embed_s = one.seconds[FO_UNIT_EMBED] + share * once[FO_UNIT_EMBED],
		.head_s = one.seconds[FO_UNIT_HEAD] + share * (once[FO_UNIT_HEAD] + tied),
		.layer_bytes = one.bytes[FO_UNIT_LAYER],
		.embed_bytes = one.bytes[FO_UNIT_EMBED],
		.head_bytes = one.bytes[FO_UNIT_HEAD] + fmax(work_of[FO_UNIT_HEAD] - work_of[FO_UNIT_LAYER], 0),
		.layer_held = two.held - one.held,
	};
	return FO_OK;
}

/* The cost of parts with these layers: the slowest stage's seconds, the fullest one's bytes. */
static void look(const struct fo_pp_shape *shape, const int32_t *layers, const struct fo_pp_costs *c, double *slowest,
		 double *fullest)
{
	*slowest = *fullest = 0;
	for (int32_t s = 0; s < shape->stages; s++) {
		double seconds, bytes;
		fo_pp_stage_costs(shape, s, layers, c, &seconds, &bytes);
		*slowest = fmax(*slowest, seconds);
		*fullest = fmax(*fullest, bytes);
	}
}

static void take(struct fo_lowering *run, const int32_t *layers, int32_t parts)
{
	run->stages.parts = parts;
	for (int32_t i = 0; i < parts; i++)
		run->stages.layers[i] = (int16_t)layers[i];
}

fo_status fo_pass_divide(const struct fo_model *m, struct fo_lowering *run, int64_t room_bytes, bool leanest,
			 const struct fo_choose_rates *rates)
{
	const struct fo_pp_shape shape = fo_lowering_pipeline(run);
	int32_t even[FO_STAGING_MOST], split[FO_STAGING_MOST], begin;
	struct fo_pp_balance b = { .layers = split };
	struct fo_lowering lean = *run;
	struct fo_pp_costs c, lean_costs;
	double even_s, even_bytes, work, unused;
	run->stages.parts = 0;
	FO_TRY(fo_lowering_check_pipeline(run, m->layers));
	if (shape.stages < 2 || fo_pp_parts(&shape) > FO_STAGING_MOST)
		return FO_OK; /* more parts than can be listed: even */
	for (int32_t i = 0; i < fo_pp_parts(&shape); i++)
		even[i] = fo_lowering_part(run, m->layers, i, &begin);
	FO_TRY(costs_of(m, run, rates, &c, &work));
	if (leanest) {
		lean.pass.recompute = FO_RECOMPUTE_FULL;
		FO_TRY(costs_of(m, &lean, rates, &lean_costs, &unused));
		c.layer_held = lean_costs.layer_held;
	}
	if (room_bytes)
		c.room = fmax((double)room_bytes - work, 1);
	fo_status st = fo_pp_balance_of(&b, &shape, (int32_t)m->layers, &c);
	if (st == FO_ENOMEM) { /* the plan of the whole program says what it takes */
		fo_err_clear();
		c.room = 0;
		st = fo_pp_balance_of(&b, &shape, (int32_t)m->layers, &c);
	}
	if (st != FO_OK) { /* more layers than it looks at: even stages are legal */
		fo_err_clear();
		return FO_OK;
	}
	look(&shape, even, &c, &even_s, &even_bytes);
	if ((c.room > 0 && even_bytes > c.room) || b.slowest_s < even_s * (1 - LEAST_GAIN))
		take(run, split, fo_pp_parts(&shape));
	/* A stage without fp8 layers would have no history of delayed scales. */
	if (run->pass.fp8 == FO_FP8_DELAYED && fo_pass_fp8_stages(run, m->layers) != FO_OK) {
		fo_err_clear();
		run->stages.parts = 0;
	}
	return FO_OK;
}
