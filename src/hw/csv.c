#include "hw/csv.h"
#include "base/str.h"

#include <stdbool.h>
#include <string.h>

struct scanner {
	const unsigned char *at, *end;
	int line;
	const char *where;
	char field[FO_CSV_MAX_FIELD];
};

/* Length of the UTF-8 sequence at s, 0 where it is broken or a control other than the tab. */
static size_t sequence(const unsigned char *s, const unsigned char *end)
{
	uint32_t c = 0;
	size_t n = fo_utf8_decode(s, (size_t)(end - s), &c);
	bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
	return n && (!control || c == '\t') ? n : 0;
}

static bool at_line_end(const struct scanner *s)
{
	return s->at == s->end || *s->at == '\n' || (*s->at == '\r' && s->end - s->at > 1 && s->at[1] == '\n');
}

static fo_status put(struct scanner *s, size_t *len)
{
	size_t n = sequence(s->at, s->end);
	if (n == 0)
		return fo_fail(FO_EFORMAT, "%s:%d: byte 0x%02x is neither printable nor UTF-8", s->where, s->line,
			       *s->at);
	if (*len + n >= sizeof s->field)
		return fo_fail(FO_EFORMAT, "%s:%d: a field is longer than %d bytes", s->where, s->line,
			       FO_CSV_MAX_FIELD - 1);
	memcpy(s->field + *len, s->at, n);
	*len += n;
	s->at += n;
	return FO_OK;
}

/* One field into s->field, up to the comma or line end, which stays. */
static fo_status scan_field(struct scanner *s)
{
	size_t len = 0;
	if (s->at < s->end && *s->at == '"') {
		for (s->at++;;) {
			if (at_line_end(s))
				return fo_fail(FO_EFORMAT, "%s:%d: a quoted field does not end on its line", s->where,
					       s->line);
			if (*s->at == '"' && !(s->end - s->at > 1 && s->at[1] == '"'))
				break;
			s->at += *s->at == '"';
			FO_TRY(put(s, &len));
		}
		s->at++;
		if (!at_line_end(s) && *s->at != ',')
			return fo_fail(FO_EFORMAT, "%s:%d: text behind a closing quote", s->where, s->line);
	} else {
		while (!at_line_end(s) && *s->at != ',') {
			if (*s->at == '"')
				return fo_fail(FO_EFORMAT, "%s:%d: a quote inside an unquoted field", s->where,
					       s->line);
			FO_TRY(put(s, &len));
		}
	}
	s->field[len] = 0;
	return FO_OK;
}

static fo_status scan_row(struct scanner *s, struct fo_arena *a, struct fo_csv_row *row, int *columns)
{
	char *field[FO_CSV_MAX_COLUMNS];
	int n = 0;
	for (;;) {
		if (n == FO_CSV_MAX_COLUMNS)
			return fo_fail(FO_EFORMAT, "%s:%d: more than %d columns", s->where, s->line,
				       FO_CSV_MAX_COLUMNS);
		FO_TRY(scan_field(s));
		field[n++] = fo_arena_strdup(a, s->field);
		if (at_line_end(s))
			break;
		s->at++; /* the comma */
	}
	row->line = s->line;
	row->field = fo_arena_alloc(a, (size_t)n * sizeof(char *));
	memcpy(row->field, field, (size_t)n * sizeof(char *));
	*columns = n;
	return FO_OK;
}

static void next_line(struct scanner *s)
{
	while (s->at < s->end && *s->at != '\n')
		s->at++;
	if (s->at < s->end)
		s->at++;
	s->line++;
}

fo_status fo_csv_parse(struct fo_arena *a, const char *text, size_t len, const char *where, struct fo_csv *out)
{
	if (len > FO_CSV_MAX_BYTES)
		return fo_fail(FO_EFORMAT, "'%s': %zu bytes, expected at most %d", where, len, FO_CSV_MAX_BYTES);
	struct scanner s = {
		.at = (const unsigned char *)text, .end = (const unsigned char *)text + len, .line = 1, .where = where
	};
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		s.at += 3; /* the mark that spreadsheets put in front of UTF-8 */
	struct fo_csv csv = { 0 };
	csv.row = fo_arena_alloc(a, FO_CSV_MAX_ROWS * sizeof(*csv.row));
	for (; s.at < s.end; next_line(&s)) {
		if (at_line_end(&s) || *s.at == '#')
			continue;
		struct fo_csv_row row;
		int columns = 0;
		FO_TRY(scan_row(&s, a, &row, &columns));
		if (!csv.columns) {
			csv.columns = columns;
			csv.head = row;
			continue;
		}
		if (columns != csv.columns)
			return fo_fail(FO_EFORMAT, "%s:%d: %d fields, expected %d as in the header", where, s.line,
				       columns, csv.columns);
		if (csv.rows == FO_CSV_MAX_ROWS)
			return fo_fail(FO_EFORMAT, "%s:%d: more than %d rows", where, s.line, FO_CSV_MAX_ROWS);
		csv.row[csv.rows++] = row;
	}
	if (!csv.columns)
		return fo_fail(FO_EFORMAT, "'%s': empty, expected a header line", where);
	*out = csv;
	return FO_OK;
}
