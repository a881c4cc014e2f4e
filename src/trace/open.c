/* Chooses the reader of a file by its first bytes, not by its name. */
#include "trace/foreign.h"
#include "trace/trace_int.h"

#include "base/fs.h"
#include "timeline/timeline.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { HEAD_BYTES = 64 };

static fo_status read_head(const char *path, unsigned char head[HEAD_BYTES], size_t *n)
{
	int fd;
	FO_TRY(fo_fs_open_regular(path, &fd));
	ssize_t got;
	do
		got = read(fd, head, HEAD_BYTES);
	while (got < 0 && errno == EINTR);
	fo_status st = got < 0 ? fo_fs_refuse("read", path, errno) : FO_OK;
	*n = got < 0 ? 0 : (size_t)got;
	close(fd);
	return st;
}

fo_status fo_trace_open(struct fo_trace **out, const char *path)
{
	unsigned char head[HEAD_BYTES];
	size_t n;
	FO_TRY(read_head(path, head, &n));
	static const char sqlite[] = "SQLite format 3";
	bool is_sqlite = n >= sizeof(sqlite) && !memcmp(head, sqlite, sizeof(sqlite));
	bool is_own = fo_timeline_begins(head, n);
	struct fo_trace_build b;
	fo_trace_build_init(&b, path);
	fo_status st;
	if (is_sqlite)
		st = fo_trace_read_nsys(&b, path);
	else if (is_own)
		st = fo_trace_read_own(&b, path);
	else
		st = fo_trace_read_kineto(&b, path);
	if (st == FO_OK)
		return fo_trace_build_finish(&b, out);
	fo_trace_build_drop(&b);
	return st == FO_EFORMAT && !is_own ? fo_foreign_refuse(path, st) : st;
}
