#include "data/property.h"
#include "data/property_table.h"

#include "base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHARS = 0x110000, SURROGATES = 0xd800, BEHIND_SURROGATES = 0xe000 };
enum { OURS = 1, THEIRS = 2 }; /* who says that a character has the property */

/* ---- names ---- */

/* As Unicode compares them: by letters and digits alone. -1: there is none. */
static int find_name(const char *name, size_t len)
{
	char plain[64];
	size_t n = 0;
	for (size_t i = 0; i < len; i++)
		if (!strchr(" _-", name[i])) {
			if (n + 1 == sizeof plain)
				return -1;
			plain[n++] = (char)tolower((unsigned char)name[i]);
		}
	plain[n] = 0;
	for (size_t i = 0; i < sizeof property_name / sizeof *property_name; i++)
		if (!strcmp(property_name[i].name, plain))
			return (int)i;
	return -1;
}

/* ---- which characters ---- */

/* Marks those with the property; of: as in property_name. */
static void mark_ours(unsigned char *has, int32_t of)
{
	const uint32_t *at = of > 0 ? property_category : property_script;
	size_t n = of > 0 ? sizeof property_category / sizeof *property_category
			  : sizeof property_script / sizeof *property_script;
	for (size_t i = 0; i < n; i++) {
		uint32_t from = at[i] >> 8, to = i + 1 < n ? at[i + 1] >> 8 : CHARS, v = at[i] & 255;
		if (of > 0 ? of >> v & 1 : (int32_t)v == -of)
			memset(has + from, OURS, to - from);
	}
	memset(has + SURROGATES, 0, BEHIND_SURROGATES - SURROGATES); /* no text has them */
}

static void make_all(struct properties *p)
{
	p->all = fo_xmalloc((size_t)CHARS * 4);
	for (uint32_t c = 0; c < CHARS; c++) {
		unsigned char *s = p->all + p->all_len;
		if (c >= SURROGATES && c < BEHIND_SURROGATES)
			continue;
		int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
		static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
		for (int i = n - 1; i > 0; i--)
			s[i] = (unsigned char)(0x80 | (c >> 6 * (n - 1 - i) & 63));
		s[0] = (unsigned char)(lead[n] | c >> 6 * (n - 1));
		p->all_len += (size_t)n;
	}
}

/* The character at s, which is valid. */
static uint32_t char_at(const unsigned char *s)
{
	return *s < 0x80   ? *s
	       : *s < 0xe0 ? (uint32_t)(s[0] & 31) << 6 | (s[1] & 63)
	       : *s < 0xf0 ? (uint32_t)(s[0] & 15) << 12 | (uint32_t)(s[1] & 63) << 6 | (s[2] & 63)
			   : (uint32_t)(s[0] & 7) << 18 | (uint32_t)(s[1] & 63) << 12 | (uint32_t)(s[2] & 63) << 6 |
				     (s[3] & 63);
}

/* Marks what the library's own property holds; false where it knows no such property (a script newer than it). */
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
	for (at = 0; data && (rc = pcre2_match(re, p->all, p->all_len, at, PCRE2_NO_UTF_CHECK, data, NULL)) > 0;) {
		const PCRE2_SIZE *v = pcre2_get_ovector_pointer(data);
		for (PCRE2_SIZE i = v[0]; i < v[1]; i += p->all[i] < 0x80   ? 1
							 : p->all[i] < 0xe0 ? 2
							 : p->all[i] < 0xf0 ? 3
									    : 4)
			has[char_at(p->all + i)] |= THEIRS;
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
	for (uint32_t c = 0; c < CHARS; c++) {
		uint32_t from = c;
		while (c < CHARS && (has[c] & mask) == want && !(c >= SURROGATES && c < BEHIND_SURROGATES))
			c++;
		if (c > from)
			fo_str_printf(out, c - from > 1 ? "\\x{%x}-\\x{%x}" : "\\x{%x}", from, c - 1);
	}
}

static void spell(struct properties *p, int k, const char *pcre, unsigned char *has)
{
	struct fo_str *in = &p->row[k].in, *out = &p->row[k].out;
	mark_ours(has, p->row[k].of);
	bool theirs = mark_theirs(p, pcre, has), more = false, less = false;
	for (uint32_t c = 0; c < CHARS; c++) {
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
	int i = find_name(name, len), k = 0;
	*known = i >= 0;
	if (i < 0)
		return FO_OK;
	while (k < p->n && p->row[k].of != property_name[i].of)
		k++;
	if (k == PROPERTIES_MAX)
		return fo_fail(FO_EFORMAT, "the split pattern uses more than %d properties", PROPERTIES_MAX);
	if (k == p->n) {
		p->row[p->n++].of = property_name[i].of;
		if (!p->all)
			make_all(p);
		unsigned char *has = fo_xmalloc(CHARS);
		spell(p, k, property_name[i].pcre, has);
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
