/* Time, random numbers and order statistics: the small things that everything uses. */
#ifndef FO_BASE_CLOCK_H
#define FO_BASE_CLOCK_H

#include "base/rng.h"

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Monotonic nanoseconds. */
static inline int64_t fo_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Unix time in seconds, to the nanosecond. */
double fo_clock_unix(void);
/* "2026-11-21T12:34:56Z"; buf holds it and is returned. */
char *fo_clock_utc(char buf[32]);

/* Uniform in [0, 1) with 53 bits. */
static inline double fo_rng_uniform(uint64_t stream, uint64_t index)
{
	return (double)(fo_rng_u64(stream, index) >> 11) * 0x1p-53;
}
/* Standard normal by Box-Muller from two draws. */
double fo_rng_normal(uint64_t stream, uint64_t index);

/* Quantile q in [0, 1] of n values by linear interpolation; sorts v in place. n >= 1. */
double fo_stats_quantile(double *v, size_t n, double q);
/* The same in time proportional to n: v's order changes, but it is not sorted. NaN without values. */
double fo_stats_select(double *v, size_t n, double q);
struct fo_schema;
/* Median and quartiles of n values; NaN without any. Sorts v in place. */
struct fo_spread {
	double median, low, high; /* low, high: quartiles */
	int64_t n;
};
struct fo_spread fo_stats_spread(double *v, size_t n);
struct fo_spread fo_stats_select_spread(double *v, size_t n); /* the same in time proportional to n, not sorted */
extern const struct fo_schema fo_spread_schema;               /* median, low, high */
/* Median of n values; NaN without any. Works on a copy, so v stays as it is. */
double fo_stats_median(const double *v, size_t n);

#endif
