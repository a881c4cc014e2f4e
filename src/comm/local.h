/* Ranks as threads of one process. Whatever a program does with ranks can be tried here thousands of times a minute,
 * under sanitizers, with delays at random and links as slow as wanted.
 *
 * Data moves when a rank tests: each rank copies or adds what it receives itself. Sums go over the ranks in their
 * order, in the type's own precision (bf16: in fp32, rounded once), so the same ranks give the same bits whatever the
 * timing. */
#ifndef FO_COMM_LOCAL_H
#define FO_COMM_LOCAL_H

#include "comm/comm.h"

struct fo_comm_local {
	double bytes_s;   /* what a rank receives per second over its link; 0: as fast as memory */
	double latency_s; /* of each call, once all ranks of it are there */
	uint64_t shake;   /* seed of delays at random between the parts of a call; 0: none */
	/* Groups that are split off meet, check and count calls, and move no data: schedules without memory. */
	bool null;
};

/* Makes a group of `ranks` (1 to FO_COMM_LOCAL_MOST) and gives each rank's end. Every end is closed by its own rank;
 * what they share goes with the last. options may be NULL. */
enum { FO_COMM_LOCAL_MOST = 4096 };
FO_CHECKED fo_status fo_comm_local_open(int ranks, const struct fo_comm_local *options, struct fo_comm **out);

#endif
