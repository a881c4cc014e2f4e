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

/* measured_s of each line: the median over the timeline's steps of the sum of its spans. The oldest step in the rings,
 * which may have lost its beginning, and a run's first, which touches fresh memory, do not count; FO_EARG when no other
 * is there, FO_EFORMAT when the timeline is of another program. `where` names it. The lines' medians need not sum to
 * the median of sums, which is t->measured_s. */
FO_CHECKED fo_status fo_sim_table_timeline(struct fo_sim_table *t, const struct fo_program *p,
					   const struct fo_timeline_file *f, const char *where);
/* measured_s of each line: from metered steps, its operations at their quiet medians; of what was never quiet at the
 * median of all spans. t->measured_s is their sum. An operation without any span makes its line NaN, which counts in
 * neither sum. */
void fo_sim_table_composed(struct fo_sim_table *t, const struct fo_composed *c);
/* Sorts: the largest difference first, behind it what was not measured, the longest first. line_of is of no use then.
 */
void fo_sim_table_sort(struct fo_sim_table *t);

/* What the mean step of a run held, from its log: HFU tells what was executed, and so the attention pairs, the rule 6N
 * how many tokens were no padding. NaN, and pairs < 0, where the log does not tell. The record was opened with its
 * program. */
struct fo_sim_load {
	double pairs;               /* of a micro-batch, as in fo_op_cost */
	double tokens, loss_tokens; /* of a step: without padding; that carry loss */
};
struct fo_sim_load fo_sim_load_of_run(const struct fo_record *r);

#endif
