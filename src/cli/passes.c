/* flatout passes: what the optimisations do to the step program of a run, one after the other. */
#include "cli/cli.h"

#include "pass/pass.h"
#include "program/run.h"

#include <stddef.h>
#include <string.h>

struct passes {
	struct fo_run run;
	const char *json;
	bool force;
};
static const struct fo_opt extra[] = { FO_CLI_OUTPUT_ROWS(struct passes, "cli", "print JSON") };

struct figures {
	struct fo_cost cost;
	int64_t operations, arena, persistent, host;
};

/* The program with this choice: FO_OK and its figures, or why it cannot be. */
static fo_status measure(const struct fo_model *m, struct fo_lowering low, struct figures *out)
{
	struct fo_program p;
	struct fo_unrolled u;
	FO_TRY(fo_pass_build(&p, m, &low));
	fo_status st = fo_unroll(&p, &u);
	if (st == FO_OK) {
		fo_plan(&p, &u);
		*out = (struct figures){ fo_program_cost(&p, -1), u.n, u.arena_bytes, u.persistent_bytes,
					 u.host_arena_bytes };
		fo_unrolled_fini(&u);
	}
	fo_program_fini(&p);
	return st;
}

/* ---- the report: the plain program, then one entry per pass ---- */

enum state { ON, OFF, REFUSED };
struct entry {
	const struct fo_pass *pass;
	enum state state;
	int64_t value;
	struct figures
		f; /* ON: with it and those before it; OFF: as if it were on too, after all others; REFUSED: nothing */
	const char *why;
};

struct report {
	struct fo_arena arena;
	struct figures plain, all;
	struct entry *entry;
};

static fo_status make_report(struct report *r, const struct fo_model *m, const struct fo_lowering *want)
{
	struct fo_lowering low = *want;
	low.stages.repeats = 0;
	for (int i = 0; i < fo_pass_count; i++) /* what else stands there says how, not whether */
		if (fo_pass_table[i].choice != offsetof(struct fo_passes, pp)) /* stages are no choice of one rank */
			fo_passes_set(&low.pass, fo_pass_table[i].choice, 0);
	FO_TRY(measure(m, low, &r->plain));
	FO_TRY(measure(m, *want, &r->all));
	r->entry = fo_arena_alloc(&r->arena, (size_t)fo_pass_count * sizeof *r->entry);
	for (int i = 0; i < fo_pass_count; i++) {
		struct entry *e = &r->entry[i];
		struct fo_passes choice = want->pass;
		*e = (struct entry){ .pass = &fo_pass_table[i],
				     .value = fo_passes_get(&choice, fo_pass_table[i].choice) };
		const bool repeats = e->pass->choice == offsetof(struct fo_passes, recompute);
		if (repeats)
			low.stages.repeats = want->stages.repeats;
		if (e->value || (repeats && want->stages.repeats)) { /* of stages some may repeat nothing */
			fo_passes_set(&low.pass, e->pass->choice, e->value);
			FO_TRY(measure(m, low, &e->f));
			continue;
		}
		struct fo_lowering more = *want;
		e->value = e->pass->on;
		fo_passes_set(&more.pass, e->pass->choice, e->value);
		/* As for a run: pass.zero alone makes one shard group of all ranks. */
		if (!strcmp(e->pass->name, "zero") && more.mesh.shard <= 1) {
			more.mesh.shard = fo_mesh_ranks(&more.mesh);
			more.mesh.replicate = 1;
		}
		e->state = measure(m, more, &e->f) == FO_OK ? OFF : REFUSED;
		if (e->state == REFUSED)
			e->why = fo_arena_strdup(&r->arena, fo_err_text());
	}
	return FO_OK;
}

static void row(struct fo_doc *d, const char *name, const struct figures *f)
{
	char exec[32];
	fo_doc_row(d, name, fo_doc_count(d, f->operations), fo_doc_num(d, f->cost.bytes, FO_DRAW_BYTES),
		   fo_str_si(exec, f->cost.exec, "FLOP"), fo_doc_bytes(d, f->arena), fo_doc_bytes(d, f->persistent));
}

static void table(struct fo_doc *d, const struct report *r, const char *head, const struct figures *first,
		  enum state state)
{
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrrr", head, "ops", "moved", "executed", "activations",
		     "weights, state");
	if (first)
		row(d, "the plain program", first);
	for (int i = 0; i < fo_pass_count; i++) {
		const struct entry *e = &r->entry[i];
		struct fo_str name = { 0 };
		if (e->state != state)
			continue;
		fo_str_printf(&name, "%s%s", state == ON ? "+ " : "", e->pass->name);
		fo_pass_value_text(e->pass->choice, e->value, &name);
		row(d, name.data, &e->f);
		fo_str_fini(&name);
	}
}

static void say(const struct report *r, const struct fo_model *m, const struct fo_lowering *low, struct fo_doc *d)
{
	bool off = false;
	fo_doc_para(d, "passes of %s: %s", m->name, fo_cli_run_text(d, low));
	table(d, r, "one after the other", &r->plain, ON);
	for (int i = 0; i < fo_pass_count; i++)
		off = off || r->entry[i].state == OFF;
	if (off)
		table(d, r, "off; if one were on", NULL, OFF);
	for (int i = 0; i < fo_pass_count; i++) {
		const struct entry *e = &r->entry[i];
		if (e->state == REFUSED)
			fo_doc_item(d, "not here: %s", e->why);
		else if (e->f.host && e->pass->choice == offsetof(struct fo_passes, offload))
			fo_doc_item(d, "%s: beside that %s of activations wait in host memory", e->pass->name,
				    fo_doc_bytes(d, e->f.host));
	}
	fo_doc_heading(d, "What each pass does");
	for (int i = 0; i < fo_pass_count; i++)
		fo_doc_item(d, "%s (%s): %s", r->entry[i].pass->name, fo_pass_kind_name[r->entry[i].pass->kind],
			    r->entry[i].pass->doc);
}

static void json_figures(struct fo_json *j, const struct figures *f)
{
	fo_json_put(j, FO_INT("instances", f->operations), FO_REAL("model_flop", f->cost.model),
		    FO_REAL("executed_flop", f->cost.exec), FO_REAL("moved_bytes", f->cost.bytes),
		    FO_INT("arena_bytes", f->arena), FO_INT("host_arena_bytes", f->host),
		    FO_INT("persistent_bytes", f->persistent));
}

static void write_json(const struct report *r, const struct fo_model *m, struct fo_json *j)
{
	static const char *const state[] = { "on", "off", "refused" };
	fo_json_text(j, "model", m->name);
	fo_json_object(j, "plain");
	json_figures(j, &r->plain);
	fo_json_close(j);
	fo_json_object(j, "all");
	json_figures(j, &r->all);
	fo_json_close(j);
	fo_json_array(j, "passes");
	for (int i = 0; i < fo_pass_count; i++) {
		const struct entry *e = &r->entry[i];
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("name", e->pass->name), FO_TEXT("kind", fo_pass_kind_name[e->pass->kind]),
			    FO_TEXT("doc", e->pass->doc), FO_TEXT("state", state[e->state]), FO_INT("value", e->value));
		if (e->state == REFUSED)
			fo_json_text(j, "why", e->why);
		else
			json_figures(j, &e->f);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static fo_status say_stages(const struct fo_model *m, const struct fo_lowering *run, const struct fo_cli_call *call)
{
	struct fo_program p;
	FO_TRY(fo_pass_build(&p, m, run));
	if (p.staged && !call->json)
		fo_doc_para(call->doc, "Figures above are of the first stage's ranks.");
	const fo_status st = fo_cli_stages(&p, call->doc, call->json);
	fo_program_fini(&p);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct passes *in = call->in;
	struct fo_model m;
	struct fo_choice choice;
	struct report r = { 0 };
	if (*in->run.program_file)
		return fo_hint(fo_fail(FO_EARG,
				       "passes are applied to a model: program.file ('%s') holds a program that is "
				       "made already",
				       in->run.program_file),
			       "'flatout program --program.file=%s' shows it", in->run.program_file);
	FO_TRY(fo_run_model(&in->run, &m));
	FO_TRY(fo_pass_choose_said(&in->run, &m, &choice));
	fo_status st = make_report(&r, &m, &choice.run);
	if (st == FO_OK && call->json)
		write_json(&r, &m, call->json);
	else if (st == FO_OK)
		say(&r, &m, &choice.run, call->doc);
	if (st == FO_OK)
		st = say_stages(&m, &choice.run, call);
	fo_arena_fini(&r.arena);
	return st;
}

const struct fo_command fo_cmd_passes = {
	.name = "passes",
	.group = "improve",
	.usage = "flatout passes [run.yaml] [--KEY=VALUE ...] [--json]",
	.summary = "the optimisations and what each does to a run's step program",
	.text = "A pass rewrites the step program and keeps its mathematics. The first table adds those that the run "
		"has on, in the order in which they are applied: operations per step, bytes that all operands take "
		"when each is read and written once, FLOP that run, and the planned memory of activations and "
		"gradients and of weights and optimizer state. The second shows what each of the others would make of "
		"the whole. Reasons stand beside those that this run cannot have.\n\n"
		"  flatout passes run.yaml\n"
		"  flatout passes --model.name=llama-3.2-1b --data.seq=8192 --pass.merge-qkv=no\n",
	.opts = fo_run_options,
	.own = extra,
	.act = run,
	.size = sizeof(struct passes),
	.most = 1,
};
