/* Output for terminals: names made visible, documents, and the line that is renewed while something goes on. */
#define _DEFAULT_SOURCE /* ioctl's window size */
#include "cli/cli.h"

#include "base/fs.h"

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

/* Columns for text on f: 80, fewer on a terminal that is narrower, at least 40. */
static size_t columns_of(FILE *f)
{
	enum { LEAST = 40, MOST = 80 };
	size_t n = width_of(f);
	if (n > MOST)
		return MOST;
	return n < LEAST ? LEAST : n;
}

void fo_cli_print(FILE *f, const struct fo_doc *d)
{
	struct fo_str out = { 0 };
	fo_doc_to_term(d, columns_of(f), &out);
	if (out.data)
		fputs(out.data, f);
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

bool fo_cli_is_live(FILE *f)
{
	const char *term = getenv("TERM");
	return isatty(fileno(f)) && (!term || strcmp(term, "dumb"));
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

bool fo_cli_show(const struct fo_cli_call *call)
{
	fo_cli_print(stdout, call->doc);
	fo_doc_fini(call->doc);
	*call->doc = (struct fo_doc){ 0 };
	struct fo_str *out = call->json ? call->json->out : NULL;
	bool some = out && out->len > strlen("{\n  \"schema\": 1");
	if (some) {
		fo_json_close(call->json);
		fputs(out->data, stdout);
	}
	if (out)
		fo_str_fini(out);
	return some;
}
