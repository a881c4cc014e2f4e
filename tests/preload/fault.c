/* A library for LD_PRELOAD: makes the file system fail, or ends the process, at a chosen operation.
 *
 * Counted are the calls that change files whose path contains $FAULT_UNDER: open for writing, write, ftruncate, fsync,
 * fdatasync, rename, mkdir, unlink, rmdir. Which one fails is chosen by number: a test that runs through all numbers
 * has stopped the program at every point at which the disk's state can differ.
 *
 *   FAULT_UNDER   part of the path; without it nothing happens
 *   FAULT_AT      number of the operation, from 1; 0: none
 *   FAULT_HOW     kill      SIGKILL before it; of a write one half is done
 *                 power     SIGKILL before it, and what was not flushed is gone: files have the size of their last
 * fsync powerless as power, and renames whose folder was not flushed have not happened either full      it and all
 * later writes, files and folders: ENOSPC, after half of the write once      as full, but only it and the next one
 *                 readonly  it and all later ones: EROFS
 *                 io        it and all later ones: EIO
 *                 signals   every other open, write, ftruncate and flush, from it on: EINTR, as if a signal had come; a
 * write does a part of its bytes each other time it is let through FAULT_FREE    bytes that statvfs says are free
 *   FAULT_RANK    only the process that mpirun numbers so is struck
 *   FAULT_COUNT   file that gets the number of operations when the process ends
 *
 * System calls are made directly, because a sanitizer takes over the names. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH = 512, FILES = 256, RENAMES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count, at;
static const char *under, *how = "kill";

/* Files written to: name, and the size that the last fsync made safe. Renames whose folder has not been flushed since.
 */
static struct {
	char path[PATH];
	long safe;
} file[FILES];
static struct {
	char from[PATH], to[PATH];
	unsigned flags;
} moved[RENAMES];
static int files, moves;

__attribute__((constructor)) static void begin(void)
{
	const char *n = getenv("FAULT_AT");
	const char *rank = getenv("FAULT_RANK"), *own = getenv("OMPI_COMM_WORLD_RANK");
	under = getenv("FAULT_UNDER");
	if (rank && (!own || strcmp(rank, own)))
		under = NULL;
	at = n ? atol(n) : 0;
	if (getenv("FAULT_HOW"))
		how = getenv("FAULT_HOW");
}

__attribute__((destructor)) static void end(void)
{
	const char *name = getenv("FAULT_COUNT");
	char text[32];
	int fd = name ? (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
	if (fd < 0)
		return;
	int len = snprintf(text, sizeof text, "%ld\n", count);
	syscall(SYS_write, fd, text, (size_t)len);
	syscall(SYS_close, fd);
}

static bool is(const char *mode) { return !strcmp(how, mode); }
static bool ours(const char *path) { return under && strstr(path, under); }

static bool path_of(int fd, char path[PATH])
{
	char link[32];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, PATH - 1);
	if (n < 0)
		return false;
	path[n] = 0;
	return ours(path);
}

/* Paths are kept absolute: a descriptor's path is, and one name must stand for one file. */
static void absolute(const char *path, char out[PATH])
{
	char cwd[PATH];
	if (*path == '/' || !getcwd(cwd, sizeof cwd))
		snprintf(out, PATH, "%s", path);
	else
		snprintf(out, PATH, "%.250s/%.250s", cwd, path);
}

static long size_of(const char *path)
{
	struct stat st;
	return stat(path, &st) ? 0 : (long)st.st_size;
}

static void note_file(const char *path, long safe, bool flushed)
{
	char name[PATH];
	int i = 0;
	absolute(path, name);
	while (i < files && strcmp(file[i].path, name))
		i++;
	if (i < files && !flushed && safe)
		return; /* opened again: what was safe is */
	if (i == FILES)
		return;
	files += i == files;
	snprintf(file[i].path, PATH, "%s", name);
	file[i].safe = safe;
}

static bool replace_prefix(char path[PATH], const char *from, const char *to)
{
	size_t n = strlen(from);
	char rest[PATH];
	if (strncmp(path, from, n) || (path[n] && path[n] != '/'))
		return false;
	snprintf(rest, sizeof rest, "%s", path + n);
	snprintf(path, PATH, "%.255s%.255s", to, rest);
	return true;
}

static void note_rename(const char *from, const char *to, unsigned flags)
{
	char a[PATH], b[PATH];
	absolute(from, a);
	absolute(to, b);
	for (int i = 0; i < files; i++)
		if (!replace_prefix(file[i].path, a, b) && flags & RENAME_EXCHANGE)
			replace_prefix(file[i].path, b, a);
	if (moves < RENAMES) {
		snprintf(moved[moves].from, PATH, "%s", a);
		snprintf(moved[moves].to, PATH, "%s", b);
		moved[moves++].flags = flags;
	}
}

static void note_folder_flushed(const char *folder)
{
	size_t n = strlen(folder);
	int kept = 0;
	for (int i = 0; i < moves; i++)
		if (strncmp(moved[i].to, folder, n) || moved[i].to[n] != '/' || strchr(moved[i].to + n + 1, '/'))
			moved[kept++] = moved[i];
	moves = kept;
}

static void cut_power(void)
{
	for (int i = 0; i < files; i++)
		if (size_of(file[i].path) > file[i].safe && truncate(file[i].path, file[i].safe))
			continue;
	for (int i = moves; is("powerless") && i-- > 0;)
		syscall(SYS_renameat2, AT_FDCWD, moved[i].to, AT_FDCWD, moved[i].from,
			moved[i].flags & RENAME_EXCHANGE ? RENAME_EXCHANGE : RENAME_NOREPLACE);
}

static void die(void)
{
	if (is("power") || is("powerless"))
		cut_power();
	syscall(SYS_kill, getpid(), SIGKILL);
	for (;;)
		pause();
}

/* Counts an operation; 0: let it happen, else the errno value it fails with. fd and bytes: of a write. */
static int strike(int fd, const void *bytes, size_t n)
{
	bool hit = ++count == at, after = at && count >= at, halves = fd >= 0 && n > 1;
	if (hit && is("kill") && halves)
		syscall(SYS_write, fd, bytes, n / 2);
	if (hit && (is("kill") || is("power") || is("powerless")))
		die();
	if (hit && halves && (is("full") || is("once")))
		syscall(SYS_write, fd, bytes, n / 2);
	if ((after && count < at + 2 && is("once")) || (after && is("full")))
		return ENOSPC;
	return after && is("readonly") ? EROFS : after && is("io") ? EIO : 0;
}

/* An operation that a signal may break off is broken off now. */
static bool interrupted(void)
{
	static long asked;
	return at && count + 1 >= at && is("signals") && ++asked % 2;
}

static long leave(long result, int error)
{
	pthread_mutex_unlock(&lock);
	if (error)
		errno = error;
	return error ? -1 : result;
}

/* ---- the names taken over ---- */

int open(const char *path, int flags, ...)
{
	va_list ap;
	va_start(ap, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	bool counted = (flags & O_ACCMODE) != O_RDONLY && ours(path);
	int error = 0;
	if (!counted)
		return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	pthread_mutex_lock(&lock);
	if (interrupted())
		return (int)leave(-1, EINTR);
	error = strike(-1, NULL, 0);
	long fd = -1;
	if (!error) {
		fd = syscall(SYS_openat, AT_FDCWD, path, flags, mode);
		error = fd < 0 ? errno : 0;
		if (fd >= 0)
			note_file(path, flags & O_TRUNC ? 0 : size_of(path), false);
	}
	return (int)leave(fd, error);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
	char path[PATH];
	if (fd < 3 || !path_of(fd, path))
		return syscall(SYS_write, fd, bytes, n);
	pthread_mutex_lock(&lock);
	if (interrupted())
		return leave(-1, EINTR);
	int error = strike(fd, bytes, n);
	long done = -1;
	if (is("signals") && at && count >= at && count % 2 && n > 1)
		n /= 2;
	if (!error) {
		done = syscall(SYS_write, fd, bytes, n);
		error = done < 0 ? errno : 0;
	} else if (error == ENOSPC && n > 1 && count == at) {
		return (ssize_t)leave((long)(n / 2),
				      0); /* as a disk that becomes full: a short count, the error with the next call */
	}
	return (ssize_t)leave(done, error);
}

static int flush(int fd, long call)
{
	char path[PATH];
	struct stat st;
	if (!path_of(fd, path))
		return (int)syscall(call, fd);
	pthread_mutex_lock(&lock);
	if (interrupted())
		return (int)leave(-1, EINTR);
	int error = strike(-1, NULL, 0);
	if (error == ENOSPC)
		error = 0; /* what was written is there */
	if (!error && syscall(call, fd))
		error = errno;
	if (!error && fstat(fd, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			note_folder_flushed(path);
		else
			note_file(path, (long)st.st_size, true);
	}
	return (int)leave(0, error);
}
int fsync(int fd) { return flush(fd, SYS_fsync); }
int fdatasync(int fd) { return flush(fd, SYS_fdatasync); }

int renameat2(int fd1, const char *from, int fd2, const char *to, unsigned flags)
{
	if (!ours(from) && !ours(to))
		return (int)syscall(SYS_renameat2, fd1, from, fd2, to, flags);
	pthread_mutex_lock(&lock);
	int error = strike(-1, NULL, 0);
	if (!error && syscall(SYS_renameat2, fd1, from, fd2, to, flags))
		error = errno;
	if (!error)
		note_rename(from, to, flags);
	return (int)leave(0, error);
}
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int mkdir(const char *path, mode_t mode)
{
	if (!ours(path) || !access(path, F_OK))
		return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
	pthread_mutex_lock(&lock);
	int error = strike(-1, NULL, 0);
	if (!error && syscall(SYS_mkdirat, AT_FDCWD, path, mode))
		error = errno;
	return (int)leave(0, error);
}

/* Space is given back even on a full disk. */
static int drop(const char *path, int flags)
{
	if (!ours(path))
		return (int)syscall(SYS_unlinkat, AT_FDCWD, path, flags);
	pthread_mutex_lock(&lock);
	int error = strike(-1, NULL, 0);
	if (error == ENOSPC)
		error = 0;
	if (!error && syscall(SYS_unlinkat, AT_FDCWD, path, flags))
		error = errno;
	return (int)leave(0, error);
}
int unlink(const char *path) { return drop(path, 0); }
int rmdir(const char *path) { return drop(path, AT_REMOVEDIR); }

int ftruncate(int fd, off_t length)
{
	char path[PATH];
	if (!path_of(fd, path))
		return (int)syscall(SYS_ftruncate, fd, length);
	pthread_mutex_lock(&lock);
	if (interrupted())
		return (int)leave(-1, EINTR);
	int error = strike(-1, NULL, 0);
	if (!error && syscall(SYS_ftruncate, fd, length))
		error = errno;
	return (int)leave(0, error);
}

int statvfs(const char *path, struct statvfs *out)
{
	struct stat st;
	const char *bytes = getenv("FAULT_FREE");
	if (stat(path, &st))
		return -1;
	*out = (struct statvfs){ .f_bsize = 4096, .f_frsize = 4096 };
	out->f_bavail = bytes ? strtoull(bytes, NULL, 10) / 4096 : (fsblkcnt_t)1 << 40;
	return 0;
}
