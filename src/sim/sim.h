/* The simulator: when each operation of a step program runs, on a machine that was measured or on an accelerator.
 *
 * An instance starts when its lane is free and what it waits for has ended. Lanes that compute (fo_lane_computes) share
 * the cores: while two run an operation, each takes twice its time, so a step is never shorter than their work
 * together. The waits are those that the executor obeys, the memory plan's among them. Times come from src/cost: each
 * instance's own, by what it stores and by what the caches still hold of its operands. */
#ifndef FO_SIM_SIM_H
#define FO_SIM_SIM_H

#include "cost/cost.h"
#include "cost/device.h"
#include "timeline/timeline.h"

struct fo_sim {
	int n;                        /* instances */
	double step_s;                /* from the first start to the last end */
	double part_s[FO_PART_COUNT]; /* of the lanes that compute, as in the step profile; they sum to step_s */
	double overhead_s;            /* after each instance */
	/* Per instance. */
	double *begin_s, *end_s; /* from the step's begin; the end includes the overhead */
	double *seconds;         /* time of its kernel with the cores to itself, without the overhead */
	uint8_t *sure;           /* enum fo_sure */
	int32_t *waited;         /* the instance of another lane that it had to wait for; -1: none */
	double *hold_s;          /* of communication: how long it takes the links of its ranks */
	double *late_s;          /* the same, after the walk: from when this rank came until the last one had */
	/* Time in which calls to other ranks are under way, from when this rank came; of it, what no lane that computes
	 * covers; of that, what is waiting for a rank that comes late. */
	double comm_s, exposed_s, exposed_late_s;
	/* By lane, exposed and behind computing; of several under way the first counts, as in fo_rank_times. */
	double lane_exposed_s[FO_LANE_COUNT], lane_hidden_s[FO_LANE_COUNT];
	/* Kernel time of lanes that compute, by how sure it is, and from rows without a quiet span. */
	double sure_s[FO_SURE_COUNT], busy_s;
	int unknown; /* instances of which nothing is known: the step takes longer than step_s */
};

/* One step. `u` is unrolled, planned and pruned; pairs of a micro-batch as in fo_op_cost. Ends with fo_sim_fini. */
void fo_sim_step(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, const struct fo_rates *r,
		 double pairs);
void fo_sim_fini(struct fo_sim *s);
/* Room for a step's instances, and the walk alone: s->seconds and s->sure are filled in between (zeros else). */
void fo_sim_init(struct fo_sim *s, const struct fo_unrolled *u, double overhead_s);
void fo_sim_walk(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u);
/* Fills in s->seconds and s->sure of what computes; again, with when of a walk, by what the caches lost meanwhile. */
void fo_sim_time(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, const struct fo_rates *r,
		 double pairs, const struct fo_step_when *when);

/* The walk of all ranks of a job, by their numbers, with times filled in; of communication s->seconds is what ranks do
 * themselves. A call begins when its last rank comes and its ranks' links are free, and is over at once for all of
 * them, as in comm/local.c. alike: rank 0 is walked and stands for all, which is exact where all programs and times are
 * equal and every call is of a whole group. FO_EBUG: ranks call different things, or wait for ever. */
struct fo_sim_rank {
	const struct fo_program *p; /* mesh.rank in it does not matter */
	const struct fo_unrolled *u;
	struct fo_sim *sim;
	const double *before_s; /* per instance: from when it could begin until it does; NULL: nothing */
};
FO_CHECKED fo_status fo_sim_walk_ranks(const struct fo_sim_rank *rank, int ranks, bool alike);

/* The step as spans of step 0, as the executor would have recorded them. Freed with fo_timeline_fini. FO_ENOMEM. */
FO_CHECKED fo_status fo_sim_timeline(const struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u,
				     struct fo_timeline *t);

/* Mean attention pairs of one row of `seq` tokens, cut anywhere from documents of `document` tokens packed end to end;
 * times the rows of a micro-batch it is what fo_op_cost takes. */
double fo_sim_pairs(int64_t seq, double document);

/* ---- a step on an accelerator (device.c) ---- */

/* Three walks: every operation at its fast end, its middle and its slow end (cost/device.h). */
struct fo_device_step {
	struct fo_interval step_s, part_s[FO_DEVICE_PARTS];   /* parts sum to the step */
	double flop[FO_DEVICE_PARTS], bytes[FO_DEVICE_PARTS]; /* executed and moved, of each part's operations */
	int nodes;                                            /* operations that compute, or copy */
	double measured_share; /* of the middle time of what computes: operations that the profile holds */
	struct fo_sim sim;     /* the middle walk: sure is EXACT where measured, else GUESS */
};

/* `u` is unrolled, planned and pruned; pairs of a micro-batch as in fo_op_cost. FO_EUNSUPPORTED, naming the operation
 * and what to do, where one is not known; *s needs no fini then. */
FO_CHECKED fo_status fo_device_step(struct fo_device_step *s, const struct fo_program *p, const struct fo_unrolled *u,
				    const struct fo_device_rates *r, double pairs);
void fo_device_step_fini(struct fo_device_step *s);

#endif
