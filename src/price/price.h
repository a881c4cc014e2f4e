/* What MFU costs: devices lost, a run's cost, the worth of a higher MFU, payback, another device, electricity.
 *
 * Every figure is an interval: inputs are ranges (a price is never one number), and results hold every value that
 * inputs within their ranges can give. Intervals of inputs that appear once in a formula are exact; none appears
 * twice here. */
#ifndef FO_PRICE_PRICE_H
#define FO_PRICE_PRICE_H

#include "base/range.h"

struct fo_price_in {
	double devices;
	struct fo_range days;  /* of the run as it is */
	struct fo_range rent;  /* USD per device and hour */
	struct fo_range mfu;   /* now, a fraction */
	struct fo_range to;    /* after the change; unknown: no change is asked about */
	double peak;           /* TFLOP/s of one device; NAN */
	struct fo_range weeks; /* of engineering */
	struct fo_range week;  /* USD per week of engineering */
	struct fo_range watts; /* of one device while it trains */
	struct fo_range pue;   /* power of the building over power of the devices */
	struct fo_range kwh;   /* USD per kWh */
	struct fo_range year;  /* share of the year in which the devices train */
	/* The other device; devices 0: none. */
	double other_devices, other_peak;
	struct fo_range other_rent, other_mfu;
};

struct fo_price {
	struct fo_range useful, lost;    /* devices: devices x MFU, and the rest */
	struct fo_range cost;            /* USD of the run */
	struct fo_range times;           /* speed after over now: to / mfu */
	struct fo_range recovered;       /* devices: devices x (to - mfu) */
	struct fo_range recovered_worth; /* USD: what the recovered devices would cost for as long as the run takes */
	struct fo_range days;            /* for the same work after the change */
	struct fo_range saved;           /* USD for the same work: cost x (1 - mfu / to) */
	struct fo_range saved_share;     /* of the cost */
	struct fo_range year_cost, year_saved; /* USD per year of training, for the same work */
	struct fo_range payback_days;          /* of training until the change has saved what it costs */
	struct fo_range energy_kwh, energy_cost;
	struct fo_range other_days, other_cost; /* the other device, for the same work */
};

/* Fills what the inputs allow; the rest is unknown. devices and mfu are needed. */
void fo_price(const struct fo_price_in *in, struct fo_price *out);

/* The time and cost of so many tokens: a run of as many days as they need, by fo_price. */
struct fo_price_tokens_in {
	double devices, tokens;
	struct fo_range tokens_s;              /* of all devices */
	struct fo_range rent, watts, pue, kwh; /* as above; unknown: what needs them is */
};
struct fo_price_tokens {
	struct fo_range days, cost, energy_kwh, energy_cost;
};
void fo_price_tokens(const struct fo_price_tokens_in *in, struct fo_price_tokens *out);

#endif
