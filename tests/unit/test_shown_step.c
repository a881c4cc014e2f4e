/* The step that figures are shown of. */
#include "diagnose/diagnose.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The median step is shown while the mean is near it; else the mean, whose parts add up and in which "unknown" stays
 * unknown. */
static void test_shown_step(void **state)
{
	(void)state;
	struct fo_step_ledger step[3] = { 0 };
	struct fo_device_ledger v = { .from = FO_WINDOW_LAUNCHED_STEPS, .step = step, .steps = 3 };
	struct fo_subject s;
	char text[48];
	const int64_t idle[3] = { 10, 40, 11 };
	for (int i = 0; i < 3; i++) {
		struct fo_ledger *l = &step[i].l;
		step[i].number = 7 + i;
		l->comp_ns = l->class_ns[FO_K_GEMM] = l->busy_ns = 100;
		l->idle_total_ns = l->idle_ns[FO_IDLE_HOST_DATA] = idle[i];
		l->span_ns = 100 + idle[i];
	}
	v.median = step[2];
	v.total = step[0].l;
	v.total.forward_ns = -1;
	v.total.class_ns[FO_K_GEMM] = v.total.comp_ns = 300;
	v.total.idle_ns[FO_IDLE_HOST_DATA] = v.total.idle_total_ns = 61;
	v.total.span_ns = 361; /* 120 a step, not more than 1.1 x 111 */
	fo_shown_step_of(&v, &s);
	assert_int_equal(s.steps, 1);
	assert_int_equal(s.l.span_ns, 111);
	assert_string_equal(fo_shown_step_words(text, &v), "median step (9)");
	v.total.idle_ns[FO_IDLE_HOST_DATA] = v.total.idle_total_ns = 70; /* 123 a step is */
	v.total.span_ns = 370;
	fo_shown_step_of(&v, &s);
	assert_int_equal(s.steps, 3);
	assert_int_equal(s.l.comp_ns, 100);
	assert_int_equal(s.l.idle_total_ns, 23);
	assert_int_equal(s.l.span_ns, 123);
	assert_int_equal(s.l.forward_ns, -1);
	assert_string_equal(fo_shown_step_words(text, &v), "mean of 3 steps");
	v.from = FO_WINDOW_WHOLE;
	assert_string_equal(fo_shown_step_words(text, &v), "whole trace");
	assert_string_equal(fo_row_words("host_data"), "data loading");
	assert_string_equal(fo_row_words("conv"), "convolutions");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_shown_step) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
