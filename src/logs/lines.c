/* Lines of progress and facts, as all readers keep them. */
#include "logs/logs_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void fo_log_columns(struct fo_log_lines *l, const struct fo_log_key *keys)
{
	static const enum fo_log_field always[] = { FO_LOG_STEP, FO_LOG_STEPS, FO_LOG_AT };
	memset(l->column, -1, sizeof l->column);
	for (size_t i = 0; i < sizeof always / sizeof *always; i++)
		l->column[always[i]] = (int8_t)l->width++;
	for (int i = 0; keys ? i < FO_LOG_KEYS && keys[i].text != NULL : i < FO_LOG_FIELDS; i++) {
		int8_t *c = &l->column[keys ? (int)keys[i].field : i];
		if (*c < 0)
			*c = (int8_t)l->width++;
	}
}

struct fo_log_lines *fo_log_lines_of(struct fo_log *log, const struct fo_log_kind *kind, const struct fo_log_key *keys)
{
	for (size_t i = 0; i < log->kinds; i++)
		if (log->lines[i].kind == kind)
			return &log->lines[i];
	log->lines = fo_xrealloc(log->lines, (log->kinds + 1) * sizeof *log->lines);
	log->lines[log->kinds] = (struct fo_log_lines){ .kind = kind };
	fo_log_columns(&log->lines[log->kinds], keys);
	return &log->lines[log->kinds++];
}

static void begin_file(struct fo_log_lines *l, int file)
{
	if (l->files > file)
		return;
	l->from = fo_xrealloc(l->from, (size_t)(file + 1) * sizeof *l->from);
	while (l->files <= file)
		l->from[l->files++] = l->count;
}

void fo_log_add(struct fo_log_lines *l, const double row[FO_LOG_FIELDS], int file)
{
	begin_file(l, file);
	fo_array_room(&l->cell, &l->cap, l->count, (size_t)l->width * sizeof *l->cell);
	double *cell = l->cell + l->count++ * (size_t)l->width;
	for (int f = 0; f < FO_LOG_FIELDS; f++)
		if (l->column[f] >= 0)
			cell[l->column[f]] = row[f];
	double *step = &cell[l->column[FO_LOG_STEP]];
	if (fabs(*step) > 0x1p53) /* no count: doubles hold whole numbers up to there */
		*step = NAN;
}

void fo_log_add_rows(struct fo_log_lines *to, struct fo_log_lines *from, int file)
{
	begin_file(to, file);
	size_t row = (size_t)to->width * sizeof *to->cell;
	if (!to->count) {
		free(to->cell);
		to->cell = from->cell;
		to->cap = from->cap;
		to->count = from->count;
	} else {
		fo_array_room(&to->cell, &to->cap, to->count + from->count - 1, row);
		memcpy(to->cell + to->count * (size_t)to->width, from->cell, from->count * row);
		to->count += from->count;
		free(from->cell);
	}
	free(from->from);
}

void fo_log_copy(struct fo_log_lines *l, size_t to, size_t from)
{
	if (to != from)
		memcpy(l->cell + to * (size_t)l->width, l->cell + from * (size_t)l->width,
		       (size_t)l->width * sizeof *l->cell);
}

void fo_log_tell(struct fo_log *log, enum fo_log_fact f, double number, const char *text, size_t len, const char *file,
		 int64_t line)
{
	struct fo_log_told *t = &log->told[f];
	if (t->file) {
		if (isnan(t->later) && number > 0 && number != t->number)
			t->later = number;
		return;
	}
	*t = (struct fo_log_told){
		.number = number, .later = NAN, .line = line, .file = fo_arena_strdup(&log->arena, file)
	};
	if (text) {
		char *copy = fo_arena_alloc(&log->arena, len + 1);
		memcpy(copy, text, len);
		t->text = copy;
	}
}

bool fo_log_knows(const struct fo_log *log, enum fo_log_fact f) { return log->told[f].file != NULL; }
