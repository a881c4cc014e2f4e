#include "data/data_int.h"

#include "base/fs.h"
#include "base/json.h"

#define XXH_INLINE_ALL
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Pieces up to this length are remembered with their ids; longer ones seldom come twice. */
#define CACHED_PIECE 64
/* Remembered pieces before the cache starts anew: some 10 MB of text has half as many distinct ones. */
#define CACHED_PIECES ((size_t)1 << 18)
#define PORTION 8192

struct cached {
	uint32_t text_at, ids_at;
	uint8_t len, ids, used;
};
struct symbol {
	int32_t id, prev, next;
};

struct tok_work {
	pthread_mutex_t lock; /* encoders of one tokenizer take turns: they share the cache and the scratch */
	struct split *split;
	uint32_t *merge_slot; /* rank + 1 by the merge's pair */
	size_t merge_slots;
	uint32_t *word_slot; /* id + 1 by the token's bytes; only with whole_words */
	size_t word_slots;
	struct cached *cache; /* 2 * CACHED_PIECES slots */
	size_t cached;
	char *text; /* the remembered pieces' bytes and ids */
	size_t text_len, text_cap;
	int32_t *ids;
	size_t ids_len, ids_cap;
	struct symbol *symbol; /* TOK_MAX_PIECE */
	uint64_t *heap;        /* rank << 32 | position; a piece of n bytes pushes at most 3 n */
	size_t heap_n;
	int32_t *piece_ids; /* TOK_MAX_PIECE */
	int32_t portion[PORTION];
};

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

static void token_chars(const struct fo_tokenizer *t, int32_t id, struct fo_str *out)
{
	static const char none[4];
	fo_str_append(out, none, 0);
	for (size_t i = t->at[id]; i < t->at[id + 1]; i++) {
		int c = tok_byte_char((unsigned char)t->bytes[i]);
		char utf8[2] = { (char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)) };
		if (c < 0x80)
			fo_str_append(out, &(char){ (char)c }, 1);
		else
			fo_str_append(out, utf8, 2);
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
		fo_json_bool(j, "special", true);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void text_byte_level(struct fo_json *j, const char *key, bool use_regex)
{
	fo_json_object(j, key);
	fo_json_text(j, "type", "ByteLevel");
	fo_json_bool(j, "add_prefix_space", false);
	fo_json_bool(j, "trim_offsets", true);
	fo_json_bool(j, "use_regex", use_regex);
	fo_json_close(j);
}

static void text_pre_tokenizer(const struct fo_tokenizer *t, struct fo_json *j)
{
	if (t->gpt2_style) {
		text_byte_level(j, "pre_tokenizer", true);
		return;
	}
	fo_json_object(j, "pre_tokenizer");
	fo_json_text(j, "type", "Sequence");
	fo_json_array(j, "pretokenizers");
	fo_json_object(j, NULL);
	fo_json_text(j, "type", "Split");
	fo_json_object(j, "pattern");
	fo_json_text(j, "Regex", t->pattern);
	fo_json_close(j);
	fo_json_text(j, "behavior", "Isolated");
	fo_json_bool(j, "invert", false);
	fo_json_close(j);
	text_byte_level(j, NULL, false);
	fo_json_close(j);
	fo_json_close(j);
}

/* What Hugging Face adds to an encoded text: BOS in front. */
static void text_post_processor(const struct fo_tokenizer *t, struct fo_json *j)
{
	const char *bos = "";
	for (size_t i = 0; i < t->specials; i++)
		if (t->special[i].id == t->bos)
			bos = t->special[i].text;
	fo_json_object(j, "post_processor");
	fo_json_text(j, "type", "TemplateProcessing");
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
	fo_json_object(j, "model");
	fo_json_text(j, "type", "BPE");
	fo_json_raw(j, "dropout", "null");
	fo_json_raw(j, "unk_token", "null");
	fo_json_raw(j, "continuing_subword_prefix", "null");
	fo_json_raw(j, "end_of_word_suffix", "null");
	fo_json_bool(j, "fuse_unk", false);
	fo_json_bool(j, "byte_fallback", false);
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
	fo_json_raw(&j, "normalizer", "null");
	text_pre_tokenizer(t, &j);
	text_post_processor(t, &j);
	text_byte_level(&j, "decoder", true);
	text_model(t, &j);
	fo_json_close(&j);
}

fo_status fo_tokenizer_save(const struct fo_tokenizer *t, const char *path)
{
	struct fo_str text = { 0 };
	tok_text(t, &text);
	fo_status st = fo_fs_write_atomic(path, text.data, text.len);
	fo_str_fini(&text);
	return st;
}

/* ---- completing a tokenizer ---- */

static size_t table_size(size_t n)
{
	size_t slots = 1024;
	while (slots < 2 * n)
		slots *= 2;
	return slots;
}

static int64_t merge_rank(const struct fo_tokenizer *t, int32_t a, int32_t b)
{
	const struct tok_work *w = t->work;
	size_t at = tok_pair_hash(a, b) & (w->merge_slots - 1);
	for (; w->merge_slot[at]; at = (at + 1) & (w->merge_slots - 1)) {
		const struct tok_merge *m = &t->merge[w->merge_slot[at] - 1];
		if (m->a == a && m->b == b)
			return w->merge_slot[at] - 1;
	}
	return -1;
}

static fo_status index_merges(struct fo_tokenizer *t)
{
	struct tok_work *w = t->work;
	w->merge_slots = table_size((size_t)t->merges);
	w->merge_slot = fo_xmalloc(w->merge_slots * sizeof *w->merge_slot);
	for (int64_t i = 0; i < t->merges; i++) {
		if (merge_rank(t, t->merge[i].a, t->merge[i].b) >= 0)
			return fo_fail(FO_EFORMAT, "merge %lld repeats an earlier one", (long long)i);
		size_t at = tok_pair_hash(t->merge[i].a, t->merge[i].b) & (w->merge_slots - 1);
		while (w->merge_slot[at])
			at = (at + 1) & (w->merge_slots - 1);
		w->merge_slot[at] = (uint32_t)i + 1;
	}
	return FO_OK;
}

static bool is_special(const struct fo_tokenizer *t, int32_t id)
{
	for (size_t i = 0; i < t->specials; i++)
		if (t->special[i].id == id)
			return true;
	return false;
}

static void index_words(struct fo_tokenizer *t)
{
	struct tok_work *w = t->work;
	w->word_slots = table_size((size_t)t->vocab);
	w->word_slot = fo_xmalloc(w->word_slots * sizeof *w->word_slot);
	for (int32_t id = 0; id < t->vocab; id++) {
		size_t len = t->at[id + 1] - t->at[id];
		if (!len || is_special(t, id))
			continue;
		size_t at = XXH3_64bits(t->bytes + t->at[id], len) & (w->word_slots - 1);
		while (w->word_slot[at])
			at = (at + 1) & (w->word_slots - 1);
		w->word_slot[at] = (uint32_t)id + 1;
	}
}

static int32_t find_special(const struct fo_tokenizer *t, const char *const *name, size_t n)
{
	for (size_t k = 0; k < n; k++)
		for (size_t i = 0; i < t->specials; i++)
			if (strcmp(t->special[i].text, name[k]) == 0)
				return t->special[i].id;
	return -1;
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
	for (int b = 0; b < 256; b++)
		t->byte_id[b] = -1;
	for (int32_t id = 0; id < t->vocab; id++)
		if (t->at[id + 1] - t->at[id] == 1 && !is_special(t, id))
			t->byte_id[(unsigned char)t->bytes[t->at[id]]] = id;
	for (int b = 0; b < 256; b++)
		if (t->byte_id[b] < 0)
			return fo_fail(FO_EFORMAT,
				       "the vocabulary has no token for byte 0x%02x: not a byte-level tokenizer", b);
	struct tok_work *w = t->work = fo_xmalloc(sizeof *w);
	pthread_mutex_init(&w->lock, NULL);
	FO_TRY(split_new(t->pattern, &w->split));
	FO_TRY(index_merges(t));
	if (t->whole_words)
		index_words(t);
	w->cache = fo_xmalloc(2 * CACHED_PIECES * sizeof *w->cache);
	w->symbol = fo_xmalloc(TOK_MAX_PIECE * sizeof *w->symbol);
	w->heap = fo_xmalloc(3 * TOK_MAX_PIECE * sizeof *w->heap);
	w->piece_ids = fo_xmalloc(TOK_MAX_PIECE * sizeof *w->piece_ids);
	struct fo_str text = { 0 };
	tok_text(t, &text);
	t->checksum = XXH3_64bits(text.data, text.len);
	fo_str_fini(&text);
	return FO_OK;
}

void fo_tokenizer_free(struct fo_tokenizer *t)
{
	if (!t)
		return;
	if (t->work) {
		struct tok_work *w = t->work;
		split_free(w->split);
		free(w->merge_slot);
		free(w->word_slot);
		free(w->cache);
		free(w->text);
		free(w->ids);
		free(w->symbol);
		free(w->heap);
		free(w->piece_ids);
		pthread_mutex_destroy(&w->lock);
		free(w);
	}
	for (size_t i = 0; i < t->specials; i++)
		free(t->special[i].text);
	free(t->special);
	free(t->bytes);
	free(t->at);
	free(t->merge);
	free(t->pattern);
	free(t);
}

int64_t fo_tokenizer_vocab(const struct fo_tokenizer *t) { return t->vocab; }
int32_t fo_tokenizer_bos(const struct fo_tokenizer *t) { return t->bos; }
int32_t fo_tokenizer_eos(const struct fo_tokenizer *t) { return t->eos; }
uint64_t fo_tokenizer_checksum(const struct fo_tokenizer *t) { return t->checksum; }

/* ---- encoding ---- */

static void heap_push(struct tok_work *w, uint64_t e)
{
	size_t i = w->heap_n++;
	for (; i && e < w->heap[(i - 1) / 2]; i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = e;
}

static uint64_t heap_pop(struct tok_work *w)
{
	uint64_t top = w->heap[0], e = w->heap[--w->heap_n];
	size_t i = 0;
	for (size_t child; (child = 2 * i + 1) < w->heap_n; i = child) {
		child += child + 1 < w->heap_n && w->heap[child + 1] < w->heap[child];
		if (w->heap[child] >= e)
			break;
		w->heap[i] = w->heap[child];
	}
	w->heap[i] = e;
	return top;
}

static void consider(const struct fo_tokenizer *t, int32_t left)
{
	struct symbol *s = t->work->symbol;
	if (left < 0 || s[left].next < 0)
		return;
	int64_t rank = merge_rank(t, s[left].id, s[s[left].next].id);
	if (rank >= 0)
		heap_push(t->work, (uint64_t)rank << 32 | (uint32_t)left);
}

/* Byte-pair encoding of one piece: always the merge of lowest rank, the leftmost among equals. */
static size_t encode_piece(const struct fo_tokenizer *t, const char *piece, size_t len, int32_t *ids)
{
	struct tok_work *w = t->work;
	struct symbol *s = w->symbol;
	if (t->whole_words) {
		size_t at = XXH3_64bits(piece, len) & (w->word_slots - 1);
		for (; w->word_slot[at]; at = (at + 1) & (w->word_slots - 1)) {
			int32_t id = (int32_t)w->word_slot[at] - 1;
			if (t->at[id + 1] - t->at[id] == len && memcmp(t->bytes + t->at[id], piece, len) == 0) {
				ids[0] = id;
				return 1;
			}
		}
	}
	for (size_t i = 0; i < len; i++)
		s[i] = (struct symbol){ t->byte_id[(unsigned char)piece[i]], (int32_t)i - 1,
					i + 1 < len ? (int32_t)i + 1 : -1 };
	w->heap_n = 0;
	for (size_t i = 0; i + 1 < len; i++)
		consider(t, (int32_t)i);
	while (w->heap_n) {
		uint64_t e = heap_pop(w);
		const struct tok_merge *m = &t->merge[e >> 32];
		int32_t left = (int32_t)(uint32_t)e, right = s[left].next;
		if (s[left].id != m->a || right < 0 || s[right].id != m->b)
			continue; /* one of the two was merged meanwhile; a dead symbol's id is -1 */
		s[left].id = m->out;
		s[left].next = s[right].next;
		s[right].id = -1;
		if (s[left].next >= 0)
			s[s[left].next].prev = left;
		consider(t, s[left].prev);
		consider(t, left);
	}
	size_t n = 0;
	for (int32_t i = 0; i >= 0; i = s[i].next)
		ids[n++] = s[i].id;
	return n;
}

/* The ids of a piece, from the cache if it was seen before. Valid until the next call. */
static const int32_t *piece_ids(const struct fo_tokenizer *t, const char *piece, size_t len, size_t *n)
{
	struct tok_work *w = t->work;
	if (len > CACHED_PIECE) {
		*n = encode_piece(t, piece, len, w->piece_ids);
		return w->piece_ids;
	}
	size_t mask = 2 * CACHED_PIECES - 1, at = XXH3_64bits(piece, len) & mask;
	for (; w->cache[at].used; at = (at + 1) & mask) {
		const struct cached *c = &w->cache[at];
		if (c->len == len && memcmp(w->text + c->text_at, piece, len) == 0) {
			*n = c->ids;
			return w->ids + c->ids_at;
		}
	}
	*n = encode_piece(t, piece, len, w->piece_ids);
	if (w->cached == CACHED_PIECES) {
		memset(w->cache, 0, 2 * CACHED_PIECES * sizeof *w->cache);
		w->cached = w->text_len = w->ids_len = 0;
		at = XXH3_64bits(piece, len) & mask;
	}
	w->cache[at] = (struct cached){ (uint32_t)w->text_len, (uint32_t)w->ids_len, (uint8_t)len, (uint8_t)*n, 1 };
	w->cached++;
	fo_array_room(&w->text, &w->text_cap, w->text_len + len, 1);
	memcpy(w->text + w->text_len, piece, len);
	w->text_len += len;
	fo_array_room(&w->ids, &w->ids_cap, w->ids_len + *n, sizeof *w->ids);
	memcpy(w->ids + w->ids_len, w->piece_ids, *n * sizeof *w->ids);
	w->ids_len += *n;
	return w->piece_ids;
}

static fo_status encode_locked(const struct fo_tokenizer *t, const char *text, size_t len, tok_sink_fn *sink, void *ctx)
{
	struct tok_work *w = t->work;
	struct split_cursor c = { .text = text, .len = len };
	size_t used = 0, done = 0;
	for (;; done = c.pos) {
		const char *piece;
		size_t piece_len, n;
		FO_TRY(split_next(w->split, &c, &piece, &piece_len));
		if (!piece_len)
			return used ? sink(ctx, w->portion, used, done) : FO_OK;
		const int32_t *ids = piece_ids(t, piece, piece_len, &n);
		if (used + n > PORTION) {
			if (used)
				FO_TRY(sink(ctx, w->portion, used, done));
			used = 0;
		}
		if (n > PORTION) {
			FO_TRY(sink(ctx, ids, n, c.pos));
			continue;
		}
		memcpy(w->portion + used, ids, n * sizeof *ids);
		used += n;
	}
}

fo_status tok_encode(const struct fo_tokenizer *t, const char *text, size_t len, tok_sink_fn *sink, void *ctx)
{
	pthread_mutex_lock(&t->work->lock);
	fo_status st = encode_locked(t, text, len, sink, ctx);
	pthread_mutex_unlock(&t->work->lock);
	return st;
}

struct growing {
	int32_t **ids;
	size_t *n, *cap;
};

static fo_status grow_sink(void *ctx, const int32_t *ids, size_t n, size_t done)
{
	struct growing *g = ctx;
	(void)done;
	fo_array_room(g->ids, g->cap, *g->n + n, sizeof **g->ids);
	memcpy(*g->ids + *g->n, ids, n * sizeof *ids);
	*g->n += n;
	return FO_OK;
}

fo_status fo_tokenizer_encode(const struct fo_tokenizer *t, const char *text, size_t len, int32_t **ids, size_t *n,
			      size_t *cap)
{
	struct growing g = { ids, n, cap };
	return tok_encode(t, text, len, grow_sink, &g);
}

void fo_tokenizer_decode(const struct fo_tokenizer *t, const int32_t *ids, size_t n, struct fo_str *out)
{
	for (size_t i = 0; i < n; i++)
		if (ids[i] >= 0 && ids[i] < t->vocab)
			fo_str_append(out, t->bytes + t->at[ids[i]], t->at[ids[i] + 1] - t->at[ids[i]]);
}
