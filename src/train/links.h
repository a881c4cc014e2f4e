/* What links a rank to the others: a communicator for each group of its mesh and each lane that a program uses there.
 *
 * A communicator wants its calls in the same order on every rank. Operations of one lane start in the program's order;
 * those of two lanes start as data allow, so each lane has communicators of its own. What one rank sends on a lane
 * another receives on the lane's partner: these two share theirs.
 *
 * Over NCCL sends and receives have a communicator of two ranks for each direction between two stages. NCCL does the
 * calls of a communicator one by one, in the order in which the host makes them, on whatever streams. With one for the
 * whole group a stage's receive, which waits for the stage before, would hold back its send of what is done already;
 * with one for both directions two stages that each list their receive first would wait for each other forever. A
 * communicator of one direction has calls of one lane at either end, in the order of one stream. */
#ifndef FO_TRAIN_LINKS_H
#define FO_TRAIN_LINKS_H

#include "comm/comm.h"
#include "program/program.h"

struct fo_cuda;
struct fo_links {
	struct fo_comm *world;                             /* all ranks; the caller's, who closes it after the links */
	struct fo_comm *of[FO_GROUP_COUNT][FO_LANE_COUNT]; /* of a pair of lanes the one that sends */
	/* With streams: by stage, of what a lane sends there or receives from there; NULL: nothing. */
	struct fo_comm **pair[FO_LANE_COUNT];
	int stages;
	bool streams; /* calls are of devices and go into their streams (NCCL); the world is of the host all the same */
};
/* Splits the world as p needs it, and `other` (NULL: none), which never runs at the same time. Every rank of the world
 * calls it, with its own programs of one mesh. nccl: this rank's device, which has groups over NCCL; NULL: calls go
 * over the world's own transport, on every rank. *l is closed with fo_links_close, whatever was returned. */
FO_CHECKED fo_status fo_links_open(struct fo_links *l, struct fo_comm *world, const struct fo_program *p,
				   const struct fo_program *other, struct fo_cuda *nccl);
/* FO_ECOMM: another rank has given up, or a call went wrong meanwhile. */
FO_CHECKED fo_status fo_links_check(const struct fo_links *l);
/* Ends what runs over links with streams; the world stays as it is. */
void fo_links_abort(struct fo_links *l);
/* The communicator of an operation. *peer: the other rank's number there, where it is a send or a receive. */
struct fo_comm *fo_links_of(const struct fo_links *l, const struct fo_op *o, int *peer);
/* Bytes that came over the links of a group by calls of this kind, since they were opened. */
int64_t fo_links_received(const struct fo_links *l, enum fo_group g, enum fo_comm_kind k);
void fo_links_close(struct fo_links *l);
/* Bytes that the links of these programs take for pieces of sums, where ranks are processes. */
int64_t fo_links_bytes(const struct fo_program *p, const struct fo_program *other);

/* An operation of class COMM that was started and is not over: the calls of its tensors. */
struct fo_transfer {
	struct fo_comm *comm;
	struct fo_comm_request request[FO_MAX_OPERANDS];
	int n;
	bool moved;       /* by the newest test: more may be possible at once */
	int64_t until_ns; /* before then none of it will be over (fo_now_ns); 0: not known */
	int64_t *part;    /* room for a number per rank of the group; the owner's */
};

#endif
