/* The other ranks of a job, each with a program, a store, an executor and ports of its own: threads of this process, or
 * processes (processes.h). Rank 0 is the caller's: it holds what a run reads and writes, and says what all of them do
 * next.
 *
 * Every rank has the same weights and state, bit by bit, or its rows of them: they begin as copies of rank 0's, take
 * the same sums of gradients, and have equally many threads, because a kernel's bits may depend on that number. */
#ifndef FO_TRAIN_TEAM_H
#define FO_TRAIN_TEAM_H

#include "train/exec.h"
#include "train/ports.h"
#include "train/processes.h"

struct fo_team;
/* Threads of one rank, where `threads` are shared by `ranks`: at least one. */
int fo_team_threads(int threads, int ranks);
/* Makes ranks 1 to first->ranks - 1 as rank 0's program is made; o: of each rank's executor. p: the processes that they
 * are, which serve fo_ports_serve; NULL: threads. *out is closed with fo_team_close, whatever was returned, after rank
 * 0's executor. */
FO_CHECKED fo_status fo_team_open(struct fo_team **out, const struct fo_program *first, const struct fo_exec_options *o,
				  fo_port_fn *port, struct fo_processes *p);
struct fo_links *fo_team_links(struct fo_team *t); /* rank 0's */
/* Gives every rank its rows of `from`'s weights and state, between steps. own: rank 0's store, which may be `from`. */
FO_CHECKED fo_status fo_team_copy(struct fo_team *t, const struct fo_store *from, struct fo_store *own);
/* The way back, where ranks share them: fills `to`, a store of one rank's program, from all of their rows. */
FO_CHECKED fo_status fo_team_collect(struct fo_team *t, struct fo_store *to, struct fo_store *own);
/* Adds the memory of all but rank 0 that this process has. */
void fo_team_memory(const struct fo_team *t, struct fo_memory *m);
/* Bytes of the timelines, tables and stacks of all ranks but rank 0, which are in no executor's arena. */
int64_t fo_team_beside_bytes(const struct fo_team *t);
/* Writes what every rank did (timeline.h) into dir: rank 0's is e's timeline of `first`. Removes the files of ranks
 * that an earlier run had and this one has not. t NULL: there is rank 0 alone. */
FO_CHECKED fo_status fo_team_write_timelines(struct fo_team *t, struct fo_exec *e, const struct fo_program *first,
					     const char *dir);
void fo_team_close(struct fo_team *t); /* NULL: nothing */

/* Runs a step on rank 0's executor e and on all others (t NULL: there are none). ports are rank 0's: all take their
 * batch and numbers. An error is that of the rank that failed first, by name: "rank 2 of 4: ...". */
FO_CHECKED fo_status fo_team_step(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports, int32_t step);
/* The same with fo_exec_step_around on rank 0: the others' engines run the step as ever, so that none waits for an
 * order which rank 0 alone keeps to. */
FO_CHECKED fo_status fo_team_step_around(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports,
					 int32_t step, fo_exec_around_fn *around, void *ctx);
/* fo_exec_find_fault on all ranks; the text names the rank. */
FO_CHECKED fo_status fo_team_find_fault(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports,
					struct fo_exec_fault *out);

#endif
