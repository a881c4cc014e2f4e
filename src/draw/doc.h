/* A document: what a command has to say, built once and printed twice, as a page (HTML) and as text on a terminal.
 *
 *	struct fo_doc d = { 0 };
 *	fo_doc_title(&d, "Diagnosis of %s", file);
 *	fo_doc_verdict(&d, FO_DOC_BAD, "Bottleneck", "the data loader: worth %s", fo_doc_num(&d, 1.29, FO_DRAW_FACTOR));
 *	fo_doc_fact(&d, "step", fo_doc_num(&d, 0.0123, FO_DRAW_SECONDS), "median of 40");
 *	fo_doc_heading(&d, "Where the time goes");
 *	fo_doc_table(&d, FO_DRAW_FITTED, NULL, "lr", "part", "share");
 *	fo_doc_row(&d, "idle", fo_doc_num(&d, 0.042, FO_DRAW_SHARE));
 *	fo_doc_to_html(&d, &out);            or  fo_doc_to_term(&d, width, &out);
 *	fo_doc_fini(&d);
 *
 * Consecutive verdicts, facts, items and rows belong together. Title, lead, footer and pictures go to the page alone
 * (but bars and waterfalls, which are tables on a terminal, and slots), and what fo_doc_only says.
 *
 * Strings are copied, and each renderer makes them safe for its sink. Arrays that a picture points to are not copied:
 * they live until the document is printed, as what fo_doc_alloc and fo_doc_printf return does. */
#ifndef FO_DRAW_DOC_H
#define FO_DRAW_DOC_H

#include "draw/draw.h"
#include "draw/term.h"

#include <stdint.h>

enum fo_doc_for { FO_DOC_BOTH, FO_DOC_PAGE, FO_DOC_TERM };
enum fo_doc_tone { FO_DOC_PLAIN, FO_DOC_GOOD, FO_DOC_BAD };

struct fo_doc_node;
struct fo_doc { /* a zeroed one is empty */
	struct fo_arena arena;
	const char *title, *lead, *footer; /* page only; NULL: none */
	struct fo_doc_node *node;
	size_t nodes, cap;
	enum fo_doc_for only;                /* for what is added from now on */
	void (*reword)(struct fo_str *text); /* NULL, or changes each text that is added from now on */
};
void fo_doc_fini(struct fo_doc *d);

/* ---- memory and numbers ---- */

void *fo_doc_alloc(struct fo_doc *d, size_t bytes); /* zeroed */
const char *fo_doc_printf(struct fo_doc *d, const char *fmt, ...) FO_PRINTF(2, 3);
/* "text, more"; one of them alone where the other is "". */
const char *fo_doc_join(struct fo_doc *d, const char *text, const char *more);
/* fo_draw_number's text: "12.3 ms", "4.2 %", "1.29 x", "1.50 GiB", "-". */
const char *fo_doc_num(struct fo_doc *d, double v, enum fo_draw_unit unit);
const char *fo_doc_ns(struct fo_doc *d, int64_t ns);                     /* as a time: "12.3 ms" */
const char *fo_doc_share(struct fo_doc *d, int64_t part, int64_t whole); /* "4.2 %"; "-" without a whole */
const char *fo_doc_ms(struct fo_doc *d, int64_t ns);                     /* "12.346", for a column of milliseconds */
const char *fo_doc_count(struct fo_doc *d, int64_t n);                   /* "1234" */
const char *fo_doc_bytes(struct fo_doc *d, int64_t bytes);               /* "1.50 GiB" */
const char *fo_doc_si(struct fo_doc *d, double v, const char *unit);     /* "989 TFLOP" (fo_str_si) */

/* ---- the frame ---- */

void fo_doc_only(struct fo_doc *d, enum fo_doc_for only); /* until the next call; FO_DOC_BOTH at the beginning */
void fo_doc_title(struct fo_doc *d, const char *fmt, ...) FO_PRINTF(2, 3);
void fo_doc_lead(struct fo_doc *d, const char *fmt, ...) FO_PRINTF(2, 3); /* what was looked at: device, ranks, date */
void fo_doc_footer(struct fo_doc *d, const char *fmt, ...) FO_PRINTF(2, 3); /* how and when the page was made */

/* ---- what it says ---- */

/* One line of the answer: "Bottleneck: ...". label NULL: a sentence. On a page consecutive ones share a frame in the
 * first one's tone; on a terminal their labels are aligned. */
void fo_doc_verdict(struct fo_doc *d, enum fo_doc_tone tone, const char *label, const char *fmt, ...) FO_PRINTF(4, 5);
/* A line of the same form that gives no answer: what was looked at, and under which conditions. */
#define fo_doc_line(d, label, ...) fo_doc_verdict(d, FO_DOC_PLAIN, label, __VA_ARGS__)
/* A figure: name, value, remark (may be NULL). On a page a tile, on a terminal a line: "Name:  value (note)". */
void fo_doc_fact(struct fo_doc *d, const char *name, const char *value, const char *note);
void fo_doc_heading(struct fo_doc *d, const char *fmt, ...) FO_PRINTF(2, 3);
void fo_doc_para(struct fo_doc *d, const char *fmt, ...) FO_PRINTF(2, 3);
void fo_doc_remark(struct fo_doc *d, const char *fmt, ...) FO_PRINTF(2, 3);  /* a softer paragraph */
void fo_doc_warning(struct fo_doc *d, const char *fmt, ...) FO_PRINTF(2, 3); /* framed; on a terminal "Note: ..." */
void fo_doc_item(struct fo_doc *d, const char *fmt, ...) FO_PRINTF(2, 3);    /* of a list */
void fo_doc_code(struct fo_doc *d, const char *text);                        /* to copy, as it is */

/* A section that a page can fold, until fo_doc_details_end. The terminal prints all of it, or (SUMMED) its summary. */
enum fo_doc_fold { FO_DOC_OPEN, FO_DOC_FOLDED, FO_DOC_SUMMED };
void fo_doc_details(struct fo_doc *d, enum fo_doc_fold fold, const char *fmt, ...) FO_PRINTF(3, 4);
void fo_doc_details_end(struct fo_doc *d);
/* A frame with a heading and a tag (its kind in a few words; may be NULL), until fo_doc_card_end. A terminal numbers
 * the cards below each heading. */
void fo_doc_card(struct fo_doc *d, enum fo_doc_tone tone, const char *tag, const char *fmt, ...) FO_PRINTF(4, 5);
void fo_doc_card_end(struct fo_doc *d);

/* A table and its rows, until anything else is added. align has a letter for each column: l, r; L, R: on the page
 * alone, for columns that a terminal has no room for. The heads follow; "" for none. caption (may be NULL) stands above
 * it. shape says how a page shows it (draw.h). */
#define fo_doc_table(d, shape, caption, align, ...) fo_doc_table_of(d, shape, caption, align, FO_CELLS(__VA_ARGS__))
#define fo_doc_row(d, ...) fo_doc_cells(d, NULL, FO_CELLS(__VA_ARGS__))
void fo_doc_table_of(struct fo_doc *d, enum fo_draw_shape shape, const char *caption, const char *align,
		     struct fo_cells head);
/* title (may be NULL): what a pointer that rests on the row shows. */
void fo_doc_cells(struct fo_doc *d, const char *title, struct fo_cells cells);

/* Pictures. The struct is copied, what it points to is not. */
void fo_doc_bars(struct fo_doc *d, const struct fo_draw_bars *c);
void fo_doc_lines(struct fo_doc *d, const struct fo_draw_lines *c);
void fo_doc_points(struct fo_doc *d, const struct fo_draw_points *c);
void fo_doc_areas(struct fo_doc *d, const struct fo_draw_areas *c);
void fo_doc_stacks(struct fo_doc *d, const struct fo_draw_stacks *c);
void fo_doc_waterfall(struct fo_doc *d, const struct fo_draw_waterfall *c);
void fo_doc_lanes(struct fo_doc *d, const struct fo_draw_lanes *c);
void fo_doc_slots(struct fo_doc *d, const struct fo_draw_slots *c);

/* ---- printing ---- */

void fo_doc_to_html(const struct fo_doc *d, struct fo_str *out);
/* width: columns of the terminal, FO_TERM_WIDTH for files and pipes; at least 20 are assumed. */
void fo_doc_to_term(const struct fo_doc *d, size_t width, struct fo_str *out);

#endif
