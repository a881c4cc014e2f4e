/* flatout predict: the step of a run on a machine that was measured, without running it. */
#include "cli/predict.h"

#include "base/fs.h"
#include "pass/pass.h"
#include "program/run.h"
#include "record/record.h"
#include "sim/compare.h"
#include "sim/sim.h"
#include "timeline/timeline.h"

#include <math.h>
#include <string.h>

static const struct fo_opt extra[] = {
	FO_OPT_PATH(struct predict, profile, "cli.profile", "FILE", "",
		    "a profile of flatout calibrate; empty: this machine's; with --device what 'bench/gpu/run "
		    "ceilings' left"),
	FO_OPT_TEXT(struct predict, device, "cli.device", "D", "",
		    "an accelerator instead of this machine: 'flatout devices' lists them"),
	FO_OPT_BOOL(struct predict, budget, "cli.budget", "false",
		    "with --device: the parts of a micro-batch as a table for a document, nothing else"),
	FO_OPT_LENGTH_REAL(struct predict, documents, "cli.documents", "N", "0", 0, 1e9,
			   "mean length of documents: attention ends at their bounds; 0: rows are unbroken"),
	FO_OPT_PATH(struct predict, compare, "cli.compare", "RUN", "",
		    "predict what this run folder ran, beside what was measured there"),
	FO_OPT_ENUM(struct predict, over, "cli.over", "threads",
		    "what carries calls between ranks: threads of one process, or processes over MPI as mpirun starts "
		    "them; with --compare as in the run",
		    "threads|mpi"),
	FO_OPT_PATH(struct predict, what_if, "cli.what-if", "RUN", "",
		    "run the recorded steps of a run folder, or of a timeline, again with the changes below"),
	FO_OPT_TEXT(struct predict, scale, "cli.scale", "NAME=X,...", "",
		    "with --what-if: times of operations (matmul=0.5) or of lanes (lane:reduce=0) times X"),
	FO_OPT_REAL(struct predict, links, "cli.links", "X", "1", 1e-3, 1e6, "",
		    "with --what-if: links between ranks X times as fast"),
	FO_OPT_TEXT(struct predict, without, "cli.without", "RANK", "",
		    "with --what-if: this rank, or the straggler, takes what the others take"),
	/* Any of these makes it the command of predict_cluster.c before options are read: they stand here for help. */
	FO_OPT_PATH(struct predict, cluster, "cli.cluster", "C", "",
		    "on a cluster, with options of its own: 'flatout predict cluster --help' lists them"),
	FO_OPT_PATH(struct predict, torchtitan, "cli.torchtitan", "FILE", "", "there: a torchtitan configuration"),
	FO_OPT_PATH(struct predict, megatron, "cli.megatron", "ARGS", "", "there: Megatron-LM's arguments"),
	FO_OPT_PATH(struct predict, deepspeed, "cli.deepspeed", "FILE", "", "there: a DeepSpeed configuration"),
	FO_OPT_OUTPUT(struct predict, timeline, "cli.timeline", "FILE", "", "write the predicted timeline",
		      FO_OUTPUT_TIMELINE),
	FO_OPT_OUTPUT(struct predict, timelines, "cli.timelines", "DIR", "",
		      "of several ranks: write their timelines into this new folder, which 'flatout diagnose' reads",
		      FO_OUTPUT_NEW_NAMES),
	FO_OPT_OUTPUT(struct predict, trace, "cli.trace", "FILE", "",
		      "of several ranks: write the step of those that differ for ui.perfetto.dev or chrome://tracing",
		      FO_OUTPUT_SLICES),
	FO_CLI_SPREAD_ROWS(struct predict, "cli"),
	FO_OPT_BOOL(struct predict, all, "cli.all", "false", "list every operation"),
	FO_CLI_OUTPUT_ROWS(struct predict, "cli", "print JSON")
};

struct report {
	struct fo_arena arena;
	const struct predict *in;
	const struct fo_opt_set *options; /* where `in` came from */
	const char *file;                 /* the run file; NULL: none was given */
	struct fo_limits limits;
	struct fo_rates rates;
	struct fo_program own; /* of the run file; with --compare the record's */
	struct fo_unrolled own_u;
	const struct fo_program *program;
	const struct fo_unrolled *u;
	struct fo_sim sim;
	struct fo_sim_table table;
	const struct fo_limits_peak *peak; /* NULL: this type was not measured with so many threads */
	struct fo_sim_load load;           /* tokens NaN: all of a step */
	struct fo_record record;           /* with --compare: of that run */
	bool compared, metered;            /* with metered steps, else with the timeline */
	struct fo_predict_ranks ranks;     /* where there are several */
	bool paced;                        /* operations take given times */
	double quiet_share;                /* of the metered time, from operations that were ever quiet */
};

void fo_cli_mfu_json(struct fo_json *j, const struct fo_mfu *f)
{
	fo_json_put(j, FO_REAL("mfu", f->mfu), FO_REAL("mfu_causal", f->mfu_causal),
		    FO_REAL("mfu_document", f->mfu_document), FO_REAL("mfu_6n", f->mfu_6n), FO_REAL("hfu", f->hfu));
}

/* ---- what is predicted ---- */

/* Profiles hold rates of the processor's kernels. */
static fo_status not_of_a_device(const char *what)
{
	return fo_hint(fo_fail(FO_EUNSUPPORTED, "%s is not predicted: profiles are of processors", what),
		       "--device=h200 predicts the run on such a device, from published figures; train.device=cpu on "
		       "this machine's processor");
}

static bool options_given(const struct report *r)
{
	for (int i = 0; fo_run_options[i].key; i++)
		if (r->options->origin[i].from == FO_ORIGIN_FLAG)
			return true;
	return false;
}

/* "'flatout calibrate run.yaml' measures what this run needs", with what was named here. */
static const char *how_to_measure(const struct report *r)
{
	struct fo_str s = { 0 };
	if (*r->in->compare)
		fo_str_printf(&s, "'flatout calibrate --for %s' measures what that run needs",
			      fo_cli_seen(r->in->compare));
	else if (r->file)
		fo_str_printf(&s, "'flatout calibrate %s'%s measures what this run needs", fo_cli_seen(r->file),
			      options_given(r) ? " with the options given here" : "");
	else
		fo_str_printf(&s, "'flatout calibrate' with a run file, or with the options given here, measures what "
				  "the run needs");
	const char *text = fo_cli_seen(s.data);
	fo_str_fini(&s);
	return text;
}

fo_status fo_cli_profile_read(struct fo_arena *arena, const char *given, struct fo_limits *out)
{
	char cpu[80];
	fo_cpu_name(cpu, sizeof cpu);
	const char *path = *given ? given : fo_limits_path(arena, cpu);
	if (!*given && !fo_fs_exists(path))
		return fo_hint(
			fo_fail(FO_EUNSUPPORTED, "this machine has not been measured: there is no profile '%s'", path),
			"'flatout calibrate' makes one; --profile=FILE takes another machine's");
	fo_status st = fo_limits_read(path, out);
	return st == FO_EFORMAT && *given
		       ? fo_hint(st, "what 'bench/gpu/run ceilings' left of a device is read with --device")
		       : st;
}

/* The profile that is named: of a run with paced kernels the one whose times it took; "": none. */
static const char *given_profile(struct report *r)
{
	if (*r->in->profile)
		return r->in->profile;
	if (*r->in->compare)
		return r->paced ? fo_arena_printf(&r->arena, "%s/" FO_RECORD_PACED_FILE, r->in->compare) : "";
	return r->in->run.paced;
}

static fo_status load_profile(struct report *r)
{
	enum fo_run_device kind;
	int index;
	if (fo_run_device_parse(r->in->run.device, &kind, &index) && kind == FO_RUN_DEVICE_CUDA)
		return not_of_a_device("a step on a CUDA device");
	const char *given = given_profile(r);
	FO_TRY(fo_cli_profile_read(&r->arena, given, &r->limits));
	int64_t threads = r->in->run.threads;
	if (!threads && *r->in->compare) {
		const struct fo_record_start *start = fo_record_last_start(&r->record);
		threads = start ? start->threads : r->record.threads;
	}
	/* Training on this machine takes as many threads; with another number it would be another run. */
	if (threads < 1)
		threads = *given ? fo_rates_threads(&r->limits) : fo_cpu_threads();
	/* Ranks share them as in training (train/team.h). */
	threads /= r->program->ranks;
	fo_status st = fo_rates_init(&r->rates, &r->limits, threads < 1 ? 1 : (int)threads);
	return st == FO_OK || *given ? st : fo_hint(st, "%s", how_to_measure(r));
}

/* Opens the run folder of --compare, which needs a whole program; other files may be damaged. */
static fo_status open_record(struct report *r)
{
	struct fo_record record;
	FO_TRY(fo_record_open(&record, r->in->compare,
			      FO_RECORD_WITH_PROGRAM | FO_RECORD_WITH_TIMELINE | FO_RECORD_WITH_METERED));
	r->record = record;
	r->paced = fo_record_paced(&record);
	if (record.starts && *record.start[record.starts - 1].device)
		return not_of_a_device("a run on a CUDA device");
	const struct fo_record_file *f = &r->record.file[FO_RECORD_PROGRAM];
	if (f->state == FO_RECORD_WHOLE)
		return FO_OK;
	return f->state == FO_RECORD_ABSENT
		       ? fo_fail(FO_EFORMAT, "'%s' has no program.txt: nothing tells what it ran", r->in->compare)
		       : fo_fail(FO_EFORMAT, "%s", f->why);
}

/* Metered steps say what a quiet machine takes; the timeline what this one took. */
static fo_status compare(struct report *r)
{
	const struct fo_record_file *metered = &r->record.file[FO_RECORD_METERED],
				    *timeline = &r->record.file[FO_RECORD_TIMELINE];
	if (metered->state == FO_RECORD_WHOLE && r->record.metered.n) {
		struct fo_burst best = { 0 };
		struct fo_composed c;
		fo_metered_best(&r->record.metered, &best);
		FO_TRY(fo_compose(&c, &r->record.metered, r->program, r->u, &best));
		fo_sim_table_composed(&r->table, &c);
		r->quiet_share = c.quiet_share;
		r->compared = r->metered = true;
		fo_composed_fini(&c);
		return FO_OK;
	}
	if (timeline->state != FO_RECORD_WHOLE)
		return timeline->state == FO_RECORD_ABSENT
			       ? fo_fail(FO_EARG,
					 "'%s' has neither metered steps nor a timeline: nothing to compare with",
					 r->in->compare)
			       : fo_fail(FO_EFORMAT, "%s", timeline->why);
	FO_TRY(fo_sim_table_timeline(&r->table, r->program, &r->record.timeline, timeline->path));
	r->compared = true;
	return FO_OK;
}

static fo_status load_program(struct report *r)
{
	if (*r->in->compare) {
		r->program = &r->record.program;
		r->u = &r->record.unrolled;
		r->load = fo_sim_load_of_run(&r->record);
	} else {
		FO_TRY(fo_pass_build_run(&r->own, &r->in->run));
		if (*r->in->run.program_file)
			FO_TRY(fo_cli_same_program(&r->own, r->options, &r->in->run));
		r->program = &r->own;
		r->u = &r->own_u;
		FO_TRY(fo_unroll(r->program, &r->own_u));
		fo_plan(r->program, &r->own_u);
		r->load = (struct fo_sim_load){ -1, NAN, NAN };
	}
	if (r->in->documents > 0)
		r->load.pairs = (double)r->program->run.rows * fo_sim_pairs(r->program->run.seq, r->in->documents);
	return FO_OK;
}

/* ---- output ---- */

/* "3.21 s", "45.3 ms", "6.70 us": steps take seconds, operations anything below. */
static const char *seconds(struct fo_doc *d, double s)
{
	if (s >= 1)
		return fo_doc_printf(d, "%.2f s", s);
	return 1e3 * s >= 1 ? fo_doc_printf(d, "%.1f ms", 1e3 * s) : fo_doc_printf(d, "%.1f us", 1e6 * s);
}

/* Tokens of a step, without padding where that is known. */
static double tokens(const struct report *r)
{
	return isnan(r->load.tokens) ? (double)fo_program_step_tokens(r->program) : r->load.tokens;
}

static struct fo_mfu mfu(const struct report *r)
{
	const struct fo_program *p = r->program;
	double s = (double)p->run.seq,
	       pairs = r->load.pairs >= 0 ? r->load.pairs : (double)p->run.rows * s * (s + 1) / 2;
	return fo_mfu_of_step(p, tokens(r), pairs * (double)p->run.micro_batches * fo_mesh_data(&p->run.mesh),
			      r->sim.step_s, r->peak ? r->peak->best_flop_s : NAN);
}

/* The share that part_s has in the time of all kernels on compute lanes. */
static double share_of(const struct report *r, double part_s)
{
	double all = 0;
	for (int i = 0; i < FO_SURE_COUNT; i++)
		all += r->sim.sure_s[i];
	return all > 0 ? part_s / all : 0;
}
static double share(const struct report *r, enum fo_sure s) { return share_of(r, r->sim.sure_s[s]); }

/* A step time that is mostly guessed is marked and said to be so before anything else. */
static bool mostly_guessed(const struct report *r) { return share(r, FO_SURE_GUESS) > 0.5; }

static void say_sure(const struct report *r, struct fo_doc *d)
{
	fo_doc_line(
		d, "sure",
		"%.0f %% of the time is of operations that were measured as they are, %.0f %% interpolated, %.0f %% "
		"guessed",
		100 * share(r, FO_SURE_EXACT), 100 * share(r, FO_SURE_NEAR), 100 * share(r, FO_SURE_GUESS));
	if (share(r, FO_SURE_GUESS) > 0.05 && !mostly_guessed(r))
		fo_doc_line(d, "guessed", "nothing near to some of this was measured: %s", how_to_measure(r));
	if (share_of(r, r->sim.busy_s) > 0.05)
		fo_doc_line(
			d, "busy",
			"%.0f %% comes from rows without one quiet span: the machine was busy when it was calibrated",
			100 * share_of(r, r->sim.busy_s));
	if (r->sim.unknown)
		fo_doc_line(d, "unknown", "%d operations of a step are not in the profile at all", r->sim.unknown);
}

static void say_step(const struct report *r, struct fo_doc *d)
{
	const char *about = mostly_guessed(r) ? "~" : "", *loss = "";
	struct fo_mfu f = mfu(r);
	if (!isnan(r->load.loss_tokens))
		loss = fo_doc_printf(d, ", %s with loss as in that run",
				     fo_doc_si(d, r->load.loss_tokens / r->sim.step_s, "tok/s"));
	fo_doc_line(d, "step", "%s%s, %s%s", about, seconds(d, r->sim.step_s),
		    fo_doc_si(d, tokens(r) / r->sim.step_s, "tok/s"), loss);
	if (r->peak)
		fo_doc_line(d, "MFU",
			    "%.1f %% mfu, %.1f %% mfu_causal, %.1f %% mfu_document, %.1f %% mfu_6n, %s, of %s (%s)",
			    100 * f.mfu, 100 * f.mfu_causal, 100 * f.mfu_document, 100 * f.mfu_6n,
			    isnan(f.hfu) ? "HFU not known" : fo_doc_printf(d, "HFU %.1f %%", 100 * f.hfu),
			    fo_doc_si(d, r->peak->best_flop_s, "FLOP/s"), r->peak->dtype);
	else if (!r->paced)
		fo_doc_line(d, "MFU", "not known: the profile has no peak of this type with %d %s", r->rates.threads,
			    fo_word(r->rates.threads, "thread", "threads"));
}

static void say_memory(const struct report *r, struct fo_doc *d)
{
	fo_doc_line(d, "memory", "%s of the step alone%s: activations and gradients %s, weights and optimizer state %s",
		    fo_doc_bytes(d, r->u->arena_bytes + r->u->persistent_bytes),
		    r->program->ranks > 1 ? " on rank 0" : "", fo_doc_bytes(d, r->u->arena_bytes),
		    fo_doc_bytes(d, r->u->persistent_bytes));
	if (r->u->host_arena_bytes)
		fo_doc_line(d, "beside that", "%s of activations wait for backward in host memory",
			    fo_doc_bytes(d, r->u->host_arena_bytes));
	fo_doc_line(
		d, "process",
		"needs more: workspace of the kernels, loader, evaluation, recorder, the checkpoint's copy; 'flatout "
		"train --dry-run' with the same run plans all of it");
}

static void say_head(const struct report *r, struct fo_doc *d)
{
	if (mostly_guessed(r))
		fo_doc_line(d, "guessed", "%.0f %% of the step time: nothing near to it was measured; %s",
			    100 * share(r, FO_SURE_GUESS), how_to_measure(r));
	fo_doc_line(d, "predict", "%s: %s", r->program->model.name, fo_cli_run_text(d, &r->program->run));
	if (r->paced)
		fo_doc_line(d, "paced", FO_RECORD_PACED_WHY ": the run computes nothing and has no MFU");
	fo_doc_line(d, "machine", "%s, %d %s, calibrated %s", r->limits.cpu, r->rates.threads,
		    fo_word(r->rates.threads, "thread", "threads"), r->limits.date);
	say_step(r, d);
	if (r->program->ranks > 1)
		fo_cli_predict_ranks(&r->ranks, d);
	say_memory(r, d);
	say_sure(r, d);
}

/* A smaller share would show as "0.0 %": without --all it has no row. */
#define SHOWN_SHARE 0.0005

static void say_parts(const struct report *r, struct fo_doc *d)
{
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrr", "of the step", "", "");
	for (int i = 0; i < FO_PART_COUNT; i++) {
		double part = r->sim.part_s[i];
		if (part > 0 && (r->in->all || part >= SHOWN_SHARE * r->sim.step_s))
			fo_doc_row(d, fo_part_words[i], seconds(d, part),
				   fo_doc_printf(d, "%.1f %%", 100 * part / r->sim.step_s));
	}
}

enum { OPERATIONS = 10 }; /* without --all */

/* The operations that take longest. */
static void say_operations(const struct report *r, struct fo_doc *d)
{
	const struct fo_sim_table *x = &r->table;
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrl", "operations", "times", "predicted", "of step", "sure");
	for (int i = 0; i < x->lines && (r->in->all || i < OPERATIONS); i++) {
		const struct fo_sim_line *l = &x->line[i];
		if (r->in->all || l->predicted_s >= SHOWN_SHARE * r->sim.step_s)
			fo_doc_row(d, fo_cli_predict_operation(d, r->program, x, l), fo_doc_count(d, l->times),
				   seconds(d, l->predicted_s),
				   fo_doc_printf(d, "%.1f %%", 100 * l->predicted_s / r->sim.step_s),
				   fo_sure_name[l->sure]);
	}
}

/* The operations where predicted and measured times are furthest apart; no room for how often each runs. */
static void say_compared(const struct report *r, struct fo_doc *d)
{
	const struct fo_sim_table *x = &r->table;
	const char *steps = r->metered ? "metered step" : "step of the timeline";
	if (x->steps != 1)
		steps = r->metered ? "metered steps" : "steps of the timeline";
	fo_doc_para(d, "Compared: a step's operations took %s (%d %s), predicted %s: %+.1f %%",
		    seconds(d, x->measured_s), x->steps, steps, seconds(d, x->predicted_s),
		    100 * (x->predicted_s / x->measured_s - 1));
	if (r->paced)
		fo_doc_para(d, "Their times were given: how near the two are says nothing of kernels.");
	else if (r->metered)
		fo_doc_para(d,
			    "Each at the median of its quiet spans: %.0f %% of the time is of operations that had one.",
			    100 * r->quiet_share);
	else
		fo_doc_para(d, "All spans, whatever else ran; train.metered-every=N tells quiet ones apart.");
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrl", "where it is off most", "measured", "predicted", "off, %", "sure");
	for (int i = 0; i < x->lines && (r->in->all || i < OPERATIONS); i++) {
		const struct fo_sim_line *l = &x->line[i];
		const char *measured = "-", *off = "-";
		if (!isnan(l->measured_s)) {
			measured = seconds(d, l->measured_s);
			off = fo_doc_printf(d, "%+.1f", 100 * (l->predicted_s - l->measured_s) / x->measured_s);
		}
		fo_doc_row(d, fo_cli_predict_operation(d, r->program, x, l), measured, seconds(d, l->predicted_s), off,
			   fo_sure_name[l->sure]);
	}
	fo_doc_para(d, "off: predicted less measured, as a share of the measured step.");
}

static void json_lines(struct fo_json *j, const struct report *r)
{
	fo_json_array(j, "operations");
	for (int i = 0; i < r->table.lines; i++) {
		const struct fo_sim_line *l = &r->table.line[i];
		const struct fo_op *o = &r->program->block[l->block].op[l->op];
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("block", r->program->block[l->block].name),
			    FO_TEXT("kind", fo_op_info(o->kind)->name), FO_TEXT("phase", fo_phase_name[o->phase]),
			    FO_TEXT("operand", fo_cli_predict_operand(r->program, l)), FO_INT("times", l->times),
			    FO_REAL("predicted_seconds", l->predicted_s));
		if (r->compared)
			fo_json_real(j, "measured_seconds", l->measured_s);
		fo_json_text(j, "sure", fo_sure_name[l->sure]);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void write_json(const struct report *r, struct fo_json *j)
{
	struct fo_mfu f = mfu(r);
	fo_json_put(j, FO_TEXT("model", r->program->model.name), FO_TEXT("machine", r->limits.cpu),
		    FO_TEXT("calibrated", r->limits.date), FO_BOOL("paced", r->paced),
		    FO_INT("threads", r->rates.threads), FO_REAL("step_seconds", r->sim.step_s),
		    FO_REAL("tokens_per_second", tokens(r) / r->sim.step_s),
		    FO_REAL("useful_tokens_per_second", r->load.loss_tokens / r->sim.step_s),
		    FO_REAL("attention_pairs", r->load.pairs >= 0 ? r->load.pairs : NAN));
	fo_cli_mfu_json(j, &f);
	fo_json_put(j, FO_REAL("peak_flop_s", r->peak ? r->peak->best_flop_s : NAN),
		    FO_INT("arena_bytes", r->u->arena_bytes), FO_INT("host_arena_bytes", r->u->host_arena_bytes),
		    FO_INT("persistent_bytes", r->u->persistent_bytes));
	fo_json_object(j, "sure_share");
	for (int i = 0; i < FO_SURE_NONE; i++)
		fo_json_real(j, fo_sure_name[i], share(r, (enum fo_sure)i));
	fo_json_close(j);
	fo_json_put(j, FO_REAL("busy_share", share_of(r, r->sim.busy_s)), FO_INT("unknown_operations", r->sim.unknown));
	fo_json_object(j, "parts_seconds");
	for (int i = 0; i < FO_PART_COUNT; i++)
		fo_json_real(j, fo_part_name[i], r->sim.part_s[i]);
	fo_json_close(j);
	if (r->program->ranks > 1)
		fo_cli_predict_ranks_json(&r->ranks, j);
	if (r->compared)
		fo_json_record(j, "compared", FO_TEXT("with", r->metered ? "metered" : "timeline"),
			       FO_REAL("quiet_share", r->metered ? r->quiet_share : NAN),
			       FO_INT("steps", r->table.steps), FO_REAL("measured_seconds", r->table.measured_s),
			       FO_REAL("predicted_seconds", r->table.predicted_s));
	json_lines(j, r);
}

/* ---- the command ---- */

static fo_status not_of_one_rank(const struct predict *in)
{
	struct fo_spread_in ignored;
	FO_TRY(fo_cli_spread_read(&in->spread, &ignored));
	if (!fo_cli_spread_asked(&in->spread))
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "--jitter and --straggler are of several ranks, which wait for each other"),
		       "--ranks=8 predicts eight, --cluster a job on a cluster");
}

/* All ranks; what is said of a step beside that is rank 0's, which waits for the last one at the end. */
static fo_status simulate_ranks(struct report *r)
{
	struct fo_predict_ranks *x = &r->ranks;
	const struct fo_record *run = *r->in->compare ? &r->record : NULL;
	const struct fo_record_file *timeline = &r->record.file[FO_RECORD_TIMELINE];
	x->threads = r->rates.threads;
	x->links = (struct fo_link_rates){
		.limits = &r->limits,
		/* Ranks of a run that were processes are compared with processes. */
		.over = r->in->over || (run && run->processes) ? FO_LINK_MPI : FO_LINK_THREADS,
		.copy_byte_s = r->rates.copy_byte_s,
		.byte_s = fo_cli_predict_link_option(run, "mesh.link-gbps", r->in->run.link_gbps) * 1e9 / 8,
		.latency_s = fo_cli_predict_link_option(run, "mesh.link-us", r->in->run.link_us) * 1e-6,
	};
	FO_TRY(fo_sim_ranks_init(&x->job, r->program));
	FO_TRY(fo_cli_spread_read(&r->in->spread, &x->spread));
	if (fo_cli_spread_asked(&r->in->spread))
		x->job.spread = &x->spread;
	x->job.apart = r->paced;
	FO_TRY(fo_sim_ranks_step(&x->job, &r->rates, &x->links,
				 *r->in->profile ? fo_rates_cores(&r->limits) : fo_cpu_threads(), r->load.pairs));
	r->sim = x->job.rank[0];
	r->sim.part_s[FO_PART_UNATTRIBUTED] += x->job.step_s.mid - r->sim.step_s;
	r->sim.step_s = x->job.step_s.mid;
	return run && timeline->state == FO_RECORD_WHOLE
		       ? fo_sim_exposed_of(&x->measured, &r->record.timeline, timeline->path)
		       : FO_OK;
}

/* The program, the profile, and the step of one by the other. */
static fo_status simulate(struct report *r)
{
	r->paced = fo_run_is_paced(&r->in->run);
	if (*r->in->compare)
		FO_TRY(open_record(r));
	/* A model that cannot be trained is refused before the user is told to measure for it. */
	FO_TRY(load_program(r));
	if (r->program->ranks < 2)
		FO_TRY(not_of_one_rank(r->in));
	FO_TRY(load_profile(r));
	if (r->program->ranks > 1)
		return simulate_ranks(r);
	fo_sim_step(&r->sim, r->program, r->u, &r->rates, r->load.pairs);
	return FO_OK;
}

static void report_fini(struct report *r)
{
	fo_sim_table_fini(&r->table);
	if (r->ranks.job.ranks)
		fo_sim_ranks_fini(&r->ranks.job); /* r->sim is its own */
	else
		fo_sim_fini(&r->sim);
	fo_unrolled_fini(&r->own_u);
	fo_program_fini(&r->own);
	fo_record_fini(&r->record);
	fo_limits_fini(&r->limits);
	fo_arena_fini(&r->arena);
}

fo_status fo_cli_predict_seconds(const struct predict *in, const struct fo_opt_set *options, double *seconds)
{
	struct report r = { .in = in, .options = options };
	fo_status st = simulate(&r);
	*seconds = st == FO_OK ? r.sim.step_s : NAN;
	report_fini(&r);
	return st;
}

static fo_status report(struct report *r, const struct fo_cli_call *call)
{
	FO_TRY(simulate(r));
	const struct fo_program *p = r->program;
	if (!r->paced)
		r->peak = fo_limits_peak(&r->limits, p->run.precision == FO_PRECISION_BF16 ? "bf16" : "f32",
					 r->rates.threads * p->ranks);
	fo_sim_table_init(&r->table, &r->sim, p, r->u);
	if (*r->in->compare)
		FO_TRY(compare(r));
	if (*r->in->timeline)
		FO_TRY(fo_cli_predict_timeline(&r->sim, r->program, r->u, r->in->timeline));
	if (p->ranks > 1)
		FO_TRY(fo_cli_predict_ranks_files(&r->ranks, r->in->timelines, r->in->trace));
	else if (*r->in->timelines || *r->in->trace)
		return fo_fail(
			FO_EARG,
			"--timelines and --trace are of several ranks, and there is one: --timeline writes its step");
	fo_sim_table_sort(&r->table);
	if (call->json) {
		write_json(r, call->json);
		return FO_OK;
	}
	say_head(r, call->doc);
	say_parts(r, call->doc);
	if (r->compared)
		say_compared(r, call->doc);
	else
		say_operations(r, call->doc);
	return FO_OK;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct predict *in = call->in;
	const char *file = call->argc > 1 ? call->argv[1] : NULL;
	if (*in->compare && file)
		return fo_cli_contradict(
			"--compare predicts the program of '%s': the run file '%s' beside it would say "
			"it twice",
			in->compare, file);
	if (!*in->what_if && (*in->scale || *in->without || in->links > 1 || in->links < 1))
		return fo_fail(FO_EARG,
			       "--scale, --links and --without change recorded steps: --what-if=RUN says of which run");
	if (*in->what_if && (file || *in->compare || *in->device || *in->timeline))
		return fo_cli_contradict(
			"--what-if runs the steps again that '%s' recorded: no run file, --compare, --device "
			"or --timeline goes with it",
			in->what_if);
	if (*in->what_if || *in->device || in->budget)
		FO_TRY(not_of_one_rank(in));
	if (*in->what_if)
		return fo_cli_predict_what_if(call);
	if (*in->device || in->budget)
		return fo_cli_predict_device(call);
	struct report r = { .in = in, .options = call->options, .file = file };
	fo_status st = report(&r, call);
	report_fini(&r);
	return st;
}

const struct fo_command fo_cmd_predict = {
	.name = "predict",
	.group = "improve",
	.usage = "flatout predict [run.yaml] [--KEY=VALUE ...] [--profile FILE] [--documents N] [--timeline FILE] "
		 "[--all] [--json]\n"
		 "flatout predict [run.yaml] --device D [--KEY=VALUE ...] [--profile FILE] [--documents N] [--budget] "
		 "[--all] [--json]\n"
		 "flatout predict --compare RUN [--run.threads=N] [--profile FILE] [--all] [--json]\n"
		 "flatout predict --what-if RUN [--scale NAME=X,...] [--links X] [--without RANK|straggler] [--json]\n"
		 "flatout predict [CONFIG...] --cluster C ...  (flatout predict cluster --help)",
	.summary = "step time, MFU and memory of a run, without running it",
	.text = "The simulator runs the same step program as the engine: the time of each operation comes from the "
		"machine profile of 'flatout calibrate', their order from the program's lanes and waits, the memory "
		"from its plan. What was not measured as it is gets interpolated, and the report says how much of the "
		"step that is. --compare sets the program of a run beside what was measured there and lists where the "
		"model is wrong.\n\n"
		"--device predicts a step on an accelerator by parts, as an interval: from its published figures, or "
		"from what 'bench/gpu/run ceilings' measured on it (--profile).\n\n"
		"--what-if runs recorded steps of all ranks again with other times of operations, lanes or links, or "
		"without a straggler, and says what the step would take and what holds it.\n\n"
		"  flatout calibrate && flatout predict run.yaml\n"
		"  flatout predict run.yaml --pass.merge-qkv=no --run.threads=1\n"
		"  flatout predict run.yaml --device h200\n"
		"  flatout predict --compare run\n"
		"  flatout predict --what-if run --scale=matmul=0.5 --links=2\n"
		"  flatout predict --what-if run --without=straggler\n",
	.opts = fo_run_options,
	.own = extra,
	.act = run,
	.size = sizeof(struct predict),
	.most = 1,
	.instead = &fo_cmd_predict_cluster,
	.instead_of = "--cluster --torchtitan --megatron --deepspeed",
};
