/* Unicode's normalization form C (Unicode Standard Annex 15): take characters apart, order their marks, put them
 * together. */
#include "data/data_int.h"
#include "data/unicode.h"
#include "data/unicode_table.h"

#include <stdlib.h>
#include <string.h>

#define ROWS(table) (sizeof(table) / sizeof *(table))

/* Hangul syllables are composed by arithmetic (Unicode Standard, section 3.12). */
enum { S_BASE = 0xac00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11a7, L_COUNT = 19, V_COUNT = 21, T_COUNT = 28 };
enum { S_COUNT = L_COUNT * V_COUNT * T_COUNT };

/* ---- tables ---- */

static const uint32_t white_space[][2] = { { 0x9, 0xd },       { 0x20, 0x20 },     { 0x85, 0x85 },
					   { 0xa0, 0xa0 },     { 0x1680, 0x1680 }, { 0x2000, 0x200a },
					   { 0x2028, 0x2029 }, { 0x202f, 0x202f }, { 0x205f, 0x205f },
					   { 0x3000, 0x3000 } };

static uint8_t flags[0x110000];
static uint8_t combining[0x110000];
static uint16_t composed[ROWS(unicode_decomposition)]; /* rows that compose, by their parts */
static size_t composing;

static void mark(const uint32_t (*range)[2], size_t n, uint8_t flag)
{
	for (size_t i = 0; i < n; i++)
		for (uint32_t c = range[i][0]; c <= range[i][1]; c++)
			flags[c] |= flag;
}

static int by_parts(const void *x, const void *y)
{
	const uint32_t *a = unicode_decomposition[*(const uint16_t *)x],
		       *b = unicode_decomposition[*(const uint16_t *)y];
	if (a[1] != b[1])
		return a[1] < b[1] ? -1 : 1;
	return a[2] < b[2] ? -1 : a[2] > b[2];
}

static void make_tables(void)
{
	mark(unicode_letters, ROWS(unicode_letters), UNI_LETTER);
	mark(unicode_numbers, ROWS(unicode_numbers), UNI_NUMBER);
	mark(white_space, ROWS(white_space), UNI_SPACE);
	for (size_t i = 0; i < ROWS(unicode_combining); i++)
		for (uint32_t c = unicode_combining[i][0]; c <= unicode_combining[i][1]; c++) {
			combining[c] = (uint8_t)unicode_combining[i][2];
			flags[c] |= UNI_NORMAL;
		}
	for (size_t i = 0; i < ROWS(unicode_decomposition); i++) {
		const uint32_t *d = unicode_decomposition[i];
		if (d[3]) {
			composed[composing++] = (uint16_t)i;
			flags[d[2]] |= UNI_NORMAL;
		} else {
			flags[d[0]] |= UNI_NORMAL;
		}
	}
	mark((const uint32_t[][2]){ { V_BASE, V_BASE + V_COUNT - 1 }, { T_BASE + 1, T_BASE + T_COUNT - 1 } }, 2,
	     UNI_NORMAL);
	qsort(composed, composing, sizeof *composed, by_parts);
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

/* ---- characters ---- */

static const uint32_t *decomposition(uint32_t c)
{
	size_t low = 0, high = ROWS(unicode_decomposition);
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (unicode_decomposition[mid][0] < c)
			low = mid + 1;
		else
			high = mid;
	}
	return low < ROWS(unicode_decomposition) && unicode_decomposition[low][0] == c ? unicode_decomposition[low]
										       : NULL;
}

/* The character that a followed by b becomes, 0 if they stay two. */
static uint32_t compose(uint32_t a, uint32_t b)
{
	if (a >= L_BASE && a < L_BASE + L_COUNT && b >= V_BASE && b < V_BASE + V_COUNT)
		return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
	if (a >= S_BASE && a < S_BASE + S_COUNT && (a - S_BASE) % T_COUNT == 0 && b > T_BASE && b < T_BASE + T_COUNT)
		return a + (b - T_BASE);
	size_t low = 0, high = composing;
	while (low < high) {
		size_t mid = (low + high) / 2;
		const uint32_t *d = unicode_decomposition[composed[mid]];
		if (d[1] < a || (d[1] == a && d[2] < b))
			low = mid + 1;
		else
			high = mid;
	}
	const uint32_t *d = low < composing ? unicode_decomposition[composed[low]] : NULL;
	return d && d[1] == a && d[2] == b ? d[0] : 0;
}

/* ---- a run: a character that stays as it is, and what may join it ---- */

struct run {
	uint32_t *c;
	size_t n, cap;
	uint32_t *sorted;
	size_t sorted_cap;
};

static void add(struct run *r, uint32_t c)
{
	fo_array_room(&r->c, &r->cap, r->n, sizeof *r->c);
	r->c[r->n++] = c;
}

/* A decomposition's first part may have one in turn (at most three levels), its second never does. */
static void add_decomposed(struct run *r, uint32_t c)
{
	if (c >= S_BASE && c < S_BASE + S_COUNT) {
		uint32_t s = c - S_BASE;
		add(r, L_BASE + s / (V_COUNT * T_COUNT));
		add(r, V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT);
		if (s % T_COUNT)
			add(r, T_BASE + s % T_COUNT);
		return;
	}
	const uint32_t *d = decomposition(c);
	if (!d) {
		add(r, c);
		return;
	}
	uint32_t second[8];
	size_t n = 0;
	for (; d && n < ROWS(second); d = decomposition(c)) {
		c = d[1];
		if (d[2])
			second[n++] = d[2];
	}
	add(r, c);
	while (n)
		add(r, second[--n]);
}

/* Marks between two characters of class 0 go by class, equal ones stay in order. By counting: a text may have millions.
 */
static void order_marks(struct run *r)
{
	for (size_t from = 0, to; from < r->n; from = to + (to == from)) {
		for (to = from; to < r->n && combining[r->c[to]]; to++)
			;
		if (to - from < 2)
			continue;
		size_t at[257] = { 0 };
		fo_array_room(&r->sorted, &r->sorted_cap, to - from, sizeof *r->sorted);
		for (size_t i = from; i < to; i++)
			at[combining[r->c[i]] + 1]++;
		for (int k = 1; k < 257; k++)
			at[k] += at[k - 1];
		for (size_t i = from; i < to; i++)
			r->sorted[at[combining[r->c[i]]]++] = r->c[i];
		memcpy(r->c + from, r->sorted, (to - from) * sizeof *r->c);
	}
}

static void compose_run(struct run *r)
{
	size_t out = 0, starter = SIZE_MAX;
	int last = -1; /* class of the last character kept behind the starter, -1: none */
	for (size_t i = 0; i < r->n; i++) {
		uint32_t c = r->c[i];
		int class = combining[c];
		uint32_t joined = starter != SIZE_MAX && (last < class) ? compose(r->c[starter], c) : 0;
		if (joined) {
			r->c[starter] = joined;
			continue;
		}
		if (class == 0) {
			starter = out;
			last = -1;
		} else {
			last = class;
		}
		r->c[out++] = c;
	}
	r->n = out;
}

static void append_char(struct fo_str *o, uint32_t c)
{
	unsigned char s[4] = { (unsigned char)c };
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	for (size_t i = n; n > 1 && i-- > 1; c >>= 6)
		s[i] = (unsigned char)(0x80 | (c & 0x3f));
	if (n > 1)
		s[0] = (unsigned char)((0xf00u >> n & 0xff) | c);
	fo_str_append(o, s, n);
}

static void flush(struct run *r, struct fo_str *out)
{
	order_marks(r);
	compose_run(r);
	for (size_t i = 0; i < r->n; i++)
		append_char(out, r->c[i]);
	r->n = 0;
}

/* ---- texts ---- */

bool nfc_may_change(const char *text, size_t len)
{
	const uint8_t *f = unicode_flags();
	const unsigned char *s = (const unsigned char *)text;
	for (size_t at = 0, n; at < len; at += n) {
		uint32_t c;
		uint64_t word;
		if (len - at >= sizeof word) {
			memcpy(&word, s + at, sizeof word);
			n = sizeof word;
			if (!(word & 0x8080808080808080u))
				continue;
		}
		n = fo_utf8_decode(s + at, len - at, NULL);
		if (n > 1) {
			utf8_char(s + at, &c);
			if (f[c] & UNI_NORMAL)
				return true;
		}
		n = n ? n : 1;
	}
	return false;
}

void nfc_append(const char *text, size_t len, struct fo_str *out)
{
	const uint8_t *f = unicode_flags();
	const unsigned char *s = (const unsigned char *)text;
	struct run r = { 0 };
	for (size_t at = 0, n; at < len; at += n) {
		uint32_t c;
		n = fo_utf8_decode(s + at, len - at, NULL);
		if (!n) {
			flush(&r, out);
			fo_str_append(out, s + at, n = 1);
			continue;
		}
		utf8_char(s + at, &c);
		if (!(f[c] & UNI_NORMAL))
			flush(&r, out); /* nothing before it joins with it */
		add_decomposed(&r, c);
	}
	flush(&r, out);
	free(r.c);
	free(r.sorted);
}
