/* Consistency of a model, what the engine can train, rotary frequencies, writing config.json, finding a model. */
#include "model/model.h"
#include "base/count.h"
#include "base/str.h"
#include "model/model_int.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(f, said, t) #f, said, offsetof(struct fo_model, f), t
/* The fields of a trainable model in the order of dumps (docs/formats.md). */
const struct fo_model_field fo_model_field[] = {
	{ FIELD(layers, "model.layers", 'i') },
	{ FIELD(hidden, "model.hidden", 'i') },
	{ FIELD(heads, "model.heads", 'i') },
	{ FIELD(kv_heads, "model.kv-heads", 'i') },
	{ FIELD(head_dim, "model.head-dim", 'i') },
	{ FIELD(ffn, "model.ffn", 'i') },
	{ FIELD(vocab, "model.vocab", 'i') },
	{ FIELD(max_position, "max_position_embeddings", 'i') },
	{ FIELD(tied, "model.tied", 'b') },
	{ FIELD(gated, "gated feed-forward", 'b') },
	{ FIELD(attention_bias, "attention_bias", 'b') },
	{ FIELD(output_bias, "bias of the attention's output", 'b') },
	{ FIELD(mlp_bias, "mlp_bias", 'b') },
	{ FIELD(qk_norm, "query and key norms", 'b') },
	{ FIELD(sliding_window, "sliding_window", 'i') },
	{ FIELD(norm_eps, "rms_norm_eps", 'd') },
	{ FIELD(rope.theta, "rope_theta", 'd') },
	{ FIELD(rope.factor, "rope_scaling.factor", 'd') },
	{ FIELD(rope.low_freq_factor, "rope_scaling.low_freq_factor", 'd') },
	{ FIELD(rope.high_freq_factor, "rope_scaling.high_freq_factor", 'd') },
	{ FIELD(rope.original_max_position, "rope_scaling.original_max_position_embeddings", 'i') },
};
const int fo_model_fields = sizeof fo_model_field / sizeof *fo_model_field;

static fo_status check_limits(const struct fo_model *m)
{
	const bool mixture = m->experts != 0, latent = m->kv_lora != 0;
	const struct {
		bool counts;
		const char *name;
		int64_t value, lo, hi;
	} limit[] = {
		{ true, "number of layers", m->layers, 1, FO_MODEL_MAX_LAYERS },
		{ true, "hidden size", m->hidden, 1, FO_MODEL_MAX_DIM },
		{ true, "number of attention heads", m->heads, 1, FO_MODEL_MAX_DIM },
		{ true, "number of kv heads", m->kv_heads, 1, m->heads },
		{ true, "head dimension", m->head_dim, 1, FO_MODEL_MAX_DIM },
		{ true, "feed-forward width", m->ffn, 1, FO_MODEL_MAX_DIM },
		{ true, "vocabulary size", m->vocab, 1, FO_MODEL_MAX_DIM },
		{ true, "longest position", m->max_position, m->learned_position, FO_MODEL_MAX_POSITION },
		{ true, "sliding window", m->sliding_window, 0, FO_MODEL_MAX_POSITION },
		{ true, "multi-token-prediction modules", m->mtp_modules, 0, FO_MODEL_MAX_LAYERS },
		{ true, "counted multi-token-prediction modules", m->mtp_counted, 0, m->mtp_modules },
		{ mixture, "number of experts", m->experts, 1, FO_MODEL_MAX_EXPERTS },
		{ mixture, "experts per token", m->experts_active, 1, m->experts },
		{ mixture, "shared experts", m->shared_experts, 0, FO_MODEL_MAX_EXPERTS },
		{ mixture, "expert feed-forward width", m->expert_ffn, 1, FO_MODEL_MAX_DIM },
		{ mixture, "dense layers", m->dense_layers, 0, m->layers },
		{ latent, "q_lora_rank", m->q_lora, 0, FO_MODEL_MAX_DIM },
		{ latent, "kv_lora_rank", m->kv_lora, 1, FO_MODEL_MAX_DIM },
		{ latent, "qk_nope_head_dim", m->qk_nope_dim, 1, FO_MODEL_MAX_DIM },
		{ latent, "qk_rope_head_dim", m->qk_rope_dim, 2, FO_MODEL_MAX_DIM },
		{ latent, "v_head_dim", m->v_dim, 1, FO_MODEL_MAX_DIM },
	};
	for (size_t i = 0; i < sizeof limit / sizeof *limit; i++)
		if (limit[i].counts && (limit[i].value < limit[i].lo || limit[i].value > limit[i].hi))
			return fo_fail(FO_EARG, "model '%s': %s is %lld, expected %lld to %lld", m->name, limit[i].name,
				       (long long)limit[i].value, (long long)limit[i].lo, (long long)limit[i].hi);
	return FO_OK;
}

fo_status fo_model_check(const struct fo_model *m)
{
	FO_TRY(check_limits(m));
	if (m->heads % m->kv_heads)
		return fo_fail(FO_EARG, "model '%s': %lld attention heads cannot share %lld kv heads evenly", m->name,
			       (long long)m->heads, (long long)m->kv_heads);
	if (!m->learned_position && m->head_dim % 2)
		return fo_fail(
			FO_EARG,
			"model '%s': head dimension is %lld, expected an even number (rotary positions turn pairs)",
			m->name, (long long)m->head_dim);
	if (!(m->norm_eps > 0 && m->norm_eps < 1))
		return fo_fail(FO_EARG, "model '%s': norm epsilon is %g, expected more than 0 and less than 1", m->name,
			       m->norm_eps);
	if (m->learned_position)
		return FO_OK;
	const struct fo_rope *r = &m->rope;
	if (!(r->theta >= 1 && r->theta <= 1e15))
		return fo_fail(FO_EARG, "model '%s': rope theta is %g, expected 1 to 1e15", m->name, r->theta);
	if ((r->type == FO_ROPE_LINEAR || r->type == FO_ROPE_LLAMA3) && !(r->factor >= 1 && r->factor <= 1e6))
		return fo_fail(FO_EARG, "model '%s': rope scaling factor is %g, expected 1 to 1e6", m->name, r->factor);
	if (r->type == FO_ROPE_LLAMA3 &&
	    !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor && r->high_freq_factor <= 1e6))
		return fo_fail(
			FO_EARG,
			"model '%s': rope low_freq_factor %g and high_freq_factor %g, expected 0 < low < high <= 1e6",
			m->name, r->low_freq_factor, r->high_freq_factor);
	if (r->type == FO_ROPE_LLAMA3 &&
	    (r->original_max_position < 1 || r->original_max_position > FO_MODEL_MAX_POSITION))
		return fo_fail(FO_EARG, "model '%s': rope original_max_position_embeddings is %lld, expected 1 to %lld",
			       m->name, (long long)r->original_max_position, (long long)FO_MODEL_MAX_POSITION);
	return FO_OK;
}

fo_status fo_model_trainable(const struct fo_model *m)
{
	char rotary[96];
	const struct {
		bool differs;
		const char *what;
	} rule[] = {
		{ m->experts > 0, "mixture-of-experts layers" },
		{ m->kv_lora > 0, "multi-head latent attention" },
		{ m->learned_position, "learned positions" },
		{ m->norm_bias, "LayerNorm with shift" },
		{ !m->gated, "a feed-forward block without gate" },
		{ m->rope.type == FO_ROPE_OTHER, rotary },
		{ m->mtp_modules > 0, "multi-token-prediction modules" },
		{ m->family == FO_FAMILY_LLAMA && !fo_model_type(m),
		  "biases, norms and a window that no architecture of transformers has together" },
	};
	char list[512] = "";
	FO_TRY(fo_model_check(m));
	snprintf(rotary, sizeof(rotary), "rotary positions of kind '%.23s' (default, linear and llama3 are known)",
		 m->rope.other[0] ? m->rope.other : "other");
	for (size_t i = 0; i < sizeof(rule) / sizeof(rule[0]); i++)
		if (rule[i].differs) {
			size_t n = strlen(list);
			snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "", rule[i].what);
		}
	if (!*list && m->family != FO_FAMILY_LLAMA)
		snprintf(list, sizeof(list), "a layer structure other than Llama's");
	if (!*list)
		return FO_OK;
	fo_status st = fo_fail(FO_EARG, "cannot train model '%s': it has %s", m->name, list);
	return fo_hint(st, "the engine trains Llama-family models; 'flatout flops' and 'flatout mfu' count this one "
			   "too");
}

const char *fo_model_type(const struct fo_model *m)
{
	bool qkv = m->attention_bias, out = m->output_bias;
	if (m->qk_norm)
		return qkv == out && !m->mlp_bias ? "qwen3" : NULL;
	if (qkv && !out)
		return m->mlp_bias ? NULL : "qwen2";
	if (m->sliding_window > 0)
		return qkv || out || m->mlp_bias ? NULL : "mistral";
	return qkv == out ? "llama" : NULL;
}

/* Base: Su and others 2021, equation 15. "llama3": wavelengths beyond original/low are stretched by the factor, those
 * below original/high are kept, in between the two frequencies are mixed linearly in original/wavelength
 * (Llama 3.1 reference code, apply_scaling; transformers modeling_rope_utils, "llama3"). */
void fo_model_rope_frequencies(const struct fo_rope *r, int64_t head_dim, double *out)
{
	const double turn = 2 * 3.14159265358979323846;
	for (int64_t i = 0; i < head_dim / 2; i++) {
		double f = pow(r->theta, -2.0 * (double)i / (double)head_dim);
		if (r->type == FO_ROPE_LINEAR)
			f /= r->factor;
		if (r->type == FO_ROPE_LLAMA3) {
			double turns = (double)r->original_max_position * f / turn; /* original / wavelength */
			double keep = (turns - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
			keep = fmin(fmax(keep, 0), 1);
			f = (1 - keep) * f / r->factor + keep * f;
		}
		out[i] = f;
	}
}

static json_t *rope_json(const struct fo_rope *r)
{
	if (r->type == FO_ROPE_LINEAR)
		return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", r->factor);
	if (r->type == FO_ROPE_LLAMA3)
		return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", r->factor,
				 "low_freq_factor", r->low_freq_factor, "high_freq_factor", r->high_freq_factor,
				 "original_max_position_embeddings", (json_int_t)r->original_max_position);
	return json_null();
}

/* Digits that bring v back unchanged: 15 keep 1e-5 readable, few constants need more. */
static int digits_of(double v)
{
	for (int n = 15; n < 17; n++) {
		char buf[40];
		snprintf(buf, sizeof(buf), "%.*g", n, v);
		if (strtod(buf, NULL) == v)
			return n;
	}
	return 17;
}

static json_t *id_json(int64_t id) { return id >= 0 ? json_integer(id) : json_null(); }

/* Keys that one class has and another has not. */
static void type_json(json_t *j, const struct fo_model *m, const char *type)
{
	static const struct {
		const char *type, *class;
	} class[] = { { "llama", "LlamaForCausalLM" },
		      { "mistral", "MistralForCausalLM" },
		      { "qwen2", "Qwen2ForCausalLM" },
		      { "qwen3", "Qwen3ForCausalLM" } };
	bool llama = !strcmp(type, "llama"), mistral = !strcmp(type, "mistral"), qwen3 = !strcmp(type, "qwen3");
	for (size_t i = 0; i < sizeof class / sizeof *class; i++)
		if (!strcmp(type, class[i].type))
			json_object_set_new(j, "architectures", json_pack("[s]", class[i].class));
	json_object_set_new(j, "model_type", json_string(type));
	if (llama || qwen3)
		json_object_set_new(j, "attention_bias", json_boolean(m->attention_bias));
	if (llama)
		json_object_set_new(j, "mlp_bias", json_boolean(m->mlp_bias));
	if (llama)
		return;
	json_object_set_new(j, "sliding_window", m->sliding_window ? json_integer(m->sliding_window) : json_null());
	if (mistral)
		return;
	json_object_set_new(j, "use_sliding_window", json_boolean(m->sliding_window > 0));
	json_object_set_new(j, "max_window_layers", json_integer(m->sliding_window ? 0 : m->layers));
}

char *fo_model_config_json(struct fo_arena *a, const struct fo_model *m, const char *dtype, int64_t bos, int64_t eos)
{
	const struct fo_rope *r = &m->rope;
	const double real[] = { m->norm_eps, r->theta, r->factor, r->low_freq_factor, r->high_freq_factor };
	int digits = 15;
	for (size_t i = 0; i < sizeof(real) / sizeof(real[0]); i++)
		digits = (int)fo_max(digits, digits_of(real[i]));
	json_t *j = json_object();
	const char *type = fo_model_type(m);
	type_json(j, m, type ? type : "llama"); /* a trainable model has one */
	json_object_set_new(j, "bos_token_id", id_json(bos));
	json_object_set_new(j, "eos_token_id", id_json(eos));
	json_object_set_new(j, "attention_dropout", json_real(0));
	json_object_set_new(j, "head_dim", json_integer(m->head_dim));
	json_object_set_new(j, "hidden_act", json_string("silu"));
	json_object_set_new(j, "hidden_size", json_integer(m->hidden));
	json_object_set_new(j, "initializer_range", json_real(0.02)); /* transformers' default for Llama */
	json_object_set_new(j, "intermediate_size", json_integer(m->ffn));
	json_object_set_new(j, "max_position_embeddings", json_integer(m->max_position > 0 ? m->max_position : 2048));
	json_object_set_new(j, "num_attention_heads", json_integer(m->heads));
	json_object_set_new(j, "num_hidden_layers", json_integer(m->layers));
	json_object_set_new(j, "num_key_value_heads", json_integer(m->kv_heads));
	json_object_set_new(j, "rms_norm_eps", json_real(m->norm_eps));
	json_object_set_new(j, "rope_scaling", rope_json(r));
	json_object_set_new(j, "rope_theta", json_real(r->theta));
	json_object_set_new(j, "tie_word_embeddings", json_boolean(m->tied));
	json_object_set_new(j, "torch_dtype", json_string(dtype));
	json_object_set_new(j, "vocab_size", json_integer(m->vocab));
	char *text = json_dumps(j, (size_t)JSON_INDENT(2) | (size_t)JSON_REAL_PRECISION(digits));
	json_decref(j);
	char *out = fo_arena_printf(a, "%s\n", text ? text : "{}");
	free(text);
	return out;
}
