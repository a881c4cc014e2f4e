/* Common to the memory and the time of a job: who keeps its states, and what it computes again. Private to
 * src/job. */
#ifndef FO_JOB_MEMORY_INT_H
#define FO_JOB_MEMORY_INT_H

#include "job/memory.h"

/* Bytes of a word of enum FP32, BF16, FP16. */
static inline double fo_job_bytes_of(double word) { return word == FO_JOB_FP32 ? 4 : 2; }
enum fo_memory_keeper fo_job_keeper_of(const struct fo_job *job);
static inline bool fo_job_adapters(const struct fo_job *job) { return fo_job_is(job, FO_JOB_ADAPTERS, 1); }

/* Layers of uneven pipeline stages, and what contradicts: first_layers, middle_layers, last_layers, chunks, wrong. */
void fo_job_stages_of(struct fo_job *job, struct fo_job_shape *o);

/* What decides how much of a layer is kept and how much is done again. */
enum fo_job_again {
	FO_JOB_AGAIN_NONE,
	FO_JOB_AGAIN_CORE,     /* Megatron's selective: the attention's core, and the modules named */
	FO_JOB_AGAIN_EVERY_OP, /* torchtitan's "op": matmuls and attention are kept, every second matmul is not */
	FO_JOB_AGAIN_NTH,      /* every n-th layer is computed again */
	FO_JOB_AGAIN_FULL,
	FO_JOB_AGAIN_UNKNOWN,
};
struct fo_job_recompute {
	enum fo_job_again mode;
	double share;     /* of the layers that recompute, 0 to 1 */
	bool core;        /* of the attention */
	unsigned modules; /* FO_PREDICT_AGAIN_... */
	bool offload;
};
struct fo_job_recompute fo_job_recompute_of(const struct fo_job *job);

/* ZeRO's stage as the shape takes it: 0 where states are not sharded; NAN. */
double fo_job_zero(const struct fo_job *job, const struct fo_job_shape *s);

#endif
