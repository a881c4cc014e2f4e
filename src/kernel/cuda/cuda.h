/* Kernels for NVIDIA devices, and the device itself: library loading, memory, streams, events, graphs.
 *
 * All of NVIDIA's libraries are loaded when a device is opened, so one program runs with and without them. Kernels of
 * our own lie in the program as machine code (image.h), made by nvcc when it was built. Without the toolkit at build
 * time everything here is there and says FO_EUNSUPPORTED.
 *
 * A CUDA kernel is to the executor what struct fo_kernel is on the processor: it takes the same fo_call, whose data
 * pointers are device memory, and puts work into a stream. Nothing is allocated, synchronised or looked up between
 * prepare and run, so that a whole step can be captured into a graph.
 *
 * Threads: a device belongs to the thread that opened it; fo_cuda_attach makes it current in another one. */
#ifndef FO_KERNEL_CUDA_CUDA_H
#define FO_KERNEL_CUDA_CUDA_H

#include "kernel/kernel.h"

#include <signal.h>

struct fo_str;
struct fo_json;
struct fo_arena;

/* ---- what is there ---- */

enum fo_cuda_lib {
	FO_CUDA_DRIVER,   /* libcuda.so.1: comes with the driver */
	FO_CUDA_CUBLASLT, /* matmuls: required */
	FO_CUDA_CUDNN,    /* attention; without it our own, slow one */
	FO_CUDA_NCCL,     /* several devices */
	FO_CUDA_CUPTI,    /* kernel times of each launch, when asked for */
	FO_CUDA_NVML,     /* power, clocks, throttling */
	FO_CUDA_LIBS
};
enum { FO_CUDA_DEVICES_MAX = 16 };
struct fo_cuda_found {
	const char *name;     /* "cuBLASLt" */
	const char *what;     /* "matmuls" */
	bool loaded, refused; /* refused: it is there, but known to compute wrong results or too old */
	char file[256];       /* that was loaded; "" */
	char version[48];     /* "13.1.0"; "" */
	char why[320];        /* one sentence where it was not loaded or refused, with what to do; "" */
};
struct fo_cuda_device {
	int index, cc_major, cc_minor, multiprocessors;
	char name[96]; /* "NVIDIA H200" */
	char pci[16];  /* "0000:1b:00.0": what other libraries know it by */
	int64_t memory_bytes, l2_bytes;
	int64_t shared_per_block; /* opt-in limit */
	int clock_khz;            /* highest */
	bool has_kernels;         /* this build has machine code for it */
	bool software;            /* not a device: the tests' model of one */
};
struct fo_cuda_survey {
	bool built;             /* with the toolkit */
	char architectures[64]; /* that kernels were built for: "80 90a 100" */
	struct fo_cuda_found lib[FO_CUDA_LIBS];
	struct fo_cuda_device device[FO_CUDA_DEVICES_MAX];
	int devices;
	char why[320]; /* why there is no device; "" */
};
/* Looks; changes nothing; never fails. */
void fo_cuda_survey(struct fo_cuda_survey *out);
/* How many devices the driver shows; 0 without a driver. Loads nothing but that. */
int fo_cuda_count(void);

/* ---- an open device ---- */

struct fo_cuda;
typedef void *fo_cuda_stream, *fo_cuda_event, *fo_cuda_graph; /* CUstream, CUevent, CUgraphExec */
/* Opens device `index` (of those visible). FO_EUNSUPPORTED: no driver, no device, no cuBLASLt, no kernels for it. */
FO_CHECKED fo_status fo_cuda_open(struct fo_cuda **out, int index);
void fo_cuda_close(struct fo_cuda *c);
const struct fo_cuda_device *fo_cuda_info(const struct fo_cuda *c);
FO_CHECKED fo_status fo_cuda_attach(struct fo_cuda *c); /* to the calling thread */
/* The device as NVML knows it (hw/nvml.h: an fo_nvml_device); NULL: it does not. A software device has the one that
 * FLATOUT_NVML names, and none without: the system's NVML knows real ones. */
void *fo_cuda_nvml(const struct fo_cuda *c);

/* Device memory: 256-byte aligned at least, contents undefined. FO_ENOMEM says how much was asked for and free. */
FO_CHECKED fo_status fo_cuda_alloc(struct fo_cuda *c, size_t bytes, void **device);
void fo_cuda_free(struct fo_cuda *c, void *device);
/* Page-locked host memory. */
FO_CHECKED fo_status fo_cuda_host_alloc(struct fo_cuda *c, size_t bytes, void **host);
void fo_cuda_host_free(struct fo_cuda *c, void *host);
FO_CHECKED fo_status fo_cuda_memory(struct fo_cuda *c, int64_t *free_bytes, int64_t *total_bytes);

FO_CHECKED fo_status fo_cuda_stream_new(struct fo_cuda *c, fo_cuda_stream *out);
void fo_cuda_stream_free(struct fo_cuda *c, fo_cuda_stream s);
FO_CHECKED fo_status fo_cuda_stream_wait(struct fo_cuda *c, fo_cuda_stream s); /* host waits until it is idle */
/* timed: it carries a time; else it only orders. */
FO_CHECKED fo_status fo_cuda_event_new(struct fo_cuda *c, bool timed, fo_cuda_event *out);
void fo_cuda_event_free(struct fo_cuda *c, fo_cuda_event e);
/* external: a record in a capture becomes a node of the graph, whose time can be read after each launch. */
FO_CHECKED fo_status fo_cuda_event_record(struct fo_cuda *c, fo_cuda_event e, fo_cuda_stream s, bool external);
FO_CHECKED fo_status fo_cuda_event_after(struct fo_cuda *c, fo_cuda_stream s, fo_cuda_event e); /* s waits for e */
FO_CHECKED fo_status fo_cuda_event_wait(struct fo_cuda *c, fo_cuda_event e);             /* the host waits for it */
FO_CHECKED fo_status fo_cuda_event_done(struct fo_cuda *c, fo_cuda_event e, bool *done); /* does not wait */
FO_CHECKED fo_status fo_cuda_event_ms(struct fo_cuda *c, fo_cuda_event begin, fo_cuda_event end, float *ms);
/* Copies in stream order; host memory must be page-locked and stay until the stream has done it. */
FO_CHECKED fo_status fo_cuda_copy_in(struct fo_cuda *c, void *device, const void *host, size_t bytes, fo_cuda_stream s);
FO_CHECKED fo_status fo_cuda_copy_out(struct fo_cuda *c, void *host, const void *device, size_t bytes,
				      fo_cuda_stream s);
FO_CHECKED fo_status fo_cuda_copy(struct fo_cuda *c, void *to, const void *from, size_t bytes, fo_cuda_stream s);
FO_CHECKED fo_status fo_cuda_fill(struct fo_cuda *c, void *device, unsigned char byte, size_t bytes, fo_cuda_stream s);

/* Work put into s, and into streams that wait for its events, becomes a graph between begin and end. */
FO_CHECKED fo_status fo_cuda_capture_begin(struct fo_cuda *c, fo_cuda_stream s);
FO_CHECKED fo_status fo_cuda_capture_end(struct fo_cuda *c, fo_cuda_stream s, fo_cuda_graph *out);
FO_CHECKED fo_status fo_cuda_graph_launch(struct fo_cuda *c, fo_cuda_graph g, fo_cuda_stream s);
void fo_cuda_graph_free(struct fo_cuda *c, fo_cuda_graph g);

/* ---- kernels ---- */

struct fo_cuda_queue {
	struct fo_cuda *cuda;
	fo_cuda_stream stream;
	void *ws; /* device, 256-byte aligned; one per lane, of the largest that its operations' prepare asked for */
	size_t ws_bytes;
};
struct fo_cuda_kernel {
	/* Whose code runs: "flatout", "cuBLASLt", "cuDNN"; where that depends on the call, the slower choice. */
	const char *by;
	/* Whose code runs for this call, final only after prepare; NULL: by. */
	const char *(*by_of)(const struct fo_cuda *c, const struct fo_call *shape);
	/* Why this call cannot run on the device, in a clause ("operands are fp64"); NULL: it can. Data pointers are
	 * not set yet. The function may be NULL. */
	const char *(*cannot)(const struct fo_cuda *c, const struct fo_call *shape);
	/* What depends on the contents of operands that the host filled (host[i] of operand i, NULL elsewhere): a
	 * number >= 0 that is the same for all contents one plan serves; merge gives one that serves both. NULL:
	 * nothing does. */
	int64_t (*variant)(const struct fo_call *shape, const void *const *host);
	int64_t (*merge)(const struct fo_call *shape, int64_t a, int64_t b);
	/* Plans, tunes, compiles; tells the bytes of workspace that run will find in q->ws. May take seconds; called
	 * before every new combination of shape and variant, never while capturing. NULL: nothing to prepare. */
	fo_status (*prepare)(struct fo_cuda *c, const struct fo_call *shape, int64_t variant, size_t *ws_bytes);
	/* The most workspace that prepare asks for, whatever the variant, on a device like c of which only fo_cuda_info
	 * is there. NULL: prepare itself needs no more of a device. */
	size_t (*ws_most)(const struct fo_cuda *c, const struct fo_call *shape);
	fo_status (*run)(struct fo_cuda_queue *q, const struct fo_call *call, int64_t variant);
};
/* The kernel of an operation; NULL: it has none here, as all of class HOST. */
const struct fo_cuda_kernel *fo_cuda_kernel_of(enum fo_op_kind kind);
/* Why this call cannot run, for people; NULL: it can. */
const char *fo_cuda_cannot(const struct fo_cuda *c, const struct fo_call *shape);
/* The most workspace that this call takes on a device like d, which need not be there: for plans of other machines.
 * Arithmetic, but for what cuDNN's own plans take: the gradients of all query heads (documents of one length;
 * test_cudnn_graphs holds the plans to that) or 1 MiB (ragged ones). 0 in a build without CUDA. */
size_t fo_cuda_ws_most(const struct fo_cuda_device *d, const struct fo_call *shape);
/* Whose code runs for this call of an operation that has a kernel. Final after prepare: where a library turns a call
 * down there, our own code takes it. */
const char *fo_cuda_by(const struct fo_cuda *c, const struct fo_call *shape);
/* Why bf16 attention of what was prepared so far runs on our own kernels, several times slower than cuDNN's: cuDNN is
 * not there, does not start or turned a call down. NULL: no such case is known. Lives as long as the device. */
const char *fo_cuda_attention_note(const struct fo_cuda *c);

/* ---- matmuls: which of cuBLASLt's algorithms ---- */

/* How an algorithm is chosen when a matmul is prepared for the first time. */
enum fo_cuda_tune_mode {
	FO_CUDA_TUNE_OFF,  /* the library's first proposal: the same on every run of one library */
	FO_CUDA_TUNE_KEPT, /* the cached choice, else the first proposal */
	FO_CUDA_TUNE_ON,   /* the cached choice, else the fastest of all proposals: measuring takes about a second */
	FO_CUDA_TUNE_LONG, /* as ON; the fastest few, where bursts leave them close, run in blocks of a second, up to 11
			      s per matmul, and cached choices by bursts alone are made anew */
};
struct fo_cuda_tuned {
	int proposed, kept, measured; /* matmuls by how their algorithm was chosen */
	double seconds;               /* spent on measuring */
	double gain; /* geometric mean over measured matmuls: time of the first proposal / of the chosen one; else 1 */
	char note[320];           /* what was odd: damaged lines, no memory to measure in; "" */
	int by_blocks, by_energy; /* of those measured: chosen by blocks; of these by the energy that they took */
};
/* Sets how matmuls are prepared from now on; the default is FO_CUDA_TUNE_OFF. cache: a file of JSON lines
 * (docs/formats.md, "Products of CUDA devices"), made when something is kept; NULL: none. Damaged lines are noted and
 * left out, those of other devices and libraries stay. A choice decides the order of sums, so runs that shall give the
 * same bits need the same cache or mode OFF; algorithms whose order of sums varies from run to run are never chosen.
 * Fails where the file is there and cannot be read. */
FO_CHECKED fo_status fo_cuda_tune_set(struct fo_cuda *c, enum fo_cuda_tune_mode mode, const char *cache);
/* Measuring may take minutes: progress (NULL: none) hears of each matmul that is measured, and nothing more is measured
 * once *stop (NULL: never) is not 0. Both live as long as matmuls are prepared. */
void fo_cuda_tune_hooks(struct fo_cuda *c, fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop);
/* "<cache>/cuda-products.jsonl" (hw/profile.h). */
char *fo_cuda_tune_path(struct fo_arena *a);
void fo_cuda_tune_result(const struct fo_cuda *c, struct fo_cuda_tuned *out);

/* ---- times of kernels, from CUPTI: for a few steps that somebody asked about; it slows every launch ---- */

struct fo_cuda_traced {
	int64_t instance;         /* as pushed; -1: unknown */
	const char *name;         /* the kernel's, as its compiler made it; lives as long as the process */
	int64_t begin_ns, end_ns; /* on the clock of fo_now_ns */
	uint32_t stream;          /* CUPTI's number */
};
struct fo_cuda_trace {
	struct fo_cuda_traced *kernel; /* by begin */
	size_t n;
	size_t unknown;   /* with instance -1 */
	uint64_t dropped; /* records that were lost */
};
/* Begins to trace the whole process; only graphs captured after it have known kernels. FO_EUNSUPPORTED: no CUPTI;
 * FO_EDEVICE: another profiler is at work. */
FO_CHECKED fo_status fo_cuda_trace_start(void);
/* Work that this thread puts into streams, or captures, from push to pop belongs to `instance` (>= 0). They do not nest
 * and do nothing without a trace. */
void fo_cuda_trace_push(int64_t instance);
void fo_cuda_trace_pop(void);
/* Kernels that finished since start or the last take: wait for the streams first. Freed with fini. */
FO_CHECKED fo_status fo_cuda_trace_take(struct fo_cuda_trace *out);
void fo_cuda_trace_fini(struct fo_cuda_trace *t);
void fo_cuda_trace_stop(void);

/* ---- not operations ---- */

/* A parameter's rectangle filled as fo_store_init does it, N(0, std) by counter; std 0: ones, below 0: zeros. */
struct fo_cuda_init {
	struct fo_tensor weight, master; /* of one shape, where both are there; data NULL: that one is not made */
	/* Of the master, also where only the weight is made: fp32, or I16, the low halves of split numbers. */
	int64_t first, global_cols; /* number of the first element in the whole tensor; elements in a row of that */
	uint64_t stream;            /* of random numbers */
	double std;
};
FO_CHECKED fo_status fo_cuda_init_weights(struct fo_cuda_queue *q, const struct fo_cuda_init *in);
/* to = to + from, bf16 or fp32, of one shape and type. */
FO_CHECKED fo_status fo_cuda_add(struct fo_cuda_queue *q, const struct fo_tensor *to, const struct fo_tensor *from);
/* Stores the index of the first element of t that is not finite in found[0] (int64 on the device); -1: all are. */
FO_CHECKED fo_status fo_cuda_find_nonfinite(struct fo_cuda_queue *q, const struct fo_tensor *t, int64_t *found);

#endif
