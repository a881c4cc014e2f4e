/* Unicode's normalization form C (Unicode Standard Annex 15): take characters apart, order their marks, put them
 * together. */
#include "data/data_int.h"
#include "data/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Hangul syllables are composed by arithmetic (Unicode Standard, section 3.12). */
enum { S_BASE = 0xac00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11a7, L_COUNT = 19, V_COUNT = 21, T_COUNT = 28 };
enum { S_COUNT = L_COUNT * V_COUNT * T_COUNT };

/* ---- characters ---- */

/* The character that a followed by b becomes, 0 if they stay two. */
static uint32_t compose(uint32_t a, uint32_t b)
{
	if (a >= L_BASE && a < L_BASE + L_COUNT && b >= V_BASE && b < V_BASE + V_COUNT)
		return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
	if (a >= S_BASE && a < S_BASE + S_COUNT && (a - S_BASE) % T_COUNT == 0 && b > T_BASE && b < T_BASE + T_COUNT)
		return a + (b - T_BASE);
	return unicode_compose(a, b);
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
	uint32_t second[8];
	size_t n = 0;
	for (const struct unicode_parts *d; n < sizeof second / sizeof *second && (d = unicode_decompose(c));) {
		c = d->first;
		if (d->second)
			second[n++] = d->second;
	}
	add(r, c);
	while (n)
		add(r, second[--n]);
}

/* Marks between two characters of class 0 go by class, equal ones stay in order. By counting: a text may have millions.
 */
static void order_marks(struct run *r)
{
	const uint8_t *class = unicode_classes();
	for (size_t from = 0, to; from < r->n; from = to + (to == from)) {
		for (to = from; to < r->n && class[r->c[to]]; to++)
			;
		if (to - from < 2)
			continue;
		size_t at[257] = { 0 };
		fo_array_room(&r->sorted, &r->sorted_cap, to - from, sizeof *r->sorted);
		for (size_t i = from; i < to; i++)
			at[class[r->c[i]] + 1]++;
		for (int k = 1; k < 257; k++)
			at[k] += at[k - 1];
		for (size_t i = from; i < to; i++)
			r->sorted[at[class[r->c[i]]]++] = r->c[i];
		memcpy(r->c + from, r->sorted, (to - from) * sizeof *r->c);
	}
}

static void compose_run(struct run *r)
{
	const uint8_t *classes = unicode_classes();
	size_t out = 0, starter = SIZE_MAX;
	int last = -1; /* class of the last character kept after the starter, -1: none */
	for (size_t i = 0; i < r->n; i++) {
		uint32_t c = r->c[i];
		int class = classes[c];
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

static void flush(struct run *r, struct fo_str *out)
{
	char utf8[4];
	order_marks(r);
	compose_run(r);
	for (size_t i = 0; i < r->n; i++)
		fo_str_append(out, utf8, fo_utf8_encode(utf8, r->c[i]));
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
