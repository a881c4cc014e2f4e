/* Inside src/trace: the readers of schedule logs. */
#ifndef FO_TRACE_SCHEDULE_INT_H
#define FO_TRACE_SCHEDULE_INT_H

#include "trace/schedule.h"

#include <stddef.h>
#include <zlib.h>

/* More of either is no log of a job that exists. */
enum { FO_SCHEDULE_MAX_STAGES = 4096, FO_SCHEDULE_MAX_CHUNKS = 1024 };

/* Packed or plain, regular files only: a pipe would wait for its writer. The caller gzcloses *f; FO_EIO names the path.
 */
FO_CHECKED fo_status fo_schedule_text_open(const char *path, gzFile *f);
/* Does one of the first events of a timeline, as text, have a category of such logs? */
bool fo_schedule_begins(const char *text);
int fo_schedule_kind_of(const char *name, size_t n); /* -1 unknown */

/* Each fills op, ops, step (number, length_ns), steps, stages, replicas, format; Primus span_ns too. */
FO_CHECKED fo_status fo_schedule_read_timeline(struct fo_schedule_log *s, const char *path);
FO_CHECKED fo_status fo_schedule_read_primus(struct fo_schedule_log *s, const char *folder);

#endif
