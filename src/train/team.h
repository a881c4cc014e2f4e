/* The other ranks of a job, each with a program, a store, an executor and ports of its own: threads of this process, or
 * processes (processes.h). Rank 0 is the caller's: it holds what a run reads and writes, and says what all of them do
 * next.
 *
 * Every rank has the same weights and state, bit by bit, or its rows of them: they begin alike, take the same sums of
 * gradients, and have equally many threads, because a kernel's bits may depend on that number. */
#ifndef FO_TRAIN_TEAM_H
#define FO_TRAIN_TEAM_H

#include "train/exec.h"
#include "train/keep.h"
#include "train/ports.h"
#include "train/processes.h"

struct fo_team;
/* Threads of one rank, where `threads` are shared by `ranks`: at least one. */
int fo_team_threads(int threads, int ranks);
/* Makes ranks 1 to first->ranks - 1 as rank 0's programs are made, the step's and that of evaluation (NULL: none);
 * o: of each rank's executors. p: the processes that they are, which serve fo_ports_serve; NULL: threads. *out is
 * closed with fo_team_close, whatever was returned, after rank 0's executors. */
FO_CHECKED fo_status fo_team_open(struct fo_team **out, const struct fo_program *first, const struct fo_program *eval,
				  const struct fo_exec_options *o, fo_port_fn *port, struct fo_processes *p);
struct fo_links *fo_team_links(struct fo_team *t); /* rank 0's */
bool fo_team_over_nccl(const struct fo_team *t);   /* calls go over NCCL, from device to device */
struct fo_comm *fo_team_world(struct fo_team *t);  /* rank 0's; t NULL: NULL */
struct fo_comm *fo_team_tasks(struct fo_team *t);  /* the same, which no failed step ends (struct fo_member) */
/* All ranks do their part of a task (keep.h), own: rank 0's, who alone does it where t is NULL. *done (may be NULL): it
 * is done on all of them. An error is that of the first rank that has one, by name; the ranks go on. */
FO_CHECKED fo_status fo_team_keep(struct fo_team *t, struct fo_keep *own, const struct fo_keep_task *task, bool *done);
/* The same for tasks that fill in weights and state, between steps; an error ends the job. */
FO_CHECKED fo_status fo_team_fill(struct fo_team *t, struct fo_keep *own, const struct fo_keep_task *task);
/* FO_KEEP_LEND: fills `to`, a store of `of`, a program of one rank. */
FO_CHECKED fo_status fo_team_lend(struct fo_team *t, struct fo_keep *own, struct fo_store *to,
				  const struct fo_program *of);
/* Adds the memory of all but rank 0 that this process has; of a device's, that of rank 0's device. */
void fo_team_memory(const struct fo_team *t, struct fo_memory *m);
/* Bytes of the timelines, tables and stacks of all ranks but rank 0, and of their evaluation, which are in no step's
 * arena. */
int64_t fo_team_beside_bytes(const struct fo_team *t);
int64_t fo_team_copy_bytes(const struct fo_team *t); /* of their copies for checkpoints (fo_keep_copy_bytes) */
/* Writes what every rank did (timeline.h) into dir: rank 0's is e's timeline of `first`. Removes the files of ranks
 * that an earlier run had and this one has not. t NULL: there is rank 0 alone. */
FO_CHECKED fo_status fo_team_write_timelines(struct fo_team *t, struct fo_exec *e, const struct fo_program *first,
					     const char *dir);
/* How the run ended, for what ranks that are threads say of themselves. NULL: nothing. */
void fo_team_over(struct fo_team *t, fo_status st);
void fo_team_close(struct fo_team *t); /* NULL: nothing */

/* Runs a step on rank 0's executor e and on all others (t NULL: there are none). ports are rank 0's: all take their
 * batch and numbers. An error is that of the rank that failed first, by name: "rank 2 of 4: ...". */
FO_CHECKED fo_status fo_team_step(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports, int32_t step);
/* The same with fo_exec_step_around on rank 0: the others' engines run the step as ever, so that none waits for an
 * order which rank 0 alone keeps to. */
FO_CHECKED fo_status fo_team_step_around(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports,
					 int32_t step, fo_exec_around_fn *around, void *ctx);
/* A batch of evaluation, ports->batch, on rank 0's executor e of it and on all others. */
FO_CHECKED fo_status fo_team_evaluate(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports, int32_t step);
/* fo_exec_find_fault on all ranks; the text names the rank. */
FO_CHECKED fo_status fo_team_find_fault(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports,
					struct fo_exec_fault *out);

#endif
