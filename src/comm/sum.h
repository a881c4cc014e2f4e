/* Sums and maxima over ranks: the same bits whatever carried the numbers. */
#ifndef FO_COMM_SUM_H
#define FO_COMM_SUM_H

#include "comm/comm.h"

/* to[i] = over r of from[r][i], for n elements of dtype (bf16, fp32, fp64), in the order of r and in the type's own
 * precision; bf16 numbers are summed in fp32 and rounded once. A NaN stays one. `to` may be one of from[]. */
void fo_comm_reduce(const void *const *from, int ranks, int64_t n, int dtype, enum fo_comm_op op, void *to);

#endif
