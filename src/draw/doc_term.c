/* A document as text for a terminal. */
#include "draw/doc_int.h"
#include "draw/draw_int.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	LEAST_WIDTH = 20,
	LABEL = 12, /* columns of a label from which one space after it is enough */
	DEPTH = 32  /* of sections and cards inside each other */
};

struct term {
	const struct fo_doc *d;
	struct fo_str *out;
	size_t width;
	bool begun;                /* something was printed */
	enum fo_doc_kind before;   /* the kind of the element printed last */
	size_t indent;             /* columns before a paragraph */
	size_t outer[DEPTH];       /* the indents of the sections and cards around it */
	int depth, cards, in_card; /* in_card: cards that are open */
	bool hidden[DEPTH];        /* the section around it prints its summary alone */
};

static bool is_answer(enum fo_doc_kind k) { return k == FO_DOC_VERDICT || k == FO_DOC_FACT; }

static bool is_block(enum fo_doc_kind k)
{
	return k == FO_DOC_HEADING || k == FO_DOC_TABLE || k == FO_DOC_CODE || k == FO_DOC_DETAILS ||
	       k == FO_DOC_CARD || k >= FO_DOC_BARS;
}

/* Does an empty line stand between an element and the one before it? */
static bool apart(const struct term *t, enum fo_doc_kind kind)
{
	if (!t->begun)
		return false;
	if (kind == FO_DOC_CARD)
		return true;
	if (t->in_card)
		return false;
	if (is_block(kind) || is_block(t->before) || t->before == FO_DOC_CARD_END || t->before == FO_DOC_DETAILS_END)
		return true;
	return is_answer(t->before) != is_answer(kind) || (t->before == FO_DOC_WARNING) != (kind == FO_DOC_WARNING);
}

static void space_before(struct term *t, enum fo_doc_kind kind)
{
	if (apart(t, kind))
		fo_str_puts(t->out, "\n");
	t->begun = true;
	t->before = kind;
}

static void pad(struct fo_str *s, size_t n)
{
	while (n-- > 0)
		fo_str_puts(s, " ");
}

/* Prints the indent, `mark` and the text, wrapped; further lines begin `more` columns after the indent. */
static void put(struct term *t, const char *mark, size_t more, const char *text)
{
	struct fo_str first = { 0 }, lead = { 0 };
	size_t room = 4 * strlen(text) + 8; /* every byte as \xNN at worst */
	char *seen = fo_xmalloc(room);
	fo_str_append(&lead, "", 0);
	pad(&first, t->indent);
	fo_str_puts(&first, mark);
	pad(&lead, t->indent + more);
	fo_term_wrap(t->out, t->width, first.data, lead.data, fo_str_visible(seen, room, text));
	free(seen);
	fo_str_fini(&first);
	fo_str_fini(&lead);
}

static void put_table(struct term *t, struct fo_table *table, bool head)
{
	struct fo_str indent = { 0 };
	pad(&indent, t->indent ? t->indent : 2);
	fo_table_text(table, t->out, t->width, indent.data, head);
	fo_str_fini(&indent);
	fo_table_fini(table);
}

/* "Name:", with a capital where a plain word begins it. */
static void label_of(char *buf, size_t size, const char *name)
{
	snprintf(buf, size, *name ? "%s:" : "%s", name);
	if (fo_draw_plain_word(name))
		*buf = (char)toupper((unsigned char)*buf);
}

/* Verdicts and facts that follow each other, with their labels as wide as the widest. Returns one past the last. */
static size_t answers(struct term *t, size_t at)
{
	const struct fo_doc *d = t->d;
	size_t end = at, widest = 0;
	bool labelled = false; /* the line above has a label */
	char label[128], mark[192];
	for (; end < d->nodes && (!fo_doc_shown(&d->node[end], FO_DOC_TERM) || is_answer(d->node[end].kind)); end++)
		if (fo_doc_shown(&d->node[end], FO_DOC_TERM) && d->node[end].label) {
			size_t w = fo_term_columns(d->node[end].label, strlen(d->node[end].label)) + 1;
			widest = w > widest ? w : widest;
		}
	size_t wide = widest + (widest < LABEL ? 2 : 1);
	for (; at < end; at++) {
		const struct fo_doc_node *n = &d->node[at];
		if (!fo_doc_shown(n, FO_DOC_TERM))
			continue;
		space_before(t, n->kind);
		if (!n->label) { /* a sentence: apart from labels above it, and as wide as a paragraph */
			if (labelled)
				fo_str_puts(t->out, "\n");
			labelled = false;
			put(t, "", 0, n->text);
			continue;
		}
		labelled = true;
		label_of(label, sizeof label, n->label);
		size_t w = fo_term_columns(label, strlen(label));
		snprintf(mark, sizeof mark, "%s%*s", label, (int)(wide - w), "");
		struct fo_str text = { 0 };
		fo_str_printf(&text, n->note ? "%s (%s)" : "%s", n->text, n->note);
		put(t, mark, wide < t->width / 2 ? wide : 2, text.data);
		fo_str_fini(&text);
	}
	return end;
}

/* Returns one past the table's last row. */
static size_t table(struct term *t, size_t at)
{
	const struct fo_doc_node *head = &t->d->node[at];
	char align[FO_DRAW_COLUMNS + 1] = "";
	const char *cell[FO_DRAW_COLUMNS];
	size_t from[FO_DRAW_COLUMNS], cols = 0;
	struct fo_table rows;
	bool named = false;
	for (size_t i = 0; i < head->cols; i++)
		if (islower((unsigned char)head->text[i])) {
			align[cols] = head->text[i];
			named = named || *head->cell[i];
			from[cols++] = i;
		}
	fo_table_init(&rows, align);
	for (size_t i = at; i < t->d->nodes && (i == at || t->d->node[i].kind == FO_DOC_ROW); i++) {
		const struct fo_doc_node *n = &t->d->node[i];
		if (!fo_doc_shown(n, FO_DOC_TERM))
			continue;
		for (size_t k = 0; k < cols && n->cols; k++)
			cell[k] = n->cell[from[k]];
		if (n->cols && (i > at || named))
			fo_table_cells(&rows, (struct fo_cells){ cell, cols });
	}
	if (head->label) {
		space_before(t, t->in_card ? FO_DOC_PARA : FO_DOC_TABLE);
		put(t, "", 0, head->label);
	}
	space_before(t, FO_DOC_TABLE);
	put_table(t, &rows, named);
	for (at++; at < t->d->nodes && t->d->node[at].kind == FO_DOC_ROW; at++)
		;
	return at;
}

static void bars(struct term *t, const struct fo_draw_bars *c)
{
	struct fo_table rows;
	fo_table_init(&rows, "lrl");
	put(t, "", 0, c->title ? c->title : "");
	fo_str_puts(t->out, "\n");
	for (size_t i = 0; i < c->rows; i++)
		fo_table_row(&rows, c->row[i].name, c->row[i].value, c->row[i].note);
	put_table(t, &rows, false);
}

static void waterfall(struct term *t, const struct fo_draw_waterfall *c)
{
	struct fo_table rows;
	char left[32];
	double rest = c->whole;
	fo_table_init(&rows, "lrr");
	put(t, "", 0, c->title ? c->title : "");
	fo_str_puts(t->out, "\n");
	fo_table_row(&rows, "", "", "left");
	fo_table_row(&rows, c->whole_name, c->whole_value, fo_draw_number(left, rest, c->unit));
	for (size_t i = 0; i < c->falls; i++) {
		rest -= isfinite(c->fall[i].amount) ? c->fall[i].amount : 0;
		fo_table_row(&rows, c->fall[i].name, c->fall[i].value, fo_draw_number(left, rest, c->unit));
	}
	fo_table_row(&rows, c->rest_name, c->rest_value, fo_draw_number(left, rest, c->unit));
	put_table(t, &rows, true);
}

static void code(struct term *t, const char *text)
{
	const char *line = text;
	while (*line) {
		size_t n = strcspn(line, "\n");
		size_t room = 4 * n + 8;
		char *one = fo_xmalloc(n + 1), *seen = fo_xmalloc(room);
		memcpy(one, line, n);
		pad(t->out, t->indent + 2);
		fo_str_printf(t->out, "%s\n", fo_str_visible(seen, room, one));
		free(one);
		free(seen);
		line += n + (line[n] == '\n');
	}
}

static void open_box(struct term *t, size_t indent, bool hidden)
{
	if (t->depth < DEPTH) {
		t->outer[t->depth] = t->indent;
		t->hidden[t->depth] = hidden;
		t->indent = indent;
	}
	t->depth++;
}

static void close_box(struct term *t)
{
	if (t->depth > 0 && --t->depth < DEPTH)
		t->indent = t->outer[t->depth];
}

static void card(struct term *t, const struct fo_doc_node *n)
{
	struct fo_str title = { 0 };
	char mark[16];
	fo_str_printf(&title, n->label ? "%s [%s]" : "%s", n->text, n->label);
	snprintf(mark, sizeof mark, "%3d. ", ++t->cards);
	open_box(t, 0, false);
	put(t, mark, strlen(mark), title.data);
	t->indent = strlen(mark);
	fo_str_fini(&title);
	t->in_card++;
}

static void element(struct term *t, const struct fo_doc_node *n)
{
	switch (n->kind) {
	case FO_DOC_HEADING:
		t->indent = 0;
		t->cards = t->in_card ? t->cards : 0;
		put(t, "", 0, n->text);
		t->indent = 2;
		break;
	case FO_DOC_PARA:
	case FO_DOC_REMARK: put(t, "", 0, n->text); break;
	case FO_DOC_WARNING: put(t, "Note: ", strlen("Note: "), n->text); break;
	case FO_DOC_ITEM: put(t, "* ", 2, n->text); break;
	case FO_DOC_CODE: code(t, n->text); break;
	case FO_DOC_DETAILS:
		put(t, "", 0, n->text);
		open_box(t, t->in_card ? t->indent : t->indent + 2, n->fold == FO_DOC_SUMMED);
		break;
	case FO_DOC_CARD: card(t, n); break;
	case FO_DOC_BARS: bars(t, n->picture); break;
	case FO_DOC_WATERFALL: waterfall(t, n->picture); break;
	case FO_DOC_SLOTS: fo_draw_slots_text(t->out, n->picture, t->width, t->indent); break;
	default: break;
	}
}

static bool has_form(enum fo_doc_kind k) { return k <= FO_DOC_BARS || k == FO_DOC_WATERFALL || k == FO_DOC_SLOTS; }

/* Closes a card or a section; true if n did. */
static bool ends(struct term *t, const struct fo_doc_node *n)
{
	if (n->kind != FO_DOC_CARD_END && n->kind != FO_DOC_DETAILS_END)
		return false;
	close_box(t);
	t->in_card -= n->kind == FO_DOC_CARD_END;
	t->before = n->kind;
	return true;
}

static bool hidden(const struct term *t)
{
	for (int i = 0; i < t->depth && i < DEPTH; i++)
		if (t->hidden[i])
			return true;
	return false;
}

void fo_doc_to_term(const struct fo_doc *d, size_t width, struct fo_str *out)
{
	struct term t = { .d = d, .out = out, .width = width < LEAST_WIDTH ? LEAST_WIDTH : width };
	for (size_t i = 0, next; i < d->nodes; i = next) {
		const struct fo_doc_node *n = &d->node[i];
		next = i + 1;
		if (!fo_doc_shown(n, FO_DOC_TERM) || !has_form(n->kind) || ends(&t, n))
			continue;
		if (hidden(&t)) { /* its own sections are counted, so that each end meets its begin */
			if (n->kind == FO_DOC_CARD || n->kind == FO_DOC_DETAILS)
				open_box(&t, t.indent, true);
			t.in_card += n->kind == FO_DOC_CARD;
			continue;
		}
		if (is_answer(n->kind)) {
			next = answers(&t, i);
		} else if (n->kind == FO_DOC_TABLE) {
			next = table(&t, i);
		} else {
			space_before(&t, n->kind);
			element(&t, n);
		}
	}
}
