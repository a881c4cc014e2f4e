/* The settings of a division for each framework that can run it. Names and releases: forms_*.c of src/job has the same
 * keys and their sources. */
#include "plan/settings.h"

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

/* Layers of a stage that are computed again; 0: none or all. */
static double layers_again(const struct said *s)
{
	static const double share[FO_PLAN_AGAINS] = {
		[FO_PLAN_AGAIN_QUARTER] = .25, [FO_PLAN_AGAIN_HALF] = .5, [FO_PLAN_AGAIN_MOST] = .75
	};
	return round(share[s->again] * s->a->base.job.model.layers / s->l->pp);
}

static bool small(const struct said *s)
{
	return s->a->base.job.type == FO_PREDICT_FP8 || s->a->base.job.type == FO_PREDICT_MXFP8;
}

static void flatout(const struct said *s)
{
	const struct fo_predict_layout *l = s->l;
	fo_str_printf(s->out, "model:\n  name: %s\ndata:\n  seq: %.0f\ntrain:\n  rows: %.0f\n  micro-batches: %.0f\n",
		      s->model, s->a->base.job.seq, l->micro_batch * s->dp, l->micro_batches);
	fo_str_printf(s->out, "mesh:\n  ranks: %.0f\n  tp: %.0f\n  cp: %.0f\n", l->devices, l->tp, l->cp);
	if (l->zero > 0)
		fo_str_printf(s->out, "  shard: %.0f\n", l->cp > 1 ? sharers(s) / l->cp : sharers(s));
	fo_str_printf(s->out, "pass:\n");
	if (l->zero > 0)
		fo_str_printf(s->out, "  zero: %.0f\n", l->zero);
	if (l->tp > 1)
		fo_str_printf(s->out, "  tp-sequence: %s\n", l->sp ? "yes" : "no");
	fo_str_printf(s->out, "  recompute: %s\n", s->again == FO_PLAN_AGAIN_NONE ? "none" : "full");
	if (layers_again(s) > 0)
		fo_str_printf(s->out, "  recompute-layers: %.0f\n", layers_again(s));
	if (small(s))
		fo_str_puts(s->out, "  fp8: tensorwise\n");
}

static void torchtitan(const struct said *s)
{
	const struct fo_predict_layout *l = s->l;
	static const char *const again[FO_PLAN_AGAINS] = {
		[FO_PLAN_AGAIN_NONE] = "none", [FO_PLAN_AGAIN_OP] = "selective", [FO_PLAN_AGAIN_FULL] = "full"
	};
	static const char *const model[][2] = { { "llama-3.1-8b", "8B" },
						{ "llama-3.1-70b", "70B" },
						{ "llama-3.1-405b", "405B" } };
	double shard = l->zero >= 3 ? sharers(s) / l->cp : 1;
	for (size_t i = 0; i < sizeof model / sizeof *model; i++)
		if (!strcmp(s->model, model[i][0]))
			fo_str_printf(s->out, "[model]\nname = \"llama3\"\nflavor = \"%s\"\n\n", model[i][1]);
	fo_str_printf(s->out, "[training]\nseq_len = %.0f\nlocal_batch_size = %.0f\nglobal_batch_size = %.0f\n",
		      s->a->base.job.seq, l->pp > 1 ? l->micro_batch * l->micro_batches : l->micro_batch,
		      l->global_batch);
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
		fo_str_puts(s->out, "--sequence-parallel\n");
	if (l->chunks > 1)
		fo_str_printf(s->out, "--num-virtual-stages-per-pipeline-rank %.0f\n", l->chunks);
	if (l->ep > 1)
		fo_str_printf(s->out, "--expert-model-parallel-size %.0f\n", l->ep);
	if (l->zero >= 1)
		fo_str_puts(s->out, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather\n");
	else if (s->ranks > 1)
		fo_str_puts(s->out, "--overlap-grad-reduce\n");
	if (layers_again(s) > 0)
		fo_str_printf(s->out,
			      "--recompute-granularity full --recompute-method block --recompute-num-layers %.0f\n",
			      layers_again(s));
	else if (s->again == FO_PLAN_AGAIN_FULL)
		fo_str_puts(s->out,
			    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1\n");
	fo_str_printf(s->out, "--bf16%s\n", small(s) ? " --fp8-format hybrid" : "");
}

static void deepspeed(const struct said *s)
{
	const struct fo_predict_layout *l = s->l;
	fo_str_printf(s->out,
		      "{\n  \"train_batch_size\": %.0f,\n  \"train_micro_batch_size_per_gpu\": %.0f,\n"
		      "  \"gradient_accumulation_steps\": %.0f,\n  \"bf16\": {\"enabled\": true},\n"
		      "  \"zero_optimization\": {\"stage\": %.0f, \"overlap_comm\": true",
		      l->global_batch, l->micro_batch, l->micro_batches, l->zero);
	fo_str_puts(s->out, "}\n}\n");
}

bool fo_plan_settings(enum fo_plan_words w, const struct fo_plan_asked *a, const struct fo_plan_point *p,
		      const char *model, struct fo_str *out, const char **why)
{
	static void (*const write[FO_PLAN_WORDS])(const struct said *) = { flatout, torchtitan, megatron, deepspeed };
	const struct fo_plan_framework *f = fo_plan_framework_of(fo_plan_words_id[w]);
	struct fo_plan_asked other = *a;
	other.framework = f;
	*why = fo_plan_illegal(&other, &p->layout);
	if (!*why && !(f->again & 1u << p->again))
		*why = "the framework has no such recomputation";
	if (*why)
		return false;
	double dp = p->layout.devices / (p->layout.tp * p->layout.cp * p->layout.pp);
	write[w](&(struct said){ a, &p->layout, p->again, dp, dp * p->layout.cp, model, out });
	return true;
}
