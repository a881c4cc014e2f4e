/* libcuda.so.1 of the tests: the driver's functions that the program uses, on memory and queues of our own. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "cuda/soft_cupti.h"
#include "cuda/soft_int.h"
#include "kernel/cuda/kernels.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	STREAM = 0x5712ea4d,
	EVENT = 0xe7e274a1,
	GRAPH = 0x67a94001,
	EXEC = 0xe8ec0002,
	MULTIPROCESSORS = 4,       /* few: kernels that stride over blocks do it at small shapes */
	SHARED_PER_BLOCK = 232448, /* of compute capability 9.0, as an H100 reports */
	SHARED_WITHOUT_ASKING = 48 << 10,
	/* What kernels that take dynamic shared memory have of their own beside it counts in both limits. Host
	 * compilers do not tell how much that is: more than ptxas tells of any of them (norm_fp8_bf16, 1,152 bytes). */
	SHARED_STATIC = 2 << 10,
	L2_BYTES = 1 << 20,
	REGISTERS = 65536,
	CLOCK_KHZ = 1000000,
	GRID_YZ_MOST = 65535
};

static bool initialised;
static int devices = 1;
static char contexts[SOFT_DEVICES_MOST]; /* of which only addresses matter */
static _Thread_local void *context;
static _Thread_local int capturing_here; /* captures that this thread began in a mode other than relaxed */
static struct soft_stream *default_stream;
static struct soft_capture *captures[64]; /* under way */

#define KERNEL(name, args) extern const struct fo_simt_kernel fo_simt_kernel_##name;
FO_CUDA_KERNEL_LIST(KERNEL)
#undef KERNEL
static struct function {
	const struct fo_simt_kernel *kernel;
	const char *name;
	int shared_most;
} functions[] = {
#define KERNEL(name, args) { &fo_simt_kernel_##name, #name, SHARED_WITHOUT_ASKING - SHARED_STATIC },
	FO_CUDA_KERNEL_LIST(KERNEL)
#undef KERNEL
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Every function of the driver begins and ends here: one thread at a time, and the device was opened. */
static CUresult enter(void)
{
	pthread_mutex_lock(&soft_lock);
	return !initialised ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}
int soft_device(void) { return context ? (int)((char *)context - contexts) : 0; }
static CUresult enter_context(void)
{
	CUresult r = enter();
	return r != CUDA_SUCCESS ? r : context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
static CUresult leave(CUresult r)
{
	pthread_mutex_unlock(&soft_lock);
	return r;
}
#define ENTER                               \
	CUresult entered = enter_context(); \
	if (entered != CUDA_SUCCESS)        \
	return leave(entered)

int fo_software_device(void) { return 1; }

void fo_software_counters(struct fo_soft_counters *out, bool reset)
{
	pthread_mutex_lock(&soft_lock);
	*out = soft_count;
	if (reset)
		soft_count = (struct fo_soft_counters){ .live_bytes = soft_count.live_bytes,
							.peak_bytes = soft_count.live_bytes,
							.host_bytes = soft_count.host_bytes };
	pthread_mutex_unlock(&soft_lock);
}

bool fo_software_holds(const void *p, size_t bytes)
{
	pthread_mutex_lock(&soft_lock);
	bool yes = soft_where(p, bytes) == SOFT_DEVICE;
	pthread_mutex_unlock(&soft_lock);
	return yes;
}

/* ---- the driver, devices, contexts ---- */

CUresult cuInit(unsigned flags)
{
	const char *n = getenv("FLATOUT_SOFT_DEVICES");
	pthread_mutex_lock(&soft_lock);
	initialised = true;
	devices = n && *n ? atoi(n) : 1;
	if (devices < 0 || devices > (int)sizeof contexts)
		devices = 1;
	return leave(flags ? CUDA_ERROR_INVALID_VALUE : devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
}
CUresult cuDriverGetVersion(int *v)
{
	*v = CUDA_VERSION;
	return CUDA_SUCCESS;
}

static const struct {
	CUresult r;
	const char *name, *text;
} words[] = {
#define WORD(name, text)          \
	{                         \
		name, #name, text \
	}
	WORD(CUDA_SUCCESS, "no error"),
	WORD(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
	WORD(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
	WORD(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
	WORD(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
	WORD(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
	WORD(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
	WORD(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
	WORD(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
	WORD(CUDA_ERROR_NOT_READY, "device not ready"),
	WORD(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
	WORD(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
	WORD(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
	WORD(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
	WORD(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
	WORD(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
	WORD(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
	WORD(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
	WORD(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
	WORD(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
	WORD(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
	WORD(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
	     "attempt to terminate a thread-local capture sequence from another thread"),
#undef WORD
};
static const char *word(CUresult r, bool name)
{
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (words[i].r == r)
			return name ? words[i].name : words[i].text;
	return name ? "CUDA_ERROR_UNKNOWN" : "unknown error";
}
CUresult cuGetErrorString(CUresult r, const char **text)
{
	*text = word(r, false);
	return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult r, const char **text)
{
	*text = word(r, true);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n)
{
	CUresult r = enter();
	*n = devices;
	return leave(r);
}
CUresult cuDeviceGet(CUdevice *dev, int index)
{
	CUresult r = enter();
	*dev = index;
	return leave(r != CUDA_SUCCESS ? r : index < 0 || index >= devices ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
}
CUresult cuDeviceGetName(char *name, int size, CUdevice dev)
{
	(void)dev;
	snprintf(name, (size_t)size, "software CUDA device");
	return leave(enter());
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
	(void)dev;
	*bytes = soft_total();
	return leave(enter());
}
CUresult cuDeviceGetUuid(CUuuid *id, CUdevice dev)
{
	memset(id, 0, sizeof *id);
	id->bytes[15] = (char)(dev + 1);
	return leave(enter());
}
CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice dev)
{
	snprintf(text, (size_t)size, "0000:%02x:00.0", (unsigned)dev);
	return leave(enter());
}
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice dev)
{
	switch (a) {
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *v = dev; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = 9; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = 0; break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = MULTIPROCESSORS; break;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *v = CLOCK_KHZ; break;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *v = L2_BYTES; break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *v = SHARED_PER_BLOCK; break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *v = SHARED_WITHOUT_ASKING; break;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *v = FO_SIMT_WARP; break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *v = FO_SIMT_THREADS; break;
	default: *v = 0; break;
	}
	return leave(enter());
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice dev)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && (dev < 0 || dev >= devices))
		r = CUDA_ERROR_INVALID_DEVICE;
	if (r == CUDA_SUCCESS)
		*c = (CUcontext)(void *)&contexts[dev];
	return leave(r);
}
/* What is still under way ends first, as a context's end has it. */
CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && (dev < 0 || dev >= devices))
		r = CUDA_ERROR_INVALID_DEVICE;
	if (r == CUDA_SUCCESS)
		soft_drain_device(dev);
	return leave(r);
}
CUresult cuCtxSetCurrent(CUcontext c)
{
	CUresult r = enter();
	context = c;
	return leave(r);
}
CUresult cuCtxGetCurrent(CUcontext *c)
{
	*c = context;
	return leave(enter());
}

/* ---- captures ---- */

/* What a thread with a capture under way may not do: the capture is lost. */
static bool forbidden(void)
{
	bool mine = false;
	for (size_t i = 0; capturing_here && i < sizeof captures / sizeof *captures; i++)
		if (captures[i] && pthread_equal(captures[i]->thread, pthread_self()) &&
		    captures[i]->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
			captures[i]->invalid = mine = true;
	return mine;
}

static struct soft_stream *stream_of(CUstream s)
{
	struct soft_stream *own = (struct soft_stream *)(void *)s;
	if (!own) {
		if (!default_stream) {
			default_stream = soft_stream_new();
			default_stream->magic = STREAM;
		}
		return default_stream;
	}
	if (own->magic != STREAM)
		return NULL;
	/* Of a capture that was ended in another stream. */
	if (own->capture && own->capture->ended)
		own->capture = NULL;
	return own;
}
static struct soft_event *event_of(CUevent e)
{
	struct soft_event *own = (struct soft_event *)(void *)e;
	return own && own->magic == EVENT ? own : NULL;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	ENTER;
	struct soft_stream *s = stream_of(stream);
	size_t slot = 0;
	if (!s)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (!stream)
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	while (slot < sizeof captures / sizeof *captures && captures[slot])
		slot++;
	if (s->capture || slot == sizeof captures / sizeof *captures)
		return leave(CUDA_ERROR_ILLEGAL_STATE);
	struct soft_capture *c = calloc(1, sizeof *c);
	struct soft_graph *g = calloc(1, sizeof *g);
	if (!c || !g)
		abort();
	*g = (struct soft_graph){ .magic = GRAPH, .refs = 1 };
	*c = (struct soft_capture){ .graph = g, .origin = s, .thread = pthread_self(), .mode = mode };
	s->capture = captures[slot] = c;
	soft_set_front(&s->front, &s->fronts, NULL, 0);
	capturing_here += mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	soft_count.captures++;
	return leave(CUDA_SUCCESS);
}

/* Every node leads to the origin's last ones. */
static bool joined(const struct soft_graph *g, const struct soft_stream *origin)
{
	bool all = true, *leads = calloc((size_t)g->nodes + 1, sizeof *leads);
	if (!leads)
		abort();
	for (int i = 0; i < origin->fronts; i++)
		leads[origin->front[i]] = true;
	for (int i = g->nodes - 1; i >= 0; i--) {
		all &= leads[i];
		for (int k = 0; k < g->node[i].afters; k++)
			leads[g->node[i].after[k]] |= leads[i];
	}
	free(leads);
	return all;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
	ENTER;
	struct soft_stream *s = stream_of(stream);
	*out = NULL;
	if (!s)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (!s->capture)
		return leave(CUDA_ERROR_ILLEGAL_STATE);
	struct soft_capture *c = s->capture;
	if (c->origin != s)
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
		return leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	CUresult r = c->invalid             ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
		     : !joined(c->graph, s) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
					    : CUDA_SUCCESS;
	for (size_t i = 0; i < sizeof captures / sizeof *captures; i++)
		if (captures[i] == c)
			captures[i] = NULL;
	capturing_here -= c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	c->ended = true; /* events still point to it: it is kept */
	s->capture = NULL;
	if (r == CUDA_SUCCESS)
		*out = (CUgraph)(void *)c->graph;
	else
		soft_graph_drop(c->graph);
	c->graph = NULL;
	return leave(r);
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	ENTER;
	struct soft_stream *s = stream_of(stream);
	if (!s)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	*status = !s->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
		  : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					: CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return leave(CUDA_SUCCESS);
}

static struct soft_graph *graph_of(void *g, uint32_t magic)
{
	struct soft_graph *own = g;
	return own && own->magic == magic ? own : NULL;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	(void)flags;
	ENTER;
	struct soft_graph *g = graph_of(graph, GRAPH), *x;
	if (!g)
		return leave(CUDA_ERROR_INVALID_VALUE);
	x = calloc(1, sizeof *x);
	struct soft_node *node = calloc((size_t)g->nodes + 1, sizeof *node);
	if (!x || !node)
		abort();
	*x = (struct soft_graph){ .magic = EXEC, .refs = 1, .node = node, .nodes = g->nodes };
	for (int i = 0; i < g->nodes; i++) {
		struct soft_work *w = &node[i].work;
		*w = g->node[i].work;
		if (w->args) {
			size_t bytes = (w->bytes + 63) / 64 * 64;
			void *args = aligned_alloc(64, bytes ? bytes : 64);
			if (!args)
				abort();
			memcpy(args, w->args, w->bytes);
			w->args = args;
		}
		soft_set_front(&node[i].after, &node[i].afters, g->node[i].after, g->node[i].afters);
	}
	*out = (CUgraphExec)(void *)x;
	return leave(CUDA_SUCCESS);
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	ENTER;
	struct soft_graph *g = graph_of(graph, GRAPH);
	if (!g)
		return leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; nodes && i < *n; i++)
		nodes[i] = (CUgraphNode)(void *)(i < (size_t)g->nodes ? &g->node[i] : NULL);
	if (!nodes || *n > (size_t)g->nodes)
		*n = (size_t)g->nodes;
	return leave(CUDA_SUCCESS);
}
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	ENTER;
	switch (((struct soft_node *)(void *)node)->work.kind) {
	case SOFT_COPY: *type = CU_GRAPH_NODE_TYPE_MEMCPY; break;
	case SOFT_FILL: *type = CU_GRAPH_NODE_TYPE_MEMSET; break;
	case SOFT_RECORD: *type = CU_GRAPH_NODE_TYPE_EVENT_RECORD; break;
	case SOFT_NOTHING: *type = CU_GRAPH_NODE_TYPE_EMPTY; break;
	default: *type = CU_GRAPH_NODE_TYPE_KERNEL; break;
	}
	return leave(CUDA_SUCCESS);
}
CUresult cuGraphDestroy(CUgraph graph)
{
	ENTER;
	struct soft_graph *g = graph_of(graph, GRAPH);
	if (!g)
		return leave(CUDA_ERROR_INVALID_VALUE);
	soft_graph_drop(g);
	return leave(CUDA_SUCCESS);
}
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	ENTER;
	struct soft_graph *g = graph_of(exec, EXEC);
	if (!g)
		return leave(CUDA_ERROR_INVALID_VALUE);
	g->magic = 0;
	soft_graph_drop(g);
	return leave(CUDA_SUCCESS);
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	ENTER;
	struct soft_graph *g = graph_of(exec, EXEC);
	struct soft_stream *s = stream_of(stream);
	return leave(!g ? CUDA_ERROR_INVALID_VALUE : !s ? CUDA_ERROR_INVALID_HANDLE : soft_put_graph(s, g));
}
CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	ENTER;
	return leave(!graph_of(exec, EXEC) ? CUDA_ERROR_INVALID_VALUE
		     : !stream_of(stream)  ? CUDA_ERROR_INVALID_HANDLE
					   : CUDA_SUCCESS);
}

/* ---- modules and launches ---- */

CUresult cuModuleLoadData(CUmodule *m, const void *image)
{
	ENTER;
	if (forbidden())
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	*m = (CUmodule)(void *)functions;
	return leave(image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
CUresult cuModuleUnload(CUmodule m)
{
	ENTER;
	return leave((void *)m == (void *)functions ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
	ENTER;
	if ((void *)m != (void *)functions)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	for (size_t i = 0; i < FUNCTIONS; i++)
		if (!strcmp(functions[i].name, name)) {
			*f = (CUfunction)(void *)&functions[i];
			return leave(CUDA_SUCCESS);
		}
	return leave(CUDA_ERROR_NOT_FOUND);
}
static struct function *function_of(CUfunction f)
{
	struct function *own = (struct function *)(void *)f;
	return own >= functions && own < functions + FUNCTIONS ? own : NULL;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v)
{
	ENTER;
	struct function *own = function_of(f);
	if (!own)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		if (v < 0 || v > SHARED_PER_BLOCK - SHARED_STATIC)
			return leave(CUDA_ERROR_INVALID_VALUE);
		own->shared_most = v;
	}
	return leave(CUDA_SUCCESS);
}
CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f)
{
	ENTER;
	const struct function *own = function_of(f);
	if (!own)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	*v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK           ? own->kernel->threads
	     : a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? own->shared_most
								    : 0;
	return leave(CUDA_SUCCESS);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int threads, size_t shared)
{
	(void)shared;
	ENTER;
	*n = threads > 0 ? 2 * FO_SIMT_THREADS / threads : 0;
	return leave(function_of(f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

static void *args_new(const void *from, size_t bytes)
{
	void *args = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
	if (!args)
		abort();
	memcpy(args, from, bytes);
	return args;
}

/* Pointers among the arguments that cannot be right. */
static bool bad_argument(const struct function *f, const void *args)
{
	for (size_t at = 0; at + 8 <= f->kernel->args_bytes; at += 8) {
		uint64_t value;
		memcpy(&value, (const char *)args + at, 8);
		const char *what = soft_not_a_device_address(value);
		if (!what)
			continue;
		soft_say("kernel %s: byte %zu of its arguments is the address %#llx of %s", f->name, at,
			 (unsigned long long)value, what);
		return true;
	}
	return false;
}

/* The software libcupti, once somebody loaded it, learns of each kernel that is launched by itself. Its times are made
 * up: a kernel runs later, at no moment of its own. Nodes of graphs it is not told of. */
static void tell_cupti(const char *name)
{
#ifdef SOFT_CUPTI
	enum { MADE_UP_NS = 1000 };
	void *library = dlopen(SOFT_CUPTI, RTLD_NOW | RTLD_NOLOAD);
	void (*kernel)(const char *, int64_t, int64_t, uint64_t);
	if (!library)
		return;
	*(void **)&kernel = dlsym(library, "fo_software_cupti_kernel");
	if (kernel)
		kernel(name, fo_now_ns(), fo_now_ns() + MADE_UP_NS, 0);
	dlclose(library);
#else
	(void)name;
#endif
}

CUresult cuLaunchKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			unsigned shared, CUstream stream, void **params, void **extra)
{
	ENTER;
	struct function *f = function_of(fn);
	struct soft_stream *s = stream_of(stream);
	if (!f || !s)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (by != 1 || bz != 1)
		return leave(CUDA_ERROR_NOT_SUPPORTED); /* blocks of the program have one dimension */
	if (extra || !params || !params[0] || !gx || !gy || !gz || gx > INT32_MAX || gy > GRID_YZ_MOST ||
	    gz > GRID_YZ_MOST || !bx || bx > FO_SIMT_THREADS || shared > (unsigned)f->shared_most) {
		soft_say("kernel %s cannot be launched with a grid of %u,%u,%u, %u threads, %u bytes of shared memory "
			 "(at most %d)",
			 f->name, gx, gy, gz, bx, shared, f->shared_most);
		return leave(CUDA_ERROR_INVALID_VALUE);
	}
	if (bx > (unsigned)f->kernel->threads) {
		soft_say("kernel %s is launched with %u threads and bounds of %d", f->name, bx, f->kernel->threads);
		return leave(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	}
	if (bad_argument(f, params[0]))
		return leave(CUDA_ERROR_ILLEGAL_ADDRESS);
	if (!s->capture)
		tell_cupti(f->name);
	return leave(soft_put(s, (struct soft_work){ .kind = SOFT_LAUNCH,
						     .name = f->name,
						     .kernel = f->kernel,
						     .grid = { gx, gy, gz },
						     .threads = bx,
						     .shared_bytes = shared,
						     .args = args_new(params[0], f->kernel->args_bytes),
						     .bytes = f->kernel->args_bytes }));
}

int fo_software_enqueue_met(void *stream, void (*begun)(void *args), bool (*met)(void *args), void (*run)(void *args),
			    const void *args, size_t bytes, const char *name)
{
	ENTER;
	struct soft_stream *s = stream_of(stream);
	if (!s)
		return (int)leave(CUDA_ERROR_INVALID_HANDLE);
	return (int)leave(soft_put(s, (struct soft_work){ .kind = SOFT_CALL,
							  .name = name,
							  .begun = begun,
							  .met = met,
							  .run = run,
							  .args = args_new(args, bytes),
							  .bytes = bytes }));
}
int fo_software_enqueue(void *stream, void (*run)(void *args), const void *args, size_t bytes, const char *name)
{
	return fo_software_enqueue_met(stream, NULL, NULL, run, args, bytes, name);
}

/* ---- memory ---- */

CUresult cuMemAlloc(CUdeviceptr *p, size_t bytes)
{
	ENTER;
	return leave(forbidden() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : soft_alloc(p, bytes));
}
/* Waits for all work first, as the driver's does: somebody may still use it. */
CUresult cuMemFree(CUdeviceptr p)
{
	ENTER;
	if (forbidden())
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	soft_drain_device(soft_device());
	return leave(soft_free(p));
}
CUresult cuMemAllocHost(void **p, size_t bytes)
{
	ENTER;
	return leave(forbidden() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : soft_host_alloc(p, bytes));
}
CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
	(void)flags;
	return cuMemAllocHost(p, bytes);
}
CUresult cuMemFreeHost(void *p)
{
	ENTER;
	if (forbidden())
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	soft_drain_device(soft_device());
	return leave(soft_host_free(p));
}
CUresult cuMemHostRegister(void *p, size_t bytes, unsigned flags)
{
	(void)flags;
	ENTER;
	return leave(soft_host_register(p, bytes, true));
}
CUresult cuMemHostUnregister(void *p)
{
	ENTER;
	soft_drain_device(soft_device());
	return leave(soft_host_register(p, 0, false));
}
CUresult cuMemGetInfo(size_t *have, size_t *all)
{
	ENTER;
	*all = soft_total();
	*have = *all - soft_taken();
	return leave(CUDA_SUCCESS);
}

static CUresult copy(void *to, const void *from, size_t bytes, CUstream stream, enum soft_where to_in,
		     enum soft_where from_in)
{
	struct soft_stream *s = stream_of(stream);
	const char *const name[] = { "nowhere", "device memory", "page-locked memory" };
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!bytes)
		return CUDA_SUCCESS;
	if (soft_where(to, bytes) != to_in || soft_where(from, bytes) != from_in) {
		soft_say("a copy of %zu bytes from %s to %s: it goes from %s to %s", bytes, name[from_in], name[to_in],
			 name[soft_where(from, bytes)], name[soft_where(to, bytes)]);
		return CUDA_ERROR_INVALID_VALUE;
	}
	soft_count.copies_in += from_in == SOFT_HOST;
	soft_count.copies_out += to_in == SOFT_HOST;
	soft_count.copies += to_in == from_in;
	return soft_put(
		s, (struct soft_work){ .kind = SOFT_COPY, .name = "copy", .to = to, .from = from, .bytes = bytes });
}
#define POINTER(p) ((void *)(uintptr_t)(p))
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
	ENTER;
	return leave(copy(POINTER(to), from, bytes, s, SOFT_DEVICE, SOFT_HOST));
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
	ENTER;
	return leave(copy(to, POINTER(from), bytes, s, SOFT_HOST, SOFT_DEVICE));
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
	ENTER;
	return leave(copy(POINTER(to), POINTER(from), bytes, s, SOFT_DEVICE, SOFT_DEVICE));
}
/* Between any two places. */
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
	ENTER;
	enum soft_where a = soft_where(POINTER(to), bytes), b = soft_where(POINTER(from), bytes);
	return leave(copy(POINTER(to), POINTER(from), bytes, s, a ? a : SOFT_DEVICE, b ? b : SOFT_DEVICE));
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream)
{
	ENTER;
	struct soft_stream *s = stream_of(stream);
	if (!s)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (!bytes)
		return leave(CUDA_SUCCESS);
	if (soft_where(POINTER(to), bytes) != SOFT_DEVICE) {
		soft_say("a fill of %zu bytes that are not device memory", bytes);
		return leave(CUDA_ERROR_INVALID_VALUE);
	}
	soft_count.fills++;
	return leave(soft_put(
		s, (struct soft_work){
			   .kind = SOFT_FILL, .name = "fill", .to = POINTER(to), .byte = byte, .bytes = bytes }));
}

/* ---- streams and events ---- */

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	(void)flags;
	ENTER;
	struct soft_stream *s = soft_stream_new();
	s->magic = STREAM;
	*out = (CUstream)(void *)s;
	return leave(CUDA_SUCCESS);
}
CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	(void)priority;
	return cuStreamCreate(out, flags);
}
CUresult cuCtxGetStreamPriorityRange(int *least, int *most)
{
	*least = 0;
	*most = -5; /* as Hopper's driver reports */
	return leave(enter());
}
CUresult cuStreamDestroy(CUstream stream)
{
	ENTER;
	struct soft_stream *s = stream ? stream_of(stream) : NULL;
	if (!s)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (s->capture)
		s->capture->invalid = true;
	soft_drain(s);
	soft_stream_drop(s);
	return leave(CUDA_SUCCESS);
}
CUresult cuStreamSynchronize(CUstream stream)
{
	ENTER;
	struct soft_stream *s = stream_of(stream);
	if (!s)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (s->capture) {
		s->capture->invalid = true;
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	soft_drain(s);
	soft_count.synchronisations++;
	return leave(CUDA_SUCCESS);
}
CUresult cuStreamQuery(CUstream stream)
{
	ENTER;
	struct soft_stream *s = stream_of(stream);
	if (!s)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (s->capture) {
		s->capture->invalid = true;
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	soft_look();
	return leave(s->head ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}
CUresult cuCtxSynchronize(void)
{
	ENTER;
	if (forbidden())
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	soft_drain_device(soft_device());
	soft_count.synchronisations++;
	return leave(CUDA_SUCCESS);
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	ENTER;
	struct soft_event *e = calloc(1, sizeof *e);
	if (!e)
		abort();
	e->magic = EVENT;
	e->timed = !(flags & CU_EVENT_DISABLE_TIMING);
	*out = (CUevent)(void *)e;
	return leave(CUDA_SUCCESS);
}
CUresult cuEventDestroy(CUevent event)
{
	ENTER;
	struct soft_event *e = event_of(event);
	if (!e)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	e->magic = 0; /* a graph may still record it */
	return leave(CUDA_SUCCESS);
}
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
	ENTER;
	struct soft_event *e = event_of(event);
	struct soft_stream *s = stream_of(stream);
	if (!e || !s)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	bool external = flags & CU_EVENT_RECORD_EXTERNAL;
	if (external && !s->capture)
		return leave(CUDA_ERROR_INVALID_VALUE);
	soft_count.records++;
	if (external)
		return leave(soft_put(s, (struct soft_work){ .kind = SOFT_RECORD, .name = "record", .event = e }));
	if (s->capture) {
		e->capture = s->capture;
		soft_set_front(&e->front, &e->fronts, s->front, s->fronts);
		return leave(s->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
	}
	struct soft_ticket *t = soft_ticket_new();
	soft_ticket_drop(e->ticket);
	e->ticket = t;
	e->capture = NULL;
	t->refs++;
	return leave(soft_put(s, (struct soft_work){ .kind = SOFT_RECORD, .name = "record", .ticket = t }));
}
CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

/* The stream's next node waits for the event's, too; a stream that captures nothing joins the capture. */
static CUresult wait_captured(struct soft_stream *s, const struct soft_event *e)
{
	if (e->capture->ended)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (s->capture && s->capture != e->capture) {
		s->capture->invalid = e->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (!s->capture) {
		s->capture = e->capture;
		soft_set_front(&s->front, &s->fronts, e->front, e->fronts);
		return CUDA_SUCCESS;
	}
	int n = 0, *all = malloc((size_t)(s->fronts + e->fronts + 1) * sizeof *all);
	if (!all)
		abort();
	for (int i = 0; i < s->fronts; i++)
		all[n++] = s->front[i];
	for (int i = 0; i < e->fronts; i++) {
		bool have = false;
		for (int k = 0; k < s->fronts; k++)
			have |= s->front[k] == e->front[i];
		if (!have)
			all[n++] = e->front[i];
	}
	soft_set_front(&s->front, &s->fronts, all, n);
	free(all);
	return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	ENTER;
	struct soft_event *e = event_of(event);
	struct soft_stream *s = stream_of(stream);
	if (!e || !s)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (flags & CU_EVENT_WAIT_EXTERNAL)
		return leave(CUDA_ERROR_NOT_SUPPORTED);
	soft_count.waits++;
	if (e->capture)
		return leave(wait_captured(s, e));
	if (s->capture) {
		s->capture->invalid = true;
		return leave(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	}
	if (!e->ticket)
		return leave(CUDA_SUCCESS);
	e->ticket->refs++;
	return leave(soft_put(s, (struct soft_work){ .kind = SOFT_WAIT, .name = "wait", .ticket = e->ticket }));
}
CUresult cuEventSynchronize(CUevent event)
{
	ENTER;
	struct soft_event *e = event_of(event);
	if (!e)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (e->capture) {
		if (!e->capture->ended)
			e->capture->invalid = true;
		return leave(CUDA_ERROR_CAPTURED_EVENT);
	}
	if (e->ticket)
		soft_drain_until(e->ticket);
	soft_count.synchronisations++;
	return leave(CUDA_SUCCESS);
}
CUresult cuEventQuery(CUevent event)
{
	ENTER;
	struct soft_event *e = event_of(event);
	if (!e)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (e->capture)
		return leave(CUDA_ERROR_CAPTURED_EVENT);
	soft_look();
	return leave(!e->ticket || e->ticket->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}
CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
	ENTER;
	const struct soft_event *a = event_of(begin), *b = event_of(end);
	if (!a || !b || !a->timed || !b->timed || !a->ticket || !b->ticket)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (!a->ticket->done || !b->ticket->done)
		return leave(CUDA_ERROR_NOT_READY);
	*ms = (float)(b->ticket->ms - a->ticket->ms);
	return leave(CUDA_SUCCESS);
}
