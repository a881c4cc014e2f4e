/* The roofline as SVG. Sizes are in units of the view box; where the picture is shown narrow (a telephone), a media
 * query makes text and marks larger and leaves out what then has no room. */
#include "report/roofline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDE = 960, HIGH = 660, X0 = 92, X1 = 922, Y0 = 108, Y1 = 540 };

static double across(const struct fo_roofline *r, double x)
{
	return X0 + (X1 - X0) * log(x / r->x0) / log(r->x1 / r->x0);
}
static double down(const struct fo_roofline *r, double y)
{
	return Y1 - (Y1 - Y0) * log(y / r->y0) / log(r->y1 / r->y0);
}

/* Blue, vermilion and green of Okabe and Ito's palette, which colour-blind readers tell apart; lighter on dark ground.
 * Viewers that know no variables (librsvg) drop those declarations and keep the plain ones before them. */
static const char style[] =
	"<style>\n"
	":root{--ground:#fff;--ink:#1b1f24;--soft:#5b6570;--grid:#e4e7eb;--roof:#3d4650;--p:#0072b2;--a:#d55e00;--e:#"
	"008a63}\n"
	"@media (prefers-color-scheme:dark){:root{--ground:#14181d;--ink:#e8ebef;--soft:#a3adb8;--grid:#2a3139;"
	"--roof:#c3cad2;--p:#56b4e9;--a:#ff9a4d;--e:#3ecf9f}}\n"
	"text{font:15px system-ui,sans-serif;fill:#1b1f24;fill:var(--ink)}.ground{fill:#fff;fill:var(--ground)}\n"
	".title{font-size:21px;font-weight:600}.soft{fill:#5b6570;fill:var(--soft)}.grid{stroke:#e4e7eb;stroke:var(--"
	"grid)}\n"
	".roof{stroke:#3d4650;stroke:var(--roof);stroke-width:2.5;fill:none}.end{text-anchor:end}.mid{text-anchor:"
	"middle}\n"
	".p{--c:var(--p);stroke:#0072b2}.a{--c:var(--a);stroke:#d55e00}.e{--c:var(--e);stroke:#008a63}\n"
	".p.h{fill:#0072b2}.a.h{fill:#d55e00}.e.h{fill:#008a63}\n"
	".m{stroke:var(--c);stroke-width:1.8;fill:#fff;fill:var(--ground);fill-opacity:.75}\n"
	".m.h{fill:var(--c);fill-opacity:.55}\n"
	".narrow{display:none}\n"
	"@media "
	"(max-width:640px){text{font-size:28px}.title{font-size:30px}.tick{transform:translateY(9px)}.wide{display:"
	"none}.narrow{display:inline}"
	".m{stroke-width:3}.roof{stroke-width:4}}\n"
	"</style>\n";

/* Circle, diamond, triangle: told apart without colour as well. */
static void mark(struct fo_str *out, int kind, bool half, double x, double y)
{
	const char *h = half ? " h" : "";
	if (kind == FO_ROOFLINE_PRODUCT)
		fo_str_printf(out, "<circle class=\"m p%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"", h, x, y);
	else if (kind == FO_ROOFLINE_ATTENTION)
		fo_str_printf(out, "<path class=\"m a%s\" d=\"M%.1f %.1fl6.5 6.5l-6.5 6.5l-6.5 -6.5z\"", h, x, y - 6.5);
	else
		fo_str_printf(out, "<path class=\"m e%s\" d=\"M%.1f %.1fl6 10.4h-12z\"", h, x, y - 6.6);
}

static void text(struct fo_str *out, const char *cls, double x, double y, const char *s)
{
	fo_str_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", cls, x, y);
	fo_str_xml(out, s);
	fo_str_puts(out, "</text>\n");
}

static void axes(const struct fo_roofline *r, struct fo_str *out)
{
	char label[40];
	int n = 0;
	for (double x = exp2(ceil(log2(r->x0))); x <= r->x1; x *= 4, n++) {
		double at = across(r, x);
		fo_str_printf(out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n", at, Y0, Y1);
		snprintf(label, sizeof label, x < 1 ? "1/%.0f" : "%.0f", fmax(x, 1 / x));
		text(out, n % 2 ? "soft mid wide" : "soft mid tick", at, Y1 + 26, label);
	}
	for (double y = pow(10, ceil(log10(r->y0) - 1e-9)); y <= r->y1; y *= 10) {
		static const char *const prefix[] = { "", "k", "M", "G", "T", "P", "E" };
		int i = (int)fmin(fmax(floor(lround(log10(y)) / 3.0), 0), 6);
		double at = down(r, y);
		fo_str_printf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", X0, at, X1);
		snprintf(label, sizeof label, "%g %s", y / pow(1000, i), prefix[i]);
		text(out, "soft end", X0 - 10, at + 6, label);
	}
	text(out, "soft", X0 - 74, Y0 - 12, "FLOP/s");
	text(out, "soft end tick", X1, Y1 + 54, "FLOP per byte moved");
}

static void ceilings(const struct fo_roofline *r, struct fo_str *out)
{
	char label[160], si[32];
	bool two = r->peak[0] > 0 && r->peak[1] > 0 && fabs(r->peak[0] / r->peak[1] - 1) > 0.02;
	double top = fmax(r->peak[0], r->peak[1]), bw = r->memory_byte_s;
	for (int d = 0; d < 2; d++) {
		double peak = r->peak[d];
		if (!(peak > 0) || (!two && (peak < top || (d && r->peak[0] == top))))
			continue;
		double from = bw > 0 ? fmin(fmax(peak / bw, r->x0), r->x1) : r->x0;
		fo_str_printf(out, "<path class=\"roof\" d=\"M%.1f %.1fH%d\"/>\n", across(r, from), down(r, peak), X1);
		static const char *const name[] = { "f32", "bf16" };
		snprintf(label, sizeof label, "%s %s", two ? name[d] : "peak", fo_str_si(si, peak, "FLOP/s"));
		fo_str_printf(out, "<text class=\"end\" x=\"%d\" y=\"%.1f\">%s", X1, down(r, peak) - 9,
			      r->unsure ? "<tspan class=\"wide\">busy machine,</tspan> may be low: " : "");
		fo_str_xml(out, label);
		fo_str_puts(out, "</text>\n");
	}
	if (bw > 0) {
		double low = fmax(r->x0, r->y0 / bw), high = fmin(r->x1, top / bw);
		double xa = across(r, low), ya = down(r, bw * low), xb = across(r, high), yb = down(r, bw * high);
		if (high <= low)
			return;
		fo_str_printf(out, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", xa, ya, xb, yb);
		snprintf(label, sizeof label, "memory %s (%s)", fo_str_si(si, bw, "B/s"), r->memory_kind);
		/* Along the slope, above its upper half. */
		fo_str_printf(out, "<text class=\"wide mid\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">",
			      (xa + xb) / 2 - 8, (ya + yb) / 2 - 10, atan2(yb - ya, xb - xa) * 57.29577951308232);
		fo_str_xml(out, label);
		fo_str_puts(out, "</text>\n");
	}
}

static void points(const struct fo_roofline *r, struct fo_str *out)
{
	for (int kind = FO_ROOFLINE_KINDS - 1; kind >= 0; kind--) /* matmuls on top */
		for (size_t i = 0; i < r->n; i++) {
			const struct fo_roofline_point *p = &r->point[i];
			char tip[256], si[32];
			int at;
			if (p->kind != kind || p->flop_byte > r->x1 || p->flop_s < r->y0)
				continue;
			mark(out, kind, p->half, across(r, p->flop_byte), down(r, p->flop_s));
			at = snprintf(tip, sizeof tip, "%s %s %s", p->row->kind, p->row->variant, p->row->dtype);
			for (int k = 0; k < FO_LIMITS_DIMS && p->row->dim[k]; k++)
				at += snprintf(tip + at, sizeof tip - (size_t)at, "%s%lld", k ? " x " : ", ",
					       (long long)p->row->dim[k]);
			snprintf(tip + at, sizeof tip - (size_t)at, ": %s",
				 kind == FO_ROOFLINE_OPERATION ? fo_str_si(si, p->flop_s / FO_ROOFLINE_MEMORY, "B/s")
							       : fo_str_si(si, p->flop_s, "FLOP/s"));
			fo_str_puts(out, "><title>");
			fo_str_xml(out, tip);
			fo_str_printf(out, "</title></%s>\n", kind == FO_ROOFLINE_PRODUCT ? "circle" : "path");
		}
}

static void legend(struct fo_str *out)
{
	static const char *const name[] = { "matmuls", "attention", "memory-bound (by bytes/s)" };
	static const char *const brief[] = { "matmuls", "attention", "by bytes/s" };
	static const double wide_x[] = { 0, 168, 290 }, narrow_x[] = { 0, 190, 380 };
	for (int narrow = 0; narrow < 2; narrow++) {
		fo_str_printf(out, "<g class=\"%s\">\n", narrow ? "narrow" : "wide");
		for (int k = 0; k < FO_ROOFLINE_KINDS; k++) {
			double x = X0 + (narrow ? narrow_x : wide_x)[k];
			mark(out, k, true, x + 8, HIGH - 38);
			fo_str_puts(out, "/>\n");
			text(out, "", x + 22, HIGH - 32, (narrow ? brief : name)[k]);
		}
		double x = X0 + (narrow ? 590 : 640);
		mark(out, FO_ROOFLINE_PRODUCT, true, x + 8, HIGH - 38);
		fo_str_puts(out, "/>\n");
		text(out, "", x + 22, HIGH - 32, "bf16");
		mark(out, FO_ROOFLINE_PRODUCT, false, x + (narrow ? 122 : 88), HIGH - 38);
		fo_str_puts(out, "/>\n");
		text(out, "", x + (narrow ? 136 : 102), HIGH - 32, "f32");
		fo_str_puts(out, "</g>\n");
	}
	text(out, "soft wide", X0, HIGH - 6,
	     "Medians of quiet spans where there are enough, else of all. A ceiling is what the machine was seen to "
	     "reach.");
}

void fo_roofline_svg(const struct fo_roofline *r, struct fo_str *out)
{
	char line[256];
	fo_str_printf(out,
		      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
		      "aria-labelledby=\"t d\">\n<title id=\"t\">Roofline of ",
		      WIDE, HIGH);
	fo_str_xml(out, r->m->cpu);
	fo_str_puts(out, "</title>\n<desc id=\"d\">Measured rates of matmuls, attention and memory-bound operations "
			 "below the register-only peak and the memory's slope, both axes logarithmic.</desc>\n");
	fo_str_puts(out, style);
	fo_str_printf(out, "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n", WIDE, HIGH);
	snprintf(line, sizeof line, "%.56s, %d thread%s", r->m->cpu, r->threads, fo_plural(r->threads));
	text(out, "title", 18, 36, line);
	snprintf(line, sizeof line, "kernels up to %s, calibrated %.10s", r->m->isa, r->m->date);
	text(out, "soft", 18, 66, line);
	axes(r, out);
	ceilings(r, out);
	points(r, out);
	legend(out);
	fo_str_puts(out, "</svg>\n");
}
