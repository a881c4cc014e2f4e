/* Rules about the processor, memory and limits of a host. */
#include "audit/host_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct fo_host_fact *told(const struct fo_look *k, enum fo_host_id id)
{
	return fo_host_told(k->host, id);
}
static double number(const struct fo_look *k, enum fo_host_id id) { return fo_host_number(told(k, id)); }

/* ---- processors ---- */

static bool look_governor(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_GOVERNOR);
	if (f && strcmp(f->text, "performance"))
		fo_look_add(k, f,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_ADVICE,
				    .title = fo_look_text(k, "the processor's clock governor is %s", f->text),
				    .setting = "scaling_governor",
				    .now = f->text,
				    .proposed = "performance",
				    .why = "the thread that launches kernels sleeps and wakes often, and runs slower "
					   "until the clock has "
					   "risen; it matters where the processor is behind the GPU",
				    .paste = "cpupower frequency-set -g performance",
				    .source = "Linux, admin-guide/pm/cpufreq" });
	return f != NULL;
}

static bool look_turbo(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_TURBO);
	if (f && f->number == 0)
		fo_look_add(k, f,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_ADVICE,
				    .title = "turbo is off",
				    .setting = "boost",
				    .now = "off",
				    .proposed = "on",
				    .why = "the thread that launches kernels is one thread: it runs at the base clock",
				    .source = "Linux, admin-guide/pm/cpufreq and intel_pstate (no_turbo)" });
	return f != NULL;
}

static bool look_smt(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_THREADS_PER_CORE);
	if (f && f->number > 1)
		fo_look_add(
			k, f,
			(struct fo_audit_finding){
				.level = FO_AUDIT_NOTE,
				.title = "hardware threads share cores",
				.setting = "SMT",
				.now = fo_look_text(k, "%.0f threads per core", f->number),
				.why = "count cores, not processors, for loader workers and bindings; a busy sibling "
				       "slows the thread "
				       "that launches kernels" });
	return f != NULL;
}

/* A rank has a thread that launches forward, one that launches backward (autograd) and NCCL's proxy; loader workers
 * come on top. */
enum { RANK_NEEDS = 3, RANK_WANTS = 6 };

static bool launched(const struct fo_host *h)
{
	static const char *const name[] = { "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK" };
	for (size_t i = 0; i < sizeof name / sizeof *name; i++)
		if (fo_host_variable(h, name[i]))
			return true;
	return false;
}

static bool look_affinity(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_ALLOWED_CPUS);
	double all = number(k, FO_HOST_CPUS), nodes = number(k, FO_HOST_NUMA_NODES);
	/* Of this machine it is the affinity of this process: of a rank's only where a launcher started it. */
	if (!f || (k->facts->here && !k->host->folder && !launched(k->host)))
		return false;
	if (f->number < RANK_NEEDS && !(all <= f->number))
		fo_look_add(
			k, f,
			(struct fo_audit_finding){
				.level = FO_AUDIT_SERIOUS,
				.title = fo_look_text(k, "the process may use %.0f processor%s", f->number,
						      fo_plural(f->number)),
				.setting = "affinity",
				.now = f->text,
				.proposed = "the host's cores / GPUs for each rank (srun --cpus-per-task, --cpu-bind)",
				.why = "launching, backward launching and NCCL's proxy are a thread each, and loader "
				       "workers come on "
				       "top",
				.paste = "srun --cpus-per-task=N --cpu-bind=cores" });
	else if (nodes > 1 && f->number >= all)
		fo_look_add(k, f,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_ADVICE,
				    .title = "the process is not bound to a NUMA node",
				    .setting = "affinity",
				    .now = fo_look_text(k, "all %.0f processors of %.0f nodes", f->number, nodes),
				    .proposed = "the node of the rank's GPU",
				    .why = "its memory and threads may lie on the other node, and copies then cross "
					   "between processors; "
					   "it matters where the processor is behind the GPU or data are offloaded",
				    .paste = "torchrun --numa-binding=node",
				    .gain = { 1.01, 1.10 },
				    .gain_from = "PyTorch documentation, NUMA binding (2026-01): typically 1 to 10 %",
				    .source = "PyTorch documentation, NUMA binding (2026-01)" });
	return true;
}

static bool look_group_cpus(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_GROUP_CPUS);
	double gpus = (double)k->host->gpus;
	if (!f || !(gpus > 0) || f->number >= RANK_WANTS * gpus)
		return f != NULL;
	struct fo_audit_finding o = {
		.level = FO_AUDIT_ADVICE,
		.title = fo_look_text(k, "the control group grants %.4g processors for %.0f GPU%s", f->number, gpus,
				      fo_plural(gpus)),
		.setting = "cpu.max",
		.now = fo_look_text(k, "%.4g processors", f->number),
		.proposed = fo_look_text(k, "at least %.0f, better no limit (Kubernetes: limits.cpu)",
					 RANK_WANTS * gpus),
		.why = "a group that has used its share stops until the next period, every 0.1 s, and all its ranks "
		       "with it",
		.source = "Linux, admin-guide/cgroup-v2: cpu.max",
	};
	if (f->number < RANK_NEEDS * gpus)
		o.level = FO_AUDIT_SERIOUS;
	fo_look_add(k, f, o);
	return true;
}

/* ---- memory ---- */

static bool look_group_memory(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_GROUP_BYTES);
	double left = fo_host_number(f) / 0x1p30, each = left / (double)k->host->gpus;
	/* A threshold of our own: room for libraries, pinned buffers and some loader workers. */
	if (f && k->host->gpus && each < 16)
		fo_look_add(
			k, f,
			(struct fo_audit_finding){
				.level = FO_AUDIT_NOTE,
				.title = fo_look_text(k, "the control group leaves %.1f GiB of host memory per GPU",
						      each),
				.setting = "memory.max",
				.now = fo_look_text(k, "%.1f GiB left", left),
				.proposed = "more, or no limit",
				.why = "loader workers, pinned buffers and checkpoints need it; beyond it a process is "
				       "killed",
				.source = "Linux, admin-guide/cgroup-v2: memory.max" });
	return f != NULL;
}

static bool look_thp(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_THP);
	if (f && !strcmp(f->text, "never"))
		fo_look_add(k, f,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_NOTE,
				    .title = "transparent huge pages are off",
				    .setting = "transparent_hugepage/enabled",
				    .now = "never",
				    .proposed = "madvise",
				    .why = "large buffers of the host, such as those of an offloaded optimizer, cause "
					   "more misses of the "
					   "address cache",
				    .source = "Linux, admin-guide/mm/transhuge" });
	return f != NULL;
}

static bool look_huge_pages(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_HUGE_PAGES);
	double memory = number(k, FO_HOST_MEMORY_KIB);
	/* Of 2 MiB, the default size on x86. */
	double share = f ? f->number * 2048 / memory : NAN;
	if (share > 0.25)
		fo_look_add(k, f,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_NOTE,
				    .title = "much of the memory is set aside as huge pages",
				    .setting = "vm.nr_hugepages",
				    .now = fo_look_text(k, "%.0f pages, %.0f %% of the memory if they are of 2 MiB",
							f->number, 100 * share),
				    .why = "programs that do not ask for them, such as PyTorch, cannot use this memory",
				    .source = "Linux, admin-guide/mm/hugetlbpage" });
	return f != NULL;
}

static bool look_memlock(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_MEMLOCK_KIB), *at;
	bool verbs = fo_net_verbs(fo_host_net(k->host, &at));
	/* This machine without an adapter locks no memory for one. */
	bool none = k->facts->here && !k->host->folder && !k->host->ports && !verbs;
	/* The usual defaults are 64 KiB and 8 MiB. One GiB is a threshold of our own: what NCCL registers grows with
	 * its channels and peers. */
	if (!f || f->number >= 1 << 20 || none)
		return f != NULL;
	struct fo_audit_finding o = {
		.level = FO_AUDIT_ADVICE,
		.title = fo_look_text(k, "%.0f KiB of memory may be locked", f->number),
		.setting = "ulimit -l",
		.now = fo_look_text(k, "%.0f KiB", f->number),
		.proposed = "unlimited (limits.conf, docker --ulimit memlock=-1, LimitMEMLOCK of the daemon)",
		.why = "buffers of InfiniBand and RoCE are locked: their registration fails, and NCCL ends or uses "
		       "sockets",
		.paste = "* soft memlock unlimited\n* hard memlock unlimited",
		.source = "NCCL user guide 2.30, troubleshooting: memory limits",
	};
	if (f->number >= 1024)
		o.title = fo_look_text(k, "%.0f MiB of memory may be locked", f->number / 1024);
	if (verbs) {
		o.level = FO_AUDIT_SERIOUS;
		o.title = fo_look_text(k, "%s, with an RDMA network", o.title);
	}
	fo_look_add(k, f, o);
	return true;
}

static bool look_shm(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_SHM_BYTES);
	if (f && f->number < 0x1p30)
		fo_look_add(
			k, f,
			(struct fo_audit_finding){
				.level = f->number <= 0x1p26 ? FO_AUDIT_SERIOUS : FO_AUDIT_ADVICE,
				.title = fo_look_text(k, "/dev/shm holds %.0f MiB", f->number / 0x1p20),
				.setting = "/dev/shm",
				.now = fo_look_text(k, "%.0f MiB", f->number / 0x1p20),
				.proposed =
					"1 GiB or more (docker --shm-size=1g or --ipc=host; Kubernetes: emptyDir of "
					"medium Memory)",
				.why = "NCCL and the workers of PyTorch's loader exchange data there: they end with "
				       "a bus error or an "
				       "error at the start. 64 MiB is Docker's default",
				.paste = "--shm-size=1g",
				.source = "NCCL user guide 2.30, troubleshooting: Docker; PyTorch README" });
	return f != NULL;
}

static bool look_files(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_OPEN_FILES);
	if (f && f->number <= 1024)
		fo_look_add(k, f,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_NOTE,
				    .title = fo_look_text(k, "a process may open %.0f files", f->number),
				    .setting = "ulimit -n",
				    .now = fo_look_text(k, "%.0f", f->number),
				    .proposed = "65536",
				    .why = "sockets of many ranks and shared tensors of loader workers are files",
				    .paste = "ulimit -n 65536" });
	return f != NULL;
}

static bool look_rocm(struct fo_look *k)
{
	const struct fo_host_fact *f = told(k, FO_HOST_ROCM);
	if (f)
		fo_audit_not_known(k->a,
				   fo_look_text(k,
						"%s is of AMD GPUs (rocm-smi, amd-smi), which this audit does not read",
						f->file),
				   "no file that is read here");
	return f != NULL;
}

const struct fo_host_rule fo_host_rules_system[] = {
	{ "cpu-governor", look_governor, "clock governor of the processor", "cpupower frequency-info" },
	{ "cpu-turbo", look_turbo, NULL, NULL },
	{ "cpu-smt", look_smt, NULL, NULL },
	{ "cpu-affinity", look_affinity, "processors that a rank may use", "taskset -p -c PID of a rank" },
	{ "group-cpus", look_group_cpus, NULL, NULL },
	{ "group-memory", look_group_memory, NULL, NULL },
	{ "huge-pages-thp", look_thp, NULL, NULL },
	{ "huge-pages-reserved", look_huge_pages, NULL, NULL },
	{ "memlock", look_memlock, "limit of locked memory", "ulimit -a of a rank" },
	{ "dev-shm", look_shm, "size of /dev/shm", "df /dev/shm in the container" },
	{ "open-files", look_files, NULL, NULL },
	{ "rocm", look_rocm, NULL, NULL },
	{ 0 },
};
