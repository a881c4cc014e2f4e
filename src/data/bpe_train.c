/* Byte-pair encoding, trained on a table of distinct words.
 *
 * Every distinct word is kept once with its count; pairs keep their count and the words they occur in. A merge visits
 * only those words and changes only the counts of the neighbours. The best pair comes from a heap whose entries may be
 * out of date: counts only fall except for pairs that a merge creates, which are pushed again after it, so an entry is
 * never below its pair's count and is put right when it reaches the top. */
#include "data/data_int.h"

#include "base/fs.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_TRAIN_WORD 256 /* longer pieces are cut: no useful token is longer, and a merge rescans its words */
#define SAMPLE_BYTES ((size_t)1 << 16) /* text is sampled in blocks of this size */

static bool stopped(const volatile sig_atomic_t *stop) { return stop && *stop; }

static fo_status interrupted(void)
{
	return fo_fail(FO_EINTERRUPT, "stopped while training the tokenizer; nothing of it is kept");
}

/* ---- distinct words ---- */

struct word {
	size_t at;
	uint32_t len, live; /* live: symbols left after merges */
	int64_t count;
};

struct words {
	struct word *word;
	size_t n, cap;
	char *text;
	size_t text_len, text_cap;
	uint32_t *slot; /* index + 1 into word */
	size_t slots;   /* power of two */
};

static void words_grow(struct words *w)
{
	size_t slots = w->slots ? w->slots * 2 : 1 << 16;
	free(w->slot);
	w->slot = fo_xmalloc(slots * sizeof *w->slot);
	w->slots = slots;
	for (size_t i = 0; i < w->n; i++) {
		size_t at = XXH3_64bits(w->text + w->word[i].at, w->word[i].len) & (slots - 1);
		while (w->slot[at])
			at = (at + 1) & (slots - 1);
		w->slot[at] = (uint32_t)i + 1;
	}
}

static void words_add(struct words *w, const char *text, uint32_t len)
{
	if (2 * (w->n + 1) > w->slots)
		words_grow(w);
	size_t at = XXH3_64bits(text, len) & (w->slots - 1);
	for (; w->slot[at]; at = (at + 1) & (w->slots - 1)) {
		struct word *have = &w->word[w->slot[at] - 1];
		if (have->len == len && memcmp(w->text + have->at, text, len) == 0) {
			have->count++;
			return;
		}
	}
	fo_array_room(&w->word, &w->cap, w->n, sizeof *w->word);
	fo_array_room(&w->text, &w->text_cap, w->text_len + len, 1);
	memcpy(w->text + w->text_len, text, len);
	w->word[w->n] = (struct word){ .at = w->text_len, .len = len, .live = len, .count = 1 };
	w->text_len += len;
	w->slot[at] = (uint32_t)++w->n;
}

static fo_status words_count(struct words *w, struct split *split, const char *text, size_t len)
{
	struct split_cursor c = { .text = text, .len = len };
	for (;;) {
		const char *piece;
		size_t n;
		FO_TRY(split_next(split, &c, &piece, &n));
		if (!n)
			return FO_OK;
		for (; n > MAX_TRAIN_WORD; piece += MAX_TRAIN_WORD, n -= MAX_TRAIN_WORD)
			words_add(w, piece, MAX_TRAIN_WORD);
		words_add(w, piece, (uint32_t)n);
	}
}

/* ---- pairs ---- */

struct node {
	uint32_t word, next; /* next: index + 1 into nodes, 0 ends */
};

struct pair {
	int32_t a, b;
	int64_t count;
	uint32_t words; /* index + 1 into nodes */
	bool touched;   /* got occurrences in the merge under way */
};

struct entry {
	int64_t count;
	int32_t a, b;
	uint32_t pair;
};

struct trainer {
	struct words words;
	int32_t *symbol; /* words.text_len: the words' symbols, in place */
	struct pair *pair;
	size_t pairs, pair_cap;
	uint32_t *slot; /* index + 1 into pair */
	size_t slots;
	struct node *node;
	size_t nodes, node_cap;
	struct entry *heap;
	size_t heap_n, heap_cap;
	uint32_t *touched;
	size_t touched_n, touched_cap;
	/* the tokenizer under construction */
	int64_t tokens, want;
	char *bytes;
	size_t bytes_len, bytes_cap, *at;
	size_t at_cap;
	uint32_t *token_slot; /* id + 1 by the token's bytes: two merges may spell the same token */
	size_t token_slots;
	struct tok_merge *merge;
	size_t merges, merge_cap;
};

static void pairs_grow(struct trainer *t)
{
	size_t slots = t->slots ? t->slots * 2 : 1 << 16;
	free(t->slot);
	t->slot = fo_xmalloc(slots * sizeof *t->slot);
	t->slots = slots;
	for (size_t i = 0; i < t->pairs; i++) {
		size_t at = tok_pair_hash(t->pair[i].a, t->pair[i].b) & (slots - 1);
		while (t->slot[at])
			at = (at + 1) & (slots - 1);
		t->slot[at] = (uint32_t)i + 1;
	}
}

static struct pair *pair_of(struct trainer *t, int32_t a, int32_t b)
{
	if (2 * (t->pairs + 1) > t->slots)
		pairs_grow(t);
	size_t at = tok_pair_hash(a, b) & (t->slots - 1);
	for (; t->slot[at]; at = (at + 1) & (t->slots - 1)) {
		struct pair *p = &t->pair[t->slot[at] - 1];
		if (p->a == a && p->b == b)
			return p;
	}
	fo_array_room(&t->pair, &t->pair_cap, t->pairs, sizeof *t->pair);
	t->pair[t->pairs] = (struct pair){ .a = a, .b = b };
	t->slot[at] = (uint32_t)t->pairs + 1;
	return &t->pair[t->pairs++];
}

/* More occurrences of (a, b) in a word. */
static void pair_add(struct trainer *t, int32_t a, int32_t b, uint32_t word, int64_t count)
{
	struct pair *p = pair_of(t, a, b);
	p->count += count;
	if (!p->words || t->node[p->words - 1].word != word) {
		fo_array_room(&t->node, &t->node_cap, t->nodes, sizeof *t->node);
		t->node[t->nodes] = (struct node){ word, p->words };
		p->words = (uint32_t)++t->nodes;
	}
	if (!p->touched) {
		p->touched = true;
		fo_array_room(&t->touched, &t->touched_cap, t->touched_n, sizeof *t->touched);
		t->touched[t->touched_n++] = (uint32_t)(p - t->pair);
	}
}

/* ---- heap: the largest count first, then the smaller pair ---- */

static bool before(const struct entry *x, const struct entry *y)
{
	if (x->count != y->count)
		return x->count > y->count;
	return x->a != y->a ? x->a < y->a : x->b < y->b;
}

static void heap_sink(struct trainer *t, size_t i)
{
	struct entry e = t->heap[i];
	for (size_t child; (child = 2 * i + 1) < t->heap_n; i = child) {
		if (child + 1 < t->heap_n && before(&t->heap[child + 1], &t->heap[child]))
			child++;
		if (!before(&t->heap[child], &e))
			break;
		t->heap[i] = t->heap[child];
	}
	t->heap[i] = e;
}

static void heap_push(struct trainer *t, uint32_t pair)
{
	const struct pair *p = &t->pair[pair];
	struct entry e = { p->count, p->a, p->b, pair };
	fo_array_room(&t->heap, &t->heap_cap, t->heap_n, sizeof *t->heap);
	size_t i = t->heap_n++;
	for (; i && before(&e, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
		t->heap[i] = t->heap[(i - 1) / 2];
	t->heap[i] = e;
}

static void push_touched(struct trainer *t)
{
	for (size_t i = 0; i < t->touched_n; i++) {
		t->pair[t->touched[i]].touched = false;
		if (t->pair[t->touched[i]].count >= 2)
			heap_push(t, t->touched[i]);
	}
	t->touched_n = 0;
}

/* The most frequent pair that occurs at least twice, NULL if none is left: a merge that occurs once shortens nothing.
 */
static struct pair *best_pair(struct trainer *t)
{
	while (t->heap_n) {
		struct entry top = t->heap[0];
		struct pair *p = &t->pair[top.pair];
		if (p->count == top.count)
			return p;
		if (p->count >= 2)
			t->heap[0].count = p->count;
		else
			t->heap[0] = t->heap[--t->heap_n];
		if (t->heap_n)
			heap_sink(t, 0);
	}
	return NULL;
}

/* ---- merging ---- */

static int32_t token_append(struct trainer *t, const char *text, size_t len)
{
	fo_array_room(&t->bytes, &t->bytes_cap, t->bytes_len + len, 1);
	fo_array_room(&t->at, &t->at_cap, (size_t)t->tokens + 1, sizeof *t->at);
	memcpy(t->bytes + t->bytes_len, text, len);
	t->bytes_len += len;
	t->at[t->tokens + 1] = t->bytes_len;
	return (int32_t)t->tokens++;
}

/* The token of these bytes, a new one where there was none. */
static int32_t token_new(struct trainer *t, const char *text, size_t len)
{
	size_t at = XXH3_64bits(text, len) & (t->token_slots - 1);
	for (; t->token_slot[at]; at = (at + 1) & (t->token_slots - 1)) {
		int32_t id = (int32_t)t->token_slot[at] - 1;
		if (t->at[id + 1] - t->at[id] == len && memcmp(t->bytes + t->at[id], text, len) == 0)
			return id;
	}
	t->token_slot[at] = (uint32_t)t->tokens + 1;
	return token_append(t, text, len);
}

static int32_t token_join(struct trainer *t, int32_t a, int32_t b)
{
	char text[2 * MAX_TRAIN_WORD];
	size_t la = t->at[a + 1] - t->at[a], lb = t->at[b + 1] - t->at[b];
	memcpy(text, t->bytes + t->at[a], la);
	memcpy(text + la, t->bytes + t->at[b], lb);
	return token_new(t, text, la + lb);
}

static void merge_in_word(struct trainer *t, uint32_t word, int32_t a, int32_t b, int32_t out)
{
	struct word *w = &t->words.word[word];
	int32_t *s = t->symbol + w->at;
	uint32_t n = w->live, o = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (s[i] != a || i + 1 == n || s[i + 1] != b) {
			s[o++] = s[i];
			continue;
		}
		/* s[0..o) is merged already, s[i..n) not yet; the pairs across both borders change. */
		pair_of(t, a, b)->count -= w->count;
		if (o) {
			pair_of(t, s[o - 1], a)->count -= w->count;
			pair_add(t, s[o - 1], out, word, w->count);
		}
		if (i + 2 < n) {
			pair_of(t, b, s[i + 2])->count -= w->count;
			pair_add(t, out, s[i + 2], word, w->count);
		}
		s[o++] = out;
		i++;
	}
	w->live = o;
}

static void merge_best(struct trainer *t, const struct pair *best)
{
	int32_t a = best->a, b = best->b, out = token_join(t, a, b);
	fo_array_room(&t->merge, &t->merge_cap, t->merges, sizeof *t->merge);
	t->merge[t->merges++] = (struct tok_merge){ a, b, out };
	/* `best` moves when pairs grow; nodes that are added meanwhile go to other pairs' lists, or to this one's
	 * front. */
	for (uint32_t at = best->words; at; at = t->node[at - 1].next)
		merge_in_word(t, t->node[at - 1].word, a, b, out);
	push_touched(t);
}

static fo_status trainer_start(struct trainer *t, int64_t want, const volatile sig_atomic_t *stop)
{
	t->want = want;
	for (t->token_slots = 1024; t->token_slots < 2 * (size_t)want; t->token_slots *= 2)
		;
	t->token_slot = fo_xmalloc(t->token_slots * sizeof *t->token_slot);
	fo_array_room(&t->at, &t->at_cap, 0, sizeof *t->at);
	t->at[0] = 0;
	int32_t id_of[256];
	for (int c = 0; c < 324; c++) { /* GPT-2's order: printable bytes first, then the rest */
		int b = tok_char_byte(c);
		if (b >= 0)
			id_of[b] = token_new(t, &(char){ (char)b }, 1);
	}
	struct words *w = &t->words;
	t->symbol = fo_xmalloc(w->text_len * sizeof *t->symbol);
	for (size_t i = 0; i < w->text_len; i++)
		t->symbol[i] = id_of[(unsigned char)w->text[i]];
	for (size_t i = 0; i < w->n; i++) {
		if (i % 4096 == 0 && stopped(stop))
			return interrupted();
		for (uint32_t k = 0; k + 1 < w->word[i].len; k++)
			pair_add(t, t->symbol[w->word[i].at + k], t->symbol[w->word[i].at + k + 1], (uint32_t)i,
				 w->word[i].count);
	}
	push_touched(t);
	return FO_OK;
}

/* Early merges visit most words, late ones few, so progress is reported every 256 tokens and the stop is checked before
 * each. */
static fo_status trainer_merge(struct trainer *t, fo_progress_fn *progress, void *ctx,
			       const volatile sig_atomic_t *stop)
{
	for (struct pair *best; t->tokens < t->want && (best = best_pair(t));) {
		if (stopped(stop))
			return interrupted();
		merge_best(t, best);
		if (progress && t->tokens % 256 == 0)
			progress(ctx, "merging", "tokens", (double)t->tokens, (double)t->want);
	}
	return FO_OK;
}

static void trainer_free(struct trainer *t)
{
	free(t->words.word);
	free(t->words.text);
	free(t->words.slot);
	free(t->symbol);
	free(t->pair);
	free(t->slot);
	free(t->node);
	free(t->heap);
	free(t->touched);
	free(t->bytes);
	free(t->at);
	free(t->token_slot);
	free(t->merge);
}

/* ---- text ---- */

/* The place where a block begins that should begin at `at`: after the next line end if one is near, else between two
 * characters. */
static size_t block_start(const char *text, size_t len, size_t at)
{
	if (at == 0 || at >= len)
		return at < len ? at : len;
	const char *line = memchr(text + at - 1, '\n', len - at < 4096 ? len - at : 4096);
	if (line)
		return (size_t)(line - text) + 1;
	for (int i = 0; i < 3 && at < len && ((unsigned char)text[at] & 0xc0) == 0x80; i++)
		at++;
	return at;
}

/* Every stride-th block of all texts. When they pass the limit, every second one of them goes and the stride doubles,
 * so that a stream of unknown length is sampled evenly. */
struct sample {
	char *text;
	size_t len, cap, limit;
	struct block {
		size_t index, at, len;
	} * block;
	size_t n, block_cap, stride, seen; /* seen: blocks so far */
};

static void sample_thin(struct sample *s)
{
	size_t kept = 0, len = 0;
	s->stride *= 2;
	for (size_t i = 0; i < s->n; i++) {
		struct block b = s->block[i];
		if (b.index % s->stride)
			continue;
		memmove(s->text + len, s->text + b.at, b.len);
		s->block[kept++] = (struct block){ b.index, len, b.len };
		len += b.len;
	}
	s->n = kept;
	s->len = len;
}

static void sample_add(struct sample *s, const char *text, size_t len)
{
	size_t index = s->seen++;
	if (!len || index % s->stride)
		return;
	fo_array_room(&s->text, &s->cap, s->len + len, 1);
	memcpy(s->text + s->len, text, len);
	fo_array_room(&s->block, &s->block_cap, s->n, sizeof *s->block);
	s->block[s->n++] = (struct block){ index, s->len, len };
	s->len += len;
	while (s->len > s->limit && s->n > 1)
		sample_thin(s);
}

/* Removes the blocks from `first` on. */
static void sample_drop(struct sample *s, size_t first)
{
	while (s->n && s->block[s->n - 1].index >= first)
		s->len = s->block[--s->n].at;
	s->seen = first;
}

static fo_status sample_text(struct sample *s, struct fo_text *source, const char *field, bool skip_bad,
			     fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop)
{
	size_t document = 0; /* its first block */
	for (;;) {
		struct fo_text_part p;
		double done, total;
		if (stopped(stop))
			return interrupted();
		FO_TRY(fo_text_next(source, &p));
		if (!p.bytes)
			return FO_OK;
		if (p.dropped)
			sample_drop(s, document);
		fo_status st = p.json ? fo_text_field(p.bytes, p.len, field, &p.bytes, &p.len) : FO_OK;
		if (st != FO_OK && !skip_bad)
			return fo_wrap(st, "'%s':%lld", fo_text_file(source, p.file), (long long)p.line);
		if (st != FO_OK || p.dropped)
			continue;
		document = p.begins ? s->seen : document;
		for (size_t at = 0; at < p.len; at += SAMPLE_BYTES) {
			size_t from = block_start(p.bytes, p.len, at),
			       to = block_start(p.bytes, p.len, at + SAMPLE_BYTES);
			sample_add(s, p.bytes + from, to - from);
		}
		fo_text_progress(source, &done, &total);
		if (progress)
			progress(ctx, "reading text", "bytes", done, total);
	}
}

static fo_status count_sample(struct words *w, const struct sample *s, fo_progress_fn *progress, void *ctx,
			      const volatile sig_atomic_t *stop)
{
	struct split *split;
	FO_TRY(split_new(split_pattern_llama3, &split));
	fo_status st = FO_OK;
	for (size_t i = 0; i < s->n && st == FO_OK; i++) {
		st = stopped(stop) ? interrupted() : words_count(w, split, s->text + s->block[i].at, s->block[i].len);
		if (progress)
			progress(ctx, "counting words", "bytes", (double)s->block[i].at, (double)s->len);
	}
	split_free(split);
	return st;
}

static fo_status count_inputs(struct words *w, char *const *inputs, size_t n, const struct fo_text_options *o,
			      size_t max_bytes, fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop)
{
	struct fo_text *source;
	struct sample s = { .limit = max_bytes, .stride = 1 };
	FO_TRY(fo_text_open(&source, inputs, n, o));
	fo_status st = sample_text(&s, source, o->field ? o->field : "text", o->skip_bad, progress, ctx, stop);
	if (st == FO_OK)
		st = count_sample(w, &s, progress, ctx, stop);
	if (st == FO_OK && !w->n)
		st = fo_fail(FO_EARG, "no text to train a tokenizer on in '%s': %zu %s, empty or binary", inputs[0],
			     fo_text_files(source), fo_word(fo_text_files(source), "file", "files"));
	fo_text_close(source);
	free(s.text);
	free(s.block);
	return st;
}

/* Hands the trainer's arrays over to a tokenizer. */
static fo_status trainer_finish(struct trainer *t, struct fo_tokenizer **out)
{
	static const char *const special[] = { "<|begin_of_text|>", "<|end_of_text|>" };
	struct fo_tokenizer *k = fo_xmalloc(sizeof *k);
	k->special = fo_xmalloc(2 * sizeof *k->special);
	for (int i = 0; i < 2; i++) {
		int32_t id = token_append(t, special[i], strlen(special[i]));
		k->special[i] = (struct tok_special){ id, fo_xstrdup(special[i]), false, false };
	}
	k->specials = 2;
	k->vocab = t->tokens;
	k->bytes = t->bytes;
	k->at = t->at;
	k->merge = t->merge;
	k->merges = (int64_t)t->merges;
	k->pattern = fo_xstrdup(split_pattern_llama3);
	t->bytes = NULL;
	t->at = NULL;
	t->merge = NULL;
	fo_status st = tok_finish(k);
	if (st == FO_OK)
		*out = k;
	else
		fo_tokenizer_free(k);
	return st;
}

fo_status fo_tokenizer_train(char *const *inputs, size_t n, const struct fo_text_options *o, int64_t vocab,
			     size_t max_bytes, fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop,
			     struct fo_tokenizer **out)
{
	if (vocab < 258 || vocab > TOK_MAX_VOCAB)
		return fo_fail(
			FO_EARG,
			"a vocabulary of %lld tokens is out of range: 258 (256 bytes and 2 special tokens) to %lld",
			(long long)vocab, (long long)TOK_MAX_VOCAB);
	struct trainer t = { 0 };
	fo_status st = count_inputs(&t.words, inputs, n, o ? o : &(struct fo_text_options){ 0 }, max_bytes, progress,
				    ctx, stop);
	if (st == FO_OK)
		st = trainer_start(&t, vocab - 2, stop);
	if (st == FO_OK)
		st = trainer_merge(&t, progress, ctx, stop);
	if (st == FO_OK)
		st = trainer_finish(&t, out);
	trainer_free(&t);
	return st;
}
