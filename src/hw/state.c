#include "hw/state_int.h"

#include "base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = FO_CGROUP_PATH + 256, SMALL = 4096 };

bool fo_cpus_parse(const char *text, struct fo_cpus *set)
{
	struct fo_cpus s = { { 0 } };
	*set = s;
	while (*text && !isspace((unsigned char)*text)) {
		char *end;
		if (!isdigit((unsigned char)*text))
			return false;
		unsigned long from = strtoul(text, &end, 10), to = from;
		if (*end == '-') {
			if (!isdigit((unsigned char)end[1]))
				return false;
			to = strtoul(end + 1, &end, 10);
		}
		if (from > to || to >= FO_CPUS_MAX || (*end && *end != ',' && !isspace((unsigned char)*end)))
			return false;
		for (unsigned long i = from; i <= to; i++)
			fo_cpus_add(&s, (int)i);
		text = end + (*end == ',');
	}
	*set = s;
	return true;
}

int fo_cpus_count(const struct fo_cpus *set)
{
	int n = 0;
	for (int i = 0; i < FO_CPUS_MAX / 64; i++)
		n += __builtin_popcountll(set->word[i]);
	return n;
}

int fo_cpus_first(const struct fo_cpus *set)
{
	int cpu = 0;
	while (cpu < FO_CPUS_MAX && !fo_cpus_have(set, cpu))
		cpu++;
	return cpu;
}

void fo_cpus_text(const struct fo_cpus *set, char *buf, size_t size)
{
	enum { ROOM = 16 }; /* ",4095-4095" and "..." */
	size_t n = 0;
	buf[0] = 0;
	for (int cpu = 0; cpu < FO_CPUS_MAX; cpu++) {
		if (!fo_cpus_have(set, cpu))
			continue;
		int to = cpu;
		while (fo_cpus_have(set, to + 1))
			to++;
		if (n + ROOM > size) {
			snprintf(buf + n, size - n, "%.*s", (int)(size - n - 1), "...");
			return;
		}
		n += (size_t)snprintf(buf + n, size - n, "%s%d", n ? "," : "", cpu);
		if (to > cpu)
			n += (size_t)snprintf(buf + n, size - n, "-%d", to);
		cpu = to;
	}
}

bool fo_state_allowed(const char *root, struct fo_cpus *set)
{
	static const char key[] = "\nCpus_allowed_list:";
	char text[2 * SMALL];
	if (fo_state_text(text, sizeof text, root, "/proc/self/status")) {
		const char *p = strstr(text, key);
		p = p ? p + sizeof key - 1 : "";
		while (*p == ' ' || *p == '\t')
			p++;
		if (fo_cpus_parse(p, set) && fo_cpus_count(set))
			return true;
	}
	return fo_state_text(text, sizeof text, root, "/sys/devices/system/cpu/online") && fo_cpus_parse(text, set) &&
	       fo_cpus_count(set);
}

/* ---- a snapshot ---- */

/* /proc/stat, "cpuN user nice system idle iowait irq softirq steal ...": guest time is part of user, so eight columns
 * are all. */
static void read_steal(struct fo_state *s, const char *root, const struct fo_cpus *cpus)
{
	char path[PATH_BYTES], line[512];
	double all = 0, steal = 0;
	int seen = 0, n = snprintf(path, sizeof path, "%s/proc/stat", root);
	FILE *f = n >= 0 && n < (int)sizeof path ? fopen(path, "re") : NULL;
	while (f && fgets(line, sizeof line, f) && !strncmp(line, "cpu", 3)) {
		char *end;
		if (!isdigit((unsigned char)line[3]))
			continue; /* the sum of all */
		unsigned long cpu = strtoul(line + 3, &end, 10);
		if (cpu >= FO_CPUS_MAX || !fo_cpus_have(cpus, (int)cpu))
			continue;
		double v = 0, sum = 0;
		const char *p = end;
		for (int col = 0; col < 8; col++) {
			while (*p == ' ')
				p++;
			sum += v = fo_state_number_at(p, &p);
			if (isnan(v))
				break;
		}
		if (isnan(sum)) {
			seen = 0;
			break;
		}
		all += sum;
		steal += v;
		seen++;
	}
	if (f)
		fclose(f);
	s->cpu_ticks = seen ? all : NAN;
	s->steal_ticks = seen ? steal : NAN;
}

/* cpufreq where there is one; else "cpu MHz" of /proc/cpuinfo, for processors whose counters of running cycles the
 * system can read (aperfmperf). Without them, as in most virtual machines, that line holds the nominal frequency
 * whatever the clock does. */
static double read_clock(const char *root, const struct fo_cpus *cpus)
{
	double sum = 0;
	int n = 0;
	for (int cpu = 0; cpu < FO_CPUS_MAX; cpu++) {
		if (!fo_cpus_have(cpus, cpu))
			continue;
		double khz = fo_state_number(root, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", cpu);
		if (isnan(khz))
			break;
		sum += khz * 1e3;
		n++;
	}
	if (n && n == fo_cpus_count(cpus))
		return sum / n;
	char path[PATH_BYTES], line[8192]; /* flags take some 2,000 characters */
	int len = snprintf(path, sizeof path, "%s/proc/cpuinfo", root), cpu = -1;
	FILE *f = len >= 0 && len < (int)sizeof path ? fopen(path, "re") : NULL;
	double mhz = 0; /* of the processor whose flags follow */
	sum = 0;
	n = 0;
	while (f && fgets(line, sizeof line, f)) {
		char *colon = strchr(line, ':');
		if (!colon)
			continue;
		const char *p = colon + 1 + (colon[1] == ' ');
		if (!strncmp(line, "processor", 9)) {
			cpu = isdigit((unsigned char)*p) ? atoi(p) : -1;
			mhz = 0;
		} else if (!strncmp(line, "cpu MHz", 7)) {
			mhz = fo_state_number_at(p, NULL);
		} else if (!strncmp(line, "flags", 5) && mhz > 0 && fo_cpus_have(cpus, cpu) &&
			   strstr(p, " aperfmperf")) {
			sum += mhz * 1e6;
			n++;
		}
	}
	if (f)
		fclose(f);
	return n && sum > 0 ? sum / n : NAN;
}

/* Cores count their own events, a package's stand with each of its processors: the largest is taken once per package.
 */
static double read_throttles(const char *root, const struct fo_cpus *cpus)
{
	enum { PACKAGES = 64 };
	double sum = 0, package[PACKAGES] = { 0 };
	bool seen = false;
	for (int cpu = 0; cpu < FO_CPUS_MAX; cpu++) {
		if (!fo_cpus_have(cpus, cpu))
			continue;
		double core = fo_state_number(
			root, "/sys/devices/system/cpu/cpu%d/thermal_throttle/core_throttle_count", cpu);
		if (isnan(core))
			return NAN;
		double own = fo_state_number(
			root, "/sys/devices/system/cpu/cpu%d/thermal_throttle/package_throttle_count", cpu);
		double id = fo_state_number(root, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
		int at = id < PACKAGES ? (int)id : 0;
		if (own > package[at])
			package[at] = own;
		sum += core;
		seen = true;
	}
	for (int i = 0; i < PACKAGES; i++)
		sum += package[i];
	return seen ? sum : NAN;
}

/* powercap: a domain per package, below it parts; DRAM is a part that the package does not contain. All or nothing: a
 * sum without one of the packages would be wrong without looking so. */
static void read_energy(struct fo_state *s, const char *root)
{
	enum { ZONES = 16, PARTS = 8 };
	for (int zone = 0; zone < ZONES; zone++)
		for (int part = -1; part < PARTS; part++) {
			char dir[96], name[64];
			if (part < 0)
				snprintf(dir, sizeof dir, "/sys/class/powercap/intel-rapl:%d", zone);
			else
				snprintf(dir, sizeof dir, "/sys/class/powercap/intel-rapl:%d:%d", zone, part);
			if (!fo_state_text(name, sizeof name, root, "%s/name", dir)) {
				if (part < 0)
					return;
				break;
			}
			if (part < 0 ? strncmp(name, "package", 7) != 0 : strcmp(name, "dram") != 0)
				continue;
			double uj = fo_state_number(root, "%s/energy_uj", dir),
			       range = fo_state_number(root, "%s/max_energy_range_uj", dir);
			if (isnan(uj) || isnan(range) || range <= 0 || s->domains == FO_ENERGY_DOMAINS) {
				s->domains = 0;
				return;
			}
			s->energy_uj[s->domains] = (uint64_t)uj;
			s->energy_range_uj[s->domains++] = (uint64_t)range;
		}
}

/* v2: throttled_usec; v1: throttled_time in nanoseconds. */
static double read_limited(const char *root)
{
	char text[SMALL];
	if (!fo_state_cgroup(text, sizeof text, root, "cpu", "cpu.stat", "cpu.stat"))
		return NAN;
	double us = fo_state_field_in(text, "throttled_usec");
	return isnan(us) ? fo_state_field_in(text, "throttled_time") * 1e-9 : us * 1e-6;
}

void fo_state_read(struct fo_state *s, const char *root)
{
	struct fo_cpus cpus;
	char text[128];
	*s = (struct fo_state){ .when_ns = fo_now_ns(),
				.steal_ticks = NAN,
				.cpu_ticks = NAN,
				.clock_hz = NAN,
				.throttles = NAN,
				.load = NAN };
	if (fo_state_allowed(root, &cpus)) {
		read_steal(s, root, &cpus);
		s->clock_hz = read_clock(root, &cpus);
		s->throttles = read_throttles(root, &cpus);
	}
	s->limited_s = read_limited(root);
	if (fo_state_text(text, sizeof text, root, "/proc/loadavg"))
		s->load = fo_state_number_at(text, NULL);
	read_energy(s, root);
}

/* ---- between snapshots ---- */

static double grown(double from, double to) { return to >= from ? to - from : NAN; }

static double energy_between(const struct fo_state *a, const struct fo_state *b)
{
	double joules = 0;
	if (!a->domains || a->domains != b->domains)
		return NAN;
	for (int i = 0; i < a->domains; i++) {
		uint64_t from = a->energy_uj[i], to = b->energy_uj[i], range = b->energy_range_uj[i];
		if (range != a->energy_range_uj[i] || from > range || to > range)
			return NAN;
		/* The counter goes from `range` to 0: once, as long as snapshots are closer than it takes to fill
		 * (Intel states 60 s under load as the shortest; powercap widens it to minutes). */
		joules += (double)(to >= from ? to - from : range - from + to) * 1e-6;
	}
	return joules;
}

struct fo_state_use fo_state_between(const struct fo_state *a, const struct fo_state *b)
{
	double ticks = grown(a->cpu_ticks, b->cpu_ticks), stolen = grown(a->steal_ticks, b->steal_ticks);
	return (struct fo_state_use){
		.seconds = (double)(b->when_ns - a->when_ns) * 1e-9,
		.steal = ticks > 0 && stolen <= ticks ? stolen / ticks : NAN, /* idle and iowait may go back */
		.clock_hz = (a->clock_hz + b->clock_hz) / 2,
		.throttles = grown(a->throttles, b->throttles),
		.limited_s = grown(a->limited_s, b->limited_s),
		.joules = energy_between(a, b),
		.load = b->load,
	};
}

void fo_state_watch_start(struct fo_state_watch *w, const char *root)
{
	*w = (struct fo_state_watch){ .root = root };
	fo_state_read(&w->first, root);
	w->last = w->first;
}

struct fo_state_use fo_state_watch_sample(struct fo_state_watch *w)
{
	struct fo_state now;
	fo_state_read(&now, w->root);
	struct fo_state_use u = fo_state_between(&w->last, &now), *s = &w->sum;
	w->last = now;
	w->parts++;
	/* One part that could not be read makes its sum unreadable: NAN stays. */
	s->seconds += u.seconds;
	s->clock_hz += u.clock_hz * u.seconds;
	s->throttles += u.throttles;
	s->limited_s += u.limited_s;
	s->joules += u.joules;
	s->load = u.load;
	return u;
}

struct fo_state_use fo_state_watch_total(const struct fo_state_watch *w)
{
	struct fo_state_use u = w->sum;
	if (!w->parts || !(u.seconds > 0))
		return (struct fo_state_use){ 0, NAN, NAN, NAN, NAN, NAN, NAN };
	/* Not summed from parts: of a part shorter than the clock's tick (10 ms) nothing is known, of the whole it is.
	 */
	u.steal = fo_state_between(&w->first, &w->last).steal;
	u.clock_hz /= u.seconds;
	return u;
}

const char *fo_state_others_text(double load, int64_t processors, int64_t threads, char buf[96])
{
	if (!fo_state_others_ran(load, processors, threads))
		return NULL;
	snprintf(buf, 96, "load %.1f on %lld %s: other programs ran too", load, (long long)processors,
		 fo_word(processors, "processor", "processors"));
	return buf;
}

#define USE(m, key, unit, means, most) \
	FO_FIELD(struct fo_state_use, m, key, unit, means, .flags = FO_NEEDED | FO_NULLS, .high = (most))

static const struct fo_schema_field use_field[] = {
	FO_FIELD(struct fo_state_use, seconds, "seconds", "s", "how long it was watched", .flags = FO_NEEDED,
		 .high = 1e9),
	USE(steal, "steal", "share", "time of the processors that the hypervisor gave to others", 1),
	USE(clock_hz, "clock_hz", "Hz", "mean clock of the processors", 1e21),
	USE(throttles, "throttles", "", "thermal throttle events", 1e24),
	USE(limited_s, "limited_seconds", "s", "the control group's processor limit held the process back", 1e24),
	USE(joules, "joules", "J", "energy of packages and DRAM, everything that ran on them included", 1e24),
	USE(load, "load", "", "load average over one minute, at the end", 1e24),
};
const struct fo_schema fo_state_use_schema = { "", "state of a machine", FO_FIELDS(struct fo_state_use, use_field) };

double fo_state_huge_share(const char *root)
{
	double all = fo_state_field(root, "/proc/self/smaps_rollup", "Anonymous"),
	       huge = fo_state_field(root, "/proc/self/smaps_rollup", "AnonHugePages");
	return all > 0 && huge <= all ? huge / all : NAN;
}
