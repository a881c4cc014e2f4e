/* TOML 1.0 (https://toml.io/en/v1.0.0): tables, arrays of tables, dotted and quoted keys, the four kinds of strings,
 * arrays over lines, inline tables. Dates stay texts. A key that stands twice is an error, as the standard asks. */
#include "base/str.h"
#include "job/conf_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct toml {
	struct fo_conf *c;
	struct fo_conf_sink s;
	const char *p, *end;
	int line;
	struct fo_str table; /* path of the open table */
	struct fo_str array; /* the array of tables that was opened last */
	long arrays;         /* elements of all arrays of tables: their paths are numbered through */
	struct fo_str text;  /* the string that was read last */
};

static fo_status wrong(struct toml *t, const char *what)
{
	return fo_fail(FO_EFORMAT, "%s:%d: not valid TOML: %s", t->c->file, t->line, what);
}

static int peek(const struct toml *t) { return t->p < t->end ? (unsigned char)*t->p : -1; }
static bool see(const struct toml *t, const char *word)
{
	size_t n = strlen(word);
	return (size_t)(t->end - t->p) >= n && !memcmp(t->p, word, n);
}

static void blanks(struct toml *t)
{
	while (peek(t) == ' ' || peek(t) == '\t')
		t->p++;
}

static void comment(struct toml *t)
{
	if (peek(t) == '#')
		while (t->p < t->end && *t->p != '\n')
			t->p++;
}

/* Blanks, comments and line ends. */
static void space(struct toml *t)
{
	for (;;) {
		blanks(t);
		comment(t);
		if (see(t, "\r\n"))
			t->p++;
		if (peek(t) != '\n')
			return;
		t->line++;
		t->p++;
	}
}

/* The rest of a line holds nothing but a comment. */
static fo_status line_end(struct toml *t)
{
	blanks(t);
	comment(t);
	if (see(t, "\r\n"))
		t->p++;
	if (peek(t) != '\n' && peek(t) >= 0)
		return wrong(t, "expected the end of the line");
	return FO_OK;
}

/* ---- strings ---- */

static fo_status code_point(struct toml *t, int digits)
{
	uint32_t code = 0;
	char utf8[4];
	for (int i = 0; i < digits; i++, t->p++) {
		int ch = peek(t);
		if (ch < 0 || !isxdigit(ch))
			return wrong(t, "expected hexadecimal digits after \\u");
		code = code * 16 + (uint32_t)(isdigit(ch) ? ch - '0' : tolower(ch) - 'a' + 10);
	}
	if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return wrong(t, "\\u names no character");
	fo_str_append(&t->text, utf8, fo_utf8_encode(utf8, code));
	return FO_OK;
}

/* Behind a backslash of a basic string. */
static fo_status escape(struct toml *t, bool lines)
{
	static const char name[] = "btnfr\"\\e", means[] = "\b\t\n\f\r\"\\\033";
	int ch = peek(t);
	const char *at = ch > 0 ? strchr(name, ch) : NULL;
	if (at) {
		t->p++;
		fo_str_append(&t->text, means + (at - name), 1);
		return FO_OK;
	}
	if (ch == 'u' || ch == 'U') {
		t->p++;
		return code_point(t, ch == 'u' ? 4 : 8);
	}
	const char *q = t->p;
	while (q < t->end && (*q == ' ' || *q == '\t' || *q == '\r'))
		q++;
	if (!lines || q == t->end || *q != '\n')
		return wrong(t, "a backslash is followed by no known letter");
	while (t->p < t->end && isspace((unsigned char)*t->p))
		t->line += *t->p++ == '\n';
	return FO_OK;
}

/* A string of any of the four kinds, which begins here. */
static fo_status string(struct toml *t)
{
	char quote = *t->p;
	const char closing[4] = { quote, quote, quote, 0 };
	bool lines = see(t, closing);
	int first = t->line;
	t->text.len = 0;
	fo_str_puts(&t->text, "");
	t->p += lines ? 3 : 1;
	if (lines && see(t, "\r\n"))
		t->p++;
	if (lines && peek(t) == '\n') {
		t->line++;
		t->p++;
	}
	for (;;) {
		int ch = peek(t);
		if (ch < 0 || (ch == '\n' && !lines)) {
			t->line = first;
			return wrong(t, "a string has no end");
		}
		if (lines ? see(t, closing) : ch == quote) {
			t->p += lines ? 3 : 1;
			/* Up to two quotes may stand before the closing three. */
			for (int i = 0; lines && i < 2 && peek(t) == quote; i++, t->p++)
				fo_str_append(&t->text, &quote, 1);
			return FO_OK;
		}
		t->p++;
		if (ch == '\\' && quote == '"') {
			FO_TRY(escape(t, lines));
			continue;
		}
		t->line += ch == '\n';
		char byte = (char)ch;
		fo_str_append(&t->text, &byte, 1);
	}
}

/* ---- keys ---- */

/* One part of a key into t->text. */
static fo_status key_part(struct toml *t)
{
	if (peek(t) == '"' || peek(t) == '\'') {
		if (see(t, "\"\"\"") || see(t, "'''"))
			return wrong(t, "a key cannot span lines");
		return string(t);
	}
	const char *from = t->p;
	while (peek(t) >= 0 && (isalnum(peek(t)) || peek(t) == '_' || peek(t) == '-'))
		t->p++;
	if (t->p == from)
		return wrong(t, "expected a key");
	t->text.len = 0;
	fo_str_append(&t->text, from, (size_t)(t->p - from));
	return FO_OK;
}

/* A dotted key, appended to `path`. */
static fo_status key(struct toml *t, struct fo_str *path)
{
	for (int parts = 0;; parts++) {
		blanks(t);
		FO_TRY(key_part(t));
		if (path->len)
			fo_str_puts(path, ".");
		fo_str_append(path, t->text.data, t->text.len);
		blanks(t);
		if (path->len > FO_CONF_PATH_MAX)
			return wrong(t, "a key is too long");
		if (peek(t) != '.')
			return FO_OK;
		t->p++;
	}
}

/* ---- values ---- */

static fo_status value(struct toml *t);

/* A number, a date, true or false: the text without the underscores of numbers. */
static fo_status bare(struct toml *t)
{
	char text[128];
	size_t n = 0;
	while (peek(t) > ' ' && !strchr(",]}#", peek(t)) && n < sizeof text) {
		if (*t->p != '_')
			text[n++] = *t->p;
		t->p++;
	}
	/* Between date and time a blank may stand. */
	if (n == 10 && text[4] == '-' && text[7] == '-' && peek(t) == ' ' && t->p + 1 < t->end &&
	    isdigit((unsigned char)t->p[1])) {
		t->p++;
		text[n++] = 'T';
		while (peek(t) > ' ' && !strchr(",]}#", peek(t)) && n < sizeof text)
			text[n++] = *t->p++;
	}
	if (n == 0)
		return wrong(t, "expected a value");
	if (n == sizeof text)
		return wrong(t, "a value without quotes is too long");
	text[n] = '\0';
	bool word = !strcmp(text, "true") || !strcmp(text, "false");
	size_t sign = *text == '+' || *text == '-';
	bool number = isdigit((unsigned char)text[sign]) || !strcmp(text + sign, "inf") || !strcmp(text + sign, "nan");
	if (!word && !number)
		return fo_fail(FO_EFORMAT, "%s:%d: not valid TOML: a text must stand in quotes, or this is no value",
			       t->c->file, t->line);
	return fo_conf_scalar(&t->s, text, n, FO_CONF_VALUE, false, t->line);
}

static fo_status array(struct toml *t)
{
	t->p++;
	FO_TRY(fo_conf_open(&t->s, true, t->line));
	for (;;) {
		space(t);
		if (peek(t) == ']')
			break;
		FO_TRY(value(t));
		space(t);
		if (peek(t) == ',')
			t->p++;
		else if (peek(t) != ']')
			return wrong(t, "expected ',' or ']' in a list");
	}
	t->p++;
	return fo_conf_close(&t->s);
}

/* A key, '=' and its value. `path` holds the table's path and is freed. */
static fo_status assign(struct toml *t, struct fo_str *path)
{
	fo_status st = key(t, path);
	if (st == FO_OK && peek(t) != '=')
		st = wrong(t, "expected '=' behind a key");
	if (st == FO_OK) {
		t->p++;
		blanks(t);
		st = fo_conf_key(&t->s, path->data, path->len, t->line);
	}
	fo_str_fini(path);
	return st == FO_OK ? value(t) : st;
}

static fo_status inline_table(struct toml *t)
{
	t->p++;
	FO_TRY(fo_conf_open(&t->s, false, t->line));
	for (bool first = true;; first = false) {
		space(t); /* line ends are allowed here since TOML 1.1 */
		if (peek(t) == '}')
			break;
		if (!first) {
			if (peek(t) != ',')
				return wrong(t, "expected ',' or '}' in a table");
			t->p++;
			space(t);
			if (peek(t) == '}')
				break;
		}
		struct fo_str path = { 0 };
		FO_TRY(assign(t, &path));
	}
	t->p++;
	return fo_conf_close(&t->s);
}

static fo_status value(struct toml *t)
{
	int ch = peek(t);
	if (ch == '"' || ch == '\'') {
		int line = t->line;
		FO_TRY(string(t));
		return fo_conf_scalar(&t->s, t->text.data, t->text.len, FO_CONF_VALUE, true, line);
	}
	if (ch == '[')
		return array(t); /* fo_conf_open limits the depth */
	if (ch == '{')
		return inline_table(t);
	return bare(t);
}

/* ---- lines ---- */

/* A table below the array of tables that was opened last belongs to its last element. */
static void within_array(struct toml *t)
{
	size_t n = t->array.len;
	if (!n || t->table.len <= n || t->table.data[n] != '.' || memcmp(t->table.data, t->array.data, n))
		return;
	char number[24];
	int len = snprintf(number, sizeof number, ".%ld", t->arrays - 1);
	struct fo_str whole = { 0 };
	fo_str_append(&whole, t->table.data, n);
	fo_str_append(&whole, number, (size_t)len);
	fo_str_append(&whole, t->table.data + n, t->table.len - n);
	fo_str_fini(&t->table);
	t->table = whole;
}

static fo_status header(struct toml *t)
{
	bool many = see(t, "[[");
	t->p += 1 + many;
	t->table.len = 0;
	fo_str_puts(&t->table, "");
	FO_TRY(key(t, &t->table));
	if (!see(t, many ? "]]" : "]"))
		return wrong(t, "expected ']' behind the name of a table");
	t->p += many ? 2 : 1;
	if (!many) {
		within_array(t);
		return line_end(t);
	}
	t->array.len = 0;
	fo_str_append(&t->array, t->table.data, t->table.len);
	fo_str_printf(&t->table, ".%ld", t->arrays++);
	return line_end(t);
}

static fo_status pair(struct toml *t)
{
	struct fo_str path = { 0 };
	fo_str_append(&path, t->table.data, t->table.len);
	FO_TRY(assign(t, &path));
	return line_end(t);
}

static int by_path(const void *a, const void *b)
{
	const struct fo_conf_entry *x = *(const struct fo_conf_entry *const *)a;
	const struct fo_conf_entry *y = *(const struct fo_conf_entry *const *)b;
	int order = strcmp(x->path, y->path);
	return order ? order : (x > y) - (x < y);
}

/* The standard forbids to set a key twice. */
static fo_status no_doubles(struct toml *t)
{
	size_t n = t->c->entries;
	const struct fo_conf_entry **sorted = fo_arena_alloc(&t->c->arena, (n + 1) * sizeof(void *));
	for (size_t i = 0; i < n; i++)
		sorted[i] = &t->c->entry[i];
	qsort(sorted, n, sizeof(void *), by_path);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(sorted[i]->path, sorted[i - 1]->path)) {
			char shown[128];
			return fo_fail(FO_EFORMAT, "%s:%d: '%s' was already set in line %d", t->c->file,
				       sorted[i]->line, fo_str_visible(shown, sizeof shown, sorted[i]->path),
				       sorted[i - 1]->line);
		}
	return FO_OK;
}

fo_status fo_conf_toml(struct fo_conf *c)
{
	struct toml t = { .c = c, .p = c->text, .end = c->text + c->len, .line = 1 };
	fo_conf_sink_init(&t.s, c);
	fo_str_puts(&t.table, "");
	fo_status st = FO_OK;
	for (;;) {
		space(&t);
		if (peek(&t) < 0)
			break;
		st = peek(&t) == '[' ? header(&t) : pair(&t);
		if (st != FO_OK)
			break;
	}
	if (st == FO_OK)
		st = no_doubles(&t);
	fo_conf_sink_fini(&t.s);
	fo_str_fini(&t.table);
	fo_str_fini(&t.array);
	fo_str_fini(&t.text);
	return st;
}
