/* Ranks that are processes which MPI started, on one host or many.
 *
 * MPI itself is in a plugin (comm/mpi_plugin), which is found at run time: the file that FLATOUT_MPI_PLUGIN names,
 * else libflatout-mpi.so beside the program, else in ../lib/flatout from there. A program without it runs alone.
 *
 * What travels: each rank sends each other one what that one needs, in pieces, and adds up what it receives itself.
 * That moves the least bytes (fo_comm_wire_bytes), and sums go over the ranks in their order in the type's own
 * precision (bf16: in fp32, rounded once), as in a process (comm/local.h): the same ranks give the same bits,
 * whatever carries them. A broadcast goes along a tree. Memory for pieces: at most fo_comm_mpi_reserve() for each
 * communicator.
 *
 * Messages move while a rank tests; a thread must drive that. A rank that computes for long, or hangs, is not told
 * from one that is gone: fo_comm_idle does nothing here, since who waits for whom is not known over processes. */
#ifndef FO_COMM_MPI_H
#define FO_COMM_MPI_H

#include "comm/comm.h"

/* How this process was started, as the variables of launchers say: mpirun and mpiexec of Open MPI and of MPICH (and
 * those like it), srun --mpi=pmix, PMIx. */
struct fo_comm_launch {
	const char *by;              /* "Open MPI"; NULL: by no launcher */
	int rank, ranks;             /* 0 of 1 where by is NULL */
	int local_rank, local_ranks; /* on this host; -1: it does not say */
};
/* FO_EARG names the variable that makes no sense. Needs no plugin and changes nothing. ranks > 1: fo_comm_mpi_open. */
FO_CHECKED fo_status fo_comm_launched(struct fo_comm_launch *out);

struct fo_comm_mpi {
	int64_t piece;  /* bytes of a message at most; 0: as suits */
	uint64_t shake; /* seed of delays at random between tests; 0: none */
};
/* Gives this rank's end of all ranks; starts MPI the first time. Every rank calls it equally often: worlds are
 * apart, and the end of one by fo_comm_abort leaves another as it is. options may be NULL. FO_EUNSUPPORTED: no
 * plugin, one of another version, or an MPI that allows calls from one thread alone; FO_ECOMM: MPI does not start,
 * or finds other ranks than the launcher says. The last world that is closed ends MPI, which waits for all ranks and
 * cannot be started again; where that world was ended by fo_comm_abort, of this rank or another, the process ends
 * without. */
FO_CHECKED fo_status fo_comm_mpi_open(const struct fo_comm_mpi *options, struct fo_comm **world);
/* The plugin's file and what it was made for ("Open MPI 4.1.4"), or in *why one sentence that says why there is none.
 * Loads it, starts nothing. */
bool fo_comm_mpi_found(const char **file, const char **made_for, const char **why);

/* Where this rank is, as MPI says. Hosts are numbered by their first ranks. A group of the ranks of a host:
 * fo_comm_split(world, where.node, ...). */
struct fo_comm_where {
	int local_rank, local_ranks, node, nodes;
	char host[256]; /* name of this one; "" where the system does not say */
};
/* world: from fo_comm_mpi_open. */
struct fo_comm_where fo_comm_mpi_where(const struct fo_comm *world);
/* Bytes that a communicator of so many ranks keeps for pieces at most. */
int64_t fo_comm_mpi_reserve(int ranks);
/* Bytes of these that a communicator touches for reductions of at most `elements` elements, of all parts together, of
 * `size` bytes each. */
int64_t fo_comm_mpi_touches(int64_t elements, size_t size, int ranks);

#endif
