#include "diagnose/findings_int.h"

#include <math.h>

void fo_gain_none(struct fo_finding *f)
{
	f->ceiling = f->gain = f->gain_low = f->gain_high = NAN;
	f->up_to = false;
}

static int64_t bounded(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }

/* Above this ratio of its ends an interval's middle is nobody's estimate; a convention. */
#define FO_GAIN_SPREAD 3

void fo_gain_solve(const struct fo_gain *g, struct fo_finding *f)
{
	/* A step of no time has no quotient; 1 ns keeps the ceiling finite where everything would go. */
	int64_t step = g->step_ns > 1 ? g->step_ns : 1;
	int64_t removable = bounded(g->removable_ns, 0, step - 1);
	int64_t floor = bounded(g->floor_ns, 1, step);
	int64_t best = bounded(step - (int64_t)(g->most * (double)removable), g->best_floor_ns > 0 ? bounded(g->best_floor_ns, 1, floor) : floor, step);
	int64_t least = bounded(step - (int64_t)(g->least * (double)removable), floor, step);
	int64_t worst = bounded(least + bounded(g->reappear_ns, 0, step), best, step);
	f->loss_ns = removable;
	f->ceiling = (double)step / (double)(step - removable);
	f->gain_high = (double)step / (double)best;
	f->gain_low = (double)step / (double)worst;
	f->up_to = f->gain_high > FO_GAIN_SPREAD * f->gain_low;
	f->gain = 2 * (double)step / ((double)best + (double)worst);
}
