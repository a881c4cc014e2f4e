/* A ladder that nobody climbed: from a configuration as it is one change after the other, each alone and on top of
 * those before it, as src/predict sees them. The changes are those of Lambda's "Reproducible MFU optimization
 * techniques" (2026), in the order of its sections. A change that the prediction does not tell apart gets no gain. */
#ifndef FO_LADDER_PREDICTED_H
#define FO_LADDER_PREDICTED_H

#include "job/predict.h"
#include "plan/plan.h"

enum fo_rung_state {
	FO_RUNG_TAKEN,     /* on top of those before it a gain */
	FO_RUNG_LOSES,     /* there it would be slower: left out of the chain */
	FO_RUNG_TOO_LARGE, /* there no form of it fits in memory: left out */
	FO_RUNG_SAME,      /* the prediction does not tell it apart */
	FO_RUNG_IS_SO,     /* the configuration has it, or has nothing that it is about */
	FO_RUNG_ILLEGAL,   /* the framework, or what else is stated, allows no form of it */
	FO_RUNG_BESIDE,    /* another number type: beside the chain, on top of all of it */
	FO_RUNG_STATES
};
extern const char *const fo_rung_state_name[FO_RUNG_STATES];

struct fo_predicted_rung {
	const char *id, *title, *section; /* section of the document */
	enum fo_rung_state state;
	const char *change, *change_alone; /* "tp 8 -> 1"; NULL: nothing */
	struct fo_predict_gain alone;      /* over the baseline; NAN: does not fit alone, or changes nothing there */
	struct fo_predict_gain step, together; /* over the rung before it; of the chain up to here over the baseline */
	double seconds, tokens_s, mfu_causal, bytes, global_batch; /* of the chain up to here */
};
enum { FO_PREDICTED_RUNGS = 16 };
struct fo_predicted_ladder {
	struct fo_arena arena;
	struct fo_job_asked baseline, top; /* top: with all changes that were taken */
	struct fo_predict_step base_step, top_step;
	struct fo_predict_certainty base_sure, top_sure;
	bool base_fits; /* its upper end */
	const struct fo_plan_framework *framework;
	struct fo_predicted_rung rung[FO_PREDICTED_RUNGS];
	int rungs;
};
/* The rest of the document, which no prediction knows: one sentence without a full stop. */
extern const char fo_predicted_unknown[];

/* Fills the ladder of a job whose configuration is whole. The job stays as it is and must outlive *out, which needs
 * fini also after an error. FO_EARG, FO_EUNSUPPORTED: as fo_job_ask. FO_ENOMEM: the baseline does not fit at all. */
FO_CHECKED fo_status fo_ladder_predict(struct fo_predicted_ladder *out, struct fo_job *job, const struct fo_cluster *c,
				       const struct fo_job_machine_given *given);
void fo_predicted_ladder_fini(struct fo_predicted_ladder *l);

/* Completes a job without a configuration: sets what torchtitan's own of a model of this size has, where nobody states
 * it. A step's batch that is stated stays, as several passes. Returns what was assumed, one sentence in the job's
 * arena, or NULL where all of it is stated. */
const char *fo_ladder_assume_baseline(struct fo_job *job, const struct fo_cluster *c);

#endif
