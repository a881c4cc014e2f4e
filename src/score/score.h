/* Scores the prediction (predict/predict.h) on published runs: reads tables, fits the constants without the rows that
 * are predicted, and says how far off it is. docs/accuracy.md has the figures and how they could be wrong. */
#ifndef FO_SCORE_SCORE_H
#define FO_SCORE_SCORE_H

#include "predict/predict.h"

#include "base/json.h"
#include "draw/doc.h"

/* One published run, as predict.h wants it. Texts live in the table's arena. */
struct fo_score_row {
	int line;
	/* A run on this machine: options of `flatout predict`, its profile (relative to the table), ranks; else
	 * NULL, NAN. */
	const char *options, *profile;
	double ranks;
	const char *group, *model, *family, *gpu, *framework, *precision;
	bool scope;          /* to be predicted and counted */
	const char *out;     /* why not; NULL */
	bool covered;        /* the model has an answer */
	const char *refused; /* why it has none; NULL */
	bool moe;
	const char *inferred; /* "vp, recompute": settings that nobody states; "" */
	struct fo_predict_job job;
	struct fo_predict_layout layout;
	double tokens_s; /* measured, of one device */
	double bytes;    /* peak of a device, NAN: not given */
	double year;
	bool recompute_stated;
	/* Answers. */
	double predicted, half_width;    /* tokens/s; of the 80 % interval, in log */
	double stranger, stranger_width; /* the same without any row of the publisher */
	double guess;                    /* a constant MFU for each GPU and type */
	double memory;                   /* bytes, as the framework's logs count them; NAN */
};
struct fo_score_table {
	struct fo_arena arena;
	const char *layout; /* "published", "vtrain", "simumax", "machine" */
	struct fo_score_row *row;
	int rows;
};
/* The runs that Flatout's own constants are fitted to (data/published_runs.csv, built in). */
FO_CHECKED fo_status fo_score_read_own(const struct fo_catalogue *c, struct fo_score_table *t);
/* Reads a table: the columns of published runs, vTrain's, or SimuMax's, told by the header. FO_EIO, FO_EFORMAT
 * with file and line. *t needs fini also after an error. */
FO_CHECKED fo_status fo_score_read(const char *path, const struct fo_catalogue *c, struct fo_score_table *t);
FO_CHECKED fo_status fo_score_read_text(const char *text, size_t len, const char *where, const struct fo_catalogue *c,
					struct fo_score_table *t);
void fo_score_fini(struct fo_score_table *t);

struct fo_score_options {
	bool fit; /* false: the constants' start values */
};
struct fo_score_sum {
	const char *name; /* of the group; "overall" */
	int rows, covered;
	double mean, median, bias, p90, guess; /* of |predicted / measured - 1| */
	double inside, width;                  /* share of rows in the interval; median half-width */
	double rank;                           /* correlation of ranks */
	double regret, regret_random;          /* NAN: no set of at least 3 configurations */
	int sets;
	double stranger_mean, stranger_median, stranger_inside, stranger_width;
	int memory_rows;
	double memory, memory_median; /* errors */
};
enum { FO_SCORE_GROUPS = 64 };
struct fo_score {
	struct fo_score_sum overall, moe, group[FO_SCORE_GROUPS]; /* dense; mixtures of experts; dense by group */
	int groups;
	double x[128]; /* the constants of a fit to all rows */
	double habit[FO_SCORE_GROUPS];
	const char *habit_of[FO_SCORE_GROUPS];
	int habits;
};
/* Predicts every row of t in scope, with `facts` (NULL: none) as further rows to fit to; those that t has, too, count
 * once. Deterministic. FO_ENOMEM; FO_EARG when no row is in scope. */
FO_CHECKED fo_status fo_score_of(struct fo_score_table *t, struct fo_score_table *facts,
				 const struct fo_score_options *o, struct fo_score *out);
/* The sums of a table of this machine's runs, whose rows have been predicted. FO_EARG when none has. */
FO_CHECKED fo_status fo_score_machine(struct fo_score_table *t, struct fo_score *out);
/* One line a row: what was measured, predicted, inferred. */
void fo_score_rows_csv(const struct fo_score_table *t, struct fo_str *out);

#endif
