/* Axes, frames and the style sheet: shared by pictures and by the page around them. */
#ifndef FO_DRAW_DRAW_INT_H
#define FO_DRAW_DRAW_INT_H

#include "draw/draw.h"

/* The view box of every plot, which is stretched to the page. */
enum { FO_PLOT_WIDTH = 4000, FO_PLOT_HEIGHT = 1000 };
/* Columns that long runs are thinned to: about the points that a plot of a page of 1,280 px has. */
enum { FO_PLOT_COLUMNS = 1000 };

enum { FO_AXIS_TICKS = 24 };
struct fo_axis {
	double lo, hi; /* log: both above 0 */
	bool log;
	enum fo_draw_unit unit;
	double step; /* between ticks; log: 0 */
	double tick[FO_AXIS_TICKS];
	int ticks;
};
/* Makes *a an axis that holds [lo, hi] (0 to 1 without finite numbers) with about `want` ticks. tight: it ends so. */
void fo_axis_fit(struct fo_axis *a, double lo, double hi, int want, bool tight);
double fo_axis_at(const struct fo_axis *a, double v);  /* 0 to 1, clamped; NaN stays */
int fo_axis_across(const struct fo_axis *a, double v); /* the same in columns of the view box */
char *fo_axis_label(const struct fo_axis *a, double v, char buf[32]);

/* Widens [*lo, *hi] (NaN: empty) by v, if that is finite. */
void fo_range_add(double *lo, double *hi, double v);

/* Appends the text of an attribute or a title: a percent sign stays with its figure. */
void fo_draw_escaped(struct fo_str *out, const char *before, const char *text, const char *after);
/* Appends what stands in a page: figures stay with their units, options and dates on one line. */
void fo_draw_text(struct fo_str *out, const char *before, const char *text, const char *after);
void fo_draw_code(struct fo_str *out, const char *text); /* every byte of it stays: the reader copies it */
/* Does text begin with a word of small letters alone? Only such a word gets a capital: names, as "bf16",
 * "torch.compile" or "nvidia-smi", stay as they are. */
bool fo_draw_plain_word(const char *text);
/* Does the same as fo_draw_text, with a capital where the text begins with a plain word. */
void fo_draw_sentence(struct fo_str *out, const char *before, const char *text, const char *after);
void fo_draw_remark(struct fo_str *out, const char *text); /* a softer paragraph; NULL: none */
/* <figure> with its caption; the plot's own text follows, then fo_figure_end. */
void fo_figure_begin(struct fo_str *out, const char *title, const char *kind);
void fo_figure_empty(struct fo_str *out); /* says that there is nothing to show */
void fo_figure_end(struct fo_str *out);
/* A small square in the colour of a part, for legends. */
void fo_draw_swatch(struct fo_str *out, size_t part);
/* The svg that stretches over its frame, with title and description; ends with </svg>, which the caller writes. */
void fo_svg_begin(struct fo_str *out, const char *title, const char *desc, int width, int height);
/* Frame of a plot with both axes: y labels, name, the svg with its grid; after the marks fo_plot_end draws the x
 * labels. */
void fo_plot_begin(struct fo_str *out, const struct fo_axis *x, const struct fo_axis *y, const char *title,
		   const char *desc, const char *y_name);
void fo_plot_end(struct fo_str *out, const struct fo_axis *x, const char *x_name);
/* Labels below a plot. On a narrow page every second one is left out. */
void fo_axis_labels(struct fo_str *out, const struct fo_axis *x);

/* A row of a bar chart: name and note (may be NULL) on the left, the track with its grid, the value on the right. The
 * marks stand between begin and end, in a view box of FO_PLOT_WIDTH by FO_BAR_TRACK; zero: where bars begin. two: the
 * track holds two bars. */
enum { FO_BAR_TRACK = 100 };
void fo_bar_row_begin(struct fo_str *out, const struct fo_axis *a, const char *name, const char *note,
		      const char *value, bool two);
void fo_bar_row_end(struct fo_str *out, const struct fo_axis *a, double zero, const char *value);

/* The colour of a part, and whether a label on it is white. */
struct fo_draw_colour {
	const char *fill;
	bool white;
};
extern const struct fo_draw_colour fo_draw_part[FO_DRAW_PARTS];
extern const char fo_draw_style[]; /* of a page */
extern const char
	fo_draw_file_style[]; /* of a picture that is a file of its own: <style> and rules, without </style> */

#endif
