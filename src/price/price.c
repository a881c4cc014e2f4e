#include "price/price.h"

static const double HOURS_OF_DAY = 24, HOURS_OF_YEAR = 8760, SECONDS_OF_DAY = 86400;

/* The product of a share that may be negative and a positive amount. */
static struct fo_range part_of(struct fo_range share, struct fo_range amount)
{
	double least = share.low < 0 ? amount.high : amount.low;
	double most = share.high < 0 ? amount.low : amount.high;
	return (struct fo_range){ share.low * least, share.high * most };
}

static double pays_after(double effort, double day) { return day > 0 ? effort / day : INFINITY; }

static void change(const struct fo_price_in *in, struct fo_price *p)
{
	struct fo_range hour = fo_range_scaled(in->devices, in->rent); /* USD of one hour of all devices */
	p->times = fo_range_over(in->to, in->mfu);
	p->recovered = part_of(fo_range_minus(in->to, in->mfu), fo_range(in->devices));
	p->recovered_worth = part_of(p->recovered, fo_range_times(fo_range_scaled(HOURS_OF_DAY, in->days), in->rent));
	p->days = fo_range_times(in->days, fo_range_over(in->mfu, in->to));
	p->saved_share = fo_range_minus(fo_range(1), fo_range_over(in->mfu, in->to));
	p->saved = part_of(p->saved_share, p->cost);
	p->year_saved = part_of(p->saved_share, p->year_cost);
	struct fo_range day = part_of(p->saved_share, fo_range_scaled(HOURS_OF_DAY, hour)); /* USD saved in a day */
	struct fo_range effort = fo_range_times(in->weeks, in->week);
	p->payback_days = (struct fo_range){ pays_after(effort.low, day.high), pays_after(effort.high, day.low) };
	if (isnan(effort.low) || !fo_range_known(day))
		p->payback_days = fo_range(NAN);
}

void fo_price(const struct fo_price_in *in, struct fo_price *out)
{
	struct fo_price *p = out;
	struct fo_range none = fo_range(NAN), hours = fo_range_scaled(HOURS_OF_DAY, in->days);
	*p = (struct fo_price){ none, none, none, none, none, none, none, none,
				none, none, none, none, none, none, none, none };
	p->useful = fo_range_scaled(in->devices, in->mfu);
	p->lost = fo_range_minus(fo_range(in->devices), p->useful);
	p->cost = fo_range_scaled(in->devices, fo_range_times(in->rent, hours));
	p->year_cost = fo_range_scaled(in->devices * HOURS_OF_YEAR, fo_range_times(in->rent, in->year));
	p->energy_kwh = fo_range_scaled(in->devices * 1e-3, fo_range_times(in->watts, fo_range_times(in->pue, hours)));
	p->energy_cost = fo_range_times(p->energy_kwh, in->kwh);
	if (fo_range_known(in->to))
		change(in, p);
	if (in->other_devices > 0) {
		/* Useful FLOP of the run, over what the other devices do in a second. */
		struct fo_range work = fo_range_scaled(in->devices * in->peak * SECONDS_OF_DAY,
						       fo_range_times(in->days, in->mfu));
		struct fo_range rate = fo_range_scaled(in->other_devices * in->other_peak, in->other_mfu);
		p->other_days = fo_range_scaled(1 / SECONDS_OF_DAY, fo_range_over(work, rate));
		p->other_cost = fo_range_scaled(in->other_devices * HOURS_OF_DAY,
						fo_range_times(p->other_days, in->other_rent));
	}
}

void fo_price_tokens(const struct fo_price_tokens_in *in, struct fo_price_tokens *out)
{
	struct fo_range none = fo_range(NAN),
			days = fo_range_scaled(1 / SECONDS_OF_DAY, fo_range_over(fo_range(in->tokens), in->tokens_s));
	struct fo_price_in run = { .devices = in->devices,
				   .days = days,
				   .rent = in->rent,
				   .mfu = none,
				   .to = none,
				   .peak = NAN,
				   .weeks = none,
				   .week = none,
				   .watts = in->watts,
				   .pue = in->pue,
				   .kwh = in->kwh,
				   .year = none };
	struct fo_price p;
	fo_price(&run, &p);
	*out = (struct fo_price_tokens){ days, p.cost, p.energy_kwh, p.energy_cost };
}
