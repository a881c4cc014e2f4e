#include "base/schema.h"
#include "base/fs.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_INTEGERS 9007199254740992.0 /* 2^53: beyond it not every integer is a double */

/* Words of a type: what errors expect, and its name in docs/formats.md. */
static const struct {
	const char *expected, *documented;
} type_words[] = {
	[FO_SCHEMA_REAL] = { "a number", "number" },
	[FO_SCHEMA_INT] = { "an integer", "integer" },
	[FO_SCHEMA_INT32] = { "an integer", "integer" },
	[FO_SCHEMA_BOOL] = { "true or false", "boolean" },
	[FO_SCHEMA_MARK] = { "true or false", "true" },
	[FO_SCHEMA_TEXT] = { "a text", "text" },
	[FO_SCHEMA_CHARS] = { "a short text", "text" },
	[FO_SCHEMA_HEX] = { "sixteen hexadecimal digits", "hexadecimal" },
	[FO_SCHEMA_CHOICE] = { "one of its names", "" },
	[FO_SCHEMA_SCALAR] = { "a text, number or boolean", "any scalar" },
	[FO_SCHEMA_RAW] = { "", "object" },
	[FO_SCHEMA_REALS] = { "a list of numbers", "numbers" },
	[FO_SCHEMA_DIMS] = { "a list of a few integers", "integers" },
	[FO_SCHEMA_BY_NAME] = { "an object of numbers", "object" },
	[FO_SCHEMA_RECORD] = { "an object", "object" },
	[FO_SCHEMA_LIST] = { "a list of objects", "array" },
	[FO_SCHEMA_MAP] = { "an object of objects", "object" },
};

/* ---- members ---- */

static void *member(const struct fo_schema_field *f, const void *record)
{
	return (char *)(uintptr_t)record + f->offset;
}

/* The number of elements of a list; of an optional record 0 or 1. */
static int64_t count_of(const struct fo_schema_field *f, const void *record)
{
	const char *at = (const char *)record + f->count;
	switch (f->count_size) {
	case 0: return 1;
	case sizeof(bool): return *(const bool *)at;
	case sizeof(int): return *(const int *)(const void *)at;
	default: return *(const int64_t *)(const void *)at;
	}
}

static void set_count(const struct fo_schema_field *f, void *record, int64_t n)
{
	char *at = (char *)record + f->count;
	switch (f->count_size) {
	case 0: break;
	case sizeof(bool): *(bool *)at = n > 0; break;
	case sizeof(int): *(int *)(void *)at = (int)n; break;
	default: *(int64_t *)(void *)at = n;
	}
}

/* The first element of a list or array. */
static void *elements(const struct fo_schema_field *f, const void *record)
{
	void *at = member(f, record);
	return f->flags & FO_POINTER ? *(void **)at : at;
}

static bool is_absent(const struct fo_schema_field *f, const void *record)
{
	const void *at = member(f, record);
	switch (f->type) {
	case FO_SCHEMA_REAL: return isnan(*(const double *)at);
	case FO_SCHEMA_MARK: return !(*(const double *)at > 0);
	case FO_SCHEMA_INT: return *(const int64_t *)at == f->absent;
	case FO_SCHEMA_INT32:
	case FO_SCHEMA_CHOICE: return *(const int *)at == f->absent;
	case FO_SCHEMA_BOOL: return !*(const bool *)at;
	case FO_SCHEMA_CHARS: return !*(const char *)at;
	case FO_SCHEMA_HEX: return !*(const uint64_t *)at;
	case FO_SCHEMA_TEXT:
	case FO_SCHEMA_SCALAR:
	case FO_SCHEMA_RAW: {
		const char *text = *(const char *const *)at;
		return !text || !*text;
	}
	case FO_SCHEMA_DIMS: return !*(const int64_t *)at;
	case FO_SCHEMA_BY_NAME: return false;
	case FO_SCHEMA_RECORD:
		if (f->flags & FO_POINTER)
			return !*(const void *const *)at;
		return !count_of(f, record);
	case FO_SCHEMA_REALS:
	case FO_SCHEMA_LIST:
	case FO_SCHEMA_MAP: return !count_of(f, record);
	}
	return false;
}

/* ---- writing ---- */

static void write_element(const struct fo_schema_field *f, const void *element, struct fo_json *j)
{
	struct fo_str line = { 0 };
	if (!(f->flags & FO_LINES)) {
		fo_schema_write(f->of, element, NULL, j);
		return;
	}
	fo_schema_text(f->of, element, false, &line);
	fo_json_raw(j, NULL, line.data);
	fo_str_fini(&line);
}

static void write_list(const struct fo_schema_field *f, const void *record, struct fo_json *j)
{
	const char *element = elements(f, record);
	int64_t n = count_of(f, record);
	fo_json_array(j, f->key);
	for (int64_t i = 0; i < n; i++)
		if (f->type == FO_SCHEMA_REALS)
			fo_json_real(j, NULL, ((const double *)(const void *)element)[i]);
		else
			write_element(f, element + (size_t)i * f->of->size, j);
	fo_json_close(j);
}

static void write_field(const struct fo_schema_field *f, const void *record, struct fo_json *j);

/* The row that is the value of each key by itself; NULL: values are records. */
static const struct fo_schema_field *plain_value(const struct fo_schema *s)
{
	return s->fields == 2 && !*s->field[1].key ? &s->field[1] : NULL;
}

/* Each element under the text of its first row. */
static void write_map(const struct fo_schema_field *f, const void *record, struct fo_json *j)
{
	const char *element = elements(f, record);
	const struct fo_schema rest = { .field = f->of->field + 1, .fields = f->of->fields - 1 };
	const struct fo_schema_field *plain = plain_value(f->of);
	fo_json_object(j, f->key);
	for (int64_t i = 0; i < count_of(f, record); i++, element += f->of->size) {
		const char *key = *(const char *const *)member(f->of->field, element);
		if (plain) {
			struct fo_schema_field value = *plain;
			value.key = key;
			write_field(&value, element, j);
		} else {
			fo_schema_write(&rest, element, key, j);
		}
	}
	fo_json_close(j);
}

static void write_numbers(const struct fo_schema_field *f, const void *at, struct fo_json *j)
{
	if (f->type == FO_SCHEMA_DIMS) {
		const int64_t *dim = at;
		fo_json_array(j, f->key);
		for (size_t i = 0; i < f->size / sizeof *dim && dim[i]; i++)
			fo_json_int(j, NULL, dim[i]);
	} else {
		const double *v = at, unit = f->per > 0 ? 1 / f->per : 1;
		fo_json_object(j, f->key);
		for (int i = 0; i < f->elements; i++)
			fo_json_real(j, f->names[i], v[i] * unit);
	}
	fo_json_close(j);
}

static void write_text(const struct fo_schema_field *f, const char *text, struct fo_json *j)
{
	fo_json_text(j, f->key, f->flags & FO_NULLS && text && !*text ? NULL : text);
}

static void write_field(const struct fo_schema_field *f, const void *record, struct fo_json *j)
{
	const void *at = member(f, record);
	bool absent = is_absent(f, record);
	if (f->flags & FO_READ_ONLY || (absent && (f->flags & FO_OMIT || f->type == FO_SCHEMA_MARK)))
		return;
	if (absent && f->flags & FO_NULLS) {
		fo_json_text(j, f->key, NULL);
		return;
	}
	switch (f->type) {
	case FO_SCHEMA_REAL: fo_json_real(j, f->key, *(const double *)at); break;
	case FO_SCHEMA_MARK: fo_json_bool(j, f->key, true); break;
	case FO_SCHEMA_INT: fo_json_int(j, f->key, *(const int64_t *)at); break;
	case FO_SCHEMA_INT32: fo_json_int(j, f->key, *(const int *)at); break;
	case FO_SCHEMA_BOOL: fo_json_bool(j, f->key, *(const bool *)at); break;
	case FO_SCHEMA_CHOICE: fo_json_text(j, f->key, f->names[*(const int *)at]); break;
	case FO_SCHEMA_CHARS: write_text(f, at, j); break;
	case FO_SCHEMA_TEXT:
	case FO_SCHEMA_SCALAR: write_text(f, *(const char *const *)at, j); break;
	case FO_SCHEMA_RAW: fo_json_raw(j, f->key, absent ? "null" : *(const char *const *)at); break;
	case FO_SCHEMA_HEX: {
		char hex[24];
		snprintf(hex, sizeof hex, "%016" PRIx64, *(const uint64_t *)at);
		fo_json_text(j, f->key, hex);
		break;
	}
	case FO_SCHEMA_DIMS:
	case FO_SCHEMA_BY_NAME: write_numbers(f, at, j); break;
	case FO_SCHEMA_RECORD:
		if (f->flags & FO_INLINE)
			fo_schema_write_fields(f->of, at, j);
		else
			fo_schema_write(f->of, elements(f, record), f->key, j);
		break;
	case FO_SCHEMA_REALS:
	case FO_SCHEMA_LIST: write_list(f, record, j); break;
	case FO_SCHEMA_MAP: write_map(f, record, j); break;
	}
}

void fo_schema_write_fields(const struct fo_schema *s, const void *record, struct fo_json *j)
{
	if (s->event)
		fo_json_text(j, "event", s->event);
	if (s->version)
		fo_json_int(j, "schema", s->version);
	for (int i = 0; i < s->fields; i++)
		write_field(&s->field[i], record, j);
}

void fo_schema_write(const struct fo_schema *s, const void *record, const char *key, struct fo_json *j)
{
	fo_json_object(j, key);
	fo_schema_write_fields(s, record, j);
	fo_json_close(j);
}

void fo_schema_text(const struct fo_schema *s, const void *record, bool pretty, struct fo_str *out)
{
	struct fo_json j;
	fo_json_begin(&j, out, pretty);
	fo_schema_write(s, record, NULL, &j);
}

/* ---- reading ---- */

static void blank_field(const struct fo_schema_field *f, void *record)
{
	void *at = member(f, record);
	switch (f->type) {
	case FO_SCHEMA_REAL:
	case FO_SCHEMA_MARK: *(double *)at = NAN; break;
	case FO_SCHEMA_INT: *(int64_t *)at = f->absent; break;
	case FO_SCHEMA_INT32:
	case FO_SCHEMA_CHOICE: *(int *)at = (int)f->absent; break;
	case FO_SCHEMA_TEXT:
	case FO_SCHEMA_SCALAR: *(const char **)at = ""; break;
	case FO_SCHEMA_RAW: *(const char **)at = NULL; break;
	case FO_SCHEMA_BY_NAME:
		for (int i = 0; i < f->elements; i++)
			((double *)at)[i] = NAN;
		break;
	case FO_SCHEMA_RECORD:
		if (f->flags & FO_POINTER)
			*(void **)at = NULL;
		else
			fo_schema_blank(f->of, at);
		break;
	case FO_SCHEMA_BOOL:
	case FO_SCHEMA_CHARS:
	case FO_SCHEMA_HEX:
	case FO_SCHEMA_DIMS:
	case FO_SCHEMA_REALS:
	case FO_SCHEMA_LIST:
	case FO_SCHEMA_MAP: memset(at, 0, f->size); break;
	}
	if (f->count_size)
		set_count(f, record, 0);
}

void fo_schema_blank(const struct fo_schema *s, void *record)
{
	for (int i = 0; i < s->fields; i++)
		blank_field(&s->field[i], record);
}

void fo_schema_refuse(struct fo_schema_reader *r, const char *key, const char *expected)
{
	if (r->st == FO_OK && !r->lenient)
		r->st = fo_fail(FO_EFORMAT, "'%s': %s%s: expected %s", r->where, r->at, key, expected);
}

/* Records that the value v of f is not what the row asks for. Returns false. */
static bool wrong(struct fo_schema_reader *r, const struct fo_schema_field *f, const json_t *v)
{
	char shown[48], text[300], range[128] = "", *dump = NULL;
	const char *expected = f->expected ? f->expected : type_words[f->type].expected, *got = "nothing";
	if (r->lenient)
		return false;
	/* One of the list is wrong, not the list. */
	const bool element = f->type == FO_SCHEMA_DIMS && json_is_array(v) &&
			     json_array_size(v) <= f->size / sizeof(int64_t);
	const bool number = f->type == FO_SCHEMA_REAL || f->type == FO_SCHEMA_INT || f->type == FO_SCHEMA_INT32;
	if (element)
		expected = type_words[FO_SCHEMA_INT].expected;
	if (!f->expected && (number || element) && (f->low != 0 || f->high != 0))
		snprintf(range, sizeof range, " from %.15g to %.15g", f->low, f->high);
	const char *null = !f->expected && f->type == FO_SCHEMA_REAL && f->flags & FO_NULLS ? ", or null" : "";
	if (json_is_array(v))
		got = "a list";
	else if (json_is_object(v))
		got = "an object";
	else if (v)
		got = dump = json_dumps(v, JSON_ENCODE_ANY);
	snprintf(text, sizeof text, "%s%s%s, got %s", expected, range, null,
		 fo_str_visible(shown, sizeof shown, got ? got : "?"));
	free(dump);
	fo_schema_refuse(r, f->key, text);
	return false;
}

static bool in_range(const struct fo_schema_field *f, double x)
{
	return (f->low == 0 && f->high == 0) || (x >= f->low && x <= f->high);
}

static bool read_real(const struct fo_schema_field *f, const json_t *v, double *out)
{
	double x = json_number_value(v);
	if (!json_is_number(v) || !in_range(f, x))
		return false;
	*out = x;
	return true;
}

/* A lenient reader takes the whole part of a number: what older versions wrote with a fraction. */
static bool read_int(const struct fo_schema_field *f, const json_t *v, bool lenient, int64_t *out)
{
	double x = json_number_value(v);
	bool whole = json_is_integer(v) || (lenient && json_is_real(v) && fabs(x) <= EXACT_INTEGERS);
	if (!whole || !in_range(f, x))
		return false;
	*out = json_is_integer(v) ? json_integer_value(v) : (int64_t)x;
	return true;
}

static bool is_word(const char *s) { return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(s); }

static bool read_chars(const struct fo_schema_field *f, const json_t *v, char *out)
{
	const char *s = json_string_value(v);
	/* A byte made visible takes four, and fo_str_visible keeps some free. */
	char shown[1024 + 8];
	if (!s || strlen(s) >= f->size || strlen(s) != json_string_length(v))
		return false;
	snprintf(out, f->size, "%s", f->flags & FO_VISIBLE ? fo_str_visible(shown, sizeof shown, s) : s);
	return true;
}

static bool read_hex(const json_t *v, uint64_t *out)
{
	const char *s = json_string_value(v);
	if (!s || strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16)
		return false;
	*out = strtoull(s, NULL, 16);
	return true;
}

static bool read_choice(const struct fo_schema_field *f, const json_t *v, int *out)
{
	const char *s = json_string_value(v);
	for (int i = 0; s && i < f->elements; i++)
		if (!strcmp(s, f->names[i])) {
			*out = i;
			return true;
		}
	return false;
}

static bool read_scalar(struct fo_arena *a, const json_t *v, const char **out)
{
	if (json_is_string(v))
		*out = fo_arena_strdup(a, json_string_value(v));
	else if (json_is_integer(v))
		*out = fo_arena_printf(a, "%lld", (long long)json_integer_value(v));
	else if (json_is_real(v))
		*out = fo_arena_printf(a, "%.10g", json_real_value(v));
	else if (json_is_boolean(v))
		*out = json_is_true(v) ? "true" : "false";
	else
		return false;
	return true;
}

static bool read_dims(const struct fo_schema_field *f, const json_t *v, int64_t *out)
{
	size_t most = f->size / sizeof *out;
	if (!json_is_array(v) || json_array_size(v) > most)
		return false;
	memset(out, 0, f->size);
	for (size_t i = 0; i < json_array_size(v); i++)
		if (!read_int(f, json_array_get(v, i), false, &out[i]))
			return false;
	return true;
}

static bool read_reals(const struct fo_schema_field *f, const json_t *v, void *record, struct fo_schema_reader *r)
{
	size_t n = json_array_size(v), most = f->flags & FO_POINTER ? (size_t)f->elements : f->size / sizeof(double);
	if (!json_is_array(v) || n > most)
		return false;
	if (f->flags & FO_POINTER)
		*(double **)member(f, record) = fo_arena_alloc(r->arena, (n + 1) * sizeof(double));
	double *out = elements(f, record);
	for (size_t i = 0; i < n; i++)
		out[i] = json_is_number(json_array_get(v, i)) ? json_number_value(json_array_get(v, i)) : NAN;
	set_count(f, record, (int64_t)n);
	return true;
}

static bool read_by_name(const struct fo_schema_field *f, const json_t *v, double *out)
{
	for (int i = 0; i < f->elements; i++) {
		const json_t *x = json_object_get(v, f->names[i]);
		if (json_is_number(x))
			out[i] = json_number_value(x) * (f->per > 0 ? f->per : 1);
	}
	return json_is_object(v);
}

static void read_fields(const struct fo_schema *s, int from, const json_t *o, void *record, struct fo_schema_reader *r);
static bool read_value(const struct fo_schema_field *f, const json_t *v, void *record, struct fo_schema_reader *r);

/* Reads the fields of a nested object, from row `from` on; errors in it begin with "key[index].". */
static void read_nested(const struct fo_schema_field *f, int from, int64_t index, const json_t *v, void *record,
			struct fo_schema_reader *r)
{
	size_t end = strlen(r->at);
	if (index < 0)
		snprintf(r->at + end, sizeof r->at - end, "%s.", f->key);
	else
		snprintf(r->at + end, sizeof r->at - end, "%s[%lld].", f->key, (long long)index);
	read_fields(f->of, from, v, record, r);
	r->at[end] = 0;
}

static bool read_list(const struct fo_schema_field *f, const json_t *v, void *record, struct fo_schema_reader *r)
{
	bool map = f->type == FO_SCHEMA_MAP;
	size_t n = map ? json_object_size(v) : json_array_size(v), i = 0, size = f->of->size;
	if (!(map ? json_is_object(v) : json_is_array(v)) || n > (size_t)f->elements)
		return false;
	if (f->flags & FO_POINTER)
		*(void **)member(f, record) = fo_arena_alloc(r->arena, (n + 1) * size);
	char *element = elements(f, record);
	void *place = json_object_iter((json_t *)(uintptr_t)v);
	for (; i < n && r->st == FO_OK; i++, element += size) {
		fo_schema_blank(f->of, element);
		if (!map) {
			read_nested(f, 0, (int64_t)i, json_array_get(v, i), element, r);
			continue;
		}
		*(const char **)member(f->of->field, element) = fo_arena_strdup(r->arena, json_object_iter_key(place));
		const struct fo_schema_field *plain = plain_value(f->of);
		if (!plain)
			read_nested(f, 1, (int64_t)i, json_object_iter_value(place), element, r);
		else if (!read_value(plain, json_object_iter_value(place), element, r))
			return false;
		place = json_object_iter_next((json_t *)(uintptr_t)v, place);
	}
	set_count(f, record, (int64_t)i);
	return true;
}

/* Reads one value that is there; false: it is not what the row asks for. */
static bool read_value(const struct fo_schema_field *f, const json_t *v, void *record, struct fo_schema_reader *r)
{
	void *at = member(f, record);
	int64_t n;
	switch (f->type) {
	case FO_SCHEMA_REAL: return read_real(f, v, at);
	case FO_SCHEMA_MARK: *(double *)at = json_is_true(v); return json_is_boolean(v);
	case FO_SCHEMA_INT: return read_int(f, v, r->lenient, at);
	case FO_SCHEMA_INT32:
		if (!read_int(f, v, r->lenient, &n) || n < INT32_MIN || n > INT32_MAX)
			return false;
		*(int *)at = (int)n;
		return true;
	case FO_SCHEMA_BOOL: *(bool *)at = json_is_true(v); return json_is_boolean(v);
	case FO_SCHEMA_TEXT:
		if (json_is_string(v))
			*(const char **)at = fo_arena_strdup(r->arena, json_string_value(v));
		return json_is_string(v);
	case FO_SCHEMA_CHARS: return read_chars(f, v, at);
	case FO_SCHEMA_HEX: return read_hex(v, at);
	case FO_SCHEMA_CHOICE: return read_choice(f, v, at);
	case FO_SCHEMA_SCALAR: return read_scalar(r->arena, v, at);
	case FO_SCHEMA_RAW: return true;
	case FO_SCHEMA_REALS: return read_reals(f, v, record, r);
	case FO_SCHEMA_DIMS: return read_dims(f, v, at);
	case FO_SCHEMA_BY_NAME: return read_by_name(f, v, at);
	case FO_SCHEMA_RECORD:
		if (json_is_object(v)) {
			set_count(f, record, 1);
			read_nested(f, 0, -1, v, at, r);
		}
		return json_is_object(v);
	case FO_SCHEMA_LIST:
	case FO_SCHEMA_MAP: return read_list(f, v, record, r);
	}
	return false;
}

static void read_fields(const struct fo_schema *s, int from, const json_t *o, void *record, struct fo_schema_reader *r)
{
	for (int i = from; i < s->fields && r->st == FO_OK; i++) {
		const struct fo_schema_field *f = &s->field[i];
		if (f->flags & FO_WRITE_ONLY)
			continue;
		if (f->flags & FO_INLINE) {
			read_fields(f->of, 0, o, member(f, record), r);
			continue;
		}
		const json_t *v = json_object_get(o, f->key);
		bool null = json_is_null(v) && (f->flags & FO_NULLS || f->type == FO_SCHEMA_SCALAR);
		if (null)
			blank_field(f, record);
		else if (v ? !read_value(f, v, record, r) : (f->flags & FO_NEEDED) != 0)
			wrong(r, f, v);
		else if (v && f->flags & FO_WORD && !is_word(member(f, record)))
			fo_schema_refuse(r, f->key, "a word of small letters, digits, '_' or '-'");
	}
	if (s->check && r->st == FO_OK && !r->lenient)
		s->check(record, r);
}

fo_status fo_schema_read(const struct fo_schema *s, const json_t *o, void *record, struct fo_schema_reader *r)
{
	const json_t *stated = json_object_get(o, "schema");
	int64_t version = json_integer_value(stated);
	if (s->version && !stated)
		return r->st = fo_fail(FO_EFORMAT, "'%s' has no \"schema\", expected %d: not a %s", r->where,
				       s->version, s->what);
	if (s->version && (version > s->version || version < (s->oldest ? s->oldest : s->version)))
		return r->st = fo_fail(FO_EFORMAT, "'%s': schema is %lld, expected %d: not a %s of this version",
				       r->where, (long long)version, s->version, s->what);
	read_fields(s, 0, o, record, r);
	return r->st;
}

fo_status fo_schema_parse(const char *text, size_t len, const char *where, const char *what, json_t **out)
{
	json_error_t e;
	char shown[JSON_ERROR_TEXT_LENGTH * 4];
	const char *why = "a key or a text holds the character U+0000";
	*out = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	if (*out)
		return FO_OK;
	if (json_error_code(&e) != json_error_null_byte_in_key && json_error_code(&e) != json_error_null_character)
		why = fo_str_visible(shown, sizeof shown, e.text);
	return fo_fail(FO_EFORMAT, "'%s' is not a %s: line %d, column %d: not JSON: %s", where, what, e.line, e.column,
		       why);
}

fo_status fo_schema_read_file(const struct fo_schema *s, const char *path, size_t most, void *record,
			      struct fo_schema_reader *r)
{
	char *text;
	size_t len;
	json_t *o;
	r->where = path;
	FO_TRY(fo_fs_read_regular(r->arena, path, most, &text, &len));
	FO_TRY(fo_schema_parse(text, len, path, s->what, &o));
	fo_status st = fo_schema_read(s, o, record, r);
	json_decref(o);
	return st;
}

/* ---- documentation ---- */

static void put_type(const struct fo_schema_field *f, struct fo_str *out)
{
	if (f->type == FO_SCHEMA_CHOICE) {
		for (int i = 0; i < f->elements; i++)
			fo_str_printf(out, "%s`%s`", i ? ", " : "", f->names[i]);
	} else {
		fo_str_puts(out, type_words[f->type].documented);
	}
	bool number = f->type == FO_SCHEMA_REAL;
	if (f->flags & FO_OMIT || f->type == FO_SCHEMA_MARK)
		fo_str_puts(out, ", or absent");
	else if (number || f->flags & FO_NULLS)
		fo_str_puts(out, f->flags & FO_NEEDED && number && !(f->flags & FO_NULLS) ? "" : " or null");
}

static void row_markdown(const char *before, const struct fo_schema_field *f, struct fo_str *out)
{
	fo_str_printf(out, "| `%s%s` | ", before, f->key);
	put_type(f, out);
	fo_str_printf(out, " | %s | %s", f->unit, f->meaning);
	if (f->type == FO_SCHEMA_BY_NAME)
		for (int i = 0; i < f->elements; i++)
			fo_str_printf(out, "%s`%s`", i ? ", " : ": ", f->names[i]);
	if (f->since)
		fo_str_printf(out, " (since schema %d)", f->since);
	fo_str_puts(out, " |\n");
}

static void rows_markdown(const struct fo_schema *s, int from, const char *before, struct fo_str *out)
{
	for (int i = from; i < s->fields; i++) {
		const struct fo_schema_field *f = &s->field[i];
		bool map = f->type == FO_SCHEMA_MAP;
		const char *element = "";
		char under[160];
		if (f->flags & FO_INLINE) {
			rows_markdown(f->of, 0, before, out);
			continue;
		}
		if (i + 1 < s->fields && f[1].flags & FO_READ_ONLY)
			continue; /* the row that reads it says more */
		row_markdown(before, f, out);
		if (!f->of || *f->of->name || (map && plain_value(f->of)))
			continue;
		if (map)
			element = ".NAME";
		else if (f->type == FO_SCHEMA_LIST)
			element = "[]";
		snprintf(under, sizeof under, "%s%s%s.", before, f->key, element);
		rows_markdown(f->of, map, under, out);
	}
}

void fo_schema_markdown(const struct fo_schema *s, struct fo_str *out)
{
	fo_str_puts(out, "| key | type | unit | meaning |\n|---|---|---|---|\n");
	if (s->event)
		fo_str_printf(out, "| `event` | text | | `%s` |\n", s->event);
	if (s->version)
		fo_str_printf(out, "| `schema` | integer | | %d |\n", s->version);
	rows_markdown(s, 0, "", out);
}
