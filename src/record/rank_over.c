/* Jobs of a run that are over, for ranks that were left behind: RUN/ranks/over has a job's name per line. Only the own
 * name says something, so that an old view of a shared file system harms nobody. */
#include "record/rank_state.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/retry.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { READ_MOST = 1 << 20 }; /* of 40,000 jobs */

static char *path_of(struct fo_arena *a, const char *dir) { return fo_arena_printf(a, "%s/ranks/over", dir); }

fo_status fo_rank_job_ends(const char *dir, const char *job)
{
	struct fo_arena a = { 0 };
	const char *path = path_of(&a, dir), *line = fo_arena_printf(&a, "%s\n", job);
	const size_t n = strlen(line);
	fo_status st = FO_OK;
	int fd = fo_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0 || write(fd, line, n) != (ssize_t)n)
		st = fo_fail(FO_EIO, "cannot write '%s': %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	fo_arena_fini(&a);
	return st;
}

bool fo_rank_job_is_over(const char *dir, const char *job)
{
	struct fo_arena a = { 0 };
	const char *path = path_of(&a, dir);
	char *text;
	size_t n = 0, len = strlen(job);
	bool over = false;
	if (len && fo_fs_exists(path) && fo_fs_read_regular(&a, path, READ_MOST, &text, &n) == FO_OK)
		for (const char *at = text; at < text + n && !over;) {
			const char *end = memchr(at, '\n', (size_t)(text + n - at));
			over = end && (size_t)(end - at) == len && !memcmp(at, job, len);
			at = end ? end + 1 : text + n;
		}
	fo_err_clear();
	fo_arena_fini(&a);
	return over;
}
