/* What the rules over hosts share: adding a finding, which GPUs, which network, which way. */
#include "audit/host_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- findings ---- */

const char *fo_look_where(struct fo_audit *a, const struct fo_host_fact *at)
{
	return at->line ? fo_audit_text(a, "%s:%lld", at->file, (long long)at->line) : at->file;
}

static const char *evidence(struct fo_look *k, const struct fo_host_fact *at)
{
	const char *where = fo_look_where(k->a, at);
	return k->facts->hosts > 1 && *k->host->name ? fo_look_text(k, "%s (%s)", where, k->host->name) : where;
}

/* With a capital first letter, unless the first word is a name: "nvidia_peermem", "NCCL_ALGO". */
static const char *sentence(struct fo_look *k, const char *title)
{
	size_t n = 0;
	while (title[n] >= 'a' && title[n] <= 'z')
		n++;
	bool name = !n || (title[n] != ' ' && title[n] != '\0') || !strncmp(title, "vboost ", 7);
	return name ? title : fo_look_text(k, "%c%s", title[0] - 'a' + 'A', title + 1);
}

void fo_look_add(struct fo_look *k, const struct fo_host_fact *at, struct fo_audit_finding f)
{
	enum { SHOWN = 300 };
	if (!at)
		return; /* without evidence nothing is found */
	f.id = k->rule;
	f.evidence = evidence(k, at);
	f.title = sentence(k, f.title);
	for (size_t i = 0; i < k->a->count; i++) {
		struct fo_audit_finding *o = &k->a->finding[i];
		if (strcmp(o->id, f.id) || strcmp(o->title, f.title))
			continue;
		if (strlen(o->evidence) < SHOWN)
			o->evidence = fo_look_text(k, "%s, %s", o->evidence, f.evidence);
		else if (!strstr(o->evidence, ", ..."))
			o->evidence = fo_look_text(k, "%s, ...", o->evidence);
		return;
	}
	fo_audit_add(k->a, f);
}

/* ---- GPUs ---- */

struct fo_gpus_of fo_look_gpus(const struct fo_look *k, fo_gpu_is *is)
{
	struct fo_gpus_of w = { .first = -1 };
	size_t len = 0;
	for (size_t i = 0; i < k->host->gpus; i++) {
		if (!is(&k->host->gpu[i]))
			continue;
		if (w.first < 0)
			w.first = (int)i;
		w.n++;
		if (len < sizeof w.list - 8)
			len += (size_t)snprintf(w.list + len, sizeof w.list - len, "%s%d", len ? ", " : "",
						k->host->gpu[i].index);
	}
	return w;
}

const char *fo_look_gpus_text(struct fo_look *k, const struct fo_gpus_of *which)
{
	size_t all = k->host->gpus;
	if (all == 1)
		return "the GPU";
	if ((size_t)which->n == all)
		return fo_look_text(k, "all %zu GPUs", all);
	return fo_look_text(k, "%d of %zu GPUs (%s)", which->n, all, which->list);
}

bool fo_look_any_gpu(const struct fo_look *k, enum fo_gpu_id id)
{
	for (size_t i = 0; i < k->host->gpus; i++)
		if (fo_gpu_told(&k->host->gpu[i], id))
			return true;
	return false;
}

/* Links per GPU of boards whose GPUs all have them: NVIDIA's data sheets of A100 (2020, 12 links, 600 GB/s), H100 and
 * H200 SXM (2022, 2024: 18 links, 900 GB/s), B200 SXM (2024: 18 links, 1800 GB/s); A800 and H800 have 8 each.
 * Cards for PCIe have bridges that may be absent, and a GH200 may stand alone, so nothing is expected of them. */
int fo_host_nvlinks(const char *gpu_name)
{
	static const struct {
		const char *name;
		int links;
	} row[] = { { "PCIe", 0 },      { "NVL", 0 },        { "GH200", 0 },
		    { "A100-SXM", 12 }, { "A800-SXM", 8 },   { "H100 80GB HBM3", 18 },
		    { "H100 SXM", 18 }, { "H800", 8 },       { "H200", 18 },
		    { "B200", 18 },     { "NVIDIA H20", 18 } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (strstr(gpu_name, row[i].name))
			return row[i].links;
	return 0;
}

/* ---- the network ---- */

bool fo_host_port_active(const struct fo_host_port *p)
{
	const struct fo_host_fact *f = fo_port_told(p, FO_PORT_STATE);
	return f && (!strcmp(f->text, "Active") || !strcmp(f->text, "ACTIVE"));
}

bool fo_host_port_ib(const struct fo_host_port *p)
{
	const struct fo_host_fact *f = fo_port_told(p, FO_PORT_LAYER);
	return f && !strcmp(f->text, "InfiniBand");
}

int fo_host_active_ib(const struct fo_host *h)
{
	int n = 0;
	for (size_t i = 0; i < h->ports; i++)
		n += fo_host_port_ib(&h->port[i]) && fo_host_port_active(&h->port[i]);
	return n;
}

bool fo_host_on(const struct fo_host_fact *f)
{
	return f && (f->number == 1 || !strcasecmp(f->text, "true") || !strcasecmp(f->text, "yes") ||
		     !strcasecmp(f->text, "on"));
}

static bool forced_socket(const struct fo_host *h, const struct fo_host_fact **at)
{
	const struct fo_host_fact *net = fo_host_variable(h, "NCCL_NET"), *off = fo_host_variable(h, "NCCL_IB_DISABLE");
	if (net && !strcasecmp(net->text, "Socket"))
		*at = net;
	else if (fo_host_on(off))
		*at = off;
	return *at;
}

enum fo_host_net fo_host_net(const struct fo_host *h, const struct fo_host_fact **at)
{
	const struct fo_host_fact *net = fo_host_told(h, FO_HOST_NET), *roce = fo_host_told(h, FO_HOST_NET_ROCE);
	*at = net;
	if (net && !strcmp(net->text, "Socket"))
		return FO_NET_SOCKET;
	if (!net && forced_socket(h, at))
		return FO_NET_SOCKET;
	if (net && strncmp(net->text, "IB", 2))
		return FO_NET_OTHER;
	if (net && roce) {
		*at = roce;
		return roce->number > 0 ? FO_NET_ROCE : FO_NET_IB;
	}
	/* Ports say what NCCL can take, and it takes InfiniBand where any port is up and nothing forbids it. */
	for (size_t i = 0; i < h->ports; i++)
		if (fo_host_port_ib(&h->port[i]) && fo_host_port_active(&h->port[i])) {
			*at = fo_port_told(&h->port[i], FO_PORT_LAYER);
			return FO_NET_IB;
		}
	return net ? FO_NET_VERBS : FO_NET_UNKNOWN;
}

int fo_host_path_rank(const char *path)
{
	static const char *const name[] = { "NV", "PIX", "PXB", "PHB", "NODE", "SYS" };
	for (int i = 0; i < (int)(sizeof name / sizeof *name); i++)
		if (fo_host_begins(path, name[i]))
			return i;
	return -1;
}

int fo_host_adapter_rank(const struct fo_host *h, const char *adapter)
{
	int best = -1;
	for (size_t i = 0; i < h->links; i++) {
		const struct fo_host_link *l = &h->link[i];
		if (!fo_host_begins(h->topo_name[l->from], "GPU") || strcmp(h->topo_name[l->to], adapter))
			continue;
		int rank = fo_host_path_rank(l->path);
		if (rank >= 0 && (best < 0 || rank < best))
			best = rank;
	}
	return best;
}
