/* Other people's configurations (FLATOUT_CONFIGS, a folder) as jobs: what each of them states, read by eye. */
#include "job/job.h"
#include "support/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S(id, text)               \
	{                         \
		FO_JOB_##id, text \
	}
enum { FACTS = 24 };

static const struct {
	const char *file, *form, *model; /* model: its name; "" none; NULL: of the file's own shape */
	double params;                   /* of that shape in billions, within 2 %; 0: not looked at */
	struct {
		enum fo_job_setting s;
		const char *text;
	} fact[FACTS];
} config[] = {
	{ "torchtitan_llama3_8b.toml",
	  "torchtitan",
	  "llama-3.1-8b",
	  8.03,
	  { S(LOCAL_BATCH, "1"), S(SEQ, "8192"), S(COMPILE, "off"), S(COMPILE_LOSS, "off"), S(FP8, "off"),
	    S(RECOMPUTE, "selective"), S(RECOMPUTE_OPTION, "op"), S(ZERO, "3"), S(TP, "1"), S(PROFILING, "on") } },
	{ "torchtitan_llama3_70b.toml",
	  "torchtitan",
	  "llama-3.1-70b",
	  70.6,
	  { S(LOCAL_BATCH, "8"), S(TP, "8"), S(TP_OVERLAP, "off"), S(RECOMPUTE, "full"), S(COMPILE, "off"),
	    S(FP8, "off") } },
	{ "torchtitan_llama3_405b.toml",
	  "torchtitan",
	  "llama-3.1-405b",
	  405.9,
	  { S(TP, "8"), S(RECOMPUTE, "full"), S(FP8, "tensorwise"), S(FP8_GATHER, "on"), S(FP8_PRECOMPUTE, "on"),
	    S(COMPILE, "on"), S(COMPILE_LOSS, "on"), S(LOCAL_BATCH, "2"), S(SEQ, "8192"), S(TP_OVERLAP, "on"),
	    S(PP, "1"), S(CP, "1"), S(LOG_EVERY, "10"), S(CHECKPOINT, "off") } },
	{ "torchtitan_deepseek_v3_671b.toml",
	  "torchtitan",
	  "deepseek-v3",
	  671,
	  { S(EP, "1"), S(ETP, "1"), S(TP, "1"), S(PP, "1"), S(COMPILE, "off"), S(COMPILE_LOSS, "on"), S(FP8, "off"),
	    S(FP8_GATHER, "off"), S(LOCAL_BATCH, "4"), S(RECOMPUTE, "selective"), S(PROFILING, "off") } },
	{ "torchtitan_llama4_17bx16e.toml",
	  "torchtitan",
	  "llama-4-scout",
	  108,
	  { S(TP, "8"), S(EP, "1"), S(ETP, "8"), S(COMPILE, "off"), S(RECOMPUTE, "full"), S(TP_OVERLAP, "off"),
	    S(LOCAL_BATCH, "8") } },
	{ "torchtitan_qwen3_32b.toml",
	  "torchtitan",
	  "qwen3-32b",
	  32.8,
	  { S(RECOMPUTE, "full"), S(RECOMPUTE_OPTION, "op"), S(COMPILE, "off"), S(COMPILE_LOSS, "off"), S(TP, "1"),
	    S(LOCAL_BATCH, "2"), S(SEQ, "4096") } },
	{ "megatron_gpt3_7b_tp4.yaml",
	  "megatron",
	  NULL,
	  6.75,
	  { S(TP, "4"), S(SEQUENCE_PARALLEL, "off"), S(DETERMINISTIC, "on"), S(FUSED_GRAD_ACCUMULATION, "off"),
	    S(MICRO_BATCH, "2"), S(GLOBAL_BATCH, "8"), S(ZERO, "1"), S(GRAD_OVERLAP, "on"), S(PARAM_OVERLAP, "on"),
	    S(KV_HEADS, "8"), S(FFN, "16384"), S(VOCAB, "131073"), S(CHECKPOINT_ASYNC, "on"), S(LOG_EVERY, "2") } },
	{ "megatron_gpt3_15b_8t_release.yaml",
	  "megatron",
	  NULL,
	  15.6,
	  { S(TP, "8"), S(FUSED_ROPE, "off"), S(BATCH_RAMP, "0:384 200B:768 400B:1152"), S(GLOBAL_BATCH, "1152"),
	    S(SEQUENCE_PARALLEL, "on"), S(ZERO, "1"), S(GRAD_OVERLAP, "on"), S(PARAM_OVERLAP, "on"), S(DROPOUT, "0"),
	    S(VOCAB, "256000"), S(MICRO_BATCH, "4"), S(LOG_EVERY, "100"), S(LOADER_WORKERS, "6"),
	    S(GC_MANUAL, "on") } },
	{ "megatron_gpt3_175b.args",
	  "megatron",
	  NULL,
	  175,
	  { S(PP, "16"), S(TP, "8"), S(DTYPE, "fp16"), S(ZERO, "0"), S(GRAD_OVERLAP, "off"), S(PARAM_OVERLAP, "off"),
	    S(SEQUENCE_PARALLEL, "off"), S(RECOMPUTE, "none"), S(PP_VIRTUAL, "1"), S(PP_SCHEDULE, "1f1b"),
	    S(MICRO_BATCH, "1"), S(GLOBAL_BATCH, "1536"), S(LOG_EVERY, "100"), S(DROPOUT, "0.1"),
	    S(BATCH_RAMP, "0:16 2.4B:320 4.8B:624 7.2B:928 9.6B:1232 12B:1536") } },
	{ "megatron_llama3_8b_h100_fp8.args",
	  "megatron",
	  NULL,
	  8.03,
	  { S(SEQUENCE_PARALLEL, "on"), S(TP, "1"), S(PROFILING, "on"), S(MICRO_BATCH, "1"), S(FP8, "delayed"),
	    S(FP8_GATHER, "on"), S(COMPILE_LOSS, "on"), S(GRAD_OVERLAP, "on"), S(PARAM_OVERLAP, "on"),
	    S(GRAD_REDUCE, "bf16"), S(ATTENTION, "fused"), S(ZERO, "1"), S(GLOBAL_BATCH, "128"),
	    S(CHECKPOINT, "on") } },
	{ "megatron_mixtral_8x7b.args",
	  "megatron",
	  NULL,
	  46.7,
	  { S(EXPERTS, "8"), S(EXPERTS_ACTIVE, "2"), S(RECOMPUTE, "none"), S(MICRO_BATCH, "1"), S(EP_OVERLAP, "off"),
	    S(LOAD_OPTIMIZER, "off"), S(SEQUENCE_PARALLEL, "on"), S(TP, "1"), S(PP, "4"), S(EP, "8"),
	    S(MAX_POSITION, "32768"), S(SEQ, "4096") } },
	{ "deepspeed_zero1.json",
	  "deepspeed",
	  "",
	  0,
	  { S(ZERO, "1"), S(LOSS_SCALE_POWER, "32"), S(DTYPE, "auto"), S(MICRO_BATCH, "auto"), S(ACCUMULATION, "auto"),
	    S(GLOBAL_BATCH, "auto"), S(CLIP, "auto"), S(GRAD_OVERLAP, "on"), S(OFFLOAD_OPTIMIZER, "off") } },
	{ "deepspeed_zero2.json",
	  "deepspeed",
	  "",
	  0,
	  { S(ZERO, "2"), S(OFFLOAD_OPTIMIZER, "on"), S(OFFLOAD_PINNED, "unknown"), S(OFFLOAD_PARAMS, "off") } },
	{ "deepspeed_zero3_bf16_cpuoffload_all.json",
	  "deepspeed",
	  "",
	  0,
	  { S(ZERO, "3"), S(OFFLOAD_OPTIMIZER, "on"), S(OFFLOAD_PARAMS, "on"), S(OFFLOAD_PINNED, "on"),
	    S(LIVE_PARAMS, "0"), S(REUSE_DISTANCE, "0"), S(SUB_GROUP, "0"), S(DTYPE, "bf16"),
	    S(BUCKET_BYTES, "auto") } },
	{ "accelerate_fsdp.yaml",
	  "accelerate",
	  "",
	  0,
	  { S(DEVICES, "2"), S(PREFETCH, "off"), S(RECOMPUTE, "none"), S(FSDP_VERSION, "1"), S(ZERO, "3"),
	    S(DTYPE, "bf16"), S(OFFLOAD_PARAMS, "off") } },
	{ "accelerate_deepspeed.yaml",
	  "accelerate",
	  "",
	  0,
	  { S(MISSING_FILE, "../deepspeed_config_templates/zero_stage1_config.json"), S(DTYPE, "unknown"),
	    S(ZERO, "unknown"), S(DEVICES, "2") } },
	{ "accelerate_tp_hsdp.yaml",
	  "accelerate",
	  "",
	  0,
	  { S(TP, "2"), S(DP_REPLICATE, "2"), S(DP_SHARD, "2"), S(NODES, "1"), S(DEVICES, "8"), S(PER_NODE, "8"),
	    S(RECOMPUTE, "none"), S(CPU_AFFINITY, "off"), S(FSDP_VERSION, "2"), S(RESHARD, "on") } },
	{ "nemo_gpt3_175b_256h100_fp8.yaml",
	  "nemo",
	  NULL,
	  175,
	  { S(TP_OVERLAP, "off"), S(PP_VIRTUAL, "2"), S(PP, "8"), S(TP, "4"), S(MICRO_BATCH, "1"),
	    S(GLOBAL_BATCH, "2048"), S(DROPOUT, "0.1"), S(FP8, "delayed"), S(FFN, "49152"), S(KV_HEADS, "96"),
	    S(ZERO, "1"), S(GRAD_OVERLAP, "on"), S(PARAM_OVERLAP, "on"), S(PP_OVERLAP, "on"), S(RECOMPUTE, "none"),
	    S(SEQUENCE_PARALLEL, "on"), S(GRAD_REDUCE, "bf16"), S(PER_NODE, "8"), S(SEQ, "2048") } },
	{ "nemo_llama31_70b_256h100_bf16.yaml",
	  "nemo",
	  NULL,
	  0,
	  { S(CP, "2"), S(TP, "4"), S(PP, "4"), S(PP_VIRTUAL, "4"), S(SEQ, "8192"), S(TP_OVERLAP, "off"), S(FP8, "off"),
	    S(GATED, "on"), S(TIED, "off"), S(KV_HEADS, "8"), S(ATTENTION, "flash"), S(GC_MANUAL, "on"),
	    S(DROPOUT, "0") } },
	{ "maxtext_llama31_405b_512h200_fp8.yaml",
	  "maxtext",
	  "llama-3.1-405b",
	  405.9,
	  { S(DP_SHARD, "512"), S(ZERO, "3"), S(RECOMPUTE, "full"), S(FP8, "delayed"), S(CHECKPOINT, "off"),
	    S(MICRO_BATCH, "2"), S(SEQ, "8192"), S(ATTENTION, "fused"), S(TP, "1") } },
};

static void as_read_by_eye(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_CONFIGS");
	if (!root || !*root)
		skip();
	for (size_t i = 0; i < sizeof config / sizeof *config; i++) {
		char file[4096];
		const char *path[] = { file };
		struct fo_job job;
		snprintf(file, sizeof file, "%s/%s", root, config[i].file);
		must(fo_job_read(path, 1, NULL, &job));
		assert_string_equal(job.form->id, config[i].form);
		if (config[i].model)
			assert_string_equal(job.has_model ? job.model.name : "", config[i].model);
		assert_true(job.has_model || job.model_missing);
		double billions = job.has_model ? fo_model_params(&job.model).total / 1e9 : 0, want = config[i].params;
		if (want && !(billions > 0.98 * want && billions < 1.02 * want))
			fail_msg("%s: %.2f billion weights, not %.2f", config[i].file, billions, want);
		for (int k = 0; k < FACTS && config[i].fact[k].text; k++) {
			enum fo_job_setting s = config[i].fact[k].s;
			if (strcmp(fo_job_text(&job, s), config[i].fact[k].text))
				fail_msg("%s: %s is '%s', not '%s'", config[i].file, fo_job_setting_row[s].id,
					 fo_job_text(&job, s), config[i].fact[k].text);
		}
		for (int64_t k = 0; k < job.unread_count; k++)
			print_message("%s\n", job.unread[k]);
		fo_job_fini(&job);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(as_read_by_eye) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
