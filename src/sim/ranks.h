/* A step of all ranks of a job: their programs, the walk, and how much of their communication shows.
 *
 * Ranks whose programs are equal but for their own number are one role: built once, timed once. Where there is one role
 * and each call is of a whole group, one rank is walked for all: all do the same at the same times, so that is exact.
 *
 * A step is an interval. Middle: times as they are known. Ends: computing within 5 % where it was measured as it is,
 * 12 % interpolated, by half and twice guessed (the worst errors of docs/simulator.md); ranks' own work in calls within
 * a quarter, a half, or half and twice; ranks that compute at once disturb each other not at all, or a tenth more than
 * was measured. */
#ifndef FO_SIM_RANKS_H
#define FO_SIM_RANKS_H

#include "cost/links.h"
#include "sim/sim.h"

struct fo_sim_role {
	struct fo_program p; /* of its first rank */
	struct fo_unrolled u;
	struct fo_sim times; /* before the walk */
};
struct fo_sim_ranks {
	int ranks, roles;
	bool alike; /* one rank was walked for all */
	struct fo_sim_role *role;
	int *role_of;        /* per rank */
	struct fo_sim *rank; /* the middle walk, per rank; alike: of rank 0 alone */
	struct fo_crowd crowd;
	/* Of the rank that takes longest, and of the rank that shows most communication. hidden: under way while the
	 * rank computes. */
	struct fo_interval step_s, exposed_s, late_s, hidden_s;
	struct fo_interval lane_exposed_s[FO_LANE_COUNT], lane_hidden_s[FO_LANE_COUNT]; /* of that rank, by lane */
	double sure_s[FO_SURE_COUNT]; /* of communication, one rank's calls one after the other */
};
/* The program, unrolled and planned, of each role of the job of which `first` is rank 0's. */
FO_CHECKED fo_status fo_sim_ranks_init(struct fo_sim_ranks *x, const struct fo_program *first);
/* cores: of the machine, 0: not known. Pairs of a rank's micro-batch. */
FO_CHECKED fo_status fo_sim_ranks_step(struct fo_sim_ranks *x, const struct fo_rates *r, const struct fo_link_rates *l,
				       int cores, double pairs);
void fo_sim_ranks_fini(struct fo_sim_ranks *x);
/* Bytes that a rank receives in a step. */
double fo_sim_ranks_wire(const struct fo_sim_ranks *x, int rank);

#endif
