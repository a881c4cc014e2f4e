/* Training configurations of every framework as jobs: the samples in fuzz/corpus/job, what goes first, what is
 * refused. */
#include "job/job.h"
#include "base/fs.h"
#include "job/forms.h"
#include "support/must.h"
#include "support/scratch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Paths of samples; a name with a slash at its beginning stays. */
static const char *sample(const char *name)
{
	static char path[8][512];
	static int turn;
	const char *root = getenv("FLATOUT_SOURCE");
	turn = (turn + 1) % 8;
	snprintf(path[turn], sizeof path[turn], "%s/fuzz/corpus/job/%s", root ? root : ".", name);
	return path[turn];
}

static void read_given(struct fo_job *job, const char *first, const char *second, const struct fo_job_given *given)
{
	const char *path[2] = { sample(first), second ? sample(second) : NULL };
	must(fo_job_read(path, second ? 2 : 1, given, job));
}

static void is(struct fo_job *job, enum fo_job_setting s, const char *text)
{
	const char *got = fo_job_text(job, s);
	if (strcmp(got, text))
		fail_msg("%s is '%s', not '%s' (%s)", fo_job_setting_row[s].id, got, text,
			 job->form ? job->form->name : "?");
}

/* Reads a sample, checks framework and model ("" none), then settings and texts up to NULL. */
struct expected {
	enum fo_job_setting s;
	const char *text;
};
static void holds(const char *file, const char *form, const char *model, const struct expected *e, size_t n)
{
	struct fo_job job;
	read_given(&job, file, NULL, NULL);
	assert_string_equal(job.form->id, form);
	assert_string_equal(job.has_model ? job.model.name : "", model);
	for (size_t i = 0; i < n; i++)
		is(&job, e[i].s, e[i].text);
	fo_job_fini(&job);
}
#define HOLDS(file, form, model, ...)                                      \
	holds(file, form, model, (const struct expected[]){ __VA_ARGS__ }, \
	      sizeof((const struct expected[]){ __VA_ARGS__ }) / sizeof(struct expected))
#define S(id, text)               \
	{                         \
		FO_JOB_##id, text \
	}
#define ITS_OWN "the configuration's model"

static void test_torchtitan(void **state)
{
	(void)state;
	HOLDS("titan.toml", "torchtitan", "llama-3.1-70b", S(TP, "8"), S(PP, "2"), S(PP_VIRTUAL, "2"),
	      S(PP_SCHEDULE, "interleaved"), S(SEQ, "8192"), S(GLOBAL_BATCH, "256"), S(MICRO_BATCH, "1"),
	      S(LOCAL_BATCH, "unknown"), S(RESHARD, "off"), S(RECOMPUTE, "full"), S(RECOMPUTE_OPTION, "op"),
	      S(COMPILE, "off"), S(COMPILE_LOSS, "on"), S(FP8, "rowwise"), S(FP8_GATHER, "on"), S(ZERO, "3"));
	HOLDS("titan_old.toml", "torchtitan", "llama-3.1-8b", S(LOCAL_BATCH, "2"), S(MICRO_BATCH, "2"),
	      S(ACCUMULATION, "1"), S(TP, "2"), S(TP_OVERLAP, "on"), S(COMPILE, "on"), S(FP8, "tensorwise"),
	      S(RECOMPUTE, "selective"), S(RECOMPUTE_OPTION, "2"), S(CHECKPOINT, "on"), S(CHECKPOINT_ASYNC, "on"),
	      S(RESHARD, "on"), S(DP_SHARD, "4"));
	HOLDS("titan.log", "torchtitan", "llama-3.1-8b", S(LOCAL_BATCH, "2"), S(COMPILE, "on"), S(RECOMPUTE, "none"),
	      S(FP8, "tensorwise"), S(GLOBAL_BATCH, "unknown"));
	HOLDS("titan_configs.log", "torchtitan", "qwen3-8b", S(LOCAL_BATCH, "3"), S(RECOMPUTE, "full"), S(FP8, "off"));
	HOLDS("job_config.txt", "torchtitan", "llama-3.1-405b", S(TP, "8"), S(CP, "2"), S(COMPILE, "on"));
	HOLDS("titan.py:llama3_8b", "torchtitan-python", "llama-3.1-8b", S(LOCAL_BATCH, "1"), S(SEQ, "auto"),
	      S(TP, "2"), S(COMPILE, "on"), S(RECOMPUTE, "selective"), S(FP8, "rowwise"), S(LOG_EVERY, "10"));
	HOLDS("titan.py:llama3_8b_full", "torchtitan-python", "llama-3.1-8b", S(SEQ, "4096"), S(RECOMPUTE, "full"));
	HOLDS("titan.py:llama3_8b_tokens", "torchtitan-python", "llama-3.1-8b", S(SEQ, "4096"), S(MICRO_BATCH, "2"),
	      S(LOCAL_BATCH, "2"), S(ADAPTERS, "on"), S(ADAPTER_RANK, "8"));
}

static void test_megatron(void **state)
{
	(void)state;
	HOLDS("megatron.args", "megatron", ITS_OWN, S(LAYERS, "32"), S(FFN, "14336"), S(KV_HEADS, "8"), S(GATED, "on"),
	      S(TIED, "off"), S(MICRO_BATCH, "2"), S(PP, "4"), S(PP_VIRTUAL, "4"), S(PP_SCHEDULE, "interleaved"),
	      S(PP_OVERLAP, "on"), S(ZERO, "1"), S(GRAD_OVERLAP, "on"), S(PARAM_OVERLAP, "off"), S(DTYPE, "bf16"),
	      S(GRAD_REDUCE, "fp32"), S(FUSED_GRAD_ACCUMULATION, "off"), S(FUSED_ROPE, "on"), S(RECOMPUTE, "full"),
	      S(RECOMPUTE_OPTION, "block"), S(RECOMPUTE_LAYERS, "16"), S(FP8, "tensorwise"), S(DROPOUT, "0"),
	      S(CHECKPOINT, "on"), S(LOG_EVERY, "100"), S(SEQUENCE_PARALLEL, "on"), S(MERGED_QKV, "on"));
	HOLDS("megatron.sh", "megatron", ITS_OWN, S(LAYERS, "96"), S(FFN, "49152"), S(KV_HEADS, "96"), S(GATED, "off"),
	      S(VOCAB, "50257"), S(NODES, "4"), S(PER_NODE, "8"), S(DEVICES, "32"), S(GLOBAL_BATCH, "64"), S(TP, "8"),
	      S(PP, "auto"), S(DTYPE, "fp16"), S(GRAD_REDUCE, "fp16"), S(LOSS_SCALE_POWER, "32"), S(DROPOUT, "0.1"),
	      S(BATCH_RAMP, "0:16 2.4B:320 12B:1536"), S(ZERO, "0"), S(ATTENTION, "flash"));
	HOLDS("megatron.yaml", "megatron", ITS_OWN, S(DETERMINISTIC, "on"), S(VOCAB, "50257"), S(RECOMPUTE, "none"),
	      S(CHECKPOINT, "on"), S(PP_OVERLAP, "off"));
	HOLDS("megatron.log", "megatron", ITS_OWN, S(LAYERS, "80"), S(KV_HEADS, "8"), S(VOCAB, "32000"),
	      S(DEVICES, "64"), S(DTYPE, "bf16"), S(FP8, "off"), S(BATCH_RAMP, "32,32,1000"), S(PP_VIRTUAL, "1"),
	      S(ZERO, "1"), S(GATED, "on"), S(DROPOUT, "0"));
	HOLDS("nemo.yaml", "nemo", ITS_OWN, S(FFN, "20480"), S(SEQ, "4096"), S(MAX_POSITION, "4096"), S(KV_HEADS, "40"),
	      S(PER_NODE, "8"), S(NODES, "4"), S(DEVICES, "32"), S(TP_OVERLAP, "on"), S(RECOMPUTE, "selective"),
	      S(ZERO, "1"), S(GRAD_OVERLAP, "on"), S(BUCKET_BYTES, "104857600"), S(ATTENTION, "flash"), S(FP8, "off"),
	      S(CHECKPOINT, "off"), S(LOG_EVERY, "10"), S(PP_VIRTUAL, "1"));
	HOLDS("bridge.yaml", "megatron-bridge", ITS_OWN, S(TP, "2"), S(CP, "2"), S(GLOBAL_BATCH, "128"), S(ZERO, "1"),
	      S(GRAD_REDUCE, "bf16"), S(FP8, "tensorwise"), S(DTYPE, "bf16"), S(GC_MANUAL, "on"), S(LOG_EVERY, "10"),
	      S(CHECKPOINT_EVERY, "500"), S(COMPILE_LOSS, "on"), S(RECOMPUTE, "none"), S(CLIP, "1"));
}

/* Shapes of the models that arguments state. */
static void test_shapes(void **state)
{
	(void)state;
	struct fo_job job;
	read_given(&job, "megatron.args", NULL, NULL);
	assert_true(job.model.family == FO_FAMILY_LLAMA && !job.model.norm_bias && !job.model.mlp_bias);
	assert_int_equal(job.model.vocab, 128256); /* a multiple of 128 x 2 */
	assert_int_equal(job.model.head_dim, 128);
	assert_true(fabs(fo_model_params(&job.model).total / 8.03e9 - 1) < 0.01); /* Llama 3 8B */
	fo_job_fini(&job);
	read_given(&job, "megatron.sh", NULL, NULL);
	assert_true(job.model.family == FO_FAMILY_GPT && job.model.learned_position && job.model.tied &&
		    job.model.norm_bias);
	assert_int_equal(job.model.vocab, 51200); /* 50,257 in steps of 128 x 8 */
	assert_true(fabs(fo_model_params(&job.model).total / 175e9 - 1) < 0.01);
	fo_job_fini(&job);
	read_given(&job, "nanotron.yaml", NULL, NULL);
	assert_true(fabs(fo_model_params(&job.model).total / 8.03e9 - 1) < 0.01);
	fo_job_fini(&job);
}

/* A job of text that is written to a file of the test's folder. */
static void read_text(struct fo_job *job, const char *name, const char *text)
{
	char path[256];
	const char *paths[] = { path };
	snprintf(path, sizeof path, "%s/%s", fo_scratch, name);
	must(fo_fs_write_atomic(path, text, strlen(text)));
	must(fo_job_read(paths, 1, NULL, job));
}

static void no_model(const char *name, const char *text, const char *why)
{
	struct fo_job job;
	read_text(&job, name, text);
	if (job.has_model || !strstr(job.model_missing, why))
		fail_msg("%s: the model is %s, not missing for '%s'", text, job.has_model ? "known" : job.model_missing,
			 why);
	fo_job_fini(&job);
}

#define GPT \
	"--num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64 --bf16 "

/* What has more than the stated dimensions, and what states too little, is no model. */
static void test_no_model(void **state)
{
	(void)state;
	struct fo_job job;
	read_text(&job, "whole", GPT "--vocab-size 1000\n");
	assert_true(job.has_model && job.model.vocab == 1024);
	fo_job_fini(&job);
	read_text(&job, "mixture", GPT "--vocab-size 1000 --num-experts 4 --moe-layer-freq '([0]*1+[1]*1)'\n");
	assert_true(job.has_model && job.model.dense_layers == 1 && job.model.experts == 4);
	fo_job_fini(&job);
	no_model("vocab", GPT "\n", "does not state the model's vocabulary");
	no_model("hybrid", GPT "--vocab-size 1000 --hybrid-override-pattern M-M*\n", "'--hybrid-override-pattern'");
	no_model("window", GPT "--vocab-size 1000 --window-size 128,0\n", "'--window-size'");
	no_model("often", GPT "--vocab-size 1000 --num-experts 4 --moe-layer-freq 2\n", "'--moe-layer-freq'");
	no_model("bert", "torchrun pretrain_bert.py " GPT "--vocab-size 1000\n", "'launch.script'");
	no_model("odd", GPT "--vocab-size 1000 --num-query-groups 3 --group-query-attention\n", "cannot share");
	static const char maxtext[] = "base_config: base.yml\nper_device_batch_size: 1\nmax_target_length: 64\n";
	read_text(&job, "base.yaml", maxtext);
	assert_true(job.has_model && job.model.layers == 16 && job.model.vocab == 32000);
	fo_job_fini(&job);
	char text[512];
	snprintf(text, sizeof text, "%sdecoder_block: gemma3\nbase_emb_dim: 1024\n", maxtext);
	no_model("gemma.yaml", text, "'decoder_block'");
	snprintf(text, sizeof text, "%sglobal_parameter_scale: 8\n", maxtext);
	no_model("scaled.yaml", text, "'global_parameter_scale'");
	no_model("file.sh",
		 "python3 train.py a/other.yml per_device_batch_size=1 max_target_length=64 ici_fsdp_parallelism=8\n",
		 "no model is named");
	/* Dimensions beside the name of a known model change it. */
	read_text(&job, "changed.yaml",
		  "base_config: base.yml\nmodel_name: llama3.1-8b\nper_device_batch_size: 1\n"
		  "max_target_length: 64\nbase_num_decoder_layers: 4\n");
	assert_true(job.has_model && job.model.layers == 4 && job.model.hidden == 4096);
	assert_string_equal(job.model.name, "llama-3.1-8b, changed");
	fo_job_fini(&job);
	/* A script that another one takes in. */
	read_text(&job, "part.sh", "#!/bin/bash\nMODEL_ARGS=\" \\\n --num-layers 3 \\\n --hidden-size 64 --swiglu\"\n");
	is(&job, FO_JOB_LAYERS, "3");
	is(&job, FO_JOB_GATED, "on");
	fo_job_fini(&job);
}

/* Files that are something else. */
static void test_refused(void **state)
{
	(void)state;
	static const struct {
		const char *text, *why;
	} wrong[] = {
		{ "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n",
		  "read as YAML, it has 3 settings, the first" },
		{ "[project]\nname = \"x\"\n[tool.ruff]\nline-length = 100\n",
		  "no training configuration that is known" },
		{ "FROM a:1\nRUN pip install --no-cache-dir b\n", "expected settings like" },
		{ "{\"a\": 1}", "read as JSON, it has 1 setting, the first 'a'" },
		{ "step: 1  loss: 2.0  tps: 1,000\nstep: 2  loss: 2.0  tps: 1,000\n", "not valid YAML" },
		{ "import torch\ndef f():\n    return 1\n", "is a Python program, no configuration" },
		{ "", "is empty" },
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct fo_job job;
		char path[256];
		const char *paths[] = { path };
		snprintf(path, sizeof path, "%s/wrong", fo_scratch);
		must(fo_fs_write_atomic(path, wrong[i].text, strlen(wrong[i].text)));
		if (fo_job_read(paths, 1, NULL, &job) != FO_EFORMAT || !strstr(fo_err_text(), wrong[i].why))
			fail_msg("'%s' gives '%s', not '%s'", wrong[i].text, fo_err_text(), wrong[i].why);
		assert_true(*fo_err_hint());
		fo_job_fini(&job);
	}
}

static void test_hugging_face(void **state)
{
	(void)state;
	HOLDS("ds_z3.json", "deepspeed", "", S(ZERO, "3"), S(OFFLOAD_OPTIMIZER, "on"), S(OFFLOAD_PARAMS, "off"),
	      S(OFFLOAD_PINNED, "on"), S(SUB_GROUP, "0"), S(LIVE_PARAMS, "0"), S(REUSE_DISTANCE, "0"),
	      S(BUCKET_BYTES, "1000000000"), S(DTYPE, "bf16"), S(GRAD_REDUCE, "bf16"), S(LOSS_SCALE_POWER, "32"),
	      S(MICRO_BATCH, "auto"), S(CLIP, "1"), S(RESHARD, "on"), S(GRAD_OVERLAP, "on"));
	HOLDS("accelerate.yaml", "accelerate", "", S(ZERO, "3"), S(RESHARD, "on"), S(PREFETCH, "on"),
	      S(FSDP_VERSION, "2"), S(TP, "2"), S(DP_REPLICATE, "2"), S(DP_SHARD, "4"), S(DEVICES, "16"), S(NODES, "2"),
	      S(PER_NODE, "8"), S(RECOMPUTE, "none"), S(CPU_AFFINITY, "off"), S(DTYPE, "bf16"), S(GRAD_REDUCE, "bf16"));
	HOLDS("accelerate_ds.yaml", "accelerate", "", S(MISSING_FILE, "configs/ds_z3.json"), S(ZERO, "unknown"),
	      S(DTYPE, "unknown"));
	HOLDS("trainer.json", "transformers", "llama-3.1-8b", S(MICRO_BATCH, "2"), S(ACCUMULATION, "8"),
	      S(RECOMPUTE, "full"), S(DTYPE, "bf16"), S(COMPILE, "off"), S(OPTIMIZER_FUSED, "on"),
	      S(LOADER_WORKERS, "4"), S(ZERO, "3"), S(SEQ, "4096"), S(PACKED, "on"), S(LOG_EVERY, "10"),
	      S(FSDP_VERSION, "2"), S(PREFETCH, "on"));
	HOLDS("trainer.sh", "transformers", "qwen3-8b", S(MICRO_BATCH, "4"), S(PER_NODE, "8"), S(RECOMPUTE, "full"),
	      S(MISSING_FILE, "configs/ds_z3.json"), S(ZERO, "unknown"), S(SEQ, "2048"));
	HOLDS("axolotl.yaml", "axolotl", "llama-3-8b", S(MICRO_BATCH, "2"), S(ACCUMULATION, "4"), S(SEQ, "8192"),
	      S(PACKED, "on"), S(ATTENTION, "flash"), S(MOMENTS, "8bit"), S(RECOMPUTE, "full"), S(DTYPE, "bf16"),
	      S(ADAPTERS, "on"), S(ADAPTER_RANK, "32"), S(ROWS_VARY, "off"), S(ZERO, "unknown"));
	HOLDS("llamafactory.yaml", "llamafactory", "qwen2.5-7b", S(SEQ, "4096"), S(RECOMPUTE, "full"),
	      S(ATTENTION, "flash"), S(ACCUMULATION, "2"), S(PACKED, "off"), S(ADAPTERS, "off"), S(ROWS_VARY, "on"));
}

static void test_others(void **state)
{
	(void)state;
	HOLDS("maxtext.yaml", "maxtext", "llama-3.1-70b", S(TP, "2"), S(DP_SHARD, "4"), S(DP_REPLICATE, "4"),
	      S(ZERO, "3"), S(MICRO_BATCH, "2"), S(SEQ, "4096"), S(FP8, "off"), S(RECOMPUTE, "selective"),
	      S(ATTENTION, "fused"));
	HOLDS("neox.yml", "gpt-neox", "", S(TP, "2"), S(PP, "1"), S(LAYERS, "16"), S(FFN, "8192"), S(ZERO, "1"),
	      S(ATTENTION, "flash"), S(RECOMPUTE, "full"), S(MICRO_BATCH, "4"), S(ACCUMULATION, "2"), S(DTYPE, "bf16"),
	      S(TIED, "off"), S(GRAD_OVERLAP, "on"));
	HOLDS("olmo.yaml", "olmo", ITS_OWN, S(FFN, "8192"), S(GATED, "on"), S(ZERO, "3"), S(COMPILE, "on"),
	      S(SEQ, "4096"), S(GLOBAL_BATCH, "1024"), S(MICRO_BATCH, "4"), S(RECOMPUTE, "unknown"),
	      S(GRAD_REDUCE, "fp32"), S(VOCAB, "100352"));
	HOLDS("litgpt.yaml", "litgpt", "", S(GLOBAL_BATCH, "512"), S(MICRO_BATCH, "4"), S(DEVICES, "16"), S(ZERO, "3"),
	      S(DP_REPLICATE, "2"), S(CLIP, "1"));
	HOLDS("nanotron.yaml", "nanotron", ITS_OWN, S(TP, "8"), S(PP, "2"), S(DP_SHARD, "4"), S(ZERO, "1"),
	      S(DEVICES, "64"), S(GLOBAL_BATCH, "128"), S(SEQUENCE_PARALLEL, "on"), S(TP_OVERLAP, "on"),
	      S(PP_SCHEDULE, "1f1b"), S(GRAD_ACCUMULATE, "fp32"));
	HOLDS("foundry.yaml", "llm-foundry", ITS_OWN, S(LAYERS, "32"), S(FFN, "16384"), S(GLOBAL_BATCH, "1024"),
	      S(MICRO_BATCH, "auto"), S(ZERO, "3"), S(GRAD_REDUCE, "bf16"), S(RECOMPUTE, "none"), S(SEQ, "2048"));
	HOLDS("run.yaml", "flatout", "llama-3.2-1b", S(SEQ, "8192"), S(MICRO_BATCH, "2"), S(ACCUMULATION, "8"),
	      S(RECOMPUTE, "selective"), S(MERGED_QKV, "on"), S(DEVICES, "1"), S(CHECKPOINT_EVERY, "500"));
}

static void note_with(const struct fo_job *job, const char *text)
{
	for (int64_t i = 0; i < job->notes; i++)
		if (strstr(job->note[i], text))
			return;
	fail_msg("no note says '%s'", text);
}

static void test_several_files(void **state)
{
	(void)state;
	struct fo_job job;
	/* The file that accelerate refers to decides; nothing is missing any more. */
	read_given(&job, "accelerate_ds.yaml", "ds_z3.json", NULL);
	assert_string_equal(job.form->id, "accelerate");
	is(&job, FO_JOB_MISSING_FILE, "unknown");
	is(&job, FO_JOB_ZERO, "3");
	is(&job, FO_JOB_DEVICES, "8");
	fo_job_fini(&job);
	/* Arguments and the same file: its "auto" is what the arguments say. */
	read_given(&job, "trainer.sh", "ds_z3.json", NULL);
	is(&job, FO_JOB_MICRO_BATCH, "4");
	is(&job, FO_JOB_ACCUMULATION, "2");
	is(&job, FO_JOB_ZERO, "3");
	is(&job, FO_JOB_OFFLOAD_OPTIMIZER, "on");
	fo_job_fini(&job);
	/* A model's config.json. */
	read_given(&job, "accelerate.yaml", "config.json", NULL);
	assert_true(job.has_model && job.model.layers == 16 && job.model.tied);
	fo_job_fini(&job);
	/* Two files that disagree. */
	read_given(&job, "accelerate.yaml", "nanotron.yaml", NULL);
	is(&job, FO_JOB_TP, "2");
	note_with(&job, "nanotron.yaml:4 says 'parallelism.tp' = '8', but ");
	fo_job_fini(&job);
	const char *const path[] = { sample("config.json") };
	assert_int_equal(fo_job_read(path, 1, NULL, &job), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "is a model's config.json, no training configuration"));
	fo_job_fini(&job);
}

static void test_given(void **state)
{
	(void)state;
	struct fo_job job;
	const char *const set[] = { "tp=4", "training.seq_len=2048", "recompute=none", "compile=yes",
				    "grad-reduce=bf16" };
	const struct fo_job_given given = { .model = "llama-3.1-8b", .set = set, .sets = 5 };
	read_given(&job, "titan.toml", NULL, &given);
	is(&job, FO_JOB_TP, "4");
	is(&job, FO_JOB_SEQ, "2048");
	is(&job, FO_JOB_RECOMPUTE, "none");
	is(&job, FO_JOB_COMPILE, "on");
	is(&job, FO_JOB_GRAD_REDUCE, "bf16");
	assert_int_equal(job.value[FO_JOB_SEQ].origin, FO_JOB_GIVEN);
	assert_int_equal(job.value[FO_JOB_TP].origin, FO_JOB_GIVEN);
	assert_string_equal(job.model.name, "llama-3.1-8b");
	fo_job_fini(&job);
	static const struct {
		const char *set, *why;
	} wrong[] = {
		{ "tp", "expected NAME=VALUE" },
		{ "tp=many", "expected a number" },
		{ "compile=perhaps", "expected on or off" },
		{ "recompute=some", "expected one of: none selective full offload" },
		{ "made.up=1", "no setting has this name" },
	};
	const char *const path[] = { sample("titan.toml") };
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		const struct fo_job_given one = { .set = &wrong[i].set, .sets = 1 };
		assert_int_equal(fo_job_read(path, 1, &one, &job), FO_EARG);
		if (!strstr(fo_err_text(), wrong[i].why))
			fail_msg("%s: %s", wrong[i].set, fo_err_text());
		fo_job_fini(&job);
	}
}

static void test_origins(void **state)
{
	(void)state;
	struct fo_job job;
	read_given(&job, "megatron.args", NULL, NULL);
	const struct fo_job_value *tp = &job.value[FO_JOB_TP];
	assert_int_equal(tp->origin, FO_JOB_STATED);
	assert_int_equal(tp->line, 18);
	assert_string_equal(tp->key, "--tensor-model-parallel-size");
	assert_int_equal(job.value[FO_JOB_LOG_EVERY].origin, FO_JOB_DEFAULT);
	assert_string_equal(job.value[FO_JOB_LOG_EVERY].key, "--log-interval");
	assert_int_equal(job.unread_count, 1);
	assert_non_null(strstr(job.unread[0], "megatron.args:33 --optimizer-magic"));
	note_with(&job, "'--micro-batch-size' is given twice with different values: '2' in line 16 counts, not '1'");
	fo_job_fini(&job);
	read_given(&job, "megatron.sh", NULL, NULL);
	assert_string_equal(fo_job_env(&job, "NCCL_ALGO"), "Ring");
	assert_null(fo_job_env(&job, "NCCL_DEBUG"));
	fo_job_fini(&job);
	read_given(&job, "axolotl.yaml", NULL, NULL);
	assert_true(fo_job_is(&job, FO_JOB_ADAPTERS, 1));
	fo_job_fini(&job);
}

static const char *written(const char *name, const char *text)
{
	static char path[4][512];
	static int turn;
	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof path[turn], "%s/%s", fo_scratch, name);
	FILE *f = fopen(path[turn], "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	return path[turn];
}

/* What a script takes in and nobody gave may state anything: no default counts. */
static void test_taken_in(void **state)
{
	(void)state;
	struct fo_job job;
	const char *const path[] = { written("job.sh", "#!/bin/bash\nsource $(dirname $0)/common.sh\n"
						       "OPTIONS=\"--load $CKPT --num-layers 32 --hidden-size 4096 "
						       "--swiglu --bf16 --micro-batch-size 1\"\n"),
				     written("common.sh", "#!/bin/bash\nexport NCCL_ALGO=Ring\nN=4\n") };
	must(fo_job_read(path, 1, NULL, &job));
	is(&job, FO_JOB_MISSING_FILE, "common.sh");
	assert_int_equal(job.value[FO_JOB_MISSING_FILE].line, 2);
	is(&job, FO_JOB_LAYERS, "32");
	is(&job, FO_JOB_DTYPE, "bf16");
	for (int s = 0; s < FO_JOB_SETTINGS; s++)
		if (job.value[s].origin == FO_JOB_DEFAULT)
			fail_msg("%s has the default %s", fo_job_setting_row[s].id,
				 fo_job_text(&job, (enum fo_job_setting)s));
	fo_job_fini(&job);
	must(fo_job_read(path, 2, NULL, &job));
	is(&job, FO_JOB_MISSING_FILE, "unknown");
	assert_int_equal(job.value[FO_JOB_TP].origin, FO_JOB_DEFAULT);
	assert_string_equal(fo_job_env(&job, "NCCL_ALGO"), "Ring");
	fo_job_fini(&job);
	const char *const open[] = { written("open.sh", "#!/bin/bash\nsource $1\ntorchrun pretrain_gpt.py --swiglu "
							"--num-layers 32 --use-mcore-models\n"),
				     path[1] };
	must(fo_job_read(open, 1, NULL, &job));
	is(&job, FO_JOB_MISSING_FILE, "$1");
	assert_int_equal(job.value[FO_JOB_TP].origin, FO_JOB_UNKNOWN);
	fo_job_fini(&job);
	must(fo_job_read(open, 2, NULL, &job));
	is(&job, FO_JOB_MISSING_FILE, "unknown");
	assert_int_equal(job.value[FO_JOB_TP].origin, FO_JOB_DEFAULT);
	fo_job_fini(&job);
	const char *const server[] = { written("serve.sh", "#!/bin/bash\n"
							   "torchrun tools/run_text_generation_server.py "
							   "--num-layers 32 --swiglu --use-mcore-models\n") };
	assert_int_equal(fo_job_read(server, 1, NULL, &job), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "'run_text_generation_server.py' is inference"));
	fo_job_fini(&job);
}

/* Values as the framework's keys take them, and defaults of settings that a framework does not have. */
static void test_own_units(void **state)
{
	(void)state;
	struct fo_job job;
	read_given(&job, "ds_z3.json", NULL, NULL);
	assert_string_equal(fo_job_own_text(&job, FO_JOB_BUCKET_BYTES), "500000000");
	assert_string_equal(fo_job_own_text(&job, FO_JOB_LOSS_SCALE_POWER), "32");
	fo_job_fini(&job);
	const char *const path[] = { written("fp16.args", "--num-layers 32 --hidden-size 4096 --swiglu --fp16\n") };
	must(fo_job_read(path, 1, NULL, &job));
	assert_string_equal(fo_job_own_text(&job, FO_JOB_LOSS_SCALE_POWER), "4294967296 (2^32)");
	assert_true(fo_job_own_number(&job, FO_JOB_LOSS_SCALE_POWER, 16) == 65536);
	fo_job_fini(&job);
	read_given(&job, "accelerate.yaml", NULL, NULL);
	is(&job, FO_JOB_FP8, "off");
	assert_int_equal(job.value[FO_JOB_FP8].origin, FO_JOB_STATED);
	assert_string_equal(fo_job_own_text(&job, FO_JOB_FP8), "bf16");
	fo_job_fini(&job);
	static const char *const none[] = { "trainer.json", "litgpt.yaml", "olmo.yaml", "neox.yml", "nanotron.yaml" };
	for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
		read_given(&job, none[i], NULL, NULL);
		is(&job, FO_JOB_FP8, "unknown");
		is(&job, FO_JOB_CHECKPOINT_ASYNC, "unknown");
		fo_job_fini(&job);
	}
}

/* The list fits a terminal, and the JSON is JSON. */
static void test_list(void **state)
{
	(void)state;
	static const char *const file[] = { "titan.toml", "megatron.sh", "ds_z3.json", "nemo.yaml" };
	for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
		struct fo_job job;
		struct fo_doc doc = { 0 };
		struct fo_str out = { 0 };
		read_given(&job, file[i], NULL, NULL);
		fo_job_list(&job, &doc);
		fo_doc_to_term(&doc, 80, &out);
		for (const char *s = out.data; s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL)
			if (strcspn(s, "\n") > 80)
				fail_msg("%s: more than 80 columns: %.*s", file[i], (int)strcspn(s, "\n"), s);
		assert_non_null(strstr(out.data, "line "));
		fo_doc_fini(&doc);
		fo_str_fini(&out);
		fo_job_fini(&job);
	}
}

/* Every row names settings and words that exist: a map's words are of its setting, defaults are values of theirs. */
static void test_tables(void **state)
{
	(void)state;
	for (int f = 0; f < fo_forms; f++) {
		const struct fo_form *form = fo_form[f];
		assert_true(form->name.id && form->name.name);
		assert_true(!form->defaults[0] || form->name.release || form == &fo_form_nemo);
		for (int t = 0; t < 4 && form->rows[t]; t++)
			for (const struct fo_form_row *row = form->rows[t]; row->key; row++)
				for (const char *at = row->map; at && (at = strchr(at, '=')); at++) {
					double v;
					char word[64] = "";
					snprintf(word, sizeof word, "%.*s", (int)strcspn(at + 1, " "), at + 1);
					if (strcmp(word, "-") &&
					    !fo_form_value((enum fo_job_setting)row->setting, word, &v))
						fail_msg("%s, %s: '%s' is no value of %s", form->name.id, row->key,
							 word, fo_job_setting_row[row->setting].id);
				}
		bool assumed[FO_JOB_SETTINGS] = { false };
		for (size_t t = 0; t < sizeof form->defaults / sizeof *form->defaults; t++)
			for (const struct fo_form_default *d = form->defaults[t]; d && d->setting >= 0; d++) {
				double v;
				enum fo_job_setting s = (enum fo_job_setting)d->setting;
				if (fo_job_setting_row[s].kind != FO_JOB_TEXT && !fo_form_value(s, d->value, &v))
					fail_msg("%s: '%s' is no value of %s", form->name.id, d->value,
						 fo_job_setting_row[s].id);
				if (assumed[s])
					fail_msg("%s assumes %s twice", form->name.id, fo_job_setting_row[s].id);
				assumed[s] = true;
			}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_torchtitan), cmocka_unit_test(test_megatron),
		cmocka_unit_test(test_shapes),     cmocka_unit_test(test_hugging_face),
		cmocka_unit_test(test_others),     cmocka_unit_test(test_several_files),
		cmocka_unit_test(test_given),      cmocka_unit_test(test_origins),
		cmocka_unit_test(test_taken_in),   cmocka_unit_test(test_own_units),
		cmocka_unit_test(test_list),       cmocka_unit_test(test_tables),
		cmocka_unit_test(test_no_model),   cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
