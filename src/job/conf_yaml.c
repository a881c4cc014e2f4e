/* YAML: mappings, lists and scalars of any depth, several documents; aliases stay unresolved. What OmegaConf and NeMo
 * write as ${a.b}, ${.b} and ${multiply:2, ${.b}} is looked up in the same file. */
#include "base/fs.h"
#include "base/str.h"
#include "job/conf_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct yaml {
	struct fo_conf_sink s;
	bool map[FO_CONF_DEPTH_MAX + 2]; /* is the open collection a mapping */
	bool key[FO_CONF_DEPTH_MAX + 2]; /* a key was read, its value comes next */
	int depth;
};

static bool is_null(const char *text, size_t n)
{
	static const char *const word[] = { "", "~", "null", "Null", "NULL" };
	for (size_t i = 0; i < sizeof word / sizeof *word; i++)
		if (n == strlen(word[i]) && !memcmp(text, word[i], n))
			return true;
	return false;
}

static bool expects_key(const struct yaml *y) { return y->depth > 0 && y->map[y->depth] && !y->key[y->depth]; }
static bool at_root(const struct yaml *y) { return y->depth == 0; }

static fo_status on_scalar(struct yaml *y, const char *text, size_t n, bool plain, int line)
{
	struct fo_conf *c = y->s.conf;
	if (expects_key(y)) {
		y->key[y->depth] = true;
		return fo_conf_key(&y->s, text, n, line);
	}
	if (at_root(y)) {
		if (is_null(text, n))
			return FO_OK;
		return fo_fail(FO_EFORMAT, "%s:%d: no configuration: expected settings like 'key: value'", c->file,
			       line);
	}
	y->key[y->depth] = false;
	enum fo_conf_kind kind = FO_CONF_VALUE;
	if (plain && is_null(text, n))
		kind = FO_CONF_NULL;
	else if (n > 1 && *text == '$')
		kind = FO_CONF_OPEN;
	return fo_conf_scalar(&y->s, text, n, kind, !plain, line);
}

static fo_status on_open(struct yaml *y, bool list, int line)
{
	if (expects_key(y))
		return fo_fail(FO_EFORMAT, "%s:%d: a key must be a word, got a %s", y->s.conf->file, line,
			       list ? "list" : "mapping");
	y->key[y->depth] = false;
	FO_TRY(fo_conf_open(&y->s, list, line));
	y->depth++;
	y->map[y->depth] = !list;
	y->key[y->depth] = false;
	return FO_OK;
}

static fo_status on_event(struct yaml *y, const yaml_event_t *e)
{
	int line = (int)e->start_mark.line + 1;
	if (e->type == YAML_SCALAR_EVENT)
		return on_scalar(y, (const char *)e->data.scalar.value, e->data.scalar.length,
				 e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE, line);
	if (e->type == YAML_MAPPING_START_EVENT || e->type == YAML_SEQUENCE_START_EVENT)
		return on_open(y, e->type == YAML_SEQUENCE_START_EVENT, line);
	if (e->type == YAML_MAPPING_END_EVENT || e->type == YAML_SEQUENCE_END_EVENT) {
		y->depth--;
		return fo_conf_close(&y->s);
	}
	if (e->type == YAML_ALIAS_EVENT) {
		char name[256];
		int n = snprintf(name, sizeof name, "*%s", (const char *)e->data.alias.anchor);
		size_t len = n < (int)sizeof name ? (size_t)n : sizeof name - 1;
		if (expects_key(y))
			return on_scalar(y, name, len, true, line);
		y->key[y->depth] = false;
		return at_root(y) ? FO_OK : fo_conf_scalar(&y->s, name, len, FO_CONF_OPEN, false, line);
	}
	return FO_OK;
}

static fo_status syntax(const struct fo_conf *c, const yaml_parser_t *p)
{
	if (p->error == YAML_MEMORY_ERROR)
		return fo_fail(FO_ENOMEM, "cannot read '%s': out of memory", c->file);
	if (p->error == YAML_READER_ERROR) {
		int line = 1;
		for (size_t i = 0; i < c->len && i < p->problem_offset; i++)
			line += c->text[i] == '\n';
		return fo_fail(FO_EFORMAT, "%s:%d: not text: a byte or character at byte %zu is not allowed", c->file,
			       line, p->problem_offset);
	}
	return fo_fail(FO_EFORMAT, "%s:%d: not valid YAML in column %d: %s", c->file, (int)p->problem_mark.line + 1,
		       (int)p->problem_mark.column + 1, p->problem ? p->problem : "cannot be parsed");
}

/* ---- interpolation ---- */

enum { RESOLVE_DEPTH = 8 };

static const char *resolve(struct fo_conf *c, const char *at, const char *value, int depth);

/* The value at `name`, which is absolute or (".x") relative to the section of `at`; NULL: unknown. */
static const char *look_up(struct fo_conf *c, const char *at, const char *name, int depth)
{
	const char *path = name;
	if (*name == '.') {
		const char *dot = strrchr(at, '.');
		path = dot ? fo_arena_printf(&c->arena, "%.*s%s", (int)(dot - at), at, name) : name + 1;
	}
	for (size_t i = 0; i < c->entries; i++)
		if (!strcmp(c->entry[i].path, path)) {
			if (c->entry[i].kind != FO_CONF_OPEN)
				return c->entry[i].value;
			return resolve(c, path, c->entry[i].value, depth + 1);
		}
	return NULL;
}

/* "multiply:4, ${.hidden_size}": the product; NULL where a factor is unknown. */
static const char *product(struct fo_conf *c, const char *at, const char *list, int depth)
{
	double all = 1;
	const char *comma = strchr(list, ',');
	if (!comma || depth > RESOLVE_DEPTH)
		return NULL;
	const char *part[2] = { fo_arena_printf(&c->arena, "%.*s", (int)(comma - list), list), comma + 1 };
	for (int i = 0; i < 2; i++) {
		char *end;
		const char *text = part[i] + strspn(part[i], " ");
		if (*text == '$')
			text = resolve(c, at, text, depth + 1);
		double v = text ? strtod(text, &end) : NAN;
		if (!text || end == text || !isfinite(v))
			return NULL;
		all *= v;
	}
	return fo_arena_printf(&c->arena, "%.15g", all);
}

static const char *resolve(struct fo_conf *c, const char *at, const char *value, int depth)
{
	size_t n = strlen(value);
	while (n && value[n - 1] == ' ')
		n--;
	if (depth > RESOLVE_DEPTH || n < 4 || n > 1000 || strncmp(value, "${", 2) || value[n - 1] != '}')
		return NULL;
	const char *inner = fo_arena_printf(&c->arena, "%.*s", (int)(n - 3), value + 2);
	if (!strncmp(inner, "multiply:", 9))
		return product(c, at, inner + 9, depth);
	if (strpbrk(inner, "${}:, "))
		return NULL;
	return look_up(c, at, inner, depth);
}

static void interpolate(struct fo_conf *c)
{
	int tried = 0; /* a file of nothing but references is no configuration */
	for (size_t i = 0; i < c->entries && tried < 200; i++) {
		struct fo_conf_entry *e = &c->entry[i];
		if (e->kind != FO_CONF_OPEN || e->value[0] != '$' || e->value[1] != '{')
			continue;
		tried++;
		const char *found = resolve(c, e->path, e->value, 0);
		if (found) {
			e->value = found;
			e->kind = is_null(found, strlen(found)) ? FO_CONF_NULL : FO_CONF_VALUE;
		}
	}
}

fo_status fo_conf_yaml(struct fo_conf *c)
{
	struct yaml y = { .depth = 0 };
	yaml_parser_t parser;
	if (!yaml_parser_initialize(&parser))
		return fo_fail(FO_ENOMEM, "cannot read '%s': out of memory", c->file);
	fo_conf_sink_init(&y.s, c);
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)c->text, c->len);
	fo_status st = FO_OK;
	for (bool stop = false; st == FO_OK && !stop;) {
		yaml_event_t e;
		if (!yaml_parser_parse(&parser, &e)) {
			st = syntax(c, &parser);
			break;
		}
		stop = e.type == YAML_STREAM_END_EVENT;
		st = on_event(&y, &e);
		yaml_event_delete(&e);
	}
	yaml_parser_delete(&parser);
	fo_conf_sink_fini(&y.s);
	if (st == FO_OK)
		interpolate(c);
	return st;
}
