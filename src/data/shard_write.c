/* Writing a shard and the list of its sources. Nothing is held in memory but buffers: offsets and sources lie in files
 * of their own until the end. */
#include "data/prepare_int.h"

#include "base/fs.h"
#include "base/retry.h"

#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static fo_status cannot_write(const struct sink *k, int error) { return fo_fs_refuse("write", k->path, error); }

static fo_status write_at(const struct sink *k, const void *bytes, size_t n, int64_t at)
{
	const unsigned char *p = bytes;
	while (n) {
		ssize_t done = pwrite(k->fd, p, n, at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return cannot_write(k, done < 0 ? errno : ENOSPC);
		p += done;
		n -= (size_t)done;
		at += done;
	}
	return FO_OK;
}

static fo_status sink_flush(struct sink *k)
{
	size_t n = k->used;
	FO_TRY(write_at(k, k->buffer, n, k->size - (int64_t)n));
	k->used = 0;
	return FO_OK;
}

static fo_status sink_put(struct sink *k, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;
	while (n) {
		size_t room = sizeof k->buffer - k->used, now = n < room ? n : room;
		memcpy(k->buffer + k->used, p, now);
		k->used += now;
		k->size += (int64_t)now;
		p += now;
		n -= now;
		if (k->used == sizeof k->buffer)
			FO_TRY(sink_flush(k));
	}
	return FO_OK;
}

/* The file has `size` bytes from now on; it had at least as many. */
static fo_status sink_cut(struct sink *k, int64_t size)
{
	FO_TRY(sink_flush(k));
	if (fo_ftruncate(k->fd, size))
		return cannot_write(k, errno);
	k->size = size;
	return FO_OK;
}

static fo_status sink_sync(struct sink *k)
{
	FO_TRY(sink_flush(k));
	return fo_fdatasync(k->fd) ? cannot_write(k, errno) : FO_OK;
}

static fo_status sink_open(struct sink *k, const char *dir, const char *name, const char *kind, bool anew)
{
	struct stat s;
	if (snprintf(k->path, sizeof k->path, "%s/%s.%s.tmp", dir, name, kind) >= (int)sizeof k->path)
		return fo_fail(FO_EARG, "the path '%s/%s' is too long", dir, name);
	if (anew)
		unlink(k->path); /* not cut: somebody may still read the old one */
	k->fd = fo_open(k->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	k->open = k->fd >= 0;
	if (!k->open || fstat(k->fd, &s))
		return fo_fs_refuse("create", k->path, errno);
	k->size = s.st_size;
	return FO_OK;
}

static fo_status sink_go_on(struct sink *k, int64_t size)
{
	if (k->size < size)
		return fo_fail(FO_EFORMAT, "'%s' has %lld bytes, %lld were written", k->path, (long long)k->size,
			       (long long)size);
	return sink_cut(k, size);
}

/* ---- the three files ---- */

static const char *const file_kind[WRITER_FILES] = { "shard", "docs", "src" };

/* Bytes of a file when so much was written. */
static int64_t file_end(const struct shard_writer *w, int file, const struct shard_mark *m)
{
	const int64_t end[] = {
		[IDS] = (int64_t)sizeof(struct shard_header) + m->tokens * w->id_bytes,
		[OFFSETS] = m->docs * (int64_t)sizeof(int64_t),
		[SOURCES] = (int64_t)(sizeof(struct sources_header) + (size_t)m->docs * sizeof(struct sources_record)),
	};
	return end[file];
}

fo_status shard_writer_open(struct shard_writer *w, const char *dir, const char *name, const struct fo_tokenizer *t,
			    const struct shard_mark *mark)
{
	static const unsigned char room[64];
	w->vocab = t->vocab;
	w->id_bytes = t->vocab <= 65536 ? 2 : 4;
	w->tokenizer_checksum = t->checksum;
	for (int i = 0; i < WRITER_FILES; i++)
		FO_TRY(sink_open(&w->file[i], dir, name, file_kind[i], !mark));
	if (!mark) {
		FO_TRY(sink_put(&w->file[IDS], room, sizeof(struct shard_header)));
		return sink_put(&w->file[SOURCES], room, sizeof(struct sources_header));
	}
	for (int i = 0; i < WRITER_FILES; i++)
		FO_TRY(sink_go_on(&w->file[i], file_end(w, i, mark)));
	w->mark = *mark;
	return FO_OK;
}

fo_status shard_writer_document(struct shard_writer *w, int64_t file, int64_t line)
{
	struct sources_record r = { file, line };
	w->mark.last_start = w->mark.tokens;
	w->mark.docs++;
	FO_TRY(sink_put(&w->file[OFFSETS], &w->mark.tokens, sizeof w->mark.tokens));
	return sink_put(&w->file[SOURCES], &r, sizeof r);
}

fo_status shard_writer_ids(struct shard_writer *w, const int32_t *ids, size_t n)
{
	w->mark.tokens += (int64_t)n;
	if (w->id_bytes == 4)
		return sink_put(&w->file[IDS], ids, n * sizeof *ids);
	uint16_t narrow[4096];
	for (size_t i = 0, k; i < n; i += k) {
		for (k = 0; k < sizeof narrow / sizeof *narrow && i + k < n; k++)
			narrow[k] = (uint16_t)ids[i + k];
		FO_TRY(sink_put(&w->file[IDS], narrow, k * sizeof *narrow));
	}
	return FO_OK;
}

fo_status shard_writer_drop(struct shard_writer *w)
{
	w->mark = (struct shard_mark){ w->mark.last_start, w->mark.docs - 1, 0 };
	for (int i = 0; i < WRITER_FILES; i++) {
		FO_TRY(sink_flush(&w->file[i]));
		w->file[i].size = file_end(w, i, &w->mark);
	}
	return FO_OK;
}

fo_status shard_writer_trim(struct shard_writer *w)
{
	for (int i = 0; i < WRITER_FILES; i++)
		FO_TRY(sink_cut(&w->file[i], w->file[i].size));
	return FO_OK;
}

fo_status shard_writer_sync(struct shard_writer *w)
{
	for (int i = 0; i < WRITER_FILES; i++)
		FO_TRY(sink_sync(&w->file[i]));
	return FO_OK;
}

/* ---- the end ---- */

/* The header with its checksum over the finished file; `at`: where the checksum stands in the header. */
static fo_status seal(struct sink *k, void *header, size_t size, size_t at, uint64_t *sum)
{
	struct fo_map m;
	FO_TRY(sink_flush(k));
	FO_TRY(write_at(k, header, size, 0));
	FO_TRY(fo_map_open(&m, k->path));
	*sum = data_file_checksum(m.data, m.len, size, at);
	fo_map_close(&m);
	memcpy((char *)header + at, sum, sizeof *sum);
	FO_TRY(write_at(k, header, size, 0));
	return fo_fsync(k->fd) ? cannot_write(k, errno) : FO_OK;
}

static fo_status append_offsets(struct shard_writer *w)
{
	static const unsigned char zeros[8];
	unsigned char block[1 << 14];
	FO_TRY(sink_flush(&w->file[OFFSETS]));
	FO_TRY(sink_put(&w->file[IDS], zeros,
			shard_ids_bytes(w->mark.tokens, w->id_bytes) - (size_t)w->mark.tokens * w->id_bytes));
	for (int64_t at = 0; at < w->file[OFFSETS].size;) {
		ssize_t n = pread(w->file[OFFSETS].fd, block, sizeof block, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fo_fs_refuse("read", w->file[OFFSETS].path, n ? errno : ENODATA);
		FO_TRY(sink_put(&w->file[IDS], block, (size_t)n));
		at += n;
	}
	return sink_put(&w->file[IDS], &w->mark.tokens, sizeof w->mark.tokens);
}

fo_status shard_writer_finish(struct shard_writer *w, int64_t files, const char *(*names)(const void *, int64_t),
			      const void *ctx)
{
	struct shard_header h = { .version = SHARD_VERSION,
				  .id_bytes = w->id_bytes,
				  .tokens = w->mark.tokens,
				  .docs = w->mark.docs,
				  .vocab = w->vocab,
				  .tokenizer_checksum = w->tokenizer_checksum };
	struct sources_header s = { .version = SOURCES_VERSION, .docs = w->mark.docs, .files = files };
	uint64_t sum, unused;
	memcpy(h.magic, SHARD_MAGIC, sizeof h.magic);
	memcpy(s.magic, SOURCES_MAGIC, sizeof s.magic);
	FO_TRY(append_offsets(w));
	FO_TRY(seal(&w->file[IDS], &h, sizeof h, offsetof(struct shard_header, checksum), &sum));
	for (int64_t i = 0; i < files; i++) {
		FO_TRY(sink_put(&w->file[SOURCES], &s.names_bytes, sizeof s.names_bytes));
		s.names_bytes += (int64_t)strlen(names(ctx, i)) + 1;
	}
	for (int64_t i = 0; i < files; i++)
		FO_TRY(sink_put(&w->file[SOURCES], names(ctx, i), strlen(names(ctx, i)) + 1));
	s.shard_checksum = sum;
	return seal(&w->file[SOURCES], &s, sizeof s, offsetof(struct sources_header, checksum), &unused);
}

void shard_writer_close(struct shard_writer *w)
{
	for (int i = 0; i < WRITER_FILES; i++)
		if (w->file[i].open)
			close(w->file[i].fd);
}

static fo_status publish_one(const char *dir, const char *name, const char *as, const char *kind)
{
	char from[4096 + 16], to[4096];
	snprintf(to, sizeof to, "%s/%s.%s", dir, as, kind);
	snprintf(from, sizeof from, "%s/%s.%s.tmp", dir, name, kind);
	if (fo_fs_exists(from) && rename(from, to))
		return fo_fs_refuse("rename", from, errno);
	return FO_OK;
}

fo_status shard_writer_publish(const char *dir, const char *name, const char *as)
{
	FO_TRY(publish_one(dir, name, as, "shard"));
	FO_TRY(publish_one(dir, name, as, "src"));
	shard_writer_remove(dir, name);
	return FO_OK;
}

void shard_writer_remove(const char *dir, const char *name)
{
	for (int i = 0; i < WRITER_FILES; i++) {
		char path[4096];
		if (snprintf(path, sizeof path, "%s/%s.%s.tmp", dir, name, file_kind[i]) < (int)sizeof path)
			unlink(path);
	}
}

/* ---- the journal ---- */

#define JOURNAL_MAGIC "FLATJRN1"

static uint64_t journal_sum(const struct journal *j)
{
	size_t from = offsetof(struct journal, fingerprint);
	return XXH3_64bits((const char *)j + from, sizeof *j - from);
}

static fo_status journal_path(char *buf, size_t size, const char *dir)
{
	if (snprintf(buf, size, "%s/prepare.journal", dir) >= (int)size)
		return fo_fail(FO_EARG, "the path '%s' is too long", dir);
	return FO_OK;
}

fo_status journal_write(struct journal *j, const char *dir)
{
	char path[4096];
	FO_TRY(journal_path(path, sizeof path, dir));
	memcpy(j->magic, JOURNAL_MAGIC, sizeof j->magic);
	j->checksum = journal_sum(j);
	return fo_fs_write_atomic(path, j, sizeof *j);
}

fo_status journal_read(struct journal *j, const char *dir, bool *found)
{
	char path[4096], *text;
	struct fo_arena a = { 0 };
	size_t len;
	*found = false;
	FO_TRY(journal_path(path, sizeof path, dir));
	if (!fo_fs_exists(path))
		return FO_OK;
	fo_status st = fo_fs_read(&a, path, (size_t)1 << 16, &text, &len);
	if (st == FO_OK && len == sizeof *j) {
		memcpy(j, text, len);
		*found = !memcmp(j->magic, JOURNAL_MAGIC, sizeof j->magic) && j->checksum == journal_sum(j);
	}
	fo_arena_fini(&a);
	return st;
}

void journal_remove(const char *dir)
{
	char path[4096];
	if (journal_path(path, sizeof path, dir) == FO_OK)
		unlink(path);
}
