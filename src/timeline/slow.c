#include "timeline/slow.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* How likely `heads` or more of n fair coins are. A rank of two that are alike is the slowest in half of all windows,
 * one of more in fewer. */
static double tail(int n, int heads)
{
	double sum = 0;
	for (int k = heads; k <= n; k++)
		sum += exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) - n * log(2));
	return sum;
}

static int slowest_of(const double *own, int ranks, int windows, int w, double *margin, double *other)
{
	int at = 0;
	for (int r = 1; r < ranks; r++)
		if (own[(size_t)r * (size_t)windows + (size_t)w] > own[(size_t)at * (size_t)windows + (size_t)w])
			at = r;
	*other = 0;
	for (int r = 0; r < ranks; r++)
		if (r != at)
			*other = fmax(*other, own[(size_t)r * (size_t)windows + (size_t)w]);
	*margin = own[(size_t)at * (size_t)windows + (size_t)w] - *other;
	return at;
}

void fo_slow_rank_find(struct fo_slow_rank *out, const double *own, const double *step, int ranks, int windows)
{
	*out = (struct fo_slow_rank){ .known = ranks == 1, .rank = -1, .windows = windows, .needed = 1 };
	if (ranks == 1)
		return;
	while (ranks * tail(out->needed, out->needed) >= FO_SLOW_RANK_CHANCE)
		out->needed++;
	if (windows < out->needed)
		return;
	out->known = true;
	const size_t n = (size_t)windows;
	int *wins = fo_xmalloc((size_t)ranks * sizeof *wins), most = 0;
	double margin, other, *v = fo_xmalloc(4 * n * sizeof *v);
	for (int w = 0; w < windows; w++) {
		int at = slowest_of(own, ranks, windows, w, &margin, &other);
		wins[at] += margin > 0; /* of equals none is slower */
	}
	for (int r = 1; r < ranks; r++)
		most = wins[r] > wins[most] ? r : most;
	for (size_t w = 0; w < n; w++) {
		const double mine = own[(size_t)most * n + w];
		int at = slowest_of(own, ranks, windows, (int)w, &margin, &other);
		if (at != most) /* the slowest other one is the slowest of all */
			other = own[(size_t)at * n + w];
		v[w] = mine;
		v[n + w] = other;
		v[2 * n + w] = step[w];
		v[3 * n + w] = mine - other;
	}
	out->slowest = wins[most];
	out->own_s = fo_stats_quantile(v, n, 0.5);
	out->other_s = fo_stats_quantile(v + n, n, 0.5);
	out->step_s = fo_stats_quantile(v + 2 * n, n, 0.5);
	out->lost_s = fo_stats_quantile(v + 3 * n, n, 0.5);
	if (ranks * tail(windows, wins[most]) < FO_SLOW_RANK_CHANCE && out->lost_s > 0 &&
	    out->step_s > FO_SLOW_RANK_TIMES * (out->step_s - out->lost_s))
		out->rank = most;
	free(v);
	free(wins);
}
