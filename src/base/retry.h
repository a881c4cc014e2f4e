/* System calls that a signal may break off before they have done anything (EINTR), taken up again. Handlers of our own
 * restart calls (SA_RESTART), but not every file system does, nor every handler that a library brings. read stands in
 * loops of its own, which go on behind what was read. rename, mkdir, unlink and stat are never broken off on Linux. */
#ifndef FO_BASE_RETRY_H
#define FO_BASE_RETRY_H

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

static inline int fo_open(const char *path, int flags, unsigned mode)
{
	int fd;
	while ((fd = open(path, flags, mode)) < 0 && errno == EINTR)
		;
	return fd;
}

static inline int fo_fsync(int fd)
{
	int r;
	while ((r = fsync(fd)) && errno == EINTR)
		;
	return r;
}

static inline int fo_fdatasync(int fd)
{
	int r;
	while ((r = fdatasync(fd)) && errno == EINTR)
		;
	return r;
}

static inline int fo_ftruncate(int fd, off_t size)
{
	int r;
	while ((r = ftruncate(fd, size)) && errno == EINTR)
		;
	return r;
}

static inline int fo_flock(int fd, int how)
{
	int r;
	while ((r = flock(fd, how)) && errno == EINTR)
		;
	return r;
}

/* 0 when all is written, else an errno value. done: bytes that were written; may be NULL. */
static inline int fo_write_all(int fd, const void *bytes, size_t len, size_t *done)
{
	size_t at = 0;
	int error = 0;
	while (at < len && !error) {
		ssize_t n = write(fd, (const char *)bytes + at, len - at);
		if (n > 0)
			at += (size_t)n;
		else if (n == 0 || errno != EINTR)
			error = n < 0 ? errno : ENOSPC; /* nothing written and no reason: a device that is full */
	}
	if (done)
		*done = at;
	return error;
}

/* Linux has closed the descriptor when it says EINTR: a second time would close somebody else's. */
static inline int fo_close(int fd) { return close(fd) && errno != EINTR ? -1 : 0; }

#endif
