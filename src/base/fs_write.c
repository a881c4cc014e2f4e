/* Writing files so that nobody finds half of one, and nothing that lies in the way is harmed. */
#define _GNU_SOURCE /* getrandom, flock */

#include "base/fs.h"
#include "base/retry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

fo_status fo_fs_write_new(const char *path, const void *bytes, size_t len)
{
	int fd = fo_open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return fo_fs_refuse("write", path, errno);
	int error = fo_write_all(fd, bytes, len, NULL);
	if (!error && fo_fsync(fd))
		error = errno;
	if (fo_close(fd) && !error)
		error = errno;
	if (!error)
		return FO_OK;
	unlink(path);
	return fo_fs_refuse("write", path, error);
}

bool fo_fs_is_special(const char *path)
{
	struct stat info;
	return !stat(path, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

/* ---- a file that appears when it is whole ---- */

#define BESIDE_PREFIX "."
#define BESIDE_SUFFIX ".flatout-tmp"
enum {
	RANDOM_DIGITS = 16,
	NAME_KEPT = 200, /* bytes of the target's name: with what is added, below the 255 that file systems allow */
	TRIES = 100      /* each a new random name: the first is free unless somebody guesses 64 bits */
};

static uint64_t random_bits(void)
{
	uint64_t v = 0;
	if (getrandom(&v, sizeof v, GRND_NONBLOCK) == (ssize_t)sizeof v)
		return v;
	/* Names need only differ: O_EXCL keeps them safe. */
	struct timespec now = { 0 };
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)getpid() << 40 ^ (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec ^ (uint64_t)(uintptr_t)&v;
}

/* ".NAME." of a target's temporary names, in memory that the caller frees. */
static char *beside_begin(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t n = strlen(name);
	n = n < NAME_KEPT ? n : NAME_KEPT;
	char *begin = fo_xmalloc(n + 3);
	snprintf(begin, n + 3, BESIDE_PREFIX "%.*s.", (int)n, name);
	return begin;
}

static bool is_beside(const char *name, const char *begin)
{
	size_t n = strlen(begin);
	return !strncmp(name, begin, n) && strspn(name + n, "0123456789abcdef") == RANDOM_DIGITS &&
	       !strcmp(name + n + RANDOM_DIGITS, BESIDE_SUFFIX);
}

/* Removes what a killed process left of the same target: its writer holds a lock for as long as it lives. What is no
 * file of ours (another's, a pipe, a second name of some file) stays. */
static void sweep(const char *dir, const char *begin)
{
	DIR *d = opendir(dir);
	for (const struct dirent *e; d && (e = readdir(d));) {
		struct stat st;
		if (!is_beside(e->d_name, begin))
			continue;
		int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			continue;
		bool ours = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1;
		if (ours && !flock(fd, LOCK_EX | LOCK_NB))
			unlinkat(dirfd(d), e->d_name, 0);
		close(fd);
	}
	if (d)
		closedir(d);
}

/* A new file under a name that nobody has, locked; 0 or an errno value. */
static int open_beside(struct fo_new_file *f, const char *dir, const char *begin)
{
	size_t size = strlen(dir) + 1 + strlen(begin) + RANDOM_DIGITS + sizeof BESIDE_SUFFIX;
	f->beside = fo_xmalloc(size);
	for (int i = 0; i < TRIES; i++) {
		struct stat st;
		snprintf(f->beside, size, "%s/%s%016llx" BESIDE_SUFFIX, dir, begin, (unsigned long long)random_bits());
		f->fd = fo_open(f->beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (f->fd < 0 && errno == EEXIST)
			continue;
		if (f->fd < 0)
			return errno;
		/* A file system without locks is fine: sweep() removes nothing that it cannot lock. */
		fo_flock(f->fd, LOCK_EX);
		if (fstat(f->fd, &st) || st.st_nlink)
			return 0;
		close(f->fd); /* swept between the two calls */
	}
	f->fd = -1;
	return EEXIST;
}

/* now: O_NONBLOCK, or 0 to wait for the reader of a pipe. */
static fo_status begin(struct fo_new_file *f, const char *path, int now)
{
	*f = (struct fo_new_file){ .fd = -1, .path = fo_xstrdup(path) };
	int error;
	if (fo_fs_is_special(path)) {
		f->fd = fo_open(path, O_WRONLY | O_CLOEXEC | now, 0);
		error = f->fd < 0 ? errno : 0;
	} else if (fo_fs_is_dir(path)) {
		error = EISDIR;
	} else {
		char *dir = fo_fs_parent(path), *begin = beside_begin(path);
		sweep(dir, begin);
		error = open_beside(f, dir, begin);
		free(dir);
		free(begin);
	}
	if (!error)
		return FO_OK;
	fo_status st = now && error == ENXIO ? fo_fail(FO_EIO, "cannot write '%s': nobody reads this pipe", path)
					     : fo_fs_refuse("write", path, error);
	free(f->beside);
	free(f->path);
	*f = (struct fo_new_file){ .fd = -1 };
	return st;
}

fo_status fo_fs_new_begin(struct fo_new_file *f, const char *path) { return begin(f, path, 0); }

fo_status fo_fs_new_begin_now(struct fo_new_file *f, const char *path) { return begin(f, path, O_NONBLOCK); }

fo_status fo_fs_new_write(struct fo_new_file *f, const void *bytes, size_t len)
{
	int error = fo_write_all(f->fd, bytes, len, NULL);
	return error ? fo_fs_refuse("write", f->path, error) : FO_OK;
}

fo_status fo_fs_new_end(struct fo_new_file *f, fo_status st, bool durable)
{
	if (!f->path)
		return st;
	int error = 0;
	if (st == FO_OK && f->beside && durable && fo_fsync(f->fd))
		error = errno;
	/* The lock is still held: another writer's sweep() leaves the file. */
	if (st == FO_OK && f->beside && !error && rename(f->beside, f->path))
		error = errno;
	if (f->beside && (error || st != FO_OK))
		unlink(f->beside);
	if (fo_close(f->fd) && !error)
		error = errno;
	if (st == FO_OK && error)
		st = fo_fs_refuse("write", f->path, error);
	if (st == FO_OK && f->beside && durable) {
		char *dir = fo_fs_parent(f->path);
		st = fo_fs_sync_dir(dir);
		free(dir);
	}
	free(f->beside);
	free(f->path);
	*f = (struct fo_new_file){ .fd = -1 };
	return st;
}

fo_status fo_fs_write_atomic(const char *path, const void *bytes, size_t len)
{
	struct fo_new_file f;
	FO_TRY(fo_fs_new_begin(&f, path));
	return fo_fs_new_end(&f, fo_fs_new_write(&f, bytes, len), true);
}
