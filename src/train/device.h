/* The device that something runs on, as train.device (and --device of other commands) names it, and its peak. */
#ifndef FO_TRAIN_DEVICE_H
#define FO_TRAIN_DEVICE_H

#include "base/json.h"
#include "hw/catalogue.h"
#include "hw/nvml.h"
#include "kernel/cuda/cuda.h"
#include "pass/pass.h"
#include "program/run.h"
#include "timeline/timeline.h"

#include <math.h>

/* Opens the device that `text` names (fo_run_device_parse); the caller closes *out, NULL for the processor, with
 * fo_cuda_close. `auto` takes the first device that opens and is no software device; where a driver shows devices and
 * none of them opens, `why` (of `size` bytes) gets the reason as a sentence, else "". FO_EARG for other texts, and
 * fo_cuda_open's errors for a device that was named. */
FO_CHECKED fo_status fo_device_open(const char *text, struct fo_cuda **out, char *why, size_t size);

/* Sets how the device chooses algorithms of matmuls from now on, with the user's cache (fo_cuda_tune_set): as
 * train.tune of the run says; r NULL, for commands that take no run: those that are kept. */
FO_CHECKED fo_status fo_device_tune(struct fo_cuda *c, const struct fo_run *r);
/* Fields of an open JSON object: mode (what train.tune says), measured, kept, proposed, seconds, gain, note (struct
 * fo_cuda_tuned). */
void fo_device_tuned_json(const struct fo_cuda_tuned *t, const struct fo_run *r, struct fo_json *j);

/* The denominator of MFU: measured on the processor (c NULL) with these threads, else as fo_device_find_peak. */
void fo_train_peak(struct fo_cuda *c, enum fo_numerics precision, int threads, struct fo_peak *out);
/* Dense peak of the device's row in the catalogue (fo_device_match) for matmuls of this precision: bf16's even where
 * some are fp8, fp32's by the vector units. Where there is none, and for a software device, flop_s is 0 and source has
 * the reason. */
void fo_device_find_peak(const struct fo_cuda_device *d, enum fo_numerics precision, struct fo_peak *out);

/* A peak that is not known is NaN in figures. */
static inline double fo_peak_or_nan(const struct fo_peak *p) { return p->flop_s > 0 ? p->flop_s : NAN; }

/* The rates that choices on this device are made with, from its row in the catalogue (fo_choose_device). */
struct fo_choose_rates fo_device_choose_rates(const struct fo_cuda_device *d, enum fo_numerics precision);

/* SM clock at which the device would reach `flop_s` dense: flop_s / (multiprocessors x FLOP that one does per cycle).
 * FLOP per cycle and multiprocessor are the vendor's peaks over units and boost clocks (NVIDIA's architecture papers):
 * for dense bf16 matmuls 2048 (compute capability 8.0), 4096 (9.0), 8192 (10.0), for fp32 128 (8.0), 256 (9.0, 10.0).
 * NaN for other devices. */
double fo_device_clock_of_peak(const struct fo_cuda_device *d, enum fo_numerics precision, double flop_s);

/* MFU in factors (timeline.h). peak_flop_s: the peak of mfu; u: the device's state meanwhile. */
struct fo_mfu_split fo_device_split(const struct fo_cuda_device *d, enum fo_numerics precision,
				    const struct fo_mfu *mfu, double peak_flop_s, const struct fo_nvml_use *u);

#endif
