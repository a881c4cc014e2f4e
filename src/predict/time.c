/* Seconds of a step: the counts of work.c over the constants' rates. docs/predict.md has the formulas. */
#include "predict/pipeline.h"
#include "predict/time_int.h"

#include <string.h>

static double experts_age(const struct now *n) { return fo_predict_aged(n->w, n->x[FO_X_EXPERT_YEAR], 2025.6); }

static struct products products(const struct now *n)
{
	const struct fo_predict_work *w = n->w;
	struct products out = { .up = 0 };
	if (w->known)
		return (struct products){ { w->known_pass[0], w->known_pass[1], w->known_pass[2] }, w->known_up };
	double slower = w->moe ? n->x[FO_X_EXPERT_UNEVEN] / n->x[FO_X_EXPERT_RATE] * experts_age(n) : 1;
	for (int i = 0; i < FO_PREDICT_HEAD; i++) {
		bool routed = w->moe && i >= FO_PREDICT_UP;
		double times = w->repeats[i] * (routed ? slower : 1);
		for (int pass = 0; pass < 3; pass++) {
			double t = times * fo_predict_product_s(n, &w->product[i][pass], n->linear);
			out.pass[pass] += t;
			if (i == FO_PREDICT_UP && pass == 0)
				out.up = t;
		}
	}
	for (int pass = 0; w->own.on && w->cp > 1 && pass < 3; pass++)
		out.pass[pass] += 2 * fo_predict_product_s(n, &w->own.keys[pass], n->linear);
	for (int i = 0; w->dense_too && i < 2; i++)
		for (int pass = 0; pass < 3; pass++)
			out.pass[pass] += fo_predict_product_s(n, &w->dense_ffn[i][pass], n->linear);
	if (!w->trains)
		out.pass[FO_PREDICT_WEIGHT] = 0;
	return out;
}

static double attention_s(const struct now *n)
{
	const struct fo_predict_work *w = n->w;
	const double *x = n->x;
	if (w->stored)
		return 2 * w->attention_flop / (n->head * .8) + w->scores * 13 * x[FO_X_ATT_STORED] / n->memory;
	double ring = w->ring ? 1 + x[FO_X_ATT_RING] * (1 - 2 / w->cp) : 1;
	return ring * w->attention_flop / fo_predict_attention_rate(n) + x[FO_X_ATT_START] * 1e-6;
}

/* Device and host work side by side: the slower one, and a little more where both are alike. */
static double beside(double device, double host)
{
	double a = device * device, b = host * host;
	return sqrt(sqrt(a * a + b * b));
}

static void layer_memory(const struct now *n, struct layer *y)
{
	const struct fo_predict_work *w = n->w;
	const double *x = n->x;
	double moved = (w->moved + w->state_moved) * x[FO_X_U_MCORE + w->habits] / n->memory;
	y->memory[0] = moved, y->memory[1] = 1.6 * moved;
	if (w->own.on)
		fo_predict_own_memory(n, y);
	if (w->fp8) {
		double cast = x[FO_X_CAST8] * (w->block ? x[FO_X_CAST_BLOCK] : 1) * n->age / n->memory;
		y->memory[0] += (w->casts[0] + w->cast_weights) * cast;
		y->memory[1] += w->casts[1] * cast;
	}
	if (w->moe) {
		double permuted = w->permuted * x[FO_X_EXPERT_TRAFFIC] * experts_age(n) / n->memory;
		y->memory[0] += permuted, y->memory[1] += permuted;
	}
}

static void layer_messages(const struct now *n, struct layer *y)
{
	const struct fo_predict_work *w = n->w;
	const double *x = n->x;
	double exposed = x[FO_X_TP_MCORE + w->habits];
	if (w->tp_exposed > 0) /* a stack that hides nothing unless told may lose more than the messages take */
		exposed = most(exposed, w->tp_exposed);
	else if (w->tp_hidden && exposed > x[FO_X_TP_ASYNC])
		exposed = x[FO_X_TP_ASYNC];
	double tensor = 4 * fo_predict_ring_s(n, w->tp_bytes, w->tp, w->tp_inside, w->in_node);
	y->tensor[0] = tensor * exposed, y->tensor[1] = tensor * exposed * 1.25;
	double hidden = tensor * (1 - exposed) * x[FO_X_TAX];
	y->products.pass[FO_PREDICT_FORWARD] += hidden;
	y->products.pass[FO_PREDICT_INPUT] += hidden;
	if (w->own.on) {
		fo_predict_own_tensor(n, tensor / 4, exposed, y);
		y->products.pass[FO_PREDICT_INPUT] += (tensor * exposed - y->tensor[1]) * x[FO_X_TAX];
	}
	double keys = fo_predict_ring_s(n, w->cp_bytes, w->cp, w->cp_inside, most(1, w->in_node / w->tp));
	y->context[0] = w->cp > 1 ? most(0, keys - y->attention[0]) + x[FO_X_CP] * keys : 0;
	y->context[1] = 2 * y->context[0];
	if (w->own.on && w->cp > 1)
		fo_predict_own_context(n, y);
	if (w->moe && w->ep > 1) {
		double inner = w->all_to_all * (w->ep - 1) / w->ep / n->node, outer = w->all_to_all_net / n->net;
		double sent = most(inner, outer) * x[FO_X_EXPERT_UNEVEN];
		y->expert = 2 * (2e-6 * x[FO_X_NODE_START] + sent) * x[FO_X_EXPERT_SENT] * experts_age(n);
	}
}

static void layer_again(const struct now *n, struct layer *y)
{
	const struct fo_predict_work *w = n->w;
	double rest = 1 - w->again;
	y->again = w->own.on ? fo_predict_own_again(n, y) : w->again * y->pass[0];
	if (w->again_core)
		y->again += rest * (w->stored ? y->attention[0] : .5 * y->memory[0]);
	if (w->again_ffn)
		y->again += rest * y->products.up;
}

/* Fully sharded weights: gathered for each pass, their gradients scattered behind backward. */
static void layer_shards(const struct now *n, struct layer *y)
{
	const struct fo_predict_work *w = n->w;
	double backward = y->pass[1] + y->again, few = n->x[FO_X_FSDP];
	if (!w->fsdp) {
		y->data[0] = y->data[1] = 0;
		return;
	}
	double gather = fo_predict_spread_s(n, w->layer_bytes, w->shard, w->shard_node, w->nodes);
	double scatter = w->trains ? fo_predict_spread_s(n, w->gradient_bytes, w->shard, w->shard_node, w->nodes) : 0;
	if (w->own.on)
		fo_predict_own_shards(n, y, &gather, &scatter);
	double behind = scatter + (w->keeps_weights ? 0 : gather);
	if (w->dp_overlap < 0) {
		y->data[0] = gather, y->data[1] = behind;
		return;
	}
	y->data[0] = most(y->pass[0], gather) + few * least(y->pass[0], gather) - y->pass[0];
	y->data[1] = most(backward, behind) + few * least(backward, behind) - backward;
}

static void layer_of(const struct now *n, struct layer *y)
{
	const struct fo_predict_work *w = n->w;
	const double *x = n->x;
	*y = (struct layer){ .products = products(n) };
	if (w->own.on && w->trains)
		y->products.pass[FO_PREDICT_WEIGHT] -= fo_predict_own_stored(n, w->own.matrices);
	y->attention[0] = attention_s(n);
	y->attention[1] = (w->stored ? 2.1 : 2.5) * y->attention[0];
	layer_memory(n, y);
	layer_messages(n, y);
	double launches = w->graphs ? x[FO_X_HOST_GRAPHS] : x[FO_X_HOST_MCORE + w->habits];
	launches += w->tp > 1 && !w->graphs ? x[FO_X_HOST_TP] * (w->habits != FO_GRAPHS && w->habits != FO_XLA) : 0;
	launches *= 1e-6;
	if (w->moe && !w->graphs)
		launches *= most(1, (x[FO_X_EXPERT_HOST] + x[FO_X_EXPERT_EACH] * w->local_experts) * experts_age(n));
	const double *p = y->products.pass;
	double device[2] = { p[0] + y->attention[0] + y->memory[0] + y->tensor[0] + y->context[0] + y->expert,
			     p[1] + p[2] + y->attention[1] + y->memory[1] + y->tensor[1] + y->context[1] + y->expert };
	for (int i = 0; i < 2; i++) {
		y->pass[i] = beside(device[i], launches);
		y->host[i] = y->pass[i] - device[i];
	}
	layer_again(n, y);
	layer_shards(n, y);
}

/* Gradients and weights that are exchanged once a step. */
static double exchange_s(const struct now *n, const struct layer *y)
{
	const struct fo_predict_work *w = n->w;
	double gradient = w->gradient_bytes / (w->layer_bytes / 2);
	if (w->own.on)
		return fo_predict_own_exchange(n, y);
	if (!w->trains || w->shard * w->replicate <= 1)
		return 0;
	if (w->fsdp) {
		if (w->replicate <= 1)
			return 0;
		double part = w->local_params * gradient / w->shard; /* an all-reduce among replicas, behind backward */
		double near = least(most(1, w->data_node / w->shard), w->replicate);
		double all = 2 * fo_predict_spread_s(n, part, w->replicate, near, w->replicate / near);
		return most(0, all - w->layers / w->pp * y->pass[1]) + n->x[FO_X_DATA] * all;
	}
	double ranks = w->shard * w->replicate, in_node = least(w->data_node, ranks);
	double nodes = most(1, ranks / in_node);
	double scatter = fo_predict_spread_s(n, gradient * w->local_params, ranks, in_node, nodes),
	       gather = fo_predict_spread_s(n, 2 * w->local_params, ranks, in_node, nodes);
	if (w->dp_overlap < 0 || (w->plain_exchange && !w->dp_overlap))
		return scatter + gather;
	double share = n->x[FO_X_DATA];
	share = w->eager_data ? least(1, 1.6 * share) : share;
	double per = w->layers / (w->pp * w->chunks);
	double behind = per * (y->pass[1] + y->again), before = per * y->pass[0];
	return share * (scatter + gather) + most(0, (1 - share) * scatter - behind) +
	       most(0, (1 - share) * gather - before);
}

static void add_layers(const struct layer *y, double times, double *part)
{
	const double *p = y->products.pass;
	part[FO_PREDICT_MATMUL] = times * (p[0] + p[1] + p[2]);
	part[FO_PREDICT_ATTENTION] = times * (y->attention[0] + y->attention[1]);
	part[FO_PREDICT_MEMORY] = times * (y->memory[0] + y->memory[1]);
	part[FO_PREDICT_RECOMPUTE] = times * y->again;
	part[FO_PREDICT_TENSOR] = times * (y->tensor[0] + y->tensor[1]);
	part[FO_PREDICT_CONTEXT] = times * (y->context[0] + y->context[1]);
	part[FO_PREDICT_EXPERT] = times * 2 * y->expert;
	part[FO_PREDICT_HOST] = times * (y->host[0] + y->host[1]);
	part[FO_PREDICT_DATA] = times * (y->data[0] + y->data[1]);
}

void fo_predict_know(struct fo_predict_work *w, const double *x)
{
	struct now n;
	w->known = false;
	fo_predict_now_of(w, x, &n);
	struct products p = products(&n);
	memcpy(w->known_pass, p.pass, sizeof w->known_pass);
	w->known_up = p.up;
	fo_predict_head_of(&n, w->known_head);
	w->known = true;
}

/* The makings of a layer's slots. */
static void slots_of(const struct now *n, const struct layer *y, struct fo_predict_slots *o)
{
	const struct fo_predict_work *w = n->w;
	for (int i = 0; i < 2; i++) {
		const double call[FO_PREDICT_CALLS] = { [FO_PREDICT_CALL_TENSOR] = y->tensor[i],
							[FO_PREDICT_CALL_CONTEXT] = y->context[i],
							[FO_PREDICT_CALL_EXPERT] = y->expert,
							[FO_PREDICT_CALL_SHARD] = y->data[i] };
		o->work[i] = y->pass[i] + y->data[i] + i * y->again;
		for (int k = 0; k < FO_PREDICT_CALLS; k++) {
			o->call[k][i] = call[k];
			o->work[i] = most(0, o->work[i] - call[k]);
		}
	}
	o->again = w->again_stages > 0 ? y->again : 0;
	o->weight = y->products.pass[FO_PREDICT_WEIGHT];
	double head[3];
	fo_predict_head_of(n, head);
	if (w->own.on)
		fo_predict_own_ends(n, head, o->embed);
	o->head[0] = head[FO_PREDICT_FORWARD];
	o->head[1] = head[FO_PREDICT_INPUT] + head[FO_PREDICT_WEIGHT];
	o->head_weight = head[FO_PREDICT_WEIGHT];
	if (w->pp > 1)
		o->hop = fo_predict_hop_s(n, w->send_bytes);
	o->exchange = exchange_s(n, y);
	double *all = (double *)o;
	for (size_t i = 0; i < sizeof *o / sizeof *all; i++)
		all[i] /= w->habit;
}

/* Seconds of all micro-batches on pipeline stages. Where stages do not divide the layers, the first ones have one more;
 * the last one has the head. */
static double pipeline_s(const struct fo_predict_work *w, const struct fo_predict_slots *o, struct fo_predict_step *out)
{
	double layer[2], per = w->layers / w->pp;
	out->fewest = (double)(int64_t)per, out->full = w->layers - out->fewest * w->pp;
	for (int i = 0; i < 2; i++) {
		layer[i] = o->work[i];
		for (int k = 0; k < FO_PREDICT_CALLS; k++)
			layer[i] += o->call[k][i];
	}
	if (w->pp <= 1)
		return w->micro_batches * (per * (layer[0] + layer[1]) + o->head[0] + o->head[1]);
	const double backward = o->head[1] - o->head_weight;
	struct fo_predict_pipeline p = {
		.schedule = w->chunks > 1 && w->schedule == FO_PREDICT_1F1B ? FO_PREDICT_INTERLEAVED : w->schedule,
		.stages = w->pp,
		.micro_batches = w->micro_batches,
		.chunks = w->chunks,
		.fewest = out->fewest,
		.full = out->full,
		.uneven = w->uneven,
		.layer = { layer[0], layer[1] - o->weight, o->weight },
		.head = { o->head[0], backward, o->head_weight },
		.hop = o->hop,
		.ahead = w->own.on,
		.again = o->again,
		.again_stages = w->again_stages,
	};
	if (w->own.on) /* the loss comes when backward begins, and the head's weight gradient is not put off */
		p.head[0] = p.head[2] = 0, p.head[1] = o->head[0] + o->head[1];
	memcpy(p.embed, o->embed, sizeof p.embed);
	return fo_predict_pipeline_s(&p);
}

/* Devices that rest in a pipeline's bubbles have power and heat to spare for their slots. Returns the factor. */
static double rested(struct fo_predict_slots *o, double *part, double faster)
{
	const double exchange = o->exchange;
	double *all = (double *)o;
	for (size_t i = 0; i < sizeof *o / sizeof *all; i++)
		all[i] *= faster;
	o->exchange = exchange;
	for (int i = 0; i < FO_PREDICT_PARTS; i++)
		part[i] *= faster;
	return faster;
}

void fo_predict_time(const struct fo_predict_work *w, const double *x, struct fo_predict_step *out)
{
	struct now n;
	struct layer y;
	fo_predict_now_of(w, x, &n);
	layer_of(&n, &y);
	double m = w->micro_batches, per = w->layers / w->pp, *part = out->part, total = 0;
	double slow = x[FO_X_STRAGGLE] * sqrt(2 * log(most(1, w->devices)));
	struct fo_predict_slots *slots = &out->slots;
	*slots = (struct fo_predict_slots){ .hop = 0 };
	memset(part, 0, sizeof out->part);
	slots_of(&n, &y, slots);
	double all = pipeline_s(w, slots, out);
	add_layers(&y, m * per, part);
	if (w->again_stages > 0)
		part[FO_PREDICT_RECOMPUTE] *= w->again_stages / w->pp;
	double busy = 0;
	for (int i = 0; i < FO_PREDICT_PARTS; i++)
		busy += part[i] /= w->habit;
	busy += part[FO_PREDICT_LOSS] = m * (slots->head[0] + slots->head[1] + slots->embed[0] + slots->embed[1]) /
					w->pp;
	const double sent = 2 * m * w->chunks * slots->hop;
	busy += part[FO_PREDICT_SENDS] = w->own.on ? least(sent, most(0, all - busy)) : sent;
	const double idle = w->pp > 1 ? most(0, all - busy) : 0;
	part[FO_PREDICT_BUBBLE] = idle;
	if (idle > 0)
		all = rested(slots, part, 1 - (1 - x[FO_X_BUBBLE]) * idle / all) * all;
	part[FO_PREDICT_DATA] += slots->exchange;
	part[FO_PREDICT_OPTIMIZER] = w->trains ? w->optimizer_bytes * x[FO_X_UPDATE] / n.memory / w->habit : 0;
	part[FO_PREDICT_REST] = x[FO_X_STEP] * 1e-3 / w->habit + slow * all;
	for (int i = 0; i < FO_PREDICT_PARTS; i++)
		total += part[i];
	out->seconds = total;
	out->dp = w->dp, out->micro_batches = m, out->ahead = w->own.on && w->pp > 1;
}

bool fo_predict_reads(const struct fo_predict_work *w, int c)
{
	if (c <= FO_X_CEIL_AMD_FP4)
		return c == w->ceil || c == w->ceil_head;
	if (c <= FO_X_PART_RTX_SMALL)
		return c == w->part;
	if (c >= FO_X_ATT_FUSED_AMPERE && c <= FO_X_ATT_TRITON_HOPPER)
		return !w->stored && c == w->attention;
	if (c >= FO_X_U_MCORE && c <= FO_X_U_GRAPHS)
		return c == FO_X_U_MCORE + w->habits;
	if (c >= FO_X_HOST_MCORE && c <= FO_X_HOST_GRAPHS)
		return c == FO_X_HOST_MCORE + w->habits || (w->graphs && c == FO_X_HOST_GRAPHS);
	if (c >= FO_X_TP_MCORE && c <= FO_X_TP_ASYNC)
		return w->tp > 1 && (c == FO_X_TP_MCORE + w->habits || (w->tp_hidden && c == FO_X_TP_ASYNC));
	if (c >= FO_X_EXPERT_RATE)
		return w->moe;
	if (c == FO_X_CAST8 || c == FO_X_CAST_BLOCK)
		return w->fp8;
	if (c == FO_X_SMALL_YEAR)
		return w->fp8 && w->young && w->year > 0;
	if (c == FO_X_ATT_STORED)
		return w->stored;
	if (c == FO_X_ATT_RING)
		return w->ring;
	if (c == FO_X_ROWS_HOPPER)
		return w->rows;
	return true;
}
