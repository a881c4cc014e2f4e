/* The losses of a predicted step against the dense peak: shares that add up to all of it. */
#ifndef FO_PLAN_LOSSES_H
#define FO_PLAN_LOSSES_H

#include "predict/predict.h"

/* The products that take longer than at the peak, each part of the step, small ones together. */
enum { FO_PLAN_LOSSES = FO_PREDICT_PARTS + 2 };
struct fo_plan_losses {
	struct {
		const char *name;
		double share; /* of the step; below 0 only by rounding */
		int tenths;   /* the same in tenths of a percent, as it is shown */
	} loss[FO_PLAN_LOSSES];
	int losses;
	double useful; /* mfu_causal: 1 less all shares, but for the last digits of a double */
	int tenths;    /* of the useful share: it and those of the losses are 1000 together */
};
/* Which part makes step x slower than the best one most, and which saves most; -1: none does. Returns the seconds of
 * the first, *least has those of the second, below 0. */
double fo_plan_reason_of(const struct fo_predict_step *best, const struct fo_predict_step *x, int *loses, int *gains,
			 double *least);
void fo_plan_losses_of(struct fo_plan_losses *out, const struct fo_predict_step *s);

#endif
