#include "timeline/ranks.h"

#include "base/count.h"
#include "base/mem.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- steps ---- */

/* A rank's spans since the run last went back: a step that was done again counts as it was done last. */
struct steps {
	struct step {
		int32_t step;
		bool taken; /* all ranks have it whole */
		int64_t begin_ns, end_ns, operations;
	} * v;
	int64_t n;
};

/* The first span of a lane that belongs to the newest ascent of steps. */
static uint64_t newest_ascent(const struct fo_ring *r)
{
	uint64_t i = r->n;
	while (i > 1 && r->span[i - 2].step <= r->span[i - 1].step)
		i--;
	return i ? i - 1 : 0;
}

static struct step *step_at(const struct steps *s, int32_t step)
{
	int64_t low = 0, high = s->n;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		if (s->v[middle].step < step)
			low = middle + 1;
		else
			high = middle;
	}
	return low < s->n && s->v[low].step == step ? &s->v[low] : NULL;
}

static void find_steps(struct steps *s, const struct fo_timeline_file *f)
{
	const struct fo_ring *c = &f->t.lane[FO_LANE_COMPUTE];
	size_t cap = 0;
	int64_t most = 0;
	*s = (struct steps){ 0 };
	for (uint64_t i = newest_ascent(c); i < c->n; i++) {
		if (s->n && s->v[s->n - 1].step == c->span[i].step)
			continue;
		fo_array_room(&s->v, &cap, (size_t)s->n, sizeof *s->v);
		s->v[s->n++] = (struct step){ c->span[i].step, true, INT64_MAX, INT64_MIN, 0 };
	}
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct fo_ring *r = &f->t.lane[l];
		for (uint64_t i = newest_ascent(r); i < r->n; i++) {
			const struct fo_span *x = &r->span[i];
			struct step *at = step_at(s, x->step);
			if (!at)
				continue;
			at->begin_ns = fo_min(x->begin_ns, at->begin_ns);
			at->end_ns = fo_max(x->end_ns, at->end_ns);
			at->operations += x->instance >= 0;
			most = fo_max(at->operations, most);
		}
	}
	for (int64_t i = 0; i < s->n; i++)
		s->v[i].taken = s->v[i].operations == most; /* the oldest step may have lost its beginning */
}

static void take_common(struct fo_ranks *out, struct steps *s)
{
	int first = 0;
	while (first < out->ranks && !out->rank[first].known)
		first++;
	for (int64_t i = 0; first < out->ranks && i < s[first].n; i++) {
		struct step *at = &s[first].v[i];
		for (int r = 0; r < out->ranks; r++) {
			const struct step *other = out->rank[r].known ? step_at(&s[r], at->step) : at;
			at->taken &= other && other->taken;
		}
		if (!at->taken)
			continue;
		out->first_step = out->steps ? out->first_step : at->step + 1;
		out->last_step = at->step + 1;
		out->steps++;
	}
	for (int r = first + 1; r < out->ranks; r++)
		for (int64_t i = 0; i < s[r].n; i++) {
			const struct step *at = step_at(&s[first], s[r].v[i].step);
			s[r].v[i].taken = at && at->taken;
		}
}

/* ---- calls ---- */

struct call {
	const struct fo_timeline_collective *c;
	int rank, lane;                       /* lane: the one that sends, of two partners */
	int32_t from, to;                     /* places in the group, of a transfer between two; else -1 */
	int32_t step, index;                  /* index: among those of this step that agree in all of the above */
	int64_t begin_ns, end_ns, arrived_ns; /* arrived: when the last member did */
	int64_t meeting;                      /* those that are one have the same number; -1: not matched */
};
struct calls {
	struct call *v;
	size_t n, cap;
};

static void add_call(struct calls *all, int rank, const struct fo_timeline_file *f, const struct fo_span *s)
{
	const struct fo_timeline_collective *c = fo_timeline_collective_of(f, s->instance);
	if (!c || c->members < 2)
		return;
	int64_t offset = f->t.whose.clock_offset_ns;
	struct call x = { .c = c, .rank = rank, .lane = c->lane, .from = -1, .to = -1, .step = s->step, .meeting = -1 };
	x.begin_ns = fo_plus(s->begin_ns, offset);
	x.end_ns = x.arrived_ns = fo_plus(s->end_ns, offset);
	if (c->wire == FO_WIRE_SEND)
		x.from = c->place, x.to = c->peer;
	if (c->wire == FO_WIRE_RECEIVE)
		x.from = c->peer, x.to = c->place;
	/* What is sent on one lane is received on its partner. */
	if (c->lane == FO_LANE_RECV_FORWARD)
		x.lane = FO_LANE_SEND_FORWARD;
	if (c->lane == FO_LANE_RECV_BACKWARD)
		x.lane = FO_LANE_SEND_BACKWARD;
	fo_array_room(&all->v, &all->cap, all->n, sizeof *all->v);
	all->v[all->n++] = x;
}

static int by_channel(const struct call *x, const struct call *y)
{
	return FO_ORDER_BY(fo_order(x->c->group, y->c->group), fo_order(x->c->colour, y->c->colour),
			   fo_order(x->lane, y->lane), fo_order(x->from, y->from), fo_order(x->to, y->to),
			   fo_order(x->step, y->step));
}
static int by_member(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	return FO_ORDER_BY(by_channel(x, y), fo_order(x->rank, y->rank), fo_order(x->begin_ns, y->begin_ns),
			   fo_order(x->c->instance, y->c->instance));
}
static int by_collective(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	return FO_ORDER_BY(by_channel(x, y), fo_order(x->index, y->index), fo_order(x->rank, y->rank));
}

static int by_rank(const void *a, const void *b)
{
	return fo_order(((const struct call *)a)->rank, ((const struct call *)b)->rank);
}

/* v[0, n) are calls of one number on one channel: is every member there, once, and do they the same? */
static bool all_there(const struct call *v, size_t n)
{
	bool two = v->from >= 0;
	if (n != (two ? 2 : (size_t)v->c->members))
		return false;
	for (size_t i = 1; i < n; i++)
		if (v[i].rank == v[i - 1].rank || v[i].c->members != v->c->members ||
		    (two ? v[i].c->wire == v->c->wire : v[i].c->wire != v->c->wire))
			return false;
	return true;
}

static int by_place(const void *a, const void *b)
{
	const struct fo_rank_group *x = a, *y = b;
	return FO_ORDER_BY(fo_order((int)x->group, (int)y->group), fo_order(x->colour, y->colour),
			   fo_order(x->place, y->place), fo_order(x->rank, y->rank));
}

/* Each rank's groups; of[rank, kind]: the rank's group of that kind, of which it has one. */
static void find_groups(struct fo_ranks *out, struct fo_rank_group **of, const struct calls *all)
{
	size_t cap = 0;
	bool *have = fo_xmalloc((size_t)out->ranks * FO_GROUP_COUNT + 1);
	for (size_t i = 0; i < all->n; i++) {
		const struct fo_timeline_collective *c = all->v[i].c;
		bool *seen = &have[all->v[i].rank * FO_GROUP_COUNT + c->group];
		if (*seen)
			continue;
		*seen = true;
		fo_array_room(&out->group, &cap, (size_t)out->groups, sizeof *out->group);
		out->group[out->groups++] = (struct fo_rank_group){ .rank = all->v[i].rank,
								    .group = (enum fo_group)c->group,
								    .colour = c->colour,
								    .members = c->members,
								    .place = c->place };
	}
	if (out->groups)
		qsort(out->group, (size_t)out->groups, sizeof *out->group, by_place);
	for (int64_t g = 0; g < out->groups; g++)
		of[out->group[g].rank * FO_GROUP_COUNT + (int)out->group[g].group] = &out->group[g];
	free(have);
}

/* v[0, n) are one: when its last member came. */
static const struct call *find_last(struct call *v, size_t n, bool *together)
{
	const struct call *last = v;
	*together = true;
	for (size_t i = 1; i < n; i++) {
		*together &= v[i].begin_ns == v->begin_ns;
		last = v[i].begin_ns > last->begin_ns ? &v[i] : last;
	}
	const int64_t at = last->begin_ns;
	for (size_t i = 0; i < n; i++)
		v[i].arrived_ns = fo_clamp(at, v[i].begin_ns, v[i].end_ns);
	return last;
}

static void meet(struct fo_ranks *out, struct fo_rank_group **of, struct call *v, size_t n)
{
	bool together;
	const struct call *last = find_last(v, n, &together);
	int64_t caused = 0;
	for (size_t i = 0; i < n; i++)
		caused += v[i].arrived_ns - v[i].begin_ns;
	if (together || !out)
		return; /* nobody was late, or nobody asks for whom others waited */
	struct fo_rank_group *g = of[last->rank * FO_GROUP_COUNT + last->c->group];
	g->last++;
	g->caused_ns += caused;
	out->rank[last->rank].last++;
	out->rank[last->rank].caused_ns += caused;
}

static void match(struct fo_ranks *out, struct fo_rank_group **of, struct calls *all)
{
	int64_t meetings = 0;
	if (!all->n)
		return;
	qsort(all->v, all->n, sizeof *all->v, by_member);
	for (size_t i = 1; i < all->n; i++)
		if (all->v[i].rank == all->v[i - 1].rank && by_channel(&all->v[i], &all->v[i - 1]) == 0)
			all->v[i].index = all->v[i - 1].index + 1;
	qsort(all->v, all->n, sizeof *all->v, by_collective);
	for (size_t i = 0, to; i < all->n; i = to) {
		for (to = i + 1;
		     to < all->n && by_channel(&all->v[i], &all->v[to]) == 0 && all->v[to].index == all->v[i].index;)
			to++;
		if (!all_there(all->v + i, to - i))
			continue;
		for (size_t k = i; k < to; k++)
			all->v[k].meeting = meetings;
		meetings++;
		meet(out, of, all->v + i, to - i);
	}
}

static void add_up_calls(struct fo_ranks *out, struct fo_rank_group **of, const struct calls *all)
{
	for (size_t i = 0; i < all->n; i++) {
		const struct call *x = &all->v[i];
		struct fo_rank_group *g = of[x->rank * FO_GROUP_COUNT + x->c->group];
		g->calls++;
		g->bytes += x->c->bytes;
		out->calls++;
		if (x->meeting < 0) {
			g->unmatched++;
			out->unmatched++;
			g->unknown_ns += x->end_ns - x->begin_ns;
			continue;
		}
		g->wait_ns += x->arrived_ns - x->begin_ns;
		g->transfer_ns += x->end_ns - x->arrived_ns;
		out->waited_ns += x->arrived_ns - x->begin_ns;
	}
}

/* ---- a rank's time ---- */

/* At `ns` one more (or one fewer) of `what` goes on: a kind of communication, or COMPUTES. */
enum { COMPUTES = FO_RANK_COMM_COUNT };
struct edge {
	int64_t ns;
	int what, lane, by; /* lane: of communication */
};
struct edges {
	struct edge *v;
	size_t n, cap;
};

static void add_edges(struct edges *e, int what, int lane, int64_t begin_ns, int64_t end_ns)
{
	if (end_ns <= begin_ns)
		return;
	fo_array_room(&e->v, &e->cap, e->n + 1, sizeof *e->v);
	e->v[e->n++] = (struct edge){ begin_ns, what, lane, 1 };
	e->v[e->n++] = (struct edge){ end_ns, what, lane, -1 };
}

static int by_time(const void *a, const void *b)
{
	return fo_order(((const struct edge *)a)->ns, ((const struct edge *)b)->ns);
}

static void sweep(struct fo_rank_times *t, struct edges *e)
{
	int on[COMPUTES + 1] = { 0 }, on_lane[FO_LANE_COUNT] = { 0 };
	if (e->n)
		qsort(e->v, e->n, sizeof *e->v, by_time);
	for (size_t i = 0; i < e->n; i++) {
		int64_t ns = i ? e->v[i].ns - e->v[i - 1].ns : 0;
		int kind = 0;
		while (kind < COMPUTES && !on[kind])
			kind++;
		t->compute_ns += on[COMPUTES] ? ns : 0;
		if (kind < COMPUTES) {
			int lane = 0;
			while (!on_lane[lane])
				lane++;
			*(on[COMPUTES] ? &t->hidden_ns[kind] : &t->exposed_ns[kind]) += ns;
			*(on[COMPUTES] ? &t->lane_hidden_ns[lane] : &t->lane_exposed_ns[lane]) += ns;
		}
		on[e->v[i].what] += e->v[i].by;
		on_lane[e->v[i].lane] += e->v[i].what < COMPUTES ? e->v[i].by : 0;
	}
}

int64_t fo_rank_step_exposed(const struct fo_timeline_file *f, int32_t step, int64_t by_lane[FO_LANE_COUNT])
{
	struct fo_rank_times t = { 0 };
	struct edges e = { 0 };
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct fo_ring *r = &f->t.lane[l];
		for (uint64_t i = newest_ascent(r); i < r->n; i++) {
			const struct fo_span *s = &r->span[i];
			const struct fo_timeline_collective *c = s->instance >= 0
									 ? fo_timeline_collective_of(f, s->instance)
									 : NULL;
			if (s->step == step && s->instance >= 0 && (fo_lane_computes(l) || (c && c->members > 1)))
				add_edges(&e, fo_lane_computes(l) ? COMPUTES : FO_RANK_UNKNOWN, l, s->begin_ns,
					  s->end_ns);
		}
	}
	sweep(&t, &e);
	free(e.v);
	if (by_lane)
		memcpy(by_lane, t.lane_exposed_ns, sizeof t.lane_exposed_ns);
	return fo_rank_exposed(&t);
}

/* from: the rank's first call, behind those of lower ranks. Returns that of the next rank. */
static size_t add_rank(struct fo_ranks *out, int rank, const struct fo_timeline_file *f, const struct steps *s,
		       const struct calls *all, size_t from)
{
	struct fo_rank_times *t = &out->rank[rank];
	struct edges e = { 0 };
	int64_t offset = f->t.whose.clock_offset_ns;
	for (int64_t i = 0; i < s->n; i++)
		t->step_ns += s->v[i].taken ? s->v[i].end_ns - s->v[i].begin_ns : 0;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct fo_ring *r = &f->t.lane[l];
		for (uint64_t i = fo_lane_computes(l) ? newest_ascent(r) : r->n; i < r->n; i++) {
			const struct step *at = step_at(s, r->span[i].step);
			if (at && at->taken && r->span[i].instance >= 0)
				add_edges(&e, COMPUTES, l, fo_plus(r->span[i].begin_ns, offset),
					  fo_plus(r->span[i].end_ns, offset));
		}
	}
	for (; from < all->n && all->v[from].rank == rank; from++) {
		const struct call *x = &all->v[from];
		if (x->meeting < 0) {
			add_edges(&e, FO_RANK_UNKNOWN, x->c->lane, x->begin_ns, x->end_ns);
			continue;
		}
		add_edges(&e, FO_RANK_WAIT, x->c->lane, x->begin_ns, x->arrived_ns);
		add_edges(&e, FO_RANK_TRANSFER, x->c->lane, x->arrived_ns, x->end_ns);
	}
	sweep(t, &e);
	t->other_ns = t->step_ns - t->compute_ns - fo_rank_exposed(t);
	free(e.v);
	return from;
}

/* ---- who is slow ---- */

/* Joins steps to windows that are long enough, by the first rank's clock; what is left at the end is no window.
 * own[r * n + w] and step[w] become means over the steps of a window. Returns the windows. */
static int join_steps(const struct steps *first, double *own, double *step, int ranks, int64_t n)
{
	int64_t windows = 0, from = 0, taken = 0, begin_ns = 0;
	for (int64_t i = 0; i < first->n; i++) {
		const struct step *at = &first->v[i];
		if (!at->taken)
			continue;
		begin_ns = taken == from ? at->begin_ns : begin_ns;
		taken++;
		if (at->end_ns - begin_ns < FO_SLOW_RANK_WINDOW_NS)
			continue;
		for (int r = 0; r <= ranks; r++) { /* the row behind the last rank's is the steps' own */
			double *v = r < ranks ? own + r * n : step, sum = 0;
			for (int64_t k = from; k < taken; k++)
				sum += v[k];
			v[windows] = sum / (double)(taken - from);
		}
		from = taken;
		windows++;
	}
	for (int r = 1; r < ranks; r++) /* rows become as long as there are windows */
		memmove(own + r * windows, own + r * n, (size_t)windows * sizeof *own);
	return (int)windows;
}

static void find_slow(struct fo_ranks *out, const struct fo_timeline_file *const *file, const struct steps *s)
{
	const int64_t n = out->known == out->ranks ? out->steps : 0;
	double *own = fo_xmalloc((size_t)(n * out->ranks + 1) * sizeof *own),
	       *step = fo_xmalloc((size_t)(n + 1) * sizeof *step);
	for (int r = 0; n && r < out->ranks; r++) {
		int64_t w = 0;
		for (int64_t i = 0; i < s[r].n; i++) {
			const struct step *at = &s[r].v[i];
			if (!at->taken)
				continue;
			const int64_t all = at->end_ns - at->begin_ns;
			own[r * n + w] = (double)fo_max(all - fo_rank_step_exposed(file[r], at->step, NULL), 0) * 1e-9;
			step[w] = fmax(step[w], (double)all * 1e-9);
			w++;
		}
	}
	fo_slow_rank_find(&out->slow, own, step, out->ranks, n ? join_steps(&s[0], own, step, out->ranks, n) : 0);
	out->slow.first = out->first_step;
	out->slow.last = out->last_step;
	free(own);
	free(step);
}

/* ---- all ranks ---- */

static void find_calls(struct calls *all, int rank, const struct fo_timeline_file *f, const struct steps *s)
{
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct fo_ring *r = &f->t.lane[l];
		for (uint64_t i = fo_lane_computes(l) ? r->n : newest_ascent(r); i < r->n; i++) {
			const struct step *at = step_at(s, r->span[i].step);
			if (at && at->taken && r->span[i].instance >= 0)
				add_call(all, rank, f, &r->span[i]);
		}
	}
}

static int by_begin(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	return FO_ORDER_BY(fo_order(x->rank, y->rank), fo_order(x->begin_ns, y->begin_ns),
			   fo_order(x->c->instance, y->c->instance));
}

void fo_rank_calls(struct fo_rank_call **out, int64_t *n, const struct fo_timeline_file *const *file, int ranks,
		   int32_t step)
{
	struct step at = { .step = step, .taken = true };
	const struct steps one = { &at, 1 };
	struct calls all = { 0 };
	for (int r = 0; r < ranks; r++)
		if (file[r])
			find_calls(&all, r, file[r], &one);
	match(NULL, NULL, &all);
	if (all.n)
		qsort(all.v, all.n, sizeof *all.v, by_begin);
	*n = (int64_t)all.n;
	*out = fo_xmalloc((all.n + 1) * sizeof **out);
	for (size_t i = 0; i < all.n; i++) {
		const struct call *x = &all.v[i];
		(*out)[i] = (struct fo_rank_call){ x->rank,   x->c->instance, x->begin_ns,
						   x->end_ns, x->arrived_ns,  x->meeting };
	}
	free(all.v);
}

void fo_ranks_merge(struct fo_ranks *out, const struct fo_timeline_file *const *file, int ranks)
{
	struct steps *s = fo_xmalloc((size_t)(ranks + 1) * sizeof *s);
	struct calls all = { 0 };
	*out = (struct fo_ranks){ .ranks = ranks, .late = -1 };
	out->rank = fo_xmalloc((size_t)(ranks + 1) * sizeof *out->rank);
	for (int r = 0; r < ranks; r++) {
		out->rank[r].known = file[r] != NULL;
		out->known += file[r] != NULL;
		if (file[r])
			find_steps(&s[r], file[r]);
	}
	take_common(out, s);
	for (int r = 0; r < ranks; r++)
		if (file[r])
			find_calls(&all, r, file[r], &s[r]);
	struct fo_rank_group **of = fo_xmalloc((size_t)(ranks + 1) * FO_GROUP_COUNT * sizeof *of);
	size_t from = 0;
	find_groups(out, of, &all);
	match(out, of, &all);
	add_up_calls(out, of, &all);
	if (all.n)
		qsort(all.v, all.n, sizeof *all.v, by_rank);
	find_slow(out, file, s);
	for (int r = 0; r < ranks; r++) {
		const struct fo_rank_times *t = &out->rank[r];
		if (file[r])
			from = add_rank(out, r, file[r], &s[r], &all, from);
		if (t->caused_ns > 0 && (out->late < 0 || t->caused_ns > out->rank[out->late].caused_ns))
			out->late = r;
		free(s[r].v);
	}
	free(s);
	free(of);
	free(all.v);
}

void fo_ranks_fini(struct fo_ranks *r)
{
	free(r->rank);
	free(r->group);
	*r = (struct fo_ranks){ 0 };
}
