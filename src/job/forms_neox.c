/* GPT-NeoX (arguments of megatron/neox_arguments at v2.0) and OLMo's YAML (olmo/config.py at v0.6). */
#include "job/forms.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#define R FO_FORM_ROW
#define M FO_FORM_MAP
#define D FO_FORM_DEFAULT

/* ---- GPT-NeoX ---- */

static const struct fo_form_row neox[] = {
	M("pipe_parallel_size", PP, "0=1 1=1 2=2 4=4 8=8 16=16 32=32"),
	R("model_parallel_size", TP),
	R("tensor_model_parallel_size", TP),
	R("sequence_parallel", SEQUENCE_PARALLEL),
	R("num_layers", LAYERS),
	R("hidden_size", HIDDEN),
	R("num_attention_heads", HEADS),
	R("num_kv_heads", KV_HEADS),
	R("seq_length", SEQ),
	R("max_position_embeddings", MAX_POSITION),
	M("no_weight_tying", TIED, "true=off false=on"),
	R("train_micro_batch_size_per_gpu", MICRO_BATCH),
	R("train_batch_size", GLOBAL_BATCH),
	R("gradient_accumulation_steps", ACCUMULATION),
	R("zero_optimization.stage", ZERO),
	R("zero_optimization.overlap_comm", GRAD_OVERLAP),
	R("zero_optimization.reduce_scatter", REDUCE_SCATTER),
	R("zero_optimization.cpu_offload", OFFLOAD_OPTIMIZER),
	FO_FORM_SCALED("zero_optimization.reduce_bucket_size", BUCKET_BYTES, 2),
	M("checkpoint_activations", RECOMPUTE, "true=full false=none"),
	M("bf16.enabled", DTYPE, "true=bf16 false=-"),
	M("fp16.enabled", DTYPE, "true=fp16 false=-"),
	M("precision", DTYPE, "bfloat16=bf16 fp16=fp16 fp32=fp32"),
	R("fp16.initial_scale_power", LOSS_SCALE_POWER),
	R("hidden_dropout", DROPOUT),
	R("gradient_clipping", CLIP),
	R("optimizer.type", OPTIMIZER),
	R("rope_fusion", FUSED_ROPE),
	R("checkpoint_factor", CHECKPOINT_EVERY),
	R("log_interval", LOG_EVERY),
	R("num_workers", LOADER_WORKERS),
	FO_FORM_END,
};

static const struct fo_form_default neox_defaults[] = {
	D(ZERO, "0"),      D(CP, "1"),          D(EP, "1"),      D(ACCUMULATION, "1"),
	D(COMPILE, "off"), D(MERGED_QKV, "on"), D(PACKED, "on"), FO_FORM_DEFAULTS_END,
};

static void finish_neox(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	double hidden = fo_job_number(job, FO_JOB_HIDDEN), heads = fo_job_number(job, FO_JOB_HEADS);
	const struct fo_conf_entry *flash = fo_reading_find(r, "attention_config.0.0|attention_config");
	bool glu = fo_reading_says(r, "activation", "glu"), layer_norm = !fo_reading_says(r, "norm", "rms");
	/* Gated widths are rounded and divided differently from release to release: not derived here. */
	if (!glu) {
		double wide = fo_reading_number(r, "intermediate_size");
		fo_reading_imply(r, FO_JOB_FFN, wide >= 1 ? wide : 4 * hidden, "hidden_size");
	} else if (fo_reading_number(r, "mlp_multiple_of") == fo_reading_number(r, "intermediate_size")) {
		fo_reading_state(r, FO_JOB_FFN, fo_reading_number(r, "intermediate_size"),
				 fo_reading_find(r, "intermediate_size"));
	}
	fo_reading_imply(r, FO_JOB_GATED, glu, "activation");
	fo_reading_imply(r, FO_JOB_KV_HEADS, heads, "num_kv_heads");
	fo_reading_imply(r, FO_JOB_TIED, 1, "no_weight_tying");
	fo_reading_imply(r, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE, "checkpoint_activations");
	fo_reading_imply(r, FO_JOB_GRAD_OVERLAP, 0, "zero_optimization.overlap_comm");
	if (flash && strstr(flash->value, "flash"))
		fo_reading_state(r, FO_JOB_ATTENTION, FO_JOB_ATTENTION_FLASH, flash);
	else if (!flash)
		fo_reading_imply(r, FO_JOB_ATTENTION, FO_JOB_ATTENTION_EAGER, "attention_config");
	double type = fo_job_number(job, FO_JOB_DTYPE);
	if (type == FO_JOB_MATMUL_BF16 || type == FO_JOB_MATMUL_FP16)
		fo_reading_imply(r, FO_JOB_GRAD_REDUCE, type == FO_JOB_MATMUL_BF16 ? FO_JOB_BF16 : FO_JOB_FP16,
				 "communication_data_type");
	r->shape->family = layer_norm ? FO_FAMILY_GPT : FO_FAMILY_LLAMA;
	r->shape->norm_bias = layer_norm;
	r->shape->attention_bias = r->shape->output_bias = !fo_reading_find(r, "use_bias_in_attn_linear") ||
							   fo_reading_on(r, "use_bias_in_attn_linear");
	r->shape->mlp_bias = !glu && (!fo_reading_find(r, "use_bias_in_mlp") || fo_reading_on(r, "use_bias_in_mlp"));
	r->shape->learned_position = !fo_reading_find(r, "pos_emb") || fo_reading_says(r, "pos_emb", "learned");
}

const struct fo_form fo_form_neox = {
	.name = { "gpt-neox", "GPT-NeoX", "2.0" },
	.rows = { neox },
	.defaults = { neox_defaults },
	.ignored = { "*" },
	.signature = "pipe_parallel_size model_parallel_size no_weight_tying gpt_j_residual checkpoint_activations "
		     "partition_activations synchronize_each_layer rotary_pct output_layer_parallelism",
	.finish = finish_neox,
};

/* ---- OLMo's YAML ---- */

static const struct fo_form_row olmo[] = {
	R("model.d_model", HIDDEN),
	R("model.n_layers", LAYERS),
	R("model.n_heads", HEADS),
	R("model.n_kv_heads", KV_HEADS),
	R("model.max_sequence_length", SEQ),
	R("model.weight_tying", TIED),
	R("model.embedding_size", VOCAB),
	M("model.flash_attention", ATTENTION, "true=flash false=sdpa"),
	R("global_train_batch_size", GLOBAL_BATCH),
	R("device_train_microbatch_size", MICRO_BATCH),
	M("precision", DTYPE, "amp_bf16=bf16 amp_fp16=fp16 fp32=fp32"),
	M("fsdp.sharding_strategy", ZERO, "FULL_SHARD=3 SHARD_GRAD_OP=2 NO_SHARD=0 HYBRID_SHARD=3 *=3"),
	M("fsdp.precision", GRAD_REDUCE, "pure=bf16 mixed=fp32 null=- *=-"),
	M("activation_checkpointing", RECOMPUTE, "null=none whole_layer=full *=selective"),
	R("max_grad_norm", CLIP),
	R("optimizer.name", OPTIMIZER),
	R("save_interval", CHECKPOINT_EVERY),
	R("console_log_interval", LOG_EVERY),
	R("data.num_workers", LOADER_WORKERS),
	R("data.pin_memory", LOADER_PINNED),
	FO_FORM_END,
};

static const struct fo_form_default olmo_defaults[] = {
	D(TP, "1"),         D(PP, "1"),          D(CP, "1"),
	D(EP, "1"),         D(PACKED, "on"),     D(PARAM_DTYPE, "fp32"),
	D(MOMENTS, "fp32"), D(MERGED_QKV, "on"), FO_FORM_DEFAULTS_END,
};

static void finish_olmo(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	double wide = fo_reading_number(r, "model.mlp_hidden_size"), hidden = fo_job_number(job, FO_JOB_HIDDEN);
	double ratio = fo_reading_number(r, "model.mlp_ratio");
	bool glu = fo_reading_says(r, "model.activation_type", "glu") || !fo_reading_find(r, "model.activation_type");
	const struct fo_conf_entry *compile = fo_reading_find(r, "compile.fullgraph|compile.mode|compile"),
				   *fsdp = fo_reading_find(
					   r, "fsdp.wrapping_strategy|fsdp.precision|fsdp.sharding_strategy");
	wide = wide >= 1 ? wide : (ratio >= 1 ? ratio : 4) * hidden;
	/* Both gated matrices are one of this width (olmo/model.py: ff_proj, then chunk in two). */
	fo_reading_imply(r, FO_JOB_FFN, glu ? wide / 2 : wide, "model.mlp_hidden_size");
	fo_reading_imply(r, FO_JOB_GATED, glu, "model.activation_type");
	fo_reading_imply(r, FO_JOB_KV_HEADS, fo_job_number(job, FO_JOB_HEADS), "model.n_kv_heads");
	fo_reading_imply(r, FO_JOB_VOCAB, fo_reading_number(r, "model.vocab_size"), "model.vocab_size");
	fo_reading_imply(r, FO_JOB_TIED, 1, "model.weight_tying");
	/* Recomputation that no line states stays unknown: its launch scripts add it as an argument. */
	if (compile)
		fo_reading_state(r, FO_JOB_COMPILE, compile->kind != FO_CONF_NULL, compile);
	if (fsdp) {
		fo_reading_imply(r, FO_JOB_ZERO, 3, "fsdp.sharding_strategy");
		fo_reading_imply(r, FO_JOB_FSDP_VERSION, 1, "fsdp");
		fo_reading_imply(r, FO_JOB_GRAD_OVERLAP, 1, "fsdp");
		fo_reading_imply(r, FO_JOB_RESHARD, fo_job_is(job, FO_JOB_ZERO, 3), "fsdp.sharding_strategy");
	}
	r->shape->family = FO_FAMILY_LLAMA;
	r->shape->attention_bias = r->shape->output_bias = fo_reading_on(r, "model.include_bias");
	r->shape->mlp_bias = false;
	r->shape->learned_position = !fo_reading_on(r, "model.rope") && !fo_reading_on(r, "model.alibi");
}

const struct fo_form fo_form_olmo_yaml = {
	.name = { "olmo", "OLMo (YAML)", "0.6" },
	.rows = { olmo },
	.defaults = { olmo_defaults },
	.ignored = { "*" },
	.signature =
		"model.mlp_hidden_size model.weight_tying model.block_type model.embedding_size fsdp.wrapping_strategy "
		"save_interval_unsharded remote_save_folder model.init_fn",
	.finish = finish_olmo,
};
