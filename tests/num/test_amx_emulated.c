/* The AMX products on a software model of the tile instructions: the same source, right on machines without AMX too. */
#ifdef __x86_64__
/* 64-byte vectors without AVX-512: their calling convention would differ, but every function that takes one is inlined.
 */
#pragma GCC diagnostic ignored "-Wpsabi"
#define FO_LANES 16
#define FO_NAME(x) x##_emulated
#include "amx_model.h"
#include "kernel/x86/amx_matmul.inc"
#endif

#include "check/engine/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#ifdef __x86_64__

static const struct fo_kernel kernel = { .run = fo_matmul_emulated,
					 .can = fo_matmul_can_emulated,
					 .ws = fo_matmul_ws_emulated };

static void check(int64_t m, int64_t n, int64_t k, int ta, int tb, int dtype, int access, bool first)
{
	struct fo_num_case c;
	char why[512];

	fo_num_case_matmul(&c, m, n, k, ta, tb, FO_BF16, dtype, access, first);
	assert_true(kernel.can(&c.call) ||
		    (m <= FEW_ROWS && !ta && tb)); /* what it leaves to others it can all the same */
	if (!fo_num_check(&c, &kernel, NULL, why, sizeof why))
		fail_msg("%s", why);
}

/* One run with two threads. */
static void check_once(int64_t m, int64_t n, int64_t k, int ta, int tb, int dtype, bool first)
{
	struct fo_num_case c;
	char why[512];

	fo_num_case_matmul(&c, m, n, k, ta, tb, FO_BF16, dtype, FO_ACC, first);
	if (!fo_num_check_once(&c, &kernel, 2, NULL, why, sizeof why))
		fail_msg("%s", why);
}

/* All transpositions, outputs and edges: less than a tile, one tile, a block, several blocks and rests of each. */
static void test_shapes(void **state)
{
	static const struct {
		int m, n, k;
	} shape[] = {
		{ 1, 1, 1 },    { 16, 16, 32 },  { 17, 15, 33 }, { 32, 32, 64 },
		{ 33, 47, 31 }, { 70, 95, 100 }, { 5, 130, 77 }, { 129, 3, 40 },
	};

	(void)state;
	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int t = 0; t < 4; t++)
			for (int dtype = FO_F32; dtype <= FO_BF16; dtype++)
				for (int store = 0; store < 2; store++)
					check(shape[s].m, shape[s].n, shape[s].k, t >> 1, t & 1, dtype, FO_ACC, store);
}

/* Depths around the resident part of a (512) and around the slices of 1024, in the three forms of training. */
static void test_depths(void **state)
{
	static const int depth[] = { 511, 545, 1500, 2047, 2048, 3100 };

	(void)state;
	for (size_t s = 0; s < sizeof depth / sizeof *depth; s++) {
		check_once(40, 50, depth[s], 0, 1, FO_BF16, true);
		check_once(33, 64, depth[s], 0, 0, FO_F32, false);
		check_once(64, 35, depth[s], 1, 0, FO_F32, true);
	}
	check(35, 40, 2100, 0, 1, FO_BF16, FO_DEF, true);
}

/* More panels than one set and one chunk hold while k is cut: all loops turn over. */
static void test_sets_and_chunks(void **state)
{
	struct plan p = plan_blocks(550, 450, 2048);

	(void)state;
	assert_int_equal(p.slices, 2);
	assert_true(p.m > p.chunk && p.n > p.most);
	check_once(550, 450, 2048, 0, 1, FO_BF16, true);
}

/* Every choice fits its bounds: slices cover k, sets fit L2, the grid uses the threads that there is work for. */
static void test_plan(void **state)
{
	static const int size[] = { 1, 31, 32, 33, 768, 1000, 2048, 4096, 8192, 32000, 128256 };
	enum { SIZES = sizeof size / sizeof *size };

	(void)state;
	for (int i = 0; i < SIZES * SIZES * SIZES; i++) {
		struct plan p = plan_blocks(size[i % SIZES], size[i / SIZES % SIZES], size[i / SIZES / SIZES]);

		assert_true(p.slices >= 1 && p.slice_steps >= 1 && p.slice_steps < 2 * SLICE_STEPS && p.chunk >= 1);
		assert_true((p.slices - 1) * p.slice_steps < p.steps && p.steps <= p.slices * p.slice_steps);
		assert_true(p.most >= 1 && p.most * p.slice_steps * STEP_BYTES <= SET_BYTES);
		for (int threads = 1; threads <= 64; threads = threads * 2 + threads % 3) {
			struct grid g = plan_grid(&p, threads);
			double ideal = (double)p.m * (double)p.n / threads,
			       slowest = (double)(fo_ceil_div(p.m, g.rows) * fo_ceil_div(p.n, g.cols));

			assert_true(g.rows >= 1 && g.cols >= 1 && g.rows * g.cols <= threads);
			assert_true(slowest >= ideal && (threads > 1 || slowest == ideal));
		}
	}
}

/* The model itself: one product against the definition, in numbers that leave no rounding. */
static void test_model(void **state)
{
	uint16_t a[16][32], b[16][32];
	float c[16][16];

	(void)state;
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 32; j++) {
			a[i][j] = fo_bf16_from_f32((float)((i * 7 + j * 3) % 11 - 5));
			b[i][j] = fo_bf16_from_f32((float)((i * 5 + j) % 9 - 4));
		}
	tile_configure();
	TILE_ZERO(0);
	TILE_LOAD(4, a, 64);
	TILE_LOAD(6, b, 64);
	TILE_DOT(0, 4, 6);
	TILE_DOT(0, 4, 6);
	TILE_STORE(0, c, 64);
	tile_release();
	for (int m = 0; m < 16; m++)
		for (int n = 0; n < 16; n++) {
			float want = 0;

			for (int k = 0; k < 32; k++)
				want += fo_bf16_to_f32(a[m][k]) * fo_bf16_to_f32(b[k / 2][2 * n + k % 2]);
			assert_true(c[m][n] == 2 * want);
		}
}

static void test_peak_burst(void **state)
{
	(void)state;
	assert_true(amx_peak_burst(3) == 3 * 4 * 2.0 * 16 * 16 * 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),           cmocka_unit_test(test_plan),
		cmocka_unit_test(test_shapes),          cmocka_unit_test(test_depths),
		cmocka_unit_test(test_sets_and_chunks), cmocka_unit_test(test_peak_burst),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	print_message("not checked: the AMX sources are for x86-64\n");
	return 77;
}

#endif
