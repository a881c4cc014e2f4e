/* Errors, memory, strings, clock, random numbers and order statistics. */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_error_text(void **state)
{
	(void)state;
	fo_err_clear();
	assert_string_equal(fo_err_text(), "");
	assert_string_equal(fo_err_hint(), "");
	assert_int_equal(fo_fail(FO_EFORMAT, "got %d bytes, expected %d", 3, 4), FO_EFORMAT);
	assert_int_equal(fo_hint(FO_EFORMAT, "download it again"), FO_EFORMAT);
	assert_int_equal(fo_wrap(FO_EFORMAT, "cannot read '%s'", "x"), FO_EFORMAT);
	assert_string_equal(fo_err_text(), "cannot read 'x': got 3 bytes, expected 4");
	assert_string_equal(fo_err_hint(), "download it again");
	fo_fail(FO_EIO, "again: %s", fo_err_text()); /* the old text as an argument */
	assert_string_equal(fo_err_text(), "again: cannot read 'x': got 3 bytes, expected 4");
	assert_string_equal(fo_err_hint(), ""); /* a hint belongs to one failure */
}

static void test_error_bounds(void **state)
{
	(void)state;
	char longer[sizeof((struct fo_err *)0)->text + 100];
	memset(longer, 'y', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	fo_fail(FO_EBUG, "%s", longer);
	assert_int_equal(strlen(fo_err_text()), sizeof((struct fo_err *)0)->text - 1);
	fo_wrap(FO_EBUG, "outer");
	assert_int_equal(strlen(fo_err_text()), sizeof((struct fo_err *)0)->text - 1);
	assert_memory_equal(fo_err_text(), "outer: yyy", 10);
	fo_wrap(FO_EBUG, "%s", longer);
	assert_int_equal(strlen(fo_err_text()), sizeof((struct fo_err *)0)->text - 1);
	fo_hint(FO_EBUG, "%s", longer);
	assert_int_equal(strlen(fo_err_hint()), sizeof((struct fo_err *)0)->hint - 1);
}

static void *fail_in_thread(void *arg)
{
	fo_status st = fo_fail(FO_EDEVICE, "from the worker");
	fo_hint(st, "restart it");
	fo_err_save(arg, st);
	return NULL;
}

static void test_error_thread(void **state)
{
	(void)state;
	pthread_t t;
	struct fo_err e;
	fo_fail(FO_EIO, "mine");
	assert_int_equal(pthread_create(&t, NULL, fail_in_thread, &e), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_string_equal(fo_err_text(), "mine"); /* the text belongs to its thread until it is handed over */
	assert_int_equal(fo_err_raise(&e), FO_EDEVICE);
	assert_string_equal(fo_err_text(), "from the worker");
	assert_string_equal(fo_err_hint(), "restart it");
}

static void test_error_codes(void **state)
{
	(void)state;
	static const struct {
		fo_status st;
		int code;
	} want[] = {
		{ FO_OK, 0 },       { FO_EARG, 2 },         { FO_EFORMAT, 2 }, { FO_EIO, 3 },
		{ FO_ENOMEM, 3 },   { FO_EUNSUPPORTED, 3 }, { FO_EDEVICE, 3 }, { FO_ECOMM, 3 },
		{ FO_ENUMERIC, 1 }, { FO_EINTERRUPT, 130 }, { FO_EBUG, 4 },
	};
	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
		assert_int_equal(fo_status_exit_code(want[i].st), want[i].code);
		assert_true(strlen(fo_status_name(want[i].st)) > 0);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(fo_status_name(want[i].st), fo_status_name(want[j].st));
	}
}

static void test_arena(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	uint64_t before = fo_mem_count();
	/* sizes around the block size, each filled so that a sanitizer or the check below sees an overlap */
	static const size_t size[] = { 1, 15, 16, 17, 0, 16384, 16385, 100000, 3, 8000, 9000 };
	enum { N = sizeof size / sizeof size[0] };
	unsigned char *p[N];
	for (size_t i = 0; i < N; i++) {
		p[i] = fo_arena_alloc(&a, size[i]);
		assert_int_equal((uintptr_t)p[i] % 16, 0);
		for (size_t k = 0; k < size[i]; k++)
			assert_int_equal(p[i][k], 0);
		memset(p[i], (int)i + 1, size[i]);
	}
	for (size_t i = 0; i < N; i++)
		for (size_t k = 0; k < size[i]; k++)
			assert_int_equal(p[i][k], i + 1);
	assert_true(fo_mem_count() > before && fo_mem_count() - before < N);
	assert_string_equal(fo_arena_printf(&a, "%s-%d", "x", 12), "x-12");
	assert_string_equal(fo_arena_strdup(&a, "copy"), "copy");
	fo_arena_fini(&a);
	assert_null(a.head);
	fo_arena_fini(&a);
}

static void test_pages(void **state)
{
	(void)state;
	void *p = NULL;
	uint64_t before = fo_mem_count();
	size_t bytes = (2 << 20) + 1;
	assert_int_equal(fo_pages_new(bytes, &p), FO_OK);
	assert_int_equal(fo_mem_count(), before + 1);
	assert_int_equal((uintptr_t)p % (2 << 20), 0);
	unsigned char *c = p;
	assert_int_equal(c[0] | c[bytes - 1], 0);
	c[0] = c[bytes - 1] = 1;
	fo_pages_free(p, bytes);
	void *untouched = &before;
	assert_int_equal(fo_pages_new(SIZE_MAX - 5, &untouched), FO_ENOMEM);
	assert_int_equal(fo_pages_new(SIZE_MAX / 4, &untouched), FO_ENOMEM);
	assert_ptr_equal(untouched, &before);
	fo_pages_free(NULL, 0);
}

static void test_sizes(void **state)
{
	(void)state;
	size_t n = 77;
	assert_int_equal(fo_mul_size(3, 5, &n), FO_OK);
	assert_int_equal(n, 15);
	assert_int_equal(fo_mul_size(SIZE_MAX / 2, 3, &n), FO_EFORMAT);
	assert_int_equal(n, 15); /* set only on success */
	int *v = NULL;
	size_t cap = 0;
	for (size_t i = 0; i < 1000; i++) {
		fo_array_room(&v, &cap, i, sizeof *v);
		assert_true(cap > i);
		v[i] = (int)i;
	}
	fo_array_room(&v, &cap, 100000, sizeof *v); /* a jump of more than twice */
	assert_true(cap > 100000);
	assert_int_equal(v[999], 999);
	free(v);
}

static void test_string(void **state)
{
	(void)state;
	struct fo_str s = { 0 };
	for (int i = 0; i < 100; i++)
		fo_str_printf(&s, "%02d,", i);
	assert_int_equal(s.len, 300);
	assert_memory_equal(s.data, "00,01,02,", 9);
	assert_string_equal(s.data + 297, "99,");
	fo_str_append(&s, "a\0b", 3);
	fo_str_puts(&s, "end");
	assert_int_equal(s.len, 306);
	assert_memory_equal(s.data + 300, "a\0bend", 7);
	fo_str_fini(&s);
	assert_null(s.data);
	fo_str_append(&s, "", 0);
	assert_string_equal(s.data, "");
	fo_str_fini(&s);
}

static void test_distance(void **state)
{
	(void)state;
	assert_int_equal(fo_str_distance("", ""), 0);
	assert_int_equal(fo_str_distance("", "abc"), 3);
	assert_int_equal(fo_str_distance("kitten", "sitting"), 3);
	assert_int_equal(fo_str_distance("h100", "H100"), 0);
	assert_int_equal(fo_str_distance("seq-len", "seq-lne"), 1);
	assert_int_equal(fo_str_distance("AB", "ba"), 1); /* a transposition in other letters is still one */
	assert_int_equal(fo_str_distance("flatout", "layout"), fo_str_distance("layout", "flatout"));
	char longer[1000];
	memset(longer, 'q', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	assert_true(fo_str_distance(longer, "q") > 10);
}

static void test_units(void **state)
{
	(void)state;
	char b[32];
	assert_string_equal(fo_str_si(b, 0, "tok"), "0 tok");
	assert_string_equal(fo_str_si(b, 999, ""), "999 ");
	assert_string_equal(fo_str_si(b, 1234, "FLOP"), "1.23 kFLOP");
	assert_string_equal(fo_str_si(b, 999600, ""), "1.00 M");
	assert_string_equal(fo_str_si(b, -57.914e9, ""), "-57.9 G");
	assert_string_equal(fo_str_si(b, 989.4e12, "FLOP/s"), "989 TFLOP/s");
	assert_string_equal(fo_str_bytes(b, 1023), "1023 B");
	assert_string_equal(fo_str_bytes(b, 1024), "1.00 KiB");
	assert_string_equal(fo_str_bytes(b, 4.5 * 1073741824), "4.50 GiB");
	fo_str_si(b, 1e300, "tokens per second and device"); /* cut, not overrun */
	assert_true(strlen(b) < sizeof b);
}

static void test_visible(void **state)
{
	(void)state;
	char b[64];
	assert_string_equal(fo_str_visible(b, sizeof b, "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
			    "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
	assert_string_equal(fo_str_visible(b, sizeof b, "\x1b[31m\n\x7f"), "\\x1b[31m\\x0a\\x7f");
	assert_string_equal(fo_str_visible(b, sizeof b, "\xc2\x9b"), "\\xc2\\x9b");          /* an 8-bit control */
	assert_string_equal(fo_str_visible(b, sizeof b, "\xc0\xaf\xff"), "\\xc0\\xaf\\xff"); /* overlong, impossible */
	assert_string_equal(fo_str_visible(b, sizeof b, "\xe2\x82"), "\\xe2\\x82");          /* ends in the middle */
	assert_string_equal(fo_str_visible(b, sizeof b, "\xed\xa0\x80"), "\\xed\\xa0\\x80"); /* half a surrogate pair */
	/* What reorders or hides its surroundings: right-to-left override, isolate, byte order mark, line separator. */
	assert_string_equal(fo_str_visible(b, sizeof b,
					   "a\xe2\x80\xae"
					   "b"),
			    "a\\xe2\\x80\\xae"
			    "b");
	assert_string_equal(fo_str_visible(b, sizeof b, "\xe2\x81\xa6"), "\\xe2\\x81\\xa6");
	assert_string_equal(fo_str_visible(b, sizeof b, "\xef\xbb\xbf"), "\\xef\\xbb\\xbf");
	assert_string_equal(fo_str_visible(b, sizeof b, "\xe2\x80\xa8"), "\\xe2\\x80\\xa8");
	char small[8];
	fo_str_visible(small, sizeof small, "\x01\x02\x03\x04");
	assert_string_equal(small, "\\x01");
	fo_str_visible(small, sizeof small, "1234567890");
	assert_string_equal(small, "1234567");
	fo_str_visible(small, sizeof small, "12345\xc3\xa9\xc3\xa9"); /* no character is cut in two */
	assert_string_equal(small, "12345\xc3\xa9");
}

static void test_xml(void **state)
{
	(void)state;
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "", "" },
		{ "plain \xc3\xa9\t\n", "plain \xc3\xa9\t\n" },
		{ "<script>alert('x')</script>", "&#60;script&#62;alert(&#39;x&#39;)&#60;/script&#62;" },
		{ "\" onload=\"x &amp;", "&#34; onload=&#34;x &#38;amp;" },
		{ "]]><!--", "]]&#62;&#60;!--" },
		{ "\x1b[0m\x07", "\xef\xbf\xbd[0m\xef\xbf\xbd" },
		{ "\xff\xc3", "\xef\xbf\xbd\xef\xbf\xbd" },
		{ "a\xe2\x80\xae"
		  "b",
		  "a\xef\xbf\xbd"
		  "b" },
		{ "\xef\xbf\xbe", "\xef\xbf\xbd" }, /* U+FFFE is not a character of XML */
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct fo_str s = { 0 };
		fo_str_xml(&s, cases[i].in);
		assert_string_equal(s.data, cases[i].out);
		fo_str_fini(&s);
	}
	for (uint64_t seed = 0; seed < 2000; seed++) {
		char bytes[65] = { 0 };
		for (size_t i = 0; i + 1 < sizeof bytes; i++)
			bytes[i] = (char)(fo_rng_u64(seed, i) % 255 + 1);
		struct fo_str s = { 0 };
		fo_str_xml(&s, bytes);
		uint32_t c;
		for (size_t i = 0, n; i < s.len; i += n) {
			n = fo_utf8_decode(s.data + i, s.len - i, &c);
			assert_true(n > 0 && (c >= 0x20 || c == '\t' || c == '\n'));
			assert_null(strchr("<>\"'", s.data[i]));
			assert_true(c != '&' || s.data[i + 1] == '#');
		}
		fo_str_fini(&s);
	}
}

static void test_clock(void **state)
{
	(void)state;
	char b[32];
	int64_t t = fo_now_ns();
	assert_true(t > 0);
	assert_true(fo_now_ns() >= t);
	fo_clock_utc(b);
	assert_int_equal(strlen(b), 20);
	assert_true(b[4] == '-' && b[10] == 'T' && b[19] == 'Z' && atoi(b) >= 2024);
}

static void test_random(void **state)
{
	(void)state;
	enum { N = 100000 };
	double sum = 0, squares = 0, uniform = 0, cross = 0;
	for (uint64_t i = 0; i < N; i++) {
		double x = fo_rng_normal(1, i), u = fo_rng_uniform(2, i);
		assert_true(u >= 0 && u < 1 && isfinite(x));
		sum += x;
		squares += x * x;
		uniform += u;
		cross += x * fo_rng_normal(3, i);
	}
	/* five standard errors: 1/sqrt(N), sqrt(2/N), sqrt(1/12/N), 1/sqrt(N) */
	assert_true(fabs(sum / N) < 5 / sqrt(N));
	assert_true(fabs(squares / N - 1) < 5 * sqrt(2.0 / N));
	assert_true(fabs(uniform / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
	assert_true(fabs(cross / N) < 5 / sqrt(N));
	assert_true(fo_rng_u64(1, 2) == fo_rng_u64(1, 2));
	assert_true(fo_rng_u64(1, 2) != fo_rng_u64(2, 1));
}

static void test_statistics(void **state)
{
	(void)state;
	double v[] = { 5, 1, 4, 2, 3 }, even[] = { 4, 1, 3, 2 }, one[] = { 7 };
	assert_true(fo_stats_median(v, 5) == 3);
	assert_true(v[0] == 5 && v[4] == 3); /* not disturbed */
	assert_true(fo_stats_median(even, 4) == 2.5);
	assert_true(isnan(fo_stats_median(NULL, 0)));
	assert_true(fo_stats_quantile(v, 5, 0) == 1 && fo_stats_quantile(v, 5, 1) == 5);
	assert_true(fabs(fo_stats_quantile(v, 5, 0.1) - 1.4) < 1e-12);
	assert_true(fo_stats_quantile(one, 1, 0.9) == 7);
	/* Selecting finds what sorting finds: all sizes, many and few different values. */
	for (size_t n = 1; n < 200; n++)
		for (uint64_t different = 1; different < 1000; different *= 3) {
			double x[200], y[200];
			for (size_t i = 0; i < n; i++)
				x[i] = y[i] = (double)(fo_rng_u64(different, n * 1000 + i) % different);
			struct fo_spread sorted = fo_stats_spread(x, n), selected = fo_stats_select_spread(y, n);
			assert_true(sorted.low == selected.low && sorted.median == selected.median &&
				    sorted.high == selected.high);
			for (double q = 0; q <= 1; q += 0.125)
				assert_true(fo_stats_select(y, n, q) == fo_stats_quantile(x, n, q));
		}
	assert_true(isnan(fo_stats_select(NULL, 0, 0.5)) && isnan(fo_stats_select_spread(NULL, 0).low));
}

static void test_shell_word(void **state)
{
	(void)state;
	static const char *const cases[][2] = { { "a/b-c_1.5,x:y+z@w%", "a/b-c_1.5,x:y+z@w%" },
						{ "", "''" },
						{ "two words", "'two words'" },
						{ "it's", "'it'\\''s'" },
						{ "$(x)`y`\\n", "'$(x)`y`\\n'" } };
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct fo_str s = { 0 };
		fo_str_shell(&s, cases[i][0]);
		assert_string_equal(s.data, cases[i][1]);
		fo_str_fini(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shell_word),   cmocka_unit_test(test_error_text),
		cmocka_unit_test(test_error_bounds), cmocka_unit_test(test_error_thread),
		cmocka_unit_test(test_error_codes),  cmocka_unit_test(test_arena),
		cmocka_unit_test(test_pages),        cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_string),       cmocka_unit_test(test_distance),
		cmocka_unit_test(test_units),        cmocka_unit_test(test_visible),
		cmocka_unit_test(test_xml),          cmocka_unit_test(test_clock),
		cmocka_unit_test(test_random),       cmocka_unit_test(test_statistics),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
