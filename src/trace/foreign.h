/* Formats that no reader here is for, but that people have at hand and try: each is named, with what to do instead. */
#ifndef FO_TRACE_FOREIGN_H
#define FO_TRACE_FOREIGN_H

#include "base/err.h"

#include <stdbool.h>

struct fo_foreign {
	const char *what;    /* "a memory snapshot of PyTorch" */
	const char *instead; /* what to do, as a hint; NULL: it depends on the path */
};

/* The file's format, by its content (unpacked, where it is packed), then by its name. NULL: none of the known ones.
 * Never fails: a file that cannot be read is unknown. */
const struct fo_foreign *fo_foreign_of(const char *path);
/* The format by the file's name alone, for a folder's listing, which opens nothing. */
const struct fo_foreign *fo_foreign_by_name(const char *path);
/* The error of a reader that could make nothing of the file, or found nothing of its own in it, made better:
 * "'r.pickle' is a memory snapshot of PyTorch, no trace of GPU work". Without a known format the error stays as it is.
 * Returns FO_EFORMAT then, st else. */
fo_status fo_foreign_refuse(const char *path, fo_status st);

/* Does the file begin as a trace that is read here? Only its first bytes are looked at. */
bool fo_foreign_is_trace(const char *path);
/* fo_foreign_refuse for a reader that met events of that accelerator, which may stand far behind the first bytes. */
fo_status fo_foreign_refuse_mtia(const char *path);

/* The i-th of all formats, for tests and documentation; NULL after the last. */
const struct fo_foreign *fo_foreign_at(int i);

#endif
