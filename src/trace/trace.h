/* A trace: what a profiler recorded of one process, reduced to what a diagnosis needs: the GPU's operations, the calls
 * that launched them, what the host did meanwhile, collectives, steps. Formats: Kineto/Chrome JSON (plain, gzip,
 * Zstandard), Nsight Systems SQLite exports, our own timelines. facts: docs/traces.md.
 *
 * All times are int64 nanoseconds since the trace's own origin; a trace is immutable once it is read. Indices are -1
 * where the trace does not tell. Texts are as the file has them: whatever prints them makes them visible
 * (fo_str_visible). */
#ifndef FO_TRACE_TRACE_H
#define FO_TRACE_TRACE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- kernels by name ---- */

/* X(enumerator, name): the order is the priority inside an instant at which several run (facts: docs/metrics.md, "the
 * ledger"). Those before communication compute. */
#define FO_KERNEL_CLASSES(X)                                                                                  \
	X(GEMM, gemm)                                                                                         \
	X(GEMM_FP8, gemm_fp8) /* 8 and 4 bit */                                                               \
	X(ATTENTION_FORWARD, attention_forward)                                                               \
	X(ATTENTION_BACKWARD, attention_backward)                                                             \
	X(CONV, conv)                                                                                         \
	X(NORM, norm)                                                                                         \
	X(OPTIMIZER, optimizer)                                                                               \
	X(LOSS, loss)                                                                                         \
	X(SOFTMAX, softmax) /* not of the loss: eager attention */                                            \
	X(MOE, moe)         /* routing, permutation */                                                        \
	X(ROPE, rope)                                                                                         \
	X(EMBEDDING, embedding)                                                                               \
	X(POOL, pool)                                                                                         \
	X(FUSED, fused) /* by a compiler, whatever it holds: Triton's */                                      \
	X(CAST, cast)   /* casts, quantisation */                                                             \
	X(ELEMENTWISE, elementwise)                                                                           \
	X(COPY, copy)     /* kernels that only move: cat, transpose, fill */                                  \
	X(LAYOUT, layout) /* those that rearrange the operands of a matmul or convolution, for its library */ \
	X(REDUCE, reduce)                                                                                     \
	X(RNG, rng)                                                                                           \
	X(OTHER, other) /* no rule knows the name */                                                          \
	X(COMMUNICATION, communication)                                                                       \
	X(MEMORY, memory) /* copies and fills by the driver, whichever way the trace calls them */
#define FO_KERNEL_CLASS_ENUM(enumerator, name) FO_K_##enumerator,
enum fo_kernel_class { FO_KERNEL_CLASSES(FO_KERNEL_CLASS_ENUM) FO_K_COUNT, FO_K_COMPUTE_COUNT = FO_K_COMMUNICATION };
extern const char *const fo_kernel_class_name[FO_K_COUNT];
/* The class by the rules of data/kernel_rules.tsv, first match wins. */
enum fo_kernel_class fo_kernel_class_of(const char *name);

/* ---- one process ---- */

enum fo_gpu_kind { FO_GPU_KERNEL, FO_GPU_MEMCPY, FO_GPU_MEMSET };
enum fo_copy { FO_COPY_NONE, FO_COPY_H2D, FO_COPY_D2H, FO_COPY_D2D, FO_COPY_P2P, FO_COPY_OTHER, FO_COPY_COUNT };
extern const char *const fo_copy_name[FO_COPY_COUNT];

enum {
	FO_GPU_BACKWARD = 1 << 0,   /* launched by the backward pass */
	FO_GPU_RECOMPUTED = 1 << 1, /* forward work that the backward pass repeats */
	FO_GPU_GRAPH = 1 << 2,      /* replayed from a graph: its launch tells nothing about it alone */
	FO_GPU_SHARED = 1 << 3,     /* others carry the same correlation: which launch is its own is unknown */
	FO_GPU_PAGEABLE = 1 << 4,   /* copy from or to pageable host memory */
	FO_GPU_CLIPPED = 1 << 5,    /* its recorded end lay beyond reason and was cut to its successor's begin */
	FO_GPU_SCORES = 1 << 6,     /* the softmax of an attention that is written out */
	FO_GPU_GATHERED = 1 << 7,   /* fetches experts' weights for each token, for matmuls of one row */
};

struct fo_gpu_op {
	int64_t begin_ns, end_ns; /* end >= begin */
	int64_t bytes;            /* a copy's; -1 unknown */
	int64_t correlation;      /* -1 none */
	int32_t name;             /* fo_trace_text */
	int32_t stream;
	int32_t launch;     /* in launch[] */
	int32_t op;         /* in op[]: the innermost host operator around the launch */
	int32_t collective; /* in collective[] */
	int16_t device;     /* in device[] */
	uint8_t kind, copy, flags;
	uint8_t class_by_name, class; /* class: after attribution to operator or module */
	int32_t external;             /* the profiler's number of the host operator that launched it; -1 */
};

/* A call of the runtime or driver that put work on the GPU. */
struct fo_launch {
	int64_t begin_ns, end_ns, correlation;
	int32_t name, thread;
	int32_t op;       /* in op[]: the innermost host operator around it */
	int32_t external; /* as a GPU operation's */
	bool graph;       /* a graph's launch */
	bool blocking;    /* the host waits inside it: cudaMemcpy without Async */
};

/* Something that a host thread did. Sorted by thread, then begin, then longest first. */
enum fo_host_kind {
	FO_HOST_OP,     /* operator of the framework: aten::mm */
	FO_HOST_MODULE, /* a module's frame: nn.Module: LlamaRMSNorm_3 */
	FO_HOST_NOTE,   /* an annotation of the user or the framework (NVTX, record_function) */
	FO_HOST_SYNC,   /* a call in which the host waits for the GPU, frees or allocates: cudaFree */
	FO_HOST_CALL,   /* other call of the runtime or driver (kept only as far as it shows that a thread is busy) */
	FO_HOST_DATA,   /* the data loader's: name has DataLoader, next_batch, ... */
};
struct fo_host_op {
	int64_t begin_ns, end_ns;
	int32_t name, thread;
	int32_t parent;     /* the innermost of any kind around it on its thread */
	int32_t shapes;     /* text as recorded: "[[4096, 4096], [4096, 11008]]"; not kept for lists of tensors */
	int32_t types;      /* text: element types, as shapes */
	int32_t external;   /* its number, which what it launched may carry; -1 */
	int64_t sequence;   /* of autograd; -1 none. Backward operators carry their forward's */
	int32_t collective; /* in collective[]: its arguments, of a record_param_comms */
	uint8_t kind;
	bool backward, recomputed;
	bool other_thread; /* it says that its forward ran on another thread: an operator of the backward pass */
};

struct fo_thread {
	int64_t pid, tid; /* hashed where the trace has names instead of numbers */
	int32_t name;
};

struct fo_collective {
	int32_t name;           /* "allreduce" */
	int32_t group, members; /* texts: process group's name, its ranks */
	int32_t purpose;        /* text: what the group is for, "PIPELINE_MODEL_PARALLEL_GROUP", "mesh_pp" */
	int32_t dtype;
	int32_t group_size;         /* -1 unknown */
	int64_t sequence;           /* -1 unknown */
	int64_t bytes;              /* the greater of in and out; -1 unknown */
	int32_t peer_from, peer_to; /* point to point; -1 */
	bool equal_parts;           /* no split sizes: every rank sends as much */
};

/* The GPU's own account of a wait: what a stream waited for (Kineto's cuda_sync). */
struct fo_gpu_wait {
	int64_t begin_ns, end_ns;
	int32_t kind; /* text: "Stream Wait Event" */
	int32_t stream, on_stream;
	int16_t device;
};

/* The profiler at work on one of its threads. Several may be, so that the sum may be above the time. */
struct fo_profiler_work {
	int64_t begin_ns, end_ns;
};

/* An interval that carries a step's number. */
struct fo_trace_step {
	int64_t number, begin_ns, end_ns;
	int32_t thread; /* of the host; -1: the GPU's copy of the annotation */
	int16_t device; /* of the GPU's copy; -1 */
};

struct fo_trace_device {
	int64_t id;
	int32_t name;                                         /* text, -1 */
	int64_t memory_bytes;                                 /* 0 unknown */
	int32_t sm_count, capability_major, capability_minor; /* 0 unknown */
};

enum fo_trace_format { FO_TRACE_KINETO, FO_TRACE_NSYS, FO_TRACE_OWN };
enum fo_rank_origin { FO_RANK_RECORDED, FO_RANK_FILE_NAME, FO_RANK_ORDER }; /* of the files as they were given */

/* Counts of what was wrong or left out. */
struct fo_trace_defects {
	int64_t events;     /* read in all */
	int64_t unlinked;   /* GPU operations without a launch record */
	int64_t unanswered; /* launches of kernels without a kernel, between those that have one */
	int64_t numbers,
		numbers_of; /* operators with the profiler's number, of how many by these; numbers_of 0: not thinned */
	int64_t shared_correlations; /* GPU operations that share one */
	int64_t zero_duration, negative_duration, clipped, out_of_order;
	int64_t malformed;           /* events that could not be read and were left out */
	int64_t malformed_gpu;       /* of them: operations of a GPU, as far as that could be told */
	int64_t duplicates;          /* steps annotated twice */
	int64_t doubled;             /* other events that the file holds twice: one of each was kept */
	int64_t dropped_by_profiler; /* that the profiler itself says it lost; -1 unknown */
	bool truncated;              /* the file ends inside the events */
	bool has_launches, has_host_ops, has_shapes, has_modules, has_collective_args, has_gpu_waits, graph_granularity;
	bool has_frames;              /* of Python: they are not read */
	int64_t profiler_overhead_ns; /* Kineto's "overhead" events, summed over threads */
};

struct fo_trace {
	enum fo_trace_format format;
	char *path;
	int rank, world_size;          /* -1 unknown */
	enum fo_rank_origin rank_from; /* fo_trace_set_open looks further than the trace */
	int64_t origin_unix_ns;        /* of time 0; 0: unknown */
	bool one_clock;                /* its times are of the clock that all ranks with this origin share */
	int64_t begin_ns, end_ns;      /* of everything */
	int32_t backend;               /* text: "nccl"; -1 */
	int32_t process_name;          /* text, -1 */
	struct fo_gpu_op *gpu;         /* by device, then begin, then end */
	struct fo_launch *launch;      /* by thread, then begin */
	struct fo_host_op *op;         /* by thread, then begin, then longest first */
	struct fo_thread *thread;
	struct fo_collective *collective;
	struct fo_gpu_wait *wait; /* by device, then begin */
	struct fo_profiler_work *overhead;
	struct fo_trace_step *step;     /* the host's first, by begin */
	struct fo_trace_device *device; /* those with GPU operations first come in the order of their ids */
	int64_t gpu_count, launch_count, op_count, thread_count, collective_count, wait_count, overhead_count,
		step_count, device_count;
	struct fo_trace_defects defect;
	struct fo_trace_texts *texts;
	/* The next process of the same file (Nsight Systems watches several), NULL: the last. Processes that share a
	 * GPU are one trace. fo_trace_set_open makes them ranks of their own and clears this. */
	struct fo_trace *next;
};

/* Reads one file: the format is told from its first bytes, never from its name. FO_EFORMAT says at which byte; a file
 * without GPU operations is no error. `*out` is freed with fo_trace_free, and with it what `next` leads to. */
FO_CHECKED fo_status fo_trace_open(struct fo_trace **out, const char *path);
void fo_trace_free(struct fo_trace *t);
/* "" for -1. */
const char *fo_trace_text(const struct fo_trace *t, int32_t id);
/* Does op[op] (-1: none), or an operator around it, multiply many matrices (bmm, baddbmm) or one (mm, addmm, linear)?
 * (context.c) */
enum fo_batched { FO_BATCHED_UNKNOWN, FO_BATCHED_NO, FO_BATCHED_YES };
enum fo_batched fo_trace_batched(const struct fo_trace *t, int32_t op);

/* ---- many ranks ---- */

/* Communication kernels of several devices that are one collective (or one transfer between two). */
struct fo_match_part {
	int32_t trace; /* in the set's rank[] */
	int64_t gpu;   /* in that trace's gpu[] */
};
struct fo_match {
	int64_t first; /* in match_part[] */
	int32_t parts; /* >= 2, each of another device */
};

/* Files that lay beside the traces that were taken, and why they were left alone. */
enum fo_left_kind {
	FO_LEFT_FOREIGN,  /* no trace, or one that cannot be read */
	FO_LEFT_NOTHING,  /* a trace of nothing */
	FO_LEFT_EARLIER,  /* another recording of the same ranks */
	FO_LEFT_RUN,      /* another run of ours */
	FO_LEFT_SCHEDULE, /* the log of a pipeline schedule */
	FO_LEFT_COPY,     /* the same bytes as another file */
	FO_LEFT_COUNT
};
extern const char *const fo_left_name[FO_LEFT_COUNT]; /* "foreign", "nothing", "earlier", "run", "schedule", "copy" */
struct fo_left_out {
	enum fo_left_kind kind;
	char *path; /* the first file, or the recording's folder */
	char *why;  /* the rest of a sentence that begins with the path: "is a memory snapshot of PyTorch" */
	int files;
};

struct fo_trace_set {
	struct fo_trace **rank; /* by rank, then path */
	int64_t *offset_ns;     /* added to a rank's times: the clock of rank[0], by collectives, else by origins */
	int64_t residual_ns;    /* median of |end - median end| of matched collectives after that; -1: there are none */
	int count;
	struct fo_match *match; /* in the order of the first part's begin */
	struct fo_match_part *match_part;
	int64_t matches, match_parts;
	struct fo_left_out *left;
	int lefts;
	char *taken; /* of several recordings the one that was taken: "profile/iteration_20"; NULL: there is one */
};
/* Opens files, folders (their traces) and patterns that the shell left alone, on as many threads as there are
 * processors. Of a folder with several recordings (iterations, or times in names) the newest is taken in which every
 * rank's file is whole. A trace without a rank takes the number after "rank" or "worker" in its path, else, where none
 * has one, its place in the list; a single trace stays without. FO_EARG: a file or rank that is given twice, copies (in
 * a folder they are left out), formats, world sizes or hours that cannot be one job's. Freed with fo_trace_set_fini. */
FO_CHECKED fo_status fo_trace_set_open(struct fo_trace_set *s, const char *const *path, int n);
void fo_trace_set_fini(struct fo_trace_set *s);

/* match.c: finds the collectives that the devices of s have in common, then sets offset_ns and residual_ns. The i-th of
 * a process group on every device, or that of the same sequence number; without recorded groups the i-th kernel of that
 * name, between files only where each says its rank. Groups without all members, or of other counts or sizes, are left
 * out. fo_trace_set_open calls it. */
void fo_trace_set_match(struct fo_trace_set *s);

/* Does the call begin, or end, the capture of a graph? What is launched between them runs nothing. */
bool fo_trace_begins_capture(const char *name);
bool fo_trace_ends_capture(const char *name);

#endif
