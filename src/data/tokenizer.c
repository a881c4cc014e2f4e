/* The tokenizer as a whole: completing it, freeing it, decoding. Encoders share it, and only read it. */
#include "data/data_int.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

bool tok_is_added(const struct fo_tokenizer *t, int32_t id)
{
	for (size_t i = 0; i < t->specials; i++)
		if (t->special[i].id == id)
			return true;
	return false;
}

static int32_t find_special(const struct fo_tokenizer *t, const char *const *name, size_t n)
{
	for (size_t k = 0; k < n; k++)
		for (size_t i = 0; i < t->specials; i++)
			if (strcmp(t->special[i].text, name[k]) == 0)
				return t->special[i].id;
	return -1;
}

static fo_status find_bytes(struct fo_tokenizer *t)
{
	for (int b = 0; b < 256 && !t->sentence; b++)
		t->byte_id[b] = -1;
	for (int32_t id = 0; id < t->vocab && !t->sentence; id++)
		if (t->at[id + 1] - t->at[id] == 1 && !tok_is_added(t, id))
			t->byte_id[(unsigned char)t->bytes[t->at[id]]] = id;
	for (int b = 0; b < 256; b++)
		if (t->byte_id[b] < 0)
			return fo_fail(FO_EFORMAT, "the vocabulary has no token for byte 0x%02x: not a %s tokenizer", b,
				       t->sentence ? "byte-fallback" : "byte-level");
	return FO_OK;
}

fo_status tok_finish(struct fo_tokenizer *t)
{
	static const char *const bos[] = { "<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "<|endoftext|>" };
	static const char *const eos[] = { "<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>" };
	t->bos = find_special(t, bos, sizeof bos / sizeof *bos);
	t->eos = find_special(t, eos, sizeof eos / sizeof *eos);
	if (t->eos < 0)
		return fo_fail(FO_EFORMAT,
			       "no added token ends a text: expected <|end_of_text|>, <|endoftext|>, </s> or <eos>");
	if (t->bos < 0)
		t->bos = t->eos;
	FO_TRY(find_bytes(t));
	FO_TRY(tok_index_new(t));
	struct fo_str text = { 0 };
	tok_text(t, &text);
	t->checksum = XXH3_64bits(text.data, text.len);
	fo_str_fini(&text);
	t->shared = fo_xmalloc(sizeof *t->shared);
	pthread_mutex_init(&t->shared->lock, NULL);
	return FO_OK;
}

void fo_tokenizer_free(struct fo_tokenizer *t)
{
	if (!t)
		return;
	if (t->shared) {
		pthread_mutex_destroy(&t->shared->lock);
		fo_encoder_free(t->shared->encoder);
		free(t->shared);
	}
	tok_index_free(t->index);
	for (size_t i = 0; i < t->specials; i++)
		free(t->special[i].text);
	free(t->special);
	free(t->bytes);
	free(t->at);
	free(t->merge);
	free(t->pattern);
	free(t->unknown);
	free(t);
}

int64_t fo_tokenizer_vocab(const struct fo_tokenizer *t) { return t->vocab; }
int32_t fo_tokenizer_bos(const struct fo_tokenizer *t) { return t->bos; }
int32_t fo_tokenizer_eos(const struct fo_tokenizer *t) { return t->eos; }
uint64_t fo_tokenizer_checksum(const struct fo_tokenizer *t) { return t->checksum; }

void fo_tokenizer_decode(const struct fo_tokenizer *t, const int32_t *ids, size_t n, struct fo_str *out)
{
	for (size_t i = 0; i < n; i++)
		if (ids[i] >= 0 && ids[i] < t->vocab)
			fo_str_append(out, t->bytes + t->at[ids[i]], t->at[ids[i] + 1] - t->at[ids[i]]);
}

void fo_tokenizer_decode_text(const struct fo_tokenizer *t, const int32_t *ids, size_t n, struct fo_str *out)
{
	size_t start = out->len;
	bool prefix = t->sentence && t->prefix != TOK_NORMALIZER && t->prefix != TOK_METASPACE_NEVER;
	fo_tokenizer_decode(t, ids, n, out);
	if (prefix && out->len > start && out->data[start] == ' ') {
		memmove(out->data + start, out->data + start + 1, out->len - start); /* with the final NUL */
		out->len--;
	}
}
