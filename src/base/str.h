/* Growing strings. A zeroed fo_str is an empty string; data is always NUL-terminated once anything was appended. */
#ifndef FO_BASE_STR_H
#define FO_BASE_STR_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fo_str { char *data; size_t len, cap; };

void fo_str_append(struct fo_str *s, const void *bytes, size_t n);
void fo_str_puts(struct fo_str *s, const char *text);
void fo_str_printf(struct fo_str *s, const char *fmt, ...) FO_PRINTF(2, 3);
void fo_str_fini(struct fo_str *s);

/* Edit distance for "nearest name" suggestions (case-insensitive, transpositions count once). */
int fo_str_distance(const char *a, const char *b);
/* "1.23 k", "4.56 GiB": counts with SI prefixes, bytes with binary ones; buf holds the text and is returned. */
char *fo_str_si(char buf[32], double value, const char *unit);
char *fo_str_bytes(char buf[32], double bytes);
/* Copies src with every byte that could upset a terminal (controls, broken UTF-8) made visible as \xNN. */
char *fo_str_visible(char *buf, size_t size, const char *src);

#endif
