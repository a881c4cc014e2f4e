#include "report/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The place of v among the first n of `sorted`, which ascend. */
static int64_t place(const double *sorted, int64_t n, double v)
{
	int64_t lo = 0, hi = n;
	while (lo < hi) {
		int64_t mid = (lo + hi) / 2;
		if (sorted[mid] < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static double middle(const double *sorted, int64_t n)
{
	if (!n)
		return NAN;
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* The window's values are kept sorted: each step removes one and inserts one. */
void fo_running_median(const double *v, int64_t n, int64_t window, double *out)
{
	double *sorted = fo_xmalloc((size_t)(window + 1) * sizeof *sorted);
	int64_t have = 0, half = window / 2;
	for (int64_t i = -half; i < n; i++) {
		int64_t in = i + half, gone = i - half - 1;
		if (gone >= 0 && isfinite(v[gone])) {
			int64_t k = place(sorted, have, v[gone]);
			memmove(sorted + k, sorted + k + 1, (size_t)(have-- - k - 1) * sizeof *sorted);
		}
		if (in < n && isfinite(v[in])) {
			int64_t k = place(sorted, have, v[in]);
			memmove(sorted + k + 1, sorted + k, (size_t)(have++ - k) * sizeof *sorted);
			sorted[k] = v[in];
		}
		if (i >= 0)
			out[i] = isnan(v[i]) ? NAN : middle(sorted, have);
	}
	free(sorted);
}
