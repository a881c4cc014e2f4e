/* The list of settings that all readers fill. */
#include "base/text.h"
#include "job/conf_int.h"

#include <stdio.h>
#include <stdlib.h>

bool fo_conf_same_key(const char *a, const char *b)
{
	for (;;) {
		while (*a == '-' || *a == '_')
			a++;
		while (*b == '-' || *b == '_')
			b++;
		if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
			return false;
		if (!*a)
			return true;
		a++;
		b++;
	}
}

const struct fo_conf_entry *fo_conf_find(const struct fo_conf *c, const char *path)
{
	for (size_t i = c->entries; i-- > 0;)
		if (fo_conf_same_key(c->entry[i].path, path))
			return &c->entry[i];
	return NULL;
}

fo_status fo_conf_add(struct fo_conf *c, const char *path, const char *text, size_t n, enum fo_conf_kind kind,
		      bool quoted, int line)
{
	if (c->entries == FO_CONF_ENTRIES_MAX)
		return fo_fail(FO_EFORMAT, "%s:%d: more than %d settings", c->file, line, FO_CONF_ENTRIES_MAX);
	if (n > FO_CONF_VALUE_MAX) /* a prompt or a list of files; no setting that is read here is so long */
		n = FO_CONF_VALUE_MAX;
	fo_array_room(&c->entry, &c->cap, c->entries, sizeof *c->entry);
	char *value = fo_arena_alloc(&c->arena, n + 1);
	memcpy(value, text, n);
	c->entry[c->entries++] = (struct fo_conf_entry){
		.path = fo_arena_strdup(&c->arena, path),
		.value = value,
		.line = line,
		.quoted = quoted,
		.kind = kind,
	};
	return FO_OK;
}

fo_status fo_conf_add_given(struct fo_conf *c, const char *key, const char *value)
{
	return fo_conf_add(c, key, value, strlen(value), FO_CONF_VALUE, true, 0);
}

void fo_conf_sink_init(struct fo_conf_sink *s, struct fo_conf *c)
{
	*s = (struct fo_conf_sink){ .conf = c };
	fo_str_puts(&s->path, "");
	fo_str_puts(&s->joined, "");
}

void fo_conf_sink_fini(struct fo_conf_sink *s)
{
	fo_str_fini(&s->path);
	fo_str_fini(&s->joined);
}

static void cut(struct fo_str *s, size_t len)
{
	s->len = len;
	s->data[len] = '\0';
}

fo_status fo_conf_key(struct fo_conf_sink *s, const char *key, size_t n, int line)
{
	cut(&s->path, s->level[s->depth].path);
	if (memchr(key, '\0', n))
		return fo_fail(FO_EFORMAT, "%s:%d: a key holds a NUL character", s->conf->file, line);
	if (s->path.len + n + 1 > FO_CONF_PATH_MAX)
		return fo_fail(FO_EFORMAT, "%s:%d: a key has more than %d characters", s->conf->file, line,
			       FO_CONF_PATH_MAX);
	if (s->path.len)
		fo_str_puts(&s->path, ".");
	fo_str_append(&s->path, key, n);
	return FO_OK;
}

/* In a list the next value's key is its number. */
static fo_status number_key(struct fo_conf_sink *s, int line)
{
	char key[24];
	int n = snprintf(key, sizeof key, "%ld", s->level[s->depth].items++);
	return fo_conf_key(s, key, (size_t)n, line);
}

fo_status fo_conf_scalar(struct fo_conf_sink *s, const char *text, size_t n, enum fo_conf_kind kind, bool quoted,
			 int line)
{
	struct fo_conf_level *l = &s->level[s->depth];
	if (!l->list)
		return fo_conf_add(s->conf, s->path.data, text, n, kind, quoted, line);
	l->items++;
	if (l->scalars++)
		fo_str_puts(&s->joined, ",");
	if (s->joined.len - l->joined + n <= FO_CONF_VALUE_MAX)
		fo_str_append(&s->joined, text, n);
	return FO_OK;
}

fo_status fo_conf_open(struct fo_conf_sink *s, bool list, int line)
{
	if (s->level[s->depth].list)
		FO_TRY(number_key(s, line));
	if (s->depth == FO_CONF_DEPTH_MAX)
		return fo_fail(FO_EFORMAT, "%s:%d: nested more than %d deep", s->conf->file, line, FO_CONF_DEPTH_MAX);
	s->level[++s->depth] = (struct fo_conf_level){
		.path = s->path.len,
		.joined = s->joined.len,
		.list = list,
		.line = line,
	};
	return FO_OK;
}

fo_status fo_conf_close(struct fo_conf_sink *s)
{
	struct fo_conf_level *l = &s->level[s->depth];
	fo_status st = FO_OK;
	cut(&s->path, l->path);
	if (l->list && (l->scalars || !l->items))
		st = fo_conf_add(s->conf, s->path.data, s->joined.data + l->joined, s->joined.len - l->joined,
				 FO_CONF_LIST, false, l->line);
	cut(&s->joined, l->joined);
	s->depth--;
	return st;
}

void fo_conf_fini(struct fo_conf *c)
{
	free(c->entry);
	fo_arena_fini(&c->arena);
	*c = (struct fo_conf){ 0 };
}
