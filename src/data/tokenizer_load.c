/* Reading tokenizer.json: our own files, Hugging Face's byte-level BPE and its SentencePiece-style BPE with byte
 * fallback. Whatever would change the ids and is not implemented is refused by name. */
#include "data/data_int.h"

#include "base/fs.h"
#include "base/schema.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE ((size_t)64 << 20) /* the largest published ones (262,144 tokens) have 33 MB */
#define MAX_SPECIALS 4096           /* Llama 3 has 256 */
#define MAX_TOKEN 4096              /* bytes; the longest published one has a few hundred */

/* One token while the file is read. */
struct entry {
	const char *text;
	bool in_model, special, in_text;
	int byte; /* + 1: what byte a byte-fallback token stands for */
};

struct reader {
	const json_t *root, *model, *vocab, *added;
	struct entry *entry; /* by id */
	int64_t vocab_size;
	struct fo_tokenizer *t; /* under construction */
	size_t specials;
};

/* A JSON value as a short text for messages. */
static const char *shown(const json_t *v, char buf[64])
{
	char raw[96];
	if (!v)
		return "nothing";
	size_t n = json_dumpb(v, raw, sizeof raw - 1, JSON_COMPACT | JSON_ENCODE_ANY);
	if (n >= sizeof raw - 1 && json_is_object(v))
		return "an object";
	if (n >= sizeof raw - 1)
		return json_is_array(v) ? "an array" : "a long text";
	raw[n] = 0;
	return fo_str_visible(buf, 64, raw);
}

static fo_status differs(const char *key, const char *expected, const json_t *got)
{
	char buf[64];
	return fo_fail(FO_EFORMAT, "'%s' is %s, expected %s", key, shown(got, buf), expected);
}

static bool text_is(const json_t *v, const char *text)
{
	return json_is_string(v) && strcmp(json_string_value(v), text) == 0;
}

/* The value at a path such as "a.b[0].c"; NULL: nothing, or null. */
static const json_t *at(const json_t *v, const char *path)
{
	while (v && *path) {
		size_t n = strcspn(path, ".[");
		if (n)
			v = json_object_getn(v, path, n);
		path += n;
		if (*path == '[') {
			v = json_array_get(v, (size_t)(path[1] - '0'));
			path += 3;
		}
		path += *path == '.';
	}
	return json_is_null(v) ? NULL : v;
}

/* Is the value at the path this text? */
static bool says(const json_t *root, const char *path, const char *text) { return text_is(at(root, path), text); }

static fo_status must_say(const struct reader *r, const char *path, const char *text)
{
	return says(r->root, path, text) ? FO_OK : differs(path, text, at(r->root, path));
}

static fo_status must_not_be_true(const struct reader *r, const char *path)
{
	return json_is_true(at(r->root, path)) ? differs(path, "false", at(r->root, path)) : FO_OK;
}

static fo_status must_be_absent(const struct reader *r, const char *path)
{
	return at(r->root, path) ? differs(path, "null", at(r->root, path)) : FO_OK;
}

static fo_status read_byte_level_split(struct reader *r)
{
	const char *regex = "pre_tokenizer.pretokenizers[0].pattern.Regex",
		   *use_regex = "pre_tokenizer.pretokenizers[1].use_regex";
	size_t steps = json_array_size(at(r->root, "pre_tokenizer.pretokenizers"));
	if (says(r->root, "pre_tokenizer.type", "ByteLevel")) {
		r->t->gpt2_style = true;
		r->t->pattern = fo_xstrdup(split_pattern_gpt2);
		FO_TRY(must_not_be_true(r, "pre_tokenizer.add_prefix_space"));
		if (json_is_false(at(r->root, "pre_tokenizer.use_regex")))
			return fo_fail(FO_EFORMAT, "'pre_tokenizer.use_regex' is false, expected true");
		return FO_OK;
	}
	if (!says(r->root, "pre_tokenizer.type", "Sequence"))
		return differs("pre_tokenizer.type", "ByteLevel or Sequence", at(r->root, "pre_tokenizer.type"));
	if (steps != 2)
		return fo_fail(FO_EFORMAT,
			       "'pre_tokenizer.pretokenizers' has %zu steps, expected 2: Split and ByteLevel", steps);
	FO_TRY(must_say(r, "pre_tokenizer.pretokenizers[0].type", "Split"));
	if (!json_is_string(at(r->root, regex)))
		return differs(regex, "a text", at(r->root, regex));
	r->t->pattern = fo_xstrdup(json_string_value(at(r->root, regex)));
	FO_TRY(must_say(r, "pre_tokenizer.pretokenizers[0].behavior", "Isolated"));
	FO_TRY(must_not_be_true(r, "pre_tokenizer.pretokenizers[0].invert"));
	FO_TRY(must_say(r, "pre_tokenizer.pretokenizers[1].type", "ByteLevel"));
	FO_TRY(must_not_be_true(r, "pre_tokenizer.pretokenizers[1].add_prefix_space"));
	if (!json_is_false(at(r->root, use_regex))) /* true is what the library takes where the key is absent */
		return fo_fail(FO_EFORMAT, "'%s' is true, expected false", use_regex);
	return FO_OK;
}

/* ---- SentencePiece's style ---- */

static bool is_replace(const json_t *v, const char *from, const char *to)
{
	return says(v, "type", "Replace") && says(v, "content", to) && says(v, "pattern.String", from);
}

static fo_status read_sentence_normalizer(struct reader *r, const json_t *v)
{
	const json_t *list = at(v, "normalizers"), *first = json_array_get(list, 0);
	size_t n = json_array_size(list);
	if (at(r->root, "pre_tokenizer"))
		return fo_fail(FO_EFORMAT, "'normalizer' and 'pre_tokenizer' are both set, expected one of them where "
					   "'model.byte_fallback' is true");
	r->t->prefix = n == 2 ? TOK_NORMALIZER_MARK : TOK_NORMALIZER;
	if (is_replace(v, " ", SENTENCE_SPACE))
		return FO_OK;
	if (says(v, "type", "Sequence") && n && n <= 2 &&
	    is_replace(json_array_get(list, n - 1), " ", SENTENCE_SPACE) &&
	    (n == 1 || (says(first, "type", "Prepend") && says(first, "prepend", SENTENCE_SPACE))))
		return FO_OK;
	return differs("normalizer", "Replace of ' ' by U+2581, with or without Prepend of U+2581", v);
}

static fo_status read_metaspace(struct reader *r)
{
	const json_t *v = at(r->root, "pre_tokenizer"), *scheme = json_object_get(v, "prepend_scheme"),
		     *prefix = at(v, "add_prefix_space"), *split = at(v, "split");
	if (!says(v, "type", "Metaspace"))
		return differs("pre_tokenizer.type", "Metaspace or null where 'model.byte_fallback' is true",
			       at(v, "type"));
	if (!says(v, "replacement", SENTENCE_SPACE))
		return differs("pre_tokenizer.replacement", "U+2581", at(v, "replacement"));
	r->t->prefix = TOK_METASPACE_ALWAYS;
	if (text_is(scheme, "first"))
		r->t->prefix = TOK_METASPACE_FIRST;
	else if (text_is(scheme, "never") || (!scheme && json_is_false(prefix)))
		r->t->prefix = TOK_METASPACE_NEVER;
	else if (scheme && !text_is(scheme, "always"))
		return differs("pre_tokenizer.prepend_scheme", "always, first or never", scheme);
	if (json_is_false(prefix) && r->t->prefix != TOK_METASPACE_NEVER)
		return fo_fail(FO_EFORMAT,
			       "'pre_tokenizer.add_prefix_space' is false, but 'prepend_scheme' is not never");
	r->t->split_spaces = !split || json_is_true(split);
	return FO_OK;
}

static fo_status read_sentence_style(struct reader *r)
{
	const json_t *normalizer = at(r->root, "normalizer"), *decoder = at(r->root, "decoder");
	r->t->sentence = true;
	if (r->t->whole_words)
		return fo_fail(FO_EFORMAT,
			       "'model.ignore_merges' is true, expected false where 'model.byte_fallback' is true");
	if (!normalizer && !at(r->root, "pre_tokenizer"))
		return fo_fail(FO_EFORMAT,
			       "'normalizer' and 'pre_tokenizer' are both null, expected U+2581 for spaces where "
			       "'model.byte_fallback' is true");
	FO_TRY(normalizer ? read_sentence_normalizer(r, normalizer) : read_metaspace(r));
	if (!decoder || says(decoder, "type", "Metaspace") ||
	    (says(decoder, "type", "Sequence") && is_replace(at(decoder, "decoders[0]"), SENTENCE_SPACE, " ") &&
	     says(decoder, "decoders[1].type", "ByteFallback") && says(decoder, "decoders[2].type", "Fuse")))
		return FO_OK;
	return differs("decoder", "a Sequence of Replace, ByteFallback, Fuse and Strip", decoder);
}

/* ---- settings ---- */

/* Reads everything in the file that is not vocabulary. */
static fo_status read_settings(struct reader *r)
{
	static const char *const affix[] = { "model.continuing_subword_prefix", "model.end_of_word_suffix" };
	FO_TRY(must_be_absent(r, "truncation"));
	FO_TRY(must_be_absent(r, "padding"));
	/* GPT-2's file is older than the field. */
	if (at(r->root, "model.type") || !at(r->root, "model.merges"))
		FO_TRY(must_say(r, "model.type", "BPE"));
	if (json_number_value(at(r->root, "model.dropout")) != 0)
		FO_TRY(must_be_absent(r, "model.dropout"));
	for (int i = 0; i < 2; i++)
		if (!says(r->root, affix[i], ""))
			FO_TRY(must_be_absent(r, affix[i]));
	r->model = json_object_get(r->root, "model");
	const json_t *unknown = at(r->model, "unk_token"), *normalizer = at(r->root, "normalizer");
	if (unknown && (!json_is_string(unknown) || json_string_length(unknown) > MAX_TOKEN))
		return differs("model.unk_token", "a short text or null", unknown);
	r->t->unknown = unknown ? fo_xstrdup(json_string_value(unknown)) : NULL;
	r->t->fuse_unknown = json_is_true(at(r->model, "fuse_unk"));
	r->t->whole_words = json_is_true(at(r->model, "ignore_merges"));
	if (json_is_true(at(r->model, "byte_fallback")))
		return read_sentence_style(r);
	r->t->nfc = says(normalizer, "type", "NFC");
	if (normalizer && !r->t->nfc)
		return differs("normalizer", "null or NFC", normalizer);
	FO_TRY(read_byte_level_split(r));
	return at(r->root, "decoder") ? must_say(r, "decoder.type", "ByteLevel") : FO_OK;
}

/* ---- vocabulary ---- */

static fo_status check_id(const json_t *id, const char *token, int64_t *out)
{
	char buf[64];
	if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= TOK_MAX_VOCAB) {
		char visible[64];
		return fo_fail(FO_EFORMAT, "the id of token '%s' is %s, expected 0 to %lld",
			       fo_str_visible(visible, 64, token), shown(id, buf), (long long)TOK_MAX_VOCAB - 1);
	}
	*out = json_integer_value(id);
	return FO_OK;
}

/* Checks every id and counts the vocabulary: one more than the largest id. */
static fo_status read_ids(struct reader *r)
{
	const char *token;
	json_t *v;
	int64_t id;
	r->vocab = json_object_get(r->model, "vocab");
	r->added = json_object_get(r->root, "added_tokens");
	if (!json_is_object(r->vocab) || !json_object_size(r->vocab))
		return fo_fail(FO_EFORMAT, "'model.vocab' is not an object with tokens");
	if (json_array_size(r->added) > MAX_SPECIALS)
		return fo_fail(FO_EFORMAT, "'added_tokens' has %zu entries, at most %d are supported",
			       json_array_size(r->added), MAX_SPECIALS);
	json_object_foreach((json_t *)r->vocab, token, v)
	{
		FO_TRY(check_id(v, token, &id));
		if (!*token || strlen(token) > MAX_TOKEN)
			return fo_fail(FO_EFORMAT, "token %lld has %zu bytes, expected 1 to %d", (long long)id,
				       strlen(token), MAX_TOKEN);
		r->vocab_size = id < r->vocab_size ? r->vocab_size : id + 1;
	}
	for (size_t i = 0; i < json_array_size(r->added); i++) {
		const json_t *t = json_array_get(r->added, i), *content = json_object_get(t, "content");
		if (!json_is_string(content) || !json_string_length(content) || json_string_length(content) > MAX_TOKEN)
			return fo_fail(FO_EFORMAT, "'added_tokens[%zu].content' is not a text of 1 to %d bytes", i,
				       MAX_TOKEN);
		FO_TRY(check_id(json_object_get(t, "id"), json_string_value(content), &id));
		r->vocab_size = id < r->vocab_size ? r->vocab_size : id + 1;
	}
	return FO_OK;
}

static fo_status twice(const char *a, const char *b, int64_t id)
{
	char x[64], y[64];
	return fo_fail(FO_EFORMAT, "tokens '%s' and '%s' both have id %lld", fo_str_visible(x, 64, a),
		       fo_str_visible(y, 64, b), (long long)id);
}

/* An added token that Hugging Face reads from texts. */
static fo_status check_in_text(const struct reader *r, const json_t *t, const char *token)
{
	static const char *const flag[] = { "single_word", "lstrip", "rstrip", "normalized" };
	char visible[64];
	fo_str_visible(visible, sizeof visible, token);
	if (r->t->sentence)
		return fo_fail(FO_EFORMAT,
			       "added token '%s' is not special, expected special ones only where "
			       "'model.byte_fallback' is true",
			       visible);
	for (int i = 0; i < 4; i++)
		if (json_is_true(at(t, flag[i])))
			return fo_fail(FO_EFORMAT,
				       "added token '%s' is not special and its '%s' is true, expected false", visible,
				       flag[i]);
	return FO_OK;
}

/* <0x00> to <0xFF>: the byte + 1, 0 for any other token. */
static int fallback_byte(const struct reader *r, const char *token)
{
	static const char digits[] = "0123456789ABCDEF";
	if (!r->t->sentence || strlen(token) != 6 || strncmp(token, "<0x", 3) != 0 || token[5] != '>')
		return 0;
	const char *high = strchr(digits, token[3]), *low = strchr(digits, token[4]);
	return high && low ? (int)(high - digits) * 16 + (int)(low - digits) + 1 : 0;
}

static fo_status read_vocab(struct reader *r)
{
	const char *token;
	json_t *v;
	FO_TRY(read_ids(r));
	r->entry = fo_xmalloc((size_t)r->vocab_size * sizeof *r->entry);
	json_object_foreach((json_t *)r->vocab, token, v)
	{
		struct entry *e = &r->entry[json_integer_value(v)];
		if (e->text)
			return twice(e->text, token, json_integer_value(v));
		*e = (struct entry){ .text = token, .in_model = true, .byte = fallback_byte(r, token) };
	}
	for (size_t i = 0; i < json_array_size(r->added); i++) {
		const json_t *t = json_array_get(r->added, i);
		int64_t id = json_integer_value(json_object_get(t, "id"));
		struct entry *e = &r->entry[id];
		token = json_string_value(json_object_get(t, "content"));
		if (!json_is_true(json_object_get(t, "special"))) {
			FO_TRY(check_in_text(r, t, token));
			e->in_text = true;
		}
		if (e->special || (e->text && strcmp(e->text, token) != 0))
			return twice(e->text, token, id);
		e->text = token;
		e->special = true;
		r->specials++;
	}
	return FO_OK;
}

/* Appends the bytes that a vocabulary key stands for. */
static fo_status append_bytes(struct fo_str *out, const char *token)
{
	char visible[64];
	const char *s = token;
	for (size_t left = strlen(token), n; left; s += n, left -= n) {
		uint32_t c = 0;
		n = fo_utf8_decode(s, left, &c);
		int b = n && c < 324 ? tok_char_byte((int)c) : -1;
		if (b < 0)
			return fo_fail(FO_EFORMAT,
				       "token '%s' is not written in the byte alphabet: not a byte-level tokenizer",
				       fo_str_visible(visible, 64, token));
		fo_str_append(out, &(char){ (char)b }, 1);
	}
	return FO_OK;
}

/* Appends a token of SentencePiece's style: U+2581 is a space. */
static fo_status append_sentence(struct fo_str *out, const struct entry *e)
{
	char visible[64];
	if (e->byte) {
		fo_str_append(out, &(char){ (char)(e->byte - 1) }, 1);
		return FO_OK;
	}
	if (strchr(e->text, ' '))
		return fo_fail(FO_EFORMAT, "token '%s' contains a space, which is written as U+2581 in this style",
			       fo_str_visible(visible, sizeof visible, e->text));
	for (const char *s = e->text; *s;) {
		const bool space = strncmp(s, SENTENCE_SPACE, 3) == 0;
		fo_str_append(out, space ? " " : s, 1);
		s += space ? 3 : 1;
	}
	return FO_OK;
}

static fo_status build_tokens(const struct reader *r, struct fo_tokenizer *t)
{
	struct fo_str bytes = { 0 };
	fo_status st = FO_OK;
	t->vocab = r->vocab_size;
	t->at = fo_xmalloc(((size_t)t->vocab + 1) * sizeof *t->at);
	t->special = fo_xmalloc((r->specials + 1) * sizeof *t->special);
	for (int b = 0; b < 256; b++)
		t->byte_id[b] = -1;
	for (int64_t id = 0; id < t->vocab && st == FO_OK; id++) {
		const struct entry *e = &r->entry[id];
		t->at[id] = bytes.len;
		if (e->special) {
			fo_str_puts(&bytes, e->text);
			t->special[t->specials++] = (struct tok_special){ (int32_t)id, fo_xstrdup(e->text), e->in_model,
									  e->in_text };
		} else if (e->text && r->t->sentence) {
			st = append_sentence(&bytes, e);
			if (e->byte)
				t->byte_id[e->byte - 1] = (int32_t)id;
		} else if (e->text) {
			st = append_bytes(&bytes, e->text);
		}
	}
	t->at[t->vocab] = bytes.len;
	t->bytes = bytes.data;
	return st;
}

/* The id of s[0..len), looked up without its end being a NUL. */
static int32_t token_id(const struct reader *r, const char *s, size_t len)
{
	const json_t *v = json_object_getn(r->vocab, s, len);
	return v ? (int32_t)json_integer_value(v) : -1;
}

static fo_status read_merge(const struct reader *r, const json_t *v, size_t i, struct tok_merge *out)
{
	const char *a, *b;
	size_t la, lb;
	char joined[2 * MAX_TOKEN + 1], visible[64];
	if (json_is_string(v)) {
		a = json_string_value(v);
		b = strchr(a, ' ');
		if (!b)
			return fo_fail(FO_EFORMAT, "merge %zu is '%s', expected two tokens", i,
				       fo_str_visible(visible, 64, a));
		la = (size_t)(b++ - a);
		lb = strlen(b);
	} else if (json_array_size(v) == 2 && json_is_string(json_array_get(v, 0)) &&
		   json_is_string(json_array_get(v, 1))) {
		a = json_string_value(json_array_get(v, 0));
		b = json_string_value(json_array_get(v, 1));
		la = strlen(a);
		lb = strlen(b);
	} else {
		return fo_fail(FO_EFORMAT, "merge %zu is %s, expected two tokens", i, shown(v, visible));
	}
	out->a = token_id(r, a, la);
	out->b = token_id(r, b, lb);
	if (out->a < 0 || out->b < 0)
		return fo_fail(FO_EFORMAT, "merge %zu names '%s', which the vocabulary lacks", i,
			       fo_str_visible(visible, 64, out->a < 0 ? a : b));
	memcpy(joined, a, la); /* both are tokens, so at most MAX_TOKEN long */
	memcpy(joined + la, b, lb);
	joined[la + lb] = 0;
	out->out = token_id(r, joined, la + lb);
	if (out->out < 0)
		return fo_fail(FO_EFORMAT, "merge %zu makes '%s', which the vocabulary lacks", i,
			       fo_str_visible(visible, 64, joined));
	/* Bytes that no character has are symbols on their own: sentence.c cuts around them. */
	for (int k = 0; k < 2 && r->t->sentence; k++) {
		const struct entry *e = &r->entry[k ? out->b : out->a];
		if (e->byte)
			return fo_fail(FO_EFORMAT, "merge %zu joins '%s', the token of a byte", i,
				       fo_str_visible(visible, 64, e->text));
	}
	return FO_OK;
}

/* A merge by which a text could spell an added token is left out: those are not read from texts, or are found before
 * any merging. Files that were converted from SentencePiece's have such merges. */
static fo_status read_merges(const struct reader *r, struct fo_tokenizer *t)
{
	const json_t *merges = json_object_get(r->model, "merges");
	if (!json_is_array(merges) || json_array_size(merges) > (size_t)TOK_MAX_VOCAB)
		return fo_fail(FO_EFORMAT, "'model.merges' is not an array of at most %lld merges",
			       (long long)TOK_MAX_VOCAB);
	t->merge = fo_xmalloc(json_array_size(merges) * sizeof *t->merge);
	for (size_t i = 0; i < json_array_size(merges); i++) {
		struct tok_merge *m = &t->merge[t->merges];
		FO_TRY(read_merge(r, json_array_get(merges, i), i, m));
		t->merges += !r->entry[m->a].special && !r->entry[m->b].special && !r->entry[m->out].special;
	}
	return FO_OK;
}

static fo_status build(struct reader *r)
{
	FO_TRY(read_settings(r));
	FO_TRY(read_vocab(r));
	FO_TRY(build_tokens(r, r->t));
	FO_TRY(read_merges(r, r->t));
	return tok_finish(r->t);
}

fo_status fo_tokenizer_load(const char *path, struct fo_tokenizer **out)
{
	struct fo_arena arena = { 0 };
	char *text;
	size_t len;
	json_t *root;
	fo_status st = fo_fs_read(&arena, path, MAX_FILE, &text, &len);
	if (st == FO_OK)
		st = fo_schema_parse(text, len, path, "tokenizer", &root);
	fo_arena_fini(&arena);
	if (st != FO_OK && strstr(fo_err_text(), "U+0000"))
		return fo_hint(st, "the byte 0 is written as U+0100 in a byte-level vocabulary and as <0x00> in "
				   "SentencePiece's style");
	if (st != FO_OK)
		return st;
	struct reader r = { .root = root, .t = fo_xmalloc(sizeof *r.t) };
	st = build(&r);
	free(r.entry);
	json_decref(root);
	if (st != FO_OK) {
		fo_tokenizer_free(r.t);
		return fo_wrap(st, "cannot use the tokenizer '%s'", path);
	}
	*out = r.t;
	return FO_OK;
}
