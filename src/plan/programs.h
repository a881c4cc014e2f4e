/* The memory of Flatout's own divisions: the run file of a division is lowered by the executor's passes, and its
 * programs are planned (pass/planned.h), so that bytes are those of the run and no estimate. */
#ifndef FO_PLAN_PROGRAMS_H
#define FO_PLAN_PROGRAMS_H

#include "pass/planned.h"
#include "plan/plan.h"
#include "program/run.h"

struct fo_plan_memory {
	struct fo_planned fullest;   /* the rank that takes most */
	int64_t micro_batches, rows; /* of the job's program: what the run's choices came to; rows of one rank */
	int64_t operations, lowered; /* that were planned; micro-batches of the largest program that was lowered */
	const char *why;             /* why nothing is planned, part of a sentence, static; NULL: it is planned */
};
/* Takes some 0.1 s for each stage of a pipeline of a large model, and leaves no error. */
void fo_plan_memory_of_run(const struct fo_run *run, const struct fo_model *model, struct fo_plan_memory *out);
/* The same of the run file that fo_plan_settings writes for the division. */
void fo_plan_memory_of(const struct fo_plan_asked *asked, const struct fo_plan_point *p, const struct fo_model *model,
		       struct fo_plan_memory *out);

/* The plans of one job's divisions, for all searches of a command, whatever their machines are. */
struct fo_plan_programs;
struct fo_plan_programs *fo_plan_programs_new(void);
void fo_plan_programs_free(struct fo_plan_programs *x); /* NULL: nothing */
/* How much is known of a division: its program was planned; a search may plan it; it must fit by the most that it may
 * take, because the limit of operations is reached or no program can be planned. Safe from several threads as long as
 * no search plans. */
enum fo_plan_known { FO_PLAN_KNOWN, FO_PLAN_OPEN, FO_PLAN_BOUNDED };
enum fo_plan_known fo_plan_programs_know(const struct fo_plan_asked *asked, const struct fo_plan_point *p);
/* Does the point fit by its program, else by the most that it may take? Takes planned bytes into its step. */
bool fo_plan_programs_fit(const struct fo_plan_asked *asked, struct fo_plan_point *p);
/* Why the memory of a division of Flatout's is an estimate, a static part of a sentence; NULL: it is planned. */
const char *fo_plan_programs_why(const struct fo_plan_asked *asked, const struct fo_plan_point *p);

/* Puts planned bytes into a prediction. */
void fo_plan_memory_take(struct fo_predict_step *s, const struct fo_planned *p);

#endif
