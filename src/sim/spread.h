/* How much the steps of a job differ: the same fleet simulated again and again, with jitter and with slow ranks that
 * are drawn anew for each step.
 *
 * Each operation that works takes exp(j g) times as long, with g of the normal distribution for each rank and operation
 * (log-normal: the median is the operation's own time). Each rank is one of the slow ones with a given chance. All
 * of it depends on the seed alone. */
#ifndef FO_SIM_SPREAD_H
#define FO_SIM_SPREAD_H

#include "sim/fleet.h"

enum { FO_SPREAD_SLOW = 64, FO_SPREAD_CHANCES = 4, FO_SPREAD_HOLDS = 8, FO_SPREAD_STEPS_MOST = 1000 };
struct fo_spread_in {
	double jitter;                            /* of the logarithm of an operation's time: 0.02; 0: none */
	struct fo_fleet_odd slow[FO_SPREAD_SLOW]; /* in every step; by rank, each once */
	int slows;
	struct {
		double share, work; /* of the ranks, and how many times as long their work takes */
	} chance[FO_SPREAD_CHANCES];
	int chances;
	int steps; /* that are drawn; 0: as many as take a few seconds, at most 100 */
	uint64_t seed;
};
/* An operation on a lane, and how much of all steps it held: it was on their critical paths. */
struct fo_spread_hold {
	int32_t name; /* of the fleet */
	uint8_t lane, hold;
	double share; /* of the steps' time */
	int32_t rank; /* that had most of it */
};
struct fo_spread_steps {
	int steps;
	double *step_s; /* ascending */
	double alike_s; /* nothing differs */
	double low, mid,
		high; /* 10, 50 and 90 % of the steps take less; of fewer than 10 steps the least and the most */
	struct fo_spread_hold hold[FO_SPREAD_HOLDS]; /* most first */
	int holds;
	int32_t rank; /* whose own work held most of the steps' time, and how much of it */
	double rank_share;
};
/* f as it is simulated without these (its odd ranks, jitter and seed are not looked at, and left as they were). Errors
 * as fo_fleet_simulate; FO_EARG: a slow rank that is not there. *out needs fini in no case of failure. */
FO_CHECKED fo_status fo_spread_of(struct fo_spread_steps *out, struct fo_fleet *f, const struct fo_spread_in *in);
void fo_spread_fini(struct fo_spread_steps *s);

#endif
