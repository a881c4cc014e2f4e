/* Traces built by hand, times in us: what a reader would have filled, finished as any other. For tests of what follows
 * the readers. */
#ifndef FO_TESTS_HAND_TRACE_H
#define FO_TESTS_HAND_TRACE_H

#include "diagnose/diagnose.h"
#include "trace/trace_int.h"

struct hand {
	struct fo_trace_build b;
	struct fo_trace *t; /* after hand_finish */
	int64_t correlation;
	int thread; /* of the next operators and launches; 1 at first */
};

void hand_begin(struct hand *h, int rank, int world);
void hand_device(struct hand *h, const char *name, int sms, int major, int minor, double memory_gib);
void hand_step(struct hand *h, int number, double begin, double end);
/* Returns its index, which hand_finish changes. */
struct fo_host_op *hand_op(struct hand *h, enum fo_host_kind kind, const char *name, double begin, double end);
/* A kernel with a launch of 2 us at `launch`; launch < 0: without one. */
struct fo_gpu_op *hand_kernel(struct hand *h, const char *name, double launch, double begin, double end);
struct fo_gpu_op *hand_copy(struct hand *h, enum fo_copy copy, bool pageable, double launch, double begin, double end);
int32_t hand_text(struct hand *h, const char *text);
void hand_finish(struct hand *h);
/* Steps 1 .. n of `length` each, with the annotation that a profiler writes. */
void hand_steps(struct hand *h, int n, double length);

/* The whole diagnosis of this one trace. */
void hand_diagnose(struct hand *h, struct fo_diagnosis *d, struct fo_trace_set *set,
		   const struct fo_diagnose_options *o);
void hand_done(struct hand *h, struct fo_diagnosis *d);

const struct fo_finding *hand_finding(const struct fo_diagnosis *d, const char *id); /* NULL: not there */

#endif
