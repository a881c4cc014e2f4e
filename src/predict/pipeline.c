/* The time of a pipeline's slots: the longest way through them in closed form, as walking through the schedule slot by
 * slot gives it (program/schedule.h; tests/unit/test_predict_events.c holds one to the other).
 *
 * A way begins with the first micro-batch's forward on the first stage, goes down to the last stage and comes back with
 * gradients. In between it covers the other micro-batches. With 1F1B it may stay on a stage, which covers one for a
 * forward and a backward; or it takes a turn: from stage b up to stage a with gradients and down again with
 * activations, which covers b - a + 1 for as many forwards and backwards. Near a step's end the stages in front have no
 * forwards left, so turns that reach far up come first. Stages are alike in runs, so that only ends of runs matter. */
#include "predict/pipeline.h"

#include "base/mem.h"
#include "predict/predict_int.h"

#include <stdlib.h>

enum { RUNS = 5 };
/* Stages that are alike, by their numbers; seconds of one of them. */
struct run {
	double first, last, forward, input, weight;
};
struct pipe {
	const struct fo_predict_pipeline *of;
	double p, m;
	struct run run[RUNS], end[2 * RUNS]; /* end: a run's first and last stage, each by itself */
	double before[2 * RUNS];             /* seconds of all stages in front of an end */
	int runs, ends;
	double all; /* seconds of all stages, one micro-batch, there and back */
	double hop; /* of a message that a stage does not wait for itself: on the way from one stage to the next */
	double best;
};

static double slots(const struct run *r) { return r->forward + r->input + r->weight; }
static double stages(const struct run *r) { return r->last - r->first + 1; }

static void try(struct pipe *x, double seconds) { x->best = most(x->best, seconds); }

/* again: seconds of a layer that the run's stages do not have. */
static void add_run(struct pipe *x, double n, double layers, bool head, double again)
{
	const struct fo_predict_pipeline *o = x->of;
	const double first = x->runs ? x->run[x->runs - 1].last + 1 : 0;
	const bool front = first < 1; /* it has the embedding */
	const struct run r = {
		.first = first,
		.last = first + n - 1,
		.forward = layers * o->layer[0] + head * o->head[0] + front * o->embed[0] + o->hop - x->hop,
		.input = layers * (o->layer[1] - again) + head * o->head[1] + front * o->embed[1] + o->hop - x->hop,
		.weight = layers * o->layer[2] + head * o->head[2]
	};
	x->run[x->runs++] = r;
	for (int i = 0; i < 1 + (n > 1); i++) {
		struct run *e = &x->end[x->ends];
		*e = r;
		e->first = e->last = i ? r.last : r.first;
		x->before[x->ends++] = x->all + (i ? n - 1 : 0) * (slots(&r) + 2 * x->hop);
	}
	x->all += n * (slots(&r) + 2 * x->hop);
}

/* How many stages of a run are `from` or behind it. */
static double behind(const struct run *r, double from) { return most(0, r->last - most(from, r->first) + 1); }

/* ---- 1F1B ---- */

/* Turns between ends a and b, as many as fit; then what is left: on the last stage forwards and backwards, or a shorter
 * turn; elsewhere backwards alone, or in place of the last turn one that goes down to the last stage. */
static void turns(struct pipe *x, int a, int b)
{
	const struct run *from = &x->end[a], *to = &x->end[b], *last = &x->end[x->ends - 1];
	const double n = to->first - from->first + 1, turn = x->before[b] + slots(to) - x->before[a],
		     left = x->m - 1 - (x->p - from->first);
	if (left < 0)
		return;
	const double times = (double)(int64_t)(left / n), rest = x->m - 1 - (times + 1) * n;
	if (b < x->ends - 1) {
		try(x, x->all + (times + 1) * turn + rest * (to->input + to->weight));
		try(x, x->all + times * turn + x->all - x->before[a] + (left - times * n) * slots(last));
		return;
	}
	double shorter = (rest - 1) * 2 * x->hop;
	for (int i = 0; i < x->runs; i++)
		shorter += behind(&x->run[i], x->p - rest) * slots(&x->run[i]);
	try(x, x->all + (times + 1) * turn + most(rest * slots(last), shorter));
}

static void one_f_one_b(struct pipe *x)
{
	const double m = x->m;
	for (int a = 0; a < x->ends; a++) {
		const struct run *s = &x->end[a];
		/* The first micro-batch's way covers what a stage's forwards run ahead. */
		try(x, x->all + (m - 1) * slots(s) - least(x->p - 1 - s->first, m - 1) * s->forward);
		for (int b = a; b < x->ends && x->runs > 1; b++)
			turns(x, a, b);
	}
}

/* ---- GPipe ---- */

static void gpipe(struct pipe *x)
{
	double forward = 0, backward = 0;
	for (int i = 0; i < x->runs; i++) {
		forward = most(forward, x->run[i].forward);
		backward = most(backward, x->run[i].input + x->run[i].weight);
	}
	try(x, x->all + (x->m - 1) * (forward + backward));
}

/* ---- zero bubble ---- */

/* ZB-H1: turns from a stage to the last one. Before weights' gradients begin they cost no more than staying on the last
 * stage; at the end they spare a slow stage the forwards that it has not. */
static void zero_bubble_turns(struct pipe *x, const struct run *from, double trip)
{
	const double m = x->m, p = x->p, n = p - from->first, rest = m - 1 - n;
	const struct run *first = &x->end[0], *last = &x->end[x->ends - 1];
	double turn = 2 * (p - 1 - from->first) * x->hop;
	if (rest < 0)
		return;
	for (int i = 0; i < x->runs; i++)
		turn += behind(&x->run[i], from->first) * (x->run[i].forward + x->run[i].input);
	if (from->first > 0)
		try(x,
		    trip + turn + rest * (last->forward + last->input) + most(0, m - p) * last->weight + first->weight);
	try(x, trip + rest * slots(from) + (rest >= from->first ? 1 : 0) * from->weight -
		       least(rest, from->first) * from->weight + turn + first->weight);
}

/* Down, up, the last stage without waiting (or all forwards of another one first); then up to a stage whose weights'
 * gradients, all of them late, end the step. */
static void zero_bubble_end(struct pipe *x, double times, double trip, double end)
{
	const struct run *last = &x->end[x->ends - 1];
	const double m = x->m;
	double inputs = 0, weight = 0, forward = 0;
	for (int i = 0; i < x->runs; i++) {
		const struct run *r = &x->run[i];
		forward = most(forward, r->forward);
		inputs += most(0, least(end - 1, r->last) - r->first + 1) * (r->input + x->hop);
		weight = end >= r->first ? r->weight : weight;
	}
	const double stay = (m - 1) * (last->forward + last->input) +
			    most(0, m - 1 - times * (x->p - 1)) * last->weight;
	try(x, trip - inputs + most(stay, (m - 1) * forward) + (least(times * end, m - 1) + 1) * weight);
}

/* Stage s has `times` (p - 1 - s) forwards ahead, and weights' gradients `times` s micro-batches late. */
static void zero_bubble(struct pipe *x, double times)
{
	const double m = x->m, p = x->p;
	const struct run *first = &x->end[0];
	double trip = 2 * (p - 1) * x->hop, forwards = 0, inputs = 0; /* of all stages; of those in front of s */
	for (int i = 0; i < x->runs; i++)
		trip += stages(&x->run[i]) * (x->run[i].forward + x->run[i].input);
	for (int i = 0; i < x->ends; i++) {
		const struct run *r = &x->end[i];
		const double s = r->first, ahead = least(times * (p - 1 - s), m - 1);
		const double later = (m - 1 - ahead) * r->forward + (m - 1) * r->input;
		if (i > 0) {
			const double n = s - x->end[i - 1].first;
			forwards += n * (x->end[i - 1].forward + x->hop), inputs += n * (x->end[i - 1].input + x->hop);
		}
		/* Down, up, all of s; then up to the first stage, whose last weights' gradient ends the step. */
		try(x, trip + later + most(0, m - 1 - times * s) * r->weight + first->weight);
		try(x, trip - inputs + later + m * r->weight); /* or s is the last to end */
		try(x, forwards + m * slots(r));               /* or never waits */
	}
	const double end = least((double)(int64_t)((m - 1) / times), p - 1);
	zero_bubble_end(x, times, trip, end);
	zero_bubble_end(x, times, trip, least(end + 1, p - 1));
	for (int i = 0; i < x->ends && times <= 1 && x->runs > 1; i++)
		zero_bubble_turns(x, &x->end[i], trip);
}

/* The schedule of zero_bubble.c slot by slot, for what has no closed form: ZB-H2 where stages have several sizes, or
 * with so few micro-batches that no stage gets into its rhythm. Beyond `WALKED` micro-batches for each stage the
 * slowest stage paces all others. */
enum { WALKED = 3, WALKED_MOST = 1 << 20 /* stages times micro-batches */ };
struct walker {
	double now;
	int forward, input, weight; /* of micro-batches: done */
};

/* Does the next slot of stage s that can begin; false: it waits, or all are done. */
static bool walk_on(struct walker *w, const struct run *r, const double *in, const double *back, double *out,
		    double *up, int ahead, int late, int m, double hop)
{
	const int due = w->input < m ? w->input - late : m;
	if (w->weight < due) {
		w->now += r->weight;
		w->weight++;
	} else if (w->input == m) {
		return false;
	} else if (w->forward < m && w->forward <= ahead + w->input) {
		if (in && in[w->forward] < 0)
			return false;
		w->now = most(w->now, in ? in[w->forward] + hop : 0) + r->forward;
		out[w->forward++] = w->now;
	} else {
		if (back && back[w->input] < 0)
			return false;
		w->now = most(w->now, back ? back[w->input] + hop : 0) + r->input;
		up[w->input++] = w->now;
	}
	return true;
}

static void walk(struct pipe *x, int times)
{
	const int p = (int)x->p, m = (int)least(x->m, WALKED * x->p);
	const size_t all = (size_t)p * (size_t)m;
	double *out = fo_xmalloc(2 * all * sizeof *out), *up = out + all, end = 0, slowest = 0;
	struct walker *w = fo_xmalloc((size_t)p * sizeof *w);
	for (size_t i = 0; i < 2 * all; i++)
		out[i] = -1;
	for (int s = 0; s < p; s++)
		w[s] = (struct walker){ 0 };
	for (bool on = true; on;) {
		on = false;
		for (int s = 0, k = 0; s < p; s++) {
			k += s > x->run[k].last;
			const double *in = s ? out + (size_t)(s - 1) * (size_t)m : NULL;
			const double *back = s < p - 1 ? up + (size_t)(s + 1) * (size_t)m : NULL;
			double *o = out + (size_t)s * (size_t)m, *u = up + (size_t)s * (size_t)m;
			while (walk_on(&w[s], &x->run[k], in, back, o, u, times * (p - 1 - s), times * s, m, x->hop))
				on = true;
		}
	}
	for (int s = 0; s < p; s++)
		end = most(end, w[s].now);
	for (int i = 0; i < x->runs; i++)
		slowest = most(slowest, slots(&x->run[i]));
	x->best = end + (x->m - m) * slowest;
	free(out);
	free(w);
}

/* ---- interleaved 1F1B ---- */

/* Runs have times of one chunk; the head is on the last part alone. A stage that never waits once it is reached, or,
 * with few micro-batches, one's way through all parts with the others behind it. Exact where stages are alike. */
static void interleaved(struct pipe *x)
{
	const struct fo_predict_pipeline *o = x->of;
	const double head = o->head[0] + o->head[1] + o->head[2], embed = o->embed[0] + o->embed[1];
	for (int i = 0; i < x->runs; i++) {
		const double once = i ? 0 : embed; /* its time is in one chunk alone */
		const double own = slots(&x->run[i]) - once, more = once + (x->run[i].last < x->p - 1 ? 0 : head);
		try(x, x->all + 2 * (o->chunks - 1) * x->p * x->hop + x->m * (o->chunks * own + more) - own);
		try(x, o->chunks * x->all + 2 * (o->chunks - 1) * x->hop + head + (x->m - 1) * (own + more));
	}
}

static double layers_of(const struct fo_predict_pipeline *o, double stage)
{
	return fo_predict_layers_at(&o->uneven, o->fewest, o->full, o->stages, stage);
}

/* A run begins where stages have other layers, recompute no more, or have the head (in no part of its own). */
static void add_runs(struct pipe *x, double chunks, bool apart)
{
	const struct fo_predict_pipeline *o = x->of;
	const bool uneven = fo_predict_is_uneven(&o->uneven);
	const double p = o->stages, first = o->embed[0] + o->embed[1] > 0 || uneven ? 1 : 0;
	const double cut[] = { first, uneven ? 0 : o->full, o->again_stages, p - (uneven || !apart) };
	for (double at = 0, end; at < p; at = end) {
		end = p;
		for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
			end = cut[i] > at ? least(end, cut[i]) : end;
		add_run(x, end - at, layers_of(o, at) / chunks, !apart && at == p - 1,
			o->again_stages > 0 && at >= o->again_stages ? o->again : 0);
	}
}

double fo_predict_pipeline_s(const struct fo_predict_pipeline *o)
{
	struct pipe x = { .of = o, .p = o->stages, .m = o->micro_batches, .hop = o->ahead ? o->hop : 0 };
	const double v = o->schedule == FO_PREDICT_INTERLEAVED ? o->chunks : 1;
	const bool apart = v > 1; /* the head has no part in a chunk's time */
	add_runs(&x, v, apart);
	x.all -= 2 * x.hop; /* behind the last stage there is none */
	if (apart)
		interleaved(&x);
	else if (o->schedule == FO_PREDICT_GPIPE)
		gpipe(&x);
	else if (o->schedule == FO_PREDICT_ZERO_BUBBLE)
		zero_bubble(&x, 1);
	else if (o->schedule == FO_PREDICT_ZB_H2 && (x.runs > 2 || x.m < 2 * x.p) &&
		 x.p * least(x.m, WALKED * x.p) <= WALKED_MOST)
		walk(&x, 2);
	else if (o->schedule == FO_PREDICT_ZB_H2)
		zero_bubble(&x, 2);
	else
		one_f_one_b(&x);
	return x.best;
}
