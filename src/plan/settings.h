/* A division in a framework's own words, to paste. */
#ifndef FO_PLAN_SETTINGS_H
#define FO_PLAN_SETTINGS_H

#include "base/str.h"
#include "plan/plan.h"

/* Frameworks whose settings can be written: the ids of fo_plan_framework but "any". */
enum fo_plan_words {
	FO_PLAN_WORDS_FLATOUT,
	FO_PLAN_WORDS_TORCHTITAN,
	FO_PLAN_WORDS_MEGATRON,
	FO_PLAN_WORDS_DEEPSPEED,
	FO_PLAN_WORDS
};
extern const char *const fo_plan_words_id[FO_PLAN_WORDS];    /* "flatout" */
extern const char *const fo_plan_words_title[FO_PLAN_WORDS]; /* "run.yaml" */
/* Appends the settings of the model. False, with why not in *why (static): the framework cannot run this division,
 * its settings cannot state the number type, or its own habits take more memory than the machine has. */
bool fo_plan_settings(enum fo_plan_words w, const struct fo_plan_asked *asked, const struct fo_plan_point *p,
		      const struct fo_model *model, struct fo_str *out, const char **why);

#endif
