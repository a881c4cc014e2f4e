/* The settings of a division for each framework that can run it. Names and releases: forms_*.c of src/job has the same
 * keys and their sources. */
#include "plan/settings.h"

#include "predict/division.h"
#include "program/program.h"
#include "program/run.h"

#include <math.h>
#include <string.h>

const char *const fo_plan_words_id[FO_PLAN_WORDS] = { "flatout", "torchtitan", "megatron", "deepspeed" };
const char *const fo_plan_words_title[FO_PLAN_WORDS] = { "run.yaml", "torchtitan (TOML)", "Megatron-LM (arguments)",
							 "DeepSpeed (JSON)" };

struct said {
	const struct fo_plan_asked *a;
	const struct fo_predict_layout *l;
	enum fo_plan_again again;
	double dp, ranks; /* data-parallel ranks; with those of cp */
	const char *model;
	struct fo_str *out;
};

static double sharers(const struct said *s) { return s->l->shard > 0 ? s->l->shard : s->ranks; }

/* Layers of a chunk of a stage that are computed again, or the model's first ones; 0: none or all. */
static double layers_again(const struct said *s)
{
	const double stages = s->l->again_stages, layers = s->a->base.job.model.layers;
	if (stages > 0)
		return stages * layers / s->l->pp;
	bool part = s->again >= FO_PLAN_AGAIN_QUARTER && s->again <= FO_PLAN_AGAIN_MOST;
	return part ? round(s->l->recompute * ceil(s->a->base.job.model.layers / (s->l->pp * s->l->chunks))) : 0;
}

static enum fo_predict_type type_of(const struct said *s) { return fo_predict_type_of(&s->a->base.job, s->l); }
static enum fo_predict_format format_of(const struct said *s) { return fo_predict_format_of(&s->a->base.job, s->l); }
static bool half(const struct fo_plan_asked *a, const struct fo_predict_layout *l)
{
	return a->half && fo_predict_type_of(&a->base.job, l) == FO_PREDICT_BF16;
}

/* Layers of each stage as plan counts them, for by itself Flatout would balance stages by its own rates: the first ones
 * have one more, or the ends have their own. */
static void flatout_stages(const struct said *s)
{
	const struct fo_predict_layout *l = s->l;
	const struct fo_predict_uneven *u = &l->uneven;
	const double parts = l->pp * l->chunks, layers = s->a->base.job.model.layers;
	if (!(l->pp > 1))
		return;
	fo_str_printf(s->out, "  pp: %.0f\n  pp-layers: ", l->pp);
	const bool listed = (fmod(layers, parts) > 0 || fo_predict_is_uneven(u)) && parts <= FO_STAGING_MOST;
	for (int i = 0; i < parts && listed; i++)
		fo_str_printf(s->out, "%s%.0f", i ? "," : "", fo_predict_stage_layers(u, layers, parts, i));
	fo_str_puts(s->out, listed ? "\n" : "even\n");
}

static void flatout(const struct said *s)
{
	const struct fo_predict_layout *l = s->l;
	fo_str_printf(s->out, "model:\n  name: %s\ndata:\n  seq: %.0f\ntrain:\n  rows: %.0f\n  micro-batches: %.0f\n",
		      s->model, s->a->base.job.seq, l->micro_batch * s->dp, l->micro_batches);
	if (type_of(s) == FO_PREDICT_FP32)
		fo_str_puts(s->out, "  precision: fp32\n");
	fo_str_printf(s->out, "mesh:\n  ranks: %.0f\n  tp: %.0f\n  cp: %.0f\n", l->devices, l->tp, l->cp);
	if (l->zero > 0)
		fo_str_printf(s->out, "  shard: %.0f\n", l->cp > 1 ? sharers(s) / l->cp : sharers(s));
	flatout_stages(s);
	fo_str_printf(s->out, "pass:\n");
	if (l->pp > 1)
		fo_str_printf(s->out, "  pp: %s\n", fo_pp_name[fo_predict_pp_kind(l)]);
	if (l->chunks > 1)
		fo_str_printf(s->out, "  pp-chunks: %.0f\n", l->chunks);
	if (l->zero > 0)
		fo_str_printf(s->out, "  zero: %.0f\n", l->zero);
	if (l->keeps_weights)
		fo_str_puts(s->out, "  zero-reshard: backward\n");
	if (l->tp > 1)
		fo_str_printf(s->out, "  tp-sequence: %s\n", l->sp ? "yes" : "no");
	if (l->tp > 1 && l->sp && l->tp_overlap <= 0)
		fo_str_puts(s->out, "  tp-async: 0\n");
	fo_str_printf(s->out, "  recompute: %s\n", s->again == FO_PLAN_AGAIN_NONE ? "none" : "full");
	if (layers_again(s) > 0)
		fo_str_printf(s->out, "  recompute-layers: %.0f\n", layers_again(s));
	if (type_of(s) == FO_PREDICT_FP8)
		fo_str_puts(s->out, "  fp8: current\n");
	static const char *const state[FO_PREDICT_FORMATS] = {
		[FO_PREDICT_FORMAT_SPLIT] = "optim:\n  master: split\n",
		[FO_PREDICT_FORMAT_BF16] = "optim:\n  moments: bf16\n",
		[FO_PREDICT_FORMAT_ALL_BF16] = "optim:\n  master: none\n  moments: bf16\n",
	};
	if (state[format_of(s)])
		fo_str_puts(s->out, state[format_of(s)]);
}

/* torchtitan 0.3 takes arguments of a configuration that it has; types of matmuls are part of it. NULL: it has none. */
static const char *titan_config(const struct said *s)
{
	static const struct {
		const char *model;
		enum fo_predict_type type;
		const char *config;
	} of[] = { { "llama-3.1-8b", FO_PREDICT_BF16, "llama3_8b" },
		   { "llama-3.1-8b", FO_PREDICT_MXFP8, "llama3_8b_mxfp8" },
		   { "llama-3.1-70b", FO_PREDICT_BF16, "llama3_70b" },
		   { "llama-3.1-405b", FO_PREDICT_FP8, "llama3_405b" } };
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		if (!strcmp(s->model, of[i].model) && type_of(s) == of[i].type)
			return of[i].config;
	return NULL;
}

/* A comment of the file: the same division as arguments. */
static void titan_arguments(const struct said *s, double shard, const char *again)
{
	const struct fo_predict_layout *l = s->l;
	const char *config = titan_config(s);
	fo_str_puts(s->out, "# torchtitan 0.2 reads this file. ");
	if (!config) {
		fo_str_puts(s->out, "0.3 has no configuration of this model in this number type.\n");
		return;
	}
	fo_str_printf(
		s->out,
		"0.3 takes arguments:\n# --module llama3 --config %s --training.seq-len %.0f\n"
		"# --training.local-batch-size %.0f --training.global-batch-size %.0f\n"
		"# --parallelism.data-parallel-replicate-degree %.0f --parallelism.data-parallel-shard-degree %.0f\n"
		"# --parallelism.tensor-parallel-degree %.0f --parallelism.context-parallel-degree %.0f\n",
		config, s->a->base.job.seq, l->pp > 1 ? l->micro_batch * l->micro_batches : l->micro_batch,
		l->global_batch, s->dp / shard, shard, l->tp, l->cp);
	if (l->zero >= 3)
		fo_str_printf(s->out, "# --parallelism.fsdp-reshard-after-forward %s\n",
			      l->keeps_weights ? "never" : "always");
	fo_str_printf(s->out, "# --parallelism.pipeline-parallel-degree %.0f", l->pp);
	if (l->pp > 1 || l->ep > 1) /* its CUDA graphs take neither */
		fo_str_puts(s->out, " --training.disable-cuda-graphs");
	if (l->pp > 1)
		fo_str_printf(s->out,
			      " --parallelism.pipeline-parallel-schedule %s\n"
			      "# --parallelism.pipeline-parallel-microbatch-size %.0f",
			      l->chunks > 1 ? "Interleaved1F1B" : "1F1B", l->micro_batch);
	if (format_of(s) == FO_PREDICT_FORMAT_ALL_BF16)
		fo_str_puts(s->out, " --training.dtype bfloat16");
	fo_str_printf(s->out, "\n# --compile.enable%s activation-checkpoint:%s\n",
		      l->tp_overlap > 0 ? " --compile.enable-async-tensor-parallel" : "", again);
}

/* The flavor that src/job reads as this preset. */
static void titan_model(const struct said *s)
{
	static const char *const of[][3] = {
		{ "llama-3.1-8b", "llama3", "8B" },
		{ "llama-3.1-70b", "llama3", "70B" },
		{ "llama-3.1-405b", "llama3", "405B" },
		{ "llama-2-7b", "llama2", "7B" },
		{ "llama-2-13b", "llama2", "13B" },
		{ "llama-2-70b", "llama2", "70B" },
		{ "deepseek-v3", "deepseek_v3", "671B" },
		{ "qwen3-0.6b", "qwen3", "0.6B" },
		{ "qwen3-4b", "qwen3", "4B" },
		{ "qwen3-8b", "qwen3", "8B" },
		{ "qwen3-14b", "qwen3", "14B" },
		{ "qwen3-32b", "qwen3", "32B" },
		{ "qwen3-30b-a3b", "qwen3", "30B-A3B" },
		{ "llama-4-scout", "llama4", "17bx16e" },
	};
	fo_str_puts(s->out, "[model]\n");
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		if (!strcmp(s->model, of[i][0])) {
			fo_str_printf(s->out, "name = \"%s\"\nflavor = \"%s\"\n", of[i][1], of[i][2]);
			return;
		}
	fo_str_puts(s->out, "# torchtitan has no flavor of this model that plan knows: its name and flavor go here.\n");
}

static void torchtitan(const struct said *s)
{
	const struct fo_predict_layout *l = s->l;
	static const char *const again[FO_PLAN_AGAINS] = {
		[FO_PLAN_AGAIN_NONE] = "none", [FO_PLAN_AGAIN_OP] = "selective", [FO_PLAN_AGAIN_FULL] = "full"
	};
	double shard = l->zero >= 3 ? sharers(s) / l->cp : 1;
	titan_arguments(s, shard, again[s->again]);
	titan_model(s);
	/* The head keeps its precision, as it does in the prediction. */
	if (type_of(s) == FO_PREDICT_FP8)
		fo_str_puts(s->out, "converters = [\"quantize.linear.float8\"]\n\n[quantize.linear.float8]\n"
				    "filter_fqns = [\"output\"]\n");
	else if (type_of(s) == FO_PREDICT_MXFP8)
		fo_str_puts(s->out, "converters = [\"quantize.linear.mx\"]\n\n[quantize.linear.mx]\n"
				    "recipe_name = \"mxfp8_cublas\"\nfilter_fqns = [\"output\"]\n");
	fo_str_puts(s->out, "\n[training]\n");
	if (format_of(s) == FO_PREDICT_FORMAT_ALL_BF16)
		fo_str_puts(s->out, "dtype = \"bfloat16\"\n");
	if (type_of(s) == FO_PREDICT_FP32)
		fo_str_puts(s->out, "mixed_precision_param = \"float32\"\n");
	fo_str_printf(s->out, "seq_len = %.0f\nlocal_batch_size = %.0f\nglobal_batch_size = %.0f\n", s->a->base.job.seq,
		      l->pp > 1 ? l->micro_batch * l->micro_batches : l->micro_batch, l->global_batch);
	fo_str_printf(
		s->out,
		"\n[parallelism]\ndata_parallel_replicate_degree = %.0f\ndata_parallel_shard_degree = %.0f\n"
		"tensor_parallel_degree = %.0f\ncontext_parallel_degree = %.0f\npipeline_parallel_degree = %.0f\n",
		s->dp / shard, shard, l->tp, l->cp, l->pp);
	if (l->pp > 1) {
		const char *schedule = l->chunks > 1 ? "Interleaved1F1B" : "1F1B";
		fo_str_printf(s->out, "pipeline_parallel_schedule = \"%s\"\npipeline_parallel_microbatch_size = %.0f\n",
			      schedule, l->micro_batch);
	}
	if (l->ep > 1)
		fo_str_printf(s->out, "expert_parallel_degree = %.0f\n", l->ep);
	/* Said in any case: what it does unless told depends on the pipeline. */
	if (l->zero >= 3)
		fo_str_printf(s->out, "fsdp_reshard_after_forward = \"%s\"\n", l->keeps_weights ? "never" : "always");
	if (l->tp_overlap > 0)
		fo_str_puts(s->out, "enable_async_tensor_parallel = true\n");
	fo_str_printf(s->out, "\n[activation_checkpoint]\nmode = \"%s\"\n", again[s->again]);
	if (s->again == FO_PLAN_AGAIN_OP)
		fo_str_puts(s->out, "selective_ac_option = \"op\"\n");
	fo_str_puts(s->out, "\n[compile]\nenable = true\ncomponents = [\"model\", \"loss\"]\n");
}

static void megatron(const struct said *s)
{
	const struct fo_predict_layout *l = s->l;
	fo_str_printf(
		s->out,
		"--seq-length %.0f --micro-batch-size %.0f --global-batch-size %.0f\n"
		"--tensor-model-parallel-size %.0f --pipeline-model-parallel-size %.0f --context-parallel-size %.0f\n",
		s->a->base.job.seq, l->micro_batch, l->global_batch, l->tp, l->pp, l->cp);
	if (l->sp)
		fo_str_printf(s->out, "--sequence-parallel%s\n", l->tp_overlap > 0 ? " --tp-comm-overlap" : "");
	if (l->stages_near)
		fo_str_puts(s->out, "--use-tp-pp-dp-mapping\n");
	if (l->chunks > 1)
		fo_str_printf(s->out, "--num-virtual-stages-per-pipeline-rank %.0f\n", l->chunks);
	/* Experts are whole in the prediction; its own default cuts them by tensor parallelism. */
	if (s->a->base.job.model.experts > 0 && (l->ep > 1 || l->tp > 1))
		fo_str_printf(s->out, "--expert-model-parallel-size %.0f --expert-tensor-parallel-size 1\n", l->ep);
	if (l->zero >= 1)
		fo_str_puts(s->out, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather\n");
	else if (s->ranks > 1)
		fo_str_puts(s->out, "--overlap-grad-reduce\n");
	static const char *const moments[FO_PREDICT_FORMATS] = {
		[FO_PREDICT_FORMAT_BF16] = "bf16", [FO_PREDICT_FORMAT_8BIT] = "fp8"
	};
	if (moments[format_of(s)])
		fo_str_printf(s->out, "--use-precision-aware-optimizer --exp-avg-dtype %s --exp-avg-sq-dtype %s\n",
			      moments[format_of(s)], moments[format_of(s)]);
	if (layers_again(s) > 0)
		fo_str_printf(s->out,
			      "--recompute-granularity full --recompute-method block --recompute-num-layers %.0f\n",
			      layers_again(s));
	else if (s->again == FO_PLAN_AGAIN_FULL)
		fo_str_puts(s->out,
			    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1\n");
	struct fo_plan_asked own = *s->a;
	own.framework = fo_plan_framework_of("megatron");
	if (fo_plan_accounts(&own, l))
		fo_str_puts(s->out, "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split\n");
	static const char *const type[FO_PREDICT_TYPES] = {
		[FO_PREDICT_BF16] = "--bf16\n",
		[FO_PREDICT_FP8] = "--bf16 --fp8-format hybrid\n",
		[FO_PREDICT_MXFP8] = "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8\n",
		[FO_PREDICT_FP4] = "--bf16 --fp4-format e2m1\n",
		[FO_PREDICT_FP32] = "", /* what it does unless told */
	};
	fo_str_puts(s->out, half(s->a, s->l) ? "--fp16\n" : type[type_of(s)]);
}

static void deepspeed(const struct said *s)
{
	const struct fo_predict_layout *l = s->l;
	const bool small = format_of(s) == FO_PREDICT_FORMAT_ALL_BF16;
	const char *type = type_of(s) == FO_PREDICT_FP32 ? "" : "  \"bf16\": {\"enabled\": true},\n";
	if (small)
		type = "  \"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true, "
		       "\"bf16_optimizer_states\": true},\n";
	if (half(s->a, s->l))
		type = "  \"fp16\": {\"enabled\": true},\n";
	fo_str_printf(s->out,
		      "{\n  \"train_batch_size\": %.0f,\n  \"train_micro_batch_size_per_gpu\": %.0f,\n"
		      "  \"gradient_accumulation_steps\": %.0f,\n%s"
		      "  \"zero_optimization\": {\"stage\": %.0f, \"overlap_comm\": true",
		      l->global_batch, l->micro_batch, l->micro_batches, type, l->zero);
	fo_str_puts(s->out, "}\n}\n");
}

/* ---- what settings cannot say ---- */

static const char *type_missing(const struct fo_plan_framework *f, const struct fo_plan_asked *a,
				const struct fo_predict_layout *l)
{
	static const char *const why[] = {
		[FO_PREDICT_BF16] = "its settings cannot state bf16",
		[FO_PREDICT_FP8] = "its settings cannot state fp8",
		[FO_PREDICT_MXFP8] = "its settings cannot state mxfp8",
		[FO_PREDICT_FP4] = "its settings cannot state fp4",
		[FO_PREDICT_TF32] = "its settings cannot state tf32",
		[FO_PREDICT_FP32] = "its settings cannot state fp32",
		[FO_PLAN_HALF] = "its settings cannot state fp16",
	};
	const int type = half(a, l) ? FO_PLAN_HALF : (int)fo_predict_type_of(&a->base.job, l);
	return f->types & 1u << type ? NULL : why[type];
}

static const char *format_missing(const struct fo_plan_framework *f, enum fo_predict_format format)
{
	static const char *const why[FO_PREDICT_FORMATS] = {
		[FO_PREDICT_FORMAT_SPLIT] = "its settings cannot state split masters",
		[FO_PREDICT_FORMAT_BF16] = "its settings cannot state moments in bf16 beside masters in fp32",
		[FO_PREDICT_FORMAT_8BIT] = "its settings cannot state moments in 8 bits",
		[FO_PREDICT_FORMAT_ALL_BF16] = "its settings cannot state bf16 weights without masters",
	};
	return f->formats & 1u << format ? NULL : why[format];
}

static const char *again_missing(const struct fo_plan_framework *f, double pp, enum fo_plan_again again)
{
	static const char *const why[FO_PLAN_AGAINS] = {
		[FO_PLAN_AGAIN_NONE] = "it always recomputes",
		[FO_PLAN_AGAIN_OP] = "it has no recomputation of every second product",
		[FO_PLAN_AGAIN_QUARTER] = "it cannot recompute a part of the layers",
		[FO_PLAN_AGAIN_HALF] = "it cannot recompute a part of the layers",
		[FO_PLAN_AGAIN_MOST] = "it cannot recompute a part of the layers",
		[FO_PLAN_AGAIN_FULL] = "it has no full recomputation",
		[FO_PLAN_AGAIN_FRONT] = "it recomputes alike in all stages",
	};
	if (f->again & 1u << again && !(fo_plan_agains_of(f, pp) & 1u << again))
		return "it cannot recompute a part of each stage's layers";
	return f->again & 1u << again ? NULL : why[again];
}

/* A division that was planned for one framework may not fit with the habits of another; Megatron Bridge's division is
 * one of Megatron-LM, its habits are not. */
static const char *fit_missing(const struct fo_plan_framework *f, const struct fo_plan_asked *a,
			       const struct fo_predict_layout *l)
{
	struct fo_predict_step s;
	struct fo_predict_base b;
	struct fo_predict_job job = a->base.job;
	/* Its arguments are read as Megatron-LM's, whose habits are not those of Megatron Core's recipes. */
	const bool megatron = !strcmp(f->id, "megatron");
	const enum fo_predict_style_id style = fo_predict_style_of(megatron ? "megatron-lm" : f->id);
	if (f == a->framework && job.style == style)
		return NULL;
	job.style = style;
	job.ways.known = false; /* its own ways, not those of the file */
	const char *wrong = fo_predict_prepare(&job, &b);
	if (wrong)
		return wrong;
	fo_predict_memory_of(&b, l, &s);
	return s.wrong || fo_predict_upper_bytes(&s) <= fo_plan_room(a)
		       ? s.wrong
		       : "with its habits it may not fit; --framework plans for it";
}

bool fo_plan_settings(enum fo_plan_words w, const struct fo_plan_asked *a, const struct fo_plan_point *p,
		      const struct fo_model *model, struct fo_str *out, const char **why)
{
	static void (*const write[FO_PLAN_WORDS])(const struct said *) = { flatout, torchtitan, megatron, deepspeed };
	const struct fo_plan_framework *f = fo_plan_framework_of(fo_plan_words_id[w]);
	struct fo_plan_asked other = *a;
	struct fo_predict_layout l = p->layout;
	other.framework = f;
	/* Split masters are fp32 masters where a framework has none: the same numbers, if they fit. */
	if (fo_predict_format_of(&a->base.job, &l) == FO_PREDICT_FORMAT_SPLIT &&
	    !(f->formats & 1u << FO_PREDICT_FORMAT_SPLIT))
		l.format = FO_PREDICT_FORMAT_FP32;
	*why = type_missing(f, a, &l);
	if (!*why)
		*why = format_missing(f, fo_predict_format_of(&a->base.job, &l));
	if (!*why)
		*why = fo_plan_illegal(&other, &l);
	if (!*why)
		*why = again_missing(f, p->layout.pp, p->again);
	if (!*why)
		*why = fit_missing(f, a, &l);
	if (!*why && w == FO_PLAN_WORDS_FLATOUT && fo_model_trainable(model) != FO_OK) {
		*why = "Flatout cannot train this model, as it is none of the Llama family";
		fo_err_clear();
	}
	_Static_assert(FO_RUN_RANKS_MOST == 1024, "the number in the sentence");
	if (!*why && w == FO_PLAN_WORDS_FLATOUT && l.devices > FO_RUN_RANKS_MOST)
		*why = "'flatout train' takes at most 1024 ranks";
	if (*why)
		return false;
	double dp = l.devices / (l.tp * l.cp * l.pp);
	write[w](&(struct said){ a, &l, p->again, dp, dp * l.cp, model->name, out });
	return true;
}
