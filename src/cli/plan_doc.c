/* What flatout plan prints. */
#include "cli/plan.h"

#include <math.h>
#include <string.h>

static const struct fo_plan_point *named(const struct fo_cli_planned *p) { return &p->plan.point[p->plan.named]; }

bool fo_cli_planned_shows(const struct fo_cli_planned *p, int i)
{
	return i < p->plan.points && (i < p->top || i == p->plan.named);
}

/* Device-seconds of a million tokens. */
static double cost(const struct fo_plan_point *x) { return 1e6 / x->step.tokens_s; }

static bool several_types(const struct fo_cli_planned *p) { return p->ask.types & (p->ask.types - 1); }

/* ---- words ---- */

static const char *division(struct fo_doc *d, const struct fo_cli_planned *p, const struct fo_plan_point *x,
			    bool narrow)
{
	struct fo_division o;
	fo_division_of(&x->layout, x->step.dp, &o);
	if (several_types(p))
		o.type = fo_cli_job_type_name(p->asked, fo_predict_type_of(&p->job.job, &x->layout));
	return fo_cli_division(d, &o, narrow);
}

static const char *again_text(const struct fo_cli_planned *p, const struct fo_plan_point *x)
{
	const double n = x->layout.again_stages;
	if (n == 1)
		return "the first stage";
	return n > 0 ? fo_arena_printf(&p->asked->arena, "the first %.15g stages", n) : fo_plan_again_name[x->again];
}

static const char *again_short(struct fo_doc *d, const struct fo_plan_point *x)
{
	return x->layout.again_stages > 0 ? fo_doc_printf(d, "%.15g st", x->layout.again_stages)
					  : fo_plan_again_short[x->again];
}

static double exposed(const struct fo_predict_step *s)
{
	static const enum fo_predict_part part[] = { FO_PREDICT_TENSOR, FO_PREDICT_CONTEXT, FO_PREDICT_EXPERT,
						     FO_PREDICT_DATA, FO_PREDICT_SENDS };
	double sum = 0;
	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		sum += s->part[part[i]];
	return sum;
}

/* One sentence: the parts that make x slower than the best, and what it saves. */
static const char *why(struct fo_doc *d, const struct fo_plan_point *best, const struct fo_plan_point *x)
{
	double least;
	int loses, gains;
	double most = fo_plan_reason_of(&best->step, &x->step, &loses, &gains, &least);
	if (loses < 0)
		return "no part of it is slower";
	double whole = best->step.seconds;
	const char *t = fo_doc_printf(d, "%s takes %s more (%.1f %% of the step)", fo_predict_part_name[loses],
				      fo_doc_num(d, most, FO_DRAW_SECONDS), 100 * most / whole);
	return gains >= 0 && least < -0.005 * whole ? fo_doc_printf(d, "%s, %s %s less", t, fo_predict_part_name[gains],
								    fo_doc_num(d, -least, FO_DRAW_SECONDS))
						    : t;
}

/* ---- text and page ---- */

static const char *const more_name[FO_PLAN_MORES] = { "memory of a device", "network between nodes",
						      "links inside a node", "tokens of a step" };

/* "+32 devices (4 nodes)" */
static const char *more_what(struct fo_doc *d, const struct fo_cli_planned *p, int i)
{
	double by = p->more[i].devices - p->ask.devices, node = p->asked->cluster.per_node;
	const struct fo_predict_layout *l = &p->more[i].layout;
	if (i == FO_PLAN_MORE_TYPE)
		return l->type > 0 ? fo_doc_printf(d, "products in %s", fo_predict_type_name[l->type - 1])
				   : "products in 8 bits";
	if (i == FO_PLAN_MORE_FORMAT)
		return fo_predict_format_row[l->format > 0 ? l->format : p->more[i].format].says;
	if (i != FO_PLAN_MORE_DEVICES)
		return fo_doc_printf(d, "twice: %s", more_name[i]);
	if (p->ask.devices < node || node == 1)
		return fo_doc_printf(d, "%.15g more device%s", by, fo_plural(by));
	return fo_doc_printf(d, "%.15g more node%s, %.15g devices", by / node, fo_plural(by / node),
			     p->more[i].devices);
}

static void say_limit(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const struct fo_plan_more *m = p->more;
	int next = -1;
	for (int i = 0; i < FO_PLAN_MORE_DEVICES; i++)
		if (m[i].times > 1.005 && (next < 0 || m[i].times > m[next].times))
			next = i;
	if (next < 0)
		fo_doc_line(d, "limit",
			    "twice the memory, network, links or batch would change it by less than 0.5 %%: compute "
			    "is the limit");
	else
		fo_doc_line(d, "limit", "%s: twice as much makes a step at least %.1f %% shorter for its tokens%s",
			    more_name[next], 100 * (1 - 1 / m[next].times),
			    m[next].gains == FO_PLAN_GAINS ? "" : ", which is not sure (see below)");
}

static void say_more(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const struct fo_plan_more *m = p->more;
	fo_doc_heading(d, "What more would give at least");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrrl", "more", "speed", "80 %", "gains");
	for (int i = 0; i < FO_PLAN_MORES; i++)
		if (m[i].gains != FO_PLAN_GAINS_NONE)
			fo_doc_row(d, more_what(d, p, i), fo_doc_num(d, m[i].times, FO_DRAW_FACTOR),
				   fo_cli_range(d, m[i].range, FO_DRAW_FACTOR), fo_plan_gains_name[m[i].gains]);
	const struct fo_plan_more *state = &m[FO_PLAN_MORE_FORMAT];
	if (m[FO_PLAN_MORE_TYPE].gains != FO_PLAN_GAINS_NONE || state->gains != FO_PLAN_GAINS_NONE)
		fo_doc_para(d, "Other number types and states change what is computed: --precision and --state search "
			       "them where they are named.");
	if (state->gains != FO_PLAN_GAINS_NONE && state->less_bytes > 0)
		fo_doc_para(d, "A device would hold %s less with %s (--state=fp32,%s).",
			    fo_doc_num(d, state->less_bytes, FO_DRAW_BYTES), fo_predict_format_row[state->format].says,
			    fo_predict_format_row[state->format].name);
	if (m[FO_PLAN_MORE_DEVICES].gains == FO_PLAN_GAINS_NONE)
		fo_doc_para(d,
			    "More devices: not possible, no number of them up to %.15g has a division for a batch of "
			    "%.15g sequence%s that fits.",
			    m[FO_PLAN_MORE_DEVICES].devices, p->ask.global_batch, fo_plural(p->ask.global_batch));
}

static void say_fewer(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const struct fo_plan_point *x = &p->fewer_point;
	double part = x->step.seconds, all = named(p)->step.seconds;
	if (!(p->fewer > 0))
		return;
	fo_doc_verdict(d, FO_DOC_BAD, "fewer",
		       "fewer devices are %s: %s of %s take %s, all take %s: %s, micro-batch %.15g, recomputation: %s",
		       part * (1 + FO_PLAN_TIE) < all ? "faster" : "as fast", fo_doc_count(d, (int64_t)p->fewer),
		       fo_doc_count(d, (int64_t)p->ask.devices), fo_doc_num(d, part, FO_DRAW_SECONDS),
		       fo_doc_num(d, all, FO_DRAW_SECONDS), division(d, p, x, false), x->layout.micro_batch,
		       again_text(p, x));
}

static enum fo_predict_type named_type(const struct fo_cli_planned *p)
{
	return fo_predict_type_of(&p->job.job, &named(p)->layout);
}

/* "bf16", or "bf16 or fp8" where both are searched. */
static const char *types_text(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const char *t = NULL;
	for (int i = 0; i < FO_PREDICT_TYPES; i++) {
		const char *name = fo_cli_job_type_name(p->asked, (enum fo_predict_type)i);
		if (p->ask.types & 1u << i)
			t = t ? fo_doc_printf(d, "%s or %s", t, name) : name;
	}
	return t ? t : fo_cli_job_type_name(p->asked, p->job.job.type);
}

static void say_head(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const struct fo_plan_point *x = named(p);
	const struct fo_predict_step *s = &x->step;
	const struct fo_cluster *c = &p->asked->cluster;
	const char *type = fo_cli_job_type_name(p->asked, named_type(p));
	double usable = p->ask.base.job.machine.memory_bytes;
	fo_doc_line(d, "plan", "%s on %.15g x %s%s, for %s: %.15g sequence%s of %.15g tokens a step, %s",
		    p->asked->job.model.name, p->ask.devices, c->device->name,
		    p->ask.devices < c->devices ? " (a part of the cluster)" : "", p->ask.framework->title,
		    p->ask.global_batch, fo_plural(p->ask.global_batch), p->job.job.seq, types_text(d, p));
	fo_doc_line(d, "searched", "%lld legal division%s in %s: %lld fit in memory and were timed, %lld do not fit",
		    (long long)p->plan.legal, fo_plural(p->plan.legal), fo_doc_num(d, p->plan.seconds, FO_DRAW_SECONDS),
		    (long long)p->plan.timed, (long long)p->plan.too_large);
	fo_doc_verdict(d, FO_DOC_GOOD, "take", "%s, micro-batch %.15g, recomputation: %s", division(d, p, x, false),
		       x->layout.micro_batch, again_text(p, x));
	say_fewer(d, p);
	if (p->plan.ties > 1)
		fo_doc_line(
			d, "ties",
			"%s divisions take at most %.1f %% longer than the fastest, which is no difference: this is "
			"the simplest of them",
			fo_doc_count(d, p->plan.ties), 100 * FO_PLAN_TIE);
	fo_doc_line(d, "step", "%s (%s), %s a device", fo_doc_num(d, s->seconds, FO_DRAW_SECONDS),
		    fo_cli_range(d, p->named_sure.seconds, FO_DRAW_SECONDS), fo_doc_si(d, s->tokens_s, "tok/s"));
	if (p->cost)
		fo_doc_line(d, "cost",
			    "%.3g device-hours (%.3g device-seconds) for a million tokens, on %.15g of %.15g devices; "
			    "no price is used: every device costs the same",
			    cost(x) / 3600, cost(x), p->ask.devices, c->devices);
	fo_doc_line(d, "MFU", "%.1f %%%s mfu_causal, %.1f %%%s mfu, of %s/s (%s)", 100 * s->mfu_causal,
		    fo_cli_mark(p->named_sure.size), 100 * s->mfu, fo_cli_mark(p->named_sure.size),
		    fo_doc_si(d, p->job.job.machine.peak[named_type(p)], "FLOP"), type);
	fo_doc_line(d, "memory", "%s (%s) of %s a device", fo_doc_num(d, s->bytes, FO_DRAW_BYTES),
		    fo_cli_range(d, p->named_sure.bytes, FO_DRAW_BYTES), fo_doc_num(d, usable, FO_DRAW_BYTES));
	if (p->ask.programs)
		fo_cli_memory_ground(d, s, fo_plan_programs_why(&p->ask, x));
	say_limit(d, p);
	fo_cli_say_doubts(d, NULL, p->named_sure.flag, p->named_sure.size);
	if (c->nodes > 1 && c->net_assumed && !fo_range_known(p->asked->given.net_gb_s))
		fo_doc_line(d, "network",
			    "nobody stated it: %.3g GB/s a device, the usual adapter; --measured-bandwidth says what "
			    "collectives reach on yours",
			    p->job.job.machine.net_byte_s / 1e9);
	if (p->assumed_framework)
		fo_doc_line(d, "assumed", "framework: %s (--framework names another)", p->ask.framework->title);
	for (int i = 0; i < p->job.inferences; i++)
		fo_doc_line(d, "assumed", "%s", p->job.inferred[i]);
}

/* Is its memory an estimate, where programs of others are planned? */
static bool estimated(const struct fo_cli_planned *p, const struct fo_plan_point *x)
{
	return p->ask.programs && !x->step.planned;
}

static void say_estimates(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const char *why = NULL;
	for (int i = 0; i < p->plan.points; i++)
		if (fo_cli_planned_shows(p, i) && estimated(p, &p->plan.point[i]))
			why = fo_plan_programs_why(&p->ask, &p->plan.point[i]);
	if (why)
		fo_doc_para(d, "~: an estimate of memory, not the plan of its program: %s.", why);
}

static void say_points(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const struct fo_plan *o = &p->plan;
	fo_doc_heading(d, "The best of each way to divide");
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrlrrrrr", "division", "mb", "again", "step", "MFU%", "GiB", "expo%",
		     p->cost ? "cost" : "bub%");
	for (int i = 0; i < o->points; i++) {
		if (!fo_cli_planned_shows(p, i))
			continue;
		const struct fo_plan_point *x = &o->point[i];
		const char *mark = fo_plan_ties(o, x->step.seconds) ? "= " : "";
		mark = i == o->named ? "> " : mark;
		double last = p->cost ? cost(x) : 100 * x->step.part[FO_PREDICT_BUBBLE] / x->step.seconds;
		last = fabs(last) < 1e-6 ? 0 : last; /* a rounding error below zero */
		fo_doc_row(d, fo_doc_printf(d, "%s%s", mark, division(d, p, x, true)),
			   fo_doc_printf(d, "%.15g", x->layout.micro_batch), again_short(d, x),
			   fo_doc_num(d, x->step.seconds, FO_DRAW_SECONDS),
			   fo_doc_printf(d, "%.1f", 100 * x->step.mfu_causal),
			   fo_doc_printf(d, "%s%.0f", estimated(p, x) ? "~" : "", x->step.bytes / 0x1p30),
			   fo_doc_printf(d, "%.1f", 100 * exposed(&x->step) / x->step.seconds),
			   fo_doc_printf(d, p->cost ? "%.3g" : "%.1f", last));
	}
	const char *peak = several_types(p) ? ", over the peak of a division's own number type" : "";
	fo_doc_para(d,
		    "> is what to take, = ties with it. %s; mb: micro-batch; again: layers that are recomputed, 2 st: "
		    "all of the first two stages. MFU is mfu_causal%s; expo: communication that nothing hides; %s.",
		    fo_division_legend, peak,
		    p->cost ? "cost: device-seconds of a million tokens" : "bub: the pipeline's bubble");
	say_estimates(d, p);
	if (p->ask.formats & ~(1u << FO_PREDICT_FORMAT_JOB))
		fo_doc_para(d, "What the optimizer keeps: split: masters as the bf16 weight and a low half beside it, "
			       "the same numbers; m16, m8: moments in bf16, in 8 bits; w16: bf16 weights without "
			       "masters, moments in bf16; m32: all in fp32; else as the job has it.");
	fo_doc_heading(d, "Why others lose to the fastest");
	for (int i = 1; i < o->points; i++)
		if (fo_cli_planned_shows(p, i))
			fo_doc_item(d, "%s: %s", division(d, p, &o->point[i], false),
				    why(d, &o->point[0], &o->point[i]));
}

/* The change of an axis whose length stays, in words; NULL: the length itself changes. */
static const char *beside(const struct fo_predict_layout *was, const struct fo_predict_layout *l, int f)
{
	if (f == FO_PLAN_FIELD_FORMAT)
		return l->format > 0 ? fo_predict_format_row[l->format].says : "optimizer states as the job has them";
	if (f == FO_PLAN_FIELD_HIDES)
		return l->dp_overlap < 0 ? "no overlap of data parallelism with compute"
					 : "data parallelism's exchanges beside compute";
	if (f == FO_PLAN_FIELD_TP && fmax(1, was->tp) == l->tp && was->sp != l->sp)
		return l->sp ? "sequence parallelism" : "no sequence parallelism";
	if (f == FO_PLAN_FIELD_TP && fmax(1, was->tp) == l->tp)
		return l->tp_overlap > 0 ? "tensor parallelism's communication hidden (async)"
					 : "tensor parallelism's communication not hidden";
	if (f == FO_PLAN_FIELD_PP && fmax(1, was->pp) == l->pp && was->chunks == l->chunks)
		return was->schedule != l->schedule ? "the pipeline's schedule" : "where the pipeline's stages are";
	if (f == FO_PLAN_FIELD_STATES && was->zero == l->zero && was->keeps_weights != l->keeps_weights)
		return l->keeps_weights ? "gathered weights kept until backward" : "gathered weights not kept";
	if (f == FO_PLAN_FIELD_AGAIN && l->again_stages > 0)
		return "recomputation in the first stages alone";
	return f == FO_PLAN_FIELD_AGAIN && was->recompute == l->recompute ? "what is recomputed" : NULL;
}

/* "tensor parallelism from 8 to 1" */
static const char *field_text(struct fo_doc *d, const struct fo_cli_planned *p, const struct fo_predict_layout *was,
			      const struct fo_predict_layout *l, int f)
{
	const double from[] = { was->tp, was->cp, was->pp, was->ep, was->zero, was->recompute, was->micro_batch },
		     to[] = { l->tp, l->cp, l->pp, l->ep, l->zero, l->recompute, l->micro_batch };
	const char *other = beside(was, l, f), *name = fo_plan_field_name[f];
	if (other)
		return other;
	if (f == FO_PLAN_FIELD_TYPE)
		return fo_doc_printf(d, "%s %s", name, fo_predict_type_name[fo_predict_type_of(&p->job.job, l)]);
	if (f == FO_PLAN_FIELD_AGAIN)
		return fo_doc_printf(d, "%s from %.0f to %.0f %% of each forward", name, 100 * from[f], 100 * to[f]);
	if (f == FO_PLAN_FIELD_STATES && l->shard > 0)
		return fo_doc_printf(d, "%s from ZeRO %.0f to %.0f over %.0f", name, from[f], to[f], l->shard);
	if (f == FO_PLAN_FIELD_STATES)
		return fo_doc_printf(d, "%s from ZeRO %.0f to %.0f%s", name, from[f], to[f],
				     was->shard > 0 && l->zero > 0 ? " over all ranks" : "");
	const char *one = fo_doc_printf(d, "%s from %g to %g", name, fmax(f < 4, from[f]), to[f]);
	if (f == FO_PLAN_FIELD_PP && (l->chunks > 1 || was->chunks > 1))
		one = fo_doc_printf(d, "%s, chunks from %g to %g", one, was->chunks, l->chunks);
	return one;
}

static const char *change_text(struct fo_doc *d, const struct fo_cli_planned *p, const struct fo_predict_layout *was,
			       const struct fo_plan_change *c)
{
	const char *t = "";
	for (int f = 0; f < FO_PLAN_FIELDS; f++) {
		if (!(c->fields & 1u << f))
			continue;
		const char *one = field_text(d, p, was, &c->layout, f);
		t = *t ? fo_doc_printf(d, "%s with %s", t, one) : one;
	}
	return t;
}

static void say_changes(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const struct fo_predict_layout *was = &p->from;
	if (!p->has_from)
		return;
	fo_doc_heading(d, "From the configuration as it is%s: %s",
		       p->from_fits_not ? ", which does not fit in memory" : "",
		       fo_doc_num(d, p->from_seconds, FO_DRAW_SECONDS));
	if (!isnan(p->compiled_seconds))
		fo_doc_item(d, "compile the model: %s (%s)", fo_doc_num(d, p->compiled_seconds, FO_DRAW_SECONDS),
			    fo_doc_num(d, p->compiled_seconds / p->from_seconds - 1, FO_DRAW_CHANGE));
	for (int i = 0; i < p->changes; i++) {
		const struct fo_plan_change *c = &p->change[i];
		fo_doc_item(d, "%s: %s (%s)", change_text(d, p, was, c), fo_doc_num(d, c->after, FO_DRAW_SECONDS),
			    fo_doc_num(d, c->after / c->before - 1, FO_DRAW_CHANGE));
		was = &c->layout;
	}
	if (!p->changes)
		fo_doc_para(d, "Its division is within 1 %% of what to take, or no change of it alone gains.");
}

static void say_settings(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const char *lacks[FO_PLAN_WORDS];
	int n = 0;
	for (int w = 0; w < FO_PLAN_WORDS; w++) {
		struct fo_str s = { 0 };
		const char *reason;
		if (!fo_plan_settings((enum fo_plan_words)w, &p->ask, named(p), &p->asked->job.model, &s, &reason)) {
			lacks[n++] = fo_doc_printf(d, "%s: cannot state it: %s.", fo_plan_words_title[w], reason);
		} else {
			fo_doc_heading(d, "Settings: %s", fo_plan_words_title[w]);
			fo_doc_code(d, s.data);
			if (w == FO_PLAN_WORDS_DEEPSPEED && named(p)->layout.recompute > 0)
				fo_doc_remark(d, "DeepSpeed's file does not switch recomputation on; the model's code "
						 "does: model.gradient_checkpointing_enable().");
		}
		fo_str_fini(&s);
	}
	if (n)
		fo_doc_heading(d, "No settings");
	for (int i = 0; i < n; i++)
		fo_doc_item(d, "%s", lacks[i]);
}

/* One sentence, as flatout predict has it: what would fit. */
static const char *would_fit(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const char *least = fo_doc_printf(d, "the smallest of %lld division%s takes %s of %s a device",
					  (long long)p->plan.legal, fo_plural(p->plan.legal),
					  fo_doc_num(d, p->plan.smallest.step.bytes, FO_DRAW_BYTES),
					  fo_doc_num(d, p->ask.base.job.machine.memory_bytes, FO_DRAW_BYTES));
	if (!(p->would_hold > 0))
		return fo_doc_printf(d, "%s; no number of such devices does", least);
	least = fo_doc_printf(d, "%s; %.15g such devices would hold it", least, p->would_hold);
	return p->would_hold_batch == p->ask.global_batch
		       ? least
		       : fo_doc_printf(d, "%s with a batch of %.15g sequences", least, p->would_hold_batch);
}

void fo_cli_planned_doc(struct fo_doc *d, const struct fo_cli_planned *p)
{
	fo_doc_title(d, "Plan: %s", p->asked->job.model.name);
	if (p->fits_not) {
		fo_doc_verdict(d, FO_DOC_BAD, "too large", "%s does not fit on these devices: %s",
			       p->asked->job.model.name, would_fit(d, p));
		return;
	}
	say_head(d, p);
	if (p->pictures)
		fo_cli_planned_pictures(d, p);
	fo_cli_planned_cost(d, p);
	say_more(d, p);
	say_changes(d, p);
	say_points(d, p);
	say_settings(d, p);
}

/* ---- JSON ---- */

static void file_point(const struct fo_cli_planned *p, const struct fo_plan_point *x,
		       const struct fo_predict_certainty *sure, struct fo_plan_file_point *out)
{
	const struct fo_predict_layout *l = &x->layout;
	const struct fo_predict_job *job = &p->job.job;
	const enum fo_predict_format format = fo_predict_format_of(job, l);
	const char *own = fo_memory_plain_states(&p->job.base.memory.ways) ? "fp32" : "as the configuration has it";
	*out = (struct fo_plan_file_point){
		.dp = x->step.dp,
		.tp = l->tp,
		.cp = l->cp,
		.pp = l->pp,
		.ep = l->ep,
		.chunks = l->chunks,
		.schedule = l->schedule,
		.zero = l->zero,
		.shard = l->shard > 0 ? l->shard : x->step.dp * l->cp,
		.sp = l->sp,
		.tp_overlap = l->tp_overlap > 0,
		.stages_near = l->stages_near,
		.keeps_weights = l->keeps_weights,
		.micro_batch = l->micro_batch,
		.micro_batches = l->micro_batches,
		.recompute = fo_plan_again_id[x->again],
		.again_stages = l->again_stages,
		.type = fo_cli_job_type_name(p->asked, fo_predict_type_of(job, l)),
		.state = format == FO_PREDICT_FORMAT_JOB ? own : fo_predict_format_row[format].name,
		.seconds = x->step.seconds,
		.seconds_low = sure->seconds.low,
		.seconds_high = sure->seconds.high,
		.tokens_s = x->step.tokens_s,
		.mfu = x->step.mfu,
		.mfu_causal = x->step.mfu_causal,
		.device_hours = cost(x) / 3600,
		.bytes = x->step.bytes,
		.planned = x->step.planned,
		.exposed = exposed(&x->step),
		.bubble = x->step.part[FO_PREDICT_BUBBLE],
	};
}

void fo_cli_planned_file(const struct fo_cli_planned *p, struct fo_plan_file_point point[FO_PLAN_SHOWN],
			 struct fo_plan_file *f)
{
	const struct fo_predict_job *job = &p->job.job;
	const struct fo_model *m = &p->asked->job.model;
	const struct fo_params weights = fo_model_params(m);
	*f = (struct fo_plan_file){
		.model = m->name,
		.model_layers = (double)m->layers,
		.model_hidden = (double)m->hidden,
		.model_weights = weights.total,
		.model_active = weights.active,
		.device = p->asked->cluster.device->name,
		.devices = p->ask.devices,
		.framework = p->ask.framework->id,
		.type = fo_cli_job_type_name(p->asked, named_type(p)),
		.peak_flop_s = job->machine.peak[named_type(p)],
		.global_batch = p->ask.global_batch,
		.seq = job->seq,
		.legal = p->plan.legal,
		.timed = p->plan.timed,
		.too_large = p->plan.too_large,
		.search_seconds = p->plan.seconds,
		.ties = p->plan.ties,
		.doubt = p->named_sure.flag,
		.size = p->named_sure.size,
		.bests = 1,
		.point = point,
	};
	file_point(p, named(p), &p->named_sure, f->best);
	if (p->fewer > 0) {
		f->fewer_devices = p->fewer;
		file_point(p, &p->fewer_point, &p->fewer_sure, &f->fewer[f->fewers++]);
	}
	for (int i = 0; i < p->plan.points; i++) {
		if (!fo_cli_planned_shows(p, i))
			continue;
		if (i == p->plan.named)
			f->named = f->points;
		file_point(p, &p->plan.point[i], &p->sure[i], &point[f->points++]);
	}
}

static void json_losses(struct fo_json *j, const struct fo_predict_step *s)
{
	struct fo_plan_losses l;
	fo_plan_losses_of(&l, s);
	fo_json_array(j, "losses");
	for (int i = 0; i < l.losses; i++)
		fo_json_record(j, NULL, FO_TEXT("what", l.loss[i].name), FO_REAL("share", l.loss[i].share));
	fo_json_close(j);
}

/* The number type or the format of states that gains the most; NULL: none is faster, or it is no such row. */
static const char *more_with(const struct fo_cli_planned *p, int i)
{
	const struct fo_predict_layout *l = &p->more[i].layout;
	if (p->more[i].gains == FO_PLAN_GAINS_NONE)
		return NULL;
	if (i == FO_PLAN_MORE_TYPE && l->type > 0)
		return fo_predict_type_name[l->type - 1];
	return i == FO_PLAN_MORE_FORMAT && l->format > 0 ? fo_predict_format_row[l->format].name : NULL;
}

static void json_more(struct fo_json *j, const struct fo_cli_planned *p)
{
	static const char *const name[FO_PLAN_MORES] = { "memory",  "network",   "node_links", "batch",
							 "devices", "precision", "state" };
	fo_json_object(j, "twice");
	for (int i = 0; i < FO_PLAN_MORE_DEVICES; i++)
		fo_json_real(j, name[i], p->more[i].times);
	fo_json_close(j);
	fo_json_array(j, "more");
	for (int i = 0; i < FO_PLAN_MORES; i++)
		fo_json_record(j, NULL, FO_TEXT("of", name[i]), FO_TEXT("with", more_with(p, i)),
			       FO_REAL("devices", p->more[i].gains == FO_PLAN_GAINS_NONE ? NAN : p->more[i].devices),
			       FO_REAL("times", p->more[i].times), FO_REAL("low", p->more[i].range.low),
			       FO_REAL("high", p->more[i].range.high),
			       FO_TEXT("gains", fo_plan_gains_name[p->more[i].gains]));
	fo_json_close(j);
}

void fo_cli_planned_json(struct fo_json *j, const struct fo_cli_planned *p)
{
	if (p->fits_not) {
		fo_plan_file_write_none(j);
		fo_json_put(j, FO_TEXT("model", p->asked->job.model.name),
			    FO_TEXT("device", p->asked->cluster.device->name), FO_REAL("devices", p->ask.devices),
			    FO_TEXT("framework", p->ask.framework->id), FO_INT("legal", p->plan.legal),
			    FO_INT("too_large", p->plan.too_large),
			    FO_REAL("smallest_bytes", p->plan.smallest.step.bytes),
			    FO_REAL("smallest_bytes_high", fo_predict_upper_bytes(&p->plan.smallest.step)),
			    FO_REAL("usable_bytes", p->ask.base.job.machine.memory_bytes),
			    FO_REAL("devices_that_hold_it", p->would_hold > 0 ? p->would_hold : NAN),
			    FO_REAL("batch_that_they_hold", p->would_hold > 0 ? p->would_hold_batch : NAN));
		return;
	}
	struct fo_plan_file_point point[FO_PLAN_SHOWN];
	struct fo_plan_file file;
	fo_cli_planned_file(p, point, &file);
	fo_plan_file_write(&file, j);
	json_losses(j, &named(p)->step);
	struct fo_cli_costs costs;
	fo_cli_planned_costs(p, &costs);
	fo_cli_cost_json(j, "cost", &p->rates, &costs);
	fo_json_array(j, "changes");
	for (int i = 0; i < p->changes; i++) {
		fo_json_object(j, NULL);
		fo_json_array(j, "fields");
		for (int f = 0; f < FO_PLAN_FIELDS; f++)
			if (p->change[i].fields & 1u << f)
				fo_json_text(j, NULL, fo_plan_field_name[f]);
		fo_json_close(j);
		fo_json_put(j, FO_REAL("before_seconds", p->change[i].before),
			    FO_REAL("after_seconds", p->change[i].after));
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_real(j, "from_seconds", p->has_from ? p->from_seconds : NAN);
	if (p->has_from)
		fo_json_put(j, FO_BOOL("from_fits", !p->from_fits_not));
	json_more(j, p);
	fo_json_object(j, "settings");
	for (int w = 0; w < FO_PLAN_WORDS; w++) {
		struct fo_str s = { 0 };
		const char *reason;
		bool can = fo_plan_settings((enum fo_plan_words)w, &p->ask, named(p), &p->asked->job.model, &s,
					    &reason);
		fo_json_text(j, fo_plan_words_id[w], can ? s.data : NULL);
		fo_str_fini(&s);
	}
	fo_json_close(j);
}
