/* The step profile and the timeline file of steps that an executor ran. */
#include "base/clock.h"
#include "base/fs.h"
#include "support/step.h"
#include "timeline/timeline.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static char dir[] = "test_profile.XXXXXX", path[64];

static double sum_parts(const struct fo_profile *f)
{
	double s = 0;
	for (int i = 0; i < FO_PART_COUNT; i++)
		s += f->part_ns[i];
	return s;
}

static void test_real_steps(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 64, 4, 2, 160, 256, false);
	struct step_batch b;
	struct step_rig r;
	struct fo_exec_options o = { .threads = 1, .timeline_steps = 4 };
	struct fo_profile f = { 0 };
	must(fo_isa_choose(&o.isa));
	step_batch_random(&b, 64, 2, 2, 256, 2, 8);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN);
	step_rig_lower(&r, &m, &low, &b, &o);
	for (int i = 0; i < 6; i++) {
		int64_t t0 = fo_now_ns();
		must(fo_exec_step(r.exec, i));
		fo_profile_add_step(&f, fo_exec_timeline(r.exec), &r.program, fo_exec_unrolled(r.exec), i, t0,
				    fo_now_ns(), 0);
	}
	assert_true(fabs(sum_parts(&f) - f.total_ns) <= 1e-9 * f.total_ns);
	for (int i = 0; i < FO_PART_COUNT; i++)
		assert_true(f.part_ns[i] >= 0);
	assert_true(f.part_ns[FO_PART_MATMUL] > 0 && f.part_ns[FO_PART_OPTIMIZER] > 0 && f.part_ns[FO_PART_LOSS] > 0);
	struct fo_timeline_file back;
	must(fo_timeline_write(fo_exec_timeline(r.exec), &r.program, path));
	must(fo_timeline_read(&back, path));
	assert_true(back.program_hash == fo_program_hash(&r.program));
	struct fo_ring *ring = &back.t.lane[FO_LANE_COMPUTE];
	assert_true(ring->n > 0 && ring->span[ring->n - 1].step == 5);
	fo_timeline_fini(&back.t);
	step_rig_free(&r);
	step_batch_free(&b);
}

static int set_up(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return 1;
	snprintf(path, sizeof path, "%s/x.fot", dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return fo_fs_remove_tree(dir) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_real_steps) };
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
