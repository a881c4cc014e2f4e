/* A run as one page. */
#include "report/run_int.h"

#include "draw/draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RULES = FO_STEP_HFU - FO_STEP_MFU + 1, PHASES_SHOWN = 30, GUARDS_SHOWN = 50, BANDS_MAX = 4096 };
enum { SLOW, SAVE, GUARD }; /* kinds of bands */

static const char *const part_title[FO_PART_COUNT] = {
	"matrix products", "attention forward",     "attention backward", "norms and elementwise", "loss",
	"optimizer",       "communication exposed", "waiting for data",   "unattributed",
};

struct page {
	const struct fo_report *o;
	const struct fo_record *r;
	struct fo_arena *a;
	struct fo_str *out;
	double *x; /* steps, a number per row */
	struct fo_draw_band *band;
	size_t bands;
};

/* Which CUDA device computed last; "": the processor. */
static const char *device_of(const struct fo_record *r) { return r->starts ? r->start[r->starts - 1].device : ""; }

static const char *number(struct page *p, double v, enum fo_draw_unit unit)
{
	char buf[32];
	return fo_arena_strdup(p->a, fo_draw_number(buf, v, unit));
}

static const char *spread_text(struct page *p, const struct fo_spread *s, enum fo_draw_unit unit)
{
	return fo_arena_printf(p->a, "quartiles %s to %s", number(p, s->low, unit), number(p, s->high, unit));
}

static void summary(struct page *p)
{
	const struct fo_report *o = p->o;
	struct fo_draw_fact fact[7];
	size_t n = 0;
	fact[n++] = (struct fo_draw_fact){ "steps", fo_arena_printf(p->a, "%lld", (long long)p->r->step.n),
					   o->tokens < 1e6 ? fo_arena_printf(p->a, "%.0f tokens with loss", o->tokens)
							   : fo_arena_printf(p->a, "%.4g M tokens with loss",
									     o->tokens / 1e6) };
	if (isfinite(o->last_loss))
		fact[n++] = (struct fo_draw_fact){
			"training loss", fo_arena_printf(p->a, "%.4f", o->last_loss),
			fo_arena_printf(p->a, "at the end, running median of %lld steps; %.4f at the first",
					(long long)o->window, o->first_loss)
		};
	if (isfinite(o->last_eval))
		fact[n++] = (struct fo_draw_fact){ "held-out loss", fo_arena_printf(p->a, "%.4f", o->last_eval),
						   fo_arena_printf(p->a, "step %lld; best %.4f at step %lld",
								   (long long)o->last_eval_step, o->best_eval,
								   (long long)o->best_eval_step) };
	if (isfinite(o->mfu[0].median))
		fact[n++] = (struct fo_draw_fact){ "MFU", number(p, o->mfu[0].median, FO_DRAW_SHARE),
						   fo_arena_printf(p->a, "rule mfu, median; %s",
								   spread_text(p, &o->mfu[0], FO_DRAW_SHARE)) };
	if (isfinite(o->quiet_mfu))
		fact[n++] = (struct fo_draw_fact){ "quiet MFU", number(p, o->quiet_mfu, FO_DRAW_SHARE),
						   fo_arena_printf(
							   p->a,
							   "rule mfu, from spans that no neighbour disturbed, of %lld "
							   "metered steps",
							   (long long)o->metered_steps) };
	if (isfinite(o->step_s.median))
		fact[n++] = (struct fo_draw_fact){ "step", number(p, o->step_s.median, FO_DRAW_SECONDS),
						   spread_text(p, &o->step_s, FO_DRAW_SECONDS) };
	if (isfinite(o->tokens_s.median))
		fact[n++] = (struct fo_draw_fact){ "tokens/s", fo_arena_printf(p->a, "%.0f", o->tokens_s.median),
						   "with loss; median" };
	fo_draw_facts(p->out, fact, n);
}

static void missing(struct page *p)
{
	char text[FO_REPORT_MISSING];
	const char *line;
	for (int i = 0; (line = fo_report_missing(p->o, i, text)); i++)
		fo_draw_warning(p->out, "%s", line);
}

/* ---- over steps ---- */

static int by_from(const void *a, const void *b)
{
	const struct fo_draw_band *x = a, *y = b;
	return (x->from > y->from) - (x->from < y->from);
}

static void add_band(struct page *p, double from, double to, int kind, const char *title)
{
	if (p->bands < BANDS_MAX)
		p->band[p->bands++] = (struct fo_draw_band){ from, to, kind, title };
}

static void collect_bands(struct page *p)
{
	p->band = fo_arena_alloc(p->a, BANDS_MAX * sizeof *p->band);
	for (int i = 0; i < p->o->phases; i++) {
		const struct fo_report_phase *f = &p->o->phase[i];
		add_band(p, (double)f->first, (double)f->last, SLOW,
			 fo_arena_printf(p->a, "steps %lld to %lld, %.2f times the median: %s", (long long)f->first,
					 (long long)f->last, f->times, *f->cause ? f->cause : "the log says nothing"));
	}
	for (int64_t i = 0; i < p->r->guards; i++)
		add_band(p, (double)p->r->guard[i].step, (double)p->r->guard[i].step, GUARD,
			 fo_arena_printf(p->a, "step %lld: %s", (long long)p->r->guard[i].step, p->r->guard[i].action));
	for (int64_t i = 0; i < p->r->checkpoints; i++)
		add_band(p, (double)p->r->checkpoint[i].step, (double)p->r->checkpoint[i].step, SAVE, NULL);
	qsort(p->band, p->bands, sizeof *p->band, by_from); /* of each kind ascending */
}

/* Losses that span a decade and more (a spike, a fine-tuned model) are seen on a logarithmic axis only. */
static bool wants_log(const struct fo_report *o)
{
	const double *v = o->r->step.value[FO_STEP_LOSS];
	double lo = NAN, hi = NAN;
	for (int64_t i = 0; v && i < o->r->step.n; i++) {
		if (v[i] <= 0)
			return false;
		lo = isfinite(v[i]) && !(lo <= v[i]) ? v[i] : lo;
		hi = isfinite(v[i]) && !(hi >= v[i]) ? v[i] : hi;
	}
	return hi / lo > 20;
}

static const char *loss_in_words(struct page *p)
{
	const struct fo_report *o = p->o;
	const char *train = isfinite(o->last_loss)
				    ? fo_arena_printf(p->a, "Training: from %.4f to %.4f nats per token. ",
						      o->first_loss, o->last_loss)
				    : "";
	return isfinite(o->last_eval) ? fo_arena_printf(p->a, "%sHeld out: %.4f.", train, o->last_eval) : train;
}

static void draw_loss(struct page *p)
{
	const struct fo_record_steps *s = &p->r->step;
	struct fo_draw_series series[3];
	size_t n = 0;
	if (s->value[FO_STEP_LOSS]) {
		series[n++] = (struct fo_draw_series){ .name = "training, each step",
						       .x = p->x,
						       .y = s->value[FO_STEP_LOSS],
						       .n = (size_t)s->n,
						       .faint = true };
		series[n++] = (struct fo_draw_series){ .name = fo_arena_printf(p->a,
									       "training, running median of %lld steps",
									       (long long)p->o->window),
						       .x = p->x,
						       .y = p->o->loss_smooth,
						       .n = (size_t)s->n };
	}
	if (p->r->evals) {
		double *x = fo_arena_alloc(p->a, (size_t)p->r->evals * 2 * sizeof *x), *y = x + p->r->evals;
		for (int64_t i = 0; i < p->r->evals; i++) {
			x[i] = (double)p->r->eval[i].step;
			y[i] = p->r->eval[i].loss;
		}
		series[n++] = (struct fo_draw_series){
			.name = "held out", .x = x, .y = y, .n = (size_t)p->r->evals, .style = 1, .marks = true
		};
	}
	fo_draw_heading(p->out, "Loss");
	fo_draw_lines(p->out, &(struct fo_draw_lines){ .title = wants_log(p->o) ? "Loss over steps (logarithmic)"
										: "Loss over steps",
						       .desc = loss_in_words(p),
						       .x_name = "step",
						       .y_name = "nats per token",
						       .y_log = wants_log(p->o),
						       .y_lo = NAN,
						       .y_hi = NAN,
						       .series = series,
						       .n = n });
}

static const char *running_median(struct page *p)
{
	return fo_arena_printf(p->a, "running median of %lld steps", (long long)p->o->window);
}

/* Behind a caption. */
static const char *left_out(struct page *p)
{
	int64_t n = p->o->metered;
	return n ? fo_arena_printf(p->a, " (%lld metered step%s left out)", (long long)n, n == 1 ? "" : "s") : "";
}

static void draw_mfu(struct page *p)
{
	/* The other rules are this one times a constant, nearly: they stand in the table. */
	struct fo_draw_series series[2];
	struct fo_draw_level quiet = { p->o->quiet_mfu, p->o->quiet_mfu, "quiet" };
	size_t n = 0, rows = (size_t)p->r->step.n;
	char si[32];
	if (p->o->mfu_each)
		series[n++] = (struct fo_draw_series){
			.name = "each step", .x = p->x, .y = p->o->mfu_each, .n = rows, .faint = true, .join = true
		};
	if (p->o->mfu_smooth[0])
		series[n++] = (struct fo_draw_series){
			.name = running_median(p), .x = p->x, .y = p->o->mfu_smooth[0], .n = rows, .join = true
		};
	fo_draw_heading(p->out, "MFU");
	fo_draw_lines(p->out,
		      &(struct fo_draw_lines){
			      .title = fo_arena_printf(p->a, "MFU over steps, rule mfu%s", left_out(p)),
			      .desc = fo_arena_printf(p->a, "Median %s by rule mfu. %d slow phases are marked.",
						      number(p, p->o->mfu[0].median, FO_DRAW_SHARE), p->o->phases),
			      .x_name = "step",
			      .y_name = "share of the peak; the axis ends at the peak",
			      .y_unit = FO_DRAW_SHARE,
			      .y_lo = 0,
			      .y_hi = 1,
			      .series = series,
			      .n = n,
			      .band = p->band,
			      .bands = p->bands,
			      .band_name = { p->o->phases ? "slow phase" : NULL,
					     p->r->checkpoints ? "checkpoint" : NULL, p->r->guards ? "guard" : NULL },
			      .level = &quiet,
			      .levels = isfinite(quiet.lo) });
	if (p->r->peak_flop_s > 0)
		fo_draw_remark(p->out, "Peak: %s, %s.", fo_str_si(si, p->r->peak_flop_s, "FLOP/s"), p->r->peak_source);
	if (isfinite(p->o->quiet_mfu))
		fo_draw_text(p->out,
			     "Quiet: a step of %s, MFU %s, composed from %lld metered steps; %s of that time comes "
			     "from operations with spans that no neighbour disturbed.",
			     number(p, p->o->quiet_s, FO_DRAW_SECONDS), number(p, p->o->quiet_mfu, FO_DRAW_SHARE),
			     (long long)p->o->metered_steps, number(p, p->o->quiet_share, FO_DRAW_SHARE));
	static const char *const head[] = { "rule", "median", "lower quartile", "upper quartile" };
	struct fo_draw_table t;
	fo_draw_table_begin(&t, p->out, "Over all steps, unfiltered", "lrrr", head);
	for (int k = 0; k < RULES; k++) {
		const struct fo_spread *s = &p->o->mfu[k];
		fo_draw_table_row(&t, (const char *const[]){
					      fo_step_field_name[FO_STEP_MFU + k], number(p, s->median, FO_DRAW_SHARE),
					      number(p, s->low, FO_DRAW_SHARE), number(p, s->high, FO_DRAW_SHARE) });
	}
	fo_draw_table_end(&t);
}

static void draw_phases(struct page *p)
{
	static const char *const head[] = { "steps", "times the median", "lost", "what the log says of then" };
	const struct fo_report *o = p->o;
	struct fo_draw_table t;
	size_t rows = (size_t)p->r->step.n;
	struct fo_draw_series series[] = {
		{ .name = "each step", .x = p->x, .y = o->seconds, .n = rows, .faint = true, .join = true },
		{ .name = running_median(p), .x = p->x, .y = o->seconds_smooth, .n = rows, .join = true },
	};
	fo_draw_heading(p->out, "Step time and slow phases");
	fo_draw_lines(p->out,
		      &(struct fo_draw_lines){
			      .title = fo_arena_printf(p->a, "Time of a step%s", left_out(p)),
			      .desc = fo_arena_printf(p->a, "Median %s.", number(p, o->step_s.median, FO_DRAW_SECONDS)),
			      .x_name = "step",
			      .y_name = "seconds",
			      .y_unit = FO_DRAW_NUMBER,
			      .y_lo = 0,
			      .y_hi = NAN,
			      .series = series,
			      .n = o->seconds ? 2 : 0,
			      .band = p->band,
			      .bands = p->bands,
			      .band_name = { o->phases ? "slow phase" : NULL, p->r->checkpoints ? "checkpoint" : NULL,
					     p->r->guards ? "guard" : NULL } });
	char buf[96];
	const char *busy = fo_state_others_text(o->machine.load, p->r->state.cpus, buf);
	if (busy)
		fo_draw_warning(p->out, "The machine was busy (%s): every step may be slower than alone.", busy);
	if (!o->phases) {
		fo_draw_text(p->out, busy ? "No phase slower than the rest." : "No slow phase.");
	} else {
		fo_draw_text(p->out, "%d slow phase%s: %s of the time in steps, of which %s beyond the median.",
			     o->phases, o->phases == 1 ? "" : "s", number(p, o->slow_s / o->step_time_s, FO_DRAW_SHARE),
			     number(p, o->lost_s, FO_DRAW_SECONDS));
		fo_draw_table_begin(&t, p->out, NULL, "lrrl", head);
		for (int i = 0; i < o->phases && i < PHASES_SHOWN; i++) {
			const struct fo_report_phase *f = &o->phase[i];
			const char *cell[] = {
				fo_arena_printf(p->a, "%lld to %lld", (long long)f->first, (long long)f->last),
				fo_arena_printf(p->a, "%.2f", f->times), number(p, f->lost_s, FO_DRAW_SECONDS),
				fo_arena_printf(p->a, "%s%s%s%s", *f->cause ? f->cause : "nothing that differs",
						*f->beside ? " (between its steps, in no step's time: " : "", f->beside,
						*f->beside ? ")" : "")
			};
			fo_draw_table_row(&t, cell);
		}
		fo_draw_table_end(&t);
		if (o->phases > PHASES_SHOWN)
			fo_draw_remark(p->out, "And %d more.", o->phases - PHASES_SHOWN);
	}
	fo_draw_remark(p->out,
		       "A slow phase is a stretch of steps whose time, as a running median of %d, is more than %g "
		       "times the median of the whole run.",
		       (int)FO_SLOW_WINDOW, FO_SLOW_TIMES);
}

/* ---- where time and memory go ---- */

static void draw_profile(struct page *p)
{
	const struct fo_report *o = p->o;
	struct fo_draw_stack stack[2];
	size_t n = 0;
	fo_draw_heading(p->out, "Where a step's time goes");
	if (o->has_profile)
		stack[n++] = (struct fo_draw_stack){
			fo_arena_printf(p->a, "%lld steps", (long long)o->profile.steps),
			fo_arena_printf(p->a, "%s per step",
					number(p,
					       o->profile.total_ns * 1e-9 /
						       (double)(o->profile.steps > 0 ? o->profile.steps : 1),
					       FO_DRAW_SECONDS)),
			o->profile.part_ns
		};
	fo_draw_stacks(p->out, &(struct fo_draw_stacks){ .title = "Step profile",
							 .desc = "Parts sum to the wall time of the steps.",
							 .part_name = part_title,
							 .parts = FO_PART_COUNT,
							 .stack = stack,
							 .stacks = n });
	if (!isfinite(o->wall_s))
		return;
	static const char *const head[] = { "between the steps", "times", "time", "share of the wall time" };
	struct fo_draw_table t;
	double in = o->step_time_s;
	fo_draw_text(p->out, "%s of the %s from the first step to the last were spent in steps that counted.",
		     number(p, in / o->wall_s, FO_DRAW_SHARE), number(p, o->wall_s, FO_DRAW_SECONDS));
	if (o->clock_set)
		fo_draw_text(p->out, "Note: " FO_REPORT_CLOCK_SET ".", (long long)o->clock_set,
			     o->clock_set == 1 ? "" : "s");
	fo_draw_table_begin(&t, p->out, NULL, "lrrr", head);
	for (int k = 0; k < FO_GAP_COUNT; k++)
		if (o->gaps[k]) {
			const char *cell[] = { fo_report_gap_name[k],
					       fo_arena_printf(p->a, "%lld", (long long)o->gaps[k]),
					       number(p, o->gap_s[k], FO_DRAW_SECONDS),
					       number(p, o->gap_s[k] / o->wall_s, FO_DRAW_SHARE) };
			fo_draw_table_row(&t, cell);
		}
	if (p->r->undone_steps)
		fo_draw_table_row(&t,
				  (const char *const[]){ "steps that were repeated",
							 fo_arena_printf(p->a, "%lld", (long long)p->r->undone_steps),
							 number(p, p->r->undone_seconds, FO_DRAW_SECONDS),
							 number(p, p->r->undone_seconds / o->wall_s, FO_DRAW_SHARE) });
	fo_draw_table_end(&t);
}

static void draw_memory(struct page *p)
{
	const struct fo_report_memory *m = &p->o->memory;
	const struct fo_record_start *s = fo_record_last_start(p->r);
	const struct fo_record_end *e = fo_record_last_end(p->r);
	double sum = 0;
	fo_draw_heading(p->out, "Memory");
	if (m->points) {
		for (int k = 0; k < FO_LIFE_COUNT; k++)
			sum += m->peak_bytes[k];
		fo_draw_areas(p->out, &(struct fo_draw_areas){
					      .title = "Planned memory over one step, by how long it lives",
					      .desc = fo_arena_printf(p->a, "The peak is %s at operation %lld of %lld.",
								      number(p, sum, FO_DRAW_BYTES), (long long)m->peak,
								      (long long)m->points),
					      .x_name = "operation, in the order of issue",
					      .y_name = "bytes",
					      .y_unit = FO_DRAW_BYTES,
					      .name = fo_report_life_name,
					      .layer = (const double *const *)m->live,
					      .layers = FO_LIFE_COUNT,
					      .n = (size_t)m->points });
		fo_draw_text(p->out,
			     "The peak is %s, at operation %lld of %lld. The arena for what does not persist takes %s.",
			     number(p, sum, FO_DRAW_BYTES), (long long)m->peak, (long long)m->points,
			     number(p, m->arena_bytes, FO_DRAW_BYTES));
		static const char *const head[] = { "at the peak", "bytes", "share" };
		static const char *const largest[] = { "largest buffers at the peak", "what it is", "copies", "bytes" };
		struct fo_draw_table t;
		fo_draw_table_begin(&t, p->out, NULL, "lrr", head);
		for (int k = 0; k < FO_LIFE_COUNT; k++)
			fo_draw_table_row(&t,
					  (const char *const[]){ fo_report_life_name[k],
								 number(p, m->peak_bytes[k], FO_DRAW_BYTES),
								 number(p, m->peak_bytes[k] / sum, FO_DRAW_SHARE) });
		fo_draw_table_end(&t);
		fo_draw_table_begin(&t, p->out, NULL, "llrr", largest);
		for (int i = 0; i < m->buffers; i++)
			fo_draw_table_row(&t, (const char *const[]){
						      m->buffer[i].name, fo_report_life_name[m->buffer[i].life],
						      fo_arena_printf(p->a, "%lld", (long long)m->buffer[i].copies),
						      number(p, (double)m->buffer[i].bytes, FO_DRAW_BYTES) });
		fo_draw_table_end(&t);
	} else {
		fo_draw_text(p->out, "The step program is not there or too long to show what lives when.");
	}
	const char *whose = *device_of(p->r) ? "device" : "process";
	if (s && isfinite(s->arena_bytes))
		fo_draw_text(p->out,
			     "Planned for the %s: %s for activations and gradients, %s for weights and optimizer, %s "
			     "of workspace, %s of other things, %s for the copy that checkpoints are written from.",
			     whose, number(p, s->arena_bytes, FO_DRAW_BYTES),
			     number(p, s->persistent_bytes, FO_DRAW_BYTES),
			     number(p, s->workspace_bytes, FO_DRAW_BYTES), number(p, s->other_bytes, FO_DRAW_BYTES),
			     number(p, s->checkpoint_bytes, FO_DRAW_BYTES));
	if (e && isfinite(e->measured_bytes))
		fo_draw_text(p->out, "Measured at the end: %s beyond what the %s had in use before; planned %s.",
			     number(p, e->measured_bytes, FO_DRAW_BYTES), whose,
			     number(p, e->planned_bytes, FO_DRAW_BYTES));
}

/* Whether a picture says more than its figure in the table: clocks that differ by less are one flat line. */
static bool varies(const double *v, size_t n)
{
	double lo = NAN, hi = NAN;
	for (size_t i = 0; i < n; i++)
		if (isfinite(v[i])) {
			lo = lo <= v[i] ? lo : v[i];
			hi = hi >= v[i] ? hi : v[i];
		}
	return hi > 1.02 * lo;
}

/* Others that compute: a load above the threads of the run, where these are all the processors that it may use. */
static void draw_load(struct page *p, const double *step, size_t n)
{
	double *load = fo_arena_alloc(p->a, (n + 1) * sizeof *load), threads = (double)p->r->threads;
	bool any = false;
	for (size_t i = 0; i < n; i++) {
		load[i] = p->r->machine[i].use.load;
		any = any || isfinite(load[i]);
	}
	if (!any)
		return;
	struct fo_draw_level level = { threads, threads, "threads of this run" };
	fo_draw_lines(
		p->out,
		&(struct fo_draw_lines){
			.title = "Load of the whole machine",
			.desc = "Tasks that run or want to, mean over a minute. What is above the run's threads is "
				"others' work.",
			.x_name = "step",
			.y_name = "tasks",
			.y_lo = 0,
			.y_hi = NAN,
			.series = &(struct fo_draw_series){ .name = "load", .x = step, .y = load, .n = n },
			.n = 1,
			.level = &level,
			.levels = threads > 0 });
}

static void machine_table(struct page *p)
{
	const struct fo_record *r = p->r;
	const struct fo_state_use *u = &p->o->machine;
	static const char *const head[] = { "over the run", "" };
	struct fo_draw_table t;
	const struct fo_record_end *e = fo_record_last_end(r);
	fo_draw_table_begin(&t, p->out, NULL, "lr", head);
	fo_draw_table_row(&t, (const char *const[]){ "clock", isfinite(u->clock_hz) ? fo_arena_printf(p->a, "%.2f GHz",
												      u->clock_hz / 1e9)
										    : "not readable" });
	fo_draw_table_row(&t, (const char *const[]){ "steal", isfinite(u->steal) ? number(p, u->steal, FO_DRAW_SHARE)
										 : "not readable" });
	fo_draw_table_row(&t,
			  (const char *const[]){ "thermal events", isfinite(u->throttles)
									   ? fo_arena_printf(p->a, "%.0f", u->throttles)
									   : "not readable" });
	fo_draw_table_row(&t, (const char *const[]){ "held back by the cgroup",
						     isfinite(u->limited_s) ? number(p, u->limited_s, FO_DRAW_SECONDS)
									    : "not readable" });
	fo_draw_table_row(&t, (const char *const[]){ "highest load", isfinite(u->load)
									     ? fo_arena_printf(p->a, "%.1f", u->load)
									     : "not readable" });
	fo_draw_table_row(&t, (const char *const[]){ "energy", isfinite(u->joules)
								       ? fo_arena_printf(p->a, "%.4g J", u->joules)
								       : "not readable" });
	if (e && isfinite(e->huge_page_share))
		fo_draw_table_row(
			&t, (const char *const[]){ "in huge pages", number(p, e->huge_page_share, FO_DRAW_SHARE) });
	fo_draw_table_end(&t);
}

/* What computed, where it was not the processor: by NVML, over the last process; what it could not read has no row but
 * the clock's. */
static void device_table(struct page *p, const char *name)
{
	const struct fo_record_end *e = fo_record_last_end(p->r);
	const struct fo_record_device none = fo_record_no_device(), *d = e ? &e->device : &none;
	const struct fo_mfu_split *s = &d->split;
	struct fo_str ofu = { 0 };
	struct fo_draw_table t;
	fo_draw_table_begin(&t, p->out, NULL, "lr", (const char *const[]){ "device", name });
	fo_draw_table_row(
		&t, (const char *const[]){ "mean clock", isfinite(d->use.sm_hz)
								 ? fo_arena_printf(p->a, "%.2f GHz", d->use.sm_hz / 1e9)
								 : "not readable" });
	if (isfinite(d->use.watts))
		fo_draw_table_row(&t, (const char *const[]){ "power", fo_arena_printf(p->a, "%.0f W", d->use.watts) });
	if (isfinite(d->joules_per_token))
		fo_draw_table_row(&t, (const char *const[]){
					      "energy", fo_arena_printf(p->a, "%.3g J/token", d->joules_per_token) });
	if (isfinite(d->use.power_share))
		fo_draw_table_row(&t, (const char *const[]){ "clock held back by power",
							     number(p, d->use.power_share, FO_DRAW_SHARE) });
	if (isfinite(d->use.thermal_share))
		fo_draw_table_row(&t, (const char *const[]){ "clock held back by heat",
							     number(p, d->use.thermal_share, FO_DRAW_SHARE) });
	const struct {
		const char *what;
		double share;
	} active[] = { { "tensor pipes active", s->pipes },
		       { "multiprocessors active", d->use.active.share[FO_NVML_SM] },
		       { "memory active", d->use.active.share[FO_NVML_DRAM] } };
	for (size_t i = 0; i < sizeof active / sizeof *active; i++)
		if (isfinite(active[i].share))
			fo_draw_table_row(
				&t, (const char *const[]){ active[i].what, number(p, active[i].share, FO_DRAW_SHARE) });
	fo_draw_table_end(&t);
	if (isfinite(s->clock * s->work * s->counted))
		fo_draw_text(p->out,
			     "MFU = clock %.1f %% (of %.2f GHz) x work per clock %.1f %% x %.3f counted per FLOP run.",
			     100 * s->clock, s->peak_hz / 1e9, 100 * s->work, s->counted);
	if (d->told) {
		fo_ofu_text(s, &ofu);
		fo_draw_text(p->out, "OFU %s.", ofu.data);
		fo_str_fini(&ofu);
	}
}

static void draw_machine(struct page *p)
{
	const struct fo_record *r = p->r;
	size_t n = (size_t)r->machines;
	double *v = fo_arena_alloc(p->a, (n + 1) * 4 * sizeof *v), *step = v, *steal = v + n, *limited = v + 2 * n,
	       *clock = v + 3 * n;
	for (size_t i = 0; i < n; i++) {
		const struct fo_state_use *m = &r->machine[i].use;
		step[i] = (double)r->machine[i].step;
		steal[i] = m->steal;
		limited[i] = m->limited_s / m->seconds;
		clock[i] = m->clock_hz / 1e9;
	}
	fo_draw_heading(p->out, "Machine");
	const char *threads = r->threads > 0 ? fo_arena_printf(p->a, ", %lld thread%s", (long long)r->threads,
							       r->threads == 1 ? "" : "s")
					     : "";
	const char *device = device_of(r);
	if (*device)
		device_table(p, device);
	if (*r->cpu || *threads || *r->isa)
		fo_draw_text(p->out, "%s%s%s%s%s%s%s.", *device ? "Its host: " : "",
			     *r->cpu ? r->cpu : "Processor not known", threads, *r->isa ? ", kernels up to " : "",
			     r->isa, *r->state.governor ? ", governor " : "", r->state.governor);
	if (!n) {
		fo_draw_text(p->out, "The log has no samples of its state.");
		return;
	}
	fo_draw_lines(
		p->out,
		&(struct fo_draw_lines){
			.title = "Time that others took",
			.desc = "Share that the hypervisor gave to others, and that the cgroup held the process back.",
			.x_name = "step",
			.y_name = "share of the time",
			.y_unit = FO_DRAW_SHARE,
			.y_lo = 0,
			.y_hi = 0.05, /* so that nothing is not drawn as much */
			.series = (struct fo_draw_series[]){ { .name = "steal", .x = step, .y = steal, .n = n },
							     { .name = "held back by the cgroup",
							       .x = step,
							       .y = limited,
							       .n = n,
							       .style = 1 } },
			.n = 2,
			.band = p->band,
			.bands = p->bands,
			.band_name = { p->o->phases ? "slow phase" : NULL, p->r->checkpoints ? "checkpoint" : NULL,
				       p->r->guards ? "guard" : NULL } });
	draw_load(p, step, n);
	if (varies(clock, n))
		fo_draw_lines(p->out, &(struct fo_draw_lines){ .title = "Clock",
							       .desc = "Mean frequency of the processors.",
							       .x_name = "step",
							       .y_name = "GHz",
							       .y_lo = 0,
							       .y_hi = NAN,
							       .series = &(struct fo_draw_series){ .name = "mean clock",
												   .x = step,
												   .y = clock,
												   .n = n },
							       .n = 1 });
	machine_table(p);
}

static void draw_guards(struct page *p)
{
	static const char *const head[] = { "step", "what", "done", "loss", "z", "where" };
	const struct fo_record *r = p->r;
	struct fo_draw_table t;
	if (!r->guards)
		return;
	fo_draw_heading(p->out, "What the guards saw");
	fo_draw_table_begin(&t, p->out, NULL, "rllrrl", head);
	for (int64_t i = 0; i < r->guards && i < GUARDS_SHOWN; i++) {
		const struct fo_record_guard *g = &r->guard[i];
		const char *where = g->back_to >= 0 ? fo_arena_printf(p->a, "back to step %lld", (long long)g->back_to)
						    : g->where;
		fo_draw_table_row(&t, (const char *const[]){ fo_arena_printf(p->a, "%lld", (long long)g->step),
							     g->kind == FO_GUARD_SPIKE ? "loss spike" : "not finite",
							     g->action, number(p, g->loss, FO_DRAW_NUMBER),
							     number(p, g->z, FO_DRAW_NUMBER), where });
	}
	fo_draw_table_end(&t);
	if (r->guards > GUARDS_SHOWN)
		fo_draw_remark(p->out, "And %lld more.", (long long)(r->guards - GUARDS_SHOWN));
}

static void draw_options(struct page *p)
{
	static const char *const head[] = { "option", "value", "from" };
	const struct fo_record *r = p->r;
	struct fo_draw_table t;
	if (!r->options)
		return;
	fo_draw_heading(p->out, "How it was configured");
	fo_draw_text(p->out, "flatout %s%s%s%s; begun %s. Passes: %s.", r->version, *r->commit ? " (" : "", r->commit,
		     *r->commit ? ")" : "", *r->started ? r->started : "?", *r->passes ? r->passes : "?");
	fo_draw_code(p->out, p->o->command);
	fo_draw_details_begin(p->out, "Options that are not defaults, and where they come from", false);
	fo_draw_table_begin(&t, p->out, NULL, "lll", head);
	for (int64_t i = 0; i < r->options; i++)
		if (strcmp(r->option[i].origin, "default"))
			fo_draw_table_row(&t, (const char *const[]){ r->option[i].key, r->option[i].value,
								     *r->option[i].where ? r->option[i].where
											 : r->option[i].origin });
	fo_draw_table_end(&t);
	fo_draw_details_end(p->out);
	fo_draw_details_begin(p->out, "Defaults", false);
	fo_draw_table_begin(&t, p->out, NULL, "ll", head);
	for (int64_t i = 0; i < r->options; i++)
		if (!strcmp(r->option[i].origin, "default"))
			fo_draw_table_row(&t, (const char *const[]){ r->option[i].key, r->option[i].value });
	fo_draw_table_end(&t);
	fo_draw_details_end(p->out);
}

void fo_report_html(const struct fo_report *o, struct fo_str *out)
{
	struct fo_arena a = { 0 };
	const struct fo_record *r = o->r;
	struct page p = { .o = o, .r = r, .a = &a, .out = out };
	const struct fo_program *g = r->file[FO_RECORD_PROGRAM].state == FO_RECORD_WHOLE ? &r->program : NULL;
	p.x = fo_arena_alloc(&a, (size_t)(r->step.n + 1) * sizeof *p.x);
	for (int64_t i = 0; i < r->step.n; i++)
		p.x[i] = (double)r->step.step[i];
	collect_bands(&p);
	fo_draw_page_begin(
		out, fo_arena_printf(&a, "Run %s", r->dir),
		g ? fo_arena_printf(&a, "%s: %lld layers, hidden %lld, sequence %lld, %lld tokens per step, %s",
				    *g->model.name ? g->model.name : "custom", (long long)g->model.layers,
				    (long long)g->model.hidden, (long long)g->run.seq,
				    (long long)(g->tokens * g->run.micro_batches), fo_numerics_name[g->run.precision])
		  : NULL);
	missing(&p);
	summary(&p);
	draw_loss(&p);
	draw_mfu(&p);
	draw_phases(&p);
	draw_profile(&p);
	draw_memory(&p);
	draw_machine(&p);
	draw_guards(&p);
	draw_options(&p);
	fo_draw_page_end(out,
			 fo_arena_printf(&a, "flatout report %s. Figures are defined in docs/metrics.md.", r->dir));
	fo_arena_fini(&a);
}
