/* Pages and pictures: well formed whatever goes in, escaped, bounded, and the marks stand where the numbers say. */
#include "draw/doc.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a strict reader of the XML that the module may write: elements, quoted attributes, five entities ---- */

enum { DEPTH = 32, NAME = 24 };

static size_t name_at(const char *s)
{
	return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-:");
}

static bool entity(const char *s)
{
	static const char *const known[] = { "&amp;", "&lt;", "&gt;", "&quot;", "&apos;", "&#" };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strncmp(s, known[i], strlen(known[i])))
			return true;
	return false;
}

/* NULL, or where the text stops being XML. */
static const char *not_xml(const char *s)
{
	char open[DEPTH][NAME];
	int depth = 0, roots = 0;
	for (; *s; s++) {
		if (*s == '&' && !entity(s))
			return s;
		if ((unsigned char)*s < 32 && *s != '\n' && *s != '\t')
			return s;
		if (*s != '<')
			continue;
		if (!strncmp(s, "<!DOCTYPE html>", 15) && !roots) {
			s += 14;
			continue;
		}
		bool close = s[1] == '/';
		const char *at = s + 1 + close;
		size_t n = name_at(at);
		if (!n || n >= NAME)
			return s;
		if (close) {
			if (!depth || strlen(open[depth - 1]) != n || strncmp(open[depth - 1], at, n) || at[n] != '>')
				return s;
			depth--;
			s = at + n;
			continue;
		}
		if (!depth && roots++)
			return s;
		if (depth == DEPTH)
			return s;
		snprintf(open[depth++], NAME, "%.*s", (int)n, at);
		for (at += n; *at == ' '; at = strchr(at, '"') + 1) {
			n = name_at(++at);
			if (!n || strncmp(at + n, "=\"", 2))
				return at;
			at += n + 2;
			for (const char *v = at; *v != '"'; v++)
				if (!*v || *v == '<' || (*v == '&' && !entity(v)))
					return v;
		}
		if (!strncmp(at, "/>", 2)) {
			depth--;
			at++;
		}
		if (*at != '>')
			return at;
		s = at;
	}
	return depth || roots != 1 ? s : NULL;
}

static void assert_xml(const struct fo_str *s)
{
	const char *at = not_xml(s->data);
	if (at)
		print_error("not XML at byte %td: %.60s\n", at - s->data, at);
	assert_null(at);
	assert_null(strstr(s->data, "nan"));
	assert_null(strstr(s->data, "inf,"));
}

static size_t count(const char *s, const char *what)
{
	size_t n = 0;
	for (; (s = strstr(s, what)); s += strlen(what))
		n++;
	return n;
}

static void test_checker(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"<a>",          "<a></b>",  "<a x=1></a>", "<a>&</a>", "<a>&nbsp;</a>",
		"<a x=\"<\"/>", "<a/><b/>", "<a>\x01</a>", "a<",       "<a x=\"1\"y=\"2\"/>"
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_non_null(not_xml(bad[i]));
	assert_null(not_xml("<!DOCTYPE html>\n<a x=\"1\" y=\"&lt;\"><b/>t &amp; <c>u</c></a>\n"));
}

/* ---- everything once, with strings that would break out ---- */

#define EVIL "</title><script>alert(1)</script>\"'&\x1b[2J\xff\xe2\x80\xae"

static void every_word(struct fo_doc *d, const char *text)
{
	const char *said = text ? text : "";
	fo_doc_title(d, "%s", said);
	fo_doc_lead(d, "%s", said);
	fo_doc_footer(d, "%s", said);
	fo_doc_verdict(d, FO_DOC_BAD, text, "%s", said);
	fo_doc_fact(d, text, text, text);
	fo_doc_heading(d, "%s", said);
	fo_doc_para(d, "%s", said);
	fo_doc_remark(d, "%s", said);
	fo_doc_warning(d, "%s", said);
	fo_doc_item(d, "%s", said);
	fo_doc_code(d, text);
	fo_doc_details(d, FO_DOC_OPEN, "%s", said);
	fo_doc_table(d, FO_DRAW_FITTED, text, "lrrr", text, text, text, text);
	fo_doc_cells(d, text, FO_CELLS(text, text, text, text));
	fo_doc_details_end(d);
	fo_doc_card(d, FO_DOC_BAD, text, "%s", said);
	fo_doc_card_end(d);
}

static void everything(struct fo_str *o, const char *text)
{
	double y[5] = { 1, NAN, 3, INFINITY, 2 };
	struct fo_doc doc = { 0 }, *d = &doc;
	every_word(d, text);
	fo_doc_lines(
		d,
		&(struct fo_draw_lines){
			.title = text,
			.desc = text,
			.x_name = text,
			.y_name = text,
			.y_lo = NAN,
			.y_hi = NAN,
			.series = &(struct fo_draw_series){ .name = text, .y = y, .n = 5, .style = -7, .marks = true },
			.n = 1,
			.band = &(struct fo_draw_band){ 1, 2, 0, text },
			.bands = 1,
			.band_name = { text, text, text, text } });
	fo_doc_areas(d, &(struct fo_draw_areas){ .title = text,
						 .desc = text,
						 .x_name = text,
						 .y_name = text,
						 .name = &text,
						 .layer = (const double *const[]){ y },
						 .layers = 1,
						 .n = 5 });
	struct fo_draw_bar_row row = {
		.name = text, .note = text, .value = text, .bar = { { 1, 0, 2 }, { 2, NAN, 3 } }
	};
	fo_doc_bars(d, &(struct fo_draw_bars){ .title = text,
					       .desc = text,
					       .hi_name = text,
					       .bar_name = { text, text },
					       .row = &row,
					       .rows = 1 });
	fo_doc_stacks(d, &(struct fo_draw_stacks){ .title = text,
						   .desc = text,
						   .part_name = &text,
						   .parts = 1,
						   .stack = &(struct fo_draw_stack){ text, text, y },
						   .stacks = 1 });
	fo_doc_stacks(d, &(struct fo_draw_stacks){ .title = text,
						   .desc = text,
						   .part_name = &text,
						   .parts = 1,
						   .stack = &(struct fo_draw_stack){ text, text, y },
						   .stacks = 1,
						   .dense = true });
	fo_doc_waterfall(d, &(struct fo_draw_waterfall){ .title = text,
							 .desc = text,
							 .whole = 1,
							 .whole_name = text,
							 .whole_value = text,
							 .fall = &(struct fo_draw_fall){ text, text, text, 0.5 },
							 .falls = 1,
							 .rest_name = text,
							 .rest_value = text });
	fo_doc_points(d, &(struct fo_draw_points){ .title = text,
						   .desc = text,
						   .x_name = text,
						   .y_name = text,
						   .remark = text,
						   .kind_name = { text },
						   .mark_name = { text, text, text, text },
						   .point = &(struct fo_draw_point){ 1, 2, 0, FO_DRAW_POINT_CHOSEN },
						   .n = 1,
						   .limit = 1,
						   .limit_name = text });
	fo_doc_lanes(d, &(struct fo_draw_lanes){
				.title = text,
				.desc = text,
				.to = 4,
				.lane = &(struct fo_draw_lane){ text, &(struct fo_draw_span){ 0, 3, -1, text }, 1 },
				.lanes = 1,
				.tone_name = { [FO_DRAW_PARTS - 1] = text },
				.mark = &(struct fo_draw_mark){ 1, 2, text },
				.arrow = &(struct fo_draw_arrow){ 0, 0, 1, NAN },
				.arrows = 1 });
	fo_doc_to_html(d, o);
	fo_doc_fini(d);
}

static void test_escapes(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	everything(&o, EVIL);
	assert_xml(&o);
	assert_null(strstr(o.data, "<script"));
	assert_null(strchr(o.data, 0x1b));
	assert_null(strstr(o.data, "\xe2\x80\xae"));
	assert_non_null(strstr(o.data, "&#60;script&#62;alert(1)"));
	assert_non_null(strstr(o.data, "default-src 'none'"));
	assert_null(strstr(o.data, "src="));
	assert_null(strstr(o.data, "url("));
	fo_str_fini(&o);
	everything(&o, "");
	assert_xml(&o);
	fo_str_fini(&o);
	everything(&o, NULL);
	assert_xml(&o);
	fo_str_fini(&o);
}

/* ---- lines ---- */

static void lines(struct fo_str *o, const struct fo_draw_series *s, double lo, double hi, bool log)
{
	fo_str_fini(o);
	fo_draw_lines(
		o, &(struct fo_draw_lines){ .title = "t", .y_lo = lo, .y_hi = hi, .y_log = log, .series = s, .n = 1 });
	assert_xml(o);
}

static void test_lines_place(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	double x[] = { 10, 12, 14, 20 }, y[] = { 0, 1, NAN, 0.25 }, back[] = { 10, 8, 14, 20 },
	       decades[] = { 1, 10, 100, 1000 };
	struct fo_draw_series s = { .name = "n", .x = x, .y = y, .n = 4 };
	lines(&o, &s, 0, 1, false);
	/* A quarter of the height lies at 750 of 1000 from the top; the missing number interrupts the line. */
	assert_non_null(strstr(o.data, "d=\"M0 1000h0L800 0M4000 750h0\""));
	s.x = back;
	lines(&o, &s, 0, 1, false);
	assert_non_null(strstr(o.data, "d=\"M0 1000h0M4000 750h0\""));
	s = (struct fo_draw_series){ .name = "n", .y = decades, .n = 4 };
	lines(&o, &s, NAN, NAN, true);
	assert_non_null(strstr(o.data, "M0 1000h0L1333 667L2667 333L4000 0"));
	/* The axis grows where the numbers leave it. */
	y[1] = 3;
	s = (struct fo_draw_series){ .name = "n", .x = x, .y = y, .n = 2 };
	lines(&o, &s, 0, 1, false);
	assert_non_null(strstr(o.data, "M0 1000h0L4000 0"));
	fo_str_fini(&o);
}

static void test_lines_odd(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	double none[3] = { NAN, NAN, INFINITY }, one[] = { 5 }, same[] = { 7, 7, 7 }, huge[] = { -1e308, 1e308 },
	       tiny[] = { 1, 1 + 1e-15 }, zero[] = { 0, 0 }, negative[] = { -1, -2 };
	const struct {
		const double *y;
		size_t n;
		bool log, empty;
	} cases[] = { { none, 3, false, true },  { none, 0, false, true },    { one, 1, false, false },
		      { same, 3, false, false }, { huge, 2, false, false },   { tiny, 2, false, false },
		      { zero, 2, false, false }, { negative, 2, true, true }, { one, 1, true, false } };
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct fo_draw_series s = { .name = "n", .y = cases[i].y, .n = cases[i].n, .marks = true };
		lines(&o, &s, NAN, NAN, cases[i].log);
		assert_int_equal(strstr(o.data, "Nothing was recorded") != NULL, cases[i].empty);
		assert_int_equal(strstr(o.data, "class=\"l s0\" d=\"M2 7") != NULL, !cases[i].empty);
		assert_true(o.len < 8192);
	}
	fo_str_fini(&o);
}

/* A million points become a bounded picture that has still every peak. */
static void test_lines_long(void **state)
{
	(void)state;
	enum { N = 1000000 };
	struct fo_str o = { 0 };
	double *y = malloc(N * sizeof *y);
	for (int i = 0; i < N; i++)
		y[i] = 0.4 + 0.1 * ((i * 7919LL % 1000) / 1000.0);
	y[123456] = 1;
	y[654321] = 0;
	struct fo_draw_series s = { .name = "n", .y = y, .n = N };
	lines(&o, &s, 0, 1, false);
	assert_true(o.len < 80000);
	assert_int_equal(count(o.data, "L494 0L"), 1); /* 123456 / 999999 of 4000 */
	assert_int_equal(count(o.data, "L2617 1000L"), 1);
	for (int i = 0; i < N; i += 2) /* no run of them can make the picture long */
		y[i] = NAN;
	lines(&o, &s, 0, 1, false);
	assert_true(o.len < 80000);
	free(y);
	fo_str_fini(&o);
}

static void test_bands(void **state)
{
	(void)state;
	enum { N = 100000 };
	struct fo_str o = { 0 };
	static struct fo_draw_band band[N];
	double y[] = { 1, 2 }, x[] = { 0, N };
	struct fo_draw_series s = { .name = "n", .x = x, .y = y, .n = 2 };
	for (int i = 0; i < N; i++)
		band[i] = (struct fo_draw_band){ i, i, 1, NULL };
	band[5] = (struct fo_draw_band){ NAN, 3, 0, NULL };
	band[6] = (struct fo_draw_band){ 3, 2, 0, NULL };
	band[7] = (struct fo_draw_band){ 3, 5, 9, NULL };
	fo_draw_lines(&o, &(struct fo_draw_lines){
				  .title = "t", .y_lo = 0, .y_hi = 1, .series = &s, .n = 1, .band = band, .bands = N });
	assert_xml(&o);
	assert_true(count(o.data, "class=\"b1\"") <= 1001);
	assert_true(count(o.data, "class=\"b1\"") >= 900);
	fo_str_fini(&o);
	band[0] = (struct fo_draw_band){ N / 4, N / 2, 0, "why" };
	fo_draw_lines(&o, &(struct fo_draw_lines){
				  .title = "t", .y_lo = 0, .y_hi = 1, .series = &s, .n = 1, .band = band, .bands = 1 });
	assert_non_null(strstr(o.data, "<path class=\"b0\" d=\"M1000 0H2000V1000H1000z\"><title>why</title>"));
	fo_str_fini(&o);
}

/* ---- areas, bars, parts ---- */

static void test_areas(void **state)
{
	(void)state;
	enum { N = 5000 };
	struct fo_str o = { 0 };
	static double a[N], b[N];
	const char *const name[] = { "a", "b" };
	for (int i = 0; i < N; i++)
		a[i] = 1;
	b[3333] = 3; /* the peak of one operation is seen */
	struct fo_draw_areas c = {
		.title = "t", .name = name, .layer = (const double *const[]){ a, b }, .layers = 2, .n = N
	};
	fo_draw_areas(&o, &c);
	assert_xml(&o);
	assert_non_null(strstr(o.data, "L2667 0"));
	assert_true(o.len < 60000);
	fo_str_fini(&o);
	c.n = 0;
	fo_draw_areas(&o, &c);
	assert_non_null(strstr(o.data, "Nothing was recorded"));
	fo_str_fini(&o);
	c.n = 1;
	fo_draw_areas(&o, &c);
	assert_xml(&o);
	fo_str_fini(&o);
}

static void test_bars(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	struct fo_draw_bar_row row[] = {
		{ .name = "a", .value = "50 %", .bar = { { 0.5, 0.25, 0.75 }, { NAN, NAN, NAN } } },
		{ .name = "b", .bar = { { NAN, 0, 1 }, { 0.25, NAN, NAN } }, .tone = FO_DRAW_DOUBTFUL }
	};
	struct fo_draw_bars c = {
		.title = "t", .unit = FO_DRAW_SHARE, .hi = 1, .hi_name = "peak", .row = row, .rows = 2
	};
	fo_draw_bars(&o, &c);
	assert_xml(&o);
	assert_non_null(strstr(o.data, "<rect class=\"bar\" x=\"0\" y=\"14\" width=\"2000\" height=\"72\"/>"));
	assert_non_null(strstr(o.data, "M1000 50H3000M1000 32V68M3000 32V68"));
	assert_int_equal(count(o.data, "<rect"), 2);
	assert_non_null(strstr(o.data, "100\u00a0%</span>"));
	fo_str_fini(&o);
	/* Losses lie left of zero. */
	row[0].bar[0] = (struct fo_draw_bar){ -0.1, NAN, NAN };
	row[1].bar[1] = (struct fo_draw_bar){ 0.3, NAN, NAN };
	c = (struct fo_draw_bars){
		.title = "t", .unit = FO_DRAW_CHANGE, .bar_name = { "m", "p" }, .row = row, .rows = 2
	};
	fo_draw_bars(&o, &c);
	assert_xml(&o);
	assert_non_null(strstr(o.data, "x=\"0\" y=\"4\" width=\"1000\"")); /* the axis: -10 to 30 % */
	assert_non_null(strstr(o.data, "class=\"hollow\" x=\"1000\" y=\"64\" width=\"3000\""));
	assert_non_null(strstr(o.data, ">-10\u00a0%<"));
	assert_non_null(strstr(o.data, ">+30\u00a0%<"));
	fo_str_fini(&o);
	c.rows = 0;
	fo_draw_bars(&o, &c);
	assert_xml(&o);
	fo_str_fini(&o);
}

/* A half is as long as a double, a whisker that would flatten all bars is cut with an arrow, nothing at or below 0 is
 * drawn. */
static void test_factors(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	const struct fo_draw_bar_row row[] = { { .name = "a", .bar = { { 2, 1.9, 100 }, { NAN, NAN, NAN } } },
					       { .name = "b", .bar = { { 0.5, 0.4, 0.6 }, { NAN, NAN, NAN } } },
					       { .name = "c", .bar = { { -1, -2, 1 }, { NAN, NAN, NAN } } } };
	fo_draw_bars(&o, &(struct fo_draw_bars){ .title = "t", .unit = FO_DRAW_FACTOR, .row = row, .rows = 3 });
	assert_xml(&o);
	/* The axis: 0.4 to 8 (as far again as from 0.5 to 2). */
	long one = lround(4000 * log(1 / 0.4) / log(20)), two = lround(4000 * log(2 / 0.4) / log(20)),
	     half = lround(4000 * log(0.5 / 0.4) / log(20));
	char text[64];
	snprintf(text, sizeof text, "x=\"%ld\" y=\"14\" width=\"%ld\"", one, two - one);
	assert_non_null(strstr(o.data, text));
	snprintf(text, sizeof text, "x=\"%ld\" y=\"14\" width=\"%ld\"", half, one - half);
	assert_non_null(strstr(o.data, text));
	assert_non_null(strstr(o.data, "M3950 14L4000 50L3950 86"));
	assert_int_equal(count(o.data, "<rect"), 2);
	assert_non_null(strstr(o.data, ">2 x<"));
	fo_str_fini(&o);
}

/* A level is drawn over the whole width; a joined line goes on over what has no number. */
static void test_levels(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	const double y[] = { 0, NAN, 1 };
	struct fo_draw_series s = { .name = "s", .y = y, .n = 3 };
	const struct fo_draw_level level[] = { { 0.25, 0.75, "band" }, { 0.5, 0.5, "line" } };
	struct fo_draw_lines c = {
		.title = "t", .y_lo = 0, .y_hi = 1, .series = &s, .n = 1, .level = level, .levels = 2
	};
	fo_draw_lines(&o, &c);
	assert_xml(&o);
	assert_non_null(strstr(o.data, "<path class=\"vb\" d=\"M0 750V250H4000V750z\"/>"));
	assert_non_null(strstr(o.data, "<path class=\"vl\" d=\"M0 500V500H4000V500z\"/>"));
	assert_null(strstr(o.data, "L4000 0"));
	fo_str_fini(&o);
	s.join = true;
	fo_draw_lines(&o, &c);
	assert_non_null(strstr(o.data, "L4000 0"));
	fo_str_fini(&o);
}

/* From the whole down, each step where the last one ended; what is given back goes up again. */
static void test_waterfall(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	const struct fo_draw_fall fall[] = { { "a", NULL, "-30", 0.3 },
					     { "b", "note", "-50", 0.5 },
					     { "?", NULL, "-", NAN },
					     { "c", NULL, "+5", -0.05 } };
	struct fo_draw_waterfall c = { .title = "t",
				       .unit = FO_DRAW_SHARE,
				       .whole = 1,
				       .whole_name = "all",
				       .fall = fall,
				       .falls = 4,
				       .rest_name = "rest" };
	fo_draw_waterfall(&o, &c);
	assert_xml(&o);
	assert_non_null(strstr(o.data, "class=\"bar\" x=\"0\" y=\"14\" width=\"4000\""));
	assert_non_null(strstr(o.data, "class=\"fall\" x=\"2800\" y=\"14\" width=\"1200\""));
	assert_non_null(strstr(o.data, "class=\"fall\" x=\"800\" y=\"14\" width=\"2000\""));
	assert_non_null(strstr(o.data, "class=\"back\" x=\"800\" y=\"14\" width=\"200\""));
	assert_non_null(strstr(o.data, "class=\"bar\" x=\"0\" y=\"14\" width=\"1000\""));
	assert_int_equal(count(o.data, "<rect"), 5);
	fo_str_fini(&o);
	/* Below nothing there is room, too. */
	c.falls = 1;
	c.fall = &(struct fo_draw_fall){ "a", NULL, NULL, 2 };
	fo_draw_waterfall(&o, &c);
	assert_xml(&o);
	assert_non_null(strstr(o.data, "class=\"fall\" x=\"0\" y=\"14\" width=\"4000\""));
	fo_str_fini(&o);
	c = (struct fo_draw_waterfall){ .title = "t", .whole = NAN };
	fo_draw_waterfall(&o, &c);
	assert_xml(&o);
	assert_non_null(strstr(o.data, "Nothing was recorded"));
	fo_str_fini(&o);
}

/* Each point once, where its numbers say; what has none, or no such kind, is left out; a legend of what is drawn. */
static void test_points(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	const struct fo_draw_point point[] = {
		{ 50, 0.5, 0, FO_DRAW_POINT_PLAIN },  { 100, 1, 1, FO_DRAW_POINT_HOLLOW },
		{ 25, 0.25, 2, FO_DRAW_POINT_RING },  { 0, 0, 3, FO_DRAW_POINT_CHOSEN },
		{ NAN, 0.5, 0, FO_DRAW_POINT_PLAIN }, { 1, INFINITY, 0, FO_DRAW_POINT_PLAIN },
		{ 1, 1, 99, FO_DRAW_POINT_PLAIN },    { 1, 1, -1, FO_DRAW_POINT_PLAIN }
	};
	struct fo_draw_points c = { .title = "t",
				    .x_unit = FO_DRAW_NUMBER,
				    .y_unit = FO_DRAW_SHARE,
				    .kind_name = { "k0", "k1", "k2", "k3", "k4" },
				    .mark_name = { "m0", "m1", "m2", "m3" },
				    .point = point,
				    .n = sizeof point / sizeof *point,
				    .limit = 80,
				    .limit_name = "limit" };
	fo_draw_points(&o, &c);
	assert_xml(&o);
	assert_int_equal(count(o.data, "<svg x="), 4);
	assert_non_null(strstr(o.data, "<svg x=\"50.00%\" y=\"50.00%\">"));
	assert_non_null(strstr(o.data, "<svg x=\"100.00%\" y=\"0.00%\"><path class=\"pt s1 open\""));
	assert_non_null(strstr(o.data, "<svg x=\"0.00%\" y=\"100.00%\">"));
	assert_int_equal(count(o.data, "class=\"ring\""), 2 * 3); /* one and two rings, and in the legend */
	assert_non_null(strstr(o.data, "M3200 0V1000"));
	assert_non_null(strstr(o.data, "k3</li>"));
	assert_null(strstr(o.data, "k4</li>"));
	assert_int_equal(count(o.data, "<li>"), 4 + 4 + 1);
	fo_str_fini(&o);
	c.n = 0;
	fo_draw_points(&o, &c);
	assert_xml(&o);
	assert_non_null(strstr(o.data, "Nothing was recorded"));
	fo_str_fini(&o);
}

static void test_lanes(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	const struct fo_draw_span host[] = { { 10, 12, 1, "outer_operator" },
					     { 10.5, 11.5, 2, "inner" },
					     { 11, 11.2, 3, "innermost" },
					     { 12, 13, 1, "next" } },
				  kernel[] = { { 5, 9, 0, "before" },
					       { 13, 14, 0, "kernel_name" },
					       { 19, 30, 4, "cut" },
					       { NAN, 3, 0, "odd" } };
	const struct fo_draw_lane lane[] = { { "host", host, 4 }, { "stream 7", kernel, 4 } };
	struct fo_draw_lanes c = { .title = "t",
				   .from = 10,
				   .to = 20,
				   .lane = lane,
				   .lanes = 2,
				   .tone_name = { "blue", "one", NULL, "three", NULL, "none" },
				   .mark = &(struct fo_draw_mark){ 11, 13, "idle 2 s" },
				   .arrow = &(struct fo_draw_arrow){ 0, 1, 12, 13 },
				   .arrows = 1 };
	fo_draw_lanes(&o, &c);
	assert_xml(&o);
	/* Inside each other: a row each; the row is free again behind its end. */
	assert_non_null(strstr(o.data, "p1\" x=\"0\" y=\"1\" width=\"800\""));
	assert_non_null(strstr(o.data, "p2\" x=\"200\" y=\"23\" width=\"400\""));
	assert_non_null(strstr(o.data, "p3\" x=\"400\" y=\"45\" width=\"80\""));
	assert_non_null(strstr(o.data, "p1\" x=\"800\" y=\"1\" width=\"400\""));
	assert_non_null(strstr(o.data, "p4\" x=\"3600\" y=\"1\" width=\"400\""));
	assert_null(strstr(o.data, "before"));
	assert_null(strstr(o.data, "odd"));
	/* Three rows of 22 px, and from the bottom of the first lane to the top of the second. */
	assert_non_null(strstr(o.data, "style=\"height:66px\""));
	assert_non_null(strstr(o.data, "<path class=\"gap\" d=\"M400 20H1200V156H400z\"/>"));
	assert_non_null(strstr(o.data, "<path class=\"arrow\" d=\"M800 110L1200 134M"));
	assert_non_null(strstr(o.data, "idle 2 s"));
	/* Names as far as there is room: all of it on a desk, some of it on a telephone; the legend has what is drawn.
	 */
	assert_non_null(strstr(
		o.data, "wide\" style=\"left:0.000%;width:20.000%;top:1px\" aria-hidden=\"true\">outer_operator</b>"));
	assert_non_null(strstr(
		o.data, "narrow\" style=\"left:0.000%;width:20.000%;top:1px\" aria-hidden=\"true\">outer_…</b>"));
	assert_int_equal(count(o.data, "<li>"), 3);
	fo_str_fini(&o);
	for (size_t i = 0; i < 4; i++) {
		c.lanes = i != 0;
		c.from = i == 1 ? NAN : 0;
		c.to = i == 2 ? 0 : i == 3 ? INFINITY : 1;
		fo_draw_lanes(&o, &c);
		assert_xml(&o);
		assert_non_null(strstr(o.data, "Nothing was recorded"));
		fo_str_fini(&o);
	}
}

/* A million spans, of all tones and depths, become a bounded picture. */
static void test_lanes_long(void **state)
{
	(void)state;
	enum { N = 1000000 };
	struct fo_str o = { 0 };
	struct fo_draw_span *s = malloc(N * sizeof *s);
	for (int i = 0; i < N; i++)
		s[i] = (struct fo_draw_span){ i, i + 1 + i % 7, i % 5, "k" };
	const struct fo_draw_lane lane = { "l", s, N };
	fo_draw_lanes(&o, &(struct fo_draw_lanes){ .title = "t", .to = N, .lane = &lane, .lanes = 1 });
	assert_xml(&o);
	assert_true(count(o.data, "<rect") <= (size_t)FO_DRAW_LANE_ROWS * 1001);
	assert_true(count(o.data, "<rect") >= 900);
	fo_str_fini(&o);
	free(s);
}

static void test_dense(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	double part[] = { 1, 3 };
	const char *const name[] = { "first", "second" };
	const struct fo_draw_stack stack[] = { { "rank 0", "4 s", part }, { "rank 1", "4 s", part } };
	fo_draw_stacks(
		&o, &(struct fo_draw_stacks){
			    .title = "t", .part_name = name, .parts = 2, .stack = stack, .stacks = 2, .dense = true });
	assert_xml(&o);
	assert_int_equal(count(o.data, "class=\"part p1\" x=\"1000\" y=\"0\" width=\"3000\""), 2);
	assert_null(strstr(o.data, "<table"));
	assert_int_equal(count(o.data, "<li>"), 2);
	fo_str_fini(&o);
}

static void test_stacks(void **state)
{
	(void)state;
	struct fo_str o = { 0 };
	const char *const name[] = { "matmul", "loss", "none" };
	double before[] = { 3, 1, 0 }, after[] = { 1, 1, -5 }, nothing[] = { NAN, 0, -1 };
	struct fo_draw_stack stack[] = { { "before", "4 s", before }, { "after", NULL, after } };
	struct fo_draw_stacks c = { .title = "t", .part_name = name, .parts = 3, .stack = stack, .stacks = 2 };
	fo_draw_stacks(&o, &c);
	assert_xml(&o);
	assert_non_null(strstr(o.data, "p0\" x=\"0\" y=\"0\" width=\"3000\""));
	assert_non_null(strstr(o.data, "p1\" x=\"3000\" y=\"0\" width=\"1000\""));
	assert_non_null(strstr(o.data, "p1\" x=\"2000\" y=\"0\" width=\"2000\""));
	assert_non_null(strstr(o.data, "75.0 %"));
	assert_null(strstr(o.data, "none</td>")); /* a part that nobody has is not listed */
	fo_str_fini(&o);
	c.to_scale = true;
	fo_draw_stacks(&o, &c);
	assert_non_null(strstr(o.data, "p1\" x=\"1000\" y=\"0\" width=\"1000\"")); /* half as long as before */
	assert_non_null(strstr(o.data, "50.0 %"));
	fo_str_fini(&o);
	stack[0].part = stack[1].part = nothing;
	fo_draw_stacks(&o, &c);
	assert_xml(&o);
	assert_non_null(strstr(o.data, "Nothing was recorded"));
	fo_str_fini(&o);
}

static void test_numbers(void **state)
{
	(void)state;
	char b[32];
	assert_string_equal(fo_draw_number(b, 0.5434, FO_DRAW_SHARE), "54.3 %");
	assert_string_equal(fo_draw_number(b, 0.0012, FO_DRAW_SHARE), "0.12 %");
	assert_string_equal(fo_draw_number(b, 0.123, FO_DRAW_CHANGE), "+12.3 %");
	assert_string_equal(fo_draw_number(b, -0.05, FO_DRAW_CHANGE), "-5.0 %");
	assert_string_equal(fo_draw_number(b, 2.474, FO_DRAW_SECONDS), "2.47 s");
	assert_string_equal(fo_draw_number(b, 0.0125, FO_DRAW_SECONDS), "12.5 ms");
	assert_string_equal(fo_draw_number(b, 3e-6, FO_DRAW_SECONDS), "3 us");
	assert_string_equal(fo_draw_number(b, 600, FO_DRAW_SECONDS), "10 min");
	assert_string_equal(fo_draw_number(b, 24912000, FO_DRAW_SECONDS), "6920 h");
	assert_string_equal(fo_draw_number(b, NAN, FO_DRAW_BYTES), "-");
	assert_string_equal(fo_draw_number(b, 3.25, FO_DRAW_NUMBER), "3.25");
	assert_string_equal(fo_draw_number(b, 1.2914, FO_DRAW_FACTOR), "1.29 x");
	assert_string_equal(fo_draw_number(b, 0.0431, FO_DRAW_PERCENT), "4.3 %");
	assert_string_equal(fo_draw_number(b, 0.0009996, FO_DRAW_SECONDS), "1 ms");
	assert_string_equal(fo_draw_number(b, -0.001, FO_DRAW_DOLLARS), "$0.00");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_checker),   cmocka_unit_test(test_escapes),    cmocka_unit_test(test_lines_place),
		cmocka_unit_test(test_lines_odd), cmocka_unit_test(test_lines_long), cmocka_unit_test(test_bands),
		cmocka_unit_test(test_areas),     cmocka_unit_test(test_bars),       cmocka_unit_test(test_factors),
		cmocka_unit_test(test_levels),    cmocka_unit_test(test_stacks),     cmocka_unit_test(test_waterfall),
		cmocka_unit_test(test_points),    cmocka_unit_test(test_lanes),      cmocka_unit_test(test_lanes_long),
		cmocka_unit_test(test_dense),     cmocka_unit_test(test_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
