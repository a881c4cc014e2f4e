#include "model/model.h"

/* The fields of a trainable model in the order of dumps (docs/formats.md). */
const struct fo_model_field fo_model_field[] = {
#define FIELD(f, said, t)                                 \
	{                                                 \
#f, said, offsetof(struct fo_model, f), t \
	}
	FIELD(layers, "model.layers", 'i'),
	FIELD(hidden, "model.hidden", 'i'),
	FIELD(heads, "model.heads", 'i'),
	FIELD(kv_heads, "model.kv-heads", 'i'),
	FIELD(head_dim, "model.head-dim", 'i'),
	FIELD(ffn, "model.ffn", 'i'),
	FIELD(vocab, "model.vocab", 'i'),
	FIELD(max_position, "max_position_embeddings", 'i'),
	FIELD(tied, "model.tied", 'b'),
	FIELD(gated, "gated feed-forward", 'b'),
	FIELD(attention_bias, "attention_bias", 'b'),
	FIELD(output_bias, "bias of the attention's output", 'b'),
	FIELD(mlp_bias, "mlp_bias", 'b'),
	FIELD(qk_norm, "query and key norms", 'b'),
	FIELD(sliding_window, "sliding_window", 'i'),
	FIELD(norm_eps, "rms_norm_eps", 'd'),
	FIELD(rope.theta, "rope_theta", 'd'),
	FIELD(rope.factor, "rope_scaling.factor", 'd'),
	FIELD(rope.low_freq_factor, "rope_scaling.low_freq_factor", 'd'),
	FIELD(rope.high_freq_factor, "rope_scaling.high_freq_factor", 'd'),
	FIELD(rope.original_max_position, "rope_scaling.original_max_position_embeddings", 'i'),
#undef FIELD
};
const int fo_model_fields = sizeof fo_model_field / sizeof *fo_model_field;
