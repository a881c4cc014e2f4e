/* Pictures and numbers for people. A document (draw/doc.h) puts them into one HTML file without network, script or
 * font: dark and light, for a telephone (390 px), a desk and paper. Text is HTML and keeps its size; SVG carries
 * marks only and stretches. All that is appended is HTML and well-formed XML at once. Nothing is told by colour
 * alone.
 *
 * Every string is escaped here (fo_str_xml); NULL is the empty string. Pointers are only read during the call.
 * Nothing fails: numbers that are not finite are left out, and a picture without any says so. */
#ifndef FO_DRAW_DRAW_H
#define FO_DRAW_DRAW_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

/* How a page shows a table. FITTED: as wide as its text; FULL: as wide as the page; on a narrow page one of three or
 * more columns becomes a list, each cell on its own line after the name of its column. SLIM, SLIM_FULL: the same with
 * columns that stay columns (all but one of them short). */
enum fo_draw_shape { FO_DRAW_FITTED, FO_DRAW_FULL, FO_DRAW_SLIM, FO_DRAW_SLIM_FULL };
enum { FO_DRAW_COLUMNS = 16 };

/* ---- numbers ---- */

/* Kinds of number, and the one form that each has wherever a person reads it:
 *
 *	NUMBER     3.25         four digits
 *	SHARE      4.2 %        of a fraction; "0.12 %" below 1 %
 *	PERCENT    4.2 %        the same with one decimal always, in columns
 *	CHANGE     +1.2 %       a fraction with its sign
 *	BYTES      1.50 GiB
 *	SECONDS    12.3 ms      three digits, in us, ms, s, min or h
 *	FACTOR     1.29 x       1 is no change
 *	POINTS     -4.3 points  of a fraction: points of a percentage
 *	MS         12.345       of seconds: milliseconds in a column that names its unit
 *	FLOP_RATE  989 TFLOP/s
 *	DOLLARS    $1.25
 *	MONEY      $460.8 k     sums of any size: $1.25, $460.8 k, $1.38 M */
enum fo_draw_unit {
	FO_DRAW_NUMBER,
	FO_DRAW_SHARE,
	FO_DRAW_PERCENT,
	FO_DRAW_CHANGE,
	FO_DRAW_BYTES,
	FO_DRAW_SECONDS,
	FO_DRAW_FACTOR,
	FO_DRAW_POINTS,
	FO_DRAW_MS,
	FO_DRAW_FLOP_RATE,
	FO_DRAW_DOLLARS,
	FO_DRAW_MONEY
};
/* The number's text; "-" when it is not finite. buf is returned. */
char *fo_draw_number(char buf[32], double v, enum fo_draw_unit unit);

/* ---- lines ---- */

/* A run of points. x ascends (points that go back are left out; NULL: 0, 1, 2, ...); a y that is not finite (with
 * y_log: not above 0) interrupts the line; with x_log points that are not above 0 in x are left out. Long runs are
 * thinned without loss of a peak (M4: Jugel and others, VLDB 2014). */
enum { FO_DRAW_STYLES = 6 };
struct fo_draw_series {
	const char *name; /* in the legend; NULL: not there */
	const double *x, *y;
	size_t n;
	int style;  /* colour and dash: 0 to FO_DRAW_STYLES - 1, others count around */
	bool faint; /* thin and pale, for raw numbers under smoothed ones */
	bool marks; /* a dot at each point, where there are at most 60 */
	bool join;  /* what has no number is left out, and the line goes on over it */
};
/* An interval of y that is shaded over the whole width; lo = hi is a horizontal line. */
struct fo_draw_level {
	double lo, hi;
	const char *name; /* in the legend */
};
/* An interval of x that is shaded; from = to is a vertical line. title: what a pointer that rests on it shows. */
enum { FO_DRAW_BANDS = 4 };
struct fo_draw_band {
	double from, to;
	int kind; /* 0 to FO_DRAW_BANDS - 1: shading, and which band_name */
	const char *title;
};
struct fo_draw_lines {
	const char *title, *desc; /* caption; a description for readers who cannot see the picture */
	const char *x_name, *y_name;
	enum fo_draw_unit y_unit;
	bool y_log, x_log;
	/* The y axis holds at least this (NaN: nothing said) and all that is drawn. */
	double y_lo, y_hi;
	const struct fo_draw_series *series;
	size_t n;
	const struct fo_draw_band *band;
	size_t bands;
	const char *band_name[FO_DRAW_BANDS]; /* in the legend; NULL: not there */
	const struct fo_draw_level *level;    /* the y axis holds them */
	size_t levels;
};
void fo_draw_lines(struct fo_str *out, const struct fo_draw_lines *c);

/* ---- points ---- */

/* Points in a plane. Each kind has a colour and a form; a mark says more: hollow, with a ring, with two. Axes begin at
 * 0. All points are drawn: who has many thins them, and says so in `remark`. */
enum fo_draw_point_mark {
	FO_DRAW_POINT_HOLLOW,
	FO_DRAW_POINT_PLAIN,
	FO_DRAW_POINT_RING,
	FO_DRAW_POINT_CHOSEN, /* two rings */
	FO_DRAW_POINT_MARKS
};
struct fo_draw_point {
	double x, y; /* >= 0; not finite: left out */
	int kind;    /* 0 to FO_DRAW_STYLES - 1 */
	enum fo_draw_point_mark mark;
};
struct fo_draw_points {
	const char *title, *desc, *x_name, *y_name, *remark; /* remark: below the picture; may be NULL */
	enum fo_draw_unit x_unit, y_unit;
	const char *kind_name[FO_DRAW_STYLES];      /* legend, of the kinds that are drawn; NULL: not there */
	const char *mark_name[FO_DRAW_POINT_MARKS]; /* the same */
	const struct fo_draw_point *point;
	size_t n;
	double limit; /* of x: a line; NAN: none */
	const char *limit_name;
};
void fo_draw_points(struct fo_str *out, const struct fo_draw_points *c);

/* ---- areas on top of each other ---- */

/* Number of colours in the style sheet. Colour-blind readers can distinguish the first 16; the others are for charts
 * that give each part its own. */
enum { FO_DRAW_PARTS = 29 };
/* layer[l][i], all >= 0, stands at x = i; layers are stacked, the first at the bottom. Thinned to the point with the
 * greatest sum of each column, so that the peak is exact. At most FO_DRAW_PARTS layers. */
struct fo_draw_areas {
	const char *title, *desc, *x_name, *y_name;
	enum fo_draw_unit y_unit;
	const char *const *name;
	const double *const *layer;
	size_t layers, n;
};
void fo_draw_areas(struct fo_str *out, const struct fo_draw_areas *c);

/* ---- bars ---- */

/* Rows of one bar (or of two, the second hollow: measured and predicted) from zero to value, with whiskers lo to hi.
 * Factors stand on a logarithmic axis and begin at 1, so that a half is as long as a double; a whisker that would take
 * more room than all bars do is cut with an arrow. */
enum fo_draw_tone { FO_DRAW_PLAIN, FO_DRAW_DOUBTFUL /* hatched */, FO_DRAW_BAD /* another colour */ };
struct fo_draw_bar {
	double value, lo, hi; /* NaN value: no bar; NaN lo or hi: no whiskers */
};
struct fo_draw_bar_row {
	const char *name, *note; /* note (may be NULL): under the name, in words what the tone says */
	const char *value;       /* text at the end of the row */
	struct fo_draw_bar bar[2];
	enum fo_draw_tone tone;
};
struct fo_draw_bars {
	const char *title, *desc;
	enum fo_draw_unit unit;
	double lo, hi;           /* the axis holds at least this and all that is drawn */
	const char *hi_name;     /* NULL, or what the end of the axis is: "peak" */
	const char *bar_name[2]; /* legend; both NULL: none */
	const struct fo_draw_bar_row *row;
	size_t rows;
};
void fo_draw_bars(struct fo_str *out, const struct fo_draw_bars *c);

/* ---- bars of parts ---- */

/* Wholes and their parts: a bar for each whole, and below them a table of all parts, which is the legend too. Parts
 * below 0 count as 0. At most FO_DRAW_PARTS parts. */
struct fo_draw_stack {
	const char *name, *total; /* "before", "2.47 s" (may be NULL) */
	const double *part;       /* as many as part names; in one unit */
};
struct fo_draw_stacks {
	const char *title, *desc;
	const char *const *part_name;
	const unsigned char *tone; /* of each part, its colour: below FO_DRAW_PARTS; NULL: its place */
	size_t parts;
	const struct fo_draw_stack *stack;
	size_t stacks;
	const char *const
		*head; /* their columns in the table, short enough for three on a telephone; NULL: their names */
	bool to_scale; /* lengths as the wholes are to each other; else each is as long as the page */
	bool legend;   /* of one whole: a legend with each part's share instead of a table */
	bool dense;    /* thin bars, one line each, with a legend instead of labels and table: for many wholes */
};
void fo_draw_stacks(struct fo_str *out, const struct fo_draw_stacks *c);

/* ---- a whole and what is taken off it, step by step ---- */

/* A waterfall goes from the whole down to what remains: each step begins where the one before it ended. A step below 0
 * gives back. */
struct fo_draw_fall {
	const char *name, *note; /* note may be NULL */
	const char *value;       /* text at the end of the row */
	double amount;           /* taken off; not finite: a row without a mark */
};
struct fo_draw_waterfall {
	const char *title, *desc;
	enum fo_draw_unit unit;
	double whole;
	const char *whole_name, *whole_value;
	const struct fo_draw_fall *fall;
	size_t falls;
	const char *rest_name, *rest_value; /* the last row: whole less all steps */
};
void fo_draw_waterfall(struct fo_str *out, const struct fo_draw_waterfall *c);

/* ---- what happened when, lane by lane ---- */

enum { FO_DRAW_LANES = 24, FO_DRAW_LANE_ROWS = 5 };
/* A span covers [from, to); what lies outside the picture is cut or left out. */
struct fo_draw_span {
	double from, to;  /* seconds, as the chart's */
	int tone;         /* colour and legend: 0 to FO_DRAW_PARTS - 1, others count around */
	const char *name; /* inside where it has room, shortened; the pointer shows all of it */
};
/* A lane has its spans by begin, the longest of those first. Spans that overlap are put on FO_DRAW_LANE_ROWS rows at
 * most; neighbours of one tone that are too narrow to be distinguished become one mark. */
struct fo_draw_lane {
	const char *name;
	const struct fo_draw_span *span;
	size_t spans;
};
/* A stretch that is shaded over all lanes and named above them. */
struct fo_draw_mark {
	double from, to;
	const char *name;
};
/* An arrow from a moment of one lane to a later one of another: a launch and its kernel. */
struct fo_draw_arrow {
	size_t from_lane, to_lane;
	double from, to;
};
struct fo_draw_lanes {
	const char *title, *desc;
	double from, to; /* of the picture; its axis begins at 0 */
	const struct fo_draw_lane *lane;
	size_t lanes;                         /* at most FO_DRAW_LANES */
	const char *tone_name[FO_DRAW_PARTS]; /* legend, of the tones that are drawn; NULL: not there */
	const struct fo_draw_mark *mark;      /* may be NULL */
	const struct fo_draw_arrow *arrow;
	size_t arrows;
};
void fo_draw_lanes(struct fo_str *out, const struct fo_draw_lanes *c);
/* The same lanes as an SVG file of its own: one row each, without marks and arrows. */
void fo_draw_lanes_svg(struct fo_str *out, const struct fo_draw_lanes *c);

/* ---- slots: numbered pieces of work of a few kinds, in rows that never run two at once (stages of a pipeline) ---- */

enum { FO_DRAW_SLOT_KINDS = 8 };
struct fo_draw_slot {
	double from, to; /* seconds, or turns */
	int kind;        /* below `kinds` */
	int number;      /* -1: none */
	int part;        /* drawn as a letter behind the number, 0 as 'a'; -1: none */
};
struct fo_draw_slot_row {
	const char *name; /* "stage 3": short */
	const struct fo_draw_slot *slot;
	size_t slots;
};
/* A page shows at most FO_DRAW_LANES rows, a file FO_DRAW_SLOT_ROWS and text 16: the first and the last ones, and says
 * so. */
enum { FO_DRAW_SLOT_ROWS = 64 };
struct fo_draw_slots {
	const char *title, *desc; /* one line each in a file; a page wraps them */
	const char *letter;       /* of each kind */
	const char *const *kind_name;
	const unsigned char *tone; /* of each kind, its colour: below FO_DRAW_PARTS */
	size_t kinds;
	double from, to;
	bool turns; /* times are no seconds: no axis */
	const struct fo_draw_slot_row *row;
	size_t rows;
};
void fo_draw_slots(struct fo_str *out, const struct fo_draw_slots *c);     /* in a page */
void fo_draw_slots_svg(struct fo_str *out, const struct fo_draw_slots *c); /* a file of its own */
/* Text of at most `width` columns, after `indent` blanks on each line. A long picture goes on below itself; what has no
 * room there is left out, and a line says how much. */
void fo_draw_slots_text(struct fo_str *out, const struct fo_draw_slots *c, size_t width, size_t indent);

#endif
