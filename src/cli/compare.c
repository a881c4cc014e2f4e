/* flatout compare: two runs row by row, and what explains the difference; what is no run is compared as traces. */
#include "cli/compare_plans.h"

#include "report/traces_versus.h"
#include "report/versus.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

struct compare {
	bool all, force;
	const char *json, *html;
	const char *model, *device;
	int64_t seq, tokens_per_step;
	struct fo_cli_cost cost;
	const char *clusters; /* never set: compare_plans.c has it */
};

static const struct fo_opt rows[] = {
	FO_OPT_BOOL(struct compare, all, "compare.all", "false", "every operation and every option that differs"),
	FO_OPT_OUTPUT(struct compare, html, "compare.html", "FILE", NULL, "write the comparison as a page",
		      FO_OUTPUT_PAGE),
	FO_OPT_PATH(struct compare, model, "compare.model", "M", NULL,
		    "of traces, for MFU: preset, name on Hugging Face, config.json, or a folder with one"),
	FO_OPT_LENGTH(struct compare, seq, "compare.seq", "S", NULL, 1, 1 << 30, "of traces, for MFU: sequence length"),
	FO_OPT_LENGTH(struct compare, tokens_per_step, "compare.tokens-per-step", "N", NULL, 1, 1e15,
		      "of traces, for MFU: tokens of a step of the whole job"),
	FO_OPT_TEXT(struct compare, device, "compare.device", "D", NULL,
		    "of traces, for MFU: the device, where the trace does not name it"),
	/* It makes the command that of compare_plans.c before options are read: it stands here for help. */
	FO_OPT_TEXT(struct compare, clusters, "compare.clusters", "C,C,...", NULL,
		    "one job planned on several clusters, with options of its own: 'flatout compare clusters --help' "
		    "lists them"),
	FO_CLI_COST_ROWS(struct compare, "compare"), FO_CLI_OUTPUT_ROWS(struct compare, "compare", "print JSON")
};

/* Prints the document, unless JSON or a page on standard output was asked for, and writes the page. */
static fo_status show(const struct fo_doc *d, const struct compare *in)
{
	if (!in->json && !(in->html && !strcmp(in->html, "-")))
		fo_cli_print(stdout, d);
	return in->html ? fo_cli_page(d, in->html) : FO_OK;
}

/* ---- runs ---- */

static void json_spread(struct fo_json *j, const char *key, const struct fo_spread *s)
{
	fo_json_record(j, key, FO_REAL("median", fo_json_when(s->n, s->median)),
		       FO_REAL("lower_quartile", fo_json_when(s->n, s->low)),
		       FO_REAL("upper_quartile", fo_json_when(s->n, s->high)), FO_INT("steps", s->n));
}

static void json_side(struct fo_json *j, const char *key, const struct fo_versus_side *s)
{
	const struct fo_record *r = s->record;
	fo_json_object(j, key);
	fo_json_put(j, FO_TEXT("run", r->dir), FO_TEXT("started", fo_json_some(r->started)),
		    FO_TEXT("program_hash", fo_json_some(r->program_hash)),
		    FO_TEXT("train_shard_checksum", fo_json_some(r->train_checksum)),
		    FO_TEXT("val_shard_checksum", fo_json_some(r->val_checksum)), FO_INT("steps", r->step.n));
	for (int f = 0; f < FO_VERSUS_FIGURES; f++)
		json_spread(j, fo_versus_figure_name[f], &s->figure[f]);
	fo_json_object(j, "parts_seconds");
	for (int p = 0; p < FO_PART_COUNT; p++)
		json_spread(j, fo_part_name[p], &s->part[p]);
	fo_json_close(j);
	json_spread(j, "covered_seconds", &s->covered);
	fo_json_real(j, "beyond_medians_seconds", s->beyond_s);
	fo_json_object(j, "mean_parts_seconds");
	for (int p = 0; p < FO_PART_COUNT; p++)
		fo_json_real(j, fo_part_name[p], s->mean_part[p]);
	fo_json_close(j);
	fo_json_put(j,
		    FO_REAL("recompute_seconds", fo_json_when(s->phase[FO_RECOMPUTE].n, s->phase[FO_RECOMPUTE].median)),
		    FO_REAL("quiet_step_seconds", s->quiet_s), FO_REAL("planned_bytes", s->planned_bytes),
		    FO_REAL("measured_bytes", s->measured_bytes), FO_REAL("clock_hz", s->clock_hz),
		    FO_REAL("steal", s->steal), FO_REAL("limited_seconds", s->limited_s), FO_REAL("load", s->load));
	fo_json_array(j, "damaged");
	for (int f = 0; f < FO_RECORD_FILES; f++)
		if (r->file[f].state == FO_RECORD_DAMAGED)
			fo_json_text(j, NULL, r->file[f].why);
	fo_json_close(j);
	fo_json_close(j);
}

static void json_operations(const struct fo_versus *v, struct fo_json *j)
{
	fo_json_array(j, "operations");
	for (int64_t i = 0; i < v->ops; i++) {
		const struct fo_versus_op *o = &v->op[i];
		fo_json_record(j, NULL, FO_TEXT("block", o->block),
			       FO_TEXT("operation", fo_op_info((enum fo_op_kind)o->kind)->name),
			       FO_TEXT("phase", fo_phase_name[o->phase]),
			       FO_REAL("a_seconds", fo_json_when(o->in[0], o->time[0].median)),
			       FO_REAL("b_seconds", fo_json_when(o->in[1], o->time[1].median)),
			       FO_REAL("difference_seconds", o->difference),
			       FO_BOOL("resolved", fo_versus_op_resolved(v, o)));
	}
	fo_json_close(j);
}

static void write_json(const struct fo_versus *v, struct fo_json *j)
{
	json_side(j, "a", &v->side[0]);
	json_side(j, "b", &v->side[1]);
	fo_json_put(j, FO_BOOL("step_time_resolved", fo_versus_step_resolved(v)), FO_BOOL("same_run", v->same_run),
		    FO_BOOL("same_program", v->same_program), FO_BOOL("same_data", v->same_data));
	fo_json_array(j, "options");
	for (int64_t i = 0; i < v->options; i++)
		fo_json_record(j, NULL, FO_TEXT("key", v->option[i].key), FO_TEXT("a", v->option[i].value[0]),
			       FO_TEXT("b", v->option[i].value[1]));
	fo_json_close(j);
	json_operations(v, j);
	fo_json_record(j, "losses", FO_INT("common_steps", v->common_steps),
		       FO_INT("identical_steps", v->identical_steps),
		       FO_REAL("largest_difference", v->largest_loss_difference), FO_INT("largest_at", v->largest_at),
		       FO_INT("last_common_step", v->last_common), FO_REAL("a", v->last_loss[0]),
		       FO_REAL("b", v->last_loss[1]), FO_INT("held_out_step", v->eval_step),
		       FO_REAL("a_held_out", v->eval_loss[0]), FO_REAL("b_held_out", v->eval_loss[1]));
	fo_json_texts(j, "causes", v->cause, v->causes);
}

/* A run directory has one of these (fo_record_open). */
static bool is_run(const char *path)
{
	static const char *const file[] = { "run.json", "log.jsonl" };
	bool found = false;
	for (size_t i = 0; i < sizeof file / sizeof *file && !found; i++) {
		struct fo_str name = { 0 };
		struct stat s;
		fo_str_printf(&name, "%s/%s", path, file[i]);
		found = !stat(name.data, &s);
		fo_str_fini(&name);
	}
	return found;
}

static fo_status compare_runs(const struct fo_cli_call *call, const char *const path[2])
{
	const struct compare *in = call->in;
	enum { WITH = FO_RECORD_WITH_PROGRAM | FO_RECORD_WITH_TIMELINE | FO_RECORD_WITH_METERED };
	struct fo_record a, b;
	struct fo_versus v;
	struct fo_doc d = { 0 };
	fo_status st;
	FO_TRY(fo_record_open(&a, path[0], WITH));
	FO_TRY_OR(st, fo_record_open(&b, path[1], WITH), done);
	fo_versus_make(&v, &a, &b);
	fo_versus_doc(&v, in->all, &d);
	if (call->json)
		write_json(&v, call->json);
	st = show(&d, in);
	fo_doc_fini(&d);
	fo_versus_fini(&v);
	fo_record_fini(&b);
done:
	fo_record_fini(&a);
	return st;
}

/* ---- traces ---- */

static void json_mean_spread(struct fo_json *j, const char *key, double mean, const struct fo_spread *s)
{
	fo_json_record(j, key, FO_REAL("mean", mean), FO_REAL("median", fo_json_when(s->n, s->median)),
		       FO_REAL("lower_quartile", fo_json_when(s->n, s->low)),
		       FO_REAL("upper_quartile", fo_json_when(s->n, s->high)));
}

static void json_figure(struct fo_json *j, const struct fo_traces_figure *f)
{
	json_mean_spread(j, "a_seconds", f->mean[0], &f->time[0]);
	json_mean_spread(j, "b_seconds", f->mean[1], &f->time[1]);
	fo_json_put(j, FO_REAL("difference_seconds", f->difference), FO_BOOL("resolved", f->resolved));
}

static void json_trace_side(struct fo_json *j, const char *key, const struct fo_traces_side *s, const char *path)
{
	fo_json_record(j, key, FO_TEXT("path", path), FO_INT("ranks", s->d->ranks), FO_INT("rank", s->rank->rank),
		       FO_INT("device", s->rank->trace->device[s->device->device].id),
		       FO_TEXT("steps_from", fo_window_origin_name[s->device->from]), FO_INT("steps", s->device->steps),
		       FO_REAL("mfu", s->mfu), FO_REAL("utilisation", s->utilisation),
		       FO_REAL("gpu_operations", s->ops));
}

static void json_lists(const struct fo_traces_versus *v, struct fo_json *j)
{
	fo_json_array(j, "kernels");
	for (int64_t i = 0; i < v->kernels; i++) {
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("name", v->kernel[i].name),
			    FO_TEXT("class", fo_kernel_class_name[v->kernel[i].class]),
			    FO_REAL("a_calls", v->kernel[i].calls[0]), FO_REAL("b_calls", v->kernel[i].calls[1]));
		json_figure(j, &v->kernel[i].f);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_array(j, "collectives");
	for (int64_t i = 0; i < v->collectives; i++) {
		const struct fo_traces_collective *c = &v->collective[i];
		fo_json_record(j, NULL, FO_TEXT("name", c->name), FO_INT("group_size", c->group_size),
			       FO_REAL("a_calls", c->calls[0]), FO_REAL("b_calls", c->calls[1]),
			       FO_REAL("a_bytes", c->bytes[0]), FO_REAL("b_bytes", c->bytes[1]),
			       FO_REAL("a_seconds", c->time[0]), FO_REAL("b_seconds", c->time[1]));
	}
	fo_json_close(j);
	fo_json_array(j, "products");
	for (int64_t i = 0; i < v->products; i++) {
		const struct fo_traces_product *p = &v->product[i];
		const struct fo_product *q = p->in[0] ? p->in[0] : p->in[1];
		fo_json_record(j, NULL, FO_INT("m", q->m), FO_INT("n", q->n), FO_INT("k", q->k),
			       FO_INT("batch", q->batch), FO_TEXT("dtype", q->dtype),
			       FO_INT("a_calls", p->in[0] ? p->in[0]->calls : 0),
			       FO_INT("b_calls", p->in[1] ? p->in[1]->calls : 0),
			       FO_REAL("a_call_seconds", p->call_s[0]), FO_REAL("b_call_seconds", p->call_s[1]));
	}
	fo_json_close(j);
}

static void json_waits(const struct fo_diagnosis *d, struct fo_json *j, const char *key)
{
	fo_json_array(j, key);
	for (int i = 0; i < d->waits; i++)
		fo_json_record(j, NULL, FO_INT("rank", d->wait[i].rank), FO_INT("device", d->wait[i].device),
			       FO_REAL("wait_seconds", (double)d->wait[i].wait_ns * 1e-9),
			       FO_REAL("transfer_seconds", (double)d->wait[i].transfer_ns * 1e-9),
			       FO_INT("last", d->wait[i].last));
	fo_json_close(j);
}

static void write_traces_json(const struct fo_traces_versus *v, const char *const path[2], struct fo_json *j)
{
	fo_json_text(j, "of", "traces");
	json_trace_side(j, "a", &v->side[0], path[0]);
	json_trace_side(j, "b", &v->side[1], path[1]);
	fo_json_put(j, FO_BOOL("steps_on_both_sides", v->windows),
		    FO_BOOL("step_time_resolved", v->part[0].f.resolved));
	fo_json_array(j, "parts");
	for (int i = 0; i < v->parts; i++) {
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("part", v->part[i].id), FO_BOOL("leaf", v->part[i].leaf));
		json_figure(j, &v->part[i].f);
		fo_json_close(j);
	}
	fo_json_close(j);
	json_lists(v, j);
	json_waits(v->side[0].d, j, "a_waits");
	json_waits(v->side[1].d, j, "b_waits");
	fo_json_texts(j, "causes", v->cause, v->causes);
}

static fo_status compare_diagnoses(const struct fo_diagnosis *a, const struct fo_diagnosis *b,
				   const char *const path[2], const struct fo_cli_call *call)
{
	const struct compare *in = call->in;
	struct fo_traces_versus v;
	fo_traces_versus_make(&v, a, b);
	fo_status st = FO_OK;
	for (int k = 0; k < 2 && st == FO_OK; k++)
		if (!v.side[k].rank)
			st = fo_hint(fo_fail(FO_EARG, "'%s' has no GPU operations: nothing to compare", path[k]),
				     "'flatout diagnose' says what is in a trace");
	if (st == FO_OK) {
		struct fo_doc d = { 0 };
		fo_traces_versus_doc(&v, path, in->all, &d);
		if (call->json)
			write_traces_json(&v, path, call->json);
		st = show(&d, in);
		fo_doc_fini(&d);
	}
	fo_traces_versus_fini(&v);
	return st;
}

static fo_status compare_traces(const struct fo_cli_call *call, const char *const path[2])
{
	const struct compare *in = call->in;
	const struct fo_diagnose_options o = { .model = in->model,
					       .device = in->device,
					       .seq = in->seq,
					       .tokens_per_step = in->tokens_per_step,
					       .price_per_hour = NAN };
	struct fo_trace_set set[2];
	struct fo_diagnosis d[2];
	fo_status st;
	FO_TRY(fo_trace_set_open(&set[0], &path[0], 1));
	FO_TRY_OR(st, fo_trace_set_open(&set[1], &path[1], 1), done_0);
	FO_TRY_OR(st, fo_diagnose(&d[0], &set[0], &o), done_1);
	FO_TRY_OR(st, fo_diagnose(&d[1], &set[1], &o), done_d);
	st = compare_diagnoses(&d[0], &d[1], path, call);
	fo_diagnosis_fini(&d[1]);
done_d:
	fo_diagnosis_fini(&d[0]);
done_1:
	fo_trace_set_fini(&set[1]);
done_0:
	fo_trace_set_fini(&set[0]);
	return st;
}

/* ---- plans ---- */

static fo_status compare_plans(const struct fo_cli_call *call, const char *const path[2])
{
	const struct compare *in = call->in;
	if (in->all || in->model || in->device || in->seq || in->tokens_per_step)
		return fo_hint(fo_fail(FO_EARG,
				       "--all, --model, --seq, --tokens-per-step and --device are for runs and "
				       "traces; a plan says what it is of"),
			       "leave them out");
	return fo_cli_compare_plan_files(call, path, &in->cost, in->html);
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct compare *in = call->in;
	const char *const *path = (const char *const *)call->argv + 1;
	if (call->argc < 3)
		return fo_hint(fo_fail(FO_EARG,
				       "'flatout compare' takes two run directories, two traces or two plans, "
				       "got %d",
				       call->argc - 1),
			       "usage: flatout compare A B");
	bool plans, a = is_run(path[0]), b = is_run(path[1]);
	if (!a && !b) {
		FO_TRY(fo_cli_are_plans(path, &plans));
		if (plans)
			return compare_plans(call, path);
	}
	if (in->cost.tokens > 0 || in->cost.rent || in->cost.pue || in->cost.kwh)
		return fo_hint(fo_fail(FO_EARG, "--tokens, --rent, --pue and --kwh are for plans"),
			       "'flatout price' says what a measured MFU costs");
	if (!a && !b)
		return compare_traces(call, path);
	struct stat there;
	if (a != b && !stat(path[a], &there)) /* what does not exist is told when it is opened */
		return fo_hint(fo_fail(FO_EARG, "'%s' is not a run directory, and '%s' is one", path[a], path[b]),
			       "compare two runs, or two traces");
	if (in->model || in->device || in->seq || in->tokens_per_step)
		return fo_hint(fo_fail(FO_EARG, "--model, --seq, --tokens-per-step and --device are for traces; a run "
						"says itself what it trained"),
			       "leave them out");
	return compare_runs(call, path);
}

const struct fo_command fo_cmd_compare = {
	.name = "compare",
	.group = "diagnose",
	.usage = "flatout compare A B [--all] [--html FILE] [--json]\n"
		 "       flatout compare A B [--model M --seq S --tokens-per-step N [--device D]]\n"
		 "       flatout compare A.json B.json [--tokens D] [--rent R]\n"
		 "       flatout compare --clusters C,C ...  (flatout compare clusters --help)",
	.summary = "two runs or traces row by row, and what explains the difference",
	.text = "A and B are run directories (run.dir). Step time, MFU, tokens/s, memory, the parts of a step and "
		"its operations stand beside each other, with the options, machine and losses that differ. A "
		"difference inside both runs' own spread is \"not resolved\".\n\n"
		"Or both are traces of anyone's training: a file, a folder or a pattern in quotes, as 'flatout "
		"diagnose' reads them. Then the ledger of a step stands row by row: kernels by class, "
		"communication, copies, idle by cause; what the difference consists of; kernels that appeared or "
		"went. With the model, sequence and tokens of a step also MFU.\n\n"
		"Or both are plans that 'flatout plan --json' wrote, or --clusters names clusters that the same job is "
		"planned on: speed at the MFU that is predicted, price and energy, as ranges, and what is a tie.\n\n"
		"  flatout compare run-before run-after\n"
		"  flatout compare run-before run-after --html=compare.html\n"
		"  flatout compare before.pt.trace.json.gz after.pt.trace.json.gz\n"
		"  flatout compare 'before/rank*.json' 'after/rank*.json' --all",
	.opts = rows,
	.act = run,
	.size = sizeof(struct compare),
	.most = 2,
	.instead = &fo_cmd_compare_clusters,
	.instead_of = "--clusters",
};
