/* Escaping, figures and the svg element: shared by text and pictures of a page. */
#include "draw/draw_int.h"

#include <string.h>

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

bool fo_draw_plain_word(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz");
	return n && (!text[n] || strchr(" ,:;", text[n]));
}

void fo_draw_sentence(struct fo_str *out, const char *open, const char *text, const char *close)
{
	text = text ? text : "";
	if (!fo_draw_plain_word(text)) {
		fo_draw_escaped(out, open, text, close);
		return;
	}
	fo_str_printf(out, "%s%c", open, *text - 'a' + 'A');
	fo_draw_escaped(out, "", text + 1, close);
}

void fo_draw_remark(struct fo_str *out, const char *text)
{
	if (text)
		fo_draw_sentence(out, "<p class=\"remark\">", text, "</p>\n");
}

void fo_figure_begin(struct fo_str *out, const char *title, const char *kind)
{
	fo_str_printf(out, "<figure class=\"%s\">\n", kind);
	if (title)
		fo_draw_escaped(out, "<figcaption>", title, "</figcaption>\n");
}

void fo_figure_empty(struct fo_str *out)
{
	fo_str_puts(out, "<div class=\"none\">Nothing was recorded for this picture.</div>\n");
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
