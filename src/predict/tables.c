/* Names, frameworks' habits, constants: the tables of the .def files. */
#include "predict/predict_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *const fo_predict_type_name[FO_PREDICT_TYPES] = { "bf16", "fp8", "mxfp8", "fp4", "tf32", "fp32" };
const char *const fo_predict_part_name[FO_PREDICT_PARTS] = { "matmul",    "attention", "memory-bound", "loss",
							     "recompute", "tensor",    "context",      "expert",
							     "data",      "sends",     "pipeline",     "optimizer",
							     "host",      "rest" };
const char *const fo_predict_memory_name[FO_PREDICT_MEMORIES] = { "weights", "gradients", "optimizer", "activations",
								  "logits",  "buffers",   "overhead" };
const char *const fo_predict_ground_name[FO_PREDICT_GROUNDS] = { "measured here", "catalogue", "fitted constant",
								 "published figure", "guess" };

const struct fo_predict_style fo_predict_style[FO_PREDICT_STYLES] = {
#define FO_PREDICT_STYLE(id, ...) { __VA_ARGS__ },
#include "predict/styles.def"
#undef FO_PREDICT_STYLE
};
const struct fo_predict_constant_row fo_predict_constant_row[FO_PREDICT_CONSTANTS] = {
#define FO_PREDICT_CONSTANT(id, ...) { #id, __VA_ARGS__ },
#include "predict/constants.def"
#undef FO_PREDICT_CONSTANT
};
const int fo_predict_constant_count = FO_PREDICT_CONSTANTS;
_Static_assert((int)FO_PREDICT_CONSTANTS <= 128, "struct fo_predict_base holds 128 constants");

/* Publishers' factors on speed beside the constants, from the same fit: hardware, clocks, and how a run was timed. */
static const struct {
	const char *publisher;
	double habit;
} habit[] = {
#define FO_PREDICT_HABIT(publisher, factor) { publisher, factor },
#include "predict/habits.def"
#undef FO_PREDICT_HABIT
};

double fo_predict_habit(const char *publisher)
{
	for (size_t i = 0; publisher && i < sizeof habit / sizeof *habit; i++)
		if (!strcmp(habit[i].publisher, publisher))
			return habit[i].habit;
	return 0;
}

void fo_predict_constants(bool fitted, double x[FO_PREDICT_CONSTANTS])
{
	for (int i = 0; i < FO_PREDICT_CONSTANTS; i++)
		x[i] = fitted ? fo_predict_constant_row[i].value : fo_predict_constant_row[i].start;
}

enum fo_predict_ground fo_predict_ground_of(const struct fo_predict_constant_row *r)
{
	if (r->value != r->start)
		return FO_PREDICT_FITTED;
	bool none = strstr(r->origin, "guess") || !strcmp(r->origin, "fitted") || !strcmp(r->origin, "has none");
	return none ? FO_PREDICT_GUESS : FO_PREDICT_PUBLISHED;
}

#define AFTER_FIT 0.5
double fo_predict_spread_of(const struct fo_predict_constant_row *r)
{
	return r->spread * (r->value != r->start ? AFTER_FIT : 1);
}

/* ---- styles ---- */

enum fo_predict_style_id fo_predict_style_of(const char *framework)
{
	char name[128];
	size_t n = 0;
	for (; framework && framework[n] && n + 1 < sizeof name; n++)
		name[n] = (char)tolower((unsigned char)framework[n]);
	name[n] = '\0';
	for (int i = 0; i < FO_PREDICT_STYLES; i++) {
		const char *at = fo_predict_style[i].words;
		while (*at) {
			size_t len = strcspn(at, "|");
			char word[32];
			snprintf(word, sizeof word, "%.*s", (int)len, at);
			if (strstr(name, word))
				return (enum fo_predict_style_id)i;
			at += len + (at[len] == '|');
		}
	}
	return FO_PREDICT_STYLE_EAGER;
}

enum fo_predict_habits fo_predict_habits_of(enum fo_predict_style_id style)
{
	static const char *const family[FO_HABITS] = {
		[FO_MCORE] = "mcore", [FO_MLM] = "mlm",           [FO_MEG22] = "meg22", [FO_EAGER] = "eager",
		[FO_FSDP1] = "fsdp1", [FO_COMPILED] = "compiled", [FO_XLA] = "xla",     [FO_GRAPHS] = "graphs"
	};
	int i = 0;
	while (i < FO_HABITS - 1 && strcmp(family[i], fo_predict_style[style].family))
		i++;
	return (enum fo_predict_habits)i;
}
