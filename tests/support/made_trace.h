/* Traces as the PyTorch profiler writes them, made event by event: the whole way from the file to the findings is
 * tested, reader included. Times in us. hand_trace.h builds the same without the reader. */
#ifndef FO_TESTS_MADE_TRACE_H
#define FO_TESTS_MADE_TRACE_H

#include "base/str.h"
#include "diagnose/diagnose.h"

struct made {
	struct fo_str events, head; /* head: members of the outer object, each with a comma behind it */
	int64_t correlation;        /* of the last launch */
	int thread;                 /* of the next host events; 1 at first */
	int stream;                 /* of the next GPU operations; 7 at first */
	int device;                 /* 0 at first */
	const char *args; /* further members of the next event's "args", without a comma in front; then NULL again */
};

void made_begin(struct made *m);
/* One device as "deviceProperties" names it. */
void made_device(struct made *m, const char *name, int sms, int major, int minor, double memory_gib);
void made_rank(struct made *m, int rank, int world);
/* Any event: phase "X". */
void made_event(struct made *m, const char *category, const char *name, int pid, int tid, double begin,
		double duration);
/* "cpu_op" on the thread. */
void made_op(struct made *m, const char *name, double begin, double end);
/* "Input Dims" and "Input type" of the next operator, as the profiler writes them: "[[4, 8], [8, 2]]",
 * "[\"c10::BFloat16\", ...]". */
void made_shapes(struct made *m, const char *dims, const char *types);
/* "user_annotation": a loader, an optimizer, a step. */
void made_range(struct made *m, const char *name, double begin, double end);
void made_step(struct made *m, int number, double begin, double end); /* "ProfilerStep#number" */
/* "cuda_runtime". */
void made_call(struct made *m, const char *name, double begin, double end);
/* A kernel and its launch of 2 us at `launch`; launch < 0: without one. */
void made_kernel(struct made *m, const char *name, double launch, double begin, double end);
/* "Memcpy HtoD (Pinned -> Device)" and the like, launched by cudaMemcpyAsync. */
void made_copy(struct made *m, const char *name, int64_t bytes, double launch, double begin, double end);
/* The file's text is made and written; the builder is empty afterwards. */
void made_write(struct made *m, const char *path);

/* A trace from a file to its diagnosis; fails the test where that does. made_close frees both. */
struct made_diagnosis {
	struct fo_trace_set set;
	struct fo_diagnosis d;
};
void made_diagnose(struct made_diagnosis *out, const char *path,
		   const struct fo_diagnose_options *o); /* o NULL: none */
void made_close(struct made_diagnosis *v);
/* The builder's trace, diagnosed without options: written, read and removed again. */
void made_run(struct made *m, struct made_diagnosis *out);

#endif
