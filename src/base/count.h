/* Arithmetic of counts, times and sizes: minima, limits, order, rounding up to units. */
#ifndef FO_BASE_COUNT_H
#define FO_BASE_COUNT_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t fo_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t fo_max(int64_t a, int64_t b) { return a > b ? a : b; }
/* x, but at least `low` and at most `high` (low <= high). */
static inline int64_t fo_clamp(int64_t x, int64_t low, int64_t high) { return fo_max(low, fo_min(x, high)); }
/* Negative, 0 or positive, as qsort asks. */
static inline int fo_order(int64_t a, int64_t b) { return (a > b) - (a < b); }
/* For qsort, of numbers of these types. */
static inline int fo_by_int64(const void *a, const void *b)
{
	return fo_order(*(const int64_t *)a, *(const int64_t *)b);
}
static inline int fo_by_int(const void *a, const void *b) { return fo_order(*(const int *)a, *(const int *)b); }
static inline int fo_by_double(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}
/* The first i in [0, n) for which `holds` is true, n if there is none: a binary search, so it is true behind that. */
#define FO_FIRST(i, n, holds)                                       \
	__extension__({                                             \
		int64_t low_ = 0, high_ = (int64_t)(n);             \
		while (low_ < high_) {                              \
			int64_t i = low_ + (high_ - low_) / 2;      \
			*((holds) ? &high_ : &low_) = i + !(holds); \
		}                                                   \
		low_;                                               \
	})
/* For qsort by several keys: the first of these orders that is not 0. */
#define FO_ORDER_BY(...) \
	fo_first_order((const int[]){ __VA_ARGS__ }, sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int))
static inline int fo_first_order(const int *order, size_t n)
{
	size_t i = 0;
	while (i + 1 < n && !order[i])
		i++;
	return order[i];
}
/* How many units of `unit` hold n. */
static inline int64_t fo_ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
/* The smallest multiple of `unit` that is not below n. */
static inline int64_t fo_round_up(int64_t n, int64_t unit) { return fo_ceil_div(n, unit) * unit; }
static inline size_t fo_round_up_bytes(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

#endif
