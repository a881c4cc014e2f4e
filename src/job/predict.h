/* Predicts a job on a cluster: a configuration of any framework becomes the plain numbers that src/predict takes. */
#ifndef FO_JOB_PREDICT_H
#define FO_JOB_PREDICT_H

#include "job/cluster.h"
#include "job/memory.h"
#include "predict/predict.h"

/* What the caller knows of the machine and no catalogue does. */
struct fo_job_machine_given {
	struct fo_range net_gb_s; /* that collectives of one device reach between nodes; NAN: not measured */
	double watts;             /* limit of a device; 0: its own */
	bool tf32;                /* fp32 products may be rounded to tf32 */
};

enum { FO_JOB_INFERRED_MOST = 16 };
struct fo_job_asked {
	struct fo_job_shape shape;
	struct fo_predict_job job;
	struct fo_predict_base base;
	struct fo_predict_layout layout;
	const char *inferred[FO_JOB_INFERRED_MOST]; /* what nobody stated and was assumed, a sentence each */
	int inferences;
};
/* Translates. Text lives in the job's arena. FO_EARG: a contradiction, a division that does not come out, something
 * that must be known and is not; FO_EUNSUPPORTED: a device or a way of training of which nothing is known here. The
 * hint has the nearest thing that works. */
FO_CHECKED fo_status fo_job_ask(struct fo_job *job, const struct fo_cluster *c,
				const struct fo_job_machine_given *given, struct fo_job_asked *out);
/* The same where nothing may be assumed of how states are sharded, and nothing of the job is changed: for audits. */
FO_CHECKED fo_status fo_job_ask_stated(struct fo_job *job, const struct fo_cluster *c, struct fo_job_asked *out);
/* The same for a search over divisions: job, base and inferred alone are set; batch and degrees may be unknown. */
FO_CHECKED fo_status fo_job_ask_base(struct fo_job *job, const struct fo_cluster *c,
				     const struct fo_job_machine_given *given, struct fo_job_asked *out);
/* A division as a prediction takes it, of a shape whose `wrong` is NULL; what the shape does not know stays NAN. */
void fo_job_layout_of(struct fo_job *job, const struct fo_job_shape *s, struct fo_predict_layout *out);
/* The style of styles.def whose habits a job has, by its framework and by whether it is compiled. */
enum fo_predict_style_id fo_job_predict_style(const struct fo_job *job);
/* The machine of a cluster. FO_EUNSUPPORTED: no ceilings are known of its device. FO_EARG: no such node exists. */
FO_CHECKED fo_status fo_cluster_machine(const struct fo_cluster *c, const struct fo_job_machine_given *given,
					struct fo_predict_machine *out);

#endif
