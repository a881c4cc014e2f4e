#include "base/str.h"
#include "base/mem.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void room(struct fo_str *s, size_t extra)
{
	if (s->len + extra + 1 <= s->cap)
		return;
	size_t cap = s->cap ? s->cap * 2 : 64;
	while (cap < s->len + extra + 1)
		cap *= 2;
	s->data = fo_xrealloc(s->data, cap);
	s->cap = cap;
}

void fo_str_append(struct fo_str *s, const void *bytes, size_t n)
{
	room(s, n);
	if (n)
		memcpy(s->data + s->len, bytes, n);
	s->len += n;
	s->data[s->len] = 0;
}

void fo_str_puts(struct fo_str *s, const char *text) { fo_str_append(s, text, strlen(text)); }

void fo_str_printf(struct fo_str *s, const char *fmt, ...)
{
	va_list ap, ap2;
	va_start(ap, fmt);
	va_copy(ap2, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n > 0) {
		room(s, (size_t)n);
		vsnprintf(s->data + s->len, (size_t)n + 1, fmt, ap2);
		s->len += (size_t)n;
	}
	va_end(ap2);
}

void fo_str_fini(struct fo_str *s)
{
	free(s->data);
	*s = (struct fo_str){ 0 };
}

int fo_str_distance(const char *a, const char *b)
{
	enum { MAX = 64 };
	char la[MAX], lb[MAX];
	int n = (int)strnlen(a, MAX), m = (int)strnlen(b, MAX), d[3][MAX + 1];
	for (int i = 0; i < n; i++)
		la[i] = (char)tolower((unsigned char)a[i]);
	for (int j = 0; j < m; j++)
		lb[j] = (char)tolower((unsigned char)b[j]);
	for (int j = 0; j <= m; j++)
		d[0][j] = j;
	for (int i = 1; i <= n; i++) {
		int *cur = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];
		cur[0] = i;
		for (int j = 1; j <= m; j++) {
			int same = la[i - 1] == lb[j - 1];
			int best = up[j - 1] + !same;
			if (up[j] + 1 < best)
				best = up[j] + 1;
			if (cur[j - 1] + 1 < best)
				best = cur[j - 1] + 1;
			if (i > 1 && j > 1 && la[i - 1] == lb[j - 2] && la[i - 2] == lb[j - 1] && up2[j - 2] + 1 < best)
				best = up2[j - 2] + 1;
			cur[j] = best;
		}
	}
	return d[n % 3][m];
}

char *fo_str_si(char buf[32], double value, const char *unit)
{
	static const char *const prefix[] = { "", "k", "M", "G", "T", "P", "E", "Z", "Y" };
	int i = 0;
	while (fabs(value) >= 999.5 && i < 8) {
		value /= 1000;
		i++;
	}
	snprintf(buf, 32, "%.*f %s%s", i == 0 && value == floor(value) ? 0 : fabs(value) < 9.995 ? 2 : fabs(value) < 99.95 ? 1 : 0,
		 value, prefix[i], unit);
	return buf;
}

char *fo_str_bytes(char buf[32], double bytes)
{
	static const char *const prefix[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	int i = 0;
	while (fabs(bytes) >= 1023.5 && i < 6) {
		bytes /= 1024;
		i++;
	}
	snprintf(buf, 32, "%.*f %s", i == 0 ? 0 : fabs(bytes) < 9.995 ? 2 : fabs(bytes) < 99.95 ? 1 : 0, bytes, prefix[i]);
	return buf;
}

/* Length of the valid UTF-8 sequence at s, 0 if it is broken. */
static int utf8_length(const unsigned char *s)
{
	if (s[0] < 0x80)
		return 1;
	int n = s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;
	for (int i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

char *fo_str_visible(char *buf, size_t size, const char *src)
{
	size_t o = 0;
	for (const unsigned char *s = (const unsigned char *)src; *s && o + 5 < size;) {
		int n = utf8_length(s);
		bool control = *s < 0x20 || *s == 0x7f || (n == 2 && s[0] == 0xc2 && s[1] < 0xa0);
		if (n == 0 || control) {
			o += (size_t)snprintf(buf + o, size - o, "\\x%02x", *s);
			s++;
		} else {
			memcpy(buf + o, s, (size_t)n);
			o += (size_t)n;
			s += n;
		}
	}
	if (size)
		buf[o] = 0;
	return buf;
}
