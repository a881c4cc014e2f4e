/* Timing on a machine that is not one's own: bursts of known work and spans between them (hw/quiet.h judges).
 * Calibration and the benchmarks of bench/ use it.
 *
 * A meter belongs to one number of threads: the caller's thread is thread 0 of the OpenMP team that it measures. Bursts
 * touch registers and 128 KiB of each core's caches, so what a span finds there is at most that much colder. */
#ifndef FO_KERNEL_MEASURE_H
#define FO_KERNEL_MEASURE_H

#include "base/err.h"
#include "hw/quiet.h"
#include "kernel/kernel.h"

struct fo_meter {
	const struct fo_kernel_set *set; /* whose register-only loop */
	int dtype, threads;
	int64_t rounds;         /* of the loop in a burst */
	struct fo_burst best;   /* of all bursts so far */
	struct fo_burst last;   /* the newest one: the burst in front of the next span */
	bool warm;              /* `last` was taken just now */
	int *waits, nwaits;     /* descriptors of each thread's scheduler statistics; -1: not readable */
	double *waited, *again; /* per thread, scratch */
	unsigned char *lines;   /* threads x 128 KiB */
};
/* Bursts run on the unit for dtype of `set` or of the next set below that has one (m->set); else FO_EUNSUPPORTED. */
FO_CHECKED fo_status fo_meter_init(struct fo_meter *m, const struct fo_kernel_set *set, int dtype, int threads);
void fo_meter_fini(struct fo_meter *m);
/* Looks up the team's threads again: needed after another number of threads ran, because the runtime makes new ones. */
void fo_meter_attach(struct fo_meter *m);
/* Takes a burst: m->last; m->best is raised. */
void fo_meter_burst(struct fo_meter *m);
/* Runs fn(arg) between two bursts and times it by the wall clock. The burst after one span is the burst before the
 * next, unless fo_meter_attach or fo_meter_idle came in between. */
void fo_meter_span(struct fo_meter *m, void (*fn)(void *arg), void *arg, struct fo_quiet_span *out);
static inline void fo_meter_idle(struct fo_meter *m) { m->warm = false; }

/* Repeats fn(arg), once to warm it and then at least `least` times and for at least `seconds`. Rates are FLOP/s of
 * `flop`; a ratio is a span's rate over the mean of its two register bursts: what slows both cancels out. */
struct fo_measured {
	struct fo_quiet_stats time;
	double ratio_median, ratio_best; /* of all spans */
	double quiet_ratio_median;       /* of the quiet ones; NaN without any */
	double burst_flop_s_median, burst_flop_s_best;
};
struct fo_measured fo_measure_work(struct fo_meter *m, void (*fn)(void *arg), void *arg, double flop, double seconds,
				   int least);

/* The register-only loop on all threads at once, n rounds each: FLOP over the time from the first start to the last
 * end. *share: of that time, the least processor time of a thread. */
double fo_measure_peak(const struct fo_kernel_set *set, int dtype, int threads, int64_t n, double *share);
/* Rounds of the register-only loop that take about this long on one thread. */
int64_t fo_measure_rounds(const struct fo_kernel_set *set, int dtype, int64_t ns);
/* Processor time of the calling thread. */
int64_t fo_thread_cpu_ns(void);

#endif
