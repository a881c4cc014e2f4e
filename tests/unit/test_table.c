/* Tables and lines of the command line: padding, wrapping, nothing that upsets a terminal. */
#define _GNU_SOURCE /* pseudo terminals */
#include "cli/cli.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

static char *print(struct fo_table *t, const char *indent, bool head)
{
	struct fo_str text = { 0 };
	fo_str_append(&text, "", 0); /* an empty table is a text, too */
	fo_table_text(t, &text, FO_TERM_WIDTH, indent, head);
	fo_table_fini(t);
	return text.data;
}

static void test_padding(void **state)
{
	(void)state;
	struct fo_table t;
	fo_table_init(&t, "lrl");
	fo_table_row(&t, "name", "TFLOP/s", "source");
	fo_table_row(&t, "h100", "989.4", "datasheet");
	fo_table_row(&t, "\xc3\xa4\xc3\xb6", "1", NULL);
	fo_table_row(&t, "", "", "x");
	char *text = print(&t, "  ", true);
	assert_string_equal(text, "  name  TFLOP/s  source\n"
				  "  ----  -------  ---------\n"
				  "  h100    989.4  datasheet\n"
				  "  \xc3\xa4\xc3\xb6          1\n"
				  "                 x\n");
	free(text);
}

static void test_cells_are_visible(void **state)
{
	(void)state;
	struct fo_table t;
	fo_table_init(&t, "l");
	fo_table_row(&t, "\x1b[31m\n\xff");
	char *text = print(&t, "", false);
	assert_string_equal(text, "\\x1b[31m\\x0a\\xff\n");
	free(text);
}

static void test_last_column_wraps(void **state)
{
	(void)state;
	struct fo_table t;
	char words[600] = "";
	for (int i = 0; i < 60; i++)
		strcat(words, "word ");
	fo_table_init(&t, "ll");
	fo_table_row(&t, "key", "text");
	fo_table_row(&t, "a", words);
	char *text = print(&t, "", true);
	int lines = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
		assert_true(strlen(line) <= 80);
		assert_true(line[strlen(line) - 1] != ' ');
		if (lines > 2)
			assert_memory_equal(line, "     word", 9);
	}
	assert_int_equal(lines, 2 + 4); /* 15 words of 5 columns in 75 */
	free(text);
}

/* A name that is longer than a line is parted where names have parts, without a blank: what is copied is the name. */
static void test_long_names(void **state)
{
	(void)state;
	static const char *const name[] = {
		"nvjet_tst_128x256_64x4_2x1_v_bz_coopB_splitK_small_nn_v1_and_more_of_the_same_kind_of_thing_tnt",
		("void "
		 "ns::elementwise_kernel<128,4,at::native::gpu_kernel_impl<at::native::BinaryFunctor<float,float>>>("
		 "int,"
		 "T) (backward)"),
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
		"\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4",
	};
	for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
		struct fo_table t;
		fo_table_init(&t, "ll");
		fo_table_row(&t, "a first column that leaves little of a line to the other", name[i]);
		char *text = print(&t, "  ", false), joined[512];
		size_t n = 0, column = 0;
		const char *at = strstr(text,
					name[i][0] == 'v' ? "void" : (char[]){ name[i][0], name[i][1], name[i][2], 0 });
		assert_non_null(at);
		for (const char *p = text; *p; p++) {
			column = *p == '\n' ? 0 : column + (((unsigned char)*p & 0xc0) != 0x80);
			assert_true(column <= 80);
		}
		for (bool lead = false; *at; at++) {
			if (*at == '\n') {
				lead = true;
				assert_false(at > text && at[-1] == ' ');
				if (at[1] && i == 0)
					assert_non_null(strchr("_", at[-1])); /* at a bound */
				continue;
			}
			lead = lead && *at == ' ';
			if (!lead && *at != ' ')
				joined[n++] = *at;
		}
		joined[n] = 0;
		char want[512];
		n = 0;
		for (const char *p = name[i]; *p; p++)
			if (*p != ' ')
				want[n++] = *p;
		want[n] = 0;
		assert_string_equal(joined, want);
		free(text);
	}
}

static void test_fit(void **state)
{
	(void)state;
	assert_int_equal(fo_cli_fit("step 12 loss 3", 80), 14);
	assert_int_equal(fo_cli_fit("step 12 loss 3", 14), 14);
	assert_int_equal(fo_cli_fit("step 12 loss 3", 13), 12);
	assert_int_equal(fo_cli_fit("step 12 loss 3", 5), 4);
	assert_int_equal(fo_cli_fit("steps", 3), 3);
	assert_int_equal(fo_cli_fit("\xc3\xa4\xc3\xb6\xc3\xbc", 2), 4);
	assert_int_equal(fo_cli_fit("x", 0), 0);
}

/* On a terminal of any width the line that is renewed stays one line. */
static void test_live_line(void **state)
{
	(void)state;
	static const unsigned short width[] = { 200, 63, 40, 20, 1 };
	for (size_t i = 0; i < sizeof width / sizeof *width; i++) {
		int master = posix_openpt(O_RDWR | O_NOCTTY);
		if (master < 0 || grantpt(master) || unlockpt(master))
			skip(); /* a sandbox without terminals */
		int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
		assert_true(slave >= 0);
		struct winsize w = { .ws_row = 24, .ws_col = width[i] };
		assert_int_equal(ioctl(slave, TIOCSWINSZ, &w), 0);
		FILE *f = fdopen(slave, "w");
		fo_cli_live(f, "step 12345/100000 loss 3.1415 |g| 0.52 123.4 ktok/s MFU 45.6 % ETA 12 min");
		char got[256];
		ssize_t n = read(master, got, sizeof got - 1);
		assert_true(n >= 4);
		got[n] = 0;
		assert_int_equal(got[0], '\r');
		assert_string_equal(got + n - 3, "\033[K");
		assert_true(n - 4 < width[i]);
		if (width[i] == 200)
			assert_non_null(strstr(got, "ETA 12 min"));
		fclose(f);
		close(master);
	}
}

static void test_empty(void **state)
{
	(void)state;
	struct fo_table t;
	fo_table_init(&t, "lr");
	char *text = print(&t, "", true);
	assert_string_equal(text, "");
	free(text);
}

static void test_rows_without_end(void **state)
{
	(void)state;
	struct fo_table t;
	fo_table_init(&t, "r");
	for (int i = 0; i < 1000; i++) {
		char n[16];
		snprintf(n, sizeof n, "%d", i);
		fo_table_row(&t, n);
	}
	char *text = print(&t, "", false);
	assert_memory_equal(text, "  0\n  1\n", 8);
	assert_int_equal(strlen(text), 4000);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_padding),
		cmocka_unit_test(test_cells_are_visible),
		cmocka_unit_test(test_last_column_wraps),
		cmocka_unit_test(test_long_names),
		cmocka_unit_test(test_fit),
		cmocka_unit_test(test_live_line),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_rows_without_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
