/* flatout program: the step program of a run and its memory plan. */
#include "cli/cli.h"

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
};
static const struct fo_opt extra[] = {
	FO_OPT_BOOL(struct program, operations, "cli.operations", "true", "list the operations of every block"),
	FO_OPT_OUTPUT(struct program, dump, "cli.dump", "FILE", "",
		      "write the program as text; --program.file=FILE reads it back", FO_OUTPUT_PROGRAM),
	FO_OPT_JSON(struct program, json, "cli.json", "print JSON"), FO_OPT_FORCE(struct program, force, "cli.force"),
	FO_OPT_END
};

static int64_t slots_of(const struct fo_program *p, int block)
{
	int64_t n = 0;
	for (int s = 0; s < p->nslot; s++)
		n += p->slot[s].block == block;
	return n;
}

/* "q 2048x768 bf16" for each operand, outputs behind an arrow. */
static void operands(const struct fo_program *p, const struct fo_op *o, struct fo_str *out)
{
	for (int pass = 0; pass < 2; pass++) {
		bool any = false;
		for (int i = 0; i < o->n; i++) {
			const struct fo_operand *a = &o->arg[i];
			if (fo_access_writes(a->access) != pass)
				continue;
			const char *mode = a->access == FO_ACC      ? "+="
					   : a->access == FO_UPDATE ? "*"
					   : a->access == FO_TAKE   ? "!"
								    : "";
			fo_str_printf(out, "%s%s%s%s %dx%d %s",
				      any    ? ", "
				      : pass ? "-> "
					     : "",
				      p->buf[a->buf].name,
				      a->dlayer > 0   ? "[l+1]"
				      : a->dlayer < 0 ? "[l-1]"
						      : "",
				      mode, a->nr, a->nc, fo_dtype_name[p->buf[a->buf].dtype]);
			any = true;
		}
		if (any && !pass)
			fo_str_puts(out, " ");
	}
}

static void print_blocks(const struct fo_program *p, bool list)
{
	char flop[32], bytes[32];
	for (int b = 0; b < p->nblock; b++) {
		const struct fo_block *k = &p->block[b];
		struct fo_cost sum = { 0 };
		for (int i = 0; i < k->n; i++) {
			struct fo_cost c = fo_op_cost(p, &k->op[i], -1);
			sum.exec += c.exec;
			sum.bytes += c.bytes;
		}
		struct fo_str head = { 0 };
		fo_str_printf(&head, "%s: %lld x %d %s (%s, %s)", k->name, (long long)slots_of(p, b), k->n,
			      fo_cli_plural(k->n, "operation", "operations"), fo_role_name[k->role],
			      fo_unit_name[k->unit]);
		if (sum.exec > 0)
			fo_str_printf(&head, ", %s", fo_str_si(flop, sum.exec, "FLOP"));
		if (sum.bytes > 0)
			fo_str_printf(&head, ", %s", fo_str_bytes(bytes, sum.bytes));
		fo_cli_put(stdout, "", "    ", "%s%s", head.data, sum.exec > 0 || sum.bytes > 0 ? " each" : "");
		fo_str_fini(&head);
		for (int i = 0; list && i < k->n; i++) {
			const struct fo_op *o = &k->op[i];
			struct fo_cost c = fo_op_cost(p, o, -1);
			struct fo_str line = { 0 }, text = { 0 };
			fo_str_printf(&line, "  %s.%s ", fo_op_info(o->kind)->name, fo_phase_name[o->phase]);
			if (o->lane != FO_LANE_COMPUTE)
				fo_str_printf(&line, "on lane %s ", fo_lane_name[o->lane]);
			operands(p, o, &text);
			if (c.exec > 0)
				fo_str_printf(&text, "; %s", fo_str_si(flop, c.exec, "FLOP"));
			fo_cli_put(stdout, line.data, "      ", "%s", text.data);
			fo_str_fini(&text);
			fo_str_fini(&line);
		}
	}
}

static void print_summary(const struct fo_program *p, const struct fo_unrolled *u, bool list)
{
	char a[32], b[32], c[32], d[32];
	struct fo_cost cost = fo_program_cost(p, -1);
	double tokens = (double)p->tokens * (double)p->run.micro_batches;
	fo_cli_put(stdout, "", "    ", "step program of %s: %lld %s x %lld %s x %lld tokens, %s", p->model.name,
		   (long long)p->run.micro_batches, fo_cli_plural(p->run.micro_batches, "micro-batch", "micro-batches"),
		   (long long)p->run.rows, fo_cli_plural(p->run.rows, "row", "rows"), (long long)p->run.seq,
		   fo_numerics_name[p->run.precision]);
	printf("\n");
	print_blocks(p, list);
	printf("\n%d slots, %d operation instances\n", p->nslot, u->n);
	const char *lead = "          ";
	fo_cli_put(stdout, "model     ", lead, "%s per step; per token %s by rule mfu, %s by mfu_causal",
		   fo_str_si(a, cost.model, "FLOP"), fo_str_si(b, cost.model / tokens, "FLOP"),
		   fo_str_si(c, cost.model_causal / tokens, "FLOP"));
	fo_cli_put(stdout, "executed  ", lead, "%s per step (causal attention skips what is masked)",
		   fo_str_si(a, cost.exec, "FLOP"));
	fo_cli_put(stdout, "moved     ", lead, "%s per step if every operand is read and written once",
		   fo_str_bytes(a, cost.bytes));
	fo_cli_put(stdout, "memory    ", lead,
		   "%s: activations and gradients %s (live at most %s), weights and optimizer state %s",
		   fo_str_bytes(a, (double)(u->arena_bytes + u->persistent_bytes)),
		   fo_str_bytes(b, (double)u->arena_bytes), fo_str_bytes(c, (double)u->max_live_bytes),
		   fo_str_bytes(d, (double)u->persistent_bytes));
	if (u->host_arena_bytes)
		fo_cli_put(stdout, lead, lead, "beside that %s of activations wait for backward in host memory",
			   fo_str_bytes(a, (double)u->host_arena_bytes));
}

static void print_json(const struct fo_program *p, const struct fo_unrolled *u)
{
	struct fo_json *j = fo_cli_json_begin();
	struct fo_cost cost = fo_program_cost(p, -1);
	char hash[24];
	snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fo_program_hash(p));
	fo_json_text(j, "hash", hash);
	fo_json_text(j, "model", p->model.name);
	fo_json_int(j, "tokens_per_step", p->tokens * p->run.micro_batches);
	fo_json_real(j, "model_flop", cost.model);
	fo_json_real(j, "model_causal_flop", cost.model_causal);
	fo_json_real(j, "executed_flop", cost.exec);
	fo_json_real(j, "moved_bytes", cost.bytes);
	fo_json_int(j, "arena_bytes", u->arena_bytes);
	fo_json_int(j, "host_arena_bytes", u->host_arena_bytes);
	fo_json_int(j, "max_live_bytes", u->max_live_bytes);
	fo_json_int(j, "persistent_bytes", u->persistent_bytes);
	fo_json_int(j, "instances", u->n);
	fo_json_array(j, "blocks");
	for (int b = 0; b < p->nblock; b++) {
		fo_json_object(j, NULL);
		fo_json_text(j, "name", p->block[b].name);
		fo_json_text(j, "role", fo_role_name[p->block[b].role]);
		fo_json_int(j, "slots", slots_of(p, b));
		fo_json_array(j, "operations");
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			struct fo_cost c = fo_op_cost(p, o, -1);
			struct fo_str text = { 0 };
			operands(p, o, &text);
			fo_json_object(j, NULL);
			fo_json_text(j, "kind", fo_op_info(o->kind)->name);
			fo_json_text(j, "phase", fo_phase_name[o->phase]);
			fo_json_text(j, "lane", fo_lane_name[o->lane]);
			fo_json_text(j, "operands", text.data);
			fo_json_real(j, "model_flop", c.model);
			fo_json_real(j, "executed_flop", c.exec);
			fo_json_real(j, "moved_bytes", c.bytes);
			fo_json_close(j);
			fo_str_fini(&text);
		}
		fo_json_close(j);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_cli_json_end(j);
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
		fo_str_printf(&text, "%smodel.tied is %s there, not %s", text.len ? "; " : "", pm->tied ? "yes" : "no",
			      r->tied == FO_RUN_YES ? "yes" : "no");
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

/* Lowered from the run, or read from program.file. */
static fo_status load(struct fo_program *p, const struct fo_opt_set *s, const struct fo_run *r)
{
	FO_TRY(fo_pass_build_run(p, r));
	fo_status st = *r->program_file ? fo_cli_same_program(p, s, r) : FO_OK;
	if (st != FO_OK)
		fo_program_fini(p);
	return st;
}

static fo_status show(const struct fo_program *p, const struct program *in)
{
	struct fo_unrolled u;
	FO_TRY(fo_unroll(p, &u));
	fo_plan(p, &u);
	if (in->json)
		print_json(p, &u);
	else
		print_summary(p, &u, in->operations);
	fo_unrolled_fini(&u);
	if (!*in->dump)
		return FO_OK;
	struct fo_str text = { 0 };
	fo_program_dump(p, &text);
	fo_status st = fo_fs_write_atomic(in->dump, text.data, text.len);
	fo_str_fini(&text);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct program *in = call->in;
	struct fo_program p;
	FO_TRY(load(&p, call->options, &in->run));
	fo_status st = show(&p, in);
	fo_program_fini(&p);
	return st;
}

const struct fo_command fo_cmd_program = {
	.name = "program",
	.group = "improve",
	.usage = "flatout program [run.yaml] [--KEY=VALUE ...] [--dump FILE] [--no-operations] [--json]",
	.summary = "the step program of a run: operations, costs, memory plan",
	.text = "A training step is a program: blocks of operations, each written once and repeated over layers and "
		"micro-batches. The engine runs it, the meter counts it, the memory plan is made from it. '*' behind "
		"an operand: read and written; '+=': accumulated; '!': read for the last time.\n\n"
		"  flatout program run.yaml --no-operations\n"
		"  flatout program --model.name=llama-3.1-8b --data.seq=8192 --json\n",
	.opts = fo_run_options,
	.own = extra,
	.act = run,
	.size = sizeof(struct program),
	.most = 1,
};
