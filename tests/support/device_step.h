/* A run's step on a device of the catalogue, for tests of predictions. Each function fails the test where the code
 * fails. */
#ifndef TESTS_SUPPORT_DEVICE_STEP_H
#define TESTS_SUPPORT_DEVICE_STEP_H

#include "cost/cost.h"
#include "cost/device_profile.h"
#include "pass/pass.h"
#include "sim/sim.h"

struct device_rig {
	struct fo_catalogue catalogue;
	struct fo_device_rates rates;
	struct fo_run run;
	struct fo_opt_set set;
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_device_step s;
};
/* Clears *g, and the rates of the device of that name. */
void device_rig_rates(struct device_rig *g, const char *name);
/* The program of a run with these options, words apart; planned. */
void device_rig_build(struct device_rig *g, const char *options);
/* Both, and the step. */
void device_rig_step(struct device_rig *g, const char *name, const char *options);
void device_rig_end(struct device_rig *g);

#endif
