/* torchtitan. TOML files: the dataclasses of torchtitan/config/job_config.py at v0.2.2 (2026-02), which v0.2.1 has but
 * for additions, and older spellings down to v0.1. Python files: torchtitan/config/configs.py and trainer.py of the
 * package 0.3.0. */
#include "job/forms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define R FO_FORM_ROW
#define M FO_FORM_MAP
#define D FO_FORM_DEFAULT

static const struct fo_form_row common[] = {
	R("training.local_batch_size", LOCAL_BATCH),
	R("training.batch_size", LOCAL_BATCH), /* until v0.1 */
	M("training.global_batch_size", GLOBAL_BATCH, NULL),
	R("training.seq_len", SEQ),
	R("training.max_context_length", SEQ), /* from 2026-08 on */
	R("training.max_norm", CLIP),
	M("training.enable_cpu_offload", OFFLOAD_PARAMS, NULL),
	M("training.mixed_precision_param", DTYPE, "bfloat16=bf16 float32=fp32 torch.bfloat16=bf16 torch.float32=fp32"),
	M("training.mixed_precision_reduce", GRAD_REDUCE, "float32=fp32 bfloat16=bf16 torch.float32=fp32"),
	M("training.dtype", PARAM_DTYPE, "float32=fp32 bfloat16=bf16 torch.float32=fp32 torch.bfloat16=bf16"),
	M("training.gc_freq", GC_MANUAL, "0=off *=on"),
	R("training.dataloader.num_workers", LOADER_WORKERS),
	R("training.dataloader.pin_memory", LOADER_PINNED),
	R("dataloader.num_workers", LOADER_WORKERS),
	R("dataloader.pin_memory", LOADER_PINNED),
	R("parallelism.tensor_parallel_degree", TP),
	R("training.tensor_parallel_degree", TP),
	R("parallelism.enable_sequence_parallel", SEQUENCE_PARALLEL),
	R("parallelism.enable_async_tensor_parallel", TP_OVERLAP),
	R("experimental.enable_async_tensor_parallel", TP_OVERLAP),
	R("compile.enable_async_tensor_parallel", TP_OVERLAP),
	R("compile.enable", COMPILE),
	R("parallelism.pipeline_parallel_degree", PP),
	R("experimental.pipeline_parallel_degree", PP),
	M("parallelism.pipeline_parallel_schedule", PP_SCHEDULE,
	  "1F1B=1f1b GPipe=gpipe Interleaved1F1B=interleaved LoopedBFS=interleaved InterleavedZeroBubble=zero-bubble "
	  "ZBVZeroBubble=zero-bubble DualPipeV=zero-bubble *=other"),
	M("experimental.pipeline_parallel_schedule", PP_SCHEDULE,
	  "1F1B=1f1b GPipe=gpipe Interleaved1F1B=interleaved *=other"),
	R("parallelism.context_parallel_degree", CP),
	R("experimental.context_parallel_degree", CP),
	R("parallelism.expert_parallel_degree", EP),
	R("parallelism.expert_tensor_parallel_degree", ETP),
	R("parallelism.data_parallel_replicate_degree", DP_REPLICATE),
	R("training.data_parallel_replicate_degree", DP_REPLICATE),
	R("parallelism.data_parallel_shard_degree", DP_SHARD),
	R("training.data_parallel_shard_degree", DP_SHARD),
	R("training.data_parallel_degree", DP_SHARD),
	M("parallelism.fsdp_reshard_after_forward", RESHARD, "always=on never=off default=-"),
	R("metrics.log_freq", LOG_EVERY),
	R("profiling.enable_profiling", PROFILING),
	R("profiler.enable_profiling", PROFILING),
	R("profiling.enable", PROFILING),
	R("checkpoint.enable", CHECKPOINT),
	R("checkpoint.enable_checkpoint", CHECKPOINT),
	R("checkpoint.interval", CHECKPOINT_EVERY),
	M("checkpoint.async_mode", CHECKPOINT_ASYNC, "disabled=off *=on"),
	R("optimizer.name", OPTIMIZER),
	M("optimizer.implementation", OPTIMIZER_FUSED, "fused=on *=off"),
	R("optimizer.fused", OPTIMIZER_FUSED),
	R("optimizer.early_step_in_backward", OPTIMIZER_IN_BACKWARD),
	R("debug.deterministic", DETERMINISTIC),
	R("training.deterministic", DETERMINISTIC),
	M("training.disable_cuda_graphs", CUDA_GRAPHS, "true=off false=on"),
	FO_FORM_END,
};

static const struct fo_form_row toml[] = {
	M("activation_checkpoint.mode", RECOMPUTE, "none=none selective=selective full=full memory_budget=selective"),
	R("activation_checkpoint.selective_ac_option", RECOMPUTE_OPTION),
	R("job.config_file", MISSING_FILE),
	R("float8.enable_fsdp_float8_all_gather", FP8_GATHER),
	R("float8.precompute_float8_dynamic_scale_for_fsdp", FP8_PRECOMPUTE),
	R("quantize.linear.float8.enable_fsdp_float8_all_gather", FP8_GATHER),
	R("quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", FP8_PRECOMPUTE),
	FO_FORM_END,
};

/* What reads its own rules out of the file in finish, and what decides no speed. */
static const char ignored[] =
	"job.* comm.* experimental.* lr_scheduler.* validation.* validator.* fault_tolerance.* "
	"memory_estimation.* model.* metrics.* profiling.* profiler.* compile.* quantize.* float8.* "
	"mx.* debug.* tokenizer.* hf_assets_path dump_folder optimizer.lr optimizer.beta* "
	"optimizer.eps optimizer.weight_decay optimizer.* checkpoint.* training.steps "
	"training.dataset* training.compile training.gc_* training.seed training.tp_comm_mode "
	"training.dataloader.* training.warmup_steps training.mixed_precision_* training.data_parallel_* dataloader.* "
	"parallelism.disable_loss_parallel parallelism.context_parallel_* "
	"parallelism.pipeline_parallel_* parallelism.module_fqns_per_model_part "
	"parallelism.expert_parallel_comm_backend parallelism.spmd_backend "
	"parallelism.enable_compiled_autograd parallelism.enable_fsdp_symm_mem "
	"activation_checkpoint.* loss.* model_spec* training.num_tokens_per_* override.* profiling "
	"activation_offload.*";

/* What both assume. A Python file need not state these. */
static const struct fo_form_default common_defaults[] = {
	D(LOCAL_BATCH, "8"),
	D(SEQ, "2048"),
	D(CLIP, "1"),
	D(DTYPE, "bf16"),
	D(PARAM_DTYPE, "fp32"),
	D(GRAD_REDUCE, "fp32"),
	D(TP, "1"),
	D(PP, "1"),
	D(CP, "1"),
	D(EP, "1"),
	D(DP_REPLICATE, "1"),
	D(DP_SHARD, "-1"),
	D(SEQUENCE_PARALLEL, "on"), /* with tensor parallelism it is always used */
	D(TP_OVERLAP, "off"),
	D(PP_SCHEDULE, "1f1b"),
	D(PREFETCH, "on"), /* FSDP2 gathers the next layer's weights while a layer computes */
	D(GRAD_OVERLAP, "on"),
	D(PARAM_OVERLAP, "on"),
	D(OFFLOAD_PARAMS, "off"),
	D(OFFLOAD_OPTIMIZER, "off"),
	D(GC_MANUAL, "on"),
	D(DETERMINISTIC, "off"),
	D(PACKED, "on"), /* its text data sets are packed */
	D(DROPOUT, "0"),
	FO_FORM_DEFAULTS_END,
};

/* Recomputation, types and graphs are stated in a Python file, or unknown. */
static const struct fo_form_default toml_defaults[] = {
	D(ETP, "1"),
	D(EP_OVERLAP, "off"),
	D(RECOMPUTE, "selective"),
	D(RECOMPUTE_OPTION, "2"),
	D(FP8_GATHER, "off"),
	D(FP8_PRECOMPUTE, "off"),
	D(MERGED_QKV, "off"),
	D(OPTIMIZER, "AdamW"),
	D(OPTIMIZER_FUSED, "on"),
	D(OPTIMIZER_IN_BACKWARD, "off"),
	D(PROFILING, "off"),
	D(LOG_EVERY, "10"),
	D(CHECKPOINT, "off"),
	D(CHECKPOINT_EVERY, "500"),
	D(CHECKPOINT_ASYNC, "off"),
	D(LOADER_WORKERS, "0"),
	D(LOADER_PINNED, "off"),
	FO_FORM_DEFAULTS_END,
};

/* Flavors of torchtitan's models (torchtitan/models/NAME/__init__.py) that are presets here. */
static const struct {
	const char *name, *flavor, *preset;
} flavor[] = {
	{ "llama3", "8B", "llama-3.1-8b" },
	{ "llama3", "8B_flex", "llama-3.1-8b" },
	{ "llama3", "8B_varlen", "llama-3.1-8b" },
	{ "llama3", "70B", "llama-3.1-70b" },
	{ "llama3", "405B", "llama-3.1-405b" },
	{ "llama2", "7B", "llama-2-7b" },
	{ "llama2", "13B", "llama-2-13b" },
	{ "llama2", "70B", "llama-2-70b" },
	{ "deepseek_v3", "671B", "deepseek-v3" },
	{ "qwen3", "0.6B", "qwen3-0.6b" },
	{ "qwen3", "4B", "qwen3-4b" },
	{ "qwen3", "8B", "qwen3-8b" },
	{ "qwen3", "14B", "qwen3-14b" },
	{ "qwen3", "32B", "qwen3-32b" },
	{ "qwen3", "30B-A3B", "qwen3-30b-a3b" },
	{ "llama4", "17bx16e", "llama-4-scout" },
	{ "llama4", "17bx16e_irope", "llama-4-scout" },
};

static void name_model(struct fo_reading *r, const char *name, const char *kind, const struct fo_conf_entry *e)
{
	struct fo_arena *a = &r->job->arena;
	fo_reading_state_text(r, FO_JOB_MODEL, kind ? fo_arena_printf(a, "%s %s", name, kind) : name, e);
	for (size_t i = 0; kind && i < sizeof flavor / sizeof *flavor; i++)
		if (!strcasecmp(flavor[i].name, name) && !strcasecmp(flavor[i].flavor, kind))
			*r->model_name = flavor[i].preset;
}

/* Micro-batch and accumulation: a pipeline cuts the local batch; without one it is run at once, and a global batch
 * makes several of it (torchtitan/train.py). */
static void batches(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	bool global = fo_job_number(job, FO_JOB_GLOBAL_BATCH) > 0;
	const struct fo_conf_entry *e = fo_reading_find(r, "training.local_batch_size|training.batch_size");
	const struct fo_conf_entry *cut = fo_reading_find(r, "parallelism.pipeline_parallel_microbatch_size|"
							     "experimental.pipeline_parallel_microbatches");
	double local = fo_job_number(job, FO_JOB_LOCAL_BATCH), micro = local;
	const char *key = "training.local_batch_size";
	if (fo_job_number(job, FO_JOB_PP) > 1) {
		key = "parallelism.pipeline_parallel_microbatch_size";
		micro = fo_reading_number(r, key);
		if (cut && isnan(micro)) /* until v0.1 the number of micro-batches */
			micro = local / fo_reading_number(r, "experimental.pipeline_parallel_microbatches");
		e = cut;
		micro = isnan(micro) ? 1 : micro;
	}
	if (e)
		fo_reading_state(r, FO_JOB_MICRO_BATCH, micro, e);
	else
		fo_reading_imply(r, FO_JOB_MICRO_BATCH, micro, key);
	if (fo_job_number(job, FO_JOB_GLOBAL_BATCH) < 0) /* -1: the local batches of all ranks */
		job->value[FO_JOB_GLOBAL_BATCH] = (struct fo_job_value){ .number = NAN };
	if (!global && micro > 0)
		fo_reading_imply(r, FO_JOB_ACCUMULATION, local / micro, "training.global_batch_size");
	if (global && job->value[FO_JOB_LOCAL_BATCH].origin != FO_JOB_GIVEN) /* of a step: the global batch decides */
		job->value[FO_JOB_LOCAL_BATCH] = (struct fo_job_value){ .number = NAN };
}

static void data_parallel(struct fo_reading *r)
{
	struct fo_job *job = r->job;
	bool sharded = !fo_job_is(job, FO_JOB_DP_SHARD, 1) || fo_job_number(job, FO_JOB_CP) > 1;
	const struct fo_conf_entry *e = fo_reading_find(r, "parallelism.data_parallel_shard_degree|"
							   "training.data_parallel_shard_degree");
	if (e)
		fo_reading_state(r, FO_JOB_ZERO, sharded ? 3 : 0, e);
	else
		fo_reading_imply(r, FO_JOB_ZERO, sharded ? 3 : 0, "parallelism.data_parallel_shard_degree");
	/* "default": resharded unless a pipeline would gather the weights again for every micro-batch. */
	fo_reading_imply(r, FO_JOB_RESHARD, !(fo_job_number(job, FO_JOB_PP) > 1),
			 "parallelism.fsdp_reshard_after_forward");
	fo_reading_imply(r, FO_JOB_FSDP_VERSION, 2, NULL);
	fo_reading_imply(r, FO_JOB_SEQUENCE_PARALLEL, fo_job_number(job, FO_JOB_TP) > 1,
			 "parallelism.enable_sequence_parallel");
	if (fo_job_is(job, FO_JOB_OFFLOAD_PARAMS, 1)) { /* the optimizer's states are where the weights are */
		const struct fo_conf_entry *o = fo_reading_find(r, "training.enable_cpu_offload");
		if (o)
			fo_reading_state(r, FO_JOB_OFFLOAD_OPTIMIZER, 1, o);
	}
}

/* Stages of a rank: one for schedules of single stages, else two unless the layers of a stage are stated
 * (torchtitan/distributed/pipeline_parallel.py). */
static void pipeline(struct fo_reading *r)
{
	double schedule = fo_job_number(r->job, FO_JOB_PP_SCHEDULE);
	bool looped = schedule != FO_JOB_SCHEDULE_1F1B && schedule != FO_JOB_SCHEDULE_GPIPE;
	looped = looped && fo_job_number(r->job, FO_JOB_PP) > 1;
	if (!fo_reading_find(r, "parallelism.pipeline_parallel_layers_per_stage"))
		fo_reading_imply(r, FO_JOB_PP_VIRTUAL, looped ? 2 : 1, "parallelism.pipeline_parallel_schedule");
}

/* Compilation covers the components that are listed; until v0.1 training.compile was all of it. */
static void compilation(struct fo_reading *r)
{
	const struct fo_conf_entry *e = fo_reading_find(r, "compile.enable|training.compile");
	bool on = fo_reading_on(r, "compile.enable|training.compile");
	const struct fo_conf_entry *parts = fo_reading_find(r, "compile.components");
	bool model = on && (!parts || fo_reading_says(r, "compile.components", "model"));
	bool loss = on && (!parts || fo_reading_says(r, "compile.components", "loss"));
	const struct fo_conf_entry *made = fo_reading_find(r, "compile");
	bool open = made && made->kind != FO_CONF_NULL &&
		    !(made->kind == FO_CONF_CALL && strstr(made->value, "Config"));
	if ((e && e->kind == FO_CONF_OPEN) || (!e && open)) {
		r->job->value[FO_JOB_COMPILE].origin = r->job->value[FO_JOB_COMPILE_LOSS].origin = FO_JOB_AUTO;
	} else if (e) {
		const struct fo_conf_entry *by = on && parts ? parts : e;
		fo_reading_state(r, FO_JOB_COMPILE, model, by);
		fo_reading_state(r, FO_JOB_COMPILE_LOSS, loss, by);
	} else {
		fo_reading_imply(r, FO_JOB_COMPILE, 0, "compile.enable");
		fo_reading_imply(r, FO_JOB_COMPILE_LOSS, 0, "compile.enable");
	}
}

/* Converters switch 8-bit matmuls on; their own section alone does nothing. */
static void low_precision(struct fo_reading *r)
{
	const struct fo_conf_entry *list = fo_reading_find(r, "model.converters");
	const struct fo_conf_entry *old = fo_reading_find(r, "float8.enable_float8_linear");
	/* grouped_mm: the experts' matmuls alone, with a scale for each row. */
	bool experts = fo_reading_says(r, "model.converters", "grouped_mm.float8");
	bool dense = fo_reading_says(r, "model.converters", "linear.float8") ||
		     fo_reading_says(r, "model.converters", "dense.float8");
	bool float8 = fo_reading_says(r, "model.converters", "float8") ||
		      fo_reading_on(r, "float8.enable_float8_linear");
	bool mx = fo_reading_says(r, "model.converters", "mx");
	double kind = FO_JOB_FP8_OFF;
	if (float8) {
		const char *recipe = "quantize.linear.float8.recipe_name|float8.recipe_name";
		bool rows = fo_reading_says(r, recipe, "rowwise") || (experts && !dense);
		kind = rows ? FO_JOB_FP8_ROWWISE : FO_JOB_FP8_TENSORWISE;
		if (experts && !dense)
			fo_reading_note(r, "%s:%d: only the experts' matmuls are in fp8", r->conf->file, list->line);
	} else if (mx) {
		kind = FO_JOB_FP8_MX;
	}
	if (list || old)
		fo_reading_state(r, FO_JOB_FP8, kind, list ? list : old);
	else
		fo_reading_imply(r, FO_JOB_FP8, kind, "model.converters");
}

static void finish_toml(struct fo_reading *r)
{
	if (r->conf->format != FO_CONF_ARGUMENTS) /* a printed configuration is whole */
		r->job->value[FO_JOB_MISSING_FILE] = (struct fo_job_value){ .number = NAN };
	batches(r);
	data_parallel(r);
	pipeline(r);
	compilation(r);
	low_precision(r);
	const struct fo_conf_entry *name = fo_reading_find(r, "model.name"), *kind = fo_reading_find(r, "model.flavor");
	if (name && kind)
		name_model(r, name->value, kind->value, kind);
	if (fo_reading_on(r, "model.use_flex_attn"))
		fo_reading_state(r, FO_JOB_ATTENTION, FO_JOB_ATTENTION_FLEX, fo_reading_find(r, "model.use_flex_attn"));
	else if (kind && strstr(kind->value, "flex"))
		fo_reading_state(r, FO_JOB_ATTENTION, FO_JOB_ATTENTION_FLEX, kind);
	else if (name && !strcasecmp(name->value, "llama3"))
		fo_reading_imply(r, FO_JOB_ATTENTION, FO_JOB_ATTENTION_SDPA, "model.flavor");
}

/* The class of activation_checkpoint is the mode: SelectiveAC.Config(...), FullAC.Config(...), None. */
static void python_recompute(struct fo_reading *r)
{
	const struct fo_conf_entry *e = fo_reading_find(r, "activation_checkpoint");
	if (!e)
		return;
	if (e->kind == FO_CONF_NULL || !strncmp(e->value, "No", 2))
		fo_reading_state(r, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE, e);
	else if (!strncmp(e->value, "FullAC", 6))
		fo_reading_state(r, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL, e);
	else if (!strncmp(e->value, "SelectiveAC", 11) || !strncmp(e->value, "MemoryBudgetAC", 14))
		fo_reading_state(r, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE, e);
}

/* Converters of model_registry("8B", converters=[Float8LinearConverter.Config(...)]). */
static void python_converters(struct fo_reading *r)
{
	double kind = FO_JOB_FP8_OFF;
	const struct fo_conf_entry *from = NULL;
	for (size_t i = 0; i < r->conf->entries; i++) {
		const struct fo_conf_entry *e = &r->conf->entry[i];
		if (e->kind != FO_CONF_CALL || !strstr(e->path, "converters."))
			continue;
		from = e;
		if (!strncmp(e->value, "Float8LinearConverter", 21)) {
			const char *recipe = fo_arena_printf(&r->job->arena, "%s.recipe_name", e->path);
			kind = fo_reading_says(r, recipe, "rowwise") ? FO_JOB_FP8_ROWWISE : FO_JOB_FP8_TENSORWISE;
		} else if (!strncmp(e->value, "MXFP8LinearConverter", 20)) {
			kind = FO_JOB_FP8_MX;
		} else if (!strncmp(e->value, "NVFP4LinearConverter", 20)) {
			kind = FO_JOB_FP4_ON;
		} else if (!strncmp(e->value, "LoRAConverter", 13)) {
			const char *rank = fo_arena_printf(&r->job->arena, "%s.rank", e->path);
			fo_reading_state(r, FO_JOB_ADAPTERS, 1, e);
			if (fo_reading_number(r, rank) >= 1)
				fo_reading_state(r, FO_JOB_ADAPTER_RANK, fo_reading_number(r, rank),
						 fo_reading_find(r, rank));
		}
	}
	if (from)
		fo_reading_state(r, FO_JOB_FP8, kind, from);
	else if (fo_reading_find(r, "model_spec"))
		fo_reading_imply(r, FO_JOB_FP8, FO_JOB_FP8_OFF, "model_spec");
}

/* "llama3_8b" is the function, "8B" the first argument of model_registry: its file is of one family, whose name stands
 * before the flavor. */
static void python_model(struct fo_reading *r)
{
	static const char *const family[] = { "llama3", "llama4", "deepseek_v3", "qwen3", "gpt_oss" };
	const struct fo_conf_entry *kind = fo_reading_find(r, "model_spec.0|model_spec.flavor");
	const char *function = r->conf->function ? r->conf->function : "";
	for (size_t i = 0; kind && i < sizeof family / sizeof *family; i++)
		if (!strncmp(function, family[i], strlen(family[i])) && function[strlen(family[i])] == '_')
			name_model(r, family[i], kind->value, kind);
	const struct fo_conf_entry *loss = fo_reading_find(r, "loss");
	if (loss && !strncmp(loss->value, "ChunkedLoss", 11))
		fo_reading_state(r, FO_JOB_COMPILE_LOSS, 1, loss);
}

/* A section that another function or an expression makes: what it does not state here is not the default. */
static void open_sections(struct fo_reading *r)
{
	static const char *const section[] = {
		"training", "parallelism", "compile", "dataloader", "checkpoint", "debug"
	};
	for (size_t i = 0; i < sizeof section / sizeof *section; i++) {
		const struct fo_conf_entry *e = fo_reading_find(r, section[i]);
		size_t n = strlen(section[i]);
		bool whole = !e || e->kind == FO_CONF_NULL || (e->kind == FO_CONF_CALL && strstr(e->value, "Config"));
		for (const struct fo_form_row *row = common; !whole && row->key; row++) {
			struct fo_job_value *v = &r->job->value[row->setting];
			if (!strncmp(row->key, section[i], n) && row->key[n] == '.' && v->origin == FO_JOB_DEFAULT)
				*v = (struct fo_job_value){ .origin = FO_JOB_AUTO, .number = NAN, .key = row->key };
		}
	}
}

/* "8 * 8192" */
static double product(const char *text)
{
	double all = 1;
	for (;;) {
		char *end;
		double v = strtod(text, &end);
		if (end == text || !(v > 0))
			return NAN;
		all *= v;
		text = end + strspn(end, " ");
		if (!*text)
			return all;
		if (*text++ != '*')
			return NAN;
	}
}

/* Later releases state a micro-batch in tokens. */
static void tokens(struct fo_reading *r)
{
	const struct fo_conf_entry *e = fo_reading_find(r, "training.num_tokens_per_microbatch_per_dp_rank");
	if (!e)
		return;
	double rows = product(e->value) / fo_job_number(r->job, FO_JOB_SEQ);
	fo_reading_state(r, FO_JOB_LOCAL_BATCH, rows >= 1 ? rows : NAN, e);
	fo_reading_state(r, FO_JOB_MICRO_BATCH, rows >= 1 ? rows : NAN, e);
}

static void finish_python(struct fo_reading *r)
{
	open_sections(r);
	tokens(r);
	batches(r);
	data_parallel(r);
	pipeline(r);
	python_model(r);
	compilation(r);
	python_recompute(r);
	python_converters(r);
}

const struct fo_form fo_form_torchtitan = {
	.name = { "torchtitan", "torchtitan (TOML)", "0.2.2" },
	.rows = { toml, common },
	.defaults = { common_defaults, toml_defaults },
	.ignored = { ignored },
	.signature = "training.local_batch_size job.dump_folder model.flavor activation_checkpoint.selective_ac_option",
	.finish = finish_toml,
	.alone = true,
};

const struct fo_form fo_form_torchtitan_python = {
	.name = { "torchtitan-python", "torchtitan (Python)", "0.3.0" },
	.rows = { common },
	.defaults = { common_defaults },
	.ignored = { ignored },
	.signature = "model_spec model_spec.0 hf_assets_path",
	.finish = finish_python,
	.alone = true,
};
