#include "sim/sim.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An operation of a block runs in few ways: it stores or adds, with this or that operand in the caches. */
struct way {
	uint32_t first, cold;
	struct fo_op_time time;
};
struct ways {
	struct way *way;
	size_t n, cap;
};

static struct fo_op_time time_of(struct ways *w, const struct fo_rates *r, const struct fo_program *p,
				 const struct fo_op *o, const struct fo_op_use *use)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->way[i].first == use->first && w->way[i].cold == use->cold)
			return w->way[i].time;
	fo_array_room(&w->way, &w->cap, w->n, sizeof *w->way);
	w->way[w->n] = (struct way){ use->first, use->cold, fo_rates_op(r, p, o, use) };
	return w->way[w->n++].time;
}

static void time_instances(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u,
			   const struct fo_rates *r, double pairs)
{
	uint32_t *cold = fo_reuse_cold(p, u, r->limits->cache_bytes);
	int *begin = fo_xmalloc((size_t)(p->nblock + 1) * sizeof *begin), ops = 0;
	for (int b = 0; b < p->nblock; b++) {
		begin[b] = ops;
		ops += p->block[b].n;
	}
	struct ways *ways = fo_xmalloc((size_t)(ops + 1) * sizeof *ways);
	for (int i = 0; i < u->n; i++) {
		struct fo_op_use use = { u->first[i], cold[i], pairs };
		struct ways *w = &ways[begin[p->slot[u->slot[i]].block] + u->op[i]];
		struct fo_op_time t = time_of(w, r, p, fo_instance_op(p, u, i), &use);
		s->seconds[i] = t.seconds;
		s->sure[i] = (uint8_t)t.sure;
		s->busy_s += fo_lane_computes(fo_instance_op(p, u, i)->lane) && !t.quiet ? t.seconds : 0;
	}
	for (int i = 0; i < ops; i++)
		free(ways[i].way);
	free(ways);
	free(begin);
	free(cold);
}

/* The part of the step that idle time before or after an operation of another lane belongs to (as in
 * fo_profile_add_step). */
static enum fo_part part_of_wait(const struct fo_op *o)
{
	enum fo_part part = fo_part_of_op((enum fo_op_kind)o->kind);
	return part < FO_PART_COMMUNICATION ? FO_PART_UNATTRIBUTED : part;
}

/* ---- the walk ---- */

/* A lane's operation. left_s: what was left of it at at_s, in seconds of a lane that has the cores alone. */
struct lane {
	int next, runs; /* its first instance that has not begun, and the one that runs; -1: none */
	double free_s;  /* its last one ended */
	double at_s, left_s;
};
struct walk {
	struct fo_sim *s;
	const struct fo_program *p;
	const struct fo_unrolled *u;
	double idle_s; /* since when no lane computes */
	struct lane lane[FO_LANE_COUNT];
	int *after;          /* the next instance of the same lane; -1: none */
	int computing, last; /* lanes that compute now; the instance that ended last */
};

static double share(const struct walk *w, int lane)
{
	return fo_lane_computes(lane) && w->computing > 1 ? w->computing : 1;
}

/* Lanes that compute share the cores: when one begins or ends, what the others have left takes another time. */
static void change_computing(struct walk *w, int by, double now)
{
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		struct lane *x = &w->lane[l];
		if (x->runs < 0 || !fo_lane_computes(l))
			continue;
		double left = x->left_s - (now - x->at_s) / share(w, l);
		x->left_s = left > 0 ? left : 0;
		x->at_s = now;
	}
	w->computing += by;
}

/* Begins the lane's next operation if all that it waits for has ended. */
static void begin_next(struct walk *w, int lane)
{
	struct lane *x = &w->lane[lane];
	struct fo_sim *s = w->s;
	int i = x->next;
	double ready = x->free_s;
	if (i < 0 || x->runs >= 0)
		return;
	s->waited[i] = -1;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		int need = w->u->wait[i][l];
		if (need < 0)
			continue;
		if (isnan(s->end_s[need]))
			return;
		if (s->end_s[need] > ready) {
			ready = s->end_s[need];
			s->waited[i] = need;
		}
	}
	if (fo_lane_computes(lane)) {
		const struct fo_op *o = fo_instance_op(w->p, w->u, i);
		if (!w->computing && s->waited[i] >= 0)
			s->part_s[part_of_wait(fo_instance_op(w->p, w->u, s->waited[i]))] += ready - w->idle_s;
		change_computing(w, 1, ready);
		s->part_s[fo_part_of_op((enum fo_op_kind)o->kind)] += s->seconds[i];
		s->part_s[FO_PART_UNATTRIBUTED] += s->overhead_s;
		s->sure_s[s->sure[i]] += s->seconds[i];
	}
	s->unknown += s->sure[i] == FO_SURE_NONE;
	s->begin_s[i] = ready;
	*x = (struct lane){ w->after[i], i, x->free_s, ready, s->seconds[i] + s->overhead_s };
}

/* Ends the operation that ends first, the older one of two; false: none runs. */
static bool end_first(struct walk *w)
{
	int first = -1;
	double end = 0;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct lane *x = &w->lane[l];
		double at = x->at_s + x->left_s * share(w, l);
		if (x->runs < 0 || (first >= 0 && (at > end || (at == end && x->runs > w->lane[first].runs))))
			continue;
		first = l;
		end = at;
	}
	if (first < 0)
		return false;
	struct lane *x = &w->lane[first];
	w->s->end_s[x->runs] = x->free_s = end;
	w->last = w->last < 0 || end > w->s->end_s[w->last] ? x->runs : w->last;
	x->runs = -1;
	if (fo_lane_computes(first)) {
		change_computing(w, -1, end);
		w->idle_s = end;
	}
	return true;
}

void fo_sim_init(struct fo_sim *s, const struct fo_unrolled *u, double overhead_s)
{
	size_t n = (size_t)u->n + 1;
	*s = (struct fo_sim){ .n = u->n, .overhead_s = overhead_s };
	s->begin_s = fo_xmalloc(n * sizeof *s->begin_s);
	s->end_s = fo_xmalloc(n * sizeof *s->end_s);
	s->seconds = fo_xmalloc(n * sizeof *s->seconds);
	s->sure = fo_xmalloc(n * sizeof *s->sure);
	s->waited = fo_xmalloc(n * sizeof *s->waited);
	memset(s->seconds, 0, n * sizeof *s->seconds);
	memset(s->sure, 0, n * sizeof *s->sure);
}

void fo_sim_walk(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u)
{
	struct walk w = { .s = s, .p = p, .u = u, .last = -1 };
	w.after = fo_xmalloc((size_t)(u->n + 1) * sizeof *w.after);
	for (int l = 0; l < FO_LANE_COUNT; l++)
		w.lane[l].next = w.lane[l].runs = -1;
	for (int i = u->n - 1; i >= 0; i--) {
		struct lane *x = &w.lane[fo_instance_op(p, u, i)->lane];
		s->end_s[i] = NAN;
		w.after[i] = x->next;
		x->next = i;
	}
	do
		for (int l = 0; l < FO_LANE_COUNT; l++)
			begin_next(&w, l);
	while (end_first(&w));
	s->step_s = w.last >= 0 ? s->end_s[w.last] : 0;
	if (s->step_s > w.idle_s)
		s->part_s[part_of_wait(fo_instance_op(p, u, w.last))] += s->step_s - w.idle_s;
	free(w.after);
}

void fo_sim_step(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, const struct fo_rates *r,
		 double pairs)
{
	fo_sim_init(s, u, r->overhead_s);
	time_instances(s, p, u, r, pairs);
	fo_sim_walk(s, p, u);
}

void fo_sim_fini(struct fo_sim *s)
{
	free(s->begin_s);
	free(s->end_s);
	free(s->seconds);
	free(s->sure);
	free(s->waited);
	*s = (struct fo_sim){ 0 };
}

fo_status fo_sim_timeline(const struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u,
			  struct fo_timeline *t)
{
	int64_t free_at[FO_LANE_COUNT] = { 0 };
	FO_TRY(fo_timeline_init(t, p, u, 1));
	for (int i = 0; i < s->n; i++) {
		int lane = fo_instance_op(p, u, i)->lane;
		double end_s = fmax(s->end_s[i] - s->overhead_s, s->begin_s[i]);
		int64_t begin = llround(s->begin_s[i] * 1e9), end = llround(end_s * 1e9);
		if (s->waited[i] >= 0)
			fo_timeline_record(t, lane, 0, ~s->waited[i], free_at[lane], begin);
		fo_timeline_record(t, lane, 0, i, begin, end);
		free_at[lane] = end;
	}
	return FO_OK;
}

double fo_sim_pairs(int64_t seq, double document)
{
	/* Token i of a row stands at a place o of its document, any of [0, document) alike, and sees min(o, i) tokens
	 * and itself: in the mean over o that is i - i^2 / 2N for i < N, N / 2 after that. */
	double n = document < 1 ? 1 : document, pairs = (double)seq;
	for (int64_t i = 0; i < seq; i++) {
		double at = (double)i;
		pairs += at < n ? at - at * at / (2 * n) : n / 2;
	}
	return pairs;
}
