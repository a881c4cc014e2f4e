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
/* Writes path.tmp, fsyncs, renames over path, fsyncs the directory: readers see the old or the new file. */
FO_CHECKED fo_status fo_fs_write_atomic(const char *path, const void *bytes, size_t len);
FO_CHECKED fo_status fo_fs_mkdirs(const char *path);          /* as mkdir -p */
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

#endif
