/* Texts made from the options table: --help, man pages, sample files. */
#include "base/json.h"
#include "base/opt_int.h"

#include <string.h>

enum { WIDTH = 80, INDENT = 28 };

static size_t group_length(const char *key)
{
	const char *dot = strchr(key, '.');
	return dot ? (size_t)(dot - key) : 0;
}

static bool same_group(const char *a, const char *b)
{
	size_t n = group_length(a);
	return n == group_length(b) && !memcmp(a, b, n);
}

/* Is row i the first of its group? Rows of a group need not stand together in the table. */
static bool first_of_group(const struct fo_opt *rows, int i)
{
	for (int k = 0; k < i; k++)
		if (same_group(rows[k].key, rows[i].key))
			return false;
	return true;
}

void fo_opt_wrapped(struct fo_str *out, const char *text, int column, const char *lead, int width)
{
	bool first = true;
	while (*text) {
		size_t n = strcspn(text, " ");
		int columns = 0;
		for (size_t i = 0; i < n; i++)
			columns += ((unsigned char)text[i] & 0xc0) != 0x80;
		if (!first && column + 1 + columns > width) {
			fo_str_printf(out, "\n%s", lead);
			column = (int)strlen(lead);
		} else if (!first) {
			fo_str_puts(out, " ");
			column++;
		}
		fo_str_append(out, text, n);
		column += columns;
		first = false;
		text += n;
		while (*text == ' ')
			text++;
	}
	fo_str_puts(out, "\n");
}

/* "optimizer steps to run (default 1000; 1 to 1e9 steps)" */
static void describe(const struct fo_opt *row, struct fo_str *out)
{
	struct fo_str range = { 0 };
	if (row->type == FO_OPT_T_ENUM || (row->type == FO_OPT_T_BOOL && row->names))
		fo_opt_expected(row, &range);
	else
		fo_opt_range(row, &range);
	if (!range.len && row->unit && *row->unit)
		fo_str_puts(&range, row->unit);
	fo_str_puts(out, row->help);
	bool dfl = row->dfl && *row->dfl && !(fo_opt_is_switch(row) && !strcmp(row->dfl, "false"));
	if (dfl && range.len)
		fo_str_printf(out, " (default %s; %s)", row->dfl, range.data);
	else if (dfl)
		fo_str_printf(out, " (default %s)", row->dfl);
	else if (range.len)
		fo_str_printf(out, " (%s)", range.data);
	fo_str_fini(&range);
}

static bool is_on(const struct fo_opt *row) { return fo_opt_is_switch(row) && row->dfl && !strcmp(row->dfl, "true"); }

static void help_row(const struct fo_opt *row, const char *flag, struct fo_str *out)
{
	struct fo_str name = { 0 }, text = { 0 };
	if (fo_opt_is_switch(row))
		fo_str_printf(&name, "  --%s%s", is_on(row) ? "[no-]" : "", flag);
	else if (row->bare)
		fo_str_printf(&name, "  --%s[=%s]", flag, row->arg);
	else
		fo_str_printf(&name, "  --%s %s", flag, row->arg);
	describe(row, &text);
	char lead[INDENT + 1];
	memset(lead, ' ', INDENT);
	lead[INDENT] = 0;
	fo_str_puts(out, name.data);
	if (name.len + 2 > INDENT)
		fo_str_printf(out, "\n%s", lead);
	else
		fo_str_append(out, lead, INDENT - name.len);
	fo_opt_wrapped(out, text.data, INDENT, lead, WIDTH);
	fo_str_fini(&name);
	fo_str_fini(&text);
}

void fo_opt_help(const struct fo_opt *rows, struct fo_str *out)
{
	bool dotted = false;
	for (int i = 0; rows && rows[i].key; i++) {
		if (!first_of_group(rows, i))
			continue;
		size_t n = group_length(rows[i].key);
		if (n > 0 && !strcmp(fo_opt_flag_name(rows, i), rows[i].key)) {
			dotted = true;
			fo_str_printf(out, "%s%.*s:\n", i ? "\n" : "", (int)n, rows[i].key);
		} else {
			fo_str_printf(out, "%sOptions:\n", i ? "\n" : "");
		}
		for (int k = i; rows[k].key; k++)
			if (same_group(rows[k].key, rows[i].key))
				help_row(&rows[k], fo_opt_flag_name(rows, k), out);
	}
	if (dotted)
		fo_str_puts(out, "\nThe last part of a name is enough where no other option ends in it.\n");
}

/* A YAML scalar: plain where nothing can be misread, else double-quoted (a JSON string is one). */
static void put_scalar(struct fo_str *out, const char *text)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-";
	size_t n = strlen(text);
	if (n > 0 && strspn(text, plain) == n && text[0] != '-' && text[0] != '.' && text[0] != '+')
		fo_str_puts(out, text);
	else
		fo_json_string(out, text, n);
}

static void sample_row(struct fo_opt_set *s, int i, const char *lead, struct fo_str *out)
{
	const struct fo_opt *row = &s->rows[i];
	struct fo_str text = { 0 }, more = { 0 };
	describe(row, &text);
	fo_str_printf(&more, "%s# ", lead);
	fo_str_puts(out, more.data);
	fo_opt_wrapped(out, text.data, (int)more.len, more.data, WIDTH);
	const char *key = row->key + group_length(row->key);
	key += *key == '.';
	/* A text can be set and empty; every other type has a text when it has a value. */
	bool set = row->dfl || s->origin[i].from != FO_ORIGIN_DEFAULT;
	/* A value that follows from another option is written as a comment: it changes when that option does. */
	bool follows = s->origin[i].from == FO_ORIGIN_DEFAULT && s->origin[i].where && *s->origin[i].where;
	if (set) {
		fo_str_printf(out, "%s%s%s: ", lead, follows ? "# " : "", key);
		put_scalar(out, fo_opt_value_text(s, i));
		fo_str_puts(out, "\n");
	} else {
		fo_str_printf(out, "%s# %s: %s\n", lead, key, row->arg);
	}
	fo_str_fini(&text);
	fo_str_fini(&more);
}

void fo_opt_sample_yaml(struct fo_opt_set *s, struct fo_str *out)
{
	for (int i = 0; s->rows && s->rows[i].key; i++) {
		if (!first_of_group(s->rows, i))
			continue;
		size_t n = group_length(s->rows[i].key);
		if (i)
			fo_str_puts(out, "\n");
		if (n > 0)
			fo_str_printf(out, "%.*s:\n", (int)n, s->rows[i].key);
		for (int k = i; s->rows[k].key; k++)
			if (same_group(s->rows[k].key, s->rows[i].key))
				sample_row(s, k, n > 0 ? "  " : "", out);
	}
}

/* roff reads '\' everywhere and '.' or ''' at the start of a line; a short word after a macro may be a macro. */
static void put_roff(struct fo_str *out, const char *text, size_t n, bool line_start)
{
	for (size_t i = 0; i < n; i++) {
		if (text[i] == '\\')
			fo_str_puts(out, "\\e");
		else if (i == 0 && line_start && (text[i] == '.' || text[i] == '\''))
			fo_str_printf(out, "\\&%c", text[i]);
		else if (n == 2 && text[0] == '-' && text[1] == '-') /* alone it would be read as a dash */
			fo_str_puts(out, "\\-");
		else
			fo_str_append(out, text + i, 1);
	}
}

/* Writes a paragraph in lines of at most 76 bytes, each sentence on a line of its own, as mdoc wants. */
static void put_roff_words(struct fo_str *out, const char *text)
{
	size_t used = 0;
	while (*text) {
		size_t n = strcspn(text, " \n");
		if (n == 0) {
			text++;
			continue;
		}
		if (used > 0 && used + 1 + n > 76) {
			fo_str_puts(out, "\n");
			used = 0;
		} else if (used > 0) {
			fo_str_puts(out, " ");
			used++;
		}
		put_roff(out, text, n, used == 0);
		used += n;
		char last = text[n - 1] == ')' && n > 1 ? text[n - 2] : text[n - 1];
		text += n;
		if (last == '.' || last == '!' || last == '?') {
			fo_str_puts(out, "\n");
			used = 0;
		}
	}
	if (used > 0)
		fo_str_puts(out, "\n");
}

void fo_opt_mdoc_text(struct fo_str *out, const char *text)
{
	bool literal = false, fresh = true;
	size_t indent = 0; /* of the first line of a display: deeper lines keep the rest of theirs */
	while (*text) {
		size_t n = strcspn(text, "\n");
		bool blank = strspn(text, " \t") >= n, indented = !blank && (*text == ' ' || *text == '\t');
		if (literal && !indented && !blank) {
			fo_str_puts(out, ".Ed\n.Pp\n");
			literal = false;
		} else if (!literal && indented) {
			fo_str_puts(out, ".Bd -literal -offset indent\n");
			literal = true;
			indent = strspn(text, " \t");
		} else if (!literal && !blank && !fresh) {
			fo_str_puts(out, ".Pp\n");
		}
		if (blank) {
			n += text[n] == '\n';
		} else if (literal) {
			size_t skip = strspn(text, " \t");
			skip = skip < indent ? skip : indent;
			put_roff(out, text + skip, n - skip, true);
			fo_str_puts(out, "\n");
			n += text[n] == '\n';
		} else {
			/* A paragraph ends at a blank or an indented line. */
			while (text[n] == '\n' && text[n + 1] && text[n + 1] != '\n' && text[n + 1] != ' ' &&
			       text[n + 1] != '\t')
				n += 1 + strcspn(text + n + 1, "\n");
			struct fo_str words = { 0 };
			fo_str_append(&words, text, n);
			put_roff_words(out, words.data);
			fo_str_fini(&words);
			n += text[n] == '\n';
		}
		fresh = false;
		text += n;
	}
	if (literal)
		fo_str_puts(out, ".Ed\n");
}

void fo_opt_mdoc(const struct fo_opt *rows, struct fo_str *out)
{
	if (!rows || !rows[0].key)
		return;
	fo_str_puts(out, ".Sh OPTIONS\n.Bl -tag -width Ds\n");
	for (int i = 0; rows[i].key; i++) {
		struct fo_str text = { 0 };
		fo_str_printf(out, ".It Fl -%s%s", is_on(&rows[i]) ? "[no-]" : "", fo_opt_flag_name(rows, i));
		if (rows[i].bare) {
			fo_str_printf(out, " Ns Op = Ns Ar %s", rows[i].arg);
		} else if (!fo_opt_is_switch(&rows[i])) {
			fo_str_puts(out, " Ar \\&");
			put_roff(out, rows[i].arg, strlen(rows[i].arg), false);
		}
		fo_str_puts(out, "\n");
		describe(&rows[i], &text);
		put_roff_words(out, text.data);
		fo_str_fini(&text);
	}
	fo_str_puts(out, ".El\n");
}
