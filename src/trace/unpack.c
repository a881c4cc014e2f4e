#include "trace/unpack.h"

#include "base/count.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/packed.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

enum {
	BLOCK_BYTES = 1 << 20, /* unpacked at once: a few of them stay in the caches of two cores */
	BLOCKS = 4,            /* between the two threads */
};

struct block {
	char *data;
	size_t n;
};

struct fo_unpack {
	struct fo_packed *file;
	bool broken; /* written by the thread before it ends, read after the end was seen */
	/* The ring: the thread fills block[tail], the caller takes block[head]. */
	struct block block[BLOCKS];
	size_t head, count, taken; /* taken: bytes of block[head] */
	bool ended, stop, started;
	struct fo_err err;
	pthread_mutex_t lock;
	pthread_cond_t filled, freed;
	pthread_t thread;
};

/* ---- the second thread ---- */

static void *unpack_all(void *arg)
{
	struct fo_unpack *u = arg;
	bool any = false;
	pthread_mutex_lock(&u->lock);
	while (!u->ended) {
		while (u->count == BLOCKS && !u->stop)
			pthread_cond_wait(&u->freed, &u->lock);
		if (u->stop)
			break;
		struct block *b = &u->block[(u->head + u->count) % BLOCKS];
		pthread_mutex_unlock(&u->lock);
		fo_status st = fo_packed_read(u->file, b->data, BLOCK_BYTES, &b->n);
		pthread_mutex_lock(&u->lock);
		/* What came before damage counts; bytes after a whole member are ignored, as gzip does. */
		any |= b->n > 0;
		if (st != FO_OK && !any)
			fo_err_save(&u->err, st);
		u->broken = st != FO_OK && fo_packed_inside(u->file);
		u->ended = st != FO_OK || b->n < BLOCK_BYTES;
		u->count += b->n > 0;
		pthread_cond_signal(&u->filled);
	}
	u->ended = true;
	pthread_mutex_unlock(&u->lock);
	return NULL;
}

/* ---- the caller's side ---- */

fo_status fo_unpack_open(struct fo_unpack **out, const char *path)
{
	int fd;
	FO_TRY(fo_fs_open_regular(path, &fd));
	struct fo_unpack *u = fo_xmalloc(sizeof(*u));
	pthread_mutex_init(&u->lock, NULL);
	pthread_cond_init(&u->filled, NULL);
	pthread_cond_init(&u->freed, NULL);
	fo_status st = fo_packed_open(&u->file, fd, path, 0);
	if (st == FO_OK && fo_packed_is(u->file)) {
		for (int i = 0; i < BLOCKS; i++)
			u->block[i].data = fo_xrealloc(NULL, BLOCK_BYTES);
		st = fo_thread_start(&u->thread, unpack_all, u, "the thread that unpacks");
		u->started = st == FO_OK;
	}
	if (st == FO_OK)
		*out = u;
	else
		fo_unpack_close(u);
	return st;
}

fo_status fo_unpack_read(struct fo_unpack *u, char *to, size_t room, size_t *n)
{
	*n = 0;
	if (!u->started)
		return fo_packed_read(u->file, to, room, n);
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

fo_status fo_unpack_head(const char *path, size_t most, char **text, size_t *n)
{
	int fd;
	struct fo_packed *file;
	size_t cap = 0, got = BLOCK_BYTES;
	fo_status st = FO_OK;
	*text = NULL;
	*n = 0;
	FO_TRY(fo_fs_open_regular(path, &fd));
	FO_TRY(fo_packed_open(&file, fd, path, 0));
	while (st == FO_OK && got == BLOCK_BYTES && *n < most) {
		fo_array_room(text, &cap, *n + BLOCK_BYTES, 1);
		st = fo_packed_read(file, *text + *n, (size_t)fo_min((int64_t)(most - *n), BLOCK_BYTES), &got);
		*n += got;
	}
	/* Bytes after a whole member are ignored, as gzip does. */
	bool damaged = st != FO_OK && (fo_packed_inside(file) || !*n);
	fo_packed_close(file);
	if (!damaged) {
		fo_err_clear();
		(*text)[*n] = '\0';
		return FO_OK;
	}
	free(*text);
	return st;
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
	fo_packed_close(u->file);
	for (int i = 0; i < BLOCKS; i++)
		free(u->block[i].data);
	pthread_cond_destroy(&u->filled);
	pthread_cond_destroy(&u->freed);
	pthread_mutex_destroy(&u->lock);
	free(u);
}
