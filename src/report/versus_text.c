#include "report/versus_text.h"

#include <math.h>

int fo_versus_decimals(double value, int most)
{
	double from = most < 3 ? 1e5 : 1e3;
	int n = most;
	for (value = fabs(value); n && value >= from; from *= 10)
		n--;
	return n;
}

const char *fo_versus_bare_ms(struct fo_doc *d, double seconds, bool sign)
{
	return fo_doc_printf(d, sign ? "%+.*f" : "%.*f", fo_versus_decimals(seconds * 1e3, 3), seconds * 1e3);
}

const char *fo_versus_ms(struct fo_doc *d, double seconds)
{
	return isfinite(seconds) ? fo_doc_printf(d, "%s ms", fo_versus_bare_ms(d, seconds, false)) : "-";
}

const char *fo_versus_signed_ms(struct fo_doc *d, double seconds)
{
	return isfinite(seconds) ? fo_doc_printf(d, "%s ms", fo_versus_bare_ms(d, seconds, true)) : "-";
}

const char *fo_versus_change(struct fo_doc *d, double x, double y, bool resolved)
{
	if (!isfinite(x) || !isfinite(y) || x == 0)
		return "";
	if (x == y)
		return "the same";
	const char *change = fo_doc_printf(d, y / x < 100 ? "%+.1f %%" : "%+.2g %%", 100 * (y / x - 1));
	return resolved ? change : fo_doc_printf(d, "%s, " FO_UNRESOLVED, change);
}

const char *fo_versus_mark(double difference, bool resolved)
{
	if (difference == 0)
		return "the same";
	return resolved ? "" : FO_UNRESOLVED;
}
