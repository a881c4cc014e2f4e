/* Megatron-LM: arguments, its YAML files and its printed arguments; defaults of Megatron Core 0.20.0, commit d98e8a64
 * of 2026-08-22 (megatron/training/arguments.py and the dataclasses that it makes arguments of). NeMo 1: YAML; of its
 * defaults only those that all its releases have. Megatron-Bridge and NeMo 2: printed or written recipes. */
#include "base/text.h"
#include "job/forms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define R FO_FORM_ROW
#define M FO_FORM_MAP
#define D FO_FORM_DEFAULT

/* Names that all three share. */
static const struct fo_form_row core[] = {
	R("num_layers", LAYERS),
	R("hidden_size", HIDDEN),
	R("ffn_hidden_size", FFN),
	R("num_attention_heads", HEADS),
	R("kv_channels", HEAD_DIM),
	R("num_query_groups", KV_HEADS),
	R("vocab_size", VOCAB),
	R("num_experts", EXPERTS),
	R("num_moe_experts", EXPERTS),
	R("moe_router_topk", EXPERTS_ACTIVE),
	R("moe_ffn_hidden_size", EXPERT_FFN),
	R("mtp_num_layers", MTP),
	R("seq_length", SEQ),
	R("micro_batch_size", MICRO_BATCH),
	R("global_batch_size", GLOBAL_BATCH),
	R("rampup_batch_size", BATCH_RAMP),
	R("max_position_embeddings", MAX_POSITION),
	R("tensor_model_parallel_size", TP),
	R("sequence_parallel", SEQUENCE_PARALLEL),
	R("pipeline_model_parallel_size", PP),
	R("virtual_pipeline_model_parallel_size", PP_VIRTUAL),
	R("context_parallel_size", CP),
	R("expert_model_parallel_size", EP),
	R("expert_tensor_parallel_size", ETP),
	R("expert_tensor_parallel_degree", ETP),
	R("overlap_moe_expert_parallel_comm", EP_OVERLAP),
	R("num_distributed_optimizer_instances", DP_REPLICATE),
	R("deterministic_mode", DETERMINISTIC),
	M("fp16", DTYPE, "true=fp16 false=-"),
	M("bf16", DTYPE, "true=bf16 false=-"),
	R("overlap_grad_reduce", GRAD_OVERLAP),
	R("overlap_param_gather", PARAM_OVERLAP),
	R("tp_comm_overlap", TP_OVERLAP),
	R("overlap_p2p_comm", PP_OVERLAP),
	R("decoder_first_pipeline_num_layers", PP_FIRST_LAYERS),
	R("decoder_last_pipeline_num_layers", PP_LAST_LAYERS),
	R("num_layers_in_first_pipeline_stage", PP_FIRST_LAYERS),
	R("num_layers_in_last_pipeline_stage", PP_LAST_LAYERS),
	R("account_for_embedding_in_pipeline_split", PP_EMBEDDING_COUNTS),
	R("account_for_loss_in_pipeline_split", PP_LOSS_COUNTS),
	R("pipeline_model_parallel_layout", PP_LAYOUT),
	R("use_tp_pp_dp_mapping", PP_NEAR),
	R("gradient_accumulation_fusion", FUSED_GRAD_ACCUMULATION),
	R("apply_rope_fusion", FUSED_ROPE),
	M("recompute_granularity", RECOMPUTE, "full=full selective=selective null=none none=none"),
	R("recompute_method", RECOMPUTE_OPTION),
	R("cpu_offloading", OFFLOAD_PARAMS),
	R("clip_grad", CLIP),
	R("async_save", CHECKPOINT_ASYNC),
	R("save_interval", CHECKPOINT_EVERY),
	R("log_interval", LOG_EVERY),
	R("num_workers", LOADER_WORKERS),
	R("manual_gc", GC_MANUAL),
	R("fp8_param_gather", FP8_GATHER),
	R("fp8_param", FP8_GATHER),
	R("enable_cuda_graph", CUDA_GRAPHS),
	R("external_cuda_graph", CUDA_GRAPHS),
	M("cuda_graph_impl", CUDA_GRAPHS, "none=off *=on"),
	R("cross_entropy_loss_fusion", COMPILE_LOSS),
	M("attention_backend", ATTENTION, "auto=- flash=flash fused=fused unfused=eager local=eager *=-"),
	R("world_size", DEVICES),
	FO_FORM_END,
};

static const struct fo_form_row arguments[] = {
	R("padded_vocab_size", VOCAB),
	R("zero_stage", ZERO),
	M("use_flash_attn", ATTENTION, "true=flash false=-"),
	M("no_gradient_accumulation_fusion", FUSED_GRAD_ACCUMULATION, "true=off false=on"),
	M("no_rope_fusion", FUSED_ROPE, "true=off false=on"),
	M("no_bias_swiglu_fusion", FUSED_ACTIVATION, "true=off false=-"),
	M("no_bias_gelu_fusion", FUSED_ACTIVATION, "true=off false=-"),
	M("no_overlap_p2p_communication", PP_OVERLAP, "true=off false=-"),
	M("recompute_activations", RECOMPUTE, "true=selective false=-"),
	R("recompute_modules", RECOMPUTE_OPTION),
	R("optimizer_cpu_offload", OFFLOAD_OPTIMIZER),
	M("exp_avg_dtype", MOMENTS, "fp32=fp32 bf16=bf16 fp8=8bit *=-"),
	FO_FORM_SCALED("ddp_bucket_size", BUCKET_BYTES, 4), /* elements; gradients are kept in fp32 */
	R("optimizer", OPTIMIZER),
	R("profile", PROFILING),
	M("no_load_optim", LOAD_OPTIMIZER, "true=off false=on"),
	M("finetune", LOAD_OPTIMIZER, "true=off false=-"),
	M("load_optim", LOAD_OPTIMIZER, NULL),
	M("save", CHECKPOINT, "null=off *=on"),
	FO_FORM_END,
};

static const char ignored[] =
	"test_type launcher metrics* n_repeat lr lr_* min_lr decoupled_* weight_decay* adam_* sgd_* "
	"*_dir *_path tensorboard* wandb* log_* eval* data* *_data* tokenizer* tiktoken* vocab_* "
	"merge_* train_* split seed* init_method* load save* ckpt* dist_ckpt* no_load_rng no_save* "
	"use_persistent* timing_* exit_* distributed_* rotary* rope* position_embedding* "
	"no_position_embedding normalization norm_epsilon layernorm* apply_layernorm_1p swiglu "
	"squared_relu quick_geglu disable_bias_linear add_bias_linear add_qkv_bias qk_layernorm "
	"untie_embeddings* share_embeddings* attention_dropout hidden_dropout transformer_impl "
	"use_mcore_models use_legacy* moe_* no_masked_softmax_fusion no_mmap* no_create_attention* "
	"mock_data accumulate_allreduce* grad_reduce_in_bf16 fp8_* fp4_* calculate_per_token_loss "
	"empty_unused* profile_* use_distributed_optimizer group_query_attention use_torch_fsdp2 "
	"use_megatron_fsdp use_custom_fsdp data_parallel_sharding_strategy num_layers_per_virtual* "
	"num_virtual_stages* recompute_* first_last_layers_bf16 num_layers_at_* multi_latent_attention q_lora_rank "
	"kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim mscale* make_vocab* "
	"step_batch_size_schedule manual_gc_interval cross_entropy_fusion_impl "
	"override_opt* use_checkpoint* mtp_* initial_loss_scale loss_scale* bf16* hysteresis "
	"attention_softmax* apply_query_key* end_weight* start_weight* use_cpu_init* "
	"create_attention* reset_* eod_mask* num_dataset* local_rank rank onnx* fp16_lm* verbosity "
	"masked_softmax* bias_* persist_layer* kv_channels launch.* overlap_param_gather_with* "
	"align_* cp_comm_type overlap_grad_* "
	/* Inference, reinforcement learning and retrieval beside training, watching and restarting, other data sets. */
	"inference_* decode_only_cuda_graphs enable_chunked_prefill num_speculative_tokens use_same_sampling_seed* "
	"mamba_inference* max_tokens_to_oom output_bert_embeddings bert_embedder_type rl_* grpo_* langrl_* "
	"refit_method "
	"yarn_* no_yarn_* use_rotary_position_embeddings use_rope_scaling no_rope_freq bert_no_binary_head bert_load "
	"run_workload_inspector_server inprocess_* no_one_logger one_logger_* app_tag_* enable_ft_package "
	"calc_ft_timeouts ft_* apply_wd_to_qk_layernorm muon_momentum muon_nesterov muon_scale_mode "
	"muon_extra_scale_factor muon_coefficient_type lion_* no_weight_decay_cond_type result_rejected_tracker* "
	"check_for_large_grads no_check_for_nan* dump_param_to_param_group_map no_persist_layer_norm warmup "
	"override_ckpt_iteration use_dist_ckpt min_loss_scale ddp_average_in_collective no_align_* "
	"phase_transition_iterations sample_rate mask_prob short_seq_prob allow_ambiguous_pad_tokens fim_* "
	"adlr_* ict_* "
	"biencoder_* query_in_block_prob use_one_sent_docs retriever_* indexer_* head_lr_mult enable_experimental "
	"enable_msc disable_msc sft_tokenizer_prompt_format";

static const struct fo_form_default defaults[] = {
	D(TP, "1"),
	D(PP, "1"),
	D(PP_NEAR, "off"),
	D(CP, "1"),
	D(EP, "1"),
	D(SEQUENCE_PARALLEL, "off"),
	D(TP_OVERLAP, "off"),
	D(EP_OVERLAP, "off"),
	D(ZERO, "0"),
	D(GRAD_OVERLAP, "off"),
	D(PARAM_OVERLAP, "off"),
	D(PARAM_DTYPE, "fp32"),
	D(MOMENTS, "fp32"),
	D(OFFLOAD_OPTIMIZER, "off"),
	D(OFFLOAD_PARAMS, "off"),
	D(FP8_GATHER, "off"),
	D(RECOMPUTE, "none"),
	D(COMPILE_LOSS, "off"),
	D(MERGED_QKV, "on"),
	D(FUSED_ROPE, "on"),
	D(FUSED_NORM, "on"),
	D(FUSED_ACTIVATION, "on"),
	D(FUSED_GRAD_ACCUMULATION, "on"),
	D(CUDA_GRAPHS, "off"),
	D(DETERMINISTIC, "off"),
	D(OPTIMIZER, "adam"),
	D(OPTIMIZER_FUSED, "on"),
	D(CLIP, "1"),
	D(PROFILING, "off"),
	D(LOG_EVERY, "100"),
	D(CHECKPOINT, "off"),
	D(CHECKPOINT_ASYNC, "off"),
	D(LOAD_OPTIMIZER, "on"),
	D(LOADER_WORKERS, "2"),
	D(LOADER_PINNED, "on"),
	D(GC_MANUAL, "off"),
	D(PACKED, "on"), /* GPTDataset cuts documents into sequences without padding */
	FO_FORM_DEFAULTS_END,
};

/* A setting that follows from one key where it stands, else from the default. */
static void follow(struct fo_reading *r, enum fo_job_setting s, double number, const struct fo_conf_entry *e,
		   const char *key)
{
	if (e)
		fo_reading_state(r, s, number, e);
	else
		fo_reading_imply(r, s, number, key);
}

/* ---- the model ---- */

/* Tokenizers whose size is part of their name; sizes as in the tokenizers' own files. */
static const struct {
	const char *word;
	double vocab;
} tokenizer[] = {
	{ "GPT2BPETokenizer", 50257 }, { "Llama2Tokenizer", 32000 }, { "nemotron_2_256k", 256000 },
	{ "Llama3Tokenizer", 128256 }, { "Llama-3", 128256 },        { "Meta-Llama-3", 128256 },
	{ "Llama-2", 32000 },          { "Mixtral-8x7B", 32000 },    { "Qwen2.5", 152064 },
	{ "DeepSeek-V3", 129280 },
};

static void vocabulary(struct fo_reading *r)
{
	if (fo_job_known(r->job, FO_JOB_VOCAB))
		return;
	const char *where[] = { "tokenizer_type|tokenizer.type|tokenizer.tokenizer_type",
				"tokenizer_model|tokenizer.model|"
				"tokenizer.tokenizer_model|tokenizer_name_or_path" };
	for (int k = 0; k < 2; k++)
		for (size_t i = 0; i < sizeof tokenizer / sizeof *tokenizer; i++)
			if (fo_reading_says(r, where[k], tokenizer[i].word)) {
				fo_reading_state(r, FO_JOB_VOCAB, tokenizer[i].vocab, fo_reading_find(r, where[k]));
				return;
			}
	/* A vocabulary with merges and nothing else is GPT-2's byte-pair encoding. */
	const struct fo_conf_entry *merges = fo_reading_find(r, "merge_file");
	if (merges && fo_reading_find(r, "vocab_file") && !fo_reading_find(r, "tokenizer_type"))
		fo_reading_state(r, FO_JOB_VOCAB, 50257, merges);
}

static bool is_swiglu(const struct fo_reading *r)
{
	return fo_reading_on(r, "swiglu|gated_linear_unit|use_swiglu|quick_geglu") ||
	       fo_reading_says(r, "activation", "glu");
}

/* Megatron-LM takes groups from --num-query-groups (1 unless stated) with --group-query-attention alone; elsewhere the
 * number of groups is the switch. */
static void key_heads(struct fo_reading *r, double heads)
{
	const struct fo_conf_entry *groups = fo_reading_find(r, "num_query_groups");
	const struct fo_conf_entry *grouped = fo_reading_find(r, "group_query_attention");
	bool on = groups && groups->kind != FO_CONF_NULL;
	if (r->form == &fo_form_megatron)
		on = grouped && fo_reading_on(r, "group_query_attention");
	if (on && !groups)
		fo_reading_state(r, FO_JOB_KV_HEADS, 1, grouped);
	if (on || r->job->value[FO_JOB_KV_HEADS].origin == FO_JOB_GIVEN)
		return;
	r->job->value[FO_JOB_KV_HEADS] = (struct fo_job_value){ .number = NAN };
	fo_reading_imply(r, FO_JOB_KV_HEADS, heads, "num_query_groups");
}

/* Feed-forward widths as in validate_args: 4 h, or 8/3 h in steps of 64 with SwiGLU. */
static void widths(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	double hidden = fo_job_number(job, FO_JOB_HIDDEN), heads = fo_job_number(job, FO_JOB_HEADS);
	bool gated = is_swiglu(r);
	follow(r, FO_JOB_GATED, gated, fo_reading_find(r, "swiglu|gated_linear_unit|activation"), "swiglu");
	double ffn = gated ? floor(4 * hidden * 2 / 3 / 64) * 64 : 4 * hidden;
	if (!isnan(ffn))
		fo_reading_imply(r, FO_JOB_FFN, ffn, "ffn_hidden_size");
	if (hidden > 0 && heads > 0)
		fo_reading_imply(r, FO_JOB_HEAD_DIM, floor(hidden / heads), "kv_channels");
	key_heads(r, heads);
	const char *untie = "untie_embeddings_and_output_weights", *share = "share_embeddings_and_output_weights";
	const struct fo_conf_entry *shared = fo_reading_find(r, share), *untied = fo_reading_find(r, untie);
	if (shared)
		fo_reading_state(r, FO_JOB_TIED, fo_reading_on(r, share), shared);
	else
		follow(r, FO_JOB_TIED, !fo_reading_on(r, untie), untied, untie);
	if (fo_job_number(job, FO_JOB_EXPERTS) > 1) {
		fo_reading_imply(r, FO_JOB_EXPERTS_ACTIVE, 2, "moe_router_topk");
		fo_reading_imply(r, FO_JOB_EXPERT_FFN, fo_job_number(job, FO_JOB_FFN), "moe_ffn_hidden_size");
	}
}

static double at_least(double v, double least) { return v > least ? v : least; }

/* Biases, norms, positions: what struct fo_model has beyond the settings. */
static void structure(struct fo_reading *r)
{
	struct fo_model *m = r->shape;
	bool bias = fo_reading_find(r, "bias|add_bias_linear") ? fo_reading_on(r, "bias|add_bias_linear")
							       : !fo_reading_on(r, "disable_bias_linear");
	bool rope = fo_reading_says(r, "position_embedding_type", "rop") ||
		    fo_reading_on(r, "use_rotary_position_embeddings");
	bool none = fo_reading_says(r, "position_embedding_type", "none");
	m->attention_bias = bias || fo_reading_on(r, "add_qkv_bias|qkv_bias");
	m->output_bias = m->mlp_bias = bias;
	m->norm_bias = !fo_reading_says(r, "normalization", "rms");
	m->qk_norm = fo_reading_on(r, "qk_layernorm");
	m->learned_position = !rope && !none;
	m->rope.theta = at_least(fo_reading_number(r, "rotary_base"), 1) > 1 ? fo_reading_number(r, "rotary_base")
									     : 10000;
	m->rope.factor = 1;
	m->norm_eps = 1e-5;
	m->family = bias || m->norm_bias ? FO_FAMILY_GPT : FO_FAMILY_LLAMA;
	double shared = fo_reading_number(r, "moe_shared_expert_intermediate_size"),
	       expert = fo_job_number(r->job, FO_JOB_EXPERT_FFN);
	if (shared > 0 && expert > 0)
		m->shared_experts = (int64_t)fmin(shared / expert, 1e6);
	/* "([0]*3+[1]*58)": the dense layers come first. Any other pattern is not counted here. */
	const struct fo_conf_entry *freq = fo_reading_find(r, "moe_layer_freq");
	char after = 0;
	int dense = 0, sparse = 0;
	if (freq && sscanf(freq->value, "([0]*%d+[1]*%d%c", &dense, &sparse, &after) == 3 && after == ')')
		m->dense_layers = dense;
	else
		fo_reading_odd_model(r, "moe_layer_freq");
	fo_reading_odd_model(r, "hybrid_override_pattern|hybrid_layer_pattern|is_hybrid_model|"
				"experimental_attention_variant|linear_attention_type|heterogeneous_layers_config_path|"
				"window_size|vision_pretraining|language_model_type|moe_latent_size");
	if (r->conf->format == FO_CONF_ARGUMENTS)
		fo_reading_odd_model(r, "encoder_num_layers|decoder_num_layers|bert_load|mamba_state_dim|img_h|"
					"vision_model_type|retro_encoder_layers|encoder_seq_length");
	const struct fo_conf_entry *script = fo_reading_find(r, "launch.script");
	static const char *const other[] = { "bert", "t5", "mamba", "vlm", "vision", "hybrid", "retro", "multimodal" };
	for (size_t i = 0; script && i < sizeof other / sizeof *other; i++)
		if (fo_text_has_word(fo_text_file_name(script->value), other[i]))
			fo_reading_odd_model(r, "launch.script");
	if (!fo_reading_on(r, "multi_latent_attention"))
		return;
	static const struct {
		const char *key;
		size_t offset;
		double otherwise; /* MLATransformerConfig */
	} latent[] = {
		{ "q_lora_rank", offsetof(struct fo_model, q_lora), 0 },
		{ "kv_lora_rank", offsetof(struct fo_model, kv_lora), 512 },
		{ "qk_head_dim", offsetof(struct fo_model, qk_nope_dim), 128 },
		{ "qk_pos_emb_head_dim", offsetof(struct fo_model, qk_rope_dim), 64 },
		{ "v_head_dim", offsetof(struct fo_model, v_dim), 128 },
	};
	for (size_t i = 0; i < sizeof latent / sizeof *latent; i++) {
		double v = fo_reading_number(r, latent[i].key);
		if (!(v >= 0 && v < 1e9))
			v = latent[i].otherwise;
		*(int64_t *)((char *)m + latent[i].offset) = (int64_t)v;
	}
	m->family = FO_FAMILY_DEEPSEEK;
}

/* The embedding is padded so that tensor-parallel ranks share it evenly (--make-vocab-size-divisible-by, 128). */
static void pad(struct fo_reading *r)
{
	double vocab = fo_job_number(r->job, FO_JOB_VOCAB), tp = fo_job_or(r->job, FO_JOB_TP, 1);
	double unit = fo_reading_number(r, "make_vocab_size_divisible_by");
	unit = (unit >= 1 && unit < 1e6 ? unit : 128) * at_least(tp, 1);
	if (vocab > 0 && vocab < 1e9 && unit < 1e9)
		r->shape->vocab = (int64_t)(ceil(vocab / unit) * unit);
}

static void dropout(struct fo_reading *r, double otherwise)
{
	double hidden = fo_reading_number(r, "hidden_dropout"), attention = fo_reading_number(r, "attention_dropout");
	const struct fo_conf_entry *e = fo_reading_find(r, "hidden_dropout");
	if (isnan(hidden) || (attention > hidden && !isnan(attention)))
		e = fo_reading_find(r, "attention_dropout|hidden_dropout");
	double most = fmax(isnan(hidden) ? otherwise : hidden, isnan(attention) ? otherwise : attention);
	if (isnan(most))
		return;
	if (isnan(hidden) && isnan(attention))
		fo_reading_imply(r, FO_JOB_DROPOUT, most, "hidden_dropout");
	else if (e)
		fo_reading_state(r, FO_JOB_DROPOUT, most, e);
}

/* ---- Megatron-LM ---- */

/* Full and by blocks: that many layers of each chunk of the pipeline; uniform: all. */
static void recompute_layers(struct fo_reading *r)
{
	const struct fo_conf_entry *e = fo_reading_find(r, "recompute_num_layers|activations_checkpoint_num_layers");
	double n = fo_reading_number(r, "recompute_num_layers|activations_checkpoint_num_layers");
	struct fo_job *job = r->job;
	if (fo_job_is(job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL) &&
	    fo_reading_says(r, "recompute_method|activations_checkpoint_method", "block") && !isnan(n) && e)
		fo_reading_state(r, FO_JOB_RECOMPUTE_LAYERS,
				 n * fo_job_or(job, FO_JOB_PP, 1) * fo_job_or(job, FO_JOB_PP_VIRTUAL, 1), e);
}

static void low_precision(struct fo_reading *r)
{
	const struct fo_conf_entry *e = fo_reading_find(r, "fp8_format|fp8"),
				   *four = fo_reading_find(r, "fp4_format|fp4");
	bool on = e && e->kind != FO_CONF_NULL && strcasecmp(e->value, "false") && strcasecmp(e->value, "none");
	if (four && four->kind == FO_CONF_VALUE && strcasecmp(four->value, "none") &&
	    strcasecmp(four->value, "false")) {
		fo_reading_state(r, FO_JOB_FP8, FO_JOB_FP4_ON, four);
		return;
	}
	if (!on) {
		follow(r, FO_JOB_FP8, FO_JOB_FP8_OFF, e, "fp8_format");
		return;
	}
	double kind = FO_JOB_FP8_DELAYED; /* the default of --fp8-recipe */
	if (fo_reading_says(r, "fp8_recipe", "tensorwise"))
		kind = FO_JOB_FP8_TENSORWISE;
	else if (fo_reading_says(r, "fp8_recipe", "blockwise"))
		kind = FO_JOB_FP8_BLOCKWISE;
	else if (fo_reading_says(r, "fp8_recipe", "mxfp8"))
		kind = FO_JOB_FP8_MX;
	fo_reading_state(r, FO_JOB_FP8, kind, e);
	const struct fo_conf_entry *ends = fo_reading_find(r, "first_last_layers_bf16");
	if (ends && fo_reading_on(r, "first_last_layers_bf16")) {
		double first = fo_reading_number(r, "num_layers_at_start_in_bf16"),
		       last = fo_reading_number(r, "num_layers_at_end_in_bf16"); /* one each unless stated */
		first = isnan(first) ? 1 : first;
		last = isnan(last) ? 1 : last;
		fo_reading_state(r, FO_JOB_FP8_SKIPPED, first + last, ends);
	}
}

static void sharding(struct fo_reading *r)
{
	const struct fo_conf_entry *torch = fo_reading_find(r, "use_torch_fsdp2");
	const struct fo_conf_entry *fsdp = fo_reading_find(r, "use_megatron_fsdp|use_custom_fsdp");
	const struct fo_conf_entry *optimizer = fo_reading_find(r, "use_distributed_optimizer");
	if (torch && fo_reading_on(r, "use_torch_fsdp2")) {
		fo_reading_state(r, FO_JOB_ZERO, 3, torch);
	} else if (fsdp && fo_reading_on(r, "use_megatron_fsdp|use_custom_fsdp")) {
		const char *key = "data_parallel_sharding_strategy";
		double stage = fo_reading_says(r, key, "optim") ? 1 : 0;
		if (fo_reading_says(r, key, "optim_grads"))
			stage = 2;
		if (fo_reading_says(r, key, "optim_grads_params"))
			stage = 3;
		fo_reading_state(r, FO_JOB_ZERO, stage, fo_reading_find(r, key) ? fo_reading_find(r, key) : fsdp);
	} else if (optimizer && !fo_reading_find(r, "zero_stage")) {
		fo_reading_state(r, FO_JOB_ZERO,
				 fo_reading_on(r, "use_distributed_optimizer|ddp.use_distributed_optimizer"),
				 optimizer);
	} else if (torch && !fo_reading_find(r, "zero_stage")) {
		fo_reading_state(r, FO_JOB_ZERO, 0, torch);
	}
	if (fo_job_is(r->job, FO_JOB_ZERO, 3)) {
		fo_reading_imply(r, FO_JOB_RESHARD, 1, "data_parallel_sharding_strategy");
		fo_reading_imply(r, FO_JOB_PREFETCH, 1, "overlap_param_gather");
	}
}

/* Keys of Megatron and NeMo take the loss scale itself, not its power. */
static void takes_scale(struct fo_job *job)
{
	struct fo_job_value *v = &job->value[FO_JOB_LOSS_SCALE_POWER];
	v->power = v->key && !strstr(v->key, "power");
}

/* --bf16 keeps and reduces gradients in fp32 unless --grad-reduce-in-bf16; --fp16 only with
 * --accumulate-allreduce-grads-in-fp32. */
static void types(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	const struct fo_conf_entry *low = fo_reading_find(r, "grad_reduce_in_bf16");
	bool bf16 = fo_reading_on(r, "grad_reduce_in_bf16");
	bool fp32 = fo_reading_on(r, "accumulate_allreduce_grads_in_fp32|grad_reduce_in_fp32");
	fo_reading_imply(r, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32, "params_dtype");
	double type = FO_JOB_FP32;
	if (bf16)
		type = FO_JOB_BF16;
	else if (fo_job_is(job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16) && !fp32)
		type = FO_JOB_FP16;
	const struct fo_conf_entry *e = bf16 ? low : fo_reading_find(r, "accumulate_allreduce_grads_in_fp32|fp16|bf16");
	follow(r, FO_JOB_GRAD_REDUCE, type, e, "accumulate_allreduce_grads_in_fp32");
	follow(r, FO_JOB_GRAD_ACCUMULATE, type, e, "accumulate_allreduce_grads_in_fp32");
	double scale = fo_reading_number(r, "initial_loss_scale|native_amp_init_scale|fp16.initial_loss_scale");
	if (scale > 0)
		fo_reading_state(r, FO_JOB_LOSS_SCALE_POWER, log2(scale),
				 fo_reading_find(r, "initial_loss_scale|native_amp_init_scale"));
	else if (fo_job_is(job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16))
		fo_reading_imply(r, FO_JOB_LOSS_SCALE_POWER, 32, "initial_loss_scale");
	takes_scale(job);
}

/* "0:16 2.4B:320 12B:1536": from that many tokens on, that batch. The last one is what the run ends with. */
static void ramp(struct fo_reading *r)
{
	const struct fo_conf_entry *e = fo_reading_find(r, "step_batch_size_schedule");
	if (!e || e->kind == FO_CONF_NULL || !strchr(e->value, ':'))
		return;
	fo_reading_state_text(r, FO_JOB_BATCH_RAMP, e->value, e);
	double last = strtod(strrchr(e->value, ':') + 1, NULL);
	if (!fo_reading_find(r, "global_batch_size") && last >= 1 && last < 1e9)
		fo_reading_state(r, FO_JOB_GLOBAL_BATCH, last, e);
}

static void pipeline(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	double pp = fo_job_or(job, FO_JOB_PP, 1), layers = fo_job_number(job, FO_JOB_LAYERS);
	const struct fo_conf_entry *e = fo_reading_find(
		r, "num_layers_per_virtual_pipeline_stage|num_virtual_stages_per_pipeline_rank");
	double per = fo_reading_number(r, "num_layers_per_virtual_pipeline_stage");
	double stages = fo_reading_number(r, "num_virtual_stages_per_pipeline_rank");
	if (per > 0 && layers > 0 && pp > 0)
		stages = floor(layers / pp / per);
	if (e && stages >= 1)
		fo_reading_state(r, FO_JOB_PP_VIRTUAL, stages, e);
	const char *key = "virtual_pipeline_model_parallel_size";
	fo_reading_imply(r, FO_JOB_PP_VIRTUAL, 1, key);
	bool interleaved = fo_job_number(job, FO_JOB_PP_VIRTUAL) > 1;
	fo_reading_imply(r, FO_JOB_PP_SCHEDULE, interleaved ? FO_JOB_SCHEDULE_INTERLEAVED : FO_JOB_SCHEDULE_1F1B, key);
	/* Without chunks validate_args turns the overlap of transfers off. */
	if (r->form == &fo_form_megatron && !interleaved && !job->partial)
		job->value[FO_JOB_PP_OVERLAP] = (struct fo_job_value){ .origin = FO_JOB_DEFAULT,
								       .number = 0,
								       .key = key };
	else if (r->form == &fo_form_megatron)
		fo_reading_imply(r, FO_JOB_PP_OVERLAP, 1, "overlap_p2p_comm");
	fo_reading_imply(r, FO_JOB_ETP, fo_job_or(job, FO_JOB_TP, 1), "expert_tensor_parallel_size");
}

/* Transformer Engine chooses flash or fused attention; the local implementation has neither without
 * --use-flash-attn. */
static void attention(struct fo_reading *r)
{
	bool local = fo_reading_says(r, "transformer_impl", "local");
	fo_reading_imply(r, FO_JOB_ATTENTION, local ? FO_JOB_ATTENTION_EAGER : FO_JOB_ATTENTION_FLASH,
			 "attention_backend");
}

static void common(struct fo_reading *r)
{
	vocabulary(r);
	widths(r);
	structure(r);
	pad(r);
	low_precision(r);
	sharding(r);
	pipeline(r);
	recompute_layers(r);
}

static void finish_megatron(struct fo_reading *r)
{
	common(r);
	types(r);
	ramp(r);
	attention(r);
	dropout(r, 0.1);
}

const struct fo_form fo_form_megatron = {
	.name = { "megatron", "Megatron-LM", "Core 0.20.0" },
	.rows = { core, arguments },
	.defaults = { defaults },
	.ignored = { ignored },
	.prefix = "MODEL_ARGS. language_model. model_parallel. args.",
	.signature =
		"swiglu use_mcore_models use_distributed_optimizer train_iters untie_embeddings_and_output_weights "
		"transformer_impl tokenizer_type lr_decay_style MODEL_ARGS.--lr",
	.finish = finish_megatron,
	.dashes = true,
	.alone = true,
};

/* ---- NeMo 1 ---- */

static const struct fo_form_default nemo_defaults[] = {
	D(TP, "1"),          D(PP, "1"),      D(CP, "1"),           D(EP, "1"),           D(MOMENTS, "fp32"),
	D(MERGED_QKV, "on"), D(PACKED, "on"), D(RECOMPUTE, "none"), FO_FORM_DEFAULTS_END,
};

static const struct fo_form_row nemo[] = {
	R("trainer.devices", PER_NODE),
	R("trainer.num_nodes", NODES),
	M("trainer.precision", DTYPE,
	  "bf16=bf16 bf16-mixed=bf16 bf16-true=bf16 16=fp16 16-mixed=fp16 32=fp32 32-true=fp32"),
	R("trainer.gradient_clip_val", CLIP),
	R("trainer.log_every_n_steps", LOG_EVERY),
	R("exp_manager.create_checkpoint_callback", CHECKPOINT),
	R("exp_manager.checkpoint_callback_params.every_n_train_steps", CHECKPOINT_EVERY),
	R("encoder_seq_length", SEQ),
	R("data.seq_length", SEQ),
	R("data.num_workers", LOADER_WORKERS),
	R("data.pin_memory", LOADER_PINNED),
	R("ub_tp_comm_overlap", TP_OVERLAP),
	M("activations_checkpoint_granularity", RECOMPUTE, "full=full selective=selective null=none"),
	R("activations_checkpoint_method", RECOMPUTE_OPTION),
	M("optim.name", ZERO, "distributed_fused_adam=1 mcore_distributed_optim=1 *=0"),
	R("optim.overlap_grad_sync", GRAD_OVERLAP),
	R("optim.overlap_param_sync", PARAM_OVERLAP),
	M("optim.grad_sync_dtype", GRAD_REDUCE, "bf16=bf16 bf16-mixed=bf16 fp32=fp32 32=fp32 fp16=fp16 *=-"),
	FO_FORM_SCALED("optim.bucket_cap_mb", BUCKET_BYTES, 1048576),
	R("nsys_profile.enabled", PROFILING),
	M("gc_interval", GC_MANUAL, "0=off *=on"),
	R("fp8_params", FP8_GATHER),
	R("bias_activation_fusion", FUSED_ACTIVATION),
	FO_FORM_END,
};

static const char nemo_ignored[] =
	"run.* trainer.accelerator trainer.logger trainer.enable_checkpointing "
	"trainer.use_distributed_sampler trainer.max_* trainer.val_* trainer.limit_* "
	"trainer.accumulate_grad_batches trainer.benchmark trainer.enable_model_summary exp_manager.* "
	"data.* optim.* tokenizer.* name restore_from_path training* stages* cluster* launcher* "
	"env_vars* hydra* use_flash_attention transformer_engine fp8 megatron_amp_o2 mcore_gpt bias "
	"activation nsys_profile.* resume_from_checkpoint pre_process post_process headscale "
	"openai_gelu transformer_block_type normalize_attention_scores attention_type native_amp_* "
	"fp32_residual_connection grad_* gradient_as_bucket_view sync_batch_comm apex_* "
	"batch_p2p_comm sharp tp_comm_atomic* fsdp* use_scaled_init* do_layer_norm* "
	"num_micro_batches_with* ffn_dropout activations_checkpoint_* target precision hidden_act";

/* NeMo 1: "peft.peft_scheme"; NeMo 2 and Megatron-Bridge: "peft" with a class and a rank "dim". */
static void peft(struct fo_reading *r)
{
	const struct fo_conf_entry *e = fo_reading_find(r, "peft.peft_scheme|peft._target_|peft.dim|peft");
	static const char *const rank = "peft.lora_tuning.adapter_dim|peft.dim";
	if (!e || e->kind == FO_CONF_NULL || !*e->value || fo_reading_says(r, "peft.peft_scheme", "none"))
		return;
	fo_reading_state(r, FO_JOB_ADAPTERS, 1, e);
	fo_reading_state(r, FO_JOB_BASE_BITS, 16, e);
	if (fo_reading_number(r, rank) >= 1)
		fo_reading_state(r, FO_JOB_ADAPTER_RANK, fo_reading_number(r, rank), fo_reading_find(r, rank));
}

static void finish_nemo(struct fo_reading *r)
{
	peft(r);
	struct fo_job *job = r->job;
	const struct fo_conf_entry *flash = fo_reading_find(r, "use_flash_attention");
	common(r);
	dropout(r, NAN);
	if (flash)
		fo_reading_state(r, FO_JOB_ATTENTION,
				 fo_reading_on(r, "use_flash_attention") ? FO_JOB_ATTENTION_FLASH
									 : FO_JOB_ATTENTION_FUSED,
				 flash);
	const struct fo_conf_entry *engine = fo_reading_find(r, "transformer_engine");
	if (engine && !fo_reading_on(r, "transformer_engine") && !fo_reading_on(r, "use_flash_attention"))
		fo_reading_state(r, FO_JOB_ATTENTION, FO_JOB_ATTENTION_EAGER, engine);
	if (fo_reading_on(r, "fsdp"))
		fo_reading_state(r, FO_JOB_ZERO, 3, fo_reading_find(r, "fsdp"));
	/* fp8_e4m3 and fp8_hybrid choose the format; `fp8` is the switch, its scaling is delayed. */
	const struct fo_conf_entry *optimizer = fo_reading_find(r, "optim.name");
	if (optimizer)
		fo_reading_state_text(r, FO_JOB_OPTIMIZER, optimizer->value, optimizer);
	const struct fo_conf_entry *saves = fo_reading_find(r, "trainer.enable_checkpointing");
	if (saves && !fo_reading_find(r, "exp_manager.create_checkpoint_callback"))
		fo_reading_state(r, FO_JOB_CHECKPOINT, fo_reading_on(r, "trainer.enable_checkpointing"), saves);
	if (fo_reading_on(r, "transformer_engine"))
		attention(r);
	if (fo_job_is(job, FO_JOB_DTYPE, FO_JOB_MATMUL_BF16) && fo_reading_on(r, "megatron_amp_O2")) {
		const struct fo_conf_entry *e = fo_reading_find(r, "megatron_amp_O2");
		fo_reading_state(r, FO_JOB_PARAM_DTYPE, FO_JOB_FP32, e); /* a master copy in fp32 */
	}
	double scale = fo_reading_number(r, "native_amp_init_scale");
	if (scale > 0)
		fo_reading_state(r, FO_JOB_LOSS_SCALE_POWER, log2(scale), fo_reading_find(r, "native_amp_init_scale"));
	takes_scale(job);
}

const struct fo_form fo_form_nemo = {
	.name = { "nemo", "NeMo 1", NULL },
	.rows = { nemo, core },
	.defaults = { nemo_defaults },
	.ignored = { ignored, nemo_ignored },
	.prefix = "model.",
	.signature = "trainer.devices trainer.num_nodes trainer.limit_val_batches "
		     "exp_manager.exp_dir model.encoder_seq_length "
		     "model.megatron_amp_O2 model.mcore_gpt exp_manager.create_dllogger_logger",
	.finish = finish_nemo,
	.alone = true,
};

/* ---- Megatron-Bridge and NeMo 2 ---- */

static const struct fo_form_row bridge[] = {
	R("micro_batch_size", MICRO_BATCH),
	R("optimizer.clip_grad", CLIP),
	R("optimizer.optimizer", OPTIMIZER),
	R("save_interval", CHECKPOINT_EVERY),
	R("dataset.num_workers", LOADER_WORKERS),
	R("dataset.sequence_length", SEQ),
	R("dataset.seq_length", SEQ),
	R("data.num_workers", LOADER_WORKERS),
	R("data.seq_length", SEQ),
	R("data.micro_batch_size", MICRO_BATCH),
	R("data.global_batch_size", GLOBAL_BATCH),
	R("profiling.use_nsys_profiler", PROFILING),
	R("comm_overlap.tp_comm_overlap", TP_OVERLAP),
	M("mixed_precision", DTYPE, "bf16_mixed=bf16 fp16_mixed=fp16 *=bf16"),
	R("trainer.devices", PER_NODE),
	R("trainer.num_nodes", NODES),
	R("trainer.log_every_n_steps", LOG_EVERY),
	FO_FORM_END,
};

static const char bridge_ignored[] =
	"*_target_ model.* train.* scheduler.* ddp.* optimizer.* dataset.* data.* logger.* "
	"tokenizer.* checkpoint.* rng.* dist.* rerun_state_machine.* straggler.* nvrx_straggler.* "
	"profiling.* peft.* mixed_precision.* comm_overlap.* validation.* ft.* inprocess_restart.* "
	"trainer.* log.* resume.* optim.* run.* tensor_inspect.*";

static void finish_bridge(struct fo_reading *r)
{
	peft(r);
	common(r);
	dropout(r, NAN);
	const struct fo_conf_entry *reduce = fo_reading_find(r, "ddp.grad_reduce_in_fp32|grad_reduce_in_fp32");
	if (reduce)
		fo_reading_state(r, FO_JOB_GRAD_REDUCE,
				 fo_reading_on(r, "ddp.grad_reduce_in_fp32|grad_reduce_in_fp32") ? FO_JOB_FP32
												 : FO_JOB_BF16,
				 reduce);
	if (fo_reading_says(r, "mixed_precision", "fp8") && !fo_reading_find(r, "fp8_recipe|mixed_precision.fp8")) {
		double kind = FO_JOB_FP8_DELAYED;
		if (fo_reading_says(r, "mixed_precision", "current") || fo_reading_says(r, "mixed_precision", "tensor"))
			kind = FO_JOB_FP8_TENSORWISE;
		else if (fo_reading_says(r, "mixed_precision", "mxfp8"))
			kind = FO_JOB_FP8_MX;
		else if (fo_reading_says(r, "mixed_precision", "subchannel"))
			kind = FO_JOB_FP8_BLOCKWISE;
		fo_reading_state(r, FO_JOB_FP8, kind, fo_reading_find(r, "mixed_precision"));
	}
	fo_reading_imply(r, FO_JOB_MERGED_QKV, 1, NULL);
}

const struct fo_form fo_form_bridge = {
	.name = { "megatron-bridge", "Megatron-Bridge or NeMo 2", NULL },
	.rows = { bridge, core },
	.ignored = { bridge_ignored },
	.prefix = "model.config. model. train. ddp. mixed_precision. comm_overlap. checkpoint. logger. "
		  "trainer.strategy.ddp. trainer.strategy. trainer.plugins. dist. optim.config. log.",
	.signature = "train.train_iters ddp.use_distributed_optimizer rerun_state_machine.check_for_nan_in_loss "
		     "checkpoint.ckpt_format trainer.strategy.tensor_model_parallel_size optim.config.lr rng.seed "
		     "train.global_batch_size",
	.finish = finish_bridge,
	.alone = true,
};
