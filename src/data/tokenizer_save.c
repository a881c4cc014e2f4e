/* Writing tokenizer.json. */
#include "data/data_int.h"

#include "base/fs.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* ---- GPT-2's byte alphabet: printable Latin-1 bytes stand for themselves, the others for code points from 256 ---- */

static bool stands_for_itself(int b)
{
	return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

int tok_byte_char(int byte)
{
	if (stands_for_itself(byte))
		return byte;
	int n = 256;
	for (int b = 0; b < byte; b++)
		n += !stands_for_itself(b);
	return n;
}

int tok_char_byte(int code_point)
{
	if (code_point < 256)
		return stands_for_itself(code_point) ? code_point : -1;
	for (int b = 0, n = 256; b < 256; b++)
		if (!stands_for_itself(b) && n++ == code_point)
			return b;
	return -1;
}

/* ---- the file's text ---- */

/* Appends a token's bytes in the byte alphabet; in SentencePiece's style only spaces and lone bytes are rewritten. */
static void token_chars(const struct fo_tokenizer *t, int32_t id, struct fo_str *out)
{
	static const char none[4];
	size_t from = t->at[id], to = t->at[id + 1];
	fo_str_append(out, none, 0);
	if (t->sentence && to - from == 1 && t->byte_id[(unsigned char)t->bytes[from]] == id) {
		fo_str_printf(out, "<0x%02X>", (unsigned char)t->bytes[from]);
		return;
	}
	for (size_t i = from; i < to; i++) {
		if (t->sentence && t->bytes[i] == ' ') {
			fo_str_puts(out, SENTENCE_SPACE);
			continue;
		}
		if (t->sentence) {
			fo_str_append(out, t->bytes + i, 1);
			continue;
		}
		char utf8[4];
		fo_str_append(out, utf8, fo_utf8_encode(utf8, (uint32_t)tok_byte_char((unsigned char)t->bytes[i])));
	}
}

static void text_special(const struct fo_tokenizer *t, struct fo_json *j)
{
	fo_json_array(j, "added_tokens");
	for (size_t i = 0; i < t->specials; i++) {
		fo_json_object(j, NULL);
		fo_json_int(j, "id", t->special[i].id);
		fo_json_text(j, "content", t->special[i].text);
		fo_json_bool(j, "single_word", false);
		fo_json_bool(j, "lstrip", false);
		fo_json_bool(j, "rstrip", false);
		fo_json_bool(j, "normalized", false);
		fo_json_bool(j, "special", !t->special[i].in_text);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void begin_typed(struct fo_json *j, const char *key, const char *type)
{
	fo_json_object(j, key);
	fo_json_text(j, "type", type);
}

/* {"type": type}, with one more text unless `name` is NULL. */
static void put_typed(struct fo_json *j, const char *key, const char *type, const char *name, const char *text)
{
	begin_typed(j, key, type);
	if (name)
		fo_json_text(j, name, text);
	fo_json_close(j);
}

/* {name: text} */
static void put_pair(struct fo_json *j, const char *key, const char *name, const char *text)
{
	fo_json_object(j, key);
	fo_json_text(j, name, text);
	fo_json_close(j);
}

static void text_byte_level(struct fo_json *j, const char *key, bool use_regex)
{
	begin_typed(j, key, "ByteLevel");
	fo_json_bool(j, "add_prefix_space", false);
	fo_json_bool(j, "trim_offsets", true);
	fo_json_bool(j, "use_regex", use_regex);
	fo_json_close(j);
}

static void text_replace(struct fo_json *j, const char *from, const char *to)
{
	begin_typed(j, NULL, "Replace");
	put_pair(j, "pattern", "String", from);
	fo_json_text(j, "content", to);
	fo_json_close(j);
}

static bool by_metaspace(const struct fo_tokenizer *t)
{
	return t->prefix != TOK_NORMALIZER && t->prefix != TOK_NORMALIZER_MARK;
}

static void text_normalizer(const struct fo_tokenizer *t, struct fo_json *j)
{
	if (t->nfc) {
		put_typed(j, "normalizer", "NFC", NULL, NULL);
	} else if (!t->sentence || by_metaspace(t)) {
		fo_json_raw(j, "normalizer", "null");
	} else {
		begin_typed(j, "normalizer", "Sequence");
		fo_json_array(j, "normalizers");
		if (t->prefix == TOK_NORMALIZER_MARK)
			put_typed(j, NULL, "Prepend", "prepend", SENTENCE_SPACE);
		text_replace(j, " ", SENTENCE_SPACE);
		fo_json_close(j);
		fo_json_close(j);
	}
}

static void text_metaspace(const struct fo_tokenizer *t, struct fo_json *j)
{
	if (!by_metaspace(t)) {
		fo_json_raw(j, "pre_tokenizer", "null");
		return;
	}
	begin_typed(j, "pre_tokenizer", "Metaspace");
	fo_json_text(j, "replacement", SENTENCE_SPACE);
	static const char *const scheme[] = {
		[TOK_METASPACE_NEVER] = "never", [TOK_METASPACE_FIRST] = "first", [TOK_METASPACE_ALWAYS] = "always"
	};
	fo_json_text(j, "prepend_scheme", scheme[t->prefix]);
	fo_json_bool(j, "split", t->split_spaces);
	fo_json_close(j);
}

static void text_sentence_decoder(const struct fo_tokenizer *t, struct fo_json *j)
{
	begin_typed(j, "decoder", "Sequence");
	fo_json_array(j, "decoders");
	text_replace(j, SENTENCE_SPACE, " ");
	put_typed(j, NULL, "ByteFallback", NULL, NULL);
	put_typed(j, NULL, "Fuse", NULL, NULL);
	if (t->prefix != TOK_NORMALIZER && t->prefix != TOK_METASPACE_NEVER) {
		begin_typed(j, NULL, "Strip");
		fo_json_text(j, "content", " ");
		fo_json_int(j, "start", 1);
		fo_json_int(j, "stop", 0);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_close(j);
}

static void text_pre_tokenizer(const struct fo_tokenizer *t, struct fo_json *j)
{
	if (t->sentence) {
		text_metaspace(t, j);
		return;
	}
	if (t->gpt2_style) {
		text_byte_level(j, "pre_tokenizer", true);
		return;
	}
	begin_typed(j, "pre_tokenizer", "Sequence");
	fo_json_array(j, "pretokenizers");
	begin_typed(j, NULL, "Split");
	put_pair(j, "pattern", "Regex", t->pattern);
	fo_json_text(j, "behavior", "Isolated");
	fo_json_bool(j, "invert", false);
	fo_json_close(j);
	text_byte_level(j, NULL, false);
	fo_json_close(j);
	fo_json_close(j);
}

/* The post-processor with which Hugging Face puts BOS before an encoded text. */
static void text_post_processor(const struct fo_tokenizer *t, struct fo_json *j)
{
	const char *bos = "";
	for (size_t i = 0; i < t->specials; i++)
		if (t->special[i].id == t->bos)
			bos = t->special[i].text;
	begin_typed(j, "post_processor", "TemplateProcessing");
	for (int pair = 0; pair < 2; pair++) {
		fo_json_array(j, pair ? "pair" : "single");
		for (int part = 0; part <= pair; part++) {
			fo_json_object(j, NULL);
			fo_json_object(j, "SpecialToken");
			fo_json_text(j, "id", bos);
			fo_json_int(j, "type_id", part);
			fo_json_close(j);
			fo_json_close(j);
			fo_json_object(j, NULL);
			fo_json_object(j, "Sequence");
			fo_json_text(j, "id", part ? "B" : "A");
			fo_json_int(j, "type_id", part);
			fo_json_close(j);
			fo_json_close(j);
		}
		fo_json_close(j);
	}
	fo_json_object(j, "special_tokens");
	fo_json_object(j, bos);
	fo_json_text(j, "id", bos);
	fo_json_array(j, "ids");
	fo_json_int(j, NULL, t->bos);
	fo_json_close(j);
	fo_json_array(j, "tokens");
	fo_json_text(j, NULL, bos);
	fo_json_close(j);
	fo_json_close(j);
	fo_json_close(j);
	fo_json_close(j);
}

static void text_model(const struct fo_tokenizer *t, struct fo_json *j)
{
	struct fo_str s = { 0 };
	begin_typed(j, "model", "BPE");
	fo_json_raw(j, "dropout", "null");
	fo_json_text(j, "unk_token", t->unknown);
	fo_json_raw(j, "continuing_subword_prefix", "null");
	fo_json_raw(j, "end_of_word_suffix", "null");
	fo_json_bool(j, "fuse_unk", t->fuse_unknown);
	fo_json_bool(j, "byte_fallback", t->sentence);
	fo_json_bool(j, "ignore_merges", t->whole_words);
	fo_json_object(j, "vocab");
	const char **special = fo_xmalloc((size_t)t->vocab * sizeof *special);
	bool *added_only = fo_xmalloc((size_t)t->vocab * sizeof *added_only);
	for (size_t i = 0; i < t->specials; i++) {
		special[t->special[i].id] = t->special[i].text;
		added_only[t->special[i].id] = !t->special[i].in_model;
	}
	for (int32_t id = 0; id < t->vocab; id++) {
		if (t->at[id + 1] == t->at[id] || added_only[id])
			continue;
		s.len = 0;
		token_chars(t, id, &s);
		fo_json_int(j, special[id] ? special[id] : s.data, id);
	}
	free(special);
	free(added_only);
	fo_json_close(j);
	fo_json_array(j, "merges"); /* "a b": every release of tokenizers reads it, pairs only those since 0.20 */
	for (int64_t i = 0; i < t->merges; i++) {
		s.len = 0;
		token_chars(t, t->merge[i].a, &s);
		fo_str_puts(&s, " ");
		token_chars(t, t->merge[i].b, &s);
		fo_json_text(j, NULL, s.data);
	}
	fo_json_close(j);
	fo_json_close(j);
	fo_str_fini(&s);
}

void tok_text(const struct fo_tokenizer *t, struct fo_str *out)
{
	struct fo_json j;
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	fo_json_text(&j, "version", "1.0");
	fo_json_raw(&j, "truncation", "null");
	fo_json_raw(&j, "padding", "null");
	text_special(t, &j);
	text_normalizer(t, &j);
	text_pre_tokenizer(t, &j);
	text_post_processor(t, &j);
	if (t->sentence)
		text_sentence_decoder(t, &j);
	else
		text_byte_level(&j, "decoder", true);
	text_model(t, &j);
	fo_json_close(&j);
}

bool fo_tokenizer_is_saved(const struct fo_tokenizer *t, const char *path)
{
	struct fo_str text = { 0 };
	struct fo_arena a = { 0 };
	char *there;
	size_t len;
	tok_text(t, &text);
	bool same = fo_fs_exists(path) && fo_fs_read_regular(&a, path, text.len + 1, &there, &len) == FO_OK &&
		    len == text.len && !memcmp(there, text.data, len);
	fo_err_clear();
	fo_arena_fini(&a);
	fo_str_fini(&text);
	return same;
}

fo_status fo_tokenizer_save(const struct fo_tokenizer *t, const char *path)
{
	struct fo_str text = { 0 };
	tok_text(t, &text);
	fo_status st = fo_fs_write_atomic(path, text.data, text.len);
	fo_str_fini(&text);
	return st;
}
