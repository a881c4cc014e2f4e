/* A step of all ranks of a job: their programs, the walk, and how much of their communication shows.
 *
 * Ranks whose programs are equal in all that decides times are one role: built once, timed once. Of the ranks that do
 * the same at the same times one is simulated (sim/fleet.h).
 *
 * A step is an interval. Middle: times as they are known. Ends: computing within 5 % where it was measured as it is,
 * 12 % interpolated, by half and twice guessed (the worst errors of docs/simulator.md); ranks' own work in calls within
 * a quarter, a half, or half and twice; ranks that compute at once disturb each other not at all, or a tenth more than
 * was measured. */
#ifndef FO_SIM_RANKS_H
#define FO_SIM_RANKS_H

#include "cost/links.h"
#include "sim/fleet.h"
#include "sim/sim.h"
#include "sim/spread.h"

struct fo_sim_role {
	struct fo_program p; /* of its first rank */
	struct fo_unrolled u;
	struct fo_sim times; /* before the walk */
};
struct fo_sim_ranks {
	int ranks, roles;
	bool alike; /* one rank was simulated for all */
	bool apart; /* set by the caller: times of computing are given, ranks do not slow each other (paced kernels) */
	struct fo_sim_role *role;
	int32_t *role_of; /* per rank */
	/* The middle walk: ranks that do the same at the same times are a class, rank 0 is of class 0. */
	int classes;
	int32_t *class_of;   /* per rank */
	struct fo_sim *rank; /* per class */
	int32_t *class_role; /* per class */
	/* Of the same walk: what was simulated, and the operations that hold its step. */
	struct fo_fleet *fleet;
	struct fo_fleet_run *run;
	struct fo_fleet_path path;
	struct fo_crowd crowd;
	/* Set between fo_sim_ranks_init and fo_sim_ranks_step, steps that differ are drawn, too. */
	const struct fo_spread_in *spread;
	struct fo_spread_steps drawn;
	/* Of the rank that takes longest, and of the rank that shows most communication. hidden: under way while the
	 * rank computes. */
	struct fo_interval step_s, exposed_s, late_s, hidden_s;
	struct fo_interval lane_exposed_s[FO_LANE_COUNT], lane_hidden_s[FO_LANE_COUNT]; /* of that rank, by lane */
	double sure_s[FO_SURE_COUNT]; /* of communication, one rank's calls one after the other */
};
/* The program, unrolled and planned, of each role of the job of which `first` is rank 0's. FO_EBUG as fo_pass_build. */
FO_CHECKED fo_status fo_sim_ranks_init(struct fo_sim_ranks *x, const struct fo_program *first);
/* The same without the memory plan and the waits that its reuse of bytes adds, and these on top. */
FO_CHECKED fo_status fo_sim_ranks_unplanned(struct fo_sim_ranks *x, const struct fo_program *first);
void fo_sim_ranks_plan(struct fo_sim_ranks *x);
/* cores: of the machine, 0: not known. Pairs of a rank's micro-batch. */
FO_CHECKED fo_status fo_sim_ranks_step(struct fo_sim_ranks *x, const struct fo_rates *r, const struct fo_link_rates *l,
				       int cores, double pairs);
/* One walk with times that the caller knows, of the operation of a role and of which operands it stores (as in struct
 * fo_unrolled): seconds of computing or of a call; link_s: of a call, what it takes of the rank's link, whose rate is
 * shared by the calls that are under way on it. Fills x->rank, x->run, x->path anew; step_s and exposed_s are
 * points. */
struct fo_sim_given {
	double seconds, link_s;
};
typedef struct fo_sim_given fo_sim_given_fn(const void *ctx, const struct fo_program *p, const struct fo_op *o,
					    enum fo_unit unit, uint32_t first);
FO_CHECKED fo_status fo_sim_ranks_given(struct fo_sim_ranks *x, fo_sim_given_fn *given, const void *ctx);
void fo_sim_ranks_fini(struct fo_sim_ranks *x);
/* Bytes that a rank receives in a step. */
double fo_sim_ranks_wire(const struct fo_sim_ranks *x, int rank);

/* Writes the middle walk into a folder that is not there, or empty, as a run of several ranks would have left it: for
 * each rank, of more than `most` for those that differ, its timeline and, where it is not rank 0's, its program.
 * `flatout diagnose` reads such a folder. *written: how many ranks. */
FO_CHECKED fo_status fo_sim_ranks_write(const struct fo_sim_ranks *x, const char *dir, int most, int *written);

/* ---- which ranks have equal programs (roles.c) ---- */

/* Per rank of the mesh of `first` the number of its role, in the order of their first ranks; *first_of: per role its
 * first rank. Both are to be freed. Programs are compared in all that decides times and memory; which rows of a
 * tensor a rank has does not. Up to 256 ranks each one's program is looked at; of more, those along each axis of the
 * mesh and then samples, and if one of these is not what its place on the axes says, all of them. */
FO_CHECKED fo_status fo_sim_roles(const struct fo_program *first, int32_t **role_of, int32_t **first_of, int *roles);

#endif
