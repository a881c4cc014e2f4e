/* Text that comes in pieces, made safe for a terminal: UTF-8 sequences are held back until they are whole; line feeds
 * and tabs stay, other controls, DEL and broken bytes become \xNN. */
#ifndef FO_CLI_ENGINE_TEXTOUT_H
#define FO_CLI_ENGINE_TEXTOUT_H

#include "base/str.h"

struct fo_textout {
	char held[4]; /* the beginning of a sequence */
	size_t n;
};
/* Appends to *out what of the text so far can be shown. */
void fo_textout_put(struct fo_textout *t, const char *bytes, size_t n, struct fo_str *out);
/* Nothing follows: what is held back is broken. */
void fo_textout_end(struct fo_textout *t, struct fo_str *out);

#endif
