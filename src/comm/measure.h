/* How long calls between ranks take, of this process or of many: the rows of a machine profile that predictions of
 * several ranks go by (cost/links.h). Every group of 2 ranks or more that divides `ranks` is measured by itself,
 * each kind of call at some sizes; a call counts from when its last rank came until the mean of when its ranks saw
 * its end, as the executor sees it. Nothing computes meanwhile. */
#ifndef FO_COMM_MEASURE_H
#define FO_COMM_MEASURE_H

#include "comm/comm.h"
#include "hw/profile.h"

/* Ranks that are threads of this process. seconds: how long, all together. The rows replace those of groups of the same
 * size over the same transport in *m. progress may be NULL. */
FO_CHECKED fo_status fo_comm_measure(int ranks, double seconds, struct fo_limits *m,
				     void (*progress)(void *ctx, const char *what, double share), void *ctx);
/* Ranks of a world over MPI, each of which calls it. Groups are neighbours, on several hosts also ranks 2, 4 ...
 * apart; those of one kind are measured at once, as in a step. The rows are rank 0's, whose m counts; elsewhere m may
 * be NULL. one_host: else clocks are compared first, and times of less than some tens of microseconds are not more
 * than that exact. */
FO_CHECKED fo_status fo_comm_measure_world(struct fo_comm *world, bool one_host, double seconds, struct fo_limits *m,
					   void (*progress)(void *ctx, const char *what, double share), void *ctx);
/* Rows of *from that stand for calls replace those of groups of the same size over the same transport in *m. */
void fo_comm_measure_replace(struct fo_limits *m, const struct fo_limits *from);

#endif
