/* From a framework's settings to the numbers of a prediction. */
#include "job/predict.h"

#include "job/memory_int.h"

#include <stdio.h>
#include <string.h>

/* ---- the machine ---- */

/* Cards on a bus have no fast domain; servers with up to 16 of them are sold. */
enum { SERVER = 8, BUS_MOST = 16 };

static fo_status check_node(const struct fo_cluster *c)
{
	double domain = c->device->scaleup_devices;
	double most = isnan(domain) || domain < SERVER ? BUS_MOST : domain;
	if (!(c->devices >= 1) || !(c->per_node >= 1))
		return fo_hint(fo_fail(FO_EARG, "a cluster without devices trains nothing"),
			       "--cluster=1xHGX-H100 has eight of one node");
	if (c->per_node <= most)
		return FO_OK;
	double nodes = ceil(c->devices / most);
	return fo_hint(fo_fail(FO_EARG, "no node of %.15g %s exists: one joins at most %.15g", c->per_node,
			       c->device->name, most),
		       "--cluster=%.15gx%.15gx%s has as many devices in nodes that exist", nodes, most,
		       c->device->name);
}

fo_status fo_cluster_machine(const struct fo_cluster *c, const struct fo_job_machine_given *given,
			     struct fo_predict_machine *out)
{
	if (!c->device)
		return fo_hint(fo_fail(FO_EARG, "the device is not known"), "--cluster=16xHGX-H100 names it");
	FO_TRY(check_node(c));
	FO_TRY(fo_predict_machine_of(c->device, out));
	out->per_node = c->per_node;
	struct fo_range usable = fo_cluster_usable(c);
	if (fo_range_known(usable))
		out->memory_bytes = usable.low, out->memory_most = usable.high; /* the least counts */
	if (fo_range_known(c->node_gb_s) && c->node_gb_s.low > 0)
		out->node_byte_s = 1e9 * fo_range_middle(c->node_gb_s);
	if (!c->net_assumed && fo_range_known(c->net_gb_s))
		out->net_byte_s = 1e9 * fo_range_middle(c->net_gb_s);
	if (given && fo_range_known(given->net_gb_s)) {
		out->net_byte_s = 1e9 * fo_range_middle(given->net_gb_s);
		out->net_share = 1;
	}
	if (given && given->watts > 0)
		fo_predict_power_limit(out, given->watts);
	return FO_OK;
}

/* ---- the job ---- */

struct asking {
	struct fo_job *job;
	const struct fo_job_machine_given *given;
	struct fo_job_asked *o;
	const struct fo_predict_style *style;
	bool stated; /* assume nothing of how states are sharded */
};

#define INFER(k, ...)                                                                                            \
	do {                                                                                                     \
		if ((k)->o->inferences < FO_JOB_INFERRED_MOST)                                                   \
			(k)->o->inferred[(k)->o->inferences++] = fo_arena_printf(&(k)->job->arena, __VA_ARGS__); \
	} while (0)

enum fo_predict_style_id fo_job_predict_style(const struct fo_job *job)
{
	const char *id = job->form ? job->form->id : "";
	bool compiled = fo_job_is(job, FO_JOB_COMPILE, 1);
	/* Names of frameworks whose recipes are known by another one. */
	static const char *const same[][2] = { { "megatron", "megatron-lm" }, { "llm-foundry", "composer" } };
	for (size_t i = 0; i < sizeof same / sizeof *same; i++)
		if (!strcmp(id, same[i][0]))
			return fo_predict_style_of(same[i][1]);
	if (!strncmp(id, "nemo", 4))
		return fo_predict_style_of("nemo/megatron-core");
	enum fo_memory_keeper keeper = fo_job_keeper_of(job);
	if (!job->form && compiled)
		return FO_PREDICT_STYLE_COMPILED;
	if (!strncmp(id, "torchtitan", 10) && !compiled)
		return FO_PREDICT_STYLE_TITAN_EAGER;
	if (keeper == FO_MEMORY_BY_TORCH && strncmp(id, "maxtext", 7))
		return compiled ? FO_PREDICT_STYLE_TITAN : FO_PREDICT_STYLE_EAGER;
	return fo_predict_style_of(id);
}

static enum fo_predict_type type_of(const struct asking *k)
{
	double fp8 = fo_job_or(k->job, FO_JOB_FP8, FO_JOB_FP8_OFF);
	if (fp8 == FO_JOB_FP4_ON)
		return FO_PREDICT_FP4;
	if (fp8 == FO_JOB_FP8_MX || fp8 == FO_JOB_FP8_BLOCKWISE || fp8 == FO_JOB_FP8_ROWWISE)
		return FO_PREDICT_MXFP8;
	if (fp8 != FO_JOB_FP8_OFF)
		return FO_PREDICT_FP8;
	if (!fo_job_is(k->job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32))
		return FO_PREDICT_BF16;
	return k->given && k->given->tf32 ? FO_PREDICT_TF32 : FO_PREDICT_FP32;
}

/* Flatout's layers that recompute are the model's first ones: those of a pipeline's first stages. */
static bool front(struct asking *k, struct fo_predict_layout *l)
{
	const double n = fo_job_number(k->job, FO_JOB_RECOMPUTE_LAYERS), layers = (double)k->job->model.layers;
	if (!k->job->form || strcmp(k->job->form->id, "flatout") || !(n >= 1 && n < layers) || l->pp <= 1 ||
	    l->chunks > 1)
		return false;
	double sum = 0, stages = 0;
	for (; sum < n && stages < l->pp; stages++)
		sum += fo_predict_stage_layers(&l->uneven, layers, l->pp, stages);
	l->recompute = 1;
	l->again_stages = stages < l->pp ? stages : 0;
	if (sum > n)
		INFER(k, "recomputation of a part of stage %.15g counts as all of it", stages);
	return true;
}

static void recompute(struct asking *k, struct fo_predict_layout *l)
{
	struct fo_job_recompute r = fo_job_recompute_of(k->job);
	switch (r.mode) {
	case FO_JOB_AGAIN_FULL:
	case FO_JOB_AGAIN_NTH:
		if (r.mode == FO_JOB_AGAIN_NTH || !front(k, l))
			l->recompute = r.share;
		break;
	case FO_JOB_AGAIN_EVERY_OP:
		/* Every second product and all that is bound by memory, but no attention: half of a forward. */
		l->recompute = 0.5;
		l->recompute_op = true;
		break;
	case FO_JOB_AGAIN_CORE:
		l->recompute_core = r.core;
		l->recompute_ffn = r.modules & (FO_PREDICT_AGAIN_FFN | FO_PREDICT_AGAIN_ACTIVATION);
		l->again = r.modules;
		break;
	case FO_JOB_AGAIN_UNKNOWN:
		l->recompute = k->style->recomputes;
		INFER(k, "recomputation: %s, as %s does unless told", k->style->recomputes ? "whole layers" : "none",
		      k->style->title);
		break;
	default: break;
	}
}

static void pipeline(struct asking *k, struct fo_predict_layout *l)
{
	static const enum fo_predict_schedule of[] = { [FO_JOB_SCHEDULE_GPIPE] = FO_PREDICT_GPIPE,
						       [FO_JOB_SCHEDULE_1F1B] = FO_PREDICT_1F1B,
						       [FO_JOB_SCHEDULE_INTERLEAVED] = FO_PREDICT_INTERLEAVED,
						       [FO_JOB_SCHEDULE_ZERO_BUBBLE] = FO_PREDICT_ZERO_BUBBLE };
	double s = fo_job_number(k->job, FO_JOB_PP_SCHEDULE);
	l->chunks = k->o->shape.chunks;
	if (s >= 0 && s < sizeof of / sizeof *of)
		l->schedule = of[(int)s];
	if (l->chunks > 1 && l->schedule != FO_PREDICT_ZERO_BUBBLE)
		l->schedule = FO_PREDICT_INTERLEAVED;
	if (l->pp > 1 && isnan(s) && l->chunks <= 1)
		INFER(k, "pipeline schedule: 1F1B");
	const char *word = k->job->value[FO_JOB_PP_SCHEDULE].text;
	if (word && !strcmp(word, "zb-h2"))
		l->schedule = FO_PREDICT_ZB_H2;
}

static void sharding(struct asking *k, struct fo_predict_layout *l)
{
	const struct fo_job_shape *s = &k->o->shape;
	double ranks = s->dp * s->cp;
	l->zero = fo_job_zero(k->job, s);
	if (isnan(l->zero)) {
		l->zero = k->style->zero;
		if (ranks > 1)
			INFER(k, "what data-parallel ranks shard: ZeRO %g, as %s does", l->zero, k->style->title);
	}
	if (l->zero > 0 && s->shard >= 1 && s->shard < ranks)
		l->shard = s->shard;
}

/* 1 and -1 by a file or by a default of the framework's release; 0: its style decides. */
static int on_or_off(const struct fo_job *job, enum fo_job_setting s)
{
	double v = fo_job_number(job, s);
	if (isnan(v) || job->value[s].origin == FO_JOB_AUTO)
		return 0;
	return v != 0 ? 1 : -1;
}

static void layout(struct asking *k)
{
	const struct fo_job_shape *s = &k->o->shape;
	struct fo_predict_layout *l = &k->o->layout;
	*l = (struct fo_predict_layout){ .devices = s->devices,
					 .tp = s->tp,
					 .cp = s->cp,
					 .pp = s->pp,
					 .ep = s->ep,
					 .etp = s->etp,
					 .micro_batch = s->micro_batch,
					 .micro_batches = s->micro_batches,
					 .global_batch = s->global_batch };
	pipeline(k, l);
	l->uneven = (struct fo_predict_uneven){ s->first_layers, s->middle_layers, s->last_layers };
	sharding(k, l);
	recompute(k, l);
	double sp = fo_job_number(k->job, FO_JOB_SEQUENCE_PARALLEL);
	/* torchtitan has no tensor parallelism without it, and no setting for it. */
	bool usual = fo_job_keeper_of(k->job) == FO_MEMORY_BY_TORCH || k->style->sequence_parallel;
	l->sp = l->tp > 1 && (isnan(sp) ? usual : sp != 0);
	if (l->tp > 1 && isnan(sp))
		INFER(k, "sequence parallelism beside tensor parallelism: %s", l->sp ? "on" : "off");
	l->tp_overlap = on_or_off(k->job, FO_JOB_TP_OVERLAP);
	if (l->tp_overlap > 0 && !l->sp) /* every framework hides gathers and scatters alone */
		l->tp_overlap = 0;
	l->dp_overlap = on_or_off(k->job, FO_JOB_GRAD_OVERLAP);
	l->graphs = on_or_off(k->job, FO_JOB_CUDA_GRAPHS);
	double reshard = fo_job_number(k->job, FO_JOB_RESHARD); /* with a pipeline gathered weights stay unless told */
	l->keeps_weights = l->zero >= 3 && (isnan(reshard) ? l->pp > 1 : reshard == 0);
	l->stages_near = l->pp > 1 && fo_job_is(k->job, FO_JOB_PP_NEAR, 1);
}

void fo_job_layout_of(struct fo_job *job, const struct fo_job_shape *s, struct fo_predict_layout *out)
{
	struct fo_job_asked o = { .shape = *s, .inferences = FO_JOB_INFERRED_MOST }; /* nothing is said */
	layout(&(struct asking){ .job = job, .o = &o, .style = &fo_predict_style[fo_job_predict_style(job)] });
	*out = o.layout;
}

/* AdamW in fp32 reads and writes 28 bytes of a weight; a list of separate operations does some twenty passes over 4. */
#define UPDATE_BY_STEPS 80

/* The format of the optimizer's states, where the file states one of those that have a name. */
static enum fo_predict_format format_of(const struct fo_job *job, bool torch)
{
	static const enum fo_predict_format of[] = { [FO_JOB_FP32] = FO_PREDICT_FORMAT_FP32,
						     [FO_JOB_BF16] = FO_PREDICT_FORMAT_BF16,
						     [FO_JOB_FP16] = FO_PREDICT_FORMAT_8BIT }; /* the third word */
	const char *master = job->value[FO_JOB_PARAM_DTYPE].text;
	/* PyTorch's ways hold one copy of the weights, which is the master, and moments of its type. */
	bool small = fo_job_is(job, FO_JOB_PARAM_DTYPE, FO_JOB_BF16);
	double moments = fo_job_or(job, FO_JOB_MOMENTS, small && torch ? FO_JOB_BF16 : FO_JOB_FP32);
	if (small && fo_job_stated(job, FO_JOB_PARAM_DTYPE))
		return moments == FO_JOB_BF16 ? FO_PREDICT_FORMAT_ALL_BF16 : FO_PREDICT_FORMAT_JOB;
	if (master && !strcmp(master, "split"))
		return moments == FO_JOB_FP32 ? FO_PREDICT_FORMAT_SPLIT : FO_PREDICT_FORMAT_JOB;
	bool known = moments >= 0 && moments < sizeof of / sizeof *of && fo_job_stated(job, FO_JOB_MOMENTS);
	return known ? of[(int)moments] : FO_PREDICT_FORMAT_JOB;
}

/* What the file states of types and kernels, where its style would have others. */
static void habits(struct asking *k)
{
	const struct fo_job *job = k->job;
	struct fo_predict_job *p = &k->o->job;
	static const enum fo_predict_attention kernel[] = { [FO_JOB_ATTENTION_EAGER] = FO_PREDICT_ATTENTION_STORED,
							    [FO_JOB_ATTENTION_SDPA] = FO_PREDICT_ATTENTION_SDPA,
							    [FO_JOB_ATTENTION_FLASH] = FO_PREDICT_ATTENTION_SDPA,
							    [FO_JOB_ATTENTION_FUSED] = FO_PREDICT_ATTENTION_FUSED,
							    [FO_JOB_ATTENTION_FLEX] = FO_PREDICT_ATTENTION_SDPA };
	double attention = fo_job_number(job, FO_JOB_ATTENTION), reduce = fo_job_number(job, FO_JOB_GRAD_REDUCE);
	if (fo_job_stated(job, FO_JOB_ATTENTION) && attention >= 0 && attention < sizeof kernel / sizeof *kernel)
		p->attention = 1 + (int)kernel[(int)attention];
	if (!isnan(reduce) && fo_job_stated(job, FO_JOB_GRAD_REDUCE))
		p->gradient_bytes = fo_job_bytes_of(reduce);
	bool torch = fo_job_keeper_of(job) == FO_MEMORY_BY_TORCH;
	fo_job_ways_of(job, &p->ways);
	if (fo_job_is(job, FO_JOB_COMPILE_LOSS, 1))
		p->logit_bytes = 8;
	else if (fo_job_is(job, FO_JOB_COMPILE_LOSS, 0)) /* also beside a model that is compiled */
		p->logit_bytes = fo_predict_style[torch ? FO_PREDICT_STYLE_EAGER : FO_PREDICT_STYLE_MEG22].logit_bytes;
	if (fo_job_is(job, FO_JOB_OPTIMIZER_FUSED, 0))
		p->optimizer_bytes = UPDATE_BY_STEPS;
	p->format = format_of(job, torch);
}

/* A job that says nothing of how states are sharded takes its style's way. */
static void settle_zero(struct asking *k)
{
	if (!k->o->shape.stage_unknown)
		return;
	struct fo_job_value *v = &k->job->value[FO_JOB_ZERO];
	double zero = k->style->zero;
	*v = (struct fo_job_value){ .origin = FO_JOB_DEFAULT, .number = zero };
	INFER(k, "what data-parallel ranks shard: ZeRO %g, as %s does", zero, k->style->title);
}

/* "WHAT: give --set NAME=N": the options that have a name of their own are named by it. */
static fo_status refuse_unknown(const char *text)
{
	static const char *const own[][2] = { { "micro_batch", "micro-batch" },
					      { "global_batch", "global-batch" },
					      { "accumulation", "micro-batches" },
					      { "dp_shard", "shard" },
					      { "dp_replicate", "replicate" },
					      { "seq", "seq" },
					      { "tp", "tp" },
					      { "pp", "pp" },
					      { "cp", "cp" },
					      { "ep", "ep" } };
	const char *give = strstr(text, ": give --set ");
	const char *name = give ? give + strlen(": give --set ") : "";
	for (size_t i = 0; give && i < sizeof own / sizeof *own; i++)
		if (!strncmp(name, own[i][0], strlen(own[i][0])) && name[strlen(own[i][0])] == '=')
			return fo_hint(fo_fail(FO_EARG, "not known: %.*s", (int)(give - text), text), "--%s=N gives it",
				       own[i][1]);
	return fo_fail(FO_EARG, "not known: %s", text);
}

static fo_status check_shape(struct asking *k, const struct fo_cluster *c)
{
	struct fo_job_shape *s = &k->o->shape;
	fo_job_shape_of(k->job, c, s);
	if (s->stage_unknown && !k->stated) {
		settle_zero(k);
		fo_job_shape_of(k->job, c, s);
	}
	if (s->wrong)
		return s->wrong_try ? fo_hint(fo_fail(FO_EARG, "%s", s->wrong), "%s", s->wrong_try)
				    : fo_fail(FO_EARG, "%s", s->wrong);
	return s->unknown ? refuse_unknown(s->unknown) : FO_OK;
}

/* The nearest number up to `most` that divides n. */
static double nearest_divisor(double n, double want, double most)
{
	double best = 1;
	for (double d = 1; d <= most && d <= n; d++)
		if (fmod(n, d) == 0 && fabs(d - want) < fabs(best - want))
			best = d;
	return best;
}

/* Splits that no framework takes. */
static fo_status check_division(const struct asking *k)
{
	const struct fo_model *m = &k->job->model;
	const struct fo_job_shape *s = &k->o->shape;
	double heads = (double)m->heads, kv = (double)m->kv_heads;
	if (fmod(heads, s->tp) != 0)
		return fo_hint(
			fo_fail(FO_EARG, "tp %.15g does not divide the %.15g heads of %s", s->tp, heads, m->name),
			"tp %.15g does", nearest_divisor(heads, s->tp, 1024));
	if (fmod(fmax(kv, s->tp), fmin(kv, s->tp)) != 0)
		return fo_hint(fo_fail(FO_EARG, "tp %.15g does not fit the %.15g heads of keys and values of %s", s->tp,
				       kv, m->name),
			       "tp %.15g does", nearest_divisor(kv, s->tp, kv));
	double ends = fo_job_is(k->job, FO_JOB_PP_EMBEDDING_COUNTS, 1) + fo_job_is(k->job, FO_JOB_PP_LOSS_COUNTS, 1);
	bool uneven = s->first_layers + s->middle_layers + s->last_layers > 0;
	if (!uneven && ends == 0 && s->pp * s->chunks == (double)m->layers + 2)
		return fo_hint(fo_fail(FO_EARG,
				       "%.15g pipeline stages of %.15g chunks are two more than the %lld layers of %s",
				       s->pp, s->chunks, (long long)m->layers, m->name),
			       "Megatron-LM counts embedding and head as layers with "
			       "--account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split");
	if (!uneven && s->pp * s->chunks > (double)m->layers + ends)
		return fo_hint(fo_fail(FO_EARG,
				       "%.15g pipeline stages of %.15g chunks are more than the %lld layers of %s",
				       s->pp, s->chunks, (long long)m->layers, m->name),
			       "pp %.15g is the most", fmax(1, floor((double)m->layers / s->chunks)));
	if (m->learned_position && m->max_position && s->seq > (double)m->max_position)
		return fo_hint(fo_fail(FO_EARG, "a sequence of %.15g tokens is longer than the %lld positions of %s",
				       s->seq, (long long)m->max_position, m->name),
			       "--seq=%lld is the most", (long long)m->max_position);
	if (fmod(s->seq, s->cp) != 0)
		return fo_hint(fo_fail(FO_EARG, "cp %.15g does not divide a sequence of %.15g tokens", s->cp, s->seq),
			       "cp %.15g does", nearest_divisor(s->seq, s->cp, 1024));
	return FO_OK;
}

/* Options of the caller that say nothing of this job. */
static fo_status check_given(const struct asking *k)
{
	const struct fo_model *m = &k->job->model;
	const struct fo_job_shape *s = &k->o->shape;
	const struct fo_job_value *v = k->job->value;
	double again = fo_job_number(k->job, FO_JOB_RECOMPUTE_LAYERS);
	if (!m->experts && s->ep > 1)
		return fo_hint(fo_fail(FO_EARG, "ep %.15g divides experts, and %s has none", s->ep, m->name),
			       "leave it out");
	if (s->pp == 1 && v[FO_JOB_PP_SCHEDULE].origin == FO_JOB_GIVEN)
		return fo_hint(fo_fail(FO_EARG, "a schedule is of a pipeline, and pp is 1"),
			       "give --pp too, or leave the schedule out");
	if (s->pp == 1 && s->chunks > 1 && v[FO_JOB_PP_VIRTUAL].origin == FO_JOB_GIVEN)
		return fo_hint(fo_fail(FO_EARG, "%.15g chunks are of a pipeline, and pp is 1", s->chunks),
			       "give --pp too, or leave the chunks out");
	if (again > (double)m->layers && v[FO_JOB_RECOMPUTE_LAYERS].origin == FO_JOB_GIVEN)
		return fo_hint(fo_fail(FO_EARG, "%.15g layers that compute again are more than the %lld of %s", again,
				       (long long)m->layers, m->name),
			       "%lld are all", (long long)m->layers);
	return FO_OK;
}

/* What changes a step beyond what is modelled here. */
static fo_status check_ways(const struct asking *k)
{
	const struct {
		enum fo_job_setting s;
		const char *what;
	} row[] = {
		{ FO_JOB_OFFLOAD_OPTIMIZER, "optimizer states in host memory" },
		{ FO_JOB_OFFLOAD_PARAMS, "weights in host memory" },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (fo_job_is(k->job, row[i].s, 1))
			return fo_hint(fo_fail(FO_EUNSUPPORTED, "a step with %s is not predicted", row[i].what),
				       "'flatout audit' says what memory it saves");
	if (fo_job_recompute_of(k->job).offload)
		return fo_hint(fo_fail(FO_EUNSUPPORTED, "a step with activations in host memory is not predicted"),
			       "'flatout audit' says what memory it saves");
	return FO_OK;
}

static fo_status begin(struct asking *k, const struct fo_cluster *c)
{
	struct fo_job *job = k->job;
	if (!job->has_model) {
		const char *why = job->model_missing ? job->model_missing : "no file names a model";
		const char *give = strstr(why, ": give --model"); /* the hint says it */
		return fo_hint(fo_fail(FO_EARG, "%.*s", give ? (int)(give - why) : (int)strlen(why), why),
			       "--model=llama-3.1-8b, or the path of its config.json");
	}
	k->o->job.style = fo_job_predict_style(job);
	k->style = &fo_predict_style[k->o->job.style];
	const struct fo_device *sold = c->sold;
	if (sold)
		INFER(k, "memory of a device: %g GB, %g TB/s, as %s states it; the catalogue's %s has %g GB, %g TB/s",
		      c->device->memory_gb, c->device->memory_tb_s, c->from, sold->name, sold->memory_gb,
		      sold->memory_tb_s);
	return fo_cluster_machine(c, k->given, &k->o->job.machine);
}

static fo_status prepare(struct asking *k, const struct fo_cluster *c, double seq)
{
	struct fo_job_asked *o = k->o;
	FO_TRY(check_ways(k));
	fo_predict_model_of(&k->job->model, &o->job.model);
	o->job.type = type_of(k);
	o->job.seq = seq;
	o->job.lora = fo_job_adapters(k->job);
	habits(k);
	const char *wrong = fo_predict_prepare(&o->job, &o->base);
	if (wrong)
		return fo_fail(FO_EUNSUPPORTED, "%s on %s is not predicted: %s", k->job->model.name, c->device->name,
			       wrong);
	return FO_OK;
}

static fo_status ask(struct asking *k, const struct fo_cluster *c)
{
	struct fo_job_shape *s = &k->o->shape;
	*k->o = (struct fo_job_asked){ 0 };
	FO_TRY(begin(k, c));
	fo_job_shape_of(k->job, c, s);
	if (isnan(s->tp * s->pp * s->cp * s->chunks))
		return check_shape(k, c);
	FO_TRY(check_division(k)); /* of a division that no model of this shape can have no number of devices helps */
	if (!k->stated)            /* a what-if gives what no option of the caller says */
		FO_TRY(check_given(k));
	FO_TRY(check_shape(k, c));
	FO_TRY(prepare(k, c, s->seq));
	layout(k);
	double skipped = fo_job_number(k->job, FO_JOB_FP8_SKIPPED);
	if (skipped > 0 && k->o->job.type != FO_PREDICT_BF16)
		INFER(k, "%.15g layers that keep 16 bits count as %s", skipped, fo_predict_type_name[k->o->job.type]);
	return FO_OK;
}

fo_status fo_job_ask(struct fo_job *job, const struct fo_cluster *c, const struct fo_job_machine_given *given,
		     struct fo_job_asked *o)
{
	return ask(&(struct asking){ .job = job, .given = given, .o = o }, c);
}

fo_status fo_job_ask_stated(struct fo_job *job, const struct fo_cluster *c, struct fo_job_asked *o)
{
	return ask(&(struct asking){ .job = job, .o = o, .stated = true }, c);
}

fo_status fo_job_ask_base(struct fo_job *job, const struct fo_cluster *c, const struct fo_job_machine_given *given,
			  struct fo_job_asked *o)
{
	*o = (struct fo_job_asked){ 0 };
	struct asking k = { .job = job, .given = given, .o = o };
	double seq = fo_job_number(job, FO_JOB_SEQ);
	FO_TRY(begin(&k, c));
	if (!(seq >= 1))
		return fo_hint(fo_fail(FO_EARG, "the length of a sequence is not known"), "--seq=8192 gives it");
	return prepare(&k, c, seq);
}
