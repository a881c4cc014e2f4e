/* Every GPU operation of a set of traces with what the diagnosis knows of it, for other tools: as a table (CSV, RFC
 * 4180) or as slices (Trace Event Format, for Perfetto and Chrome).
 *
 * Times count in microseconds, three decimals, from the first operation of all, on rank 0's clock. A gap is time in
 * which the device did nothing; its cause is that with the greatest part (docs/metrics.md, "the ledger"). */
#ifndef FO_DIAGNOSE_OPERATIONS_H
#define FO_DIAGNOSE_OPERATIONS_H

#include "record/trace_events.h"
#include "trace/trace.h"

/* One line each, by rank, device and begin, under a line of names:
 *   rank, device, stream, step, begin_us, duration_us, kind, class, class_by_name, pass (forward, backward, recompute),
 * name, operator, collective, bytes, launch_us (begin of the call), gap_us (that it ends), idle_cause An empty field is
 * unknown. Texts stand in quotes, their control characters as \xNN; what a spreadsheet would take for a formula has an
 * apostrophe in front. *rows counts. */
FO_CHECKED fo_status fo_operations_csv(const struct fo_trace_set *s, const struct fo_trace_sink *sink, int64_t *rows);
/* A process per rank; in it a thread per stream with operations, one per device with its steps and one with its gaps by
 * cause. */
FO_CHECKED fo_status fo_operations_chrome(const struct fo_trace_set *s, const struct fo_trace_sink *sink,
					  int64_t *rows);

#endif
