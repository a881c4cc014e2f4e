/* What an NVIDIA device does while something runs on it: clocks, power, energy, what holds its clock back. Through NVML
 * (libnvidia-ml.so.1, which comes with the driver), loaded at run time; no header of NVIDIA's is needed. Names,
 * constants and units are those of NVIDIA's "NVML API Reference" (version 13.0; all of them are in every driver since
 * 470).
 *
 * Nothing is guessed: what the driver does not tell is NAN or -1. The library is looked for in $FLATOUT_NVML (a file),
 * in the folders of $FLATOUT_CUDA_LIBRARIES, then where the system's loader finds it. Nothing is ever set or reset. Any
 * thread may call. */
#ifndef FO_HW_NVML_H
#define FO_HW_NVML_H

#include "base/schema.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fo_nvml_library {
	bool loaded;
	char file[256];
	char version[80]; /* of NVML; "" unknown */
	char driver[80];  /* "580.65.06"; "" unknown */
	char why[320];    /* in one sentence why it is not loaded; "" */
};
/* Loads it once per process and says what came of it. */
bool fo_nvml_library(struct fo_nvml_library *out);

/* Of the loaded library: its function of this name into *to (a pointer to a function), NULL: it has none; its words for
 * a result. */
void fo_nvml_symbol(const char *name, void *to);
const char *fo_nvml_error(int result);

typedef void *fo_nvml_device; /* nvmlDevice_t: valid as long as the process lives */
/* By PCI address, "0000:1b:00.0": CUDA's numbers of devices are others than NVML's. NULL: no library, or it does not
 * know the device. */
fo_nvml_device fo_nvml_find(const char *pci);

/* Bits of nvmlDeviceGetCurrentClocksEventReasons, by what they mean for a measurement. */
enum {
	FO_NVML_IDLE = 0x1,
	FO_NVML_POWER = 0x4 | 0x80,    /* the power limit; the power brake */
	FO_NVML_THERMAL = 0x20 | 0x40, /* software's and hardware's thermal slowdown */
	FO_NVML_OTHER = 0x8 | 0x10     /* a hardware slowdown; sync boost */
};
struct fo_nvml_now {
	double power_w, limit_w;
	double energy_j; /* since the driver was loaded */
	double sm_hz, sm_max_hz, memory_hz, memory_max_hz;
	double temperature_c;
	double busy;                             /* share of the last sampling period in which a kernel ran */
	int64_t memory_used_bytes, memory_bytes; /* -1 */
	int64_t reasons;                         /* bits; -1 */
};
void fo_nvml_read(fo_nvml_device d, struct fo_nvml_now *out);
/* "power limit, thermal slowdown (hardware)"; "none"; "not readable" for -1. Bits that the reference does not name are
 * given as a number. */
void fo_nvml_reasons_text(int64_t reasons, struct fo_str *out);

/* What share of a time something of the device was active, by its performance counters (nvml_gpm.h). */
enum fo_nvml_share {
	FO_NVML_SM,     /* a multiprocessor had work; mean over them */
	FO_NVML_TENSOR, /* a tensor pipe, of whatever type */
	FO_NVML_HMMA,   /* of it 16-bit products */
	FO_NVML_IMMA,   /* of it integer products */
	FO_NVML_DFMA,   /* of it fp64 products */
	FO_NVML_DRAM,   /* bytes moved over those that the memory could have moved */
	FO_NVML_SHARES
};

/* Means over `seconds`, weighted by time and clock, that is by cycles: clock times a share is then exactly what was
 * active per second. */
struct fo_nvml_active {
	double seconds; /* of intervals that lay wholly within the time to be counted (fo_nvml_watch_count); 0: none */
	double share[FO_NVML_SHARES]; /* NAN: not measured */
	double sm_hz;                 /* mean SM clock of the same intervals, idle or not; NAN */
	char why[160];                /* where share[FO_NVML_TENSOR] is NAN: in a clause, why; else "" */
};

/* What a device did over a time: read ten times a second by a thread of its own, because clocks move within steps.
 * Counters of activity are read five times a second: two reads must lie more than 100 ms apart. */
struct fo_nvml_use {
	double seconds;
	int64_t samples;
	double sm_hz, memory_hz; /* means over the samples in which the device was not idle; NAN */
	double joules, watts;    /* the energy counter's difference, and that over the seconds; NAN */
	double power_share, thermal_share, other_share; /* of those samples: the clock was held back by ...; NAN */
	double hottest_c;                               /* NAN */
	struct fo_nvml_active active;
};
struct fo_nvml_watch;
/* NULL where the thread cannot be started, or d is NULL. */
struct fo_nvml_watch *fo_nvml_watch_start(fo_nvml_device d);
void fo_nvml_watch_stop(struct fo_nvml_watch *w);    /* NULL: nothing */
void fo_nvml_watch_restart(struct fo_nvml_watch *w); /* forgets what it saw */
/* Whether the time from now on counts for `active`: yes from the start. Waits for nothing: cheap enough for each step.
 * w NULL: nothing. */
void fo_nvml_watch_count(struct fo_nvml_watch *w, bool on);
/* Since the last call, or since the start. w NULL: all NAN. */
struct fo_nvml_use fo_nvml_watch_sample(struct fo_nvml_watch *w);
/* Since the start, up to now. */
struct fo_nvml_use fo_nvml_watch_total(struct fo_nvml_watch *w);
extern const struct fo_schema fo_nvml_use_schema;

#endif
