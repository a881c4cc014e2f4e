/* Growing strings. A zeroed fo_str is an empty string; data is always NUL-terminated once anything was appended. */
#ifndef FO_BASE_STR_H
#define FO_BASE_STR_H

#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fo_str {
	char *data;
	size_t len, cap;
};

void fo_str_append(struct fo_str *s, const void *bytes, size_t n);
void fo_str_puts(struct fo_str *s, const char *text);
void fo_str_printf(struct fo_str *s, const char *fmt, ...) FO_PRINTF(2, 3);
void fo_str_vprintf(struct fo_str *s, const char *fmt, va_list ap) FO_PRINTF(2, 0);
void fo_str_fini(struct fo_str *s);

/* Edit distance for "nearest name" suggestions (case-insensitive, transpositions count once). */
int fo_str_distance(const char *a, const char *b);
/* "1.23 k", "4.56 GiB": counts with SI prefixes, bytes with binary ones; buf holds the text and is returned. */
char *fo_str_si(char buf[32], double value, const char *unit);
char *fo_str_bytes(char buf[32], double bytes);
/* A noun's form for a number: fo_word(n, "is", "are"), and what stands behind "device": "" or "s". */
static inline const char *fo_word(double n, const char *one, const char *many) { return n == 1 ? one : many; }
static inline const char *fo_plural(double n) { return fo_word(n, "", "s"); }
/* Drops the sign of a NaN before it is printed: "-nan" reads like a value. */
static inline double fo_unsigned_nan(double v) { return v != v ? __builtin_nan("") : v; }
/* The UTF-8 sequence at s[0..n): its length, 0 where it is broken (overlong, surrogate, cut, above U+10FFFF); *code,
 * which may be NULL, is its code point. n >= 1. */
size_t fo_utf8_decode(const void *s, size_t n, uint32_t *code);
/* Writes a code point (at most U+10FFFF) as UTF-8; its length, 1 to 4. */
size_t fo_utf8_encode(char out[4], uint32_t code);
/* JSON's escape \uXXXX, or the two of a surrogate pair, at s[0..n): its length, 0 where there is none. *code: the
 * character, U+FFFD for half a pair. */
size_t fo_str_unicode_escape(const char *s, size_t n, uint32_t *code);
/* Controls, and what reorders or hides the text around it (bidirectional marks, line separators): no string from a file
 * may bring these to a terminal or into a page. */
bool fo_utf8_unsafe(uint32_t code);

/* Three sinks for strings that come from files or users: a terminal, XML (text or attribute of HTML or SVG), and JSON
 * (fo_json_string). Nothing else may carry such a string there. */

/* Copies src with every byte that could upset a terminal (unsafe characters, broken UTF-8) made visible as \xNN. */
char *fo_str_visible(char *buf, size_t size, const char *src);
/* Appends text for XML and HTML, as content or inside either kind of quotes; what is unsafe other than tab and newline,
 * forbidden in XML 1.0 or broken becomes U+FFFD. */
void fo_str_xml(struct fo_str *out, const char *text);
/* Appends text as one word of a POSIX shell's command line, in quotes where it needs them. */
void fo_str_shell(struct fo_str *out, const char *text);

#endif
