#include "predict/rates.h"

#include "predict/time_int.h"

#include <string.h>

double fo_predict_product_s(const struct now *n, const struct fo_predict_product *p, double rate)
{
	const double *x = n->x;
	double t = p->flop / rate * (1 + x[FO_X_QUANT] * (p->idle - 1)) * (1 + x[FO_X_DEPTH] * p->depth);
	return most(t, p->bytes / n->memory) + x[FO_X_SUMS] * p->sums / n->memory;
}

/* Software for a new device gets better: what one constant a year makes of the years since `from`, no further than
 * runs show it. */
double fo_predict_aged(const struct fo_predict_work *w, double a_year, double from)
{
	return w->young && w->year > 0 ? pow(a_year, fmax(-.7, fmin(1, w->year - from))) : 1;
}
/* FLOP/s of fused attention. */
double fo_predict_attention_rate(const struct now *n)
{
	const struct fo_predict_work *w = n->w;
	const double *x = n->x;
	return w->peak_bf16 * x[w->attention] * (1 - w->dim64 * (1 - x[FO_X_ATT_DIM64])) /
	       (1 + x[FO_X_ATT_SHORT] / w->seq);
}

/* A gather or reduce-scatter of `bytes` in all. A ring over nodes uses the adapters of all its members in a node. */
double fo_predict_ring_s(const struct now *n, double bytes, double ranks, bool inside, double in_node)
{
	const double *x = n->x;
	if (ranks <= 1)
		return 0;
	double rate = inside ? n->node : least(n->node, n->net * in_node);
	double half = 1e6 * x[inside ? FO_X_NODE_HALF : FO_X_NET_HALF];
	double start = 1e-6 * x[inside ? FO_X_NODE_START : FO_X_NET_START];
	return start * (.5 + .5 * (ranks - 1) / 3) + (ranks - 1) / ranks * (bytes + half) / rate;
}

/* The same over ranks that hold states: within nodes and between them at once. */
double fo_predict_spread_s(const struct now *n, double bytes, double ranks, double in_node, double nodes)
{
	const double *x = n->x;
	if (ranks <= 1)
		return 0;
	double doublings = nodes > 1 ? log2(nodes) : 0, net = n->net / (1 + x[FO_X_NET_NODES] * doublings);
	double inner = (in_node - 1) / in_node * bytes / n->node;
	double outer = nodes > 1 ? (ranks - 1) / ranks * bytes / (in_node * net) : 0;
	double start = 1e-6 *
		       ((ranks - nodes) * x[FO_X_NODE_HOP] + (nodes > 1 ? nodes * x[FO_X_NET_HOP] : 0)); /* a ring */
	return most(inner, outer) + start;
}

void fo_predict_now_of(const struct fo_predict_work *w, const double *x, struct now *n)
{
	double part = w->part >= 0 ? x[w->part] : 1;
	*n = (struct now){ .w = w, .x = x, .memory = x[FO_X_HBM] * w->memory_byte_s };
	double scale = w->sustained > 0 ? w->sustained / x[w->ceil_head] : 1;
	n->age = w->fp8 ? fo_predict_aged(w, x[FO_X_SMALL_YEAR], 2026) : 1;
	n->linear = w->rate * x[w->ceil] * part * scale / n->age * (w->rows ? x[FO_X_ROWS_HOPPER] : 1);
	n->head = w->rate_head * x[w->ceil_head] * part * scale;
	n->node = w->node * x[w->pcie ? FO_X_PCIE : FO_X_NODE];
	n->net = w->net * (w->net_share > 0 ? w->net_share : x[FO_X_NET]);
}

void fo_predict_head_of(const struct now *n, double out[3])
{
	const struct fo_predict_work *w = n->w;
	if (w->known) {
		memcpy(out, w->known_head, sizeof w->known_head);
		return;
	}
	out[FO_PREDICT_WEIGHT] = 0;
	const double logits = w->logits * w->logit_bytes * n->x[FO_X_LOGIT] / n->memory;
	/* What logits move is half forward, half backward; Flatout's loss turns them into their gradient in forward. */
	const double first = w->own.on ? 1 : .5;
	for (int pass = 0; pass < 2 + w->trains; pass++)
		out[pass] = fo_predict_product_s(n, &w->product[FO_PREDICT_HEAD][pass], n->head);
	out[FO_PREDICT_FORWARD] += first * logits;
	out[FO_PREDICT_INPUT] += (1 - first) * logits;
}

/* Seconds that a slot waits for its message between stages. */
double fo_predict_hop_s(const struct now *n, double bytes)
{
	const bool inside = n->w->pp_inside;
	const double start = 1e-6 * n->x[inside ? FO_X_NODE_START : FO_X_NET_START];
	return n->x[FO_X_PP] * (start + bytes / (inside ? n->node : n->net));
}

/* ---- single operations ---- */

struct rates {
	struct fo_predict_work w;
	double x[FO_PREDICT_CONSTANTS], units;
};
_Static_assert(sizeof(struct rates) <= sizeof(struct fo_predict_rates), "room for rates");

const char *fo_predict_rates_of(const struct fo_predict_base *b, const struct fo_predict_layout *l,
				struct fo_predict_rates *out)
{
	struct rates *r = (struct rates *)out;
	fo_predict_work_of(b, l, &r->w);
	memcpy(r->x, b->x, sizeof r->x);
	r->units = b->job.machine.units;
	if (r->w.wrong)
		return r->w.wrong;
	return r->w.stored ? "attention that stores its scores is no operation of its own" : NULL;
}

static struct now rates_now(const struct fo_predict_rates *of)
{
	const struct rates *r = (const struct rates *)of;
	struct now n;
	fo_predict_now_of(&r->w, r->x, &n);
	return n;
}

double fo_predict_rate_product(const struct fo_predict_rates *r, double m, double n, double k, bool head,
			       double sum_bytes)
{
	const struct now now = rates_now(r);
	struct fo_predict_product p = fo_predict_product_of(m, n, k, ((const struct rates *)r)->units);
	p.sums = sum_bytes;
	return fo_predict_product_s(&now, &p, head ? now.head : now.linear) / now.w->habit;
}

double fo_predict_rate_attention(const struct fo_predict_rates *r, double flop, double starts)
{
	const struct now n = rates_now(r);
	return (flop / fo_predict_attention_rate(&n) + starts * n.x[FO_X_ATT_START] * 1e-6) / n.w->habit;
}

double fo_predict_rate_memory(const struct fo_predict_rates *r, double bytes)
{
	const struct now n = rates_now(r);
	return bytes * n.x[FO_X_U_MCORE + n.w->habits] / n.memory / n.w->habit;
}

double fo_predict_rate_loss(const struct fo_predict_rates *r, double bytes)
{
	const struct now n = rates_now(r);
	return bytes * n.x[FO_X_LOGIT] / n.memory / n.w->habit;
}

double fo_predict_rate_update(const struct fo_predict_rates *r, double bytes)
{
	const struct now n = rates_now(r);
	return bytes * n.x[FO_X_UPDATE] / n.memory / n.w->habit;
}

double fo_predict_rate_gather(const struct fo_predict_rates *r, double bytes, double ranks, double in_node)
{
	const struct now n = rates_now(r);
	return fo_predict_ring_s(&n, bytes, ranks, in_node >= ranks, in_node) / n.w->habit;
}

double fo_predict_rate_states(const struct fo_predict_rates *r, double bytes, double ranks, double in_node)
{
	const struct now n = rates_now(r);
	return fo_predict_spread_s(&n, bytes, ranks, in_node, most(1, ranks / in_node)) / n.w->habit;
}

double fo_predict_rate_send(const struct fo_predict_rates *r, double bytes)
{
	const struct now n = rates_now(r);
	return fo_predict_hop_s(&n, bytes) / n.w->habit;
}

void fo_predict_ideal(struct fo_predict_base *b)
{
	double *x = b->x;
	for (int i = 0; i < FO_HABITS; i++)
		x[FO_X_HOST_MCORE + i] = 0, x[FO_X_TP_MCORE + i] = 1;
	x[FO_X_HOST_TP] = x[FO_X_TAX] = x[FO_X_STEP] = x[FO_X_STRAGGLE] = 0;
	x[FO_X_DATA] = x[FO_X_FSDP] = x[FO_X_CP] = 0;
	x[FO_X_PP] = x[FO_X_BUBBLE] = 1;
}
