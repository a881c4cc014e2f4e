#include "cli/engine/textout.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Whole sequences only. */
static void show(const char *text, size_t n, struct fo_str *out)
{
	while (n) {
		size_t plain = 0;
		while (plain < n && text[plain] && text[plain] != '\n' && text[plain] != '\t')
			plain++;
		if (plain) {
			size_t room = 4 * plain + 6; /* what fo_str_visible needs to cut nothing */
			char *copy = fo_xmalloc(plain + 1), *seen = fo_xmalloc(room);
			memcpy(copy, text, plain);
			fo_str_puts(out, fo_str_visible(seen, room, copy));
			free(copy);
			free(seen);
		} else {
			if (*text)
				fo_str_append(out, text, 1);
			else
				fo_str_puts(out, "\\x00"); /* ends a C string, so nobody else shows it */
			plain = 1;
		}
		text += plain;
		n -= plain;
	}
}

/* Bytes of the UTF-8 sequence that begins with c; a byte that begins none counts as one. */
static size_t length_of(unsigned char c)
{
	if (c >= 0xf0 && c < 0xf5)
		return 4;
	if (c >= 0xe0 && c < 0xf0)
		return 3;
	return c >= 0xc2 && c < 0xe0 ? 2 : 1;
}

/* The number of bytes at the end of the text that begin a sequence which more bytes could complete. */
static size_t unfinished(const char *text, size_t n)
{
	for (size_t k = 1; k <= 3 && k <= n; k++) {
		unsigned char c = (unsigned char)text[n - k];
		if ((c & 0xc0) == 0x80)
			continue;
		return length_of(c) > k ? k : 0;
	}
	return 0;
}

void fo_textout_put(struct fo_textout *t, const char *bytes, size_t n, struct fo_str *out)
{
	struct fo_str all = { 0 };
	fo_str_append(&all, t->held, t->n);
	fo_str_append(&all, bytes, n);
	size_t keep = unfinished(all.data, all.len);
	show(all.data, all.len - keep, out);
	memcpy(t->held, all.data + all.len - keep, keep);
	t->n = keep;
	fo_str_fini(&all);
}

void fo_textout_end(struct fo_textout *t, struct fo_str *out)
{
	show(t->held, t->n, out);
	t->n = 0;
}
