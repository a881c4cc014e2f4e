/* Models by name: which are the same, and the shapes of those that tables name without them. */
#include "score/score_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *fo_score_lower(struct fo_arena *a, const char *s)
{
	char *copy = fo_arena_strdup(a, s);
	for (char *p = copy; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	return copy;
}
/* Does s have one of the words, separated by '|'? */
bool fo_score_has(const char *s, const char *words)
{
	while (*words) {
		size_t n = strcspn(words, "|");
		char word[48];
		snprintf(word, sizeof word, "%.*s", (int)n, words);
		if (strstr(s, word))
			return true;
		words += n + (words[n] == '|');
	}
	return false;
}

/* The name without what does not make another model: truncations, proxies, releases, spelling. */
const char *fo_score_family(struct fo_arena *a, const char *model)
{
	char *s = fo_arena_strdup(a, fo_score_lower(a, model));
	char *cut = strstr(s, " (");
	if (cut)
		*cut = '\0';
	cut = strstr(s, " proxy");
	if (cut)
		*cut = '\0';
	size_t n = strlen(s), digits = n;
	if (n > 2 && s[n - 1] == 'l') /* "-12l" */
		for (digits = n - 1; digits > 0 && isdigit((unsigned char)s[digits - 1]);)
			digits--;
	if (digits > 0 && digits < n - 1 && s[digits - 1] == '-')
		s[digits - 1] = '\0';
	char *out = fo_arena_alloc(a, strlen(s) + 1), *to = out;
	for (const char *p = s; *p; p++)
		if (*p != '-' && *p != '_' && *p != ' ' && *p != '.')
			*to++ = *p;
	char *one = strstr(out, "llama31"); /* Llama 3.1 has Llama 3's shapes */
	if (one)
		memmove(one + 6, one + 7, strlen(one + 7) + 1);
	return out;
}

static const struct shape {
	const char *words;
	double layers, hidden, heads, kv_heads, head_dim, qkv, value, experts, top_k, expert_ffn, shared, moe_layers,
		ffn, vocab, matrices, score_share;
} shapes[] = {
#define FO_SCORE_MODEL(...) { __VA_ARGS__ },
#include "score/models.def"
#undef FO_SCORE_MODEL
};
/* Latent attention: widths of compressed queries, of keys and values, and of what is rotated; from the same files. */
static const struct {
	const char *words;
	double q_lora, kv_lora, rope;
} latent[] = { { "deepseekv2lite|deepseek16b|moonlight", 0, 512, 64 },
	       { "deepseekv3|deepseek3|deepseekr1|kimik2|kimi|deepseekv2|deepseek2", 1536, 512, 64 } };

static void plain_name(const char *model, char name[96])
{
	size_t n = 0;
	for (; *model && n + 1 < 96; model++)
		if (!strchr("-_ .", *model))
			name[n++] = (char)tolower((unsigned char)*model);
	name[n] = '\0';
}

static void take_latent(const char *name, struct fo_predict_model *m)
{
	for (size_t i = 0; i < sizeof latent / sizeof *latent; i++)
		if (fo_score_has(name, latent[i].words)) {
			m->q_lora = latent[i].q_lora, m->kv_lora = latent[i].kv_lora, m->rope_dim = latent[i].rope;
			return;
		}
}

static const struct shape *shape_named(const char *name)
{
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		if (fo_score_has(name, shapes[i].words))
			return &shapes[i];
	return NULL;
}

bool fo_score_shape(const char *model, struct fo_predict_model *m, double layers)
{
	char name[96];
	plain_name(model, name);
	const struct shape *s = shape_named(name);
	if (!s)
		return false;
	*m = (struct fo_predict_model){ .layers = isnan(layers) ? s->layers : layers,
					.hidden = s->hidden,
					.heads = s->heads,
					.kv_heads = s->kv_heads,
					.head_dim = s->head_dim,
					.qkv_width = s->qkv,
					.value_dim = s->value,
					.experts = s->experts,
					.top_k = s->top_k,
					.expert_ffn = s->expert_ffn,
					.shared_ffn = s->shared,
					.moe_layers = s->moe_layers,
					.ffn = s->ffn,
					.vocab = s->vocab,
					.matrices = s->matrices,
					.score_share = s->score_share };
	take_latent(name, m);
	/* A few layers of a larger model: SimuMax keeps one without experts. */
	if (s->experts > 0)
		m->moe_layers = m->layers < 10 && s->moe_layers < s->layers ? m->layers - 1
									    : s->moe_layers * m->layers / s->layers;
	return true;
}
