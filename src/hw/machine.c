#include "hw/state_int.h"

#include "base/str.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Processor flags that decide which kernels run, or could run. */
static const char *const interesting[] = { "avx2",     "fma",         "f16c",     "avx512f",  "avx512bw", "avx512vl",
					   "avx512dq", "avx512_bf16", "amx_tile", "amx_bf16", "asimd",    "asimddp",
					   "bf16",     "i8mm",        "sve",      "sve2" };

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = strstr(list, word); p; p = strstr(p + 1, word))
		if ((p == list || p[-1] == ' ') && (!p[n] || isspace((unsigned char)p[n])))
			return true;
	return false;
}

static void add_isa(struct fo_machine *m, const char *flags)
{
	size_t len = 0;
	for (size_t i = 0; i < sizeof interesting / sizeof *interesting; i++)
		if (has_word(flags, interesting[i]) && len < sizeof m->isa)
			len += (size_t)snprintf(m->isa + len, sizeof m->isa - len, "%s%s", len ? " " : "",
						interesting[i]);
}

/* The first processor's name and flags: "model name" and "flags" on x86, numbers and "Features" on arm. */
static void read_cpuinfo(struct fo_machine *m, const char *root)
{
	char path[512], line[8192], implementer[16] = "", part[16] = "";
	int n = snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
	FILE *f = n >= 0 && n < (int)sizeof path ? fopen(path, "re") : NULL;
	while (f && fgets(line, sizeof line, f) && *line != '\n') {
		char *colon = strchr(line, ':');
		if (!colon)
			continue;
		line[strcspn(line, "\n")] = 0;
		const char *v = colon + 1 + (colon[1] == ' ');
		if (!strncmp(line, "model name", 10))
			fo_str_visible(m->cpu, sizeof m->cpu, v);
		else if (!strncmp(line, "CPU implementer", 15))
			fo_str_visible(implementer, sizeof implementer, v);
		else if (!strncmp(line, "CPU part", 8))
			fo_str_visible(part, sizeof part, v);
		else if (!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8))
			add_isa(m, v);
	}
	if (f)
		fclose(f);
	if (!*m->cpu && *part)
		snprintf(m->cpu, sizeof m->cpu, "implementer %s, part %s", implementer, part);
}

/* A core is the set of hardware threads that share it: count the sets by their first member. */
static void read_topology(struct fo_machine *m, const char *root)
{
	char text[1024];
	struct fo_cpus online, sharing, seen = { { 0 } };
	if (fo_state_allowed(root, &sharing))
		m->allowed = fo_cpus_count(&sharing);
	if (!fo_state_text(text, sizeof text, root, "/sys/devices/system/cpu/online") || !fo_cpus_parse(text, &online))
		return;
	int cores = 0, sockets = 0;
	m->cpus = fo_cpus_count(&online);
	for (int cpu = 0; cpu < FO_CPUS_MAX; cpu++) {
		if (!fo_cpus_have(&online, cpu))
			continue;
		if (!fo_state_text(text, sizeof text, root,
				   "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu) ||
		    !fo_cpus_parse(text, &sharing))
			return;
		cores += fo_cpus_first(&sharing) == cpu;
		double package = fo_state_number(root, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
						 cpu);
		if (!(package < FO_CPUS_MAX))
			return;
		sockets += !fo_cpus_have(&seen, (int)package);
		fo_cpus_add(&seen, (int)package);
	}
	if (cores)
		m->cores = cores;
	if (sockets)
		m->sockets = sockets;
}

static void read_caches(struct fo_machine *m, const char *root)
{
	for (int i = 0; i < FO_CACHES_MAX; i++) {
		char dir[64], text[1024], type[16];
		struct fo_cpus sharing;
		snprintf(dir, sizeof dir, "/sys/devices/system/cpu/cpu0/cache/index%d", i);
		double level = fo_state_number(root, "%s/level", dir);
		if (!(level >= 1 && level <= 9) || !fo_state_text(text, sizeof text, root, "%s/size", dir))
			return;
		char *unit;
		double size = strtod(text, &unit);
		if (*unit == 'K')
			size *= 1024;
		else if (*unit == 'M')
			size *= 1048576;
		else if (*unit)
			size = NAN;
		if (!(size > 0 && size < 0x1p40) || !fo_state_text(text, sizeof text, root, "%s/type", dir))
			return;
		fo_str_visible(type, sizeof type, text);
		bool shared = fo_state_text(text, sizeof text, root, "%s/shared_cpu_list", dir) &&
			      fo_cpus_parse(text, &sharing);
		m->cache[i].level = (int)level;
		m->cache[i].shared = shared ? fo_cpus_count(&sharing) : -1;
		memcpy(m->cache[i].type, type, sizeof type);
		m->cache[i].bytes = (int64_t)size;
		m->caches = i + 1;
	}
}

static int64_t kib(const char *root, const char *key)
{
	double v = fo_state_field(root, "/proc/meminfo", key);
	return v <= 0x1p43 ? (int64_t)v * 1024 : -1;
}

/* "always [madvise] never": the one in brackets. */
static void read_thp(struct fo_machine *m, const char *root)
{
	char text[128];
	if (!fo_state_text(text, sizeof text, root, "/sys/kernel/mm/transparent_hugepage/enabled"))
		return;
	char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
	if (!close)
		return;
	*close = 0;
	fo_str_visible(m->thp, sizeof m->thp, open + 1);
}

static void read_clocks(struct fo_machine *m, const char *root)
{
	char text[64];
	if (fo_state_text(text, sizeof text, root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
		fo_str_visible(m->governor, sizeof m->governor, text);
	if (fo_state_text(text, sizeof text, root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"))
		fo_str_visible(m->driver, sizeof m->driver, text);
	m->min_hz = 1e3 * fo_state_number(root, "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_min_freq");
	m->max_hz = 1e3 * fo_state_number(root, "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
}

static void read_state(struct fo_machine *m, const char *root)
{
	struct fo_state s;
	char text[64];
	fo_state_read(&s, root);
	m->clock_hz = s.clock_hz;
	m->load = s.load;
	m->throttles = s.throttles;
	m->steal = s.cpu_ticks > 0 ? s.steal_ticks / s.cpu_ticks : NAN;
	m->energy = s.domains > 0;
	if (!m->energy)
		m->energy_why = fo_state_text(text, sizeof text, root, "/sys/class/powercap/intel-rapl:0/name")
					? "its counters may be read by root only"
					: "this machine shows no counters";
}

void fo_machine_read(struct fo_machine *m, const char *root)
{
	char text[1024];
	struct fo_cpus nodes;
	*m = (struct fo_machine){ .cpus = -1, .allowed = -1, .cores = -1, .sockets = -1, .nodes = -1 };
	read_cpuinfo(m, root);
	read_topology(m, root);
	if (fo_state_text(text, sizeof text, root, "/sys/devices/system/node/online") && fo_cpus_parse(text, &nodes) &&
	    fo_cpus_count(&nodes))
		m->nodes = fo_cpus_count(&nodes);
	read_caches(m, root);
	m->memory_bytes = kib(root, "MemTotal");
	m->available_bytes = kib(root, "MemAvailable");
	m->huge_page_bytes = kib(root, "Hugepagesize");
	read_thp(m, root);
	read_clocks(m, root);
	m->cpu_limit = fo_state_processors(root);
	read_state(m, root);
}

/* ---- as a record ---- */

#define CACHE(m, ...) FO_FIELD(struct fo_cache, m, __VA_ARGS__)
#define MACHINE(m, ...) FO_FIELD(struct fo_machine, m, __VA_ARGS__)
#define UNKNOWN_IF_NEGATIVE .flags = FO_NULLS, .absent = -1

static const struct fo_schema_field cache_field[] = {
	CACHE(level, "level", "", "1 is closest to the core"),
	CACHE(type, "type", "", "`Data`, `Instruction` or `Unified`", .flags = FO_NULLS),
	CACHE(bytes, "bytes", "B", "size"),
	CACHE(shared, "shared_by", "", "hardware threads that share it", UNKNOWN_IF_NEGATIVE),
};
static const struct fo_schema cache_schema = { "", "cache", FO_FIELDS(struct fo_cache, cache_field) };

static const struct fo_schema_field machine_field[] = {
	MACHINE(cpu, "cpu", "", "name of the processor", .flags = FO_NULLS),
	MACHINE(isa, "isa", "", "extensions that matter for matmuls", .flags = FO_NULLS),
	MACHINE(cpus, "cpus", "", "hardware threads online", UNKNOWN_IF_NEGATIVE),
	MACHINE(allowed, "allowed", "", "hardware threads that this process may use", UNKNOWN_IF_NEGATIVE),
	MACHINE(cores, "cores", "", "physical cores", UNKNOWN_IF_NEGATIVE),
	MACHINE(sockets, "sockets", "", "processor packages", UNKNOWN_IF_NEGATIVE),
	MACHINE(nodes, "numa_nodes", "", "memory nodes", UNKNOWN_IF_NEGATIVE),
	FO_FIELD_LIST(struct fo_machine, cache, caches, &cache_schema, "caches", "caches of the first processor",
		      .elements = FO_CACHES_MAX),
	MACHINE(memory_bytes, "memory_bytes", "B", "memory in all", UNKNOWN_IF_NEGATIVE),
	MACHINE(available_bytes, "available_bytes", "B", "memory that can be had without swapping",
		UNKNOWN_IF_NEGATIVE),
	MACHINE(thp, "transparent_huge_pages", "", "`always`, `madvise` or `never`", .flags = FO_NULLS),
	MACHINE(huge_page_bytes, "huge_page_bytes", "B", "size of a huge page", UNKNOWN_IF_NEGATIVE),
	MACHINE(clock_hz, "clock_hz", "Hz", "mean clock of the processors now"),
	MACHINE(min_hz, "min_hz", "Hz", "lowest clock"),
	MACHINE(max_hz, "max_hz", "Hz", "highest clock"),
	MACHINE(governor, "governor", "", "cpufreq governor", .flags = FO_NULLS),
	MACHINE(driver, "driver", "", "cpufreq driver", .flags = FO_NULLS),
	MACHINE(cpu_limit, "cpu_limit", "", "processors that the control group grants; null: no limit, or unknown"),
	MACHINE(throttles, "throttles", "", "thermal throttle events since the machine started"),
	MACHINE(load, "load", "", "load average over one minute"),
	MACHINE(steal, "steal", "share", "time that the hypervisor gave to others since the machine started"),
	MACHINE(energy, "energy_readable", "", "energy counters (RAPL) can be read"),
};
const struct fo_schema fo_machine_schema = { "machine", "machine", FO_FIELDS(struct fo_machine, machine_field) };
