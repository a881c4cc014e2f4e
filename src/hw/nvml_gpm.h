/* Private to src/hw: an NVIDIA device's performance counters through NVML's GPM functions, without a
 * profiler: how much of a time its tensor pipes, multiprocessors and memory were active. Hopper and later, drivers
 * since 525.
 *
 * NVIDIA's header (nvml.h of CUDA 12.9 and 13.5) says: two samples must lie more than 100 ms apart, since counters are
 * refreshed at that rate; values are per cent, 0.0 to 100.0; a value counts only where its own nvmlReturn is 0. */
#ifndef FO_HW_NVML_GPM_H
#define FO_HW_NVML_GPM_H

#include "hw/nvml.h"

/* The structures as nvml.h has them; tests/unit/test_nvml_layout.c holds them to it where that header is there. */
enum {
	FO_GPM_METRICS_GET_VERSION = 1,
	FO_GPM_SUPPORT_VERSION = 1,
	/* The array at the end had 210 entries in 12.9 and has 477 in 13.5, under the same version: a library may have
	 * been built for more entries than any header that we know. It is told how many to fill; the room is for one
	 * that touches them all. */
	FO_GPM_ROOM = 1024,
};
struct fo_gpm_metric {
	unsigned id;  /* in */
	int result;   /* out: 0 where value counts */
	double value; /* out */
	char *text[3];
};
struct fo_gpm_metrics_get {
	unsigned version, count;
	void *sample1, *sample2; /* the earlier one, the later one */
	struct fo_gpm_metric metric[FO_GPM_ROOM];
};
struct fo_gpm_support {
	unsigned version, supported;
};

struct fo_nvml_gpm;
/* NULL where the driver has not the functions or the device not the counters; why, of `size` bytes, says so in a
 * clause. */
struct fo_nvml_gpm *fo_nvml_gpm_open(fo_nvml_device d, char *why, size_t size);
void fo_nvml_gpm_close(struct fo_nvml_gpm *g); /* NULL: nothing */
/* Takes a sample. True: share[] are means since the last one, each in 0 to 1, NAN where it is not told or no such
 * share; false: there was none before, or one of the two failed (why says how). Not twice within 100 ms. One thread at
 * a time. */
bool fo_nvml_gpm_read(struct fo_nvml_gpm *g, double share[FO_NVML_SHARES], char *why, size_t size);

#endif
