/* A whole and what is taken off it, step by step, down to what remains. */
#include "draw/draw_int.h"

#include <math.h>

enum { TRACK = 100, TOP = 14, BOTTOM = 86 }; /* height of a row's view box and the mark in it */

static int across(const struct fo_axis *a, double v) { return (int)lround(fo_axis_at(a, v) * FO_PLOT_WIDTH); }

static double taken(const struct fo_draw_fall *f) { return isfinite(f->amount) ? f->amount : 0; }

static void row_begin(struct fo_str *out, const struct fo_axis *a, const char *name, const char *note,
		      const char *value)
{
	fo_draw_escaped(out, "<div class=\"row\"><div class=\"n\">", name, "");
	if (note && *note)
		fo_draw_escaped(out, "<small>", note, "</small>");
	fo_str_puts(out, "</div><div class=\"track\">");
	fo_svg_begin(out, name && *name ? name : "step", value, FO_PLOT_WIDTH, TRACK);
	fo_str_puts(out, "<path class=\"g\" d=\"");
	for (int k = 0; k < a->ticks; k++)
		fo_str_printf(out, "M%d -30V130", across(a, a->tick[k]));
	fo_str_puts(out, "\"/>");
}

static void row_end(struct fo_str *out, const struct fo_axis *a, const char *value)
{
	fo_str_printf(out, "<path class=\"z\" d=\"M%d -30V130\"/>", across(a, 0));
	fo_draw_escaped(out, "</svg></div><div class=\"v\">", value, "</div></div>\n");
}

static void mark(struct fo_str *out, const struct fo_axis *a, const char *cls, double x, double y)
{
	int from = across(a, fmin(x, y)), to = across(a, fmax(x, y));
	fo_str_printf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", cls, from, TOP,
		      to - from, BOTTOM - TOP);
}

/* The level that a row hands on: from its mark down to the next one. */
static void level(struct fo_str *out, const struct fo_axis *a, double v, int from, int to)
{
	fo_str_printf(out, "<path class=\"y\" d=\"M%d %dV%d\"/>", across(a, v), from, to);
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
		fo_str_puts(out, "<div class=\"none\">Nothing was recorded for this picture.</div>\n");
		fo_figure_end(out);
		return;
	}
	fo_axis_fit(&a, lo, hi, 5, true);
	at = c->whole;
	row_begin(out, &a, c->whole_name, NULL, c->whole_value);
	mark(out, &a, "bar", 0, at);
	level(out, &a, at, BOTTOM, TRACK + 30);
	row_end(out, &a, c->whole_value);
	for (size_t i = 0; i < c->falls; i++) {
		const struct fo_draw_fall *f = &c->fall[i];
		row_begin(out, &a, f->name, f->note, f->value);
		level(out, &a, at, -30, TOP);
		if (isfinite(f->amount))
			mark(out, &a, f->amount < 0 ? "back" : "fall", at, at - f->amount);
		at -= taken(f);
		level(out, &a, at, BOTTOM, TRACK + 30);
		row_end(out, &a, f->value);
	}
	row_begin(out, &a, c->rest_name, NULL, c->rest_value);
	level(out, &a, at, -30, TOP);
	mark(out, &a, "bar", 0, at);
	row_end(out, &a, c->rest_value);
	fo_str_puts(out, "<div class=\"row axis\">");
	fo_axis_labels(out, &a);
	fo_str_puts(out, "</div>\n");
	fo_draw_remark(out, c->desc);
	fo_figure_end(out);
}
