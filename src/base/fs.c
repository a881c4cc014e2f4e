#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700 /* nftw, and the strerror_r that fills the caller's buffer */

#include "base/fs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

fo_status fo_fs_refuse(const char *verb, const char *path, int error)
{
	char reason[128];
	if (strerror_r(error, reason, sizeof reason))
		strcpy(reason, "unknown reason");
	reason[0] = (char)tolower((unsigned char)reason[0]);
	return fo_fail(error == ENOMEM ? FO_ENOMEM : FO_EIO, "cannot %s '%s': %s", verb, path, reason);
}

/* wait: opening a pipe without a writer blocks, as `flatout config <(...)` needs; without it a pipe is only looked at. */
static fo_status open_for_reading(const char *path, bool wait, int *out, struct stat *st)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | (wait ? 0 : O_NONBLOCK));
	if (fd < 0)
		return fo_fs_refuse("read", path, errno);
	int error = fstat(fd, st) ? errno : S_ISDIR(st->st_mode) ? EISDIR : 0;
	if (error) {
		close(fd);
		return fo_fs_refuse("read", path, error);
	}
	*out = fd;
	return FO_OK;
}

static fo_status too_large(const char *path, size_t cap)
{
	return fo_fail(FO_EFORMAT, "cannot read '%s': larger than the limit of %zu bytes", path, cap);
}

/* Reads fd to its end into memory that the caller frees. The size that the file system reports is only a first guess: pipes
 * and /proc report 0, and a file may grow while it is read. */
static fo_status read_all(int fd, const char *path, size_t guess, size_t cap, char **out, size_t *len)
{
	size_t room = guess < cap ? guess : cap, used = 0;
	if (room < 4096)
		room = 4096;
	char *p = malloc(room + 1);
	if (!p)
		return fo_fs_refuse("read", path, ENOMEM);
	for (;;) {
		ssize_t n = read(fd, p + used, room + 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			fo_status st = fo_fs_refuse("read", path, errno);
			free(p);
			return st;
		}
		used += (size_t)n;
		if (used > cap) {
			free(p);
			return too_large(path, cap);
		}
		if (n == 0)
			break;
		if (used <= room)
			continue;
		char *q = room > SIZE_MAX / 4 ? NULL : realloc(p, room * 2 + 1);
		if (!q) {
			free(p);
			return fo_fs_refuse("read", path, ENOMEM);
		}
		p = q;
		room *= 2;
	}
	*out = p;
	*len = used;
	return FO_OK;
}

fo_status fo_fs_read(struct fo_arena *a, const char *path, size_t cap, char **out, size_t *len)
{
	int fd;
	struct stat st;
	FO_TRY(open_for_reading(path, true, &fd, &st));
	char *p = NULL;
	size_t n = 0;
	fo_status status = S_ISREG(st.st_mode) && (uintmax_t)st.st_size > cap
		? too_large(path, cap) : read_all(fd, path, (size_t)st.st_size, cap, &p, &n);
	close(fd);
	if (status != FO_OK)
		return status;
	*out = fo_arena_alloc(a, n + 1); /* zeroed: the NUL is there */
	memcpy(*out, p, n);
	*len = n;
	free(p);
	return FO_OK;
}

static int write_all(int fd, const char *p, size_t len)
{
	while (len) {
		ssize_t n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* The folder that holds path, in memory that the caller frees. */
static char *parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	if (!slash)
		return fo_xstrdup(".");
	char *dir = fo_xstrdup(path);
	dir[slash == path ? 1 : slash - path] = 0;
	return dir;
}

fo_status fo_fs_write_atomic(const char *path, const void *bytes, size_t len)
{
	size_t n = strlen(path);
	char *temporary = fo_xmalloc(n + 5), *dir = parent_of(path);
	memcpy(temporary, path, n);
	memcpy(temporary + n, ".tmp", 5);

	fo_status st = FO_OK;
	int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (fd < 0) {
		st = fo_fs_refuse("write", temporary, errno);
		goto free_names;
	}
	int error = write_all(fd, bytes, len);
	if (!error && fsync(fd))
		error = errno;
	if (close(fd) && !error)
		error = errno;
	if (!error && rename(temporary, path))
		error = errno;
	if (error) {
		unlink(temporary);
		st = fo_fs_refuse("write", path, error);
		goto free_names;
	}
	st = fo_fs_sync_dir(dir);
free_names:
	free(dir);
	free(temporary);
	return st;
}

fo_status fo_fs_mkdirs(const char *path)
{
	if (!*path)
		return fo_fs_refuse("make the folder", path, ENOENT);
	char *p = fo_xstrdup(path);
	int error = 0;
	for (char *s = p + 1; !error; s++) {
		if (*s && *s != '/')
			continue;
		char c = *s;
		*s = 0;
		/* An existing file in the way shows at the next component; for the last one it is asked below. */
		if (mkdir(p, 0777) && errno != EEXIST)
			error = errno == EROFS && fo_fs_is_dir(p) ? 0 : errno;
		*s = c;
		if (!c)
			break;
	}
	free(p);
	if (!error && !fo_fs_is_dir(path))
		error = ENOTDIR;
	return error ? fo_fs_refuse("make the folder", path, error) : FO_OK;
}

fo_status fo_fs_sync_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return fo_fs_refuse("synchronise the folder", path, errno);
	/* EINVAL: this file system has no such operation and orders renames by itself. */
	int error = fsync(fd) && errno != EINVAL ? errno : 0;
	close(fd);
	return error ? fo_fs_refuse("synchronise the folder", path, error) : FO_OK;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)at;
	bool folder = type == FTW_DP || type == FTW_D || type == FTW_DNR;
	if ((folder ? rmdir(path) : unlink(path)) == 0 || errno == ENOENT)
		return 0;
	return (int)fo_fs_refuse("remove", path, errno);
}

fo_status fo_fs_remove_tree(const char *path)
{
	enum { OPEN_FOLDERS = 16 }; /* nftw closes and reopens folders beyond this depth */
	struct stat st;
	if (lstat(path, &st))
		return errno == ENOENT ? FO_OK : fo_fs_refuse("remove", path, errno);
	errno = 0;
	int r = nftw(path, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
	return r < 0 ? fo_fs_refuse("remove", path, errno) : (fo_status)r;
}

bool fo_fs_exists(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0;
}

bool fo_fs_is_dir(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

struct names { char **v; size_t n, room; };

static void names_add(struct names *list, char *name)
{
	fo_array_room(&list->v, &list->room, list->n, sizeof *list->v);
	list->v[list->n++] = name;
}

static char *join(struct fo_arena *a, const char *dir, const char *name)
{
	size_t n = strlen(dir);
	return fo_arena_printf(a, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

/* Adds the files of one folder to `files` and its folders to `folders`. */
static fo_status list_one(struct fo_arena *a, const char *path, size_t cap, struct names *files, struct names *folders)
{
	DIR *dir = opendir(path);
	if (!dir)
		return fo_fs_refuse("list", path, errno);
	fo_status status = FO_OK;
	const struct dirent *e;
	while (status == FO_OK && (errno = 0, e = readdir(dir))) {
		struct stat st;
		if (e->d_name[0] == '.')
			continue;
		/* Whatever cannot be asked vanished in the meantime or is a link to nowhere: no text in either. */
		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		bool link = S_ISLNK(st.st_mode);
		if (link && fstatat(dirfd(dir), e->d_name, &st, 0))
			continue;
		if (S_ISDIR(st.st_mode) && !link)
			names_add(folders, join(a, path, e->d_name));
		if (!S_ISREG(st.st_mode))
			continue;
		if (files->n == cap)
			status = fo_fail(FO_EFORMAT, "cannot list '%s': more than %zu files", path, cap);
		else
			names_add(files, join(a, path, e->d_name));
	}
	if (status == FO_OK && errno)
		status = fo_fs_refuse("list", path, errno);
	closedir(dir);
	return status;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

fo_status fo_fs_list(struct fo_arena *a, const char *path, size_t cap, char ***out, size_t *n)
{
	struct stat st;
	if (stat(path, &st))
		return fo_fs_refuse("read", path, errno);
	struct names files = { 0 }, folders = { 0 };
	fo_status status = FO_OK;
	if (S_ISDIR(st.st_mode))
		names_add(&folders, fo_arena_strdup(a, path));
	else if (cap)
		names_add(&files, fo_arena_strdup(a, path));
	else
		status = fo_fail(FO_EFORMAT, "cannot list '%s': more than 0 files", path);
	while (status == FO_OK && folders.n)
		status = list_one(a, folders.v[--folders.n], cap, &files, &folders);
	if (status == FO_OK) {
		if (files.n)
			qsort(files.v, files.n, sizeof *files.v, compare_names);
		*out = fo_arena_alloc(a, (files.n + 1) * sizeof **out);
		for (size_t i = 0; i < files.n; i++)
			(*out)[i] = files.v[i];
		*n = files.n;
	}
	free(files.v);
	free(folders.v);
	return status;
}

fo_status fo_map_open(struct fo_map *m, const char *path)
{
	static const unsigned char nothing[1];
	int fd;
	struct stat st;
	FO_TRY(open_for_reading(path, false, &fd, &st));
	fo_status status = FO_OK;
	if (!S_ISREG(st.st_mode)) {
		status = fo_fail(FO_EIO, "cannot map '%s': not a regular file", path);
	} else if (st.st_size == 0) {
		*m = (struct fo_map){ nothing, 0 };
	} else {
		void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED)
			status = fo_fs_refuse("map", path, errno);
		else
			*m = (struct fo_map){ p, (size_t)st.st_size };
	}
	close(fd);
	return status;
}

void fo_map_close(struct fo_map *m)
{
	if (m->len)
		munmap((void *)m->data, m->len);
	*m = (struct fo_map){ 0 };
}
