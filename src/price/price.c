#include "price/price.h"

#include <stdlib.h>
#include <string.h>

static const double HOURS_OF_DAY = 24, HOURS_OF_YEAR = 8760, SECONDS_OF_DAY = 86400, MOST = 1e15;

/* A number that takes all of [text, end); NAN: it does not. */
static double number(const char *text, const char *end)
{
	char copy[64], *stop;
	size_t n = (size_t)(end - text);
	if (n == 0 || n >= sizeof copy || *text == ' ')
		return NAN;
	memcpy(copy, text, n);
	copy[n] = 0;
	if (strspn(copy, "0123456789.eE+-") != n) /* strtod reads hexadecimal and words, too */
		return NAN;
	double v = strtod(copy, &stop);
	return *stop || !(v >= 0 && v <= MOST) ? NAN : v;
}

fo_status fo_range_parse(const char *text, const char *what, struct fo_range *out)
{
	const char *dots = strstr(text, ".."), *end = text + strlen(text);
	out->low = number(text, dots ? dots : end);
	out->high = dots ? number(dots + 2, end) : out->low;
	if (out->low <= out->high)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG,
			       "%s is '%s', expected a number or a range with its smaller end first, at most 1e15",
			       what, text),
		       "2.5, or 2..3");
}

/* For factors that are not negative. */
static struct fo_range times(struct fo_range a, struct fo_range b)
{
	return (struct fo_range){ a.low * b.low, a.high * b.high };
}

static struct fo_range over(struct fo_range a, struct fo_range b)
{
	return (struct fo_range){ a.low / b.high, a.high / b.low };
}

static struct fo_range minus(struct fo_range a, struct fo_range b)
{
	return (struct fo_range){ a.low - b.high, a.high - b.low };
}

static struct fo_range scaled(double f, struct fo_range a) { return times(fo_range(f), a); }

/* The product of a share that may be negative and a positive amount. */
static struct fo_range part_of(struct fo_range share, struct fo_range amount)
{
	return (struct fo_range){ share.low * (share.low < 0 ? amount.high : amount.low),
				  share.high * (share.high < 0 ? amount.low : amount.high) };
}

static void change(const struct fo_price_in *in, struct fo_price *p)
{
	struct fo_range hour = scaled(in->devices, in->rent); /* USD of one hour of all devices */
	p->times = over(in->to, in->mfu);
	p->recovered = part_of(minus(in->to, in->mfu), fo_range(in->devices));
	p->recovered_worth = part_of(p->recovered, scaled(in->days * HOURS_OF_DAY, in->rent));
	p->days = scaled(in->days, over(in->mfu, in->to));
	p->saved_share = minus(fo_range(1), over(in->mfu, in->to));
	p->saved = part_of(p->saved_share, p->cost);
	p->year_saved = part_of(p->saved_share, p->year_cost);
	struct fo_range day = part_of(p->saved_share, scaled(HOURS_OF_DAY, hour)); /* USD saved in a day of training */
	struct fo_range effort = times(in->weeks, in->week);
	p->payback_days = (struct fo_range){ day.high > 0 ? effort.low / day.high : INFINITY,
					     day.low > 0 ? effort.high / day.low : INFINITY };
	if (isnan(effort.low) || !fo_range_known(day))
		p->payback_days = fo_range(NAN);
}

void fo_price(const struct fo_price_in *in, struct fo_price *out)
{
	struct fo_price *p = out;
	struct fo_range none = fo_range(NAN), hours = fo_range(in->days * HOURS_OF_DAY);
	*p = (struct fo_price){ none, none, none, none, none, none, none, none,
				none, none, none, none, none, none, none, none };
	p->useful = scaled(in->devices, in->mfu);
	p->lost = minus(fo_range(in->devices), p->useful);
	p->cost = scaled(in->devices, times(in->rent, hours));
	p->year_cost = scaled(in->devices * HOURS_OF_YEAR, times(in->rent, in->year));
	p->energy_kwh = scaled(in->devices * 1e-3, times(in->watts, times(in->pue, hours)));
	p->energy_cost = times(p->energy_kwh, in->kwh);
	if (fo_range_known(in->to))
		change(in, p);
	if (in->other_devices > 0) {
		/* Useful FLOP of the run, over what the other devices do in a second. */
		struct fo_range work = scaled(in->devices * in->peak * in->days * SECONDS_OF_DAY, in->mfu);
		struct fo_range rate = scaled(in->other_devices * in->other_peak, in->other_mfu);
		p->other_days = scaled(1 / SECONDS_OF_DAY, over(work, rate));
		p->other_cost = scaled(in->other_devices * HOURS_OF_DAY, times(p->other_days, in->other_rent));
	}
}
