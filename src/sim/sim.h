/* The simulator: when each operation of a step program runs, on a machine that was measured.
 *
 * An instance starts when its lane is free and what it waits for has ended. Lanes that compute (fo_lane_computes) share
 * the cores: while two run an operation, each takes twice its time, so a step is never shorter than their work
 * together. The waits are those that the executor obeys, the memory plan's among them. Times come from src/cost: each
 * instance's own, by what it stores and by what the caches still hold of its operands (cost/reuse.h). On an
 * accelerator: sim/device.h. */
#ifndef FO_SIM_SIM_H
#define FO_SIM_SIM_H

#include "cost/cost.h"
#include "timeline/timeline.h"

struct fo_sim {
	int n;                        /* instances */
	double step_s;                /* from the first start to the last end */
	double part_s[FO_PART_COUNT]; /* of the lanes that compute, as in the step profile; they sum to step_s */
	double overhead_s;            /* behind each instance */
	double *begin_s,
		*end_s;  /* per instance: start and end from the step's begin, the end with the overhead behind it */
	double *seconds; /* per instance: time of its kernel with the cores to itself, without the overhead */
	uint8_t *sure;   /* per instance: enum fo_sure */
	int32_t *waited; /* per instance: the instance of another lane that it had to wait for; -1: it did not */
	double sure_s[FO_SURE_COUNT]; /* of the kernels of lanes that compute: how much of it is how sure */
	double busy_s;                /* ... and how much of it comes from rows that had no quiet span */
	int unknown;                  /* instances of which nothing is known: the step takes longer than step_s */
};

/* One step. `u` is unrolled, planned and pruned; pairs of a micro-batch as in fo_op_cost. Ends with fo_sim_fini. A
 * program without instances takes no time. */
void fo_sim_step(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, const struct fo_rates *r,
		 double pairs);
void fo_sim_fini(struct fo_sim *s);
/* Room for a step's instances, and the walk alone: s->seconds and s->sure are filled in between (zeros else). */
void fo_sim_init(struct fo_sim *s, const struct fo_unrolled *u, double overhead_s);
void fo_sim_walk(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u);

/* The same as spans of step 0, as the executor would have recorded them (the overhead stands between spans). Freed with
 * fo_timeline_fini. FO_ENOMEM. */
FO_CHECKED fo_status fo_sim_timeline(const struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u,
				     struct fo_timeline *t);

/* Attention pairs of one row of `seq` tokens, packed end to end from documents of `document` tokens each and cut at a
 * place that is as likely as any other: the mean of what fo_op_cost takes, to be multiplied by the rows of a
 * micro-batch. */
double fo_sim_pairs(int64_t seq, double document);

#endif
