/* flatout train: run a run file. */
#include "cli/engine/screen.h"

#include <stdlib.h>

struct train {
	struct fo_run run;
	bool dry_run, force;
	const char *json;
};
static const struct fo_opt extra[] = {
	FO_OPT_BOOL(struct train, dry_run, "cli.dry-run", "false",
		    "show the model, the memory plan and the kernels, then stop"),
	FO_CLI_OUTPUT_ROWS(struct train, "cli",
			   "print the result (of a dry run the plan) as JSON, progress on standard error")
};

static fo_status run(const struct fo_cli_call *call)
{
	const struct train *in = call->in;
	struct fo_screen screen;
	struct fo_train_hooks hooks;
	struct fo_train_result result = { 0 };
	fo_status st = FO_OK;
	fo_screen_init(&screen, &in->run, in->json);
	screen.plan = in->dry_run ? call->json : NULL;
	screen.plan_is_all = in->dry_run;
	fo_screen_hooks(&screen, &hooks);
	hooks.dry_run = in->dry_run;
	hooks.options = call->options;
	char *run_json = fo_screen_run_json(call->options);
	hooks.run_json = run_json;
	fo_catch_signals();
	if (in->run.verify != FO_VERIFY_AT_START_OFF && !in->dry_run)
		st = fo_cli_verify_at_start(in->run.verify == FO_VERIFY_AT_START_SHORT, (int)in->run.threads,
					    in->run.device, screen.out);
	if (st == FO_OK) {
		st = fo_train(&in->run, &hooks, &result);
		fo_screen_end_line(&screen);
	}
	if (st == FO_OK && !in->dry_run) {
		if (!result.steps)
			fprintf(screen.out,
				"nothing to do: train.steps is %lld, and the run has as many; a larger one goes on\n",
				(long long)in->run.steps);
		fo_screen_summary(&screen, &result);
		if (call->json)
			fo_screen_summary_json(&result, call->json);
	}
	fo_train_result_fini(&result);
	free(run_json);
	return st;
}

const struct fo_command fo_cmd_train = {
	.name = "train",
	.group = "train",
	.usage = "flatout train run.yaml [--KEY=VALUE ...] [--dry-run] [--json]",
	.summary = "train a Llama on text; Ctrl-C saves, the same command goes on",
	.text = "The run directory (run.dir) gets the configuration with origins, the step program, a JSON line per "
		"step, the timeline and checkpoints in Hugging Face layout. The same seed, threads and instruction set "
		"give the same bits, interrupted or not.\n\n"
		"  flatout init run.yaml --data.path=books/\n  flatout train run.yaml --dry-run\n  flatout train "
		"run.yaml --train.steps=2000\n  flatout train run.yaml --model.weights=DIR   (a Hugging Face "
		"folder)\n\n"
		"FLATOUT_ISA=ref|avx2|avx512|avx512bf16|amx lowers the instruction set.\n",
	.opts = fo_run_options,
	.own = extra,
	.writes = FO_OUTPUT_RUN,
	.act = run,
	.size = sizeof(struct train),
	.most = 1,
	.spin = FO_SPIN_TRAINING,
};
