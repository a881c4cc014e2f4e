#include "diagnose/findings_int.h"

#include "base/count.h"
#include "base/text.h"

#include <math.h>

void fo_gain_none(struct fo_finding *f)
{
	f->ceiling = f->gain = f->gain_low = f->gain_high = NAN;
	f->up_to = f->nearly_all = false;
}

/* The middle of an interval with a greater ratio of its ends is nobody's estimate; a convention. */
#define FO_GAIN_SPREAD 3

void fo_gain_solve(const struct fo_gain *g, struct fo_finding *f)
{
	int64_t step = fo_max(g->step_ns, 1);
	int64_t all = fo_clamp(g->removable_ns, 0, step);
	int64_t removable = (int64_t)(g->most * (double)all); /* the ceiling leaves out what no change removes */
	f->loss_ns = removable;
	f->nearly_all = false;
	if ((double)step > FO_CEILING_MOST * (double)(step - removable)) {
		fo_gain_none(f);
		f->nearly_all = true;
		return;
	}
	int64_t floor = fo_clamp(g->floor_ns, 1, step);
	int64_t best = fo_clamp(step - removable, g->best_floor_ns > 0 ? fo_clamp(g->best_floor_ns, 1, floor) : floor,
				step);
	int64_t least = fo_clamp(step - (int64_t)(g->least * (double)all), floor, step);
	int64_t worst = fo_clamp(least + fo_clamp(g->reappear_ns, 0, step), best, step);
	f->ceiling = (double)step / (double)(step - removable);
	f->gain_high = (double)step / (double)best;
	f->gain_low = (double)step / (double)worst;
	f->up_to = g->at_most || f->gain_high > FO_GAIN_SPREAD * f->gain_low;
	f->gain = 2 * (double)step / ((double)best + (double)worst);
}

void fo_gain_of(const struct fo_rule_context *c, struct fo_finding *f, int64_t removable_ns, struct fo_gain g)
{
	g.step_ns = c->s->l.span_ns;
	g.removable_ns = removable_ns;
	g.floor_ns = c->floor_ns > g.frees_ns ? c->floor_ns - g.frees_ns : 0;
	fo_gain_solve(&g, f);
}

void fo_gain_usual(const struct fo_rule_context *c, struct fo_finding *f, int64_t ns, double least)
{
	fo_gain_of(c, f, ns, (struct fo_gain){ .least = least, .most = 1 });
}

void fo_gain_freed(const struct fo_rule_context *c, struct fo_finding *f, int64_t ns, double least)
{
	fo_gain_of(c, f, ns, (struct fo_gain){ .least = least, .most = 1, .frees_ns = ns });
}

bool fo_finding_worth(const struct fo_finding *f) { return f->nearly_all || !isnan(f->gain); }
