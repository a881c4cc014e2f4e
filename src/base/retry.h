/* System calls that are repeated when a signal breaks them off before they have done anything (EINTR). Our own handlers
 * restart calls (SA_RESTART), but not every file system does, nor every handler that a library brings. Callers of read
 * have loops of their own, which go on after the bytes that were read. Linux never breaks off rename, mkdir, unlink and
 * stat. */
#ifndef FO_BASE_RETRY_H
#define FO_BASE_RETRY_H

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

/* Defines a function that calls a system call, which returns -1 on failure, until no signal breaks it off. */
#define FO_RETRIED(name, parameters, call)                 \
	static inline int name parameters                  \
	{                                                  \
		int r;                                     \
		while ((r = (call)) < 0 && errno == EINTR) \
			;                                  \
		return r;                                  \
	}
FO_RETRIED(fo_open, (const char *path, int flags, unsigned mode), open(path, flags, mode))
FO_RETRIED(fo_fsync, (int fd), fsync(fd))
FO_RETRIED(fo_fdatasync, (int fd), fdatasync(fd))
FO_RETRIED(fo_ftruncate, (int fd, off_t size), ftruncate(fd, size))
FO_RETRIED(fo_flock, (int fd, int how), flock(fd, how))

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

/* Linux has closed the descriptor when it returns EINTR: a second call would close somebody else's. */
static inline int fo_close(int fd) { return close(fd) && errno != EINTR ? -1 : 0; }

#endif
