#include "hw/nvml_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* nvmlClockType_t: graphics 0; nvmlMemoryErrorType_t: uncorrected 1; nvmlEccCounterType_t: volatile 0;
 * NVML_NVLINK_MAX_LINKS: 18, up to Blackwell. */
enum { SUCCESS = 0, CLOCK_GRAPHICS = 0, UNCORRECTED = 1, SINCE_LOAD = 0, LINKS_MOST = 18 };

/* nvmlPciInfo_t */
struct pci_info {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char address[32];
};

/* X(member, function, parameters): all return an nvmlReturn_t. */
#define CALLS(X)                                                                                     \
	X(count, "nvmlDeviceGetCount_v2", (unsigned *))                                              \
	X(at, "nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))                                  \
	X(name, "nvmlDeviceGetName", (void *, char *, unsigned))                                     \
	X(pci, "nvmlDeviceGetPciInfo_v3", (void *, struct pci_info *))                               \
	X(persistence, "nvmlDeviceGetPersistenceMode", (void *, unsigned *))                         \
	X(mig, "nvmlDeviceGetMigMode", (void *, unsigned *, unsigned *))                             \
	X(compute_mode, "nvmlDeviceGetComputeMode", (void *, unsigned *))                            \
	X(pstate, "nvmlDeviceGetPerformanceState", (void *, unsigned *))                             \
	X(pcie_gen, "nvmlDeviceGetCurrPcieLinkGeneration", (void *, unsigned *))                     \
	X(pcie_gen_max, "nvmlDeviceGetMaxPcieLinkGeneration", (void *, unsigned *))                  \
	X(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth", (void *, unsigned *))                        \
	X(pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth", (void *, unsigned *))                     \
	X(default_mw, "nvmlDeviceGetPowerManagementDefaultLimit", (void *, unsigned *))              \
	X(app_mhz, "nvmlDeviceGetApplicationsClock", (void *, unsigned, unsigned *))                 \
	X(app_default_mhz, "nvmlDeviceGetDefaultApplicationsClock", (void *, unsigned, unsigned *))  \
	X(link, "nvmlDeviceGetNvLinkState", (void *, unsigned, unsigned *))                          \
	X(ecc, "nvmlDeviceGetEccMode", (void *, unsigned *, unsigned *))                             \
	X(errors, "nvmlDeviceGetTotalEccErrors", (void *, unsigned, unsigned, unsigned long long *)) \
	X(remapped, "nvmlDeviceGetRemappedRows", (void *, unsigned *, unsigned *, unsigned *, unsigned *))

struct calls {
#define MEMBER(name, function, parameters) int(*name) parameters;
	CALLS(MEMBER)
#undef MEMBER
};

static void find(struct calls *c)
{
#define FIND(name, function, parameters) fo_nvml_symbol(function, &c->name);
	CALLS(FIND)
#undef FIND
}

int fo_nvml_count(void)
{
	struct calls c;
	unsigned n = 0;
	find(&c);
	return c.count && c.count(&n) == SUCCESS && n < 1024 ? (int)n : 0;
}

fo_nvml_device fo_nvml_at(int index)
{
	struct calls c;
	void *d = NULL;
	find(&c);
	return c.at && index >= 0 && c.at((unsigned)index, &d) == SUCCESS ? d : NULL;
}

static double value(int (*f)(void *, unsigned *), void *d)
{
	unsigned v;
	return f && f(d, &v) == SUCCESS ? v : NAN;
}

static double clock_hz(int (*f)(void *, unsigned, unsigned *), void *d)
{
	unsigned v;
	return f && f(d, CLOCK_GRAPHICS, &v) == SUCCESS ? v * 1e6 : NAN;
}

static void pair(int (*f)(void *, unsigned *, unsigned *), void *d, double *now, double *pending)
{
	unsigned a, b;
	if (!f || f(d, &a, &b) != SUCCESS)
		return;
	*now = a;
	*pending = b;
}

static void links(const struct calls *c, void *d, struct fo_nvml_settings *s)
{
	unsigned state;
	int up = 0, down = 0;
	for (unsigned i = 0; c->link && i < LINKS_MOST; i++)
		if (c->link(d, i, &state) == SUCCESS)
			*(state ? &up : &down) += 1;
	if (!up && !down)
		return;
	s->links_up = up;
	s->links_down = down;
}

static void memory(const struct calls *c, void *d, struct fo_nvml_settings *s)
{
	unsigned long long errors;
	unsigned corrected, uncorrected, pending, failed;
	if (c->errors && c->errors(d, UNCORRECTED, SINCE_LOAD, &errors) == SUCCESS)
		s->uncorrected = (double)errors;
	if (c->remapped && c->remapped(d, &corrected, &uncorrected, &pending, &failed) == SUCCESS) {
		s->remap_pending = pending != 0;
		s->remap_failed = failed != 0;
	}
}

void fo_nvml_settings(fo_nvml_device d, struct fo_nvml_settings *s)
{
	struct calls c;
	struct pci_info pci = { .legacy = "" };
	double unused;
	find(&c);
	*s = (struct fo_nvml_settings){ .bus = "" };
#define UNKNOWN(member) s->member = NAN;
	FO_NVML_SETTINGS(UNKNOWN)
#undef UNKNOWN
	if (!d)
		return;
	if (!c.name || c.name(d, s->name, sizeof s->name) != SUCCESS)
		*s->name = 0;
	if (c.pci && c.pci(d, &pci) == SUCCESS)
		snprintf(s->bus, sizeof s->bus, "%.*s", (int)sizeof s->bus - 1, pci.address);
	s->persistence = value(c.persistence, d);
	pair(c.mig, d, &s->mig, &unused);
	s->compute_mode = value(c.compute_mode, d);
	s->pstate = value(c.pstate, d);
	s->pcie_gen = value(c.pcie_gen, d);
	s->pcie_gen_max = value(c.pcie_gen_max, d);
	s->pcie_width = value(c.pcie_width, d);
	s->pcie_width_max = value(c.pcie_width_max, d);
	s->default_w = value(c.default_mw, d) * 1e-3;
	s->app_hz = clock_hz(c.app_mhz, d);
	s->app_default_hz = clock_hz(c.app_default_mhz, d);
	links(&c, d, s);
	pair(c.ecc, d, &s->ecc, &s->ecc_pending);
	memory(&c, d, s);
}
