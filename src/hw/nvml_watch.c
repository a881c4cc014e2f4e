/* A thread that reads a device ten times a second. */
#include "hw/nvml.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

/* The driver renews power and clocks some ten to fifty times a second (nvidia-smi's dmon reads once a second): more would read the same
 * value twice, less would miss what happens within a step. */
#define PERIOD_NS 100000000

/* Sums over samples; each reading counts apart, since a device may tell one and not another. */
struct sums {
	int64_t begin_ns, samples, clocks, memory_clocks, reasons, power, thermal, other;
	double sm_hz, memory_hz, hottest_c, energy_begin_j;
};
struct fo_nvml_watch {
	fo_nvml_device device;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool quit;          /* this and below guarded by lock */
	double energy_j;    /* of the newest sample */
	int64_t when_ns;
	struct sums all, part;
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
	add(&w->all, &n);
	add(&w->part, &n);
	pthread_mutex_unlock(&w->lock);
}

static void *watch(void *arg)
{
	struct fo_nvml_watch *w = arg;
	bool quit = false;
	while (!quit) {
		struct timespec until;
		look(w);
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

static struct sums fresh(double energy_j) { return (struct sums){ .begin_ns = fo_now_ns(), .hottest_c = NAN, .energy_begin_j = energy_j }; }

struct fo_nvml_watch *fo_nvml_watch_start(fo_nvml_device d)
{
	struct fo_nvml_now n;
	pthread_condattr_t attr;
	sigset_t all, before;
	if (!d)
		return NULL;
	struct fo_nvml_watch *w = fo_xmalloc(sizeof *w);
	fo_nvml_read(d, &n);
	*w = (struct fo_nvml_watch){ .device = d, .energy_j = n.energy_j, .when_ns = fo_now_ns() };
	w->all = w->part = fresh(n.energy_j);
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_condattr_destroy(&attr);
	sigfillset(&all); /* signals are for the main thread */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&w->thread, NULL, watch, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		return w;
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
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
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

void fo_nvml_watch_restart(struct fo_nvml_watch *w)
{
	if (!w)
		return;
	look(w);
	pthread_mutex_lock(&w->lock);
	w->all = w->part = fresh(w->energy_j);
	pthread_mutex_unlock(&w->lock);
}

static double mean(double sum, int64_t n) { return n ? sum / (double)n : NAN; }

static struct fo_nvml_use use_of(const struct fo_nvml_watch *w, const struct sums *s)
{
	double seconds = (double)(w->when_ns - s->begin_ns) * 1e-9, joules = w->energy_j - s->energy_begin_j;
	if (!(joules >= 0)) /* a counter that went back: the driver was loaded anew */
		joules = NAN;
	return (struct fo_nvml_use){ .seconds = seconds > 0 ? seconds : 0,
				     .samples = s->samples,
				     .sm_hz = mean(s->sm_hz, s->clocks),
				     .memory_hz = mean(s->memory_hz, s->memory_clocks),
				     .joules = joules,
				     .watts = seconds > 0 ? joules / seconds : NAN,
				     .power_share = mean((double)s->power, s->reasons),
				     .thermal_share = mean((double)s->thermal, s->reasons),
				     .other_share = mean((double)s->other, s->reasons),
				     .hottest_c = s->hottest_c };
}

static struct fo_nvml_use unknown(void)
{
	return (struct fo_nvml_use){ .sm_hz = NAN, .memory_hz = NAN, .joules = NAN, .watts = NAN, .power_share = NAN, .thermal_share = NAN,
				     .other_share = NAN, .hottest_c = NAN };
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

void fo_nvml_use_json(const struct fo_nvml_use *u, struct fo_json *j)
{
	fo_json_real(j, "seconds", u->seconds);
	fo_json_int(j, "samples", u->samples);
	fo_json_real(j, "sm_clock_hz", u->sm_hz);
	fo_json_real(j, "memory_clock_hz", u->memory_hz);
	fo_json_real(j, "joules", u->joules);
	fo_json_real(j, "watts", u->watts);
	fo_json_real(j, "throttled_power", u->power_share);
	fo_json_real(j, "throttled_thermal", u->thermal_share);
	fo_json_real(j, "throttled_other", u->other_share);
	fo_json_real(j, "hottest_c", u->hottest_c);
}
