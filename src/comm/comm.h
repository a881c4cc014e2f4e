/* Ranks that work together: a group's collective operations, whatever carries them (NCCL: nccl.h; one file per
 * transport).
 *
 * A communicator is one rank's end of a group of `ranks`. Every rank of it calls the same collectives in the same order
 * with the same counts and types; calls put work into a stream and return, as kernels do (stream: a CUstream where
 * memory is a device's). Nothing is allocated or synchronised by them, so that they can be captured into a graph where
 * the transport can.
 *
 * Threads: a communicator belongs to one thread at a time; fo_comm_check, fo_comm_idle and fo_comm_abort may be called
 * from another one while that thread waits.
 *
 * Meeting. How ranks find each other needs no launcher of a certain kind: rank 0 writes what a newcomer must know
 * (NCCL: an id of 128 bytes) into a file that all ranks can see, the others wait for it; when the group stands, rank 0
 * removes it. A file of another job, left by one that ended badly, is not taken for one's own: `job` is in it. */
#ifndef FO_COMM_COMM_H
#define FO_COMM_COMM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FO_COMM_RANKS_MAX = 1 << 16 };

/* A rank's place in its group, and the file in which ranks meet. */
struct fo_comm_place {
	int rank, ranks;
	char meet[512]; /* path of the file; needed where ranks > 1 */
	char job[64];   /* of this start alone, the same in all ranks: letters, digits, '.', '_', '-'; may be "" */
	double wait_s;  /* how long rank 0 is waited for */
};
/* Reads the place from FLATOUT_RANK and FLATOUT_RANKS (else SLURM_PROCID and SLURM_NTASKS; none of them: one rank),
 * FLATOUT_MEET, FLATOUT_JOB (else job, step and restart count of SLURM), FLATOUT_WAIT (seconds; 300). FO_EARG names the
 * variable that makes no sense. */
FO_CHECKED fo_status fo_comm_place_env(struct fo_comm_place *out);
/* Sends rank 0's `n` bytes, at most 4096, to all others. FO_ECOMM: they did not come in time. */
FO_CHECKED fo_status fo_comm_meet(const struct fo_comm_place *place, void *bytes, size_t n);
void fo_comm_met(const struct fo_comm_place *place); /* everybody has them: rank 0 removes the file */

enum fo_comm_op { FO_COMM_SUM, FO_COMM_MAX };
enum fo_comm_kind {
	FO_COMM_ALL_REDUCE,     /* to[i] = over all ranks of from[i]; from == to allowed */
	FO_COMM_ALL_GATHER,     /* to[r n + i] = from[i] of rank r; from may be its own part of to */
	FO_COMM_REDUCE_SCATTER, /* to[i] = over all ranks of from[rank n + i]; to may be its own part of from */
	FO_COMM_BROADCAST,      /* to[i] = from[i] of rank `peer`; from == to allowed */
	FO_COMM_SEND,           /* from[i] goes to rank `peer` */
	FO_COMM_RECV,           /* to[i] comes from rank `peer` */
	FO_COMM_ALL_TO_ALL,     /* to[r n + i] = from[rank n + i] of rank r */
	FO_COMM_SHIFT,          /* to[i] = from[i] of the rank before this one; before rank 0 is the last */
	FO_COMM_KINDS
};
const char *fo_comm_kind_name(enum fo_comm_kind k); /* "all-reduce" */
typedef void *fo_comm_stream;

/* A call of a collective operation. Memory does not overlap, or is the very same as the kind allows. */
struct fo_comm_call {
	enum fo_comm_kind kind;
	enum fo_comm_op op; /* of kinds that reduce */
	const void *from;
	void *to;
	int64_t n; /* elements of one rank's part; 0: nothing is done */
	int dtype; /* enum fo_dtype */
	int peer;  /* of kinds that name a rank */
	fo_comm_stream stream;
	/* Parts of unlike size, for all-gather and reduce-scatter: the elements of each rank's part, the same on every
	 * rank, in place of n; parts lie one behind the other. It stays until the call is over. NULL: all have n. */
	const int64_t *part;
	/* Of a reduce-scatter: to[i] = the sum of what is there and of all ranks' numbers, in this order. */
	bool accumulate;
	/* Of sums of fp32: numbers travel as bf16. Each rank's numbers, its own too, are rounded to nearest even and
	 * added in fp32. A reduce-scatter's sums stay as they are; those of an all-reduce are rounded again on their
	 * way to all, so that every rank has the same bits. */
	bool narrow;
	/* Room for this rank's part, where a call accumulates over a transport with streams; nobody else uses it until
	 * the call is over. */
	void *scratch;
};

struct fo_comm;
/* A call that was started and is not over. It belongs to whoever started it; nothing is freed. */
struct fo_comm_request {
	void *state; /* of the transport; NULL: over */
	int phase;
	int64_t until_ns; /* the newest test: it will not be over before (fo_now_ns); 0: the transport does not know */
};
/* The interface of a transport; its calls were checked. */
struct fo_comm_transport {
	const char *name;          /* "NCCL" */
	bool accumulates, narrows; /* else calls that ask for it are refused */
	/* NULL, both: calls are started and waited for. */
	fo_status (*call)(struct fo_comm *c, const struct fo_comm_call *k);
	fo_status (*group)(struct fo_comm *c, bool end);
	/* NULL: the transport has streams instead. */
	fo_status (*start)(struct fo_comm *c, const struct fo_comm_call *k, struct fo_comm_request *r);
	fo_status (*test)(struct fo_comm *c, struct fo_comm_request *r, bool *done);
	/* NULL: groups cannot be split. */
	fo_status (*split)(struct fo_comm *c, int colour, struct fo_comm **out);
	/* NULL, both: memory of the host. */
	fo_status (*alloc)(struct fo_comm *c, size_t bytes, void **out);
	void (*release)(struct fo_comm *c, void *memory);
	fo_status (*check)(struct fo_comm *c);
	void (*idle)(struct fo_comm *c, bool idle); /* NULL: nobody looks for ranks that wait for each other */
	/* NULL: nobody says that another rank has moved something. */
	void (*listen)(struct fo_comm *c, void (*moved)(void *ctx), void *ctx);
	void (*abort)(struct fo_comm *c);
	void (*close)(struct fo_comm *c);
};
/* Transports begin their own struct with it. */
struct fo_comm {
	const struct fo_comm_transport *transport;
	int rank, ranks, groups; /* groups: of calls that are open */
	int64_t received[FO_COMM_KINDS];
	struct fo_comm_request *open; /* calls between group begin and end, of transports without streams */
	size_t opens, cap;
};

static inline int fo_comm_rank(const struct fo_comm *c) { return c->rank; }
static inline int fo_comm_ranks(const struct fo_comm *c) { return c->ranks; }
/* Calls go into streams (fo_comm_call alone), and their memory is a device's. */
static inline bool fo_comm_has_streams(const struct fo_comm *c) { return c->transport->call != NULL; }

/* A call that carries n bytes, whatever they are: of kinds that add nothing. */
struct fo_comm_call fo_comm_bytes(enum fo_comm_kind kind, const void *from, void *to, size_t n, int peer);

/* Puts a call into its stream. Reductions take bf16, fp32 and fp64. How bf16 is summed is the transport's affair:
 * threads and MPI add in fp32 and round once, NCCL rounds to bf16 after each addition, so gradients are fp32 there
 * and at most travel as bf16 (narrow). Calls that only move data take any type. Send and receive block the stream
 * until the other rank came; two ranks that send to each other do so in a group. FO_EARG: a call that cannot be;
 * FO_ECOMM: a rank or the transport failed. */
FO_CHECKED fo_status fo_comm_call(struct fo_comm *c, const struct fo_comm_call *k);
/* Calls between begin and end start together, in whatever order suits the transport. */
FO_CHECKED fo_status fo_comm_group_begin(struct fo_comm *c);
FO_CHECKED fo_status fo_comm_group_end(struct fo_comm *c);

/* The same without a stream, for one thread that drives several calls at once: start returns at once, and each test
 * does what can be done by now. Calls of one communicator are started in the same order on every rank; tests may come
 * in any order. n is 0 on all ranks or on none. FO_EUNSUPPORTED: the transport has streams instead. */
FO_CHECKED fo_status fo_comm_start(struct fo_comm *c, const struct fo_comm_call *k, struct fo_comm_request *r);
FO_CHECKED fo_status fo_comm_test(struct fo_comm *c, struct fo_comm_request *r, bool *done);

/* Until this is called again (moved NULL: for good), moved(ctx) is called by other ranks' threads whenever they did
 * what a call of this rank may go on by, in any group split from c's world, and when the job ended. It must return at
 * once and call nothing of a communicator. true: the transport does so, and naps may be long; false: it cannot. One
 * listener a rank: the newest. */
bool fo_comm_listen(struct fo_comm *c, void (*moved)(void *ctx), void *ctx);
/* How long whoever drives calls sleeps between two tests, when nothing has moved since `since_ns`: little at first,
 * then a part of what it has waited, so that waiting takes next to nothing from those that compute; long where others
 * wake it (told); not beyond until_ns, where the transport knows that something will be over (0: it does not), and a
 * little less for a rank that has nothing else to do (rests), which spins for that while. */
int64_t fo_comm_nap_ns(int64_t since_ns, int64_t until_ns, bool told, bool rests);
/* A thread whose rank has nothing else to do asks: where something moved that short ago, or will be over that soon, it
 * lets others have the processor and returns true, for the next look at once. A small call is over within microseconds,
 * and to wake from a nap takes tens of them. After others have kept the processor for long it returns false for a
 * while: a thread that naps gets it back sooner. */
bool fo_comm_spin(int64_t since_ns, int64_t until_ns);
/* One or the other. */
void fo_comm_rest(int64_t since_ns, int64_t until_ns);

/* A group of those ranks that name the same colour (0 or more), in the order of their ranks here: an axis of a mesh.
 * Every rank of c calls it. *out is closed before c. FO_EUNSUPPORTED: the transport cannot. */
FO_CHECKED fo_status fo_comm_split(struct fo_comm *c, int colour, struct fo_comm **out);

/* Bytes that rank `rank` of `ranks` receives for a call, with the algorithm that moves least: what the accounting says
 * and what transports count. */
int64_t fo_comm_wire_bytes(const struct fo_comm_call *k, int rank, int ranks);
/* Bytes that this rank received so far, over c alone, by that formula; the same by calls of one kind. Calls count when
 * they are over, those of a stream when they are put into it. */
int64_t fo_comm_received(const struct fo_comm *c);
int64_t fo_comm_received_by(const struct fo_comm *c, enum fo_comm_kind k);
/* Elements of rank r's part, and where it begins: those of an all-reduce are n divided as evenly as can be. */
int64_t fo_comm_part(const struct fo_comm_call *k, int rank, int ranks, int64_t *begin);

/* Memory that suits the transport (NCCL: registered as a window of all ranks where possible), else the device's own.
 * Every rank calls it in the same order with the same size. It is freed before the communicator. */
FO_CHECKED fo_status fo_comm_alloc(struct fo_comm *c, size_t bytes, void **out);
void fo_comm_release(struct fo_comm *c, void *memory);

/* FO_ECOMM where something that was started went wrong meanwhile, on this rank or another. Does not wait. */
FO_CHECKED fo_status fo_comm_check(struct fo_comm *c);
/* Says whether this rank, in all groups split from c's world, does nothing but wait for calls that it has started (or
 * has nothing more to call). Starting a call, and the end of one, say that it is not. Where a call can never be over,
 * because the ranks that it lacks wait too, or are done, the job ends: FO_ECOMM from the tests of such calls, with who
 * never calls what. No time is involved: a rank that computes, reads or prepares is not idle, however long it takes. */
void fo_comm_idle(struct fo_comm *c, bool idle);
/* Ends what runs, also where other ranks hang; only fo_comm_close may follow. */
void fo_comm_abort(struct fo_comm *c);
/* Called after the streams have done what was put into them. */
void fo_comm_close(struct fo_comm *c);

#endif
