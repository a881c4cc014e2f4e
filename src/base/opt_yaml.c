/* Run files: the part of YAML that people write. Mappings of mappings of scalars; anchors, aliases, tags, lists and
 * several documents are refused, so that a file has one reading and cannot grow when it is read. */
#include "base/fs.h"
#include "base/opt_int.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum {
	DEPTH_MAX = 8, /* keys have two or three parts */
	SKIP_MAX = 64, /* nesting inside something that was already refused */
	KEY_MAX = 192, /* longest dotted key that is looked up; longer ones are unknown anyway */
};

struct reader {
	struct fo_opt_set *s;
	const char *where;                 /* the file's name */
	char path[DEPTH_MAX + 1][KEY_MAX]; /* dotted prefix per open mapping; "" for the outermost */
	int depth;                         /* open mappings; 0: the document's value comes next */
	int skip;                          /* > 0: inside a refused value, that many collections deep */
	bool have_key;                     /* the next scalar or mapping is a value */
	bool skip_value;                   /* ... of a key that was refused */
	char key[KEY_MAX];                 /* full dotted key when have_key */
	int documents;
	int *row_line;     /* per row: the line that set it, 0 when none did */
	int *section_line; /* per row: the line that opened the section which this row is the first of */
	bool stop;
};

static char *place(struct reader *r, int line) { return fo_arena_printf(&r->s->arena, "%s:%d", r->where, line); }

static bool quiet(const struct reader *r) { return r->s->problem_count >= FO_OPT_PROBLEMS_MAX; }

/* Index of the first row below section `path`, -1 when there is no such section. */
static int find_section(const struct fo_opt *rows, const char *path)
{
	size_t n = strlen(path);
	for (int i = 0; rows && rows[i].key; i++)
		if (!strncmp(rows[i].key, path, n) && rows[i].key[n] == '.')
			return i;
	return -1;
}

static void unknown_key(struct reader *r, int line)
{
	if (quiet(r)) { /* only counted: looking for the nearest of a million names would take hours */
		fo_opt_problem(r->s, "unknown");
		return;
	}
	fo_opt_set_text(r->s, r->key, "", FO_ORIGIN_FILE, place(r, line));
}

/* A scalar where a key is expected. */
static void on_key(struct reader *r, const yaml_event_t *e)
{
	int line = (int)e->start_mark.line + 1;
	const char *text = (const char *)e->data.scalar.value, *prefix = r->path[r->depth];
	size_t len = e->data.scalar.length;
	char shown[FO_OPT_SHOWN];
	r->have_key = true;
	r->skip_value = false;
	int n = snprintf(r->key, sizeof r->key, "%s%s%s", prefix, *prefix ? "." : "", text);
	if (len == 0 || strlen(text) != len || n >= (int)sizeof r->key) {
		fo_opt_problem(r->s, "%s:%d: '%s' cannot be a key", r->where, line, fo_opt_shown(shown, text, len));
		r->skip_value = true;
	} else if (fo_opt_find(r->s->rows, r->key) < 0 && find_section(r->s->rows, r->key) < 0) {
		unknown_key(r, line);
		r->skip_value = true;
	}
}

static void on_scalar(struct reader *r, const yaml_event_t *e)
{
	int line = (int)e->start_mark.line + 1;
	const char *text = (const char *)e->data.scalar.value;
	size_t len = e->data.scalar.length;
	char shown[FO_OPT_SHOWN];
	if (r->depth == 0) {
		if (len > 0)
			fo_opt_problem(r->s, "%s:%d: expected lines like 'key: value', got '%s'", r->where, line,
				       fo_opt_shown(shown, text, len));
		return;
	}
	if (!r->have_key) {
		on_key(r, e);
		return;
	}
	r->have_key = false;
	if (r->skip_value)
		return;
	int row = fo_opt_find(r->s->rows, r->key);
	if (row < 0) {
		/* A section whose entries are all commented out has an empty value. */
		bool empty = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
			     (len == 0 || !strcmp(text, "~") || !strcmp(text, "null"));
		if (!empty)
			fo_opt_problem(r->s, "%s:%d: '%s' is a section of keys, got the value '%s'", r->where, line,
				       r->key, fo_opt_shown(shown, text, len));
	} else if (r->row_line[row]) {
		fo_opt_problem(r->s, "%s:%d: '%s' was already set in line %d", r->where, line, r->key,
			       r->row_line[row]);
	} else {
		r->row_line[row] = line;
		fo_opt_assign(r->s, row, text, len, FO_ORIGIN_FILE, place(r, line));
	}
}

static void on_mapping(struct reader *r, const yaml_event_t *e)
{
	int line = (int)e->start_mark.line + 1;
	if (r->depth > 0 && !r->have_key) {
		fo_opt_problem(r->s, "%s:%d: a mapping cannot be a key", r->where, line);
		r->skip = 1;
		r->have_key = r->skip_value = true;
		return;
	}
	bool refused = r->depth > 0 && r->skip_value;
	if (r->depth > 0 && !refused) {
		int first = find_section(r->s->rows, r->key);
		if (first < 0 || fo_opt_find(r->s->rows, r->key) >= 0) {
			fo_opt_problem(r->s, "%s:%d: '%s' takes one value, got a mapping", r->where, line, r->key);
			refused = true;
		} else if (r->section_line[first] && strchr(r->key, '.') == NULL) {
			fo_opt_problem(r->s, "%s:%d: section '%s' was already opened in line %d", r->where, line,
				       r->key, r->section_line[first]);
		} else if (strchr(r->key, '.') == NULL) {
			r->section_line[first] = line;
		}
	}
	r->have_key = false;
	if (!refused && r->depth == DEPTH_MAX) {
		fo_opt_problem(r->s, "%s:%d: mappings are nested more than %d deep", r->where, line, DEPTH_MAX);
		refused = true;
	}
	if (refused) {
		r->skip = 1;
		return;
	}
	r->depth++;
	snprintf(r->path[r->depth], sizeof r->path[0], "%s", r->depth == 1 ? "" : r->key);
}

static void on_sequence(struct reader *r, const yaml_event_t *e)
{
	int line = (int)e->start_mark.line + 1;
	if (r->depth == 0)
		fo_opt_problem(r->s, "%s:%d: expected lines like 'key: value', got a list", r->where, line);
	else if (!r->have_key)
		fo_opt_problem(r->s, "%s:%d: a list cannot be a key", r->where, line);
	else if (!r->skip_value)
		fo_opt_problem(r->s, "%s:%d: '%s' takes one value, got a list", r->where, line, r->key);
	bool as_key = r->depth > 0 && !r->have_key;
	r->have_key = r->skip_value = as_key;
	r->skip = 1;
}

/* Reports what has no place in a run file, even inside a refused value: anchors, aliases, tags. */
static void check_plainness(struct reader *r, const yaml_event_t *e)
{
	int line = (int)e->start_mark.line + 1;
	const yaml_char_t *anchor = NULL, *tag = NULL;
	if (e->type == YAML_SCALAR_EVENT) {
		anchor = e->data.scalar.anchor;
		tag = e->data.scalar.tag;
	} else if (e->type == YAML_MAPPING_START_EVENT) {
		anchor = e->data.mapping_start.anchor;
		tag = e->data.mapping_start.tag;
	} else if (e->type == YAML_SEQUENCE_START_EVENT) {
		anchor = e->data.sequence_start.anchor;
		tag = e->data.sequence_start.tag;
	}
	char shown[FO_OPT_SHOWN];
	if (anchor)
		fo_opt_problem(r->s, "%s:%d: anchor '&%s' is not allowed in a run file", r->where, line,
			       fo_opt_shown(shown, (const char *)anchor, strlen((const char *)anchor)));
	if (tag)
		fo_opt_problem(r->s, "%s:%d: tag '%s' is not allowed in a run file", r->where, line,
			       fo_opt_shown(shown, (const char *)tag, strlen((const char *)tag)));
}

static void on_alias(struct reader *r, const yaml_event_t *e)
{
	char shown[FO_OPT_SHOWN];
	const char *name = (const char *)e->data.alias.anchor;
	fo_opt_problem(r->s, "%s:%d: alias '*%s' is not allowed in a run file", r->where, (int)e->start_mark.line + 1,
		       fo_opt_shown(shown, name, strlen(name)));
	if (r->skip)
		return;
	bool as_key = r->depth > 0 && !r->have_key;
	r->have_key = r->skip_value = as_key;
}

static void on_skipped(struct reader *r, const yaml_event_t *e)
{
	if (e->type == YAML_MAPPING_START_EVENT || e->type == YAML_SEQUENCE_START_EVENT)
		r->skip++;
	else if (e->type == YAML_MAPPING_END_EVENT || e->type == YAML_SEQUENCE_END_EVENT)
		r->skip--;
	if (r->skip > SKIP_MAX) {
		fo_opt_problem(r->s, "%s:%d: nested more than %d deep", r->where, (int)e->start_mark.line + 1,
			       SKIP_MAX);
		r->stop = true;
	}
}

static void on_event(struct reader *r, const yaml_event_t *e)
{
	check_plainness(r, e);
	if (e->type == YAML_ALIAS_EVENT)
		on_alias(r, e);
	else if (r->skip)
		on_skipped(r, e);
	else if (e->type == YAML_SCALAR_EVENT)
		on_scalar(r, e);
	else if (e->type == YAML_MAPPING_START_EVENT)
		on_mapping(r, e);
	else if (e->type == YAML_SEQUENCE_START_EVENT)
		on_sequence(r, e);
	else if (e->type == YAML_MAPPING_END_EVENT)
		r->depth--;
	else if (e->type == YAML_DOCUMENT_START_EVENT && ++r->documents > 1) {
		fo_opt_problem(r->s, "%s:%d: a second document starts here: a run file holds one", r->where,
			       (int)e->start_mark.line + 1);
		r->stop = true;
	}
}

/* libyaml gives a byte offset for what it cannot decode and a mark for what it cannot parse. */
static void note_syntax(struct reader *r, const yaml_parser_t *p, const char *text, size_t len)
{
	if (p->error == YAML_MEMORY_ERROR) {
		fo_opt_problem(r->s, "%s: cannot be parsed: out of memory", r->where);
		return;
	}
	if (p->error != YAML_READER_ERROR) {
		fo_opt_problem(r->s, "%s:%d: not valid YAML in column %d: %s", r->where, (int)p->problem_mark.line + 1,
			       (int)p->problem_mark.column + 1, p->problem ? p->problem : "cannot be parsed");
		return;
	}
	int line = 1;
	for (size_t i = 0; i < len && i < p->problem_offset; i++)
		line += text[i] == '\n';
	if (p->problem_value >= 0)
		fo_opt_problem(r->s, "%s:%d: not text: byte or character 0x%02x at byte %zu is not allowed", r->where,
			       line, (unsigned)p->problem_value, p->problem_offset);
	else
		fo_opt_problem(r->s, "%s:%d: not text: broken UTF-8 at byte %zu", r->where, line, p->problem_offset);
}

fo_status fo_opt_read_yaml_text(struct fo_opt_set *s, const char *text, size_t len, const char *where)
{
	if (len > FO_OPT_FILE_BYTES_MAX)
		return fo_fail(FO_EFORMAT, "'%s' has %zu bytes: a run file has at most %zu", where, len,
			       FO_OPT_FILE_BYTES_MAX);
	size_t rows = (size_t)fo_opt_count(s->rows) + 1, name = 4 * strlen(where) + 1; /* \xNN for each byte */
	struct reader r = { .s = s, .where = fo_str_visible(fo_arena_alloc(&s->arena, name), name, where) };
	r.row_line = fo_arena_alloc(&s->arena, rows * sizeof *r.row_line);
	r.section_line = fo_arena_alloc(&s->arena, rows * sizeof *r.section_line);
	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) { /* byte order mark of some editors */
		text += 3;
		len -= 3;
	}
	yaml_parser_t parser;
	if (!yaml_parser_initialize(&parser))
		return fo_fail(FO_ENOMEM, "cannot read '%s': out of memory", where);
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	while (!r.stop) {
		yaml_event_t e;
		if (!yaml_parser_parse(&parser, &e)) {
			note_syntax(&r, &parser, text, len);
			break;
		}
		r.stop = e.type == YAML_STREAM_END_EVENT;
		on_event(&r, &e);
		yaml_event_delete(&e);
	}
	yaml_parser_delete(&parser);
	return FO_OK;
}

fo_status fo_opt_read_yaml(struct fo_opt_set *s, const char *path)
{
	struct fo_arena a = { 0 };
	char *text;
	size_t len;
	fo_status st = fo_fs_read(&a, path, FO_OPT_FILE_BYTES_MAX, &text, &len);
	if (st == FO_OK)
		st = fo_opt_read_yaml_text(s, text, len, path);
	fo_arena_fini(&a);
	return st;
}
