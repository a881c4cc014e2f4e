/* MFU in factors: clock, work per clock and what the rule counts; clock, tensor pipes and what is useful of them
 * (docs/metrics.md, "OFU"). */
#include "timeline/timeline.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct fo_mfu figures = {
	.mfu = 0.66, .hfu = 0.605, .mfu_causal = 0.59, .mfu_6n = 0.6, .mfu_document = 0.59
};

static struct fo_nvml_use use_of(double pipes, double active_hz, double hz, const char *why)
{
	struct fo_nvml_use u = { .sm_hz = hz, .active = { .seconds = 10, .sm_hz = active_hz } };
	for (int i = 0; i < FO_NVML_SHARES; i++)
		u.active.share[i] = NAN;
	u.active.share[FO_NVML_TENSOR] = pipes;
	strcpy(u.active.why, why);
	return u;
}
static bool near(double a, double b) { return fabs(a / b - 1) < 1e-12; }

static void says(const struct fo_mfu_split *s, const char *text)
{
	struct fo_str out = { 0 };
	fo_ofu_text(s, &out);
	assert_string_equal(out.data, text);
	fo_str_fini(&out);
}

/* The clock of the time in which pipes were measured is the one of all factors, whatever the whole run's was. */
static void test_known(void **state)
{
	struct fo_nvml_use u = use_of(0.8, 1.5e9, 1.2e9, "");
	struct fo_mfu_split s = fo_mfu_split_of(&figures, &u, 2e9, NULL);
	(void)state;
	assert_true(near(s.clock, 0.75) && s.hz == 1.5e9 && s.peak_hz == 2e9 && s.pipes == 0.8);
	assert_true(near(s.ofu, 0.6) && near(s.useful, 1.1));
	assert_true(near(s.clock * s.work * s.counted, figures.mfu) && near(s.clock * s.pipes * s.useful, figures.mfu));
	assert_string_equal(s.why, "");
	says(&s, "60.0 %: MFU = clock 75.0 % x tensor pipes active 80.0 % x 1.100 useful");
	const struct fo_mfu unknown = { NAN, NAN, NAN, NAN, NAN };
	s = fo_mfu_split_of(&unknown, &u, 2e9, NULL);
	assert_true(near(s.ofu, 0.6) && isnan(s.useful));
	says(&s, "60.0 %: MFU = clock 75.0 % x tensor pipes active 80.0 % x what is useful of it: MFU is not known");
}

/* A factor that was not measured is not made of others. */
static void test_not_measured(void **state)
{
	struct fo_nvml_use u = use_of(NAN, NAN, 1.2e9, "the counters sleep");
	struct fo_mfu_split s = fo_mfu_split_of(&figures, &u, 2e9, NULL);
	(void)state;
	assert_true(near(s.clock, 0.6) && near(s.clock * s.work * s.counted, figures.mfu) && isnan(s.ofu) &&
		    isnan(s.useful) && isnan(s.pipes));
	says(&s, "not measured: the counters sleep");
	u = use_of(0.8, NAN, 1.2e9, "");
	s = fo_mfu_split_of(&figures, &u, 2e9, NULL);
	assert_true(isnan(s.ofu) && s.pipes == 0.8);
	says(&s, "not measured: the device's clock is not readable");
	u = use_of(0.8, 1.5e9, 1.2e9, "");
	s = fo_mfu_split_of(&figures, &u, NAN, NULL);
	assert_true(isnan(s.ofu) && isnan(s.clock) && s.pipes == 0.8);
	says(&s, "not measured: the clock at which the device reaches its peak is not known");
	s = fo_mfu_split_of(&figures, &u, 2e9, "no pipes");
	assert_true(isnan(s.ofu) && isnan(s.useful) && near(s.clock, 0.75));
	says(&s, "not measured: no pipes");
	s.why[0] = 0; /* as read from an earlier version's log */
	says(&s, "not measured: the log does not tell it");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_known), cmocka_unit_test(test_not_measured) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
