/* Training logs that other programs print: what kind of log it is, what it says of the run, and the speed of each step.
 *
 * A log is told by its lines, never by its name. kinds.c holds one table of the lines that each framework prints;
 * scan.c applies it; whole.c and mlperf.c read the few kinds that are no lines of progress. speed.c makes step times of
 * what was printed, whatever that was: a time per step, a running time, a rate of tokens or samples, or time stamps.
 *
 * Nothing is guessed: a figure that no line tells is NAN, an integer 0, a text NULL. */
#ifndef FO_LOGS_LOGS_H
#define FO_LOGS_LOGS_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FO_LOG_NONE __builtin_nan("")

/* What a line of progress may tell. */
enum fo_log_field {
	FO_LOG_STEP,
	FO_LOG_STEPS,        /* planned in all */
	FO_LOG_SECONDS,      /* of one step */
	FO_LOG_TOTAL,        /* s since the training began, or since its clock was set to 0 */
	FO_LOG_TOKENS,       /* of one step, all devices */
	FO_LOG_RATE,         /* tokens/s of one device */
	FO_LOG_RATE_ALL,     /* tokens/s of all devices */
	FO_LOG_SAMPLES,      /* sequences of one step */
	FO_LOG_SAMPLES_RATE, /* sequences/s of all devices */
	FO_LOG_SEEN_TOKENS,  /* since the training began */
	FO_LOG_SEEN_SAMPLES,
	FO_LOG_LOSS,
	FO_LOG_MFU,     /* as a share, as the log has it */
	FO_LOG_TFLOPS,  /* of one device, as the log has it */
	FO_LOG_SKIPPED, /* steps whose update was skipped */
	FO_LOG_AT,      /* the line's time stamp, s since 1970 in the log's own time zone */
	FO_LOG_EPOCH,   /* counted from 0, where steps begin again in each */
	FO_LOG_PLACE,   /* of the line in its file, bytes */
	FO_LOG_FIELDS,
};

/* What a log says of the whole run. Numbers first; from FO_LOG_MODEL on texts. */
enum fo_log_fact {
	FO_LOG_LAYERS,
	FO_LOG_HIDDEN,
	FO_LOG_HEADS,
	FO_LOG_KV_HEADS,
	FO_LOG_HEAD_DIM,
	FO_LOG_FFN,
	FO_LOG_VOCAB,
	FO_LOG_PARAMS,
	FO_LOG_ACTIVE, /* parameters that one token uses */
	FO_LOG_SEQ,
	FO_LOG_BATCH, /* sequences of one step, all devices */
	FO_LOG_LOCAL, /* sequences of one step of one data-parallel rank */
	FO_LOG_MICRO, /* of one micro-batch of one rank */
	FO_LOG_STEP_TOKENS,
	FO_LOG_DEVICES,
	FO_LOG_NODES,
	FO_LOG_PER_NODE,
	FO_LOG_TP,
	FO_LOG_PP,
	FO_LOG_CP,
	FO_LOG_DP_REPLICATE,
	FO_LOG_DP_SHARD,
	FO_LOG_PLANNED, /* steps */
	FO_LOG_PEAK,    /* TFLOP/s of one device that the log divides by */
	FO_LOG_LORA,    /* rank */
	FO_LOG_FP8,     /* 1: fp8 matmuls */
	FO_LOG_FP16,
	FO_LOG_GATED,      /* 1: a feed-forward of three matrices */
	FO_LOG_GROUPED,    /* 1: kv_heads counts (Megatron prints a number of groups where there are none, too) */
	FO_LOG_VOCAB_UNIT, /* the vocabulary is rounded up to a multiple of this times TP */
	FO_LOG_EXPERTS,    /* of one layer; several: not dense */
	FO_LOG_LATENT,     /* 1: multi-latent attention */
	FO_LOG_HYBRID,     /* above 0: some layers are no transformer's */
	FO_LOG_AHEAD,      /* layers that predict further tokens */
	FO_LOG_MODEL,
	FO_LOG_DEVICE,
	FO_LOG_TOKENIZER,
	FO_LOG_PATTERN, /* kinds of layers of a hybrid model */
	FO_LOG_FACTS,
};

struct fo_log_told {
	double number; /* NAN: not told */
	double later;  /* another number that a later line gives for it; NAN: none */
	const char *text;
	int64_t line; /* counted from 1; 0: not told */
	const char *file;
};

enum fo_log_rule {
	FO_LOG_RULE_NONE,   /* prints no MFU and no FLOP/s */
	FO_LOG_RULE_FULL,   /* 6 N + 12 L H Q S without the input embedding */
	FO_LOG_RULE_EMBED,  /* the same, N with the input embedding */
	FO_LOG_RULE_CAUSAL, /* 6 N + 6 L H Q S */
	FO_LOG_RULE_LLMC,   /* 6 times all parameters + 6 L C T */
	FO_LOG_RULE_HFU,    /* the recomputed forward is counted */
	FO_LOG_RULE_OTHER,  /* its release decides */
};

/* What the time of a line is that stands for several steps. */
enum fo_log_span {
	FO_LOG_MEAN,       /* of these steps */
	FO_LOG_MEAN_FIRST, /* the same, but the first step of a process has a line, and counts in the next line again */
	FO_LOG_ONE_STEP,   /* of the last of them: nothing is told of the others */
};

/* One kind of log. */
struct fo_log_kind {
	const char *id, *name; /* "megatron", "Megatron-LM" */
	const char *version;   /* of the printing code that the row was checked against */
	enum fo_log_rule rule;
	enum fo_log_span span;
};

/* The lines of progress of one kind. Logs have millions of lines, and most questions are about one field: each field
 * has its own array. */
struct fo_log_lines {
	const struct fo_log_kind *kind;
	size_t count, cap;
	double *cell[FO_LOG_FIELDS]; /* cap values; NULL: no line tells the field */
	size_t *from;                /* the first row of each file */
	int files;
};
/* Field f of row i; NAN where the line did not tell. */
static inline double fo_log_get(const struct fo_log_lines *l, size_t i, enum fo_log_field f)
{
	return l->cell[f] ? l->cell[f][i] : FO_LOG_NONE;
}

/* What a log says of the whole run at its end. */
struct fo_log_summary {
	double seconds, steps, samples_rate; /* NAN: not told */
};

/* A stretch of the run in which steps go up: a new one begins where a process starts again. */
struct fo_log_part {
	size_t from, to;   /* rows of the step table */
	double begin, end; /* time stamps; NAN */
	double lost;       /* s between the end of the part before and the first step of this one, and the steps done
			     * twice; NAN: no time stamps */
	int64_t again;     /* steps done a second time */
};

struct fo_log_phase {
	int64_t first, last; /* steps */
	double times;        /* median of its steps over the median of all */
	double at;           /* time stamp of its first line; NAN */
};

/* From a place of a file on, the run has so many devices: a process that begins again may have others. */
struct fo_log_size {
	int file;
	double place, devices;
};

struct fo_log_spread {
	double low, median, high; /* quartiles; NAN without a step */
};

struct fo_log {
	struct fo_arena arena;
	struct fo_log_kind kind;    /* of the lines that steps are taken from; id NULL: no training step found */
	struct fo_log_lines *lines; /* of every kind that was found, the one above first */
	size_t kinds;
	struct fo_log_told told[FO_LOG_FACTS];
	struct fo_log_summary summary;
	struct fo_log_size *size; /* as they come in the files */
	size_t sizes;

	/* The steps of the run: those done twice once, files in the order of their time. */
	size_t steps;
	uint32_t *row;        /* of lines[0] */
	double *seconds;      /* of one step; NAN: not known */
	const char *timed_by; /* "the time that each line prints", ...; NULL: no times in this log */
	bool stamped;         /* by clocks that go on between steps, or that have whole seconds */
	size_t crossings;     /* times that a file's steps fell back and then jumped on from where they were */
	bool numbered;   /* lines tell their step: else each counts as one, and how many it stands for is unknown */
	double interval; /* steps from one line to the next, mostly; the first lines' are 1 */
	bool one_step;   /* a line's time is that of one of these steps; others' times are not told */
	size_t left_out; /* first lines that the figures below leave out */
	struct fo_log_spread time; /* s per step */
	struct fo_log_part *part;
	size_t parts;
	struct fo_log_phase *phase;
	size_t phases;
};

/* Reads files as one run: restarts of a process, or the same run as several ranks printed it. FO_EIO, FO_EFORMAT (no
 * text). A log without a training step is FO_OK with kind.id NULL. *log needs fo_log_fini also after an error. */
FO_CHECKED fo_status fo_log_read(const char *const *path, size_t files, struct fo_log *log);
void fo_log_fini(struct fo_log *log);

/* A field of step line i. */
static inline double fo_log_at(const struct fo_log *log, size_t i, enum fo_log_field f)
{
	return fo_log_get(&log->lines[0], log->row[i], f);
}
/* Median of a field over the steps that count; NAN where no line tells it. */
double fo_log_median(const struct fo_log *log, enum fo_log_field f);
/* Steps that line i stands for: since the line before; of a part's first line what is usual. */
double fo_log_steps_at(const struct fo_log *log, size_t i);
/* Seconds of these steps; where the line tells one of them, the others are taken to last the median. NAN: no times. */
double fo_log_time_at(const struct fo_log *log, size_t i);
/* Devices, and tokens of one step, at line i, as far as the log tells them; NAN. */
double fo_log_devices(const struct fo_log *log, size_t i);
double fo_log_tokens(const struct fo_log *log, size_t i);
/* The lines that count, in line[] (log->steps of room); how many. */
size_t fo_log_counted(const struct fo_log *log, size_t *line);
/* Quartiles of n values, whose order changes. */
struct fo_log_spread fo_log_spread_of(double *v, size_t n);
/* The last value of a field; NAN. */
double fo_log_last(const struct fo_log *log, enum fo_log_field f);
bool fo_log_knows(const struct fo_log *log, enum fo_log_fact f);

#endif
