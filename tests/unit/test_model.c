/* Presets, parameter and FLOP accounting against published figures, config.json parsing, rotary frequencies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "model/model.h"

static struct fo_model preset(const char *name)
{
	struct fo_model m;
	assert_int_equal(fo_model_load(name, &m), FO_OK);
	return m;
}

static void near_relative(double got, double expected, double tolerance)
{
	if (!(fabs(got - expected) <= tolerance * fabs(expected)))
		fail_msg("got %.17g, expected %.17g within %g", got, expected, tolerance);
}

/* Published counts. Exact ones are the parameter counts that the models' pages on Hugging Face show (sum over the
 * safetensors header), except where a paper is named; tied heads are stored once. */
static void test_parameter_counts(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		double total;
	} exact[] = {
		{ "llama-3.1-8b", 8030261248 },
		{ "llama-3.1-70b", 70553706496 },
		{ "llama-3.1-405b", 405853388800 },
		{ "llama-3.3-70b", 70553706496 },
		{ "llama-3.2-1b", 1235814400 },
		{ "llama-3.2-3b", 3212749824 },
		{ "llama-3-8b", 8030261248 },
		{ "llama-3-70b", 70553706496 },
		{ "llama-2-7b", 6738415616 },
		{ "llama-2-13b", 13015864320 },
		{ "llama-2-70b", 68976648192 },
		{ "tinyllama-1.1b", 1100048384 },
		{ "smollm-135m", 134515008 },
		{ "smollm-360m", 361821120 },
		{ "smollm-1.7b", 1711376384 },
		{ "mistral-7b", 7241732096 },
		{ "qwen2.5-0.5b", 494032768 },
		{ "mistral-7b-v0.3", 7248023552 },
		{ "qwen2.5-1.5b", 1543714304 },
		{ "qwen2.5-7b", 7615616512 },
		{ "qwen3-0.6b", 596049920 },
		{ "qwen3-4b", 4022468096 },
		{ "qwen3-8b", 8190735360 },
		{ "qwen3-14b", 14768307200 },
		{ "qwen3-32b", 32762123264 },
		{ "qwen3-30b-a3b", 30532122624 },
		{ "mixtral-8x7b", 46702792704 },
		{ "mixtral-8x22b", 140620634112 },
		{ "gpt2", 124439808 },
		{ "gpt2-medium", 354823168 },
		{ "gpt2-large", 774030080 },
		{ "gpt2-xl", 1557611200 },
		{ "gpt-neox-20b", 20554567680 }, /* GPT-NeoX-20B (2022), section 2.1: 20,554,567,680 */
		{ "flatout-134m", 134105856 }, /* 2 x 32000 x 768 + 12 x (4 x 768^2 + 3 x 768 x 2048 + 2 x 768) + 768 */
		{ "flatout-1b",
		  999368704 }, /* 2 x 32000 x 2048 + 18 x (4 x 2048^2 + 3 x 2048 x 5120 + 2 x 2048) + 2048 */
		/* 2 x 202048 x 5120 + 48 x (5120 x 56 x 128 + 40 x 128 x 5120 + 17 x 3 x 5120 x 8192 + 16 x 5120 +
		 * 2 x 5120) + 5120; the 109 billion of its name count what sees images, too */
		{ "llama-4-scout", 107769861120 },
		/* 671,026,419,200 with the score-correction biases of 58 layers x 256 experts, which no gradient
		 * moves and which are not counted here. */
		{ "deepseek-v3", 671026419200.0 - 58 * 256 },
	};
	static const struct {
		const char *name;
		double total, tolerance;
	} rounded[] = {
		{ "gpt3-175b", 174.6e9, 1e-4 },  /* GPT-3 (2020), table D.1: 174,600 million */
		{ "gpt3-1.3b", 1.3e9, 2e-2 },    /* table 2.1 */
		{ "palm-540b", 540.35e9, 2e-5 }, /* PaLM (2022), table 1 */
	};
	int n = (int)(sizeof(exact) / sizeof(exact[0])), k = (int)(sizeof(rounded) / sizeof(rounded[0]));
	for (int i = 0; i < n; i++) {
		struct fo_model m = preset(exact[i].name);
		near_relative(fo_model_params(&m).total, exact[i].total, 0);
	}
	for (int i = 0; i < k; i++) {
		struct fo_model m = preset(rounded[i].name);
		near_relative(fo_model_params(&m).total, rounded[i].total, rounded[i].tolerance);
	}
	assert_int_equal(n + k, fo_model_preset_count()); /* no preset goes unchecked */
	assert_true(fo_model_preset_count() >= 20);
}

/* Weights that one token uses, as the publishers state them. */
static void test_active_counts(void **state)
{
	(void)state;
	struct fo_model m = preset("mixtral-8x7b");
	near_relative(fo_model_params(&m).active, 12.9e9,
		      0.005); /* Mixtral of Experts (2024): 13B; announcement: 12.9B */
	m = preset("mixtral-8x22b");
	near_relative(fo_model_params(&m).active, 39e9, 0.005); /* announcement: 39B of 141B */
	m = preset("deepseek-v3");
	near_relative(fo_model_params(&m).active, 37552282624.0, 0); /* report: 37B */
	m = preset("qwen3-30b-a3b");
	near_relative(fo_model_params(&m).active, 3.3e9, 0.02); /* model card: 3.3B of 30.5B */
	m = preset("llama-3.1-8b");
	near_relative(fo_model_params(&m).active, 8030261248.0, 0);
}

static double sum_components(const struct fo_flop *f, bool causal)
{
	double sum = 0;
	for (int i = 0; i < FO_COMP_COUNT; i++)
		sum += causal ? f->component[i].forward_causal + f->component[i].backward_causal
			      : f->component[i].forward + f->component[i].backward;
	return sum;
}

/* For every preset: parts add up, exactly, to the totals and the rules. */
static void test_sums(void **state)
{
	(void)state;
	for (int i = 0; i < fo_model_preset_count(); i++) {
		const struct fo_model *m = fo_model_preset(i);
		assert_int_equal(fo_model_check(m), FO_OK);
		assert_true(strlen(fo_model_preset_source(i)) > 10);
		struct fo_params p = fo_model_params(m);
		near_relative(p.embedding + (m->tied ? 0 : p.head) + p.norm + p.attention + p.ffn, p.total, 0);
		near_relative(p.active - p.embedding + (m->tied ? p.head : 0), p.matmul, 0);
		for (int64_t seq = 512; seq <= 65536; seq *= 4) {
			struct fo_flop f = fo_model_flop_per_token(m, seq);
			near_relative(f.mfu_6n, 6 * p.matmul, 0);
			near_relative(sum_components(&f, false), f.mfu, 1e-15);
			near_relative(sum_components(&f, true), f.mfu_causal, 1e-15);
			assert_true(f.mfu_6n < f.mfu_causal && f.mfu_causal < f.mfu);
		}
	}
}

/* The worked example of the white paper's appendix (docs/seed-figures.md, document 001). */
static void test_llama_8b(void **state)
{
	(void)state;
	struct fo_model m = preset("llama-3.1-8b");
	struct fo_params p = fo_model_params(&m);
	struct fo_flop f = fo_model_flop_per_token(&m, 8192);
	near_relative(p.embedding, 128256.0 * 4096, 0);
	near_relative(f.mfu, 6 * (p.total - p.embedding) + 12.0 * 32 * 32 * 128 * 8192, 0);
	near_relative(f.mfu, 57914449920.0, 0);
	near_relative(f.mfu_causal, 45029548032.0 + 6442450944.0, 0);
	near_relative(f.mfu * 21111 / 2250e12, 0.5434, 1e-4);
	near_relative(f.mfu / f.mfu_causal, 1.125, 1e-3); /* the design's ratios of full to causal, 8k and 32k */
	f = fo_model_flop_per_token(&m, 32768);
	near_relative(f.mfu / f.mfu_causal, 1.364, 1e-3);
}

/* Published throughputs under the publishers' own rules. */
static void test_published_mfu(void **state)
{
	(void)state;
	/* PaLM (2022), appendix B: 238.3k tokens/s on 6,144 TPU v4 (275 TFLOP/s): 46.2 %, 45.7 % without attention. */
	struct fo_model m = preset("palm-540b");
	struct fo_flop f = fo_model_flop_per_token(&m, 2048);
	near_relative(238.3e3 * f.mfu / (6144 * 275e12), 0.462, 1e-3);
	near_relative(238.3e3 * f.mfu_6n / (6144 * 275e12), 0.457, 1e-3);
	/* The tutorial's example: 8 x 4096 tokens in 1.2 s, 7e9 weights, 8 x H100, 6N (document 003). */
	near_relative(6 * 7e9 * 27307 / (8 * 989e12), 0.145, 1e-3);
	/* GPT-3 (2020), table D.1: 3.14e23 for 300e9 tokens by 6N; the attention products come on top. */
	m = preset("gpt3-175b");
	near_relative(6 * fo_model_params(&m).total * 300e9, 3.14e23, 2e-3);
	f = fo_model_flop_per_token(&m, 2048);
	near_relative(f.mfu_6n * 300e9, 3.142e23, 1e-3);
	near_relative(f.mfu * 300e9, 3.229e23, 1e-3);
	/* Megatron-Bridge (2026-06), performance table, 405B at 8192 on 256 GB300: 2,646 TFLOP/s and 1,048 tokens/s per
	 * GPU under Megatron's formula: causal, head in, lookup out. */
	m = preset("llama-3.1-405b");
	f = fo_model_flop_per_token(&m, 8192);
	near_relative(f.mfu_causal, 2646e12 / 1048, 1e-3);
	/* DeepSeek-V3 (2024), table 1 and section 4: 14.8e12 tokens of 4,096 in 2.664e6 H800 hours (989 TFLOP/s). */
	m = preset("deepseek-v3");
	f = fo_model_flop_per_token(&m, 4096);
	double tokens_per_second = 14.8e12 / (2.664e6 * 3600);
	near_relative(tokens_per_second * f.mfu / 989e12, 0.439, 2e-3);
	near_relative(tokens_per_second * f.mfu_causal / 989e12, 0.391, 2e-3);
	near_relative(tokens_per_second * f.mfu_6n / 989e12, 0.343, 2e-3);
}

/* The conventions one by one, each against arithmetic written out by hand. */
static void test_conventions(void **state)
{
	(void)state;
	struct fo_model m = preset("llama-3.2-1b"); /* tied: the head multiplies once, the lookup never */
	struct fo_params p = fo_model_params(&m);
	near_relative(p.matmul, p.total, 0);
	near_relative(p.head, p.embedding, 0);
	m = preset("gpt2"); /* positions and lookup out, head in, biases and both vectors of a norm in */
	p = fo_model_params(&m);
	near_relative(p.matmul, p.total - 1024 * 768, 0);
	near_relative(p.norm, 25 * 2 * 768, 0);
	near_relative(p.component[FO_COMP_QKV], 12 * (768.0 * 2304 + 2304), 0);
	near_relative(p.component[FO_COMP_FFN], 12 * (2 * 768.0 * 3072 + 3072 + 768), 0);
	m = preset("mixtral-8x7b"); /* the router is a matrix product; only active experts multiply */
	p = fo_model_params(&m);
	near_relative(p.component[FO_COMP_ROUTER], 32 * 4096.0 * 8, 0);
	near_relative(p.component_active[FO_COMP_FFN], 32 * 2 * 3 * 4096.0 * 14336, 0);
	m = preset("deepseek-v3"); /* latent attention: 192-wide scores, 128-wide values */
	near_relative(fo_model_flop_per_token(&m, 4096).component[FO_COMP_SCORES].forward,
		      2.0 * 61 * 128 * (192 + 128) * 4096, 0);
	m = preset("mistral-7b"); /* window 4096: below it as without, beyond it a query sees 4096 keys */
	near_relative(fo_model_flop_per_token(&m, 4096).component[FO_COMP_SCORES].forward, 4.0 * 32 * 4096 * 4096, 0);
	struct fo_flop f = fo_model_flop_per_token(&m, 16384);
	near_relative(f.component[FO_COMP_SCORES].forward, 4.0 * 32 * 4096 * 4096, 0);
	near_relative(f.component[FO_COMP_SCORES].forward_causal, 4.0 * 32 * 4096 * (4096 - 4096.0 * 4096 / 32768), 0);
	f = fo_model_flop_per_token(&m, 2048);
	near_relative(f.component[FO_COMP_SCORES].forward_causal, 4.0 * 32 * 4096 * 1024, 0);
}

/* DeepSeek-V3's module against what is published of it, a dense model's against arithmetic written out by hand. */
static void test_mtp(void **state)
{
	(void)state;
	struct fo_model m = preset("deepseek-v3"), with = m;
	assert_int_equal(m.mtp_modules, 1);
	assert_int_equal(m.mtp_counted, 0); /* without being asked for nothing changes */
	assert_int_equal(fo_model_count_mtp(&with), FO_OK);
	assert_int_equal(fo_model_check(&with), FO_OK);
	struct fo_params p = fo_model_params(&m), q = fo_model_params(&with);
	/* README_WEIGHTS.md: 11.5B weights of its own, 2.4B active with embedding and head; both without the
	 * projection. The files hold embedding and head a second time: 685B on Hugging Face, of which 3,918,786,560
	 * are in bf16 and 680,571,043,840 in fp8, where the main model has 671B. */
	double own = q.total - p.total, projection = 2.0 * 7168 * 7168, copies = p.embedding + p.head;
	near_relative(q.component[FO_COMP_MTP], projection, 0);
	near_relative(own - projection, 11.5e9, 1e-3);
	near_relative(q.active - p.active - projection - (own - projection - 257 * 3 * 7168 * 2048.0),
		      9 * 3 * 7168 * 2048.0, 0);
	near_relative(q.active - p.active - projection + copies, 2.4e9, 0.02);
	near_relative(q.total + copies, 3918786560.0 + 680571043840.0, 0);
	near_relative(q.matmul - p.matmul, q.active - p.active + p.head, 0);
	struct fo_flop f = fo_model_flop_per_token(&m, 4096), g = fo_model_flop_per_token(&with, 4096);
	near_relative(g.mfu - f.mfu, 6 * (q.matmul - p.matmul) + 6.0 * 128 * (192 + 128) * 4096, 0);
	near_relative(g.mfu_causal - f.mfu_causal, 6 * (q.matmul - p.matmul) + 3.0 * 128 * (192 + 128) * 4096, 0);
	near_relative(g.component[FO_COMP_HEAD].forward, 2 * f.component[FO_COMP_HEAD].forward, 0);
	/* The projection stays in bf16, as router, head and attention do. */
	near_relative(g.layers,
		      3 * (g.component[FO_COMP_QKV].forward + g.component[FO_COMP_OUTPUT].forward +
			   g.component[FO_COMP_FFN].forward),
		      0);
	near_relative(sum_components(&g, false), g.mfu, 1e-15);
	near_relative(sum_components(&g, true), g.mfu_causal, 1e-15);
	/* Two modules behind a dense, tied Llama: what Megatron-LM adds, 6 (2 D^2 + 3 D + V D) each, and two layers. */
	m = with = preset("llama-3.2-1b");
	assert_int_equal(fo_model_count_mtp(&with), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "has no multi-token-prediction modules"));
	with.mtp_modules = 2;
	assert_int_equal(fo_model_count_mtp(&with), FO_OK);
	assert_int_equal(fo_model_trainable(&with), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "multi-token-prediction modules"));
	double layer = 2048.0 * (2048 + 2 * 512) + 2048.0 * 2048 + 3 * 2048.0 * 8192 + 2 * 2048;
	double module = layer + 2 * 2048.0 * 2048 + 3 * 2048;
	near_relative(fo_model_params(&with).total - fo_model_params(&m).total, 2 * module, 0);
	near_relative(fo_model_flop_per_token(&with, 8192).mfu_6n - fo_model_flop_per_token(&m, 8192).mfu_6n,
		      6 * 2 * (module + 128256 * 2048.0), 0);
	near_relative(fo_model_flop_per_token(&with, 8192).mfu - fo_model_flop_per_token(&m, 8192).mfu,
		      6 * 2 * (module + 128256 * 2048.0) + 12 * 2 * 2048.0 * 8192, 0);
	with.mtp_counted = 3;
	assert_int_equal(fo_model_check(&with), FO_EARG);
}

static void test_trainable(void **state)
{
	(void)state;
	static const char *const yes[] = { "llama-3.1-8b",   "llama-3.2-1b", "llama-2-70b",
					   "tinyllama-1.1b", "smollm-135m",  "flatout-134m",
					   "qwen2.5-7b",     "qwen3-8b",     "mistral-7b" };
	static const struct {
		const char *name, *says;
	} no[] = {
		{ "mixtral-8x7b", "it has mixture-of-experts layers" },
		{ "deepseek-v3",
		  "it has mixture-of-experts layers, multi-head latent attention, rotary positions of kind 'yarn'" },
		{ "gpt2", "it has learned positions, LayerNorm with shift, a feed-forward block without gate" },
		{ "palm-540b", "rotary positions of kind 'PaLM's'" },
	};
	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		struct fo_model m = preset(yes[i]);
		assert_int_equal(fo_model_trainable(&m), FO_OK);
	}
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		struct fo_model m = preset(no[i].name);
		assert_int_equal(fo_model_trainable(&m), FO_EARG);
		if (!strstr(fo_err_text(), no[i].says))
			fail_msg("%s: '%s'", no[i].name, fo_err_text());
	}
}

static bool same_model(const struct fo_model *a, const struct fo_model *b)
{
	const struct fo_rope *x = &a->rope, *y = &b->rope;
	return a->layers == b->layers && a->hidden == b->hidden && a->heads == b->heads && a->kv_heads == b->kv_heads &&
	       a->head_dim == b->head_dim && a->ffn == b->ffn && a->vocab == b->vocab &&
	       a->max_position == b->max_position && a->tied == b->tied && a->gated == b->gated &&
	       a->norm_eps == b->norm_eps && a->family == b->family && a->attention_bias == b->attention_bias &&
	       a->output_bias == b->output_bias && a->mlp_bias == b->mlp_bias && a->qk_norm == b->qk_norm &&
	       a->sliding_window == b->sliding_window && x->theta == y->theta && x->type == y->type &&
	       (x->type == FO_ROPE_DEFAULT || x->factor == y->factor) &&
	       (x->type != FO_ROPE_LLAMA3 ||
		(x->low_freq_factor == y->low_freq_factor && x->high_freq_factor == y->high_freq_factor &&
		 x->original_max_position == y->original_max_position));
}

/* Which architecture of transformers a combination belongs to, and that those which belong to none are refused. */
static void test_type(void **state)
{
	(void)state;
	const struct {
		bool qkv, out, mlp, norm;
		int64_t window;
		const char *type;
	} c[] = {
		{ 0, 0, 0, 0, 0, "llama" },  { 1, 1, 0, 0, 0, "llama" },    { 0, 0, 1, 0, 0, "llama" },
		{ 1, 1, 1, 0, 0, "llama" },  { 0, 0, 0, 0, 64, "mistral" }, { 1, 0, 0, 0, 0, "qwen2" },
		{ 1, 0, 0, 0, 64, "qwen2" }, { 0, 0, 0, 1, 0, "qwen3" },    { 1, 1, 0, 1, 64, "qwen3" },
		{ 0, 1, 0, 0, 0, NULL },     { 1, 0, 1, 0, 0, NULL },       { 1, 1, 0, 0, 64, NULL },
		{ 0, 0, 1, 0, 64, NULL },    { 0, 0, 1, 1, 0, NULL },       { 1, 0, 0, 1, 0, NULL },
	};
	struct fo_arena a = { 0 };
	for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
		struct fo_model m = preset("llama-3-8b"), back;
		m.attention_bias = c[i].qkv, m.output_bias = c[i].out, m.mlp_bias = c[i].mlp, m.qk_norm = c[i].norm;
		m.sliding_window = c[i].window;
		assert_int_equal(fo_model_trainable(&m), c[i].type ? FO_OK : FO_EARG);
		if (!c[i].type) {
			assert_null(fo_model_type(&m));
			continue;
		}
		assert_string_equal(fo_model_type(&m), c[i].type);
		char *text = fo_model_config_json(&a, &m, "float32", 5, -1);
		assert_non_null(strstr(text, "\"bos_token_id\": 5"));
		assert_non_null(strstr(text, "\"eos_token_id\": null"));
		assert_int_equal(fo_model_parse(text, strlen(text), "back", &back), FO_OK);
		assert_string_equal(fo_model_type(&back), c[i].type);
		assert_true(same_model(&m, &back));
	}
	fo_arena_fini(&a);
}

/* What we write is what we read, for every trainable preset; odd constants survive. */
static void test_round_trip(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	int n = 0;
	for (int i = 0; i < fo_model_preset_count(); i++) {
		struct fo_model m = *fo_model_preset(i), back;
		if (fo_model_trainable(&m) != FO_OK)
			continue;
		if (n++ == 0)
			m.norm_eps = 0.1 + 0.2; /* needs 17 digits */
		char *text = fo_model_config_json(&a, &m, "bfloat16", 1, 2);
		assert_int_equal(fo_model_parse(text, strlen(text), "round-trip", &back), FO_OK);
		assert_true(same_model(&m, &back));
	}
	assert_true(n >= 20);
	struct fo_model m = preset("llama-3.2-1b");
	char *text = fo_model_config_json(&a, &m, "float32", -1, -1);
	assert_non_null(strstr(text, "\"rms_norm_eps\": 1e-5,"));
	assert_non_null(strstr(text, "\"torch_dtype\": \"float32\""));
	assert_non_null(strstr(text, "\"LlamaForCausalLM\""));
	fo_arena_fini(&a);
}

#define LLAMA(more)                                                                                               \
	"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4, " \
	"\"intermediate_size\": 128, \"vocab_size\": 256" more "}"

#define MISTRAL(more)                                                                                               \
	"{\"model_type\": \"mistral\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4, " \
	"\"num_key_value_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 256" more "}"
#define QWEN2(more)                                                                                               \
	"{\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4, " \
	"\"intermediate_size\": 128, \"vocab_size\": 256, \"sliding_window\": 9" more "}"

static fo_status parse(const char *text, struct fo_model *m)
{
	return fo_model_parse(text, strlen(text), "config.json", m);
}

static void test_parse_windows(void **state)
{
	(void)state;
	struct fo_model m;
	assert_int_equal(parse(MISTRAL(""), &m), FO_OK); /* a file that says nothing means MistralConfig's default */
	assert_int_equal(m.sliding_window, 4096);
	assert_int_equal(parse(MISTRAL(", \"sliding_window\": null"), &m), FO_OK);
	assert_int_equal(m.sliding_window, 0);
	assert_int_equal(parse(MISTRAL(", \"sliding_window\": 7"), &m), FO_OK);
	assert_int_equal(m.sliding_window, 7);
	assert_int_equal(parse(QWEN2(", \"use_sliding_window\": true, \"max_window_layers\": 0"), &m), FO_OK);
	assert_int_equal(m.sliding_window, 9);
	assert_int_equal(parse(QWEN2(", \"use_sliding_window\": true, \"max_window_layers\": 2"), &m), FO_OK);
	assert_int_equal(m.sliding_window, 0);
	assert_int_equal(parse(QWEN2(", \"use_sliding_window\": true, \"layer_types\": [\"sliding_attention\", "
				     "\"sliding_attention\"], \"max_window_layers\": 2"),
			       &m),
			 FO_OK);
	assert_int_equal(m.sliding_window, 9);
	assert_int_equal(parse(QWEN2(", \"layer_types\": [\"full_attention\", \"full_attention\"]"), &m), FO_OK);
	assert_int_equal(m.sliding_window, 0);
}

/* What transformers 5 writes otherwise. */
static void test_spellings(void **state)
{
	(void)state;
	struct fo_model m;
	/* The number of experts in the spelling of transformers 4, of 5, in both, and where they contradict each other.
	 */
#define MOE(experts)                                                                                                   \
	"{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 48, \"hidden_size\": 2048, \"num_attention_heads\": "  \
	"32, "                                                                                                         \
	"\"num_key_value_heads\": 4, \"head_dim\": 128, \"intermediate_size\": 6144, \"moe_intermediate_size\": 768, " \
	"\"num_experts_per_tok\": 8, \"vocab_size\": 151936" experts "}"
	static const char *const moe[] = { MOE(", \"num_experts\": 128"), MOE(", \"num_local_experts\": 128"),
					   MOE(", \"num_experts\": 128, \"num_local_experts\": 128") };
	for (size_t i = 0; i < sizeof moe / sizeof *moe; i++) {
		assert_int_equal(parse(moe[i], &m), FO_OK);
		near_relative(fo_model_params(&m).total, 30532122624.0, 0);
	}
	assert_int_equal(parse(MOE(", \"num_experts\": 128, \"num_local_experts\": 64"), &m), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "num_local_experts is 64 and num_experts is 128"));
	assert_int_equal(parse(MOE(""), &m), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "key 'num_experts' is missing"));
	assert_int_equal(parse("{\"model_type\": \"llama\", \"a\\u0000b\": 1}", &m), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "a key or a text holds the character U+0000"));
}

static void test_parse(void **state)
{
	(void)state;
	struct fo_model m;
	assert_int_equal(parse(LLAMA(""), &m), FO_OK);
	assert_int_equal(m.kv_heads, 4);
	assert_int_equal(m.head_dim, 16);
	assert_true(m.rope.theta == 10000 && m.norm_eps == 1e-6 && !m.tied && m.gated && m.max_position == 0);
	assert_int_equal(parse(LLAMA(", \"head_dim\": 32, \"rope_theta\": 500000, \"rope_scaling\": null"), &m), FO_OK);
	assert_true(m.head_dim == 32 && m.rope.theta == 500000 && m.rope.type == FO_ROPE_DEFAULT);
	/* transformers 5 spelling */
	assert_int_equal(
		parse(LLAMA(", \"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 5e5, \"factor\": 8.0, "
			    "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
			    "\"original_max_position_embeddings\": 8192}"),
		      &m),
		FO_OK);
	assert_true(m.rope.type == FO_ROPE_LLAMA3 && m.rope.theta == 5e5 && m.rope.original_max_position == 8192);
	assert_int_equal(parse(LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}"), &m), FO_OK);
	assert_true(m.rope.type == FO_ROPE_LINEAR && m.rope.factor == 2);
	/* Counted, and refused by name where it would have to run. */
	static const struct {
		const char *text, *name;
	} other[] = {
		{ LLAMA(", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}"), "'yarn'" },
		{ LLAMA(", \"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 2}"), "'dynamic'" },
		{ LLAMA(", \"rope_scaling\": {\"rope_type\": \"longrope\"}"), "'longrope'" },
		{ LLAMA(", \"partial_rotary_factor\": 0.5"), "'part of a head'" },
		{ LLAMA(", \"rope_parameters\": {\"rope_theta\": 1e4, \"partial_rotary_factor\": 0.5}"),
		  "'part of a head'" },
		{ LLAMA(", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e4}}"), "'by kind of layer'" },
	};
	for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
		assert_int_equal(parse(other[i].text, &m), FO_OK);
		assert_int_equal(fo_model_trainable(&m), FO_EARG);
		assert_non_null(strstr(fo_err_text(), other[i].name));
	}
	assert_int_equal(parse(LLAMA(", \"attention_bias\": true"), &m), FO_OK);
	assert_true(m.attention_bias && m.output_bias && !m.mlp_bias);
	assert_int_equal(fo_model_trainable(&m), FO_OK);
	assert_int_equal(parse("{\"model_type\": \"gpt2\", \"n_layer\": 12, \"n_embd\": 768, \"n_head\": 12, "
			       "\"vocab_size\": 50257, \"n_positions\": 1024, \"n_inner\": null}",
			       &m),
			 FO_OK);
	near_relative(fo_model_params(&m).total, 124439808, 0);
	assert_int_equal(parse("{\"model_type\": \"mixtral\", \"num_hidden_layers\": 32, \"hidden_size\": 4096, "
			       "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, "
			       "\"vocab_size\": 32000, \"num_local_experts\": 8, \"num_experts_per_tok\": 2, "
			       "\"sliding_window\": null}",
			       &m),
			 FO_OK);
	near_relative(fo_model_params(&m).total, 46702792704.0, 0);
	assert_int_equal(parse("{\"model_type\": \"qwen2\", \"num_hidden_layers\": 28, \"hidden_size\": 3584, "
			       "\"num_attention_heads\": 28, \"num_key_value_heads\": 4, \"intermediate_size\": 18944, "
			       "\"vocab_size\": 152064, \"sliding_window\": 131072, \"use_sliding_window\": false, "
			       "\"max_window_layers\": 28}",
			       &m),
			 FO_OK);
	near_relative(fo_model_params(&m).total, 7615616512.0, 0);
	assert_int_equal(m.sliding_window, 0);
	assert_int_equal(parse("{\"model_type\": \"qwen3\", \"num_hidden_layers\": 36, \"hidden_size\": 4096, "
			       "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128, "
			       "\"intermediate_size\": 12288, \"vocab_size\": 151936}",
			       &m),
			 FO_OK);
	near_relative(fo_model_params(&m).total, 8190735360.0, 0);
	assert_int_equal(
		parse("{\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 61, \"hidden_size\": 7168, "
		      "\"num_attention_heads\": 128, \"num_key_value_heads\": 128, \"intermediate_size\": 18432, "
		      "\"vocab_size\": 129280, \"moe_intermediate_size\": 2048, \"n_routed_experts\": 256, "
		      "\"n_shared_experts\": 1, \"num_experts_per_tok\": 8, \"first_k_dense_replace\": 3, "
		      "\"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": "
		      "64, \"v_head_dim\": 128, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40}, "
		      "\"num_nextn_predict_layers\": 1}",
		      &m),
		FO_OK);
	near_relative(fo_model_params(&m).active, 37552282624.0, 0);
	assert_int_equal(m.mtp_modules, 1);
	assert_int_equal(m.mtp_counted, 0);
}

/* Each bad text with a part of what must be said about it; the output stays untouched. */
static void test_parse_refuses(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "not JSON" },
		{ "{", "not JSON" },
		{ "[]", "a list, expected an object" },
		{ "{}", "'model_type' is missing" },
		{ "{\"model_type\": 3}", "'model_type' is an integer, expected a text" },
		{ "{\"model_type\": \"mamba\"}", "model_type 'mamba' is not supported: it has state-space layers in "
						 "place of attention; expected one of llama, mistral" },
		{ "{\"model_type\": \"gemma2\"}", "capped logits and GeGLU; expected one of" },
		{ "{\"model_type\": \"new\"}", "model_type 'new' is not supported; expected one of" },
		{ QWEN2(", \"use_sliding_window\": true, \"max_window_layers\": 1"), "1 of 2 have one" },
		{ QWEN2(", \"use_sliding_window\": true, \"layer_types\": [\"sliding_attention\", \"full_attention\"]"),
		  "1 of 2 have one" },
		{ QWEN2(", \"layer_types\": [\"full_attention\"]"), "has 1 entries for 2 layers" },
		{ QWEN2(", \"layer_types\": [\"full_attention\", \"linear\\u001b\"]"),
		  "has 'linear\\x1b' for layer 1" },
		{ QWEN2(", \"layer_types\": 3"), "'layer_types' is an integer" },
		{ "{\"model_type\": \"llama\"}", "'num_hidden_layers' is missing" },
		{ "{\"model_type\": \"llama\", \"model_type\": \"gpt2\"}", "not JSON" },
		{ "{\"model_type\": \"\xff\"}", "not JSON" },
		{ LLAMA(", \"rms_norm_eps\": NaN"), "not JSON" },
		{ LLAMA(", \"rms_norm_eps\": 1e999"), "not JSON" },
		{ LLAMA(", \"head_dim\": 99999999999999999999"), "not JSON" },
		{ LLAMA(", \"rms_norm_eps\": 0"), "epsilon is 0" },
		{ LLAMA(", \"rms_norm_eps\": -1e-5"), "epsilon" },
		{ LLAMA(", \"rms_norm_eps\": \"small\""), "'rms_norm_eps' is a text, expected a number" },
		{ LLAMA(", \"head_dim\": -4"), "'head_dim' is -4" },
		{ LLAMA(", \"head_dim\": 16.0"), "'head_dim' is a real number, expected an integer" },
		{ LLAMA(", \"head_dim\": 15"), "expected an even number" },
		{ LLAMA(", \"head_dim\": 33554432"), "'head_dim' is 33554432" },
		{ LLAMA(", \"num_key_value_heads\": 3"), "cannot share 3 kv heads" },
		{ LLAMA(", \"num_key_value_heads\": 8"), "number of kv heads is 8" },
		{ LLAMA(", \"num_key_value_heads\": [1]"), "is a list" },
		{ LLAMA(", \"rope_theta\": 0"), "rope theta is 0" },
		{ LLAMA(", \"rope_theta\": {}"), "'rope_theta' is an object" },
		{ LLAMA(", \"rope_scaling\": 4"), "'rope_scaling' is an integer" },
		{ LLAMA(", \"rope_scaling\": {\"type\": \"linear\"}"), "'factor' is missing" },
		{ LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}"), "factor is 0.5" },
		{ LLAMA(", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}"),
		  "'original_max_position_embeddings' is missing" },
		{ LLAMA(", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
			"\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}"),
		  "low < high" },
		{ LLAMA(", \"tie_word_embeddings\": 1"), "'tie_word_embeddings' is an integer" },
		{ LLAMA(", \"hidden_act\": \"gelu\""), "hidden_act 'gelu'" },
		{ "{\"model_type\": \"llama\", \"num_hidden_layers\": 10001}",
		  "'num_hidden_layers' is 10001, expected 1 to 10000" },
		{ "{\"model_type\": \"llama\", \"num_hidden_layers\": 0}", "'num_hidden_layers' is 0" },
		{ "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 10, \"n_head\": 3, \"vocab_size\": 9, "
		  "\"n_positions\": 9}",
		  "not a multiple" },
		{ "{\"model_type\": \"mistral\"}", "'num_key_value_heads' is missing" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fo_model m = { .layers = 77 };
		assert_int_equal(parse(bad[i].text, &m), FO_EFORMAT);
		assert_int_equal(m.layers, 77);
		if (!strstr(fo_err_text(), bad[i].says))
			fail_msg("case %zu: got '%s', expected '%s' in it", i, fo_err_text(), bad[i].says);
	}
	/* deep nesting, NUL bytes, a huge text */
	char *deep = malloc(1 << 16);
	memset(deep, '[', 1 << 16);
	struct fo_model m;
	assert_int_equal(fo_model_parse(deep, 1 << 16, "deep", &m), FO_EFORMAT);
	memset(deep, 0, 1 << 16);
	assert_int_equal(fo_model_parse(deep, 1 << 16, "nul", &m), FO_EFORMAT);
	assert_int_equal(fo_model_parse(deep, (size_t)1 << 40, "huge", &m), FO_EFORMAT);
	free(deep);
}

/* Random damage to valid files: any status, no crash; what is accepted can be counted and has sane frequencies. */
static void test_parse_mutations(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char *seed[4];
	struct fo_model m = preset("llama-3.2-1b");
	seed[0] = fo_model_config_json(&a, &m, "bfloat16", 1, 2);
	seed[1] = fo_arena_strdup(
		&a,
		LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"max_position_embeddings\": 2048"));
	seed[2] = fo_arena_strdup(&a, "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"vocab_"
				      "size\":99,\"n_positions\":64}");
	seed[3] = fo_arena_strdup(
		&a,
		"{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":6,\"hidden_size\":64,\"num_attention_heads\":4,"
		"\"num_key_value_heads\":4,\"intermediate_size\":99,\"vocab_size\":99,\"moe_intermediate_size\":9,\"n_"
		"routed_experts\":8,"
		"\"num_experts_per_tok\":2,\"first_k_dense_replace\":3,\"q_lora_rank\":8,\"kv_lora_rank\":8,\"qk_nope_"
		"head_dim\":8,"
		"\"qk_rope_head_dim\":4,\"v_head_dim\":8}");
	int good = 0, bad = 0;
	for (uint64_t k = 0; k < 8000; k++) {
		uint64_t at = 0;
		const char *text = seed[k % 4];
		size_t len = strlen(text), n = k % 8 < 7 ? len : fo_rng_u64(k, at++) % len;
		char *copy = malloc(n ? n : 1);
		memcpy(copy, text, n);
		int hits = 1 + (int)(fo_rng_u64(k, at++) % 3);
		for (int h = 0; n && h < hits; h++) {
			static const char spice[] = "{}[]\",:0019999e-.E\\u\xff\xc3 ntf";
			size_t where = fo_rng_u64(k, at++) % n;
			uint64_t r = fo_rng_u64(k, at++);
			copy[where] = r % 8 == 0 ? (char)(r >> 8) : spice[(r >> 8) % (sizeof(spice) - 1)];
		}
		struct fo_model out;
		if (fo_model_parse(copy, n, "mutation", &out) == FO_OK) {
			good++;
			struct fo_params p = fo_model_params(&out);
			struct fo_flop f = fo_model_flop_per_token(&out, 1 << 20);
			assert_true(isfinite(p.total) && p.total > 0 && isfinite(f.mfu) && f.mfu > 0);
			if (out.rope.theta > 0 && out.head_dim <= 4096) {
				double freq[2048];
				fo_model_rope_frequencies(&out.rope, out.head_dim, freq);
				for (int64_t i = 0; i < out.head_dim / 2; i++)
					assert_true(isfinite(freq[i]));
			}
		} else {
			bad++;
			assert_true(strlen(fo_err_text()) > 5);
		}
		free(copy);
	}
	assert_true(good > 200 && bad > 200);
	fo_arena_fini(&a);
}

static void test_load(void **state)
{
	(void)state;
	struct fo_model m;
	assert_int_equal(fo_model_load("LLaMA-3.1-8B", &m), FO_OK);
	assert_int_equal(m.layers, 32);
	assert_int_equal(fo_model_load("llama-3.1-8", &m), FO_EARG);
	assert_non_null(strstr(fo_err_hint(), "'llama-3.1-8b'"));
	assert_int_equal(fo_model_load("meta-llama/llama-3.1-8b", &m), FO_OK);
	assert_string_equal(m.name, "llama-3.1-8b");
	for (int i = 0; fo_model_hub_id(i); i++) { /* each means a preset, and stands once */
		assert_non_null(fo_model_of_hub(fo_model_hub_id(i)));
		for (int k = 0; k < i; k++)
			assert_string_not_equal(fo_model_hub_id(i), fo_model_hub_id(k));
	}
	assert_int_equal(fo_model_load("meta-llama/Llama-3.1-9B", &m), FO_EARG);
	assert_non_null(strstr(fo_err_hint(), "'llama-3.1-8b'"));
	assert_non_null(strstr(fo_err_hint(), "meta-llama/Llama-3.1-8B on Hugging Face"));
	assert_int_equal(fo_model_load("", &m), FO_EARG);
	assert_int_equal(fo_model_load(NULL, &m), FO_EARG);
	char dir[] = "/tmp/flatout_model_XXXXXX", path[64];
	assert_non_null(mkdtemp(dir));
	assert_int_equal(fo_model_load(dir, &m), FO_EIO);
	snprintf(path, sizeof(path), "%s/config.json", dir);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(LLAMA(""), f);
	fclose(f);
	assert_int_equal(fo_model_load(dir, &m), FO_OK);
	assert_int_equal(m.hidden, 64);
	assert_int_equal(fo_model_load(path, &m), FO_OK);
	unlink(path);
	rmdir(dir);
}

/* The published algorithm in its published form (wavelengths and three cases), against our clamped one. */
static void test_rope(void **state)
{
	(void)state;
	static const double factor[] = { 8, 32 };
	for (int k = 0; k < 2; k++) {
		struct fo_rope r = { 500000, FO_ROPE_LLAMA3, factor[k], 1, 4, 8192, "" };
		double f[64];
		int kept = 0, mixed = 0, stretched = 0;
		fo_model_rope_frequencies(&r, 128, f);
		for (int i = 0; i < 64; i++) {
			double inv = 1 / pow(500000, i / 64.0), wavelength = 2 * M_PI / inv, expected = inv;
			if (wavelength > 8192 / 1.0) {
				expected = inv / factor[k];
				stretched++;
			} else if (wavelength >= 8192 / 4.0) {
				double smooth = (8192 / wavelength - 1) / (4 - 1);
				expected = (1 - smooth) * inv / factor[k] + smooth * inv;
				mixed++;
			} else {
				kept++;
			}
			near_relative(f[i], expected, 1e-14);
		}
		assert_true(kept == 29 && mixed == 6 && stretched == 29);
	}
	struct fo_rope plain = { .theta = 10000, .factor = 1 },
		       linear = { .theta = 10000, .type = FO_ROPE_LINEAR, .factor = 4 };
	double p[32], l[32];
	fo_model_rope_frequencies(&plain, 64, p);
	fo_model_rope_frequencies(&linear, 64, l);
	assert_true(p[0] == 1 && l[0] == 0.25);
	near_relative(p[16], 0.01, 1e-15);
	near_relative(l[16], 0.0025, 1e-15);
}

/* transformers' own fp32 tables for Llama-3.1-8B (tests/golden/README.md): ours, rounded to fp32, within one step. */
static void test_rope_golden(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_SOURCE");
	char path[512];
	float golden[128];
	uint64_t header;
	snprintf(path, sizeof(path), "%s/tests/golden/rope_tables.safetensors", root ? root : ".");
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	/* safetensors: length of the header, the header, the two tables in the order of their names. */
	assert_int_equal(fread(&header, sizeof(header), 1, f), 1);
	assert_true(header < 4096);
	assert_int_equal(fseek(f, (long)header, SEEK_CUR), 0);
	assert_int_equal(fread(golden, sizeof(golden), 1, f), 1);
	fclose(f);
	struct fo_model m = preset("llama-3.1-8b");
	double scaled[64], plain[64];
	struct fo_rope base = { .theta = m.rope.theta, .factor = 1 };
	fo_model_rope_frequencies(&base, 128, plain);
	fo_model_rope_frequencies(&m.rope, 128, scaled);
	for (int i = 0; i < 64; i++) {
		/* transformers computes in fp32: a power, a division and the mix give three roundings. */
		near_relative(plain[i], golden[i], 3 * 0x1p-24);
		near_relative(scaled[i], golden[64 + i], 6 * 0x1p-24);
	}
}

/* Configurations that transformers 4 and 5 wrote for one model parse to the same model. */
static void test_golden_configs(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_SOURCE");
	char path[2][512];
	struct fo_model m[2];
	snprintf(path[0], sizeof(path[0]), "%s/tests/golden/rope_llama3/config.json", root ? root : ".");
	snprintf(path[1], sizeof(path[1]), "%s/tests/golden/rope_llama3/config_v5.json", root ? root : ".");
	for (int i = 0; i < 2; i++)
		assert_int_equal(fo_model_load(path[i], &m[i]), FO_OK);
	assert_true(same_model(&m[0], &m[1]));
	assert_true(m[0].rope.type == FO_ROPE_LLAMA3 && m[0].rope.original_max_position == 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parameter_counts),
		cmocka_unit_test(test_active_counts),
		cmocka_unit_test(test_sums),
		cmocka_unit_test(test_llama_8b),
		cmocka_unit_test(test_published_mfu),
		cmocka_unit_test(test_conventions),
		cmocka_unit_test(test_mtp),
		cmocka_unit_test(test_trainable),
		cmocka_unit_test(test_type),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_parse_windows),
		cmocka_unit_test(test_parse_refuses),
		cmocka_unit_test(test_parse_mutations),
		cmocka_unit_test(test_load),
		cmocka_unit_test(test_rope),
		cmocka_unit_test(test_rope_golden),
		cmocka_unit_test(test_golden_configs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
