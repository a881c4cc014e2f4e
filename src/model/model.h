/* A transformer's architecture, its parameters and its closed FLOP formulas.
 *
 * The engine trains the Llama family (fo_model_trainable() says why it cannot train another one); parameter and FLOP
 * accounting covers GPT-like and mixture-of-experts models too. Closed formulas live here and in tests only: everything
 * else sums over the step program, and a test holds the two equal.
 *
 * Letters: L layers, D hidden, H heads, K kv heads, Q head dimension, F ffn, V vocabulary, S sequence. */
#ifndef FO_MODEL_MODEL_H
#define FO_MODEL_MODEL_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fo_family { FO_FAMILY_LLAMA, FO_FAMILY_GPT, FO_FAMILY_MOE, FO_FAMILY_DEEPSEEK };

/* Rotary position scaling as Hugging Face's config.json names it. OTHER: one that accounting does not need and the
 * engine does not know (yarn, dynamic, partial, ...). */
enum fo_rope_type { FO_ROPE_DEFAULT, FO_ROPE_LINEAR, FO_ROPE_LLAMA3, FO_ROPE_OTHER };

struct fo_rope {
	double theta;
	enum fo_rope_type type;
	double factor, low_freq_factor, high_freq_factor; /* LINEAR uses factor alone */
	int64_t original_max_position;
	char other[24]; /* OTHER: what config.json calls it */
};

struct fo_model {
	char name[64];
	enum fo_family family;
	int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
	int64_t max_position; /* 0: not stated */
	bool tied;            /* the head shares the embedding's weights */
	bool gated;           /* SwiGLU-like feed-forward (three matrices) rather than two */
	bool attention_bias,
		mlp_bias;       /* biases of q, k, v (Qwen2, GPT) and of the feed-forward matrices (GPT; Llama) */
	bool output_bias;       /* bias of the attention's output projection (GPT; Llama with attention_bias) */
	bool norm_bias;         /* LayerNorm with shift (GPT) rather than RMSNorm */
	bool qk_norm;           /* Qwen3 */
	bool learned_position;  /* GPT: a position table */
	int64_t sliding_window; /* keys that a query sees at most; 0: all */
	double norm_eps;
	struct fo_rope rope;
	/* Mixture of experts (family MOE, DEEPSEEK): */
	int64_t experts, experts_active, shared_experts, expert_ffn, dense_layers;
	/* Multi-head latent attention (family DEEPSEEK): */
	int64_t q_lora, kv_lora, qk_nope_dim, qk_rope_dim, v_dim;
	/* Multi-token-prediction modules: how many the model has, and how many of them weights and FLOP include. */
	int64_t mtp_modules, mtp_counted;
};

/* The fields that make a trainable model, once for all who walk them: a program's dump, a resumed run. */
struct fo_model_field {
	const char *name; /* in dumps, as in the struct */
	const char *said; /* as its owner says it: the run's option, or config.json's key */
	size_t offset;
	char type; /* 'i' int64_t, 'b' bool, 'd' double */
};
extern const struct fo_model_field fo_model_field[];
extern const int fo_model_fields;

/* ---- where a model comes from ---- */

/* name is a preset ("llama-3.1-8b"), a path to a Hugging Face config.json or to a folder that holds one, or the name of
 * a preset's model on Hugging Face ("meta-llama/Llama-3.1-8B"; nothing is fetched). An unknown name is FO_EARG with the
 * nearest of them. */
FO_CHECKED fo_status fo_model_load(const char *name, struct fo_model *out);
/* Parses the text of a config.json; `where` names it in errors. Caps every dimension; refuses unknown model_type with
 * what is supported. */
FO_CHECKED fo_status fo_model_parse(const char *json, size_t len, const char *where, struct fo_model *out);
/* The model_type under which transformers knows this architecture: "llama", "mistral", "qwen2" or "qwen3", the first
 * that has its biases, norms and window; NULL: none has. */
const char *fo_model_type(const struct fo_model *m);
/* The config.json of a trainable model as fo_model_type's class of transformers reads it (4.x and 5), arena-owned.
 * dtype is "float32" or "bfloat16"; bos and eos are token ids, < 0: none (written as null: transformers' own defaults
 * are ids of Llama's tokenizer). */
char *fo_model_config_json(struct fo_arena *a, const struct fo_model *m, const char *dtype, int64_t bos, int64_t eos);
/* Checks that dimensions agree with each other (heads divisible by kv_heads, head_dim even, all positive, caps). */
FO_CHECKED fo_status fo_model_check(const struct fo_model *m);
/* FO_EUNSUPPORTED naming all that differs if the engine cannot train this architecture. */
FO_CHECKED fo_status fo_model_trainable(const struct fo_model *m);

/* Names on Hugging Face, and the preset that such a name means; NULL: none of them. */
const char *fo_model_hub_id(int i); /* NULL after the last */
const struct fo_model *fo_model_of_hub(const char *name);
const struct fo_model *fo_model_preset_named(const char *name); /* in either case; NULL: none */
int fo_model_preset_count(void);
const struct fo_model *fo_model_preset(int i);
const char *fo_model_preset_source(int i); /* where the dimensions come from */

/* The head_dim/2 inverse frequencies (radians per position) after scaling: theta^(-2i/Q), Llama-3.1 rule as in
 * transformers' rope_utils ("llama3"). out has head_dim/2 entries. */
void fo_model_rope_frequencies(const struct fo_rope *r, int64_t head_dim, double *out);

/* ---- counting ---- */

enum fo_component {
	FO_COMP_EMBEDDING,
	FO_COMP_QKV,
	FO_COMP_SCORES,
	FO_COMP_OUTPUT,
	FO_COMP_FFN,
	FO_COMP_ROUTER,
	FO_COMP_NORM,
	FO_COMP_HEAD,
	FO_COMP_MTP, /* the projections of multi-token-prediction modules; their layers and heads are in the others */
	FO_COMP_COUNT,
};
extern const char *const fo_component_name[FO_COMP_COUNT];

/* Weights as doubles: exact up to 2^53. Biases belong to the matrix that they follow and count as its weights (2 FLOP
 * forward, 4 backward, as norms do); q/k norms and the norms inside MLA belong to the norms; the router's matrix is a
 * matmul. Weights that no gradient moves (DeepSeek's score-correction biases) are not counted, multi-token-prediction
 * modules where mtp_counted says so: each is one more layer, three norms and a projection of two hidden vectors to one;
 * embedding and head are the model's own, but the head multiplies once more (DeepSeek-V3 Technical Report, 2024,
 * section 2.2; Megatron-LM, num_floating_point_operations). */
struct fo_params {
	double total;     /* every trainable weight, the tied head counted once */
	double active;    /* weights that one token uses (mixture of experts); = total for dense models */
	double embedding; /* input embedding (and learned positions); also when tied */
	double head;      /* output projection, also when it shares the embedding's memory */
	double matmul;    /* N_mm: what multiplies a token: active - embedding lookup + head if tied, and once more for
			   * each module of mtp_counted; norms in */
	double norm, attention, ffn; /* total = embedding + (untied) head + norm + attention + ffn */
	double component[FO_COMP_COUNT], component_active[FO_COMP_COUNT]; /* HEAD also when tied */
};
struct fo_params fo_model_params(const struct fo_model *m);
/* Has weights and FLOP include all multi-token-prediction modules of the model; FO_EARG where it has none. */
FO_CHECKED fo_status fo_model_count_mtp(struct fo_model *m);
/* "1 multi-token-prediction module", "2 multi-token-prediction modules"; returns buf. */
const char *fo_model_mtp_text(char buf[48], int64_t modules);
/* " with 1 multi-token-prediction module" where weights and FLOP include it, else "". Returns buf. */
const char *fo_model_mtp_with(char buf[64], const struct fo_model *m);

/* FLOP per token, forward plus backward unless named otherwise. Rules (docs/metrics.md):
 *   mfu         6 N_mm + 12 L H Q S     (PaLM appendix B; attention counted as if not causal)
 *   mfu_causal  6 N_mm +  6 L H Q S     (S/2 keys per query)
 *   mfu_6n      6 N_mm
 * For MLA, 12 L H Q S becomes 6 L H (Qqk + Qv) S. With a sliding window W < S a query has W keys under the full rule
 * and W - W^2/2S on average under the causal one. seq >= 1. */
struct fo_flop {
	double mfu, mfu_causal, mfu_6n;
	double layers; /* matmuls of all layers: what recipes for fp8 compute in fp8, but for router and attention */
	/* All layers together. */
	struct {
		double forward, backward, forward_causal, backward_causal;
	} component[FO_COMP_COUNT];
};
struct fo_flop fo_model_flop_per_token(const struct fo_model *m, int64_t seq);

#endif
