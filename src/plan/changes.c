/* Changes in the order of what they gain. */
#include "plan/changes.h"

#include <math.h>

const char *const fo_plan_field_name[FO_PLAN_FIELDS] = {
	"tensor parallelism", "context parallelism", "the pipeline",    "expert parallelism",
	"what ranks share",   "recomputation",       "the micro-batch", "overlap of data parallelism",
	"the number type",    "optimizer states",
};
#define NEAR 1.01   /* of the goal's time: issue and reader ask for no more */
#define GAINS 0.999 /* a change that saves less is none */

static bool same_stages(const struct fo_predict_uneven *a, const struct fo_predict_uneven *b)
{
	return a->first == b->first && a->middle == b->middle && a->last == b->last;
}

static bool differ(const struct fo_predict_layout *a, const struct fo_predict_layout *b, int field)
{
	switch (field) {
	case FO_PLAN_FIELD_TP:
		return a->tp != b->tp || (a->tp > 1 && (a->sp != b->sp || a->tp_overlap != b->tp_overlap));
	case FO_PLAN_FIELD_CP: return a->cp != b->cp;
	case FO_PLAN_FIELD_PP:
		return a->pp != b->pp ||
		       (a->pp > 1 && (a->chunks != b->chunks || a->schedule != b->schedule ||
				      a->stages_near != b->stages_near || !same_stages(&a->uneven, &b->uneven)));
	case FO_PLAN_FIELD_EP: return a->ep != b->ep;
	case FO_PLAN_FIELD_STATES:
		return a->zero != b->zero || a->shard != b->shard || a->keeps_weights != b->keeps_weights;
	case FO_PLAN_FIELD_AGAIN:
		return a->again_stages != b->again_stages || a->recompute != b->recompute ||
		       a->recompute_op != b->recompute_op || a->recompute_core != b->recompute_core ||
		       a->recompute_ffn != b->recompute_ffn;
	case FO_PLAN_FIELD_HIDES: return a->dp_overlap != b->dp_overlap;
	case FO_PLAN_FIELD_TYPE: return a->type != b->type;
	case FO_PLAN_FIELD_FORMAT: return a->format != b->format;
	default: return a->micro_batch != b->micro_batch;
	}
}

static void take(struct fo_predict_layout *l, const struct fo_predict_layout *goal, int field)
{
	switch (field) {
	case FO_PLAN_FIELD_TP:
		l->tp = goal->tp;
		l->sp = goal->sp;
		l->tp_overlap = goal->tp_overlap;
		break;
	case FO_PLAN_FIELD_CP: l->cp = goal->cp; break;
	case FO_PLAN_FIELD_PP:
		l->pp = goal->pp;
		l->chunks = goal->chunks;
		l->schedule = goal->schedule;
		l->stages_near = goal->stages_near;
		l->uneven = goal->uneven;
		break;
	case FO_PLAN_FIELD_EP: l->ep = goal->ep; break;
	case FO_PLAN_FIELD_STATES:
		l->zero = goal->zero;
		l->shard = goal->shard;
		l->keeps_weights = goal->keeps_weights;
		break;
	case FO_PLAN_FIELD_AGAIN:
		l->recompute = goal->recompute;
		l->again_stages = goal->again_stages;
		l->recompute_op = goal->recompute_op;
		l->recompute_core = goal->recompute_core;
		l->recompute_ffn = goal->recompute_ffn;
		break;
	case FO_PLAN_FIELD_HIDES: l->dp_overlap = goal->dp_overlap; break;
	case FO_PLAN_FIELD_TYPE: l->type = goal->type; break;
	case FO_PLAN_FIELD_FORMAT: l->format = goal->format; break;
	default: l->micro_batch = goal->micro_batch; break;
	}
}

/* A setting of an axis that the division does not have means nothing. */
static void forget_unused(struct fo_predict_layout *l)
{
	if (l->tp <= 1) {
		l->sp = false;
		l->tp_overlap = 0;
	}
	if (l->pp <= 1) {
		l->chunks = 1;
		l->schedule = FO_PREDICT_1F1B;
		l->stages_near = false;
		l->again_stages = 0;
		l->uneven = (struct fo_predict_uneven){ 0 };
	}
}

/* Seconds of a step with these fields changed; infinite where that is illegal or too large. */
static double with(const struct fo_plan_asked *a, const struct fo_predict_layout *from,
		   const struct fo_predict_layout *goal, uint32_t fields, struct fo_predict_layout *out)
{
	struct fo_predict_step s;
	*out = *from;
	for (int f = 0; f < FO_PLAN_FIELDS; f++)
		if (fields & 1u << f)
			take(out, goal, f);
	forget_unused(out);
	double dp = out->devices / (out->tp * out->cp * out->pp);
	out->micro_batches = a->global_batch / (dp * out->micro_batch);
	/* A configuration may state that it hides nothing, which a plan never does: that is legal all the same. */
	struct fo_predict_layout legal = *out;
	if (legal.tp_overlap < 0)
		legal.tp_overlap = 0;
	if (fo_plan_illegal(a, &legal))
		return INFINITY;
	fo_predict_point(&a->base, out, &s);
	/* The goal fits, be it by the plan of its program; on the way there the estimate must. */
	const bool fits = fo_plan_same(out, goal) || fo_predict_upper_bytes(&s) <= fo_plan_room(a);
	return !s.wrong && fits ? s.seconds : INFINITY;
}

static int bits(uint32_t x)
{
	int n = 0;
	for (; x; x &= x - 1)
		n++;
	return n;
}

int fo_plan_changes(const struct fo_plan_asked *a, const struct fo_predict_layout *from,
		    const struct fo_predict_layout *goal, struct fo_plan_change out[FO_PLAN_FIELDS])
{
	struct fo_predict_layout now = *from, next;
	struct fo_predict_step s;
	uint32_t left = 0;
	int changes = 0;
	for (int f = 0; f < FO_PLAN_FIELDS; f++)
		left |= differ(from, goal, f) ? 1u << f : 0;
	fo_predict_point(&a->base, from, &s);
	double seconds = s.seconds, least = with(a, goal, goal, 0, &next);
	while (left && seconds > NEAR * least) {
		/* The fewest fields that gain; of those the most gain. */
		struct fo_plan_change best = { .after = INFINITY };
		for (uint32_t set = left; set; set = (set - 1) & left) {
			bool fewer = best.fields && bits(set) < bits(best.fields);
			if (best.fields && bits(set) > bits(best.fields))
				continue;
			double after = with(a, &now, goal, set, &next);
			if (after < GAINS * seconds && (fewer || after < best.after))
				best = (struct fo_plan_change){ set, next, seconds, after };
		}
		if (!best.fields)
			break;
		out[changes++] = best;
		left &= ~best.fields;
		now = best.layout;
		seconds = best.after;
	}
	return changes;
}
