/* Parameters and closed FLOP formulas: the only place outside tests that holds them. */
#include "model/model.h"

#include "base/str.h"

#include <stdio.h>

const char *const fo_component_name[FO_COMP_COUNT] = {
	[FO_COMP_EMBEDDING] = "embedding", [FO_COMP_QKV] = "qkv",   [FO_COMP_SCORES] = "scores",
	[FO_COMP_OUTPUT] = "output",       [FO_COMP_FFN] = "ffn",   [FO_COMP_ROUTER] = "router",
	[FO_COMP_NORM] = "norm",           [FO_COMP_HEAD] = "head", [FO_COMP_MTP] = "mtp projection",
};

/* Weights of one layer's attention. */
struct attention {
	double qkv, output, norm;
};

/* Multi-head latent attention (DeepSeek-V2 report, section 2.1): queries and keys/values pass through low-rank latents,
 * each with a norm; the rotary part of the key is shared by all heads. */
static struct attention latent_attention(const struct fo_model *m)
{
	double d = (double)m->hidden, h = (double)m->heads, qk = (double)(m->qk_nope_dim + m->qk_rope_dim),
	       v = (double)m->v_dim;
	double ql = (double)m->q_lora, kl = (double)m->kv_lora, down = kl + (double)m->qk_rope_dim;
	struct attention a = { 0 };
	a.qkv = ql > 0 ? d * ql + ql * h * qk : d * h * qk;
	a.qkv += d * down + kl * h * ((double)m->qk_nope_dim + v);
	if (m->attention_bias)
		a.qkv += ql + down; /* transformers puts biases on the down-projections only */
	a.output = h * v * d + (m->output_bias ? d : 0);
	a.norm = ql + kl;
	return a;
}

static struct attention plain_attention(const struct fo_model *m)
{
	double d = (double)m->hidden, q = (double)m->head_dim, out = (double)m->heads * q;
	double in = out + 2 * (double)m->kv_heads * q;
	struct attention a = { 0 };
	a.qkv = d * in + (m->attention_bias ? in : 0);
	a.output = out * d + (m->output_bias ? d : 0);
	a.norm = m->qk_norm ? 2 * q : 0;
	return a;
}

/* Weights of one feed-forward block of width f. */
static double ffn_weights(const struct fo_model *m, int64_t f)
{
	double d = (double)m->hidden, w = (double)f, matrices = m->gated ? 3 : 2;
	double bias = m->mlp_bias ? (matrices - 1) * w + d : 0;
	return matrices * d * w + bias;
}

/* Layers without experts. A module's layer is of the kind of the last one. */
static double dense_layers(const struct fo_model *m)
{
	if (m->experts > 0 && m->dense_layers < m->layers)
		return (double)m->dense_layers;
	return (double)(m->layers + m->mtp_counted);
}

struct fo_params fo_model_params(const struct fo_model *m)
{
	double ahead = (double)m->mtp_counted, l = (double)m->layers + ahead;
	double d = (double)m->hidden, norm = m->norm_bias ? 2 * d : d;
	struct attention a = m->kv_lora > 0 ? latent_attention(m) : plain_attention(m);
	double dense = dense_layers(m), sparse = l - dense;
	double expert = ffn_weights(m, m->expert_ffn), shared = (double)m->shared_experts * expert;

	struct fo_params p = { 0 };
	p.embedding = (double)m->vocab * d + (m->learned_position ? (double)m->max_position * d : 0);
	p.head = (double)m->vocab * d;
	p.component[FO_COMP_EMBEDDING] = p.embedding;
	p.component[FO_COMP_HEAD] = p.head;
	p.component[FO_COMP_QKV] = l * a.qkv;
	p.component[FO_COMP_OUTPUT] = l * a.output;
	p.component[FO_COMP_NORM] = l * (a.norm + 2 * norm) + norm + ahead * 3 * norm;
	p.component[FO_COMP_MTP] = ahead * 2 * d * d;
	p.component[FO_COMP_ROUTER] = sparse * d * (double)m->experts;
	p.component[FO_COMP_FFN] = dense * ffn_weights(m, m->ffn) + sparse * (shared + (double)m->experts * expert);
	for (int i = 0; i < FO_COMP_COUNT; i++)
		p.component_active[i] = p.component[i];
	p.component_active[FO_COMP_FFN] -= sparse * (double)(m->experts - m->experts_active) * expert;

	double active = 0;
	for (int i = 0; i < FO_COMP_COUNT; i++) {
		p.total += p.component[i];
		active += p.component_active[i];
	}
	p.matmul = active - p.embedding + ahead * p.head;
	p.active = m->tied ? active - p.head : active;
	if (m->tied)
		p.total -= p.head;
	p.norm = p.component[FO_COMP_NORM];
	p.attention = p.component[FO_COMP_QKV] + p.component[FO_COMP_OUTPUT];
	p.ffn = p.component[FO_COMP_FFN] + p.component[FO_COMP_ROUTER];
	return p;
}

struct fo_flop fo_model_flop_per_token(const struct fo_model *m, int64_t seq)
{
	struct fo_params p = fo_model_params(m);
	struct fo_flop f = { 0 };
	double s = (double)(seq > 0 ? seq : 1), w = (double)m->sliding_window;
	bool windowed = w > 0 && w < s;
	double keys = s, keys_causal = s / 2;
	if (windowed) {
		keys = w;
		keys_causal = w - w * w / (2 * s);
	}
	/* Per key: a product of length Qqk for the score and one of length Qv for the mix; 2 FLOP per multiply-add. */
	double widths = m->kv_lora > 0 ? (double)(m->qk_nope_dim + m->qk_rope_dim + m->v_dim) : 2 * (double)m->head_dim;
	double per_key = 2 * (double)(m->layers + m->mtp_counted) * (double)m->heads * widths;

	for (int i = 0; i < FO_COMP_COUNT; i++) {
		double forward = 2 * p.component_active[i], causal;
		if (i == FO_COMP_EMBEDDING)
			forward = 0; /* a lookup */
		if (i == FO_COMP_HEAD)
			forward *= (double)(1 + m->mtp_counted);
		causal = forward;
		if (i == FO_COMP_SCORES) {
			forward = per_key * keys;
			causal = per_key * keys_causal;
		}
		f.component[i].forward = forward;
		f.component[i].backward = 2 * forward;
		f.component[i].forward_causal = causal;
		f.component[i].backward_causal = 2 * causal;
	}
	f.layers = 3 * (f.component[FO_COMP_QKV].forward + f.component[FO_COMP_OUTPUT].forward +
			f.component[FO_COMP_FFN].forward);
	f.mfu_6n = 6 * p.matmul;
	f.mfu = f.mfu_6n + 3 * per_key * keys;
	f.mfu_causal = f.mfu_6n + 3 * per_key * keys_causal;
	return f;
}

fo_status fo_model_count_mtp(struct fo_model *m)
{
	if (m->mtp_modules == 0)
		return fo_hint(fo_fail(FO_EARG, "model '%s' has no multi-token-prediction modules to count", m->name),
			       "a config.json states them as num_nextn_predict_layers, a log of Megatron-LM as "
			       "mtp_num_layers");
	m->mtp_counted = m->mtp_modules;
	return FO_OK;
}

const char *fo_model_mtp_text(char buf[48], int64_t modules)
{
	snprintf(buf, 48, "%lld multi-token-prediction module%s", (long long)modules, fo_plural(modules));
	return buf;
}

const char *fo_model_mtp_with(char buf[64], const struct fo_model *m)
{
	char text[48];
	buf[0] = 0;
	if (m->mtp_counted > 0)
		snprintf(buf, 64, " with %s", fo_model_mtp_text(text, m->mtp_counted));
	return buf;
}
