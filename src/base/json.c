#include "base/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = sizeof(((struct fo_json *)0)->comma) / sizeof(bool) };

/* Escapes what is unsafe anywhere, and non-characters, which YAML readers refuse: our JSON strings are also YAML
 * double-quoted scalars. */
static bool wants_escape(uint32_t c) { return fo_utf8_unsafe(c) || c == 0xfffe || c == 0xffff; }

void fo_json_string(struct fo_str *out, const char *text, size_t len)
{
	static const char short_form[] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r' };
	const unsigned char *s = (const unsigned char *)text;
	fo_str_append(out, "\"", 1);
	for (size_t i = 0; i < len;) {
		uint32_t c;
		size_t n = fo_utf8_decode(s + i, len - i, &c);
		if (n == 0) {
			fo_str_puts(out, "\xef\xbf\xbd"); /* U+FFFD */
			i++;
			continue;
		}
		if (c == '"' || c == '\\')
			fo_str_printf(out, "\\%c", (int)c);
		else if (c < sizeof short_form && short_form[c])
			fo_str_printf(out, "\\%c", short_form[c]);
		else if (wants_escape(c))
			fo_str_printf(out, "\\u%04" PRIx32, c);
		else
			fo_str_append(out, s + i, n);
		i += n;
	}
	fo_str_append(out, "\"", 1);
}

static void newline(struct fo_json *j)
{
	if (!j->pretty)
		return;
	fo_str_append(j->out, "\n", 1);
	for (int i = 0; i < j->depth; i++)
		fo_str_append(j->out, "  ", 2);
}

/* Comma, line break, indentation and key: what stands before every value. */
static void lead(struct fo_json *j, const char *key)
{
	if (j->depth > 0) {
		bool *comma = &j->comma[j->depth - 1];
		if (*comma)
			fo_str_append(j->out, ",", 1);
		*comma = true;
		newline(j);
	}
	if (key) {
		fo_json_string(j->out, key, strlen(key));
		fo_str_puts(j->out, j->pretty ? ": " : ":");
	}
}

void fo_json_begin(struct fo_json *j, struct fo_str *out, bool pretty)
{
	*j = (struct fo_json){ .out = out, .pretty = pretty };
}

static void open_level(struct fo_json *j, const char *key, char bracket)
{
	lead(j, key);
	fo_str_append(j->out, &bracket, 1);
	assert(j->depth < MAX_DEPTH);
	j->comma[j->depth] = false;
	j->array[j->depth] = bracket == '[';
	j->depth++;
}

void fo_json_object(struct fo_json *j, const char *key) { open_level(j, key, '{'); }
void fo_json_array(struct fo_json *j, const char *key) { open_level(j, key, '['); }

void fo_json_close(struct fo_json *j)
{
	assert(j->depth > 0);
	j->depth--;
	if (j->comma[j->depth])
		newline(j);
	fo_str_append(j->out, j->array[j->depth] ? "]" : "}", 1);
	if (j->depth == 0 && j->pretty)
		fo_str_append(j->out, "\n", 1);
}

void fo_json_text(struct fo_json *j, const char *key, const char *value)
{
	lead(j, key);
	if (value)
		fo_json_string(j->out, value, strlen(value));
	else
		fo_str_puts(j->out, "null");
}

void fo_json_texts(struct fo_json *j, const char *key, const char *const *text, int64_t n)
{
	fo_json_array(j, key);
	for (int64_t i = 0; i < n; i++)
		fo_json_text(j, NULL, text[i]);
	fo_json_close(j);
}

void fo_json_int(struct fo_json *j, const char *key, int64_t value)
{
	lead(j, key);
	fo_str_printf(j->out, "%" PRId64, value);
}

void fo_json_real(struct fo_json *j, const char *key, double value)
{
	lead(j, key);
	if (!isfinite(value)) {
		fo_str_puts(j->out, "null");
		return;
	}
	/* 15 digits show what people wrote ("0.1"); 17 always read back to the same double. */
	char text[40];
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	fo_str_puts(j->out, text);
}

void fo_json_bool(struct fo_json *j, const char *key, bool value)
{
	lead(j, key);
	fo_str_puts(j->out, value ? "true" : "false");
}

void fo_json_raw(struct fo_json *j, const char *key, const char *json)
{
	lead(j, key);
	fo_str_puts(j->out, json);
}

void fo_json_members(struct fo_json *j, const struct fo_json_member *m, size_t n)
{
	char hex[17];
	for (; n > 0; n--, m++)
		switch (m->type) {
		case FO_JSON_TEXT: fo_json_text(j, m->key, m->text); break;
		case FO_JSON_INT: fo_json_int(j, m->key, m->integer); break;
		case FO_JSON_REAL: fo_json_real(j, m->key, m->real); break;
		case FO_JSON_BOOL: fo_json_bool(j, m->key, m->yes); break;
		case FO_JSON_HEX:
			snprintf(hex, sizeof hex, "%016" PRIx64, (uint64_t)m->integer);
			fo_json_text(j, m->key, hex);
			break;
		}
}
