/* Functions that rules write a finding with. */
#include "diagnose/findings_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fo_title(struct fo_finding *f, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(f->title, sizeof(f->title), fmt, ap);
	va_end(ap);
}

void fo_why(struct fo_finding *f, const char *fmt, ...)
{
	size_t n = strlen(f->why);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(f->why + n, sizeof(f->why) - n, fmt, ap);
	va_end(ap);
}

bool fo_notable(const struct fo_rule_context *c, struct fo_finding *f, int64_t ns)
{
	f->serious = fo_share(c, ns) > FO_SHARE_SERIOUS;
	return fo_share(c, ns) > FO_SHARE_ADVICE;
}
