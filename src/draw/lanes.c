/* Timelines: lanes of spans on one axis of time, with a marked stretch and arrows over all of them. */
#include "draw/draw_int.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROW = 22,                               /* px of a row of spans; the style sheet's labels are 20 high */
	NAME = 24,                              /* px that a lane's name takes, with the room above it */
	HEAD = 20,                              /* px above the first lane, for the name of the mark */
	NAME_LETTERS = 42,                      /* that fit beside each other on a telephone */
	FINE = FO_PLOT_WIDTH / FO_PLOT_COLUMNS, /* narrower than this is less than a pixel */
};
/* Pixels of the narrowest lane of either layout. */
static const double wide_px = 1040, narrow_px = 320, padding_px = 8;

/* A mark being put together from neighbours. */
struct mark {
	int from, to, tone;
	size_t spans;
	const char *name;
	double seconds;
};
struct row {
	double end;      /* of its last span */
	struct mark run; /* spans 0: none */
};
struct lane {
	struct row row[FO_DRAW_LANE_ROWS];
	int rows, top; /* top: of the first row, px from the top of the picture */
	struct fo_str marks, labels;
};
struct picture {
	struct fo_str *out;
	const struct fo_draw_lanes *c;
	struct fo_axis axis; /* begins at 0 */
	struct lane *lane;
	bool tone[FO_DRAW_PARTS]; /* drawn */
};

static double share_of(const struct picture *p, double t) { return fo_axis_at(&p->axis, t - p->c->from); }
static int across(const struct picture *p, double t) { return fo_axis_across(&p->axis, t - p->c->from); }

static void put_mark(struct lane *l, int r, const struct mark *m)
{
	char text[32];
	int width = m->to - m->from;
	const char *cls = width < 4 * FINE ? " fine" : ""; /* an outline would hide what is as narrow as it */
	if (!m->spans)
		return;
	width = width < FINE / 2 ? FINE / 2 : width;
	fo_str_printf(&l->marks, "<rect class=\"part p%d%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"><title>",
		      m->tone, cls, m->from, r * ROW + 1, width, ROW - 2);
	if (m->spans == 1)
		fo_draw_escaped(&l->marks, "", m->name, ", ");
	else
		fo_str_printf(&l->marks, "%zu short ones, together ", m->spans);
	fo_draw_escaped(&l->marks, "", fo_draw_number(text, m->seconds, FO_DRAW_SECONDS), "</title></rect>\n");
}

/* Pixels of a letter at 12 px in the widest of the usual fonts (DejaVu Sans), rounded up; what is not ASCII counts as a
 * capital. */
static double letter_px(const char *s)
{
	if (strchr("mwMW@%", *s))
		return 12;
	if (strchr("ijlftrI.,:;'|!()[]- ", *s))
		return 6;
	if (strchr("acesxzvyk", *s))
		return 7.6;
	return (*s >= 'b' && *s <= 'z') || (*s >= '0' && *s <= '9') || *s == '_' ? 8 : 10.2;
}

/* Writes as much of the name as the pixels hold, with dots where that is not all; less than two letters say nothing. */
static void put_label(struct lane *l, int r, const struct mark *m, const char *cls, double px)
{
	const double dots = 12;
	double share = (double)(m->to - m->from) / FO_PLOT_WIDTH, left = share * px - padding_px;
	char text[256];
	const char *s = m->name ? m->name : "";
	size_t at = 0, fits = 0, n = 0; /* fits: with dots after it */
	for (; s[at] && at < sizeof text - 8; n++) {
		size_t bytes = fo_utf8_decode(s + at, strlen(s + at), NULL);
		left -= letter_px(s + at);
		if (left < 0)
			break;
		at += bytes ? bytes : 1;
		fits = left >= dots ? at : fits;
	}
	at = s[at] ? fits : at;
	if (!at || (s[at] && n < 3))
		return;
	snprintf(text, sizeof text, "%.*s%s", (int)at, s, s[at] ? "…" : "");
	fo_str_printf(&l->labels,
		      "<b class=\"p%d %s\" style=\"left:%.3f%%;width:%.3f%%;top:%dpx\" aria-hidden=\"true\">", m->tone,
		      cls, 100.0 * m->from / FO_PLOT_WIDTH, 100 * share, r * ROW + 1);
	fo_draw_escaped(&l->labels, "", text, "</b>\n");
}

static void flush(struct lane *l, int r)
{
	put_mark(l, r, &l->row[r].run);
	l->row[r].run.spans = 0;
}

static void add_span(struct picture *p, struct lane *l, const struct fo_draw_span *s)
{
	int r = 0, tone = ((s->tone % FO_DRAW_PARTS) + FO_DRAW_PARTS) % FO_DRAW_PARTS;
	if (!(s->to > p->c->from && s->from < p->c->to) || !(s->to >= s->from))
		return;
	while (r < FO_DRAW_LANE_ROWS && r < l->rows && s->from < l->row[r].end)
		r++;
	if (r == FO_DRAW_LANE_ROWS)
		return;
	l->rows = r >= l->rows ? r + 1 : l->rows;
	struct row *w = &l->row[r];
	struct mark m = { across(p, s->from), across(p, s->to), tone, 1, s->name, s->to - s->from };
	w->end = s->to;
	p->tone[tone] = true;
	if (m.to - m.from >= FINE) {
		flush(l, r);
		put_mark(l, r, &m);
		put_label(l, r, &m, "wide", wide_px);
		put_label(l, r, &m, "narrow", narrow_px);
		return;
	}
	/* A pixel shows one tone; whatever else lies in it is counted with its neighbours. */
	if (w->run.spans && (m.from - w->run.from < FINE || (tone == w->run.tone && m.from - w->run.to < FINE))) {
		w->run.to = m.to > w->run.to ? m.to : w->run.to;
		w->run.spans++;
		w->run.seconds += m.seconds;
		return;
	}
	flush(l, r);
	w->run = m;
}

static void legend(struct picture *p)
{
	fo_str_puts(p->out, "<ul class=\"legend\">");
	for (size_t i = 0; i < FO_DRAW_PARTS; i++)
		if (p->tone[i] && p->c->tone_name[i]) {
			fo_str_puts(p->out, "<li>");
			fo_draw_swatch(p->out, i);
			fo_draw_escaped(p->out, "", p->c->tone_name[i], "</li>\n");
		}
	fo_str_puts(p->out, "</ul>\n");
}

/* Draws the stretch over all lanes, and the arrows from one lane to another. */
static void overlay(struct picture *p, int height)
{
	const struct fo_draw_mark *m = p->c->mark;
	fo_str_printf(
		p->out,
		"<div class=\"over\"><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
		FO_PLOT_WIDTH, height);
	if (m && m->to >= m->from)
		fo_str_printf(p->out, "<path class=\"gap\" d=\"M%d %dH%dV%dH%dz\"/>", across(p, m->from), HEAD,
			      across(p, m->to), height, across(p, m->from));
	for (size_t i = 0; i < p->c->arrows; i++) {
		const struct fo_draw_arrow *a = &p->c->arrow[i];
		if (a->from_lane >= p->c->lanes || a->to_lane >= p->c->lanes || !isfinite(share_of(p, a->from)) ||
		    !isfinite(share_of(p, a->to)))
			continue;
		const struct lane *l = &p->lane[a->from_lane], *to = &p->lane[a->to_lane];
		/* The arrow goes from the edge of one lane to the facing edge of the other, and has its head there. */
		int x = across(p, a->to), from = l->top, y = to->top + to->rows * ROW, head = 7;
		if (to->top > l->top) {
			from = l->top + l->rows * ROW;
			y = to->top;
			head = -7;
		}
		fo_str_printf(p->out, "<path class=\"arrow\" d=\"M%d %dL%d %dM%d %dL%d %dL%d %d\"/>",
			      across(p, a->from), from, x, y, x - 4 * FINE, y + head, x, y, x + 4 * FINE, y + head);
	}
	fo_str_puts(p->out, "</svg></div>\n");
	if (!m || !(m->to >= m->from))
		return;
	double from = share_of(p, m->from), to = share_of(p, m->to);
	if (from < 0.5)
		fo_str_printf(p->out, "<div class=\"mn\" style=\"left:%.2f%%\">", 100 * from);
	else
		fo_str_printf(p->out, "<div class=\"mn\" style=\"right:%.2f%%\">", 100 * (1 - to));
	fo_draw_escaped(p->out, "", m->name, "</div>\n");
}

static void put_lane(struct picture *p, const struct fo_draw_lane *from, struct lane *l)
{
	const char *name = from->name ? from->name : "";
	char text[256];
	size_t at = 0, n = 0;
	for (; name[at] && n < NAME_LETTERS && at < sizeof text - 8; n++) {
		size_t bytes = fo_utf8_decode(name + at, strlen(name + at), NULL);
		at += bytes ? bytes : 1;
	}
	snprintf(text, sizeof text, "%.*s%s", (int)at, name, name[at] ? "…" : "");
	fo_draw_escaped(p->out, "<div class=\"ln\" title=\"", name, "\">");
	fo_draw_escaped(p->out, "", text, "</div>\n");
	fo_str_printf(p->out, "<div class=\"lane\" style=\"height:%dpx\">", l->rows * ROW);
	fo_svg_begin(p->out, *name ? name : "lane", NULL, FO_PLOT_WIDTH, l->rows * ROW);
	fo_str_puts(p->out, l->marks.data ? l->marks.data : "");
	fo_str_puts(p->out, "</svg>");
	fo_str_puts(p->out, l->labels.data ? l->labels.data : "");
	fo_str_puts(p->out, "</div>\n");
}

void fo_draw_lanes(struct fo_str *out, const struct fo_draw_lanes *given)
{
	struct fo_draw_lanes c = *given;
	struct picture p = { .out = out, .c = &c, .axis = { .unit = FO_DRAW_SECONDS } };
	int height = HEAD;
	c.lanes = c.lanes < FO_DRAW_LANES ? c.lanes : FO_DRAW_LANES;
	fo_figure_begin(out, c.title, "timeline");
	if (!c.lanes || !(c.to > c.from) || !isfinite(c.to - c.from)) {
		fo_figure_empty(out);
		fo_figure_end(out);
		return;
	}
	fo_axis_fit(&p.axis, 0, c.to - c.from, 6, true);
	p.lane = fo_xmalloc(c.lanes * sizeof *p.lane);
	for (size_t k = 0; k < c.lanes; k++) {
		struct lane *l = &p.lane[k];
		l->rows = 1;
		for (int r = 0; r < FO_DRAW_LANE_ROWS; r++)
			l->row[r].end = -INFINITY;
		for (size_t i = 0; i < c.lane[k].spans; i++)
			add_span(&p, l, &c.lane[k].span[i]);
		for (int r = 0; r < l->rows; r++)
			flush(l, r);
		l->top = height + NAME;
		height = l->top + l->rows * ROW;
	}
	legend(&p);
	fo_str_puts(out, "<div class=\"lanes\">\n");
	for (size_t k = 0; k < c.lanes; k++)
		put_lane(&p, &c.lane[k], &p.lane[k]);
	overlay(&p, height);
	fo_str_puts(out, "</div><div class=\"lanes axis\">");
	fo_axis_labels(out, &p.axis);
	fo_str_puts(out, "</div>\n");
	fo_draw_remark(out, c.desc);
	fo_figure_end(out);
	for (size_t k = 0; k < c.lanes; k++) {
		fo_str_fini(&p.lane[k].marks);
		fo_str_fini(&p.lane[k].labels);
	}
	free(p.lane);
}
