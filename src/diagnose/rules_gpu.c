/* Findings about the kernels themselves. */
#include "diagnose/products_int.h"

#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bytes per element that fusing saves. Least: SwiGLU written out (silu reads 2, writes 2; the product reads 4, writes
 * 2: 10) against one kernel (6). Most: RMSNorm written out in fp32 as the models of transformers have it (cast 6,
 * square 8, mean 4, scaling 8, cast back 6, weight 4: 36) against one kernel (4). */
#define FUSION_LEAST (1 - 6.0 / 10)
#define FUSION_MOST (1 - 4.0 / 36)
/* AdamW over lists of fp32 tensors: decay 8, first moment 12, second 8 + 12, root 8, division 8, epsilon 8, update 16:
 * 80 bytes per weight; fused: weight, gradient and both moments read, three written: 28. */
#define FUSED_OPTIMIZER_MOST (1 - 28.0 / 80)

/* A fused kernel keeps the scores on chip: softmax and what stands around it are no kernels any more, and it skips what
 * a causal mask hides, half of the pairs. Its matmuls run at the rate of published kernels (FO_ATTENTION_BEST of the
 * peak), where those that write the scores to memory are bound by that: with a head of 64 they do 64 FLOP per byte, and
 * an H100 could do 295. Without shapes only the masked half of the matmuls is counted. */
static int64_t attention_fused_saves(const struct fo_rule_context *c)
{
	const struct fo_chains *x = c->chain;
	double least_s = x->product_flop / 2 / (FO_ATTENTION_BEST * c->s->d->bridge.peak_flop_s);
	/* Shapes come from a file: compared as real numbers, for what they need may be beyond any integer. */
	double stays = isnan(least_s) ? (double)x->product_ns / 2 : fmin(least_s * 1e9, (double)x->product_ns);
	return x->softmax_ns + x->between_ns + x->product_ns - (int64_t)stays;
}

/* No fused attention runs, and softmax stands beside batched matmuls. */
static bool attention_is_eager(const struct fo_rule_context *c)
{
	return c->facts->attention_written_out &&
	       fo_share(c, c->chain->softmax_ns + c->chain->between_ns) > FO_SHARE_ADVICE;
}

static bool attention_eager(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_chains *x = c->chain;
	int64_t ns = attention_fused_saves(c), around = x->softmax_ns + x->between_ns;
	if (!attention_is_eager(c))
		return false;
	f->serious = c->chain->operators_known && fo_share(c, ns) > FO_SHARE_SERIOUS;
	/* The softmax's own time goes by half at least: it is computed once, where it was read and written again. */
	fo_gain_of(c, f, ns,
		   (struct fo_gain){ .least = FO_GAIN_HALF * (double)around / (double)ns,
				     .most = 1,
				     .at_most = !c->chain->operators_known });
	fo_title(f, "attention is written out: %.1f %% of the step, %.1f %% in its softmax and what stands around it",
		 fo_percent(c, around + x->product_ns), fo_percent(c, around));
	fo_why(f, "No fused attention kernel runs, but softmax kernels do. The scores of every pair of tokens go to "
		  "memory and back several times. A fused kernel keeps them on chip, and under a causal mask it "
		  "computes half of them.");
	if (isnan(x->product_flop * c->s->d->bridge.peak_flop_s))
		fo_why(f, " How fast its matmuls are is not known, so at best half of their time goes.");
	return true;
}

bool fo_optimizer_is_eager(const struct fo_facts *f)
{
	return (f->optimizer_foreach || f->optimizer_loop) && !f->optimizer_fused;
}

static int64_t optimizer_idle(const struct fo_rule_context *c)
{
	int64_t ns = 0;
	for (int i = 0; i < FO_IDLE_COUNT; i++)
		ns += c->optimizer_idle_ns[i];
	return ns;
}

bool fo_optimizer_counts(const struct fo_rule_context *c)
{
	return fo_optimizer_is_eager(c->facts) &&
	       fo_share(c, c->s->l.class_ns[FO_K_OPTIMIZER] + optimizer_idle(c)) > FO_SHARE_ADVICE;
}

static bool optimizer(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_ledger *l = &c->s->l;
	int64_t ns = l->class_ns[FO_K_OPTIMIZER], idle = optimizer_idle(c), all = ns + idle, goes = 0;
	bool fuses = fo_optimizer_can_fuse(c->facts);
	if (!fo_optimizer_counts(c))
		return false;
	fo_notable(c, f, all);
	/* One kernel in the place of many: the idling between them goes, and of the bytes those that are moved again
	 * and again. The launching thread's own work is less by what it did there. Without a fused update there are
	 * lists of tensors, in the place of one after the other: they save launches, no bytes. */
	if (fuses)
		goes = (int64_t)(FUSED_OPTIMIZER_MOST * (double)ns) + idle;
	else if (c->facts->optimizer_loop)
		goes = idle;
	fo_gain_of(c, f, goes, (struct fo_gain){ .least = FO_GAIN_HALF, .most = 1, .frees_ns = idle });
	if (goes == 0) {
		fo_gain_none(f);
		f->loss_ns = all;
		f->serious = false;
	}
	const char *what = fuses ? "the optimizer is not fused" : "the optimizer's update is many kernels";
	fo_title(f, "%s: %.1f %% of the step in %lld kernels%s", what, fo_percent(c, all),
		 (long long)l->class_ops[FO_K_OPTIMIZER], 2 * idle > ns ? " and between them" : "");
	fo_why(f, "They walk over the weights, one for each operation of the update%s.",
	       c->facts->optimizer_loop ? " and each tensor" : "");
	fo_why(f, fuses ? " A fused one reads and writes each weight once."
			: " PyTorch has no fused update of this optimizer for GPUs.");
	return true;
}

/* The three classes with most time. */
static void greatest_classes(struct fo_finding *f, const struct fo_ledger *l, uint64_t classes)
{
	for (int round = 0; round < 3; round++) {
		int best = -1;
		for (int i = 0; i < FO_K_COMPUTE_COUNT; i++)
			if ((classes >> i & 1) && l->class_ns[i] > 0 &&
			    (best < 0 || l->class_ns[i] > l->class_ns[best]))
				best = i;
		if (best < 0)
			return;
		classes &= ~((uint64_t)1 << best);
		fo_why(f, "%s%s %.1f %%", round ? ", " : "", fo_class_words[best],
		       100 * (double)l->class_ns[best] / (double)l->span_ns);
	}
}

/* A compiler can merge chains of kernels that do one operator each. Of other kernels, as those of a library that fused
 * them, the finding says only what they cost. */
static void memory_bound_gain(const struct fo_rule_context *c, struct fo_finding *f, int64_t merges)
{
	bool known = c->chain->operators_known;
	if (!fo_merges(c)) {
		fo_gain_none(f);
		return;
	}
	f->serious = known && !c->facts->compiled && fo_share(c, merges) > FO_SHARE_SERIOUS;
	/* Merged kernels are launches saved as well. */
	int64_t stays = c->floor_ns - (int64_t)(fo_fusable(c) * (double)c->launch_ns);
	fo_gain_of(c, f, merges,
		   (struct fo_gain){ .least = c->facts->compiled || !known ? 0 : FUSION_LEAST,
				     .most = FUSION_MOST,
				     .best_floor_ns = stays,
				     .at_most = !known });
}

/* The classes of memory-bound. Each nanosecond is promised once: attention-eager and optimizer-unfused have
 * theirs. */
static uint64_t moving_classes(const struct fo_rule_context *c)
{
	uint64_t classes = FO_MOVING_CLASSES;
	if (attention_is_eager(c))
		classes &= ~((uint64_t)1 << FO_K_SOFTMAX);
	if (fo_optimizer_counts(c))
		classes &= ~((uint64_t)1 << FO_K_OPTIMIZER);
	return classes;
}

static int64_t moving_ns(const struct fo_rule_context *c)
{
	return fo_class_time(&c->s->l, moving_classes(c)) - (attention_is_eager(c) ? c->chain->between_ns : 0);
}

int64_t fo_merging_ns(const struct fo_rule_context *c)
{
	int64_t ns = moving_ns(c);
	int64_t merges = c->chain->fusable_ns +
			 (attention_is_eager(c) ? 0 : c->chain->softmax_ns + c->chain->between_ns);
	return fo_min(merges, ns);
}

bool fo_merges(const struct fo_rule_context *c) { return fo_share(c, fo_merging_ns(c)) > FO_SHARE_ADVICE; }

static bool memory_bound(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_ledger *l = &c->s->l;
	uint64_t classes = moving_classes(c);
	int64_t ns = moving_ns(c), merges = fo_merging_ns(c);
	double written = c->facts->norm_written_share;
	bool norms = c->facts->norm_written_out && !c->facts->compiled && fo_merges(c);
	if (fo_share(c, ns) <= FO_SHARE_ADVICE || ((double)ns <= 0.15 * (double)l->comp_ns && !norms))
		return false;
	f->loss_ns = ns;
	memory_bound_gain(c, f, merges);
	fo_title(f, "kernels that only move bytes: %.0f %% of compute, %.1f %% of the step",
		 100 * (double)ns / (double)l->comp_ns, fo_percent(c, ns));
	fo_why(f, "Of the step: ");
	greatest_classes(f, l, classes);
	fo_why(f, ". Memory bandwidth limits them, not arithmetic.");
	if (!isnan(f->gain))
		fo_why(f, " Fused with their neighbours they read and write memory once instead of once each.");
	if (!fo_finding_worth(f))
		fo_why(f, " Hardly any of them runs next to another kernel of a single operator, so a compiler has "
			  "nothing to merge.");
	else if (norms)
		fo_why(f, " Normalisation is written out: elementwise operators take %.0f %% of its time%s.",
		       100 * written, written < 0.995 ? ", fused kernels the rest" : "");
	else if (2 * merges < ns)
		fo_why(f, " That applies to %.1f %% of the step; the other kernels stand alone or are fused already.",
		       fo_percent(c, merges));
	fo_moving_words(c->s->d, f);
	fo_evidence_kernels(f, c->s, classes);
	return true;
}

#define FP32_CLASSES (1u << FO_K_GEMM | 1u << FO_K_CONV)

/* Time of matmuls and convolutions in 32 bit on a device that has matrix units (NVIDIA's from 7.0 on, AMD's in its
 * data centre parts, gfx908 on: 9.0); 0: it does not hold. */
static int64_t single_precision(const struct fo_rule_context *c)
{
	int64_t products = fo_class_time(&c->s->l, FP32_CLASSES);
	if ((c->facts->amd ? c->facts->capability < 90 : c->facts->capability < 70) ||
	    c->facts->fp32_product_share <= 0.5 || fo_share(c, products) <= FO_SHARE_ADVICE)
		return 0;
	int64_t other = attention_is_eager(c) ? c->chain->product_ns : 0; /* promised there */
	return (int64_t)(c->facts->fp32_product_share * (double)(products - fo_min(other, products)));
}

static bool precision(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t products = fo_class_time(&c->s->l, FP32_CLASSES), ns = single_precision(c);
	bool by_name = c->facts->fp32_by_name; /* of a kernel that may be TF32 or mixed */
	double percent = 100 * c->facts->fp32_product_share;
	if (ns == 0)
		return false;
	f->serious = !by_name && fo_share(c, ns) > FO_SHARE_SERIOUS;
	/* Half the bytes at least; at most the ratio of the peaks, which is 8 or more on all data centre parts of the
	 * catalogue. */
	fo_gain_of(c, f, ns,
		   (struct fo_gain){ .least = by_name ? 0 : FO_GAIN_HALF, .most = 1 - 1.0 / 8, .at_most = by_name });
	if (by_name) {
		fo_title(f,
			 "by the kernels' names matmuls may run in fp32 without matrix units: up to %.0f %% of their "
			 "time",
			 percent);
		fo_why(f,
		       "Matmuls and convolutions take %.1f %% of the step. Their operands' types are not recorded, "
		       "and the kernels' names only hold the type float, as kernels on TF32 and mixed ones may, too. "
		       "Record shapes to tell.",
		       fo_percent(c, products));
	} else {
		fo_title(f, "matmuls run in fp32 without matrix units: %.0f %% of their time", percent);
		fo_why(f,
		       "Matmuls and convolutions take %.1f %% of the step in kernels of 32 bit, on a device whose "
		       "matrix units do 16 bit at least eight times as fast.",
		       fo_percent(c, products));
	}
	return true;
}

/* Time that the matmuls would have taken at what is attainable for their shapes, over what they took; NaN: no ceiling
 * known. What is a finding of its own (rules_shape.c) and what is too short for a rate is taken as done well. */
static double products_efficiency(const struct fo_diagnosis *d)
{
	double took = 0, ideal = 0;
	for (int64_t i = 0; i < d->products; i++) {
		const struct fo_product *p = &d->product[i];
		if (!p->tiny && !(p->attainable_flop_s > 0))
			continue;
		took += (double)p->time_ns;
		ideal += (double)p->time_ns *
			 (fo_product_claimed(p) || p->tiny ? 1 : fmin(1, p->flop_s / p->attainable_flop_s));
	}
	return took > 0 ? ideal / took : NAN;
}

/* The rate without shapes, with a model. The best matmuls that were measured reach about 0.8 of the dense peak
 * (data/devices.csv: H100 794.5 of 989, B200 1745 of 2250). */
static double bridge_efficiency(const struct fo_diagnosis *d, const struct fo_ledger *l)
{
	int64_t products = fo_class_time(l, FO_PRODUCT_CLASSES);
	for (int i = 0; d->bridge.known && i < d->bridge.rows; i++)
		if (d->bridge.row[i].part == FO_BRIDGE_MATMULS)
			return (1 - d->bridge.row[i].share * (double)l->span_ns / (double)products) / 0.8;
	return NAN;
}

/* How much longer this rank's matmuls take than the other ranks': those wait for it, and comm-wait promises that time.
 */
static int64_t excess_of_culprit(const struct fo_rule_context *c)
{
	const struct fo_diagnosis *d = c->s->d;
	const struct fo_culprit *x = &d->culprit;
	bool own = x->at >= 0 && x->at < d->waits && d->wait[x->at].rank == c->s->rank->rank;
	return own && x->row && strncmp(x->row, "gemm", 4) == 0 && x->excess_ns > 0 ? x->excess_ns : 0;
}

/* Three digits, without an exponent: 0.412, 41.2, 1730. */
static const char *tera(char out[24], double flop_s)
{
	double v = flop_s / 1e12;
	if (v < 999.5)
		snprintf(out, 24, "%.3g", v);
	else
		snprintf(out, 24, "%.0f", v < 9999.5 ? 10 * round(v / 10) : v);
	return out;
}

/* A matmul's time above what is attainable for its shape, as far as this finding judges it. */
static double product_loss(const struct fo_product *p)
{
	if (p->tiny || fo_product_claimed(p) || !(p->attainable_flop_s > p->flop_s))
		return 0;
	return (double)p->time_ns * (1 - p->flop_s / p->attainable_flop_s);
}

static const struct fo_product *most_lost(const struct fo_diagnosis *d)
{
	const struct fo_product *most = NULL;
	for (int64_t i = 0; i < d->products; i++)
		if (product_loss(&d->product[i]) > (most ? product_loss(most) : 0))
			most = &d->product[i];
	return most;
}

/* One kernel of each matmul that is judged, its longest; the matmul that loses most first. */
static void evidence_of_loss(struct fo_finding *f, const struct fo_subject *s)
{
	const struct fo_trace *t = s->t;
	const struct fo_gpu_op *longest[FO_PRODUCTS_LOOKED_AT] = { NULL };
	for (const struct fo_gpu_op *end, *g = fo_shown_ops(s, &end); g < end; g++) {
		int32_t where;
		int at = fo_product_of_gpu(s->d, t, g, &where);
		if (at >= 0 && (!longest[at] || g->end_ns - g->begin_ns > longest[at]->end_ns - longest[at]->begin_ns))
			longest[at] = g;
	}
	while (f->evidences < FO_EVIDENCE_MAX) {
		int most = -1;
		double loss = 0;
		for (int i = 0; i < FO_PRODUCTS_LOOKED_AT; i++)
			if (longest[i] && product_loss(&s->d->product[i]) > loss) {
				loss = product_loss(&s->d->product[i]);
				most = i;
			}
		if (most < 0)
			return;
		fo_evidence_kernel(f, s, longest[most]);
		longest[most] = NULL;
	}
}

static bool gemm_efficiency(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_diagnosis *d = c->s->d;
	int64_t products = fo_class_time(&c->s->l, FO_PRODUCT_CLASSES);
	double reached = products_efficiency(d);
	bool by_shape = !isnan(reached);
	if (!by_shape)
		reached = bridge_efficiency(d, &c->s->l);
	if (isnan(reached))
		return false;
	/* A clock that fell is in unequal-calls. */
	const struct fo_clocks *clocks = c->clocks;
	reached = clocks->fell ? fmin(1, reached / (1 - clocks->lost)) : reached;
	if (reached >= 0.6 || reached < FO_RATE_LEAST || !fo_notable(c, f, products))
		return false;
	/* Each nanosecond is promised once: not what another precision or fused attention would take away. */
	int64_t promised = single_precision(c) + (attention_is_eager(c) ? c->chain->product_ns : 0) +
			   (int64_t)(clocks->lost * (double)products) + excess_of_culprit(c);
	double left = (double)(promised < products ? products - promised : 0);
	fo_gain_usual(c, f, (int64_t)((1 - fmin(fmax(reached, 0), 1)) * left), 0);
	fo_title(f, "matmuls reach %.0f %% of what is attainable%s", 100 * reached,
		 by_shape ? " for their shapes" : "");
	const struct fo_product *p = by_shape ? most_lost(d) : NULL;
	const char *bound = p && p->memory_bound ? "memory" : "compute";
	char reached_at[24], may_reach[24];
	if (p)
		fo_why(f,
		       "Most is lost in %lld x %lld x %lld in %s: %s of %s TFLOP/s attainable (%s-bound "
		       "by its intensity%s). Try shapes that fill tiles and waves, another layout, or another "
		       "library's kernel.",
		       (long long)p->m, (long long)p->n, (long long)p->k, p->dtype, tera(reached_at, p->flop_s),
		       tera(may_reach, p->attainable_flop_s), bound,
		       p->fill < 0.8 ? "; much of its tiles or waves is empty" : "");
	else
		fo_why(f, "Their time is compared with the model's FLOP at 0.8 of the dense peak, which the best "
			  "measured matmuls reach. Record shapes to see which are slow.");
	if (by_shape)
		evidence_of_loss(f, c->s);
	else
		fo_evidence_kernels(f, c->s, FO_PRODUCT_CLASSES);
	return true;
}

/* The same shape, slower while a collective runs beside it. A tenth more time is within the spread of equal calls. */
static bool contention(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_diagnosis *d = c->s->d;
	double slow = 0, all = 0, worst = 0;
	for (int64_t i = 0; i < d->products; i++) {
		const struct fo_product *p = &d->product[i];
		all += (double)p->time_ns;
		if (!isnan(p->contended) && p->contended > 1.1) {
			slow += (double)p->time_ns * (1 - 1 / p->contended);
			worst = fmax(worst, p->contended);
		}
	}
	int64_t ns = all > 0 ? (int64_t)((double)fo_class_time(&c->s->l, FO_PRODUCT_CLASSES) * slow / all) : 0;
	if (fo_share(c, ns) <= FO_SHARE_ADVICE / 2)
		return false;
	fo_gain_of(c, f, ns, (struct fo_gain){ .most = FO_GAIN_HALF });
	fo_title(f, "matmuls are slower beside communication: up to %.2f times", worst);
	fo_why(f, "Matmuls of one shape take longer while a communication kernel runs. It holds some of the units and "
		  "of the memory's bandwidth. Hidden communication is not free.");
	return true;
}

/* The same shape, on average a quarter slower than its fastest call: clocks that fall under load, or something beside
 * it. Where all shapes are slow at the same time, for as long as several steps or a large part of one, it is the clock
 * (clocks.c). */
static bool throttled(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_diagnosis *d = c->s->d;
	const struct fo_clocks *clocks = c->clocks;
	double slow = 0, all = 0, products = (double)fo_class_time(&c->s->l, FO_PRODUCT_CLASSES);
	for (int64_t i = 0; i < d->products; i++) {
		const struct fo_product *p = &d->product[i];
		all += (double)p->time_ns;
		if (p->calls >= 10 && p->best_flop_s > 1.25 * p->flop_s && !(p->contended > 1.1))
			slow += (double)p->time_ns * (1 - p->flop_s / p->best_flop_s);
	}
	int64_t ns = 0;
	if (clocks->fell)
		ns = (int64_t)(clocks->lost * products);
	else if (all > 0)
		ns = (int64_t)(products * slow / all);
	if (!fo_notable(c, f, ns))
		return false;
	f->serious &= clocks->fell;
	fo_gain_usual(c, f, ns, clocks->fell ? FO_GAIN_HALF : 0);
	if (clocks->fell) {
		fo_title(f, "the clock falls: matmuls of every shape are %.2f times slower for %.0f %% of the trace",
			 clocks->ratio, 100 * clocks->share);
		fo_why(f, "All of them at the same time: a limit of power or heat lowers the clock (see %s).",
		       c->facts->words->clocks);
	} else {
		fo_title(f, "equal matmuls take unequal time: %.1f %% of the step above their fastest calls",
			 fo_percent(c, ns));
		fo_why(f,
		       "Calls of one shape and type differ by more than a quarter. Clocks may fall at a limit of power "
		       "or heat (see %s), operands may be in cache or not, or other work runs on the device.",
		       c->facts->words->clocks);
	}
	return true;
}

static bool recompute(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t ns = c->s->l.recompute_ns;
	if (fo_share(c, ns) <= FO_SHARE_ADVICE)
		return false;
	/* Selective recomputation keeps the matmuls and repeats the rest, which is the cheap part; half is a guess
	 * within it. */
	fo_gain_usual(c, f, ns, FO_GAIN_HALF);
	fo_title(f, "the forward pass runs twice: recomputation takes %.1f %% of the step", fo_percent(c, ns));
	fo_why(f, "It buys memory. Where memory is left over, recompute less: keep matmuls and attention, and repeat "
		  "what is cheap. MFU does not count it.");
	for (const struct fo_gpu_op *end, *g = fo_shown_ops(c->s, &end); g < end; g++)
		if (g->flags & FO_GPU_RECOMPUTED)
			fo_evidence_placed(f, c->s, g);
	return true;
}

double fo_pipeline_bubble(const struct fo_pipeline *p)
{
	double sum = 0;
	int seen = 0;
	for (int i = 0; p->bubble && i < p->stages; i++)
		if (!isnan(p->bubble[i])) {
			sum += p->bubble[i];
			seen++;
		}
	return seen ? sum / seen : 0;
}

static bool pipeline(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_pipeline *p = &c->s->d->pipeline;
	double mean = fo_pipeline_bubble(p);
	if (p->stages < 2 || mean <= FO_SHARE_ADVICE)
		return false;
	f->serious = mean > FO_SHARE_SERIOUS;
	double ideal = isnan(p->ideal) ? 0 : p->ideal / (1 + p->ideal); /* of the ideal work -> of the step */
	/* The best case is twice as many chunks or microbatches: half of the ideal bubble goes, and all above it. The
	 * bubble that is seen may be less than the ideal: a stage's wait for its first input is in no window between
	 * two of its kernels. */
	double stays = (ideal > 0 && ideal < mean ? ideal : mean) / 2;
	fo_gain_of(c, f, (int64_t)(mean * (double)c->s->l.span_ns),
		   (struct fo_gain){ .least = mean > ideal ? (mean - ideal) / mean * FO_GAIN_HALF : 0,
				     .most = 1 - stays / mean,
				     .frees_ns = INT64_MAX });
	fo_title(f, "pipeline bubbles: %.1f %% of the step over %d stages", 100 * mean, p->stages);
	if (isnan(p->ideal))
		fo_why(f, "Stages wait for each other. How much of it the schedule costs at least, (p - 1) / (v m) of "
			  "the work, needs the number of microbatches, which the traces do not show.");
	else
		fo_why(f,
		       "%d stages, %d chunk%s each, %d microbatches: %.1f %% of the step is empty even if all stages "
		       "are equal, (p - 1) / (v m) of the work. More microbatches or chunks shrink it; what is above "
		       "it is unequal stages or late transfers.",
		       p->stages, p->chunks, fo_plural(p->chunks), p->microbatches, 100 * ideal);
	return true;
}

const struct fo_rule_row fo_rules_gpu[] = {
	{ "conv-layout", FO_FIND_MEMORY_BOUND, .holds = fo_conv_layout },
	{ "pipeline", FO_FIND_PIPELINE, .holds = pipeline, .gaps = ~0u, .kernels = 1u << FO_K_COMMUNICATION },
	{ "precision", FO_FIND_COMPUTE, .holds = precision, .kernels = FP32_CLASSES },
	{ "memory-bound", FO_FIND_MEMORY_BOUND, .holds = memory_bound },
	{ "attention-eager", FO_FIND_MEMORY_BOUND, .holds = attention_eager, .kernels = 1u << FO_K_SOFTMAX },
	{ "optimizer-unfused", FO_FIND_MEMORY_BOUND, .holds = optimizer, .kernels = 1u << FO_K_OPTIMIZER },
	{ "gemm-efficiency", FO_FIND_COMPUTE, .holds = gemm_efficiency },
	{ "contention", FO_FIND_COMPUTE, .holds = contention, .kernels = FO_PRODUCT_CLASSES },
	{ "unequal-calls", FO_FIND_COMPUTE, .holds = throttled, .kernels = FO_PRODUCT_CLASSES },
	{ "recompute", FO_FIND_RECOMPUTE, .holds = recompute },
	{ .id = NULL },
};
