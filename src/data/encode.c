/* Encoding: text to pieces, pieces to ids. An encoder belongs to one thread; the tokenizer under it is only read. */
#include "data/data_int.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Pieces up to this length are remembered with their ids; longer ones seldom come twice. */
#define CACHED_PIECE 64
/* Remembered pieces before the cache starts anew: some 10 MB of text has half as many distinct ones. */
#define CACHED_PIECES ((size_t)1 << 18)
/* Up to so many symbols, looking through all pairs for the best is faster than a heap. */
#define FEW_SYMBOLS 32
/* Text is normalized in parts of about this size. */
#define NORMAL_PART ((size_t)1 << 18)
#define NO_RANK UINT32_MAX

struct cached {
	uint32_t text_at, ids_at;
	uint8_t len, ids, used;
};
struct symbol {
	int32_t id, prev, next;
};

struct fo_encoder {
	const struct fo_tokenizer *t;
	struct split *split;
	struct cached *cache; /* 2 * CACHED_PIECES slots */
	size_t cached;
	char *text; /* the remembered pieces' bytes and ids */
	size_t text_len, text_cap;
	int32_t *ids;
	size_t ids_len, ids_cap;
	/* Scratch for a long piece of n bytes: n symbols, a heap of rank << 32 | position to which at most 3 n are
	 * pushed, n ids. Grows to what the longest piece needed. */
	struct symbol *symbol;
	uint64_t *heap;
	int32_t *piece_ids;
	size_t symbol_cap, heap_cap, heap_n, piece_cap;
	struct fo_str normal, first; /* normalized text; a text's first piece with the mark in front */
	bool in_text[256];           /* bytes that an added token to be read from texts begins with */
	bool any_in_text;
	/* where the ids go */
	int32_t **out;
	size_t *out_n, *out_cap;
};

fo_status fo_encoder_new(const struct fo_tokenizer *t, struct fo_encoder **out)
{
	struct fo_encoder *e = fo_xmalloc(sizeof *e);
	e->t = t;
	if (tok_split(t)) {
		fo_status st = split_share(tok_split(t), &e->split);
		if (st != FO_OK) {
			free(e);
			return st;
		}
	}
	e->cache = fo_xmalloc(2 * CACHED_PIECES * sizeof *e->cache);
	for (size_t i = 0; i < t->specials; i++)
		if (t->special[i].in_text)
			e->any_in_text = e->in_text[(unsigned char)t->special[i].text[0]] = true;
	*out = e;
	return FO_OK;
}

void fo_encoder_free(struct fo_encoder *e)
{
	if (!e)
		return;
	split_free(e->split);
	free(e->cache);
	free(e->text);
	free(e->ids);
	free(e->symbol);
	free(e->heap);
	free(e->piece_ids);
	fo_str_fini(&e->normal);
	fo_str_fini(&e->first);
	free(e);
}

/* ---- merging: always the merge of lowest rank, the leftmost among equals ---- */

static void heap_push(struct fo_encoder *e, uint64_t entry)
{
	size_t i = e->heap_n++;
	for (; i && entry < e->heap[(i - 1) / 2]; i = (i - 1) / 2)
		e->heap[i] = e->heap[(i - 1) / 2];
	e->heap[i] = entry;
}

static uint64_t heap_pop(struct fo_encoder *e)
{
	uint64_t top = e->heap[0], last = e->heap[--e->heap_n];
	size_t i = 0;
	for (size_t child; (child = 2 * i + 1) < e->heap_n; i = child) {
		child += child + 1 < e->heap_n && e->heap[child + 1] < e->heap[child];
		if (e->heap[child] >= last)
			break;
		e->heap[i] = e->heap[child];
	}
	e->heap[i] = last;
	return top;
}

static void consider(struct fo_encoder *e, int32_t left)
{
	const struct symbol *s = e->symbol;
	int32_t out;
	if (left < 0 || s[left].next < 0)
		return;
	int64_t rank = tok_merge_rank(e->t->index, s[left].id, s[s[left].next].id, &out);
	if (rank >= 0)
		heap_push(e, (uint64_t)rank << 32 | (uint32_t)left);
}

static size_t merge_many(struct fo_encoder *e, int32_t *ids, size_t n)
{
	const struct tok_merge *merge = e->t->merge;
	fo_array_room(&e->symbol, &e->symbol_cap, n, sizeof *e->symbol);
	fo_array_room(&e->heap, &e->heap_cap, 3 * n, sizeof *e->heap);
	struct symbol *s = e->symbol;
	for (size_t i = 0; i < n; i++)
		s[i] = (struct symbol){ ids[i], (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1 };
	e->heap_n = 0;
	for (size_t i = 0; i + 1 < n; i++)
		consider(e, (int32_t)i);
	while (e->heap_n) {
		uint64_t entry = heap_pop(e);
		const struct tok_merge *m = &merge[entry >> 32];
		int32_t left = (int32_t)(uint32_t)entry, right = s[left].next;
		if (s[left].id != m->a || right < 0 || s[right].id != m->b)
			continue; /* one of the two was merged meanwhile; a dead symbol's id is -1 */
		s[left].id = m->out;
		s[left].next = s[right].next;
		s[right].id = -1;
		if (s[left].next >= 0)
			s[s[left].next].prev = left;
		consider(e, s[left].prev);
		consider(e, left);
	}
	size_t left = 0;
	for (int32_t i = 0; i >= 0; i = s[i].next)
		ids[left++] = s[i].id;
	return left;
}

static uint32_t pair_rank(const struct fo_encoder *e, const int32_t *ids, int32_t *out)
{
	int64_t rank = tok_merge_rank(e->t->index, ids[0], ids[1], out);
	return rank < 0 ? NO_RANK : (uint32_t)rank;
}

static size_t merge_few(const struct fo_encoder *e, int32_t *ids, size_t n)
{
	uint32_t rank[FEW_SYMBOLS];
	int32_t out[FEW_SYMBOLS];
	for (size_t i = 0; i + 1 < n; i++)
		rank[i] = pair_rank(e, ids + i, &out[i]);
	while (n > 1) {
		size_t best = 0;
		for (size_t i = 1; i + 1 < n; i++)
			best = rank[i] < rank[best] ? i : best;
		if (rank[best] == NO_RANK)
			break;
		ids[best] = out[best];
		n--;
		for (size_t i = best + 1; i < n; i++)
			ids[i] = ids[i + 1];
		for (size_t i = best + 1; i + 1 < n; i++) {
			rank[i] = rank[i + 1];
			out[i] = out[i + 1];
		}
		if (best + 1 < n)
			rank[best] = pair_rank(e, ids + best, &out[best]);
		if (best)
			rank[best - 1] = pair_rank(e, ids + best - 1, &out[best - 1]);
	}
	return n;
}

/* ---- one piece ---- */

static size_t encode_piece(struct fo_encoder *e, const char *piece, size_t len)
{
	const struct fo_tokenizer *t = e->t;
	fo_array_room(&e->piece_ids, &e->piece_cap, len, sizeof *e->piece_ids);
	int32_t *ids = e->piece_ids;
	size_t n = len;
	if (t->whole_words && (ids[0] = tok_word(t, piece, len)) >= 0)
		return 1;
	if (t->sentence)
		n = tok_sentence_symbols(t, piece, len, ids);
	else
		for (size_t i = 0; i < len; i++)
			ids[i] = t->byte_id[(unsigned char)piece[i]];
	return n <= FEW_SYMBOLS ? merge_few(e, ids, n) : merge_many(e, ids, n);
}

/* The ids of a piece, from the cache if it was seen before. Valid until the next call. */
static const int32_t *piece_ids(struct fo_encoder *e, const char *piece, size_t len, size_t *n)
{
	if (len > CACHED_PIECE) {
		*n = encode_piece(e, piece, len);
		return e->piece_ids;
	}
	size_t mask = 2 * CACHED_PIECES - 1, hash = XXH3_64bits(piece, len), at = hash & mask;
	for (; e->cache[at].used; at = (at + 1) & mask) {
		const struct cached *c = &e->cache[at];
		if (c->len == len && memcmp(e->text + c->text_at, piece, len) == 0) {
			*n = c->ids;
			return e->ids + c->ids_at;
		}
	}
	*n = encode_piece(e, piece, len);
	if (e->cached == CACHED_PIECES) {
		memset(e->cache, 0, 2 * CACHED_PIECES * sizeof *e->cache);
		e->cached = e->text_len = e->ids_len = 0;
		at = hash & mask;
	}
	e->cache[at] = (struct cached){ (uint32_t)e->text_len, (uint32_t)e->ids_len, (uint8_t)len, (uint8_t)*n, 1 };
	e->cached++;
	fo_array_room(&e->text, &e->text_cap, e->text_len + len, 1);
	memcpy(e->text + e->text_len, piece, len);
	e->text_len += len;
	fo_array_room(&e->ids, &e->ids_cap, e->ids_len + *n, sizeof *e->ids);
	memcpy(e->ids + e->ids_len, e->piece_ids, *n * sizeof *e->ids);
	e->ids_len += *n;
	return e->piece_ids;
}

/* ---- the ids of a text ---- */

static void emit(struct fo_encoder *e, const int32_t *ids, size_t n)
{
	fo_array_room(e->out, e->out_cap, *e->out_n + n, sizeof **e->out);
	memcpy(*e->out + *e->out_n, ids, n * sizeof *ids);
	*e->out_n += n;
}

static void emit_piece(struct fo_encoder *e, const char *piece, size_t len)
{
	size_t n;
	const int32_t *ids = piece_ids(e, piece, len, &n);
	emit(e, ids, n);
}

static bool wants_mark(const struct fo_tokenizer *t, const char *text, size_t len)
{
	if (t->prefix == TOK_NORMALIZER_MARK)
		return true;
	bool space = text[0] == ' ' || (len >= 3 && memcmp(text, SENTENCE_SPACE, 3) == 0);
	return (t->prefix == TOK_METASPACE_FIRST || t->prefix == TOK_METASPACE_ALWAYS) && !space;
}

static void encode_sentence(struct fo_encoder *e, const char *text, size_t len, bool first)
{
	size_t at = 0;
	if (first && len && wants_mark(e->t, text, len)) {
		/* The first piece of ' ' and the text; a piece is never longer than this copy. */
		e->first.len = 0;
		fo_str_puts(&e->first, " ");
		fo_str_append(&e->first, text, len < TOK_MAX_PIECE ? len : TOK_MAX_PIECE);
		size_t n = tok_sentence_piece(e->t, e->first.data, e->first.len);
		at = n - 1;
		emit_piece(e, e->first.data, n);
	}
	for (size_t n; at < len; at += n) {
		n = tok_sentence_piece(e->t, text + at, len - at);
		emit_piece(e, text + at, n);
	}
}

/* Encodes a part of the text by its pieces. */
static fo_status encode_split(struct fo_encoder *e, const char *text, size_t len)
{
	struct split_cursor c = { .text = text, .len = len };
	for (;;) {
		const char *piece;
		size_t n;
		FO_TRY(split_next(e->split, &c, &piece, &n));
		if (!n)
			return FO_OK;
		emit_piece(e, piece, n);
	}
}

static fo_status encode_normal(struct fo_encoder *e, const char *text, size_t len)
{
	if (!e->t->nfc)
		return encode_split(e, text, len);
	for (size_t at = 0, end; at < len; at = end) {
		end = len - at > NORMAL_PART ? fo_tokenizer_cut(e->t, text, len, at + NORMAL_PART) : len;
		if (!nfc_may_change(text + at, end - at)) {
			FO_TRY(encode_split(e, text + at, end - at));
			continue;
		}
		e->normal.len = 0;
		nfc_append(text + at, end - at, &e->normal);
		FO_TRY(encode_split(e, e->normal.data, e->normal.len));
	}
	return FO_OK;
}

/* The longest added token to be read from texts that text[0..len) begins with, NULL if none. */
static const struct tok_special *added_at(const struct fo_tokenizer *t, const char *text, size_t len)
{
	const struct tok_special *best = NULL;
	size_t best_len = 0;
	for (size_t i = 0; i < t->specials; i++) {
		const struct tok_special *s = &t->special[i];
		size_t n = s->in_text && s->text[0] == text[0] ? strlen(s->text) : 0;
		if (n > best_len && n <= len && memcmp(s->text, text, n) == 0) {
			best = s;
			best_len = n;
		}
	}
	return best;
}

static fo_status encode_added(struct fo_encoder *e, const char *text, size_t len)
{
	size_t from = 0;
	for (size_t at = 0; at < len;) {
		const struct tok_special *s = e->in_text[(unsigned char)text[at]] ? added_at(e->t, text + at, len - at)
										  : NULL;
		if (!s) {
			at++;
			continue;
		}
		FO_TRY(encode_normal(e, text + from, at - from));
		from = at += strlen(s->text);
		emit(e, &s->id, 1);
	}
	return encode_normal(e, text + from, len - from);
}

fo_status fo_encoder_encode(struct fo_encoder *e, const char *text, size_t len, bool first, int32_t **ids, size_t *n,
			    size_t *cap)
{
	e->out = ids;
	e->out_n = n;
	e->out_cap = cap;
	if (!e->t->sentence)
		return e->any_in_text ? encode_added(e, text, len) : encode_normal(e, text, len);
	encode_sentence(e, text, len, first);
	return FO_OK;
}

fo_status fo_tokenizer_encode(const struct fo_tokenizer *t, const char *text, size_t len, int32_t **ids, size_t *n,
			      size_t *cap)
{
	struct tok_shared *s = t->shared;
	pthread_mutex_lock(&s->lock);
	fo_status st = s->encoder ? FO_OK : fo_encoder_new(t, &s->encoder);
	if (st == FO_OK)
		st = fo_encoder_encode(s->encoder, text, len, true, ids, n, cap);
	pthread_mutex_unlock(&s->lock);
	return st;
}
