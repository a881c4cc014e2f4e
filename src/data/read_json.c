/* Reads one text of a JSON line. The line is checked against RFC 8259, except for its UTF-8: a tokenizer takes any
 * bytes, and one broken character should not cost a document. Nothing is allocated. */
#include "base/str.h"
#include "data/text.h"

#include <stdio.h>
#include <string.h>

/* No document has values nested deeper. The bound limits what a hostile line can make us remember. */
#define MAX_DEPTH 128

struct line {
	char *begin, *p, *end;
};

static fo_status broken(const struct line *l, const char *what)
{
	return fo_fail(FO_EFORMAT, "no JSON at byte %lld: %s", (long long)(l->p - l->begin) + 1, what);
}

static void skip_space(struct line *l)
{
	while (l->p < l->end && (*l->p == ' ' || *l->p == '\t' || *l->p == '\r' || *l->p == '\n'))
		l->p++;
}

/* Reads the escape at l->p, which is after its backslash. */
static fo_status escape(struct line *l, char **o)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at = l->p < l->end && *l->p ? strchr(from, *l->p) : NULL;
	if (at) {
		*(*o)++ = to[at - from];
		l->p++;
		return FO_OK;
	}
	uint32_t c;
	size_t n = fo_str_unicode_escape(l->p - 1, (size_t)(l->end - l->p) + 1, &c);
	if (!n)
		return broken(l, "an escape that JSON does not have");
	l->p += n - 1;
	*o += fo_utf8_encode(*o, c); /* at most as many bytes as the escape has */
	return FO_OK;
}

/* Reads the string at l->p, its quotation mark, and unescapes it in place. */
static fo_status string(struct line *l, char **text, size_t *len)
{
	char *o = ++l->p;
	*text = o;
	for (;;) {
		char *run = l->p;
		while (l->p < l->end && *l->p != '"' && *l->p != '\\' && (unsigned char)*l->p >= 0x20)
			l->p++;
		if (o != run)
			memmove(o, run, (size_t)(l->p - run));
		o += l->p - run;
		if (l->p == l->end)
			return broken(l, "a string without an end");
		if ((unsigned char)*l->p < 0x20)
			return broken(l, "a control character in a string");
		if (*l->p++ == '"')
			break;
		FO_TRY(escape(l, &o));
	}
	*len = (size_t)(o - *text);
	return FO_OK;
}

static const char *digits(const char *p, const char *end)
{
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

static fo_status scalar(struct line *l)
{
	static const char *const word[] = { "true", "false", "null" };
	for (int i = 0; i < 3; i++) {
		size_t n = strlen(word[i]);
		if ((size_t)(l->end - l->p) >= n && !memcmp(l->p, word[i], n)) {
			l->p += n;
			return FO_OK;
		}
	}
	const char *p = l->p, *whole;
	if (p < l->end && *p == '-')
		p++;
	whole = p;
	p = digits(p, l->end);
	if (p == whole || (*whole == '0' && p > whole + 1))
		return broken(l, "expected a value");
	if (p < l->end && *p == '.') {
		const char *part = ++p;
		if ((p = digits(p, l->end)) == part)
			return broken(l, "a number without digits after its point");
	}
	if (p < l->end && (*p == 'e' || *p == 'E')) {
		p += p + 1 < l->end && (p[1] == '+' || p[1] == '-') ? 2 : 1;
		const char *part = p;
		if ((p = digits(p, l->end)) == part)
			return broken(l, "a number without digits in its exponent");
	}
	l->p += p - l->p;
	return FO_OK;
}

/* Closes the objects and lists that end after a value. *depth 0: the value that skip_value was asked for is
 * complete. */
static fo_status close_values(struct line *l, const char *open, int *depth, bool *key)
{
	while (*depth) {
		bool object = open[*depth - 1] == '{';
		skip_space(l);
		char c = l->p < l->end ? *l->p : 0;
		*key = object;
		if (c == ',') {
			l->p++;
			return FO_OK;
		}
		if (object && c != '}')
			return broken(l, "expected ',' or '}'");
		if (!object && c != ']')
			return broken(l, "expected ',' or ']'");
		l->p++;
		--*depth;
	}
	return FO_OK;
}

static fo_status key_of(struct line *l, char **key, size_t *len)
{
	skip_space(l);
	if (l->p == l->end || *l->p != '"')
		return broken(l, "expected a key");
	FO_TRY(string(l, key, len));
	skip_space(l);
	if (l->p == l->end || *l->p != ':')
		return broken(l, "expected ':'");
	l->p++;
	return FO_OK;
}

/* Skips any value at l->p. */
static fo_status skip_value(struct line *l)
{
	char open[MAX_DEPTH], *text;
	size_t len;
	int depth = 0;
	bool key = false;
	do {
		if (key)
			FO_TRY(key_of(l, &text, &len));
		key = false;
		skip_space(l);
		char c = l->p < l->end ? *l->p : 0;
		if (c != '{' && c != '[') {
			FO_TRY(c == '"' ? string(l, &text, &len) : scalar(l));
			FO_TRY(close_values(l, open, &depth, &key));
			continue;
		}
		if (depth == MAX_DEPTH - 1)
			return broken(l, "values nested more than 128 deep");
		open[depth++] = c;
		l->p++;
		skip_space(l);
		if (l->p < l->end && *l->p == (c == '{' ? '}' : ']')) {
			l->p++;
			depth--;
			FO_TRY(close_values(l, open, &depth, &key));
			continue;
		}
		key = c == '{';
	} while (depth);
	return FO_OK;
}

/* The kind of the value that begins with c. */
static const char *kind_of(char c)
{
	switch (c) {
	case '{': return "an object";
	case '[': return "a list";
	case 'n': return "null";
	case 't':
	case 'f': return "true or false";
	default: return "a number";
	}
}

fo_status fo_text_field(char *line, size_t len, const char *field, char **text, size_t *text_len)
{
	struct line l = { line, line, line + len };
	size_t want = strlen(field), seen_len = 0;
	char seen[96] = "", other = 0;
	bool found = false;
	skip_space(&l);
	if (l.p == l.end || *l.p != '{')
		return broken(&l, "expected '{'");
	l.p++;
	skip_space(&l);
	bool more = l.p == l.end || *l.p != '}';
	while (more) {
		char *key, *value;
		size_t n, value_len;
		FO_TRY(key_of(&l, &key, &n));
		skip_space(&l);
		bool it = n == want && !memcmp(key, field, n);
		if (!it && seen_len + n + 4 < sizeof seen && !memchr(key, 0, n))
			seen_len += (size_t)snprintf(seen + seen_len, sizeof seen - seen_len, "%s'%.*s'",
						     seen_len ? ", " : "", (int)n, key);
		if (it && l.p < l.end && *l.p == '"') {
			FO_TRY(string(&l, &value, &value_len));
			found = true; /* of a key that comes twice the last one counts, as in Python */
			*text = value;
			*text_len = value_len;
		} else {
			if (it)
				found = false, other = l.p < l.end ? *l.p : 0;
			FO_TRY(skip_value(&l));
		}
		skip_space(&l);
		more = l.p < l.end && *l.p == ',';
		if (!more && (l.p == l.end || *l.p != '}'))
			return broken(&l, "expected ',' or '}'");
		if (more)
			l.p++;
	}
	l.p++;
	skip_space(&l);
	if (l.p != l.end)
		return broken(&l, "more than one value on the line");
	if (found)
		return FO_OK;
	if (other)
		return fo_fail(FO_EFORMAT, "the field '%s' is %s, expected a text", field, kind_of(other));
	if (seen_len)
		fo_fail(FO_EFORMAT, "no field '%s'; there are %s", field, seen);
	else
		fo_fail(FO_EFORMAT, "no field '%s'; there is none", field);
	return fo_hint(FO_EFORMAT, "'flatout data prepare --field=NAME' takes the text from a field of another name");
}
