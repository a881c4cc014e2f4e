/* Distinct texts by number: names repeat by the million in a trace, so that each is kept once. */
#include "trace/trace_int.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct fo_trace_texts {
	struct fo_arena arena;
	const char **v;
	size_t cap;
	struct fo_index index; /* by a hash of 128 bits: two texts share one with a chance of 2^-128 */
};

struct fo_trace_texts *fo_trace_texts_new(void) { return fo_xmalloc(sizeof(struct fo_trace_texts)); }

void fo_trace_texts_free(struct fo_trace_texts *x)
{
	if (!x)
		return;
	fo_arena_fini(&x->arena);
	fo_index_fini(&x->index);
	free(x->v);
	free(x);
}

int32_t fo_trace_texts_add(struct fo_trace_texts *x, const char *text, size_t n)
{
	XXH128_hash_t hash = XXH3_128bits(text, n);
	int32_t known = fo_trace_texts_count(x);
	if (known == INT32_MAX)
		return fo_index_find(&x->index, (int64_t)hash.high64, (int64_t)hash.low64);
	int32_t id = fo_index_add(&x->index, (int64_t)hash.high64, (int64_t)hash.low64, known);
	if (id < known)
		return id;
	char *copy = fo_arena_alloc(&x->arena, n + 1);
	memcpy(copy, text, n);
	for (char *nul = copy; (nul = memchr(nul, 0, (size_t)(copy + n - nul)));)
		*nul = ' ';
	fo_array_room(&x->v, &x->cap, (size_t)id, sizeof(*x->v));
	x->v[id] = copy;
	return id;
}

int32_t fo_trace_texts_count(const struct fo_trace_texts *x) { return (int32_t)x->index.n; }

const char *fo_trace_text(const struct fo_trace *t, int32_t id)
{
	return id < 0 || !t->texts || id >= fo_trace_texts_count(t->texts) ? "" : t->texts->v[id];
}
