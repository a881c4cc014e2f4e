/* Tells whose a row is: strings by id, processes and their GPUs, correlations. */
#include "trace/nsys_int.h"

#include <string.h>

void nsys_take_string(struct nsys *x, const struct nsys_row *r)
{
	size_t n, at = x->string_ids.n;
	const char *text = nsys_text(r, 1, &n);
	/* Ids are unique in an export; of a doubtful pair the first is kept. */
	if (!text || fo_index_add(&x->string_ids, nsys_int(r, 0, -1), 0, (int32_t)at) != (int32_t)at)
		return;
	char *copy = fo_arena_alloc(&x->arena, n + 1);
	memcpy(copy, text, n);
	fo_array_room(&x->string, &x->string_cap, at, sizeof(*x->string));
	x->string[at] = (struct string){ copy, n };
}

const char *nsys_string(const struct nsys *x, int64_t id, size_t *n)
{
	int32_t at = fo_index_find(&x->string_ids, id, 0);
	*n = at < 0 ? 0 : x->string[at].n;
	return at < 0 ? NULL : x->string[at].text;
}

/* ---- processes and GPUs ---- */

struct pair *nsys_pair_of(struct nsys *x, int64_t process, int64_t device)
{
	if (x->last < x->pairs && x->pair[x->last].process == process && x->pair[x->last].device == device)
		return &x->pair[x->last];
	for (x->last = 0; x->last < x->pairs; x->last++)
		if (x->pair[x->last].process == process && x->pair[x->last].device == device)
			return &x->pair[x->last];
	return NULL;
}

struct group *nsys_group_of_pair(struct nsys *x, int64_t process, int64_t device, int16_t *index)
{
	struct pair *p = nsys_pair_of(x, process, device);
	if (!p)
		return NULL;
	struct group *g = &x->group[p->group];
	*index = fo_trace_device(&g->b, p->gpu);
	return g;
}

static struct pair *pair_of_process(struct nsys *x, int64_t process)
{
	if (x->last < x->pairs && x->pair[x->last].process == process)
		return &x->pair[x->last];
	for (x->last = 0; x->last < x->pairs; x->last++)
		if (x->pair[x->last].process == process)
			return &x->pair[x->last];
	return NULL;
}

struct group *nsys_group_of_process(struct nsys *x, int64_t process)
{
	if (!x->pairs) /* nobody has GPU work: all hosts together */
		return &x->group[0];
	struct pair *p = pair_of_process(x, process);
	return p ? &x->group[p->group] : NULL;
}

int64_t nsys_correlation(struct nsys *x, int64_t process, int64_t correlation)
{
	struct pair *p = pair_of_process(x, process);
	if (correlation <= 0 || correlation > UINT32_MAX)
		return -1;
	return p ? correlation | (int64_t)p->number << 32 : correlation;
}
