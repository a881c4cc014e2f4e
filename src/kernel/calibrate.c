#define _GNU_SOURCE /* sched_getaffinity */
#include "kernel/calibrate.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "kernel/kernel.h"

#include <ctype.h>
#include <jansson.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define BURST_NS \
	500000 /* long enough that starting together costs little, short enough to fall between neighbours' loads */
#define MAX_BURSTS 4096
/* A burst is clean when every thread had its processor for at least this share of it. Fewer clean bursts than ENOUGH and the
 * machine was too busy to tell its peak: the result is used, with a warning in its source, but not kept. */
#define CLEAN 0.97
#define ENOUGH 20
#define REFRESH_SECONDS 0.2 /* a kept peak is looked at again: it may only rise */
#define METHOD "register-only loop, random data, all threads at once, best of 0.5 ms bursts"

void fo_cpu_name(char *buf, size_t size)
{
	snprintf(buf, size, "unknown processor");
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256];
	while (f && fgets(line, sizeof line, f)) {
		char *colon = strchr(line, ':');
		if (strncmp(line, "model name", 10) || !colon)
			continue;
		line[strcspn(line, "\n")] = 0;
		fo_str_visible(buf, size, colon + 2);
		break;
	}
	if (f)
		fclose(f);
}

/* Container limit: cgroup v2 "quota period" in microseconds; "max" means none. */
static int cgroup_threads(void)
{
	FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
	long long quota, period;
	int n = 0;
	if (f && fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
		n = (int)((quota + period - 1) / period);
	if (f)
		fclose(f);
	return n;
}

int fo_cpu_threads(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1, limit = cgroup_threads();
	return limit > 0 && limit < n ? limit : n > 0 ? n : 1;
}

/* ---- measuring ---- */

static int64_t tune(const struct fo_kernel_set *set, int dtype)
{
	int64_t n = 1000;
	for (;;) {
		int64_t t0 = fo_now_ns();
		set->peak_burst(dtype, n);
		int64_t t = fo_now_ns() - t0;
		if (t > BURST_NS / 4 || n > (int64_t)1 << 40)
			return t > 0 ? (int64_t)((double)n * BURST_NS / (double)t) + 1 : n;
		n *= 4;
	}
}

static int64_t thread_cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double burst(const struct fo_kernel_set *set, int dtype, int threads, int64_t n, bool *clean)
{
	double flop = 0, share = 1;
	int64_t first = INT64_MAX, last = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flop) reduction(min : first, share) reduction(max : last)
	{
		set->peak_burst(dtype, n / 20 + 1); /* wakes the unit before the clock starts */
#pragma omp barrier
		int64_t cpu = thread_cpu_ns();
		first = fo_now_ns();
		flop = set->peak_burst(dtype, n);
		last = fo_now_ns();
		share = (double)(thread_cpu_ns() - cpu) / (double)(last - first);
	}
	*clean = share >= CLEAN;
	return flop / ((double)(last - first) * 1e-9);
}

static void measure(const struct fo_kernel_set *set, int dtype, int threads, double seconds, struct fo_calibration *out)
{
	int64_t n = tune(set, dtype), begin = fo_now_ns();
	double *rate = fo_xmalloc(MAX_BURSTS * sizeof *rate), best = 0;
	int count = 0, clean = 0;
	for (; count < MAX_BURSTS; count++) {
		/* A busy machine gets four times as long. */
		double spent = (double)(fo_now_ns() - begin) * 1e-9;
		bool quiet;
		if (count && spent > (clean >= ENOUGH ? 1 : 4) * seconds)
			break;
		rate[count] = burst(set, dtype, threads, n, &quiet);
		clean += quiet;
		if (rate[count] > best)
			best = rate[count];
	}
	if (best > out->best_flop_s) {
		out->best_flop_s = best;
		out->median_flop_s = fo_stats_median(rate, (size_t)count);
		out->bursts = count;
		out->clean_bursts = clean;
		snprintf(out->set, sizeof out->set, "%s", set->name);
	}
	free(rate);
}

static void measure_all(int dtype, int threads, double seconds, struct fo_calibration *c)
{
	for (int i = 0; i < FO_ISA_COUNT; i++)
		if (fo_kernel_sets[i] && fo_kernel_sets[i]->peak_burst && fo_kernel_sets[i]->have())
			measure(fo_kernel_sets[i], dtype, threads, seconds, c);
}

/* ---- the cache ---- */

static fo_status cache_path(struct fo_arena *a, const struct fo_calibration *c, char **path)
{
	const char *dir = getenv("FLATOUT_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char *base = dir && *dir   ? fo_arena_strdup(a, dir)
		     : xdg && *xdg ? fo_arena_printf(a, "%s/flatout", xdg)
				   : fo_arena_printf(a, "%s/.cache/flatout", home && *home ? home : "/tmp");
	FO_TRY(fo_fs_mkdirs(base));
	unsigned h = (unsigned)XXH3_64bits(c->cpu, strlen(c->cpu));
	*path = fo_arena_printf(a, "%s/peak-%08x-%d-%s.json", base, h, c->threads, c->dtype);
	return FO_OK;
}

static bool cache_read(const char *path, struct fo_calibration *c)
{
	json_t *j = json_load_file(path, 0, NULL);
	const char *cpu = json_string_value(json_object_get(j, "cpu")),
		   *set = json_string_value(json_object_get(j, "set")),
		   *date = json_string_value(json_object_get(j, "date")),
		   *method = json_string_value(json_object_get(j, "method"));
	double best = json_number_value(json_object_get(j, "best_flop_s")),
	       median = json_number_value(json_object_get(j, "median_flop_s"));
	/* Anything odd, or another method: measure again. */
	bool good = cpu && set && date && method && !strcmp(cpu, c->cpu) && !strcmp(method, c->method) && best > 1e6 &&
		    best < 1e18 && median > 0 && median <= best;
	if (good) {
		c->best_flop_s = best;
		c->median_flop_s = median;
		c->bursts = c->clean_bursts = (int)json_integer_value(json_object_get(j, "bursts"));
		snprintf(c->set, sizeof c->set, "%s", set);
		fo_str_visible(c->date, sizeof c->date, date);
	}
	json_decref(j);
	return good;
}

static fo_status cache_write(const char *path, const struct fo_calibration *c)
{
	struct fo_str s = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &s, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_text(&j, "cpu", c->cpu);
	fo_json_int(&j, "threads", c->threads);
	fo_json_text(&j, "dtype", c->dtype);
	fo_json_text(&j, "set", c->set);
	fo_json_real(&j, "best_flop_s", c->best_flop_s);
	fo_json_real(&j, "median_flop_s", c->median_flop_s);
	fo_json_int(&j, "bursts", c->bursts);
	fo_json_text(&j, "date", c->date);
	fo_json_text(&j, "method", c->method);
	fo_json_close(&j);
	fo_str_puts(&s, "\n");
	fo_status st = fo_fs_write_atomic(path, s.data, s.len);
	fo_str_fini(&s);
	return st;
}

fo_status fo_calibrate_peak(int dtype, int threads, double seconds, bool fresh, struct fo_calibration *out)
{
	struct fo_calibration c = { .threads = threads };
	struct fo_arena a = { 0 };
	char *path = NULL;
	fo_cpu_name(c.cpu, sizeof c.cpu);
	snprintf(c.dtype, sizeof c.dtype, "%s", fo_dtype_name[dtype]);
	snprintf(c.method, sizeof c.method, "%s", METHOD);
	/* Without a cache (read-only home) the peak is measured each time: slower, not wrong. */
	if (cache_path(&a, &c, &path) != FO_OK)
		path = NULL;
	fo_status st = FO_OK;
	bool kept = !fresh && path && cache_read(path, &c);
	double before = c.best_flop_s;
	measure_all(dtype, threads, kept ? REFRESH_SECONDS : seconds, &c);
	if (c.best_flop_s <= 0)
		st = fo_fail(FO_EUNSUPPORTED, "no kernel set has a register-only loop for this processor, so its peak "
					      "is unknown and there is no MFU");
	if (st == FO_OK && (!kept || c.best_flop_s > before)) {
		fo_clock_utc(c.date);
		if (path && c.clean_bursts >= ENOUGH && cache_write(path, &c) != FO_OK)
			fo_err_clear(); /* no cache: measured again next time */
	}
	fo_arena_fini(&a);
	if (st == FO_OK)
		*out = c;
	return st;
}

void fo_calibration_peak(const struct fo_calibration *c, struct fo_peak *peak)
{
	*peak = (struct fo_peak){ .flop_s = c->best_flop_s, .median_flop_s = c->median_flop_s };
	snprintf(peak->dtype, sizeof peak->dtype, "%s", c->dtype);
	snprintf(peak->source, sizeof peak->source,
		 "measured on this machine %.10s: %s loop, %d thread%s, best of %d bursts%s", c->date, c->set,
		 c->threads, c->threads == 1 ? "" : "s", c->bursts,
		 c->clean_bursts < ENOUGH ? " (machine too busy: may be low)" : "");
}

/* ---- reading memory ---- */

size_t fo_cpu_cache_bytes(void)
{
	long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
	return l3 > 0 ? (size_t)l3 : (size_t)32 << 20;
}

typedef uint64_t word4 __attribute__((vector_size(32)));

/* Four streams: one alone waits for its prefetcher (measured on Zen 3: 11 GB/s with one, 25 with four), and additions never wait
 * for each other. */
static uint64_t read_part(const word4 *p, size_t n)
{
	word4 sum[4] = { { 0 } };
	size_t quarter = n / 4;
	for (size_t i = 0; i + 2 <= quarter; i += 2)
		for (size_t k = 0; k < 4; k++)
			sum[k] += p[k * quarter + i] + p[k * quarter + i + 1];
	word4 s = sum[0] + sum[1] + sum[2] + sum[3];
	return s[0] + s[1] + s[2] + s[3];
}

double fo_calibrate_read(int threads)
{
	enum { PASSES = 6 };
	size_t bytes = 4 * fo_cpu_cache_bytes();
	void *memory;
	if (bytes < (size_t)128 << 20)
		bytes = (size_t)128 << 20;
	if (fo_pages_new(bytes, &memory) != FO_OK) {
		fo_err_clear();
		return 0;
	}
	volatile uint64_t seen = 0; /* somebody might look at it */
	double best = 0;
	for (int pass = -1; pass < PASSES; pass++) { /* the first one touches the pages */
		uint64_t sum = 0;
		int64_t t0 = fo_now_ns();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
		{
			size_t n = bytes / sizeof(word4) / (size_t)omp_get_num_threads();
			word4 *mine = (word4 *)memory + n * (size_t)omp_get_thread_num();
			if (pass < 0)
				memset(mine, 1, n * sizeof(word4));
			else
				sum = read_part(mine, n);
		}
		double rate = (double)bytes / ((double)(fo_now_ns() - t0) * 1e-9);
		seen = seen + sum;
		if (pass >= 0 && rate > best)
			best = rate;
	}
	fo_pages_free(memory, bytes);
	return best;
}
