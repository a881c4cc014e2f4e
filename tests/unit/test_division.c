/* A division in words: one form, from a layout, from a plan's file, and narrow. */
#include "plan/file.h"
#include "support/must.h"

#include <math.h>
#include <string.h>

static void says(const struct fo_division *x, const char *full, const char *narrow)
{
	struct fo_str s = { 0 };
	fo_division_text(x, false, &s);
	assert_string_equal(s.data, full);
	fo_str_fini(&s);
	fo_division_text(x, true, &s);
	assert_string_equal(s.data, narrow);
	fo_str_fini(&s);
}

static void test_layouts(void **state)
{
	(void)state;
	struct fo_division x;
	struct fo_predict_layout l = { .devices = 1 };
	fo_division_of(&l, 1, &x);
	says(&x, "dp 1", "dp 1");
	l = (struct fo_predict_layout){ .tp = 8, .sp = true, .tp_overlap = 1, .pp = 4, .chunks = 5, .zero = 1 };
	l.schedule = FO_PREDICT_INTERLEAVED;
	fo_division_of(&l, 16, &x);
	says(&x, "dp 16 tp 8 async pp 4 x 5 chunks ZeRO 1", "dp 16 tp 8a pp 4x5 Z1");
	l = (struct fo_predict_layout){ .tp = 2, .cp = 2, .pp = 2, .ep = 4, .zero = 3, .shard = 8 };
	l.schedule = FO_PREDICT_ZB_H2, l.stages_near = l.keeps_weights = true;
	fo_division_of(&l, 8, &x);
	says(&x, "dp 8 tp 2 (no sp) cp 2 pp 2 in a node zb-h2 ep 4 ZeRO 3 over 8 keeping weights",
	     "dp 8 tp 2- cp 2 pp 2n zb-h2 ep 4 Z3/8k");
	/* All ranks that there are: over nobody less. */
	l.shard = 16;
	fo_division_of(&l, 8, &x);
	assert_true(x.shard == 0);
	l = (struct fo_predict_layout){ .pp = 3, .schedule = FO_PREDICT_GPIPE, .uneven = { 3, 5, 4 } };
	fo_division_of(&l, 2, &x);
	says(&x, "dp 2 pp 3 of 3, 5 and 4 layers gpipe ZeRO 0", "dp 2 pp 3 gpipe Z0");
	x = (struct fo_division){ .dp = 4, .tp = NAN, .cp = 4, .pp = NAN, .zero = -1, .cp_by_heads = true };
	says(&x, "dp 4 cp 4 by heads", "dp 4 cp 4h");
	x.type = "fp8", x.format = FO_PREDICT_FORMAT_BF16;
	says(&x, "dp 4 cp 4 by heads fp8, moments in bf16", "dp 4 cp 4h fp8 m16");
}

/* A file may lack what it need not have, or say what nothing means. */
static void test_files(void **state)
{
	(void)state;
	struct fo_division x;
	struct fo_plan_file_point p = { .dp = 2, .tp = 4, .sp = true, .cp = 1, .pp = 2, .ep = 1, .schedule = 99 };
	p.zero = p.shard = p.chunks = NAN;
	fo_plan_file_division(&p, &x);
	says(&x, "dp 2 tp 4 pp 2", "dp 2 tp 4 pp 2");
	p.schedule = FO_PREDICT_ZERO_BUBBLE, p.zero = 1, p.shard = 2;
	fo_plan_file_division(&p, &x);
	says(&x, "dp 2 tp 4 pp 2 zb-h1 ZeRO 1", "dp 2 tp 4 pp 2 zb-h1 Z1");
	p.schedule = -7;
	fo_plan_file_division(&p, &x);
	assert_int_equal(x.schedule, FO_PP_1F1B);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_layouts), cmocka_unit_test(test_files) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
