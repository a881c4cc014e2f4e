/* A rank of a job, and the tasks that rank 0 gives to all of them.
 *
 * A task is a plain message: its number and bytes. Every rank carries it out on what is its own (program, store,
 * executor, ports, communicators) and answers with an error or with bytes, so that a rank may be a thread or a process
 * on another host. How tasks and answers travel is the carrier's affair (carrier.h). */
#ifndef FO_TRAIN_MEMBER_H
#define FO_TRAIN_MEMBER_H

#include "base/fs.h"
#include "hw/state.h"
#include "kernel/calibrate.h"
#include "train/exec.h"
#include "train/keep.h"
#include "train/ports.h"

struct fo_member {
	int number, ranks;
	char host[64];        /* "": not told, a rank is a thread */
	char *lost;           /* rank 0's working directory, where it is not there on this host; else NULL */
	bool ended;           /* rank 0 has ended the job */
	struct fo_cpus cpus;  /* that it may use */
	struct fo_cpus given; /* of a process: that it might use before it took its share */
	/* All ranks, for what the program sends. It is given up when a task fails, so that nobody waits for this rank.
	 */
	struct fo_comm *world;
	/* All ranks, for what must go on when a step has failed. Used within a task alone. */
	struct fo_comm *tasks;
	struct fo_links links;
	/* Of all but rank 0, which has them elsewhere (room.h). */
	fo_port_fn *port;
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_cuda *cuda;        /* its device; NULL: the processor. Rank 0's belongs to the caller */
	struct fo_rank_state *state; /* what others see of it; NULL: nothing */
	struct fo_ports ports;       /* batch: rank 0's, where the rank is a thread */
	/* Of a rank that is a process: member_own.c. */
	int local_rank, local_ranks; /* on this host */
	struct fo_shard shard;       /* map NULL: not open */
	struct fo_loader *loader;
	struct fo_order_share *order; /* of documents, with other ranks of this host; NULL: the loader has its own */
	struct fo_batch *eval_batch;  /* with all that they hold in `arena` */
	int64_t eval_batches;
	struct fo_arena arena;
	int64_t clock_offset_ns; /* added to this rank's times: those of rank 0's clock */
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

/* Puts before an error whose it is: "rank 2 of 4 on host h2: ...". */
void fo_member_name(const struct fo_member *m, struct fo_err *e);

/* ---- the tasks ---- */

enum fo_task {
	FO_TASK_BUILD,      /* bytes: struct fo_task_build; answers struct fo_task_built */
	FO_TASK_DEVICE,     /* bytes: struct fo_exec_devices; devices.c: the rank opens its own */
	FO_TASK_LINK,       /* bytes: a bool, over NCCL; communicators of the program's lanes; all ranks at once */
	FO_TASK_MAKE,       /* bytes: struct fo_exec_options; store and executor; answers struct fo_task_made */
	FO_TASK_STEP,       /* bytes: struct fo_task_step; all ranks at once */
	FO_TASK_FIND_FAULT, /* the same; answers struct fo_exec_fault */
	FO_TASK_EVALUATE,   /* bytes: struct fo_task_step of a batch of evaluation; all ranks at once */
	FO_TASK_FILL,       /* bytes: struct fo_keep_task, of those that fill in weights and state */
	/* bytes: struct fo_keep_task, of the others; all ranks at once; answers a bool, whether it is done. An error is
	 * in the answer alone: a checkpoint that cannot be written is no reason to give the job up. */
	FO_TASK_KEEP,
	FO_TASK_CLOSE, /* the rank's own is freed */
	/* Of ranks that are processes alone; threads share what rank 0 has. */
	FO_TASK_FOLDER, /* bytes: struct fo_task_folder; is it the same for all? */
	FO_TASK_PEAK,   /* bytes: struct fo_task_peak; the first rank of each host measures; answers struct fo_peak */
	FO_TASK_DATA,   /* bytes: struct fo_task_data; opens the text */
	FO_TASK_LOADER, /* bytes: struct fo_task_loader; a loader of the rank's own rows */
	FO_TASK_EVAL_DATA, /* bytes: struct fo_task_eval_data; its own rows of what is evaluated */
	FO_TASK_CLOCK,     /* compares clocks with rank 0; all ranks at once */
	FO_TASK_TIMELINE,  /* bytes: struct fo_task_timeline; the rank writes its own */
	FO_TASK_END,       /* bytes: struct fo_err; no answer */
	FO_TASKS
};
struct fo_task_build {
	struct fo_model model;
	struct fo_lowering run;  /* rank 0's */
	struct fo_lowering eval; /* of evaluation; seq 0: there is none */
};
struct fo_task_built {
	uint64_t hash, eval_hash; /* of the programs; 0: there is none */
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
struct fo_task_folder {
	char cwd[FO_PATH_BYTES]; /* rank 0's working directory, which paths of later tasks count from */
	char dir[FO_PATH_BYTES], token[FO_PATH_BYTES]; /* the run's folder; a file in it */
	uint64_t text;                                 /* what that file says */
};
struct fo_task_peak {
	enum fo_numerics precision;
	int threads; /* of a rank */
};
struct fo_task_data {
	char path[FO_PATH_BYTES]; /* of the shard */
	uint64_t checksum;
};
struct fo_task_loader {
	struct fo_batch_shape shape; /* of all ranks together */
	struct fo_loader_state from;
	int32_t pad;
};
struct fo_task_eval_data {
	struct fo_task_data from;
	struct fo_batch_shape shape; /* of all ranks together */
	int64_t batches;
	int32_t pad;
};
struct fo_task_timeline {
	char dir[FO_PATH_BYTES];
	int64_t begun_unix_ns, origin_ns; /* rank 0's */
};
/* Where ranks share a process they do such a task one after the other on the caller's thread. */
bool fo_task_in_turn(enum fo_task task);
/* Does an error of it end the job? Of FO_TASK_KEEP it does not. */
bool fo_task_ends_job(enum fo_task task);
const char *fo_task_name(enum fo_task task); /* "step" */
/* Carries out a task with its n bytes. *out is the answer, with the error that is returned. */
fo_status fo_member_work(struct fo_member *m, enum fo_task task, const void *bytes, size_t n, struct fo_answer *out);

#endif
