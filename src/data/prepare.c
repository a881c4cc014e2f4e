/* From text files to the two shards. Files are mapped, ids and checksums stream out: 8 bytes of memory per document. */
#include "data/data_int.h"

#include "base/clock.h"
#include "base/fs.h"

#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MAX_FILES ((size_t)1 << 22)
#define HOLDOUT_STREAM 0x686f6c646f757431u /* any constant: the choice must not follow the run's seed */

/* ---- writing one shard ---- */

struct writer {
	char path[4096], temporary[4096 + 8];
	int fd;
	struct shard_header h;
	XXH3_state_t *sum; /* wants 64-byte alignment, which only its own allocator promises */
	int64_t *doc_at;
	size_t cap;
	size_t used;
	unsigned char buffer[1 << 16];
};

static fo_status write_at(struct writer *w, const void *bytes, size_t n, off_t at)
{
	const unsigned char *p = bytes;
	while (n) {
		ssize_t done = at < 0 ? write(w->fd, p, n) : pwrite(w->fd, p, n, at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return fo_fail(FO_EIO, "cannot write '%s': %s", w->temporary,
				       strerror(done < 0 ? errno : ENOSPC));
		p += done;
		n -= (size_t)done;
		at += at < 0 ? 0 : (off_t)done;
	}
	return FO_OK;
}

static fo_status writer_flush(struct writer *w)
{
	XXH3_64bits_update(w->sum, w->buffer, w->used);
	size_t n = w->used;
	w->used = 0;
	return write_at(w, w->buffer, n, -1);
}

static fo_status writer_open(struct writer *w, const char *dir, const char *name, const struct fo_tokenizer *t)
{
	*w = (struct writer){ .fd = -1 };
	if (snprintf(w->path, sizeof w->path, "%s/%s", dir, name) >= (int)sizeof w->path)
		return fo_fail(FO_EARG, "the path '%s/%s' is too long", dir, name);
	snprintf(w->temporary, sizeof w->temporary, "%s.tmp", w->path);
	w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (w->fd < 0)
		return fo_fail(FO_EIO, "cannot create '%s': %s", w->temporary, strerror(errno));
	memcpy(w->h.magic, SHARD_MAGIC, sizeof w->h.magic);
	w->h.version = SHARD_VERSION;
	w->h.vocab = t->vocab;
	w->h.id_bytes = t->vocab <= 65536 ? 2 : 4;
	w->h.tokenizer_checksum = t->checksum;
	w->sum = XXH3_createState();
	if (!w->sum)
		return fo_fail(FO_ENOMEM, "cannot allocate a checksum state");
	XXH3_64bits_reset(w->sum);
	return write_at(w, &w->h, sizeof w->h, -1); /* the place; the numbers come last */
}

static fo_status writer_ids(struct writer *w, const int32_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (w->used + 4 > sizeof w->buffer)
			FO_TRY(writer_flush(w));
		uint32_t id = (uint32_t)ids[i];
		memcpy(w->buffer + w->used, &id, w->h.id_bytes); /* the low bytes come first */
		w->used += w->h.id_bytes;
	}
	w->h.tokens += (int64_t)n;
	return FO_OK;
}

static void writer_document(struct writer *w)
{
	fo_array_room(&w->doc_at, &w->cap, (size_t)w->h.docs + 1, sizeof *w->doc_at);
	w->doc_at[w->h.docs++] = w->h.tokens;
}

/* Makes the shard complete and durable under its temporary name. */
static fo_status writer_finish(struct writer *w)
{
	static const unsigned char zeros[8];
	FO_TRY(writer_flush(w));
	size_t bytes = (size_t)w->h.tokens * w->h.id_bytes;
	w->used = shard_ids_bytes(w->h.tokens, w->h.id_bytes) - bytes;
	memcpy(w->buffer, zeros, w->used);
	FO_TRY(writer_flush(w));
	w->doc_at[w->h.docs] = w->h.tokens;
	size_t offsets = ((size_t)w->h.docs + 1) * sizeof *w->doc_at;
	XXH3_64bits_update(w->sum, w->doc_at, offsets);
	FO_TRY(write_at(w, w->doc_at, offsets, -1));
	XXH3_64bits_update(w->sum, &w->h, sizeof w->h);
	w->h.checksum = XXH3_64bits_digest(w->sum);
	FO_TRY(write_at(w, &w->h, sizeof w->h, 0));
	if (fsync(w->fd))
		return fo_fail(FO_EIO, "cannot write '%s': %s", w->temporary, strerror(errno));
	return FO_OK;
}

/* Frees; a file that still has its temporary name is removed. */
static void writer_close(struct writer *w)
{
	if (w->fd >= 0) {
		close(w->fd);
		unlink(w->temporary);
	}
	free(w->doc_at);
	XXH3_freeState(w->sum);
}

/* ---- documents ---- */

struct job {
	const struct fo_tokenizer *t;
	fo_progress_fn *progress;
	void *ctx;
	double total;  /* bytes of all files */
	size_t before; /* bytes of the files and parts that are done */
	struct writer train, val;
	struct writer *to;
	struct fo_prepare_stats stats;
};

static fo_status sink(void *ctx, const int32_t *ids, size_t n, size_t done)
{
	struct job *j = ctx;
	if (j->progress)
		j->progress(j->ctx, "encoding", "bytes", (double)(j->before + done), j->total);
	return writer_ids(j->to, ids, n);
}

static fo_status add_document(struct job *j, struct writer *to, const char *text, size_t len)
{
	int32_t ends[2] = { j->t->bos, j->t->eos };
	j->to = to;
	writer_document(to);
	FO_TRY(writer_ids(to, &ends[0], 1));
	FO_TRY(tok_encode(j->t, text, len, sink, j));
	FO_TRY(writer_ids(to, &ends[1], 1));
	j->before += len;
	j->stats.bytes += (int64_t)len;
	return FO_OK;
}

/* Where the held-out tail of a text begins: behind a line end near 1 - 1/every, else between two characters. */
static size_t tail_start(const char *text, size_t len, size_t every)
{
	size_t at = len - len / every;
	const char *line = at < len ? memchr(text + at, '\n', len - at) : NULL;
	if (line && (size_t)(line - text) + 1 < len)
		return (size_t)(line - text) + 1;
	while (at < len && ((unsigned char)text[at] & 0xc0) == 0x80)
		at++;
	return at;
}

/* Document `index` of `docs`: to one shard, or its head and tail to both. */
static fo_status place_document(struct job *j, int64_t index, int64_t docs, int holdout_every, const char *text,
				size_t len)
{
	if (docs < holdout_every) {
		size_t at = tail_start(text, len, (size_t)holdout_every);
		FO_TRY(add_document(j, &j->train, text, at));
		return at < len ? add_document(j, &j->val, text + at, len - at) : FO_OK;
	}
	int64_t group = index / holdout_every, member = index % holdout_every;
	bool held = (uint64_t)member == fo_rng_u64(HOLDOUT_STREAM, (uint64_t)group) % (uint64_t)holdout_every;
	return add_document(j, held ? &j->val : &j->train, text, len);
}

/* Which files are documents: has[i] is set for a file with text. */
static fo_status survey(struct job *j, char **paths, size_t n, bool *has, int64_t *docs)
{
	*docs = 0;
	for (size_t i = 0; i < n; i++) {
		struct fo_map m;
		FO_TRY(fo_map_open(&m, paths[i]));
		bool binary = m.len && memchr(m.data, 0, m.len);
		has[i] = m.len && !binary;
		j->stats.skipped_binary += binary;
		*docs += has[i];
		j->total += has[i] ? (double)m.len : 0;
		fo_map_close(&m);
	}
	j->stats.files = (int64_t)n;
	return FO_OK;
}

static fo_status run(struct job *j, const char *source, const char *dir, char **paths, size_t n, bool *has,
		     int holdout_every)
{
	int64_t docs, index = 0;
	FO_TRY(survey(j, paths, n, has, &docs));
	if (!docs)
		return fo_fail(FO_EARG, "no text in '%s': %zu files, %lld of them binary, the others empty", source, n,
			       (long long)j->stats.skipped_binary);
	FO_TRY(writer_open(&j->train, dir, "train.shard", j->t));
	FO_TRY(writer_open(&j->val, dir, "val.shard", j->t));
	for (size_t i = 0; i < n; i++) {
		struct fo_map m;
		if (!has[i])
			continue;
		FO_TRY(fo_map_open(&m, paths[i]));
		fo_status st = place_document(j, index++, docs, holdout_every, (const char *)m.data, m.len);
		fo_map_close(&m);
		FO_TRY(st);
	}
	if (!j->val.h.docs || !j->train.h.docs)
		return fo_fail(FO_EARG, "too little text in '%s' to hold any out: %lld bytes, one in %d", source,
			       (long long)j->stats.bytes, holdout_every);
	FO_TRY(writer_finish(&j->train));
	FO_TRY(writer_finish(&j->val));
	struct writer *both[] = { &j->train, &j->val };
	for (int i = 0; i < 2; i++) {
		if (rename(both[i]->temporary, both[i]->path))
			return fo_fail(FO_EIO, "cannot rename '%s': %s", both[i]->temporary, strerror(errno));
		close(both[i]->fd);
		both[i]->fd = -1;
	}
	return fo_fs_sync_dir(dir);
}

fo_status fo_data_prepare(const char *path, const struct fo_tokenizer *t, const char *dir, int holdout_every,
			  fo_progress_fn *progress, void *ctx, struct fo_prepare_stats *stats)
{
	if (holdout_every < 2)
		return fo_fail(FO_EARG, "one in %d documents cannot be held out: at least one in 2", holdout_every);
	struct fo_arena arena = { 0 };
	char **paths;
	size_t n;
	struct job *j = fo_xmalloc(sizeof *j);
	*j = (struct job){ .t = t, .progress = progress, .ctx = ctx, .train = { .fd = -1 }, .val = { .fd = -1 } };
	fo_status st;
	FO_TRY_OR(st, fo_fs_list(&arena, path, MAX_FILES, &paths, &n), free_job);
	FO_TRY_OR(st, fo_fs_mkdirs(dir), free_job);
	st = run(j, path, dir, paths, n, fo_arena_alloc(&arena, n ? n : 1), holdout_every);
	if (st == FO_OK) {
		j->stats.train_docs = j->train.h.docs;
		j->stats.train_tokens = j->train.h.tokens;
		j->stats.val_docs = j->val.h.docs;
		j->stats.val_tokens = j->val.h.tokens;
		*stats = j->stats;
	}
	writer_close(&j->train);
	writer_close(&j->val);
free_job:
	free(j);
	fo_arena_fini(&arena);
	return st;
}
