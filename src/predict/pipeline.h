/* The time that the slots of a pipeline's schedule take, in closed form. */
#ifndef FO_PREDICT_PIPELINE_H
#define FO_PREDICT_PIPELINE_H

#include "predict/predict.h"

/* Stages have `fewest` layers, the first `full` of them one more, or the first, the last and those between them as many
 * as are given for each (uneven; all 0: not). The last has the head. */
struct fo_predict_pipeline {
	enum fo_predict_schedule schedule;
	double stages, micro_batches, chunks, fewest, full;
	struct fo_predict_uneven uneven;
	double layer[3], head[3]; /* seconds of one micro-batch: forward, gradients of inputs, of weights */
	double embed[2];          /* with `ahead`: of the first stage, forward and backward */
	double hop;               /* that each forward and backward slot waits for its message */
	bool ahead;               /* messages are on their way while stages go on, as in Flatout's programs */
	/* Seconds of a layer's gradients of inputs that stages behind the first again_stages do not have; 0: all do. */
	double again, again_stages;
};
/* Seconds from the first slot's begin to the last one's end, as the schedule's own order gives them: exact for GPipe,
 * 1F1B, and stages that are alike but for the head; within 0.02 % in the mean and 2 % always for zero bubbles on stages
 * of two sizes. Interleaved stages of two sizes are off by up to 10 %; 1F1B on stages of two sizes of which the first
 * ones alone recompute by 0.1 % in the mean and 2 %. With `ahead` messages lengthen the ways that go from stage to
 * stage, and not all of these are looked at: off by 0.3 % in the mean and 2.5 %. */
double fo_predict_pipeline_s(const struct fo_predict_pipeline *o);

#endif
