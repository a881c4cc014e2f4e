#include "draw/draw_int.h"

#include "base/output.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LIST = 3 }; /* columns from which on a narrow page has no room */

/* A percent sign stays with its number. */
void fo_draw_escaped(struct fo_str *out, const char *before, const char *text, const char *after)
{
	struct fo_str whole = { 0 };
	text = text ? text : "";
	fo_str_puts(out, before);
	for (const char *gap; (gap = strstr(text, " %")); text = gap + 1)
		fo_str_printf(&whole, "%.*s\u00a0", (int)(gap - text), text);
	fo_str_puts(&whole, text);
	fo_str_xml(out, whole.data ? whole.data : "");
	fo_str_fini(&whole);
	fo_str_puts(out, after);
}

void fo_draw_sentence(struct fo_str *out, const char *open, const char *text, const char *close)
{
	text = text ? text : "";
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz");
	if (!n || (text[n] && !strchr(" ,:;", text[n]))) {
		fo_draw_escaped(out, open, text, close);
		return;
	}
	fo_str_printf(out, "%s%c", open, *text - 'a' + 'A');
	fo_draw_escaped(out, "", text + 1, close);
}

/* The policy lets a browser fetch and run nothing, whatever a string from a run directory may look like. */
void fo_draw_page_begin(struct fo_str *out, const char *title, const char *lead)
{
	fo_str_puts(out, FO_OUTPUT_PAGE_HEAD);
	fo_draw_escaped(out, "<title>", title, "</title>\n<style>\n");
	fo_str_puts(out, fo_draw_style);
	fo_draw_escaped(out, "</style>\n</head>\n<body>\n<main>\n<h1>", title, "</h1>\n");
	if (lead)
		fo_draw_escaped(out, "<p class=\"lead\">", lead, "</p>\n");
}

void fo_draw_page_end(struct fo_str *out, const char *footer)
{
	fo_draw_escaped(out, "<footer>", footer, "</footer>\n</main>\n</body>\n</html>\n");
}

void fo_draw_heading(struct fo_str *out, const char *text) { fo_draw_sentence(out, "<h2>", text, "</h2>\n"); }

static void paragraph(struct fo_str *out, const char *open, const char *fmt, va_list ap)
{
	char text[4096];
	vsnprintf(text, sizeof text, fmt, ap);
	fo_draw_escaped(out, open, text, "</p>\n");
}

void fo_draw_text(struct fo_str *out, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	paragraph(out, "<p>", fmt, ap);
	va_end(ap);
}

void fo_draw_remark(struct fo_str *out, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	paragraph(out, "<p class=\"remark\">", fmt, ap);
	va_end(ap);
}

void fo_draw_warning(struct fo_str *out, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	paragraph(out, "<p class=\"warning\" role=\"note\">", fmt, ap);
	va_end(ap);
}

/* To copy: every byte as it is. */
void fo_draw_code(struct fo_str *out, const char *text)
{
	fo_str_puts(out, "<pre>");
	fo_str_xml(out, text ? text : "");
	fo_str_puts(out, "</pre>\n");
}

void fo_draw_details_begin(struct fo_str *out, const char *summary, bool open)
{
	fo_draw_sentence(out, open ? "<details open=\"open\"><summary>" : "<details><summary>", summary,
			 "</summary>\n");
}

void fo_draw_details_end(struct fo_str *out) { fo_str_puts(out, "</details>\n"); }

void fo_draw_card_begin(struct fo_str *out, const char *title, const char *tag, bool serious)
{
	fo_str_puts(out, serious ? "<section class=\"card serious\">" : "<section class=\"card\">");
	if (tag)
		fo_draw_sentence(out, "<p class=\"tag\">", tag, "</p>");
	fo_draw_sentence(out, "<h3>", title, "</h3>\n");
}

void fo_draw_card_end(struct fo_str *out) { fo_str_puts(out, "</section>\n"); }

/* "12.3 %", "1.50 x", "$4.20/h", "-": what a reader takes in at a glance even when it is large. */
static bool is_number(const char *s)
{
	s += *s == '$' || *s == '-' || *s == '+';
	return (*s >= '0' && *s <= '9') || !*s;
}

void fo_draw_facts(struct fo_str *out, const struct fo_draw_fact *fact, size_t n)
{
	int across = n == 5 || n == 6 || n == 9 ? 3 : n > 4 ? 4 : 0;
	fo_str_puts(out, across == 3 ? "<dl class=\"facts c3\">\n"
			 : across    ? "<dl class=\"facts c4\">\n"
				     : "<dl class=\"facts\">\n");
	for (size_t i = 0; i < n; i++) {
		fo_draw_sentence(out, "<div><dt>", fact[i].name, "</dt>");
		fo_draw_escaped(
			out, is_number(fact[i].value ? fact[i].value : "") ? "<dd class=\"v\">" : "<dd class=\"v w\">",
			fact[i].value, "</dd>");
		if (fact[i].note)
			fo_draw_escaped(out, "<dd class=\"n\">", fact[i].note, "</dd>");
		fo_str_puts(out, "</div>\n");
	}
	fo_str_puts(out, "</dl>\n");
}

void fo_draw_table_begin(struct fo_draw_table *t, struct fo_str *out, const char *caption, const char *align,
			 const char *const *head)
{
	fo_draw_table_shaped(t, out, FO_DRAW_FITTED, caption, align, head);
}

void fo_draw_table_shaped(struct fo_draw_table *t, struct fo_str *out, enum fo_draw_shape shape, const char *caption,
			  const char *align, const char *const *head)
{
	size_t cols = strlen(align);
	struct fo_draw_table made = { .out = out,
				      .align = align,
				      .cols = cols < FO_DRAW_COLUMNS ? (int)cols : FO_DRAW_COLUMNS };
	bool wide = shape == FO_DRAW_FULL || shape == FO_DRAW_SLIM_FULL;
	made.list = made.cols >= LIST && (shape == FO_DRAW_FITTED || shape == FO_DRAW_FULL);
	*t = made;
	const char *kind = t->list ? "list" : "slim";
	if (shape == FO_DRAW_FITTED && !t->list)
		kind = "";
	fo_str_printf(out, *kind || wide ? "<table class=\"%s%s\">\n" : "<table>\n", kind, wide ? " full" : "");
	if (caption)
		fo_draw_escaped(out, "<caption>", caption, "</caption>\n");
	fo_str_puts(out, "<thead><tr>");
	for (int i = 0; i < t->cols; i++) {
		snprintf(t->head[i], sizeof t->head[i], "%s", head[i] ? head[i] : "");
		fo_draw_escaped(out, align[i] == 'r' ? "<th scope=\"col\" class=\"r\">" : "<th scope=\"col\">", head[i],
				"</th>");
	}
	fo_str_puts(out, "</tr></thead>\n<tbody>\n");
}

void fo_draw_table_row(struct fo_draw_table *t, const char *const *cell) { fo_draw_table_row_titled(t, NULL, cell); }

void fo_draw_table_row_titled(struct fo_draw_table *t, const char *title, const char *const *cell)
{
	fo_str_puts(t->out, "<tr");
	if (title)
		fo_draw_escaped(t->out, " title=\"", title, "\"");
	fo_str_puts(t->out, ">");
	for (int i = 0; i < t->cols; i++) {
		fo_str_puts(t->out, t->align[i] == 'r' ? "<td class=\"r\"" : "<td");
		if (t->list)
			fo_draw_escaped(t->out, " data-l=\"", t->head[i], "\"");
		/* What is indented on a terminal is so on a page. */
		const char *text = cell[i] ? cell[i] : "";
		size_t indent = strspn(text, " ");
		fo_draw_escaped(t->out, indent ? ">\u2003" : ">", text + indent, "</td>");
	}
	fo_str_puts(t->out, "</tr>\n");
}

void fo_draw_table_end(struct fo_draw_table *t) { fo_str_puts(t->out, "</tbody>\n</table>\n"); }

void fo_figure_begin(struct fo_str *out, const char *title, const char *kind)
{
	fo_str_printf(out, "<figure class=\"%s\">\n", kind);
	if (title)
		fo_draw_escaped(out, "<figcaption>", title, "</figcaption>\n");
}

void fo_figure_end(struct fo_str *out) { fo_str_puts(out, "</figure>\n"); }

void fo_svg_begin(struct fo_str *out, const char *title, const char *desc, int width, int height)
{
	fo_str_printf(out,
		      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
		      "role=\"img\"",
		      width, height);
	fo_draw_escaped(out, " aria-label=\"", title, "\">");
	if (desc)
		fo_draw_escaped(out, "<desc>", desc, "</desc>\n");
}
