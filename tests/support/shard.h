/* A shard in memory, for tests of what reads one. */
#ifndef FO_TESTS_SUPPORT_SHARD_H
#define FO_TESTS_SUPPORT_SHARD_H

#include "base/rng.h"
#include "data/data.h"

#include <stdlib.h>

/* Documents of random length 1..longest, some five times that; ids count up from 1, 0 is padding. */
static inline struct fo_shard make_shard(int64_t docs, int64_t longest, uint64_t seed)
{
	int64_t *at = calloc((size_t)docs + 1, sizeof *at);
	for (int64_t d = 0; d < docs; d++) {
		int64_t len = 1 + (int64_t)(fo_rng_u64(seed, (uint64_t)d) % (uint64_t)longest);
		at[d + 1] = at[d] + (d % 7 == 3 ? len * 5 : len);
	}
	uint32_t *ids = calloc((size_t)at[docs], sizeof *ids);
	for (int64_t i = 0; i < at[docs]; i++)
		ids[i] = (uint32_t)i + 1;
	return (struct fo_shard){
		.tokens = at[docs], .docs = docs, .vocab = at[docs] + 1, .doc_at = at, .ids32 = ids, .checksum = 77
	};
}

static inline void drop_shard(struct fo_shard *s)
{
	free((void *)(uintptr_t)s->doc_at);
	free((void *)(uintptr_t)s->ids32);
}

#endif
