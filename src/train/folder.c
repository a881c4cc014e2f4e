/* The run's folder while a process trains in it: locked, and looked for before each checkpoint. Who moves or removes it
 * has not stopped the process, and what stands at its path by then may be somebody else's. */
#include "train/train_int.h"
#include "base/fs.h"
#include "base/retry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES = 100 }; /* names that are tried for a folder beside the one that is gone */

static char *lock_path(struct fo_session *s) { return fo_arena_printf(&s->arena, "%s/lock", s->r->dir); }

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

fo_status fo_session_folder_lock(struct fo_session *s)
{
	bool held;
	/* No folder for a run without text: the corpus says what is missing. */
	if (!fo_fs_exists(s->r->dir) && !(*s->r->data && fo_fs_exists(s->r->data)))
		return FO_OK;
	FO_TRY(fo_fs_mkdirs(s->r->dir));
	FO_TRY(take_lock(lock_path(s), &s->lock, &held));
	if (!held)
		return fo_hint(fo_fail(FO_EIO, "another process is training in '%s'", s->r->dir),
			       "stop that one or choose another run.dir");
	s->folder = fo_open(s->r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC,
			    0); /* a folder that may not be listed: nothing to compare with */
	return FO_OK;
}

void fo_session_folder_close(struct fo_session *s)
{
	if (s->lock >= 0)
		close(s->lock);
	if (s->folder >= 0)
		close(s->folder);
	s->lock = s->folder = -1;
}

/* Is what stands at path the file behind fd? *gone: nothing is there. Whatever cannot be asked counts as unchanged:
 * writing will tell. */
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

/* Where our folder is now; NULL: nowhere. */
static char *moved_to(struct fo_session *s)
{
	char link[64], *path = fo_arena_alloc(&s->arena, FO_PATH_BYTES);
	bool gone;
	snprintf(link, sizeof link, "/proc/self/fd/%d", s->folder);
	ssize_t n = readlink(link, path, FO_PATH_BYTES - 1);
	if (n < 0)
		return NULL;
	path[n] = 0;
	return is_same(path, s->folder, &gone) && fo_fs_is_dir(path) ? path : NULL;
}

/* A new folder beside the one that is gone; NULL: none can be made. */
static char *place_beside(struct fo_session *s)
{
	size_t n = strlen(s->r->dir);
	while (n > 1 && s->r->dir[n - 1] == '/')
		n--;
	for (int i = 1; i <= PLACES; i++) {
		char number[16] = "", *path;
		if (i > 1)
			snprintf(number, sizeof number, "-%d", i);
		path = fo_arena_printf(&s->arena, "%.*s.rescued%s", (int)n, s->r->dir, number);
		if (!mkdir(path, 0777)) {
			/* By which a run's folder is known; without it that folder wants --force. */
			const char *run = s->run_json ? s->run_json : "";
			if (fo_fs_write_atomic(fo_arena_printf(&s->arena, "%s/run.json", path), run, strlen(run)) !=
			    FO_OK)
				fo_err_clear();
			return path;
		}
		if (errno != EEXIST)
			break;
	}
	return NULL;
}

static fo_status lost(struct fo_session *s, const char *place, const char *what)
{
	s->lost = true;
	if (!place)
		return fo_fail(FO_EIO, "%s, and no folder can be made beside it to save the state in", what);
	s->rescue_dir = place;
	s->ckpt_dir = fo_arena_printf(&s->arena, "%s/checkpoints", place);
	return fo_fail(FO_EIO, "%s", what);
}

fo_status fo_session_folder_check(struct fo_session *s)
{
	const char *dir = s->r->dir;
	bool gone, held;
	int fd;
	if (s->lock < 0 || s->lost)
		return FO_OK;
	if (!is_same(dir, s->folder, &gone)) {
		char *now = moved_to(s);
		if (now)
			return lost(s, now,
				    fo_arena_printf(&s->arena,
						    "the run's folder '%s' was moved to '%s' while it trained", dir,
						    now));
		return lost(s, place_beside(s),
			    fo_arena_printf(&s->arena,
					    gone ? "the run's folder '%s' was removed while it trained"
						 : "the run's folder '%s' was removed while it trained, and another "
						   "stands in its place",
					    dir));
	}
	if (is_same(lock_path(s), s->lock, &gone))
		return FO_OK;
	/* Somebody tidied up: the lock is taken anew, unless another process was faster. */
	if (take_lock(lock_path(s), &fd, &held) != FO_OK) {
		fo_err_clear();
		return FO_OK;
	}
	if (!held)
		return lost(s, place_beside(s),
			    fo_arena_printf(&s->arena,
					    "the lock in '%s' was removed, and another process trains there now", dir));
	close(s->lock);
	s->lock = fd;
	return FO_OK;
}
