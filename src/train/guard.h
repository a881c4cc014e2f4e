/* Guards: steps that must not be taken. Whether a step is taken is decided inside the program, by the operation that
 * knows loss and norm before any weight is touched (clip, ops.def): the limit is part of the step's numbers, so no lane
 * waits for the host. Here the decision is prepared and, afterwards, explained. */
#ifndef FO_TRAIN_GUARD_H
#define FO_TRAIN_GUARD_H

#include "train/setup.h"

struct fo_guard {
	struct fo_setup *set;                   /* to repeat a step and to name its text */
	int64_t refused_in_row, rewinds_in_row; /* since a step was taken; since a checkpoint was written */
};

/* The loss above which the coming step is a spike, 0 while there is too little to compare with:
 *   median + z max(1.4826 MAD, 2^-8 median) of the last guard.spike-window losses that were taken
 * MAD is the median of |loss - median|; 1.4826 = 1 / 0.6745 makes it the standard deviation of a normal distribution. A
 * loss's resolution in bf16 (2^-8) is the least deviation: otherwise noise would be a spike where losses hardly differ.
 */
double fo_guard_limit(const struct fo_run *r, const struct fo_ckpt_meta *m, double *median, double *deviation);
/* Adds the loss of a step that was taken to those that the limit comes from. */
void fo_guard_remember(const struct fo_run *r, struct fo_ckpt_meta *m, double loss);

/* Decides what is to be done about a step that ran (out->action), and does nothing. m: the state before the step;
 * data_step: the loader's number of its batch. FO_ENUMERIC, *torn true: the run has to end, and as the weights were
 * updated before the value was known they are of no single moment: nothing may be saved. */
FO_CHECKED fo_status fo_guard_judge(struct fo_guard *g, const struct fo_train_step *t, const struct fo_ckpt_meta *m,
				    int64_t data_step, struct fo_guard_report *out, bool *torn);
/* Warns, after the loop did what r->action says, or SKIP in place of a REWIND without a checkpoint. FO_ENUMERIC: the
 * run has to end, because the action is STOP or because guard.limit steps in a row were refused. */
FO_CHECKED fo_status fo_guard_report(struct fo_guard *g, const struct fo_train_step *t,
				     const struct fo_guard_report *r);
/* Subscriber: counts what happens in a row. */
fo_status fo_guard_event(void *guard, const struct fo_event *e);

#endif
