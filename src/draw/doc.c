#include "draw/doc_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void fo_doc_fini(struct fo_doc *d)
{
	free(d->node);
	fo_arena_fini(&d->arena);
	*d = (struct fo_doc){ 0 };
}

/* ---- memory and numbers ---- */

void *fo_doc_alloc(struct fo_doc *d, size_t bytes) { return fo_arena_alloc(&d->arena, bytes); }

static const char *formatted(struct fo_doc *d, const char *fmt, va_list ap)
{
	struct fo_str s = { 0 };
	fo_str_append(&s, "", 0); /* empty is a text, too */
	fo_str_vprintf(&s, fmt, ap);
	if (d->reword)
		d->reword(&s);
	const char *kept = fo_arena_strdup(&d->arena, s.data ? s.data : "");
	fo_str_fini(&s);
	return kept;
}

/* The text of a function's variable arguments, which follow its argument `fmt`. */
#define FORMAT(text, d, fmt)                  \
	const char *text;                     \
	do {                                  \
		va_list ap;                   \
		va_start(ap, fmt);            \
		text = formatted(d, fmt, ap); \
		va_end(ap);                   \
	} while (0)

const char *fo_doc_printf(struct fo_doc *d, const char *fmt, ...)
{
	FORMAT(text, d, fmt);
	return text;
}

const char *fo_doc_join(struct fo_doc *d, const char *text, const char *more)
{
	return fo_doc_printf(d, "%s%s%s", text, *text && *more ? ", " : "", more);
}

const char *fo_doc_num(struct fo_doc *d, double v, enum fo_draw_unit unit)
{
	char buf[32];
	return fo_arena_strdup(&d->arena, fo_draw_number(buf, v, unit));
}

const char *fo_doc_bytes(struct fo_doc *d, int64_t bytes) { return fo_doc_num(d, (double)bytes, FO_DRAW_BYTES); }

const char *fo_doc_si(struct fo_doc *d, double v, const char *unit)
{
	char buf[32];
	return fo_doc_printf(d, "%s", fo_str_si(buf, v, unit));
}

const char *fo_doc_ms(struct fo_doc *d, int64_t ns) { return fo_doc_num(d, (double)ns * 1e-9, FO_DRAW_MS); }

const char *fo_doc_ns(struct fo_doc *d, int64_t ns) { return fo_doc_num(d, (double)ns * 1e-9, FO_DRAW_SECONDS); }

const char *fo_doc_share(struct fo_doc *d, int64_t part, int64_t whole)
{
	return fo_doc_num(d, whole > 0 ? (double)part / (double)whole : NAN, FO_DRAW_SHARE);
}

const char *fo_doc_count(struct fo_doc *d, int64_t n) { return fo_doc_printf(d, "%lld", (long long)n); }

/* ---- nodes ---- */

static struct fo_doc_node *add(struct fo_doc *d, enum fo_doc_kind kind, const char *text)
{
	fo_array_room(&d->node, &d->cap, d->nodes, sizeof *d->node);
	struct fo_doc_node *n = &d->node[d->nodes++];
	*n = (struct fo_doc_node){ .kind = kind, .only = d->only, .text = text };
	return n;
}

static const char *kept(struct fo_doc *d, const char *s)
{
	if (!s || !d->reword)
		return s ? fo_arena_strdup(&d->arena, s) : NULL;
	return fo_doc_printf(d, "%s", s);
}

static const char **kept_cells(struct fo_doc *d, struct fo_cells cells, size_t n)
{
	const char **cell = fo_doc_alloc(d, (n + 1) * sizeof *cell);
	for (size_t i = 0; i < n; i++)
		cell[i] = kept(d, i < cells.n && cells.v[i] ? cells.v[i] : "");
	return cell;
}

void fo_doc_only(struct fo_doc *d, enum fo_doc_for only) { d->only = only; }

/* Elements that are one text. */
#define ONE_TEXT(name, take)                                       \
	void fo_doc_##name(struct fo_doc *d, const char *fmt, ...) \
	{                                                          \
		FORMAT(text, d, fmt);                              \
		take;                                              \
	}
ONE_TEXT(title, d->title = text)
ONE_TEXT(lead, d->lead = text)
ONE_TEXT(footer, d->footer = text)
ONE_TEXT(heading, add(d, FO_DOC_HEADING, text))
ONE_TEXT(para, add(d, FO_DOC_PARA, text))
ONE_TEXT(remark, add(d, FO_DOC_REMARK, text))
ONE_TEXT(warning, add(d, FO_DOC_WARNING, text))
ONE_TEXT(item, add(d, FO_DOC_ITEM, text))

void fo_doc_verdict(struct fo_doc *d, enum fo_doc_tone tone, const char *label, const char *fmt, ...)
{
	FORMAT(text, d, fmt);
	struct fo_doc_node *n = add(d, FO_DOC_VERDICT, text);
	n->label = kept(d, label);
	n->tone = tone;
}

void fo_doc_fact(struct fo_doc *d, const char *name, const char *value, const char *note)
{
	struct fo_doc_node *n = add(d, FO_DOC_FACT, kept(d, value ? value : ""));
	n->label = kept(d, name);
	n->note = kept(d, note);
}

void fo_doc_code(struct fo_doc *d, const char *text)
{
	add(d, FO_DOC_CODE, fo_arena_strdup(&d->arena, text ? text : ""));
}

void fo_doc_details(struct fo_doc *d, enum fo_doc_fold fold, const char *fmt, ...)
{
	FORMAT(text, d, fmt);
	add(d, FO_DOC_DETAILS, text)->fold = fold;
}

void fo_doc_details_end(struct fo_doc *d) { add(d, FO_DOC_DETAILS_END, ""); }

void fo_doc_card(struct fo_doc *d, enum fo_doc_tone tone, const char *tag, const char *fmt, ...)
{
	FORMAT(text, d, fmt);
	struct fo_doc_node *n = add(d, FO_DOC_CARD, text);
	n->label = kept(d, tag);
	n->tone = tone;
}

void fo_doc_card_end(struct fo_doc *d) { add(d, FO_DOC_CARD_END, ""); }

void fo_doc_table_of(struct fo_doc *d, enum fo_draw_shape shape, const char *caption, const char *align,
		     struct fo_cells head)
{
	struct fo_doc_node *n = add(d, FO_DOC_TABLE, fo_arena_strdup(&d->arena, align));
	n->cols = strlen(align) < FO_DRAW_COLUMNS ? strlen(align) : FO_DRAW_COLUMNS;
	n->cell = kept_cells(d, head, n->cols);
	n->label = kept(d, caption);
	n->shape = shape;
}

void fo_doc_cells(struct fo_doc *d, const char *title, struct fo_cells cells)
{
	const struct fo_doc_node *last = d->nodes ? &d->node[d->nodes - 1] : NULL;
	size_t cols = last && (last->kind == FO_DOC_TABLE || last->kind == FO_DOC_ROW) ? last->cols : 0;
	struct fo_doc_node *n = add(d, FO_DOC_ROW, kept(d, title));
	n->cols = cols;
	n->cell = kept_cells(d, cells, cols);
}

/* ---- pictures ---- */

#define PICTURE(name, KIND)                                                  \
	void fo_doc_##name(struct fo_doc *d, const struct fo_draw_##name *c) \
	{                                                                    \
		void *copy = fo_doc_alloc(d, sizeof *c);                     \
		memcpy(copy, c, sizeof *c);                                  \
		add(d, KIND, "")->picture = copy;                            \
	}
PICTURE(bars, FO_DOC_BARS)
PICTURE(lines, FO_DOC_LINES)
PICTURE(points, FO_DOC_POINTS)
PICTURE(areas, FO_DOC_AREAS)
PICTURE(stacks, FO_DOC_STACKS)
PICTURE(waterfall, FO_DOC_WATERFALL)
PICTURE(lanes, FO_DOC_LANES)
PICTURE(slots, FO_DOC_SLOTS)
