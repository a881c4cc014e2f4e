#include "cli/cli.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	WIDTH = 80,
	GAP = 2,
	NARROW_GAP = 1 /* where values are longer than usual */,
	LEAST_WRAP = 16 /* narrower columns of words cannot be read */
};

static size_t columns(const char *s, size_t bytes)
{
	size_t n = 0;
	for (size_t i = 0; i < bytes; i++)
		n += ((unsigned char)s[i] & 0xc0) != 0x80;
	return n;
}

void fo_table_init(struct fo_table *t, const char *align)
{
	*t = (struct fo_table){ .align = align, .cols = (int)strlen(align) };
}

void fo_table_row(struct fo_table *t, ...)
{
	fo_array_room(&t->row, &t->cap, t->rows, sizeof *t->row);
	char **cell = fo_arena_alloc(&t->arena, (size_t)t->cols * sizeof *cell);
	va_list ap;
	va_start(ap, t);
	for (int i = 0; i < t->cols; i++) {
		const char *s = va_arg(ap, const char *);
		size_t size = s ? strlen(s) * 4 + 8 : 8; /* every byte as \xNN at worst */
		cell[i] = fo_arena_alloc(&t->arena, size);
		fo_str_visible(cell[i], size, s ? s : "");
	}
	va_end(ap);
	t->row[t->rows++] = cell;
}

static void spaces(FILE *f, size_t n)
{
	while (n-- > 0)
		fputc(' ', f);
}

/* How many bytes of a word that is too long for a line go onto one of `width` columns: up to behind a sign that parts a
 * name, as those of kernels have, else as many as fit. No blank comes in: whoever copies the name finds its parts as
 * they are. */
static size_t piece_of(const char *word, size_t n, size_t width)
{
	size_t fits = 0, bound = 0;
	while (fits < n) {
		size_t next = fits + 1;
		while (next < n && ((unsigned char)word[next] & 0xc0) == 0x80)
			next++;
		if (columns(word, next) > width)
			break;
		fits = next;
		if (strchr("_,:<>()/-.", word[fits - 1]) && fits < n && word[fits] != ':')
			bound = fits;
	}
	return bound ? bound : fits ? fits : n;
}

/* Prints cell text in lines of `width` columns, each further one `left` columns in. */
static void print_wrapped(FILE *f, const char *s, size_t left, size_t width)
{
	size_t used = 0;
	while (*s) {
		size_t n = strcspn(s, " "), w = columns(s, n);
		if (w > width && !memchr(s, '/', n)) { /* a path stays in one piece: it is copied as a whole */
			if (used > 0 && used + 1 + LEAST_WRAP <= width) {
				fputc(' ', f);
				used++;
			} else if (used > 0) {
				fputc('\n', f);
				spaces(f, left);
				used = 0;
			}
			n = piece_of(s, n, width - used);
			fwrite(s, 1, n, f);
			s += n;
			fputc('\n', f);
			spaces(f, left);
			used = 0;
			continue;
		}
		if (used > 0 && used + 1 + w > width) {
			fputc('\n', f);
			spaces(f, left);
			used = 0;
		} else if (used > 0) {
			fputc(' ', f);
			used++;
		}
		fwrite(s, 1, n, f);
		used += w;
		s += n;
		while (*s == ' ')
			s++;
	}
}

static void print_row(const struct fo_table *t, FILE *f, const char *indent, char **cell, const size_t *width,
		      size_t last_width)
{
	size_t at = strlen(indent), owed = 0;
	fputs(indent, f);
	for (int i = 0; i < t->cols; i++) {
		size_t w = columns(cell[i], strlen(cell[i])), pad = width[i] > w ? width[i] - w : 0;
		bool right = t->align[i] == 'r';
		/* Spaces are written only in front of something: no line ends in one. */
		if (*cell[i]) {
			spaces(f, owed + (right ? pad : 0));
			owed = right ? 0 : pad;
			if (i == t->cols - 1 && last_width)
				print_wrapped(f, cell[i], at, last_width);
			else
				fputs(cell[i], f);
		} else {
			owed += width[i];
		}
		owed += t->gap;
		at += width[i] + t->gap;
	}
	fputc('\n', f);
}

static void print_rule(const struct fo_table *t, FILE *f, const char *indent, const size_t *width, size_t last_width)
{
	size_t owed = strlen(indent); /* spaces, written only in front of something: no line ends in one */
	for (int i = 0; i < t->cols; i++) {
		size_t n = i == t->cols - 1 && last_width && last_width < width[i] ? last_width : width[i];
		if (n) {
			spaces(f, owed);
			owed = 0;
		}
		while (n-- > 0)
			fputc('-', f);
		owed += t->gap;
	}
	fputc('\n', f);
}

void fo_table_print(struct fo_table *t, FILE *f, const char *indent, bool head)
{
	if (t->rows == 0 || t->cols == 0)
		return;
	size_t *width = fo_arena_alloc(&t->arena, (size_t)t->cols * sizeof *width);
	size_t before = strlen(indent), last_width = 0, columns_between = (size_t)t->cols - 1;
	t->gap = GAP;
	for (int i = 0; i < t->cols; i++) {
		for (size_t r = 0; r < t->rows; r++) {
			size_t w = columns(t->row[r][i], strlen(t->row[r][i]));
			width[i] = w > width[i] ? w : width[i];
		}
		if (i < t->cols - 1)
			before += width[i] + GAP;
	}
	int last = t->cols - 1;
	if (before + width[last] > WIDTH && (t->align[last] != 'l' || width[last] <= LEAST_WRAP)) {
		t->gap = NARROW_GAP;
		before -= columns_between * (GAP - NARROW_GAP);
	}
	if (t->align[last] == 'l' && before + width[last] > WIDTH && before + LEAST_WRAP <= WIDTH)
		last_width = WIDTH - before;
	for (size_t r = 0; r < t->rows; r++) {
		print_row(t, f, indent, t->row[r], width, last_width);
		if (r == 0 && head)
			print_rule(t, f, indent, width, last_width);
	}
}

void fo_table_fini(struct fo_table *t)
{
	free(t->row);
	fo_arena_fini(&t->arena);
	*t = (struct fo_table){ 0 };
}

void fo_cli_put(FILE *f, const char *first, const char *lead, const char *fmt, ...)
{
	enum { GLUE = 1 }; /* stands for a space at which no line may break */
	struct fo_str out = { 0 }, text = { 0 };
	va_list ap;
	fo_str_append(&text, "", 0); /* empty is a text, too */
	va_start(ap, fmt);
	fo_str_vprintf(&text, fmt, ap);
	va_end(ap);
	for (char *p = text.data; *p; p++)
		if (p > text.data && *p == ' ' &&
		    ((isdigit((unsigned char)p[-1]) && (isalpha((unsigned char)p[1]) || p[1] == '%')) ||
		     (p[-1] == '%' && isalpha((unsigned char)p[1]))))
			*p = GLUE;
	fo_str_puts(&out, first);
	fo_opt_wrapped(&out, text.data, (int)columns(first, strlen(first)), lead, WIDTH);
	for (size_t i = 0; i < out.len; i++)
		if (out.data[i] == GLUE)
			out.data[i] = ' ';
	fputs(out.data, f);
	fo_str_fini(&text);
	fo_str_fini(&out);
}
