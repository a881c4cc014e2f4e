/* Memory that loaders of several processes of one host use together.
 *
 * A file without a name (memfd_create(2)) holds numbered segments of equal size, mostly holes: segment n is made by
 * the loader that asks for it first, under a lock of the open file, and only read from then on. The others open the
 * file through /proc/PID/fd. So nothing is left behind however the processes end: locks and memory go with the last
 * of them. A segment is punched out when no user can ask for it without making it again. */
#define _GNU_SOURCE /* memfd_create, F_OFD_SETLK, fallocate */
#include "data/data_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { USERS_MOST = 4096 };
#define MAGIC "FLATORDR"
/* A loader looks again after so long while another one makes a segment, which takes 0.1 s per million documents. */
#define NAP_NS 2000000

struct header {
	char magic[8];
	uint64_t token; /* tells this file from any other */
	int64_t bytes;  /* of a segment's contents */
	int64_t users, punched;
	int64_t low[USERS_MOST]; /* by user: the least number that it has; under the lock */
};
/* Stands before a segment's contents. */
struct ready {
	_Atomic uint64_t is; /* 1: made */
	char room[56];
};

struct fo_order_share {
	int fd, user;
	struct header *h;
	size_t at, stride; /* of segment 0; from one to the next */
	struct {
		int64_t number; /* -1: none */
		void *map;
	} have[2]; /* by the number's parity */
	atomic_bool quit;
};

static size_t whole_pages(size_t n)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	return (n + page - 1) / page * page;
}

/* ---- making, joining ---- */

static struct fo_order_share *closed(struct fo_order_share *s)
{
	fo_order_share_close(s);
	return NULL;
}

static struct fo_order_share *opened(int fd, int user)
{
	struct fo_order_share *s = fo_xmalloc(sizeof *s);
	s->fd = fd;
	s->user = user;
	s->have[0].number = s->have[1].number = -1;
	s->at = whole_pages(sizeof *s->h);
	void *h = mmap(NULL, s->at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	s->h = h == MAP_FAILED ? NULL : h;
	return s->h ? s : closed(s);
}

static void lay_out(struct fo_order_share *s) { s->stride = whole_pages(sizeof(struct ready) + (size_t)s->h->bytes); }

struct fo_order_share *fo_order_share_make(int64_t bytes, int users, struct fo_order_place *place)
{
	struct rlimit most;
	*place = (struct fo_order_place){ .fd = -1 };
	/* The file's length is that of all epochs there can be: holes take no memory, a limit would end the process. */
	if (users < 1 || users > USERS_MOST || getrlimit(RLIMIT_FSIZE, &most) || most.rlim_cur != RLIM_INFINITY)
		return NULL;
	const int fd = memfd_create("flatout order of documents", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, INT64_MAX / 4096 * 4096)) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	struct fo_order_share *s = opened(fd, 0);
	if (!s)
		return NULL;
	s->h->token = (uint64_t)fo_now_ns() ^ (uint64_t)getpid() << 40;
	s->h->bytes = bytes;
	s->h->users = users;
	memcpy(s->h->magic, MAGIC, sizeof s->h->magic);
	lay_out(s);
	*place = (struct fo_order_place){ .pid = getpid(), .fd = fd, .token = s->h->token };
	return s;
}

struct fo_order_share *fo_order_share_join(int64_t bytes, int user, const struct fo_order_place *place)
{
	char path[64];
	struct stat st;
	if (place->fd < 0)
		return NULL;
	snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)place->pid, (long long)place->fd);
	const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	/* With another namespace of processes that number is anybody's. */
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct header)) {
		close(fd);
		return NULL;
	}
	struct fo_order_share *s = opened(fd, user);
	if (!s)
		return NULL;
	if (memcmp(s->h->magic, MAGIC, sizeof s->h->magic) || s->h->token != place->token || user < 0 ||
	    user >= s->h->users || s->h->bytes != bytes)
		return closed(s);
	lay_out(s);
	return s;
}

void fo_order_share_quit(struct fo_order_share *s)
{
	if (s)
		atomic_store(&s->quit, true);
}

void fo_order_share_close(struct fo_order_share *s)
{
	if (!s)
		return;
	for (int i = 0; i < 2; i++)
		if (s->have[i].map)
			munmap(s->have[i].map, s->stride);
	if (s->h)
		munmap(s->h, s->at);
	close(s->fd);
	free(s);
}

int64_t fo_order_share_bytes(const struct fo_order_share *s)
{
	struct stat st;
	return fstat(s->fd, &st) ? -1 : (int64_t)st.st_blocks * 512;
}

/* ---- segments ---- */

static fo_status lack(const struct fo_order_share *s, const char *why)
{
	char size[32];
	return fo_fail(FO_ENOMEM, "no memory for the order of documents (%s, once per host): %s",
		       fo_str_bytes(size, (double)s->stride), why);
}

static fo_status lock(struct fo_order_share *s, short how)
{
	struct flock l = { .l_type = how, .l_whence = SEEK_SET, .l_len = 1 };
	while (fcntl(s->fd, F_OFD_SETLK, &l)) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return fo_fail(FO_EIO, "cannot lock the order of documents: %s", strerror(errno));
		if (atomic_load(&s->quit))
			return fo_fail(FO_EINTERRUPT, "asked to stop before the order of documents was there");
		nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
	}
	return FO_OK;
}

/* Gives memory back below what all users have. */
static void punch(struct fo_order_share *s)
{
	int64_t low = INT64_MAX;
	for (int64_t i = 0; i < s->h->users; i++)
		low = s->h->low[i] < low ? s->h->low[i] : low;
	if (low <= s->h->punched)
		return;
	if (!fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		       (off_t)(s->at + (size_t)s->h->punched * s->stride),
		       (off_t)((size_t)(low - s->h->punched) * s->stride)))
		s->h->punched = low;
}

/* Under the lock. The pages are there before they are written to: else a full memory would be a signal. */
static fo_status make(struct fo_order_share *s, off_t offset, order_share_fn *fn, void *ctx)
{
	punch(s);
	if (fallocate(s->fd, 0, offset, (off_t)s->stride))
		return lack(s, strerror(errno));
	struct ready *r = mmap(NULL, s->stride, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, offset);
	if (r == MAP_FAILED)
		return lack(s, strerror(errno));
	fo_status st = fn(ctx, r + 1);
	if (st == FO_OK)
		atomic_store_explicit(&r->is, 1, memory_order_release);
	munmap(r, s->stride);
	return st;
}

static void *map_ready(struct fo_order_share *s, off_t offset)
{
	struct ready *r = mmap(NULL, s->stride, PROT_READ, MAP_SHARED, s->fd, offset);
	if (r == MAP_FAILED)
		return NULL;
	if (atomic_load_explicit(&r->is, memory_order_acquire) == 1)
		return r;
	munmap(r, s->stride);
	return NULL;
}

/* Under the lock. */
static fo_status get(struct fo_order_share *s, int64_t number, off_t offset, order_share_fn *fn, void *ctx)
{
	const int slot = number & 1;
	const int64_t other = s->have[!slot].number;
	s->h->low[s->user] = other >= 0 && other < number ? other : number;
	void *map = map_ready(s, offset);
	if (!map) {
		FO_TRY(make(s, offset, fn, ctx));
		map = map_ready(s, offset);
	}
	if (!map)
		return lack(s, strerror(errno));
	s->have[slot].map = map;
	s->have[slot].number = number;
	return FO_OK;
}

fo_status order_share_get(struct fo_order_share *s, int64_t number, order_share_fn *fn, void *ctx, const void **out)
{
	const int slot = number & 1;
	size_t offset;
	fo_status st = FO_OK;
	if (s->have[slot].number != number) {
		if (__builtin_mul_overflow((size_t)number, s->stride, &offset) ||
		    offset > (size_t)INT64_MAX / 2 - s->at - s->stride)
			return lack(s, "the file that is shared has no room for so many epochs");
		if (s->have[slot].map)
			munmap(s->have[slot].map, s->stride);
		s->have[slot].map = NULL;
		s->have[slot].number = -1;
		FO_TRY(lock(s, F_WRLCK));
		st = get(s, number, (off_t)(s->at + offset), fn, ctx);
		(void)lock(s, F_UNLCK);
	}
	if (st == FO_OK)
		*out = (const struct ready *)s->have[slot].map + 1;
	return st;
}
