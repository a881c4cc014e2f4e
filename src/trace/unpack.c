#include "trace/unpack.h"

#include "base/fs.h"
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum packing { PLAIN, GZIP, ZSTD };

enum {
	IN_BYTES = 256 << 10,  /* read from a packed file at once */
	BLOCK_BYTES = 1 << 20, /* unpacked at once: a few of them stay in the caches of two cores */
	BLOCKS = 4,            /* between the two threads */
};

struct block {
	char *data;
	size_t n;
};

struct fo_unpack {
	int fd;
	enum packing packing;
	char *path;
	unsigned char *in;
	size_t in_at, in_len;
	bool broken;       /* written by the thread before it ends, read after the end was seen */
	bool frame_open;   /* Zstandard: inside a frame */
	uint64_t produced; /* bytes unpacked */
	/* The ring: the thread fills block[tail], the caller takes block[head]. */
	struct block block[BLOCKS];
	size_t head, count, taken; /* taken: bytes of block[head] */
	bool ended, stop, started;
	struct fo_err err;
	pthread_mutex_t lock;
	pthread_cond_t filled, freed;
	pthread_t thread;
	z_stream gz;
	ZSTD_DStream *zst;
};

/* ---- input ---- */

static fo_status read_fd(struct fo_unpack *u, void *to, size_t room, size_t *n)
{
	ssize_t got;
	do
		got = read(u->fd, to, room);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return fo_fs_refuse("read", u->path, errno);
	*n = (size_t)got;
	return FO_OK;
}

/* More packed bytes; at the end in_len stays 0. */
static fo_status more_in(struct fo_unpack *u)
{
	u->in_at = u->in_len = 0;
	return read_fd(u, u->in, IN_BYTES, &u->in_len);
}

/* ---- gzip ---- */

static fo_status fill_gzip(struct fo_unpack *u, struct block *b, bool *end)
{
	u->gz.next_out = (unsigned char *)b->data;
	u->gz.avail_out = BLOCK_BYTES;
	while (u->gz.avail_out && !*end) {
		if (u->in_at == u->in_len)
			FO_TRY(more_in(u));
		if (!u->in_len) { /* the file ends inside a member: between two, *end is set below */
			*end = u->broken = true;
			break;
		}
		u->gz.next_in = u->in + u->in_at;
		u->gz.avail_in = (unsigned)(u->in_len - u->in_at);
		int r = inflate(&u->gz, Z_NO_FLUSH);
		u->in_at = u->in_len - u->gz.avail_in;
		if (r == Z_STREAM_END) { /* another member may follow; what else does is ignored, as gzip does */
			if (u->in_at == u->in_len)
				FO_TRY(more_in(u));
			if (!u->in_len || u->in[u->in_at] != 0x1f || inflateReset(&u->gz) != Z_OK)
				*end = true;
		} else if (r != Z_OK && r != Z_BUF_ERROR) {
			/* The bytes before the damage are there already. */
			if (!u->produced && u->gz.avail_out == BLOCK_BYTES)
				return fo_fail(FO_EFORMAT, "cannot unpack '%s': %s", u->path,
					       u->gz.msg ? u->gz.msg : "bad gzip data");
			*end = u->broken = true;
		}
	}
	b->n = BLOCK_BYTES - u->gz.avail_out;
	u->produced += b->n;
	return FO_OK;
}

/* ---- Zstandard ---- */

static fo_status fill_zstd(struct fo_unpack *u, struct block *b, bool *end)
{
	ZSTD_outBuffer out = { b->data, BLOCK_BYTES, 0 };
	while (out.pos < out.size && !*end) {
		if (u->in_at == u->in_len)
			FO_TRY(more_in(u));
		ZSTD_inBuffer in = { u->in, u->in_len, u->in_at };
		size_t before = out.pos, left = ZSTD_decompressStream(u->zst, &out, &in);
		u->in_at = in.pos;
		if (ZSTD_isError(left)) {
			if (!u->produced && !out.pos)
				return fo_fail(FO_EFORMAT, "cannot unpack '%s': %s", u->path, ZSTD_getErrorName(left));
			*end = u->broken = true;
		} else if (!u->in_len && out.pos == before) { /* nothing more goes in, nothing more comes out */
			*end = true;
			u->broken = u->frame_open;
		} else {
			u->frame_open = left != 0;
		}
	}
	b->n = out.pos;
	u->produced += out.pos;
	return FO_OK;
}

/* ---- the second thread ---- */

static void *unpack_all(void *arg)
{
	struct fo_unpack *u = arg;
	fo_status st = FO_OK;
	bool end = false;
	while (!end && st == FO_OK) {
		pthread_mutex_lock(&u->lock);
		while (u->count == BLOCKS && !u->stop)
			pthread_cond_wait(&u->freed, &u->lock);
		struct block *b = &u->block[(u->head + u->count) % BLOCKS];
		bool stop = u->stop;
		pthread_mutex_unlock(&u->lock);
		if (stop)
			break;
		b->n = 0;
		st = u->packing == GZIP ? fill_gzip(u, b, &end) : fill_zstd(u, b, &end);
		pthread_mutex_lock(&u->lock);
		if (st == FO_OK && b->n)
			u->count++;
		if (st != FO_OK)
			fo_err_save(&u->err, st);
		pthread_cond_signal(&u->filled);
		pthread_mutex_unlock(&u->lock);
	}
	pthread_mutex_lock(&u->lock);
	u->ended = true;
	pthread_cond_signal(&u->filled);
	pthread_mutex_unlock(&u->lock);
	return NULL;
}

static fo_status start(struct fo_unpack *u)
{
	for (int i = 0; i < BLOCKS; i++)
		u->block[i].data = fo_xrealloc(NULL, BLOCK_BYTES);
	if (u->packing == GZIP && inflateInit2(&u->gz, 15 + 16) != Z_OK) /* the largest window, a gzip header */
		return fo_fail(FO_ENOMEM, "cannot unpack '%s': zlib cannot start", u->path);
	if (u->packing == ZSTD) {
		u->zst = ZSTD_createDStream();
		if (!u->zst)
			return fo_fail(FO_ENOMEM, "cannot unpack '%s': zstd cannot start", u->path);
		/* Windows of up to 128 MiB (the library's default limit; zstd --ultra --long=27) are unpacked. */
		ZSTD_initDStream(u->zst);
	}
	int error = pthread_create(&u->thread, NULL, unpack_all, u);
	if (error)
		return fo_fs_refuse("start a thread to unpack", u->path, error);
	u->started = true;
	return FO_OK;
}

/* ---- the caller's side ---- */

fo_status fo_unpack_open(struct fo_unpack **out, const char *path)
{
	struct fo_unpack *u = fo_xmalloc(sizeof(*u));
	u->fd = -1;
	u->path = fo_xstrdup(path);
	pthread_mutex_init(&u->lock, NULL);
	pthread_cond_init(&u->filled, NULL);
	pthread_cond_init(&u->freed, NULL);
	u->in = fo_xrealloc(NULL, IN_BYTES);
	fo_status st;
	FO_TRY_OR(st, fo_fs_open_regular(path, &u->fd), close);
	FO_TRY_OR(st, more_in(u), close);
	if (u->in_len >= 2 && u->in[0] == 0x1f && u->in[1] == 0x8b)
		u->packing = GZIP;
	else if (u->in_len >= 4 && !memcmp(u->in, "\x28\xb5\x2f\xfd", 4))
		u->packing = ZSTD;
	if (u->packing != PLAIN)
		FO_TRY_OR(st, start(u), close);
	*out = u;
	return FO_OK;
close:
	fo_unpack_close(u);
	return st;
}

static fo_status read_plain(struct fo_unpack *u, char *to, size_t room, size_t *n)
{
	if (u->in_at == u->in_len)
		return read_fd(u, to, room, n);
	/* First the bytes that were read to see what the file is. */
	*n = u->in_len - u->in_at < room ? u->in_len - u->in_at : room;
	memcpy(to, u->in + u->in_at, *n);
	u->in_at += *n;
	return FO_OK;
}

fo_status fo_unpack_read(struct fo_unpack *u, char *to, size_t room, size_t *n)
{
	*n = 0;
	if (u->packing == PLAIN)
		return read_plain(u, to, room, n);
	pthread_mutex_lock(&u->lock);
	while (!u->count && !u->ended)
		pthread_cond_wait(&u->filled, &u->lock);
	bool any = u->count;
	pthread_mutex_unlock(&u->lock);
	if (!any)
		return u->err.st == FO_OK ? FO_OK : fo_err_raise(&u->err);
	struct block *b = &u->block[u->head];
	*n = b->n - u->taken < room ? b->n - u->taken : room;
	memcpy(to, b->data + u->taken, *n);
	u->taken += *n;
	if (u->taken == b->n) {
		pthread_mutex_lock(&u->lock);
		u->taken = 0;
		u->head = (u->head + 1) % BLOCKS;
		u->count--;
		pthread_cond_signal(&u->freed);
		pthread_mutex_unlock(&u->lock);
	}
	return FO_OK;
}

bool fo_unpack_broken(const struct fo_unpack *u) { return u->broken; }

void fo_unpack_close(struct fo_unpack *u)
{
	if (!u)
		return;
	if (u->started) {
		pthread_mutex_lock(&u->lock);
		u->stop = true;
		pthread_cond_signal(&u->freed);
		pthread_mutex_unlock(&u->lock);
		pthread_join(u->thread, NULL);
	}
	if (u->packing == GZIP)
		inflateEnd(&u->gz);
	ZSTD_freeDStream(u->zst);
	for (int i = 0; i < BLOCKS; i++)
		free(u->block[i].data);
	if (u->fd >= 0)
		close(u->fd);
	pthread_cond_destroy(&u->filled);
	pthread_cond_destroy(&u->freed);
	pthread_mutex_destroy(&u->lock);
	free(u->in);
	free(u->path);
	free(u);
}
