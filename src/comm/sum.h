/* Sums and maxima over ranks: the same bits whatever carried the numbers. */
#ifndef FO_COMM_SUM_H
#define FO_COMM_SUM_H

#include "comm/comm.h"

/* to[i] = over r of from[r][i], for n elements of call k's dtype (bf16, fp32, fp64) by its op, in the order of r and in
 * the type's own precision; bf16 numbers are summed in fp32 and rounded once. A NaN stays one. `to` may be one of from[].
 * accumulate: what is in `to` comes first. narrow: inputs are rounded to bf16, and so is the sum of an all-reduce. */
void fo_comm_reduce(const struct fo_comm_call *k, const void *const *from, int ranks, int64_t n, void *to);

#endif
