/* The choice of instruction set and kernel. */
#include "check/engine/num.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum fo_isa best(void)
{
	enum fo_isa isa;

	unsetenv("FLATOUT_ISA");
	assert_int_equal(fo_isa_choose(&isa), FO_OK);
	return isa;
}

static void test_choose(void **state)
{
	enum fo_isa chosen = best(), top = chosen, isa;

	(void)state;
	/* A set that gains nothing here is passed over, not missing. */
	while (top + 1 < FO_ISA_COUNT && fo_kernel_sets[top + 1] && fo_kernel_sets[top + 1]->have())
		top++;
	assert_true(top == chosen || !fo_kernel_sets[top]->worth());
	for (int i = 0; i < FO_ISA_COUNT; i++) {
		assert_true(fo_isa_have(i) == (i <= (int)top));
		setenv("FLATOUT_ISA", fo_isa_name[i], 1);
		isa = FO_ISA_COUNT;
		if (i <= (int)top) {
			assert_int_equal(fo_isa_choose(&isa), FO_OK);
			assert_int_equal(isa, i);
		} else {
			assert_int_equal(fo_isa_choose(&isa), FO_EUNSUPPORTED);
			assert_int_equal(isa, FO_ISA_COUNT);
			assert_non_null(strstr(fo_err_text(), fo_isa_name[i]));
			assert_non_null(strstr(fo_err_hint(), fo_isa_name[top]));
		}
	}
	setenv("FLATOUT_ISA", "avx1024", 1);
	assert_int_equal(fo_isa_choose(&isa), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "avx1024"));
	setenv("FLATOUT_ISA", "", 1);
	assert_int_equal(fo_isa_choose(&isa), FO_OK);
	assert_int_equal(isa, chosen);
	unsetenv("FLATOUT_ISA");
}

static void test_pick(void **state)
{
	const struct fo_kernel_set *set;
	struct fo_num_case c;

	(void)state;
	for (int isa = 0; isa <= (int)best(); isa++)
		for (int dtype = FO_F32; dtype <= FO_F64; dtype++) {
			const struct fo_kernel *k;

			fo_num_case_matmul(&c, 8, 8, 8, 0, 0, dtype, dtype, FO_DEF, true);
			k = fo_kernel_pick(isa, &c.call, &set);
			assert_non_null(k);
			assert_non_null(k->run);
			assert_true(k == &set->kernel[FO_OP_matmul]);
			assert_true((int)set->isa <= isa);
			assert_true(k == fo_kernel_pick(isa, &c.call, NULL));
			if (isa == FO_ISA_REF)
				assert_ptr_equal(set, &fo_kernels_ref);
		}
}

/* Sets of other machines: which of them gains, and what each has, is up to the test. */
static bool gains, takes;
static bool gain(void) { return gains; }
static bool take(const struct fo_call *shape)
{
	(void)shape;
	return takes;
}
static void nothing(const struct fo_call *c) { (void)c; }

static void test_passed_over(void **state)
{
	static const struct fo_kernel
		all[FO_OP_COUNT] = { [FO_OP_matmul] = { .run = nothing }, [FO_OP_add] = { .run = nothing } },
		some[FO_OP_COUNT] = { [FO_OP_matmul] = { .run = nothing, .can = take } }, none[FO_OP_COUNT];
	const struct fo_kernel_set ref = { .name = "ref", .isa = FO_ISA_REF, .kernel = all },
				   avx2 = { .name = "avx2", .isa = FO_ISA_AVX2, .kernel = all },
				   pairs = { .name = "avx512bf16",
					     .isa = FO_ISA_AVX512BF16,
					     .worth = gain,
					     .kernel = some },
				   amx = { .name = "amx", .isa = FO_ISA_AMX, .kernel = none };
	/* There is no avx512. */
	const struct fo_kernel_set *const sets[FO_ISA_COUNT] = {
		[FO_ISA_REF] = &ref, [FO_ISA_AVX2] = &avx2, [FO_ISA_AVX512BF16] = &pairs, [FO_ISA_AMX] = &amx
	};
	const struct fo_call product = { .kind = FO_OP_matmul }, sum = { .kind = FO_OP_add };
	const struct fo_kernel_set *set;

	(void)state;
	takes = true;
	for (int g = 0; g < 2; g++) {
		gains = g;
		/* Without a name. A set above it that gains is taken whatever it does. */
		assert_int_equal(fo_isa_best_of(sets, FO_ISA_AVX512BF16), g ? FO_ISA_AVX512BF16 : FO_ISA_AVX512);
		assert_int_equal(fo_isa_best_of(sets, FO_ISA_AMX), FO_ISA_AMX);
		assert_int_equal(fo_isa_best_of(sets, FO_ISA_AVX2), FO_ISA_AVX2);
		/* From above it is fallen to only where it gains; who asked for it by name gets it. */
		assert_ptr_equal(fo_kernel_pick_of(sets, FO_ISA_AMX, &product, &set),
				 g ? &some[FO_OP_matmul] : &all[FO_OP_matmul]);
		assert_ptr_equal(set, g ? &pairs : &avx2);
		assert_ptr_equal(fo_kernel_pick_of(sets, FO_ISA_AVX512BF16, &product, &set), &some[FO_OP_matmul]);
		assert_ptr_equal(set, &pairs);
		/* What it lacks falls further, through a set that is not there. */
		fo_kernel_pick_of(sets, FO_ISA_AVX512BF16, &sum, &set);
		assert_ptr_equal(set, &avx2);
		fo_kernel_pick_of(sets, FO_ISA_AVX512, &product, &set);
		assert_ptr_equal(set, &avx2);
		fo_kernel_pick_of(sets, FO_ISA_REF, &product, &set);
		assert_ptr_equal(set, &ref);
	}
	takes = false;
	fo_kernel_pick_of(sets, FO_ISA_AVX512BF16, &product, &set);
	assert_ptr_equal(set, &avx2);
	/* Nothing gains: plain C is left. */
	gains = false;
	const struct fo_kernel_set *const one[FO_ISA_COUNT] = { [FO_ISA_REF] = &ref, [FO_ISA_AVX2] = &pairs };
	assert_int_equal(fo_isa_best_of(one, FO_ISA_AVX2), FO_ISA_REF);
}

/* The choice is a matter of the processor alone. It was timed once: bits of bf16 runs then hung on what else the
 * machine did while a process began. */
static void test_maker(void **state)
{
	(void)state;
	assert_true(fo_isa_dots_gain("AuthenticAMD"));
	assert_false(fo_isa_dots_gain("GenuineIntel"));
	assert_false(fo_isa_dots_gain("HygonGenuine"));
	assert_false(fo_isa_dots_gain("            "));
#ifdef __x86_64__
	uint32_t leaf, name[3] = { 0 };
	__get_cpuid(0, &leaf, &name[0], &name[2], &name[1]);
	assert_int_equal(fo_kernels_avx512bf16.worth(),
			 fo_isa_have(FO_ISA_AVX512BF16) && fo_isa_dots_gain((const char *)name));
#endif
}

static void test_bf16(void **state)
{
	(void)state;
	assert_int_equal(fo_bf16_from_f32(1.0f), 0x3f80);
	assert_int_equal(fo_bf16_from_f32(1.0f + 0x1p-8f), 0x3f80); /* a tie goes to even */
	assert_int_equal(fo_bf16_from_f32(1.0f + 3 * 0x1p-8f), 0x3f82);
	assert_int_equal(fo_bf16_from_f32(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
	assert_int_equal(fo_bf16_from_f32(-__builtin_inff()), 0xff80);
	assert_int_equal(fo_bf16_from_f32(__FLT_MAX__), 0x7f80);
	assert_true(fo_bf16_to_f32(fo_bf16_from_f32(__builtin_nanf(""))) != 0);
	assert_true(__builtin_isnan(fo_bf16_to_f32(fo_bf16_from_f32(__builtin_nanf("0x1")))));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_choose), cmocka_unit_test(test_pick),
					    cmocka_unit_test(test_passed_over), cmocka_unit_test(test_maker),
					    cmocka_unit_test(test_bf16) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
