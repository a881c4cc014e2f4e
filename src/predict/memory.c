/* A division's memory by parts. docs/memory-arithmetic.md has the formulas and their sources. */
#include "predict/predict_int.h"

/* Outside of the framework's allocator: the context, and NCCL's channels where there is more than one device: some 0.3
 * to 2 GB by the number of communicators (planners' notes and pytorch#147179, August 2026). */
static const struct fo_range context = { 0.5 * (1 << 30), 1.0 * (1 << 30) };
static const struct fo_range nccl = { 0.3e9, 2.0e9 };
/* An allocator holds more than is in use; at least 5 % in the middle (torchtitan's reserved figures). */
static const struct fo_range fragments = { 0.02, 0.10 };
/* Workspaces of matmuls (32 MiB for each stream on Hopper) and of attention, tables of rotations, masks. */
static const struct fo_range workspaces = { 0.03e9, 0.5e9 };
/* Activations as derived, to a few percent: small tensors that no formula lists, alignment. */
static const struct fo_range unlisted = { 0.97, 1.06 };
/* The planned programs of 122 random small jobs took 0.83 to 1.6 times the estimate of their memory. A guess of the
 * same for all parts but states, which are exact. */
static const struct fo_range planned = { 0.65, 1.9 };

/* A layout with every number filled in. */
struct division {
	const struct fo_memory_base *b;
	const struct fo_predict_layout *l;
	double tp, pp, ep, etp, chunks, group, shard, same; /* same: ranks that shard an expert's states */
	double micro_batches, tokens;
	double by_tp, by_sequence; /* 1 / what divides the bytes of a token */
	int zero;
	const struct fo_memory_state *state;
	bool te_small; /* Transformer Engine keeps inputs of products in 8 bits */
};

/* type: 1 + enum fo_predict_type; 0: the job's. */
static enum fo_memory_products products_of(int type)
{
	static const enum fo_memory_products of[1 + FO_PREDICT_TYPES] = {
		[1 + FO_PREDICT_BF16] = FO_MEMORY_16_BITS, [1 + FO_PREDICT_FP8] = FO_MEMORY_SMALL,
		[1 + FO_PREDICT_MXFP8] = FO_MEMORY_SMALL,  [1 + FO_PREDICT_FP4] = FO_MEMORY_SMALL,
		[1 + FO_PREDICT_TF32] = FO_MEMORY_FULL,    [1 + FO_PREDICT_FP32] = FO_MEMORY_FULL,
	};
	return of[type];
}

static void divide(struct division *d, const struct fo_memory_base *b, const struct fo_predict_layout *l)
{
	double cp = most(l->cp, 1), micro_batch = most(l->micro_batch, 1), dp;
	*d = (struct division){ .b = b, .l = l, .tp = most(l->tp, 1), .pp = most(l->pp, 1) };
	d->ep = b->experts > 0 ? most(l->ep, 1) : 1;
	d->etp = b->experts > 0 ? most(l->etp, 1) : 1;
	d->chunks = d->pp > 1 ? most(l->chunks, 1) : 1;
	dp = l->devices / (d->tp * cp * d->pp);
	d->group = dp * cp;
	d->shard = l->shard > 0 ? least(l->shard, d->group) : d->group;
	d->zero = (int)most(0, least(l->zero, 3));
	if (d->zero > 0 && d->shard > 1)
		d->same = most(1, l->devices / (d->pp * d->ep * d->etp) * d->shard / d->group);
	else
		d->same = 1;
	d->micro_batches = d->pp;
	if (l->micro_batches > 0)
		d->micro_batches = l->micro_batches;
	else if (l->global_batch > 0)
		d->micro_batches = most(1, l->global_batch / (dp * micro_batch));
	d->tokens = micro_batch * b->seq / cp;
	d->by_tp = 1 / d->tp;
	d->by_sequence = l->sp ? d->by_tp : 1;
	const enum fo_memory_products p = products_of(l->type);
	const bool small = p == FO_MEMORY_SMALL || (p == FO_MEMORY_OF_JOB && b->ways.small);
	d->te_small = small && b->ways.keeper == FO_MEMORY_BY_MEGATRON;
	d->state = &b->state[p][l->format][d->zero];
}

/* ---- a stage ---- */

/* One device of a pipeline stage. */
struct stage {
	double index, layers, dense, moe;
	bool first, last;
	double whole, experts; /* weights on the device; `whole` has all but the experts, which other ranks shard */
	double layer, end;     /* weights of the largest layer, and of the larger end, on the device */
};

/* Layers are dealt evenly unless a file says otherwise; where that does not come out, the fullest stage has one more.
 * Dense layers of a mixture come first. */
static void stage_of(const struct division *d, double index, struct stage *o)
{
	const struct fo_memory_base *m = d->b;
	const struct fo_predict_uneven *u = &d->l->uneven;
	double each = m->layers / d->pp, before = (double)(int64_t)each * index;
	*o = (struct stage){
		.index = index, .layers = up_to_whole(each), .first = index == 0, .last = index == d->pp - 1
	};
	if (fo_predict_is_uneven(u)) {
		before = o->first ? 0 : u->first + (index - 1) * u->middle;
		o->layers = o->first ? u->first : u->middle;
		o->layers = o->last ? u->last : o->layers;
	}
	o->dense = m->moe > 0 ? least(o->layers, most(0, m->dense - before)) : o->layers;
	o->moe = o->layers - o->dense;
	o->experts = m->moe > 0 ? o->moe * m->experts * m->expert / (d->ep * d->etp) : 0;
	o->whole = m->norms * o->layers + m->router * o->moe +
		   (m->attention * o->layers + m->ffn_dense * o->dense + m->shared * o->moe) * d->by_tp;
	o->end = most(m->embedding, m->head) * d->by_tp;
	if (o->first)
		o->whole += m->embedding * d->by_tp;
	if (o->last && !(m->tied && o->first))
		o->whole += m->head * d->by_tp;
	if (o->moe > 0)
		o->layer = (m->attention + m->shared) * d->by_tp + m->norms + m->router + o->experts / o->moe;
	else
		o->layer = (m->attention + m->ffn_dense) * d->by_tp + m->norms;
}

/* ---- states ---- */

/* Weights of a device that `at` and later ZeRO stages shard, as if each were held once. */
static double held(const struct division *d, const struct stage *s, int at)
{
	return d->zero >= at ? s->whole / d->shard + s->experts / d->same : s->whole + s->experts;
}

/* Adapters on a stage of a device. Low: on queries and values; high: on every linear layer of every expert. LoRA (Hu et
 * al. 2021): a linear layer of n outputs from d inputs has rank x (n + d) weights more. */
static struct fo_range adapter_weights(const struct division *d, const struct stage *s)
{
	const struct fo_memory_base *m = d->b;
	double least_of = m->h + m->q + m->h + m->kv, attention = least_of + (m->h + m->kv) + (m->v + m->h);
	double dense = m->matrices * (m->h + m->ffn);
	double moe = m->matrices * (m->experts * (m->h + m->expert_ffn) + m->h + m->shared_ffn);
	struct fo_range n = { m->ways.rank.low * least_of * s->layers * d->by_tp,
			      m->ways.rank.high * (attention * s->layers + dense * s->dense + moe * s->moe) };
	if (m->ways.adapters_whole) /* commonly the embedding and the head */
		n.high += s->first * m->embedding + s->last * m->head;
	return n;
}

/* Frozen weights, of which only matrices of layers are quantised, and adapters with all their states. */
static void adapter_states(const struct division *d, const struct stage *s, struct fo_memory *o)
{
	const struct fo_memory_base *m = d->b;
	struct fo_range trained = adapter_weights(d, s), base = m->ways.frozen;
	double ends = least(s->whole, s->end * (m->tied ? s->first || s->last : s->first + s->last)), by = 1,
	       experts = 1;
	if (d->zero >= 3)
		by = d->shard, experts = d->same;
	double matrices = (s->whole - ends) / by + s->experts / experts;
	struct fo_range rest = base.low < 2 ? (struct fo_range){ 2, 4 } : base;
	/* An adapter's own weight and its gradient are kept in 16 or in 32 bits, with a master where they are 16. */
	struct fo_range two_or_four = { 2, 4 }, states = { m->ways.moments.low, m->ways.moments.high + 4 };
	o->part[FO_PREDICT_WEIGHTS] = fo_range_plus(
		fo_range_plus(fo_range_scaled(matrices, base), fo_range_scaled(ends / by, rest)),
		fo_range_times(trained, fo_range_scaled(1 / by, two_or_four)));
	o->part[FO_PREDICT_GRADIENTS] = fo_range_times(trained,
						       fo_range_scaled(1 / (d->zero >= 2 ? d->shard : 1), two_or_four));
	o->part[FO_PREDICT_STATES] = fo_range_times(trained,
						    fo_range_scaled(1 / (d->zero >= 1 ? d->shard : 1), states));
}

static void move_out(struct fo_memory *o, int part, bool out)
{
	if (!out)
		return;
	o->host = fo_range_plus(o->host, o->part[part]);
	o->part[part] = fo_range(0);
}

static void states(const struct division *d, const struct stage *s, struct fo_memory *o)
{
	const struct fo_memory_ways *w = &d->b->ways;
	if (w->adapters) {
		adapter_states(d, s, o);
	} else {
		struct fo_range gradient = d->state->gradient;
		o->part[FO_PREDICT_WEIGHTS] = fo_range_scaled(held(d, s, 3), d->state->weight);
		o->part[FO_PREDICT_GRADIENTS] = fo_range_scaled(held(d, s, 2), gradient);
		o->part[FO_PREDICT_STATES] = fo_range_scaled(held(d, s, 1), d->state->optimizer);
		/* A pipeline with FSDP sums gradients whole until its last micro-batch, in the type of their
		 * reduction. */
		if (d->zero == 3 && d->pp > 1 && d->shard > 1 && w->keeper == FO_MEMORY_BY_TORCH)
			o->part[FO_PREDICT_GRADIENTS] = fo_range_plus(
				o->part[FO_PREDICT_GRADIENTS],
				fo_range_scaled(s->whole + s->experts, fo_range_between(2, w->reduce)));
		if (w->in_backward) /* a layer's gradient at a time */
			o->part[FO_PREDICT_GRADIENTS] = fo_range_scaled(2 * s->layer / (d->zero >= 2 ? d->shard : 1),
									gradient);
	}
	move_out(o, FO_PREDICT_STATES, w->offload_states);
	move_out(o, FO_PREDICT_WEIGHTS, w->offload_weights);
}

/* ---- buffers ---- */

/* Weights that FSDP or ZeRO-3 gathers for use, in 16 bits. */
static struct fo_range gathered(const struct division *d, const struct stage *s)
{
	const struct fo_memory_ways *w = &d->b->ways;
	double layer = s->layer, end = s->first || s->last ? s->end : 0;
	if (w->keeper == FO_MEMORY_BY_DEEPSPEED)
		return fo_range_between(4 * layer, 2 * most(2 * layer, least(w->live, s->whole) + layer));
	if (d->l->keeps_weights)
		return fo_range_scaled(2, fo_range_between(s->whole, s->whole + layer));
	/* The unit in use and the next one, with the gradient of one, and its copy for the reduction. */
	return fo_range_between(4 * layer, 4 * layer + (2 + w->reduce) * most(layer, end) + 2 * end);
}

/* Frozen weights have no buckets of gradients: layers that are gathered for use, matrices that are written out of 4 or
 * 8 bits for use (of one layer at most), and the adapters' buckets. */
static struct fo_range adapter_buffers(const struct division *d, const struct stage *s)
{
	struct fo_range b = { 0, 0 }, frozen = d->b->ways.frozen;
	double end = s->first || s->last ? s->end : 0;
	if (d->zero == 3)
		b = fo_range_between(frozen.low * s->layer, 4 * most(2 * s->layer, s->layer + end));
	if (frozen.low < 2)
		b.high += 2 * s->layer;
	b.high += 4 * adapter_weights(d, s).high;
	return b;
}

/* Transformer Engine hands autograd one empty weight gradient of each shape where sums are made inside the matmul. */
static struct fo_range empty_gradients(const struct division *d, const struct stage *s)
{
	const struct fo_memory_base *m = d->b;
	enum fo_memory_said fused = m->ways.sums_fused;
	if (m->ways.keeper != FO_MEMORY_BY_MEGATRON || fused == FO_MEMORY_NO)
		return fo_range(0);
	double bytes = m->attention;
	if (s->dense > 0)
		bytes += m->ffn_dense;
	if (s->moe > 0)
		bytes += (m->expert + m->shared) * d->tp / d->etp;
	if (s->last)
		bytes += m->head;
	bytes *= 2 * d->by_tp;
	return (struct fo_range){ fused == FO_MEMORY_YES ? bytes : 0, bytes };
}

static struct fo_range buckets(const struct division *d, const struct stage *s)
{
	const struct fo_memory_ways *w = &d->b->ways;
	double whole = s->whole + s->experts;
	if (w->adapters)
		return adapter_buffers(d, s);
	if (d->zero == 3)
		return gathered(d, s);
	if (d->group == 1)
		return fo_range(0);
	if (w->keeper == FO_MEMORY_BY_DEEPSPEED) { /* one to reduce and one to gather, twice where they overlap */
		double two = w->bucket > 0 ? w->bucket : 2 * 5e8;
		return fo_range_between(least(two, 2 * whole), least(4 * two, 4 * whole));
	}
	if (w->keeper == FO_MEMORY_BY_MEGATRON || w->keeper == FO_MEMORY_BY_FLATOUT)
		return fo_range(0); /* gathers and reductions are done in place */
	if (d->zero > 0)
		return (struct fo_range){ 0, w->bucket > 0 ? 2 * w->bucket : 100e6 };
	/* DDP copies gradients into buckets unless these are views of them. */
	return (struct fo_range){ 0, d->state->gradient.high * whole };
}

/* Temporaries of an optimizer that is not one kernel: lists of whole tensors, up to 8 bytes of a weight. They are there
 * when activations are not. */
static double optimizer_step(const struct division *d, const struct stage *s)
{
	const struct fo_memory_ways *w = &d->b->ways;
	if (w->optimizer_fused == FO_MEMORY_YES || w->keeper == FO_MEMORY_BY_MEGATRON ||
	    w->keeper == FO_MEMORY_BY_FLATOUT)
		return 0;
	if (w->adapters)
		return 8 * adapter_weights(d, s).high;
	return 8 * (s->whole + s->experts) / (d->zero >= 1 ? d->shard : 1);
}

/* ---- activations ---- */

static double on_device(const struct division *d, const struct fo_memory_token *t)
{
	return t->split * d->by_tp + t->sequence * d->by_sequence + t->full;
}

/* Megatron's modules that are computed again take away from what a layer keeps. */
static double without_modules(const struct division *d, int end, bool moe)
{
	const struct fo_memory_base *m = d->b;
	const struct fo_predict_layout *l = d->l;
	struct fo_memory_token t = m->token[end][moe].all;
	double unfused = end ? m->ways.unfused.high : m->ways.unfused.low;
	t.split -= l->recompute_core * fo_memory_scores(m);
	t.sequence -= l->again & FO_PREDICT_AGAIN_NORM ? 4 * m->h : 0;
	if (moe && l->again & FO_PREDICT_AGAIN_EXPERTS) {
		struct fo_memory_token f = fo_memory_ffn(m, true, unfused);
		t.split -= f.split, t.sequence -= f.sequence - 4 * m->h, t.full -= f.full;
	} else if (moe && l->again & FO_PREDICT_AGAIN_ACTIVATION) {
		t.sequence -= m->active * 2 * m->expert_ffn;
	}
	if (!moe && l->again & FO_PREDICT_AGAIN_FFN)
		t.split -= fo_memory_own(m, m->ffn, unfused);
	if (l->again & FO_PREDICT_AGAIN_UP && m->mla)
		t.split -= 2 * (m->q + m->kv + m->v);
	return on_device(d, &t);
}

/* torchtitan's kind keeps also what reduce-scatters give, and with expert parallelism what is sent to experts. */
static double listed(const struct division *d, int end, bool moe)
{
	const struct fo_memory_base *m = d->b;
	struct fo_memory_token t = m->token[end][moe].listed;
	if (moe && !end && d->ep > 1)
		t.sequence += 2 * m->active * m->h;
	if (d->tp > 1)
		t.sequence += 4 * m->h;
	return on_device(d, &t);
}

/* Bytes that one layer keeps of a token, and those that are there besides while its backward runs: what is computed
 * again, and gradients of the widest part. Sequences that tensor parallelism gathers are whole. */
static void of_layer(const struct division *d, int end, bool moe, double *kept, double *working)
{
	const struct fo_memory_base *m = d->b;
	const struct fo_predict_layout *l = d->l;
	const double all = on_device(d, &m->token[end][moe].all);
	*working = on_device(d, &m->token[end][moe].working) + (d->tp > 1 ? 2 * m->h : 0);
	if (l->recompute_op) {
		*kept = listed(d, end, moe);
		*working = most(0, *working + all - *kept);
		return;
	}
	const bool modules = l->recompute_core || l->again;
	*kept = modules ? without_modules(d, end, moe) : all;
	if (d->te_small && !moe)
		*kept -= on_device(d, &m->token[end][moe].small);
	if (l->recompute_core)
		*working += fo_memory_scores(m) * d->by_tp;
	if (l->recompute > 0) {
		*kept = (1 - l->recompute) * *kept + l->recompute * 2 * m->h * d->by_sequence;
		*working += all;
	}
}

/* Micro-batches of which a stage holds activations, in whole stages. */
static double in_flight(const struct division *d, double index)
{
	double p = d->pp, v = d->chunks, m = d->micro_batches;
	if (p == 1)
		return 1;
	switch (d->l->schedule) {
	case FO_PREDICT_GPIPE: return m;
	case FO_PREDICT_ZERO_BUBBLE: return least(p, m); /* arXiv:2401.10241 */
	case FO_PREDICT_ZB_H2: return least(2 * p - 1, m);
	default: break;
	}
	if (v > 1)
		return least(2 * (p - index - 1) + (v - 1) * p + 1, m * v) / v;
	return least(p - index, m);
}

/* Adapters. Less: a frozen matrix needs no input for its own gradient, so that without adapters on the feed-forward the
 * inputs of its matrices are not kept: 2 h + 2 F of the 12 h + 4 kv + 6 F bytes of a token, some 0.3. More: with
 * dropout each adapter keeps its own copy of the input (2 bytes) and a mask (1): 5 inputs of h, one of q, one of F. */
static void with_adapters(const struct division *d, struct fo_range *bytes)
{
	const struct fo_memory_base *m = d->b;
	double width = m->moe > 0 ? m->active * m->expert_ffn + m->shared_ffn : m->ffn;
	bytes->low *= 0.7;
	bytes->high += d->tokens * 3 * (5 * m->h + m->q + width);
}

/* Pipelines of PyTorch and DeepSpeed (its pipe_buffers) keep what a stage gives out until its backward; PyTorch's may
 * be sharded by sequence parallelism. Megatron frees it once it is sent. */
static struct fo_range stage_outputs(const struct division *d)
{
	const double output = 2 * d->b->h * d->tokens;
	if (d->pp == 1)
		return fo_range(0);
	switch (d->b->ways.keeper) {
	case FO_MEMORY_BY_TORCH: return (struct fo_range){ output * d->by_tp, output };
	case FO_MEMORY_BY_DEEPSPEED: return fo_range(output);
	default: return fo_range(0);
	}
}

struct layers {
	struct fo_range kept[2], working[2]; /* of a layer by kind, one micro-batch */
};
static void layers_of(const struct division *d, struct layers *o)
{
	const struct fo_memory_base *m = d->b;
	for (int moe = 0; moe < 2; moe++) {
		if (moe ? !(m->moe > 0) : !(m->dense > 0))
			continue;
		double kept[2], working[2];
		for (int end = 0; end < 2; end++)
			of_layer(d, end, moe, &kept[end], &working[end]);
		o->kept[moe] = (struct fo_range){ d->tokens * kept[0], d->tokens * kept[1] };
		o->working[moe] = fo_range_scaled(d->tokens, fo_range_between(working[0], working[1]));
	}
}

static void activations(const struct division *d, const struct stage *s, const struct layers *y, struct fo_memory *o)
{
	const struct fo_memory_base *m = d->b;
	const struct fo_memory_ways *w = &m->ways;
	struct fo_range kept = fo_range(0), working = fo_range(0), logits = fo_range(0), all;
	/* All layers of the stage, and the widest of its kinds. */
	if (s->dense > 0)
		kept = fo_range_scaled(s->dense, y->kept[0]), working = y->working[0];
	if (s->moe > 0) {
		kept = fo_range_plus(kept, fo_range_scaled(s->moe, y->kept[1]));
		working.low = most(working.low, y->working[1].low);
		working.high = most(working.high, y->working[1].high);
	}
	if (w->adapters) {
		if (d->l->recompute < 1) {
			struct fo_range one = fo_range_scaled(1 / most(1, s->layers), kept);
			with_adapters(d, &one);
			kept = fo_range_scaled(s->layers, one);
		}
		with_adapters(d, &working);
	}
	double times = in_flight(d, s->index);
	all = kept;
	if (w->offload_activations) { /* two layers at a time are on the device */
		kept.low *= least(1, 2 / most(1, s->layers));
		kept.high *= least(1, 3 / most(1, s->layers));
	}
	if (s->last)
		logits = fo_range_scaled(d->tokens * m->vocab * d->by_tp, m->logit[d->tp > 1]);
	if (w->rows_vary)
		kept.low = working.low = logits.low = 0;
	/* The loss and a layer's backward do not overlap: the larger of both counts. */
	struct fo_range beyond = { most(0, working.low - logits.low), 0 };
	beyond.high = most(beyond.low, working.high - logits.high);
	kept = fo_range_scaled(times, kept);
	kept = fo_range_plus(kept, fo_range_scaled(times, stage_outputs(d)));
	o->part[FO_PREDICT_ACTIVATIONS] = fo_range_times(unlisted, fo_range_plus(kept, beyond));
	o->part[FO_PREDICT_LOGITS] = logits;
	if (w->offload_activations)
		o->host = fo_range_plus(o->host, fo_range_scaled(times, all));
}

/* ---- together ---- */

static struct fo_range sum(const struct fo_memory *o, int from, int to)
{
	struct fo_range r = o->part[from];
	for (int i = from + 1; i < to; i++)
		r = fo_range_plus(r, o->part[i]);
	return r;
}

/* Flatout's programs are planned apart; this estimate is widened to what they took. */
static void widen(struct fo_memory *o)
{
	for (int i = FO_PREDICT_ACTIVATIONS; i < FO_PREDICT_OVERHEAD; i++)
		o->part[i] = fo_range_times(planned, o->part[i]);
}

static void of_stage(const struct division *d, const struct layers *y, double index, struct fo_memory *o)
{
	struct stage s;
	*o = (struct fo_memory){ .stage = index };
	stage_of(d, index, &s);
	states(d, &s, o);
	activations(d, &s, y, o);
	o->part[FO_PREDICT_BUFFERS] = fo_range_plus(fo_range_plus(buckets(d, &s), empty_gradients(d, &s)), workspaces);
	if (d->b->ways.keeper == FO_MEMORY_BY_FLATOUT)
		widen(o);
	struct fo_range busy = sum(o, FO_PREDICT_ACTIVATIONS, FO_PREDICT_OVERHEAD);
	double step = optimizer_step(d, &s);
	if (step > busy.high)
		o->part[FO_PREDICT_BUFFERS].high += step - busy.high;
	struct fo_range own = sum(o, 0, FO_PREDICT_OVERHEAD);
	struct fo_range reserve = fo_range_plus(context, fo_range_times(fragments, own));
	o->part[FO_PREDICT_OVERHEAD] = d->l->devices > 1 ? fo_range_plus(reserve, nccl) : reserve;
	o->total = fo_range_plus(own, o->part[FO_PREDICT_OVERHEAD]);
}

/* The stage at `index`, where it holds more than *out. */
static void take_fuller(const struct division *d, const struct layers *y, double index, struct fo_memory *out)
{
	struct fo_memory other;
	of_stage(d, y, index, &other);
	if (other.total.high > out->total.high)
		*out = other;
}

void fo_memory_of(const struct fo_memory_base *b, const struct fo_predict_layout *l, struct fo_memory *out)
{
	struct division d;
	struct layers y;
	divide(&d, b, l);
	layers_of(&d, &y);
	of_stage(&d, &y, 0, out);
	/* The first stage has an embedding and as many micro-batches as any; a stage between can have more of it only
	 * where layers or stages differ. */
	if (d.pp > 2 && (fo_predict_is_uneven(&l->uneven) || (b->moe > 0 && b->dense > 0)))
		take_fuller(&d, &y, 1, out);
	if (!(d.pp > 1))
		return;
	if (b->moe > 0 && b->dense > 0) { /* the first stage that has experts alone */
		const double stage = up_to_whole(b->dense / most(1, (double)(int64_t)(b->layers / d.pp)));
		if (stage > 1 && stage < d.pp - 1)
			take_fuller(&d, &y, stage, out);
	}
	if (l->again_stages > 0 && l->again_stages < d.pp) { /* the stages behind these recompute nothing */
		struct fo_predict_layout rest = *l;
		rest.recompute = 0, rest.recompute_core = rest.recompute_ffn = rest.recompute_op = false;
		rest.again = 0;
		divide(&d, b, &rest);
		layers_of(&d, &y);
		take_fuller(&d, &y, l->again_stages, out);
		take_fuller(&d, &y, d.pp - 1, out);
		return;
	}
	take_fuller(&d, &y, d.pp - 1, out);
}
