/* The engine of the tables: a file's settings as ours. */
#include "job/forms.h"
#include "base/str.h"

#include <ctype.h>
#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- keys ---- */

/* The next word of a list that is parted by `by`; its length, 0 at the end. */
static size_t next(const char **list, char by)
{
	while (**list == by)
		++*list;
	const char *end = strchr(*list, by);
	return end ? (size_t)(end - *list) : strlen(*list);
}

/* Does `path` begin with the first n bytes of `prefix`? Then what follows; else NULL. */
static const char *after(const char *path, const char *prefix, size_t n)
{
	return strncasecmp(path, prefix, n) ? NULL : path + n;
}

static bool key_matches(const struct fo_form *f, const char *path, const char *key)
{
	if (fo_conf_same_key(path, key))
		return true;
	const char *list = f->prefix ? f->prefix : "";
	for (size_t n; (n = next(&list, ' ')); list += n) {
		const char *rest = after(path, list, n);
		if (rest && fo_conf_same_key(rest, key))
			return true;
	}
	return false;
}

const struct fo_form_row *fo_form_row_of(const struct fo_form *f, const char *path)
{
	for (size_t t = 0; t < sizeof f->rows / sizeof *f->rows && f->rows[t]; t++)
		for (const struct fo_form_row *row = f->rows[t]; row->key; row++)
			if (key_matches(f, path, row->key))
				return row;
	return NULL;
}

static bool is_ignored(const struct fo_form *f, const char *list, const char *path)
{
	char key[512], pattern[128];
	size_t k = 0;
	for (const char *s = path + strspn(path, "-"); *s && k < sizeof key - 1; s++)
		key[k++] = *s == '-' ? '_' : (char)tolower((unsigned char)*s);
	key[k] = '\0';
	for (size_t n; list && (n = next(&list, ' ')); list += n) {
		if (n >= sizeof pattern)
			continue;
		memcpy(pattern, list, n);
		pattern[n] = '\0';
		if (!fnmatch(pattern, key, 0))
			return true;
		const char *prefix = f->prefix ? f->prefix : "";
		for (size_t m; (m = next(&prefix, ' ')); prefix += m) {
			const char *rest = after(path, prefix, m);
			if (rest && !fnmatch(pattern, key + (rest - path) + strspn(rest, "-"), 0))
				return true;
		}
	}
	return false;
}

static bool ignored(const struct fo_form *f, const char *path)
{
	return is_ignored(f, f->ignored[0], path) || is_ignored(f, f->ignored[1], path);
}

bool fo_form_lists(const struct fo_form *f, const char *list, const char *path)
{
	char key[128];
	for (size_t n; list && (n = next(&list, ' ')); list += n)
		if (n < sizeof key) {
			memcpy(key, list, n);
			key[n] = '\0';
			if (key_matches(f, path, key))
				return true;
		}
	return false;
}

/* ---- values ---- */

static int switch_of(const char *text)
{
	static const char *const on[] = { "true", "yes", "on", "1", "enabled" }, *const off[] = { "false", "no", "off",
												  "0", "disabled" };
	for (int i = 0; i < 5; i++) {
		if (!strcasecmp(text, on[i]))
			return 1;
		if (!strcasecmp(text, off[i]))
			return 0;
	}
	return -1;
}

bool fo_form_word_number(enum fo_job_setting s, const char *word, size_t n, double *out)
{
	const char *list = fo_job_setting_row[s].words;
	int number = 0;
	for (size_t m; (m = next(&list, ' ')); list += m, number++)
		if (m == n && !strncasecmp(list, word, n)) {
			*out = number;
			return true;
		}
	return false;
}

/* A finite number with nothing behind it but blanks; YAML and Python write 10_000, too. */
static bool plain_number(const char *text, double *out)
{
	char *end, digits[64];
	if (strchr(text, '_') && strlen(text) < sizeof digits) {
		size_t n = 0;
		for (const char *s = text; *s; s++)
			if (*s != '_' || s == text || !isdigit((unsigned char)s[-1]) || !isdigit((unsigned char)s[1]))
				digits[n++] = *s;
		digits[n] = '\0';
		text = digits;
	}
	if (!*text || isspace((unsigned char)*text) || !strncasecmp(text, "0x", 2))
		return false;
	double v = strtod(text, &end);
	if (end == text || !isfinite(v) || fabs(v) > 1e18)
		return false;
	while (isspace((unsigned char)*end))
		end++;
	if (*end)
		return false;
	*out = v;
	return true;
}

/* Our value in the words of a map or of a default. */
static bool ours(enum fo_job_setting s, const char *word, size_t n, double *out)
{
	char text[64];
	if (n >= sizeof text)
		return false;
	memcpy(text, word, n);
	text[n] = '\0';
	if (fo_job_setting_row[s].kind == FO_JOB_WORD)
		return fo_form_word_number(s, text, n, out);
	if (fo_job_setting_row[s].kind == FO_JOB_SWITCH) {
		int is = switch_of(text);
		*out = is;
		return is >= 0;
	}
	return plain_number(text, out);
}

bool fo_form_value(enum fo_job_setting s, const char *text, double *out) { return ours(s, text, strlen(text), out); }
bool fo_form_knows(const struct fo_form *f, const char *key) { return fo_form_row_of(f, key) != NULL; }

enum found { SAYS_NOTHING, A_NUMBER, NOT_UNDERSTOOD };

static enum found mapped(const struct fo_form_row *row, const struct fo_conf_entry *e, double *out)
{
	const char *list = row->map, *any = NULL;
	size_t any_n = 0;
	int is = e->kind == FO_CONF_NULL ? -1 : switch_of(e->value);
	const char *value = e->kind == FO_CONF_NULL ? "null" : e->value;
	for (size_t n; (n = next(&list, ' ')); list += n) {
		const char *equals = memchr(list, '=', n);
		size_t k = equals ? (size_t)(equals - list) : n, v = n - k - 1;
		if (!equals)
			continue;
		bool same = k == strlen(value) && !strncasecmp(list, value, k);
		same |= is == 1 && k == 4 && !strncmp(list, "true", 4);
		same |= is == 0 && k == 5 && !strncmp(list, "false", 5);
		if (!same && k == 1 && *list == '*') {
			any = equals + 1;
			any_n = v;
		}
		if (!same)
			continue;
		if (v == 1 && equals[1] == '-')
			return SAYS_NOTHING;
		return ours((enum fo_job_setting)row->setting, equals + 1, v, out) ? A_NUMBER : NOT_UNDERSTOOD;
	}
	if (e->kind == FO_CONF_NULL)
		return SAYS_NOTHING;
	if (!any)
		return NOT_UNDERSTOOD;
	if (any_n == 1 && *any == '-')
		return SAYS_NOTHING;
	return ours((enum fo_job_setting)row->setting, any, any_n, out) ? A_NUMBER : NOT_UNDERSTOOD;
}

static enum found number_of(const struct fo_form_row *row, const struct fo_conf_entry *e, double *out)
{
	enum fo_job_setting s = (enum fo_job_setting)row->setting;
	if (row->map)
		return mapped(row, e, out);
	if (e->kind == FO_CONF_NULL)
		return SAYS_NOTHING;
	if (!ours(s, e->value, strlen(e->value), out))
		return NOT_UNDERSTOOD;
	if (fo_job_setting_row[s].kind != FO_JOB_SWITCH && fo_job_setting_row[s].kind != FO_JOB_WORD)
		*out *= row->scale;
	return A_NUMBER;
}

/* ---- the job's values ---- */

static const char *file_of(const struct fo_reading *r, const struct fo_conf_entry *e)
{
	return e->line ? fo_arena_strdup(&r->job->arena, r->conf->file) : NULL;
}

static void put(struct fo_reading *r, enum fo_job_setting s, enum fo_job_origin origin, double number, const char *text,
		const struct fo_conf_entry *e)
{
	struct fo_arena *a = &r->job->arena;
	if (origin == FO_JOB_STATED && !e->line)
		origin = FO_JOB_GIVEN;
	r->job->value[s] = (struct fo_job_value){
		.origin = origin,
		.number = number,
		.text = text ? fo_arena_strdup(a, text) : NULL,
		.key = fo_arena_strdup(a, e->path),
		.file = file_of(r, e),
		.line = e->line,
	};
}

/* Was the setting stated before this file was read? Then a difference is worth a word. */
static bool was_stated(const struct fo_reading *r, enum fo_job_setting s)
{
	const struct fo_job_value *v = &r->job->value[s];
	return v->origin == FO_JOB_GIVEN ||
	       (v->origin == FO_JOB_STATED && (!v->file || strcmp(v->file, r->conf->file)));
}

/* A text of the file in a note. */
static const char *shown(struct fo_reading *r, const char *text)
{
	enum { MOST = 60 };
	char *buf = fo_arena_alloc(&r->job->arena, MOST);
	return fo_str_visible(buf, MOST, text);
}

static void compare(struct fo_reading *r, enum fo_job_setting s, double number, const struct fo_conf_entry *e)
{
	const struct fo_job_value *v = &r->job->value[s];
	if (v->origin == FO_JOB_GIVEN || isnan(number) || isnan(v->number) || v->number == number)
		return;
	fo_reading_note(r, "%s:%d says '%s' = '%s', but %s:%d says '%s' = '%s': the latter counts", r->conf->file,
			e->line, shown(r, e->path), shown(r, e->value), v->file, v->line, shown(r, v->key),
			shown(r, v->text ? v->text : "?"));
}

void fo_reading_state(struct fo_reading *r, enum fo_job_setting s, double number, const struct fo_conf_entry *e)
{
	if (was_stated(r, s))
		compare(r, s, number, e);
	else
		put(r, s, FO_JOB_STATED, number, e->value, e);
}

void fo_reading_state_text(struct fo_reading *r, enum fo_job_setting s, const char *text, const struct fo_conf_entry *e)
{
	if (!was_stated(r, s))
		put(r, s, FO_JOB_STATED, NAN, text, e);
}

/* A key of a default as this file would spell it: Megatron's are arguments. */
static const char *spelled(const struct fo_reading *r, const char *key)
{
	bool dashes = r->conf->format == FO_CONF_ARGUMENTS;
	for (size_t i = 0; !dashes && i < r->conf->entries && i < 100; i++)
		dashes = !strncmp(r->conf->entry[i].path, "MODEL_ARGS.--", 13);
	if (!dashes || !key || !r->form->dashes)
		return key;
	char *text = fo_arena_printf(&r->job->arena, "--%s", key);
	for (char *s = text; *s; s++)
		*s = *s == '_' ? '-' : *s;
	return text;
}

void fo_reading_imply(struct fo_reading *r, enum fo_job_setting s, double number, const char *key)
{
	struct fo_job_value *v = &r->job->value[s];
	if (v->origin == FO_JOB_STATED || v->origin == FO_JOB_GIVEN || v->origin == FO_JOB_AUTO || r->job->partial)
		return;
	*v = (struct fo_job_value){ .origin = FO_JOB_DEFAULT, .number = number, .key = spelled(r, key) };
}

void fo_reading_note(struct fo_reading *r, const char *fmt, ...)
{
	struct fo_str text = { 0 };
	va_list ap;
	va_start(ap, fmt);
	fo_str_vprintf(&text, fmt, ap);
	va_end(ap);
	enum { MOST = 200 };
	if (r->job->notes < MOST)
		fo_arena_say(&r->job->arena, &r->job->note, &r->job->notes, "%s", text.data);
	fo_str_fini(&text);
}

/* ---- finding entries ---- */

static const struct fo_conf_entry *find_one(const struct fo_reading *r, const char *key)
{
	for (size_t i = r->conf->entries; i-- > 0;)
		if (key_matches(r->form, r->conf->entry[i].path, key))
			return &r->conf->entry[i];
	return NULL;
}

const struct fo_conf_entry *fo_reading_find(const struct fo_reading *r, const char *keys)
{
	char key[128];
	for (size_t n; (n = next(&keys, '|')); keys += n) {
		if (n >= sizeof key)
			continue;
		memcpy(key, keys, n);
		key[n] = '\0';
		const struct fo_conf_entry *e = find_one(r, key);
		if (e)
			return e;
	}
	return NULL;
}

bool fo_reading_on(const struct fo_reading *r, const char *keys)
{
	const struct fo_conf_entry *e = fo_reading_find(r, keys);
	return e && switch_of(e->value) == 1;
}

double fo_reading_number(const struct fo_reading *r, const char *keys)
{
	const struct fo_conf_entry *e = fo_reading_find(r, keys);
	double v;
	return e && e->kind != FO_CONF_NULL && plain_number(e->value, &v) ? v : NAN;
}

bool fo_reading_says(const struct fo_reading *r, const char *keys, const char *word)
{
	const struct fo_conf_entry *e = fo_reading_find(r, keys);
	for (const char *s = e && e->kind != FO_CONF_NULL ? e->value : ""; *s; s++)
		if (!strncasecmp(s, word, strlen(word)))
			return true;
	return false;
}

void fo_reading_odd_model(struct fo_reading *r, const char *keys)
{
	char key[128];
	for (size_t n; (n = next(&keys, '|')); keys += n) {
		if (n >= sizeof key)
			continue;
		memcpy(key, keys, n);
		key[n] = '\0';
		const struct fo_conf_entry *e = find_one(r, key);
		bool off = e && (e->kind == FO_CONF_NULL || switch_of(e->value) == 0 || !strcmp(e->value, "1") ||
				 !*e->value || !strcasecmp(e->value, "none"));
		if (!e || off || *r->no_shape)
			continue;
		*r->no_shape = fo_arena_printf(&r->job->arena,
					       "'%s' in %s:%d says that the model has more than its stated shape",
					       shown(r, e->path), r->conf->file, e->line);
	}
}

/* ---- one file ---- */

/* Of a key that stands twice the last one counts, as for argparse; that is said where the values differ. */
static bool stands_again(struct fo_reading *r, size_t i)
{
	const struct fo_conf_entry *e = &r->conf->entry[i], *all = r->conf->entry;
	for (size_t k = i + 1; k < r->conf->entries; k++)
		if (fo_conf_same_key(all[k].path, e->path)) {
			if (r->conf->format != FO_CONF_PYTHON && strcmp(all[k].value, e->value))
				fo_reading_note(r,
						"%s:%d: '%s' is given twice with different values: '%s' in line %d "
						"counts, not '%s'",
						r->conf->file, e->line, shown(r, e->path), shown(r, all[k].value),
						all[k].line, shown(r, e->value));
			return true;
		}
	return false;
}

static void apply_row(struct fo_reading *r, const struct fo_form_row *row, const struct fo_conf_entry *e)
{
	enum fo_job_setting s = (enum fo_job_setting)row->setting;
	struct fo_job_value *v = &r->job->value[s];
	bool text = fo_job_setting_row[s].kind == FO_JOB_TEXT;
	bool says_auto = !strcasecmp(e->value, "auto") && !(row->map && strstr(row->map, "auto=")) && !text;
	bool any = row->map && e->kind == FO_CONF_OPEN && strstr(row->map, "*=") && !strstr(row->map, "*=-");
	if ((e->kind == FO_CONF_OPEN && !any) || e->kind == FO_CONF_CALL || says_auto) {
		if (v->origin == FO_JOB_UNKNOWN)
			put(r, s, FO_JOB_AUTO, NAN, e->value, e);
		return;
	}
	if (text) {
		if (e->kind != FO_CONF_NULL && *e->value)
			fo_reading_state_text(r, s, e->value, e);
		return;
	}
	double number = NAN;
	enum found found = number_of(row, e, &number);
	if (found == A_NUMBER) {
		fo_reading_state(r, s, number, e);
		if (row->scale != 1 && v->key && !strcmp(v->key, e->path))
			v->unit = row->scale;
	} else if (found == NOT_UNDERSTOOD)
		fo_reading_note(r, "%s:%d: '%s' is '%s', which is not understood: it is taken as unknown",
				r->conf->file, e->line, shown(r, e->path), shown(r, e->value));
}

static void add_env(struct fo_reading *r, const struct fo_conf_entry *e, const char *name)
{
	struct fo_job *job = r->job;
	enum { MOST = 500 };
	if (job->envs == MOST)
		return;
	struct fo_job_env *list = fo_arena_alloc(&job->arena, (size_t)(job->envs + 1) * sizeof *list);
	if (job->envs)
		memcpy(list, job->env, (size_t)job->envs * sizeof *list);
	list[job->envs++] = (struct fo_job_env){
		.name = fo_arena_strdup(&job->arena, name),
		.value = fo_arena_strdup(&job->arena, e->value),
		.file = file_of(r, e),
		.line = e->line,
	};
	job->env = list;
}

static void add_unread(struct fo_reading *r, const struct fo_conf_entry *e)
{
	enum { MOST = 1000 };
	char shown[600];
	if (r->job->unread_count < MOST)
		fo_arena_say(&r->job->arena, &r->job->unread, &r->job->unread_count, "%s:%d %s", r->conf->file, e->line,
			     fo_str_visible(shown, sizeof shown, e->path));
}

/* ---- launchers ---- */

static void launch(struct fo_reading *r)
{
	static const struct {
		const char *key;
		enum fo_job_setting s;
	} row[] = {
		{ "launch.--nproc-per-node", FO_JOB_PER_NODE },
		{ "launch.--ntasks-per-node", FO_JOB_PER_NODE },
		{ "launch.--gpus-per-node", FO_JOB_PER_NODE },
		{ "launch.--num-gpus", FO_JOB_PER_NODE },
		{ "launch.--nnodes", FO_JOB_NODES },
		{ "launch.--nodes", FO_JOB_NODES },
		{ "launch.-N", FO_JOB_NODES },
		{ "launch.--num-nodes", FO_JOB_NODES },
		{ "launch.--num-machines", FO_JOB_NODES },
		{ "launch.--num-processes", FO_JOB_DEVICES },
		{ "launch.--ntasks", FO_JOB_DEVICES },
		{ "launch.-n", FO_JOB_DEVICES },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		const struct fo_conf_entry *e = fo_conf_find(r->conf, row[i].key);
		double v;
		/* One task per node starts all devices of it: what torchrun was asked for counts. */
		bool one_task = row[i].s == FO_JOB_PER_NODE && i > 0;
		if (e && plain_number(e->value, &v) && v >= 1 && !(one_task && v == 1) &&
		    !fo_job_known(r->job, row[i].s))
			put(r, row[i].s, FO_JOB_STATED, v, e->value, e);
	}
}

/* ---- all of a file ---- */

void fo_form_apply(struct fo_reading *r)
{
	for (size_t i = 0; i < r->conf->entries; i++) {
		const struct fo_conf_entry *e = &r->conf->entry[i];
		const char *env = after(e->path, "env.", 4);
		env = env ? env : after(e->path, "ENV_VARS.", 9);
		if (env) {
			add_env(r, e, env);
			continue;
		}
		if (!strncmp(e->path, "launch.", 7))
			continue;
		const struct fo_form_row *row = fo_form_row_of(r->form, e->path);
		bool again = (row || i < FO_FORM_JUDGED) && stands_again(r, i);
		if (row && !again)
			apply_row(r, row, e);
		else if (!row && !again && e->kind != FO_CONF_CALL && *e->path && !ignored(r->form, e->path) &&
			 !(r->form->knows && r->form->knows(e->path)) &&
			 !fo_form_lists(r->form, r->form->signature, e->path))
			add_unread(r, e);
	}
	launch(r);
}

static const struct fo_form_row *row_for(const struct fo_form *f, int setting)
{
	for (size_t t = 0; t < sizeof f->rows / sizeof *f->rows && f->rows[t]; t++)
		for (const struct fo_form_row *row = f->rows[t]; row->key; row++)
			if (row->setting == setting)
				return row;
	return NULL;
}

static void assume(struct fo_reading *r, const struct fo_form_default *d)
{
	enum fo_job_setting s = (enum fo_job_setting)d->setting;
	struct fo_job_value *v = &r->job->value[s];
	double number = NAN;
	bool text = fo_job_setting_row[s].kind == FO_JOB_TEXT;
	if (v->origin != FO_JOB_UNKNOWN || r->job->partial)
		return;
	if (!text && !ours(s, d->value, strlen(d->value), &number))
		return;
	const struct fo_form_row *row = row_for(r->form, d->setting);
	*v = (struct fo_job_value){
		.origin = FO_JOB_DEFAULT,
		.number = number,
		.text = d->value,
		.key = row ? spelled(r, row->key) : NULL,
		.unit = row && row->scale != 1 ? row->scale : 0,
	};
}

void fo_form_conclude(struct fo_reading *r)
{
	for (size_t t = 0; t < sizeof r->form->defaults / sizeof *r->form->defaults; t++)
		for (const struct fo_form_default *d = r->form->defaults[t]; d && d->setting >= 0; d++)
			assume(r, d);
	if (r->form->finish)
		r->form->finish(r);
}
