/* What a training run of a few steps leaves, in one order whatever the program; to compare runs with. */
#ifndef FO_TESTS_SUPPORT_OUTCOME_H
#define FO_TESTS_SUPPORT_OUTCOME_H

#include "support/step.h"

enum { OUTCOME_STEPS = 3 };
struct outcome {
	double loss[OUTCOME_STEPS], norm[OUTCOME_STEPS];
	/* Tensors by name and kind (0 weight, 1 master, 2 m, 3 v; 4: m after the first step). */
	struct outcome_item {
		char name[96];
		int which;
		bool part;                   /* of a number: the low halves of weights */
		int64_t n, row, whole, cols; /* rows `row` and on of a tensor of `whole` rows */
		int64_t col, whole_cols;     /* and of its columns those from `col` on */
		double *v;
	} item[512];
	int n;
	double squares[5]; /* by kind, of all its tensors' elements */
	int offset;        /* added to `which` */
};

/* A fo_store_visit_fn; ctx is the struct outcome. */
fo_status outcome_keep(void *ctx, const struct fo_store_tensor *t);
/* Notes what step s of the rig gave; after the first step the gradients too, through the first moment. */
void outcome_step(struct outcome *o, struct step_rig *r, int s);
/* Notes weights and state after the last step. */
void outcome_end(struct outcome *o, struct step_rig *r);
void outcome_free(struct outcome *o);
/* Of the bits of all tensors in their order: gradients, weights and state. */
uint64_t outcome_hash(const struct outcome *o);
/* Adds what another rank has: the same tensors, bit by bit, or other rows or columns of them. again: a rank before may
 * have brought parts, bit by bit the same. */
void outcome_join(struct outcome *o, const struct outcome *more, bool again);
/* The same tensor of another run; a failure fails the test. */
const struct outcome_item *outcome_find(const struct outcome *o, const struct outcome_item *like);
/* |a - b| / |b| in the 2-norm, where |b| counts as at least 1e-3 of all tensors of its kind together: the gradient of a
 * key's bias is 0 in exact arithmetic, and nothing but rounding in any other. */
double outcome_distance(const struct outcome_item *a, const struct outcome_item *b, const struct outcome *all);

/* Fails the test unless the error of `got` against `truth` (fp64) is at most `times` that of `plain`, plus eps, in
 * everything but master copies that are no tensors of their own (dtype I16). */
void outcome_compare(const char *label, const struct outcome *got, const struct outcome *plain,
		     const struct outcome *truth, double times, double eps);

#endif
