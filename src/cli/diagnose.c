/* flatout diagnose: where the time of a trace went. */
#include "cli/cli.h"

#include "base/fs.h"
#include "report/diagnose_doc.h"
#include "trace/schedule.h"

#include <math.h>
#include <string.h>

struct diagnose {
	const char *json, *html, *model, *device, *dtype;
	int64_t seq, tokens_per_step;
	double steps, step_seconds, price;
	bool force, whole_trace, exclude_unlinked, brief;
};

static const struct fo_opt rows[] = {
	FO_OPT_JSON(struct diagnose, json, "diagnose.json",
		    "JSON on standard output instead of text; into a file beside it"),
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
	FO_OPT_BOOL(struct diagnose, brief, "diagnose.brief", "false",
		    "only the answer, and the findings' titles with what they are worth"),
	FO_OPT_BOOL(struct diagnose, whole_trace, "diagnose.whole-trace", "false",
		    "no steps: every GPU operation from the first to the last, kinds as recorded"),
	FO_OPT_BOOL(struct diagnose, exclude_unlinked, "diagnose.exclude-unlinked", "false",
		    "the whole trace without GPU operations that have no launch record"),
	FO_OPT_FORCE(struct diagnose, force, "diagnose.force"),
	FO_OPT_END
};

/* The command writes its outputs to these paths; "-" is standard output, NULL means none. */
struct outputs {
	const char *json, *html;
	bool text;
};

static fo_status write_output(const char *path, struct fo_str *out)
{
	fo_status st = FO_OK;
	if (strcmp(path, "-"))
		st = fo_fs_write_atomic(path, out->data, out->len);
	else
		fwrite(out->data, 1, out->len, stdout);
	fo_str_fini(out);
	return st;
}

static fo_status write_page(const struct fo_doc *doc, const char *path)
{
	struct fo_str out = { 0 };
	if (!path)
		return FO_OK;
	fo_doc_to_html(doc, &out);
	return write_output(path, &out);
}

static fo_status write_diagnosis(const struct fo_diagnosis *d, const struct outputs *to, bool brief)
{
	struct fo_doc doc = { 0 }, answer = { 0 };
	struct fo_str json = { 0 };
	fo_status st = FO_OK;
	fo_diagnose_doc(&doc, d, false);
	if (to->json) {
		fo_diagnosis_json(d, &json);
		st = write_output(to->json, &json);
	}
	if (st == FO_OK)
		st = write_page(&doc, to->html);
	if (brief)
		fo_diagnose_doc(&answer, d, true);
	if (st == FO_OK && to->text)
		fo_cli_print(brief ? &answer : &doc);
	fo_doc_fini(&answer);
	fo_doc_fini(&doc);
	return st;
}

/* A log of a pipeline schedule (fo_schedule_is) instead of traces. */
static fo_status diagnose_schedule(const char *path, const struct outputs *to, bool *serious)
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
		if (to->json) {
			fo_schedule_diagnosis_json(&d, &json);
			st = write_output(to->json, &json);
		}
		if (st == FO_OK)
			st = write_page(&doc, to->html);
		if (st == FO_OK && to->text)
			fo_cli_print(&doc);
		fo_doc_fini(&doc);
		fo_schedule_diagnosis_fini(&d);
	}
	fo_schedule_free(s);
	return st;
}

static fo_status run(int argc, char **argv)
{
	struct diagnose in;
	struct fo_opt_set s;
	struct fo_trace_set set = { 0 };
	struct fo_diagnosis d = { 0 };
	bool serious = false;
	fo_status st;
	FO_TRY_OR(st, fo_cli_options(&fo_cmd_diagnose, &s, &in, &argc, argv), done);
	if (argc < 2) {
		st = fo_hint(fo_fail(FO_EARG, "no trace"), "flatout diagnose trace.json.gz");
		goto done;
	}
	bool page = in.html && !strcmp(in.html, "-"), json = in.json && !strcmp(in.json, "-");
	const struct outputs to = { in.json, in.html, !page && !json };
	if (page && json) {
		st = fo_fail(FO_EARG, "--html=- and --json both write to standard output: give one of them a file");
		goto done;
	}
	if (fo_schedule_is(argv[1])) {
		for (int i = 2; st == FO_OK && i < argc; i++)
			if (!fo_schedule_same(argv[1], argv[i]))
				st = fo_fail(FO_EARG, "'%s' and '%s' are not one pipeline schedule's log", argv[1],
					     argv[i]);
		if (st != FO_OK)
			goto done;
		FO_TRY_OR(st, diagnose_schedule(argv[1], &to, &serious), done);
		goto done;
	}
	if (in.steps > 0 && in.step_seconds > 0)
		FO_TRY_OR(st, fo_fail(FO_EARG, "--steps and --step-seconds say the same: give one of them"), done);
	struct fo_diagnose_options with = {
		.ledger = { .whole_trace = in.whole_trace, .exclude_unlinked = in.exclude_unlinked },
		.model = in.model,
		.seq = in.seq,
		.tokens_per_step = in.tokens_per_step,
		.steps = in.steps,
		.step_s = in.step_seconds,
		.device = in.device,
		.dtype = in.dtype,
		.price_per_hour = in.price > 0 ? in.price : NAN,
	};
	FO_TRY_OR(st, fo_trace_set_open(&set, (const char *const *)argv + 1, argc - 1), done);
	FO_TRY_OR(st, fo_diagnose(&d, &set, &with), done);
	FO_TRY_OR(st, write_diagnosis(&d, &to, in.brief), done);
	serious = d.judged != FO_JUDGED_HEALTHY;
done:
	fo_diagnosis_fini(&d);
	fo_trace_set_fini(&set);
	fo_opt_fini(&s);
	return st == FO_OK && serious ? fo_cli_found() : st;
}

const struct fo_command fo_cmd_diagnose = {
	.name = "diagnose",
	.group = "diagnose",
	.usage = "flatout diagnose TRACE... [--model M --seq S --tokens-per-step N [--steps N|--step-seconds T]] "
		 "[--device D] [--dtype TYPE] [--price USD] [--json[=PATH]] [--html PATH|-] [--force] [--brief] "
		 "[--whole-trace] [--exclude-unlinked]",
	.summary = "where the time of a profiler's trace went, and what would help",
	.text = "Reads what PyTorch's profiler (.json, .json.gz, .json.zst) or Nsight Systems (its\n"
		"SQLite export) recorded of a training run, a file, several, or a folder, and\n"
		"divides the time of each device into parts that add up to exactly 100 %:\n"
		"computation by what it was for, communication and copies that nothing hides,\n"
		"idleness by its cause. A step on the device is what was launched in the host's\n"
		"step. docs/metrics.md defines every part.\n"
		"\n"
		"Findings name the bottleneck and the runner-up with the events behind them, a\n"
		"setting of the framework in use, and what changing it would gain: an estimate\n"
		"with its interval (docs/diagnosis-rules.md). With --model, --seq and\n"
		"--tokens-per-step, or recorded shapes, each loss is told in points of MFU; with\n"
		"--price in dollars.\n"
		"\n"
		"  flatout diagnose trace.json.gz\n"
		"  flatout diagnose profile/ --json=ledger.json\n"
		"  flatout diagnose profile/ --model llama-3.1-8b --seq 8192 \\\n"
		"      --tokens-per-step 524288 --price 2.50 --html report.html\n"
		"  flatout diagnose trace.json --whole-trace --json\n"
		"\n"
		"Exit status: 0; 1 for a serious finding, or a trace that cannot be diagnosed; 2 for\n"
		"wrong arguments (an MFU above 100 % among them) or what is no trace; 3 for what\n"
		"cannot be read or written.",
	.opts = rows,
	.json_beside = true,
	.run = run,
};
