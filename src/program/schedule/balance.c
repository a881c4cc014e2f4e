/* Splits a model's layers over stages by predicted time and memory.
 *
 * A table has what a stage costs with n layers. Three programs follow over (stages so far, layers so far), each within
 * what the one before it found: the smallest greatest time, then the smallest greatest memory, then the smallest sum of
 * squared times. The sum makes the answer as even as it can be; ties go to fewer layers on the earlier stage. */
#include "program/schedule.h"

#include "base/mem.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct table {
	const struct fo_pp_shape *p;
	const struct fo_pp_costs *c;
	int32_t layers;
	double *seconds, *bytes; /* [stage][layers + 1]; INFINITY: no such stage */
};
static double *at(double *v, const struct table *t, int32_t stage, int32_t n)
{
	return &v[(int64_t)stage * (t->layers + 1) + n];
}

/* A part's sum: its layers, and embedding and head where it has them. */
static double part_sum(const struct fo_pp_shape *p, int32_t position, int32_t layers, double layer, double embed,
		       double head)
{
	double sum = layers * layer;
	if (position == 0)
		sum += embed;
	if (position == fo_pp_parts(p) - 1)
		sum += head;
	return sum;
}
static double part_seconds(const struct fo_pp_shape *p, int32_t position, int32_t layers, const struct fo_pp_costs *c)
{
	return part_sum(p, position, layers, c->layer_s, c->embed_s, c->head_s);
}

/* Gives a stage's n layers to its chunks: one each, then each to the chunk that is fastest so far. */
static void spread(const struct fo_pp_shape *p, int32_t stage, int32_t n, const struct fo_pp_costs *c, int32_t *layers)
{
	for (int32_t k = 0; k < p->chunks; k++)
		layers[fo_pp_position(p, stage, k)] = 1;
	for (int32_t i = p->chunks; i < n; i++) {
		int32_t best = -1;
		for (int32_t k = 0; k < p->chunks; k++) {
			const int32_t at = fo_pp_position(p, stage, k);
			if (best < 0 || part_seconds(p, at, layers[at], c) < part_seconds(p, best, layers[best], c))
				best = at;
		}
		layers[best]++;
	}
}

static double held_bytes(const struct fo_pp_shape *p, int32_t position, int32_t layers, const struct fo_pp_costs *c)
{
	return part_sum(p, position, layers, c->layer_held, c->embed_held, c->head_held);
}
/* The most that a stage's activations take at once. */
static double most_held(const struct fo_pp_shape *p, int32_t stage, const int32_t *layers, const struct fo_pp_costs *c)
{
	const int32_t only = fo_pp_position(p, stage, 0);
	if (p->chunks == 1)
		return (double)fo_pp_in_flight_formula(p, stage) * held_bytes(p, only, layers[only], c);
	struct fo_pp_slot *slot = fo_xmalloc((size_t)fo_pp_slots_most(p) * sizeof *slot);
	int64_t held[FO_PP_CHUNKS_MOST] = { 0 };
	double most = 0, one[FO_PP_CHUNKS_MOST];
	for (int32_t k = 0; k < p->chunks; k++) {
		const int32_t position = fo_pp_position(p, stage, k);
		one[k] = held_bytes(p, position, layers[position], c);
	}
	for (int64_t i = 0, n = fo_pp_order(p, stage, slot); i < n; i++) {
		double now = 0;
		if (slot[i].work != FO_PP_FORWARD) {
			held[slot[i].chunk] -= slot[i].work != FO_PP_INPUT;
			continue;
		}
		held[slot[i].chunk]++;
		for (int32_t k = 0; k < p->chunks; k++)
			now += (double)held[k] * one[k];
		most = now > most ? now : most;
	}
	free(slot);
	return most;
}

void fo_pp_stage_costs(const struct fo_pp_shape *p, int32_t stage, const int32_t *layers, const struct fo_pp_costs *c,
		       double *seconds, double *bytes)
{
	double time = 0, stay = 0;
	for (int32_t k = 0; k < p->chunks; k++) {
		const int32_t position = fo_pp_position(p, stage, k);
		time += part_seconds(p, position, layers[position], c);
		stay += part_sum(p, position, layers[position], c->layer_bytes, c->embed_bytes, c->head_bytes);
	}
	if (seconds)
		*seconds = time;
	if (bytes)
		*bytes = stay + most_held(p, stage, layers, c);
}

/* Layers of one stage where the others have one for each chunk. */
static int32_t most_layers(const struct table *t) { return t->layers - (t->p->stages - 1) * t->p->chunks; }

static void fill(struct table *t, int32_t *layers)
{
	const int32_t most = most_layers(t);
	for (int32_t s = 0; s < t->p->stages; s++)
		for (int32_t n = 0; n <= t->layers; n++) {
			double *seconds = at(t->seconds, t, s, n), *bytes = at(t->bytes, t, s, n);
			*seconds = *bytes = INFINITY;
			if (n < t->p->chunks || n > most)
				continue;
			spread(t->p, s, n, t->c, layers);
			fo_pp_stage_costs(t->p, s, layers, t->c, seconds, bytes);
		}
}

enum goal { TIME, MEMORY, EVEN };
static double goal_of(const struct table *t, enum goal goal, int32_t s, int32_t n)
{
	const double seconds = *at(t->seconds, t, s, n);
	if (goal == MEMORY)
		return *at(t->bytes, t, s, n);
	return goal == TIME ? seconds : seconds * seconds;
}

/* The least greatest time or memory, or the least sum, over all splits whose stages stay within these limits; INFINITY:
 * there is none. count[stage] (may be NULL): layers of each stage. */
static double solve(const struct table *t, enum goal goal, double seconds, double bytes, int32_t *count)
{
	const int32_t stages = t->p->stages, layers = t->layers;
	const int32_t most = most_layers(t);
	const size_t cells = ((size_t)stages + 1) * ((size_t)layers + 1);
	double *best = fo_xmalloc(cells * sizeof *best);
	int32_t *took = fo_xmalloc(cells * sizeof *took);
	for (int32_t n = 0; n <= layers; n++)
		best[n] = n ? INFINITY : 0;
	for (int32_t s = 0; s < stages; s++)
		for (int32_t n = 0; n <= layers; n++) {
			double *here = at(best, t, s + 1, n);
			*here = INFINITY;
			for (int32_t k = t->p->chunks; k <= n && k <= most; k++) {
				const double before = *at(best, t, s, n - k), own = goal_of(t, goal, s, k);
				if (*at(t->seconds, t, s, k) > seconds || *at(t->bytes, t, s, k) > bytes)
					continue;
				const double now = goal == EVEN ? before + own : fmax(before, own);
				if (now < *here) {
					*here = now;
					took[(int64_t)(s + 1) * (layers + 1) + n] = k;
				}
			}
		}
	const double found = *at(best, t, stages, layers);
	for (int32_t s = stages, n = layers; count && isfinite(found) && s > 0; s--) {
		count[s - 1] = took[(int64_t)s * (layers + 1) + n];
		n -= count[s - 1];
	}
	free(best);
	free(took);
	return found;
}

/* Sums in another order may differ in their last bits. */
static double barely_above(double v) { return v * (1 + 1e-12); }

static fo_status fail_room(const struct table *t)
{
	char needs[32], has[32];
	fo_status st = fo_fail(FO_ENOMEM, "no split of %d layers over %d stages fits: its fullest stage needs %s of %s",
			       t->layers, t->p->stages, fo_str_bytes(needs, solve(t, MEMORY, INFINITY, INFINITY, NULL)),
			       fo_str_bytes(has, t->c->room));
	return fo_hint(st, "take more stages, more ranks that share weights, smaller micro-batches or recomputation");
}

static void sum_up(struct fo_pp_balance *out, const struct fo_pp_shape *p, const struct fo_pp_costs *c)
{
	out->slowest_s = out->fullest = -1;
	out->mean_s = 0;
	for (int32_t s = 0; s < p->stages; s++) {
		double seconds, bytes;
		fo_pp_stage_costs(p, s, out->layers, c, &seconds, &bytes);
		out->mean_s += seconds / p->stages;
		if (seconds > out->slowest_s) {
			out->slowest_s = seconds;
			out->slow = s;
		}
		if (bytes > out->fullest) {
			out->fullest = bytes;
			out->full = s;
		}
	}
}

fo_status fo_pp_balance_of(struct fo_pp_balance *out, const struct fo_pp_shape *p, int32_t layers,
			   const struct fo_pp_costs *c)
{
	enum { LAYERS_MOST = 1 << 11 }; /* more than any model has; the tables grow with them */
	struct table t = { .p = p, .c = c, .layers = layers };
	fo_status st = FO_OK;
	FO_TRY(fo_pp_legal(p));
	if (layers < fo_pp_parts(p))
		return fo_fail(FO_EARG, "%d layers cannot fill %d stages of %d chunk%s: %d parts want a layer each",
			       layers, p->stages, p->chunks, fo_plural(p->chunks), fo_pp_parts(p));
	if (layers > LAYERS_MOST)
		return fo_fail(FO_EARG, "%d layers are more than the %d that can be split", layers, LAYERS_MOST);
	const size_t cells = (size_t)p->stages * ((size_t)layers + 1);
	int32_t *count = fo_xmalloc((size_t)p->stages * sizeof *count);
	t.seconds = fo_xmalloc(cells * sizeof *t.seconds);
	t.bytes = fo_xmalloc(cells * sizeof *t.bytes);
	fill(&t, out->layers);
	const double room = c->room > 0 ? c->room : DBL_MAX;
	const double seconds = barely_above(solve(&t, TIME, INFINITY, room, NULL));
	if (!isfinite(seconds)) {
		st = fail_room(&t);
		goto done;
	}
	const double bytes = fmin(room, barely_above(solve(&t, MEMORY, seconds, room, NULL)));
	solve(&t, EVEN, seconds, bytes, count);
	for (int32_t s = 0; s < p->stages; s++)
		spread(p, s, count[s], c, out->layers);
	sum_up(out, p, c);
done:
	free(t.seconds);
	free(t.bytes);
	free(count);
	return st;
}
