/* The places of all legal divisions, by memory and MFU: for a picture, thinned. */
#ifndef FO_PLAN_LANDSCAPE_H
#define FO_PLAN_LANDSCAPE_H

#include "plan/plan.h"

/* How a division parts the model; of several the last one of this list that it has. */
enum fo_plan_kind {
	FO_PLAN_KIND_DATA, /* no model parallelism */
	FO_PLAN_KIND_TENSOR,
	FO_PLAN_KIND_PIPELINE,
	FO_PLAN_KIND_BOTH, /* tensor and pipeline */
	FO_PLAN_KIND_CONTEXT,
	FO_PLAN_KIND_EXPERT,
	FO_PLAN_KINDS
};
extern const char *const fo_plan_kind_name[FO_PLAN_KINDS];
enum fo_plan_kind fo_plan_kind_of(const struct fo_predict_layout *l);

struct fo_plan_place {
	double bytes, mfu_causal, seconds;
	enum fo_plan_kind kind;
	bool fits; /* by the most that the memory may be; programs of Flatout's are not planned here */
};
enum { FO_PLAN_COLUMNS = 32, FO_PLAN_ROWS = 18 };
struct fo_plan_landscape {
	struct fo_plan_place *place; /* of each kind the fastest in each cell of a grid of COLUMNS x ROWS */
	size_t places;
	int64_t divisions; /* legal ones with a time */
	int64_t beyond;    /* of them more than memory_most: not among the places */
	double memory_most;
};
/* Evaluates every legal division once. mfu_most: the grid's upper edge, the plan's best MFU or more; what is above it
 * lies in the last row. Divisions that fit and those that do not are thinned apart. Caller ends it with fini. */
void fo_plan_landscape_of(struct fo_plan_landscape *out, const struct fo_plan_asked *asked, double memory_most,
			  double mfu_most);
void fo_plan_landscape_fini(struct fo_plan_landscape *o);

#endif
