/* Moving or removing the run's folder does not stop the process that trains in it, and what stands at its path by then
 * may be somebody else's. */
#include "train/setup.h"
#include "base/retry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES = 100 }; /* names that are tried for a folder beside the one that is gone */

static char *lock_path(const struct fo_folder *f) { return fo_arena_printf(f->arena, "%s/lock", f->dir); }

/* Takes the lock, *held false when another process has it. A file system without locks does not stop a run. */
static fo_status take_lock(const char *path, int *fd, bool *held)
{
	*fd = fo_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (*fd < 0)
		return fo_fs_refuse("write", path, errno);
	*held = !fo_flock(*fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK;
	if (*held)
		return FO_OK;
	close(*fd);
	*fd = -1;
	return FO_OK;
}

static fo_status held_by_another(const char *dir)
{
	return fo_hint(fo_fail(FO_EIO, "another process is training in '%s'", dir),
		       "stop that one or choose another run.dir");
}

fo_status fo_folder_free(const char *dir)
{
	struct fo_arena a = { 0 };
	int fd = fo_open(fo_arena_printf(&a, "%s/lock", dir), O_RDWR | O_CLOEXEC, 0);
	bool held = fd >= 0 && fo_flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
	if (fd >= 0)
		close(fd);
	fo_arena_fini(&a);
	return held ? held_by_another(dir) : FO_OK;
}

void fo_folder_init(struct fo_folder *f, struct fo_arena *arena, const char *dir)
{
	*f = (struct fo_folder){ .arena = arena, .dir = dir, .lock = -1, .self = -1 };
	f->ckpt_dir = fo_arena_printf(arena, "%s/checkpoints", dir);
}

fo_status fo_folder_lock(struct fo_folder *f, const char *data)
{
	bool held;
	/* No folder for a run without text: the corpus says what is missing. */
	if (!fo_fs_exists(f->dir) && !(*data && fo_fs_exists(data)))
		return FO_OK;
	FO_TRY(fo_fs_mkdirs(f->dir));
	FO_TRY(take_lock(lock_path(f), &f->lock, &held));
	if (!held)
		return held_by_another(f->dir);
	/* A folder that may not be listed cannot be compared later. */
	f->self = fo_open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	return FO_OK;
}

void fo_folder_close(struct fo_folder *f)
{
	if (f->lock >= 0)
		close(f->lock);
	if (f->self >= 0)
		close(f->self);
	f->lock = f->self = -1;
}

/* Is the file at path the one that fd has open? *gone: there is none. Where the system does not tell, it counts as
 * unchanged: writing will show. */
static bool is_same(const char *path, int fd, bool *gone)
{
	struct stat there, ours;
	*gone = false;
	if (fd < 0 || fstat(fd, &ours))
		return true;
	if (stat(path, &there)) {
		*gone = errno == ENOENT || errno == ENOTDIR;
		return !*gone;
	}
	return there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
}

/* The path of our folder now; NULL: it has none. */
static char *moved_to(struct fo_folder *f)
{
	char link[64], *path = fo_arena_alloc(f->arena, FO_PATH_BYTES);
	bool gone;
	snprintf(link, sizeof link, "/proc/self/fd/%d", f->self);
	ssize_t n = readlink(link, path, FO_PATH_BYTES - 1);
	if (n < 0)
		return NULL;
	path[n] = 0;
	return is_same(path, f->self, &gone) && fo_fs_is_dir(path) ? path : NULL;
}

/* A new folder beside the one that is gone; NULL: none can be made. */
static char *place_beside(const struct fo_folder *f, const char *run_json)
{
	size_t n = strlen(f->dir);
	while (n > 1 && f->dir[n - 1] == '/')
		n--;
	for (int i = 1; i <= PLACES; i++) {
		char number[16] = "", *path;
		if (i > 1)
			snprintf(number, sizeof number, "-%d", i);
		path = fo_arena_printf(f->arena, "%.*s.rescued%s", (int)n, f->dir, number);
		if (!mkdir(path, 0777)) {
			/* run.json marks a run's folder; without it --force is needed to train there. */
			const char *run = run_json ? run_json : "";
			if (fo_fs_write_atomic(fo_arena_printf(f->arena, "%s/run.json", path), run, strlen(run)) !=
			    FO_OK)
				fo_err_clear();
			return path;
		}
		if (errno != EEXIST)
			break;
	}
	return NULL;
}

static fo_status lost(struct fo_folder *f, const char *place, const char *what)
{
	f->lost = true;
	if (!place)
		return fo_fail(FO_EIO, "%s, and no folder can be made beside it to save the state in", what);
	f->rescue_dir = place;
	f->ckpt_dir = fo_arena_printf(f->arena, "%s/checkpoints", place);
	return fo_fail(FO_EIO, "%s", what);
}

fo_status fo_folder_check(struct fo_folder *f, const char *run_json)
{
	const char *dir = f->dir;
	bool gone, held;
	int fd;
	if (f->lock < 0 || f->lost)
		return FO_OK;
	if (!is_same(dir, f->self, &gone)) {
		char *now = moved_to(f);
		if (now)
			return lost(f, now,
				    fo_arena_printf(f->arena,
						    "the run's folder '%s' was moved to '%s' while it trained", dir,
						    now));
		return lost(f, place_beside(f, run_json),
			    fo_arena_printf(f->arena,
					    gone ? "the run's folder '%s' was removed while it trained"
						 : "the run's folder '%s' was removed while it trained, and another "
						   "stands in its place",
					    dir));
	}
	if (is_same(lock_path(f), f->lock, &gone))
		return FO_OK;
	/* Somebody tidied up: the lock is taken anew, unless another process was faster. */
	if (take_lock(lock_path(f), &fd, &held) != FO_OK) {
		fo_err_clear();
		return FO_OK;
	}
	if (!held)
		return lost(f, place_beside(f, run_json),
			    fo_arena_printf(f->arena,
					    "the lock in '%s' was removed, and another process trains there now", dir));
	close(f->lock);
	f->lock = fd;
	return FO_OK;
}
