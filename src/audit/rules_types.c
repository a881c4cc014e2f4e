/* Rules about number formats: of matmuls, of states, of what travels. */
#include "audit/config_int.h"

static bool has_peak(const struct fo_site *s, enum fo_precision p) { return s->cluster->device->dense[p] > 0; }

/* ---- 16 bits ---- */

static void look_fp32(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32))
		return;
	const struct fo_device *d = s->cluster->device;
	bool bf16 = !d || d->dense[FO_PREC_BF16] > 0;
	/* A default counts where the file is whole; a part of a script may leave the type to another part. */
	bool sure = fo_job_stated(s->job, FO_JOB_DTYPE) || s->job->has_model;
	struct fo_proposal p = { .level = sure ? FO_AUDIT_SERIOUS : FO_AUDIT_ADVICE,
				 .setting = FO_JOB_DTYPE,
				 .change = { { FO_JOB_DTYPE, bf16 ? FO_JOB_MATMUL_BF16 : FO_JOB_MATMUL_FP16 } },
				 .changes = 1,
				 .title = "Matmuls run in fp32: the matrix units for 16 bits are idle",
				 .why = "Weights of the optimizer stay in fp32; matmuls and activations take 16 bits.",
				 .published = { 2, 8, "dense peaks of the device's datasheet" },
				 .source = "Micikevicius et al. 2018 (mixed precision)",
				 .always = true };
	if (d && d->dense[FO_PREC_TF32] > 0 && d->dense[FO_PREC_BF16] > 0)
		p.published.low = fmax(1.5, 0.75 * d->dense[FO_PREC_BF16] / d->dense[FO_PREC_TF32]);
	fo_site_propose(s, &p);
}

static void look_fp16(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16) || !has_peak(s, FO_PREC_BF16))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_DTYPE,
		.change = { { FO_JOB_DTYPE, FO_JOB_MATMUL_BF16 } },
		.changes = 1,
		.title = "fp16 on a device that has bf16 at the same rate",
		.why = "fp16 needs a loss scale, skips steps that overflow and checks every gradient for it; bf16 has "
		       "the range of fp32.",
		.source = "Kalamkar et al. 2019 (bfloat16); BLOOM chronicles 2022",
		.always = true
	};
	const char *key = s->job->value[FO_JOB_DTYPE].key;
	if (fo_site_form(s, "megatron") && key)
		p.proposed = fo_site_say(s, "bf16 (remove %s)", key);
	fo_site_propose(s, &p);
}

/* 2^16 is the usual first scale. Each skipped step halves it once, after `hysteresis` of them in DeepSpeed. */
#define SCALE_USUAL 16.0
#define SCALE_HIGH 20.0

static bool may_be_fp16(const struct fo_site *s)
{
	return !fo_site_is(s, FO_JOB_DTYPE, FO_JOB_MATMUL_BF16) && !fo_site_is(s, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32);
}

static void look_scale(struct fo_site *s)
{
	double power = fo_job_number(s->job, FO_JOB_LOSS_SCALE_POWER);
	if (power < SCALE_HIGH)
		return;
	bool sure = fo_site_is(s, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16);
	struct fo_proposal p = {
		.level = sure ? FO_AUDIT_ADVICE : FO_AUDIT_NOTE,
		.setting = FO_JOB_LOSS_SCALE_POWER,
		.change = { { FO_JOB_LOSS_SCALE_POWER, SCALE_USUAL } },
		.changes = 1,
		.title = fo_site_say(s, "A first loss scale of 2^%.0f costs skipped steps%s", power,
				     sure ? "" : " where fp16 is used"),
		.why = fo_site_say(
			s,
			"fp16 ends at 65,504: %.0f halvings lie between 2^%.0f and the usual 2^16, and each takes at "
			"least one step whose update is thrown away.",
			power - SCALE_USUAL, power),
		.source = "DeepSpeed documentation, initial_scale_power: 16 is the default",
		.always = true
	};
	fo_site_propose(s, &p);
}

/* ---- 8 bits ---- */

/* fp8 recipes are for weights that are trained; frozen ones are often stored in less. */
static bool may_use_fp8(const struct fo_site *s) { return s->cluster->device && fo_site_trains_all(s); }

static void look_fp8_missing(struct fo_site *s)
{
	if (fo_site_is(s, FO_JOB_FP8, FO_JOB_FP8_OFF) || has_peak(s, FO_PREC_FP8))
		return;
	fo_site_report(s, FO_AUDIT_SERIOUS, FO_JOB_FP8, "off",
		       fo_site_say(s, "%s has no matrix units for fp8", s->cluster->device->name),
		       "The job stops at its first matmul, or casts to 8 bits and computes in 16.",
		       s->cluster->device->source);
}

/* Matmuls below this width spend the gain on casts (torchao, float8 training: M, K, N below 2,048 may lose). */
#define FP8_WIDTH 2048

static void look_fp8(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_FP8, FO_JOB_FP8_OFF) || !has_peak(s, FO_PREC_FP8) ||
	    !fo_site_is(s, FO_JOB_DTYPE, FO_JOB_MATMUL_BF16) || (s->job->has_model && s->job->model.hidden < FP8_WIDTH))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_FP8,
		.change = { { FO_JOB_FP8,
			      fo_site_form(s, "megatron nemo") ? FO_JOB_FP8_DELAYED : FO_JOB_FP8_TENSORWISE } },
		.changes = 1,
		.title = "fp8 is unused: matmuls run at half of the device's rate",
		.why = "It changes numerics: compare losses before a long run. Head and router stay in bf16.",
		.published = { 1.10, 1.30, "torchtitan, Llama-3.1 8B on 8 H100, compiled: 1.28" },
		.source = "torchtitan, Llama-3.1 8B on 8 H100, compiled: 6,667 to 8,532 tokens/s for each device"
	};
	if (fo_site_form(s, "megatron nemo"))
		p.proposed = "hybrid";
	bool gather = fo_site_is(s, FO_JOB_FP8_GATHER, 0) && fo_site_form(s, "torchtitan");
	if (gather) {
		p.change[p.changes++] = (struct fo_job_change){ FO_JOB_FP8_GATHER, 1 };
		p.change[p.changes++] = (struct fo_job_change){ FO_JOB_FP8_PRECOMPUTE, 1 };
		p.proposed = "tensorwise, with weights gathered as fp8 and scales computed for all at once";
	}
	p.compiled = fo_site_form(s, "torchtitan") && fo_site_is(s, FO_JOB_COMPILE, 0);
	if (p.compiled)
		p.why = "Casts are only cheap in a compiled model: turn compilation on with it. It changes "
			"numerics: compare "
			"losses before a long run.";
	fo_site_propose(s, &p);
}

static bool tensorwise(const struct fo_site *s) { return fo_site_is(s, FO_JOB_FP8, FO_JOB_FP8_TENSORWISE); }

static void look_fp8_gather(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_FP8_GATHER, 0) || !fo_site_is(s, FO_JOB_ZERO, 3))
		return;
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE,
				 .setting = FO_JOB_FP8_GATHER,
				 .change = { { FO_JOB_FP8_GATHER, 1 } },
				 .changes = 1,
				 .title = "Weights are gathered in bf16 and cast to fp8 on every device",
				 .why = "Cast before they travel they take half the bytes.",
				 .source = "torchao, float8 training: enable_fsdp_float8_all_gather",
				 .always = true };
	fo_site_propose(s, &p);
}

static bool gathers_fp8(const struct fo_site *s) { return tensorwise(s) && fo_site_is(s, FO_JOB_FP8_GATHER, 1); }

static void look_fp8_scale(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_FP8_PRECOMPUTE, 0))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_FP8_PRECOMPUTE,
		.change = { { FO_JOB_FP8_PRECOMPUTE, 1 } },
		.changes = 1,
		.title = "Scales of fp8 weights are computed one by one",
		.why = "Every weight's largest value is reduced over all ranks by a collective of its own; together it "
		       "is one.",
		.source = "torchao, precompute_float8_dynamic_scale_for_fsdp; Lambda 2026, section 3.4",
		.always = true
	};
	fo_site_propose(s, &p);
}

const struct fo_config_rule fo_config_rules_types[] = {
	{ .id = "precision-fp32",
	  .settings = 1,
	  .setting = { FO_JOB_DTYPE },
	  .look = look_fp32,
	  .when = "matmuls in fp32" },
	{ .id = "precision-fp16",
	  .needs = FO_NEED_DEVICE,
	  .settings = 1,
	  .setting = { FO_JOB_DTYPE },
	  .look = look_fp16,
	  .when = "fp16 on a device with bf16 matrix units" },
	{ .id = "loss-scale",
	  .settings = 1,
	  .setting = { FO_JOB_LOSS_SCALE_POWER },
	  .look = look_scale,
	  .concerns = may_be_fp16,
	  .when = "a first loss scale of 2^20 or more; a note where it is not known whether fp16 is used" },
	{ .id = "fp8-unsupported",
	  .needs = FO_NEED_DEVICE,
	  .settings = 1,
	  .setting = { FO_JOB_FP8 },
	  .look = look_fp8_missing,
	  .when = "fp8 on a device without matrix units for it" },
	{ .id = "fp8-unused",
	  .needs = FO_NEED_DEVICE,
	  .settings = 2,
	  .setting = { FO_JOB_FP8, FO_JOB_DTYPE },
	  .look = look_fp8,
	  .concerns = may_use_fp8,
	  .when = "bf16 matmuls of width 2,048 or more on a device with fp8" },
	{ .id = "fp8-gather",
	  .forms = "torchtitan",
	  .settings = 2,
	  .setting = { FO_JOB_FP8_GATHER, FO_JOB_ZERO },
	  .look = look_fp8_gather,
	  .concerns = tensorwise,
	  .when = "tensorwise fp8 whose sharded weights are gathered in bf16" },
	{ .id = "fp8-scales",
	  .forms = "torchtitan",
	  .settings = 1,
	  .setting = { FO_JOB_FP8_PRECOMPUTE },
	  .look = look_fp8_scale,
	  .concerns = gathers_fp8,
	  .when = "weights gathered as fp8 whose scales are not computed together" },
	{ 0 },
};
