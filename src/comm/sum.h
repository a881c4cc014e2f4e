/* Sums and maxima over ranks: the same bits whatever carried the numbers. */
#ifndef FO_COMM_SUM_H
#define FO_COMM_SUM_H

#include "comm/comm.h"

/* to[i] = over r of from[r][i], for n elements of the reduction k (bf16, fp32, fp64), in the order of r and in the type's
 * own precision; bf16 numbers are summed in fp32 and rounded once. k->accumulate: `to` comes first. k->narrow: as comm.h
 * says; packed: from[] then holds bf16 numbers, rounded already. A NaN stays one. `to` may be one of from[]. */
void fo_comm_reduce(const void *const *from, int ranks, int64_t n, const struct fo_comm_call *k, bool packed, void *to);
/* fp32 numbers as bf16, rounded to nearest even, and back. */
void fo_comm_pack(const float *from, int64_t n, uint16_t *to);
void fo_comm_unpack(const uint16_t *from, int64_t n, float *to);

#endif
