#include "kernel/calibrate.h"
#include "base/clock.h"
#include "hw/profile.h"
#include "kernel/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Long enough that starting together costs little, short enough to fall between neighbours' loads. */
#define BURST_NS 500000
#define MAX_BURSTS 4096
/* The time for each set at the start of a run. */
#define RUN_SECONDS 1.0
/* A burst is clean when every thread had its processor for FO_QUIET_SHARE of it. With fewer clean bursts than
 * FO_PEAK_ENOUGH the result is used, with a warning in its source, but not kept. */
/* A set that reaches less than half of the best so far in its first ten bursts is not looked at for longer: instruction
 * sets differ by factors, and every second of this is a second before training starts. */
#define LOOKS 10
#define HOPELESS 0.5
/* A kept peak is looked at again and may only rise. The look ends with FO_PEAK_ENOUGH clean bursts of which none is
 * higher: that a lower one was kept by mistake would show in them, and every run starts with this. */
#define REFRESH_SECONDS 0.2
#define METHOD "register-only loop, random data, all threads at once, best of 0.5 ms bursts"

/* ---- measuring ---- */

static void measure(const struct fo_kernel_set *set, int dtype, int threads, double seconds, bool look,
		    struct fo_limits_peak *out)
{
	int64_t n = fo_measure_rounds(set, dtype, BURST_NS), begin = fo_now_ns();
	if (!n) /* the set has no unit of its own for this type */
		return;
	double *rate = fo_xmalloc(MAX_BURSTS * sizeof *rate), best = 0;
	int count = 0, clean = 0;
	for (; count < MAX_BURSTS; count++) {
		/* A busy machine gets four times as long for its first peak. */
		double spent = (double)(fo_now_ns() - begin) * 1e-9;
		double share;
		if (count && spent > (look || clean >= FO_PEAK_ENOUGH ? 1 : 4) * seconds)
			break;
		if (look && clean >= FO_PEAK_ENOUGH && best <= out->best_flop_s)
			break;
		if (count == LOOKS && best < HOPELESS * out->best_flop_s)
			break;
		rate[count] = fo_measure_peak(set, dtype, threads, n, &share);
		clean += share >= FO_QUIET_SHARE;
		if (rate[count] > best)
			best = rate[count];
	}
	if (best > out->best_flop_s) {
		out->best_flop_s = best;
		out->median_flop_s = fo_stats_median(rate, (size_t)count);
		out->bursts = count;
		out->clean_bursts = clean;
		snprintf(out->set, sizeof out->set, "%s", set->name);
	}
	free(rate);
}

static void measure_all(int dtype, int threads, double seconds, bool look, struct fo_limits_peak *c)
{
	for (int i = FO_ISA_COUNT - 1; i >= 0; i--) /* the fastest first */
		if (fo_kernel_sets[i] && fo_kernel_sets[i]->peak_burst && fo_kernel_sets[i]->have())
			measure(fo_kernel_sets[i], dtype, threads, seconds, look, c);
}

/* ---- the profile ---- */

/* Takes the kept peak. One of another processor, by another method, or from a time when the machine was busy does not
 * count. */
static bool known(const char *path, const char *cpu, struct fo_limits_peak *c)
{
	struct fo_limits m;
	if (fo_limits_read(path, &m) != FO_OK) {
		fo_err_clear(); /* absent or damaged: measured anew */
		return false;
	}
	const struct fo_limits_peak *p = fo_limits_peak(&m, c->dtype, c->threads);
	bool good = p && fo_limits_peak_sure(p) && !strcmp(m.cpu, cpu) && !strcmp(p->method, c->method);
	if (good)
		*c = *p;
	fo_limits_fini(&m);
	return good;
}

/* Raises the kept peak: another process may have found a higher one meanwhile. */
static void raise_peak(struct fo_limits *m, void *peak) { fo_limits_peak_raise(m, peak); }

fo_status fo_calibrate_peak(int dtype, int threads, double seconds, struct fo_limits_peak *out)
{
	struct fo_limits_peak c = { .threads = threads, .method = METHOD };
	struct fo_arena a = { 0 };
	char cpu[80];
	fo_cpu_name(cpu, sizeof cpu);
	snprintf(c.dtype, sizeof c.dtype, "%s", fo_dtype_name[dtype]);
	char *path = fo_limits_path(&a, cpu);
	fo_status st = FO_OK;
	bool kept = known(path, cpu, &c);
	double before = c.best_flop_s;
	measure_all(dtype, threads, kept && seconds > REFRESH_SECONDS ? REFRESH_SECONDS : seconds, kept, &c);
	if (c.best_flop_s <= 0)
		st = fo_fail(FO_EUNSUPPORTED, "no kernel set has a register-only loop for this processor, so its peak "
					      "is unknown and there is no MFU");
	if (st == FO_OK && (!kept || c.best_flop_s > before)) {
		fo_clock_utc(c.date);
		/* Without a cache (read-only home) the peak is measured each time: slower, not wrong. */
		if (fo_limits_peak_sure(&c) && fo_limits_update(path, cpu, raise_peak, &c) != FO_OK)
			fo_err_clear();
	}
	fo_arena_fini(&a);
	if (st == FO_OK)
		*out = c;
	return st;
}

void fo_calibrate_find_peak(enum fo_numerics precision, int threads, struct fo_peak *peak)
{
	struct fo_limits_peak c;
	const int most = fo_cpu_threads(), counted = threads < most ? threads : most;
	if (fo_calibrate_peak(precision == FO_PRECISION_BF16 ? FO_BF16 : FO_F32, counted, RUN_SECONDS, &c) != FO_OK) {
		snprintf(peak->source, sizeof peak->source, "%s", fo_err_text());
		return;
	}
	*peak = (struct fo_peak){ .flop_s = c.best_flop_s, .median_flop_s = c.median_flop_s };
	snprintf(peak->dtype, sizeof peak->dtype, "%s", c.dtype);
	const char *busy = fo_limits_peak_sure(&c) ? "" : " (machine too busy: may be low)";
	snprintf(peak->source, sizeof peak->source,
		 "measured on this machine %.10s: %s loop, %d thread%s, best of %d bursts%s", c.date, c.set, c.threads,
		 fo_plural(c.threads), c.bursts, busy);
}
