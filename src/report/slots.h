/* Slots of pipelines as pictures: of a schedule that was walked through, and of logs of what ran. */
#ifndef FO_REPORT_SLOTS_H
#define FO_REPORT_SLOTS_H

#include "draw/doc.h"
#include "program/schedule.h"
#include "trace/schedule.h"

/* The picture of a plan and the walk through it, with begin and end in turns. All memory is the document's. */
void fo_slots_of_walk(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_pp_plan *plan,
		      const struct fo_pp_walk *w);
/* One step of one replica of a log, from the step's start: passes, collectives, optimizer, pauses. False: the log has
 * none there. */
bool fo_slots_of_log(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_schedule_log *s, int64_t step,
		     int32_t replica);

#endif
