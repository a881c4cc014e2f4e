#include "sim/sim.h"
#include "base/mem.h"
#include "cost/reuse.h"

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

static struct fo_op_time time_of(struct ways *w, const struct fo_rates *r, const struct fo_program *p, const struct fo_op *o,
				 const struct fo_op_use *use)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->way[i].first == use->first && w->way[i].cold == use->cold)
			return w->way[i].time;
	fo_array_room(&w->way, &w->cap, w->n, sizeof *w->way);
	w->way[w->n] = (struct way){ use->first, use->cold, fo_rates_op(r, p, o, use) };
	return w->way[w->n++].time;
}

static void time_instances(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, const struct fo_rates *r, double pairs)
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
		s->busy_s += fo_sim_lane(fo_instance_op(p, u, i)) == FO_LANE_COMPUTE && !t.quiet ? t.seconds : 0;
	}
	for (int i = 0; i < ops; i++)
		free(ways[i].way);
	free(ways);
	free(begin);
	free(cold);
}

/* What the compute lane's idle time before, or after, an operation of another lane belongs to (as in fo_profile_add_step). */
static enum fo_part part_of_wait(const struct fo_op *o)
{
	enum fo_part part = fo_part_of_op((enum fo_op_kind)o->kind);
	return part < FO_PART_COMMUNICATION ? FO_PART_UNATTRIBUTED : part;
}

int fo_sim_lane(const struct fo_op *o) { return fo_lane_computes(o->lane) ? FO_LANE_COMPUTE : o->lane; }

void fo_sim_init(struct fo_sim *s, const struct fo_unrolled *u)
{
	size_t n = (size_t)u->n + 1;
	*s = (struct fo_sim){ .n = u->n };
	s->begin_s = fo_xmalloc(n * sizeof *s->begin_s);
	s->seconds = fo_xmalloc(n * sizeof *s->seconds);
	s->sure = fo_xmalloc(n * sizeof *s->sure);
	s->waited = fo_xmalloc(n * sizeof *s->waited);
	memset(s->seconds, 0, n * sizeof *s->seconds);
	memset(s->sure, 0, n * sizeof *s->sure);
}

void fo_sim_walk(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, double overhead_s)
{
	double *end = fo_xmalloc((size_t)(u->n + 1) * sizeof *end), free_at[FO_LANE_COUNT] = { 0 };
	int last = -1; /* the instance that ends last */
	for (int i = 0; i < u->n; i++) {
		const struct fo_op *o = fo_instance_op(p, u, i);
		int lane = fo_sim_lane(o);
		double ready = free_at[lane];
		s->waited[i] = -1;
		for (int l = 0; l < FO_LANE_COUNT; l++)
			if (u->wait[i][l] >= 0 && end[u->wait[i][l]] > ready) {
				ready = end[u->wait[i][l]];
				s->waited[i] = u->wait[i][l];
			}
		if (lane == FO_LANE_COMPUTE) {
			if (s->waited[i] >= 0)
				s->part_s[part_of_wait(fo_instance_op(p, u, s->waited[i]))] += ready - free_at[lane];
			s->part_s[fo_part_of_op((enum fo_op_kind)o->kind)] += s->seconds[i];
			s->part_s[FO_PART_UNATTRIBUTED] += overhead_s;
			s->sure_s[s->sure[i]] += s->seconds[i];
		}
		s->unknown += s->sure[i] == FO_SURE_NONE;
		s->begin_s[i] = ready;
		end[i] = free_at[lane] = ready + s->seconds[i] + overhead_s;
		if (last < 0 || end[i] > end[last])
			last = i;
	}
	s->step_s = last >= 0 ? end[last] : 0;
	if (s->step_s > free_at[FO_LANE_COMPUTE])
		s->part_s[part_of_wait(fo_instance_op(p, u, last))] += s->step_s - free_at[FO_LANE_COMPUTE];
	free(end);
}

void fo_sim_step(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, const struct fo_rates *r, double pairs)
{
	fo_sim_init(s, u);
	time_instances(s, p, u, r, pairs);
	fo_sim_walk(s, p, u, r->overhead_s);
}

void fo_sim_fini(struct fo_sim *s)
{
	free(s->begin_s);
	free(s->seconds);
	free(s->sure);
	free(s->waited);
	*s = (struct fo_sim){ 0 };
}

fo_status fo_sim_timeline(const struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, struct fo_timeline *t)
{
	int64_t free_at[FO_LANE_COUNT] = { 0 };
	FO_TRY(fo_timeline_init(t, p, u, 1));
	for (int i = 0; i < s->n; i++) {
		int lane = fo_instance_op(p, u, i)->lane;
		int64_t begin = llround(s->begin_s[i] * 1e9), end = llround((s->begin_s[i] + s->seconds[i]) * 1e9);
		if (s->waited[i] >= 0)
			fo_timeline_record(t, lane, 0, ~s->waited[i], free_at[lane], begin);
		fo_timeline_record(t, lane, 0, i, begin, end);
		free_at[lane] = end;
	}
	return FO_OK;
}

double fo_sim_pairs(int64_t seq, double document)
{
	/* Token i of a row stands at a place o of its document, any of [0, document) alike, and sees min(o, i) tokens and itself:
	 * in the mean over o that is i - i^2 / 2N for i < N, N / 2 behind. */
	double n = document < 1 ? 1 : document, pairs = (double)seq;
	for (int64_t i = 0; i < seq; i++) {
		double at = (double)i;
		pairs += at < n ? at - at * at / (2 * n) : n / 2;
	}
	return pairs;
}
