/* The JSON writer: what it writes, a JSON reader reads back. */
#include "base/clock.h"
#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_layout(void **state)
{
	(void)state;
	struct fo_str s = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &s, false);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_array(&j, "list");
	fo_json_real(&j, NULL, 0.1);
	fo_json_bool(&j, NULL, true);
	fo_json_object(&j, NULL);
	fo_json_close(&j);
	fo_json_close(&j);
	fo_json_text(&j, "none", NULL);
	fo_json_raw(&j, "raw", "[1,2]");
	fo_json_close(&j);
	assert_string_equal(s.data, "{\"schema\":1,\"list\":[0.1,true,{}],\"none\":null,\"raw\":[1,2]}");
	fo_str_fini(&s);

	fo_json_begin(&j, &s, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "a", -5);
	fo_json_array(&j, "b");
	fo_json_int(&j, NULL, INT64_MIN);
	fo_json_close(&j);
	fo_json_close(&j);
	assert_string_equal(s.data, "{\n  \"a\": -5,\n  \"b\": [\n    -9223372036854775808\n  ]\n}\n");
	fo_str_fini(&s);
}

static void test_strings(void **state)
{
	(void)state;
	static const struct {
		const char *in;
		size_t len;
		const char *out;
	} cases[] = {
		{ "a\"b\\c", 5, "\"a\\\"b\\\\c\"" },
		{ "\n\t\x01\x7f", 4, "\"\\n\\t\\u0001\\u007f\"" },
		{ "a\0b", 3, "\"a\\u0000b\"" },
		{ "\xc3\xa4\xf0\x9f\x98\x80", 6, "\"\xc3\xa4\xf0\x9f\x98\x80\"" },
		{ "\xff|\xc3", 3, "\"\xef\xbf\xbd|\xef\xbf\xbd\"" },
		{ "\xc0\x80", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ "\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ "\xe2\x80\xa8\xef\xbb\xbf", 6, "\"\\u2028\\ufeff\"" },
		{ "\xc2\x9b", 2, "\"\\u009b\"" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct fo_str s = { 0 };
		fo_json_string(&s, cases[i].in, cases[i].len);
		assert_string_equal(s.data, cases[i].out);
		fo_str_fini(&s);
	}
}

static void test_any_bytes_are_readable(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 2000; seed++) {
		char bytes[64];
		for (size_t i = 0; i < sizeof bytes; i++)
			bytes[i] = (char)fo_rng_u64(seed, i);
		struct fo_str s = { 0 };
		fo_json_string(&s, bytes, sizeof bytes);
		json_error_t e;
		json_t *v = json_loadb(s.data, s.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
		assert_non_null(v);
		json_decref(v);
		fo_str_fini(&s);
	}
}

static void test_reals_read_back(void **state)
{
	(void)state;
	struct fo_str s = { 0 };
	struct fo_json j;
	for (uint64_t i = 0; i < 5000; i++) {
		union {
			uint64_t u;
			double d;
		} v = { .u = fo_rng_u64(7, i) };
		s.len = 0;
		fo_json_begin(&j, &s, false);
		fo_json_real(&j, NULL, v.d);
		if (isfinite(v.d))
			assert_true(strtod(s.data, NULL) == v.d);
		else
			assert_string_equal(s.data, "null");
	}
	static const struct {
		double v;
		const char *text;
	} cases[] = {
		{ 0.5434, "0.5434" },        { 1e21, "1e+21" },    { -0.0, "-0" },  { 3, "3" },
		{ 57.914e9, "57914000000" }, { INFINITY, "null" }, { NAN, "null" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		s.len = 0;
		fo_json_begin(&j, &s, false);
		fo_json_real(&j, NULL, cases[i].v);
		assert_string_equal(s.data, cases[i].text);
	}
	fo_str_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_any_bytes_are_readable),
		cmocka_unit_test(test_reals_read_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
