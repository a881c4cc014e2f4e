/* flatout predict --cluster: a job of any framework on any cluster of the catalogue, from its configuration alone. */
#include "cli/predict_cluster.h"

#include "base/fs.h"
#include "plan/more.h"
#include "plan/programs.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- from options to settings ---- */

/* Options that are settings as they are; the option's value is the setting's. */
static const char *const plain[][2] = {
	{ "seq", "seq" },
	{ "global-batch", "global_batch" },
	{ "micro-batch", "micro_batch" },
	{ "tp", "tp" },
	{ "micro-batches", "accumulation" },
	{ "cp", "cp" },
	{ "pp", "pp" },
	{ "ep", "ep" },
	{ "chunks", "pp_virtual" },
	{ "schedule", "pp_schedule" },
	{ "replicate", "dp_replicate" },
	{ "shard", "dp_shard" },
	{ "zero", "zero" },
	{ "recompute", "recompute" },
	{ "recompute-layers", "recompute_layers" },
};

/* Types of products as settings have them. */
static const char *const types[][3] = {
	{ "bf16", "dtype=bf16", "fp8=off" },    { "fp16", "dtype=fp16", "fp8=off" },
	{ "fp32", "dtype=fp32", "fp8=off" },    { "tf32", "dtype=fp32", "fp8=off" },
	{ "fp8", "dtype=bf16", "fp8=delayed" }, { "mxfp8", "dtype=bf16", "fp8=mxfp8" },
	{ "fp4", "dtype=bf16", "fp8=fp4" },
};
enum { TYPE_TF32 = 3 };

/* Those of the option, in its order. */
static const char *const frameworks[] = { "torchtitan", "megatron", "megatron-bridge", "deepspeed", "flatout" };
_Static_assert(FO_CLI_MEGATRON == 1, "the place of megatron");

static bool given(const struct fo_opt_set *s, const char *name, int *at)
{
	for (int i = 0; i < s->total; i++) {
		const char *dot = strrchr(fo_opt_row(s, i)->key, '.');
		if (dot && !strcmp(dot + 1, name)) {
			*at = i;
			return s->origin[i].from != FO_ORIGIN_DEFAULT;
		}
	}
	return false;
}

/* The part of the layers that compute again as a whole; 0: all, none, or it is not said so. */
static double part_again(const struct fo_cli_job *in)
{
	const bool part = in->recompute >= FO_PLAN_AGAIN_QUARTER && in->recompute <= FO_PLAN_AGAIN_MOST;
	return part ? fo_plan_again_share[in->recompute] : 0;
}

/* All settings that options state, "tp=8". */
static int settings_of(const struct fo_cli_call *call, const struct fo_cli_job *in, struct fo_arena *arena,
		       const char ***out)
{
	enum { PLAIN = sizeof plain / sizeof *plain };
	size_t most = PLAIN + 2 + (in->set ? strlen(in->set) + 1 : 0);
	const char **list = fo_arena_alloc(arena, most * sizeof *list), **more;
	int n = 0, at = 0;
	for (int i = 0; i < PLAIN; i++)
		if (given(call->options, plain[i][0], &at))
			list[n++] = fo_arena_printf(arena, "%s=%s", plain[i][1],
						    !strcmp(plain[i][1], "recompute") && part_again(in) > 0
							    ? fo_plan_again_id[FO_PLAN_AGAIN_FULL]
							    : fo_opt_value_text(call->options, at));
	if (in->precision >= 0) {
		list[n++] = types[in->precision][1];
		list[n++] = types[in->precision][2];
	}
	for (int i = 0, k = in->set ? fo_job_split_settings(in->set, arena, &more) : 0; i < k; i++)
		list[n++] = more[i];
	*out = list;
	return n;
}

/* ---- files ---- */

static fo_status is_of(const struct fo_job *job, const char *option, const char *const *id)
{
	for (; *id; id++)
		if (job->form && !strncmp(job->form->id, *id, strlen(*id)))
			return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "what --%s names is a configuration of %s", option,
			       job->form ? job->form->name : "no framework"),
		       "give it as an argument: it is recognised by what it says");
}

static fo_status check_forms(const struct fo_cli_job *in, const struct fo_job *job)
{
	static const char *const titan[] = { "torchtitan", NULL }, *const meg[] = { "megatron", "bridge", "nemo",
										    NULL };
	if (in->torchtitan)
		FO_TRY(is_of(job, "torchtitan", titan));
	if (in->megatron)
		FO_TRY(is_of(job, "megatron", meg));
	return FO_OK;
}

static bool is_text(const char *arguments)
{
	const char *p = arguments;
	while (isspace((unsigned char)*p))
		p++;
	return p[0] == '-' && p[1] == '-';
}

/* ---- the work of a step ---- */

static void assumed(struct fo_cli_asked *a, const char *what)
{
	if (a->notes < (int)(sizeof a->note / sizeof *a->note))
		a->note[a->notes++] = what;
}

static fo_status take_tokens(const struct fo_cli_job *in, struct fo_cli_asked *a)
{
	double seq = fo_job_number(&a->job, FO_JOB_SEQ), tokens = (double)in->global_tokens;
	if (!in->global_tokens)
		return FO_OK;
	if (in->global_batch || in->micro_batches)
		return fo_cli_contradict("--global-tokens and %s both say how much a step is",
					 in->global_batch ? "--global-batch" : "--micro-batches");
	if (isnan(seq))
		return fo_hint(fo_fail(FO_EARG, "--global-tokens needs the length of a sequence"),
			       "--seq=8192 gives it");
	if (fmod(tokens, seq) != 0)
		return fo_hint(fo_fail(FO_EARG, "%.0f tokens are not a whole number of sequences of %.0f", tokens, seq),
			       "--global-tokens=%.0f is the nearest that is", fmax(1, round(tokens / seq)) * seq);
	fo_job_set(&a->job, FO_JOB_GLOBAL_BATCH, tokens / seq);
	return FO_OK;
}

/* GB/s. Adapters of 800 Gbit/s carry 100; NVLink inside a node 900. */
#define NET_MOST 1000.0

static fo_status take_recompute(const struct fo_cli_job *in, struct fo_cli_asked *a)
{
	const double part = part_again(in);
	if (part == 0)
		return FO_OK;
	if (in->recompute_layers)
		return fo_cli_contradict("--recompute=%s and --recompute-layers both say how many layers",
					 fo_plan_again_id[in->recompute]);
	if (!a->job.has_model)
		return fo_hint(
			fo_fail(FO_EARG, "--recompute=%s needs a model that is known", fo_plan_again_id[in->recompute]),
			"--model names it");
	fo_job_set(&a->job, FO_JOB_RECOMPUTE_LAYERS, fmax(1, round(part * (double)a->job.model.layers)));
	return FO_OK;
}

static void assume_work(struct fo_cli_asked *a)
{
	struct fo_job *job = &a->job;
	if (fo_job_known(job, FO_JOB_MICRO_BATCH) || fo_job_known(job, FO_JOB_LOCAL_BATCH))
		return;
	fo_job_set(job, FO_JOB_MICRO_BATCH, 1);
	assumed(a, "micro-batch: one sequence (--micro-batch says another)");
}

fo_status fo_cli_job_read(const struct fo_cli_call *call, const struct fo_cli_job *in, struct fo_cli_asked *a)
{
	*a = (struct fo_cli_asked){ .given = { .net_gb_s = fo_range(NAN), .watts = in->watts } };
	fo_job_init(&a->job);
	FO_TRY(fo_catalogue_load(&a->catalogue, in->devices_file));
	const char *named[] = { in->torchtitan, in->deepspeed, in->megatron };
	const char **file = fo_arena_alloc(&a->arena, (size_t)(call->argc + 3) * sizeof *file);
	struct fo_job_given g = { .model = in->model };
	int files = 0;
	for (int i = 1; i < call->argc; i++)
		file[files++] = call->argv[i];
	for (int i = 0; i < 3; i++) {
		if (named[i] && i == 2 && is_text(named[i]))
			g.arguments = named[i];
		else if (named[i])
			file[files++] = named[i];
	}
	if (in->framework >= 0) {
		if (files || g.arguments)
			return fo_cli_contradict("--framework=%s and a configuration both say whose job it is",
						 frameworks[in->framework]);
		g.framework = frameworks[in->framework];
	}
	if (!files && !g.arguments && !g.model)
		return fo_hint(fo_fail(FO_EARG, "no job is named"),
			       "a configuration (run.yaml, train.toml), or --model=llama-3.1-70b --seq=8192 "
			       "--global-batch=512");
	if (in->bandwidth)
		FO_TRY(fo_range_parse(in->bandwidth, "--measured-bandwidth", &a->given.net_gb_s));
	if (in->bandwidth && !(a->given.net_gb_s.low > 0))
		return fo_hint(fo_fail(FO_EARG, "--measured-bandwidth=%s: nothing travels at 0 GB/s", in->bandwidth),
			       "an InfiniBand adapter of 400 Gbit/s reaches some 38");
	if (in->bandwidth && a->given.net_gb_s.high > NET_MOST)
		return fo_hint(
			fo_fail(FO_EARG,
				"--measured-bandwidth=%s: no adapters of one device carry more than %.15g "
				"GB/s",
				in->bandwidth, NET_MOST),
			"GB/s of one device, one direction: an InfiniBand adapter of 400 Gbit/s reaches some 38");
	a->given.tf32 = in->precision == TYPE_TF32;
	const char **set;
	g.sets = settings_of(call, in, &a->arena, &set);
	g.set = set;
	a->files = files + (g.arguments != NULL);
	FO_TRY(fo_job_read(file, files, &g, &a->job));
	FO_TRY(check_forms(in, &a->job));
	FO_TRY(take_tokens(in, a));
	FO_TRY(take_recompute(in, a));
	if (!files && !g.arguments)
		assume_work(a);
	if (in->cluster)
		return fo_cluster_parse(in->cluster, &a->catalogue, &a->cluster, &a->arena);
	return fo_hint(fo_fail(FO_EARG, "no cluster is named"), "--cluster=16xHGX-H100 names one of 128 devices");
}

void fo_cli_job_fini(struct fo_cli_asked *a)
{
	fo_job_fini(&a->job);
	fo_catalogue_fini(&a->catalogue);
	fo_arena_fini(&a->arena);
}

/* ---- what fits ---- */

static bool fits(const struct fo_predict_base *b, const struct fo_predict_layout *l)
{
	struct fo_predict_step s;
	fo_predict_memory_of(b, l, &s);
	return !s.wrong && fo_predict_upper_bytes(&s) <= b->job.machine.memory_bytes;
}

/* Changes of a division, each on top of those before it, that take memory off a device. */
enum { MICRO_ONE, AGAIN, SHARDED, EXPERT, TENSOR, CHANGES };
static bool more_experts(const struct fo_predict_base *b, struct fo_predict_layout *l)
{
	double was = fmax(1, l->ep), ranks = l->devices / fmax(1, l->pp);
	for (double ep = 2 * was; ep <= fmin(b->job.model.experts, ranks); ep *= 2) {
		if (fmod(b->job.model.experts, ep) != 0 || fmod(ranks, ep) != 0)
			break;
		l->ep = ep;
		if (fits(b, l))
			return true;
	}
	return fmax(1, l->ep) > was;
}

static bool change(const struct fo_predict_base *b, struct fo_predict_layout *l, int what)
{
	const struct fo_predict_model *m = &b->job.model;
	struct fo_predict_layout was = *l;
	double dp = l->devices / (fmax(1, l->tp) * fmax(1, l->cp) * fmax(1, l->pp));
	switch (what) {
	case MICRO_ONE:
		l->micro_batches *= l->micro_batch;
		l->micro_batch = 1;
		return was.micro_batch > 1;
	case AGAIN:
		l->recompute = 1;
		l->recompute_op = false;
		l->again_stages = 0;
		return was.recompute < 1 || was.again_stages > 0;
	case SHARDED:
		l->zero = 3;
		l->shard = 0;
		return dp > 1 && (was.zero < 3 || was.shard > 0);
	case EXPERT: return more_experts(b, l);
	default:
		for (double t = 2; t <= b->job.machine.per_node; t *= 2) {
			double other = fmax(1, was.tp) * t;
			if (fmod(m->kv_heads, other) != 0 || fmod(dp, t) != 0)
				break;
			l->tp = other;
			l->sp = true;
			l->micro_batches = was.micro_batches * t;
			if (fits(b, l))
				return true;
		}
		return l->tp > was.tp;
	}
}

static const char *change_text(struct fo_arena *a, int what, const struct fo_predict_layout *l)
{
	static const char *const text[] = { "a micro-batch of one sequence", "full recomputation",
					    "weights sharded over all data-parallel ranks (ZeRO 3)" };
	if (what < EXPERT)
		return text[what];
	return what == EXPERT ? fo_arena_printf(a, "ep %g", l->ep) : fo_arena_printf(a, "tp %g", l->tp);
}

/* All changes, one on top of the other, until it fits: those that did something, in *text; *l is what came of them. */
static bool together(struct fo_cli_asked *a, const struct fo_predict_base *b, struct fo_predict_layout *l,
		     const char **text)
{
	*text = "";
	for (int i = 0; i < CHANGES; i++) {
		if (!change(b, l, i))
			continue;
		*text = fo_arena_printf(&a->arena, "%s%s%s", *text, **text ? " with " : "",
					change_text(&a->arena, i, l));
		if (fits(b, l))
			return true;
	}
	return false;
}

/* One sentence: the nearest change that makes it fit; first each alone, then all together, then more devices. */
static const char *what_fits(struct fo_cli_asked *a, const struct fo_job_asked *j)
{
	const struct fo_predict_base *b = &j->base;
	const char *all;
	for (int i = 0; i < CHANGES; i++) {
		struct fo_predict_layout l = j->layout;
		if (change(b, &l, i) && fits(b, &l))
			return fo_arena_printf(&a->arena, "%s would", change_text(&a->arena, i, &l));
	}
	struct fo_predict_layout l = j->layout;
	if (together(a, b, &l, &all))
		return fo_arena_printf(&a->arena, "%s would", all);
	double before = l.devices, stage = fmax(1, l.tp) * fmax(1, l.cp) * fmax(1, l.pp);
	double node = b->job.machine.per_node, n = before;
	while ((n = fo_plan_next_size(node, n)) <= 1e6) {
		l.devices = n;
		if (fmod(n, stage) == 0 && fmod(n / fmax(1, l.pp), fmax(1, l.ep)) == 0 &&
		    fmod(n * fmax(1, l.cp) / stage, fmax(1, l.shard)) == 0 && fits(b, &l))
			return fo_arena_printf(&a->arena,
					       "no division of %.15g that was tried does; %.15g devices%s%s would",
					       before, l.devices, *all ? " with " : "", all);
	}
	return "no number of such devices does: a device with more memory ('flatout devices') might";
}

/* ---- the command ---- */

struct predict_cluster {
	struct fo_cli_job job;
	struct fo_cli_spread spread;
	struct fo_cli_goodput goodput;
	const char *svg, *trace, *html, *json;
	bool settings, force;
};
static const struct fo_opt rows[] = {
	FO_CLI_JOB_ROWS(struct predict_cluster, "predict"),
	FO_CLI_SPREAD_ROWS(struct predict_cluster, "predict"),
	FO_CLI_GOODPUT_ROWS(struct predict_cluster, "predict"),
	FO_OPT_BOOL(struct predict_cluster, settings, "predict.settings", "false",
		    "lists every setting, its value and the line that it comes from"),
	FO_OPT_OUTPUT(struct predict_cluster, svg, "predict.svg", "FILE", NULL, "the step's timeline as a picture",
		      FO_OUTPUT_SVG),
	FO_OPT_OUTPUT(struct predict_cluster, trace, "predict.trace", "FILE", NULL,
		      "the timeline as a trace for ui.perfetto.dev and chrome://tracing", FO_OUTPUT_SLICES),
	FO_OPT_OUTPUT(struct predict_cluster, html, "predict.html", "FILE", NULL, "a page", FO_OUTPUT_PAGE),
	FO_CLI_OUTPUT_ROWS(struct predict_cluster, "predict", "JSON on standard output"),
};

static fo_status show(const struct fo_cli_call *call, struct fo_cli_asked *a, const struct fo_cli_predicted *p)
{
	const struct predict_cluster *in = call->in;
	struct fo_doc page = { 0 }, *d = call->json || (in->html && !strcmp(in->html, "-")) ? &page : call->doc;
	if (!call->json || in->html) {
		fo_cli_predicted_doc(d, p);
		if (in->settings)
			fo_job_list(&a->job, d);
	}
	if (call->json) {
		fo_cli_predicted_json(call->json, p);
		if (in->settings) {
			fo_json_object(call->json, "job");
			fo_job_json(&a->job, call->json);
			fo_json_close(call->json);
		}
	}
	fo_status st = in->html ? fo_cli_page(d, in->html) : FO_OK;
	if (st == FO_OK && p->timeline)
		st = fo_cli_predicted_write(p, in->svg, in->trace);
	fo_doc_fini(&page);
	return st;
}

/* Limits of NVIDIA's devices begin at a quarter to a third of their own power. */
#define LEAST_POWER 0.25

fo_status fo_cli_job_check_device(const struct fo_cli_job *in, const struct fo_cli_asked *a)
{
	const struct fo_device *d = a->cluster.device;
	bool half = fo_job_is(&a->job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16),
	     full = fo_job_is(&a->job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32);
	double watts = in->watts;
	if (!d)
		return FO_OK;
	if (isnan(d->dense[FO_PREC_BF16]) && !isnan(d->dense[FO_PREC_FP16]) && !half && !full)
		return fo_hint(fo_fail(FO_EUNSUPPORTED, "the catalogue has no dense bf16 peak of %s", d->name),
			       "--precision=fp16 takes the job in fp16");
	/* Devices that scale blocks of 32 by themselves are those that have fp4, too: Blackwell, MI350. */
	if (fo_job_is(&a->job, FO_JOB_FP8, FO_JOB_FP8_MX) && isnan(d->dense[FO_PREC_FP4]) &&
	    !isnan(d->dense[FO_PREC_FP8]))
		return fo_hint(fo_fail(FO_EUNSUPPORTED, "%s has no units for mxfp8, which scales blocks of 32 numbers",
				       d->name),
			       "--precision=fp8 takes the job in fp8");
	if (watts > 0 && d->tdp_w > 0 && (watts > d->tdp_w || watts < LEAST_POWER * d->tdp_w))
		return fo_hint(fo_fail(FO_EARG, "--power-limit=%g: %s takes %g W, and limits are from %g to %g W",
				       watts, d->name, d->tdp_w, LEAST_POWER * d->tdp_w, d->tdp_w),
			       "leave it out for the device's own");
	return FO_OK;
}

/* The event-by-event simulation of the step, and drawn steps, where they are asked for. */
static fo_status simulate(const struct predict_cluster *in, struct fo_cli_predicted *p,
			  struct fo_plan_timeline *timeline, struct fo_spread_steps *spread)
{
	const bool drawn = fo_cli_spread_asked(&in->spread);
	struct fo_spread_in draw;
	FO_TRY(fo_cli_spread_read(&in->spread, &draw));
	if (!in->svg && !in->trace && !in->html && !drawn)
		return FO_OK;
	const fo_status st = fo_plan_timeline_of(timeline, &p->job.layout, &p->step);
	if (st != FO_OK && !in->svg && !in->trace && !drawn) { /* the page goes without this picture */
		fo_err_clear();
		return FO_OK;
	}
	FO_TRY(st);
	p->timeline = timeline;
	if (!drawn)
		return FO_OK;
	FO_TRY(fo_spread_of(spread, &timeline->fleet, &draw));
	p->spread = spread;
	return FO_OK;
}

/* ---- memory ---- */

/* A file's memory is what it states, and both ends of what it does not, as audit has them. It is counted before the
 * job is asked: asking completes the job, and the time of a step rests on that. */
static void take_memory(const struct fo_job_memory *m, struct fo_cli_predicted *p)
{
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++) {
		p->sure.memory[i] = m->part[i];
		p->step.memory[i] = fo_range_middle(m->part[i]);
	}
	p->sure.bytes = m->total;
	p->step.bytes = fo_range_middle(m->total);
}

static bool too_large(const struct fo_cli_predicted *p)
{
	return p->sure.bytes.low > fo_predict_most_bytes(&p->job.job.machine);
}

/* ---- Flatout's own programs ---- */

/* Does an option say what the run file says, too? */
static bool overrides(const struct fo_cli_call *call, const struct fo_cli_job *in)
{
	int at;
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
		if (given(call->options, plain[i][0], &at))
			return true;
	return in->precision >= 0 || in->set || in->model || in->global_tokens;
}

static void plan_file(const char *path, const struct fo_predict_layout *l, struct fo_plan_memory *m)
{
	struct fo_opt_set set;
	struct fo_model model;
	struct fo_run run;
	fo_opt_init(&set, fo_run_options, &run);
	if (fo_opt_read_yaml(&set, path) != FO_OK || fo_run_check(&set, &run) != FO_OK ||
	    fo_run_model(&run, &model) != FO_OK)
		m->why = "'flatout train' refuses the run file";
	else if ((double)run.ranks != l->devices)
		m->why = "mesh.ranks of the run file are not the devices of the cluster";
	else
		fo_plan_memory_of_run(&run, &model, m);
	if (!m->why && ((double)m->micro_batches != l->micro_batches || (double)m->rows != l->micro_batch))
		m->why = "its executor divides the rows of a step otherwise";
	fo_opt_fini(&set);
	fo_err_clear();
}

/* The program of a division that options state. */
static void plan_options(const struct fo_cli_asked *a, const struct fo_job_asked *j, struct fo_plan_memory *m)
{
	struct fo_plan_asked *ask = fo_xmalloc(sizeof *ask);
	struct fo_plan_point p = { .layout = j->layout };
	struct fo_predict_layout *l = &p.layout;
	*ask = (struct fo_plan_asked){ .base = j->base,
				       .framework = fo_plan_framework_of("flatout"),
				       .devices = l->devices,
				       .global_batch = j->shape.global_batch,
				       .model = &a->job.model,
				       .fixed = FO_PLAN_FREE };
	l->tp = fmax(1, l->tp), l->cp = fmax(1, l->cp), l->pp = fmax(1, l->pp), l->ep = fmax(1, l->ep);
	l->chunks = fmax(1, l->chunks);
	l->global_batch = ask->global_batch;
	const double ranks = l->devices / (l->tp * l->pp);
	l->zero = ranks > 1 ? l->zero : 0;
	if (l->shard >= ranks || l->zero <= 0)
		l->shard = 0;
	p.again = l->recompute >= 1 ? FO_PLAN_AGAIN_FULL : FO_PLAN_AGAIN_NONE;
	if (l->recompute > 0 && l->recompute < 1)
		m->why = "a part of it is computed again";
	else
		fo_plan_memory_of(ask, &p, &a->job.model, m);
	free(ask);
}

/* Memory of Flatout's own jobs, from the program of the fullest rank. */
static void plan_memory(const struct fo_cli_call *call, const struct fo_cli_asked *a, struct fo_cli_predicted *p)
{
	const struct predict_cluster *in = call->in;
	struct fo_plan_memory m = { 0 };
	if (p->job.job.style != FO_PREDICT_STYLE_FLATOUT)
		return;
	if (!a->job.has_model)
		m.why = "its model is not known";
	else if (!a->files)
		plan_options(a, &p->job, &m);
	else if (a->files != 1 || call->argc != 2 || overrides(call, &in->job))
		m.why = "options change what the run file says";
	else
		plan_file(call->argv[1], &p->job.layout, &m);
	p->not_planned = m.why;
	if (!m.why)
		fo_plan_memory_take(&p->step, &m.fullest);
}

static fo_status predict(const struct fo_cli_call *call, struct fo_cli_asked *a)
{
	const struct predict_cluster *in = call->in;
	struct fo_cli_predicted p = { .asked = a };
	struct fo_plan_timeline timeline;
	FO_TRY(fo_cli_job_check_device(&in->job, a));
	struct fo_spread_steps spread;
	struct fo_job_memory memory = { .fit = FO_JOB_FIT_UNKNOWN };
	FO_TRY(fo_cli_goodput_read(&in->goodput, &p.goodput_in));
	if (fo_cli_goodput_asked(&in->goodput))
		p.goodput = &in->goodput;
	if (a->files)
		fo_job_memory_of(&a->job, &a->cluster, &memory);
	FO_TRY(fo_job_ask(&a->job, &a->cluster, &a->given, &p.job));
	p.goodput_in.devices = p.job.layout.devices;
	fo_predict_point(&p.job.base, &p.job.layout, &p.step);
	if (p.step.wrong)
		return fo_fail(FO_EARG, "%s", p.step.wrong);
	plan_memory(call, a, &p);
	fo_predict_certainty_of(&p.job.base, &p.job.layout, &p.step, &p.sure);
	if (!p.step.planned && memory.fit != FO_JOB_FIT_UNKNOWN)
		take_memory(&memory, &p);
	if (too_large(&p))
		p.fits_not = what_fits(a, &p.job);
	else if (p.sure.flag == fo_predict_too_large)
		p.sure.flag = NULL;
	fo_status st = simulate(in, &p, &timeline, &spread);
	if (st == FO_OK)
		st = show(call, a, &p);
	if (p.spread)
		fo_spread_fini(&spread);
	if (p.timeline)
		fo_plan_timeline_fini(&timeline);
	return st == FO_OK && p.fits_not ? fo_cli_found() : st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct predict_cluster *in = call->in;
	struct fo_cli_asked a;
	fo_status st = fo_cli_job_read(call, &in->job, &a);
	if (st == FO_OK)
		st = predict(call, &a);
	fo_cli_job_fini(&a);
	return st;
}

const struct fo_command fo_cmd_predict_cluster = {
	.name = "predict cluster",
	.group = "plan",
	.usage = "flatout predict CONFIG... --cluster C [--set NAME=VALUE,...] [--html FILE] [--svg FILE] "
		 "[--trace FILE] [--settings] [--json]\n"
		 "flatout predict --model M --cluster C --seq S --global-batch N [--framework F] [--tp N] [--pp N] "
		 "[--json]",
	.summary = "step time, MFU and memory of a job on any cluster, from its configuration",
	.text = "Predicts the step of a training job on devices that nobody measured here: seconds by part, exposed "
		"communication by axis, MFU, memory of the fullest device, each with the interval that holds 80 % of "
		"the runs of known publishers, what the answer rests on, and the three terms that move it most.\n\n"
		"The job is a configuration that 'flatout audit' reads, or a model with options. --cluster anywhere "
		"behind 'predict' chooses this command.\n\n"
		"  flatout predict run.yaml --cluster 16xHGX-H100\n"
		"  flatout predict --torchtitan train.toml --cluster 2xHGX-B200\n"
		"  flatout predict --model llama-3.1-70b --cluster 16xHGX-H100 --seq 8192 \\\n"
		"      --global-batch 512 --framework megatron --tp 8 --pp 4\n\n"
		"Exit status 1: the job does not fit the devices' memory.",
	.opts = rows,
	.act = run,
	.size = sizeof(struct predict_cluster),
	.most = FO_CLI_ANY,
};
