/* Two runs beside each other, as a document. */
#include "report/versus.h"

#include "report/versus_text.h"
#include "timeline/timeline.h"

#include <math.h>
#include <string.h>

enum { OPERATIONS = 10, OPTIONS = 12 }; /* on a screen; the page has all of them */

struct page {
	const struct fo_versus *v;
	struct fo_doc *d;
	bool all;
};

static const char *percent(struct page *p, double share)
{
	return isnan(share) ? "-" : fo_doc_printf(p->d, "%.2f %%", 100 * share);
}

static const char *count(struct page *p, double x)
{
	char buf[32];
	return isnan(x) ? "-" : fo_doc_printf(p->d, "%s", fo_str_si(buf, x, ""));
}

static const char *bytes(struct page *p, double x) { return fo_doc_num(p->d, x, FO_DRAW_BYTES); }
static const char *ms(struct page *p, double seconds) { return fo_versus_ms(p->d, seconds); }

/* ---- the answer ---- */

/* Tokens of B's step over those of A's; 1 where they are not known. */
static double work(const struct fo_versus *v)
{
	double times = v->side[1].tokens / v->side[0].tokens;
	return isfinite(times) ? times : 1;
}

/* Steps of unlike size are compared by their tokens per second. */
static void say_rates(struct page *p, double times)
{
	const struct fo_spread *x = &p->v->side[0].figure[FO_VERSUS_TOKENS_PER_SECOND],
			       *y = &p->v->side[1].figure[FO_VERSUS_TOKENS_PER_SECOND];
	const char *size = fo_doc_printf(p->d, "B's step has %.3g times A's tokens", times);
	if (fo_spread_apart(x, y))
		fo_doc_verdict(p->d, y->median > x->median ? FO_DOC_GOOD : FO_DOC_BAD, NULL,
			       "%s, and does %.3f times as many per second (medians); the quartiles of both are apart.",
			       size, y->median / x->median);
	else
		fo_doc_verdict(p->d, FO_DOC_PLAIN, NULL,
			       "%s. Tokens per second: not resolved. The quartiles of both runs overlap.", size);
}

static void say_verdict(struct page *p)
{
	static const double alike = 0.05; /* rows of documents hold a little more or less */
	const struct fo_versus *v = p->v;
	const struct fo_spread *x = &v->side[0].figure[FO_VERSUS_STEP_SECONDS],
			       *y = &v->side[1].figure[FO_VERSUS_STEP_SECONDS];
	double times = y->median / x->median;
	if (p->v->same_run) {
		fo_doc_verdict(p->d, FO_DOC_PLAIN, NULL, "A and B are the same run: nothing differs.");
		return;
	}
	if (!x->n || !y->n)
		fo_doc_verdict(p->d, FO_DOC_PLAIN, NULL, "Step times are not known of both runs.");
	else if (fabs(work(v) - 1) > alike)
		say_rates(p, work(v));
	else if (!fo_spread_apart(x, y))
		fo_doc_verdict(
			p->d, FO_DOC_PLAIN, NULL,
			"Step time: not resolved. The quartiles of both runs overlap: the machine varied by as much "
			"as they differ.");
	else
		fo_doc_verdict(p->d, times < 1 ? FO_DOC_GOOD : FO_DOC_BAD, NULL,
			       "B's step takes %.3f times as long as A's (medians); the quartiles of both are apart.",
			       times);
	for (int64_t i = 0; i < v->causes; i++)
		fo_doc_item(p->d, "%s", v->cause[i]);
}

static void say_what_they_are(struct page *p)
{
	static const char *const side[] = { "A", "B" };
	for (int i = 0; i < 2; i++) {
		const struct fo_record *r = p->v->side[i].record;
		const char *model = fo_record_model(r),
			   *when = *r->started ? r->started : "at a time that is not known";
		fo_doc_fact(p->d, side[i], r->dir,
			    fo_doc_printf(p->d, "%s, begun %s", *model ? model : "model not known", when));
	}
	for (int i = 0; i < 2; i++)
		for (int f = 0; f < FO_RECORD_FILES; f++)
			if (p->v->side[i].record->file[f].state == FO_RECORD_DAMAGED)
				fo_doc_warning(p->d, "left out: %s", p->v->side[i].record->file[f].why);
}

/* ---- tables ---- */

enum { HASH = 8 }; /* digits of a checksum, enough to tell two apart; JSON has all */

static void figure_row(struct page *p, const char *name, enum fo_versus_figure_id id,
		       const char *(*text)(struct page *, double), bool quartiles)
{
	const struct fo_spread *x = &p->v->side[0].figure[id], *y = &p->v->side[1].figure[id];
	if (!x->n && !y->n)
		return;
	const char *change = fo_versus_change(p->d, x->median, y->median, fo_spread_apart(x, y));
	double points = y->median - x->median;
	if (text == percent && points != 0 && *change) /* shares differ by points; what that is of A's stands behind */
		change = fo_doc_printf(p->d, "%+.2f points (%+.0f %%)%s", 100 * points,
				       100 * (y->median / x->median - 1),
				       fo_spread_apart(x, y) ? "" : ", " FO_UNRESOLVED);
	fo_doc_row(p->d, name, text(p, x->median), text(p, y->median), change);
	if (quartiles) {
		fo_doc_row(p->d, "  lower quartile", text(p, x->low), text(p, y->low), "");
		fo_doc_row(p->d, "  upper quartile", text(p, x->high), text(p, y->high), "");
	}
}

static void pair(struct page *p, const char *name, const char *a, const char *b)
{
	if (*a || *b)
		fo_doc_row(p->d, name, fo_doc_printf(p->d, "%.*s", HASH, a), fo_doc_printf(p->d, "%.*s", HASH, b),
			   strcmp(a, b) ? "" : "the same");
}

static const char *clock_text(struct page *p, double hz)
{
	return isnan(hz) ? "-" : fo_doc_printf(p->d, "%.2f GHz", hz * 1e-9);
}

static void figures(struct page *p)
{
	const struct fo_versus_side *a = &p->v->side[0], *b = &p->v->side[1];
	const struct fo_record *x = a->record, *y = b->record;
	fo_doc_table(p->d, FO_DRAW_FITTED, "Medians of all steps but metered ones and the first of each process (cold)",
		     "lrrl", "", "A", "B", "B against A");
	figure_row(p, "step time, median", FO_VERSUS_STEP_SECONDS, ms, true);
	if (!isnan(a->quiet_s) || !isnan(b->quiet_s))
		fo_doc_row(p->d, "quiet step time", ms(p, a->quiet_s), ms(p, b->quiet_s),
			   fo_versus_change(p->d, a->quiet_s, b->quiet_s, true));
	figure_row(p, "waiting for data", FO_VERSUS_DATA_SECONDS, ms, false);
	figure_row(p, "tokens/s", FO_VERSUS_TOKENS_PER_SECOND, count, false);
	figure_row(p, "MFU, rule mfu", FO_VERSUS_MFU, percent, false);
	figure_row(p, "  mfu_causal", FO_VERSUS_MFU_CAUSAL, percent, false);
	figure_row(p, "  mfu_document", FO_VERSUS_MFU_DOCUMENT, percent, false);
	figure_row(p, "  mfu_6n", FO_VERSUS_MFU_6N, percent, false);
	figure_row(p, "HFU", FO_VERSUS_HFU, percent, false);
	fo_doc_row(p->d, "tokens in a step", count(p, a->tokens), count(p, b->tokens), "with loss, median");
	fo_doc_row(p->d, "memory planned", bytes(p, a->planned_bytes), bytes(p, b->planned_bytes),
		   fo_versus_change(p->d, a->planned_bytes, b->planned_bytes, true));
	fo_doc_row(p->d, "memory measured", bytes(p, a->measured_bytes), bytes(p, b->measured_bytes),
		   fo_versus_change(p->d, a->measured_bytes, b->measured_bytes, true));
	fo_doc_row(p->d, "steps", fo_doc_count(p->d, x->step.n), fo_doc_count(p->d, y->step.n), "");
	fo_doc_row(p->d, "clock", clock_text(p, a->clock_hz), clock_text(p, b->clock_hz), "");
	fo_doc_row(p->d, "steal", percent(p, a->steal), percent(p, b->steal), "");
	pair(p, "program", x->program_hash, y->program_hash);
	pair(p, "training data", x->train_checksum, y->train_checksum);
	pair(p, "held-out data", x->val_checksum, y->val_checksum);
}

/* Draws both sides' parts as bars to scale. With the time beyond the medians they are as long as the step. */
static void picture(struct page *p, double part[2][FO_PART_COUNT + 1])
{
	struct fo_draw_stack *stack = fo_doc_alloc(p->d, 2 * sizeof *stack);
	const char **name = fo_doc_alloc(p->d, (FO_PART_COUNT + 1) * sizeof *name);
	unsigned char *tone = fo_doc_alloc(p->d, FO_PART_COUNT + 1);
	memcpy(name, fo_part_words, FO_PART_COUNT * sizeof *name);
	memcpy(tone, fo_part_tone, FO_PART_COUNT);
	name[FO_PART_COUNT] = "beyond medians: stalls and gaps";
	tone[FO_PART_COUNT] = 7;
	for (int k = 0; k < 2; k++) {
		double *own = fo_doc_alloc(p->d, (FO_PART_COUNT + 1) * sizeof *own), sum = 0;
		for (int i = 0; i <= FO_PART_COUNT; i++)
			sum += own[i] = fmax(part[k][i], 0);
		stack[k] = (struct fo_draw_stack){ k ? "B" : "A", fo_doc_num(p->d, sum, FO_DRAW_SECONDS), own };
	}
	fo_doc_only(p->d, FO_DOC_PAGE);
	fo_doc_stacks(p->d, &(struct fo_draw_stacks){ .title = "Both to scale: a shorter bar takes less time",
						      .desc = "The parts of a step of A and of B.",
						      .part_name = name,
						      .tone = tone,
						      .parts = FO_PART_COUNT + 1,
						      .stack = stack,
						      .stacks = 2,
						      .to_scale = true,
						      .dense = true });
	fo_doc_only(p->d, FO_DOC_BOTH);
}

/* Parts of the step: medians from the timelines, else the means of the logs. */
static void parts(struct page *p)
{
	const struct fo_versus_side *a = &p->v->side[0], *b = &p->v->side[1];
	bool spans = p->v->operations && a->covered.n && b->covered.n, resolved = fo_versus_parts_resolved(p->v);
	double part[2][FO_PART_COUNT + 1] = { { 0 } }, total = 0;
	if (!spans && (isnan(a->mean_part[0]) || isnan(b->mean_part[0]))) {
		fo_doc_para(p->d, "Where the time went is not known of both runs.");
		return;
	}
	if (spans)
		fo_doc_heading(p->d,
			       "Where a step's time goes: each operation's median of the newest %lld and %lld steps",
			       (long long)a->covered.n, (long long)b->covered.n);
	else
		fo_doc_heading(p->d, "Where a step's time goes: means (no timeline of both runs, so no spread)");
	if (!resolved && !p->v->same_run)
		fo_doc_para(p->d, "The step times are not resolved, so no difference of parts or operations is.");
	for (int i = 0; i < FO_PART_COUNT; i++) {
		part[0][i] = spans ? a->part[i].median : a->mean_part[i];
		part[1][i] = spans ? b->part[i].median : b->mean_part[i];
	}
	for (int k = 0; k < 2 && spans; k++)
		part[k][FO_PART_COUNT] = p->v->side[k].beyond_s;
	picture(p, part);
	fo_doc_table(p->d, FO_DRAW_FITTED, NULL, "lrrrl", "part", "A", "B", "B - A", "");
	for (int i = 0; i < FO_PART_COUNT; i++) {
		double x = part[0][i], y = part[1][i];
		bool apart = !spans || fo_spread_apart(&a->part[i], &b->part[i]);
		total += y - x;
		if (x != 0 || y != 0)
			fo_doc_row(p->d, fo_part_words[i], ms(p, x), ms(p, y), fo_versus_signed_ms(p->d, y - x),
				   fo_versus_mark(y - x, resolved && apart));
	}
	if (!spans) {
		fo_doc_row(p->d, "sum", "", "", fo_versus_signed_ms(p->d, total), "");
		return;
	}
	double whole = b->covered.median - a->covered.median;
	fo_doc_row(p->d, "beyond medians", ms(p, a->beyond_s), ms(p, b->beyond_s),
		   fo_versus_signed_ms(p->d, b->beyond_s - a->beyond_s), "stalls and gaps");
	/* This row is of the newest steps alone; whether the runs' steps differ is judged once, by all steps. */
	fo_doc_row(p->d, "whole step", ms(p, a->covered.median), ms(p, b->covered.median),
		   fo_versus_signed_ms(p->d, whole), fo_versus_mark(whole, resolved));
}

static const char *operation_ms(struct page *p, const struct fo_versus_op *o, int side)
{
	return o->in[side] ? fo_doc_num(p->d, o->time[side].median, FO_DRAW_MS) : "none";
}

static void operations_between(struct page *p, int64_t from, int64_t to)
{
	fo_doc_table(p->d, FO_DRAW_FULL, NULL, "lllrrrl", "block", "operation", "phase", "A", "B", "B - A ms", "");
	for (int64_t i = from; i < to; i++) {
		const struct fo_versus_op *o = &p->v->op[i];
		fo_doc_row(p->d, o->block, fo_op_info((enum fo_op_kind)o->kind)->name, fo_phase_name[o->phase],
			   operation_ms(p, o, 0), operation_ms(p, o, 1),
			   fo_doc_printf(p->d, "%+.3f", o->difference * 1e3),
			   fo_versus_mark(o->difference, fo_versus_op_resolved(p->v, o)));
	}
}

static void operations(struct page *p)
{
	const struct fo_versus *v = p->v;
	int64_t shown = p->all || v->ops < OPERATIONS ? v->ops : OPERATIONS;
	double rest = 0;
	if (!v->operations || !v->ops)
		return;
	fo_doc_heading(p->d, "Operations, ms in a step (all layers, micro-batches), largest difference first");
	operations_between(p, 0, shown);
	if (shown == v->ops)
		return;
	for (int64_t i = shown; i < v->ops; i++)
		rest += v->op[i].difference;
	fo_doc_row(p->d, fo_doc_printf(p->d, "%lld more", (long long)(v->ops - shown)), "", "", "", "",
		   fo_doc_printf(p->d, "%+.3f", rest * 1e3), "--all");
	fo_doc_only(p->d, FO_DOC_PAGE);
	fo_doc_details(p->d, FO_DOC_FOLDED, "The other %lld operations", (long long)(v->ops - shown));
	operations_between(p, shown, v->ops);
	fo_doc_details_end(p->d);
	fo_doc_only(p->d, FO_DOC_BOTH);
}

static void options(struct page *p)
{
	const struct fo_versus *v = p->v;
	bool known = v->side[0].record->options && v->side[1].record->options;
	if (!v->options) {
		fo_doc_para(p->d, known ? "No option differs." : "The options of both runs are not known.");
		return;
	}
	fo_doc_heading(p->d, "Options that differ");
	fo_doc_table(p->d, FO_DRAW_FULL, NULL, "lll", "option", "A", "B");
	for (int64_t i = 0; i < v->options && (p->all || i < OPTIONS); i++) {
		const struct fo_versus_option *o = &v->option[i];
		const char *a = *o->value[0] ? o->value[0] : "-";
		fo_doc_row(p->d, o->key, fo_doc_printf(p->d, "%.24s", a), *o->value[1] ? o->value[1] : "-");
	}
	if (!p->all && v->options > OPTIONS)
		fo_doc_para(p->d, "and %lld more (--all)", (long long)(v->options - OPTIONS));
}

static void losses(struct page *p)
{
	const struct fo_versus *v = p->v;
	const char *text, *held = "", *data = "";
	if (!v->common_steps)
		text = "the runs have no step in common";
	else if (v->identical_steps == v->common_steps)
		text = fo_doc_printf(p->d, "the same bits in all %lld common steps", (long long)v->common_steps);
	else
		text = fo_doc_printf(
			p->d,
			"%lld common steps, the first %lld with the same bits; largest difference %.3g at step "
			"%lld; at step %lld %.4f and %.4f",
			(long long)v->common_steps, (long long)v->identical_steps, v->largest_loss_difference,
			(long long)v->largest_at, (long long)v->last_common, v->last_loss[0], v->last_loss[1]);
	if (v->eval_step >= 0)
		held = fo_doc_printf(p->d, "; held-out at step %lld %.4f and %.4f", (long long)v->eval_step,
				     v->eval_loss[0], v->eval_loss[1]);
	if (v->common_steps && !v->same_data)
		data = "; not of the same data";
	fo_doc_heading(p->d, "Losses");
	fo_doc_para(p->d, "%s%s%s", text, held, data);
}

void fo_versus_doc(const struct fo_versus *v, bool all, struct fo_doc *d)
{
	struct page p = { .v = v, .d = d, .all = all };
	fo_doc_title(d, "Two runs: %s and %s", v->side[0].record->dir, v->side[1].record->dir);
	fo_doc_lead(d, "A is the first, B the second. A difference inside both runs' own spread is not resolved.");
	fo_doc_footer(d, "flatout compare. Figures are defined in docs/metrics.md.");
	fo_doc_only(d, FO_DOC_TERM);
	say_what_they_are(&p);
	fo_doc_only(d, FO_DOC_BOTH);
	say_verdict(&p);
	fo_doc_only(d, FO_DOC_PAGE);
	say_what_they_are(&p);
	fo_doc_only(d, FO_DOC_BOTH);
	figures(&p);
	parts(&p);
	operations(&p);
	options(&p);
	losses(&p);
}
