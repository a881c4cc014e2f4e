/* A libnvidia-ml.so.1 without a driver, for tests: one device, whose readings the environment sets.
 *
 *   FAKE_NVML_PCI       where it is; 0000:1b:00.0
 *   FAKE_NVML_CLOCKS    SM clocks in MHz that reads give one after the other, the last one from then on: "1980,1410"
 *   FAKE_NVML_REASONS   clock event reasons, likewise
 *   FAKE_NVML_REFUSES   names of functions that say "not supported" (3), between commas
 *   FAKE_NVML_PCI       where the device is, in place of that address
 *   FAKE_NVML_START     what nvmlInit_v2 returns
 *   FAKE_NVML_SICK      1: its settings and links are bad: a narrow PCIe link, a power limit below the default, two
 *                       NVLinks down, persistence off, a row that could not be remapped
 *
 *   FAKE_NVML_GPM       no: the device has no performance counters; still: they do not move; else the tensor pipes'
 *                       per cent, one value for each time that they are asked for, the last one from then on, whatever
 *                       is written there: "80,nan,150"; 81. Multiprocessors have 95, memory 40, 16-bit products what
 *                       the pipes have; integer products have an error of their own, fp64 products 0
 *   FAKE_NVML_SAMPLES   what each nvmlGpmSampleGet returns, likewise: "0,0,999,0"
 *
 * With FAKE_NVML_OLD (at compile time) it is one from before there were such counters. As NVIDIA's, it wants samples
 * more than 100 ms apart, in their order, and the version of the structure; it breaks the rule of its header and clears
 * all of the array.
 *
 * The energy counter grows by 70 J with each read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct list {
	int at;
};

static const char *item(const char *p, struct list *l)
{
	for (int i = 0; i < l->at && strchr(p, ','); i++)
		p = strchr(p, ',') + 1;
	l->at++;
	return p;
}

static unsigned next(const char *variable, struct list *l, unsigned otherwise)
{
	const char *p = getenv(variable);
	return p ? (unsigned)strtoul(item(p, l), NULL, 0) : otherwise;
}

static int refused(const char *name)
{
	const char *list = getenv("FAKE_NVML_REFUSES");
	return list && strstr(list, name) ? 3 : 0;
}

static int device, second;

int nvmlInit_v2(void)
{
	const char *v = getenv("FAKE_NVML_START");
	return v ? atoi(v) : 0;
}
const char *nvmlErrorString(int e) { return e == 9 ? "Driver Not Loaded" : e == 3 ? "Not Supported" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return snprintf(to, size, "580.65.06") < 0; }
int nvmlSystemGetNVMLVersion(char *to, unsigned size) { return snprintf(to, size, "13.580.65.06") < 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **out)
{
	const char *at = getenv("FAKE_NVML_PCI");
	*out = &device;
	return strcmp(pci, at ? at : "0000:1b:00.0") ? 6 : 0;
}
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw)
{
	(void)d;
	*mw = 698500;
	return refused("nvmlDeviceGetPowerUsage");
}
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *mw)
{
	(void)d;
	*mw = 700000;
	return refused("nvmlDeviceGetEnforcedPowerLimit");
}
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *mj)
{
	static unsigned long long sum = 1000000;
	(void)d;
	*mj = sum += 70000;
	return refused("nvmlDeviceGetTotalEnergyConsumption");
}
int nvmlDeviceGetClockInfo(void *d, int which, unsigned *mhz)
{
	static struct list l;
	(void)d;
	*mhz = which == 1 ? next("FAKE_NVML_CLOCKS", &l, 1376) : 3201;
	return refused("nvmlDeviceGetClockInfo");
}
int nvmlDeviceGetMaxClockInfo(void *d, int which, unsigned *mhz)
{
	(void)d;
	*mhz = which == 1 ? 1980 : 3201;
	return refused("nvmlDeviceGetMaxClockInfo");
}
int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *bits)
{
	static struct list l;
	(void)d;
	*bits = next("FAKE_NVML_REASONS", &l, 0x4);
	return refused("nvmlDeviceGetCurrentClocksEventReasons");
}
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *c)
{
	(void)d, (void)sensor;
	*c = 61;
	return refused("nvmlDeviceGetTemperature");
}
int nvmlDeviceGetUtilizationRates(void *d, unsigned *percent)
{
	(void)d;
	percent[0] = 97;
	percent[1] = 40;
	return refused("nvmlDeviceGetUtilizationRates");
}
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m)
{
	(void)d;
	m[0] = 150754820096; /* total, free, used */
	m[2] = 1 << 30;
	m[1] = m[0] - m[2];
	return refused("nvmlDeviceGetMemoryInfo");
}

/* ---- settings ---- */

static int sick(void)
{
	const char *v = getenv("FAKE_NVML_SICK");
	return v && *v == '1';
}

struct pci_info {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char address[32];
};
int nvmlDeviceGetCount_v2(unsigned *n)
{
	*n = 2;
	return refused("nvmlDeviceGetCount_v2");
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out)
{
	*out = i ? &second : &device;
	return i > 1 ? 2 : 0;
}
int nvmlDeviceGetName(void *d, char *to, unsigned size)
{
	(void)d;
	return snprintf(to, size, "NVIDIA H100 80GB HBM3") < 0;
}
int nvmlDeviceGetPciInfo_v3(void *d, struct pci_info *p)
{
	memset(p, 0, sizeof *p);
	snprintf(p->address, sizeof p->address, "00000000:%s:00.0", d == &second ? "9D" : "1B");
	return 0;
}
#define SETTING(name, value)           \
	int name(void *d, unsigned *v) \
	{                              \
		(void)d;               \
		*v = value;            \
		return refused(#name); \
	}
SETTING(nvmlDeviceGetPersistenceMode, !sick())
SETTING(nvmlDeviceGetComputeMode, 0)
SETTING(nvmlDeviceGetPerformanceState, 0)
SETTING(nvmlDeviceGetCurrPcieLinkGeneration, 5)
SETTING(nvmlDeviceGetMaxPcieLinkGeneration, 5)
SETTING(nvmlDeviceGetCurrPcieLinkWidth, sick() ? 8 : 16)
SETTING(nvmlDeviceGetMaxPcieLinkWidth, 16)
SETTING(nvmlDeviceGetPowerManagementDefaultLimit, sick() ? 1000000 : 700000)
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *pending)
{
	(void)d;
	*now = *pending = 0;
	return 0;
}
int nvmlDeviceGetNvLinkState(void *d, unsigned link, unsigned *up)
{
	(void)d;
	*up = !(sick() && (link == 3 || link == 7));
	return link < 18 ? 0 : 2;
}
int nvmlDeviceGetRemappedRows(void *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
	(void)d;
	*corrected = *uncorrected = *pending = 0;
	*failed = (unsigned)sick();
	return 0;
}

#ifndef FAKE_NVML_OLD
/* As nvml.h of CUDA 13.5 has them. */
struct metric {
	unsigned id;
	int result;
	double value;
	char *names[3];
};
struct get {
	unsigned version, n;
	struct sample *from, *to;
	struct metric metric[477];
};
struct sample {
	double ms; /* 0: none was taken */
};

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
static int mode_is(const char *name)
{
	const char *mode = getenv("FAKE_NVML_GPM");
	return mode && !strcmp(mode, name);
}

int nvmlGpmQueryDeviceSupport(void *d, unsigned *support)
{
	(void)d;
	if (support[0] != 1)
		return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
	support[1] = !mode_is("no");
	return refused("nvmlGpmQueryDeviceSupport");
}
int nvmlGpmSampleAlloc(struct sample **out)
{
	*out = calloc(1, sizeof **out);
	return refused("nvmlGpmSampleAlloc");
}
int nvmlGpmSampleFree(struct sample *s)
{
	free(s);
	return 0;
}
int nvmlGpmSampleGet(void *d, struct sample *s)
{
	static struct list l;
	(void)d;
	int st = (int)next("FAKE_NVML_SAMPLES", &l, 0);
	if (!st)
		s->ms = now_ms();
	return st;
}
int nvmlGpmMetricsGet(struct get *g)
{
	static struct list l;
	const char *list = getenv("FAKE_NVML_GPM");
	double tensor = mode_is("still") ? 0 : list ? strtod(item(list, &l), NULL) : 81;
	unsigned n = g->n;
	if (g->version != 1 || n > 477)
		return 25;
	if (!g->from->ms || g->to->ms - g->from->ms <= 100)
		return 2; /* NVML_ERROR_INVALID_ARGUMENT */
	for (unsigned i = 0; i < n; i++)
		switch (g->metric[i].id) {
		case 2: g->metric[i] = (struct metric){ 2, 0, mode_is("still") ? 0 : 95, { 0 } }; break;
		case 5: g->metric[i] = (struct metric){ 5, 0, tensor, { 0 } }; break;
		case 6: g->metric[i] = (struct metric){ 6, 0, 0, { 0 } }; break;
		case 7: g->metric[i] = (struct metric){ 7, 0, tensor, { 0 } }; break;
		case 10: g->metric[i] = (struct metric){ 10, 0, mode_is("still") ? 0 : 40, { 0 } }; break;
		default: g->metric[i] = (struct metric){ g->metric[i].id, 3, 12, { 0 } }; break;
		}
	memset(g->metric + n, 0, (477 - n) * sizeof *g->metric);
	return refused("nvmlGpmMetricsGet");
}
#endif
