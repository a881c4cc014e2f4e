/* Output for terminals: names made visible, documents, and the line that is renewed while something goes on. */
#define _DEFAULT_SOURCE /* ioctl's window size */
#include "cli/cli.h"

#include "base/fs.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *fo_cli_seen(const char *text)
{
	enum { KEPT = 8 }; /* more than any sentence shows at once */
	static _Thread_local struct fo_str kept[KEPT];
	static _Thread_local unsigned next;
	struct fo_str *s = &kept[next++ % KEPT];
	size_t room = 4 * strlen(text) + 8; /* every byte as \xNN at worst */
	char *whole = fo_xmalloc(room);
	s->len = 0;
	fo_str_append(s, "", 0); /* empty is a text, too */
	fo_str_puts(s, fo_str_visible(whole, room, text));
	free(whole);
	return s->data;
}

static size_t width_of(FILE *f)
{
	struct winsize w = { 0 };
	const char *said = getenv("COLUMNS");
	if (!ioctl(fileno(f), TIOCGWINSZ, &w) && w.ws_col > 0)
		return w.ws_col;
	int columns = said ? atoi(said) : 0;
	return columns > 0 ? (size_t)columns : 80;
}

size_t fo_cli_width(FILE *f)
{
	enum { LEAST = 40, MOST = 80 };
	size_t n = width_of(f);
	if (n > MOST)
		return MOST;
	return n < LEAST ? LEAST : n;
}

void fo_cli_print(const struct fo_doc *d)
{
	struct fo_str out = { 0 };
	fo_doc_to_term(d, fo_cli_width(stdout), &out);
	if (out.data)
		fputs(out.data, stdout);
	fo_str_fini(&out);
}

void fo_cli_table(struct fo_table *t, const char *indent, bool head)
{
	struct fo_str out = { 0 };
	fo_table_text(t, &out, fo_cli_width(stdout), indent, head);
	if (out.data)
		fputs(out.data, stdout);
	fo_str_fini(&out);
}

void fo_cli_put(FILE *f, const char *first, const char *lead, const char *fmt, ...)
{
	struct fo_str out = { 0 }, text = { 0 };
	va_list ap;
	fo_str_append(&text, "", 0); /* empty is a text, too */
	va_start(ap, fmt);
	fo_str_vprintf(&text, fmt, ap);
	va_end(ap);
	fo_term_wrap(&out, fo_cli_width(f), first, lead, text.data);
	fputs(out.data, f);
	fo_str_fini(&text);
	fo_str_fini(&out);
}

size_t fo_cli_fit(const char *text, size_t width)
{
	size_t n = 0, word = 0, used = 0;
	while (text[n]) {
		size_t next = n + 1;
		while (((unsigned char)text[next] & 0xc0) == 0x80)
			next++;
		if (used == width)
			return word ? word : n;
		if (text[n] == ' ')
			word = n;
		n = next;
		used++;
	}
	return n;
}

void fo_cli_live(FILE *f, const char *text)
{
	/* The last column stays free: some terminals go to the next line when it is written. */
	fprintf(f, "\r%.*s\033[K", (int)fo_cli_fit(text, width_of(f) - 1), text);
	fflush(f);
}

fo_status fo_cli_page(const struct fo_doc *d, const char *path)
{
	struct fo_str out = { 0 };
	fo_status st = FO_OK;
	fo_doc_to_html(d, &out);
	if (strcmp(path, "-"))
		st = fo_fs_write_atomic(path, out.data, out.len);
	else
		fwrite(out.data, 1, out.len, stdout);
	fo_str_fini(&out);
	return st;
}

struct fo_json *fo_cli_json_begin(void)
{
	struct fo_json *j = fo_xmalloc(sizeof *j);
	fo_json_begin(j, fo_xmalloc(sizeof *j->out), true);
	fo_json_object(j, NULL);
	fo_json_int(j, "schema", 1);
	return j;
}

void fo_cli_json_end(struct fo_json *j)
{
	fo_json_close(j);
	fputs(j->out->data, stdout);
	fo_str_fini(j->out);
	free(j->out);
	free(j);
}
