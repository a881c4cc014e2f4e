/* The host half of an audit: what files or this machine tell about hosts, and the rules that judge it.
 *
 * Files are recognised by what they say, never by their name: nvidia-smi (its table, -q, topo -m, nvlink -s,
 * boost-slider -l), lscpu, numactl -H, cpupower, env and job scripts, NCCL's log, ibstat, ibv_devinfo, lsmod,
 * lspci -vv, ulimit -a, df, /proc/meminfo, /proc/cmdline, pip. One file may hold several of them ("$ command" above
 * each). What is not told stays unknown: no rule reads a default into it. Nothing is ever set. */
#ifndef FO_AUDIT_HOST_H
#define FO_AUDIT_HOST_H

#include "audit/audit.h"

#include <stdbool.h>
#include <stdint.h>

/* A fact as it was told. file NULL: not told. number: NAN for words; on or off are 1 and 0. */
struct fo_host_fact {
	double number;
	const char *text; /* as it stood there, never NULL where file is not */
	const char *file;
	int64_t line; /* 0: the file as a whole, or a call of a library */
};

/* Facts of a host. X(name) */
#define FO_HOST_FACTS(X)                     \
	X(DRIVER)                            \
	X(CUDA)                              \
	X(SMI_FAILED)                        \
	X(GPUS) /* nvidia-smi */             \
	X(CPU_MODEL)                         \
	X(CPUS)                              \
	X(SOCKETS)                           \
	X(THREADS_PER_CORE)                  \
	X(NUMA_NODES)                        \
	X(HYPERVISOR) /* lscpu, numactl */   \
	X(GOVERNOR)                          \
	X(CPU_DRIVER)                        \
	X(TURBO) /* cpupower, /sys */        \
	X(MEMORY_KIB)                        \
	X(HUGE_PAGES)                        \
	X(THP) /* meminfo, /sys */           \
	X(MEMLOCK_KIB)                       \
	X(OPEN_FILES) /* ulimit; INFINITY */ \
	X(SHM_BYTES)  /* df /dev/shm */      \
	X(GROUP_CPUS)                        \
	X(GROUP_BYTES)                       \
	X(ALLOWED_CPUS) /* control group */  \
	X(CMDLINE)                           \
	X(ACS) /* cmdline, lspci -vv */      \
	X(MODULES)                           \
	X(PEERMEM) /* lsmod */               \
	X(NCCL)                              \
	X(NET)                               \
	X(NET_ROCE)                          \
	X(GDR_ON)                            \
	X(GDR_OFF)                           \
	X(NCCL_WARN) /* NCCL's log */        \
	X(PIP)                               \
	X(PIP_NCCL)                          \
	X(TORCH)                             \
	X(CUBLAS)                            \
	X(CUDNN)                             \
	X(TRANSFORMER_ENGINE) /* pip */      \
	X(ROCM)               /* rocm-smi: not read */
#define FO_HOST_ID(name) FO_HOST_##name,
enum fo_host_id { FO_HOST_FACTS(FO_HOST_ID) FO_HOST_FACT_COUNT };

/* Facts of a GPU. Clocks in MHz, power in W, counters of slowdowns in seconds; REASON_*: 1 active, 0 not active. */
#define FO_GPU_FACTS(X)      \
	X(NAME)              \
	X(PERSISTENCE)       \
	X(MIG)               \
	X(COMPUTE_MODE)      \
	X(PSTATE)            \
	X(BUSY)              \
	X(PCIE_GEN)          \
	X(PCIE_GEN_MAX)      \
	X(PCIE_WIDTH)        \
	X(PCIE_WIDTH_MAX)    \
	X(LIMIT_W)           \
	X(DEFAULT_W)         \
	X(POWER_W)           \
	X(SM_MHZ)            \
	X(SM_MAX_MHZ)        \
	X(APP_MHZ)           \
	X(APP_DEFAULT_MHZ)   \
	X(IDLE)              \
	X(REASON_APP)        \
	X(REASON_POWER)      \
	X(REASON_HW)         \
	X(REASON_HW_THERMAL) \
	X(REASON_BRAKE)      \
	X(REASON_SW_THERMAL) \
	X(THERMAL_S)         \
	X(BRAKE_S)           \
	X(TEMPERATURE)       \
	X(ECC)               \
	X(ECC_PENDING)       \
	X(UNCORRECTED)       \
	X(REMAP_PENDING)     \
	X(REMAP_FAILED)      \
	X(RETIRE_PENDING)    \
	X(FABRIC)            \
	X(LINKS_UP)          \
	X(LINKS_DOWN)        \
	X(LINK_GB_S)         \
	X(VBOOST)            \
	X(NUMA)
#define FO_GPU_ID(name) FO_GPU_##name,
enum fo_gpu_id { FO_GPU_FACTS(FO_GPU_ID) FO_GPU_FACT_COUNT };

/* Facts of a port of a host channel adapter. RATE in Gbit/s. */
#define FO_PORT_FACTS(X) \
	X(TYPE)          \
	X(STATE)         \
	X(PHYSICAL)      \
	X(RATE)          \
	X(LAYER)         \
	X(NUMA)
#define FO_PORT_ID(name) FO_PORT_##name,
enum fo_port_id { FO_PORT_FACTS(FO_PORT_ID) FO_PORT_FACT_COUNT };

struct fo_host_gpu {
	const char *bus; /* "00000000:1B:00.0", "" not told */
	int index;       /* as nvidia-smi counts */
	struct fo_host_fact fact[FO_GPU_FACT_COUNT];
};
struct fo_host_port {
	const char *adapter; /* "mlx5_0" */
	int port;
	struct fo_host_fact fact[FO_PORT_FACT_COUNT];
};
struct fo_host_variable {
	const char *name;
	struct fo_host_fact value;
};
/* One row of `nvidia-smi topo -m`: from is a GPU, or a NIC by its adapter's name. */
enum { FO_TOPO_MOST = 72 };
struct fo_host_link {
	int16_t from, to; /* in topo_name[] */
	char path[8];     /* "NV18", "PIX", "PXB", "PHB", "NODE", "SYS" */
	struct fo_host_fact at;
};

struct fo_host {
	const char *name;   /* as a file tells it, or a folder's or a file's; "" where nothing names it */
	const char *folder; /* of the files that told about it; NULL: this machine */
	bool named;         /* name is what a file tells */
	struct fo_host_fact fact[FO_HOST_FACT_COUNT];
	struct fo_host_gpu *gpu;
	size_t gpus, gpu_cap;
	struct fo_host_port *port;
	size_t ports, port_cap;
	struct fo_host_variable *variable;
	size_t variables, variable_cap;
	const char *topo_name[FO_TOPO_MOST]; /* "GPU0", "mlx5_0" (or "NIC0" without its legend) */
	int topo_names;
	struct fo_host_link *link;
	size_t links, link_cap;
	uint32_t kinds; /* bits of what was read (host_read.c) */
};

struct fo_host_facts { /* a zeroed one is empty */
	struct fo_arena arena;
	struct fo_host *host;
	size_t hosts, cap;
	const char **read; /* a line per file: what it was taken for */
	int64_t reads;
	const char **not_read; /* files that are none of these, with the reason */
	int64_t not_reads;
	bool here; /* this machine was read */
};
void fo_host_facts_fini(struct fo_host_facts *f);

/* Reads one text (not NUL-terminated). `name` stands in evidence. What it is not or does not hold is no error: not_read
 * names it. Files of one folder are of one host, until a kind comes a second time; those of another folder, or that
 * name another host, are of that one. */
void fo_host_read(struct fo_host_facts *f, const char *name, const char *text, size_t len);
/* The same for files and folders (the files in them). FO_EIO where one cannot be read, FO_EFORMAT over 64 MiB. */
FO_CHECKED fo_status fo_host_read_file(struct fo_host_facts *f, const char *path);
/* Reads this machine: /proc, /sys, the environment, limits of this process, NVML. `root` stands before each path of
 * /proc and /sys: "" for this machine, a made-up tree in tests. */
void fo_host_read_here(struct fo_host_facts *f, const char *root);

/* The fact, or NULL where it was not told. */
const struct fo_host_fact *fo_host_told(const struct fo_host *h, enum fo_host_id id);
const struct fo_host_fact *fo_gpu_told(const struct fo_host_gpu *g, enum fo_gpu_id id);
const struct fo_host_fact *fo_port_told(const struct fo_host_port *p, enum fo_port_id id);
/* A variable of the environment (the last that was told), or NULL. */
const struct fo_host_fact *fo_host_variable(const struct fo_host *h, const char *name);
/* Is the number told, and which? */
static inline double fo_host_number(const struct fo_host_fact *f) { return f ? f->number : NAN; }

/* Judges every host. Adds findings, what was read, and what the facts do not tell. */
void fo_audit_host(struct fo_audit *a, const struct fo_host_facts *facts);

/* Both steps at once, for a command: reads files ("a,b,c" or a folder), or this machine, and judges. */
FO_CHECKED fo_status fo_audit_host_from(struct fo_audit *a, const char *files);
void fo_audit_host_here(struct fo_audit *a);

#endif
