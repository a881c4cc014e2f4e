/* Waterfalls: a whole and what is taken off it, step by step, down to what remains. */
#include "draw/draw_int.h"

#include <math.h>

enum { TOP = 14, BOTTOM = 86 }; /* of the mark in a row */

static double taken(const struct fo_draw_fall *f) { return isfinite(f->amount) ? f->amount : 0; }

static void mark(struct fo_str *out, const struct fo_axis *a, const char *cls, double x, double y)
{
	int from = fo_axis_across(a, fmin(x, y)), to = fo_axis_across(a, fmax(x, y));
	fo_str_printf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", cls, from, TOP,
		      to - from, BOTTOM - TOP);
}

/* The level that a row hands on: from its mark down to the next one. */
static void level(struct fo_str *out, const struct fo_axis *a, double v, int from, int to)
{
	fo_str_printf(out, "<path class=\"y\" d=\"M%d %dV%d\"/>", fo_axis_across(a, v), from, to);
}

void fo_draw_waterfall(struct fo_str *out, const struct fo_draw_waterfall *c)
{
	double lo = 0, hi = 0, at = isfinite(c->whole) ? c->whole : 0;
	struct fo_axis a = { .unit = c->unit };
	fo_range_add(&lo, &hi, at);
	for (size_t i = 0; i < c->falls; i++) {
		at -= taken(&c->fall[i]);
		fo_range_add(&lo, &hi, at);
	}
	fo_figure_begin(out, c->title, "bars");
	if (!(hi > lo)) {
		fo_figure_empty(out);
		fo_figure_end(out);
		return;
	}
	fo_axis_fit(&a, lo, hi, 5, true);
	at = c->whole;
	fo_bar_row_begin(out, &a, c->whole_name, NULL, c->whole_value, false);
	mark(out, &a, "bar", 0, at);
	level(out, &a, at, BOTTOM, FO_BAR_TRACK + 30);
	fo_bar_row_end(out, &a, 0, c->whole_value);
	for (size_t i = 0; i < c->falls; i++) {
		const struct fo_draw_fall *f = &c->fall[i];
		fo_bar_row_begin(out, &a, f->name, f->note, f->value, false);
		level(out, &a, at, -30, TOP);
		if (isfinite(f->amount))
			mark(out, &a, f->amount < 0 ? "back" : "fall", at, at - f->amount);
		at -= taken(f);
		level(out, &a, at, BOTTOM, FO_BAR_TRACK + 30);
		fo_bar_row_end(out, &a, 0, f->value);
	}
	fo_bar_row_begin(out, &a, c->rest_name, NULL, c->rest_value, false);
	level(out, &a, at, -30, TOP);
	mark(out, &a, "bar", 0, at);
	fo_bar_row_end(out, &a, 0, c->rest_value);
	fo_str_puts(out, "<div class=\"row axis\">");
	fo_axis_labels(out, &a);
	fo_str_puts(out, "</div>\n");
	fo_draw_remark(out, c->desc);
	fo_figure_end(out);
}
