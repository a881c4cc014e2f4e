/* Every kernel of every set that this machine can run, against double precision: the contract of kernel.h. */
#include "check/engine/num.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CASES = 1024 };

static bool takes(const struct fo_kernel *k, const struct fo_num_case *c)
{
	return k->run && (!k->can || k->can(&c->call));
}

static void check_dtype(int dtype)
{
	struct fo_num_case *list = calloc(CASES, sizeof *list);
	size_t n = fo_num_case_list(dtype, list, CASES);

	assert_non_null(list);
	assert_true(n <= CASES);
	for (int s = 0; s < FO_ISA_COUNT && fo_kernel_sets[s]; s++) {
		int checked = 0;

		if (!fo_isa_have(fo_kernel_sets[s]->isa)) {
			print_message("not checked: %s not on this machine\n", fo_kernel_sets[s]->name);
			continue;
		}
		assert_true(fo_kernel_sets[s]->have());
		for (size_t i = 0; i < n; i++) {
			char why[512];

			if (!takes(&fo_kernel_sets[s]->kernel[list[i].call.kind], &list[i]))
				continue;
			checked++;
			if (!fo_num_check(&list[i], &fo_kernel_sets[s]->kernel[list[i].call.kind], NULL, why,
					  sizeof why))
				fail_msg("set %s: %s", fo_kernel_sets[s]->name, why);
		}
		print_message("%s: %d of %zu cases checked\n", fo_kernel_sets[s]->name, checked, n);
		assert_true(s > 0 || checked == (int)n); /* ref takes everything */
	}
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
static void test_f64(void **state)
{
	(void)state;
	check_dtype(FO_F64);
}

/* A refused step (scale -1): not a bit of moments, weights and master copies changes, in any set, whatever the gradient
 * holds. */
static void test_refused_step(void **state)
{
	(void)state;
	struct fo_num_case *list = calloc(CASES, sizeof *list);
	assert_non_null(list);
	for (int s = 0; s < FO_ISA_COUNT && fo_kernel_sets[s]; s++)
		for (int dtype = 0; dtype < 3 && fo_isa_have(fo_kernel_sets[s]->isa); dtype++) {
			size_t n = fo_num_case_list(dtype, list, CASES);
			for (size_t i = 0; i < n; i++) {
				enum fo_op_kind kind = (enum fo_op_kind)list[i].call.kind;
				const struct fo_kernel *k = &fo_kernel_sets[s]->kernel[kind];
				struct fo_num_data before, after;
				if (fo_op_info(kind)->base != FO_OP_adamw || !takes(k, &list[i]))
					continue;
				fo_num_data_new(&before, &list[i], i, i % 2);
				fo_num_set(&before.call.arg[fo_op_operand_of(kind, 0, 4)], 0, 0, -1);
				fo_num_set(&before.call.arg[fo_op_operand_of(kind, 0, 2)], 0, 0, NAN);
				fo_num_data_copy(&after, &before);
				assert_true(fo_num_run(k, &after, 2));
				for (int a = 0; a < list[i].call.n; a++)
					if (memcmp(before.block[a], after.block[a], before.bytes[a]))
						fail_msg("set %s: %s changed operand %d of a refused step",
							 fo_kernel_sets[s]->name, list[i].name, a);
				fo_num_data_free(&before);
				fo_num_data_free(&after);
			}
		}
	free(list);
}

/* Larger products, where faster sets split the depth or use more than one block, in the three forms of training. */
static void test_long_products(void **state)
{
	static const struct {
		int m, n, k, ta, tb, cc, access;
	} shape[] = {
		{ 70, 100, 4200, 0, 1, FO_BF16, FO_DEF },
		{ 300, 33, 520, 0, 0, FO_BF16, FO_DEF },
		{ 129, 260, 700, 1, 0, FO_F32, FO_ACC },
	};

	(void)state;
	for (int s = 1; s < FO_ISA_COUNT && fo_kernel_sets[s]; s++)
		for (size_t i = 0; i < sizeof shape / sizeof *shape && fo_isa_have(fo_kernel_sets[s]->isa); i++) {
			const struct fo_kernel *k = &fo_kernel_sets[s]->kernel[FO_OP_matmul];
			struct fo_num_case c;
			char why[512];

			fo_num_case_matmul(&c, shape[i].m, shape[i].n, shape[i].k, shape[i].ta, shape[i].tb, FO_BF16,
					   shape[i].cc, shape[i].access, false);
			if (takes(k, &c) && !fo_num_check(&c, k, NULL, why, sizeof why))
				fail_msg("set %s: %s", fo_kernel_sets[s]->name, why);
		}
}

static void test_null(void **state)
{
	struct fo_num_case *list = calloc(CASES, sizeof *list);
	size_t n = fo_num_case_list(FO_F32, list, CASES);

	(void)state;
	for (int kind = 0; kind < FO_OP_COUNT; kind++) {
		bool none = !fo_op_has_kernel(kind);

		assert_true(!fo_kernels_null.kernel[kind].run == none);
		assert_true(!fo_kernels_ref.kernel[kind].run == none);
	}
	for (size_t i = 0; i < n; i++) {
		struct fo_num_data before, after;

		fo_num_data_new(&before, &list[i], 1, false);
		fo_num_data_copy(&after, &before);
		assert_true(fo_num_run(&fo_kernels_null.kernel[list[i].call.kind], &after, 1));
		for (int a = 0; a < list[i].call.n; a++)
			assert_memory_equal(before.block[a], after.block[a], before.bytes[a]);
		fo_num_data_free(&before);
		fo_num_data_free(&after);
	}
	free(list);
}

/* The register-only loops report what they did: twice the iterations, twice the FLOP. */
static void test_peak_burst(void **state)
{
	(void)state;
	for (int s = 0; s < FO_ISA_COUNT && fo_kernel_sets[s]; s++)
		for (int dtype = FO_F32;
		     dtype <= FO_F64 && fo_isa_have(fo_kernel_sets[s]->isa) && fo_kernel_sets[s]->peak_burst; dtype++) {
			double flop = fo_kernel_sets[s]->peak_burst(dtype, 100);

			assert_true(flop >= 0);
			assert_true(fo_kernel_sets[s]->peak_burst(dtype, 200) == 2 * flop);
		}
}

/* The harness itself: it must notice each kind of broken kernel. */
enum broken { WRONG, BEYOND, INPUT, UNSTABLE, WORKSPACE, MISSING };
static enum broken how;

static void broken_run(const struct fo_call *c)
{
	static int turn;
	float *a = c->arg[0].data, *out = c->arg[2].data;

	if (how == MISSING)
		return;
	fo_kernels_ref.kernel[FO_OP_add].run(c);
	if (how == WRONG)
		out[0] *= 1.00001f;
	if (how == BEYOND)
		out[c->arg[2].cols] = 0;
	if (how == INPUT)
		a[1] = 0;
	if (how == UNSTABLE)
		((uint32_t *)(void *)out)[0] ^= (uint32_t)(turn++ & 1);
	if (how == WORKSPACE)
		((char *)c->ws)[c->ws_bytes] = 0;
}

static void test_harness_notices(void **state)
{
	static const char *const says[] = { "relative error", "was changed",        "was changed",
					    "different bits", "past its workspace", "relative error" };
	const struct fo_kernel broken = { .run = broken_run };
	struct fo_num_case c;
	char why[512];

	(void)state;
	fo_num_case_init(&c, FO_OP_add);
	for (int i = 0; i < 3; i++)
		fo_num_case_arg(&c, FO_F32, 5, 7, i == 2 ? FO_DEF : FO_READ, i == 2 ? FO_NUM_NAN : FO_NUM_NORMAL, 1, 0);
	for (how = WRONG; how <= MISSING; how++) {
		why[0] = 0;
		assert_false(fo_num_check(&c, &broken, NULL, why, sizeof why));
		if (!strstr(why, says[how]))
			fail_msg("broken kernel %d: '%s' does not say '%s'", how, why, says[how]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_harness_notices),
		cmocka_unit_test(test_f32),
		cmocka_unit_test(test_bf16),
		cmocka_unit_test(test_f64),
		cmocka_unit_test(test_refused_step),
		cmocka_unit_test(test_long_products),
		cmocka_unit_test(test_null),
		cmocka_unit_test(test_peak_burst),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
