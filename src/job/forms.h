/* Frameworks: which of their settings means which of ours, and what they assume where a file says nothing. One table
 * per framework (forms_*.c); this engine reads all of them. */
#ifndef FO_JOB_FORMS_H
#define FO_JOB_FORMS_H

#include "job/conf.h"
#include "job/job.h"

/* A key of a framework and the setting that it is. Keys are compared without case, '-' and '_'.
 *
 * map NULL: the value as the setting's kind has it: a number, on or off, one of its words, a text. Else pairs
 * "value=ours" parted by blanks: ours is a number, one of the setting's words, or "-" for "says nothing"; "*" is any
 * other value, "null" a null; "true" and "false" stand for all spellings of these. scale: a number is multiplied. */
struct fo_form_row {
	const char *key;
	int setting;
	const char *map;
	double scale;
};
#define FO_FORM_ROW(key, s)              \
	{                                \
		key, FO_JOB_##s, NULL, 1 \
	}
#define FO_FORM_MAP(key, s, map)        \
	{                               \
		key, FO_JOB_##s, map, 1 \
	}
#define FO_FORM_SCALED(key, s, scale)        \
	{                                    \
		key, FO_JOB_##s, NULL, scale \
	}
#define FO_FORM_END              \
	{                        \
		NULL, 0, NULL, 0 \
	}

/* What the framework assumes: the value as a number, a word of the setting, on or off. */
struct fo_form_default {
	int setting;
	const char *value;
};
#define FO_FORM_DEFAULT(s, value) \
	{                         \
		FO_JOB_##s, value \
	}
#define FO_FORM_DEFAULTS_END \
	{                    \
		-1, NULL     \
	}

struct fo_reading;
enum { FO_FORM_JUDGED = 4000 }; /* entries of a file that tell what it is */

struct fo_form {
	struct fo_job_form name; /* what a job tells of it */
	const struct fo_form_row *rows[4];
	const struct fo_form_default *defaults[2]; /* NULL: none */
	const char *ignored[2];         /* patterns (fnmatch) of keys that decide no speed, parted by blanks; NULL */
	bool (*knows)(const char *key); /* keys that decide no speed are those that this knows; NULL */
	const char *prefix;             /* what may stand before a key, parted by blanks: "MODEL_ARGS. model."; NULL */
	const char *signature;          /* keys that only this framework has, parted by blanks; NULL */
	/* What no row can say: settings that follow from several keys, the model. NULL: nothing. */
	void (*finish)(struct fo_reading *r);
	bool dashes;   /* its keys are arguments: "--num-layers" */
	bool alone;    /* starts a job by itself: files of two such frameworks are two jobs */
	bool specific; /* decides before a file of another framework that is given beside (DeepSpeed, a model) */
};

/* One file while it is read into a job. */
struct fo_reading {
	struct fo_job *job;
	const struct fo_conf *conf;
	const struct fo_form *form;
	struct fo_model
		*shape; /* family, biases, norms: what the settings do not hold; the caller makes a model of both */
	const char **model_name; /* *model_name: what fo_model_load takes, where finish found one */
	const char **no_shape;   /* *no_shape: why the stated shape is not the whole model, where finish found so */
};

extern const struct fo_form *const fo_form[];
extern const int fo_forms;

/* The form of a file's settings. FO_EFORMAT: none, or two that fit alike. */
FO_CHECKED fo_status fo_form_of(const struct fo_conf *c, const struct fo_form **out);
/* The stated settings of a file into the job, where no earlier file has stated them, and what no table knows. */
void fo_form_apply(struct fo_reading *r);
/* When all files were applied: the defaults of this file's form where nothing is known yet, then its finish. */
void fo_form_conclude(struct fo_reading *r);

/* For finish. The last entry with this key (prefixes stripped); several keys are parted by '|'; NULL: none. */
const struct fo_conf_entry *fo_reading_find(const struct fo_reading *r, const char *keys);
bool fo_reading_on(const struct fo_reading *r, const char *keys);                     /* is it there and on */
double fo_reading_number(const struct fo_reading *r, const char *keys);               /* NAN: not there or no number */
bool fo_reading_says(const struct fo_reading *r, const char *keys, const char *word); /* its value has the word */
/* Sets what follows from an entry (origin STATED), and what follows from a default (origin DEFAULT); a stated value of
 * the same setting stays in both. */
void fo_reading_state(struct fo_reading *r, enum fo_job_setting s, double number, const struct fo_conf_entry *e);
void fo_reading_state_text(struct fo_reading *r, enum fo_job_setting s, const char *text,
			   const struct fo_conf_entry *e);
void fo_reading_imply(struct fo_reading *r, enum fo_job_setting s, double number, const char *key);
/* The stated shape is not the whole model: the first of `keys` (parted by '|') that is there and not off, null or
 * one. */
void fo_reading_odd_model(struct fo_reading *r, const char *keys);
void fo_reading_note(struct fo_reading *r, const char *fmt, ...) FO_PRINTF(2, 3);

/* A value in the setting's own words: a number, on or off, one of its words. */
bool fo_form_value(enum fo_job_setting s, const char *text, double *out);
/* The row of a key, prefixes stripped; NULL: none. */
const struct fo_form_row *fo_form_row_of(const struct fo_form *f, const char *path);
/* Is the key, prefixes stripped, one of a list that is parted by blanks? */
bool fo_form_lists(const struct fo_form *f, const char *list, const char *path);
bool fo_form_knows(const struct fo_form *f, const char *key);
bool fo_form_word_number(enum fo_job_setting s, const char *word, size_t n, double *out);

extern const struct fo_form fo_form_torchtitan, fo_form_torchtitan_python, fo_form_megatron, fo_form_nemo,
	fo_form_bridge, fo_form_deepspeed, fo_form_accelerate, fo_form_transformers, fo_form_axolotl,
	fo_form_llamafactory, fo_form_maxtext, fo_form_litgpt, fo_form_nanotron, fo_form_foundry, fo_form_olmo,
	fo_form_olmo_yaml, fo_form_neox, fo_form_flatout, fo_form_hf_model;

#endif
