/* A libnvidia-ml.so.1 without a driver, for tests: one device at 0000:1b:00.0 whose readings the environment sets.
 *
 *   FAKE_NVML_CLOCKS    SM clocks in MHz that reads give one after the other, the last one from then on: "1980,1410"
 *   FAKE_NVML_REASONS   clock event reasons, likewise
 *   FAKE_NVML_REFUSES   names of functions that say "not supported" (3), between commas
 *   FAKE_NVML_PCI       where the device is, in place of that address
 *   FAKE_NVML_START     what nvmlInit_v2 returns
 *
 * The energy counter grows by 70 J with each read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct list { int at; };

static unsigned next(const char *variable, struct list *l, unsigned otherwise)
{
	const char *p = getenv(variable);
	if (!p)
		return otherwise;
	for (int i = 0; i < l->at && strchr(p, ','); i++)
		p = strchr(p, ',') + 1;
	l->at++;
	return (unsigned)strtoul(p, NULL, 0);
}

static int refused(const char *name)
{
	const char *list = getenv("FAKE_NVML_REFUSES");
	return list && strstr(list, name) ? 3 : 0;
}

static int device;

int nvmlInit_v2(void)
{
	const char *v = getenv("FAKE_NVML_START");
	return v ? atoi(v) : 0;
}
const char *nvmlErrorString(int e) { return e == 9 ? "Driver Not Loaded" : "Unknown Error"; }
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
