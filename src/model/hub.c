/* Names on Hugging Face of models whose config.json is that of a preset, dimension for dimension. Ones that differ in
 * anything that is counted or shown (positions, vocabulary) are left out: their names get the nearest presets as an
 * answer. */
#include "model/model.h"

#include <string.h>
#include <strings.h>

static const struct {
	const char *id, *preset;
} hub[] = {
	{ "meta-llama/Llama-3.1-8B", "llama-3.1-8b" },
	{ "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b" },
	{ "meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b" },
	{ "meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b" },
	{ "meta-llama/Llama-3.1-70B", "llama-3.1-70b" },
	{ "meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b" },
	{ "meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b" },
	{ "meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b" },
	{ "meta-llama/Llama-3.1-405B", "llama-3.1-405b" },
	{ "meta-llama/Llama-3.1-405B-Instruct", "llama-3.1-405b" },
	{ "meta-llama/Meta-Llama-3.1-405B", "llama-3.1-405b" },
	{ "meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b" },
	{ "meta-llama/Llama-3.2-1B", "llama-3.2-1b" },
	{ "meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-1b" },
	{ "meta-llama/Llama-3.2-3B", "llama-3.2-3b" },
	{ "meta-llama/Llama-3.2-3B-Instruct", "llama-3.2-3b" },
	{ "meta-llama/Meta-Llama-3-8B", "llama-3-8b" },
	{ "meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b" },
	{ "meta-llama/Meta-Llama-3-70B", "llama-3-70b" },
	{ "meta-llama/Meta-Llama-3-70B-Instruct", "llama-3-70b" },
	{ "meta-llama/Llama-2-7b-hf", "llama-2-7b" },
	{ "meta-llama/Llama-2-7b-chat-hf", "llama-2-7b" },
	{ "meta-llama/Llama-2-13b-hf", "llama-2-13b" },
	{ "meta-llama/Llama-2-13b-chat-hf", "llama-2-13b" },
	{ "meta-llama/Llama-2-70b-hf", "llama-2-70b" },
	{ "meta-llama/Llama-2-70b-chat-hf", "llama-2-70b" },
	{ "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b" },
	{ "HuggingFaceTB/SmolLM-135M", "smollm-135m" },
	{ "HuggingFaceTB/SmolLM-360M", "smollm-360m" },
	{ "HuggingFaceTB/SmolLM-1.7B", "smollm-1.7b" },
	{ "mistralai/Mistral-7B-v0.1", "mistral-7b" },
	{ "mistralai/Mistral-7B-v0.3", "mistral-7b-v0.3" },
	{ "mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b" },
	{ "mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b" },
	{ "mistralai/Mixtral-8x22B-v0.1", "mixtral-8x22b" },
	{ "Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b" },
	{ "Qwen/Qwen2.5-1.5B", "qwen2.5-1.5b" },
	{ "Qwen/Qwen2.5-7B", "qwen2.5-7b" },
	{ "Qwen/Qwen3-0.6B", "qwen3-0.6b" },
	{ "Qwen/Qwen3-4B", "qwen3-4b" },
	{ "Qwen/Qwen3-8B", "qwen3-8b" },
	{ "Qwen/Qwen3-14B", "qwen3-14b" },
	{ "Qwen/Qwen3-32B", "qwen3-32b" },
	{ "Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b" },
	{ "deepseek-ai/DeepSeek-V3", "deepseek-v3" },
	{ "deepseek-ai/DeepSeek-V3-Base", "deepseek-v3" },
	{ "deepseek-ai/DeepSeek-R1", "deepseek-v3" },
	{ "openai-community/gpt2", "gpt2" },
	{ "openai-community/gpt2-medium", "gpt2-medium" },
	{ "openai-community/gpt2-large", "gpt2-large" },
	{ "openai-community/gpt2-xl", "gpt2-xl" },
	{ "EleutherAI/gpt-neox-20b", "gpt-neox-20b" },
};

int fo_model_hub_count(void) { return (int)(sizeof hub / sizeof *hub); }
const char *fo_model_hub_id(int i) { return hub[i].id; }

const struct fo_model *fo_model_of_hub(const char *name)
{
	static const char *const site[] = { "https://huggingface.co/", "huggingface.co/", "hf://" };
	for (size_t i = 0; i < sizeof site / sizeof *site; i++)
		if (!strncasecmp(name, site[i], strlen(site[i]))) {
			name += strlen(site[i]);
			break;
		}
	for (int i = 0; i < fo_model_hub_count(); i++)
		if (!strcasecmp(name, hub[i].id))
			return fo_model_preset_named(hub[i].preset);
	return NULL;
}
