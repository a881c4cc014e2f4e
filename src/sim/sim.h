/* The simulator: when each operation of a step program runs, on a machine that was measured.
 *
 * Lanes are in order and waits point backwards, so for given times one walk over the instances in issue order is exact: an
 * instance starts when its lane is free and what it waits for has ended. The waits are those that the executor obeys, the memory
 * plan's among them. Times come from src/cost: each instance's own, by what it stores and by what the caches still hold of its
 * operands (cost/reuse.h). On an accelerator: sim/device.h. */
#ifndef FO_SIM_SIM_H
#define FO_SIM_SIM_H

#include "cost/cost.h"
#include "timeline/timeline.h"

struct fo_sim {
	int n;                       /* instances */
	double step_s;               /* from the first start to the last end */
	double part_s[FO_PART_COUNT]; /* of the compute lane, as in the step profile; they sum to step_s */
	double *begin_s, *seconds;   /* per instance: start from the step's begin; time of its kernel, without the overhead */
	uint8_t *sure;               /* per instance: enum fo_sure */
	int32_t *waited;             /* per instance: the instance of another lane that it had to wait for; -1: it did not */
	double sure_s[FO_SURE_COUNT]; /* of the compute lane's kernels: how much of it is how sure */
	double busy_s;               /* ... and how much of it comes from rows that had no quiet span */
	int unknown;                 /* instances of which nothing is known: the step takes longer than step_s */
};

/* One step. `u` is unrolled, planned and pruned; pairs of a micro-batch as in fo_op_cost. Ends with fo_sim_fini. A program
 * without instances takes no time. */
void fo_sim_step(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, const struct fo_rates *r, double pairs);
void fo_sim_fini(struct fo_sim *s);
/* Room for a step's instances, all zeros, and the walk alone: s->seconds (and s->sure) are filled in between. Compute lanes share the
 * machine: operations that compute run one after the other, whatever their lane, and never wait for each other longer than that; what
 * running beside each other gains is the caller's to take off their times. */
void fo_sim_init(struct fo_sim *s, const struct fo_unrolled *u);
void fo_sim_walk(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, double overhead_s);
/* The lane on whose resource an operation runs: one for all compute lanes. */
int fo_sim_lane(const struct fo_op *o);

/* The same as spans of step 0, as the executor would have recorded them (the overhead stands between spans). Freed with
 * fo_timeline_fini. FO_ENOMEM. */
FO_CHECKED fo_status fo_sim_timeline(const struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u,
				     struct fo_timeline *t);

/* Attention pairs of one row of `seq` tokens, packed end to end from documents of `document` tokens each and cut at a place that
 * is as likely as any other: the mean of what fo_op_cost takes, to be multiplied by the rows of a micro-batch. */
double fo_sim_pairs(int64_t seq, double document);

#endif
