#include "report/roofline.h"
#include "base/mem.h"
#include "cost/links.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No kernel comes near (a matmul of 4096 x 4096 in bf16 has 1365), and what a file claims must not stretch the picture
 * out of shape. */
#define INTENSITY_MOST 1e5

bool fo_roofline_is_product(const struct fo_limits_row *r)
{
	return !strcmp(r->kind, "matmul") || !strncmp(r->kind, "attention", 9);
}

bool fo_roofline_is_traffic(const struct fo_limits_row *r)
{
	return !strcmp(r->kind, "read") || !strcmp(r->kind, "write") || !strcmp(r->kind, "copy");
}

static void add_point(struct fo_roofline *r, const struct fo_limits_row *row)
{
	double s = fo_limits_row_seconds(row);
	struct fo_roofline_point p = { .row = row, .half = !strcmp(row->dtype, "bf16") };
	if (row->threads != r->threads || !(row->bytes > 0) || fo_roofline_is_traffic(row) || fo_link_is_row(row))
		return;
	if (!fo_roofline_is_product(row)) {
		p.kind = FO_ROOFLINE_OPERATION;
		p.flop_byte = FO_ROOFLINE_MEMORY;
		p.flop_s = FO_ROOFLINE_MEMORY * row->bytes / s;
	} else if (row->flop > 0) {
		p.kind = row->kind[0] == 'm' ? FO_ROOFLINE_PRODUCT : FO_ROOFLINE_ATTENTION;
		p.flop_byte = row->flop / row->bytes;
		p.flop_s = row->flop / s;
	} else {
		return;
	}
	fo_array_room(&r->point, &r->cap, r->n, sizeof *r->point);
	r->point[r->n++] = p;
}

static void memory_of(struct fo_roofline *r)
{
	static const char *const kind[] = { "read", "write", "copy" };
	for (int i = 0; i < 3; i++) {
		double rate = fo_limits_memory(r->m, kind[i], r->threads);
		if (rate > r->memory_byte_s) {
			r->memory_byte_s = rate;
			r->memory_kind = kind[i];
		}
	}
}

fo_status fo_roofline_init(struct fo_roofline *r, const struct fo_limits *m)
{
	*r = (struct fo_roofline){ .m = m };
	for (size_t i = 0; i < m->rows; i++)
		if (fo_roofline_is_product(&m->row[i]) && m->row[i].threads > r->threads)
			r->threads = m->row[i].threads;
	const char *const dtype[] = { "f32", "bf16" };
	for (int d = 0; d < 2; d++) {
		const struct fo_limits_peak *p = fo_limits_peak(m, dtype[d], r->threads);
		r->peak[d] = p ? p->best_flop_s : 0;
		r->unsure |= p && !fo_limits_peak_sure(p);
	}
	double top = fmax(r->peak[0], r->peak[1]);
	if (!r->threads || !(top > 0))
		return fo_hint(fo_fail(FO_EARG, "the profile of '%s' has no %s: there is nothing to draw", m->cpu,
				       r->threads ? "peak" : "measured matmuls"),
			       "'flatout calibrate' measures this machine");
	memory_of(r);
	for (size_t i = 0; i < m->rows; i++)
		add_point(r, &m->row[i]);
	/* The picture ends at the peak, not at the best kernel; below, a little under the slowest. */
	double low = top / 100, right = 64;
	for (size_t i = 0; i < r->n; i++) {
		low = fmin(low, r->point[i].flop_s);
		right = fmax(right, fmin(r->point[i].flop_byte, INTENSITY_MOST));
	}
	r->x0 = FO_ROOFLINE_MEMORY / 2;
	r->x1 = exp2(ceil(log2(right) + 0.5));
	r->y0 = low / 1.6;
	r->y1 = top * 1.5;
	return FO_OK;
}

void fo_roofline_fini(struct fo_roofline *r)
{
	free(r->point);
	*r = (struct fo_roofline){ 0 };
}

/* ---- the terminal ---- */

enum { LEFT = 11, WIDE = 67, HIGH = 20 };
enum cell { EMPTY, SLOPE, PEAK, PRODUCT, ATTENTION, OPERATION, CELLS };
static const struct {
	const char *letter, *symbol, *colour;
} glyph[CELLS] = {
	[EMPTY] = { " ", " ", "" },
	[SLOPE] = { "/", "\xe2\x95\xb1", "\033[90m" },     /* U+2571 */
	[PEAK] = { "-", "\xe2\x94\x80", "\033[90m" },      /* U+2500 */
	[PRODUCT] = { "m", "\xe2\x97\x8f", "\033[34m" },   /* U+25CF */
	[ATTENTION] = { "a", "\xe2\x97\x86", "\033[33m" }, /* U+25C6 */
	[OPERATION] = { "e", "\xe2\x96\xb2", "\033[32m" }, /* U+25B2 */
};

static double along(double v, double lo, double hi) { return log(v / lo) / log(hi / lo); }

/* Row 0 is the top one. -1 outside. */
static int column_of(const struct fo_roofline *r, double x)
{
	double c = floor(along(x, r->x0, r->x1) * WIDE);
	return c >= 0 && c < WIDE ? (int)c : -1;
}
static int line_of(const struct fo_roofline *r, double y)
{
	double l = HIGH - 1 - floor(along(y, r->y0, r->y1) * HIGH);
	return l >= 0 && l < HIGH ? (int)l : -1;
}

static void draw_ceilings(const struct fo_roofline *r, uint8_t grid[HIGH][WIDE])
{
	double top = fmax(r->peak[0], r->peak[1]);
	for (int c = 0; c < WIDE; c++) {
		double x = r->x0 * pow(r->x1 / r->x0, (c + 0.5) / WIDE), slope = r->memory_byte_s * x;
		for (int d = 0; d < 2; d++) {
			int l = r->peak[d] > 0 ? line_of(r, r->peak[d]) : -1;
			if (l >= 0 && (slope <= 0 || slope >= r->peak[d]))
				grid[l][c] = PEAK;
		}
		int l = slope > 0 && slope < top ? line_of(r, slope) : -1;
		if (l >= 0)
			grid[l][c] = SLOPE;
	}
}

static void put_glyph(struct fo_str *out, int cell, bool utf8, bool colour)
{
	const char *g = utf8 ? glyph[cell].symbol : glyph[cell].letter;
	if (colour && cell != EMPTY)
		fo_str_printf(out, "%s%s\033[0m", glyph[cell].colour, g);
	else
		fo_str_puts(out, g);
}

static void put_axis(const struct fo_roofline *r, struct fo_str *out)
{
	char line[LEFT + WIDE + 16];
	memset(line, ' ', sizeof line);
	for (double x = exp2(ceil(log2(r->x0))); x <= r->x1; x *= 4) {
		int c = column_of(r, x);
		char text[24];
		int n = snprintf(text, sizeof text, x < 1 ? "1/%.0f" : "%.0f", fmax(x, 1 / x));
		if (c >= 0 && c + n <= WIDE)
			memcpy(line + LEFT + 1 + c, text, (size_t)n);
	}
	int end = LEFT + WIDE;
	while (end > 0 && line[end] == ' ')
		end--;
	fo_str_append(out, line, (size_t)end + 1);
	fo_str_puts(out, "\n");
}

static const char *peaks_text(const struct fo_roofline *r, char buf[128])
{
	char a[32], b[32];
	/* A processor without a unit for 16-bit numbers computes both on the same one: the peaks differ by noise. */
	if (r->peak[0] > 0 && r->peak[1] > 0 && fabs(r->peak[0] / r->peak[1] - 1) > 0.02)
		snprintf(buf, 128, "peaks bf16 %s, f32 %s", fo_str_si(b, r->peak[1], "FLOP/s"),
			 fo_str_si(a, r->peak[0], "FLOP/s"));
	else
		snprintf(buf, 128, "peak %s", fo_str_si(a, fmax(r->peak[0], r->peak[1]), "FLOP/s"));
	return buf;
}

void fo_roofline_text(const struct fo_roofline *r, bool utf8, bool colour, struct fo_str *out)
{
	uint8_t grid[HIGH][WIDE] = { 0 };
	char buf[128], si[32];
	draw_ceilings(r, grid);
	for (int kind = FO_ROOFLINE_KINDS - 1; kind >= 0; kind--) /* matmuls last: on top */
		for (size_t i = 0; i < r->n; i++) {
			int c = column_of(r, r->point[i].flop_byte), l = line_of(r, r->point[i].flop_s);
			if (r->point[i].kind == kind && c >= 0 && l >= 0)
				grid[l][c] = (uint8_t)(PRODUCT + kind);
		}
	fo_str_puts(out, "  FLOP/s\n");
	for (int l = 0; l < HIGH; l++) {
		/* A label where a power of ten falls into this line. */
		double lo = r->y0 * pow(r->y1 / r->y0, (double)(HIGH - 1 - l) / HIGH),
		       hi = r->y0 * pow(r->y1 / r->y0, (double)(HIGH - l) / HIGH),
		       ten = pow(10, ceil(log10(lo) - 1e-9));
		if (ten < hi * (1 - 1e-9)) {
			fo_str_si(si, ten, "");
			char *point = strchr(si, '.'), *space = strchr(si, ' ');
			if (point && space) /* "10.0 G" is "10 G" */
				memmove(point, space, strlen(space) + 1);
			fo_str_printf(out, "%*s ", LEFT - 2, si);
		} else {
			fo_str_printf(out, "%*s ", LEFT - 2, "");
		}
		fo_str_puts(out, utf8 ? "\xe2\x94\x82" : "|");
		int last = WIDE - 1;
		while (last >= 0 && grid[l][last] == EMPTY)
			last--;
		for (int c = 0; c <= last; c++)
			put_glyph(out, grid[l][c], utf8, colour);
		fo_str_puts(out, "\n");
	}
	fo_str_printf(out, "%*s%s", LEFT - 1, "", utf8 ? "\xe2\x94\x94" : "+");
	for (int c = 0; c < WIDE; c++)
		fo_str_puts(out, utf8 ? "\xe2\x94\x80" : "-");
	fo_str_puts(out, "\n");
	put_axis(r, out);
	fo_str_printf(out, "%*s\n\n", LEFT + WIDE, "FLOP per byte");
	const char *const name[] = { "matmuls", "attention", "memory-bound operations, by bytes/s" };
	for (int k = 0; k < FO_ROOFLINE_KINDS; k++) {
		fo_str_puts(out, k ? "   " : "  ");
		put_glyph(out, PRODUCT + k, utf8, colour);
		fo_str_printf(out, " %s", name[k]);
	}
	fo_str_puts(out, "\n  ");
	put_glyph(out, PEAK, utf8, colour);
	fo_str_printf(out, " %s   ", peaks_text(r, buf));
	put_glyph(out, SLOPE, utf8, colour);
	if (r->memory_byte_s > 0)
		fo_str_printf(out, " memory %s (%s)\n", fo_str_si(si, r->memory_byte_s, "B/s"), r->memory_kind);
	else
		fo_str_puts(out, " memory: not measured\n");
	if (r->unsure)
		fo_str_puts(out, "  The machine was too busy to tell its peak, which may be low: calibrate again.\n");
}
