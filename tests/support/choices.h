/* Random small models and random legal subsets of passes: each draw moves on from the one before, so a test makes the
 * same choices every time. */
#ifndef FO_TESTS_SUPPORT_CHOICES_H
#define FO_TESTS_SUPPORT_CHOICES_H

#include "support/step.h"

extern uint64_t choices_seed, choices_draws;
int64_t choices_draw(int64_t n); /* 0 to n - 1 */
struct fo_model choices_model(void);
struct fo_model choices_small_model(void); /* of half the width; rotary positions of all kinds */
/* Values that a field of struct fo_passes may take beside 0. */
enum { CHOICES_PASSES = 13 };
extern const struct choices_pass {
	size_t field;
	int64_t value[4];
	int n;
} choices_pass[CHOICES_PASSES];
struct fo_passes choices_passes(const struct fo_model *m);
/* What ranks of a shard group share, and how: a level of zero that shards > 1 permits, with its settings. */
void choices_zero(struct fo_passes *p, int64_t shards);
/* A recipe of fp8, or none, with its settings: perhaps not legal with what shard groups share, or in fp64. */
void choices_fp8(struct fo_passes *p, const struct fo_model *m);
/* Half of all pipelines have parts of any number of layers, a third of them stages that each repeat something else. */
void choices_parts(struct fo_lowering *low, int64_t layers);
/* "fp64, layers 2 hidden 16 ..., fuse-loss=5" */
void choices_describe(char *text, size_t size, const struct fo_model *m, const struct fo_lowering *low);

#endif
