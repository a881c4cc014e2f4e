#include "base/index.h"

#include "base/mem.h"

#include <stdlib.h>

/* In the order in which they came, where what is looked up together often lies together. */
struct fo_index_entry {
	int64_t a, b;
	int32_t number;
};

/* The place of the entry of (a, b) in slot[], or the free one that it would take. */
static size_t slot_of(const struct fo_index *x, int64_t a, int64_t b)
{
	/* Odd multipliers spread the bits; 16 numbers in a row, as most ids come, share a line of the cache. */
	uint64_t h = ((uint64_t)a >> 4) * 0x9e3779b97f4a7c15u ^ (uint64_t)b * 0xff51afd7ed558ccdu;
	size_t at = (size_t)((h ^ h >> 32) << 4 | (a & 15)) & (x->slots - 1);
	for (; x->slot[at]; at = (at + 1) & (x->slots - 1)) {
		const struct fo_index_entry *e = &x->entry[x->slot[at] - 1];
		if (e->a == a && e->b == b)
			break;
	}
	return at;
}

static void grow(struct fo_index *x)
{
	x->slots = x->slots ? 2 * x->slots : 64;
	free(x->slot);
	x->slot = fo_xmalloc(x->slots * sizeof *x->slot);
	for (size_t i = 0; i < x->n; i++)
		x->slot[slot_of(x, x->entry[i].a, x->entry[i].b)] = (uint32_t)i + 1;
}

int32_t fo_index_find(const struct fo_index *x, int64_t a, int64_t b)
{
	uint32_t found = x->n ? x->slot[slot_of(x, a, b)] : 0;
	return found ? x->entry[found - 1].number : -1;
}

int32_t fo_index_add(struct fo_index *x, int64_t a, int64_t b, int32_t number)
{
	if (2 * x->n >= x->slots)
		grow(x);
	uint32_t *slot = &x->slot[slot_of(x, a, b)];
	if (*slot)
		return x->entry[*slot - 1].number;
	fo_array_room(&x->entry, &x->cap, x->n, sizeof *x->entry);
	x->entry[x->n++] = (struct fo_index_entry){ a, b, number };
	*slot = (uint32_t)x->n;
	return number;
}

void fo_index_fini(struct fo_index *x)
{
	free(x->entry);
	free(x->slot);
	*x = (struct fo_index){ 0 };
}
