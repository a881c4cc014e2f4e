/* A run as a document: its answer and figures for a terminal and a page, the pictures for the page alone. */
#include "report/run_int.h"

#include "timeline/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RULES = FO_STEP_HFU - FO_STEP_MFU + 1, BANDS_MAX = 4096 };
enum { PHASES_ON_SCREEN = 8, PHASES_ON_PAGE = 30, GUARDS_ON_SCREEN = 5, GUARDS_ON_PAGE = 50 };
enum { SLOW, SAVE, GUARD }; /* kinds of bands in the pictures over steps */

struct page {
	const struct fo_report *o;
	const struct fo_record *r;
	struct fo_doc *d;
	double *x; /* the number of each step */
	struct fo_draw_band *band;
	size_t bands;
	const char
		*busy; /* why every step may be slower than alone: other work on the machine; NULL: nothing says so */
};

/* The CUDA device that computed last; "": the processor did. */
static const char *device_of(const struct fo_record *r) { return r->starts ? r->start[r->starts - 1].device : ""; }

static const char *number(const struct page *p, double v, enum fo_draw_unit unit) { return fo_doc_num(p->d, v, unit); }
static const char *seconds(const struct page *p, double v) { return number(p, v, FO_DRAW_SECONDS); }
static const char *share(const struct page *p, double v) { return number(p, v, FO_DRAW_SHARE); }
static const char *bytes(const struct page *p, double v) { return number(p, v, FO_DRAW_BYTES); }

static const char *quartiles(const struct page *p, const struct fo_spread *s, enum fo_draw_unit unit)
{
	return fo_doc_printf(p->d, "quartiles %s to %s", number(p, s->low, unit), number(p, s->high, unit));
}

/* ---- the answer ---- */

static void say_loss(struct page *p)
{
	const struct fo_report *o = p->o;
	struct fo_doc *d = p->d;
	const char *held = "";
	if (isfinite(o->last_eval) && o->last_eval_step == o->best_eval_step)
		held = fo_doc_printf(d, "held out %.4f at step %lld, its best", o->last_eval,
				     (long long)o->last_eval_step);
	else if (isfinite(o->last_eval))
		held = fo_doc_printf(d, "held out %.4f at step %lld, best %.4f at step %lld", o->last_eval,
				     (long long)o->last_eval_step, o->best_eval, (long long)o->best_eval_step);
	if (isfinite(o->last_loss)) {
		bool fell = o->last_loss < o->first_loss;
		const char *change = fo_doc_printf(d, "%s %.4f to %.4f (running median of %lld steps)",
						   fell ? "fell from" : "did not fall: from", o->first_loss,
						   o->last_loss, (long long)o->window);
		if (*held)
			change = fo_doc_printf(d, "%s; %s", change, held);
		fo_doc_verdict(d, fell ? FO_DOC_GOOD : FO_DOC_BAD, "loss", "%s", change);
	} else if (*held) {
		fo_doc_verdict(d, FO_DOC_PLAIN, "loss", "%s", held);
	}
}

static void say_speed(struct page *p)
{
	const struct fo_report *o = p->o;
	const char *steady = p->busy ? "no phase slower than the rest" : "no slow phase", *speed = "";
	if (o->phases)
		steady = fo_doc_printf(p->d, "%d slow phase%s, %s of the time in steps, %s lost", o->phases,
				       fo_plural(o->phases), share(p, o->slow_s / o->step_time_s),
				       seconds(p, o->lost_s));
	if (isfinite(o->mfu[0].median))
		speed = fo_doc_printf(p->d, "MFU %s by rule mfu; ", share(p, o->mfu[0].median));
	if (p->r->step.n)
		fo_doc_verdict(p->d, FO_DOC_PLAIN, "speed", "%s%s", speed, steady);
	if (p->busy)
		fo_doc_verdict(p->d, FO_DOC_BAD, "busy", "at %s; every step may be slower than alone", p->busy);
}

static void say_trouble(struct page *p)
{
	char text[FO_REPORT_MISSING];
	const char *line;
	if (p->r->undone_steps)
		fo_doc_verdict(p->d, FO_DOC_BAD, "repeated", "%lld steps (%s) that a resume or a rewind made worthless",
			       (long long)p->r->undone_steps, seconds(p, p->r->undone_seconds));
	if (p->r->guards)
		fo_doc_verdict(p->d, FO_DOC_BAD, "guards", "%lld event%s: %s", (long long)p->r->guards,
			       fo_plural(p->r->guards), "losses that jumped or were not finite");
	if (p->o->clock_set)
		fo_doc_verdict(p->d, FO_DOC_BAD, "clock",
			       "the system's clock was set %lld time%s while the run was "
			       "logged: times around that are wrong or left out",
			       (long long)p->o->clock_set, fo_plural(p->o->clock_set));
	for (int i = 0; (line = fo_report_missing(p->o, i, text)); i++)
		fo_doc_verdict(p->d, FO_DOC_BAD, "missing", "%s", line);
}

/* ---- figures ---- */

static void step_figures(struct page *p)
{
	const struct fo_report *o = p->o;
	struct fo_doc *d = p->d;
	const char *tokens = fo_doc_printf(d, "%.0f", o->tokens);
	if (o->tokens >= 1e6)
		tokens = fo_doc_printf(d, "%.4g M", o->tokens / 1e6);
	fo_doc_fact(d, "steps", fo_doc_count(d, p->r->step.n), fo_doc_printf(d, "%s tokens with loss", tokens));
	if (isfinite(o->mfu[0].median))
		fo_doc_fact(d, "MFU", share(p, o->mfu[0].median),
			    fo_doc_printf(d, "rule mfu, median; %s", quartiles(p, &o->mfu[0], FO_DRAW_SHARE)));
	if (isfinite(o->quiet_mfu))
		fo_doc_fact(d, "quiet MFU", share(p, o->quiet_mfu),
			    fo_doc_printf(d, "%s a step, from spans that no neighbour disturbed, of %lld metered steps",
					  seconds(p, o->quiet_s), (long long)o->metered_steps));
	if (isfinite(o->step_s.median))
		fo_doc_fact(d, "step", seconds(p, o->step_s.median), quartiles(p, &o->step_s, FO_DRAW_SECONDS));
	if (isfinite(o->tokens_s.median))
		fo_doc_fact(d, "tokens/s", fo_doc_printf(d, "%.0f", o->tokens_s.median), "with loss; median");
}

/* Appends ", " and a text to *list. */
#define JOIN(list, ...) (list = fo_doc_join(d, list, fo_doc_printf(d, __VA_ARGS__)))

static const char *whose_peak(const struct fo_report_memory *m)
{
	if (m->others_unknown)
		return "the first stage's peak";
	return m->stages ? "each stage's peak" : "the peak";
}

/* Says in a line each what the page shows as pictures and tables. */
static void screen_figures(struct page *p)
{
	const struct fo_report *o = p->o;
	const struct fo_record_end *e = fo_record_last_end(p->r);
	struct fo_doc *d = p->d;
	const char *text = "", *planned = "";
	for (int k = 1; k < RULES; k++)
		if (isfinite(o->mfu[k].median))
			JOIN(text, "%s %s", fo_step_field_name[FO_STEP_MFU + k], share(p, o->mfu[k].median));
	if (*text)
		fo_doc_fact(d, "other rules", text, NULL);
	if (isfinite(o->mfu[0].median) && p->r->peak_flop_s > 0)
		fo_doc_fact(d, "peak", number(p, p->r->peak_flop_s, FO_DRAW_FLOP_RATE), p->r->peak_source);
	text = "";
	for (int k = 0; k < FO_PART_COUNT && o->has_profile; k++)
		if (o->profile.part_ns[k] > 0)
			JOIN(text, "%s %s", fo_part_words[k], share(p, o->profile.part_ns[k] / o->profile.total_ns));
	if (*text)
		fo_doc_fact(d, "profile", text, NULL);
	if (isfinite(o->wall_s) && o->wall_s > 0) {
		text = fo_doc_printf(d, "%s of %s in steps", share(p, o->step_time_s / o->wall_s),
				     seconds(p, o->wall_s));
		for (int k = 0; k < FO_GAP_COUNT; k++)
			if (o->gap_s[k] / o->wall_s >= 0.001)
				JOIN(text, "%s %s", fo_report_gap_name[k], share(p, o->gap_s[k] / o->wall_s));
		fo_doc_fact(d, "wall time", text, NULL);
	}
	text = "";
	for (int k = 0; k < FO_LIFE_COUNT && o->memory.points; k++)
		JOIN(text, "%s %s", fo_report_life_name[k], bytes(p, o->memory.peak_bytes[k]));
	if (e && isfinite(e->measured_bytes))
		planned = fo_doc_printf(d, "planned %s, measured %s", bytes(p, e->planned_bytes),
					bytes(p, e->measured_bytes));
	if (*text)
		fo_doc_fact(
			d, "memory",
			fo_doc_printf(d, "at %s: %s%s%s", whose_peak(&o->memory), text, *planned ? "; " : "", planned),
			NULL);
	else if (*planned)
		fo_doc_fact(d, "memory", planned, NULL);
}

struct row {
	const char *name, *value; /* value NULL: nothing is known */
};

static const char *if_known(const struct page *p, double v, const char *fmt, double times) FO_PRINTF(3, 0);
static const char *if_known(const struct page *p, double v, const char *fmt, double times)
{
	char text[64];
	if (!isfinite(v))
		return NULL;
	snprintf(text, sizeof text, fmt, v * times);
	return fo_doc_printf(p->d, "%s", text);
}

/* Fills rows with the state of the processors over the run. Returns their number; value NULL: not known. */
static int machine_rows(const struct page *p, struct row row[8])
{
	const struct fo_state_use *u = &p->o->machine;
	const struct fo_record_end *e = fo_record_last_end(p->r);
	int n = 0;
	row[n++] = (struct row){ "clock", if_known(p, u->clock_hz, "%.2f GHz", 1e-9) };
	row[n++] = (struct row){ "steal", isfinite(u->steal) ? share(p, u->steal) : NULL };
	row[n++] = (struct row){ "thermal events", if_known(p, u->throttles, "%.0f", 1) };
	row[n++] = (struct row){ "held back by the cgroup", isfinite(u->limited_s) ? seconds(p, u->limited_s) : NULL };
	row[n++] = (struct row){ "highest load", if_known(p, u->load, "%.1f", 1) };
	row[n++] = (struct row){ "energy", if_known(p, u->joules, "%.4g J", 1) };
	if (e && isfinite(e->huge_page_share))
		row[n++] = (struct row){ "in huge pages", share(p, e->huge_page_share) };
	return n;
}

/* The same for the device over the last process, by NVML. */
static int device_rows(const struct page *p, struct row row[8])
{
	const struct fo_record_end *e = fo_record_last_end(p->r);
	const struct fo_record_device none = fo_record_no_device(), *v = e ? &e->device : &none;
	int n = 0;
	row[n++] = (struct row){ "mean clock", if_known(p, v->use.sm_hz, "%.2f GHz", 1e-9) };
	row[n++] = (struct row){ "power", if_known(p, v->use.watts, "%.0f W", 1) };
	row[n++] = (struct row){ "energy", if_known(p, v->joules_per_token, "%.3g J/token", 1) };
	row[n++] = (struct row){ "clock held back by power", if_known(p, v->use.power_share, "%.0f %%", 100) };
	row[n++] = (struct row){ "clock held back by heat", if_known(p, v->use.thermal_share, "%.0f %%", 100) };
	row[n++] = (struct row){ "tensor pipes active", if_known(p, v->split.pipes, "%.1f %%", 100) };
	row[n++] = (struct row){ "multiprocessors active",
				 if_known(p, v->use.active.share[FO_NVML_SM], "%.1f %%", 100) };
	row[n++] = (struct row){ "memory active", if_known(p, v->use.active.share[FO_NVML_DRAM], "%.1f %%", 100) };
	return n;
}

/* "a cpu, 2 threads, kernels up to avx2, governor performance"; "": nothing is known. */
static const char *processor(const struct page *p)
{
	const struct fo_record *r = p->r;
	struct fo_doc *d = p->d;
	const char *text = r->cpu;
	if (r->threads > 0)
		JOIN(text, "%lld thread%s", (long long)r->threads, fo_plural(r->threads));
	if (r->processes > 1)
		JOIN(text, "in each of %lld processes on %lld host%s", (long long)r->processes, (long long)r->hosts,
		     fo_plural(r->hosts));
	if (fo_record_paced(r))
		JOIN(text, "%s", FO_RECORD_PACED_WHY);
	else if (*r->isa)
		JOIN(text, "kernels up to %s", r->isa);
	if (*r->state.governor)
		JOIN(text, "governor %s", r->state.governor);
	return text;
}

static void machine_figures(struct page *p)
{
	struct fo_doc *d = p->d;
	struct row row[8];
	const char *text = device_of(p->r);
	for (int i = 0, n = *text ? device_rows(p, row) : 0; i < n; i++)
		if (row[i].value)
			JOIN(text, "%s %s", row[i].name, row[i].value);
	if (*text)
		fo_doc_fact(d, "device", text, NULL);
	text = processor(p);
	for (int i = 0, n = machine_rows(p, row); i < n; i++)
		if (row[i].value && strtod(row[i].value, NULL) != 0)
			JOIN(text, "%s %s", row[i].name, row[i].value);
	if (*text)
		fo_doc_fact(d, "machine", text, NULL);
}

/* MFU as a product of what the device's clock and its work per clock allow; both a terminal and a page say it. */
static void say_split(struct page *p)
{
	const struct fo_record_end *e = fo_record_last_end(p->r);
	struct fo_str ofu = { 0 };
	if (!*device_of(p->r) || !e || !e->device.told)
		return;
	const struct fo_mfu_split *s = &e->device.split;
	if (isfinite(s->clock * s->work * s->counted))
		fo_doc_para(p->d,
			    "MFU = clock %.1f %% (of %.2f GHz) x work per clock %.1f %% x %.3f counted per FLOP run.",
			    100 * s->clock, s->peak_hz / 1e9, 100 * s->work, s->counted);
	fo_ofu_text(s, &ofu);
	fo_doc_para(p->d, "OFU %s.", ofu.data);
	fo_str_fini(&ofu);
}

/* "step 7", "steps 7 to 12" */
static const char *steps_of(const struct page *p, const struct fo_report_phase *f)
{
	if (f->first == f->last)
		return fo_doc_printf(p->d, "step %lld", (long long)f->first);
	return fo_doc_printf(p->d, "steps %lld to %lld", (long long)f->first, (long long)f->last);
}

static const char *cause_of(const struct page *p, const struct fo_report_phase *f)
{
	const char *cause = *f->cause ? f->cause : "the log shows no cause";
	return *f->beside ? fo_doc_printf(p->d, "%s (between its steps: %s)", cause, f->beside) : cause;
}

static const char *guard_text(const struct fo_record_guard *g)
{
	return g->kind == FO_GUARD_SPIKE ? "loss spike" : "not finite";
}

static void screen_lists(struct page *p)
{
	struct fo_doc *d = p->d;
	const struct fo_report *o = p->o;
	for (int i = 0; i < o->phases && i < PHASES_ON_SCREEN; i++)
		fo_doc_item(d, "slow in %s, %.2f times the median: %s", steps_of(p, &o->phase[i]), o->phase[i].times,
			    cause_of(p, &o->phase[i]));
	if (o->phases > PHASES_ON_SCREEN)
		fo_doc_item(d, "and %d more slow phases in the page", o->phases - PHASES_ON_SCREEN);
	for (int64_t i = 0; i < p->r->guards && i < GUARDS_ON_SCREEN; i++) {
		const struct fo_record_guard *g = &p->r->guard[i];
		fo_doc_item(d, "guard at step %lld: %s, %s%s%s", (long long)g->step, guard_text(g), g->action,
			    *g->where ? ": " : "", g->where);
	}
	if (p->r->guards > GUARDS_ON_SCREEN)
		fo_doc_item(d, "and %lld more guard events in the page", (long long)(p->r->guards - GUARDS_ON_SCREEN));
}

/* ---- pictures over steps ---- */

static int by_from(const void *a, const void *b)
{
	const struct fo_draw_band *x = a, *y = b;
	return (x->from > y->from) - (x->from < y->from);
}

static void add_band(struct page *p, int64_t from, int64_t to, int kind, const char *title)
{
	if (p->bands < BANDS_MAX)
		p->band[p->bands++] = (struct fo_draw_band){ (double)from, (double)to, kind, title };
}

static void collect_bands(struct page *p)
{
	const struct fo_record *r = p->r;
	p->band = fo_doc_alloc(p->d, BANDS_MAX * sizeof *p->band);
	for (int i = 0; i < p->o->phases; i++) {
		const struct fo_report_phase *f = &p->o->phase[i];
		add_band(
			p, f->first, f->last, SLOW,
			fo_doc_printf(p->d, "%s, %.2f times the median: %s", steps_of(p, f), f->times, cause_of(p, f)));
	}
	for (int64_t i = 0; i < r->guards; i++)
		add_band(p, r->guard[i].step, r->guard[i].step, GUARD,
			 fo_doc_printf(p->d, "step %lld: %s", (long long)r->guard[i].step, r->guard[i].action));
	for (int64_t i = 0; i < r->checkpoints; i++)
		add_band(p, r->checkpoint[i].step, r->checkpoint[i].step, SAVE, NULL);
	qsort(p->band, p->bands, sizeof *p->band, by_from); /* the picture wants those of each kind ascending */
}

static void lines(struct page *p, struct fo_draw_lines c, bool bands)
{
	c.x_name = "step";
	if (bands) {
		c.band = p->band;
		c.bands = p->bands;
		c.band_name[SLOW] = p->o->phases ? "slow phase" : NULL;
		c.band_name[SAVE] = p->r->checkpoints ? "checkpoint" : NULL;
		c.band_name[GUARD] = p->r->guards ? "guard" : NULL;
	}
	struct fo_draw_series *series = fo_doc_alloc(p->d, (c.n + 1) * sizeof *series);
	struct fo_draw_level *level = fo_doc_alloc(p->d, (c.levels + 1) * sizeof *level);
	memcpy(series, c.series, c.n * sizeof *series);
	if (c.levels)
		memcpy(level, c.level, c.levels * sizeof *level);
	c.series = series;
	c.level = level;
	fo_doc_lines(p->d, &c);
}

/* Every step, pale, and the running median on top of it. Returns the number of lines. */
static size_t with_median(struct page *p, struct fo_draw_series s[2], const double *each, const double *median,
			  int64_t window)
{
	size_t n = 0, rows = (size_t)p->r->step.n;
	if (each)
		s[n++] = (struct fo_draw_series){
			.name = "each step", .x = p->x, .y = each, .n = rows, .faint = true, .join = true
		};
	if (median)
		s[n++] = (struct fo_draw_series){ .name = fo_doc_printf(p->d, "running median of %lld steps",
									(long long)window),
						  .x = p->x,
						  .y = median,
						  .n = rows,
						  .join = true };
	return n;
}

/* Losses that span more than a decade (a spike, a fine-tuned model) need a logarithmic axis. */
static bool wants_log(const struct fo_report *o)
{
	const double *v = o->r->step.value[FO_STEP_LOSS];
	double lo = NAN, hi = NAN;
	for (int64_t i = 0; v && i < o->r->step.n; i++) {
		if (v[i] <= 0)
			return false;
		if (isfinite(v[i])) {
			lo = fmin(lo, v[i]);
			hi = fmax(hi, v[i]);
		}
	}
	return hi / lo > 20;
}

static void draw_loss(struct page *p)
{
	const struct fo_record *r = p->r;
	struct fo_draw_series series[3];
	bool log = wants_log(p->o);
	size_t n = with_median(p, series, r->step.value[FO_STEP_LOSS],
			       r->step.value[FO_STEP_LOSS] ? p->o->loss_smooth : NULL, p->o->window);
	if (r->evals) {
		double *x = fo_doc_alloc(p->d, (size_t)r->evals * 2 * sizeof *x), *y = x + r->evals;
		for (int64_t i = 0; i < r->evals; i++) {
			x[i] = (double)r->eval[i].step;
			y[i] = r->eval[i].loss;
		}
		series[n++] = (struct fo_draw_series){
			.name = "held out", .x = x, .y = y, .n = (size_t)r->evals, .style = 1, .marks = true
		};
	}
	fo_doc_heading(p->d, "Loss");
	lines(p,
	      (struct fo_draw_lines){ .title = log ? "Nats per token over steps, logarithmic"
						   : "Nats per token over steps",
				      .desc = fo_doc_printf(p->d, "Training from %.4f to %.4f, held out %.4f.",
							    p->o->first_loss, p->o->last_loss, p->o->last_eval),
				      .y_name = "nats per token",
				      .y_log = log,
				      .y_lo = NAN,
				      .y_hi = NAN,
				      .series = series,
				      .n = n },
	      false);
}

/* The end of a caption. */
static const char *left_out(struct page *p)
{
	int64_t n = p->o->metered;
	return n ? fo_doc_printf(p->d, " (%lld metered step%s left out)", (long long)n, fo_plural(n)) : "";
}

static void draw_mfu(struct page *p)
{
	/* The other rules are nearly this one times a constant: they stand in the table. */
	struct fo_draw_series series[2];
	struct fo_draw_level quiet = { p->o->quiet_mfu, p->o->quiet_mfu, "quiet" };
	/* The axis ends at the peak, or at a named part of it where most of the picture would be empty. */
	static const double end[] = { 0.25, 0.5, 1 };
	static const char *const end_name[] = { "a quarter of it", "half of it", "the peak" };
	int k = 0;
	for (int64_t i = 0; p->o->mfu_each && i < p->r->step.n; i++)
		while (k < 2 && p->o->mfu_each[i] > end[k])
			k++;
	while (k < 2 && quiet.hi > end[k])
		k++;
	fo_doc_heading(p->d, "MFU");
	lines(p,
	      (struct fo_draw_lines){
		      .title = fo_doc_printf(p->d, "Share of the peak over steps, rule mfu%s", left_out(p)),
		      .desc = fo_doc_printf(p->d, "Median %s by rule mfu. %d slow phases are marked.",
					    share(p, p->o->mfu[0].median), p->o->phases),
		      .y_name = fo_doc_printf(p->d, "share of the peak; the axis ends at %s", end_name[k]),
		      .y_unit = FO_DRAW_SHARE,
		      .y_lo = 0,
		      .y_hi = end[k],
		      .series = series,
		      .n = with_median(p, series, p->o->mfu_each, p->o->mfu_smooth[0], p->o->window),
		      .level = &quiet,
		      .levels = isfinite(quiet.lo) },
	      true);
	fo_doc_details(p->d, FO_DOC_FOLDED, "MFU by each rule, and the peak");
	if (p->r->peak_flop_s > 0)
		fo_doc_remark(p->d, "Peak: %s, %s.", number(p, p->r->peak_flop_s, FO_DRAW_FLOP_RATE),
			      p->r->peak_source);
	if (isfinite(p->o->quiet_mfu))
		fo_doc_para(p->d,
			    "Quiet: %s of the quiet step's time comes from operations with spans that no neighbour "
			    "disturbed.",
			    share(p, p->o->quiet_share));
	fo_doc_table(p->d, FO_DRAW_FITTED, "Over all steps, unfiltered", "lrrr", "rule", "median", "lower quartile",
		     "upper quartile");
	for (int k = 0; k < RULES; k++)
		fo_doc_row(p->d, fo_step_field_name[FO_STEP_MFU + k], share(p, p->o->mfu[k].median),
			   share(p, p->o->mfu[k].low), share(p, p->o->mfu[k].high));
	fo_doc_details_end(p->d);
}

static void draw_phases(struct page *p)
{
	const struct fo_report *o = p->o;
	struct fo_draw_series series[2];
	fo_doc_heading(p->d, "Step time and slow phases");
	lines(p,
	      (struct fo_draw_lines){ .title = fo_doc_printf(p->d, "Seconds of each step%s", left_out(p)),
				      .desc = fo_doc_printf(p->d, "Median %s.", seconds(p, o->step_s.median)),
				      .y_name = "seconds",
				      .y_lo = 0,
				      .y_hi = NAN,
				      .series = series,
				      .n = with_median(p, series, o->seconds, o->seconds_smooth, FO_SLOW_WINDOW) },
	      true);
	if (o->phases)
		fo_doc_table(p->d, FO_DRAW_FULL, NULL, "lrrl", "slow", "times the median", "lost",
			     "what differed then, by the log");
	for (int i = 0; i < o->phases && i < PHASES_ON_PAGE; i++)
		fo_doc_row(p->d, steps_of(p, &o->phase[i]), fo_doc_printf(p->d, "%.2f", o->phase[i].times),
			   seconds(p, o->phase[i].lost_s), cause_of(p, &o->phase[i]));
	if (o->phases > PHASES_ON_PAGE)
		fo_doc_remark(p->d, "And %d more.", o->phases - PHASES_ON_PAGE);
	fo_doc_remark(p->d,
		      "A slow phase is a stretch of steps whose running median is more than %g times the median of the "
		      "whole run.",
		      FO_SLOW_TIMES);
}

/* ---- where time and memory go ---- */

static void draw_time(struct page *p)
{
	const struct fo_report *o = p->o;
	fo_doc_heading(p->d, "Where a step's time goes");
	if (o->has_profile) {
		struct fo_draw_stack *stack = fo_doc_alloc(p->d, sizeof *stack);
		double steps = o->profile.steps > 0 ? (double)o->profile.steps : 1;
		*stack = (struct fo_draw_stack){ fo_doc_printf(p->d, "%lld steps", (long long)o->profile.steps),
						 fo_doc_printf(p->d, "%s per step",
							       seconds(p, o->profile.total_ns * 1e-9 / steps)),
						 o->profile.part_ns };
		fo_doc_stacks(p->d,
			      &(struct fo_draw_stacks){ .title = "Means; the parts sum to the wall time of the steps",
							.desc = "Parts sum to the wall time of the steps.",
							.part_name = fo_part_words,
							.tone = fo_part_tone,
							.parts = FO_PART_COUNT,
							.stack = stack,
							.stacks = 1,
							.legend = true });
	} else {
		fo_doc_para(p->d, "The log has no step profile.");
	}
	if (!isfinite(o->wall_s))
		return;
	fo_doc_para(p->d, "%s of the %s from the first step to the last were spent in steps that counted.",
		    share(p, o->step_time_s / o->wall_s), seconds(p, o->wall_s));
	bool any = p->r->undone_steps > 0;
	for (int k = 0; k < FO_GAP_COUNT; k++)
		any |= o->gaps[k] > 0;
	if (!any)
		return;
	fo_doc_table(p->d, FO_DRAW_SLIM, NULL, "lrr", "between the steps", "time", "share of the wall time");
	for (int k = 0; k < FO_GAP_COUNT; k++)
		if (o->gaps[k])
			fo_doc_row(p->d,
				   fo_doc_printf(p->d, "%s, %lld time%s", fo_report_gap_name[k], (long long)o->gaps[k],
						 fo_plural(o->gaps[k])),
				   seconds(p, o->gap_s[k]), share(p, o->gap_s[k] / o->wall_s));
	if (p->r->undone_steps)
		fo_doc_row(p->d, fo_doc_printf(p->d, "%lld steps that were repeated", (long long)p->r->undone_steps),
			   seconds(p, p->r->undone_seconds), share(p, p->r->undone_seconds / o->wall_s));
}

static void draw_buffers(struct page *p)
{
	const struct fo_report_memory *m = &p->o->memory;
	struct fo_draw_bar_row *row = fo_doc_alloc(p->d, (size_t)(m->buffers + 1) * sizeof *row);
	for (int i = 0; i < m->buffers; i++) {
		const struct fo_report_buffer *b = &m->buffer[i];
		row[i] = (struct fo_draw_bar_row){
			.name = b->copies == 1 ? b->name
					       : fo_doc_printf(p->d, "%s, %lld times", b->name, (long long)b->copies),
			.note = fo_report_life_name[b->life],
			.value = bytes(p, (double)b->bytes),
			.bar = { { (double)b->bytes, NAN, NAN }, { NAN, NAN, NAN } },
		};
	}
	fo_doc_details(p->d, FO_DOC_FOLDED, "The largest buffers at the peak");
	fo_doc_bars(p->d, &(struct fo_draw_bars){ .title = "Bytes of all layers and micro-batches together",
						  .desc = "What each buffer is stands below its name.",
						  .unit = FO_DRAW_BYTES,
						  .row = row,
						  .rows = (size_t)m->buffers });
	fo_doc_details_end(p->d);
}

/* Planned bytes by stage of a pipeline. */
static void stage_table(struct page *p)
{
	const struct fo_report_memory *m = &p->o->memory;
	if (m->others_unknown)
		fo_doc_para(
			p->d,
			"What the other stages hold is not known: this version makes another step program of the run.");
	if (!m->stages)
		return;
	fo_doc_table(p->d, FO_DRAW_SLIM, NULL, "lrlrrr", "stage", "layers", "recomputes", "activations",
		     "weights, state", "all its ranks");
	for (int k = 0; k < m->stages; k++) {
		const struct fo_report_stage *s = &m->stage[k];
		fo_doc_row(p->d, fo_doc_printf(p->d, "%d, %d rank%s", k, s->ranks, fo_plural(s->ranks)),
			   fo_doc_printf(p->d, "%lld", (long long)s->layers), s->recompute, bytes(p, s->arena_bytes),
			   bytes(p, s->persistent_bytes), bytes(p, (s->arena_bytes + s->persistent_bytes) * s->ranks));
	}
	fo_doc_para(p->d, "Planned for each rank of a stage, and for all of them.");
}

static void draw_memory(struct page *p)
{
	const struct fo_report_memory *m = &p->o->memory;
	const struct fo_record_start *s = fo_record_last_start(p->r);
	const struct fo_record_end *e = fo_record_last_end(p->r);
	const char *whose = *device_of(p->r) ? "device" : "process";
	double sum = 0, shown = 0;
	fo_doc_heading(p->d, "Memory");
	for (int k = 0; k < FO_LIFE_COUNT; k++) {
		sum += m->peak_bytes[k];
		shown += m->points ? m->live[k][m->peak] : 0;
	}
	const char *whom = m->stages ? fo_doc_printf(p->d, " of stage %d, the fullest,", m->shown) : "";
	if (m->others_unknown)
		whom = " of the first stage";
	const char *peak = fo_doc_printf(p->d, "The peak%s is %s, at operation %lld of %lld.", whom, bytes(p, shown),
					 (long long)m->peak, (long long)m->points);
	stage_table(p);
	if (m->points) {
		fo_doc_areas(p->d,
			     &(struct fo_draw_areas){ .title = "Planned bytes at each operation of a step, by how long "
							       "they live",
						      .desc = peak,
						      .x_name = "operation, in the order of issue",
						      .y_name = "bytes",
						      .y_unit = FO_DRAW_BYTES,
						      .name = fo_report_life_name,
						      .layer = (const double *const *)m->live,
						      .layers = FO_LIFE_COUNT,
						      .n = (size_t)m->points });
		fo_doc_para(p->d, "%s The arena for what does not persist takes %s.", peak, bytes(p, m->arena_bytes));
		fo_doc_table(p->d, FO_DRAW_SLIM, NULL, "lrr", fo_doc_printf(p->d, "at %s", whose_peak(m)), "bytes",
			     "share");
		for (int k = 0; k < FO_LIFE_COUNT; k++)
			fo_doc_row(p->d, fo_report_life_name[k], bytes(p, m->peak_bytes[k]),
				   share(p, m->peak_bytes[k] / sum));
		draw_buffers(p);
	} else {
		fo_doc_para(p->d, "The step program is missing or too long to show what lives when.");
	}
	if (s && isfinite(s->arena_bytes))
		fo_doc_para(p->d,
			    "Planned for the %s: %s for activations and gradients, %s for weights and optimizer, %s of "
			    "workspace, %s of other things, %s for the copy that checkpoints are written from.",
			    whose, bytes(p, s->arena_bytes), bytes(p, s->persistent_bytes),
			    bytes(p, s->workspace_bytes), bytes(p, s->other_bytes), bytes(p, s->checkpoint_bytes));
	if (e && isfinite(e->measured_bytes))
		fo_doc_para(p->d, "Measured at the end: %s beyond what the %s had in use before; planned %s.",
			    bytes(p, e->measured_bytes), whose, bytes(p, e->planned_bytes));
}

/* ---- the machine ---- */

/* Does a picture say more than a single figure? Clocks that differ by less are one flat line. */
static bool varies(const double *v, size_t n)
{
	double lo = NAN, hi = NAN;
	for (size_t i = 0; i < n; i++)
		if (isfinite(v[i])) {
			lo = fmin(lo, v[i]);
			hi = fmax(hi, v[i]);
		}
	return hi > 1.02 * lo;
}

static bool any_finite(const double *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (isfinite(v[i]))
			return true;
	return false;
}

/* A picture of one line over the samples of the machine. */
static void machine_line(struct page *p, const char *title, const char *desc, const char *unit, struct fo_draw_series s,
			 const struct fo_draw_level *level)
{
	lines(p,
	      (struct fo_draw_lines){ .title = title,
				      .desc = desc,
				      .y_name = unit,
				      .y_lo = 0,
				      .y_hi = NAN,
				      .series = &s,
				      .n = 1,
				      .level = level,
				      .levels = level && level->lo > 0 },
	      false);
}

static void machine_pictures(struct page *p)
{
	size_t n = (size_t)p->r->machines;
	double *step = fo_doc_alloc(p->d, (n + 1) * 5 * sizeof *step), *steal = step + n, *limited = steal + n,
	       *clock = limited + n, *load = clock + n;
	struct fo_draw_level threads = { (double)p->r->threads, (double)p->r->threads, "threads of this run" };
	for (size_t i = 0; i < n; i++) {
		const struct fo_state_use *m = &p->r->machine[i].use;
		step[i] = (double)p->r->machine[i].step;
		steal[i] = m->steal;
		limited[i] = m->limited_s / m->seconds;
		clock[i] = m->clock_hz / 1e9;
		load[i] = m->load;
	}
	lines(p,
	      (struct fo_draw_lines){
		      .title = "Time that others took",
		      .desc = "Share that the hypervisor gave to others, and that the cgroup held the process "
			      "back.",
		      .y_name = "share of the time",
		      .y_unit = FO_DRAW_SHARE,
		      .y_lo = 0,
		      .y_hi = 0.05, /* an empty picture must not magnify noise */
		      .series = (struct fo_draw_series[]){ { .name = "steal", .x = step, .y = steal, .n = n },
							   { .name = "held back by the cgroup",
							     .x = step,
							     .y = limited,
							     .n = n,
							     .style = 1 } },
		      .n = 2 },
	      true);
	if (any_finite(load, n))
		machine_line(
			p, "Load of the whole machine",
			"Tasks that run or want to, mean over a minute. A load above the run's threads is the work "
			"of others.",
			"tasks", (struct fo_draw_series){ .name = "load", .x = step, .y = load, .n = n }, &threads);
	if (varies(clock, n))
		machine_line(p, "Clock", "Mean frequency of the processors.", "GHz",
			     (struct fo_draw_series){ .name = "mean clock", .x = step, .y = clock, .n = n }, NULL);
}

static void rows_table(struct page *p, const char *head, const char *over, const struct row *row, int n)
{
	const char *unknown = "";
	fo_doc_table(p->d, FO_DRAW_FITTED, NULL, "lr", head, over);
	for (int i = 0; i < n; i++)
		if (row[i].value)
			fo_doc_row(p->d, row[i].name, row[i].value);
		else
			unknown = fo_doc_join(p->d, unknown, row[i].name);
	if (*unknown)
		fo_doc_remark(p->d, "Not readable on this machine: %s.", unknown);
}

static void draw_machine(struct page *p)
{
	struct row row[8];
	const char *device = device_of(p->r), *host = processor(p);
	fo_doc_heading(p->d, "Machine");
	if (*device) {
		rows_table(p, "device", device, row, device_rows(p, row));
		say_split(p);
	}
	if (*host)
		fo_doc_para(p->d, "%s%s.", *device ? "Its host: " : "", host);
	if (!p->r->machines) {
		fo_doc_para(p->d, "The log has no samples of its state.");
		return;
	}
	machine_pictures(p);
	rows_table(p, "over the run", "", row, machine_rows(p, row));
}

static void draw_guards(struct page *p)
{
	const struct fo_record *r = p->r;
	if (!r->guards)
		return;
	fo_doc_heading(p->d, "What the guards saw");
	fo_doc_table(p->d, FO_DRAW_FULL, NULL, "rllrrl", "step", "what", "done", "loss", "z", "where");
	for (int64_t i = 0; i < r->guards && i < GUARDS_ON_PAGE; i++) {
		const struct fo_record_guard *g = &r->guard[i];
		const char *where = g->where;
		if (g->back_to >= 0)
			where = fo_doc_printf(p->d, "back to step %lld", (long long)g->back_to);
		fo_doc_row(p->d, fo_doc_count(p->d, g->step), guard_text(g), g->action,
			   number(p, g->loss, FO_DRAW_NUMBER), number(p, g->z, FO_DRAW_NUMBER), where);
	}
	if (r->guards > GUARDS_ON_PAGE)
		fo_doc_remark(p->d, "And %lld more.", (long long)(r->guards - GUARDS_ON_PAGE));
}

static const char *known(const char *text) { return *text ? text : "?"; }

static void draw_options(struct page *p)
{
	const struct fo_record *r = p->r;
	if (!r->options)
		return;
	fo_doc_heading(p->d, "How it was configured");
	const char *version = *r->commit ? fo_doc_printf(p->d, "%s (%s)", r->version, r->commit) : r->version;
	fo_doc_para(p->d, "flatout %s; begun %s. Passes: %s.", version, known(r->started), known(r->passes));
	fo_doc_code(p->d, p->o->command);
	for (int dfl = 0; dfl < 2; dfl++) {
		fo_doc_details(p->d, FO_DOC_FOLDED, "%s",
			       dfl ? "Defaults" : "Options that are not defaults, and where they come from");
		fo_doc_table(p->d, FO_DRAW_FULL, NULL, dfl ? "ll" : "lll", "option", "value", "from");
		for (int64_t i = 0; i < r->options; i++) {
			const struct fo_record_option *v = &r->option[i];
			if (dfl == !strcmp(v->origin, "default"))
				fo_doc_row(p->d, v->key, v->value, *v->where ? v->where : v->origin);
		}
		fo_doc_details_end(p->d);
	}
}

/* ---- the whole ---- */

static void say_what_it_is(struct page *p)
{
	const struct fo_record *r = p->r;
	const struct fo_program *g = &r->program;
	const char *begun = *r->started ? fo_doc_printf(p->d, "begun %s", r->started) : "", *model = "";
	const char *ranks = g->ranks > 1 ? fo_doc_printf(p->d, " on %d ranks", g->ranks) : "";
	if (r->file[FO_RECORD_PROGRAM].state == FO_RECORD_WHOLE)
		model = fo_doc_printf(
			p->d, "%s: %lld layer%s, hidden %lld; %lld x %lld rows of %lld tokens per step%s, %s",
			*g->model.name ? g->model.name : "custom", (long long)g->model.layers,
			fo_plural(g->model.layers), (long long)g->model.hidden, (long long)g->run.micro_batches,
			(long long)(g->run.rows * fo_mesh_data(&g->run.mesh)), (long long)g->run.seq, ranks,
			fo_numerics_name[g->run.precision]);
	fo_doc_title(p->d, "Run %s", r->dir);
	fo_doc_lead(p->d, "%s%s%s", model, *model && *begun ? "; " : "", begun);
	fo_doc_footer(p->d, "flatout report %s. Figures are defined in docs/metrics.md.", r->dir);
	fo_doc_only(p->d, FO_DOC_TERM);
	fo_doc_fact(p->d, "run", r->dir, *begun ? begun : NULL);
	if (*model)
		fo_doc_fact(p->d, "model", model, NULL);
}

void fo_report_doc(const struct fo_report *o, struct fo_doc *d)
{
	const struct fo_record *r = o->r;
	char *busy = fo_doc_alloc(d, 96);
	struct page p = { .o = o,
			  .r = r,
			  .d = d,
			  .busy = fo_state_others_text(o->machine.load, r->state.cpus,
						       fo_record_host_threads(r, r->threads), busy) };
	p.x = fo_doc_alloc(d, (size_t)(r->step.n + 1) * sizeof *p.x);
	for (int64_t i = 0; i < r->step.n; i++)
		p.x[i] = (double)r->step.step[i];
	collect_bands(&p);
	say_what_it_is(&p);
	fo_doc_only(d, FO_DOC_BOTH);
	if (fo_record_paced(r))
		fo_doc_verdict(d, FO_DOC_BAD, "paced", FO_RECORD_PACED_WHY "; nothing was computed, so no MFU");
	say_loss(&p);
	say_speed(&p);
	fo_report_say_ranks(o, d);
	fo_report_say_pipeline(o, d);
	say_trouble(&p);
	step_figures(&p);
	fo_doc_only(d, FO_DOC_TERM);
	screen_figures(&p);
	machine_figures(&p);
	say_split(&p);
	screen_lists(&p);
	fo_report_draw_ranks(o, d, false);
	fo_doc_only(d, FO_DOC_PAGE);
	draw_loss(&p);
	draw_mfu(&p);
	draw_phases(&p);
	draw_time(&p);
	fo_report_draw_ranks(o, d, true);
	draw_memory(&p);
	draw_machine(&p);
	draw_guards(&p);
	draw_options(&p);
	fo_doc_only(d, FO_DOC_BOTH);
}
