/* The ranks of a job on one thread: their instances come in an order drawn at random among all that lanes, waits and
 * calls permit. It is what threads with delays could do, without threads: the same order each time for a seed, and
 * orders that delays hardly ever give, because a lane or a rank may be held back as long as any other can go on. A
 * transfer stays on its way while other lanes go on. */
#ifndef FO_TESTS_SUPPORT_INTERLEAVE_H
#define FO_TESTS_SUPPORT_INTERLEAVE_H

#include "train/exec.h"

struct interleave;
/* Executors of rank 0 to ranks - 1, with links; they outlive it. */
struct interleave *interleave_new(struct fo_exec *const *exec, int ranks);
/* fo_exec_begin of each: what ranks make of weights alone they may make together. */
FO_CHECKED fo_status interleave_begin(struct fo_exec *const *exec, int ranks);
void interleave_free(struct interleave *v);
/* One step of all ranks. FO_EBUG: nothing can go on (each waits for another). */
FO_CHECKED fo_status interleave_step(struct interleave *v, uint64_t seed);
int64_t interleave_ran(const struct interleave *v); /* instances of all steps so far */

#endif
