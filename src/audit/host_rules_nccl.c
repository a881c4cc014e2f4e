/* Rules about variables of the environment: NCCL's, CUDA's and PyTorch's. What a variable does is taken from the pages
 * named in each row; where its effect depends on the network, the network must be told by a file. */
#include "audit/host_int.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NCCL_GUIDE "NCCL user guide 2.30, environment variables (2026-06)"
#define NETWORK_TELLS "ibstat, or the log of a start with NCCL_DEBUG=INFO"

static const struct fo_host_fact *var(const struct fo_look *k, const char *name)
{
	return fo_host_variable(k->host, name);
}
static bool is(const struct fo_host_fact *f, const char *value) { return f && !strcasecmp(f->text, value); }
static bool has_environment(const struct fo_look *k) { return k->host->variables > 0; }

static const char *ports(int n) { return fo_word(n, "port", "ports"); }

static const char *net_words(enum fo_host_net n)
{
	if (n == FO_NET_VERBS)
		return "InfiniBand or RoCE";
	return n == FO_NET_ROCE ? "RDMA over Ethernet (RoCE)" : "InfiniBand";
}

/* ---- variables that need no other fact ---- */

/* A value to look for: "1" (on), "0", "*" (set to anything), or words. */
static const struct variable_rule {
	const char *id, *name, *value;
	enum fo_audit_level level;
	const char *words, *proposed, *why, *source;
} variable[] = {
	{ "cuda-launch-blocking", "CUDA_LAUNCH_BLOCKING", "1", FO_AUDIT_SERIOUS,
	  "every kernel launch waits for its kernel", "unset",
	  "the processor cannot work ahead of the GPU, and nothing overlaps; it is for debugging",
	  "CUDA C++ Programming Guide 13, environment variables" },
	{ "torch-no-caching", "PYTORCH_NO_CUDA_MEMORY_CACHING", "*", FO_AUDIT_SERIOUS, "PyTorch's memory cache is off",
	  "unset", "each tensor calls cudaMalloc and cudaFree, which wait for the GPU",
	  "PyTorch 2.9 notes, CUDA semantics: environment variables" },
	{ "torch-distributed-debug", "TORCH_DISTRIBUTED_DEBUG", "DETAIL", FO_AUDIT_SERIOUS,
	  "each collective is checked across all ranks first", "OFF",
	  "DETAIL runs a monitored barrier and compares shapes before every collective; it is for debugging hangs",
	  "PyTorch 2.9, torch.distributed: debugging" },
	{ "torch-blocking-wait", "TORCH_NCCL_BLOCKING_WAIT", "1", FO_AUDIT_ADVICE,
	  "wait() on a collective blocks the processor", "unset (TORCH_NCCL_ASYNC_ERROR_HANDLING ends hung jobs)",
	  "the processor cannot launch ahead while it waits",
	  "pytorch/pytorch#50820 (2021); ProcessGroupNCCL environment variables" },
	{ "torch-blocking-wait", "NCCL_BLOCKING_WAIT", "1", FO_AUDIT_ADVICE,
	  "wait() on a collective blocks the processor", "unset (TORCH_NCCL_ASYNC_ERROR_HANDLING ends hung jobs)",
	  "the processor cannot launch ahead while it waits",
	  "pytorch/pytorch#50820 (2021): it made a training extremely slow" },
	{ "torch-compile-off", "TORCHDYNAMO_DISABLE", "1", FO_AUDIT_ADVICE, "torch.compile does nothing", "unset",
	  "code that asks for compilation runs eagerly", "PyTorch 2.9, torch.compile troubleshooting" },
	{ "tf32-off", "NVIDIA_TF32_OVERRIDE", "0", FO_AUDIT_ADVICE, "no library may use TF32", "unset",
	  "matmuls that are still in fp32 run on the vector units, at about an eighth of TF32's rate",
	  "cuBLAS 13 documentation, NVIDIA_TF32_OVERRIDE" },
	{ "nccl-check-pointers", "NCCL_CHECK_POINTERS", "1", FO_AUDIT_ADVICE, "NCCL checks every pointer of every call",
	  "unset", "it adds latency to each collective", NCCL_GUIDE },
	{ "nccl-launch-mode", "NCCL_LAUNCH_MODE", "GROUP", FO_AUDIT_ADVICE, "deprecated launch mode", "unset",
	  "it is deprecated since NCCL 2.9 and may be removed", NCCL_GUIDE },
	{ "nccl-p2p-level", "NCCL_P2P_LEVEL", "LOC", FO_AUDIT_SERIOUS, "GPUs may not access each other", "unset",
	  "NVLink stays unused: data between GPUs of a host go through its memory", NCCL_GUIDE },
	{ "nccl-shm-disable", "NCCL_SHM_DISABLE", "1", FO_AUDIT_ADVICE, "no shared memory between ranks of a host",
	  "unset", "GPUs without peer access then talk over the network, even within the host", NCCL_GUIDE },
	{ "nccl-debug", "NCCL_DEBUG", "TRACE", FO_AUDIT_ADVICE, "every call is logged", "WARN",
	  "each rank writes for each collective", NCCL_GUIDE },
	{ "nccl-debug-info", "NCCL_DEBUG", "INFO", FO_AUDIT_NOTE, "NCCL logs its start", "WARN once the job runs",
	  "the log of a large job is long; the speed of steps hardly changes", NCCL_GUIDE },
	{ "nccl-nvls-off", "NCCL_NVLS_ENABLE", "0", FO_AUDIT_ADVICE, "NVLink SHARP is off", "unset",
	  "on Hopper and newer boards with NVSwitch the switch can add in an all-reduce", NCCL_GUIDE },
	{ "nccl-algo", "NCCL_ALGO", "*", FO_AUDIT_ADVICE, "NCCL's choice of algorithms is restricted", "unset",
	  "NCCL chooses by message size and topology; a fixed choice fits some sizes only", NCCL_GUIDE },
	{ "nccl-channels", "NCCL_MAX_NCHANNELS", "*", FO_AUDIT_NOTE, "the number of channels is limited",
	  "unset, or NCCL_MAX_CTAS; measure both",
	  "fewer channels leave more of the GPU to matmuls, and less bandwidth", NCCL_GUIDE },
	{ "nccl-channels", "NCCL_MIN_NCHANNELS", "*", FO_AUDIT_NOTE, "the number of channels is raised",
	  "unset, or NCCL_MIN_CTAS; measure both", "each channel occupies a multiprocessor while a collective runs",
	  NCCL_GUIDE },
	{ "te-debug", "NVTE_DEBUG", "1", FO_AUDIT_NOTE, "Transformer Engine logs which attention it chooses", "unset",
	  "it is for debugging", "Transformer Engine 2.x, environment variables" },
	{ "te-deterministic", "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", FO_AUDIT_ADVICE,
	  "only deterministic attention kernels are used", "1, unless bitwise repeatable runs are needed",
	  "the fastest backward kernels add in any order", "Transformer Engine 2.x, environment variables" },
	{ "omp-one-thread", "OMP_NUM_THREADS", "1", FO_AUDIT_NOTE, "operators on the processor use one thread",
	  "processors of the host / GPUs, where the data pipeline or an offloaded optimizer computes there",
	  "torchrun sets it to 1 where it is unset", "PyTorch 2.9, torchrun" },
};
enum { VARIABLES = sizeof variable / sizeof *variable };

static bool matches(const struct fo_host_fact *f, const char *value)
{
	if (!strcmp(value, "*"))
		return *f->text;
	if (!strcmp(value, "1"))
		return fo_host_on(f);
	if (!strcmp(value, "0"))
		return f->number == 0;
	return is(f, value);
}

static const char *set_to(struct fo_look *k, const char *name, const struct fo_host_fact *f, const char *words)
{
	return fo_look_text(k, "%s=%.60s: %s", name, f->text, words);
}

static bool look_variables(struct fo_look *k)
{
	if (!has_environment(k))
		return false;
	for (int i = 0; i < VARIABLES; i++) {
		const struct variable_rule *v = &variable[i];
		const struct fo_host_fact *f = var(k, v->name);
		k->rule = v->id;
		k->a->checked += i > 0;
		if (!f || !matches(f, v->value))
			continue;
		bool unset = fo_host_begins(v->proposed, "unset");
		fo_look_add(k, f,
			    (struct fo_audit_finding){ .level = v->level,
						       .title = set_to(k, v->name, f, v->words),
						       .setting = v->name,
						       .now = f->text,
						       .proposed = v->proposed,
						       .why = v->why,
						       .paste = unset && v->level != FO_AUDIT_NOTE
									? fo_look_text(k, "unset %s", v->name)
									: NULL,
						       .source = v->source });
	}
	return true;
}

/* ---- variables whose effect depends on the network ---- */

/* Those of the socket transport, which verbs do not read. */
static bool look_socket_only(struct fo_look *k)
{
	static const char *const name[] = { "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD" };
	const struct fo_host_fact *at;
	enum fo_host_net net = fo_host_net(k->host, &at);
	for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
		const struct fo_host_fact *f = var(k, name[i]);
		if (!f || net == FO_NET_SOCKET)
			continue;
		if (!fo_net_verbs(net)) {
			fo_look_add(
				k, f,
				(struct fo_audit_finding){
					.level = FO_AUDIT_NOTE,
					.title = fo_look_text(k, "%s is read by the socket transport alone", name[i]),
					.setting = name[i],
					.now = f->text,
					.why = "whether this job uses sockets is not told",
					.source = NCCL_GUIDE });
			fo_audit_not_known(k->a, "which transport NCCL uses between hosts", NETWORK_TELLS);
			continue;
		}
		fo_look_add(
			k, f,
			(struct fo_audit_finding){
				.level = FO_AUDIT_ADVICE,
				.title = fo_look_text(k, "%s=%.20s does nothing over %s", name[i], f->text,
						      net_words(net)),
				.setting = name[i],
				.now = f->text,
				.proposed = "unset",
				.why = fo_look_text(
					k,
					"it sets threads and connections of the socket transport; here the network is "
					"%s (%s)",
					net_words(net), fo_look_where(k->a, at)),
				.paste = fo_look_text(k, "unset %s", name[i]),
				.source = NCCL_GUIDE });
	}
	return has_environment(k);
}

static bool look_gid_index(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "NCCL_IB_GID_INDEX"), *at;
	enum fo_host_net net = fo_host_net(k->host, &at);
	if (!f || f->text[0] == '-' || net == FO_NET_SOCKET)
		return has_environment(k);
	struct fo_audit_finding o = {
		.level = FO_AUDIT_NOTE,
		.title = "NCCL_IB_GID_INDEX is read for RoCE alone",
		.setting = "NCCL_IB_GID_INDEX",
		.now = f->text,
		.why = "whether the ports are InfiniBand or Ethernet is not told",
		.source = NCCL_GUIDE,
	};
	if (net == FO_NET_IB) {
		o.level = FO_AUDIT_ADVICE;
		o.title = fo_look_text(k, "NCCL_IB_GID_INDEX=%.20s does nothing over InfiniBand", f->text);
		o.proposed = "unset";
		o.why = fo_look_text(k, "it is read for RoCE alone, and here the ports are InfiniBand (%s)",
				     fo_look_where(k->a, at));
		o.paste = "unset NCCL_IB_GID_INDEX";
		o.source = NCCL_GUIDE ", and src/transport/net_ib/connect.cc";
	} else if (net == FO_NET_ROCE) {
		o.title = "NCCL_IB_GID_INDEX is fixed";
		o.proposed = "unset: NCCL 2.21 and later find the index of RoCE v2 themselves";
		o.why = "an index that differs between hosts, or changes with an address, breaks connections";
	} else {
		fo_audit_not_known(k->a, "whether the network ports are InfiniBand or Ethernet", "ibstat");
	}
	fo_look_add(k, f, o);
	return true;
}

static bool look_ib_disable(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "NCCL_IB_DISABLE");
	int active = fo_host_active_ib(k->host);
	struct fo_audit_finding o = {
		.level = FO_AUDIT_ADVICE,
		.title = "NCCL_IB_DISABLE=1 turns InfiniBand and RoCE off",
		.setting = "NCCL_IB_DISABLE",
		.now = "1",
		.proposed = "unset, if this host has such ports",
		.why = "collectives between hosts go over TCP, through the processor",
		.paste = "unset NCCL_IB_DISABLE",
		.source = NCCL_GUIDE,
	};
	if (f && f->number == 0) {
		o.level = FO_AUDIT_NOTE;
		o.title = "NCCL_IB_DISABLE=0 is the default";
		o.now = "0";
		o.proposed = "unset: it changes nothing";
		o.why = "NCCL takes InfiniBand and RoCE wherever it finds them";
		o.paste = NULL;
		fo_look_add(k, f, o);
	}
	if (active) {
		o.level = FO_AUDIT_SERIOUS;
		o.title = fo_look_text(k, "NCCL_IB_DISABLE=1 with %d active InfiniBand %s", active, ports(active));
		o.proposed = "unset";
	}
	if (fo_host_on(f))
		fo_look_add(k, f, o);
	return has_environment(k);
}

static bool look_net_socket(struct fo_look *k)
{
	const struct fo_host_fact *forced = var(k, "NCCL_NET"), *log = fo_host_told(k->host, FO_HOST_NET), *at = log;
	int active = fo_host_active_ib(k->host);
	bool socket = (log && !strcmp(log->text, "Socket")) || is(forced, "Socket");
	if (!socket || fo_host_on(var(k, "NCCL_IB_DISABLE")))
		return fo_host_net(k->host, &at) != FO_NET_UNKNOWN;
	struct fo_audit_finding o = {
		/* Of a job on one host the network does not matter, and one log does not tell. */
		.level = FO_AUDIT_NOTE,
		.title = "NCCL takes sockets as its network between hosts",
		.proposed = "IB, or the plugin of the cloud (aws-ofi-nccl, gIB), where the host has such a network",
		.why = "TCP goes through the processor; ibstat tells whether there is something better",
		.source = NCCL_GUIDE,
	};
	if (is(forced, "Socket")) {
		at = forced;
		o.setting = "NCCL_NET";
	}
	o.now = at->text;
	if (k->facts->hosts > 1)
		o.level = FO_AUDIT_ADVICE;
	if (active) {
		o.level = FO_AUDIT_SERIOUS;
		o.title = fo_look_text(k, "NCCL uses sockets with %d active InfiniBand %s", active, ports(active));
		o.proposed =
			"IB: unset NCCL_NET and NCCL_IB_DISABLE; give the container /dev/infiniband and libibverbs";
		o.why = "collectives between hosts go over TCP, through the processor";
	}
	fo_look_add(k, at, o);
	return true;
}

/* What NCCL itself complained about. */
static bool look_warnings(struct fo_look *k)
{
	const struct fo_host_fact *f = fo_host_told(k->host, FO_HOST_NCCL_WARN);
	if (f)
		fo_look_add(
			k, f,
			(struct fo_audit_finding){
				.level = FO_AUDIT_ADVICE,
				.title = fo_look_text(k, "NCCL warned %.0f time%s", f->number, fo_plural(f->number)),
				.now = f->text,
				.proposed = "read the first warning; later ones often follow from it",
				.why = "it warns where a call of the system or of another library fails" });
	return fo_host_told(k->host, FO_HOST_NET) || fo_host_told(k->host, FO_HOST_NCCL);
}

static bool look_gdr_level(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "NCCL_NET_GDR_LEVEL"), *at;
	if (!f)
		return has_environment(k);
	/* Numbers of NCCL before 2.4: levelsOldToNew of src/graph/paths.cc (2.30). */
	static const char *const old[] = { "LOC", "PIX", "PXB", "PHB", "SYS", "SYS" };
	bool digit = isdigit((unsigned char)*f->text);
	const char *level = digit ? old[(int)fmin(f->number, 5)] : f->text;
	struct fo_audit_finding o = {
		.level = FO_AUDIT_ADVICE,
		.title = fo_look_text(k, "NCCL_NET_GDR_LEVEL=%.20s means %s: it does not turn GPUDirect RDMA on",
				      f->text, level),
		.setting = "NCCL_NET_GDR_LEVEL",
		.now = f->text,
		.proposed = "unset (PXB: adapters under the GPU's PCIe switches), or a name after a measurement",
		.why = "GPUDirect RDMA is on wherever its module or DMA-BUF is there; the level only says from how "
		       "far, and "
		       "a path across processors can be slower with it",
		.paste = "unset NCCL_NET_GDR_LEVEL",
		.source = NCCL_GUIDE ", and src/graph/paths.cc: numbers are discouraged",
	};
	if (!strcmp(level, "LOC")) {
		o.title = fo_look_text(k, "NCCL_NET_GDR_LEVEL=%.20s turns GPUDirect RDMA off", f->text);
		o.proposed = "unset";
		o.why = "data between hosts are copied through host memory";
		o.source = NCCL_GUIDE;
		if (fo_net_verbs(fo_host_net(k->host, &at)))
			o.level = FO_AUDIT_SERIOUS;
	}
	if (digit || !strcmp(level, "SYS") || !strcmp(level, "LOC"))
		fo_look_add(k, f, o);
	return true;
}

static bool look_gdr_read(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "NCCL_NET_GDR_READ"), *at;
	if (f && f->number == 0 && fo_net_verbs(fo_host_net(k->host, &at)))
		fo_look_add(k, f,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_ADVICE,
				    .title = "NCCL_NET_GDR_READ=0: data to send are copied through host memory",
				    .setting = "NCCL_NET_GDR_READ",
				    .now = "0",
				    .proposed = "unset",
				    .why = "boards with NVLink read the GPU's memory directly by default",
				    .paste = "unset NCCL_NET_GDR_READ",
				    .source = NCCL_GUIDE });
	return has_environment(k);
}

static bool has_nvlink(const struct fo_host *h)
{
	for (size_t i = 0; i < h->links; i++)
		if (fo_host_begins(h->link[i].path, "NV"))
			return true;
	for (size_t i = 0; i < h->gpus; i++) {
		const struct fo_host_fact *name = fo_gpu_told(&h->gpu[i], FO_GPU_NAME);
		if (fo_host_number(fo_gpu_told(&h->gpu[i], FO_GPU_LINKS_UP)) > 0 ||
		    (name && fo_host_nvlinks(name->text)))
			return true;
	}
	return false;
}

static bool look_p2p_disable(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "NCCL_P2P_DISABLE");
	struct fo_audit_finding o = {
		.level = FO_AUDIT_ADVICE,
		.title = "NCCL_P2P_DISABLE=1: GPUs may not access each other",
		.setting = "NCCL_P2P_DISABLE",
		.now = "1",
		.proposed = "unset",
		.why = "data between GPUs of a host go through its memory",
		.paste = "unset NCCL_P2P_DISABLE",
		.source = NCCL_GUIDE,
	};
	if (has_nvlink(k->host)) {
		o.level = FO_AUDIT_SERIOUS;
		o.title = "NCCL_P2P_DISABLE=1 on GPUs with NVLink";
	}
	if (fo_host_on(f))
		fo_look_add(k, f, o);
	return has_environment(k);
}

/* "LL", "LL128,Simple", "^LL128" */
static bool look_proto(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "NCCL_PROTO");
	if (!f || !*f->text)
		return has_environment(k);
	struct fo_audit_finding o = {
		.level = FO_AUDIT_ADVICE,
		.title = fo_look_text(k, "NCCL_PROTO=%.20s restricts NCCL's protocols", f->text),
		.setting = "NCCL_PROTO",
		.now = f->text,
		.proposed = "unset",
		.why = "a protocol that the platform does not support can corrupt data, and each fits some sizes only",
		.paste = "unset NCCL_PROTO",
		.source = NCCL_GUIDE,
	};
	if (*f->text == '^')
		o.proposed = "unset, once the fault is mended that it works around";
	if (is(f, "Simple"))
		o.why = "small messages then take Simple's latency";
	if (is(f, "LL")) {
		o.level = FO_AUDIT_SERIOUS;
		o.why = "LL sends a flag with each 4 bytes of data: at most half of the bandwidth, on every message";
	}
	fo_look_add(k, f, o);
	return true;
}

static bool look_buffsize(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "NCCL_BUFFSIZE");
	enum { DEFAULT = 4 << 20 };
	if (!f)
		return has_environment(k);
	struct fo_audit_finding o = {
		.level = FO_AUDIT_NOTE,
		.title = fo_look_text(k, "NCCL_BUFFSIZE=%.20s", f->text),
		.setting = "NCCL_BUFFSIZE",
		.now = f->text,
		.proposed = "unset (4194304), or a value that was measured",
		.why = "it is the buffer between two GPUs, in bytes; small ones cut messages into many pieces",
		.source = NCCL_GUIDE,
	};
	if (f->number < 1 << 20)
		o.level = FO_AUDIT_ADVICE;
	if (f->number == DEFAULT) {
		o.title = "NCCL_BUFFSIZE=4194304 is the default";
		o.proposed = "unset: it changes nothing";
	}
	fo_look_add(k, f, o);
	return true;
}

static bool look_ifname(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "NCCL_SOCKET_IFNAME"), *at;
	const char *name = f ? f->text + (*f->text == '=') : "";
	if (!f || *name == '^')
		return has_environment(k);
	bool local = !strncmp(name, "lo", 2) && (!name[2] || name[2] == ','), docker = fo_host_begins(name, "docker");
	if (local || docker)
		fo_look_add(
			k, f,
			(struct fo_audit_finding){
				.level = FO_AUDIT_ADVICE,
				.title = fo_look_text(k, "NCCL_SOCKET_IFNAME=%.20s reaches this host alone", f->text),
				.setting = "NCCL_SOCKET_IFNAME",
				.now = f->text,
				.proposed = "the interface that the hosts reach each other by",
				.why = "ranks of other hosts cannot connect over it",
				.source = NCCL_GUIDE });
	else if (fo_net_verbs(fo_host_net(k->host, &at)))
		fo_look_add(k, f,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_NOTE,
				    .title = "NCCL_SOCKET_IFNAME serves the start alone",
				    .setting = "NCCL_SOCKET_IFNAME",
				    .now = f->text,
				    .why = fo_look_text(k, "ranks find each other over it; data go over %s (%s)",
							net_words(fo_host_net(k->host, &at)), fo_look_where(k->a, at)),
				    .source = NCCL_GUIDE });
	return true;
}

/* ---- which adapters ---- */

/* Does the list "mlx5_0:1,mlx5_3" (prefixes; '=' exact, '^' all but these) take this port? */
static bool takes(const char *list, const struct fo_host_port *p)
{
	bool without = *list == '^', exact, found = false;
	list += without;
	exact = *list == '=';
	list += exact;
	for (const char *w = list; *w && !found; w += strcspn(w, ","), w += *w == ',') {
		size_t n = strcspn(w, ":,");
		bool name = !strncmp(p->adapter, w, n) && (!exact || !p->adapter[n]);
		int port = w[n] == ':' ? atoi(w + n + 1) : 0;
		found = n && name && (!port || port == p->port);
	}
	return found != without;
}

static bool useful(const struct fo_host *h, const struct fo_host_port *p)
{
	int rank = fo_host_adapter_rank(h, p->adapter);
	return fo_host_port_active(p) && (!h->links || (rank >= 0 && rank <= 2));
}

static bool look_hca(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "NCCL_IB_HCA");
	const struct fo_host *h = k->host;
	int all = 0, taken = 0, active = 0;
	for (size_t i = 0; f && i < h->ports; i++) {
		bool t = takes(f->text, &h->port[i]);
		active += t && fo_host_port_active(&h->port[i]);
		all += useful(h, &h->port[i]);
		taken += t && useful(h, &h->port[i]);
	}
	if (!f)
		return has_environment(k);
	struct fo_audit_finding o = {
		.level = FO_AUDIT_SERIOUS,
		.title = "NCCL_IB_HCA names no active port of this host",
		.setting = "NCCL_IB_HCA",
		.now = f->text,
		.proposed = "unset, or adapters that ibstat shows as active",
		.why = "NCCL then falls back to sockets",
		.paste = "unset NCCL_IB_HCA",
		.source = NCCL_GUIDE,
	};
	if (active) {
		o.title = fo_look_text(k, "NCCL_IB_HCA leaves %d of %d active ports unused", all - taken, all);
		o.proposed = "all adapters that share a PCIe switch with a GPU";
		o.why = fo_look_text(
			k, "traffic between hosts shares the ports that are named, and takes up to %.2g times as long",
			(double)all / fmax(taken, 1));
		o.paste = NULL;
	}
	if (active && !h->links) {
		o.proposed = "all adapters of the GPUs; nvidia-smi topo -m tells which they are";
		if (2 * taken > all)
			o.level = FO_AUDIT_ADVICE;
	}
	if (h->ports && (!active || taken < all))
		fo_look_add(k, f, o);
	return h->ports > 0;
}

/* ---- PyTorch ---- */

/* One hardware queue keeps the order of launches, which Megatron's overlap of tensor parallelism needs on Hopper and
 * older; FSDP's overlap wants several. */
static bool look_connections(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "CUDA_DEVICE_MAX_CONNECTIONS");
	if (f && f->number == 1)
		fo_look_add(
			k, f,
			(struct fo_audit_finding){
				.level = FO_AUDIT_NOTE,
				.title = "CUDA_DEVICE_MAX_CONNECTIONS=1: one queue between processor and GPU",
				.setting = "CUDA_DEVICE_MAX_CONNECTIONS",
				.now = "1",
				.proposed = "1 for Megatron's tensor parallelism on Hopper and older; unset for FSDP",
				.why = "Megatron-LM needs the order of launches; with FSDP it can keep gathers from "
				       "overlapping",
				.source = "Megatron Core developer guide, Megatron-FSDP user guide (2026): unset it" });
	return has_environment(k);
}

static bool look_allocator(struct fo_look *k)
{
	const struct fo_host_fact *f = var(k, "PYTORCH_CUDA_ALLOC_CONF"), *newer = var(k, "PYTORCH_ALLOC_CONF");
	f = newer ? newer : f;
	if (f && !strstr(f->text, "expandable_segments:True") && !strstr(f->text, "cudaMallocAsync"))
		fo_look_add(k, f,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_NOTE,
				    .title = "PyTorch's allocator is tuned without expandable segments",
				    .setting = newer ? "PYTORCH_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF",
				    .now = f->text,
				    .proposed = "expandable_segments:True",
				    .why = "segments that grow avoid fragments; each retry of an allocation waits for "
					   "the GPU",
				    .paste = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
				    .source = "PyTorch 2.9 notes, CUDA semantics: memory management" });
	return has_environment(k);
}

static bool look_attention(struct fo_look *k)
{
	const struct fo_host_fact *flash = var(k, "NVTE_FLASH_ATTN"), *fused = var(k, "NVTE_FUSED_ATTN");
	if (flash && fused && flash->number == 0 && fused->number == 0)
		fo_look_add(k, flash,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_SERIOUS,
				    .title = "Transformer Engine may use neither flash nor fused attention",
				    .setting = "NVTE_FLASH_ATTN, NVTE_FUSED_ATTN",
				    .now = "0, 0",
				    .proposed = "unset",
				    .why = "attention then writes the whole matrix of scores to memory",
				    .paste = "unset NVTE_FLASH_ATTN NVTE_FUSED_ATTN",
				    .source = "Transformer Engine 2.x, environment variables" });
	return has_environment(k);
}

#define NEEDS_ENV "env of a rank, or the log of a start with NCCL_DEBUG=INFO"
const struct fo_host_rule fo_host_rules_nccl[] = {
	{ "environment", look_variables, "environment of the job", NEEDS_ENV },
	{ "nccl-socket-only", look_socket_only, NULL, NULL },
	{ "nccl-ib-gid-index", look_gid_index, NULL, NULL },
	{ "nccl-ib-disable", look_ib_disable, NULL, NULL },
	{ "nccl-net-socket", look_net_socket, "which transport NCCL uses between hosts", NETWORK_TELLS },
	{ "nccl-warnings", look_warnings, NULL, NULL },
	{ "nccl-gdr-level", look_gdr_level, NULL, NULL },
	{ "nccl-gdr-read", look_gdr_read, NULL, NULL },
	{ "nccl-p2p-disable", look_p2p_disable, NULL, NULL },
	{ "nccl-proto", look_proto, NULL, NULL },
	{ "nccl-buffsize", look_buffsize, NULL, NULL },
	{ "nccl-socket-ifname", look_ifname, NULL, NULL },
	{ "nccl-ib-hca", look_hca, "whether NCCL_IB_HCA names all ports", "ibstat" },
	{ "cuda-connections", look_connections, NULL, NULL },
	{ "torch-allocator", look_allocator, NULL, NULL },
	{ "te-attention", look_attention, NULL, NULL },
	{ 0 },
};
