/* Drawn steps: against the exact distribution of the slowest of many ranks, and by hand where nothing is by chance. */
#include "sim/spread.h"
#include "support/must.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 64 };

/* Each rank works for a second; then all meet, which takes none. */
static void make(struct fo_fleet *f)
{
	*f = (struct fo_fleet){ 0 };
	const int all = fo_fleet_group(f, "all", 1u << fo_fleet_axis(f, "x", RANKS));
	fo_fleet_link(f, "link", 1, false);
	struct fo_fleet_role *r = fo_fleet_role_add(f, "each");
	int32_t work = fo_fleet_op_add(r, (struct fo_fleet_op){ .name = fo_fleet_name(f, "work"), .seconds = 1 });
	fo_fleet_op_add(r, (struct fo_fleet_op){ .name = fo_fleet_name(f, "meet"),
						 .lane = FO_LANE_REDUCE,
						 .does = FO_FLEET_CALLS,
						 .group = (uint8_t)all,
						 .link_s = 0.5 });
	fo_fleet_need(r, work);
}

/* The normal distribution's quantile, by bisection. */
static double quantile(double p)
{
	double low = -10, high = 10;
	for (int i = 0; i < 100; i++) {
		double mid = (low + high) / 2;
		*(0.5 * erfc(-mid / sqrt(2)) < p ? &low : &high) = mid;
	}
	return low;
}

/* The slowest of n ranks is below exp(j g) with the n-th power of the normal distribution. 1,000 steps: the place of a
 * quantile has a standard error of at most 0.016, and four of them are allowed. */
static void test_slowest(void **state)
{
	(void)state;
	struct fo_fleet f;
	struct fo_spread_steps s, again;
	const struct fo_spread_in in = { .jitter = 0.1, .steps = 1000, .seed = 3 };
	make(&f);
	assert_int_equal(fo_spread_of(&s, &f, &in), FO_OK);
	assert_true(fabs(s.alike_s - 1.5) < 1e-12);
	const double at[] = { s.low, s.mid, s.high }, p[] = { 0.1, 0.5, 0.9 };
	for (int i = 0; i < 3; i++) {
		double below = exp(0.1 * quantile(pow(p[i] - 0.064, 1.0 / RANKS))) + 0.5,
		       above = exp(0.1 * quantile(pow(fmin(p[i] + 0.064, 1 - 1e-9), 1.0 / RANKS))) + 0.5;
		if (!(below < at[i] && at[i] < above))
			fail_msg("quantile %g is %g, expected %g to %g", p[i], at[i], below, above);
	}
	/* The work holds what the meeting does not, and no rank holds much more than others. */
	assert_int_equal(s.holds, 2);
	assert_string_equal(f.name[s.hold[0].name], "work");
	assert_true(fabs(s.hold[0].share + s.hold[1].share - 1) < 1e-9);
	assert_true(s.rank_share > 1.0 / RANKS / 2 && s.rank_share < 4.0 / RANKS);
	/* The same seed draws the same steps, and the fleet is as it was. */
	assert_int_equal(fo_spread_of(&again, &f, &in), FO_OK);
	assert_memory_equal(s.step_s, again.step_s, (size_t)s.steps * sizeof *s.step_s);
	assert_true(f.jitter == 0 && !f.odds && !f.odd);
	fo_spread_fini(&s);
	fo_spread_fini(&again);
	fo_fleet_fini(&f);
}

static void test_slow_ranks(void **state)
{
	(void)state;
	struct fo_fleet f;
	struct fo_spread_steps s;
	make(&f);
	/* One rank that takes 1.25 s in each step. */
	struct fo_spread_in in = { .slow = { { 5, 1.25, 1 } }, .slows = 1, .steps = 7, .seed = 1 };
	assert_int_equal(fo_spread_of(&s, &f, &in), FO_OK);
	assert_true(s.steps == 7 && s.low == s.high && fabs(s.mid - 1.75) < 1e-12);
	assert_int_equal(s.rank, 5);
	assert_int_equal(s.hold[0].rank, 5);
	fo_spread_fini(&s);
	/* All of them, and it besides. */
	in.chances = 1;
	in.chance[0].share = 1;
	in.chance[0].work = 2;
	assert_int_equal(fo_spread_of(&s, &f, &in), FO_OK);
	assert_true(fabs(s.mid - 3) < 1e-12);
	fo_spread_fini(&s);
	/* One in 64 on average: a step without any has the chance (63 / 64)^64 = 0.365; of 1,000 steps four standard
	 * errors are 61. */
	in = (struct fo_spread_in){ .chance = { { 1.0 / RANKS, 2 } }, .chances = 1, .steps = 1000, .seed = 9 };
	assert_int_equal(fo_spread_of(&s, &f, &in), FO_OK);
	int none = 0;
	for (int i = 0; i < s.steps; i++) {
		assert_true(fabs(s.step_s[i] - 1.5) < 1e-12 || fabs(s.step_s[i] - 2.5) < 1e-12);
		none += s.step_s[i] < 2;
	}
	assert_in_range(none, 365 - 61, 365 + 61);
	fo_spread_fini(&s);
	/* Nobody differs. */
	in = (struct fo_spread_in){ .steps = 2 };
	assert_int_equal(fo_spread_of(&s, &f, &in), FO_OK);
	assert_true(s.low == s.alike_s && s.high == s.alike_s);
	fo_spread_fini(&s);
	in = (struct fo_spread_in){ .slow = { { RANKS, 2, 1 } }, .slows = 1 };
	assert_int_equal(fo_spread_of(&s, &f, &in), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "no rank 64"));
	fo_err_clear();
	fo_fleet_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_slowest), cmocka_unit_test(test_slow_ranks) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
