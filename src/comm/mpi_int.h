/* The rooms of comm/mpi.h: the plugin that was loaded, the job, calls that are under way. */
#ifndef FO_COMM_MPI_INT_H
#define FO_COMM_MPI_INT_H

#include "comm/mpi.h"
#include "comm/mpi_plugin/plugin.h"

#include <pthread.h>
#include <stdatomic.h>

/* NULL: *why is one sentence. */
const struct fo_mpi_plugin *fo_mpi_load(const char **why);

/* What all communicators of a world share on this rank. */
struct fo_mpi_job {
	const struct fo_mpi_plugin *mpi;
	struct fo_comm_mpi options;
	struct fo_mpi_world world;
	void *control; /* for news of the end, apart from all calls */
	pthread_mutex_t lock;
	struct fo_mpi_end *ends;   /* that are open, under the lock */
	struct fo_mpi_batch *news; /* one receive, under the lock */
	char note[256];            /* what it receives */
	_Atomic int64_t asked_ns;  /* when news were looked for last */
	_Atomic bool ended;
	char why[256]; /* written once, before `ended` */
};

enum { FO_MPI_PLACES = 2 };
struct fo_mpi_op;
/* A rank's end of a group. */
struct fo_mpi_end {
	struct fo_comm base;
	struct fo_mpi_job *job;
	struct fo_mpi_end *next; /* of the job's */
	/* Of its calls, since another thread than its own may end the job. The job's is taken before. */
	pthread_mutex_t lock;
	void *comm;          /* the plugin's */
	int *rank_of;        /* of the world, per rank of the group */
	int64_t calls;       /* collective ones so far */
	int64_t *sent, *got; /* messages to and from each rank so far */
	uint64_t shake;
	/* Reductions of more than a little take one of few places for pieces, in the order of their calls. */
	struct fo_mpi_op *first; /* those that wait for one */
	struct fo_mpi_op *live;  /* all that are not over */
	bool drained;            /* the job has ended, and receives were given up */
	struct fo_mpi_op *holder[FO_MPI_PLACES];
	char *place[FO_MPI_PLACES];
	struct fo_mpi_op *spare; /* records to use again */
};

/* Starts the next call, and does what can be done by now. *moved: something changed; *over: the record is gone. */
fo_status fo_mpi_op_start(struct fo_mpi_end *e, const struct fo_comm_call *k, struct fo_mpi_op **out);
fo_status fo_mpi_op_test(struct fo_mpi_end *e, struct fo_mpi_op *o, bool *moved, bool *over);
/* The job has ended: waits until MPI uses no memory of calls any more, at most until then. The lock is held. */
void fo_mpi_end_drain(struct fo_mpi_end *e, int64_t until_ns);
void fo_mpi_end_free(struct fo_mpi_end *e); /* records, and memory that MPI does not use */

/* "rank 1 of 4: all-reduce of 1000 f32 with rank 3: MPI says ..." */
fo_status fo_mpi_failed(const struct fo_mpi_job *job, int error, const char *doing);

#endif
