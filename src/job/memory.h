/* Memory of one device, by parts, from the arithmetic of sharding; the device of the fullest pipeline stage. */
#ifndef FO_JOB_MEMORY_H
#define FO_JOB_MEMORY_H

#include "job/cluster.h"

enum fo_job_part {
	FO_JOB_PART_WEIGHTS,
	FO_JOB_PART_GRADIENTS,
	FO_JOB_PART_OPTIMIZER, /* moments and masters */
	FO_JOB_PART_ACTIVATIONS,
	FO_JOB_PART_LOGITS,
	FO_JOB_PART_BUFFERS, /* weights gathered for use, buckets, communication libraries */
	FO_JOB_PART_RESERVE, /* context, workspaces, fragmentation */
	FO_JOB_PARTS
};
extern const char *const fo_job_part_name[FO_JOB_PARTS];

enum fo_job_fit { FO_JOB_FIT_UNKNOWN, FO_JOB_FITS, FO_JOB_FIT_UNCERTAIN, FO_JOB_FITS_NOT };

struct fo_job_memory {
	struct fo_range part[FO_JOB_PARTS]; /* bytes; NAN: not known */
	struct fo_range total, usable;      /* bytes; usable: of the device */
	struct fo_range host;               /* bytes of host memory per device that offloading takes; 0 */
	double stage;                       /* the pipeline stage that these are of, from 0 */
	enum fo_job_fit fit;
	const char *unknown; /* what is missing to say it; NULL */
};
/* Bytes of a device that programs can have; NAN: its memory is not in the catalogue. */
struct fo_range fo_cluster_usable(const struct fo_cluster *c);
/* Formulas and their sources stand in docs/memory-arithmetic.md. Text lives in the job's arena. */
void fo_job_memory_of(struct fo_job *job, const struct fo_cluster *c, struct fo_job_memory *out);

#endif
