#include "report/run_int.h"

#include "timeline/metered.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RULES = FO_STEP_HFU - FO_STEP_MFU + 1 };

/* ---- steps ---- */

static struct fo_spread spread(const struct fo_record *r, enum fo_step_field f)
{
	return (struct fo_spread){ .median = fo_record_quantile(&r->step, f, 0, r->step.n, 0.5),
				   .low = fo_record_quantile(&r->step, f, 0, r->step.n, 0.25),
				   .high = fo_record_quantile(&r->step, f, 0, r->step.n, 0.75),
				   .n = r->step.n };
}

/* The field without metered steps; NULL: no line has it. */
static double *undisturbed(struct fo_report *o, enum fo_step_field f)
{
	const struct fo_record_steps *s = &o->r->step;
	if (!s->value[f] || !s->n)
		return NULL;
	double *v = fo_arena_alloc(&o->arena, (size_t)s->n * sizeof *v);
	for (int64_t i = 0; i < s->n; i++)
		v[i] = fo_record_value(s, FO_STEP_METERED, i) > 0 ? NAN : s->value[f][i];
	return v;
}

static double *smoothed(struct fo_report *o, const double *v)
{
	if (!v || !o->r->step.n)
		return NULL;
	double *out = fo_arena_alloc(&o->arena, (size_t)o->r->step.n * sizeof *out);
	fo_running_median(v, o->r->step.n, o->window, out);
	return out;
}

static double last_finite(const double *v, int64_t n)
{
	while (v && n-- > 0)
		if (isfinite(v[n]))
			return v[n];
	return NAN;
}

static void look_at_steps(struct fo_report *o)
{
	const struct fo_record *r = o->r;
	int64_t n = r->step.n;
	o->window = n / 40 | 1;
	if (o->window < FO_SLOW_WINDOW)
		o->window = FO_SLOW_WINDOW;
	else if (o->window > 201)
		o->window = 201;
	o->step_s = spread(r, FO_STEP_SECONDS);
	o->tokens_s = spread(r, FO_STEP_TOKENS_PER_SECOND);
	o->seconds = undisturbed(o, FO_STEP_SECONDS);
	o->mfu_each = undisturbed(o, FO_STEP_MFU);
	for (int64_t i = 0; i < n; i++)
		o->metered += fo_record_value(&r->step, FO_STEP_METERED, i) > 0;
	for (int k = 0; k < RULES; k++) {
		o->mfu[k] = spread(r, FO_STEP_MFU + k);
		o->mfu_smooth[k] = smoothed(o, undisturbed(o, FO_STEP_MFU + k));
	}
	o->loss_smooth = smoothed(o, r->step.value[FO_STEP_LOSS]);
	o->first_loss = n ? fo_record_value(&r->step, FO_STEP_LOSS, 0) : NAN;
	o->last_loss = last_finite(o->loss_smooth, n);
	for (int64_t i = 0; i < n; i++) {
		double tokens = fo_record_value(&r->step, FO_STEP_LOSS_TOKENS, i),
		       s = fo_record_value(&r->step, FO_STEP_SECONDS, i);
		o->tokens += isfinite(tokens) ? tokens : 0;
		o->step_time_s += isfinite(s) ? s : 0;
	}
	o->best_eval = o->last_eval = NAN;
	for (int64_t i = 0; i < r->evals; i++) {
		const struct fo_record_eval *e = &r->eval[i];
		if (!isfinite(e->loss))
			continue;
		o->last_eval = e->loss;
		o->last_eval_step = e->step;
		if (!(o->best_eval <= e->loss)) {
			o->best_eval = e->loss;
			o->best_eval_step = e->step;
		}
	}
}

static fo_status compose(struct fo_report *o, const struct fo_metered *m)
{
	struct fo_burst best = { 0 };
	struct fo_composed c;
	fo_metered_best(m, &best);
	FO_TRY(fo_compose(&c, m, &o->r->program, &o->r->unrolled, &best));
	o->metered_steps = c.steps;
	o->quiet_s = c.seconds;
	o->quiet_share = c.quiet_share;
	/* The same work in the quiet time, of the peak as the newest process knew it. */
	const struct fo_record_start *start = fo_record_last_start(o->r);
	double peak = start && start->peak_flop_s > 0 ? start->peak_flop_s : o->r->peak_flop_s;
	o->quiet_mfu = fo_record_mean_flop(o->r, FO_STEP_MFU) / c.seconds / peak;
	fo_composed_fini(&c);
	return FO_OK;
}

static void look_at_metered(struct fo_report *o)
{
	o->quiet_s = o->quiet_share = o->quiet_mfu = NAN;
	if (o->r->file[FO_RECORD_METERED].state != FO_RECORD_WHOLE)
		return;
	if (compose(o, &o->r->metered) != FO_OK)
		o->metered_why = fo_arena_strdup(&o->arena, fo_err_text());
	fo_err_clear();
}

static void write_command(struct fo_report *o)
{
	struct fo_str s = { 0 };
	fo_str_puts(&s, "flatout train");
	for (int64_t i = 0; i < o->r->options; i++) {
		const struct fo_record_option *p = &o->r->option[i];
		if (!strcmp(p->origin, "default"))
			continue;
		fo_str_printf(&s, " \\\n  --%s=", p->key);
		fo_str_shell(&s, p->value);
	}
	o->command = o->r->options ? fo_arena_strdup(&o->arena, s.data) : NULL;
	fo_str_fini(&s);
}

void fo_report_make(struct fo_report *o, const struct fo_record *r)
{
	*o = (struct fo_report){ .r = r };
	look_at_steps(o);
	fo_report_find_phases(o);
	fo_report_find_gaps(o);
	o->has_profile = fo_record_profile_total(r, &o->profile) && o->profile.total_ns > 0;
	fo_report_look_at_ranks(o);
	fo_report_look_at_memory(o);
	o->machine = fo_machine_over(r, INT64_MIN, INT64_MAX, true);
	o->machine.load = fo_record_load(r); /* the highest */
	look_at_metered(o);
	write_command(o);
}

void fo_report_fini(struct fo_report *o)
{
	free(o->phase);
	fo_ranks_fini(&o->ranks);
	fo_arena_fini(&o->arena);
	*o = (struct fo_report){ 0 };
}

const char *fo_report_missing(const struct fo_report *o, int i, char *text)
{
	static const char *const what[FO_RECORD_FILES] = { "run.json: how the run was configured, and on what machine",
							   "log.jsonl: steps, evaluations, checkpoints, the machine",
							   "program.txt: the memory by lifetime",
							   "timeline.fot: the last steps, operation by operation" };
	const struct fo_record *r = o->r;
	int at = 0;
	for (int k = 0; k < FO_RECORD_FILES; k++) {
		const struct fo_record_file *f = &r->file[k];
		/* Metered steps are there only where they were asked for. */
		if (f->state == FO_RECORD_WHOLE || (f->state == FO_RECORD_ABSENT && !what[k]) || at++ != i)
			continue;
		if (f->state == FO_RECORD_ABSENT)
			snprintf(text, FO_REPORT_MISSING, "there is no %s", what[k]);
		else
			snprintf(text, FO_REPORT_MISSING, "damaged: %s", f->why);
		return text;
	}
	const char *rank = fo_report_missing_rank(o, i, &at, text);
	if (rank)
		return rank;
	if (r->torn && at++ == i)
		return "the log's last line is cut, as a kill leaves it or a run that writes just now: it is left out";
	if (r->bad_lines && at++ == i) {
		snprintf(text, FO_REPORT_MISSING,
			 "%lld lines of the log cannot be read, the first is line %lld: they are left out",
			 (long long)r->bad_lines, (long long)r->first_bad_line);
		return text;
	}
	if (fo_record_saves_none(r) && at++ == i)
		return "there is no checkpoint: checkpoint.last=no, so none of its weights were saved";
	if (o->metered_why && at++ == i) {
		snprintf(text, FO_REPORT_MISSING, "no quiet figures: %s", o->metered_why);
		return text;
	}
	return NULL;
}
