/* Steps on several ranks, each a thread of the test with a program, a store and an executor of its own. */
#ifndef FO_TESTS_SUPPORT_RANKS_H
#define FO_TESTS_SUPPORT_RANKS_H

#include "comm/local.h"
#include "support/outcome.h"

enum { RANKS_MOST = 8 };
struct ranks_rank;
struct ranks_job {
	/* The caller's: the mesh without its rank, rows and passes of a rank in `low`; the whole job's batch. */
	struct fo_model model;
	struct fo_lowering low;
	const struct step_batch *batch;
	struct fo_comm_local transport;
	/* null_kernels: memory is reserved and never touched, there is no batch, and nothing comes out but counts. */
	struct fo_exec_options options;
	double clip, eps;
	void (*build)(struct fo_program *p); /* changes each rank's program before it runs; NULL: nothing */
	/* Called by each rank's thread before the first step and after step s; NULL: nothing. */
	void (*before)(struct ranks_rank *r);
	void (*after)(struct ranks_rank *r, int s);
	int steps; /* 0: OUTCOME_STEPS */
	/* Ranks with a thread each: all compute on one CUDA device, or each on one of its own, over NCCL. */
	enum { RANKS_PROCESSOR, RANKS_ONE_DEVICE, RANKS_OWN_DEVICES } where;
	/* Not 0: one thread runs all ranks, in an order drawn with this seed (interleave.h). Of `transport` only `null`
	 * is used, and links are those of a former job of this mesh. 0: a thread per rank. */
	uint64_t order;

	int ranks;
	bool one; /* ranks_run_one: the others have nothing here */
	struct ranks_rank {
		struct ranks_job *job;
		int rank;
		struct fo_comm *world;
		struct fo_links links;
		struct fo_cuda *cuda; /* NULL: the processor */
		struct step_rig rig;
		struct step_batch batch;
		struct outcome out;
		struct fo_err error; /* of the step that failed; st FO_OK: none did */
		uint64_t hash;       /* of weights and state at the end */
		int64_t calls;       /* of ports, with null kernels */
		double step_s;       /* of the last step */
		int64_t received;    /* bytes over its links, all steps */
		int64_t received_by[FO_GROUP_COUNT][FO_COMM_KINDS], wire_by[FO_GROUP_COUNT][FO_COMM_KINDS];
		double wire; /* bytes of a step by its program's cost; wire_by: its parts */
		/* Those of what is made of weights alone, which the executor makes before the first step, and each time
		 * when `after` said that weights were changed. */
		int64_t derived_by[FO_GROUP_COUNT][FO_COMM_KINDS];
		int changes; /* counted by `after` */
	} rank[RANKS_MOST];
};
/* Runs the job and fills in its second part; freed with ranks_free. */
void ranks_run(struct ranks_job *j);
/* Runs one rank of it: that of `world` among those of the mesh, which stays open. The others are other processes'. */
void ranks_run_one(struct ranks_job *j, struct fo_comm *world);
void ranks_free(struct ranks_job *j);
/* Fails the test unless each rank received in all steps, per group and kind of call, what its program says. */
void ranks_check_wire(const struct ranks_job *j, const char *label);
void ranks_check_wire_of(const struct ranks_rank *r, const char *label); /* of one rank */
/* Closes the links that jobs with `order` share. */
void ranks_close_links(void);
/* The rows of rank `rank` of `ranks` with rows of their own: as many of each micro-batch as all others. Freed with
 * step_batch_free. */
void ranks_slice(struct step_batch *out, const struct step_batch *job, int rank, int ranks);

#endif
