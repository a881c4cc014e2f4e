/* The catalogue of accelerators: peaks by precision (dense and sparse apart), memory, links, each row with its source
 * and date. Rows live in data/devices.csv; a user file with the same columns adds rows or replaces those of one name.
 *
 * Units: TFLOP/s = 1e12 FLOP/s, GB = 1e9 bytes, TB/s = 1e12 bytes/s; links in GB/s per direction and device, scale-out
 * in Gbit/s per device, power in W, rent in USD per device-hour. FO_UNKNOWN (NaN) stands for "not published". */
#ifndef FO_HW_CATALOGUE_H
#define FO_HW_CATALOGUE_H

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FO_UNKNOWN ((double)NAN)

enum fo_precision { FO_PREC_FP32, FO_PREC_TF32, FO_PREC_FP16, FO_PREC_BF16, FO_PREC_FP8, FO_PREC_FP4, FO_PREC_COUNT };
extern const char *const fo_precision_name[FO_PREC_COUNT]; /* "fp32", "tf32", ... */
/* FO_EARG naming the known ones for any other text. */
FO_CHECKED fo_status fo_precision_parse(const char *name, enum fo_precision *out);

struct fo_device {
	const char *name;                                   /* "H100-SXM5-80GB" */
	const char *aliases;                                /* separated by single spaces: "h100 h100-sxm" */
	const char *kind;                                   /* "gpu", "tpu", "hpu", "trainium" */
	double dense[FO_PREC_COUNT], sparse[FO_PREC_COUNT]; /* TFLOP/s; fp32: the vector units */
	double memory_gb, memory_usable_gb, memory_tb_s, cache_mb;
	double units; /* SMs, CUs, tensor cores: what the vendor counts */
	double tdp_w;
	double scaleup_gb_s;                /* fast domain, all links of one device, one direction */
	double pair_gb_s;                   /* between two devices of the domain */
	double scaleup_devices;             /* devices in the domain */
	double scaleout_gbit_s;             /* usual network adapters per device */
	double measured_bf16, measured_fp8; /* best matmul that the source measured, TFLOP/s */
	double rent_low, rent_high;
	const char *rent_note, *source, *date, *notes;
	const char *where; /* "built-in devices.csv:12", or the path of a file and the line */
};

struct fo_catalogue {
	struct fo_arena arena;
	struct fo_device *device;
	size_t count, cap;
};

/* The table that was built in (data/devices.csv), then the rows of $FLATOUT_DATA/devices.csv where FLATOUT_DATA is set,
 * then those of `user_file`, or of $FLATOUT_DEVICES when it is NULL or empty. FO_EIO when a file that is named cannot
 * be read, FO_EFORMAT with file:line for bad rows. On failure *c needs no fini. */
FO_CHECKED fo_status fo_catalogue_load(struct fo_catalogue *c, const char *user_file);
/* Adds the rows of CSV text (comment lines start with #). A name that exists is replaced as a whole. `where` names the
 * text in errors. */
FO_CHECKED fo_status fo_catalogue_add(struct fo_catalogue *c, const char *csv, size_t len, const char *where);
void fo_catalogue_fini(struct fo_catalogue *c);

/* Finds a row by name or alias; case does not matter. FO_EARG names the nearest rows; *out lives as long as c. */
FO_CHECKED fo_status fo_catalogue_find(const struct fo_catalogue *c, const char *name, const struct fo_device **out);
/* Finds the row of an accelerator by the name that a driver or a trace gives it ("NVIDIA H100 80GB HBM3"). NULL unless
 * exactly one row fits, or all that fit have the same dense peak: chip, form (SXM, PCIe, NVL), number of units (0: not
 * known) and memory (0) must not contradict each other. */
const struct fo_device *fo_device_match(const struct fo_catalogue *c, const char *name, int32_t sm_count,
					int64_t memory_bytes);
/* Device memory that a CUDA context with the code of cuBLASLt and cuDNN takes; users of Hopper report 0.5 to 0.7 GB.
 * For plans of devices that are not present; on a present one the free memory is read. */
#define FO_DEVICE_CONTEXT_BYTES ((int64_t)768 << 20)
/* Device memory that is left alone: libraries load code when a kernel first runs, graphs take some once they are made.
 * One part in 64 of the whole: of 150.7 GB 2.4, which with the context's own leaves the 147 that can be planned on. */
static inline int64_t fo_device_reserve(int64_t total_bytes) { return total_bytes / 64; }
/* The published dense peak in TFLOP/s; FO_EARG naming the published precisions when there is none. Never a guess. */
FO_CHECKED fo_status fo_device_peak(const struct fo_device *d, enum fo_precision p, double *tflops);

#endif
