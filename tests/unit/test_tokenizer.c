/* The tokenizer: against Hugging Face's ids (tests/golden/tokenizer_make.py), against a trainer that recounts
 * everything for each merge, on arbitrary bytes, and on hostile files. */
#include "base/clock.h"
#include "base/fs.h"
#include "data/data_int.h"
#include "support/must.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch[] = "/tmp/flatout_tokenizer_XXXXXX";
static const char *const golden_names[] = { "tokenizer_flatout.json", "tokenizer_gpt2.json", "tokenizer_llama3.json" };

static const char *golden(const char *name)
{
	static char path[4096];
	const char *root = getenv("FLATOUT_SOURCE");
	snprintf(path, sizeof path, "%s/tests/golden/%s", root ? root : ".", name);
	return path;
}

static const char *in_scratch(const char *name)
{
	static char path[4096];
	snprintf(path, sizeof path, "%s/%s", scratch, name);
	return path;
}

static void slurp(struct fo_arena *a, const char *path, char **text, size_t *len)
{
	must(fo_fs_read(a, path, (size_t)1 << 24, text, len));
}

static struct fo_tokenizer *load(const char *path)
{
	struct fo_tokenizer *t;
	must(fo_tokenizer_load(path, &t));
	return t;
}

static void assert_round_trip(const struct fo_tokenizer *t, const char *text, size_t len)
{
	int32_t *ids = NULL;
	size_t n = 0, cap = 0;
	struct fo_str back = { 0 };
	must(fo_tokenizer_encode(t, text, len, &ids, &n, &cap));
	for (size_t i = 0; i < n; i++)
		assert_in_range(ids[i], 0, (uintmax_t)t->vocab - 1);
	fo_tokenizer_decode(t, ids, n, &back);
	assert_int_equal(back.len, len);
	if (len)
		assert_memory_equal(back.data, text, len);
	fo_str_fini(&back);
	free(ids);
}

static void test_same_ids_as_hugging_face(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	size_t len, ids_len;
	char *text, *want;
	slurp(&a, golden("tokenizer_text.txt"), &text, &len);
	slurp(&a, golden("tokenizer_ids.txt"), &want, &ids_len);
	for (int i = 0; i < 3; i++) {
		struct fo_tokenizer *t = load(golden(golden_names[i])), *again;
		must(fo_tokenizer_save(t, in_scratch("again.json")));
		must(fo_tokenizer_load(in_scratch("again.json"), &again));
		assert_true(t->checksum == again->checksum);
		char *p = strstr(want, golden_names[i]);
		assert_non_null(p);
		p += strlen(golden_names[i]);
		int32_t *ids = NULL;
		size_t n = 0, cap = 0;
		must(fo_tokenizer_encode(t, text, len, &ids, &n, &cap));
		must(fo_tokenizer_encode(again, text, len, &ids, &n, &cap)); /* appends */
		assert_int_equal(n % 2, 0);
		for (size_t k = 0; k < n / 2; k++) {
			assert_int_equal(ids[k], strtol(p, &p, 10));
			assert_int_equal(ids[k], ids[n / 2 + k]);
		}
		assert_int_equal(*p, '\n');
		assert_round_trip(t, text, len);
		free(ids);
		fo_tokenizer_free(t);
		fo_tokenizer_free(again);
	}
	fo_arena_fini(&a);
}

static void test_special_tokens(void **state)
{
	(void)state;
	static const char *const bos[] = { "<|begin_of_text|>", "<|endoftext|>", "<|begin_of_text|>" };
	static const char *const eos[] = { "<|end_of_text|>", "<|endoftext|>", "<|end_of_text|>" };
	for (int i = 0; i < 3; i++) {
		struct fo_tokenizer *t = load(golden(golden_names[i]));
		struct fo_str s = { 0 };
		int32_t ids[] = { fo_tokenizer_bos(t), -5, fo_tokenizer_eos(t), (int32_t)fo_tokenizer_vocab(t) };
		fo_tokenizer_decode(t, ids, 4, &s);
		char want[64];
		snprintf(want, sizeof want, "%s%s", bos[i], eos[i]);
		assert_string_equal(s.data, want);
		/* Written in a text they are ordinary characters: text cannot inject them. */
		int32_t *got = NULL;
		size_t n = 0, cap = 0;
		must(fo_tokenizer_encode(t, want, strlen(want), &got, &n, &cap));
		for (size_t k = 0; k < n; k++)
			assert_true(got[k] != ids[0] && got[k] != ids[2]);
		free(got);
		fo_str_fini(&s);
		fo_tokenizer_free(t);
	}
}

static void test_training_reproduces_the_golden_file(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char text[4096], *paths[] = { text };
	snprintf(text, sizeof text, "%s", golden("tokenizer_text.txt"));
	struct fo_tokenizer *t;
	must(fo_tokenizer_train(paths, 1, NULL, 700, (size_t)1 << 30, NULL, NULL, NULL, &t));
	assert_int_equal(fo_tokenizer_vocab(t), 700);
	must(fo_tokenizer_save(t, in_scratch("trained.json")));
	size_t n, m;
	char *got, *want;
	slurp(&a, in_scratch("trained.json"), &got, &n);
	slurp(&a, golden("tokenizer_flatout.json"), &want, &m);
	assert_int_equal(n, m);
	assert_memory_equal(got, want, n);
	fo_tokenizer_free(t);
	fo_arena_fini(&a);
}

/* ---- a trainer without any bookkeeping ---- */

struct plain {
	int32_t s[512];
	int n;
};

static int collect_words(const char *text, size_t len, struct plain *words, int max, const struct fo_tokenizer *t)
{
	struct split *split;
	struct split_cursor c = { .text = text, .len = len };
	int n = 0;
	must(split_new(split_pattern_llama3, &split));
	for (;;) {
		const char *piece;
		size_t piece_len;
		must(split_next(split, &c, &piece, &piece_len));
		if (!piece_len)
			break;
		assert_true(n < max && piece_len <= 256);
		words[n].n = (int)piece_len;
		for (size_t i = 0; i < piece_len; i++)
			words[n].s[i] = t->byte_id[(unsigned char)piece[i]];
		n++;
	}
	split_free(split);
	return n;
}

static void test_training_against_recounting(void **state)
{
	(void)state;
	enum { MAX = 4000, V = 1200 };
	struct fo_str text = { 0 };
	/* Overlapping repetitions and words of few letters: the cases where incremental counts go wrong. */
	for (int i = 0; i < 1500; i++) {
		for (uint64_t k = 0, n = 1 + fo_rng_u64(1, (uint64_t)i) % 9; k < n; k++)
			fo_str_append(&text, &"aaabbcd\xff"[fo_rng_u64(2, (uint64_t)i * 16 + k) % (i % 7 ? 7 : 8)], 1);
		fo_str_puts(&text, i % 3 ? " " : "\n");
	}
	must(fo_fs_write_atomic(in_scratch("letters.txt"), text.data, text.len));
	char path[4096], *paths[] = { path };
	snprintf(path, sizeof path, "%s", in_scratch("letters.txt"));
	struct fo_tokenizer *t;
	must(fo_tokenizer_train(paths, 1, NULL, V, (size_t)1 << 30, NULL, NULL, NULL, &t));
	assert_true(t->merges > 300); /* the text has so many: the comparison below has teeth */
	struct plain *w = calloc(MAX, sizeof *w);
	int words = collect_words(text.data, text.len, w, MAX, t);
	int *count = calloc((size_t)V * V, sizeof *count);
	for (int64_t m = 0; m < t->merges; m++) {
		memset(count, 0, (size_t)V * V * sizeof *count);
		for (int i = 0; i < words; i++)
			for (int k = 0; k + 1 < w[i].n; k++)
				count[w[i].s[k] * V + w[i].s[k + 1]]++;
		int best = 0;
		for (int i = 1; i < V * V; i++)
			if (count[i] > count[best]) /* ascending: the smaller pair wins a tie */
				best = i;
		assert_true(count[best] >= 2);
		assert_int_equal(t->merge[m].a, best / V);
		assert_int_equal(t->merge[m].b, best % V);
		for (int i = 0; i < words; i++) {
			int o = 0;
			for (int k = 0; k < w[i].n; k++) {
				bool hit = k + 1 < w[i].n && w[i].s[k] * V + w[i].s[k + 1] == best;
				w[i].s[o++] = hit ? t->merge[m].out : w[i].s[k];
				k += hit;
			}
			w[i].n = o;
		}
	}
	/* Nothing left to merge, or the vocabulary is full. */
	assert_true(t->vocab == V || t->vocab < V);
	/* Encoding the text gives the words as training left them. */
	int32_t *ids = NULL;
	size_t n = 0, cap = 0, at = 0;
	must(fo_tokenizer_encode(t, text.data, text.len, &ids, &n, &cap));
	for (int i = 0; i < words; i++)
		for (int k = 0; k < w[i].n; k++)
			assert_int_equal(ids[at++], w[i].s[k]);
	assert_int_equal(at, n);
	free(ids);
	free(count);
	free(w);
	fo_tokenizer_free(t);
	fo_str_fini(&text);
}

static void test_training_input(void **state)
{
	(void)state;
	struct fo_tokenizer *t = NULL;
	char empty[4096], nul[4096], many[4096], *paths[] = { empty, nul };
	snprintf(empty, sizeof empty, "%s", in_scratch("empty.txt"));
	snprintf(nul, sizeof nul, "%s", in_scratch("nul.bin"));
	snprintf(many, sizeof many, "%s", in_scratch("many.txt"));
	must(fo_fs_write_atomic(empty, "", 0));
	must(fo_fs_write_atomic(nul, "text\0text", 9));
	assert_int_equal(fo_tokenizer_train(paths, 2, NULL, 257, 1000, NULL, NULL, NULL, &t), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "257"));
	assert_int_equal(fo_tokenizer_train(paths, 2, NULL, 300, 1000, NULL, NULL, NULL, &t), FO_EARG);
	assert_int_equal(fo_tokenizer_train((char *[]){ "/nonexistent/x" }, 1, NULL, 300, 1000, NULL, NULL, NULL, &t),
			 FO_EIO);
	assert_null(t);

	/* A sample of a large text: later parts of it are seen, the whole of it is not. */
	struct fo_str s = { 0 };
	for (int i = 0; i < 100000; i++)
		fo_str_printf(&s, "%s\n", i < 50000 ? "early words" : "later sentences");
	must(fo_fs_write_atomic(many, s.data, s.len));
	must(fo_tokenizer_train((char *[]){ many }, 1, NULL, 1000, s.len / 4, NULL, NULL, NULL, &t));
	assert_in_range(t->vocab, 270, 300); /* few distinct words: training stops when nothing occurs twice */
	int32_t *ids = NULL;
	size_t n = 0, cap = 0;
	must(fo_tokenizer_encode(t, "early words\nlater sentences\n", 28, &ids, &n, &cap));
	assert_int_equal(n, 6);
	free(ids);
	fo_tokenizer_free(t);
	must(fo_tokenizer_train((char *[]){ many }, 1, NULL, 258, s.len, NULL, NULL, NULL, &t)); /* bytes alone */
	assert_int_equal(t->merges, 0);
	assert_round_trip(t, s.data, 1000);
	fo_tokenizer_free(t);
	fo_str_fini(&s);
}

/* ---- arbitrary bytes ---- */

static size_t random_text(char *buf, size_t max, uint64_t stream)
{
	static const char *const parts[] = { "word",
					     " the",
					     "\xf0\x9f\x98\x80",
					     "\xe4\xb8\xad\xe6\x96\x87",
					     "\r\n",
					     "  ",
					     "123",
					     "'s",
					     "\xc3\xa4",
					     "\xe2\x80\xa8",
					     "\xf0\x9f\x98",
					     "\xc3",
					     "\x80\x80",
					     "\xed\xa0\x80",
					     "\xff\xfe",
					     "\xc0\xaf",
					     "\xf4\x90\x80\x80",
					     "\xe0\x80\x80",
					     "",
					     "\t" };
	size_t n = 0, want = fo_rng_u64(stream, 0) % max;
	for (uint64_t i = 1; n + 8 < want; i++) {
		uint64_t r = fo_rng_u64(stream, i);
		if (stream % 3 == 0) {
			buf[n++] = (char)r;
		} else {
			const char *p = parts[r % (sizeof parts / sizeof *parts)];
			size_t len = *p ? strlen(p) : 1; /* "" is one NUL byte */
			memcpy(buf + n, p, len);
			n += len;
		}
	}
	return n;
}

static void test_round_trip_of_any_bytes(void **state)
{
	(void)state;
	char buf[600];
	for (int i = 0; i < 3; i++) {
		struct fo_tokenizer *t = load(golden(golden_names[i]));
		for (uint64_t k = 0; k < 1500; k++)
			assert_round_trip(t, buf, random_text(buf, sizeof buf, k));
		for (int b = 0; b < 65536; b++) {
			char two[2] = { (char)(b >> 8), (char)b };
			assert_round_trip(t, two, 2);
		}
		assert_round_trip(t, "", 0);
		fo_tokenizer_free(t);
	}
}

static void test_very_long_pieces(void **state)
{
	(void)state;
	enum { N = 300000 };
	static const char *const unit[] = { "x", " ", "\xe4\xb8\xad", "\x80", "\n", "!", "7", "ab" };
	struct fo_tokenizer *t = load(golden("tokenizer_flatout.json"));
	char *text = malloc(N + 8);
	for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
		size_t len = strlen(unit[u]);
		for (size_t i = 0; i < N; i += len)
			memcpy(text + i, unit[u], len);
		assert_round_trip(t, text, N);
	}
	free(text);
	fo_tokenizer_free(t);
}

static void test_more_pieces_than_the_cache_holds(void **state)
{
	(void)state;
	struct fo_tokenizer *t = load(golden("tokenizer_flatout.json"));
	struct fo_str s = { 0 };
	for (uint64_t i = 0; i < 300000; i++) { /* the cache restarts at 2^18 pieces */
		uint64_t r = fo_rng_u64(9, i);
		fo_str_printf(&s, " %c%c%c%c%c", (int)('a' + r % 26), (int)('a' + r / 26 % 26),
			      (int)('a' + r / 676 % 26), (int)('a' + r / 17576 % 26), (int)('a' + r / 456976 % 26));
	}
	assert_round_trip(t, s.data, s.len);
	fo_str_fini(&s);
	fo_tokenizer_free(t);
}

static void test_utf8_sequences(void **state)
{
	(void)state;
	/* Every code point is one sequence; each of its prefixes, and every surrogate, is none. */
	for (uint32_t c = 1; c < 0x110000; c++) {
		unsigned char s[4];
		size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
		for (size_t i = n; i-- > 1;)
			s[i] = (unsigned char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3f));
		s[0] = (unsigned char)(n == 1 ? c : (0xf00u >> n & 0xff & ~(0x7fu >> n)) | c >> 6 * (n - 1));
		bool surrogate = c >= 0xd800 && c < 0xe000;
		if (fo_utf8_decode(s, n, NULL) != (surrogate ? 0 : n) || (n > 1 && fo_utf8_decode(s, n - 1, NULL) != 0))
			fail_msg("code point %x", c);
	}
	static const char *const broken[] = { "\x80",
					      "\xbf",
					      "\xc0\x80",
					      "\xc1\xbf",
					      "\xe0\x9f\xbf",
					      "\xf0\x8f\xbf\xbf",
					      "\xf4\x90\x80\x80",
					      "\xf5\x80\x80\x80",
					      "\xff",
					      "\xc3(",
					      "\xe2\x82(" };
	for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
		assert_int_equal(fo_utf8_decode(broken[i], strlen(broken[i]), NULL), 0);
}

static void test_pieces(void **state)
{
	(void)state;
	static const struct {
		const char *text, *pieces;
	} cases[] = {
		{ "Hello world, it's 12345!\n\n x", "Hello| world|,| it|'s| |123|45|!\n\n| x" },
		{ "a\x80\x81 b", "a|\x80\x81| b" }, /* bytes that are no UTF-8 stand alone */
		{ "\xc3\xa4\xc3", "\xc3\xa4|\xc3" },
		{ "   three", "  | three" },
		{ "don'T 'LL", "don|'T| '|LL" },
		{ "x\xc2\x85\xe1\xa0\x8ey", "x|\xc2\x85|\xe1\xa0\x8ey" }, /* U+0085 is white space, U+180E is not */
	};
	struct split *s;
	must(split_new(split_pattern_llama3, &s));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct split_cursor c = { .text = cases[i].text, .len = strlen(cases[i].text) };
		struct fo_str got = { 0 };
		const char *piece;
		size_t n;
		for (;;) {
			must(split_next(s, &c, &piece, &n));
			if (!n)
				break;
			if (got.len)
				fo_str_puts(&got, "|");
			fo_str_append(&got, piece, n);
		}
		assert_string_equal(got.data, cases[i].pieces);
		fo_str_fini(&got);
	}
	split_free(s);
	/* A pattern that leaves gaps: they are pieces too. */
	must(split_new("b+", &s));
	struct split_cursor c = { .text = "aabbcb", .len = 6 };
	const size_t want[] = { 2, 2, 1, 1, 0 };
	for (int i = 0; i < 5; i++) {
		const char *piece;
		size_t n;
		must(split_next(s, &c, &piece, &n));
		assert_int_equal(n, want[i]);
	}
	split_free(s);
	/* One that backtracks for ever is stopped. */
	must(split_new("(?:a+)+(?:a+)+b", &s));
	c = (struct split_cursor){ .text = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-b", .len = 40 };
	const char *piece;
	size_t n;
	assert_int_equal(split_next(s, &c, &piece, &n), FO_EFORMAT);
	split_free(s);
}

static void test_patterns_refused(void **state)
{
	(void)state;
	static const char *const bad[] = { "[a&&b]",
					   "[[:alpha:]]",
					   "^a",
					   "a$",
					   "\\w+",
					   "\\h",
					   "(?m:.)",
					   "(?<n>a)",
					   "\\p{N}{1,3}+",
					   "a{2}?",
					   "a{,3}",
					   "(*UTF)a",
					   "(",
					   "[a",
					   "\\",
					   "\\p",
					   "\\p{",
					   "\\p{Nope}",
					   "\\p{scx:Han}",
					   "\\p{Alphabetic}",
					   "(?i:a\\p{L})",
					   "((?i:a)(?i:(b)\\P{Lu}))",
					   "\\1",
					   "\\Ka",
					   "\\C",
					   "[]a]",
					   "a**" };
	struct split *s = NULL;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (split_new(bad[i], &s) != FO_EFORMAT)
			fail_msg("'%s' was accepted", bad[i]);
	assert_null(s);
	static const char *const good[] = { "\\p{N}{1,3}", "[^\\s\\p{L}]+",     "\\s+(?!\\S)|\\s+",
					    "(?i:'s)",     "(?i:(a)\\d)\\p{L}", "\\p{Han}++",
					    "a|b?",        "[\\]a-z\\-]+",      "" };
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		must(split_new(good[i], &s));
		split_free(s);
	}
}

/* ---- foreign and hostile files ---- */

static fo_status load_text(const char *text, size_t len, struct fo_tokenizer **t)
{
	FILE *f = fopen(in_scratch("edited.json"), "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	fclose(f);
	return fo_tokenizer_load(in_scratch("edited.json"), t);
}

static void test_refusals_name_what_differs(void **state)
{
	(void)state;
	static const struct {
		const char *from, *to, *says;
	} edits[] = {
		{ "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}",
		  "'normalizer' is {\"type\":\"NFKC\"}, expected null or NFC" },
		{ "\"padding\":null", "\"padding\":3", "'padding' is 3" },
		{ "\"type\":\"BPE\"", "\"type\":\"Unigram\"", "'model.type' is \"Unigram\", expected BPE" },
		{ "\"dropout\":null", "\"dropout\":0.1", "model.dropout" },
		{ "\"byte_fallback\":false", "\"byte_fallback\":true",
		  "'model.ignore_merges' is true, expected false where 'model.byte_fallback' is true" },
		{ "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "end_of_word_suffix" },
		{ "Isolated", "Removed", "behavior' is \"Removed\", expected Isolated" },
		{ "\"invert\":false", "\"invert\":true", "invert" },
		{ "\"Sequence\"", "\"Metaspace\"", "'pre_tokenizer.type' is \"Metaspace\"" },
		{ "\"use_regex\":false", "\"use_regex\":true", "use_regex" },
		{ "\"add_prefix_space\":false", "\"add_prefix_space\":true", "add_prefix_space" },
		{ "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true",
		  "\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":false",
		  "is not special and its 'lstrip' is true" },
		{ "\"normalized\":false,\"special\":true", "\"normalized\":true,\"special\":false",
		  "is not special and its 'normalized' is true" },
		{ "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Fuse\"", "decoder.type" },
		{ "<|end_of_text|>", "<|finish|>", "ends a text" },
		{ "\"!\":0", "\"!\":1", "both have id 1" },
		{ "\"!\":0", "\"!\":-1", "expected 0 to 1048575" },
		{ "\"!\":0", "\"!\":1e9", "expected 0 to 1048575" },
		{ "\"\xc3\xbf\":", "\"!q!q\":", "no token for byte 0xff" },
		{ "\"!\":0", "\"\xe4\xb8\xad\":0", "byte alphabet" },
		{ "\"merges\":[", "\"merges\":[[\"!\",\"q\"],", "merge 0 makes '!q'" },
		{ "\"merges\":[", "\"merges\":[\"nothing\",", "expected two tokens" },
		{ "\"merges\":[", "\"merges\":[7,", "merge 0 is 7" },
		{ "\"merges\":[", "\"merges\":[\"x! y\",", "which the vocabulary lacks" },
		{ "\"merges\":[", "\"merges\":[[\"\\u0120\",\"t\"],[\"\\u0120\",\"t\"],", "repeats an earlier one" },
		{ "\"!\":0", "\"!\\u0000\":0", "a key or a text holds the character U+0000" },
		{ "\"merges\":[", "\"merges\":[\"\\u0000 a\",", "a key or a text holds the character U+0000" },
		{ "\"merges\":[", "\"merges\":5,\"x\":[", "'model.merges' is not an array" },
		{ "\"vocab\":{", "\"vocab\":[],\"x\":{", "model.vocab" },
		{ "{", "[", "is not a tokenizer" },
	};
	struct fo_arena a = { 0 };
	size_t len;
	char *text;
	slurp(&a, golden("tokenizer_llama3.json"), &text, &len);
	for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
		struct fo_str s = { 0 };
		struct fo_tokenizer *t;
		char *at = strstr(text, edits[i].from);
		if (!at)
			fail_msg("'%s' is not in the file", edits[i].from);
		fo_str_append(&s, text, (size_t)(at - text));
		fo_str_puts(&s, edits[i].to);
		fo_str_puts(&s, at + strlen(edits[i].from));
		assert_int_equal(load_text(s.data, s.len, &t), FO_EFORMAT);
		if (!strstr(fo_err_text(), edits[i].says))
			fail_msg("expected '%s' in: %s", edits[i].says, fo_err_text());
		fo_str_fini(&s);
	}
	struct fo_tokenizer *t;
	assert_int_equal(fo_tokenizer_load("/nonexistent/tokenizer.json", &t), FO_EIO);
	fo_arena_fini(&a);
}

static void test_hostile_files(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	size_t len;
	char *text;
	slurp(&a, golden("tokenizer_llama3.json"), &text, &len);
	char *edited = malloc(2 * len + 64);
	int accepted = 0;
	for (uint64_t i = 0; i < 2500; i++) {
		size_t n = len, edits = 1 + fo_rng_u64(100, i) % 3;
		memcpy(edited, text, len);
		for (size_t k = 0; k < edits; k++) {
			uint64_t r = fo_rng_u64(200 + i, k);
			/* Half of the edits hit the settings before and after the vocabulary's bulk. */
			size_t at = r % 2 ? (r >> 8) % n : (r >> 8) % (n < 1600 ? n : 1600), span = 1 + (r >> 40) % 12;
			if (at + span > n)
				continue;
			if ((r >> 2) % 4 == 0)
				n = at; /* cut */
			else if ((r >> 2) % 4 == 1)
				memmove(edited + at, edited + at + span, (n -= span) - at); /* drop */
			else if ((r >> 2) % 4 == 2)
				edited[at] = (char)(r >> 56); /* any byte */
			else
				edited[at] = "{}[]\",:0-nt\\"[(r >> 56) % 12]; /* a byte that JSON cares about */
			if (!n)
				break;
		}
		struct fo_tokenizer *t = NULL;
		fo_status st = load_text(edited, n, &t);
		if (st == FO_OK) {
			int32_t *ids = NULL;
			size_t count = 0, cap = 0;
			assert_true(fo_tokenizer_encode(t, text, 300, &ids, &count, &cap) == FO_OK || *fo_err_text());
			free(ids);
			fo_tokenizer_free(t);
			accepted++;
		} else {
			assert_int_equal(st, FO_EFORMAT);
			assert_true(strlen(fo_err_text()) > 10);
			assert_null(strchr(fo_err_text(), '\n'));
		}
	}
	assert_in_range(accepted, 1, 2000); /* both ways are taken */
	free(edited);
	fo_arena_fini(&a);
}

/* ---- threads ---- */

struct encode_job {
	const struct fo_tokenizer *t;
	const char *text;
	size_t len;
	int32_t *ids;
	size_t n, cap;
};

static void *encode_in_thread(void *arg)
{
	struct encode_job *j = arg;
	if (fo_tokenizer_encode(j->t, j->text, j->len, &j->ids, &j->n, &j->cap) != FO_OK)
		j->n = 0;
	return NULL;
}

static void test_two_threads_share_a_tokenizer(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	size_t len;
	char *text;
	slurp(&a, golden("tokenizer_text.txt"), &text, &len);
	struct fo_tokenizer *t = load(golden("tokenizer_gpt2.json"));
	struct encode_job job[2] = { { t, text, len, NULL, 0, 0 }, { t, text, len, NULL, 0, 0 } };
	pthread_t thread[2];
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, encode_in_thread, &job[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	assert_true(job[0].n > 100 && job[0].n == job[1].n);
	assert_memory_equal(job[0].ids, job[1].ids, job[0].n * sizeof(int32_t));
	free(job[0].ids);
	free(job[1].ids);
	fo_tokenizer_free(t);
	fo_arena_fini(&a);
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
		cmocka_unit_test(test_same_ids_as_hugging_face),
		cmocka_unit_test(test_special_tokens),
		cmocka_unit_test(test_training_reproduces_the_golden_file),
		cmocka_unit_test(test_training_against_recounting),
		cmocka_unit_test(test_training_input),
		cmocka_unit_test(test_round_trip_of_any_bytes),
		cmocka_unit_test(test_very_long_pieces),
		cmocka_unit_test(test_more_pieces_than_the_cache_holds),
		cmocka_unit_test(test_utf8_sequences),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_patterns_refused),
		cmocka_unit_test(test_refusals_name_what_differs),
		cmocka_unit_test(test_hostile_files),
		cmocka_unit_test(test_two_threads_share_a_tokenizer),
	};
	return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
