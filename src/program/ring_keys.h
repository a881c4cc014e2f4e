/* Where the tokens of a row lie that the ranks of a ring share, and which keys a query sees among those of another
 * rank: the arithmetic of program/ring.h, which says the rest, for the processor and for CUDA kernels. */
#ifndef FO_PROGRAM_RING_KEYS_H
#define FO_PROGRAM_RING_KEYS_H

#include "base/both.h"

#include <stdint.h>

/* lse of a query that sees no key: finite, so that differences stay defined, and far below any score. */
#define FO_RING_UNSEEN (-1e30)

/* Places in rows. Kernels of devices, where a division of 64 bits is a call, are given whole rows of less than 2^31
 * tokens. */
#if defined __CUDACC__ || defined FO_SIMT
typedef int32_t fo_ring_int;
#else
typedef int64_t fo_ring_int;
#endif

/* As attributes of attention_block* have it (program.h). */
struct fo_key_ring {
	int32_t cp, place, peer, chunk;
};
/* Keys first .. end - 1 of the operand k; first == end: none. */
struct fo_ring_keys {
	fo_ring_int first, end;
};

FO_BOTH fo_ring_int fo_ring_clamp(fo_ring_int x, fo_ring_int low, fo_ring_int high)
{
	if (x > high)
		x = high;
	return x < low ? low : x;
}

/* The place in its row of token i of rank `rank`. */
FO_BOTH fo_ring_int fo_ring_place(fo_ring_int cp, fo_ring_int rank, fo_ring_int chunk, fo_ring_int i)
{
	const fo_ring_int in = i % (2 * chunk);
	return in < chunk ? rank * chunk + in : (2 * cp - 1 - rank) * chunk + in - chunk;
}

/* How many of a rank's tokens of a row come before place x of it. */
FO_BOTH fo_ring_int fo_ring_before(fo_ring_int cp, fo_ring_int rank, fo_ring_int chunk, fo_ring_int x)
{
	return fo_ring_clamp(x - rank * chunk, 0, chunk) + fo_ring_clamp(x - (2 * cp - 1 - rank) * chunk, 0, chunk);
}

/* The keys that query i of rank `place` sees, of the rank `peer` places before it. doc_start: where its document
 * begins, among the tokens of all rows of the group; what lies outside of its row is clamped. window: keys that it sees
 * at most, 0: all. Neither end decreases from query to query where doc_start does not. */
FO_BOTH struct fo_ring_keys fo_ring_see(const struct fo_key_ring *r, fo_ring_int window, fo_ring_int i,
					fo_ring_int doc_start)
{
	const fo_ring_int chunk = r->chunk, cp = r->cp, of = (r->place - r->peer + cp) % cp, row = i / (2 * chunk),
			  at = fo_ring_place(cp, r->place, chunk, i);
	fo_ring_int low = fo_ring_clamp(doc_start - row * 2 * cp * chunk, 0, at);
	struct fo_ring_keys see;
	if (window && low < at - window + 1)
		low = at - window + 1;
	see.first = row * 2 * chunk + fo_ring_before(cp, of, chunk, low);
	see.end = row * 2 * chunk + fo_ring_before(cp, of, chunk, at + 1);
	return see;
}

#endif
