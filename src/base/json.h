/* Writes JSON value by value. Records that are read, too, have a table (base/schema.h). Strings are escaped, broken
 * UTF-8 becomes U+FFFD, non-finite numbers become null; numbers are printed with 17 significant digits when they need
 * them. */
#ifndef FO_BASE_JSON_H
#define FO_BASE_JSON_H

#include "base/str.h"

/* A writer of at most 32 levels. An assertion checks the depth, which our code decides and never the input. */
struct fo_json {
	struct fo_str *out;
	int depth;
	bool comma[32], array[32], pretty;
};

void fo_json_begin(struct fo_json *j, struct fo_str *out, bool pretty);
/* key is NULL inside arrays and for the outermost value. */
void fo_json_object(struct fo_json *j, const char *key);
void fo_json_array(struct fo_json *j, const char *key);
void fo_json_close(struct fo_json *j); /* the innermost object or array; pretty: ends the text with a line feed */
void fo_json_text(struct fo_json *j, const char *key, const char *value); /* NULL value writes null */
/* An array of n texts. */
void fo_json_texts(struct fo_json *j, const char *key, const char *const *text, int64_t n);
void fo_json_int(struct fo_json *j, const char *key, int64_t value);
void fo_json_real(struct fo_json *j, const char *key, double value);
void fo_json_bool(struct fo_json *j, const char *key, bool value);
void fo_json_raw(struct fo_json *j, const char *key, const char *json); /* already JSON */
void fo_json_string(struct fo_str *out, const char *text, size_t len);  /* one quoted string */

/* Several members of the open object, as in fo_json_put(j, FO_TEXT("model", m->name), FO_INT("layers", m->layers)). */
struct fo_json_member {
	const char *key;
	enum { FO_JSON_TEXT, FO_JSON_INT, FO_JSON_REAL, FO_JSON_BOOL, FO_JSON_HEX } type;
	union {
		const char *text;
		int64_t integer;
		double real;
		bool yes;
	};
};
#define FO_TEXT(key_, v) ((struct fo_json_member){ .key = (key_), .type = FO_JSON_TEXT, .text = (v) })
#define FO_INT(key_, v) ((struct fo_json_member){ .key = (key_), .type = FO_JSON_INT, .integer = (v) })
#define FO_REAL(key_, v) ((struct fo_json_member){ .key = (key_), .type = FO_JSON_REAL, .real = (v) })
#define FO_BOOL(key_, v) ((struct fo_json_member){ .key = (key_), .type = FO_JSON_BOOL, .yes = (v) })
/* 16 hexadecimal digits: JSON readers lose integers beyond 2^53. */
#define FO_HEX(key_, v) ((struct fo_json_member){ .key = (key_), .type = FO_JSON_HEX, .integer = (int64_t)(v) })
#define FO_JSON_MEMBERS(...)                              \
	((const struct fo_json_member[]){ __VA_ARGS__ }), \
		sizeof((const struct fo_json_member[]){ __VA_ARGS__ }) / sizeof(struct fo_json_member)
#define fo_json_put(j, ...) fo_json_members(j, FO_JSON_MEMBERS(__VA_ARGS__))
/* The same as an object of their own. */
#define fo_json_record(j, key, ...) (fo_json_object(j, key), fo_json_put(j, __VA_ARGS__), fo_json_close(j))
void fo_json_members(struct fo_json *j, const struct fo_json_member *m, size_t n);

/* What a member holds where nothing is known: null. */
static inline const char *fo_json_some(const char *text) { return text && *text ? text : NULL; }
static inline double fo_json_when(bool known, double v) { return known ? v : (double)__builtin_nan(""); }

#endif
