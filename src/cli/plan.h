/* flatout plan: what was found, for the files that print it. */
#ifndef FO_CLI_PLAN_H
#define FO_CLI_PLAN_H

#include "cli/cost.h"
#include "cli/predict_cluster.h"
#include "plan/changes.h"
#include "plan/file.h"
#include "plan/losses.h"
#include "plan/more.h"
#include "plan/plan.h"
#include "plan/programs.h"
#include "plan/settings.h"

#include <stdio.h>
#include <stdlib.h>

struct fo_cli_planned {
	struct fo_cli_asked *asked;
	struct fo_job_asked job;
	struct fo_plan_asked ask;
	struct fo_plan plan;
	struct fo_predict_certainty sure[FO_PLAN_SHOWN], named_sure;
	struct fo_plan_more more[FO_PLAN_MORES];
	/* So many devices do the batch faster than all of them, 0: no part does; and the division to take there. */
	double fewer;
	struct fo_plan_point fewer_point;
	struct fo_predict_certainty fewer_sure;
	int top;
	bool assumed_framework;  /* nobody named one */
	bool cost;               /* what is best is the cheapest token */
	bool fits_not;           /* no division does: plan has the smallest, and nothing else is filled in */
	double would_hold;       /* so many devices would; 0: no number of them */
	double would_hold_batch; /* of this batch */
	/* The division of a configuration that was given, and the changes from it. */
	bool has_from;
	bool from_fits_not; /* its memory, as flatout predict counts it */
	struct fo_predict_layout from;
	double from_seconds, compiled_seconds; /* as it is; compiled, NAN: it is or cannot be */
	struct fo_plan_change change[FO_PLAN_FIELDS];
	int changes;
	struct fo_cli_rates rates;
	bool pictures; /* a page is wanted: they take a second look at all divisions */
};
struct fo_cli_numbers;
/* Reads what a job is, its framework and what is fixed (fix: NAME=N,...; NULL): fills in p->job and p->ask. numbers:
 * the types and formats that are searched; NULL: the job's own. p->asked is given, and needs fo_cli_job_fini also after
 * an error. */
FO_CHECKED fo_status fo_cli_plan_read(const struct fo_cli_call *call, const struct fo_cli_job *given, const char *fix,
				      const struct fo_cli_numbers *numbers, struct fo_cli_planned *p);
/* The place is one of those shown: the first, and the one to take. */
bool fo_cli_planned_shows(const struct fo_cli_planned *p, int place);
void fo_cli_planned_doc(struct fo_doc *d, const struct fo_cli_planned *p);
/* The pictures, for a page alone; and what tokens cost with the division to take. */
void fo_cli_planned_pictures(struct fo_doc *d, const struct fo_cli_planned *p);
void fo_cli_planned_cost(struct fo_doc *d, const struct fo_cli_planned *p);
void fo_cli_planned_costs(const struct fo_cli_planned *p, struct fo_cli_costs *c);
/* The record that others read back; it points to `point`. */
void fo_cli_planned_file(const struct fo_cli_planned *p, struct fo_plan_file_point point[FO_PLAN_SHOWN],
			 struct fo_plan_file *out);
void fo_cli_planned_json(struct fo_json *j, const struct fo_cli_planned *p);

#endif
