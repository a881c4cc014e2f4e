/* What flatout predict --cluster prints: the same figures as text, page and JSON. */
#include "cli/predict_cluster.h"

#include "plan/losses.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

const char *fo_cli_range(struct fo_doc *d, struct fo_range r, enum fo_draw_unit unit)
{
	char low[32], high[32];
	fo_draw_number(low, r.low, unit);
	fo_draw_number(high, r.high, unit);
	const char *unit_low = strchr(low, ' '), *unit_high = strchr(high, ' ');
	if (unit_low && unit_high && !strcmp(unit_low, unit_high))
		return fo_doc_printf(d, "%.*s to %s", (int)(unit_low - low), low, high);
	return fo_doc_printf(d, "%s to %s", low, high);
}

void fo_cli_say_doubts(struct fo_doc *d, const char *of, const char *flag, const char *size)
{
	const char *whose = of ? fo_doc_printf(d, "%s: ", of) : "";
	if (flag && *flag)
		fo_doc_verdict(d, FO_DOC_BAD, "doubt", "%s%s", whose, flag);
	if (size && *size)
		fo_doc_verdict(d, FO_DOC_BAD, "?", "%s%s", whose, size);
}

static const char *percent(struct fo_doc *d, double share) { return fo_doc_printf(d, "%.1f %%", 100 * share); }

/* MFU over the interval of step times. */
static struct fo_range over(const struct fo_cli_predicted *p, double mfu)
{
	double work = mfu * p->step.seconds;
	return (struct fo_range){ work / p->sure.seconds.high, work / p->sure.seconds.low };
}

static const char *mfu_text(struct fo_doc *d, const struct fo_cli_predicted *p, double mfu)
{
	struct fo_range r = over(p, mfu);
	return fo_doc_printf(d, "%.1f %%%s (%.1f to %.1f)", 100 * mfu, fo_cli_mark(p->sure.size), 100 * r.low,
			     100 * r.high);
}

const char *fo_cli_job_type_name(const struct fo_cli_asked *a, enum fo_predict_type type)
{
	bool half = type == FO_PREDICT_BF16 && fo_job_is(&a->job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16);
	return half ? "fp16" : fo_predict_type_name[type];
}

static const char *model_name(const struct fo_cli_predicted *p) { return p->asked->job.model.name; }

static const char *cluster_text(struct fo_doc *d, const struct fo_cluster *c)
{
	if (c->nodes <= 1)
		return fo_doc_printf(d, "%.15g x %s", c->devices, c->device->name);
	return fo_doc_printf(d, "%.15g x %s in %.15g nodes of %.15g", c->devices, c->device->name, c->nodes,
			     c->per_node);
}

const char *fo_cli_division(struct fo_doc *d, const struct fo_division *x, bool narrow)
{
	struct fo_str s = { 0 };
	fo_division_text(x, narrow, &s);
	const char *text = fo_doc_printf(d, "%s", s.data);
	fo_str_fini(&s);
	return text;
}

const char *fo_cli_recompute(struct fo_doc *d, const struct fo_predict_layout *l)
{
	if (l->recompute >= 1)
		return "full recomputation";
	if (l->recompute > 0)
		return fo_doc_printf(d, "%.0f %% of each forward computed again", 100 * l->recompute);
	if (l->recompute_core || l->recompute_ffn)
		return "attention or feed-forward computed again";
	return "no recomputation";
}

static const char *division_text(struct fo_doc *d, const struct fo_cli_predicted *p)
{
	struct fo_division x;
	fo_division_of(&p->job.layout, p->step.dp, &x);
	return fo_doc_printf(d, "%s, %s", fo_cli_division(d, &x, false), fo_cli_recompute(d, &p->job.layout));
}

static const char *tenths(struct fo_doc *d, int n)
{
	return fo_doc_printf(d, "%s%d.%d %%", n < 0 ? "-" : "", abs(n) / 10, abs(n) % 10);
}

/* The way from the whole peak down to the MFU: the share that each part of the step costs. */
void fo_cli_losses(struct fo_doc *d, const struct fo_predict_step *s)
{
	struct fo_plan_losses l;
	fo_plan_losses_of(&l, s);
	struct fo_draw_fall *fall = fo_doc_alloc(d, FO_PLAN_LOSSES * sizeof *fall);
	for (int i = 0; i < l.losses; i++)
		fall[i] = (struct fo_draw_fall){ l.loss[i].name, NULL, tenths(d, l.loss[i].tenths), l.loss[i].share };
	struct fo_draw_waterfall w = { .title = "From the peak to the MFU",
				       .desc = "Shares of the step, taken off the dense peak one by one; together with "
					       "the MFU they are 100 %.",
				       .unit = FO_DRAW_SHARE,
				       .whole = 1,
				       .whole_name = "dense peak",
				       .whole_value = "100 %",
				       .fall = fall,
				       .falls = (size_t)l.losses,
				       .rest_name = "mfu_causal",
				       .rest_value = tenths(d, l.tenths) };
	fo_doc_waterfall(d, &w);
}

/* ---- text and page ---- */

/* A smaller share would show as "0.0 %". */
#define SHOWN_SHARE 0.0005

static const char *fit_text(const struct fo_cli_predicted *p)
{
	if (p->fits_not)
		return "does not fit";
	return p->sure.bytes.high <= p->job.job.machine.memory_bytes ? "fits" : "may not fit";
}

static void say_memory(struct fo_doc *d, const struct fo_cli_predicted *p)
{
	fo_doc_line(d, "memory", "%s (%s) of %s a device: %s", fo_doc_num(d, p->step.bytes, FO_DRAW_BYTES),
		    fo_cli_range(d, p->sure.bytes, FO_DRAW_BYTES),
		    fo_doc_num(d, p->job.job.machine.memory_bytes, FO_DRAW_BYTES), fit_text(p));
	fo_cli_memory_ground(d, &p->step, p->not_planned);
}

void fo_cli_memory_ground(struct fo_doc *d, const struct fo_predict_step *s, const char *not_planned)
{
	if (s->planned)
		fo_doc_line(
			d, "planned",
			"%s of it to the byte, as 'flatout train --dry-run' plans the run file; the other %s are an "
			"estimate of what libraries hold",
			fo_doc_num(d, s->bytes - s->memory[FO_PREDICT_OVERHEAD], FO_DRAW_BYTES),
			fo_doc_num(d, s->memory[FO_PREDICT_OVERHEAD], FO_DRAW_BYTES));
	else if (not_planned)
		fo_doc_line(d, "not planned", "the memory is an estimate: %s", not_planned);
}

/* The time that stages wait for each other, beside the published formula of their schedule. */
static void say_bubble(struct fo_doc *d, const struct fo_cli_predicted *p)
{
	struct fo_pp_formula f;
	const double bubble = p->step.part[FO_PREDICT_BUBBLE];
	if (!fo_plan_bubble_of(&f, &p->job.layout, &p->step))
		return;
	const char *by = fo_doc_printf(d, "%s says nothing of these times: it wants %s", f.text, f.condition);
	if (!isnan(f.idle_s))
		by = fo_doc_printf(d, "even stages and messages that take no time would wait %s%s by %s (%s)",
				   f.bound ? "at most " : "", fo_doc_num(d, f.idle_s, FO_DRAW_SECONDS), f.text,
				   f.source);
	fo_doc_line(d, "bubble", "%s, %s of the step, in which stages wait for each other; %s",
		    fo_doc_num(d, bubble, FO_DRAW_SECONDS), percent(d, bubble / p->step.seconds), by);
}

static void json_bubble(struct fo_json *j, const struct fo_cli_predicted *p)
{
	struct fo_pp_formula f;
	if (fo_plan_bubble_of(&f, &p->job.layout, &p->step))
		fo_json_record(j, "bubble", FO_REAL("seconds", p->step.part[FO_PREDICT_BUBBLE]),
			       FO_REAL("share", p->step.part[FO_PREDICT_BUBBLE] / p->step.seconds),
			       FO_REAL("formula_seconds", f.idle_s), FO_BOOL("at_most", f.bound),
			       FO_TEXT("formula", f.text), FO_TEXT("source", f.source),
			       FO_TEXT("condition", f.condition));
}

/* Keys of the files that nothing here reads: a slip of the pen among them would go unseen. */
static void say_unread(struct fo_doc *d, const struct fo_job *job)
{
	enum { SHOWN = 8 };
	const char *list = "";
	bool ours = job->form && !strcmp(job->form->id, "flatout");
	for (int64_t i = 0; i < job->unread_count && i < SHOWN; i++)
		list = fo_doc_join(d, list, job->unread[i]);
	if (job->unread_count > SHOWN)
		list = fo_doc_printf(d, "%s and %lld more", list, (long long)(job->unread_count - SHOWN));
	if (*list && ours)
		fo_doc_verdict(d, FO_DOC_BAD, "not read", "%s: 'flatout train' knows no such keys and refuses the file",
			       list);
	else if (*list)
		fo_doc_line(d, "not read", "%s", list);
	for (int64_t i = 0; i < job->notes; i++)
		fo_doc_line(d, "note", "%s", job->note[i]);
}

static void say_head(struct fo_doc *d, const struct fo_cli_predicted *p)
{
	const struct fo_job_asked *j = &p->job;
	const struct fo_job_shape *s = &j->shape;
	const char *type = fo_cli_job_type_name(p->asked, j->job.type);
	double all = s->tokens / p->step.seconds;
	if (p->fits_not)
		fo_doc_verdict(d, FO_DOC_BAD, "too large",
			       "%s does not fit on these devices: %s; the times below hold if it did", model_name(p),
			       p->fits_not);
	fo_doc_line(d, "predict", "%s on %s, as %s trains", model_name(p), cluster_text(d, &p->asked->cluster),
		    fo_predict_style[j->job.style].title);
	fo_doc_line(d, "division", "%s", division_text(d, p));
	fo_doc_line(d, "work", "%.15g sequence%s of %.15g tokens a step, %.15g micro-batch%s of %.15g, %s",
		    s->global_batch, fo_plural(s->global_batch), s->seq, p->step.micro_batches,
		    fo_word(p->step.micro_batches, "", "es"), s->micro_batch, type);
	fo_doc_verdict(d, FO_DOC_PLAIN, "step", "%s (%s), %s a device, %s",
		       fo_doc_num(d, p->step.seconds, FO_DRAW_SECONDS),
		       fo_cli_range(d, p->sure.seconds, FO_DRAW_SECONDS), fo_doc_si(d, p->step.tokens_s, "tok/s"),
		       fo_doc_si(d, all, "tok/s"));
	fo_doc_line(d, "MFU", "%s mfu_causal, %s mfu, of %s/s (%s)", mfu_text(d, p, p->step.mfu_causal),
		    mfu_text(d, p, p->step.mfu), fo_doc_si(d, j->job.machine.peak[j->job.type], "FLOP"), type);
	if (j->job.type != FO_PREDICT_BF16)
		fo_doc_line(d, "beside", "%s mfu_causal of the bf16 peak", mfu_text(d, p, p->step.mfu_bf16_causal));
	say_bubble(d, p);
	say_memory(d, p);
	if (over(p, p->step.mfu).high > 1)
		fo_doc_line(d, "above 100 %",
			    "mfu counts the scores that a causal mask leaves out; mfu_causal does not, "
			    "and cannot pass the peak");
	if (p->sure.bounded)
		fo_doc_line(d, "bounded",
			    "the fast end of the interval: no step is faster than all its work at the dense "
			    "peak, 100 %% mfu_causal");
	fo_cli_say_doubts(d, NULL, p->sure.flag, p->sure.size);
	if (p->asked->cluster.nodes > 1 && p->asked->cluster.net_assumed && !fo_range_known(p->asked->given.net_gb_s))
		fo_doc_line(d, "network",
			    "nobody stated it: %.3g GB/s a device, the usual adapter, of which collectives "
			    "reach a part; --measured-bandwidth says what yours reach",
			    j->job.machine.net_byte_s / 1e9);
	for (int i = 0; i < p->asked->notes; i++)
		fo_doc_line(d, "assumed", "%s", p->asked->note[i]);
	for (int i = 0; i < j->inferences; i++)
		fo_doc_line(d, "assumed", "%s", j->inferred[i]);
	say_unread(d, &p->asked->job);
}

static void say_bytes(struct fo_doc *d, const char *name, double bytes, struct fo_range r)
{
	fo_doc_row(d, name, fo_doc_printf(d, "%.2f", bytes / 0x1p30),
		   r.low < r.high ? fo_doc_printf(d, "%.1f to %.1f", r.low / 0x1p30, r.high / 0x1p30) : "exact");
}

static void say_parts(struct fo_doc *d, const struct fo_cli_predicted *p)
{
	fo_doc_heading(d, "A step");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrrr", "part", "time", "80 %", "share");
	for (int i = 0; i < FO_PREDICT_PARTS; i++)
		if (p->step.part[i] >= SHOWN_SHARE * p->step.seconds)
			fo_doc_row(d, fo_predict_part_name[i], fo_doc_num(d, p->step.part[i], FO_DRAW_SECONDS),
				   fo_cli_range(d, p->sure.part[i], FO_DRAW_SECONDS),
				   percent(d, p->step.part[i] / p->step.seconds));
	fo_doc_heading(d, "Memory of the fullest device");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrr", "part", "GiB", "least to most");
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++)
		if (p->step.memory[i] > 0)
			say_bytes(d, fo_predict_memory_name[i], p->step.memory[i], p->sure.memory[i]);
	say_bytes(d, "sum", p->step.bytes, p->sure.bytes);
}

static void say_losses(struct fo_doc *d, const struct fo_cli_predicted *p)
{
	fo_doc_only(d, FO_DOC_PAGE);
	fo_cli_losses(d, &p->step);
	fo_doc_only(d, FO_DOC_BOTH);
}

static void say_sure(struct fo_doc *d, const struct fo_cli_predicted *p)
{
	fo_doc_heading(d, "What moves the step most");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrr", "term, over its own 80 %", "of the step", "");
	for (int i = 0; i < p->sure.terms; i++)
		fo_doc_row(d, p->sure.term[i].what,
			   fo_doc_printf(d, "+- %s", fo_doc_num(d, fabs(p->sure.term[i].seconds), FO_DRAW_SECONDS)),
			   percent(d, fabs(p->sure.term[i].seconds) / p->step.seconds));
	fo_doc_heading(d, "What it rests on");
	for (int i = 0; i < p->sure.rests; i++) {
		const char *value = p->sure.rest[i].value ? fo_doc_printf(d, ", %.3g", p->sure.rest[i].value) : "";
		fo_doc_item(d, "%s: %s%s", fo_predict_ground_name[p->sure.rest[i].ground], p->sure.rest[i].what, value);
	}
	fo_doc_para(d, "Intervals hold 80 %% of published runs of publishers that the constants are fitted to; of a "
		       "publisher that they are not, down to 42 %% (docs/accuracy.md). No figure here was measured on "
		       "these machines.");
}

/* Steps that differ, and the time that counts. */
static void say_draws(struct fo_doc *d, const struct fo_cli_predicted *p)
{
	if (p->spread) {
		fo_doc_heading(d, "Steps that differ");
		fo_cli_spread_say(d, p->spread, &p->timeline->fleet);
		fo_doc_remark(
			d,
			"On top of what the prediction has: it rests on published steps, whose devices differed, too "
			"(\"rest\"). Shares are of the simulated step, in which hidden communication has no place.");
	}
	if (p->goodput) {
		fo_doc_heading(d, "The time that counts");
		fo_cli_goodput_say(d, p->goodput, &p->goodput_in);
		fo_cli_goodput_curve(d, &p->goodput_in, p->step.tokens_s * p->job.layout.devices);
	}
}

void fo_cli_predicted_doc(struct fo_doc *d, const struct fo_cli_predicted *p)
{
	fo_doc_title(d, "Prediction: %s", model_name(p));
	say_head(d, p);
	say_parts(d, p);
	say_losses(d, p);
	fo_cli_predicted_lanes(d, p);
	say_draws(d, p);
	say_sure(d, p);
}

/* ---- JSON ---- */

void fo_cli_json_range(struct fo_json *j, const char *key, double mid, struct fo_range r)
{
	fo_json_record(j, key, FO_REAL("low", r.low), FO_REAL("mid", mid), FO_REAL("high", r.high));
}

static void json_layout(struct fo_json *j, const struct fo_cli_predicted *p)
{
	const struct fo_predict_layout *l = &p->job.layout;
	fo_json_record(j, "layout", FO_REAL("devices", l->devices), FO_REAL("dp", p->step.dp),
		       FO_REAL("tp", fmax(1, l->tp)), FO_REAL("cp", fmax(1, l->cp)), FO_REAL("pp", fmax(1, l->pp)),
		       FO_REAL("ep", fmax(1, l->ep)), FO_REAL("chunks", fmax(1, l->chunks)), FO_REAL("zero", l->zero),
		       FO_REAL("shard", l->shard > 0 ? l->shard : p->step.dp * fmax(1, l->cp)),
		       FO_BOOL("sequence_parallel", l->sp), FO_REAL("micro_batch", l->micro_batch),
		       FO_REAL("micro_batches", p->step.micro_batches),
		       FO_REAL("global_batch", p->job.shape.global_batch), FO_REAL("seq", p->job.shape.seq),
		       FO_REAL("recompute", l->recompute), FO_REAL("first_layers", l->uneven.first),
		       FO_REAL("middle_layers", l->uneven.middle), FO_REAL("last_layers", l->uneven.last));
}

static void json_sure(struct fo_json *j, const struct fo_cli_predicted *p)
{
	fo_json_array(j, "rests_on");
	for (int i = 0; i < p->sure.rests; i++)
		fo_json_record(j, NULL, FO_TEXT("ground", fo_predict_ground_name[p->sure.rest[i].ground]),
			       FO_TEXT("what", p->sure.rest[i].what), FO_REAL("value", p->sure.rest[i].value),
			       FO_TEXT("origin", p->sure.rest[i].origin));
	fo_json_close(j);
	fo_json_array(j, "moves_most");
	for (int i = 0; i < p->sure.terms; i++)
		fo_json_record(j, NULL, FO_TEXT("what", p->sure.term[i].what),
			       FO_REAL("seconds", p->sure.term[i].seconds));
	fo_json_close(j);
	fo_json_text(j, "flag", p->sure.flag);
	fo_json_text(j, "size_doubt", p->sure.size);
	fo_json_array(j, "assumed");
	for (int i = 0; i < p->asked->notes; i++)
		fo_json_text(j, NULL, p->asked->note[i]);
	for (int i = 0; i < p->job.inferences; i++)
		fo_json_text(j, NULL, p->job.inferred[i]);
	fo_json_close(j);
	fo_json_texts(j, "unread", p->asked->job.unread, p->asked->job.unread_count);
}

void fo_cli_predicted_json(struct fo_json *j, const struct fo_cli_predicted *p)
{
	const struct fo_cluster *c = &p->asked->cluster;
	double usable = p->job.job.machine.memory_bytes;
	fo_json_put(j, FO_TEXT("model", model_name(p)), FO_TEXT("device", c->device->name),
		    FO_REAL("devices", c->devices), FO_REAL("nodes", c->nodes),
		    FO_TEXT("style", fo_predict_style[p->job.job.style].name),
		    FO_TEXT("type", fo_cli_job_type_name(p->asked, p->job.job.type)));
	json_layout(j, p);
	fo_cli_json_range(j, "step_seconds", p->step.seconds, p->sure.seconds);
	fo_cli_json_range(j, "tokens_per_second_per_device", p->step.tokens_s, p->sure.tokens_s);
	fo_cli_json_range(j, "mfu", p->step.mfu, over(p, p->step.mfu));
	fo_cli_json_range(j, "mfu_causal", p->step.mfu_causal, over(p, p->step.mfu_causal));
	fo_cli_json_range(j, "mfu_bf16_causal", p->step.mfu_bf16_causal, over(p, p->step.mfu_bf16_causal));
	fo_json_object(j, "parts_seconds");
	for (int i = 0; i < FO_PREDICT_PARTS; i++)
		fo_json_real(j, fo_predict_part_name[i], p->step.part[i]);
	fo_json_close(j);
	fo_json_object(j, "parts_intervals_seconds");
	for (int i = 0; i < FO_PREDICT_PARTS; i++)
		fo_cli_json_range(j, fo_predict_part_name[i], p->step.part[i], p->sure.part[i]);
	fo_json_close(j);
	json_bubble(j, p);
	fo_cli_json_range(j, "memory_bytes", p->step.bytes, p->sure.bytes);
	fo_json_bool(j, "memory_planned", p->step.planned);
	fo_json_text(j, "memory_not_planned", p->not_planned);
	fo_json_object(j, "memory_parts_bytes");
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++)
		fo_json_real(j, fo_predict_memory_name[i], p->step.memory[i]);
	fo_json_close(j);
	fo_json_object(j, "memory_intervals_bytes");
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++)
		fo_cli_json_range(j, fo_predict_memory_name[i], p->step.memory[i], p->sure.memory[i]);
	fo_json_close(j);
	fo_json_put(j, FO_REAL("usable_bytes", usable), FO_TEXT("fit", fit_text(p)), FO_TEXT("would_fit", p->fits_not));
	if (p->timeline)
		fo_json_real(j, "simulated_seconds", p->timeline->run.step_s);
	if (p->spread)
		fo_cli_spread_json(j, p->spread, &p->timeline->fleet);
	if (p->goodput) {
		fo_cli_goodput_json(j, p->goodput, &p->goodput_in);
		fo_cli_goodput_curve_json(j, &p->goodput_in);
	}
	json_sure(j, p);
}
