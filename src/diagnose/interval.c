/* Sets of times. */
#include "diagnose/diagnose.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <stdlib.h>

void fo_intervals_add(struct fo_intervals *s, int64_t begin, int64_t end)
{
	if (begin >= end)
		return;
	fo_array_room(&s->v, &s->cap, s->n, sizeof *s->v);
	s->v[s->n++] = (struct fo_interval){ begin, end };
}

/* The end of the ascending run that begins at `from`. */
static size_t run_end(const struct fo_interval *v, size_t from, size_t n)
{
	size_t end = from + 1;
	while (end < n && v[end].begin >= v[end - 1].begin)
		end++;
	return end;
}

/* Sorts by begin: a merge sort of the ascending runs there are. Traces give a few of them, one per thread. */
static void sort(struct fo_intervals *s)
{
	struct fo_interval *spare = NULL;
	size_t n = s->n;
	while (n && run_end(s->v, 0, n) < n) {
		if (!spare)
			spare = fo_xrealloc(NULL, s->cap * sizeof *spare); /* it may stay */
		size_t to = 0;
		for (size_t at = 0; at < n;) {
			size_t middle = run_end(s->v, at, n), end = middle < n ? run_end(s->v, middle, n) : n;
			size_t i = at, k = middle;
			while (i < middle || k < end)
				spare[to++] = k == end || (i < middle && s->v[i].begin <= s->v[k].begin) ? s->v[i++]
													 : s->v[k++];
			at = end;
		}
		struct fo_interval *sorted = spare;
		spare = s->v;
		s->v = sorted;
	}
	free(spare);
}

void fo_intervals_unite(struct fo_intervals *s)
{
	size_t n = 0;
	sort(s);
	for (size_t i = 0; i < s->n; i++) {
		if (n && s->v[i].begin <= s->v[n - 1].end) {
			if (s->v[i].end > s->v[n - 1].end)
				s->v[n - 1].end = s->v[i].end;
		} else {
			s->v[n++] = s->v[i];
		}
	}
	s->n = n;
}

void fo_intervals_intersect(struct fo_intervals *out, const struct fo_intervals *a, const struct fo_intervals *b)
{
	size_t i = 0, k = 0;
	out->n = 0;
	while (i < a->n && k < b->n) {
		const struct fo_interval *x = &a->v[i], *y = &b->v[k];
		fo_intervals_add(out, fo_max(x->begin, y->begin), fo_min(x->end, y->end));
		if (x->end < y->end)
			i++;
		else
			k++;
	}
}

void fo_intervals_subtract(struct fo_intervals *out, const struct fo_intervals *a, const struct fo_intervals *b)
{
	size_t k = a->n ? fo_intervals_find(b, a->v[0].begin) : 0; /* b may be of the whole trace, a of one step */
	out->n = 0;
	for (size_t i = 0; i < a->n; i++) {
		int64_t at = a->v[i].begin;
		while (k < b->n && b->v[k].end <= at)
			k++;
		for (size_t m = k; m < b->n && b->v[m].begin < a->v[i].end; m++) {
			fo_intervals_add(out, at, b->v[m].begin);
			if (b->v[m].end > at)
				at = b->v[m].end;
			k = m; /* it may reach into the next interval of a */
		}
		fo_intervals_add(out, at, a->v[i].end);
	}
}

int64_t fo_intervals_length(const struct fo_intervals *s)
{
	int64_t sum = 0;
	for (size_t i = 0; i < s->n; i++)
		sum += s->v[i].end - s->v[i].begin;
	return sum;
}

size_t fo_intervals_find(const struct fo_intervals *s, int64_t at)
{
	return (size_t)FO_FIRST(i, s->n, s->v[i].end > at);
}

int64_t fo_intervals_within(const struct fo_intervals *s, int64_t begin, int64_t end)
{
	int64_t sum = 0;
	for (size_t i = fo_intervals_find(s, begin); i < s->n && s->v[i].begin < end; i++)
		sum += fo_min(s->v[i].end, end) - fo_max(s->v[i].begin, begin);
	return sum;
}

void fo_intervals_close(struct fo_intervals *s, int64_t hole)
{
	size_t n = 0;
	for (size_t i = 0; i < s->n; i++) {
		if (n && s->v[i].begin - s->v[n - 1].end <= hole)
			s->v[n - 1].end = s->v[i].end;
		else
			s->v[n++] = s->v[i];
	}
	s->n = n;
}

void fo_intervals_fini(struct fo_intervals *s)
{
	free(s->v);
	*s = (struct fo_intervals){ 0 };
}
