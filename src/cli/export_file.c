/* flatout export: files that appear when they are whole. */
#include "cli/export.h"

#include "base/fs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

struct out {
	FILE *f;
	gzFile gz;
	struct fo_new_file file;
};

static fo_status out_write(void *ctx, const void *bytes, size_t n)
{
	struct out *o = ctx;
	bool whole = o->gz ? gzwrite(o->gz, bytes, (unsigned)n) == (int)n : fwrite(bytes, 1, n, o->f) == n;
	if (whole)
		return FO_OK;
	return fo_fs_refuse("write", o->file.path, errno ? errno : ENOSPC);
}

static fo_status out_open(struct out *o, const char *path)
{
	size_t n = strlen(path);
	bool gz = n > 3 && !strcmp(path + n - 3, ".gz");
	*o = (struct out){ 0 };
	FO_TRY(fo_fs_new_begin(&o->file, path));
	errno = 0;
	int fd = dup(o->file.fd); /* the streams close theirs */
	if (fd >= 0 && gz)
		o->gz = gzdopen(fd, "wb");
	else if (fd >= 0)
		o->f = fdopen(fd, "w");
	if (o->gz || o->f)
		return FO_OK;
	fo_status st = fo_fs_refuse("write", path, errno ? errno : ENOMEM);
	if (fd >= 0)
		close(fd);
	return st;
}

/* Puts the finished file into its place, or removes it after an error. */
static fo_status out_close(struct out *o, fo_status st)
{
	bool lost = o->f && fclose(o->f);
	lost |= o->gz && gzclose(o->gz) != Z_OK;
	if (st == FO_OK && lost)
		st = fo_fs_refuse("write", o->file.path, errno ? errno : ENOSPC);
	return fo_fs_new_end(&o->file, st, false);
}

fo_status fo_cli_export_file(const char *path, fo_status (*fill)(const struct fo_trace_sink *sink, void *ctx),
			     void *ctx, int64_t *bytes)
{
	struct out o;
	fo_status st = out_open(&o, path);
	if (st == FO_OK)
		st = fill(&(struct fo_trace_sink){ &o, out_write }, ctx);
	st = out_close(&o, st);
	struct stat file;
	*bytes = st == FO_OK && !stat(path, &file) ? file.st_size : 0; /* as it lies there, compressed or not */
	return st;
}

fo_status fo_cli_export_place(const char *path)
{
	struct fo_arena a = { 0 };
	char *dir = fo_arena_strdup(&a, path), *slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = 0;
	const char *folder = slash ? dir : ".";
	int error = access(folder, W_OK | X_OK) ? errno : 0;
	if (!error && fo_fs_is_dir(path))
		error = EISDIR;
	fo_arena_fini(&a);
	return error ? fo_fs_refuse("write", path, error) : FO_OK;
}
