/* A predicted step as an event-by-event simulation: what each pipeline stage does when.
 *
 * The closed form of src/predict gives seconds by part; here they become operations of one rank of each stage, in
 * the order of the schedule, and the simulator of many ranks (sim/fleet.h) lets them wait for each other.
 * Communication that something hides has no place of its own: the closed form does not give it. sim/walk.c makes
 * such a fleet of step programs; there are two builders because other frameworks' divisions have no program, and a
 * program's operations have no closed form. */
#ifndef FO_PLAN_TIMELINE_H
#define FO_PLAN_TIMELINE_H

#include "predict/predict.h"
#include "program/schedule.h"
#include "sim/fleet.h"

/* What an operation is; fo_plan_op_name has the words. */
enum fo_plan_op {
	FO_PLAN_FORWARD,
	FO_PLAN_BACKWARD,
	FO_PLAN_INPUT,  /* backward's part that makes the gradient of the input */
	FO_PLAN_WEIGHT, /* the part that makes those of the weights */
	FO_PLAN_TENSOR,
	FO_PLAN_CONTEXT,
	FO_PLAN_EXPERT,
	FO_PLAN_SEND, /* between stages */
	FO_PLAN_GATHER,
	FO_PLAN_REDUCE,
	FO_PLAN_OPTIMIZER,
	FO_PLAN_REST, /* once a step, and waiting for the slowest device */
	FO_PLAN_OPS
};
extern const char *const fo_plan_op_name[FO_PLAN_OPS];

struct fo_plan_timeline {
	struct fo_fleet fleet; /* names are fo_plan_op_name, in that order */
	struct fo_fleet_run run;
};
/* Simulates the step s of a layout. FO_EARG where the schedule cannot be or would be too long to simulate. *out needs
 * fini in no case of failure. */
FO_CHECKED fo_status fo_plan_timeline_of(struct fo_plan_timeline *out, const struct fo_predict_layout *l,
					 const struct fo_predict_step *s);
/* The published formula of the layout's schedule, with the times of the mean stage: what the bubble would be if stages
 * were even and messages took no time. False: there is no pipeline. */
bool fo_plan_bubble_of(struct fo_pp_formula *out, const struct fo_predict_layout *l, const struct fo_predict_step *s);
void fo_plan_timeline_fini(struct fo_plan_timeline *t);

#endif
