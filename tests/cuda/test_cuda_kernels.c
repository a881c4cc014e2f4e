/* Every operation that has a CUDA kernel, against double precision: the contract of kernel.h, as tests/num holds the
 * processor's kernels to it. */
#include "support/cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CASES = 1024 };

static struct fo_cuda *cuda;

static void check(const struct fo_num_case *c)
{
	char why[512];
	if (!fo_num_check_device(c, &fo_test_cuda_kernel, fo_num_cuda_same_bits, NULL, why, sizeof why))
		fail_msg("%s", why);
}

/* Every case of every operation; of those left out, one line for each reason. */
static void check_dtype(int dtype)
{
	struct fo_num_case *list = calloc(CASES, sizeof *list);
	size_t n = fo_num_case_list(dtype, list, CASES);
	const char *told = NULL;
	int checked = 0, told_kind = -1;

	assert_non_null(list);
	assert_true(n <= CASES);
	for (size_t i = 0; i < n; i++) {
		const char *cannot = fo_num_cuda_cannot(&list[i]);
		if (!cannot) {
			checked++;
			check(&list[i]);
		} else if (fo_cuda_kernel_of(list[i].call.kind) && (told != cannot || told_kind != list[i].call.kind)) {
			print_message("not on the device: %s: %s\n", list[i].name, cannot);
			told = cannot, told_kind = list[i].call.kind;
		}
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

/* Rows as wide as models have them, so that the paths for whole 16-byte accesses, several blocks and long sums run. */
static struct fo_num_case rows(int kind, int dtype, int64_t t, int64_t d, const char *modes, const char *shapes)
{
	struct fo_num_case c;
	fo_num_case_init(&c, kind);
	/* modes: r read, d defined, u updated, a accumulated (stored first); shapes: m (t,d), g (1,d), s (t,1) fp32, G
	 * (1,d) fp32 */
	for (int i = 0; modes[i]; i++) {
		int access = modes[i] == 'r'   ? FO_READ
			     : modes[i] == 'd' ? FO_DEF
			     : modes[i] == 'u' ? FO_UPDATE
					       : FO_ACC;
		int64_t r = shapes[i] == 'm' || shapes[i] == 's' ? t : 1, w = shapes[i] == 's' ? 1 : d;
		int type = shapes[i] == 's' || shapes[i] == 'G' ? FO_F32 : dtype;
		int fills = modes[i] == 'd' || modes[i] == 'a' ? FO_NUM_NAN
			    : shapes[i] == 's'                 ? FO_NUM_POSITIVE
							       : FO_NUM_NORMAL;
		fo_num_case_arg(&c, type, r, w, access, fills, 1, 0);
		if (modes[i] == 'a')
			c.call.first |= 1u << i;
	}
	c.call.attr.value = 1e-5;
	return c;
}

static void test_wide(void **state)
{
	static const struct {
		int kind;
		const char *modes, *shapes;
	} op[] = {
		{ FO_OP_add, "rrd", "mmm" },
		{ FO_OP_swiglu, "rrd", "mmm" },
		{ FO_OP_swiglu_bwd, "rrrdd", "mmmmm" },
		{ FO_OP_rmsnorm, "rrdd", "mgms" },
		{ FO_OP_rmsnorm_dx, "rrrrdr", "msgmmm" },
		{ FO_OP_rmsnorm_dg, "rrra", "msmG" },
		{ FO_OP_add_rmsnorm, "rrrddd", "mmgmms" },
		{ FO_OP_rmsnorm_bwd, "rrrrdar", "msgmmGm" },
		{ FO_OP_add_bias, "ur", "mg" },
		{ FO_OP_bias_grad, "ra", "mG" },
	};
	int checked = 0;
	(void)state;
	for (size_t i = 0; i < sizeof op / sizeof *op; i++)
		for (int dtype = FO_F32; dtype <= FO_BF16; dtype++) {
			static const struct {
				int rows, cols;
			} shape[] = { { 33, 4096 }, { 5, 14336 }, { 700, 64 } };
			for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
				struct fo_num_case c = rows(op[i].kind, dtype, shape[s].rows, shape[s].cols,
							    op[i].modes, op[i].shapes);
				if (fo_num_cuda_cannot(&c))
					continue;
				checked++;
				check(&c);
			}
		}
	print_message("%d cases checked\n", checked);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_f32), cmocka_unit_test(test_bf16),
					    cmocka_unit_test(test_wide) };
	int status;

	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	fo_num_cuda_use(cuda);
	for (int kind = 0; kind < FO_OP_COUNT; kind++)
		if (!fo_cuda_kernel_of(kind) && fo_op_has_kernel(kind))
			printf("no CUDA kernel: %s\n", fo_op_info(kind)->name);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_cuda_close(cuda);
	return failed;
}
