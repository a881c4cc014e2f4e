/* Documents: one builder, a page and a text that say the same; each sink is safe, and what is for one is not in the
 * other. */
#include "draw/doc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void fill(struct fo_doc *d)
{
	fo_doc_title(d, "Diagnosis of %s", "a<b>");
	fo_doc_lead(d, "one GPU");
	fo_doc_verdict(d, FO_DOC_BAD, "bottleneck", "the data loader: worth %s", fo_doc_num(d, 1.29, FO_DRAW_FACTOR));
	fo_doc_only(d, FO_DOC_TERM);
	fo_doc_verdict(d, FO_DOC_PLAIN, "try", "more workers");
	fo_doc_only(d, FO_DOC_BOTH);
	fo_doc_fact(d, "step", fo_doc_ns(d, 12345678), "median of 40");
	fo_doc_heading(d, "Where the time goes");
	fo_doc_para(d, "A paragraph with \x1b[31m a control and a <tag>.");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lRr", "part", "only on the page", "share");
	fo_doc_row(d, "idle", "long", fo_doc_share(d, 42, 1000));
	fo_doc_row(d, "compute", "longer", fo_doc_share(d, 958, 1000));
	fo_doc_card(d, FO_DOC_BAD, "serious", "a finding");
	fo_doc_para(d, "why");
	fo_doc_item(d, "a setting");
	fo_doc_item(d, "another");
	fo_doc_card_end(d);
	fo_doc_details(d, FO_DOC_SUMMED, "12 more");
	fo_doc_para(d, "hidden on a terminal");
	fo_doc_details_end(d);
	fo_doc_warning(d, "not all was recorded");
	fo_doc_footer(d, "made by a test");
}

static void test_terminal(void **state)
{
	(void)state;
	struct fo_doc d = { 0 };
	struct fo_str out = { 0 };
	fill(&d);
	fo_doc_to_term(&d, FO_TERM_WIDTH, &out);
	assert_string_equal(out.data, "Bottleneck:  the data loader: worth 1.29 x\n"
				      "Try:         more workers\n"
				      "Step:        12.3 ms (median of 40)\n"
				      "\n"
				      "Where the time goes\n"
				      "\n"
				      "  A paragraph with \\x1b[31m a control and a <tag>.\n"
				      "\n"
				      "  part      share\n"
				      "  -------  ------\n"
				      "  idle      4.2 %\n"
				      "  compute  95.8 %\n"
				      "\n"
				      "  1. a finding [serious]\n"
				      "     why\n"
				      "     * a setting\n"
				      "     * another\n"
				      "\n"
				      "  12 more\n"
				      "\n"
				      "  Note: not all was recorded\n");
	fo_str_fini(&out);
	fo_doc_fini(&d);
}

static void test_page(void **state)
{
	(void)state;
	struct fo_doc d = { 0 };
	struct fo_str out = { 0 };
	fill(&d);
	fo_doc_to_html(&d, &out);
	static const char *const has[] = {
		"<h1>Diagnosis of a&#60;b&#62;</h1>",
		"<dl class=\"verdict bad\">",
		"<dt>Bottleneck</dt>",
		"1.29\u00a0x",
		"<h2>Where the time goes</h2>",
		"only on the page",
		"<li>Another</li>",
		"&#60;tag&#62;",
		"Hidden on a terminal",
		"role=\"note\"",
		"made by a test",
		"4.2\u00a0%",
	};
	static const char *const has_not[] = { "more workers", "\x1b", "<tag>" };
	for (size_t i = 0; i < sizeof has / sizeof *has; i++)
		assert_non_null(strstr(out.data, has[i]));
	for (size_t i = 0; i < sizeof has_not / sizeof *has_not; i++)
		assert_null(strstr(out.data, has_not[i]));
	fo_str_fini(&out);
	fo_doc_fini(&d);
}

static size_t longest_line(const char *s)
{
	size_t most = 0;
	for (; *s; s += *s == '\n') {
		size_t n = strcspn(s, "\n"), w = fo_term_columns(s, n);
		most = w > most ? w : most;
		s += n;
	}
	return most;
}

/* A narrow terminal: nothing is wider, and a table becomes a list. */
static void test_narrow(void **state)
{
	(void)state;
	struct fo_doc d = { 0 };
	struct fo_str out = { 0 };
	fo_doc_verdict(&d, FO_DOC_PLAIN, "utilisation",
		       "the time with any kernel on the device, however little it does");
	fo_doc_table(&d, FO_DRAW_FITTED, NULL, "lrrr", "class of kernel", "exclusive time", "of the step",
		     "operations");
	fo_doc_row(&d, "elementwise", "12.3 ms", "4.2 %", "1234");
	fo_doc_to_term(&d, 40, &out);
	assert_true(longest_line(out.data) <= 40);
	assert_non_null(strstr(out.data, "  elementwise\n    exclusive time: 12.3 ms\n"));
	fo_str_fini(&out);
	fo_doc_fini(&d);
}

/* Wide characters take two columns, marks that combine none; a figure stays with its unit. */
static void test_widths(void **state)
{
	(void)state;
	struct fo_str out = { 0 };
	assert_int_equal(fo_term_columns("abc", 3), 3);
	assert_int_equal(fo_term_columns("\u5929\u5730", 6), 4);
	assert_int_equal(fo_term_columns("e\u0301", 3), 1);
	fo_term_wrap(&out, 12, "", "  ", "takes almost 244 MiB of it");
	assert_string_equal(out.data, "takes almost\n  244 MiB of\n  it\n");
	fo_str_fini(&out);
}

/* Values that a file supplies may be empty. */
static void test_empty(void **state)
{
	(void)state;
	struct fo_doc d = { 0 };
	struct fo_str text = { 0 }, page = { 0 };
	fo_doc_title(&d, "%s", "");
	fo_doc_verdict(&d, FO_DOC_PLAIN, "cpu", "%s", "");
	fo_doc_fact(&d, "bf16 matmuls", "", NULL);
	fo_doc_card(&d, FO_DOC_PLAIN, NULL, "%s", "");
	fo_doc_card_end(&d);
	fo_doc_to_term(&d, FO_TERM_WIDTH, &text);
	fo_doc_to_html(&d, &page);
	assert_non_null(strstr(text.data, "Cpu:"));
	assert_non_null(strstr(text.data, "bf16 matmuls:"));
	fo_str_fini(&text);
	fo_str_fini(&page);
	fo_doc_fini(&d);
}

static void test_pictures(void **state)
{
	(void)state;
	struct fo_doc d = { 0 };
	struct fo_str text = { 0 }, page = { 0 };
	const struct fo_draw_fall fall[] = { { "idle", NULL, "-60.0 points", 0.6 } };
	fo_doc_waterfall(&d, &(struct fo_draw_waterfall){ .title = "From 100 % to MFU",
							  .unit = FO_DRAW_SHARE,
							  .whole = 1,
							  .whole_name = "the peak",
							  .whole_value = "989 TFLOP/s",
							  .fall = fall,
							  .falls = 1,
							  .rest_name = "MFU" });
	fo_doc_lanes(&d, &(struct fo_draw_lanes){ .title = "a timeline" });
	fo_doc_to_term(&d, FO_TERM_WIDTH, &text);
	fo_doc_to_html(&d, &page);
	assert_string_equal(text.data, "From 100 % to MFU\n\n"
				       "                             left\n"
				       "  --------  ------------  -------\n"
				       "  the peak   989 TFLOP/s  100.0 %\n"
				       "  idle      -60.0 points   40.0 %\n"
				       "  MFU                      40.0 %\n");
	assert_non_null(strstr(page.data, "a timeline"));
	fo_str_fini(&text);
	fo_str_fini(&page);
	fo_doc_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_terminal), cmocka_unit_test(test_page),  cmocka_unit_test(test_narrow),
		cmocka_unit_test(test_widths),   cmocka_unit_test(test_empty), cmocka_unit_test(test_pictures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
