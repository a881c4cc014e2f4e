/* How much ranks that compute at once slow each other: the operations of a run's step, by one rank alone and by several
 * at the same time, in turns. Rows of a machine profile that predictions of several ranks go by (cost/links.h). */
#ifndef FO_KERNEL_CROWD_H
#define FO_KERNEL_CROWD_H

#include "hw/profile.h"
#include "kernel/kernel.h"

/* Ranks are threads of this process, each of `threads` threads, each with operands of its own. Measured are 1, 2, 4
 * ... and `ranks` of them: the operations of class tensor and of class memory of one rank's step, each distinct one
 * as often as it comes. The rows replace those of as many threads in *m. p: the program of a rank. FO_ENOMEM: *m is
 * as before. */
FO_CHECKED fo_status fo_crowd_measure(const struct fo_program *p, enum fo_isa isa, int threads, int ranks,
				      double seconds, struct fo_limits *m,
				      void (*progress)(void *ctx, const char *what, double share), void *ctx);

#endif
