/* The unpacked bytes of one file. Inside src/data only. */
#ifndef FO_DATA_READ_INT_H
#define FO_DATA_READ_INT_H

#include "data/text.h"

struct unpack;
/* "-" is standard input. max_expand as in fo_text_options, not 0. */
FO_CHECKED fo_status unpack_open(struct unpack **out, const char *path, double max_expand);
void unpack_close(struct unpack *u);
/* Fills buf[0..n) unless the file ends before; *got < n only then. After an error *got bytes before the damage are
 * good. */
FO_CHECKED fo_status unpack_read(struct unpack *u, char *buf, size_t n, size_t *got);
int64_t unpack_packed_bytes(const struct unpack *u); /* read from the file so far */

#endif
