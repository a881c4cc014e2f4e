/* The facts: where they are kept, how they are put down and asked for. */
#include "audit/host_int.h"

#include "base/str.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KIND_WORDS(name, words, once) words,
const char *const fo_host_kind_name[FO_KIND_COUNT] = { FO_HOST_KINDS(KIND_WORDS) };
#define KIND_ONCE(name, words, once) once,
static const bool kind_once[FO_KIND_COUNT] = { FO_HOST_KINDS(KIND_ONCE) };

/* Bounds on what a hostile text may ask for. */
enum { HOSTS_MOST = 4096, GPUS_MOST = 128, PORTS_MOST = 1024, VARIABLES_MOST = 512, TEXT_MOST = 512 };

void fo_host_facts_fini(struct fo_host_facts *f)
{
	for (size_t i = 0; i < f->hosts; i++) {
		free(f->host[i].gpu);
		free(f->host[i].port);
		free(f->host[i].variable);
		free(f->host[i].link);
	}
	free(f->host);
	fo_arena_fini(&f->arena);
	*f = (struct fo_host_facts){ 0 };
}

/* ---- asking ---- */

static const struct fo_host_fact *told(const struct fo_host_fact *f) { return f->file ? f : NULL; }
const struct fo_host_fact *fo_host_told(const struct fo_host *h, enum fo_host_id id) { return told(&h->fact[id]); }
const struct fo_host_fact *fo_gpu_told(const struct fo_host_gpu *g, enum fo_gpu_id id) { return told(&g->fact[id]); }
const struct fo_host_fact *fo_port_told(const struct fo_host_port *p, enum fo_port_id id) { return told(&p->fact[id]); }

const struct fo_host_fact *fo_host_variable(const struct fo_host *h, const char *name)
{
	for (size_t i = 0; i < h->variables; i++)
		if (!strcmp(h->variable[i].name, name))
			return &h->variable[i].value;
	return NULL;
}

double fo_host_number_at(const char *text)
{
	char *end;
	while (isspace((unsigned char)*text))
		text++;
	if (!isdigit((unsigned char)*text))
		return NAN;
	double v = strtod(text, &end);
	/* "0x1" is a number to strtod; no command here writes one. */
	return text[1] == 'x' && *text == '0' ? NAN : v;
}

double fo_host_yes(const char *text)
{
	static const char *const yes[] = { "active", "enabled", "yes", "on" }, *const no[] = { "not active", "disabled",
											       "no", "off" };
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
		if (!strcasecmp(text, yes[i]))
			return 1;
		if (!strcasecmp(text, no[i]))
			return 0;
	}
	return NAN;
}

const char *fo_line_trimmed(const struct fo_line *l)
{
	const char *p = l->text;
	while (isspace((unsigned char)*p))
		p++;
	return p;
}

bool fo_host_begins(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

/* ---- putting down ---- */

/* Text of a file, without what could upset a terminal. */
static const char *safe(struct fo_host_facts *f, const char *text, size_t n)
{
	char raw[TEXT_MOST + 1], shown[4 * TEXT_MOST + 1];
	size_t len = n < TEXT_MOST ? n : TEXT_MOST;
	while (len && isspace((unsigned char)text[len - 1]))
		len--;
	memcpy(raw, text, len);
	raw[len] = 0;
	return fo_arena_strdup(&f->arena, fo_str_visible(shown, sizeof shown, raw));
}

void fo_host_tell(struct fo_host_reader *r, struct fo_host_fact *to, enum fo_host_kind kind, double number,
		  const char *text, size_t n)
{
	*to = (struct fo_host_fact){ .number = number, .text = safe(r->f, text, n), .file = r->file, .line = r->line };
	if (kind < FO_KIND_COUNT)
		r->found[kind]++;
}

void fo_host_fill(struct fo_host_reader *r, struct fo_host_fact *to, enum fo_host_kind kind, double number,
		  const char *text, size_t n)
{
	if (to->file)
		r->found[kind]++;
	else
		fo_host_tell(r, to, kind, number, text, n);
}

void fo_host_tell_variable(struct fo_host_reader *r, const char *name, size_t name_len, const char *value, size_t n)
{
	struct fo_host *h = fo_reader_host(r);
	size_t at = 0;
	while (at < h->variables && (strncmp(h->variable[at].name, name, name_len) || h->variable[at].name[name_len]))
		at++;
	if (at == h->variables) {
		if (at >= VARIABLES_MOST || name_len > 128)
			return;
		fo_array_room(&h->variable, &h->variable_cap, at, sizeof *h->variable);
		h->variable[h->variables++] = (struct fo_host_variable){ .name = safe(r->f, name, name_len) };
	}
	double number = fo_host_number_at(value);
	fo_host_tell(r, &h->variable[at].value, FO_KIND_ENV, n ? number : NAN, value, n);
}

struct fo_host_gpu *fo_host_gpu_at(struct fo_host_reader *r, int index)
{
	struct fo_host *h = fo_reader_host(r);
	for (size_t i = 0; i < h->gpus; i++)
		if (h->gpu[i].index == index)
			return &h->gpu[i];
	if (h->gpus >= GPUS_MOST)
		return &h->gpu[h->gpus - 1];
	fo_array_room(&h->gpu, &h->gpu_cap, h->gpus, sizeof *h->gpu);
	h->gpu[h->gpus] = (struct fo_host_gpu){ .bus = "", .index = index };
	return &h->gpu[h->gpus++];
}

struct fo_host_port *fo_host_port_at(struct fo_host_reader *r, const char *adapter, size_t n, int port)
{
	struct fo_host *h = fo_reader_host(r);
	for (size_t i = 0; i < h->ports; i++)
		if (!strncmp(h->port[i].adapter, adapter, n) && !h->port[i].adapter[n] && h->port[i].port == port)
			return &h->port[i];
	if (h->ports >= PORTS_MOST)
		return &h->port[h->ports - 1];
	fo_array_room(&h->port, &h->port_cap, h->ports, sizeof *h->port);
	h->port[h->ports] = (struct fo_host_port){ .adapter = safe(r->f, adapter, n), .port = port };
	return &h->port[h->ports++];
}

/* ---- which host ---- */

size_t fo_host_new(struct fo_host_facts *f, const char *name, const char *folder)
{
	if (f->hosts >= HOSTS_MOST)
		return f->hosts - 1;
	fo_array_room(&f->host, &f->cap, f->hosts, sizeof *f->host);
	f->host[f->hosts] = (struct fo_host){ .name = name, .folder = folder };
	return f->hosts++;
}

void fo_host_named(struct fo_host_reader *r, const char *name, size_t n)
{
	struct fo_host *h = fo_reader_host(r);
	const char *folder = h->folder;
	if (!n || n > 253) /* RFC 1035: 253 characters at most */
		return;
	if (h->named && !strncmp(h->name, name, n) && !h->name[n])
		return;
	for (size_t i = 0; i < r->f->hosts; i++)
		if (r->f->host[i].named && !strncmp(r->f->host[i].name, name, n) && !r->f->host[i].name[n]) {
			r->host = i;
			return;
		}
	if (h->named) {
		r->host = fo_host_new(r->f, "", folder);
		h = fo_reader_host(r);
	}
	h->name = safe(r->f, name, n);
	h->named = true;
}

void fo_host_begin(struct fo_host_reader *r, enum fo_host_kind kind)
{
	struct fo_host *h = fo_reader_host(r);
	r->kind = kind;
	r->gpu = r->port = -1;
	r->row = r->depth = 0;
	r->adapter = NULL;
	if (!kind_once[kind] || r->found[kind]) {
		h->kinds |= 1u << kind;
		return;
	}
	/* Another file told this kind: the newest host of this folder takes it, or one more does. */
	for (size_t i = r->f->hosts; h->kinds >> kind & 1 && i-- > 0;)
		if (r->f->host[i].folder == h->folder && !(r->f->host[i].kinds >> kind & 1) && i > r->host) {
			r->host = i;
			h = fo_reader_host(r);
		}
	if (h->kinds >> kind & 1) {
		r->host = fo_host_new(r->f, r->file, h->folder);
		h = fo_reader_host(r);
	}
	h->kinds |= 1u << kind;
}
