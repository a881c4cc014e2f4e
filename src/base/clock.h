/* Time, random numbers and order statistics: the small things that everything uses. */
#ifndef FO_BASE_CLOCK_H
#define FO_BASE_CLOCK_H

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

/* "2026-11-21T12:34:56Z"; buf holds it and is returned. */
char *fo_clock_utc(char buf[32]);

/* SplitMix64 (Steele, Lea, Flood 2014): a counter-based hash, so element i of stream s is rng(s, i) in any order. */
static inline uint64_t fo_rng_u64(uint64_t stream, uint64_t index)
{
	uint64_t x = stream * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}
/* Uniform in [0, 1) with 53 bits. */
static inline double fo_rng_uniform(uint64_t stream, uint64_t index)
{
	return (double)(fo_rng_u64(stream, index) >> 11) * 0x1p-53;
}
/* Standard normal by Box-Muller from two draws. */
double fo_rng_normal(uint64_t stream, uint64_t index);

/* Quantile q in [0, 1] of n values by linear interpolation; sorts v in place. n >= 1. */
double fo_stats_quantile(double *v, size_t n, double q);
/* Median and quartiles of n values; NaN without any. Sorts v in place. */
struct fo_spread {
	double median, low, high; /* low, high: quartiles */
	int64_t n;
};
struct fo_spread fo_stats_spread(double *v, size_t n);
/* Median without disturbing v (n <= 65536; uses a copy). 0 for n = 0. */
double fo_stats_median(const double *v, size_t n);

#endif
