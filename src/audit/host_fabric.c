/* Readers of ibstat, ibstatus, ibv_devinfo and NCCL's log. */
#include "audit/host_int.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- ports ---- */

/* "4: ACTIVE" (ibstatus), "PORT_ACTIVE (4)" (ibv_devinfo) and "Active" (ibstat) are one word. */
static const char *state_word(const char *v, size_t *n)
{
	if (isdigit((unsigned char)*v) && v[1] == ':')
		v += 2 + strspn(v + 2, " ");
	if (fo_host_begins(v, "PORT_"))
		v += 5;
	*n = strcspn(v, " (");
	return v;
}

static void tell_port(struct fo_host_reader *r, enum fo_port_id id, enum fo_host_kind kind, const char *v)
{
	size_t n = strlen(v);
	double number = NAN;
	if (!r->adapter || r->port < 0 || !n)
		return;
	struct fo_host_port *p = fo_host_port_at(r, r->adapter, strlen(r->adapter), r->port);
	if (id == FO_PORT_STATE || id == FO_PORT_PHYSICAL)
		v = state_word(v, &n);
	if (id == FO_PORT_RATE)
		number = fo_host_number_at(v);
	if (id == FO_PORT_RATE && !(number > 0))
		return;
	fo_host_tell(r, &p->fact[id], kind, number, v, n);
	if (r->adapter_type && !p->fact[FO_PORT_TYPE].file)
		fo_host_tell(r, &p->fact[FO_PORT_TYPE], kind, NAN, r->adapter_type, strlen(r->adapter_type));
}

static const char *adapter_name(struct fo_host_reader *r, const char *p)
{
	size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.");
	return n && n < 64 ? fo_arena_printf(&r->f->arena, "%.*s", (int)n, p) : NULL;
}

/* Keys of all three commands, in small letters. */
static const struct {
	const char *key;
	enum fo_port_id id;
} port_key[] = {
	{ "state", FO_PORT_STATE },         { "physical state", FO_PORT_PHYSICAL },
	{ "phys state", FO_PORT_PHYSICAL }, { "phys_state", FO_PORT_PHYSICAL },
	{ "rate", FO_PORT_RATE },           { "active_speed", FO_PORT_RATE },
	{ "link layer", FO_PORT_LAYER },    { "link_layer", FO_PORT_LAYER },
};

static bool port_line(struct fo_host_reader *r, const char *p, enum fo_host_kind kind)
{
	const char *colon = strchr(p, ':');
	size_t n = colon ? (size_t)(colon - p) : 0;
	if (!n)
		return false;
	const char *v = colon + 1 + strspn(colon + 1, " \t");
	for (size_t i = 0; i < sizeof port_key / sizeof *port_key; i++)
		if (strlen(port_key[i].key) == n && !strncasecmp(p, port_key[i].key, n)) {
			/* active_speed is that of a lane. */
			if (!fo_host_begins(p, "active_speed"))
				tell_port(r, port_key[i].id, kind, v);
			return true;
		}
	return false;
}

/* ibstat and ibstatus */
bool fo_read_ibstat(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = fo_line_trimmed(l), *quote;
	bool ca = fo_host_begins(p, "CA '"), status = fo_host_begins(p, "Infiniband device '");
	if (ca || status) {
		if (r->kind != FO_KIND_IBSTAT)
			fo_host_begin(r, FO_KIND_IBSTAT);
		quote = strchr(p, '\'');
		r->adapter = adapter_name(r, quote + 1);
		r->adapter_type = NULL;
		const char *port = strstr(p, "' port ");
		r->port = status && port ? atoi(port + 7) : -1;
		return true;
	}
	if (r->kind != FO_KIND_IBSTAT)
		return false;
	if (fo_host_begins(p, "CA type:")) {
		r->adapter_type = adapter_name(r, p + 8 + strspn(p + 8, " \t"));
		return true;
	}
	if (fo_host_begins(p, "Port ") && isdigit((unsigned char)p[5])) {
		r->port = atoi(p + 5);
		return true;
	}
	return port_line(r, p, FO_KIND_IBSTAT) || l->indent > 0 || !*p;
}

bool fo_read_ibv(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = fo_line_trimmed(l);
	if (fo_host_begins(p, "hca_id:")) {
		if (r->kind != FO_KIND_IBV)
			fo_host_begin(r, FO_KIND_IBV);
		r->adapter = adapter_name(r, p + 7 + strspn(p + 7, " \t"));
		r->adapter_type = NULL;
		r->port = -1;
		return true;
	}
	if (r->kind != FO_KIND_IBV)
		return false;
	if (fo_host_begins(p, "vendor_part_id:")) {
		long part = strtol(p + 15, NULL, 10);
		/* ibstat writes Mellanox's part 4129 as MT4129. */
		r->adapter_type = part > 0 ? fo_arena_printf(&r->f->arena, "MT%ld", part) : NULL;
		return true;
	}
	if (fo_host_begins(p, "port:")) {
		r->port = atoi(p + 5);
		return true;
	}
	return port_line(r, p, FO_KIND_IBV) || l->indent > 0 || !*p;
}

/* ---- NCCL's log ---- */

static void tell(struct fo_host_reader *r, enum fo_host_id id, double v, const char *text, size_t n)
{
	fo_host_tell(r, &fo_reader_host(r)->fact[id], FO_KIND_NCCL_LOG, v, text, n);
}

static void count(struct fo_host_reader *r, enum fo_host_id id, const char *text)
{
	struct fo_host_fact *to = &fo_reader_host(r)->fact[id];
	if (to->file)
		to->number++; /* the first line is the evidence */
	else
		tell(r, id, 1, text, strlen(text));
}

/* "NCCL_IB_DISABLE set by environment to 0." */
static bool set_by_environment(struct fo_host_reader *r, const char *p)
{
	static const char words[] = " set by environment to ";
	const char *at = strstr(p, words);
	if (!at || !fo_host_begins(p, "NCCL_") || memchr(p, ' ', (size_t)(at - p)))
		return false;
	const char *v = at + strlen(words);
	size_t n = strcspn(v, " ");
	n -= n && v[n - 1] == '.';
	fo_host_tell_variable(r, p, (size_t)(at - p), v, n);
	r->telling++;
	return true;
}

/* How surely a line tells the network: sockets are offered in every log, devices of verbs where there are any. */
enum { OFFERED = 1, LISTED, CHOSEN };

/* The fact's number is how surely it is told. */
static void tell_network(struct fo_host_reader *r, int surely, const char *name)
{
	struct fo_host_fact *net = &fo_reader_host(r)->fact[FO_HOST_NET];
	if (!net->file || net->number < surely)
		tell(r, FO_HOST_NET, surely, name, strcspn(name, " /"));
}

static void network(struct fo_host_reader *r, const char *p)
{
	const char *via;
	if (fo_host_begins(p, "Using network ")) {
		tell_network(r, CHOSEN, p + 14);
	} else if (fo_host_begins(p, "NET/IB : Using ")) {
		bool ib = strstr(p + 6, "/IB"), roce = strstr(p, "/RoCE");
		tell_network(r, LISTED, "IB");
		/* Of ports of both kinds it is not told which one carries the job. */
		if (ib != roce)
			tell(r, FO_HOST_NET_ROCE, roce, p, strlen(p));
	} else if (fo_host_begins(p, "NET/Socket : Using ")) {
		tell_network(r, OFFERED, "Socket");
	} else if ((via = strstr(p, " via NET/"))) {
		tell_network(r, CHOSEN, via + 9);
	}
}

static void information(struct fo_host_reader *r, const char *p)
{
	if (set_by_environment(r, p))
		return;
	network(r, p);
	if (strstr(p, "GPU Direct RDMA Disabled"))
		count(r, FO_HOST_GDR_OFF, p);
	else if (strstr(p, "GPU Direct RDMA Enabled") || strstr(p, "/GDRDMA"))
		count(r, FO_HOST_GDR_ON, p);
	else if (strstr(p, "[receive] via NET/IB/"))
		count(r, FO_HOST_GDR_OFF, p); /* sending without it is the default of boards without NVLink */
}

/* "node1:4242:4243 [0] NCCL INFO ...": the name in front of two numbers, whatever a launcher puts before it. */
static void log_host(struct fo_host_reader *r, const char *p, const char *nccl)
{
	static const char digits[] = "0123456789", letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
			  name[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
	for (const char *c = p; c < nccl && (c = memchr(c, ':', (size_t)(nccl - c))); c++) {
		size_t pid = strspn(c + 1, digits), tid = c[1 + pid] == ':' ? strspn(c + 2 + pid, digits) : 0;
		const char *begin = c;
		while (begin > p && strchr(name, begin[-1]))
			begin--;
		/* A time of day has no letter. */
		if (pid && tid && c[2 + pid + tid] == ' ' && begin + strcspn(begin, letters) < c) {
			fo_host_named(r, begin, (size_t)(c - begin));
			return;
		}
	}
}

bool fo_read_nccl_log(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *info = strstr(l->text, "NCCL INFO "), *warn = strstr(l->text, "NCCL WARN "),
		   *version = strstr(l->text, "NCCL version ");
	if (!info && !warn && !(version && isdigit((unsigned char)version[13])))
		return false;
	if (r->kind != FO_KIND_NCCL_LOG)
		fo_host_begin(r, FO_KIND_NCCL_LOG);
	r->found[FO_KIND_NCCL_LOG]++;
	if (info || warn)
		log_host(r, fo_line_trimmed(l), info ? info : warn);
	if (version && isdigit((unsigned char)version[13]))
		tell(r, FO_HOST_NCCL, NAN, version + 13, strspn(version + 13, "0123456789."));
	if (warn)
		count(r, FO_HOST_NCCL_WARN, warn + 10);
	else if (info)
		information(r, info + 10);
	return true;
}
