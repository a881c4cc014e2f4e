#include "plan/more.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* ---- fewer devices ---- */

double fo_plan_fewer(struct fo_plan *out, const struct fo_plan_asked *asked, const struct fo_plan *all)
{
	struct fo_plan *other = fo_xmalloc(sizeof *other);
	const struct fo_predict_step *now = &all->point[0].step;
	const double node = asked->base.job.machine.per_node;
	struct fo_plan_asked a = *asked;
	double best = now->seconds, of = 0;
	a.programs_known = true;
	for (double n = fo_plan_part_of(node, asked->devices); n >= 1; n = fo_plan_part_of(node, n)) {
		if (now->mfu_causal * asked->devices >= n) /* at the peak these would take as long */
			break;
		a.devices = n;
		if (fo_plan_search(other, &a) == FO_OK && other->point[0].step.seconds < best) {
			best = other->point[0].step.seconds;
			*out = *other;
			of = n;
		}
		fo_err_clear();
	}
	free(other);
	return of;
}

/* ---- so many that it fits ---- */

/* As many as a cluster has at most (src/job/cluster.c). */
#define DEVICES_MOST 1e6

double fo_plan_next_size(double per_node, double devices)
{
	const double nodes = floor(devices / per_node), step = exp2(fmax(0, floor(log2(nodes)) - 6));
	return devices < per_node ? devices + 1 : (nodes + step) * per_node;
}

struct held {
	const struct fo_plan_asked *a;
	struct fo_predict_shared shared;
	bool fits;
};

static bool hold(void *ctx, const struct fo_predict_layout *l, int again)
{
	struct held *h = ctx;
	struct fo_predict_step s;
	(void)again;
	h->fits = fo_predict_point_within(&h->a->base, l, &h->shared, fo_plan_room(h->a), &s);
	return !h->fits;
}

double fo_plan_holding(const struct fo_plan_asked *asked, double *batch)
{
	const double node = asked->base.job.machine.per_node;
	struct fo_plan_asked a = *asked;
	/* Micro-batches of one sequence, computed again as a whole, take the least memory (tests/unit/test_plan.c). */
	if (a.fixed.micro_batch == 0)
		a.fixed.micro_batch = 1;
	if (a.fixed.again < 0 && a.framework->again & 1u << FO_PLAN_AGAIN_FULL)
		a.fixed.again = FO_PLAN_AGAIN_FULL;
	for (int larger = 0; larger < 2; larger++)
		for (a.devices = fo_plan_next_size(node, asked->devices); a.devices <= DEVICES_MOST;
		     a.devices = fo_plan_next_size(node, a.devices)) {
			struct held h = { .a = &a };
			if (larger && a.devices <= asked->global_batch)
				continue;
			a.global_batch = larger ? a.devices : asked->global_batch;
			fo_plan_each(&a, hold, &h);
			*batch = a.global_batch;
			if (h.fits)
				return a.devices;
		}
	return 0;
}

/* ---- more of a resource ---- */

const char *const fo_plan_gains_name[] = {
	[FO_PLAN_GAINS] = "yes",
	[FO_PLAN_GAINS_NOT] = "no",
	[FO_PLAN_GAINS_UNSURE] = "within the error",
	[FO_PLAN_GAINS_GUESS] = "rests on a guess",
	[FO_PLAN_GAINS_NONE] = "not possible",
};
enum { TRIES = 128 }; /* nodes more, at most as many as there are */

static double node_of(const struct fo_plan_asked *a)
{
	const double node = a->base.job.machine.per_node;
	return a->devices < node ? 1 : node;
}

/* Is there a number type or a format that was not asked for and takes less? Of a job that states one of 8 bits, or a
 * format that is none of fp32, there is none. */
static bool numbers_left(const struct fo_plan_asked *a, enum fo_plan_more_of of)
{
	const uint32_t bits8 = 1u << FO_PREDICT_FP8 | 1u << FO_PREDICT_MXFP8 | 1u << FO_PREDICT_FP4;
	uint32_t inexact = 0;
	for (int i = 0; i < FO_PREDICT_FORMATS; i++)
		inexact |= fo_predict_format_row[i].exact ? 0 : 1u << i;
	if (of == FO_PLAN_MORE_TYPE)
		return fo_plan_types_8(a) && !(fo_plan_types(a) & bits8);
	return a->framework->formats & inexact && !(fo_plan_formats(a) & inexact) && !a->base.job.lora &&
	       (a->base.job.format != FO_PREDICT_FORMAT_JOB || fo_memory_plain_states(&a->base.memory.ways)) &&
	       fo_predict_format_row[a->base.job.format].exact;
}

/* The job with twice the resource; of devices, with one node more. */
static void with_more(struct fo_plan_asked *out, const struct fo_plan_asked *asked, enum fo_plan_more_of of)
{
	struct fo_predict_job job = asked->base.job;
	*out = *asked;
	out->programs_known = true;
	switch (of) {
	case FO_PLAN_MORE_MEMORY: out->memory_bytes = 2 * fo_plan_room(asked); return;
	case FO_PLAN_MORE_BATCH: out->global_batch *= 2; return;
	case FO_PLAN_MORE_DEVICES: out->devices += node_of(asked); return;
	case FO_PLAN_MORE_TYPE: out->types = fo_plan_types(asked) | fo_plan_types_8(asked); return;
	case FO_PLAN_MORE_FORMAT:
		out->formats = fo_plan_formats(asked) | (asked->framework->formats & ~(1u << FO_PREDICT_FORMAT_FP32));
		return;
	case FO_PLAN_MORE_NET: job.machine.net_byte_s *= 2; break;
	case FO_PLAN_MORE_NODE: job.machine.node_byte_s *= 2; break;
	default: return;
	}
	(void)fo_predict_prepare(&job, &out->base); /* what could be prepared before still can */
}

static double sequences_s(const struct fo_plan_point *p, const struct fo_plan_asked *a)
{
	return a->global_batch / p->step.seconds;
}

/* The fastest in the axes of the divisions of `all`. */
static bool search_axes(struct fo_plan_point *out, const struct fo_plan_asked *asked, const struct fo_plan *all,
			struct fo_plan *scratch)
{
	struct fo_plan_asked a = *asked;
	bool any = false;
	for (int i = 0; i < all->points; i++) {
		const struct fo_predict_layout *l = &all->point[i].layout;
		a.fixed.tp = l->tp, a.fixed.cp = l->cp, a.fixed.pp = l->pp, a.fixed.ep = l->ep;
		if (fo_plan_search(scratch, &a) == FO_OK &&
		    (!any || scratch->point[0].step.seconds < out->step.seconds)) {
			*out = scratch->point[0];
			any = true;
		}
		fo_err_clear();
	}
	return any;
}

/* The fewest devices more that have a division which fits; up to twice as many. */
static bool search_devices(struct fo_plan_point *out, struct fo_plan_asked *a, struct fo_plan *scratch)
{
	const double unit = node_of(a), now = a->devices;
	for (int i = 1; i <= TRIES && i * unit <= now; i++) {
		a->devices = now + i * unit;
		const bool found = fo_plan_possible(a) && fo_plan_search(scratch, a) == FO_OK;
		fo_err_clear();
		if (!found)
			continue;
		*out = scratch->point[0];
		return true;
	}
	return false;
}

static enum fo_plan_gains gains_of(const struct fo_plan_more *m, bool guess)
{
	if (fabs(m->times - 1) < 1e-6 || m->range.high < 1)
		return FO_PLAN_GAINS_NOT;
	if (guess)
		return FO_PLAN_GAINS_GUESS;
	return m->range.low > 1 ? FO_PLAN_GAINS : FO_PLAN_GAINS_UNSURE;
}

/* The format nearest to fp32 that is none. */
static void take_bytes(struct fo_plan_more *o, const struct fo_plan_asked *a, const struct fo_plan_point *named)
{
	struct fo_predict_layout l = named->layout;
	struct fo_predict_step s;
	for (int f = 0; f < FO_PREDICT_FORMATS && !(o->less_bytes > 0); f++) {
		o->format = l.format = (enum fo_predict_format)f;
		if (fo_predict_format_row[f].exact || fo_plan_illegal(a, &l))
			continue;
		fo_predict_memory_of(&a->base, &l, &s);
		o->less_bytes = s.wrong ? 0 : named->step.bytes - s.bytes;
	}
}

void fo_plan_more_of(struct fo_plan_more out[FO_PLAN_MORES], const struct fo_plan_asked *asked,
		     const struct fo_plan *all)
{
	struct fo_plan *scratch = fo_xmalloc(sizeof *scratch);
	const struct fo_plan_point *now = &all->point[0];
	for (int i = 0; i < FO_PLAN_MORES; i++) {
		struct fo_plan_asked a;
		struct fo_plan_point p;
		struct fo_predict_gain g;
		out[i] = (struct fo_plan_more){ .gains = FO_PLAN_GAINS_NONE, .times = NAN, .range = fo_range(NAN) };
		with_more(&a, asked, (enum fo_plan_more_of)i);
		if (i == FO_PLAN_MORE_NET && asked->devices <= asked->base.job.machine.per_node)
			continue;
		if (i >= FO_PLAN_MORE_TYPE && !numbers_left(asked, (enum fo_plan_more_of)i))
			continue;
		if (i == FO_PLAN_MORE_FORMAT)
			take_bytes(&out[i], asked, &all->point[all->named]);
		if (i == FO_PLAN_MORE_DEVICES)
			a.devices = asked->devices;
		const bool found = i == FO_PLAN_MORE_DEVICES ? search_devices(&p, &a, scratch)
							     : search_axes(&p, &a, all, scratch);
		out[i].devices = a.devices;
		if (!found)
			continue;
		fo_predict_gain_of(&asked->base, &now->layout, &a.base, &p.layout, &g);
		out[i].global_batch = a.global_batch;
		out[i].layout = p.layout;
		out[i].times = sequences_s(&p, &a) / sequences_s(now, asked);
		out[i].range = fo_range_scaled(out[i].times / g.times, g.range);
		out[i].gains = gains_of(&out[i], g.rests_on_guess);
	}
	free(scratch);
}
