/* Rules about ports, their rates, the way between GPU and network, GPUDirect RDMA, and what PCIe does to peers. */
#include "audit/host_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Gbit/s that adapters of this type have at most: NVIDIA's product pages of ConnectX-4 to ConnectX-8 and BlueField-3
 * (2026-11). Some cards of a type have less. */
static double type_rate(const char *type)
{
	static const struct {
		const char *type;
		double rate;
	} row[] = { { "MT4115", 100 }, { "MT4119", 100 },  { "MT4121", 100 }, { "MT4123", 200 },
		    { "MT4129", 400 }, { "MT41692", 400 }, { "MT4131", 800 } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (!strcmp(row[i].type, type))
			return row[i].rate;
	return NAN;
}

static double rate_of(const struct fo_host_port *p) { return fo_host_number(fo_port_told(p, FO_PORT_RATE)); }
static const char *type_of(const struct fo_host_port *p)
{
	const struct fo_host_fact *f = fo_port_told(p, FO_PORT_TYPE);
	return f ? f->text : "";
}
static bool ethernet(const struct fo_host_port *p)
{
	const struct fo_host_fact *f = fo_port_told(p, FO_PORT_LAYER);
	return f && !strcmp(f->text, "Ethernet");
}
/* Paths up to PXB do not cross the processor (fo_host_path_rank). */
enum { NEAR = 2 };

/* Adapters that share a PCIe switch with a GPU carry the job's traffic; the others may be for storage. */
static bool near_gpu(const struct fo_look *k, const struct fo_host_port *p)
{
	int rank = fo_host_adapter_rank(k->host, p->adapter);
	return rank >= 0 && rank <= NEAR;
}

/* May this port carry the job? InfiniBand may; Ethernet where no InfiniBand is active and ports of one type are. */
static bool carries(const struct fo_look *k, const struct fo_host_port *p)
{
	int alike = 0;
	if (!ethernet(p))
		return true;
	for (size_t i = 0; i < k->host->ports; i++)
		alike += fo_host_port_active(&k->host->port[i]) && !strcmp(type_of(&k->host->port[i]), type_of(p));
	return (!fo_host_active_ib(k->host) && alike > 1) || near_gpu(k, p);
}

/* ---- ways ---- */

static bool is_gpu(const char *name) { return fo_host_begins(name, "GPU"); }

/* Is this label an adapter that the job can use? Where ports are known, their state and layer decide. */
static bool usable(const struct fo_host *h, const char *name)
{
	bool known = false;
	for (size_t i = 0; i < h->ports; i++) {
		if (strcmp(h->port[i].adapter, name))
			continue;
		known = true;
		if (fo_host_port_active(&h->port[i]))
			return true;
	}
	return !known;
}

static int nearest(const struct fo_host *h, int gpu, const struct fo_host_link **at)
{
	int best = -1;
	for (size_t i = 0; i < h->links; i++) {
		const struct fo_host_link *l = &h->link[i];
		int rank = fo_host_path_rank(l->path);
		if (l->from != gpu || is_gpu(h->topo_name[l->to]) || rank < 0 || !usable(h, h->topo_name[l->to]))
			continue;
		if (best < 0 || rank < best) {
			best = rank;
			*at = l;
		}
	}
	return best;
}

/* ---- ports ---- */

/* Is this adapter the only near one of a GPU? The second port of a card may be down by design. */
static bool leaves_a_gpu(const struct fo_host *h, const char *adapter)
{
	const struct fo_host_link *unused;
	for (size_t i = 0; i < h->links; i++) {
		const struct fo_host_link *l = &h->link[i];
		if (!is_gpu(h->topo_name[l->from]) || strcmp(h->topo_name[l->to], adapter))
			continue;
		int rank = fo_host_path_rank(l->path), other = nearest(h, l->from, &unused);
		if (rank >= 0 && rank <= NEAR && (other < 0 || other > NEAR))
			return true;
	}
	return false;
}

static enum fo_audit_level down_level(const struct fo_look *k, const struct fo_host_port *p)
{
	const struct fo_host_fact *physical = fo_port_told(p, FO_PORT_PHYSICAL);
	if (leaves_a_gpu(k->host, p->adapter))
		return FO_AUDIT_SERIOUS;
	return physical && !strcmp(physical->text, "Disabled") ? FO_AUDIT_NOTE : FO_AUDIT_ADVICE;
}

static bool look_port_down(struct fo_look *k)
{
	bool told = false;
	for (size_t i = 0; i < k->host->ports; i++) {
		const struct fo_host_port *p = &k->host->port[i];
		const struct fo_host_fact *state = fo_port_told(p, FO_PORT_STATE), *physical;
		told |= state != NULL;
		if (!state || fo_host_port_active(p) || !carries(k, p))
			continue;
		physical = fo_port_told(p, FO_PORT_PHYSICAL);
		struct fo_audit_finding f = {
			.level = down_level(k, p),
			.title = fo_look_text(k, "port %d of %s is not active", p->port, p->adapter),
			.now = state->text,
			.proposed =
				"Active: check cable and switch port (Polling: no partner), on InfiniBand the subnet "
				"manager (Initializing)",
			.why = "if it carries the job's traffic, other adapters carry that in its place",
			.source = "ibstat(8), infiniband-diags",
		};
		if (f.level == FO_AUDIT_SERIOUS) {
			f.title = fo_look_text(k, "%s, and no other adapter is near its GPU", f.title);
			f.why = "the GPU beside it sends over another GPU's adapter, which then carries twice the "
				"traffic";
		}
		if (physical)
			f.now = fo_look_text(k, "%s, %s", state->text, physical->text);
		fo_look_add(k, state, f);
	}
	return told;
}

/* The most of this type among active ports; only near ones where the topology tells which are. */
static double best_rate(const struct fo_look *k, const char *type, bool topology)
{
	double best = 0;
	for (size_t i = 0; i < k->host->ports; i++) {
		const struct fo_host_port *p = &k->host->port[i];
		if (fo_host_port_active(p) && carries(k, p) && !strcmp(type_of(p), type) &&
		    (!topology || near_gpu(k, p)))
			best = fmax(best, isnan(rate_of(p)) ? 0 : rate_of(p));
	}
	return best;
}

static void add_rate(struct fo_look *k, const struct fo_host_port *p, double most, enum fo_audit_level level,
		     const char *why)
{
	fo_look_add(k, fo_port_told(p, FO_PORT_RATE),
		    (struct fo_audit_finding){
			    .level = level,
			    .title = fo_look_text(k, "%s runs at %.0f of %.0f Gbit/s", p->adapter, rate_of(p), most),
			    .setting = "port rate",
			    .now = fo_look_text(k, "%.0f Gbit/s", rate_of(p)),
			    .proposed = fo_look_text(
				    k, "%.0f Gbit/s: check cable, transceiver and the switch port's width", most),
			    .why = why,
			    .source = "NVIDIA's product pages of ConnectX adapters (2026-11)" });
}

static bool look_port_rate(struct fo_look *k)
{
	static const char near_why[] =
		"others of its kind on this host are faster, and a collective goes at the rate of its "
		"slowest link",
			  any_why[] = "others of its kind on this host are faster; nvidia-smi topo -m tells whether it "
				      "carries the job's traffic or storage";
	bool told = false, topology = k->host->links > 0;
	for (size_t i = 0; i < k->host->ports; i++) {
		const struct fo_host_port *p = &k->host->port[i];
		if (isnan(rate_of(p)) || !fo_host_port_active(p) || !carries(k, p))
			continue;
		told = true;
		if (topology && !near_gpu(k, p))
			continue;
		double best = best_rate(k, type_of(p), topology), most = type_rate(type_of(p));
		if (rate_of(p) < best && topology)
			add_rate(k, p, best, FO_AUDIT_SERIOUS, near_why);
		else if (rate_of(p) < best)
			add_rate(k, p, best, FO_AUDIT_ADVICE, any_why);
		else if (rate_of(p) < most)
			add_rate(
				k, p, most, FO_AUDIT_ADVICE,
				"adapters of this kind reach more; the card's part number tells whether this one does");
	}
	return told;
}

static bool look_mixed_layers(struct fo_look *k)
{
	const struct fo_host_port *eth = NULL;
	for (size_t i = 0; i < k->host->ports; i++)
		if (ethernet(&k->host->port[i]) && fo_host_port_active(&k->host->port[i]))
			eth = &k->host->port[i];
	if (!k->host->ports)
		return false;
	if (eth && fo_host_active_ib(k->host) && k->host->variables && !fo_host_variable(k->host, "NCCL_IB_HCA"))
		fo_look_add(
			k, fo_port_told(eth, FO_PORT_LAYER),
			(struct fo_audit_finding){
				.level = FO_AUDIT_ADVICE,
				.title = "InfiniBand and Ethernet ports are active, and NCCL_IB_HCA does not choose",
				.setting = "NCCL_IB_HCA",
				.now = "not set",
				.proposed = "the InfiniBand adapters of the GPUs",
				.why = "NCCL takes every active port of the verbs library, those of storage or "
				       "management too",
				.source = "NCCL user guide 2.30, NCCL_IB_HCA" });
	return true;
}

/* ---- from a GPU to the network ---- */

static bool look_gpu_nic(struct fo_look *k)
{
	const struct fo_host *h = k->host;
	const struct fo_host_link *at = NULL, *far = NULL;
	int near = 0, gpus = 0, distant = 0;
	for (int g = 0; g < h->topo_names; g++) {
		int rank = is_gpu(h->topo_name[g]) ? nearest(h, g, &at) : -1;
		gpus += rank >= 0;
		near += rank >= 0 && rank <= NEAR;
		if (rank <= NEAR)
			continue;
		far = at;
		distant++;
	}
	/* A topology file tells NCCL what a virtual machine hides. */
	if (!distant || (!near && fo_host_variable(h, "NCCL_TOPO_FILE")))
		return gpus > 0;
	struct fo_audit_finding f = {
		.level = FO_AUDIT_ADVICE,
		.title = fo_look_text(k, "%d of %d GPUs have no network adapter under their PCIe switch", distant,
				      gpus),
		.now = fo_look_text(k, "%s to the nearest adapter", far->path),
		.proposed = "PIX or PXB: check for an adapter that is missing or down beside these GPUs",
		.why = "NCCL uses GPUDirect RDMA up to PXB by default: farther data are copied through host memory",
		.source = "NCCL user guide 2.30, NCCL_NET_GDR_LEVEL; src/graph/paths.cc",
	};
	if (!near) {
		f.title = fo_look_text(k, "every path between GPU and network crosses the processor (%s)", far->path);
		f.proposed = "PIX or PXB; in a virtual machine give NCCL the real topology (NCCL_TOPO_FILE)";
	}
	fo_look_add(k, &far->at, f);
	return true;
}

/* Without a topology: is there an active adapter on the NUMA node of each GPU? */
static bool look_gpu_nic_numa(struct fo_look *k)
{
	const struct fo_host *h = k->host;
	const struct fo_host_gpu *alone = NULL;
	int told = 0, with = 0;
	for (size_t g = 0; g < h->gpus && !h->links; g++) {
		const struct fo_host_fact *node = fo_gpu_told(&h->gpu[g], FO_GPU_NUMA), *other;
		bool found = false;
		for (size_t i = 0; node && i < h->ports; i++) {
			other = fo_port_told(&h->port[i], FO_PORT_NUMA);
			told += other != NULL;
			found |= other && fo_host_port_active(&h->port[i]) && other->number == node->number;
		}
		with += found;
		alone = node && !found ? &h->gpu[g] : alone;
	}
	if (told && with && alone)
		fo_look_add(
			k, fo_gpu_told(alone, FO_GPU_NUMA),
			(struct fo_audit_finding){ .level = FO_AUDIT_ADVICE,
						   .title = "a GPU has no active network adapter on its NUMA node",
						   .now = fo_look_text(k, "GPU %d on node %.0f", alone->index,
								       fo_host_number(fo_gpu_told(alone, FO_GPU_NUMA))),
						   .proposed = "an adapter per GPU, or at least per node",
						   .why = "its traffic crosses the link between the processors" });
	return told > 0;
}

/* ---- GPU to GPU ---- */

/* NVLinks in a path: "NV18" is 18; 0: none. */
static int links_in(const char *path)
{
	int n = 0;
	return fo_host_begins(path, "NV") && sscanf(path + 2, "%d", &n) == 1 ? n : 0;
}

static bool look_gpu_gpu(struct fo_look *k)
{
	const struct fo_host *h = k->host;
	const struct fo_host_fact *name = h->gpus ? fo_gpu_told(&h->gpu[0], FO_GPU_NAME) : NULL;
	int expected = name ? fo_host_nvlinks(name->text) : 0, most = 0, gpus = 0;
	const struct fo_host_link *least = NULL;
	for (int i = 0; i < h->topo_names; i++)
		gpus += is_gpu(h->topo_name[i]);
	for (size_t i = 0; i < h->links; i++) {
		const struct fo_host_link *l = &h->link[i];
		if (!is_gpu(h->topo_name[l->from]) || !is_gpu(h->topo_name[l->to]))
			continue;
		int n = links_in(l->path);
		most = n > most ? n : most;
		least = !least || n < links_in(least->path) ? l : least;
	}
	if (gpus < 2 || !least)
		return h->gpus == 1 || gpus == 1;
	int n = links_in(least->path);
	/* Over a switch each pair has all links; on boards of four, wired directly, they are divided among the other
	 * three, of which a container may see fewer. What no row names may be as designed (DGX-1). */
	enum { BOARD = 4 };
	if (!expected || n == expected || n * (gpus - 1) == expected || n * (BOARD - 1) == expected)
		return true;
	const char *from = h->topo_name[least->from], *to = h->topo_name[least->to], *words = "no NVLink";
	if (n)
		words = fo_look_text(k, "only %d NVLinks", n);
	if (most <= n)
		most = expected;
	fo_look_add(
		k, &least->at,
		(struct fo_audit_finding){
			.level = FO_AUDIT_SERIOUS,
			.title = fo_look_text(k, "%s between %s and %s", words, from, to),
			.now = least->path,
			.proposed = fo_look_text(
				k, "NV%d: check the fabric manager, nvidia-smi nvlink -s, the kernel log (Xid 74)",
				most),
			.why = fo_look_text(k,
					    "each %s of this board has %d NVLinks; a collective goes at the rate of "
					    "its slowest pair",
					    name->text, expected),
			.source = "NVIDIA data sheets of A100, H100, H200 and B200 (links per GPU)" });
	return true;
}

/* ---- GPUDirect RDMA ---- */

static bool look_gdr(struct fo_look *k)
{
	const struct fo_host *h = k->host;
	const struct fo_host_fact *on = fo_host_told(h, FO_HOST_GDR_ON), *off = fo_host_told(h, FO_HOST_GDR_OFF), *at,
				  *modules = fo_host_told(h, FO_HOST_MODULES);
	enum fo_host_net net = fo_host_net(h, &at);
	if (net == FO_NET_SOCKET)
		return true; /* TCP has none */
	if (!on && !off && !(modules && fo_net_verbs(net)))
		return false;
	struct fo_audit_finding f = {
		.level = FO_AUDIT_ADVICE,
		.title = "part of the traffic goes without GPUDirect RDMA",
		.proposed = "enabled for every adapter: load nvidia_peermem, or use the open kernel modules (DMA-BUF)",
		.why = "data between hosts are copied through host memory, which takes its bandwidth and a processor",
		.paste = "modprobe nvidia_peermem",
		.source = "NCCL user guide 2.30, troubleshooting: GPU Direct",
	};
	if (off) {
		f.now = off->text;
		if (!on) {
			f.level = FO_AUDIT_SERIOUS;
			f.title = "the network is used without GPUDirect RDMA";
		}
		fo_look_add(k, off, f);
	} else if (!on && !fo_host_told(h, FO_HOST_PEERMEM)) {
		f.title = "nvidia_peermem is not loaded, with an RDMA network";
		f.now = fo_look_text(k, "not among %.0f modules", modules->number);
		f.proposed = "loaded, unless NCCL's log says GDRDMA (it then uses DMA-BUF)";
		f.why = "without it and without DMA-BUF, data between hosts are copied through host memory";
		f.source = "NCCL 2.30 src/transport/net_ib/gdr.cc; NVIDIA GPUDirect RDMA documentation";
		fo_look_add(k, modules, f);
	}
	return true;
}

static bool look_acs(struct fo_look *k)
{
	const struct fo_host_fact *acs = fo_host_told(k->host, FO_HOST_ACS);
	struct fo_audit_finding f = {
		.level = FO_AUDIT_ADVICE,
		.title = "access control services (ACS) are on at a PCIe bridge",
		.now = "SrcValid+",
		.proposed = "off in the firmware (IO virtualization, VT-d) or by setpci, on the bridges above GPUs and "
			    "adapters",
		.why = "PCIe traffic between GPU and adapter is sent through the processor, or hangs",
		.source = "NCCL user guide 2.30, troubleshooting: PCI Access Control Services",
	};
	if (fo_host_told(k->host, FO_HOST_HYPERVISOR)) {
		f.level = FO_AUDIT_NOTE;
		f.proposed =
			"as the virtual machine's owner needs it; address translation (ATS) on the adapter then saves "
			"GPUDirect";
	}
	if (acs && acs->number > 0)
		fo_look_add(k, acs, f);
	return acs != NULL;
}

static bool look_iommu(struct fo_look *k)
{
	const struct fo_host_fact *f = fo_host_told(k->host, FO_HOST_CMDLINE);
	if (f && (strstr(f->text, "intel_iommu=on") || strstr(f->text, "amd_iommu=on")) && !strstr(f->text, "iommu=pt"))
		fo_look_add(
			k, f,
			(struct fo_audit_finding){
				.level = FO_AUDIT_ADVICE,
				.title = "the IOMMU is on, and the command line does not ask for passthrough",
				.setting = "kernel parameter iommu",
				.now = "on, not in passthrough",
				.proposed = "iommu=pt, or off where no virtual machine needs it",
				.why = "where the kernel's default is to translate, copies between host and GPU and "
				       "peer traffic "
				       "go through the translation",
				.paste = "iommu=pt",
				.source =
					"Linux kernel-parameters.txt, iommu=; NCCL user guide 2.30, troubleshooting" });
	return f != NULL;
}

#define NEEDS_PORTS "ibstat"
#define NEEDS_TOPO "nvidia-smi topo -m"
const struct fo_host_rule fo_host_rules_fabric[] = {
	{ "port-down", look_port_down, "state of the network ports", NEEDS_PORTS },
	{ "port-rate", look_port_rate, "rate of the network ports", NEEDS_PORTS },
	{ "port-mixed-layers", look_mixed_layers, NULL, NULL },
	{ "gpu-nic-path", look_gpu_nic, "way between GPUs and network adapters", NEEDS_TOPO },
	{ "gpu-nic-numa", look_gpu_nic_numa, NULL, NULL },
	{ "gpu-gpu-path", look_gpu_gpu, "way between GPUs", NEEDS_TOPO },
	{ "gpudirect", look_gdr, "whether GPUDirect RDMA is used",
	  "the log of a start with NCCL_DEBUG=INFO, or ibstat and lsmod" },
	{ "pcie-acs", look_acs, "access control services (ACS)", "sudo lspci -vv" },
	{ "iommu", look_iommu, "IOMMU mode", "/proc/cmdline" },
	{ 0 },
};
