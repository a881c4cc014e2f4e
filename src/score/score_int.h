/* Private to src/score. */
#ifndef FO_SCORE_SCORE_INT_H
#define FO_SCORE_SCORE_INT_H

#include "hw/csv.h"
#include "predict/predict_int.h"
#include "score/score.h"

/* One row of vTrain's or SimuMax's table. */
void fo_score_foreign(struct fo_score_table *t, const struct fo_csv *csv, const struct fo_csv_row *at,
		      const struct fo_catalogue *c, struct fo_score_row *x);

/* Gives columns the names that docs/accuracy.md has (columns.def). FO_EFORMAT for a column that stands twice. */
FO_CHECKED fo_status fo_score_headings(struct fo_arena *a, struct fo_csv *csv, const char *where);
/* Is a cell empty, or does it say so ("n/a", "-")? */
bool fo_score_missing(const char *cell);
/* "8192", "8k" (8 times kilo), "37,556", "4096 (packed)"; NAN: no number. */
double fo_score_number(const char *cell, double kilo);

/* In lower case, in arena memory. */
const char *fo_score_lower(struct fo_arena *a, const char *s);
/* Does s have one of the words, separated by '|'? */
bool fo_score_has(const char *s, const char *words);
/* The name without what does not make another model. In arena memory. */
const char *fo_score_family(struct fo_arena *a, const char *model);
/* The shape of a model of models.def; layers NAN: all of them. */
bool fo_score_shape(const char *model, struct fo_predict_model *m, double layers);

/* Fills rank, regret, sets of o from rows of a group (NULL: all). */
void fo_score_rank(struct fo_score_row **row, int rows, const char *group, bool moe, struct fo_score_sum *o);

/* ---- fits (fit.c) ---- */

struct fo_score_case {
	struct fo_predict_work work;
	double log_seconds; /* measured */
	double weight;
	int group, family;
	bool out; /* of this fit */
};
enum { FO_SCORE_PARAMETERS = FO_PREDICT_CONSTANTS + FO_SCORE_GROUPS };
/* Logs of constants, then of groups' factors. In: where to begin. rounds: Gauss-Newton steps. */
void fo_score_fit(const struct fo_score_case *c, int cases, int groups, int rounds, double x[FO_SCORE_PARAMETERS]);
/* log(predicted seconds) of a case; strange: as if its group were unseen. */
double fo_score_seconds(const struct fo_score_case *c, const double x[FO_SCORE_PARAMETERS], bool strange);
void fo_score_start(double x[FO_SCORE_PARAMETERS], bool fitted);

#endif
