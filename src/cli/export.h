/* flatout export: what its two halves, runs and traces, share. */
#ifndef FO_CLI_EXPORT_H
#define FO_CLI_EXPORT_H

#include "cli/cli.h"
#include "record/trace_events.h"

/* Writes a file that appears when it is whole, compressed where its name ends in .gz: fill() into a sink. *bytes: of
 * the file as it lies there. */
FO_CHECKED fo_status fo_cli_export_file(const char *path,
					fo_status (*fill)(const struct fo_trace_sink *sink, void *ctx), void *ctx,
					int64_t *bytes);
/* FO_EIO where no file could be written, before anything is. */
FO_CHECKED fo_status fo_cli_export_place(const char *path);

/* Writes the operations of the command's traces as `chrome` and `csv` (paths; "": not). */
FO_CHECKED fo_status fo_cli_export_traces(const struct fo_cli_call *call, const char *chrome, const char *csv);
/* Says that `path` was written: a line of text, or the member `key` of the JSON. */
void fo_cli_export_wrote(const struct fo_cli_call *call, const char *key, const char *path, const char *fmt, ...)
	FO_PRINTF(4, 5);

#endif
