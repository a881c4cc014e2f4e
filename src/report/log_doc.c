#include "report/log_doc.h"

#include "base/text.h"
#include "report/run.h"

#include <math.h>
#include <string.h>

enum { PHASES = 12, RUNNING = 9 };

static const char *spread_text(struct fo_doc *d, struct fo_log_spread s, enum fo_draw_unit unit)
{
	return isnan(s.median) ? NULL
			       : fo_doc_printf(d, "quartiles %s to %s", fo_doc_num(d, s.low, unit),
					       fo_doc_num(d, s.high, unit));
}

/* ---- the answer ---- */

static void say_missing(struct fo_doc *d, const struct fo_log_account *a)
{
	for (int i = 0; i < a->missings; i++)
		fo_doc_item(d, "%s", a->missing[i]);
}

static void say_unknown(struct fo_doc *d, const struct fo_log_account *a)
{
	const struct fo_log *log = a->log;
	const struct fo_log_summary *s = &log->summary;
	if (!log->kind.id || (!log->steps && isnan(s->seconds))) {
		fo_doc_verdict(d, FO_DOC_PLAIN, "MFU", "not known: no training step found in %s",
			       log->kind.id ? log->kind.name : "this text");
		fo_doc_para(d,
			    "A line of progress of one of the known frameworks is looked for; 'flatout mfu --help' and "
			    "docs/commands/mfu.md name them.");
	} else if (!log->timed_by && isnan(s->seconds)) {
		fo_doc_verdict(d, FO_DOC_PLAIN, "MFU", "not known: no times in this log (%s, %zu steps with losses)",
			       log->kind.name, log->steps);
	} else {
		fo_doc_verdict(d, FO_DOC_PLAIN, "MFU", "not known from this log alone (%s)", log->kind.name);
		if (a->missings)
			fo_doc_para(d, "The log does not tell, so give:");
		say_missing(d, a);
	}
}

static void say_mfu(struct fo_doc *d, const struct fo_log_account *a)
{
	struct fo_log_spread s = a->mfu[a->first];
	enum fo_doc_tone tone = s.median > 1 ? FO_DOC_BAD : FO_DOC_PLAIN;
	fo_doc_verdict(d, tone, "MFU", "%.2f %% of the dense %s peak%s (rule %s%s)", 100 * s.median, a->type,
		       s.median > 1 ? ", which cannot be" : "", fo_log_mfu_name[a->first],
		       a->model.mtp_counted ? ", MTP counted" : "");
	if (a->convention)
		fo_doc_verdict(d, FO_DOC_PLAIN, "Printed", "%s: %s",
			       isnan(a->printed_mfu) ? fo_doc_printf(d, "%.4g TFLOP/s per device", a->printed_tflops)
						     : fo_doc_printf(d, "MFU %.2f %%", 100 * a->printed_mfu),
			       a->convention);
}

static void say_printed(struct fo_doc *d, const struct fo_log_account *a)
{
	double share = a->printed_tflops / a->peak;
	if (!isnan(share))
		fo_doc_verdict(d, FO_DOC_PLAIN, "MFU",
			       "%.2f %% of the dense %s peak by the log's own count of %.4g GFLOP per token",
			       100 * share, a->type, a->printed_flop / 1e9);
	else if (!isnan(a->printed_mfu))
		fo_doc_verdict(d, FO_DOC_PLAIN, "MFU",
			       "%.2f %% as the log prints it; its peak and its count are not known",
			       100 * a->printed_mfu);
	if (a->convention)
		fo_doc_verdict(d, FO_DOC_PLAIN, "Printed", "%s", a->convention);
	if (a->missings)
		fo_doc_para(d, "For the rules of 'flatout mfu', give:");
	say_missing(d, a);
}

/* ---- figures ---- */

static void facts(struct fo_doc *d, const struct fo_log_account *a)
{
	const struct fo_log *log = a->log;
	const struct fo_log_summary *s = &log->summary;
	char buf[32];
	if (!isnan(log->time.median))
		fo_doc_fact(d, "step", fo_doc_num(d, log->time.median, FO_DRAW_SECONDS),
			    spread_text(d, log->time, FO_DRAW_SECONDS));
	else if (!isnan(s->seconds / s->steps))
		fo_doc_fact(d, "step, mean of the run", fo_doc_num(d, s->seconds / s->steps, FO_DRAW_SECONDS),
			    "the log has no times of steps");
	if (!isnan(a->rate))
		fo_doc_fact(d, "tokens/s per device", fo_doc_printf(d, "%.6g", a->rate), NULL);
	else if (!isnan(s->samples_rate))
		fo_doc_fact(d, "sequences/s, all devices", fo_doc_printf(d, "%.4g", s->samples_rate), NULL);
	if (!isnan(a->seen_tokens))
		fo_doc_fact(d, a->seen_here ? "tokens in this log" : "tokens so far",
			    fo_str_si(buf, a->seen_tokens, ""), NULL);
	if (a->left_seconds > 0)
		fo_doc_fact(d, "to the end", fo_doc_num(d, a->left_seconds, FO_DRAW_SECONDS),
			    fo_doc_printf(d, "%.0f steps", a->left_steps));
	if (!isnan(a->cost_low)) {
		const char *low = fo_doc_num(d, a->cost_low, FO_DRAW_DOLLARS);
		fo_doc_fact(d, "cost so far",
			    a->cost_high > a->cost_low
				    ? fo_doc_printf(d, "%s to %s", low, fo_doc_num(d, a->cost_high, FO_DRAW_DOLLARS))
				    : low,
			    fo_doc_printf(d, "$%.2f to $%.2f per device-hour: %s", a->hour_low, a->hour_high,
					  a->rent_from));
	}
}

void fo_mfu_denominators(struct fo_doc *d, const struct fo_denominator *of, int n, const char *rule, double tflops)
{
	if (n < 2)
		return;
	const char *by = rule ? fo_doc_printf(d, "by rule %s", rule) : "as the log counts";
	fo_doc_table(d, FO_DRAW_FITTED,
		     fo_doc_printf(d, "%.1f TFLOP/s per device %s, over each peak that fits:", tflops, by), "lrr",
		     "peak of", "TFLOP/s", "MFU");
	for (int i = 0; i < n; i++)
		fo_doc_row(d, of[i].type, fo_doc_printf(d, "%.6g", of[i].tflops),
			   fo_doc_printf(d, "%.2f %%", 100 * tflops / of[i].tflops));
}

static void rules(struct fo_doc *d, const struct fo_log_account *a)
{
	if (a->first < 0)
		return;
	fo_doc_heading(d, "MFU by each rule");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrrrl", "rule", "median", "quartiles", "GFLOP/token", "counts");
	for (int r = 0; r < FO_LOG_MFU_RULES; r++)
		if (!isnan(a->mfu[r].median))
			fo_doc_row(d, fo_log_mfu_name[r], fo_doc_printf(d, "%.2f %%", 100 * a->mfu[r].median),
				   fo_doc_printf(d, "%.2f to %.2f", 100 * a->mfu[r].low, 100 * a->mfu[r].high),
				   fo_doc_printf(d, "%.3f", a->flop[r] / 1e9),
				   fo_doc_printf(d, "%s%s", fo_log_mfu_counts[r], a->model.mtp_counted ? ", MTP" : ""));
}

static const char *clock_text(struct fo_doc *d, double at)
{
	if (isnan(at))
		return "-";
	int64_t s = (int64_t)at % 86400;
	return fo_doc_printf(d, "%02d:%02d:%02d", (int)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
}

static void phases(struct fo_doc *d, const struct fo_log *log)
{
	if (!log->phases)
		return;
	fo_doc_heading(d, "Slow stretches");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrr", "steps", "times the median", "at");
	for (size_t i = 0; i < log->phases && i < PHASES; i++) {
		const struct fo_log_phase *p = &log->phase[i];
		fo_doc_row(d,
			   p->first == p->last
				   ? fo_doc_count(d, p->first)
				   : fo_doc_printf(d, "%lld to %lld", (long long)p->first, (long long)p->last),
			   fo_doc_num(d, p->times, FO_DRAW_FACTOR), clock_text(d, p->at));
	}
	if (log->phases > PHASES)
		fo_doc_remark(d, "And %zu more; --json lists them.", log->phases - PHASES);
}

/* Time stamps of logs are of whole seconds, the times of steps rounded: parts may exceed the span by this share. */
static const double ROUNDING = 0.005;

static void ledger(struct fo_doc *d, const struct fo_log_account *a)
{
	const struct fo_log *log = a->log;
	if (isnan(a->wall) || !(a->wall > 0))
		return;
	fo_doc_heading(d, "Where the time went");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrr", "part", "time", "share");
	const struct {
		const char *name;
		double seconds;
	} row[] = { { "steps", a->training },
		    { "lost to restarts", log->parts > 1 ? a->lost : NAN },
		    { "between steps: evaluation, checkpoints, pauses", a->other } };
	double sum = 0;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		sum += isnan(row[i].seconds) ? 0 : fmax(row[i].seconds, 0);
	bool fits = sum <= a->wall * (1 + ROUNDING);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (!isnan(row[i].seconds))
			fo_doc_row(d, row[i].name, fo_doc_num(d, fmax(row[i].seconds, 0), FO_DRAW_SECONDS),
				   fits ? fo_doc_num(d, fmax(row[i].seconds, 0) / a->wall, FO_DRAW_SHARE) : "-");
	if (!fits)
		fo_doc_remark(d, "No shares: the parts are %s together, and the time stamps span %s.",
			      fo_doc_num(d, sum, FO_DRAW_SECONDS), fo_doc_num(d, a->wall, FO_DRAW_SECONDS));
	for (size_t p = 1; p < log->parts; p++)
		fo_doc_item(d, "restart at step %.0f, %lld lines of steps done again%s",
			    fo_log_at(log, log->part[p].from, FO_LOG_STEP), (long long)log->part[p].again,
			    isnan(log->part[p].lost)
				    ? ""
				    : fo_doc_printf(d, ", %s lost", fo_doc_num(d, log->part[p].lost, FO_DRAW_SECONDS)));
}

static void inputs(struct fo_doc *d, const struct fo_log_account *a)
{
	const struct fo_log *log = a->log;
	fo_doc_heading(d, "What this rests on");
	fo_doc_line(d, "log", "%s", log->kind.name);
	if (log->timed_by)
		fo_doc_line(d, "times", "%s; %zu line%s, %s left out", log->timed_by, log->steps, fo_plural(log->steps),
			    log->left_out ? fo_doc_printf(d, "the first %zu", log->left_out) : "none");
	char mtp[64];
	if (a->model_from)
		fo_doc_line(d, "model", "%s%s (%s)", a->model_name, fo_model_mtp_with(mtp, &a->model), a->model_from);
	if (a->seq_from)
		fo_doc_line(d, "sequence", "%.0f (%s)", a->seq, a->seq_from);
	if (!isnan(a->tokens))
		fo_doc_line(d, "tokens per step", "%.0f", a->tokens);
	if (!isnan(a->devices))
		fo_doc_line(d, "devices", "%.0f (%s)", a->devices, a->devices_from);
	if (a->device && isnan(a->peak))
		fo_doc_line(d, "device", "%s, whose peak is not published (%s)", a->device->name, a->device_from);
	else if (a->device)
		fo_doc_line(d, "device", "%s, %g TFLOP/s dense %s (%s)", a->device->name, a->peak, a->type,
			    a->device_from);
	char shares[96];
	if (a->shares.given)
		fo_doc_line(d, "shares of FLOP", "%s (the option)", fo_shares_text(shares, sizeof shares, &a->shares));
	for (int i = 0; i < a->notes; i++)
		fo_doc_line(d, "note", "%s", a->note[i]);
}

/* ---- pictures ---- */

void fo_log_picture(struct fo_doc *d, const struct fo_log_account *a)
{
	const struct fo_log *log = a->log;
	size_t n = log->steps, from = log->left_out < n ? log->left_out : 0;
	bool mfu = a->first >= 0;
	if (n - from < 3 || (!mfu && isnan(log->time.median)))
		return;
	size_t bytes = (n - from) * sizeof(double);
	double *x = fo_doc_alloc(d, bytes), *y = fo_doc_alloc(d, bytes), *smooth = fo_doc_alloc(d, bytes);
	struct fo_draw_series *s = fo_doc_alloc(d, 2 * sizeof *s);
	for (size_t i = from; i < n; i++) {
		x[i - from] = fo_log_at(log, i, FO_LOG_STEP);
		y[i - from] = mfu ? fo_log_mfu_at(a, i, (enum fo_log_mfu)a->first) : log->seconds[i];
	}
	fo_running_median(y, (int64_t)(n - from), RUNNING, smooth);
	s[0] = (struct fo_draw_series){ .name = "each line", .x = x, .y = y, .n = n - from, .faint = true };
	s[1] = (struct fo_draw_series){ .name = "median of nine lines", .x = x, .y = smooth, .n = n - from };
	fo_doc_lines(d, &(struct fo_draw_lines){ .title = mfu ? "MFU over the run" : "Step time over the run",
						 .desc = mfu ? "MFU of each line of the log" : "step time of each line",
						 .x_name = "step",
						 .y_name = mfu ? "MFU" : "step time",
						 .y_unit = mfu ? FO_DRAW_SHARE : FO_DRAW_SECONDS,
						 .y_lo = 0,
						 .y_hi = NAN,
						 .series = s,
						 .n = 2 });
}

void fo_log_document(struct fo_doc *d, const struct fo_log_account *a, const char *const *file, size_t files)
{
	const char *name = fo_text_file_name(file[0]);
	fo_doc_title(d, files > 1 ? "MFU of %s and %zu more logs" : "MFU of %s", name, files - 1);
	if (a->first >= 0)
		say_mfu(d, a);
	else if (!isnan(a->printed_mfu) || !isnan(a->printed_tflops / a->peak))
		say_printed(d, a);
	else
		say_unknown(d, a);
	facts(d, a);
	fo_log_picture(d, a);
	rules(d, a);
	fo_mfu_denominators(d, a->denominator, a->denominators, a->first < 0 ? NULL : fo_log_mfu_name[a->first],
			    a->tflops);
	phases(d, a->log);
	ledger(d, a);
	if (a->log->kind.id)
		inputs(d, a);
}

void fo_log_csv(const struct fo_log_account *a, struct fo_str *out)
{
	const struct fo_log *log = a->log;
	fo_str_puts(out, "step,seconds,tokens_per_second_per_device,mfu,mfu_causal,loss,printed_mfu,time\n");
	for (size_t i = 0; i < log->steps; i++) {
		const double v[] = { fo_log_at(log, i, FO_LOG_STEP),
				     log->seconds[i],
				     fo_log_rate_at(a, i),
				     fo_log_mfu_at(a, i, FO_LOG_MFU_FULL),
				     fo_log_mfu_at(a, i, FO_LOG_MFU_CAUSAL),
				     fo_log_at(log, i, FO_LOG_LOSS),
				     fo_log_at(log, i, FO_LOG_MFU),
				     fo_log_at(log, i, FO_LOG_AT) };
		for (size_t c = 0; c < sizeof v / sizeof *v; c++) {
			if (isfinite(v[c]))
				fo_str_printf(out, "%.10g", v[c]);
			fo_str_puts(out, c + 1 < sizeof v / sizeof *v ? "," : "\n");
		}
	}
}
