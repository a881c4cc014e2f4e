/* flatout plan --ranks: the best mesh for the ranks of a run on a machine that was measured. */
#include "cli/plan.h"
#include "cli/plan_fix.h"
#include "cli/predict.h"

#include "base/count.h"
#include "hw/state.h"
#include "plan/meshes.h"
#include "program/run.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct plan_machine {
	struct fo_run run;
	const char *profile, *fix, *json;
	double documents;
	int over; /* 0 threads, 1 MPI */
	int64_t top;
	bool force;
};
static const struct fo_opt extra[] = {
	FO_OPT_PATH(struct plan_machine, profile, "cli.profile", "FILE", "",
		    "a profile of flatout calibrate; empty: this machine's"),
	FO_OPT_ENUM(struct plan_machine, over, "cli.over", "threads",
		    "what carries calls between ranks: threads of one process, or processes over MPI as mpirun starts "
		    "them",
		    "threads|mpi"),
	FO_OPT_LENGTH_REAL(struct plan_machine, documents, "cli.documents", "N", "0", 0, 1e9,
			   "mean length of documents: attention ends at their bounds; 0: rows are unbroken"),
	FO_OPT_TEXT(
		struct plan_machine, fix, "cli.fix", "NAME=N,...", NULL,
		"what is not searched: tp=2,pp=1,micro-batch=4 (rows of a rank); an option of the mesh or of a pass "
		"does the same"),
	FO_OPT_INT(struct plan_machine, top, "cli.top", "N", "12", 0, 1000000, "", "meshes that are shown; 0: all"),
	FO_CLI_OUTPUT_ROWS(struct plan_machine, "cli", "print JSON")
};

/* ---- what is asked ---- */

/* Settings that are searched: a run file's do not count, a flag's or a variable's is kept. */
static const char *const searched[] = { "mesh.pp",        "mesh.tp", "mesh.cp",        "mesh.shard",
					"mesh.replicate", "pass.pp", "pass.pp-chunks", "pass.tp-sequence",
					"pass.tp-async",  "pass.cp", "pass.zero",      "pass.zero-reshard" };
enum { SEARCHED = sizeof searched / sizeof *searched };

static bool insists(const struct fo_opt_set *s, const char *key)
{
	return s->origin[fo_opt_find(s->rows, key)].from >= FO_ORIGIN_ENV;
}

static void set(struct fo_opt_set *s, const char *key, const char *value, const char *where)
{
	s->origin[fo_opt_find(s->rows, key)].from = FO_ORIGIN_DEFAULT;
	fo_opt_set_text(s, key, value, FO_ORIGIN_DEFAULT, where);
}

/* Reads the run file, and forgets what it says of the mesh: the run then stands for all meshes of its ranks. */
static fo_status prepare(struct fo_opt_set *s, int argc, char **argv)
{
	struct fo_run *r = s->target;
	char text[24];
	int64_t axes[] = { 1, 1 }; /* of the file, kept */
	if (argc > 1)
		FO_TRY(fo_cli_options_yaml(&fo_cmd_plan_machine, s, argv[1]));
	const int64_t of[] = { r->pp, r->tp, r->cp, r->shard, r->replicate };
	for (int i = 0; i < 5; i++) {
		axes[0] *= fo_max(of[i], 1);
		axes[1] *= insists(s, searched[i]) ? fo_max(of[i], 1) : 1;
	}
	if (!fo_opt_given(s, "mesh.ranks")) {
		snprintf(text, sizeof text, "%" PRId64, axes[0]);
		set(s, "mesh.ranks", text, "the mesh");
	}
	for (int i = 0; i < SEARCHED; i++)
		if (!insists(s, searched[i])) {
			const struct fo_opt *row = &s->rows[fo_opt_find(s->rows, searched[i])];
			set(s, searched[i], row->dfl, "plan");
		}
	/* Stages alone can share every number of rows. */
	if (!insists(s, "mesh.pp") && r->ranks % axes[1] == 0) {
		snprintf(text, sizeof text, "%" PRId64, r->ranks / axes[1]);
		set(s, "mesh.pp", text, "plan");
	}
	return FO_OK;
}

static fo_status fix_of(const struct fo_cli_call *call, struct fo_arena *arena, struct fo_plan_mesh_fixed *f)
{
	const struct plan_machine *in = call->in;
	const struct fo_run *r = &in->run;
	struct fo_plan_fixed fixed = FO_PLAN_FREE;
	*f = FO_PLAN_MESH_FREE;
	const struct {
		int64_t *wide;
		int *narrow;
		const char *key;
		int64_t value;
	} row[] = {
		{ &f->pp, NULL, "mesh.pp", r->pp },
		{ &f->tp, NULL, "mesh.tp", r->tp },
		{ &f->cp, NULL, "mesh.cp", r->cp },
		{ &f->shard, NULL, "mesh.shard", r->shard },
		{ NULL, &f->pp_kind, "pass.pp", r->pp_kind },
		{ &f->pp_chunks, NULL, "pass.pp-chunks", r->pp_chunks },
		{ NULL, &f->tp_sequence, "pass.tp-sequence", r->tp_sequence },
		{ &f->tp_async, NULL, "pass.tp-async", r->tp_async < 0 ? 1 : r->tp_async },
		{ NULL, &f->cp_by, "pass.cp", r->cp_by },
		{ NULL, &f->zero, "pass.zero", r->zero },
		{ NULL, &f->zero_reshard, "pass.zero-reshard", r->zero_reshard },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		if (!insists(call->options, row[i].key))
			continue;
		if (row[i].wide)
			*row[i].wide = row[i].value;
		else
			*row[i].narrow = (int)row[i].value;
	}
	FO_TRY(fo_cli_plan_fix(in->fix, arena, &fixed));
	if (fixed.ep > 1)
		return fo_fail(FO_EARG, "--fix ep: Flatout trains no experts");
	const struct {
		int64_t *to;
		double from;
	} given[] = { { &f->pp, fixed.pp },
		      { &f->tp, fixed.tp },
		      { &f->cp, fixed.cp },
		      { &f->shard, fixed.shard },
		      { &f->pp_chunks, fixed.chunks },
		      { &f->rows_of_a_rank, fixed.micro_batch } };
	for (size_t i = 0; i < sizeof given / sizeof *given; i++)
		if (given[i].from > 0)
			*given[i].to = (int64_t)given[i].from;
	if (fixed.zero >= 0)
		f->zero = fixed.zero;
	return FO_OK;
}

/* ---- the answer ---- */

struct answer {
	const struct plan_machine *in;
	struct fo_model model; /* named "custom" where the run changes a preset */
	struct fo_arena arena;
	struct fo_limits limits;
	struct fo_rates rates;
	struct fo_link_rates links;
	struct fo_plan_meshes_asked ask;
	struct fo_plan_meshes found;
};

static fo_status load(const struct fo_cli_call *call, struct answer *x)
{
	const struct plan_machine *in = x->in;
	FO_TRY(fo_run_model(&in->run, &x->model));
	/* Paced kernels take the times of their own profile. */
	const char *given = *in->profile || !fo_run_is_paced(&in->run) ? in->profile : in->run.paced;
	FO_TRY(fo_cli_profile_read(&x->arena, given, &x->limits));
	int64_t threads = in->run.threads;
	const int cores = *given ? fo_rates_cores(&x->limits) : fo_cpu_threads();
	if (threads < 1)
		threads = *given ? fo_rates_threads(&x->limits) : cores;
	threads = fo_max(1, threads / in->run.ranks); /* ranks share them as in training (train/team.h) */
	fo_status st = fo_rates_init(&x->rates, &x->limits, (int)threads);
	if (st != FO_OK)
		return fo_hint(st, "'flatout calibrate run.yaml --ranks=%" PRId64 "' measures what such a run needs",
			       in->run.ranks);
	x->links = (struct fo_link_rates){ .limits = &x->limits,
					   .over = in->over ? FO_LINK_MPI : FO_LINK_THREADS,
					   .copy_byte_s = x->rates.copy_byte_s,
					   .byte_s = in->run.link_gbps * 1e9 / 8,
					   .latency_s = in->run.link_us * 1e-6 };
	x->ask = (struct fo_plan_meshes_asked){ .run = &in->run,
						.rates = &x->rates,
						.links = &x->links,
						.cores = cores,
						.pairs = -1,
						.memory_bytes = in->run.memory_limit };
	if (in->documents > 0)
		x->ask.pairs = fo_sim_pairs(in->run.seq, in->documents);
	if (x->ask.memory_bytes <= 0 && !*given) {
		struct fo_machine m;
		fo_machine_read(&m, "");
		x->ask.memory_bytes = m.available_bytes;
	}
	return fix_of(call, &x->arena, &x->ask.fixed);
}

static const char *mesh_text(struct fo_doc *d, const struct fo_plan_mesh *m, bool narrow)
{
	const int64_t dp = m->shard * m->replicate;
	const struct fo_division x = { .dp = (double)dp,
				       .tp = (double)m->tp,
				       .cp = (double)m->cp,
				       .pp = (double)m->pp,
				       .chunks = (double)m->pp_chunks,
				       .zero = m->zero,
				       .shard = m->shard < dp ? (double)(m->shard * m->cp) : 0,
				       .no_sp = !m->tp_sequence,
				       .tp_async = m->tp_async != 0,
				       .cp_by_heads = m->cp_by != 0,
				       .schedule = (enum fo_pp_kind)m->pp_kind,
				       .keeps = m->zero_reshard };
	return fo_cli_division(d, &x, narrow);
}

static bool ties(const struct answer *x, int i)
{
	return x->found.mesh[i].step_s.mid <= (1 + FO_PLAN_TIE) * x->found.mesh[0].step_s.mid;
}

static bool shows(const struct answer *x, int i) { return !x->in->top || i < x->in->top || i == x->found.named; }

static const char *step_text(struct fo_doc *d, struct fo_interval s)
{
	return fo_doc_printf(d, "%s (%s to %s)", fo_doc_num(d, s.mid, FO_DRAW_SECONDS),
			     fo_doc_num(d, s.low, FO_DRAW_SECONDS), fo_doc_num(d, s.high, FO_DRAW_SECONDS));
}

static void say_head(struct fo_doc *d, const struct answer *x)
{
	const struct fo_plan_mesh *m = &x->found.mesh[x->found.named];
	const struct fo_run *r = &x->in->run;
	int tied = 0;
	while (tied < x->found.n && ties(x, tied))
		tied++;
	fo_doc_line(d, "plan", "%s on %" PRId64 " rank%s of %d thread%s: %" PRId64 " rows of %" PRId64 " tokens a step",
		    x->model.name, r->ranks, fo_plural(r->ranks), x->rates.threads, fo_plural(x->rates.threads),
		    m->rows * m->micro_batches, r->seq);
	fo_doc_line(d, "machine", "%s, calibrated %s", x->limits.cpu, x->limits.date);
	fo_doc_line(d, "searched",
		    "%" PRId64 " meshes in %s: %d simulated, %" PRId64 " refused by the executor, %" PRId64
		    " do not fit in memory",
		    x->found.tried, fo_doc_num(d, x->found.seconds, FO_DRAW_SECONDS), x->found.n, x->found.refused,
		    x->found.too_large);
	fo_doc_verdict(d, FO_DOC_GOOD, "take", "%s, %" PRId64 " micro-batch%s of %" PRId64 " row%s",
		       mesh_text(d, m, false), m->micro_batches, fo_word(m->micro_batches, "", "es"), m->rows,
		       fo_plural(m->rows));
	if (tied > 1)
		fo_doc_line(d, "ties",
			    "%d meshes lie within %.1f %%, which is no difference: this is the simplest of them", tied,
			    100 * FO_PLAN_TIE);
	fo_doc_line(d, "step", "%s", step_text(d, m->step_s));
	fo_doc_line(d, "memory", "%s of all ranks together", fo_doc_bytes(d, m->bytes));
	if (m->guess_share > 0.05)
		fo_doc_line(d, "guessed",
			    "%.0f %% of its computing: nothing near to it was measured; 'flatout calibrate' with the "
			    "run file and this mesh does",
			    100 * m->guess_share);
}

static void say(struct fo_doc *d, const struct answer *x)
{
	struct fo_str text = { 0 };
	fo_doc_title(d, "Plan: %s on this machine", x->model.name);
	say_head(d, x);
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrrr", "mesh", "rows", "times", "step", "exposed", "memory");
	for (int i = 0; i < x->found.n; i++) {
		const struct fo_plan_mesh *m = &x->found.mesh[i];
		const char *mark = ties(x, i) ? "= " : "";
		if (!shows(x, i))
			continue;
		mark = i == x->found.named ? "> " : mark;
		fo_doc_row(d, fo_doc_printf(d, "%s%s", mark, mesh_text(d, m, true)),
			   fo_doc_printf(d, "%" PRId64, m->rows), fo_doc_printf(d, "%" PRId64, m->micro_batches),
			   fo_doc_num(d, m->step_s.mid, FO_DRAW_SECONDS),
			   fo_doc_num(d, m->exposed_s.mid, FO_DRAW_SECONDS), fo_doc_bytes(d, m->bytes));
	}
	fo_doc_para(
		d,
		"> is what to take, = ties with it. %s. rows: of a micro-batch, of all ranks; times: micro-batches; "
		"exposed: communication while no lane computes.",
		fo_division_legend);
	fo_plan_mesh_yaml(&x->found.mesh[x->found.named], x->in->run.ranks, &text);
	fo_doc_heading(d, "Settings: run.yaml");
	fo_doc_code(d, text.data);
	fo_str_fini(&text);
}

static void put_mesh(struct fo_json *j, const struct answer *x, int i)
{
	const struct fo_plan_mesh *m = &x->found.mesh[i];
	struct fo_str text = { 0 };
	fo_plan_mesh_options(m, x->in->run.ranks, &text);
	fo_json_object(j, NULL);
	const bool staged = m->pp > 1;
	const int64_t chunks = staged ? fo_max(1, m->pp_chunks) : 1;
	fo_json_put(j, FO_TEXT("options", text.data), FO_INT("pp", m->pp),
		    FO_TEXT("schedule", staged ? fo_pp_name[m->pp_kind] : NULL), FO_INT("chunks", chunks),
		    FO_INT("tp", m->tp), FO_INT("cp", m->cp), FO_INT("shard", m->shard),
		    FO_INT("replicate", m->replicate), FO_INT("zero", m->zero), FO_INT("rows", m->rows),
		    FO_INT("micro_batches", m->micro_batches), FO_BOOL("tie", ties(x, i)));
	fo_cli_json_interval(j, "step_seconds", m->step_s);
	fo_cli_json_interval(j, "exposed_seconds", m->exposed_s);
	fo_json_put(j, FO_INT("memory_bytes", m->bytes), FO_REAL("guessed_share", m->guess_share));
	fo_json_close(j);
	fo_str_fini(&text);
}

static void put(struct fo_json *j, const struct answer *x)
{
	int place = 0; /* of the named one among those shown */
	for (int i = 0; i < x->found.named; i++)
		place += shows(x, i);
	fo_json_put(j, FO_TEXT("model", x->model.name), FO_TEXT("machine", x->limits.cpu),
		    FO_TEXT("calibrated", x->limits.date), FO_INT("ranks", x->in->run.ranks),
		    FO_INT("threads_each", x->rates.threads), FO_INT("seq", x->in->run.seq),
		    FO_INT("tried", x->found.tried), FO_INT("refused", x->found.refused),
		    FO_INT("too_large", x->found.too_large), FO_INT("simulated", x->found.n),
		    FO_REAL("search_seconds", x->found.seconds), FO_INT("named", place));
	fo_json_array(j, "points");
	for (int i = 0; i < x->found.n; i++)
		if (shows(x, i))
			put_mesh(j, x, i);
	fo_json_close(j);
}

/* Speaks as flatout predict does, with the same status. */
static fo_status does_not_fit(const struct fo_cli_call *call, const struct answer *x)
{
	if (call->json) {
		fo_json_put(call->json, FO_TEXT("model", x->model.name), FO_INT("ranks", x->in->run.ranks),
			    FO_TEXT("fit", "does not fit"), FO_INT("tried", x->found.tried),
			    FO_INT("refused", x->found.refused), FO_INT("too_large", x->found.too_large),
			    FO_REAL("smallest_bytes", x->found.least_bytes ? (double)x->found.least_bytes : NAN),
			    FO_INT("usable_bytes", x->ask.memory_bytes));
		return fo_cli_found();
	}
	const char *least = "";
	if (x->found.least_bytes)
		least = fo_doc_printf(call->doc, ": the smallest takes %s of %s",
				      fo_doc_bytes(call->doc, x->found.least_bytes),
				      fo_doc_bytes(call->doc, x->ask.memory_bytes));
	fo_doc_verdict(call->doc, FO_DOC_BAD, "too large",
		       "%s does not fit on this machine in any of %" PRId64 " meshes of %" PRId64
		       " ranks%s; a shorter data.seq or fewer rows would take less",
		       x->model.name, x->found.tried, x->in->run.ranks, least);
	return fo_cli_found();
}

static fo_status answer(const struct fo_cli_call *call, struct answer *x)
{
	FO_TRY(load(call, x));
	fo_status st = fo_plan_meshes_search(&x->found, &x->ask);
	if (st == FO_ENOMEM && x->found.too_large)
		return does_not_fit(call, x);
	FO_TRY(st);
	if (call->json)
		put(call->json, x);
	else
		say(call->doc, x);
	return FO_OK;
}

static fo_status run(const struct fo_cli_call *call)
{
	struct answer x = { .in = call->in };
	fo_status st = answer(call, &x);
	fo_plan_meshes_fini(&x.found);
	fo_limits_fini(&x.limits);
	fo_arena_fini(&x.arena);
	return st;
}

const struct fo_command fo_cmd_plan_machine = {
	.name = "plan machine",
	.group = "plan",
	.usage =
		"flatout plan [run.yaml] --ranks=N [--link-gbps=X] [--link-us=Y] [--profile FILE] [--over threads|mpi] "
		"[--fix tp=2,...] [--KEY=VALUE ...] [--top N] [--json]",
	.summary = "the best mesh for the ranks of a run on a machine that was measured",
	.text = "Lowers every mesh of N ranks that the executor runs, plans its memory and simulates its step with the "
		"times of a profile, as 'flatout predict run.yaml' does for one: stages with each schedule and chunks, "
		"tp with and without sequence parallelism, cp as ring and by heads, ZeRO stages and the ranks that "
		"share states, and how the rows of a step become micro-batches. --ranks or --profile behind 'plan' "
		"choose this command. Exit status 1: no mesh fits the memory.\n\n"
		"What the run file says of its mesh does not count; a flag does, and is kept.\n\n"
		"  flatout calibrate run.yaml --ranks=4 && flatout plan run.yaml --ranks=4\n"
		"  flatout plan run.yaml --ranks=8 --link-gbps=1 --link-us=20 --profile p.json\n",
	.opts = fo_run_options,
	.own = extra,
	.prepare = prepare,
	.act = run,
	.size = sizeof(struct plan_machine),
	.most = 1,
};
