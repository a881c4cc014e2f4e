/* A ladder as a document. A reader who doubts a figure finds beside it its spread, its peak, what was predicted, and
 * the command that makes it again. */
#include "ladder/ladder.h"

#include "timeline/timeline.h"

#include <stdio.h>
#include <string.h>

struct page {
	const struct fo_ladder *l;
	struct fo_doc *d;
	int bottom, top;      /* the baseline, and the rung with all changes together; -1: none is measured */
	int turns, open;      /* turns that are done; rungs that have some left */
	enum fo_doc_for rest; /* who sees what follows the first table: a brief terminal does not */
};

/* ---- words ---- */

static const char *known(const char *text) { return text ? text : "?"; }

/* Does the rung's time say something about this machine? */
static bool is_timed(const struct fo_ladder_rung *r)
{
	return r->verdict != FO_LADDER_NUMERICS_ONLY && r->verdict != FO_LADDER_FAILED &&
	       r->verdict != FO_LADDER_UNMEASURED;
}

static const char *name_of(const struct fo_ladder *l, int rung)
{
	return rung >= 0 && rung < l->rungs ? l->rung[rung].name : "";
}

/* The verdict as a sentence, for readers who cannot tell the bars apart by their look. */
static const char *verdict_text(struct page *p, const struct fo_ladder_rung *r)
{
	const char *from = name_of(p->l, r->from);
	switch (r->verdict) {
	case FO_LADDER_BASELINE: return "baseline";
	case FO_LADDER_GAIN: return fo_doc_printf(p->d, "gain over %s", from);
	case FO_LADDER_LOSS: return fo_doc_printf(p->d, "LOSS against %s", from);
	case FO_LADDER_UNRESOLVED:
		return fo_doc_printf(p->d, "not resolved: the interval contains 1 (against %s)", from);
	case FO_LADDER_UNSTEADY:
		return fo_doc_printf(p->d, "not known (unsteady): the rounds differ too much (against %s)", from);
	case FO_LADDER_NUMERICS_ONLY: return "numerics only: its time says nothing";
	case FO_LADDER_FAILED: return fo_doc_printf(p->d, "failed: %s", r->reason ? r->reason : "no reason given");
	default:
		return r->rounds_done && r->rounds_done < p->l->rounds
			       ? fo_doc_printf(p->d, "%d of %d rounds are done", r->rounds_done, p->l->rounds)
			       : "not measured yet";
	}
}

/* The verdict in a column of the table. */
static const char *verdict_word(const struct fo_ladder_rung *r)
{
	switch (r->verdict) {
	case FO_LADDER_LOSS: return "LOSS";
	case FO_LADDER_FAILED: return "FAILED";
	case FO_LADDER_UNSTEADY: return "not known"; /* 80 columns hold no more; a warning above says why */
	default: return r->verdict < FO_LADDER_VERDICT_COUNT ? fo_ladder_verdict_name[r->verdict] : "?";
	}
}

/* "about 94 %, five rounds" */
static const char *level_text(struct page *p, double level)
{
	static const char *const word[] = { "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve" };
	int k = p->l->rounds - 5;
	if (k >= 0 && k < (int)(sizeof word / sizeof *word))
		return fo_doc_printf(p->d, "about %.0f %%, %s rounds", 100 * level, word[k]);
	return fo_doc_printf(p->d, "about %.0f %%, %d rounds", 100 * level, p->l->rounds);
}

/* The version as the ladder keeps it is "flatout 0.1.0". */
static const char *version(const struct fo_ladder *l)
{
	static const char name[] = "flatout ";
	if (!l->version)
		return "?";
	return strncmp(l->version, name, strlen(name)) ? l->version : l->version + strlen(name);
}

static const char *machine(const struct fo_ladder *l) { return l->device && *l->device ? l->device : known(l->cpu); }

static const char *si(struct page *p, double v, const char *unit)
{
	char buf[32];
	if (!isfinite(v))
		return "-";
	fo_str_si(buf, v, unit);
	size_t n = strlen(buf);
	if (n && buf[n - 1] == ' ') /* the space before a unit that is not there */
		buf[n - 1] = 0;
	return fo_doc_printf(p->d, "%s", buf);
}

static const char *share(struct page *p, double v) { return fo_doc_num(p->d, v, FO_DRAW_SHARE); }

/* A number of a table whose column names the unit; "-": not measured. */
static const char *plain(struct page *p, double v, int decimals)
{
	return isfinite(v) ? fo_doc_printf(p->d, "%.*f", decimals, v) : "-";
}

static const char *range(struct page *p, double low, double high, int decimals)
{
	if (!isfinite(low) || !isfinite(high))
		return "-";
	return fo_doc_printf(p->d, "%.*f-%.*f", decimals, low, decimals, high);
}

/* ---- the answer ---- */

static void say_gain(struct page *p)
{
	const struct fo_ladder *l = p->l;
	if (p->top < 0 || p->top == p->bottom)
		return;
	struct fo_ladder_interval v = fo_ladder_over(l, p->top, p->bottom, NULL);
	const char *top = name_of(l, p->top), *bottom = name_of(l, p->bottom);
	if (!isfinite(v.estimate))
		return;
	if (fo_ladder_unsteady(&v))
		fo_doc_verdict(p->d, FO_DOC_PLAIN, "gain",
			       "not known (unsteady): the rounds differ too much to compare "
			       "'%s' with '%s'",
			       top, bottom);
	else if (v.low <= 1 && v.high >= 1)
		fo_doc_verdict(p->d, FO_DOC_PLAIN, "gain", "not resolved: these rounds cannot tell '%s' from '%s'", top,
			       bottom);
	else
		fo_doc_verdict(p->d, v.low > 1 ? FO_DOC_GOOD : FO_DOC_BAD, "gain",
			       "'%s' trains %.2f times as many useful tokens/s as '%s' (%.2f to %.2f, %s)", top,
			       v.estimate, bottom, v.low, v.high, level_text(p, v.level));
}

static void say_losses(struct page *p)
{
	const struct fo_ladder *l = p->l;
	int held = 0;
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *g = &l->rung[i];
		held += g->check == FO_LADDER_HELD;
		if (g->check == FO_LADDER_LEFT)
			fo_doc_verdict(p->d, FO_DOC_BAD, "losses",
				       "those of '%s' left those of '%s': %.2f %% away, "
				       "%.1f %% are allowed",
				       g->name, name_of(l, g->reference), 100 * g->deviation, 100 * g->tolerance);
		if (g->reason)
			fo_doc_verdict(p->d, FO_DOC_BAD, "failed", "'%s': %s", g->name, g->reason);
	}
	if (held)
		fo_doc_verdict(p->d, FO_DOC_GOOD, "losses", "%d rung%s held those of the rung they are compared with",
			       held, fo_plural(held));
}

/* A rung whose rows cut documents off learns their beginnings by heart: its training loss falls faster, and is no
 * better. */
static void warn_of_cuts(struct page *p)
{
	const struct fo_ladder *l = p->l;
	const char *names = "";
	for (int i = 0; i < l->rungs; i++)
		if (!l->rung[i].reason && l->rung[i].text_reached < 1)
			names = fo_doc_printf(p->d, "%s%s%s", names, *names ? ", " : "", l->rung[i].name);
	if (*names)
		fo_doc_warning(
			p->d,
			"Rows of %s cut documents off (data.packing=padded): that part of the text is never trained "
			"on, and what is left comes more often. Its training losses are of other text than the "
			"others': compare held-out losses. data.packing=split pads as well and cuts nothing off.",
			names);
}

/* The figures of the top; its gain comes first. */
static void top_facts(struct page *p)
{
	const struct fo_ladder *l = p->l;
	const struct fo_ladder_rung *top = &l->rung[p->top], *bottom = &l->rung[p->bottom];
	struct fo_ladder_interval v = fo_ladder_over(l, p->top, p->bottom, NULL);
	const char *doubt = v.low <= 1 && v.high >= 1 ? ": not resolved" : "";
	if (fo_ladder_unsteady(&v))
		doubt = ": unsteady";
	if (top != bottom && isfinite(v.estimate))
		fo_doc_fact(p->d, "gain over the baseline",
			    fo_ladder_unsteady(&v) ? "not known" : fo_doc_num(p->d, v.estimate, FO_DRAW_FACTOR),
			    fo_doc_printf(p->d, "useful tokens/s; between %.2f and %.2f (%s)%s", v.low, v.high,
					  level_text(p, v.level), doubt));
	const char *name = top == bottom ? "baseline" : "all changes together";
	fo_doc_fact(p->d, name, top->name,
		    top->check == FO_LADDER_LEFT ? "its losses left the reference's: see below" : top->what);
	if (!isfinite(top->tokens_s.median))
		return; /* nothing of it is measured yet */
	fo_doc_fact(p->d, "its MFU", share(p, top->mfu[FO_LADDER_MFU].median),
		    fo_doc_printf(p->d, "rule mfu, %s; by mfu_causal %s%s", known(top->peak_dtype),
				  share(p, top->mfu[FO_LADDER_MFU_CAUSAL].median),
				  top == bottom ? ""
						: fo_doc_printf(p->d, "; baseline %s",
								share(p, bottom->mfu[FO_LADDER_MFU].median))));
	fo_doc_fact(p->d, "its step", fo_doc_num(p->d, top->step_s.median, FO_DRAW_SECONDS),
		    fo_doc_printf(p->d, "%.0f useful tokens/s", top->tokens_s.median));
}

/* ---- tables ---- */

static void table_of_gains(struct page *p)
{
	fo_doc_table(p->d, FO_DRAW_FULL, NULL, "lrrrrrrl", "rung", "MFU %", "quartiles", "quiet", "tok/s", "gain",
		     "interval", "verdict");
	for (int i = 0; i < p->l->rungs; i++) {
		const struct fo_ladder_rung *g = &p->l->rung[i];
		const struct fo_spread *m = &g->mfu[FO_LADDER_MFU];
		fo_doc_row(p->d, g->name, plain(p, 100 * m->median, 1), range(p, 100 * m->low, 100 * m->high, 1),
			   plain(p, 100 * g->quiet_mfu[FO_LADDER_MFU], 1), si(p, g->tokens_s.median, ""),
			   plain(p, g->gain, 3), range(p, g->gain_low, g->gain_high, 2), verdict_word(g));
	}
}

static const char *losses(struct page *p, const struct fo_ladder_rung *g)
{
	if (g->check == FO_LADDER_HELD)
		return fo_doc_printf(p->d, "held %.2f %%", 100 * g->deviation);
	if (g->check == FO_LADDER_LEFT)
		return fo_doc_printf(p->d, "LEFT %.2f %% of %.1f", 100 * g->deviation, 100 * g->tolerance);
	return g->check < FO_LADDER_CHECK_COUNT ? fo_ladder_check_name[g->check] : "?";
}

static void table_of_the_rest(struct page *p)
{
	const struct fo_ladder *l = p->l;
	fo_doc_table(p->d, FO_DRAW_FULL, NULL, "lrrrrrrLl", "rung", "predicted", "step ms", "memory", "pad %", "text %",
		     "held-out", "compared with", "losses");
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *g = &l->rung[i];
		const char *memory = "-";
		if (g->measured_bytes > 0)
			memory = fo_doc_num(p->d, (double)g->measured_bytes, FO_DRAW_BYTES);
		fo_doc_row(p->d, g->name, plain(p, g->predicted_gain, 3), plain(p, 1e3 * g->step_s.median, 1), memory,
			   plain(p, 100 * g->padding, 1), fo_ladder_share(&p->d->arena, g->text_seen),
			   plain(p, g->val_loss, 3), g->reference == i ? "-" : name_of(l, g->reference), losses(p, g));
	}
}

static double total(const struct fo_ladder_rung *g)
{
	double s = 0;
	for (int k = 0; k < FO_PART_COUNT; k++)
		s += g->part_s[k] > 0 ? g->part_s[k] : 0;
	return s;
}

/* The baseline beside what all changes make together: shares of a step, and milliseconds. */
static void table_of_parts(struct page *p)
{
	const struct fo_ladder_rung *a = &p->l->rung[0], *b = p->top > 0 ? &p->l->rung[p->top] : NULL;
	if (!b || !(total(a) > 0) || !(total(b) > 0))
		return;
	fo_doc_table(p->d, FO_DRAW_FITTED, NULL, "lrrrr", "where a step's time goes",
		     fo_doc_printf(p->d, "%s %%", a->name), fo_doc_printf(p->d, "%s %%", b->name), "mean ms",
		     "mean ms");
	for (int k = 0; k < FO_PART_COUNT; k++)
		if (a->part_s[k] + b->part_s[k] != 0)
			fo_doc_row(p->d, fo_part_words[k], plain(p, 100 * a->part_s[k] / total(a), 1),
				   plain(p, 100 * b->part_s[k] / total(b), 1), plain(p, 1e3 * a->part_s[k], 1),
				   plain(p, 1e3 * b->part_s[k], 1));
}

static void list_of_changes(struct page *p)
{
	fo_doc_table(p->d, FO_DRAW_FULL, NULL, "ll", "rung", "starts from, and changes");
	for (int i = 0; i < p->l->rungs; i++) {
		const struct fo_ladder_rung *g = &p->l->rung[i];
		const char *text = g->from < 0 ? "the run file" : name_of(p->l, g->from);
		for (int k = 0; k < g->changes; k++)
			text = fo_doc_printf(p->d, "%s --%s=%s", text, g->change[k].key, g->change[k].value);
		if (g->what && *g->what)
			text = fo_doc_printf(p->d, "%s (%s)", text, g->what);
		fo_doc_row(p->d, g->name, g->reason ? fo_doc_printf(p->d, "%s; failed: %s", text, g->reason) : text);
	}
}

/* ---- pictures ---- */

static enum fo_draw_tone tone_of(const struct fo_ladder_rung *r)
{
	if (r->verdict == FO_LADDER_LOSS)
		return FO_DRAW_BAD;
	bool known = is_timed(r) && r->verdict != FO_LADDER_UNRESOLVED && r->verdict != FO_LADDER_UNSTEADY;
	return known ? FO_DRAW_PLAIN : FO_DRAW_DOUBTFUL;
}

static void draw_gains(struct page *p)
{
	const struct fo_ladder *l = p->l;
	struct fo_draw_bar_row *row = fo_doc_alloc(p->d, (size_t)(l->rungs + 1) * sizeof *row);
	size_t n = 0;
	double level = NAN;
	bool predicted = false;
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *r = &l->rung[i];
		if (r->from < 0 || r->verdict == FO_LADDER_UNMEASURED)
			continue;
		const char *text = plain(p, r->gain, 3);
		if (isfinite(r->gain_low) && isfinite(r->gain_high))
			text = fo_doc_printf(p->d, "%s (%.2f-%.2f)", text, r->gain_low, r->gain_high);
		if (isfinite(r->predicted_gain))
			text = fo_doc_printf(p->d, "%s; predicted %.3f", text, r->predicted_gain);
		predicted = predicted || isfinite(r->predicted_gain);
		level = r->gain_level > 0 ? r->gain_level : level;
		row[n++] = (struct fo_draw_bar_row){
			.name = r->name,
			.note = verdict_text(p, r),
			.value = text,
			.bar = { { r->gain, r->gain_low, r->gain_high }, { r->predicted_gain, NAN, NAN } },
			.tone = tone_of(r),
		};
	}
	if (!n)
		return;
	fo_doc_heading(p->d, "What each change gains");
	fo_doc_bars(
		p->d,
		&(struct fo_draw_bars){
			.title = "Useful tokens per second over those of the rung it starts from",
			.desc = "Logarithmic; 1 x is no change. Dashed bars are not resolved or not known, or their "
				"time does not count; bars of the other colour are losses. A whisker that ends in an "
				"arrow goes on: its numbers stand beside it.",
			.unit = FO_DRAW_FACTOR,
			.bar_name = { "measured", predicted ? "predicted" : NULL },
			.row = row,
			.rows = n });
	if (isfinite(level))
		fo_doc_remark(
			p->d,
			"Whiskers are the interval of the gain: %s (Hodges and Lehmann's estimate, over pairs of turns "
			"of one round, so that a machine that drifts moves both).",
			level_text(p, level));
}

static void draw_mfu(struct page *p)
{
	const struct fo_ladder *l = p->l;
	struct fo_draw_bar_row *row = fo_doc_alloc(p->d, (size_t)(l->rungs + 1) * sizeof *row);
	const char *missing = "";
	size_t n = 0;
	bool quiet = false;
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *r = &l->rung[i];
		const struct fo_spread *s = &r->mfu[FO_LADDER_MFU];
		const char *text = share(p, s->median);
		if (!isfinite(s->median)) {
			missing = fo_doc_join(p->d, missing, r->name);
			continue;
		}
		if (isfinite(s->low) && isfinite(s->high))
			text = fo_doc_printf(p->d, "%s (%s)", text, range(p, 100 * s->low, 100 * s->high, 1));
		quiet = quiet || isfinite(r->quiet_mfu[FO_LADDER_MFU]);
		row[n++] = (struct fo_draw_bar_row){
			.name = r->name,
			.note = is_timed(r) ? NULL : verdict_text(p, r),
			.value = text,
			.bar = { { s->median, s->low, s->high }, { r->quiet_mfu[FO_LADDER_MFU], NAN, NAN } },
			.tone = is_timed(r) ? FO_DRAW_PLAIN : FO_DRAW_DOUBTFUL,
		};
	}
	if (!n)
		return;
	fo_doc_heading(p->d, "MFU of each rung");
	fo_doc_bars(p->d, &(struct fo_draw_bars){
				  .title = "Rule mfu: medians over all timed steps, unfiltered; whiskers are quartiles",
				  .desc = *missing ? fo_doc_printf(p->d, "Not measured: %s.", missing) : NULL,
				  .unit = FO_DRAW_SHARE,
				  .hi = 1,
				  .hi_name = "100 % of the peak that the rung's MFU divides by (below)",
				  .bar_name = { quiet ? "all timed steps" : NULL,
						quiet ? "composed from quiet spans" : NULL },
				  .row = row,
				  .rows = n });
}

/* Rungs hold different numbers of useful tokens in a step (padding, micro-batches): their bars are to scale by the time
 * of as many tokens, so that the fastest rung has the shortest. */
static struct fo_draw_stack stack_of(struct page *p, const char *name, const struct fo_ladder_rung *r)
{
	double *part = fo_doc_alloc(p->d, FO_PART_COUNT * sizeof *part), sum = 0;
	for (int k = 0; k < FO_PART_COUNT; k++)
		sum += part[k] = r->part_s[k] > 0 ? r->part_s[k] / r->step_tokens * 1000 : 0;
	return (struct fo_draw_stack){ name, fo_doc_num(p->d, sum, FO_DRAW_SECONDS), part };
}

static void stacks(struct page *p, const char *title, const struct fo_draw_stack *stack, size_t n)
{
	fo_doc_stacks(p->d, &(struct fo_draw_stacks){ .title = title,
						      .desc = "Means; parts sum to the wall time.",
						      .part_name = fo_part_words,
						      .tone = fo_part_tone,
						      .parts = FO_PART_COUNT,
						      .stack = stack,
						      .stacks = n,
						      .to_scale = true });
}

static void draw_profiles(struct page *p)
{
	const struct fo_ladder *l = p->l;
	struct fo_draw_stack *pair = fo_doc_alloc(p->d, 2 * sizeof *pair),
			     *all = fo_doc_alloc(p->d, (size_t)(l->rungs + 1) * sizeof *all);
	size_t n = 0, rungs = 0;
	const int end[] = { p->bottom, p->top };
	for (int k = 0; k < 2 && !(k && p->bottom == p->top); k++)
		if (end[k] >= 0 && total(&l->rung[end[k]]) > 0)
			pair[n++] = stack_of(p,
					     fo_doc_printf(p->d, "%s: %s", k ? "after" : "before", name_of(l, end[k])),
					     &l->rung[end[k]]);
	if (!n)
		return;
	fo_doc_heading(p->d, "Where the time goes");
	stacks(p, "Time of 1,000 useful tokens, to scale: a shorter bar is faster", pair, n);
	for (int i = 0; i < l->rungs; i++)
		if (total(&l->rung[i]) > 0)
			all[rungs++] = stack_of(p, l->rung[i].name, &l->rung[i]);
	if (rungs <= n)
		return;
	fo_doc_details(p->d, FO_DOC_FOLDED, "The profile of every rung");
	stacks(p, "Time of 1,000 useful tokens in every rung, to scale", all, rungs);
	fo_doc_details_end(p->d);
}

/* Numbers of the steps, or tokens that carried loss up to each; a step whose number is not known counts as the mean. */
static double *places(struct page *p, const struct fo_ladder_rung *r, bool steps)
{
	double *at = fo_doc_alloc(p->d, (size_t)(p->l->steps + 1) * sizeof *at), sum = 0,
	       mean = r->step_tokens > 0 && !steps ? r->step_tokens : 1;
	for (int64_t i = 0; i < p->l->steps; i++)
		at[i] = sum += !steps && r->tokens && isfinite(r->tokens[i]) ? r->tokens[i] : mean;
	return at;
}

static bool compared(const struct fo_ladder *l, int i)
{
	const struct fo_ladder_rung *r = &l->rung[i];
	return r->loss && r->reference >= 0 && r->reference < l->rungs && r->reference != i &&
	       l->rung[r->reference].loss && (r->check == FO_LADDER_HELD || r->check == FO_LADDER_LEFT);
}

static bool is_reference(const struct fo_ladder *l, int i)
{
	bool any = false;
	for (int k = 0; k < l->rungs; k++) {
		if (compared(l, k) && l->rung[k].reference == i)
			return l->rung[i].loss != NULL;
		any = any || compared(l, k);
	}
	return !any && i == fo_ladder_bottom(l) && l->rung[i].loss;
}

/* Losses that stay lie on each other: the picture shows the references, and whatever leaves them. */
static void draw_overlay(struct page *p)
{
	const struct fo_ladder *l = p->l;
	struct fo_draw_series *s = fo_doc_alloc(p->d, (size_t)(l->rungs + 1) * sizeof *s);
	const char *text = fo_ladder_text_title(l, &p->d->arena), *below = "rungs that are compared with a reference";
	bool same = fo_ladder_same_text(l);
	int style = 0;
	size_t n = 0;
	for (int k = 0; k < 2 * l->rungs; k++) { /* the references last, on top */
		int i = k % l->rungs;
		bool on_top = is_reference(l, i) || !compared(l, i);
		if (!l->rung[i].loss || on_top != (k >= l->rungs))
			continue;
		s[n] = (struct fo_draw_series){ .name = below,
						.x = places(p, &l->rung[i], same),
						.y = l->rung[i].loss,
						.n = (size_t)l->steps,
						.style = FO_DRAW_STYLES - 1,
						.faint = !is_reference(l, i) };
		if (on_top) {
			s[n].name = fo_doc_printf(p->d, "%s (%s)", l->rung[i].name,
						  s[n].faint ? "not compared: other data, or its own" : "reference");
			s[n].style = style++ % (FO_DRAW_STYLES - 1);
		} else {
			below = NULL; /* one entry in the legend */
		}
		n++;
	}
	const char *title = text ? fo_doc_printf(p->d, "Training losses: %s", text) : "Training losses";
	fo_doc_lines(p->d, &(struct fo_draw_lines){ .title = title,
						    .desc = "Where numbers hold, lines lie on that of their reference.",
						    .x_name = same ? "step" : "tokens trained on",
						    .y_name = "nats per token",
						    .y_lo = NAN,
						    .y_hi = NAN,
						    .series = s,
						    .n = n });
}

/* The differences that fo_ladder_deviation takes the median of: relative, of mean losses, by equal stretches of the
 * steps. */
static struct fo_draw_series apart(struct page *p, int i)
{
	const struct fo_ladder *l = p->l;
	double *x = fo_doc_alloc(p->d, 2 * FO_LADDER_WINDOWS * sizeof *x), *y = x + FO_LADDER_WINDOWS;
	int n = fo_ladder_stretches(l->rung[i].loss, l->rung[l->rung[i].reference].loss, l->steps, x, y);
	return (struct fo_draw_series){ .name = l->rung[i].name, .x = x, .y = y, .n = (size_t)n, .marks = true };
}

/* One picture: as many rungs as there are styles of lines. */
static void draw_apart(struct page *p, const int *rung, size_t n, bool more)
{
	struct fo_draw_series *s = fo_doc_alloc(p->d, FO_DRAW_STYLES * sizeof *s);
	struct fo_draw_level *level = fo_doc_alloc(p->d, FO_DRAW_STYLES * sizeof *level);
	size_t levels = 0;
	for (size_t k = 0; k < n; k++) {
		double tolerance = p->l->rung[rung[k]].tolerance;
		bool drawn = !isfinite(tolerance);
		s[k] = apart(p, rung[k]);
		s[k].style = (int)k;
		for (size_t j = 0; j < levels; j++)
			drawn = drawn || level[j].hi == tolerance;
		if (!drawn)
			level[levels++] = (struct fo_draw_level){
				-tolerance, tolerance, fo_doc_printf(p->d, "allowed: %.2g %%", 100 * tolerance)
			};
	}
	const char *which = more ? fo_doc_printf(p->d, ": %s to %s", s[0].name, s[n - 1].name) : "";
	fo_doc_lines(p->d,
		     &(struct fo_draw_lines){
			     .title = fo_doc_printf(p->d, "How far losses are from the reference's%s", which),
			     .desc = "Relative difference of the mean losses of each tenth of the steps; zero is none.",
			     .x_name = "step",
			     .y_name = "difference of mean losses, by tenths of the steps",
			     .y_unit = FO_DRAW_CHANGE,
			     .y_lo = NAN,
			     .y_hi = NAN,
			     .series = s,
			     .n = n,
			     .level = level,
			     .levels = levels });
}

static void draw_losses(struct page *p)
{
	const struct fo_ladder *l = p->l;
	int *rung = fo_doc_alloc(p->d, (size_t)(l->rungs + 1) * sizeof *rung), n = 0;
	for (int i = 0; i < l->rungs; i++)
		if (compared(l, i))
			rung[n++] = i;
	fo_doc_heading(p->d, "Do the losses stay?");
	draw_overlay(p);
	for (int first = 0; first < n; first += FO_DRAW_STYLES)
		draw_apart(p, rung + first, (size_t)(n - first < FO_DRAW_STYLES ? n - first : FO_DRAW_STYLES),
			   n > FO_DRAW_STYLES);
}

/* ---- how ---- */

static void draw_configurations(struct page *p)
{
	const struct fo_ladder *l = p->l;
	fo_doc_details(p->d, FO_DOC_FOLDED, "What each rung changes, and the command that makes it");
	fo_doc_table(p->d, FO_DRAW_FULL, "Against the rung it starts from", "llll", "rung", "option", "value",
		     "before");
	for (int i = 0; i < l->rungs; i++)
		for (int k = 0; k < l->rung[i].changes; k++) {
			const struct fo_ladder_change *c = &l->rung[i].change[k];
			fo_doc_row(p->d, l->rung[i].name, c->key, c->value, c->was);
		}
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *r = &l->rung[i];
		struct fo_str command = { 0 };
		const char *what = r->what && *r->what ? fo_doc_printf(p->d, "%s; ", r->what) : "";
		fo_doc_para(p->d, "Rung %s: %s%s", r->name, what, verdict_text(p, r));
		fo_str_puts(&command, "flatout train ");
		if (l->run_file && *l->run_file) { /* a ladder may have been given options alone */
			fo_str_shell(&command, l->run_file);
			fo_str_puts(&command, " ");
		}
		/* The rung's own folder holds a finished run: the command gets another one. */
		fo_str_printf(&command, "--run.dir=%s %s", r->name, r->options ? r->options : "");
		fo_doc_code(p->d, command.data);
		fo_str_fini(&command);
	}
	fo_doc_details_end(p->d);
}

static void table_of_rules(struct page *p)
{
	fo_doc_details(p->d, FO_DOC_FOLDED, "MFU by each rule, and HFU");
	fo_doc_table(p->d, FO_DRAW_FITTED, NULL, "lrrrrr", "rung", "mfu", "mfu_causal", "mfu_document", "mfu_6n",
		     "hfu");
	for (int i = 0; i < p->l->rungs; i++) {
		const char *cell[FO_LADDER_RULES];
		for (int k = 0; k < FO_LADDER_RULES; k++)
			cell[k] = share(p, p->l->rung[i].mfu[k].median);
		fo_doc_row(p->d, p->l->rung[i].name, cell[0], cell[1], cell[2], cell[3], cell[4]);
	}
	fo_doc_details_end(p->d);
}

/* Each peak once: rungs of one precision share theirs. */
static void say_peaks(struct page *p)
{
	const struct fo_ladder *l = p->l;
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *g = &l->rung[i];
		bool said = !(g->peak_flop_s > 0) || !g->peak_source;
		for (int k = 0; k < i && !said; k++)
			said = l->rung[k].peak_flop_s == g->peak_flop_s && l->rung[k].peak_dtype && g->peak_dtype &&
			       !strcmp(l->rung[k].peak_dtype, g->peak_dtype);
		if (!said)
			fo_doc_para(p->d, "Peak: %s %s (%s).", si(p, g->peak_flop_s, "FLOP/s"), known(g->peak_dtype),
				    g->peak_source);
	}
}

static void say_what_a_gain_is(struct page *p)
{
	const struct fo_ladder *l = p->l;
	double level = 0;
	int timed = 0;
	for (int i = 0; i < l->rungs; i++)
		if (l->rung[i].gain_level > 0) {
			level = l->rung[i].gain_level;
			timed += !l->rung[i].numerics_only;
		}
	if (!timed) {
		fo_doc_para(p->d, "Gain: not known before a rung and the one it starts from have done all rounds.");
		return;
	}
	fo_doc_para(
		p->d,
		"Gain: useful tokens/s over those of the rung it starts from, paired by round; interval of %s. It is "
		"resolved when its whole interval lies on one side of 1, and not known (unsteady) when the rounds "
		"differ by more than %g times and by more than the gain itself. One rung in %.0f that changes nothing "
		"is still called a gain or a loss; with %d such rungs, %.0f %% of ladders report at least one.",
		level_text(p, level), FO_LADDER_STEADY, level < 1 ? 1 / (1 - level) : INFINITY, timed,
		100 * (1 - pow(level, timed)));
}

/* How sure predictions are: by the rung of which the profile knows least. */
static void say_how_sure(struct page *p)
{
	const struct fo_ladder_rung *worst = NULL;
	if (p->l->predict_hint)
		fo_doc_para(p->d, "Predicted: %s.", p->l->predict_hint);
	for (int i = 0; i < p->l->rungs; i++) {
		const struct fo_ladder_rung *g = &p->l->rung[i];
		if (isfinite(g->sure[FO_SURE_EXACT]) && (!worst || g->sure[FO_SURE_EXACT] < worst->sure[FO_SURE_EXACT]))
			worst = g;
	}
	if (worst)
		fo_doc_para(p->d,
			    "Predicted: least sure of '%s'; %.0f %% of its time is of operations measured as they are, "
			    "%.0f %% interpolated, %.0f %% guessed. 'flatout calibrate --for %s' measures them.",
			    worst->name, 100 * worst->sure[FO_SURE_EXACT], 100 * worst->sure[FO_SURE_NEAR],
			    100 * worst->sure[FO_SURE_GUESS], worst->dir);
}

static void say_method(struct page *p)
{
	const struct fo_ladder *l = p->l;
	bool numerics = false;
	fo_doc_only(p->d, p->rest);
	fo_doc_heading(p->d, "How it was measured");
	fo_doc_only(p->d, FO_DOC_PAGE);
	fo_doc_para(
		p->d,
		"%s, %s weights, %s per token (rule mfu), rows of %lld tokens, %lld tokens per step. %s, %d thread%s, "
		"kernels up to %s. Begun %s, flatout %s.",
		known(l->model), si(p, l->params, ""), si(p, l->flop_per_token, "FLOP"), (long long)l->seq,
		(long long)l->tokens_per_step, machine(l), l->threads, fo_plural(l->threads), known(l->isa),
		known(l->started), version(l));
	fo_doc_para(
		p->d,
		"Each rung trains %lld steps in all, in %d turns: every round gives each rung one turn, in an order "
		"drawn anew (seed %llu), so that neighbours, clocks and temperature hit all alike. The first step of a "
		"turn is not timed. Nothing is filtered; quiet figures are composed from operations between two bursts "
		"of known work that no neighbour disturbed.",
		(long long)l->steps, l->rounds, (unsigned long long)l->seed);
	fo_doc_only(p->d, p->rest);
	fo_doc_para(p->d,
		    "MFU: rule mfu; median and quartiles of all timed steps, unfiltered; quiet: of the step composed "
		    "from undisturbed spans.");
	say_peaks(p);
	const char *text = fo_ladder_text_title(l, &p->d->arena);
	text = text ? fo_doc_printf(p->d, ": %s", text) : "";
	fo_doc_para(p->d,
		    "Tok/s: useful tokens, padding does not count. Pad: share of the processed tokens that is "
		    "padding. Text: share of the text's tokens that the rung's steps hold%s.",
		    text);
	say_what_a_gain_is(p);
	say_how_sure(p);
	fo_doc_para(p->d, "Losses: distance from the reference's, the median of tenths of the run or of its last three "
			  "where that is larger; compare new data by held-out loss.");
	for (int i = 0; i < l->rungs; i++)
		numerics = numerics || l->rung[i].numerics_only;
	if (numerics)
		fo_doc_para(p->d,
			    "Numerics only: arithmetic that this machine has no unit for is emulated. Its losses show "
			    "what that arithmetic does to training; its time says nothing about hardware that has "
			    "it.");
}

/* ---- the whole ---- */

/* "2 ranks, "; "" of one. */
static const char *ranks_text(struct page *p)
{
	return p->l->ranks > 1 ? fo_doc_printf(p->d, "%d ranks, ", p->l->ranks) : "";
}

static void say_what_it_is(struct page *p)
{
	const struct fo_ladder *l = p->l;
	const char *text = fo_ladder_text_title(l, &p->d->arena);
	if (l->model && *l->model && strcmp(l->model, "custom"))
		fo_doc_title(p->d, "Ladder of %s", l->model);
	else if (l->params > 0)
		fo_doc_title(p->d, "Ladder of a model of %s weights", si(p, l->params, ""));
	else
		fo_doc_title(p->d, "Ladder of a run");
	fo_doc_lead(p->d, "One change at a time, measured against the rung it starts from. %s, %s%d thread%s%s.",
		    machine(l), ranks_text(p), l->threads, fo_plural(l->threads),
		    text ? fo_doc_printf(p->d, "; %s", text) : "");
	fo_doc_footer(p->d, "flatout ladder; begun %s; flatout %s", known(l->started), version(l));
	fo_doc_only(p->d, FO_DOC_TERM);
	fo_doc_fact(p->d, "ladder",
		    fo_doc_printf(p->d, "%s: %s parameters, %s%lld tokens per step, rows of %lld",
				  l->model && *l->model ? l->model : "not begun", si(p, l->params, ""), ranks_text(p),
				  (long long)l->tokens_per_step, (long long)l->seq),
		    NULL);
	if (l->device && *l->device)
		fo_doc_fact(p->d, "device", fo_doc_printf(p->d, "%s: all times are its", l->device), NULL);
	fo_doc_fact(p->d, "machine",
		    fo_doc_printf(p->d, "%s, %s, %d thread%s", known(l->cpu), known(l->isa), l->threads,
				  fo_plural(l->threads)),
		    NULL);
	fo_doc_fact(p->d, p->open ? "planned" : "measured",
		    fo_doc_printf(p->d, "%lld steps of each rung in %d rounds; %d of %d turns done",
				  (long long)l->steps, l->rounds, p->turns, l->rounds * l->rungs),
		    NULL);
	if (text)
		fo_doc_fact(p->d, "text", text, NULL);
	fo_doc_only(p->d, FO_DOC_BOTH);
}

void fo_ladder_doc(const struct fo_ladder *l, bool brief, struct fo_doc *d)
{
	struct page p = { .l = l, .d = d, .bottom = fo_ladder_bottom(l), .top = fo_ladder_top(l) };
	p.rest = brief ? FO_DOC_PAGE : FO_DOC_BOTH;
	const char *not_quiet = fo_ladder_not_quiet(l, &d->arena);
	for (int i = 0; i < l->rungs; i++) {
		p.turns += l->rung[i].rounds_done;
		p.open += !l->rung[i].reason && l->rung[i].rounds_done < l->rounds;
	}
	say_what_it_is(&p);
	say_gain(&p);
	say_losses(&p);
	fo_doc_only(d, FO_DOC_PAGE);
	if (p.top >= 0)
		top_facts(&p);
	fo_doc_fact(d, "rungs", fo_doc_count(d, l->rungs),
		    fo_doc_printf(d, "%lld steps each%s, in %d rounds", (long long)l->steps,
				  p.open ? " are planned" : "", l->rounds));
	warn_of_cuts(&p);
	fo_doc_only(d, FO_DOC_BOTH);
	if (p.open)
		fo_doc_warning(
			d, "This ladder is not finished: %d of %d turns are done. The command that began it goes on.",
			p.turns, l->rounds * l->rungs);
	if (not_quiet)
		fo_doc_warning(d, "In this ladder %s.", not_quiet);
	fo_doc_only(d, FO_DOC_PAGE);
	draw_gains(&p);
	draw_mfu(&p);
	draw_profiles(&p);
	draw_losses(&p);
	fo_doc_heading(d, "All rungs");
	fo_doc_only(d, FO_DOC_BOTH);
	table_of_gains(&p);
	fo_doc_only(d, FO_DOC_PAGE);
	fo_doc_details(d, FO_DOC_FOLDED, "Predictions, memory, padding and losses of every rung");
	fo_doc_only(d, p.rest);
	table_of_the_rest(&p);
	fo_doc_only(d, FO_DOC_PAGE);
	fo_doc_details_end(d);
	table_of_rules(&p);
	draw_configurations(&p);
	if (!brief) {
		fo_doc_only(d, FO_DOC_TERM);
		table_of_parts(&p);
		list_of_changes(&p);
	}
	say_method(&p);
	fo_doc_only(d, FO_DOC_BOTH);
}
