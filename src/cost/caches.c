/* Bytes that others who use the last level push out of it. */
#include "cost/cost.h"

#include <math.h>
#include <string.h>

static bool is_kept(const struct fo_limits_row *row, const char *variant)
{
	return !strcmp(row->kind, FO_KEPT_ROW) && !strcmp(row->variant, variant);
}

void fo_caches_of(struct fo_caches *c, const struct fo_limits *l)
{
	double kept = INFINITY, gone = 0;
	*c = (struct fo_caches){ .last = (double)l->cache_bytes };
	for (size_t i = 0; i < l->rows; i++) {
		const struct fo_limits_row *row = &l->row[i];
		if (is_kept(row, FO_KEPT_NOT))
			gone = fo_limits_row_seconds(row);
		if (!is_kept(row, FO_KEPT_LEFT) || c->gaps == FO_CACHES_GAPS)
			continue;
		kept = fmin(kept, fo_limits_row_seconds(row));
		c->second = (double)row->dim[1];
		int k = c->gaps++;
		for (; k > 0 && c->after_s[k - 1] > (double)row->dim[0] * 1e-6; k--) {
			c->after_s[k] = c->after_s[k - 1];
			c->lost[k] = c->lost[k - 1];
		}
		c->after_s[k] = (double)row->dim[0] * 1e-6;
		c->lost[k] = fo_limits_row_seconds(row);
	}
	if (!(gone > kept)) /* no difference, or nothing to compare with */
		c->gaps = 0;
	/* Nothing comes back by being left alone longer: what looks so is noise. The longest wait is the surest. */
	for (int k = c->gaps - 1; k >= 0; k--) {
		const double share = fmin((c->lost[k] - kept) / (gone - kept), 1);
		c->lost[k] = k + 1 < c->gaps ? fmin(share, c->lost[k + 1]) : share;
	}
}

double fo_caches_lost(const struct fo_caches *c, double left_s)
{
	for (int k = 0; k < c->gaps; k++) {
		if (left_s > c->after_s[k])
			continue;
		if (!k)
			return 0;
		const double part = (left_s - c->after_s[k - 1]) / (c->after_s[k] - c->after_s[k - 1]);
		return c->lost[k - 1] + part * (c->lost[k] - c->lost[k - 1]);
	}
	return c->gaps ? c->lost[c->gaps - 1] : 0;
}
