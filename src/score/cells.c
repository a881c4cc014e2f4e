/* Cells and headings of tables that others wrote: "8k", "1,234", "n/a", "#-GPUs". */
#include "score/score_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name, *others;
} columns[] = {
#define FO_SCORE_COLUMN(name, others) { name, others },
#include "score/columns.def"
#undef FO_SCORE_COLUMN
};

/* Letters and digits of a heading in lower case. */
static void bare(const char *s, char *out, size_t size)
{
	size_t n = 0;
	for (; *s && n + 1 < size; s++)
		if (isalnum((unsigned char)*s))
			out[n++] = (char)tolower((unsigned char)*s);
	out[n] = '\0';
}
static bool listed(const char *list, const char *word)
{
	size_t len = strlen(word);
	for (; *list; list += strcspn(list, "|"), list += *list == '|')
		if (strcspn(list, "|") == len && !strncmp(list, word, len))
			return true;
	return false;
}

static int named(const struct fo_csv *csv, const char *name)
{
	for (int i = 0; i < csv->columns; i++)
		if (!strcmp(csv->head.field[i], name))
			return i;
	return -1;
}

fo_status fo_score_headings(struct fo_arena *a, struct fo_csv *csv, const char *where)
{
	char word[96], own[96];
	for (size_t k = 0; k < sizeof columns / sizeof *columns; k++)
		for (int pass = 0; pass < 2 && named(csv, columns[k].name) < 0; pass++)
			for (int i = 0; i < csv->columns && named(csv, columns[k].name) < 0; i++) {
				bare(csv->head.field[i], word, sizeof word);
				bare(columns[k].name, own, sizeof own);
				if (pass ? listed(columns[k].others, word) : !strcmp(word, own))
					csv->head.field[i] = fo_arena_strdup(a, columns[k].name);
			}
	for (int i = 0; i < csv->columns; i++)
		if (*csv->head.field[i] && named(csv, csv->head.field[i]) < i)
			return fo_hint(fo_fail(FO_EFORMAT, "%s:%d: column '%s' stands twice", where, csv->head.line,
					       csv->head.field[i]),
				       "which one holds the values? rename or remove the other");
	return FO_OK;
}

bool fo_score_missing(const char *s)
{
	char word[16];
	static const char none[] = "|na|nan|none|null|unknown|unstated|notstated|";
	bare(s, word, sizeof word);
	if (!*word)
		return true; /* "", "-", "?" */
	return listed(none + 1, word);
}

/* Figures without the separators of their thousands. False: separators stand elsewhere. */
static bool digits(const char **at, char *out, size_t size)
{
	const char *s = *at;
	size_t n = 0;
	if (*s == '-' || *s == '+')
		out[n++] = *s++;
	for (; n + 4 < size && (isdigit((unsigned char)*s) || *s == '.'); s++) {
		out[n++] = *s;
		bool parts = strchr(",_'", s[1]) && s[1] && isdigit((unsigned char)s[2]) &&
			     isdigit((unsigned char)s[3]) && isdigit((unsigned char)s[4]) &&
			     !isdigit((unsigned char)s[5]);
		if (parts && !memchr(out, '.', n))
			s++;
	}
	if ((*s == 'e' || *s == 'E') && (isdigit((unsigned char)s[1]) || s[1] == '-' || s[1] == '+'))
		for (out[n++] = *s++; n + 1 < size && (isdigit((unsigned char)*s) || *s == '-' || *s == '+'); s++)
			out[n++] = *s;
	out[n] = '\0';
	*at = s;
	return n > 0 && isdigit((unsigned char)out[n - 1]);
}

double fo_score_number(const char *s, double kilo)
{
	char figures[64], *end;
	while (*s == ' ' || *s == '~' || *s == '\t')
		s++;
	if (!digits(&s, figures, sizeof figures))
		return NAN;
	double v = strtod(figures, &end);
	if (*end || !isfinite(v))
		return NAN;
	if ((*s == 'k' || *s == 'K') && !isalnum((unsigned char)s[1]))
		v *= kilo, s++;
	/* "4096 (packed)" is 4096; "1-2", "1,5" and "3x" are none. */
	return *s == '\0' || *s == ' ' || *s == '(' || *s == '\t' ? v : NAN;
}
