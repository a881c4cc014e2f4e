/* NVML through a library of our own (tests/preload/nvml.c): units, what is not readable, reasons in words, means over a
 * time. The library is loaded once per process, so each test is a child. */
#include "hw/nvml.h"

#include "base/str.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* In a child with these variables ("NAME=VALUE", NULL at the end): the function says whether it is right. */
#define in_child(fn, ...) child(fn, #fn, __VA_ARGS__)
static void child(bool (*fn)(void), const char *name, const char *const *set)
{
	const char *library = getenv("FLATOUT_FAKE_NVML");
	if (!library)
		skip();
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		setenv("FLATOUT_NVML", library, 1);
		for (int i = 0; set[i]; i++)
			putenv((char *)(uintptr_t)set[i]);
		_exit(fn() ? 0 : 1);
	}
	int st = 1;
	assert_int_equal(waitpid(pid, &st, 0), pid);
	if (st)
		fail_msg("%s", name);
}

static bool reads(void)
{
	struct fo_nvml_library l;
	struct fo_nvml_now n;
	fo_nvml_device d = fo_nvml_find("0000:1b:00.0");
	fo_nvml_read(d, &n);
	return fo_nvml_library(&l) && !strcmp(l.driver, "580.65.06") && !strcmp(l.version, "13.580.65.06") && !*l.why &&
	       d && !fo_nvml_find("0000:1c:00.0") && n.power_w == 698.5 && n.limit_w == 700 &&
	       fabs(n.energy_j - 1070) < 1e-9 && n.sm_hz == 1376e6 && n.sm_max_hz == 1980e6 && n.memory_hz == 3201e6 &&
	       n.temperature_c == 61 && n.busy == 0.97 && n.reasons == 4 && n.memory_used_bytes == 1 << 30 &&
	       n.memory_bytes == 150754820096;
}

static bool reads_nothing(void)
{
	struct fo_nvml_now n;
	fo_nvml_read(fo_nvml_find("0000:1b:00.0"), &n);
	return isnan(n.power_w) && isnan(n.energy_j) && isnan(n.sm_hz) && n.reasons == -1 && n.limit_w == 700;
}

static bool does_not_start(void)
{
	struct fo_nvml_library l;
	return !fo_nvml_library(&l) && strstr(l.why, "Driver Not Loaded") && !fo_nvml_find("0000:1b:00.0") &&
	       !fo_nvml_watch_start(NULL);
}

static bool is_not_there(void)
{
	struct fo_nvml_library l;
	return !fo_nvml_library(&l) && strstr(l.why, "'/nowhere/nvml.so' was not found");
}

enum { NAPS = 200 /* of a tenth of a second, at most: what a test waits for comes after a few */ };

static void nap(int ms)
{
	const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
	nanosleep(&t, NULL);
}

/* Two samples at 1,980 MHz, then 1,410; the first of them idle. A watch reads once itself before its thread does. */
static bool watches(void)
{
	struct fo_nvml_watch *w = fo_nvml_watch_start(fo_nvml_find("0000:1b:00.0"));
	/* Each look takes a sample, and so does its start: what is more is its thread's. */
	for (int looks = 1; looks <= NAPS && fo_nvml_watch_total(w).samples < looks + 3; looks++)
		nap(100);
	struct fo_nvml_use u = fo_nvml_watch_sample(w), all = fo_nvml_watch_total(w), none = fo_nvml_watch_sample(NULL);
	fo_nvml_watch_stop(w);
	double others = (double)(u.samples - 2); /* one was idle, one at 1,980 */
	return isnan(none.sm_hz) && u.samples >= 4 && all.samples == u.samples + 1 &&
	       fabs(u.sm_hz - (1980e6 + others * 1410e6) / (others + 1)) < 1 &&
	       fabs(u.power_share - (others - 1) / (others + 1)) < 1e-9 &&
	       fabs(u.thermal_share - 1 / (others + 1)) < 1e-9 && fabs(u.joules - 70 * (double)u.samples) < 1e-6 &&
	       u.watts > 0 && u.hottest_c == 61 && u.seconds > 0.1;
}

static void test_reads(void **state)
{
	(void)state;
	in_child(reads, (const char *const[]){ NULL });
	in_child(reads_nothing, (const char *const[]){ "FAKE_NVML_REFUSES=nvmlDeviceGetPowerUsage,"
						       "nvmlDeviceGetTotalEnergyConsumption,nvmlDeviceGetClockInfo,"
						       "nvmlDeviceGetCurrentClocksEventReasons",
						       NULL });
}

static void test_does_not_start(void **state)
{
	(void)state;
	in_child(does_not_start, (const char *const[]){ "FAKE_NVML_START=9", NULL });
	in_child(is_not_there, (const char *const[]){ "FLATOUT_NVML=/nowhere/nvml.so", NULL });
}

static void test_watches(void **state)
{
	(void)state;
	/* start, idle, fast, thermal, power ... */
	in_child(watches,
		 (const char *const[]){ "FAKE_NVML_CLOCKS=345,345,1980,1410", "FAKE_NVML_REASONS=1,1,0,0x40,4", NULL });
}

/* ---- performance counters ---- */

static struct fo_nvml_watch *started(void) { return fo_nvml_watch_start(fo_nvml_find("0000:1b:00.0")); }
static bool near(double a, double b) { return fabs(a / b - 1) < 1e-9; }

/* What a watch says, in which all counts, once counters were read over more than so long; each look at it reads the
 * clock, too. */
static struct fo_nvml_active watched(double seconds)
{
	struct fo_nvml_watch *w = started();
	struct fo_nvml_active a = { 0 };
	for (int i = 0; i < NAPS && !(a.seconds > seconds); i++) {
		nap((int)(seconds * 1000) + 250);
		a = fo_nvml_watch_total(w).active;
	}
	fo_nvml_watch_stop(w);
	return a;
}
/* Nothing of it, and why. */
static bool says(const char *why)
{
	struct fo_nvml_watch *w = started();
	bool told = false, figure = false;
	for (int i = 0; i < NAPS && !told && !figure; i++) {
		nap(100);
		struct fo_nvml_active a = fo_nvml_watch_total(w).active;
		figure = !isnan(a.share[FO_NVML_TENSOR]) || !*a.why;
		told = strstr(a.why, why);
	}
	fo_nvml_watch_stop(w);
	return told && !figure;
}

static bool counts(void)
{
	struct fo_nvml_active a = watched(0.3);
	return near(a.share[FO_NVML_TENSOR], 0.81) && near(a.share[FO_NVML_HMMA], 0.81) &&
	       near(a.share[FO_NVML_SM], 0.95) && near(a.share[FO_NVML_DRAM], 0.40) && a.share[FO_NVML_DFMA] == 0 &&
	       isnan(a.share[FO_NVML_IMMA]) && near(a.sm_hz, 1376e6) && !*a.why && a.seconds > 0.3;
}
/* 80 % in one interval, nonsense in the next ones, 60 % in those that follow: only what can be counts. */
static bool counts_what_can_be(void)
{
	struct fo_nvml_watch *w = started();
	double least = 1;
	for (int i = 0; i < NAPS && least > 0.79; i++) {
		nap(100);
		double now = fo_nvml_watch_total(w).active.share[FO_NVML_TENSOR];
		if (now > 0.8 + 1e-9)
			return false;
		least = now < least ? now : least;
	}
	struct fo_nvml_active a = fo_nvml_watch_total(w).active;
	fo_nvml_watch_stop(w);
	return least >= 0.6 && least < 0.79 && near(a.share[FO_NVML_SM], 0.95) && !*a.why;
}
static bool no_counters(void) { return says("NVML reads no performance counters of this device"); }
static bool old_driver(void) { return says("this driver's NVML has no GPM functions"); }
static bool stand_still(void) { return says("stand still"); }
static bool never_told(void) { return says("nvmlGpmMetricsGet says 'Not Supported'"); }
static bool no_samples(void) { return says("nvmlGpmSampleGet says 'Unknown Error'"); }
static bool no_buffers(void) { return says("nvmlGpmSampleAlloc says 'Not Supported'"); }
static bool all_nonsense(void) { return says("no share of it between 0 and 100 %"); }
static bool unknown_device(void)
{
	return strstr(fo_nvml_watch_total(NULL).active.why, "does not know the device") &&
	       isnan(fo_nvml_watch_total(NULL).active.share[FO_NVML_TENSOR]);
}
/* Without a clock shares are by time, and the clock is not known. */
static bool no_clock(void)
{
	struct fo_nvml_active a = watched(0.1);
	return near(a.share[FO_NVML_TENSOR], 0.81) && isnan(a.sm_hz) && a.seconds > 0.1;
}
/* An error in the middle costs the intervals on both sides of it, no more. */
static bool goes_on(void)
{
	struct fo_nvml_active a = watched(0.5);
	return near(a.share[FO_NVML_TENSOR], 0.81) && a.seconds > 0.5 && !*a.why;
}
/* What lies outside of steps does not count, nor does an interval that holds a part of it. */
static bool only_steps(void)
{
	struct fo_nvml_watch *w = started();
	fo_nvml_watch_count(w, false);
	fo_nvml_watch_restart(w);
	nap(600);
	struct fo_nvml_active before = fo_nvml_watch_total(w).active;
	for (int i = 0; i < 12; i++) { /* steps of 50 ms with something between them: no interval is whole */
		fo_nvml_watch_count(w, true);
		nap(50);
		fo_nvml_watch_count(w, false);
	}
	struct fo_nvml_active torn = fo_nvml_watch_total(w).active, whole = { 0 };
	fo_nvml_watch_count(w, true);
	fo_nvml_watch_count(w, true); /* said twice: no change */
	for (int i = 0; i < NAPS && !(whole.seconds > 0.3); i++) {
		nap(100);
		whole = fo_nvml_watch_total(w).active;
	}
	fo_nvml_watch_stop(w);
	return before.seconds == 0 && strstr(before.why, "no fifth of a second lay within steps alone") &&
	       torn.seconds == 0 && *torn.why && near(whole.share[FO_NVML_TENSOR], 0.81) && whole.seconds > 0.3;
}
/* 20 % at 1,000 MHz, then 80 % at 2,000. Means are by cycles, so that clock x share is what was active per second; by
 * time the share would be less. (An interval may see the clock change, so neither is exact.) */
static bool by_cycles(void)
{
	struct fo_nvml_active a = watched(0.5);
	double fast = a.sm_hz / 1e9 - 1, cycles = ((1 - fast) * 0.2 + fast * 2 * 0.8) / (1 + fast),
	       time = (1 - fast) * 0.2 + fast * 0.8;
	double share = a.share[FO_NVML_TENSOR];
	return fast > 0 && fast < 1 && fabs(share - cycles) < fabs(share - time);
}
static bool too_short(void)
{
	struct fo_nvml_watch *w = started();
	struct fo_nvml_active a = fo_nvml_watch_total(w).active;
	fo_nvml_watch_stop(w);
	return isnan(a.share[FO_NVML_TENSOR]) && strstr(a.why, "less than the time between two reads");
}

static void test_counters(void **state)
{
	(void)state;
	in_child(counts, (const char *const[]){ NULL });
	in_child(counts_what_can_be,
		 (const char *const[]){ "FAKE_NVML_GPM=80,nan,150,-3,inf,140737488355328,60", NULL });
	in_child(goes_on, (const char *const[]){ "FAKE_NVML_SAMPLES=0,0,999,0,0,999,999,0", NULL });
	in_child(only_steps, (const char *const[]){ NULL });
	in_child(by_cycles,
		 (const char *const[]){ "FAKE_NVML_GPM=20,80", "FAKE_NVML_CLOCKS=1000,1000,1000,1000,2000", NULL });
	in_child(no_clock, (const char *const[]){ "FAKE_NVML_REFUSES=nvmlDeviceGetClockInfo", NULL });
	in_child(too_short, (const char *const[]){ NULL });
}

static void test_no_counters(void **state)
{
	char old[512];
	const char *library = getenv("FLATOUT_FAKE_NVML_OLD");
	(void)state;
	if (!library)
		skip();
	snprintf(old, sizeof old, "FLATOUT_NVML=%s", library);
	in_child(old_driver, (const char *const[]){ old, NULL });
	in_child(no_counters, (const char *const[]){ "FAKE_NVML_GPM=no", NULL });
	in_child(no_counters, (const char *const[]){ "FAKE_NVML_REFUSES=nvmlGpmQueryDeviceSupport", NULL });
	in_child(stand_still, (const char *const[]){ "FAKE_NVML_GPM=still", NULL });
	in_child(never_told, (const char *const[]){ "FAKE_NVML_REFUSES=nvmlGpmMetricsGet", NULL });
	in_child(no_samples, (const char *const[]){ "FAKE_NVML_SAMPLES=999", NULL });
	in_child(no_buffers, (const char *const[]){ "FAKE_NVML_REFUSES=nvmlGpmSampleAlloc", NULL });
	in_child(all_nonsense, (const char *const[]){ "FAKE_NVML_GPM=150,nan", NULL });
	in_child(unknown_device, (const char *const[]){ NULL });
}

static void test_words(void **state)
{
	(void)state;
	static const struct {
		int64_t bits;
		const char *text;
	} row[] = { { 0, "none" },
		    { -1, "not readable" },
		    { 0x4, "power limit" },
		    { 0x44, "power limit, thermal slowdown (hardware)" },
		    { 0x1001, "idle, 0x1000" } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct fo_str s = { 0 };
		fo_nvml_reasons_text(row[i].bits, &s);
		assert_string_equal(s.data, row[i].text);
		fo_str_fini(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_reads),       cmocka_unit_test(test_does_not_start),
					    cmocka_unit_test(test_watches),     cmocka_unit_test(test_counters),
					    cmocka_unit_test(test_no_counters), cmocka_unit_test(test_words) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
