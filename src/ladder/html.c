/* A ladder as one page: who doubts a figure finds beside it its spread, its peak, what was predicted, and the command
 * that makes it again. */
#include "ladder/ladder.h"

#include "draw/draw.h"

#include <stdio.h>
#include <string.h>

static const char *const part_title[FO_PART_COUNT] = {
	"matrix products", "attention forward",     "attention backward", "norms and elementwise", "loss",
	"optimizer",       "communication exposed", "waiting for data",   "unattributed",
};

static bool stands(const struct fo_ladder_rung *r)
{
	return r->verdict != FO_LADDER_NUMERICS_ONLY && r->verdict != FO_LADDER_FAILED &&
	       r->verdict != FO_LADDER_UNMEASURED;
}

static char *spread_text(char *buf, size_t size, const struct fo_spread *s)
{
	if (!isfinite(s->median))
		snprintf(buf, size, "-");
	else if (isfinite(s->low) && isfinite(s->high))
		snprintf(buf, size, "%.1f %% (%.1f to %.1f)", 100 * s->median, 100 * s->low, 100 * s->high);
	else
		snprintf(buf, size, "%.1f %%", 100 * s->median);
	return buf;
}

/* What a verdict says in words, for who cannot tell the bars apart by their look. */
static char *verdict_text(struct fo_arena *a, const struct fo_ladder *l, const struct fo_ladder_rung *r)
{
	const char *from = r->from >= 0 && r->from < l->rungs ? l->rung[r->from].name : "";
	switch (r->verdict) {
	case FO_LADDER_BASELINE: return fo_arena_strdup(a, "baseline");
	case FO_LADDER_GAIN: return fo_arena_printf(a, "gain over %s", from);
	case FO_LADDER_LOSS: return fo_arena_printf(a, "LOSS against %s", from);
	case FO_LADDER_UNRESOLVED:
		return fo_arena_printf(a, "not resolved: the interval contains 1 (against %s)", from);
	case FO_LADDER_UNSTEADY:
		return fo_arena_printf(a, "not known (unsteady): the rounds differ too much (against %s)", from);
	case FO_LADDER_NUMERICS_ONLY: return fo_arena_strdup(a, "numerics only: its time says nothing");
	case FO_LADDER_FAILED: return fo_arena_printf(a, "failed: %s", r->reason ? r->reason : "no reason given");
	default: return fo_arena_strdup(a, "not measured yet");
	}
}

/* As the terminal says it: 1.118 (1.09-1.14). */
static char *gain_text(struct fo_arena *a, double gain, double low, double high)
{
	if (!isfinite(gain))
		return fo_arena_strdup(a, "-");
	if (!isfinite(low) || !isfinite(high))
		return fo_arena_printf(a, "%.3f", gain);
	return fo_arena_printf(a, "%.3f (%.2f-%.2f)", gain, low, high);
}

/* "about 94 %, five rounds" */
static const char *level_text(struct fo_arena *a, const struct fo_ladder *l, double level)
{
	static const char *const word[] = { "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve" };
	int k = l->rounds - 5;
	return k >= 0 && k < (int)(sizeof word / sizeof *word)
		       ? fo_arena_printf(a, "about %.0f %%, %s rounds", 100 * level, word[k])
		       : fo_arena_printf(a, "about %.0f %%, %d rounds", 100 * level, l->rounds);
}

static void top_facts(const struct fo_ladder *l, struct fo_arena *a, int from, int to, struct fo_draw_fact *fact,
		      size_t *n)
{
	const struct fo_ladder_rung *r = &l->rung[to];
	char mfu[32], step[32];
	struct fo_ladder_interval v = fo_ladder_over(l, to, from, NULL);
	if (to != from && isfinite(v.estimate))
		fact[(*n)++] = (struct fo_draw_fact){
			"gain over the baseline",
			fo_ladder_unsteady(&v) ? "not known" : fo_arena_printf(a, "x %.2f", v.estimate),
			fo_arena_printf(a, "useful tokens/s; between %.2f and %.2f (%s)%s", v.low, v.high,
					level_text(a, l, v.level),
					fo_ladder_unsteady(&v)    ? ": unsteady"
					: v.low > 1 || v.high < 1 ? ""
								  : ": not resolved")
		};
	fact[(*n)++] = (struct fo_draw_fact){ to == from ? "baseline" : "all changes together", r->name,
					      r->check == FO_LADDER_LEFT ? "its losses left the reference's: see below"
									 : r->what };
	fact[(*n)++] = (struct fo_draw_fact){
		"its MFU", fo_arena_strdup(a, fo_draw_number(mfu, r->mfu[FO_LADDER_MFU].median, FO_DRAW_SHARE)),
		fo_arena_printf(a, "rule mfu, %s; by mfu_causal %s; baseline %.1f %%",
				r->peak_dtype ? r->peak_dtype : "?",
				fo_draw_number(step, r->mfu[FO_LADDER_MFU_CAUSAL].median, FO_DRAW_SHARE),
				100 * l->rung[from].mfu[FO_LADDER_MFU].median)
	};
	fact[(*n)++] = (struct fo_draw_fact){
		"its step", fo_arena_strdup(a, fo_draw_number(step, r->step_s.median, FO_DRAW_SECONDS)),
		fo_arena_printf(a, "%.0f useful tokens/s", r->tokens_s.median)
	};
}

static void summary(const struct fo_ladder *l, struct fo_arena *a, struct fo_str *out)
{
	struct fo_draw_fact fact[5];
	int from = fo_ladder_bottom(l), to = fo_ladder_top(l);
	size_t n = 0;
	if (to >= 0)
		top_facts(l, a, from, to, fact, &n);
	fact[n++] = (struct fo_draw_fact){ "rungs", fo_arena_printf(a, "%d", l->rungs),
					   fo_arena_printf(a, "%lld steps each, in %d rounds", (long long)l->steps,
							   l->rounds) };
	fo_draw_facts(out, fact, n);
}

static enum fo_draw_tone tone_of(const struct fo_ladder_rung *r)
{
	if (r->verdict == FO_LADDER_LOSS)
		return FO_DRAW_BAD;
	return stands(r) && r->verdict != FO_LADDER_UNRESOLVED && r->verdict != FO_LADDER_UNSTEADY ? FO_DRAW_PLAIN
												   : FO_DRAW_DOUBTFUL;
}

static void draw_mfu(const struct fo_ladder *l, struct fo_arena *a, struct fo_str *out)
{
	struct fo_draw_bar_row *row = fo_arena_alloc(a, (size_t)(l->rungs + 1) * sizeof *row);
	bool quiet = false;
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *r = &l->rung[i];
		const struct fo_spread *s = &r->mfu[FO_LADDER_MFU];
		char text[80];
		quiet = quiet || isfinite(r->quiet_mfu[FO_LADDER_MFU]);
		row[i] = (struct fo_draw_bar_row){
			.name = r->name,
			.note = stands(r) ? NULL : verdict_text(a, l, r),
			.value = fo_arena_strdup(a, spread_text(text, sizeof text, s)),
			.bar = { { s->median, s->low, s->high }, { r->quiet_mfu[FO_LADDER_MFU], NAN, NAN } },
			.tone = stands(r) ? FO_DRAW_PLAIN : FO_DRAW_DOUBTFUL,
		};
	}
	fo_draw_bars(out, &(struct fo_draw_bars){
				  .title = "MFU of each rung (rule mfu)",
				  .desc = "Bars are medians over all timed steps, unfiltered; whiskers are quartiles.",
				  .unit = FO_DRAW_SHARE,
				  .hi = 1,
				  .hi_name = "100 % of the peak that the rung's MFU divides by (below)",
				  .bar_name = { quiet ? "all timed steps" : NULL,
						quiet ? "composed from quiet spans" : NULL },
				  .row = row,
				  .rows = (size_t)l->rungs });
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *r = &l->rung[i];
		bool told = !r->peak_source || !(r->peak_flop_s > 0);
		for (int k = 0; k < i && !told; k++)
			told = l->rung[k].peak_flop_s == r->peak_flop_s && l->rung[k].peak_source &&
			       !strcmp(l->rung[k].peak_source, r->peak_source);
		char si[32];
		if (!told)
			fo_draw_remark(out, "Peak (%s): %s, %s.", r->peak_dtype ? r->peak_dtype : "?",
				       fo_str_si(si, r->peak_flop_s, "FLOP/s"), r->peak_source);
	}
}

static void draw_gains(const struct fo_ladder *l, struct fo_arena *a, struct fo_str *out)
{
	struct fo_draw_bar_row *row = fo_arena_alloc(a, (size_t)(l->rungs + 1) * sizeof *row);
	size_t n = 0;
	double level = NAN;
	bool predicted = false;
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *r = &l->rung[i];
		if (r->from < 0)
			continue;
		const char *text = gain_text(a, r->gain, r->gain_low, r->gain_high);
		level = r->gain_level > 0 ? r->gain_level : level;
		if (isfinite(r->predicted_gain)) {
			text = fo_arena_printf(a, "%s; predicted %.3f", text, r->predicted_gain);
			predicted = true;
		}
		row[n++] = (struct fo_draw_bar_row){
			.name = r->name,
			.note = verdict_text(a, l, r),
			.value = text,
			.bar = { { r->gain, r->gain_low, r->gain_high }, { r->predicted_gain, NAN, NAN } },
			.tone = tone_of(r),
		};
	}
	if (!n)
		return;
	fo_draw_heading(out, "What each change gains");
	fo_draw_bars(
		out,
		&(struct fo_draw_bars){
			.title = "Useful tokens per second over those of the rung it starts from",
			.desc = "Logarithmic; x 1 is no change. Dashed bars are not resolved or not known, or their "
				"time does not count; bars of the other colour are losses. A whisker that ends in an "
				"arrow goes on: its numbers stand beside it.",
			.unit = FO_DRAW_FACTOR,
			.bar_name = { "measured", predicted ? "predicted" : NULL },
			.row = row,
			.rows = n });
	if (isfinite(level))
		fo_draw_remark(out,
			       "Whiskers are the interval of the gain: %s (Hodges and Lehmann's estimate, over pairs "
			       "of turns of one round, so that a machine that drifts moves both).",
			       level_text(a, l, level));
	if (l->predict_hint)
		fo_draw_remark(out, "No gain is predicted: %s.", l->predict_hint);
}

static bool has_parts(const struct fo_ladder_rung *r)
{
	double sum = 0;
	for (int p = 0; p < FO_PART_COUNT; p++)
		sum += r->part_s[p] > 0 ? r->part_s[p] : 0;
	return sum > 0;
}

static void draw_profiles(const struct fo_ladder *l, struct fo_arena *a, struct fo_str *out)
{
	struct fo_draw_stack *stack = fo_arena_alloc(a, (size_t)(l->rungs + 2) * sizeof *stack);
	int from = fo_ladder_bottom(l), to = fo_ladder_top(l);
	size_t n = 0, all = 0;
	const int pair[] = { from, to };
	char text[32];
	for (int k = 0; k < 2; k++)
		if (pair[k] >= 0 && has_parts(&l->rung[pair[k]]) && !(k && from == to)) {
			const struct fo_ladder_rung *r = &l->rung[pair[k]];
			stack[n++] = (struct fo_draw_stack){
				fo_arena_printf(a, "%s: %s", k ? "after" : "before", r->name),
				fo_arena_strdup(a, fo_draw_number(text, r->step_s.median, FO_DRAW_SECONDS)), r->part_s
			};
		}
	if (!n)
		return;
	fo_draw_heading(out, "Where a step's time goes");
	fo_draw_stacks(
		out,
		&(struct fo_draw_stacks){
			.title = "Step profile before and after",
			.desc = "Mean over the timed steps; parts sum to the step's wall time. Lengths are to scale.",
			.part_name = part_title,
			.parts = FO_PART_COUNT,
			.stack = stack,
			.stacks = n,
			.to_scale = true });
	fo_draw_remark(out,
		       "Lengths are to scale: a shorter bar is a shorter step. Shares are of the step's own time.");
	for (int i = 0; i < l->rungs; i++)
		if (has_parts(&l->rung[i]))
			stack[all++] = (struct fo_draw_stack){
				l->rung[i].name,
				fo_arena_strdup(a, fo_draw_number(text, l->rung[i].step_s.median, FO_DRAW_SECONDS)),
				l->rung[i].part_s
			};
	if (all <= n)
		return;
	fo_draw_details_begin(out, "The profile of every rung", false);
	fo_draw_stacks(out, &(struct fo_draw_stacks){ .title = "Step profile of every rung, to scale",
						      .part_name = part_title,
						      .parts = FO_PART_COUNT,
						      .stack = stack,
						      .stacks = all,
						      .to_scale = true });
	fo_draw_details_end(out);
}

static double *step_numbers(const struct fo_ladder *l, struct fo_arena *a)
{
	double *step = fo_arena_alloc(a, (size_t)(l->steps + 1) * sizeof *step);
	for (int64_t i = 0; i < l->steps; i++)
		step[i] = (double)(i + 1);
	return step;
}

/* Tokens that carried loss, up to each step; a step whose number is not known counts as the mean one. */
static double *tokens_so_far(const struct fo_ladder *l, struct fo_arena *a, const struct fo_ladder_rung *r)
{
	double *at = fo_arena_alloc(a, (size_t)(l->steps + 1) * sizeof *at), sum = 0;
	for (int64_t i = 0; i < l->steps; i++) {
		sum += r->tokens && isfinite(r->tokens[i]) ? r->tokens[i] : r->step_tokens > 0 ? r->step_tokens : 1;
		at[i] = sum;
	}
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

/* Losses that stay lie on each other: the references are what is to be seen, and whatever leaves them. */
static void draw_overlay(const struct fo_ladder *l, struct fo_arena *a, struct fo_str *out)
{
	struct fo_draw_series *s = fo_arena_alloc(a, (size_t)(l->rungs + 1) * sizeof *s);
	const double *step = step_numbers(l, a);
	const char *text = fo_ladder_text_title(l, a);
	bool same = fo_ladder_same_text(l);
	bool told = false;
	int style = 0;
	size_t n = 0;
	for (int i = 0; i < l->rungs; i++)
		if (compared(l, i) && !is_reference(l, i)) {
			s[n++] = (struct fo_draw_series){ .name = told ? NULL
								       : "rungs that are compared with a reference",
							  .x = same ? step : tokens_so_far(l, a, &l->rung[i]),
							  .y = l->rung[i].loss,
							  .n = (size_t)l->steps,
							  .style = FO_DRAW_STYLES - 1,
							  .faint = true };
			told = true;
		}
	for (int i = 0; i < l->rungs; i++)
		if (l->rung[i].loss && (is_reference(l, i) || !compared(l, i))) {
			bool faint = !is_reference(l, i);
			s[n++] = (struct fo_draw_series){
				.name = faint ? fo_arena_printf(a, "%s (not compared: other data, or its own)",
								l->rung[i].name)
					      : fo_arena_printf(a, "%s (reference)", l->rung[i].name),
				.x = same ? step : tokens_so_far(l, a, &l->rung[i]),
				.y = l->rung[i].loss,
				.n = (size_t)l->steps,
				.style = style++ % (FO_DRAW_STYLES - 1),
				.faint = faint
			};
		}
	fo_draw_lines(out, &(struct fo_draw_lines){ .title = text ? fo_arena_printf(a, "Training losses: %s", text)
								  : "Training losses",
						    .desc = "Where numbers hold, lines lie on that of their reference.",
						    .x_name = same ? "step" : "tokens trained on",
						    .y_name = "nats per token",
						    .y_lo = NAN,
						    .y_hi = NAN,
						    .series = s,
						    .n = n });
}

/* What fo_ladder_deviation takes the median of: the relative difference of mean losses, by equal stretches of the
 * steps. */
static struct fo_draw_series apart(const struct fo_ladder *l, struct fo_arena *a, int i)
{
	const double *v = l->rung[i].loss, *ref = l->rung[l->rung[i].reference].loss;
	double *x = fo_arena_alloc(a, 2 * FO_LADDER_WINDOWS * sizeof *x), *y = x + FO_LADDER_WINDOWS, sum = 0,
	       ref_sum = 0;
	int64_t common = 0, seen = 0;
	size_t n = 0;
	for (int64_t k = 0; k < l->steps; k++)
		common += !isnan(v[k]) && !isnan(ref[k]);
	int64_t windows = common < FO_LADDER_WINDOWS ? common : FO_LADDER_WINDOWS;
	for (int64_t k = 0; k < l->steps && n < (size_t)windows; k++) {
		if (isnan(v[k]) || isnan(ref[k]))
			continue;
		sum += v[k], ref_sum += ref[k];
		if (++seen < common * ((int64_t)n + 1) / windows)
			continue;
		x[n] = (double)(k + 1);
		y[n++] = (sum - ref_sum) / fabs(ref_sum);
		sum = ref_sum = 0;
	}
	return (struct fo_draw_series){ .name = l->rung[i].name, .x = x, .y = y, .n = n, .marks = true };
}

/* One picture: as many rungs as there are styles of lines. */
static void draw_apart(const struct fo_ladder *l, struct fo_arena *a, struct fo_str *out, const int *rung, size_t n,
		       bool more)
{
	struct fo_draw_series s[FO_DRAW_STYLES];
	struct fo_draw_level level[FO_DRAW_STYLES];
	size_t levels = 0;
	for (size_t k = 0; k < n; k++) {
		double tolerance = l->rung[rung[k]].tolerance;
		bool told = !isfinite(tolerance);
		s[k] = apart(l, a, rung[k]);
		s[k].style = (int)k;
		for (size_t j = 0; j < levels; j++)
			told = told || level[j].hi == tolerance;
		if (!told)
			level[levels++] = (struct fo_draw_level){
				-tolerance, tolerance, fo_arena_printf(a, "allowed: %.2g %%", 100 * tolerance)
			};
	}
	fo_draw_lines(
		out, &(struct fo_draw_lines){
			     .title = more ? fo_arena_printf(a, "How far losses are from the reference's: %s to %s",
							     s[0].name, s[n - 1].name)
					   : "How far losses are from the reference's",
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

static void draw_losses(const struct fo_ladder *l, struct fo_arena *a, struct fo_str *out)
{
	struct fo_draw_table t;
	static const char *const head[] = {
		"rung", "compared with", "losses", "deviation", "tolerance", "held-out loss"
	};
	int *rung = fo_arena_alloc(a, (size_t)(l->rungs + 1) * sizeof *rung), n = 0;
	for (int i = 0; i < l->rungs; i++)
		if (compared(l, i))
			rung[n++] = i;
	fo_draw_heading(out, "Numbers: do the losses stay?");
	draw_overlay(l, a, out);
	for (int first = 0; first < n; first += FO_DRAW_STYLES)
		draw_apart(l, a, out, rung + first, (size_t)(n - first < FO_DRAW_STYLES ? n - first : FO_DRAW_STYLES),
			   n > FO_DRAW_STYLES);
	fo_draw_remark(out, "A rung is held or not by its deviation: the median of these stretches, or of the last "
			    "three where that is larger. A single unstable stretch magnifies rounding and decides "
			    "nothing.");
	fo_draw_table_begin(&t, out, "deviation: how far the losses are from those of the reference, relative",
			    "lllrrr", head);
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *r = &l->rung[i];
		bool other = r->reference >= 0 && r->reference < l->rungs && r->reference != i;
		const char *cell[] = {
			r->name,
			other ? l->rung[r->reference].name : "-",
			r->check < FO_LADDER_CHECK_COUNT ? fo_ladder_check_name[r->check] : "?",
			isfinite(r->deviation) && other ? fo_arena_printf(a, "%.2f %%", 100 * r->deviation) : "-",
			isfinite(r->tolerance) && other ? fo_arena_printf(a, "%.1f %%", 100 * r->tolerance) : "-",
			isfinite(r->val_loss) ? fo_arena_printf(a, "%.4f", r->val_loss) : "-"
		};
		fo_draw_table_row(&t, cell);
	}
	fo_draw_table_end(&t);
}

static void draw_table(const struct fo_ladder *l, struct fo_arena *a, struct fo_str *out)
{
	static const char *const head[] = { "rung",    "MFU",  "HFU",  "useful tokens/s", "step", "memory",
					    "padding", "text", "gain", "verdict" };
	const char *seen = fo_ladder_text_title(l, a);
	static const char *const rules[] = { "rung", "mfu", "mfu_causal", "mfu_document", "mfu_6n", "hfu" };
	struct fo_draw_table t;
	char text[32];
	fo_draw_heading(out, "All rungs");
	fo_draw_table_begin(&t, out,
			    fo_arena_printf(a,
					    "Medians over all timed steps, unfiltered; memory is the most that a turn "
					    "was seen to take; text: share of the text's tokens that the steps "
					    "hold%s%s.",
					    seen ? ": " : "", seen ? seen : ""),
			    "lrrrrrrrrl", head);
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *r = &l->rung[i];
		const char *cell[] = {
			r->name,
			fo_arena_strdup(a, fo_draw_number(text, r->mfu[FO_LADDER_MFU].median, FO_DRAW_SHARE)),
			fo_arena_strdup(a, fo_draw_number(text, r->mfu[FO_LADDER_HFU].median, FO_DRAW_SHARE)),
			isfinite(r->tokens_s.median) ? fo_arena_printf(a, "%.0f", r->tokens_s.median) : "-",
			fo_arena_strdup(a, fo_draw_number(text, r->step_s.median, FO_DRAW_SECONDS)),
			r->measured_bytes > 0 ? fo_arena_strdup(a, fo_str_bytes(text, (double)r->measured_bytes)) : "-",
			fo_arena_strdup(a, fo_draw_number(text, r->padding, FO_DRAW_SHARE)),
			isfinite(r->text_seen) ? fo_arena_printf(a, "%s %%", fo_ladder_share(a, r->text_seen)) : "-",
			r->from < 0         ? ""
			: isfinite(r->gain) ? fo_arena_printf(a, "%.3f", r->gain)
					    : "-",
			r->verdict < FO_LADDER_VERDICT_COUNT ? fo_ladder_verdict_name[r->verdict] : "?",
		};
		fo_draw_table_row(&t, cell);
	}
	fo_draw_table_end(&t);
	fo_draw_table_begin(&t, out, "MFU by each rule, and HFU", "lrrrrr", rules);
	for (int i = 0; i < l->rungs; i++) {
		const char *cell[1 + FO_LADDER_RULES] = { l->rung[i].name };
		for (int k = 0; k < FO_LADDER_RULES; k++)
			cell[1 + k] = fo_arena_strdup(a, fo_draw_number(text, l->rung[i].mfu[k].median, FO_DRAW_SHARE));
		fo_draw_table_row(&t, cell);
	}
	fo_draw_table_end(&t);
}

static void draw_configurations(const struct fo_ladder *l, struct fo_arena *a, struct fo_str *out)
{
	static const char *const head[] = { "rung", "option", "value", "before" };
	struct fo_draw_table t;
	fo_draw_heading(out, "Every rung's configuration");
	fo_draw_details_begin(out, "What each rung changes, and the command that makes it", false);
	fo_draw_table_begin(&t, out, "Against the rung it starts from", "llll", head);
	for (int i = 0; i < l->rungs; i++)
		for (int k = 0; k < l->rung[i].changes; k++) {
			const struct fo_ladder_change *c = &l->rung[i].change[k];
			fo_draw_table_row(&t, (const char *const[]){ l->rung[i].name, c->key, c->value, c->was });
		}
	fo_draw_table_end(&t);
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *r = &l->rung[i];
		fo_draw_text(out, "%s: %s%s%s", r->name, r->what ? r->what : "", r->what && *r->what ? "; " : "",
			     verdict_text(a, l, r));
		struct fo_str command = { 0 };
		fo_str_puts(&command, "flatout train ");
		/* A ladder need not have a run file. */
		if (l->run_file && *l->run_file) {
			fo_str_shell(&command, l->run_file);
			fo_str_puts(&command, " ");
		}
		/* Not the rung's own folder: there is nothing left to do in it. */
		fo_str_printf(&command, "--run.dir=%s %s", r->name, r->options ? r->options : "");
		fo_draw_code(out, command.data);
		fo_str_fini(&command);
	}
	fo_draw_details_end(out);
}

/* The version as the ladder keeps it: "flatout 0.1.0". */
static const char *version(const struct fo_ladder *l)
{
	static const char name[] = "flatout ";
	if (!l->version)
		return "?";
	return strncmp(l->version, name, strlen(name)) ? l->version : l->version + strlen(name);
}

static const char *machine(const struct fo_ladder *l)
{
	return l->device && *l->device ? l->device : l->cpu ? l->cpu : "?";
}

static const char *weights(const struct fo_ladder *l, char buf[32])
{
	char *end = fo_str_si(buf, l->params, "");
	size_t n = strlen(end);
	if (n && end[n - 1] == ' ')
		end[n - 1] = 0;
	return end;
}

static void draw_method(const struct fo_ladder *l, struct fo_str *out)
{
	char params[32], flop[32];
	bool numerics = false;
	fo_draw_heading(out, "How it was measured");
	fo_draw_text(out,
		     "%s, %s weights, %s per token (rule mfu), rows of %lld tokens, %lld tokens per step. %s, %d "
		     "thread%s, kernels up to %s. Begun %s, flatout %s.",
		     l->model ? l->model : "?", weights(l, params), fo_str_si(flop, l->flop_per_token, "FLOP"),
		     (long long)l->seq, (long long)l->tokens_per_step, machine(l), l->threads,
		     l->threads == 1 ? "" : "s", l->isa ? l->isa : "?", l->started ? l->started : "?", version(l));
	fo_draw_text(out,
		     "Each rung trains %lld steps in all, in %d turns: every round gives each rung one turn, in an "
		     "order drawn anew (seed %llu), so that neighbours, clocks and temperature hit all alike. The "
		     "first step of a turn is not timed. Nothing is filtered; where quiet figures stand beside, they "
		     "are composed from operations between two bursts of known work that no neighbour disturbed.",
		     (long long)l->steps, l->rounds, (unsigned long long)l->seed);
	fo_draw_text(out,
		     "A gain is resolved when its whole interval lies on one side of 1. \"Not resolved\" means that "
		     "these rounds cannot tell the change from none; a loss is reported as one. \"Not known "
		     "(unsteady)\" means that the rounds differ by more than %g times, and by more than the gain "
		     "itself.",
		     FO_LADDER_STEADY);
	for (int i = 0; i < l->rungs; i++)
		numerics = numerics || l->rung[i].numerics_only;
	if (numerics)
		fo_draw_text(out, "Numerics only: arithmetic that this machine has no unit for is emulated. Its losses "
				  "show what that arithmetic does to training; its time says nothing about hardware "
				  "that has it.");
	fo_draw_text(out, "MFU is model FLOP per second over the peak; recomputation and padding are no model work. "
			  "HFU counts what was executed. The rules differ in what they count of attention and always "
			  "stand together.");
}

/* A rung whose rows cut documents off learns their beginnings by heart: its training loss falls faster, and is no
 * better. */
static void warn_of_cuts(const struct fo_ladder *l, struct fo_str *out)
{
	struct fo_str names = { 0 };
	for (int i = 0; i < l->rungs; i++)
		if (!l->rung[i].reason && l->rung[i].text_reached < 1)
			fo_str_printf(&names, "%s%s", names.len ? ", " : "", l->rung[i].name);
	if (names.len)
		fo_draw_warning(out,
				"Rows of %s cut documents off (data.packing=padded): that part of the text is never "
				"trained on, and what is left comes more often. Its training losses are of other text "
				"than the others': compare held-out losses. data.packing=split pads as well and cuts "
				"nothing off.",
				names.data);
	fo_str_fini(&names);
}

void fo_ladder_html(const struct fo_ladder *l, struct fo_str *out)
{
	struct fo_arena a = { 0 };
	char params[32];
	const char *text = fo_ladder_text_title(l, &a);
	fo_draw_page_begin(
		out,
		l->model && *l->model && strcmp(l->model, "custom") ? fo_arena_printf(&a, "Ladder of %s", l->model)
		: l->params > 0 ? fo_arena_printf(&a, "Ladder of a model of %s weights", weights(l, params))
				: "Ladder of a run",
		fo_arena_printf(
			&a, "One change at a time, measured against the rung it starts from. %s, %d thread%s%s%s.",
			machine(l), l->threads, l->threads == 1 ? "" : "s", text ? "; " : "", text ? text : ""));
	warn_of_cuts(l, out);
	const char *not_quiet = fo_ladder_not_quiet(l, &a);
	if (not_quiet)
		fo_draw_warning(out, "In this ladder %s.", not_quiet);
	summary(l, &a, out);
	fo_draw_heading(out, "MFU");
	draw_mfu(l, &a, out);
	draw_gains(l, &a, out);
	draw_profiles(l, &a, out);
	draw_losses(l, &a, out);
	draw_table(l, &a, out);
	draw_configurations(l, &a, out);
	draw_method(l, out);
	fo_draw_page_end(out, fo_arena_printf(&a, "flatout ladder; begun %s; flatout %s", l->started ? l->started : "?",
					      version(l)));
	fo_arena_fini(&a);
}
