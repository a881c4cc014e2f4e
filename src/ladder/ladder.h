/* A ladder: one run configuration, changed one thing at a time, each change measured against the rung it starts from.
 *
 * src/ladder/engine trains the rungs in turns and leaves everything in run directories (docs/commands/ladder.md); this header is
 * the result that is read back from them, and what is made of it: text for a terminal, ladder.json, ladder.html. No engine is
 * needed to read and show one.
 *
 * Ownership: a result owns what it points to, in its arena, until fo_ladder_fini. NaN stands for "not measured". */
#ifndef FO_LADDER_LADDER_H
#define FO_LADDER_LADDER_H

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "timeline/timeline.h"

#include <math.h>

enum fo_ladder_verdict {
	FO_LADDER_BASELINE,      /* starts from nothing */
	FO_LADDER_GAIN,          /* the whole interval of the gain is above 1 */
	FO_LADDER_LOSS,          /* ... below 1 */
	FO_LADDER_UNRESOLVED,    /* the interval holds 1: "not resolved" */
	FO_LADDER_NUMERICS_ONLY, /* emulated arithmetic: its time says nothing about hardware that has it */
	FO_LADDER_FAILED,        /* could not be trained: `reason` */
	FO_LADDER_UNMEASURED,    /* rounds are missing, of it or of the rung it starts from */
	FO_LADDER_VERDICT_COUNT
};
extern const char *const fo_ladder_verdict_name[FO_LADDER_VERDICT_COUNT];

/* Whether the losses stay on those of the rung they are compared with: see docs/metrics.md for the measure and its bounds. */
enum fo_ladder_check {
	FO_LADDER_REFERENCE, /* others are compared with this one */
	FO_LADDER_NEW_DATA,  /* other batches (packing): compared with its reference by held-out loss alone, and itself a reference */
	FO_LADDER_HELD,
	FO_LADDER_LEFT,
	FO_LADDER_UNCHECKED, /* failed, or no common steps yet */
	FO_LADDER_CHECK_COUNT
};
extern const char *const fo_ladder_check_name[FO_LADDER_CHECK_COUNT];

/* Over the timed steps of all rounds, unfiltered. */
struct fo_ladder_spread {
	double median, low, high; /* low, high: quartiles */
};
enum fo_ladder_rule { FO_LADDER_MFU, FO_LADDER_MFU_CAUSAL, FO_LADDER_MFU_DOCUMENT, FO_LADDER_MFU_6N, FO_LADDER_HFU, FO_LADDER_RULES };
extern const char *const fo_ladder_rule_name[FO_LADDER_RULES];

struct fo_ladder_change {
	const char *key, *value, *was; /* as on the command line: --key=value; was: of the rung it starts from */
};

struct fo_ladder_rung {
	const char *name, *what; /* what: one sentence */
	int from;                /* index of an earlier rung; -1: baseline */
	const struct fo_ladder_change *change; /* against `from` */
	int changes;
	const char *options;     /* behind `flatout train RUN.yaml`: what makes this rung of the run file; to copy */
	const char *dir;         /* its run directory */
	bool numerics_only;

	int64_t steps_done;
	int rounds_done;
	const char *reason;      /* why it failed; NULL */
	double peak_flop_s;      /* what its MFU divides by, of this dtype */
	const char *peak_dtype, *peak_source;

	/* Time and throughput. The first step of each turn (cold memory) and metered steps are not among the timed ones. */
	int64_t timed_steps;
	double *round_step_s;    /* per round: median step time; NaN: not done */
	double *round_tokens_s;  /* per round: mean useful tokens of a step over that time */
	struct fo_ladder_spread step_s, tokens_s; /* useful tokens */
	struct fo_ladder_spread mfu[FO_LADDER_RULES]; /* fractions of the peak */
	double padding;          /* share of processed tokens that carry no loss */

	/* Beside it: the step time composed from quiet spans (timeline/metered.h). */
	double quiet_s, quiet_share, enough_share, quiet_spans_share;
	double quiet_mfu[FO_LADDER_RULES];
	int64_t metered_steps;

	double part_s[FO_PART_COUNT]; /* mean over timed steps; sums to the mean step time */
	int64_t planned_bytes, measured_bytes; /* largest over the turns; 0: unknown */

	/* Gain: useful tokens/s over those of `from`, by pairs of one round (fo_ladder_interval). */
	enum fo_ladder_verdict verdict;
	double gain, gain_low, gain_high, gain_level; /* 1.10 is ten percent more; level: of the interval, 0.9375 with five rounds */
	double predicted_step_s, predicted_gain;      /* NaN: no machine profile */

	/* Numbers. loss[i]: training loss of step i + 1, NaN where the step is not done. */
	double *loss;
	double val_loss;         /* held out, after the last step */
	int reference;           /* rung whose losses these are compared with; itself: none */
	enum fo_ladder_check check;
	double deviation, tolerance; /* relative; docs/metrics.md */
};

struct fo_ladder {
	struct fo_arena arena;
	const char *dir, *started, *version; /* started: UTC */
	const char *model;       /* "flatout-134m", "custom" */
	double params, flop_per_token; /* by rule mfu */
	int64_t seq, tokens_per_step;  /* padding included */
	const char *cpu, *isa;
	int threads;
	const char *run_file;    /* as given on the command line */
	int64_t steps;           /* of each rung, in all */
	int rounds;
	uint64_t seed;           /* of the order of turns */
	const char *predict_hint; /* why there is no predicted gain, and how to get it; NULL: there is one */
	struct fo_ladder_rung *rung;
	int rungs;
};

void fo_ladder_fini(struct fo_ladder *l);

/* One self-contained page. */
void fo_ladder_html(const struct fo_ladder *l, struct fo_str *out);

#endif
