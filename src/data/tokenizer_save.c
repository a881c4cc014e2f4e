/* Writing tokenizer.json. */
#include "data/data_int.h"

#include "base/fs.h"
#include "base/json.h"

#include <jansson.h>
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
	size_t from = t->at[id], to = t->at[id + 1];
	fo_str_append(out, "", 0);
	if (t->sentence && to - from == 1 && t->byte_id[(unsigned char)t->bytes[from]] == id) {
		fo_str_printf(out, "<0x%02X>", (unsigned char)t->bytes[from]);
		return;
	}
	for (size_t i = from; i < to; i++) {
		char utf8[4];
		if (!t->sentence)
			fo_str_append(out, utf8,
				      fo_utf8_encode(utf8, (uint32_t)tok_byte_char((unsigned char)t->bytes[i])));
		else if (t->bytes[i] == ' ')
			fo_str_puts(out, SENTENCE_SPACE);
		else
			fo_str_append(out, t->bytes + i, 1);
	}
}

static bool by_metaspace(const struct fo_tokenizer *t)
{
	return t->prefix != TOK_NORMALIZER && t->prefix != TOK_NORMALIZER_MARK;
}

static json_t *byte_level(bool use_regex)
{
	return json_pack("{ss sb sb sb}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
			 use_regex);
}

static json_t *replacement(const char *from, const char *to)
{
	return json_pack("{ss s{ss} ss}", "type", "Replace", "pattern", "String", from, "content", to);
}

static json_t *added_tokens(const struct fo_tokenizer *t)
{
	json_t *list = json_array();
	for (size_t i = 0; i < t->specials; i++)
		json_array_append_new(list, json_pack("{si ss sb sb sb sb sb}", "id", (int)t->special[i].id, "content",
						      t->special[i].text, "single_word", 0, "lstrip", 0, "rstrip", 0,
						      "normalized", 0, "special", !t->special[i].in_text));
	return list;
}

static json_t *normalizer(const struct fo_tokenizer *t)
{
	if (t->nfc)
		return json_pack("{ss}", "type", "NFC");
	if (!t->sentence || by_metaspace(t))
		return json_null();
	json_t *list = json_array();
	if (t->prefix == TOK_NORMALIZER_MARK)
		json_array_append_new(list, json_pack("{ss ss}", "type", "Prepend", "prepend", SENTENCE_SPACE));
	json_array_append_new(list, replacement(" ", SENTENCE_SPACE));
	return json_pack("{ss so}", "type", "Sequence", "normalizers", list);
}

static json_t *pre_tokenizer(const struct fo_tokenizer *t)
{
	static const char *const scheme[] = {
		[TOK_METASPACE_NEVER] = "never", [TOK_METASPACE_FIRST] = "first", [TOK_METASPACE_ALWAYS] = "always"
	};
	if (t->sentence && !by_metaspace(t))
		return json_null();
	if (t->sentence)
		return json_pack("{ss ss ss sb}", "type", "Metaspace", "replacement", SENTENCE_SPACE, "prepend_scheme",
				 scheme[t->prefix], "split", t->split_spaces);
	if (t->gpt2_style)
		return byte_level(true);
	return json_pack("{ss s[{ss s{ss} ss sb} o]}", "type", "Sequence", "pretokenizers", "type", "Split", "pattern",
			 "Regex", t->pattern, "behavior", "Isolated", "invert", 0, byte_level(false));
}

static json_t *decoder(const struct fo_tokenizer *t)
{
	if (!t->sentence)
		return byte_level(true);
	json_t *list = json_pack("[o {ss} {ss}]", replacement(SENTENCE_SPACE, " "), "type", "ByteFallback", "type",
				 "Fuse");
	if (t->prefix != TOK_NORMALIZER && t->prefix != TOK_METASPACE_NEVER)
		json_array_append_new(
			list, json_pack("{ss ss si si}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
	return json_pack("{ss so}", "type", "Sequence", "decoders", list);
}

static json_t *template_part(const char *kind, const char *id, int type)
{
	return json_pack("{s{ss si}}", kind, "id", id, "type_id", type);
}

/* The post-processor with which Hugging Face puts BOS before an encoded text. */
static json_t *post_processor(const struct fo_tokenizer *t)
{
	const char *bos = "", *mark = "SpecialToken", *text = "Sequence";
	for (size_t i = 0; i < t->specials; i++)
		if (t->special[i].id == t->bos)
			bos = t->special[i].text;
	return json_pack("{ss s[oo] s[oooo] s{s{ss s[i] s[s]}}}", "type", "TemplateProcessing", "single",
			 template_part(mark, bos, 0), template_part(text, "A", 0), "pair", template_part(mark, bos, 0),
			 template_part(text, "A", 0), template_part(mark, bos, 1), template_part(text, "B", 1),
			 "special_tokens", bos, "id", bos, "ids", (int)t->bos, "tokens", bos);
}

static void write_value(struct fo_json *j, const char *key, const json_t *v)
{
	const char *name;
	json_t *part;
	size_t i;
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		fo_json_object(j, key);
		json_object_foreach((json_t *)(uintptr_t)v, name, part) write_value(j, name, part);
		fo_json_close(j);
		break;
	case JSON_ARRAY:
		fo_json_array(j, key);
		json_array_foreach(v, i, part) write_value(j, NULL, part);
		fo_json_close(j);
		break;
	case JSON_INTEGER: fo_json_int(j, key, json_integer_value(v)); break;
	case JSON_TRUE:
	case JSON_FALSE: fo_json_bool(j, key, json_is_true(v)); break;
	default: fo_json_text(j, key, json_string_value(v)); /* NULL is null */
	}
}

/* Writes a value and frees it. */
static void put(struct fo_json *j, const char *key, json_t *v)
{
	write_value(j, key, v);
	json_decref(v);
}

static void text_model(const struct fo_tokenizer *t, struct fo_json *j)
{
	struct fo_str s = { 0 };
	fo_json_object(j, "model");
	fo_json_text(j, "type", "BPE");
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
	put(&j, "added_tokens", added_tokens(t));
	put(&j, "normalizer", normalizer(t));
	put(&j, "pre_tokenizer", pre_tokenizer(t));
	put(&j, "post_processor", post_processor(t));
	put(&j, "decoder", decoder(t));
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
