/* From seconds by part to operations of pipeline stages. */
#include "plan/timeline.h"

#include "base/mem.h"
#include "predict/division.h"
#include "program/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fo_plan_op_name[FO_PLAN_OPS] = {
	"forward", "backward", "backward, inputs", "backward, weights", "tensor parallel", "context parallel",
	"experts", "send",     "gather weights",   "reduce gradients",  "optimizer",       "rest",
};

/* ---- the fleet ---- */

struct making {
	struct fo_fleet *f;
	struct fo_fleet_role *role;
	const struct fo_predict_step *s;
	struct fo_pp_shape shape;
	int32_t stage;
	uint8_t tensor, context, expert, data, stages; /* groups */
	uint8_t inside, between;                       /* links */
	double layers;                                 /* of one slot of this stage */
	double again_stages;                           /* those behind these recompute nothing; 0: all are alike */
	int32_t last;                                  /* the newest operation that others wait for; -1: none */
};

static int32_t works_on(struct making *k, enum fo_lane lane, enum fo_plan_op name, double seconds)
{
	int32_t op = fo_fleet_op_add(k->role, (struct fo_fleet_op){ .name = (int32_t)name,
								    .lane = (uint8_t)lane,
								    .does = FO_FLEET_WORKS,
								    .kind = FO_CROWD_TENSOR,
								    .seconds = seconds });
	if (k->last >= 0)
		fo_fleet_need(k->role, k->last);
	return k->last = op;
}

static int32_t works(struct making *k, enum fo_plan_op name, double seconds)
{
	return works_on(k, FO_LANE_COMPUTE, name, seconds);
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
							      .wraps = true });
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
	const struct fo_predict_slots *t = &k->s->slots;
	struct fo_pp_peer from, to;
	bool forward = s.work == FO_PP_FORWARD;
	bool head = fo_pp_position(&k->shape, k->stage, s.chunk) == fo_pp_parts(&k->shape) - 1;
	/* The head's forward is then part of backward, and its weights' gradient is not put off. */
	const bool late = k->s->ahead;
	const double ends = forward ? !late * t->head[0] : t->head[1] + late * t->head[0];
	double weight = k->layers * t->weight + (head && !late) * t->head_weight,
	       seconds = k->layers * t->work[!forward] + head * ends +
			 (k->stage == 0 && s.chunk == 0) * (s.work == FO_PP_WEIGHT ? 0 : t->embed[!forward]);
	if (!forward && k->again_stages > 0 && k->stage >= k->again_stages)
		seconds -= k->layers * t->again;
	if (s.work == FO_PP_INPUT)
		seconds -= weight;
	else if (s.work == FO_PP_WEIGHT)
		seconds = weight;
	int32_t got = -1;
	if (fo_pp_needs(&k->shape, k->stage, s, &from) && from.stage != k->stage)
		got = meets(k, lane[forward][0], false, forward ? -1 : 1);
	works(k, name[s.work], fmax(0, seconds));
	if (got >= 0)
		fo_fleet_need(k->role, got);
	if (s.work != FO_PP_WEIGHT) {
		calls(k, FO_PLAN_TENSOR, FO_LANE_TP, k->tensor, k->inside,
		      k->layers * t->call[FO_PREDICT_CALL_TENSOR][!forward]);
		calls(k, FO_PLAN_CONTEXT, FO_LANE_CP, k->context, k->inside,
		      k->layers * t->call[FO_PREDICT_CALL_CONTEXT][!forward]);
		calls(k, FO_PLAN_EXPERT, FO_LANE_TP, k->expert, k->between,
		      k->layers * t->call[FO_PREDICT_CALL_EXPERT][!forward]);
		calls(k, FO_PLAN_GATHER, FO_LANE_GATHER, k->data, k->between,
		      k->layers * t->call[FO_PREDICT_CALL_SHARD][!forward]);
	}
	/* Each slot waits for a message's exposed share, or goes on beside it; who sends and who receives it meet in no
	 * time. */
	const bool feeds = fo_pp_feeds(&k->shape, k->stage, s, &to) && to.stage != k->stage;
	const int32_t made = k->last;
	if (s.work != FO_PP_WEIGHT && k->shape.stages > 1 && (feeds || !late))
		works_on(k, lane[forward][1], FO_PLAN_SEND, t->hop);
	if (feeds) {
		meets(k, lane[forward][1], true, forward ? 1 : -1);
		fo_fleet_need(k->role, k->last);
	}
	if (late)
		k->last = made;
}

static void stage(struct making *k, int32_t index, struct fo_pp_slot *order)
{
	char name[32];
	snprintf(name, sizeof name, k->shape.stages > 1 ? "stage %d" : "each rank", index);
	k->role = fo_fleet_role_add(k->f, name);
	k->stage = index;
	k->last = -1;
	int64_t slots = fo_pp_order(&k->shape, index, order);
	for (int64_t i = 0; i < slots; i++)
		slot(k, order[i]);
	calls(k, FO_PLAN_REDUCE, FO_LANE_REDUCE, k->data, k->between, k->s->slots.exchange);
	works(k, FO_PLAN_OPTIMIZER, k->s->part[FO_PREDICT_OPTIMIZER]);
	works(k, FO_PLAN_REST, k->s->part[FO_PREDICT_REST]);
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

static double layers_of(const struct fo_predict_layout *l, const struct fo_predict_step *s, int32_t stage)
{
	return fo_predict_layers_at(&l->uneven, s->fewest, s->full, l->pp, stage);
}

static struct fo_pp_shape shape_of(const struct fo_predict_layout *l, const struct fo_predict_step *s)
{
	enum fo_pp_kind kind = fo_predict_pp_kind(l);
	return (struct fo_pp_shape){ .kind = kind,
				     .stages = (int32_t)fmax(1, l->pp),
				     .micro_batches = (int32_t)fmax(1, s->micro_batches),
				     .chunks = kind == FO_PP_INTERLEAVED ? (int32_t)l->chunks : 1 };
}

bool fo_plan_bubble_of(struct fo_pp_formula *out, const struct fo_predict_layout *l, const struct fo_predict_step *s)
{
	const struct fo_pp_shape shape = shape_of(l, s);
	const struct fo_predict_slots *t = &s->slots;
	double layers = 0, way[2];
	if (shape.stages < 2)
		return false;
	for (int32_t i = 0; i < shape.stages; i++)
		layers += layers_of(l, s, i) / shape.stages;
	for (int k = 0; k < 2; k++) {
		way[k] = layers * t->work[k] + t->head[k] / shape.stages;
		for (int i = 0; i < FO_PREDICT_CALLS; i++)
			way[k] += layers * t->call[i][k];
	}
	if (l->again_stages > 0)
		way[1] -= layers * t->again * (1 - l->again_stages / l->pp);
	const double weight = layers * t->weight + t->head_weight / shape.stages;
	fo_pp_formula_of(out, &shape, way[0], way[1] - weight, weight);
	return true;
}

fo_status fo_plan_timeline_of(struct fo_plan_timeline *out, const struct fo_predict_layout *l,
			      const struct fo_predict_step *s)
{
	*out = (struct fo_plan_timeline){ 0 };
	struct making k = { .f = &out->fleet, .s = s, .shape = shape_of(l, s), .again_stages = l->again_stages };
	FO_TRY(fo_pp_legal(&k.shape));
	axes(&k, l, s);
	struct fo_pp_slot *order = fo_xmalloc((size_t)fo_pp_slots_most(&k.shape) * sizeof *order);
	for (int32_t i = 0; i < k.shape.stages; i++) {
		k.layers = layers_of(l, s, i) / k.shape.chunks;
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
