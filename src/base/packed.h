/* A plain, gzip (of any number of members) or Zstandard file as a stream of bytes; its first bytes say which. A hostile
 * file costs at most a buffer, the decompressor's window (128 MiB) and max_expand times its own length. */
#ifndef FO_BASE_PACKED_H
#define FO_BASE_PACKED_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fo_packed;
/* Takes fd over, also on failure (it is closed unless it is standard input). name is for errors. max_expand: what a
 * packed file may grow by, once it passes 64 MiB; 0: any. */
FO_CHECKED fo_status fo_packed_open(struct fo_packed **out, int fd, const char *name, double max_expand);
void fo_packed_close(struct fo_packed *u);
/* Fills buf[0..n) unless the file ends before; *got < n only then. After an error *got bytes before the damage are
 * good. */
FO_CHECKED fo_status fo_packed_read(struct fo_packed *u, char *buf, size_t n, size_t *got);
bool fo_packed_is(const struct fo_packed *u);       /* gzip or Zstandard */
bool fo_packed_inside(const struct fo_packed *u);   /* a gzip member or Zstandard frame has begun and not ended */
int64_t fo_packed_bytes(const struct fo_packed *u); /* taken from the file so far */

#endif
