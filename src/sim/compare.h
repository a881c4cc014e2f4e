/* A predicted step beside a measured one, operation by operation: a line for each operation of a block, all its
 * instances of a step together. Only lanes that compute, with their own time (timeline.h): what others do shows where
 * they wait. */
#ifndef FO_SIM_COMPARE_H
#define FO_SIM_COMPARE_H

#include "record/record.h"
#include "sim/sim.h"

struct fo_sim_line {
	int block, op, times;           /* times: instances in a step */
	double predicted_s, measured_s; /* of all of them; measured: NaN before anything is */
	enum fo_sure sure;              /* of the least sure one */
};
struct fo_sim_table {
	struct fo_sim_line *line;
	int lines;
	int32_t *line_of;               /* per instance; -1: on another lane */
	double predicted_s, measured_s; /* sums of the lines */
	int steps;                      /* that were measured */
	int instances;                  /* of a step, on all lanes */
};
/* Ends with fo_sim_table_fini. */
void fo_sim_table_init(struct fo_sim_table *t, const struct fo_sim *s, const struct fo_program *p,
		       const struct fo_unrolled *u);
void fo_sim_table_fini(struct fo_sim_table *t);

/* measured_s of each line: the median over the timeline's steps of the sum of its spans. The oldest step in the rings
 * and a run's first do not count; FO_EARG when there is no other, FO_EFORMAT when the timeline is of another program.
 * `where` names it. t->measured_s is the median of sums, not the sum of medians. */
FO_CHECKED fo_status fo_sim_table_timeline(struct fo_sim_table *t, const struct fo_program *p,
					   const struct fo_timeline_file *f, const char *where);
/* The same from metered steps: each operation's quiet median, else the median of all its spans. t->measured_s is their
 * sum. Without any span a line is NaN and counts in neither sum. */
void fo_sim_table_composed(struct fo_sim_table *t, const struct fo_composed *c);
/* Communication that was exposed (timeline/ranks.h) in the steps of rank 0's timeline but the first. */
struct fo_sim_exposed {
	int steps;
	double median_s, best_s;
	double lane_median_s[FO_LANE_COUNT]; /* by lane; medians do not sum to the median of sums */
};
FO_CHECKED fo_status fo_sim_exposed_of(struct fo_sim_exposed *x, const struct fo_timeline_file *f, const char *where);
/* Sorts by difference, largest first; then what was not measured, longest first. line_of does not hold after that. */
void fo_sim_table_sort(struct fo_sim_table *t);

/* What the mean step of a run held, from its log: attention pairs follow from HFU, tokens without padding from the rule
 * 6N. NaN, and pairs < 0, where the log does not say. The record was opened with its program. */
struct fo_sim_load {
	double pairs;               /* of a micro-batch, as in fo_op_cost */
	double tokens, loss_tokens; /* of a step: without padding; that carry loss */
};
struct fo_sim_load fo_sim_load_of_run(const struct fo_record *r);

#endif
