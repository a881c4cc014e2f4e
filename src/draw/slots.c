/* Slots in a page, which draws them as lanes, and as text. */
#include "draw/draw_int.h"
#include "draw/term.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BANDS = 3, TEXT_ROWS = 16, LABEL = 24 };

/* "F12b" */
static int label_of(const struct fo_draw_slots *c, const struct fo_draw_slot *s, char out[LABEL])
{
	int n = snprintf(out, LABEL, "%c", c->letter[s->kind]);
	if (s->number >= 0)
		n += snprintf(out + n, (size_t)(LABEL - n), "%d", s->number);
	if (s->part >= 0 && s->part < 26)
		n += snprintf(out + n, (size_t)(LABEL - n), "%c", 'a' + s->part);
	return n;
}

/* The rows that are shown of `rows`: the first half and the last half of `most`. */
static size_t shown(size_t rows, size_t most) { return rows < most ? rows : most; }
static size_t row_at(size_t i, size_t rows, size_t most)
{
	return rows <= most || i < most / 2 ? i : rows - (most - i);
}

/* ---- in a page ---- */

void fo_draw_slots(struct fo_str *out, const struct fo_draw_slots *c)
{
	const size_t rows = shown(c->rows, FO_DRAW_LANES);
	struct fo_draw_lane *lane = fo_xmalloc(rows * sizeof *lane);
	struct fo_draw_span **span = fo_xmalloc(rows * sizeof *span);
	struct fo_draw_lanes l = { .title = c->title, .from = c->from, .to = c->to, .lane = lane, .lanes = rows };
	struct fo_arena names = { 0 };
	struct fo_str desc = { 0 };
	for (size_t k = 0; k < c->kinds; k++)
		l.tone_name[c->tone[k]] = fo_arena_printf(&names, "%c: %s", c->letter[k], c->kind_name[k]);
	for (size_t i = 0; i < rows; i++) {
		const struct fo_draw_slot_row *r = &c->row[row_at(i, c->rows, FO_DRAW_LANES)];
		span[i] = fo_xmalloc(r->slots * sizeof *span[i]);
		for (size_t k = 0; k < r->slots; k++) {
			char text[LABEL];
			label_of(c, &r->slot[k], text);
			span[i][k] = (struct fo_draw_span){ r->slot[k].from, r->slot[k].to, c->tone[r->slot[k].kind],
							    fo_arena_strdup(&names, text) };
		}
		lane[i] = (struct fo_draw_lane){ r->name, span[i], r->slots };
	}
	fo_str_puts(&desc, c->desc ? c->desc : "");
	if (rows < c->rows)
		fo_str_printf(&desc, "%sThe first and the last %zu of %zu rows.", desc.len ? ". " : "", rows / 2,
			      c->rows);
	l.desc = desc.len ? desc.data : NULL;
	fo_draw_lanes(out, &l);
	for (size_t i = 0; i < rows; i++)
		free(span[i]);
	free(span);
	free(lane);
	fo_str_fini(&desc);
	fo_arena_fini(&names);
}

/* ---- as text ---- */

/* How times become columns. */
struct grid {
	double per_unit; /* columns per second or turn */
	size_t columns;  /* of the whole picture */
	size_t band;     /* of one band */
	bool numbers;    /* slots are labelled with numbers */
	double drawn;    /* share of the time that the bands hold */
};

/* The shortest of the kinds' mean lengths, and the longest label. */
static double shortest_kind(const struct fo_draw_slots *c, int *widest)
{
	double sum[FO_DRAW_SLOT_KINDS] = { 0 }, shortest = INFINITY;
	int64_t n[FO_DRAW_SLOT_KINDS] = { 0 };
	*widest = 1;
	for (size_t i = 0; i < c->rows; i++)
		for (size_t k = 0; k < c->row[i].slots; k++) {
			const struct fo_draw_slot *s = &c->row[i].slot[k];
			char text[LABEL];
			const int width = label_of(c, s, text);
			sum[s->kind] += s->to - s->from;
			n[s->kind]++;
			*widest = width > *widest ? width : *widest;
		}
	for (size_t k = 0; k < c->kinds; k++)
		if (n[k] && sum[k] > 0)
			shortest = fmin(shortest, sum[k] / (double)n[k]);
	return shortest;
}

static struct grid grid_of(const struct fo_draw_slots *c, size_t band)
{
	struct grid g = { .band = band, .numbers = true, .drawn = 1 };
	const double time = c->to - c->from;
	int widest;
	const double shortest = shortest_kind(c, &widest);
	const double most = (double)(BANDS * band);
	g.per_unit = widest / shortest;
	if (!isfinite(g.per_unit) || time * g.per_unit > most) {
		/* Numbers have no room: one letter a slot, stretched over all bands or cut. */
		g.numbers = false;
		g.per_unit = isfinite(shortest) ? fmax(1 / shortest, most / time) : most / time;
	}
	if (time * g.per_unit > most + 0.5)
		g.drawn = most / (time * g.per_unit);
	g.columns = (size_t)fmin(most, ceil(time * g.per_unit - 1e-6));
	return g;
}

/* Writes a row of the whole picture, one character per column. */
static void fill_row(const struct fo_draw_slots *c, const struct grid *g, const struct fo_draw_slot_row *r, char *line)
{
	memset(line, '.', g->columns);
	for (size_t k = 0; k < r->slots; k++) {
		const struct fo_draw_slot *s = &r->slot[k];
		const double a = round((s->from - c->from) * g->per_unit), b = round((s->to - c->from) * g->per_unit);
		char text[LABEL];
		if (!(b > 0) || !(a < (double)g->columns) || !(s->to > s->from))
			continue;
		const size_t from = (size_t)fmax(a, 0), to = (size_t)fmin(b, (double)g->columns);
		size_t width = (size_t)label_of(c, s, text);
		if (!g->numbers || width > to - from)
			width = 1;
		for (size_t i = from; i < to; i++)
			line[i] = i - from < width ? text[i - from] : '-';
	}
}

static void pad(struct fo_str *out, size_t n)
{
	while (n-- > 0)
		fo_str_puts(out, " ");
}

static void put_bands(struct fo_str *out, const struct fo_draw_slots *c, const struct grid *g, size_t name,
		      size_t indent)
{
	const size_t rows = shown(c->rows, TEXT_ROWS);
	char *line = fo_xmalloc(rows * g->columns);
	for (size_t i = 0; i < rows; i++)
		fill_row(c, g, &c->row[row_at(i, c->rows, TEXT_ROWS)], line + i * g->columns);
	for (size_t at = 0; at < g->columns; at += g->band) {
		const size_t n = g->columns - at < g->band ? g->columns - at : g->band;
		fo_str_puts(out, at ? "\n" : "");
		for (size_t i = 0; i < rows; i++) {
			char seen[128];
			if (c->rows > rows && i == rows / 2) {
				pad(out, indent);
				fo_str_printf(out, "... %zu more\n", c->rows - rows);
			}
			fo_str_visible(seen, sizeof seen, c->row[row_at(i, c->rows, TEXT_ROWS)].name);
			pad(out, indent);
			fo_str_printf(out, "%-*.*s", (int)name, (int)name - 1, seen);
			fo_str_append(out, line + i * g->columns + at, n);
			fo_str_puts(out, "\n");
		}
	}
	free(line);
}

static void put_legend(struct fo_str *out, const struct fo_draw_slots *c, const struct grid *g, size_t width,
		       size_t indent)
{
	struct fo_str text = { 0 }, lead = { 0 };
	bool part = false, used[FO_DRAW_SLOT_KINDS] = { false };
	for (size_t i = 0; i < c->rows; i++)
		for (size_t k = 0; k < c->row[i].slots; k++) {
			used[c->row[i].slot[k].kind] = true;
			part |= c->row[i].slot[k].part >= 0;
		}
	for (size_t k = 0; k < c->kinds; k++)
		if (used[k])
			fo_str_printf(&text, "%c %s, ", c->letter[k], c->kind_name[k]);
	if (g->numbers)
		fo_str_printf(&text, "with the number of the micro-batch%s, ",
			      part ? " and the chunk as a letter" : "");
	fo_str_puts(&text, ". idle");
	if (g->drawn < 1)
		fo_str_printf(&text, "; this is the first %.0f %% of the time: the rest has no room here",
			      100 * g->drawn);
	else if (!g->numbers)
		fo_str_puts(&text, "; numbers have no room here");
	pad(&lead, indent);
	fo_str_append(&lead, "", 0);
	fo_term_wrap(out, width, lead.data, lead.data, text.data);
	fo_str_fini(&text);
	fo_str_fini(&lead);
}

void fo_draw_slots_text(struct fo_str *out, const struct fo_draw_slots *c, size_t width, size_t indent)
{
	size_t name = 0;
	for (size_t i = 0; i < c->rows; i++) {
		const size_t w = fo_term_columns(c->row[i].name, strlen(c->row[i].name)) + 1;
		name = w > name ? w : name;
	}
	name = name < 16 ? name : 16;
	if (!c->rows || !(c->to > c->from) || width < indent + name + 8)
		return;
	const struct grid g = grid_of(c, width - indent - name);
	put_bands(out, c, &g, name, indent);
	put_legend(out, c, &g, width, indent);
}
