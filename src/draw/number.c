/* The form of every number that a person reads. */
#include "draw/draw.h"

#include <math.h>
#include <stdio.h>

/* Writes three digits of a time in the largest unit that it reaches. */
static void time_text(char buf[32], double v)
{
	static const struct {
		double least; /* a value that three digits round up to the unit counts as reaching it */
		double times;
		const char *name;
	} unit[] = { { 7170, 1.0 / 3600, "h" },
		     { 119.5, 1.0 / 60, "min" },
		     { 0.9995, 1, "s" },
		     { 0.9995e-3, 1e3, "ms" },
		     { 0, 1e6, "us" } };
	size_t i = 0;
	while (fabs(v) < unit[i].least)
		i++;
	if (v == 0)
		snprintf(buf, 32, "0 s");
	else
		snprintf(buf, 32, fabs(v * unit[i].times) < 999.5 ? "%.3g %s" : "%.0f %s", v * unit[i].times,
			 unit[i].name);
}

static void money_text(char buf[32], double v)
{
	const char *sign = v < 0 ? "-" : "";
	if (fabs(v) >= 1e6)
		snprintf(buf, 32, "%s$%.2f M", sign, fabs(v) / 1e6);
	else if (fabs(v) >= 1e4)
		snprintf(buf, 32, "%s$%.1f k", sign, fabs(v) / 1e3);
	else
		snprintf(buf, 32, "%s$%.2f", sign, fabs(v));
}

char *fo_draw_number(char buf[32], double v, enum fo_draw_unit unit)
{
	if (!isfinite(v)) {
		snprintf(buf, 32, "-");
		return buf;
	}
	switch (unit) {
	case FO_DRAW_SHARE:
		snprintf(buf, 32, fabs(v) < 0.01 && fabs(v) >= 5e-5 ? "%.2f %%" : "%.1f %%", 100 * v);
		break;
	case FO_DRAW_PERCENT: snprintf(buf, 32, "%.1f %%", 100 * v); break;
	case FO_DRAW_CHANGE: snprintf(buf, 32, "%+.1f %%", 100 * v); break;
	case FO_DRAW_POINTS: snprintf(buf, 32, "%+.1f points", 100 * v); break;
	case FO_DRAW_FACTOR: snprintf(buf, 32, "%.2f x", v); break;
	case FO_DRAW_BYTES: fo_str_bytes(buf, v); break;
	case FO_DRAW_SECONDS: time_text(buf, v); break;
	case FO_DRAW_MS: snprintf(buf, 32, "%.3f", v * 1e3); break;
	case FO_DRAW_FLOP_RATE: fo_str_si(buf, v, "FLOP/s"); break;
	case FO_DRAW_DOLLARS:
		if (v > 0 && v < 0.005)
			snprintf(buf, 32, "below $0.01");
		else
			snprintf(buf, 32, "%s$%.2f", v <= -0.005 ? "-" : "", fabs(v));
		break;
	case FO_DRAW_MONEY: money_text(buf, v); break;
	case FO_DRAW_NUMBER: snprintf(buf, 32, "%.4g", v); break;
	}
	return buf;
}
