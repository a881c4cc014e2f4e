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
void fo_json_int(struct fo_json *j, const char *key, int64_t value);
void fo_json_real(struct fo_json *j, const char *key, double value);
void fo_json_bool(struct fo_json *j, const char *key, bool value);
void fo_json_raw(struct fo_json *j, const char *key, const char *json); /* already JSON */
void fo_json_string(struct fo_str *out, const char *text, size_t len);  /* one quoted string */

#endif
