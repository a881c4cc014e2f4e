/* Text in order: every token once, for evaluation. */
#include "data/data_int.h"

#include "base/fs.h"

#include <stdlib.h>
#include <string.h>

/* ---- text to a shard in memory ---- */

static void append_id(struct fo_documents *d, int32_t id)
{
	fo_array_room(&d->ids, &d->cap, d->n, sizeof *d->ids);
	d->ids[d->n++] = id;
}

/* Appends one part of a document; the tokens of an unfinished document begin at doc_at[docs]. */
static fo_status append_part(struct fo_documents *d, struct fo_text_part *p, struct fo_encoder *e,
			     const struct fo_tokenizer *t)
{
	if (p->dropped) { /* the document was no text after all */
		d->n = (size_t)d->doc_at[d->shard.docs];
		return FO_OK;
	}
	if (p->json)
		FO_TRY(fo_text_field(p->bytes, p->len, "text", &p->bytes, &p->len));
	if (p->begins) {
		fo_array_room(&d->doc_at, &d->doc_cap, (size_t)d->shard.docs + 1, sizeof *d->doc_at);
		d->doc_at[d->shard.docs] = (int64_t)d->n;
		append_id(d, t->bos);
	}
	d->bytes += (int64_t)p->len;
	FO_TRY(fo_encoder_encode(e, p->bytes, p->len, p->begins, &d->ids, &d->n, &d->cap));
	if (!p->ends)
		return FO_OK;
	if ((int64_t)d->n == d->doc_at[d->shard.docs] + 1) { /* as fo_data_prepare: nothing in it */
		d->n--;
		return FO_OK;
	}
	append_id(d, t->eos);
	d->doc_at[++d->shard.docs] = (int64_t)d->n;
	return FO_OK;
}

static fo_status read_documents(struct fo_documents *d, struct fo_text *text, struct fo_encoder *e,
				const struct fo_tokenizer *t, fo_progress_fn *progress, void *ctx)
{
	for (;;) {
		struct fo_text_part p;
		double done, total;
		FO_TRY(fo_text_next(text, &p));
		if (!p.bytes)
			return FO_OK;
		fo_status st = append_part(d, &p, e, t);
		if (st != FO_OK && p.json)
			return fo_wrap(st, "'%s':%lld", fo_text_file(text, p.file), (long long)p.line);
		if (st != FO_OK)
			return st;
		fo_text_progress(text, &done, &total);
		if (progress)
			progress(ctx, "encoding", "bytes", done, total);
	}
}

fo_status fo_documents_read(struct fo_documents *d, const char *input, const struct fo_tokenizer *t,
			    fo_progress_fn *progress, void *ctx)
{
	char *inputs[] = { (char *)(uintptr_t)input };
	const struct fo_text_options o = { .cut = tok_text_cut, .cut_ctx = t };
	struct fo_text *text = NULL;
	struct fo_encoder *e = NULL;
	*d = (struct fo_documents){ 0 };
	fo_status st = fo_text_open(&text, inputs, 1, &o);
	if (st == FO_OK)
		st = fo_encoder_new(t, &e);
	if (st == FO_OK)
		st = read_documents(d, text, e, t, progress, ctx);
	if (st == FO_OK && !d->shard.docs)
		st = fo_fail(FO_EARG, "no text in '%s': %zu %s, empty or binary", input, fo_text_files(text),
			     fo_word(fo_text_files(text), "file", "files"));
	fo_encoder_free(e);
	if (text)
		fo_text_close(text);
	if (st != FO_OK) {
		fo_documents_free(d);
		return st;
	}
	d->shard.tokens = (int64_t)d->n;
	d->shard.vocab = t->vocab;
	d->shard.doc_at = d->doc_at;
	d->shard.ids32 = (const uint32_t *)d->ids; /* ids are never negative */
	d->shard.tokenizer_checksum = t->checksum;
	return FO_OK;
}

void fo_documents_free(struct fo_documents *d)
{
	free(d->ids);
	free(d->doc_at);
	*d = (struct fo_documents){ 0 };
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

/* Owns nothing: fo_map_guard may leave it anywhere. */
static fo_status fill_rows(void *ctx)
{
	struct fo_rows *r = ctx;
	const struct fo_shard *s = r->shard;
	struct fo_batch *b = &r->batch;
	int64_t width = r->shape.rows * r->shape.seq, i = 0;
	b->loss_tokens = b->real_tokens = r->loss_tokens = r->pairs = 0;
	b->step = r->steps++;
	while (i < width && r->doc < s->docs) {
		int64_t left = shard_doc_length(s, r->doc) - r->at, room = r->shape.seq - i % r->shape.seq,
			n = left < room ? left : room;
		batch_put_piece(b, &r->shape, s,
				&(struct fo_piece){ 0, i / r->shape.seq, i % r->shape.seq, r->doc, r->at, n });
		i += n;
		r->at += n;
		if (n == left) {
			r->doc++;
			r->at = 0;
		}
	}
	batch_pad(b, 0, width, i, width, 0);
	b->loss_tokens = r->loss_tokens;
	return FO_OK;
}

fo_status fo_rows_next(struct fo_rows *r, const struct fo_batch **out)
{
	*out = NULL;
	if (r->doc == r->shard->docs)
		return FO_OK;
	FO_TRY(fo_map_guard(fill_rows, r));
	if (r->shard->map)
		FO_TRY(fo_map_check(r->shard->map));
	*out = &r->batch;
	return FO_OK;
}

void fo_rows_close(struct fo_rows *r)
{
	fo_pages_free(r->memory, r->bytes);
	*r = (struct fo_rows){ 0 };
}
