/* The marks of all ranks side by side. Marks that name the same step end the same window on all of them. */
#include "record/rank_where.h"

#include "base/mem.h"

#include <stdlib.h>

/* Of a window's steps that must be counted on every rank: metered steps are not. */
#define COUNTED 0.9

static const struct fo_rank_mark *marks_of(const struct fo_rank_seen *r, bool recent, int *n)
{
	*n = recent ? r->recents : r->wholes;
	return recent ? r->recent : r->whole;
}

static const struct fo_rank_mark *mark_at(const struct fo_rank_seen *r, bool recent, int64_t step)
{
	int n;
	const struct fo_rank_mark *m = marks_of(r, recent, &n);
	for (int i = 0; i < n; i++)
		if (m[i].step == step)
			return &m[i];
	return NULL;
}

static bool all_have(const struct fo_ranks_seen *s, bool recent, int64_t step)
{
	for (int r = 1; r < s->ranks; r++)
		if (!mark_at(&s->rank[r], recent, step))
			return false;
	return true;
}

/* Own work per step of each rank between two steps that all have marked; false: of some rank it is not known. */
static bool window(const struct fo_ranks_seen *s, bool recent, int64_t from, int64_t to, double *own, int stride)
{
	for (int r = 0; r < s->ranks; r++) {
		const struct fo_rank_mark *a = mark_at(&s->rank[r], recent, from),
					  *b = mark_at(&s->rank[r], recent, to);
		const int64_t counted = b->counted - a->counted;
		if (counted <= 0 || (double)counted < COUNTED * (double)(to - from))
			return false;
		own[(size_t)r * (size_t)stride] = (double)(b->own_ns - a->own_ns) * 1e-9 / (double)counted;
	}
	return true;
}

void fo_ranks_slow(const struct fo_ranks_seen *s, bool recent, struct fo_slow_rank *out)
{
	enum { MOST = FO_RANK_WHOLE };
	int n = 0, windows = 0;
	int64_t last = 0, first_step = 0, last_step = 0;
	const struct fo_rank_mark *m = s->ranks ? marks_of(&s->rank[0], recent, &n) : NULL;
	double *own = fo_xmalloc(((size_t)s->ranks + 1) * MOST * sizeof *own), step[MOST];
	for (int i = 0, at = -1; i < n; i++) {
		if (!all_have(s, recent, m[i].step) || (at >= 0 && m[i].at_ns - m[at].at_ns < FO_SLOW_RANK_WINDOW_NS))
			continue;
		if (at >= 0 && window(s, recent, last, m[i].step, own + windows, MOST)) {
			step[windows++] = (double)(m[i].at_ns - m[at].at_ns) * 1e-9 / (double)(m[i].step - last);
			first_step = first_step ? first_step : last + 1;
			last_step = m[i].step;
		}
		at = i;
		last = m[i].step;
	}
	for (int r = 1; r < s->ranks; r++) /* rows become as long as there are windows */
		for (int w = 0; w < windows; w++)
			own[r * windows + w] = own[r * MOST + w];
	fo_slow_rank_find(out, own, step, s->ranks > 0 ? s->ranks : 1, windows);
	out->first = first_step;
	out->last = last_step;
	free(own);
}
