/* flatout diagnose: where the time of a trace went. */
#include "cli/cli.h"

#include "base/fs.h"
#include "cli/diagnose.h"
#include "trace/schedule.h"

#include <string.h>

struct diagnose {
	const char *json;
	bool whole_trace, exclude_unlinked;
};

static const struct fo_opt rows[] = {
	FO_OPT_TEXT(struct diagnose, json, "diagnose.json", "PATH", NULL, "JSON into a file; -: on standard output, instead of text"),
	FO_OPT_BOOL(struct diagnose, whole_trace, "diagnose.whole-trace", "false",
		    "no steps: every GPU operation from the first to the last, kinds as recorded"),
	FO_OPT_BOOL(struct diagnose, exclude_unlinked, "diagnose.exclude-unlinked", "false",
		    "the whole trace without GPU operations that have no launch record"),
	FO_OPT_END
};

static fo_status write_json(const struct fo_diagnosis *d, const char *path)
{
	struct fo_str out = { 0 };
	fo_status st = FO_OK;
	fo_diagnosis_json(d, &out);
	if (strcmp(path, "-"))
		st = fo_fs_write_atomic(path, out.data, out.len);
	else
		fwrite(out.data, 1, out.len, stdout);
	fo_str_fini(&out);
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
	if (argc == 2 && fo_schedule_is(argv[1])) {
		FO_TRY_OR(st, fo_cli_diagnose_schedule(argv[1], in.json, &serious), done);
		goto done;
	}
	struct fo_diagnose_options with = { .ledger = { .whole_trace = in.whole_trace, .exclude_unlinked = in.exclude_unlinked } };
	FO_TRY_OR(st, fo_trace_set_open(&set, (const char *const *)argv + 1, argc - 1), done);
	FO_TRY_OR(st, fo_diagnose(&d, &set, &with), done);
	if (in.json)
		FO_TRY_OR(st, write_json(&d, in.json), done);
	if (!in.json || strcmp(in.json, "-")) {
		fo_cli_diagnose_ledger(stdout, &d);
		fo_cli_diagnose_ranks(stdout, &d);
	}
	serious = d.serious;
done:
	fo_diagnosis_fini(&d);
	fo_trace_set_fini(&set);
	fo_opt_fini(&s);
	return st == FO_OK && serious ? fo_cli_found() : st;
}

const struct fo_command fo_cmd_diagnose = {
	.name = "diagnose",
	.group = "diagnose",
	.usage = "flatout diagnose TRACE... [--json PATH|-] [--whole-trace] [--exclude-unlinked]",
	.summary = "where the time of a profiler's trace went",
	.text = "Reads what PyTorch's profiler recorded of a training run (.json, .json.gz or\n"
		".json.zst; a file, several, or a folder of them, one for each rank) and divides\n"
		"the time of each device into parts that add up to exactly 100 %: computation by\n"
		"what it was for, communication and copies that nothing hides, idleness by its\n"
		"cause. A step on the device is what was launched in the host's step.\n"
		"docs/metrics.md defines every part.\n"
		"\n"
		"  flatout diagnose trace.json.gz\n"
		"  flatout diagnose profile/ --json ledger.json\n"
		"  flatout diagnose trace.json --whole-trace --json -\n"
		"\n"
		"Exit status: 0; 1 for a serious finding; 2 for what is no trace.",
	.opts = rows,
	.run = run,
};
