/* Reads a text line by line: which section it is in, and which reader takes the line. */
#include "audit/host_int.h"

#include "base/fs.h"
#include "base/str.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Logs of a large job fit; what is larger is no ticket. */
enum { FILE_MOST = 64 << 20, LINE_MOST = 16 << 10, FILES_MOST = 4096 };

typedef bool reader_fn(struct fo_host_reader *r, const struct fo_line *l);
/* The first that takes a line has it. The reader of the section that the line is in goes before all. */
static reader_fn *const reader[] = {
	fo_read_smi_query, fo_read_smi_table,  fo_read_smi_topo, fo_read_smi_boost, fo_read_nccl_log, fo_read_ibstat,
	fo_read_ibv,       fo_read_smi_nvlink, fo_read_modules,  fo_read_system,    fo_read_pip,      fo_read_env,
};

/* "$ nvidia-smi", "root@node1:~# env", "[user@node1 ~]$ lscpu", "+ ibstat": a command of a session. Its host, if the
 * prompt names one. */
static bool heading(const struct fo_line *l, const char **host, size_t *host_n)
{
	const char *p = fo_line_trimmed(l), *at, *end;
	*host_n = 0;
	if (fo_host_begins(p, "$ ") || fo_host_begins(p, "# ") || fo_host_begins(p, "+ ") ||
	    fo_host_begins(p, "==> ") || fo_host_begins(p, "--- ") || fo_host_begins(p, "=== ") ||
	    fo_host_begins(p, "## "))
		return true;
	at = strchr(p, '@');
	if (!at || at == p || at - p > 64)
		return false;
	for (const char *c = p; c < at; c++)
		if (!isalnum((unsigned char)*c) && !strchr("[(_-.) ", *c))
			return false;
	end = at + 1 + strspn(at + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");
	const char *mark = strpbrk(end, "$#");
	if (end == at + 1 || (*end != ':' && *end != ' ') || !mark || (mark[1] && mark[1] != ' ') || mark - p > 256)
		return false;
	*host = at + 1;
	*host_n = (size_t)(end - at - 1);
	return true;
}

/* Copies a line without escape sequences of a terminal and without a carriage return. */
static size_t plain(char *out, const char *from, size_t n)
{
	size_t len = 0;
	for (size_t i = 0; i < n && len < LINE_MOST - 1; i++) {
		if (from[i] == 0x1b && i + 1 < n && from[i + 1] == '[') {
			for (i += 2; i < n && !isalpha((unsigned char)from[i]); i++)
				;
			continue;
		}
		if (from[i] && from[i] != '\r')
			out[len++] = from[i];
	}
	out[len] = 0;
	return len;
}

static int indentation(const char *text)
{
	int n = 0;
	for (; *text == ' ' || *text == '\t'; text++)
		n = *text == '\t' ? (n / 8 + 1) * 8 : n + 1;
	return n;
}

static void read_line(struct fo_host_reader *r, char *buf, const char *from, size_t n)
{
	struct fo_line l = { .text = buf, .n = plain(buf, from, n) };
	const char *host;
	size_t host_n;
	l.indent = indentation(buf);
	if (heading(&l, &host, &host_n)) {
		r->kind = FO_KIND_COUNT;
		if (host_n)
			fo_host_named(r, host, host_n);
		return;
	}
	for (size_t i = 0; i < sizeof reader / sizeof *reader; i++)
		if (reader[i](r, &l))
			return;
}

/* A sentence about what the file was taken for; false: for nothing. Lines of NAME=value alone may be anything.
 * hosts: how many it tells about. */
static bool say_what(struct fo_host_reader *r, size_t hosts)
{
	struct fo_str s = { 0 };
	const struct fo_host *h = fo_reader_host(r);
	if (!r->telling)
		r->found[FO_KIND_ENV] = 0;
	bool any;
	for (int k = 0; k < FO_KIND_COUNT; k++)
		if (r->found[k])
			fo_str_printf(&s, "%s%s", s.len ? ", " : "", fo_host_kind_name[k]);
	any = s.len;
	if (any && hosts > 1)
		fo_arena_say(&r->f->arena, &r->f->read, &r->f->reads, "%s: %s, %zu hosts", r->file, s.data, hosts);
	else if (any)
		fo_arena_say(&r->f->arena, &r->f->read, &r->f->reads, "%s: %s%s%s", r->file, s.data,
			     *h->name ? ", host " : "", h->name);
	else
		fo_arena_say(&r->f->arena, &r->f->not_read, &r->f->not_reads,
			     "%s: nothing in it is the output of a command that is read here", r->file);
	fo_str_fini(&s);
	return any;
}

/* A host of which nothing was told. */
static void drop_newest(struct fo_host_facts *f)
{
	struct fo_host *h = &f->host[--f->hosts];
	free(h->gpu);
	free(h->port);
	free(h->variable);
	free(h->link);
}

/* Files that are named rather than read, by how they begin. */
static const char *foreign(const char *text, size_t n)
{
	static const struct {
		const char *mark, *what;
	} row[] = {
		{ "<nvidia_smi_log>", "XML of nvidia-smi -q -x; give the text of nvidia-smi -q" },
		{ "<!DOCTYPE nvidia_smi_log", "XML of nvidia-smi -q -x; give the text of nvidia-smi -q" },
		{ "\x1f\x8b", "compressed; unpack it" },
		{ "%PDF", "a PDF; give the text" },
		{ "PK\x03\x04", "a zip archive; unpack it" },
	};
	char head[512];
	size_t len = n < sizeof head - 1 ? n : sizeof head - 1;
	memcpy(head, text, len);
	head[len] = 0;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (strstr(head, row[i].mark))
			return row[i].what;
	return memchr(text, 0, n) ? "not a text (it holds zero bytes)" : NULL;
}

/* The newest host of the folder, or a new one. */
static size_t host_of(struct fo_host_facts *f, const char *name)
{
	const char *slash = strrchr(name, '/'), *last;
	size_t n = slash ? (size_t)(slash - name) : 0;
	for (size_t i = f->hosts; i-- > 0;)
		if (f->host[i].folder && strlen(f->host[i].folder) == n && !strncmp(f->host[i].folder, name, n))
			return i;
	char *folder = fo_arena_printf(&f->arena, "%.*s", (int)n, name);
	last = strrchr(folder, '/');
	/* Only of several folders do their names name hosts. */
	if (f->hosts == 1 && !f->host[0].named && f->host[0].folder) {
		const char *first = strrchr(f->host[0].folder, '/');
		f->host[0].name = first ? first + 1 : f->host[0].folder;
	}
	const char *own = last ? last + 1 : folder;
	return fo_host_new(f, f->hosts ? own : "", folder);
}

/* Does the text tell anything? */
static bool read_text(struct fo_host_facts *f, size_t host, const char *file, const char *text, size_t len)
{
	struct fo_host_reader r = { .f = f, .file = file, .host = host, .kind = FO_KIND_COUNT, .gpu = -1, .port = -1 };
	size_t others = f->hosts - 1; /* beside the one that it begins with */
	char *buf = fo_xmalloc(LINE_MOST);
	for (size_t at = 0; at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - text) - at : len - at;
		r.line++;
		read_line(&r, buf, text + at, n);
		at += n + 1;
	}
	free(buf);
	return say_what(&r, f->hosts - others);
}

static const char *shown(struct fo_host_facts *f, const char *name)
{
	char text[1024];
	return fo_arena_strdup(&f->arena, fo_str_visible(text, sizeof text, name));
}

void fo_host_read_as(struct fo_host_facts *f, size_t host, const char *name, const char *text, size_t len)
{
	int64_t reads = f->reads, not_reads = f->not_reads;
	read_text(f, host, shown(f, name), text, len);
	/* One sentence about all of a machine is said elsewhere. */
	f->reads = reads;
	f->not_reads = not_reads;
}

void fo_host_read(struct fo_host_facts *f, const char *name, const char *text, size_t len)
{
	const char *what = foreign(text, len), *file = shown(f, name);
	if (what || !len) {
		fo_arena_say(&f->arena, &f->not_read, &f->not_reads, "%s: %s", file, what ? what : "empty");
		return;
	}
	size_t hosts = f->hosts, host = host_of(f, file);
	if (!read_text(f, host, file, text, len) && f->hosts == hosts + 1)
		drop_newest(f);
}

static fo_status read_one(struct fo_host_facts *f, const char *path)
{
	struct fo_arena text = { 0 };
	char *data;
	size_t len;
	fo_status st = fo_fs_read_regular(&text, path, FILE_MOST, &data, &len);
	if (st == FO_OK)
		fo_host_read(f, path, data, len);
	fo_arena_fini(&text);
	return st;
}

fo_status fo_host_read_file(struct fo_host_facts *f, const char *path)
{
	struct fo_arena list = { 0 };
	char **file;
	size_t n;
	if (!fo_fs_is_dir(path))
		return read_one(f, path);
	fo_status st = fo_fs_list(&list, path, FILES_MOST, &file, &n);
	if (st == FO_OK && !n)
		st = fo_fail(FO_EARG, "'%s' has no files", path);
	for (size_t i = 0; st == FO_OK && i < n; i++)
		st = read_one(f, file[i]);
	fo_arena_fini(&list);
	return st;
}
