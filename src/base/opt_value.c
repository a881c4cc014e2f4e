/* Values of options: text to number and back. Numbers are scanned by hand, because strtod also takes "0x10", "nan" and
 * the locale's comma, and because integers must not pass through a double. */
#include "base/fs.h"
#include "base/opt_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* mant x 10^exp10; `many`: more digits than 128 bits hold, mant is useless. */
struct decimal {
	bool negative, many;
	unsigned __int128 mant;
	int exp10;
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Scans [+-]digits[.digits][e[+-]digits]; returns what follows, or NULL when there is no number. */
static const char *scan_decimal(const char *s, struct decimal *d)
{
	const unsigned __int128 limit = ((unsigned __int128)1 << 123);
	bool any = false;
	*d = (struct decimal){ 0 };
	if (*s == '+' || *s == '-')
		d->negative = *s++ == '-';
	for (bool fraction = false; is_digit(*s) || (*s == '.' && !fraction); s++) {
		if (*s == '.') {
			fraction = true;
			continue;
		}
		any = true;
		if (d->mant >= limit) {
			d->many = true;
			continue;
		}
		d->mant = d->mant * 10 + (unsigned)(*s - '0');
		d->exp10 -= fraction;
	}
	if (!any)
		return NULL;
	const char *e = s + 1 + ((*s == 'e' || *s == 'E') && (s[1] == '+' || s[1] == '-'));
	if ((*s == 'e' || *s == 'E') && is_digit(*e)) {
		int sign = s[1] == '-' ? -1 : 1, x = 0;
		for (; is_digit(*e); e++)
			x = x < 100000 ? x * 10 + (*e - '0')
				       : x; /* far beyond any double: the value no longer matters */
		d->exp10 += sign * x;
		s = e;
	}
	return s;
}

struct suffix {
	const char *text;
	double factor;
};

static const struct suffix count_suffixes[] = {
	{ "", 1 },        { "k", 1e3 },     { "M", 1e6 },     { "G", 1e9 },     { "B", 1e9 }, { "T", 1e12 },
	{ "Ki", 0x1p10 }, { "Mi", 0x1p20 }, { "Gi", 0x1p30 }, { "Ti", 0x1p40 }, { 0 },
};
/* Lengths of sequences and batches are powers of two by custom: a context of 8k, a batch of 4M tokens. Billions and
 * more are not. */
static const struct suffix length_suffixes[] = {
	{ "", 1 },        { "k", 0x1p10 },  { "M", 0x1p20 },  { "B", 1e9 }, { "T", 1e12 },
	{ "Ki", 0x1p10 }, { "Mi", 0x1p20 }, { "Gi", 0x1p30 }, { 0 },
};
/* A bare k, M, G or T is a power of 1024, as Slurm, Docker and the JVM take it. */
static const struct suffix size_suffixes[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "KiB", 0x1p10 },
	{ "MiB", 0x1p20 },
	{ "GiB", 0x1p30 },
	{ "TiB", 0x1p40 },
	{ "Ki", 0x1p10 },
	{ "Mi", 0x1p20 },
	{ "Gi", 0x1p30 },
	{ "Ti", 0x1p40 },
	{ "kB", 1e3 },
	{ "MB", 1e6 },
	{ "GB", 1e9 },
	{ "TB", 1e12 },
	{ "k", 0x1p10 },
	{ "M", 0x1p20 },
	{ "G", 0x1p30 },
	{ "T", 0x1p40 },
	{ 0 },
};
static const struct suffix time_suffixes[] = {
	{ "", 1 }, { "s", 1 }, { "ms", 1e-3 }, { "m", 60 }, { "h", 3600 }, { 0 },
};

/* The suffix's factor, 0 when there is none. Case does not matter, except for times, where M could be anything. */
static double find_suffix(const struct suffix *table, const char *text)
{
	if (*text == ' ' && text[1])
		text++;
	bool strict = table == time_suffixes;
	for (; table->text; table++)
		if (strict ? !strcmp(table->text, text) : !strcasecmp(table->text, text))
			return table->factor;
	return 0;
}

/* Exact conversion: 0.1e1 is 1, 1.5Ki is 1536, 1.0001k is not an integer. */
static bool to_int(const struct decimal *d, double factor, int64_t *out)
{
	unsigned __int128 m = d->mant;
	int e = d->exp10;
	for (; m && e < 0 && m % 10 == 0; e++)
		m /= 10;
	if (d->many || m > UINT64_MAX)
		return false;
	m *= (uint64_t)factor;
	for (; m && e < 0; e++) {
		if (m % 10)
			return false;
		m /= 10;
	}
	for (; m && e > 0; e--) {
		m *= 10;
		if (m > INT64_MAX)
			return false;
	}
	if (m > INT64_MAX)
		return false;
	*out = d->negative ? -(int64_t)m : (int64_t)m;
	return true;
}

static bool in_range(const struct fo_opt *row, double v)
{
	return row->lo == row->hi || (v >= row->lo && v <= row->hi);
}
static bool is_duration(const struct fo_opt *row)
{
	return row->type == FO_OPT_T_REAL && row->unit && !strcmp(row->unit, "s");
}

static const struct suffix *suffixes_of(const struct fo_opt *row)
{
	if (row->type == FO_OPT_T_BYTES)
		return size_suffixes;
	if (is_duration(row))
		return time_suffixes;
	return row->binary ? length_suffixes : count_suffixes;
}

bool fo_opt_is_taken(const struct fo_opt *row, const char *text)
{
	struct decimal d;
	const char *end = row->binary || row->type == FO_OPT_T_BYTES ? scan_decimal(text, &d) : NULL;
	end += end && *end == ' ';
	return end && end[0] && strchr("kKmMgGtT", end[0]) && !end[1] &&
	       (row->type == FO_OPT_T_BYTES || !strchr("tT", end[0]));
}

static bool parse_number(const struct fo_opt *row, void *field, const char *text)
{
	struct decimal d;
	const char *end = scan_decimal(text, &d);
	if (row->names && !strcmp(text, row->names)) {
		*(int64_t *)field = -1;
		return true;
	}
	if (!end)
		return false;
	double factor = find_suffix(suffixes_of(row), end);
	if (factor == 0)
		return false;
	if (row->type == FO_OPT_T_REAL) {
		double v = strtod(text, NULL) * factor;
		if (!isfinite(v) || !in_range(row, v))
			return false;
		*(double *)field = v;
		return true;
	}
	int64_t v;
	if (!to_int(&d, factor, &v) || !in_range(row, (double)v))
		return false;
	*(int64_t *)field = v;
	return true;
}

static bool parse_bool(bool *field, const char *text)
{
	static const char *const yes[] = { "true", "yes", "on" }, *const no[] = { "false", "no", "off" };
	for (int i = 0; i < 3; i++) {
		if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
			*field = !strcasecmp(text, yes[i]);
			return true;
		}
	}
	return false;
}

static bool parse_enum(const struct fo_opt *row, int *field, const char *text)
{
	int index = 0;
	for (const char *p = row->names; *p; index++) {
		size_t n = strcspn(p, "|");
		if (n > 0 && strlen(text) == n && !memcmp(p, text, n)) {
			*field = index;
			return true;
		}
		p += n + (p[n] == '|');
	}
	return false;
}

bool fo_opt_is_utf8(const char *text, size_t len)
{
	for (size_t at = 0, n; at < len; at += n) {
		n = fo_utf8_decode(text + at, len - at, NULL);
		if (!n)
			return false;
	}
	return true;
}

static bool parse_path(struct fo_arena *a, const char **field, const char *text)
{
	const char *path = fo_fs_home_path(a, text);
	*field = path;
	return path != NULL;
}

/* Reads the value of a flag like --json: a boolean word, or the path where the JSON goes. */
static bool parse_bare(const struct fo_opt *row, struct fo_arena *a, const char **field, const char *text)
{
	bool on;
	if (!*text || parse_bool(&on, text)) {
		*field = *text && on ? row->bare : NULL;
		return true;
	}
	return parse_path(a, field, text);
}

bool fo_opt_parse(const struct fo_opt *row, void *target, struct fo_arena *a, const char *text, size_t len)
{
	void *field = (char *)target + row->offset;
	if (memchr(text, 0, len) || !fo_opt_is_utf8(text, len))
		return false;
	char *copy = fo_arena_alloc(a, len + 1);
	memcpy(copy, text, len);
	copy[len] = 0;
	switch (row->type) {
	case FO_OPT_T_INT:
	case FO_OPT_T_REAL:
	case FO_OPT_T_BYTES: return parse_number(row, field, copy);
	case FO_OPT_T_BOOL: return parse_bool(field, copy);
	case FO_OPT_T_ENUM: return parse_enum(row, field, copy);
	case FO_OPT_T_TEXT:
		if (row->bare)
			return parse_bare(row, a, field, copy);
		if (row->path)
			return parse_path(a, field, copy);
		*(const char **)field = copy;
		return true;
	}
	return false;
}

char *fo_opt_real(char buf[40], double v)
{
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(buf, 40, "%.*g", digits, v);
		if (strtod(buf, NULL) == v)
			break;
	}
	/* 1e+09 as 1e9, and 1000 rather than 1e3: whole numbers below a million are written out. */
	char *e = strchr(buf, 'e');
	if (e && fabs(v) < 1e6 && v == floor(v)) {
		snprintf(buf, 40, "%.0f", v);
	} else if (e) {
		int x = atoi(e + 1);
		snprintf(e + 1, 39 - (size_t)(e - buf), "%d", x);
	}
	return buf;
}

static void put_number(const struct fo_opt *row, double v, struct fo_str *out)
{
	char buf[40];
	static const char *const unit[] = { "", " KiB", " MiB", " GiB", " TiB", " PiB" };
	int i = 0;
	if (row->type == FO_OPT_T_BYTES) {
		while (i < 5 && fabs(v) >= 1024 && fmod(v, 1024) == 0) {
			v /= 1024;
			i++;
		}
	}
	fo_str_printf(out, "%s%s", fo_opt_real(buf, v), unit[i]);
	if (row->type == FO_OPT_T_BYTES && i == 0)
		fo_str_puts(out, " B");
}

void fo_opt_range(const struct fo_opt *row, struct fo_str *out)
{
	bool number = row->type == FO_OPT_T_INT || row->type == FO_OPT_T_REAL || row->type == FO_OPT_T_BYTES;
	if (!number || row->lo == row->hi || (isinf(row->lo) && isinf(row->hi)))
		return;
	if (isinf(row->hi))
		fo_str_puts(out, "at least ");
	else if (isinf(row->lo))
		fo_str_puts(out, "at most ");
	if (!isinf(row->lo))
		put_number(row, row->lo, out);
	if (!isinf(row->lo) && !isinf(row->hi))
		fo_str_puts(out, " to ");
	if (!isinf(row->hi))
		put_number(row, row->hi, out);
	if (row->unit && *row->unit && row->type != FO_OPT_T_BYTES)
		fo_str_printf(out, " %s", row->unit);
}

const char *fo_opt_refused(const struct fo_opt *row, const char *text, size_t len)
{
	const char *r = row->refused;
	if (row->path && len && *text == '~')
		return len == 1 || text[1] == '/' ? "'~' is the folder in HOME, which is not set"
						  : "only '~/' is expanded, no other user's home: write the whole "
						    "path, or ./~... for that very name";
	return r && !strncmp(r, text, len) && !strncmp(r + len, ": ", 2) ? r + len + 2 : "";
}

static void put_names(const struct fo_opt *row, struct fo_str *out)
{
	for (const char *p = row->names; *p;) {
		size_t n = strcspn(p, "|");
		fo_str_printf(out, "%s%.*s", p == row->names ? "" : ", ", (int)n, p);
		p += n + (p[n] == '|');
	}
}

void fo_opt_expected(const struct fo_opt *row, struct fo_str *out)
{
	switch (row->type) {
	case FO_OPT_T_INT: fo_str_puts(out, "an integer"); break;
	case FO_OPT_T_REAL: fo_str_puts(out, is_duration(row) ? "a duration" : "a number"); break;
	case FO_OPT_T_BYTES: fo_str_puts(out, "a size"); break;
	case FO_OPT_T_BOOL:
		fo_str_puts(out, row->names ? "one of " : "true or false");
		if (row->names)
			put_names(row, out);
		return;
	case FO_OPT_T_TEXT: fo_str_puts(out, row->path ? "a path in UTF-8" : "UTF-8 text without NUL"); return;
	case FO_OPT_T_ENUM:
		fo_str_puts(out, "one of ");
		put_names(row, out);
		return;
	}
	struct fo_str range = { 0 };
	fo_opt_range(row, &range);
	if (range.len)
		fo_str_printf(out, "%s%s", strncmp(range.data, "at ", 3) ? " from " : " of ", range.data);
	else if (row->unit && *row->unit)
		fo_str_printf(out, " (%s)", row->unit);
	if (row->names)
		fo_str_printf(out, ", or %s", row->names);
	fo_str_fini(&range);
}

const char *fo_opt_value_text(struct fo_opt_set *s, int i)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	const struct fo_opt *row = fo_opt_row(s, i);
	const void *field = (const char *)s->target + row->offset;
	switch (row->type) {
	case FO_OPT_T_INT:
		if (row->names && *(const int64_t *)field < 0)
			return row->names;
		return fo_arena_printf(&s->arena, "%lld", (long long)*(const int64_t *)field);
	case FO_OPT_T_BOOL: {
		static const char *const word[2][2] = { { "false", "true" }, { "no", "yes" } };
		return word[row->names != NULL][*(const bool *)field];
	}
	case FO_OPT_T_TEXT: return *(const char *const *)field ? *(const char *const *)field : "";
	case FO_OPT_T_REAL: {
		char buf[40];
		return fo_arena_strdup(&s->arena, fo_opt_real(buf, *(const double *)field));
	}
	case FO_OPT_T_BYTES: {
		int64_t v = *(const int64_t *)field;
		int u = 0;
		for (; v && u < 4 && v % 1024 == 0; u++)
			v /= 1024;
		return fo_arena_printf(&s->arena, "%lld%s", (long long)v, unit[u]);
	}
	case FO_OPT_T_ENUM: {
		int left = *(const int *)field;
		for (const char *p = row->names; left >= 0 && *p; left--) {
			size_t n = strcspn(p, "|");
			if (left == 0)
				return fo_arena_printf(&s->arena, "%.*s", (int)n, p);
			p += n + (p[n] == '|');
		}
		return "";
	}
	}
	return "";
}
