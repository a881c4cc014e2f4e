/* Inside the seconds of a step: rates (rates.c), Flatout's own programs (own.c), all of it (time.c). */
#ifndef FO_PREDICT_TIME_INT_H
#define FO_PREDICT_TIME_INT_H

#include "predict/predict_int.h"

struct now {
	const struct fo_predict_work *w;
	const double *x;
	double memory;       /* bytes/s */
	double linear, head; /* FLOP/s */
	double node, net;
	double age; /* of small types' time, by the year of the software */
};
/* The factor of the years since `from` at one constant a year, no further than runs show it. */
double fo_predict_aged(const struct fo_predict_work *w, double a_year, double from);
void fo_predict_now_of(const struct fo_predict_work *w, const double *x, struct now *n);

/* Forward, input's gradient, weight's gradient of all products of one layer. */
struct products {
	double pass[3], up;
};
/* One layer of one micro-batch. */
struct layer {
	struct products products;
	double attention[2], memory[2], tensor[2], context[2], expert, host[2], pass[2];
	double again; /* seconds that backward repeats */
	double data[2];
};

/* Seconds of the head's products by pass, with what logits move. */
void fo_predict_head_of(const struct now *n, double pass[3]);
double fo_predict_product_s(const struct now *n, const struct fo_predict_product *p, double rate);
/* FLOP/s of fused attention. */
double fo_predict_attention_rate(const struct now *n);
/* A gather or reduce-scatter of `bytes` in all. A ring over nodes uses the adapters of all its members in a node. */
double fo_predict_ring_s(const struct now *n, double bytes, double ranks, bool inside, double in_node);
/* The same over ranks that hold states: within nodes and between them at once. */
double fo_predict_spread_s(const struct now *n, double bytes, double ranks, double in_node, double nodes);
/* Seconds that a slot waits for its message between stages. */
double fo_predict_hop_s(const struct now *n, double bytes);

/* ---- Flatout's own programs (own.c) ---- */

void fo_predict_own_memory(const struct now *n, struct layer *y);
/* ring: one message of a layer; exposed: share that is. */
void fo_predict_own_tensor(const struct now *n, double ring, double exposed, struct layer *y);
void fo_predict_own_context(const struct now *n, struct layer *y);
double fo_predict_own_again(const struct now *n, const struct layer *y);
/* Seconds that storing the first sum saves of a micro-batch's gradients of so many weights, in the mean. */
double fo_predict_own_stored(const struct now *n, double weights);
void fo_predict_own_shards(const struct now *n, const struct layer *y, double *gather, double *scatter);
/* Gradients and weights that are exchanged once a step, as far as they are waited for. */
double fo_predict_own_exchange(const struct now *n, const struct layer *y);
/* pass: of the head's products, which get all else of it, and of the embedding where there is one stage; else embed. */
void fo_predict_own_ends(const struct now *n, double pass[3], double embed[2]);

#endif
