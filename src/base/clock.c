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
	double m = fo_stats_quantile(copy, n, 0.5);
	free(copy);
	return m;
}

static const struct fo_schema_field spread_field[] = {
	FO_FIELD(struct fo_spread, median, "median", "", "median"),
	FO_FIELD(struct fo_spread, low, "low", "", "lower quartile"),
	FO_FIELD(struct fo_spread, high, "high", "", "upper quartile"),
};
const struct fo_schema fo_spread_schema = { "", "spread", FO_FIELDS(struct fo_spread, spread_field) };
