/* A ladder: one run configuration, changed one thing at a time, each change measured against the rung it starts from.
 *
 * src/ladder/engine trains the rungs in turns and leaves everything in run directories (docs/commands/ladder.md). This
 * header is the result that is read back from them, without the engine. It owns what it points to (arena) until
 * fo_ladder_fini. NaN: not measured. */
#ifndef FO_LADDER_LADDER_H
#define FO_LADDER_LADDER_H

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "cost/cost.h"
#include "draw/doc.h"
#include "program/run.h"
#include "timeline/timeline.h"

#include <math.h>

enum fo_ladder_verdict {
	FO_LADDER_BASELINE,      /* starts from nothing */
	FO_LADDER_GAIN,          /* the whole interval of the gain is above 1 */
	FO_LADDER_LOSS,          /* ... below 1 */
	FO_LADDER_UNRESOLVED,    /* the interval holds 1: "not resolved" */
	FO_LADDER_UNSTEADY,      /* the rounds differ too much to say anything: fo_ladder_unsteady */
	FO_LADDER_NUMERICS_ONLY, /* emulated arithmetic: its time says nothing about hardware that has it */
	FO_LADDER_FAILED,        /* could not be trained: `reason` */
	FO_LADDER_UNMEASURED,    /* rounds are missing, of it or of the rung it starts from */
	FO_LADDER_VERDICT_COUNT
};
extern const char *const fo_ladder_verdict_name[FO_LADDER_VERDICT_COUNT];

/* Do the losses stay close to those of the rung they are compared with? docs/metrics.md has the measure and its
 * bounds. */
enum fo_ladder_check {
	FO_LADDER_REFERENCE, /* others are compared with this one */
	FO_LADDER_NEW_DATA, /* other batches (packing): compared with its reference by held-out loss alone, and itself a
			       reference */
	FO_LADDER_HELD,
	FO_LADDER_LEFT,
	FO_LADDER_UNCHECKED, /* failed, or no common steps yet */
	FO_LADDER_CHECK_COUNT
};
extern const char *const fo_ladder_check_name[FO_LADDER_CHECK_COUNT];

enum fo_ladder_rule {
	FO_LADDER_MFU,
	FO_LADDER_MFU_CAUSAL,
	FO_LADDER_MFU_DOCUMENT,
	FO_LADDER_MFU_6N,
	FO_LADDER_HFU,
	FO_LADDER_RULES
};
extern const char *const fo_ladder_rule_name[FO_LADDER_RULES];

struct fo_ladder_change {
	const char *key, *value, *was; /* as on the command line: --key=value; was: of the rung it starts from */
};

struct fo_ladder_rung {
	const char *name, *what;               /* what: one sentence */
	int from;                              /* index of an earlier rung; -1: baseline */
	const struct fo_ladder_change *change; /* against `from` */
	int changes;
	const char *options; /* behind `flatout train RUN.yaml`: what makes this rung of the run file, but for run.dir;
				for a shell */
	const char *dir;     /* its run directory */
	bool numerics_only;

	int64_t steps_done;
	int rounds_done;
	const char *reason; /* why it failed; NULL */
	double peak_flop_s; /* what its MFU divides by, of this dtype */
	const char *peak_dtype, *peak_source;

	/* Time and throughput. The first step of each turn (cold memory) and metered steps are not among the timed
	 * ones. */
	int64_t timed_steps;
	double *round_step_s;                  /* per round: median step time; NaN: not done */
	double *round_tokens_s;                /* per round: mean useful tokens of a step over that time */
	struct fo_spread step_s, tokens_s;     /* over the timed steps of all rounds, unfiltered; useful tokens */
	double step_tokens;                    /* mean useful tokens of a timed step */
	struct fo_spread mfu[FO_LADDER_RULES]; /* fractions of the peak */
	double padding;                        /* share of processed tokens that carry no loss */
	/* Shares of the text in all planned steps; NaN: not known. text_seen: tokens that came at least once;
	 * text_passes: tokens in all (2: everything came twice); text_reached: tokens that come at some time however
	 * long it trains, less than 1 where rows cut documents off. */
	double text_seen, text_passes, text_reached;

	/* The step time composed from quiet spans (timeline/metered.h). */
	double quiet_s, quiet_share, enough_share, quiet_spans_share;
	double quiet_mfu[FO_LADDER_RULES];
	int64_t metered_steps;

	double part_s[FO_PART_COUNT];          /* mean over timed steps; sums to the mean step time */
	int64_t planned_bytes, measured_bytes; /* largest over the turns; 0: unknown */

	/* Gain: useful tokens/s over those of `from`, by pairs of one round (fo_ladder_interval); NaN until both have
	 * all rounds. */
	enum fo_ladder_verdict verdict;
	double gain, gain_low, gain_high,
		gain_level; /* 1.10 is ten percent more; level: of the interval, 0.9375 with five rounds */
	double predicted_step_s, predicted_gain; /* NaN: no machine profile */
	double sure[FO_SURE_COUNT];              /* shares of the predicted operations' time: how it is known */

	/* Numbers. loss[i]: training loss of step i + 1, NaN where the step is not done, INFINITY where it is and its
	 * loss is none. */
	double *loss, *tokens; /* tokens[i]: that carried the loss; NaN: the step is not done */
	double val_loss;       /* held out, after the last step */
	int reference;         /* rung whose losses these are compared with; itself: none */
	enum fo_ladder_check check;
	double deviation, tolerance; /* relative; docs/metrics.md */
};

struct fo_ladder {
	struct fo_arena arena;
	const char *dir, *started, *version; /* started: UTC */
	const char *model;                   /* "flatout-134m", "custom" */
	double params, flop_per_token;       /* by rule mfu */
	int64_t seq, tokens_per_step;        /* padding included */
	int ranks;                           /* that share a step's rows; 0: not known */
	int64_t text_tokens;                 /* of the text that is trained on; 0: not known */
	const char *cpu, *isa;
	const char *device; /* that the rungs were trained on; "": the processor */
	int threads;
	double load;          /* highest load average that a turn recorded; NaN: none did */
	int64_t processors;   /* that the load is of; -1: not told */
	const char *run_file; /* as given on the command line */
	int64_t steps;        /* of each rung, in all */
	int rounds;
	uint64_t seed;            /* of the order of turns */
	const char *predict_hint; /* why there is no predicted gain, and how to get it; NULL: there is one */
	struct fo_ladder_rung *rung;
	int rungs;
};

/* ---- the plan: which rungs, and what each of them changes ---- */

enum { FO_LADDER_MAX_RUNGS = 64, FO_LADDER_MAX_CHANGES = 32, FO_LADDER_NAME_MAX = 20 };
#define FO_LADDER_DEFAULT_STEPS 500
#define FO_LADDER_DEFAULT_ROUNDS 5
/* Fewer pairs give no interval of a level above nine tenths (fo_ladder_interval). */
enum { FO_LADDER_MIN_ROUNDS = 5, FO_LADDER_MAX_ROUNDS = 100 };
/* The fewest steps of a turn: the first is cold, the last is metered, two are timed. */
enum { FO_LADDER_MIN_TURN = 4 };

struct fo_ladder_plan {
	struct fo_arena arena;
	struct fo_opt_set
		*base; /* of the run file and the command line; borrowed, its rows begin with fo_run_options */
	const char *dir, *run_file, *version, *cpu;
	int threads;
	int64_t steps, rounds;
	uint64_t seed;
	struct fo_ladder_rung *rung; /* name, what, from, change, options, dir, numerics_only, reference are set */
	int rungs;
};
/* Does the option belong to the ladder and not to a rung? Such options say where it lives, what it reads, when it saves
 * and evaluates. */
bool fo_ladder_key_reserved(const char *key);
/* Fills p with the ladder of docs/commands/ladder.md for this run; a rung that cannot be (half of one micro-batch, the
 * precision that it has) is left out. FO_EARG as fo_ladder_plan_file. */
FO_CHECKED fo_status fo_ladder_plan_default(struct fo_ladder_plan *p);
/* Reads rungs from a YAML file (docs/formats.md). FO_EARG whose text has one line per mistake: unknown keys with the
 * nearest one, values out of range, options that do not go together in some rung. */
FO_CHECKED fo_status fo_ladder_plan_file(struct fo_ladder_plan *p, const char *path);
FO_CHECKED fo_status fo_ladder_plan_text(struct fo_ladder_plan *p, const char *text, size_t len, const char *where);
/* Makes the run of rung i from the base, its changes and those of the rungs that it builds on, and the ladder's own
 * options; `data`: the folder of shards that all rungs share, NULL: the base's text. s is initialised in any case; ends
 * with fo_opt_fini. */
FO_CHECKED fo_status fo_ladder_plan_run(const struct fo_ladder_plan *p, int i, const char *data, struct fo_opt_set *s,
					struct fo_run *r);
/* Does the ladder make the shards that all rungs share? false: data.path is a prepared folder. */
bool fo_ladder_plan_prepares(const struct fo_ladder_plan *p);
/* Last step of round `round`, from 0. */
static inline int64_t fo_ladder_round_end(int64_t steps, int64_t rounds, int64_t round)
{
	return steps * (round + 1) / rounds;
}
/* Draws the order of a round's turns from the seed: a permutation of 0..rungs-1. */
void fo_ladder_order(uint64_t seed, int round, int rungs, int *order);
void fo_ladder_plan_fini(struct fo_ladder_plan *p);

/* DIR/plan.json: written at the first start. When it is there, everything in it must be what the plan says, or FO_EARG
 * names the first thing that is not: figures of two configurations do not mix. */
FO_CHECKED fo_status fo_ladder_plan_keep(const struct fo_ladder_plan *p);

/* ---- the result ---- */

/* Reads DIR/plan.json and what its rungs' directories hold by now. FO_EFORMAT, FO_EIO: no plan; whatever is missing or
 * damaged in a rung is that rung's: unmeasured. */
FO_CHECKED fo_status fo_ladder_read(struct fo_ladder *l, const char *dir);
void fo_ladder_fini(struct fo_ladder *l);

/* The first rung that starts from nothing and says something about time; -1: none. */
int fo_ladder_bottom(const struct fo_ladder *l);
/* The last rung, measured in all rounds, of the chain of rungs that build on each other from the baseline: what all
 * the changes make together. Beside the chain are rungs that share their start and end there, and numerics only. -1:
 * none. */
int fo_ladder_top(const struct fo_ladder *l);
/* Did all rungs see as much of the text, as often? Failed ones do not count. True where nothing is known. */
bool fo_ladder_same_text(const struct fo_ladder *l);
/* A share in percent, without the sign; 100.0 and 0.0 only where it is exactly that. */
const char *fo_ladder_share(struct fo_arena *a, double share);
/* "each rung saw 2.7 % of the text"; where they did not see the same, which saw what. NULL: not known. */
const char *fo_ladder_text_title(const struct fo_ladder *l, struct fo_arena *a);
/* One sentence for the head of every output: the machine was not quiet, and what to do. NULL: nothing says so. */
const char *fo_ladder_not_quiet(const struct fo_ladder *l, struct fo_arena *a);
/* docs/formats.md */
extern const struct fo_schema fo_ladder_plan_schema, fo_ladder_text_schema, fo_ladder_schema;
/* ladder.json. */
void fo_ladder_json(const struct fo_ladder *l, struct fo_str *out);
/* The ladder as a document, whose pictures point into l. brief: a terminal gets the first table alone. */
void fo_ladder_doc(const struct fo_ladder *l, bool brief, struct fo_doc *d);

/* ---- statistics (docs/metrics.md) ---- */

struct fo_ladder_interval {
	double estimate, low, high, level;
};
/* The Hodges-Lehmann estimate of the centre of n paired ratios' logarithms, all ratios above 0, and the interval of
 * Wilcoxon's signed-rank test (Hollander, Wolfe, Chicken 2014, section 3.2 and 3.3), back from the logarithms: exact
 * for any symmetric distribution, which the difference of two turns that are disturbed alike has. The narrowest
 * interval of at least `level`, or the widest there is (n = 5 and 0.95), whose level 1 - 2^(1-n) is in .level. n = 0:
 * NaN. */
struct fo_ladder_interval fo_ladder_interval(const double *ratio, int n, double level);
#define FO_LADDER_LEVEL 0.95
/* Is an interval too wide for a verdict? Its ends are more than FO_LADDER_STEADY times apart, and it is not further
 * from 1 than it is wide: turns were disturbed one by one. The widest of bench/results/2026-11-21-ladder.json is 1.45
 * times. */
bool fo_ladder_unsteady(const struct fo_ladder_interval *v);
#define FO_LADDER_STEADY 2.0
/* Useful tokens/s of rung `to` over those of `from`, by the rounds that both have done; *n (may be NULL): how many. */
struct fo_ladder_interval fo_ladder_over(const struct fo_ladder *l, int to, int from, int *n);
/* Compares losses with a reference's: cuts the steps that both have (NaN: not done) into at most FO_LADDER_WINDOWS
 * equal stretches, whose number is returned. step[k] is the last step of stretch k, from 1; difference[k] is (mean(a)
 * - mean(b)) / |mean(b)|. */
int fo_ladder_stretches(const double *a, const double *b, int64_t n, double *step, double *difference);
/* The median of the stretches' absolute differences, or of the last FO_LADDER_LATE where that is more. NaN without
 * common steps; INFINITY where a loss of either is infinite. docs/metrics.md says why it is not the largest. */
double fo_ladder_deviation(const double *a, const double *b, int64_t n);
enum { FO_LADDER_WINDOWS = 10, FO_LADDER_LATE = 3 };
/* The largest deviation that is allowed, by the precision of both runs and for emulated fp8; docs/metrics.md says how
 * these were measured. */
#define FO_LADDER_TOLERANCE_F32 0.001
#define FO_LADDER_TOLERANCE_BF16 0.01
#define FO_LADDER_TOLERANCE_FP8 0.02

#endif
