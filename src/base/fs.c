#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700 /* nftw, and the strerror_r that fills the caller's buffer */

#include "base/fs.h"
#include "base/retry.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

fo_status fo_fs_refuse(const char *verb, const char *path, int error)
{
	char reason[128];
	if (strerror_r(error, reason, sizeof reason))
		strcpy(reason, "unknown reason");
	reason[0] = (char)tolower((unsigned char)reason[0]);
	fo_status st = fo_fail(error == ENOMEM ? FO_ENOMEM : FO_EIO, "cannot %s '%s': %s", verb, path, reason);
	if (error == EFBIG)
		return fo_hint(st, "files may not become larger here: 'ulimit -f' shows the shell's limit, else it is "
				   "the file system's");
	if (error == EMFILE)
		return fo_hint(st, "a process may not open more files here: 'ulimit -n' shows and sets the limit");
	return st;
}

/* Opens a file that is no folder. wait: opening a pipe blocks until it has a writer, as `flatout config <(...)`
 * needs. */
static fo_status open_for_reading(const char *path, bool wait, int *out, struct stat *st)
{
	int error = 0, fd = fo_open(path, O_RDONLY | O_CLOEXEC | (wait ? 0 : O_NONBLOCK), 0);
	if (fd < 0)
		return fo_fs_refuse("read", path, errno);
	if (fstat(fd, st))
		error = errno;
	else if (S_ISDIR(st->st_mode))
		error = EISDIR;
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

/* Reads fd to its end into memory that the caller frees. The size that the file system reports is only a first guess:
 * pipes and /proc report 0, and a file may grow while it is read. */
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

static fo_status open_regular(const char *path, int *fd, struct stat *st)
{
	FO_TRY(open_for_reading(path, false, fd, st));
	if (S_ISREG(st->st_mode))
		return FO_OK;
	close(*fd);
	fo_status status = fo_fail(FO_EIO, "cannot read '%s': not a regular file", path);
	if (!S_ISFIFO(st->st_mode))
		return status;
	return fo_hint(status, "a pipe (\"<(command)\") can be read once only: write what it gives to a file first");
}

fo_status fo_fs_open_regular(const char *path, int *fd)
{
	struct stat st;
	return open_regular(path, fd, &st);
}

static fo_status read_file(struct fo_arena *a, const char *path, bool regular, size_t cap, char **out, size_t *len)
{
	int fd;
	struct stat st;
	char *p = NULL;
	size_t n = 0;
	FO_TRY(regular ? open_regular(path, &fd, &st) : open_for_reading(path, true, &fd, &st));
	fo_status status = S_ISREG(st.st_mode) && (uintmax_t)st.st_size > cap
				   ? too_large(path, cap)
				   : read_all(fd, path, (size_t)st.st_size, cap, &p, &n);
	close(fd);
	if (status != FO_OK)
		return status;
	*out = fo_arena_alloc(a, n + 1); /* zeroed: the NUL is there */
	memcpy(*out, p, n);
	*len = n;
	free(p);
	return FO_OK;
}

fo_status fo_fs_read(struct fo_arena *a, const char *path, size_t cap, char **out, size_t *len)
{
	return read_file(a, path, false, cap, out, len);
}

fo_status fo_fs_read_regular(struct fo_arena *a, const char *path, size_t cap, char **out, size_t *len)
{
	return read_file(a, path, true, cap, out, len);
}

char *fo_fs_home_path(struct fo_arena *a, const char *path)
{
	const char *home = getenv("HOME");
	if (*path != '~')
		return fo_arena_strdup(a, path);
	if ((path[1] && path[1] != '/') || !home || !*home)
		return NULL;
	return fo_arena_printf(a, "%s%s", home, path + 1);
}

char *fo_fs_parent(const char *path)
{
	const char *slash = strrchr(path, '/');
	if (!slash)
		return fo_xstrdup(".");
	char *dir = fo_xstrdup(path);
	dir[slash == path ? 1 : slash - path] = 0;
	return dir;
}

/* Returns 0 or an errno value. EINVAL is no error: such a file system orders its folders' entries by itself. */
static int sync_folder(const char *path)
{
	int fd = fo_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	int error = fo_fsync(fd) && errno != EINVAL ? errno : 0;
	close(fd);
	return error;
}

/* A folder that may be entered but not listed cannot be opened and so not be flushed, as its owner chose. */
static int sync_parent(const char *path)
{
	char *dir = fo_fs_parent(path);
	int error = sync_folder(dir);
	free(dir);
	return error == EACCES ? 0 : error;
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
		/* A file in the way makes the next component fail; for the last one fo_fs_is_dir asks below. */
		if (mkdir(p, 0777) == 0) {
			error = sync_parent(p); /* durable files are no use in a folder that is not */
		} else if (errno != EEXIST) {
			error = errno;
			if (error == EROFS && fo_fs_is_dir(p))
				error = 0;
		}
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
	int error = sync_folder(path);
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

int64_t fo_fs_free(const char *path)
{
	struct statvfs v;
	char *at = fo_xstrdup(path);
	while (statvfs(at, &v)) {
		char *above = errno == ENOENT && strcmp(at, ".") && strcmp(at, "/") ? fo_fs_parent(at) : NULL;
		free(at);
		if (!above)
			return -1;
		at = above;
	}
	free(at);
	return v.f_bavail > INT64_MAX / v.f_frsize ? INT64_MAX : (int64_t)(v.f_bavail * v.f_frsize);
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

fo_status fo_fs_whole_path(const char *path, char *out, size_t size)
{
	char *real = realpath(path, NULL);
	if (!real)
		return fo_fs_refuse("find", path, errno);
	const size_t n = strlen(real) + 1;
	if (n <= size)
		memcpy(out, real, n);
	free(real);
	return n <= size ? FO_OK : fo_fail(FO_EARG, "the path of '%s' is longer than %zu bytes", path, size);
}

struct names {
	char **v;
	size_t n, room;
};

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
		/* An entry without a status vanished in the meantime or is a link to nowhere: neither holds text. */
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

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static fo_status list(struct fo_arena *a, const char *path, size_t cap, bool below, char ***out, size_t *n)
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
	while (status == FO_OK && folders.n) {
		status = list_one(a, folders.v[--folders.n], cap, &files, &folders);
		folders.n = below ? folders.n : 0;
	}
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

fo_status fo_fs_list(struct fo_arena *a, const char *path, size_t cap, char ***out, size_t *n)
{
	return list(a, path, cap, true, out, n);
}

fo_status fo_fs_list_here(struct fo_arena *a, const char *path, size_t cap, char ***out, size_t *n)
{
	return list(a, path, cap, false, out, n);
}

/* ---- mapped files ---- */

/* The maps that are open, so that a fault can be given its file's name and a changed file be noticed. */
struct open_map {
	const unsigned char *data;
	size_t len;
	int fd; /* kept for fstat: a path may mean another file by now */
	struct timespec changed;
	char *path;
};
static struct {
	pthread_mutex_t lock;
	struct open_map *v;
	size_t n, room;
} maps = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Keeps fd, which forget() closes. */
static void remember(const struct fo_map *m, const char *path, int fd, const struct stat *st)
{
	pthread_mutex_lock(&maps.lock);
	fo_array_room(&maps.v, &maps.room, maps.n, sizeof *maps.v);
	maps.v[maps.n++] = (struct open_map){ m->data, m->len, fd, st->st_mtim, fo_xstrdup(path) };
	pthread_mutex_unlock(&maps.lock);
}

static void forget(const struct fo_map *m)
{
	pthread_mutex_lock(&maps.lock);
	for (size_t i = 0; i < maps.n; i++) {
		if (maps.v[i].data != m->data)
			continue;
		close(maps.v[i].fd);
		free(maps.v[i].path);
		maps.v[i] = maps.v[--maps.n];
		break;
	}
	if (!maps.n) {
		free(maps.v);
		maps.v = NULL;
		maps.room = 0;
	}
	pthread_mutex_unlock(&maps.lock);
}

fo_status fo_map_open(struct fo_map *m, const char *path)
{
	static const unsigned char nothing[1];
	int fd;
	struct stat st;
	fo_status status = FO_OK;
	void *p = (void *)nothing;
	FO_TRY(open_regular(path, &fd, &st));
	if (st.st_size)
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		status = fo_fs_refuse("map", path, errno);
	else
		*m = (struct fo_map){ p, (size_t)st.st_size };
	if (status == FO_OK && m->len)
		remember(m, path, fd, &st);
	else
		close(fd);
	return status;
}

void fo_map_close(struct fo_map *m)
{
	if (m->len) {
		forget(m);
		munmap((void *)m->data, m->len);
	}
	*m = (struct fo_map){ 0 };
}

fo_status fo_map_check(const void *data)
{
	fo_status st = FO_OK;
	pthread_mutex_lock(&maps.lock);
	for (size_t i = 0; i < maps.n; i++) {
		const struct open_map *m = &maps.v[i];
		struct stat now;
		if (m->data != data)
			continue;
		if (fstat(m->fd, &now))
			st = fo_fs_refuse("read", m->path, errno);
		else if ((size_t)now.st_size != m->len)
			st = fo_fail(FO_EIO, "'%s' has %lld bytes now, %zu when it was opened", m->path,
				     (long long)now.st_size, m->len);
		else if (now.st_mtim.tv_sec != m->changed.tv_sec || now.st_mtim.tv_nsec != m->changed.tv_nsec)
			st = fo_fail(FO_EIO, "'%s' was written to while it was in use", m->path);
		break;
	}
	pthread_mutex_unlock(&maps.lock);
	return st;
}

static _Thread_local sigjmp_buf *guard;
static _Thread_local const unsigned char *volatile fault_at;

/* Mapped files to which this program writes, and which it can do without. */
enum { SPARED_MAX = 4096 };
static struct {
	_Atomic uintptr_t begin, bytes; /* begin 0: free */
} spared[SPARED_MAX];

/* Puts memory in the place of the map that holds the address; false: none does. Called by the signal's handler. */
static bool replace_spared(uintptr_t at)
{
	for (size_t i = 0; i < SPARED_MAX; i++) {
		uintptr_t begin = atomic_load(&spared[i].begin), bytes = atomic_load(&spared[i].bytes);
		if (begin && at >= begin && at - begin < bytes)
			return mmap((void *)begin, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
	}
	return false;
}

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (replace_spared((uintptr_t)info->si_addr))
		return;
	if (guard) {
		fault_at = info->si_addr;
		siglongjmp(*guard, 1);
	}
	signal(sig, SIG_DFL); /* not ours: the instruction faults again and ends the process as it would have */
}

static void catch_bus_errors(void)
{
	struct sigaction a = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };
	sigemptyset(&a.sa_mask);
	sigaction(SIGBUS, &a, NULL);
}

fo_status fo_map_spare(void *p, size_t bytes)
{
	catch_bus_errors();
	for (size_t i = 0; i < SPARED_MAX; i++) {
		uintptr_t none = 0;
		if (atomic_load(&spared[i].begin) || !atomic_compare_exchange_strong(&spared[i].begin, &none, 1))
			continue;
		atomic_store(&spared[i].bytes, bytes);
		atomic_store(&spared[i].begin, (uintptr_t)p);
		return FO_OK;
	}
	return fo_fail(FO_EIO, "more than %d maps to write to", SPARED_MAX);
}

void fo_map_unspare(void *p)
{
	for (size_t i = 0; i < SPARED_MAX; i++)
		if (atomic_load(&spared[i].begin) == (uintptr_t)p) {
			atomic_store(&spared[i].bytes, 0);
			atomic_store(&spared[i].begin, 0);
		}
}

/* The open map that holds the address of the fault. */
static fo_status bus_error(void)
{
	fo_status st = fo_fail(FO_EIO, "memory at %p cannot be read", (const void *)fault_at);
	pthread_mutex_lock(&maps.lock);
	for (size_t i = 0; i < maps.n; i++)
		if (fault_at >= maps.v[i].data && fault_at < maps.v[i].data + maps.v[i].len)
			st = fo_fail(FO_EIO, "cannot read '%s' at byte %zu: the file was cut short or its disk fails",
				     maps.v[i].path, (size_t)(fault_at - maps.v[i].data));
	pthread_mutex_unlock(&maps.lock);
	return st;
}

fo_status fo_map_guard(fo_status (*fn)(void *ctx), void *ctx)
{
	sigjmp_buf here, *outer = guard;
	if (!outer) /* each time: somebody else's handler may have come in between */
		catch_bus_errors();
	if (sigsetjmp(here, 1)) {
		guard = outer;
		return bus_error();
	}
	guard = &here;
	fo_status st = fn(ctx);
	guard = outer;
	return st;
}

fo_status fo_fs_update_begin(const char *path, int *lock)
{
	struct fo_arena a = { 0 };
	char *dir = fo_arena_strdup(&a, path), *slash = strrchr(dir, '/');
	fo_status st = FO_OK;
	if (slash && slash != dir) {
		*slash = 0;
		st = fo_fs_mkdirs(dir);
	}
	*lock = st == FO_OK ? fo_open(fo_arena_printf(&a, "%s.lock", path), O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
	if (*lock >= 0)
		fo_flock(*lock, LOCK_EX);
	fo_arena_fini(&a);
	return st;
}

void fo_fs_update_end(int lock)
{
	if (lock >= 0)
		close(lock);
}
