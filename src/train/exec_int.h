/* Private to the executor: what all engines share, and what an engine is.
 *
 * exec.c unrolls, plans and places; an engine has the memory and the kernels and runs instances: exec_cpu.c on this
 * machine, exec_cuda.c on a device. Neither knows an operation. */
#ifndef FO_TRAIN_EXEC_INT_H
#define FO_TRAIN_EXEC_INT_H

#include "train/exec.h"

struct fo_exec_engine {
	bool late; /* memory is taken before the first step, not by fo_exec_new: what is planned may still be too much
		    */
	/* In this order: kernels of the operations, whose calls are there, and what they need; memory for the arena;
	 * what runs them, once every life has its place. */
	fo_status (*open)(struct fo_exec *e);
	fo_status (*arena_new)(struct fo_exec *e, size_t bytes, void **out);
	fo_status (*host_new)(struct fo_exec *e, size_t bytes, void **out); /* memory for the arena of home HOST */
	fo_status (*start)(struct fo_exec *e); /* of a late engine: once more where it failed */
	void (*stop)(struct fo_exec *e);       /* before anything is freed; also of what open left half done */
	void (*close)(struct fo_exec *e);
	void (*arena_free)(struct fo_exec *e, void *arena, size_t bytes);
	void (*host_free)(struct fo_exec *e, void *arena, size_t bytes);
	/* Before the first instance of a step, whichever way it is run; NULL: nothing. */
	fo_status (*begin)(struct fo_exec *e);
	fo_status (*step)(struct fo_exec *e, int32_t step);
	fo_status (*run)(struct fo_exec *e, int id); /* one instance, on the calling thread; done when it returns */
	/* Index of the first element of t (row x cols + column) that is not finite, and its value; -1: none. */
	fo_status (*find)(struct fo_exec *e, const struct fo_tensor *t, int64_t *at, double *value);
	void (*memory)(const struct fo_exec *e, struct fo_memory *m);
	const char *(*by)(const struct fo_exec *e, int block, int op); /* whose code; NULL: the host's ports */
};
extern const struct fo_exec_engine fo_exec_engine_cpu, fo_exec_engine_cuda;

struct fo_exec {
	const struct fo_exec_engine *engine;
	const struct fo_program *p;
	struct fo_store *store;
	struct fo_exec_options o;
	fo_port_fn *port;
	void *ctx;
	struct fo_unrolled u;
	struct fo_timeline timeline;
	struct fo_call **call; /* [block][op]: without places */
	void **data;           /* per life: where it lies */
	unsigned char *arena;
	size_t arena_bytes; /* of its own arena; 0: it uses that of `share` */
	struct fo_exec *share;
	unsigned char *host_arena; /* of home HOST; NULL: nothing is */
	bool placed, started;      /* every life has its place; what runs instances is there */
	bool derived;              /* what is made of weights alone is up to date */
	bool changes;              /* the program writes what persists */
	struct fo_exec_cpu *cpu;
	struct fo_exec_cuda *cuda;
};

/* Before instances run, whichever way: takes memory where that comes late, and sees to what the engine wants. */
FO_CHECKED fo_status fo_exec_ready(struct fo_exec *e);
/* Instance id's call, with the operands' places. */
struct fo_call fo_exec_call(const struct fo_exec *e, int id);
static inline bool fo_exec_is_host(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_HOST; }
/* Does operand i of instance id begin a life whose bytes no other operand has? (What is poisoned.) */
bool fo_exec_begins(const struct fo_exec *e, int id, int i);
/* "layer 7 (forward, micro-batch 2)", "the head (backward, micro-batch 1)", "the step". */
void fo_exec_where(const struct fo_exec *e, int id, char *out, size_t size);

#endif
