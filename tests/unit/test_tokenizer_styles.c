/* The tokenizer's styles: mixed and broken texts against Hugging Face's stored ids (tests/golden/tokenizer_make.py),
 * the matchers of known patterns against PCRE2, SentencePiece's style against merging the whole text, parts of a text
 * against the whole, encoders in threads. */
#include "base/clock.h"
#include "base/fs.h"
#include "data/data_int.h"
#include "data/unicode.h"
#include "support/must.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch[] = "/tmp/flatout_styles_XXXXXX";
/* In the order of tokenizer_mixed.ids. */
static const char *const names[] = { "tokenizer_flatout.json", "tokenizer_gpt2.json",   "tokenizer_llama3.json",
				     "tokenizer_qwen2.json",   "tokenizer_llama2.json", "tokenizer_metaspace.json" };
enum { NAMES = sizeof names / sizeof *names, QWEN2 = 3, LLAMA2 = 4, METASPACE = 5 };

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

static struct fo_tokenizer *load(const char *path)
{
	struct fo_tokenizer *t;
	must(fo_tokenizer_load(path, &t));
	return t;
}

struct ids {
	int32_t *id;
	size_t n, cap;
};

static void encode(const struct fo_tokenizer *t, const char *text, size_t len, struct ids *out)
{
	out->n = 0;
	must(fo_tokenizer_encode(t, text, len, &out->id, &out->n, &out->cap));
}

static void assert_same_ids(const struct ids *a, const struct ids *b)
{
	assert_int_equal(a->n, b->n);
	for (size_t i = 0; i < a->n; i++)
		assert_int_equal(a->id[i], b->id[i]);
}

/* ---- stored ids ---- */

static uint64_t next_u64(const char **p)
{
	uint64_t v;
	memcpy(&v, *p, sizeof v);
	*p += sizeof v;
	return v;
}

static void test_mixed_texts_as_hugging_face(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char *docs, *want;
	size_t docs_len, want_len;
	must(fo_fs_read(&a, golden("tokenizer_mixed.docs"), (size_t)1 << 24, &docs, &docs_len));
	must(fo_fs_read(&a, golden("tokenizer_mixed.ids"), (size_t)1 << 24, &want, &want_len));
	const char *w = want;
	struct ids got = { 0 };
	for (int i = 0; i < NAMES; i++) {
		struct fo_tokenizer *first = load(golden(names[i])), *t;
		must(fo_tokenizer_save(first, in_scratch("again.json"))); /* what we write says the same */
		t = load(in_scratch("again.json"));
		assert_true(t->checksum == first->checksum);
		int doc = 0;
		for (const char *p = docs; p < docs + docs_len; doc++) {
			size_t len = (size_t)next_u64(&p);
			encode(doc % 2 ? t : first, p, len, &got);
			p += len;
			size_t n = (size_t)next_u64(&w);
			for (size_t k = 0; k < n && k < got.n; k++, w += 2) {
				uint16_t id;
				memcpy(&id, w, sizeof id);
				if (got.id[k] != id)
					fail_msg("%s, document %d: id %zu is %d, expected %d", names[i], doc, k,
						 got.id[k], id);
			}
			assert_int_equal(got.n, n);
		}
		assert_true(doc > 50);
		fo_tokenizer_free(first);
		fo_tokenizer_free(t);
	}
	assert_ptr_equal(w, want + want_len);
	free(got.id);
	fo_arena_fini(&a);
}

/* ---- known patterns ---- */

static size_t put_char(char *s, uint32_t c)
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	for (size_t i = n; i-- > 1; c >>= 6)
		s[i] = (char)(0x80 | (c & 0x3f));
	s[0] = (char)(n == 1 ? c : (0xf00u >> n & 0xff) | c);
	return n;
}

/* The pieces' ends of a text, by one split. */
static size_t ends_of(struct split *s, const char *text, size_t len, size_t *end)
{
	struct split_cursor c = { .text = text, .len = len };
	for (size_t n = 0;; n++) {
		const char *piece;
		size_t piece_len;
		must(split_next(s, &c, &piece, &piece_len));
		if (!piece_len)
			return n;
		end[n] = (size_t)(piece - text) + piece_len;
	}
}

/* Every character: PCRE2's Unicode may be older than ours, and what it lacks is added to its classes. */
static bool *agreed_characters(void)
{
	bool *same = calloc(0x110000, 1);
	struct split *class[2];
	must(split_new_pcre("\\p{L}", &class[0]));
	must(split_new_pcre("\\p{N}", &class[1]));
	const uint8_t *flags = unicode_flags();
	int differ = 0;
	for (uint32_t c = 1; c < 0x110000; c++) {
		char s[8];
		size_t end[8], n = put_char(s, c);
		s[n] = '!';
		bool letter = ends_of(class[0], s, n + 1, end) == 2, number = ends_of(class[1], s, n + 1, end) == 2;
		same[c] = letter == !!(flags[c] & UNI_LETTER) && number == !!(flags[c] & UNI_NUMBER);
		if (c >= 0xd800 && c < 0xe000)
			same[c] = false;
		else
			differ += !same[c];
	}
	assert_int_equal(differ, 0);
	assert_true(same['a'] && same['5'] && same[0x4e2d] && same[0x1f600]);
	split_free(class[0]);
	split_free(class[1]);
	return same;
}

static size_t pattern_text(char *buf, size_t max, uint64_t stream, const bool *same)
{
	static const char *const parts[] = { "a",        "B",   "'s",   "'S",           "'\xc5\xbf",
					     "'re",      "'Ve", "'lL",  "'x",           "'",
					     "''",       " ",   "  ",   "\n",           "\r",
					     "\t",       "1",   "23",   "456",          "\xc2\xbd",
					     "!",        "..",  "_",    "\xc2\xa0",     "\xe3\x80\x80",
					     "\xc3\xa9", "-\n", " \n ", "\xe4\xb8\xad", "\xff",
					     "\xe4\xb8" };
	size_t n = 0;
	for (uint64_t i = 0; n + 8 < max; i++) {
		uint64_t r = fo_rng_u64(stream, i);
		if (r % 8) {
			const char *p = parts[(r >> 8) % (sizeof parts / sizeof *parts)];
			memcpy(buf + n, p, strlen(p));
			n += strlen(p);
		} else {
			uint32_t c = (uint32_t)((r >> 8) % (r % 16 ? 0x3000 : 0x110000));
			if (c && same[c])
				n += put_char(buf + n, c);
		}
	}
	return n;
}

static void test_known_patterns_against_pcre2(void **state)
{
	(void)state;
	bool *same = agreed_characters();
	const char *const pattern[] = { split_pattern_llama3, split_pattern_gpt2, split_pattern_qwen2 };
	char text[160];
	size_t a[160], b[160], pieces = 0;
	for (int k = 0; k < 3; k++) {
		struct split *fast, *reference;
		must(split_new(pattern[k], &fast));
		must(split_new_pcre(pattern[k], &reference));
		assert_true(split_is_known(fast) && !split_is_known(reference));
		for (uint64_t i = 0; i < 40000; i++) {
			size_t len = pattern_text(text, 9 + i % 150, i, same), n = ends_of(fast, text, len, a);
			if (n != ends_of(reference, text, len, b) || memcmp(a, b, n * sizeof *a) != 0)
				fail_msg("pattern %d, text %llu", k, (unsigned long long)i);
			pieces += n;
		}
		split_free(fast);
		split_free(reference);
	}
	assert_true(pieces > 1000000);
	free(same);
}

/* As random_text of tests/golden/make_patterns.py. */
static size_t random_text(uint64_t seed, char *out)
{
	static const uint32_t limit[] = { 0x80, 0x3000, 0x110000, 0x2000 };
	uint64_t x = seed;
	size_t n = 0;
	for (int i = 0; i < 60; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		uint32_t c = (uint32_t)((x >> 33) % limit[i % 4]);
		n += put_char(out + n, i % 7 == 0 ? ' ' : c >= 0xd800 && c < 0xe000 ? 0x4e2d : c);
	}
	return n;
}

static void sum_pieces(struct split *s, const char *text, size_t len, size_t *end, unsigned long long *pieces,
		       unsigned long long *hash)
{
	size_t n = ends_of(s, text, len, end), at = 0;
	for (size_t i = 0; i < n; i++) {
		for (int b = 0; b < 8; b++)
			*hash = (*hash ^ ((end[i] - at) >> 8 * b & 255)) * 0x100000001b3;
		at = end[i];
	}
	*pieces += n;
}

/* Patterns that PCRE2 runs cut as Hugging Face's Oniguruma does: every character of Unicode 16, scripts that are no
 * Script_Extensions, the letters of o200k's kind. */
static void test_foreign_patterns_against_hugging_face(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char *golden_text, *line, *rest, buf[4 * 4096];
	size_t len, *end = calloc(sizeof buf, sizeof *end);
	int lines = 0;
	must(fo_fs_read(&a, golden("patterns.txt"), (size_t)1 << 16, &golden_text, &len));
	for (line = strtok_r(golden_text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), lines++) {
		unsigned long long pieces[2] = { 0 }, hash[2] = { 0xcbf29ce484222325, 0xcbf29ce484222325 }, want[4];
		char *figures = strchr(line, '\t');
		struct split *s;
		*figures++ = 0;
		assert_int_equal(sscanf(figures, "%llu %llx\t%llu %llx", &want[0], &want[1], &want[2], &want[3]), 4);
		must(split_new(line, &s));
		assert_false(split_is_known(s));
		for (uint32_t c = 0; c < 0x110000;) {
			size_t n = 0;
			for (int k = 0; k < 4096 && c < 0x110000; c++)
				if (c < 0xd800 || c >= 0xe000) {
					n += put_char(buf + n, c);
					k++;
				}
			sum_pieces(s, buf, n, end, &pieces[0], &hash[0]);
		}
		for (uint64_t i = 0; i < 2000; i++)
			sum_pieces(s, buf, random_text(i, buf), end, &pieces[1], &hash[1]);
		for (int k = 0; k < 2; k++)
			if (pieces[k] != want[2 * k] || hash[k] != want[2 * k + 1])
				fail_msg("'%s': %llu pieces of %s, Hugging Face has %llu%s", line, pieces[k],
					 k ? "random texts" : "all characters", want[2 * k],
					 pieces[k] == want[2 * k] ? " of other lengths" : "");
		split_free(s);
	}
	assert_true(lines >= 13);
	/* One that said it in an issue: U+3001 is used with Han, and is of no script. */
	struct split *s;
	size_t at[8];
	must(split_new("\\p{Han}+|[^\\p{Han}]+", &s));
	assert_int_equal(ends_of(s, "\xe5\xa4\xa9\xe3\x80\x81\xe5\x9c\xb0", 9, at), 3);
	split_free(s);
	free(end);
	fo_arena_fini(&a);
}

/* ---- SentencePiece's style ---- */

/* A tokenizer with random merges of the letters a, b, c, e-acute and the space mark; d has no token of its own. */
static struct fo_tokenizer *random_sentence(uint64_t stream, const char *prefix, const char *pre, int merges)
{
	struct fo_str s = { 0 }, m = { 0 };
	static const char *const letter[] = { "a", "b", "c", "\xc3\xa9", SENTENCE_SPACE };
	char *token[64];
	int tokens = 0, id = 259;
	fo_str_printf(
		&s,
		"{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true},{\"id\":2,\"content\":\"</s>\","
		"\"special\":true}],\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":null,"
		"\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2",
		prefix, pre);
	for (int b = 0; b < 256; b++)
		fo_str_printf(&s, ",\"<0x%02X>\":%d", b, b + 3);
	for (; tokens < 5; tokens++) {
		token[tokens] = strdup(letter[tokens]);
		fo_str_printf(&s, ",\"%s\":%d", letter[tokens], id++);
	}
	for (uint64_t i = 0; tokens < 5 + merges; i++) {
		const char *x = token[fo_rng_u64(stream, 2 * i) % (uint64_t)tokens],
			   *y = token[fo_rng_u64(stream, 2 * i + 1) % (uint64_t)tokens];
		char joined[256];
		snprintf(joined, sizeof joined, "%s%s", x, y);
		bool have = strlen(joined) > 60;
		for (int k = 0; k < tokens; k++)
			have |= strcmp(token[k], joined) == 0;
		if (have)
			continue;
		token[tokens++] = strdup(joined);
		fo_str_printf(&s, ",\"%s\":%d", joined, id++);
		fo_str_printf(&m, "%s[\"%s\",\"%s\"]", m.len ? "," : "", x, y);
	}
	fo_str_printf(&s, "},\"merges\":[%s]}}", m.data);
	must(fo_fs_write_atomic(in_scratch("random.json"), s.data, s.len));
	for (int k = 0; k < tokens; k++)
		free(token[k]);
	fo_str_fini(&s);
	fo_str_fini(&m);
	return load(in_scratch("random.json"));
}

/* The merges of the whole text, one at a time, nothing cut: what the style means. */
static size_t merge_plainly(const struct fo_tokenizer *t, const char *text, size_t len, int32_t *id)
{
	size_t n = tok_sentence_symbols(t, text, len, id);
	for (;;) {
		size_t best = 0;
		int64_t rank = -1;
		int32_t out = 0;
		for (size_t i = 0; i + 1 < n; i++)
			for (int64_t m = 0; m < (rank < 0 ? t->merges : rank); m++)
				if (t->merge[m].a == id[i] && t->merge[m].b == id[i + 1]) {
					rank = m;
					best = i;
					out = t->merge[m].out;
				}
		if (rank < 0)
			return n;
		id[best] = out;
		memmove(id + best + 1, id + best + 2, (--n - best - 1) * sizeof *id);
	}
}

static size_t sentence_text(char *buf, size_t want, uint64_t stream)
{
	static const char *const parts[] = { "a", "b",  "c",    "a",   "b", "\xc3\xa9", " ", " ", SENTENCE_SPACE,
					     "d", "\n", "\xff", "\xc3" };
	size_t n = 0;
	for (uint64_t i = 0; n < want; i++) {
		uint64_t r = fo_rng_u64(stream, i);
		const char *p = parts[r % (r >> 32 & 1 ? 9 : sizeof parts / sizeof *parts)];
		memcpy(buf + n, p, strlen(p));
		n += strlen(p);
	}
	return n;
}

#define PREPEND "{\"type\":\"Prepend\",\"prepend\":\"" SENTENCE_SPACE "\"},"
#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SENTENCE_SPACE "\"}"
#define METASPACE_OF(rest) "{\"type\":\"Metaspace\",\"replacement\":\"" SENTENCE_SPACE "\"" rest "}"

static void test_sentence_style_against_merging_the_whole(void **state)
{
	(void)state;
	static const struct {
		const char *normalizer, *pre;
		int mark; /* 0 never, 1 always, 2 unless there is a space */
	} style[] = {
		{ "{\"type\":\"Sequence\",\"normalizers\":[" PREPEND REPLACE "]}", "null", 1 },
		{ "{\"type\":\"Sequence\",\"normalizers\":[" REPLACE "]}", "null", 0 },
		{ REPLACE, "null", 0 },
		{ "null", METASPACE_OF(",\"split\":false"), 2 },
		{ "null", METASPACE_OF(",\"split\":false,\"prepend_scheme\":\"first\""), 2 },
		{ "null", METASPACE_OF(",\"split\":false,\"prepend_scheme\":\"never\""), 0 },
		{ "null", METASPACE_OF(",\"split\":false,\"add_prefix_space\":false"), 0 },
	};
	struct ids got = { 0 }, parts = { 0 };
	struct fo_encoder *e;
	size_t cuts = 0;
	for (uint64_t k = 0; k < 70; k++) {
		int which = (int)(k % (sizeof style / sizeof *style));
		struct fo_tokenizer *t = random_sentence(k, style[which].normalizer, style[which].pre,
							 3 + (int)(k % 50));
		must(fo_encoder_new(t, &e));
		for (uint64_t i = 0; i < 30; i++) {
			char buf[400] = " ", *text = buf + 1;
			int32_t want[400];
			size_t len = sentence_text(text, 1 + i * 5, 1000 * k + i);
			bool space = text[0] == ' ' || strncmp(text, SENTENCE_SPACE, 3) == 0;
			int mark = style[which].mark == 1 || (style[which].mark == 2 && !space);
			size_t n = merge_plainly(t, text - mark, len + (size_t)mark, want);
			encode(t, text, len, &got);
			if (got.n != n || memcmp(got.id, want, n * sizeof *want) != 0)
				fail_msg("tokenizer %d, text %d", (int)k, (int)i);
			/* In two parts, cut where it may be. */
			size_t at = fo_tokenizer_cut(t, text, len, 1 + len / 2);
			cuts += at < len;
			parts.n = 0;
			must(fo_encoder_encode(e, text, at, true, &parts.id, &parts.n, &parts.cap));
			must(fo_encoder_encode(e, text + at, len - at, false, &parts.id, &parts.n, &parts.cap));
			assert_same_ids(&parts, &got);
		}
		fo_encoder_free(e);
		fo_tokenizer_free(t);
	}
	assert_true(cuts > 200);
	free(got.id);
	free(parts.id);
}

static void test_sentence_style_decodes(void **state)
{
	(void)state;
	struct fo_tokenizer *t = load(golden(names[LLAMA2]));
	static const char *const texts[] = {
		"",    "a",     "Hello  world", " leading", "\n\xff\xfe\xe4\xb8", "\xe4\xb8\xad\xf0\x9f\x98\x80 x",
		"<s>", "<0x0A>"
	};
	struct ids got = { 0 };
	struct fo_str s = { 0 };
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		encode(t, texts[i], strlen(texts[i]), &got);
		for (size_t k = 0; k < got.n; k++)
			assert_true(got.id[k] > 2); /* special tokens are not read from texts */
		s.len = 0;
		fo_str_puts(&s, ">");
		fo_tokenizer_decode_text(t, got.id, got.n, &s);
		assert_string_equal(s.data + 1, texts[i]);
	}
	/* As parts of a text, spaces stay. */
	encode(t, "a", 1, &got);
	s.len = 0;
	fo_tokenizer_decode(t, got.id, got.n, &s);
	assert_string_equal(s.data, " a");
	free(got.id);
	fo_str_fini(&s);
	fo_tokenizer_free(t);
}

static void replace_once(struct fo_str *s, const char *from, const char *to)
{
	char *at = s->data ? strstr(s->data, from) : NULL;
	if (!at)
		fail_msg("'%s' is not in the file", from);
	struct fo_str out = { 0 };
	fo_str_append(&out, s->data, (size_t)(at - s->data));
	fo_str_puts(&out, to);
	fo_str_puts(&out, at + strlen(from));
	fo_str_fini(s);
	*s = out;
}

static void test_sentence_refusals(void **state)
{
	(void)state;
	static const struct {
		const char *from, *to, *says;
	} edits[] = {
		{ "\"Prepend\"", "\"Lowercase\"", "'normalizer' is" },
		{ "\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\":\"Metaspace\"}", "both set" },
		{ "\"normalizer\": {", "\"normalizer\": null, \"x\": {", "both null" },
		{ "\"ByteFallback\"", "\"Metaspace\"", "'decoder' is" },
		{ "\"<0xA7>\":", "\"<0xa7>\":", "no token for byte 0xa7: not a byte-fallback tokenizer" },
		{ "\"special\": true", "\"special\": false", "expected special ones only" },
		{ "\"merges\": [", "\"merges\": [[\"<0x\", \"0A>\"],", "which the vocabulary lacks" },
		{ "\"<unk>\": 0", "\"a b\": 0", "tokens 'a b' and '<unk>' both have id 0" },
		{ "\"<s>\": 1,", "\"<s>\": 1, \"x y\": 900,", "token 'x y' contains a space" },
		{ "\"merges\": [", "\"merges\": [[\"<0x0A>\", \"a\"],", "merge 0 makes '<0x0A>a'" },
		{ "\"unk_token\": \"<unk>\"", "\"unk_token\": [1]", "'model.unk_token' is [1]" },
		{ "\"ignore_merges\": false", "\"ignore_merges\": true", "ignore_merges" },
	};
	struct fo_arena a = { 0 };
	char *text;
	size_t len;
	must(fo_fs_read(&a, golden(names[LLAMA2]), (size_t)1 << 24, &text, &len));
	for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
		struct fo_str s = { 0 };
		struct fo_tokenizer *t;
		fo_str_append(&s, text, len);
		replace_once(&s, edits[i].from, edits[i].to);
		must(fo_fs_write_atomic(in_scratch("edited.json"), s.data, s.len));
		assert_int_equal(fo_tokenizer_load(in_scratch("edited.json"), &t), FO_EFORMAT);
		if (!strstr(fo_err_text(), edits[i].says))
			fail_msg("expected '%s' in: %s", edits[i].says, fo_err_text());
		fo_str_fini(&s);
	}
	fo_arena_fini(&a);
}

static void test_no_text_spells_a_special_token(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	struct fo_str s = { 0 };
	char *json;
	size_t len;
	must(fo_fs_read(&a, golden(names[LLAMA2]), (size_t)1 << 24, &json, &len));
	fo_str_append(&s, json, len);
	replace_once(&s, "\"<s>\": 1,", "\"<s>\": 1, \"</\": 900, \"</s>a\": 902,");
	replace_once(&s, "\"merges\": [", "\"merges\": [[\"<\", \"/\"], [\"</\", \"s>\"], [\"</s>\", \"a\"],");
	must(fo_fs_write_atomic(in_scratch("spelled.json"), s.data, s.len));
	struct fo_tokenizer *t = load(in_scratch("spelled.json"));
	struct ids got = { 0 };
	encode(t, "</s>a", 5, &got);
	assert_true(got.n >= 3);
	bool left = false, right = false;
	for (size_t i = 0; i < got.n; i++) {
		assert_true(got.id[i] > 2 && got.id[i] != 902);
		left |= got.id[i] == 900;
		right |= got.id[i] == tok_word(t, "s>", 2);
	}
	assert_true(left && right);
	free(got.id);
	fo_tokenizer_free(t);
	fo_str_fini(&s);
	fo_arena_fini(&a);
}

/* ---- Qwen2's style ---- */

static void assert_normal(const char *text, const char *want)
{
	struct fo_str s = { 0 };
	fo_str_puts(&s, "");
	nfc_append(text, strlen(text), &s);
	assert_string_equal(s.data, want);
	assert_true(nfc_may_change(text, strlen(text)) || strcmp(text, want) == 0);
	fo_str_fini(&s);
}

static void test_normalization(void **state)
{
	(void)state;
	assert_normal("plain", "plain");
	assert_normal("e\xcc\x81", "\xc3\xa9");
	assert_normal("e\xcc\xa3\xcc\x81", "\xe1\xba\xb9\xcc\x81");
	assert_normal("e\xcc\x81\xcc\xa3", "\xe1\xba\xb9\xcc\x81"); /* marks are ordered by class first */
	assert_normal("a\xcc\x85\xcc\x81", "a\xcc\x85\xcc\x81");    /* blocked by a mark of the same class */
	assert_normal("\xe2\x84\xab", "\xc3\x85");                  /* Angstrom sign */
	assert_normal("\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc");  /* never put together again */
	assert_normal("e\xff\xcc\x81", "e\xff\xcc\x81");            /* a broken byte stands between */
	assert_normal("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c");
	assert_normal("\xe1\xbe\xb3", "\xe1\xbe\xb3");
	assert_normal("\xf0\x9d\x85\x9e", "\xf0\x9d\x85\x97\xf0\x9d\x85\xa5");
	/* Every Hangul syllable from its letters, and normal texts stay as they are. */
	for (uint32_t c = 0xac00; c < 0xd7a4; c++) {
		char letters[16] = "", whole[8] = "";
		uint32_t s = c - 0xac00;
		size_t n = put_char(letters, 0x1100 + s / 588);
		n += put_char(letters + n, 0x1161 + s % 588 / 28);
		if (s % 28)
			n += put_char(letters + n, 0x11a7 + s % 28);
		put_char(whole, c);
		assert_normal(letters, whole);
		assert_normal(whole, whole);
	}
	/* Millions of marks on one character take no millions of steps each. */
	struct fo_str many = { 0 }, normal = { 0 };
	fo_str_puts(&many, "q");
	for (int i = 0; i < 1000000; i++)
		fo_str_puts(&many, i % 2 ? "\xcc\x81" : "\xcc\xa3");
	nfc_append(many.data, many.len, &normal);
	assert_int_equal(normal.len, many.len);
	assert_memory_equal(normal.data + 1 + 2 * 499999, "\xcc\xa3\xcc\x81", 4);
	fo_str_fini(&many);
	fo_str_fini(&normal);
}

static void test_added_words(void **state)
{
	(void)state;
	struct fo_tokenizer *t = load(golden(names[QWEN2]));
	int32_t foo = -1, foo_bar = -1;
	for (size_t i = 0; i < t->specials; i++) {
		foo = strcmp(t->special[i].text, "foo") == 0 ? t->special[i].id : foo;
		foo_bar = strcmp(t->special[i].text, "foo_bar") == 0 ? t->special[i].id : foo_bar;
	}
	assert_true(foo >= 0 && foo_bar >= 0);
	struct ids got = { 0 };
	encode(t, "foo_barfoofoo_ba", 16, &got); /* the longest first */
	assert_true(got.n > 3 && got.id[0] == foo_bar && got.id[1] == foo && got.id[2] == foo);
	encode(t, "<|endoftext|>", 13, &got);
	for (size_t i = 0; i < got.n; i++)
		assert_true(got.id[i] != fo_tokenizer_eos(t));
	free(got.id);
	fo_tokenizer_free(t);
}

/* ---- parts and threads ---- */

static char *long_text(struct fo_arena *a, size_t want, size_t *len)
{
	char *docs, *text, *all = fo_arena_alloc(a, want);
	size_t docs_len, text_len;
	must(fo_fs_read(a, golden("tokenizer_mixed.docs"), (size_t)1 << 24, &docs, &docs_len));
	must(fo_fs_read(a, golden("tokenizer_text.txt"), (size_t)1 << 24, &text, &text_len));
	*len = 0;
	for (uint64_t i = 0; *len + 4096 < want; i++) {
		const char *from = i % 8 ? text : docs;
		size_t n = fo_rng_u64(7, i) % 4096, at = fo_rng_u64(8, i) % ((i % 8 ? text_len : docs_len) - n);
		memcpy(all + *len, from + at, n);
		*len += n;
	}
	return all;
}

static void test_parts_of_a_text(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	size_t len;
	char *text = long_text(&a, 60000, &len);
	struct ids whole = { 0 }, parts = { 0 };
	for (int i = 0; i < NAMES; i++) {
		struct fo_tokenizer *t = load(golden(names[i]));
		struct fo_encoder *e;
		must(fo_encoder_new(t, &e));
		encode(t, text, len, &whole);
		parts.n = 0;
		int count = 0;
		for (size_t at = 0, end; at < len; at = end, count++) {
			end = fo_tokenizer_cut(t, text, len, at + 1 + fo_rng_u64(9, at) % 100);
			assert_in_range(end, at + 1, len);
			must(fo_encoder_encode(e, text + at, end - at, at == 0, &parts.id, &parts.n, &parts.cap));
		}
		assert_true(count > 300);
		assert_same_ids(&parts, &whole);
		fo_encoder_free(e);
		fo_tokenizer_free(t);
	}
	free(whole.id);
	free(parts.id);
	fo_arena_fini(&a);
}

struct job {
	struct fo_encoder *e;
	const char *text;
	size_t len;
	struct ids got;
	fo_status st;
};

static void *encode_in_thread(void *arg)
{
	struct job *j = arg;
	j->st = fo_encoder_encode(j->e, j->text, j->len, true, &j->got.id, &j->got.n, &j->got.cap);
	return NULL;
}

/* A pattern that only PCRE2 can match: its code is shared, what it writes into is not. */
static void test_encoders_share_a_foreign_pattern(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	size_t json_len, len;
	char *json, *text = long_text(&a, 100000, &len);
	must(fo_fs_read(&a, golden("tokenizer_llama3.json"), (size_t)1 << 24, &json, &json_len));
	char *digits = strstr(json, "{1,3}");
	assert_non_null(digits);
	digits[3] = '2';
	must(fo_fs_write_atomic(in_scratch("foreign.json"), json, json_len));
	struct fo_tokenizer *t = load(in_scratch("foreign.json"));
	assert_false(split_is_known(tok_split(t)));
	assert_int_equal(fo_tokenizer_cut(t, text, len, 1), len);
	struct ids whole = { 0 };
	encode(t, text, len, &whole);
	struct job job[2] = { { .text = text, .len = len }, { .text = text, .len = len } };
	pthread_t thread[2];
	for (int i = 0; i < 2; i++) {
		must(fo_encoder_new(t, &job[i].e));
		assert_int_equal(pthread_create(&thread[i], NULL, encode_in_thread, &job[i]), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(job[i].st, FO_OK);
		assert_same_ids(&job[i].got, &whole);
		fo_encoder_free(job[i].e);
		free(job[i].got.id);
	}
	free(whole.id);
	fo_tokenizer_free(t);
	fo_arena_fini(&a);
}

/* ---- training can be stopped ---- */

struct stopping {
	volatile sig_atomic_t stop;
	const char *what;
	double done;
};

static void stop_when(void *ctx, const char *what, const char *unit, double done, double total)
{
	struct stopping *s = ctx;
	assert_true(done >= 0 && done <= total && *unit);
	if (strcmp(what, s->what) == 0) {
		s->stop = 1;
		s->done = done;
	}
}

static void test_training_stops(void **state)
{
	(void)state;
	char path[4096], *paths[] = { path };
	snprintf(path, sizeof path, "%s", golden("tokenizer_text.txt"));
	static const char *const when[] = { "counting words", "merging" };
	for (int i = 0; i < 2; i++) {
		struct stopping s = { .what = when[i] };
		struct fo_tokenizer *t = NULL;
		assert_int_equal(fo_tokenizer_train(paths, 1, NULL, 900, (size_t)1 << 30, stop_when, &s, &s.stop, &t),
				 FO_EINTERRUPT);
		assert_null(t);
		assert_non_null(strstr(fo_err_text(), "stopped"));
		assert_true(i == 0 || s.done == 512); /* at the first merge that told of its progress */
	}
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
		cmocka_unit_test(test_mixed_texts_as_hugging_face),
		cmocka_unit_test(test_known_patterns_against_pcre2),
		cmocka_unit_test(test_foreign_patterns_against_hugging_face),
		cmocka_unit_test(test_sentence_style_against_merging_the_whole),
		cmocka_unit_test(test_sentence_style_decodes),
		cmocka_unit_test(test_sentence_refusals),
		cmocka_unit_test(test_no_text_spells_a_special_token),
		cmocka_unit_test(test_normalization),
		cmocka_unit_test(test_added_words),
		cmocka_unit_test(test_parts_of_a_text),
		cmocka_unit_test(test_encoders_share_a_foreign_pattern),
		cmocka_unit_test(test_training_stops),
	};
	return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
