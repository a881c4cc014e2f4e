/* What fewer devices would do as fast, and what more of a resource would gain. */
#ifndef FO_PLAN_MORE_H
#define FO_PLAN_MORE_H

#include "plan/plan.h"

/* The fastest plan for the same batch on a part of the devices, where it is faster than the plan for all of them:
 * returns its devices and fills in *out. 0: none is, and *out is not defined. A part that could not be faster at the
 * devices' peak is not searched. */
double fo_plan_fewer(struct fo_plan *out, const struct fo_plan_asked *asked, const struct fo_plan *all);

/* The next larger cluster to look at: one device more below a node, one node more up to 128 nodes; above, steps of at
 * most 1/64. */
double fo_plan_next_size(double per_node, double devices);
/* A cluster of more devices than these that holds the job in some division: the smallest of those that
 * fo_plan_next_size leads to. *batch is the one asked for, or where no size has a division of it that fits, the
 * smallest larger one that every device has a sequence of. 0: none up to a million does. */
double fo_plan_holding(const struct fo_plan_asked *asked, double *batch);

/* Twice the resource; of devices, one node more (below a node one device), or the fewest more that a division has.
 * Types and formats are searched beside those that were asked for: they change what is computed. */
enum fo_plan_more_of {
	FO_PLAN_MORE_MEMORY,
	FO_PLAN_MORE_NET,
	FO_PLAN_MORE_NODE, /* links inside a node */
	FO_PLAN_MORE_BATCH,
	FO_PLAN_MORE_DEVICES,
	FO_PLAN_MORE_TYPE,   /* no more of anything: products of 8 bits, where none were asked for */
	FO_PLAN_MORE_FORMAT, /* the smaller formats of the optimizer's states */
	FO_PLAN_MORES
};
enum fo_plan_gains {
	FO_PLAN_GAINS,
	FO_PLAN_GAINS_NOT,
	FO_PLAN_GAINS_UNSURE, /* its interval has 1 */
	FO_PLAN_GAINS_GUESS,  /* it rests on a guess */
	FO_PLAN_GAINS_NONE,   /* there is no such addition */
};
extern const char *const fo_plan_gains_name[FO_PLAN_GAINS_NONE + 1];
struct fo_plan_more {
	enum fo_plan_gains gains;
	double devices, global_batch;    /* with it; FO_PLAN_GAINS_NONE: devices are the most that were tried, or 0 */
	struct fo_predict_layout layout; /* the fastest that was found with it */
	double times;                    /* tokens/s of all devices over those of the plan; NAN: FO_PLAN_GAINS_NONE */
	struct fo_range range;           /* 80 % */
	/* A format, and the bytes that it takes off a device of the division that is named; 0: none is legal there. */
	enum fo_predict_format format;
	double less_bytes;
};
/* Searches again with each in turn: with twice a resource in the axes of the divisions of `all`, so that the gain is at
 * least what is found, with more devices in all of them. */
void fo_plan_more_of(struct fo_plan_more out[FO_PLAN_MORES], const struct fo_plan_asked *asked,
		     const struct fo_plan *all);

#endif
