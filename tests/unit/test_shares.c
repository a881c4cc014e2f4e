/* Shares of a run's FLOP by data type: what is read, what is refused, the peak that they weight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hw/shares.h"
#include "support/must.h"

static void test_read(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		double fp4, fp8, bf16, fp16;
		const char *words;
	} good[] = {
		{ "fp8=0.7", 0, 0.7, 0.3, 0, "70 % fp8, 30 % bf16" },
		{ "fp8=70%,bf16=30%", 0, 0.7, 0.3, 0, "70 % fp8, 30 % bf16" },
		{ "bf16=.3,FP8=.7", 0, 0.7, 0.3, 0, "70 % fp8, 30 % bf16" },
		{ "bf16=1", 0, 0, 1, 0, "100 % bf16" },
		{ "fp4=0.5,fp8=0.2", 0.5, 0.2, 0.3, 0, "50 % fp4, 20 % fp8, 30 % bf16" },
		{ "fp8=0.667,fp16=0.333", 0, 0.667, 0, 0.333, "66.7 % fp8, 33.3 % fp16" },
		{ "fp8=0.3333,bf16=0.6666", 0, 0.3333 / 0.9999, 0.6666 / 0.9999, 0, "33.3 % fp8, 66.7 % bf16" },
	};
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		struct fo_shares s;
		char words[96];
		must(fo_shares_parse(good[i].text, &s));
		double sum = 0;
		for (int p = 0; p < FO_PREC_COUNT; p++)
			sum += s.of[p];
		assert_true(s.given && fabs(sum - 1) < 1e-12);
		assert_true(fabs(s.of[FO_PREC_FP4] - good[i].fp4) < 1e-12 &&
			    fabs(s.of[FO_PREC_FP8] - good[i].fp8) < 1e-12);
		assert_true(fabs(s.of[FO_PREC_BF16] - good[i].bf16) < 1e-12);
		assert_true(fabs(s.of[FO_PREC_FP16] - good[i].fp16) < 1e-12);
		assert_string_equal(fo_shares_text(words, sizeof words, &s), good[i].words);
	}
	struct fo_shares none;
	must(fo_shares_parse(NULL, &none));
	assert_false(none.given);
	must(fo_shares_parse("", &none));
	assert_false(none.given);
}

static void test_refused(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "fp8", "expected TYPE=SHARE" },
		{ "fp8=", "expected TYPE=SHARE" },
		{ "=0.5", "unknown precision ''" },
		{ "fp8=0", "expected TYPE=SHARE" },
		{ "fp8=-0.5", "expected TYPE=SHARE" },
		{ "fp8=1.5", "expected TYPE=SHARE" },
		{ "fp8=101%", "expected TYPE=SHARE" },
		{ "fp8=nan", "expected TYPE=SHARE" },
		{ "fp8=inf", "expected TYPE=SHARE" },
		{ "fp8=0x1p-1", "expected TYPE=SHARE" },
		{ "fp8=0.5 ", "expected TYPE=SHARE" },
		{ "fp8=0.5,", "expected TYPE=SHARE" },
		{ ",", "expected TYPE=SHARE" },
		{ "fp8=0.5;bf16=0.5", "expected TYPE=SHARE" },
		{ "fp7=0.5", "unknown precision 'fp7'" },
		{ "fp8=0.2,fp8=0.3", "name fp8 twice" },
		{ "fp8=0.6,bf16=0.6", "sum to 1.2, expected at most 1" },
		{ "fp8=0.6,bf16=0.3", "sum to 0.9 and name bf16, expected 1" },
		{ "fp8=0.00000000000000000000000000000000000000000000000000000000000000000000000001", "expected TYPE" },
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct fo_shares s = { .given = true };
		assert_int_equal(fo_shares_parse(bad[i].text, &s), FO_EARG);
		assert_false(s.given);
		if (!strstr(fo_err_text(), bad[i].says))
			fail_msg("'%s': %s", bad[i].text, fo_err_text());
	}
}

/* Time at the peaks: a run of 1 EFLOP with these shares takes at least what its parts take one after the other. */
static void test_weighted(void **state)
{
	(void)state;
	struct fo_catalogue c;
	const struct fo_device *d;
	struct fo_shares s;
	struct fo_denominator of[FO_DENOMINATORS];
	double peak = -1;
	must(fo_catalogue_load(&c, NULL));
	must(fo_catalogue_find(&c, "b300", &d));
	must(fo_shares_parse("fp4=0.6,fp8=0.25", &s));
	must(fo_device_weighted_peak(d, &s, &peak));
	double seconds = 0.6e6 / 13500 + 0.25e6 / 4500 + 0.15e6 / 2250;
	assert_true(fabs(1e6 / peak / seconds - 1) < 1e-12);
	assert_int_equal(fo_device_denominators(d, FO_PREC_BF16, &s, of), 4);
	assert_string_equal(of[3].type, "weighted");
	assert_true(of[3].tflops == peak);
	/* Without shares: the type's own peak, bf16's where it differs, fp8's beside fp4's. */
	const struct fo_shares none = { 0 };
	static const struct {
		const char *device;
		enum fo_precision precision;
		const char *types;
	} known[] = {
		{ "b300", FO_PREC_BF16, "bf16" },        { "b300", FO_PREC_FP8, "bf16 fp8" },
		{ "b300", FO_PREC_FP4, "bf16 fp8 fp4" }, { "mi300x", FO_PREC_FP8, "bf16 fp8" },
		{ "h100", FO_PREC_FP16, "fp16" },        { "h100", FO_PREC_TF32, "tf32 bf16" },
		{ "v100", FO_PREC_FP16, "fp16" },        { "gb10", FO_PREC_FP4, "fp4" },
		{ "gaudi3", FO_PREC_FP8, "fp8" },        { "mi308x", FO_PREC_BF16, "" },
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		char types[64] = "";
		must(fo_catalogue_find(&c, known[i].device, &d));
		int n = fo_device_denominators(d, known[i].precision, &none, of);
		for (int k = 0; k < n; k++) {
			strcat(types, k ? " " : "");
			strcat(types, of[k].type);
		}
		assert_string_equal(types, known[i].types);
	}
	/* A type that the device does not have: refused, and no weighted peak among the denominators. */
	must(fo_catalogue_find(&c, "h100", &d));
	peak = -1;
	assert_int_equal(fo_device_weighted_peak(d, &s, &peak), FO_EARG);
	assert_true(peak == -1 && strstr(fo_err_text(), "no published dense peak for fp4"));
	fo_err_clear();
	assert_int_equal(fo_device_denominators(d, FO_PREC_BF16, &s, of), 2);
	fo_catalogue_fini(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_weighted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
