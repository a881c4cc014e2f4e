/* The order of a shard's documents in an epoch. */
#include "data/data_int.h"

#include "base/clock.h"

int64_t pack_pieces(const struct fo_shard *s, int64_t seq)
{
	int64_t n = 0;
	for (int64_t d = 0; d < s->docs; d++)
		n += (shard_doc_length(s, d) + seq - 1) / seq;
	return n;
}

struct epoch_order epoch_order_of(const struct fo_shard *s, const struct fo_batch_shape *shape, uint64_t seed)
{
	struct epoch_order o = { .shard = s, .seed = seed, .epoch = -1 };
	if (shape->packing == FO_PACK_SPLIT) {
		o.seq = shape->seq;
		o.rows = pack_pieces(s, shape->seq);
	}
	return o;
}

/* A permutation of the documents (Fisher and Yates; the draws depend on seed, epoch and place only) and the tokens
 * before each. The modulo's bias is below documents / 2^64. */
void epoch_order_build(struct epoch_order *o, int64_t epoch)
{
	const struct fo_shard *s = o->shard;
	if (o->epoch == epoch)
		return;
	uint64_t stream = fo_rng_u64(o->seed, (uint64_t)epoch);
	for (int64_t i = 0; i < s->docs; i++)
		o->doc[i] = i;
	for (int64_t i = s->docs - 1; i > 0; i--) {
		int64_t k = (int64_t)(fo_rng_u64(stream, (uint64_t)i) % (uint64_t)(i + 1)), d = o->doc[i];
		o->doc[i] = o->doc[k];
		o->doc[k] = d;
	}
	o->start[0] = 0;
	for (int64_t i = 0; i < s->docs; i++) {
		int64_t len = shard_doc_length(s, o->doc[i]);
		o->start[i + 1] = o->start[i] + (o->seq ? (len + o->seq - 1) / o->seq : len);
	}
	o->epoch = epoch;
}
