/* Runs the rules, drops what has no evidence, names the bottleneck. */
#include "diagnose/findings_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fo_finding_doubtful(const struct fo_finding *f)
{
	static const char *const id[] = { "warm-up",       "start-left-out",       "host-lead-in",
					  "lost-events",   "impossible-durations", "profiler-overhead",
					  "own-others-ran" };
	for (size_t i = 0; i < sizeof(id) / sizeof(*id); i++)
		if (strcmp(f->id, id[i]) == 0)
			return true;
	return false;
}

/* ---- running them ---- */

/* Share of the step that the estimate saves. */
static double saved(const struct fo_finding *f) { return f->gain > 1 ? 1 - 1 / f->gain : 0; }

/* Findings are ordered by this share of the step. A finding without an estimate counts half of what it costs, as an
 * estimate from nothing to all would. */
static double weight(const struct fo_finding *f, int64_t span_ns)
{
	if (f->later)
		return 0;
	if (!isnan(f->gain))
		return saved(f);
	return (double)f->loss_ns / (double)span_ns / (f->nearly_all ? 1 : 2);
}

/* Kernels that nobody waits for: while the launching thread needs the whole step, faster ones wait for it. Without a
 * gain to be had none is printed. */
static void hold_back(struct fo_finding *f, const struct fo_rule_context *c)
{
	if (isnan(f->gain) || f->gain_high >= FO_GAIN_NONE)
		return;
	bool later = f->ceiling >= FO_GAIN_NONE && c->floor_ns > 0;
	f->serious = false;
	fo_gain_none(f);
	if (!later)
		return;
	f->later = true;
	fo_why(f, " Alone it gains nothing yet: the launching thread needs %s of each step for its own work.",
	       FO_NS(fo_min(c->floor_ns, c->s->l.span_ns)));
}

static void put(struct fo_diagnosis *d, const struct fo_finding *f)
{
	size_t cap = (size_t)d->findings; /* a dozen at most */
	fo_array_room(&d->finding, &cap, (size_t)d->findings, sizeof(*d->finding));
	d->finding[d->findings++] = *f;
}

static void name_trace(char *text, size_t size)
{
	static const char *const word[][2] = {
		{ "of the step", "of the trace" },
		{ "of each step", "of the trace" },
		{ "of a step", "of the trace" },
		{ "The step has", "The trace has" },
	};
	for (size_t i = 0; i < sizeof(word) / sizeof(*word); i++) {
		size_t from = strlen(word[i][0]), to = strlen(word[i][1]);
		for (char *p = text; (p = strstr(p, word[i][0])) != NULL && strlen(text) + to - from < size; p += to) {
			memmove(p + to, p + from, strlen(p + from) + 1);
			memcpy(p, word[i][1], to);
		}
	}
}

/* Rules write of the step. Where no step is marked their window is the whole trace, and the text says so; but a note
 * explains what a step is. */
static void name_window(const struct fo_rule_context *c, struct fo_finding *f)
{
	if (c->s->device->from != FO_WINDOW_WHOLE)
		return;
	name_trace(f->title, sizeof(f->title));
	if (f->kind != FO_FIND_VALIDITY)
		name_trace(f->why, sizeof(f->why));
}

/* Adds the evidence that the rule's row names. */
static void add_evidence(const struct fo_rule_context *c, const struct fo_rule_row *row, struct fo_finding *f)
{
	if (row->gaps)
		fo_evidence_gaps(f, c->s, c->gap, c->gaps, row->gaps, row->gap_least_ns, INT64_MAX);
	if (row->kernels)
		fo_evidence_kernels(f, c->s, row->kernels);
	if (row->window && !f->evidences)
		fo_evidence_window(f, c->s, row->window);
}

static void run_rules(struct fo_diagnosis *d, const struct fo_rule_context *c, const struct fo_rule_row *row)
{
	for (; row->id; row++) {
		struct fo_finding f = { .id = row->id, .kind = row->kind, .dollars = NAN };
		bool own = c->s->t->format == FO_TRACE_OWN;
		if ((own && !fo_own_validity(row->id)) || !row->holds(c, &f))
			continue;
		add_evidence(c, row, &f);
		if (f.evidences == 0)
			continue;
		if (row->kind == FO_FIND_VALIDITY) {
			f.serious = false;
			fo_gain_none(&f);
		} else if (c->no_training_step) {
			fo_gain_none(&f);
		} else {
			hold_back(&f, c);
			if (!own) /* our own rules propose their options themselves */
				fo_settings_add(&f, row->id, c->facts, &d->pipeline);
			if (d->with.price_per_hour > 0 && !isnan(f.gain))
				f.dollars = d->with.price_per_hour * d->bridge.devices * saved(&f);
		}
		name_window(c, &f);
		put(d, &f);
	}
}

/* Validity as it was found; then what is serious, most saved first; then the rest. */
static int order(const struct fo_finding *f) { return f->kind == FO_FIND_VALIDITY ? 0 : 2 - f->serious; }

static bool before(const struct fo_finding *a, const struct fo_finding *b, int64_t span_ns)
{
	if (order(a) != order(b) || order(a) == 0)
		return order(a) < order(b);
	return weight(a, span_ns) > weight(b, span_ns);
}

static void sort(struct fo_diagnosis *d, int64_t span_ns)
{
	for (int64_t i = 1; i < d->findings; i++) /* a dozen at most, and stable */
		for (int64_t k = i; k > 0 && before(&d->finding[k], &d->finding[k - 1], span_ns); k--) {
			struct fo_finding t = d->finding[k];
			d->finding[k] = d->finding[k - 1];
			d->finding[k - 1] = t;
		}
}

/* Compute is the bottleneck where nothing is serious, nothing is sure to gain, and it takes half of the step. */
static void add_healthy(struct fo_diagnosis *d, const struct fo_rule_context *c)
{
	const struct fo_ledger *l = &c->s->l;
	struct fo_finding f = { .id = "compute-bound", .kind = FO_FIND_COMPUTE, .dollars = NAN };
	fo_gain_none(&f);
	for (int64_t i = 0; i < d->findings; i++)
		if (d->finding[i].serious || d->finding[i].gain_low >= FO_GAIN_NONE)
			return;
	if (2 * l->comp_ns < l->span_ns)
		return;
	double most = fmax(fo_share(c, l->idle_total_ns),
			   fmax(fo_share(c, l->exposed_comm_ns), fo_share(c, l->exposed_mem_ns)));
	bool alone = most <= FO_SHARE_SERIOUS;
	fo_title(&f, "compute takes %.1f %% of the step, and %s", fo_percent(c, l->comp_ns),
		 alone ? "neither host, communication nor copies stand in its way"
		       : "this trace shows no sure cure for the rest");
	fo_why(&f, "Idling %.1f %%, communication that nothing hides %.1f %%, copies %.1f %%: %s",
	       fo_percent(c, l->idle_total_ns), fo_percent(c, l->exposed_comm_ns), fo_percent(c, l->exposed_mem_ns),
	       alone ? "none of them above the mark. What is left is in the kernels themselves."
		     : "the findings below say what each of them is.");
	fo_compute_words(c, &f);
	name_window(c, &f);
	fo_evidence_kernels(&f, c->s, ((uint64_t)1 << FO_K_COMPUTE_COUNT) - 1);
	if (f.evidences == 0)
		return;
	f.is_bottleneck = true;
	int64_t at = 0;
	while (at < d->findings && d->finding[at].kind == FO_FIND_VALIDITY)
		at++;
	put(d, &f);
	memmove(&d->finding[at + 1], &d->finding[at], (size_t)(d->findings - 1 - at) * sizeof(*d->finding));
	d->finding[at] = f;
}

/* Two findings whose savings differ by less than a tenth are a tie. Then the cause of idling comes first, for what
 * kernels cost shows once the GPU is fed; so does a late rank, whose slow kernels are why the others wait. */
static void break_tie(struct fo_diagnosis *d, int64_t span_ns)
{
	int64_t i = 0;
	while (i < d->findings && d->finding[i].kind == FO_FIND_VALIDITY)
		i++;
	if (i + 1 >= d->findings || !d->finding[i + 1].serious)
		return;
	struct fo_finding *a = &d->finding[i], *b = a + 1;
	bool host = b->kind == FO_FIND_HOST || b->kind == FO_FIND_DATA || b->kind == FO_FIND_COMM_WAIT,
	     other = a->kind == FO_FIND_COMPUTE || a->kind == FO_FIND_MEMORY_BOUND;
	if (host && other && weight(b, span_ns) > 0.9 * weight(a, span_ns)) {
		struct fo_finding t = *a;
		*a = *b;
		*b = t;
	}
}

static void name_bottleneck(struct fo_diagnosis *d)
{
	struct fo_finding *first = NULL;
	for (int64_t i = 0; i < d->findings; i++) {
		struct fo_finding *f = &d->finding[i];
		d->serious |= f->serious;
		if (f->kind == FO_FIND_VALIDITY)
			continue;
		if (!first && (f->serious || f->is_bottleneck || f->gain_low >= FO_GAIN_NONE)) {
			f->is_bottleneck = true;
			first = f;
		} else if (first && (f->gain >= FO_GAIN_NONE || (f->serious && isnan(f->gain)))) {
			f->is_runner_up = true;
			return;
		}
	}
}

static void host_steps(struct fo_rule_context *c)
{
	const struct fo_rank_ledger *r = c->s->rank;
	double span = 0, data = 0;
	for (int64_t i = 0; i < r->hosts; i++) {
		span += (double)(r->host[i].end_ns - r->host[i].begin_ns);
		data += (double)r->host[i].part_ns[FO_HOST_PART_DATA];
	}
	if (span <= 0)
		return;
	c->host_data_share = data / span;
	c->host_step_ns = span / (double)r->hosts;
}

/* Time of a step's launch calls that is waiting for the device, and so no floor. Two kinds of call count, as far as
 * they take longer than the median call: those whose operation begins only long after they returned (a millisecond: the
 * queue is hundreds of launches ahead, and full), and copies of pageable memory, which return only when they are done.
 */
static int64_t launch_wait(const struct fo_subject *s)
{
	const struct fo_trace *t = s->t;
	int64_t first, last, n = 0, sum = 0;
	fo_subject_ops(t, s->id, s->begin_ns, s->end_ns, &first, &last);
	int64_t *length = fo_xmalloc((size_t)(last - first + 1) * sizeof(*length));
	for (int64_t i = first; i < last; i++)
		if (t->gpu[i].launch >= 0)
			length[n++] = t->launch[t->gpu[i].launch].end_ns - t->launch[t->gpu[i].launch].begin_ns;
	qsort(length, (size_t)n, sizeof(*length), fo_by_int64);
	int64_t median = n ? length[n / 2] : 0;
	for (int64_t i = first, before = -1; i < last; i++) {
		int32_t at = t->gpu[i].launch;
		const struct fo_launch *l = at >= 0 && at != before ? &t->launch[at] : NULL;
		bool ahead = l && t->gpu[i].begin_ns - l->end_ns > FO_GAP_SHORT_NS;
		bool behind = l && t->gpu[i].kind == FO_GPU_MEMCPY && l->end_ns >= t->gpu[i].end_ns;
		if ((ahead || behind) && l->end_ns - l->begin_ns > median)
			sum += l->end_ns - l->begin_ns - median;
		before = at;
	}
	free(length);
	return sum / s->steps;
}

/* Sums the Python in short gaps, and the idling before kernels of an unfused update, which a fused one would not have.
 */
static void divide_gaps(struct fo_rule_context *c, struct fo_idle_gap *gap)
{
	static const enum fo_idle_cause small[] = { FO_IDLE_HOST_LAUNCH_BOUND, FO_IDLE_LAUNCH_LATENCY,
						    FO_IDLE_KERNEL_GAP };
	bool eager = fo_optimizer_is_eager(c->facts);
	for (int64_t i = 0; i < c->gaps; i++) {
		bool brief = gap[i].end_ns - gap[i].begin_ns <= FO_GAP_SHORT_NS;
		bool update = eager && brief && gap[i].op >= 0 && c->s->t->gpu[gap[i].op].class == FO_K_OPTIMIZER;
		for (size_t k = 0; update && k < sizeof(small) / sizeof(*small); k++) {
			c->optimizer_idle_ns[small[k]] += gap[i].idle_ns[small[k]];
			gap[i].idle_ns[small[k]] = 0;
		}
		c->other_short_ns += brief ? gap[i].idle_ns[FO_IDLE_HOST_OTHER] : 0;
	}
	for (int i = 0; i < FO_IDLE_COUNT; i++)
		c->optimizer_idle_ns[i] /= c->s->steps;
	c->other_short_ns /= c->s->steps;
	if (!fo_optimizer_counts(c)) /* too little for a finding: it stays with the other idling */
		memset(c->optimizer_idle_ns, 0, sizeof(c->optimizer_idle_ns));
}

static void without_gpu_work(struct fo_diagnosis *d)
{
	struct fo_finding f[2];
	d->judged = FO_JUDGED_NO_GPU;
	snprintf(d->cannot, sizeof(d->cannot), "no trace");
	if (d->ranks == 0)
		return;
	int n = fo_without_gpu_work(d, f);
	for (int i = 0; i < n; i++)
		put(d, &f[i]);
	snprintf(d->cannot, sizeof(d->cannot), "%s", f[n - 1].title);
	fo_unknowns_without_gpu(d);
}

static void run_causes(struct fo_diagnosis *d, const struct fo_rule_context *c)
{
	static const struct fo_rule_row *const gpu[] = { fo_rules_host, fo_rules_marked,  fo_rules_comm,
							 fo_rules_gpu,  fo_rules_compute, fo_rules_shape };
	if (c->s->t->format == FO_TRACE_OWN) {
		run_rules(d, c, fo_rules_own);
		return;
	}
	for (size_t i = 0; i < sizeof(gpu) / sizeof(*gpu); i++)
		run_rules(d, c, gpu[i]);
}

void fo_diagnose_findings(struct fo_diagnosis *d)
{
	struct fo_subject s;
	struct fo_facts facts;
	struct fo_idle_gap *gap;
	if (!fo_subject_of(d, &s) || s.l.span_ns < 1) {
		without_gpu_work(d);
		return;
	}
	fo_facts_of(s.t, s.id, &facts);
	facts.culprit = fo_culprit_cause(d);
	fo_shape_facts(&s, &facts);
	fo_comm_kinds_of(&s, &facts.comm);
	if (!facts.capability && d->with.device)
		facts.capability = fo_capability_of_name(d->bridge.device);
	facts.loss = (double)s.l.class_ns[FO_K_LOSS] > FO_SHARE_ADVICE / 2 * (double)s.l.span_ns;
	facts.norm_written_out &= (double)s.l.class_ns[FO_K_NORM] > FO_SHARE_ADVICE * (double)s.l.span_ns;
	snprintf(d->framework, sizeof(d->framework), "%s", s.t->format == FO_TRACE_OWN ? "Flatout" : facts.framework);
	struct fo_chains chain;
	fo_chains_of(&s, &chain);
	struct fo_clocks clocks;
	fo_clocks_of(&s, &clocks);
	struct fo_rule_context c = { .s = &s, .facts = &facts, .chain = &chain, .clocks = &clocks };
	c.gaps = fo_idle_gaps(&s, &gap);
	c.gap = gap;
	host_steps(&c);
	fo_marks_find(&c, gap);
	divide_gaps(&c, gap);
	facts.merges = fo_merges(&c);
	/* A step cannot be shorter than the work of one thread: operators and calls, its data loading, its Python. */
	c.launch_ns = s.launch_busy_ns > 0 ? s.launch_busy_ns - launch_wait(&s) : 0;
	c.loader_ns = facts.loader_inline ? s.loader_ns - s.loader_busy_ns : 0;
	if (c.launch_ns > 0)
		c.floor_ns = c.launch_ns + s.l.idle_ns[FO_IDLE_HOST_OTHER] + c.loader_ns;
	fo_too_little_work(&c, d->cannot, sizeof(d->cannot));
	d->judged = d->cannot[0] ? FO_JUDGED_TOO_LITTLE : FO_JUDGED_HEALTHY;
	if (fo_diagnosed(d))
		fo_mostly_taken_out(&c, d->cannot, sizeof(d->cannot));
	if (fo_diagnosed(d) && d->cannot[0])
		d->judged = FO_JUDGED_THINNED;
	if (fo_diagnosed(d))
		fo_mostly_warm_up(&c, d->cannot, sizeof(d->cannot));
	if (fo_diagnosed(d) && d->cannot[0])
		d->judged = FO_JUDGED_WARM_UP;
	c.no_training_step = fo_no_training_step(&c);
	run_rules(d, &c, fo_rules_validity);
	run_rules(d, &c, fo_rules_window);
	if (fo_diagnosed(d)) {
		run_causes(d, &c);
		sort(d, s.l.span_ns);
		break_tie(d, s.l.span_ns);
		add_healthy(d, &c);
		name_bottleneck(d);
		d->judged = d->serious ? FO_JUDGED_SERIOUS : FO_JUDGED_HEALTHY;
		for (int64_t i = 0; i < d->findings; i++)
			fo_settings_join(&d->finding[i]);
	}
	fo_diagnose_unknowns(d, &s, &facts);
	fo_own_reword(d);
	free(gap);
}
