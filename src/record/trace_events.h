/* Writes timelines as a trace for Perfetto and Chrome: JSON in Google's "Trace Event Format", to which chrome://tracing
 * refers (perfetto.dev/docs/getting-started/other-formats: the part that Perfetto reads).
 *
 * One process per timeline (measured, predicted) has one thread per lane with spans and one, "steps", with a slice from
 * the first to the last span of each step. Operations and waits are complete events ("X": begin and duration in
 * microseconds, to the nanosecond), with block, layer, micro-batch, phase, shapes and cost as arguments. Times count
 * from the first span of each timeline, so that two lie over each other. */
#ifndef FO_RECORD_TRACE_EVENTS_H
#define FO_RECORD_TRACE_EVENTS_H

#include "base/str.h"
#include "record/record.h"

struct fo_trace_source {
	const char *name; /* of the process: "measured: run" */
	const struct fo_program *program;
	const struct fo_unrolled *unrolled; /* of it */
	const struct fo_timeline *timeline;
	const struct fo_record_steps *steps; /* counters of MFU and tokens/s by step; NULL: none */
	bool beside; /* another rank of the run before it: its time 0 is the same, with its clock offset */
};

struct fo_trace_sink {
	void *ctx;
	fo_status (*write)(void *ctx, const void *bytes, size_t n);
};

/* Writes the trace of `n` timelines in pieces; stops at the sink's first error. Spans of instances that a program does
 * not have are left out. */
FO_CHECKED fo_status fo_trace_events_write(const struct fo_trace_source *source, int n,
					   const struct fo_trace_sink *sink);

#endif
