/* The parts of a report, one file each. */
#ifndef FO_REPORT_RUN_INT_H
#define FO_REPORT_RUN_INT_H

#include "report/run.h"

/* The machine over the steps [first, last], or outside them: means over time; of limited_s, joules and throttles sums;
 * NaN: not known. */
struct fo_state_use fo_machine_over(const struct fo_record *r, int64_t first, int64_t last, bool inside);
void fo_report_look_at_memory(struct fo_report *o); /* run_memory.c */
void fo_report_find_phases(struct fo_report *o);    /* run_phases.c; wants seconds and step_s */
void fo_report_find_gaps(struct fo_report *o);      /* run_phases.c */

#endif
