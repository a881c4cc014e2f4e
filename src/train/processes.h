/* A job whose ranks are processes, on any number of hosts, which MPI started. Rank 0 trains as one process does and
 * gives the others their tasks (member.h); they know nothing of the run but what comes with these. */
#ifndef FO_TRAIN_PROCESSES_H
#define FO_TRAIN_PROCESSES_H

#include "data/data.h"
#include "kernel/kernel.h"
#include "program/run.h"
#include "timeline/timeline.h"
#include "train/carrier.h"

/* What a rank says of its place when it joins. */
struct fo_processes_place {
	char version[64];
	uint64_t binary; /* XXH3-64 of the program's file */
	char host[64];
	int32_t local_rank, local_ranks; /* among the ranks of its host */
	int32_t threads; /* hardware threads that are its own, or its share of those that ranks of its host share */
	int32_t isa;     /* enum fo_isa */
	int64_t memory;  /* bytes that are free on its host; 0: not known */
	char cpus[64];   /* hardware threads that it may use: "0-3,8"; "" not known */
};

struct fo_processes {
	struct fo_comm *tasks;            /* of all ranks: tasks and errors */
	struct fo_member self;            /* self.world: of the steps */
	struct fo_carrier *carrier;       /* rank 0's; else NULL */
	struct fo_processes_place *place; /* of each rank */
	double end_s; /* how long the others have to take the end of a job that failed: some may be gone */
};

/* Is this process one of several that a launcher started? *rank of *ranks: which; *local_rank: on its host, -1: not
 * known. FO_EARG: variables of a launcher make no sense. */
FO_CHECKED fo_status fo_processes_launched(int *rank, int *ranks, int *local_rank);
/* Meets the others. bind: of rank 0, whether each rank is bound to its share of the processors that ranks of its host
 * were given together; where a launcher has given each rank its own, they stay. FO_EUNSUPPORTED: MPI is not
 * there, or ranks run unlike programs. *out is closed with fo_processes_close, whatever was returned. */
FO_CHECKED fo_status fo_processes_join(struct fo_processes **out, const char *version, bool bind);
/* The same for communicators that are there already (tests): of ranks that are threads, say. */
FO_CHECKED fo_status fo_processes_meet(struct fo_processes **out, struct fo_comm *tasks, struct fo_comm *steps,
				       const char *version, bool bind);
/* Of all but rank 0: carries out what rank 0 says, until it ends the job with a status, which is returned. *told false:
 * rank 0 does not know of the error, whose text begins with rank and host. */
FO_CHECKED fo_status fo_processes_serve(struct fo_processes *p, bool *told);
/* st: rank 0's status, which all ranks leave with. NULL: nothing. */
void fo_processes_close(struct fo_processes *p, fo_status st);

/* ---- what the slowest or smallest rank has: rank 0's ---- */

int fo_processes_on_host(const struct fo_processes *p); /* ranks on rank 0's host */
int fo_processes_hosts(const struct fo_processes *p);
int fo_processes_threads(const struct fo_processes *p); /* of a rank, where the run does not say */
enum fo_isa fo_processes_isa(const struct fo_processes *p, enum fo_isa most); /* that all have, `most` at most */
int64_t fo_processes_memory(const struct fo_processes *p); /* bytes that are free for each rank; 0: not known */

/* While the others wait, the calling thread of rank 0, and threads that it starts, may use the processors of all ranks
 * with which it shares them; on false: its own again. NULL: nothing. */
void fo_processes_use_all(struct fo_processes *p, bool on);

/* ---- what rank 0 has all ranks do before programs run ---- */

/* Do all see the run's folder? FO_EIO names a rank that does not. */
FO_CHECKED fo_status fo_processes_folder(struct fo_processes *p, const char *dir);
/* The peak of all ranks together: measured once on each host, by all its threads that ranks use, and summed. */
FO_CHECKED fo_status fo_processes_peak(struct fo_processes *p, enum fo_numerics precision, int threads,
				       struct fo_peak *out);
/* Opens the text for training in `dir` everywhere: with this checksum. */
FO_CHECKED fo_status fo_processes_data(struct fo_processes *p, const char *dir, uint64_t checksum);
/* The others' own rows of `batches` batches of evaluation, from the held-out text there. */
FO_CHECKED fo_status fo_processes_eval_data(struct fo_processes *p, const char *dir, uint64_t checksum,
					    const struct fo_batch_shape *shape, int64_t batches, int32_t pad);
/* Loaders of the others' own rows. shape: of all ranks together. shard: rank 0's, of the same text. *order: for rank
 * 0's loader, which is closed before the next call and before fo_processes_close; may be NULL. */
FO_CHECKED fo_status fo_processes_loader(struct fo_processes *p, const struct fo_shard *shard,
					 const struct fo_batch_shape *shape, const struct fo_loader_state *from,
					 int32_t pad, struct fo_order_share **order);

#endif
