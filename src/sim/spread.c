#include "sim/spread.h"

#include "base/count.h"
#include "base/mem.h"
#include "sim/fleet_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 100, LEAST_STEPS = 3, TENTHS = 10 };
/* Operations of all drawn steps together, where nobody says how many: 4 to 12 s of a processor (bench/sim). */
#define OPERATIONS 1e7

/* Seconds that held the steps so far, by operation, lane and kind, and by rank. */
struct held {
	struct fo_fleet_share *share;
	double *best_s; /* of each share, of the step in which one class had most of it */
	int32_t *rank;  /* which */
	int32_t n;
	size_t cap, best_cap, rank_cap;
	double *of_rank, all_s;
};

static void add_share(struct held *h, const struct fo_fleet_run *run, const struct fo_fleet_share *x)
{
	int32_t i = 0;
	while (i < h->n && (h->share[i].name != x->name || h->share[i].lane != x->lane || h->share[i].hold != x->hold))
		i++;
	if (i == h->n) {
		fo_array_room(&h->share, &h->cap, (size_t)h->n, sizeof *h->share);
		fo_array_room(&h->best_s, &h->best_cap, (size_t)h->n, sizeof *h->best_s);
		fo_array_room(&h->rank, &h->rank_cap, (size_t)h->n, sizeof *h->rank);
		h->share[i] = *x;
		h->share[i].seconds = 0;
		h->best_s[i] = -1;
		h->n++;
	}
	h->share[i].seconds += x->seconds;
	if (x->class_s > h->best_s[i]) {
		h->best_s[i] = x->class_s;
		h->rank[i] = run->class[x->class].first;
	}
}

static void add_step(struct held *h, const struct fo_fleet_run *run)
{
	struct fo_fleet_path path;
	fo_fleet_path_of(&path, run);
	for (int32_t i = 0; i < path.shares; i++)
		add_share(h, run, &path.share[i]);
	for (int32_t i = 0; i < path.pieces; i++) /* a transfer is of all its ranks */
		if (path.piece[i].hold != FO_FLEET_HOLD_TRANSFER)
			h->of_rank[run->class[path.piece[i].class].first] += path.piece[i].end_s -
									     path.piece[i].begin_s;
	h->all_s += run->step_s;
	fo_fleet_path_fini(&path);
}

static void take_held(struct fo_spread_steps *out, const struct held *h, int32_t ranks)
{
	for (; out->holds < FO_SPREAD_HOLDS && out->holds < h->n; out->holds++) {
		int32_t most = -1;
		for (int32_t i = 0; i < h->n; i++) {
			bool taken = false;
			for (int k = 0; k < out->holds; k++)
				taken |= out->hold[k].name == h->share[i].name &&
					 out->hold[k].lane == h->share[i].lane && out->hold[k].hold == h->share[i].hold;
			if (!taken && (most < 0 || h->share[i].seconds > h->share[most].seconds))
				most = i;
		}
		const struct fo_fleet_share *x = &h->share[most];
		out->hold[out->holds] = (struct fo_spread_hold){ x->name, x->lane, x->hold, x->seconds / h->all_s,
								 h->rank[most] };
	}
	for (int32_t r = 1; r < ranks; r++)
		if (h->of_rank[r] > h->of_rank[out->rank])
			out->rank = r;
	out->rank_share = h->of_rank[out->rank] / h->all_s;
}

/* Ranks that are slow in this step; their number. A rank that is slow for several reasons is slow by all of them. */
static int32_t draw_slow(const struct fo_spread_in *in, int32_t ranks, uint64_t seed, struct fo_fleet_odd *odd)
{
	int32_t n = 0;
	int next = 0;
	for (int32_t r = 0; r < ranks; r++) {
		struct fo_fleet_odd x = { r, 1, 1 };
		if (next < in->slows && in->slow[next].rank == r)
			x = in->slow[next++];
		for (int i = 0; i < in->chances; i++) {
			uint64_t h = fo_rng_u64(seed + (uint64_t)i, (uint64_t)r);
			if ((double)(h >> 11) * 0x1p-53 < in->chance[i].share)
				x.work *= in->chance[i].work;
		}
		if (x.work < 1 || x.work > 1 || x.link < 1 || x.link > 1)
			odd[n++] = x;
	}
	return n;
}

static double operations_of(const struct fo_fleet *f)
{
	double sum = 0;
	for (int32_t r = 0; r < fo_fleet_ranks(f); r++)
		sum += f->role[fo_fleet_role_of(f, r)].ops;
	return sum;
}

static int steps_of(const struct fo_spread_in *in, const struct fo_fleet *f)
{
	if (in->steps)
		return in->steps;
	if (!(in->jitter > 0)) /* a few classes of each step are simulated */
		return STEPS;
	return (int)fo_clamp((int64_t)(OPERATIONS / (1 + operations_of(f))), LEAST_STEPS, STEPS);
}

static fo_status one_step(double *step_s, struct fo_fleet *f, struct held *h)
{
	struct fo_fleet_run run;
	FO_TRY(fo_fleet_simulate(&run, f));
	*step_s = run.step_s;
	if (h)
		add_step(h, &run);
	fo_fleet_run_fini(&run);
	return FO_OK;
}

static fo_status draw_steps(struct fo_spread_steps *out, struct fo_fleet *f, const struct fo_spread_in *in,
			    struct held *h, struct fo_fleet_odd *odd)
{
	const int32_t ranks = fo_fleet_ranks(f);
	f->odd = NULL;
	f->odds = 0;
	f->jitter = 0;
	FO_TRY(one_step(&out->alike_s, f, NULL));
	f->jitter = in->jitter;
	f->odd = odd;
	for (int i = 0; i < out->steps; i++) {
		f->seed = fo_rng_u64(in->seed, (uint64_t)i);
		f->odds = draw_slow(in, ranks, fo_rng_u64(f->seed, 1), odd);
		FO_TRY(one_step(&out->step_s[i], f, h));
	}
	return FO_OK;
}

fo_status fo_spread_of(struct fo_spread_steps *out, struct fo_fleet *f, const struct fo_spread_in *in)
{
	const struct fo_fleet was = *f;
	const int32_t ranks = fo_fleet_ranks(f);
	for (int i = 0; i < in->slows; i++)
		if (in->slow[i].rank < 0 || in->slow[i].rank >= ranks)
			return fo_fail(FO_EARG, "there is no rank %d: the job has %d, from 0", in->slow[i].rank, ranks);
	*out = (struct fo_spread_steps){ .steps = steps_of(in, f) };
	struct held h = { .of_rank = fo_xmalloc((size_t)ranks * sizeof *h.of_rank) };
	struct fo_fleet_odd *odd = fo_xmalloc((size_t)ranks * sizeof *odd);
	memset(h.of_rank, 0, (size_t)ranks * sizeof *h.of_rank);
	out->step_s = fo_xmalloc((size_t)out->steps * sizeof *out->step_s);
	fo_status st = draw_steps(out, f, in, &h, odd);
	f->odd = was.odd;
	f->odds = was.odds;
	f->jitter = was.jitter;
	f->seed = was.seed;
	if (st == FO_OK) {
		const int tenth = out->steps >= TENTHS ? out->steps / TENTHS : 0;
		qsort(out->step_s, (size_t)out->steps, sizeof *out->step_s, fo_by_double);
		out->low = out->step_s[tenth];
		out->high = out->step_s[out->steps - 1 - tenth];
		out->mid = (out->step_s[(out->steps - 1) / 2] + out->step_s[out->steps / 2]) / 2;
		take_held(out, &h, ranks);
	} else {
		fo_spread_fini(out);
	}
	free(h.share);
	free(h.best_s);
	free(h.rank);
	free(h.of_rank);
	free(odd);
	return st;
}

void fo_spread_fini(struct fo_spread_steps *s)
{
	free(s->step_s);
	*s = (struct fo_spread_steps){ 0 };
}
