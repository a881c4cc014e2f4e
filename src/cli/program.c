/* flatout program: the step program of a run and its memory plan. */
#include "cli/cli.h"
#include "cli/program_schedule.h"

#include "base/fs.h"
#include "pass/pass.h"
#include "program/run.h"

#include <string.h>

struct program {
	struct fo_run run;
	const char *json;
	bool force;
	const char *dump;
	bool operations;
	int64_t meshes;
	struct fo_cli_schedule schedule;
};
static const struct fo_opt extra[] = {
	FO_OPT_BOOL(struct program, operations, "cli.operations", "true", "list the operations of every block"),
	FO_OPT_OUTPUT(struct program, dump, "cli.dump", "FILE", "",
		      "write the program as text; --program.file=FILE reads it back", FO_OUTPUT_PROGRAM),
	FO_OPT_INT(struct program, meshes, "cli.meshes", "N", "0", 0, FO_RUN_RANKS_MOST, "ranks",
		   "the meshes of N ranks that the run can have instead, with what each rank receives and holds"),
	FO_OPT_ENUM(struct program, schedule.kind, "cli.schedule", NULL,
		    "draw this schedule of a pipeline, with train.micro-batches, and nothing else",
		    "gpipe|1f1b|interleaved|zb-h1|zb-h2|dualpipe-v"),
	FO_OPT_INT(struct program, schedule.stages, "cli.stages", "N", "4", 1, 4096, "", "its stages"),
	FO_OPT_INT(struct program, schedule.chunks, "cli.chunks", "N", "0", 0, 64, "",
		   "chunks of the model on each stage; 0: as few as the schedule allows"),
	FO_OPT_TEXT(struct program, schedule.times, "cli.times", "F,I,W", "1,1,1",
		    "turns that a stage takes for one micro-batch: forward, backward of the input, of the weights"),
	FO_OPT_REAL(struct program, schedule.send, "cli.send", "TURNS", "0", 0, 1e9, "",
		    "turns that a message from stage to stage takes"),
	FO_OPT_OUTPUT(struct program, schedule.svg, "cli.svg", "FILE", NULL, "also write the schedule as a picture",
		      FO_OUTPUT_SVG),
	FO_CLI_OUTPUT_ROWS(struct program, "cli", "print JSON")
};

/* "d.x[l-1]+= 2048x768 bf16": its layer where that is another one, how it is written, its shape and type. */
static void operand(const struct fo_program *p, const struct fo_operand *a, struct fo_str *out)
{
	static const char *const mode[] = { [FO_ACC] = "+=", [FO_UPDATE] = "*", [FO_TAKE] = "!" };
	fo_str_puts(out, p->buf[a->buf].name);
	if (a->dlayer)
		fo_str_puts(out, a->dlayer > 0 ? "[l+1]" : "[l-1]");
	if ((size_t)a->access < sizeof mode / sizeof *mode && mode[a->access])
		fo_str_puts(out, mode[a->access]);
	fo_str_printf(out, " %dx%d %s", a->nr, a->nc, fo_dtype_name[p->buf[a->buf].dtype]);
}

/* All operands, outputs after an arrow. */
static void operands(const struct fo_program *p, const struct fo_op *o, struct fo_str *out)
{
	for (int outputs = 0; outputs < 2; outputs++) {
		const char *before = outputs ? "-> " : "";
		bool any = false;
		for (int i = 0; i < o->n; i++) {
			if (fo_access_writes(o->arg[i].access) != outputs)
				continue;
			fo_str_puts(out, before);
			operand(p, &o->arg[i], out);
			before = ", ";
			any = true;
		}
		if (any && !outputs)
			fo_str_puts(out, " ");
	}
}

const char *fo_cli_run_text(struct fo_doc *d, const struct fo_lowering *run)
{
	int ranks = fo_mesh_ranks(&run->mesh);
	const char *each = ranks > 1 ? fo_doc_printf(d, "%d ranks x ", ranks) : "";
	if (ranks > fo_mesh_data(&run->mesh))
		each = fo_doc_printf(d, "%d %s of %d ranks x ", fo_mesh_data(&run->mesh),
				     fo_word(fo_mesh_data(&run->mesh), "group", "groups"),
				     ranks / fo_mesh_data(&run->mesh));
	return fo_doc_printf(d, "%s%lld %s x %lld %s x %lld tokens, %s", each, (long long)run->micro_batches,
			     fo_word(run->micro_batches, "micro-batch", "micro-batches"), (long long)run->rows,
			     fo_word(run->rows, "row", "rows"), (long long)run->seq, fo_numerics_name[run->precision]);
}

static void say_operation(const struct fo_program *p, const struct fo_op *o, struct fo_doc *d)
{
	struct fo_cost c = fo_op_cost(p, o, -1);
	struct fo_str text = { 0 };
	const char *lane = "", *work = "";
	operands(p, o, &text);
	if (o->lane != FO_LANE_COMPUTE)
		lane = fo_doc_printf(d, "on lane %s ", fo_lane_name[o->lane]);
	if (c.exec > 0)
		work = fo_doc_printf(d, "; %s", fo_doc_si(d, c.exec, "FLOP"));
	fo_doc_item(d, "%s.%s %s%s%s", fo_op_info(o->kind)->name, fo_phase_name[o->phase], lane, text.data, work);
	fo_str_fini(&text);
}

static void say_blocks(const struct fo_program *p, bool list, struct fo_doc *d)
{
	for (int b = 0; b < p->nblock; b++) {
		const struct fo_block *k = &p->block[b];
		struct fo_cost sum = { 0 };
		for (int i = 0; i < k->n; i++) {
			struct fo_cost c = fo_op_cost(p, &k->op[i], -1);
			sum.exec += c.exec;
			sum.bytes += c.bytes;
		}
		const char *work = sum.exec > 0 ? fo_doc_si(d, sum.exec, "FLOP") : "";
		if (sum.bytes > 0)
			work = fo_doc_join(d, work, fo_doc_num(d, sum.bytes, FO_DRAW_BYTES));
		if (*work)
			work = fo_doc_printf(d, ", %s each", work);
		fo_doc_para(d, "%s: %lld x %d %s (%s, %s)%s", k->name, (long long)fo_block_slots(p, b), k->n,
			    fo_word(k->n, "operation", "operations"), fo_role_name[k->role], fo_unit_name[k->unit],
			    work);
		for (int i = 0; list && i < k->n; i++)
			say_operation(p, &k->op[i], d);
	}
}

/* "2 roles (programs that differ in more than places): ranks 0 and 5 others, rank 3 and 1 other" */
static void say_roles(const struct fo_roles *r, struct fo_doc *d)
{
	const char *who = "";
	for (int k = 0; k < r->n && k < 6; k++)
		who = fo_doc_printf(d, "%s%srank %d%s", who, k ? "; " : "", r->of[k].first,
				    r->of[k].ranks > 1 ? fo_doc_printf(d, " and %d other%s like it", r->of[k].ranks - 1,
								       fo_plural(r->of[k].ranks - 1))
						       : "");
	fo_doc_line(d, "roles", "%d: %s%s; %lld calls of all ranks fit together, and none waits for ever", r->n, who,
		    r->n > 6 ? "; and others" : "", (long long)r->calls);
}

static void say(const struct fo_program *p, const struct fo_unrolled *u, const struct fo_roles *roles, bool list,
		struct fo_doc *d)
{
	struct fo_cost cost = fo_program_cost(p, -1);
	/* Of this rank, as all figures here: it does a part of the work on tokens that its tp group shares. */
	double tokens = (double)p->tokens * (double)p->run.micro_batches / fo_mesh_tp(&p->run.mesh);
	fo_doc_verdict(d, FO_DOC_PLAIN, NULL, "step program of %s: %s", p->model.name, fo_cli_run_text(d, &p->run));
	say_blocks(p, list, d);
	fo_doc_line(d, "slots", "%d, with %d operation instances", p->nslot, u->n);
	fo_doc_line(d, "model", "%s per step; per token %s by rule mfu, %s by mfu_causal",
		    fo_doc_si(d, cost.model, "FLOP"), fo_doc_si(d, cost.model / tokens, "FLOP"),
		    fo_doc_si(d, cost.model_causal / tokens, "FLOP"));
	fo_doc_line(d, "executed", "%s per step (causal attention skips what is masked)",
		    fo_doc_si(d, cost.exec, "FLOP"));
	fo_doc_line(d, "moved", "%s per step if every operand is read and written once",
		    fo_doc_num(d, cost.bytes, FO_DRAW_BYTES));
	if (p->ranks > 1)
		fo_doc_line(d, "received", "%s per step from the other ranks: what rank %d does, as all lines here",
			    fo_doc_num(d, fo_program_wire(p), FO_DRAW_BYTES), p->rank);
	if (p->ranks > 1)
		say_roles(roles, d);
	fo_doc_line(d, "memory", "%s: activations and gradients %s (live at most %s), weights and optimizer state %s",
		    fo_doc_bytes(d, u->arena_bytes + u->persistent_bytes), fo_doc_bytes(d, u->arena_bytes),
		    fo_doc_bytes(d, u->max_live_bytes), fo_doc_bytes(d, u->persistent_bytes));
	if (u->host_arena_bytes)
		fo_doc_line(d, "beside that", "%s of activations wait for backward in host memory",
			    fo_doc_bytes(d, u->host_arena_bytes));
}

static void write_json(const struct fo_program *p, const struct fo_unrolled *u, const struct fo_roles *roles,
		       struct fo_json *j)
{
	struct fo_cost cost = fo_program_cost(p, -1);
	fo_json_put(j, FO_HEX("hash", fo_program_hash(p)), FO_TEXT("model", p->model.name),
		    FO_INT("tokens_per_step", p->tokens * p->run.micro_batches), FO_REAL("model_flop", cost.model),
		    FO_REAL("model_causal_flop", cost.model_causal), FO_REAL("executed_flop", cost.exec),
		    FO_REAL("moved_bytes", cost.bytes), FO_INT("arena_bytes", u->arena_bytes),
		    FO_INT("host_arena_bytes", u->host_arena_bytes), FO_INT("max_live_bytes", u->max_live_bytes),
		    FO_INT("persistent_bytes", u->persistent_bytes), FO_INT("instances", u->n), FO_INT("rank", p->rank),
		    FO_INT("ranks", p->ranks), FO_INT("roles", p->ranks > 1 ? roles->n : 1),
		    FO_REAL("received_bytes", fo_program_wire(p)));
	fo_json_array(j, "blocks");
	for (int b = 0; b < p->nblock; b++) {
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("name", p->block[b].name), FO_TEXT("role", fo_role_name[p->block[b].role]),
			    FO_INT("slots", fo_block_slots(p, b)));
		fo_json_array(j, "operations");
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			struct fo_cost c = fo_op_cost(p, o, -1);
			struct fo_str text = { 0 };
			operands(p, o, &text);
			fo_json_record(j, NULL, FO_TEXT("kind", fo_op_info(o->kind)->name),
				       FO_TEXT("phase", fo_phase_name[o->phase]),
				       FO_TEXT("lane", fo_lane_name[o->lane]), FO_TEXT("operands", text.data),
				       FO_REAL("model_flop", c.model), FO_REAL("executed_flop", c.exec),
				       FO_REAL("moved_bytes", c.bytes));
			fo_str_fini(&text);
		}
		fo_json_close(j);
		fo_json_close(j);
	}
	fo_json_close(j);
}

fo_status fo_cli_same_program(const struct fo_program *p, const struct fo_opt_set *s, const struct fo_run *r)
{
	const struct fo_model *pm = &p->model;
	const struct {
		const char *key;
		int64_t want, has;
	} number[] = {
		{ "model.layers", r->layers, pm->layers },
		{ "model.hidden", r->hidden, pm->hidden },
		{ "model.heads", r->heads, pm->heads },
		{ "model.kv-heads", r->kv_heads, pm->kv_heads },
		{ "model.head-dim", r->head_dim, pm->head_dim },
		{ "model.ffn", r->ffn, pm->ffn },
		{ "model.vocab", r->vocab, pm->vocab },
		{ "data.seq", r->seq, p->run.seq },
		{ "train.rows", r->rows, p->run.rows },
		{ "train.micro-batches", r->micro_batches, p->run.micro_batches },
	};
	static const char *const said[] = { "no", "yes" };
	struct fo_str text = { 0 };
	for (size_t i = 0; i < sizeof number / sizeof *number; i++)
		/* 0 of a model's key: as the model says. */
		if (fo_opt_given(s, number[i].key) && number[i].want && number[i].want != number[i].has)
			fo_str_printf(&text, "%s%s is %lld there, not %lld", text.len ? "; " : "", number[i].key,
				      (long long)number[i].has, (long long)number[i].want);
	if (fo_opt_given(s, "train.precision") && fo_run_precision(r) != p->run.precision)
		fo_str_printf(&text, "%strain.precision is %s there, not %s", text.len ? "; " : "",
			      fo_numerics_name[p->run.precision], fo_numerics_name[fo_run_precision(r)]);
	if (r->tied != FO_RUN_AUTO && (r->tied == FO_RUN_YES) != pm->tied)
		fo_str_printf(&text, "%smodel.tied is %s there, not %s", text.len ? "; " : "", said[pm->tied],
			      said[!pm->tied]);
	fo_run_contradicts(s, r, &p->run.pass, &text);
	fo_status st = FO_OK;
	struct fo_model m;
	if (!text.len && fo_opt_given(s, "model.name")) {
		st = fo_run_model(r, &m);
		if (st == FO_OK && (m.layers != pm->layers || m.hidden != pm->hidden || m.heads != pm->heads ||
				    m.kv_heads != pm->kv_heads || m.head_dim != pm->head_dim || m.ffn != pm->ffn ||
				    m.vocab != pm->vocab || m.tied != pm->tied || m.qk_norm != pm->qk_norm ||
				    m.attention_bias != pm->attention_bias || m.output_bias != pm->output_bias ||
				    m.mlp_bias != pm->mlp_bias || m.sliding_window != pm->sliding_window))
			fo_str_printf(&text, "it trains another model than '%s'", r->model);
	}
	if (st == FO_OK && text.len)
		st = fo_hint(fo_fail(FO_EARG, "options contradict the program in '%s': %s", r->program_file, text.data),
			     "leave them out, or leave program.file out");
	fo_str_fini(&text);
	return st;
}

static fo_status no_schedule(const struct fo_opt_set *s)
{
	static const char *const key[] = { "cli.stages", "cli.chunks", "cli.times", "cli.send", "cli.svg" };
	for (size_t i = 0; i < sizeof key / sizeof *key; i++)
		if (fo_opt_given(s, key[i]))
			return fo_hint(fo_fail(FO_EARG, "--%s is of a pipeline's schedule, and none is asked for",
					       key[i] + strlen("cli.")),
				       "add --schedule=1f1b, or another");
	return FO_OK;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct program *in = call->in;
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_pass_ranks all = { 0 };
	fo_status st = FO_OK;
	if (in->meshes && *in->dump)
		return fo_fail(FO_EARG, "--dump writes one program, and --meshes makes none: leave one of them out");
	if (in->meshes && in->schedule.kind >= 0)
		return fo_fail(FO_EARG,
			       "--schedule draws a pipeline, and --meshes lists meshes: leave one of them out");
	if (in->meshes)
		return fo_cli_meshes(call, &in->run, (int)in->meshes);
	if (in->schedule.kind >= 0)
		return fo_cli_schedule(call, &in->schedule, in->run.micro_batches);
	FO_TRY(no_schedule(call->options));
	FO_TRY(fo_pass_build_run(&p, &in->run));
	if (*in->run.program_file)
		FO_TRY_OR(st, fo_cli_same_program(&p, call->options, &in->run), done);
	if (p.ranks > 1)
		FO_TRY_OR(st, fo_pass_build_ranks(&all, &p), done);
	FO_TRY_OR(st, fo_unroll(&p, &u), done);
	fo_plan(&p, &u);
	if (call->json)
		write_json(&p, &u, &all.roles, call->json);
	else
		say(&p, &u, &all.roles, in->operations, call->doc);
	fo_unrolled_fini(&u);
	FO_TRY_OR(st, fo_cli_stages(&p, call->doc, call->json), done);
	if (*in->dump) {
		struct fo_str text = { 0 };
		fo_program_dump(&p, &text);
		st = fo_fs_write_atomic(in->dump, text.data, text.len);
		fo_str_fini(&text);
	}
done:
	fo_pass_ranks_fini(&all);
	fo_program_fini(&p);
	return st;
}

const struct fo_command fo_cmd_program = {
	.name = "program",
	.group = "improve",
	.usage =
		"flatout program [run.yaml] [--KEY=VALUE ...] [--dump FILE] [--no-operations] [--json]\n"
		"flatout program [run.yaml] [--KEY=VALUE ...] --meshes N [--json]\n"
		"flatout program --schedule NAME [--stages N] [--micro-batches N] [--chunks N] [--times F,I,W] [--send "
		"TURNS] [--svg FILE] [--json]",
	.summary = "the step program of a run: operations, costs, memory plan",
	.text = "A training step is a program: blocks of operations, each written once and repeated over layers and "
		"micro-batches. The engine runs it, the meter counts it, the memory plan is made from it. '*' behind "
		"an operand: read and written; '+=': accumulated; '!': read for the last time.\n\n"
		"  flatout program run.yaml --no-operations\n"
		"  flatout program run.yaml --meshes=8\n"
		"  flatout program --model.name=llama-3.1-8b --data.seq=8192 --json\n\n"
		"With --schedule it draws a pipeline instead: which stage works at which micro-batch when, how much of "
		"the step is idle, by the published formula and by a walk through the slots, and how many "
		"micro-batches each stage holds.\n\n"
		"  flatout program --schedule=zb-h1 --stages=4 --micro-batches=8 --svg zb.svg\n",
	.opts = fo_run_options,
	.own = extra,
	.act = run,
	.size = sizeof(struct program),
	.most = 1,
};
