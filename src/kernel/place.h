/* Which processors the threads of a run use ("run.affinity").
 *
 * Nothing is bound where one rank has the machine ("auto") or nothing is to be ("none"). Several ranks of this process
 * that share it have a share each ("auto", hw/topology.h): the first one's compute threads are bound to it here.
 *
 * A plan gives each thread of the compute lane one of the hardware threads that this process may use: first one on each
 * physical core, NUMA node by NUMA node. The run's other threads (loader, checkpoint, host lane) may use what is left,
 * or everything where nothing is. Cores and NUMA nodes come from hwloc; a list of hardware threads needs no library. */
#ifndef FO_KERNEL_PLACE_H
#define FO_KERNEL_PLACE_H

#include "base/err.h"
#include "hw/state.h"

struct fo_place {
	int threads;          /* 0: nothing is bound */
	bool shared;          /* all of them to `share`; else thread i to cpu[i] */
	int cpu[FO_CPUS_MAX]; /* number as the system counts hardware threads */
	struct fo_cpus allowed, others, share;
};

/* Plans `threads` compute threads. how: "auto", "none", "cores", or a list of hardware threads ("0,2,4-7").
 * allowed: NULL asks the system. synthetic: NULL, or a machine in hwloc's words (tests). FO_EARG: not a list,
 * processors that may not be used, or fewer of them than threads; FO_EUNSUPPORTED: "cores" in a build without hwloc. */
FO_CHECKED fo_status fo_place_plan(struct fo_place *p, const char *how, int threads, const struct fo_cpus *allowed,
				   const char *synthetic);
/* Plans those of the first of several ranks of this process. Its other threads (loader, checkpoints) serve all ranks
 * and may use all. */
void fo_place_share(struct fo_place *p, const struct fo_cpus *share, int threads);
/* The hardware threads that compute threads may use. */
struct fo_cpus fo_place_cpus(const struct fo_place *p);
/* Binds the calling thread, and the threads that it starts from now on, to p->others: before lanes and loader start. */
FO_CHECKED fo_status fo_place_others(const struct fo_place *p);
/* Binds the calling thread and its OpenMP team of p->threads: before the first step. */
FO_CHECKED fo_status fo_place_compute(const struct fo_place *p);
/* Undoes both for the calling thread and its team. */
void fo_place_undo(const struct fo_place *p);

#endif
