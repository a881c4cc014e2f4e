/* Small whole training steps for tests: a model, a batch, a store and an executor whose ports serve them. */
#ifndef FO_TESTS_SUPPORT_STEP_H
#define FO_TESTS_SUPPORT_STEP_H

#include "ckpt/ckpt.h"
#include "cost/cost.h"
#include "train/exec.h"

/* Tokens of one step: [micro_batches][rows * seq], as the engine takes them (target -1: no loss; doc_start flat over
 * the micro-batch). */
struct step_batch {
	int64_t seq, rows, micro_batches;
	int32_t *token, *target, *position, *doc_start;
	int64_t loss_tokens;
	double pairs; /* (query, key) that see each other, over all micro-batches */
};

struct step_rig {
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	const struct step_batch *batch;
	double hyper[FO_HYPER_COUNT];
	double loss[2], scale[2]; /* what came out of the loss port */
	double *logits;           /* [micro_batches][T][V] where FO_MODE_LOGITS, else NULL */
	unsigned char *arena;     /* where the executor's arena lies; known once a training step has run */
	int calls;                /* of ports */
};

struct fo_model step_model(int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn, int64_t vocab,
			   bool tied);
struct fo_lowering step_lowering(const struct step_batch *b, enum fo_numerics precision, enum fo_mode mode);

/* Random tokens. documents: 0 one per row, n: about n per row at random borders; one target in eight is -1. */
void step_batch_random(struct step_batch *b, int64_t seq, int64_t rows, int64_t micro_batches, int64_t vocab,
		       int documents, uint64_t seed);
void step_batch_alloc(struct step_batch *b, int64_t seq, int64_t rows, int64_t micro_batches);
/* The same tokens in `micro_batches`, of equally many rows. */
void step_batch_split(struct step_batch *out, const struct step_batch *all, int64_t micro_batches);
/* Counts targets and pairs. */
void step_batch_count(struct step_batch *b);
/* Counts pairs anew for a model whose queries see at most `window` keys (0: all). */
void step_batch_window(struct step_batch *b, int64_t window);
void step_batch_free(struct step_batch *b);

/* A program of *run with its passes, unrolled, and what it costs: nothing runs. A failure fails the test. */
struct step_built {
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_cost cost;
};
void step_build(struct step_built *b, const struct fo_model *m, const struct fo_lowering *run);
void step_built_free(struct step_built *b);

/* Takes over *p. The batch must outlive the rig. Hyper-parameters begin as rate 1e-3, betas 0.9 and 0.95, eps 1e-8,
 * decay 0.1, clip 1, corrections of step 1. A failure fails the test. */
void step_rig_new(struct step_rig *r, struct fo_program *p, const struct step_batch *b,
		  const struct fo_exec_options *o);
/* The program of *run with its passes. */
void step_rig_lower(struct step_rig *r, const struct fo_model *m, const struct fo_lowering *run,
		    const struct step_batch *b, const struct fo_exec_options *o);
void step_rig_free(struct step_rig *r);
/* Bias corrections of the step (1-based) and its number; tokens from the batch. */
void step_rig_at(struct step_rig *r, int64_t step);
/* Fills weights and master copies from a Hugging Face folder. */
void step_rig_load(struct step_rig *r, const char *dir);
/* XXH3 over every weight, master copy, m and v. */
uint64_t step_rig_hash(struct step_rig *r);

/* Copies every weight, master copy, m and v out (the caller frees) and back in. */
void *step_rig_save(struct step_rig *r);
void step_rig_restore(struct step_rig *r, const void *saved);
void step_rig_put_back(struct step_rig *r, const void *saved); /* and tells nobody */

/* As double, whatever the dtype. */
double step_get(const void *data, int dtype, int64_t i);
/* "$FLATOUT_SOURCE/tests/golden/<dir>/<file>" */
char *step_golden(char buf[512], const char *dir, const char *file);

#endif
