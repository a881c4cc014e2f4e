/* Inside src/trace: reading tables of an SQLite file that a stranger may have made.
 *
 * The file is opened read-only and immutable (no locks, no journal), with views, triggers and extensions off. Tables
 * are read in one pass each, without their indexes, column by column as far as they exist. A row takes bytes of the
 * file and so does its text: a file whose pages lead in circles is told by rows or text beyond its size. */
#ifndef FO_TRACE_NSYS_DB_H
#define FO_TRACE_NSYS_DB_H

#include "base/err.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fo_nsys_db {
	sqlite3 *h;
	const char *path;
	char **table;                      /* names of its real tables */
	int64_t tables, bytes, text_bytes; /* the file's; of the texts read so far */
	size_t cap;
};
FO_CHECKED fo_status fo_nsys_db_open(struct fo_nsys_db *d, const char *path);
void fo_nsys_db_close(struct fo_nsys_db *d);
/* The table of that name, or its newest version ("..._V3" before "..._V2" before the name itself); NULL. */
const char *fo_nsys_db_table(const struct fo_nsys_db *d, const char *name);

enum { FO_NSYS_COLUMNS = 16 };
struct fo_nsys_rows {
	struct fo_nsys_db *d;
	const char *table;
	sqlite3_stmt *stmt;      /* NULL: there is no such table */
	int at[FO_NSYS_COLUMNS]; /* where a column stands in the statement; -1: the table does not have it */
	int64_t read;
};
/* Begins to read a table; columns: names that end with NULL. Without the table, or when a column among the first
 * `needed` is missing, there are no rows (missing columns are an error of the file: FO_EFORMAT). Ended by
 * fo_nsys_rows_end, also after an error. */
FO_CHECKED fo_status fo_nsys_rows_begin(struct fo_nsys_rows *r, struct fo_nsys_db *d, const char *table,
					const char *const *columns, int needed);
/* *more: there is a row to look at. */
FO_CHECKED fo_status fo_nsys_rows_next(struct fo_nsys_rows *r, bool *more);
void fo_nsys_rows_end(struct fo_nsys_rows *r);
bool fo_nsys_has(const struct fo_nsys_rows *r, int column);
/* `otherwise` for a column that is absent, NULL or no number. */
int64_t fo_nsys_int(const struct fo_nsys_rows *r, int column, int64_t otherwise);
/* NULL for a column that is absent, NULL or no text. Valid until the next row; *n bytes, NUL behind them. */
const char *fo_nsys_text(const struct fo_nsys_rows *r, int column, size_t *n);

#endif
