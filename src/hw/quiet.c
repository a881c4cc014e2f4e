#include "hw/quiet.h"
#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

void fo_burst_raise(struct fo_burst *best, const struct fo_burst *b)
{
	best->flop_s = fmax(best->flop_s, b->flop_s);
	best->byte_s = fmax(best->byte_s, b->byte_s);
	best->share = fmax(best->share, b->share);
}

static bool burst_is(const struct fo_burst *b, const struct fo_burst *best)
{
	return b->share >= FO_QUIET_SHARE && b->flop_s >= FO_QUIET_REGISTER * best->flop_s &&
	       b->byte_s >= FO_QUIET_CACHE * best->byte_s;
}

bool fo_quiet_is(const struct fo_quiet_span *s, const struct fo_burst *best)
{
	return s->lost <= FO_QUIET_LOST && burst_is(&s->before, best) && burst_is(&s->after, best);
}

struct fo_quiet_stats fo_quiet_stats(const struct fo_quiet_span *v, size_t n, const struct fo_burst *best)
{
	struct fo_quiet_stats r = {
		.spans = (int)n, .best_s = NAN, .median_s = NAN, .quiet_best_s = NAN, .quiet_median_s = NAN
	};
	double *all = fo_xmalloc((2 * n + 1) * sizeof *all), *quiet = all + n;
	for (size_t i = 0; i < n; i++) {
		all[i] = v[i].seconds;
		if (fo_quiet_is(&v[i], best))
			quiet[r.quiet++] = v[i].seconds;
	}
	if (n) {
		r.median_s = fo_stats_quantile(all, n, 0.5); /* sorts */
		r.best_s = all[0];
	}
	if (r.quiet) {
		r.quiet_median_s = fo_stats_quantile(quiet, (size_t)r.quiet, 0.5);
		r.quiet_best_s = quiet[0];
	}
	free(all);
	return r;
}
