/* The frame of a plot, lines and areas in it. */
#include "draw/draw_int.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARKS = 60 }; /* more dots than this hide the line */

static int across(double at) { return (int)lround(at * FO_PLOT_WIDTH); }
static int down(double at) { return (int)lround((1 - at) * FO_PLOT_HEIGHT); }

void fo_axis_labels(struct fo_str *out, const struct fo_axis *x)
{
	char label[32];
	size_t longest = 0;
	for (int i = 0; i < x->ticks; i++) {
		size_t n = strlen(fo_axis_label(x, x->tick[i], label));
		longest = n > longest ? n : longest;
	}
	int room = longest <= 5 ? 6 : 3; /* labels that a telephone has room for */
	if (longest > 5 && longest <= 8)
		room = 4;
	int every = 1 + (x->ticks - 1) / room;
	fo_str_puts(out, "<div class=\"xs\" aria-hidden=\"true\">");
	for (int i = 0; i < x->ticks; i++) {
		fo_str_printf(out, "<span%s style=\"left:%.2f%%\">", i % every ? " class=\"wide\"" : "",
			      100 * fo_axis_at(x, x->tick[i]));
		fo_draw_escaped(out, "", fo_axis_label(x, x->tick[i], label), "</span>");
	}
	fo_str_puts(out, "</div>\n");
}

void fo_plot_begin(struct fo_str *out, const struct fo_axis *x, const struct fo_axis *y, const char *title,
		   const char *desc, const char *y_name)
{
	char label[32], widest[32] = "";
	for (int i = 0; i < y->ticks; i++)
		if (strlen(fo_axis_label(y, y->tick[i], label)) > strlen(widest))
			snprintf(widest, sizeof widest, "%s", label);
	fo_draw_escaped(out, "<div class=\"plot\"><div class=\"yn\">", y_name, "</div>\n");
	/* The hidden widest label gives the column its width. */
	fo_draw_escaped(out, "<div class=\"ys\" aria-hidden=\"true\"><i>", widest, "</i>");
	for (int i = 0; i < y->ticks; i++) {
		fo_str_printf(out, "<span style=\"top:%.2f%%\">", 100 * (1 - fo_axis_at(y, y->tick[i])));
		fo_draw_escaped(out, "", fo_axis_label(y, y->tick[i], label), "</span>");
	}
	fo_str_puts(out, "</div>\n<div class=\"area\">");
	fo_svg_begin(out, title, desc, FO_PLOT_WIDTH, FO_PLOT_HEIGHT);
	fo_str_puts(out, "<path class=\"g\" d=\"");
	for (int i = 0; i < y->ticks; i++)
		fo_str_printf(out, "M0 %dH%d", down(fo_axis_at(y, y->tick[i])), FO_PLOT_WIDTH);
	for (int i = 0; i < x->ticks; i++)
		fo_str_printf(out, "M%d 0V%d", across(fo_axis_at(x, x->tick[i])), FO_PLOT_HEIGHT);
	fo_str_printf(out, "\"/><path class=\"z\" d=\"M0 0V%dH%d\"/>\n", FO_PLOT_HEIGHT, FO_PLOT_WIDTH);
}

void fo_plot_end(struct fo_str *out, const struct fo_axis *x, const char *x_name)
{
	fo_str_puts(out, "</svg></div>\n");
	fo_axis_labels(out, x);
	fo_draw_escaped(out, "<div class=\"xn\">", x_name, "</div></div>\n");
}

/* ---- lines ---- */

struct at {
	int x, y;
};
/* The points of a long run that lie in one column of the picture. */
struct column {
	int index; /* -1: nothing */
	struct at first, least, most, last;
	bool least_first;
};

static void point(struct fo_str *d, struct at p, bool *pen)
{
	fo_str_printf(d, *pen ? "L%d %d" : "M%d %dh0", p.x, p.y); /* h0: a lone point is a dot */
	*pen = true;
}

static void flush(struct fo_str *d, struct column *c, bool *pen)
{
	if (c->index < 0)
		return;
	struct at a = c->most, b = c->least;
	if (c->least_first) {
		a = c->least;
		b = c->most;
	}
	point(d, c->first, pen);
	if (a.y != c->first.y)
		point(d, a, pen);
	if (b.y != a.y)
		point(d, b, pen);
	if (c->last.x != b.x || c->last.y != b.y)
		point(d, c->last, pen);
	c->index = -1;
}

static double series_x(const struct fo_draw_series *s, size_t i) { return s->x ? s->x[i] : (double)i; }

/* The path of a series; marks: only its points. */
static void trace(struct fo_str *d, const struct fo_draw_series *s, const struct fo_axis *x, const struct fo_axis *y,
		  bool marks)
{
	struct column c = { .index = -1 };
	double before = -INFINITY;
	bool pen = false, thin = s->n > 4 * (size_t)FO_PLOT_COLUMNS, gap = false;
	for (size_t i = 0; i < s->n; i++) {
		double vx = series_x(s, i), ax = fo_axis_at(x, vx), ay = fo_axis_at(y, s->y[i]);
		if (!isfinite(vx) || vx < before || isnan(ax))
			continue;
		before = vx;
		if (!isfinite(s->y[i]) || isnan(ay)) {
			gap = gap || !s->join;
			continue;
		}
		struct at p = { across(ax), down(ay) };
		int index = thin ? p.x * FO_PLOT_COLUMNS / (FO_PLOT_WIDTH + 1) : (int)i;
		if (index == c.index) {
			if (p.y > c.least.y) {
				c.least_first = false;
				c.least = p;
			} else if (p.y < c.most.y) {
				c.least_first = true;
				c.most = p;
			}
			c.last = p;
			gap = false;
			continue;
		}
		flush(d, &c, &pen);
		pen = pen && !gap && !marks;
		gap = false;
		c = (struct column){ index, p, p, p, p, true };
	}
	flush(d, &c, &pen);
}

static void draw_series(struct fo_str *out, const struct fo_draw_series *s, const struct fo_axis *x,
			const struct fo_axis *y)
{
	struct fo_str d = { 0 };
	int style = (int)((unsigned)s->style % FO_DRAW_STYLES);
	trace(&d, s, x, y, false);
	if (d.len)
		fo_str_printf(out, "<path class=\"l s%d%s\" d=\"%s\"/>\n", style, s->faint ? " faint" : "", d.data);
	if (s->marks && s->n <= MARKS && d.len) {
		d.len = 0;
		trace(&d, s, x, y, true);
		fo_str_printf(out, "<path class=\"d s%d\" d=\"%s\"/>\n", style, d.data);
	}
	fo_str_fini(&d);
}

/* Draws bands; neighbours that the picture cannot show apart become one. */
static void draw_bands(struct fo_str *out, const struct fo_draw_lines *c, const struct fo_axis *x)
{
	int end[FO_DRAW_BANDS];
	const int least = FO_PLOT_WIDTH / FO_PLOT_COLUMNS;
	for (int k = 0; k < FO_DRAW_BANDS; k++)
		end[k] = -2 * least;
	for (size_t i = 0; i < c->bands; i++) {
		const struct fo_draw_band *b = &c->band[i];
		if (!isfinite(b->from) || !isfinite(b->to) || b->to < x->lo || b->from > x->hi || b->to < b->from ||
		    b->kind < 0 || b->kind >= FO_DRAW_BANDS)
			continue;
		int from = across(fo_axis_at(x, b->from)), to = across(fo_axis_at(x, b->to));
		if (to - end[b->kind] < least)
			continue;
		from = from > end[b->kind] ? from : end[b->kind];
		end[b->kind] = to;
		fo_str_printf(out, "<path class=\"b%d\" d=\"M%d 0H%dV%dH%dz\"", b->kind, from, to, FO_PLOT_HEIGHT,
			      from);
		if (b->title)
			fo_draw_escaped(out, "><title>", b->title, "</title></path>\n");
		else
			fo_str_puts(out, "/>\n");
	}
}

static const char *level_class(const struct fo_draw_level *v) { return v->hi > v->lo ? "vb" : "vl"; }

static void draw_levels(struct fo_str *out, const struct fo_draw_lines *c, const struct fo_axis *y)
{
	for (size_t i = 0; i < c->levels; i++) {
		const struct fo_draw_level *v = &c->level[i];
		if (!isfinite(fo_axis_at(y, v->lo)) || !isfinite(fo_axis_at(y, v->hi)))
			continue;
		fo_str_printf(out, "<path class=\"%s\" d=\"M0 %dV%dH%dV%dz\"/>\n", level_class(v),
			      down(fo_axis_at(y, v->lo)), down(fo_axis_at(y, v->hi)), FO_PLOT_WIDTH,
			      down(fo_axis_at(y, v->lo)));
	}
}

static void legend(struct fo_str *out, const struct fo_draw_lines *c)
{
	static const char sample[] =
		"<li><svg viewBox=\"0 0 34 14\" aria-hidden=\"true\"><path class=\"%s\" d=\"%s\"/></svg>";
	char cls[32];
	fo_str_puts(out, "<ul class=\"legend\">");
	for (size_t i = 0; i < c->n; i++) {
		const struct fo_draw_series *s = &c->series[i];
		if (!s->name)
			continue;
		snprintf(cls, sizeof cls, "l s%d%s", (int)((unsigned)s->style % FO_DRAW_STYLES),
			 s->faint ? " faint" : "");
		fo_str_printf(out, sample, cls, s->faint ? "M2 7.5H32" : "M2 7H32"); /* sharp: whole pixels */
		fo_draw_escaped(out, "", s->name, "</li>\n");
	}
	for (int k = 0; k < FO_DRAW_BANDS; k++)
		if (c->band_name[k]) {
			snprintf(cls, sizeof cls, "b%d", k);
			fo_str_printf(out, sample, cls, k == 1 ? "M17 0V14" : "M4 1H30V13H4z");
			fo_draw_escaped(out, "", c->band_name[k], "</li>\n");
		}
	for (size_t i = 0; i < c->levels; i++)
		if (isfinite(c->level[i].lo) && isfinite(c->level[i].hi)) {
			fo_str_printf(out, sample, level_class(&c->level[i]),
				      c->level[i].hi > c->level[i].lo ? "M2 1H32V13H2z" : "M2 7H32");
			fo_draw_escaped(out, "", c->level[i].name, "</li>\n");
		}
	fo_str_puts(out, "</ul>\n");
}

/* Widens the ranges of both axes to the points that trace() draws. */
static void series_range(const struct fo_draw_series *s, const struct fo_draw_lines *c, double *x_lo, double *x_hi,
			 double *y_lo, double *y_hi)
{
	double before = -INFINITY;
	for (size_t k = 0; k < s->n; k++) {
		double x = series_x(s, k);
		if (!isfinite(x) || x < before || (c->x_log && !(x > 0)))
			continue;
		before = x;
		if (!isfinite(s->y[k]) || (c->y_log && !(s->y[k] > 0)))
			continue;
		fo_range_add(x_lo, x_hi, x);
		fo_range_add(y_lo, y_hi, s->y[k]);
	}
}

void fo_draw_lines(struct fo_str *out, const struct fo_draw_lines *c)
{
	struct fo_axis x = { .unit = FO_DRAW_NUMBER, .log = c->x_log }, y = { .unit = c->y_unit, .log = c->y_log };
	double x_lo = NAN, x_hi = NAN, y_lo = NAN, y_hi = NAN;
	for (size_t i = 0; i < c->n; i++)
		series_range(&c->series[i], c, &x_lo, &x_hi, &y_lo, &y_hi);
	fo_figure_begin(out, c->title, "lines");
	if (isnan(y_lo) || isnan(x_lo)) {
		fo_figure_empty(out);
		fo_figure_end(out);
		return;
	}
	if (!c->y_log || c->y_lo > 0)
		fo_range_add(&y_lo, &y_hi, c->y_lo);
	fo_range_add(&y_lo, &y_hi, c->y_hi);
	for (size_t i = 0; i < c->levels; i++)
		if (!c->y_log || c->level[i].lo > 0) {
			fo_range_add(&y_lo, &y_hi, c->level[i].lo);
			fo_range_add(&y_lo, &y_hi, c->level[i].hi);
		}
	fo_axis_fit(&x, x_lo, x_hi, 8, true);
	fo_axis_fit(&y, y_lo, y_hi, 5, c->y_log);
	legend(out, c);
	fo_plot_begin(out, &x, &y, c->title, c->desc, c->y_name);
	draw_levels(out, c, &y);
	draw_bands(out, c, &x);
	for (size_t i = 0; i < c->n; i++)
		draw_series(out, &c->series[i], &x, &y);
	fo_plot_end(out, &x, c->x_name);
	fo_figure_end(out);
}

/* ---- areas ---- */

static double at_least_0(double v) { return isfinite(v) && v > 0 ? v : 0; }

static double sum_at(const struct fo_draw_areas *c, size_t layers, size_t i)
{
	double sum = 0;
	for (size_t l = 0; l < layers; l++)
		sum += at_least_0(c->layer[l][i]);
	return sum;
}

/* Picks the point with the greatest sum of each column, which stands for all in it. Returns how many. */
static size_t highest(const struct fo_draw_areas *c, size_t layers, size_t *point)
{
	size_t columns = c->n < FO_PLOT_COLUMNS ? c->n : FO_PLOT_COLUMNS;
	for (size_t k = 0; k < columns; k++) {
		size_t from = c->n / columns * k + c->n % columns * k / columns;
		size_t to = c->n / columns * (k + 1) + c->n % columns * (k + 1) / columns;
		double best = -1;
		for (size_t i = from; i < to; i++) {
			double sum = sum_at(c, layers, i);
			if (sum > best) {
				best = sum;
				point[k] = i;
			}
		}
	}
	return columns;
}

void fo_draw_areas(struct fo_str *out, const struct fo_draw_areas *c)
{
	struct fo_axis x = { .unit = FO_DRAW_NUMBER }, y = { .unit = c->y_unit };
	size_t layers = c->layers < FO_DRAW_PARTS ? c->layers : FO_DRAW_PARTS, point[FO_PLOT_COLUMNS] = { 0 };
	size_t points = highest(c, layers, point);
	double top = 0, low[FO_PLOT_COLUMNS] = { 0 };
	for (size_t k = 0; k < points; k++)
		top = fmax(top, sum_at(c, layers, point[k]));
	fo_figure_begin(out, c->title, "areas");
	if (!(top > 0)) {
		fo_figure_empty(out);
		fo_figure_end(out);
		return;
	}
	fo_str_puts(out, "<ul class=\"legend\">");
	for (size_t l = layers; l-- > 0;) { /* as they lie: the uppermost first */
		fo_str_puts(out, "<li>");
		fo_draw_swatch(out, l);
		fo_draw_escaped(out, "", c->name[l], "</li>\n");
	}
	fo_str_puts(out, "</ul>\n");
	fo_axis_fit(&x, 0, (double)(c->n > 1 ? c->n - 1 : 1), 8, true);
	fo_axis_fit(&y, 0, top, 5, false);
	fo_plot_begin(out, &x, &y, c->title, c->desc, c->y_name);
	for (size_t l = 0; l < layers; l++) {
		fo_str_printf(out, "<path class=\"layer p%zu\" d=\"", l);
		for (size_t k = points; k-- > 0;) /* the lower edge back, the upper one forth */
			fo_str_printf(out, "%c%d %d", k + 1 == points ? 'M' : 'L',
				      across(fo_axis_at(&x, (double)point[k])), down(fo_axis_at(&y, low[k])));
		for (size_t k = 0; k < points; k++) {
			low[k] += at_least_0(c->layer[l][point[k]]);
			fo_str_printf(out, "L%d %d", across(fo_axis_at(&x, (double)point[k])),
				      down(fo_axis_at(&y, low[k])));
		}
		fo_draw_escaped(out, "z\"><title>", c->name[l], "</title></path>\n");
	}
	fo_plot_end(out, &x, c->x_name);
	fo_figure_end(out);
}
