/* Every operation that has a CUDA kernel, against double precision: the contract of kernel.h, as tests/num holds the processor's
 * kernels to it. */
#include "support/cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CASES = 512 };

static struct fo_cuda *cuda;

static void check_dtype(int dtype)
{
	struct fo_num_case *list = calloc(CASES, sizeof *list);
	size_t n = fo_num_case_list(dtype, list, CASES);
	int checked = 0;

	assert_non_null(list);
	assert_true(n <= CASES);
	for (size_t i = 0; i < n; i++) {
		char why[512];

		if (fo_test_cuda_cannot(&list[i]))
			continue;
		checked++;
		if (!fo_num_check(&list[i], &fo_test_cuda_kernel, NULL, why, sizeof why))
			fail_msg("%s", why);
	}
	print_message("%d of %zu cases checked\n", checked, n);
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_f32), cmocka_unit_test(test_bf16) };
	int status;

	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	fo_test_cuda_use(cuda);
	for (int kind = 0; kind < FO_OP_COUNT; kind++)
		if (!fo_cuda_kernel_of(kind) && fo_op_info(kind)->cls != FO_CLASS_HOST)
			printf("no CUDA kernel: %s\n", fo_op_info(kind)->name);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_cuda_close(cuda);
	return failed;
}
