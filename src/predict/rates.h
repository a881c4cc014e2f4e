/* Seconds of single operations by the rates that the closed form of a step has (time.c), so that a program can be timed
 * operation by operation and compared with it. Bytes are what an operation moves, messages those of a whole group. */
#ifndef FO_PREDICT_RATES_H
#define FO_PREDICT_RATES_H

#include "predict/predict.h"

/* Rates of one job on one division. Large; holds no pointers. */
struct fo_predict_rates {
	double room[512]; /* private */
};
/* NULL, or in one static sentence what cannot be. Attention must be fused: a style that stores scores is refused. */
const char *fo_predict_rates_of(const struct fo_predict_base *b, const struct fo_predict_layout *l,
				struct fo_predict_rates *out);

/* m x n x k; head: in the head's number type. sum_bytes: read and written of a weight gradient's fp32 sum. */
double fo_predict_rate_product(const struct fo_predict_rates *r, double m, double n, double k, bool head,
			       double sum_bytes);
/* flop: executed; starts: kernels, or shares of them. */
double fo_predict_rate_attention(const struct fo_predict_rates *r, double flop, double starts);
/* Operations that memory bounds: of a layer, of the loss, of the optimizer. */
double fo_predict_rate_memory(const struct fo_predict_rates *r, double bytes);
double fo_predict_rate_loss(const struct fo_predict_rates *r, double bytes);
double fo_predict_rate_update(const struct fo_predict_rates *r, double bytes);
/* A gather or reduce-scatter of `bytes` in all over `ranks`, of which `in_node` are in a node: within a layer; of
 * states (parameters, gradients). */
double fo_predict_rate_gather(const struct fo_predict_rates *r, double bytes, double ranks, double in_node);
double fo_predict_rate_states(const struct fo_predict_rates *r, double bytes, double ranks, double in_node);
/* A message from one pipeline stage to the next. */
double fo_predict_rate_send(const struct fo_predict_rates *r, double bytes);

/* A machine on which a program takes what its operations and waits say, and nothing on top: launches, work once a step,
 * stragglers, messages that slow what they hide behind, and the shares of messages that real stacks fail to hide are
 * all without cost. For comparing counts and schedules. */
void fo_predict_ideal(struct fo_predict_base *b);

#endif
