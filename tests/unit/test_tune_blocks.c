/* The choice among algorithms that were run in blocks (kernel/tune_blocks.h): order, drift, ties, energy that is known
 * or not. */
#include "kernel/tune_blocks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_order(void **state)
{
	static const int four[] = { 0, 1, 2, 3, 3, 2, 1, 0 }, two[] = { 0, 1, 1, 0 };
	int order[FO_TUNE_BLOCKS];
	(void)state;
	assert_int_equal(fo_tune_blocks_order(4, order), 8);
	assert_memory_equal(order, four, sizeof four);
	assert_int_equal(fo_tune_blocks_order(2, order), 4);
	assert_memory_equal(order, two, sizeof two);
}

/* Blocks there and back: of each finalist time and energy of its first block, and how far the second one lies above. */
struct one {
	double us, joules, more_us, more_joules;
};
static struct fo_tune_verdict decided(const struct one *f, int n, double drift)
{
	struct fo_tune_block b[FO_TUNE_BLOCKS];
	struct fo_tune_verdict v;
	int order[FO_TUNE_BLOCKS], blocks = fo_tune_blocks_order(n, order);
	for (int i = 0; i < blocks; i++) {
		const struct one *x = &f[order[i]];
		b[i] = (struct fo_tune_block){ order[i], (x->us + (i >= n ? x->more_us : 0)) * (1 + drift * i),
					       x->joules + (i >= n ? x->more_joules : 0), 1.4e9 + i };
	}
	fo_tune_blocks_decide(b, blocks, n, &v);
	return v;
}

static void test_fastest(void **state)
{
	const struct one f[] = { { 104, 0.07, 0, 0 }, { 102, 0.08, 0, 0 }, { 103, 0.01, 0, 0 } };
	struct fo_tune_verdict v = decided(f, 3, 0);
	(void)state;
	assert_int_equal(v.best, 1); /* without noise nothing is a tie: less energy does not help */
	assert_false(v.by_energy);
	assert_true(v.noise == 0 && v.us[0] == 104 && v.us[1] == 102 && v.us[2] == 103 && v.joules[2] == 0.01);
	assert_true(fabs(v.hz[0] - (1.4e9 + 2.5)) < 1e-3);
}

/* What gets slower all the time adds the same to each, whatever its place. */
static void test_drift(void **state)
{
	const struct one f[] = { { 100.3, NAN, 0, 0 }, { 100.2, NAN, 0, 0 }, { 100.1, NAN, 0, 0 }, { 100, NAN, 0, 0 } };
	(void)state;
	for (double drift = -0.01; drift < 0.011; drift += 0.02) {
		struct fo_tune_verdict v = decided(f, 4, drift);
		assert_int_equal(v.best, 3);
		assert_true(fabs(v.us[0] / v.us[3] - 1.003) < 1e-9);
		assert_true(v.noise == 0.01); /* 3.5 times the drift, but never more than this */
	}
}

/* Times within the noise: energy decides, if it tells more than its own noise. */
static void test_energy(void **state)
{
	const struct one ties[] = { { 100, 0.070, 0.4, 0 }, { 100.1, 0.065, 0, 0 }, { 101, 0.010, 0, 0 } };
	const struct one loud[] = { { 100, 0.070, 0.4, 0 }, { 100.1, 0.065, 0, 0.012 }, { 101, 0.010, 0, 0 } };
	const struct one unknown[] = { { 100, 0.070, 0.4, 0 }, { 100.3, 0.060, 0, 0 }, { 100.35, NAN, 0, 0 } };
	const struct one far[] = { { 100, 0.070, 0.4, 0 }, { 100.1, 0.065, 0, 0 }, { 101, NAN, 0, 0 } };
	struct fo_tune_verdict v = decided(ties, 3, 0);
	(void)state;
	assert_int_equal(v.best, 1); /* 100.1 of 100.2: 0.2 %; the third is outside */
	assert_true(v.by_energy || v.us[1] < v.us[0]);
	assert_true(fabs(v.noise - 0.2 / 100.2) < 1e-9);
	const struct one slower[] = { { 100, 0.070, 0.4, 0 }, { 100.3, 0.065, 0, 0 } };
	v = decided(slower, 2, 0);
	assert_int_equal(v.best, 1); /* slower by 0.1 %, less energy by 7 % */
	assert_true(v.by_energy);
	const struct one same[] = { { 100, 0.070, 0.4, 0 }, { 100.3, 0.065, 0, 0.012 } };
	v = decided(same, 2, 0);
	assert_int_equal(v.best, 0); /* 0.071 with 8 % noise against 0.070 */
	assert_false(v.by_energy);
	v = decided(loud, 3, 0);
	assert_int_equal(v.best, 1);
	assert_false(v.by_energy);  /* the fastest anyway */
	v = decided(unknown, 3, 0); /* one of those that tie may have taken the least */
	assert_int_equal(v.best, 0);
	assert_false(v.by_energy);
	v = decided(far, 3, 0); /* whose energy is not known is out by its time */
	assert_int_equal(v.best, 1);
	assert_true(isnan(v.joules[2]));
}

/* However noisy: a tie costs 1 % at most. */
static void test_most(void **state)
{
	const struct one f[] = { { 90, 0.07, 20, 0 }, { 102, 0.01, 0, 0 }, { 100.5, 0.06, 0, 0 } };
	struct fo_tune_verdict v = decided(f, 3, 0);
	(void)state;
	assert_true(v.noise == 0.01);
	assert_int_equal(v.best, 2);
	assert_true(v.by_energy);
}

static void test_nonsense(void **state)
{
	const struct one f[] = { { NAN, 0.01, 0, 0 }, { 102, 0, 0, 0 }, { 0, 0.01, 0, 0 } };
	const struct one none[] = { { NAN, NAN, 0, 0 }, { INFINITY, 0, 0, 0 } };
	struct fo_tune_verdict v = decided(f, 3, 0);
	(void)state;
	assert_int_equal(v.best, 1);
	assert_true(isnan(v.joules[1]) && isnan(v.us[0]) && isnan(v.us[2]) && !v.by_energy);
	v = decided(none, 2, 0);
	assert_int_equal(v.best, 0);
	assert_false(v.by_energy);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_order), cmocka_unit_test(test_fastest),
					    cmocka_unit_test(test_drift), cmocka_unit_test(test_energy),
					    cmocka_unit_test(test_most),  cmocka_unit_test(test_nonsense) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
