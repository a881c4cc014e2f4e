#include "base/range.h"

#include <stdlib.h>
#include <string.h>

/* A number that takes all of [text, end); NAN: it does not. */
static double number(const char *text, const char *end)
{
	char copy[64], *stop;
	size_t n = (size_t)(end - text);
	if (n == 0 || n >= sizeof copy || *text == ' ')
		return NAN;
	memcpy(copy, text, n);
	copy[n] = 0;
	if (strspn(copy, "0123456789.eE+-") != n) /* strtod reads hexadecimal and words, too */
		return NAN;
	double v = strtod(copy, &stop);
	return *stop || !(v >= 0 && v <= 1e15) ? NAN : v;
}

fo_status fo_range_parse(const char *text, const char *what, struct fo_range *out)
{
	const char *dots = strstr(text, ".."), *end = text + strlen(text);
	out->low = number(text, dots ? dots : end);
	out->high = dots ? number(dots + 2, end) : out->low;
	if (out->low <= out->high)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG,
			       "%s is '%s', expected a number or a range with its smaller end first, at most 1e15",
			       what, text),
		       "2.5, or 2..3");
}
