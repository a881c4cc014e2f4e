/* Rungs from a YAML file: a mapping of rung names to `from`, `what`, `numerics-only` and options of a run, nested as in
 * a run file or with dots. */
#include "ladder/plan_int.h"

#include "base/fs.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { DEPTH = 4, KEY = 128, BYTES_MAX = 1 << 20 };

struct reader {
	struct fo_ladder_plan *p;
	struct fo_opt_set problems; /* of the whole file; its values are of no use */
	struct fo_run unused;
	const char *where;
	char path[DEPTH + 1][KEY]; /* below a rung: dotted prefix */
	char key[KEY];
	int depth; /* 1: names of rungs, 2: keys of one */
	bool have_key, stop;
	struct fo_ladder_change change[FO_LADDER_MAX_CHANGES];
};

static const char *shown(struct reader *r, const char *text)
{
	char buf[4 * 60 + 8], cut[64];
	snprintf(cut, sizeof cut, "%.60s", text);
	return fo_arena_strdup(&r->problems.arena, fo_str_visible(buf, sizeof buf, cut));
}

#define WRONG(r, line, ...) wrong(r, line, fo_arena_printf(&(r)->problems.arena, __VA_ARGS__))
static void wrong(struct reader *r, int line, const char *text)
{
	fo_opt_problem(&r->problems, "%s:%d: %s", r->where, line, text);
}

static struct fo_ladder_rung *rung(struct reader *r) { return &r->p->rung[r->p->rungs]; }

static int find(const struct fo_ladder_plan *p, const char *name)
{
	for (int i = 0; i < p->rungs; i++)
		if (!strcmp(p->rung[i].name, name))
			return i;
	return -1;
}

bool fo_ladder_name_ok(const char *name)
{
	static const char *const ours[] = { "data",        "lock",       FO_LADDER_PLAN_FILE, FO_LADDER_TEXT_FILE,
					    "ladder.json", "ladder.html" };
	size_t n = strlen(name);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && (!i || !strchr("-_.", name[i])))
			return false;
	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		if (!strcmp(name, ours[i]))
			return false;
	return n && n <= FO_LADDER_NAME_MAX;
}

static void begin_rung(struct reader *r, int line)
{
	struct fo_ladder_plan *p = r->p;
	if (!fo_ladder_name_ok(r->key))
		WRONG(r, line,
		      "'%s' cannot be a rung's name: 1 to %d letters, digits, '-', '_' and '.', no file of the "
		      "ladder's own (data, lock, ...)",
		      shown(r, r->key), FO_LADDER_NAME_MAX);
	else if (find(p, r->key) >= 0)
		WRONG(r, line, "there is a rung '%s' already", r->key);
	if (p->rungs == FO_LADDER_MAX_RUNGS) {
		WRONG(r, line, "more than %d rungs", FO_LADDER_MAX_RUNGS);
		r->stop = true;
		return;
	}
	*rung(r) = (struct fo_ladder_rung){ .name = fo_arena_strdup(&p->arena, r->key),
					    .what = "",
					    .from = p->rungs - 1 };
}

static void end_rung(struct reader *r, int line)
{
	struct fo_ladder_rung *g = rung(r);
	struct fo_ladder_change *c = fo_arena_alloc(&r->p->arena, (size_t)(g->changes + 1) * sizeof *c);
	memcpy(c, r->change, (size_t)g->changes * sizeof *c);
	g->change = c;
	if (!g->changes && g->from >= 0)
		WRONG(r, line, "rung '%s' changes nothing", g->name);
	/* Values that are wrong are told already; what follows from them would be told in vain. */
	if (!r->problems.problem_count)
		fo_ladder_plan_derive(r->p, r->p->rungs);
	r->p->rungs++;
}

static void set_option(struct reader *r, const char *key, const char *value, int line)
{
	struct fo_ladder_rung *g = rung(r);
	for (int k = 0; k < g->changes; k++)
		if (!strcmp(r->change[k].key, key)) {
			WRONG(r, line, "'%s' is set twice in rung '%s'", key, g->name);
			return;
		}
	if (fo_ladder_key_reserved(key)) {
		WRONG(r, line, "'%s' is the same for all rungs: set it in the run file or on the command line",
		      shown(r, key));
		return;
	}
	if (g->changes == FO_LADDER_MAX_CHANGES) {
		WRONG(r, line, "rung '%s' changes more than %d options", g->name, FO_LADDER_MAX_CHANGES);
		return;
	}
	int before = r->problems.problem_count;
	fo_opt_set_text(&r->problems, key, value, FO_ORIGIN_FILE,
			fo_arena_printf(&r->problems.arena, "%s:%d", r->where, line));
	if (r->problems.problem_count > before)
		return;
	/* The canonical form, so that "no" and "false" are one value. */
	for (int i = 0; fo_run_options[i].key; i++)
		if (!strcmp(fo_run_options[i].key, key))
			value = fo_opt_value_text(&r->problems, i);
	r->change[g->changes++] = (struct fo_ladder_change){ fo_arena_strdup(&r->p->arena, key),
							     fo_arena_strdup(&r->p->arena, value), NULL };
}

static void set_value(struct reader *r, const char *key, const char *value, int line)
{
	struct fo_ladder_rung *g = rung(r);
	if (!strcmp(key, "from")) {
		g->from = find(r->p, value);
		if (g->from < 0)
			WRONG(r, line, "rung '%s' starts from '%s', which is no rung above it", g->name,
			      shown(r, value));
	} else if (!strcmp(key, "what")) {
		g->what = fo_arena_strdup(&r->p->arena, value);
	} else if (!strcmp(key, "numerics-only")) {
		g->numerics_only = !strcmp(value, "yes") || !strcmp(value, "true");
		if (!g->numerics_only && strcmp(value, "no") && strcmp(value, "false"))
			WRONG(r, line, "'numerics-only' must be yes or no, got '%s'", shown(r, value));
	} else {
		set_option(r, key, value, line);
	}
}

static void on_scalar(struct reader *r, const yaml_event_t *e)
{
	int line = (int)e->start_mark.line + 1;
	const char *text = (const char *)e->data.scalar.value;
	bool whole = strlen(text) == e->data.scalar.length;
	if (r->depth == 0) {
		if (*text)
			WRONG(r, line, "expected rungs like 'name: {key: value}', got '%s'", shown(r, text));
	} else if (!r->have_key) {
		const char *prefix = r->depth > 2 ? r->path[r->depth] : "";
		int n = snprintf(r->key, sizeof r->key, "%s%s%s", prefix, *prefix ? "." : "", text);
		if (!whole || !*text || n >= (int)sizeof r->key) {
			WRONG(r, line, "'%s' cannot be a key", shown(r, text));
			r->stop = true;
		}
		r->have_key = true;
	} else {
		r->have_key = false;
		if (!whole)
			WRONG(r, line, "the value of '%s' holds a zero byte", shown(r, r->key));
		else if (r->depth > 1)
			set_value(r, r->key, text, line);
		else if (*text)
			WRONG(r, line, "rung '%s' takes a mapping of options, got '%s'", shown(r, r->key),
			      shown(r, text));
		else { /* a rung that changes nothing: a baseline that is the run file as it stands */
			begin_rung(r, line);
			if (!r->stop)
				end_rung(r, line);
		}
	}
}

static void on_mapping(struct reader *r, int line)
{
	if (r->depth && !r->have_key) {
		WRONG(r, line, "a mapping cannot be a key");
		r->stop = true;
	} else if (r->depth == DEPTH) {
		WRONG(r, line, "mappings are nested more than %d deep", DEPTH);
		r->stop = true;
	} else if (r->depth++ == 1) {
		begin_rung(r, line);
	} else if (r->depth > 2) {
		snprintf(r->path[r->depth], sizeof r->path[0], "%s", r->key);
	}
	r->have_key = false;
}

static void on_event(struct reader *r, const yaml_event_t *e)
{
	int line = (int)e->start_mark.line + 1;
	bool special = e->type == YAML_ALIAS_EVENT || e->type == YAML_SEQUENCE_START_EVENT;
	if (e->type == YAML_SCALAR_EVENT)
		special = e->data.scalar.anchor || e->data.scalar.tag;
	else if (e->type == YAML_MAPPING_START_EVENT)
		special = e->data.mapping_start.anchor || e->data.mapping_start.tag;
	if (special) {
		WRONG(r, line, "anchors, aliases, tags and lists are not allowed in a file of rungs");
		r->stop = true;
	} else if (e->type == YAML_SCALAR_EVENT) {
		on_scalar(r, e);
	} else if (e->type == YAML_MAPPING_START_EVENT) {
		on_mapping(r, line);
	} else if (e->type == YAML_MAPPING_END_EVENT && r->depth-- == 2) {
		end_rung(r, line);
	} else if (e->type == YAML_DOCUMENT_END_EVENT || e->type == YAML_STREAM_END_EVENT) {
		r->stop = true;
	}
}

static void parse(struct reader *r, const char *text, size_t len)
{
	yaml_parser_t parser;
	if (!yaml_parser_initialize(&parser)) {
		fo_opt_problem(&r->problems, "%s: cannot be parsed: out of memory", r->where);
		return;
	}
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	while (!r->stop) {
		yaml_event_t e;
		if (!yaml_parser_parse(&parser, &e)) {
			WRONG(r, (int)parser.problem_mark.line + 1, "not valid YAML: %s",
			      parser.problem ? parser.problem : "cannot be parsed");
			break;
		}
		on_event(r, &e);
		yaml_event_delete(&e);
	}
	yaml_parser_delete(&parser);
}

fo_status fo_ladder_plan_text(struct fo_ladder_plan *p, const char *text, size_t len, const char *where)
{
	struct reader r = { .p = p };
	fo_opt_init(&r.problems, fo_run_options, &r.unused);
	r.where = shown(&r, where);
	p->rung = fo_arena_alloc(&p->arena, (FO_LADDER_MAX_RUNGS + 1) * sizeof *p->rung);
	parse(&r, text, len);
	if (!p->rungs && !r.problems.problem_count)
		fo_opt_problem(&r.problems, "%s: no rungs", r.where);
	fo_status st = fo_ladder_plan_check(p, &r.problems);
	fo_opt_fini(&r.problems);
	return st;
}

fo_status fo_ladder_plan_file(struct fo_ladder_plan *p, const char *path)
{
	char *text;
	size_t len;
	FO_TRY(fo_fs_read(&p->arena, path, BYTES_MAX, &text, &len));
	return fo_ladder_plan_text(p, text, len, path);
}

void fo_ladder_fini(struct fo_ladder *l)
{
	fo_arena_fini(&l->arena);
	*l = (struct fo_ladder){ 0 };
}
