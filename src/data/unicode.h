/* What a tokenizer asks about a character. Inside src/data only. */
#ifndef FO_DATA_UNICODE_H
#define FO_DATA_UNICODE_H

#include <stdint.h>

enum {
	UNI_LETTER = 1, /* \p{L} */
	UNI_NUMBER = 2, /* \p{N} */
	UNI_SPACE = 4,  /* White_Space */
	UNI_NORMAL = 8  /* NFC may change it or what stands before it; no text has to be looked at where none occurs */
};

/* Flags by code point, 0x110000 of them; made at the first call. */
const uint8_t *unicode_flags(void);

#endif
