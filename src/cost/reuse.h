/* Which operands the caches still hold when an operation begins.
 *
 * A step touches far more memory than caches hold, so what an operation finds there depends on how much was touched
 * since: an activation that the operation before has written is there, a weight that forward read is not when backward
 * comes to it. The model is one cache of least recent use, the last level's size, fully associative: an operand is cold
 * when, since its bytes were touched last (by whatever lay there: arena bytes are reused), more bytes than that were
 * touched. Two steps are walked, so that the first finds what a step leaves. */
#ifndef FO_COST_REUSE_H
#define FO_COST_REUSE_H

#include "program/program.h"

/* Per instance: bit i is set where operand i is cold. The program is unrolled and planned; cache_bytes 0 (not known):
 * all operands are cold. To be freed with free(). */
uint32_t *fo_reuse_cold(const struct fo_program *p, const struct fo_unrolled *u, int64_t cache_bytes);

/* Bytes that an operation touches of operand i: the rectangle, of a table that is looked up one row per token. */
double fo_reuse_touched(const struct fo_program *p, const struct fo_op *o, int i);
/* The share, 0 to 1, of the bytes an operation touches that are in the operands of bit set `cold`. */
double fo_reuse_share(const struct fo_program *p, const struct fo_op *o, uint32_t cold);

#endif
