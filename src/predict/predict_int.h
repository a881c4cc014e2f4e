/* The two halves of a prediction: what a division of a job costs in FLOP and bytes, which no constant touches, and the
 * constants that turn it into seconds. A fit counts once and turns many times. Private to predict and score. */
#ifndef FO_PREDICT_PREDICT_INT_H
#define FO_PREDICT_PREDICT_INT_H

#include "predict/predict.h"

enum fo_predict_constant {
#define FO_PREDICT_CONSTANT(id, ...) FO_X_##id,
#include "predict/constants.def"
#undef FO_PREDICT_CONSTANT
	FO_PREDICT_CONSTANTS
};
/* Constants that frameworks share: the columns of U_, HOST_ and TP_ in constants.def. */
enum fo_predict_habits { FO_MCORE, FO_MLM, FO_MEG22, FO_EAGER, FO_FSDP1, FO_COMPILED, FO_XLA, FO_GRAPHS, FO_HABITS };
enum fo_predict_habits fo_predict_habits_of(enum fo_predict_style_id style);

enum { FO_PREDICT_QKV, FO_PREDICT_OUT, FO_PREDICT_UP, FO_PREDICT_DOWN, FO_PREDICT_HEAD, FO_PREDICT_SITES };
enum { FO_PREDICT_FORWARD, FO_PREDICT_INPUT, FO_PREDICT_WEIGHT };

struct fo_predict_product {
	double flop, idle, depth; /* idle: tiles and waves over ideal, at least 1 */
	double bytes, sums;       /* sums: of weight gradients' fp32 sums */
};
/* Lowering's effect on Flatout's own programs (own.c); other stacks have none of it. */
struct fo_predict_own {
	bool on, sp, tied;
	double moved[2], again_moved;         /* bytes of a layer forward, backward; of a forward that is repeated */
	double embed_moved[2], head_moved[2]; /* once a micro-batch */
	double gradient;                      /* bytes of one */
	double hidden, words, matrices;    /* elements of a norm, of this rank's embedding, of its layer's matrices */
	double tensor[FO_PREDICT_HEAD];    /* of these, by site */
	struct fo_predict_product keys[3]; /* with cp: of keys, and the same of values */
	double tokens, keys_bytes;         /* that all ranks of a tp group have; of a rank's keys, its values alike */
};
/* One micro-batch of one layer on one device, and what happens once a step. */
struct fo_predict_work {
	struct fo_predict_own own;
	const char *wrong;
	/* Constants that this job reads. */
	int ceil, ceil_head, attention, part, habits;
	enum fo_predict_type type;
	double rate, rate_head; /* FLOP/s at a ceiling of 1 */
	double peak_bf16, memory_byte_s, node, net, net_share, sustained;
	bool young; /* a device whose software still gets better */
	bool ring;  /* PyTorch's own of keys and values, more than two ranks */
	bool pcie, stored, plain_exchange, trains, moe, dense_too, graphs, fsdp, eager_data;
	struct fo_predict_product product[FO_PREDICT_SITES][3];
	double repeats[FO_PREDICT_SITES];          /* of a site in one layer: local experts, share of layers */
	struct fo_predict_product dense_ffn[2][3]; /* of layers without experts, and shared experts */
	double dense_share, shared_share;
	double attention_flop, scores, dim64, seq;
	double state_moved; /* of layers that keep a state */
	double moved, casts[2], cast_weights, permuted, all_to_all, all_to_all_net, local_experts; /* bytes; count */
	bool fp8, block;
	bool rows; /* scales by row or block on a device whose products know none */
	double logit_bytes, logits;
	double tp, tp_bytes, cp, cp_bytes, ep, in_node, send_bytes;
	bool tp_inside, cp_inside, ep_inside, pp_inside;
	double tp_exposed; /* 0: the style's constant */
	bool tp_hidden;
	int dp_overlap;
	double shard, shard_node, nodes, replicate; /* ranks that share states, of these in a node, nodes; replicas */
	double data_node;                           /* ranks of a data-parallel group in a node */
	bool keeps_weights;
	double layer_bytes, gradient_bytes, local_params, optimizer_bytes;
	double layers, pp, chunks, micro_batches, dp, micro_batch, devices;
	struct fo_predict_uneven uneven;
	enum fo_predict_schedule schedule;
	double zero, again;
	double again_stages; /* that recompute, of several; 0: all */
	bool again_core, again_ffn;
	double year;
	double habit;
	/* Seconds of one layer's products by pass, of its up projection forward, of the head: counted before, for the
	 * constants that the base has. */
	bool known;
	double known_pass[3], known_up, known_head[3];
};

static inline double most(double a, double b) { return a > b ? a : b; }
static inline double least(double a, double b) { return a < b ? a : b; }
static inline double up_to_whole(double x)
{
	const double t = (double)(int64_t)x;
	return t < x ? t + 1 : t;
}

/* 80 % of a normal distribution lie within so many standard deviations of its middle. */
#define FO_PREDICT_Z80 1.2816
/* Bytes of a reduced gradient. */
double fo_predict_gradient_bytes(const struct fo_predict_job *j);
void fo_memory_ways_of_style(const struct fo_predict_job *j, struct fo_memory_ways *w);
/* Bytes of a token: of stored scores; a feed-forward's own activations of a width; of a layer's, with its norm. */
double fo_memory_scores(const struct fo_memory_base *b);
double fo_memory_own(const struct fo_memory_base *b, double width, double unfused);
struct fo_memory_token fo_memory_ffn(const struct fo_memory_base *b, bool moe, double unfused);
/* Copies the table's values (fitted true) or starts. */
void fo_predict_constants(bool fitted, double x[FO_PREDICT_CONSTANTS]);
/* m x n x k, without a weight gradient's sum. */
struct fo_predict_product fo_predict_product_of(double m, double n, double k, double units);
/* Fills w->own where the style is Flatout's. */
void fo_predict_own_of(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_work *w);
/* Counts. */
void fo_predict_work_of(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_work *w);
/* The same for another division of the same tp, cp, ep, sp, micro-batch and devices: what these decide stays. */
void fo_predict_work_again(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			   struct fo_predict_work *w);
/* Fills known_*: fo_predict_time then takes them, and x may be no other. */
void fo_predict_know(struct fo_predict_work *w, const double *x);
/* Seconds, of constants x. out: dp, micro_batches, seconds, part. */
void fo_predict_time(const struct fo_predict_work *w, const double *x, struct fo_predict_step *out);
/* What of it decides whether it comes out. */
void fo_predict_shape_of(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_work *w);
/* Fills tokens_s and MFU from seconds. */
void fo_predict_finish(const struct fo_predict_base *b, const struct fo_predict_work *w, struct fo_predict_step *out);
/* Which constants can move this work's seconds? */
bool fo_predict_reads(const struct fo_predict_work *w, int constant);

#endif
