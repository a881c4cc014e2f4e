/* What the arithmetic of memory and of time have in common: a model's weights by what divides them, how a framework
 * keeps its states, and what a layer does for one token. Private to src/job. */
#ifndef FO_JOB_MEMORY_INT_H
#define FO_JOB_MEMORY_INT_H

#include "job/memory.h"

/* How a framework keeps weights, where no setting says it. */
enum fo_job_style {
	FO_JOB_STYLE_UNKNOWN,
	FO_JOB_STYLE_MEGATRON,  /* bf16 weights, fp32 masters apart, sums of gradients in one buffer */
	FO_JOB_STYLE_DEEPSPEED, /* bf16 weights and gradients, fp32 masters apart */
	FO_JOB_STYLE_TORCH,     /* the weight is the master: torchtitan, FSDP, DDP with autocast */
};
enum fo_job_style fo_job_style_of(const struct fo_job *job);

/* The model in numbers: weights of one layer unless named otherwise. */
struct fo_job_counts {
	double layers, dense, moe;   /* layers in all, with a dense feed-forward, with experts */
	double h, q, kv, ffn, vocab; /* q: heads x dimension; kv: the same of keys (values alike) */
	double v;                    /* heads x dimension of what attention gives out */
	double heads, head_dim, experts, active, expert_ffn, shared_ffn, q_lora, kv_lora, rope_dim;
	double matrices;                  /* of a feed-forward: 3 gated, 2 else */
	double attention, norms, router;  /* weights */
	double dense_ffn, shared, expert; /* weights; expert: of one */
	double embedding, head;           /* weights of the whole model */
	bool tied, mla, gated;
	bool layer_norm; /* LayerNorm, which PyTorch has as one kernel, rather than RMSNorm */
};
void fo_job_counts_of(const struct fo_model *m, struct fo_job_counts *c);

/* One device of a pipeline stage. */
struct fo_job_stage {
	double layers, dense, moe;
	bool first, last;
	double whole, experts; /* weights on the device; `whole` has all but the experts, which other ranks shard */
	double layer, end;     /* weights of the largest layer, and of the larger end, on the device */
};
void fo_job_stage_of(const struct fo_job_counts *m, const struct fo_job_shape *s, double index,
		     struct fo_job_stage *out);

/* Adapters on a stage of a device. Low: rank 4 on queries and values; high: rank 128 on every linear layer of every
 * expert; a stated rank is taken. LoRA (Hu et al. 2021): a linear layer of n outputs from d inputs has rank x (n + d)
 * weights more. */
static inline bool fo_job_adapters(const struct fo_job *job) { return fo_job_is(job, FO_JOB_ADAPTERS, 1); }
struct fo_range fo_job_adapter_weights(const struct fo_job *job, const struct fo_job_counts *m,
				       const struct fo_job_stage *stage, double tp);
/* Bytes of a frozen weight of a linear layer. */
struct fo_range fo_job_base_bytes(const struct fo_job *job);

/* Layers of uneven pipeline stages, and what contradicts: first_layers, middle_layers, last_layers, chunks, wrong. */
void fo_job_stages_of(struct fo_job *job, struct fo_job_shape *o);

/* What decides how much of a layer is kept and how much is done again. */
enum fo_job_again {
	FO_JOB_AGAIN_NONE,
	FO_JOB_AGAIN_CORE,     /* Megatron's selective: the attention's core, and the modules named */
	FO_JOB_AGAIN_EVERY_OP, /* torchtitan's "op": matmuls and attention are kept, every second matmul is not */
	FO_JOB_AGAIN_NTH,      /* every n-th layer is computed again */
	FO_JOB_AGAIN_FULL,
	FO_JOB_AGAIN_UNKNOWN,
};
struct fo_job_recompute {
	enum fo_job_again mode;
	double share; /* of the layers that recompute, 0 to 1 */
	double group; /* layers of which one input is kept; 1 unless "uniform" */
	bool core, norm, ffn, activation, expert,
		up; /* Megatron's modules: core_attn, layernorm, mlp, moe_act, moe, mla_up_proj */
	bool offload;
};
struct fo_job_recompute fo_job_recompute_of(const struct fo_job *job);

/* How far the kernels of norms, rotations and activations are fused: 0 all, 1 none. */
struct fo_job_fusion {
	struct fo_range norm, rope, activation, loss;
};
struct fo_job_fusion fo_job_fusion_of(const struct fo_job *job);

/* Is the attention's matrix of scores stored? */
static inline bool fo_job_scores_stored(const struct fo_job *job)
{
	return fo_job_is(job, FO_JOB_ATTENTION, FO_JOB_ATTENTION_EAGER);
}
/* fp8 or fp4 matmuls? */
static inline bool fo_job_small_types(const struct fo_job *job) { return fo_job_or(job, FO_JOB_FP8, 0) > 0; }
/* ZeRO's stage as the shape takes it: 0 where states are not sharded; NAN. */
double fo_job_zero(const struct fo_job *job, const struct fo_job_shape *s);
/* Ranks that shard an expert's states, and ranks that hold the same ones. */
double fo_job_expert_shard(const struct fo_job *job, const struct fo_job_shape *s);

/* memory_activations.c: bytes of one micro-batch on one device. */
struct fo_job_activations {
	struct fo_range kept;    /* by one layer from forward to backward, of the average of the stage's layers */
	struct fo_range all;     /* the same before offloading */
	struct fo_range working; /* beside that, while one layer's backward runs */
	struct fo_range logits;  /* of the last stage, while the loss runs */
};
void fo_job_activations_of(const struct fo_job *job, const struct fo_job_counts *m, const struct fo_job_shape *s,
			   const struct fo_job_stage *stage, struct fo_job_activations *out);

#endif
