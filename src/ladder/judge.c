/* Verdicts on a ladder's figures: gains with their intervals, and whether the losses stay where they belong. */
#include "ladder/plan_int.h"

#include "hw/state.h"

#include <stdlib.h>
#include <string.h>

static void judge_gain(struct fo_ladder *l, struct fo_ladder_rung *g)
{
	int n = 0;
	if (g->from < 0)
		return;
	const struct fo_ladder_rung *from = &l->rung[g->from];
	/* Means, for what a padded step holds differs from step to step. */
	g->predicted_gain = (g->step_tokens / g->predicted_step_s) / (from->step_tokens / from->predicted_step_s);
	struct fo_ladder_interval v = fo_ladder_over(l, (int)(g - l->rung), g->from, &n);
	/* Fewer rounds give too low a level of confidence. */
	if (n < l->rounds)
		return;
	g->gain = v.estimate;
	g->gain_low = v.low;
	g->gain_high = v.high;
	g->gain_level = v.level;
	g->verdict = FO_LADDER_UNRESOLVED;
	if (fo_ladder_unsteady(&v))
		g->verdict = FO_LADDER_UNSTEADY;
	else if (v.low > 1)
		g->verdict = FO_LADDER_GAIN;
	else if (v.high < 1)
		g->verdict = FO_LADDER_LOSS;
}

/* docs/metrics.md says how these bounds were measured. */
static double tolerance_of(const struct fo_ladder_rung *g, const struct fo_ladder_rung *reference)
{
	if (g->numerics_only)
		return FO_LADDER_TOLERANCE_FP8;
	return !strcmp(g->peak_dtype, "f32") && !strcmp(reference->peak_dtype, "f32") ? FO_LADDER_TOLERANCE_F32
										      : FO_LADDER_TOLERANCE_BF16;
}

static void judge_losses(struct fo_ladder *l, int i)
{
	struct fo_ladder_rung *g = &l->rung[i];
	const struct fo_ladder_rung *reference = &l->rung[g->reference];
	if (g->reference == i)
		return;
	g->deviation = fo_ladder_deviation(g->loss, reference->loss, l->steps);
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

const char *fo_ladder_not_quiet(const struct fo_ladder *l, struct fo_arena *a)
{
	char buf[96];
	const char *load = fo_state_others_text(l->load, l->processors, l->threads, buf);
	int unsteady = 0;
	for (int i = 0; i < l->rungs; i++)
		unsteady += l->rung[i].verdict == FO_LADDER_UNSTEADY;
	if (!unsteady)
		return load ? fo_arena_printf(
				      a, "the machine was not quiet (%s); intervals are narrower on a quiet one", load)
			    : NULL;
	static const char *const words[2][2] = { { "rungs", "their gains are" }, { "rung", "its gain is" } };
	const char *const *one = words[unsteady == 1];
	const char *why = load ? fo_arena_printf(a, "the machine was not quiet (%s)", load)
			       : "the machine was not quiet, or the turns are too short";
	return fo_arena_printf(a,
			       "%s: the rounds of %d %s differ by more than %g times, so %s not known (unsteady). "
			       "Repeat it on a quiet machine, or with more steps (--steps)",
			       why, unsteady, one[0], FO_LADDER_STEADY, one[1]);
}

int fo_ladder_bottom(const struct fo_ladder *l)
{
	for (int i = 0; i < l->rungs; i++)
		if (l->rung[i].from < 0 && !l->rung[i].numerics_only)
			return i;
	return -1;
}

/* The rung that the chain goes on with behind `at`: the one that most build on. -1: none, or only rungs beside it. */
static int next_of(const struct fo_ladder *l, const int *height, int at)
{
	int next = -1, starting = 0;
	for (int i = at + 1; i < l->rungs; i++)
		if (l->rung[i].from == at) {
			starting++;
			if (!l->rung[i].numerics_only && (next < 0 || height[i] > height[next]))
				next = i;
		}
	return next >= 0 && (height[next] > 0 || starting == 1) ? next : -1;
}

int fo_ladder_top(const struct fo_ladder *l)
{
	int top = fo_ladder_bottom(l);
	if (top < 0)
		return -1;
	int *height = fo_xmalloc((size_t)l->rungs *
				 sizeof *height); /* rungs of the longest chain that starts from it */
	for (int i = l->rungs - 1; i > 0; i--) {
		int from = l->rung[i].from;
		if (from >= 0 && from < i && !l->rung[i].numerics_only && height[i] >= height[from])
			height[from] = height[i] + 1;
	}
	for (int i = top; i >= 0; i = next_of(l, height, i))
		if (!l->rung[i].reason && l->rung[i].rounds_done == l->rounds && isfinite(l->rung[i].tokens_s.median))
			top = i;
	free(height);
	return top;
}
