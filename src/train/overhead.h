/* The executor's own cost per operation: the time of a step whose kernels return at once, over its operations. */
#ifndef FO_TRAIN_OVERHEAD_H
#define FO_TRAIN_OVERHEAD_H

#include "base/err.h"

struct fo_overhead;
/* A step program of a small Llama (4 layers) in memory. */
FO_CHECKED fo_status fo_overhead_new(struct fo_overhead **out);
void fo_overhead_free(struct fo_overhead *o);
/* Operations of a step. */
int fo_overhead_operations(const struct fo_overhead *o);
/* Runs one step: a fo_meter_span function. */
void fo_overhead_run(void *overhead);

#endif
