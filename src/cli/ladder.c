/* flatout ladder: one change at a time, measured. */
#include "cli/ladder.h"

#include "base/fs.h"
#include "hw/profile.h"

#include <string.h>

static const struct fo_opt extra[] = {
	FO_OPT_PATH(struct fo_cli_ladder, rungs, "ladder.rungs", "FILE", "",
		    "rungs of your own (YAML); empty: the built-in ones"),
	FO_OPT_INT(struct fo_cli_ladder, rounds, "ladder.rounds", "N", "5", FO_LADDER_MIN_ROUNDS, FO_LADDER_MAX_ROUNDS,
		   "rounds", "in each of which every rung trains its share of the steps"),
	FO_OPT_BOOL(struct fo_cli_ladder, show, "ladder.show", "false",
		    "print the ladder in DIR as it is; run nothing"),
	/* It makes the command that of ladder_plan.c before options are read: it stands here for help. */
	FO_OPT_BOOL(struct fo_cli_ladder, plan, "ladder.plan", "false",
		    "predict a ladder of any job on any cluster, with options of its own: 'flatout ladder plan --help' "
		    "lists them"),
	FO_OPT_BOOL(struct fo_cli_ladder, brief, "ladder.brief", "false",
		    "print only the first table: MFU, useful tokens/s, gains"),
	FO_OPT_JSON_OF(struct fo_cli_ladder, json, "ladder.json", "print ladder.json, progress on standard error",
		       FO_OUTPUT_LADDER),
	FO_OPT_FORCE(struct fo_cli_ladder, force, "ladder.force"), FO_OPT_END
};

static fo_status show(int argc, char **argv)
{
	struct fo_cli_ladder in;
	struct fo_opt_set s;
	fo_cli_options_read(&fo_cmd_ladder, &s, &in, &argc, argv);
	fo_status st = fo_opt_finish(&s);
	if (st == FO_OK)
		st = fo_cli_output_begin(&fo_cmd_ladder, &s, FO_OUTPUT_NONE);
	if (st == FO_OK)
		st = fo_cli_no_more_args(&fo_cmd_ladder, argc, argv, 1);
	/* --show prints what was measured: options that would change a measurement are refused. */
	for (int i = 0; st == FO_OK && i < s.count; i++)
		if (s.origin[i].from == FO_ORIGIN_FLAG && (argc > 1 || strcmp(s.rows[i].key, "run.dir")))
			st = fo_hint(
				fo_fail(FO_EARG, "'--%s' says nothing to --show, which runs nothing", s.rows[i].key),
				"flatout ladder DIR --show prints the ladder in DIR as it was measured");
	if (st == FO_OK)
		st = fo_cli_ladder_report(argc > 1 ? argv[1] : in.run.dir, &in, false);
	fo_opt_fini(&s);
	return st;
}

#ifndef FO_NO_ENGINE
static bool is_flag(const struct fo_opt_set *s, const char *key)
{
	return s->origin[fo_opt_find(s->rows, key)].from == FO_ORIGIN_FLAG;
}

/* A ladder is short and lies beside the run that it is about: it takes neither its steps nor its folder from a run
 * file. */
static void own_defaults(struct fo_opt_set *s, const struct fo_cli_ladder *in)
{
	char steps[24];
	snprintf(steps, sizeof steps, "%d", FO_LADDER_DEFAULT_STEPS);
	if (!is_flag(s, "train.steps"))
		fo_opt_set_text(s, "train.steps", steps, FO_ORIGIN_FLAG, "flatout ladder");
	if (!is_flag(s, "run.dir"))
		fo_opt_set_text(s, "run.dir", fo_arena_printf(&s->arena, "%s-ladder", in->run.dir), FO_ORIGIN_FLAG,
				"flatout ladder");
	if (in->run.warmup > in->run.steps / 10) {
		snprintf(steps, sizeof steps, "%lld", (long long)(in->run.steps / 10));
		fo_opt_set_text(s, "optim.warmup", steps, FO_ORIGIN_FLAG, "flatout ladder");
	}
}

static fo_status read_options(struct fo_opt_set *s, struct fo_cli_ladder *in, int *argc, char **argv)
{
	fo_cli_options_read(&fo_cmd_ladder, s, in, argc, argv);
	FO_TRY(fo_cli_no_more_args(&fo_cmd_ladder, *argc, argv, 1));
	if (*argc > 1)
		FO_TRY(fo_opt_read_yaml(s, argv[1]));
	own_defaults(s, in);
	return fo_cli_options_finish(&fo_cmd_ladder, s);
}

static fo_status trainable(const struct fo_run *r)
{
	struct fo_model m;
	FO_TRY(fo_run_model(r, &m));
	return fo_model_trainable(&m);
}

static fo_status run_ladder(int argc, char **argv)
{
	struct fo_cli_ladder in;
	struct fo_opt_set s;
	struct fo_ladder_plan p = { 0 };
	struct fo_str version = { 0 };
	char cpu[80];
	fo_status st;
	FO_TRY_OR(st, read_options(&s, &in, &argc, argv), done);
	fo_cpu_name(cpu, sizeof cpu);
	fo_version_text(&version, false);
	version.data[strcspn(version.data, "\n")] = 0;
	p = (struct fo_ladder_plan){ .base = &s,
				     .dir = in.run.dir,
				     .run_file = argc > 1 ? argv[1] : "",
				     .version = version.data,
				     .cpu = cpu,
				     .steps = in.run.steps,
				     .rounds = in.rounds,
				     .seed = (uint64_t)in.run.seed };
	FO_TRY_OR(st, *in.rungs ? fo_ladder_plan_file(&p, in.rungs) : fo_ladder_plan_default(&p), done);
	/* Checked once here, so that not every rung fails for the same reason. */
	FO_TRY_OR(st, trainable(&in.run), done);
	st = fo_cli_ladder_run(&in, &p);
done:
	fo_ladder_plan_fini(&p);
	fo_str_fini(&version);
	fo_opt_fini(&s);
	return st;
}
#endif

static fo_status run(int argc, char **argv)
{
	bool shows = false;
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		shows |= !strcmp(argv[i], "--show");
	if (shows)
		return show(argc, argv);
#ifdef FO_NO_ENGINE
	return fo_hint(fo_fail(FO_EUNSUPPORTED, "this build cannot train: it has no engine"),
		       "flatout ladder DIR --show prints one that was measured elsewhere");
#else
	return run_ladder(argc, argv);
#endif
}

const struct fo_command fo_cmd_ladder = {
	.name = "ladder",
	.group = "improve",
	.usage = "flatout ladder run.yaml [--steps=N] [--rounds=N] [--rungs=FILE] [--run.dir=DIR] [--KEY=VALUE ...] "
		 "[--brief] [--json]\nflatout ladder DIR --show [--brief] [--json]\n"
		 "flatout ladder --plan ...  (flatout ladder plan --help)",
	.summary = "one change at a time: what each gains, with an interval",
	.text = "Trains the run without optimisations and then with one more after the other, 500 steps each, in at "
		"least five rounds in which every rung trains its share, so that a machine that drifts does so for all "
		"alike. Shows MFU with its spread, useful tokens/s, the gain of each change with an interval (\"not "
		"resolved\" where it holds none), memory, where the time went, and whether the losses stayed. Ctrl-C "
		"saves; the same command goes on. Everything lies in DIR (run.dir, by default that of the run file "
		"with -ladder behind it): ladder.json, ladder.html, a run directory per rung.\n\n"
		"  flatout ladder run.yaml\n  flatout ladder run.yaml --steps=100 --rungs=mine.yaml --run.dir=try\n  "
		"flatout ladder run-ladder --show   (prints it again, runs nothing)\n",
	.opts = fo_run_options,
	.own = extra,
	.writes = FO_OUTPUT_LADDER_FOLDER,
	.run = run,
	.instead = &fo_cmd_ladder_plan,
	.instead_of = "--plan",
	.spin = FO_SPIN_TRAINING,
};
