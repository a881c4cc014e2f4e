/* Metered steps: a clock around every operation (train.metered-every). */
#ifndef FO_TRAIN_METER_H
#define FO_TRAIN_METER_H

#include "kernel/measure.h"
#include "timeline/metered.h"
#include "train/setup.h"

struct fo_step_meter {
	bool on; /* train.metered-every, and the kernel set can be metered */
	int64_t every;
	int64_t step; /* that runs, from 1 */
	struct fo_exec *exec;
	struct fo_events *events;
	struct fo_meter meter;
	struct fo_metered spans; /* of the step that runs */
	struct fo_metered_out out;
};
/* The compute threads must be in their places. What cannot be metered is a warning; `step` steps are done. */
FO_CHECKED fo_status fo_step_meter_open(struct fo_step_meter *m, struct fo_setup *set, int64_t step);
void fo_step_meter_close(struct fo_step_meter *m);
/* Is this step metered? Never the first of a process: it touches memory that later ones find in caches. */
bool fo_step_meter_due(const struct fo_step_meter *m, int64_t step, bool first);
/* Runs step number `step`: the bits of fo_exec_step. */
FO_CHECKED fo_status fo_step_meter_run(struct fo_step_meter *m, int64_t step);

#endif
