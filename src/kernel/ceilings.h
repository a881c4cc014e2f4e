/* What this machine's kernels and memory reach: the rows of a machine profile (hw/profile.h), measured.
 *
 * Every row is visited once in each of several rounds, in a new order each time, so that a machine that slows down or warms up
 * does so for all alike. A visit runs the work once to warm it and then as often as its share of the time allows, each run
 * between two bursts (kernel/measure.h). Operands stay where the run before left them: in the caches where they fit. */
#ifndef FO_KERNEL_CEILINGS_H
#define FO_KERNEL_CEILINGS_H

#include "hw/profile.h"
#include "kernel/kernel.h"

/* Work that the caller brings: fn(arg) does `units` of it at once and the row is about one. */
struct fo_ceilings_extra {
	struct fo_limits_row row; /* kind, variant, dtype, shape, threads, flop and bytes of one unit */
	void (*fn)(void *arg);
	void *arg;
	double units;
};
struct fo_ceilings_options {
	enum fo_isa isa;
	int threads;      /* 1 thread and this many are measured; memory by powers of two between, too */
	double seconds;   /* in all, peaks included; the last visit may run over */
	bool quick;       /* a smaller grid of shapes */
	const struct fo_ceilings_extra *extra;
	int extras;
	void (*progress)(void *ctx, const char *what, double share); /* may be NULL; share of the time that is over: 0 to 1 */
	void *ctx;
};
struct fo_ceilings_result {
	int rows, left_out; /* rows measured; shapes that the time did not suffice for */
	int64_t spans, quiet;
	double seconds;
};
/* Measures peaks (fo_calibrate_peak: kept in the user's profile as always) and rows, and puts them into *m: a row of the same
 * kind, variant, dtype, shape and threads is replaced, all others of the same numbers of threads are dropped. */
FO_CHECKED fo_status fo_ceilings_measure(const struct fo_ceilings_options *o, struct fo_limits *m,
					 struct fo_ceilings_result *result);

#endif
