#include "data/property.h"

#include "base/mem.h"
#include "data/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SURROGATES = 0xd800, AFTER_SURROGATES = 0xe000 };
/* Sources that say a character has the property: data/unicode.txt, PCRE2. */
enum { OURS = 1, THEIRS = 2 };

/* ---- names ---- */

/* Writes PCRE2's name of the property `name` to `of`: a category, a group of them, or "sc:" and a script. Names are
 * compared as Unicode compares them, by letters and digits alone. False: there is no such property. */
static bool find_name(const char *name, size_t len, char of[PROPERTY_NAME])
{
	char plain[PROPERTY_NAME];
	size_t n = 0;
	for (size_t i = 0; i < len; i++)
		if (!strchr(" _-", name[i])) {
			if (n + 2 >= sizeof plain)
				return false;
			plain[n++] = (char)tolower((unsigned char)name[i]);
		}
	plain[n] = ':';
	struct unicode_walk w = { .section = "name" };
	while (unicode_next(&w))
		if (!strncmp(w.entry, plain, n + 1)) {
			snprintf(of, PROPERTY_NAME, "%.*s", (int)w.value_len, w.value);
			return true;
		}
	return false;
}

static bool is_script(const char *of) { return !strncmp(of, "sc:", 3); }

/* ---- which characters ---- */

/* Marks the characters that have the property. */
static void mark_ours(unsigned char *has, const char *of)
{
	const bool script = is_script(of);
	const char *want = script ? of + 3 : of;
	const size_t n = strlen(want);
	struct unicode_walk w = { .section = script ? "script" : "category" };
	for (uint32_t from, to; unicode_next_range(&w, &from, &to);)
		/* A category belongs to the group that its first letter names. */
		if (w.value_len >= n && !memcmp(w.value, want, n) && (!script || w.value_len == n))
			memset(has + from, OURS, to - from);
	memset(has + SURROGATES, 0, AFTER_SURROGATES - SURROGATES); /* no text has them */
}

static void make_all(struct properties *p)
{
	p->all = fo_xmalloc((size_t)UNI_CHARS * 4);
	for (uint32_t c = 0; c < UNI_CHARS; c++)
		if (c < SURROGATES || c >= AFTER_SURROGATES)
			p->all_len += fo_utf8_encode(p->all + p->all_len, c);
}

/* Marks the characters of PCRE2's own property; false where it knows no such property (a script newer than it). */
static bool mark_theirs(struct properties *p, const char *pcre, unsigned char *has)
{
	char pattern[80];
	int code, rc = PCRE2_ERROR_NOMEMORY;
	PCRE2_SIZE at = 0;
	snprintf(pattern, sizeof pattern, "\\p{%s}+", pcre);
	pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at,
				       NULL);
	if (!re)
		return false;
	(void)pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
	pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
	for (at = 0;
	     data && (rc = pcre2_match(re, (PCRE2_SPTR)p->all, p->all_len, at, PCRE2_NO_UTF_CHECK, data, NULL)) > 0;) {
		const PCRE2_SIZE *v = pcre2_get_ovector_pointer(data);
		for (PCRE2_SIZE i = v[0]; i < v[1];) {
			uint32_t c;
			i += fo_utf8_decode(p->all + i, v[1] - i, &c);
			has[c] |= THEIRS;
		}
		at = v[1];
	}
	bool whole = data && rc == PCRE2_ERROR_NOMATCH;
	pcre2_match_data_free(data);
	pcre2_code_free(re);
	return whole;
}

/* ---- spelling ---- */

/* The characters whose marks are `want`, in ranges. */
static void put_ranges(struct fo_str *out, const unsigned char *has, int mask, int want)
{
	for (uint32_t c = 0; c < UNI_CHARS; c++) {
		uint32_t from = c;
		while (c < UNI_CHARS && (has[c] & mask) == want && !(c >= SURROGATES && c < AFTER_SURROGATES))
			c++;
		if (c > from)
			fo_str_printf(out, c - from > 1 ? "\\x{%x}-\\x{%x}" : "\\x{%x}", from, c - 1);
	}
}

static void spell(struct properties *p, int k, unsigned char *has)
{
	const char *pcre = p->row[k].of;
	struct fo_str *in = &p->row[k].in, *out = &p->row[k].out;
	mark_ours(has, pcre);
	bool theirs = mark_theirs(p, pcre, has), more = false, less = false;
	for (uint32_t c = 0; c < UNI_CHARS; c++) {
		more |= has[c] == THEIRS;
		less |= has[c] == OURS;
	}
	if (theirs && !more) {
		fo_str_printf(in, "\\p{%s}", pcre);
		put_ranges(in, has, OURS | THEIRS, OURS);
	} else {
		put_ranges(in, has, OURS, OURS);
	}
	if (theirs && !more && !less)
		fo_str_printf(out, "\\P{%s}", pcre);
	else
		put_ranges(out, has, OURS, 0);
}

fo_status property_class(struct properties *p, const char *name, size_t len, bool negated, struct fo_str *out,
			 bool *known)
{
	char of[PROPERTY_NAME];
	int k = 0;
	*known = find_name(name, len, of);
	if (!*known)
		return FO_OK;
	while (k < p->n && strcmp(p->row[k].of, of) != 0)
		k++;
	if (k == PROPERTIES_MAX)
		return fo_fail(FO_EFORMAT, "the split pattern uses more than %d properties", PROPERTIES_MAX);
	if (k == p->n) {
		strcpy(p->row[p->n++].of, of);
		if (!p->all)
			make_all(p);
		unsigned char *has = fo_xmalloc(UNI_CHARS);
		spell(p, k, has);
		free(has);
	}
	const struct fo_str *text = negated ? &p->row[k].out : &p->row[k].in;
	fo_str_append(out, text->data ? text->data : "", text->len);
	return FO_OK;
}

void properties_free(struct properties *p)
{
	for (int i = 0; i < p->n; i++) {
		fo_str_fini(&p->row[i].in);
		fo_str_fini(&p->row[i].out);
	}
	free(p->all);
	*p = (struct properties){ 0 };
}
