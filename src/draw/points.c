/* Points in a plane: each kind has a form and a colour of its own. The marks lie in an svg of their own, which does not
 * stretch, so that a circle stays one on a page of any width. */
#include "draw/draw_int.h"

#include <math.h>
#include <stdio.h>

/* A circle, a square, a triangle, a diamond, a cross and a star of three strokes, of about one area, around 0 0. */
static const char *const form[FO_DRAW_STYLES] = {
	"M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
	"M-3.5-3.5h7v7h-7z",
	"M0-4.6L4.4 3.4h-8.8z",
	"M0-5L5 0 0 5-5 0z",
	"M-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
	"M-4-5L0-1.6 4-5 5-4 1.6 0 5 4 4 5 0 1.6-4 5-5 4-1.6 0-5-4z",
};
#define RING "M-7.5 0a7.5 7.5 0 1 0 15 0a7.5 7.5 0 1 0-15 0z"
#define WIDE_RING "M-10.5 0a10.5 10.5 0 1 0 21 0a10.5 10.5 0 1 0-21 0z"

/* Draws in the colour of `kind`. */
static void mark(struct fo_str *out, const char *shape, int kind, enum fo_draw_point_mark m)
{
	fo_str_printf(out, "<path class=\"pt s%d%s\" d=\"%s\"/>", kind, m == FO_DRAW_POINT_HOLLOW ? " open" : "",
		      shape);
	if (m >= FO_DRAW_POINT_RING)
		fo_str_puts(out, "<path class=\"ring\" d=\"" RING "\"/>");
	if (m == FO_DRAW_POINT_CHOSEN)
		fo_str_puts(out, "<path class=\"ring\" d=\"" WIDE_RING "\"/>");
}

/* A legend's sample, with as much room as its widest form needs. */
static void sample(struct fo_str *out, const char *shape, int kind, enum fo_draw_point_mark m, const char *name)
{
	static const int room[] = { 7, 7, 9, 12 };
	const int half = room[m];
	fo_str_printf(out, "<li><svg viewBox=\"%d %d %d %d\" aria-hidden=\"true\">", -half * 17 / 7, -half,
		      2 * half * 17 / 7, 2 * half);
	mark(out, shape, kind, m);
	fo_draw_escaped(out, "</svg>", name, "</li>\n");
}

static void legend(struct fo_str *out, const struct fo_draw_points *c, const bool *kind, const bool *marked)
{
	enum { ANY_KIND = FO_DRAW_STYLES - 1 }; /* grey */
	fo_str_puts(out, "<ul class=\"legend\">");
	for (int k = 0; k < FO_DRAW_STYLES; k++)
		if (kind[k] && c->kind_name[k])
			sample(out, form[k], k, FO_DRAW_POINT_PLAIN, c->kind_name[k]);
	for (int m = 0; m < FO_DRAW_POINT_MARKS; m++)
		if (marked[m] && c->mark_name[m])
			sample(out, form[0], ANY_KIND, (enum fo_draw_point_mark)m, c->mark_name[m]);
	if (c->limit_name && isfinite(c->limit)) {
		fo_str_puts(out,
			    "<li><svg viewBox=\"0 0 34 14\" aria-hidden=\"true\"><path class=\"vl\" d=\"M17 0V14\"/>");
		fo_draw_escaped(out, "</svg>", c->limit_name, "</li>\n");
	}
	fo_str_puts(out, "</ul>\n");
}

static bool drawn(const struct fo_draw_point *p)
{
	return isfinite(p->x) && isfinite(p->y) && p->kind >= 0 && p->kind < FO_DRAW_STYLES &&
	       (int)p->mark < FO_DRAW_POINT_MARKS;
}

void fo_draw_points(struct fo_str *out, const struct fo_draw_points *c)
{
	struct fo_axis x = { .unit = c->x_unit }, y = { .unit = c->y_unit };
	double x_lo = NAN, x_hi = NAN, y_lo = 0, y_hi = NAN;
	bool kind[FO_DRAW_STYLES] = { false }, marked[FO_DRAW_POINT_MARKS] = { false };
	fo_figure_begin(out, c->title, "points");
	for (size_t i = 0; i < c->n; i++) {
		const struct fo_draw_point *p = &c->point[i];
		if (!drawn(p))
			continue;
		kind[p->kind] = marked[p->mark] = true;
		fo_range_add(&x_lo, &x_hi, p->x);
		fo_range_add(&y_lo, &y_hi, p->y);
	}
	if (isnan(x_lo)) {
		fo_figure_empty(out);
		fo_figure_end(out);
		return;
	}
	fo_range_add(&x_lo, &x_hi, 0);
	fo_range_add(&x_lo, &x_hi, c->limit);
	fo_axis_fit(&x, x_lo, x_hi, 8, false);
	fo_axis_fit(&y, y_lo, y_hi, 5, false);
	legend(out, c, kind, marked);
	fo_plot_begin(out, &x, &y, c->title, c->desc, c->y_name);
	if (isfinite(c->limit))
		fo_str_printf(out, "<path class=\"vl\" d=\"M%d 0V%d\"/>\n", fo_axis_across(&x, c->limit),
			      FO_PLOT_HEIGHT);
	fo_str_puts(out, "</svg>\n<svg aria-hidden=\"true\">\n");
	for (int m = 0; m < FO_DRAW_POINT_MARKS; m++) /* what is marked lies above what is not */
		for (size_t i = 0; i < c->n; i++) {
			const struct fo_draw_point *p = &c->point[i];
			if (!drawn(p) || (int)p->mark != m)
				continue;
			fo_str_printf(out, "<svg x=\"%.2f%%\" y=\"%.2f%%\">", 100 * fo_axis_at(&x, p->x),
				      100 * (1 - fo_axis_at(&y, p->y)));
			mark(out, form[p->kind], p->kind, p->mark);
			fo_str_puts(out, "</svg>\n");
		}
	fo_plot_end(out, &x, c->x_name);
	fo_draw_remark(out, c->remark);
	fo_figure_end(out);
}
