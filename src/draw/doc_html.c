/* A document as a page. */
#include "draw/doc_int.h"
#include "draw/draw_int.h"

#include <stdlib.h>
#include <string.h>

size_t fo_doc_run(const struct fo_doc *d, size_t at, enum fo_doc_for audience)
{
	enum fo_doc_kind kind = d->node[at].kind;
	while (at < d->nodes && (!fo_doc_shown(&d->node[at], audience) || d->node[at].kind == kind))
		at++;
	return at;
}

static void verdicts(struct fo_str *out, const struct fo_doc *d, size_t from, size_t to)
{
	static const char *const open[] = {
		[FO_DOC_PLAIN] = "<dl class=\"verdict\">\n",
		[FO_DOC_GOOD] = "<dl class=\"verdict good\">\n",
		[FO_DOC_BAD] = "<dl class=\"verdict bad\">\n",
	};
	fo_str_puts(out, open[d->node[from].tone]);
	for (size_t i = from; i < to; i++) {
		const struct fo_doc_node *n = &d->node[i];
		if (!fo_doc_shown(n, FO_DOC_PAGE))
			continue;
		fo_str_puts(out, "<div>");
		if (n->label)
			fo_draw_sentence(out, "<dt>", n->label, "</dt>");
		fo_draw_sentence(out, "<dd>", n->text, "</dd></div>\n");
	}
	fo_str_puts(out, "</dl>\n");
}

static void facts(struct fo_str *out, const struct fo_doc *d, size_t from, size_t to)
{
	struct fo_draw_fact *fact = fo_xmalloc((to - from) * sizeof *fact);
	size_t n = 0;
	for (size_t i = from; i < to; i++)
		if (fo_doc_shown(&d->node[i], FO_DOC_PAGE))
			fact[n++] = (struct fo_draw_fact){ d->node[i].label, d->node[i].text, d->node[i].note };
	fo_draw_facts(out, fact, n);
	free(fact);
}

static void items(struct fo_str *out, const struct fo_doc *d, size_t from, size_t to)
{
	fo_str_puts(out, "<ul>\n");
	for (size_t i = from; i < to; i++)
		if (fo_doc_shown(&d->node[i], FO_DOC_PAGE))
			fo_draw_sentence(out, "<li>", d->node[i].text, "</li>\n");
	fo_str_puts(out, "</ul>\n");
}

/* Returns one past the table's last row. */
static size_t table(struct fo_str *out, const struct fo_doc *d, size_t at)
{
	const struct fo_doc_node *head = &d->node[at];
	char align[FO_DRAW_COLUMNS + 1] = "";
	struct fo_draw_table t;
	for (size_t i = 0; i < head->cols; i++)
		align[i] = head->text[i] == 'r' || head->text[i] == 'R' ? 'r' : 'l';
	fo_draw_table_shaped(&t, out, head->shape, head->label, align, head->cell);
	for (at++; at < d->nodes && d->node[at].kind == FO_DOC_ROW; at++)
		if (d->node[at].cols && fo_doc_shown(&d->node[at], FO_DOC_PAGE))
			fo_draw_table_row_titled(&t, d->node[at].text, d->node[at].cell);
	fo_draw_table_end(&t);
	return at;
}

/* What stands alone. */
static void element(struct fo_str *out, const struct fo_doc_node *n)
{
	switch (n->kind) {
	case FO_DOC_HEADING: fo_draw_heading(out, n->text); break;
	case FO_DOC_PARA: fo_draw_sentence(out, "<p>", n->text, "</p>\n"); break;
	case FO_DOC_REMARK: fo_draw_sentence(out, "<p class=\"remark\">", n->text, "</p>\n"); break;
	case FO_DOC_WARNING: fo_draw_sentence(out, "<p class=\"warning\" role=\"note\">", n->text, "</p>\n"); break;
	case FO_DOC_CODE: fo_draw_code(out, n->text); break;
	case FO_DOC_DETAILS: fo_draw_details_begin(out, n->text, n->fold == FO_DOC_OPEN); break;
	case FO_DOC_DETAILS_END: fo_draw_details_end(out); break;
	case FO_DOC_CARD: fo_draw_card_begin(out, n->text, n->label, n->tone == FO_DOC_BAD); break;
	case FO_DOC_CARD_END: fo_draw_card_end(out); break;
	case FO_DOC_BARS: fo_draw_bars(out, n->picture); break;
	case FO_DOC_LINES: fo_draw_lines(out, n->picture); break;
	case FO_DOC_AREAS: fo_draw_areas(out, n->picture); break;
	case FO_DOC_STACKS: fo_draw_stacks(out, n->picture); break;
	case FO_DOC_WATERFALL: fo_draw_waterfall(out, n->picture); break;
	case FO_DOC_LANES: fo_draw_lanes(out, n->picture); break;
	default: break;
	}
}

void fo_doc_to_html(const struct fo_doc *d, struct fo_str *out)
{
	fo_draw_page_begin(out, d->title, d->lead);
	for (size_t i = 0, next; i < d->nodes; i = next) {
		const struct fo_doc_node *n = &d->node[i];
		next = i + 1;
		if (!fo_doc_shown(n, FO_DOC_PAGE))
			continue;
		if (n->kind == FO_DOC_TABLE)
			next = table(out, d, i);
		else if (n->kind == FO_DOC_VERDICT)
			verdicts(out, d, i, next = fo_doc_run(d, i, FO_DOC_PAGE));
		else if (n->kind == FO_DOC_FACT)
			facts(out, d, i, next = fo_doc_run(d, i, FO_DOC_PAGE));
		else if (n->kind == FO_DOC_ITEM)
			items(out, d, i, next = fo_doc_run(d, i, FO_DOC_PAGE));
		else
			element(out, n);
	}
	fo_draw_page_end(out, d->footer);
}
