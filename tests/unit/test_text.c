/* Streams of documents: formats, damage, limits, and going on from any place. JSON is compared with jansson. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "data/text.h"
#include "support/must.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static char scratch[] = "/tmp/flatout_text_XXXXXX";

static const char *in_scratch(const char *name)
{
	static char path[4][512];
	static int turn;
	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof path[turn], "%s/%s", scratch, name);
	return path[turn];
}

static const char *put(const char *name, const void *bytes, size_t len)
{
	const char *path = in_scratch(name);
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
	return path;
}
static const char *put_text(const char *name, const char *text) { return put(name, text, strlen(text)); }

/* One gzip member, appended. */
static void gz(struct fo_str *out, const void *bytes, size_t len)
{
	z_stream z = { 0 };
	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	size_t bound = deflateBound(&z, len);
	unsigned char *to = malloc(bound);
	z.next_in = (unsigned char *)(uintptr_t)bytes;
	z.avail_in = (uInt)len;
	z.next_out = to;
	z.avail_out = (uInt)bound;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	fo_str_append(out, to, bound - z.avail_out);
	deflateEnd(&z);
	free(to);
}

static void zst(struct fo_str *out, const void *bytes, size_t len)
{
	size_t bound = ZSTD_compressBound(len);
	void *to = malloc(bound);
	size_t n = ZSTD_compress(to, bound, bytes, len, 3);
	assert_false(ZSTD_isError(n));
	fo_str_append(out, to, n);
	free(to);
}

/* All documents of some inputs: texts end to end, a line of "file line length" for each. */
struct all {
	struct fo_str text, list;
	int64_t docs, parts, dropped;
	struct fo_text_counts counts;
};
static void all_fini(struct all *a)
{
	fo_str_fini(&a->text);
	fo_str_fini(&a->list);
}

static fo_status read_parts(struct fo_text *t, const char *field, bool skip_bad, struct all *a)
{
	size_t start = a->text.len;
	for (;;) {
		struct fo_text_part p;
		FO_TRY(fo_text_next(t, &p));
		if (!p.bytes)
			return FO_OK;
		a->parts++;
		if (p.dropped) {
			a->text.len = start;
			a->dropped++;
			continue;
		}
		if (p.json) {
			fo_status st = fo_text_field(p.bytes, p.len, field, &p.bytes, &p.len);
			if (st != FO_OK && skip_bad) {
				a->counts.bad++;
				continue;
			}
			FO_TRY(st);
		}
		if (p.begins)
			start = a->text.len;
		fo_str_append(&a->text, p.bytes, p.len);
		if (p.ends) {
			a->docs++;
			fo_str_printf(&a->list, "%lld %lld %zu\n", (long long)p.file, (long long)p.line,
				      a->text.len - start);
			start = a->text.len;
		}
	}
}

static fo_status read_all(const char *const *paths, size_t n, const struct fo_text_options *o, struct all *a)
{
	struct fo_text *t;
	*a = (struct all){ 0 };
	FO_TRY(fo_text_open(&t, (char *const *)(uintptr_t)paths, n, o));
	fo_status st = read_parts(t, o->field ? o->field : "text", o->skip_bad, a);
	struct fo_text_counts c = fo_text_counts(t);
	c.bad += a->counts.bad;
	a->counts = c;
	fo_text_close(t);
	return st;
}

static fo_status read_one(const char *path, const struct fo_text_options *o, struct all *a)
{
	static const struct fo_text_options none;
	return read_all(&path, 1, o ? o : &none, a);
}

static void expect(const char *path, const struct fo_text_options *o, fo_status st, const char *says)
{
	struct all a;
	fo_err_clear();
	assert_int_equal(read_one(path, o, &a), st);
	if (!strstr(fo_err_text(), says))
		fail_msg("expected '%s' in: %s", says, fo_err_text());
	if (strchr(fo_err_text(), '\n'))
		fail_msg("more than a sentence: %s", fo_err_text());
	all_fini(&a);
}

/* Several mebibytes of lines of letters, the same each time. */
static void long_text(struct fo_str *s, size_t bytes)
{
	for (uint64_t i = 0; s->len < bytes; i++)
		fo_str_printf(s, "line %llu %016llx \xe4\xb8\xad\n", (unsigned long long)i,
			      (unsigned long long)fo_rng_u64(9, i));
}

static void test_packed_files_are_unpacked(void **state)
{
	(void)state;
	struct fo_str s = { 0 }, g = { 0 }, two = { 0 }, z = { 0 }, frames = { 0 };
	long_text(&s, (size_t)7 << 19);
	gz(&g, s.data, s.len);
	gz(&two, s.data, 1000);
	gz(&two, "", 0);
	gz(&two, s.data + 1000, s.len - 1000);
	fo_str_append(&two, "\0\0\0\0\0", 5); /* tapes pad with zeros */
	zst(&z, s.data, s.len);
	zst(&frames, s.data, 77777);
	fo_str_append(&frames, "\x50\x2a\x4d\x18\x03\0\0\0abc", 11); /* a skippable frame */
	zst(&frames, s.data + 77777, s.len - 77777);
	/* The names say the wrong thing on purpose. */
	const char *const path[] = { put("plain.gz", s.data, s.len), put("g.txt", g.data, g.len),
				     put("two.zst", two.data, two.len), put("z", z.data, z.len) };
	struct all a, first = { 0 };
	for (int i = 0; i < 5; i++) {
		must(read_one(i < 4 ? path[i] : put("frames", frames.data, frames.len), NULL, &a));
		assert_int_equal(a.docs, 1);
		assert_true(a.parts >= 4);
		assert_int_equal(a.text.len, s.len);
		assert_memory_equal(a.text.data, s.data, s.len);
		if (i == 0)
			first = a;
		else
			assert_int_equal(a.parts, first.parts); /* cut at the same places, whatever it came from */
		if (i)
			all_fini(&a);
	}
	all_fini(&first);
	fo_str_fini(&s);
	fo_str_fini(&g);
	fo_str_fini(&two);
	fo_str_fini(&z);
	fo_str_fini(&frames);
}

static void test_which_files_are_json_lines(void **state)
{
	(void)state;
	static const char lines[] =
		"\n{\"text\": "
		"\"one\"}\r\n{\"id\":[1,{\"text\":\"inner\"}],\"text\":\"t\\u00e9\\n\"}\n\n{\"text\":\"\"}";
	struct all a;
	must(read_one(put_text("anyname", lines), NULL, &a));
	assert_string_equal(a.list.data, "0 2 3\n0 3 4\n0 5 0\n"); /* numbered as an editor does */
	assert_string_equal(a.text.data, "onet\xc3\xa9\n");
	all_fini(&a);
	must(read_one(put_text("bom", "\xef\xbb\xbf{\"text\":\"x\"}\n"), NULL,
		      &a)); /* a byte order mark hides the brace */
	assert_int_equal(a.docs, 1);
	all_fini(&a);
	/* An object without the field is a text like any other, unless the name or the user says what it is. */
	must(read_one(put_text("settings.json", "{\"a\": 1}\n{\"text\": \"x\"}\n"), NULL, &a));
	assert_int_equal(a.docs, 1);
	assert_string_equal(a.text.data, "{\"a\": 1}\n{\"text\": \"x\"}\n");
	all_fini(&a);
	expect(put_text("x.jsonl", "{\"a\": 1, \"body\": \"x\"}\n"), NULL, FO_EFORMAT,
	       "no field 'text'; there are 'a', 'body'");
	expect(put_text("x.ndjson.gz", "no json\n"), NULL, FO_EFORMAT, "expected '{'");
	expect(put_text("y", "{\"a\": 1}"), &(struct fo_text_options){ .format = FO_TEXT_JSONL }, FO_EFORMAT,
	       "no field 'text'");
	must(read_one(put_text("y", "{\"a\": 1}"), &(struct fo_text_options){ .format = FO_TEXT_PLAIN }, &a));
	assert_string_equal(a.text.data, "{\"a\": 1}");
	all_fini(&a);
	must(read_one(put_text("x.jsonl", "{\"a\": 1, \"body\": \"x\"}\n"),
		      &(struct fo_text_options){ .field = "body" }, &a));
	assert_string_equal(a.text.data, "x");
	all_fini(&a);
}

/* Does jansson read an object with a string at key `text`? Then fo_text_field must give the same bytes. */
static void compare_with_jansson(const char *line, size_t len, int *agreed, int *refused)
{
	json_t *root = json_loadb(line, len, JSON_ALLOW_NUL, NULL), *value = json_object_get(root, "text");
	char *copy = malloc(len + 1), *text = NULL;
	size_t n = 0;
	memcpy(copy, line, len);
	fo_status st = fo_text_field(copy, len, "text", &text, &n);
	if (json_is_string(value)) {
		if (st != FO_OK)
			fail_msg("refused '%.*s': %s", (int)len, line, fo_err_text());
		assert_int_equal(n, json_string_length(value));
		assert_memory_equal(text, json_string_value(value), n);
		++*agreed;
	} else if (root) {
		assert_int_equal(st, FO_EFORMAT); /* good JSON without the text */
	}
	*refused += st != FO_OK;
	json_decref(root);
	free(copy);
}

static void test_json_as_jansson_reads_it(void **state)
{
	(void)state;
	static const char *const line[] = {
		"{\"text\":\"a\\\"b\\\\c\\/d\\b\\f\\n\\r\\t\\u0041\\u00e9\\u4e2d\\ud83d\\ude00\\u0000.\"}",
		("  {  \"a\" : [ ] , \"b\":{},\"c\":[[1,-0.5e+7,2E-3],{\"text\":\"no\"}],\"text\" : \"yes\" , "
		 "\"z\":null } \r"),
		"{\"te\\u0078t\":\"escaped key\"}",
		"{\"text\":\"first\",\"text\":\"last\"}",
		"{\"text\":1,\"text\":\"last\"}",
		"{\"text\":\"first\",\"text\":1}",
		"{\"text\":\"\"}",
		"{\"a\":true,\"b\":false,\"text\":\"\xf0\x9f\x98\x80\"}",
		"[\"text\"]",
		"{}",
	};
	int agreed = 0, refused = 0;
	for (size_t i = 0; i < sizeof line / sizeof *line; i++)
		compare_with_jansson(line[i], strlen(line[i]), &agreed, &refused);
	assert_int_equal(agreed, 7);
	/* Damaged copies: where jansson takes one, so must we. */
	for (uint64_t i = 0; i < 60000; i++) {
		char copy[256];
		size_t n = strlen(line[i % 8]);
		memcpy(copy, line[i % 8], n);
		static const char letters[] = "\"\\{}[],:0123456789eE.+-untrfabc \n\t\xff";
		for (uint64_t k = 0, edits = 1 + fo_rng_u64(3, i) % 3; k < edits; k++)
			copy[fo_rng_u64(i, 2 * k) % n] = letters[fo_rng_u64(i, 2 * k + 1) % (sizeof letters - 1)];
		compare_with_jansson(copy, n - fo_rng_u64(4, i) % 2, &agreed, &refused);
	}
	assert_true(agreed > 3000 && refused > 10000);
}

static void test_each_bad_line_is_told(void **state)
{
	(void)state;
	static const struct {
		const char *line, *says;
	} bad[] = {
		{ "", NULL },
		{ "[1]", "expected '{'" },
		{ "{\"text\":\"a\"} x", "more than one value" },
		{ "{\"text\":\"a\"", "expected ',' or '}'" },
		{ "{\"text\" \"a\"}", "expected ':'" },
		{ "{text:\"a\"}", "expected a key" },
		{ "{\"text\":\"a", "without an end" },
		{ "{\"text\":\"a\tb\"}", "control character" },
		{ "{\"text\":\"\\x41\"}", "escape" },
		{ "{\"text\":\"\\u12g4\"}", "escape" },
		{ "{\"text\":\"\\", "escape" },
		{ "{\"a\":01,\"text\":\"a\"}", "expected a value" },
		{ "{\"a\":1.,\"text\":\"a\"}", "digits after its point" },
		{ "{\"a\":1e,\"text\":\"a\"}", "exponent" },
		{ "{\"a\":nul,\"text\":\"a\"}", "expected a value" },
		{ "{\"a\":[1 2],\"text\":\"a\"}", "expected ',' or ']'" },
		{ "{\"text\":null}", "is null, expected a text" },
		{ "{\"text\":[\"a\"]}", "is a list, expected a text" },
		{ "{\"txt\":\"a\"}", "no field 'text'; there are 'txt'" },
		{ "{}", "no field 'text'; there is none" },
	};
	for (size_t i = 1; i < sizeof bad / sizeof *bad; i++) {
		char file[512];
		snprintf(file, sizeof file, "{\"text\":\"good\"}\n\n%s\n{\"text\":\"also\"}\n", bad[i].line);
		const char *path = put_text("bad.jsonl", file);
		expect(path, NULL, FO_EFORMAT, bad[i].says);
		struct all a;
		must(read_one(path, &(struct fo_text_options){ .skip_bad = true }, &a));
		assert_int_equal(a.counts.bad, 1);
		assert_string_equal(a.list.data, "0 1 4\n0 4 4\n");
		all_fini(&a);
	}
	/* Deep values, closed properly. */
	for (int depth = 126; depth <= 129; depth++) {
		struct fo_str s = { 0 };
		fo_str_puts(&s, "{\"a\":");
		for (int k = 0; k < depth; k++)
			fo_str_puts(&s, "[");
		for (int k = 0; k < depth; k++)
			fo_str_puts(&s, "]");
		fo_str_puts(&s, ",\"text\":\"x\"}");
		char *text;
		size_t n;
		assert_int_equal(fo_text_field(s.data, s.len, "text", &text, &n), depth <= 127 ? FO_OK : FO_EFORMAT);
		fo_str_fini(&s);
	}
	/* Half a surrogate pair, and broken UTF-8, which stays as it is. */
	char half[] = "{\"text\":\"\\ud800x\\udc00\xff\"}", *text;
	size_t n;
	must(fo_text_field(half, strlen(half), "text", &text, &n));
	assert_int_equal(n, 8);
	assert_memory_equal(text, "\xef\xbf\xbdx\xef\xbf\xbd\xff", 8);
}

static void test_long_lines(void **state)
{
	(void)state;
	struct fo_str s = { 0 };
	struct all a;
	fo_str_puts(&s, "{\"text\":\"short\"}\n{\"text\":\"");
	for (int i = 0; i < 300000; i++)
		fo_str_puts(&s, "0123456789");
	fo_str_puts(&s, "\"}\n{\"text\":\"after\"}\n");
	const char *path = put("long.jsonl", s.data, s.len);
	must(read_one(path, NULL, &a)); /* 3 MB are below the default of 64 MiB */
	assert_string_equal(a.list.data, "0 1 5\n0 2 3000000\n0 3 5\n");
	all_fini(&a);
	struct fo_text_options o = { .max_document = 1 << 20 };
	expect(path, &o, FO_EFORMAT, "long.jsonl':2: the line is longer than 1048576 bytes");
	o.skip_bad = true;
	must(read_one(path, &o, &a));
	assert_string_equal(a.list.data, "0 1 5\n0 3 5\n");
	assert_int_equal(a.counts.bad, 1);
	all_fini(&a);
	fo_str_fini(&s);
}

static void test_damaged_archives(void **state)
{
	(void)state;
	struct fo_str lines = { 0 }, text = { 0 }, g = { 0 }, z = { 0 }, gt = { 0 };
	struct all a;
	const struct fo_text_options skip = { .skip_bad = true, .format = FO_TEXT_JSONL },
				     stop = { .format = FO_TEXT_JSONL };
	for (int i = 0; i < 200; i++)
		fo_str_printf(&lines, "{\"text\":\"document %d %016llx\"}\n", i,
			      (unsigned long long)fo_rng_u64(1, (uint64_t)i));
	gz(&g, lines.data, lines.len);
	zst(&z, lines.data, lines.len);
	long_text(&text, (size_t)3 << 20);
	gz(&gt, text.data, text.len);
	for (size_t n = 19; n < g.len; n += g.len / 37) { /* cut anywhere */
		expect(put("cut.gz", g.data, n), &stop, FO_EFORMAT, "the file was cut");
		must(read_one(in_scratch("cut.gz"), &skip, &a));
		assert_int_equal(a.counts.bad, 1);
		assert_true(a.docs < 200 && a.text.len <= lines.len);
		all_fini(&a);
	}
	for (size_t n = 7; n < z.len; n += z.len / 37)
		expect(put("cut.zst", z.data, n), &stop, FO_EFORMAT, "the file was cut");
	g.data[g.len / 2] ^= 1;
	expect(put("flipped.gz", g.data, g.len), &stop, FO_EFORMAT, "");
	g.data[g.len / 2] ^= 1;
	fo_str_puts(&g, "garbage");
	expect(put("tail.gz", g.data, g.len), &stop, FO_EFORMAT, "no gzip follow");
	fo_str_puts(&z, "garbage");
	expect(put("tail.zst", z.data, z.len), &stop, FO_EFORMAT, "no Zstandard follow");
	expect(put("junk.zst", "\x28\xb5\x2f\xfd\x20\x05\xff\xff\xff\xff\xff\xff", 12), NULL, FO_EFORMAT, "damaged");
	/* A text is a document as a whole: what came before the damage is taken back. */
	put("half.gz", gt.data, gt.len - 100);
	expect(in_scratch("half.gz"), NULL, FO_EFORMAT, "the file was cut");
	const char *const both[] = { in_scratch("half.gz"), put_text("good", "good\n") };
	must(read_all(both, 2, &(struct fo_text_options){ .skip_bad = true }, &a));
	assert_int_equal(a.dropped, 1);
	assert_string_equal(a.list.data, "1 0 5\n");
	assert_int_equal(a.text.len, 5);
	all_fini(&a);
	fo_str_fini(&lines);
	fo_str_fini(&text);
	fo_str_fini(&g);
	fo_str_fini(&gt);
	fo_str_fini(&z);
}

static void test_bombs_and_large_windows(void **state)
{
	(void)state;
	struct fo_str frame = { 0 }, bomb = { 0 };
	struct all a;
	char *line = malloc(1 << 20);
	memset(line, 'a', 1 << 20);
	zst(&frame, line, 1 << 20);
	for (int i = 0; i < 70; i++) /* 70 MiB out of some kilobytes */
		fo_str_append(&bomb, frame.data, frame.len);
	const char *path = put("bomb", bomb.data, bomb.len);
	expect(path, NULL, FO_EFORMAT, "more than 200 times");
	assert_non_null(strstr(fo_err_hint(), "--max-expand"));
	must(read_one(path, &(struct fo_text_options){ .max_expand = 1e6 }, &a));
	assert_int_equal(a.text.len, (size_t)70 << 20);
	all_fini(&a);
	must(read_one(put("mild", bomb.data, frame.len * 60), NULL, &a)); /* below 64 MiB nothing is suspicious */
	all_fini(&a);
	frame.len = bomb.len = 0;
	gz(&frame, line, 1 << 20);
	for (int i = 0; i < 70; i++)
		fo_str_append(&bomb, frame.data, frame.len);
	expect(put("gzip bomb", bomb.data, bomb.len), NULL, FO_EFORMAT, "more than 200 times");
	ZSTD_CCtx *c = ZSTD_createCCtx(); /* a window of 256 MiB, declared in the header */
	ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, 28);
	ZSTD_inBuffer in = { line, 1000, 0 };
	ZSTD_outBuffer out = { line + 2000, 10000, 0 };
	while (ZSTD_compressStream2(c, &out, &in, ZSTD_e_continue) && in.pos < in.size)
		;
	assert_int_equal(ZSTD_compressStream2(c, &out, &in, ZSTD_e_end), 0);
	ZSTD_freeCCtx(c);
	expect(put("window", line + 2000, out.pos), NULL, FO_EFORMAT, "window of more than 128 MiB");
	free(line);
	fo_str_fini(&frame);
	fo_str_fini(&bomb);
}

static void test_files_that_are_no_text(void **state)
{
	(void)state;
	struct fo_str s = { 0 };
	struct all a;
	long_text(&s, (size_t)3 << 20);
	s.data[s.len - 10] = 0; /* late: parts of it were handed out */
	const char *const path[] = { put("nul", "a\0b", 3), put("late", s.data, s.len), put("none", "", 0),
				     put("bad utf8", "\xff\xfe\x80 stays\n", 10) };
	must(read_all(path, 4, &(struct fo_text_options){ 0 }, &a));
	assert_string_equal(a.list.data, "3 0 10\n");
	assert_memory_equal(a.text.data, "\xff\xfe\x80 stays\n", 10);
	assert_int_equal(a.counts.files, 4);
	assert_int_equal(a.counts.binary, 2);
	assert_int_equal(a.counts.empty, 1);
	assert_int_equal(a.dropped, 1);
	all_fini(&a);
	fo_str_fini(&s);
}

static void test_inputs(void **state)
{
	(void)state;
	must(fo_fs_mkdirs(in_scratch("in/b")));
	put_text("in/a1.txt", "1");
	put_text("in/a2.txt", "2");
	put_text("in/b/[x]?.txt", "3");
	put_text("in/.hidden", "4");
	struct all a;
	const char *const path[] = { in_scratch("in/a*.txt"), in_scratch("in/b/[x]?.txt"), in_scratch("in") };
	must(read_all(path, 3, &(struct fo_text_options){ 0 }, &a));
	assert_string_equal(a.text.data, "123123"); /* the pattern, the file of that very name, the folder */
	all_fini(&a);
	expect(in_scratch("in/nothing*"), NULL, FO_EIO, "no file matches");
	expect(in_scratch("in/absent"), NULL, FO_EIO, "no such file");
	must(fo_fs_mkdirs(in_scratch("empty")));
	expect(in_scratch("empty"), NULL, FO_EARG, "holds no files");
	struct fo_text *t;
	assert_int_equal(fo_text_open(&t, (char *[]){ "-", "-" }, 2, &(struct fo_text_options){ 0 }), FO_EARG);
	assert_int_equal(fo_text_open(&t, NULL, 0, &(struct fo_text_options){ 0 }), FO_EARG);
}

static void test_going_on_from_any_place(void **state)
{
	(void)state;
	struct fo_str s = { 0 }, lines = { 0 }, g = { 0 };
	long_text(&s, (size_t)5 << 19);
	for (int i = 0; i < 20; i++)
		fo_str_printf(&lines, "{\"text\":\"%d\"}\n", i);
	gz(&g, s.data, s.len);
	const char *const path[] = { put("g1.gz", g.data, g.len), put("l.jsonl", lines.data, lines.len),
				     put("nul2", "a\0b", 3), put_text("end", "end\n") };
	struct fo_text_options o = { 0 };
	struct fo_text *t, *again;
	struct fo_text_part p;
	struct all whole;
	must(read_all(path, 4, &o, &whole));
	must(fo_text_open(&t, (char *const *)(uintptr_t)path, 4, &o));
	struct fo_text_place place = fo_text_place(t), middle = { 0 };
	for (int64_t parts = 0;; parts++) {
		struct all rest = { 0 };
		must(fo_text_open(&again, (char *const *)(uintptr_t)path, 4, &o));
		must(fo_text_seek(again, &place));
		must(read_parts(again, "text", false, &rest));
		assert_int_equal(rest.parts, whole.parts - parts);
		assert_int_equal(fo_text_counts(again).binary, 1);
		assert_int_equal(fo_text_counts(again).files, 4);
		assert_memory_equal(rest.text.data ? rest.text.data : "",
				    whole.text.data + whole.text.len - rest.text.len, rest.text.len);
		fo_text_close(again);
		all_fini(&rest);
		must(fo_text_next(t, &p));
		place = fo_text_place(t);
		middle = parts == 1 ? place : middle;
		if (!p.bytes)
			break;
	}
	fo_text_close(t);
	assert_true(middle.open && middle.offset > 0);
	middle.digest ^= 1;
	must(fo_text_open(&again, (char *const *)(uintptr_t)path, 4, &o));
	assert_int_equal(fo_text_seek(again, &middle), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "is not the input that was read before"));
	fo_text_close(again);
	all_fini(&whole);
	fo_str_fini(&s);
	fo_str_fini(&lines);
	fo_str_fini(&g);
}

static int make_scratch(void **state)
{
	(void)state;
	return mkdtemp(scratch) ? 0 : -1;
}
static int remove_scratch(void **state)
{
	(void)state;
	return fo_fs_remove_tree(scratch) == FO_OK ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_packed_files_are_unpacked),
		cmocka_unit_test(test_which_files_are_json_lines),
		cmocka_unit_test(test_json_as_jansson_reads_it),
		cmocka_unit_test(test_each_bad_line_is_told),
		cmocka_unit_test(test_long_lines),
		cmocka_unit_test(test_damaged_archives),
		cmocka_unit_test(test_bombs_and_large_windows),
		cmocka_unit_test(test_files_that_are_no_text),
		cmocka_unit_test(test_inputs),
		cmocka_unit_test(test_going_on_from_any_place),
	};
	return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
