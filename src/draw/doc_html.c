/* A document as a page. */
#include "base/output.h"
#include "draw/doc_int.h"
#include "draw/draw_int.h"

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

/* Is this a number ("12.3 %", "1.50 x", "$4.20/h", "-"), which can be set larger than words? */
static bool is_number(const char *s)
{
	s += *s == '$' || *s == '-' || *s == '+';
	return (*s >= '0' && *s <= '9') || !*s;
}

/* Facts become tiles in filled rows: up to five stand beside each other, more of them three or four in a row, the last
 * row's then wider. */
static void facts(struct fo_str *out, const struct fo_doc *d, size_t from, size_t to)
{
	size_t count = 0;
	for (size_t i = from; i < to; i++)
		count += fo_doc_shown(&d->node[i], FO_DOC_PAGE);
	if (count > 5)
		count = count == 6 || count == 9 ? 3 : 4;
	fo_str_printf(out, "<dl class=\"facts c%zu\">\n", count);
	for (size_t i = from; i < to; i++) {
		const struct fo_doc_node *n = &d->node[i];
		if (!fo_doc_shown(n, FO_DOC_PAGE))
			continue;
		fo_draw_sentence(out, "<div><dt>", n->label, "</dt>");
		fo_draw_text(out, is_number(n->text) ? "<dd class=\"v\">" : "<dd class=\"v w\">", n->text, "</dd>");
		if (n->note)
			fo_draw_text(out, "<dd class=\"n\">", n->note, "</dd>");
		fo_str_puts(out, "</div>\n");
	}
	fo_str_puts(out, "</dl>\n");
}

static void items(struct fo_str *out, const struct fo_doc *d, size_t from, size_t to)
{
	fo_str_puts(out, "<ul>\n");
	for (size_t i = from; i < to; i++)
		if (fo_doc_shown(&d->node[i], FO_DOC_PAGE))
			fo_draw_sentence(out, "<li>", d->node[i].text, "</li>\n");
	fo_str_puts(out, "</ul>\n");
}

static bool is_right(const struct fo_doc_node *head, size_t i) { return head->text[i] == 'r' || head->text[i] == 'R'; }

/* Does a narrow page show the table as a list, which names the column beside each cell? */
static bool is_list(const struct fo_doc_node *head)
{
	enum { LIST = 3 }; /* columns from which on a narrow page has no room */
	return head->cols >= LIST && (head->shape == FO_DRAW_FITTED || head->shape == FO_DRAW_FULL);
}

static void row(struct fo_str *out, const struct fo_doc_node *head, const struct fo_doc_node *n)
{
	fo_str_puts(out, "<tr");
	if (n->text)
		fo_draw_escaped(out, " title=\"", n->text, "\"");
	fo_str_puts(out, ">");
	for (size_t i = 0; i < n->cols; i++) {
		size_t indent = strspn(n->cell[i], " "); /* what is indented on a terminal is so on a page */
		fo_str_puts(out, is_right(head, i) ? "<td class=\"r\"" : "<td");
		if (is_list(head))
			fo_draw_escaped(out, " data-l=\"", head->cell[i], "\"");
		fo_draw_text(out, indent ? ">\u2003" : ">", n->cell[i] + indent, "</td>");
	}
	fo_str_puts(out, "</tr>\n");
}

/* Returns one past the table's last row. */
static size_t table(struct fo_str *out, const struct fo_doc *d, size_t at)
{
	static const char *const shape[] = { [FO_DRAW_FITTED] = "",
					     [FO_DRAW_FULL] = "slim full",
					     [FO_DRAW_SLIM] = "slim",
					     [FO_DRAW_SLIM_FULL] = "slim full" };
	const struct fo_doc_node *head = &d->node[at];
	const char *kind = shape[head->shape];
	if (is_list(head))
		kind = head->shape == FO_DRAW_FULL ? "list full" : "list";
	fo_str_printf(out, "<table class=\"%s\">\n", kind);
	if (head->label)
		fo_draw_text(out, "<caption>", head->label, "</caption>\n");
	fo_str_puts(out, "<thead><tr>");
	for (size_t i = 0; i < head->cols; i++)
		fo_draw_escaped(out, is_right(head, i) ? "<th scope=\"col\" class=\"r\">" : "<th scope=\"col\">",
				head->cell[i], "</th>");
	fo_str_puts(out, "</tr></thead>\n<tbody>\n");
	for (at++; at < d->nodes && d->node[at].kind == FO_DOC_ROW; at++)
		if (d->node[at].cols && fo_doc_shown(&d->node[at], FO_DOC_PAGE))
			row(out, head, &d->node[at]);
	fo_str_puts(out, "</tbody>\n</table>\n");
	return at;
}

static void card(struct fo_str *out, const struct fo_doc_node *n)
{
	fo_str_puts(out, n->tone == FO_DOC_BAD ? "<section class=\"card serious\">" : "<section class=\"card\">");
	if (n->label)
		fo_draw_sentence(out, "<p class=\"tag\">", n->label, "</p>");
	fo_draw_sentence(out, "<h3>", n->text, "</h3>\n");
}

/* Prints an element that needs no others. */
static void element(struct fo_str *out, const struct fo_doc_node *n)
{
	switch (n->kind) {
	case FO_DOC_HEADING: fo_draw_sentence(out, "<h2>", n->text, "</h2>\n"); break;
	case FO_DOC_PARA: fo_draw_sentence(out, "<p>", n->text, "</p>\n"); break;
	case FO_DOC_REMARK: fo_draw_remark(out, n->text); break;
	case FO_DOC_WARNING: fo_draw_sentence(out, "<p class=\"warning\" role=\"note\">", n->text, "</p>\n"); break;
	case FO_DOC_CODE: fo_draw_code(out, n->text); break;
	case FO_DOC_DETAILS:
		fo_str_puts(out, n->fold == FO_DOC_OPEN ? "<details open=\"open\">" : "<details>");
		fo_draw_sentence(out, "<summary>", n->text, "</summary>\n");
		break;
	case FO_DOC_DETAILS_END: fo_str_puts(out, "</details>\n"); break;
	case FO_DOC_CARD: card(out, n); break;
	case FO_DOC_CARD_END: fo_str_puts(out, "</section>\n"); break;
	case FO_DOC_BARS: fo_draw_bars(out, n->picture); break;
	case FO_DOC_LINES: fo_draw_lines(out, n->picture); break;
	case FO_DOC_POINTS: fo_draw_points(out, n->picture); break;
	case FO_DOC_AREAS: fo_draw_areas(out, n->picture); break;
	case FO_DOC_STACKS: fo_draw_stacks(out, n->picture); break;
	case FO_DOC_WATERFALL: fo_draw_waterfall(out, n->picture); break;
	case FO_DOC_LANES: fo_draw_lanes(out, n->picture); break;
	case FO_DOC_SLOTS: fo_draw_slots(out, n->picture); break;
	default: break;
	}
}

void fo_doc_to_html(const struct fo_doc *d, struct fo_str *out)
{
	/* The policy lets a browser fetch and run nothing, whatever a string from a run directory may look like. */
	fo_str_puts(out, FO_OUTPUT_PAGE_HEAD);
	fo_draw_escaped(out, "<title>", d->title, "</title>\n<style>\n");
	fo_str_puts(out, fo_draw_style);
	fo_draw_text(out, "</style>\n</head>\n<body>\n<main>\n<h1>", d->title, "</h1>\n");
	if (d->lead)
		fo_draw_text(out, "<p class=\"lead\">", d->lead, "</p>\n");
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
	fo_draw_text(out, "<footer>", d->footer, "</footer>\n</main>\n</body>\n</html>\n");
}
