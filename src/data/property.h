/* \p{..} of a tokenizer's pattern, spelled for PCRE2. Inside src/data only.
 *
 * PCRE2 and Oniguruma, which Hugging Face's tokenizers use, know properties of different releases of Unicode, and a
 * script's name means Script_Extensions to PCRE2 and Script to Oniguruma. So a class names PCRE2's own property and
 * adds the characters that it lacks; where PCRE2's property has too many characters, all of them are spelled out. */
#ifndef FO_DATA_PROPERTY_H
#define FO_DATA_PROPERTY_H

#include "base/err.h"
#include "base/str.h"

enum { PROPERTIES_MAX = 32 }; /* in one pattern; the longest published one has 8 */
enum { PROPERTY_NAME = 64 };

struct properties {
	struct {
		char of[PROPERTY_NAME]; /* how PCRE2 calls it: "Lu", "L", "sc:Han" */
		struct fo_str in, out;  /* what stands in a class for it, and for all other characters */
	} row[PROPERTIES_MAX];
	int n;
	char *all; /* every character, as UTF-8; made when it is first needed */
	size_t all_len;
};
/* Appends to `out` what stands between [ and ] for the property `name`, or for its complement. *known: false, and
 * nothing appended, when there is no property of this name. */
FO_CHECKED fo_status property_class(struct properties *p, const char *name, size_t len, bool negated,
				    struct fo_str *out, bool *known);
void properties_free(struct properties *p);

#endif
