/* auto for passes that pay on a device only: taken where the step is predicted to be faster with them (cost/device.h).
 *
 * Each is decided by itself, in the order of the table, beside what was decided before it. All keep the mathematics, so
 * a wrong prediction costs time and nothing else. */
#include "pass/pass.h"

#include <math.h>

/* Rates of the catalogue cannot tell less than a thousandth of a step apart (as CHUNK_GAIN of choose.c). */
#define LEAST_GAIN 1e-3
/* The optimizer's share of a step shrinks with micro-batches; with so many it is that of most runs (docs/performance.md
 * has 16). */
enum { MICRO_BATCHES = 8 };

#define ROW(key, field)                                                                \
	{                                                                              \
		key, offsetof(struct fo_run, field), offsetof(struct fo_passes, field) \
	}
const struct fo_predicted_pass fo_predicted_pass[FO_PREDICTED_PASSES] = {
	ROW("pass.fuse-rope", fuse_rope),
	ROW("pass.fp8-fuse", fp8_fuse),
	ROW("pass.wgrad-lane", wgrad_lane),
};
#undef ROW

/* NAN: such a program is not legal, or an operation of it not known. */
static double seconds_of(const struct fo_run *r, const struct fo_model *m, const struct fo_device_rates *d,
			 int64_t *value, size_t at)
{
	struct fo_lowering run = fo_run_lowering(r, FO_MODE_TRAIN);
	struct fo_interval s = { NAN, NAN, NAN };
	struct fo_program p;
	if (run.micro_batches > MICRO_BATCHES)
		run.micro_batches = MICRO_BATCHES;
	fo_status st = fo_pass_build(&p, m, &run);
	if (st == FO_OK) {
		*value = fo_passes_get(&p.run.pass, at);
		st = fo_device_program_seconds(d, &p, -1, &s);
		fo_program_fini(&p);
	}
	fo_err_clear();
	return st == FO_OK ? s.mid : NAN;
}

void fo_pass_predict(struct fo_run *r, const struct fo_model *m, const struct fo_choose_rates *device,
		     struct fo_predicted *out)
{
	for (int i = 0; i < FO_PREDICTED_PASSES; i++) {
		const struct fo_predicted_pass *row = &fo_predicted_pass[i];
		int *option = (int *)(void *)((char *)r + row->of_run);
		int64_t without = 0, with = 0;
		out[i] = (struct fo_predicted){ .open = *option == FO_RUN_AUTO, .gain = NAN };
		if (!out[i].open)
			continue;
		*option = FO_RUN_NO;
		if (!device->on_device)
			continue;
		const double before = seconds_of(r, m, &device->device, &without, row->of_pass);
		*option = FO_RUN_YES;
		const double after = seconds_of(r, m, &device->device, &with, row->of_pass);
		out[i].gain = 1 - after / before;
		out[i].taken = with != without && out[i].gain >= LEAST_GAIN;
		*option = out[i].taken ? FO_RUN_YES : FO_RUN_NO;
	}
}
