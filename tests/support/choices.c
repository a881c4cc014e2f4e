#include "support/choices.h"
#include "base/rng.h"

#include <stdio.h>

uint64_t choices_seed = 20261121, choices_draws;
int64_t choices_draw(int64_t n) { return (int64_t)(fo_rng_u64(choices_seed, choices_draws++) % (uint64_t)n); }

static struct fo_model model_of(int64_t step)
{
	int64_t kv = 1 + choices_draw(2), heads = kv * (1 + choices_draw(2)), dim = step * (1 + choices_draw(2));
	struct fo_model m = step_model(1 + choices_draw(3), heads * dim, heads, kv, 8 + choices_draw(40),
				       30 + choices_draw(40), choices_draw(2));
	if (choices_draw(3) == 0)
		m.head_dim = 8, m.hidden = 20;
	do { /* what some architecture has together */
		m.attention_bias = choices_draw(2), m.output_bias = choices_draw(2), m.mlp_bias = choices_draw(2);
		m.qk_norm = choices_draw(2);
		m.sliding_window = choices_draw(2) ? 5 : 0;
	} while (fo_model_trainable(&m) != FO_OK);
	return m;
}

struct fo_model choices_model(void) { return model_of(8); }

struct fo_model choices_small_model(void)
{
	struct fo_model m = model_of(4);
	m.ffn = 6 + m.ffn / 2;
	m.vocab = 8 + m.vocab / 2;
	m.rope.type = (enum fo_rope_type)choices_draw(FO_ROPE_OTHER);
	m.rope.factor = 4;
	m.rope.low_freq_factor = 1;
	m.rope.high_freq_factor = 4;
	m.rope.original_max_position = 8;
	return m;
}

const struct choices_pass choices_pass[CHOICES_PASSES] = {
	{ offsetof(struct fo_passes, merge_qkv), { 1 }, 1 },
	{ offsetof(struct fo_passes, merge_gate_up), { 1 }, 1 },
	{ offsetof(struct fo_passes, fuse_loss), { 5, 1, 8, 64 }, 4 },
	{ offsetof(struct fo_passes, fuse_elementwise), { 1 }, 1 },
	{ offsetof(struct fo_passes, recompute),
	  { FO_RECOMPUTE_SELECTIVE, FO_RECOMPUTE_FULL, FO_RECOMPUTE_OUT, FO_RECOMPUTE_QKV | FO_RECOMPUTE_ATTENTION },
	  4 },
	{ offsetof(struct fo_passes, recompute_layers), { 1, 2 }, 2 },
	{ offsetof(struct fo_passes, recompute_rest),
	  { FO_RECOMPUTE_NORM, FO_RECOMPUTE_GATE_UP | FO_RECOMPUTE_SWIGLU },
	  2 },
	{ offsetof(struct fo_passes, fused_optimizer), { 1 }, 1 },
	{ offsetof(struct fo_passes, optimizer_in_backward), { 1 }, 1 },
	{ offsetof(struct fo_passes, attention), { FO_ATTENTION_EAGER }, 1 },
	{ offsetof(struct fo_passes, offload), { 1 }, 1 },
	{ offsetof(struct fo_passes, wgrad_lane), { 1 }, 1 },
	{ offsetof(struct fo_passes, fuse_rope), { 1 }, 1 },
};
enum { ATTENTION = CHOICES_PASSES - 4 };

struct fo_passes choices_passes(const struct fo_model *m)
{
	struct fo_passes p = { 0 };
	p.offload = (int64_t)(fo_rng_u64(choices_seed + 2, choices_draws) %
			      (uint64_t)m->layers); /* apart, as attention */
	p.wgrad_lane = (int64_t)(fo_rng_u64(choices_seed + 3, choices_draws) % 2);
	p.fuse_rope = (int64_t)(fo_rng_u64(choices_seed + 4, choices_draws) % 2);
	p.attention = (int64_t)(fo_rng_u64(choices_seed + 1, choices_draws) %
				FO_ATTENTION_COUNT); /* apart: it does not move the other draws */
	for (int i = 0; i < ATTENTION; i++)
		if (choices_draw(2))
			*(int64_t *)((char *)&p +
				     choices_pass[i].field) = choices_pass[i].value[choices_draw(choices_pass[i].n)];
	p.previous_norm = p.optimizer_in_backward ? 1 : choices_draw(2); /* nothing else is legal */
	return p;
}

void choices_zero(struct fo_passes *p, int64_t shards)
{
	p->zero = shards > 1 ? choices_draw(FO_ZERO_COUNT) : FO_ZERO_OFF;
	if (p->zero >= FO_ZERO_GRADIENTS)
		p->zero_sync = choices_draw(FO_SYNC_COUNT);
	if (p->zero != FO_ZERO_WEIGHTS)
		return;
	p->zero_prefetch = choices_draw(4);
	p->zero_reshard = choices_draw(FO_RESHARD_COUNT);
	p->zero_first = p->zero_prefetch && choices_draw(2);
}

void choices_fp8(struct fo_passes *p, const struct fo_model *m)
{
	p->fp8 = choices_draw(FO_FP8_COUNT);
	if (!p->fp8)
		return;
	p->fp8_history = p->fp8 == FO_FP8_DELAYED ? 1 + choices_draw(4) : 0;
	p->fp8_precompute = choices_draw(2);
	p->fp8_wgrad = choices_draw(3) == 0;
	p->fp8_first = m->layers > 1 && choices_draw(3) == 0;
	p->fp8_last = m->layers > 1 + p->fp8_first && choices_draw(3) == 0;
	p->fp8_transposed = p->fp8 <= FO_FP8_DELAYED && p->fp8_precompute && choices_draw(2);
	p->fp8_fuse = p->fp8 == FO_FP8_DELAYED && choices_draw(2);
}

void choices_parts(struct fo_lowering *low, int64_t layers)
{
	const struct fo_pp_shape shape = fo_lowering_pipeline(low);
	const int64_t parts = low->mesh.pp > 1 ? fo_pp_parts(&shape) : 0;
	low->stages.parts = low->stages.repeats = 0;
	for (int32_t k = parts && choices_draw(3) == 0 ? low->mesh.pp : 0; k > low->stages.repeats;) {
		const int64_t first = choices_draw(FO_RECOMPUTE_FULL + 1);
		low->stages.repeat[low->stages.repeats++] = (struct fo_stage_repeat){
			(uint8_t)first, (uint8_t)(first & choices_draw(FO_RECOMPUTE_FULL + 1)), (int16_t)choices_draw(4)
		};
	}
	if (parts > layers || !parts || choices_draw(2))
		return;
	low->stages.parts = (int32_t)parts;
	for (int64_t i = 0; i < parts; i++)
		low->stages.layers[i] = 1;
	for (int64_t i = parts; i < layers; i++)
		low->stages.layers[choices_draw(parts)]++;
}

void choices_describe(char *text, size_t size, const struct fo_model *m, const struct fo_lowering *low)
{
	int n = snprintf(text, size, "%s, layers %d hidden %d heads %d/%d ffn %d%s%s%s%s%s",
			 fo_numerics_name[low->precision], (int)m->layers, (int)m->hidden, (int)m->heads,
			 (int)m->kv_heads, (int)m->ffn, m->tied ? " tied" : "",
			 m->attention_bias ? " attention-bias" : "", m->mlp_bias ? " mlp-bias" : "",
			 m->qk_norm ? " qk-norm" : "", m->sliding_window ? " window" : "");
	for (int i = 0; i < fo_pass_fields; i++) {
		int64_t v = fo_passes_get(&low->pass, fo_pass_field[i].offset);
		if (v && n < (int)size)
			n += snprintf(text + n, size - (size_t)n, ", %s=%lld", fo_pass_field[i].name, (long long)v);
	}
}
