/* The smallest Llama that has everything: two layers, grouped queries, a gated feed-forward. */
#ifndef FO_TESTS_SUPPORT_TINY_MODEL_H
#define FO_TESTS_SUPPORT_TINY_MODEL_H

#include "model/model.h"

static inline struct fo_model tiny_model(void)
{
	return (struct fo_model){ .family = FO_FAMILY_LLAMA,
				  .layers = 2,
				  .hidden = 32,
				  .heads = 4,
				  .kv_heads = 2,
				  .head_dim = 8,
				  .ffn = 48,
				  .vocab = 64,
				  .gated = true,
				  .norm_eps = 1e-5,
				  .rope = { .theta = 10000 } };
}

#endif
