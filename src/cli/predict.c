/* flatout predict: the step of a run on a machine that was measured, without running it. */
#include "cli/cli.h"

#include "base/fs.h"
#include "pass/pass.h"
#include "program/run.h"
#include "sim/compare.h"
#include "sim/sim.h"

#include <math.h>
#include <string.h>

struct predict {
	struct fo_run run;
	const char *profile, *compare, *timeline;
	double documents;
	bool all, json;
};
static const struct fo_opt extra[] = {
	FO_OPT_TEXT(struct predict, profile, "cli.profile", "FILE", "", "a profile of flatout calibrate; empty: this machine's"),
	FO_OPT_REAL(struct predict, documents, "cli.documents", "N", "0", 0, 1e9, "tokens",
		    "mean length of documents: attention ends at their bounds; 0: rows are unbroken"),
	FO_OPT_TEXT(struct predict, compare, "cli.compare", "RUN", "", "predict what this run folder ran, beside what was measured there"),
	FO_OPT_TEXT(struct predict, timeline, "cli.timeline", "FILE", "", "write the predicted timeline"),
	FO_OPT_BOOL(struct predict, all, "cli.all", "false", "list every operation"),
	FO_OPT_BOOL(struct predict, json, "cli.json", "false", "print JSON"), FO_OPT_END
};
static struct fo_opt rows[FO_RUN_ROWS_MAX];
__attribute__((constructor)) static void make_rows(void) { fo_run_options_with(rows, extra); }

struct report {
	struct fo_arena arena;
	struct predict in;
	struct fo_limits limits;
	struct fo_rates rates;
	struct fo_program program;
	struct fo_unrolled u;
	struct fo_sim sim;
	struct fo_sim_table table;
	const struct fo_limits_peak *peak; /* NULL: this type was not measured with so many threads */
	double pairs;                      /* per micro-batch; < 0: unbroken rows */
	const char *source;                /* of what is compared with; NULL: nothing is */
};

/* ---- what is predicted ---- */

static fo_status load_profile(struct report *r)
{
	char cpu[80];
	fo_cpu_name(cpu, sizeof cpu);
	const char *path = *r->in.profile ? r->in.profile : fo_limits_path(&r->arena, cpu);
	if (!*r->in.profile && !fo_fs_exists(path))
		return fo_hint(fo_fail(FO_EUNSUPPORTED, "this machine has not been measured: there is no profile '%s'", path),
			       "'flatout calibrate' makes one; --profile=FILE takes another machine's");
	FO_TRY(fo_limits_read(path, &r->limits));
	int most = fo_rates_threads(&r->limits);
	return fo_rates_init(&r->rates, &r->limits, r->in.run.threads ? (int)r->in.run.threads : most ? most : 1);
}

static fo_status read_program(struct report *r, const char *path)
{
	char *text;
	size_t len;
	FO_TRY(fo_fs_read(&r->arena, path, (size_t)256 << 20, &text, &len));
	return fo_program_parse(&r->program, text, len, path);
}

static fo_status load_program(struct report *r)
{
	const struct fo_run *run = &r->in.run;
	struct fo_model m;
	struct fo_choice c;
	if (*r->in.compare)
		return read_program(r, fo_arena_printf(&r->arena, "%s/program.txt", r->in.compare));
	if (*run->program_file)
		return read_program(r, run->program_file);
	FO_TRY(fo_run_model(run, &m));
	FO_TRY(fo_pass_choose_run(run, &m, run->memory_budget ? run->memory_budget : run->memory_limit, 0, &c));
	return fo_pass_build(&r->program, &m, &c.run);
}

static fo_status compare(struct report *r)
{
	struct fo_timeline_file f;
	const char *path = fo_arena_printf(&r->arena, "%s/timeline.fot", r->in.compare);
	FO_TRY(fo_timeline_read(&f, path));
	fo_status st = fo_sim_table_timeline(&r->table, &r->program, &f, path);
	fo_timeline_fini(&f.t);
	r->source = "the timeline, all spans";
	return st;
}

static fo_status simulate(struct report *r)
{
	const struct fo_program *p = &r->program;
	FO_TRY(fo_unroll(p, &r->u));
	fo_plan(p, &r->u);
	fo_prune_waits(p, &r->u);
	fo_sim_step(&r->sim, p, &r->u, &r->rates, r->pairs);
	fo_sim_table_init(&r->table, &r->sim, p, &r->u);
	return *r->in.compare ? compare(r) : FO_OK;
}

static fo_status write_timeline(const struct report *r)
{
	struct fo_timeline t;
	FO_TRY(fo_sim_timeline(&r->sim, &r->program, &r->u, &t));
	fo_status st = fo_timeline_write(&t, &r->program, r->in.timeline);
	fo_timeline_fini(&t);
	return st;
}

/* ---- output ---- */

/* "3.21 s", "45.3 ms", "6.70 us": steps take seconds, operations anything below. */
static const char *seconds(char buf[32], double s)
{
	double ms = 1e3 * s, us = 1e6 * s;
	snprintf(buf, 32, s >= 1 ? "%.2f s" : ms >= 1 ? "%.1f ms" : "%.1f us", s >= 1 ? s : ms >= 1 ? ms : us);
	return buf;
}

static double tokens(const struct report *r) { return (double)r->program.tokens * (double)r->program.run.micro_batches; }

static struct fo_mfu mfu(const struct report *r)
{
	const struct fo_program *p = &r->program;
	double s = (double)p->run.seq, pairs = r->pairs >= 0 ? r->pairs : (double)p->run.rows * s * (s + 1) / 2;
	return fo_mfu_of_step(p, tokens(r), pairs * (double)p->run.micro_batches, r->sim.step_s, r->peak ? r->peak->best_flop_s : NAN);
}

/* Of the compute lane's kernels. */
static double share(const struct report *r, enum fo_sure s)
{
	double all = 0;
	for (int i = 0; i < FO_SURE_COUNT; i++)
		all += r->sim.sure_s[i];
	return all > 0 ? r->sim.sure_s[s] / all : 0;
}

static void print_sure(const struct report *r, const char *lead)
{
	fo_cli_put(stdout, "sure     ", lead, "%.0f %% of the time is of operations that were measured as they are, %.0f %% interpolated, %.0f %% guessed",
		   100 * share(r, FO_SURE_EXACT), 100 * share(r, FO_SURE_NEAR), 100 * share(r, FO_SURE_GUESS));
	if (share(r, FO_SURE_GUESS) > 0.05)
		fo_cli_put(stdout, lead, lead, "nothing near to some of this was measured: 'flatout calibrate' measures shapes");
	if (r->sim.unknown)
		fo_cli_put(stdout, lead, lead, "%d operations of a step are not in it at all: nothing is known of them", r->sim.unknown);
}

static void print_head(const struct report *r)
{
	const struct fo_program *p = &r->program;
	const char *lead = "         ";
	char a[32], b[32], c[32], shown[400];
	struct fo_mfu f = mfu(r);
	fo_cli_put(stdout, "predict  ", lead, "%s: %lld %s x %lld %s x %lld tokens, %s", fo_str_visible(shown, sizeof shown, p->model.name),
		   (long long)p->run.micro_batches, fo_cli_plural(p->run.micro_batches, "micro-batch", "micro-batches"), (long long)p->run.rows,
		   fo_cli_plural(p->run.rows, "row", "rows"), (long long)p->run.seq, fo_numerics_name[p->run.precision]);
	fo_cli_put(stdout, "machine  ", lead, "%s, %d %s, calibrated %s", fo_str_visible(shown, sizeof shown, r->limits.cpu), r->rates.threads,
		   fo_cli_plural(r->rates.threads, "thread", "threads"), r->limits.date);
	fo_cli_put(stdout, "step     ", lead, "%s, %s", seconds(a, r->sim.step_s), fo_str_si(b, tokens(r) / r->sim.step_s, "tok/s"));
	if (r->peak)
		fo_cli_put(stdout, "MFU      ", lead, "%.1f %% mfu, %.1f %% mfu_causal, %.1f %% mfu_document, %.1f %% mfu_6n, HFU %.1f %%, of %s/s (%s)",
			   100 * f.mfu, 100 * f.mfu_causal, 100 * f.mfu_document, 100 * f.mfu_6n, 100 * f.hfu,
			   fo_str_si(a, r->peak->best_flop_s, "FLOP"), r->peak->dtype);
	else
		fo_cli_put(stdout, "MFU      ", lead, "not known: the profile has no peak of this type with %d %s", r->rates.threads,
			   fo_cli_plural(r->rates.threads, "thread", "threads"));
	fo_cli_put(stdout, "memory   ", lead, "%s: activations and gradients %s, weights and optimizer state %s",
		   fo_str_bytes(a, (double)(r->u.arena_bytes + r->u.persistent_bytes)), fo_str_bytes(b, (double)r->u.arena_bytes),
		   fo_str_bytes(c, (double)r->u.persistent_bytes));
	print_sure(r, lead);
}

static void print_parts(const struct report *r)
{
	struct fo_table t;
	char a[32];
	printf("\n");
	fo_table_init(&t, "lrr");
	fo_table_row(&t, "of the step", "", "");
	for (int i = 0; i < FO_PART_COUNT; i++)
		if (r->sim.part_s[i] > 0)
			fo_table_row(&t, fo_part_name[i], seconds(a, r->sim.part_s[i]),
				     fo_arena_printf(&t.arena, "%.1f %%", 100 * r->sim.part_s[i] / r->sim.step_s));
	fo_table_print(&t, stdout, "", true);
	fo_table_fini(&t);
}

static const char *op_text(struct fo_arena *a, const struct report *r, const struct fo_sim_line *l)
{
	const struct fo_block *b = &r->program.block[l->block];
	const struct fo_op *o = &b->op[l->op];
	return fo_arena_printf(a, "%s %s.%s", b->name, fo_op_info(o->kind)->name, fo_phase_name[o->phase]);
}

/* Operations, the longest first, or where predicted and measured are furthest apart. */
static void print_lines(const struct report *r)
{
	enum { SHOWN = 10 };
	const struct fo_sim_table *x = &r->table;
	struct fo_table t;
	char a[32], b[32];
	printf("\n");
	fo_table_init(&t, r->source ? "lrrrrl" : "lrrrl");
	if (r->source)
		fo_table_row(&t, "where it is off most", "times", "measured", "predicted", "off", "");
	else
		fo_table_row(&t, "operations", "times", "predicted", "of step", "");
	for (int i = 0; i < x->lines && (r->in.all || i < SHOWN); i++) {
		const struct fo_sim_line *l = &x->line[i];
		const char *count = fo_arena_printf(&t.arena, "%d", l->times), *sure = l->sure == FO_SURE_EXACT ? "" : fo_sure_name[l->sure];
		if (r->source)
			fo_table_row(&t, op_text(&t.arena, r, l), count, isnan(l->measured_s) ? "-" : seconds(a, l->measured_s),
				     seconds(b, l->predicted_s),
				     isnan(l->measured_s) ? "-" : fo_arena_printf(&t.arena, "%+.1f %%", 100 * (l->predicted_s - l->measured_s) / x->measured_s),
				     sure);
		else
			fo_table_row(&t, op_text(&t.arena, r, l), count, seconds(a, l->predicted_s),
				     fo_arena_printf(&t.arena, "%.1f %%", 100 * l->predicted_s / r->sim.step_s), sure);
	}
	fo_table_print(&t, stdout, "", true);
	fo_table_fini(&t);
}

static void print_compare(const struct report *r)
{
	char a[32], b[32];
	const struct fo_sim_table *x = &r->table;
	printf("\n");
	fo_cli_put(stdout, "compared ", "         ", "a step's operations took %s (%s: medians of %d %s), predicted %s: %+.1f %%",
		   seconds(a, x->measured_s), r->source, x->steps, fo_cli_plural(x->steps, "step", "steps"), seconds(b, x->predicted_s),
		   100 * (x->predicted_s / x->measured_s - 1));
	print_lines(r);
	printf("\n");
	fo_cli_put(stdout, "", "", "off: predicted less measured, as a share of the measured step.");
}

static void json_lines(struct fo_json *j, const struct report *r)
{
	fo_json_array(j, "operations");
	for (int i = 0; i < r->table.lines; i++) {
		const struct fo_sim_line *l = &r->table.line[i];
		const struct fo_op *o = &r->program.block[l->block].op[l->op];
		fo_json_object(j, NULL);
		fo_json_text(j, "block", r->program.block[l->block].name);
		fo_json_text(j, "kind", fo_op_info(o->kind)->name);
		fo_json_text(j, "phase", fo_phase_name[o->phase]);
		fo_json_int(j, "times", l->times);
		fo_json_real(j, "predicted_seconds", l->predicted_s);
		if (r->source)
			fo_json_real(j, "measured_seconds", l->measured_s);
		fo_json_text(j, "sure", fo_sure_name[l->sure]);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void print_json(const struct report *r)
{
	struct fo_str out = { 0 };
	struct fo_json j;
	struct fo_mfu f = mfu(r);
	fo_json_begin(&j, &out, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_text(&j, "model", r->program.model.name);
	fo_json_text(&j, "machine", r->limits.cpu);
	fo_json_text(&j, "calibrated", r->limits.date);
	fo_json_int(&j, "threads", r->rates.threads);
	fo_json_real(&j, "step_seconds", r->sim.step_s);
	fo_json_real(&j, "tokens_per_second", tokens(r) / r->sim.step_s);
	fo_json_real(&j, "mfu", f.mfu);
	fo_json_real(&j, "mfu_causal", f.mfu_causal);
	fo_json_real(&j, "mfu_document", f.mfu_document);
	fo_json_real(&j, "mfu_6n", f.mfu_6n);
	fo_json_real(&j, "hfu", f.hfu);
	fo_json_real(&j, "peak_flop_s", r->peak ? r->peak->best_flop_s : NAN);
	fo_json_int(&j, "arena_bytes", r->u.arena_bytes);
	fo_json_int(&j, "persistent_bytes", r->u.persistent_bytes);
	fo_json_object(&j, "sure_share");
	for (int i = 0; i < FO_SURE_NONE; i++)
		fo_json_real(&j, fo_sure_name[i], share(r, (enum fo_sure)i));
	fo_json_close(&j);
	fo_json_int(&j, "unknown_operations", r->sim.unknown);
	fo_json_object(&j, "parts_seconds");
	for (int i = 0; i < FO_PART_COUNT; i++)
		fo_json_real(&j, fo_part_name[i], r->sim.part_s[i]);
	fo_json_close(&j);
	if (r->source) {
		fo_json_object(&j, "compared");
		fo_json_text(&j, "with", r->source);
		fo_json_int(&j, "steps", r->table.steps);
		fo_json_real(&j, "measured_seconds", r->table.measured_s);
		fo_json_real(&j, "predicted_seconds", r->table.predicted_s);
		fo_json_close(&j);
	}
	json_lines(&j, r);
	fo_json_close(&j);
	printf("%s\n", out.data);
	fo_str_fini(&out);
}

/* ---- the command ---- */

static fo_status report(struct report *r)
{
	FO_TRY(load_profile(r));
	FO_TRY(load_program(r));
	const struct fo_program *p = &r->program;
	r->pairs = r->in.documents > 0 ? (double)p->run.rows * fo_sim_pairs(p->run.seq, r->in.documents) : -1;
	r->peak = fo_limits_peak(&r->limits, p->run.precision == FO_PRECISION_BF16 ? "bf16" : "f32", r->rates.threads);
	FO_TRY(simulate(r));
	if (*r->in.timeline)
		FO_TRY(write_timeline(r));
	fo_sim_table_sort(&r->table);
	if (r->in.json) {
		print_json(r);
		return FO_OK;
	}
	print_head(r);
	print_parts(r);
	if (r->source)
		print_compare(r);
	else
		print_lines(r);
	return FO_OK;
}

static fo_status run(int argc, char **argv)
{
	struct report r = { 0 };
	struct fo_opt_set s;
	fo_status st;
	FO_TRY_OR(st, fo_cli_options_file(&fo_cmd_predict, &s, &r.in, &argc, argv), done);
	FO_TRY_OR(st, fo_cli_no_more_args(&fo_cmd_predict, argc, argv, 1), done);
	if (*r.in.compare && argc > 1)
		st = fo_hint(fo_fail(FO_EARG, "--compare predicts the program of '%s': the run file '%s' beside it would say it twice", r.in.compare,
				     argv[1]),
			     "leave one of them out");
	else
		st = report(&r);
done:
	fo_sim_table_fini(&r.table);
	fo_sim_fini(&r.sim);
	fo_unrolled_fini(&r.u);
	fo_program_fini(&r.program);
	fo_limits_fini(&r.limits);
	fo_arena_fini(&r.arena);
	fo_opt_fini(&s);
	return st;
}

const struct fo_command fo_cmd_predict = {
	.name = "predict",
	.group = "improve",
	.usage = "flatout predict [run.yaml] [--KEY=VALUE ...] [--profile FILE] [--documents N] [--timeline FILE] [--all] [--json]\n"
		 "flatout predict --compare RUN [--run.threads=N] [--profile FILE] [--all] [--json]",
	.summary = "step time, MFU and memory of a run, without running it",
	.text = "The simulator runs the same step program as the engine: the time of each operation comes from the machine profile "
		"of 'flatout calibrate', their order from the program's lanes and waits, the memory from its plan. What was not "
		"measured as it is gets interpolated, and the report says how much of the step that is. --compare sets the program "
		"of a run beside what was measured there and lists where the model is wrong.\n\n"
		"  flatout calibrate && flatout predict run.yaml\n"
		"  flatout predict run.yaml --pass.merge-qkv=no --run.threads=1\n"
		"  flatout predict --compare run\n",
	.opts = rows,
	.own = extra,
	.run = run,
};
