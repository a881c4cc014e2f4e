/* flatout ladder --plan: a ladder that is predicted, for a job of any framework on any cluster. */
#include "cli/predict_cluster.h"

#include "ladder/predicted.h"

#include <math.h>
#include <string.h>

struct ladder_plan {
	struct fo_cli_job job;
	const char *html, *json;
	bool plan, force;
};
static const struct fo_opt rows[] = {
	FO_CLI_JOB_ROWS(struct ladder_plan, "ladder"),
	FO_OPT_BOOL(struct ladder_plan, plan, "ladder.plan", "false", "predict the ladder; nothing is run"),
	FO_OPT_OUTPUT(struct ladder_plan, html, "ladder.html", "FILE", NULL, "a page", FO_OUTPUT_PAGE),
	FO_CLI_OUTPUT_ROWS(struct ladder_plan, "ladder", "JSON on standard output"),
};

struct shown {
	const struct fo_cli_asked *a;
	const struct fo_predicted_ladder *l;
	const char *assumed; /* of the baseline; NULL */
};

/* ---- words ---- */

static const char *times(struct fo_doc *d, const struct fo_predict_gain *g)
{
	return isnan(g->times) ? "-" : fo_doc_printf(d, "%.3f", g->times);
}

static const char *interval(struct fo_doc *d, const struct fo_predict_gain *g)
{
	return isnan(g->times) ? "-" : fo_doc_printf(d, "%.2f-%.2f", g->range.low, g->range.high);
}

/* The word for the rung as it stands in the chain. */
static const char *verdict(const struct fo_predicted_rung *r)
{
	const struct fo_predict_gain *g = &r->step;
	if (r->state != FO_RUNG_TAKEN && r->state != FO_RUNG_LOSES && r->state != FO_RUNG_BESIDE)
		return fo_rung_state_name[r->state];
	if (g->rests_on_guess || isnan(g->times))
		return "not known";
	if (g->range.low <= 1 && g->range.high >= 1)
		return r->state == FO_RUNG_TAKEN && g->times < 1.0001 ? "saves memory" : "not resolved";
	return g->times > 1 ? "gain" : "LOSS";
}

static bool tried(const struct fo_predicted_rung *r)
{
	return r->state == FO_RUNG_TAKEN || r->state == FO_RUNG_LOSES || r->state == FO_RUNG_BESIDE;
}

static const char *division(struct fo_doc *d, const struct fo_job_asked *j, const struct fo_predict_step *s)
{
	struct fo_division x;
	fo_division_of(&j->layout, s->dp, &x);
	return fo_doc_printf(d, "%s, micro-batch %.15g, %s", fo_cli_division(d, &x, false), j->layout.micro_batch,
			     fo_cli_recompute(d, &j->layout));
}

static const char *step_text(struct fo_doc *d, const struct fo_predict_step *s, const struct fo_predict_certainty *sure)
{
	double unit = 1; /* the figure's, for its interval */
	while (s->tokens_s / unit >= 999.5)
		unit *= 1000;
	return fo_doc_printf(d, "%.1f %% mfu_causal, %s a device (%.3g to %.3g), %s of memory", 100 * s->mfu_causal,
			     fo_doc_si(d, s->tokens_s, "tok/s"), sure->tokens_s.low / unit, sure->tokens_s.high / unit,
			     fo_doc_num(d, s->bytes, FO_DRAW_BYTES));
}

/* ---- text and page ---- */

static void say_head(struct fo_doc *d, const struct shown *w)
{
	const struct fo_predicted_ladder *l = w->l;
	const struct fo_cluster *c = &w->a->cluster;
	const struct fo_predict_gain *all = &l->rung[l->rungs - 1].together;
	fo_doc_title(d, "Predicted ladder: %s", w->a->job.model.name);
	fo_doc_line(d, "ladder", "%s on %.15g x %s, %s, predicted: nothing was run", w->a->job.model.name, c->devices,
		    c->device->name, fo_cli_job_type_name(w->a, l->baseline.job.type));
	fo_doc_line(d, "baseline", "%s: %s", division(d, &l->baseline, &l->base_step),
		    step_text(d, &l->base_step, &l->base_sure));
	if (all->times > 1)
		fo_doc_verdict(d, all->range.low > 1 ? FO_DOC_GOOD : FO_DOC_PLAIN, "together",
			       "%.2f x (%.2f to %.2f)%s: %s; %s", all->times, all->range.low, all->range.high,
			       all->rests_on_guess ? ", which rests on guesses" : "",
			       division(d, &l->top, &l->top_step), step_text(d, &l->top_step, &l->top_sure));
	else
		fo_doc_line(d, "together", "no change gains: the configuration has what a prediction can tell");
	if (l->baseline.shape.global_batch != l->top.shape.global_batch)
		fo_doc_line(d, "batch", "a step goes from %.15g to %.15g sequence%s; --global-batch fixes it",
			    l->baseline.shape.global_batch, l->top.shape.global_batch,
			    fo_plural(l->top.shape.global_batch));
	if (!l->base_fits)
		fo_doc_verdict(d, FO_DOC_BAD, "doubt", "the baseline itself may not fit in memory");
	fo_cli_say_doubts(d, NULL, l->top_sure.flag, l->top_sure.size);
	if (w->assumed)
		fo_doc_line(d, "assumed", "%s", w->assumed);
	for (int i = 0; i < w->a->notes; i++)
		fo_doc_line(d, "assumed", "%s", w->a->note[i]);
	if (c->nodes > 1 && c->net_assumed && !fo_range_known(w->a->given.net_gb_s))
		fo_doc_line(d, "network",
			    "nobody stated it: %.3g GB/s a device, the usual adapter; --measured-bandwidth says what "
			    "collectives reach on yours",
			    l->baseline.job.machine.net_byte_s / 1e9);
}

static enum fo_draw_tone tone_of(const char *verdict)
{
	if (!strcmp(verdict, "gain"))
		return FO_DRAW_PLAIN;
	return strcmp(verdict, "LOSS") ? FO_DRAW_DOUBTFUL : FO_DRAW_BAD;
}

static void picture(struct fo_doc *d, const struct fo_predicted_ladder *l)
{
	struct fo_draw_bar_row *row = fo_doc_alloc(d, (size_t)l->rungs * sizeof *row);
	size_t n = 0;
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_predicted_rung *r = &l->rung[i];
		if (!tried(r))
			continue;
		const char *word = verdict(r);
		row[n++] = (struct fo_draw_bar_row){
			.name = r->title,
			.note = word,
			.value = fo_doc_printf(d, "%.2f x (%.2f to %.2f)", r->step.times, r->step.range.low,
					       r->step.range.high),
			.bar = { { r->step.times, r->step.range.low, r->step.range.high },
				 { r->alone.times, NAN, NAN } },
			.tone = tone_of(word),
		};
	}
	const struct fo_draw_bars c = {
		.title = "What each change gains, as predicted",
		.desc = "Bars begin at 1, no change; whiskers are 80 % intervals. A hatched bar's "
			"interval holds 1, or rests on guesses.",
		.unit = FO_DRAW_FACTOR,
		.lo = 1,
		.hi = 1,
		.bar_name = { "on top of those above", "alone, from the baseline" },
		.row = row,
		.rows = n
	};
	fo_doc_only(d, FO_DOC_PAGE);
	fo_doc_bars(d, &c);
	fo_doc_only(d, FO_DOC_BOTH);
}

static void say_rungs(struct fo_doc *d, const struct fo_predicted_ladder *l)
{
	fo_doc_heading(d, "One change after the other");
	picture(d, l);
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrrrrl", "rung", "gain", "80 %", "alone", "all", "MFU%", "GiB",
		     "verdict");
	fo_doc_row(d, "baseline", "-", "-", "-", "1.000", fo_doc_printf(d, "%.1f", 100 * l->base_step.mfu_causal),
		   fo_doc_printf(d, "%.0f", l->base_step.bytes / 0x1p30), "baseline");
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_predicted_rung *r = &l->rung[i];
		bool on = r->state == FO_RUNG_TAKEN;
		const char *together = "-", *mfu = "-", *memory = "-";
		if (on) {
			together = times(d, &r->together);
			mfu = fo_doc_printf(d, "%.1f", 100 * r->mfu_causal);
			memory = fo_doc_printf(d, "%.0f", r->bytes / 0x1p30);
		}
		fo_doc_row(d, r->id, times(d, &r->step), interval(d, &r->step), times(d, &r->alone), together, mfu,
			   memory, verdict(r));
	}
	fo_doc_para(
		d, "Gain: tokens/s on top of the rungs above that were taken, with its 80 %% interval; alone: from the "
		   "baseline; all: of the chain up to here. A rung whose form is a choice takes the fastest that fits. "
		   "MFU is mfu_causal of the peak of its type. What loses or does not fit is left out of the chain; "
		   "fp8 stands beside it, on top of all of it.");
	fo_doc_heading(d, "What each rung changes");
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_predicted_rung *r = &l->rung[i];
		const char *what = r->change ? r->change : fo_rung_state_name[r->state];
		if (r->change_alone && (!r->change || strcmp(r->change, r->change_alone)))
			what = fo_doc_printf(d, "%s; alone: %s", what, r->change_alone);
		if (r->step.guess && r->step.rests_on_guess)
			what = fo_doc_printf(d, "%s; its gain rests on a guess: %s", what, r->step.guess);
		fo_doc_item(d, "%s (%s, %s): %s", r->id, r->title, r->section, what);
	}
	fo_doc_remark(
		d,
		"Sections are those of Lambda's \"Reproducible MFU optimization techniques\" (2026), whose changes "
		"these are. What it does besides and no prediction knows: %s.",
		fo_predicted_unknown);
}

/* ---- JSON ---- */

static void json_gain(struct fo_json *j, const char *key, const struct fo_predict_gain *g)
{
	fo_json_record(j, key, FO_REAL("gain", g->times), FO_REAL("low", g->range.low), FO_REAL("high", g->range.high),
		       FO_BOOL("rests_on_guess", g->rests_on_guess));
}

static void json_end(struct fo_json *j, const char *key, const struct fo_job_asked *a, const struct fo_predict_step *s,
		     const struct fo_predict_certainty *sure)
{
	fo_json_record(j, key, FO_REAL("dp", s->dp), FO_REAL("tp", fmax(1, a->layout.tp)),
		       FO_REAL("pp", fmax(1, a->layout.pp)), FO_REAL("cp", fmax(1, a->layout.cp)),
		       FO_REAL("micro_batch", a->layout.micro_batch), FO_REAL("global_batch", a->shape.global_batch),
		       FO_REAL("recompute", a->layout.recompute), FO_REAL("step_seconds", s->seconds),
		       FO_REAL("tokens_per_second_per_device", s->tokens_s),
		       FO_REAL("tokens_per_second_per_device_low", sure->tokens_s.low),
		       FO_REAL("tokens_per_second_per_device_high", sure->tokens_s.high), FO_REAL("mfu", s->mfu),
		       FO_REAL("mfu_causal", s->mfu_causal), FO_REAL("memory_bytes", s->bytes));
}

static void write_json(struct fo_json *j, const struct shown *w)
{
	const struct fo_predicted_ladder *l = w->l;
	fo_json_put(j, FO_TEXT("of", "ladder_plan"), FO_TEXT("model", w->a->job.model.name),
		    FO_TEXT("device", w->a->cluster.device->name), FO_REAL("devices", w->a->cluster.devices),
		    FO_REAL("seq", l->baseline.shape.seq), FO_TEXT("assumed", w->assumed));
	json_end(j, "baseline", &l->baseline, &l->base_step, &l->base_sure);
	json_end(j, "top", &l->top, &l->top_step, &l->top_sure);
	json_gain(j, "together", &l->rung[l->rungs - 1].together);
	fo_json_array(j, "rungs");
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_predicted_rung *r = &l->rung[i];
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("id", r->id), FO_TEXT("title", r->title), FO_TEXT("section", r->section),
			    FO_TEXT("state", fo_rung_state_name[r->state]), FO_TEXT("verdict", verdict(r)),
			    FO_TEXT("change", r->change), FO_TEXT("change_alone", r->change_alone));
		json_gain(j, "step", &r->step);
		json_gain(j, "alone", &r->alone);
		json_gain(j, "together", &r->together);
		fo_json_put(j, FO_REAL("step_seconds", r->seconds), FO_REAL("mfu_causal", r->mfu_causal),
			    FO_REAL("memory_bytes", r->bytes), FO_REAL("global_batch", r->global_batch));
		fo_json_close(j);
	}
	fo_json_close(j);
}

/* ---- the command ---- */

static fo_status show(const struct fo_cli_call *call, const struct shown *w)
{
	const struct ladder_plan *in = call->in;
	struct fo_doc page = { 0 }, *d = call->json || (in->html && !strcmp(in->html, "-")) ? &page : call->doc;
	if (!call->json || in->html) {
		say_head(d, w);
		say_rungs(d, w->l);
	}
	if (call->json)
		write_json(call->json, w);
	fo_status st = in->html ? fo_cli_page(d, in->html) : FO_OK;
	fo_doc_fini(&page);
	return st;
}

static fo_status predict(const struct fo_cli_call *call, struct fo_cli_asked *a)
{
	struct fo_predicted_ladder l;
	struct shown w = { a, &l, NULL };
	if (!a->files && a->job.has_model) {
		if (a->notes) { /* a micro-batch that nobody states: the baseline has one */
			a->job.value[FO_JOB_MICRO_BATCH] = (struct fo_job_value){ .number = NAN };
			a->notes = 0;
		}
		w.assumed = fo_ladder_assume_baseline(&a->job, &a->cluster);
	}
	fo_status st = fo_ladder_predict(&l, &a->job, &a->cluster, &a->given);
	if (st == FO_OK)
		st = show(call, &w);
	fo_predicted_ladder_fini(&l);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct ladder_plan *in = call->in;
	enum { TITAN = 0 };
	struct fo_cli_asked a;
	struct fo_cli_job job = in->job;
	bool files = call->argc > 1 || job.torchtitan || job.megatron || job.deepspeed;
	if (!files && job.framework > TITAN)
		return fo_hint(fo_fail(FO_EARG, "a ladder without a configuration begins at torchtitan's own"),
			       "give the configuration of another framework's job as an argument");
	if (!files)
		job.framework = TITAN;
	fo_status st = fo_cli_job_read(call, &job, &a);
	if (st == FO_OK)
		st = predict(call, &a);
	fo_cli_job_fini(&a);
	return st;
}

const struct fo_command fo_cmd_ladder_plan = {
	.name = "ladder plan",
	.group = "plan",
	.usage = "flatout ladder --plan CONFIG... --cluster C [--html FILE] [--json]\n"
		 "flatout ladder --plan --model M --cluster C --seq S [--tp N] [...]",
	.summary = "what one change after the other would gain on any cluster, predicted",
	.text = "Takes a configuration as it is and changes one thing after the other: compiler, types, recomputation, "
		"tensor parallelism, replicas, batch, fp8. Each change stands with its gain alone and on top of those "
		"before it, as 80 % intervals of the ratio, in which what is not known of the machine cancels. What "
		"the "
		"prediction does not tell apart, what loses and what does not fit is said.\n\n"
		"Nothing is run: 'flatout ladder run.yaml' measures. --plan anywhere behind 'ladder' chooses this "
		"command.\n\n"
		"  flatout ladder --plan train.toml --cluster 2xHGX-B200\n"
		"  flatout ladder --plan --model llama-3.1-70b --cluster 2xHGX-B200 --seq 8192 \\\n"
		"      --html ladder.html\n",
	.opts = rows,
	.act = run,
	.size = sizeof(struct ladder_plan),
	.most = FO_CLI_ANY,
};
