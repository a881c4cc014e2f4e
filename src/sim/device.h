/* A step on an accelerator, by parts, as an interval: three walks of the simulator, with every operation at its fast
 * end, its middle and its slow end (cost/device.h). So the ends are what the step would take if all that is uncertain
 * went one way. */
#ifndef FO_SIM_DEVICE_H
#define FO_SIM_DEVICE_H

#include "cost/device.h"
#include "sim/sim.h"

struct fo_device_step {
	struct fo_interval step_s, part_s[FO_DEVICE_PARTS];   /* parts sum to the step */
	double flop[FO_DEVICE_PARTS], bytes[FO_DEVICE_PARTS]; /* executed and moved, of each part's operations */
	int nodes;                                            /* operations that compute, or copy */
	double measured_share; /* of the middle time of what computes: operations that the profile holds */
	struct fo_sim sim;     /* the middle walk: sure is EXACT where measured, else GUESS */
};

/* `u` is unrolled, planned and pruned; pairs of a micro-batch as in fo_op_cost. FO_EUNSUPPORTED, naming the operation
 * and what to do, where one is not known; *s needs no fini then. */
FO_CHECKED fo_status fo_device_step(struct fo_device_step *s, const struct fo_program *p, const struct fo_unrolled *u,
				    const struct fo_device_rates *r, double pairs);
void fo_device_step_fini(struct fo_device_step *s);

#endif
