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

#include "base/count.h"
#include "program/program.h"

/* lse of a query that sees no key: finite, so that differences stay defined, and far below any score. */
#define FO_RING_UNSEEN (-1e30)

/* Keys first .. end - 1 of the operand k; first == end: none. */
struct fo_ring_keys {
	int64_t first, end;
};

/* The place in its row of token i of rank `rank`. */
static inline int64_t fo_ring_place(int64_t cp, int64_t rank, int64_t chunk, int64_t i)
{
	const int64_t in = i % (2 * chunk);
	return in < chunk ? rank * chunk + in : (2 * cp - 1 - rank) * chunk + in - chunk;
}

/* How many of a rank's tokens of a row come before place x of it. */
static inline int64_t fo_ring_before(int64_t cp, int64_t rank, int64_t chunk, int64_t x)
{
	return fo_clamp(x - rank * chunk, 0, chunk) + fo_clamp(x - (2 * cp - 1 - rank) * chunk, 0, chunk);
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

/* The keys that query i of attention_block* sees, of the rank attr.peer places before this one in the ring. doc_start:
 * where its document begins, among the tokens of all rows of the group; what lies outside of its row is clamped. */
static inline struct fo_ring_keys fo_ring_keys(const struct fo_attr *a, int64_t i, int64_t doc_start)
{
	const int64_t chunk = a->chunk, cp = a->cp, of = (a->place - a->peer + cp) % cp, row = i / (2 * chunk),
		      at = fo_ring_place(cp, a->place, chunk, i);
	int64_t low = fo_clamp(doc_start - row * 2 * cp * chunk, 0, at);
	if (a->window)
		low = fo_max(low, at - a->window + 1);
	return (struct fo_ring_keys){ row * 2 * chunk + fo_ring_before(cp, of, chunk, low),
				      row * 2 * chunk + fo_ring_before(cp, of, chunk, at + 1) };
}

#endif
