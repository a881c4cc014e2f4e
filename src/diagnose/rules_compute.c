/* Rates of attention and matmuls against the peak. Never serious: a trace cannot say that a faster kernel exists for
 * the device at hand, so the least gain is none. */
#include "diagnose/products_int.h"

#include <math.h>

/* Published: FlashAttention-2 (arXiv:2307.08691) 50 to 73 % of an A100's peak, FlashAttention-3 (arXiv:2407.08608) up
 * to 75 % of an H100's. Below the least of them there is room; more than the best of them is not promised. */

static bool attention_efficiency(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_attention_rate *a = &c->s->d->attention;
	const struct fo_bridge *b = &c->s->d->bridge;
	if (!(a->efficiency < FO_ATTENTION_LEAST) || a->efficiency < FO_RATE_LEAST ||
	    fo_share(c, a->time_ns) <= FO_SHARE_ADVICE)
		return false;
	int64_t above = (int64_t)((1 - a->efficiency / FO_ATTENTION_BEST) * (double)a->time_ns);
	fo_gain_usual(c, f, above, 0);
	fo_title(f, "attention reaches %.0f %% of the peak and takes %.1f %% of the step", 100 * a->efficiency,
		 fo_percent(c, a->time_ns));
	fo_why(f,
	       "%.0f of %.0f TFLOP/s, every pair of tokens counted; under a causal mask half of that is computed, and "
	       "it is %.0f %%. Published fused kernels reach %.0f to %.0f %% of what they compute (FlashAttention-2 "
	       "and 3).",
	       a->efficiency * b->peak_flop_s / 1e12, b->peak_flop_s / 1e12, 50 * a->efficiency,
	       100 * FO_ATTENTION_LEAST, 100 * FO_ATTENTION_BEST);
	return true;
}

static bool attention_unknown(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_attention_rate *a = &c->s->d->attention;
	if (!isnan(a->efficiency) || c->s->d->bridge.known || fo_share(c, a->time_ns) <= FO_SHARE_SERIOUS ||
	    c->s->t->format == FO_TRACE_OWN)
		return false;
	fo_gain_none(f);
	fo_title(f, "attention takes %.1f %% of the step; this trace does not say how fast it is",
		 fo_percent(c, a->time_ns));
	if (c->s->t->defect.has_shapes || c->s->d->with.model)
		fo_why(f, "Its share of the peak is not known: %s.", c->s->d->bridge.why_not);
	else
		fo_why(f,
		       "Its shapes are not recorded. --model M --seq S --tokens-per-step N with --device D tell what "
		       "it computes and at which share of the peak; so does %srecord_shapes=True.",
		       c->s->t->format == FO_TRACE_NSYS ? "a trace of the PyTorch profiler with " : "");
	return true;
}

/* FLOP/s over all matmuls with a known ceiling, without those of shape-padding and split-k and those too short for a
 * rate. */
struct reached {
	double flop_s, attainable_flop_s, fill;
	double part; /* of all matmuls' time */
};
static struct reached products_reached(const struct fo_diagnosis *d)
{
	double flop = 0, s = 0, best_s = 0, filled = 0, all_s = 0;
	for (int64_t i = 0; i < d->products; i++) {
		const struct fo_product *p = &d->product[i];
		double n = p->flop_s * (double)p->time_ns / 1e9;
		all_s += (double)p->time_ns / 1e9;
		if (isnan(p->attainable_flop_s) || isnan(p->fill) || p->attainable_flop_s <= 0 || p->tiny ||
		    fo_product_claimed(p))
			continue;
		flop += n;
		s += (double)p->time_ns / 1e9;
		best_s += n / p->attainable_flop_s;
		filled += n * p->fill;
	}
	return (struct reached){ flop / s, flop / best_s, filled / flop, s / all_s };
}

/* Matmuls that do what can be done, and are yet far below the peak: the difference is the device's, and the points of
 * MFU it costs are nobody's to fix. 0.6: below it they are a finding of their own (gemm-efficiency). */
static bool product_ceiling(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_bridge *b = &c->s->d->bridge;
	struct reached r = products_reached(c->s->d);
	double share = r.part * fo_share(c, fo_class_time(&c->s->l, FO_PRODUCT_CLASSES)),
	       lost = share * (1 - r.flop_s / b->peak_flop_s);
	if (!b->known || !(r.attainable_flop_s >= FO_RATE_LEAST * b->peak_flop_s) ||
	    !(r.flop_s >= 0.6 * r.attainable_flop_s) || !(lost > FO_SHARE_ADVICE))
		return false;
	fo_gain_none(f);
	fo_title(f, "matmuls reach %.0f %% of what is attainable, which is %.0f %% of the peak",
		 100 * r.flop_s / r.attainable_flop_s, 100 * r.attainable_flop_s / b->peak_flop_s);
	fo_why(f, "%.0f TFLOP/s of a peak of %.0f costs %.1f points of MFU. Attainable are %.0f: ", r.flop_s / 1e12,
	       b->peak_flop_s / 1e12, 100 * lost, r.attainable_flop_s / 1e12);
	if (isnan(b->measured_flop_s))
		fo_why(f, "no measured ceiling of this device is known");
	else
		fo_why(f, "%.0f is the best matmul measured on this device", b->measured_flop_s / 1e12);
	fo_why(f,
	       ", and tiles and waves are %.0f %% full. Only the gap between %.0f and %.0f is the program's to close: "
	       "other shapes, another precision.",
	       100 * r.fill, r.flop_s / 1e12, r.attainable_flop_s / 1e12);
	return true;
}

const struct fo_rule_row fo_rules_compute[] = {
	{ "attention-efficiency", FO_FIND_COMPUTE, .holds = attention_efficiency, .kernels = FO_ATTENTION_CLASSES },
	{ "attention-unknown", FO_FIND_COMPUTE, .holds = attention_unknown, .kernels = FO_ATTENTION_CLASSES },
	{ "product-ceiling", FO_FIND_COMPUTE, .holds = product_ceiling, .kernels = FO_PRODUCT_CLASSES },
	{ .id = NULL },
};
