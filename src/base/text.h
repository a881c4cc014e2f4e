/* Words in names that profilers wrote, and sums of times from files, which may be anything. */
#ifndef FO_BASE_TEXT_H
#define FO_BASE_TEXT_H

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* Does s have `word` anywhere, whatever the case? False in an empty text. */
static inline bool fo_text_mentions(const char *s, const char *word)
{
	size_t n = strlen(word);
	for (; *s; s++)
		if (strncasecmp(s, word, n) == 0)
			return true;
	return false;
}

/* The same between characters that are no letters: "pp" in "mesh_pp". */
static inline bool fo_text_has_word(const char *s, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = s; *p; p++)
		if (strncasecmp(p, word, n) == 0 && (p == s || !isalpha((unsigned char)p[-1])) &&
		    !isalpha((unsigned char)p[n]))
			return true;
	return false;
}

/* Is `end` the end of s, whatever the case? */
static inline bool fo_text_ends(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);
	return n >= m && strcasecmp(s + n - m, end) == 0;
}

/* The part after the last slash. */
static inline const char *fo_text_file_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* a + b and a - b, which stop at the ends of int64_t. */
static inline int64_t fo_plus(int64_t a, int64_t b)
{
	int64_t v;
	if (__builtin_add_overflow(a, b, &v))
		v = a < 0 ? INT64_MIN : INT64_MAX;
	return v;
}
static inline int64_t fo_minus(int64_t a, int64_t b)
{
	int64_t v;
	if (__builtin_sub_overflow(a, b, &v))
		v = a < b ? INT64_MIN : INT64_MAX;
	return v;
}

#endif
