/* The 16-lane kernels on machines without AVX-512: the same sources, lowered by the compiler to pairs of 8-lane
 * vectors, held to the contract like every set. What this cannot see are the few 512-bit intrinsics of vec.h and
 * optimizer.inc. */
#pragma GCC diagnostic ignored "-Wpsabi" /* 64-byte vectors are passed between static functions of this file only */

#define FO_LANES 16
#define FO_NAME(x) x##_wide
#define FO_SET_ISA FO_ISA_AVX2
#define FO_SET_TEXT "wide"

#include "kernel/x86/vector_set.inc"

#include "check/engine/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { CASES = 1024 };

static void check(const struct fo_num_case *c)
{
	const struct fo_kernel *k = &fo_kernels_wide.kernel[c->call.kind];
	char why[512];

	if (k->run && k->can(&c->call) && !fo_num_check(c, k, NULL, why, sizeof why))
		fail_msg("16 lanes: %s", why);
}

static void check_dtype(int dtype)
{
	struct fo_num_case *list = calloc(CASES, sizeof *list);
	size_t n = fo_num_case_list(dtype, list, CASES);

	assert_non_null(list);
	assert_true(n > 0 && n <= CASES);
	for (size_t i = 0; i < n; i++)
		check(&list[i]);
	free(list);
}

static void test_f32(void **state)
{
	(void)state;
	check_dtype(FO_F32);
}
static void test_bf16(void **state)
{
	(void)state;
	check_dtype(FO_BF16);
}

/* Whole and partial micro-tiles, several depth blocks, all transpositions, all dtypes. */
static void test_products(void **state)
{
	static const int size[][3] = { { 14, 32, 8 }, { 15, 33, 9 }, { 1, 1, 1 }, { 29, 70, 300 }, { 100, 64, 600 } };

	(void)state;
	for (size_t s = 0; s < sizeof size / sizeof *size; s++)
		for (int mask = 0; mask < 32; mask++) {
			struct fo_num_case c;

			fo_num_case_matmul(&c, size[s][0], size[s][1], size[s][2], mask & 1, mask >> 1 & 1,
					   mask >> 2 & 1 ? FO_BF16 : FO_F32, mask >> 3 & 1 ? FO_BF16 : FO_F32,
					   mask >> 4 & 1 ? FO_ACC : FO_DEF, false);
			check(&c);
		}
}

/* So many columns that their blocks, rounded up to whole panels, leave one panel for the last, and so few rows that
 * threads share a block: it has fewer panels than parts. Blocks are 1024 columns where a bf16 result needs several of
 * depth and L3 is 8 MiB or more. */
static void test_last_block(void **state)
{
	struct fo_num_case c;
	char why[512];

	(void)state;
	fo_num_case_matmul(&c, 5, 31745, MM_KC + 1, 0, 1, FO_BF16, FO_BF16, FO_DEF, true);
	if (!fo_num_check_once(&c, &fo_kernels_wide.kernel[FO_OP_matmul], 2, NULL, why, sizeof why))
		fail_msg("16 lanes: %s", why);
}

/* What a kernel must refuse, the reference set takes. */
static void test_doubles_are_refused(void **state)
{
	struct fo_num_case *list = calloc(CASES, sizeof *list);
	size_t n = fo_num_case_list(FO_F64, list, CASES);

	(void)state;
	assert_non_null(list);
	for (size_t i = 0; i < n; i++) {
		const struct fo_kernel *k = &fo_kernels_wide.kernel[list[i].call.kind];

		assert_true(!k->run || !k->can(&list[i].call));
	}
	free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_f32),
		cmocka_unit_test(test_bf16),
		cmocka_unit_test(test_products),
		cmocka_unit_test(test_last_block),
		cmocka_unit_test(test_doubles_are_refused),
	};

	return fo_isa_have(FO_ISA_AVX2) ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
