/* How much of the text a number of steps is made of. */
#include "base/count.h"
#include "data/data_int.h"

#include <stdlib.h>

enum { JOIN_AT = 1 << 20 }; /* pieces that are kept before those that touch are joined: 16 MiB */

struct stretch {
	int64_t from, to; /* tokens of the shard */
};
struct seeing {
	const struct fo_shard *shard;
	const volatile sig_atomic_t *stop;
	struct stretch *piece;
	size_t n, cap, join_at;
	int64_t served;
};

static int by_begin(const void *a, const void *b)
{
	return fo_order(((const struct stretch *)a)->from, ((const struct stretch *)b)->from);
}

static void join(struct seeing *s)
{
	size_t n = 0;
	if (!s->n)
		return;
	qsort(s->piece, s->n, sizeof *s->piece, by_begin);
	for (size_t i = 1; i < s->n; i++) {
		struct stretch *last = &s->piece[n], p = s->piece[i];
		if (p.from > last->to)
			s->piece[++n] = p;
		else if (p.to > last->to)
			last->to = p.to;
	}
	s->n = n + 1;
}

static bool see(void *ctx, const struct fo_piece *p)
{
	struct seeing *s = ctx;
	int64_t from = s->shard->doc_at[p->doc] + p->from;
	if (s->n == s->join_at) {
		join(s);
		s->join_at = 2 * s->n > JOIN_AT ? 2 * s->n : JOIN_AT; /* so that sorting stays n log n */
	}
	fo_array_room(&s->piece, &s->cap, s->n, sizeof *s->piece);
	s->piece[s->n++] = (struct stretch){ from, from + p->tokens };
	s->served += p->tokens;
	return !s->stop || !*s->stop;
}

fo_status fo_text_seen(const struct fo_shard *s, const struct fo_batch_shape *shape, uint64_t seed, int64_t steps,
		       const volatile sig_atomic_t *stop, struct fo_text_seen *out)
{
	struct seeing v = { .shard = s, .stop = stop, .join_at = JOIN_AT };
	fo_status st = fo_batch_pieces(s, shape, seed, 0, steps, see, &v);
	if (st == FO_OK && stop && *stop)
		st = fo_fail(FO_EINTERRUPT, "stopped while counting how much of the text the rungs see");
	join(&v);
	*out = (struct fo_text_seen){ .served = v.served, .reached = s->tokens };
	for (int64_t d = 0; d < s->docs && shape->packing == FO_PACK_PADDED; d++)
		out->reached -= fo_max(shard_doc_length(s, d) - shape->seq, 0);
	for (size_t i = 0; i < v.n; i++)
		out->distinct += v.piece[i].to - v.piece[i].from;
	free(v.piece);
	return st;
}
