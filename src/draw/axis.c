#include "draw/draw_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void fo_range_add(double *lo, double *hi, double v)
{
	if (!isfinite(v))
		return;
	*lo = isnan(*lo) || v < *lo ? v : *lo;
	*hi = isnan(*hi) || v > *hi ? v : *hi;
}

/* 1, 2 or 5 times a power of ten (bytes: a power of two), the least such that is not below `raw`. */
static double nice(double raw, enum fo_draw_unit unit)
{
	if (unit == FO_DRAW_BYTES)
		return exp2(ceil(log2(raw) - 1e-9));
	double p = pow(10, floor(log10(raw) + 1e-9));
	static const double step[] = { 1, 2, 5 };
	for (size_t i = 0; i < sizeof step / sizeof *step; i++)
		if (raw / p <= step[i] + 1e-9)
			return p * step[i];
	return p * 10;
}

static void add_tick(struct fo_axis *a, double v)
{
	if (a->ticks < FO_AXIS_TICKS)
		a->tick[a->ticks++] = v;
}

/* A logarithmic axis of a smaller span has the ticks of a linear one: 1, 2 and 5 are too few. */
enum { LOG_TICKS = 4 };

/* Ticks at the decades; with fewer than two decades also at their doubles and fivefolds; with many only at every
 * second, third, ... */
static void log_ticks(struct fo_axis *a, int want)
{
	static const double part[] = { 1, 2, 5 };
	int first = (int)floor(log10(a->lo) + 1e-9), last = (int)ceil(log10(a->hi) - 1e-9);
	int every = 1 + (last - first) / (want > 0 ? want : 1);
	int parts = last - first <= 2 ? 3 : 1;
	for (int e = first; e <= last; e += every)
		for (int k = 0; k < parts; k++) {
			double v = part[k] * pow(10, e);
			if (v >= a->lo * (1 - 1e-9) && v <= a->hi * (1 + 1e-9))
				add_tick(a, v);
		}
}

void fo_axis_fit(struct fo_axis *a, double lo, double hi, int want, bool tight)
{
	a->ticks = 0;
	a->step = 0;
	if (!isfinite(lo) || !isfinite(hi) || (a->log && !(lo > 0))) {
		lo = a->log ? 0.1 : 0;
		hi = 1;
	}
	if (!(hi > lo)) { /* one value: room above and below it */
		double room = lo != 0 ? fabs(lo) * 0.1 : 1;
		hi = a->log ? lo * 2 : lo + room;
		lo = a->log ? lo / 2 : lo - room;
	}
	a->lo = lo;
	a->hi = hi;
	if (a->log && hi / lo >= LOG_TICKS) {
		log_ticks(a, want);
		return;
	}
	/* A span below the resolution of doubles would give ticks that do not ascend. */
	double step = nice(fmax((hi - lo) / want, fmax(fabs(lo), fabs(hi)) * 1e-12), a->unit);
	if (!isfinite(step) || !(step > 0)) {
		a->tick[0] = lo;
		a->ticks = 1;
		return;
	}
	a->step = step;
	if (!tight && !a->log) {
		a->lo = floor(lo / step + 1e-9) * step;
		a->hi = ceil(hi / step - 1e-9) * step;
	}
	double first = ceil(a->lo / step - 1e-9);
	for (int i = 0; i < FO_AXIS_TICKS && (first + i) * step <= a->hi + step * 1e-6; i++)
		add_tick(a, (first + i) * step);
}

double fo_axis_at(const struct fo_axis *a, double v)
{
	double at = (v - a->lo) / (a->hi - a->lo);
	if (a->log)
		at = v > 0 ? log(v / a->lo) / log(a->hi / a->lo) : NAN;
	return isnan(at) ? at : fmin(fmax(at, 0), 1);
}

int fo_axis_across(const struct fo_axis *a, double v) { return (int)lround(fo_axis_at(a, v) * FO_PLOT_WIDTH); }

/* Returns the decimals of a share's label: as many as tell neighbouring ticks apart. */
static int places_of(const struct fo_axis *a)
{
	if (a->step >= 0.01 - 1e-9 || a->step == 0)
		return 0;
	return a->step >= 0.001 - 1e-9 ? 1 : 2;
}

char *fo_axis_label(const struct fo_axis *a, double v, char buf[32])
{
	if (fabs(v) < a->step * 1e-6)
		v = 0;
	if (a->unit == FO_DRAW_SHARE || a->unit == FO_DRAW_CHANGE) {
		snprintf(buf, 32, a->unit == FO_DRAW_CHANGE && v != 0 ? "%+.*f %%" : "%.*f %%", places_of(a), 100 * v);
	} else if (a->unit == FO_DRAW_BYTES) {
		static const char *const prefix[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
		int k = 0;
		for (double top = fmax(fabs(a->lo), fabs(a->hi)); top >= 2048 && k < 5; top /= 1024, v /= 1024)
			k++;
		snprintf(buf, 32, "%.4g %s", v, prefix[k]);
	} else if (a->unit == FO_DRAW_FACTOR) {
		snprintf(buf, 32, "%.6g x", v);
	} else if (a->unit == FO_DRAW_SECONDS) {
		fo_draw_number(buf, v, a->unit);
	} else if (!a->log && fmax(fabs(a->lo), fabs(a->hi)) >= 1e4 && fmax(fabs(a->lo), fabs(a->hi)) < 1e15 &&
		   v != 0) {
		static const char prefix[] = "kMGT";
		int k = -1;
		for (double top = fmax(fabs(a->lo), fabs(a->hi)); top >= 1e4 && k < 3; top /= 1000, v /= 1000)
			k++;
		snprintf(buf, 32, "%.6g %c", v, prefix[k]);
	} else {
		snprintf(buf, 32, "%.6g", v);
	}
	return buf;
}
