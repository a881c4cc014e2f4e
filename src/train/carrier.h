/* How rank 0's tasks come to all ranks of a job, and their answers back (member.h). One thread of rank 0 uses it. */
#ifndef FO_TRAIN_CARRIER_H
#define FO_TRAIN_CARRIER_H

#include "train/member.h"

struct fo_carrier;
struct fo_carrier_way {
	fo_status (*begin)(struct fo_carrier *c, enum fo_task task, const void *bytes, size_t n);
	fo_status (*end)(struct fo_carrier *c); /* answer[0] is rank 0's */
	void (*close)(struct fo_carrier *c);
};
/* Carriers begin their own struct with it. */
struct fo_carrier {
	const struct fo_carrier_way *way;
	int ranks;
	struct fo_member *self;   /* rank 0 */
	struct fo_member *member; /* all ranks where they are threads of this process, rank 0 first; else NULL */
	struct fo_answer *answer; /* of each rank to the newest task */
	fo_status over;           /* how the run ended (fo_team_over) */
};

/* Gives all other ranks a task. The bytes stay as they are until its end. */
FO_CHECKED fo_status fo_carrier_begin(struct fo_carrier *c, enum fo_task task, const void *bytes, size_t n);
/* Returns once all of them have answered. own: what rank 0's part of it returned. A rank that fails ends the others,
 * whose errors say only that: the error is that of the cause, by name ("rank 2 of 4: ..."). */
FO_CHECKED fo_status fo_carrier_end(struct fo_carrier *c, fo_status own);
/* Both, where rank 0 has no part in it. */
FO_CHECKED fo_status fo_carrier_do(struct fo_carrier *c, enum fo_task task, const void *bytes, size_t n);
/* Of all errors the cause: the first that is no echo of another; -1: none. */
int fo_carrier_cause(const struct fo_answer *answer, int ranks);
void fo_carrier_close(struct fo_carrier *c); /* NULL: nothing; what ranks own is closed by FO_TASK_CLOSE before */

/* Ranks as threads of this process. local: links between them. share: by rank, what each of them is bound to, the first
 * left out, which is the caller; NULL: nothing is bound. Closed with fo_carrier_close, whatever was returned. */
FO_CHECKED fo_status fo_carrier_threads(struct fo_carrier **out, int ranks, const struct fo_comm_local *local,
					const struct fo_cpus *share, fo_port_fn *port);
/* Ranks as processes: rank 0's end, and what all others do until FO_TASK_END comes. tasks: a communicator of all ranks
 * for nothing else, whose abort is not that of m->world. */
void fo_carrier_processes(struct fo_carrier **out, struct fo_member *self, struct fo_comm *tasks);
/* Rank 0's end of the job, with how the run ended: FO_TASK_END. FO_ECOMM: some rank has not taken it in so many
 * seconds (INFINITY: no limit); the communicator is of no use any more. */
FO_CHECKED fo_status fo_carrier_finish(struct fo_carrier *processes, const struct fo_err *how, double seconds);
/* Returns rank 0's status at the end of the job, with m->ended true; or why its tasks come no more. */
FO_CHECKED fo_status fo_carrier_serve(struct fo_member *m, struct fo_comm *tasks);

#endif
