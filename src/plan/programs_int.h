/* Shared by programs.c, which plans programs, and known.c, which keeps the plans. */
#ifndef FO_PLAN_PROGRAMS_INT_H
#define FO_PLAN_PROGRAMS_INT_H

#include "plan/programs.h"

/* Operations that all searches of a command plan, and searches anew because what came out does not fit. */
enum { FO_PLAN_PROGRAMS_OPERATIONS = FO_PLANNED_OPERATIONS / 4, FO_PLAN_PROGRAMS_ROUNDS = 3 };

struct fo_plan_program {
	struct fo_plan_point point;
	double global_batch;
	struct fo_plan_memory memory;
};
struct fo_plan_programs {
	struct fo_plan_program *of;
	size_t n, cap;
	int64_t operations;
	int rounds;
};
/* Is one of these limits reached? */
bool fo_plan_programs_over(const struct fo_plan_programs *x);
/* NULL: it has not been planned. */
const struct fo_plan_program *fo_plan_programs_find(const struct fo_plan_asked *asked, const struct fo_plan_point *p);
void fo_plan_programs_put(struct fo_plan_programs *x, const struct fo_plan_program *program);

#endif
