/* What a simulated step consists of: where the time of a class goes, and which operations hold the step. */
#include "sim/fleet_int.h"

#include "base/count.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- sums ---- */

/* A lane's spans in order; times in ns. met: from when all ranks had come to a call; begin for what works. */
struct span {
	int64_t begin, met, end;
};
struct spans {
	struct span *v;
	int64_t n, at;
};

static int64_t ns_of(double s) { return llround(s * 1e9); }

static void take_spans(struct spans lane[FO_LANE_COUNT], const struct fo_fleet_run *run, int32_t class,
		       struct fo_fleet_sums *s, int64_t *first, int64_t *last)
{
	const struct fo_fleet_class *c = &run->class[class];
	const struct fo_fleet_role *r = &run->fleet->role[c->role];
	size_t cap[FO_LANE_COUNT] = { 0 };
	*first = INT64_MAX;
	*last = 0;
	for (int32_t i = 0; i < r->ops; i++) {
		const struct fo_fleet_op *o = &r->op[i];
		const int64_t begin = ns_of(c->begin_s[i]), end = ns_of(fmax(c->end_s[i] - r->after_s, c->begin_s[i]));
		struct span x = { begin, begin, end };
		bool counts = fo_lane_computes(o->lane);
		*first = fo_min(begin, *first);
		*last = fo_max(end, *last);
		s->busy_ns[o->lane] += end - begin;
		if (o->does != FO_FLEET_WORKS) {
			int32_t ranks;
			fo_fleet_place(run->fleet, o->group, c->first, &ranks);
			x.met = fo_clamp(ns_of(c->met_s[run->call[c->role][i]]), begin, end);
			counts = ranks > 1;
		}
		if (!counts || end <= begin)
			continue;
		struct spans *l = &lane[o->lane];
		fo_array_room(&l->v, &cap[o->lane], (size_t)l->n, sizeof *l->v);
		l->v[l->n++] = x;
	}
}

/* Adds [now, next), in which nothing begins or ends. */
static void add_moment(struct fo_fleet_sums *s, const struct spans lane[FO_LANE_COUNT], int64_t now, int64_t next)
{
	bool computes = false, carried = false;
	int carries = -1;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct span *x = &lane[l].v[lane[l].at];
		if (lane[l].at == lane[l].n || x->begin > now)
			continue;
		if (fo_lane_computes(l)) {
			computes = true;
			continue;
		}
		carries = carries < 0 ? l : carries;
		carried |= x->met <= now;
	}
	s->compute_ns += computes ? next - now : 0;
	if (carries < 0)
		return;
	*(computes ? &s->lane_hidden_ns[carries] : &s->lane_exposed_ns[carries]) += next - now;
	if (computes)
		*(carried ? &s->hidden_transfer_ns : &s->hidden_wait_ns) += next - now;
	else
		*(carried ? &s->transfer_ns : &s->wait_ns) += next - now;
}

void fo_fleet_sums_of(struct fo_fleet_sums *s, const struct fo_fleet_run *run, int32_t class)
{
	struct spans lane[FO_LANE_COUNT] = { 0 };
	int64_t now, last;
	*s = (struct fo_fleet_sums){ 0 };
	take_spans(lane, run, class, s, &now, &last);
	if (now == INT64_MAX)
		now = 0;
	s->step_ns = last - now;
	s->tail_ns = fo_max(ns_of(run->step_s) - last, 0);
	while (now < last) {
		int64_t next = last;
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			struct spans *x = &lane[l];
			while (x->at < x->n && x->v[x->at].end <= now)
				x->at++;
			if (x->at == x->n)
				continue;
			const struct span *v = &x->v[x->at];
			const int64_t edge = v->begin > now ? v->begin : v->end;
			next = fo_min(next, v->begin <= now && v->met > now ? v->met : edge);
		}
		add_moment(s, lane, now, next);
		now = next;
	}
	s->other_ns = s->step_ns - s->compute_ns - s->transfer_ns - s->wait_ns;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		free(lane[l].v);
}

/* ---- the path ---- */

static int by_name(const void *a, const void *b)
{
	const struct fo_fleet_share *x = a, *y = b;
	return FO_ORDER_BY(fo_order(x->name, y->name), fo_order(x->lane, y->lane), fo_order(x->hold, y->hold));
}

static int by_name_and_class(const void *a, const void *b)
{
	const struct fo_fleet_share *x = a, *y = b;
	return FO_ORDER_BY(by_name(a, b), fo_order(x->class, y->class));
}

static int longest_first(const void *a, const void *b)
{
	const struct fo_fleet_share *x = a, *y = b;
	if (x->seconds > y->seconds || x->seconds < y->seconds)
		return x->seconds > y->seconds ? -1 : 1;
	return by_name(a, b);
}

/* Neighbours in p->share that `order` does not tell apart become one; its class is that of which most is. */
static void merge(struct fo_fleet_path *p, int (*order)(const void *, const void *))
{
	int32_t n = 0;
	for (int32_t i = 0; i < p->shares; i++) {
		struct fo_fleet_share *x = &p->share[i], *last = &p->share[n - 1];
		if (!n || order(last, x) != 0) {
			p->share[n++] = *x;
			continue;
		}
		if (x->class != last->class && x->class_s > last->class_s) {
			last->class = x->class;
			last->class_s = x->class_s;
		} else if (x->class == last->class) {
			last->class_s += x->class_s;
		}
		last->pieces += x->pieces;
		last->seconds += x->seconds;
	}
	p->shares = n;
}

/* Pieces of one name and lane together. */
static void share_out(struct fo_fleet_path *p, const struct fo_fleet_run *run)
{
	p->share = fo_xmalloc((size_t)(p->pieces + 1) * sizeof *p->share);
	p->shares = p->pieces;
	for (int32_t i = 0; i < p->pieces; i++) {
		const struct fo_fleet_piece *x = &p->piece[i];
		const struct fo_fleet_op *o = &run->fleet->role[run->class[x->class].role].op[x->op];
		const double seconds = x->end_s - x->begin_s;
		p->share[i] = (struct fo_fleet_share){ x->class, o->name, 1, o->lane, x->hold, seconds, seconds };
	}
	if (!p->shares)
		return;
	qsort(p->share, (size_t)p->shares, sizeof *p->share, by_name_and_class);
	merge(p, by_name_and_class);
	merge(p, by_name);
	qsort(p->share, (size_t)p->shares, sizeof *p->share, longest_first);
}

static void add_piece(struct fo_fleet_path *p, size_t *cap, int32_t class, int32_t op, enum fo_fleet_hold hold,
		      double begin_s, double end_s)
{
	if (!(end_s > begin_s))
		return;
	fo_array_room(&p->piece, cap, (size_t)p->pieces, sizeof *p->piece);
	p->piece[p->pieces++] = (struct fo_fleet_piece){ class, op, (uint8_t)hold, begin_s, end_s };
}

void fo_fleet_path_of(struct fo_fleet_path *p, const struct fo_fleet_run *run)
{
	size_t cap = 0;
	int32_t class = run->last, op = run->last_op;
	*p = (struct fo_fleet_path){ .seconds = run->step_s };
	while (op >= 0) {
		const struct fo_fleet_class *c = &run->class[class];
		const struct fo_fleet_role *r = &run->fleet->role[c->role];
		const int32_t call = run->call[c->role][op];
		const double end = fmax(c->end_s[op] - r->after_s, c->begin_s[op]);
		add_piece(p, &cap, class, op, FO_FLEET_HOLD_DISPATCH, end, c->end_s[op]);
		if (call < 0) {
			add_piece(p, &cap, class, op, FO_FLEET_HOLD_WORK, c->begin_s[op], end);
		} else {
			add_piece(p, &cap, class, op, FO_FLEET_HOLD_TRANSFER, c->met_s[call], end);
			class = c->met_class[call];
			op = c->met_op[call];
		}
		const struct fo_fleet_class *last = &run->class[class];
		const int32_t cause = last->cause[op];
		add_piece(p, &cap, class, op, FO_FLEET_HOLD_DISPATCH, cause < 0 ? 0 : last->end_s[cause],
			  last->begin_s[op]);
		op = cause;
	}
	for (int32_t i = 0; i < p->pieces / 2; i++) {
		struct fo_fleet_piece x = p->piece[i];
		p->piece[i] = p->piece[p->pieces - 1 - i];
		p->piece[p->pieces - 1 - i] = x;
	}
	share_out(p, run);
}

void fo_fleet_path_fini(struct fo_fleet_path *p)
{
	free(p->piece);
	free(p->share);
	*p = (struct fo_fleet_path){ 0 };
}

/* ---- ranks to show ---- */

int32_t fo_fleet_shown(const struct fo_fleet_run *run, int32_t most, int32_t **rank)
{
	struct fo_fleet_path p;
	bool *taken = fo_xmalloc((size_t)run->classes + 1);
	int32_t n = 0;
	*rank = fo_xmalloc((size_t)(fo_min(most, run->classes) + 1) * sizeof **rank);
	fo_fleet_path_of(&p, run);
	for (int32_t i = 0; i < p.shares && n < most; i++) { /* what holds the step longest, first */
		if (!taken[p.share[i].class])
			(*rank)[n++] = run->class[p.share[i].class].first;
		taken[p.share[i].class] = true;
	}
	for (int32_t i = 0; i < p.pieces && n < most; i++) {
		if (!taken[p.piece[i].class])
			(*rank)[n++] = run->class[p.piece[i].class].first;
		taken[p.piece[i].class] = true;
	}
	for (int32_t k = 0; k < run->classes && n < most; k++)
		if (!taken[k])
			(*rank)[n++] = run->class[k].first;
	qsort(*rank, (size_t)n, sizeof **rank, fo_by_int);
	fo_fleet_path_fini(&p);
	free(taken);
	return n;
}
