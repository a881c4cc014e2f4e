/* Which hardware threads belong to which core and memory node, and how ranks of one host share them. */
#ifndef FO_HW_TOPOLOGY_H
#define FO_HW_TOPOLOGY_H

#include "hw/state.h"

/* By number of the hardware thread. */
struct fo_topology {
	int core[FO_CPUS_MAX]; /* the lowest of those that share its core; -1: it is not there */
	int node[FO_CPUS_MAX]; /* its memory node; 0 where the system does not tell */
};
/* Of this machine, or of the tree below `root` (tests). Where the system does not tell, each hardware thread is a core
 * and all are of one node. */
void fo_topology_read(struct fo_topology *t, const char *root);

/* Divides the hardware threads `allowed` among `ranks` ranks; share[i] is rank i's. Each gets equally many whole cores
 * with all of their allowed hardware threads: whole memory nodes first, then cores of one node wherever there are
 * enough. What remains goes, a core each, to ranks that are in its node already. With fewer cores than ranks the
 * hardware threads are divided evenly; with fewer of these than ranks nothing is, and each share is `allowed`. A pure
 * function. Returns the least number of hardware threads that a rank has for itself, at least 1. */
int fo_topology_share(const struct fo_topology *t, const struct fo_cpus *allowed, int ranks, struct fo_cpus *share);
/* The same for this machine and what this thread may use. Returns the threads that a rank may have: no more than its
 * part of what the control group grants. Shares are empty where the system does not tell what may be used. */
int fo_topology_share_here(int ranks, struct fo_cpus *share);
/* What this thread may use; empty: the system does not tell. */
void fo_cpus_here(struct fo_cpus *set);
/* Binds this thread, and those that it starts from now on, to the set; 0, or the errno of the system's refusal. */
int fo_cpus_bind(const struct fo_cpus *set);

#endif
