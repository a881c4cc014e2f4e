/* Rules about kernels: what is compiled, fused and replayed. */
#include "audit/config_int.h"

#define TORCH "torchtitan accelerate deepspeed transformers"
#define MEGATRON "megatron nemo"

/* ---- compilation ---- */

static void look_compile(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_COMPILE, 0))
		return;
	bool loss = fo_site_is(s, FO_JOB_COMPILE_LOSS, 0);
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_COMPILE,
		.change = { { FO_JOB_COMPILE, 1 }, { FO_JOB_COMPILE_LOSS, 1 } },
		.changes = loss ? 2 : 1,
		.title = loss ? "Neither the model nor the loss is compiled" : "The model is not compiled",
		.proposed = loss ? "on, for the model and the loss" : "on",
		.why = "Chains of elementwise operations become one kernel each, which reads and writes memory once.",
		.published = { 1.10, 1.20, "torchtitan, Llama-3.1 8B on 8 H100, December 2024: 1.157" },
		.source = "torchtitan, Llama-3.1 8B on 8 H100: 5,762 to 6,667 tokens/s for each device",
	};
	fo_site_propose(s, &p);
}

static bool compiled(const struct fo_site *s) { return !fo_site_is(s, FO_JOB_COMPILE, 0); }

static void look_loss(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_COMPILE_LOSS, 0))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_COMPILE_LOSS,
		.change = { { FO_JOB_COMPILE_LOSS, 1 } },
		.changes = 1,
		.title = "The loss is computed operation by operation",
		.why = "Each operation writes logits of the whole vocabulary; one fused kernel writes them once, "
		       "and frees memory for a larger micro-batch.",
		.source = "Lambda 2026, section 1.3; Megatron-LM, --cross-entropy-loss-fusion"
	};
	fo_site_propose(s, &p);
}

/* ---- attention ---- */

static void look_attention(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_ATTENTION, FO_JOB_ATTENTION_EAGER))
		return;
	static const double kernels[] = { FO_JOB_ATTENTION_SDPA, FO_JOB_ATTENTION_FLASH, FO_JOB_ATTENTION_FUSED };
	struct fo_job_change change = { FO_JOB_ATTENTION, FO_JOB_ATTENTION_FUSED };
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels && !fo_site_form(s, MEGATRON); i++) {
		change.number = kernels[i];
		if (fo_site_settable(s, &change))
			break;
	}
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_ATTENTION,
		.change = { change },
		.changes = 1,
		.title = "Attention writes its scores to memory",
		.why = "Separate matmul, softmax and matmul keep a square of the sequence for every head; a fused "
		       "kernel keeps it on the chip.",
		.source = "Dao et al. 2022 (FlashAttention)",
		.serious = 1.25
	};
	p.always = true;
	fo_site_propose(s, &p);
}

/* FlashAttention-2 reaches little more than half of what Hopper's own kernels do. */
static void look_attention_device(struct fo_site *s)
{
	const struct fo_device *d = s->cluster->device;
	if (!(d->dense[FO_PREC_FP8] > 0) || !fo_site_is(s, FO_JOB_ATTENTION, FO_JOB_ATTENTION_FLEX))
		return;
	fo_site_report(
		s, FO_AUDIT_NOTE, FO_JOB_ATTENTION, "cuDNN or FlashAttention-3, where the mask allows",
		"Flexible attention is slower than the device's own kernels",
		"A mask that is written in Python is compiled to Triton; plain causal masks have faster kernels.",
		"Shah et al. 2024 (FlashAttention-3): 1.5 to 2.0 times FlashAttention-2 on H100");
}

/* ---- fusion ---- */

struct fused {
	enum fo_job_setting setting;
	const char *id, *title, *why, *source;
};
static const struct fused fused[] = {
	{ FO_JOB_FUSED_GRAD_ACCUMULATION, "grad-accumulation-fusion",
	  "Weight gradients are added in a kernel of their own",
	  "Fused, the matmul adds to the gradient as it writes: one read and one write of all gradients less for each "
	  "micro-batch.",
	  "Megatron-LM, gradient_accumulation_fusion" },
	{ FO_JOB_FUSED_ROPE, "rope-fusion", "Rotary positions are applied by several kernels",
	  "A fused kernel reads and writes queries and keys once.", "Megatron-LM, apply_rope_fusion" },
	{ FO_JOB_FUSED_NORM, "norm-fusion", "Norms are computed by several kernels",
	  "A fused kernel reads and writes activations once.", "Transformer Engine 2.x, RMSNorm and LayerNormLinear" },
	{ FO_JOB_FUSED_ACTIVATION, "activation-fusion", "The feed-forward's activation is computed by several kernels",
	  "A fused kernel reads both halves and writes the product once.", "Megatron-LM, bias_swiglu_fusion" },
};

static void look_fused(struct fo_site *s)
{
	const struct fused *f = fused;
	while (f->setting != s->rule->setting[0])
		f++;
	if (!fo_site_is(s, f->setting, 0))
		return;
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE,
				 .setting = f->setting,
				 .change = { { f->setting, 1 } },
				 .changes = 1,
				 .title = f->title,
				 .why = f->why,
				 .source = f->source,
				 .always = true };
	fo_site_propose(s, &p);
}

/* A compiler fuses these by itself. */
static bool not_compiled(const struct fo_site *s) { return !fo_site_is(s, FO_JOB_COMPILE, 1); }

static void look_merged(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_MERGED_QKV, 0))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_MERGED_QKV,
		.change = { { FO_JOB_MERGED_QKV, 1 } },
		.changes = 1,
		.title = "Queries, keys and values take three matmuls",
		.why = "One wider matmul reads the input once and fills the device better; narrow heads of keys and "
		       "values profit most.",
		.source = "Lambda 2026, section 1.1"
	};
	if (fo_site_form(s, "torchtitan")) {
		p.by_code = true;
		p.proposed = "on, by a change of the model's code: one linear layer, whose output is split";
	}
	fo_site_propose(s, &p);
}

static void look_optimizer(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_OPTIMIZER_FUSED, 0))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_OPTIMIZER_FUSED,
		.change = { { FO_JOB_OPTIMIZER_FUSED, 1 } },
		.changes = 1,
		.title = "The optimizer is not fused",
		.why = "It runs many small kernels over all weights and states; a fused one reads and writes "
		       "each once.",
		.source = "PyTorch 2.15, torch.optim.AdamW(fused=); Lambda 2026, section 1.2",
		.always = true
	};
	fo_site_propose(s, &p);
}

/* ---- the host ---- */

/* Launches that the device waits for a twentieth of the step: then replaying them pays. */
#define HOST_BOUND 0.05

static void look_graphs(struct fo_site *s)
{
	struct fo_range host = s->step->share[FO_PREDICT_HOST];
	if (!fo_site_is(s, FO_JOB_CUDA_GRAPHS, 0) || !fo_range_known(host) || host.low < HOST_BOUND)
		return;
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE,
				 .setting = FO_JOB_CUDA_GRAPHS,
				 .change = { { FO_JOB_CUDA_GRAPHS, 1 } },
				 .changes = 1,
				 .title = "The device waits for launches: steps are small and not replayed as graphs",
				 .why = "A CUDA graph launches a whole step at once; shapes must be the same in each.",
				 .source = "NVIDIA Megatron-Bridge 25.11, Llama-3 8B on B200: full-iteration graphs" };
	fo_site_propose(s, &p);
}

static void look_deterministic(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_DETERMINISTIC, 1))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_DETERMINISTIC,
		.change = { { FO_JOB_DETERMINISTIC, 0 } },
		.changes = 1,
		.title = "Deterministic kernels are forced",
		.why = "Attention's backward pass and sums of gradients have faster kernels whose order of additions "
		       "varies; determinism is for tests.",
		.source = "Megatron-LM, --deterministic-mode; cuDNN 9, attention backward",
		.always = true
	};
	fo_site_propose(s, &p);
}

static void look_dropout(struct fo_site *s)
{
	if (!(fo_job_number(s->job, FO_JOB_DROPOUT) > 0))
		return;
	fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_DROPOUT, "0, as models since 2021 are pretrained",
		       "Dropout takes kernels, random numbers and masks",
		       "It is a choice about the model, not about speed alone.",
		       "Chowdhery et al. 2022 (PaLM), section 5: pretrained without dropout");
}

const struct fo_config_rule fo_config_rules_compute[] = {
	{ .id = "compile",
	  .forms = TORCH,
	  .settings = 1,
	  .setting = { FO_JOB_COMPILE },
	  .look = look_compile,
	  .when = "a PyTorch model that is not compiled (not Megatron, Transformer Engine or XLA)" },
	{ .id = "compile-loss",
	  .forms = TORCH " " MEGATRON,
	  .settings = 1,
	  .setting = { FO_JOB_COMPILE_LOSS },
	  .look = look_loss,
	  .concerns = compiled,
	  .when = "the loss is neither compiled nor fused; said by 'compile' where the model is not compiled either" },
	{ .id = "attention-eager",
	  .settings = 1,
	  .setting = { FO_JOB_ATTENTION },
	  .look = look_attention,
	  .when = "attention as separate matmuls and softmax; serious where a fused kernel surely gains a quarter" },
	{ .id = "attention-device",
	  .needs = FO_NEED_DEVICE,
	  .settings = 1,
	  .setting = { FO_JOB_ATTENTION },
	  .look = look_attention_device,
	  .when = "flexible attention on a device with faster kernels of its own (note)" },
	{ .id = "grad-accumulation-fusion",
	  .forms = MEGATRON,
	  .settings = 1,
	  .setting = { FO_JOB_FUSED_GRAD_ACCUMULATION },
	  .look = look_fused,
	  .when = "weight gradients are not added inside the matmul" },
	{ .id = "rope-fusion",
	  .forms = MEGATRON,
	  .settings = 1,
	  .setting = { FO_JOB_FUSED_ROPE },
	  .look = look_fused,
	  .concerns = not_compiled,
	  .when = "rotary positions in several kernels" },
	{ .id = "norm-fusion",
	  .forms = MEGATRON,
	  .settings = 1,
	  .setting = { FO_JOB_FUSED_NORM },
	  .look = look_fused,
	  .concerns = not_compiled,
	  .when = "norms in several kernels" },
	{ .id = "activation-fusion",
	  .forms = MEGATRON,
	  .settings = 1,
	  .setting = { FO_JOB_FUSED_ACTIVATION },
	  .look = look_fused,
	  .concerns = not_compiled,
	  .when = "the feed-forward's activation in several kernels" },
	{ .id = "merged-qkv",
	  .forms = "torchtitan flatout",
	  .settings = 1,
	  .setting = { FO_JOB_MERGED_QKV },
	  .look = look_merged,
	  .when = "three matmuls for queries, keys and values (not Megatron, which has one)" },
	{ .id = "optimizer-fused",
	  .settings = 1,
	  .setting = { FO_JOB_OPTIMIZER_FUSED },
	  .look = look_optimizer,
	  .when = "an optimizer of many small kernels" },
	{ .id = "cuda-graphs",
	  .needs = FO_NEED_STEP,
	  .settings = 1,
	  .setting = { FO_JOB_CUDA_GRAPHS },
	  .look = look_graphs,
	  .when = "the device surely waits for launches a twentieth of the step, and steps are not replayed" },
	{ .id = "deterministic",
	  .settings = 1,
	  .setting = { FO_JOB_DETERMINISTIC },
	  .look = look_deterministic,
	  .when = "deterministic kernels are forced" },
	{ .id = "dropout",
	  .settings = 1,
	  .setting = { FO_JOB_DROPOUT },
	  .look = look_dropout,
	  .when = "dropout above 0 (note)" },
	{ 0 },
};
