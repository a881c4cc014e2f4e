/* Features of other architectures that the engine lacks, for the sentence that refuses them. Taken from transformers'
 * modeling files; types that nobody looked up there are not listed. */
#include "model/model_int.h"

#include <stddef.h>
#include <string.h>

static const struct {
	const char *type, *what;
} differs[] = {
	{ "apertus", "a feed-forward without gate (xIELU)" },
	{ "bart", "an encoder beside the decoder" },
	{ "bert", "attention to both sides, learned positions and LayerNorm" },
	{ "bitnet", "ternary weights, a squared ReLU and norms inside the blocks" },
	{ "bloom", "LayerNorm, ALiBi positions and fused query_key_value tensors" },
	{ "cohere", "LayerNorm, parallel blocks, interleaved rotary pairs and scaled logits" },
	{ "cohere2", "LayerNorm, parallel blocks, interleaved rotary pairs and scaled logits" },
	{ "distilbert", "attention to both sides, learned positions and LayerNorm" },
	{ "ernie4_5", "interleaved rotary pairs" },
	{ "exaone4", "norms after the blocks, and layers with and without a window" },
	{ "falcon", "LayerNorm, fused query_key_value tensors and a feed-forward without gate" },
	{ "gemma", "norm weights stored as w - 1, scaled embeddings and GeGLU" },
	{ "gemma2", "norm weights stored as w - 1, norms after the blocks, capped logits and GeGLU" },
	{ "gemma3", "norm weights stored as w - 1, norms after the blocks, windows in some layers and GeGLU" },
	{ "gemma3_text", "norm weights stored as w - 1, norms after the blocks, windows in some layers and GeGLU" },
	{ "glm", "fused gate_up_proj tensors and interleaved rotary pairs on part of a head" },
	{ "glm4", "fused gate_up_proj tensors, norms after the blocks and interleaved rotary pairs on part of a head" },
	{ "gpt_neo", "LayerNorm, learned positions and a feed-forward without gate" },
	{ "gpt_neox", "LayerNorm, rotary positions on part of a head and a feed-forward without gate" },
	{ "gpt_oss", "mixture-of-experts layers and attention sinks" },
	{ "gptj", "LayerNorm, parallel blocks and a feed-forward without gate" },
	{ "granite", "multipliers on embeddings, residuals, attention and logits" },
	{ "helium", "interleaved rotary pairs" },
	{ "hunyuan_v1_dense", "query and key norms after the rotation" },
	{ "llama4", "mixture-of-experts layers, chunked attention and layers without positions" },
	{ "llama4_text", "mixture-of-experts layers, chunked attention and layers without positions" },
	{ "llava", "images as input" },
	{ "mamba", "state-space layers in place of attention" },
	{ "mamba2", "state-space layers in place of attention" },
	{ "ministral", "layers with and without a window" },
	{ "mllama", "images as input and cross-attention layers" },
	{ "mpt", "LayerNorm, ALiBi positions and a feed-forward without gate" },
	{ "nemotron", "LayerNorm, a squared ReLU and rotary positions on part of a head" },
	{ "olmo", "LayerNorm without weights" },
	{ "olmo2", "norms after the blocks, and query and key norms over all heads" },
	{ "olmo3", "norms after the blocks, query and key norms over all heads, and windows in some layers" },
	{ "opt", "LayerNorm, learned positions and a feed-forward without gate" },
	{ "phi", "LayerNorm, parallel blocks, rotary positions on part of a head and a feed-forward without gate" },
	{ "phi3", "fused qkv_proj and gate_up_proj tensors" },
	{ "qwen2_moe", "mixture-of-experts layers with a shared expert" },
	{ "qwen2_vl", "images as input" },
	{ "qwen2_5_vl", "images as input" },
	{ "qwen3_next", "linear-attention layers and mixture-of-experts layers" },
	{ "roberta", "attention to both sides, learned positions and LayerNorm" },
	{ "smollm3", "layers without rotary positions" },
	{ "stablelm", "LayerNorm and rotary positions on part of a head" },
	{ "starcoder2", "LayerNorm and a feed-forward without gate" },
	{ "t5", "an encoder beside the decoder and relative positions" },
};

const char *fo_model_type_differs(const char *model_type)
{
	for (size_t i = 0; i < sizeof differs / sizeof *differs; i++)
		if (!strcmp(model_type, differs[i].type))
			return differs[i].what;
	return NULL;
}
