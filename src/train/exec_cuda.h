/* Private to the device engine (exec_cuda.c, exec_graph.c, exec_plans.c, exec_inputs.c, exec_staged.c,
 * exec_pairs.c). */
#ifndef FO_TRAIN_EXEC_CUDA_H
#define FO_TRAIN_EXEC_CUDA_H

#include "train/exec_int.h"

struct fo_exec_device_op {                   /* of a block */
	const struct fo_cuda_kernel *kernel; /* NULL: a port */
	int variant; /* index in fo_exec_cuda's `variant`; -1: its plan does not depend on contents */
	/* The values of fo_call's `first` among its instances: most operations always store, a sum is stored once and
	 * then added to. */
	uint32_t first[4];
	int firsts;
};
/* An operation and the operands of it that ports filled on the host; in every layer they are the same. */
struct fo_exec_site {
	int op;
	const void *host[FO_MAX_OPERANDS];
};
struct fo_exec_stream {
	bool used;
	fo_cuda_stream stream;
	fo_cuda_event join;
	size_t ws_bytes, ws_at;      /* in the workspace */
	int *instance, instances;    /* its instances, in order */
	struct fo_transfer transfer; /* of a lane of communication */
	/* exec_staged.c */
	size_t stage_bytes, stage_at; /* in the staging */
	int next;                     /* of `instance`: under way, or the next to begin */
	int listed;                   /* exec_pairs.c: of a lane of sends or receives, those that may begin */
	int32_t issued;               /* newest instance that was put into the stream; -1: none */
	/* What the operation under way does: its operands come to the host, or it is under way from there. */
	enum { FO_EXEC_RESTS, FO_EXEC_LEAVES, FO_EXEC_TRAVELS } phase;
	fo_cuda_event left; /* the copies to the host are done */
};
/* exec_inputs.c */
struct fo_exec_inputs {
	size_t bytes;              /* of the front of the staging, which ports of batches fill */
	unsigned char *now, *next; /* device; NULL: batches come from the staging within the step */
	fo_cuda_stream stream;
	fo_cuda_event copied, taken;  /* the copy into `next` is done; the copy out of it is done, if was_taken */
	bool was_taken, looks_beyond; /* looks_beyond: plans depend on what other ports fill, too */
	/* Number of the batch in the front of the staging, which `next` has or will have once `copied` happened; -1:
	 * none. */
	int64_t held;
};
/* Events of an instance, NULL where there is none, and its time in a timed step. */
struct fo_exec_events {
	fo_cuda_event done;         /* instances on other lanes wait for it */
	fo_cuda_event begins, ends; /* begins NULL: with the end of the instance before it on its lane */
	int64_t end_ns;
};
enum { FO_EXEC_GRAPHS_MAX = 8 };
struct fo_exec_graph { /* of one variant */
	int64_t *variant;
	fo_cuda_graph graph[2]; /* [1]: with events around its operations */
	int64_t used;           /* step that used it last */
};

struct fo_exec_cuda {
	struct fo_cuda *c;
	struct fo_exec_device_op *op; /* of each of the executor's operations */
	struct fo_exec_stream lane[FO_LANE_COUNT];
	unsigned char *workspace; /* device: every lane's, then `found` */
	size_t workspace_bytes;
	int64_t *found; /* device */
	/* Page-locked: what ports fill and read, then 8 bytes for what is looked for. stage[k]: of operand k
	 * (arg_begin) of a host operation, else -1. */
	unsigned char *staging;
	size_t staging_bytes, scratch_at;
	int64_t *stage;
	struct fo_exec_inputs inputs;
	bool whole_step;    /* a step is put into the streams, not an instance alone */
	bool staged;        /* communication goes through host memory */
	fo_cuda_event over; /* of a step in which other ranks' devices take part: it is done */
	struct fo_exec_site *site;
	int sites;
	size_t site_cap;
	int variants;
	int64_t *variant, *prepared; /* of the step that is about to run; of the plans and workspaces there are */
	struct fo_exec_graph graph[FO_EXEC_GRAPHS_MAX];
	int graphs;
	struct fo_exec_events *at; /* per instance */
	fo_cuda_event base, fork;
	int64_t steps; /* run so far */
	float around_ms;
};

/* Instance id's operation. */
static inline const struct fo_exec_device_op *fo_exec_device_op(const struct fo_exec *e, int id)
{
	return &e->cuda->op[fo_exec_op(e, id)];
}
/* With option poison: fills what the instance begins with 0xff, NaN in every floating-point type and -1 as an index. */
FO_CHECKED fo_status fo_exec_poison_device(struct fo_exec *e, int id);
/* Called before the first instance of a step is put into the streams, and after the last one. */
FO_CHECKED fo_status fo_exec_lanes_begin(struct fo_exec *e, bool timed, bool capturing);
FO_CHECKED fo_status fo_exec_lanes_end(struct fo_exec *e);
/* Waits and events around instance id, put into its lane's stream before and after it. */
FO_CHECKED fo_status fo_exec_instance_begins(struct fo_exec *e, int id, bool timed, bool capturing);
FO_CHECKED fo_status fo_exec_instance_ends(struct fo_exec *e, int id, bool timed, bool capturing);
/* Waits until a stream is idle, or for an event of a rank with links. FO_ECOMM: another rank, which takes part in what
 * is waited for, has given up. */
FO_CHECKED fo_status fo_exec_wait(struct fo_exec *e, fo_cuda_stream s);
FO_CHECKED fo_status fo_exec_wait_for(struct fo_exec *e, fo_cuda_event event);
/* Nobody waits for this rank any more, nor does it for others. */
void fo_exec_give_up(struct fo_exec *e);
/* Adds the room for operations of communication to the staging. */
void fo_exec_staged_plan(struct fo_exec *e);
/* Begins an operation of communication, or goes on with the one under way on its lane: *moved is set where something
 * changed. */
FO_CHECKED fo_status fo_exec_staged_leave(struct fo_exec *e, int id);
FO_CHECKED fo_status fo_exec_staged_go_on(struct fo_exec *e, int id, bool *moved);
/* Instances one by one (exec_pairs.c). list: begins a send or a receive, or notes that it may begin. settle: returns
 * when all those that instance `id` needs are over, and behind the last one of a lane all of it. */
FO_CHECKED fo_status fo_exec_pairs_list(struct fo_exec *e, int id);
FO_CHECKED fo_status fo_exec_pairs_settle(struct fo_exec *e, int id);
/* Another operation of communication, through host memory; its copies in are in the stream. */
FO_CHECKED fo_status fo_exec_pairs_run(struct fo_exec *e, int id);
/* Puts a step into the streams. */
FO_CHECKED fo_status fo_exec_staged_step(struct fo_exec *e, bool timed);
/* Puts instance id into its lane's stream. */
FO_CHECKED fo_status fo_exec_enqueue(struct fo_exec *e, int id);
/* Ports: before (host_in) or after (host_out) the copies. */
FO_CHECKED fo_status fo_exec_serve(struct fo_exec *e, int id);
FO_CHECKED fo_status fo_exec_graph_open(struct fo_exec *e); /* events */
void fo_exec_graph_close(struct fo_exec *e);
/* Frees all graphs: they hold addresses, which change when the workspace moves. */
void fo_exec_graph_drop(struct fo_exec *e);
void fo_exec_graph_free(struct fo_exec_cuda *x, struct fo_exec_graph *g);
/* Takes the workspace that the lanes need, in place of the one before. */
FO_CHECKED fo_status fo_exec_take_workspace(struct fo_exec_cuda *x);
/* Prepares the plans of x->variant, and makes the workspace as large as they need. */
FO_CHECKED fo_status fo_exec_prepare(struct fo_exec *e);
/* Sets x->variant by the contents that ports have filled in. */
void fo_exec_look(struct fo_exec *e);
static inline bool fo_exec_is_batch(const struct fo_op *o)
{
	return fo_exec_is_host(o) && o->attr.port == FO_PORT_BATCH;
}
/* Takes memory where the executor's options want inputs ahead: `now` is not NULL then. */
FO_CHECKED fo_status fo_exec_inputs_open(struct fo_exec *e);
void fo_exec_inputs_close(struct fo_exec *e);
/* Waits until the front of the staging may be filled with something else. */
FO_CHECKED fo_status fo_exec_inputs_drop(struct fo_exec *e);
/* ready: before a step, brings its batch to `next`. take: copies it to `now`, on the compute lane's stream. ahead:
 * begins to bring the following step's batch to `next`. */
FO_CHECKED fo_status fo_exec_inputs_ready(struct fo_exec *e);
FO_CHECKED fo_status fo_exec_inputs_take(struct fo_exec *e);
FO_CHECKED fo_status fo_exec_inputs_ahead(struct fo_exec *e);
fo_status fo_exec_cuda_step(struct fo_exec *e, int32_t step);

#endif
