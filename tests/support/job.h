/* Jobs and models made by hand, for tests of the arithmetic of memory and of time. */
#ifndef FO_TESTS_JOB_H
#define FO_TESTS_JOB_H

#include "job/worth.h"

/* Llama-3.1-8B on 8 H100 with FSDP, sequences of 8,192, one of a rank and step; nothing recomputed, all fused. */
struct job_rig {
	struct fo_catalogue catalogue;
	struct fo_arena arena;
	struct fo_cluster cluster;
	struct fo_job job;
	struct fo_job_form form;
};
void job_rig_init(struct job_rig *g, const char *form, const char *cluster);
void job_rig_fini(struct job_rig *g);
static inline void job_set(struct job_rig *g, enum fo_job_setting s, double number) { fo_job_set(&g->job, s, number); }

#endif
