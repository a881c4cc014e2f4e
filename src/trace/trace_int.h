/* Inside src/trace: what readers fill and how a trace is finished. */
#ifndef FO_TRACE_TRACE_INT_H
#define FO_TRACE_TRACE_INT_H

#include "trace/trace.h"

#include "base/index.h"

/* X(name) for what a trace has as an array `name` of `name_count`. All but the last three have begin_ns and end_ns. */
#define FO_TRACE_EVENTS(X) \
	X(gpu)             \
	X(launch)          \
	X(op)
#define FO_TRACE_SPANS(X)          \
	FO_TRACE_EVENTS(X) X(wait) \
	X(overhead)                \
	X(step)
#define FO_TRACE_ARRAYS(X)          \
	FO_TRACE_SPANS(X) X(thread) \
	X(collective)               \
	X(device)

/* An empty trace to fill; arrays grow through the add functions, which return the new element (valid until the next
 * call): zeroed, but every index, id and unknown count is -1. Indices that the finish finds (launch, op, parent) need
 * not be set. */
struct fo_trace_build {
	struct fo_trace *t;
#define FO_TRACE_CAP(name) size_t name##_cap;
	FO_TRACE_ARRAYS(FO_TRACE_CAP)
	struct fo_index threads; /* (pid, tid) */
	int32_t thread_last;     /* found last: most events come in runs of one thread */
};
void fo_trace_build_init(struct fo_trace_build *b, const char *path);
struct fo_gpu_op *fo_trace_add_gpu(struct fo_trace_build *b, int64_t begin_ns, int64_t end_ns);
/* Any call of the runtime or driver: the finish tells by name and by the correlations of GPU operations whether it
 * launched (launch[]), made the host wait or was neither (op[], FO_HOST_SYNC and FO_HOST_CALL). */
struct fo_launch *fo_trace_add_launch(struct fo_trace_build *b, int64_t begin_ns, int64_t end_ns);
struct fo_host_op *fo_trace_add_op(struct fo_trace_build *b, int64_t begin_ns, int64_t end_ns);
struct fo_collective *fo_trace_add_collective(struct fo_trace_build *b, int32_t *index);
struct fo_gpu_wait *fo_trace_add_wait(struct fo_trace_build *b, int64_t begin_ns, int64_t end_ns);
void fo_trace_add_overhead(struct fo_trace_build *b, int64_t begin_ns, int64_t end_ns); /* and to the defects' sum */
struct fo_trace_step *fo_trace_add_step(struct fo_trace_build *b, int64_t number, int64_t begin_ns, int64_t end_ns);
int32_t fo_trace_thread(struct fo_trace_build *b, int64_t pid, int64_t tid); /* found or made */
int16_t fo_trace_device(struct fo_trace_build *b, int64_t id);               /* found or made; -1: more than 32767 */
/* The same text has the same id. A NUL inside becomes a space. */
int32_t fo_trace_intern(struct fo_trace_build *b, const char *text, size_t n);

/* doubled.c: keeps one of each event that is there twice, before anything is sorted or linked; counts the others. */
void fo_trace_drop_doubled(struct fo_trace *t);

/* Times beyond this (the year 2116 as Unix time) are cut to it: differences of two never overflow. */
#define FO_TRACE_TIME_MAX ((int64_t)1 << 62)
#define FO_TRACE_TIME_MIN (-((int64_t)1 << 61))

/* The kinds of calls of the runtime or driver, by name ("cudaLaunchKernel", "hipMemcpyWithStream", "cuLaunchKernelEx").
 */
enum fo_call {
	FO_CALL_OTHER,
	FO_CALL_LAUNCH,
	FO_CALL_LAUNCH_BLOCKING, /* puts work on the GPU and returns when it is done: cudaMemcpy */
	FO_CALL_LAUNCH_GRAPH,
	FO_CALL_SYNC, /* waits for the GPU, or frees or allocates, which may */
};
enum fo_call fo_trace_call(const char *name);
/* FO_HOST_DATA for the data loader's names, FO_HOST_MODULE for modules' frames, else `otherwise`. */
enum fo_host_kind fo_trace_host_kind(const char *name, enum fo_host_kind otherwise);
/* Does the name hold any of these words? The list ends with NULL. */
bool fo_trace_any_of(const char *name, const char *const *part);
/* "ProfilerStep#12": true and *number = 12. */
bool fo_trace_step_number(const char *name, size_t n, int64_t *number);

/* Sorts everything, links kernels to launches (by correlation), launches to host operators (by thread and time), sets
 * parents, classes by name, collectives of the operators around their launches, drops host operators that lie in
 * another and neither launch nor mark anything, counts defects; then fo_trace_attribute(). The trace is the caller's;
 * the build is empty afterwards, also on failure. */
FO_CHECKED fo_status fo_trace_build_finish(struct fo_trace_build *b, struct fo_trace **out);
void fo_trace_build_drop(struct fo_trace_build *b);

/* Correlations that mend.c makes begin here, above all that a profiler gives. */
#define FO_MADE_CORRELATION ((int64_t)1 << 61)
/* mend.c: what some profilers leave out. Launches that no correlation ties to their GPU operations are tied by the
 * number of the operator around both; where no call was recorded the operator itself launched. GPU operations without a
 * launch (launch < 0) alone are touched, and calls that launched nothing else. True: correlations changed or launches
 * came, and the links are to be made anew. */
bool fo_trace_link_by_operator(struct fo_trace_build *b);
/* The same by arrows from the host's thread to the GPU's stream ("ac2g"). */
struct fo_trace_arrow {
	int64_t id, at_ns;
	int32_t thread; /* of its begin; -1: this is its end */
	int32_t stream; /* of its end */
};
void fo_trace_link_by_arrow(struct fo_trace_build *b, struct fo_trace_arrow *v, size_t n);
/* Devices are named where the profiler numbers them otherwise than their work (ROCm). Called when devices are sorted.
 */
void fo_trace_name_devices(struct fo_trace *t);

/* attribute.c: backward and recompute marks, classes by operator or module, on a trace whose arrays are sorted and
 * linked. */
void fo_trace_attribute(struct fo_trace *t);
/* context.c: what the kernels beside it say of a softmax or a gather; after fo_trace_attribute. */
void fo_trace_place(struct fo_trace *t);

/* texts.c: distinct texts by number. */
struct fo_trace_texts *fo_trace_texts_new(void);
void fo_trace_texts_free(struct fo_trace_texts *x);
int32_t fo_trace_texts_add(struct fo_trace_texts *x, const char *text, size_t n);
int32_t fo_trace_texts_count(const struct fo_trace_texts *x);

FO_CHECKED fo_status fo_trace_read_kineto(struct fo_trace_build *b, const char *path);
/* b becomes the first process's; the others, finished, hang on its trace (`next`). */
FO_CHECKED fo_status fo_trace_read_nsys(struct fo_trace_build *b, const char *path);
FO_CHECKED fo_status fo_trace_read_own(struct fo_trace_build *b, const char *path);

#endif
