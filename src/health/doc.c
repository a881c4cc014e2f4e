/* The record as a document: a glance, the four questions, the changes, the savings. */
#include "health/health_int.h"

#include "report/ledger_parts.h"
#include "report/log_doc.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

/* In a cell, "-" stands for what is not known. */
static const char *cell(struct fo_doc *d, struct fo_range r, enum fo_draw_unit unit)
{
	return fo_range_known(r) ? fo_health_range(&d->arena, r, unit) : "-";
}
static const char *range(struct fo_doc *d, struct fo_range r, enum fo_draw_unit unit)
{
	return fo_health_range(&d->arena, r, unit);
}
static const char *share(struct fo_doc *d, double v) { return fo_doc_num(d, v, FO_DRAW_SHARE); }

/* "+3.1 to +28.0": points of a percentage */
static const char *points(struct fo_doc *d, struct fo_range r)
{
	if (!fo_range_known(r))
		return "-";
	const char *low = fo_doc_printf(d, "%+.1f", 100 * r.low), *high = fo_doc_printf(d, "%+.1f", 100 * r.high);
	return strcmp(low, high) ? fo_doc_printf(d, "%s to %s", low, high) : low;
}

/* ---- the glance ---- */

static const char *const said[FO_HEALTH_ANSWERS] = { "not known from these inputs", "yes", "no", "not decided",
						     "does not apply" };

static enum fo_doc_tone tone_of(const struct fo_health_question *q)
{
	if (q->bad)
		return FO_DOC_BAD;
	bool decided = q->answer == FO_HEALTH_YES || q->answer == FO_HEALTH_NO;
	return decided ? FO_DOC_GOOD : FO_DOC_PLAIN;
}

static const char *rule_words(struct fo_doc *d, const struct fo_health_mfu *m)
{
	if (!strcmp(m->rule, "printed"))
		return "as the log prints it";
	return strcmp(m->rule, "as given") ? fo_doc_printf(d, "rule %s", m->rule) : m->rule;
}

static void say_mfu(struct fo_doc *d, const struct fo_health *h)
{
	const struct fo_health_mfu *m = &h->mfu;
	if (m->source == FO_HEALTH_BY_ARITHMETIC)
		fo_doc_verdict(d, FO_DOC_PLAIN, "MFU", "not measured; %s by %s, an estimate",
			       range(d, m->spread, FO_DRAW_SHARE), m->from);
	else if (isnan(m->now))
		fo_doc_verdict(d, FO_DOC_PLAIN, "MFU", "not known from these inputs: %s", m->why_not);
	else
		fo_doc_verdict(d, h->serious ? FO_DOC_BAD : FO_DOC_PLAIN, "MFU", "%s (%s, by %s)", share(d, m->now),
			       rule_words(d, m), m->from);
}

static const char *answer_text(struct fo_doc *d, const struct fo_health_question *q)
{
	if (q->answer == FO_HEALTH_NOT_APPLICABLE)
		return "does not apply: one device";
	const char *text = q->statement ? fo_doc_printf(d, "%s: %s", said[q->answer], q->statement) : said[q->answer];
	if (q->answer == FO_HEALTH_UNKNOWN)
		return fo_doc_printf(d, "%s; record %s", text, q->record ? q->record : "more");
	if (q->figure_shown)
		text = fo_doc_printf(d, "%s (%s)", text, q->figure_shown);
	return q->estimated ? fo_doc_printf(d, "%s, by an estimate", text) : text;
}

/* Nobody can decide by a range whose ends differ by more than this: its low end alone is a headline. */
static const double RESOLVED = 2;

static void glance(struct fo_doc *d, const struct fo_health *h)
{
	say_mfu(d, h);
	for (int i = 0; i < FO_HEALTH_ASKS; i++) {
		const struct fo_health_question *q = &h->question[i];
		fo_doc_verdict(d, tone_of(q), q->label, "%s", answer_text(d, q));
	}
	const struct fo_health_change *c = h->changes && !(h->change[0].gain.high <= 1) ? &h->change[0] : NULL;
	if (c)
		fo_doc_verdict(d, FO_DOC_PLAIN, "Change first", "%s%s", c->title,
			       fo_range_known(c->gain)
				       ? fo_doc_printf(d, ": %s as fast", range(d, c->gain, FO_DRAW_FACTOR))
				       : "");
	struct fo_range year = h->savings.price.year_saved;
	if (h->savings.known && year.high > RESOLVED * year.low)
		fo_doc_verdict(d, FO_DOC_PLAIN, "A year", "%s; the upper end is not resolved: measure one change first",
			       year.low > 0 ? fo_doc_printf(d, "at least %s saved for the same work",
							    fo_doc_num(d, year.low, FO_DRAW_MONEY))
					    : "no saving is certain");
	else if (h->savings.known)
		fo_doc_verdict(d, FO_DOC_PLAIN, "A year", "%s saved for the same work", range(d, year, FO_DRAW_MONEY));
	else
		fo_doc_verdict(d, FO_DOC_PLAIN, "A year", "not known: %s", h->savings.why_not);
}

/* ---- MFU and utilisation ---- */

static void tiles(struct fo_doc *d, const struct fo_health *h)
{
	const struct fo_health_mfu *m = &h->mfu;
	if (!isnan(m->now))
		fo_doc_fact(d, "MFU now", share(d, m->now),
			    m->spread.high > m->spread.low
				    ? fo_doc_printf(d, "by the %s, quartiles %s", fo_health_source_name[m->source],
						    range(d, m->spread, FO_DRAW_SHARE))
				    : fo_doc_printf(d, "by the %s", fo_health_source_name[m->source]));
	if (!isnan(m->utilisation))
		fo_doc_fact(d, "GPU utilisation", share(d, m->utilisation), "by the trace: any kernel on the device");
	else if (!isnan(m->busy))
		fo_doc_fact(d, "GPU utilisation", share(d, m->busy), "by nvidia-smi: any kernel on the device");
	if (!isnan(m->now) && m->cap < 1)
		fo_doc_fact(d, "best published", share(d, m->cap),
			    h->savings.cap > m->cap ? fo_doc_printf(d, "%s; in 16 bit", fo_health_cap_run(m->cap_from))
						    : fo_health_cap_run(m->cap_from));
	if (!isnan(h->devices))
		fo_doc_fact(d, "devices", fo_doc_printf(d, "%.0f", h->devices),
			    h->device ? fo_doc_printf(d, "%s (%s)", h->device->name, h->device_from) : h->devices_from);
	if (h->main_log && !isnan(h->main_log->log.time.median))
		fo_doc_fact(d, "step", fo_doc_num(d, h->main_log->log.time.median, FO_DRAW_SECONDS), "by the log");
}

static void utilisation(struct fo_doc *d, const struct fo_health *h)
{
	const struct fo_health_mfu *m = &h->mfu;
	double shown = isnan(m->utilisation) ? m->busy : m->utilisation;
	if (isnan(m->now) || isnan(shown))
		return;
	const char *computing = "";
	if (!isnan(m->computing))
		computing = fo_doc_printf(d, "; kernels that compute are there for %s of the step",
					  share(d, m->computing));
	fo_doc_para(
		d,
		"GPU utilisation of %s is no contradiction to %s MFU. The driver counts the time in which any kernel "
		"is on the device, one that waits in a collective too%s. MFU counts what is computed against the "
		"peak.",
		share(d, shown), share(d, m->now), computing);
}

static void mfu_picture(struct fo_doc *d, const struct fo_health *h)
{
	const struct fo_health_mfu *m = &h->mfu;
	const struct fo_health_savings *s = &h->savings;
	struct fo_draw_bar_row *row = fo_doc_alloc(d, 3 * sizeof *row);
	size_t n = 0;
	const struct fo_draw_bar none = { NAN, NAN, NAN };
	if (isnan(m->now) || m->now > 1)
		return;
	row[n++] = (struct fo_draw_bar_row){ .name = "now",
					     .note = m->from,
					     .value = share(d, m->now),
					     .bar = { { m->now, m->spread.low, m->spread.high }, none } };
	if (fo_range_known(s->mfu_after))
		row[n++] = (struct fo_draw_bar_row){ .name = "after all changes",
						     .note = "the bar: the low end of the estimate",
						     .value = range(d, s->mfu_after, FO_DRAW_SHARE),
						     .bar = { { s->mfu_after.low, s->mfu_after.low, s->mfu_after.high },
							      none },
						     .tone = FO_DRAW_DOUBTFUL };
	if (m->cap < 1)
		row[n++] = (struct fo_draw_bar_row){ .name = "best published",
						     .value = share(d, m->cap),
						     .bar = { { m->cap, NAN, NAN }, none } };
	fo_doc_only(d, FO_DOC_PAGE);
	fo_doc_bars(d, &(struct fo_draw_bars){ .title = "MFU now, after, and the best that was published",
					       .desc = "MFU in percent of the dense peak",
					       .unit = FO_DRAW_SHARE,
					       .lo = 0,
					       .hi = 1,
					       .hi_name = "peak",
					       .row = row,
					       .rows = n });
	fo_doc_only(d, FO_DOC_BOTH);
}

/* ---- the questions ---- */

/* The number of an earlier question with the same commands to paste; 0: none. */
static int pasted_before(const struct fo_health *h, const struct fo_health_question *q)
{
	for (int i = 0; q->paste && &h->question[i] < q; i++)
		if (h->question[i].paste && !strcmp(h->question[i].paste, q->paste))
			return i + 1;
	return 0;
}

static void say_question(struct fo_doc *d, const struct fo_health *h, const struct fo_health_question *q)
{
	int before = pasted_before(h, q);
	const char *text = said[q->answer];
	fo_doc_card(d, tone_of(q), q->estimated ? fo_doc_printf(d, "%s, estimated", text) : text, "%s", q->text);
	fo_doc_para(d, "%s", q->because);
	if (fo_range_known(q->figure))
		fo_doc_line(d, "Figure", "%s %s", range(d, q->figure, FO_DRAW_SHARE), q->figure_of);
	for (int64_t i = 0; i < q->evidences; i++)
		fo_doc_line(d, i ? "" : "Evidence", "%s", q->evidence[i]);
	if (q->record)
		fo_doc_line(d, "Record this", "%s%s", q->record,
			    before ? fo_doc_printf(d, " (the commands: as under question %d)", before) : "");
	if (q->paste && !before)
		fo_doc_code(d, q->paste);
	fo_doc_card_end(d);
}

static void conflicts(struct fo_doc *d, const struct fo_health *h)
{
	if (!h->conflicts)
		return;
	fo_doc_heading(d, "What does not fit together");
	for (int64_t i = 0; i < h->conflicts; i++)
		fo_doc_item(d, "%s", h->conflict[i]);
}

/* ---- the changes ---- */

static const char *worth_words(const struct fo_health_change *c)
{
	if (!fo_range_known(c->gain))
		return "not known";
	if (c->gain.high <= 1)
		return "a loss";
	if (c->worth == FO_HEALTH_MEASURED && c->gain.low < 1)
		return "unresolved";
	if (!c->priced)
		return c->worth == FO_HEALTH_MEASURED ? "elsewhere" : "other job";
	return c->worth == FO_HEALTH_MEASURED ? "measured" : "estimate";
}

/* A terminal has no room for titles: its rows have the names of the cards' changes in one word. */
static void table(struct fo_doc *d, const struct fo_health *h, bool page)
{
	fo_doc_only(d, page ? FO_DOC_PAGE : FO_DOC_TERM);
	fo_doc_table(d, FO_DRAW_FULL, "Each alone; they do not add up", page ? "lrrrl" : "lrLrl", "change", "speed",
		     "MFU points", "a year", "worth");
	for (size_t i = 0; i < h->changes; i++) {
		const struct fo_health_change *c = &h->change[i];
		if (fo_range_known(c->gain))
			fo_doc_row(d, page ? c->title : c->id, cell(d, c->gain, FO_DRAW_FACTOR), points(d, c->points),
				   cell(d, c->year_usd, FO_DRAW_MONEY), worth_words(c));
	}
	fo_doc_only(d, FO_DOC_BOTH);
}

/* The names of what has no worth, in one line instead of a row of dashes for each. */
static void say_unpriced(struct fo_doc *d, const struct fo_health *h)
{
	const char *rest = "";
	for (size_t i = 0; i < h->changes; i++) {
		const struct fo_health_change *c = &h->change[i];
		if (!fo_range_known(c->gain))
			rest = fo_doc_printf(d, "%s%s%s%s", rest, *rest ? "; " : "", c->title,
					     c->no_gain ? fo_doc_printf(d, " (%s)", c->no_gain) : "");
	}
	if (*rest)
		fo_doc_para(d, "Worth not known: %s.", rest);
}

static void tables(struct fo_doc *d, const struct fo_health *h)
{
	bool any = false;
	for (size_t i = 0; i < h->changes; i++)
		any |= fo_range_known(h->change[i].gain);
	for (int page = 0; any && page < 2; page++)
		table(d, h, page);
	say_unpriced(d, h);
}

static void say_change(struct fo_doc *d, const struct fo_health_change *c)
{
	fo_doc_card(d, c->serious ? FO_DOC_BAD : FO_DOC_PLAIN, worth_words(c), "%s", c->title);
	if (c->setting)
		fo_doc_line(d, "Setting", "%s%s", c->setting, c->now ? fo_doc_printf(d, ", now %s", c->now) : "");
	if (c->proposed)
		fo_doc_line(d, "Try", "%s", c->proposed);
	if (fo_range_known(c->gain))
		fo_doc_line(d, "Worth", "%s as fast (%s)", range(d, c->gain, FO_DRAW_FACTOR), c->gain_from);
	if (fo_range_known(c->mfu_after))
		fo_doc_line(d, "MFU", "%s after it", range(d, c->mfu_after, FO_DRAW_SHARE));
	if (c->why)
		fo_doc_line(d, "Why", "%s", c->why);
	for (int64_t i = 0; i < c->sources; i++)
		fo_doc_line(d, i ? "" : "Sources", "%s", c->source[i]);
	if (c->paste)
		fo_doc_code(d, c->paste);
	fo_doc_card_end(d);
}

void fo_health_changes_doc(const struct fo_health *h, struct fo_doc *d)
{
	const struct fo_health_savings *s = &h->savings;
	if (!h->changes) {
		fo_doc_para(d, "Nothing that these inputs show is worth a change. What they do not show is in \"Record "
			       "this\" above.");
		return;
	}
	tables(d, h);
	if (isfinite(s->together.high) && !isnan(h->mfu.now))
		fo_doc_para(d,
			    "Gains of single changes do not add up, for two may save the same time. Together they are "
			    "worth %s: at least the highest lower end among them, at most each saving other time, and "
			    "never above %s MFU (%s).",
			    range(d, s->together, FO_DRAW_FACTOR), share(d, s->cap), s->cap_from);
	else if (!isnan(s->together.low))
		fo_doc_para(d,
			    "Gains of single changes do not add up, for two may save the same time. Together they are "
			    "worth at least %s; how much at most is not known without the MFU now.",
			    fo_doc_num(d, s->together.low, FO_DRAW_FACTOR));
	fo_doc_remark(d, "Make one change, measure, then the next. Serious ones stand first, then the highest low end "
			 "of the speed; of equal ones what was measured or traced before arithmetic.");
	size_t i = 0;
	for (; i < h->changes && (fo_range_known(h->change[i].gain) || h->change[i].serious); i++)
		say_change(d, &h->change[i]);
	if (i == h->changes)
		return;
	fo_doc_details(d, FO_DOC_FOLDED, "Worth not known: %zu", h->changes - i);
	for (; i < h->changes; i++)
		say_change(d, &h->change[i]);
	fo_doc_details_end(d);
}

/* ---- the money ---- */

static void savings(struct fo_doc *d, const struct fo_health *h)
{
	const struct fo_health_savings *s = &h->savings;
	fo_doc_heading(d, "What a year of it saves");
	if (!s->known) {
		fo_doc_para(d, "Not known: %s.", s->why_not);
		return;
	}
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrl", "figure", "value", "counts");
	fo_doc_row(d, "MFU now", share(d, h->mfu.now), h->mfu.from);
	fo_doc_row(d, "MFU after all changes", range(d, s->mfu_after, FO_DRAW_SHARE),
		   s->mfu_after.high < s->cap
			   ? "MFU now x speed"
			   : fo_doc_printf(d, "MFU now x speed, cut at the limit of %s", share(d, s->cap)));
	fo_doc_row(d, "cost of a year", range(d, s->price.year_cost, FO_DRAW_MONEY),
		   "devices x 8760 h x share of the year x rent");
	fo_doc_row(d, "share of it saved", range(d, s->price.saved_share, FO_DRAW_SHARE), "1 - MFU now / MFU after");
	fo_doc_row(d, "saved for the same work", range(d, s->price.year_saved, FO_DRAW_MONEY),
		   "cost of a year x share saved");
	fo_doc_row(d, "devices recovered", range(d, s->price.recovered, FO_DRAW_NUMBER),
		   "devices x (MFU after - MFU now)");
	fo_doc_row(d, "their worth in a year", range(d, s->recovered_year, FO_DRAW_MONEY),
		   "devices recovered x hours x rent");
	fo_doc_remark(d,
		      "\"Saved for the same work\" and \"their worth\" are two views of one change and are not added.");
	fo_doc_line(d, "rent", "%s per device-hour (%s)", range(d, s->rent, FO_DRAW_DOLLARS), s->rent_from);
	fo_doc_line(d, "devices", "%.0f (%s), %s of the year", s->devices, s->devices_from,
		    range(d, h->given.year, FO_DRAW_SHARE));
}

/* ---- pictures, and what was read ---- */

static void ledger_picture(struct fo_doc *d, const struct fo_health *h)
{
	struct fo_subject s;
	int64_t part[FO_LEDGER_PARTS];
	char words[48];
	if (!fo_health_step(h, &s))
		return;
	double *value = fo_doc_alloc(d, FO_LEDGER_PARTS * sizeof *value);
	struct fo_draw_stack *stack = fo_doc_alloc(d, sizeof *stack);
	fo_ledger_parts(&s.l, part);
	for (int i = 0; i < FO_LEDGER_PARTS; i++)
		value[i] = (double)part[i];
	*stack = (struct fo_draw_stack){ fo_text_file_name(s.t->path), fo_doc_ns(d, s.l.span_ns), value };
	fo_doc_stacks(d, &(struct fo_draw_stacks){ .title = fo_doc_printf(d, "One device, %s; parts sum to it",
									  fo_shown_step_words(words, s.device)),
						   .desc = "Parts of the step",
						   .part_name = fo_ledger_part_name,
						   .tone = fo_ledger_part_tone,
						   .parts = FO_LEDGER_PARTS,
						   .stack = stack,
						   .stacks = 1,
						   .to_scale = true,
						   .legend = true });
}

/* Memory of the fullest device by parts, each at the middle of its interval. */
static void memory_picture(struct fo_doc *d, const struct fo_health *h)
{
	const struct fo_job_memory *m = &h->config.memory;
	if (!h->configured || m->unknown || !fo_range_known(m->total))
		return;
	double *value = fo_doc_alloc(d, FO_PREDICT_MEMORIES * sizeof *value);
	struct fo_draw_stack *stack = fo_doc_alloc(d, sizeof *stack);
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++)
		value[i] = fo_range_known(m->part[i]) ? fo_range_middle(m->part[i]) : 0;
	*stack = (struct fo_draw_stack){ "by arithmetic",
					 fo_doc_printf(d, "%s, usable %s", range(d, m->total, FO_DRAW_BYTES),
						       range(d, m->usable, FO_DRAW_BYTES)),
					 value };
	fo_doc_stacks(d, &(struct fo_draw_stacks){ .title = "Memory of the fullest device",
						   .desc = "Parts of the memory",
						   .part_name = fo_predict_memory_name,
						   .parts = FO_PREDICT_MEMORIES,
						   .stack = stack,
						   .stacks = 1,
						   .to_scale = true,
						   .legend = true });
}

static void pictures(struct fo_doc *d, const struct fo_health *h)
{
	struct fo_subject s;
	if (!fo_health_step(h, &s) && !h->main_log && !h->configured)
		return;
	fo_doc_only(d, FO_DOC_PAGE);
	fo_doc_heading(d, "Where time and memory go");
	ledger_picture(d, h);
	if (h->main_log)
		fo_log_picture(d, &h->main_log->account);
	memory_picture(d, h);
	fo_doc_only(d, FO_DOC_BOTH);
}

static void inputs(struct fo_doc *d, const struct fo_health *h)
{
	const char *left = "";
	fo_doc_heading(d, "What was read");
	for (size_t i = 0; i < h->files; i++) {
		const struct fo_health_file *f = &h->file[i];
		if (f->kind != FO_HEALTH_NONE)
			fo_doc_item(d, "%s: %s", f->path, f->what);
		else if (f->named)
			fo_doc_item(d, "%s: not used; %s", f->path, f->why);
		else
			left = fo_doc_join(d, left, fo_text_file_name(f->path));
	}
	if (*left)
		fo_doc_item(d, "in folders and not used: %s", left);
}

/* What the audits lack, for the page: a terminal has the questions' own gaps. */
static void gaps(struct fo_doc *d, const struct fo_health *h)
{
	const struct fo_audit *audit[] = { &h->config_audit, &h->host_audit };
	if (!h->config_audit.gaps && !h->host_audit.gaps)
		return;
	fo_doc_only(d, FO_DOC_PAGE);
	fo_doc_details(d, FO_DOC_FOLDED, "What the audits could not judge");
	for (int a = 0; a < 2; a++)
		for (size_t i = 0; i < audit[a]->gaps; i++)
			fo_doc_item(d, "%s; %s would tell", audit[a]->gap[i].what, audit[a]->gap[i].tell);
	fo_doc_details_end(d);
	fo_doc_only(d, FO_DOC_BOTH);
}

static size_t used(const struct fo_health *h)
{
	size_t n = 0;
	for (size_t i = 0; i < h->files; i++)
		n += h->file[i].kind != FO_HEALTH_NONE;
	return n;
}

void fo_health_doc(const struct fo_health *h, struct fo_doc *d)
{
	fo_doc_title(d, "Health of a training job");
	fo_doc_lead(d, "%zu file%s read; %s", used(h), fo_plural(used(h)),
		    isnan(h->devices) ? "the number of devices is not known"
				      : fo_doc_printf(d, "%.0f device%s (%s)", h->devices, fo_plural(h->devices),
						      h->devices_from));
	glance(d, h);
	tiles(d, h);
	mfu_picture(d, h);
	utilisation(d, h);
	conflicts(d, h);
	fo_doc_heading(d, "Four questions");
	for (int i = 0; i < FO_HEALTH_ASKS; i++)
		say_question(d, h, &h->question[i]);
	fo_doc_heading(d, "What to change, in this order");
	fo_health_changes_doc(h, d);
	savings(d, h);
	pictures(d, h);
	gaps(d, h);
	inputs(d, h);
}
