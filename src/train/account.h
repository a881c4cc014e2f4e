/* Accounting of a training process: step times, tokens, losses, time by part, memory seen. It counts what happened and
 * decides nothing. */
#ifndef FO_TRAIN_ACCOUNT_H
#define FO_TRAIN_ACCOUNT_H

#include "train/setup.h"

/* A step right after it ran. */
struct fo_step_run {
	const struct fo_batch *batch;
	bool metered;
	int64_t wait_ns;          /* for the loader */
	int64_t begin_ns, end_ns; /* wall time; begin is the end of what came before: the last step, or a pause */
};

struct fo_account {
	bool on_device;
	struct fo_profile profile;    /* time by part of this process's steps */
	struct fo_profile first_step; /* its first step's alone */
	/* Tokens per second and MFU of the newest `kept` steps, for medians: rings. Metered steps are left out. */
	double *rate;
	struct fo_mfu *mfu;
	int64_t kept, timed;
	int64_t steps;                          /* that ran, taken or not; the sums below are over these */
	int64_t tokens, real_tokens, truncated; /* processed; without padding; lost to truncation */
	/* Over the steps that were taken. */
	int64_t loss_tokens, first_taken; /* tokens with a target; number of the first such step */
	double first_loss, last_loss;
	double tail_loss; /* sum over the steps in the run's last tenth */
	int64_t tail_steps;
	double val_loss; /* of the last evaluation; NaN: none */
	int64_t resident_before,
		resident_peak; /* host memory of the process, bytes: before the planned; the most seen */
	int64_t device_used;   /* most device memory that was taken, bytes */
};

/* Arrays for `steps` coming steps from the arena. */
void fo_account_init(struct fo_account *a, struct fo_arena *arena, int64_t steps);
/* Counts a step that ran, whatever the guards say of it, and describes it in *out, without its ETA. */
void fo_account_ran(struct fo_account *a, const struct fo_setup *set, const struct fo_step_run *ran, int64_t number,
		    struct fo_train_step *out);
/* Counts a step that was taken and fills in its ETA. */
void fo_account_taken(struct fo_account *a, struct fo_train_step *t);
/* The run went back: steps of its last tenth come again. */
void fo_account_rewound(struct fo_account *a);
/* Looks at the memory that is taken now. */
void fo_account_look(struct fo_account *a, const struct fo_setup *set);
/* Most bytes that were seen: of the device, or of the host beyond what the process had before. */
static inline int64_t fo_account_measured(const struct fo_account *a)
{
	return a->on_device ? a->device_used : a->resident_peak - a->resident_before;
}
/* The result's figures that follow from what was counted. meta: the run's state at the end. */
void fo_account_result(const struct fo_account *a, const struct fo_setup *set, const struct fo_ckpt_meta *meta,
		       struct fo_train_result *out);

#endif
