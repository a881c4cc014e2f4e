/* Distinct texts by number: names repeat by the million in a trace, so that each is kept once. */
#include "trace/trace_int.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct text {
	const char *at;
	uint64_t hash;
	size_t n;
};

struct fo_trace_texts {
	struct fo_arena arena;
	struct text *v;
	int32_t *slot; /* index + 1, open addressing; a power of two of them */
	size_t n, cap, slots;
};

struct fo_trace_texts *fo_trace_texts_new(void)
{
	struct fo_trace_texts *x = fo_xmalloc(sizeof(*x));
	x->slots = 1024;
	x->slot = fo_xmalloc(x->slots * sizeof(*x->slot));
	return x;
}

void fo_trace_texts_free(struct fo_trace_texts *x)
{
	if (!x)
		return;
	fo_arena_fini(&x->arena);
	free(x->v);
	free(x->slot);
	free(x);
}

static void grow(struct fo_trace_texts *x)
{
	free(x->slot);
	x->slots *= 2;
	x->slot = fo_xmalloc(x->slots * sizeof(*x->slot));
	for (size_t i = 0; i < x->n; i++) {
		size_t at = x->v[i].hash & (x->slots - 1);
		while (x->slot[at])
			at = (at + 1) & (x->slots - 1);
		x->slot[at] = (int32_t)i + 1;
	}
}

int32_t fo_trace_texts_add(struct fo_trace_texts *x, const char *text, size_t n)
{
	uint64_t hash = XXH3_64bits(text, n);
	size_t at = hash & (x->slots - 1);
	for (; x->slot[at]; at = (at + 1) & (x->slots - 1)) {
		const struct text *t = &x->v[x->slot[at] - 1];
		if (t->hash == hash && t->n == n && !memcmp(t->at, text, n))
			return x->slot[at] - 1;
	}
	if (x->n >= INT32_MAX - 1)
		return -1;
	char *copy = fo_arena_alloc(&x->arena, n + 1);
	memcpy(copy, text, n);
	for (char *nul = copy; (nul = memchr(nul, 0, (size_t)(copy + n - nul)));)
		*nul = ' ';
	fo_array_room(&x->v, &x->cap, x->n, sizeof(*x->v));
	x->v[x->n++] = (struct text){ copy, hash, n };
	x->slot[at] = (int32_t)x->n;
	if (x->n * 2 > x->slots)
		grow(x);
	return (int32_t)x->n - 1;
}

int32_t fo_trace_texts_count(const struct fo_trace_texts *x) { return (int32_t)x->n; }

const char *fo_trace_text(const struct fo_trace *t, int32_t id)
{
	return id < 0 || !t->texts || (size_t)id >= t->texts->n ? "" : t->texts->v[id].at;
}
