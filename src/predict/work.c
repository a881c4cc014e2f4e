/* What a division costs: products, bytes, messages of one layer and one micro-batch on one device. docs/predict.md has
 * the formulas. */
#include "predict/predict_int.h"

#include <string.h>

/* Tiles of cuBLAS with what each reaches beside the largest, and how often the inner dimension may be divided. */
static const struct tile {
	int rows_log2, columns_log2;
	double rate;
} tiles[] = { { 8, 7, 1. }, { 7, 8, 1. }, { 7, 7, .93 }, { 6, 7, .8 }, { 7, 6, .8 }, { 6, 6, .62 } };

/* How many times longer than ideal a product of m x n x k takes: whole tiles in whole waves over `units`, the best
 * tile; a product of few tiles may divide k. */
static double idle(double m, double n, double k, double units)
{
	double best = INFINITY, per = units / (m * n), wave = 1 / units;
	int64_t mi = (int64_t)up_to_whole(m), ni = (int64_t)up_to_whole(n);
	for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
		const struct tile *t = &tiles[i];
		int64_t a = (mi + (1 << t->rows_log2) - 1) >> t->rows_log2,
			b = (ni + (1 << t->columns_log2) - 1) >> t->columns_log2;
		double count = (double)(a * b), area = (double)(1 << (t->rows_log2 + t->columns_log2)) / t->rate;
		for (int split = 1; split <= 4; split *= 2) {
			if (split > 1 && k < 512 * split)
				break;
			double w = up_to_whole(count * split * wave) * per * area / split;
			w *= split > 1 ? 1 + .04 * split : 1;
			best = w < best ? w : best;
			if (count * wave > 8)
				break; /* dividing such a one gains nothing */
		}
	}
	return best;
}

struct fo_predict_product fo_predict_product_of(double m, double n, double k, double units)
{
	return (struct fo_predict_product){ .flop = 2 * m * n * k,
					    .idle = idle(m, n, k, units),
					    .depth = 1 / k,
					    .bytes = 2 * (m * n + m * k + n * k) };
}

static void product(struct fo_predict_product p[3], double rows, double outputs, double inner, double units,
		    double gradient)
{
	const double m[3] = { rows, rows, outputs }, n[3] = { outputs, inner, inner }, k[3] = { inner, outputs, rows };
	for (int i = 0; i < 3; i++)
		p[i] = fo_predict_product_of(m[i], n[i], k[i], units);
	p[FO_PREDICT_WEIGHT].sums = gradient * outputs * inner;
}

double fo_predict_gradient_bytes(const struct fo_predict_job *j)
{
	return j->gradient_bytes > 0 ? j->gradient_bytes : fo_predict_style[j->style].gradient_bytes;
}

static double at_least(double x, double least) { return x > least ? x : least; }

/* Of a layout: numbers filled in, and what is wrong with it. */
static const char *shape(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_work *w)
{
	const struct fo_predict_model *m = &b->job.model;
	w->tp = at_least(l->tp, 1), w->cp = at_least(l->cp, 1), w->pp = at_least(l->pp, 1);
	w->ep = m->experts > 0 ? at_least(l->ep, 1) : 1;
	w->chunks = w->pp > 1 ? at_least(l->chunks, 1) : 1;
	w->micro_batch = at_least(l->micro_batch, 1);
	w->devices = l->devices;
	double ranks = w->tp * w->cp * w->pp;
	const double *const given[] = { &l->tp,        &l->cp,    &l->pp,          &l->ep,
					&l->chunks,    &l->shard, &l->micro_batch, &l->global_batch,
					&l->recompute, &l->etp,   &l->devices,     &l->again_stages };
	for (size_t i = 0; i < sizeof given / sizeof *given; i++)
		if (!(*given[i] >= 0 && *given[i] <= 1e9)) /* NAN, too */
			return "a number of the division is negative, not known or out of reach";
	if (!(l->devices >= 1))
		return "there are no devices";
	if (!(ranks <= l->devices))
		return "tp x cp x pp is more than all devices";
	w->dp = l->devices / ranks;
	if (w->pp > m->layers)
		return "there are more pipeline stages than layers";
	if (w->tp > m->heads)
		return "tensor parallelism is wider than the attention has heads";
	if (w->ep > at_least(m->experts, 1))
		return "expert parallelism is wider than there are experts";
	if (l->type < 0 || l->type > FO_PREDICT_TYPES || (unsigned)l->format >= FO_PREDICT_FORMATS)
		return "the number type or the format of states is none";
	w->type = fo_predict_type_of(&b->job, l);
	if (isnan(b->job.machine.peak[w->type]))
		return "the catalogue has no dense peak of this device for this number type";
	w->again_stages = w->pp > 1 && l->again_stages < w->pp ? l->again_stages : 0;
	double all = l->micro_batches > 0 ? l->micro_batches : l->global_batch / (w->dp * w->micro_batch);
	w->micro_batches = at_least(all, 1);
	return NULL;
}

static void links(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_work *w)
{
	const struct fo_predict_machine *d = &b->job.machine;
	w->in_node = at_least(fmin(d->per_node, w->devices), 1);
	w->node = d->node_byte_s, w->net = d->net_byte_s, w->net_share = d->net_share, w->pcie = d->pcie;
	w->tp_inside = w->tp <= w->in_node;
	w->cp_inside = w->tp * w->cp <= w->in_node;
	w->ep_inside = w->ep <= w->in_node;
	w->pp_inside = w->devices <= w->in_node || (l->stages_near && w->tp * w->cp * w->pp <= w->in_node);
	double group = w->dp * w->cp;
	/* Neighbours are ranks of tp, then cp, then dp, then stages; near stages are in front of dp. */
	w->data_node = at_least(w->in_node / (w->tp * (l->stages_near ? w->pp : 1)), 1);
	w->shard = l->shard > 0 ? fmin(l->shard, group) : group;
	w->replicate = group / w->shard;
	w->shard_node = fmin(w->data_node, w->shard);
	w->nodes = at_least(w->shard / w->shard_node, 1);
}

/* Experts: each of the local ones has a product of its own. */
static void experts(const struct fo_predict_base *b, struct fo_predict_work *w, double tokens)
{
	const struct fo_predict_model *m = &b->job.model;
	double local = m->experts / w->ep, each = at_least(tokens * m->top_k / w->tp / local, 1);
	double units = b->job.machine.units, gradient = 2 * fo_predict_gradient_bytes(&b->job);
	product(w->product[FO_PREDICT_UP], each, m->expert_ffn * (m->matrices - 1), m->hidden, units, gradient);
	product(w->product[FO_PREDICT_DOWN], each, m->hidden, m->expert_ffn, units, gradient);
	double share = m->moe_layers / m->layers;
	w->repeats[FO_PREDICT_UP] = w->repeats[FO_PREDICT_DOWN] = local * share;
	w->permuted = share * tokens * m->top_k * m->hidden * 16 / w->tp;
	w->all_to_all = share * tokens * m->top_k * m->hidden * 2 / w->tp;
	/* A token goes once to each other node that has one of its experts, and on from there by fast links. */
	double nodes = w->ep / at_least(fmin(w->in_node, w->ep), 1);
	w->all_to_all_net = share * tokens * m->hidden * 2 / w->tp * (nodes - 1) * (1 - pow(1 - 1 / nodes, m->top_k));
	w->local_experts = local;
	double wide = share * m->shared_ffn + (1 - share) * m->ffn;
	w->dense_too = wide > 0;
	if (!w->dense_too)
		return;
	product(w->dense_ffn[0], tokens, wide * (m->matrices - 1) / w->tp, m->hidden, units, gradient);
	product(w->dense_ffn[1], tokens, m->hidden, wide / w->tp, units, gradient);
}

/* Guess: a Mamba-2 layer works in chunks of 128 to 256 positions, at a sixth of attention's rate. */
#define STATE_AS_POSITIONS 3000
/* Times that its convolution, scan and gated norm read or write what the projection made. */
#define STATE_PASSES 6

/* Can Flatout train this? Its programs are counted as they are lowered. */
static bool is_own(const struct fo_predict_job *j)
{
	const struct fo_predict_model *m = &j->model;
	const bool plain = m->experts < 1 && m->matrices >= 3 && !(m->qkv_width > 0) && !(m->score_share > 0);
	return j->style == FO_PREDICT_STYLE_FLATOUT && plain && !j->lora && !j->attention;
}

static void layer(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_work *w)
{
	const struct fo_predict_job *j = &b->job;
	const struct fo_predict_model *m = &j->model;
	const struct fo_predict_style *s = &fo_predict_style[j->style];
	double t = w->tp, tokens = w->micro_batch * j->seq / w->cp, units = j->machine.units, h = m->hidden;
	w->own.on = is_own(j);
	double queries = m->heads * m->head_dim, values = m->value_dim > 0 ? m->value_dim : m->head_dim;
	double gradient = 2 * fo_predict_gradient_bytes(j); /* read and written */
	double qkv = m->qkv_width > 0 ? m->qkv_width : (m->heads + 2 * m->kv_heads) * m->head_dim;
	if (w->own.on && w->cp > 1) { /* keys travel, so they are apart */
		qkv = queries;
		product(w->own.keys, tokens, m->kv_heads * m->head_dim / t, h, units, gradient);
	}
	product(w->product[FO_PREDICT_QKV], tokens, qkv / t, h, units, gradient);
	product(w->product[FO_PREDICT_OUT], tokens, h, m->heads * values / t, units, gradient);
	for (int i = 0; i < FO_PREDICT_SITES; i++)
		w->repeats[i] = 1;
	double wide = m->ffn, share = m->moe_layers / m->layers;
	w->moe = m->experts > 0;
	if (w->moe) {
		experts(b, w, tokens);
		wide = share * (m->top_k * m->expert_ffn + m->shared_ffn) + (1 - share) * m->ffn;
	} else {
		product(w->product[FO_PREDICT_UP], tokens, m->ffn * (m->matrices - 1) / t, h, units, gradient);
		product(w->product[FO_PREDICT_DOWN], tokens, h, m->ffn / t, units, gradient);
	}
	product(w->product[FO_PREDICT_HEAD], tokens, m->vocab / t, h, units, gradient);
	bool sp = l->sp && t > 1;
	double seen = m->window > 0 && m->window < j->seq ? 2 * m->window * (1 - m->window / (2 * j->seq)) : j->seq;
	if (m->score_share > 0)
		seen = m->score_share * seen + (1 - m->score_share) * STATE_AS_POSITIONS;
	w->attention_flop = 2 * tokens * seen * queries / t * (j->attention_share > 0 ? j->attention_share : 1);
	w->scores = tokens * j->seq * m->heads / t;
	w->dim64 = fmin(fmax((128 - m->head_dim) / 64, 0), 1);
	w->seq = seen;
	w->moved = tokens *
		   (21 * h / (sp ? t : 1) + 4 * (queries + m->kv_heads * m->head_dim) / t + 2 * m->matrices * wide / t);
	if (m->score_share > 0)
		w->state_moved = STATE_PASSES * 2 * tokens * (1 - m->score_share) * qkv / t;
	w->fp8 = w->type == FO_PREDICT_FP8 || w->type == FO_PREDICT_MXFP8 || w->type == FO_PREDICT_FP4;
	w->block = w->fp8 && w->type != FO_PREDICT_FP8;
	w->casts[0] = tokens * 4 * (2 * h + (queries + wide) / t);
	w->casts[1] = tokens * 4 *
		      ((queries + 2 * m->kv_heads * m->head_dim) / t + 2 * h + (m->matrices - 1) * wide / t);
	if (w->moe) /* each chosen expert has its own copy of the input */
		w->casts[0] += 4 * tokens * share * m->top_k * h / t,
			w->casts[1] += 4 * tokens * share * m->top_k * h / t;
	w->logits = tokens * m->vocab / t;
	w->logit_bytes = j->logit_bytes > 0 ? j->logit_bytes : s->logit_bytes;
	if (w->own.on && t <= 1 && !(j->logit_bytes > 0))
		w->logit_bytes = 4; /* one walk turns logits into their gradient; ranks of a tp group take three */
	w->tp_bytes = 2 * tokens * h;
	w->cp_bytes = 4 * tokens * m->kv_heads * m->head_dim / t * w->cp; /* of which a rank has its own part */
	w->send_bytes = 2 * tokens * h / (sp ? t : 1);
}

static void once(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_work *w)
{
	const struct fo_predict_job *j = &b->job;
	const struct fo_predict_model *m = &j->model;
	const struct fo_predict_style *s = &fo_predict_style[j->style];
	double mine = b->layer_params + b->ffn_params * (w->moe ? w->tp / w->ep : 1);
	w->cast_weights = 4 * mine / w->tp / w->micro_batches;
	w->layer_bytes = 2 * (b->layer_params + b->ffn_params) / w->tp;
	w->gradient_bytes = fo_predict_gradient_bytes(j) * (b->layer_params + b->ffn_params) / w->tp;
	if (w->ep > 1)
		w->layer_bytes = 2 * mine / w->tp, w->gradient_bytes = fo_predict_gradient_bytes(j) * mine / w->tp;
	w->local_params = (m->layers * mine / w->pp + (w->pp > 1 ? 1 : 2 - m->tied) * m->vocab * m->hidden) / w->tp;
	w->zero = l->zero;
	w->fsdp = l->zero >= 3;
	w->keeps_weights = w->fsdp && l->keeps_weights;
	const double moved = j->optimizer_bytes > 0 ? j->optimizer_bytes : s->optimizer_bytes;
	w->optimizer_bytes = w->local_params / (l->zero >= 1 ? w->shard : 1) * moved *
			     fo_predict_format_row[fo_predict_format_of(j, l)].update;
	w->trains = !j->lora;
	w->again = l->recompute, w->again_core = l->recompute_core, w->again_ffn = l->recompute_ffn;
	w->layers = m->layers;
	w->uneven = l->uneven;
	w->schedule = l->schedule;
	w->year = j->year;
	w->habit = j->habit > 0 ? j->habit : 1;
}

static int attention_constant(enum fo_predict_attention kind, enum fo_predict_family family)
{
	if (kind == FO_PREDICT_ATTENTION_TRITON && family <= FO_PREDICT_HOPPER)
		return FO_X_ATT_TRITON_AMPERE + (int)family;
	if (kind == FO_PREDICT_ATTENTION_SDPA)
		return FO_X_ATT_SDPA_AMPERE + (int)family;
	return FO_X_ATT_FUSED_AMPERE + (int)family;
}

static int part_constant(const struct fo_predict_machine *d)
{
	if (!strncmp(d->name, "GB300", 5))
		return FO_X_PART_GB300;
	if (!strncmp(d->name, "B200", 4))
		return FO_X_PART_B200;
	if (!strncmp(d->name, "H200", 4))
		return FO_X_PART_H200;
	if (!strncmp(d->name, "H20-", 4))
		return FO_X_PART_H20;
	if (!strncmp(d->name, "RTX-4090", 8))
		return FO_X_PART_RTX4090;
	return d->family == FO_PREDICT_RTX && d->units < 60 ? FO_X_PART_RTX_SMALL : -1;
}

static void constants_read(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			   struct fo_predict_work *w)
{
	const struct fo_predict_job *j = &b->job;
	const struct fo_predict_style *s = &fo_predict_style[j->style];
	const struct fo_predict_machine *d = &j->machine;
	int small = (w->type == FO_PREDICT_FP8 || w->type == FO_PREDICT_MXFP8) + 2 * (w->type == FO_PREDICT_FP4);
	w->ceil_head = FO_X_CEIL_AMPERE_BF16 + 3 * (int)d->family;
	w->ceil = w->ceil_head + small;
	enum fo_predict_attention kind = j->attention > 0 ? (enum fo_predict_attention)(j->attention - 1)
							  : s->attention;
	w->attention = attention_constant(kind, d->family);
	w->stored = kind == FO_PREDICT_ATTENTION_STORED;
	w->plain_exchange = w->stored && s->attention == FO_PREDICT_ATTENTION_STORED;
	w->part = part_constant(d);
	w->habits = (int)fo_predict_habits_of(j->style);
	w->eager_data = w->habits == FO_EAGER || w->habits == FO_COMPILED;
	w->rows = w->type == FO_PREDICT_MXFP8 && d->family == FO_PREDICT_HOPPER && w->eager_data;
	w->graphs = l->graphs > 0;
	w->dp_overlap = l->dp_overlap;
	w->tp_exposed = l->tp_overlap < 0 ? 1 : 0;
	/* PyTorch's memory that ranks share does not leave a host. */
	w->tp_hidden = l->tp_overlap > 0 && w->tp <= (d->per_host > 0 ? d->per_host : 8);
	w->rate = b->rate[w->type], w->rate_head = b->rate[FO_PREDICT_BF16];
	if (small == 2 && w->moe) /* grouped products in FP4 are no faster: Megatron-Bridge, Nemotron 3 Super */
		w->ceil--, w->rate = b->rate[FO_PREDICT_FP8];
	w->peak_bf16 = d->peak[FO_PREDICT_BF16] * (d->power > 0 ? d->power : 1), w->memory_byte_s = d->memory_byte_s;
	w->sustained = d->sustained;
	w->young = d->family == FO_PREDICT_BLACKWELL;
	w->ring = w->cp > 2 && w->eager_data;
}

void fo_predict_shape_of(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_work *w)
{
	*w = (struct fo_predict_work){ 0 };
	w->wrong = shape(b, l, w);
	if (w->wrong)
		return;
	links(b, l, w);
	w->moe = b->job.model.experts > 0;
}

void fo_predict_work_again(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			   struct fo_predict_work *w)
{
	w->wrong = shape(b, l, w);
	if (w->wrong)
		return;
	links(b, l, w);
	constants_read(b, l, w);
	once(b, l, w);
	fo_predict_own_of(b, l, w);
}

void fo_predict_work_of(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_work *w)
{
	fo_predict_shape_of(b, l, w);
	if (w->wrong)
		return;
	constants_read(b, l, w);
	layer(b, l, w);
	once(b, l, w);
	fo_predict_own_of(b, l, w);
}
