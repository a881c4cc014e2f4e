#include "base/opt.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/opt_int.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fo_opt_count(const struct fo_opt *rows)
{
	int n = 0;
	while (rows && rows[n].key)
		n++;
	return n;
}

const char *fo_opt_origin_name(enum fo_opt_origin from)
{
	static const char *const name[] = { "default", "file", "environment", "flag" };
	return name[from];
}

int fo_opt_find(const struct fo_opt *rows, const char *key)
{
	for (int i = 0; rows && rows[i].key; i++)
		if (!strcmp(rows[i].key, key))
			return i;
	return -1;
}

const char *fo_opt_last_part(const char *key)
{
	const char *dot = strrchr(key, '.');
	return dot ? dot + 1 : key;
}

/* Index of a full key in either table, -1 when unknown. */
static int find_key(const struct fo_opt_set *s, const char *key, size_t len)
{
	for (int i = 0; i < s->total; i++) {
		const char *name = fo_opt_row(s, i)->key;
		if (strlen(name) == len && !memcmp(name, key, len))
			return i;
	}
	return -1;
}

static bool is_own(const struct fo_opt_set *s, int i) { return i >= s->count; }

/* The shortest flag of row i: its last part where that is unique, else its key. A run's row gives way to a command's
 * own. */
static const char *short_name(const struct fo_opt_set *s, int i)
{
	const char *key = fo_opt_row(s, i)->key, *last = fo_opt_last_part(key);
	for (int k = is_own(s, i) ? s->count : 0; k < s->total; k++)
		if (k != i && !strcmp(fo_opt_last_part(fo_opt_row(s, k)->key), last))
			return key;
	return last;
}

const char *fo_opt_flag_name(const struct fo_opt *rows, int i)
{
	const struct fo_opt_set alone = { .rows = rows, .count = fo_opt_count(rows), .total = fo_opt_count(rows) };
	/* The only group of a table is the command's name, which nobody writes. */
	size_t n = strcspn(rows[0].key, ".");
	for (int k = 0; rows[k].key; k++)
		if (rows[k].key[n] != '.' || memcmp(rows[k].key, rows[0].key, n))
			return rows[i].key;
	return short_name(&alone, i);
}

char *fo_opt_env_name(char buf[128], const char *key)
{
	snprintf(buf, 128, "FLATOUT_%s", key);
	for (char *p = buf + 8; *p; p++)
		*p = *p == '.' || *p == '-' ? '_' : (char)toupper((unsigned char)*p);
	return buf;
}

/* The edit distance, or `least` when it cannot be smaller. Lengths alone rule most keys out, and a hostile file asks
 * for thousands. */
static int distance_below(const char *name, int len, const char *key, int least)
{
	return abs(len - (int)strlen(key)) < least ? fo_str_distance(name, key) : least;
}

/* The key nearest to a name that does not exist, over whole keys and last parts. With `file` only keys that a file sets
 * count, and names of sections too. Arena memory of s; NULL when nothing is near. */
static const char *nearest_key(struct fo_opt_set *s, const char *name, bool file)
{
	const char *best = NULL;
	/* More than half of the letters wrong is no longer a typing mistake. */
	int len = (int)strlen(name), least = len / 2 + 1;
	for (int i = 0; i < (file ? s->count : s->total); i++) {
		const char *key = fo_opt_row(s, i)->key, *last = fo_opt_last_part(key), *dot = strchr(key, '.');
		int whole = distance_below(name, len, key, least), part = distance_below(name, len, last, least);
		/* "steps" inside the wrong section is nearer than its spelling says. */
		if (!strcmp(fo_opt_last_part(name), last))
			part = 0;
		if (whole < least || part < least) {
			least = whole < part ? whole : part;
			best = key;
		}
		if (!file || !dot)
			continue;
		char *section = fo_arena_printf(&s->arena, "%.*s", (int)(dot - key), key);
		int d = distance_below(name, len, section, least);
		if (d < least) {
			least = d;
			best = section;
		}
	}
	return best;
}

char *fo_opt_shown(char buf[FO_OPT_SHOWN], const char *text, size_t len)
{
	char cut[49];
	size_t o = 0;
	for (size_t i = 0; i < len && o < sizeof cut - 1; i++)
		cut[o++] = text[i] ? text[i] : 1; /* a NUL would end the text; \x01 shows that something is there */
	bool more = o < len;
	while (more && o > 0 && ((unsigned char)text[o] & 0xc0) == 0x80)
		o--;
	cut[o] = 0;
	fo_str_visible(buf, FO_OPT_SHOWN - 4, cut);
	if (more)
		strcat(buf, "...");
	return buf;
}

void fo_opt_problem(struct fo_opt_set *s, const char *fmt, ...)
{
	if (s->problem_count++ >= FO_OPT_PROBLEMS_MAX)
		return;
	if (s->problems.len)
		fo_str_puts(&s->problems, "\n");
	va_list ap;
	va_start(ap, fmt);
	fo_str_vprintf(&s->problems, fmt, ap);
	va_end(ap);
}

/* "8k" is 8192 to some and 8000 to others: a note says which it was taken for. */
static void note_taken(struct fo_opt_set *s, int i, const char *text, size_t len, const char *name)
{
	const struct fo_opt *row = fo_opt_row(s, i);
	char shown[FO_OPT_SHOWN], *copy = fo_arena_printf(&s->arena, "%.*s", (int)len, text);
	if (!fo_opt_is_taken(row, copy))
		return;
	const void *field = (const char *)s->target + row->offset;
	double v = row->type == FO_OPT_T_REAL ? *(const double *)field : (double)*(const int64_t *)field;
	fo_str_printf(&s->notes, "%s%s: %s is taken as %.0f %s", s->notes.len ? "\n" : "", name,
		      fo_opt_shown(shown, text, len), v, row->unit);
}

/* Bytes of a field by its row's type. */
static const size_t field_size[] = {
	[FO_OPT_T_INT] = sizeof(int64_t), [FO_OPT_T_REAL] = sizeof(double), [FO_OPT_T_BOOL] = sizeof(bool),
	[FO_OPT_T_TEXT] = sizeof(char *), [FO_OPT_T_ENUM] = sizeof(int),    [FO_OPT_T_BYTES] = sizeof(int64_t),
};

/* A list ("NAME=X,..."): given again, it goes on. */
static bool adds_up(const struct fo_opt *row)
{
	const char *of = row->type == FO_OPT_T_TEXT && row->arg ? strchr(row->arg, ',') : NULL;
	return of && !strcmp(of, ",...");
}

static void join(struct fo_opt_set *s, const void *old, void *field)
{
	const char *before, *after;
	memcpy(&before, old, sizeof before);
	memcpy(&after, field, sizeof after);
	if (before && *before)
		after = fo_arena_printf(&s->arena, "%s,%s", before, after ? after : "");
	memcpy(field, &after, sizeof after);
}

void fo_opt_assign(struct fo_opt_set *s, int i, const char *text, size_t len, enum fo_opt_origin from,
		   const char *where)
{
	const struct fo_opt *row = fo_opt_row(s, i);
	char old[8];
	void *field = (char *)s->target + row->offset;
	memcpy(old, field, field_size[row->type]);
	if (!fo_opt_parse(row, s->target, &s->arena, text, len)) {
		char shown[FO_OPT_SHOWN];
		struct fo_str expected = { 0 };
		fo_opt_expected(row, &expected);
		if (row->type == FO_OPT_T_BOOL)
			fo_str_puts(&expected, row->names ? " (or true, false, on, off)" : " (or yes, no, on, off)");
		fo_opt_shown(shown, text, len);
		const char *why = fo_opt_refused(row, text, len), *colon = *why ? ": " : "";
		if (from == FO_ORIGIN_ENV || (from == FO_ORIGIN_FLAG && *where)) /* its name says which option it is */
			fo_opt_problem(s, "'%s' must be %s, got '%s'%s%s", where, expected.data, shown, colon, why);
		else
			fo_opt_problem(s, "%s%s'%s' must be %s, got '%s'%s%s", where, *where ? ": " : "", row->key,
				       expected.data, shown, colon, why);
		fo_str_fini(&expected);
	} else if (from >= s->origin[i].from) {
		if (adds_up(row) && from == FO_ORIGIN_FLAG && s->origin[i].from == from)
			join(s, old, field);
		if (from != FO_ORIGIN_DEFAULT)
			note_taken(s, i, text, len, *where && from != FO_ORIGIN_FILE ? where : row->key);
		/* One name twice: the last one counts, as scripts rely on. Two names of it: a contradiction. */
		const char *before = s->origin[i].where;
		if (from == FO_ORIGIN_FLAG && s->origin[i].from == from && before && !strncmp(before, "--", 2) &&
		    !strncmp(where, "--", 2) && strcmp(before, where) != 0 && row->type != FO_OPT_T_TEXT &&
		    !fo_opt_is_switch(row) && memcmp(old, field, field_size[row->type]) != 0)
			fo_opt_problem(s, "'%s' and '%s' are one option and have different values: leave one out",
				       before, where);
		s->origin[i].from = from;
		s->origin[i].where = fo_arena_strdup(&s->arena, where);
		return;
	}
	memcpy(field, old, field_size[row->type]);
}

void fo_opt_init(struct fo_opt_set *s, const struct fo_opt *rows, void *target)
{
	fo_opt_init_own(s, rows, NULL, target);
}

void fo_opt_init_own(struct fo_opt_set *s, const struct fo_opt *rows, const struct fo_opt *own, void *target)
{
	*s = (struct fo_opt_set){ .rows = rows, .own = own, .count = fo_opt_count(rows), .target = target };
	s->total = s->count + fo_opt_count(own);
	s->origin = fo_arena_alloc(&s->arena, (size_t)(s->total + 1) * sizeof *s->origin);
	for (int i = 0; i < s->total; i++) {
		const struct fo_opt *row = fo_opt_row(s, i);
		void *field = (char *)target + row->offset;
		s->origin[i].where = "";
		memset(field, row->type == FO_OPT_T_ENUM ? 0xff : 0,
		       field_size[row->type]); /* an enumeration starts as -1 */
		if (row->dfl) {
			/* A default outside its own range is our mistake; it is reported like a user's, so tests see
			 * it. */
			fo_opt_assign(s, i, row->dfl, strlen(row->dfl), FO_ORIGIN_DEFAULT, "default");
			s->origin[i].where = "";
		}
	}
}

void fo_opt_fini(struct fo_opt_set *s)
{
	fo_arena_fini(&s->arena);
	fo_str_fini(&s->problems);
	fo_str_fini(&s->notes);
	*s = (struct fo_opt_set){ 0 };
}

void fo_opt_set_text(struct fo_opt_set *s, const char *key, const char *value, enum fo_opt_origin from,
		     const char *where)
{
	int i = find_key(s, key, strlen(key));
	if (i >= 0 && !(from == FO_ORIGIN_FILE && is_own(s, i))) {
		fo_opt_assign(s, i, value, strlen(value), from, where);
		return;
	}
	char shown[FO_OPT_SHOWN];
	const char *near = nearest_key(s, key, from == FO_ORIGIN_FILE), *colon = *where ? ": " : "";
	fo_opt_shown(shown, key, strlen(key));
	if (near)
		fo_opt_problem(s, "%s%sunknown key '%s'; nearest is '%s'", where, colon, shown, near);
	else
		fo_opt_problem(s, "%s%sunknown key '%s'", where, colon, shown);
}

bool fo_opt_given(const struct fo_opt_set *s, const char *key)
{
	int i = find_key(s, key, strlen(key));
	return i >= 0 && s->origin[i].from != FO_ORIGIN_DEFAULT;
}

void fo_opt_read_env(struct fo_opt_set *s)
{
	for (int i = 0; i < s->count; i++) {
		char name[128];
		const char *value = getenv(fo_opt_env_name(name, s->rows[i].key));
		if (value && *value)
			fo_opt_assign(s, i, value, strlen(value), FO_ORIGIN_ENV, name);
	}
}

/* Row of a flag's name: a full key, or a last part that only one of the command's own keys has, or only one of the
 * others. -1: none; -2: several (two of them in `other`). */
static int find_flag(const struct fo_opt_set *s, const char *name, size_t len, int other[2])
{
	int found = find_key(s, name, len);
	if (found >= 0)
		return found;
	for (int i = s->total - 1; i >= 0; i--) {
		const char *last = fo_opt_last_part(fo_opt_row(s, i)->key);
		if (strlen(last) != len || memcmp(last, name, len))
			continue;
		if (found < 0) {
			found = i;
		} else if (is_own(s, found) == is_own(s, i)) {
			other[0] = i;
			other[1] = found;
			return -2;
		}
	}
	return found;
}

static void unknown_flag(struct fo_opt_set *s, const char *arg, const char *name, size_t len)
{
	char shown[FO_OPT_SHOWN], plain[FO_OPT_SHOWN];
	snprintf(plain, sizeof plain, "%.*s", (int)(len < 200 ? len : 200), name);
	const char *near = nearest_key(s, plain, false), *about = NULL;
	for (int i = 0; i < s->total && strlen(plain) > 3 && !about; i++)
		if (strstr(fo_opt_row(s, i)->help, plain))
			about = short_name(s, i);
	fo_opt_shown(shown, arg, (size_t)(name - arg) + len);
	if (near)
		fo_opt_problem(s, "unknown option '%s'; nearest is '--%s'", shown,
			       short_name(s, find_key(s, near, strlen(near))));
	else if (about)
		fo_opt_problem(s, "unknown option '%s'; the help of '--%s' mentions it", shown, about);
	else
		fo_opt_problem(s, "unknown option '%s'", shown);
}

static bool stands_alone(const struct fo_opt *row) { return fo_opt_is_switch(row) || row->bare; }

/* "--num-layers 32 --bf16" as one argument is a text, no option: no option has a blank in its name. */
static bool is_words(const char *arg)
{
	const char *end = strpbrk(arg, " \t\n=");
	return end && *end != '=';
}

/* Reads one argument that starts with "--"; returns how many arguments it took. */
static int read_flag(struct fo_opt_set *s, const char *arg, const char *next)
{
	const char *name = arg + 2, *equals = strchr(name, '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);
	int other[2], i = find_flag(s, name, len, other);
	bool no = false;
	if (i == -1 && !equals && len > 3 && !memcmp(name, "no-", 3)) {
		int k = find_flag(s, name + 3, len - 3, other);
		no = k >= 0 && stands_alone(fo_opt_row(s, k));
		i = no ? k : -1;
	}
	if (i == -2) {
		fo_opt_problem(s, "'--%.*s' could be '--%s' or '--%s': write the whole name", (int)len, name,
			       fo_opt_row(s, other[0])->key, fo_opt_row(s, other[1])->key);
		return equals ? 1 : 1 + (next && strncmp(next, "--", 2));
	}
	if (i < 0) {
		unknown_flag(s, arg, name, len);
		return 1;
	}
	char where[FO_OPT_SHOWN];
	snprintf(where, sizeof where, "--%.*s", (int)len, name);
	const struct fo_opt *row = fo_opt_row(s, i);
	if (!equals && row->bare && !no && next && !strcmp(next, "-")) {
		fo_opt_assign(s, i, next, 1, FO_ORIGIN_FLAG, where);
		return 2;
	}
	if (equals) {
		fo_opt_assign(s, i, equals + 1, strlen(equals + 1), FO_ORIGIN_FLAG, where);
	} else if (stands_alone(row)) {
		const char *text = no ? "no" : "yes";
		fo_opt_assign(s, i, text, strlen(text), FO_ORIGIN_FLAG, where);
	} else if (next && (strncmp(next, "--", 2) || is_words(next))) {
		fo_opt_assign(s, i, next, strlen(next), FO_ORIGIN_FLAG, where);
		return 2;
	} else {
		struct fo_str expected = { 0 };
		fo_opt_expected(row, &expected);
		fo_opt_problem(s, "'%s' needs a value: %s", where, expected.data);
		fo_str_fini(&expected);
	}
	return 1;
}

/* "-n": the row of that letter; -1. */
static int find_letter(const struct fo_opt_set *s, const char *arg)
{
	for (int i = 0; i < s->total && arg[0] == '-' && arg[1] && !arg[2]; i++)
		if (fo_opt_row(s, i)->letter == arg[1])
			return i;
	return -1;
}

void fo_opt_read_args(struct fo_opt_set *s, int *argc, char **argv)
{
	int kept = *argc > 0;
	for (int i = 1; i < *argc;) {
		char *arg = argv[i];
		int letter = find_letter(s, arg);
		if (letter >= 0 && i + 1 < *argc) {
			fo_opt_assign(s, letter, argv[i + 1], strlen(argv[i + 1]), FO_ORIGIN_FLAG, arg);
			i += 2;
		} else if (!strcmp(arg, "--")) {
			for (i++; i < *argc; i++)
				argv[kept++] = argv[i];
		} else if (!strncmp(arg, "--", 2)) {
			i += read_flag(s, arg, i + 1 < *argc ? argv[i + 1] : NULL);
		} else if (arg[0] == '-' && arg[1]) {
			/* "-5" or "-x": no option has one dash, and a file of that name is rarer than a slip. */
			unknown_flag(s, arg, arg + 1, strcspn(arg + 1, "="));
			i++;
		} else {
			/* A shell leaves ~/ as it is in quotes and in some scripts. Only paths begin with it. */
			char *path = fo_fs_home_path(&s->arena, arg);
			argv[kept++] = path ? path : arg;
			i++;
		}
	}
	if (kept < *argc)
		argv[kept] = NULL;
	*argc = kept;
	s->argv = argv;
	s->argc = kept;
}

fo_status fo_opt_finish(struct fo_opt_set *s)
{
	if (s->problem_count == 0)
		return FO_OK;
	/* Whole lines only: the error text has a fixed size. */
	size_t room = sizeof((struct fo_err *)0)->text - 64, used = 0;
	int lines = 0;
	const char *text = s->problems.data;
	for (const char *p = text; lines < s->problem_count && lines < FO_OPT_PROBLEMS_MAX; lines++) {
		size_t n = strcspn(p, "\n");
		if ((size_t)(p - text) + n > room)
			break;
		used = (size_t)(p - text) + n;
		p += n + 1;
	}
	if (lines == 0) { /* one line longer than the room: cut it */
		lines = 1;
		used = room;
	}
	if (lines == s->problem_count)
		return fo_fail(FO_EARG, "%.*s", (int)used, text);
	return fo_fail(FO_EARG, "%.*s\nand %d more mistakes", (int)used, text, s->problem_count - lines);
}

void fo_opt_json(struct fo_opt_set *s, struct fo_str *out)
{
	struct fo_json j;
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	for (int i = 0; i < s->count; i++) {
		const struct fo_opt *row = &s->rows[i];
		const void *field = (const char *)s->target + row->offset;
		fo_json_object(&j, row->key);
		switch (row->type) {
		case FO_OPT_T_INT:
			if (row->names && *(const int64_t *)field < 0)
				fo_json_text(&j, "value", row->names);
			else
				fo_json_int(&j, "value", *(const int64_t *)field);
			break;
		case FO_OPT_T_BYTES: fo_json_int(&j, "value", *(const int64_t *)field); break;
		case FO_OPT_T_REAL: fo_json_real(&j, "value", *(const double *)field); break;
		case FO_OPT_T_BOOL:
			if (row->names)
				fo_json_text(&j, "value", fo_opt_value_text(s, i));
			else
				fo_json_bool(&j, "value", *(const bool *)field);
			break;
		case FO_OPT_T_TEXT: fo_json_text(&j, "value", *(const char *const *)field); break;
		case FO_OPT_T_ENUM:
			fo_json_text(&j, "value", *(const int *)field < 0 ? NULL : fo_opt_value_text(s, i));
			break;
		}
		fo_json_text(&j, "origin", fo_opt_origin_name(s->origin[i].from));
		fo_json_text(&j, "where", s->origin[i].where);
		fo_json_close(&j);
	}
	fo_json_close(&j);
}
