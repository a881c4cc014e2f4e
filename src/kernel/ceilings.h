/* The rates that this machine's kernels and memory reach, measured: the rows of a machine profile (hw/profile.h).
 *
 * Every row is visited once in each of several rounds, in a new order each time, so that a machine that slows down or
 * warms up does so for all rows alike. A visit runs the work once to warm it and then as often as its share of the time
 * allows, each run between two bursts (kernel/measure.h).
 *
 * Matmuls and attention of general shapes find their operands where the run before left them: in the caches if they
 * fit. Operations of programs are rows with a signature (cost/cost.h): before each span their operands are fetched into
 * the caches or put out of them, as the row's `cold` says. */
#ifndef FO_KERNEL_CEILINGS_H
#define FO_KERNEL_CEILINGS_H

#include "hw/profile.h"
#include "kernel/kernel.h"

/* Work of the caller: fn(arg) does `units` of it at once, and the row describes one. */
struct fo_ceilings_extra {
	struct fo_limits_row row; /* kind, variant, dtype, shape, threads, flop and bytes of one unit */
	void (*fn)(void *arg);
	void *arg;
	double units;
};
struct fo_ceilings_options {
	enum fo_isa isa;
	int threads; /* measured with 1 and with so many threads; memory with the powers of two between, too */
	/* The whole time, peaks included; the last visit may run over. 0: a minute, or the least time of the rounds. */
	double seconds;
	bool quick; /* a smaller grid of shapes */
	/* If not NULL, the operations of this program are measured, with the caches as they find them in its step, and
	 * memory and extras only where the profile lacks them. pairs as in fo_op_cost: attention in documents too,
	 * unless < 0. */
	const struct fo_program *program;
	double pairs;
	const struct fo_ceilings_extra *extra;
	int extras;
	void (*progress)(void *ctx, const char *what, double share); /* may be NULL; share of the time: 0 to 1 */
	void *ctx;
};
struct fo_ceilings_result {
	int rows, left_out; /* rows measured; shapes that there was no time for */
	int kept; /* of the rows measured, how many had no quiet span, so that the quiet row before them stays */
	int64_t spans, quiet;
	double seconds;
};
/* Measures peaks (fo_calibrate_peak) and rows, and puts them into *m. They replace all rows of the same numbers of
 * threads; with a program only rows of the same work. An old row with quiet spans stays where the new one of the same
 * work has none (fo_limits_row_keep). */
FO_CHECKED fo_status fo_ceilings_measure(const struct fo_ceilings_options *o, struct fo_limits *m,
					 struct fo_ceilings_result *result);

#endif
