/* The machine profile: what is written is read, nothing else is believed, what is derived from it is right, quiet spans
 * are told from others, and a picture of it carries no string out of its place. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "base/clock.h"
#include "base/fs.h"
#include "hw/profile.h"
#include "report/roofline.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the quiet filter on sequences that are known ---- */

static const struct fo_burst calm = { 100e9, 50e9, 1 };

static struct fo_quiet_span span(double seconds, double flop_s, double byte_s, double share, double lost)
{
	struct fo_burst b = { flop_s, byte_s, share };
	return (struct fo_quiet_span){ seconds, lost, b, calm };
}

static void test_quiet(void **state)
{
	(void)state;
	/* 40 spans of 1 ms; then one of each kind of disturbance at 0.5 ms, which would win if it were believed. */
	struct fo_quiet_span v[48];
	for (int i = 0; i < 40; i++)
		v[i] = span(1e-3 + i * 1e-7, 97e9, 47e9, 0.995, 0.001);
	v[40] = span(5e-4, 85e9, 50e9, 1, 0);    /* a lower clock */
	v[41] = span(5e-4, 100e9, 33e9, 1, 0);   /* a neighbour in the cache: the register loop does not notice */
	v[42] = span(5e-4, 100e9, 50e9, 0.5, 0); /* the burst was interrupted */
	v[43] = span(5e-4, 100e9, 50e9, 1, 0.2); /* the span itself was */
	for (int i = 44; i < 48; i++) {          /* the same behind the span */
		v[i] = v[i - 4];
		struct fo_burst b = v[i].before;
		v[i].before = v[i].after;
		v[i].after = b;
	}
	struct fo_burst best = { 0 };
	for (int i = 0; i < 48; i++) {
		fo_burst_raise(&best, &v[i].before);
		fo_burst_raise(&best, &v[i].after);
	}
	assert_true(best.flop_s == calm.flop_s && best.byte_s == calm.byte_s && best.share == 1);
	for (int i = 0; i < 48; i++)
		assert_int_equal(fo_quiet_is(&v[i], &best), i < 40);
	struct fo_quiet_stats s = fo_quiet_stats(v, 48, &best);
	assert_int_equal(s.spans, 48);
	assert_int_equal(s.quiet, 40);
	assert_true(fabs(s.quiet_best_s - 1e-3) < 1e-12);
	assert_true(fabs(s.quiet_median_s - (1e-3 + 19.5e-7)) < 1e-12);
	assert_true(fabs(s.best_s - 5e-4) < 1e-12);
	assert_true(fabs(s.median_s - (1e-3 + 15.5e-7)) <
		    1e-12); /* 8 below, then the 40: between the 16th and 17th of them */
	/* Judged against a better burst elsewhere, nothing was quiet. */
	struct fo_burst faster = { 130e9, 50e9, 1 };
	s = fo_quiet_stats(v, 48, &faster);
	assert_true(s.quiet == 0 && isnan(s.quiet_median_s) && isnan(s.quiet_best_s) && s.median_s > 0);
	s = fo_quiet_stats(v, 0, &best);
	assert_true(s.spans == 0 && isnan(s.median_s) && isnan(s.best_s));
}

/* ---- the file ---- */

static char *corpus(struct fo_arena *a, size_t *len)
{
	const char *root = getenv("FLATOUT_SOURCE");
	char *text;
	if (fo_fs_read(a, fo_arena_printf(a, "%s/fuzz/corpus/profile/two_cores.json", root ? root : "."), 1 << 20,
		       &text, len))
		fail_msg("%s", fo_err_text());
	return text;
}

static void load(struct fo_limits *m)
{
	struct fo_arena a = { 0 };
	size_t len;
	char *text = corpus(&a, &len);
	if (fo_limits_parse(text, len, "corpus", m))
		fail_msg("%s", fo_err_text());
	fo_arena_fini(&a);
}

static void test_round_trip(void **state)
{
	(void)state;
	struct fo_limits m, again;
	struct fo_str one = { 0 }, two = { 0 };
	load(&m);
	assert_true(m.rows > 20 && m.peaks == 4);
	fo_limits_json(&m, &one);
	if (fo_limits_parse(one.data, one.len, "written", &again))
		fail_msg("%s", fo_err_text());
	fo_limits_json(&again, &two);
	assert_string_equal(one.data, two.data);
	assert_int_equal(m.rows, again.rows);
	for (size_t i = 0; i < m.rows; i++) {
		assert_true(m.row[i].time.median_s == again.row[i].time.median_s);
		assert_int_equal(isnan(m.row[i].time.quiet_median_s), m.row[i].time.quiet == 0);
	}
	fo_str_fini(&one);
	fo_str_fini(&two);
	fo_limits_fini(&m);
	fo_limits_fini(&again);
}

/* The machine's state: what was known comes back, what was not stays unknown, a profile without it has none. */
static void test_state(void **state)
{
	(void)state;
	struct fo_limits m, again;
	struct fo_str text = { 0 };
	load(&m);
	assert_true(m.state.use.seconds == 0);
	m.state = (struct fo_limits_state){ .use = { .seconds = 10,
						     .steal = 0.25,
						     .clock_hz = 3e9,
						     .throttles = NAN,
						     .limited_s = NAN,
						     .joules = NAN,
						     .load = 2 },
					    .governor = "performance" };
	fo_limits_json(&m, &text);
	if (fo_limits_parse(text.data, text.len, "written", &again))
		fail_msg("%s", fo_err_text());
	const struct fo_state_use *u = &again.state.use;
	assert_true(u->seconds == 10 && u->steal == 0.25 && u->clock_hz == 3e9 && u->load == 2);
	assert_true(isnan(u->throttles) && isnan(u->limited_s) && isnan(u->joules));
	assert_string_equal(again.state.governor, "performance");
	fo_limits_fini(&again);
	fo_limits_fini(&m);
	fo_str_fini(&text);
}

/* Replaces the first `from` of a good profile; what comes out must be refused with this sentence. */
static void refused(const char *from, const char *to, const char *why)
{
	struct fo_arena a = { 0 };
	struct fo_limits m;
	size_t len;
	char *text = corpus(&a, &len), *at = strstr(text, from);
	assert_non_null(at);
	char *wrong = fo_arena_printf(&a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	fo_err_clear();
	if (fo_limits_parse(wrong, strlen(wrong), "file", &m) != FO_EFORMAT || !strstr(fo_err_text(), why))
		fail_msg("'%s' -> '%s': got '%s', expected '%s'", from, to, fo_err_text(), why);
	fo_arena_fini(&a);
}

static void test_refusals(void **state)
{
	(void)state;
	refused("\"schema\": 1", "\"schema\": 2", "schema is 2, expected 1");
	refused("\"isa\": \"avx2\"", "\"isa\": \"AVX 2\"", "isa: expected a word");
	refused("\"isa\": \"avx2\"", "\"isa\": \"avx2avx2avx2avx2\"", "isa: expected a short text");
	refused("\"isa\": \"avx2\"", "\"isa\": 2", "isa: expected a short text");
	refused("\"cache_bytes\": 33554432", "\"cache_bytes\": -1", "cache_bytes: expected an integer");
	refused("\"cache_bytes\": 33554432", "\"cache_bytes\": 1e999", "line");
	refused("\"threads\": 1", "\"threads\": 0", "peaks[0].threads");
	refused("\"threads\": 1", "\"threads\": 2", "peaks[2].dtype: expected one entry for each");
	refused("\"best_flop_s\": 103000000000.0", "\"best_flop_s\": 1e30", "peaks[0].best_flop_s");
	refused("\"best_flop_s\": 103000000000.0", "\"best_flop_s\": 1e9", "peaks[0].median_flop_s");
	refused("\"kind\": \"attention\"", "\"kind\": \"atten\\u001btion\"", "kind");
	refused("\"kind\": \"attention\"", "\"kind\": \"a_very_long_name_of_work\"", "kind: expected a short text");
	refused("\"shape\": [512, 12, 12, 64]", "\"shape\": [512, 12, 12, 64, 1]", "shape: expected a list");
	refused("\"shape\": [512, 12, 12, 64]", "\"shape\": [512, 0, 12, 64]", "shape: expected an integer");
	refused("\"shape\": [512, 12, 12, 64]", "\"shape\": [512, 12.5, 12, 64]", "shape: expected an integer");
	refused("\"quiet\": 70", "\"quiet\": 91", "quiet: expected an integer");
	refused("\"quiet\": 70", "\"quiet\": 0", "quiet: expected quiet times if");
	refused("\"spans\": 90", "\"spans\": 0", "spans");
	refused("\"flop\": ", "\"flop\": -", "flop");
	refused("\"bytes\": ", "\"bytes\": 1e-300, \"x\": ", "bytes: expected 0 or a number of at least 1");
	refused("\"rows\": [", "\"rows\": {}, \"r\": [", "rows: expected a list");
	refused("\"date\"", "\"isa\"", "line"); /* the same key twice */
	refused("\"cache_bytes\"", "\"state\": 1, \"cache_bytes\"", "state: expected an object");
	refused("\"cache_bytes\"", "\"state\": {\"governor\": null, \"seconds\": 1, \"steal\": 2}, \"cache_bytes\"",
		"state.steal: expected a number from 0 to 1, or null, got 2");
	struct fo_limits m;
	assert_int_equal(fo_limits_parse("[]", 2, "file", &m), FO_EFORMAT);
	assert_int_equal(fo_limits_parse("", 0, "file", &m), FO_EFORMAT);
	assert_int_equal(fo_limits_parse("{}", FO_LIMITS_MAX_BYTES + 1, "file", &m), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "at most"));
}

static void test_lookup(void **state)
{
	(void)state;
	struct fo_limits m;
	load(&m);
	const struct fo_limits_row *r = m.row;
	/* Few quiet spans: the median of all is what counts. */
	struct fo_limits_row few = *r;
	assert_true(fo_limits_row_seconds(&few) == few.time.quiet_median_s);
	few.time.quiet = FO_QUIET_ENOUGH - 1;
	assert_true(fo_limits_row_seconds(&few) == few.time.median_s);
	/* 22 GB/s a thread past the caches, less 8 % (quiet median over best, and the seed's factor of 0.9 and 1.02).
	 */
	assert_true(fabs(fo_limits_memory(&m, "copy", 2) / (2 * 22e9 * 0.9 / 1.02) - 1) < 1e-6);
	assert_true(fo_limits_memory(&m, "copy", 3) == 0);
	fo_limits_fini(&m);
}

static void add_peak(struct fo_limits *m, void *ctx)
{
	struct fo_limits_peak p = { .dtype = "f32", .set = "avx2", .threads = 2, .bursts = 1, .median_flop_s = 1e9 };
	p.best_flop_s = *(double *)ctx;
	fo_limits_peak_put(m, &p);
}

static void test_update(void **state)
{
	(void)state;
	char dir[] = "profile-XXXXXX", path[64];
	struct fo_limits m;
	double rate = 2e9;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/deep/machine.json", dir);
	assert_int_equal(fo_limits_update(path, "cpu one", add_peak, &rate), FO_OK);
	rate = 3e9;
	assert_int_equal(fo_limits_update(path, "cpu one", add_peak, &rate), FO_OK);
	assert_int_equal(fo_limits_read(path, &m), FO_OK);
	assert_int_equal(m.peaks, 1); /* replaced, not doubled */
	assert_string_equal(m.cpu, "cpu one");
	assert_true(fo_limits_peak(&m, "f32", 2)->best_flop_s == 3e9);
	assert_null(fo_limits_peak(&m, "f32", 1));
	assert_null(fo_limits_peak(&m, "bf16", 2));
	fo_limits_fini(&m);
	/* Another processor's profile and a damaged one start anew. */
	assert_int_equal(fo_limits_update(path, "cpu two", add_peak, &rate), FO_OK);
	assert_int_equal(fo_limits_read(path, &m), FO_OK);
	assert_string_equal(m.cpu, "cpu two");
	fo_limits_fini(&m);
	assert_int_equal(fo_fs_write_atomic(path, "{\"schema\": 1", 12), FO_OK);
	assert_int_equal(fo_limits_read(path, &m), FO_EFORMAT);
	assert_int_equal(fo_limits_update(path, "cpu two", add_peak, &rate), FO_OK);
	assert_int_equal(fo_limits_read(path, &m), FO_OK);
	fo_limits_fini(&m);
	assert_int_equal(fo_fs_remove_tree(dir), FO_OK);
	assert_int_equal(fo_limits_read(path, &m), FO_EIO);
}

/* A peak may only rise, unless it was measured in another way. */
static void test_raise(void **state)
{
	(void)state;
	struct fo_limits m = { 0 };
	struct fo_limits_peak p = { .dtype = "f32", .method = "one", .threads = 1, .bursts = 50, .clean_bursts = 3 };
	p.best_flop_s = 5e9;
	fo_limits_peak_raise(&m, &p);
	assert_false(fo_limits_peak_sure(&m.peak[0]));
	p.best_flop_s = 4e9, p.clean_bursts = 40;
	fo_limits_peak_raise(&m, &p);
	assert_true(m.peaks == 1 && m.peak[0].best_flop_s == 5e9 && fo_limits_peak_sure(&m.peak[0]));
	p.best_flop_s = 6e9, p.clean_bursts = 20;
	fo_limits_peak_raise(&m, &p);
	assert_true(m.peaks == 1 && m.peak[0].best_flop_s == 6e9);
	p.best_flop_s = 1e9;
	snprintf(p.method, sizeof p.method, "two");
	fo_limits_peak_raise(&m, &p);
	assert_true(m.peaks == 1 && m.peak[0].best_flop_s == 1e9);
	fo_limits_fini(&m);
}

/* ---- the picture ---- */

/* A small reader of XML: elements nest and end, attributes are quoted, no stray '<' or '&'. NULL: well formed. */
static const char *malformed(const char *s)
{
	const char *open[32];
	size_t len[32];
	int depth = 0;
	for (; *s; s++) {
		if (*s == '&' &&
		    (s[1] != '#' || !strspn(s + 2, "0123456789") || s[2 + strspn(s + 2, "0123456789")] != ';'))
			return s; /* ours are all numeric */
		if (*s != '<')
			continue;
		const char *from = s + 1;
		bool close = *from == '/';
		size_t n = strcspn(from += close, " >/");
		char quote = 0;
		for (; *s && (quote || *s != '>'); s++) {
			if (quote ? *s == quote : *s == '"' || *s == '\'')
				quote = quote ? 0 : *s;
			else if (quote && *s == '<')
				return s;
		}
		if (!*s)
			return from;
		if (close && (--depth < 0 || len[depth] != n || memcmp(open[depth], from, n)))
			return from;
		if (!close && s[-1] != '/') {
			if (depth == 32)
				return from;
			open[depth] = from;
			len[depth++] = n;
		}
	}
	return depth ? open[depth - 1] : NULL;
}

static void test_svg(void **state)
{
	(void)state;
	struct fo_limits m;
	struct fo_roofline r;
	struct fo_str s = { 0 };
	assert_null(malformed("<a b=\"1\"><c/>x &#38; y</a>"));
	assert_non_null(malformed("<a><b></a></b>"));
	assert_non_null(malformed("<a>&b</a>"));
	load(&m);
	snprintf(m.cpu, sizeof m.cpu, "</title><script>alert('x')</script>&\"\x1b[31m\xff");
	snprintf(m.isa, sizeof m.isa, "<i>");
	snprintf(m.row[0].kind, sizeof m.row[0].kind, "a<b>\"'&");
	assert_int_equal(fo_roofline_init(&r, &m), FO_OK);
	fo_roofline_svg(&r, &s);
	const char *at = malformed(s.data);
	if (at)
		fail_msg("not well formed at: %.60s", at);
	assert_null(strstr(s.data, "<script"));
	assert_null(strstr(s.data, "<i>"));
	assert_null(strchr(s.data, '\x1b'));
	assert_null(strchr(s.data, '\xff'));
	assert_non_null(strstr(s.data, "&#60;/title&#62;&#60;script&#62;"));
	assert_non_null(strstr(s.data, "prefers-color-scheme:dark"));
	assert_null(strstr(s.data, "http://www.w3.org/1999")); /* nothing is loaded from elsewhere */
	assert_null(strstr(s.data, "href"));
	assert_null(strstr(s.data, "nan"));
	assert_null(strstr(s.data, "inf"));
	int marks = 0;
	for (const char *p = s.data; (p = strstr(p, "class=\"m ")); p++)
		marks++;
	assert_int_equal(marks, (int)r.n + 10); /* and two legends of five marks */
	fo_roofline_fini(&r);
	fo_str_fini(&s);
	fo_limits_fini(&m);
}

static void test_text(void **state)
{
	(void)state;
	struct fo_limits m;
	struct fo_roofline r;
	load(&m);
	assert_int_equal(fo_roofline_init(&r, &m), FO_OK);
	assert_int_equal(r.threads, 2);
	assert_true(r.peak[0] == 206e9 && r.memory_byte_s > 30e9);
	for (int utf8 = 0; utf8 < 2; utf8++) {
		struct fo_str s = { 0 };
		int columns = 0;
		fo_roofline_text(&r, utf8, false, &s);
		for (const char *p = s.data; *p; p++) {
			assert_true(utf8 || (unsigned char)*p < 0x80);
			columns = *p == '\n' ? 0 : columns + (((unsigned char)*p & 0xc0) != 0x80);
			assert_true(columns <= 80);
		}
		assert_null(strchr(s.data, '\033'));
		assert_non_null(strstr(s.data, "peak 206 GFLOP/s"));
		assert_non_null(strstr(s.data, "(copy)"));
		fo_str_fini(&s);
	}
	struct fo_str s = { 0 };
	fo_roofline_text(&r, true, true, &s);
	assert_non_null(strchr(s.data, '\033'));
	fo_str_fini(&s);
	fo_roofline_fini(&r);
	/* Nothing to draw is said, not drawn. */
	m.peaks = 0;
	assert_int_equal(fo_roofline_init(&r, &m), FO_EARG);
	m.rows = 0;
	assert_int_equal(fo_roofline_init(&r, &m), FO_EARG);
	fo_limits_fini(&m);
}

/* Signature and share of cold bytes come back as they were; a row without them has none. */
static void test_operation_rows(void **state)
{
	(void)state;
	struct fo_limits m = { .cpu = "x", .isa = "ref" }, again;
	struct fo_limits_row r = { .kind = "adamw_master_many",
				   .variant = "-",
				   .dtype = "bf16",
				   .set = "ref",
				   .threads = 2,
				   .dim = { 768, 2048 },
				   .bytes = 1e6,
				   .key = UINT64_C(0x00fedcba98765432),
				   .cold = 0.625,
				   .time = { 3, 0, 1e-3, 2e-3, NAN, NAN } };
	struct fo_str s = { 0 };
	fo_limits_row_add(&m, &r);
	r.key = 0;
	r.cold = NAN;
	fo_limits_row_add(&m, &r);
	fo_limits_json(&m, &s);
	if (fo_limits_parse(s.data, s.len, "text", &again) != FO_OK)
		fail_msg("%s", fo_err_text());
	assert_string_equal(again.row[0].kind, "adamw_master_many");
	assert_true(again.row[0].key == UINT64_C(0x00fedcba98765432) && again.row[0].cold == 0.625);
	assert_true(again.row[1].key == 0 && isnan(again.row[1].cold));
	fo_limits_fini(&again);
	/* Neither may be anything else. */
	static const char *const wrong[][2] = { { "00fedcba98765432", "00fedcba9876543" },
						{ "00fedcba98765432", "00FEDCBA98765432" },
						{ "0.625", "1.625" } };
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct fo_str bad = { 0 };
		const char *at = strstr(s.data, wrong[i][0]);
		assert_non_null(at);
		fo_str_append(&bad, s.data, (size_t)(at - s.data));
		fo_str_puts(&bad, wrong[i][1]);
		fo_str_puts(&bad, at + strlen(wrong[i][0]));
		assert_int_equal(fo_limits_parse(bad.data, bad.len, "text", &again), FO_EFORMAT);
		fo_str_fini(&bad);
	}
	fo_str_fini(&s);
	fo_limits_fini(&m);
}

/* A row with quiet spans gives way to a quiet one and to other kernels, not to one without any; and only to one of its
 * own work. */
static void test_keep(void **state)
{
	(void)state;
	struct fo_limits m = { .cpu = "x", .isa = "ref" };
	struct fo_limits_row quiet = { .kind = "copy",
				       .variant = "plain",
				       .dtype = "-",
				       .set = "-",
				       .threads = 2,
				       .dim = { 1 << 20 },
				       .bytes = 1 << 20,
				       .cold = NAN,
				       .time = { 9, 5, 1e-3, 2e-3, 1e-3, 1.5e-3 } },
			     busy = quiet, other;
	busy.time = (struct fo_quiet_stats){ 9, 0, 3e-3, 4e-3, NAN, NAN };
	fo_limits_row_add(&m, &quiet);
	const struct fo_limits_row *old = fo_limits_row_find(&m, &busy);
	assert_ptr_equal(old, m.row);
	assert_ptr_equal(fo_limits_row_keep(old, &busy), old);
	assert_ptr_equal(fo_limits_row_keep(old, &quiet), &quiet);
	assert_ptr_equal(fo_limits_row_keep(&busy, &quiet), &quiet);
	assert_ptr_equal(fo_limits_row_keep(&busy, &busy), &busy);
	assert_ptr_equal(fo_limits_row_keep(NULL, &busy), &busy);
	other = busy;
	snprintf(other.set, sizeof other.set, "avx2");
	assert_ptr_equal(fo_limits_row_keep(old, &other), &other);
	other = quiet, other.threads = 1;
	assert_null(fo_limits_row_find(&m, &other));
	other = quiet, other.dim[0]++;
	assert_null(fo_limits_row_find(&m, &other));
	other = quiet, other.key = 1;
	assert_null(fo_limits_row_find(&m, &other));
	other = quiet, other.cold = 0.5;
	assert_null(fo_limits_row_find(&m, &other));
	other = quiet, other.variant[0] = 'n';
	assert_null(fo_limits_row_find(&m, &other));
	fo_limits_fini(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_quiet),      cmocka_unit_test(test_operation_rows),
					    cmocka_unit_test(test_round_trip), cmocka_unit_test(test_state),
					    cmocka_unit_test(test_refusals),   cmocka_unit_test(test_lookup),
					    cmocka_unit_test(test_update),     cmocka_unit_test(test_svg),
					    cmocka_unit_test(test_text),       cmocka_unit_test(test_raise),
					    cmocka_unit_test(test_keep) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
