/* Functions that the files of the options table share. */
#ifndef FO_BASE_OPT_INT_H
#define FO_BASE_OPT_INT_H

#include "base/opt.h"

/* The part of a key after its last dot. */
const char *fo_opt_last_part(const char *key);
/* Sets row i from `len` bytes of text, or notes a mistake ("where: 'key' ..."). A lower origin never replaces a higher
 * one, but its text is checked all the same. */
void fo_opt_assign(struct fo_opt_set *s, int i, const char *text, size_t len, enum fo_opt_origin from,
		   const char *where);
/* Text from outside cut to 48 bytes and made visible; buf is returned. */
enum { FO_OPT_SHOWN = 256 };
char *fo_opt_shown(char buf[FO_OPT_SHOWN], const char *text, size_t len);

/* Parses into the row's field; false when the text is no value of the row or out of its range. TEXT is copied to the
 * arena. */
bool fo_opt_parse(const struct fo_opt *row, void *target, struct fo_arena *a, const char *text, size_t len);
/* Is text a number whose suffix people read in two ways, so that a note should say how it was taken? */
bool fo_opt_is_taken(const struct fo_opt *row, const char *text);
/* Why the row refuses this very text; "" when the row gives no reason. */
const char *fo_opt_refused(const struct fo_opt *row, const char *text, size_t len);
/* "an integer from 1 to 1e9 steps": what a row accepts. */
void fo_opt_expected(const struct fo_opt *row, struct fo_str *out);
/* "1 to 1e9 steps", "at least 1"; empty when there is no range. */
void fo_opt_range(const struct fo_opt *row, struct fo_str *out);
/* The shortest text that reads back to the same double. */
char *fo_opt_real(char buf[40], double v);
bool fo_opt_is_utf8(const char *text, size_t len);

#endif
