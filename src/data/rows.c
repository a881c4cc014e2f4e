/* Text in order: every token once, for evaluation. */
#include "data/data_int.h"

#include "base/fs.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FILES ((size_t)1 << 22)

/* ---- text to a shard in memory ---- */

static void append_id(struct fo_text *t, int32_t id)
{
	fo_array_room(&t->ids, &t->cap, t->n, sizeof *t->ids);
	t->ids[t->n++] = id;
}

static fo_status append_file(struct fo_text *x, const char *path, const struct fo_tokenizer *t)
{
	struct fo_map m;
	FO_TRY(fo_map_open(&m, path));
	fo_status st = FO_OK;
	if (m.len && !memchr(m.data, 0, m.len)) { /* as fo_data_prepare: neither empty nor binary */
		fo_array_room(&x->doc_at, &x->doc_cap, (size_t)x->shard.docs + 1, sizeof *x->doc_at);
		x->doc_at[x->shard.docs++] = (int64_t)x->n;
		x->bytes += (int64_t)m.len;
		append_id(x, t->bos);
		st = fo_tokenizer_encode(t, (const char *)m.data, m.len, &x->ids, &x->n, &x->cap);
		append_id(x, t->eos);
		x->doc_at[x->shard.docs] = (int64_t)x->n;
	}
	fo_map_close(&m);
	return st;
}

fo_status fo_text_encode(struct fo_text *x, const char *path, const struct fo_tokenizer *t, fo_progress_fn *progress,
			 void *ctx)
{
	struct fo_arena a = { 0 };
	char **paths;
	size_t n;
	*x = (struct fo_text){ 0 };
	fo_status st = fo_fs_list(&a, path, MAX_FILES, &paths, &n);
	for (size_t i = 0; st == FO_OK && i < n; i++) {
		if (progress)
			progress(ctx, "encoding", "files", (double)i, (double)n);
		st = append_file(x, paths[i], t);
	}
	if (st == FO_OK && !x->shard.docs)
		st = fo_fail(FO_EARG, "no text in '%s': %zu files, all of them empty or binary", path, n);
	fo_arena_fini(&a);
	if (st != FO_OK) {
		fo_text_free(x);
		return st;
	}
	x->shard.tokens = (int64_t)x->n;
	x->shard.vocab = t->vocab;
	x->shard.doc_at = x->doc_at;
	x->shard.ids32 = (const uint32_t *)x->ids; /* ids are never negative */
	x->shard.tokenizer_checksum = t->checksum;
	return FO_OK;
}

void fo_text_free(struct fo_text *x)
{
	free(x->ids);
	free(x->doc_at);
	*x = (struct fo_text){ 0 };
}

/* ---- rows in order ---- */

fo_status fo_rows_open(struct fo_rows *r, const struct fo_shard *s, const struct fo_batch_shape *shape)
{
	*r = (struct fo_rows){ .shard = s, .shape = *shape };
	size_t width, bytes;
	r->shape.micro_batches = 1;
	if (shape->seq < 1 || shape->rows < 1 || shape->seq > INT32_MAX / shape->rows)
		return fo_fail(FO_EARG, "a batch of %lld rows x %lld tokens: at least 1 each and at most %d together",
			       (long long)shape->rows, (long long)shape->seq, INT32_MAX);
	width = (size_t)(shape->rows * shape->seq);
	FO_TRY(fo_mul_size(width, 4 * sizeof(int32_t), &bytes));
	r->bytes = bytes;
	void *memory;
	FO_TRY(fo_pages_new(bytes, &memory));
	int32_t *p = r->memory = memory;
	r->batch = (struct fo_batch){ .token = p,
				      .target = p + width,
				      .position = p + 2 * width,
				      .doc_start = p + 3 * width,
				      .micro_loss_tokens = &r->loss_tokens,
				      .pairs = &r->pairs };
	return FO_OK;
}

const struct fo_batch *fo_rows_next(struct fo_rows *r)
{
	const struct fo_shard *s = r->shard;
	struct fo_batch *b = &r->batch;
	int64_t width = r->shape.rows * r->shape.seq, i = 0;
	if (r->doc == s->docs)
		return NULL;
	b->loss_tokens = b->real_tokens = r->loss_tokens = r->pairs = 0;
	b->step = r->steps++;
	while (i < width && r->doc < s->docs) {
		int64_t left = s->doc_at[r->doc + 1] - s->doc_at[r->doc] - r->at, room = r->shape.seq - i % r->shape.seq,
			n = left < room ? left : room;
		batch_put_piece(b, 0, &r->shape, s, r->doc, r->at, n, i);
		i += n;
		r->at += n;
		if (n == left) {
			r->doc++;
			r->at = 0;
		}
	}
	for (; i < width; i++) { /* padding is a document of its own */
		b->token[i] = b->position[i] = 0;
		b->target[i] = -1;
		b->doc_start[i] = (int32_t)i;
	}
	b->loss_tokens = r->loss_tokens;
	return b;
}

void fo_rows_close(struct fo_rows *r)
{
	fo_pages_free(r->memory, r->bytes);
	*r = (struct fo_rows){ 0 };
}
