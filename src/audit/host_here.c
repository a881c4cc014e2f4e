/* Reads this machine: what /proc and /sys hold goes through the readers of files, NVML answers for nvidia-smi -q. */
#include "audit/host_int.h"

#include "base/fs.h"
#include "base/str.h"
#include "hw/nvml.h"
#include "hw/nvml_settings.h"
#include "hw/state.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

extern char **environ;

enum { SMALL_MOST = 1 << 20, PORTS_PER_ADAPTER = 4 };

/* ---- small files ---- */

static bool small(struct fo_arena *a, char **text, size_t *len, const char *path)
{
	if (fo_fs_read(a, path, SMALL_MOST, text, len) == FO_OK)
		return true;
	fo_err_clear();
	return false;
}

/* One word or number of /sys, in arena memory; NULL: not there. */
static const char *word(struct fo_arena *a, const char *path)
{
	char *text;
	size_t len;
	if (!fo_fs_exists(path) || !small(a, &text, &len, path))
		return NULL;
	while (len && isspace((unsigned char)text[len - 1]))
		text[--len] = 0;
	return len ? text : NULL;
}

/* Puts down a fact of the host whose evidence is the file as a whole. */
static void tell(struct fo_host_reader *r, enum fo_host_id id, double number, const char *text, const char *file)
{
	if (!text || !*text)
		return;
	r->file = fo_arena_strdup(&r->f->arena, file);
	r->line = 0;
	fo_host_tell(r, &fo_reader_host(r)->fact[id], FO_KIND_SMALL, number, text, strlen(text));
}

static void tell_number(struct fo_host_reader *r, enum fo_host_id id, double v, const char *file)
{
	char text[32];
	snprintf(text, sizeof text, "%.15g", v);
	if (!isnan(v) && v >= 0)
		tell(r, id, v, text, file);
}

static void read_texts(struct fo_host_facts *f, size_t host, const char *root)
{
	static const char *const path[] = { "/proc/meminfo", "/proc/modules", "/proc/self/limits", "/proc/cmdline" };
	for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
		struct fo_arena a = { 0 };
		char *text;
		size_t len;
		const char *full = fo_arena_printf(&a, "%s%s", root, path[i]);
		if (fo_fs_exists(full) && small(&a, &text, &len, full))
			fo_host_read_as(f, host, path[i], text, len);
		fo_arena_fini(&a);
	}
}

/* ---- the machine ---- */

/* A file that is 1 where turbo is on, or (no_turbo) where it is off. */
static void read_turbo(struct fo_host_reader *r, struct fo_arena *a, const char *root)
{
	static const struct {
		const char *path;
		bool off;
	} file[] = { { "/sys/devices/system/cpu/intel_pstate/no_turbo", true },
		     { "/sys/devices/system/cpu/cpufreq/boost", false } };
	for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
		const char *v = word(a, fo_arena_printf(a, "%s%s", root, file[i].path));
		if (v && isdigit((unsigned char)*v))
			tell(r, FO_HOST_TURBO, (*v == '1') != file[i].off, v, file[i].path);
	}
}

static void read_machine(struct fo_host_reader *r, const char *root)
{
	struct fo_machine m;
	fo_machine_read(&m, root);
	tell(r, FO_HOST_CPU_MODEL, NAN, m.cpu, "/proc/cpuinfo");
	tell_number(r, FO_HOST_CPUS, m.cpus, "/sys/devices/system/cpu/online");
	tell_number(r, FO_HOST_ALLOWED_CPUS, m.allowed, "/proc/self/status");
	tell_number(r, FO_HOST_SOCKETS, m.sockets, "/sys/devices/system/cpu");
	tell_number(r, FO_HOST_NUMA_NODES, m.nodes, "/sys/devices/system/node/online");
	if (m.cores > 0 && m.cpus >= m.cores)
		tell_number(r, FO_HOST_THREADS_PER_CORE, round((double)m.cpus / m.cores), "/sys/devices/system/cpu");
	tell(r, FO_HOST_GOVERNOR, NAN, m.governor, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
	tell(r, FO_HOST_CPU_DRIVER, NAN, m.driver, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
	tell(r, FO_HOST_THP, NAN, m.thp, "/sys/kernel/mm/transparent_hugepage/enabled");
	tell_number(r, FO_HOST_GROUP_CPUS, m.cpu_limit, "/sys/fs/cgroup (cpu.max)");
	tell_number(r, FO_HOST_GROUP_BYTES, fo_state_memory_room(root), "/sys/fs/cgroup (memory.max)");
}

static void read_shm(struct fo_host_reader *r, struct fo_arena *a, const char *root)
{
	struct statvfs s;
	if (!statvfs(fo_arena_printf(a, "%s/dev/shm", root), &s))
		tell_number(r, FO_HOST_SHM_BYTES, (double)s.f_blocks * (double)s.f_frsize, "/dev/shm");
}

/* ---- ports ---- */

static void tell_port(struct fo_host_reader *r, struct fo_host_port *p, enum fo_port_id id, const char *text)
{
	const char *v = text;
	if (!v)
		return;
	if (isdigit((unsigned char)*v) && v[1] == ':')
		v += 2 + strspn(v + 2, " "); /* "4: ACTIVE" */
	fo_host_tell(r, &p->fact[id], FO_KIND_SMALL, fo_host_number_at(v), v, strlen(v));
}

static void read_port(struct fo_host_reader *r, struct fo_arena *a, const char *dir, const char *adapter, int port)
{
	const char *at = fo_arena_printf(a, "%s/%s/ports/%d", dir, adapter, port),
		   *state = word(a, fo_arena_printf(a, "%s/state", at));
	if (!state)
		return;
	r->file = fo_arena_printf(&r->f->arena, "/sys/class/infiniband/%s/ports/%d", adapter, port);
	r->line = 0;
	struct fo_host_port *p = fo_host_port_at(r, adapter, strlen(adapter), port);
	tell_port(r, p, FO_PORT_STATE, state);
	tell_port(r, p, FO_PORT_PHYSICAL, word(a, fo_arena_printf(a, "%s/phys_state", at)));
	tell_port(r, p, FO_PORT_RATE, word(a, fo_arena_printf(a, "%s/rate", at)));
	tell_port(r, p, FO_PORT_LAYER, word(a, fo_arena_printf(a, "%s/link_layer", at)));
	tell_port(r, p, FO_PORT_TYPE, word(a, fo_arena_printf(a, "%s/%s/hca_type", dir, adapter)));
	tell_port(r, p, FO_PORT_NUMA, word(a, fo_arena_printf(a, "%s/%s/device/numa_node", dir, adapter)));
}

static void read_ports(struct fo_host_reader *r, struct fo_arena *a, const char *root)
{
	const char *path = fo_arena_printf(a, "%s/sys/class/infiniband", root);
	DIR *dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));)
		for (int port = 1; *e->d_name != '.' && port <= PORTS_PER_ADAPTER; port++)
			read_port(r, a, path, e->d_name, port);
	if (dir)
		closedir(dir);
}

/* ---- GPUs ---- */

static void gpu_number(struct fo_host_reader *r, int g, enum fo_gpu_id id, double v)
{
	char text[32];
	snprintf(text, sizeof text, "%.6g", v);
	if (!isnan(v))
		fo_host_tell(r, &fo_host_gpu_at(r, g)->fact[id], FO_KIND_SMI_QUERY, v, text, strlen(text));
}

static void gpu_word(struct fo_host_reader *r, int g, enum fo_gpu_id id, const char *text)
{
	if (*text)
		fo_host_tell(r, &fo_host_gpu_at(r, g)->fact[id], FO_KIND_SMI_QUERY, NAN, text, strlen(text));
}

/* Bits of nvmlDeviceGetCurrentClocksEventReasons, NVML API Reference 13.0. */
static const struct {
	enum fo_gpu_id id;
	int64_t bit;
} reason[] = { { FO_GPU_IDLE, 0x1 },         { FO_GPU_REASON_APP, 0x2 },         { FO_GPU_REASON_POWER, 0x4 },
	       { FO_GPU_REASON_HW, 0x8 },    { FO_GPU_REASON_SW_THERMAL, 0x20 }, { FO_GPU_REASON_HW_THERMAL, 0x40 },
	       { FO_GPU_REASON_BRAKE, 0x80 } };

static void read_now(struct fo_host_reader *r, int g, fo_nvml_device d)
{
	struct fo_nvml_now n;
	fo_nvml_read(d, &n);
	gpu_number(r, g, FO_GPU_LIMIT_W, n.limit_w);
	gpu_number(r, g, FO_GPU_POWER_W, n.power_w);
	gpu_number(r, g, FO_GPU_SM_MHZ, n.sm_hz * 1e-6);
	gpu_number(r, g, FO_GPU_SM_MAX_MHZ, n.sm_max_hz * 1e-6);
	gpu_number(r, g, FO_GPU_TEMPERATURE, n.temperature_c);
	gpu_number(r, g, FO_GPU_BUSY, n.busy * 100);
	for (size_t i = 0; n.reasons >= 0 && i < sizeof reason / sizeof *reason; i++)
		gpu_number(r, g, reason[i].id, (n.reasons & reason[i].bit) != 0);
}

static void read_settings(struct fo_host_reader *r, int g, const struct fo_nvml_settings *s)
{
	static const char *const mode[] = { "Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process" };
	const struct {
		enum fo_gpu_id id;
		double v;
	} row[] = { { FO_GPU_PERSISTENCE, s->persistence },
		    { FO_GPU_MIG, s->mig },
		    { FO_GPU_PCIE_GEN, s->pcie_gen },
		    { FO_GPU_PCIE_GEN_MAX, s->pcie_gen_max },
		    { FO_GPU_PCIE_WIDTH, s->pcie_width },
		    { FO_GPU_PCIE_WIDTH_MAX, s->pcie_width_max },
		    { FO_GPU_DEFAULT_W, s->default_w },
		    { FO_GPU_APP_MHZ, s->app_hz * 1e-6 },
		    { FO_GPU_APP_DEFAULT_MHZ, s->app_default_hz * 1e-6 },
		    { FO_GPU_LINKS_UP, s->links_up },
		    { FO_GPU_LINKS_DOWN, s->links_down > 0 ? s->links_down : NAN },
		    { FO_GPU_ECC, s->ecc },
		    { FO_GPU_ECC_PENDING, s->ecc_pending },
		    { FO_GPU_UNCORRECTED, s->uncorrected },
		    { FO_GPU_REMAP_PENDING, s->remap_pending },
		    { FO_GPU_REMAP_FAILED, s->remap_failed } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		gpu_number(r, g, row[i].id, row[i].v);
	gpu_word(r, g, FO_GPU_NAME, s->name);
	if (s->compute_mode >= 0 && s->compute_mode < 4)
		gpu_word(r, g, FO_GPU_COMPUTE_MODE, mode[(int)s->compute_mode]);
}

/* "00000000:1B:00.0" is /sys/bus/pci/devices/0000:1b:00.0. */
static void read_node(struct fo_host_reader *r, struct fo_arena *a, const char *root, int g, const char *bus)
{
	char address[32];
	snprintf(address, sizeof address, "%s", strlen(bus) > 4 ? bus + 4 : bus);
	for (char *p = address; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	const char *v = word(a, fo_arena_printf(a, "%s/sys/bus/pci/devices/%s/numa_node", root, address));
	if (v && isdigit((unsigned char)*v))
		gpu_number(r, g, FO_GPU_NUMA, fo_host_number_at(v));
}

static void read_gpus(struct fo_host_reader *r, struct fo_arena *a, const char *root)
{
	struct fo_nvml_library lib;
	bool loaded = fo_nvml_library(&lib);
	int n = loaded ? fo_nvml_count() : 0;
	r->file = "NVML";
	r->line = 0;
	if (loaded && *lib.driver)
		tell(r, FO_HOST_DRIVER, fo_host_number_at(lib.driver), lib.driver, "NVML");
	for (int g = 0; g < n; g++) {
		struct fo_nvml_settings s;
		fo_nvml_device d = fo_nvml_at(g);
		fo_nvml_settings(d, &s);
		r->file = fo_arena_printf(&r->f->arena, "NVML of GPU %d", g);
		fo_host_gpu_at(r, g)->bus = fo_arena_strdup(&r->f->arena, s.bus);
		read_settings(r, g, &s);
		read_now(r, g, d);
		read_node(r, a, root, g, s.bus);
	}
	if (!loaded)
		fo_arena_say(&r->f->arena, &r->f->not_read, &r->f->not_reads, "NVML: %s", lib.why);
}

/* ---- the environment ---- */

static void read_environment(struct fo_host_facts *f, size_t host)
{
	struct fo_str s = { 0 };
	for (char **v = environ; v && *v; v++)
		if (!strchr(*v, '\n') && !fo_host_begins(*v, "HOSTNAME="))
			fo_str_printf(&s, "%s\n", *v);
	if (s.len)
		fo_host_read_as(f, host, "environment", s.data, s.len);
	for (size_t i = 0; i < f->host[host].variables; i++)
		f->host[host].variable[i].value.line = 0; /* an environment has no lines */
	fo_str_fini(&s);
}

void fo_host_read_here(struct fo_host_facts *f, const char *root)
{
	char name[256] = "";
	struct fo_arena a = { 0 };
	f->here = true;
	gethostname(name, sizeof name - 1);
	size_t host = fo_host_new(f, fo_arena_strdup(&f->arena, name), NULL);
	f->host[host].named = *name;
	struct fo_host_reader r = { .f = f, .file = "", .host = host, .kind = FO_KIND_COUNT, .gpu = -1, .port = -1 };
	read_texts(f, host, root);
	read_environment(f, host);
	read_machine(&r, root);
	read_turbo(&r, &a, root);
	read_shm(&r, &a, root);
	read_ports(&r, &a, root);
	read_gpus(&r, &a, root);
	if (fo_fs_exists(fo_arena_printf(&a, "%s/sys/class/kfd", root)))
		tell(&r, FO_HOST_ROCM, NAN, "an AMD GPU's driver is loaded", "/sys/class/kfd");
	fo_arena_say(&f->arena, &f->read, &f->reads, "this machine: /proc, /sys, the environment, %zu GPU%s by NVML",
		     f->host[host].gpus, fo_plural(f->host[host].gpus));
	fo_arena_fini(&a);
}
