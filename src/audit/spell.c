/* Changes as the framework's own files spell them, to paste. */
#include "audit/config_int.h"

#include "job/forms.h"

#include <string.h>

enum style { TOML, ARGS, YAML, JSON, STYLES };

static const struct {
	const char *form;
	enum style style;
} style_of[] = {
	{ "torchtitan", TOML }, { "megatron", ARGS }, { "nemo", YAML },      { "accelerate", YAML },
	{ "maxtext", YAML },    { "flatout", YAML },  { "deepspeed", JSON }, { "megatron-bridge", YAML },
};

/* Has the form the words of a row? torchtitan's Python files have those of its TOML. */
static bool speaks(const char *row, const char *form)
{
	return !strcmp(row, form) || (!strcmp(row, "torchtitan") && !strcmp(form, "torchtitan-python"));
}

/* Where the spelling of a value is not that of its setting: words of the framework, flags whose absence says yes. Read
 * in torchtitan 0.2.1, Megatron-LM d98e8a64 (2026-08), NeMo 24.09, DeepSpeed 0.18, accelerate 1.10 and MaxText of 2025.
 * `number` NAN: any. "%g" stands for the number. The setting's own key is the first; the framework asks for the others
 * beside it. */
static const struct spelled {
	const char *form;
	enum fo_job_setting setting;
	double number;
	const char *text;
} spelled[] = {
	{ "torchtitan", FO_JOB_COMPILE, 1, "compile.enable = true\ncompile.components = [\"model\", \"loss\"]" },
	{ "torchtitan", FO_JOB_COMPILE_LOSS, 1, "compile.enable = true\ncompile.components = [\"model\", \"loss\"]" },
	{ "torchtitan", FO_JOB_FP8, FO_JOB_FP8_TENSORWISE, "model.converters = [\"quantize.linear.float8\"]" },
	{ "torchtitan", FO_JOB_FP8_GATHER, 1, "quantize.linear.float8.enable_fsdp_float8_all_gather = true" },
	{ "torchtitan", FO_JOB_FP8_PRECOMPUTE, 1,
	  "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp = true" },
	{ "torchtitan", FO_JOB_PARAM_DTYPE, FO_JOB_BF16, "training.dtype = \"bfloat16\"" },
	{ "torchtitan", FO_JOB_RESHARD, 0, "parallelism.fsdp_reshard_after_forward = \"never\"" },
	{ "torchtitan", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE,
	  "activation_checkpoint.mode = \"selective\"\nactivation_checkpoint.selective_ac_option = \"op\"" },
	{ "torchtitan", FO_JOB_DTYPE, FO_JOB_MATMUL_BF16, "training.mixed_precision_param = \"bfloat16\"" },
	{ "torchtitan", FO_JOB_OPTIMIZER_FUSED, 1, "optimizer.implementation = \"fused\"" },
	{ "torchtitan", FO_JOB_PP_SCHEDULE, FO_JOB_SCHEDULE_INTERLEAVED,
	  "parallelism.pipeline_parallel_schedule = \"Interleaved1F1B\"" },
	{ "torchtitan", FO_JOB_PP_VIRTUAL, NAN, "" },   /* follows from the schedule and from layers per stage */
	{ "torchtitan", FO_JOB_ACCUMULATION, NAN, "" }, /* follows from the global batch */
	{ "torchtitan", FO_JOB_GLOBAL_BATCH, NAN, "training.global_batch_size = %g" },
	{ "torchtitan", FO_JOB_CHECKPOINT_ASYNC, 1, "checkpoint.async_mode = \"async_with_pinned_mem\"" },

	{ "megatron", FO_JOB_TP, NAN, "--tensor-model-parallel-size %g" },
	{ "megatron", FO_JOB_PP, NAN, "--pipeline-model-parallel-size %g" },
	{ "megatron", FO_JOB_CP, NAN, "--context-parallel-size %g" },
	{ "megatron", FO_JOB_EP, NAN, "--expert-model-parallel-size %g" },
	{ "megatron", FO_JOB_ETP, NAN, "--expert-tensor-parallel-size %g" },
	{ "megatron", FO_JOB_MICRO_BATCH, NAN, "--micro-batch-size %g" },
	{ "megatron", FO_JOB_GLOBAL_BATCH, NAN, "--global-batch-size %g" },
	{ "megatron", FO_JOB_PP_VIRTUAL, NAN, "--num-virtual-stages-per-pipeline-rank %g" },
	{ "megatron", FO_JOB_PP_SCHEDULE, NAN, "" },
	{ "megatron", FO_JOB_ZERO, 1, "--use-distributed-optimizer" },
	{ "megatron", FO_JOB_SEQUENCE_PARALLEL, 1, "--sequence-parallel" },
	{ "megatron", FO_JOB_TP_OVERLAP, 1, "--tp-comm-overlap --sequence-parallel" },
	{ "megatron", FO_JOB_GRAD_OVERLAP, 1, "--overlap-grad-reduce" },
	{ "megatron", FO_JOB_PARAM_OVERLAP, 1,
	  "--overlap-param-gather --overlap-grad-reduce --use-distributed-optimizer" },
	{ "megatron", FO_JOB_EP_OVERLAP, 1, "--overlap-moe-expert-parallel-comm" },
	{ "megatron", FO_JOB_PP_OVERLAP, 1, "without --no-overlap-p2p-communication" },
	{ "megatron", FO_JOB_GRAD_REDUCE, FO_JOB_BF16, "--grad-reduce-in-bf16" },
	{ "megatron", FO_JOB_DTYPE, FO_JOB_MATMUL_BF16, "--bf16" },
	{ "megatron", FO_JOB_FP8, NAN, "--fp8-format hybrid" },
	{ "megatron", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE,
	  "without --recompute-granularity, --recompute-method and --recompute-num-layers" },
	{ "megatron", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE,
	  "--recompute-granularity selective without --recompute-method and --recompute-num-layers" },
	{ "megatron", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL,
	  "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1" },
	{ "megatron", FO_JOB_COMPILE_LOSS, 1, "--cross-entropy-loss-fusion" },
	{ "megatron", FO_JOB_ATTENTION, NAN, "--attention-backend fused" },
	{ "megatron", FO_JOB_FUSED_GRAD_ACCUMULATION, 1, "without --no-gradient-accumulation-fusion" },
	{ "megatron", FO_JOB_FUSED_ROPE, 1, "without --no-rope-fusion" },
	{ "megatron", FO_JOB_FUSED_ACTIVATION, 1, "without --no-bias-swiglu-fusion and --no-bias-gelu-fusion" },
	{ "megatron", FO_JOB_FUSED_NORM, 1, "--transformer-impl transformer_engine" },
	{ "megatron", FO_JOB_DETERMINISTIC, 0, "without --deterministic-mode" },
	{ "megatron", FO_JOB_CUDA_GRAPHS, 1, "--cuda-graph-impl transformer_engine" },
	{ "megatron", FO_JOB_OFFLOAD_OPTIMIZER, 0, "without --optimizer-cpu-offload" },
	{ "megatron", FO_JOB_OFFLOAD_OPTIMIZER, 1,
	  "--optimizer-cpu-offload --use-precision-aware-optimizer --use-distributed-optimizer" },

	{ "megatron-bridge", FO_JOB_PARAM_OVERLAP, 1,
	  "ddp.overlap_param_gather: true\nddp.overlap_grad_reduce: true\nddp.use_distributed_optimizer: true" },
	{ "megatron-bridge", FO_JOB_GRAD_REDUCE, FO_JOB_BF16, "ddp.grad_reduce_in_fp32: false" },
	{ "megatron-bridge", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE,
	  "model.recompute_granularity: null\nmodel.recompute_method: null\nmodel.recompute_num_layers: null" },
	{ "megatron-bridge", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE,
	  "model.recompute_granularity: selective\nmodel.recompute_method: null\nmodel.recompute_num_layers: null" },
	{ "megatron-bridge", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL,
	  "model.recompute_granularity: full\nmodel.recompute_method: uniform\nmodel.recompute_num_layers: 1" },

	{ "nemo", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE, "model.activations_checkpoint_granularity: null" },
	{ "nemo", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE,
	  "model.activations_checkpoint_granularity: selective\nmodel.activations_checkpoint_method: null\n"
	  "model.activations_checkpoint_num_layers: null" },
	{ "nemo", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL,
	  "model.activations_checkpoint_granularity: full\nmodel.activations_checkpoint_method: uniform\n"
	  "model.activations_checkpoint_num_layers: 1" },
	{ "nemo", FO_JOB_FP8, NAN, "model.fp8: true\nmodel.fp8_hybrid: true" },
	{ "nemo", FO_JOB_GRAD_REDUCE, FO_JOB_BF16, "model.optim.grad_sync_dtype: bf16" },
	{ "nemo", FO_JOB_ZERO, 1, "model.optim.name: distributed_fused_adam" },
	{ "nemo", FO_JOB_PP_SCHEDULE, NAN, "" },

	{ "deepspeed", FO_JOB_OFFLOAD_OPTIMIZER, 0, "zero_optimization.offload_optimizer.device: \"none\"" },
	{ "deepspeed", FO_JOB_OFFLOAD_OPTIMIZER, 1, "zero_optimization.offload_optimizer.device: \"cpu\"" },
	{ "deepspeed", FO_JOB_OFFLOAD_PARAMS, 0, "zero_optimization.offload_param.device: \"none\"" },
	{ "deepspeed", FO_JOB_OFFLOAD_PINNED, 1, "zero_optimization.offload_optimizer.pin_memory: true" },
	{ "deepspeed", FO_JOB_ZERO, NAN, "zero_optimization.stage: %g" },
	{ "deepspeed", FO_JOB_GRAD_OVERLAP, 1, "zero_optimization.overlap_comm: true" },
	{ "deepspeed", FO_JOB_REDUCE_SCATTER, 1, "zero_optimization.reduce_scatter: true" },
	{ "deepspeed", FO_JOB_LIVE_PARAMS, NAN, "zero_optimization.stage3_max_live_parameters: 1000000000" },
	{ "deepspeed", FO_JOB_REUSE_DISTANCE, NAN, "zero_optimization.stage3_max_reuse_distance: 1000000000" },
	{ "deepspeed", FO_JOB_DTYPE, FO_JOB_MATMUL_BF16, "bf16.enabled: true" },
	{ "deepspeed", FO_JOB_MICRO_BATCH, NAN, "train_micro_batch_size_per_gpu: %g" },
	{ "deepspeed", FO_JOB_GLOBAL_BATCH, NAN, "train_batch_size: %g" },
	{ "deepspeed", FO_JOB_ACCUMULATION, NAN, "gradient_accumulation_steps: %g" },

	{ "accelerate", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL, "fsdp_config.fsdp_activation_checkpointing: true" },
	{ "accelerate", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE, "fsdp_config.fsdp_activation_checkpointing: false" },
	{ "accelerate", FO_JOB_PREFETCH, 1, "fsdp_config.fsdp_forward_prefetch: true" },
	{ "accelerate", FO_JOB_RESHARD, 0, "fsdp_config.fsdp_reshard_after_forward: false" },
	{ "accelerate", FO_JOB_OFFLOAD_PARAMS, 0, "fsdp_config.fsdp_offload_params: false" },
	{ "accelerate", FO_JOB_COMPILE, 1, "dynamo_config.dynamo_backend: INDUCTOR" },
	{ "accelerate", FO_JOB_DTYPE, FO_JOB_MATMUL_BF16, "mixed_precision: bf16" },
	{ "accelerate", FO_JOB_FP8, NAN, "mixed_precision: fp8" },
	{ "accelerate", FO_JOB_FSDP_VERSION, NAN, "fsdp_config.fsdp_version: %g" },

	{ "maxtext", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE, "remat_policy: minimal" },
	{ "maxtext", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE, "remat_policy: save_qkv_proj" },
	{ "maxtext", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL, "remat_policy: full" },
	{ "maxtext", FO_JOB_FP8, NAN, "quantization: fp8" },
};

static const char without[] = "without "; /* in a row of the table: what follows is taken away */

/* Recipes of Bridge have a section for each key, those of NeMo 2 others: only the key that the file has is certain. */
static bool at_its_key(const struct fo_site *s, const struct spelled *w)
{
	const char *key = s->job->value[w->setting].key;
	size_t n = strcspn(w->text, ":");
	return strcmp(w->form, "megatron-bridge") != 0 || (key && !strncmp(key, w->text, n) && !key[n]);
}

static const struct spelled *own_words(const struct fo_site *s, const struct fo_job_change *c)
{
	const char *form = s->job->form ? s->job->form->id : "";
	for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++) {
		const struct spelled *w = &spelled[i];
		if (w->setting == c->setting && speaks(w->form, form) && at_its_key(s, w) &&
		    (isnan(w->number) || w->number == c->number))
			return w;
	}
	return NULL;
}

const char *fo_site_spelled(const struct fo_site *s, enum fo_job_setting x)
{
	const char *form = s->job->form ? s->job->form->id : "";
	for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++)
		if (spelled[i].setting == x && speaks(spelled[i].form, form) && at_its_key(s, &spelled[i]) &&
		    strncmp(spelled[i].text, without, strlen(without)) != 0)
			return fo_site_say(s, "%.*s", (int)strcspn(spelled[i].text, " :="), spelled[i].text);
	return NULL;
}

/* ---- flags that say what is off ---- */

static const char *last_of_key(const char *key)
{
	const char *dot = key ? strrchr(key, '.') : NULL;
	return dot ? dot + 1 : key;
}

bool fo_site_negated(const struct fo_site *s, enum fo_job_setting x)
{
	static const char *const sign[] = { "no-", "no_", "disable-", "disable_" };
	const char *key = last_of_key(s->job->value[x].key);
	for (size_t i = 0; key && i < sizeof sign / sizeof *sign; i++)
		if (!strncmp(key + strspn(key, "-"), sign[i], strlen(sign[i])))
			return true;
	return false;
}

static bool is_argument(const struct fo_site *s, enum fo_job_setting x)
{
	return *last_of_key(s->job->value[x].key) == '-';
}

/* Megatron takes the chunks of a pipeline's rank, or the layers of a chunk, and never both. */
static bool per_chunk(const char *key) { return strstr(key, "per-virtual") || strstr(key, "per_virtual"); }

const char *fo_site_now(const struct fo_site *s, enum fo_job_setting x)
{
	const struct fo_job_value *v = &s->job->value[x];
	if (x == FO_JOB_PP_VIRTUAL && v->key && per_chunk(v->key))
		return fo_site_say(s, "%.15g chunks", v->number);
	if (!fo_site_negated(s, x) || v->origin == FO_JOB_AUTO || isnan(v->number))
		return fo_job_own_text(s->job, x);
	if (is_argument(s, x))
		return v->number == 0 ? "given" : "not given";
	return v->number == 0 ? "true" : "false";
}

/* What a row takes away; NULL: nothing. A row that also adds something takes away what goes with full recomputation. */
static const char *taken_away(const struct fo_site *s, const struct spelled *w)
{
	const char *at = strstr(w->text, without);
	bool applies = at == w->text || fo_job_is(s->job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	return at && applies ? at + strlen(without) : NULL;
}

const char *fo_site_removed(const struct fo_site *s, const struct fo_job_change *change, int changes)
{
	const char *all = NULL;
	for (int i = 0; i < changes; i++) {
		const struct spelled *w = own_words(s, &change[i]);
		const char *one = w ? taken_away(s, w) : NULL;
		if (one && fo_site_negated(s, change[i].setting))
			one = last_of_key(s->job->value[change[i].setting].key);
		if (one)
			all = all ? fo_site_say(s, "%s and %s", all, one) : one;
	}
	return all;
}

/* ---- what a framework can be told ---- */

/* Is one of the words of a framework's row ("true=full false=none") the number? */
static bool row_says(const struct fo_form_row *row, double number)
{
	if (!row->map)
		return true;
	for (const char *at = row->map; *at; at += strspn(at, " ")) {
		size_t n = strcspn(at, " ");
		const char *equals = memchr(at, '=', n);
		char ours[64];
		double is;
		size_t k = equals ? n - (size_t)(equals + 1 - at) : 0;
		if (k && k < sizeof ours) {
			memcpy(ours, equals + 1, k);
			ours[k] = '\0';
			if (fo_form_value((enum fo_job_setting)row->setting, ours, &is) && is == number)
				return true;
		}
		at += n;
	}
	return false;
}

static bool form_says(const struct fo_form *f, const struct fo_job_change *c)
{
	for (size_t t = 0; t < sizeof f->rows / sizeof *f->rows && f->rows[t]; t++)
		for (const struct fo_form_row *row = f->rows[t]; row->key; row++)
			if (row->setting == (int)c->setting && row_says(row, c->number))
				return true;
	return false;
}

static bool has_row(const struct fo_form *f, enum fo_job_setting x)
{
	for (size_t t = 0; t < sizeof f->rows / sizeof *f->rows && f->rows[t]; t++)
		for (const struct fo_form_row *row = f->rows[t]; row->key; row++)
			if (row->setting == (int)x)
				return true;
	return false;
}

bool fo_site_has(const struct fo_site *s, enum fo_job_setting x)
{
	const struct fo_job_value *v = &s->job->value[x];
	const char *id = s->job->form ? s->job->form->id : NULL;
	if (!id || v->key || v->origin != FO_JOB_DEFAULT || fo_site_spelled(s, x))
		return true;
	for (int i = 0; i < fo_forms; i++)
		if (!strcmp(fo_form[i]->name.id, id) && has_row(fo_form[i], x))
			return true;
	return false;
}

bool fo_site_settable(const struct fo_site *s, const struct fo_job_change *c)
{
	/* These follow from the batch and the devices, whichever of them a framework names. */
	static const enum fo_job_setting follows[] = { FO_JOB_MICRO_BATCH, FO_JOB_LOCAL_BATCH, FO_JOB_ACCUMULATION,
						       FO_JOB_GLOBAL_BATCH, FO_JOB_DP_SHARD };
	const char *id = s->job->form ? s->job->form->id : NULL, *key = s->job->value[c->setting].key;
	bool settable = !id || own_words(s, c), row_has_it = false;
	for (size_t i = 0; i < sizeof follows / sizeof *follows; i++)
		settable |= follows[i] == c->setting;
	for (int i = 0; i < fo_forms && !settable; i++) {
		/* A second file, of another framework, may be the one that states it. */
		const struct fo_form_row *row = key ? fo_form_row_of(fo_form[i], key) : NULL;
		bool is = row && row->setting == (int)c->setting, own = !strcmp(fo_form[i]->name.id, id);
		settable = (is && row_says(row, c->number)) || (own && form_says(fo_form[i], c));
		row_has_it |= is || (own && has_row(fo_form[i], c->setting));
	}
	/* A setting that a reader takes from several keys has no row: the key that it names is one of these. */
	return settable || (key && !row_has_it);
}

/* ---- values ---- */

/* A switch, a number or a word as the style writes it; NULL: a word that only the framework knows. */
static const char *plain_value(const struct fo_site *s, const struct fo_job_change *c)
{
	if (fo_site_negated(s, c->setting))
		return c->number == 0 ? "true" : "false";
	switch (fo_job_setting_row[c->setting].kind) {
	case FO_JOB_SWITCH: return c->number != 0 ? "true" : "false";
	case FO_JOB_COUNT:
	case FO_JOB_BYTES:
	case FO_JOB_REAL: return fo_site_say(s, "%.15g", fo_job_own_number(s->job, c->setting, c->number));
	default: return NULL;
	}
}

/* torchtitan's Python configurations are changed by options: numbers, switches by their keys. Words of the TOML files
 * of before are classes and functions there, which no option spells. */
static const char *option_line(const struct fo_site *s, const struct spelled *w, const struct fo_job_change *c)
{
	const char *key = s->job->value[c->setting].key, *value = plain_value(s, c);
	if (w && !*w->text)
		return "";
	if (!value || !key || strchr(key, ' ') || c->setting == FO_JOB_COMPILE_LOSS)
		return c->setting == FO_JOB_COMPILE_LOSS ? "" : NULL;
	if (fo_job_setting_row[c->setting].kind != FO_JOB_SWITCH)
		return fo_site_say(s, "--%s %s", key, value);
	return strcmp(value, "true") ? NULL : fo_site_say(s, "--%s", key);
}

static const char *layers_of_chunk(const struct fo_site *s, double chunks)
{
	double layers = fo_job_number(s->job, FO_JOB_LAYERS) / s->shape->pp / chunks;
	return layers == floor(layers) ? fo_site_say(s, "--num-layers-per-virtual-pipeline-stage %.15g", layers) : NULL;
}

/* What a row adds; "": it only takes away, which fo_site_removed says. */
static const char *words_of(const struct fo_site *s, const struct spelled *w, double number)
{
	const char *gone = strstr(w->text, without), *percent = strstr(w->text, "%g");
	if (gone)
		return fo_site_say(s, "%.*s", gone > w->text ? (int)(gone - w->text) - 1 : 0, w->text);
	return percent ? fo_site_say(s, "%.*s%.15g%s", (int)(percent - w->text), w->text, number, percent + 2)
		       : w->text;
}

/* One change as lines "path.to.key = value" (": value" but in TOML), or arguments. NULL: not known; "": none needed. */
static const char *lines_of(const struct fo_site *s, const char *form, enum style style, const struct fo_job_change *c)
{
	const struct spelled *w = own_words(s, c);
	if (!strcmp(form, "torchtitan-python"))
		return option_line(s, w, c);
	const char *key = s->job->value[c->setting].key, *value = plain_value(s, c);
	if (c->setting == FO_JOB_PP_VIRTUAL && style == ARGS && key && per_chunk(key))
		return layers_of_chunk(s, c->number);
	if (w)
		return words_of(s, w, c->number);
	if (!key || strchr(key, ' '))
		return NULL;
	if (style == ARGS)
		return value && key[0] == '-' && fo_job_setting_row[c->setting].kind != FO_JOB_SWITCH
			       ? fo_site_say(s, "%s %s", key, value)
			       : NULL;
	if (!value && style == TOML)
		value = fo_site_say(s, "\"%s\"", fo_site_text(s, c->setting, c->number));
	if (!value)
		return NULL;
	return fo_site_say(s, style == TOML ? "%s = %s" : "%s: %s", key, value);
}

/* "a.b.key = value" under its heading "[a.b]"; a heading that stands already is not repeated. */
static const char *toml_line(const struct fo_site *s, const char *line, const char **section)
{
	size_t key = strcspn(line, " ="), dot = 0;
	for (size_t i = 0; i < key; i++)
		if (line[i] == '.')
			dot = i;
	if (!dot)
		return line;
	const char *name = fo_site_say(s, "%.*s", (int)dot, line);
	bool same = *section && !strcmp(*section, name);
	*section = name;
	return same ? line + dot + 1 : fo_site_say(s, "[%s]\n%s", name, line + dot + 1);
}

/* "a.b.key: value" as JSON. */
static const char *json_line(const struct fo_site *s, const char *line)
{
	const char *open = "", *close = "";
	for (size_t n; n = strcspn(line, ".:"), line[n] == '.'; line += n + 1) {
		open = fo_site_say(s, "%s\"%.*s\": {", open, (int)n, line);
		close = fo_site_say(s, "%s}", close);
	}
	size_t n = strcspn(line, ":");
	return fo_site_say(s, "%s\"%.*s\"%s%s", open, (int)n, line, line + n, close);
}

/* "a.b.key: value" as nested YAML; headings that stand already are not repeated: a key may be there once. */
static const char *yaml_line(const struct fo_site *s, const char *line, const char **section)
{
	const char *headings = "", *key = line;
	int depth = 0;
	for (size_t n; n = strcspn(key, ".:"), key[n] == '.'; key += n + 1)
		headings = fo_site_say(s, "%s%*s%.*s:\n", headings, 2 * depth++, "", (int)n, key);
	bool same = *section && !strcmp(*section, headings);
	*section = headings;
	return fo_site_say(s, "%s%*s%s", same ? "" : headings, 2 * depth, "", key);
}

/* Does a text of lines or arguments hold this one as a whole? */
static bool holds(const char *text, const char *line)
{
	size_t n = strlen(line);
	for (const char *at = text; at && (at = strstr(at, line)); at++)
		if ((at == text || at[-1] == '\n' || at[-1] == ' ') && (!at[n] || at[n] == '\n' || at[n] == ' '))
			return true;
	return false;
}

/* The length of the first of "--recompute-granularity full --recompute-num-layers 1". */
static size_t argument_length(const char *arguments)
{
	const char *next = strstr(arguments, " --");
	return next ? (size_t)(next - arguments) : strlen(arguments);
}

/* An argument as a key of Megatron's YAML: "--tp-comm-overlap" is "--tp-comm-overlap: true". */
static const char *yaml_argument(const struct fo_site *s, const char *argument)
{
	size_t n = strcspn(argument, " ");
	return argument[n] ? fo_site_say(s, "%.*s:%s", (int)n, argument, argument + n)
			   : fo_site_say(s, "%s: true", argument);
}

static bool is_yaml(const struct fo_site *s)
{
	for (int x = 0; x < FO_JOB_SETTINGS; x++)
		if (s->job->value[x].key && !strncmp(s->job->value[x].key, "MODEL_ARGS.", 11))
			return true;
	return false;
}

const char *fo_site_paste(const struct fo_site *s, const struct fo_job_change *change, int changes)
{
	const char *form = s->job->form ? s->job->form->id : "", *all = NULL, *section = NULL, *last = NULL;
	enum style style = STYLES;
	bool keys = is_yaml(s);
	for (size_t i = 0; i < sizeof style_of / sizeof *style_of; i++)
		if (speaks(style_of[i].form, form))
			style = style_of[i].style;
	if (!strcmp(form, "torchtitan-python"))
		style = ARGS;
	for (int i = 0; i < changes && style != STYLES; i++) {
		const char *lines = lines_of(s, form, style, &change[i]);
		if (!lines)
			return NULL;
		if (!*lines || (last && !strcmp(last, lines)))
			continue;
		last = lines;
		for (const char *end; *lines; lines = *end ? end + 1 : end) {
			end = lines + (style == ARGS ? argument_length(lines) : strcspn(lines, "\n"));
			const char *line = fo_site_say(s, "%.*s", (int)(end - lines), lines);
			if (style == ARGS && keys)
				line = yaml_argument(s, line);
			if (style == TOML)
				line = toml_line(s, line, &section);
			else if (style == YAML)
				line = yaml_line(s, line, &section);
			else if (style == JSON)
				line = json_line(s, line);
			if (style == ARGS && all && holds(all, line))
				continue;
			all = all ? fo_site_say(s, style == ARGS && !keys ? "%s %s" : "%s\n%s", all, line) : line;
		}
	}
	return all;
}
