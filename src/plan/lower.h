/* A division of a job as the programs that Flatout would run, and their step event by event: the independent proof of
 * the closed form (tests/unit/test_predict_lowered.c). */
#ifndef FO_PLAN_LOWER_H
#define FO_PLAN_LOWER_H

#include "plan/plan.h"
#include "program/program.h"

/* The mesh of a division, of rank 0: states that nobody shards are on replicas alone. */
void fo_plan_mesh_of(const struct fo_predict_layout *l, struct fo_mesh *out);
/* The lowering of rank 0. FO_EUNSUPPORTED: what no program of Flatout's has (experts, parts of a layer's forward again,
 * shared stages); FO_EARG: numbers that are none of a program. Whether the mesh is legal, fo_mesh_legal says. */
FO_CHECKED fo_status fo_plan_lowering(struct fo_lowering *out, const struct fo_predict_job *job,
				      const struct fo_model *model, const struct fo_predict_layout *l);

struct fo_plan_lowered {
	double step_s;    /* of the last rank, by what operations need of each other */
	double planned_s; /* the same with the waits that the memory plan's reuse of bytes adds: what runs */
	/* Means over ranks. Computing by what it is; communication as far as no computing hides it: waiting for a late
	 * rank is with the pipeline's bubble where there is one. They sum to the step, but for REST: what is idle. */
	double part[FO_PREDICT_PARTS];
	double ranks;
	int roles;
	int64_t events;
};
/* Lowers, unrolls and plans the program of each role, gives each operation the time that the closed form's rates have
 * for its FLOP, bytes and message, and simulates all ranks. */
FO_CHECKED fo_status fo_plan_lowered_of(struct fo_plan_lowered *out, const struct fo_predict_base *b,
					const struct fo_model *model, const struct fo_predict_layout *l);

#endif
