/* Two runs beside each other, and what explains that one is faster.
 *
 * Figures are medians with quartiles over the steps that were neither metered nor the first of a process; a
 * difference is resolved when the quartile ranges do not overlap. Parts and operations come from the timelines' whole
 * steps. There each operation instance counts with its own median: on a shared machine a stall hits another instance
 * in each step, so that sums by step all hold some while no instance's median does. What a step takes beyond these
 * medians stands apart. Causes are only named where something recorded differs, each with the time of the operations
 * that it concerns.
 *
 * Texts belong to the versus (arena) or to the records, which must outlive it. */
#ifndef FO_REPORT_VERSUS_H
#define FO_REPORT_VERSUS_H

#include "base/clock.h"
#include "draw/doc.h"
#include "record/record.h"

/* Are both there and their quartile ranges apart? */
bool fo_spread_apart(const struct fo_spread *a, const struct fo_spread *b);

enum fo_versus_figure_id {
	FO_VERSUS_STEP_SECONDS,
	FO_VERSUS_TOKENS_PER_SECOND,
	FO_VERSUS_MFU,
	FO_VERSUS_MFU_CAUSAL,
	FO_VERSUS_MFU_DOCUMENT,
	FO_VERSUS_MFU_6N,
	FO_VERSUS_HFU,
	FO_VERSUS_DATA_SECONDS,
	FO_VERSUS_FIGURES
};
extern const char *const fo_versus_figure_name[FO_VERSUS_FIGURES];

struct fo_versus_op {   /* seconds of one step */
	char block[24]; /* "layer.f": variants of a block ("layer.f.first") count as it */
	int kind, phase;
	bool in[2];
	struct fo_spread time[2];
	double difference; /* of the medians, B - A; one that is absent takes no time */
	bool apart;
};
struct fo_versus_option {
	const char *key, *value[2], *origin[2]; /* "": the run does not have it */
};
struct fo_versus_side {
	const struct fo_record *record;
	struct fo_spread figure[FO_VERSUS_FIGURES];
	struct fo_spread
		part[FO_PART_COUNT]; /* seconds of one step: sums of instances' quartiles; n 0 without a timeline */
	struct fo_spread covered;    /* a step from the first to the last span of the compute lane */
	double beyond_s;             /* median of that less all parts' medians: stalls, gaps; NAN */
	struct fo_spread once[FO_PART_COUNT]; /* part without what backward repeats */
	struct fo_spread phase[FO_PHASE_COUNT];
	double mean_part[FO_PART_COUNT];         /* from the log, for runs without a timeline; NAN */
	double planned_bytes, measured_bytes;    /* NAN */
	double tokens;                           /* with loss, of a step, median; NAN */
	double clock_hz, steal, limited_s, load; /* time-weighted over the run, load the median; NAN */
	double quiet_s;                          /* quiet step time of metered steps; NAN */
	double quiet_share;                      /* of it, from operations with a quiet span */
};
struct fo_versus {
	struct fo_arena arena;
	struct fo_versus_side side[2];
	bool same_run;     /* both are one folder, under one name or two */
	bool same_program; /* both known and alike */
	bool same_data;    /* both known and alike: training shard */
	bool operations;   /* both have a timeline */
	struct fo_versus_op *op;
	int64_t ops; /* largest difference first */
	struct fo_versus_option *option;
	int64_t options;
	/* losses at equal steps */
	int64_t common_steps, identical_steps; /* identical: from the first common step on, bit for bit */
	double largest_loss_difference;        /* |B - A|; NAN */
	int64_t largest_at, last_common;       /* steps; -1 */
	double last_loss[2];                   /* at last_common */
	int64_t eval_step;                     /* last common evaluation, -1 */
	double eval_loss[2];
	const char **cause;
	int64_t causes;
};
void fo_versus_make(struct fo_versus *v, const struct fo_record *a, const struct fo_record *b);
void fo_versus_fini(struct fo_versus *v);
/* Are the step times' quartiles apart? */
bool fo_versus_step_resolved(const struct fo_versus *v);
/* Parts and operations are of the newest steps only, so none of their differences is resolved unless the step times are
 * (or are not known). */
bool fo_versus_parts_resolved(const struct fo_versus *v);
/* An operation that only one run has is resolved whatever the step times are. */
bool fo_versus_op_resolved(const struct fo_versus *v, const struct fo_versus_op *o);

/* The comparison as a document whose pictures point into v. all: a terminal gets every operation and option. */
void fo_versus_doc(const struct fo_versus *v, bool all, struct fo_doc *d);

#endif
