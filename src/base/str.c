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

void fo_str_vprintf(struct fo_str *s, const char *fmt, va_list ap)
{
	va_list again;
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	if (n >= 0) { /* also where it is nothing: data is a string then, never NULL */
		room(s, (size_t)n);
		vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
		s->len += (size_t)n;
	}
	va_end(again);
}

void fo_str_printf(struct fo_str *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fo_str_vprintf(s, fmt, ap);
	va_end(ap);
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

/* Digits after the point that give a number below 1000 three significant ones. */
static int digits_of(double value)
{
	if (fabs(value) < 9.995)
		return 2;
	return fabs(value) < 99.95;
}

char *fo_str_si(char buf[32], double value, const char *unit)
{
	static const char *const prefix[] = { "", "k", "M", "G", "T", "P", "E", "Z", "Y" };
	int i = 0;
	while (fabs(value) >= 999.5 && i < 8) {
		value /= 1000;
		i++;
	}
	const int digits = i == 0 && value == floor(value) ? 0 : digits_of(value);
	snprintf(buf, 32, "%.*f %s%s", digits, value, prefix[i], unit);
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
	snprintf(buf, 32, "%.*f %s", i ? digits_of(bytes) : 0, bytes, prefix[i]);
	return buf;
}

size_t fo_utf8_decode(const void *text, size_t n, uint32_t *code)
{
	const unsigned char *s = text;
	if (s[0] < 0x80) {
		if (code)
			*code = s[0];
		return 1;
	}
	size_t len = 2 + (s[0] >= 0xe0) + (s[0] >= 0xf0);
	if (s[0] < 0xc2 || s[0] >= 0xf5 || len > n)
		return 0;
	uint32_t c = s[0] & (0xffu >> (len + 1));
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if ((len == 3 && c < 0x800) || (len == 4 && (c < 0x10000 || c > 0x10ffff)) || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	if (code)
		*code = c;
	return len;
}

size_t fo_utf8_encode(char out[4], uint32_t c)
{
	static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
	size_t n = 1;
	if (c >= 0x80)
		n = c < 0x800 ? 2 : 3 + (c >= 0x10000);
	for (size_t i = n; --i > 0; c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	out[0] = (char)(lead[n] | c);
	return n;
}

/* The value of the escape \uXXXX at s[0..n), -1 where there is none. */
static int unicode_escape(const char *s, size_t n)
{
	int v = 0;
	if (n < 6 || s[0] != '\\' || s[1] != 'u')
		return -1;
	for (int i = 2; i < 6; i++) {
		const int c = tolower((unsigned char)s[i]);
		if (!isxdigit(c))
			return -1;
		v = v << 4 | (c <= '9' ? c - '0' : c - 'a' + 10);
	}
	return v;
}

size_t fo_str_unicode_escape(const char *s, size_t n, uint32_t *code)
{
	int high = unicode_escape(s, n), low;
	if (high < 0)
		return 0;
	*code = (uint32_t)high;
	if (high < 0xd800 || high >= 0xe000)
		return 6;
	low = high < 0xdc00 ? unicode_escape(s + 6, n - 6) : -1;
	if (low < 0xdc00 || low >= 0xe000) {
		*code = 0xfffd;
		return 6;
	}
	*code = 0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
	return 12;
}

bool fo_utf8_unsafe(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200e && c <= 0x200f) ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

char *fo_str_visible(char *buf, size_t size, const char *src)
{
	size_t o = 0, left = strlen(src);
	uint32_t c;
	bool cut = false;
	for (const unsigned char *s = (const unsigned char *)src; left;) {
		size_t n = fo_utf8_decode(s, left, &c), used = n ? n : 1;
		bool shown = n && !fo_utf8_unsafe(c);
		const size_t room = shown ? n : 4 * used;
		if (o + room + 1 > size) {
			cut = true;
			break;
		}
		for (size_t i = 0; i < used; i++)
			if (shown)
				buf[o++] = (char)s[i];
			else
				o += (size_t)snprintf(buf + o, size - o, "\\x%02x", s[i]);
		s += used;
		left -= used;
	}
	if (size)
		buf[o] = 0;
	/* Dots say that something was left out, where there is room for them. */
	if (cut && size > 16) {
		while (o > size - 4 || (o > 0 && ((unsigned char)buf[o] & 0xc0) == 0x80))
			o--;
		memcpy(buf + o, "...", 4);
	}
	return buf;
}

void fo_str_xml(struct fo_str *out, const char *text)
{
	size_t left = strlen(text);
	uint32_t c;
	fo_str_append(out, "", 0);
	while (left) {
		size_t n = fo_utf8_decode(text, left, &c);
		if (!n || (fo_utf8_unsafe(c) && c != '\t' && c != '\n') || c == 0xfffe || c == 0xffff)
			fo_str_puts(out, "\xef\xbf\xbd");
		else if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')
			fo_str_printf(out, "&#%d;", (int)c);
		else
			fo_str_append(out, text, n);
		text += n ? n : 1;
		left -= n ? n : 1;
	}
}

void fo_str_shell(struct fo_str *out, const char *text)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,+@%";
	if (*text && strspn(text, plain) == strlen(text)) {
		fo_str_puts(out, text);
		return;
	}
	fo_str_puts(out, "'");
	for (; *text; text++)
		if (*text == '\'')
			fo_str_puts(out, "'\\''");
		else
			fo_str_append(out, text, 1);
	fo_str_puts(out, "'");
}
