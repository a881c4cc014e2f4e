#include "sim/sim.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void fo_sim_time(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, const struct fo_rates *r,
		 double pairs, const struct fo_step_when *when)
{
	struct fo_op_time *of = fo_rates_step(r, p, u, pairs, when);
	s->busy_s = 0;
	for (int i = 0; i < u->n; i++) {
		s->seconds[i] = of[i].seconds;
		s->sure[i] = (uint8_t)of[i].sure;
		s->busy_s += fo_lane_computes(fo_instance_op(p, u, i)->lane) && !of[i].quiet ? of[i].seconds : 0;
	}
	free(of);
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
	s->hold_s = fo_xmalloc(n * sizeof *s->hold_s);
	s->late_s = fo_xmalloc(n * sizeof *s->late_s);
	memset(s->hold_s, 0, n * sizeof *s->hold_s);
	memset(s->late_s, 0, n * sizeof *s->late_s);
	memset(s->seconds, 0, n * sizeof *s->seconds);
	memset(s->sure, 0, n * sizeof *s->sure);
}

void fo_sim_step(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u, const struct fo_rates *r,
		 double pairs)
{
	fo_sim_init(s, u, r->overhead_s);
	fo_sim_time(s, p, u, r, pairs, NULL);
	fo_sim_walk(s, p, u);
	if (!r->caches.gaps)
		return;
	/* How long what an operation needs was left alone is known now. */
	struct fo_sim first = *s;
	const struct fo_step_when when = { first.begin_s, first.end_s, first.step_s };
	fo_sim_init(s, u, r->overhead_s);
	fo_sim_time(s, p, u, r, pairs, &when);
	fo_sim_walk(s, p, u);
	fo_sim_fini(&first);
}

void fo_sim_fini(struct fo_sim *s)
{
	free(s->begin_s);
	free(s->end_s);
	free(s->seconds);
	free(s->sure);
	free(s->waited);
	free(s->hold_s);
	free(s->late_s);
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
