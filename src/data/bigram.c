/* The bigram baseline: p(b | a) = (c(ab) + k p(b)) / (c(a) + k), p(b) = (c(b) + 1) / (N + V), with k chosen on a slice
 * of the training text that the counts for the choice do not see (MacKay and Peto 1995, the hierarchical Dirichlet
 * model). Counts are of tokens that follow another one in a document, which are those that a model is trained on. */
#include "data/data_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KS 20 /* k = 2^-3 .. 2^16 in powers of two */
#define FIRST_LOG_K (-3)
#define SLICE 10   /* one tenth of train chooses k */
#define BLOCK 4096 /* tokens: the slices of a shard with few documents */

struct counts {
	uint64_t *key; /* (a + 1) << 32 | b; 0 is free */
	int64_t *count;
	size_t slots, used;
	int64_t *before, *after; /* by id: occurrences as a and as b */
	int64_t vocab, total;
};

static size_t find(const struct counts *c, uint64_t key)
{
	size_t at = tok_pair_hash((int32_t)(key >> 32), (int32_t)(uint32_t)key) & (c->slots - 1);
	while (c->key[at] && c->key[at] != key)
		at = (at + 1) & (c->slots - 1);
	return at;
}

static fo_status counts_new(struct counts *c, size_t slots)
{
	void *key, *count;
	FO_TRY(fo_pages_new(slots * sizeof *c->key, &key));
	fo_status st = fo_pages_new(slots * sizeof *c->count, &count);
	if (st != FO_OK) {
		fo_pages_free(key, slots * sizeof *c->key);
		return st;
	}
	c->key = key;
	c->count = count;
	c->slots = slots;
	return FO_OK;
}

static void counts_free(struct counts *c)
{
	fo_pages_free(c->key, c->slots * sizeof *c->key);
	fo_pages_free(c->count, c->slots * sizeof *c->count);
}

static fo_status counts_grow(struct counts *c)
{
	struct counts old = *c;
	FO_TRY(counts_new(c, old.slots * 2));
	for (size_t i = 0; i < old.slots; i++) {
		if (!old.key[i])
			continue;
		size_t at = find(c, old.key[i]);
		c->key[at] = old.key[i];
		c->count[at] = old.count[i];
	}
	counts_free(&old);
	return FO_OK;
}

static fo_status counts_add(struct counts *c, int64_t a, int64_t b)
{
	if (3 * (c->used + 1) > 2 * c->slots)
		FO_TRY(counts_grow(c));
	uint64_t key = (uint64_t)(a + 1) << 32 | (uint64_t)b;
	size_t at = find(c, key);
	c->used += !c->key[at];
	c->key[at] = key;
	c->count[at]++;
	c->before[a]++;
	c->after[b]++;
	c->total++;
	return FO_OK;
}

/* Does token i of document d belong to the slice that chooses k? */
static bool in_slice(const struct fo_shard *s, int64_t d, int64_t i)
{
	return s->docs >= 2 * SLICE ? d % SLICE == SLICE - 1 : i / BLOCK % SLICE == SLICE - 1;
}

/* Counts the part of a shard that is (slice = 1) or is not (0) in the slice, or all of it (-1). */
static fo_status count_shard(struct counts *c, const struct fo_shard *s, int slice)
{
	for (int64_t d = 0; d < s->docs; d++)
		for (int64_t i = s->doc_at[d] + 1; i < s->doc_at[d + 1]; i++)
			if (slice < 0 || in_slice(s, d, i) == slice)
				FO_TRY(counts_add(c, shard_id(s, i - 1), shard_id(s, i)));
	return FO_OK;
}

/* Sums of -ln p over a shard's part as in count_shard, for n values of k. Returns how many tokens were predicted. */
static int64_t score(const struct counts *c, const struct fo_shard *s, int slice, const double *k, int n, double *nats)
{
	int64_t predicted = 0;
	for (int m = 0; m < n; m++)
		nats[m] = 0;
	for (int64_t d = 0; d < s->docs; d++)
		for (int64_t i = s->doc_at[d] + 1; i < s->doc_at[d + 1]; i++) {
			if (slice >= 0 && in_slice(s, d, i) != slice)
				continue;
			int64_t a = shard_id(s, i - 1), b = shard_id(s, i);
			size_t at = find(c, (uint64_t)(a + 1) << 32 | (uint64_t)b);
			double ab = c->key[at] ? (double)c->count[at] : 0;
			double p = ((double)c->after[b] + 1) / (double)(c->total + c->vocab);
			for (int m = 0; m < n; m++)
				nats[m] -= log((ab + k[m] * p) / ((double)c->before[a] + k[m]));
			predicted++;
		}
	return predicted;
}

static void forget(struct counts *c)
{
	memset(c->key, 0, c->slots * sizeof *c->key);
	memset(c->count, 0, c->slots * sizeof *c->count);
	memset(c->before, 0, (size_t)c->vocab * sizeof *c->before);
	memset(c->after, 0, (size_t)c->vocab * sizeof *c->after);
	c->used = 0;
	c->total = 0;
}

static fo_status measure(struct counts *c, const struct fo_shard *train, const struct fo_shard *val, double *nats)
{
	double k[KS], loss[KS], sum;
	int best = 0;
	for (int i = 0; i < KS; i++)
		k[i] = ldexp(1, FIRST_LOG_K + i);
	FO_TRY(count_shard(c, train, 0));
	if (score(c, train, 1, k, KS, loss) == 0)
		return fo_fail(FO_EARG, "train has %lld tokens in %lld documents, too few for a bigram model",
			       (long long)train->tokens, (long long)train->docs);
	for (int i = 1; i < KS; i++)
		if (loss[i] < loss[best])
			best = i;
	forget(c);
	FO_TRY(count_shard(c, train, -1));
	int64_t n = score(c, val, -1, &k[best], 1, &sum);
	if (!n)
		return fo_fail(FO_EARG, "the held-out shard has no token that follows another");
	*nats = sum / (double)n;
	return FO_OK;
}

fo_status fo_data_bigram_loss(const struct fo_shard *train, const struct fo_shard *val, double *nats)
{
	if (train->vocab != val->vocab || train->tokenizer_checksum != val->tokenizer_checksum)
		return fo_fail(FO_EARG, "the shards come from different tokenizers, of %lld and %lld tokens",
			       (long long)train->vocab, (long long)val->vocab);
	struct counts c = { .vocab = train->vocab };
	void *tables;
	size_t bytes = 2 * (size_t)c.vocab * sizeof *c.before;
	FO_TRY(fo_pages_new(bytes, &tables));
	c.before = tables;
	c.after = c.before + c.vocab;
	fo_status st = counts_new(&c, (size_t)1 << 16);
	if (st == FO_OK) {
		st = measure(&c, train, val, nats);
		counts_free(&c);
	}
	fo_pages_free(tables, bytes);
	return st;
}
