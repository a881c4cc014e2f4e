#include "base/clock.h"
#include "base/mem.h"
#include "base/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double fo_clock_unix(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

char *fo_clock_utc(char buf[32])
{
	time_t t = time(NULL);
	struct tm tm;
	gmtime_r(&t, &tm);
	strftime(buf, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
	return buf;
}

double fo_rng_normal(uint64_t stream, uint64_t index)
{
	double u = 1.0 - fo_rng_uniform(stream, 2 * index), v = fo_rng_uniform(stream, 2 * index + 1);
	return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double fo_stats_quantile(double *v, size_t n, double q)
{
	qsort(v, n, sizeof *v, compare);
	double at = q * (double)(n - 1);
	size_t i = (size_t)at;
	return i + 1 < n ? v[i] + (at - (double)i) * (v[i + 1] - v[i]) : v[n - 1];
}

/* Puts the k-th smallest of v[0..n) at v[k], smaller ones in front of it (Hoare). */
static void select_nth(double *v, size_t n, size_t k)
{
	for (size_t low = 0, high = n - 1; low < high;) {
		double pivot = v[low + (high - low) / 2];
		size_t i = low, j = high;
		while (i <= j) {
			while (v[i] < pivot)
				i++;
			while (v[j] > pivot)
				j--;
			if (i > j)
				break;
			double x = v[i];
			v[i++] = v[j];
			v[j] = x;
			if (!j--)
				break;
		}
		if (k <= j && j < n)
			high = j;
		else if (k >= i)
			low = i;
		else
			return;
	}
}

/* fo_stats_quantile without sorting: what is in front of the place is not above it, what is behind not below. */
static double select_quantile(double *v, size_t n, double at)
{
	size_t k = (size_t)at;
	select_nth(v, n, k);
	double next = INFINITY;
	for (size_t i = k + 1; i < n; i++)
		next = v[i] < next ? v[i] : next;
	return k + 1 < n ? v[k] + (at - (double)k) * (next - v[k]) : v[k];
}

/* Tokens and intervals of steps seldom change: then there is nothing to select. */
static bool all_same(const double *v, size_t n)
{
	size_t i = 1;
	while (i < n && v[i] == v[0])
		i++;
	return i >= n;
}

double fo_stats_select(double *v, size_t n, double q)
{
	if (!n)
		return NAN;
	return all_same(v, n) ? v[0] : select_quantile(v, n, q * (double)(n - 1));
}

struct fo_spread fo_stats_select_spread(double *v, size_t n)
{
	struct fo_spread s = { NAN, NAN, NAN, (int64_t)n };
	if (!n)
		return s;
	if (all_same(v, n))
		return (struct fo_spread){ v[0], v[0], v[0], (int64_t)n };
	/* Of more than two values each quartile lies, with its neighbour, on its side of the median. */
	double last = (double)(n - 1);
	size_t middle = (size_t)(last / 2), from = (size_t)(0.75 * last) > middle ? middle + 1 : 0;
	s.median = select_quantile(v, n, last / 2);
	s.low = select_quantile(v, n > 2 ? middle + 1 : n, 0.25 * last);
	s.high = select_quantile(v + from, n - from, 0.75 * last - (double)from);
	return s;
}

struct fo_spread fo_stats_spread(double *v, size_t n)
{
	struct fo_spread s = { NAN, NAN, NAN, (int64_t)n };
	if (!n)
		return s;
	s.median = fo_stats_quantile(v, n, 0.5);
	s.low = fo_stats_quantile(v, n, 0.25);
	s.high = fo_stats_quantile(v, n, 0.75);
	return s;
}

double fo_stats_median(const double *v, size_t n)
{
	if (!n)
		return NAN;
	double *copy = fo_xmalloc(n * sizeof *v);
	memcpy(copy, v, n * sizeof *v);
	double m = fo_stats_select(copy, n, 0.5);
	free(copy);
	return m;
}

static const struct fo_schema_field spread_field[] = {
	FO_FIELD(struct fo_spread, median, "median", "", "median"),
	FO_FIELD(struct fo_spread, low, "low", "", "lower quartile"),
	FO_FIELD(struct fo_spread, high, "high", "", "upper quartile"),
};
const struct fo_schema fo_spread_schema = { "", "spread", FO_FIELDS(struct fo_spread, spread_field) };
