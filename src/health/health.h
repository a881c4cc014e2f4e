/* The health of a training job: everything that is given about it, joined into one record. Logs, traces, ladders, runs
 * of ours, configurations and files of hosts are told by content; what each says is kept with its place.
 *
 * It answers four questions (is communication above half of the step, does efficiency per device fall beyond 8, do
 * devices idle between collectives, is NCCL set for this topology), each by evidence, by an estimate that is called so,
 * or as not known with what to record. It orders the changes that all sources propose, each once, by their worth in
 * speed, MFU and money, and ends with what a year of them saves, as a range. docs/commands/health.md.
 *
 * Nothing is guessed: a number that nothing tells is NAN, a range NAN to NAN, a text NULL. */
#ifndef FO_HEALTH_HEALTH_H
#define FO_HEALTH_HEALTH_H

#include "base/json.h"
#include "base/range.h"
#include "audit/config.h"
#include "audit/host.h"
#include "diagnose/diagnose.h"
#include "draw/doc.h"
#include "ladder/ladder.h"
#include "logs/account.h"
#include "plan/file.h"
#include "price/price.h"
#include "record/record.h"

/* ---- what is given ---- */

enum fo_health_kind {
	FO_HEALTH_NONE, /* none of these: `why` */
	FO_HEALTH_LOG,
	FO_HEALTH_TRACE,
	FO_HEALTH_LADDER,
	FO_HEALTH_RUN,
	FO_HEALTH_JOB,  /* a configuration */
	FO_HEALTH_HOST, /* what a host's tools print */
	FO_HEALTH_CLAIM,
	FO_HEALTH_PLAN, /* of flatout plan */
	FO_HEALTH_KINDS
};
extern const char *const fo_health_kind_name[FO_HEALTH_KINDS]; /* "none", "log", ... */

struct fo_health_file {
	const char *path;
	enum fo_health_kind kind;
	const char *what; /* what it was taken for: "log of Megatron-LM, 24 lines of steps" */
	const char *why;  /* NONE: why it is not used, a sentence without a full stop */
	bool named;       /* by the caller; false: found in a folder */
	fo_status st;     /* NONE: FO_EFORMAT, FO_EIO */
};

/* What the caller says; it goes before what files say. NULL, 0, unknown: nothing. */
struct fo_health_given {
	const char *model, *device, *cluster, *dtype, *devices_file;
	double devices, seq, tokens_per_step;
	struct fo_range mfu, rent; /* share; USD per device and hour */
	struct fo_range year;      /* share of the year in which the devices train */
};

struct fo_health_log {
	const char *path;
	struct fo_log log;
	struct fo_log_account account; /* points into log */
	struct fo_log_spread rate;     /* tokens/s of one device */
};

/* What somebody promises or reports of a change, from a file that begins with "claim:". Numbers are NAN, ranges unknown
 * where it does not say. */
struct fo_health_claim {
	const char *path, *about;
	double mfu_before, mfu_after, throughput, days_before, days_after; /* shares; times; days */
	struct fo_range year_saved;                                        /* USD */
};

struct fo_health_plan {
	const char *path;
	struct fo_plan_file plan;
};

/* ---- what it says ---- */

enum fo_health_source {
	FO_HEALTH_BY_NOTHING,
	FO_HEALTH_BY_LOG,
	FO_HEALTH_BY_TRACE,
	FO_HEALTH_BY_RUN,
	FO_HEALTH_BY_LADDER, /* its baseline */
	FO_HEALTH_BY_CALLER,
	FO_HEALTH_BY_ARITHMETIC, /* an estimate: `spread` is known, `now` is not, and no money rests on it */
	FO_HEALTH_SOURCES
};
extern const char *const fo_health_source_name[FO_HEALTH_SOURCES]; /* "nothing", "log", ... */

struct fo_health_mfu {
	enum fo_health_source source;
	double now;             /* NAN */
	struct fo_range spread; /* quartiles of steps, or the caller's range */
	const char *rule;       /* "mfu", "mfu_causal", ...; "printed" */
	const char *from;       /* which file or option, in words */
	const char *why_not;    /* now unknown: what is missing */
	double utilisation;     /* share of the step with any kernel on the device, by the trace; NAN */
	double computing;       /* share with one that computes */
	double busy;            /* utilisation as nvidia-smi shows it, the mean of all devices; NAN */
	/* The limit of every promise: the best published training run of this class of device. */
	double cap; /* a share, by the rule above; 1 where none is known */
	const char *cap_from;
};

enum fo_health_answer {
	FO_HEALTH_UNKNOWN,
	FO_HEALTH_YES,
	FO_HEALTH_NO,
	FO_HEALTH_UNDECIDED,
	FO_HEALTH_NOT_APPLICABLE, /* the job has one device */
	FO_HEALTH_ANSWERS
};
extern const char *const fo_health_answer_name[FO_HEALTH_ANSWERS]; /* "unknown", "yes", "no", ... */

enum fo_health_ask { FO_HEALTH_COMMUNICATION, FO_HEALTH_SCALING, FO_HEALTH_IDLE, FO_HEALTH_NCCL, FO_HEALTH_ASKS };
struct fo_health_question {
	const char *id, *text, *label; /* "communication", the question, a word for a glance */
	const char *statement;         /* the answer as a statement: "above half of the step"; NULL without one */
	const char *figure_shown;      /* beside it: "51.8 %"; NULL */
	enum fo_health_answer answer;
	bool bad;               /* the answer is a sign of trouble */
	bool estimated;         /* by arithmetic, not by a measurement */
	struct fo_range figure; /* share; unknown: there is none */
	const char *figure_of;  /* what it is a share of */
	const char *because;    /* one or two sentences */
	const char **evidence;  /* file, step, line */
	int64_t evidences;
	const char *record; /* what would tell, or tell more exactly; NULL: nothing is missing */
	const char *paste;  /* the command for it; NULL */
};

/* How well a change's worth is known: measured, estimated from a trace or by arithmetic, or not at all. */
enum fo_health_worth { FO_HEALTH_MEASURED, FO_HEALTH_ESTIMATED, FO_HEALTH_NO_MODEL, FO_HEALTH_WORTHS };
extern const char *const fo_health_worth_name[FO_HEALTH_WORTHS];

struct fo_health_change {
	const char *id, *title;
	enum fo_health_worth worth;
	struct fo_range gain; /* speed after over before, alone; unknown: no model of it */
	bool priced;          /* it is of this job: MFU and money follow from gain */
	bool serious;
	bool traced;                                  /* its gain is a trace's */
	struct fo_range mfu_after, points;            /* shares; within the cap */
	struct fo_range year_usd;                     /* saved in a year for the same work */
	const char *gain_from;                        /* how the gain is known */
	const char *setting, *now, *proposed, *paste; /* NULL */
	const char *why;                              /* one or two sentences of the audit; NULL */
	const char *no_gain;                          /* why its worth is not known, where a source says; NULL */
	int setting_rank;                             /* the higher, the better its source knows it */
	const char **source;                          /* what each source says: "trace: ...", "ladder: ..." */
	int64_t sources;
};

struct fo_health_savings {
	bool known;
	const char *why_not;       /* what is missing, with the option for it */
	struct fo_range together;  /* speed of all changes together; never a sum or product alone */
	struct fo_range mfu_after; /* share */
	double cap;                /* of it: twice mfu.cap where 8 bit is among the changes, at most 1 */
	const char *cap_from;      /* what the cap is */
	struct fo_range rent;      /* USD per device and hour */
	const char *rent_from, *devices_from;
	double devices; /* NAN */
	struct fo_price price;
	struct fo_range recovered_year; /* USD: what the devices recovered would cost in a year */
};

struct fo_health {
	struct fo_arena arena;
	struct fo_health_given given;
	struct fo_catalogue catalogue;
	const struct fo_device *device; /* NULL: not known */
	const char *device_from;
	double devices; /* NAN */
	const char *devices_from;

	struct fo_health_file *file;
	size_t files, file_cap;
	struct fo_health_log **log;
	size_t logs, log_cap;
	const struct fo_health_log *main_log; /* MFU is of this one; NULL */
	struct fo_ladder **ladder;
	size_t ladders, ladder_cap;
	struct fo_record **run;
	size_t runs, run_cap;
	struct fo_health_claim *claim;
	size_t claims, claim_cap;
	struct fo_health_plan *plan;
	size_t plans, plan_cap;
	/* Configurations are read as one job, files of hosts as one list of facts. */
	bool configured, hosted;
	struct fo_job job;
	struct fo_audit_config config;
	struct fo_host_facts host;
	struct fo_audit config_audit, host_audit;
	bool other_step;           /* the log's step is shorter than the configuration's can be: it is of another run */
	double longer;             /* s by which a step of the log is longer than arithmetic explains; 0 */
	struct fo_cluster cluster; /* devices NAN: not known */
	bool opened, traced;       /* set is there; diagnosis too */
	struct fo_trace_set set;
	struct fo_diagnosis diagnosis;
	const char *trace_apart; /* why the traces are not of the same job as the rest, so that no money rests on them;
				  * NULL */

	struct fo_health_mfu mfu;
	struct fo_health_question question[FO_HEALTH_ASKS];
	struct fo_health_change *change; /* serious ones first, then the greatest certain gain */
	size_t changes, change_cap;
	struct fo_health_savings savings;
	const char **conflict; /* what does not fit together, a sentence each */
	int64_t conflicts;
	bool serious;
};

/* Reads files and folders, each told by its content, and judges. A file that is none of these is in `file` with the
 * reason, and the rest is judged. FO_EARG for what the caller names and nobody knows (device, model, cluster), FO_EIO
 * and FO_EFORMAT for the table of devices alone. *h needs fini also after an error. */
FO_CHECKED fo_status fo_health_make(struct fo_health *h, const char *const *path, int paths,
				    const struct fo_health_given *given);
void fo_health_fini(struct fo_health *h);
/* How many of the files that the caller named are not used; *first is one of them. */
int fo_health_unused(const struct fo_health *h, const struct fo_health_file **first);

/* The document; h must outlive it. */
void fo_health_doc(const struct fo_health *h, struct fo_doc *d);
/* The part about changes alone, each setting once. */
void fo_health_changes_doc(const struct fo_health *h, struct fo_doc *d);
/* Members of the open object. */
void fo_health_json(const struct fo_health *h, struct fo_json *j);
/* The array "changes" of them alone. */
void fo_health_changes_json(const struct fo_health *h, struct fo_json *j);

#endif
