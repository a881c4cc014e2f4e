/* Bars from zero with whiskers, and bars of parts. */
#include "draw/draw_int.h"

#include <math.h>
#include <stdlib.h>

enum { ARROW = 50 }; /* length of an arrow's head */

void fo_bar_row_begin(struct fo_str *out, const struct fo_axis *a, const char *name, const char *note,
		      const char *value, bool two)
{
	fo_draw_escaped(out, "<div class=\"row\"><div class=\"n\">", name, "");
	if (note && *note)
		fo_draw_escaped(out, "<small>", note, "</small>");
	fo_str_printf(out, "</div><div class=\"track%s\">", two ? " two" : "");
	fo_svg_begin(out, name && *name ? name : "step", value, FO_PLOT_WIDTH, FO_BAR_TRACK);
	fo_str_puts(out, "<path class=\"g\" d=\"");
	for (int k = 0; k < a->ticks; k++)
		fo_str_printf(out, "M%d -30V130", fo_axis_across(a, a->tick[k]));
	fo_str_puts(out, "\"/>");
}

void fo_bar_row_end(struct fo_str *out, const struct fo_axis *a, double zero, const char *value)
{
	fo_str_printf(out, "<path class=\"z\" d=\"M%d -30V130\"/>", fo_axis_across(a, zero));
	fo_draw_escaped(out, "</svg></div><div class=\"v\">", value, "</div></div>\n");
}

/* Returns the value at which bars begin: no change for factors, else nothing. */
static double zero_of(const struct fo_axis *a) { return a->unit == FO_DRAW_FACTOR ? 1 : 0; }

/* Draws the end of a whisker: a cap, or an arrow where the axis is too short for it. */
static void whisker_end(struct fo_str *out, const struct fo_axis *a, double v, int mid, int cap)
{
	bool left = v<a->lo, right = v> a->hi;
	int x = fo_axis_across(a, v), back = left ? ARROW : -ARROW;
	if (left || right)
		fo_str_printf(out, "M%d %dL%d %dL%d %d", x + back, mid - 2 * cap, x, mid, x + back, mid + 2 * cap);
	else
		fo_str_printf(out, "M%d %dV%d", x, mid - cap, mid + cap);
}

static void bar(struct fo_str *out, const struct fo_axis *a, const struct fo_draw_bar *b, const char *cls, int top,
		int bottom)
{
	if (!isfinite(fo_axis_at(a, b->value)))
		return;
	int zero = fo_axis_across(a, zero_of(a)), end = fo_axis_across(a, b->value);
	int left = zero < end ? zero : end, mid = (top + bottom) / 2, cap = (bottom - top) / 4;
	fo_str_printf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", cls, left, top,
		      abs(end - zero), bottom - top);
	if (!isfinite(b->lo) || !isfinite(b->hi) || b->hi < b->lo || (a->log && !(b->lo > 0)))
		return;
	int lo = fo_axis_across(a, b->lo), hi = fo_axis_across(a, b->hi);
	/* A wide line in the page's colour below a thin dark one: it can be read on the bar and beside it. */
	static const char *const line[] = { "wh", "w" };
	for (int i = 0; i < 2; i++) {
		fo_str_printf(out, "<path class=\"%s\" d=\"M%d %dH%d", line[i], lo, mid, hi);
		whisker_end(out, a, b->lo, mid, cap);
		whisker_end(out, a, b->hi, mid, cap);
		fo_str_puts(out, "\"/>");
	}
}

static void bars_legend(struct fo_str *out, const struct fo_draw_bars *c)
{
	static const char *const cls[] = { "bar", "hollow" };
	fo_str_puts(out, "<ul class=\"legend\">");
	for (int k = 0; k < 2; k++)
		if (c->bar_name[k]) {
			fo_str_printf(out,
				      "<li><svg viewBox=\"0 0 34 14\" aria-hidden=\"true\"><rect class=\"%s\" x=\"2\" "
				      "y=\"2\" width=\"30\" height=\"10\"/></svg>",
				      cls[k]);
			fo_draw_escaped(out, "", c->bar_name[k], "</li>\n");
		}
	fo_str_puts(out, "</ul>\n");
}

/* The row of ticks at the end; the last one says what the axis ends at. */
static void bars_axis(struct fo_str *out, const struct fo_draw_bars *c, const struct fo_axis *a)
{
	fo_str_puts(out, "<div class=\"row axis\">");
	fo_axis_labels(out, a);
	fo_str_puts(out, "</div>\n");
	if (c->hi_name)
		fo_draw_escaped(out, "<p class=\"remark\">The axis ends at ", c->hi_name, ".</p>\n");
}

/* Widens the range of an axis of factors to all values, and by as much again (at least an eighth of a double) for
 * whiskers. */
static void factor_range(const struct fo_draw_bars *c, double *lo, double *hi)
{
	double w_lo = NAN, w_hi = NAN;
	for (size_t i = 0; i < c->rows; i++)
		for (int k = 0; k < 2; k++) {
			const struct fo_draw_bar *b = &c->row[i].bar[k];
			if (!isfinite(b->value) || !(b->value > 0))
				continue;
			fo_range_add(lo, hi, b->value);
			fo_range_add(&w_lo, &w_hi, b->lo);
			fo_range_add(&w_lo, &w_hi, b->hi);
		}
	double room = exp2(fmax(log2(*hi / *lo), 0.125));
	double least = *lo / room, most = *hi * room;
	fo_range_add(lo, hi, isfinite(w_lo) ? fmax(w_lo, least) : NAN);
	fo_range_add(lo, hi, isfinite(w_hi) ? fmin(w_hi, most) : NAN);
}

static void bars_range(const struct fo_draw_bars *c, double *lo, double *hi)
{
	fo_range_add(lo, hi, c->lo);
	fo_range_add(lo, hi, c->hi);
	for (size_t i = 0; i < c->rows; i++)
		for (int k = 0; k < 2; k++) {
			const struct fo_draw_bar *b = &c->row[i].bar[k];
			if (!isfinite(b->value))
				continue;
			fo_range_add(lo, hi, b->value);
			fo_range_add(lo, hi, b->lo);
			fo_range_add(lo, hi, b->hi);
		}
}

void fo_draw_bars(struct fo_str *out, const struct fo_draw_bars *c)
{
	static const char *const tone[] = { "bar", "bar doubt", "bar bad" };
	struct fo_axis a = { .unit = c->unit, .log = c->unit == FO_DRAW_FACTOR };
	double lo = zero_of(&a), hi = lo;
	bool two = c->bar_name[1] != NULL;
	(a.log ? factor_range : bars_range)(c, &lo, &hi);
	fo_axis_fit(&a, lo, hi, 5, c->hi_name != NULL);
	fo_figure_begin(out, c->title, "bars");
	if (c->bar_name[0] || two)
		bars_legend(out, c);
	for (size_t i = 0; i < c->rows; i++) {
		const struct fo_draw_bar_row *r = &c->row[i];
		fo_bar_row_begin(out, &a, r->name, r->note, r->value, two);
		if (two)
			bar(out, &a, &r->bar[0], tone[r->tone], 4, 54);
		else
			bar(out, &a, &r->bar[0], tone[r->tone], 14, 86);
		bar(out, &a, &r->bar[1], "hollow", 64, 94);
		fo_bar_row_end(out, &a, zero_of(&a), r->value);
	}
	bars_axis(out, c, &a);
	fo_draw_remark(out, c->desc);
	fo_figure_end(out);
}

/* ---- bars of parts ---- */

static size_t tone_of(const struct fo_draw_stacks *c, size_t part) { return c->tone ? c->tone[part] : part; }

static double part_of(const struct fo_draw_stack *s, size_t i)
{
	return isfinite(s->part[i]) && s->part[i] > 0 ? s->part[i] : 0;
}

static double whole(const struct fo_draw_stack *s, size_t parts)
{
	double sum = 0;
	for (size_t i = 0; i < parts; i++)
		sum += part_of(s, i);
	return sum;
}

/* Draws the parts of one whole as an svg. */
static void stack_marks(struct fo_str *out, const struct fo_draw_stacks *c, size_t parts, const struct fo_draw_stack *s,
			double length)
{
	double sum = whole(s, parts), at = 0, share;
	char text[32];
	fo_svg_begin(out, s->name, c->desc, FO_PLOT_WIDTH, FO_BAR_TRACK);
	for (size_t i = 0; i < parts && sum > 0; i++, at += share) {
		share = part_of(s, i) / sum * length;
		if (!(share > 0))
			continue;
		int from = (int)lround(at * FO_PLOT_WIDTH), to = (int)lround((at + share) * FO_PLOT_WIDTH);
		fo_str_printf(out, "<rect class=\"part p%zu\" x=\"%d\" y=\"0\" width=\"%d\" height=\"%d\">",
			      tone_of(c, i), from, to - from, FO_BAR_TRACK);
		fo_draw_escaped(out, "<title>", c->part_name[i], ", ");
		fo_draw_escaped(out, "", fo_draw_number(text, share / length, FO_DRAW_SHARE), "</title></rect>\n");
	}
	fo_str_puts(out, "</svg>");
}

/* Draws one whole. A part has its share inside where it is wide enough for "12.3 %", on a telephone and on a desk. */
static void stack_bar(struct fo_str *out, const struct fo_draw_stacks *c, size_t parts, const struct fo_draw_stack *s,
		      double length)
{
	double sum = whole(s, parts), at = 0, share;
	char text[32];
	fo_draw_escaped(out, "<div class=\"sn\">", s->name, "");
	fo_draw_escaped(out, "<span>", s->total, "</span></div>\n<div class=\"stack\">");
	stack_marks(out, c, parts, s, length);
	for (size_t i = 0; i < parts && sum > 0; i++, at += share) {
		share = part_of(s, i) / sum * length;
		if (share < 0.06)
			continue;
		fo_str_printf(out, "<b class=\"p%zu%s\" style=\"left:%.2f%%\" aria-hidden=\"true\">%s</b>",
			      tone_of(c, i), share < 0.16 ? " wide" : "", 100 * (at + share / 2),
			      fo_draw_number(text, share / length, FO_DRAW_SHARE));
	}
	fo_str_puts(out, "</div>\n");
}

static bool anyone_has(const struct fo_draw_stacks *c, size_t part)
{
	for (size_t k = 0; k < c->stacks; k++)
		if (part_of(&c->stack[k], part) > 0)
			return true;
	return false;
}

/* A part's or a whole's name in a cell, a part's after its colour. */
static void name_cell(struct fo_str *out, const struct fo_draw_stacks *c, bool part, size_t i, const char *open,
		      const char *close)
{
	fo_str_puts(out, open);
	if (part)
		fo_draw_swatch(out, tone_of(c, i));
	fo_draw_escaped(out, "", part ? c->part_name[i] : c->stack[i].name, close);
}

/* The table of shares: few wholes are its columns, many its rows. */
static void shares_table(struct fo_str *out, const struct fo_draw_stacks *c, size_t parts)
{
	bool down = c->stacks <= 4; /* a row for each part */
	size_t rows = down ? parts : c->stacks, cols = parts + c->stacks - rows;
	char text[32];
	fo_str_puts(out, down ? "<table class=\"slim\"><thead><tr><th scope=\"col\">part</th>"
			      : "<table class=\"list\"><thead><tr><th></th>");
	for (size_t k = 0; k < cols; k++)
		if (down && c->head)
			fo_draw_escaped(out, "<th scope=\"col\" class=\"r\">", c->head[k], "</th>");
		else if (down || anyone_has(c, k))
			name_cell(out, c, !down, k, "<th scope=\"col\" class=\"r\">", "</th>");
	fo_str_puts(out, "</tr></thead>\n<tbody>\n");
	for (size_t r = 0; r < rows; r++) {
		if (down && !anyone_has(c, r))
			continue;
		name_cell(out, c, down, r, "<tr><td>", "</td>");
		for (size_t k = 0; k < cols; k++) {
			size_t part = down ? r : k, whole_at = r + k - part;
			const struct fo_draw_stack *s = &c->stack[whole_at];
			if (!anyone_has(c, part))
				continue;
			fo_draw_escaped(out, "<td class=\"r\" data-l=\"", down ? s->name : c->part_name[part], "\">");
			fo_draw_escaped(out, "",
					fo_draw_number(text, part_of(s, part) / whole(s, parts), FO_DRAW_SHARE),
					"</td>");
		}
		fo_str_puts(out, "</tr>\n");
	}
	fo_str_puts(out, "</tbody></table>\n");
}

static void dense_bar(struct fo_str *out, const struct fo_draw_stacks *c, size_t parts, const struct fo_draw_stack *s,
		      double length)
{
	fo_draw_escaped(out, "<div class=\"dense\"><div class=\"n\">", s->name, "</div><div class=\"stack\">");
	stack_marks(out, c, parts, s, length);
	fo_draw_escaped(out, "</div><div class=\"v\">", s->total, "</div></div>\n");
}

/* shares: each name has the share of the first stack after it, and parts that would read "0.0 %" are left out. */
static void parts_legend(struct fo_str *out, const struct fo_draw_stacks *c, size_t parts, bool shares)
{
	char text[32];
	fo_str_puts(out, "<ul class=\"legend\">");
	for (size_t i = 0; i < parts; i++)
		if (anyone_has(c, i) && !(shares && part_of(c->stack, i) < 0.0005 * whole(c->stack, parts))) {
			fo_str_puts(out, "<li>");
			fo_draw_swatch(out, tone_of(c, i));
			fo_draw_escaped(out, "", c->part_name[i], "");
			if (shares)
				fo_draw_escaped(out, "<b>\u00a0",
						fo_draw_number(text, part_of(c->stack, i) / whole(c->stack, parts),
							       FO_DRAW_SHARE),
						"</b>");
			fo_str_puts(out, "</li>\n");
		}
	fo_str_puts(out, "</ul>\n");
}

void fo_draw_stacks(struct fo_str *out, const struct fo_draw_stacks *c)
{
	size_t parts = c->parts < FO_DRAW_PARTS ? c->parts : FO_DRAW_PARTS;
	double longest = 0;
	for (size_t k = 0; k < c->stacks; k++)
		longest = fmax(longest, whole(&c->stack[k], parts));
	fo_figure_begin(out, c->title, "stacks");
	if (!(longest > 0)) {
		fo_figure_empty(out);
	} else if (c->dense) {
		parts_legend(out, c, parts, false);
		for (size_t k = 0; k < c->stacks; k++)
			dense_bar(out, c, parts, &c->stack[k], c->to_scale ? whole(&c->stack[k], parts) / longest : 1);
	} else {
		for (size_t k = 0; k < c->stacks; k++)
			stack_bar(out, c, parts, &c->stack[k], c->to_scale ? whole(&c->stack[k], parts) / longest : 1);
		if (c->legend && c->stacks == 1)
			parts_legend(out, c, parts, true);
		else
			shares_table(out, c, parts);
	}
	fo_figure_end(out);
}
