#include "draw/term.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
	GAP = 2,
	NARROW_GAP = 1, /* where values are longer than usual */
	LEAST_WRAP = 16 /* narrower columns of words cannot be read */
};

/* Returns the columns of one code point. The blocks are those that Unicode's EastAsianWidth.txt calls wide, emoji, and
 * marks that combine. */
static size_t width_of(uint32_t code)
{
	static const struct {
		uint32_t first, last;
		size_t width;
	} block[] = {
		{ 0x0300, 0x036f, 0 }, { 0x1100, 0x115f, 2 },   { 0x200b, 0x200d, 0 },   { 0x20d0, 0x20ff, 0 },
		{ 0x2e80, 0x303e, 2 }, { 0x3041, 0xa4cf, 2 },   { 0xac00, 0xd7a3, 2 },   { 0xf900, 0xfaff, 2 },
		{ 0xfe00, 0xfe0f, 0 }, { 0xfe20, 0xfe2f, 0 },   { 0xfe30, 0xfe6f, 2 },   { 0xff00, 0xff60, 2 },
		{ 0xffe0, 0xffe6, 2 }, { 0x1f300, 0x1f64f, 2 }, { 0x1f900, 0x1f9ff, 2 }, { 0x20000, 0x3fffd, 2 },
	};
	for (size_t i = 0; i < sizeof block / sizeof *block && code >= block[i].first; i++)
		if (code <= block[i].last)
			return block[i].width;
	return 1;
}

/* Returns the bytes of the character at s[0..n); a byte that begins none is a character by itself. */
static size_t letter(const char *s, size_t n, size_t *columns)
{
	uint32_t code = 0;
	size_t bytes = fo_utf8_decode(s, n, &code);
	*columns = bytes ? width_of(code) : 1;
	return bytes ? bytes : 1;
}

size_t fo_term_columns(const char *s, size_t bytes)
{
	size_t n = 0, w;
	for (size_t i = 0; i < bytes; n += w)
		i += letter(s + i, bytes - i, &w);
	return n;
}

static size_t columns(const char *s) { return fo_term_columns(s, strlen(s)); }

static void fill(struct fo_str *out, char c, size_t n)
{
	while (n-- > 0)
		fo_str_append(out, &c, 1);
}

/* ---- paragraphs ---- */

/* May no line break at the space s[0], which has a character before it? */
static bool glued(const char *s)
{
	unsigned char before = (unsigned char)s[-1], after = (unsigned char)s[1];
	return (isdigit(before) && (isalpha(after) || after == '%')) || (before == '%' && isalpha(after));
}

/* Returns the bytes from s up to the next space at which a line may break; text is where all of it begins. */
static size_t word_at(const char *text, const char *s)
{
	size_t n = strcspn(s, " ");
	while (s[n] && s + n > text && glued(s + n))
		n += 1 + strcspn(s + n + 1, " ");
	return n;
}

void fo_term_wrap(struct fo_str *out, size_t width, const char *first, const char *lead, const char *text)
{
	size_t at = columns(first);
	fo_str_puts(out, first);
	for (const char *s = text; *s;) {
		size_t n = word_at(text, s), w = fo_term_columns(s, n);
		if (s > text && at + 1 + w > width) {
			fo_str_printf(out, "\n%s", lead);
			at = columns(lead);
		} else if (s > text) {
			fo_str_puts(out, " ");
			at++;
		}
		fo_str_append(out, s, n);
		at += w;
		for (s += n; *s == ' ';)
			s++;
	}
	fo_str_puts(out, "\n");
}

/* ---- tables ---- */

void fo_table_init(struct fo_table *t, const char *align)
{
	*t = (struct fo_table){ .align = align, .cols = (int)strlen(align) };
}

void fo_table_cells(struct fo_table *t, struct fo_cells cells)
{
	fo_array_room(&t->row, &t->cap, t->rows, sizeof *t->row);
	char **cell = fo_arena_alloc(&t->arena, (size_t)t->cols * sizeof *cell);
	for (size_t i = 0; i < (size_t)t->cols; i++) {
		const char *s = i < cells.n && cells.v[i] ? cells.v[i] : "";
		size_t size = strlen(s) * 4 + 8; /* every byte as \xNN at worst */
		cell[i] = fo_arena_alloc(&t->arena, size);
		fo_str_visible(cell[i], size, s);
	}
	t->row[t->rows++] = cell;
}

/* Returns how many bytes of a word that is too long for a line go onto a line of `width` columns: up to a sign that
 * separates the parts of a name (kernels have them), else as many as fit. No blank is put in, so that a copied name
 * keeps its parts. */
static size_t piece_of(const char *word, size_t n, size_t width)
{
	size_t fits = 0, bound = 0, used = 0, w;
	while (fits < n) {
		size_t next = fits + letter(word + fits, n - fits, &w);
		used += w;
		if (used > width)
			break;
		fits = next;
		if (strchr("_,:<>()/-.", word[fits - 1]) && fits < n && word[fits] != ':')
			bound = fits;
	}
	if (bound)
		return bound;
	return fits ? fits : n;
}

static void new_line(struct fo_str *out, size_t left)
{
	fo_str_puts(out, "\n");
	fill(out, ' ', left);
}

/* Appends a cell's text in lines of `width` columns, each further one `left` columns in. A path stays in one piece: it
 * is copied as a whole. */
static void put_wrapped(struct fo_str *out, const char *s, size_t left, size_t width)
{
	size_t used = 0;
	while (*s) {
		size_t n = strcspn(s, " "), w = fo_term_columns(s, n);
		bool cut = w > width && !memchr(s, '/', n);
		if (used > 0 && used + 1 + (cut ? (size_t)LEAST_WRAP : w) <= width) {
			fo_str_puts(out, " ");
			used++;
		} else if (used > 0) {
			new_line(out, left);
			used = 0;
		}
		if (cut) {
			n = piece_of(s, n, width - used);
			fo_str_append(out, s, n);
			s += n;
			new_line(out, left);
			used = 0;
			continue;
		}
		fo_str_append(out, s, n);
		used += w;
		for (s += n; *s == ' ';)
			s++;
	}
}

/* Spaces are written only before something: no line ends in one. */
static void put_row(const struct fo_table *t, struct fo_str *out, const char *indent, char **cell, const size_t *width,
		    size_t last_width)
{
	size_t at = strlen(indent), owed = 0;
	fo_str_puts(out, indent);
	for (int i = 0; i < t->cols; i++) {
		size_t w = columns(cell[i]), pad = width[i] > w ? width[i] - w : 0;
		bool right = t->align[i] == 'r';
		if (*cell[i]) {
			fill(out, ' ', owed + (right ? pad : 0));
			owed = right ? 0 : pad;
			if (i == t->cols - 1 && last_width)
				put_wrapped(out, cell[i], at, last_width);
			else
				fo_str_puts(out, cell[i]);
		} else {
			owed += width[i];
		}
		owed += t->gap;
		at += width[i] + t->gap;
	}
	fo_str_puts(out, "\n");
}

static void put_rule(const struct fo_table *t, struct fo_str *out, const char *indent, const size_t *width,
		     size_t last_width)
{
	size_t owed = strlen(indent);
	for (int i = 0; i < t->cols; i++) {
		size_t n = i == t->cols - 1 && last_width && last_width < width[i] ? last_width : width[i];
		if (n) {
			fill(out, ' ', owed);
			owed = 0;
		}
		fill(out, '-', n);
		owed += t->gap;
	}
	fo_str_puts(out, "\n");
}

/* Appends the cells after the first with the names of their columns: few on a line each, of many as many as a line
 * holds. */
static void put_named(const struct fo_table *t, struct fo_str *out, size_t width, const char *indent, char **cell,
		      bool head)
{
	enum { FEW = 4 };
	struct fo_str first = { 0 }, lead = { 0 }, one = { 0 };
	size_t at = 0; /* column; 0: at the begin of a line */
	fo_str_printf(&first, "%s  ", indent);
	fo_str_printf(&lead, "%s    ", indent);
	for (int i = 1; i < t->cols; i++) {
		const char *name = head ? t->row[0][i] : "";
		if (!*cell[i])
			continue;
		one.len = 0;
		fo_str_printf(&one, "%s%s%s", name, *name ? ": " : "", cell[i]);
		size_t w = columns(one.data);
		if (at && (t->cols <= FEW || at + strlen(", ") + w > width)) {
			fo_str_puts(out, t->cols <= FEW ? "\n" : ",\n");
			at = 0;
		}
		if (at) {
			fo_str_printf(out, ", %s", one.data);
			at += strlen(", ") + w;
			continue;
		}
		fo_term_wrap(out, width, first.data, lead.data, one.data);
		out->len--; /* its line end: the next may follow */
		at = first.len + w;
	}
	if (at)
		fo_str_puts(out, "\n");
	fo_str_fini(&first);
	fo_str_fini(&lead);
	fo_str_fini(&one);
}

/* Prints each row as lines: its first cell, then the others. */
static void put_list(const struct fo_table *t, struct fo_str *out, size_t width, const char *indent, bool head)
{
	struct fo_str first = { 0 }, lead = { 0 };
	fo_str_printf(&lead, "%s    ", indent);
	for (size_t r = head; r < t->rows; r++) {
		first.len = 0;
		fo_str_puts(&first, indent);
		if (head && t->align[0] == 'r') /* a number alone says too little */
			fo_str_printf(&first, "%s ", t->row[0][0]);
		fo_term_wrap(out, width, first.data, lead.data, t->row[r][0]);
		put_named(t, out, width, indent, t->row[r], head);
	}
	fo_str_fini(&first);
	fo_str_fini(&lead);
}

/* Prints a row whose last cell, of words, has a line of its own below the others. */
static void put_row_and_words(const struct fo_table *t, struct fo_str *out, size_t line, const char *indent,
			      char **cell, const size_t *width)
{
	struct fo_str lead = { 0 };
	char *words = cell[t->cols - 1];
	cell[t->cols - 1] = "";
	put_row(t, out, indent, cell, width, 0);
	fo_str_printf(&lead, "%s    ", indent);
	if (*words)
		fo_term_wrap(out, line, lead.data, lead.data, words);
	fo_str_fini(&lead);
}

void fo_table_text(struct fo_table *t, struct fo_str *out, size_t line, const char *indent, bool head)
{
	if (t->rows == 0 || t->cols == 0)
		return;
	size_t *width = fo_arena_alloc(&t->arena, (size_t)t->cols * sizeof *width);
	size_t before = strlen(indent), last_width = 0, columns_between = (size_t)t->cols - 1;
	t->gap = GAP;
	for (int i = 0; i < t->cols; i++) {
		for (size_t r = 0; r < t->rows; r++) {
			size_t w = columns(t->row[r][i]);
			width[i] = w > width[i] ? w : width[i];
		}
		if (i < t->cols - 1)
			before += width[i] + GAP;
	}
	int last = t->cols - 1;
	bool words = t->align[last] == 'l';
	if (before + width[last] > line && (!words || width[last] <= LEAST_WRAP)) {
		t->gap = NARROW_GAP;
		before -= columns_between * (GAP - NARROW_GAP);
	}
	if (words && before + width[last] > line && before + LEAST_WRAP <= line)
		last_width = line - before;
	bool wide = line < FO_TERM_WIDTH && !last_width && before + width[last] > line;
	bool below = wide && words && last && before <= line + t->gap;
	if (wide && !below) {
		put_list(t, out, line, indent, head);
		return;
	}
	if (below)
		width[last] = 0;
	for (size_t r = 0; r < t->rows; r++) {
		if (below)
			put_row_and_words(t, out, line, indent, t->row[r], width);
		else
			put_row(t, out, indent, t->row[r], width, last_width);
		if (r == 0 && head)
			put_rule(t, out, indent, width, last_width);
	}
}

void fo_table_fini(struct fo_table *t)
{
	free(t->row);
	fo_arena_fini(&t->arena);
	*t = (struct fo_table){ 0 };
}
