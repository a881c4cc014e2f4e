/* Reads the directory of a training run (docs/formats.md describes the files).
 *
 * Files may be cut, damaged or from another version. A damaged file does not make fo_record_open fail: its error is
 * kept (struct fo_record_file). Unknown events and fields are ignored, and a field of the wrong type counts as missing.
 * Missing figures are NAN.
 *
 * The log repeats steps of a run that was resumed or went back (guard.spike=rewind). The newest line wins: when step s
 * comes again, earlier lines of step s and later are dropped and counted (undone_steps, undone_seconds), so steps are
 * strictly ascending. Guard events, starts, ends and machine states stay. A step that was skipped has no row. A last
 * line without a line feed is ignored and sets `torn`. Memory is 8 bytes per step and field that occurs.
 *
 * The record owns everything it points to (fo_record_fini). */
#ifndef FO_RECORD_RECORD_H
#define FO_RECORD_RECORD_H

#include "base/err.h"
#include "base/mem.h"
#include "hw/nvml.h"
#include "hw/state.h"
#include "program/program.h"
#include "timeline/metered.h"
#include "timeline/timeline.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- steps ---- */

/* X(constant, key in the log, unit, meaning) for each number of a step. */
#define FO_STEP_FIELDS(X)                                                                                    \
	X(LOSS, "loss", "nats per token", "mean loss of the step's tokens")                                  \
	X(GRAD_NORM, "grad_norm", "", "norm of the gradient before clipping")                                \
	X(LR, "lr", "", "learning rate")                                                                     \
	X(SECONDS, "seconds", "s", "time of the step, waiting for data included")                            \
	X(DATA_SECONDS, "data_seconds", "s", "of it: waiting for the loader")                                \
	X(TOKENS, "tokens", "", "tokens processed, padding included")                                        \
	X(LOSS_TOKENS, "loss_tokens", "", "tokens with loss")                                                \
	X(TOKENS_PER_SECOND, "tokens_per_second", "1/s", "tokens with loss per second")                      \
	X(MFU, "mfu", "share of the peak", "model FLOPs utilization ([metrics](metrics.md))")                \
	X(MFU_CAUSAL, "mfu_causal", "share of the peak", "the same, attention counted as causal")            \
	X(MFU_DOCUMENT, "mfu_document", "share of the peak", "the same, attention counted within documents") \
	X(MFU_6N, "mfu_6n", "share of the peak", "6 FLOP per parameter and token")                           \
	X(HFU, "hfu", "share of the peak", "hardware FLOPs utilization: FLOP that ran")                      \
	X(METERED, "metered", "",                                                                            \
	  "timed operation by operation: its seconds are no figure of the run, its rates null")              \
	X(TIME, "time", "s", "Unix time when the line was written, to the millisecond")                      \
	X(CLOCK, "clock", "s", "the same by a clock that nobody sets: differences within one process count")

enum fo_step_field {
#define X(name, key, unit, means) FO_STEP_##name,
	FO_STEP_FIELDS(X)
#undef X
		FO_STEP_FIELD_COUNT
};
extern const char *const fo_step_field_name[FO_STEP_FIELD_COUNT]; /* as in the log */

/* A step's line. METERED: 1 yes; 0 or NAN no. */
struct fo_record_step {
	int64_t step;
	double value[FO_STEP_FIELD_COUNT]; /* NAN where not known */
};

struct fo_record_steps {
	int64_t n;
	int64_t *step;                      /* ascending, from 1 */
	double *value[FO_STEP_FIELD_COUNT]; /* n each, NAN where a line lacks it; NULL: no line has it */
	int32_t *start;                     /* index of the process that did it, -1: the log does not say */
	size_t cap;
};
/* Field f of row i (0 <= i < n); NAN. */
static inline double fo_record_value(const struct fo_record_steps *s, enum fo_step_field f, int64_t i)
{
	return s->value[f] ? s->value[f][i] : NAN;
}
/* The row of step `step`, -1: there is none. */
int64_t fo_record_row(const struct fo_record_steps *s, int64_t step);
/* Quantile q of field f over rows [from, to) that have a finite value and were not metered; NAN without any. */
double fo_record_quantile(const struct fo_record_steps *s, enum fo_step_field f, int64_t from, int64_t to, double q);

/* ---- other events; time and clock as those of a step ---- */

struct fo_record_eval {
	int64_t step;
	double loss, time, clock;
};
struct fo_record_checkpoint {
	int64_t step;
	const char *path;
	double seconds, blocked_seconds, time, clock;
};
struct fo_record_machine { /* since the one before */
	int64_t step;
	double time, clock;
	struct fo_state_use use;
	const struct fo_nvml_use *device; /* written only; NULL: the run is on a processor */
};
struct fo_record_profile { /* where the time of `profile.steps` steps up to `step` went */
	int64_t step;
	double time, clock;
	struct fo_profile profile;
};
enum fo_record_guard_kind { FO_GUARD_NONFINITE, FO_GUARD_SPIKE };
struct fo_record_document {
	int64_t document, line; /* number in the shard; 0: a whole file, or not known */
	const char *path;       /* "" or NULL not known */
};
struct fo_record_guard {
	enum fo_record_guard_kind kind;
	int64_t step, back_to;      /* back_to -1: not a rewind */
	const char *action, *where; /* "" where the log has none */
	double loss, grad_norm, median, deviation, z, time, clock;
	int64_t data_step; /* -1 not known */
	const struct fo_record_document *document;
	int64_t documents; /* that the log lists */
};
/* One process, which began after `step` steps. */
struct fo_record_start {
	int64_t step;
	double time, clock;
	double peak_flop_s;                                   /* NAN: not known */
	int64_t threads;                                      /* -1: not known */
	const char *isa, *peak_dtype, *program_hash, *device; /* "" not known; device "": the processor */
	double arena_bytes, persistent_bytes, workspace_bytes, other_bytes, checkpoint_bytes; /* planned; NAN */
	double device_reserve_bytes, host_bytes; /* NAN: not known, or on a processor */
};
/* Use of a device while a process's steps ran, and MFU in factors (docs/cuda.md); NAN where not known. */
struct fo_record_device {
	bool told;
	struct fo_nvml_use use;
	double joules_per_token;
	struct fo_mfu_split split;
};
extern const struct fo_schema fo_record_device_schema;
struct fo_record_device fo_record_no_device(void); /* told is false, each figure NAN */
/* The end of a process that was not killed. */
struct fo_record_end {
	int64_t step;
	const char *how; /* "done", "interrupted", "failed"; "" not known */
	double time, clock;
	int64_t steps;             /* of this process; 0 not known */
	double seconds;            /* of the steps in profile */
	struct fo_profile profile; /* of those that were neither metered nor the first; steps 0: not known */
	double planned_bytes, measured_bytes, joules_per_token, huge_page_share;
	struct fo_record_device device;
	double padding_share, truncated_share; /* of the tokens processed; of those and what was cut off documents */
};

/* The tables of the log's lines: the first row of each is step, the last two are time and clock. */
extern const struct fo_schema fo_log_step, fo_log_eval, fo_log_checkpoint, fo_log_machine, fo_log_profile,
	fo_log_nonfinite, fo_log_spike, fo_log_start, fo_log_end;
extern const struct fo_schema fo_run_schema; /* run.json: members of struct fo_record */

/* The kernel set of a run with paced kernels (train.paced), in run.json and in its log's start, and what such a run's
 * steps say of the machine. */
#define FO_RECORD_PACED "paced"
#define FO_RECORD_PACED_FILE "paced.json" /* in the run's folder: the profile whose times they took */
#define FO_RECORD_PACED_WHY "paced kernels: times are given, not measured"

/* ---- the files ---- */

enum fo_record_file_id {
	FO_RECORD_RUN_JSON,
	FO_RECORD_LOG,
	FO_RECORD_PROGRAM,
	FO_RECORD_TIMELINE,
	FO_RECORD_METERED,
	FO_RECORD_FILES
};
enum fo_record_state { FO_RECORD_ABSENT, FO_RECORD_WHOLE, FO_RECORD_DAMAGED };
struct fo_record_file {
	enum fo_record_state state;
	const char *path, *why; /* why: the sentence of a damaged one; else "" */
};

/* What a rank of several left. */
struct fo_record_rank {
	struct fo_record_file file;
	const struct fo_timeline_file
		*timeline;           /* NULL: not whole, of another run, or without what several ranks need */
	struct fo_timeline_file own; /* of all but rank 0: what timeline points to */
};

struct fo_record_option {
	const char *key, *value, *origin, *where; /* the value as text; "" where it is not set */
};

struct fo_record {
	struct fo_arena arena;
	const char *dir;
	struct fo_record_file file[FO_RECORD_FILES];
	/* run.json; texts are never NULL, "" where it lacks them */
	const char *run; /* written only: JSON of the command line and the program's version */
	const char *started, *version, *commit, *compiler, *passes, *cpu, *isa, *peak_source, *affinity, *device;
	const char *tokenizer_checksum, *train_checksum, *val_checksum, *program_hash; /* hexadecimal */
	int64_t threads, seed;                                                         /* -1 */
	int64_t processes, hosts; /* 0: ranks are threads of one process */
	struct fo_machine state;  /* when it started */
	double peak_flop_s;       /* NAN: not known */
	struct fo_record_option *option;
	int64_t options;
	/* log.jsonl */
	struct fo_record_steps step;
	struct fo_record_eval *eval;
	struct fo_record_checkpoint *checkpoint;
	struct fo_record_machine *machine;
	struct fo_record_profile *profile;
	struct fo_record_guard *guard;
	struct fo_record_start *start;
	struct fo_record_end *end;
	int64_t evals, checkpoints, machines, profiles, guards, starts, ends;
	size_t eval_cap, checkpoint_cap, machine_cap, profile_cap, guard_cap, start_cap, end_cap;
	int64_t undone_steps;                     /* that a resume or a rewind made worthless */
	double undone_seconds;                    /* their time */
	int64_t lines, bad_lines, first_bad_line; /* bad: not JSON, or over 1 MiB; numbered from 1 */
	bool torn;
	/* program.txt, timeline.fot and metered.fom, where FO_RECORD_WITH_... asked for them and their state is
	 * FO_RECORD_WHOLE. A timeline, or metered spans, of another program than program.txt are damaged. */
	struct fo_program program;
	struct fo_unrolled unrolled; /* planned: offsets and sizes are set */
	struct fo_timeline_file timeline;
	struct fo_metered metered;
	struct fo_record_rank *rank; /* with FO_RECORD_WITH_RANKS: of each rank of a program of several */
	int ranks;                   /* 0: not asked for, one rank, or no program */
};

enum {
	FO_RECORD_WITH_PROGRAM = 1,
	FO_RECORD_WITH_TIMELINE = 2,
	FO_RECORD_WITH_METERED = 4, /* both with the program, which they need */
	FO_RECORD_WITH_RANKS = 8    /* with the timeline: those of the other ranks too */
};

/* Opens run directory `dir`. FO_EIO: there is no such folder; FO_EARG: it has neither run.json nor log.jsonl. Other
 * errors are in file[]. A log is damaged when no line of it is an event, or when it has more than 2^24 steps or 2^20
 * other events of a kind. Undone by fo_record_fini, which must not be called after an error. */
FO_CHECKED fo_status fo_record_open(struct fo_record *r, const char *dir, unsigned with);
void fo_record_fini(struct fo_record *r);

/* The process that did the step of row `row` (0 <= row < step.n); NULL: the log does not say. */
const struct fo_record_start *fo_record_start_of(const struct fo_record *r, int64_t row);
/* FLOP/s that the MFU of that row was divided by: the peak of its process, else run.json's; NAN. */
double fo_record_peak_of(const struct fo_record *r, int64_t row);
/* FLOP of a step by rule f (FO_STEP_MFU to FO_STEP_HFU): the mean over the rows of MFU x seconds x that peak, because
 * padding, and so the work, differs from step to step; NAN where no row has them. */
double fo_record_mean_flop(const struct fo_record *r, enum fo_step_field f);

/* Name of the model: the program's ("custom" where options changed it), else that of option model.name; "": unknown. */
const char *fo_record_model(const struct fo_record *r);
/* Threads that compute on a host, of all its ranks: of ranks that are processes each has `threads`. -1: not known. */
static inline int64_t fo_record_host_threads(const struct fo_record *r, int64_t threads)
{
	return threads > 0 && r->processes > r->hosts && r->hosts > 0 ? threads * r->processes / r->hosts : threads;
}

/* The highest load average in the log; NaN: it has none. fo_state_others_ran interprets it. */
double fo_record_load(const struct fo_record *r);
/* Did operations of any of its processes take given times? */
bool fo_record_paced(const struct fo_record *r);
/* NULL: no such option in run.json. */
const struct fo_record_option *fo_record_option(const struct fo_record *r, const char *key);
/* Whether steps were done and checkpoint.last=no saved none of their weights: there is nothing to go on from. */
bool fo_record_saves_none(const struct fo_record *r);
/* Sums the profile events into *out. Without any, and with a timeline, its whole steps, from the first to the last span
 * of the compute lane (without the time between two steps). false: neither. */
bool fo_record_profile_total(const struct fo_record *r, struct fo_profile *out);
/* The newest start or end, NULL: none. */
static inline const struct fo_record_start *fo_record_last_start(const struct fo_record *r)
{
	return r->starts ? &r->start[r->starts - 1] : NULL;
}
static inline const struct fo_record_end *fo_record_last_end(const struct fo_record *r)
{
	return r->ends ? &r->end[r->ends - 1] : NULL;
}

/* Reads a log from an open descriptor into r, which was zeroed; `path` names it in errors. Ended by fo_record_fini. */
FO_CHECKED fo_status fo_record_read_log(struct fo_record *r, int fd, const char *path);

#endif
