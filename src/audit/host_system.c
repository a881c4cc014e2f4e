/* Readers of what describes the system: lscpu, numactl, cpupower, meminfo, ulimit, df, modules, packages, environment.
 * Most of it are lines that say themselves what they are. */
#include "audit/host_int.h"

#include "hw/state.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct fo_host_fact *fact(struct fo_host_reader *r, enum fo_host_id id) { return &fo_reader_host(r)->fact[id]; }

static void tell(struct fo_host_reader *r, enum fo_host_kind kind, enum fo_host_id id, double v, const char *text)
{
	if (r->kind != kind)
		fo_host_begin(r, kind);
	fo_host_tell(r, fact(r, id), kind, v, text, strlen(text));
}

/* ---- lines of "key: value" ---- */

static const struct {
	const char *key; /* with its colon */
	enum fo_host_kind kind;
	enum fo_host_id id;
	bool words;
} keyed[] = {
	{ "Model name:", FO_KIND_LSCPU, FO_HOST_CPU_MODEL, true },
	{ "CPU(s):", FO_KIND_LSCPU, FO_HOST_CPUS, false },
	{ "Socket(s):", FO_KIND_LSCPU, FO_HOST_SOCKETS, false },
	{ "Thread(s) per core:", FO_KIND_LSCPU, FO_HOST_THREADS_PER_CORE, false },
	{ "NUMA node(s):", FO_KIND_LSCPU, FO_HOST_NUMA_NODES, false },
	{ "Hypervisor vendor:", FO_KIND_LSCPU, FO_HOST_HYPERVISOR, true },
	{ "available:", FO_KIND_NUMACTL, FO_HOST_NUMA_NODES, false },
	{ "MemTotal:", FO_KIND_MEMINFO, FO_HOST_MEMORY_KIB, false },
	{ "HugePages_Total:", FO_KIND_MEMINFO, FO_HOST_HUGE_PAGES, false },
	{ "Nvidia driver version:", FO_KIND_PIP, FO_HOST_DRIVER, true }, /* torch.utils.collect_env */
	{ "PyTorch version:", FO_KIND_PIP, FO_HOST_TORCH, true },
};

static bool keyed_line(struct fo_host_reader *r, const char *p)
{
	for (size_t i = 0; i < sizeof keyed / sizeof *keyed; i++) {
		if (!fo_host_begins(p, keyed[i].key))
			continue;
		const char *v = p + strlen(keyed[i].key);
		v += strspn(v, " \t");
		double number = fo_host_number_at(v);
		if (*v && (keyed[i].words || !isnan(number)) && strncmp(v, "Could not", 9))
			tell(r, keyed[i].kind, keyed[i].id, keyed[i].words ? NAN : number, v);
		return true;
	}
	return false;
}

/* ---- limits ---- */

static double limit(const char *v) { return fo_host_begins(v, "unlimited") ? INFINITY : fo_host_number_at(v); }

/* "max locked memory           (kbytes, -l) 64" of ulimit -a; "Max locked memory  65536  65536  bytes" of
 * /proc/self/limits, whose first column is the soft limit. */
static bool limit_line(struct fo_host_reader *r, const char *p)
{
	static const struct {
		const char *shell, *kernel;
		enum fo_host_id id;
		double kernel_unit;
	} row[] = { { "max locked memory", "Max locked memory", FO_HOST_MEMLOCK_KIB, 1 / 1024. },
		    { "open files", "Max open files", FO_HOST_OPEN_FILES, 1 } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		bool shell = fo_host_begins(p, row[i].shell), kernel = fo_host_begins(p, row[i].kernel);
		const char *v = shell ? strchr(p, ')') : p + strlen(row[i].kernel);
		if ((!shell && !kernel) || !v)
			continue;
		v += shell;
		v += strspn(v, " \t");
		double number = limit(v);
		if (!isnan(number))
			tell(r, FO_KIND_ULIMIT, row[i].id, shell ? number : number * row[i].kernel_unit, v);
		return true;
	}
	return false;
}

/* "1.5G" of df -h; kibibytes without a letter */
static double df_bytes(const char *v)
{
	char *end;
	double n = strtod(v, &end);
	static const char letters[] = "KMGTP";
	const char *at = *end && end != v ? strchr(letters, toupper((unsigned char)*end)) : NULL;
	if (at && !isspace((unsigned char)*end))
		return n * pow(1024, (double)(at - letters + 1));
	return end == v || !isspace((unsigned char)*end) ? NAN : n * 1024;
}

/* "shm             65536       0     65536   0% /dev/shm" */
static bool df_line(struct fo_host_reader *r, const char *p)
{
	const char *at = strstr(p, " /dev/shm"), *v = p + strcspn(p, " \t");
	if (!at || at[9] || !strchr(p, '%'))
		return false;
	v += strspn(v, " \t");
	double bytes = df_bytes(v);
	if (!isnan(bytes))
		tell(r, FO_KIND_DF, FO_HOST_SHM_BYTES, bytes, p);
	return true;
}

/* ---- clocks, pages, processors ---- */

static bool is_governor(const char *p)
{
	static const char *const word[] = { "performance", "powersave",    "schedutil",
					    "ondemand",    "conservative", "userspace" };
	for (size_t i = 0; i < sizeof word / sizeof *word; i++)
		if (!strcmp(p, word[i]))
			return true;
	return false;
}

/* The answers of cpupower frequency-info, and of `cat` on the file of a governor. */
static bool clock_line(struct fo_host_reader *r, const char *p)
{
	static const char says[] = "The governor \"";
	if (fo_host_begins(p, says)) {
		char name[32];
		size_t n = strcspn(p + strlen(says), "\"");
		snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), p + strlen(says));
		tell(r, FO_KIND_CPUPOWER, FO_HOST_GOVERNOR, NAN, name);
		return true;
	}
	if (is_governor(p)) {
		/* Of many processors the first that differs from performance counts. */
		const struct fo_host_fact *g = fact(r, FO_HOST_GOVERNOR);
		if (!g->file || !strcmp(g->text, "performance"))
			tell(r, FO_KIND_SMALL, FO_HOST_GOVERNOR, NAN, p);
		return true;
	}
	if (r->kind != FO_KIND_CPUPOWER && !fo_host_begins(p, "analyzing CPU"))
		return false;
	if (r->kind != FO_KIND_CPUPOWER)
		fo_host_begin(r, FO_KIND_CPUPOWER);
	if (fo_host_begins(p, "driver: "))
		tell(r, FO_KIND_CPUPOWER, FO_HOST_CPU_DRIVER, NAN, p + 8);
	if (fo_host_begins(p, "boost state support"))
		r->row = 1;
	else if (r->row == 1 && fo_host_begins(p, "Active: "))
		tell(r, FO_KIND_CPUPOWER, FO_HOST_TURBO, fo_host_yes(p + 8), p);
	return true;
}

/* "always [madvise] never" */
static bool page_line(struct fo_host_reader *r, const char *p)
{
	char mode[16];
	const char *open = strchr(p, '['), *close = open ? strchr(open, ']') : NULL;
	if (!close || !fo_host_begins(p + (*p == '['), "always") || !strstr(p, "madvise") || !strstr(p, "never"))
		return false;
	snprintf(mode, sizeof mode, "%.*s", (int)(close - open - 1), open + 1);
	tell(r, FO_KIND_SMALL, FO_HOST_THP, NAN, mode);
	return true;
}

/* "pid 17's current affinity list: 0-15" of taskset -p -c; "Cpus_allowed_list:	0-15" of /proc/self/status */
static bool affinity_line(struct fo_host_reader *r, const char *p)
{
	struct fo_cpus set;
	const char *at = strstr(p, "affinity list: "), *v = at ? at + 15 : p + 18;
	if (!at && !fo_host_begins(p, "Cpus_allowed_list:"))
		return false;
	v += strspn(v, " \t");
	if (*v && fo_cpus_parse(v, &set))
		tell(r, FO_KIND_SMALL, FO_HOST_ALLOWED_CPUS, fo_cpus_count(&set), p);
	return true;
}

bool fo_read_system(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = fo_line_trimmed(l);
	if (fo_host_begins(p, "BOOT_IMAGE=") || fo_host_begins(p, "Command line: BOOT_IMAGE=")) {
		tell(r, FO_KIND_CMDLINE, FO_HOST_CMDLINE, NAN, p);
		return true;
	}
	if (fo_host_begins(p, "ACSCtl:")) {
		struct fo_host_fact *acs = fact(r, FO_HOST_ACS);
		bool on = strstr(p, "SrcValid+");
		if (!acs->file || (on && !(acs->number > 0)))
			tell(r, FO_KIND_LSPCI, FO_HOST_ACS, on, p);
		r->found[FO_KIND_LSPCI]++;
		return true;
	}
	if (strstr(p, "ROCm System Management Interface") || strstr(p, "AMD-SMI ") || fo_host_begins(p, "amd-smi ")) {
		tell(r, FO_KIND_ROCM, FO_HOST_ROCM, NAN, p);
		return true;
	}
	return keyed_line(r, p) || limit_line(r, p) || df_line(r, p) || page_line(r, p) || affinity_line(r, p) ||
	       clock_line(r, p);
}

/* ---- kernel modules ---- */

/* lsmod: "nvidia_peermem         16384  0"; /proc/modules has the same first three columns. */
bool fo_read_modules(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = l->text;
	size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
	if (fo_host_begins(p, "Module ") && strstr(p, "Size") && strstr(p, "Used by")) {
		fo_host_begin(r, FO_KIND_LSMOD);
		tell(r, FO_KIND_LSMOD, FO_HOST_MODULES, 0, p);
		return true;
	}
	char *end;
	if (!n || (p[n] != ' ' && p[n] != '\t') || isdigit((unsigned char)*p))
		return false;
	const char *v = p + n + strspn(p + n, " \t");
	long size = strtol(v, &end, 10);
	if (end == v || size < 1024 || *end != ' ' || !isdigit((unsigned char)end[strspn(end, " ")]))
		return false;
	bool peermem = (n == 14 && fo_host_begins(p, "nvidia_peermem")) ||
		       (n == 11 && fo_host_begins(p, "nv_peer_mem"));
	bool known = r->kind == FO_KIND_LSMOD;
	/* Without its header a list shows itself by modules that every Linux with such hardware has. */
	if (!known && !peermem && strncmp(p, "nvidia", 6) && strncmp(p, "mlx5_", 5) && strncmp(p, "ib_", 3))
		return false;
	if (!known)
		fo_host_begin(r, FO_KIND_LSMOD);
	struct fo_host_fact *modules = fact(r, FO_HOST_MODULES);
	if (!modules->file)
		fo_host_tell(r, modules, FO_KIND_LSMOD, 0, p, strlen(p));
	modules->number++;
	r->found[FO_KIND_LSMOD]++;
	if (peermem)
		tell(r, FO_KIND_LSMOD, FO_HOST_PEERMEM, 1, p);
	return true;
}

/* ---- packages ---- */

static const struct {
	const char *name;
	enum fo_host_id id;
} package[] = {
	{ "torch", FO_HOST_TORCH },
	{ "nvidia-nccl-cu", FO_HOST_PIP_NCCL },
	{ "nvidia-cublas", FO_HOST_CUBLAS },
	{ "nvidia-cudnn", FO_HOST_CUDNN },
	{ "transformer-engine", FO_HOST_TRANSFORMER_ENGINE },
	{ "transformer_engine", FO_HOST_TRANSFORMER_ENGINE },
};

/* "torch==2.4.0" of pip freeze, "torch   2.4.0" of pip list, "[pip3] torch==2.4.0" of collect_env */
bool fo_read_pip(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = fo_line_trimmed(l);
	if (fo_host_begins(p, "[pip3] ") || fo_host_begins(p, "[conda] "))
		p += strcspn(p, " ") + 1;
	size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.");
	const char *v = p + n;
	bool freeze = fo_host_begins(v, "==");
	v += freeze ? 2 : strspn(v, " \t");
	if (!n || v == p + n || !isdigit((unsigned char)*v) || !strchr(v, '.') || isdigit((unsigned char)*p))
		return false;
	bool list = freeze || r->kind == FO_KIND_PIP;
	for (size_t i = 0; i < sizeof package / sizeof *package; i++) {
		size_t len = strlen(package[i].name);
		bool exact = !strcmp(package[i].name, "torch");
		if (strncasecmp(p, package[i].name, len) || (exact && n != len))
			continue;
		char version[64];
		snprintf(version, sizeof version, "%.*s", (int)strcspn(v, " \t;,"), v);
		tell(r, FO_KIND_PIP, package[i].id, NAN, version);
		list = true;
	}
	if (list && !fact(r, FO_HOST_PIP)->file)
		tell(r, FO_KIND_PIP, FO_HOST_PIP, NAN, p);
	return list;
}

/* ---- the environment ---- */

/* Variables of training that count wherever a line sets them: "export A=1 export B=2", "-x NCCL_DEBUG=INFO". */
static bool of_training(const char *p)
{
	static const char *const prefix[] = { "NCCL_",          "CUDA_",    "TORCH_", "PYTORCH_", "NVTE_",
					      "OMP_",           "MKL_",     "UCX_",   "CUBLAS_",  "GLOO_",
					      "TORCHINDUCTOR_", "NVSHMEM_", "FI_",    "KMP_",     "GOMP_" };
	for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
		if (fo_host_begins(p, prefix[i]))
			return true;
	return false;
}

static size_t name_at(const char *p)
{
	size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
	return n && !isdigit((unsigned char)*p) && p[n] == '=' ? n : 0;
}

/* The value's length: up to a blank or comma, or the closing quote. */
static size_t value_at(const char **v)
{
	char quote = **v == '"' || **v == '\'' ? *(*v)++ : 0;
	if (!quote)
		return strcspn(*v, " \t;\\&");
	const char *end = strchr(*v, quote);
	return end ? (size_t)(end - *v) : strlen(*v);
}

static void section(struct fo_host_reader *r)
{
	r->kind = FO_KIND_ENV;
	fo_reader_host(r)->kinds |= 1u << FO_KIND_ENV;
}

/* The whole line is NAME=value, with blanks in the value, as env prints it. */
static bool whole_line(struct fo_host_reader *r, const char *p)
{
	size_t n = name_at(p);
	if (!n || of_training(p))
		return false;
	const char *v = p + n + 1;
	if (r->kind != FO_KIND_ENV && !isupper((unsigned char)*p))
		return false;
	for (size_t i = 0; i < n; i++)
		if (r->kind != FO_KIND_ENV && islower((unsigned char)p[i]))
			return false;
	fo_host_tell_variable(r, p, n, v, strlen(v));
	r->telling += fo_host_begins(p, "PATH=") || fo_host_begins(p, "HOME=") || fo_host_begins(p, "HOSTNAME=");
	if (n == 8 && fo_host_begins(p, "HOSTNAME"))
		fo_host_named(r, v, strspn(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."));
	return true;
}

/* "- name: NCCL_DEBUG" and, on the next line, "value: "INFO"" of a Kubernetes manifest. */
static bool manifest_line(struct fo_host_reader *r, const char *p)
{
	const char *name = r->pending;
	r->pending = NULL;
	if (name && fo_host_begins(p, "value:")) {
		const char *v = p + 6 + strspn(p + 6, " ");
		size_t n = value_at(&v);
		fo_host_tell_variable(r, name, strlen(name), v, n);
		r->telling++;
		return true;
	}
	p += fo_host_begins(p, "- ") ? 2 + strspn(p + 2, " ") : 0;
	if (!fo_host_begins(p, "name:"))
		return false;
	p += 5 + strspn(p + 5, " \"'");
	size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
	if (n && n < 128 && of_training(p))
		r->pending = fo_arena_printf(&r->f->arena, "%.*s", (int)n, p);
	return r->pending;
}

bool fo_read_env(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = fo_line_trimmed(l);
	bool any = false;
	if (manifest_line(r, p))
		return true;
	if (*p == '#')
		return false;
	if (fo_host_begins(p, "export ") || fo_host_begins(p, "declare -x "))
		p += strcspn(p, "x") + (*p == 'e' ? 6 : 2);
	if (whole_line(r, p)) {
		section(r);
		return true;
	}
	for (const char *w = p; *w; w++) {
		size_t n = (w == p || !(isalnum((unsigned char)w[-1]) || w[-1] == '_')) && of_training(w) ? name_at(w)
													  : 0;
		if (!n)
			continue;
		const char *v = w + n + 1;
		size_t len = value_at(&v);
		/* sbatch separates variables by commas, as lists of devices do: the next name tells which. */
		for (size_t i = 0; i < len; i++)
			if (v[i] == ',' && of_training(v + i + 1) && name_at(v + i + 1))
				len = i;
		fo_host_tell_variable(r, w, n, v, len);
		any = true;
		r->telling++;
		w = v + len - 1; /* the "=" or the quote where the value is empty: never behind the end */
	}
	if (any)
		section(r);
	return any;
}
