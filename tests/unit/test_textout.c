/* Text in pieces for a terminal: whole UTF-8 sequences only, controls visible. */
#include "cli/engine/textout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *bytes, size_t n, const char *want)
{
	/* Byte by byte, in twos, at once: the same text. */
	for (size_t step = 1; step <= n + 1; step++) {
		struct fo_textout t = { 0 };
		struct fo_str out = { 0 };
		fo_str_puts(&out, "");
		for (size_t i = 0; i < n; i += step)
			fo_textout_put(&t, bytes + i, n - i < step ? n - i : step, &out);
		fo_textout_end(&t, &out);
		assert_string_equal(out.data, want);
		fo_str_fini(&out);
	}
}

static void test_pieces(void **state)
{
	(void)state;
	check("", 0, "");
	check("plain\ttext\n", 11, "plain\ttext\n");
	check("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", 15,
	      "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
	check("\x1b[31m\r\x7f", 7, "\\x1b[31m\\x0d\\x7f");
	check("a\0b", 3, "a\\x00b");
	check("\xc3", 1, "\\xc3"); /* never completed */
	check("\xe2\x82", 2, "\\xe2\\x82");
	check("\xe2\x82z", 3, "\\xe2\\x82z"); /* completed by nothing */
	check("\x80\xff\xc0\xaf", 4, "\\x80\\xff\\xc0\\xaf");
}

/* What is whole is not held back, what is not whole is. */
static void test_no_delay(void **state)
{
	struct fo_textout t = { 0 };
	struct fo_str out = { 0 };
	(void)state;
	fo_textout_put(&t, "ab\xe2\x82", 4, &out);
	assert_string_equal(out.data, "ab");
	fo_textout_put(&t,
		       "\xac"
		       "c",
		       2, &out);
	assert_string_equal(out.data, "ab\xe2\x82\xac"
				      "c");
	fo_str_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_pieces), cmocka_unit_test(test_no_delay) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
