/* Bytes of the fullest device by parts. docs/predict.md has the formulas; docs/memory-arithmetic.md their sources. */
#include "predict/predict_int.h"

static double most(double a, double b) { return a > b ? a : b; }
static double least(double a, double b) { return a < b ? a : b; }

/* What a framework keeps: bytes of a gradient and of a parameter's optimizer state, and what comes on top of all. */
struct kept {
	double gradient, state;
	double norms; /* bytes of a hidden element that is not divided by tp: inputs and outputs of two norms */
	double eager; /* times activations of linear layers */
	double logit;
	bool master_is_weight; /* a fully sharded state has one fp32 copy of weights */
	double weight, whole, sharded_gradient;
	double times, more; /* bytes seen = times x model + more */
};

static void kept_of(const struct fo_predict_base *b, struct kept *k)
{
	const struct fo_predict_style *s = &fo_predict_style[b->job.style];
	char c = s->family[0];
	bool fsdp1 = s->family[0] == 'f', meg22 = c == 'm' && s->family[1] == 'e', mlm = c == 'm' && s->family[1] == 'l',
	     mcore = c == 'm' && s->family[1] == 'c', graphs = c == 'g', compiled = c == 'c', xla = c == 'x';
	k->gradient = graphs || mcore ? 2 : 4;
	k->state = graphs ? 6 : 12;
	k->sharded_gradient = 4;
	k->master_is_weight = fsdp1 || compiled || xla;
	if (b->job.style == FO_PREDICT_STYLE_FLATOUT)
		k->gradient = 4, k->state = 12;
	const struct fo_predict_job *j = &b->job;
	k->weight = k->master_is_weight ? 0 : 2; /* of a sharded state; a whole one has 2 beside its masters */
	k->whole = j->weight_bytes > 0 ? j->weight_bytes : 2;
	if (j->weight_bytes > 0)
		k->weight = j->weight_bytes;
	if (j->kept_gradient != 0)
		k->gradient = fmax(0, j->kept_gradient), k->sharded_gradient = k->gradient;
	if (j->state_bytes > 0)
		k->state = j->state_bytes;
	if (j->lora)
		k->gradient = k->state = k->sharded_gradient = 0;
	k->norms = meg22 ? 10 : 8;
	k->eager = fsdp1 ? 1.5 : 1;
	k->logit = mcore || mlm ? 4 : graphs ? 1 : 8;
	/* SimuMax's runs of Megatron-LM; a stack that nobody measured holds more, by an unknown amount. */
	bool known = (mlm || mcore || graphs) && !s->neutral;
	k->times = known ? 1.018 : FO_PREDICT_HELD_TIMES, k->more = known ? 0 : FO_PREDICT_HELD_BYTES;
}

static void activations(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			const struct fo_predict_work *w, const struct kept *k, double *out)
{
	const struct fo_predict_model *m = &b->job.model;
	double t = w->tp, tokens = w->micro_batch * b->job.seq / w->cp, h = m->hidden;
	double small = b->job.type == FO_PREDICT_BF16 ? 1 : .75, sp = l->sp && t > 1 ? t : 1;
	double share = m->moe_layers / m->layers, wide = m->ffn;
	if (m->experts > 0)
		wide = share * (m->top_k * m->expert_ffn + m->shared_ffn) + (1 - share) * m->ffn;
	bool meg22 = fo_predict_style[b->job.style].attention == FO_PREDICT_ATTENTION_STORED;
	double kv = m->kv_heads / m->heads;
	double none = tokens * (h * k->norms * (meg22 ? 1 : small) / sp +
				k->eager * (h * (4 + 4 * kv) + 2 * m->matrices * wide * small) / t);
	if (meg22 && !l->recompute_core)
		none += 5 * m->heads * b->job.seq * tokens / t;
	double input = 2 * tokens * h / (meg22 ? 1 : sp);
	double whole = m->layers / w->pp, per = (double)(int64_t)whole < whole ? (double)(int64_t)whole + 1 : whole;
	double flight = least(w->micro_batches, w->pp) * per;
	if (w->pp > 1 && w->chunks > 1)
		flight *= 1 + (w->pp - 1) / (w->pp * w->chunks);
	if (l->schedule == FO_PREDICT_GPIPE)
		flight = w->micro_batches * per;
	double again = l->recompute > 0 ? l->recompute : 0, keep = l->kept > 0 ? l->kept : 1 - again;
	*out = keep * none * flight + (again > 0 ? (1 - keep) * input * flight + none : 0);
	out[1] = tokens * m->vocab / t * k->logit * (w->pp > 1 ? 0 : 1);
}

static void states(const struct fo_predict_base *b, const struct fo_predict_layout *l, const struct fo_predict_work *w,
		   const struct kept *k, double *part)
{
	const struct fo_predict_model *m = &b->job.model;
	double t = w->tp, stage = m->layers / w->pp;
	double per = (double)(int64_t)stage < stage ? (double)(int64_t)stage + 1 : stage;
	double dense = (per * b->layer_params + (w->pp > 1 ? 1 : 2 - m->tied) * m->vocab * m->hidden) / t;
	/* The fullest stage has the layers with experts. */
	double full = w->moe ? least(per, m->moe_layers) * m->layers / m->moe_layers : per;
	double routed = full * b->ffn_params / w->ep, held = most(1, w->dp * w->cp * w->tp / w->ep);
	double params[2] = { dense, routed }, ranks[2] = { w->shard, w->moe ? held : 1 };
	if (!w->moe)
		params[0] += routed * w->ep / t, params[1] = 0;
	for (int i = 0; i < 2; i++) {
		double weight = k->whole, gradient = k->gradient, state = k->state;
		if (l->zero >= 3 && i == 0) {
			weight = k->weight / ranks[0];
			gradient = k->sharded_gradient / ranks[0], state = k->state / ranks[0];
		} else if (l->zero >= 1)
			state /= ranks[i];
		if (l->zero == 2)
			gradient /= ranks[i];
		part[FO_PREDICT_WEIGHTS] += params[i] * weight;
		part[FO_PREDICT_GRADIENTS] += params[i] * gradient;
		part[FO_PREDICT_STATES] += params[i] * state;
	}
	double one = (b->layer_params + (w->moe ? 0 : b->ffn_params)) / t;
	part[FO_PREDICT_BUFFERS] = l->zero >= 3 ? 6 * one : 0;
	/* Transformer Engine keeps one bf16 copy of a layer's weights for gradients that it adds to sums. */
	if (fo_predict_style[b->job.style].family[0] == 'm' && fo_predict_style[b->job.style].family[1] == 'l')
		part[FO_PREDICT_BUFFERS] += 2 * one + (w->moe ? 2 * m->matrices * m->hidden * m->expert_ffn : 0);
}

void fo_predict_bytes(const struct fo_predict_base *b, const struct fo_predict_layout *l, const struct fo_predict_work *w,
		      struct fo_predict_step *out)
{
	struct kept k;
	double *part = out->memory, both[2];
	kept_of(b, &k);
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
}
