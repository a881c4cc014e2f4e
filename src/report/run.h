/* A run directory, looked at: what src/record read of it becomes figures, for a terminal (src/cli/report.c), a page and
 * JSON.
 *
 * Nothing is filtered but steps that were metered, whose time is no figure of the run. What the run left nothing about
 * is NaN, 0 or NULL, never a guess. Ownership: an fo_report owns what it points to until fo_report_fini, but for the
 * record, which must outlive it. */
#ifndef FO_REPORT_RUN_H
#define FO_REPORT_RUN_H

#include "base/clock.h"
#include "base/json.h"
#include "base/fs.h"
#include "draw/doc.h"
#include "record/record.h"
#include "timeline/ranks.h"

/* A slow phase: a stretch of steps whose time, as a running median of FO_SLOW_WINDOW steps, is more than
 * FO_SLOW_TIMES the median of all the run's steps. Phases less than a window apart are one. A run of which more than
 * half is slow shows none. 1.25: on a shared machine the quartiles of undisturbed runs lie within 10 % of the median,
 * and a neighbour on the sibling of a core costs a third and more (docs/metrics.md). */
#define FO_SLOW_TIMES 1.25
enum { FO_SLOW_WINDOW = 9 };
struct fo_report_phase {
	int64_t first, last; /* steps, inclusive */
	double times;        /* median step time over that of the run */
	double lost_s;       /* time beyond the run's median, summed */
	const char *cause;   /* what the log says of that time; "" nothing */
	const char *beside;  /* what lay between its steps, in no step's time: evaluations, checkpoints; "" nothing */
};

/* Time between two steps, from the log's clock. */
enum fo_report_gap { FO_GAP_EVAL, FO_GAP_CHECKPOINT, FO_GAP_STOPPED, FO_GAP_OTHER, FO_GAP_COUNT };
extern const char *const fo_report_gap_name[FO_GAP_COUNT];

/* Planned memory by how long it lives. */
enum fo_report_life {
	FO_LIFE_WEIGHTS,  /* what the model is */
	FO_LIFE_STATE,    /* what the optimizer keeps: masters, moments, constants */
	FO_LIFE_GRADIENT, /* gradients of weights, until the optimizer has taken them */
	FO_LIFE_KEPT,     /* made in forward, used in backward */
	FO_LIFE_PASSED,   /* from one block to another in the same direction */
	FO_LIFE_BLOCK,    /* within one block of one layer */
	FO_LIFE_COUNT
};
extern const char *const fo_report_life_name[FO_LIFE_COUNT];
struct fo_report_buffer { /* of those alive at the peak, all layers and micro-batches together */
	const char *name;
	enum fo_report_life life;
	int64_t copies, bytes;
};
/* A stage of a pipeline: planned bytes of each of its ranks. */
struct fo_report_stage {
	int32_t ranks;
	int64_t layers;
	const char *recompute;
	double arena_bytes, persistent_bytes;
};
/* Pictures are of one rank's program times its ranks: of a pipeline's those of its fullest stage. */
struct fo_report_memory {
	double *live[FO_LIFE_COUNT]; /* bytes at each point of the step; NULL: more than 2^22 operations, or no program
				      */
	int64_t points;              /* operations in issue order */
	int64_t peak;                /* the operation with the most */
	double peak_bytes[FO_LIFE_COUNT]; /* of a pipeline the sums over its stages, each at its own peak */
	double arena_bytes;               /* planned for all that does not persist; NaN without a program */
	struct fo_report_stage *stage;    /* [stages] */
	int stages, shown;                /* 0: no pipeline, or its other stages are not known; the pictures' stage */
	bool others_unknown;              /* a pipeline whose program this version makes in another way */
	struct fo_report_buffer *buffer;  /* the largest first */
	int buffers;
};

struct fo_report {
	struct fo_arena arena;
	const struct fo_record *r;
	/* Steps. Medians and quartiles over all that were not metered. */
	struct fo_spread step_s, tokens_s, mfu[FO_STEP_HFU - FO_STEP_MFU + 1];
	int64_t metered; /* steps that are left out everywhere below */
	int64_t window;  /* of the running medians below: a fortieth of the steps, FO_SLOW_WINDOW to 201 */
	double *loss_smooth, *mfu_smooth[FO_STEP_HFU - FO_STEP_MFU + 1], *seconds, *seconds_smooth,
		*mfu_each; /* a number per row, NaN where metered; NULL: none. seconds_smooth: of FO_SLOW_WINDOW */
	double first_loss, last_loss; /* last: the running median at the end */
	double best_eval, last_eval;
	int64_t best_eval_step, last_eval_step;
	double tokens, step_time_s; /* sums */
	struct fo_report_phase *phase;
	int phases;
	double slow_s, lost_s; /* time in phases; of it what is beyond the median */
	/* wall_s: from the first step's begin to the last one's end, steps and gaps; NaN: the log has no times.
	 * clock_set: how often the log shows that the system's clock was set; gaps there count nothing. */
	double wall_s, gap_s[FO_GAP_COUNT];
	int64_t clock_set;
	int64_t gaps[FO_GAP_COUNT];
	bool has_profile;
	struct fo_profile profile;
	struct fo_ranks ranks; /* ranks 0: the run has one, or left nothing of several */
	/* Of the marks that the ranks keep in ranks/, over the run since it began or went on last; else of the
	 * timelines. */
	struct fo_slow_rank slow;
	char slow_host[80]; /* "" not known */
	struct fo_report_memory memory;
	struct fo_state_use machine; /* over the whole log; load: the highest */
	/* Composed from metered steps (timeline/metered.h); NaN: there are none. */
	double quiet_s, quiet_share, quiet_mfu;
	int64_t metered_steps;
	const char *metered_why; /* why a metered file could not be used; NULL */
	char *command;           /* flatout train with every option that is not a default, to copy */
};

/* Looks at r, which must outlive o. Parts that r was not opened with count as missing. */
void fo_report_make(struct fo_report *o, const struct fo_record *r);
void fo_report_fini(struct fo_report *o);
/* Running median over `window` (odd) finite values around each; NaN where v is NaN. out holds n. */
void fo_running_median(const double *v, int64_t n, int64_t window, double *out);

/* The document of the run; o must outlive it. */
void fo_report_doc(const struct fo_report *o, struct fo_doc *d);
/* Fields of an open JSON object. */
void fo_report_json(const struct fo_report *o, struct fo_json *j);
/* What a named rank costs, as a sentence: "rank 1 (host h2) has 12.3 ms of own work in a step, ...". host: "" not
 * known. */
const char *fo_report_slow_text(struct fo_doc *d, const struct fo_slow_rank *s, const char *host);
/* Member "straggler" of an open object. */
void fo_report_slow_json(struct fo_json *j, const struct fo_slow_rank *s);
/* The i-th sentence on what is missing or damaged; NULL after the last. text holds FO_REPORT_MISSING bytes: such a
 * sentence names a path and its error. */
enum { FO_REPORT_MISSING = 2 * FO_PATH_BYTES };
const char *fo_report_missing(const struct fo_report *o, int i, char *text);

#endif
