/* Shares of a step, and their tenths of a percent by the largest remainder, so that what is shown adds up, too. */
#include "plan/losses.h"

#include <math.h>
#include <string.h>

/* A smaller share would show as "0.0 %": such parts stand together. */
#define SHOWN_SHARE 0.0005

/* Names of the step's parts where they stand alone, among losses. */
static const char *const name_of[FO_PREDICT_PARTS] = {
	[FO_PREDICT_MEMORY] = "bound by memory",
	[FO_PREDICT_RECOMPUTE] = "recomputation",
	[FO_PREDICT_TENSOR] = "tensor parallel communication",
	[FO_PREDICT_CONTEXT] = "context parallel communication",
	[FO_PREDICT_EXPERT] = "expert parallel communication",
	[FO_PREDICT_DATA] = "data parallel communication",
	[FO_PREDICT_SENDS] = "sends between stages",
	[FO_PREDICT_BUBBLE] = "pipeline bubble",
	[FO_PREDICT_OPTIMIZER] = "optimizer",
	[FO_PREDICT_HOST] = "launches of the host",
	[FO_PREDICT_REST] = "stragglers, once a step",
};

static void add(struct fo_plan_losses *o, const char *name, double share)
{
	o->loss[o->losses].name = name;
	o->loss[o->losses++].share = share;
}

static void round_all(struct fo_plan_losses *o)
{
	double exact[FO_PLAN_LOSSES + 1], left[FO_PLAN_LOSSES + 1];
	int tenths[FO_PLAN_LOSSES + 1], n = o->losses + 1, sum = 0;
	for (int i = 0; i < n; i++) {
		exact[i] = 1000 * (i < o->losses ? o->loss[i].share : o->useful);
		tenths[i] = (int)floor(exact[i]);
		left[i] = exact[i] - tenths[i];
		sum += tenths[i];
	}
	for (; sum < 1000; sum++) {
		int most = 0;
		for (int i = 1; i < n; i++)
			most = left[i] > left[most] ? i : most;
		tenths[most]++;
		left[most] -= 1;
	}
	for (int i = 0; i < o->losses; i++)
		o->loss[i].tenths = tenths[i];
	o->tenths = tenths[o->losses];
}

void fo_plan_losses_of(struct fo_plan_losses *o, const struct fo_predict_step *s)
{
	*o = (struct fo_plan_losses){ .useful = s->mfu_causal };
	/* Products compute the model's own FLOP, and take longer than at the peak. */
	double products = s->part[FO_PREDICT_MATMUL] + s->part[FO_PREDICT_ATTENTION] + s->part[FO_PREDICT_LOSS],
	       few = 0;
	add(o, "products below the peak", products / s->seconds - o->useful);
	for (int i = 0; i < FO_PREDICT_PARTS; i++) {
		double share = s->part[i] / s->seconds;
		if (!name_of[i]) /* products */
			continue;
		if (share >= SHOWN_SHARE)
			add(o, name_of[i], share);
		else
			few += share;
	}
	if (few > 1e-12) /* else nothing but the others' rounding */
		add(o, "smaller parts", few);
	round_all(o);
}

double fo_plan_reason_of(const struct fo_predict_step *best, const struct fo_predict_step *x, int *loses, int *gains,
			 double *least)
{
	double most = 0;
	*loses = *gains = -1;
	*least = 0;
	for (int i = 0; i < FO_PREDICT_PARTS; i++) {
		double by = x->part[i] - best->part[i];
		if (by > most) {
			most = by;
			*loses = i;
		}
		if (by < *least) {
			*least = by;
			*gains = i;
		}
	}
	return most;
}
