/* JSON, and Python as it is written and printed: values, calls with keywords, functions that return a configuration. */
#define _GNU_SOURCE /* memmem */
#include "base/str.h"
#include "job/conf_int.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static int peek(const struct fo_conf_literal *l) { return l->at < l->len ? (unsigned char)l->text[l->at] : -1; }

static bool see(const struct fo_conf_literal *l, const char *word)
{
	size_t n = strlen(word);
	return l->len - l->at >= n && !memcmp(l->text + l->at, word, n);
}

static void space(struct fo_conf_literal *l)
{
	for (;; l->at++) {
		int ch = peek(l);
		if (ch == '#' && l->python)
			while (peek(l) >= 0 && peek(l) != '\n')
				l->at++;
		if (peek(l) == '\n')
			l->line++;
		else if (peek(l) < 0 || (!isspace(peek(l)) && peek(l) != '\\'))
			return;
	}
}

static fo_status wrong(struct fo_conf_literal *l, struct fo_conf_sink *s, const char *what)
{
	return fo_fail(FO_EFORMAT, "%s:%d: the configuration cannot be read: %s", s->conf->file, l->line, what);
}

/* Behind a backslash. */
static void escape(struct fo_conf_literal *l, struct fo_str *out)
{
	static const char name[] = "btnfr", means[] = "\b\t\n\f\r";
	uint32_t code;
	char utf8[4];
	size_t n = peek(l) == 'u' ? fo_str_unicode_escape(l->text + l->at - 1, l->len - l->at + 1, &code) : 0;
	if (n) {
		l->at += n - 1;
		fo_str_append(out, utf8, fo_utf8_encode(utf8, code ? code : 0xfffd));
		return;
	}
	int ch = peek(l);
	if (ch < 0)
		return;
	const char *at = strchr(name, ch);
	char byte = (char)ch;
	if (at && ch)
		byte = means[at - name];
	l->line += ch == '\n';
	l->at++;
	fo_str_append(out, &byte, 1);
}

/* A string that begins here. */
static fo_status string(struct fo_conf_literal *l, struct fo_conf_sink *s, struct fo_str *out)
{
	char quote = (char)peek(l);
	const char closing[4] = { quote, quote, quote, 0 };
	bool lines = l->python && see(l, closing);
	int first = l->line;
	fo_str_puts(out, "");
	l->at += lines ? 3 : 1;
	for (;;) {
		int ch = peek(l);
		if (ch < 0 || (ch == '\n' && !lines)) {
			l->line = first;
			return wrong(l, s, "a string has no end");
		}
		if (lines ? see(l, closing) : ch == quote) {
			l->at += lines ? 3 : 1;
			return FO_OK;
		}
		l->at++;
		if (ch == '\\') {
			escape(l, out);
			continue;
		}
		l->line += ch == '\n';
		char byte = (char)ch;
		fo_str_append(out, &byte, 1);
	}
}

static bool is_word(const char *text, size_t n, const char *word)
{
	return n == strlen(word) && !memcmp(text, word, n);
}

static fo_status bare(struct fo_conf_literal *l, struct fo_conf_sink *s, const char *text, size_t n)
{
	enum fo_conf_kind kind = FO_CONF_VALUE;
	if (is_word(text, n, "null") || is_word(text, n, "None"))
		kind = FO_CONF_NULL;
	else if (is_word(text, n, "True"))
		text = "true", n = 4;
	else if (is_word(text, n, "False"))
		text = "false", n = 5;
	return fo_conf_scalar(s, text, n, kind, false, l->line);
}

/* Skips an expression up to the comma, line or bracket that ends it; its text becomes the value. A bracket that is
 * opened in it is closed in it. */
static fo_status skip_expression(struct fo_conf_literal *l, struct fo_conf_sink *s, size_t from)
{
	int deep = 0, line = l->line;
	for (; peek(l) >= 0; l->at++) {
		int ch = peek(l);
		if (deep == 0 && (strchr(",)]}", ch) || (ch == '\n' && s->depth == 0)))
			break;
		if (ch == '#' && l->python) {
			while (l->at + 1 < l->len && l->text[l->at + 1] != '\n')
				l->at++;
			continue;
		}
		deep += ch == '(' || ch == '[' || ch == '{';
		deep -= ch == ')' || ch == ']' || ch == '}';
		if (ch == '"' || ch == '\'') {
			struct fo_str ignored = { 0 };
			fo_status st = string(l, s, &ignored);
			fo_str_fini(&ignored);
			FO_TRY(st);
			l->at--;
			continue;
		}
		l->line += ch == '\n';
	}
	size_t n = l->at - from;
	while (n && isspace((unsigned char)l->text[from + n - 1]))
		n--;
	return fo_conf_scalar(s, l->text + from, n < 200 ? n : 200, FO_CONF_OPEN, false, line);
}

static bool ends_value(int ch) { return ch < 0 || strchr(",)]}", ch) || isspace(ch); }

/* An operator behind a value makes an expression of it. */
static bool goes_on(struct fo_conf_literal *l, const struct fo_conf_sink *s)
{
	size_t at = l->at;
	while (at < l->len &&
	       (l->text[at] == ' ' || l->text[at] == '\t' || (s->depth && isspace((unsigned char)l->text[at]))))
		at++;
	if (at == l->len || strchr(",)]}:#\n\r;", l->text[at]))
		return false;
	return l->python && (s->depth > 0 || l->text[at] != '\n');
}

/* Items of a list, a tuple or a set up to `closing`. */
static fo_status items(struct fo_conf_literal *l, struct fo_conf_sink *s, char closing)
{
	FO_TRY(fo_conf_open(s, true, l->line));
	for (;;) {
		space(l);
		if (peek(l) == closing)
			break;
		FO_TRY(fo_conf_literal(l, s));
		space(l);
		if (peek(l) == ',')
			l->at++;
		else if (peek(l) != closing)
			return wrong(l, s, "expected a comma or the end of a list");
	}
	l->at++;
	return fo_conf_close(s);
}

/* The key of a dictionary's entry. */
static fo_status dictionary_key(struct fo_conf_literal *l, struct fo_conf_sink *s)
{
	int ch = peek(l);
	if (ch == '"' || ch == '\'') {
		struct fo_str key = { 0 };
		fo_status st = string(l, s, &key);
		if (st == FO_OK)
			st = fo_conf_key(s, key.data, key.len, l->line);
		fo_str_fini(&key);
		return st;
	}
	size_t from = l->at;
	while (peek(l) >= 0 && (isalnum(peek(l)) || strchr("_.<>-+", peek(l))))
		l->at++;
	if (from == l->at)
		return wrong(l, s, "expected a key");
	return fo_conf_key(s, l->text + from, l->at - from, l->line);
}

static fo_status dictionary(struct fo_conf_literal *l, struct fo_conf_sink *s)
{
	l->at++;
	FO_TRY(fo_conf_open(s, false, l->line));
	for (;;) {
		space(l);
		if (peek(l) == '}')
			break;
		if (see(l, "**")) { /* another dictionary is taken in: unknown here */
			FO_TRY(fo_conf_key(s, "**", 2, l->line));
			FO_TRY(skip_expression(l, s, l->at));
		} else {
			FO_TRY(dictionary_key(l, s));
			space(l);
			if (peek(l) == ':') {
				l->at++;
				space(l);
				FO_TRY(fo_conf_literal(l, s));
			} else { /* a set */
				FO_TRY(fo_conf_scalar(s, "true", 4, FO_CONF_VALUE, false, l->line));
			}
		}
		space(l);
		if (peek(l) == ',')
			l->at++;
		else if (peek(l) != '}')
			return wrong(l, s, "expected a comma or the end of a dictionary");
	}
	l->at++;
	return fo_conf_close(s);
}

/* The arguments of a call, whose name was read: keywords are keys, the others are numbered. */
static fo_status arguments(struct fo_conf_literal *l, struct fo_conf_sink *s)
{
	l->at++;
	FO_TRY(fo_conf_open(s, false, l->line));
	for (int number = 0;;) {
		space(l);
		if (peek(l) == ')')
			break;
		size_t from = l->at, at = l->at;
		while (at < l->len && (isalnum((unsigned char)l->text[at]) || l->text[at] == '_'))
			at++;
		size_t key = at - from;
		while (at < l->len && l->text[at] == ' ')
			at++;
		if (key && at < l->len && l->text[at] == '=' && (at + 1 == l->len || l->text[at + 1] != '=')) {
			l->at = at + 1;
			FO_TRY(fo_conf_key(s, l->text + from, key, l->line));
		} else {
			char name[16];
			int n = snprintf(name, sizeof name, "%d", number++);
			FO_TRY(fo_conf_key(s, name, (size_t)n, l->line));
		}
		space(l);
		FO_TRY(fo_conf_literal(l, s));
		space(l);
		if (peek(l) == ',')
			l->at++;
		else if (peek(l) != ')')
			return wrong(l, s, "expected a comma or the end of the arguments");
	}
	l->at++;
	return fo_conf_close(s);
}

/* <AttentionBackend.flash: 1>, <class 'torch.nn.Linear'>: the name. */
static fo_status angle(struct fo_conf_literal *l, struct fo_conf_sink *s)
{
	size_t from = ++l->at, n;
	while (peek(l) >= 0 && peek(l) != '>' && peek(l) != '\n')
		l->at++;
	if (peek(l) != '>')
		return wrong(l, s, "'<' has no '>'");
	n = l->at - from;
	const char *text = l->text + from, *colon = memchr(text, ':', n);
	if (colon)
		n = (size_t)(colon - text);
	const char *dot = memchr(text, '.', n);
	if (dot && colon) {
		n -= (size_t)(dot + 1 - text);
		text = dot + 1;
	}
	l->at++;
	return fo_conf_scalar(s, text, n, colon ? FO_CONF_VALUE : FO_CONF_OPEN, false, l->line);
}

/* A name, a number, a call. */
static fo_status name(struct fo_conf_literal *l, struct fo_conf_sink *s)
{
	size_t from = l->at;
	while (peek(l) >= 0 && (isalnum(peek(l)) || strchr("_.+-", peek(l))))
		l->at++;
	size_t n = l->at - from;
	if (n == 0)
		return l->python ? skip_expression(l, s, from) : wrong(l, s, "expected a value");
	bool number = isdigit((unsigned char)l->text[from]) || strchr("+-.", l->text[from]);
	if (l->python && !number && peek(l) == '(') {
		int line = l->line;
		struct fo_conf_level *level = &s->level[s->depth];
		if (level->list) { /* its class would get lost: it is an entry like that of a mapping */
			char key[24];
			int len = snprintf(key, sizeof key, "%ld", level->items);
			FO_TRY(fo_conf_key(s, key, (size_t)len, line));
		}
		FO_TRY(fo_conf_add(s->conf, s->path.data, l->text + from, n, FO_CONF_CALL, false, line));
		return arguments(l, s);
	}
	if (goes_on(l, s) || (l->python && peek(l) >= 0 && !ends_value(peek(l)) && peek(l) != ':'))
		return skip_expression(l, s, from);
	if (number && n < 64) { /* without the underscores of 1_000 */
		char digits[64];
		size_t k = 0;
		for (size_t i = 0; i < n; i++)
			if (l->text[from + i] != '_')
				digits[k++] = l->text[from + i];
		return bare(l, s, digits, k);
	}
	static const char *const known[] = { "true", "false", "null", "True", "False",
					     "None", "nan",   "inf",  "NaN",  "Infinity" };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (is_word(l->text + from, n, known[i]))
			return bare(l, s, l->text + from, n);
	if (!l->python)
		return wrong(l, s, "expected a value");
	/* torch.bfloat16 is a value to people; any other name is a variable. */
	bool value = n > 6 && !memcmp(l->text + from, "torch.", 6);
	return fo_conf_scalar(s, l->text + from, n, value ? FO_CONF_VALUE : FO_CONF_OPEN, false, l->line);
}

/* A bracket or a call: more than one entry. */
static fo_status compound(struct fo_conf_literal *l, struct fo_conf_sink *s)
{
	int ch = peek(l);
	if (ch == '{')
		return dictionary(l, s);
	if (ch == '[' || (ch == '(' && l->python)) {
		l->at++;
		return items(l, s, ch == '[' ? ']' : ')');
	}
	return name(l, s);
}

fo_status fo_conf_literal(struct fo_conf_literal *l, struct fo_conf_sink *s)
{
	int ch = peek(l), line = l->line;
	size_t from = l->at, entries = s->conf->entries;
	if (ch == '"' || (ch == '\'' && l->python)) {
		struct fo_str text = { 0 };
		fo_status st = string(l, s, &text);
		if (st == FO_OK && goes_on(l, s))
			st = skip_expression(l, s, from);
		else if (st == FO_OK)
			st = fo_conf_scalar(s, text.data, text.len, FO_CONF_VALUE, true, line);
		fo_str_fini(&text);
		return st;
	}
	if (ch == '<' && l->python)
		return angle(l, s);
	if (ch < 0)
		return wrong(l, s, "it ends in the middle");
	FO_TRY(compound(l, s));
	bool several = strchr(")]}", l->text[l->at - 1]) != NULL;
	if (!several || !goes_on(l, s))
		return FO_OK;
	s->conf->entries = entries; /* a part of an expression */
	return skip_expression(l, s, from);
}

/* One value from `at` on, with its entries at the root of c. */
static fo_status one(struct fo_conf *c, size_t at, int line, bool python, size_t *end)
{
	struct fo_conf_sink s;
	struct fo_conf_literal l = { .text = c->text, .len = c->len, .at = at, .line = line, .python = python };
	fo_conf_sink_init(&s, c);
	fo_status st = fo_conf_literal(&l, &s);
	fo_conf_sink_fini(&s);
	if (end)
		*end = l.at;
	return st;
}

fo_status fo_conf_json(struct fo_conf *c)
{
	json_error_t e;
	json_t *all = json_loadb(c->text, c->len, JSON_REJECT_DUPLICATES, &e);
	size_t at = 0;
	int line = 1;
	for (; at < c->len && c->text[at] != '{'; at++)
		line += c->text[at] == '\n';
	if (all) {
		json_decref(all);
		return one(c, at, line, false, NULL);
	}
	struct fo_err first;
	char shown[256];
	fo_status st = fo_fail(FO_EFORMAT, "%s:%d: not valid JSON: %s", c->file, e.line,
			       fo_str_visible(shown, sizeof shown, e.text));
	fo_err_save(&first, st);
	/* A dictionary that Python printed has other quotes. */
	if (memchr(c->text, '\'', c->len) && one(c, at, line, true, NULL) == FO_OK) {
		c->format = FO_CONF_PRINTED;
		fo_err_clear();
		return FO_OK;
	}
	c->entries = 0;
	return fo_err_raise(&first);
}

/* ---- what a program printed ---- */

/* Words before a dictionary or a call, and the classes that frameworks print. */
static const char *const before[] = {
	"Running with args:", "Running with configs:", "Running with config:", "Config loaded from", "json = ", NULL
};
static const char *const class_name[] = { "JobConfig(",         "Trainer.Config(",
					  "TrainingArguments(", "Seq2SeqTrainingArguments(",
					  "SFTConfig(",         "ConfigContainer(",
					  "Config(general=",    "TrainConfig(",
					  "TrainerConfig(",     NULL };
static const char megatron_dump[] = " arguments -----";

static const char *find(const char *text, size_t len, const char *word)
{
	return memmem(text, len, word, strlen(word));
}

bool fo_conf_find_printed(const char *text, size_t len, size_t *at)
{
	const char *first = NULL;
	for (int i = 0; before[i]; i++) {
		const char *p = find(text, len, before[i]);
		if (!p || (first && p > first))
			continue;
		const char *line = memchr(p, '\n', len - (size_t)(p - text));
		const char *open = memchr(p, '{', (size_t)((line ? line : text + len) - p));
		if (open)
			first = open;
	}
	for (int i = 0; class_name[i]; i++) {
		const char *p = find(text, len, class_name[i]);
		if (p && (!first || p < first))
			first = p;
	}
	if (!first)
		first = find(text, len, megatron_dump);
	if (first)
		*at = (size_t)(first - text);
	return first != NULL;
}

/* "[default0]:  num_layers ...................................... 32" */
static fo_status dump_line(struct fo_conf *c, const char *s, const char *end, int line)
{
	const char *dots = find(s, (size_t)(end - s), " ....");
	if (!dots)
		return FO_OK;
	const char *key = dots;
	while (key > s && (isalnum((unsigned char)key[-1]) || key[-1] == '_'))
		key--;
	const char *value = dots + 1;
	while (value < end && *value == '.')
		value++;
	while (value < end && *value == ' ')
		value++;
	while (end > value && isspace((unsigned char)end[-1]))
		end--;
	if (key == dots || dots - key > FO_CONF_PATH_MAX)
		return FO_OK;
	struct fo_conf_sink sink;
	struct fo_conf_literal l = { .text = value, .len = (size_t)(end - value), .line = line, .python = true };
	fo_conf_sink_init(&sink, c);
	fo_status st = fo_conf_key(&sink, key, (size_t)(dots - key), line);
	/* Texts are printed without quotes: what is no literal is a text. */
	bool literal = value < end && (strchr("[({'\"", *value) || is_word(value, l.len, "None") ||
				       is_word(value, l.len, "True") || is_word(value, l.len, "False"));
	if (st == FO_OK)
		st = literal ? fo_conf_literal(&l, &sink)
			     : fo_conf_scalar(&sink, value, l.len, FO_CONF_VALUE, false, line);
	fo_conf_sink_fini(&sink);
	return st;
}

static fo_status dump(struct fo_conf *c, size_t at, int line)
{
	const char *s = c->text + at, *all = c->text + c->len;
	for (; s < all; line++) {
		const char *end = memchr(s, '\n', (size_t)(all - s));
		end = end ? end : all;
		if (find(s, (size_t)(end - s), "end of arguments"))
			break;
		if (end - s < 4096)
			FO_TRY(dump_line(c, s, end, line));
		s = end + (end < all);
	}
	return FO_OK;
}

/* Colours of a terminal would stand inside the values. */
static void drop_colours(struct fo_conf *c)
{
	char *to = fo_arena_alloc(&c->arena, c->len + 1);
	size_t n = 0;
	for (size_t i = 0; i < c->len; i++) {
		if (c->text[i] == 27 && i + 1 < c->len && c->text[i + 1] == '[') {
			for (i += 2; i < c->len && !isalpha((unsigned char)c->text[i]) && c->text[i] != '\n'; i++)
				;
			continue;
		}
		to[n++] = c->text[i];
	}
	c->text = to;
	c->len = n;
}

fo_status fo_conf_printed(struct fo_conf *c)
{
	size_t at = 0;
	int line = 1;
	if (memchr(c->text, 27, c->len))
		drop_colours(c);
	if (!fo_conf_find_printed(c->text, c->len, &at))
		return fo_fail(FO_EFORMAT, "'%s' holds no printed configuration", c->file);
	for (size_t i = 0; i < at; i++)
		line += c->text[i] == '\n';
	if (c->text[at] == ' ')
		return dump(c, at, line);
	return one(c, at, line, true, NULL);
}
