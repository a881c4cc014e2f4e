/* Reads clocks, power and energy of a working NVIDIA device, and what holds its clock back. Uses NVML
 * (libnvidia-ml.so.1, which comes with the driver), loaded at run time; no header of NVIDIA's is needed. Names,
 * constants and units are those of NVIDIA's "NVML API Reference" (version 13.0; every driver since 470 has them).
 *
 * Nothing is guessed: what the driver does not report is NAN or -1. The library is looked for in $FLATOUT_NVML (a
 * file), in the folders of $FLATOUT_CUDA_LIBRARIES, then where the system's loader finds it. Nothing is ever set or
 * reset. Any thread may call. */
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
/* Loads NVML once per process and reports the outcome; returns whether it is loaded. */
bool fo_nvml_library(struct fo_nvml_library *out);

/* Looks up a function of the loaded library: *to (a pointer to a function) becomes NULL where there is none. */
void fo_nvml_symbol(const char *name, void *to);
const char *fo_nvml_error(int result); /* the library's words for a result */

typedef void *fo_nvml_device; /* nvmlDevice_t: valid as long as the process lives */
/* Finds a device by its PCI address ("0000:1b:00.0"), because CUDA and NVML number devices differently. NULL: no
 * library, or it does not know the device. */
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

/* Shares of time in which a part of the device was active, by its performance counters (nvml_gpm.h). */
enum fo_nvml_share {
	FO_NVML_SM,     /* a multiprocessor had work; mean over them */
	FO_NVML_TENSOR, /* a tensor pipe, of whatever type */
	FO_NVML_HMMA,   /* of it 16-bit matmuls */
	FO_NVML_IMMA,   /* of it integer matmuls */
	FO_NVML_DFMA,   /* of it fp64 matmuls */
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

/* Use of a device over a time. A thread samples it ten times a second, because clocks move within steps.
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
/* Starts watching. NULL where the thread cannot be started, or d is NULL. */
struct fo_nvml_watch *fo_nvml_watch_start(fo_nvml_device d);
void fo_nvml_watch_stop(struct fo_nvml_watch *w);    /* NULL: nothing */
void fo_nvml_watch_restart(struct fo_nvml_watch *w); /* forgets what it saw */
/* Sets whether the time from now on counts for `active` (from the start it does). Never waits, so it is cheap enough
 * for each step. w NULL: does nothing. */
void fo_nvml_watch_count(struct fo_nvml_watch *w, bool on);
/* Use since the last call, or since the start. w NULL: all NAN. */
struct fo_nvml_use fo_nvml_watch_sample(struct fo_nvml_watch *w);
/* Use since the start. w NULL: all NAN. */
struct fo_nvml_use fo_nvml_watch_total(struct fo_nvml_watch *w);
extern const struct fo_schema fo_nvml_use_schema;

#endif
