/* How long operations of communication take between ranks.
 *
 * Ranks move data themselves: a call takes what was measured over the same transport (`flatout calibrate --ranks=N`:
 * threads of one process; the same command started by mpirun: processes over MPI) of calls of its kind in groups of its
 * size, a line through the sizes measured. Links may be emulated on top
 * (mesh.link-gbps, mesh.link-us): as in that transport, a rank's link carries one call after the other, a call takes
 * its latency and the bytes of the rank that receives most, and the ranks' own work goes on meanwhile. */
#ifndef FO_COST_LINKS_H
#define FO_COST_LINKS_H

#include "cost/cost.h"

/* Rows of a profile that stand for calls between ranks: kind as in ops.def of the operation on one tensor, this
 * variant, set the transport, threads and dim[0] ranks, dim[1] and bytes what a rank receives, dim[2] how far apart
 * the group's ranks are numbered: 1, 2, 3 are one apart, 0, 4, 8 are four. On several hosts neighbours share one, and
 * others are reached over a network. 0: measured on one host, where it makes no difference. */
#define FO_LINK_VARIANT "ranks"
#define FO_LINK_THREADS "threads" /* set of ranks that are threads of one process (comm/local.h) */
#define FO_LINK_MPI "mpi"         /* of processes (comm/mpi.h) */
bool fo_link_is_row(const struct fo_limits_row *row);
/* The name that calls of this kind have in such rows; NULL: none are measured. */
const char *fo_link_kind(enum fo_wire wire);

struct fo_link_rates {
	const struct fo_limits *limits; /* outlives this */
	const char *over;               /* FO_LINK_THREADS (NULL) or FO_LINK_MPI: rows of which transport */
	double copy_byte_s;             /* where nothing was measured; 0: not known */
	double byte_s, latency_s;       /* emulated; byte_s 0: as fast as memory */
};
struct fo_link_time {
	double hold_s; /* the links of the group's ranks are taken for so long */
	double own_s;  /* the call is not over before the ranks have done so much, from when the last of them came */
	/* EXACT: between sizes that were measured in such a group. NEAR: beyond them. GUESS: from groups of other
	 * sizes, of ranks otherwise apart, or other kinds of calls, or from the rate of copying. NONE: 0 s. */
	enum fo_sure sure;
};
/* Of one operation of class COMM: the same on each rank of its group. most: the bytes that the rank which receives
 * most gets, of each tensor, summed up. */
struct fo_link_time fo_link_op(const struct fo_link_rates *r, const struct fo_program *p, const struct fo_op *o,
			       double most);

/* Rows that stand for ranks that compute at once (kernel/crowd.h): this kind, one of these variants, threads of each
 * rank, dim[0] how many compute; times of the operations of a step. */
#define FO_CROWD_ROW "crowd"
#define FO_CROWD_TENSOR_ROW "tensor"
#define FO_CROWD_MEMORY_ROW "memory"

/* Ranks that compute at once share caches, memory and the units of a core: how many times as long one takes as alone,
 * measured of a run's own operations, between numbers of ranks that were; else from peaks and copies measured with
 * `threads` and with all of them. cores: of the machine; 0: not known. known is false where the profile does not tell,
 * and the factors then say only that more threads than cores take turns. */
struct fo_crowd {
	double tensor, memory;
	bool known, measured; /* measured: by operations, not by peaks */
};
struct fo_crowd fo_rates_crowd(const struct fo_rates *r, int ranks, int cores);

#endif
