/* Which reader a file is for: its first bytes say, not its name. */
#define _GNU_SOURCE /* memmem */
#include "trace/trace_int.h"

#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
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

static bool ends_with(const char *path, const char *end)
{
	size_t n = strlen(path), m = strlen(end);
	return n > m && !strcasecmp(path + n - m, end);
}

/* A report of Nsight Systems in its own format, which only it can read: by the older and the newer ending, or by what stands in it. */
static bool is_nsys_report(const char *path, const unsigned char *head, size_t n)
{
	bool binary = n && memchr(head, 0, n);
	return ends_with(path, ".nsys-rep") || ends_with(path, ".qdrep") || ends_with(path, ".qdstrm") ||
	       (binary && (memmem(head, n, "QDREP", 5) || memmem(head, n, "QDSTRM", 6) || memmem(head, n, "NSYS", 4)));
}

static fo_status refuse_nsys_report(const char *path)
{
	struct fo_str command = { 0 };
	char shown[300], visible[512];
	/* "r.nsys-rep" exports to "r.sqlite", where nsys would put it too. */
	size_t stem = strlen(path);
	for (size_t i = stem; i-- > 0 && path[i] != '/';)
		if (path[i] == '.') {
			stem = i;
			break;
		}
	struct fo_str to = { 0 };
	fo_str_append(&to, path, stem);
	fo_str_puts(&to, ".sqlite");
	fo_str_puts(&command, "nsys export --type sqlite --output ");
	fo_str_shell(&command, to.data);
	fo_str_puts(&command, " ");
	fo_str_shell(&command, path);
	fo_status st = fo_hint(fo_fail(FO_EFORMAT, "'%s' is a report of Nsight Systems, whose format is closed",
				       fo_str_visible(shown, sizeof(shown), path)),
			       "export it: %s", fo_str_visible(visible, sizeof(visible), command.data));
	fo_str_fini(&command);
	fo_str_fini(&to);
	return st;
}

fo_status fo_trace_open(struct fo_trace **out, const char *path)
{
	unsigned char head[HEAD_BYTES];
	size_t n;
	FO_TRY(read_head(path, head, &n));
	static const char sqlite[] = "SQLite format 3";
	bool is_sqlite = n >= sizeof(sqlite) && !memcmp(head, sqlite, sizeof(sqlite));
	bool is_own = n >= 8 && !memcmp(head, "FOTIMEL1", 8);
	if (!is_sqlite && is_nsys_report(path, head, n))
		return refuse_nsys_report(path);
	struct fo_trace_build b;
	fo_trace_build_init(&b, path);
	fo_status st = is_sqlite ? fo_trace_read_nsys(&b, path) : is_own ? fo_trace_read_own(&b, path) : fo_trace_read_kineto(&b, path);
	if (st == FO_OK)
		return fo_trace_build_finish(&b, out);
	fo_trace_build_drop(&b);
	return st;
}
