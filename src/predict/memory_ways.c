/* The memory that follows from a framework's ways and a model's widths, whatever the division: bytes of a weight, of a
 * token in a layer, of a logit. */
#include "predict/predict_int.h"

static bool stated(struct fo_range r) { return r.high > 0; }

/* A format's bytes take the place of the keeper's. */
static void take_format(struct fo_memory_ways *w, enum fo_predict_format format)
{
	const struct fo_predict_format_row *f = &fo_predict_format_row[format];
	if (!(f->moment > 0))
		return;
	w->moments = fo_range(2 * f->moment);
	w->weight = w->optimizer = fo_range(0);
	w->master = f->weight > 0 ? f->weight : 4;
	if (f->master > 0 && f->master < 4) /* the rest of a bf16 weight */
		w->weight = fo_range(2), w->optimizer = fo_range(f->master + 2 * f->moment);
}

/* ---- a framework's style ---- */

static enum fo_memory_keeper keeper_of(enum fo_predict_style_id style)
{
	static const enum fo_memory_keeper of[FO_HABITS] = {
		[FO_MCORE] = FO_MEMORY_BY_MEGATRON, [FO_MLM] = FO_MEMORY_BY_MEGATRON,
		[FO_MEG22] = FO_MEMORY_BY_MEGATRON, [FO_EAGER] = FO_MEMORY_BY_TORCH,
		[FO_FSDP1] = FO_MEMORY_BY_TORCH,    [FO_COMPILED] = FO_MEMORY_BY_TORCH,
		[FO_XLA] = FO_MEMORY_BY_TORCH,      [FO_GRAPHS] = FO_MEMORY_BY_MEGATRON,
	};
	switch (style) {
	case FO_PREDICT_STYLE_EAGER: return FO_MEMORY_BY_ANY;
	case FO_PREDICT_STYLE_DEEPSPEED: return FO_MEMORY_BY_DEEPSPEED;
	case FO_PREDICT_STYLE_FLATOUT: return FO_MEMORY_BY_FLATOUT;
	default: return of[fo_predict_habits_of(style)];
	}
}

/* Bytes that an entropy loss moves for a logit, at most, where it is one kernel or compiled (styles.def). */
#define FUSED_LOSS_MOVES 12

void fo_memory_ways_of_style(const struct fo_predict_job *j, struct fo_memory_ways *w)
{
	const struct fo_predict_style *s = &fo_predict_style[j->style];
	enum fo_predict_habits habits = fo_predict_habits_of(j->style);
	enum fo_predict_attention attention = j->attention > 0 ? (enum fo_predict_attention)(j->attention - 1)
							       : s->attention;
	double moves = j->logit_bytes > 0 ? j->logit_bytes : s->logit_bytes;
	*w = (struct fo_memory_ways){ .known = true, .keeper = keeper_of(j->style) };
	w->full = j->type == FO_PREDICT_FP32 || j->type == FO_PREDICT_TF32;
	w->small = j->type == FO_PREDICT_FP8 || j->type == FO_PREDICT_MXFP8 || j->type == FO_PREDICT_FP4;
	w->adapters = j->lora;
	w->scores = attention == FO_PREDICT_ATTENTION_STORED;
	w->dropout = habits == FO_MEG22; /* GPT's recipes of its time: 0.1 */
	w->sdpa = attention == FO_PREDICT_ATTENTION_SDPA;
	w->compiled = habits == FO_COMPILED || habits == FO_XLA;
	w->loss_fused = moves <= FUSED_LOSS_MOVES ? FO_MEMORY_YES : FO_MEMORY_NO;
	if (habits == FO_MLM || habits == FO_MCORE)
		w->sums_fused = FO_MEMORY_YES;
	if (habits == FO_MCORE) /* recipes have bf16 gradients, Megatron Core's default is fp32 */
		w->gradient = (struct fo_range){ 2, 4 };
	/* LLM.Q: gradients, moments and masters in bf16, the logits in chunks. */
	if (habits == FO_GRAPHS && w->keeper != FO_MEMORY_BY_FLATOUT)
		w->gradient = fo_range(2), w->optimizer = fo_range(6), w->sums_fused = FO_MEMORY_NO;
	if (w->keeper == FO_MEMORY_BY_ANY || j->style == FO_PREDICT_STYLE_AUTOMODEL)
		w->unfused = (struct fo_range){ 0, 1 };
	else if ((habits == FO_EAGER || habits == FO_FSDP1) && !w->compiled)
		w->unfused = fo_memory_plain;
	take_format(w, j->format);
}

/* ---- bytes of a weight ---- */

static struct fo_range gradient_of(const struct fo_memory_ways *w, bool apart)
{
	if (stated(w->gradient))
		return w->gradient;
	if (w->keeper == FO_MEMORY_BY_FLATOUT)
		return fo_range_between(w->master, 4);
	if (w->keeper == FO_MEMORY_BY_TORCH || !apart)
		return fo_range(w->master); /* of the weight's own type */
	if (w->keeper == FO_MEMORY_BY_MEGATRON)
		return fo_range(w->half ? 2 : 4); /* Megatron sums bf16 gradients in fp32 */
	if (w->keeper == FO_MEMORY_BY_DEEPSPEED && w->half)
		return fo_range(2);
	return (struct fo_range){ 2, 4 };
}

static void state_of(const struct fo_memory_ways *w, int zero, struct fo_memory_state *o)
{
	bool apart = w->keeper == FO_MEMORY_BY_MEGATRON || w->keeper == FO_MEMORY_BY_DEEPSPEED ||
		     w->keeper == FO_MEMORY_BY_FLATOUT;
	if (w->keeper == FO_MEMORY_BY_ANY)
		apart = zero == 1 || zero == 2;
	if (w->full || w->master == 2)
		apart = false;
	struct fo_range gradient = gradient_of(w, apart), optimizer = w->moments,
			weight = fo_range(apart ? 2 : w->master);
	if (apart)
		optimizer = fo_range_plus(optimizer, fo_range(w->master));
	/* Its fp16 optimizers flatten gradients in fp32, twice where they are clipped. */
	if (w->keeper == FO_MEMORY_BY_DEEPSPEED && w->half)
		optimizer = fo_range_plus(optimizer, (struct fo_range){ 4, 8 });
	/* autocast keeps bf16 copies of fp32 weights while a forward runs; FSDP gathers them instead (buffers). */
	if (!apart && !w->full && w->master == 4 && zero == 0)
		weight.high += 2;
	/* Transformer Engine keeps fp8 copies of a weight and of its transpose beside it, or in its place. */
	if (w->small && w->keeper == FO_MEMORY_BY_MEGATRON)
		weight = w->small_gathers ? fo_range_between(1, 2) : fo_range_between(3, 4);
	o->weight = stated(w->weight) ? w->weight : weight;
	o->gradient = gradient;
	o->optimizer = stated(w->optimizer) ? w->optimizer : optimizer;
}

static void states_of(struct fo_memory_base *b)
{
	for (int p = 0; p < FO_MEMORY_PRODUCTS; p++)
		for (int f = 0; f < FO_PREDICT_FORMATS; f++) {
			struct fo_memory_ways w = b->ways;
			take_format(&w, (enum fo_predict_format)f);
			if (p != FO_MEMORY_OF_JOB) {
				w.full = p == FO_MEMORY_FULL;
				w.small = p == FO_MEMORY_SMALL;
				w.half = w.half && p == FO_MEMORY_16_BITS;
			}
			for (int zero = 0; zero < 4; zero++)
				state_of(&w, zero, &b->state[p][f][zero]);
		}
}

/* ---- bytes of a token in a layer ---- */

typedef struct fo_memory_token token;

static token plus(token a, token b) { return (token){ a.split + b.split, a.sequence + b.sequence, a.full + b.full }; }

/* Stored scores of a query: Korthikanti et al. 2022: 5 a s with dropout, 2 a s without. */
double fo_memory_scores(const struct fo_memory_base *b)
{
	return b->ways.scores * (b->ways.dropout ? 5 : 2) * b->heads * b->seq;
}

/* Attention with its norm: input and output of the norm, what the kernel takes and gives, the sums of its rows. */
static token attention(const struct fo_memory_base *b)
{
	token t = { .sequence = 4 * b->h + b->ways.dropout * b->h,
		    .split = 2 * (b->q + b->kv + b->values + b->v) + 4 * b->heads + fo_memory_scores(b),
		    .full = b->latent };
	return t;
}

double fo_memory_own(const struct fo_memory_base *b, double width, double unfused)
{
	return 2 * width * (b->matrices + (b->matrices > 2 ? unfused : 0));
}

struct fo_memory_token fo_memory_ffn(const struct fo_memory_base *b, bool moe, double unfused)
{
	token t = { .sequence = 4 * b->h + b->ways.dropout * b->h };
	if (!moe) {
		t.split = fo_memory_own(b, b->ffn, unfused);
		return t;
	}
	t.sequence += 4 * b->experts +
		      b->active * (2 * b->h + fo_memory_own(b, b->expert_ffn, unfused) + unfused * 2 * b->h);
	t.split = fo_memory_own(b, b->shared_ffn, unfused);
	return t;
}

/* Everything that a layer's backward needs. An RMSNorm that is written out keeps its input in fp32 and the normalised
 * row. */
static token all(const struct fo_memory_base *b, bool moe, double unfused)
{
	token t = plus(attention(b), fo_memory_ffn(b, moe, unfused));
	t.sequence += b->layer_norm ? 0 : unfused * 8 * b->h;
	return t;
}

/* Bytes that fp8 takes off: inputs of matmuls are kept in one byte, and in one more where a turned copy is kept. */
static token small(const struct fo_memory_base *b, double unfused)
{
	double by = unfused > 0 ? 0 : 1;
	return (token){ .sequence = 2 * by * b->h, .split = by * (b->v + b->ffn) };
}

/* torchtitan keeps what every second matmul gives (queries, values, the gate or the first matrix, the last one) and the
 * attention's output. What is sent to experts is on its list, their matmuls may be.
 *
 * Not kept all the same may be: a compiled model drops what backward does not need, the last matrix's output
 * (Llama-3.1 8B, 2 x 8192 tokens: 82.4 GiB, compiled 77.0, of which these are 4.0; torchtitan, December 2024); and the
 * output of cuDNN's attention is not on the list, which PyTorch chooses by itself on Blackwell. */
static token listed(const struct fo_memory_base *b, bool moe, bool most)
{
	token t = { .sequence = 2 * b->h, .split = 2 * (b->q + b->kv + b->v) + 4 * b->heads, .full = 2 * b->h };
	t.split += 2 * (moe ? b->shared_ffn : b->ffn);
	if (moe && most)
		t.sequence += b->active * (4 * b->h + 2 * b->expert_ffn);
	if (!most && b->ways.compiled)
		t.full -= 2 * b->h;
	if (!most && b->ways.sdpa)
		t.split -= 2 * b->v;
	return t;
}

static token working(const struct fo_memory_base *b, bool moe, double unfused)
{
	double width = moe ? b->active * b->expert_ffn + b->shared_ffn : b->ffn;
	double rows = b->matrices - (unfused > 0 ? 0 : 1);
	/* Stored scores have a gradient, and are made again where they are not kept. */
	double core = b->ways.scores ? 4 * b->heads * b->seq : 0;
	token t = { .sequence = 4 * b->h, .split = 2 * width * rows + core };
	if (moe)
		t.sequence += 2 * b->active * b->h;
	return t;
}

/* ---- bytes of a logit while the loss runs ---- */

static struct fo_range logit(const struct fo_memory_ways *w, bool divided)
{
	struct fo_range fused = { 2, 6 }; /* bf16, turned into its gradient in place; or with a copy of each */
	struct fo_range plain = { 6, 16 };
	if (w->keeper == FO_MEMORY_BY_MEGATRON || w->keeper == FO_MEMORY_BY_FLATOUT) {
		plain = (struct fo_range){ 6, 8 }; /* bf16 2, fp32 4 in place; 2 of the gradient in bf16 */
		fused = (struct fo_range){ 2, 4 };
	} else if (w->keeper != FO_MEMORY_BY_ANY) {
		/* bf16 2 and three in fp32; torch's loss_parallel: five */
		plain = divided ? (struct fo_range){ 18, 22 } : (struct fo_range){ 12, 16 };
	}
	if (w->loss_fused == FO_MEMORY_NO)
		return plain;
	return (struct fo_range){ fused.low, w->loss_fused == FO_MEMORY_YES ? fused.high : plain.high };
}

/* ---- together ---- */

static void widths(struct fo_memory_base *b, const struct fo_predict_model *m)
{
	const double values = m->value_dim > 0 ? m->value_dim : m->head_dim;
	b->mla = m->kv_lora > 0;
	/* head_dim of latent attention is the mean of keys' and values'. */
	const double keys = b->mla ? 2 * m->head_dim - values : m->head_dim;
	const double qkv = m->qkv_width > 0 ? m->qkv_width : (m->heads + 2 * m->kv_heads) * m->head_dim;
	b->layers = m->layers, b->h = m->hidden, b->ffn = m->ffn, b->vocab = m->vocab, b->heads = m->heads;
	b->matrices = m->matrices, b->tied = m->tied, b->layer_norm = m->layer_norm;
	b->experts = m->experts, b->active = m->top_k, b->expert_ffn = m->expert_ffn, b->shared_ffn = m->shared_ffn;
	b->moe = m->experts > 0 ? m->moe_layers : 0;
	b->dense = b->layers - b->moe;
	b->q = m->heads * keys;
	b->v = m->heads * values;
	b->kv = b->mla ? b->q : m->kv_heads * m->head_dim;
	b->values = b->mla ? b->v : b->kv;
	/* Compressed queries, keys and values with their norms, and the part that is rotated. */
	b->latent = b->mla ? 4 * (m->q_lora + m->kv_lora) + 2 * m->rope_dim : 0;
	b->attention = m->attention > 0 ? m->attention : m->hidden * (qkv + m->heads * values);
	b->norms = m->norms > 0 ? m->norms : 2 * m->hidden;
	b->router = m->hidden * m->experts;
	b->ffn_dense = m->matrices * m->hidden * m->ffn;
	b->expert = m->matrices * m->hidden * m->expert_ffn;
	b->shared = m->matrices * m->hidden * m->shared_ffn;
	b->head = m->hidden * m->vocab;
	b->embedding = b->head + m->positions * m->hidden;
}

void fo_memory_prepare(struct fo_memory_base *b, const struct fo_predict_model *m, const struct fo_memory_ways *ways,
		       double seq)
{
	*b = (struct fo_memory_base){ .ways = *ways, .seq = seq };
	struct fo_memory_ways *w = &b->ways;
	w->master = w->master > 0 ? w->master : 4;
	w->reduce = w->reduce > 0 ? w->reduce : 4;
	w->live = w->live > 0 ? w->live : 1e9;
	if (!stated(w->moments)) /* PyTorch's optimizers make them of the weight's own type */
		w->moments = fo_range(w->keeper == FO_MEMORY_BY_TORCH && w->master == 2 ? 4 : 8);
	if (!stated(w->rank)) /* peft's default is 8; published recipes have 8 to 128 */
		w->rank = (struct fo_range){ 4, 128 };
	if (!stated(w->frozen)) /* the type in which the checkpoint was loaded */
		w->frozen = (struct fo_range){ 2, 4 };
	widths(b, m);
	states_of(b);
	for (int end = 0; end < 2; end++) {
		double unfused = end ? w->unfused.high : w->unfused.low;
		for (int moe = 0; moe < 2; moe++) {
			b->token[end][moe].all = all(b, moe, unfused);
			b->token[end][moe].listed = listed(b, moe, end);
			b->token[end][moe].working = working(b, moe, unfused);
			b->token[end][moe].small = small(b, unfused);
		}
		b->logit[end] = logit(w, end);
	}
}
