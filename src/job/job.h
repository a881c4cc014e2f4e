/* A training job as a configuration states it: what every framework's files are turned into, and what the audit, the
 * memory arithmetic and the step arithmetic read.
 *
 * Nothing is guessed. A setting that no file states has the default of the framework's release where that is known
 * (`origin` says so), else it is unknown: a number NAN, a text NULL. */
#ifndef FO_JOB_JOB_H
#define FO_JOB_JOB_H

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/range.h"
#include "draw/doc.h"
#include "hw/catalogue.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fo_job_kind { FO_JOB_COUNT, FO_JOB_SWITCH, FO_JOB_BYTES, FO_JOB_REAL, FO_JOB_WORD, FO_JOB_TEXT };
enum fo_job_setting {
#define FO_JOB_SETTING(id, kind, words, meaning) FO_JOB_##id,
#include "job/settings.def"
#undef FO_JOB_SETTING
	FO_JOB_SETTINGS
};
struct fo_job_setting_row {
	const char *id; /* "TP" */
	enum fo_job_kind kind;
	const char *words, *meaning;
};
extern const struct fo_job_setting_row fo_job_setting_row[FO_JOB_SETTINGS];

/* The numbers of the words in settings.def; a test holds them to it. */
enum { FO_JOB_SCHEDULE_GPIPE, FO_JOB_SCHEDULE_1F1B, FO_JOB_SCHEDULE_INTERLEAVED, FO_JOB_SCHEDULE_ZERO_BUBBLE };
enum { FO_JOB_FP32, FO_JOB_BF16, FO_JOB_FP16 }; /* GRAD_REDUCE, GRAD_ACCUMULATE, PARAM_DTYPE, MOMENTS */
enum { FO_JOB_MATMUL_BF16, FO_JOB_MATMUL_FP16, FO_JOB_MATMUL_FP32 }; /* DTYPE */
enum {
	FO_JOB_FP8_OFF,
	FO_JOB_FP8_TENSORWISE,
	FO_JOB_FP8_DELAYED,
	FO_JOB_FP8_ROWWISE,
	FO_JOB_FP8_BLOCKWISE,
	FO_JOB_FP8_MX,
	FO_JOB_FP4_ON
};
enum { FO_JOB_RECOMPUTE_NONE, FO_JOB_RECOMPUTE_SELECTIVE, FO_JOB_RECOMPUTE_FULL, FO_JOB_RECOMPUTE_OFFLOAD };
enum {
	FO_JOB_ATTENTION_EAGER,
	FO_JOB_ATTENTION_SDPA,
	FO_JOB_ATTENTION_FLASH,
	FO_JOB_ATTENTION_FUSED,
	FO_JOB_ATTENTION_FLEX
};

enum fo_job_origin {
	FO_JOB_UNKNOWN,
	FO_JOB_STATED,  /* by a line of a file */
	FO_JOB_GIVEN,   /* by an option of the caller */
	FO_JOB_DEFAULT, /* of the framework, in the release that its form names */
	FO_JOB_AUTO,    /* stated as "auto" or as a variable: another program decides */
};
struct fo_job_value {
	enum fo_job_origin origin;
	double number;    /* NAN: unknown */
	const char *text; /* as the file has it; NULL: unknown */
	const char
		*key; /* as the framework spells the setting: "parallelism.tensor_parallel_degree"; also of a default */
	const char *file; /* NULL: no file states it */
	int line;         /* counted from 1; 0: no file states it */
	double unit;      /* how many of the setting's unit one of `key` is: 2 bytes for an element; 0: as many */
	bool power;       /* `key` takes 2 to the power of the number */
};

/* One framework's way to write a job. */
struct fo_job_form {
	const char *id, *name; /* "torchtitan", "torchtitan (TOML)" */
	const char *release;   /* whose defaults are taken: "0.2.1", NULL: none are */
};

/* An environment variable that a file sets: "NCCL_ALGO" is "Ring". */
struct fo_job_env {
	const char *name, *value, *file;
	int line;
};

struct fo_job {
	struct fo_arena arena;
	const struct fo_job_form *form; /* of the first file; NULL: no file was read */
	struct fo_job_value value[FO_JOB_SETTINGS];
	bool has_model;
	struct fo_model model;
	const char *model_from;    /* "job.toml:21", "the option" */
	bool partial;              /* a script takes in a file that was not given: no default counts */
	const char *model_missing; /* has_model false: what would tell; NULL */
	const char *refused;       /* why its framework would not start it; NULL: nothing seen */
	const char *refused_try;   /* what would mend that; NULL */
	const char **unread;       /* settings of the files that no table knows: "job.toml:12 training.foo" */
	int64_t unread_count;
	const char **note; /* what a reader of the file must know: contradictions, values given twice */
	int64_t notes;
	const struct fo_job_env *env;
	int64_t envs;
};

/* What the caller adds: an option `--set NAME=VALUE` or --model, --seq, --micro-batch ... go before the files. */
struct fo_job_given {
	const char *model;      /* as fo_model_load takes it; NULL */
	const char *const *set; /* "tp=8", in the framework's spelling or with the id of settings.def in lower case */
	int sets;
	/* Whose defaults count where no file is given: the id of a form ("torchtitan"); NULL: nobody's. Defaults of
	 * what each job states for itself (sequence, batches, type, sharding) never count then. */
	const char *framework;
	const char *arguments; /* a command line as one text, read as a file behind the others; NULL */
};

/* "tp=4,recompute_option=a,b" as single settings, arena-owned: a comma ends one where another NAME= follows. */
int fo_job_split_settings(const char *text, struct fo_arena *arena, const char ***out);
/* Reads files as one job: formats TOML, YAML, JSON, command-line arguments, a printed Python configuration, told by
 * content. FO_EIO, FO_EFORMAT with file and line (damaged, or no configuration of a known framework: what was seen and
 * which ones are known). Without a file a model must be given (FO_EARG), and the settings are the job. *job needs fini
 * also after an error. */
FO_CHECKED fo_status fo_job_read(const char *const *path, int files, const struct fo_job_given *given,
				 struct fo_job *job);
void fo_job_init(struct fo_job *job); /* a job of which nothing is known, for tests and what-ifs */
void fo_job_fini(struct fo_job *job);

static inline double fo_job_number(const struct fo_job *job, enum fo_job_setting s) { return job->value[s].number; }
/* The number, or `otherwise` where it is unknown. */
static inline double fo_job_or(const struct fo_job *job, enum fo_job_setting s, double otherwise)
{
	return isnan(job->value[s].number) ? otherwise : job->value[s].number;
}
static inline bool fo_job_is(const struct fo_job *job, enum fo_job_setting s, double number)
{
	return job->value[s].number == number;
}
static inline bool fo_job_known(const struct fo_job *job, enum fo_job_setting s)
{
	return !isnan(job->value[s].number) || job->value[s].text;
}
static inline bool fo_job_stated(const struct fo_job *job, enum fo_job_setting s)
{
	return job->value[s].origin == FO_JOB_STATED || job->value[s].origin == FO_JOB_GIVEN;
}
/* A copy for what-ifs: its texts are those of `from`, which must outlive it; its own arena is empty and needs fini. */
void fo_job_copy(struct fo_job *to, const struct fo_job *from);
/* Sets a number with origin GIVEN. */
void fo_job_set(struct fo_job *job, enum fo_job_setting s, double number);
/* The value of an environment variable that a file sets, the last one; NULL: none sets it. */
const char *fo_job_env(const struct fo_job *job, const char *name);
/* Every known setting with its value and where it is from, then what was not read; and the same as JSON, as the members
 * of the open object. */
void fo_job_list(struct fo_job *job, struct fo_doc *doc);
void fo_job_json(struct fo_job *job, struct fo_json *json);
/* "8", "full", "yes", "unknown" for people. Arena-owned by the job. */
const char *fo_job_text(struct fo_job *job, enum fo_job_setting s);
/* The same in the unit of the framework's key, to stand beside that key: "500000000" elements, "65536 (2^16)". */
const char *fo_job_own_text(struct fo_job *job, enum fo_job_setting s);
/* A number of the setting in the unit of the framework's key. */
double fo_job_own_number(const struct fo_job *job, enum fo_job_setting s, double number);

#endif
