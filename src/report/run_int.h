/* The parts of a report, one file each. */
#ifndef FO_REPORT_RUN_INT_H
#define FO_REPORT_RUN_INT_H

#include "report/run.h"

/* The machine over the steps [first, last], or outside them: means over time; of limited_s, joules and throttles sums;
 * NaN: not known. */
struct fo_state_use fo_machine_over(const struct fo_record *r, int64_t first, int64_t last, bool inside);
void fo_report_look_at_memory(struct fo_report *o); /* run_memory.c */
void fo_report_find_phases(struct fo_report *o);    /* run_phases.c; wants seconds and step_s */
void fo_report_look_at_ranks(struct fo_report *o);  /* run_ranks.c */
/* What ranks waited for: a line of the answer; tables, on a page with a picture; fields of an open JSON object. */
void fo_report_say_ranks(const struct fo_report *o, struct fo_doc *d);
void fo_report_draw_ranks(const struct fo_report *o, struct fo_doc *d, bool page);
void fo_report_ranks_json(const struct fo_report *o, struct fo_json *j);
/* run_pipeline.c: a step of a pipeline as it ran, where all its stages left timelines; nothing, or null, else. */
void fo_report_say_pipeline(const struct fo_report *o, struct fo_doc *d); /* one line: its bubble, or not known */
void fo_report_draw_pipeline(const struct fo_report *o, struct fo_doc *d);
void fo_report_pipeline_json(const struct fo_report *o, struct fo_json *j);
/* Of fo_report_missing, the sentences on timelines of ranks: *at counts those before, and goes on. */
const char *fo_report_missing_rank(const struct fo_report *o, int i, int *at, char *text);
void fo_report_find_gaps(struct fo_report *o); /* run_phases.c */

#endif
