/* Text for a terminal: wrapped paragraphs and tables, as wide as the caller says. A width counts columns of the
 * terminal: East Asian wide characters take two, combining marks none. */
#ifndef FO_DRAW_TERM_H
#define FO_DRAW_TERM_H

#include "base/mem.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

enum { FO_TERM_WIDTH = 80 }; /* columns of text for a file or a pipe, and at most on a terminal */

size_t fo_term_columns(const char *s, size_t bytes);
/* Appends `first` and the text, wrapped at `width` columns; further lines begin with `lead`. A figure and its unit
 * ("244 MiB", "5.0 % of") stay on one line. Text that may hold names from files goes through fo_str_visible first. */
void fo_term_wrap(struct fo_str *out, size_t width, const char *first, const char *lead, const char *text);

/* Strings whose number the compiler counts: FO_CELLS("a", b, "c"). */
struct fo_cells {
	const char *const *v;
	size_t n;
};
#define FO_CELLS(...)                                                  \
	((struct fo_cells){ .v = (const char *const[]){ __VA_ARGS__ }, \
			    .n = sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *) })

/* A table: columns are padded to their widest cell; align has 'l' or 'r' for each column. A last column that is
 * left-aligned is wrapped where a line would pass the width. On a terminal below 80 columns such a column goes
 * below the others where these have room, and any other table that is too wide becomes a list: each cell after the name
 * of its column. */
struct fo_table {
	struct fo_arena arena;
	char ***row;
	size_t rows, cap;
	int cols;
	const char *align;
	size_t gap;
};
void fo_table_init(struct fo_table *t, const char *align); /* align lives as long as t */
/* Adds a row. Cells are copied, what could upset a terminal in them is made visible; NULL is "". Missing cells are
 * empty, those after the last column are left out. */
void fo_table_cells(struct fo_table *t, struct fo_cells cells);
#define fo_table_row(t, ...) fo_table_cells(t, FO_CELLS(__VA_ARGS__))
/* Appends the table, each line after `indent`; head: the first row is underlined. */
void fo_table_text(struct fo_table *t, struct fo_str *out, size_t width, const char *indent, bool head);
void fo_table_fini(struct fo_table *t);

#endif
