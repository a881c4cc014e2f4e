/* Inside src/trace: the readers of schedule logs. */
#ifndef FO_TRACE_SCHEDULE_INT_H
#define FO_TRACE_SCHEDULE_INT_H

#include "trace/schedule.h"

/* More of either is no log of a job that exists. */
enum { FO_SCHEDULE_MAX_STAGES = 4096, FO_SCHEDULE_MAX_CHUNKS = 1024 };

/* Does one of the first events of a timeline, as text, have a category of such logs? */
bool fo_schedule_begins(const char *text);
/* Each fills op, ops, step (number, length_ns), steps, stages, replicas, format; Primus span_ns too. */
FO_CHECKED fo_status fo_schedule_read_timeline(struct fo_schedule_log *s, const char *path);
FO_CHECKED fo_status fo_schedule_read_primus(struct fo_schedule_log *s, const char *folder);

#endif
