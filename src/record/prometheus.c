#include "record/prometheus.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/schema.h"

#include <stdlib.h>
#include <string.h>

void fo_prometheus_init(struct fo_prometheus *p)
{
	*p = (struct fo_prometheus){ .threads = -1,
				     .steps_planned = -1,
				     .eval_loss = NAN,
				     .eval_step = NAN,
				     .planned_bytes = NAN,
				     .measured_bytes = NAN,
				     .peak_flop_s = NAN,
				     .checkpoint_time = NAN,
				     .checkpoint_step = NAN };
	fo_schema_blank(&fo_state_use_schema, &p->machine);
}

void fo_prometheus_step(struct fo_prometheus *p, int64_t step, const double value[FO_STEP_FIELD_COUNT])
{
	memcpy(p->recent[p->seen++ % FO_PROMETHEUS_STEPS], value, sizeof p->recent[0]);
	p->step = step;
	p->tokens += isfinite(value[FO_STEP_LOSS_TOKENS]) ? value[FO_STEP_LOSS_TOKENS] : 0;
}

static double last_of(const struct fo_prometheus *p, enum fo_step_field f)
{
	return p->seen ? p->recent[(p->seen - 1) % FO_PROMETHEUS_STEPS][f] : NAN;
}

static double median_of(const struct fo_prometheus *p, enum fo_step_field f)
{
	double v[FO_PROMETHEUS_STEPS];
	size_t n = 0;
	for (int64_t i = 0; i < p->seen && i < FO_PROMETHEUS_STEPS; i++)
		if (isfinite(p->recent[i][f]) && !(p->recent[i][FO_STEP_METERED] > 0))
			v[n++] = p->recent[i][f];
	return n ? fo_stats_quantile(v, n, 0.5) : NAN;
}

/* ---- the text ---- */

/* A label's value: backslash, quote and line feed escaped, broken UTF-8 and other controls replaced. */
static void put_value(struct fo_str *out, const char *text)
{
	fo_str_puts(out, "\"");
	size_t left = strlen(text ? text : "");
	for (const char *c = text; left;) {
		uint32_t code;
		size_t n = fo_utf8_decode(c, left, &code);
		if (n == 0)
			fo_str_puts(out, "\xef\xbf\xbd");
		else if (*c == '\\' || *c == '"')
			fo_str_printf(out, "\\%c", *c);
		else if (*c == '\n')
			fo_str_puts(out, "\\n");
		else if (fo_utf8_unsafe(code))
			fo_str_puts(out, "\xef\xbf\xbd");
		else
			fo_str_append(out, c, n);
		n = n ? n : 1;
		c += n;
		left -= n;
	}
	fo_str_puts(out, "\"");
}

static void head(struct fo_str *out, const char *name, const char *help)
{
	fo_str_printf(out, "# HELP flatout_%s %s\n# TYPE flatout_%s gauge\n", name, help, name);
}

/* label: a second label's name and value; NULL: only the run's. */
static void sample(struct fo_str *out, const struct fo_prometheus *p, const char *name, const char *label,
		   const char *text, double v)
{
	fo_str_printf(out, "flatout_%s{run=", name);
	put_value(out, p->run);
	if (label) {
		fo_str_printf(out, ",%s=", label);
		put_value(out, text);
	}
	struct fo_json j; /* its numbers have as many digits as they need */
	fo_str_puts(out, "} ");
	fo_json_begin(&j, out, false);
	fo_json_real(&j, NULL, v);
	fo_str_puts(out, "\n");
}

static void one(struct fo_str *out, const struct fo_prometheus *p, const char *name, const char *help, double v)
{
	if (!isfinite(v))
		return;
	head(out, name, help);
	sample(out, p, name, NULL, NULL, v);
}

static void put_info(struct fo_str *out, const struct fo_prometheus *p)
{
	const struct {
		const char *key, *text;
	} label[] = { { "version", p->version }, { "commit", p->commit }, { "model", p->model },
		      { "cpu", p->cpu },         { "isa", p->isa },       { "dtype", p->dtype } };
	head(out, "run_info", "What runs; always 1.");
	fo_str_puts(out, "flatout_run_info{run=");
	put_value(out, p->run);
	for (size_t i = 0; i < sizeof label / sizeof *label; i++) {
		fo_str_printf(out, ",%s=", label[i].key);
		put_value(out, label[i].text);
	}
	fo_str_puts(out, "} 1\n");
}

void fo_prometheus_text(const struct fo_prometheus *p, struct fo_str *out)
{
	static const struct {
		enum fo_step_field field;
		const char *rule;
	} rule[] = { { FO_STEP_MFU, "mfu" },
		     { FO_STEP_MFU_CAUSAL, "mfu_causal" },
		     { FO_STEP_MFU_DOCUMENT, "mfu_document" },
		     { FO_STEP_MFU_6N, "mfu_6n" },
		     { FO_STEP_HFU, "hfu" } };
	put_info(out, p);
	/* A run that goes back to a checkpoint has done fewer steps than before: no counter. */
	one(out, p, "step", "Optimizer steps done.", (double)p->step);
	one(out, p, "steps_planned", "Optimizer steps of the whole run.",
	    p->steps_planned < 0 ? NAN : (double)p->steps_planned);
	one(out, p, "threads", "Threads of the compute lane.", p->threads < 0 ? NAN : (double)p->threads);
	one(out, p, "tokens", "Tokens with loss that the weights were trained on.", p->tokens);
	one(out, p, "loss_nats", "Training loss of the last step, nats per token.", last_of(p, FO_STEP_LOSS));
	one(out, p, "held_out_loss_nats", "Held-out loss of the last evaluation, nats per token.", p->eval_loss);
	one(out, p, "held_out_step", "Step of the last evaluation.", p->eval_step);
	one(out, p, "gradient_norm", "Global gradient norm of the last step, before clipping.",
	    last_of(p, FO_STEP_GRAD_NORM));
	one(out, p, "learning_rate", "Learning rate of the last step.", last_of(p, FO_STEP_LR));
	one(out, p, "last_step_seconds", "Time of the last step.", last_of(p, FO_STEP_SECONDS));
	one(out, p, "median_step_seconds", "Median time of the newest 64 steps, unfiltered.",
	    median_of(p, FO_STEP_SECONDS));
	one(out, p, "tokens_per_second", "Tokens with loss per second, median of the newest 64 steps.",
	    median_of(p, FO_STEP_TOKENS_PER_SECOND));
	bool headed = false;
	for (size_t i = 0; i < sizeof rule / sizeof *rule; i++) {
		double v = median_of(p, rule[i].field);
		if (isnan(v))
			continue;
		if (!headed)
			head(out, "mfu_ratio", "Model FLOPs utilisation by rule, median of the newest 64 steps.");
		headed = true;
		sample(out, p, "mfu_ratio", "rule", rule[i].rule, v);
	}
	one(out, p, "peak_flop_per_second", "Denominator of the utilisation.", p->peak_flop_s);
	one(out, p, "memory_planned_bytes", "Memory that the run planned.", p->planned_bytes);
	one(out, p, "memory_measured_bytes", "Peak anonymous resident memory beyond what the process had before.",
	    p->measured_bytes);
	one(out, p, "checkpoint_step", "Step of the newest whole checkpoint.", p->checkpoint_step);
	one(out, p, "checkpoint_timestamp_seconds", "Unix time of the newest whole checkpoint.", p->checkpoint_time);
	one(out, p, "skipped_steps", "Steps that a guard refused.", p->skipped);
	one(out, p, "rewinds", "Times that a guard went back to a checkpoint.", p->rewinds);
	one(out, p, "machine_steal_ratio", "Share of the processors' time that went to other guests.",
	    p->machine.steal);
	one(out, p, "machine_clock_hertz", "Mean clock of the processors.", p->machine.clock_hz);
	one(out, p, "step_timestamp_seconds", "Unix time of the last step's end.", last_of(p, FO_STEP_TIME));
}

fo_status fo_prometheus_write(const struct fo_prometheus *p, const char *path, bool wait)
{
	struct fo_str text = { 0 };
	struct fo_new_file f; /* its name does not end in .prom: the collector does not take it for a file of its own */
	fo_prometheus_text(p, &text);
	fo_status st = wait ? fo_fs_new_begin(&f, path) : fo_fs_new_begin_now(&f, path);
	if (st == FO_OK)
		st = fo_fs_new_end(&f, fo_fs_new_write(&f, text.data, text.len), false);
	fo_str_fini(&text);
	return st;
}

/* ---- of a run that was read ---- */

void fo_prometheus_of(const struct fo_record *r, struct fo_prometheus *p)
{
	const struct fo_record_option *steps = fo_record_option(r, "train.steps");
	const struct fo_record_end *end = fo_record_last_end(r);
	const struct fo_record_start *start = fo_record_last_start(r);
	double value[FO_STEP_FIELD_COUNT];
	fo_prometheus_init(p);
	p->run = r->dir;
	p->version = r->version;
	p->commit = r->commit;
	p->model = fo_record_model(r);
	p->cpu = r->cpu;
	p->isa = r->isa;
	p->dtype = start ? start->peak_dtype : "";
	p->threads = r->threads;
	p->steps_planned = steps && *steps->value ? strtoll(steps->value, NULL, 10) : -1;
	p->peak_flop_s = r->peak_flop_s;
	for (int64_t i = 0; i < r->step.n; i++) {
		for (int f = 0; f < FO_STEP_FIELD_COUNT; f++)
			value[f] = fo_record_value(&r->step, (enum fo_step_field)f, i);
		fo_prometheus_step(p, r->step.step[i], value);
	}
	if (r->evals) {
		p->eval_loss = r->eval[r->evals - 1].loss;
		p->eval_step = (double)r->eval[r->evals - 1].step;
	}
	if (r->checkpoints) {
		p->checkpoint_time = r->checkpoint[r->checkpoints - 1].time;
		p->checkpoint_step = (double)r->checkpoint[r->checkpoints - 1].step;
	}
	if (end) {
		p->planned_bytes = end->planned_bytes;
		p->measured_bytes = end->measured_bytes;
	}
	if (r->machines)
		p->machine = r->machine[r->machines - 1].use;
	for (int64_t i = 0; i < r->guards; i++) {
		p->skipped += !strcmp(r->guard[i].action, "skip");
		p->rewinds += r->guard[i].back_to >= 0;
	}
}
