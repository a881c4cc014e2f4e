/* flatout export: what its two halves, runs and traces, share. */
#ifndef FO_CLI_EXPORT_H
#define FO_CLI_EXPORT_H

#include "base/str.h"
#include "record/trace_events.h"

/* Writes a file that appears when it is whole, compressed where its name ends in .gz: fill() into a sink. *bytes: of
 * the file as it lies there. */
FO_CHECKED fo_status fo_cli_export_file(const char *path,
					fo_status (*fill)(const struct fo_trace_sink *sink, void *ctx), void *ctx,
					int64_t *bytes);
/* FO_EIO where no file could be written, before anything is. */
FO_CHECKED fo_status fo_cli_export_place(const char *path);

/* Operations of traces as `chrome` and `csv` (paths; "": not). What was written becomes lines on standard output, or
 * keys of j. */
FO_CHECKED fo_status fo_cli_export_traces(const char *chrome, const char *csv, const char *const *traces, int n,
					  struct fo_json *j);

#endif
