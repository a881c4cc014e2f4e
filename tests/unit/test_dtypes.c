/* Spellings of element types, and shapes as profilers write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "trace/shapes.h"

static void test_spellings(void **state)
{
	(void)state;
	static const char *const pair[][2] = {
		{ "c10::BFloat16", "bf16" },
		{ "bfloat16", "bf16" },
		{ "torch.bfloat16", "bf16" },
		{ "BF16", "bf16" },
		{ "__nv_bfloat16", "bf16" },
		{ "cutlass::bfloat16_t", "bf16" },
		{ "c10::Half", "fp16" },
		{ "half", "fp16" },
		{ "torch.float16", "fp16" },
		{ "__half", "fp16" },
		{ "float", "fp32" },
		{ "Float32", "fp32" },
		{ "torch.float32", "fp32" },
		{ "double", "fp64" },
		{ "torch.float64", "fp64" },
		{ "c10::Float8_e4m3fn", "fp8" },
		{ "torch.float8_e5m2", "fp8" },
		{ "__nv_fp8_e4m3", "fp8" },
		{ "Float4_e2m1fn_x2", "fp4" },
		{ "long int", "int64" },
		{ "long", "int64" },
		{ "int", "int32" },
		{ "unsigned char", "int8" },
		{ "bool", "bool" },
		{ " float ", "fp32" },
		{ "", "" },
		{ "Scalar", "" },
		{ "GenericList", "" },
		{ "float17", "" },
		{ "unfloat", "" },
		{ "std::vector", "" },
		{ "c10::", "" },
	};
	for (size_t i = 0; i < sizeof(pair) / sizeof(pair[0]); i++) {
		const char *got = fo_dtype_of(pair[i][0], strlen(pair[i][0]));
		if (strcmp(got, pair[i][1]) != 0)
			fail_msg("'%s' is '%s', expected '%s'", pair[i][0], got, pair[i][1]);
	}
}

static void test_arguments(void **state)
{
	(void)state;
	const char *types = "[\"c10::BFloat16\", \"\", 'bfloat16', \"Scalar\", [\"float\", \"double\"], \"float\"]";
	static const char *const expected[] = { "bf16", "", "bf16", "", "", "fp32", "", "" };
	for (int i = 0; i < 8; i++)
		assert_string_equal(fo_dtype_of_arg(types, i), expected[i]);
	assert_string_equal(fo_dtype_of_arg("", 0), "");
	assert_string_equal(fo_dtype_of_arg("[", 0), "");
	assert_string_equal(fo_dtype_of_arg("[]", 0), "");
	assert_string_equal(fo_dtype_of_arg("[\"float\"", 0), "");
	assert_string_equal(fo_dtype_of_arg("]]][[", 3), "");
	assert_true(fo_dtype_bytes_of("bf16") == 2 && fo_dtype_bytes_of("fp4") == 0.5 && fo_dtype_bytes_of("") == 0);
}

static void test_shapes(void **state)
{
	(void)state;
	struct fo_shapes s;
	assert_true(fo_shapes_parse(&s, "[[4, 8, 16], [], [[1, 2], [3]], [7]]"));
	assert_int_equal(s.n, 4);
	assert_int_equal(s.rank[0], 3);
	assert_int_equal(s.rank[2], 0);
	assert_true(fo_shapes_elements(&s, 0) == 512 && fo_shapes_elements(&s, 1) == 0 &&
		    fo_shapes_elements(&s, 9) == 0);
	assert_int_equal(fo_shapes_last(&s, 0, 1), 16);
	assert_int_equal(fo_shapes_last(&s, 0, 4), 0);
	assert_false(fo_shapes_parse(&s, "[[4"));
	assert_false(fo_shapes_parse(&s, "]"));
	assert_false(fo_shapes_parse(&s, ""));
	assert_true(fo_shapes_parse(&s, "[[99999999999999999999]]"));
	assert_true(fo_shapes_elements(&s, 0) == (double)(INT64_C(1) << 40));
	assert_true(fo_shapes_parse(&s, "[[1,2,3,4,5,6,7,8,9,10],[],[],[],[],[],[],[],[],[]]"));
	assert_int_equal(s.n, FO_SHAPE_ARGS);
	assert_int_equal(s.rank[0], FO_SHAPE_DIMS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_shapes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
