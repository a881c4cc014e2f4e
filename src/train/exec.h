/* The executor: runs a step program's instances on this machine. It names no operation: kernels come from the kernel
 * sets, host operations are ports that the caller serves.
 *
 * One thread per used lane (the caller's is the compute lane); an instance starts when the newest instance it waits for
 * on each other lane has finished. Nothing is allocated after fo_exec_new.
 *
 * Ranks: an executor is one rank's. Lanes of communication have no threads of their own: one thread starts what is
 * ready on any of them and tests what runs, so none waits for another. When a rank's step fails the others' fail too
 * (FO_ECOMM), whatever they wait for. All ranks run the same steps in the same way. */
#ifndef FO_TRAIN_EXEC_H
#define FO_TRAIN_EXEC_H

#include "comm/local.h"
#include "cost/cost.h"
#include "kernel/cuda/cuda.h"
#include "kernel/kernel.h"
#include "program/program.h"
#include "record/rank_state.h"
#include "timeline/timeline.h"
#include "train/links.h"

/* ---- the store: buffers that persist from step to step (weights, optimizer state, tables) ---- */

struct fo_store;
/* Memory for every PARAM, STATE and CONST buffer of p; rope tables are filled, the rest is zero. */
FO_CHECKED fo_status fo_store_new(struct fo_store **out, const struct fo_program *p);
/* The same as a resident store: the device holds the only copy, and the host's addresses have no memory until
 * fo_exec_fetch takes it. It is filled by fo_store_init_device, fo_store_load and through fo_store_tensors; only
 * executors on this device may use it. c NULL: fo_store_new. */
FO_CHECKED fo_status fo_store_new_on(struct fo_store **out, const struct fo_program *p, struct fo_cuda *c);
/* Adds the persistent buffers of p that s lacks, zeroed, and longer tables. Buffers that executors hold stay where they
 * are. FO_EBUG when s has a buffer of the same name and another shape or type. */
FO_CHECKED fo_status fo_store_add(struct fo_store *s, const struct fo_program *p);
void fo_store_free(struct fo_store *s);
int64_t fo_store_bytes(const struct fo_store *s);
/* The memory that holds every buffer of the first program; buffers that fo_store_add added lie elsewhere. */
const unsigned char *fo_store_memory(const struct fo_store *s, int64_t *bytes);
/* Memory of a buffer's layer instance by buffer name; NULL when there is none. Row-major, *b describes it. */
void *fo_store_find(const struct fo_store *s, const char *buffer, int layer, const struct fo_buffer **b);
/* Weights from the parameter list: N(0, init_std) by counter (seed, parameter, global element), norm weights 1; the
 * same for every sharding. Master copies first, weights rounded from them. */
void fo_store_init(struct fo_store *s, const struct fo_program *p, uint64_t seed);
/* The same on a device, without touching the host's pages. Its logarithms may differ in the last bit, and so one weight
 * in hundreds of millions by one unit of fp32. FO_ENOMEM; FO_EUNSUPPORTED for fp64. */
FO_CHECKED fo_status fo_store_init_device(struct fo_store *s, const struct fo_program *p, uint64_t seed,
					  struct fo_cuda *c);
struct fo_store_tensor {
	char name[80]; /* with the layer's number filled in */
	/* 0 weight, 1 master (of dtype I16: the low halves that complete the weight), 2 m, 3 v; 4: state that belongs
	 * to no parameter and is not derived from weights ("fp8.history.3" of layer 3). */
	int which;
	int32_t layer;          /* it belongs to this one, counted from 1; 0: to none */
	int64_t rows, cols, ld; /* ld: row length in elements */
	/* Where ranks share it: these are rows `row` and on of the tensor's `whole`, perhaps none; else 0 and all. */
	int64_t row, whole;
	int64_t col, whole_cols; /* and of its columns those from `col` on (pass tp) */
	int32_t copies, copy;    /* ranks that have this rectangle, and which of them this is */
	uint8_t dtype;
	void *data; /* the rectangle's first element; NULL: no row is here */
};
/* The parameter's Hugging Face name with the layer's number filled in. */
void fo_param_name(const struct fo_param *pr, int layer, char *out, size_t size);
/* Visits each logical tensor of each layer, the same ones in the same order on every rank; of those that ranks
 * share the rectangle that is here. Then the state of kind 4. */
typedef fo_status fo_store_visit_fn(void *ctx, const struct fo_store_tensor *t);
FO_CHECKED fo_status fo_store_visit(struct fo_store *s, const struct fo_program *p, fo_store_visit_fn *fn, void *ctx);

/* ---- the executor ---- */

/* Serves a host operation: fills (host_in) or reads (host_out) the operands. Runs on the host lane's thread. */
typedef fo_status fo_port_fn(void *ctx, enum fo_port port, int mb, const struct fo_tensor *arg, int n);

/* The number of the batch that FO_PORT_BATCH serves in this step; batches of one number are the same for the executor's
 * whole life. With `next` the following step's batch, which the port then serves until this is called again; -1: there
 * is none, or it is not ready. ctx is the port's. */
typedef int64_t fo_exec_batch_fn(void *ctx, bool next);

/* The devices of a team (devices.h): each rank opens its own. */
struct fo_exec_devices {
	char text[32]; /* train.device; "": ranks compute on the processor */
	int tune;      /* enum fo_run_tune */
	int over;      /* enum fo_run_over */
};

/* Paced kernels: in place of an operation's kernel its lane waits, without using the processor, the time that a
 * measured machine takes for it, with the executor's overhead of the profile. All else is real: lanes, waits, calls to
 * other ranks, links, memory. Where a wait ends late, the next operation on the lanes that compute is shorter by that,
 * unless it had to wait for a lane that does not compute: lateness does not add up. */
struct fo_exec_pace {
	const struct fo_rates *rates; /* with the threads of one rank; outlives the executors */
	double pairs;                 /* of a micro-batch, as in fo_op_cost */
};

struct fo_exec_options {
	enum fo_isa isa;
	bool null_kernels;               /* every kernel returns at once: loops and schedules without arithmetic */
	const struct fo_exec_pace *pace; /* not NULL: paced kernels, on the processor */
	int threads;         /* of kernels on lanes that compute (fo_lane_computes), one at a time; others use one */
	bool poison;         /* fill each new generation with NaN first (tests, debug builds) */
	uint64_t delay_seed; /* not 0: random delays before operations (tests) */
	/* Instance fail_at of rank fail_rank fails, where it is above 0 (tests). */
	int fail_rank, fail_at;
	struct fo_comm_local local;     /* of a team (team.h): links between its ranks */
	bool bind;                      /* a team's ranks that are threads, each to its share of the processors */
	struct fo_exec_devices devices; /* of a team; `cuda` is rank 0's */
	double *mac;                    /* not NULL: `ref` counts multiply-accumulates here (tests) */
	int timeline_steps;             /* steps that the span rings hold; 0: 64 */
	/* The device, opened by the caller and closed after executors and store; NULL: the processor. With a device
	 * isa, threads, delay_seed and mac are not used. */
	struct fo_cuda *cuda;
	/* Device: every how many steps operations are timed, by events (0: never, 1: all). Other steps leave no spans
	 * (timeline.h: untimed). On the processor every step is timed. */
	int timed_every;
	fo_exec_batch_fn *batch; /* device, may be NULL: the next step's batch is copied there while a step runs */
	struct fo_links *links;  /* to the other ranks; NULL where there are none. They outlive the executor */
	struct fo_rank_state
		*state; /* where lanes say what they do (processor); NULL: nowhere. It outlives the executor */
	bool eager;     /* device: operations are launched one by one, never replayed as a graph */
};

/* Element `at` of memory of this floating-point type. */
double fo_element(const void *data, int dtype, int64_t at);

struct fo_exec;
/* The program, the store and `share` must outlive it. `share` (may be NULL): an executor that never runs at the same
 * time; its arena is used when it is large enough. A device's memory is taken before the first step, which may fail
 * (FO_ENOMEM) and be tried again. FO_EUNSUPPORTED names all operations that the device cannot run. */
FO_CHECKED fo_status fo_exec_new(struct fo_exec **out, const struct fo_program *p, struct fo_store *s,
				 const struct fo_exec_options *o, fo_port_fn *port, void *ctx, struct fo_exec *share);
void fo_exec_free(struct fo_exec *e);
FO_CHECKED fo_status fo_exec_step(struct fo_exec *e, int32_t step);
/* Reports that weights were changed from outside (initialised, loaded): the next step first makes what is derived from
 * them (phase derive), as the first step of an executor does in any case. */
void fo_exec_weights_changed(struct fo_exec *e);
/* Brings the host's copy of persistent buffers up to date with the device's: before checkpoints, and before weights are
 * read or some of them changed from outside. On the processor it always is. */
FO_CHECKED fo_status fo_exec_fetch(struct fo_exec *e);
/* Runs the instances in this order (a permutation) on the calling thread, ignoring waits (tests). */
FO_CHECKED fo_status fo_exec_step_in_order(struct fo_exec *e, const int *order);

/* Runs the step in issue order on the calling thread; each instance that computes goes through `around`, which calls
 * run(arg) exactly once. Benchmarks and metered steps put a clock around every operation with it. */
typedef void fo_exec_around_fn(void *ctx, int instance, void (*run)(void *arg), void *arg);
FO_CHECKED fo_status fo_exec_step_around(struct fo_exec *e, fo_exec_around_fn *around, void *ctx);
/* Device: seconds between the events before and after the operation that run(arg) ran last; NaN on the processor. */
double fo_exec_around_seconds(const struct fo_exec *e);

/* The first value of a step that is not finite. */
struct fo_exec_fault {
	int instance;     /* -1: every value of the step is finite */
	int operand;      /* of its operation, which holds the value */
	bool read;        /* the operation found the value in what it read (a weight, say); else it made it */
	int64_t row, col; /* within the operand's rectangle */
	double value;
	char text[320]; /* "matmul of layer 7 (forward, micro-batch 2) made ...", for people */
};
/* Repeats the step that was just refused (the ports serve the same batch), on the calling thread in issue order, and
 * looks at every number that is read and written until one is not finite. Kernels are deterministic, so these are the
 * step's own bits; instances that write persistent buffers are not run. */
FO_CHECKED fo_status fo_exec_find_fault(struct fo_exec *e, struct fo_exec_fault *out);

const struct fo_unrolled *fo_exec_unrolled(const struct fo_exec *e);
struct fo_timeline *fo_exec_timeline(struct fo_exec *e);
/* Planned memory in bytes, rounded up to huge pages, or as a device allocates it. */
struct fo_memory {
	int64_t arena, persistent, workspace, max_live; /* on a device: of its memory */
	int64_t host_arena; /* buffers of home HOST, beside the arena; page-locked where a device computes */
	/* Processor: what the program, its unrolled form and the executor's tables take of the heap, and the stacks of
	 * its threads. A job with several ranks counts it for each but the first, whose tables lie in memory that
	 * preparing the run has left; the stacks' part is an estimate. */
	int64_t tables;
	int64_t staging; /* device: page-locked host memory of this executor, for batches and losses */
	/* Device: the host's copy of persistent buffers (of a resident store its tables, until fo_exec_fetch takes
	 * fo_store_bytes more) and its page-locked pieces. All executors of a store share it. */
	int64_t host;
};
struct fo_memory fo_exec_memory(const struct fo_exec *e);
/* Bytes of one memory, the device's or the host's, that the executor and its store take. */
static inline int64_t fo_memory_taken(const struct fo_memory *m, bool on_device)
{
	return m->arena + m->persistent + m->workspace + (on_device ? 0 : m->host_arena);
}
/* Counts the step's instances by the kernel set that runs them (index: fo_isa). All 0 on a device, or with paced
 * kernels. */
void fo_exec_kernels(const struct fo_exec *e, int count[FO_ISA_COUNT]);
struct fo_exec_code {
	const char *by; /* static: "amx", "avx2", ..., "paced", or, on a device, "cuBLASLt", "cuDNN", "flatout" */
	int instances;
};
enum { FO_EXEC_CODES_MAX = 8 };
/* Counts instances by the code that runs them. Returns the number of entries. */
int fo_exec_codes(const struct fo_exec *e, struct fo_exec_code out[FO_EXEC_CODES_MAX]);

#endif
