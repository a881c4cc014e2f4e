/* NVML through a library of our own (tests/preload/nvml.c): units, what is not readable, reasons in words, means over a time. The library
 * is loaded once per process, so each test is a child. */
#include "hw/nvml.h"

#include "base/str.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* In a child with these variables ("NAME=VALUE", NULL at the end): the function says whether it is right. */
static void in_child(bool (*fn)(void), const char *const *set)
{
	const char *library = getenv("FLATOUT_FAKE_NVML");
	if (!library)
		skip();
	pid_t pid = fork();
	if (!pid) {
		setenv("FLATOUT_NVML", library, 1);
		for (int i = 0; set[i]; i++)
			putenv((char *)(uintptr_t)set[i]);
		_exit(fn() ? 0 : 1);
	}
	int st = 1;
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
}

static bool reads(void)
{
	struct fo_nvml_library l;
	struct fo_nvml_now n;
	fo_nvml_device d = fo_nvml_find("0000:1b:00.0");
	fo_nvml_read(d, &n);
	return fo_nvml_library(&l) && !strcmp(l.driver, "580.65.06") && !strcmp(l.version, "13.580.65.06") && !*l.why && d &&
	       !fo_nvml_find("0000:1c:00.0") && n.power_w == 698.5 && n.limit_w == 700 && fabs(n.energy_j - 1070) < 1e-9 && n.sm_hz == 1376e6 &&
	       n.sm_max_hz == 1980e6 && n.memory_hz == 3201e6 && n.temperature_c == 61 && n.busy == 0.97 && n.reasons == 4 &&
	       n.memory_used_bytes == 1 << 30 && n.memory_bytes == 150754820096;
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
	return !fo_nvml_library(&l) && strstr(l.why, "Driver Not Loaded") && !fo_nvml_find("0000:1b:00.0") && !fo_nvml_watch_start(NULL);
}

static bool is_not_there(void)
{
	struct fo_nvml_library l;
	return !fo_nvml_library(&l) && strstr(l.why, "'/nowhere/nvml.so' was not found");
}

/* Two samples at 1,980 MHz, then 1,410; the first of them idle. A watch reads once itself before its thread does. */
static bool watches(void)
{
	struct fo_nvml_watch *w = fo_nvml_watch_start(fo_nvml_find("0000:1b:00.0"));
	const struct timespec nap = { .tv_nsec = 350000000 };
	nanosleep(&nap, NULL);
	struct fo_nvml_use u = fo_nvml_watch_sample(w), all = fo_nvml_watch_total(w), none = fo_nvml_watch_sample(NULL);
	fo_nvml_watch_stop(w);
	double others = (double)(u.samples - 2); /* one was idle, one at 1,980 */
	return isnan(none.sm_hz) && u.samples >= 3 && all.samples == u.samples + 1 && fabs(u.sm_hz - (1980e6 + others * 1410e6) / (others + 1)) < 1 &&
	       fabs(u.power_share - (others - 1) / (others + 1)) < 1e-9 && fabs(u.thermal_share - 1 / (others + 1)) < 1e-9 &&
	       fabs(u.joules - 70 * (double)u.samples) < 1e-6 && u.watts > 0 && u.hottest_c == 61 && u.seconds > 0.3;
}

static void test_reads(void **state)
{
	(void)state;
	in_child(reads, (const char *const[]){ NULL });
	in_child(reads_nothing,
		 (const char *const[]){ "FAKE_NVML_REFUSES=nvmlDeviceGetPowerUsage,nvmlDeviceGetTotalEnergyConsumption,nvmlDeviceGetClockInfo,"
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
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_reads), cmocka_unit_test(test_does_not_start),
					    cmocka_unit_test(test_watches), cmocka_unit_test(test_words) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
