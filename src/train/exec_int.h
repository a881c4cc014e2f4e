/* Private to the executor: the part that all engines share, and the interface of an engine.
 *
 * exec.c unrolls, plans and places; an engine has the memory and the kernels and runs instances: exec_cpu.c on this
 * machine, exec_cuda.c on a device. Neither knows an operation. */
#ifndef FO_TRAIN_EXEC_INT_H
#define FO_TRAIN_EXEC_INT_H

#include "base/count.h"
#include "train/exec.h"

struct fo_exec_engine {
	bool late; /* takes memory before the first step, not in fo_exec_new: the plan may still be too large */
	/* Called in this order: open finds kernels of the operations, whose calls are there, and what they need;
	 * arena_new takes memory for the arena; start begins what runs them, once every life has its place. */
	fo_status (*open)(struct fo_exec *e);
	fo_status (*arena_new)(struct fo_exec *e, size_t bytes, void **out);
	fo_status (*host_new)(struct fo_exec *e, size_t bytes, void **out); /* memory for the arena of home HOST */
	fo_status (*start)(struct fo_exec *e); /* a late engine's is called again where it failed */
	void (*stop)(struct fo_exec *e);       /* before anything is freed, also where open failed half way */
	void (*close)(struct fo_exec *e);
	void (*arena_free)(struct fo_exec *e, void *arena, size_t bytes);
	void (*host_free)(struct fo_exec *e, void *arena, size_t bytes);
	/* Called before the first instance of a step, whichever way it is run; NULL: nothing to do. */
	fo_status (*begin)(struct fo_exec *e);
	fo_status (*step)(struct fo_exec *e, int32_t step);
	/* One instance, on the calling thread; done when it returns, but for a send or a receive, which goes on. */
	fo_status (*run)(struct fo_exec *e, int id);
	/* Between two of these: returns when the sends and receives that instance `id` needs are over. */
	fo_status (*settle)(struct fo_exec *e, int id);
	/* Gives the index (row x cols + column) of the first element of t that is not finite, -1 for none, and its
	 * value. */
	fo_status (*find)(struct fo_exec *e, const struct fo_tensor *t, int64_t *at, double *value);
	void (*memory)(const struct fo_exec *e, struct fo_memory *m);
	const char *(*by)(const struct fo_exec *e, int op); /* whose code runs operation op; NULL: the ports */
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
	/* The operations of all blocks, one after the other; call: without the operands' places. */
	const struct fo_op **op;
	struct fo_call *call;
	int *block_op, ops; /* where a block's operations begin; of all blocks */
	void **data;        /* per life: its address */
	unsigned char *arena;
	size_t arena_bytes; /* of its own arena; 0: it uses that of `share` */
	struct fo_exec *share;
	unsigned char *host_arena; /* of home HOST; NULL: nothing is */
	bool placed, started;      /* every life has its place; the engine was started */
	bool derived;              /* results of phase DERIVE fit the weights */
	bool changes;              /* the program writes persistent buffers */
	struct fo_exec_cpu *cpu;
	struct fo_exec_cuda *cuda;
};

/* Called before instances run, whichever way: takes memory if that comes late, and lets the engine prepare. */
FO_CHECKED fo_status fo_exec_ready(struct fo_exec *e);
/* The same before a step, and makes what is derived from weights where they changed. */
FO_CHECKED fo_status fo_exec_begin(struct fo_exec *e);
/* The earlier of two times; 0: not known. */
static inline int64_t fo_exec_earlier(int64_t a, int64_t b) { return a && b ? fo_min(a, b) : a + b; }
/* Instance id's place in e->op. */
static inline int fo_exec_op(const struct fo_exec *e, int id)
{
	return e->block_op[e->p->slot[e->u.slot[id]].block] + e->u.op[id];
}
/* Instance id's call, with the operands' places. */
struct fo_call fo_exec_call(const struct fo_exec *e, int id);
static inline size_t fo_tensor_bytes(const struct fo_tensor *t)
{
	return (size_t)(t->rows * t->cols) * fo_dtype_bytes(t->dtype);
}
static inline bool fo_exec_is_host(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_HOST; }
static inline bool fo_exec_is_comm(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_COMM; }
/* Starts an operation of class COMM, and looks whether it is over. */
FO_CHECKED fo_status fo_exec_transfer_start(struct fo_exec *e, int id, struct fo_transfer *t);
/* The same where its operands lie elsewhere, in the transport's memory: c has their places. */
FO_CHECKED fo_status fo_exec_transfer_start_at(struct fo_exec *e, int id, const struct fo_call *c,
					       struct fo_transfer *t);
FO_CHECKED fo_status fo_exec_transfer_test(struct fo_exec *e, int id, struct fo_transfer *t, bool *done);
/* The same over a transport that has streams: puts all of it into one. scratch: room for what it adds to
 * (fo_exec_adds), as the transport wants it. */
FO_CHECKED fo_status fo_exec_transfer_put(struct fo_exec *e, int id, struct fo_transfer *t, fo_comm_stream stream,
					  void *scratch);
/* Does an operation of class COMM add to its last operand, where the bits of `first` (fo_call) are these? */
bool fo_exec_adds(const struct fo_op *o, uint32_t first);
/* With option poison: fills what the instance begins with NaN, -1 as an index. */
void fo_exec_poison(const struct fo_exec *e, int id);
/* Does operand i of instance id begin a life whose bytes no other operand has? Such bytes may be poisoned. */
bool fo_exec_begins(const struct fo_exec *e, int id, int i);
/* Where an instance failed, before its error: "matmul of layer 7 (forward, micro-batch 2): ...". */
FO_CHECKED fo_status fo_exec_failed(const struct fo_exec *e, int id, fo_status st);
/* The error that option fail_at asks for. */
FO_CHECKED fo_status fo_exec_fails(const struct fo_exec *e, int id);
/* "layer 7 (forward, micro-batch 2)", "the head (backward, micro-batch 1)", "the step". */
void fo_exec_where(const struct fo_exec *e, int id, char *out, size_t size);

#endif
