/* Strict CSV (RFC 4180 without line ends inside quotes): comma, double quotes doubled inside quotes, LF or CRLF. Lines
 * that start with # and empty lines are skipped, as is a byte order mark. Refused with file:line: stray quotes, control
 * bytes, broken UTF-8, rows of another width than the header. */
#ifndef FO_HW_CSV_H
#define FO_HW_CSV_H

#include "base/err.h"
#include "base/mem.h"

#include <stddef.h>

/* Far above our own file (33 columns, 30 rows, fields under 400 bytes), far below what would hurt. */
enum { FO_CSV_MAX_BYTES = 1 << 22, FO_CSV_MAX_COLUMNS = 128, FO_CSV_MAX_ROWS = 4096, FO_CSV_MAX_FIELD = 4096 };

struct fo_csv_row {
	int line;
	char **field;
};
struct fo_csv {
	int columns;
	size_t rows;
	struct fo_csv_row head, *row;
};

/* All memory comes from `a`. `where` names the text in errors. */
FO_CHECKED fo_status fo_csv_parse(struct fo_arena *a, const char *text, size_t len, const char *where,
				  struct fo_csv *out);

#endif
