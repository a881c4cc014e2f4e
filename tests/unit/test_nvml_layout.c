/* The structures of NVML that hw/nvml_gpm.h declares for itself are those of NVIDIA's header: checked where that header
 * was found. */
#include "hw/nvml_gpm.h"

#include <stddef.h>
#include <stdio.h>

#ifdef FO_NVML_HEADER
#include <nvml.h>
#endif

#ifdef NVML_GPM_METRICS_GET_VERSION /* headers since CUDA 12 */
#define SAME(type, field, theirs, their_field)                                                         \
	_Static_assert(offsetof(struct type, field) == offsetof(theirs, their_field) &&                \
			       sizeof((struct type){ 0 }.field) == sizeof(((theirs *)0)->their_field), \
		       #type "." #field)
SAME(fo_gpm_metric, id, nvmlGpmMetric_t, metricId);
SAME(fo_gpm_metric, result, nvmlGpmMetric_t, nvmlReturn);
SAME(fo_gpm_metric, value, nvmlGpmMetric_t, value);
SAME(fo_gpm_metric, text, nvmlGpmMetric_t, metricInfo);
_Static_assert(sizeof(struct fo_gpm_metric) == sizeof(nvmlGpmMetric_t), "a metric");
SAME(fo_gpm_metrics_get, version, nvmlGpmMetricsGet_t, version);
SAME(fo_gpm_metrics_get, count, nvmlGpmMetricsGet_t, numMetrics);
SAME(fo_gpm_metrics_get, sample1, nvmlGpmMetricsGet_t, sample1);
SAME(fo_gpm_metrics_get, sample2, nvmlGpmMetricsGet_t, sample2);
_Static_assert(offsetof(struct fo_gpm_metrics_get, metric) == offsetof(nvmlGpmMetricsGet_t, metrics), "metrics");
_Static_assert(sizeof(struct fo_gpm_metrics_get) >= sizeof(nvmlGpmMetricsGet_t), "room for all that the header knows");
_Static_assert(sizeof(struct fo_gpm_support) == sizeof(nvmlGpmSupport_t), "support");
SAME(fo_gpm_support, version, nvmlGpmSupport_t, version);
SAME(fo_gpm_support, supported, nvmlGpmSupport_t, isSupportedDevice);
_Static_assert(FO_GPM_METRICS_GET_VERSION == NVML_GPM_METRICS_GET_VERSION &&
		       FO_GPM_SUPPORT_VERSION == NVML_GPM_SUPPORT_VERSION,
	       "versions");
_Static_assert(NVML_GPM_METRIC_SM_UTIL == 2 && NVML_GPM_METRIC_ANY_TENSOR_UTIL == 5 &&
		       NVML_GPM_METRIC_DFMA_TENSOR_UTIL == 6 && NVML_GPM_METRIC_HMMA_TENSOR_UTIL == 7 &&
		       NVML_GPM_METRIC_IMMA_TENSOR_UTIL == 9 && NVML_GPM_METRIC_DRAM_BW_UTIL == 10,
	       "metric_id of nvml_gpm.c");
_Static_assert(NVML_CLOCK_SM == 1 && NVML_CLOCK_MEM == 2 && NVML_TEMPERATURE_GPU == 0 && NVML_SUCCESS == 0,
	       "constants of nvml.c");

int main(void) { return 0; }
#else
int main(void)
{
	puts("skipped: no nvml.h with GPM was found");
	return 77;
}
#endif
