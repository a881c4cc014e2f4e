#include "kernel/tune_blocks.h"

#include "base/clock.h"

#include <math.h>

/* The most time that a choice by energy may cost. Blocks instead of bursts are expected to gain a half to one per cent
 * of a step. */
#define NOISE_MOST 0.01

int fo_tune_blocks_order(int n, int order[FO_TUNE_BLOCKS])
{
	for (int i = 0; i < n; i++)
		order[i] = order[2 * n - 1 - i] = i;
	return 2 * n;
}

enum figure { TIME, ENERGY, CLOCK };
static double figure_of(const struct fo_tune_block *b, enum figure what)
{
	switch (what) {
	case TIME: return b->us;
	case ENERGY: return b->joules;
	default: return b->hz;
	}
}

/* The median of one figure over the blocks of `who`, and half of their range over it. NAN where one is not a number. */
static double middle(const struct fo_tune_block *b, int blocks, int who, enum figure what, double *spread)
{
	double v[FO_TUNE_BLOCKS], low = INFINITY, high = -INFINITY;
	int n = 0;
	for (int i = 0; i < blocks; i++) {
		if (b[i].who != who)
			continue;
		double x = figure_of(&b[i], what);
		if (!(x > 0) || isinf(x))
			return *spread = NAN;
		v[n++] = x;
		low = x < low ? x : low;
		high = x > high ? x : high;
	}
	double m = n ? fo_stats_quantile(v, (size_t)n, 0.5) : NAN;
	*spread = n ? (high - low) / 2 / m : NAN;
	return m;
}

/* The one with the least v among those that are `in`; one without a figure is never it. -1: none. */
static int least(const double *v, const bool *in, int n)
{
	int best = -1;
	for (int i = 0; i < n; i++)
		if (in[i] && !isnan(v[i]) && (best < 0 || v[i] < v[best]))
			best = i;
	return best;
}

void fo_tune_blocks_decide(const struct fo_tune_block *b, int blocks, int n, struct fo_tune_verdict *out)
{
	bool in[FO_TUNE_FINALISTS] = { false }, known = true;
	double spread, energy_noise = 0;
	*out = (struct fo_tune_verdict){ 0 };
	for (int i = 0; i < n; i++) {
		out->us[i] = middle(b, blocks, i, TIME, &spread);
		in[i] = !isnan(out->us[i]);
		if (spread > out->noise)
			out->noise = spread < NOISE_MOST ? spread : NOISE_MOST;
		out->hz[i] = middle(b, blocks, i, CLOCK, &spread);
	}
	int fastest = least(out->us, in, n);
	for (int i = 0; i < n; i++) {
		out->joules[i] = middle(b, blocks, i, ENERGY, &spread);
		in[i] = in[i] && out->us[i] <= out->us[fastest] * (1 + out->noise);
		if (!in[i])
			continue;
		known = known && !isnan(out->joules[i]);
		if (spread > energy_noise)
			energy_noise = spread;
	}
	out->best = fastest < 0 ? 0 : fastest;
	int frugal = known ? least(out->joules, in, n) : -1;
	if (frugal >= 0 && out->joules[frugal] < out->joules[out->best] * (1 - energy_noise)) {
		out->best = frugal;
		out->by_energy = true;
	}
}
