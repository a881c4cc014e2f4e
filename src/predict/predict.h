/* Predicts a training job's step time and memory from its configuration alone, for any device of the catalogue.
 *
 * Plain numbers in, plain numbers out: nothing is read, allocated or kept, so that a search can ask a million times.
 * What depends on model, device, framework, number type and sequence is prepared once (fo_predict_prepare); a division
 * over devices then costs one to two microseconds (fo_predict_point). docs/predict.md has each formula, and where it
 * comes from; constants.def has every constant with its bounds and its origin; styles.def has the frameworks.
 *
 * Tokens/s of published runs are off by some 5 % where other models of the same publisher are known, by 10 % and more
 * where none is (docs/accuracy.md). Each answer carries an interval that says so. */
#ifndef FO_PREDICT_PREDICT_H
#define FO_PREDICT_PREDICT_H

#include "base/range.h"
#include "hw/catalogue.h"
#include "model/model.h"
#include "predict/memory.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- what is asked ---- */

/* Of the linear layers' products; the head and attention stay in bf16. */
enum fo_predict_type {
	FO_PREDICT_BF16,  /* fp16 alike */
	FO_PREDICT_FP8,   /* one scale for a tensor, delayed or current */
	FO_PREDICT_MXFP8, /* a scale for each block or row */
	FO_PREDICT_FP4,
	FO_PREDICT_TF32,
	FO_PREDICT_FP32,
	FO_PREDICT_TYPES
};
extern const char *const fo_predict_type_name[FO_PREDICT_TYPES]; /* "bf16", "fp8", ... */

/* A framework's habits: a row of styles.def. */
enum fo_predict_style_id {
#define FO_PREDICT_STYLE(id, ...) FO_PREDICT_STYLE_##id,
#include "predict/styles.def"
#undef FO_PREDICT_STYLE
	FO_PREDICT_STYLES
};
enum fo_predict_attention {
	FO_PREDICT_ATTENTION_FUSED,  /* cuDNN's and Transformer Engine's kernels, FlashAttention 3 and later */
	FO_PREDICT_ATTENTION_SDPA,   /* FlashAttention 2, as PyTorch brings it */
	FO_PREDICT_ATTENTION_TRITON, /* FlashAttention 1 in Triton */
	FO_PREDICT_ATTENTION_STORED  /* scores are written to memory */
};
struct fo_predict_style {
	const char *name, *title; /* "torchtitan", "torchtitan (FSDP2, compiled)" */
	const char *family;       /* whose fitted constants it shares: "compiled" */
	const char *words;        /* in a framework's name, separated by '|'; lower case */
	enum fo_predict_attention attention;
	double gradient_bytes;  /* of a reduced gradient */
	double logit_bytes;     /* moved for one logit, forward and backward */
	double optimizer_bytes; /* moved for one parameter */
	double zero;            /* stage where nobody states one */
	bool sequence_parallel; /* with tensor parallelism, where nobody states it */
	bool recomputes;        /* whole layers, where nobody states it */
	bool neutral;           /* no published runs stand behind it: the interval is wide */
	const char *origin;
};
extern const struct fo_predict_style fo_predict_style[FO_PREDICT_STYLES];

/* A decoder. Matrices without biases; 0 where a model has no such thing. */
struct fo_predict_model {
	double layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
	double matrices;  /* of a feed-forward: 3 gated, 2 not */
	bool tied;        /* the head is the embedding */
	double qkv_width; /* outputs of the projections to queries, keys and values; 0: (heads + 2 kv_heads) head_dim */
	double value_dim; /* 0: head_dim */
	double window;    /* positions that a token looks back at most; 0: all */
	double experts, top_k, expert_ffn, shared_ffn, moe_layers; /* experts 0: dense; else ffn is of dense layers */
	double score_share; /* of layers, those that have attention; others keep a state (Mamba-2); 0: all */
	/* For memory alone. */
	double q_lora, kv_lora, rope_dim; /* widths of latent attention, which head_dim and qkv_width sum up */
	double attention, norms;          /* weights of a layer, with biases; 0: as widths say, 2 hidden */
	double positions;                 /* rows of a table of positions */
	bool layer_norm;                  /* LayerNorm, which PyTorch has as one kernel, rather than RMSNorm */
};
void fo_predict_model_of(const struct fo_model *m, struct fo_predict_model *out);
double fo_predict_params(const struct fo_predict_model *m); /* all of them, the head once more unless tied */

enum fo_predict_family {
	FO_PREDICT_AMPERE, /* and older */
	FO_PREDICT_HOPPER,
	FO_PREDICT_BLACKWELL,
	FO_PREDICT_RTX,
	FO_PREDICT_AMD,
	FO_PREDICT_FAMILIES
};
/* One device and what joins it to others. */
struct fo_predict_machine {
	char name[48];
	enum fo_predict_family family;
	double peak[FO_PREDICT_TYPES]; /* dense FLOP/s; NAN: no such type */
	double memory_byte_s, memory_bytes, units, watts;
	double memory_most; /* where drivers show different sizes, of which memory_bytes is the least; 0: they do not */
	double node_byte_s; /* of a device to others of its fast domain, one direction */
	double per_node;    /* devices of that domain */
	double per_host;    /* of these, devices of one host: 4 in a rack of 72 */
	double net_byte_s;  /* of a device to other domains, one direction; of its adapters as sold */
	double net_share;   /* of that, what collectives reach; 0: the constant NET */
	double sustained;   /* measured share of the bf16 peak in large products; 0: the constant of the family */
	double power;       /* of products' rate, what a power limit leaves; 0: all */
	bool pcie;          /* no fast links */
	bool older;         /* than those that anything is fitted to: an A100's constants stand in */
};
/* Bytes of memory above which no such device has room. */
static inline double fo_predict_most_bytes(const struct fo_predict_machine *m)
{
	return fmax(m->memory_bytes, m->memory_most);
}
/* Takes a row of the catalogue. FO_EUNSUPPORTED, naming what is missing, for a device of which nothing is measured
 * (TPUs, Gaudi, Trainium) or that has no bf16 (fp16) peak or memory rate. */
FO_CHECKED fo_status fo_predict_machine_of(const struct fo_device *d, struct fo_predict_machine *out);
/* A power limit in W in place of the device's own: what large products reach goes with it. */
void fo_predict_power_limit(struct fo_predict_machine *m, double watts);

/* What does not change in a search over divisions. */
struct fo_predict_job {
	struct fo_predict_model model;
	struct fo_predict_machine machine;
	enum fo_predict_style_id style;
	enum fo_predict_type type;
	double seq;
	bool lora;              /* frozen weights */
	double attention_share; /* of causal scores that are computed: packed short texts have less; 0: all */
	double habit;           /* a publisher's factor on speed; 0: unseen, 1 */
	double year;            /* of the framework's release, 2026.3; 0: not known */
	/* What a configuration states; 0: as the style does. */
	int attention;                 /* 1 + enum fo_predict_attention */
	double logit_bytes;            /* moved for one logit: 8 for a fused loss */
	double gradient_bytes;         /* of a gradient that is reduced */
	enum fo_predict_format format; /* of the optimizer's states, where one is stated; `ways` has their bytes */
	double optimizer_bytes;        /* moved for a weight's update: 80 where an optimizer is not fused */
	struct fo_memory_ways ways;    /* how memory is kept */
};

/* Zero bubble: ZB-H1, which takes 1F1B's memory, and ZB-H2, which holds about twice as many micro-batches. */
enum fo_predict_schedule {
	FO_PREDICT_1F1B,
	FO_PREDICT_INTERLEAVED,
	FO_PREDICT_ZERO_BUBBLE,
	FO_PREDICT_GPIPE,
	FO_PREDICT_ZB_H2,
	FO_PREDICT_SCHEDULES
};
/* Layers of the first and the last pipeline stage, and of each of those between them (of the fullest one); all 0:
 * stages are as even as can be. */
struct fo_predict_uneven {
	double first, middle, last;
};
static inline bool fo_predict_is_uneven(const struct fo_predict_uneven *u)
{
	return u->first + u->middle + u->last > 0;
}

/* Layers of the i-th of so many stages, of which the first `full` have one more than `fewest`, or those of *u. */
static inline double fo_predict_layers_at(const struct fo_predict_uneven *u, double fewest, double full, double stages,
					  double i)
{
	if (!fo_predict_is_uneven(u))
		return fewest + (i < full);
	if (i == 0)
		return u->first;
	return i < stages - 1 ? u->middle : u->last;
}

/* The same where all layers are known: as even as can be, the first stages with one more, or those of *u. */
static inline double fo_predict_stage_layers(const struct fo_predict_uneven *u, double layers, double stages, double i)
{
	const double each = floor(layers / stages);
	return fo_predict_layers_at(u, each, layers - each * stages, stages, i);
}

/* Megatron's modules that are computed again, for memory. */
enum {
	FO_PREDICT_AGAIN_NORM = 1,       /* layernorm */
	FO_PREDICT_AGAIN_FFN = 2,        /* mlp */
	FO_PREDICT_AGAIN_ACTIVATION = 4, /* moe_act */
	FO_PREDICT_AGAIN_EXPERTS = 8,    /* moe */
	FO_PREDICT_AGAIN_UP = 16,        /* mla_up_proj */
};

/* devices = dp x tp x cp x pp. Fields that are 0 mean 1, off or none. */
struct fo_predict_layout {
	double devices;
	double tp, cp, pp, ep;
	double etp;    /* tensor parallelism of experts, for memory */
	double chunks; /* of layers on a pipeline rank */
	enum fo_predict_schedule schedule;
	double zero;          /* 0 to 3 */
	double shard;         /* ranks that states are sharded over; 0: all dp x cp */
	bool sp;              /* sequence parallelism beside tp */
	double micro_batch;   /* sequences */
	double global_batch;  /* sequences of a step */
	double recompute;     /* share of each layer's forward that backward repeats: 1 full */
	bool recompute_core;  /* the attention's core */
	bool recompute_ffn;   /* the up projections and the activation */
	double again_stages;  /* recompute is that of the first so many stages of a pipeline alone; 0: of all */
	bool recompute_op;    /* the half of it that torchtitan's selective has: of products every second */
	unsigned again;       /* FO_PREDICT_AGAIN_... */
	int tp_overlap;       /* 1: hidden behind products, -1: not, 0: as the style does */
	int dp_overlap;       /* of gradients and weights with compute: the same */
	int graphs;           /* 1: CUDA graphs, -1: none, 0: as the style does */
	bool keeps_weights;   /* ZeRO 3: gathered weights stay until backward, which then gathers none */
	bool stages_near;     /* all stages of a pipeline in one node, and data parallelism between nodes */
	double micro_batches; /* 0: global_batch / (dp micro_batch), rounded up */
	struct fo_predict_uneven uneven;
	int type;                      /* of products: 1 + enum fo_predict_type; 0: the job's */
	enum fo_predict_format format; /* of the optimizer's states; FO_PREDICT_FORMAT_JOB: the job's */
};
static inline enum fo_predict_type fo_predict_type_of(const struct fo_predict_job *j, const struct fo_predict_layout *l)
{
	return l->type > 0 ? (enum fo_predict_type)(l->type - 1) : j->type;
}
static inline enum fo_predict_format fo_predict_format_of(const struct fo_predict_job *j,
							  const struct fo_predict_layout *l)
{
	return l->format != FO_PREDICT_FORMAT_JOB ? l->format : j->format;
}

/* ---- the answer ---- */

enum fo_predict_part {
	FO_PREDICT_MATMUL,
	FO_PREDICT_ATTENTION,
	FO_PREDICT_MEMORY, /* bound by memory: norms, rotations, activations, casts, permutes */
	FO_PREDICT_LOSS,   /* the head's products, cross-entropy */
	FO_PREDICT_RECOMPUTE,
	FO_PREDICT_TENSOR, /* exposed communication of that axis */
	FO_PREDICT_CONTEXT,
	FO_PREDICT_EXPERT,
	FO_PREDICT_DATA,
	FO_PREDICT_SENDS, /* between pipeline stages */
	FO_PREDICT_BUBBLE,
	FO_PREDICT_OPTIMIZER,
	FO_PREDICT_HOST, /* launches that the device waits for */
	FO_PREDICT_REST, /* stragglers, what is done once a step */
	FO_PREDICT_PARTS
};
extern const char *const fo_predict_part_name[FO_PREDICT_PARTS];

/* The makings of a slot of a pipeline's schedule: seconds of one micro-batch, forward and backward. For simulations
 * event by event (plan/timeline.h). */
enum {
	FO_PREDICT_CALL_TENSOR,
	FO_PREDICT_CALL_CONTEXT,
	FO_PREDICT_CALL_EXPERT,
	FO_PREDICT_CALL_SHARD,
	FO_PREDICT_CALLS
};
struct fo_predict_slots {
	double work[2];                   /* of a layer, with what is computed again and launches that it waits for */
	double call[FO_PREDICT_CALLS][2]; /* of a layer, exposed */
	double head[2];
	double embed[2];            /* the embedding's, on the first of several stages; else head has it */
	double again;               /* of work's backward, what the stages behind again_stages do not have */
	double weight, head_weight; /* of backward, what makes the weights' gradients */
	double hop;                 /* that a slot waits for its message between stages */
	double exchange;            /* of gradients and weights, once a step, exposed */
};

struct fo_predict_step {
	const char *wrong; /* why there is no answer, one sentence, static; NULL */
	double dp, micro_batches;
	double seconds;
	double part[FO_PREDICT_PARTS]; /* sum to the step; means over devices, of which the bubble has what they wait */
	double fewest, full;           /* layers of a pipeline stage; of the first `full` stages one more */
	struct fo_predict_slots slots;
	bool ahead;             /* Flatout's stages: messages travel beside work, the loss comes with backward */
	double tokens_s;        /* of one device */
	double mfu, mfu_causal; /* of the dense peak of the job's type; all scores, the causal half */
	double mfu_bf16_causal; /* of the bf16 peak */
	double bytes, memory[FO_PREDICT_MEMORIES];                      /* of the fullest device */
	struct fo_range bytes_range, memory_range[FO_PREDICT_MEMORIES]; /* from least to most */
	bool planned; /* memory is a program's, exact but for the overhead (fo_predict_planned) */
};

/* What depends on the job alone. Large; lives on the caller's stack or heap, holds no pointers to it. */
struct fo_predict_base {
	struct fo_predict_job job;
	double x[128];                   /* the constants; private */
	double rate[FO_PREDICT_TYPES];   /* FLOP/s of endless products, NAN: no such type; private */
	double flops_full, flops_causal; /* of one token, forward and backward, without repetition */
	double layer_params, ffn_params; /* of one layer: all but experts, routed experts; private */
	struct fo_memory_base memory;
};
/* NULL, or in one static sentence what cannot be (no layers, a type without a peak). */
const char *fo_predict_prepare(const struct fo_predict_job *job, struct fo_predict_base *b);
/* One division. Never fails; out->wrong says what does not come out. Safe from several threads. */
void fo_predict_point(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_step *out);
/* Takes the bytes that the program of the fullest device plans in place of the formulas', by part. The overhead stays
 * what it was: what libraries hold on top is an estimate. */
void fo_predict_planned(struct fo_predict_step *s, const double part[FO_PREDICT_MEMORIES]);
/* Memory alone, in a fraction of the time. */
void fo_predict_memory_of(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			  struct fo_predict_step *out);

/* Common parts of divisions of one tensor, context and expert parallelism and micro-batch, so that a search counts
 * them once for all that follow each other. Zero at first; one for each thread and base. */
struct fo_predict_shared {
	double room[256]; /* private */
};
/* Bytes that a device must have room for: the most that s->bytes may be. */
static inline double fo_predict_upper_bytes(const struct fo_predict_step *s) { return s->bytes_range.high; }
/* The same as fo_predict_memory_of and, where `most_bytes` are not below the most that memory may be, as
 * fo_predict_point: the very numbers. False: it does not fit, and *out has no seconds. */
bool fo_predict_point_within(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			     struct fo_predict_shared *shared, double most_bytes, struct fo_predict_step *out);
/* The same for the middle of what memory may be. */
bool fo_predict_point_about(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			    struct fo_predict_shared *shared, double bytes, struct fo_predict_step *out);

/* ---- how sure, and why ---- */

enum fo_predict_ground {
	FO_PREDICT_MEASURED,
	FO_PREDICT_CATALOGUE,
	FO_PREDICT_FITTED,
	FO_PREDICT_PUBLISHED, /* no fit has moved it: somebody published it, or bytes or launches are counted */
	FO_PREDICT_GUESS,
	FO_PREDICT_GROUNDS
};
/* "measured here", "catalogue", "fitted constant", "published figure", "guess" */
extern const char *const fo_predict_ground_name[FO_PREDICT_GROUNDS];
enum { FO_PREDICT_RESTS = 12, FO_PREDICT_TERMS = 3 };
struct fo_predict_certainty {
	struct fo_range seconds, tokens_s, part[FO_PREDICT_PARTS]; /* 80 % */
	struct fo_range bytes, memory[FO_PREDICT_MEMORIES];        /* from least to most */
	double sd;                                                 /* of log seconds */
	struct {
		enum fo_predict_ground ground;
		const char *what; /* "the share of the bf16 peak that large products sustain" */
		double value;     /* as the constants' table has it */
		const char *origin;
	} rest[FO_PREDICT_RESTS]; /* what the answer rests on, the largest effect first */
	int rests;
	struct {
		const char *what;
		double seconds;   /* that its own 80 % interval moves the step, one way */
	} term[FO_PREDICT_TERMS]; /* those that move it most, largest first */
	int terms;
	bool bounded;     /* the fast end is where all useful FLOP are done at the dense peak */
	const char *flag; /* why to distrust it: above the best published MFU of its class, ...; NULL */
	const char *size; /* fo_predict_size_doubt */
};
/* The largest cluster of data/published_runs.csv (tests/unit/test_scale.c compares). */
#define FO_PREDICT_PUBLISHED_DEVICES 2048
/* One sentence, for more devices than anyone published over a network that nobody measured: the figures of such a
 * cluster are marked "?". NULL: they are known as well as others. */
const char *fo_predict_size_doubt(const struct fo_predict_machine *m, double devices);
extern const char fo_predict_too_large[]; /* a flag: the memory is above the device's */
/* About fifty points. */
void fo_predict_certainty_of(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			     const struct fo_predict_step *s, struct fo_predict_certainty *out);

/* The best published dense pre-training run of a class of device: MFU with causal attention over the dense peak of the
 * products' type. */
struct fo_predict_best {
	const char *begins; /* of the catalogue's name */
	enum fo_predict_type type;
	double causal;
	const char *run; /* what it was, and who published it */
};
/* The row of a device and type (mxfp8 counts as fp8); NULL: no such run is known here. */
const struct fo_predict_best *fo_predict_best_of(const char *device, enum fo_predict_type type);

/* How much faster one job is than another: tokens/s of a device over tokens/s. */
struct fo_predict_gain {
	double times;          /* exactly 1: nothing that is counted here differs */
	struct fo_range range; /* 80 % */
	double guessed;        /* of log times: the standard deviation that guesses carry */
	const char *guess;     /* the guess that moves it most; NULL */
	bool rests_on_guess; /* guesses carry most of what is not known: the gain is not known, `times` is no answer */
	const char *wrong;   /* why there is no answer, static; NULL */
};
/* Both bases must be of one machine. Every constant moves on both sides at once. */
void fo_predict_gain_of(const struct fo_predict_base *a, const struct fo_predict_layout *before,
			const struct fo_predict_base *b, const struct fo_predict_layout *after,
			struct fo_predict_gain *out);
/* The share of a step that each part has, 80 %; NAN where nothing can be said. */
void fo_predict_shares_of(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			  struct fo_range share[FO_PREDICT_PARTS]);

/* The table of constants (constants.def). */
struct fo_predict_constant_row {
	const char *id;
	double value, start, spread, low, high; /* value: fitted; spread: of log */
	const char *unit, *meaning, *origin;
};
extern const struct fo_predict_constant_row fo_predict_constant_row[];
extern const int fo_predict_constant_count;
enum fo_predict_ground fo_predict_ground_of(const struct fo_predict_constant_row *r);
/* The rest of a constant's prior spread: half of it where a fit has moved it. */
double fo_predict_spread_of(const struct fo_predict_constant_row *r);

/* The style whose words a framework's name has ("NVIDIA NeMo/Megatron-Core"), else the neutral one. */
enum fo_predict_style_id fo_predict_style_of(const char *framework);
/* The factor of a publisher of published runs ("bloom"); 0: none such. */
double fo_predict_habit(const char *publisher);

#endif
