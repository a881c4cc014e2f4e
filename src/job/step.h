/* A step's time by parts, from rooflines and the arithmetic of collectives, and what a change of settings is worth.
 *
 * The rates that no configuration states (how near to their peaks matmuls, memory and links come, how much hides behind
 * compute) are intervals. A comparison draws the same rates for both sides, so that what is not known of the hardware
 * does not blur what the change does. docs/memory-arithmetic.md has the formulas, and how far published runs are from
 * them. Until a planner exists this is the model behind `flatout audit`. */
#ifndef FO_JOB_STEP_H
#define FO_JOB_STEP_H

#include "job/memory.h"

enum fo_job_time {
	FO_JOB_TIME_MATMUL,
	FO_JOB_TIME_ATTENTION,
	FO_JOB_TIME_MEMORY, /* norms, rotations, activations, casts: bound by memory */
	FO_JOB_TIME_LOSS,
	FO_JOB_TIME_RECOMPUTE,
	FO_JOB_TIME_TENSOR, /* exposed communication of tensor and sequence parallelism */
	FO_JOB_TIME_CONTEXT,
	FO_JOB_TIME_EXPERT,
	FO_JOB_TIME_PIPELINE, /* bubble and exposed transfers */
	FO_JOB_TIME_DATA,     /* exposed gathers and reductions of data parallelism */
	FO_JOB_TIME_OPTIMIZER,
	FO_JOB_TIME_OFFLOAD,
	FO_JOB_TIME_HOST, /* launches that the device waits for */
	FO_JOB_TIMES
};
extern const char *const fo_job_time_name[FO_JOB_TIMES];

struct fo_job_step {
	struct fo_range part[FO_JOB_TIMES];  /* s */
	struct fo_range share[FO_JOB_TIMES]; /* 0 to 1, of the same draw's whole step; of 60 of 64 draws as well */
	struct fo_range total;               /* s; what 60 of 64 draws give: narrower than the sum of the parts' ends */
	struct fo_range tokens_s;            /* per device */
	struct fo_range mfu, mfu_causal;     /* over the dense bf16 peak (fp16's for fp16) */
	const char *unknown;                 /* what is missing to say anything; NULL */
};
void fo_job_step_of(struct fo_job *job, const struct fo_cluster *c, struct fo_job_step *out);

struct fo_job_change {
	enum fo_job_setting setting;
	double number;
};
struct fo_job_gain {
	struct fo_range times;       /* new speed over old, tokens/s, of 60 of 64 draws; NAN: not known from this */
	struct fo_job_memory memory; /* with the change */
	const char *unknown;         /* why it is not known; NULL */
};
/* What all of these changes together are worth. */
void fo_job_what_if(struct fo_job *job, const struct fo_cluster *c, const struct fo_job_change *change, int changes,
		    struct fo_job_gain *out);

#endif
