#include "ladder/ladder.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* Number of subsets of {1..n} whose sum is at most `most`, over 2^n: the distribution of the signed-rank statistic when
 * every sign is a fair coin. */
static double signed_rank_below(int n, int most)
{
	int top = n * (n + 1) / 2;
	double *count = fo_xmalloc((size_t)(top + 1) * sizeof *count), sum = 0;
	count[0] = 1;
	for (int k = 1; k <= n; k++)
		for (int s = top; s >= k; s--)
			count[s] += count[s - k];
	for (int s = 0; s <= most && s <= top; s++)
		sum += count[s];
	free(count);
	return ldexp(sum, -n);
}

struct fo_ladder_interval fo_ladder_interval(const double *ratio, int n, double level)
{
	struct fo_ladder_interval r = { NAN, NAN, NAN, 0 };
	if (n < 1)
		return r;
	size_t means = (size_t)n * (size_t)(n + 1) / 2, k = 0;
	double *walsh = fo_xmalloc(means * sizeof *walsh);
	for (int i = 0; i < n; i++)
		for (int j = i; j < n; j++)
			walsh[k++] = (log(ratio[i]) + log(ratio[j])) / 2;
	r.estimate = exp(fo_stats_quantile(walsh, means, 0.5)); /* sorts */
	/* Means below the rank c are cut off on either side: as many as the statistic is below c with half of what is
	 * left. */
	int c = 1;
	while ((size_t)c < means / 2 && 1 - 2 * signed_rank_below(n, c) >= level)
		c++;
	r.level = 1 - 2 * signed_rank_below(n, c - 1);
	r.low = exp(walsh[c - 1]);
	r.high = exp(walsh[means - (size_t)c]);
	free(walsh);
	return r;
}

bool fo_ladder_unsteady(const struct fo_ladder_interval *v)
{
	double width = v->high / v->low, away = fmax(1, fmax(v->low, 1 / v->high));
	return width > FO_LADDER_STEADY && width > away;
}

struct fo_ladder_interval fo_ladder_over(const struct fo_ladder *l, int to, int from, int *n)
{
	const double *a = l->rung[to].round_tokens_s, *b = l->rung[from].round_tokens_s;
	double *ratio = fo_xmalloc((size_t)(l->rounds + 1) * sizeof *ratio);
	int have = 0;
	for (int i = 0; a && b && i < l->rounds; i++) {
		double r = a[i] / b[i];
		if (isfinite(r) && r > 0)
			ratio[have++] = r;
	}
	struct fo_ladder_interval v = fo_ladder_interval(ratio, have, FO_LADDER_LEVEL);
	free(ratio);
	if (n)
		*n = have;
	return v;
}

int fo_ladder_stretches(const double *a, const double *b, int64_t n, double *step, double *difference)
{
	double sum_a = 0, sum_b = 0;
	int64_t common = 0, seen = 0;
	for (int64_t i = 0; i < n; i++)
		common += !isnan(a[i]) && !isnan(b[i]);
	int windows = common < FO_LADDER_WINDOWS ? (int)common : FO_LADDER_WINDOWS, k = 0;
	for (int64_t i = 0; i < n && k < windows; i++) {
		if (isnan(a[i]) || isnan(b[i]))
			continue;
		sum_a += a[i];
		sum_b += b[i];
		if (++seen < common * (k + 1) / windows)
			continue;
		step[k] = (double)(i + 1);
		difference[k++] = (sum_a - sum_b) / fabs(sum_b);
		sum_a = sum_b = 0;
	}
	return k;
}

double fo_ladder_deviation(const double *a, const double *b, int64_t n)
{
	double step[FO_LADDER_WINDOWS], d[FO_LADDER_WINDOWS];
	int w = fo_ladder_stretches(a, b, n, step, d), late = w < FO_LADDER_LATE ? w : FO_LADDER_LATE;
	for (int i = 0; i < w; i++) {
		d[i] = fabs(d[i]);
		if (!isfinite(d[i]))
			return INFINITY;
	}
	if (!w)
		return NAN;
	double end = fo_stats_quantile(d + w - late, (size_t)late, 0.5); /* sorts these alone */
	return fmax(end, fo_stats_quantile(d, (size_t)w, 0.5));
}

void fo_ladder_order(uint64_t seed, int round, int rungs, int *order)
{
	for (int i = 0; i < rungs; i++)
		order[i] = i;
	/* Fisher and Yates */
	for (int i = rungs - 1; i > 0; i--) {
		int k = (int)(fo_rng_u64(seed + (uint64_t)round * FO_LADDER_MAX_RUNGS, (uint64_t)i) %
			      (uint64_t)(i + 1)),
		    t = order[i];
		order[i] = order[k];
		order[k] = t;
	}
}
