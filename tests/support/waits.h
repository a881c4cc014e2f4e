/* An oracle of what a program's waits are for, which knows nothing of how unroll and plan found them: every pair of
 * instances that touch the same bytes, and which of them are in order. Then each wait is left out in turn: instances
 * run in the worst order that is legal without it, and the numbers must change. */
#ifndef FO_TESTS_SUPPORT_WAITS_H
#define FO_TESTS_SUPPORT_WAITS_H

#include "program/program.h"

struct waits {
	const struct fo_program *p;
	const struct fo_unrolled *u;
	int *previous;                /* of the same lane; -1 none */
	int (*before)[FO_LANE_COUNT]; /* the newest instance of each lane that is certain to have finished before i
					 begins */
	struct waits_pair {
		int i, j;
		bool reuse, accumulate;
	} * pair; /* must not change places */
	int pairs;
	size_t cap;
};
void waits_make(struct waits *g, const struct fo_program *p, const struct fo_unrolled *u);
void waits_free(struct waits *g);
/* What is in order without the wait of instance skip_at for lane skip_lane; -1: with all of them. */
void waits_order_known(struct waits *g, int skip_at, int skip_lane);
bool waits_ordered(const struct waits *g, const struct waits_pair *x);

/* What a run left; all bytes of two are compared. */
struct waits_result {
	bool finished;
	double loss[2], scale[2];
	uint64_t hash;
};
/* From the same start each time: runs the instances in this order. */
typedef void waits_run_fn(void *ctx, const int *order, struct waits_result *out);

struct waits_tally {
	int waits, data, reuse; /* left out; of them noticed or excused below: for data, for reused bytes */
	int idle;               /* no two instances that it alone orders touch the same bytes */
	int commuting;          /* sums that came out the same in another order */
	int stale;              /* a copy whose numbers lay there already: fetched, or gathered again */
};
/* Leaves out each wait; fails the test where the numbers stay and nothing of the above explains it. comm: only waits of
 * operations between ranks, and for them. */
void waits_drop_each(struct waits *g, bool comm, waits_run_fn *run, void *ctx, const char *label,
		     struct waits_tally *t);
void waits_print(const struct waits_tally *t);

#endif
