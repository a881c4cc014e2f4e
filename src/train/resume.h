/* The table of what is compared when a run goes on from a checkpoint (docs/safety.md shows it). */
#ifndef FO_TRAIN_RESUME_H
#define FO_TRAIN_RESUME_H

#include "base/str.h"
#include "ckpt/ckpt.h"

/* SAME: another value is refused. WARNED: the run goes on with a warning. FREE: not compared. */
enum fo_resume_rule { FO_RESUME_SAME, FO_RESUME_WARNED, FO_RESUME_FREE };

/* One side of the comparison; NULL: not recorded. */
struct fo_resume_side {
	const struct fo_model *model;
	const struct fo_ckpt_meta *meta;
	const char *passes; /* as fo_passes_text writes them */
	const uint64_t *val_checksum;
	const char *kernels; /* the instruction set; NULL on a device too */
};

enum fo_resume_kind {
	FO_RESUME_MODEL_INT,
	FO_RESUME_MODEL_FLAG,
	FO_RESUME_MODEL_REAL,
	FO_RESUME_MODEL_TYPE,
	FO_RESUME_ROPE_TYPE,
	FO_RESUME_META_INT,
	FO_RESUME_META_PACKING,
	FO_RESUME_META_TEXT,
	FO_RESUME_META_SEED,
	FO_RESUME_META_CHECKSUM,
	FO_RESUME_PASS,
	FO_RESUME_VAL_CHECKSUM,
	FO_RESUME_KERNELS,
};
struct fo_resume_row {
	const char *name;
	enum fo_resume_rule rule;
	enum fo_resume_kind kind;
	size_t offset;       /* in struct fo_model, fo_ckpt_meta or fo_passes */
	bool data;           /* set right by restoring files, not by an option */
	const char *options; /* the run options that it comes from, separated by blanks; NULL: the one of its name */
	const char *why;     /* WARNED: the consequence of the change */
};
int fo_resume_rows(void);
struct fo_resume_row fo_resume_row(int i);
/* The options of a run that are not compared, then NULL: another value is allowed, or shows in what is compared. */
extern const char *const fo_resume_free[];

/* The row's value on this side in `buf`; false: not recorded. */
bool fo_resume_value(const struct fo_resume_row *row, const struct fo_resume_side *side, char *buf, size_t size);

/* Every difference, in the table's order. */
struct fo_resume_differences {
	struct fo_str refused; /* "NAME is A there and B here; ..." */
	struct fo_str set;     /* "NAME=A, ...": the options that set these right */
	struct fo_str warned;  /* a line each */
	struct fo_str unknown; /* names that `was` does not record */
	bool model, data;      /* the model has to be another; files have to be restored */
};
void fo_resume_compare(const struct fo_resume_side *was, const struct fo_resume_side *is,
		       struct fo_resume_differences *out);
void fo_resume_differences_fini(struct fo_resume_differences *d);

/* The loader's next step for steps of `rows` rows after `next_step` of `rows_before`: the first that begins at or
 * after the row that comes next. *left_out: rows between. */
int64_t fo_resume_next_step(int64_t next_step, int64_t rows_before, int64_t rows, int64_t *left_out);

#endif
