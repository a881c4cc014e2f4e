/* \p{..} of a tokenizer's pattern, spelled for PCRE2. Inside src/data only.
 *
 * PCRE2 and Oniguruma, which Hugging Face's tokenizers use, know properties of different releases of Unicode, and a
 * script's name is Script_Extensions to the one and Script to the other. So the library's own property is asked for,
 * and what it has too little of is added to it; where it has too much, all is spelled out. */
#ifndef FO_DATA_PROPERTY_H
#define FO_DATA_PROPERTY_H

#include "base/err.h"
#include "base/str.h"

enum { PROPERTIES_MAX = 32 }; /* in one pattern; the longest published one has 8 */

struct properties {
	struct {
		int32_t of;
		struct fo_str in, out; /* what stands in a class for it, and for all other characters */
	} row[PROPERTIES_MAX];
	int n;
	unsigned char *all; /* every character, as UTF-8; made when it is first needed */
	size_t all_len;
};
/* Appends what stands between [ and ] for the property `name`; false: there is none of this name. */
FO_CHECKED fo_status property_class(struct properties *p, const char *name, size_t len, bool negated,
				    struct fo_str *out, bool *known);
void properties_free(struct properties *p);

#endif
