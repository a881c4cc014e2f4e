#include "plan/scale.h"

#include "base/mem.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>

/* Clusters from 8 to 262,144 devices: the question of FEATURES.md, row P3. */
enum { SMALLEST = 8, LARGEST = 1 << 18 };

static bool is_power(double n) { return n >= 1 && exp2(round(log2(n))) == n; }

/* Devices of a node that are used where not all nodes can be whole. */
static double used_of(double per_node) { return is_power(per_node) ? per_node : exp2(floor(log2(per_node))); }

int fo_scale_sizes(double *size)
{
	int n = 0;
	for (double d = SMALLEST; d <= LARGEST; d *= 2)
		size[n++] = d;
	return n;
}

/* Devices of each node in a cluster of so many; 0: no number of nodes has them. */
static double node_of(double per_node, double devices)
{
	const double used = used_of(per_node);
	if (devices <= per_node)
		return devices;
	if (fmod(devices, per_node) == 0)
		return per_node;
	return fmod(devices, used) == 0 ? used : 0;
}

fo_status fo_scale_check(double per_node, double devices)
{
	const double used = used_of(per_node);
	if (devices >= 1 && devices == floor(devices) && node_of(per_node, devices) > 0)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "no number of nodes of %.15g has %.15g device%s", per_node, devices,
			       fo_plural(devices)),
		       "%.15g devices fill whole nodes", fmax(1, round(devices / used)) * used);
}

/* ---- one size ---- */

/* The same job on machines of this size. */
static void take_size(const struct fo_scale_asked *a, const struct fo_scale_point *p, double net,
		      struct fo_plan_asked *out)
{
	struct fo_predict_job job = a->plan.base.job;
	job.machine.per_node = p->per_node;
	job.machine.net_byte_s *= net;
	*out = a->plan;
	out->devices = p->devices;
	out->global_batch = p->global_batch;
	(void)fo_predict_prepare(&job, &out->base); /* what could be prepared for one size can for another */
}

/* The interval of the plan's step: of its own, and down to where the network is the slowest that it may be. */
static void take_interval(const struct fo_scale_asked *a, struct fo_scale_point *p, const struct fo_plan_asked *here)
{
	const struct fo_predict_step *s = &p->plan.step;
	struct fo_predict_certainty sure, slow_sure;
	struct fo_plan_asked slow;
	struct fo_predict_step step;
	fo_predict_certainty_of(&here->base, &p->plan.layout, s, &sure);
	p->seconds = sure.seconds;
	p->doubt = sure.flag;
	p->size = a->net_measured ? NULL : sure.size;
	if (p->nodes > 1 && a->net.low < 1 && !a->net_measured) {
		take_size(a, p, a->net.low, &slow);
		fo_predict_point(&slow.base, &p->plan.layout, &step);
		fo_predict_certainty_of(&slow.base, &p->plan.layout, &step, &slow_sure);
		p->seconds.high = fmax(p->seconds.high, slow_sure.seconds.high);
	}
	const struct fo_range faster = { s->seconds / p->seconds.high, s->seconds / p->seconds.low };
	p->tokens_s = fo_range_scaled(p->plan.tokens_s, faster);
	p->mfu_causal = fo_range_scaled(s->mfu_causal, faster);
	p->kept_tokens_s = fo_range_times(p->tokens_s, p->goodput.drawn);
}

static fo_status search(const struct fo_scale_asked *a, struct fo_scale_point *p, struct fo_plan *plan)
{
	struct fo_plan_asked here;
	struct fo_goodput_in g = a->goodput;
	take_size(a, p, 1, &here);
	fo_status st = fo_plan_search(plan, &here);
	if (st == FO_ENOMEM && plan->too_large) {
		p->fit = FO_SCALE_TOO_LARGE;
		p->smallest_bytes = plan->smallest.step.bytes;
		p->smallest_bytes_high = fo_predict_upper_bytes(&plan->smallest.step);
		return FO_OK;
	}
	if (st != FO_OK) {
		p->fit = FO_SCALE_NO_DIVISION;
		return st;
	}
	g.devices = p->devices;
	fo_goodput_of(&g, &p->goodput);
	p->plan = plan->point[plan->named];
	take_interval(a, p, &here);
	return FO_OK;
}

fo_status fo_scale_of(struct fo_scale *out, const struct fo_scale_asked *a)
{
	struct fo_plan *plan = fo_xmalloc(sizeof *plan);
	fo_status st = FO_OK;
	double first = 0;
	bool legal = false;
	*out = (struct fo_scale){ .weak = a->weak };
	for (int i = 0; i < a->sizes; i++) {
		struct fo_scale_point *p = &out->point[out->points++];
		*p = (struct fo_scale_point){ .devices = a->size[i],
					      .per_node = node_of(a->per_node, a->size[i]),
					      .global_batch = a->plan.global_batch };
		p->nodes = p->devices / p->per_node;
		if (a->weak)
			p->global_batch = a->plan.global_batch * p->devices / a->plan.devices;
		if (p->global_batch != floor(p->global_batch)) {
			p->fit = FO_SCALE_NO_BATCH;
			continue;
		}
		fo_status one = search(a, p, plan);
		st = legal ? FO_OK : one;
		legal |= one == FO_OK;
		if (p->fit != FO_SCALE_FITS)
			continue;
		first = first > 0 ? first : p->plan.tokens_s;
		p->speed = p->plan.tokens_s / first;
	}
	if (legal)
		fo_err_clear();
	free(plan);
	if (st == FO_OK && !legal)
		return fo_hint(fo_fail(FO_EARG, "no size has a whole number of sequences of %.15g on %.15g device%s",
				       a->plan.global_batch, a->plan.devices, fo_plural(a->plan.devices)),
			       "a batch of %.15g sequence%s does", a->plan.devices, fo_plural(a->plan.devices));
	return legal ? FO_OK : st;
}
