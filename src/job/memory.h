/* Memory of one device of a job as a configuration states it: src/predict/memory.h counts; here is what a file says of
 * a framework's ways, what is not known, and whether it fits. */
#ifndef FO_JOB_MEMORY_H
#define FO_JOB_MEMORY_H

#include "job/cluster.h"
#include "predict/memory.h"

enum fo_job_fit { FO_JOB_FIT_UNKNOWN, FO_JOB_FITS, FO_JOB_FIT_UNCERTAIN, FO_JOB_FITS_NOT };

struct fo_job_memory {
	struct fo_range part[FO_PREDICT_MEMORIES]; /* bytes; NAN: not known */
	struct fo_range total, usable;             /* bytes; usable: of the device */
	struct fo_range host;                      /* bytes of host memory per device that offloading takes; 0 */
	double stage;                              /* the pipeline stage that these are of, from 0 */
	enum fo_job_fit fit;
	const char *unknown; /* what is missing to say it; NULL */
};
/* Text lives in the job's arena. What a prediction of the same job says (job/predict.h) is this, or inside of it where
 * it assumes what nobody states. */
void fo_job_memory_of(struct fo_job *job, const struct fo_cluster *c, struct fo_job_memory *out);
/* How the job keeps things. */
void fo_job_ways_of(const struct fo_job *job, struct fo_memory_ways *out);

#endif
