/* Where the tokens of a row lie that the ranks of a cp group share, and which keys a query sees among those of another
 * rank (pass cp).
 *
 * A row of S tokens is cut into 2 cp chunks of S / (2 cp). Rank r has chunks r and 2 cp - 1 - r, one behind the other:
 * of the triangle of queries and keys that see each other each rank then has as much as any other. A rank's tokens are
 * those of its chunks, row by row.
 *
 * A query sees keys that are neighbours in their row, from the beginning of its document (or window) to itself. Among a
 * rank's tokens of that row they are neighbours too: if some are in both chunks, they are the last ones of the first
 * chunk and the first ones of the second. So a query's keys among those of any rank are a range.
 *
 * That is pass.cp=ring. With pass.cp=heads the tokens of a micro-batch's rows, one row behind the other, are cut into
 * cp stretches: rank r has tokens T r / cp to T (r + 1) / cp. */
#ifndef FO_PROGRAM_RING_H
#define FO_PROGRAM_RING_H

#include "program/program.h"
#include "program/ring_keys.h"

/* The ring of attention_block*. */
static inline struct fo_key_ring fo_ring_of(const struct fo_attr *a)
{
	return (struct fo_key_ring){ .cp = a->cp, .place = a->place, .peer = a->peer, .chunk = a->chunk };
}

/* pass.cp=heads. Of `heads` heads each of cp ranks has so many; 0: they cannot be shared so that each has equally many
 * whole ones. Fewer heads than ranks are the same on neighbours. */
static inline int64_t fo_heads_each(int64_t heads, int64_t cp)
{
	if (heads % cp == 0)
		return heads / cp;
	return cp % heads == 0;
}

/* The first of a rank's heads. */
static inline int64_t fo_heads_first(int64_t heads, int64_t cp, int64_t rank) { return heads * rank / cp; }

/* The keys that query i of attention_block* sees (fo_ring_see). */
static inline struct fo_ring_keys fo_ring_keys(const struct fo_attr *a, int64_t i, int64_t doc_start)
{
	const struct fo_key_ring r = fo_ring_of(a);
	return fo_ring_see(&r, a->window, i, doc_start);
}

#endif
