/* One step on a device, taken apart by the events around its operations. */
#ifndef BENCH_TRAIN_VS_TORCH_PARTS_H
#define BENCH_TRAIN_VS_TORCH_PARTS_H

#include "timeline/timeline.h"
#include "train/exec.h"

/* Runs `step`, which must be one that e times (exec.h), and adds its parts to f. Prints a line for each kind of
 * operation of it, the longest first: where it stands (layers or head, the phase, the lane), how many run, their
 * time, rate and share of the step. */
FO_CHECKED fo_status bench_parts(struct fo_exec *e, const struct fo_program *p, int32_t step, struct fo_profile *f);

#endif
