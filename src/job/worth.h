/* A step's time by parts, and what a change of settings is worth: src/predict's answers about a job.
 *
 * Nothing is assumed that neither a file nor a default of the framework's release says, but habits of the framework
 * (styles.def). A comparison moves every constant on both sides at once, so that what is not known of the hardware does
 * not blur what the change does. This is the model behind `flatout audit` and `flatout health`. */
#ifndef FO_JOB_WORTH_H
#define FO_JOB_WORTH_H

#include "job/memory.h"
#include "predict/predict.h"

struct fo_job_step {
	struct fo_range part[FO_PREDICT_PARTS];  /* s, 80 % */
	struct fo_range share[FO_PREDICT_PARTS]; /* 0 to 1: nearer than the ends of parts over the ends of the sum */
	double seconds;                          /* the middle; NAN */
	struct fo_range total;                   /* s, 80 % */
	struct fo_range tokens_s;                /* per device */
	struct fo_range mfu, mfu_causal;         /* over the dense bf16 peak (fp16's for fp16) */
	const char *unknown;                     /* what is missing to say anything; NULL */
};
void fo_job_step_of(struct fo_job *job, const struct fo_cluster *c, struct fo_job_step *out);

struct fo_job_change {
	enum fo_job_setting setting;
	double number;
};
struct fo_job_gain {
	struct fo_range times;       /* new speed over old, tokens/s, 80 %; exactly 1: not modelled; NAN: not known */
	double middle;               /* NAN with it */
	struct fo_job_memory memory; /* with the change */
	const char *unknown;         /* why it is not known; NULL */
};
/* The worth of all these changes together. */
void fo_job_what_if(struct fo_job *job, const struct fo_cluster *c, const struct fo_job_change *change, int changes,
		    struct fo_job_gain *out);

#endif
