/* Filling a trace: growing arrays, threads and devices by their ids, what a name says about a call. */
#include "trace/trace_int.h"

#include "base/mem.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

const char *const fo_copy_name[FO_COPY_COUNT] = {
	[FO_COPY_NONE] = "fill", [FO_COPY_H2D] = "h2d", [FO_COPY_D2H] = "d2h",
	[FO_COPY_D2D] = "d2d",   [FO_COPY_P2P] = "p2p", [FO_COPY_OTHER] = "other",
};

void fo_trace_build_init(struct fo_trace_build *b, const char *path)
{
	*b = (struct fo_trace_build){ .t = fo_xmalloc(sizeof(*b->t)), .thread_last = -1 };
	struct fo_trace *t = b->t;
	t->path = fo_xstrdup(path);
	t->rank = t->world_size = -1;
	t->backend = t->process_name = -1;
	t->defect.dropped_by_profiler = -1;
	t->texts = fo_trace_texts_new();
}

void fo_trace_build_drop(struct fo_trace_build *b)
{
	fo_trace_free(b->t);
	fo_index_fini(&b->threads);
	*b = (struct fo_trace_build){ 0 };
}

static void free_one(struct fo_trace *t)
{
#define FREE(name) free(t->name);
	FO_TRACE_ARRAYS(FREE)
	free(t->path);
	fo_trace_texts_free(t->texts);
	free(t);
}

void fo_trace_free(struct fo_trace *t)
{
	for (struct fo_trace *next; t; t = next) {
		next = t->next;
		free_one(t);
	}
}

int32_t fo_trace_intern(struct fo_trace_build *b, const char *text, size_t n)
{
	return fo_trace_texts_add(b->t->texts, text, n);
}

/* ---- arrays ---- */

#define ROOM(b, name) \
	fo_array_room(&(b)->t->name, &(b)->name##_cap, (size_t)(b)->t->name##_count, sizeof(*(b)->t->name))
/* Appends an element of these members and gives its address. */
#define ADD(b, name, ...)                                                                                \
	(ROOM(b, name), (b)->t->name[(b)->t->name##_count] = (__typeof__(*(b)->t->name)){ __VA_ARGS__ }, \
	 &(b)->t->name[(b)->t->name##_count++])

struct fo_gpu_op *fo_trace_add_gpu(struct fo_trace_build *b, int64_t begin_ns, int64_t end_ns)
{
	return ADD(b, gpu, .begin_ns = begin_ns, .end_ns = end_ns, .bytes = -1, .correlation = -1, .name = -1,
		   .launch = -1, .op = -1, .collective = -1, .device = -1, .external = -1);
}

struct fo_launch *fo_trace_add_launch(struct fo_trace_build *b, int64_t begin_ns, int64_t end_ns)
{
	return ADD(b, launch, .begin_ns = begin_ns, .end_ns = end_ns, .correlation = -1, .name = -1, .thread = -1,
		   .op = -1, .external = -1);
}

struct fo_host_op *fo_trace_add_op(struct fo_trace_build *b, int64_t begin_ns, int64_t end_ns)
{
	return ADD(b, op, .begin_ns = begin_ns, .end_ns = end_ns, .name = -1, .thread = -1, .parent = -1, .shapes = -1,
		   .types = -1, .external = -1, .sequence = -1, .collective = -1);
}

struct fo_collective *fo_trace_add_collective(struct fo_trace_build *b, int32_t *index)
{
	*index = (int32_t)b->t->collective_count;
	return ADD(b, collective, .name = -1, .group = -1, .members = -1, .purpose = -1, .dtype = -1, .group_size = -1,
		   .sequence = -1, .bytes = -1, .peer_from = -1, .peer_to = -1);
}

struct fo_gpu_wait *fo_trace_add_wait(struct fo_trace_build *b, int64_t begin_ns, int64_t end_ns)
{
	return ADD(b, wait, .begin_ns = begin_ns, .end_ns = end_ns, .kind = -1, .stream = -1, .on_stream = -1,
		   .device = -1);
}

struct fo_trace_step *fo_trace_add_step(struct fo_trace_build *b, int64_t number, int64_t begin_ns, int64_t end_ns)
{
	return ADD(b, step, .number = number, .begin_ns = begin_ns, .end_ns = end_ns, .thread = -1, .device = -1);
}

void fo_trace_add_overhead(struct fo_trace_build *b, int64_t begin_ns, int64_t end_ns)
{
	int64_t took, *sum = &b->t->defect.profiler_overhead_ns;
	if (end_ns <= begin_ns || __builtin_sub_overflow(end_ns, begin_ns, &took))
		return;
	*sum = fo_plus(*sum, took);
	ADD(b, overhead, begin_ns, end_ns);
}

/* ---- threads and devices ---- */

int32_t fo_trace_thread(struct fo_trace_build *b, int64_t pid, int64_t tid)
{
	struct fo_trace *t = b->t;
	if (b->thread_last >= 0 && t->thread[b->thread_last].tid == tid && t->thread[b->thread_last].pid == pid)
		return b->thread_last;
	b->thread_last = fo_index_add(&b->threads, pid, tid, (int32_t)t->thread_count);
	if (b->thread_last == t->thread_count)
		ADD(b, thread, pid, tid, -1);
	return b->thread_last;
}

int16_t fo_trace_device(struct fo_trace_build *b, int64_t id)
{
	struct fo_trace *t = b->t;
	for (int64_t i = 0; i < t->device_count; i++)
		if (t->device[i].id == id)
			return (int16_t)i;
	if (t->device_count >= 1024) /* a node has 16 at most; the search is linear */
		return -1;
	return (int16_t)(ADD(b, device, .id = id, .name = -1) - t->device);
}

/* ---- names ---- */

bool fo_trace_any_of(const char *name, const char *const *part)
{
	for (; *part; part++)
		if (strstr(name, *part))
			return true;
	return false;
}

/* CUDA's runtime and driver, HIP's: cudaLaunchKernelExC, cuLaunchKernel, hipExtModuleLaunchKernel, cudaMemcpy2DAsync,
 * hipMemcpyWithStream, cudaMemsetAsync, cudaGraphLaunch. Without "Async" a copy returns when it is done (CUDA runtime
 * API, "API synchronization behavior"). */
enum fo_call fo_trace_call(const char *name)
{
	static const char *const launch[] = { "LaunchKernel", "LaunchCooperative", "LaunchHostFunc", "LaunchGrid",
					      "cuLaunch",     "cudaLaunch",        "hipLaunch",      NULL };
	static const char *const sync[] = {
		"Synchronize",   "StreamWaitValue", "cudaFree",   "hipFree",       "cuMemFree",
		"cudaMalloc",    "hipMalloc",       "cuMemAlloc", "cudaHostAlloc", "cuMemHostAlloc",
		"hipHostMalloc", "hipHostFree",     NULL
	};
	if (strstr(name, "GraphLaunch"))
		return FO_CALL_LAUNCH_GRAPH;
	if (fo_trace_any_of(name, launch))
		return FO_CALL_LAUNCH;
	/* Copies to and from symbols, arrays, peers too; not cudaMemcpyToSymbol's address queries, which have no such
	 * names. */
	if (strstr(name, "Memcpy") || strstr(name, "Memset"))
		return strstr(name, "Async") || strstr(name, "Memset") || strstr(name, "Node")
			       ? FO_CALL_LAUNCH
			       : FO_CALL_LAUNCH_BLOCKING;
	if (fo_trace_any_of(name, sync) && !fo_text_ends(name, "Async"))
		return FO_CALL_SYNC;
	return FO_CALL_OTHER;
}

/* cudaStreamBeginCapture, cuStreamBeginCapture_v2, hipStreamBeginCapture */
bool fo_trace_begins_capture(const char *name) { return strstr(name, "StreamBeginCapture") != NULL; }
bool fo_trace_ends_capture(const char *name) { return strstr(name, "StreamEndCapture") != NULL; }

enum fo_host_kind fo_trace_host_kind(const char *name, enum fo_host_kind otherwise)
{
	static const char *const data[] = { "DataLoader", "dataloader",  "data_loader",  "next_batch",
					    "get_batch",  "dataloading", "data_loading", NULL };
	if (!strncmp(name, "nn.Module: ", 11))
		return FO_HOST_MODULE;
	return fo_trace_any_of(name, data) ? FO_HOST_DATA : otherwise;
}

bool fo_trace_step_number(const char *name, size_t n, int64_t *number)
{
	static const char prefix[] = "ProfilerStep#";
	if (n < sizeof(prefix) || memcmp(name, prefix, sizeof(prefix) - 1))
		return false;
	int64_t v = 0;
	for (size_t i = sizeof(prefix) - 1; i < n; i++) {
		if (name[i] < '0' || name[i] > '9' || v > INT64_MAX / 10 - 9)
			return false;
		v = v * 10 + (name[i] - '0');
	}
	*number = v;
	return true;
}
