/* The tokenizer's lookup tables: merges by their two ids, tokens by their bytes, characters that merges join. They are
 * complete when tok_index_new returns, and encoders on any number of threads read them. */
#include "data/data_int.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct merge_slot {
	int32_t a, b, out;
	uint32_t rank; /* + 1; 0: free */
};

struct tok_index {
	struct merge_slot *merge;
	size_t merges;  /* slots, a power of two */
	uint32_t *word; /* id + 1 by the token's bytes */
	size_t words;
	struct split *split; /* what encoders make theirs from; NULL with `sentence` */
	/* Pairs of characters that some merge joins, as a << 32 | b; 0: free. */
	uint64_t *join;
	size_t joins, join_slots;
	bool ascii_join[128][128];
};

static size_t table_size(size_t n)
{
	size_t slots = 1024;
	while (slots < 2 * n)
		slots *= 2;
	return slots;
}

int64_t tok_merge_rank(const struct tok_index *x, int32_t a, int32_t b, int32_t *out)
{
	for (size_t at = tok_pair_hash(a, b) & (x->merges - 1);; at = (at + 1) & (x->merges - 1)) {
		const struct merge_slot *m = &x->merge[at];
		if (!m->rank)
			return -1;
		if (m->a == a && m->b == b) {
			*out = m->out;
			return (int64_t)m->rank - 1;
		}
	}
}

static fo_status index_merges(const struct fo_tokenizer *t, struct tok_index *x)
{
	x->merges = table_size((size_t)t->merges);
	x->merge = fo_xmalloc(x->merges * sizeof *x->merge);
	for (int64_t i = 0; i < t->merges; i++) {
		const struct tok_merge *m = &t->merge[i];
		int32_t out;
		if (tok_merge_rank(x, m->a, m->b, &out) >= 0)
			return fo_fail(FO_EFORMAT, "merge %lld repeats an earlier one", (long long)i);
		size_t at = tok_pair_hash(m->a, m->b) & (x->merges - 1);
		while (x->merge[at].rank)
			at = (at + 1) & (x->merges - 1);
		x->merge[at] = (struct merge_slot){ m->a, m->b, m->out, (uint32_t)i + 1 };
	}
	return FO_OK;
}

static bool is_byte_fallback(const struct fo_tokenizer *t, int32_t id)
{
	return t->sentence && t->at[id + 1] - t->at[id] == 1 && t->byte_id[(unsigned char)t->bytes[t->at[id]]] == id;
}

static void index_words(const struct fo_tokenizer *t, struct tok_index *x)
{
	bool *added = fo_xmalloc((size_t)t->vocab * sizeof *added);
	for (size_t i = 0; i < t->specials; i++)
		added[t->special[i].id] = true;
	x->words = table_size((size_t)t->vocab);
	x->word = fo_xmalloc(x->words * sizeof *x->word);
	for (int32_t id = 0; id < t->vocab; id++) {
		size_t len = t->at[id + 1] - t->at[id];
		if (!len || added[id] || is_byte_fallback(t, id))
			continue;
		size_t at = XXH3_64bits(t->bytes + t->at[id], len) & (x->words - 1);
		while (x->word[at])
			at = (at + 1) & (x->words - 1);
		x->word[at] = (uint32_t)id + 1;
	}
	free(added);
}

int32_t tok_word(const struct fo_tokenizer *t, const char *bytes, size_t len)
{
	const struct tok_index *x = t->index;
	for (size_t at = XXH3_64bits(bytes, len) & (x->words - 1); x->word[at]; at = (at + 1) & (x->words - 1)) {
		int32_t id = (int32_t)x->word[at] - 1;
		if (t->at[id + 1] - t->at[id] == len && memcmp(t->bytes + t->at[id], bytes, len) == 0)
			return id;
	}
	return -1;
}

const struct split *tok_split(const struct fo_tokenizer *t) { return t->index->split; }

/* ---- SentencePiece's style: where a text can be cut ---- */

static size_t join_slot(const struct tok_index *x, uint64_t key)
{
	size_t at = tok_pair_hash((int32_t)(key >> 32), (int32_t)(uint32_t)key) & (x->join_slots - 1);
	while (x->join[at] && x->join[at] != key)
		at = (at + 1) & (x->join_slots - 1);
	return at;
}

bool tok_joins(const struct tok_index *x, uint32_t a, uint32_t b)
{
	if (a < 128 && b < 128)
		return x->ascii_join[a][b];
	uint64_t key = (uint64_t)a << 32 | b;
	return x->join[join_slot(x, key)] == key;
}

static void join_add(struct tok_index *x, uint32_t a, uint32_t b)
{
	if (a < 128 && b < 128) {
		x->ascii_join[a][b] = true;
		return;
	}
	if (2 * (x->joins + 1) > x->join_slots) {
		uint64_t *old = x->join;
		size_t slots = x->join_slots;
		x->join_slots = slots ? 2 * slots : 4096;
		x->join = fo_xmalloc(x->join_slots * sizeof *x->join);
		for (size_t i = 0; i < slots; i++)
			if (old[i])
				x->join[join_slot(x, old[i])] = old[i];
		free(old);
	}
	uint64_t key = (uint64_t)a << 32 | b;
	size_t at = join_slot(x, key);
	x->joins += !x->join[at];
	x->join[at] = key;
}

/* The characters on both sides of every merge's seam. Across any other pair no merge can ever reach. */
static void index_joins(const struct fo_tokenizer *t, struct tok_index *x)
{
	join_add(x, 0x10ffff, 0x10ffff); /* a noncharacter: so that there is a table to look into */
	for (int64_t i = 0; i < t->merges; i++) {
		const unsigned char *s = (const unsigned char *)t->bytes;
		size_t last = t->at[t->merge[i].a + 1] - 1;
		uint32_t a, b;
		while ((s[last] & 0xc0) == 0x80)
			last--;
		utf8_char(s + last, &a);
		utf8_char(s + t->at[t->merge[i].b], &b);
		join_add(x, a, b);
	}
}

/* ---- all of them ---- */

fo_status tok_index_new(struct fo_tokenizer *t)
{
	struct tok_index *x = t->index = fo_xmalloc(sizeof *x);
	FO_TRY(index_merges(t, x));
	index_words(t, x);
	if (t->sentence)
		index_joins(t, x);
	else
		FO_TRY(split_new(t->pattern, &x->split));
	return FO_OK;
}

void tok_index_free(struct tok_index *x)
{
	if (!x)
		return;
	free(x->merge);
	free(x->word);
	free(x->join);
	split_free(x->split);
	free(x);
}
