#include "hw/nvml.h"

#include "base/library.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* nvmlReturn_t is an int and 0 is success; nvmlDevice_t a pointer; nvmlClockType_t: SM 1, memory 2;
 * nvmlTemperatureSensors_t: the chip 0. */
enum { SUCCESS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_CHIP = 0, TEXT = 80 };
struct memory {
	unsigned long long total, free, used;
};
struct utilisation {
	unsigned gpu, memory;
};

/* X(member, function, its older name, parameters): all return an nvmlReturn_t. */
#define CALLS(X)                                                                                                  \
	X(init, "nvmlInit_v2", "nvmlInit", (void))                                                                \
	X(driver_version, "nvmlSystemGetDriverVersion", NULL, (char *, unsigned))                                 \
	X(version, "nvmlSystemGetNVMLVersion", NULL, (char *, unsigned))                                          \
	X(by_pci, "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId", (const char *, void **))   \
	X(power_mw, "nvmlDeviceGetPowerUsage", NULL, (void *, unsigned *))                                        \
	X(limit_mw, "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit", (void *, unsigned *)) \
	X(energy_mj, "nvmlDeviceGetTotalEnergyConsumption", NULL, (void *, unsigned long long *))                 \
	X(clock_mhz, "nvmlDeviceGetClockInfo", NULL, (void *, int, unsigned *))                                   \
	X(clock_max_mhz, "nvmlDeviceGetMaxClockInfo", NULL, (void *, int, unsigned *))                            \
	X(reasons, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",         \
	  (void *, unsigned long long *))                                                                         \
	X(celsius, "nvmlDeviceGetTemperature", NULL, (void *, int, unsigned *))                                   \
	X(utilisation, "nvmlDeviceGetUtilizationRates", NULL, (void *, struct utilisation *)) /* per cent */      \
	X(memory, "nvmlDeviceGetMemoryInfo", NULL, (void *, struct memory *))
static struct {
	const char *(*error)(int);
#define MEMBER(name, function, older, parameters) int(*name) parameters;
	CALLS(MEMBER)
#undef MEMBER
} nvml;
static struct fo_library opened;
static struct fo_nvml_library library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
	static const char usual[] = "libnvidia-ml.so.1";
	const char *file = getenv("FLATOUT_NVML");
	if (file && *file) {
		fo_library_open(&opened, "", 0, file); /* who names a file wants that one */
		return;
	}
	fo_library_open_in(&opened, getenv("FLATOUT_CUDA_LIBRARIES"), usual);
	fo_library_open(&opened, "", 0, usual);
}

static void find(void *to, const char *name, const char *older)
{
	if (!fo_library_find(&opened, name, to) && older)
		fo_library_find(&opened, older, to);
}

static void load(void)
{
	open_library();
	snprintf(library.file, sizeof library.file, "%s", opened.file);
	if (!opened.handle) {
		snprintf(library.why, sizeof library.why, "'%s' was not found: it comes with the NVIDIA driver",
			 library.file);
		*library.file = 0;
		return;
	}
#define FIND(name, function, older, parameters) find(&nvml.name, function, older);
	CALLS(FIND)
#undef FIND
	find(&nvml.error, "nvmlErrorString", NULL);
	int st = nvml.init && nvml.by_pci ? nvml.init() : -1;
	if (st != SUCCESS) {
		snprintf(library.why, sizeof library.why, "'%s' cannot be used: %s", library.file,
			 st == -1 ? "it has not the functions of NVML" : fo_nvml_error(st));
		return;
	}
	library.loaded = true;
	if (!nvml.driver_version || nvml.driver_version(library.driver, TEXT) != SUCCESS)
		*library.driver = 0;
	if (!nvml.version || nvml.version(library.version, TEXT) != SUCCESS)
		*library.version = 0;
}

bool fo_nvml_library(struct fo_nvml_library *out)
{
	pthread_once(&once, load);
	if (out)
		*out = library;
	return library.loaded;
}

void fo_nvml_symbol(const char *name, void *to)
{
	if (fo_nvml_library(NULL))
		find(to, name, NULL);
	else
		memset(to, 0, sizeof(void *));
}

const char *fo_nvml_error(int result) { return nvml.error ? nvml.error(result) : "an error that it has no words for"; }

fo_nvml_device fo_nvml_find(const char *pci)
{
	void *d = NULL;
	return fo_nvml_library(NULL) && *pci && nvml.by_pci(pci, &d) == SUCCESS ? d : NULL;
}

static double number(int (*f)(void *, unsigned *), void *d, double unit)
{
	unsigned v;
	return f && f(d, &v) == SUCCESS ? v * unit : NAN;
}

static double with(int (*f)(void *, int, unsigned *), void *d, int which, double unit)
{
	unsigned v;
	return f && f(d, which, &v) == SUCCESS ? v * unit : NAN;
}

void fo_nvml_read(fo_nvml_device d, struct fo_nvml_now *out)
{
	unsigned long long v;
	struct memory m;
	struct utilisation u;
	*out = (struct fo_nvml_now){ NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, -1, -1, -1 };
	if (!d)
		return;
	out->power_w = number(nvml.power_mw, d, 1e-3);
	out->limit_w = number(nvml.limit_mw, d, 1e-3);
	if (nvml.energy_mj && nvml.energy_mj(d, &v) == SUCCESS)
		out->energy_j = (double)v * 1e-3;
	out->sm_hz = with(nvml.clock_mhz, d, CLOCK_SM, 1e6);
	out->sm_max_hz = with(nvml.clock_max_mhz, d, CLOCK_SM, 1e6);
	out->memory_hz = with(nvml.clock_mhz, d, CLOCK_MEMORY, 1e6);
	out->memory_max_hz = with(nvml.clock_max_mhz, d, CLOCK_MEMORY, 1e6);
	out->temperature_c = with(nvml.celsius, d, SENSOR_CHIP, 1);
	if (nvml.utilisation && nvml.utilisation(d, &u) == SUCCESS)
		out->busy = u.gpu * 1e-2;
	if (nvml.memory && nvml.memory(d, &m) == SUCCESS) {
		out->memory_used_bytes = (int64_t)m.used;
		out->memory_bytes = (int64_t)m.total;
	}
	if (nvml.reasons && nvml.reasons(d, &v) == SUCCESS)
		out->reasons = (int64_t)(v & INT64_MAX);
}

void fo_nvml_reasons_text(int64_t reasons, struct fo_str *out)
{
	static const struct {
		int bit;
		const char *text;
	} row[] = { { 0x1, "idle" },
		    { 0x2, "application clocks" },
		    { 0x4, "power limit" },
		    { 0x8, "hardware slowdown" },
		    { 0x10, "sync boost" },
		    { 0x20, "thermal slowdown (software)" },
		    { 0x40, "thermal slowdown (hardware)" },
		    { 0x80, "power brake" },
		    { 0x100, "display clock" } };
	size_t begin = out->len;
	if (reasons <= 0) {
		fo_str_puts(out, reasons ? "not readable" : "none");
		return;
	}
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		if (reasons & row[i].bit)
			fo_str_printf(out, "%s%s", out->len > begin ? ", " : "", row[i].text);
		reasons &= ~(int64_t)row[i].bit;
	}
	if (reasons)
		fo_str_printf(out, "%s0x%llx", out->len > begin ? ", " : "", (unsigned long long)reasons);
}
