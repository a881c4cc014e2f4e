#include "base/xml.h"

#include <string.h>

/* Length of the well-formed UTF-8 sequence at s (RFC 3629) that XML allows; 0: none. s ends with a NUL, which no sequence
 * contains. */
static int sequence(const unsigned char *s)
{
	int n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;
	if (n == 1)
		return s[0] == '\t' || s[0] == '\n' || (s[0] >= 0x20 && s[0] != 0x7f);
	for (int i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xc2 && s[1] < 0xa0) ||                              /* C1 controls */
	    (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) || /* overlong */
	    (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f) || /* surrogates, beyond U+10FFFF */
	    (s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe))                   /* U+FFFE, U+FFFF */
		return 0;
	return n;
}

void fo_xml_text(struct fo_str *out, const char *text)
{
	static const char special[] = "&<>\"'", *const entity[] = { "&amp;", "&lt;", "&gt;", "&quot;", "&#39;" };
	for (const unsigned char *s = (const unsigned char *)text; *s;) {
		const char *e = strchr(special, *s);
		int n = sequence(s);
		if (e)
			fo_str_puts(out, entity[e - special]);
		else if (n)
			fo_str_append(out, s, (size_t)n);
		else
			fo_str_puts(out, "\xef\xbf\xbd");
		s += n ? n : 1;
	}
}
