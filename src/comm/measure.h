/* How long calls between ranks of this process take: the rows of a machine profile that predictions of several ranks go
 * by (cost/links.h). Every group of 2 ranks or more that divides `ranks` is measured by itself, each kind of call at
 * some sizes; a call counts from when its last rank came until the mean of when its ranks saw its end, as the executor
 * sees it. Nothing computes meanwhile. */
#ifndef FO_COMM_MEASURE_H
#define FO_COMM_MEASURE_H

#include "base/err.h"
#include "hw/profile.h"

/* seconds: how long, all together. The rows replace those of groups of the same size in *m. progress may be NULL. */
FO_CHECKED fo_status fo_comm_measure(int ranks, double seconds, struct fo_limits *m,
				     void (*progress)(void *ctx, const char *what, double share), void *ctx);

#endif
