/* DeepSpeed (JSON, defaults of 0.19.8: deepspeed/runtime/zero/config.py, constants.py), accelerate (YAML, 1.15.0),
 * transformers' TrainingArguments (5.23.0) and what is built on them: trl, axolotl, LLaMA-Factory. */
#define _GNU_SOURCE /* strcasestr */
#include "job/forms.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#define R FO_FORM_ROW
#define M FO_FORM_MAP
#define D FO_FORM_DEFAULT

/* ---- DeepSpeed ---- */

static const struct fo_form_row deepspeed[] = {
	R("zero_optimization.stage", ZERO),
	R("train_micro_batch_size_per_gpu", MICRO_BATCH),
	R("train_batch_size", GLOBAL_BATCH),
	R("zero_optimization.overlap_comm", GRAD_OVERLAP),
	R("zero_optimization.reduce_scatter", REDUCE_SCATTER),
	FO_FORM_SCALED("zero_optimization.reduce_bucket_size", BUCKET_BYTES, 2), /* elements of 16 bits */
	M("zero_optimization.offload_optimizer.device", OFFLOAD_OPTIMIZER, "none=off cpu=on nvme=on"),
	M("zero_optimization.offload_param.device", OFFLOAD_PARAMS, "none=off cpu=on nvme=on"),
	R("zero_optimization.cpu_offload", OFFLOAD_OPTIMIZER),
	R("zero_optimization.offload_optimizer.pin_memory", OFFLOAD_PINNED),
	R("zero_optimization.offload_param.pin_memory", OFFLOAD_PINNED),
	R("zero_optimization.stage3_max_live_parameters", LIVE_PARAMS),
	R("zero_optimization.max_live_parameters", LIVE_PARAMS),
	R("zero_optimization.stage3_max_reuse_distance", REUSE_DISTANCE),
	R("zero_optimization.max_reuse_distance", REUSE_DISTANCE),
	R("zero_optimization.sub_group_size", SUB_GROUP),
	M("zero_optimization.stage3_prefetch_bucket_size", PREFETCH, "0=off auto=on *=on"),
	M("zero_optimization.prefetch_bucket_size", PREFETCH, "0=off auto=on *=on"),
	M("bf16.enabled", DTYPE, "true=bf16 false=-"),
	M("bfloat16.enabled", DTYPE, "true=bf16 false=-"), /* its older name */
	M("bf16.bf16_master_weights_and_grads", PARAM_DTYPE, "true=bf16 false=-"),
	M("bf16.bf16_optimizer_states", MOMENTS, "true=bf16 false=-"),
	M("fp16.enabled", DTYPE, "true=fp16 false=-"),
	R("fp16.initial_scale_power", LOSS_SCALE_POWER),
	M("communication_data_type", GRAD_REDUCE, "fp32=fp32 fp16=fp16 bf16=bf16 bfp16=bf16 null=-"),
	M("data_types.grad_accum_dtype", GRAD_ACCUMULATE, "fp32=fp32 fp16=fp16 bf16=bf16 null=-"),
	R("optimizer.type", OPTIMIZER),
	R("gradient_clipping", CLIP),
	R("steps_per_print", LOG_EVERY),
	R("flops_profiler.enabled", PROFILING),
	R("tensor_parallel.autotp_size", TP),
	R("sequence_parallel_size", CP),
	FO_FORM_END,
};
/* Keys that DeepSpeed and the trainers around it spell alike. */
static const struct fo_form_row shared[] = {
	R("gradient_accumulation_steps", ACCUMULATION),
	FO_FORM_END,
};

static const struct fo_form_default deepspeed_defaults[] = {
	D(ZERO, "0"),
	D(REDUCE_SCATTER, "on"),
	D(OFFLOAD_OPTIMIZER, "off"),
	D(OFFLOAD_PARAMS, "off"),
	D(BUCKET_BYTES, "1e9"),
	D(PARAM_DTYPE, "fp32"),
	D(MOMENTS, "fp32"),
	D(PROFILING, "off"),
	D(TP, "1"),
	D(CP, "1"),
	FO_FORM_DEFAULTS_END,
};

/* Settings of ZeRO that do nothing at another stage stay as they are stated; the defaults are those of the stage. */
static void finish_deepspeed(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	double stage = fo_job_number(job, FO_JOB_ZERO);
	const struct fo_conf_entry *overlap = fo_reading_find(r, "zero_optimization.overlap_comm");
	if (stage == 3) {
		fo_reading_imply(r, FO_JOB_LIVE_PARAMS, 1e9, "zero_optimization.stage3_max_live_parameters");
		fo_reading_imply(r, FO_JOB_REUSE_DISTANCE, 1e9, "zero_optimization.stage3_max_reuse_distance");
		fo_reading_imply(r, FO_JOB_SUB_GROUP, 1e9, "zero_optimization.sub_group_size");
		fo_reading_imply(r, FO_JOB_RESHARD, 1, "zero_optimization.stage");
		fo_reading_imply(r, FO_JOB_PREFETCH, 1, "zero_optimization.stage3_prefetch_bucket_size");
		fo_reading_imply(r, FO_JOB_GRAD_OVERLAP, 1, "zero_optimization.overlap_comm");
		if (overlap && overlap->kind == FO_CONF_VALUE)
			fo_reading_state(r, FO_JOB_PARAM_OVERLAP, fo_reading_on(r, "zero_optimization.overlap_comm"),
					 overlap);
		fo_reading_imply(r, FO_JOB_PARAM_OVERLAP, 1, "zero_optimization.overlap_comm");
	} else {
		fo_reading_imply(r, FO_JOB_GRAD_OVERLAP, 0, "zero_optimization.overlap_comm");
		/* Weights of a 16-bit copy are gathered at the end of the update, which nothing hides. */
		if (stage == 1 || stage == 2)
			fo_reading_imply(r, FO_JOB_PARAM_OVERLAP, 0, "zero_optimization.stage");
	}
	const struct fo_conf_entry *type = fo_reading_find(r, "optimizer.type");
	if (type && strcasestr(type->value, "fused"))
		fo_reading_state(r, FO_JOB_OPTIMIZER_FUSED, 1, type);
	if (job->value[FO_JOB_DTYPE].origin == FO_JOB_UNKNOWN && r->form == &fo_form_deepspeed &&
	    job->form == &fo_form_deepspeed.name)
		fo_reading_imply(r, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32, "bf16.enabled");
	if (fo_job_is(job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16))
		fo_reading_imply(r, FO_JOB_LOSS_SCALE_POWER, 16, "fp16.initial_scale_power");
	double type16 = fo_job_number(job, FO_JOB_DTYPE);
	if (type16 == FO_JOB_MATMUL_BF16)
		fo_reading_imply(r, FO_JOB_GRAD_REDUCE, FO_JOB_BF16, "communication_data_type");
	else if (type16 == FO_JOB_MATMUL_FP16)
		fo_reading_imply(r, FO_JOB_GRAD_REDUCE, FO_JOB_FP16, "communication_data_type");
}

const struct fo_form fo_form_deepspeed = {
	.name = { "deepspeed", "DeepSpeed", "0.19.8" },
	.rows = { deepspeed, shared },
	.defaults = { deepspeed_defaults },
	.ignored = { "zero_optimization.contiguous_gradients "
		     "zero_optimization.allgather_* zero_optimization.offload_*.* "
		     "zero_optimization.*gather_*_weights* "
		     "zero_optimization.*param_persistence* zero_optimization.round_robin* "
		     "zero_optimization.load_from* zero_optimization.ignore_unused* "
		     "zero_allow* zero_force* fp16.* bf16.* bfloat16.* "
		     "scheduler.* optimizer.* wall_clock_breakdown prescale_gradients "
		     "gradient_predivide_factor dump_state "
		     "activation_checkpointing.* tensorboard.* wandb.* csv_monitor.* "
		     "comms_logger.* checkpoint.* aio.* amp.* "
		     "flops_profiler.* data_types.* memory_breakdown elasticity.* "
		     "zero_optimization.stage3_param_persist* dataloader_drop_last disable_python_gc "
		     "zero_optimization.elastic_checkpoint zero_optimization.pipeline_loading_checkpoint "
		     "zero_optimization.override_module_apply zero_optimization.log_trace_cache_warnings "
		     "zero_optimization.enable_sanity_checks zero_optimization.legacy_stage1" },
	.signature = "zero_optimization.stage zero_optimization.overlap_comm train_micro_batch_size_per_gpu "
		     "zero_allow_untested_optimizer wall_clock_breakdown",
	.finish = finish_deepspeed,
	.specific = true,
};

/* ---- accelerate ---- */

static const struct fo_form_row accelerate[] = {
	M("mixed_precision", DTYPE, "bf16=bf16 fp16=fp16 no=fp32 false=fp32 fp8=bf16"),
	R("num_processes", DEVICES),
	R("num_machines", NODES),
	R("enable_cpu_affinity", CPU_AFFINITY),
	M("fsdp_config.fsdp_activation_checkpointing", RECOMPUTE, "true=full false=none"),
	R("fsdp_config.fsdp_forward_prefetch", PREFETCH),
	R("fsdp_config.fsdp_offload_params", OFFLOAD_PARAMS),
	M("fsdp_config.fsdp_sharding_strategy", ZERO,
	  "FULL_SHARD=3 SHARD_GRAD_OP=2 NO_SHARD=0 HYBRID_SHARD=3 HYBRID_SHARD_ZERO2=2 1=3 2=2 3=0 4=3 5=2"),
	M("fsdp_config.fsdp_reshard_after_forward", RESHARD, "true=on false=off FULL_SHARD=on SHARD_GRAD_OP=off *=-"),
	R("fsdp_config.fsdp_version", FSDP_VERSION),
	R("parallelism_config.parallelism_config_tp_size", TP),
	R("parallelism_config.parallelism_config_cp_size", CP),
	R("parallelism_config.parallelism_config_dp_replicate_size", DP_REPLICATE),
	R("parallelism_config.parallelism_config_dp_shard_size", DP_SHARD),
	R("deepspeed_config.deepspeed_config_file", MISSING_FILE),
	R("deepspeed_config.zero_stage", ZERO),
	R("deepspeed_config.gradient_accumulation_steps", ACCUMULATION),
	R("deepspeed_config.gradient_clipping", CLIP),
	M("deepspeed_config.offload_optimizer_device", OFFLOAD_OPTIMIZER, "none=off cpu=on nvme=on"),
	M("deepspeed_config.offload_param_device", OFFLOAD_PARAMS, "none=off cpu=on nvme=on"),
	R("megatron_lm_config.megatron_lm_tp_degree", TP),
	R("megatron_lm_config.megatron_lm_pp_degree", PP),
	R("megatron_lm_config.megatron_lm_num_micro_batches", ACCUMULATION),
	R("megatron_lm_config.megatron_lm_sequence_parallelism", SEQUENCE_PARALLEL),
	M("megatron_lm_config.megatron_lm_recompute_activations", RECOMPUTE, "true=selective false=none"),
	M("megatron_lm_config.megatron_lm_use_distributed_optimizer", ZERO, "true=1 false=0"),
	R("megatron_lm_config.megatron_lm_gradient_clipping", CLIP),
	M("dynamo_config.dynamo_backend", COMPILE, "no=off false=off *=on"),
	M("dynamo_backend", COMPILE, "no=off false=off *=on"),
	FO_FORM_END,
};

/* FSDP as PyTorch runs it: reductions and gathers on streams of their own. */
static void fsdp(struct fo_reading *r, double version)
{
	struct fo_job *job = r->job;
	fo_reading_imply(r, FO_JOB_FSDP_VERSION, version, "fsdp_config.fsdp_version");
	bool keeps = fo_job_is(job, FO_JOB_RESHARD, 0);
	if (version == 2) {
		const struct fo_conf_entry *e = fo_reading_find(r, "fsdp_config.fsdp_reshard_after_forward|"
								   "fsdp_config.reshard_after_forward");
		if (e)
			fo_reading_state(r, FO_JOB_ZERO, keeps ? 2 : 3, e);
	}
	fo_reading_imply(r, FO_JOB_ZERO, 3, "fsdp_config.fsdp_sharding_strategy");
	double stage = fo_job_number(job, FO_JOB_ZERO);
	fo_reading_imply(r, FO_JOB_RESHARD, stage == 3, "fsdp_config.fsdp_sharding_strategy");
	/* FSDP 2 gathers ahead by itself; FSDP 1 does so where forward_prefetch is on. */
	const struct fo_form_row *row = fo_form_row_of(r->form, "fsdp_config.fsdp_forward_prefetch");
	if (version == 2) /* it takes no forward_prefetch: what a file says of it does nothing */
		job->value[FO_JOB_PREFETCH] = (struct fo_job_value){ .origin = FO_JOB_DEFAULT,
								     .number = 1,
								     .key = row ? row->key : NULL };
	else
		fo_reading_imply(r, FO_JOB_PREFETCH, 0, "fsdp_config.fsdp_forward_prefetch");
	fo_reading_imply(r, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE, "fsdp_config.fsdp_activation_checkpointing");
	fo_reading_imply(r, FO_JOB_OFFLOAD_PARAMS, 0, "fsdp_config.fsdp_offload_params");
	fo_reading_imply(r, FO_JOB_GRAD_OVERLAP, 1, NULL);
	fo_reading_imply(r, FO_JOB_PARAM_OVERLAP, 1, NULL);
	/* set_mixed_precision of accelerate/utils/dataclasses.py: param_dtype and reduce_dtype are the same. */
	static const double reduced[] = { FO_JOB_BF16, FO_JOB_FP16, FO_JOB_FP32 }; /* by FO_JOB_MATMUL_* */
	double type = fo_job_number(job, FO_JOB_DTYPE);
	if (!isnan(type))
		fo_reading_imply(r, FO_JOB_GRAD_REDUCE, reduced[(int)type], "mixed_precision");
	if (fo_job_is(job, FO_JOB_OFFLOAD_PARAMS, 1)) {
		const struct fo_conf_entry *e = fo_reading_find(r, "fsdp_config.fsdp_offload_params");
		if (e)
			fo_reading_state(r, FO_JOB_OFFLOAD_OPTIMIZER, 1, e);
	}
	fo_reading_imply(r, FO_JOB_OFFLOAD_OPTIMIZER, 0, "fsdp_config.fsdp_offload_params");
}

static void finish_accelerate(struct fo_reading *r)
{
	const struct fo_conf_entry *kind = fo_reading_find(r, "distributed_type");
	if (fo_reading_says(r, "distributed_type", "FSDP")) {
		double version = fo_job_or(r->job, FO_JOB_FSDP_VERSION, 1);
		fsdp(r, version);
	} else if (kind && (!strcasecmp(kind->value, "MULTI_GPU") || !strcasecmp(kind->value, "NO"))) {
		fo_reading_state(r, FO_JOB_ZERO, 0, kind);
		fo_reading_imply(r, FO_JOB_GRAD_OVERLAP, 1, NULL);
	}
	/* HYBRID_SHARD shards inside a node and repeats that over nodes. */
	const struct fo_conf_entry *strategy = fo_reading_find(r, "fsdp_config.fsdp_sharding_strategy");
	double nodes = fo_job_number(r->job, FO_JOB_NODES);
	if (strategy && fo_reading_says(r, "fsdp_config.fsdp_sharding_strategy", "HYBRID") && nodes >= 1)
		fo_reading_state(r, FO_JOB_DP_REPLICATE, nodes, strategy);
	const struct fo_conf_entry *mixed = fo_reading_find(r, "mixed_precision");
	bool fp8 = fo_reading_says(r, "mixed_precision", "fp8");
	if (mixed && mixed->kind == FO_CONF_VALUE)
		fo_reading_state(r, FO_JOB_FP8, fp8 ? FO_JOB_FP8_TENSORWISE : FO_JOB_FP8_OFF, mixed);
	else if (!mixed)
		fo_reading_imply(r, FO_JOB_FP8, FO_JOB_FP8_OFF, "mixed_precision");
	fo_reading_imply(r, FO_JOB_COMPILE, 0, "dynamo_config.dynamo_backend");
	if (fo_job_known(r->job, FO_JOB_NODES) && fo_job_known(r->job, FO_JOB_DEVICES) && nodes >= 1)
		fo_reading_imply(r, FO_JOB_PER_NODE, fo_job_number(r->job, FO_JOB_DEVICES) / nodes, "num_processes");
}

static const struct fo_form_default accelerate_defaults[] = {
	D(TP, "1"),
	D(CP, "1"),
	D(PP, "1"),
	D(EP, "1"),
	D(CPU_AFFINITY, "off"),
	D(PARAM_DTYPE, "fp32"),
	D(MOMENTS, "fp32"),
	FO_FORM_DEFAULTS_END,
};

const struct fo_form fo_form_accelerate = {
	.name = { "accelerate", "accelerate", "1.15.0" },
	.rows = { accelerate, shared },
	.defaults = { accelerate_defaults },
	.ignored = { "debug compute_environment distributed_type machine_rank main_* rdzv_* "
		     "same_network tpu_* use_cpu downcast_bf16 "
		     "gpu_ids fsdp_config.* deepspeed_config.* megatron_lm_config.* "
		     "dynamo_config.* commands* ipex_config.* "
		     "mpirun_config.* parallelism_config.*" },
	.signature = "distributed_type compute_environment main_training_function fsdp_config.fsdp_auto_wrap_policy "
		     "rdzv_backend downcast_bf16",
	.finish = finish_accelerate,
};

/* ---- transformers and what is built on it ---- */

static const struct fo_form_row transformers[] = {
	R("per_device_train_batch_size", MICRO_BATCH),
	R("gradient_accumulation_steps", ACCUMULATION),
	M("activation_checkpointing", RECOMPUTE, "true=full false=none null=none *=-"), /* since 5.24 */
	M("gradient_checkpointing", RECOMPUTE, "true=full false=none offload=offload null=none *=-"),
	M("bf16", DTYPE, "true=bf16 false=- *=-"),
	M("fp16", DTYPE, "true=fp16 false=- *=-"),
	R("torch_compile", COMPILE),
	R("optim", OPTIMIZER),
	R("dataloader_num_workers", LOADER_WORKERS),
	R("dataloader_pin_memory", LOADER_PINNED),
	R("max_grad_norm", CLIP),
	R("logging_steps", LOG_EVERY),
	M("save_strategy", CHECKPOINT, "no=off false=off *=on"),
	R("save_steps", CHECKPOINT_EVERY),
	R("full_determinism", DETERMINISTIC),
	R("use_liger_kernel", COMPILE_LOSS),
	FO_FORM_SCALED("ddp_bucket_cap_mb", BUCKET_BYTES, 1048576),
	R("deepspeed", MISSING_FILE),
	R("model_name_or_path", MODEL),
	R("max_seq_length", SEQ),
	R("max_length", SEQ),
	R("block_size", SEQ),
	R("packing", PACKED),
	M("attn_implementation", ATTENTION,
	  "eager=eager sdpa=sdpa flash_attention_2=flash flash_attention_3=flash flex_attention=flex *=-"),
	M("fsdp_config.forward_prefetch", PREFETCH, NULL),
	M("fsdp_config.fsdp_forward_prefetch", PREFETCH, NULL),
	M("fsdp_config.activation_checkpointing", RECOMPUTE, "true=full false=-"),
	M("fsdp_config.fsdp_activation_checkpointing", RECOMPUTE, "true=full false=-"),
	R("fsdp_config.fsdp_version", FSDP_VERSION),
	R("fsdp_config.version", FSDP_VERSION),
	R("fsdp_version", FSDP_VERSION),
	R("fsdp_config.offload_params", OFFLOAD_PARAMS),
	R("fsdp_config.fsdp_offload_params", OFFLOAD_PARAMS),
	M("fsdp_config.reshard_after_forward", RESHARD, NULL),
	M("fsdp_config.fsdp_reshard_after_forward", RESHARD, "true=on false=off *=-"),
	M("fsdp_config.fsdp_sharding_strategy", ZERO,
	  "FULL_SHARD=3 SHARD_GRAD_OP=2 NO_SHARD=0 HYBRID_SHARD=3 HYBRID_SHARD_ZERO2=2 1=3 2=2 3=0 4=3 5=2"),
	FO_FORM_END,
};

static const struct fo_form_default transformers_defaults[] = {
	D(MICRO_BATCH, "8"),
	D(ACCUMULATION, "1"),
	D(RECOMPUTE, "none"),
	D(COMPILE, "off"),
	D(OPTIMIZER, "adamw_torch_fused"), /* from PyTorch 2.8 on */
	D(OPTIMIZER_FUSED, "on"),
	D(LOADER_WORKERS, "0"),
	D(LOADER_PINNED, "on"),
	D(CLIP, "1"),
	D(LOG_EVERY, "500"),
	D(CHECKPOINT, "on"),
	D(CHECKPOINT_EVERY, "500"),
	D(DETERMINISTIC, "off"),
	D(COMPILE_LOSS, "off"),
	D(TP, "1"),
	D(PP, "1"),
	D(CP, "1"),
	D(EP, "1"),
	D(PROFILING, "off"),
	FO_FORM_DEFAULTS_END,
};

/* How the frozen weights are loaded: "load_in_4bit", LLaMA-Factory's "quantization_bit", a quantised checkpoint. */
static void base_bits(struct fo_reading *r)
{
	static const struct {
		const char *keys;
		double bits;
	} on[] = { { "load_in_4bit|gptq", 4 }, { "load_in_8bit", 8 } };
	static const char *const quantised[] = { "AWQ", "GPTQ", "-4bit", "-bnb-4bit" };
	for (size_t i = 0; i < sizeof on / sizeof *on; i++)
		if (fo_reading_on(r, on[i].keys))
			return fo_reading_state(r, FO_JOB_BASE_BITS, on[i].bits, fo_reading_find(r, on[i].keys));
	const struct fo_conf_entry *bits = fo_reading_find(r, "quantization_bit"),
				   *model = fo_reading_find(r, "model_name_or_path|base_model"),
				   *type = fo_reading_find(r, "torch_dtype|dtype");
	if (bits && fo_reading_number(r, "quantization_bit") > 0)
		return fo_reading_state(r, FO_JOB_BASE_BITS, fo_reading_number(r, "quantization_bit"), bits);
	for (size_t i = 0; model && i < sizeof quantised / sizeof *quantised; i++)
		if (strcasestr(model->value, quantised[i]))
			return fo_reading_state(r, FO_JOB_BASE_BITS, 4, model);
	if (type && strcasestr(type->value, "float16"))
		fo_reading_state(r, FO_JOB_BASE_BITS, 16, type);
}

/* Adapters: axolotl's "adapter", LLaMA-Factory's "finetuning_type" (lora unless stated), trl's "use_peft". */
static void adapters(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	const struct fo_conf_entry *e = fo_reading_find(r, "adapter|finetuning_type|use_peft|peft_type");
	static const char *const whole[] = { "full", "freeze", "false", "none", "" };
	bool all = !e || e->kind == FO_CONF_NULL;
	for (size_t i = 0; !all && i < sizeof whole / sizeof *whole; i++)
		all = !strcasecmp(e->value, whole[i]);
	if (!e && r->form == &fo_form_llamafactory) {
		fo_reading_imply(r, FO_JOB_ADAPTERS, 1, "finetuning_type");
		all = false;
	} else if (all) {
		fo_reading_imply(r, FO_JOB_ADAPTERS, 0, "adapter");
	} else {
		fo_reading_state(r, FO_JOB_ADAPTERS, 1, e);
	}
	if (e && !strcasecmp(e->value, "freeze"))
		fo_reading_note(r,
				"%s:%d: '%s' = '%s' trains some layers only: memory and work are those of training all "
				"weights, which is more",
				r->conf->file, e->line, e->path, e->value);
	if (all || !fo_job_is(job, FO_JOB_ADAPTERS, 1))
		return;
	base_bits(r);
	const struct fo_conf_entry *rank = fo_reading_find(r, "lora_r|lora_rank|peft_lora_r"),
				   *saved = fo_reading_find(r, "lora_modules_to_save|additional_target");
	if (rank && rank->kind == FO_CONF_VALUE)
		fo_reading_state(r, FO_JOB_ADAPTER_RANK, fo_reading_number(r, "lora_r|lora_rank|peft_lora_r"), rank);
	else if (r->form == &fo_form_transformers) /* trl 0.24, ModelConfig */
		fo_reading_imply(r, FO_JOB_ADAPTER_RANK, 16, "lora_r");
	else if (r->form == &fo_form_llamafactory) /* src/llamafactory/hparams/finetuning_args.py */
		fo_reading_imply(r, FO_JOB_ADAPTER_RANK, 8, "lora_rank");
	if (saved && saved->kind != FO_CONF_NULL && *saved->value)
		fo_reading_state_text(r, FO_JOB_ADAPTER_WHOLE, saved->value, saved);
}

/* Rows that are not packed are padded to the longest of a micro-batch, unless a setting pads them all. */
static void rows(struct fo_reading *r)
{
	bool packed = fo_job_is(r->job, FO_JOB_PACKED, 1) || fo_reading_on(r, "pad_to_sequence_len|pad_to_max_length");
	fo_reading_imply(r, FO_JOB_ROWS_VARY, !packed, "packing");
}

static void finish_transformers(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	const struct fo_conf_entry *e = fo_reading_find(r, "fsdp");
	if (e && e->kind != FO_CONF_NULL && *e->value && strcasecmp(e->value, "false")) {
		if (strstr(e->value, "shard_grad_op") || strstr(e->value, "zero2"))
			fo_reading_state(r, FO_JOB_ZERO, 2, e);
		else if (strstr(e->value, "no_shard"))
			fo_reading_state(r, FO_JOB_ZERO, 0, e);
		else if (strstr(e->value, "shard") || !strcasecmp(e->value, "true"))
			fo_reading_state(r, FO_JOB_ZERO, 3, e);
		if (strstr(e->value, "offload"))
			fo_reading_state(r, FO_JOB_OFFLOAD_PARAMS, 1, e);
		/* transformers 5.23, TrainingArguments: version 2 unless fsdp_config says another. */
		fsdp(r, fo_job_or(job, FO_JOB_FSDP_VERSION, r->form == &fo_form_transformers ? 2 : 1));
	} else if (fo_reading_find(r, "fsdp_version|fsdp_config.fsdp_version|fsdp_config.fsdp_sharding_strategy")) {
		fsdp(r, fo_job_or(job, FO_JOB_FSDP_VERSION, 1));
	}
	/* Neither: the launcher decides. `accelerate launch` may bring DeepSpeed or FSDP; without it it is DDP. */
	if (job->value[FO_JOB_DTYPE].origin == FO_JOB_UNKNOWN && r->form == &fo_form_transformers)
		fo_reading_imply(r, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32, "bf16");
	const struct fo_conf_entry *optim = fo_reading_find(r, "optim|optimizer");
	if (optim && optim->kind == FO_CONF_VALUE) {
		bool fused = strstr(optim->value, "fused") || strstr(optim->value, "bnb") ||
			     strstr(optim->value, "8bit");
		fo_reading_state(r, FO_JOB_OPTIMIZER_FUSED, fused, optim);
		/* Other moments have the type that the script loads the weights in, which no file says. */
		if (strstr(optim->value, "8bit"))
			fo_reading_state(r, FO_JOB_MOMENTS, 2, optim);
	}
	const struct fo_conf_entry *save = fo_reading_find(r, "save_strategy");
	if (save && !fo_reading_says(r, "save_strategy", "steps"))
		job->value[FO_JOB_CHECKPOINT_EVERY] = (struct fo_job_value){ .number = NAN };
	if (fo_job_number(job, FO_JOB_LOG_EVERY) < 1) /* a share of the run */
		job->value[FO_JOB_LOG_EVERY] = (struct fo_job_value){ .number = NAN };
	if (fo_job_number(job, FO_JOB_CHECKPOINT_EVERY) < 1)
		job->value[FO_JOB_CHECKPOINT_EVERY] = (struct fo_job_value){ .number = NAN };
	adapters(r);
	rows(r);
}

static const char transformers_ignored[] =
	"output_dir overwrite_output_dir num_train_epochs max_steps learning_rate lr_* warmup_* "
	"weight_decay adam_* seed data* logging_* report_to run_name eval* do_* "
	"per_device_eval_batch_size save_* push_to_hub hub_* gradient_checkpointing_* torch_compile_* "
	"tf32 ddp_* fsdp_* remove_unused* prediction_* resume_from* disable_tqdm *_strategy "
	"load_best* metric_* greater_* label_* include_* fsdp adapter lora* peft* use_peft "
	"finetuning_type stage template cutoff_len preprocessing_* max_samples plot_loss "
	"overwrite_cache trust_remote_code val_* dataset* chat_template* wandb* special* tokens* "
	"tokenizer* model_type num_epochs val_set_size *_workers strict load_in* save_* sequence_* "
	"flash_attention* xformers* sdp_attention deepspeed.* base_model* is_*_model test_datasets "
	"hf_* early_stop* saves_per_epoch evals_per_epoch train_on_* group_by_length "
	"pad_to_sequence_len sample_packing* eval_sample* local_rank _n_gpu no_cuda use_cpu fp16_* "
	"bf16_* half_precision* skip_* average_* optim_* past_index auto_find* neftune* jit_mode* "
	"use_ipex use_legacy* use_mps* torch_empty* accelerator_config* debug mp_parameters length_* "
	"ray_* ddp_backend log_level* logging_dir liger_* activation_checkpointing_kwargs.use_reentrant use_cache "
	"log_on_each_node "
	"project trackio_* batch_eval_metrics enable_jit_checkpoint ignore_data_skip restore_callback_states*";

const struct fo_form fo_form_transformers = {
	.name = { "transformers", "transformers or trl", "5.23.0" },
	.rows = { transformers, deepspeed },
	.defaults = { transformers_defaults },
	.ignored = { transformers_ignored },
	.prefix = "deepspeed. training_args.",
	.signature = "per_device_train_batch_size gradient_checkpointing num_train_epochs lr_scheduler_type",
	.finish = finish_transformers,
};

static const struct fo_form_row axolotl[] = {
	R("base_model", MODEL),
	R("micro_batch_size", MICRO_BATCH),
	R("sequence_len", SEQ),
	R("sample_packing", PACKED),
	M("flash_attention", ATTENTION, "true=flash false=-"),
	M("sdp_attention", ATTENTION, "true=sdpa false=-"),
	M("flex_attention", ATTENTION, "true=flex false=-"),
	R("optimizer", OPTIMIZER),
	M("bf16", DTYPE, "true=bf16 full=bf16 false=- auto=bf16"),
	R("tensor_parallel_size", TP),
	R("context_parallel_size", CP),
	R("sequence_parallel_degree", CP),
	R("dp_replicate_size", DP_REPLICATE),
	R("dp_shard_size", DP_SHARD),
	R("liger_fused_linear_cross_entropy", COMPILE_LOSS),
	R("cut_cross_entropy", COMPILE_LOSS),
	R("liger_rms_norm", FUSED_NORM),
	R("liger_rope", FUSED_ROPE),
	R("liger_glu_activation", FUSED_ACTIVATION),
	FO_FORM_END,
};

/* axolotl's own values where it sets none differ from transformers': what is not stated is unknown but for these. */
static const struct fo_form_default axolotl_defaults[] = {
	D(ACCUMULATION, "1"), D(RECOMPUTE, "none"), D(COMPILE, "off"), D(PP, "1"),           D(TP, "1"),
	D(CP, "1"),           D(EP, "1"),           D(PACKED, "off"),  FO_FORM_DEFAULTS_END,
};

const struct fo_form fo_form_axolotl = {
	.name = { "axolotl", "axolotl", "0.12" },
	.rows = { axolotl, transformers, deepspeed },
	.defaults = { axolotl_defaults },
	.ignored = { transformers_ignored },
	.prefix = "deepspeed.",
	.signature = "base_model sequence_len sample_packing datasets.0.path",
	.finish = finish_transformers,
};

static const struct fo_form_row llamafactory[] = {
	R("cutoff_len", SEQ),
	M("flash_attn", ATTENTION, "fa2=flash fa3=flash sdpa=sdpa disabled=eager off=eager *=-"),
	R("neat_packing", PACKED),
	R("enable_liger_kernel", COMPILE_LOSS),
	M("disable_gradient_checkpointing", RECOMPUTE, "true=none false=full"),
	FO_FORM_END,
};

/* src/llamafactory/hparams: gradient checkpointing is on unless it is disabled; cutoff_len is 2048. */
static const struct fo_form_default llamafactory_defaults[] = {
	D(RECOMPUTE, "full"),
	D(SEQ, "2048"),
	D(PACKED, "off"),
	D(MICRO_BATCH, "8"),
	D(ACCUMULATION, "1"),
	D(COMPILE, "off"),
	D(CLIP, "1"),
	D(TP, "1"),
	D(PP, "1"),
	D(CP, "1"),
	D(EP, "1"),
	D(COMPILE_LOSS, "off"),
	D(LOADER_WORKERS, "0"),
	D(LOADER_PINNED, "on"),
	FO_FORM_DEFAULTS_END,
};

const struct fo_form fo_form_llamafactory = {
	.name = { "llamafactory", "LLaMA-Factory", "0.9" },
	.rows = { llamafactory, transformers, deepspeed },
	.defaults = { llamafactory_defaults },
	.ignored = { transformers_ignored },
	.prefix = "deepspeed.",
	.signature = "cutoff_len finetuning_type template stage",
	.finish = finish_transformers,
};

/* A model's config.json, given beside a job. */
static const struct fo_form_row hf_model[] = {
	R("vocab_size", VOCAB),
	R("num_hidden_layers", LAYERS),
	R("n_layer", LAYERS),
	FO_FORM_END,
};

const struct fo_form fo_form_hf_model = {
	.name = { "hf-model", "a model's config.json", NULL },
	.rows = { hf_model },
	.ignored = { "*" },
	.signature = "model_type architectures num_hidden_layers transformers_version bos_token_id",
	.specific = true,
};
