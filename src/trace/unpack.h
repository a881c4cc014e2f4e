/* A file as a stream of bytes, whether plain, gzip or Zstandard (told by its first bytes); what is packed is unpacked
 * by a second thread while the caller works on the part before. Memory: a few blocks, whatever the file's size. */
#ifndef FO_TRACE_UNPACK_H
#define FO_TRACE_UNPACK_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct fo_unpack;

FO_CHECKED fo_status fo_unpack_open(struct fo_unpack **out, const char *path);
/* Up to `room` of the next bytes into `to`; *n = 0: the end. A packed file that breaks off gives what can be had and
 * then ends, with fo_unpack_broken() true; bytes that are no such packing are FO_EFORMAT. */
FO_CHECKED fo_status fo_unpack_read(struct fo_unpack *u, char *to, size_t room, size_t *n);
/* The first bytes of a file, at most `most`, unpacked and with a NUL behind them: *text is freed by the caller. A
 * packed file that is damaged or breaks off before is an error. */
FO_CHECKED fo_status fo_unpack_head(const char *path, size_t most, char **text, size_t *n);
bool fo_unpack_broken(const struct fo_unpack *u);
void fo_unpack_close(struct fo_unpack *u);

#endif
