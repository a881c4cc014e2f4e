/* Texts to the two shards: one thread reads batches of parts, all threads encode, and batches are written in the order
 * in which they were read. So the files do not depend on the number of threads, and after any batch a short record, the
 * journal, says how far everything is. */
#include "data/prepare_int.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/schema.h"
#include "base/retry.h"
#include "base/thread.h"

#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#define BATCH_BYTES ((size_t)1 << 20) /* as a part of a long document */
#define BATCH_PARTS 16384             /* of short ones */
#define SAVE_NS 5000000000
#define HOLDOUT_STREAM 0x686f6c646f757431u /* any constant: the choice must not follow the run's seed */
#define RESULT_FILE "prepared.json"

struct piece {
	struct fo_text_part part;
	size_t at, ids_end; /* its bytes in the batch; where its ids end */
	bool bad, empty;    /* after encoding: a line that is no JSON; nothing in it */
	int64_t bytes;      /* of text */
};

struct batch {
	bool encoded;
	char *text;
	size_t len, cap;
	struct piece *piece;
	size_t n, piece_cap;
	int32_t *ids;
	size_t ids_n, ids_cap;
	struct fo_text_place place; /* after its last part */
	double packed;              /* bytes read from disk until then */
	bool last;                  /* the input's end */
	fo_status failed;           /* an error that ends the work, unless it is of a bad line and those are skipped */
	struct fo_err error;
};

struct job {
	const struct fo_prepare *p;
	struct fo_text *text;
	struct shard_writer writer[2]; /* train, val */
	struct journal now;            /* as of the last batch written */
	int64_t saved_ns;
	double total;
	/* the ring of batches; batch k lies in slot k % slots */
	struct batch *batch;
	int64_t slots, made, taken, written;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct worker *worker;
	int threads;
	bool stop;
	int folder; /* locked */
};

/* ---- reading ---- */

static void add_part(struct batch *b, const struct fo_text_part *part)
{
	fo_array_room(&b->text, &b->cap, b->len + part->len, 1);
	memcpy(b->text + b->len, part->bytes, part->len);
	fo_array_room(&b->piece, &b->piece_cap, b->n, sizeof *b->piece);
	b->piece[b->n++] = (struct piece){ .part = *part, .at = b->len };
	b->len += part->len;
}

static fo_status read_batch(struct job *j, struct batch *b)
{
	double unused;
	b->len = b->n = b->ids_n = 0;
	b->failed = FO_OK;
	while (b->len < BATCH_BYTES && b->n < BATCH_PARTS) {
		struct fo_text_part part;
		FO_TRY(fo_text_next(j->text, &part));
		b->last = !part.bytes;
		if (b->last)
			break;
		add_part(b, &part);
		if (part.dropped) /* write_batch expects it to be the last of its batch */
			break;
	}
	b->place = fo_text_place(j->text);
	fo_text_progress(j->text, &b->packed, &unused);
	return FO_OK;
}

/* ---- encoding: what the threads do ---- */

static void encode_piece(struct job *j, struct fo_encoder *e, struct batch *b, struct piece *p)
{
	char *text = b->text + p->at;
	size_t len = p->part.len;
	const struct fo_text_options *o = &j->p->text;
	if (p->part.json) {
		fo_status st = fo_text_field(text, len, o->field ? o->field : "text", &text, &len);
		if (st != FO_OK && o->skip_bad) {
			p->bad = true;
			return;
		}
		if (st != FO_OK) {
			b->failed = fo_wrap(st, "'%s':%lld", fo_text_file(j->text, p->part.file),
					    (long long)p->part.line);
			fo_err_save(&b->error, st);
			return;
		}
	}
	p->bytes = (int64_t)len;
	p->empty = !len;
	b->failed = fo_encoder_encode(e, text, len, p->part.begins, &b->ids, &b->ids_n, &b->ids_cap);
	if (b->failed != FO_OK)
		fo_err_save(&b->error, b->failed);
}

static void encode_batch(struct job *j, struct fo_encoder *e, struct batch *b)
{
	for (size_t i = 0; i < b->n && b->failed == FO_OK; i++) {
		struct piece *p = &b->piece[i];
		if (!p->part.dropped)
			encode_piece(j, e, b, p);
		p->ids_end = b->ids_n;
	}
}

struct worker {
	struct job *j;
	struct fo_encoder *e;
	pthread_t thread;
};

static void *work(void *arg)
{
	const struct worker *w = arg;
	struct job *j = w->j;
	pthread_mutex_lock(&j->lock);
	for (;;) {
		while (!j->stop && j->taken == j->made)
			pthread_cond_wait(&j->changed, &j->lock);
		if (j->stop)
			break;
		struct batch *b = &j->batch[j->taken++ % j->slots];
		pthread_mutex_unlock(&j->lock);
		encode_batch(j, w->e, b);
		pthread_mutex_lock(&j->lock);
		b->encoded = true;
		pthread_cond_broadcast(&j->changed);
	}
	pthread_mutex_unlock(&j->lock);
	return NULL;
}

static fo_status start_threads(struct job *j)
{
	j->slots = 2 * j->p->threads + 1;
	j->batch = fo_xmalloc((size_t)j->slots * sizeof *j->batch);
	j->worker = fo_xmalloc((size_t)j->p->threads * sizeof *j->worker);
	for (; j->threads < j->p->threads; j->threads++) {
		struct worker *w = &j->worker[j->threads];
		w->j = j;
		FO_TRY(fo_encoder_new(j->p->tokenizer, &w->e));
		fo_status st = fo_thread_start(&w->thread, work, w, "a thread that encodes");
		if (st != FO_OK) {
			fo_encoder_free(w->e);
			return st;
		}
	}
	return FO_OK;
}

static void stop_threads(struct job *j)
{
	pthread_mutex_lock(&j->lock);
	j->stop = true;
	pthread_cond_broadcast(&j->changed);
	pthread_mutex_unlock(&j->lock);
	for (int i = 0; i < j->threads; i++) {
		pthread_join(j->worker[i].thread, NULL);
		fo_encoder_free(j->worker[i].e);
	}
	for (int64_t i = 0; j->batch && i < j->slots; i++) {
		free(j->batch[i].text);
		free(j->batch[i].piece);
		free(j->batch[i].ids);
	}
	free(j->batch);
	free(j->worker);
}

/* ---- writing ---- */

/* The shard that a document goes to (0 train, 1 val), by its number among those stored. */
static int shard_of(const struct job *j, int64_t index)
{
	int64_t every = j->p->holdout_every, group = index / every, member = index % every;
	return (uint64_t)member == fo_rng_u64(HOLDOUT_STREAM, (uint64_t)group) % (uint64_t)every;
}

static fo_status write_piece(struct job *j, const struct piece *p, const int32_t *ids, size_t n)
{
	const struct fo_tokenizer *t = j->p->tokenizer;
	struct fo_prepare_stats *s = &j->now.stats;
	if (p->part.dropped) {
		if (j->now.open)
			FO_TRY(shard_writer_drop(&j->writer[j->now.open - 1]));
		j->now.open = j->now.open_bytes = 0;
		return FO_OK;
	}
	s->skipped_bad += p->bad;
	s->skipped_empty += p->empty;
	if (p->bad || p->empty)
		return FO_OK;
	if (p->part.begins) {
		int side = shard_of(j, j->writer[0].mark.docs + j->writer[1].mark.docs);
		j->now.open = side + 1;
		j->now.open_bytes = 0;
		FO_TRY(shard_writer_document(&j->writer[side], p->part.file, p->part.line));
		FO_TRY(shard_writer_ids(&j->writer[side], &t->bos, 1));
	}
	struct shard_writer *w = &j->writer[j->now.open - 1];
	FO_TRY(shard_writer_ids(w, ids, n));
	j->now.open_bytes += p->bytes;
	if (!p->part.ends)
		return FO_OK;
	s->bytes += j->now.open_bytes;
	j->now.open = 0;
	return shard_writer_ids(w, &t->eos, 1);
}

/* Brings the journal up to what was written. */
static void note(struct job *j, const struct fo_text_place *place)
{
	j->now.place = *place;
	j->now.mark[0] = j->writer[0].mark;
	j->now.mark[1] = j->writer[1].mark;
}

static fo_status save(struct job *j)
{
	FO_TRY(shard_writer_sync(&j->writer[0]));
	FO_TRY(shard_writer_sync(&j->writer[1]));
	FO_TRY(journal_write(&j->now, j->p->dir));
	j->saved_ns = fo_now_ns();
	return FO_OK;
}

static fo_status write_batch(struct job *j, struct batch *b)
{
	struct journal before = j->now;
	fo_status st = b->failed != FO_OK ? fo_err_raise(&b->error) : FO_OK;
	for (size_t i = 0; i < b->n && st == FO_OK; i++) {
		size_t from = i ? b->piece[i - 1].ids_end : 0;
		st = write_piece(j, &b->piece[i], b->ids_n ? b->ids + from : NULL, b->piece[i].ids_end - from);
	}
	if (st != FO_OK) {
		j->now = before; /* what was written after it is cut off when somebody goes on */
		return st;
	}
	note(j, &b->place);
	if (j->p->progress)
		j->p->progress(j->p->ctx, "encoding", "bytes", b->packed, j->total);
	if (b->n && b->piece[b->n - 1].part.dropped) {
		/* The journal on the disk may know of the document that was taken back: its bytes go only when a newer
		 * one does not. */
		FO_TRY(save(j));
		FO_TRY(shard_writer_trim(&j->writer[0]));
		FO_TRY(shard_writer_trim(&j->writer[1]));
	}
	int64_t every = j->p->save_every_ns ? j->p->save_every_ns : SAVE_NS;
	return fo_now_ns() - j->saved_ns >= every ? save(j) : FO_OK;
}

/* Waits for the oldest batch that is not written yet. */
static fo_status write_oldest(struct job *j)
{
	struct batch *b = &j->batch[j->written % j->slots];
	pthread_mutex_lock(&j->lock);
	while (!b->encoded)
		pthread_cond_wait(&j->changed, &j->lock);
	b->encoded = false;
	pthread_mutex_unlock(&j->lock);
	j->written++;
	return write_batch(j, b);
}

static fo_status encode_all(struct job *j)
{
	for (bool more = true; more;) {
		if (j->p->stop && *j->p->stop) {
			while (j->written < j->made)
				FO_TRY(write_oldest(j));
			fo_fail(FO_EINTERRUPT, "stopped after %lld bytes of text", (long long)j->now.stats.bytes);
			return fo_hint(FO_EINTERRUPT, "the same command goes on from there");
		}
		if (j->made - j->written == j->slots)
			FO_TRY(write_oldest(j));
		struct batch *b = &j->batch[j->made % j->slots];
		fo_status st = read_batch(j, b);
		if (st != FO_OK) { /* what was read before is still good */
			struct fo_err e;
			fo_err_save(&e, st);
			while (j->written < j->made)
				FO_TRY(write_oldest(j));
			return fo_err_raise(&e);
		}
		more = !b->last;
		pthread_mutex_lock(&j->lock);
		j->made++;
		pthread_cond_broadcast(&j->changed);
		pthread_mutex_unlock(&j->lock);
	}
	while (j->written < j->made)
		FO_TRY(write_oldest(j));
	return FO_OK;
}

/* ---- few documents: their tails are held out ---- */

struct ids_map {
	struct fo_map map, docs, src;
	struct shard_mark mark;
	uint32_t id_bytes;
};

static int32_t id_at(const struct ids_map *m, int64_t i)
{
	const unsigned char *p = m->map.data + sizeof(struct shard_header) + (size_t)i * m->id_bytes;
	uint32_t id = 0;
	memcpy(&id, p, m->id_bytes);
	return (int32_t)id;
}

/* The token of from..to at which a document's held-out tail begins: after a line end near 1 - 1/every of the bytes,
 * else between two characters; `to` when the document is too short. */
static int64_t tail_start(const struct fo_tokenizer *t, const struct ids_map *m, int64_t from, int64_t to,
			  int64_t every)
{
	struct fo_str s = { 0 };
	int64_t total = 0, done = 0, found = to;
	for (int64_t i = from; i < to; i++, s.len = 0) {
		fo_tokenizer_decode(t, &(int32_t){ id_at(m, i) }, 1, &s);
		total += (int64_t)s.len;
	}
	bool line = false;
	for (int64_t i = from; i < to && !line && total / every; i++, s.len = 0) {
		fo_tokenizer_decode(t, &(int32_t){ id_at(m, i) }, 1, &s);
		bool whole = s.len && ((unsigned char)s.data[0] & 0xc0) != 0x80;
		if (found == to && whole && done >= total - total / every)
			found = i;
		done += (int64_t)s.len;
		line = done >= total - total / every && s.len && s.data[s.len - 1] == '\n' && i + 1 < to;
		if (line)
			found = i + 1;
	}
	fo_str_fini(&s);
	return found;
}

static fo_status copy_part(const struct job *j, struct shard_writer *w, const struct ids_map *m, int64_t from,
			   int64_t to, const struct sources_record *r)
{
	const struct fo_tokenizer *t = j->p->tokenizer;
	int32_t block[1024];
	FO_TRY(shard_writer_document(w, r->file, r->line));
	FO_TRY(shard_writer_ids(w, &t->bos, 1));
	for (int64_t i = from; i < to;) {
		size_t n = 0;
		for (; n < sizeof block / sizeof *block && i < to; i++)
			block[n++] = id_at(m, i);
		FO_TRY(shard_writer_ids(w, block, n));
	}
	return shard_writer_ids(w, &t->eos, 1);
}

/* Document d of a shard under construction, its head and tail to both of the new ones. */
static fo_status split_document(struct job *j, struct shard_writer *to, const struct ids_map *m, int64_t d)
{
	int64_t start, end = m->mark.tokens;
	struct sources_record r;
	memcpy(&start, m->docs.data + (size_t)d * 8, 8);
	if (d + 1 < m->mark.docs)
		memcpy(&end, m->docs.data + (size_t)(d + 1) * 8, 8);
	memcpy(&r, m->src.data + sizeof(struct sources_header) + (size_t)d * sizeof r, sizeof r);
	int64_t tail = tail_start(j->p->tokenizer, m, start + 1, end - 1, j->p->holdout_every);
	FO_TRY(copy_part(j, &to[0], m, start + 1, tail, &r));
	return tail < end - 1 ? copy_part(j, &to[1], m, tail, end - 1, &r) : FO_OK;
}

static fo_status map_writer(struct ids_map *m, const struct shard_writer *w)
{
	m->mark = w->mark;
	m->id_bytes = w->id_bytes;
	FO_TRY(fo_map_open(&m->map, w->file[IDS].path));
	FO_TRY(fo_map_open(&m->docs, w->file[OFFSETS].path));
	return fo_map_open(&m->src, w->file[SOURCES].path);
}

static fo_status split_tails(struct job *j, struct shard_writer *to)
{
	struct ids_map m[2] = { 0 };
	fo_status st = FO_OK;
	for (int side = 0; side < 2 && st == FO_OK; side++) {
		st = shard_writer_sync(&j->writer[side]);
		if (st == FO_OK)
			st = map_writer(&m[side], &j->writer[side]);
	}
	int64_t docs = m[0].mark.docs + m[1].mark.docs, next[2] = { 0 };
	for (int64_t i = 0; i < docs && st == FO_OK; i++) {
		int side = shard_of(j, i);
		st = split_document(j, to, &m[side], next[side]++);
	}
	for (int side = 0; side < 2; side++) {
		fo_map_close(&m[side].map);
		fo_map_close(&m[side].docs);
		fo_map_close(&m[side].src);
	}
	return st;
}

/* ---- the end ---- */

static const char *const side_name[2] = { "train", "val" }, *const few_name[2] = { "train.few", "val.few" };

static const char *name_of(const void *ctx, int64_t i) { return fo_text_file(ctx, i); }

/* ---- prepared.json: what the folder holds; a later call with the same fingerprint has nothing to do ---- */

struct result {
	uint64_t fingerprint, tokenizer_checksum;
	int64_t holdout;
	struct fo_prepare_stats stats;
};
#define RESULT(m, ...) FO_FIELD(struct result, m, __VA_ARGS__)
static const struct fo_schema_field result_field[] = {
	RESULT(fingerprint, "fingerprint", "", "of inputs, options and tokenizer"),
	RESULT(tokenizer_checksum, "tokenizer_checksum", "", "of `tokenizer.json`"),
	RESULT(holdout, "holdout", "", "one document of so many is held out"),
	RESULT(stats.files, "files", "", "files read"),
	RESULT(stats.skipped_binary, "skipped_binary", "", "files that are no text"),
	RESULT(stats.skipped_empty, "skipped_empty", "", "documents without text"),
	RESULT(stats.skipped_bad, "skipped_bad", "", "lines that are no JSON"),
	RESULT(stats.bytes, "bytes", "B", "text taken"),
	RESULT(stats.train_docs, "train_docs", "", "documents in `train.shard`"),
	RESULT(stats.train_tokens, "train_tokens", "", "tokens in `train.shard`"),
	RESULT(stats.val_docs, "val_docs", "", "documents in `val.shard`"),
	RESULT(stats.val_tokens, "val_tokens", "", "tokens in `val.shard`"),
};
const struct fo_schema fo_prepared_schema = { "prepared", "prepared.json", 1, FO_FIELDS(struct result, result_field) };

static fo_status write_result(const struct job *j)
{
	const struct result f = { j->now.fingerprint, j->p->tokenizer->checksum, j->p->holdout_every, j->now.stats };
	struct fo_str out = { 0 };
	char path[4096];
	snprintf(path, sizeof path, "%s/" RESULT_FILE, j->p->dir);
	fo_schema_text(&fo_prepared_schema, &f, true, &out);
	fo_status st = fo_fs_write_atomic(path, out.data, out.len);
	fo_str_fini(&out);
	return st;
}

static fo_status publish(struct job *j)
{
	for (int side = 0; side < 2; side++) {
		FO_TRY(shard_writer_publish(j->p->dir, j->now.few ? few_name[side] : side_name[side], side_name[side]));
		shard_writer_remove(j->p->dir, side_name[side]);
	}
	FO_TRY(fo_fs_sync_dir(j->p->dir));
	FO_TRY(write_result(j));
	journal_remove(j->p->dir);
	return FO_OK;
}

/* The counts that were kept by the reader and by us. */
static void sum_up(struct job *j, const struct shard_writer *w)
{
	struct fo_prepare_stats *s = &j->now.stats;
	const struct fo_text_counts *c = &j->now.place.counts;
	s->files = c->files;
	s->skipped_binary = c->binary;
	s->skipped_empty += c->empty;
	s->skipped_bad += c->bad;
	s->train_docs = w[0].mark.docs;
	s->train_tokens = w[0].mark.tokens;
	s->val_docs = w[1].mark.docs;
	s->val_tokens = w[1].mark.tokens;
}

static fo_status finish_with(struct job *j, struct shard_writer *w)
{
	sum_up(j, w);
	if (!w[0].mark.docs || !w[1].mark.docs)
		return fo_fail(FO_EARG, "too little text in '%s' to hold any out: %lld bytes, one in %lld",
			       j->p->inputs[0], (long long)j->now.stats.bytes, (long long)j->p->holdout_every);
	for (int side = 0; side < 2; side++)
		FO_TRY(shard_writer_finish(&w[side], (int64_t)fo_text_files(j->text), name_of, j->text));
	j->now.stage = STAGE_PUBLISHING;
	FO_TRY(journal_write(&j->now, j->p->dir));
	return publish(j);
}

static fo_status finish(struct job *j)
{
	int64_t docs = j->writer[0].mark.docs + j->writer[1].mark.docs;
	if (!docs) {
		sum_up(j, j->writer);
		const struct fo_prepare_stats *s = &j->now.stats;
		return fo_fail(FO_EARG, "no text in '%s': %lld files, %lld of them binary, %lld empty, %lld damaged",
			       j->p->inputs[0], (long long)s->files, (long long)s->skipped_binary,
			       (long long)s->skipped_empty, (long long)s->skipped_bad);
	}
	if (docs >= j->p->holdout_every)
		return finish_with(j, j->writer);
	struct shard_writer *few = fo_xmalloc(2 * sizeof *few);
	fo_status st = FO_OK;
	for (int side = 0; side < 2 && st == FO_OK; side++)
		st = shard_writer_open(&few[side], j->p->dir, few_name[side], j->p->tokenizer, NULL);
	if (st == FO_OK)
		st = split_tails(j, few);
	j->now.few = 1;
	if (st == FO_OK)
		st = finish_with(j, few);
	shard_writer_close(&few[0]);
	shard_writer_close(&few[1]);
	free(few);
	return st;
}

static void remove_all(const char *dir)
{
	for (int side = 0; side < 2; side++) {
		shard_writer_remove(dir, side_name[side]);
		shard_writer_remove(dir, few_name[side]);
	}
	journal_remove(dir);
}

/* ---- going on ---- */

static uint64_t fingerprint(const struct job *j)
{
	const uint64_t part[] = { SHARD_VERSION, fo_text_fingerprint(j->text), j->p->tokenizer->checksum,
				  (uint64_t)j->p->holdout_every, j->p->also };
	return XXH3_64bits(part, sizeof part);
}

static bool published(const char *dir)
{
	char path[2][4096];
	for (int side = 0; side < 2; side++)
		snprintf(path[side], sizeof path[side], "%s/%s.shard", dir, side_name[side]);
	return fo_fs_exists(path[0]) && fo_fs_exists(path[1]);
}

/* *found: the folder holds the finished shards of the same fingerprint, whose counts are read back. */
static void read_result(struct job *j, bool *found)
{
	struct fo_arena a = { 0 };
	struct fo_schema_reader r = { .arena = &a, .lenient = true };
	struct result f = { 0 };
	const char *path = fo_arena_printf(&a, "%s/" RESULT_FILE, j->p->dir);
	*found = published(j->p->dir) &&
		 fo_schema_read_file(&fo_prepared_schema, path, (size_t)1 << 20, &f, &r) == FO_OK &&
		 f.fingerprint == j->now.fingerprint;
	if (*found)
		j->now.stats = f.stats;
	j->now.stats.resumed_bytes = j->now.stats.bytes;
	fo_err_clear();
	fo_arena_fini(&a);
}

static fo_status refuse(const struct job *j, const char *what)
{
	fo_fail(FO_EARG, "'%s' holds %s other inputs, options or another tokenizer", j->p->dir, what);
	return fo_hint(FO_EARG, "choose another folder; 'flatout data prepare --replace' makes anew what is there");
}

/* Opens the writers where the journal left them, or anew. *done: nothing is left to do. */
static fo_status open_output(struct job *j, bool *done)
{
	struct journal old;
	bool found;
	j->now.fingerprint = fingerprint(j);
	FO_TRY(journal_read(&old, j->p->dir, &found));
	bool same = found && old.fingerprint == j->now.fingerprint;
	*done = false;
	if (!found) {
		read_result(j, done);
		if (*done)
			return FO_OK;
		if (!j->p->replace && published(j->p->dir))
			return refuse(j, "data prepared from");
	}
	if (found && !same && !j->p->replace)
		return refuse(j, "a preparation begun with");
	if (same)
		j->now = old;
	if (same && old.stage == STAGE_PUBLISHING) {
		*done = true;
		return publish(j);
	}
	if (!same)
		remove_all(j->p->dir);
	for (int side = 0; side < 2; side++)
		FO_TRY(shard_writer_open(&j->writer[side], j->p->dir, side_name[side], j->p->tokenizer,
					 same ? &old.mark[side] : NULL));
	if (same)
		FO_TRY(fo_text_seek(j->text, &old.place));
	else
		note(j, &(struct fo_text_place){ .offset = -1 });
	j->now.stats.resumed_bytes = j->now.stats.bytes;
	return FO_OK;
}

/* Two processes would write into the same files. The lock is the folder's own and ends with the process. */
static fo_status lock(struct job *j)
{
	j->folder = fo_open(j->p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (j->folder < 0)
		return fo_fs_refuse("read", j->p->dir, errno);
	if (fo_flock(j->folder, LOCK_EX | LOCK_NB) &&
	    errno == EWOULDBLOCK) /* a file system without locks stops nobody */
		return fo_fail(FO_EIO, "another process prepares data in '%s'", j->p->dir);
	return FO_OK;
}

static fo_status run(struct job *j)
{
	bool done;
	double unused;
	FO_TRY(lock(j));
	FO_TRY(open_output(j, &done));
	if (done)
		return FO_OK;
	fo_text_progress(j->text, &unused, &j->total);
	j->saved_ns = fo_now_ns();
	fo_status st = start_threads(j);
	if (st == FO_OK)
		st = encode_all(j);
	if (st != FO_OK) {
		struct fo_err e;
		fo_err_save(&e, st);
		/* Work that was done is kept; the first error is the one to tell. Where none was, nothing may keep the
		 * user from beginning anew with a mended input. */
		if (!j->now.mark[0].docs && !j->now.mark[1].docs)
			remove_all(j->p->dir);
		else if (save(j) != FO_OK)
			fo_err_clear();
		return fo_err_raise(&e);
	}
	FO_TRY(save(j)); /* the end may take minutes too: the checksums read all of the shards */
	st = finish(j);
	if (st == FO_EARG)
		remove_all(j->p->dir); /* going on would end the same way */
	return st;
}

fo_status fo_data_prepare(const struct fo_prepare *p, struct fo_prepare_stats *stats)
{
	if (p->holdout_every < 2)
		return fo_fail(FO_EARG, "one in %lld documents cannot be held out: at least one in 2",
			       (long long)p->holdout_every);
	if (p->threads < 1)
		return fo_fail(FO_EARG, "%d threads cannot encode anything", p->threads);
	struct fo_text_options o = p->text;
	o.cut = tok_text_cut;
	o.cut_ctx = p->tokenizer;
	if (!o.leave_out)
		o.leave_out = p->dir;
	struct job *j = fo_xmalloc(sizeof *j);
	j->p = p;
	j->folder = -1;
	pthread_mutex_init(&j->lock, NULL);
	pthread_cond_init(&j->changed, NULL);
	fo_status st = fo_text_open(&j->text, p->inputs, p->n, &o);
	if (st == FO_OK)
		st = fo_fs_mkdirs(p->dir);
	if (st == FO_OK)
		st = run(j);
	if (st == FO_OK)
		*stats = j->now.stats;
	stop_threads(j);
	shard_writer_close(&j->writer[0]);
	shard_writer_close(&j->writer[1]);
	fo_text_close(j->text);
	if (j->folder >= 0)
		close(j->folder);
	pthread_cond_destroy(&j->changed);
	pthread_mutex_destroy(&j->lock);
	free(j);
	return st;
}
