/* The software multiprocessor itself: it computes what the language says, and it notices kernels that break its rules.
 */
#include "cuda/simt_cases.h"
#include "cuda/simt_int.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct fo_simt_kernel fo_simt_kernel_case_warp, fo_simt_kernel_case_grid_sum, fo_simt_kernel_case_fresh,
	fo_simt_kernel_case_race, fo_simt_kernel_case_order, fo_simt_kernel_case_broken;

enum { SEEDS = 20 };

static void launch(const struct fo_simt_kernel *k, int *out, int n, uint32_t blocks, uint32_t threads, uint32_t shared,
		   uint64_t seed)
{
	struct simt_args args = { out, n, (int32_t)shared };
	fo_simt_launch(k, &args, (uint32_t[]){ blocks, 1, 1 }, threads, shared, seed);
}

static void test_warp(void **state)
{
	static int out[3 * 96 * 8];
	(void)state;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		memset(out, 0, sizeof out);
		launch(&fo_simt_kernel_case_warp, out, 0, 3, 96, 0, seed);
		for (int g = 0; g < 3 * 96; g++) {
			const int i = g % 96, lane = i % 32, *o = &out[8 * g], base = i - lane;
			assert_int_equal(o[0], 32 * base + 31 * 16);
			assert_int_equal(o[1], lane < 3 ? i : i - 3);
			assert_int_equal(o[2], lane % 8 + 5 < 8 ? i + 5 : i);
			assert_int_equal(o[3], i / 16 * 16 + 7);
			assert_int_equal((unsigned)o[4], 0x49249249u);
			assert_int_equal(o[5], 1);
			assert_int_equal(o[6], i ^ 1);
			assert_int_equal(o[7], lane < 16 ? i ^ 1 : 16 * base + 16 * 16 + 15 * 8);
		}
	}
}

static void test_grid_sum(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		int out[38] = { 0 };
		launch(&fo_simt_kernel_case_grid_sum, out, 0, 37, 64, 64 * sizeof(int), seed);
		assert_int_equal(out[0], 37 * 64 * (37 * 64 - 1) / 2);
	}
}

/* Each block begins with memory that nobody has written. */
static void test_fresh(void **state)
{
	static int out[3 * 5 * 64];
	(void)state;
	launch(&fo_simt_kernel_case_fresh, out, 0, 5, 64, 64 * sizeof(int), 1);
	for (size_t i = 0; i < sizeof out / sizeof *out; i++)
		assert_int_equal(out[i], -1);
}

/* What only an order that nobody promised makes right is wrong for some seed. */
static void test_races(void **state)
{
	int wrong[3] = { 0 };
	(void)state;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		int out[64];
		for (int barrier = 0; barrier < 2; barrier++) {
			launch(&fo_simt_kernel_case_race, out, barrier, 1, 64, 0, seed);
			for (int i = 0; i < 64; i++)
				wrong[barrier] += out[i] != 63 - i;
		}
		memset(out, 0, sizeof out);
		launch(&fo_simt_kernel_case_order, out, 0, 8, 32, 0, seed);
		for (int i = 0; i < 8; i++)
			wrong[2] += out[i] != i;
	}
	assert_true(wrong[0] > 0 && wrong[1] == 0 && wrong[2] > 0);
}

/* A kernel that breaks the rules ends the process, and says where. */
static void test_broken(void **state)
{
	static const struct {
		int how;
		const char *says[3];
	} broken[] = {
		{ SIMT_SOME_END, { "threads that should meet do not", "thread 40 has ended", "__syncthreads" } },
		{ SIMT_ELSEWHERE, { "threads that should meet do not", "__syncthreads", "simt_cases.cu" } },
		{ SIMT_MASK, { "threads that should meet do not", "mask ffffffff", "mask ff00ffff" } },
		{ SIMT_NOT_NAMED, { "threads that should meet do not", "mask 0000ffff", "__shfl_xor_sync" } },
		{ SIMT_HALF_WARP, { "threads that should meet do not", "__syncwarp", "__syncthreads" } },
		{ SIMT_OVERRUN, { "wrote around its dynamic shared memory", "case_broken", "block 0,0,0" } },
		{ SIMT_MISALIGNED, { "not aligned to its size", "case_broken", "block 0,0,0, thread " } },
		{ SIMT_NOWHERE, { "an address where no memory is", "case_broken", "block 0,0,0, thread " } },
	};
	_Alignas(16) int out[64];
	(void)state;
	launch(&fo_simt_kernel_case_broken, out, SIMT_WELL, 1, 64, 128, 1);
	for (int i = 0; i < 64; i++)
		assert_int_equal(out[i], 1);
	for (size_t b = 0; b < sizeof broken / sizeof *broken; b++) {
		char text[4096];
		size_t have = 0;
		int status, fd[2];
		assert_int_equal(pipe(fd), 0);
		fflush(stdout);
		pid_t child = fork();
		if (!child) {
			static const int own[] = { SIGABRT, SIGILL, SIGSEGV };
			for (int i = 0; i < 3; i++)
				signal(own[i], SIG_DFL); /* not cmocka's handlers */
			dup2(fd[1], 2);
			launch(&fo_simt_kernel_case_broken, out, broken[b].how, 1, 64, 128, b);
			_exit(0);
		}
		close(fd[1]);
		for (ssize_t n; (n = read(fd[0], text + have, sizeof text - 1 - have)) > 0;)
			have += (size_t)n;
		text[have] = 0;
		close(fd[0]);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
		for (int i = 0; i < 3; i++)
			if (!strstr(text, broken[b].says[i]))
				fail_msg("broken kernel %d: '%s' does not say '%s'", broken[b].how, text,
					 broken[b].says[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_warp),  cmocka_unit_test(test_grid_sum), cmocka_unit_test(test_fresh),
		cmocka_unit_test(test_races), cmocka_unit_test(test_broken),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
