/* The tables of data/unicode.txt. */
#include "data/unicode.h"

#include "base/count.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* data/unicode.txt as it was when this was built (fo_embed in cmake/FlatoutSources.cmake). */
static const char text[] = {
#include "unicode.inc"
	, 0
};

/* ---- entries ---- */

/* The blank that follows the section's name in its first line from p on; NULL: there is no further line. */
static const char *line_of(const char *p, const char *section)
{
	size_t n = strlen(section);
	while (*p && (strncmp(p, section, n) != 0 || p[n] != ' '))
		p += strcspn(p, "\n") + 1;
	return *p ? p + n : NULL;
}

bool unicode_next(struct unicode_walk *w)
{
	const char *blank = w->end;
	if (!blank)
		blank = line_of(text, w->section);
	else if (*blank == '\n')
		blank = line_of(blank + 1, w->section);
	if (!blank)
		return false;
	w->entry = blank + 1;
	w->end = w->entry + strcspn(w->entry, " \n");
	w->value = w->entry + strcspn(w->entry, ":=") + 1;
	w->value_len = (size_t)(w->end - w->value);
	return true;
}

bool unicode_next_range(struct unicode_walk *w, uint32_t *from, uint32_t *to)
{
	if (!unicode_next(w))
		return false;
	struct unicode_walk next = *w;
	*from = (uint32_t)strtoul(w->entry, NULL, 16);
	*to = unicode_next(&next) ? (uint32_t)strtoul(next.entry, NULL, 16) : UNI_CHARS;
	return true;
}

/* ---- tables ---- */

static uint8_t flags[UNI_CHARS], classes[UNI_CHARS];
static struct unicode_parts *whole; /* by the whole */
static uint16_t *composed;          /* those that compose, by their parts */
static size_t wholes, composing;

static void mark(uint32_t from, uint32_t to, uint8_t flag)
{
	for (uint32_t c = from; c < to; c++)
		flags[c] |= flag;
}

static int by_parts(const void *x, const void *y)
{
	const struct unicode_parts *a = &whole[*(const uint16_t *)x], *b = &whole[*(const uint16_t *)y];
	return a->first != b->first ? fo_order(a->first, b->first) : fo_order(a->second, b->second);
}

static void read_categories(void)
{
	struct unicode_walk w = { .section = "category" };
	for (uint32_t from, to; unicode_next_range(&w, &from, &to);) {
		if (*w.value == 'L')
			mark(from, to, UNI_LETTER);
		else if (*w.value == 'N')
			mark(from, to, UNI_NUMBER);
	}
}

static void read_classes(void)
{
	struct unicode_walk w = { .section = "combining" };
	while (unicode_next(&w)) {
		char *end;
		uint32_t from = (uint32_t)strtoul(w.entry, &end, 16), to = (uint32_t)strtoul(end + 1, NULL, 16) + 1;
		memset(classes + from, atoi(w.value), to - from);
		mark(from, to, UNI_NORMAL);
	}
}

static void read_decompositions(void)
{
	struct unicode_walk w = { .section = "decomposition" };
	for (size_t cap = 0, composed_cap = 0; unicode_next(&w); wholes++) {
		char *end;
		struct unicode_parts p = { .whole = (uint32_t)strtoul(w.entry, NULL, 16),
					   .composes = w.value[-1] == ':' };
		p.first = (uint32_t)strtoul(w.value, &end, 16);
		p.second = *end == '+' ? (uint32_t)strtoul(end + 1, NULL, 16) : 0;
		p.composes &= p.second != 0;
		fo_array_room(&whole, &cap, wholes, sizeof *whole);
		whole[wholes] = p;
		flags[p.composes ? p.second : p.whole] |= UNI_NORMAL;
		if (!p.composes)
			continue;
		fo_array_room(&composed, &composed_cap, composing, sizeof *composed);
		composed[composing++] = (uint16_t)wholes;
	}
	qsort(composed, composing, sizeof *composed, by_parts);
}

static void make_tables(void)
{
	static const uint32_t space[][2] = { { 0x9, 0xd },       { 0x20, 0x20 },     { 0x85, 0x85 },
					     { 0xa0, 0xa0 },     { 0x1680, 0x1680 }, { 0x2000, 0x200a },
					     { 0x2028, 0x2029 }, { 0x202f, 0x202f }, { 0x205f, 0x205f },
					     { 0x3000, 0x3000 } };
	for (size_t i = 0; i < sizeof space / sizeof *space; i++)
		mark(space[i][0], space[i][1] + 1, UNI_SPACE);
	read_categories();
	read_classes();
	read_decompositions();
	/* Hangul's vowels and final consonants, which compose by arithmetic (nfc.c). */
	mark(0x1161, 0x1176, UNI_NORMAL);
	mark(0x11a8, 0x11c3, UNI_NORMAL);
}

const uint8_t *unicode_flags(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static _Atomic(bool) made;
	if (!made) {
		pthread_once(&once, make_tables);
		made = true;
	}
	return flags;
}

const uint8_t *unicode_classes(void)
{
	unicode_flags();
	return classes;
}

const struct unicode_parts *unicode_decompose(uint32_t c)
{
	unicode_flags();
	size_t low = 0, high = wholes;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (whole[mid].whole < c)
			low = mid + 1;
		else
			high = mid;
	}
	return low < wholes && whole[low].whole == c ? &whole[low] : NULL;
}

uint32_t unicode_compose(uint32_t a, uint32_t b)
{
	unicode_flags();
	size_t low = 0, high = composing;
	while (low < high) {
		size_t mid = (low + high) / 2;
		const struct unicode_parts *p = &whole[composed[mid]];
		if (p->first < a || (p->first == a && p->second < b))
			low = mid + 1;
		else
			high = mid;
	}
	const struct unicode_parts *p = low < composing ? &whole[composed[low]] : NULL;
	return p && p->first == a && p->second == b ? p->whole : 0;
}
