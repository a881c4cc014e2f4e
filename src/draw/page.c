/* Escaping, figures and the svg element: shared by text and pictures of a page. */
#include "draw/draw_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Which spaces of a text do not break: none, those before a percent sign, those before a unit, too. */
enum glue { NO_GLUE, GLUE_PERCENT, GLUE_UNITS };

/* Does the space at text[at] stand between a figure and its unit? */
static bool is_glued(const char *text, size_t at, enum glue glue)
{
	static const char units[] =
		" k M G T x us ms s min h B KiB MiB GiB TiB points FLOP/s GFLOP/s TFLOP/s GB/s TB/s ";
	char word[12];
	if (glue == NO_GLUE || text[at] != ' ')
		return false;
	if (text[at + 1] == '%')
		return true;
	if (glue != GLUE_UNITS || !at || !isdigit((unsigned char)text[at - 1]))
		return false;
	snprintf(word, sizeof word, " %.*s ", (int)strcspn(text + at + 1, " ,.;:)"), text + at + 1);
	return strstr(units, word) != NULL;
}

static void put(struct fo_str *out, const char *text, size_t n, enum glue glue)
{
	struct fo_str whole = { 0 };
	fo_str_append(&whole, "", 0); /* empty is a text, too */
	for (size_t i = 0; i < n; i++)
		if (is_glued(text, i, glue))
			fo_str_puts(&whole, "\u00a0");
		else
			fo_str_append(&whole, text + i, 1);
	fo_str_xml(out, whole.data);
	fo_str_fini(&whole);
}

/* Would a browser break the word at a hyphen that belongs to it, in an option ("--run.dir=x") or a date? A line of a
 * telephone has no room for longer ones; a quoted value goes on after its first space. */
static bool is_whole(const char *word, size_t n)
{
	enum { MOST = 28 };
	size_t open = strspn(word, "'(\"");
	if (n <= open || n > MOST || memchr(word + open, '\'', n - open - 1))
		return false;
	word += open;
	return !strncmp(word, "--", 2) || (strspn(word, "0123456789") == 4 && word[4] == '-');
}

static void put_words(struct fo_str *out, const char *text, enum glue glue)
{
	size_t from = 0, n;
	for (size_t i = strspn(text, " "); text[i]; i += n + strspn(text + i + n, " ")) {
		n = strcspn(text + i, " ");
		if (!is_whole(text + i, n))
			continue;
		put(out, text + from, i - from, glue);
		fo_str_puts(out, "<span class=\"k\">");
		put(out, text + i, n, glue);
		fo_str_puts(out, "</span>");
		from = i + n;
	}
	put(out, text + from, strlen(text + from), glue);
}

void fo_draw_escaped(struct fo_str *out, const char *before, const char *text, const char *after)
{
	text = text ? text : "";
	fo_str_puts(out, before);
	put(out, text, strlen(text), GLUE_PERCENT);
	fo_str_puts(out, after);
}

void fo_draw_text(struct fo_str *out, const char *before, const char *text, const char *after)
{
	fo_str_puts(out, before);
	put_words(out, text ? text : "", GLUE_UNITS);
	fo_str_puts(out, after);
}

void fo_draw_code(struct fo_str *out, const char *text)
{
	fo_str_puts(out, "<pre>");
	put_words(out, text, NO_GLUE);
	fo_str_puts(out, "</pre>\n");
}

bool fo_draw_plain_word(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz");
	return n && (!text[n] || strchr(" ,:;", text[n]));
}

void fo_draw_sentence(struct fo_str *out, const char *open, const char *text, const char *close)
{
	text = text ? text : "";
	fo_str_puts(out, open);
	if (fo_draw_plain_word(text))
		fo_str_printf(out, "%c", *text++ - 'a' + 'A');
	fo_draw_text(out, "", text, close);
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
		fo_draw_text(out, "<figcaption>", title, "</figcaption>\n");
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
