/* Bytes of the fullest device by parts. docs/predict.md has the formulas; docs/memory-arithmetic.md their sources. */
#include "predict/predict_int.h"

#include <string.h>

static double most(double a, double b) { return a > b ? a : b; }
static double least(double a, double b) { return a < b ? a : b; }

/* What a framework keeps: bytes of a gradient, and of moments and masters of a weight; of a hidden element that
 * tensor parallelism does not divide (inputs and outputs of two norms, without sequence parallelism two dropout
 * masks more); of the other activations beside fused kernels; of a logit. Sharded weights are masters themselves
 * (FSDP) or 2 bytes. */
struct habit {
	double gradient, state, norms, eager, logit, weight;
};
struct kept {
	struct habit of;
	double whole, sharded_gradient; /* a weight that is not sharded; a gradient that is */
	double times, more;             /* bytes seen = times x model + more */
};
/* Megatron and its kin: its documentation; PyTorch: fp32 logits twice; Composer: unfused activations; LLM.Q:
 * moments and masters in bf16, logits in chunks. */
static const struct habit habits[FO_HABITS] = {
	[FO_MCORE] = { 2, 12, 8, 1, 4, 2 }, [FO_MLM] = { 4, 12, 8, 1, 4, 2 },     [FO_MEG22] = { 4, 12, 10, 1, 8, 2 },
	[FO_EAGER] = { 4, 12, 8, 1, 8, 2 }, [FO_FSDP1] = { 4, 12, 8, 1.1, 6, 0 }, [FO_COMPILED] = { 4, 12, 8, 1, 8, 0 },
	[FO_XLA] = { 4, 12, 8, 1, 8, 0 },   [FO_GRAPHS] = { 2, 6, 8, 1, 1, 2 },
};

static void kept_of(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct kept *k)
{
	const struct fo_predict_format_row *format = &fo_predict_format_row[fo_predict_format_of(&b->job, l)];
	const struct fo_predict_job *j = &b->job;
	const struct fo_predict_style *s = &fo_predict_style[j->style];
	enum fo_predict_habits of = fo_predict_habits_of(j->style);
	*k = (struct kept){ .of = habits[of] };
	if (j->style == FO_PREDICT_STYLE_FLATOUT)
		k->of.gradient = 4, k->of.state = 12;
	k->whole = 2, k->sharded_gradient = 4;
	if (j->weight_bytes > 0)
		k->of.weight = k->whole = j->weight_bytes;
	if (j->kept_gradient != 0)
		k->of.gradient = k->sharded_gradient = fmax(0, j->kept_gradient);
	if (format->weight > 0)
		k->of.weight = k->whole = format->weight;
	if (j->state_bytes > 0)
		k->of.state = j->state_bytes;
	if (format->moment > 0)
		k->of.state = format->master + 2 * format->moment;
	if (j->lora)
		k->of.gradient = k->of.state = k->sharded_gradient = 0;
	/* SimuMax's runs of Megatron-LM; a stack that nobody measured holds more, by an unknown amount. */
	k->times = FO_PREDICT_HELD_TIMES, k->more = FO_PREDICT_HELD_BYTES;
	if ((of == FO_MLM || of == FO_MCORE || of == FO_GRAPHS) && !s->neutral)
		k->times = 1.018, k->more = 0;
}

/* Layers of the fullest pipeline stage. */
static double fullest(const struct fo_predict_layout *l, double mean)
{
	const struct fo_predict_uneven *u = &l->uneven;
	if (fo_predict_is_uneven(u))
		return most(u->first, most(u->middle, u->last));
	return (double)(int64_t)mean < mean ? (double)(int64_t)mean + 1 : mean;
}

static void activations(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			const struct fo_predict_work *w, const struct kept *k, double *out)
{
	const struct fo_predict_model *m = &b->job.model;
	double t = w->tp, tokens = w->micro_batch * b->job.seq / w->cp, h = m->hidden;
	double small = w->type == FO_PREDICT_BF16 ? 1 : .75;
	double sp = l->sp ? t : 1;
	double share = m->moe_layers / m->layers, wide = m->ffn;
	if (m->experts > 0)
		wide = share * (m->top_k * m->expert_ffn + m->shared_ffn) + (1 - share) * m->ffn;
	bool meg22 = fo_predict_style[b->job.style].attention == FO_PREDICT_ATTENTION_STORED;
	double kv = m->kv_heads / m->heads;
	double none = tokens * (h * k->of.norms * (meg22 ? 1 : small) / sp +
				k->of.eager * (h * (4 + 4 * kv) + 2 * m->matrices * wide * small) / t);
	if (meg22 && !l->recompute_core)
		none += 5 * m->heads * b->job.seq * tokens / t;
	double input = 2 * tokens * h / (meg22 ? 1 : sp);
	double per = fullest(l, m->layers / w->pp);
	double flight = least(w->micro_batches, w->pp) * per;
	if (w->pp > 1 && w->chunks > 1)
		flight *= 1 + (w->pp - 1) / (w->pp * w->chunks);
	if (l->schedule == FO_PREDICT_GPIPE)
		flight = w->micro_batches * per;
	if (l->schedule == FO_PREDICT_ZB_H2)
		flight = least(w->micro_batches, 2 * w->pp - 1) * per;
	double keep = l->kept > 0 ? l->kept : 1 - l->recompute;
	*out = keep * none * flight;
	if (l->recompute > 0)
		*out += (1 - keep) * input * flight + none;
	out[1] = tokens * m->vocab / t * k->of.logit * (w->pp > 1 ? 0 : 1);
}

static void states(const struct fo_predict_base *b, const struct fo_predict_layout *l, const struct fo_predict_work *w,
		   const struct kept *k, double *part)
{
	const struct fo_predict_model *m = &b->job.model;
	double t = w->tp, per = fullest(l, m->layers / w->pp);
	double dense = (per * b->layer_params + (w->pp > 1 ? 1 : 2 - m->tied) * m->vocab * m->hidden) / t;
	/* The fullest stage has the layers with experts. */
	double full = w->moe ? least(per, m->moe_layers) * m->layers / m->moe_layers : per;
	double routed = full * b->ffn_params / w->ep, held = most(1, w->shard * w->tp / w->ep);
	double params[2] = { dense, routed }, ranks[2] = { w->shard, w->moe ? held : 1 };
	if (!w->moe)
		params[0] += routed * w->ep / t, params[1] = 0;
	/* PyTorch scatters a pipeline's gradients after the last micro-batch. */
	enum fo_predict_habits habits_of = fo_predict_habits_of(b->job.style);
	bool whole_sums = w->pp > 1 && (habits_of == FO_EAGER || habits_of == FO_COMPILED);
	for (int i = 0; i < 2; i++) {
		double weight = k->whole, gradient = k->of.gradient, state = k->of.state;
		if (l->zero >= 3) {
			weight = k->of.weight / ranks[i] + (l->keeps_weights ? k->whole : 0);
			gradient = k->sharded_gradient / ranks[i], state = k->of.state / ranks[i];
			if (whole_sums)
				gradient += k->sharded_gradient;
		} else if (l->zero >= 1)
			state /= ranks[i];
		if (l->zero == 2)
			gradient /= ranks[i];
		part[FO_PREDICT_WEIGHTS] += params[i] * weight;
		part[FO_PREDICT_GRADIENTS] += params[i] * gradient;
		part[FO_PREDICT_STATES] += params[i] * state;
	}
	double one = (b->layer_params + (w->moe ? 0 : b->ffn_params)) / t;
	double gathered = one + (w->moe ? b->ffn_params * m->layers / m->moe_layers / w->ep : 0);
	part[FO_PREDICT_BUFFERS] = l->zero >= 3 ? 6 * gathered : 0;
	/* Transformer Engine keeps one bf16 copy of a layer's weights for gradients that it adds to sums. */
	if (fo_predict_habits_of(b->job.style) == FO_MLM)
		part[FO_PREDICT_BUFFERS] += 2 * one + (w->moe ? 2 * m->matrices * m->hidden * m->expert_ffn : 0);
}

/* Of the first stage, which holds the most micro-batches. */
static void first_stage(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			const struct fo_predict_work *w, struct fo_predict_step *out)
{
	struct kept k;
	double *part = out->memory, both[2];
	kept_of(b, l, &k);
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++)
		part[i] = 0;
	states(b, l, w, &k, part);
	activations(b, l, w, &k, both);
	part[FO_PREDICT_ACTIVATIONS] = both[0], part[FO_PREDICT_LOGITS] = both[1];
	double sum = 0;
	for (int i = 0; i < FO_PREDICT_OVERHEAD; i++)
		sum += part[i];
	part[FO_PREDICT_OVERHEAD] = (k.times - 1) * sum + k.more;
	out->bytes = sum + part[FO_PREDICT_OVERHEAD];
	out->memory_sd = k.more > 0 ? .12 : .05;
	/* Programs of 122 random small jobs took 0.83 to 1.6 times these figures when their memory was planned. */
	if (b->job.style == FO_PREDICT_STYLE_FLATOUT)
		out->memory_sd = .3;
}

void fo_predict_bytes(const struct fo_predict_base *b, const struct fo_predict_layout *l,
		      const struct fo_predict_work *w, struct fo_predict_step *out)
{
	first_stage(b, l, w, out);
	if (!(w->again_stages > 0))
		return;
	/* The first stage that recomputes nothing holds fewer micro-batches, as 1F1B's do from stage to stage. */
	struct fo_predict_layout rest = *l;
	struct fo_predict_work held = *w;
	struct fo_predict_step other = { .wrong = NULL };
	rest.recompute = rest.kept = 0, rest.recompute_core = rest.recompute_ffn = false;
	held.micro_batches = least(w->micro_batches, w->pp - w->again_stages);
	first_stage(b, &rest, &held, &other);
	if (other.bytes > out->bytes) {
		out->bytes = other.bytes, out->memory_sd = other.memory_sd;
		memcpy(out->memory, other.memory, sizeof out->memory);
	}
}
