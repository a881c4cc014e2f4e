/* The share of the time that counts: in closed form, and over drawn runs. */
#include "sim/goodput.h"

#include "base/count.h"
#include "base/rng.h"

#include <stdlib.h>

#define DAY_S 86400.0
#define NODE_DEVICES 8.0
enum {
	RUNS = 400,           /* quantiles of 10 and 90 % are then the 40th smallest and largest */
	DRAWN_FAILURES = 2000 /* of a run: with more, their number is known to 2 %, and only the inputs are drawn */
};

double fo_goodput_rate(double failures, double devices) { return failures * devices / (NODE_DEVICES * 1000 * DAY_S); }

/* The middle of a range: of the logarithm, but of ranges that begin at 0. */
static double middle(struct fo_range r) { return r.low > 0 ? sqrt(r.low * r.high) : r.high / 2; }

double fo_goodput_share(double f, double save_s, double restart_s, double interval_s)
{
	if (isinf(interval_s))
		return f > 0 ? 0 : 1;
	if (!(interval_s > 0)) /* saves all the time, which takes all of it or nothing */
		return save_s > 0 ? 0 : exp(-restart_s * f);
	if (!(f > 0))
		return interval_s / (interval_s + save_s);
	return interval_s * f / (exp(restart_s * f) * expm1((interval_s + save_s) * f));
}

double fo_goodput_best(double f, double save_s)
{
	double low = 0, high = 1 / f;
	if (!(f > 0))
		return INFINITY;
	if (!(save_s > 0))
		return 0;
	/* (1 - I f) exp((I + S) f) falls from above 1 to 0. */
	for (int i = 0; i < 200 && high - low > 1e-12 * high; i++) {
		double mid = (low + high) / 2, left = log1p(-mid * f) + (mid + save_s) * f;
		*(left > 0 ? &low : &high) = mid;
	}
	return (low + high) / 2;
}

/* ---- drawn runs ---- */

struct draws {
	uint64_t stream, at;
};
static double uniform(struct draws *d) { return ((double)(fo_rng_u64(d->stream, d->at++) >> 11) + 0.5) * 0x1p-53; }
static double within(struct draws *d, struct fo_range r)
{
	double u = uniform(d);
	return r.low > 0 ? r.low * pow(r.high / r.low, u) : r.low + u * (r.high - r.low);
}

/* Seconds of training that are kept from `end` seconds, failure by failure. */
static double one_run(struct draws *d, double f, double save_s, double restart_s, double interval_s, double end)
{
	const double whole = interval_s + save_s;
	double now = 0, kept = 0;
	while (now < end) {
		double until = now - log(uniform(d)) / f;
		if (until >= end) { /* what is under way at the end is not lost */
			double left = end - now, n = isinf(whole) ? 0 : floor(left / whole);
			return kept + n * interval_s + fmin(interval_s, n > 0 ? left - n * whole : left);
		}
		if (!isinf(whole))
			kept += floor((until - now) / whole) * interval_s;
		now = until;
		for (double again = 0; again < restart_s && now < end; now += again) {
			again = -log(uniform(d)) / f; /* until the next failure, maybe within the restart */
			if (again >= restart_s) {
				now += restart_s;
				break;
			}
		}
	}
	return kept;
}

static struct fo_range draw(const struct fo_goodput_in *in, double interval_s)
{
	double share[RUNS];
	const double end = in->days * DAY_S;
	for (int i = 0; i < RUNS; i++) {
		struct draws d = { fo_rng_u64(in->seed, (uint64_t)i), 0 };
		double f = fo_goodput_rate(within(&d, in->failures), in->devices), save = within(&d, in->save_s),
		       restart = within(&d, in->restart_s);
		if (f * end > 0 && f * end <= DRAWN_FAILURES && interval_s > 0)
			share[i] = one_run(&d, f, save, restart, interval_s, end) / end;
		else
			share[i] = fo_goodput_share(f, save, restart, interval_s);
	}
	qsort(share, RUNS, sizeof *share, fo_by_double);
	return (struct fo_range){ share[RUNS / 10], share[RUNS - 1 - RUNS / 10] };
}

void fo_goodput_of(const struct fo_goodput_in *in, struct fo_goodput *out)
{
	const double f = fo_goodput_rate(middle(in->failures), in->devices), save = middle(in->save_s),
		     restart = middle(in->restart_s);
	*out = (struct fo_goodput){ .interval_s = in->interval_s > 0 ? in->interval_s : fo_goodput_best(f, save),
				    .failure_s = 1 / f,
				    .failures = f * in->days * DAY_S };
	out->share = fo_goodput_share(f, save, restart, out->interval_s);
	/* An interval of 0 is the best where saves take no time. */
	out->saving = save > 0 && !isinf(out->interval_s) ? out->share * save / out->interval_s : 0;
	out->failing = fmax(0, 1 - out->share - out->saving);
	out->drawn = draw(in, out->interval_s);
}
