/* Facts about characters, from data/unicode.txt, which is built into the program. Inside src/data only.
 *
 * The tables are made at the first call of any function but unicode_next, are never freed and never change, so that all
 * threads may read them. */
#ifndef FO_DATA_UNICODE_H
#define FO_DATA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UNI_CHARS = 0x110000 };
enum {
	UNI_LETTER = 1, /* \p{L} */
	UNI_NUMBER = 2, /* \p{N} */
	UNI_SPACE = 4,  /* White_Space */
	UNI_NORMAL = 8  /* NFC may change it or the character before it; a text without such characters is in NFC */
};

/* Flags, and canonical combining classes, by code point: UNI_CHARS of each. */
const uint8_t *unicode_flags(void);
const uint8_t *unicode_classes(void);

/* The canonical decomposition of a character other than a Hangul syllable, NULL if it has none. */
struct unicode_parts {
	uint32_t whole, first, second; /* second: 0 where there is only one part */
	bool composes;                 /* NFC makes the whole of the two parts */
};
const struct unicode_parts *unicode_decompose(uint32_t c);
uint32_t unicode_compose(uint32_t a, uint32_t b); /* the character that NFC makes of a and b, 0: none */

/* Walks the entries of one section of the file, such as "script"; zero all other fields first. */
struct unicode_walk {
	const char *section;
	const char *entry,
		*value; /* the present entry "41:Latin", and what follows its colon (neither is terminated) */
	size_t value_len;
	const char *end;
};
bool unicode_next(struct unicode_walk *w);
/* The same where an entry holds up to the next one's character: [*from, *to). */
bool unicode_next_range(struct unicode_walk *w, uint32_t *from, uint32_t *to);

#endif
