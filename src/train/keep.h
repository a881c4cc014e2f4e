/* A rank's part in what all ranks of a job do with weights and state between steps: making them, reading them, copying
 * and writing them. Rank 0 says what as a plain message (fo_keep_task); each rank does it with its own rows, its own
 * memory and its own end of the job's communicator. No rank ever holds another one's rows, but for fo_keep_lend. */
#ifndef FO_TRAIN_KEEP_H
#define FO_TRAIN_KEEP_H

#include "train/train.h"

#include <pthread.h>

enum fo_keep_kind {
	FO_KEEP_INIT,  /* new weights, drawn from `seed`; state is zero */
	FO_KEEP_LOAD,  /* weights of the Hugging Face folder `path` */
	FO_KEEP_READ,  /* weights and state of the checkpoint `path` */
	FO_KEEP_OPEN,  /* checkpoints may be written; `beside`: from a copy, by a thread of their own */
	FO_KEEP_COPY,  /* own rows, for a checkpoint that is written from them */
	FO_KEEP_WRITE, /* own rows of checkpoint `step` in folder `path`; `beside`: begins to, from the copy */
	FO_KEEP_POLL,  /* is that done? `wait`: waits for it. What went wrong is said once it is */
	FO_KEEP_END,   /* of that checkpoint; `add`: its checksums are added up over the ranks, on rank 0 */
	FO_KEEP_LEND,  /* weights travel to rank 0 (fo_keep_lend) */
};
struct fo_keep_task {
	int kind;
	bool beside, wait, add;
	uint64_t seed;
	int64_t step, file_bytes; /* of a checkpoint; most bytes of one of its files (fo_ckpt_content) */
	char path[FO_PATH_BYTES];
};

enum fo_keep_job { FO_JOB_BEGIN, FO_JOB_ROWS, FO_JOB_END };

struct fo_keep {
	/* The owner of the rows, and their place; not owned. */
	const struct fo_program *program;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_comm *world; /* NULL: there is one rank */
	/* The same ranks, for the checksums of a checkpoint: where a step failed `world` was given up, and what was
	 * written beside it is good. fo_keep_init: world. */
	struct fo_comm *sums;
	int threads;
	bool on_device; /* the host's memory of the store is the copy */
	/* Set by FO_KEEP_OPEN. */
	struct fo_tensors tensors, copied; /* of the store; of the copy */
	void *copy;
	int64_t copy_bytes;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool busy, quit; /* guarded by lock */
	/* The checkpoint under way: the caller's while not busy, the thread's while busy. */
	enum fo_keep_job job;
	struct fo_ckpt_writer *writer; /* NULL: none */
	struct fo_ckpt_content content;
	struct fo_ckpt_meta meta;
	int keep, log;       /* log: descriptor of the log, which reaches the disk before a checkpoint; -1: none */
	struct fo_err error; /* of the newest job; before FO_JOB_END: of the checkpoint so far */
	double seconds;      /* of its jobs */
	int64_t afresh;      /* tensors of state that FO_KEEP_READ found in another shape, and made zeros */
};
void fo_keep_init(struct fo_keep *p, const struct fo_program *program, struct fo_store *store, struct fo_exec *exec,
		  struct fo_comm *world, int threads);
void fo_keep_close(struct fo_keep *p); /* zeroed: nothing */

/* Does the rank's part of a task. *done: of FO_KEEP_POLL, whether there is nothing more to wait for; may be NULL. */
FO_CHECKED fo_status fo_keep_work(struct fo_keep *p, const struct fo_keep_task *t, bool *done);
/* Bytes of the copy that FO_KEEP_OPEN makes of this store. */
int64_t fo_keep_copy_bytes(const struct fo_store *s);

/* ---- rank 0 alone ---- */

/* Begins a checkpoint of `content` (its tensors are filled in here) in folder dir. `beside`: from the copy. */
void fo_keep_prepare(struct fo_keep *p, const char *dir, const struct fo_ckpt_content *content,
		     const struct fo_ckpt_meta *meta, int keep, bool beside);
/* A job on this thread, or handed to the keep's own. FO_JOB_BEGIN: texts and headers. FO_JOB_ROWS: as FO_KEEP_WRITE.
 * FO_JOB_END: manifest and name, or with an error in p->error the end of it, by that error. A rank that is alone does
 * all three in FO_JOB_BEGIN. */
FO_CHECKED fo_status fo_keep_now(struct fo_keep *p, enum fo_keep_job job);
void fo_keep_hand(struct fo_keep *p, enum fo_keep_job job);
bool fo_keep_idle(struct fo_keep *p, bool wait); /* is its thread done with the newest job? */
void fo_keep_drop(struct fo_keep *p);            /* the checkpoint under way is over */

/* Fills `to`, a store of one rank's program `of` with these weights, from the rows of all ranks: rank 0's part of
 * FO_KEEP_LEND. */
FO_CHECKED fo_status fo_keep_lend(struct fo_keep *p, struct fo_store *to, const struct fo_program *of);

#endif
