/* Published models. Dimensions as in the config.json of the named repository on Hugging Face, or as in the paper. */
#include "model/model.h"

#include <strings.h>

/* Layers, hidden size, heads, kv heads, head dimension, feed-forward width, vocabulary, longest position. */
#define DIMS(l, d, h, k, q, f, v, s)                                                                            \
	.layers = (l), .hidden = (d), .heads = (h), .kv_heads = (k), .head_dim = (q), .ffn = (f), .vocab = (v), \
	.max_position = (s)
/* RMSNorm's epsilon, then DIMS. */
#define LLAMA(id, eps, ...) .name = id, .gated = true, .norm_eps = (eps), DIMS(__VA_ARGS__)
#define GPT(id, ...)                                                                                    \
	.name = id, .family = FO_FAMILY_GPT, .tied = true, .attention_bias = true, .output_bias = true, \
	.mlp_bias = true, .norm_bias = true, .learned_position = true, .norm_eps = 1e-5, DIMS(__VA_ARGS__)
/* Experts, experts of a token, their feed-forward width. */
#define MOE(n, active, width) .family = FO_FAMILY_MOE, .experts = (n), .experts_active = (active), .expert_ffn = (width)
#define THETA(t) .rope = { .theta = (t), .factor = 1 }
/* Rotary scaling of Llama 3.1 (factor 8) and 3.2 (factor 32). */
#define LLAMA3(f)                         \
	.rope = { .theta = 500000,        \
		  .type = FO_ROPE_LLAMA3, \
		  .factor = (f),          \
		  .low_freq_factor = 1,   \
		  .high_freq_factor = 4,  \
		  .original_max_position = 8192 }

static const struct {
	struct fo_model m;
	const char *source;
} preset[] = {
	{ { LLAMA("llama-3.1-8b", 1e-5, 32, 4096, 32, 8, 128, 14336, 128256, 131072), LLAMA3(8) },
	  "meta-llama/Llama-3.1-8B config.json" },
	{ { LLAMA("llama-3.1-70b", 1e-5, 80, 8192, 64, 8, 128, 28672, 128256, 131072), LLAMA3(8) },
	  "meta-llama/Llama-3.1-70B config.json" },
	{ { LLAMA("llama-3.1-405b", 1e-5, 126, 16384, 128, 8, 128, 53248, 128256, 131072), LLAMA3(8) },
	  "meta-llama/Llama-3.1-405B config.json; The Llama 3 Herd of Models (2024), table 3" },
	{ { LLAMA("llama-3.3-70b", 1e-5, 80, 8192, 64, 8, 128, 28672, 128256, 131072), LLAMA3(8) },
	  "meta-llama/Llama-3.3-70B-Instruct config.json" },
	{ { LLAMA("llama-3.2-1b", 1e-5, 16, 2048, 32, 8, 64, 8192, 128256, 131072), LLAMA3(32), .tied = true },
	  "meta-llama/Llama-3.2-1B config.json" },
	{ { LLAMA("llama-3.2-3b", 1e-5, 28, 3072, 24, 8, 128, 8192, 128256, 131072), LLAMA3(32), .tied = true },
	  "meta-llama/Llama-3.2-3B config.json" },
	{ { LLAMA("llama-3-8b", 1e-5, 32, 4096, 32, 8, 128, 14336, 128256, 8192), THETA(500000) },
	  "meta-llama/Meta-Llama-3-8B config.json" },
	{ { LLAMA("llama-3-70b", 1e-5, 80, 8192, 64, 8, 128, 28672, 128256, 8192), THETA(500000) },
	  "meta-llama/Meta-Llama-3-70B config.json" },
	{ { LLAMA("llama-2-7b", 1e-5, 32, 4096, 32, 32, 128, 11008, 32000, 4096), THETA(10000) },
	  "meta-llama/Llama-2-7b-hf config.json" },
	{ { LLAMA("llama-2-13b", 1e-5, 40, 5120, 40, 40, 128, 13824, 32000, 4096), THETA(10000) },
	  "meta-llama/Llama-2-13b-hf config.json" },
	{ { LLAMA("llama-2-70b", 1e-5, 80, 8192, 64, 8, 128, 28672, 32000, 4096), THETA(10000) },
	  "meta-llama/Llama-2-70b-hf config.json" },
	{ { LLAMA("tinyllama-1.1b", 1e-5, 22, 2048, 32, 4, 64, 5632, 32000, 2048), THETA(10000) },
	  "TinyLlama/TinyLlama-1.1B-Chat-v1.0 config.json" },
	{ { LLAMA("smollm-135m", 1e-5, 30, 576, 9, 3, 64, 1536, 49152, 2048), THETA(10000), .tied = true },
	  "HuggingFaceTB/SmolLM-135M config.json" },
	{ { LLAMA("smollm-360m", 1e-5, 32, 960, 15, 5, 64, 2560, 49152, 2048), THETA(10000), .tied = true },
	  "HuggingFaceTB/SmolLM-360M config.json" },
	{ { LLAMA("smollm-1.7b", 1e-5, 24, 2048, 32, 32, 64, 8192, 49152, 2048), THETA(10000), .tied = true },
	  "HuggingFaceTB/SmolLM-1.7B config.json" },
	{ { LLAMA("flatout-134m", 1e-5, 12, 768, 12, 12, 64, 2048, 32000, 2048), THETA(10000) },
	  "this project's reference model for CPU benchmarks" },
	{ { LLAMA("flatout-1b", 1e-5, 18, 2048, 16, 16, 128, 5120, 32000, 2048), THETA(10000) },
	  "this project's model of a billion parameters for 24 GB" },
	{ { LLAMA("mistral-7b", 1e-5, 32, 4096, 32, 8, 128, 14336, 32000, 32768), THETA(10000),
	    .sliding_window = 4096 },
	  "mistralai/Mistral-7B-v0.1 config.json" },
	{ { LLAMA("qwen2.5-0.5b", 1e-6, 24, 896, 14, 2, 64, 4864, 151936, 32768), THETA(1000000), .tied = true,
	    .attention_bias = true },
	  "Qwen/Qwen2.5-0.5B config.json" },
	{ { LLAMA("mistral-7b-v0.3", 1e-5, 32, 4096, 32, 8, 128, 14336, 32768, 32768), THETA(1000000) },
	  "mistralai/Mistral-7B-v0.3 config.json" },
	{ { LLAMA("qwen2.5-1.5b", 1e-6, 28, 1536, 12, 2, 128, 8960, 151936, 131072), THETA(1000000), .tied = true,
	    .attention_bias = true },
	  "Qwen/Qwen2.5-1.5B config.json" },
	{ { LLAMA("qwen2.5-7b", 1e-6, 28, 3584, 28, 4, 128, 18944, 152064, 131072), THETA(1000000),
	    .attention_bias = true },
	  "Qwen/Qwen2.5-7B config.json" },
	{ { LLAMA("qwen3-0.6b", 1e-6, 28, 1024, 16, 8, 128, 3072, 151936, 40960), THETA(1000000), .tied = true,
	    .qk_norm = true },
	  "Qwen/Qwen3-0.6B config.json" },
	{ { LLAMA("qwen3-4b", 1e-6, 36, 2560, 32, 8, 128, 9728, 151936, 40960), THETA(1000000), .tied = true,
	    .qk_norm = true },
	  "Qwen/Qwen3-4B config.json" },
	{ { LLAMA("qwen3-8b", 1e-6, 36, 4096, 32, 8, 128, 12288, 151936, 40960), THETA(1000000), .qk_norm = true },
	  "Qwen/Qwen3-8B config.json" },
	{ { LLAMA("qwen3-14b", 1e-6, 40, 5120, 40, 8, 128, 17408, 151936, 40960), THETA(1000000), .qk_norm = true },
	  "Qwen/Qwen3-14B config.json" },
	{ { LLAMA("qwen3-32b", 1e-6, 64, 5120, 64, 8, 128, 25600, 151936, 40960), THETA(1000000), .qk_norm = true },
	  "Qwen/Qwen3-32B config.json" },
	{ { LLAMA("qwen3-30b-a3b", 1e-6, 48, 2048, 32, 4, 128, 6144, 151936, 40960), THETA(1000000), MOE(128, 8, 768),
	    .qk_norm = true },
	  "Qwen/Qwen3-30B-A3B config.json" },
	{ { LLAMA("mixtral-8x7b", 1e-5, 32, 4096, 32, 8, 128, 14336, 32000, 32768), THETA(1000000), MOE(8, 2, 14336) },
	  "mistralai/Mixtral-8x7B-v0.1 config.json" },
	{ { LLAMA("mixtral-8x22b", 1e-5, 56, 6144, 48, 8, 128, 16384, 32000, 65536), THETA(1000000), MOE(8, 2, 16384) },
	  "mistralai/Mixtral-8x22B-v0.1 config.json" },
	{ { .name = "deepseek-v3",
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
	    .rope = { .theta = 10000, .type = FO_ROPE_OTHER, .factor = 40, .other = "yarn" } },
	  "deepseek-ai/DeepSeek-V3 config.json; DeepSeek-V3 Technical Report (2024), section 4.2" },
	{ { GPT("gpt2", 12, 768, 12, 12, 64, 3072, 50257, 1024) }, "openai-community/gpt2 config.json" },
	{ { GPT("gpt2-medium", 24, 1024, 16, 16, 64, 4096, 50257, 1024) }, "openai-community/gpt2-medium config.json" },
	{ { GPT("gpt2-large", 36, 1280, 20, 20, 64, 5120, 50257, 1024) }, "openai-community/gpt2-large config.json" },
	{ { GPT("gpt2-xl", 48, 1600, 25, 25, 64, 6400, 50257, 1024) }, "openai-community/gpt2-xl config.json" },
	{ { GPT("gpt3-1.3b", 24, 2048, 16, 16, 128, 8192, 50257, 2048) },
	  "Language Models are Few-Shot Learners (2020), table 2.1; 16 heads of 128 (24 in the table, too many)" },
	{ { GPT("gpt3-175b", 96, 12288, 96, 96, 128, 49152, 50257, 2048) },
	  "Language Models are Few-Shot Learners (2020), table 2.1" },
	{ { .name = "gpt-neox-20b",
	    .family = FO_FAMILY_GPT,
	    DIMS(44, 6144, 64, 64, 96, 24576, 50432, 2048),
	    .attention_bias = true,
	    .output_bias = true,
	    .mlp_bias = true,
	    .norm_bias = true,
	    .norm_eps = 1e-5,
	    .rope = { .theta = 10000, .type = FO_ROPE_OTHER, .factor = 1, .other = "part of a head" } },
	  "EleutherAI/gpt-neox-20b config.json" },
	{ { .name = "palm-540b",
	    .family = FO_FAMILY_GPT,
	    DIMS(118, 18432, 48, 1, 256, 73728, 256000, 2048),
	    .tied = true,
	    .gated = true,
	    .norm_eps = 1e-6,
	    .rope = { .theta = 10000, .type = FO_ROPE_OTHER, .factor = 1, .other = "PaLM's" } },
	  "PaLM (2022), table 1 and section 2; its layers have one norm, counted here as two (4e-6 of it)" },
};

const struct fo_model *fo_model_preset_named(const char *name)
{
	for (int i = 0; i < fo_model_preset_count(); i++)
		if (!strcasecmp(name, preset[i].m.name))
			return &preset[i].m;
	return NULL;
}
int fo_model_preset_count(void) { return (int)(sizeof(preset) / sizeof(preset[0])); }
const struct fo_model *fo_model_preset(int i) { return &preset[i].m; }
const char *fo_model_preset_source(int i) { return preset[i].source; }
