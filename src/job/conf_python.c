/* Python source that builds a configuration, as torchtitan's config_registry.py: functions that return a call with
 * keywords, and functions that take what another one returns and set single members. Read, never run: what needs
 * evaluation stays open. */
#include "base/str.h"
#include "job/conf_int.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { FUNCTIONS_MAX = 400, CALLS_DEEP = 6, CALLS_MAX = 100, NAMES_MAX = 40 };

struct function {
	const char *name;
	size_t name_len, body, end; /* bytes of the file */
	int line;                   /* of the body */
	bool builds;                /* it returns a configuration */
};
struct source {
	struct fo_conf *c;
	struct function function[FUNCTIONS_MAX];
	int functions, calls;
};

/* The end of the line that begins at `at`. */
static size_t line_end(const struct fo_conf *c, size_t at)
{
	const char *end = memchr(c->text + at, '\n', c->len - at);
	return end ? (size_t)(end - c->text) : c->len;
}

static size_t indent(const struct fo_conf *c, size_t at)
{
	size_t n = 0;
	while (at + n < c->len && (c->text[at + n] == ' ' || c->text[at + n] == '\t'))
		n++;
	return n;
}

static bool begins(const struct fo_conf *c, size_t at, const char *word)
{
	size_t n = strlen(word);
	return c->len - at >= n && !memcmp(c->text + at, word, n);
}

static size_t word_at(const struct fo_conf *c, size_t at)
{
	size_t n = 0;
	while (at + n < c->len && (isalnum((unsigned char)c->text[at + n]) || c->text[at + n] == '_'))
		n++;
	return n;
}

static bool holds(const struct fo_conf *c, size_t from, size_t to, const char *word)
{
	for (size_t i = from; i + strlen(word) <= to; i++)
		if (!memcmp(c->text + i, word, strlen(word)))
			return true;
	return false;
}

static void find_functions(struct source *s)
{
	const struct fo_conf *c = s->c;
	int line = 1;
	struct function *open = NULL;
	for (size_t at = 0; at < c->len; at = line_end(c, at) + 1, line++) {
		if (open && at < c->len && !isspace((unsigned char)c->text[at]) && c->text[at] != '#' &&
		    c->text[at] != ')') {
			open->end = at;
			open = NULL;
		}
		if (!begins(c, at, "def ") || s->functions == FUNCTIONS_MAX)
			continue;
		open = &s->function[s->functions++];
		*open = (struct function){ .name = c->text + at + 4, .name_len = word_at(c, at + 4), .end = c->len };
		/* The body begins behind the colon that ends the head. */
		int deep = 0;
		size_t p = at;
		for (; p < c->len && (deep || c->text[p] != ':'); p++) {
			deep += c->text[p] == '(' || c->text[p] == '[';
			deep -= c->text[p] == ')' || c->text[p] == ']';
			line += c->text[p] == '\n';
		}
		at = p;
		open->body = p < c->len ? line_end(c, p) + 1 : c->len;
		open->line = line + 1;
	}
	for (int i = 0; i < s->functions; i++) {
		struct function *f = &s->function[i];
		f->body = f->body < c->len ? f->body : c->len;
		f->end = f->end > f->body ? f->end : f->body;
		size_t head = (size_t)(f->name - c->text);
		f->builds = holds(c, head, f->body, "Config:") || holds(c, f->body, f->end, "return Trainer.Config(") ||
			    holds(c, f->body, f->end, "return JobConfig(");
	}
}

static const struct function *function_named(const struct source *s, const char *name, size_t n)
{
	for (int i = 0; i < s->functions; i++)
		if (s->function[i].name_len == n && !memcmp(s->function[i].name, name, n))
			return &s->function[i];
	return NULL;
}

/* The value at `at` below the path `key`; where it ends. */
static fo_status value(struct source *s, size_t at, size_t end, int *line, const char *key, size_t key_len,
		       size_t *stop)
{
	struct fo_conf_sink sink;
	struct fo_conf_literal l = { .text = s->c->text, .len = end, .at = at, .line = *line, .python = true };
	fo_conf_sink_init(&sink, s->c);
	fo_status st = key_len ? fo_conf_key(&sink, key, key_len, *line) : FO_OK;
	if (st == FO_OK)
		st = fo_conf_literal(&l, &sink);
	fo_conf_sink_fini(&sink);
	*stop = l.at;
	*line = l.line;
	return st;
}

static fo_status run(struct source *s, const struct function *f, int deep);

/* "config = llama3_debugmodel()": what that function sets. */
static fo_status call_own(struct source *s, size_t at, size_t end, int deep, bool *own)
{
	size_t n = word_at(s->c, at);
	*own = false;
	if (!n || at + n >= end || s->c->text[at + n] != '(')
		return FO_OK;
	const struct function *f = function_named(s, s->c->text + at, n);
	if (!f)
		return FO_OK;
	*own = true;
	if (deep == CALLS_DEEP || s->calls++ == CALLS_MAX)
		return fo_fail(FO_EFORMAT, "%s: functions call each other without end", s->c->file);
	return run(s, f, deep + 1);
}

/* One statement of a function's body. *at: behind it. */
static fo_status statement(struct source *s, size_t *at, size_t end, int *line, const char **config, size_t *config_len,
			   int deep)
{
	const struct fo_conf *c = s->c;
	size_t from = *at, n = word_at(c, from), p = from;
	bool own = false;
	*at = line_end(c, from);
	if (begins(c, from, "return ")) {
		p = from + 7;
		FO_TRY(call_own(s, p, end, deep, &own));
		if (own || (*config_len && word_at(c, p) == *config_len && !memcmp(c->text + p, *config, *config_len)))
			return FO_OK;
		return value(s, p, end, line, "", 0, at);
	}
	if (begins(c, from, "\"\"\"")) { /* a description */
		const char *close = strstr(c->text + from + 3, "\"\"\"");
		*at = close ? (size_t)(close + 3 - c->text) : end;
		for (size_t i = from; i < *at; i++)
			*line += c->text[i] == '\n';
		return FO_OK;
	}
	while (p < end && (isalnum((unsigned char)c->text[p]) || c->text[p] == '_' || c->text[p] == '.'))
		p++;
	size_t target = p;
	while (p < end && c->text[p] == ' ')
		p++;
	if (!n || p + 1 >= end || c->text[p] != '=' || c->text[p + 1] == '=')
		return FO_OK;
	p++;
	while (p < end && c->text[p] == ' ')
		p++;
	bool member = *config_len && n == *config_len && !memcmp(c->text + from, *config, n) && target > from + n + 1;
	if (member)
		return value(s, p, end, line, c->text + from + n + 1, target - from - n - 1, at);
	if (target != from + n)
		return FO_OK;
	FO_TRY(call_own(s, p, end, deep, &own));
	if (own || begins(c, p, "Trainer.Config(") || begins(c, p, "JobConfig(")) {
		*config = c->text + from;
		*config_len = n;
		return own ? FO_OK : value(s, p, end, line, "", 0, at);
	}
	/* A name for a part: kept as "$name" until the configuration takes it. */
	char key[FO_CONF_PATH_MAX];
	int len = snprintf(key, sizeof key, "$%.*s", (int)n, c->text + from);
	return len < (int)sizeof key ? value(s, p, end, line, key, (size_t)len, at) : FO_OK;
}

/* "config.training.steps = 5" below a condition, which is not evaluated: the member is open. */
static fo_status conditional(struct source *s, size_t at, int line, const char *config, size_t config_len)
{
	const struct fo_conf *c = s->c;
	size_t end = line_end(c, at), p = at + config_len + 1;
	if (!config_len || end - at < config_len + 2 || memcmp(c->text + at, config, config_len) ||
	    c->text[at + config_len] != '.')
		return FO_OK;
	while (p < end && (isalnum((unsigned char)c->text[p]) || c->text[p] == '_' || c->text[p] == '.'))
		p++;
	size_t key = p - at - config_len - 1;
	while (p < end && c->text[p] == ' ')
		p++;
	if (!key || key >= FO_CONF_PATH_MAX || p + 1 >= end || c->text[p] != '=' || c->text[p + 1] == '=')
		return FO_OK;
	char path[FO_CONF_PATH_MAX + 1];
	snprintf(path, sizeof path, "%.*s", (int)key, c->text + at + config_len + 1);
	return fo_conf_add(s->c, path, c->text + at, end - at < 200 ? end - at : 200, FO_CONF_OPEN, false, line);
}

static fo_status run(struct source *s, const struct function *f, int deep)
{
	const struct fo_conf *c = s->c;
	const char *config = NULL;
	size_t config_len = 0, own = indent(c, f->body);
	int line = f->line;
	for (size_t at = f->body; at < f->end;) {
		size_t in = indent(c, at);
		bool blank = at + in >= f->end || c->text[at + in] == '\n' || c->text[at + in] == '#';
		size_t next = line_end(c, at);
		if (!blank && in == own) {
			next = at + in;
			FO_TRY(statement(s, &next, f->end, &line, &config, &config_len, deep));
			next = next < f->end ? line_end(c, next) : f->end;
		} else if (!blank) {
			FO_TRY(conditional(s, at + in, line, config, config_len));
		}
		at = next + 1;
		line++;
	}
	return FO_OK;
}

static fo_status choose(const struct source *s, const struct function **out)
{
	const struct fo_conf *c = s->c;
	struct fo_str names = { 0 };
	int builds = 0;
	*out = NULL;
	for (int i = 0; i < s->functions; i++)
		if (s->function[i].builds) {
			if (builds++ < NAMES_MAX)
				fo_str_printf(&names, "%s%.*s", names.len ? ", " : "", (int)s->function[i].name_len,
					      s->function[i].name);
			*out = &s->function[i];
		}
	fo_status st = FO_OK;
	if (c->function) {
		*out = function_named(s, c->function, strlen(c->function));
		if (!*out)
			st = fo_fail(FO_EFORMAT, "'%s' has no function '%s'; it has %s", c->file, c->function,
				     builds ? names.data : "none that returns a configuration");
	} else if (builds > 1) {
		st = fo_hint(fo_fail(FO_EFORMAT, "'%s' has %d configurations: %s%s", c->file, builds, names.data,
				     builds > NAMES_MAX ? ", ..." : ""),
			     "name one behind the file: '%s:%.*s'", c->file, (int)(*out)->name_len, (*out)->name);
	} else if (!builds) {
		st = fo_hint(
			fo_fail(FO_EFORMAT, "'%s' is a Python program, no configuration", c->file),
			"give what it makes: the configuration that the run prints or saves (run_config.yaml, a log's "
			"first lines), or a file whose functions return one");
	}
	fo_str_fini(&names);
	return st;
}

/* Where the variable was set last before entry i; SIZE_MAX: nowhere. */
static size_t assigned(const struct fo_conf *c, size_t i, const char *name)
{
	while (i-- > 0)
		if (c->entry[i].path[0] == '$' && !strcmp(c->entry[i].path + 1, name))
			return i;
	return SIZE_MAX;
}

/* Is the member set anew behind entry i? */
static bool set_later(const struct fo_conf *c, size_t i, size_t n, const char *path)
{
	while (++i < n)
		if (!strcmp(c->entry[i].path, path))
			return true;
	return false;
}

/* "compile=compile_config": the entries of the variable go below the key; then the variables are dropped. */
static fo_status put_variables(struct fo_conf *c)
{
	enum { COPIES = 5000 };
	size_t copies = 0, kept = 0, n = c->entries;
	for (size_t i = 0; i < n && copies < COPIES; i++) {
		struct fo_conf_entry e = c->entry[i];
		size_t from = e.kind == FO_CONF_OPEN ? assigned(c, i, e.value) : SIZE_MAX;
		if (from == SIZE_MAX || e.path[0] == '$')
			continue;
		size_t name = strlen(e.value) + 1;
		c->entry[i].kind = c->entry[from].kind;
		c->entry[i].value = c->entry[from].value;
		c->entry[i].line = c->entry[from].line;
		c->entry[i].quoted = c->entry[from].quoted;
		for (size_t k = from + 1; k < i && !strncmp(c->entry[k].path, c->entry[from].path, name) &&
					  c->entry[k].path[name] == '.' && copies++ < COPIES;
		     k++) {
			const struct fo_conf_entry part = c->entry[k];
			const char *path = fo_arena_printf(&c->arena, "%s%s", e.path, part.path + name);
			if (set_later(c, i, n, path))
				continue;
			FO_TRY(fo_conf_add(c, path, part.value, strlen(part.value), part.kind, part.quoted, part.line));
		}
	}
	for (size_t i = 0; i < c->entries; i++)
		if (c->entry[i].path[0] != '$')
			c->entry[kept++] = c->entry[i];
	c->entries = kept;
	return FO_OK;
}

fo_status fo_conf_python(struct fo_conf *c)
{
	struct source *s = fo_arena_alloc(&c->arena, sizeof *s);
	const struct function *f;
	s->c = c;
	find_functions(s);
	FO_TRY(choose(s, &f));
	c->function = fo_arena_printf(&c->arena, "%.*s", (int)f->name_len, f->name);
	FO_TRY(run(s, f, 0));
	return put_variables(c);
}
