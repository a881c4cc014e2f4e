/* Memory of one device by parts: the one model of it, for audits, predictions and searches. docs/memory-arithmetic.md
 * has each formula, its source, and how far published peaks are from it.
 *
 * A framework's ways (which bytes it keeps for a weight, what it fuses) and a model's widths are prepared once; a
 * division then costs some 0.2 microseconds. Each figure is from least to most: where something is not stated, both
 * ends of what it may be. */
#ifndef FO_PREDICT_MEMORY_H
#define FO_PREDICT_MEMORY_H

#include "base/range.h"

#include <stdbool.h>

enum fo_predict_memory {
	FO_PREDICT_WEIGHTS,
	FO_PREDICT_GRADIENTS,
	FO_PREDICT_STATES, /* moments and masters */
	FO_PREDICT_ACTIVATIONS,
	FO_PREDICT_LOGITS,
	FO_PREDICT_BUFFERS,  /* weights gathered for use, buckets, workspaces */
	FO_PREDICT_OVERHEAD, /* context, communication libraries, gaps of the allocator */
	FO_PREDICT_MEMORIES
};
extern const char *const fo_predict_memory_name[FO_PREDICT_MEMORIES]; /* "weights", ..., "reserve" */

/* A format of what the optimizer keeps of a weight beside gradients. */
enum fo_predict_format {
	FO_PREDICT_FORMAT_JOB,      /* what the job states, else what its framework does unless told: fp32 */
	FO_PREDICT_FORMAT_FP32,     /* masters and both moments */
	FO_PREDICT_FORMAT_SPLIT,    /* the master is the bf16 weight and a low half beside it: the same numbers */
	FO_PREDICT_FORMAT_BF16,     /* moments in bf16 */
	FO_PREDICT_FORMAT_8BIT,     /* moments in 8 bits */
	FO_PREDICT_FORMAT_ALL_BF16, /* weights in bf16 without masters, moments in bf16 */
	FO_PREDICT_FORMATS
};
struct fo_predict_format_row {
	const char *name, *says; /* "bf16", "moments in bf16" */
	/* Bytes of a kept weight (0: as the style does), of a master beside it, of one of two moments (0: as the style
	 * does with masters, too). */
	double weight, master, moment;
	double update; /* of the bytes that an update moves with masters and moments in fp32, the share */
	bool exact;    /* the numbers of fp32 come out */
};
extern const struct fo_predict_format_row fo_predict_format_row[FO_PREDICT_FORMATS];

/* The kind of framework that keeps weights, gradients and states. */
enum fo_memory_keeper {
	FO_MEMORY_BY_ANY,
	FO_MEMORY_BY_MEGATRON,  /* bf16 weights, fp32 masters apart, sums of gradients in one buffer */
	FO_MEMORY_BY_DEEPSPEED, /* bf16 weights and gradients, fp32 masters apart */
	FO_MEMORY_BY_TORCH,     /* the weight is the master: torchtitan, FSDP, DDP with autocast */
	FO_MEMORY_BY_FLATOUT,   /* as Megatron; its programs are planned, and this is an estimate of them */
};
enum fo_memory_said { FO_MEMORY_NOT_SAID, FO_MEMORY_YES, FO_MEMORY_NO };

/* RMSNorm, rotation, SwiGLU as PyTorch writes them out: how far. A cache holds some of what one kernel writes and the
 * next reads: torch.compile gains 1.16 on torchtitan's 8B where 0.7 of the bytes say 1.15 and all of them 1.2. */
#define fo_memory_plain ((struct fo_range){ 0.7, 1 })

/* How a job keeps things, whatever its division. A member that is 0 is as the keeper does unless told. */
struct fo_memory_ways {
	bool known; /* false: by the framework's style; fo_predict_prepare fills it in */
	enum fo_memory_keeper keeper;
	bool full, half;           /* products in fp32, in fp16 */
	bool small, small_gathers; /* products in 8 or 4 bits, and weights gathered so */
	double master;             /* bytes of the weight that the optimizer updates; 0: 4 */
	double reduce;             /* bytes of a gradient that is reduced; 0: 4 */
	/* Bytes for one weight, as stated. high 0: as the keeper does. `optimizer` has masters with the moments. */
	struct fo_range moments, weight, gradient, optimizer;
	bool in_backward; /* the optimizer: gradients of two layers at a time */
	bool offload_states, offload_weights, offload_activations; /* to host memory */
	double bucket;                                             /* bytes of a bucket of gradients; 0: not known */
	double live; /* gathered weights that ZeRO-3 of DeepSpeed may keep; 0: its default, 1e9 */
	enum fo_memory_said sums_fused, optimizer_fused, loss_fused;
	struct fo_range unfused; /* of norms and activations, how far they are not fused: 0 to 1 */
	bool compiled;
	bool sdpa;      /* attention that PyTorch chooses */
	bool dropout;   /* above 0 */
	bool scores;    /* are stored */
	bool rows_vary; /* rows are as long as the longest text of a micro-batch: the sequence is a bound */
	/* Adapters beside frozen weights: their rank, whether modules are trained whole beside them, and the bytes of a
	 * frozen weight. */
	bool adapters, adapters_whole;
	struct fo_range rank, frozen;
};

/* Bytes of one token in one layer. `split`: divided by tensor parallelism; `sequence`: divided by it with sequence
 * parallelism alone; `full`: by neither. */
struct fo_memory_token {
	double split, sequence, full;
};
struct fo_memory_state {
	struct fo_range weight, gradient, optimizer;
};
/* Types of products, as far as memory goes: those of the job, or others that a division has. */
enum fo_memory_products { FO_MEMORY_OF_JOB, FO_MEMORY_16_BITS, FO_MEMORY_SMALL, FO_MEMORY_FULL, FO_MEMORY_PRODUCTS };
/* All that does not depend on the division. Private. */
struct fo_memory_base {
	struct fo_memory_ways ways;
	double seq;
	double layers, dense, moe;   /* layers in all, with a dense feed-forward, with experts */
	double h, q, kv, ffn, vocab; /* q: heads x dimension; kv: the same of keys */
	double v, values;            /* heads x dimension of what attention gives out; of the values that go in */
	double heads, experts, active, expert_ffn, shared_ffn, latent;
	double matrices;                            /* of a feed-forward */
	double attention, norms, router, ffn_dense; /* weights of a layer */
	double shared, expert, embedding, head;
	bool tied, mla, layer_norm;
	/* Bytes of one weight by type of products, format of states and ZeRO stage. */
	struct fo_memory_state state[FO_MEMORY_PRODUCTS][FO_PREDICT_FORMATS][4];
	/* Activations by end (least, most) and kind of layer (dense, experts). */
	struct {
		struct fo_memory_token all, listed, working, small;
	} token[2][2];
	struct fo_range logit[2]; /* bytes of one: whole, divided */
};
struct fo_memory {
	struct fo_range part[FO_PREDICT_MEMORIES], total; /* bytes */
	struct fo_range host;                             /* bytes of host memory per device that offloading takes */
	double stage;                                     /* the pipeline stage that these are of, from 0 */
};

struct fo_predict_model;
struct fo_predict_layout;
/* fp32 masters and two moments in fp32? Of a base's ways. */
static inline bool fo_memory_plain_states(const struct fo_memory_ways *w)
{
	return w->master == 4 && w->moments.low == 8 && w->moments.high == 8 && !(w->optimizer.high > 0);
}
void fo_memory_prepare(struct fo_memory_base *b, const struct fo_predict_model *m, const struct fo_memory_ways *ways,
		       double seq);
/* Counts the stage that may take the most. `l` must be one that comes out (fo_predict_point's `wrong` is NULL);
 * micro_batches 0 and global_batch 0: as many as there are stages. Safe from several threads. */
void fo_memory_of(const struct fo_memory_base *b, const struct fo_predict_layout *l, struct fo_memory *out);

#endif
