/* Every rule about configurations: a job that triggers it, a job that does not, and the first one with the setting
 * unknown, about which no rule may say anything. */
#include "audit/config.h"

#include "base/fs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define END FO_JOB_SETTINGS
enum { MOST = 10 };

static const struct fo_job_form forms[] = {
	{ "torchtitan", "torchtitan (TOML)", "0.2.1" },
	{ "megatron", "Megatron-LM (arguments)", NULL },
	{ "nemo", "NeMo (YAML)", NULL },
	{ "deepspeed", "DeepSpeed (JSON)", NULL },
	{ "accelerate", "accelerate (YAML)", NULL },
	{ "maxtext", "MaxText (YAML)", NULL },
	{ "transformers", "transformers or trl", NULL },
	{ "nanotron", "nanotron", NULL },
};
static struct fo_catalogue catalogue;

struct row {
	const char *id, *form, *cluster, *model;
	struct fo_job_change common[MOST]; /* of both jobs; ends with END unless full */
	struct fo_job_change trigger[MOST], quiet[MOST];
	int unknown; /* the setting whose absence silences the rule; < 0: none */
	enum fo_audit_level level;
};
/* clang-format off */
#define S(x, n) { FO_JOB_##x, n }
#define LAST { END, 0 }

static const struct row rows[] = {
	/* memory */
	{ "memory-fit", "torchtitan", "8xHGX-H100", "llama-3.1-70b", { S(DEVICES, 64), LAST }, { S(ZERO, 0), LAST },
	  { S(RECOMPUTE, FO_JOB_RECOMPUTE_FULL), LAST }, -1, FO_AUDIT_SERIOUS },
	{ "recompute-full", "torchtitan", "1xHGX-H100", "llama-3.1-8b", { LAST }, { S(RECOMPUTE,
	  FO_JOB_RECOMPUTE_FULL), LAST }, { S(RECOMPUTE, FO_JOB_RECOMPUTE_NONE), LAST }, FO_JOB_RECOMPUTE,
	  FO_AUDIT_SERIOUS },
	{ "recompute-selective", "torchtitan", "1xHGX-H200", "llama-3.2-1b", { LAST }, { S(RECOMPUTE,
	  FO_JOB_RECOMPUTE_SELECTIVE), LAST }, { S(RECOMPUTE, FO_JOB_RECOMPUTE_NONE), LAST }, FO_JOB_RECOMPUTE,
	  FO_AUDIT_ADVICE },
	{ "micro-batch", "torchtitan", "1xHGX-H100", "llama-3.2-1b", { S(SEQ, 512), LAST }, { S(MICRO_BATCH, 1),
	  S(LOCAL_BATCH, 1), LAST }, { S(MICRO_BATCH, 64), S(LOCAL_BATCH, 64), LAST }, FO_JOB_SEQ, FO_AUDIT_ADVICE },
	{ "offload", "deepspeed", "1xHGX-H100", "llama-3.1-8b", { LAST }, { S(OFFLOAD_OPTIMIZER, 1),
	  S(OFFLOAD_PARAMS, 1), S(OFFLOAD_PINNED, 1), LAST }, { LAST }, FO_JOB_SEQ, FO_AUDIT_SERIOUS },
	{ "offload-blind", "deepspeed", NULL, NULL, { LAST }, { S(OFFLOAD_OPTIMIZER, 1), LAST }, { LAST },
	  FO_JOB_OFFLOAD_OPTIMIZER, FO_AUDIT_ADVICE },
	{ "offload-pinned", "deepspeed", "1xHGX-H100", "llama-3.1-8b", { S(OFFLOAD_OPTIMIZER, 1), LAST }, {
	  S(OFFLOAD_PINNED, 0), LAST }, { S(OFFLOAD_PINNED, 1), LAST }, FO_JOB_OFFLOAD_PINNED, FO_AUDIT_ADVICE },
	{ "zero3-reuse", "deepspeed", NULL, NULL, { S(ZERO, 3), LAST }, { S(LIVE_PARAMS, 0), S(REUSE_DISTANCE, 0),
	  LAST }, { S(LIVE_PARAMS, 1e9), S(REUSE_DISTANCE, 1e9), LAST }, FO_JOB_LIVE_PARAMS, FO_AUDIT_ADVICE },
	{ "zero3-sub-group", "deepspeed", NULL, NULL, { S(OFFLOAD_OPTIMIZER, 1), LAST }, { S(SUB_GROUP, 0), LAST },
	  { S(SUB_GROUP, 1e9), LAST }, FO_JOB_SUB_GROUP, FO_AUDIT_ADVICE },
	{ "buckets-unstated", "deepspeed", NULL, NULL, { LAST }, { LAST }, { S(BUCKET_BYTES, 5e8), LAST }, -1,
	  FO_AUDIT_NOTE },
	{ "bucket-small", "accelerate", "4xHGX-H100", "llama-3.1-8b", { S(DEVICES, 32), LAST }, { S(BUCKET_BYTES,
	  1e6), LAST }, { S(BUCKET_BYTES, 1e8), LAST }, FO_JOB_BUCKET_BYTES, FO_AUDIT_ADVICE },
	/* layout */
	{ "tensor-across-nodes", "megatron", "4xHGX-H100", "llama-3.1-70b", { S(DEVICES, 32), LAST }, { S(TP, 16),
	  LAST }, { S(TP, 8), LAST }, FO_JOB_TP, FO_AUDIT_SERIOUS },
	{ "tensor-more-than-needed", "torchtitan", "1xHGX-H100", "llama-3.1-8b", { S(LOCAL_BATCH, 8), LAST }, {
	  S(TP, 8), S(MICRO_BATCH, 8), LAST }, { S(TP, 1), LAST }, FO_JOB_TP, FO_AUDIT_ADVICE },
	{ "sequence-parallel", "megatron", "1xHGX-H100", "llama-3.1-70b", { S(TP, 8), LAST }, { S(SEQUENCE_PARALLEL,
	  0), LAST }, { S(SEQUENCE_PARALLEL, 1), LAST }, FO_JOB_SEQUENCE_PARALLEL, FO_AUDIT_ADVICE },
	{ "sequence-parallel-alone", "megatron", "1xHGX-H100", "llama-3.1-8b", { S(SEQUENCE_PARALLEL, 1), LAST }, {
	  S(TP, 1), LAST }, { S(TP, 2), LAST }, FO_JOB_TP, FO_AUDIT_NOTE },
	{ "tensor-overlap", "torchtitan", "32xHGX-H100", "llama-3.1-70b", { S(TP, 8), S(DEVICES, 256),
	  S(LOCAL_BATCH, 16), S(MICRO_BATCH, 16), S(RECOMPUTE, FO_JOB_RECOMPUTE_FULL), LAST }, { S(TP_OVERLAP, 0),
	  LAST }, { S(TP_OVERLAP, 1), LAST }, FO_JOB_TP_OVERLAP, FO_AUDIT_ADVICE },
	{ "tensor-heads", "megatron", "1xHGX-H100", "llama-3.1-8b", { LAST }, { S(TP, 3), LAST }, { S(TP, 8), LAST
	  }, FO_JOB_TP, FO_AUDIT_SERIOUS },
	{ "tensor-heads", "megatron", "4xHGX-H100", "llama-3.1-8b", { LAST }, { S(TP, 16), LAST }, { S(TP, 8), LAST
	  }, FO_JOB_TP, FO_AUDIT_NOTE },
	{ "width-padding", "torchtitan", NULL, "gpt2-xl", { LAST }, { S(TP, 16), LAST }, { S(TP, 2), LAST }, -1,
	  FO_AUDIT_NOTE },
	{ "context-parallel", "nemo", "32xHGX-H200", "llama-3.1-70b", { S(TP, 4), S(PP, 4), S(PP_VIRTUAL, 4),
	  S(DEVICES, 256), S(GLOBAL_BATCH, 2048), S(SEQUENCE_PARALLEL, 1), LAST }, { S(CP, 2), LAST }, { S(CP, 1),
	  LAST }, FO_JOB_CP, FO_AUDIT_ADVICE },
	{ "expert-parallel", "megatron", "8xHGX-H100", "mixtral-8x7b", { S(DEVICES, 64), LAST }, { S(EP, 1), LAST },
	  { S(EP, 8), LAST }, FO_JOB_EP, FO_AUDIT_ADVICE },
	{ "expert-across-nodes", "megatron", "4xHGX-H200", "qwen3-30b-a3b", { S(DEVICES, 32), S(SEQ, 8192),
	  S(EP_OVERLAP, 0), LAST }, { S(EP, 32), LAST }, { S(EP, 8), LAST }, FO_JOB_EP, FO_AUDIT_ADVICE },
	{ "expert-overlap", "megatron", "8xHGX-H100", "mixtral-8x7b", { S(DEVICES, 64), S(EP, 8), LAST }, {
	  S(EP_OVERLAP, 0), LAST }, { S(EP_OVERLAP, 1), LAST }, FO_JOB_EP_OVERLAP, FO_AUDIT_ADVICE },
	/* data parallelism */
	{ "grad-overlap", "megatron", "4xHGX-H100", "llama-3.1-8b", { S(DEVICES, 32), LAST }, { S(GRAD_OVERLAP, 0),
	  LAST }, { S(GRAD_OVERLAP, 1), LAST }, FO_JOB_GRAD_OVERLAP, FO_AUDIT_ADVICE },
	{ "grad-overlap", "megatron", "4xHGX-H100", "llama-3.1-8b", { S(DEVICES, 32), S(SEQ, 2048), S(GLOBAL_BATCH,
	  32), LAST }, { S(GRAD_OVERLAP, 0), LAST }, { S(GRAD_OVERLAP, 1), LAST }, FO_JOB_GRAD_OVERLAP,
	  FO_AUDIT_SERIOUS },
	{ "grad-overlap", "megatron", "1xHGX-H100", "llama-3.1-8b", { LAST }, { S(GRAD_OVERLAP, 0), LAST }, {
	  S(GRAD_OVERLAP, 1), LAST }, FO_JOB_GRAD_OVERLAP, FO_AUDIT_NOTE },
	{ "param-overlap", "megatron", "4xHGX-H100", "llama-3.1-8b", { S(DEVICES, 32), S(ZERO, 1), LAST }, {
	  S(PARAM_OVERLAP, 0), LAST }, { S(PARAM_OVERLAP, 1), LAST }, FO_JOB_PARAM_OVERLAP, FO_AUDIT_ADVICE },
	{ "data-alone", "megatron", "1xHGX-H100", "llama-3.1-8b", { S(GRAD_OVERLAP, 0), LAST }, { S(TP, 8), LAST },
	  { S(TP, 4), LAST }, FO_JOB_GRAD_OVERLAP, FO_AUDIT_NOTE },
	{ "optimizer-unsharded", "megatron", "4xHGX-H200", "llama-3.2-3b", { S(DEVICES, 32), S(SEQ, 1024), LAST }, {
	  S(ZERO, 0), LAST }, { S(ZERO, 1), LAST }, FO_JOB_ZERO, FO_AUDIT_ADVICE },
	{ "prefetch", "accelerate", "4xHGX-H100", "llama-3.1-8b", { S(DEVICES, 32), LAST }, { S(PREFETCH, 0), LAST
	  }, { S(PREFETCH, 1), LAST }, FO_JOB_PREFETCH, FO_AUDIT_ADVICE },
	{ "reshard", "torchtitan", "16xHGX-H200", "llama-3.2-3b", { S(DEVICES, 128), S(SEQ, 2048), LAST }, {
	  S(RESHARD, 1), LAST }, { S(RESHARD, 0), LAST }, FO_JOB_RESHARD, FO_AUDIT_ADVICE },
	{ "grad-reduce-fp32", "megatron", "16xHGX-H100", "llama-3.2-3b", { S(DEVICES, 128), S(SEQ, 512),
	  S(GLOBAL_BATCH, 128), S(LOCAL_BATCH, NAN), LAST }, { S(GRAD_REDUCE, FO_JOB_FP32), LAST }, { S(GRAD_REDUCE,
	  FO_JOB_BF16), LAST }, FO_JOB_GRAD_REDUCE, FO_AUDIT_ADVICE },
	{ "grad-reduce-fp32", "torchtitan", "16xHGX-H100", "llama-3.1-8b", { S(DEVICES, 128), LAST }, {
	  S(GRAD_REDUCE, FO_JOB_FP32), LAST }, { S(GRAD_REDUCE, FO_JOB_BF16), LAST }, FO_JOB_GRAD_REDUCE,
	  FO_AUDIT_NOTE },
	{ "reduce-scatter", "deepspeed", NULL, NULL, { S(ZERO, 2), LAST }, { S(REDUCE_SCATTER, 0), LAST }, {
	  S(REDUCE_SCATTER, 1), LAST }, FO_JOB_REDUCE_SCATTER, FO_AUDIT_ADVICE },
	{ "hybrid-sharding", "torchtitan", "128xGB300", "llama-3.1-405b", { S(DEVICES, 128), S(TP, 8), S(RECOMPUTE,
	  FO_JOB_RECOMPUTE_FULL), LAST }, { S(DP_REPLICATE, 1), LAST }, { S(DP_REPLICATE, 2), S(DP_SHARD, 8), LAST },
	  FO_JOB_ZERO, FO_AUDIT_NOTE },
	{ "hybrid-in-node", "accelerate", "1xHGX-H100", "llama-3.1-8b", { LAST }, { S(DP_REPLICATE, 2), S(DP_SHARD,
	  4), LAST }, { S(DP_REPLICATE, 1), S(DP_SHARD, 8), LAST }, FO_JOB_DP_REPLICATE, FO_AUDIT_ADVICE },
	{ "accumulation", "megatron", "16xHGX-H100", "llama-3.2-3b", { S(DEVICES, 128), S(SEQ, 512), S(ZERO, 1),
	  S(GLOBAL_BATCH, 128), S(LOCAL_BATCH, NAN), LAST }, { LAST }, { S(GLOBAL_BATCH, 1024), LAST }, FO_JOB_SEQ,
	  FO_AUDIT_ADVICE },
	{ "network-bound", "torchtitan", "64xHGX-H100", "llama-3.1-8b", { S(DEVICES, 512), LAST }, { S(SEQ, 256),
	  LAST }, { S(SEQ, 16384), LAST }, FO_JOB_SEQ, FO_AUDIT_ADVICE },
	/* pipelines */
	{ "pipeline-bubble", "megatron", "8xHGX-H100", "llama-3.1-70b", { S(DEVICES, 64), S(TP, 8), S(PP, 8),
	  S(SEQUENCE_PARALLEL, 1), S(LOCAL_BATCH, NAN), LAST }, { S(GLOBAL_BATCH, 16), LAST }, { S(GLOBAL_BATCH,
	  1024), LAST }, FO_JOB_GLOBAL_BATCH, FO_AUDIT_SERIOUS },
	{ "pipeline-bubble", "megatron", "8xHGX-H100", "llama-3.1-70b", { S(DEVICES, 64), S(TP, 8), S(PP, 8),
	  S(SEQUENCE_PARALLEL, 1), S(LOCAL_BATCH, NAN), LAST }, { S(GLOBAL_BATCH, 64), LAST }, { S(GLOBAL_BATCH, 64),
	  S(PP_SCHEDULE, FO_JOB_SCHEDULE_ZERO_BUBBLE), LAST }, FO_JOB_PP, FO_AUDIT_ADVICE },
	{ "pipeline-micro-batches", "megatron", "8xHGX-H100", "llama-3.1-70b", { S(DEVICES, 64), S(TP, 8), S(PP, 8),
	  S(LOCAL_BATCH, NAN), LAST }, { S(GLOBAL_BATCH, 4), LAST }, { S(GLOBAL_BATCH, 64), LAST },
	  FO_JOB_GLOBAL_BATCH, FO_AUDIT_SERIOUS },
	{ "pipeline-overlap", "megatron", "8xHGX-H100", "llama-3.1-70b", { S(DEVICES, 64), S(TP, 8), S(PP, 8),
	  S(PP_VIRTUAL, 5), LAST }, { S(PP_OVERLAP, 0), LAST }, { S(PP_OVERLAP, 1), LAST }, FO_JOB_PP_OVERLAP,
	  FO_AUDIT_ADVICE },
	{ "pipeline-layers", "megatron", NULL, "llama-3.1-405b", { LAST }, { S(PP, 8), LAST }, { S(PP, 9), LAST },
	  FO_JOB_PP, FO_AUDIT_NOTE },
	{ "pipeline-missing", "torchtitan", "64xHGX-H100", "llama-3.1-405b", { S(DEVICES, 512), S(TP, 8),
	  S(RECOMPUTE, FO_JOB_RECOMPUTE_FULL), S(LOCAL_BATCH, 32), S(SEQ, 2048), LAST }, { S(PP, 1), LAST }, { S(PP,
	  8), LAST }, FO_JOB_PP, FO_AUDIT_NOTE },
	/* kernels */
	{ "compile", "torchtitan", "1xHGX-H100", "llama-3.1-8b", { LAST }, { S(COMPILE, 0), S(COMPILE_LOSS, 0), LAST
	  }, { S(COMPILE, 1), LAST }, FO_JOB_COMPILE, FO_AUDIT_ADVICE },
	{ "compile-loss", "torchtitan", "1xHGX-H100", "llama-3.1-8b", { S(COMPILE, 1), LAST }, { S(COMPILE_LOSS, 0),
	  LAST }, { S(COMPILE_LOSS, 1), LAST }, FO_JOB_COMPILE_LOSS, FO_AUDIT_NOTE },
	{ "attention-eager", "transformers", NULL, NULL, { LAST }, { S(ATTENTION, FO_JOB_ATTENTION_EAGER), LAST }, {
	  S(ATTENTION, FO_JOB_ATTENTION_SDPA), LAST }, FO_JOB_ATTENTION, FO_AUDIT_ADVICE },
	{ "attention-device", "torchtitan", "1xHGX-H100", "llama-3.1-8b", { LAST }, { S(ATTENTION,
	  FO_JOB_ATTENTION_FLEX), LAST }, { S(ATTENTION, FO_JOB_ATTENTION_SDPA), LAST }, FO_JOB_ATTENTION,
	  FO_AUDIT_NOTE },
	{ "grad-accumulation-fusion", "megatron", NULL, NULL, { LAST }, { S(FUSED_GRAD_ACCUMULATION, 0), LAST }, {
	  S(FUSED_GRAD_ACCUMULATION, 1), LAST }, FO_JOB_FUSED_GRAD_ACCUMULATION, FO_AUDIT_ADVICE },
	{ "rope-fusion", "megatron", NULL, NULL, { LAST }, { S(FUSED_ROPE, 0), LAST }, { S(FUSED_ROPE, 1), LAST },
	  FO_JOB_FUSED_ROPE, FO_AUDIT_ADVICE },
	{ "norm-fusion", "megatron", NULL, NULL, { LAST }, { S(FUSED_NORM, 0), LAST }, { S(FUSED_NORM, 1), LAST },
	  FO_JOB_FUSED_NORM, FO_AUDIT_ADVICE },
	{ "activation-fusion", "megatron", NULL, NULL, { LAST }, { S(FUSED_ACTIVATION, 0), LAST }, {
	  S(FUSED_ACTIVATION, 1), LAST }, FO_JOB_FUSED_ACTIVATION, FO_AUDIT_ADVICE },
	{ "merged-qkv", "torchtitan", NULL, NULL, { LAST }, { S(MERGED_QKV, 0), LAST }, { S(MERGED_QKV, 1), LAST },
	  FO_JOB_MERGED_QKV, FO_AUDIT_ADVICE },
	{ "optimizer-fused", "torchtitan", NULL, NULL, { LAST }, { S(OPTIMIZER_FUSED, 0), LAST }, {
	  S(OPTIMIZER_FUSED, 1), LAST }, FO_JOB_OPTIMIZER_FUSED, FO_AUDIT_ADVICE },
	{ "cuda-graphs", "megatron", "1xHGX-H100", "smollm-135m", { S(SEQ, 128), S(LOCAL_BATCH, NAN), LAST }, {
	  S(CUDA_GRAPHS, 0), LAST }, { S(CUDA_GRAPHS, 1), LAST }, FO_JOB_CUDA_GRAPHS, FO_AUDIT_ADVICE },
	{ "deterministic", "megatron", NULL, NULL, { LAST }, { S(DETERMINISTIC, 1), LAST }, { S(DETERMINISTIC, 0),
	  LAST }, FO_JOB_DETERMINISTIC, FO_AUDIT_ADVICE },
	{ "dropout", "nemo", NULL, NULL, { LAST }, { S(DROPOUT, 0.1), LAST }, { S(DROPOUT, 0), LAST },
	  FO_JOB_DROPOUT, FO_AUDIT_NOTE },
	/* number formats */
	{ "precision-fp32", "torchtitan", "1xHGX-H100", "llama-3.2-1b", { LAST }, { S(DTYPE, FO_JOB_MATMUL_FP32),
	  LAST }, { S(DTYPE, FO_JOB_MATMUL_BF16), LAST }, FO_JOB_DTYPE, FO_AUDIT_SERIOUS },
	{ "precision-fp16", "megatron", "1xHGX-H100", NULL, { LAST }, { S(DTYPE, FO_JOB_MATMUL_FP16), LAST }, {
	  S(DTYPE, FO_JOB_MATMUL_BF16), LAST }, FO_JOB_DTYPE, FO_AUDIT_ADVICE },
	{ "loss-scale", "deepspeed", NULL, NULL, { S(DTYPE, FO_JOB_MATMUL_FP16), LAST }, { S(LOSS_SCALE_POWER, 32),
	  LAST }, { S(LOSS_SCALE_POWER, 16), LAST }, FO_JOB_LOSS_SCALE_POWER, FO_AUDIT_ADVICE },
	{ "loss-scale", "deepspeed", NULL, NULL, { S(LOSS_SCALE_POWER, 32), LAST }, { S(DTYPE, NAN), LAST }, { S(DTYPE,
	  FO_JOB_MATMUL_BF16), LAST }, FO_JOB_LOSS_SCALE_POWER, FO_AUDIT_NOTE },
	{ "fp8-unsupported", "torchtitan", "1xDGX-A100", NULL, { LAST }, { S(FP8, FO_JOB_FP8_TENSORWISE), LAST }, {
	  S(FP8, FO_JOB_FP8_OFF), LAST }, FO_JOB_FP8, FO_AUDIT_SERIOUS },
	{ "fp8-unused", "torchtitan", "1xHGX-H100", "llama-3.1-8b", { LAST }, { S(FP8, FO_JOB_FP8_OFF), LAST }, {
	  S(FP8, FO_JOB_FP8_TENSORWISE), LAST }, FO_JOB_FP8, FO_AUDIT_ADVICE },
	{ "fp8-gather", "torchtitan", "16xHGX-H100", "llama-3.1-8b", { S(FP8, FO_JOB_FP8_TENSORWISE), S(DEVICES,
	  128), LAST }, { S(FP8_GATHER, 0), LAST }, { S(FP8_GATHER, 1), LAST }, FO_JOB_FP8_GATHER, FO_AUDIT_ADVICE },
	{ "fp8-scales", "torchtitan", NULL, NULL, { S(FP8, FO_JOB_FP8_TENSORWISE), S(FP8_GATHER, 1), LAST }, {
	  S(FP8_PRECOMPUTE, 0), LAST }, { S(FP8_PRECOMPUTE, 1), LAST }, FO_JOB_FP8_PRECOMPUTE, FO_AUDIT_ADVICE },
	/* around the step */
	{ "clip-in-backward", "torchtitan", NULL, NULL, { S(OPTIMIZER_IN_BACKWARD, 1), LAST }, { S(CLIP, 1), LAST },
	  { S(CLIP, 0), LAST }, FO_JOB_CLIP, FO_AUDIT_ADVICE },
	{ "devices-differ", "accelerate", "1xHGX-H100", NULL, { LAST }, { S(DEVICES, 2), LAST }, { S(DEVICES, 8),
	  LAST }, FO_JOB_DEVICES, FO_AUDIT_NOTE },
	{ "fsdp-version", "accelerate", NULL, NULL, { LAST }, { S(FSDP_VERSION, 1), LAST },
	  { S(FSDP_VERSION, 2), LAST },
	  FO_JOB_FSDP_VERSION, FO_AUDIT_NOTE },
	{ "positions", "megatron", NULL, NULL, { S(SEQ, 4096), LAST }, { S(MAX_POSITION, 2048), LAST }, {
	  S(MAX_POSITION, 4096), LAST }, FO_JOB_MAX_POSITION, FO_AUDIT_SERIOUS },
	{ "positions", "megatron", NULL, NULL, { S(SEQ, 4096), LAST }, { S(MAX_POSITION, 32768), LAST }, {
	  S(MAX_POSITION, 4096), LAST }, FO_JOB_MAX_POSITION, FO_AUDIT_NOTE },
	{ "padding", "accelerate", NULL, NULL, { LAST }, { S(PACKED, 0), LAST }, { S(PACKED, 1), LAST },
	  FO_JOB_PACKED, FO_AUDIT_ADVICE },
	{ "loader-workers", "torchtitan", NULL, NULL, { LAST }, { S(LOADER_WORKERS, 0), LAST }, { S(LOADER_WORKERS,
	  4), LAST }, FO_JOB_LOADER_WORKERS, FO_AUDIT_ADVICE },
	{ "loader-pinned", "torchtitan", NULL, NULL, { LAST }, { S(LOADER_PINNED, 0), LAST }, { S(LOADER_PINNED, 1),
	  LAST }, FO_JOB_LOADER_PINNED, FO_AUDIT_ADVICE },
	{ "restart-state", "megatron", NULL, NULL, { LAST }, { S(LOAD_OPTIMIZER, 0), LAST }, { S(LOAD_OPTIMIZER, 1),
	  LAST }, FO_JOB_LOAD_OPTIMIZER, FO_AUDIT_SERIOUS },
	{ "checkpoint-off", "torchtitan", NULL, NULL, { LAST }, { S(CHECKPOINT, 0), LAST }, { S(CHECKPOINT, 1), LAST
	  }, FO_JOB_CHECKPOINT, FO_AUDIT_NOTE },
	{ "checkpoint-async", "torchtitan", NULL, NULL, { S(CHECKPOINT, 1), LAST }, { S(CHECKPOINT_ASYNC, 0), LAST
	  }, { S(CHECKPOINT_ASYNC, 1), LAST }, FO_JOB_CHECKPOINT_ASYNC, FO_AUDIT_ADVICE },
	{ "profiling", "torchtitan", NULL, NULL, { LAST }, { S(PROFILING, 1), LAST }, { S(PROFILING, 0), LAST },
	  FO_JOB_PROFILING, FO_AUDIT_NOTE },
	{ "log-interval", "torchtitan", NULL, NULL, { LAST }, { S(LOG_EVERY, 1), LAST }, { S(LOG_EVERY, 10), LAST },
	  FO_JOB_LOG_EVERY, FO_AUDIT_NOTE },
	{ "cpu-affinity", "accelerate", NULL, NULL, { LAST }, { S(CPU_AFFINITY, 0), LAST }, { S(CPU_AFFINITY, 1),
	  LAST }, FO_JOB_CPU_AFFINITY, FO_AUDIT_NOTE },
	{ "garbage-collection", "megatron", "4xHGX-H100", "llama-3.1-8b", { S(DEVICES, 32), LAST }, { S(GC_MANUAL,
	  0), LAST }, { S(GC_MANUAL, 1), LAST }, FO_JOB_GC_MANUAL, FO_AUDIT_ADVICE },
};
/* clang-format on */

/* Rules whose trigger is no number: tests of their own below. */
static const char *const other[] = { "recompute-option-ignored", "batch-ramp", "contradiction", "missing-file",
				     "stated-twice" };

/* A job about which nothing is to be said beyond what a row changes. */
static void begin(struct fo_job *job, const char *form, const char *model)
{
	static const struct fo_job_change base[] = {
		S(SEQ, 8192),
		S(MICRO_BATCH, 1),
		S(LOCAL_BATCH, 1),
		S(DEVICES, 8),
		S(TP, 1),
		S(PP, 1),
		S(CP, 1),
		S(EP, 1),
		S(ZERO, 3),
		S(RECOMPUTE, FO_JOB_RECOMPUTE_NONE),
		S(DTYPE, FO_JOB_MATMUL_BF16),
		S(PARAM_DTYPE, FO_JOB_FP32),
		S(GRAD_REDUCE, FO_JOB_BF16),
		S(COMPILE, 1),
		S(COMPILE_LOSS, 1),
	};
	fo_job_init(job);
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
		if (!strcmp(forms[i].id, form))
			job->form = &forms[i];
	for (size_t i = 0; i < sizeof base / sizeof *base; i++)
		fo_job_set(job, base[i].setting, base[i].number);
	if (!strcmp(form, "megatron") || !strcmp(form, "nemo")) {
		fo_job_set(job, FO_JOB_ZERO, 1);
		fo_job_set(job, FO_JOB_LOCAL_BATCH, NAN);
		fo_job_set(job, FO_JOB_COMPILE, NAN);
		fo_job_set(job, FO_JOB_GLOBAL_BATCH, 64);
	}
	if (model) {
		assert_int_equal(fo_model_load(model, &job->model), FO_OK);
		job->has_model = true;
	}
}

static void change(struct fo_job *job, const struct fo_job_change *c)
{
	for (int i = 0; i < MOST && c[i].setting != END; i++)
		fo_job_set(job, c[i].setting, c[i].number);
}

static void look(struct fo_job *job, const char *cluster, struct fo_audit *a)
{
	struct fo_cluster c = {
		.devices = NAN, .per_node = NAN, .nodes = NAN, .node_gb_s = { NAN, NAN }, .net_gb_s = { NAN, NAN }
	};
	if (cluster && fo_cluster_parse(cluster, &catalogue, &c, &a->arena) != FO_OK)
		fail_msg("%s: %s", cluster, fo_err_text());
	struct fo_audit_config config = { .job = job, .cluster = &c };
	fo_audit_config(a, &config);
	fo_audit_sort(a);
}

static const struct fo_audit_finding *find(const struct fo_audit *a, const char *id)
{
	for (size_t i = 0; i < a->count; i++)
		if (!strcmp(a->finding[i].id, id))
			return &a->finding[i];
	return NULL;
}

static void list(const struct fo_audit *a)
{
	for (size_t i = 0; i < a->count; i++)
		fprintf(stderr, "    %s %s [%s] %g..%g\n", fo_audit_level_name[a->finding[i].level], a->finding[i].id,
			a->finding[i].title, a->finding[i].gain.low, a->finding[i].gain.high);
	for (size_t i = 0; i < a->gaps; i++)
		fprintf(stderr, "    gap: %s\n", a->gap[i].what);
}

/* What holds for each finding of any rule: no sure loss, and nothing loud about less than 1 % in the middle. */
static bool odd(const struct fo_audit *a)
{
	for (size_t i = 0; i < a->count; i++) {
		struct fo_range g = a->finding[i].gain;
		if (fo_range_known(g) &&
		    (g.high <= 1 || (g.low * g.high < 1.01 * 1.01 && a->finding[i].level != FO_AUDIT_NOTE))) {
			fprintf(stderr, "%s is worth %g..%g\n", a->finding[i].id, g.low, g.high);
			return true;
		}
	}
	return false;
}

enum variant { TRIGGER, QUIET, UNKNOWN };
static int try(const struct row *r, enum variant v)
{
	static const char *const name[] = { "triggers", "is quiet", "is unknown" };
	struct fo_job job;
	struct fo_audit a = { 0 };
	begin(&job, r->form, r->model);
	change(&job, r->common);
	change(&job, v == QUIET ? r->quiet : r->trigger);
	if (v == UNKNOWN)
		job.value[r->unknown] = (struct fo_job_value){ .number = NAN };
	look(&job, r->cluster, &a);
	const struct fo_audit_finding *f = find(&a, r->id);
	bool wrong = v == TRIGGER ? !f || f->level != r->level : f != NULL;
	wrong |= odd(&a);
	if (v == TRIGGER && f && (!f->title || !f->evidence || !f->why))
		wrong = true;
	if (wrong) {
		fprintf(stderr, "%s (%s, row %d): where it %s: %s\n", r->id, r->form, (int)(r - rows), name[v],
			f ? fo_audit_level_name[f->level] : "no finding");
		list(&a);
	}
	fo_audit_fini(&a);
	fo_job_fini(&job);
	return wrong;
}

static void test_rows(void **state)
{
	(void)state;
	int wrong = 0;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		wrong += try(&rows[i], TRIGGER);
		wrong += try(&rows[i], QUIET);
		if (rows[i].unknown >= 0)
			wrong += try(&rows[i], UNKNOWN);
	}
	assert_int_equal(wrong, 0);
}

/* A rule without a row here is one that no test ever saw. */
static void test_all_are_tested(void **state)
{
	(void)state;
	for (int r = 0; r < fo_audit_config_rules(); r++) {
		const char *id, *when;
		bool tested = false;
		fo_audit_config_rule(r, &id, &when);
		assert_non_null(when);
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
			tested |= !strcmp(rows[i].id, id);
		for (size_t i = 0; i < sizeof other / sizeof *other; i++)
			tested |= !strcmp(other[i], id);
		if (!tested)
			fail_msg("rule '%s' has no test", id);
	}
}

/* docs/audit-rules.md has a row for each rule, in its words. */
static void test_documented(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_SOURCE");
	struct fo_arena arena = { 0 };
	char *text, path[4096], row[1024];
	size_t len;
	if (!root)
		skip();
	snprintf(path, sizeof path, "%s/docs/audit-rules.md", root);
	assert_int_equal(fo_fs_read(&arena, path, 1 << 20, &text, &len), FO_OK);
	for (int r = 0; r < fo_audit_config_rules(); r++) {
		const char *id, *when;
		fo_audit_config_rule(r, &id, &when);
		snprintf(row, sizeof row, "| `%s` | %s |", id, when);
		if (!strstr(text, row))
			fail_msg("docs/audit-rules.md has no row '%s'", row);
	}
	fo_arena_fini(&arena);
}

static size_t count_of(struct fo_job *job, const char *cluster, const char *id, enum fo_audit_level *level)
{
	struct fo_audit a = { 0 };
	look(job, cluster, &a);
	size_t n = 0;
	for (size_t i = 0; i < a.count; i++)
		if (!strcmp(a.finding[i].id, id)) {
			n++;
			*level = a.finding[i].level;
		}
	fo_audit_fini(&a);
	return n;
}

static void test_texts(void **state)
{
	(void)state;
	struct fo_job job;
	enum fo_audit_level level = FO_AUDIT_LEVELS;
	begin(&job, "torchtitan", NULL);
	struct fo_job_value *v = job.value;
	assert_int_equal(count_of(&job, NULL, "missing-file", &level), 0);
	v[FO_JOB_MISSING_FILE] = (struct fo_job_value){ .origin = FO_JOB_STATED, .number = NAN, .text = "zero1.json" };
	assert_int_equal(count_of(&job, NULL, "missing-file", &level), 1);
	assert_int_equal(level, FO_AUDIT_SERIOUS);

	v[FO_JOB_RECOMPUTE_OPTION] = (struct fo_job_value){ .origin = FO_JOB_STATED, .number = NAN, .text = "op" };
	fo_job_set(&job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE);
	assert_int_equal(count_of(&job, NULL, "recompute-option-ignored", &level), 0);
	fo_job_set(&job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	assert_int_equal(count_of(&job, NULL, "recompute-option-ignored", &level), 1);
	assert_int_equal(level, FO_AUDIT_NOTE);

	const char *note[] = { "--split is given twice", "--data-path is given twice" };
	job.note = note;
	job.notes = 2;
	assert_int_equal(count_of(&job, NULL, "stated-twice", &level), 2);
	fo_job_fini(&job);
}

/* 16 sequences in 16 stages: (16 - 1) / (16 + 16 - 1) = 48 % of a step. */
static void test_ramp(void **state)
{
	(void)state;
	struct fo_job job;
	enum fo_audit_level level = FO_AUDIT_LEVELS;
	begin(&job, "megatron", "gpt3-175b");
	fo_job_set(&job, FO_JOB_DEVICES, 128);
	fo_job_set(&job, FO_JOB_TP, 8);
	fo_job_set(&job, FO_JOB_PP, 16);
	fo_job_set(&job, FO_JOB_GLOBAL_BATCH, 1536);
	assert_int_equal(count_of(&job, "16xHGX-H100", "batch-ramp", &level), 0);
	job.value[FO_JOB_BATCH_RAMP] = (struct fo_job_value){ .origin = FO_JOB_STATED,
							      .number = NAN,
							      .text = "0:16 2.4B:320 12B:1536" };
	struct fo_audit a = { 0 };
	look(&job, "16xHGX-H100", &a);
	const struct fo_audit_finding *f = find(&a, "batch-ramp");
	assert_non_null(f);
	assert_int_equal(f->level, FO_AUDIT_ADVICE);
	assert_non_null(strstr(f->title, "48 %"));
	fo_audit_fini(&a);
	fo_job_set(&job, FO_JOB_PP, 1);
	fo_job_set(&job, FO_JOB_TP, 8);
	assert_int_equal(count_of(&job, "16xHGX-H100", "batch-ramp", &level), 1);
	assert_int_equal(level, FO_AUDIT_NOTE);
	fo_job_fini(&job);
}

static void test_contradiction(void **state)
{
	(void)state;
	struct fo_job job;
	enum fo_audit_level level = FO_AUDIT_LEVELS;
	begin(&job, "megatron", "llama-3.1-8b");
	fo_job_set(&job, FO_JOB_TP, 4);
	assert_int_equal(count_of(&job, "1xHGX-H100", "contradiction", &level), 0);
	fo_job_set(&job, FO_JOB_PP, 4); /* 16 of 8 devices */
	assert_int_equal(count_of(&job, "1xHGX-H100", "contradiction", &level), 1);
	assert_int_equal(level, FO_AUDIT_SERIOUS);
	fo_job_fini(&job);
}

/* A value that another program decides is as good as unknown, and said to be. */
static void test_auto(void **state)
{
	(void)state;
	struct fo_job job;
	struct fo_audit a = { 0 };
	begin(&job, "deepspeed", NULL);
	job.value[FO_JOB_DTYPE] = (struct fo_job_value){
		.origin = FO_JOB_AUTO, .number = NAN, .text = "auto", .key = "bf16.enabled"
	};
	look(&job, NULL, &a);
	assert_null(find(&a, "precision-fp32"));
	bool said = false;
	for (size_t i = 0; i < a.gaps; i++)
		said |= strstr(a.gap[i].what, "bf16.enabled") != NULL;
	assert_true(said);
	fo_audit_fini(&a);
	fo_job_fini(&job);
}

static void state_as(struct fo_job *job, enum fo_job_setting x, double number, const char *key)
{
	job->value[x] = (struct fo_job_value){ .origin = FO_JOB_STATED, .number = number, .key = key };
}

/* "--no-load-optim" is given, and is to be removed: "off", "on" would say the reverse of the flag. */
static void test_negated(void **state)
{
	(void)state;
	struct fo_job job;
	struct fo_audit a = { 0 };
	begin(&job, "megatron", NULL);
	state_as(&job, FO_JOB_LOAD_OPTIMIZER, 0, "--no-load-optim");
	state_as(&job, FO_JOB_FUSED_ROPE, 0, "--no-rope-fusion");
	look(&job, NULL, &a);
	const struct fo_audit_finding *load = find(&a, "restart-state"), *rope = find(&a, "rope-fusion");
	assert_non_null(load);
	assert_string_equal(load->now, "given");
	assert_string_equal(load->proposed, "remove it, except for the first start from other weights");
	assert_non_null(rope);
	assert_string_equal(rope->now, "given");
	assert_string_equal(rope->proposed, "remove it");
	assert_null(rope->paste);
	fo_audit_fini(&a);
	state_as(&job, FO_JOB_LOAD_OPTIMIZER, 0, "checkpoint.load_optim");
	look(&job, NULL, &a);
	load = find(&a, "restart-state");
	assert_string_equal(load->now, "off");
	assert_string_equal(load->proposed, "on, except for the first start from other weights");
	fo_audit_fini(&a);
	fo_job_fini(&job);

	begin(&job, "torchtitan", "smollm-135m");
	fo_job_set(&job, FO_JOB_SEQ, 128);
	state_as(&job, FO_JOB_CUDA_GRAPHS, 0, "training.disable_cuda_graphs");
	look(&job, "1xHGX-H100", &a);
	const struct fo_audit_finding *graphs = find(&a, "cuda-graphs");
	assert_non_null(graphs);
	assert_string_equal(graphs->now, "true");
	assert_string_equal(graphs->proposed, "false");
	assert_non_null(strstr(graphs->paste, "disable_cuda_graphs = false"));
	fo_audit_fini(&a);
	fo_job_fini(&job);
}

/* transformers checkpoints all or nothing; torchtitan has no optimizer in host memory and no bf16 reduction. */
static void test_not_settable(void **state)
{
	(void)state;
	struct fo_job job;
	struct fo_audit a = { 0 };
	begin(&job, "transformers", "llama-3.1-8b");
	fo_job_set(&job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	fo_job_set(&job, FO_JOB_FP8, FO_JOB_FP8_OFF);
	job.value[FO_JOB_CHECKPOINT_ASYNC] = (struct fo_job_value){ .origin = FO_JOB_DEFAULT, .number = 0 };
	for (double b = 1; b <= 4; b *= 2) {
		fo_job_set(&job, FO_JOB_MICRO_BATCH, b);
		fo_job_set(&job, FO_JOB_LOCAL_BATCH, b);
		look(&job, "1xHGX-H100", &a);
		for (size_t i = 0; i < a.count; i++)
			if (a.finding[i].proposed && strstr(a.finding[i].proposed, "selective"))
				fail_msg("%s: %s", a.finding[i].id, a.finding[i].proposed);
		assert_null(find(&a, "fp8-unused"));
		assert_null(find(&a, "checkpoint-async"));
		fo_audit_fini(&a);
	}
	fo_job_fini(&job);

	begin(&job, "torchtitan", "llama-3.1-405b");
	fo_job_set(&job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	fo_job_set(&job, FO_JOB_GRAD_REDUCE, FO_JOB_FP32);
	look(&job, "1xHGX-H100", &a);
	const struct fo_audit_finding *fit = find(&a, "memory-fit");
	assert_non_null(fit);
	assert_int_equal(fit->level, FO_AUDIT_SERIOUS);
	assert_null(strstr(fit->proposed, "host memory"));
	assert_non_null(strstr(fit->proposed, "devices"));
	const struct fo_audit_finding *reduce = find(&a, "grad-reduce-fp32");
	assert_true(!reduce || !reduce->paste);
	fo_audit_fini(&a);
	fo_job_fini(&job);
}

/* "May not fit" and "memory is left" exclude each other. */
static void test_uncertain_memory(void **state)
{
	(void)state;
	int uncertain = 0, spare = 0;
	for (double seq = 1024; seq <= 131072; seq *= 1.25) {
		struct fo_job job;
		struct fo_audit a = { 0 };
		begin(&job, "torchtitan", "llama-3.1-8b");
		fo_job_set(&job, FO_JOB_SEQ, floor(seq / 64) * 64);
		fo_job_set(&job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
		look(&job, "1xHGX-H100", &a);
		bool left = find(&a, "micro-batch") || find(&a, "recompute-full");
		bool may_not = find(&a, "memory-fit") != NULL;
		assert_false(left && may_not);
		uncertain += may_not;
		spare += left;
		fo_audit_fini(&a);
		fo_job_fini(&job);
	}
	assert_true(uncertain > 0 && spare > 0);
}

/* A share is of the step of the same draw: never above what its part's ends allow, and nearer than these. */
static void test_shares(void **state)
{
	(void)state;
	struct fo_job job;
	struct fo_arena arena = { 0 };
	struct fo_cluster c;
	struct fo_job_step t;
	begin(&job, "torchtitan", "llama-3.1-8b");
	fo_job_set(&job, FO_JOB_DEVICES, 128);
	assert_int_equal(fo_cluster_parse("16xHGX-H100", &catalogue, &c, &arena), FO_OK);
	fo_job_step_of(&job, &c, &t);
	double low = 0, high = 0, loose = 0;
	for (int p = 0; p < FO_PREDICT_PARTS; p++) {
		assert_true(t.share[p].low <= t.share[p].high && t.share[p].high <= 1);
		assert_true(t.share[p].high <= t.part[p].high / t.total.low + 1e-9);
		low += t.share[p].low;
		high += t.share[p].high;
		loose += t.part[p].high / t.total.low;
	}
	assert_true(low < 1 && high > 1);
	assert_true(high < loose);
	fo_arena_fini(&arena);
	fo_job_fini(&job);
}

/* Only Megatron turns sequence parallelism off by itself. */
static void test_sequence_alone(void **state)
{
	(void)state;
	static const char *const form[] = { "nanotron", "megatron" };
	for (int i = 0; i < 2; i++) {
		struct fo_job job;
		struct fo_audit a = { 0 };
		begin(&job, form[i], NULL);
		fo_job_set(&job, FO_JOB_SEQUENCE_PARALLEL, 1);
		look(&job, NULL, &a);
		const struct fo_audit_finding *f = find(&a, "sequence-parallel-alone");
		assert_non_null(f);
		assert_int_equal(strstr(f->why, "Megatron") != NULL, i);
		fo_audit_fini(&a);
		fo_job_fini(&job);
	}
}

/* Nothing known: nothing found, and the gaps name what would tell. */
static void test_nothing(void **state)
{
	(void)state;
	struct fo_job job;
	struct fo_audit a = { 0 };
	fo_job_init(&job);
	look(&job, NULL, &a);
	if (a.count)
		list(&a);
	assert_int_equal(a.count, 0);
	assert_true(a.gaps >= 2);
	fo_audit_fini(&a);
	fo_job_fini(&job);
}

static int open_catalogue(void **state)
{
	(void)state;
	return fo_catalogue_load(&catalogue, NULL) != FO_OK;
}
static int close_catalogue(void **state)
{
	(void)state;
	fo_catalogue_fini(&catalogue);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),           cmocka_unit_test(test_all_are_tested),
		cmocka_unit_test(test_texts),          cmocka_unit_test(test_ramp),
		cmocka_unit_test(test_contradiction),  cmocka_unit_test(test_auto),
		cmocka_unit_test(test_nothing),        cmocka_unit_test(test_documented),
		cmocka_unit_test(test_negated),        cmocka_unit_test(test_not_settable),
		cmocka_unit_test(test_shares),         cmocka_unit_test(test_uncertain_memory),
		cmocka_unit_test(test_sequence_alone),
	};
	return cmocka_run_group_tests(tests, open_catalogue, close_catalogue);
}
