/* An index: which number belongs to a pair of whole numbers, ids that a file gives for example. A hash table; a zeroed
 * one is empty. */
#ifndef FO_BASE_INDEX_H
#define FO_BASE_INDEX_H

#include <stddef.h>
#include <stdint.h>

struct fo_index {
	struct fo_index_entry *entry;
	uint32_t *slot; /* index in entry[] + 1, 0: empty; a power of two of them, or none */
	size_t slots, n, cap;
};
/* The number of (a, b); -1: it has none. */
int32_t fo_index_find(const struct fo_index *x, int64_t a, int64_t b);
/* The same, but a pair that has no number gets this one. */
int32_t fo_index_add(struct fo_index *x, int64_t a, int64_t b, int32_t number);
void fo_index_fini(struct fo_index *x);

#endif
