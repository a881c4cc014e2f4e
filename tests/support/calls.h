/* Calls between ranks, drawn at random and alike on every rank: kinds, types, sizes, parts of unlike size, in place. */
#ifndef TESTS_SUPPORT_CALLS_H
#define TESTS_SUPPORT_CALLS_H

#include "comm/comm.h"

enum { DRAWN_RANKS_MOST = 8, DRAWN_MOST = 5000 }; /* elements of a part */
/* Inputs that travel as bf16 are multiplied by it, so that they have more bits than bf16 has. */
#define DRAWN_FINE (1 + 0x1p-10)
struct drawn_call {
	struct fo_comm_call call;
	int64_t part[DRAWN_RANKS_MOST];
	struct fo_comm_request request;
	uint64_t salt;
	char *from, *to;
	size_t from_n, to_n; /* elements */
	void *own[2];
};
/* Call `number` of `seed`, with the input of this rank. rough: numbers whose sums are rounded, some of them infinite or
 * no numbers; else small multiples of 1/8, so that sums in any type are exact. */
void draw_call(struct drawn_call *o, uint64_t seed, uint64_t number, int rank, int ranks, bool rough);
/* Element i of rank r's input. */
double drawn_input(uint64_t salt, int rank, int64_t i, bool rough);
/* What a call that adds to its output finds there. */
double drawn_before(const struct drawn_call *o, int64_t i, bool rough);
void drawn_free(struct drawn_call *o);

#endif
