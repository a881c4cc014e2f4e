/* The shortest way from a division as it is to a better one: which change gains the most, then which one more. */
#ifndef FO_PLAN_CHANGES_H
#define FO_PLAN_CHANGES_H

#include "plan/plan.h"

enum fo_plan_field {
	FO_PLAN_FIELD_TP,
	FO_PLAN_FIELD_CP,
	FO_PLAN_FIELD_PP, /* with chunks, schedule and layers of each stage */
	FO_PLAN_FIELD_EP,
	FO_PLAN_FIELD_STATES, /* ZeRO stage, ranks that share */
	FO_PLAN_FIELD_AGAIN,  /* recomputation */
	FO_PLAN_FIELD_MICRO_BATCH,
	FO_PLAN_FIELD_HIDES, /* gradients and weights that travel beside compute */
	FO_PLAN_FIELD_TYPE,  /* of products */
	FO_PLAN_FIELD_FORMAT,
	FO_PLAN_FIELDS
};
extern const char *const fo_plan_field_name[FO_PLAN_FIELDS];

struct fo_plan_change {
	uint32_t fields; /* bit f: this field becomes the goal's; several where none alone is legal and gains */
	struct fo_predict_layout layout; /* with this change and those before it */
	double before, after;            /* seconds of a step */
};
/* Goes from one division to the goal until a step is within 1 % of the goal's: at each point the change that makes the
 * step shortest; one that gains less than 0.1 % is none. Returns the number of changes. Divisions on the way are legal
 * for the framework and fit in memory. */
int fo_plan_changes(const struct fo_plan_asked *asked, const struct fo_predict_layout *from,
		    const struct fo_predict_layout *goal, struct fo_plan_change out[FO_PLAN_FIELDS]);

#endif
