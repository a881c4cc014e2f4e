/* The state of the machine from fake trees of /proc and /sys: real layouts, wrapped counters, hostile and missing
 * files. */
#include "base/fs.h"
#include "hw/state.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

static void put(const char *path, const char *text)
{
	char full[1200];
	snprintf(full, sizeof full, "%s%s", root, path);
	FILE *f = fopen(full, "w");
	if (!f) {
		char *slash = strrchr(full, '/');
		*slash = 0;
		if (fo_fs_mkdirs(full) != FO_OK)
			fail_msg("%s", fo_err_text());
		*slash = '/';
		f = fopen(full, "w");
	}
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}
static void take(const char *path)
{
	char full[512];
	snprintf(full, sizeof full, "%s%s", root, path);
	if (fo_fs_remove_tree(full) != FO_OK)
		fail_msg("%s", fo_err_text());
}

static int begin(void **state)
{
	(void)state;
	strcpy(root, "test_state.XXXXXX");
	return mkdtemp(root) ? 0 : 1;
}
static int end(void **state)
{
	(void)state;
	return fo_fs_remove_tree(root) == FO_OK ? 0 : 1;
}

/* Two sockets of two threads each; this process may use 1 to 3. */
static void build(void)
{
	static const char *const sib[] = { "0-1", "0-1", "2,3", "2-3" };
	char path[160];
	put("/proc/self/status", "Name:\tx\nCpus_allowed:\te\nCpus_allowed_list:\t1-3\nMems_allowed:\t1\n");
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/proc/self/smaps_rollup", "00-ff ---p 0 [rollup]\nAnonymous:  4000 kB\nAnonHugePages:  1000 kB\n");
	put("/proc/loadavg", "1.25 0.5 0.1 1/99 7\n");
	put("/proc/meminfo", "MemTotal:       8000000 kB\nMemAvailable:   6000000 kB\nHugepagesize:       2048 kB\n");
	put("/proc/cpuinfo",
	    "processor\t: 0\nmodel name\t: Some CPU @ 3GHz\ncpu MHz\t\t: 1000.000\nflags\t\t: fpu avx2 fma avx5 f16c "
	    "xavx512f\n\nprocessor\t: 1\nmodel name\t: Other\n");
	put("/proc/stat", "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1000 0 0 0 0 0 0 1000 0 0\ncpu1 10 0 10 70 0 0 0 10 0 0\n"
			  "cpu2 100 0 0 0 0 0 0 0 5 0\ncpu3 100 0 0 0 0 0 0 0 0 0\nintr 1 2 3\n");
	put("/sys/fs/cgroup/a/b/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n");
	put("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
	put("/sys/devices/system/cpu/online", "0-3\n");
	put("/sys/devices/system/node/online", "0-1\n");
	put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
	for (int i = 0; i < 4; i++) {
		char text[32];
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
		put(path, sib[i]);
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
		put(path, i < 2 ? "0\n" : "1\n");
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", i);
		snprintf(text, sizeof text, "%d\n", 1000000 * (i + 1));
		put(path, text);
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/thermal_throttle/core_throttle_count", i);
		put(path, i == 0 ? "50\n" : "2\n");
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/thermal_throttle/package_throttle_count", i);
		put(path, "10\n");
	}
	put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
	put("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_min_freq", "800000\n");
	put("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3000000\n");
	put("/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
	put("/sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n");
	put("/sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n");
	put("/sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list", "0-1\n");
	put("/sys/class/powercap/intel-rapl:0/name", "package-0\n");
	put("/sys/class/powercap/intel-rapl:0/energy_uj", "900\n");
	put("/sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000000000\n");
	put("/sys/class/powercap/intel-rapl:0:0/name", "core\n"); /* within the package: not added */
	put("/sys/class/powercap/intel-rapl:0:0/energy_uj", "5\n");
	put("/sys/class/powercap/intel-rapl:0:1/name", "dram\n");
	put("/sys/class/powercap/intel-rapl:0:1/energy_uj", "100\n");
	put("/sys/class/powercap/intel-rapl:0:1/max_energy_range_uj", "1000\n");
	put("/sys/class/powercap/intel-rapl:1/name", "psys\n"); /* contains the package: not added */
	put("/sys/class/powercap/intel-rapl:1/energy_uj", "7\n");
}

static void near(double got, double want) { assert_true(fabs(got - want) <= 1e-9 * fabs(want)); }

static void test_snapshot(void **state)
{
	struct fo_state s;
	(void)state;
	build();
	fo_state_read(&s, root);
	near(s.cpu_ticks, 300); /* processors 1 to 3, guest time not twice */
	near(s.steal_ticks, 10);
	near(s.clock_hz, 3e9);
	near(s.throttles, 2 + 2 + 2 + 10 + 10);
	near(s.limited_s, 2.5);
	near(s.load, 1.25);
	assert_int_equal(s.domains, 2);
	near(fo_state_huge_share(root), 0.25);
}

/* Without cpufreq: "cpu MHz" is a clock only where the system can read the counters of running cycles. */
static void test_clock_of_cpuinfo(void **state)
{
	static const char *const counters[] = { " aperfmperf", " hypervisor" };
	struct fo_state s;
	char text[4096], filler[1200];
	(void)state;
	memset(filler, 'f', sizeof filler - 1); /* real lists of flags are longer than most buffers */
	filler[sizeof filler - 1] = 0;
	put("/proc/self/status", "Cpus_allowed_list:\t0-1\n");
	put("/sys/devices/system/cpu/online", "0-1\n");
	for (int i = 0; i < 2; i++) {
		snprintf(text, sizeof text,
			 "processor\t: 0\ncpu MHz\t\t: 2000.000\nflags\t\t: fpu %s%s sse\n\n"
			 "processor\t: 1\ncpu MHz\t\t: 4000.000\nflags\t\t: fpu %s%s sse\n\n",
			 filler, counters[i], filler, counters[i]);
		put("/proc/cpuinfo", text);
		fo_state_read(&s, root);
		if (i)
			assert_true(isnan(s.clock_hz));
		else
			near(s.clock_hz, 3e9);
	}
}

static void test_between(void **state)
{
	struct fo_state a, b;
	(void)state;
	build();
	fo_state_read(&a, root);
	put("/proc/stat",
	    "cpu0 0 0 0 0 0 0 0 0\ncpu1 50 0 10 80 0 0 0 60\ncpu2 100 0 0 0 0 0 0 0\ncpu3 200 0 0 0 0 0 0 0\n");
	put("/sys/class/powercap/intel-rapl:0/energy_uj", "5000900\n");
	put("/sys/class/powercap/intel-rapl:0:1/energy_uj", "50\n"); /* wrapped: 1000 - 100 + 50 */
	put("/sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "5\n");
	put("/sys/fs/cgroup/a/b/cpu.stat", "throttled_usec 3000000\n");
	fo_state_read(&b, root);
	b.when_ns = a.when_ns + 2000000000;
	struct fo_state_use u = fo_state_between(&a, &b);
	near(u.seconds, 2);
	near(u.steal, 0.25);
	near(u.joules, 5 + 950e-6);
	near(u.throttles, 3);
	near(u.limited_s, 0.5);
	/* Counters that went back without a range, and ranges that changed, are no figures. */
	u = fo_state_between(&b, &a);
	assert_true(isnan(u.steal) && isnan(u.throttles) && isnan(u.limited_s));
	b.energy_range_uj[0]++;
	assert_true(isnan(fo_state_between(&a, &b).joules));
	b.energy_range_uj[0]--;
	b.energy_uj[0] = b.energy_range_uj[0] + 1;
	assert_true(isnan(fo_state_between(&a, &b).joules));
}

static void test_watch(void **state)
{
	struct fo_state_watch w;
	(void)state;
	build();
	fo_state_watch_start(&w, root);
	assert_true(isnan(fo_state_watch_total(&w).joules));
	/* Three times half the range: a difference of the first and the last would see half of it once. */
	for (int i = 1; i <= 3; i++) {
		put("/sys/class/powercap/intel-rapl:0:1/energy_uj", i % 2 ? "600\n" : "100\n");
		w.last.when_ns -= 1000000000;
		fo_state_watch_sample(&w);
	}
	struct fo_state_use u = fo_state_watch_total(&w);
	near(u.joules, 1500e-6);
	assert_true(u.seconds >= 3 && u.seconds < 300);
	near(u.clock_hz, 3e9);
	/* A part without a tick of the clock does not hide the steal of the whole. */
	assert_true(isnan(u.steal));
	put("/proc/stat",
	    "cpu0 0 0 0 0 0 0 0 0\ncpu1 50 0 10 80 0 0 0 60\ncpu2 100 0 0 0 0 0 0 0\ncpu3 200 0 0 0 0 0 0 0\n");
	fo_state_watch_sample(&w);
	assert_true(isnan(fo_state_watch_sample(&w).steal));
	near(fo_state_watch_total(&w).steal, 0.25);
	put("/sys/class/powercap/intel-rapl:0/energy_uj", "?\n");
	fo_state_watch_sample(&w);
	assert_true(isnan(fo_state_watch_total(&w).joules)); /* a hole is not a zero */
	near(fo_state_watch_total(&w).clock_hz, 3e9);
}

static void test_missing(void **state)
{
	struct fo_state s;
	struct fo_machine m;
	(void)state;
	fo_state_read(&s, root);
	assert_true(isnan(s.steal_ticks) && isnan(s.cpu_ticks) && isnan(s.clock_hz) && isnan(s.throttles));
	assert_true(isnan(s.limited_s) && isnan(s.load) && isnan(fo_state_huge_share(root)));
	assert_int_equal(s.domains, 0);
	fo_machine_read(&m, root);
	assert_true(m.cpus == -1 && m.allowed == -1 && m.cores == -1 && m.nodes == -1 && m.memory_bytes == -1);
	assert_true(!m.cpu[0] && !m.thp[0] && !m.caches && !m.energy && m.energy_why && isnan(m.cpu_limit));
	struct fo_str out = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &out, false);
	fo_json_object(&j, NULL);
	fo_schema_write_fields(&fo_machine_schema, &m, &j);
	struct fo_state_use u = fo_state_between(&s, &s);
	fo_schema_write_fields(&fo_state_use_schema, &u, &j);
	fo_json_close(&j);
	assert_non_null(strstr(out.data, "\"cpus\":null"));
	assert_non_null(strstr(out.data, "\"joules\":null"));
	assert_non_null(strstr(out.data, "\"steal\":null"));
	assert_null(strstr(out.data, "-1"));
	fo_str_fini(&out);
}

/* Each file in turn holds nonsense: its figure is unreadable, nothing crashes, the others stay. */
static void test_hostile(void **state)
{
	static const char *const file[] = { "/proc/stat",
					    "/proc/loadavg",
					    "/proc/cpuinfo",
					    "/proc/meminfo",
					    "/proc/self/status",
					    "/proc/self/cgroup",
					    "/proc/self/smaps_rollup",
					    "/sys/fs/cgroup/a/b/cpu.stat",
					    "/sys/fs/cgroup/a/b/cpu.max",
					    "/sys/devices/system/cpu/online",
					    "/sys/devices/system/node/online",
					    "/sys/kernel/mm/transparent_hugepage/enabled",
					    "/sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq",
					    "/sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count",
					    "/sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
					    "/sys/devices/system/cpu/cpu1/topology/physical_package_id",
					    "/sys/devices/system/cpu/cpu0/cache/index0/size",
					    "/sys/class/powercap/intel-rapl:0/name",
					    "/sys/class/powercap/intel-rapl:0/energy_uj",
					    "/sys/class/powercap/intel-rapl:0/max_energy_range_uj" };
	char *longest = malloc(300001);
	const char *const text[] = { "",
				     "-5\n",
				     "nan\n",
				     "inf\n",
				     "0x10\n",
				     "1e400\n",
				     "99999999999999999999999\n",
				     "cpu1 1 2\n",
				     "cpu1 1 2 x 4 5 6 7 8\n",
				     "0-4096\n",
				     "3-1\n",
				     "0-\n",
				     "\n\n\n",
				     "[",
				     "]\x1b[31m[",
				     "0::/../../etc\n",
				     "\xff\xfe:\n",
				     "Cpus_allowed_list:\n",
				     longest };
	(void)state;
	assert_non_null(longest);
	memset(longest, '9', 300000);
	longest[300000] = 0;
	for (size_t f = 0; f < sizeof file / sizeof *file; f++) {
		build();
		for (size_t t = 0; t < sizeof text / sizeof *text; t++) {
			struct fo_state s;
			struct fo_machine m;
			put(file[f], text[t]);
			fo_state_read(&s, root);
			fo_machine_read(&m, root);
			(void)fo_state_huge_share(root);
			assert_true(!(s.cpu_ticks < 0) && !(s.steal_ticks > s.cpu_ticks) && !(s.clock_hz <= 0) &&
				    !(s.throttles < 0) && !(s.limited_s < 0) && !(s.load < 0) && !isinf(s.load));
			assert_true(m.memory_bytes >= -1 && m.cpus <= FO_CPUS_MAX && m.cpus >= -1);
			assert_null(strchr(m.thp, '\x1b'));
			assert_null(strchr(m.cpu, '\x1b'));
		}
		take(file[f]);
	}
	/* Half of the packages is not the energy of the machine. */
	build();
	put("/sys/class/powercap/intel-rapl:0:1/energy_uj", "many\n");
	struct fo_state s;
	fo_state_read(&s, root);
	assert_int_equal(s.domains, 0);
	free(longest);
}

static void test_cgroup_v1(void **state)
{
	struct fo_state s;
	struct fo_machine m;
	(void)state;
	build();
	take("/sys/fs/cgroup/a");
	put("/proc/self/cgroup", "2:cpu:/\n1:name=systemd:/\n");
	put("/sys/fs/cgroup/cpu/cpu.stat", "nr_periods 1\nthrottled_time 1500000000\n");
	put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
	put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	fo_state_read(&s, root);
	near(s.limited_s, 1.5);
	fo_machine_read(&m, root);
	near(m.cpu_limit, 0.5);
	put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
	fo_machine_read(&m, root);
	assert_true(isnan(m.cpu_limit));
	/* Another namespace's path leads nowhere else. */
	put("/proc/self/cgroup", "0::/../outside\n");
	put("/sys/fs/outside/cpu.stat", "throttled_usec 9000000\n");
	fo_state_read(&s, root);
	near(s.limited_s, 1.5);
}

static void test_cgroup_memory(void **state)
{
	(void)state;
	char deep[900] = "/sys/fs/cgroup", file[1000];
	build();
	assert_true(isnan(fo_state_memory_room(root)));
	/* Version 2: the least of the whole path; what files' pages hold unused counts as free. */
	put("/proc/self/cgroup", "0::/a/b/c\n");
	put("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/c/memory.current", "1000\n");
	assert_true(isnan(fo_state_memory_room(root)));
	put("/sys/fs/cgroup/a/memory.max", "9000\n");
	put("/sys/fs/cgroup/a/memory.current", "3000\n");
	near(fo_state_memory_room(root), 6000);
	put("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 500\nactive_file 7\n");
	near(fo_state_memory_room(root), 6500);
	put("/sys/fs/cgroup/a/b/memory.max", "8000\n"); /* used: not told */
	near(fo_state_memory_room(root), 6500);
	put("/sys/fs/cgroup/a/b/c/memory.max", "5000\n");
	near(fo_state_memory_room(root), 4000);
	put("/sys/fs/cgroup/a/b/memory.high", "3500\n");
	near(fo_state_memory_room(root), 3500);
	put("/sys/fs/cgroup/memory.max", "100\n"); /* in a container the top may be the group itself */
	near(fo_state_memory_room(root), 100);
	put("/sys/fs/cgroup/memory.current", "200\n");
	near(fo_state_memory_room(root) + 1, 1);
	/* A path of another namespace: only the top is ours. */
	put("/proc/self/cgroup", "0::/../../a/b/c\n");
	put("/sys/fs/cgroup/memory.max", "70000\n");
	near(fo_state_memory_room(root), 70000 - 200);
	/* Deeper than any buffer of a few hundred bytes. */
	put("/proc/self/cgroup", "");
	for (int i = 0; i < 8; i++) {
		size_t n = strlen(deep);
		snprintf(deep + n, sizeof deep - n, "/pod-%d-of-some-deployment-with-a-name-of-64-bytes-and-a-hash-%d",
			 i, i);
	}
	snprintf(file, sizeof file, "0::%s\n", deep + strlen("/sys/fs/cgroup"));
	put("/proc/self/cgroup", file);
	snprintf(file, sizeof file, "%s/memory.max", deep);
	put(file, "777\n");
	near(fo_state_memory_room(root), 777);
}

static void test_cgroup_memory_v1(void **state)
{
	(void)state;
	build();
	put("/proc/self/cgroup",
	    "12:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/abc\n1:name=systemd:/s\n0::/user.slice\n");
	put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
	assert_true(isnan(fo_state_memory_room(root)));
	put("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "4000\n");
	put("/sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "1500\n");
	put("/sys/fs/cgroup/memory/docker/memory.stat", "cache 900\ninactive_file 1\ntotal_inactive_file 500\n");
	near(fo_state_memory_room(root), 3000);
	put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "2000\n");
	near(fo_state_memory_room(root), 2000);
	/* Version 2's files beside it say nothing about memory here. */
	put("/sys/fs/cgroup/user.slice/memory.max", "1\n");
	near(fo_state_memory_room(root), 2000);
	/* A container without a namespace of its own: the path is the host's, the mount's top is the group. */
	put("/proc/self/cgroup", "4:memory:/docker/elsewhere\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1234\n");
	near(fo_state_memory_room(root), 1234);
	put("/proc/self/cgroup", "garbage\n:\n::\n4:memory\n");
	near(fo_state_memory_room(root), 1234);
}

/* A quota above the own group binds as well. */
static void test_cgroup_processors(void **state)
{
	struct fo_machine m;
	(void)state;
	build();
	near(fo_state_processors(root), 1.5);
	put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
	near(fo_state_processors(root), 0.5);
	put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
	near(fo_state_processors(root), 1.5);
	put("/proc/self/cgroup", "3:cpu,cpuacct:/x/y\n");
	assert_true(isnan(fo_state_processors(root)));
	put("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000\n");
	put("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
	fo_machine_read(&m, root);
	near(m.cpu_limit, 3);
}

static void test_machine(void **state)
{
	struct fo_machine m;
	(void)state;
	build();
	fo_machine_read(&m, root);
	assert_string_equal(m.cpu, "Some CPU @ 3GHz");
	assert_string_equal(m.isa, "avx2 fma f16c");
	assert_int_equal(m.cpus, 4);
	assert_int_equal(m.allowed, 3);
	assert_int_equal(m.cores, 2);
	assert_int_equal(m.sockets, 2);
	assert_int_equal(m.nodes, 2);
	assert_int_equal(m.caches, 1);
	assert_int_equal(m.cache[0].bytes, 32768);
	assert_int_equal(m.cache[0].shared, 2);
	assert_true(m.memory_bytes == 8000000 * (int64_t)1024 && m.available_bytes == 6000000 * (int64_t)1024);
	assert_true(m.huge_page_bytes == 2 << 20);
	assert_string_equal(m.thp, "madvise");
	assert_string_equal(m.governor, "performance");
	near(m.min_hz, 8e8);
	near(m.max_hz, 3e9);
	near(m.cpu_limit, 1.5);
	assert_true(m.energy);
	put("/proc/cpuinfo",
	    "processor\t: 0\nFeatures\t: fp asimd sve2\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n");
	fo_machine_read(&m, root);
	assert_string_equal(m.cpu, "implementer 0x41, part 0xd4f");
	assert_string_equal(m.isa, "asimd sve2");
}

static void test_lists(void **state)
{
	struct fo_cpus s;
	(void)state;
	assert_true(fo_cpus_parse("0-2,5,4095\n", &s));
	assert_int_equal(fo_cpus_count(&s), 5);
	assert_true(fo_cpus_have(&s, 4095) && fo_cpus_have(&s, 2) && !fo_cpus_have(&s, 3) && !fo_cpus_have(&s, -1));
	assert_true(fo_cpus_parse("", &s) && fo_cpus_count(&s) == 0);
	static const char *const bad[] = { "4096", "1-", "-1", "2-1", "a", "1,,2", "1;2", "18446744073709551617" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		if (fo_cpus_parse(bad[i], &s))
			fail_msg("'%s' was taken for a list of processors", bad[i]);
		assert_int_equal(fo_cpus_count(&s), 0);
	}
}

/* This machine: whatever can be read is sane, and a snapshot is cheap. */
static void test_here(void **state)
{
	struct fo_state_watch w;
	(void)state;
	fo_state_watch_start(&w, "");
	usleep(20000);
	struct fo_state_use u = fo_state_watch_sample(&w);
	assert_true(u.seconds >= 0.02 && u.seconds < 600);
	assert_true(isnan(u.steal) || (u.steal >= 0 && u.steal <= 1));
	assert_true(isnan(u.clock_hz) || (u.clock_hz > 1e8 && u.clock_hz < 1e10));
	assert_true(isnan(u.joules) || u.joules >= 0);
	print_message("clock %.3g Hz, steal %.3g, joules %.3g\n", u.clock_hz, u.steal, u.joules);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_snapshot, begin, end),
		cmocka_unit_test_setup_teardown(test_clock_of_cpuinfo, begin, end),
		cmocka_unit_test_setup_teardown(test_between, begin, end),
		cmocka_unit_test_setup_teardown(test_watch, begin, end),
		cmocka_unit_test_setup_teardown(test_missing, begin, end),
		cmocka_unit_test_setup_teardown(test_hostile, begin, end),
		cmocka_unit_test_setup_teardown(test_cgroup_v1, begin, end),
		cmocka_unit_test_setup_teardown(test_cgroup_memory, begin, end),
		cmocka_unit_test_setup_teardown(test_cgroup_memory_v1, begin, end),
		cmocka_unit_test_setup_teardown(test_cgroup_processors, begin, end),
		cmocka_unit_test_setup_teardown(test_machine, begin, end),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_here),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
