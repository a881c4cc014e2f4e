/* 100 % of a step = MFU + what each loss took: the ledger's own parts, with the ideal time of the model's matmuls
 * taken out of the time that matmuls and attention had. Integer parts of one ledger, so the shares sum to 1 but for
 * the rounding of doubles. */
#include "diagnose/products_int.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"
#include "base/text.h"
#include "model/model.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FLOP that the model needs in the window, for one device. */
struct need {
	double product_flop, attention_flop,
		causal_flop; /* of the window; causal_flop: all of it by the causal rule; NaN */
	double coverage;
	double attention_coverage; /* of the time of attention alone */
	const char *rule;
};

/* Shapes must cover this share of the time. Less leaves a tenth of MFU unknown, more than most rows of the bridge hold.
 */
#define SHAPES_LEAST 0.9

/* 1 %: rounding of times to the profiler's ticks. */
#define OVER 1.01

static void missing(struct fo_bridge *b, const char *fmt, ...) FO_PRINTF(2, 3);
static void missing(struct fo_bridge *b, const char *fmt, ...)
{
	va_list ap;
	if (b->why_not[0])
		return; /* the first reason stays */
	va_start(ap, fmt);
	vsnprintf(b->why_not, sizeof(b->why_not), fmt, ap);
	va_end(ap);
}

/* ---- device and precision ---- */

/* Drivers that do not know their device's name write "". */
static bool blank(const char *name)
{
	while (isspace((unsigned char)*name))
		name++;
	return *name == '\0';
}

/* NULL, with the reason in why_not, where the catalogue has no row that fits. */
static fo_status find_device(struct fo_diagnosis *d, const struct fo_subject *s, const struct fo_catalogue *c,
			     const struct fo_device **out)
{
	struct fo_bridge *b = &d->bridge;
	const struct fo_trace *t = s->t;
	*out = NULL;
	if (d->with.device) {
		FO_TRY(fo_catalogue_find(c, d->with.device, out));
		return FO_OK;
	}
	if (t->format == FO_TRACE_OWN) { /* no timeline carries the run's own FLOP and the machine's own peak */
		missing(b, "'flatout report RUN' has it by each rule");
		return FO_OK;
	}
	const struct fo_trace_device *v = s->id >= 0 && s->id < t->device_count ? &t->device[s->id] : NULL;
	if (!v || v->name < 0 || blank(fo_trace_text(t, v->name))) {
		missing(b, "the trace does not name its device: --device D");
		return FO_OK;
	}
	char name[80];
	*out = fo_device_match(c, fo_trace_text(t, v->name), v->sm_count, v->memory_bytes);
	if (!*out)
		missing(b,
			"no single catalogue row matches '%s': name one with --device D ('flatout devices' lists them)",
			fo_str_visible(name, sizeof(name), fo_trace_text(t, v->name)));
	return FO_OK;
}

/* Time by type of the first few types that are seen. */
struct types {
	struct {
		const char *name;
		int64_t ns;
	} v[8];
	int n;
};

static void count_type(struct types *t, const char *name, int64_t ns)
{
	int k = 0;
	while (k < t->n && strcmp(t->v[k].name, name) != 0)
		k++;
	if (k == 8)
		return;
	if (k == t->n)
		t->v[t->n++].name = name;
	t->v[k].ns = fo_plus(t->v[k].ns, ns);
}

/* The type in which most of the matmuls' time was spent. */
static void find_dtype(struct fo_diagnosis *d, const struct fo_subject *s)
{
	struct types seen = { .n = 0 };
	int best = 0;
	const struct fo_trace *t = s->t;
	for (int64_t i = 0; d->products == 0 && i < t->gpu_count; i++) {
		const struct fo_gpu_op *o = &t->gpu[i];
		if (o->device == s->id && (fo_class_is_heavy(o->class) || fo_class_is_heavy(o->class_by_name)))
			count_type(&seen, fo_dtype_of_gpu(t, o), *fo_dtype_of_gpu(t, o) ? o->end_ns - o->begin_ns : 0);
	}
	for (int64_t i = 0; i < d->products; i++)
		count_type(&seen, d->product[i].dtype, d->product[i].time_ns);
	for (int k = 1; k < seen.n; k++)
		best = seen.v[k].ns > seen.v[best].ns ? k : best;
	snprintf(d->bridge.dtype, sizeof(d->bridge.dtype), "%.7s", seen.n ? seen.v[best].name : "");
	if (!d->bridge.dtype[0])
		missing(&d->bridge,
			"neither shapes nor kernels' names tell the precision of the matmuls: --dtype TYPE");
}

static fo_status find_peak(struct fo_diagnosis *d, const struct fo_device *v)
{
	struct fo_bridge *b = &d->bridge;
	enum fo_precision p;
	double tflops = NAN;
	b->peak_flop_s = NAN;
	if (!v || !b->dtype[0])
		return FO_OK;
	snprintf(b->device, sizeof(b->device), "%s", v->name);
	if (d->with.dtype) {
		FO_TRY(fo_precision_parse(b->dtype, &p));
		FO_TRY(fo_device_peak(v, p, &tflops));
	} else {
		tflops = fo_peak_of(v, b->dtype, false) / 1e12;
	}
	if (isnan(tflops))
		missing(b, "the catalogue has no dense peak of this device for the precision of its matmuls: --dtype "
			   "TYPE");
	else
		snprintf(b->peak_source, sizeof(b->peak_source), "%.4g TFLOP/s %s dense, %s", tflops, b->dtype,
			 v->source);
	b->peak_flop_s = tflops * 1e12;
	double measured = fo_peak_of(v, b->dtype, true);
	b->measured_flop_s = measured < b->peak_flop_s ? measured : NAN;
	return FO_OK;
}

/* ---- what the step needs ---- */

static int devices_of(const struct fo_diagnosis *d)
{
	int64_t n = 0, world = 0;
	for (int i = 0; i < d->ranks; i++) {
		for (int64_t k = 0; k < d->rank[i].devices; k++)
			n += d->rank[i].device[k].total.ops > 0;
		if (d->rank[i].trace && d->rank[i].trace->world_size > world)
			world = d->rank[i].trace->world_size;
	}
	n = fo_max(world, n);
	return n > 1 ? (int)n : 1;
}

static fo_status need_of_model(const struct fo_diagnosis *d, struct need *out)
{
	struct fo_model m;
	if (d->with.seq < 1 || d->with.tokens_per_step < 1)
		return fo_hint(fo_fail(FO_EARG, "a model needs the sequence length and the tokens of a step"),
			       "--model M --seq S --tokens-per-step N: tokens of the whole job");
	FO_TRY(fo_model_load(d->with.model, &m));
	struct fo_flop f = fo_model_flop_per_token(&m, d->with.seq);
	double tokens = (double)d->with.tokens_per_step / (double)d->bridge.devices, all = 0, causal = 0;
	double scores = f.component[FO_COMP_SCORES].forward +
			(d->forward_only ? 0 : f.component[FO_COMP_SCORES].backward);
	for (int i = 0; i < FO_COMP_COUNT; i++) {
		all += f.component[i].forward + (d->forward_only ? 0 : f.component[i].backward);
		causal += f.component[i].forward_causal + (d->forward_only ? 0 : f.component[i].backward_causal);
	}
	*out = (struct need){ .product_flop = tokens * (all - scores),
			      .attention_flop = tokens * scores,
			      .causal_flop = tokens * causal,
			      .coverage = 1,
			      .attention_coverage = 1,
			      .rule = "mfu" };
	return FO_OK;
}

/* Matmuls and attention of the step by their recorded shapes, each operator once, recomputed ones not. */
static void need_of_shapes(const struct fo_subject *s, struct need *out)
{
	const struct fo_trace *t = s->t;
	int64_t known_ns = 0, all_ns = 0, known_attention_ns = 0, attention_ns = 0;
	uint8_t *counted = t->op_count ? fo_xmalloc((size_t)t->op_count / 8 + 1) : NULL;
	*out = (struct need){ .causal_flop = NAN, .rule = "shapes" };
	for (const struct fo_gpu_op *end, *o = fo_shown_ops(s, &end); o < end; o++) {
		struct fo_product_shape shape;
		int32_t where;
		double flop;
		if (o->class > FO_K_CONV || o->begin_ns < s->begin_ns)
			continue;
		bool attention = o->class == FO_K_ATTENTION_FORWARD || o->class == FO_K_ATTENTION_BACKWARD;
		all_ns = fo_plus(all_ns, o->end_ns - o->begin_ns);
		attention_ns = fo_plus(attention_ns, attention ? o->end_ns - o->begin_ns : 0);
		if (o->class == FO_K_CONV || !fo_call_of_op(t, o->op, &where, &shape, &flop))
			continue;
		known_ns = fo_plus(known_ns, o->end_ns - o->begin_ns);
		known_attention_ns = fo_plus(known_attention_ns, attention ? o->end_ns - o->begin_ns : 0);
		if (counted[where / 8] >> (where % 8) & 1)
			continue;
		counted[where / 8] |= (uint8_t)(1 << (where % 8));
		if (o->flags & FO_GPU_RECOMPUTED)
			continue;
		*(shape.m ? &out->product_flop : &out->attention_flop) += flop;
	}
	free(counted);
	out->product_flop /= (double)s->steps;
	out->attention_flop /= (double)s->steps;
	out->coverage = all_ns ? (double)known_ns / (double)all_ns : 0;
	out->attention_coverage = attention_ns ? (double)known_attention_ns / (double)attention_ns : 0;
}

/* ---- rows ---- */

static void add_row(struct fo_bridge *b, enum fo_bridge_part part, double share, double dollars_per_hour,
		    const char *fmt, const char *what)
{
	if (share == 0 || b->rows == FO_BRIDGE_MAX)
		return;
	struct fo_bridge_row *r = &b->row[b->rows++];
	snprintf(r->name, sizeof(r->name), fmt, what);
	r->part = part;
	r->share = share;
	r->dollars_per_hour = dollars_per_hour * share;
	r->dollars = r->dollars_per_hour * b->step_s / 3600;
}

/* Exclusive time of recomputed work by class. The ledger has its sum; the classes' durations divide it. */
static void recompute_by_class(const struct fo_subject *s, double out[FO_K_COMPUTE_COUNT])
{
	double dur[FO_K_COMPUTE_COUNT] = { 0 }, all = 0;
	for (const struct fo_gpu_op *end, *g = fo_shown_ops(s, &end); g < end; g++)
		if ((g->flags & FO_GPU_RECOMPUTED) && g->class < FO_K_COMPUTE_COUNT) {
			dur[g->class] += (double)(g->end_ns - g->begin_ns);
			all += (double)(g->end_ns - g->begin_ns);
		}
	for (int c = 0; c < FO_K_COMPUTE_COUNT; c++)
		out[c] = all > 0 ? fmin((double)s->l.class_ns[c], (double)s->l.recompute_ns * dur[c] / all) : 0;
}

/* Time of the matmuls without recomputed work, ns. */
struct kernels {
	double again[FO_K_COMPUTE_COUNT], products, attention;
};
static struct kernels kernels_of(const struct fo_subject *s)
{
	const int64_t *ns = s->l.class_ns;
	struct kernels k;
	recompute_by_class(s, k.again);
	k.products = (double)(ns[FO_K_GEMM] + ns[FO_K_GEMM_FP8]) - k.again[FO_K_GEMM] - k.again[FO_K_GEMM_FP8];
	k.attention = (double)(ns[FO_K_ATTENTION_FORWARD] + ns[FO_K_ATTENTION_BACKWARD]) -
		      k.again[FO_K_ATTENTION_FORWARD] - k.again[FO_K_ATTENTION_BACKWARD];
	return k;
}

/* The rate of kernels that recompute is that of the others. */
static void fill_attention(struct fo_diagnosis *d, const struct fo_subject *s, const struct need *need)
{
	struct kernels k = kernels_of(s);
	struct fo_attention_rate *a = &d->attention;
	if (k.attention <= 0 || need->attention_flop <= 0 || need->attention_coverage < SHAPES_LEAST)
		return;
	a->efficiency = need->attention_flop / d->bridge.peak_flop_s / (k.attention / 1e9);
	a->flop = need->attention_flop * (double)a->time_ns / k.attention;
	if (a->efficiency >
	    2 * OVER) /* twice the peak is possible under a causal mask, more is not: the device or the type is wrong */
		a->efficiency = NAN;
}

static void compute_rows(struct fo_bridge *b, const struct fo_subject *s, const struct need *need, double money)
{
	const struct fo_ledger *l = &s->l;
	double recompute = 0, T = (double)l->span_ns;
	struct kernels k = kernels_of(s);
	for (int c = 0; c < FO_K_COMPUTE_COUNT; c++)
		recompute += k.again[c];
	double ideal_products = need->product_flop / b->peak_flop_s * 1e9,
	       ideal_attention = need->attention_flop / b->peak_flop_s * 1e9;
	if (k.attention > 0) {
		add_row(b, FO_BRIDGE_MATMULS, (k.products - ideal_products) / T, money, "%s",
			"matmuls above their ideal");
		add_row(b, FO_BRIDGE_LOSS, (k.attention - ideal_attention) / T, money, "%s",
			"attention above its ideal");
	} else { /* written out: its matmuls are among the others */
		add_row(b, FO_BRIDGE_LOSS, (k.products - ideal_products - ideal_attention) / T, money, "%s",
			"matmuls and attention above ideal");
	}
	add_row(b, FO_BRIDGE_LOSS, recompute / T, money, "%s", "recomputation");
	for (int c = 0; c < FO_K_COMPUTE_COUNT; c++)
		if (c != FO_K_GEMM && c != FO_K_GEMM_FP8 && c != FO_K_ATTENTION_FORWARD && c != FO_K_ATTENTION_BACKWARD)
			add_row(b, FO_BRIDGE_LOSS, ((double)l->class_ns[c] - k.again[c]) / T, money, "kernels: %s",
				fo_class_words[c]);
}

static void fill_rows(struct fo_diagnosis *d, const struct fo_subject *s, const struct need *need)
{
	struct fo_bridge *b = &d->bridge;
	const struct fo_ledger *l = &s->l;
	double T = (double)l->span_ns, money = d->with.price_per_hour > 0 ? d->with.price_per_hour * b->devices : NAN;
	add_row(b, FO_BRIDGE_MFU, b->mfu, money, "%s", "MFU");
	compute_rows(b, s, need, money);
	add_row(b, FO_BRIDGE_LOSS, (double)(l->exposed_wait_ns - l->exposed_bubble_ns) / T, money, "communication: %s",
		fo_wait_words);
	add_row(b, FO_BRIDGE_LOSS, (double)l->exposed_bubble_ns / T, money, "communication: %s", fo_bubble_words);
	add_row(b, FO_BRIDGE_LOSS, (double)l->exposed_transfer_ns / T, money, "communication: %s", fo_transfer_words);
	add_row(b, FO_BRIDGE_LOSS, (double)l->exposed_comm_unknown_ns / T, money, "communication: %s",
		fo_wait_or_transfer_words);
	for (int c = 0; c < FO_COPY_COUNT; c++)
		add_row(b, FO_BRIDGE_LOSS, (double)l->copy_ns[c] / T, money, "copies: %s", fo_copy_words[c]);
	for (int c = 0; c < FO_IDLE_COUNT; c++)
		add_row(b, FO_BRIDGE_LOSS, (double)l->idle_ns[c] / T, money, "idle: %s", fo_idle_words[c]);
}

/* ---- utilisation ---- */

static void fill_utilisation(struct fo_diagnosis *d, const struct fo_subject *s)
{
	struct fo_utilisation *u = &d->utilisation;
	const struct fo_ledger *l = &s->l;
	double T = (double)l->span_ns;
	u->resident = (double)l->resident_ns / T;
	u->computing = (double)l->comp_ns / T;
	if (s->t->format == FO_TRACE_OWN)
		return; /* lanes of threads: no driver looks at them */
	int n = snprintf(u->sentence, sizeof(u->sentence),
			 "%s would have shown %.0f %% utilisation: it counts the time with any kernel on the device",
			 fo_vendor_words(fo_vendor_of(s->t, s->id))->tool, 100 * u->resident);
	if (l->exposed_comm_ns > 0 && n > 0 && (size_t)n < sizeof(u->sentence))
		n += snprintf(u->sentence + n, sizeof(u->sentence) - (size_t)n,
			      ", %.1f %% in which only communication ran%s", 100 * (double)l->exposed_comm_ns / T,
			      l->exposed_wait_ns > 0 ? ", waiting for other ranks included" : "");
	if (n < 0 || (size_t)n >= sizeof(u->sentence))
		return;
	if (d->bridge.known)
		snprintf(u->sentence + n, sizeof(u->sentence) - (size_t)n,
			 "; compute kernels ran %.0f %% of the step. MFU is %.*f %%: the part of the step that its "
			 "arithmetic would need at peak.",
			 100 * u->computing, fo_mfu_decimals(d->bridge.mfu), 100 * d->bridge.mfu);
	else
		snprintf(u->sentence + n, sizeof(u->sentence) - (size_t)n,
			 "; how fast those kernels were it does not say.");
}

/* ---- all of it ---- */

/* A rate above the peak cannot be. Shapes and times are the trace's own, so it is the peak (device, precision),
 * or, with a model, the tokens that are wrong. */
static void doubt_products(struct fo_diagnosis *d, const struct fo_device *v)
{
	struct fo_bridge *b = &d->bridge;
	for (int64_t i = 0; i < d->products && !b->why_not[0]; i++) {
		const struct fo_product *p = &d->product[i];
		double peak = d->with.dtype ? b->peak_flop_s : fo_peak_of(v, p->dtype, false);
		if (!(p->flop_s > OVER * peak))
			continue;
		missing(b,
			"matmuls of %lld x %lld x %lld ran at %.0f %% of the %s peak of %s, which cannot be right: "
			"--device D or --dtype TYPE",
			(long long)p->m, (long long)p->n, (long long)p->k, 100 * p->flop_s / peak,
			d->with.dtype ? b->dtype : p->dtype, b->device);
	}
}

static void doubt_share(struct fo_bridge *b, const char *what, double ideal_s, double took_s, bool model)
{
	if (ideal_s > OVER * took_s)
		missing(b,
			"%s would take %.4g ms at the %s peak of %s, and its kernels ran for %.4g ms: %s%s cannot be "
			"right",
			what, 1e3 * ideal_s, b->dtype, b->device, 1e3 * took_s,
			model ? "--tokens-per-step, --model, " : "", "--device or --dtype");
}

static void doubt(struct fo_diagnosis *d, const struct fo_subject *s, const struct need *need,
		  const struct fo_device *v)
{
	struct fo_bridge *b = &d->bridge;
	struct kernels k = kernels_of(s);
	double peak = b->peak_flop_s;
	doubt_products(d, v);
	doubt_share(b, "what the window needs", (need->product_flop + need->attention_flop) / peak,
		    (double)s->l.comp_ns / 1e9, d->with.model != NULL);
	if (k.attention > 0) {
		doubt_share(b, "what the window's matmuls need", need->product_flop / peak, k.products / 1e9,
			    d->with.model != NULL);
		/* Counted in full, computed by half: a causal mask. */
		doubt_share(b, "half of what attention needs", need->attention_flop / 2 / peak, k.attention / 1e9,
			    d->with.model != NULL);
	} else {
		doubt_share(b, "what matmuls and attention need", (need->product_flop + need->attention_flop) / peak,
			    k.products / 1e9, d->with.model != NULL);
	}
}

/* The number of steps in a window that marks none, from --steps or --step-seconds; 0: neither was given. */
static double steps_given(struct fo_diagnosis *d, const struct fo_subject *s)
{
	struct fo_bridge *b = &d->bridge;
	double span = (double)s->l.span_ns / 1e9, n = d->with.steps > 0 ? d->with.steps : 0;
	if (n <= 0 && d->with.step_s > 0)
		n = span / d->with.step_s;
	if (n > 0 && n < 1) /* the window is shorter than a step, so its parts are not a step's */
		missing(b,
			"a step of %.4g s is longer than the %.4g s that the trace shows: 'flatout mfu' has MFU by a "
			"step's time",
			d->with.step_s, span);
	return n;
}

/* Tokens per step say nothing of a span that is no step, unless somebody says how many it covers; recorded shapes do.
 */
static fo_status find_need(struct fo_diagnosis *d, const struct fo_subject *s, struct need *need)
{
	struct fo_bridge *b = &d->bridge;
	bool no_step = s->device->from == FO_WINDOW_WHOLE, given = d->with.steps > 0 || d->with.step_s > 0;
	b->steps = 1;
	if (d->with.model) {
		FO_TRY(need_of_model(d, need));
		double n = no_step ? steps_given(d, s) : 1;
		if (n > 0 && n < 1) { /* refused: then no finding may use what that step computes either */
			need->product_flop = need->attention_flop = need->causal_flop = 0;
			return FO_OK;
		}
		if (n > 0) {
			b->steps = n;
			need->product_flop *= n;
			need->attention_flop *= n;
			need->causal_flop *= n;
			if (no_step)
				snprintf(b->note, sizeof(b->note), "the window is taken as %.4g step%s, as given", n,
					 fo_plural(n));
			else if (given)
				snprintf(b->note, sizeof(b->note), "the trace shows its own steps: %s is not used",
					 d->with.steps > 0 ? "--steps" : "--step-seconds");
			return FO_OK;
		}
	}
	need_of_shapes(s, need);
	double flop = need->product_flop + need->attention_flop; /* a trace may hold attention alone */
	if (d->with.model && (flop == 0 || need->coverage < SHAPES_LEAST))
		missing(b, "the trace shows no steps, so tokens per step say nothing of its span: --steps N (how many "
			   "it covers) or --step-seconds S, or record steps (profiler.step())");
	else if (d->with.model)
		snprintf(b->note, sizeof(b->note),
			 "%s, so --tokens-per-step says nothing of this span without --steps or --step-seconds: FLOP "
			 "are of the recorded shapes",
			 d->with.ledger.whole_trace || d->with.ledger.exclude_unlinked
				 ? "the whole trace is no single step"
				 : "the trace shows no steps");
	else if (flop == 0)
		missing(b, "what the step computes is not known: --model M --seq S --tokens-per-step N, or "
			   "record_shapes=True");
	else if (need->coverage < SHAPES_LEAST)
		missing(b,
			"shapes are recorded for less than 90 %% of the time of matmuls, attention and convolutions");
	return FO_OK;
}

/* Refuses options by which the window needs more than the peak can do: every figure would be wrong. */
static fo_status refuse(const struct fo_diagnosis *d, const struct fo_subject *s, const struct need *need)
{
	const struct fo_bridge *b = &d->bridge;
	double span = (double)s->l.span_ns / 1e9,
	       mfu = (need->product_flop + need->attention_flop) / (span * b->peak_flop_s);
	char steps[80] = "", text[160];
	if (!d->with.model || !(mfu > OVER))
		return FO_OK;
	if (b->steps != 1)
		snprintf(steps, sizeof(steps), "%s, ", d->with.steps > 0 ? "--steps" : "--step-seconds");
	snprintf(text, sizeof(text), "--tokens-per-step %lld is of the whole job, here %d device%s",
		 (long long)d->with.tokens_per_step, b->devices, fo_plural(b->devices));
	return fo_hint(fo_fail(FO_EARG,
			       "an MFU of %.4g %% cannot be: at the %s peak of %s the step would take %.4g ms, and it "
			       "takes %.4g ms; doubt %s--tokens-per-step, --model, --device or --dtype",
			       100 * mfu, b->dtype, b->device, 1e3 * mfu * span / b->steps, 1e3 * span / b->steps,
			       steps),
		       "%s", text);
}

static void greatest_losses(struct fo_bridge *b)
{
	for (int i = 1; i < b->rows; i++) { /* row 0 is MFU itself */
		int at = b->losses;
		while (at > 0 && b->row[b->loss[at - 1]].share < b->row[i].share)
			at--;
		if (at == FO_BRIDGE_LOSSES || b->row[i].share <= 0)
			continue;
		for (int k = b->losses < FO_BRIDGE_LOSSES ? b->losses++ : FO_BRIDGE_LOSSES - 1; k > at; k--)
			b->loss[k] = b->loss[k - 1];
		b->loss[at] = i;
	}
}

static fo_status bridge(struct fo_diagnosis *d, const struct fo_subject *s, const struct fo_device *v)
{
	struct fo_bridge *b = &d->bridge;
	struct need need;
	d->forward_only = fo_trace_forward_only(s->t, s->id);
	fo_products_of(d, s, v);
	fo_moving_of(d, s, v);
	if (d->with.dtype)
		snprintf(b->dtype, sizeof(b->dtype), "%.7s", d->with.dtype);
	else
		find_dtype(d, s);
	FO_TRY(find_peak(d, v));
	FO_TRY(find_need(d, s, &need));
	b->coverage = need.coverage;
	b->step_s = (double)s->l.span_ns / 1e9 / b->steps;
	b->flop_per_step = (need.product_flop + need.attention_flop) / b->steps;
	snprintf(b->rule, sizeof(b->rule), "%s", need.rule);
	fill_attention(d, s, &need); /* needs no shapes but attention's */
	if (!b->why_not[0] && !isnan(b->peak_flop_s)) {
		FO_TRY(refuse(d, s, &need));
		doubt(d, s, &need, v);
		if (b->why_not[0]) /* with a wrong peak every rate is wrong */
			d->attention.efficiency = NAN;
	}
	if (b->why_not[0] || isnan(b->peak_flop_s)) {
		b->flop_per_step = NAN;
		return FO_OK;
	}
	b->mfu = b->flop_per_step / (b->step_s * b->peak_flop_s);
	b->mfu_causal = need.causal_flop / (b->step_s * b->steps * b->peak_flop_s);
	b->known = true;
	fill_rows(d, s, &need);
	greatest_losses(b);
	return FO_OK;
}

fo_status fo_diagnose_bridge(struct fo_diagnosis *d)
{
	struct fo_subject s;
	struct fo_catalogue c;
	const struct fo_device *v = NULL;
	d->bridge = (struct fo_bridge){ .mfu = NAN,
					.mfu_causal = NAN,
					.peak_flop_s = NAN,
					.measured_flop_s = NAN,
					.flop_per_step = NAN,
					.step_s = NAN,
					.devices = devices_of(d) };
	if (!fo_subject_of(d, &s) || s.l.span_ns < 1) {
		missing(&d->bridge, "the trace has no GPU work");
		return FO_OK;
	}
	d->attention = (struct fo_attention_rate){ .time_ns = s.l.class_ns[FO_K_ATTENTION_FORWARD] +
							      s.l.class_ns[FO_K_ATTENTION_BACKWARD],
						   .flop = NAN,
						   .efficiency = NAN };
	fo_status st = fo_catalogue_load(&c, NULL);
	if (st != FO_OK && d->with.device)
		return st;
	if (st != FO_OK) { /* a ledger needs no catalogue */
		missing(&d->bridge, "the catalogue of devices was not found");
		c = (struct fo_catalogue){ 0 };
	}
	FO_TRY_OR(st, find_device(d, &s, &c, &v), done);
	FO_TRY_OR(st, bridge(d, &s, v), done);
	fill_utilisation(d, &s);
done:
	fo_catalogue_fini(&c);
	return st;
}
