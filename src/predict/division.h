/* A division of devices in words: the one form that everything prints. */
#ifndef FO_PREDICT_DIVISION_H
#define FO_PREDICT_DIVISION_H

#include "base/str.h"
#include "predict/predict.h"
#include "program/schedule.h"

/* Members that are 0 or NAN are not said. */
struct fo_division {
	double dp, tp, cp, pp, ep, chunks;
	double zero;  /* -1 or NAN: not known; said where several ranks hold the same weights */
	double shard; /* ranks that share states; 0, NAN: all of them */
	bool no_sp, tp_async, cp_by_heads, stages_near;
	enum fo_pp_kind schedule; /* 1F1B and interleaved are not said: chunks tell them apart */
	struct fo_predict_uneven uneven;
	int keeps;        /* gathered weights: 1 until backward, 2 for a step */
	const char *type; /* number type, where several are searched; NULL: not said */
	enum fo_predict_format format;
};
/* The schedule by its name in src/program, 1F1B where there is no pipeline. */
enum fo_pp_kind fo_predict_pp_kind(const struct fo_predict_layout *l);
/* dp: of the step (fo_predict_step). */
void fo_division_of(const struct fo_predict_layout *l, double dp, struct fo_division *out);
/* "dp 2 tp 4 async pp 8 x 5 chunks ZeRO 1 over 8"; narrow, for a table: "dp 2 tp 4a pp 8x5 Z1/8". */
void fo_division_text(const struct fo_division *x, bool narrow, struct fo_str *out);
/* Explains the narrow form: some clauses without a full stop. */
extern const char fo_division_legend[];

#endif
