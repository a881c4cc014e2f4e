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
	FO_OPT_BOOL(struct fo_cli_ladder, brief, "ladder.brief", "false",
		    "print only the first table: MFU, useful tokens/s, gains"),
	FO_OPT_JSON_OF(struct fo_cli_ladder, json, "ladder.json", "print ladder.json, progress on standard error",
		       FO_OUTPUT_LADDER),
	FO_OPT_FORCE(struct fo_cli_ladder, force, "ladder.force"),
	FO_OPT_END
};

static const char lead[] = "           "; /* below the words in front */

/* ---- tables ---- */

static const char *percent(struct fo_arena *a, double v)
{
	return isfinite(v) ? fo_arena_printf(a, "%.1f", 100 * v) : "-";
}
static const char *range(struct fo_arena *a, const char *form, double low, double high)
{
	char one[32], two[32];
	if (!isfinite(low) || !isfinite(high))
		return "-";
	snprintf(one, sizeof one, form, low);
	snprintf(two, sizeof two, form, high);
	return fo_arena_printf(a, "%s-%s", one, two);
}
static const char *rate(struct fo_arena *a, double v)
{
	char buf[32];
	return isfinite(v) ? fo_arena_strdup(a, fo_str_si(buf, v, "")) : "-";
}
static const char *factor(struct fo_arena *a, double v) { return isfinite(v) ? fo_arena_printf(a, "%.3f", v) : "-"; }
static const char *bytes(struct fo_arena *a, int64_t v)
{
	char buf[32];
	return v > 0 ? fo_arena_strdup(a, fo_str_bytes(buf, (double)v)) : "-";
}

static const char *verdict(const struct fo_ladder_rung *g)
{
	switch (g->verdict) {
	case FO_LADDER_LOSS: return "LOSS";
	case FO_LADDER_FAILED: return "FAILED";
	case FO_LADDER_UNSTEADY: return "not known"; /* 80 columns hold no more; the line "not quiet" says why */
	default: return fo_ladder_verdict_name[g->verdict];
	}
}

static void print_time(const struct fo_ladder *l, struct fo_arena *a, FILE *f)
{
	struct fo_table t;
	fo_table_init(&t, "lrrrrrrl");
	fo_table_row(&t, "rung", "MFU %", "quartiles", "quiet", "tok/s", "gain", "interval", "verdict");
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *g = &l->rung[i];
		const struct fo_spread *m = &g->mfu[FO_LADDER_MFU];
		fo_table_row(&t, g->name, percent(a, m->median), range(a, "%.1f", 100 * m->low, 100 * m->high),
			     percent(a, g->quiet_mfu[FO_LADDER_MFU]), rate(a, g->tokens_s.median), factor(a, g->gain),
			     range(a, "%.2f", g->gain_low, g->gain_high), verdict(g));
	}
	fo_table_print(&t, f, "", true);
	fo_table_fini(&t);
}

static const char *losses(struct fo_arena *a, const struct fo_ladder_rung *g)
{
	if (g->check == FO_LADDER_HELD)
		return fo_arena_printf(a, "held %.2f %%", 100 * g->deviation);
	if (g->check == FO_LADDER_LEFT)
		return fo_arena_printf(a, "LEFT %.2f %% of %.1f", 100 * g->deviation, 100 * g->tolerance);
	return fo_ladder_check_name[g->check];
}

static void print_rest(const struct fo_ladder *l, struct fo_arena *a, FILE *f)
{
	struct fo_table t;
	fo_table_init(&t, "lrrrrrrl");
	fo_table_row(&t, "rung", "predicted", "step ms", "memory", "pad %", "text %", "held-out", "losses");
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *g = &l->rung[i];
		fo_table_row(&t, g->name, factor(a, g->predicted_gain),
			     isfinite(g->step_s.median) ? fo_arena_printf(a, "%.1f", 1e3 * g->step_s.median) : "-",
			     bytes(a, g->measured_bytes), percent(a, g->padding), fo_ladder_share(a, g->text_seen),
			     isfinite(g->val_loss) ? fo_arena_printf(a, "%.3f", g->val_loss) : "-", losses(a, g));
	}
	fo_table_print(&t, f, "", true);
	fo_table_fini(&t);
}

static double total(const struct fo_ladder_rung *g)
{
	double s = 0;
	for (int k = 0; k < FO_PART_COUNT; k++)
		s += g->part_s[k];
	return s;
}

/* The baseline beside what all changes make together: shares of a step, and milliseconds. */
static void print_parts(const struct fo_ladder *l, struct fo_arena *a, FILE *f)
{
	int top = fo_ladder_top(l);
	const struct fo_ladder_rung *g[2] = { &l->rung[0], top > 0 ? &l->rung[top] : NULL };
	struct fo_table t;
	if (!g[1] || !(total(g[0]) > 0) || !(total(g[1]) > 0))
		return;
	fo_table_init(&t, "lrrrr");
	fo_table_row(&t, "where a step's time goes", fo_arena_printf(a, "%s %%", g[0]->name),
		     fo_arena_printf(a, "%s %%", g[1]->name), "mean ms", "mean ms");
	for (int k = 0; k < FO_PART_COUNT; k++) {
		if (g[0]->part_s[k] + g[1]->part_s[k] == 0)
			continue;
		char *name = fo_arena_strdup(a, fo_part_name[k]);
		for (char *c = name; *c; c++)
			*c = *c == '_' ? ' ' : *c;
		fo_table_row(&t, name, percent(a, g[0]->part_s[k] / total(g[0])),
			     percent(a, g[1]->part_s[k] / total(g[1])),
			     fo_arena_printf(a, "%.1f", 1e3 * g[0]->part_s[k]),
			     fo_arena_printf(a, "%.1f", 1e3 * g[1]->part_s[k]));
	}
	fputc('\n', f);
	fo_table_print(&t, f, "", true);
	fo_table_fini(&t);
}

static void print_rungs(const struct fo_ladder *l, FILE *f)
{
	char below[FO_LADDER_NAME_MAX + 3], first[FO_LADDER_NAME_MAX + 3];
	fputc('\n', f);
	size_t wide = 0;
	for (int i = 0; i < l->rungs; i++)
		wide = strlen(l->rung[i].name) > wide ? strlen(l->rung[i].name) : wide;
	snprintf(below, sizeof below, "%*s", (int)wide + 2, "");
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *g = &l->rung[i];
		struct fo_str s = { 0 };
		snprintf(first, sizeof first, "%-*s", (int)wide + 2, g->name);
		fo_str_printf(&s, "%s", g->from < 0 ? "the run file" : l->rung[g->from].name);
		for (int k = 0; k < g->changes; k++)
			fo_str_printf(&s, " --%s=%s", g->change[k].key, g->change[k].value);
		if (*g->what)
			fo_str_printf(&s, " (%s)", g->what);
		fo_cli_put(f, first, below, "%s", fo_cli_seen(s.data));
		if (g->reason)
			fo_cli_put(f, below, below, "failed: %s", fo_cli_seen(g->reason));
		fo_str_fini(&s);
	}
}

/* Each once: rungs of one precision share theirs. */
static void print_peaks(const struct fo_ladder *l, FILE *f)
{
	char peak[32];
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *g = &l->rung[i];
		bool told = !(g->peak_flop_s > 0);
		for (int k = 0; k < i && !told; k++)
			told = l->rung[k].peak_flop_s == g->peak_flop_s &&
			       !strcmp(l->rung[k].peak_dtype, g->peak_dtype);
		if (!told)
			fo_cli_put(f, "peak       ", lead, "%s/s %s (%s)", fo_str_si(peak, g->peak_flop_s, "FLOP"),
				   g->peak_dtype, fo_cli_seen(g->peak_source));
	}
}

static void print_gain_note(const struct fo_ladder *l, FILE *f)
{
	double level = 0;
	int compared = 0;
	for (int i = 0; i < l->rungs; i++)
		if (l->rung[i].gain_level > 0) {
			level = l->rung[i].gain_level;
			compared += !l->rung[i].numerics_only;
		}
	if (!compared) {
		fo_cli_put(f, "gain       ", lead, "not before a rung and the one it starts from have done all rounds");
		return;
	}
	fo_cli_put(f, "gain       ", lead,
		   "tok/s over those of the rung it starts from, paired by round; interval of level %.1f %% from %d "
		   "rounds: one rung in %.0f that does nothing is still called a gain or a loss; of ladders with %d "
		   "such rungs, %.0f %% call one or more so",
		   100 * level, l->rounds, level < 1 ? 1 / (1 - level) : INFINITY, compared,
		   100 * (1 - pow(level, compared)));
}

/* How sure predictions are: of the rung of which the profile knows least. */
static void print_prediction_note(const struct fo_ladder *l, FILE *f)
{
	const struct fo_ladder_rung *worst = NULL;
	if (l->predict_hint)
		fo_cli_put(f, "predicted  ", lead, "%s", fo_cli_seen(l->predict_hint));
	for (int i = 0; i < l->rungs; i++)
		if (isfinite(l->rung[i].sure[FO_SURE_EXACT]) &&
		    (!worst || l->rung[i].sure[FO_SURE_EXACT] < worst->sure[FO_SURE_EXACT]))
			worst = &l->rung[i];
	if (worst)
		fo_cli_put(f, "predicted  ", lead,
			   "least sure of '%s': %.0f %% of its time is of operations measured as they are, %.0f %% "
			   "interpolated, %.0f %% guessed; 'flatout calibrate --for %s' measures them",
			   worst->name, 100 * worst->sure[FO_SURE_EXACT], 100 * worst->sure[FO_SURE_NEAR],
			   100 * worst->sure[FO_SURE_GUESS], fo_cli_seen(worst->dir));
}

static void print_notes(const struct fo_ladder *l, FILE *f)
{
	fputc('\n', f);
	fo_cli_put(f, "MFU        ", lead,
		   "rule mfu; median and quartiles of all timed steps, unfiltered; quiet: of the step composed from "
		   "undisturbed spans");
	print_peaks(l, f);
	fo_cli_put(f, "tok/s      ", lead,
		   "useful ones: padding does not count; pad: share of the tokens processed that is padding; text: "
		   "share of the text's tokens that its steps hold");
	print_gain_note(l, f);
	print_prediction_note(l, f);
	fo_cli_put(f, "losses     ", lead,
		   "distance from the reference's, median of tenths of the run or of its last three; compare new data "
		   "by held-out loss");
}

void fo_cli_ladder_print(const struct fo_ladder *l, bool brief, FILE *f)
{
	struct fo_arena a = { 0 };
	char params[32];
	const char *text = fo_ladder_text_title(l, &a), *not_quiet = fo_ladder_not_quiet(l, &a);
	int done = 0;
	for (int i = 0; i < l->rungs; i++)
		done += l->rung[i].rounds_done;
	fo_cli_put(f, "ladder     ", "           ", "%s: %sparameters, %lld tokens per step, rows of %lld",
		   *l->model ? l->model : "not begun", fo_str_si(params, l->params, " "), (long long)l->tokens_per_step,
		   (long long)l->seq);
	if (l->device && *l->device)
		fo_cli_put(f, "device     ", "           ", "%s: all times are its", fo_cli_seen(l->device));
	fo_cli_put(f, "machine    ", "           ", "%s, %s, %d %s", fo_cli_seen(l->cpu), l->isa, l->threads,
		   fo_cli_plural(l->threads, "thread", "threads"));
	fo_cli_put(f, "measured   ", "           ", "%lld steps of each rung in %d rounds; %d of %d turns done",
		   (long long)l->steps, l->rounds, done, l->rounds * l->rungs);
	if (text)
		fo_cli_put(f, "text       ", lead, "%s", fo_cli_seen(text));
	if (not_quiet)
		fo_cli_put(f, "not quiet  ", lead, "%s", not_quiet);
	fputc('\n', f);
	print_time(l, &a, f);
	fputc('\n', f);
	if (!brief) {
		print_rest(l, &a, f);
		print_parts(l, &a, f);
		print_rungs(l, f);
		print_notes(l, f);
	}
	fo_arena_fini(&a);
}

fo_status fo_cli_ladder_write(const struct fo_ladder *l)
{
	struct fo_arena a = { 0 };
	struct fo_str s = { 0 };
	fo_ladder_json(l, &s);
	fo_status st = fo_fs_write_atomic(fo_arena_printf(&a, "%s/ladder.json", l->dir), s.data, s.len);
	s.len = 0;
	fo_ladder_html(l, &s);
	if (st == FO_OK)
		st = fo_fs_write_atomic(fo_arena_printf(&a, "%s/ladder.html", l->dir), s.data, s.len);
	fo_str_fini(&s);
	fo_arena_fini(&a);
	return st;
}

/* ---- the command ---- */

static fo_status conclude(const struct fo_ladder *l)
{
	for (int i = 0; i < l->rungs; i++)
		if (l->rung[i].check == FO_LADDER_LEFT)
			return fo_hint(
				fo_fail(FO_ENUMERIC,
					"the losses of rung '%s' left those of '%s': %.2f %% away, %.1f %% are allowed",
					l->rung[i].name, l->rung[l->rung[i].reference].name, 100 * l->rung[i].deviation,
					100 * l->rung[i].tolerance),
				"a change that only makes steps faster keeps the losses: look at what the rung "
				"changes");
	int failed = 0;
	for (int i = 1; i < l->rungs; i++)
		failed += l->rung[i].reason != NULL;
	/* Then no gain was measured. */
	if (l->rung[0].reason || (l->rungs > 1 && failed == l->rungs - 1))
		return fo_fail(FO_EIO,
			       l->rung[0].reason ? "rung '%s', the baseline, failed" : "every rung but '%s' failed",
			       l->rung[0].name);
	return FO_OK;
}

fo_status fo_cli_ladder_report(const char *dir, const struct fo_cli_ladder *in, bool keeps)
{
	struct fo_ladder l;
	FO_TRY(fo_ladder_read(&l, dir));
	if (in->json) {
		struct fo_str s = { 0 };
		fo_ladder_json(&l, &s);
		fputs(s.data, stdout);
		fo_str_fini(&s);
	} else {
		fo_cli_ladder_print(&l, in->brief, stdout);
	}
	/* Hours of turns were printed before anything could fail. */
	fflush(stdout);
	struct fo_arena a = { 0 };
	fo_status st = in->force ? FO_OK
				 : fo_output_may_replace(FO_OUTPUT_PAGE, fo_arena_printf(&a, "%s/ladder.html", dir));
	fo_arena_fini(&a);
	if (st == FO_OK)
		st = fo_cli_ladder_write(&l);
	if (st == FO_OK && !in->json)
		printf("pictures   %s/ladder.html\n", fo_cli_seen(dir));
	if (st != FO_OK && !keeps) {
		fprintf(stderr, "warning: %s\n", fo_cli_seen(fo_err_text()));
		fo_err_clear();
		st = FO_OK;
	}
	if (st == FO_OK)
		st = conclude(&l);
	fo_ladder_fini(&l);
	return st;
}

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
	/* What is shown is what was measured: an option that would change it would be ignored. */
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

/* A ladder is short and lies beside the run that it is about: neither its steps nor its folder come from a run file. */
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
	/* Else every rung would say so in its turn. */
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
		 "[--brief] [--json]\nflatout ladder DIR --show [--brief] [--json]",
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
	.spin = FO_SPIN_TRAINING,
};
