/* MaxText, LitGPT, nanotron, llm-foundry, OLMo-core and Flatout's own run file. */
#include "job/forms.h"
#include "program/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define R FO_FORM_ROW
#define M FO_FORM_MAP
#define D FO_FORM_DEFAULT

/* ---- MaxText: src/maxtext/configs/base.yml at e591f30c (2026-08-22) ---- */

static const struct fo_form_row maxtext[] = {
	R("model_name", MODEL),
	R("max_target_length", SEQ),
	R("gradient_accumulation_steps", ACCUMULATION),
	M("remat_policy", RECOMPUTE,
	  "full=full minimal=selective minimal_flash=selective "
	  "minimal_with_context=selective save_dot_except_mlp=selective "
	  "save_dot_except_mlpwi=selective save_qkv_proj=selective "
	  "save_out_proj=selective qkv_proj_offloaded=offload "
	  "minimal_offloaded=offload custom=selective none=none *=selective"),
	M("quantization", FP8,
	  "=off fp8=delayed fp8_full=delayed fp8_gpu=delayed nanoo_fp8=delayed te_fp8_delayedscaling=delayed "
	  "te_fp8_currentscaling=tensorwise te_mxfp8=mxfp8 te_nvfp4=fp4 null=off *=-"),
	M("attention", ATTENTION, "dot_product=eager flash=flash cudnn_flash_te=fused cudnn_flash_jax=fused *=-"),
	M("dtype", DTYPE, "bfloat16=bf16 float32=fp32 float16=fp16"),
	M("weight_dtype", PARAM_DTYPE, "float32=fp32 bfloat16=bf16"),
	M("grad_dtype", GRAD_REDUCE, "float32=fp32 bfloat16=bf16"),
	M("mu_dtype", MOMENTS, "float32=fp32 bfloat16=bf16 *=-"),
	R("enable_checkpointing", CHECKPOINT),
	R("async_checkpointing", CHECKPOINT_ASYNC),
	R("checkpoint_period", CHECKPOINT_EVERY),
	R("gradient_clipping_threshold", CLIP),
	R("optimizer_memory_host_offload", OFFLOAD_OPTIMIZER),
	R("parameter_memory_host_offload", OFFLOAD_PARAMS),
	R("log_period", LOG_EVERY),
	R("fused_qkv", MERGED_QKV),
	R("opt_type", OPTIMIZER),
	R("packing", PACKED),
	R("dropout_rate", DROPOUT),
	R("vocab_size", VOCAB),
	R("base_emb_dim", HIDDEN),
	R("base_num_query_heads", HEADS),
	R("base_num_kv_heads", KV_HEADS),
	R("base_mlp_dim", FFN),
	R("base_num_decoder_layers", LAYERS),
	R("head_dim", HEAD_DIM),
	R("logits_via_embedding", TIED),
	R("num_experts", EXPERTS),
	R("num_experts_per_tok", EXPERTS_ACTIVE),
	M("base_moe_mlp_dim", EXPERT_FFN, NULL),
	M("profiler", PROFILING, "=off null=off none=off *=on"),
	FO_FORM_END,
};

static const struct fo_form_default maxtext_defaults[] = {
	D(SEQ, "2048"),
	D(RECOMPUTE, "full"),
	D(FP8, "off"),
	D(DTYPE, "bf16"),
	D(PARAM_DTYPE, "fp32"),
	D(GRAD_REDUCE, "fp32"),
	D(ACCUMULATION, "1"),
	D(CHECKPOINT, "on"),
	D(CHECKPOINT_ASYNC, "on"),
	D(CHECKPOINT_EVERY, "10000"),
	D(CLIP, "1"),
	D(OFFLOAD_OPTIMIZER, "off"),
	D(OFFLOAD_PARAMS, "off"),
	D(MERGED_QKV, "off"),
	D(DROPOUT, "0"),
	D(PACKED, "on"),
	D(PROFILING, "off"),
	D(COMPILE, "on"),
	D(COMPILE_LOSS, "on"), /* XLA compiles the whole step */
	D(GRAD_OVERLAP, "on"),
	D(PARAM_OVERLAP, "on"),
	D(PREFETCH, "on"),
	D(RESHARD, "on"),
	FO_FORM_DEFAULTS_END,
};

/* An axis over nodes (dcn_) and inside one (ici_): the product; NAN where one of them is -1, "what is left". */
static double axis(const struct fo_reading *r, const char *name, double dcn, double ici,
		   const struct fo_conf_entry **from)
{
	char key[96];
	snprintf(key, sizeof key, "dcn_%s_parallelism", name);
	const struct fo_conf_entry *e = fo_reading_find(r, key);
	double a = e ? fo_reading_number(r, key) : dcn;
	*from = e ? e : *from;
	snprintf(key, sizeof key, "ici_%s_parallelism", name);
	e = fo_reading_find(r, key);
	double b = e ? fo_reading_number(r, key) : ici;
	*from = e ? e : *from;
	return a < 1 || b < 1 ? NAN : a * b;
}

static void set_axis(struct fo_reading *r, enum fo_job_setting s, const char *name, const char *more)
{
	const struct fo_conf_entry *e = NULL;
	double v = axis(r, name, 1, 1, &e);
	if (more)
		v *= axis(r, more, 1, 1, &e);
	if (e)
		fo_reading_state(r, s, isnan(v) && s == FO_JOB_DP_SHARD ? -1 : v, e);
	else
		fo_reading_imply(r, s, v, fo_arena_printf(&r->job->arena, "ici_%s_parallelism", name));
}

static void maxtext_axes(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	const struct fo_conf_entry *e = NULL;
	set_axis(r, FO_JOB_TP, "tensor", "tensor_sequence");
	set_axis(r, FO_JOB_PP, "pipeline", NULL);
	set_axis(r, FO_JOB_CP, "context", "sequence");
	set_axis(r, FO_JOB_EP, "expert", NULL);
	double shard = axis(r, "fsdp", 1, -1, &e) * axis(r, "fsdp_transpose", 1, 1, &e);
	shard = isnan(shard) ? -1 : shard;
	if (e) {
		fo_reading_state(r, FO_JOB_DP_SHARD, shard, e);
		fo_reading_state(r, FO_JOB_ZERO, fo_job_is(job, FO_JOB_DP_SHARD, 1) ? 0 : 3, e);
	} else {
		fo_reading_imply(r, FO_JOB_DP_SHARD, -1, "ici_fsdp_parallelism");
		fo_reading_imply(r, FO_JOB_ZERO, fo_job_is(job, FO_JOB_DP_SHARD, 1) ? 0 : 3, "ici_fsdp_parallelism");
	}
	/* dcn_data_parallelism is -1 unless stated: what is left over. */
	const struct fo_conf_entry *data = NULL;
	double replicas = axis(r, "data", -1, 1, &data);
	if (data && !isnan(replicas))
		fo_reading_state(r, FO_JOB_DP_REPLICATE, replicas, data);
	/* A batch is stated per device; the devices of one tensor-parallel group share theirs. */
	const struct fo_conf_entry *batch = fo_reading_find(r, "per_device_batch_size");
	double group = fo_job_or(job, FO_JOB_TP, NAN) * fo_job_or(job, FO_JOB_CP, NAN) * fo_job_or(job, FO_JOB_PP, NAN);
	double per = batch ? fo_reading_number(r, "per_device_batch_size") : 12;
	if (batch)
		fo_reading_state(r, FO_JOB_MICRO_BATCH, per * group, batch);
	else
		fo_reading_imply(r, FO_JOB_MICRO_BATCH, per * group, "per_device_batch_size");
}

/* MaxText writes "llama3.1-8b", this program "llama-3.1-8b". */
static void maxtext_name(struct fo_reading *r)
{
	const struct fo_conf_entry *e = fo_reading_find(r, "model_name");
	const char *name = e && strcasecmp(e->value, "default") ? e->value : NULL;
	if (!name)
		return;
	bool llama = !strncasecmp(name, "llama", 5) && name[5] != '-';
	*r->model_name = llama ? fo_arena_printf(&r->job->arena, "llama-%s", name + 5) : name;
	if (!strcasecmp(name, "deepseek3-671b"))
		*r->model_name = "deepseek-v3";
	*r->model_name = fo_arena_strdup(&r->job->arena, *r->model_name);
}

/* MLA, Gemma and others have more than these dimensions. */
static void maxtext_odd(struct fo_reading *r)
{
	static const char *const plain[] = { "llama2", "mistral", "mixtral", "qwen2", "qwen3", "default", "" };
	const struct fo_conf_entry *block = fo_reading_find(r, "decoder_block");
	bool known = !block;
	for (size_t i = 0; block && i < sizeof plain / sizeof *plain; i++)
		known |= !strcmp(block->value, plain[i]);
	if (!known)
		fo_reading_odd_model(r, "decoder_block");
	fo_reading_odd_model(
		r, "mtp_num_layers|interleave_moe_layer_step|inhomogeneous_layer_cycle_interval|shared_experts|"
		   "first_num_dense_layers|sliding_window_size|use_indexer|global_parameter_scale");
	r->shape->qk_norm = block && strstr(block->value, "qwen3");
}

/* base.yml's own model, for what takes its values from there and states no other. */
static void maxtext_base(struct fo_reading *r)
{
	const struct fo_conf_entry *base = fo_reading_find(r, "base_config"),
				   *file = fo_reading_find(r, "launch.config");
	bool other = file && !strstr(file->value, "base.yml");
	bool from_base = (file && !other) || (base && strstr(base->value, "base.yml"));
	if (other) /* arguments may name another file than base.yml */
		fo_reading_state_text(r, FO_JOB_MISSING_FILE, file->value, file);
	if (*r->model_name || other || *r->no_shape || !from_base)
		return;
	fo_reading_imply(r, FO_JOB_HIDDEN, 2048, "base_emb_dim");
	fo_reading_imply(r, FO_JOB_HEADS, 16, "base_num_query_heads");
	fo_reading_imply(r, FO_JOB_KV_HEADS, 16, "base_num_kv_heads");
	fo_reading_imply(r, FO_JOB_HEAD_DIM, 128, "head_dim");
	fo_reading_imply(r, FO_JOB_FFN, 7168, "base_mlp_dim");
	fo_reading_imply(r, FO_JOB_LAYERS, 16, "base_num_decoder_layers");
	fo_reading_imply(r, FO_JOB_VOCAB, 32000, "vocab_size");
	fo_reading_imply(r, FO_JOB_TIED, 0, "logits_via_embedding");
}

static void finish_maxtext(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	maxtext_axes(r);
	maxtext_name(r);
	maxtext_odd(r);
	maxtext_base(r);
	if (fo_job_number(job, FO_JOB_EXPERTS) > 1)
		fo_reading_imply(r, FO_JOB_EXPERT_FFN, fo_job_number(job, FO_JOB_FFN), "base_moe_mlp_dim");
	fo_reading_imply(r, FO_JOB_GATED, 1, "mlp_activations");
	r->shape->norm_eps = 1e-5;
	r->shape->rope.theta = 10000;
	r->shape->rope.factor = 1;
	if (fo_reading_on(r, "enable_rampup_batch_size"))
		fo_reading_state_text(r, FO_JOB_BATCH_RAMP, "enable_rampup_batch_size",
				      fo_reading_find(r, "enable_rampup_batch_size"));
}

const struct fo_form fo_form_maxtext = {
	.name = { "maxtext", "MaxText", "of 2026-08-22" },
	.rows = { maxtext },
	.defaults = { maxtext_defaults },
	.ignored = { "base_config run_name hardware learning_rate* steps dataset_* "
		     "*_parallelism per_device_batch_size use_iota* "
		     "logits_* *goodput* save_config* tokenizer* base_output* hf_* "
		     "enable_* load_* warmup* adam_* jax_* log* "
		     "metrics* gcs_* grain* eval* xla_* scan_layers reuse_example* "
		     "skip_* profile* upload* vocab* mlp_* "
		     "rope_* attention_* num_slices allow_split* tokenize* shardy async* context custom_mesh*" },
	.signature = "base_config per_device_batch_size max_target_length ici_fsdp_parallelism dcn_fsdp_parallelism "
		     "remat_policy base_emb_dim",
	.finish = finish_maxtext,
	.alone = true,
};

/* ---- LitGPT 0.5.13: litgpt/args.py, litgpt/pretrain.py ---- */

static const struct fo_form_row litgpt[] = {
	R("model_name", MODEL),
	R("checkpoint_dir", MODEL),
	R("train.global_batch_size", GLOBAL_BATCH),
	R("train.micro_batch_size", MICRO_BATCH),
	R("train.max_seq_length", SEQ),
	R("train.max_norm", CLIP),
	R("train.log_interval", LOG_EVERY),
	R("train.save_interval", CHECKPOINT_EVERY),
	R("train.tie_embeddings", TIED),
	R("devices", PER_NODE),
	R("num_nodes", NODES),
	M("precision", DTYPE, "bf16-true=bf16 bf16-mixed=bf16 16-true=fp16 16-mixed=fp16 32-true=fp32 null=- *=-"),
	R("optimizer.class_path", OPTIMIZER),
	R("optimizer", OPTIMIZER),
	R("model_config.n_layer", LAYERS),
	R("model_config.n_embd", HIDDEN),
	R("model_config.n_head", HEADS),
	R("model_config.n_query_groups", KV_HEADS),
	R("model_config.intermediate_size", FFN),
	R("model_config.padded_vocab_size", VOCAB),
	R("model_config.vocab_size", VOCAB),
	R("model_config.block_size", MAX_POSITION),
	M("model_config.mlp_class_name", GATED, "LLaMAMLP=on GemmaMLP=on GptNeoxMLP=off *=-"),
	FO_FORM_END,
};

static const struct fo_form_default litgpt_defaults[] = {
	D(GLOBAL_BATCH, "512"),
	D(MICRO_BATCH, "4"),
	D(LOG_EVERY, "1"),
	D(CHECKPOINT_EVERY, "1000"),
	D(TP, "1"),
	D(PP, "1"),
	D(CP, "1"),
	D(EP, "1"),
	D(COMPILE, "on"),
	D(MERGED_QKV, "on"),
	FO_FORM_DEFAULTS_END,
};

static void finish_litgpt(struct fo_reading *r)
{
	/* Pretraining over several devices is FSDP, sharded inside a node and repeated over nodes (HYBRID_SHARD in
	 * litgpt/pretrain.py). */
	double nodes = fo_job_or(r->job, FO_JOB_NODES, 1);
	fo_reading_imply(r, FO_JOB_ZERO, 3, "devices");
	fo_reading_imply(r, FO_JOB_DP_REPLICATE, nodes, "num_nodes");
	fo_reading_imply(r, FO_JOB_NODES, 1, "num_nodes");
	const struct fo_conf_entry *name = fo_reading_find(r, "model_name|checkpoint_dir");
	const struct fo_conf_entry *lora = fo_reading_find(r, "lora_r");
	if (lora) {
		fo_reading_state(r, FO_JOB_ADAPTERS, 1, lora);
		fo_reading_state(r, FO_JOB_ADAPTER_RANK, fo_reading_number(r, "lora_r"), lora);
		if (fo_reading_says(r, "quantize", "bnb.nf4") || fo_reading_says(r, "quantize", "bnb.fp4"))
			fo_reading_state(r, FO_JOB_BASE_BITS, 4, fo_reading_find(r, "quantize"));
		else if (fo_reading_says(r, "quantize", "int8"))
			fo_reading_state(r, FO_JOB_BASE_BITS, 8, fo_reading_find(r, "quantize"));
		else if (fo_reading_says(r, "precision", "true"))
			fo_reading_state(r, FO_JOB_BASE_BITS, 16, fo_reading_find(r, "precision"));
	} else if (fo_reading_says(r, "precision", "bf16-true")) { /* weights, gradients and moments in bf16 */
		fo_reading_state(r, FO_JOB_PARAM_DTYPE, FO_JOB_BF16, fo_reading_find(r, "precision"));
		fo_reading_imply(r, FO_JOB_MOMENTS, FO_JOB_BF16, "precision");
	}
	if (name && strstr(name->value, "checkpoints/"))
		*r->model_name = strstr(name->value, "checkpoints/") + 12;
	r->shape->norm_eps = 1e-5;
	r->shape->rope.theta = 10000;
	r->shape->rope.factor = 1;
}

const struct fo_form fo_form_litgpt = {
	.name = { "litgpt", "LitGPT", "0.5.13" },
	.rows = { litgpt },
	.defaults = { litgpt_defaults },
	.ignored = { "out_dir data* train.* eval.* optimizer.* seed logger_name "
		     "tokenizer_dir initial_checkpoint* resume "
		     "model_config.* lora_* quantize access_token" },
	.signature =
		"train.lr_warmup_steps train.max_tokens eval.max_iters train.micro_batch_size out_dir tokenizer_dir",
	.finish = finish_litgpt,
};

/* ---- nanotron 0.4: nanotron/config ---- */

static const struct fo_form_row nanotron[] = {
	R("parallelism.dp", DP_SHARD),
	R("parallelism.tp", TP),
	R("parallelism.pp", PP),
	R("parallelism.expert_parallel_size", EP),
	M("parallelism.pp_engine", PP_SCHEDULE,
	  "1f1b=1f1b afab=gpipe OneForwardOneBackwardPipelineEngine=1f1b *=other"),
	M("parallelism.tp_mode", SEQUENCE_PARALLEL, "REDUCE_SCATTER=on ALL_REDUCE=off"),
	R("parallelism.tp_linear_async_communication", TP_OVERLAP),
	M("parallelism.recompute_layer", RECOMPUTE, "true=full false=none"),
	R("tokens.micro_batch_size", MICRO_BATCH),
	R("tokens.batch_accumulation_per_replica", ACCUMULATION),
	R("tokens.sequence_length", SEQ),
	R("model.model_config.num_hidden_layers", LAYERS),
	R("model.model_config.hidden_size", HIDDEN),
	R("model.model_config.intermediate_size", FFN),
	R("model.model_config.num_attention_heads", HEADS),
	R("model.model_config.num_key_value_heads", KV_HEADS),
	R("model.model_config.vocab_size", VOCAB),
	R("model.model_config.max_position_embeddings", MAX_POSITION),
	R("model.model_config.tie_word_embeddings", TIED),
	M("model.dtype", DTYPE, "bfloat16=bf16 float16=fp16 float32=fp32 torch.bfloat16=bf16"),
	FO_FORM_SCALED("model.ddp_bucket_cap_mb", BUCKET_BYTES, 1048576),
	R("optimizer.zero_stage", ZERO),
	R("optimizer.clip_grad", CLIP),
	M("optimizer.accumulate_grad_in_fp32", GRAD_ACCUMULATE, "true=fp32 false=bf16"),
	R("optimizer.torch_adam_is_fused", OPTIMIZER_FUSED),
	R("optimizer.optimizer_factory.torch_adam_is_fused", OPTIMIZER_FUSED),
	R("optimizer.optimizer_factory.name", OPTIMIZER),
	R("checkpoints.checkpoint_interval", CHECKPOINT_EVERY),
	R("logging.iteration_step_info_interval", LOG_EVERY),
	R("data.num_loading_workers", LOADER_WORKERS),
	M("profiler", PROFILING, "null=off *=on"),
	FO_FORM_END,
};

static const struct fo_form_default nanotron_defaults[] = {
	D(EP, "1"),        D(CP, "1"),          D(ZERO, "0"),          D(RECOMPUTE, "none"),
	D(COMPILE, "off"), D(MERGED_QKV, "on"), D(ATTENTION, "flash"), D(BUCKET_BYTES, "26214400"),
	D(GATED, "on"),    D(PACKED, "on"),     D(GRAD_OVERLAP, "on"), FO_FORM_DEFAULTS_END,
};

static void finish_nanotron(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	/* dp counts all data-parallel ranks; without ZeRO they are replicas. */
	double dp = fo_job_number(job, FO_JOB_DP_SHARD);
	const struct fo_conf_entry *e = fo_reading_find(r, "parallelism.dp");
	double all = dp * fo_job_or(job, FO_JOB_TP, 1) * fo_job_or(job, FO_JOB_PP, 1);
	if (e && all > 0)
		fo_reading_state(r, FO_JOB_DEVICES, all, e);
	double accumulation = fo_job_number(job, FO_JOB_ACCUMULATION), micro = fo_job_number(job, FO_JOB_MICRO_BATCH);
	if (e && dp > 0 && accumulation > 0 && micro > 0)
		fo_reading_state(r, FO_JOB_GLOBAL_BATCH, dp * accumulation * micro,
				 fo_reading_find(r, "tokens.batch_accumulation_per_replica"));
	if (fo_job_is(job, FO_JOB_ZERO, 0) && e) {
		fo_reading_state(r, FO_JOB_DP_REPLICATE, dp, e);
		job->value[FO_JOB_DP_SHARD] = (struct fo_job_value){ .number = NAN };
		fo_reading_imply(r, FO_JOB_DP_SHARD, 1, "optimizer.zero_stage");
	}
	if (fo_job_known(job, FO_JOB_HEADS))
		fo_reading_imply(r, FO_JOB_KV_HEADS, fo_job_number(job, FO_JOB_HEADS),
				 "model.model_config.num_key_value_heads");
	fo_reading_odd_model(r, "model.model_config.moe_num_experts|model.model_config.num_experts|"
				"model.model_config.moe_config|model.model_config.moe_config.num_experts|"
				"model.model_config.is_starcoder2_config|model.model_config.sliding_window_size");
	double theta = fo_reading_number(r, "model.model_config.rope_theta"),
	       eps = fo_reading_number(r, "model.model_config.rms_norm_eps");
	r->shape->rope.theta = theta >= 1 ? theta : 10000;
	r->shape->rope.factor = 1;
	r->shape->norm_eps = eps > 0 && eps < 1 ? eps : 1e-5;
}

const struct fo_form fo_form_nanotron = {
	.name = { "nanotron", "nanotron", "0.4" },
	.rows = { nanotron },
	.defaults = { nanotron_defaults },
	.ignored = { "general.* model.* checkpoints.* data_stages* lighteval* logging.* "
		     "optimizer.* tokenizer.* tokens.* data.* "
		     "profiler* parallelism.* s3_upload* metrics*" },
	.signature =
		"tokens.sequence_length tokens.micro_batch_size tokens.batch_accumulation_per_replica parallelism.dp "
		"optimizer.zero_stage",
	.finish = finish_nanotron,
};

/* ---- llm-foundry 0.22.0: llmfoundry/utils/config_utils.py ---- */

static const struct fo_form_row foundry[] = {
	R("max_seq_len", SEQ),
	R("variables.max_seq_len", SEQ),
	R("global_train_batch_size", GLOBAL_BATCH),
	R("variables.global_train_batch_size", GLOBAL_BATCH),
	R("device_train_microbatch_size", MICRO_BATCH),
	R("model.n_layers", LAYERS),
	R("model.d_model", HIDDEN),
	R("model.n_heads", HEADS),
	R("model.vocab_size", VOCAB),
	R("model.max_seq_len", MAX_POSITION),
	R("model.pretrained_model_name_or_path", MODEL),
	R("model.attn_config.kv_n_heads", KV_HEADS),
	M("model.attn_config.attn_impl", ATTENTION, "flash=flash torch=eager triton=flash flex=flex *=-"),
	M("precision", DTYPE, "amp_bf16=bf16 amp_fp16=fp16 fp32=fp32 amp_fp8=bf16"),
	M("fsdp_config.sharding_strategy", ZERO, "FULL_SHARD=3 SHARD_GRAD_OP=2 NO_SHARD=0 HYBRID_SHARD=3 *=3"),
	M("fsdp_config.mixed_precision", GRAD_REDUCE, "PURE=bf16 DEFAULT=fp32 FULL=fp32 *=-"),
	M("fsdp_config.activation_checkpointing", RECOMPUTE, "true=full false=none"),
	R("fsdp_config.activation_cpu_offload", OFFLOAD_PARAMS),
	R("fsdp_config.forward_prefetch", PREFETCH),
	R("tp_config.tensor_parallel_degree", TP),
	R("optimizer.name", OPTIMIZER),
	R("algorithms.gradient_clipping.clipping_threshold", CLIP),
	R("train_loader.num_workers", LOADER_WORKERS),
	R("train_loader.pin_memory", LOADER_PINNED),
	M("save_interval", CHECKPOINT_EVERY, "*=-"),
	FO_FORM_END,
};

static const struct fo_form_default foundry_defaults[] = {
	D(DTYPE, "bf16"), D(TP, "1"),        D(PP, "1"),      D(CP, "1"),
	D(EP, "1"),       D(COMPILE, "off"), D(PACKED, "on"), FO_FORM_DEFAULTS_END,
};

static void finish_foundry(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	const struct fo_conf_entry *fsdp = fo_reading_find(r,
							   ""
							   "fsdp_config.sharding_strategy|fsdp_config.mixed_precision");
	if (!fsdp && !fo_reading_find(r, "fsdp_config"))
		fo_reading_imply(r, FO_JOB_ZERO, 0, "fsdp_config");
	const struct fo_conf_entry *peft = fo_reading_find(r, "model.peft_config.peft_type|model.peft_config.r");
	if (peft)
		fo_reading_state(r, FO_JOB_ADAPTERS, 1, peft);
	if (fo_reading_number(r, "model.peft_config.r") >= 1)
		fo_reading_state(r, FO_JOB_ADAPTER_RANK, fo_reading_number(r, "model.peft_config.r"),
				 fo_reading_find(r, "model.peft_config.r"));
	fo_reading_imply(r, FO_JOB_ZERO, 3, "fsdp_config.sharding_strategy");
	fo_reading_imply(r, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE, "fsdp_config.activation_checkpointing");
	if (fo_job_is(job, FO_JOB_OFFLOAD_PARAMS, 1)) { /* activation_cpu_offload is of activations, not of weights */
		job->value[FO_JOB_OFFLOAD_PARAMS] = (struct fo_job_value){ .number = NAN };
		fo_reading_state(r, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_OFFLOAD,
				 fo_reading_find(r, "fsdp_config.activation_cpu_offload"));
	} else {
		job->value[FO_JOB_OFFLOAD_PARAMS] = (struct fo_job_value){ .number = NAN };
	}
	if (fo_reading_find(
		    r, "model.d_model")) { /* MPT: expansion 4, no biases in its recipes, learned positions or ALiBi */
		double ratio = fo_reading_number(r, "model.expansion_ratio"),
		       hidden = fo_job_number(job, FO_JOB_HIDDEN);
		fo_reading_imply(r, FO_JOB_FFN, (ratio >= 1 ? ratio : 4) * hidden, "model.expansion_ratio");
		fo_reading_imply(r, FO_JOB_KV_HEADS, fo_job_number(job, FO_JOB_HEADS),
				 ""
				 "model.attn_config.kv_n_heads");
		fo_reading_imply(r, FO_JOB_TIED, 1, "model.tie_word_embeddings");
		fo_reading_imply(r, FO_JOB_GATED, fo_reading_says(r, "model.ffn_config.ffn_type", "glu"),
				 "model.ffn_config");
		r->shape->family = FO_FAMILY_GPT;
		r->shape->norm_bias = !fo_reading_on(r, "model.no_bias") &&
				      !fo_reading_says(r, "model.norm_type", "rms");
		r->shape->attention_bias = r->shape->output_bias = r->shape->mlp_bias = !fo_reading_on(r,
												       ""
												       "model.no_bias");
		r->shape->learned_position = !fo_reading_on(r, "model.attn_config.alibi|model.attn_config.rope");
		r->shape->rope.theta = 10000;
		r->shape->norm_eps = 1e-5;
	}
}

const struct fo_form fo_form_foundry = {
	.name = { "llm-foundry", "llm-foundry", "0.22.0" },
	.rows = { foundry },
	.defaults = { foundry_defaults },
	.ignored = { "*" },
	.signature = "device_eval_batch_size device_train_microbatch_size train_loader.name max_duration "
		     "global_train_batch_size algorithms.gradient_clipping.clipping_type",
	.finish = finish_foundry,
};

/* ---- OLMo-core: its configurations as printed or saved (config.json of a run) ---- */

static const struct fo_form_row olmo[] = {
	R("data_loader.global_batch_size", GLOBAL_BATCH),
	R("train_module.rank_microbatch_size", MICRO_BATCH),
	R("train_module.max_sequence_length", SEQ),
	R("dataset.sequence_length", SEQ),
	R("train_module.compile_model", COMPILE),
	R("train_module.max_grad_norm", CLIP),
	R("train_module.tp_config.degree", TP),
	R("train_module.cp_config.degree", CP),
	R("train_module.pp_config.degree", PP),
	R("train_module.ep_config.degree", EP),
	R("train_module.dp_config.num_replicas", DP_REPLICATE),
	R("train_module.dp_config.shard_degree", DP_SHARD),
	M("train_module.dp_config.name", ZERO, "fsdp=3 hsdp=3 ddp=0"),
	M("train_module.dp_config.param_dtype", DTYPE, "bfloat16=bf16 float32=fp32 *=-"),
	M("train_module.dp_config.reduce_dtype", GRAD_REDUCE, "bfloat16=bf16 float32=fp32 *=-"),
	M("train_module.ac_config.mode", RECOMPUTE,
	  "full=full selected_blocks=selective selected_modules=selective *=selective"),
	M("train_module.float8_config.enabled", FP8, "true=tensorwise false=off"),
	R("model.d_model", HIDDEN),
	R("model.n_layers", LAYERS),
	R("model.vocab_size", VOCAB),
	R("data_loader.num_workers", LOADER_WORKERS),
	FO_FORM_END,
};

/* Its batches are counted in tokens. */
static void finish_olmo(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	double seq = fo_job_number(job, FO_JOB_SEQ);
	const enum fo_job_setting tokens[] = { FO_JOB_GLOBAL_BATCH, FO_JOB_MICRO_BATCH };
	for (int i = 0; i < 2; i++) {
		struct fo_job_value *v = &job->value[tokens[i]];
		if (v->origin == FO_JOB_STATED && !isnan(v->number))
			v->number = seq > 0 ? v->number / seq : NAN;
	}
}

const struct fo_form fo_form_olmo = {
	.name = { "olmo-core", "OLMo-core", NULL },
	.rows = { olmo },
	.ignored = { "*" },
	.signature = "train_module.rank_microbatch_size data_loader.global_batch_size train_module.compile_model "
		     "train_module.dp_config.name",
	.finish = finish_olmo,
};

/* ---- Flatout's own run file: src/program/run.c has its options and their defaults ---- */

static const struct fo_form_row flatout[] = {
	R("model.name", MODEL),
	R("model.layers", LAYERS),
	R("model.hidden", HIDDEN),
	R("model.heads", HEADS),
	R("model.kv-heads", KV_HEADS),
	R("model.head-dim", HEAD_DIM),
	R("model.ffn", FFN),
	R("model.vocab", VOCAB),
	M("model.tied", TIED, "yes=on no=off model=-"),
	R("data.seq", SEQ),
	M("data.packing", PACKED, "packed=on bestfit=on padded=off split=off"),
	R("train.rows", MICRO_BATCH),
	R("train.micro-batches", ACCUMULATION),
	M("train.precision", DTYPE, "bf16=bf16 fp32=fp32"),
	R("mesh.tp", TP),
	R("mesh.cp", CP),
	R("mesh.pp", PP),
	R("mesh.ranks", DEVICES),
	M("pass.pp", PP_SCHEDULE,
	  "gpipe=gpipe 1f1b=1f1b interleaved=interleaved zb-h1=zero-bubble zb-h2=zero-bubble *=other"),
	R("pass.tp-sequence", SEQUENCE_PARALLEL),
	R("pass.overlap", GRAD_OVERLAP),
	M("pass.reduce-dtype", GRAD_REDUCE, "fp32=fp32 bf16=bf16"),
	M("pass.zero", ZERO, "off=0 1=1 2=2 3=3"),
	M("pass.fp8", FP8, "off=off current=tensorwise delayed=delayed rowwise=rowwise rowwise-hp=rowwise"),
	R("pass.fp8-scale-precompute", FP8_PRECOMPUTE),
	M("pass.attention", ATTENTION, "flash=flash eager=eager"),
	M("pass.zero-reshard", RESHARD, "forward=on backward=off step=off"),
	M("pass.tp-async", TP_OVERLAP, "0=off *=on"),
	M("optim.master", PARAM_DTYPE, "fp32=fp32 split=fp32 none=bf16"),
	M("optim.moments", MOMENTS, "fp32=fp32 bf16=bf16"),
	R("optim.clip", CLIP),
	M("checkpoint.every", CHECKPOINT_EVERY, "0=- *=-"),
	R("checkpoint.async", CHECKPOINT_ASYNC),
	R("log.every", LOG_EVERY),
	R("pass.merge-qkv", MERGED_QKV),
	M("pass.fuse-loss", COMPILE_LOSS, "0=off auto=- *=on"),
	M("pass.fuse-rope", FUSED_ROPE, "yes=on no=off auto=-"),
	M("pass.recompute", RECOMPUTE, "none=none selective=selective full=full auto=-"),
	R("pass.recompute-layers", RECOMPUTE_LAYERS), /* 0: all, as where it is not said */
	R("pass.fused-optimizer", OPTIMIZER_FUSED),
	R("pass.optimizer-in-backward", OPTIMIZER_IN_BACKWARD),
	FO_FORM_END,
};

/* "k" and "M" as the run file's lengths have them. */
static double length_of(const char *text)
{
	char *end;
	double v = strtod(text, &end);
	if (end == text)
		return NAN;
	if (*end == 'k' || *end == 'K')
		v *= 1024;
	return v;
}

/* A number above 0 that the file states; 0: none is. */
static double stated(const struct fo_reading *r, const char *key)
{
	double n = fo_reading_number(r, key);
	return n > 0 ? n : 0;
}

/* `train` would refuse the file; the first reason counts. */
static void refuse(struct fo_job *job, const char *what, const char *mend)
{
	if (job->refused)
		return;
	job->refused = what;
	job->refused_try = mend;
}

/* Ranks that the file itself is for: mesh.ranks, or what its axes come to. */
static double ranks_of(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	const struct fo_conf_entry *e = fo_reading_find(r, "mesh.pp|mesh.shard|mesh.replicate|mesh.cp|mesh.tp");
	double all = fo_job_or(job, FO_JOB_TP, 1) * fo_job_or(job, FO_JOB_CP, 1) * fo_job_or(job, FO_JOB_PP, 1) *
		     fmax(1, stated(r, "mesh.shard")) * fmax(1, stated(r, "mesh.replicate"));
	if (e && all > 1 && !fo_job_known(job, FO_JOB_DEVICES))
		fo_reading_state(r, FO_JOB_DEVICES, all, e);
	return fo_job_or(job, FO_JOB_DEVICES, 1);
}

/* Ranks share the rows of a micro-batch, and a job counts those of one rank. `dp`: ranks with rows of their own. */
static void rows_of(struct fo_reading *r, double dp)
{
	struct fo_job *job = r->job;
	struct fo_arena *a = &job->arena;
	const struct fo_conf_entry *e = fo_reading_find(r, "train.rows"),
				   *step = fo_reading_find(r, "train.batch-rows");
	bool chosen = stated(r, "train.batch-rows") > 0; /* how micro-batches divide the step is chosen later */
	double shared = chosen ? stated(r, "train.batch-rows") : fmax(1, stated(r, "train.rows"));
	struct fo_job_value *micro = &job->value[FO_JOB_MICRO_BATCH], *times = &job->value[FO_JOB_ACCUMULATION];
	if (chosen) {
		fo_reading_state(r, FO_JOB_GLOBAL_BATCH, shared, step);
		if (micro->origin != FO_JOB_GIVEN)
			*micro = (struct fo_job_value){ .number = NAN, .origin = FO_JOB_AUTO };
		if (times->origin != FO_JOB_GIVEN)
			*times = (struct fo_job_value){ .number = NAN, .origin = FO_JOB_AUTO };
	}
	if (!(dp > 1) || dp != floor(dp) || micro->origin == FO_JOB_GIVEN)
		return;
	if (fmod(shared, dp) != 0) {
		bool grouped = fo_job_or(job, FO_JOB_DEVICES, 1) > dp;
		const char *key = chosen ? "train.batch-rows" : "train.rows";
		double below = floor(shared / dp) * dp;
		const char *near = fo_arena_printf(a, "%s=%.15g", key, below + dp);
		if (below > 0)
			near = fo_arena_printf(a, "%s=%.15g or %.15g", key, below, below + dp);
		refuse(job,
		       fo_arena_printf(a, "%.15g %s cannot share the rows of a %s evenly, %s=%.15g", dp,
				       grouped ? "groups of ranks" : "ranks", chosen ? "step" : "micro-batch", key,
				       shared),
		       fo_arena_printf(a, "the nearest that can be shared: %s", near));
	} else if (!chosen && e) {
		*micro = (struct fo_job_value){ .number = NAN };
		fo_reading_state(r, FO_JOB_MICRO_BATCH, shared / dp, e);
	}
}

/* What ranks of a shard group share, as settle_mesh of src/program/run.c has it: pass.zero counts where mesh.shard or
 * mesh.cp makes a group, and 1 and 2 make one themselves. */
static void sharing_of(struct fo_reading *r, double dp)
{
	struct fo_job *job = r->job;
	const struct fo_conf_entry *shard = fo_reading_find(r, "mesh.shard"),
				   *replicate = fo_reading_find(r, "mesh.replicate");
	struct fo_job_value *zero = &job->value[FO_JOB_ZERO];
	double s = stated(r, "mesh.shard"), copies = stated(r, "mesh.replicate");
	if (s > 0)
		fo_reading_state(r, FO_JOB_DP_SHARD, s, shard);
	if (copies > 0)
		fo_reading_state(r, FO_JOB_DP_REPLICATE, copies, replicate);
	else if (s > 0 && fmod(dp, s) == 0)
		fo_reading_imply(r, FO_JOB_DP_REPLICATE, dp / s, "mesh.replicate");
	if (s > 0 && copies > 0 && dp == floor(dp) && s * copies != dp)
		refuse(job,
		       fo_arena_printf(&job->arena,
				       "mesh.shard=%.15g x mesh.replicate=%.15g are not the %.15g data-parallel ranks "
				       "of mesh.ranks",
				       s, copies, dp),
		       fo_arena_printf(&job->arena, "leave one of them out, or make their product %.15g", dp));
	if (zero->origin == FO_JOB_GIVEN)
		return;
	bool asked = zero->origin == FO_JOB_STATED && (zero->number == 1 || zero->number == 2);
	double group = fo_job_number(job, FO_JOB_DP_SHARD);
	if (isnan(group) && copies > 0)
		group = dp / copies;
	if (isnan(group) && asked)
		return;
	if (isnan(group))
		fo_reading_imply(r, FO_JOB_DP_SHARD, group = 1, "mesh.shard");
	if (group == 1 && !(fo_job_or(job, FO_JOB_CP, 1) > 1)) {
		*zero = (struct fo_job_value){ .number = NAN };
		fo_reading_imply(r, FO_JOB_ZERO, 0, "mesh.shard");
	} else {
		fo_reading_imply(r, FO_JOB_ZERO, 3, "pass.zero");
	}
}

/* Schedule and chunks of a pipeline. */
static void pipeline_of(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	const struct fo_conf_entry *parts = fo_reading_find(r, "pass.pp-chunks");
	double pp = fo_job_or(job, FO_JOB_PP, 1), schedule = fo_job_or(job, FO_JOB_PP_SCHEDULE, FO_JOB_SCHEDULE_1F1B);
	double usual = schedule == FO_JOB_SCHEDULE_INTERLEAVED ? 2 : 1, chunks = stated(r, "pass.pp-chunks");
	if (!(pp > 1))
		return;
	if (chunks > 0)
		fo_reading_state(r, FO_JOB_PP_VIRTUAL, chunks, parts);
	else
		fo_reading_imply(r, FO_JOB_PP_VIRTUAL, usual, "pass.pp-chunks");
	chunks = fo_job_or(job, FO_JOB_PP_VIRTUAL, usual);
	if (usual == 1 && chunks > 1)
		refuse(job,
		       fo_arena_printf(&job->arena,
				       "pass.pp-chunks=%.15g: of the schedules, interleaved alone has "
				       "several parts of the model on a stage",
				       chunks),
		       "set pass.pp=interleaved, or leave pass.pp-chunks out");
	if (usual == 2 && chunks == 1)
		refuse(job, "pass.pp=interleaved has at least two parts of the model on a stage, pass.pp-chunks=1",
		       "set pass.pp-chunks=2, or pass.pp=1f1b");
}

static void mesh_of(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	double ranks = ranks_of(r);
	double dp = ranks /
		    (fo_job_or(job, FO_JOB_TP, 1) * fo_job_or(job, FO_JOB_CP, 1) * fo_job_or(job, FO_JOB_PP, 1));
	pipeline_of(r);
	if (fo_job_or(job, FO_JOB_TP, 1) > 1 && fo_job_or(job, FO_JOB_SEQUENCE_PARALLEL, 1) != 0)
		fo_reading_imply(r, FO_JOB_TP_OVERLAP, 1, "pass.tp-async");
	if (!r->conf->entries || !(dp <= 1e9)) /* no file: the options are the job; or an axis of none */
		return;
	rows_of(r, dp);
	sharing_of(r, dp);
}

/* Dimensions that replace the model's, 0: none, and what follows from them, as fo_run_model has it. */
static void shape_of(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	static const enum fo_job_setting shape[] = { FO_JOB_LAYERS,   FO_JOB_HIDDEN, FO_JOB_HEADS, FO_JOB_KV_HEADS,
						     FO_JOB_HEAD_DIM, FO_JOB_FFN,    FO_JOB_VOCAB };
	for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
		if (fo_job_is(job, shape[i], 0))
			job->value[shape[i]] = (struct fo_job_value){ .number = NAN };
	const struct fo_conf_entry *heads = fo_reading_find(r, "model.heads"),
				   *wide = fo_reading_find(r, "model.hidden|model.heads");
	const char *name = job->value[FO_JOB_MODEL].text;
	const struct fo_model *m = fo_model_preset_named(name ? name : "flatout-134m");
	double n = fo_job_number(job, FO_JOB_HEADS), hidden = fo_job_number(job, FO_JOB_HIDDEN);
	if (heads && !isnan(n) && isnan(fo_job_number(job, FO_JOB_KV_HEADS)))
		fo_reading_state(r, FO_JOB_KV_HEADS, n, heads);
	if (!wide || !m || !isnan(fo_job_number(job, FO_JOB_HEAD_DIM)) || (isnan(n) && isnan(hidden)))
		return;
	hidden = isnan(hidden) ? (double)m->hidden : hidden;
	fo_reading_state(r, FO_JOB_HEAD_DIM, floor(hidden / (isnan(n) ? (double)m->heads : n)), wide);
}

static void skipped_of(struct fo_reading *r)
{
	const struct fo_conf_entry *e = fo_reading_find(r, "pass.fp8-skip-first|pass.fp8-skip-last");
	double n = stated(r, "pass.fp8-skip-first") + stated(r, "pass.fp8-skip-last");
	if (e && n > 0)
		fo_reading_state(r, FO_JOB_FP8_SKIPPED, n, e);
}

/* `train` refuses every other key. */
static bool option_of_run(const char *key) { return fo_opt_find(fo_run_options, key) >= 0; }

static void finish_flatout(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	shape_of(r);
	skipped_of(r);
	mesh_of(r);
	const struct fo_conf_entry *seq = fo_reading_find(r, "data.seq"),
				   *every = fo_reading_find(r, "checkpoint.every");
	if (seq && length_of(seq->value) >= 1)
		fo_reading_state(r, FO_JOB_SEQ, length_of(seq->value), seq);
	if (every && fo_reading_number(r, "checkpoint.every") > 0)
		fo_reading_state(r, FO_JOB_CHECKPOINT_EVERY, fo_reading_number(r, "checkpoint.every"), every);
	for (const struct fo_form_row *row = flatout; row->key; row++) {
		int at = fo_opt_find(fo_run_options, row->key);
		struct fo_job_value *v = &job->value[row->setting];
		const char *text = at < 0 ? NULL : fo_run_options[at].dfl;
		double number;
		if (!text || !*text || v->origin != FO_JOB_UNKNOWN || row->setting == FO_JOB_ZERO)
			continue;
		enum fo_job_setting s = (enum fo_job_setting)row->setting;
		enum fo_job_kind kind = fo_job_setting_row[s].kind;
		if (kind == FO_JOB_TEXT)
			*v = (struct fo_job_value){
				.origin = FO_JOB_DEFAULT, .number = NAN, .text = text, .key = row->key
			};
		else if (kind == FO_JOB_SWITCH && (!strcmp(text, "yes") || !strcmp(text, "no")))
			fo_reading_imply(r, s, !strcmp(text, "yes"), row->key);
		else if (kind == FO_JOB_WORD && fo_form_word_number(s, text, strlen(text), &number))
			fo_reading_imply(r, s, number, row->key);
		else if (kind != FO_JOB_SWITCH && kind != FO_JOB_WORD && length_of(text) > 0)
			fo_reading_imply(r, s, length_of(text), row->key);
	}
	static const enum fo_job_setting one[] = { FO_JOB_TP, FO_JOB_PP,      FO_JOB_CP,
						   FO_JOB_EP, FO_JOB_DEVICES, FO_JOB_NODES };
	for (size_t i = 0; i < sizeof one / sizeof *one; i++)
		fo_reading_imply(r, one[i], 1, NULL); /* a run file without a mesh has one rank */
	fo_reading_imply(r, FO_JOB_CHECKPOINT, 1, "checkpoint.last");
	if (fo_job_known(job, FO_JOB_MODEL))
		*r->model_name = job->value[FO_JOB_MODEL].text;
}

const struct fo_form fo_form_flatout = {
	.name = { "flatout", "Flatout (run.yaml)", "of this release" },
	.rows = { flatout },
	.knows = option_of_run,
	.signature = "run.dir data.path train.micro-batches pass.merge-qkv train.rows run.seed optim.master",
	.finish = finish_flatout,
};
