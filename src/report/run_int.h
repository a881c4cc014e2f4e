/* The parts of a report, one file each. */
#ifndef FO_REPORT_RUN_INT_H
#define FO_REPORT_RUN_INT_H

#include "report/run.h"

void fo_report_look_at_memory(struct fo_report *o); /* run_memory.c */
void fo_report_find_phases(struct fo_report *o);    /* run_phases.c; wants seconds and step_s */
void fo_report_find_gaps(struct fo_report *o);      /* run_phases.c */

#endif
