/* How a framework keeps weights, gradients, states and activations, as a configuration says it. */
#define _GNU_SOURCE /* strcasestr */
#include "job/memory_int.h"
#include "predict/predict.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- who keeps them ---- */

static const struct {
	const char *id;
	enum fo_memory_keeper keeper;
} keeper_of_form[] = {
	{ "megatron", FO_MEMORY_BY_MEGATRON },
	{ "nemo", FO_MEMORY_BY_MEGATRON },
	{ "megatron-deepspeed", FO_MEMORY_BY_DEEPSPEED },
	{ "bridge", FO_MEMORY_BY_MEGATRON },
	{ "deepspeed", FO_MEMORY_BY_DEEPSPEED },
	{ "torchtitan", FO_MEMORY_BY_TORCH },
	{ "hf", FO_MEMORY_BY_TORCH },
	{ "transformers", FO_MEMORY_BY_TORCH },
	{ "trl", FO_MEMORY_BY_TORCH },
	{ "accelerate", FO_MEMORY_BY_TORCH },
	{ "axolotl", FO_MEMORY_BY_TORCH },
	{ "llama", FO_MEMORY_BY_TORCH },
	{ "lightning", FO_MEMORY_BY_TORCH },
	{ "maxtext", FO_MEMORY_BY_TORCH },
	{ "composer", FO_MEMORY_BY_TORCH },
	{ "llm-foundry", FO_MEMORY_BY_TORCH },
	{ "fsdp", FO_MEMORY_BY_TORCH },
	{ "olmo", FO_MEMORY_BY_TORCH },
	{ "gpt-neox", FO_MEMORY_BY_DEEPSPEED },
	{ "litgpt", FO_MEMORY_BY_TORCH },
	{ "flatout", FO_MEMORY_BY_FLATOUT },
};

/* A Hugging Face or accelerate job hands its states to DeepSpeed where the configuration has what only DeepSpeed
 * knows. */
enum fo_memory_keeper fo_job_keeper_of(const struct fo_job *job)
{
	enum fo_memory_keeper keeper = FO_MEMORY_BY_ANY;
	for (size_t i = 0; job->form && i < sizeof keeper_of_form / sizeof *keeper_of_form; i++)
		if (!strncasecmp(job->form->id, keeper_of_form[i].id, strlen(keeper_of_form[i].id)))
			keeper = keeper_of_form[i].keeper;
	double zero = fo_job_number(job, FO_JOB_ZERO);
	bool fsdp = fo_job_known(job, FO_JOB_FSDP_VERSION);
	bool deepspeed = (!fsdp && (zero == 1 || zero == 2)) || fo_job_known(job, FO_JOB_LIVE_PARAMS) ||
			 fo_job_known(job, FO_JOB_REUSE_DISTANCE);
	if (keeper == FO_MEMORY_BY_TORCH && deepspeed)
		keeper = FO_MEMORY_BY_DEEPSPEED;
	return keeper;
}

double fo_job_zero(const struct fo_job *job, const struct fo_job_shape *s)
{
	double zero = fo_job_number(job, FO_JOB_ZERO);
	/* FSDP that keeps gathered weights until backward gathers them for every micro-batch all the same. */
	if (zero == 2 && fo_job_known(job, FO_JOB_FSDP_VERSION))
		zero = 3;
	if (s->dp * s->cp == 1)
		return isnan(zero) ? 0 : zero; /* FSDP on one device keeps its ways, ZeRO its states apart */
	return isnan(zero) && s->shard > 1 ? 3 : zero;
}

/* ---- recomputation ---- */

/* The option names Megatron's modules. */
static unsigned modules_of(const char *option)
{
	unsigned of = 0;
	of |= strstr(option, "layernorm") ? FO_PREDICT_AGAIN_NORM : 0;
	of |= strstr(option, "moe_act") ? FO_PREDICT_AGAIN_ACTIVATION : 0;
	of |= strstr(option, "mla_up_proj") ? FO_PREDICT_AGAIN_UP : 0;
	of |= strstr(option, "mlp") ? FO_PREDICT_AGAIN_FFN : 0;
	of |= strstr(option, "moe") && !strstr(option, "moe_act") ? FO_PREDICT_AGAIN_EXPERTS : 0;
	return of;
}

struct fo_job_recompute fo_job_recompute_of(const struct fo_job *job)
{
	struct fo_job_recompute r = { .mode = FO_JOB_AGAIN_UNKNOWN, .share = 1 };
	const char *option = job->value[FO_JOB_RECOMPUTE_OPTION].text;
	double n = fo_job_number(job, FO_JOB_RECOMPUTE_LAYERS), mode = fo_job_number(job, FO_JOB_RECOMPUTE);
	option = option ? option : "";
	if (isnan(mode))
		return r;
	if (mode == FO_JOB_RECOMPUTE_NONE)
		r.mode = FO_JOB_AGAIN_NONE;
	r.offload = mode == FO_JOB_RECOMPUTE_OFFLOAD;
	if (r.offload)
		r.mode = FO_JOB_AGAIN_NONE;
	if (mode == FO_JOB_RECOMPUTE_FULL) {
		r.mode = FO_JOB_AGAIN_FULL;
		if (n > 0 && job->has_model)
			r.share = fmin(1, n / (double)job->model.layers);
	}
	if (mode != FO_JOB_RECOMPUTE_SELECTIVE)
		return r;
	bool torchtitan = job->form && !strncmp(job->form->id, "torchtitan", strlen("torchtitan"));
	char *end;
	double nth = strtod(option, &end);
	if (end != option && nth >= 1) {
		r.mode = FO_JOB_AGAIN_NTH;
		r.share = 1 / nth;
	} else if (!strcmp(option, "op") || (!*option && torchtitan))
		r.mode = FO_JOB_AGAIN_EVERY_OP;
	else if (fo_job_keeper_of(job) != FO_MEMORY_BY_TORCH) {
		r.mode = FO_JOB_AGAIN_CORE;
		/* "uniform" and "block" are ways of full recomputation and say nothing of modules. */
		bool way = !strcmp(option, "uniform") || !strcmp(option, "block");
		r.core = !*option || way || strstr(option, "core_attn");
		r.modules = modules_of(option);
	}
	return r;
}

/* ---- fusion ---- */

static enum fo_memory_said said(const struct fo_job *job, enum fo_job_setting s)
{
	double v = fo_job_number(job, s);
	if (isnan(v))
		return FO_MEMORY_NOT_SAID;
	return v != 0 ? FO_MEMORY_YES : FO_MEMORY_NO;
}

/* How far norms, rotations and activations are not fused; and the loss. */
static void fusion(const struct fo_job *job, struct fo_memory_ways *w)
{
	static const enum fo_job_setting part[] = { FO_JOB_FUSED_NORM, FO_JOB_FUSED_ROPE, FO_JOB_FUSED_ACTIVATION };
	bool fuses = w->keeper == FO_MEMORY_BY_MEGATRON || w->keeper == FO_MEMORY_BY_FLATOUT;
	struct fo_range otherwise = { 0, 1 };
	if (w->keeper != FO_MEMORY_BY_ANY)
		otherwise = fuses ? fo_range(0) : fo_memory_plain;
	w->unfused = (struct fo_range){ INFINITY, 0 };
	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		enum fo_memory_said on = said(job, part[i]);
		struct fo_range r = on == FO_MEMORY_YES ? fo_range(0) : otherwise;
		if (on == FO_MEMORY_NO)
			r = fo_memory_plain;
		w->unfused.low = fmin(w->unfused.low, r.low);
		w->unfused.high = fmax(w->unfused.high, r.high);
	}
	w->compiled = fo_job_is(job, FO_JOB_COMPILE, 1);
	if (w->compiled)
		w->unfused = fo_range(0);
	w->loss_fused = said(job, FO_JOB_COMPILE_LOSS);
	if (w->loss_fused == FO_MEMORY_NOT_SAID && w->keeper != FO_MEMORY_BY_ANY)
		w->loss_fused = fuses ? FO_MEMORY_YES : FO_MEMORY_NO;
}

/* ---- types ---- */

static struct fo_range moments_of(const struct fo_job *job, enum fo_memory_keeper keeper)
{
	double type = fo_job_number(job, FO_JOB_MOMENTS);
	const char *name = job->value[FO_JOB_OPTIMIZER].text;
	/* PyTorch's optimizers make moments of the weight's own type. */
	bool bf16 = keeper == FO_MEMORY_BY_TORCH && fo_job_is(job, FO_JOB_PARAM_DTYPE, FO_JOB_BF16);
	double each = isnan(type) && bf16 ? 2 : 4;
	if (type == FO_JOB_BF16)
		each = 2;
	if (type == FO_JOB_FP16) /* third word: 8bit, with a scale for each 256 */
		each = 1 + 4 / 256.;
	name = name ? name : "";
	if (strcasestr(name, "8bit"))
		each = 1 + 4 / 256.;
	if (strcasestr(name, "adafactor"))
		return (struct fo_range){ 0, each };
	if (strcasestr(name, "muon")) /* one moment of matrices, two of the rest */
		return (struct fo_range){ each, 1.3 * each };
	if (strcasestr(name, "sgd") || strcasestr(name, "lion"))
		return (struct fo_range){ strcasestr(name, "lion") ? each : 0, each };
	return fo_range(2 * each);
}

/* Bytes of a kept gradient where a file or a recipe says it; 0: as the keeper does. */
static struct fo_range gradient_of(const struct fo_job *job, enum fo_memory_keeper keeper)
{
	double kept = fo_job_number(job, FO_JOB_GRAD_ACCUMULATE);
	const char *id = job->form ? job->form->id : "";
	/* DeepSpeed's BF16_Optimizer keeps bf16 gradients beside their fp32 sums. */
	if (keeper == FO_MEMORY_BY_DEEPSPEED && kept == FO_JOB_FP32)
		return fo_range(6);
	if (!isnan(kept))
		return fo_range(fo_job_bytes_of(kept));
	/* NVIDIA's recipes have bf16 gradients, Megatron Core's default is fp32. */
	if (!strncmp(id, "nemo", 4) || !strncmp(id, "bridge", 6) || !strcmp(id, "megatron-bridge"))
		return (struct fo_range){ 2, 4 };
	return (struct fo_range){ 0, 0 };
}

/* Bytes of a frozen weight of a linear layer; 0: not known. */
static struct fo_range frozen_of(const struct fo_job *job)
{
	double bits = fo_job_number(job, FO_JOB_BASE_BITS);
	/* nf4 has a scale of 32 bits for each 64 weights, 8 bits where the scales are quantised again (Dettmers et al.
	 * 2023, section 3); AWQ and GPTQ 16 bits and a zero point for each 128. */
	if (bits == 4)
		return (struct fo_range){ 4.125 / 8, 4.5 / 8 };
	if (bits == 8)
		return (struct fo_range){ 1, 1.02 };
	if (bits == 16)
		return fo_range(2);
	return (struct fo_range){ 0, 0 };
}

void fo_job_ways_of(const struct fo_job *job, struct fo_memory_ways *w)
{
	const enum fo_memory_keeper keeper = fo_job_keeper_of(job);
	double bucket = fo_job_number(job, FO_JOB_BUCKET_BYTES), rank = fo_job_number(job, FO_JOB_ADAPTER_RANK);
	*w = (struct fo_memory_ways){
		.known = true,
		.keeper = keeper,
		.full = fo_job_is(job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32),
		.half = fo_job_is(job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16),
		.small = fo_job_or(job, FO_JOB_FP8, 0) > 0,
		.small_gathers = fo_job_is(job, FO_JOB_FP8_GATHER, 1),
		.master = fo_job_bytes_of(fo_job_or(job, FO_JOB_PARAM_DTYPE, FO_JOB_FP32)),
		.reduce = fo_job_bytes_of(fo_job_or(job, FO_JOB_GRAD_REDUCE, FO_JOB_FP32)),
		.moments = moments_of(job, keeper),
		.gradient = gradient_of(job, keeper),
		.in_backward = fo_job_is(job, FO_JOB_OPTIMIZER_IN_BACKWARD, 1),
		.offload_states = fo_job_is(job, FO_JOB_OFFLOAD_OPTIMIZER, 1),
		.offload_weights = fo_job_is(job, FO_JOB_OFFLOAD_PARAMS, 1),
		.offload_activations = fo_job_is(job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_OFFLOAD),
		.bucket = bucket > 0 ? bucket : 0,
		.live = fmax(0, fo_job_or(job, FO_JOB_LIVE_PARAMS, 0)),
		.sums_fused = said(job, FO_JOB_FUSED_GRAD_ACCUMULATION),
		.optimizer_fused = said(job, FO_JOB_OPTIMIZER_FUSED),
		.sdpa = fo_job_is(job, FO_JOB_ATTENTION, FO_JOB_ATTENTION_SDPA),
		.dropout = fo_job_or(job, FO_JOB_DROPOUT, 0) > 0,
		.scores = fo_job_is(job, FO_JOB_ATTENTION, FO_JOB_ATTENTION_EAGER),
		.rows_vary = fo_job_is(job, FO_JOB_ROWS_VARY, 1),
		.adapters = fo_job_adapters(job),
		.adapters_whole = job->value[FO_JOB_ADAPTER_WHOLE].text,
		.frozen = frozen_of(job),
	};
	const char *master = job->value[FO_JOB_PARAM_DTYPE].text;
	if (master && !strcmp(master, "split")) /* the low half beside a bf16 weight */
		w->weight = fo_range(2), w->optimizer = fo_range_plus(fo_range(2), w->moments);
	if (rank >= 1 && (!job->has_model || rank <= (double)job->model.hidden))
		w->rank = fo_range(rank);
	fusion(job, w);
}
