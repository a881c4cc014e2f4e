/* Continuing a text: a model with a cache of keys and values, and a sampler that draws the next token. */
#ifndef FO_TRAIN_GENERATE_H
#define FO_TRAIN_GENERATE_H

#include "train/exec.h"

/* ---- the model side ---- */

/* Two step programs (FO_MODE_DECODE) over one store: chunks of several tokens for what is given, single tokens for what
 * is generated. Both share weights, cache and arena. */
struct fo_generator;
/* The store holds the model's weights in `precision`, as programs with these passes lay them out (NULL: the plain one);
 * the cache and longer tables are added to it. context: the most tokens of the text; chunk: tokens of a prompt that go
 * through the model together. Model, store and options must outlive it; `share` as in fo_exec_new. FO_EARG for
 * dimensions, FO_ENOMEM. */
FO_CHECKED fo_status fo_generator_new(struct fo_generator **out, const struct fo_model *m, enum fo_numerics precision,
				      const struct fo_passes *passes, struct fo_store *s,
				      const struct fo_exec_options *o, int64_t context, int64_t chunk,
				      struct fo_exec *share);
void fo_generator_free(struct fo_generator *g);
/* Appends ids[0..n) to the text, n >= 1. FO_EARG when an id is not of the vocabulary or the text would exceed the
 * context: then nothing was appended. */
FO_CHECKED fo_status fo_generator_push(struct fo_generator *g, const int32_t *ids, int64_t n);
/* Logits (V) of the token that would come next; overwritten by the next push. */
const float *fo_generator_logits(const struct fo_generator *g);
int64_t fo_generator_length(const struct fo_generator *g); /* tokens so far */
int64_t fo_generator_context(const struct fo_generator *g);
/* Forgets the text, keeps everything else. */
void fo_generator_clear(struct fo_generator *g);
/* Bytes that the step of one more token reads and writes: weights, cache so far, activations. */
double fo_generator_step_bytes(const struct fo_generator *g);

/* ---- drawing ---- */

/* logits / temperature, the top_k largest of them, of these the fewest whose probabilities sum to top_p or more, then
 * one at random. Equal logits rank by id: the lower first. temperature 0: the largest logit, always. */
struct fo_sampling {
	double temperature; /* 0 or more */
	int64_t top_k;      /* 0: all */
	double top_p;       /* (0, 1]; 1: all */
	uint64_t seed;
};
struct fo_sampler {
	struct fo_sampling how;
	int64_t vocab;
	/* Candidates of the last draw with their probabilities: by rank where top_k or top_p cut, else by id. */
	int64_t kept;
	int32_t *id;
	double *p;
	int32_t *heap;
};
void fo_sampler_init(struct fo_sampler *s, const struct fo_sampling *how, int64_t vocab);
void fo_sampler_fini(struct fo_sampler *s);
/* Token number `index` of this seed: depends on seed, index and logits[0..vocab) alone. -1 when a logit is NaN or none
 * is finite. Allocates nothing. */
int32_t fo_sampler_draw(struct fo_sampler *s, const float *logits, uint64_t index);

#endif
