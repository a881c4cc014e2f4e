/* The rules over hosts: each fires on a text that shows its fault and is silent on a healthy host. Readers take half a
 * text, somebody else's and none at all. */
#include "audit/host.h"

#include "base/fs.h"
#include "base/str.h"
#include "host_texts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a healthy host ---- */

static char *query; /* nvidia-smi -q of eight GPUs */

enum { FILES = 17 };
struct ticket {
	const char *name, *text;
};

static int make_query(void **state)
{
	static const char *const bus[] = { "1B", "43", "52", "61", "9D", "C3", "D1", "DF" };
	struct fo_str s = { 0 };
	(void)state;
	fo_str_puts(&s, SMI_QUERY_HEAD);
	for (int i = 0; i < 8; i++)
		fo_str_printf(&s, SMI_QUERY_GPU, bus[i]);
	query = s.data;
	return 0;
}

static int free_query(void **state)
{
	(void)state;
	free(query);
	return 0;
}

static int healthy(struct ticket t[FILES])
{
	const struct ticket all[] = { { "gpu.txt", query },      { "topo.txt", topo },     { "nvlink.txt", nvlink },
				      { "ib.txt", ibstat },      { "cpu.txt", lscpu },     { "power.txt", cpupower },
				      { "env.txt", env },        { "nccl.log", nccl_log }, { "limits.txt", limits },
				      { "modules.txt", lsmod },  { "mem.txt", meminfo },   { "shm.txt", shm },
				      { "boot.txt", cmdline },   { "pci.txt", lspci },     { "pip.txt", pip },
				      { "small.txt", affinity }, { "vboost.txt", vboost } };
	memcpy(t, all, sizeof all);
	return sizeof all / sizeof *all;
}

/* Text with the first (all: every) `from` replaced; the caller frees it. */
static char *replaced(const char *text, const char *from, const char *to, bool all)
{
	struct fo_str s = { 0 };
	const char *at = strstr(text, from);
	assert_non_null(at);
	do {
		fo_str_append(&s, text, (size_t)(at - text));
		fo_str_puts(&s, to);
		text = at + strlen(from);
		at = all ? strstr(text, from) : NULL;
	} while (at);
	fo_str_puts(&s, text);
	return s.data;
}

static const struct fo_audit_finding *find(const struct fo_audit *a, const char *id)
{
	for (size_t i = 0; i < a->count; i++)
		if (!strcmp(a->finding[i].id, id))
			return &a->finding[i];
	return NULL;
}

static void judge(struct fo_audit *a, const struct ticket *t, int n)
{
	struct fo_host_facts f = { 0 };
	for (int i = 0; i < n; i++)
		fo_host_read(&f, t[i].name, t[i].text, strlen(t[i].text));
	fo_audit_host(a, &f);
	fo_host_facts_fini(&f);
	fo_audit_sort(a);
}

static void healthy_host(void **state)
{
	struct ticket t[FILES];
	struct fo_audit a = { 0 };
	(void)state;
	judge(&a, t, healthy(t));
	for (size_t i = 0; i < a.count; i++)
		if (a.finding[i].level != FO_AUDIT_NOTE)
			fail_msg("%s: %s", a.finding[i].id, a.finding[i].title);
	assert_true(a.checked > 50);
	assert_int_equal(a.reads, FILES);
	fo_audit_fini(&a);
}

/* ---- one fault each ---- */

#define Q "gpu.txt"
#define LEVEL(x) FO_AUDIT_##x
static const struct fault {
	const char *id, *file, *from, *to;
	enum fo_audit_level level;
	const char *says; /* part of the title, or NULL */
	bool all;         /* every occurrence */
} fault[] = {
	{ "gpu-power-cap", Q, "Current Power Limit               : 700", "Current Power Limit               : 500",
	  LEVEL(SERIOUS), "1 of 8 GPUs (0)", false },
	{ "gpu-app-clocks", Q, "    Applications Clocks\n        Graphics                          : 1980",
	  "    Applications Clocks\n        Graphics                          : 1200", LEVEL(SERIOUS), "1 of 8",
	  false },
	{ "gpu-slowdown", Q, "HW Thermal Slowdown           : Not Active", "HW Thermal Slowdown           : Active",
	  LEVEL(SERIOUS), "thermal", false },
	{ "gpu-slowdown", Q, "HW Power Brake Slowdown       : Not", "HW Power Brake Slowdown       :", LEVEL(SERIOUS),
	  "Power brake is active on all 8 GPUs", true },
	{ "gpu-slowdown-before", Q, "HW Thermal Slowdown               : 0 us",
	  "HW Thermal Slowdown               : 9000000 us", LEVEL(ADVICE), NULL, false },
	{ "gpu-power-limit", Q, "SW Power Cap                      : Not Active",
	  "SW Power Cap                      : Active", LEVEL(NOTE), NULL, true },
	{ "gpu-persistence", Q, "Persistence Mode                      : Enabled",
	  "Persistence Mode                      : Disabled", LEVEL(ADVICE), "all 8 GPUs", true },
	{ "gpu-mig", Q, "MIG Mode\n        Current                           : Disabled",
	  "MIG Mode\n        Current                           : Enabled", LEVEL(SERIOUS), NULL, false },
	{ "gpu-compute-mode", Q, "Compute Mode                          : Default",
	  "Compute Mode                          : Prohibited", LEVEL(SERIOUS), NULL, false },
	{ "gpu-compute-mode", Q, "Compute Mode                          : Default",
	  "Compute Mode                          : Exclusive_Process", LEVEL(NOTE), NULL, false },
	{ "gpu-mixed", Q, "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", LEVEL(SERIOUS), NULL, false },
	{ "gpu-pcie-width", Q, "Current                   : 16x", "Current                   : 8x", LEVEL(SERIOUS),
	  "PCIe runs at x8 of x16 on 1 of 8 GPUs (0)", false },
	{ "gpu-pcie-generation", Q, "Max                       : 5\n                Current                   : 5",
	  "Max                       : 5\n                Current                   : 3", LEVEL(SERIOUS),
	  "generation 3 of 5", false },
	{ "gpu-ecc-errors", Q, "DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 2", LEVEL(SERIOUS),
	  NULL, false },
	{ "gpu-remap-failed", Q, "Remapping Failure Occurred        : No", "Remapping Failure Occurred        : Yes",
	  LEVEL(SERIOUS), NULL, false },
	{ "gpu-repair-pending", Q, "Pending                           : No", "Pending                           : Yes",
	  LEVEL(ADVICE), NULL, false },
	{ "gpu-ecc-mode", Q, "ECC Mode\n        Current                           : Enabled",
	  "ECC Mode\n        Current                           : Disabled", LEVEL(NOTE), NULL, false },
	{ "gpu-fabric", Q, "Status                            : Success",
	  "Status                            : In Progress", LEVEL(SERIOUS), NULL, false },
	{ "gpu-driver", Q, "==============NVSMI LOG==============",
	  "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", LEVEL(SERIOUS), NULL,
	  false },
	{ "gpu-vboost", "vboost.txt", "4      1", "4      0", LEVEL(NOTE), NULL, false },
	{ "gpu-nvlinks", "nvlink.txt", "Link 17: 26.562 GB/s", "Link 17: <inactive>", LEVEL(SERIOUS), "17 of 18",
	  false },
	{ "gpu-gpu-path", "topo.txt", "GPU0\t X \tNV18", "GPU0\t X \tSYS", LEVEL(SERIOUS),
	  "No NVLink between GPU0 and GPU1", false },
	{ "gpu-gpu-path", "topo.txt", "NV18", "NV12", LEVEL(SERIOUS), "Only 12 NVLinks", true },
	{ "gpu-nic-path", "topo.txt", "GPU2\tNV18\tNV18\t X \tNV18\tSYS\tPIX", "GPU2\tNV18\tNV18\t X \tNV18\tSYS\tNODE",
	  LEVEL(ADVICE), "1 of 4 GPUs", false },
	{ "port-down", "ib.txt", "State: Active\n\t\tPhysical state: LinkUp",
	  "State: Down\n\t\tPhysical state: Polling", LEVEL(SERIOUS), "mlx5_0 is not active", false },
	{ "port-rate", "ib.txt", "Rate: 400", "Rate: 200", LEVEL(SERIOUS), "mlx5_0 runs at 200 of 400", false },
	{ "port-rate", "ib.txt", "Rate: 400", "Rate: 200", LEVEL(ADVICE), "mlx5_0 runs at 200 of 400", true },
	{ "gpudirect", "nccl.log", "GPU Direct RDMA Enabled", "GPU Direct RDMA Disabled", LEVEL(ADVICE), "Part of",
	  false },
	{ "gpudirect", "nccl.log",
	  "GPU Direct RDMA Enabled for HCA 0 'mlx5_0'\nnode7:4242:4300 [0] NCCL INFO Channel 00/0 : 9[1] -> 0[0] "
	  "[receive] via "
	  "NET/IB/0/GDRDMA",
	  "GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", LEVEL(SERIOUS), "without GPUDirect", false },
	{ "nccl-warnings", "nccl.log", "INFO Bootstrap : Using eth0:10.0.0.7<0>", "WARN Call to ibv_reg_mr failed",
	  LEVEL(ADVICE), "1 time", false },
	{ "pcie-acs", "pci.txt", "SrcValid-", "SrcValid+", LEVEL(ADVICE), NULL, false },
	{ "iommu", "boot.txt", " iommu=pt", "", LEVEL(ADVICE), NULL, false },
	{ "cpu-governor", "power.txt", "\"performance\"", "\"powersave\"", LEVEL(ADVICE), "powersave", false },
	{ "cpu-turbo", "power.txt", "Active: yes", "Active: no", LEVEL(ADVICE), NULL, false },
	{ "cpu-affinity", "small.txt", "0-27", "3", LEVEL(SERIOUS), "1 processor", false },
	{ "cpu-affinity", "small.txt", "0-27", "0-223", LEVEL(ADVICE), "not bound", false },
	{ "memlock", "limits.txt", "unlimited", "64", LEVEL(SERIOUS), "64 KiB", false },
	{ "open-files", "limits.txt", "1048576", "1024", LEVEL(NOTE), NULL, false },
	{ "dev-shm", "shm.txt", "67108864     0", "65536     0", LEVEL(SERIOUS), "64 MiB", false },
	{ "huge-pages-reserved", "mem.txt", "HugePages_Total:       0", "HugePages_Total:  500000", LEVEL(NOTE), NULL,
	  false },
	{ "huge-pages-thp", "small.txt", affinity, "always madvise [never]\n", LEVEL(NOTE), NULL, false },
	{ "version-known-bad", "nccl.log", "2.21.5", "2.18.1", LEVEL(SERIOUS), "NCCL 2.18.1", false },
	{ "version-known-bad", "nccl.log", "2.21.5", "2.28.7", LEVEL(ADVICE), "NCCL 2.28.7", false },
	{ "version-known-bad", "pip.txt", "12.4.5.8", "12.1.3.1", LEVEL(ADVICE), "cuBLAS", false },
	{ "version-known-bad", "pip.txt", "torch==2.6.0", "torch==2.9.0", LEVEL(NOTE), "PyTorch", false },
	{ "version-two-nccl", "pip.txt", "cu12==2.21.5", "cu12==2.20.5", LEVEL(NOTE), NULL, false },
	{ "nccl-ib-hca", "env.txt", "mlx5_0,mlx5_3", "mlx5_0", LEVEL(SERIOUS), "1 of 2 active ports unused", false },
	{ "nccl-ib-hca", "env.txt", "mlx5_0,mlx5_3", "mlx4_0", LEVEL(SERIOUS), "names no active port", false },
};

/* Variables that are added to env.txt. */
static const struct fault setting[] = {
	{ "nccl-socket-only", NULL, NULL, "NCCL_SOCKET_NTHREADS=4", LEVEL(ADVICE), "does nothing over InfiniBand",
	  false },
	{ "nccl-socket-only", NULL, NULL, "NCCL_NSOCKS_PERTHREAD=4", LEVEL(ADVICE), "does nothing over InfiniBand",
	  false },
	{ "nccl-ib-gid-index", NULL, NULL, "NCCL_IB_GID_INDEX=3", LEVEL(ADVICE), "does nothing over InfiniBand",
	  false },
	{ "nccl-ib-disable", NULL, NULL, "NCCL_IB_DISABLE=1", LEVEL(SERIOUS), "3 active", false },
	{ "nccl-net-socket", NULL, NULL, "NCCL_NET=Socket", LEVEL(SERIOUS), "3 active", false },
	{ "nccl-gdr-level", NULL, NULL, "NCCL_NET_GDR_LEVEL=5", LEVEL(ADVICE), "means SYS", false },
	{ "nccl-gdr-level", NULL, NULL, "NCCL_NET_GDR_LEVEL=LOC", LEVEL(SERIOUS), "off", false },
	{ "nccl-gdr-read", NULL, NULL, "NCCL_NET_GDR_READ=0", LEVEL(ADVICE), NULL, false },
	{ "nccl-p2p-disable", NULL, NULL, "NCCL_P2P_DISABLE=1", LEVEL(SERIOUS), "NVLink", false },
	{ "nccl-p2p-level", NULL, NULL, "NCCL_P2P_LEVEL=LOC", LEVEL(SERIOUS), NULL, false },
	{ "nccl-proto", NULL, NULL, "NCCL_PROTO=LL", LEVEL(SERIOUS), NULL, false },
	{ "nccl-proto", NULL, NULL, "NCCL_PROTO=Simple", LEVEL(ADVICE), NULL, false },
	{ "nccl-algo", NULL, NULL, "NCCL_ALGO=Ring", LEVEL(ADVICE), NULL, false },
	{ "nccl-buffsize", NULL, NULL, "NCCL_BUFFSIZE=4194304", LEVEL(NOTE), "is the default", false },
	{ "nccl-buffsize", NULL, NULL, "NCCL_BUFFSIZE=65536", LEVEL(ADVICE), NULL, false },
	{ "nccl-shm-disable", NULL, NULL, "NCCL_SHM_DISABLE=1", LEVEL(ADVICE), NULL, false },
	{ "nccl-debug", NULL, NULL, "NCCL_DEBUG=TRACE", LEVEL(ADVICE), NULL, false },
	{ "nccl-debug-info", NULL, NULL, "NCCL_DEBUG=INFO", LEVEL(NOTE), NULL, false },
	{ "nccl-nvls-off", NULL, NULL, "NCCL_NVLS_ENABLE=0", LEVEL(ADVICE), NULL, false },
	{ "nccl-check-pointers", NULL, NULL, "NCCL_CHECK_POINTERS=1", LEVEL(ADVICE), NULL, false },
	{ "nccl-launch-mode", NULL, NULL, "NCCL_LAUNCH_MODE=GROUP", LEVEL(ADVICE), NULL, false },
	{ "nccl-channels", NULL, NULL, "NCCL_MAX_NCHANNELS=4", LEVEL(NOTE), NULL, false },
	{ "nccl-socket-ifname", NULL, NULL, "NCCL_SOCKET_IFNAME=eth0", LEVEL(NOTE), "start alone", false },
	{ "nccl-socket-ifname", NULL, NULL, "NCCL_SOCKET_IFNAME=lo", LEVEL(ADVICE), NULL, false },
	{ "version-known-bad", NULL, NULL, "NCCL_CROSS_NIC=1", LEVEL(NOTE), "rings may alternate", false },
	{ "cuda-launch-blocking", NULL, NULL, "CUDA_LAUNCH_BLOCKING=1", LEVEL(SERIOUS), NULL, false },
	{ "cuda-connections", NULL, NULL, "CUDA_DEVICE_MAX_CONNECTIONS=1", LEVEL(NOTE), NULL, false },
	{ "torch-no-caching", NULL, NULL, "PYTORCH_NO_CUDA_MEMORY_CACHING=1", LEVEL(SERIOUS), NULL, false },
	{ "torch-distributed-debug", NULL, NULL, "TORCH_DISTRIBUTED_DEBUG=DETAIL", LEVEL(SERIOUS), NULL, false },
	{ "torch-blocking-wait", NULL, NULL, "TORCH_NCCL_BLOCKING_WAIT=1", LEVEL(ADVICE), NULL, false },
	{ "torch-allocator", NULL, NULL, "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512", LEVEL(NOTE), NULL, false },
	{ "torch-compile-off", NULL, NULL, "TORCHDYNAMO_DISABLE=1", LEVEL(ADVICE), NULL, false },
	{ "tf32-off", NULL, NULL, "NVIDIA_TF32_OVERRIDE=0", LEVEL(ADVICE), NULL, false },
	{ "te-attention", NULL, NULL, "NVTE_FLASH_ATTN=0\nNVTE_FUSED_ATTN=0", LEVEL(SERIOUS), NULL, false },
	{ "te-debug", NULL, NULL, "NVTE_DEBUG=1", LEVEL(NOTE), NULL, false },
	{ "te-deterministic", NULL, NULL, "NVTE_ALLOW_NONDETERMINISTIC_ALGO=0", LEVEL(ADVICE), NULL, false },
	{ "omp-one-thread", NULL, NULL, "OMP_NUM_THREADS=1", LEVEL(NOTE), NULL, false },
};

static void expect(const struct fo_audit *a, const struct fault *f)
{
	const struct fo_audit_finding *found = find(a, f->id);
	if (!found)
		fail_msg("%s: not found after '%s'", f->id, f->to);
	if (found->level != f->level || (f->says && !strstr(found->title, f->says)))
		fail_msg("%s: %s: %s", f->id, fo_audit_level_name[found->level], found->title);
	assert_true(*found->evidence && found->why && *found->why);
	assert_non_null(strchr(found->evidence, ':'));
}

static void each_fault(void **state)
{
	struct ticket t[FILES], good[FILES];
	struct fo_audit well = { 0 };
	int n = healthy(good);
	(void)state;
	judge(&well, good, n);
	for (size_t i = 0; i < sizeof fault / sizeof *fault; i++) {
		struct fo_audit a = { 0 };
		char *text = NULL;
		healthy(t);
		for (int k = 0; k < n; k++)
			if (!strcmp(t[k].name, fault[i].file))
				t[k].text = text = replaced(t[k].text, fault[i].from, fault[i].to, fault[i].all);
		assert_non_null(text);
		judge(&a, t, n);
		expect(&a, &fault[i]);
		if (find(&well, fault[i].id))
			fail_msg("%s: on the healthy host", fault[i].id);
		fo_audit_fini(&a);
		free(text);
	}
	fo_audit_fini(&well);
}

static void each_variable(void **state)
{
	struct ticket t[FILES];
	(void)state;
	for (size_t i = 0; i < sizeof setting / sizeof *setting; i++) {
		struct fo_audit a = { 0 }, before = { 0 };
		char text[1024];
		int n = healthy(t), at = 0;
		while (strcmp(t[at].name, "env.txt"))
			at++;
		judge(&before, t, n);
		if (find(&before, setting[i].id))
			fail_msg("%s: on the healthy host", setting[i].id);
		snprintf(text, sizeof text, "%s%s\n", env, setting[i].to);
		t[at].text = text;
		judge(&a, t, n);
		expect(&a, &setting[i]);
		fo_audit_fini(&a);
		fo_audit_fini(&before);
	}
}

/* ---- what only some facts tell ---- */

static void judge_one(struct fo_audit *a, const char *text)
{
	struct ticket t = { "one.txt", text };
	judge(a, &t, 1);
}

static bool not_known(const struct fo_audit *a, const char *what)
{
	for (size_t i = 0; i < a->gaps; i++)
		if (strstr(a->gap[i].what, what))
			return true;
	return false;
}

/* The variables of an article about 128 A100, in one line as it has them. */
static const char article[] =
	"export NCCL_SOCKET_NTHREADS=4 export NCCL_NSOCKS_PERTHREAD=4 export NCCL_BUFFSIZE=4194304 "
	"export NCCL_NET_GDR_LEVEL=5 export NCCL_IB_DISABLE=0 export NCCL_IB_GID_INDEX=3\n";

static void fabric_decides(void **state)
{
	struct fo_audit a = { 0 }, b = { 0 }, c = { 0 };
	char text[4096];
	(void)state;
	/* Without the network nothing is said to do nothing. */
	judge_one(&a, article);
	assert_int_equal(find(&a, "nccl-socket-only")->level, FO_AUDIT_NOTE);
	assert_int_equal(find(&a, "nccl-ib-gid-index")->level, FO_AUDIT_NOTE);
	assert_true(not_known(&a, "which transport"));
	assert_int_equal(find(&a, "nccl-ib-disable")->level, FO_AUDIT_NOTE);
	/* InfiniBand: five of six do nothing or not what is hoped. */
	snprintf(text, sizeof text, "$ env\n%s$ ibstat\n%s", article, ibstat);
	judge_one(&b, text);
	assert_int_equal(find(&b, "nccl-socket-only")->level, FO_AUDIT_ADVICE);
	assert_non_null(strstr(find(&b, "nccl-socket-only")->why, "one.txt:"));
	assert_int_equal(find(&b, "nccl-ib-gid-index")->level, FO_AUDIT_ADVICE);
	assert_non_null(strstr(find(&b, "nccl-gdr-level")->title, "does not turn GPUDirect RDMA on"));
	assert_non_null(strstr(find(&b, "nccl-buffsize")->title, "is the default"));
	/* Sockets: they are what these variables are for. */
	snprintf(text, sizeof text, "%snode1:1:1 [0] NCCL INFO Using network Socket\n", article);
	judge_one(&c, text);
	assert_null(find(&c, "nccl-socket-only"));
	assert_null(find(&c, "nccl-ib-gid-index"));
	fo_audit_fini(&a);
	fo_audit_fini(&b);
	fo_audit_fini(&c);
}

/* A job that is told to use sockets reads their variables, whatever its ports are. */
static void sockets_by_choice(void **state)
{
	struct fo_audit a = { 0 }, b = { 0 };
	char text[4096];
	(void)state;
	snprintf(text, sizeof text, "NCCL_IB_DISABLE=1\nNCCL_SOCKET_NTHREADS=4\n$ ibstat\n%s", ibstat);
	judge_one(&a, text);
	assert_null(find(&a, "nccl-socket-only"));
	assert_int_equal(find(&a, "nccl-ib-disable")->level, FO_AUDIT_SERIOUS);
	assert_null(find(&a, "nccl-net-socket"));
	/* The log says verbs, but not of which kind: nothing is said about RoCE's index. */
	judge_one(&b, "NCCL_SOCKET_NTHREADS=4\nNCCL_IB_GID_INDEX=3\nn:1:1 [0] NCCL INFO Using network IB\n");
	assert_int_equal(find(&b, "nccl-socket-only")->level, FO_AUDIT_ADVICE);
	assert_int_equal(find(&b, "nccl-ib-gid-index")->level, FO_AUDIT_NOTE);
	assert_true(not_known(&b, "InfiniBand or Ethernet"));
	fo_audit_fini(&a);
	fo_audit_fini(&b);
}

/* Sockets alone are no fault: the job may be of one host. With ports that stand idle they are. */
static void sockets_in_the_log(void **state)
{
	static const char log[] =
		"n1:1:1 [0] NCCL INFO NET/IB : No device found.\nn1:1:1 [0] NCCL INFO Using network Socket\n"
		"n1:1:1 [0] NCCL INFO NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'\n";
	struct fo_audit a = { 0 }, b = { 0 }, c = { 0 };
	char text[4096];
	(void)state;
	judge_one(&a, log);
	assert_int_equal(find(&a, "nccl-net-socket")->level, FO_AUDIT_NOTE);
	assert_null(find(&a, "gpudirect"));
	snprintf(text, sizeof text, "%s$ ibstat\n%s", log, ibstat);
	judge_one(&b, text);
	assert_int_equal(find(&b, "nccl-net-socket")->level, FO_AUDIT_SERIOUS);
	/* A plugin's network with GPUDirect is judged as any. */
	judge_one(&c, "n1:1:1 [0] NCCL INFO Using network Libfabric\nn1:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] "
		      "[receive] via "
		      "NET/Libfabric/0/GDRDMA\n");
	assert_null(find(&c, "gpudirect"));
	assert_false(not_known(&c, "GPUDirect"));
	fo_audit_fini(&a);
	fo_audit_fini(&b);
	fo_audit_fini(&c);
}

/* Every log offers sockets; devices of verbs go before them, and what was chosen before both. Names of hosts stand
 * behind what launchers put in front. */
static void networks_in_logs(void **state)
{
	static const struct {
		const char *log, *net, *host;
	} row[] = {
		{ "a_1:2:3 [0] NCCL INFO NET/Socket : Using [0]ib0:192.168.11.1<0>\n"
		  "a_1:2:3 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.11.1<0>\n",
		  "IB", "a_1" },
		{ "[155] crow-19:5330:5330 [3] NCCL INFO NET/IB : Using [0]mlx5_1:1/IB [1]mlx5_2:1/RoCE ; OOB "
		  "eth0:1<0>\n",
		  "IB", "crow-19" },
		{ "[1,0]<stdout>:n.x:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_1:1/IB\n"
		  "[1,0]<stdout>:n.x:1:2 [0] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3\n",
		  "Socket", "n.x" },
		{ "[2026-05-05 06:16:47] node-01:189884:189884 [3] plugin/net.cc:334 NCCL WARN Failed\n"
		  "2026-05-05 06:16:47 node-01:1:1 [0] NCCL INFO Using network IBext_v8\n",
		  "IBext_v8", "node-01" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct fo_host_facts f = { 0 };
		fo_host_read(&f, "log", row[i].log, strlen(row[i].log));
		assert_int_equal(f.hosts, 1);
		assert_string_equal(f.host->name, row[i].host);
		assert_string_equal(fo_host_told(f.host, FO_HOST_NET)->text, row[i].net);
		/* Ports of both kinds: not known which of the two. */
		assert_true(i != 1 || !fo_host_told(f.host, FO_HOST_NET_ROCE));
		fo_host_facts_fini(&f);
	}
}

/* A port that no GPU depends on may be down: of storage, or the second of a card. */
static void spare_port(void **state)
{
	struct fo_audit a = { 0 };
	char *down = replaced(ibstat, CA("mlx5_4", "Active", "LinkUp", "200", "InfiniBand"),
			      CA("mlx5_4", "Down", "Disabled", "10", "InfiniBand"), false);
	struct ticket t[] = { { "topo.txt", topo }, { "ib.txt", down } };
	(void)state;
	judge(&a, t, 2);
	assert_int_equal(find(&a, "port-down")->level, FO_AUDIT_NOTE);
	fo_audit_fini(&a);
	free(down);
}

/* Over RoCE the ports are Ethernet: those of the job are the many of one type. */
static void roce_ports(void **state)
{
	struct fo_audit a = { 0 };
	(void)state;
	judge_one(&a, CA("mlx5_0", "Active", "LinkUp", "400", "Ethernet")
			      CA("mlx5_1", "Active", "LinkUp", "400", "Ethernet")
				      CA("mlx5_2", "Down", "Polling", "40", "Ethernet")
					      CA("mlx5_3", "Active", "LinkUp", "200", "Ethernet"));
	assert_int_equal(find(&a, "port-down")->level, FO_AUDIT_ADVICE);
	assert_non_null(strstr(find(&a, "port-down")->title, "mlx5_2"));
	assert_non_null(strstr(find(&a, "port-rate")->title, "mlx5_3 runs at 200 of 400"));
	assert_false(fo_audit_serious(&a));
	fo_audit_fini(&a);
}

/* Two GPUs of a board of four, wired directly: twelve links are four to each of three. */
static void part_of_a_board(void **state)
{
	struct fo_audit a = { 0 };
	(void)state;
	judge_one(&a, "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
		      "GPU0\t X \tNV4\t0-63\t0\nGPU1\tNV4\t X \t64-127\t1\n");
	assert_null(find(&a, "gpu-gpu-path"));
	fo_audit_fini(&a);
}

/* An idle link is in a lower generation, which is no fault; its width stays. */
static void idle_link(void **state)
{
	struct fo_audit a = { 0 };
	char *idle = replaced(query, "Idle                              : Not Active",
			      "Idle                              : Active", true),
	     *slow = replaced(idle, "Current                   : 5", "Current                   : 1", true),
	     *zero = replaced(slow, "Gpu                               : 98 %",
			      "Gpu                               : 0 %", true);
	(void)state;
	judge_one(&a, zero);
	assert_null(find(&a, "gpu-pcie-generation"));
	assert_true(not_known(&a, "PCIe generation under load"));
	fo_audit_fini(&a);
	free(idle);
	free(slow);
	free(zero);
}

static void table_alone(void **state)
{
	struct fo_audit a = { 0 };
	struct fo_host_facts f = { 0 };
	char *off = replaced(smi_table, "HBM3          On  |   00000000:43", "HBM3          Off |   00000000:43",
			     false);
	(void)state;
	fo_host_read(&f, "smi.txt", off, strlen(off));
	assert_int_equal(f.hosts, 1);
	assert_int_equal(f.host->gpus, 2);
	assert_string_equal(fo_gpu_told(&f.host->gpu[1], FO_GPU_NAME)->text, "NVIDIA H100 80GB HBM3");
	assert_true(fo_gpu_told(&f.host->gpu[1], FO_GPU_LIMIT_W)->number == 700);
	assert_string_equal(fo_gpu_told(&f.host->gpu[1], FO_GPU_PSTATE)->text, "P0");
	assert_string_equal(fo_host_told(f.host, FO_HOST_DRIVER)->text, "570.148.08");
	fo_audit_host(&a, &f);
	assert_non_null(strstr(find(&a, "gpu-persistence")->title, "1 of 2 GPUs (1)"));
	assert_true(not_known(&a, "width of the PCIe links"));
	assert_true(not_known(&a, "power limit against its default"));
	fo_audit_fini(&a);
	fo_host_facts_fini(&f);
	free(off);
}

static void cut_query(void **state)
{
	struct fo_audit a = { 0 };
	char *half = strdup(query);
	(void)state;
	half[strlen(half) / 2] = 0;
	judge_one(&a, half);
	assert_true(not_known(&a, "of 8 GPUs: it was cut"));
	assert_false(fo_audit_serious(&a));
	fo_audit_fini(&a);
	free(half);
}

/* ---- several hosts ---- */

static void several_hosts(void **state)
{
	struct fo_audit a = { 0 };
	char *other = replaced(query, "NVIDIA H100 80GB HBM3", "NVIDIA H200", true),
	     *driver = replaced(other, "570.148.08", "550.90.12", false);
	struct ticket t[] = { { "a/gpu.txt", query },
			      { "b/gpu.txt", driver },
			      { "b/limits.txt", "max locked memory (kbytes, -l) 64\n" } };
	(void)state;
	judge(&a, t, 3);
	assert_int_equal(find(&a, "hosts-gpu")->level, FO_AUDIT_SERIOUS);
	assert_non_null(strstr(find(&a, "hosts-driver")->now, "550.90.12 on b"));
	assert_non_null(strstr(find(&a, "memlock")->evidence, "b/limits.txt:1 (b)"));
	fo_audit_fini(&a);
	free(other);
	free(driver);
}

/* Variables and numbers of GPUs that differ between hosts; what names a host's own adapters may differ. */
static void hosts_differ(void **state)
{
	struct fo_audit a = { 0 }, b = { 0 };
	char *seven = replaced(query, "Attached GPUs                             : 8",
			       "Attached GPUs                             : 7", false);
	struct ticket t[] = { { "a/gpu.txt", query },
			      { "b/gpu.txt", seven },
			      { "a/env.txt", "NCCL_ALGO=Ring\nNCCL_IB_HCA=mlx5_0\n" },
			      { "b/env.txt", "NCCL_IB_HCA=mlx5_1\nNCCL_NVLS_ENABLE=1\n" } };
	(void)state;
	judge(&a, t, 4);
	assert_int_equal(find(&a, "hosts-gpu-count")->level, FO_AUDIT_SERIOUS);
	assert_non_null(strstr(find(&a, "hosts-variables")->now, "Ring on a, not set on b"));
	t[3].text = "NCCL_IB_HCA=mlx5_1\nNCCL_ALGO=Ring\n";
	t[1].text = query;
	judge(&b, t, 4);
	assert_null(find(&b, "hosts-variables"));
	assert_null(find(&b, "hosts-gpu-count"));
	fo_audit_fini(&a);
	fo_audit_fini(&b);
	free(seven);
}

/* A manifest of Kubernetes has a variable on two lines. */
static void manifest(void **state)
{
	static const char text[] =
		"env:\n  - name: NCCL_IB_DISABLE\n    value: \"1\"\n  - name: NCCL_DEBUG\n  - name: \"NCCL_ALGO\"\n"
		"    value: Tree\n  - name: trainer\n    value: 5\n";
	struct fo_host_facts f = { 0 };
	(void)state;
	fo_host_read(&f, "job.yaml", text, strlen(text));
	assert_int_equal(f.host->variables, 2);
	assert_string_equal(fo_host_variable(f.host, "NCCL_IB_DISABLE")->text, "1");
	assert_string_equal(fo_host_variable(f.host, "NCCL_ALGO")->text, "Tree");
	fo_host_facts_fini(&f);
}

/* Adapters of both kinds are up, and nothing chooses. */
static void mixed_layers(void **state)
{
	struct fo_audit a = { 0 }, b = { 0 };
	(void)state;
	judge_one(&a, "NCCL_DEBUG=WARN\n" CA("mlx5_0", "Active", "LinkUp", "400", "InfiniBand")
			      CA("mlx5_1", "Active", "LinkUp", "100", "Ethernet"));
	assert_non_null(find(&a, "port-mixed-layers"));
	judge_one(&b, "NCCL_IB_HCA=mlx5_0\n" CA("mlx5_0", "Active", "LinkUp", "400", "InfiniBand")
			      CA("mlx5_1", "Active", "LinkUp", "100", "Ethernet"));
	assert_null(find(&b, "port-mixed-layers"));
	fo_audit_fini(&a);
	fo_audit_fini(&b);
}

/* One fault on two hosts is one finding with two pieces of evidence; a kind that comes again is another host's. */
static void same_fault_twice(void **state)
{
	struct fo_audit a = { 0 };
	char *off = replaced(query, "Persistence Mode                      : Enabled",
			     "Persistence Mode                      : Disabled", true);
	struct ticket t[] = { { "node1.txt", off }, { "node2.txt", off } };
	size_t n = 0;
	(void)state;
	judge(&a, t, 2);
	for (size_t i = 0; i < a.count; i++)
		n += !strcmp(a.finding[i].id, "gpu-persistence");
	assert_int_equal(n, 1);
	assert_non_null(strstr(find(&a, "gpu-persistence")->evidence, "node2.txt"));
	fo_audit_fini(&a);
	free(off);
}

/* Prompts and logs name their hosts. */
static void named_hosts(void **state)
{
	static const char text[] = "root@node1:~# ulimit -a\nmax locked memory (kbytes, -l) 64\n"
				   "root@node2:~# ulimit -a\nmax locked memory (kbytes, -l) unlimited\n"
				   "node3:1:2 [0] NCCL INFO Using network IB\n";
	struct fo_host_facts f = { 0 };
	(void)state;
	fo_host_read(&f, "ticket.txt", text, strlen(text));
	assert_int_equal(f.hosts, 3);
	assert_non_null(strstr(f.read[0], "3 hosts"));
	assert_string_equal(f.host[0].name, "node1");
	assert_true(fo_host_told(&f.host[0], FO_HOST_MEMLOCK_KIB)->number == 64);
	assert_true(isinf(fo_host_told(&f.host[1], FO_HOST_MEMLOCK_KIB)->number));
	assert_string_equal(fo_host_told(&f.host[2], FO_HOST_NET)->text, "IB");
	fo_host_facts_fini(&f);
}

/* ---- other forms of the same facts ---- */

static void other_forms(void **state)
{
	static const char text[] =
		"Infiniband device 'mlx5_0' port 1 status:\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n"
		"\trate:\t\t 400 Gb/sec (4X NDR)\n\tlink_layer:\t InfiniBand\n"
		"hca_id:\tmlx5_9\n\ttransport:\t\tInfiniBand (0)\n\tvendor_part_id:\t\t4129\n"
		"\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_DOWN (1)\n\t\t\tlink_layer:\t\tInfiniBand\n"
		"Max locked memory         8388608              8388608              bytes\n"
		"shm                       64M     0   64M   0% /dev/shm\n"
		"srun --export=ALL,NCCL_DEBUG=INFO,NCCL_IB_DISABLE=1 python train.py\n"
		"docker run -e NCCL_ALGO=\"Ring\" image\n"
		"node1:7:7 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.\n"
		"# export NCCL_PROTO=LL\n";
	struct fo_host_facts f = { 0 };
	(void)state;
	fo_host_read(&f, "t", text, strlen(text));
	const struct fo_host *h = f.host;
	assert_int_equal(h->ports, 2);
	assert_string_equal(fo_port_told(&h->port[0], FO_PORT_STATE)->text, "ACTIVE");
	assert_true(fo_port_told(&h->port[0], FO_PORT_RATE)->number == 400);
	assert_string_equal(fo_port_told(&h->port[1], FO_PORT_TYPE)->text, "MT4129");
	assert_string_equal(fo_port_told(&h->port[1], FO_PORT_STATE)->text, "DOWN");
	assert_true(fo_host_told(h, FO_HOST_MEMLOCK_KIB)->number == 8192);
	assert_true(fo_host_told(h, FO_HOST_SHM_BYTES)->number == 64 << 20);
	assert_string_equal(fo_host_variable(h, "NCCL_DEBUG")->text, "INFO");
	assert_string_equal(fo_host_variable(h, "NCCL_IB_DISABLE")->text, "1");
	assert_string_equal(fo_host_variable(h, "NCCL_ALGO")->text, "Ring");
	assert_string_equal(fo_host_variable(h, "NCCL_IB_TIMEOUT")->text, "22");
	assert_null(fo_host_variable(h, "NCCL_PROTO"));
	fo_host_facts_fini(&f);
}

/* ---- what is no ticket ---- */

static void foreign_files(void **state)
{
	static const struct {
		const char *text, *says;
	} row[] = {
		{ "Dear support, training is slow.\n", "nothing in it" },
		{ "LR=3e-4\nBATCH=8\n", "nothing in it" },
		{ "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"x\">\n", "nvidia-smi -q" },
		{ "\x1f\x8b\x08zzz", "unpack it" },
		{ "", "empty" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct fo_host_facts f = { 0 };
		struct fo_audit a = { 0 };
		fo_host_read(&f, "x.txt", row[i].text, strlen(row[i].text));
		assert_int_equal(f.not_reads, 1);
		assert_int_equal(f.reads, 0);
		assert_int_equal(f.hosts, 0);
		assert_non_null(strstr(f.not_read[0], row[i].says));
		fo_audit_host(&a, &f);
		assert_int_equal(a.count, 0);
		assert_int_equal(a.checked, 0);
		fo_audit_fini(&a);
		fo_host_facts_fini(&f);
	}
}

static void amd_is_named(void **state)
{
	struct fo_audit a = { 0 };
	(void)state;
	judge_one(&a, "============ ROCm System Management Interface ============\nGPU[0] : Temperature 40\n");
	assert_true(not_known(&a, "AMD"));
	fo_audit_fini(&a);
}

/* Cut anywhere, and with any byte changed, texts are read without a fault of memory. */
static void every_cut(void **state)
{
	struct ticket t[FILES];
	int n = healthy(t);
	(void)state;
	for (int i = 0; i < n; i++) {
		/* Of the eight equal GPUs the first and a bit are enough. */
		size_t len = strlen(t[i].text) < 5000 ? strlen(t[i].text) : 5000;
		for (size_t cut = 0; cut <= len; cut++) {
			struct fo_host_facts f = { 0 };
			char *text = malloc(cut ? cut : 1); /* of this size, so that a byte behind it is noticed */
			memcpy(text, t[i].text, cut);
			if (cut > 2)
				text[(cut * 7919) % cut] = (char)(cut * 31);
			fo_host_read(&f, t[i].name, text, cut);
			if (cut % 64 == 0) {
				struct fo_audit a = { 0 };
				fo_audit_host(&a, &f);
				fo_audit_fini(&a);
			}
			fo_host_facts_fini(&f);
			free(text);
		}
	}
}

/* ---- how findings are shown ---- */

static void shown(void **state)
{
	struct fo_audit a = { 0 };
	struct fo_doc d = { 0 };
	struct fo_str text = { 0 }, json = { 0 };
	struct fo_json j;
	struct ticket t[FILES];
	int n = healthy(t);
	char *slow = replaced(query, "Current Power Limit               : 700",
			      "Current Power Limit               : 500", true);
	(void)state;
	t[0].text = slow;
	judge(&a, t, n);
	fo_audit_doc(&d, &a);
	fo_doc_to_term(&d, 80, &text);
	assert_non_null(strstr(text.data, "1 serious finding,"));
	assert_non_null(strstr(text.data, "nvidia-smi -pl 700"));
	assert_non_null(strstr(text.data, "gpu.txt:"));
	fo_json_begin(&j, &json, true);
	fo_json_object(&j, NULL);
	fo_audit_json(&j, &a);
	fo_json_close(&j);
	assert_non_null(strstr(json.data, "\"id\": \"gpu-power-cap\""));
	assert_non_null(strstr(json.data, "\"high\": 1.4"));
	if (getenv("SHOW_AUDIT"))
		printf("%s\n%s\n", text.data, json.data);
	fo_str_fini(&text);
	fo_str_fini(&json);
	fo_doc_fini(&d);
	fo_audit_fini(&a);
	free(slow);
}

/* ---- this machine, of a made-up tree and a made-up NVML ---- */

static void put(const char *root, const char *path, const char *text)
{
	struct fo_arena a = { 0 };
	char *full = fo_arena_printf(&a, "%s%s", root, path), *dir = fo_fs_parent(full);
	assert_int_equal(fo_fs_mkdirs(dir), FO_OK);
	assert_int_equal(fo_fs_write_atomic(full, text, strlen(text)), FO_OK);
	free(dir);
	fo_arena_fini(&a);
}

static void put_machine(const char *root, const char *rate)
{
	put(root, "/proc/self/limits", "Max locked memory         65536                65536                bytes\n");
	put(root, "/proc/modules", "mlx5_ib 466944 0 - Live 0x0\nnvidia 56823808 4 nvidia_uvm, Live 0x0\n");
	put(root, "/sys/devices/system/cpu/intel_pstate/no_turbo", "1\n");
	put(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
	put(root, "/sys/class/infiniband/mlx5_0/hca_type", "MT4129\n");
	put(root, "/sys/class/infiniband/mlx5_0/device/numa_node", "1\n");
	put(root, "/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
	put(root, "/sys/class/infiniband/mlx5_0/ports/1/phys_state", "5: LinkUp\n");
	put(root, "/sys/class/infiniband/mlx5_0/ports/1/rate", rate);
	put(root, "/sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
	put(root, "/sys/bus/pci/devices/0000:1b:00.0/numa_node", "0\n");
	put(root, "/sys/bus/pci/devices/0000:9d:00.0/numa_node", "1\n");
	put(root, "/proc/self/cgroup", "0::/job\n");
	put(root, "/sys/fs/cgroup/job/cpu.max", "400000 100000\n");
	put(root, "/sys/fs/cgroup/job/memory.max", "17179869184\n");
	put(root, "/sys/fs/cgroup/job/memory.current", "8589934592\n");
}

/* What a child of this process finds there. */
static bool finds(const char *root, bool sick)
{
	static const char *const bad[] = { "gpu-pcie-width", "gpu-power-cap", "gpu-nvlinks", "gpu-remap-failed",
					   "gpu-persistence" },
				 *const both[] = { "memlock",      "cpu-turbo",  "cpu-governor",
						   "gpudirect",    "port-rate",  "nccl-socket-only",
						   "gpu-nic-numa", "group-cpus", "group-memory" };
	struct fo_host_facts f = { 0 };
	struct fo_audit a = { 0 };
	bool ok = true;
	fo_host_read_here(&f, root);
	fo_audit_host(&a, &f);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ok &= (find(&a, bad[i]) != NULL) == sick;
	for (size_t i = 0; i < sizeof both / sizeof *both; i++)
		ok &= find(&a, both[i]) != NULL;
	ok &= f.hosts == 1 && f.host->gpus == 2 &&
	      !strcmp(find(&a, "cpu-turbo")->evidence, "/sys/devices/system/cpu/intel_pstate/no_turbo");
	ok &= !sick || strstr(find(&a, "gpu-nvlinks")->title, "16 of 18");
	fo_audit_fini(&a);
	fo_host_facts_fini(&f);
	return ok;
}

static void made_up_machine(void **state)
{
	const char *library = getenv("FLATOUT_FAKE_NVML");
	char root[] = "/tmp/flatout-host-XXXXXX";
	(void)state;
	if (!library)
		skip();
	assert_non_null(mkdtemp(root));
	put_machine(root, "200 Gb/sec (2X NDR)\n");
	for (int sick = 0; sick < 2; sick++) {
		int st = 1;
		fflush(NULL);
		pid_t pid = fork(); /* NVML is loaded once per process */
		if (!pid) {
			setenv("FLATOUT_NVML", library, 1);
			setenv("FAKE_NVML_SICK", sick ? "1" : "0", 1);
			setenv("NCCL_SOCKET_NTHREADS", "4", 1);
			_exit(finds(root, sick) ? 0 : 1);
		}
		assert_int_equal(waitpid(pid, &st, 0), pid);
		assert_int_equal(st, 0);
	}
	assert_int_equal(fo_fs_remove_tree(root), FO_OK);
}

/* docs/audit-host.md has every rule that a text here triggers. */
static void documented(void **state)
{
	const char *source = getenv("FLATOUT_SOURCE");
	struct fo_arena arena = { 0 };
	char *page, word[64];
	size_t len;
	(void)state;
	if (!source)
		skip();
	assert_int_equal(
		fo_fs_read(&arena, fo_arena_printf(&arena, "%s/docs/audit-host.md", source), 1 << 20, &page, &len),
		FO_OK);
	for (size_t i = 0; i < sizeof fault / sizeof *fault + sizeof setting / sizeof *setting; i++) {
		const struct fault *f = i < sizeof fault / sizeof *fault ? &fault[i]
									 : &setting[i - sizeof fault / sizeof *fault];
		snprintf(word, sizeof word, "`%s`", f->id);
		if (!strstr(page, word))
			fail_msg("docs/audit-host.md lacks %s", word);
	}
	fo_arena_fini(&arena);
}

static void this_machine(void **state)
{
	struct fo_audit a = { 0 };
	(void)state;
	fo_audit_host_here(&a);
	assert_true(a.checked > 0);
	assert_true(a.reads > 0);
	fo_audit_fini(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(healthy_host),
		cmocka_unit_test(each_fault),
		cmocka_unit_test(each_variable),
		cmocka_unit_test(fabric_decides),
		cmocka_unit_test(sockets_by_choice),
		cmocka_unit_test(sockets_in_the_log),
		cmocka_unit_test(networks_in_logs),
		cmocka_unit_test(spare_port),
		cmocka_unit_test(part_of_a_board),
		cmocka_unit_test(roce_ports),
		cmocka_unit_test(idle_link),
		cmocka_unit_test(table_alone),
		cmocka_unit_test(cut_query),
		cmocka_unit_test(several_hosts),
		cmocka_unit_test(same_fault_twice),
		cmocka_unit_test(hosts_differ),
		cmocka_unit_test(manifest),
		cmocka_unit_test(mixed_layers),
		cmocka_unit_test(named_hosts),
		cmocka_unit_test(other_forms),
		cmocka_unit_test(foreign_files),
		cmocka_unit_test(amd_is_named),
		cmocka_unit_test(every_cut),
		cmocka_unit_test(shown),
		/* NVML is loaded once per process, so the made-up one goes first. */
		cmocka_unit_test(made_up_machine),
		cmocka_unit_test(this_machine),
		cmocka_unit_test(documented),
	};
	return cmocka_run_group_tests(tests, make_query, free_query);
}
