/* The self-check: no operation is left out, what did not run does not pass, and a step that is wrong is seen. */
#include "check/engine/verify_int.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whoever adds an operation adds cases for it: src/check/engine/num_cases.c. */
static void test_every_operation_has_a_case(void **state)
{
	static const int dtype[] = { FO_F32, FO_BF16, FO_F64 };
	const char *name[FO_OP_COUNT];
	(void)state;
	for (size_t t = 0; t < sizeof dtype / sizeof *dtype; t++) {
		int n = fo_verify_uncovered(dtype[t], name, FO_OP_COUNT);
		for (int i = 0; i < n; i++)
			print_message("no %s case for operation '%s'\n", fo_dtype_name[dtype[t]], name[i]);
		assert_int_equal(n, 0);
	}
}

static bool has(const struct fo_verify_report *r, const char *group, const char *name, enum fo_verify_result result)
{
	for (size_t i = 0; i < r->n; i++)
		if (!strcmp(r->check[i].group, group) && (!name || !strcmp(r->check[i].name, name)) &&
		    r->check[i].result == result)
			return true;
	return false;
}

static void test_passes_here(void **state)
{
	const struct fo_verify_options o = { .brief = true, .threads = 2 };
	struct fo_verify_report r;
	(void)state;
	must(fo_verify(&o, &r));
	int count[FO_VERIFY_RESULTS] = { 0 };
	for (size_t i = 0; i < r.n; i++) {
		const struct fo_verify_check *c = &r.check[i];
		if (c->result == FO_VERIFY_FAIL)
			print_message("%s, %s: %g of %g: %s\n", c->group, c->name, c->error, c->bound,
				      c->detail ? c->detail : "");
		count[c->result]++;
		/* A measured pass lies within its bound; something was measured. */
		if (c->result == FO_VERIFY_PASS && !isnan(c->bound))
			/* Twice the error of a cast to E5M2, whose two bits leave 2^-3. */
			assert_true(c->error >= 0 && c->error <= c->bound &&
				    c->bound < (strstr(c->name, "fp8_cast") ? 0.26 : 0.1));
	}
	assert_memory_equal(count, r.count, sizeof count);
	assert_int_equal(r.count[FO_VERIFY_FAIL], 0);
	for (int isa = 0; isa < FO_ISA_COUNT; isa++) {
		enum fo_isa best;
		char group[64];
		must(fo_isa_choose(&best));
		snprintf(group, sizeof group, "kernels %s", fo_isa_name[isa]);
		assert_true(has(&r, group, "all", FO_VERIFY_NOT_CHECKED) == (isa != (int)best));
		snprintf(group, sizeof group, "step %s bf16", fo_isa_name[isa]);
		assert_true(has(&r, group, "losses of 3 optimizer steps", FO_VERIFY_PASS) == (isa == (int)best));
		assert_true(has(&r, group, "gradient of model.norm.weight", FO_VERIFY_PASS) == (isa == (int)best));
	}
	assert_true(has(&r, "checkpoint", "one byte of each file changed", FO_VERIFY_PASS));
	fo_verify_fini(&r);
}

static void test_no_folder_is_not_checked(void **state)
{
	const struct fo_verify_options o = { .brief = true, .threads = 1 };
	struct fo_verify_report r = { 0 };
	struct fo_verify_run v = { .o = &o, .r = &r };
	(void)state;
	must(fo_isa_choose(&v.isa));
	setenv("TMPDIR", "/proc/no-such-folder", 1);
	fo_verify_checkpoint(&v);
	unsetenv("TMPDIR");
	assert_int_equal(r.n, 1);
	assert_int_equal(r.check[0].result, FO_VERIFY_NOT_CHECKED);
	assert_non_null(strstr(r.check[0].detail, "no-such-folder"));
	fo_verify_fini(&r);
}

static void test_not_a_number_fails(void **state)
{
	const struct fo_verify_options o = { 0 };
	struct fo_verify_report r = { 0 };
	struct fo_verify_run v = { .o = &o, .r = &r };
	(void)state;
	fo_verify_measured(&v, "g", "nan", "x", NAN, 1, NULL);
	fo_verify_measured(&v, "g", "no bound", "x", 0, NAN, NULL);
	fo_verify_measured(&v, "g", "above", "x", 2, 1, NULL);
	fo_verify_measured(&v, "g", "at", "x", 1, 1, NULL);
	assert_int_equal(r.count[FO_VERIFY_FAIL], 3);
	assert_int_equal(r.count[FO_VERIFY_PASS], 1);
	fo_verify_fini(&r);
}

/* The stored step is sharp: each of these small mistakes moves what is compared by more than any bound allows. */
static void test_mistakes_show(void **state)
{
	double loss[3], norm[3], l[3], n[3];
	struct fo_verify_rig g;
	int32_t shifted[24 * 4];
	(void)state;
	must(fo_verify_rig_init(&g, FO_PRECISION_F32, &(struct fo_exec_options){ .isa = FO_ISA_REF, .threads = 1 },
				NULL));
	must(fo_verify_rig_steps(&g, 1, 3, loss, norm));
	fo_verify_rig_fini(&g);
	for (int mistake = 0; mistake < 4; mistake++) {
		must(fo_verify_rig_init(&g, FO_PRECISION_F32,
					&(struct fo_exec_options){ .isa = FO_ISA_REF, .threads = 1 }, NULL));
		int first = 1;
		if (mistake == 0)
			first = 2; /* bias correction of the wrong step */
		else if (mistake == 1)
			g.ports.hyper[FO_HYPER_DECAY] = 0;
		else if (mistake == 2)
			g.ports.hyper[FO_HYPER_CLIP] = 0;
		else {
			for (int i = 0; i < 24 * 4; i++)
				shifted[i] = g.batch.position[i] + (i % 24 > 12); /* rotary angles of half a row */
			g.batch.position = shifted;
		}
		must(fo_verify_rig_steps(&g, first, 3, l, n));
		fo_verify_rig_fini(&g);
		double off = fmax(fabs(l[2] - loss[2]), fabs(n[2] - norm[2])) / loss[2];
		if (!(off > 1e-5))
			fail_msg("mistake %d moves loss and norm of the third step by %g only", mistake, off);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_operation_has_a_case),
		cmocka_unit_test(test_passes_here),
		cmocka_unit_test(test_no_folder_is_not_checked),
		cmocka_unit_test(test_not_a_number_fails),
		cmocka_unit_test(test_mistakes_show),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
