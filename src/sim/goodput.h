/* The share of a job's time whose steps are part of the result: checkpoints, failures and restarts taken off.
 *
 * A job saves after every `interval_s` of training, and a save stops it for `save_s`. Any failure stops all of it: what
 * was done since the last whole checkpoint is lost, and steps go on `restart_s` later, unless another failure begins
 * the restart anew. Failures come at a constant rate (exponential times). The mean time for an interval is then
 *	exp(R f) (exp((I + S) f) - 1) / f,  f: failures in a second of all devices
 * (J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, 2006), and the best
 * interval solves (1 - I f) exp((I + S) f) = 1; sqrt(2 S / f) is its first order. Saves beside training, spare nodes
 * and jobs that go on with fewer devices are other inputs (a shorter save, a shorter restart, fewer failures). */
#ifndef FO_SIM_GOODPUT_H
#define FO_SIM_GOODPUT_H

#include "base/range.h"

#include <stdint.h>

struct fo_goodput_in {
	double devices;
	struct fo_range failures;  /* that stop the job, of 1,000 nodes of eight devices in a day */
	struct fo_range save_s;    /* that a checkpoint stops training */
	struct fo_range restart_s; /* from a failure until steps go on from the checkpoint */
	double interval_s;         /* of training between checkpoints; 0: the best for the middles of the ranges */
	double days;               /* length of the runs that are drawn */
	uint64_t seed;
};
struct fo_goodput {
	double interval_s; /* INFINITY: nothing fails, or nothing is saved for */
	double share;      /* the mean, at the middles (geometric) of the ranges */
	struct fo_range
		drawn;    /* that 80 % of drawn runs reach: inputs from within their ranges, failures as they fall */
	double failure_s; /* mean time between failures; INFINITY: none */
	double failures;  /* in `days`, the mean */
	double saving, failing; /* shares of the time, at the middles: saves; what failures lose, and restarts */
};
/* Ranges are known and >= 0, devices >= 1, days > 0. About a millisecond. */
void fo_goodput_of(const struct fo_goodput_in *in, struct fo_goodput *out);

/* The mean share, and the interval that makes it largest, for a rate of failures in a second. */
double fo_goodput_share(double failures_s, double save_s, double restart_s, double interval_s);
double fo_goodput_best(double failures_s, double save_s);
/* Failures of all devices in a second. */
double fo_goodput_rate(double failures, double devices);

/* Published figures, for jobs that say nothing of their own. Failures: 2.34 to 6.5 of 1,000 node-days in Meta's A100
 * research clusters (Revisiting Reliability in Large-Scale Machine Learning Research Clusters, 2024); Llama 3's 419
 * unexpected interruptions in 54 days of 16,384 H100 are 3.79 (The Llama 3 Herd of Models, 2024). Saves and restarts
 * are guesses: of the same 54 days more than 90 % were effective, so 466 interruptions took 17 minutes each at most,
 * with the work that was lost. */
#define FO_GOODPUT_FAILURES ((struct fo_range){ 2.34, 6.5 })
#define FO_GOODPUT_SAVE_S ((struct fo_range){ 5, 30 })
#define FO_GOODPUT_RESTART_S ((struct fo_range){ 300, 900 })
#define FO_GOODPUT_DAYS 30.0

#endif
