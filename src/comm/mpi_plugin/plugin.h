/* What the program and its MPI plugin say to each other. The plugin (libflatout-mpi.so) is a library of our own, the
 * one file that is compiled with an MPI's header and linked to that MPI; the program loads it at run time
 * (comm/mpi.c) and knows nothing else of MPI. It moves bytes from rank to rank and has no algorithm in it.
 *
 * Calls may come from any thread, unless the plugin says that MPI allows one at a time; it then takes a lock of its
 * own. Those that return int return 0, or an error of MPI that `text` explains. */
#ifndef FO_COMM_MPI_PLUGIN_H
#define FO_COMM_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FO_MPI_ABI = 2 }; /* goes up with every change of this file */

/* What MPI says about this process once it has started. */
struct fo_mpi_world {
	void *comm; /* all ranks */
	int rank, ranks;
	int local_rank, local_ranks; /* among those that share memory with it: a host */
	int node, nodes;             /* hosts in the order of their first ranks */
	int tag_most;                /* tags go from 0 to it */
	bool one_thread;             /* MPI allows calls from this thread alone */
};

/* Messages that are under way together. */
struct fo_mpi_batch;
/* What went wrong with a message of a batch. */
struct fo_mpi_fault {
	int peer;              /* -1: nothing is wrong, or it is not known with whom */
	bool receive;          /* it was to come from there */
	int64_t got, expected; /* bytes; got -1: not known */
};

struct fo_mpi_plugin {
	int abi;              /* FO_MPI_ABI of the build; what follows is read only where it is ours */
	const char *made_for; /* the MPI that the plugin was compiled with: "Open MPI 4.1.4" */
	/* Starts MPI. The memory of *out stays the caller's. */
	int (*start)(struct fo_mpi_world *out);
	/* Ends MPI. All ranks call it; MPI cannot be started again in this process. */
	int (*finish)(void);
	/* What an error says, as MPI has it. */
	void (*text)(int error, char *out, size_t size);

	/* The ranks of `comm` that name the same colour, in their order. All ranks of comm call it, and wait in it. */
	int (*split)(void *comm, int colour, void **out, int *rank, int *ranks);
	/* `out` has the same ranks as comm. All ranks of comm call it. */
	int (*copy)(void *comm, void **out);
	void (*release)(void *comm); /* all ranks of comm call it */

	/* Room for so many messages at once; NULL: no memory. */
	struct fo_mpi_batch *(*batch_new)(int messages);
	void (*batch_free)(struct fo_mpi_batch *b); /* what is under way is left to itself */
	/* Adds a message of `bytes`, at most INT_MAX; memory stays until it is over. */
	int (*send)(struct fo_mpi_batch *b, void *comm, const void *from, int64_t bytes, int peer, int tag);
	/* peer < 0: from any rank; then fewer bytes may come. */
	int (*receive)(struct fo_mpi_batch *b, void *comm, void *to, int64_t bytes, int peer, int tag);
	/* *over: all messages are; the batch is empty then. Else *fault names the message of an error, or one that
	 * brought too few bytes (0 is returned, and a peer is named). */
	int (*test)(struct fo_mpi_batch *b, bool *over, struct fo_mpi_fault *fault);
	/* Receives of which nothing has come are given up: `test` says that they are over, with no bytes. The others,
	 * and what is sent, go on. */
	void (*cancel)(struct fo_mpi_batch *b);
};

/* The one function that the plugin exports: FO_MPI_ENTRY. */
#define FO_MPI_ENTRY "fo_mpi_plugin"
typedef const struct fo_mpi_plugin *fo_mpi_entry(void);

#endif
