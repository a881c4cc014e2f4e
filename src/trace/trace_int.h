/* Inside src/trace: what readers fill and how a trace is finished. */
#ifndef FO_TRACE_TRACE_INT_H
#define FO_TRACE_TRACE_INT_H

#include "trace/trace.h"

/* An empty trace to fill; arrays grow through the add functions, which return the new element (valid until the next call). */
struct fo_trace_build {
	struct fo_trace *t;
	size_t gpu_cap, launch_cap, op_cap, thread_cap, collective_cap, wait_cap, step_cap, device_cap;
};
void fo_trace_build_init(struct fo_trace_build *b, const char *path);
struct fo_gpu_op *fo_trace_add_gpu(struct fo_trace_build *b);
struct fo_launch *fo_trace_add_launch(struct fo_trace_build *b);
struct fo_host_op *fo_trace_add_op(struct fo_trace_build *b);
struct fo_collective *fo_trace_add_collective(struct fo_trace_build *b, int32_t *index);
struct fo_gpu_wait *fo_trace_add_wait(struct fo_trace_build *b);
struct fo_trace_step *fo_trace_add_step(struct fo_trace_build *b);
int32_t fo_trace_thread(struct fo_trace_build *b, int64_t pid, int64_t tid); /* found or made */
int16_t fo_trace_device(struct fo_trace_build *b, int64_t id);               /* found or made */
int32_t fo_trace_intern(struct fo_trace_build *b, const char *text, size_t n);

/* Sorts everything, links kernels to launches (by correlation), launches to host operators (by thread and time), sets parents, backward
 * and recompute marks, classes by name and by operator or module, drops host operators that neither launch nor mark anything, counts
 * defects. The trace is the caller's; the build is empty afterwards. */
FO_CHECKED fo_status fo_trace_build_finish(struct fo_trace_build *b, struct fo_trace **out);
void fo_trace_build_drop(struct fo_trace_build *b);

FO_CHECKED fo_status fo_trace_read_kineto(struct fo_trace_build *b, const char *path);
FO_CHECKED fo_status fo_trace_read_nsys(struct fo_trace_build *b, const char *path);
FO_CHECKED fo_status fo_trace_read_own(struct fo_trace_build *b, const char *path);

#endif
