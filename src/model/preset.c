/* Published models. Dimensions as in the config.json of the named repository on Hugging Face, or as in the paper. */
#include "model/model.h"

#include <string.h>
#include <strings.h>

/* Layers, hidden size, heads, kv heads, head dimension, feed-forward width, vocabulary, longest position. */
#define DIMS(l, d, h, k, q, f, v, s)                                                                            \
	.layers = (l), .hidden = (d), .heads = (h), .kv_heads = (k), .head_dim = (q), .ffn = (f), .vocab = (v), \
	.max_position = (s)
/* Names in this table and on Hugging Face, RMSNorm's epsilon, rotary theta, then DIMS. */
#define LLAMA_MODEL(id, eps, t, ...) \
	.name = id, .gated = true, .norm_eps = (eps), .rope.theta = (t), .rope.factor = 1, DIMS(__VA_ARGS__)
/* Rotary scaling of Llama 3.1 (factor 8) and 3.2 (factor 32). */
#define LLAMA3_MODEL(id, f, ...)                                                                                       \
	.name = id, .gated = true, .norm_eps = 1e-5, .rope.theta = 500000, .rope.type = FO_ROPE_LLAMA3,                \
	.rope.factor = (f), .rope.low_freq_factor = 1, .rope.high_freq_factor = 4, .rope.original_max_position = 8192, \
	DIMS(__VA_ARGS__)
#define GPT_MODEL(id, ...)                                                                              \
	.name = id, .family = FO_FAMILY_GPT, .tied = true, .attention_bias = true, .output_bias = true, \
	.mlp_bias = true, .norm_bias = true, .learned_position = true, .norm_eps = 1e-5, DIMS(__VA_ARGS__)
#define OTHER_ROPE(f, what) .rope.theta = 10000, .rope.type = FO_ROPE_OTHER, .rope.factor = (f), .rope.other = what
/* Experts, experts of a token, their feed-forward width. */
#define MOE(n, active, width) .family = FO_FAMILY_MOE, .experts = (n), .experts_active = (active), .expert_ffn = (width)

/* Rows: the name here, the name on Hugging Face, what the family's models differ in, then DIMS. */
#define HUB_AND(hub, more) hub, hub " config.json" more
#define HUB(hub) HUB_AND(hub, "")
#define LLAMA(id, hub, theta, tie, ...) \
	HUB(hub), { LLAMA_MODEL(id, 1e-5, theta, __VA_ARGS__), .tied = (tie) }
#define LLAMA3(id, hub, factor, tie, ...) \
	HUB(hub), { LLAMA3_MODEL(id, factor, __VA_ARGS__), .tied = (tie) }
#define QWEN2(id, hub, tie, ...) \
	HUB(hub), { LLAMA_MODEL(id, 1e-6, 1e6, __VA_ARGS__), .tied = (tie), .attention_bias = true }
#define QWEN3(id, hub, tie, ...) \
	HUB(hub), { LLAMA_MODEL(id, 1e-6, 1e6, __VA_ARGS__), .tied = (tie), .qk_norm = true }
#define MIXTRAL(id, hub, width, ...) \
	HUB(hub), { LLAMA_MODEL(id, 1e-5, 1e6, __VA_ARGS__), MOE(8, 2, width) }
#define GPT2(id, ...) \
	HUB("openai-community/" id), { GPT_MODEL(id, __VA_ARGS__) }

static const struct {
	const char *hub; /* its name on Hugging Face; NULL: none */
	const char *source;
	struct fo_model m;
} preset[] = {
	{ LLAMA3("llama-3.1-8b", "meta-llama/Llama-3.1-8B", 8, false, 32, 4096, 32, 8, 128, 14336, 128256, 131072) },
	{ LLAMA3("llama-3.1-70b", "meta-llama/Llama-3.1-70B", 8, false, 80, 8192, 64, 8, 128, 28672, 128256, 131072) },
	{ HUB_AND("meta-llama/Llama-3.1-405B", "; The Llama 3 Herd of Models (2024), table 3"),
	  { LLAMA3_MODEL("llama-3.1-405b", 8, 126, 16384, 128, 8, 128, 53248, 128256, 131072) } },
	{ LLAMA3("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct", 8, false, 80, 8192, 64, 8, 128, 28672, 128256,
		 131072) },
	{ LLAMA3("llama-3.2-1b", "meta-llama/Llama-3.2-1B", 32, true, 16, 2048, 32, 8, 64, 8192, 128256, 131072) },
	{ LLAMA3("llama-3.2-3b", "meta-llama/Llama-3.2-3B", 32, true, 28, 3072, 24, 8, 128, 8192, 128256, 131072) },
	{ LLAMA("llama-3-8b", "meta-llama/Meta-Llama-3-8B", 500000, false, 32, 4096, 32, 8, 128, 14336, 128256, 8192) },
	{ LLAMA("llama-3-70b", "meta-llama/Meta-Llama-3-70B", 500000, false, 80, 8192, 64, 8, 128, 28672, 128256,
		8192) },
	{ LLAMA("llama-2-7b", "meta-llama/Llama-2-7b-hf", 10000, false, 32, 4096, 32, 32, 128, 11008, 32000, 4096) },
	{ LLAMA("llama-2-13b", "meta-llama/Llama-2-13b-hf", 10000, false, 40, 5120, 40, 40, 128, 13824, 32000, 4096) },
	{ LLAMA("llama-2-70b", "meta-llama/Llama-2-70b-hf", 10000, false, 80, 8192, 64, 8, 128, 28672, 32000, 4096) },
	{ LLAMA("tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", 10000, false, 22, 2048, 32, 4, 64, 5632, 32000,
		2048) },
	{ LLAMA("smollm-135m", "HuggingFaceTB/SmolLM-135M", 10000, true, 30, 576, 9, 3, 64, 1536, 49152, 2048) },
	{ LLAMA("smollm-360m", "HuggingFaceTB/SmolLM-360M", 10000, true, 32, 960, 15, 5, 64, 2560, 49152, 2048) },
	{ LLAMA("smollm-1.7b", "HuggingFaceTB/SmolLM-1.7B", 10000, true, 24, 2048, 32, 32, 64, 8192, 49152, 2048) },
	{ NULL,
	  "this project's reference model for CPU benchmarks",
	  { LLAMA_MODEL("flatout-134m", 1e-5, 10000, 12, 768, 12, 12, 64, 2048, 32000, 2048) } },
	{ NULL,
	  "this project's model of a billion parameters for 24 GB",
	  { LLAMA_MODEL("flatout-1b", 1e-5, 10000, 18, 2048, 16, 16, 128, 5120, 32000, 2048) } },
	{ HUB("mistralai/Mistral-7B-v0.1"),
	  { LLAMA_MODEL("mistral-7b", 1e-5, 10000, 32, 4096, 32, 8, 128, 14336, 32000, 32768),
	    .sliding_window = 4096 } },
	{ QWEN2("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", true, 24, 896, 14, 2, 64, 4864, 151936, 32768) },
	{ LLAMA("mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3", 1000000, false, 32, 4096, 32, 8, 128, 14336, 32768,
		32768) },
	{ QWEN2("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B", true, 28, 1536, 12, 2, 128, 8960, 151936, 131072) },
	{ QWEN2("qwen2.5-7b", "Qwen/Qwen2.5-7B", false, 28, 3584, 28, 4, 128, 18944, 152064, 131072) },
	{ QWEN3("qwen3-0.6b", "Qwen/Qwen3-0.6B", true, 28, 1024, 16, 8, 128, 3072, 151936, 40960) },
	{ QWEN3("qwen3-4b", "Qwen/Qwen3-4B", true, 36, 2560, 32, 8, 128, 9728, 151936, 40960) },
	{ QWEN3("qwen3-8b", "Qwen/Qwen3-8B", false, 36, 4096, 32, 8, 128, 12288, 151936, 40960) },
	{ QWEN3("qwen3-14b", "Qwen/Qwen3-14B", false, 40, 5120, 40, 8, 128, 17408, 151936, 40960) },
	{ QWEN3("qwen3-32b", "Qwen/Qwen3-32B", false, 64, 5120, 64, 8, 128, 25600, 151936, 40960) },
	{ HUB("Qwen/Qwen3-30B-A3B"),
	  { LLAMA_MODEL("qwen3-30b-a3b", 1e-6, 1000000, 48, 2048, 32, 4, 128, 6144, 151936, 40960), MOE(128, 8, 768),
	    .qk_norm = true } },
	{ MIXTRAL("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", 14336, 32, 4096, 32, 8, 128, 14336, 32000, 32768) },
	{ MIXTRAL("mixtral-8x22b", "mistralai/Mixtral-8x22B-v0.1", 16384, 56, 6144, 48, 8, 128, 16384, 32000, 65536) },
	{ NULL, /* its config.json is of a model with images; attention here is full, as torchtitan trains it */
	  "torchtitan/models/llama4/__init__.py, flavor 17bx16e (v0.2.2)",
	  { LLAMA3_MODEL("llama-4-scout", 8, 48, 5120, 40, 8, 128, 16384, 202048, 10485760), MOE(16, 1, 8192),
	    .shared_experts = 1 } },
	{ HUB_AND("deepseek-ai/DeepSeek-V3", "; DeepSeek-V3 Technical Report (2024), section 4.2"),
	  { .name = "deepseek-v3",
	    .family = FO_FAMILY_DEEPSEEK,
	    DIMS(61, 7168, 128, 128, 192, 18432, 129280, 163840),
	    .gated = true,
	    .norm_eps = 1e-6,
	    .experts = 256,
	    .experts_active = 8,
	    .shared_experts = 1,
	    .expert_ffn = 2048,
	    .dense_layers = 3,
	    .q_lora = 1536,
	    .kv_lora = 512,
	    .qk_nope_dim = 128,
	    .qk_rope_dim = 64,
	    .v_dim = 128,
	    .mtp_modules = 1,
	    OTHER_ROPE(40, "yarn") } },
	{ GPT2("gpt2", 12, 768, 12, 12, 64, 3072, 50257, 1024) },
	{ GPT2("gpt2-medium", 24, 1024, 16, 16, 64, 4096, 50257, 1024) },
	{ GPT2("gpt2-large", 36, 1280, 20, 20, 64, 5120, 50257, 1024) },
	{ GPT2("gpt2-xl", 48, 1600, 25, 25, 64, 6400, 50257, 1024) },
	{ NULL,
	  "Language Models are Few-Shot Learners (2020), table 2.1; 16 heads of 128 (24 in the table, too many)",
	  { GPT_MODEL("gpt3-1.3b", 24, 2048, 16, 16, 128, 8192, 50257, 2048) } },
	{ NULL,
	  "Language Models are Few-Shot Learners (2020), table 2.1",
	  { GPT_MODEL("gpt3-175b", 96, 12288, 96, 96, 128, 49152, 50257, 2048) } },
	{ HUB("EleutherAI/gpt-neox-20b"),
	  { .name = "gpt-neox-20b",
	    .family = FO_FAMILY_GPT,
	    DIMS(44, 6144, 64, 64, 96, 24576, 50432, 2048),
	    .attention_bias = true,
	    .output_bias = true,
	    .mlp_bias = true,
	    .norm_bias = true,
	    .norm_eps = 1e-5,
	    OTHER_ROPE(1, "part of a head") } },
	{ NULL,
	  "PaLM (2022), table 1 and section 2; its layers have one norm, counted here as two (4e-6 of it)",
	  { .name = "palm-540b",
	    .family = FO_FAMILY_GPT,
	    DIMS(118, 18432, 48, 1, 256, 73728, 256000, 2048),
	    .tied = true,
	    .gated = true,
	    .norm_eps = 1e-6,
	    OTHER_ROPE(1, "PaLM's") } },
};
enum { PRESETS = sizeof preset / sizeof *preset };

/* More names on Hugging Face whose config.json is that of a preset, dimension for dimension. Ones that differ in
 * anything that is counted or shown (positions, vocabulary) are left out: their names get the nearest presets as an
 * answer. */
static const struct {
	const char *id, *preset;
} more_hub[] = {
	{ "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b" },
	{ "meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b" },
	{ "meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b" },
	{ "meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b" },
	{ "meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b" },
	{ "meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b" },
	{ "meta-llama/Llama-3.1-405B-Instruct", "llama-3.1-405b" },
	{ "meta-llama/Meta-Llama-3.1-405B", "llama-3.1-405b" },
	{ "meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-1b" },
	{ "meta-llama/Llama-3.2-3B-Instruct", "llama-3.2-3b" },
	{ "meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b" },
	{ "meta-llama/Meta-Llama-3-70B-Instruct", "llama-3-70b" },
	{ "meta-llama/Llama-2-7b-chat-hf", "llama-2-7b" },
	{ "meta-llama/Llama-2-13b-chat-hf", "llama-2-13b" },
	{ "meta-llama/Llama-2-70b-chat-hf", "llama-2-70b" },
	{ "mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b" },
	{ "deepseek-ai/DeepSeek-V3-Base", "deepseek-v3" },
	{ "deepseek-ai/DeepSeek-R1", "deepseek-v3" },
};
enum { MORE_HUB = sizeof more_hub / sizeof *more_hub };

int fo_model_preset_count(void) { return PRESETS; }
const struct fo_model *fo_model_preset(int i) { return &preset[i].m; }
const char *fo_model_preset_source(int i) { return preset[i].source; }

const struct fo_model *fo_model_preset_named(const char *name)
{
	for (int i = 0; i < PRESETS; i++)
		if (!strcasecmp(name, preset[i].m.name))
			return &preset[i].m;
	return NULL;
}

const char *fo_model_hub_id(int i)
{
	for (int k = 0; k < PRESETS; k++)
		if (preset[k].hub && i-- == 0)
			return preset[k].hub;
	return i < MORE_HUB ? more_hub[i].id : NULL;
}

const struct fo_model *fo_model_of_hub(const char *name)
{
	static const char *const site[] = { "https://huggingface.co/", "huggingface.co/", "hf://" };
	for (size_t i = 0; i < sizeof site / sizeof *site; i++)
		if (!strncasecmp(name, site[i], strlen(site[i]))) {
			name += strlen(site[i]);
			break;
		}
	for (int i = 0; i < PRESETS; i++)
		if (preset[i].hub && !strcasecmp(name, preset[i].hub))
			return &preset[i].m;
	for (int i = 0; i < MORE_HUB; i++)
		if (!strcasecmp(name, more_hub[i].id))
			return fo_model_preset_named(more_hub[i].preset);
	return NULL;
}
