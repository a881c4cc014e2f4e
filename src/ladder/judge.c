/* What the figures of a ladder say: gains with their intervals, and whether the losses stay where they belong. */
#include "ladder/plan_int.h"

#include <string.h>

static void judge_gain(struct fo_ladder *l, struct fo_ladder_rung *g)
{
	int n = 0;
	if (g->from < 0)
		return;
	const struct fo_ladder_rung *from = &l->rung[g->from];
	/* Means, for what a padded step holds differs from step to step. */
	g->predicted_gain = (g->step_tokens / g->predicted_step_s) / (from->step_tokens / from->predicted_step_s);
	double *ratio = fo_arena_alloc(&l->arena, (size_t)l->rounds * sizeof *ratio);
	for (int i = 0; i < l->rounds; i++) {
		double r = g->round_tokens_s[i] / from->round_tokens_s[i];
		if (isfinite(r) && r > 0)
			ratio[n++] = r;
	}
	/* Of fewer rounds the interval is of too low a level to say anything. */
	if (n < l->rounds)
		return;
	struct fo_ladder_interval v = fo_ladder_interval(ratio, n, FO_LADDER_LEVEL);
	g->gain = v.estimate;
	g->gain_low = v.low;
	g->gain_high = v.high;
	g->gain_level = v.level;
	g->verdict = v.low > 1 ? FO_LADDER_GAIN : v.high < 1 ? FO_LADDER_LOSS : FO_LADDER_UNRESOLVED;
}

/* docs/metrics.md tells how these were measured. */
static double tolerance_of(const struct fo_ladder_rung *g, const struct fo_ladder_rung *reference)
{
	if (g->numerics_only)
		return FO_LADDER_TOLERANCE_FP8;
	return !strcmp(g->peak_dtype, "f32") && !strcmp(reference->peak_dtype, "f32") ? FO_LADDER_TOLERANCE_F32 : FO_LADDER_TOLERANCE_BF16;
}

static void judge_losses(struct fo_ladder *l, int i)
{
	struct fo_ladder_rung *g = &l->rung[i];
	const struct fo_ladder_rung *reference = &l->rung[g->reference];
	if (g->reference == i)
		return;
	g->deviation = fo_ladder_deviation(g->loss, reference->loss, l->steps, FO_LADDER_WINDOWS);
	g->tolerance = tolerance_of(g, reference);
	if (!isnan(g->deviation))
		g->check = g->deviation <= g->tolerance ? FO_LADDER_HELD : FO_LADDER_LEFT;
}

void fo_ladder_judge(struct fo_ladder *l)
{
	for (int i = 0; i < l->rungs; i++) {
		struct fo_ladder_rung *g = &l->rung[i];
		judge_gain(l, g);
		judge_losses(l, i);
		if (g->from < 0 && g->rounds_done == l->rounds)
			g->verdict = FO_LADDER_BASELINE;
		if (g->numerics_only && g->rounds_done == l->rounds)
			g->verdict = FO_LADDER_NUMERICS_ONLY;
		if (g->reason)
			g->verdict = FO_LADDER_FAILED;
	}
}

int fo_ladder_best(const struct fo_ladder *l)
{
	int best = -1;
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *g = &l->rung[i];
		if (!g->numerics_only && !g->reason && g->rounds_done == l->rounds && g->check != FO_LADDER_LEFT && isfinite(g->tokens_s.median) &&
		    (best < 0 || g->tokens_s.median > l->rung[best].tokens_s.median))
			best = i;
	}
	return best;
}
