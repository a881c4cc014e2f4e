/* flatout train: run a run file. */
#include "cli/engine/launch.h"
#include "cli/engine/screen.h"
#include "train/processes.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* ---- ranks that are processes ---- */

/* How long a rank stays after the job has ended with an error: launchers kill all ranks when one exits with another
 * code than 0, and the first is to write its message before that. */
#define STAY_S 2

/* Rank 0 alone is asked to stop, by Ctrl-C or a launcher, and ends the others: they neither print nor stop of
 * themselves. */
static void leave_signals(void (*handler)(int))
{
	signal(SIGINT, handler);
	signal(SIGTERM, handler);
	signal(SIGHUP, handler);
}

static bool serve(fo_status *st, bool *silent)
{
	struct fo_processes *p;
	int rank, ranks, local;
	if (fo_processes_launched(&rank, &ranks, &local) != FO_OK || ranks == 1 || !rank)
		return false; /* rank 0 says what is wrong with the variables */
	leave_signals(SIG_IGN);
	*st = fo_processes_join(&p, fo_version_number, false);
	if (*st == FO_OK)
		*st = fo_processes_serve(p, silent);
	else
		/* All ranks have seen the same; what a host lacks is said by one of its ranks. */
		*silent = (p && p->place) || (*st == FO_EUNSUPPORTED && local > 0);
	fo_processes_close(p, *st);
	if (*st != FO_OK) {
		leave_signals(SIG_DFL);
		fflush(stderr);
		if (*silent)
			nanosleep(&(struct timespec){ .tv_sec = STAY_S }, NULL);
	}
	return true;
}

void fo_launch_ranks_are(struct fo_opt_set *s, const struct fo_run *r, int ranks)
{
	char text[24];
	if (fo_opt_given(s, "mesh.ranks") && r->ranks != ranks)
		fo_opt_problem(s,
			       "mesh.ranks=%lld, and %d processes were started: start as many, or leave mesh.ranks out",
			       (long long)r->ranks, ranks);
	else if (r->link_gbps > 0 || r->link_us > 0)
		fo_opt_problem(s,
			       "mesh.link-%s emulates links between threads of one process, and %d processes were "
			       "started: leave it out",
			       r->link_gbps > 0 ? "gbps" : "us", ranks);
	snprintf(text, sizeof text, "%d", ranks);
	fo_opt_set_text(s, "mesh.ranks", text, FO_ORIGIN_ENV, "the launcher");
}

/* The run file, and what follows from a launcher: it has started as many ranks as there are. */
static fo_status prepare(struct fo_opt_set *s, int argc, char **argv)
{
	const struct fo_run *r = s->target;
	int rank, ranks, local;
	if (argc > 1)
		FO_TRY(fo_cli_options_yaml(&fo_cmd_train, s, argv[1]));
	FO_TRY(fo_processes_launched(&rank, &ranks, &local));
	if (ranks > 1)
		fo_launch_ranks_are(s, r, ranks);
	return FO_OK;
}

static fo_status join(struct fo_processes **p, const struct fo_run *r)
{
	int rank, ranks, local;
	*p = NULL;
	FO_TRY(fo_processes_launched(&rank, &ranks, &local));
	return ranks > 1 ? fo_processes_join(p, fo_version_number, !strcmp(r->affinity, "auto")) : FO_OK;
}

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
	st = join(&hooks.processes, &in->run);
	if (st == FO_OK && in->run.verify != FO_VERIFY_AT_START_OFF && !in->dry_run)
		st = fo_cli_verify_at_start(in->run.verify == FO_VERIFY_AT_START_SHORT, (int)in->run.threads,
					    in->run.device, screen.out);
	if (st == FO_OK) {
		st = fo_train(&in->run, &hooks, &result);
		fo_screen_end_line(&screen);
	}
	fo_processes_close(hooks.processes, st);
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
	.processes = true,
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
	.prepare = prepare,
	.serve = serve,
	.size = sizeof(struct train),
	.most = 1,
	.spin = FO_SPIN_TRAINING,
};
