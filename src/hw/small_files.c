/* Small files of /proc and /sys: read as text, as one number, or by the key of a line. */
#include "hw/state_int.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = FO_CGROUP_PATH + 256, FILE_BYTES = 8192 };

static bool read_path(char *buf, size_t size, const char *path)
{
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	size_t n = fread(buf, 1, size - 1, f);
	bool ok = !ferror(f);
	fclose(f);
	buf[n] = 0;
	while (n && isspace((unsigned char)buf[n - 1]))
		buf[--n] = 0;
	return ok;
}

bool fo_state_text(char *buf, size_t size, const char *root, const char *fmt, ...)
{
	char path[PATH_BYTES];
	va_list args;
	int n = snprintf(path, sizeof path, "%s", root), m;
	*buf = 0;
	if (n < 0 || n >= (int)sizeof path)
		return false;
	va_start(args, fmt);
	m = vsnprintf(path + n, sizeof path - (size_t)n, fmt, args);
	va_end(args);
	return m >= 0 && n + m < (int)sizeof path && read_path(buf, size, path);
}

double fo_state_number_at(const char *text, const char **end)
{
	char *e;
	double v;
	if (!isdigit((unsigned char)*text))
		return NAN;
	v = strtod(text, &e);
	if (end)
		*end = e;
	/* Above 2^53 a double no longer counts one by one, and no counter gets there. "0x1" is not a number here. */
	bool whole = !*e || isspace((unsigned char)*e), hex = text[1] == 'x' || text[1] == 'X';
	return whole && !hex && v <= 0x1p53 ? v : NAN;
}

double fo_state_number(const char *root, const char *fmt, ...)
{
	char tail[PATH_BYTES], text[64];
	const char *end = text;
	va_list args;
	va_start(args, fmt);
	vsnprintf(tail, sizeof tail, fmt, args);
	va_end(args);
	if (!fo_state_text(text, sizeof text, root, "%s", tail))
		return NAN;
	double v = fo_state_number_at(text, &end);
	return *end ? NAN : v;
}

double fo_state_field_in(const char *text, const char *key)
{
	size_t n = strlen(key);
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n))
			continue;
		const char *p = line + n;
		if (*p == ':')
			p++;
		else if (!isspace((unsigned char)*p))
			continue;
		while (*p == ' ' || *p == '\t')
			p++;
		return fo_state_number_at(p, NULL);
	}
	return NAN;
}

double fo_state_field(const char *root, const char *path, const char *key)
{
	char text[FILE_BYTES];
	return fo_state_text(text, sizeof text, root, "%s", path) ? fo_state_field_in(text, key) : NAN;
}
