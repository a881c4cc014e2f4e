/* Activations of one micro-batch on one device: what layers keep from forward to backward, by kind of recomputation.
 * docs/memory-arithmetic.md derives each term. */
#include "job/memory_int.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of one token in one layer. `split`: divided by tensor parallelism; `sequence`: divided by it with sequence
 * parallelism alone; `full`: by neither. */
struct bytes {
	double split, sequence, full;
};
static double on_device(struct bytes b, const struct fo_job_shape *s, bool sp)
{
	return b.split / s->tp + b.sequence / (sp ? s->tp : 1) + b.full;
}

static bool sequence_parallel(const struct fo_job *job, const struct fo_job_shape *s)
{
	/* torchtitan has no tensor parallelism without it, and no setting for it. */
	double otherwise = fo_job_style_of(job) == FO_JOB_STYLE_TORCH;
	return s->tp > 1 && fo_job_or(job, FO_JOB_SEQUENCE_PARALLEL, otherwise) != 0;
}

/* ---- recomputation ---- */

struct fo_job_recompute fo_job_recompute_of(const struct fo_job *job)
{
	struct fo_job_recompute r = { .mode = FO_JOB_AGAIN_UNKNOWN, .share = 1 };
	const char *option = job->value[FO_JOB_RECOMPUTE_OPTION].text;
	double n = fo_job_number(job, FO_JOB_RECOMPUTE_LAYERS), mode = fo_job_number(job, FO_JOB_RECOMPUTE);
	option = option ? option : "";
	if (isnan(mode))
		return r;
	if (mode == FO_JOB_RECOMPUTE_NONE)
		r.mode = FO_JOB_AGAIN_NONE;
	r.offload = mode == FO_JOB_RECOMPUTE_OFFLOAD;
	if (r.offload)
		r.mode = FO_JOB_AGAIN_NONE;
	if (mode == FO_JOB_RECOMPUTE_FULL) {
		r.mode = FO_JOB_AGAIN_FULL;
		if (n > 0 && job->has_model)
			r.share = fmin(1, n / (double)job->model.layers);
	}
	if (mode != FO_JOB_RECOMPUTE_SELECTIVE)
		return r;
	bool torchtitan = job->form && !strncmp(job->form->id, "torchtitan", strlen("torchtitan"));
	char *end;
	double nth = strtod(option, &end);
	if (end != option && nth >= 1) {
		r.mode = FO_JOB_AGAIN_NTH;
		r.share = 1 / nth;
	} else if (!strcmp(option, "op") || (!*option && torchtitan))
		r.mode = FO_JOB_AGAIN_EVERY_OP;
	else if (fo_job_style_of(job) != FO_JOB_STYLE_TORCH) {
		r.mode = FO_JOB_AGAIN_CORE;
		/* "uniform" and "block" are ways of full recomputation and say nothing of modules. */
		bool way = !strcmp(option, "uniform") || !strcmp(option, "block");
		r.core = !*option || way || strstr(option, "core_attn");
		r.norm = strstr(option, "layernorm");
		r.activation = strstr(option, "moe_act");
		r.up = strstr(option, "mla_up_proj");
		r.ffn = strstr(option, "mlp");
		r.expert = strstr(option, "moe") && !strstr(option, "moe_act");
	}
	return r;
}

/* ---- fusion ---- */

struct fo_job_fusion fo_job_fusion_of(const struct fo_job *job)
{
	bool known = fo_job_style_of(job) != FO_JOB_STYLE_UNKNOWN;
	bool megatron = fo_job_style_of(job) == FO_JOB_STYLE_MEGATRON;
	/* A cache holds some of what one kernel writes and the next reads: torch.compile gains 1.16 on torchtitan's 8B
	 * where 0.7 of the bytes say 1.15 and all of them 1.2. */
	static const struct fo_range plain = { 0.7, 1 };
	struct fo_range otherwise = { 0, 1 };
	if (known)
		otherwise = megatron ? fo_range(0) : plain;
	const struct {
		enum fo_job_setting s;
		size_t at;
	} part[] = { { FO_JOB_FUSED_NORM, offsetof(struct fo_job_fusion, norm) },
		     { FO_JOB_FUSED_ROPE, offsetof(struct fo_job_fusion, rope) },
		     { FO_JOB_FUSED_ACTIVATION, offsetof(struct fo_job_fusion, activation) } };
	struct fo_job_fusion f = { otherwise, otherwise, otherwise, otherwise };
	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		struct fo_range *to = (struct fo_range *)((char *)&f + part[i].at);
		double on = fo_job_number(job, part[i].s);
		if (!isnan(on))
			*to = on != 0 ? fo_range(0) : plain;
	}
	if (fo_job_is(job, FO_JOB_COMPILE, 1))
		f.norm = f.rope = f.activation = fo_range(0);
	double loss = fo_job_number(job, FO_JOB_COMPILE_LOSS);
	if (!isnan(loss))
		f.loss = loss != 0 ? fo_range(0) : plain;
	return f;
}

/* ---- a layer ---- */

/* One look at a stage: which recomputation, how much is not fused (0 to 1), and which end of what is not known. */
struct look {
	const struct fo_job *job;
	const struct fo_job_counts *m;
	const struct fo_job_shape *s;
	const struct fo_job_stage *stage;
	struct fo_job_recompute r;
	double unfused;
	bool high;
};

static struct bytes plus(struct bytes a, struct bytes b, double times)
{
	return (struct bytes){ a.split + times * b.split, a.sequence + times * b.sequence, a.full + times * b.full };
}

static double dropout(const struct look *k) { return fo_job_or(k->job, FO_JOB_DROPOUT, 0) > 0; }

/* Stored scores, a query's: Korthikanti et al. 2022: 5 a s with dropout, 2 a s without. */
static double scores(const struct look *k)
{
	if (!fo_job_scores_stored(k->job))
		return 0;
	return (dropout(k) ? 5 : 2) * k->m->heads * k->s->seq;
}

/* Attention with its norm: input and output of the norm, what the kernel takes and gives, the sums of its rows. */
static struct bytes attention(const struct look *k)
{
	const struct fo_job_counts *m = k->m;
	double values = m->mla ? m->v : m->kv;
	struct bytes b = { .sequence = 4 * m->h + dropout(k) * m->h,
			   .split = 2 * (m->q + m->kv + values + m->v) + 4 * m->heads + scores(k) };
	if (m->mla) /* compressed queries, keys and values with their norms, and the part that is rotated */
		b.full = 4 * (m->q_lora + m->kv_lora) + 2 * m->rope_dim;
	return b;
}

/* The feed-forward's own activations: what the first matrices give and what the last one takes. */
static double ffn(const struct look *k, double width)
{
	return 2 * width * (k->m->matrices + (k->m->gated ? k->unfused : 0));
}

/* Tokens of the chosen experts: what is sent to them, their own activations and, where the weighting is not fused, what
 * they give back; every device holds as many tokens as it sends when experts are chosen evenly. */
static struct bytes feed_forward(const struct look *k, bool moe)
{
	const struct fo_job_counts *m = k->m;
	struct bytes b = { .sequence = 4 * m->h + dropout(k) * m->h };
	if (!moe)
		return plus(b, (struct bytes){ .split = ffn(k, m->ffn) }, 1);
	b.sequence += 4 * m->experts + m->active * (2 * m->h + ffn(k, m->expert_ffn) + k->unfused * 2 * m->h);
	b.split = ffn(k, m->shared_ffn);
	return b;
}

/* Everything that a layer's backward needs. An RMSNorm that is written out keeps its input in fp32 and the normalised
 * row. */
static struct bytes all(const struct look *k, bool moe)
{
	struct bytes b = plus(attention(k), feed_forward(k, moe), 1);
	b.sequence += k->m->layer_norm ? 0 : k->unfused * 8 * k->m->h;
	return b;
}

/* What fp8 takes off: inputs of matmuls are kept in one byte, and in one more where a turned copy is kept. */
static struct bytes fp8_saves(const struct look *k)
{
	double by = k->unfused > 0 ? 0 : 1;
	return (struct bytes){ .sequence = 2 * by * k->m->h, .split = by * (k->m->v + k->m->ffn) };
}

/* torchtitan keeps what every second matmul gives (queries, values, the gate or the first matrix, the last one) and the
 * attention's output; with tensor parallelism also what reduce-scatters give. What is sent to experts is on its
 * list, their matmuls may be. */
static struct bytes listed(const struct look *k, bool moe)
{
	const struct fo_job_counts *m = k->m;
	struct bytes b = { .sequence = 2 * m->h, .split = 2 * (m->q + m->kv + m->v) + 4 * m->heads, .full = 2 * m->h };
	if (!moe)
		b.split += 2 * m->ffn;
	else
		b.split += 2 * m->shared_ffn;
	if (moe && (k->high || k->s->ep > 1))
		b.sequence += 2 * m->active * m->h;
	if (moe && k->high)
		b.sequence += m->active * (2 * m->h + 2 * m->expert_ffn);
	if (k->s->tp > 1)
		b.sequence += 4 * m->h;
	return b;
}

/* What may not be kept all the same: a compiled model drops what backward does not need, the last matrix's output
 * (Llama-3.1 8B, 2 x 8192 tokens: 82.4 GiB, compiled 77.0, of which these are 4.0; torchtitan, December 2024); and the
 * output of cuDNN's attention is not on the list, which PyTorch chooses by itself on Blackwell. */
static struct bytes every_op(const struct look *k, bool moe)
{
	struct bytes b = listed(k, moe);
	if (k->high)
		return b;
	if (fo_job_is(k->job, FO_JOB_COMPILE, 1))
		b.full -= 2 * k->m->h;
	if (fo_job_is(k->job, FO_JOB_ATTENTION, FO_JOB_ATTENTION_SDPA))
		b.split -= 2 * k->m->v;
	return b;
}

/* Megatron's selective: the attention's core, and the modules named. */
static struct bytes without_modules(const struct look *k, bool moe)
{
	const struct fo_job_counts *m = k->m;
	struct bytes b = all(k, moe);
	b.split -= k->r.core ? scores(k) : 0;
	b.sequence -= k->r.norm ? 4 * m->h : 0;
	if (moe && k->r.expert) {
		b = plus(b, feed_forward(k, true), -1);
		b.sequence += 4 * m->h;
	} else if (moe && k->r.activation)
		b.sequence -= m->active * 2 * m->expert_ffn;
	if (!moe && k->r.ffn)
		b.split -= ffn(k, m->ffn);
	if (k->r.up && m->mla)
		b.split -= 2 * (m->q + m->kv + m->v);
	return b;
}

/* What one layer keeps. */
static struct bytes kept(const struct look *k, bool moe)
{
	struct bytes b = all(k, moe), none = { 0 }, input = { .sequence = 2 * k->m->h };
	if (k->r.mode == FO_JOB_AGAIN_CORE)
		b = without_modules(k, moe);
	if (k->r.mode == FO_JOB_AGAIN_EVERY_OP)
		return every_op(k, moe);
	bool te = fo_job_small_types(k->job) && fo_job_style_of(k->job) == FO_JOB_STYLE_MEGATRON;
	if (te && !moe)
		b = plus(b, fp8_saves(k), -1);
	if (k->r.mode != FO_JOB_AGAIN_FULL && k->r.mode != FO_JOB_AGAIN_NTH)
		return b;
	return plus(plus(none, b, 1 - k->r.share), input, k->r.share);
}

/* Beside what is kept, while one layer's backward runs: what is computed again, and gradients of the widest part.
 * Sequences that tensor parallelism gathers are whole. */
static struct bytes working(const struct look *k, bool moe)
{
	const struct fo_job_counts *m = k->m;
	double width = moe ? m->active * m->expert_ffn + m->shared_ffn : m->ffn;
	double rows = m->matrices - (k->unfused > 0 ? 0 : 1);
	/* Stored scores have a gradient, and are made again where they are not kept. */
	double core = scores(k) > 0 ? 4 * m->heads * k->s->seq : 0;
	struct bytes b = { .sequence = 4 * m->h, .split = 2 * width * rows + core };
	if (moe)
		b.sequence += 2 * m->active * m->h;
	if (k->s->tp > 1)
		b.full += 2 * m->h;
	if (k->r.mode == FO_JOB_AGAIN_FULL || k->r.mode == FO_JOB_AGAIN_NTH)
		b = plus(b, all(k, moe), 1);
	if (k->r.mode == FO_JOB_AGAIN_EVERY_OP)
		b = plus(plus(b, all(k, moe), 1), every_op(k, moe), -1);
	if (k->r.mode == FO_JOB_AGAIN_CORE && k->r.core)
		b.split += scores(k);
	return (struct bytes){ fmax(0, b.split), fmax(0, b.sequence), fmax(0, b.full) };
}

/* ---- logits ---- */

/* Bytes of one logit while the loss runs. */
static struct fo_range of_logit(const struct fo_job *job, const struct fo_job_shape *s)
{
	enum fo_job_style style = fo_job_style_of(job);
	struct fo_job_fusion f = fo_job_fusion_of(job);
	struct fo_range fused = { 2, 6 }; /* bf16, turned into its gradient in place; or with a copy of each */
	struct fo_range plain = { 6, 16 };
	if (style == FO_JOB_STYLE_MEGATRON) {
		plain = (struct fo_range){ 6, 8 }; /* bf16 2, fp32 4 in place; 2 of the gradient in bf16 */
		fused = (struct fo_range){ 2, 4 };
	} else if (style != FO_JOB_STYLE_UNKNOWN && s->tp > 1)
		plain = (struct fo_range){ 18, 22 }; /* torch's loss_parallel: bf16 2 and five in fp32 */
	else if (style != FO_JOB_STYLE_UNKNOWN)
		plain = (struct fo_range){ 12, 16 }; /* bf16 2 and three in fp32 */
	if (f.loss.low > 0)
		return plain;
	return (struct fo_range){ fused.low, f.loss.high > 0 ? plain.high : fused.high };
}

/* ---- together ---- */

typedef struct bytes layer_fn(const struct look *, bool moe);

/* Of the average layer of the stage, or of the widest one. */
static double of_stage(layer_fn *f, const struct look *k, bool widest)
{
	bool sp = sequence_parallel(k->job, k->s);
	double dense = k->stage->dense > 0 ? on_device(f(k, false), k->s, sp) : 0;
	double moe = k->stage->moe > 0 ? on_device(f(k, true), k->s, sp) : 0;
	if (widest)
		return fmax(dense, moe);
	return (dense * k->stage->dense + moe * k->stage->moe) / fmax(1, k->stage->layers);
}

/* Adapters. Less: a frozen matrix needs no input for its own gradient, so that without adapters on the feed-forward the
 * inputs of its matrices are not kept: 2 h + 2 F of the 12 h + 4 kv + 6 F bytes of a token, some 0.3. More: with
 * dropout each adapter keeps its own copy of the input (2 bytes) and a mask (1): 5 inputs of h, one of q, one of F. */
static void with_adapters(const struct fo_job_counts *m, const struct fo_job_shape *s, struct fo_range *bytes)
{
	double width = m->moe > 0 ? m->active * m->expert_ffn + m->shared_ffn : m->ffn;
	bytes->low *= 0.7;
	bytes->high += s->micro_batch * s->seq / s->cp * 3 * (5 * m->h + m->q + width);
}

void fo_job_activations_of(const struct fo_job *job, const struct fo_job_counts *m, const struct fo_job_shape *s,
			   const struct fo_job_stage *stage, struct fo_job_activations *o)
{
	double tokens = s->micro_batch * s->seq / s->cp;
	struct fo_job_fusion f = fo_job_fusion_of(job);
	struct look low = { .job = job, .m = m, .s = s, .stage = stage, .r = fo_job_recompute_of(job) }, high = low;
	high.high = true;
	low.unfused = fmin(fmin(f.norm.low, f.rope.low), f.activation.low);
	high.unfused = fmax(fmax(f.norm.high, f.rope.high), f.activation.high);
	enum fo_job_again full = low.r.mode, none = low.r.mode;
	if (low.r.mode == FO_JOB_AGAIN_UNKNOWN) {
		full = FO_JOB_AGAIN_FULL;
		none = FO_JOB_AGAIN_NONE;
	}
	/* Who keeps least works on most. */
	low.r.mode = full;
	high.r.mode = none;
	o->kept = (struct fo_range){ tokens * of_stage(kept, &low, false), tokens * of_stage(kept, &high, false) };
	low.r.mode = none;
	high.r.mode = full;
	double a = of_stage(working, &low, true), b = of_stage(working, &high, true);
	o->working = (struct fo_range){ tokens * fmin(a, b), tokens * fmax(a, b) };
	o->all = o->kept;
	if (low.r.offload) { /* two layers at a time are on the device */
		o->kept.low *= fmin(1, 2 / stage->layers);
		o->kept.high *= fmin(1, 3 / stage->layers);
	}
	if (fo_job_adapters(job)) {
		if (none != FO_JOB_AGAIN_FULL || low.r.share < 1)
			with_adapters(m, s, &o->kept), with_adapters(m, s, &o->all);
		with_adapters(m, s, &o->working);
	}
	o->logits = fo_range_scaled(tokens * m->vocab / s->tp, of_logit(job, s));
	/* Rows that end with the longest text of a micro-batch may be short: the sequence is only a bound. */
	if (fo_job_is(job, FO_JOB_ROWS_VARY, 1))
		o->kept.low = o->working.low = o->logits.low = 0;
}
