/* Intervals: what a figure may be where it is not known to a digit. A result holds every value that inputs within their
 * intervals can give; where an input stands twice in a formula, the result may be wider than that, never narrower. */
#ifndef FO_BASE_RANGE_H
#define FO_BASE_RANGE_H

#include "base/err.h"

#include <math.h>
#include <stdbool.h>

/* NAN, NAN: not known. low <= high. */
struct fo_range {
	double low, high;
};
static inline struct fo_range fo_range(double v) { return (struct fo_range){ v, v }; }
static inline bool fo_range_known(struct fo_range r) { return !isnan(r.low) && !isnan(r.high); }
static inline double fo_range_middle(struct fo_range r) { return (r.low + r.high) / 2; }
static inline struct fo_range fo_range_plus(struct fo_range a, struct fo_range b)
{
	return (struct fo_range){ a.low + b.low, a.high + b.high };
}
static inline struct fo_range fo_range_minus(struct fo_range a, struct fo_range b)
{
	return (struct fo_range){ a.low - b.high, a.high - b.low };
}
/* For factors that are not negative. */
static inline struct fo_range fo_range_times(struct fo_range a, struct fo_range b)
{
	return (struct fo_range){ a.low * b.low, a.high * b.high };
}
static inline struct fo_range fo_range_over(struct fo_range a, struct fo_range b)
{
	return (struct fo_range){ a.low / b.high, a.high / b.low };
}
static inline struct fo_range fo_range_scaled(double f, struct fo_range a) { return fo_range_times(fo_range(f), a); }
/* From one value to another, in either order. */
static inline struct fo_range fo_range_between(double a, double b)
{
	return (struct fo_range){ a < b ? a : b, a > b ? a : b };
}
/* The larger of two unknown values. */
static inline struct fo_range fo_range_most(struct fo_range a, struct fo_range b)
{
	return (struct fo_range){ fmax(a.low, b.low), fmax(a.high, b.high) };
}
/* Reads "2.5" or "2..3", each >= 0 and at most 1e15; FO_EARG names `what` and what was expected. */
FO_CHECKED fo_status fo_range_parse(const char *text, const char *what, struct fo_range *out);

#endif
