/* flatout diagnose: where the time of a trace went. */
#include "cli/cli.h"

#include "base/fs.h"
#include "base/mem.h"
#include "health/health.h"
#include "report/diagnose_doc.h"
#include "trace/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct diagnose {
	const char *json, *html, *model, *device, *dtype, *job, *cluster;
	int64_t seq, tokens_per_step;
	double steps, step_seconds, price;
	bool force, whole_trace, exclude_unlinked, brief;
};

static const struct fo_opt rows[] = {
	FO_OPT_OUTPUT(struct diagnose, html, "diagnose.html", "PATH", NULL, "one self-contained page into a file",
		      FO_OUTPUT_PAGE),
	FO_OPT_PATH(struct diagnose, model, "diagnose.model", "M", NULL,
		    "what was trained, for MFU: preset, name on Hugging Face, config.json, or a folder with one"),
	FO_OPT_LENGTH(struct diagnose, seq, "diagnose.seq", "S", NULL, 1, 1 << 30, "sequence length (with --model)"),
	FO_OPT_LENGTH(struct diagnose, tokens_per_step, "diagnose.tokens-per-step", "N", NULL, 1, 1e15,
		      "tokens of one step of the whole job (with --model)"),
	FO_OPT_REAL(struct diagnose, steps, "diagnose.steps", "N", NULL, 1e-6, 1e12, "",
		    "of a trace that shows no steps: how many it covers, for MFU"),
	FO_OPT_REAL(struct diagnose, step_seconds, "diagnose.step-seconds", "T", NULL, 1e-9, 1e9, "s",
		    "the same by the time of one step, as the trainer logs it"),
	FO_OPT_TEXT(struct diagnose, device, "diagnose.device", "D", NULL,
		    "accelerator: 'flatout devices' lists them; without it by the trace's own name"),
	FO_OPT_TEXT(struct diagnose, dtype, "diagnose.dtype", "TYPE", NULL,
		    "precision of the dense peak: fp32, tf32, fp16, bf16, fp8, fp4; without it that of most matmuls"),
	FO_OPT_REAL(struct diagnose, price, "diagnose.price", "USD", NULL, 1e-6, 1e6, "USD/h",
		    "of one device, for what losses cost"),
	FO_OPT_PATH(
		struct diagnose, job, "diagnose.job", "FILE", NULL,
		"the job's configuration, or a folder with its files: then what each of its settings is worth, once"),
	FO_OPT_PATH(struct diagnose, cluster, "diagnose.cluster", "C", NULL,
		    "with --job, where it runs: 16xHGX-H100, 128xA100, or a YAML file"),
	FO_OPT_BOOL(struct diagnose, brief, "diagnose.brief", "false",
		    "only the answer, and the findings' titles with what they are worth"),
	FO_OPT_BOOL(struct diagnose, whole_trace, "diagnose.whole-trace", "false",
		    "no steps: every GPU operation from the first to the last, kinds as recorded"),
	FO_OPT_BOOL(struct diagnose, exclude_unlinked, "diagnose.exclude-unlinked", "false",
		    "the whole trace without GPU operations that have no launch record"),
	FO_CLI_OUTPUT_ROWS(struct diagnose, "diagnose",
			   "JSON on standard output instead of text; into a file beside it")
};

/* Writes the diagnosis as JSON, as a page and, unless one of them goes to standard output, as text. */
static fo_status write_outputs(const struct diagnose *in, const struct fo_doc *doc, const struct fo_doc *text,
			       struct fo_str *json)
{
	fo_status st = FO_OK;
	bool printed = in->json && !strcmp(in->json, "-");
	if (printed)
		fwrite(json->data, 1, json->len, stdout);
	else if (in->json)
		st = fo_fs_write_atomic(in->json, json->data, json->len);
	fo_str_fini(json);
	if (st == FO_OK && in->html)
		st = fo_cli_page(doc, in->html);
	if (st == FO_OK && !printed && !(in->html && !strcmp(in->html, "-")))
		fo_cli_print(stdout, text);
	return st;
}

/* A log of a pipeline schedule (fo_schedule_is) instead of traces. */
static fo_status diagnose_schedule(const struct diagnose *in, const char *path, bool *serious)
{
	struct fo_schedule_log *s;
	struct fo_schedule_diagnosis d;
	struct fo_str json = { 0 };
	FO_TRY(fo_schedule_open(&s, path));
	fo_status st = fo_schedule_diagnose(&d, s);
	if (st == FO_OK) {
		struct fo_doc doc = { 0 };
		*serious = d.serious;
		fo_schedule_doc(&doc, &d);
		if (in->json)
			fo_schedule_diagnosis_json(&d, &json);
		st = write_outputs(in, &doc, &doc, &json);
		fo_doc_fini(&doc);
		fo_schedule_diagnosis_fini(&d);
	}
	fo_schedule_free(s);
	return st;
}

/* Traces and configuration as one job: a setting that both speak of has one worth, the trace's where it shows one, else
 * the predicted one. *h outlives the document. */
static fo_status add_settings(const struct diagnose *in, const char *const *path, int n, struct fo_health *h,
			      struct fo_doc *doc)
{
	const struct fo_health_given given = { .model = in->model,
					       .cluster = in->cluster,
					       .device = in->device,
					       .dtype = in->dtype,
					       .seq = (double)in->seq,
					       .tokens_per_step = (double)in->tokens_per_step,
					       .mfu = fo_range(NAN),
					       .rent = in->price > 0 ? fo_range(in->price) : fo_range(NAN),
					       .year = fo_range(1) };
	const char **all = fo_xmalloc((size_t)(n + 1) * sizeof *all);
	for (int i = 0; i < n; i++)
		all[i] = path[i];
	all[n] = in->job;
	fo_status st = fo_health_make(h, all, n + 1, &given);
	free(all);
	FO_TRY(st);
	const struct fo_health_file *f;
	if (fo_health_unused(h, &f))
		return fo_fail(f->st, "'%s' is not used: %s", f->path, f->why);
	if (!h->configured)
		return fo_fail(FO_EFORMAT, "'%s' has no configuration of a training", in->job);
	if (h->trace_apart)
		return fo_fail(FO_EARG, "trace and configuration are not of one job: %s", h->trace_apart);
	fo_doc_heading(doc, "What each setting is worth, with the configuration");
	fo_health_changes_doc(h, doc);
	return FO_OK;
}

/* With a configuration, what each setting is worth stands beside the findings, as health writes it. */
static void write_json(const struct fo_diagnosis *d, const struct fo_health *settings, struct fo_str *out)
{
	struct fo_json j;
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	fo_diagnosis_json(d, &j);
	if (settings)
		fo_health_changes_json(settings, &j);
	fo_json_close(&j);
}

static fo_status diagnose_traces(const struct diagnose *in, const char *const *path, int n, bool *serious)
{
	struct fo_trace_set set;
	struct fo_diagnosis d;
	struct fo_doc doc = { 0 }, answer = { 0 };
	struct fo_str json = { 0 };
	struct fo_health health = { 0 };
	const struct fo_diagnose_options with = {
		.ledger = { .whole_trace = in->whole_trace, .exclude_unlinked = in->exclude_unlinked },
		.model = in->model,
		.seq = in->seq,
		.tokens_per_step = in->tokens_per_step,
		.steps = in->steps,
		.step_s = in->step_seconds,
		.device = in->device,
		.dtype = in->dtype,
		.price_per_hour = in->price > 0 ? in->price : NAN,
	};
	if (in->cluster && !in->job)
		return fo_hint(fo_fail(FO_EARG, "--cluster is where a configuration runs"), "give it with --job FILE");
	if (in->steps > 0 && in->step_seconds > 0)
		return fo_fail(FO_EARG, "--steps and --step-seconds say the same: give one of them");
	FO_TRY(fo_trace_set_open(&set, path, n));
	fo_status st;
	FO_TRY_OR(st, fo_diagnose(&d, &set, &with), done);
	fo_diagnose_doc(&doc, &d, false);
	st = in->job ? add_settings(in, path, n, &health, &doc) : FO_OK;
	if (st == FO_OK && in->brief)
		fo_diagnose_doc(&answer, &d, true);
	if (st == FO_OK && in->json)
		write_json(&d, in->job ? &health : NULL, &json);
	if (st == FO_OK)
		st = write_outputs(in, &doc, in->brief ? &answer : &doc, &json);
	*serious = d.judged != FO_JUDGED_HEALTHY;
	fo_doc_fini(&answer);
	fo_doc_fini(&doc);
	fo_diagnosis_fini(&d);
	if (in->job)
		fo_health_fini(&health);
done:
	fo_trace_set_fini(&set);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const char *const *path = (const char *const *)call->argv + 1;
	int n = call->argc - 1;
	bool serious = false;
	if (!n)
		return fo_hint(fo_fail(FO_EARG, "no trace"), "flatout diagnose trace.json.gz");
	if (fo_schedule_is(*path)) {
		const struct diagnose *in = call->in;
		if (in->job)
			return fo_fail(FO_EARG, "--job goes with traces, and '%s' is a log of a pipeline's schedule",
				       *path);
		for (int i = 1; i < n; i++)
			if (!fo_schedule_same(*path, path[i]))
				return fo_fail(FO_EARG, "'%s' and '%s' are not one pipeline schedule's log", *path,
					       path[i]);
		FO_TRY(diagnose_schedule(call->in, *path, &serious));
	} else {
		FO_TRY(diagnose_traces(call->in, path, n, &serious));
	}
	return serious ? fo_cli_found() : FO_OK;
}

const struct fo_command fo_cmd_diagnose = {
	.name = "diagnose",
	.group = "diagnose",
	.usage = "flatout diagnose TRACE... [--model M --seq S --tokens-per-step N [--steps N|--step-seconds T]] "
		 "[--device D] [--dtype TYPE] [--price USD] [--job FILE [--cluster C]] [--json[=PATH]] "
		 "[--html PATH|-] [--force] [--brief] [--whole-trace] [--exclude-unlinked]",
	.summary = "where the time of a profiler's trace went, and what would help",
	.text = "Reads what PyTorch's profiler (.json, .json.gz, .json.zst) or Nsight Systems (its SQLite export) "
		"recorded of a training run, a file, several, or a folder, and divides the time of each device "
		"into parts that add up to exactly 100 %: computation by what it was for, communication and copies "
		"that nothing hides, idleness by its cause. A step on the device is what was launched in the "
		"host's step. docs/metrics.md defines every part.\n\n"
		"Findings name the bottleneck and the runner-up with the events behind them, a setting of the "
		"framework in use, and what changing it would gain: an estimate with its interval "
		"(docs/diagnosis-rules.md). With --model, --seq and --tokens-per-step, or recorded shapes, each "
		"loss is told in points of MFU; with --price in dollars. With --job, the job's configuration, each of "
		"its settings has one worth: the trace's where it shows one, else a predicted one.\n\n"
		"  flatout diagnose trace.json.gz\n"
		"  flatout diagnose profile/ --json=ledger.json\n"
		"  flatout diagnose profile/ --model llama-3.1-8b --seq 8192 \\\n"
		"      --tokens-per-step 524288 --price 2.50 --html report.html\n"
		"  flatout diagnose profile/ --job pretrain.sh --cluster 16xHGX-H100\n"
		"  flatout diagnose trace.json --whole-trace --json\n\n"
		"Exit status: 0; 1 for a serious finding, or a trace that cannot be diagnosed; 2 for wrong "
		"arguments (an MFU above 100 % among them) or what is no trace; 3 for what cannot be read or "
		"written.",
	.opts = rows,
	.json_beside = true,
	.act = run,
	.size = sizeof(struct diagnose),
	.most = FO_CLI_ANY,
};
