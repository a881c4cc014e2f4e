/* flatout plan: the best division of a job over a cluster, and why. */
#include "cli/plan.h"
#include "cli/plan_fix.h"

#include <math.h>
#include <string.h>

struct plan {
	struct fo_cli_job job;
	struct fo_cli_cost cost;
	const char *precision, *state, *fix, *html, *json;
	int objective;
	int64_t top;
	bool force;
};
static const struct fo_opt rows[] = {
	FO_CLI_JOB_ROWS_TYPED(struct plan, "plan",
			      FO_OPT_TEXT(struct plan, precision, "plan.precision", "TYPE,...", NULL,
					  "type of the linear layers' products: bf16, fp16, fp32, tf32, fp8, mxfp8, "
					  "fp4; several are searched, any: bf16 and all that are narrower")),
	FO_OPT_TEXT(struct plan, state, "plan.state", "FORMAT,...", NULL,
		    "what the optimizer keeps: fp32, split (masters), bf16 or 8bit (moments), all-bf16 (no masters); "
		    "several are searched, any: all of the framework's; not given: what computes as fp32"),
	FO_OPT_TEXT(struct plan, fix, "plan.fix", "NAME=N,...", NULL,
		    "what is not searched: tp=8,pp=4; an option of that name does the same"),
	FO_OPT_ENUM(
		struct plan, objective, "plan.objective", "time",
		"what is best: the shortest step, which at a given batch is the highest MFU, or the cheapest token of "
		"this cluster or a part of it",
		"time|mfu|cost"),
	FO_OPT_INT(struct plan, top, "plan.top", "N", "6", 1, FO_PLAN_SHOWN, "", "divisions that are shown"),
	FO_CLI_COST_ROWS(struct plan, "plan"),
	FO_OPT_OUTPUT(struct plan, html, "plan.html", "FILE", NULL, "a page", FO_OUTPUT_PAGE),
	FO_CLI_OUTPUT_ROWS(struct plan, "plan", "JSON on standard output"),
};
enum { OBJECTIVE_COST = 2 };

/* ---- what is asked ---- */

/* Fixed numbers that no division has together. */
static fo_status check_fixed(const struct fo_plan_fixed *f)
{
	static const char *const name[] = { [FO_PREDICT_1F1B] = "1f1b", [FO_PREDICT_ZERO_BUBBLE] = "zero-bubble" };
	if (f->chunks > 1 && (f->schedule == FO_PREDICT_1F1B || f->schedule == FO_PREDICT_ZERO_BUBBLE))
		return fo_cli_contradict("--schedule=%s has one chunk for each stage, and chunks are fixed at %.15g",
					 name[f->schedule], f->chunks);
	if (f->chunks > 1 && f->pp == 1)
		return fo_cli_contradict("chunks are parts of pipeline stages: pp is fixed at 1, chunks at %.15g",
					 f->chunks);
	if (f->chunks == 1 && f->schedule == FO_PREDICT_INTERLEAVED)
		return fo_cli_contradict("--schedule=interleaved has several chunks, and they are fixed at 1");
	return FO_OK;
}

/* Refuses options that no search can keep. Those of a configuration are only where the search starts. */
static fo_status check_searched(const struct fo_cli_job *j, bool files, struct fo_arena *arena)
{
	if (files)
		return FO_OK;
	if (j->replicate)
		return fo_hint(fo_fail(FO_EARG, "--replicate is searched: the ranks that shard can be fixed"),
			       "--shard=8, or --fix shard=8");
	if (j->micro_batches)
		return fo_hint(fo_fail(FO_EARG, "--micro-batches is searched: the batch of a step can be stated, "
						"and the sequences of a micro-batch fixed"),
			       "--global-batch=512 --micro-batch=1");
	if (j->recompute_layers)
		return fo_hint(fo_fail(FO_EARG, "--recompute-layers is searched: the kind of recomputation can be "
						"fixed"),
			       "--recompute=none, selective, quarter, half, three-quarters or full");
	return fo_cli_plan_settable(j->set, arena);
}

static fo_status fixed_of(const struct fo_cli_job *j, const char *fix, bool files, struct fo_arena *arena,
			  struct fo_plan_fixed *f)
{
	static const int schedule[] = { FO_PREDICT_GPIPE, FO_PREDICT_1F1B, FO_PREDICT_INTERLEAVED,
					FO_PREDICT_ZERO_BUBBLE };
	FO_TRY(check_searched(j, files, arena));
	*f = FO_PLAN_FREE;
	f->tp = (double)j->tp, f->cp = (double)j->cp, f->pp = (double)j->pp, f->ep = (double)j->ep;
	f->chunks = (double)j->chunks, f->shard = (double)j->shard, f->micro_batch = (double)j->micro_batch;
	f->zero = (int)j->zero;
	if (j->schedule >= 0)
		f->schedule = schedule[j->schedule];
	if (j->recompute >= 0)
		f->again = j->recompute;
	if (j->schedule >= 0 && f->schedule == FO_PREDICT_GPIPE)
		return fo_hint(fo_fail(FO_EARG, "GPipe is not searched: 1F1B takes as long and less memory"),
			       "--schedule=1f1b");
	FO_TRY(fo_cli_plan_fix(fix, arena, f));
	return check_fixed(f);
}

/* The division of the configuration that was given, if it has a whole one. */
static void find_from(struct fo_cli_planned *p)
{
	struct fo_cli_asked *a = p->asked;
	struct fo_job_asked own;
	struct fo_predict_step s;
	struct fo_job_memory memory = { .fit = FO_JOB_FIT_UNKNOWN };
	if (a->files) /* before it is asked, which completes the job */
		fo_job_memory_of(&a->job, &a->cluster, &memory);
	if (a->files && fo_job_ask(&a->job, &a->cluster, &a->given, &own) == FO_OK) {
		fo_predict_point(&own.base, &own.layout, &s);
		p->has_from = !s.wrong;
		p->from = own.layout;
		p->from.chunks = fmax(1, own.layout.chunks);
		p->from_seconds = s.seconds;
		p->from_fits_not = memory.fit == FO_JOB_FITS_NOT;
		if (!fo_job_known(&a->job, FO_JOB_GLOBAL_BATCH))
			fo_job_set(&a->job, FO_JOB_GLOBAL_BATCH, own.shape.global_batch);
	}
	fo_err_clear();
}

static void find_changes(struct fo_cli_planned *p)
{
	struct fo_predict_step s;
	if (!p->has_from)
		return;
	fo_predict_point(&p->ask.base, &p->from, &s);
	p->compiled_seconds = s.seconds < 0.999 * p->from_seconds ? s.seconds : NAN;
	p->changes = fo_plan_changes(&p->ask, &p->from, &p->plan.point[p->plan.named].layout, p->change);
}

static fo_status ask(const struct fo_cli_job *in, const char *fix, const struct fo_cli_numbers *numbers,
		     struct fo_cli_planned *p)
{
	static const struct fo_cli_numbers none;
	struct fo_cli_asked *a = p->asked;
	find_from(p);
	double batch = fo_job_number(&a->job, FO_JOB_GLOBAL_BATCH);
	/* A planned torchtitan job is compiled, its loss too: that costs nothing but a setting. */
	static const enum fo_job_setting compiled[] = { FO_JOB_COMPILE, FO_JOB_COMPILE_LOSS };
	for (size_t i = 0; i < sizeof compiled / sizeof *compiled; i++)
		if (a->job.form && !strncmp(a->job.form->id, "torchtitan", 10) && !fo_job_stated(&a->job, compiled[i]))
			fo_job_set(&a->job, compiled[i], 1);
	FO_TRY(fo_job_ask_base(&a->job, &a->cluster, &a->given, &p->job));
	if (!(batch >= 1))
		return fo_hint(fo_fail(FO_EARG, "how much a step is must be known: the batch is not searched"),
			       "--global-tokens=4M, or --global-batch=512 sequences");
	p->ask = (struct fo_plan_asked){ .base = p->job.base,
					 .framework = fo_plan_framework_of_form(a->job.form ? a->job.form->id : "any"),
					 .devices = a->cluster.devices,
					 .half = fo_job_is(&a->job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16) &&
						 p->job.job.type == FO_PREDICT_BF16,
					 .global_batch = batch,
					 .model = &a->job.model };
	FO_TRY(fo_cli_plan_take_numbers(numbers ? numbers : &none, &p->ask));
	return fixed_of(in, fix, a->files > 0, &a->arena, &p->ask.fixed);
}

/* One type is the job's; fp16 is the job's, too, in the place of bf16. */
static int precision_of(const struct fo_cli_numbers *n)
{
	if (n->types & 1u << FO_PLAN_HALF)
		return fo_cli_plan_precision(FO_PLAN_HALF);
	for (int i = 0; i < FO_PREDICT_TYPES; i++)
		if (n->types == 1u << i && !n->any_type)
			return fo_cli_plan_precision(i);
	return -1;
}

fo_status fo_cli_plan_read(const struct fo_cli_call *call, const struct fo_cli_job *given, const char *fix,
			   const struct fo_cli_numbers *numbers, struct fo_cli_planned *p)
{
	/* A division is of use where something runs it. */
	struct fo_cli_job job = *given;
	struct fo_cli_numbers several = numbers ? *numbers : (struct fo_cli_numbers){ 0 };
	if (numbers)
		job.precision = precision_of(numbers);
	if (job.precision >= 0 && !several.any_type && !(several.types & (several.types - 1)))
		several.types = 0;
	p->assumed_framework = job.framework < 0 && call->argc < 2 && !job.torchtitan && !job.megatron &&
			       !job.deepspeed;
	if (p->assumed_framework)
		job.framework = FO_CLI_MEGATRON;
	FO_TRY(fo_cli_job_read(call, &job, p->asked));
	FO_TRY(fo_cli_job_check_device(&job, p->asked));
	return ask(&job, fix, &several, p);
}

/* ---- a part of the cluster ---- */

/* The cheapest token: the same batch on all devices and on parts of them. */
static fo_status search_cost(struct fo_cli_planned *p)
{
	struct fo_plan *other = fo_xmalloc(sizeof *other);
	struct fo_plan_asked a = p->ask;
	double node = p->asked->cluster.per_node, best = INFINITY;
	fo_status st = FO_EARG;
	for (double n = p->ask.devices; n >= 1; n = fo_plan_part_of(node, n)) {
		a.devices = n;
		fo_status one = fo_plan_search(other, &a);
		double cost = one == FO_OK ? n * other->point[0].step.seconds : INFINITY;
		if (one == FO_OK && cost < best) {
			best = cost;
			p->plan = *other;
			p->ask.devices = n;
			fo_err_clear();
			st = FO_OK;
		} else if (st != FO_OK) {
			st = one;
		}
	}
	if (st == FO_OK)
		fo_err_clear();
	free(other);
	return st;
}

/* Looks for a part of the devices that is faster. The search for the cheapest token has chosen its part already. */
static void find_fewer(struct fo_cli_planned *p)
{
	struct fo_plan *other = fo_xmalloc(sizeof *other);
	p->fewer = p->cost ? 0 : fo_plan_fewer(other, &p->ask, &p->plan);
	if (p->fewer > 0) {
		p->fewer_point = other->point[other->named];
		fo_predict_certainty_of(&p->ask.base, &p->fewer_point.layout, &p->fewer_point.step, &p->fewer_sure);
	}
	free(other);
}

/* ---- the command ---- */

static fo_status search(const struct plan *in, struct fo_cli_planned *p)
{
	fo_status st = in->objective == OBJECTIVE_COST ? search_cost(p) : fo_plan_search(&p->plan, &p->ask);
	if (st == FO_ENOMEM && p->plan.too_large) {
		p->fits_not = true;
		p->would_hold = fo_plan_holding(&p->ask, &p->would_hold_batch);
		return FO_OK;
	}
	FO_TRY(st);
	p->top = (int)in->top;
	p->pictures = in->html != NULL;
	p->cost = in->objective == OBJECTIVE_COST;
	for (int i = 0; i < p->plan.points; i++)
		if (fo_cli_planned_shows(p, i))
			fo_predict_certainty_of(&p->ask.base, &p->plan.point[i].layout, &p->plan.point[i].step,
						&p->sure[i]);
	fo_predict_certainty_of(&p->ask.base, &p->plan.point[p->plan.named].layout, &p->plan.point[p->plan.named].step,
				&p->named_sure);
	find_fewer(p);
	fo_plan_more_of(p->more, &p->ask, &p->plan);
	find_changes(p);
	return FO_OK;
}

static fo_status show(const struct fo_cli_call *call, const struct fo_cli_planned *p)
{
	const struct plan *in = call->in;
	struct fo_doc page = { 0 }, *d = call->json || (in->html && !strcmp(in->html, "-")) ? &page : call->doc;
	if (!call->json || in->html)
		fo_cli_planned_doc(d, p);
	if (call->json)
		fo_cli_planned_json(call->json, p);
	fo_status st = in->html ? fo_cli_page(d, in->html) : FO_OK;
	fo_doc_fini(&page);
	return st == FO_OK && p->fits_not ? fo_cli_found() : st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct plan *in = call->in;
	struct fo_cli_asked a = { .files = 0 }; /* freed also where an option is refused before it is read */
	struct fo_cli_planned *p = fo_xmalloc(sizeof *p);
	memset(p, 0, sizeof *p);
	p->asked = &a;
	struct fo_cli_numbers numbers;
	fo_status st = fo_cli_plan_numbers(in->precision, in->state, &numbers);
	if (st == FO_OK)
		st = fo_cli_plan_read(call, &in->job, in->fix, &numbers, p);
	if (st == FO_OK)
		st = fo_cli_cost_read(&in->cost, a.cluster.device, in->job.watts, &p->rates);
	if (st == FO_OK && p->ask.framework->executes)
		p->ask.programs = fo_plan_programs_new();
	if (st == FO_OK)
		st = search(in, p);
	if (st == FO_OK)
		st = show(call, p);
	fo_plan_programs_free(p->ask.programs);
	free(p);
	fo_cli_job_fini(&a);
	return st;
}

const struct fo_command fo_cmd_plan = {
	.name = "plan",
	.group = "plan",
	.usage = "flatout plan --model M --cluster C --seq S --global-tokens T [--framework F] "
		 "[--precision P,...] [--state F,...] [--fix tp=8,...] [--objective time|mfu|cost] "
		 "[--html FILE] [--json]\n"
		 "flatout plan CONFIG... --cluster C [...]",
	.summary = "the best division of a job over a cluster, and why",
	.text = "Looks at every legal division of the devices into pipeline stages with schedule and chunks, data "
		"parallelism with its ZeRO stage and shards, context, tensor and expert parallelism, with "
		"recomputation and micro-batch; where several are named, number types (--precision=bf16,fp8) and "
		"formats of the optimizer's states (--state=fp32,bf16), which change what is computed. Shows the "
		"best, which of them tie, why others lose, what limits the best, and its settings for run.yaml, "
		"torchtitan, Megatron-LM and DeepSpeed.\n\n"
		"  flatout plan --model llama-3.1-405b --cluster 128xHGX-H100 --seq 8192 \\\n"
		"      --global-tokens 16M --framework megatron\n"
		"  flatout plan --model llama-3.1-70b --cluster 16xHGX-H100 --seq 8192 \\\n"
		"      --global-batch 512 --fix tp=8\n\n"
		"For a configuration that is given, it lists what to change, in the order of gain:\n\n"
		"  flatout plan --torchtitan train.toml --cluster 2xHGX-B200\n\n"
		"With --ranks it plans for a machine that was measured ('flatout plan machine --help').\n\n"
		"Exit status 1: no division fits the devices' memory.",
	.opts = rows,
	.act = run,
	.size = sizeof(struct plan),
	.most = FO_CLI_ANY,
	.instead = &fo_cmd_plan_machine,
	.instead_of = "--ranks --mesh.ranks --profile",
};
