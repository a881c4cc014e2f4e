/* Tells whose a row is: strings by id, processes and their GPUs, correlations. And the loop over a table's rows. */
#include "trace/nsys_int.h"

#include <stdlib.h>
#include <string.h>

fo_status nsys_read_table(struct nsys *x, const struct nsys_table *t)
{
	struct fo_nsys_rows r;
	bool more;
	fo_status st = fo_nsys_rows_begin(&r, &x->db, t->name, t->column, t->needed);
	while (st == FO_OK && (st = fo_nsys_rows_next(&r, &more)) == FO_OK && more)
		t->row(x, &r);
	fo_nsys_rows_end(&r);
	return st;
}

fo_status nsys_read_tables(struct nsys *x, const struct nsys_table *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		FO_TRY(nsys_read_table(x, &t[i]));
	return FO_OK;
}

/* ---- strings ---- */

static size_t string_slot(const struct strings *s, int64_t id)
{
	uint64_t h = (uint64_t)id * 0x9e3779b97f4a7c15u;
	size_t at = (size_t)(h ^ h >> 32) & (s->slots - 1);
	while (s->v[at].text && s->v[at].id != id)
		at = (at + 1) & (s->slots - 1);
	return at;
}

static void add_string(struct strings *s, int64_t id, const char *text, size_t n)
{
	if (2 * (s->count + 1) > s->slots) {
		struct string *old = s->v;
		size_t slots = s->slots;
		s->slots = slots ? 2 * slots : 1024;
		s->v = fo_xmalloc(s->slots * sizeof(*s->v));
		for (size_t i = 0; i < slots; i++)
			if (old[i].text)
				s->v[string_slot(s, old[i].id)] = old[i];
		free(old);
	}
	struct string *at = &s->v[string_slot(s, id)];
	if (at->text)
		return; /* ids are unique in an export; of a doubtful pair the first */
	char *copy = fo_arena_alloc(&s->arena, n + 1);
	memcpy(copy, text, n);
	*at = (struct string){ .id = id, .text = copy, .n = n };
	s->count++;
}

static void take_string(struct nsys *x, const struct fo_nsys_rows *r)
{
	size_t n;
	const char *text = fo_nsys_text(r, 1, &n);
	if (text)
		add_string(&x->strings, fo_nsys_int(r, 0, -1), text, n);
}

fo_status nsys_read_strings(struct nsys *x)
{
	static const struct nsys_table t = { "StringIds", 2, take_string, { "id", "value" } };
	return nsys_read_table(x, &t);
}

const char *nsys_string(const struct nsys *x, int64_t id, size_t *n)
{
	*n = 0;
	if (!x->strings.slots)
		return NULL;
	const struct string *s = &x->strings.v[string_slot(&x->strings, id)];
	*n = s->n;
	return s->text;
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

struct group *nsys_group_of_process(struct nsys *x, int64_t process)
{
	if (!x->pairs) /* nobody has GPU work: all hosts together */
		return &x->group[0];
	if (x->last < x->pairs && x->pair[x->last].process == process)
		return &x->group[x->pair[x->last].group];
	for (size_t i = 0; i < x->pairs; i++)
		if (x->pair[i].process == process) {
			x->last = i;
			return &x->group[x->pair[i].group];
		}
	return NULL;
}

int64_t nsys_correlation(const struct nsys *x, int64_t process, int64_t correlation)
{
	if (correlation <= 0 || correlation > UINT32_MAX)
		return -1;
	if (x->last < x->pairs && x->pair[x->last].process == process)
		return correlation | (int64_t)x->pair[x->last].number << 32;
	for (size_t i = 0; i < x->pairs; i++)
		if (x->pair[i].process == process)
			return correlation | (int64_t)x->pair[i].number << 32;
	return correlation;
}
