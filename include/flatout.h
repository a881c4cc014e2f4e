/* flatout.h: counts a transformer's FLOPs and meters Model FLOPs Utilisation (MFU) in anybody's training loop.
 *
 *   flatout_model *model;
 *   flatout_meter *meter;
 *   double peak;                                        // dense FLOP/s of one device
 *   if (flatout_model_load("llama-3.1-8b", &model) || flatout_device_peak("h100", "bf16", &peak, NULL, 0) ||
 *       flatout_meter_create(model, 8192, peak, 64, &meter))
 *           errx(1, "%s", flatout_error());
 *   ... in the loop, once per step: flatout_meter_step(meter, tokens, seconds);
 *   ... printf("%.1f %%\n", 100 * flatout_meter_mfu(meter, FLATOUT_MFU, FLATOUT_MEDIAN));
 *
 * Build with `pkg-config --cflags --libs flatout`. Plain C99 and C++; no types but those below.
 *
 * Units: FLOP are counts, FLOP/s rates (1e12 of them are a TFLOP/s); seconds; tokens. An MFU is a fraction: 0.5 is 50
 * %. Errors: functions that can fail return a flatout_status, 0 for success, and set outputs only then (handles become
 * NULL otherwise). Functions that return a double give NaN instead. Both leave a sentence in flatout_error(). The
 * library never prints. One exception: if the system refuses the few kilobytes of bookkeeping that a call needs, a line
 * goes to standard error and the process ends with exit code 3. Ownership: what ..._load, ..._parse and ..._create give
 * is the caller's, to be given to the matching ..._free, which takes NULL too. Strings that the library returns are its
 * own: do not free them. Threads: any thread may call anything. A model may be used by many threads at once; a meter by
 * one at a time. Binary interface: libflatout.so.0 keeps these functions with these types. Enumerations may gain names
 * at their end. */
#ifndef FLATOUT_H
#define FLATOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FLATOUT_API __attribute__((visibility("default")))
#else
#define FLATOUT_API
#endif

typedef enum flatout_status {
	FLATOUT_OK = 0,
	FLATOUT_EARG = 1,         /* the caller asked for something that cannot be */
	FLATOUT_EFORMAT = 2,      /* a file's or text's content is not what it should be */
	FLATOUT_EIO = 3,          /* the file system said no; or no device catalogue was found */
	FLATOUT_ENOMEM = 4,       /* does not fit into memory */
	FLATOUT_EUNSUPPORTED = 5, /* understood, but this library cannot do it */
	FLATOUT_EBUG = 10         /* a mistake of the library's own */
} flatout_status;

/* "0.1.0": the version of the library that is loaded. The string lives as long as the process. */
FLATOUT_API const char *flatout_version(void);

/* What went wrong last on the calling thread, as a sentence without a full stop, control characters shown as \xNN; ""
 * before the first failure. Valid until the next failing call on this thread. Success does not clear it. */
FLATOUT_API const char *flatout_error(void);
/* What to do about it, or "". Valid as long as flatout_error()'s text. */
FLATOUT_API const char *flatout_hint(void);

/* ---- models ---- */

typedef struct flatout_model flatout_model;

/* The presets' names ("llama-3.1-8b"), i from 0 below the count; NULL for another i. */
FLATOUT_API int flatout_preset_count(void);
FLATOUT_API const char *flatout_preset_name(int i);

/* `name` is a preset, the path of a Hugging Face config.json, or of a folder that holds one. FLATOUT_EARG for an
 * unknown name (flatout_hint() has the nearest presets), FLATOUT_EIO for an unreadable file, FLATOUT_EFORMAT for a bad
 * one. */
FLATOUT_API flatout_status flatout_model_load(const char *name, flatout_model **out);
/* From the text of a config.json, `bytes` long (no NUL needed; at most 1 MiB). */
FLATOUT_API flatout_status flatout_model_parse(const char *json, size_t bytes, flatout_model **out);
FLATOUT_API void flatout_model_free(flatout_model *model);
/* The preset's name, the path that was loaded (of a long one the end), or "config.json" for a parsed text; control
 * characters shown as \xNN. Lives as long as the model. NULL for NULL. */
FLATOUT_API const char *flatout_model_name(const flatout_model *model);

typedef enum flatout_parameters {
	FLATOUT_TOTAL = 0,  /* every trainable weight, a tied head once */
	FLATOUT_ACTIVE = 1, /* those that one token uses; less than the total in a mixture of experts */
	FLATOUT_MATMUL =
		2, /* N_mm, those that multiply a token: active, without the embedding's look-up, with the head */
	FLATOUT_EMBEDDING = 3 /* the input embedding (and learned positions) */
} flatout_parameters;
/* A number of weights, exact up to 2^53. */
FLATOUT_API double flatout_model_parameters(const flatout_model *model, flatout_parameters which);

/* How model FLOPs are counted (docs/metrics.md); L layers, H heads, Q head dimension, S sequence length in tokens: */
typedef enum flatout_rule {
	FLATOUT_MFU = 0,        /* 6 N_mm + 12 L H Q S: attention as if it were not causal; the common convention */
	FLATOUT_MFU_CAUSAL = 1, /* 6 N_mm +  6 L H Q S: what a causal model needs */
	FLATOUT_MFU_6N = 2      /* 6 N_mm: without attention */
} flatout_rule;
/* FLOP per token, forward and backward, at sequence length `seq` (1 to 2^30 tokens). */
FLATOUT_API double flatout_model_flop_per_token(const flatout_model *model, int64_t seq, flatout_rule rule);

/* ---- devices ---- */

/* The published dense peak of one accelerator in FLOP/s. `device`: a name or alias of the catalogue ("h100", "mi300x";
 * `flatout devices` lists them), upper and lower case alike. `dtype`: fp32, tf32, fp16, bf16, fp8 or fp4. Where the
 * figure comes from is written to `source` ("NVIDIA H100 data sheet, 2026-08-22"), cut to `source_bytes` with its NUL;
 * source may be NULL. FLATOUT_EARG for an unknown device or type, or a peak that is not published: never a guess. Reads
 * the catalogue on each call (milliseconds): the built-in table, then $FLATOUT_DATA/devices.csv where that variable is
 * set, then $FLATOUT_DEVICES, a file of the caller's own rows. */
FLATOUT_API flatout_status flatout_device_peak(const char *device, const char *dtype, double *peak_flop_s, char *source,
					       size_t source_bytes);

/* ---- the meter ---- */

typedef struct flatout_meter flatout_meter;

/* A meter for one training run: sequence length in tokens (1 to 2^30), dense peak of one device in FLOP/s (from
 * flatout_device_peak or measured; above 0), number of devices (1 to 2^30) that work on a step. Keeps nothing of
 * `model`, which may be freed. */
FLATOUT_API flatout_status flatout_meter_create(const flatout_model *model, int64_t seq, double peak_flop_s,
						int64_t devices, flatout_meter **out);
FLATOUT_API void flatout_meter_free(flatout_meter *meter);

/* Adds one optimizer step: the tokens that all devices together trained on (count those with loss: padding is not
 * useful work) and its wall time in seconds, both above 0 and finite, at most 1e18 and 1e9. The whole loop counts, data
 * loading and logging too: measure from one step's end to the next one's. Takes 8 bytes per step, for the median. */
FLATOUT_API flatout_status flatout_meter_step(flatout_meter *meter, double tokens, double seconds);
/* Forgets all steps: after warm-up, compilation, an evaluation. */
FLATOUT_API void flatout_meter_reset(flatout_meter *meter);
/* Steps since the beginning or the last reset. -1 for NULL. */
FLATOUT_API int64_t flatout_meter_steps(const flatout_meter *meter);

typedef enum flatout_figure {
	FLATOUT_LAST = 0,   /* the newest step */
	FLATOUT_SMOOTH = 1, /* the newest steps: sums of tokens and of seconds that fade by 1/20 per step */
	FLATOUT_MEAN = 2,   /* all steps: the sum of tokens over the sum of seconds */
	FLATOUT_MEDIAN =
		3 /* the middle of all steps' own rates, unfiltered; takes time in proportion to n log n steps */
} flatout_figure;
/* MFU as a fraction of devices x peak. NaN (and FLATOUT_EARG's sentence) before the first step. A figure above 1 means
 * that tokens, seconds, devices or peak are wrong. */
FLATOUT_API double flatout_meter_mfu(const flatout_meter *meter, flatout_rule rule, flatout_figure figure);
/* Tokens per second of all devices together; NaN before the first step. */
FLATOUT_API double flatout_meter_tokens_per_second(const flatout_meter *meter, flatout_figure figure);

#ifdef __cplusplus
}
#endif

#endif
