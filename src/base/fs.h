/* Files. Every function names the path in its error and keeps the system's reason. */
#ifndef FO_BASE_FS_H
#define FO_BASE_FS_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A path with its NUL (Linux opens none of more than 4,096 bytes), and what is put after one. */
enum { FO_PATH_BYTES = 4096 + 64 };

/* "cannot VERB 'PATH': the system's reason"; error is an errno value. */
fo_status fo_fs_refuse(const char *verb, const char *path, int error);
/* Reads a whole file into arena memory, with a NUL after it; FO_EFORMAT for one over `cap` bytes. */
FO_CHECKED fo_status fo_fs_read(struct fo_arena *a, const char *path, size_t cap, char **out, size_t *len);
/* The same for files that a stranger may have put there: FO_EIO for what is no regular file (a pipe would wait for its
 * writer, a device never end). */
FO_CHECKED fo_status fo_fs_read_regular(struct fo_arena *a, const char *path, size_t cap, char **out, size_t *len);
/* Opened for reading, by the same rule; the caller closes *fd. */
FO_CHECKED fo_status fo_fs_open_regular(const char *path, int *fd);
/* Is path a device, a pipe or a socket? Those are written into: renaming over one would take it from everybody. */
bool fo_fs_is_special(const char *path);
/* A file that appears at `path` when it is whole. It grows under a random name (".NAME.RANDOM.flatout-tmp") in the same
 * folder, so that writers do not meet; what a killed writer left the next one of the same path removes. */
struct fo_new_file {
	int fd;       /* its owner writes to it */
	char *beside; /* where it grows; NULL: a special file */
	char *path;
};
FO_CHECKED fo_status fo_fs_new_begin(struct fo_new_file *f, const char *path);
/* The same without waiting: a pipe that nobody reads, or that is full, is an error. */
FO_CHECKED fo_status fo_fs_new_begin_now(struct fo_new_file *f, const char *path);
FO_CHECKED fo_status fo_fs_new_write(struct fo_new_file *f, const void *bytes, size_t len);
/* Closes fd. Renames the file over path where st is FO_OK; else removes it and returns st. durable: with fsync of file
 * and folder. */
FO_CHECKED fo_status fo_fs_new_end(struct fo_new_file *f, fo_status st, bool durable);
/* All three: readers see the old or the new file. */
FO_CHECKED fo_status fo_fs_write_atomic(const char *path, const void *bytes, size_t len);
/* Writes and fsyncs a new file where nobody looks yet: in a folder that is renamed when it is whole. */
FO_CHECKED fo_status fo_fs_write_new(const char *path, const void *bytes, size_t len);
/* Guards a file that several processes read, change and replace: makes its folder and waits until no other is between
 * begin and end, by the lock "PATH.lock", which stays. Without locks two may lose each other's changes. */
FO_CHECKED fo_status fo_fs_update_begin(const char *path, int *lock);
void fo_fs_update_end(int lock);
FO_CHECKED fo_status fo_fs_mkdirs(const char *path);      /* as mkdir -p; durable */
FO_CHECKED fo_status fo_fs_sync_dir(const char *path);    /* makes renames inside durable */
FO_CHECKED fo_status fo_fs_remove_tree(const char *path); /* files and folders below path, path too; absent is ok */
/* path with a leading "~" or "~/" replaced by HOME; NULL for another user's home and where HOME is not set. */
char *fo_fs_home_path(struct fo_arena *a, const char *path);
/* The folder that holds path, in memory that the caller frees. */
char *fo_fs_parent(const char *path);
bool fo_fs_exists(const char *path);
/* The path from the root, without links, as every process of this host finds it; FO_EIO: there is nothing. */
FO_CHECKED fo_status fo_fs_whole_path(const char *path, char *out, size_t size);
/* Bytes that this user may still write to the file system on which `path` is, or will be; -1: not known. */
int64_t fo_fs_free(const char *path);
bool fo_fs_is_dir(const char *path);

/* Regular files below `path` (or path itself), sorted by name, hidden ones skipped; paths in arena memory. Links to
 * directories are not followed. More than `cap` files are refused. */
FO_CHECKED fo_status fo_fs_list(struct fo_arena *a, const char *path, size_t cap, char ***out, size_t *n);
/* The same without the folders below path. */
FO_CHECKED fo_status fo_fs_list_here(struct fo_arena *a, const char *path, size_t cap, char ***out, size_t *n);

struct fo_map {
	const unsigned char *data;
	size_t len;
};
FO_CHECKED fo_status fo_map_open(struct fo_map *m, const char *path); /* read-only; an empty file maps to len 0 */
void fo_map_close(struct fo_map *m);
/* FO_EIO when the file of an open map (its data) was written to or has another size since. A file that was removed is
 * as it was. One fstat. */
FO_CHECKED fo_status fo_map_check(const void *data);
/* Runs fn(ctx), which should own nothing: when it touches a page of a mapped file that is gone (SIGBUS: the file was
 * cut, the disk fails), it is left at once and FO_EIO names file and byte. Calls nest; threads must not block that
 * signal. */
FO_CHECKED fo_status fo_map_guard(fo_status (*fn)(void *ctx), void *ctx);
/* The shared map of whole pages at p is written to, and can be done without: when its file is gone below it, zeroed
 * memory takes its place, and nobody notices. FO_EIO where there are thousands. Undone before it is unmapped. */
FO_CHECKED fo_status fo_map_spare(void *p, size_t bytes);
void fo_map_unspare(void *p);

#endif
