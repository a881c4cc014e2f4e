/* What changes are worth: MFU points within the cap, money, their order, and what a year of all of them saves. */
#include "health/health_int.h"

#include <math.h>
#include <string.h>

static const double HOURS_OF_YEAR = 8760;

/* ---- each change ---- */

/* The limit is of 16 bit; 8 bit doubles the rate of matmuls. */
static double cap_of(const struct fo_health *h, bool in_8_bit)
{
	double cap = in_8_bit ? fmin(2 * h->mfu.cap, 1) : h->mfu.cap;
	return fmax(cap, h->mfu.now);
}
/* The words for that cap. */
static const char *cap_words(struct fo_health *h, double cap)
{
	if (cap == h->mfu.cap)
		return h->mfu.cap_from;
	if (cap == h->mfu.now)
		return "what is reached now, above the limit that is known here";
	return fo_health_text(h, "%s, for 8 bit doubles the rate of matmuls; the limit of 16 bit is %s, %s",
			      cap < 1 ? "twice the limit of 16 bit" : "the peak of 16 bit",
			      fo_health_num(h, h->mfu.cap, FO_DRAW_SHARE), h->mfu.cap_from);
}
static bool is_8_bit(const struct fo_health_change *c) { return !strcmp(c->id, "fp8"); }

/* MFU after a change of speed, which no promise takes above the cap. */
static struct fo_range after(const struct fo_health *h, struct fo_range gain, double cap)
{
	return (struct fo_range){ fmin(h->mfu.now * gain.low, cap), fmin(h->mfu.now * gain.high, cap) };
}

/* Prices a change of MFU. The MFU now is one number: a gain is a factor on it, so its spread is not told twice. */
static void price_of(const struct fo_health *h, struct fo_range to, struct fo_price *p)
{
	const struct fo_price_in in = { .devices = h->savings.devices,
					.days = fo_range(365 * fo_range_middle(h->given.year)),
					.rent = h->savings.rent,
					.mfu = fo_range(h->mfu.now),
					.to = to,
					.peak = NAN,
					.weeks = fo_range(NAN),
					.week = fo_range(NAN),
					.watts = fo_range(NAN),
					.pue = fo_range(1),
					.kwh = fo_range(NAN),
					.year = h->given.year };
	fo_price(&in, p);
}

static void value(struct fo_health *h, struct fo_health_change *c)
{
	struct fo_price p;
	if (!c->priced || !fo_range_known(c->gain) || isnan(h->mfu.now))
		return;
	c->mfu_after = after(h, c->gain, cap_of(h, is_8_bit(c)));
	c->points = (struct fo_range){ c->mfu_after.low - h->mfu.now, c->mfu_after.high - h->mfu.now };
	if (isnan(h->savings.devices) || !fo_range_known(h->savings.rent))
		return;
	price_of(h, c->mfu_after, &p);
	c->year_usd = p.year_saved;
}

/* Is x to be done before y? Serious ones come first, then those of this job with a known worth, then what another
 * machine measured, then the rest; a loss last. */
static int rank_of(const struct fo_health_change *c)
{
	if (c->gain.high <= 1)
		return 4;
	if (c->serious)
		return 0;
	if (!fo_range_known(c->gain))
		return 3;
	return c->priced ? 1 : 2;
}

/* What is serious without a gain stops a job or loses it: that comes before any speed, as in the audit. */
static double certain_gain(const struct fo_health_change *c)
{
	return fo_range_known(c->gain) ? c->gain.low : INFINITY;
}

/* Measured, by a trace, by arithmetic. */
static int worth_rank(const struct fo_health_change *c) { return c->worth == FO_HEALTH_ESTIMATED ? 1 + !c->traced : 0; }

/* The low end is what a change gives for certain; a wide interval is no reason to begin with it. */
static bool before(const struct fo_health_change *x, const struct fo_health_change *y)
{
	int a = rank_of(x), b = rank_of(y);
	double low = certain_gain(x), other = certain_gain(y);
	if (a != b || low == other)
		return a != b ? a < b : worth_rank(x) < worth_rank(y);
	return low > other;
}

/* By insertion: changes are few, and equal ones keep their order. */
static void sort(struct fo_health *h)
{
	for (size_t i = 1; i < h->changes; i++) {
		struct fo_health_change c = h->change[i];
		size_t at = i;
		for (; at > 0 && before(&c, &h->change[at - 1]); at--)
			h->change[at] = h->change[at - 1];
		h->change[at] = c;
	}
}

/* ---- all of them ---- */

/* Gains of single changes do not add up: two may save the same time. The highest lower end is left in any case; at most
 * each saves other time of the step. Above stands the cap. */
static struct fo_range together(const struct fo_health *h, double *cap)
{
	bool fp8 = false;
	double low = 1, time = 1;
	int n = 0;
	for (size_t i = 0; i < h->changes; i++) {
		const struct fo_health_change *c = &h->change[i];
		if (!c->priced || !fo_range_known(c->gain))
			continue;
		n++;
		fp8 |= is_8_bit(c);
		low = fmax(low, c->gain.low);
		if (c->gain.high > 1)
			time -= 1 - 1 / c->gain.high;
	}
	if (!n)
		return fo_range(NAN);
	*cap = cap_of(h, fp8);
	double most = isnan(h->mfu.now) ? INFINITY : *cap / h->mfu.now;
	return (struct fo_range){ fmin(low, most), fmin(time > 0 ? 1 / time : INFINITY, most) };
}

static void find_rent(struct fo_health *h)
{
	struct fo_health_savings *s = &h->savings;
	const struct fo_device *d = h->device;
	s->rent = h->given.rent;
	s->rent_from = fo_range_known(s->rent) ? "--rent" : NULL;
	if (!s->rent_from && d && !isnan(d->rent_low) && !isnan(d->rent_high)) {
		s->rent = (struct fo_range){ d->rent_low, d->rent_high };
		s->rent_from = fo_health_text(h, "%s, %s", d->name, d->rent_note);
	}
}

static const char *why_no_savings(struct fo_health *h)
{
	const struct fo_health_savings *s = &h->savings;
	if (isnan(h->mfu.now))
		return fo_health_text(h, "the MFU now is not known: %s", h->mfu.why_not);
	if (!fo_range_known(s->together))
		return "no change with a known worth of this job was found; a trace or a configuration tells some";
	if (isnan(s->devices))
		return "the number of devices is not known: give --devices";
	if (!fo_range_known(s->rent))
		return h->device ? fo_health_text(h, "no rent of %s is known: give --rent", h->device->name)
				 : "the device is not known: give --device or --rent";
	return NULL;
}

void fo_health_worth(struct fo_health *h)
{
	struct fo_health_savings *s = &h->savings;
	struct fo_range none = fo_range(NAN);
	*s = (struct fo_health_savings){ .together = none,
					 .mfu_after = none,
					 .rent = none,
					 .recovered_year = none,
					 .devices = h->devices,
					 .devices_from = h->devices_from };
	find_rent(h);
	for (size_t i = 0; i < h->changes; i++)
		value(h, &h->change[i]);
	sort(h);
	fo_health_settle_options(h);
	s->cap = cap_of(h, false);
	s->together = together(h, &s->cap);
	s->cap_from = cap_words(h, s->cap);
	if (fo_range_known(s->together) && !isnan(h->mfu.now))
		s->mfu_after = after(h, s->together, s->cap);
	s->why_not = why_no_savings(h);
	s->known = !s->why_not;
	if (!s->known)
		return;
	price_of(h, s->mfu_after, &s->price);
	s->recovered_year = fo_range_times(s->price.recovered,
					   fo_range_scaled(HOURS_OF_YEAR, fo_range_times(s->rent, h->given.year)));
}
