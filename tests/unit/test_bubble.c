/* The bubble of a predicted pipeline is its schedule's formula where stages are even, and more where the last one has
 * the head. */
#include "hw/catalogue.h"
#include "plan/timeline.h"
#include "support/must.h"

#include <math.h>

static void test_formula(void **state)
{
	(void)state;
	static const struct {
		enum fo_predict_schedule schedule;
		double pp, chunks, micro_batches;
	} one[] = { { FO_PREDICT_1F1B, 4, 1, 8 },
		    { FO_PREDICT_1F1B, 8, 1, 64 },
		    { FO_PREDICT_GPIPE, 4, 1, 16 },
		    { FO_PREDICT_INTERLEAVED, 4, 2, 16 } };
	struct fo_catalogue c;
	const struct fo_device *d;
	struct fo_model m;
	assert_int_equal(fo_catalogue_load(&c, NULL), FO_OK);
	assert_int_equal(fo_catalogue_find(&c, "h100", &d), FO_OK);
	assert_int_equal(fo_model_load("llama-3.1-70b", &m), FO_OK);
	for (size_t i = 0; i < sizeof one / sizeof *one; i++)
		for (int head = 0; head < 2; head++) {
			struct fo_predict_job job = { .style = fo_predict_style_of("megatron"),
						      .type = FO_PREDICT_BF16,
						      .seq = 8192 };
			struct fo_predict_base base;
			struct fo_predict_step s;
			struct fo_pp_formula f;
			assert_int_equal(fo_predict_machine_of(d, &job.machine), FO_OK);
			job.machine.net_byte_s = 1e15; /* messages take no time */
			job.machine.node_byte_s = 1e15;
			fo_predict_model_of(&m, &job.model);
			job.model.vocab = head ? job.model.vocab : 1;
			const struct fo_predict_layout l = { .devices = one[i].pp,
							     .pp = one[i].pp,
							     .chunks = one[i].chunks,
							     .schedule = one[i].schedule,
							     .micro_batch = 1,
							     .micro_batches = one[i].micro_batches,
							     .global_batch = one[i].micro_batches };
			assert_null(fo_predict_prepare(&job, &base));
			fo_predict_point(&base, &l, &s);
			assert_null(s.wrong);
			assert_true(fo_plan_bubble_of(&f, &l, &s) && f.idle_s > 0);
			const double over = s.part[FO_PREDICT_BUBBLE] / f.idle_s;
			if (head ? !(over > 1) : !(fabs(over - 1) < 0.01))
				fail_msg("%s, %s: %.4g s of %.4g s", f.text, head ? "with a head" : "even",
					 s.part[FO_PREDICT_BUBBLE], f.idle_s);
		}
	const struct fo_predict_layout none = { .devices = 1, .pp = 1 };
	struct fo_predict_step s = { .micro_batches = 1 };
	struct fo_pp_formula f;
	assert_false(fo_plan_bubble_of(&f, &none, &s));
	fo_catalogue_fini(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_formula) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
