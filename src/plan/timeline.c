/* From seconds by part to operations of pipeline stages. */
#include "plan/timeline.h"

#include "base/mem.h"
#include "program/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fo_plan_op_name[FO_PLAN_OPS] = {
	"forward", "backward", "backward, inputs", "backward, weights", "tensor parallel", "context parallel",
	"experts", "send",     "gather weights",   "reduce gradients",  "optimizer",       "rest",
};

/* Of what a product takes forward, backward takes twice; of attention 2.5 times, of what is bound by memory 1.6 times
 * (src/predict). Of communication that products wait for, backward has as much as forward. */
#define FORWARD_MATMUL (1 / 3.0)
#define FORWARD_ATTENTION (1 / 3.5)
#define FORWARD_MEMORY (1 / 2.6)
/* Exposed data-parallel traffic: gathers ahead of forward, reductions behind backward; with stage 3 three passes of
 * which one is a reduction. */
#define GATHERED (2 / 3.0)

/* Seconds of one slot of an ordinary stage, and what the head adds on the last part of the model. */
struct times {
	double forward, backward, head_forward, head_backward;
	double call[3]; /* tensor, context, expert: of one direction */
	double hop, gather, reduce, optimizer, rest;
};

static double part(const struct fo_predict_step *s, enum fo_predict_part p) { return fmax(0, s->part[p]); }

static struct times times_of(const struct fo_predict_layout *l, const struct fo_predict_step *s)
{
	double slots = fmax(1, s->micro_batches) * fmax(1, l->chunks), m = fmax(1, s->micro_batches);
	double matmul = part(s, FO_PREDICT_MATMUL), attention = part(s, FO_PREDICT_ATTENTION),
	       memory = part(s, FO_PREDICT_MEMORY);
	double forward = matmul * FORWARD_MATMUL + attention * FORWARD_ATTENTION + memory * FORWARD_MEMORY;
	double all = matmul + attention + memory + part(s, FO_PREDICT_RECOMPUTE) + part(s, FO_PREDICT_HOST);
	double gathered = l->zero >= 3 ? GATHERED : 0,
	       head = part(s, FO_PREDICT_LOSS) * fmax(1, l->pp); /* of one stage */
	return (struct times){
		.forward = forward / slots,
		.backward = (all - forward) / slots,
		.head_forward = head * FORWARD_MATMUL / m,
		.head_backward = head * (1 - FORWARD_MATMUL) / m,
		.call = { part(s, FO_PREDICT_TENSOR) / (2 * slots), part(s, FO_PREDICT_CONTEXT) / (2 * slots),
			  part(s, FO_PREDICT_EXPERT) / (2 * slots) },
		.hop = part(s, FO_PREDICT_SENDS) / (2 * slots),
		.gather = gathered * part(s, FO_PREDICT_DATA),
		.reduce = (1 - gathered) * part(s, FO_PREDICT_DATA),
		.optimizer = part(s, FO_PREDICT_OPTIMIZER),
		.rest = part(s, FO_PREDICT_REST),
	};
}

/* ---- the fleet ---- */

struct making {
	struct fo_fleet *f;
	struct fo_fleet_role *role;
	struct times t;
	struct fo_pp_shape shape;
	int32_t stage;
	uint8_t tensor, context, expert, data, stages; /* groups */
	uint8_t inside, between;                       /* links */
	double layers;                                 /* of this stage over the mean stage's */
	int32_t last;                                  /* the newest operation that others wait for; -1: none */
};

static int32_t works(struct making *k, enum fo_plan_op name, double seconds)
{
	int32_t op = fo_fleet_op_add(k->role, (struct fo_fleet_op){ .name = (int32_t)name,
								    .lane = FO_LANE_COMPUTE,
								    .does = FO_FLEET_WORKS,
								    .kind = FO_CROWD_TENSOR,
								    .seconds = seconds });
	if (k->last >= 0)
		fo_fleet_need(k->role, k->last);
	return k->last = op;
}

/* A call that the work behind it waits for. */
static void calls(struct making *k, enum fo_plan_op name, enum fo_lane lane, uint8_t group, uint8_t link,
		  double seconds)
{
	if (!(seconds > 0))
		return;
	int32_t op = fo_fleet_op_add(k->role, (struct fo_fleet_op){ .name = (int32_t)name,
								    .lane = (uint8_t)lane,
								    .does = FO_FLEET_CALLS,
								    .group = group,
								    .link = link,
								    .seconds = seconds });
	if (k->last >= 0)
		fo_fleet_need(k->role, k->last);
	k->last = op;
}

static int32_t meets(struct making *k, enum fo_lane lane, bool sends, int32_t places)
{
	return fo_fleet_op_add(k->role, (struct fo_fleet_op){ .name = FO_PLAN_SEND,
							      .lane = (uint8_t)lane,
							      .does = sends ? FO_FLEET_SENDS : FO_FLEET_RECEIVES,
							      .group = k->stages,
							      .link = k->between,
							      .peer = (int16_t)places,
							      .wraps = true,
							      .seconds = k->t.hop });
}

/* One slot: what it receives, works on and sends. */
static void slot(struct making *k, struct fo_pp_slot s)
{
	static const enum fo_plan_op name[] = { [FO_PP_FORWARD] = FO_PLAN_FORWARD,
						[FO_PP_BACKWARD] = FO_PLAN_BACKWARD,
						[FO_PP_INPUT] = FO_PLAN_INPUT,
						[FO_PP_WEIGHT] = FO_PLAN_WEIGHT };
	static const enum fo_lane lane[2][2] = { { FO_LANE_RECV_BACKWARD, FO_LANE_SEND_BACKWARD },
						 { FO_LANE_RECV_FORWARD, FO_LANE_SEND_FORWARD } };
	const struct times *t = &k->t;
	struct fo_pp_peer from, to;
	bool forward = s.work == FO_PP_FORWARD, apart = s.work == FO_PP_INPUT || s.work == FO_PP_WEIGHT;
	bool head = fo_pp_position(&k->shape, k->stage, s.chunk) == fo_pp_parts(&k->shape) - 1;
	double seconds = forward ? k->layers * t->forward + head * t->head_forward
				 : k->layers * t->backward + head * t->head_backward;
	int32_t got = -1;
	if (fo_pp_needs(&k->shape, k->stage, s, &from) && from.stage != k->stage)
		got = meets(k, lane[forward][0], false, forward ? -1 : 1);
	works(k, name[s.work], apart ? seconds / 2 : seconds);
	if (got >= 0)
		fo_fleet_need(k->role, got);
	if (s.work != FO_PP_WEIGHT) {
		calls(k, FO_PLAN_TENSOR, FO_LANE_TP, k->tensor, k->inside, k->layers * t->call[0]);
		calls(k, FO_PLAN_CONTEXT, FO_LANE_CP, k->context, k->inside, k->layers * t->call[1]);
		calls(k, FO_PLAN_EXPERT, FO_LANE_TP, k->expert, k->between, k->layers * t->call[2]);
	}
	if (fo_pp_feeds(&k->shape, k->stage, s, &to) && to.stage != k->stage) {
		meets(k, lane[forward][1], true, forward ? 1 : -1);
		fo_fleet_need(k->role, k->last);
	}
}

static void stage(struct making *k, int32_t index, struct fo_pp_slot *order)
{
	char name[32];
	snprintf(name, sizeof name, k->shape.stages > 1 ? "stage %d" : "each rank", index);
	k->role = fo_fleet_role_add(k->f, name);
	k->stage = index;
	k->last = -1;
	calls(k, FO_PLAN_GATHER, FO_LANE_GATHER, k->data, k->between, k->t.gather);
	int64_t slots = fo_pp_order(&k->shape, index, order);
	for (int64_t i = 0; i < slots; i++)
		slot(k, order[i]);
	calls(k, FO_PLAN_REDUCE, FO_LANE_REDUCE, k->data, k->between, k->t.reduce);
	works(k, FO_PLAN_OPTIMIZER, k->t.optimizer);
	works(k, FO_PLAN_REST, k->t.rest);
}

static void axes(struct making *k, const struct fo_predict_layout *l, const struct fo_predict_step *s)
{
	struct fo_fleet *f = k->f;
	int32_t pp = fo_fleet_axis(f, "pp", k->shape.stages), dp = fo_fleet_axis(f, "dp", (int32_t)fmax(1, s->dp)),
		cp = fo_fleet_axis(f, "cp", (int32_t)fmax(1, l->cp)),
		tp = fo_fleet_axis(f, "tp", (int32_t)fmax(1, l->tp));
	k->tensor = (uint8_t)fo_fleet_group(f, "tensor", 1u << tp);
	k->context = (uint8_t)fo_fleet_group(f, "context", 1u << cp);
	k->expert = (uint8_t)fo_fleet_group(f, "expert", 1u << dp);
	k->data = (uint8_t)fo_fleet_group(f, "data", 1u << dp | 1u << cp);
	k->stages = (uint8_t)fo_fleet_group(f, "stages", 1u << pp);
	k->inside = (uint8_t)fo_fleet_link(f, "inside", 1, false);
	k->between = (uint8_t)fo_fleet_link(f, "between", 1, false);
	f->role_axis = pp;
	for (int i = 0; i < FO_PLAN_OPS; i++)
		fo_fleet_name(f, fo_plan_op_name[i]);
}

static enum fo_pp_kind kind_of(const struct fo_predict_layout *l)
{
	static const enum fo_pp_kind kind[] = { [FO_PREDICT_1F1B] = FO_PP_1F1B,
						[FO_PREDICT_INTERLEAVED] = FO_PP_INTERLEAVED,
						[FO_PREDICT_ZERO_BUBBLE] = FO_PP_ZB_H1,
						[FO_PREDICT_ZB_H2] = FO_PP_ZB_H2,
						[FO_PREDICT_GPIPE] = FO_PP_GPIPE };
	if (l->pp <= 1 || (l->schedule == FO_PREDICT_INTERLEAVED && l->chunks <= 1))
		return FO_PP_1F1B;
	return kind[l->schedule];
}

fo_status fo_plan_timeline_of(struct fo_plan_timeline *out, const struct fo_predict_layout *l,
			      const struct fo_predict_step *s)
{
	*out = (struct fo_plan_timeline){ 0 };
	struct making k = { .f = &out->fleet, .t = times_of(l, s) };
	enum fo_pp_kind kind = kind_of(l);
	k.shape = (struct fo_pp_shape){ .kind = kind,
					.stages = (int32_t)fmax(1, l->pp),
					.micro_batches = (int32_t)fmax(1, s->micro_batches),
					.chunks = kind == FO_PP_INTERLEAVED ? (int32_t)l->chunks : 1 };
	if (k.shape.chunks == 1) { /* slots of a stage that has no chunks are as long as all of them together */
		double n = fmax(1, l->chunks);
		k.t.forward *= n;
		k.t.backward *= n;
		k.t.hop *= n;
		for (int i = 0; i < 3; i++)
			k.t.call[i] *= n;
	}
	FO_TRY(fo_pp_legal(&k.shape));
	axes(&k, l, s);
	struct fo_pp_slot *order = fo_xmalloc((size_t)fo_pp_slots_most(&k.shape) * sizeof *order);
	for (int32_t i = 0; i < k.shape.stages; i++) {
		k.layers = s->most > 0 ? (i < s->full ? s->most : s->fewest) : 1;
		stage(&k, i, order);
	}
	free(order);
	fo_status st = fo_fleet_simulate(&out->run, &out->fleet);
	if (st != FO_OK)
		fo_fleet_fini(&out->fleet);
	return st;
}

void fo_plan_timeline_fini(struct fo_plan_timeline *t)
{
	fo_fleet_run_fini(&t->run);
	fo_fleet_fini(&t->fleet);
}
