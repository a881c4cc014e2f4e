/* Hugging Face config.json to struct fo_model. The bytes are hostile until fo_model_check() has seen the result. */
#include "base/schema.h"
#include "model/model.h"
#include "model/model_int.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* State of one parse. The first mistake is kept and later reads return at once, so callers need no check per key. */
struct reader {
	json_t *root;
	const char *where;
	fo_status st;
};

static const char *type_name(const json_t *v)
{
	static const char *const name[] = {
		[JSON_OBJECT] = "an object",   [JSON_ARRAY] = "a list",       [JSON_STRING] = "a text",
		[JSON_INTEGER] = "an integer", [JSON_REAL] = "a real number", [JSON_TRUE] = "true",
		[JSON_FALSE] = "false",        [JSON_NULL] = "null",
	};
	return name[json_typeof(v)];
}

/* The value of a key; null counts as absent, as in transformers. */
static const json_t *get(const struct reader *r, const json_t *object, const char *key)
{
	if (r->st != FO_OK)
		return NULL;
	const json_t *v = json_object_get(object, key);
	return v && !json_is_null(v) ? v : NULL;
}

static void missing(struct reader *r, const char *key)
{
	if (r->st == FO_OK)
		r->st = fo_fail(FO_EFORMAT, "'%s': key '%s' is missing", r->where, key);
}

static void wrong_type(struct reader *r, const char *key, const json_t *v, const char *expected)
{
	r->st = fo_fail(FO_EFORMAT, "'%s': key '%s' is %s, expected %s", r->where, key, type_name(v), expected);
}

enum { REQUIRED = -1 }; /* in place of a default: no key of ours may be negative */

static int64_t integer_in(struct reader *r, const json_t *object, const char *key, int64_t dfl, int64_t lo, int64_t hi)
{
	const json_t *v = get(r, object, key);
	if (!v) {
		if (dfl == REQUIRED)
			missing(r, key);
		return dfl == REQUIRED ? lo : dfl;
	}
	if (!json_is_integer(v)) {
		wrong_type(r, key, v, "an integer");
		return lo;
	}
	int64_t n = json_integer_value(v);
	if (n < lo || n > hi) {
		r->st = fo_fail(FO_EFORMAT, "'%s': key '%s' is %lld, expected %lld to %lld", r->where, key,
				(long long)n, (long long)lo, (long long)hi);
		return lo;
	}
	return n;
}

static int64_t integer(struct reader *r, const char *key, int64_t dfl, int64_t lo, int64_t hi)
{
	return integer_in(r, r->root, key, dfl, lo, hi);
}

static double real_in(struct reader *r, const json_t *object, const char *key, double dfl)
{
	const json_t *v = get(r, object, key);
	if (!v)
		return dfl;
	if (!json_is_number(v)) {
		wrong_type(r, key, v, "a number");
		return dfl;
	}
	return json_number_value(v);
}

static bool boolean(struct reader *r, const char *key, bool dfl)
{
	const json_t *v = get(r, r->root, key);
	if (!v)
		return dfl;
	if (!json_is_boolean(v))
		wrong_type(r, key, v, "true or false");
	return json_is_true(v);
}

static const char *text_in(struct reader *r, const json_t *object, const char *key, const char *dfl)
{
	const json_t *v = get(r, object, key);
	if (!v)
		return dfl;
	if (!json_is_string(v)) {
		wrong_type(r, key, v, "a text");
		return dfl;
	}
	return json_string_value(v);
}

static void rope_other(struct fo_rope *rope, const char *what)
{
	rope->type = FO_ROPE_OTHER;
	fo_str_visible(rope->other, sizeof(rope->other), what);
}

/* Rotary parameters by kind of layer (Gemma 3, ModernBERT): an object of objects. */
static bool has_objects(const json_t *o)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)(uintptr_t)o, key, v)
	{
		if (json_is_object(v))
			return true;
	}
	return false;
}

/* Reads both spellings: "rope_theta" beside "rope_scaling" (transformers 4), and "rope_parameters", which holds all
 * (transformers 5). */
static void read_rope(struct reader *r, struct fo_model *m, double theta_dfl)
{
	struct fo_rope *rope = &m->rope;
	*rope = (struct fo_rope){ .theta = real_in(r, r->root, "rope_theta", theta_dfl), .factor = 1 };
	const char *key = "rope_parameters";
	const json_t *o = get(r, r->root, key);
	if (!o)
		o = get(r, r->root, key = "rope_scaling");
	if (real_in(r, r->root, "partial_rotary_factor", 1) != 1)
		rope_other(rope, "part of a head");
	if (!o)
		return;
	if (!json_is_object(o)) {
		wrong_type(r, key, o, "an object");
		return;
	}
	if (has_objects(o)) {
		rope_other(rope, "by kind of layer");
		return;
	}
	if (real_in(r, o, "partial_rotary_factor", 1) != 1)
		rope_other(rope, "part of a head");
	rope->theta = real_in(r, o, "rope_theta", rope->theta);
	const char *type = text_in(r, o, "rope_type", text_in(r, o, "type", "default"));
	if (rope->type == FO_ROPE_OTHER || strcmp(type, "default") == 0)
		return;
	if (strcmp(type, "linear") != 0 && strcmp(type, "llama3") != 0) {
		rope_other(rope, type);
		return;
	}
	rope->type = strcmp(type, "linear") == 0 ? FO_ROPE_LINEAR : FO_ROPE_LLAMA3;
	if (!get(r, o, "factor"))
		missing(r, "factor");
	rope->factor = real_in(r, o, "factor", 1);
	if (rope->type == FO_ROPE_LINEAR)
		return;
	/* Defaults: the Llama 3.1 reference code's constants. */
	rope->low_freq_factor = real_in(r, o, "low_freq_factor", 1);
	rope->high_freq_factor = real_in(r, o, "high_freq_factor", 4);
	rope->original_max_position = integer_in(r, o, "original_max_position_embeddings", REQUIRED, 1,
						 FO_MODEL_MAX_POSITION);
}

static void require_act(struct reader *r, const char *expected)
{
	const char *act = text_in(r, r->root, "hidden_act", expected);
	char shown[64];
	if (r->st == FO_OK && strcmp(act, expected) != 0)
		r->st = fo_fail(FO_EFORMAT, "'%s': hidden_act '%s' is not supported for this model_type, expected '%s'",
				r->where, fo_str_visible(shown, sizeof(shown), act), expected);
}

/* Reads the keys that llama, mistral, qwen2, qwen3 and the mixtures share. Without num_key_value_heads there are as
 * many kv heads as heads. */
static void read_common(struct reader *r, struct fo_model *m, double eps_dfl, double theta_dfl)
{
	m->gated = true;
	m->layers = integer(r, "num_hidden_layers", REQUIRED, 1, FO_MODEL_MAX_LAYERS);
	m->hidden = integer(r, "hidden_size", REQUIRED, 1, FO_MODEL_MAX_DIM);
	m->heads = integer(r, "num_attention_heads", REQUIRED, 1, FO_MODEL_MAX_DIM);
	m->kv_heads = integer(r, "num_key_value_heads", m->heads, 1, FO_MODEL_MAX_DIM);
	m->ffn = integer(r, "intermediate_size", REQUIRED, 1, FO_MODEL_MAX_DIM);
	m->vocab = integer(r, "vocab_size", REQUIRED, 1, FO_MODEL_MAX_DIM);
	m->max_position = integer(r, "max_position_embeddings", 0, 0, FO_MODEL_MAX_POSITION);
	m->tied = boolean(r, "tie_word_embeddings", false);
	m->norm_eps = real_in(r, r->root, "rms_norm_eps", eps_dfl);
	m->mtp_modules = integer(r, "num_nextn_predict_layers", 0, 0, FO_MODEL_MAX_LAYERS);
	m->head_dim = integer(r, "head_dim", 0, 0, FO_MODEL_MAX_DIM);
	if (r->st == FO_OK && m->head_dim == 0) {
		if (m->hidden % m->heads)
			r->st = fo_fail(FO_EFORMAT,
					"'%s': hidden_size %lld is not a multiple of num_attention_heads %lld and no "
					"head_dim is given",
					r->where, (long long)m->hidden, (long long)m->heads);
		m->head_dim = m->hidden / m->heads;
	}
	read_rope(r, m, theta_dfl);
	require_act(r, "silu");
}

static void read_llama(struct reader *r, struct fo_model *m)
{
	read_common(r, m, 1e-6, 10000); /* LlamaConfig's defaults */
	m->attention_bias = m->output_bias = boolean(r, "attention_bias", false);
	m->mlp_bias = boolean(r, "mlp_bias", false);
}

static void read_mistral_window(struct reader *r, struct fo_model *m, int64_t window_dfl)
{
	/* The default is 8 here, not the number of heads: better said than guessed. */
	if (!get(r, r->root, "num_key_value_heads"))
		missing(r, "num_key_value_heads");
	read_common(r, m, 1e-6, 10000);
	/* null says that there is none; a file that says nothing means the default. */
	if (json_object_get(r->root, "sliding_window"))
		window_dfl = 0;
	m->sliding_window = integer(r, "sliding_window", window_dfl, 0, FO_MODEL_MAX_POSITION);
}

static void read_mistral(struct reader *r, struct fo_model *m)
{
	read_mistral_window(r, m, 4096); /* MistralConfig's default */
}

/* How many of the layers have a window: "layer_types" says it layer by layer, else it holds from max_window_layers on.
 */
static int64_t windowed_layers(struct reader *r, const struct fo_model *m)
{
	const json_t *types = get(r, r->root, "layer_types");
	if (!types) {
		int64_t first = integer(r, "max_window_layers", REQUIRED, 0, FO_MODEL_MAX_LAYERS);
		return first < m->layers ? m->layers - first : 0;
	}
	if (!json_is_array(types)) {
		wrong_type(r, "layer_types", types, "a list");
		return 0;
	}
	int64_t n = 0;
	for (size_t i = 0; i < json_array_size(types) && r->st == FO_OK; i++) {
		const char *type = json_string_value(json_array_get(types, i));
		char shown[64];
		if (type && strcmp(type, "sliding_attention") == 0)
			n++;
		else if (!type || strcmp(type, "full_attention") != 0)
			r->st = fo_fail(FO_EFORMAT,
					"'%s': layer_types has '%s' for layer %zu, expected full_attention or "
					"sliding_attention",
					r->where, fo_str_visible(shown, sizeof(shown), type ? type : "(no text)"), i);
	}
	if (r->st == FO_OK && (int64_t)json_array_size(types) != m->layers)
		r->st = fo_fail(FO_EFORMAT, "'%s': layer_types has %zu entries for %lld layers", r->where,
				json_array_size(types), (long long)m->layers);
	return n;
}

/* Qwen's window is off unless asked for. */
static void read_qwen_window(struct reader *r, struct fo_model *m)
{
	bool used = boolean(r, "use_sliding_window", false);
	if (!used && !get(r, r->root, "layer_types"))
		return;
	int64_t n = windowed_layers(r, m);
	if (r->st != FO_OK || n == 0 || !used)
		return;
	int64_t window = integer(r, "sliding_window", REQUIRED, 1, FO_MODEL_MAX_POSITION);
	if (r->st == FO_OK && n < m->layers)
		r->st = fo_fail(
			FO_EFORMAT,
			"'%s': layers with and without a sliding window are mixed (%lld of %lld have one), expected "
			"one kind",
			r->where, (long long)n, (long long)m->layers);
	m->sliding_window = window;
}

static void read_qwen2(struct reader *r, struct fo_model *m)
{
	read_common(r, m, 1e-6, 10000);
	m->attention_bias = true; /* fixed in the code of Qwen2 */
	read_qwen_window(r, m);
}

static void read_qwen3(struct reader *r, struct fo_model *m)
{
	if (!get(r, r->root, "head_dim"))
		missing(r, "head_dim"); /* not hidden / heads in this family */
	read_common(r, m, 1e-6, 10000);
	m->qk_norm = true;
	m->attention_bias = m->output_bias = boolean(r, "attention_bias", false);
	read_qwen_window(r, m);
}

/* Qwen's files of transformers 4 say "num_experts", those of 5 "num_local_experts", as Mixtral's always have. */
static int64_t experts_of(struct reader *r, const char *usual)
{
	const char *const key[] = { "num_local_experts", "num_experts" };
	int64_t n[2];
	bool has[2];
	for (int i = 0; i < 2; i++) {
		has[i] = get(r, r->root, key[i]) != NULL;
		n[i] = has[i] ? integer(r, key[i], REQUIRED, 1, FO_MODEL_MAX_EXPERTS) : 0;
	}
	if (r->st == FO_OK && has[0] && has[1] && n[0] != n[1])
		r->st = fo_fail(FO_EFORMAT,
				"'%s': num_local_experts is %lld and num_experts is %lld, expected one number",
				r->where, (long long)n[0], (long long)n[1]);
	else if (!has[0] && !has[1])
		missing(r, usual);
	return has[0] ? n[0] : n[1];
}

static void read_mixtral(struct reader *r, struct fo_model *m)
{
	read_mistral_window(r, m, 0);
	m->family = FO_FAMILY_MOE;
	m->experts = experts_of(r, "num_local_experts");
	m->experts_active = integer(r, "num_experts_per_tok", REQUIRED, 1, FO_MODEL_MAX_EXPERTS);
	m->expert_ffn = m->ffn;
}

static void read_qwen3_moe(struct reader *r, struct fo_model *m)
{
	read_qwen3(r, m);
	m->family = FO_FAMILY_MOE;
	m->experts = experts_of(r, "num_experts");
	m->experts_active = integer(r, "num_experts_per_tok", REQUIRED, 1, FO_MODEL_MAX_EXPERTS);
	m->expert_ffn = integer(r, "moe_intermediate_size", REQUIRED, 1, FO_MODEL_MAX_DIM);
	const json_t *dense = get(r, r->root, "mlp_only_layers");
	if (r->st == FO_OK &&
	    (integer(r, "decoder_sparse_step", 1, 0, FO_MODEL_MAX_LAYERS) != 1 || json_array_size(dense) > 0))
		r->st = fo_fail(FO_EFORMAT,
				"'%s': dense layers among the expert layers (decoder_sparse_step, mlp_only_layers) are "
				"not supported",
				r->where);
}

static void read_gpt2(struct reader *r, struct fo_model *m)
{
	m->family = FO_FAMILY_GPT;
	m->learned_position = m->norm_bias = m->attention_bias = m->output_bias = m->mlp_bias = true;
	m->layers = integer(r, "n_layer", REQUIRED, 1, FO_MODEL_MAX_LAYERS);
	m->hidden = integer(r, "n_embd", REQUIRED, 1, FO_MODEL_MAX_DIM);
	m->heads = m->kv_heads = integer(r, "n_head", REQUIRED, 1, FO_MODEL_MAX_DIM);
	m->vocab = integer(r, "vocab_size", REQUIRED, 1, FO_MODEL_MAX_DIM);
	m->max_position = integer(r, "n_positions", REQUIRED, 1, FO_MODEL_MAX_POSITION);
	m->ffn = integer(r, "n_inner", 4 * m->hidden, 1, FO_MODEL_MAX_DIM);
	m->tied = boolean(r, "tie_word_embeddings", true);
	m->norm_eps = real_in(r, r->root, "layer_norm_epsilon", 1e-5);
	m->head_dim = m->hidden / m->heads;
	if (r->st == FO_OK && m->hidden % m->heads)
		r->st = fo_fail(FO_EFORMAT, "'%s': n_embd %lld is not a multiple of n_head %lld", r->where,
				(long long)m->hidden, (long long)m->heads);
}

static void read_deepseek(struct reader *r, struct fo_model *m)
{
	m->family = FO_FAMILY_DEEPSEEK;
	m->q_lora = integer(r, "q_lora_rank", 0, 0, FO_MODEL_MAX_DIM);
	m->kv_lora = integer(r, "kv_lora_rank", REQUIRED, 1, FO_MODEL_MAX_DIM);
	m->qk_nope_dim = integer(r, "qk_nope_head_dim", REQUIRED, 1, FO_MODEL_MAX_DIM);
	m->qk_rope_dim = integer(r, "qk_rope_head_dim", REQUIRED, 2, FO_MODEL_MAX_DIM);
	m->v_dim = integer(r, "v_head_dim", REQUIRED, 1, FO_MODEL_MAX_DIM);
	read_common(r, m, 1e-6, 10000);
	m->head_dim = m->qk_nope_dim + m->qk_rope_dim; /* transformers 5 writes the rotary part alone into head_dim */
	m->attention_bias = m->output_bias = boolean(r, "attention_bias", false);
	m->experts = integer(r, "n_routed_experts", REQUIRED, 1, FO_MODEL_MAX_EXPERTS);
	m->experts_active = integer(r, "num_experts_per_tok", REQUIRED, 1, FO_MODEL_MAX_EXPERTS);
	m->shared_experts = integer(r, "n_shared_experts", 0, 0, FO_MODEL_MAX_EXPERTS);
	m->expert_ffn = integer(r, "moe_intermediate_size", REQUIRED, 1, FO_MODEL_MAX_DIM);
	m->dense_layers = integer(r, "first_k_dense_replace", 0, 0, FO_MODEL_MAX_LAYERS);
	if (r->st == FO_OK && integer(r, "moe_layer_freq", 1, 1, FO_MODEL_MAX_LAYERS) != 1)
		r->st = fo_fail(FO_EFORMAT, "'%s': moe_layer_freq other than 1 is not supported", r->where);
}

static const struct {
	const char *type;
	void (*read)(struct reader *r, struct fo_model *m);
} reader_of[] = {
	{ "llama", read_llama },          { "mistral", read_mistral },      { "qwen2", read_qwen2 },
	{ "qwen3", read_qwen3 },          { "mixtral", read_mixtral },      { "qwen3_moe", read_qwen3_moe },
	{ "deepseek_v2", read_deepseek }, { "deepseek_v3", read_deepseek }, { "gpt2", read_gpt2 },
};
enum { READERS = sizeof(reader_of) / sizeof(reader_of[0]) };

static void read_model(struct reader *r, struct fo_model *m)
{
	char shown[64], list[160] = "", what[160];
	const char *type = text_in(r, r->root, "model_type", NULL);
	if (!type) {
		missing(r, "model_type");
		return;
	}
	for (int i = 0; i < READERS; i++) {
		if (strcmp(type, reader_of[i].type) == 0) {
			reader_of[i].read(r, m);
			return;
		}
		size_t n = strlen(list);
		snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "", reader_of[i].type);
	}
	const char *differs = fo_model_type_differs(type);
	what[0] = 0;
	if (differs)
		snprintf(what, sizeof(what), ": it has %s", differs);
	r->st = fo_fail(FO_EFORMAT, "'%s': model_type '%s' is not supported%s; expected one of %s", r->where,
			fo_str_visible(shown, sizeof(shown), type), what, list);
}

fo_status fo_model_parse(const char *json, size_t len, const char *where, struct fo_model *out)
{
	if (len > FO_MODEL_MAX_CONFIG)
		return fo_fail(FO_EFORMAT, "'%s': %zu bytes, expected at most %d", where, len, FO_MODEL_MAX_CONFIG);
	struct reader r = { .where = where };
	FO_TRY(fo_schema_parse(json, len, where, "model's configuration", &r.root));
	struct fo_model m = { .family = FO_FAMILY_LLAMA };
	/* Long paths keep their end, which tells models apart. */
	size_t n = strlen(where), room = sizeof(m.name) - 5;
	fo_str_visible(m.name, sizeof(m.name), n > room ? where + n - room : where);
	if (!json_is_object(r.root))
		r.st = fo_fail(FO_EFORMAT, "'%s': the file holds %s, expected an object", where, type_name(r.root));
	else
		read_model(&r, &m);
	json_decref(r.root);
	if (r.st != FO_OK)
		return r.st;
	if (fo_model_check(&m) != FO_OK)
		return FO_EFORMAT; /* its text names the model, which is `where` */
	*out = m;
	return FO_OK;
}
