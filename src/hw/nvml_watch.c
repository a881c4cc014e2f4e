/* A thread that reads a device ten times a second. */
#include "hw/nvml_gpm.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The driver renews power and clocks some ten to fifty times a second (nvidia-smi's dmon reads once a second): more
 * would read the same value twice, less would miss what happens within a step. */
#define PERIOD_NS 100000000
/* Two reads of counters: more than the 100 ms that NVIDIA's header asks for, so every second look. */
#define COUNTERS_NS 150000000

/* Sums of intervals between reads of counters: of those whose clock is known by cycles, and of all by time. */
struct weighted {
	double seconds, weight[FO_NVML_SHARES], sum[FO_NVML_SHARES];
};
/* Sums over samples; each reading counts apart, since a device may tell one and not another. */
struct sums {
	int64_t begin_ns, samples, clocks, memory_clocks, reasons, power, thermal, other;
	double sm_hz, memory_hz, hottest_c, energy_begin_j;
	struct weighted cycles, time;
	double cycles_hz; /* clock x seconds of `cycles` */
	int64_t left_out; /* intervals that did not count */
};
struct fo_nvml_watch {
	fo_nvml_device device;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool quit;       /* this and below guarded by lock */
	double energy_j; /* of the newest sample */
	int64_t when_ns;
	struct sums all, part;
	char why[160]; /* the last failure to read counters; "" */
	/* Clocks read since the last read of counters, idle or not: their sum and number. */
	double hz;
	int64_t hzs;
	/* Members that only the watching thread uses. */
	struct fo_nvml_gpm *gpm; /* NULL: no counters */
	int64_t counters_ns;     /* when they were read last */
	unsigned changes_then;
	/* Written by any thread. Even: the time counts. Each change adds one, so that an interval with a change in it
	 * is recognised. */
	atomic_uint changes;
};

static void add(struct sums *s, const struct fo_nvml_now *n)
{
	s->samples++;
	if (!isnan(n->temperature_c) && !(n->temperature_c <= s->hottest_c))
		s->hottest_c = n->temperature_c;
	if (n->reasons >= 0 && n->reasons & FO_NVML_IDLE)
		return; /* the clock of a device that waits says nothing about work */
	if (!isnan(n->sm_hz))
		s->sm_hz += n->sm_hz, s->clocks++;
	if (!isnan(n->memory_hz))
		s->memory_hz += n->memory_hz, s->memory_clocks++;
	if (n->reasons < 0)
		return;
	s->reasons++;
	s->power += (n->reasons & FO_NVML_POWER) != 0;
	s->thermal += (n->reasons & FO_NVML_THERMAL) != 0;
	s->other += (n->reasons & FO_NVML_OTHER) && !(n->reasons & (FO_NVML_POWER | FO_NVML_THERMAL));
}

static void look(struct fo_nvml_watch *w)
{
	struct fo_nvml_now n;
	fo_nvml_read(w->device, &n);
	pthread_mutex_lock(&w->lock);
	w->energy_j = n.energy_j;
	w->when_ns = fo_now_ns();
	if (n.sm_hz > 0)
		w->hz += n.sm_hz, w->hzs++;
	add(&w->all, &n);
	add(&w->part, &n);
	pthread_mutex_unlock(&w->lock);
}

static void add_shares(struct weighted *to, const double share[FO_NVML_SHARES], double seconds, double hz)
{
	to->seconds += seconds;
	for (int i = 0; i < FO_NVML_SHARES; i++)
		if (!isnan(share[i])) {
			to->weight[i] += seconds * hz;
			to->sum[i] += share[i] * seconds * hz;
		}
}

static void add_interval(struct sums *s, const double share[FO_NVML_SHARES], double seconds, double hz)
{
	add_shares(&s->time, share, seconds, 1);
	if (isnan(hz))
		return;
	add_shares(&s->cycles, share, seconds, hz);
	s->cycles_hz += hz * seconds;
}

/* Counters since the last read, if it is long enough ago and all of the time since then counts. */
static void look_at_counters(struct fo_nvml_watch *w)
{
	double share[FO_NVML_SHARES];
	char why[sizeof w->why] = "";
	int64_t begin = w->counters_ns, now = fo_now_ns();
	if (!w->gpm || now - begin < COUNTERS_NS)
		return;
	unsigned then = w->changes_then;
	bool told = fo_nvml_gpm_read(w->gpm, share, why, sizeof why);
	w->counters_ns = now;
	w->changes_then = atomic_load(&w->changes);
	bool counts = then % 2 == 0 && then == w->changes_then;
	pthread_mutex_lock(&w->lock);
	double hz = w->hzs ? w->hz / (double)w->hzs : NAN;
	w->hz = 0;
	w->hzs = 0;
	snprintf(w->why, sizeof w->why, "%s", why);
	if (told && counts) {
		add_interval(&w->all, share, 1e-9 * (double)(now - begin), hz);
		add_interval(&w->part, share, 1e-9 * (double)(now - begin), hz);
	} else if (told) {
		w->all.left_out++;
		w->part.left_out++;
	}
	pthread_mutex_unlock(&w->lock);
}

static void *watch(void *arg)
{
	struct fo_nvml_watch *w = arg;
	bool quit = false;
	while (!quit) {
		struct timespec until;
		look(w);
		look_at_counters(w);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += PERIOD_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_mutex_lock(&w->lock);
		while (!w->quit && pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT)
			;
		quit = w->quit;
		pthread_mutex_unlock(&w->lock);
	}
	return NULL;
}

static struct sums fresh(double energy_j)
{
	return (struct sums){ .begin_ns = fo_now_ns(), .hottest_c = NAN, .energy_begin_j = energy_j };
}

static void discard(struct fo_nvml_watch *w)
{
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	fo_nvml_gpm_close(w->gpm);
	free(w);
}

struct fo_nvml_watch *fo_nvml_watch_start(fo_nvml_device d)
{
	struct fo_nvml_now n;
	pthread_condattr_t attr;
	if (!d)
		return NULL;
	struct fo_nvml_watch *w = fo_xmalloc(sizeof *w);
	fo_nvml_read(d, &n);
	*w = (struct fo_nvml_watch){ .device = d, .energy_j = n.energy_j, .when_ns = fo_now_ns() };
	w->all = w->part = fresh(n.energy_j);
	w->gpm = fo_nvml_gpm_open(d, w->why, sizeof w->why);
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_condattr_destroy(&attr);
	if (fo_thread_start(&w->thread, watch, w, "the thread that reads clocks and power") == FO_OK)
		return w;
	fo_err_clear();
	discard(w);
	return NULL;
}

void fo_nvml_watch_stop(struct fo_nvml_watch *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->quit = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	discard(w);
}

void fo_nvml_watch_count(struct fo_nvml_watch *w, bool on)
{
	if (w && (atomic_load(&w->changes) % 2 == 0) != on) /* one thread tells */
		atomic_fetch_add(&w->changes, 1);
}

void fo_nvml_watch_restart(struct fo_nvml_watch *w)
{
	if (!w)
		return;
	look(w);
	atomic_fetch_add(&w->changes, 2); /* the interval that is under way began before */
	pthread_mutex_lock(&w->lock);
	w->all = w->part = fresh(w->energy_j);
	pthread_mutex_unlock(&w->lock);
}

static double mean(double sum, int64_t n) { return n ? sum / (double)n : NAN; }

static struct fo_nvml_active active_of(const struct fo_nvml_watch *w, const struct sums *s)
{
	const struct weighted *by = s->cycles.seconds > 0 ? &s->cycles : &s->time;
	struct fo_nvml_active a = { .seconds = by->seconds,
				    .sm_hz = s->cycles.seconds > 0 ? s->cycles_hz / s->cycles.seconds : NAN };
	for (int i = 0; i < FO_NVML_SHARES; i++)
		a.share[i] = by->weight[i] > 0 ? by->sum[i] / by->weight[i] : NAN;
	/* Multiprocessors that never had work in all of the time: counters that stand still say that of a device that
	 * works, too. */
	bool still = by->seconds > 0 && a.share[FO_NVML_SM] == 0;
	for (int i = 0; i < FO_NVML_SHARES && still; i++)
		a.share[i] = NAN;
	if (!isnan(a.share[FO_NVML_TENSOR]))
		return a;
	const char *why = "it ran for less than the time between two reads";
	if (still)
		why = "the device's counters stand still";
	else if (*w->why)
		why = w->why;
	else if (by->seconds > 0)
		why = "NVML tells no share of it between 0 and 100 %";
	else if (s->left_out)
		why = "no fifth of a second lay within steps alone";
	snprintf(a.why, sizeof a.why, "%s", why);
	return a;
}

static struct fo_nvml_use use_of(const struct fo_nvml_watch *w, const struct sums *s)
{
	double seconds = (double)(w->when_ns - s->begin_ns) * 1e-9, joules = w->energy_j - s->energy_begin_j;
	if (!(joules >= 0)) /* a counter that went back: the driver was loaded anew */
		joules = NAN;
	return (struct fo_nvml_use){ .seconds = fmax(seconds, 0),
				     .samples = s->samples,
				     .sm_hz = mean(s->sm_hz, s->clocks),
				     .memory_hz = mean(s->memory_hz, s->memory_clocks),
				     .joules = joules,
				     .watts = seconds > 0 ? joules / seconds : NAN,
				     .power_share = mean((double)s->power, s->reasons),
				     .thermal_share = mean((double)s->thermal, s->reasons),
				     .other_share = mean((double)s->other, s->reasons),
				     .hottest_c = s->hottest_c,
				     .active = active_of(w, s) };
}

static struct fo_nvml_use unknown(void)
{
	return (struct fo_nvml_use){ .sm_hz = NAN,
				     .memory_hz = NAN,
				     .joules = NAN,
				     .watts = NAN,
				     .power_share = NAN,
				     .thermal_share = NAN,
				     .other_share = NAN,
				     .hottest_c = NAN,
				     .active = { .share = { NAN, NAN, NAN, NAN, NAN, NAN },
						 .sm_hz = NAN,
						 .why = "NVML does not know the device" } };
}

struct fo_nvml_use fo_nvml_watch_sample(struct fo_nvml_watch *w)
{
	if (!w)
		return unknown();
	look(w); /* energy up to this moment */
	pthread_mutex_lock(&w->lock);
	struct fo_nvml_use u = use_of(w, &w->part);
	w->part = fresh(w->energy_j);
	pthread_mutex_unlock(&w->lock);
	return u;
}

struct fo_nvml_use fo_nvml_watch_total(struct fo_nvml_watch *w)
{
	if (!w)
		return unknown();
	look(w);
	pthread_mutex_lock(&w->lock);
	struct fo_nvml_use u = use_of(w, &w->all);
	pthread_mutex_unlock(&w->lock);
	return u;
}

#define USE(m, ...) FO_FIELD(struct fo_nvml_use, m, __VA_ARGS__)
#define ACTIVE(i, key, means) USE(active.share[i], key, "share of cycles", means)

static const struct fo_schema_field use_field[] = {
	USE(seconds, "seconds", "s", "how long the device was watched"),
	USE(samples, "samples", "", "samples taken, ten a second"),
	USE(sm_hz, "sm_clock_hz", "Hz", "mean clock of the multiprocessors while not idle"),
	USE(memory_hz, "memory_clock_hz", "Hz", "mean clock of the memory while not idle"),
	USE(joules, "joules", "J", "energy"),
	USE(watts, "watts", "W", "mean power"),
	USE(power_share, "throttled_power", "share of samples", "power held the clock back (of samples not idle)"),
	USE(thermal_share, "throttled_thermal", "share of samples", "heat held the clock back (of samples not idle)"),
	USE(other_share, "throttled_other", "share of samples", "something else held it back (of samples not idle)"),
	USE(hottest_c, "hottest_c", "C", "highest temperature"),
	ACTIVE(FO_NVML_SM, "sm_active", "a multiprocessor had work; mean over them, within steps"),
	ACTIVE(FO_NVML_TENSOR, "tensor_active", "a tensor pipe of whatever type, within steps"),
	ACTIVE(FO_NVML_HMMA, "tensor_hmma", "of it 16-bit matmuls"),
	ACTIVE(FO_NVML_IMMA, "tensor_imma", "of it integer matmuls"),
	ACTIVE(FO_NVML_DFMA, "tensor_dfma", "of it fp64 matmuls"),
	ACTIVE(FO_NVML_DRAM, "dram_active", "bytes moved over those that the memory could have moved, within steps"),
	USE(active.seconds, "active_seconds", "s", "time that these shares cover"),
	USE(active.sm_hz, "active_clock_hz", "Hz", "mean clock of the multiprocessors in that time"),
	USE(active.why, "active_why", "", "why `tensor_active` is null", .flags = FO_NULLS | FO_VISIBLE),
};
const struct fo_schema fo_nvml_use_schema = { "", "use of a device", FO_FIELDS(struct fo_nvml_use, use_field) };
