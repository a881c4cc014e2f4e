/* A rank of a job, and the tasks that rank 0 gives to all of them.
 *
 * A task is a plain message: its number and bytes. Every rank carries it out on what is its own (program, store,
 * executor, ports, communicators) and answers with an error or with bytes, so that a rank may be a thread or a process
 * on another host. How tasks and answers travel is the carrier's affair (carrier.h). */
#ifndef FO_TRAIN_MEMBER_H
#define FO_TRAIN_MEMBER_H

#include "train/exec.h"
#include "train/keep.h"
#include "train/ports.h"

struct fo_member {
	int number, ranks;
	/* All ranks, for what the program sends. It is given up when a task fails, so that nobody waits for this rank.
	 */
	struct fo_comm *world;
	struct fo_links links;
	/* Of all but rank 0, which has them elsewhere (room.h). */
	fo_port_fn *port;
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_rank_state *state; /* what others see of it; NULL: nothing */
	struct fo_ports ports;       /* batch: the caller's, where the rank has no loader of its own */
	/* Evaluation, on the same weights; eval NULL: there is none. */
	struct fo_program eval_program;
	struct fo_exec *eval;
	struct fo_ports eval_ports;
	struct fo_keep keep;
};

enum { FO_ANSWER_BYTES = 1024 }; /* most that a rank answers to a task */
struct fo_answer {
	struct fo_err error; /* st FO_OK: none */
	size_t n;
	unsigned char bytes[FO_ANSWER_BYTES];
};
/* Copies n bytes into the answer. */
void fo_answer_put(struct fo_answer *a, const void *bytes, size_t n);
/* Copies the answer's bytes out; FO_EBUG where there are not n. */
FO_CHECKED fo_status fo_answer_get(const struct fo_answer *a, void *bytes, size_t n);

/* ---- the tasks ---- */

enum fo_task {
	FO_TASK_BUILD,      /* bytes: struct fo_task_build; answers the program's hash */
	FO_TASK_LINK,       /* communicators of the program's lanes; all ranks at once */
	FO_TASK_MAKE,       /* bytes: struct fo_exec_options; store and executor; answers struct fo_task_made */
	FO_TASK_STEP,       /* bytes: struct fo_task_step; all ranks at once */
	FO_TASK_FIND_FAULT, /* the same; answers struct fo_exec_fault */
	FO_TASK_EVALUATE,   /* bytes: struct fo_task_step of a batch of evaluation; all ranks at once */
	FO_TASK_FILL,       /* bytes: struct fo_keep_task, of those that fill in weights and state */
	/* bytes: struct fo_keep_task, of the others; all ranks at once; answers a bool, whether it is done. An error is
	 * in the answer alone: a checkpoint that cannot be written is no reason to give the job up. */
	FO_TASK_KEEP,
	FO_TASK_CLOSE, /* the rank's own is freed */
	FO_TASKS
};
struct fo_task_build {
	struct fo_model model;
	struct fo_lowering run;  /* rank 0's */
	struct fo_lowering eval; /* of evaluation; seq 0: there is none */
};
struct fo_task_made {
	struct fo_memory memory;
	int64_t timeline_bytes;
	int64_t eval_bytes; /* that evaluation takes beyond the step's memory */
	int64_t copy_bytes; /* that a copy of its rows would take (fo_keep_copy_bytes) */
};
struct fo_task_step {
	int32_t step;
	int64_t steps; /* of the run; 0: not known */
	int64_t batch; /* the loader's number of it */
	double hyper[FO_HYPER_COUNT];
};
/* Where ranks share a process they do such a task one after the other on the caller's thread. */
bool fo_task_in_turn(enum fo_task task);
const char *fo_task_name(enum fo_task task); /* "step" */
/* Carries out a task with its n bytes. *out is the answer, with the error that is returned. */
fo_status fo_member_work(struct fo_member *m, enum fo_task task, const void *bytes, size_t n, struct fo_answer *out);

#endif
