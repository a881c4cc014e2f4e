/* Lines of progress and facts, as all readers keep them. */
#include "logs/logs_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fo_log_lines *fo_log_lines_of(struct fo_log *log, const struct fo_log_kind *kind)
{
	for (size_t i = 0; i < log->kinds; i++)
		if (log->lines[i].kind == kind)
			return &log->lines[i];
	log->lines = fo_xrealloc(log->lines, (log->kinds + 1) * sizeof *log->lines);
	log->lines[log->kinds] = (struct fo_log_lines){ .kind = kind };
	return &log->lines[log->kinds++];
}

void fo_log_lines_fini(struct fo_log_lines *l)
{
	for (int f = 0; f < FO_LOG_FIELDS; f++)
		free(l->cell[f]);
	free(l->from);
	*l = (struct fo_log_lines){ 0 };
}

static void begin_file(struct fo_log_lines *l, int file)
{
	if (l->files > file)
		return;
	l->from = fo_xrealloc(l->from, (size_t)(file + 1) * sizeof *l->from);
	while (l->files <= file)
		l->from[l->files++] = l->count;
}

static void unknown(double *cell, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		cell[i] = NAN;
}

/* The field's array, of which the first `rows` are values. */
static double *cells_of(struct fo_log_lines *l, int f, size_t rows)
{
	if (!l->cell[f]) {
		l->cell[f] = fo_xmalloc(l->cap * sizeof *l->cell[f]);
		unknown(l->cell[f], 0, rows);
	}
	return l->cell[f];
}

static void make_room(struct fo_log_lines *l, size_t rows)
{
	size_t cap = l->cap ? l->cap : 64;
	while (cap < rows)
		cap *= 2;
	for (int f = 0; f < FO_LOG_FIELDS && cap > l->cap; f++)
		if (l->cell[f])
			l->cell[f] = fo_xrealloc(l->cell[f], cap * sizeof *l->cell[f]);
	l->cap = cap;
}

void fo_log_add(struct fo_log_lines *l, const double row[FO_LOG_FIELDS], int file)
{
	begin_file(l, file);
	if (l->count == l->cap)
		make_room(l, l->count + 1);
	for (int f = 0; f < FO_LOG_FIELDS; f++)
		if (l->cell[f] || !isnan(row[f]))
			cells_of(l, f, l->count)[l->count] = row[f];
	if (fabs(row[FO_LOG_STEP]) > 0x1p53) /* no count: doubles hold whole numbers up to there */
		l->cell[FO_LOG_STEP][l->count] = NAN;
	l->count++;
}

void fo_log_add_rows(struct fo_log_lines *to, struct fo_log_lines *from, int file)
{
	begin_file(to, file);
	make_room(to, to->count + from->count);
	for (int f = 0; f < FO_LOG_FIELDS; f++) {
		if (!to->cell[f] && !from->cell[f])
			continue;
		double *cell = cells_of(to, f, to->count) + to->count;
		if (from->cell[f])
			memcpy(cell, from->cell[f], from->count * sizeof *cell);
		else
			unknown(cell, 0, from->count);
	}
	to->count += from->count;
	fo_log_lines_fini(from);
}

void fo_log_set(struct fo_log_lines *l, size_t i, enum fo_log_field f, double v)
{
	if (l->cell[f] || !isnan(v))
		cells_of(l, f, l->count)[i] = v;
}

void fo_log_copy(struct fo_log_lines *l, size_t to, size_t from)
{
	for (int f = 0; f < FO_LOG_FIELDS; f++)
		if (l->cell[f])
			l->cell[f][to] = l->cell[f][from];
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
