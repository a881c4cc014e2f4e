/* Files. Every function names the path in its error and keeps the system's reason. */
#ifndef FO_BASE_FS_H
#define FO_BASE_FS_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "cannot VERB 'PATH': the system's reason"; error is an errno value. */
fo_status fo_fs_refuse(const char *verb, const char *path, int error);
/* Whole file into arena memory, NUL behind it; a file over `cap` bytes is refused (hostile input). */
FO_CHECKED fo_status fo_fs_read(struct fo_arena *a, const char *path, size_t cap, char **out, size_t *len);
/* The same for files that a program wrote and a stranger may have changed: FO_EIO for what is no regular file, where a pipe would
 * wait for its writer and a device never end. */
FO_CHECKED fo_status fo_fs_read_regular(struct fo_arena *a, const char *path, size_t cap, char **out, size_t *len);
/* Opened for reading, by the same rule; the caller closes *fd. */
FO_CHECKED fo_status fo_fs_open_regular(const char *path, int *fd);
/* Is path a device, a pipe or a socket? Renaming a file over one would take it away from everybody: it is written into. */
bool fo_fs_is_special(const char *path);
/* Writes path.tmp, fsyncs, renames over path, fsyncs the directory: readers see the old or the new file. A special file is written into. */
FO_CHECKED fo_status fo_fs_write_atomic(const char *path, const void *bytes, size_t len);
/* FO_EARG where replacing a file would lose what somebody else wrote: `path` is a file, is not empty and does not begin with `begin`.
 * For what a command writes where its user says, before the work: a list of inputs behind --html is soon typed. */
FO_CHECKED fo_status fo_fs_may_replace(const char *path, const char *begin);
/* Writes and fsyncs a file where nobody looks yet (a folder that is renamed when it is whole, after fo_fs_sync_dir). */
FO_CHECKED fo_status fo_fs_write_new(const char *path, const void *bytes, size_t len);
/* For a file that several processes read, change and replace: makes its folder and waits until no other is between begin and end. Where
 * locks are not to be had two may lose each other's news; the file itself stays whole. The lock is "PATH.lock", which stays. */
FO_CHECKED fo_status fo_fs_update_begin(const char *path, int *lock);
void fo_fs_update_end(int lock);
FO_CHECKED fo_status fo_fs_mkdirs(const char *path);          /* as mkdir -p; durable */
FO_CHECKED fo_status fo_fs_sync_dir(const char *path);        /* makes renames inside durable */
FO_CHECKED fo_status fo_fs_remove_tree(const char *path);     /* files and folders below path, path too; absent is ok */
bool fo_fs_exists(const char *path);
bool fo_fs_is_dir(const char *path);

/* Regular files below `path` (or path itself), sorted by name, hidden ones skipped; paths in arena memory. Links to
 * directories are not followed. More than `cap` files are refused. */
FO_CHECKED fo_status fo_fs_list(struct fo_arena *a, const char *path, size_t cap, char ***out, size_t *n);

struct fo_map { const unsigned char *data; size_t len; };
FO_CHECKED fo_status fo_map_open(struct fo_map *m, const char *path);  /* read-only; an empty file maps to len 0 */
void fo_map_close(struct fo_map *m);
/* FO_EIO when the file behind an open map (its data) has another size or was written to since: what is mapped may have
 * changed, and the rest of a last page reads as zeros without a fault. A file that was removed is as it was. One fstat. */
FO_CHECKED fo_status fo_map_check(const void *data);
/* Runs fn(ctx). When it touches a page of a mapped file that is not there any more (SIGBUS: the file was cut, the disk fails), it
 * is left at once and FO_EIO names file and byte; what it had allocated is lost, so it should own nothing. Calls nest. The
 * outermost one installs the process's SIGBUS handler; threads must not block that signal. */
FO_CHECKED fo_status fo_map_guard(fo_status (*fn)(void *ctx), void *ctx);

#endif
