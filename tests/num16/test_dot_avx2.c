/* The products of bf16 pairs on machines without VDPBF16PS: the same source on dot.h's model, 16 lanes lowered to pairs
 * of 8. What this cannot see are the instruction itself and the few 512-bit intrinsics of vec.h; tests/num runs those
 * where they are. */
#pragma GCC diagnostic ignored "-Wpsabi" /* 64-byte vectors are passed between static functions of this file only */

#define FO_LANES 16
#define FO_NAME(x) x##_dot_model

#include "kernel/x86/dot_matmul.inc"

#include "check/engine/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct fo_kernel kernel = { .run = fo_matmul_dot_model,
					 .can = fo_matmul_can_dot_model,
					 .ws = fo_matmul_ws_dot_model };

static void check(int64_t m, int64_t n, int64_t k, int t, int dtype, int access, bool first)
{
	struct fo_num_case c;
	char why[512];

	fo_num_case_matmul(&c, m, n, k, t >> 1, t & 1, FO_BF16, dtype, access, first);
	if (!kernel.can(&c.call)) /* what it leaves to others it can all the same */
		assert_true(m <= DOT_FEW_ROWS && t == 1);
	if (!fo_num_check(&c, &kernel, NULL, why, sizeof why))
		fail_msg("%s", why);
}

static void check_once(int64_t m, int64_t n, int64_t k, int t, int dtype, bool first)
{
	struct fo_num_case c;
	char why[512];

	fo_num_case_matmul(&c, m, n, k, t >> 1, t & 1, FO_BF16, dtype, FO_ACC, first);
	if (!fo_num_check_once(&c, &kernel, 2, NULL, why, sizeof why))
		fail_msg("%s", why);
}

/* All transpositions, outputs and edges: less than a micro-tile, one, several and rests of each; even and odd k, whole
 * and partial cache lines of it. */
static void test_shapes(void **state)
{
	static const struct {
		int m, n, k;
	} shape[] = {
		{ 1, 1, 1 },   { 1, 1, 2 },     { 8, 48, 32 },  { 8, 48, 33 },  { 7, 47, 31 },   { 9, 49, 64 },
		{ 16, 96, 3 }, { 17, 50, 100 }, { 5, 130, 77 }, { 129, 3, 40 }, { 40, 60, 511 },
	};

	(void)state;
	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int t = 0; t < 4; t++)
			for (int dtype = FO_F32; dtype <= FO_BF16; dtype++)
				for (int store = 0; store < 2; store++)
					check(shape[s].m, shape[s].n, shape[s].k, t, dtype, FO_ACC, store);
	check(33, 50, 70, 1, FO_BF16, FO_DEF, true);
}

/* Depths of one block, of several, odd and even, in all transpositions. */
static void test_depths(void **state)
{
	static const int depth[] = { MM_KC - 1, MM_KC, MM_KC + 1, 2 * MM_KC + 2, 3 * MM_KC + 5 };

	(void)state;
	for (size_t s = 0; s < sizeof depth / sizeof *depth; s++)
		for (int t = 0; t < 4; t++) {
			check_once(30, 50, depth[s], t, FO_BF16, true);
			check_once(17, 100, depth[s], t, FO_F32, false);
		}
	check(35, 60, 2 * MM_KC + 1, 1, FO_BF16, FO_DEF, true);
	check(35, 60, 2 * MM_KC + 1, 2, FO_F32, FO_ACC, false);
}

/* More rows and columns than a task and a block hold: all loops turn over. */
static void test_blocks(void **state)
{
	(void)state;
	check_once(300, 2500, 40, 0, FO_F32, true);
	check_once(4200, 60, 33, 3, FO_BF16, false);
}

/* What belongs to other kernels: few rows, other types, scales. */
static void test_refuses(void **state)
{
	struct fo_num_case c;

	(void)state;
	fo_num_case_matmul(&c, 1, 50, 60, 0, 1, FO_BF16, FO_BF16, FO_DEF, true);
	assert_false(kernel.can(&c.call));
	fo_num_case_matmul(&c, 50, 50, 60, 0, 1, FO_F32, FO_F32, FO_DEF, true);
	assert_false(kernel.can(&c.call));
	fo_num_case_matmul(&c, 50, 50, 60, 0, 1, FO_BF16, FO_F32, FO_DEF, true);
	assert_true(kernel.can(&c.call));
	c.call.arg[1].dtype = FO_E4M3;
	assert_false(kernel.can(&c.call));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_depths),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_refuses),
	};

	return fo_isa_have(FO_ISA_AVX2) ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
