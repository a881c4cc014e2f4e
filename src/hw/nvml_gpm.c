#include "hw/nvml_gpm.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* nvmlGpmMetricId_t, in the order of enum fo_nvml_share. */
static const unsigned metric_id[FO_NVML_SHARES] = { 2, 5, 7, 9, 6, 10 };

/* A share of more than this is no share. Counters of cycles and of work are not read in the same instant: at 100 ms a
 * millisecond is 1 %. */
#define PER_CENT_MOST 101

struct fo_nvml_gpm {
	fo_nvml_device device;
	int (*sample_get)(void *device, void *sample);
	int (*sample_free)(void *sample);
	int (*metrics_get)(struct fo_gpm_metrics_get *g);
	void *older, *newer;
	bool have; /* older is a sample */
	struct fo_gpm_metrics_get get;
};

static bool alloc_samples(struct fo_nvml_gpm *g, int (*alloc)(void **), char *why, size_t size)
{
	int st = alloc(&g->older);
	if (!st)
		st = alloc(&g->newer);
	if (st)
		snprintf(why, size, "nvmlGpmSampleAlloc says '%s'", fo_nvml_error(st));
	return !st;
}

struct fo_nvml_gpm *fo_nvml_gpm_open(fo_nvml_device d, char *why, size_t size)
{
	struct fo_gpm_support support = { .version = FO_GPM_SUPPORT_VERSION };
	int (*query)(void *, struct fo_gpm_support *), (*alloc)(void **);
	struct fo_nvml_gpm *g = fo_xmalloc(sizeof *g);
	*g = (struct fo_nvml_gpm){ .device = d };
	fo_nvml_symbol("nvmlGpmQueryDeviceSupport", &query);
	fo_nvml_symbol("nvmlGpmSampleAlloc", &alloc);
	fo_nvml_symbol("nvmlGpmSampleGet", &g->sample_get);
	fo_nvml_symbol("nvmlGpmSampleFree", &g->sample_free);
	fo_nvml_symbol("nvmlGpmMetricsGet", &g->metrics_get);
	if (!query || !alloc || !g->sample_get || !g->sample_free || !g->metrics_get) {
		snprintf(why, size, "this driver's NVML has no GPM functions (drivers since 525 have them)");
		goto none;
	}
	int st = query(d, &support);
	if (st || !support.supported) {
		int n = snprintf(why, size,
				 "NVML reads no performance counters of this device (GPM: Hopper and later)");
		if (st && n > 0 && (size_t)n < size)
			snprintf(why + n, size - (size_t)n, ": '%s'", fo_nvml_error(st));
		goto none;
	}
	if (alloc_samples(g, alloc, why, size))
		return g;
none:
	fo_nvml_gpm_close(g);
	return NULL;
}

void fo_nvml_gpm_close(struct fo_nvml_gpm *g)
{
	if (g && g->older)
		g->sample_free(g->older);
	if (g && g->newer)
		g->sample_free(g->newer);
	free(g);
}

static double share_of(const struct fo_gpm_metric *m)
{
	if (m->result || !(m->value >= 0 && m->value <= PER_CENT_MOST))
		return NAN;
	return m->value < 100 ? m->value / 100 : 1;
}

bool fo_nvml_gpm_read(struct fo_nvml_gpm *g, double share[FO_NVML_SHARES], char *why, size_t size)
{
	int st = g->sample_get(g->device, g->newer);
	if (st) {
		g->have = false;
		snprintf(why, size, "nvmlGpmSampleGet says '%s'", fo_nvml_error(st));
		return false;
	}
	bool both = g->have;
	g->get.version = FO_GPM_METRICS_GET_VERSION;
	g->get.count = FO_NVML_SHARES;
	g->get.sample1 = g->older;
	g->get.sample2 = g->newer;
	for (int i = 0; i < FO_NVML_SHARES; i++)
		g->get.metric[i] = (struct fo_gpm_metric){ .id = metric_id[i], .value = NAN };
	if (both)
		st = g->metrics_get(&g->get);
	g->newer = g->older;
	g->older = g->get.sample2;
	g->have = true;
	if (st)
		snprintf(why, size, "nvmlGpmMetricsGet says '%s'", fo_nvml_error(st));
	for (int i = 0; i < FO_NVML_SHARES; i++)
		share[i] = both && !st ? share_of(&g->get.metric[i]) : NAN;
	return both && !st;
}
