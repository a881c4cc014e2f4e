#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct fo_err cur;

/* Formats into `out` by way of a copy: an argument may be the old text itself. `more` follows after ": ". */
static void format(char *out, size_t size, const char *more, const char *fmt, va_list ap)
{
	char text[sizeof cur.text];
	vsnprintf(text, size, fmt, ap);
	const size_t n = strlen(text);
	if (more)
		snprintf(text + n, size - n, ": %s", more);
	memcpy(out, text, size);
}

fo_status fo_fail(fo_status st, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	format(cur.text, sizeof cur.text, NULL, fmt, ap);
	va_end(ap);
	cur.hint[0] = 0;
	return cur.st = st;
}

fo_status fo_wrap(fo_status st, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	format(cur.text, sizeof cur.text, cur.text, fmt, ap);
	va_end(ap);
	return cur.st = st;
}

fo_status fo_hint(fo_status st, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	format(cur.hint, sizeof cur.hint, NULL, fmt, ap);
	va_end(ap);
	return st;
}

const char *fo_err_text(void) { return cur.text; }
const char *fo_err_hint(void) { return cur.hint; }
void fo_err_clear(void) { memset(&cur, 0, sizeof cur); }

void fo_err_save(struct fo_err *e, fo_status st)
{
	*e = cur;
	e->st = st;
}

fo_status fo_err_raise(const struct fo_err *e)
{
	cur = *e;
	return e->st;
}

int fo_status_exit_code(fo_status st)
{
	switch (st) {
	case FO_OK: return 0;
	case FO_ENUMERIC: return 1;
	case FO_EARG:
	case FO_EFORMAT: return 2;
	case FO_EIO:
	case FO_ENOMEM:
	case FO_EUNSUPPORTED:
	case FO_EDEVICE:
	case FO_ECOMM: return 3;
	case FO_EINTERRUPT: return 130;
	case FO_EBUG: break;
	}
	return 4;
}

const char *fo_status_name(fo_status st)
{
	static const char *const name[] = {
		[FO_OK] = "ok",
		[FO_EARG] = "argument",
		[FO_EFORMAT] = "format",
		[FO_EIO] = "io",
		[FO_ENOMEM] = "memory",
		[FO_EUNSUPPORTED] = "unsupported",
		[FO_EDEVICE] = "device",
		[FO_ECOMM] = "communication",
		[FO_ENUMERIC] = "numeric",
		[FO_EINTERRUPT] = "interrupted",
		[FO_EBUG] = "bug",
	};
	return name[st];
}
