/* Slots as an SVG file of its own. Sizes are in units of the view box; where the picture is shown narrow (a telephone),
 * a media query makes text larger and leaves out what then has no room. */
#include "draw/draw_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDE = 960, X0 = 86, X1 = 942, TOP = 92, FOOT = 64, LABEL = 24 };

static void put_text(struct fo_str *out, const char *cls, double x, double y, const char *s)
{
	fo_str_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", cls, x, y);
	fo_str_xml(out, s);
	fo_str_puts(out, "</text>\n");
}

struct picture {
	struct fo_str *out;
	const struct fo_draw_slots *c;
	double high; /* of a row */
};
static double across(const struct picture *p, double t)
{
	return X0 + (X1 - X0) * fmin(fmax((t - p->c->from) / (p->c->to - p->c->from), 0), 1);
}

/* Neighbours of one kind that are narrower than half a unit together become one mark without a name. */
struct run {
	double from, to;
	int kind;
	size_t slots;
};
static void put_run(const struct picture *p, double y, struct run *r)
{
	if (r->slots)
		fo_str_printf(p->out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"/>\n",
			      r->from, y, fmax(r->to - r->from, 0.2), p->high, fo_draw_part[p->c->tone[r->kind]].fill);
	r->slots = 0;
}

/* Units that a label takes in DejaVu Sans, the widest of the usual fonts; W is the one letter wider than a digit. */
static double width_of(const char *s, bool narrow)
{
	double px = 1;
	for (; *s; s++)
		px += *s == 'W' ? 12 : 7.7;
	return narrow ? 2 * px : px;
}

/* The whole label on one line, else on two, else its letter alone, else nothing; once for each width of a page. */
static void put_label(const struct picture *p, double x, double y, double w, const struct fo_draw_slot *s)
{
	const char letter[2] = { p->c->letter[s->kind], '\0' };
	char number[LABEL] = "", part[8] = "", all[2 * LABEL], first[2 * LABEL], second[LABEL];
	const char *on = fo_draw_part[p->c->tone[s->kind]].white ? " on" : "";
	if (s->number >= 0)
		snprintf(number, sizeof number, "%d", s->number);
	if (s->part >= 0)
		snprintf(part, sizeof part, "%c", s->part < 26 ? 'a' + s->part : '+');
	snprintf(all, sizeof all, "%s%s%s", letter, number, part);
	snprintf(first, sizeof first, "%s%s", letter, *part ? number : "");
	snprintf(second, sizeof second, "%s", *part ? part : number);
	for (int narrow = 0; narrow < 2; narrow++) {
		const double line = narrow ? 24 : 12, middle = y + p->high / 2 + 0.36 * line;
		char cls[32];
		snprintf(cls, sizeof cls, "l%s %s", on, narrow ? "narrow" : "wide");
		if (p->high < line + 2 || width_of(letter, narrow) > w)
			continue;
		if (width_of(all, narrow) <= w) {
			put_text(p->out, cls, x + w / 2, middle, all);
		} else if (*second && p->high >= 2 * line && width_of(first, narrow) <= w &&
			   width_of(second, narrow) <= w) {
			put_text(p->out, cls, x + w / 2, middle - line / 2, first);
			put_text(p->out, cls, x + w / 2, middle + line / 2, second);
		} else {
			put_text(p->out, cls, x + w / 2, middle, letter);
		}
	}
}

static void put_slot(const struct picture *p, double y, const struct fo_draw_slot *s)
{
	const double x = across(p, s->from), w = across(p, s->to) - x;
	char text[80], seconds[32];
	fo_str_printf(p->out,
		      "<rect class=\"s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" "
		      "stroke-width=\"%s\"><title>",
		      x, y, w, p->high, fo_draw_part[p->c->tone[s->kind]].fill, w > 4 ? "1" : "0");
	fo_str_xml(p->out, p->c->kind_name[s->kind]);
	if (s->number >= 0)
		fo_str_printf(p->out, " %d", s->number);
	if (s->part >= 0)
		fo_str_printf(p->out, ", chunk %d", s->part);
	snprintf(text, sizeof text, ", %s", fo_draw_number(seconds, s->to - s->from, FO_DRAW_SECONDS));
	fo_str_xml(p->out, p->c->turns ? "" : text);
	fo_str_puts(p->out, "</title></rect>\n");
	put_label(p, x, y, w, s);
}

/* "stage 3"; on a telephone "3". */
static void put_name(const struct picture *p, double y, const char *name)
{
	const char *last = strrchr(name, ' ');
	put_text(p->out, "end soft wide", X0 - 8, y + p->high / 2 + 5, name);
	put_text(p->out, "end soft narrow", X0 - 8, y + p->high / 2 + 9, last ? last + 1 : name);
}

static void put_row(const struct picture *p, double y, const struct fo_draw_slot_row *r)
{
	struct run run = { 0 };
	fo_str_printf(p->out, "<rect class=\"lane\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"/>\n", X0, y,
		      X1 - X0, p->high);
	for (size_t i = 0; i < r->slots; i++) {
		const struct fo_draw_slot *s = &r->slot[i];
		const double a = across(p, s->from), b = across(p, s->to);
		if (!(s->to > p->c->from) || !(s->from < p->c->to))
			continue;
		if (b - a >= 0.5) {
			put_run(p, y, &run);
			put_slot(p, y, s);
			continue;
		}
		if (run.slots && (run.kind != s->kind || a - run.to > 0.2) && b - run.from > 0.5)
			put_run(p, y, &run);
		if (!run.slots)
			run = (struct run){ .from = a, .kind = s->kind };
		run.to = b;
		run.slots++;
	}
	put_run(p, y, &run);
}

static void put_swatch(const struct picture *p, const char *cls, double x, double y, int size, size_t kind,
		       const char *text)
{
	fo_str_printf(p->out, "<g class=\"%s\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n",
		      cls, x, y, size, size, fo_draw_part[p->c->tone[kind]].fill);
	put_text(p->out, "", x + size + 7, y + 0.85 * size, text);
	fo_str_puts(p->out, "</g>\n");
}

static void put_legend(const struct picture *p, double y)
{
	bool used[FO_DRAW_SLOT_KINDS] = { false };
	double x = X0, narrow = X0;
	for (size_t i = 0; i < p->c->rows; i++)
		for (size_t k = 0; k < p->c->row[i].slots; k++)
			used[p->c->row[i].slot[k].kind] = true;
	for (size_t k = 0; k < p->c->kinds; k++) {
		if (!used[k])
			continue;
		char text[64];
		snprintf(text, sizeof text, "%c %s", p->c->letter[k], p->c->kind_name[k]);
		put_swatch(p, "wide", x, y, 16, k, text);
		x += 44 + 8.2 * (double)strlen(text);
		text[1] = '\0';
		put_swatch(p, "narrow", narrow, y - 8, 26, k, text);
		narrow += 88;
	}
}

void fo_draw_slots_svg(struct fo_str *out, const struct fo_draw_slots *c)
{
	const size_t rows = c->rows < FO_DRAW_SLOT_ROWS ? c->rows : FO_DRAW_SLOT_ROWS;
	const char *title = c->title ? c->title : "";
	const char *desc = c->desc ? c->desc : "";
	struct picture p = { out, c, rows <= 16 ? 30 : fmax(8, 480.0 / (double)rows) };
	const double gap = p.high > 14 ? 6 : 2, bottom = TOP + (double)rows * (p.high + gap);
	fo_str_printf(out,
		      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" role=\"img\" "
		      "aria-labelledby=\"t d\">\n<title id=\"t\">",
		      WIDE, bottom + FOOT);
	fo_str_xml(out, title);
	fo_str_puts(out, "</title>\n<desc id=\"d\">");
	fo_str_xml(out, desc);
	fo_str_puts(out, "</desc>\n");
	fo_str_puts(out, fo_draw_file_style);
	fo_str_puts(out, "@media (max-width:640px){text{font-size:27px}.title{font-size:29px}.l{font-size:24px}"
			 ".wide{display:none}.narrow{display:inline}}\n</style>\n");
	fo_str_printf(out, "<rect class=\"ground\" width=\"%d\" height=\"%.0f\"/>\n", WIDE, bottom + FOOT);
	put_text(out, "title", 18, 36, title);
	put_text(out, "soft wide", 18, 64, desc);
	for (size_t i = 0; i < rows && c->to > c->from; i++) {
		const size_t at = rows == c->rows || i < rows / 2 ? i : c->rows - (rows - i);
		const double y = TOP + (double)i * (p.high + gap);
		const size_t every = rows <= 16 ? 1 : (rows + 15) / 16; /* names that have room */
		if (i % every == 0)
			put_name(&p, y, c->row[at].name);
		put_row(&p, y, &c->row[at]);
	}
	put_legend(&p, bottom + 14);
	if (rows < c->rows) {
		char text[80];
		snprintf(text, sizeof text, "the first and the last %zu of %zu rows", rows / 2, c->rows);
		put_text(out, "soft end", X1, bottom + 54, text);
	}
	fo_str_puts(out, "</svg>\n");
}
