/* Private to the host half: how readers put facts down, and what rules share. */
#ifndef FO_AUDIT_HOST_INT_H
#define FO_AUDIT_HOST_INT_H

#include "audit/host.h"

#include <stddef.h>

/* ---- readers (host_read.c, host_smi.c, host_fabric.c, host_system.c) ---- */

/* Kinds of text. X(name, words for people, whether one host has it once) */
#define FO_HOST_KINDS(X)                                 \
	X(SMI_QUERY, "nvidia-smi -q", true)              \
	X(SMI_TABLE, "nvidia-smi", true)                 \
	X(SMI_TOPO, "nvidia-smi topo -m", true)          \
	X(SMI_NVLINK, "nvidia-smi nvlink -s", true)      \
	X(SMI_BOOST, "nvidia-smi boost-slider -l", true) \
	X(LSCPU, "lscpu", true)                          \
	X(NUMACTL, "numactl -H", true)                   \
	X(CPUPOWER, "cpupower frequency-info", true)     \
	X(ENV, "environment", false)                     \
	X(NCCL_LOG, "NCCL log", false)                   \
	X(IBSTAT, "ibstat", true)                        \
	X(IBV, "ibv_devinfo", true)                      \
	X(LSMOD, "lsmod", true)                          \
	X(LSPCI, "lspci -vv", true)                      \
	X(ULIMIT, "ulimit -a", true)                     \
	X(DF, "df", false)                               \
	X(MEMINFO, "/proc/meminfo", true)                \
	X(SMALL, "settings of the kernel", false)        \
	X(CMDLINE, "/proc/cmdline", true)                \
	X(PIP, "pip freeze", false)                      \
	X(ROCM, "rocm-smi", false)
#define FO_HOST_KIND_ID(name, words, once) FO_KIND_##name,
enum fo_host_kind { FO_HOST_KINDS(FO_HOST_KIND_ID) FO_KIND_COUNT };
extern const char *const fo_host_kind_name[FO_KIND_COUNT];

/* A text that is being read, line by line. */
struct fo_host_reader {
	struct fo_host_facts *f;
	size_t host;      /* index: the array may move */
	const char *file; /* in the arena */
	int64_t line;
	enum fo_host_kind kind; /* of the section; FO_KIND_COUNT: none */
	int64_t found[FO_KIND_COUNT];
	/* What the readers of sections remember of the lines above. */
	int gpu, port; /* index of the one that is described; -1 */
	const char *adapter, *adapter_type;
	char path[8][48];                  /* of nvidia-smi -q: the headings above, by depth */
	int indent[8], depth;              /* and their indentation */
	int column[FO_TOPO_MOST], columns; /* of topo -m: what each column is, in topo_name[] */
	int links_up, links_down, row;
	int64_t gpu_line;    /* of nvidia-smi -q: where the GPU that is described begins */
	const char *pending; /* a variable of Kubernetes whose value stands on the next line */
	int64_t telling;     /* variables that show an environment: of training, or PATH and its like */
};
/* The text names its host: what follows is of that one. */
void fo_host_named(struct fo_host_reader *r, const char *name, size_t n);
static inline struct fo_host *fo_reader_host(const struct fo_host_reader *r) { return &r->f->host[r->host]; }
/* Adds a host; its index. */
size_t fo_host_new(struct fo_host_facts *f, const char *name, const char *folder);
/* Reads a text into a host that is there. */
void fo_host_read_as(struct fo_host_facts *f, size_t host, const char *name, const char *text, size_t len);
/* A section of this kind begins: another host's where a file of this kind was read before. */
void fo_host_begin(struct fo_host_reader *r, enum fo_host_kind kind);

/* Puts a fact down; text (of n bytes) is copied and made safe for terminals. What is told twice is told last. */
void fo_host_tell(struct fo_host_reader *r, struct fo_host_fact *to, enum fo_host_kind kind, double number,
		  const char *text, size_t n);
/* The same where nothing was told yet. */
void fo_host_fill(struct fo_host_reader *r, struct fo_host_fact *to, enum fo_host_kind kind, double number,
		  const char *text, size_t n);
void fo_host_tell_variable(struct fo_host_reader *r, const char *name, size_t name_len, const char *value, size_t n);
struct fo_host_gpu *fo_host_gpu_at(struct fo_host_reader *r, int index);
struct fo_host_port *fo_host_port_at(struct fo_host_reader *r, const char *adapter, size_t n, int port);

/* A line without its end, escapes and carriage return; text[n] is 0. */
struct fo_line {
	const char *text;
	size_t n;
	int indent; /* blanks at the front; a tab counts to the next multiple of 8 */
};
const char *fo_line_trimmed(const struct fo_line *l); /* behind the blanks */

/* Each takes a line of its section, or begins one. false: not its line. */
bool fo_read_smi_query(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_smi_table(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_smi_topo(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_smi_nvlink(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_smi_boost(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_ibstat(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_ibv(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_nccl_log(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_system(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_modules(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_pip(struct fo_host_reader *r, const struct fo_line *l);
bool fo_read_env(struct fo_host_reader *r, const struct fo_line *l);

/* The number at the front of text ("700.00 W", "16x"); NAN where there is none. */
double fo_host_number_at(const char *text);
/* "Active", "Enabled", "Yes", "On": 1; "Not Active", "Disabled", "No", "Off": 0; NAN. */
double fo_host_yes(const char *text);
bool fo_host_begins(const char *text, const char *with);

/* ---- rules (host_rules.c, host_look.c, host_rules_*.c) ---- */

/* What a rule sees. */
struct fo_look {
	struct fo_audit *a;
	const struct fo_host_facts *facts;
	const struct fo_host *host;
	const char *rule; /* the id of findings */
};
/* Returns false where the host's facts do not allow a judgement: the rule then counts as not known. */
typedef bool fo_look_fn(struct fo_look *k);
struct fo_host_rule {
	const char *id;
	fo_look_fn *look;
	const char *what, *tell; /* where it cannot look: what is not known, which command or file would tell */
};
extern const struct fo_host_rule fo_host_rules_gpu[], fo_host_rules_fabric[], fo_host_rules_nccl[],
	fo_host_rules_system[], fo_host_rules_versions[]; /* each ends with an id of NULL */

/* Adds a finding of this rule with its evidence from a fact, and the host's name where there are several. One that
 * another host already has gets this host as further evidence. */
void fo_look_add(struct fo_look *k, const struct fo_host_fact *at, struct fo_audit_finding f);
/* "gpu.txt:12", or the file alone where the fact is of the whole. */
const char *fo_look_where(struct fo_audit *a, const struct fo_host_fact *at);
#define fo_look_text(k, ...) fo_audit_text((k)->a, __VA_ARGS__)

/* Which GPUs something is true of: "3 of 8 GPUs (1, 2, 5)". */
struct fo_gpus_of {
	int n, first; /* first: index in host->gpu; -1 */
	char list[96];
};
typedef bool fo_gpu_is(const struct fo_host_gpu *g);
struct fo_gpus_of fo_look_gpus(const struct fo_look *k, fo_gpu_is *is);
const char *fo_look_gpus_text(struct fo_look *k, const struct fo_gpus_of *which);
/* Does any GPU tell this? */
bool fo_look_any_gpu(const struct fo_look *k, enum fo_gpu_id id);

/* What the network between hosts is: by NCCL's log, else by variables that choose it, else by the ports that are
 * active. *at: the fact that says so. */
enum fo_host_net {
	FO_NET_UNKNOWN,
	FO_NET_IB,
	FO_NET_ROCE,
	FO_NET_VERBS, /* one of the two */
	FO_NET_SOCKET,
	FO_NET_OTHER /* a plugin's: EFA, ... */
};
static inline bool fo_net_verbs(enum fo_host_net n) { return n == FO_NET_IB || n == FO_NET_ROCE || n == FO_NET_VERBS; }
/* Is the variable a yes? */
bool fo_host_on(const struct fo_host_fact *variable);
enum fo_host_net fo_host_net(const struct fo_host *h, const struct fo_host_fact **at);
bool fo_host_port_active(const struct fo_host_port *p);
bool fo_host_port_ib(const struct fo_host_port *p);
int fo_host_active_ib(const struct fo_host *h); /* InfiniBand ports in state Active */
/* The nearest path from this adapter to any GPU in topo -m, as a rank (0 NV, PIX 1, PXB 2, PHB 3, NODE 4, SYS 5); -1:
 * not told. */
int fo_host_path_rank(const char *path);
int fo_host_adapter_rank(const struct fo_host *h, const char *adapter);
/* NVLinks of a GPU by its name; 0: not known or none. */
int fo_host_nvlinks(const char *gpu_name);

#endif
