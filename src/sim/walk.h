/* Inside src/sim: step programs as a fleet (fleet.h), and a fleet's step as that of a rank. plan/timeline.c makes
 * such a fleet of seconds by part; there are two builders because other frameworks' divisions have no program, and
 * a program's operations have no closed form. */
#ifndef FO_SIM_WALK_H
#define FO_SIM_WALK_H

#include "sim/fleet_int.h"
#include "sim/sim.h"

/* Roles with times filled in (s->seconds and s->hold_s of communication are what ranks do and what links take). */
struct fo_sim_job {
	const struct fo_sim_rank *role;
	int roles;
	const int32_t *role_of; /* per rank; NULL: there is one role */
	bool meets;             /* else there is one rank, and calls take their time */
	bool serial;            /* links carry one call after the other */
	bool apart;
	struct fo_fleet_crowd crowd;
	const struct fo_fleet_odd *odd;
	int32_t odds;
};
/* What it points to outlives the fleet: `job` and all in it. */
void fo_sim_fleet(struct fo_fleet *f, const struct fo_sim_job *job);
/* The axes of a mesh, and its groups by their numbers (enum fo_group). */
void fo_sim_mesh(struct fo_fleet *f, const struct fo_mesh *m);
/* Fills in *s, which has the times of role r, from what its class did. */
void fo_sim_take(struct fo_sim *s, const struct fo_sim_rank *r, const struct fo_fleet_run *run, int32_t class);

#endif
