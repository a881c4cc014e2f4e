/* Lanes as one SVG file of its own, for documents that take no page. */
#include "draw/draw_int.h"

#include <math.h>
#include <string.h>

enum {
	WIDE = 1200,
	LEFT = 110,
	RIGHT = 20,
	HEAD_HIGH = 84,
	LANE_HIGH = 22,
	LANE_GAP = 4,
	FOOT_HIGH = 40,
	LEGEND_HIGH = 22
};
#define FINEST 0.35 /* units of the view box; what is narrower shares a mark with its neighbour */

static double across(const struct fo_draw_lanes *c, double t)
{
	double share = (t - c->from) / (c->to - c->from);
	return LEFT + (WIDE - LEFT - RIGHT) * fmin(1, fmax(0, share));
}

static int tone_of(const struct fo_draw_span *s) { return ((s->tone % FO_DRAW_PARTS) + FO_DRAW_PARTS) % FO_DRAW_PARTS; }

static void put_rect(struct fo_str *out, double x, double to, int y, int tone, const char *name)
{
	fo_str_printf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>", x, y,
		      fmax(FINEST, to - x), LANE_HIGH, fo_draw_part[tone].fill);
	fo_str_xml(out, name ? name : "");
	fo_str_puts(out, "</title></rect>\n");
}

static void put_lane(struct fo_str *out, const struct fo_draw_lanes *c, size_t k, int y, bool *seen)
{
	const struct fo_draw_lane *l = &c->lane[k];
	double x = 0, to = -1;
	int tone = 0;
	const char *name = NULL;
	fo_str_printf(out, "<text class=\"end\" x=\"%d\" y=\"%d\">", LEFT - 8, y + 16);
	fo_str_xml(out, l->name ? l->name : "");
	fo_str_puts(out, "</text>\n");
	for (size_t i = 0; i < l->spans; i++) {
		const struct fo_draw_span *s = &l->span[i];
		if (!(s->to > c->from && s->from < c->to) || !(s->to >= s->from))
			continue;
		double a = across(c, s->from), b = across(c, s->to);
		seen[tone_of(s)] = true;
		if (to >= 0 && tone == tone_of(s) && a - to < FINEST && b - x < 2 * FINEST) {
			to = b;
			continue;
		}
		if (to >= 0)
			put_rect(out, x, to, y, tone, name);
		x = a;
		to = b;
		tone = tone_of(s);
		name = s->name;
	}
	if (to >= 0)
		put_rect(out, x, to, y, tone, name);
}

static void put_axis(struct fo_str *out, const struct fo_draw_lanes *c, int top, int bottom)
{
	struct fo_axis a = { .unit = FO_DRAW_SECONDS };
	char label[32];
	fo_axis_fit(&a, 0, c->to - c->from, 6, true);
	for (int i = 0; i < a.ticks; i++) {
		double x = across(c, c->from + a.tick[i]);
		fo_str_printf(
			out,
			"<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"mid\" x=\"%.1f\" y=\"%d\">%s</text>\n",
			x, top, bottom, x, bottom + 18, fo_axis_label(&a, a.tick[i], label));
	}
}

static void put_legend(struct fo_str *out, const struct fo_draw_lanes *c, const bool *seen, int y)
{
	double x = LEFT;
	for (int i = 0; i < FO_DRAW_PARTS; i++) {
		if (!seen[i] || !c->tone_name[i])
			continue;
		fo_str_printf(
			out,
			"<rect x=\"%.0f\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%.0f\" y=\"%d\">",
			x, y - 11, fo_draw_part[i].fill, x + 17, y);
		fo_str_xml(out, c->tone_name[i]);
		fo_str_puts(out, "</text>\n");
		x += 34 + 8.2 * (double)strlen(c->tone_name[i]);
	}
}

void fo_draw_lanes_svg(struct fo_str *out, const struct fo_draw_lanes *c)
{
	size_t lanes = c->lanes < FO_DRAW_LANES ? c->lanes : FO_DRAW_LANES;
	bool seen[FO_DRAW_PARTS] = { false };
	int bottom = HEAD_HIGH + (int)lanes * (LANE_HIGH + LANE_GAP), high = bottom + FOOT_HIGH;
	fo_str_printf(out,
		      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
		      "aria-labelledby=\"t d\">\n<title id=\"t\">Timeline of ",
		      WIDE, high);
	fo_str_xml(out, c->title ? c->title : "a step");
	fo_str_puts(out, "</title>\n<desc id=\"d\">");
	fo_str_xml(out, c->desc ? c->desc : "");
	fo_str_puts(out, "</desc>\n");
	fo_str_puts(out, fo_draw_file_style);
	fo_str_puts(out, "</style>\n");
	fo_str_printf(out,
		      "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n<text class=\"title\" x=\"%d\" y=\"28\">",
		      WIDE, high, LEFT);
	fo_str_xml(out, c->title ? c->title : "a step");
	fo_str_puts(out, "</text>\n");
	if (c->to > c->from && isfinite(c->to - c->from)) {
		put_axis(out, c, HEAD_HIGH - 6, bottom);
		for (size_t k = 0; k < lanes; k++)
			put_lane(out, c, k, HEAD_HIGH + (int)k * (LANE_HIGH + LANE_GAP), seen);
		put_legend(out, c, seen, 28 + LEGEND_HIGH);
	}
	fo_str_puts(out, "</svg>\n");
}
