#define _GNU_SOURCE /* gettid by syscall, pread */
#include "kernel/measure.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/retry.h"

#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Long enough for a rate of 1 %, short against the phases of a neighbour's load (a millisecond and more). */
#define BURST_NS 250000
/* Larger than any first-level cache, smaller than any second-level one of a processor with AVX2. */
enum { LINES_BYTES = 128 << 10, LINE = 64, PASSES = 16 };

int64_t fo_thread_cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t fo_measure_rounds(const struct fo_kernel_set *set, int dtype, int64_t ns)
{
	int64_t n = 1000;
	for (;;) {
		int64_t t0 = fo_now_ns();
		if (!(set->peak_burst(dtype, n) > 0))
			return 0;
		int64_t t = fo_now_ns() - t0;
		if (t > ns / 4 || n > (int64_t)1 << 40)
			return t > 0 ? (int64_t)((double)n * (double)ns / (double)t) + 1 : n;
		n *= 4;
	}
}

double fo_measure_peak(const struct fo_kernel_set *set, int dtype, int threads, int64_t n, double *share)
{
	double flop = 0;
	int64_t first = INT64_MAX, last = 0, least = INT64_MAX;
#pragma omp parallel num_threads(threads) reduction(+ : flop) reduction(min : first, least) reduction(max : last)
	{
		set->peak_burst(dtype, n / 20 + 1); /* wakes the unit before the clock starts */
#pragma omp barrier
		int64_t cpu = fo_thread_cpu_ns();
		first = fo_now_ns();
		flop = set->peak_burst(dtype, n);
		last = fo_now_ns();
		least = fo_thread_cpu_ns() - cpu;
	}
	/* The share counts the whole burst: threads that run one after the other have their processor, too. */
	*share = (double)least / (double)(last - first);
	return flop / ((double)(last - first) * 1e-9);
}

/* One load of each line: what moves is whole lines from the second-level cache, however wide a load is. */
static uint64_t walk(const unsigned char *p, int passes)
{
	uint64_t a = 0, b = 0, c = 0, d = 0;
	for (int k = 0; k < passes; k++) {
		for (int i = 0; i < LINES_BYTES; i += 4 * LINE) {
			a += *(const uint64_t *)(p + i);
			b += *(const uint64_t *)(p + i + LINE);
			c += *(const uint64_t *)(p + i + 2 * LINE);
			d += *(const uint64_t *)(p + i + 3 * LINE);
		}
		__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
	}
	return a + b + c + d;
}

void fo_meter_burst(struct fo_meter *m)
{
	double flop_s = 0, byte_s = 0, share = 1;
	/* Each thread times its own: forking on a busy machine takes longer than the burst. */
#pragma omp parallel num_threads(m->threads) reduction(+ : flop_s, byte_s) reduction(min : share)
	{
		const unsigned char *lines = m->lines + (size_t)omp_get_thread_num() * LINES_BYTES;
		m->set->peak_burst(m->dtype, m->rounds / 20 + 1); /* wakes the unit */
		int64_t cpu = fo_thread_cpu_ns(), t0 = fo_now_ns();
		double flop = m->set->peak_burst(m->dtype, m->rounds);
		int64_t t1 = fo_now_ns();
		walk(lines, 1); /* the span before has used the cache: a cold walk would say nothing about neighbours */
		int64_t t2 = fo_now_ns();
		walk(lines, PASSES);
		int64_t t3 = fo_now_ns();
		flop_s = flop / (double)(t1 - t0) * 1e9;
		byte_s = (double)LINES_BYTES * PASSES / (double)(t3 - t2 > 0 ? t3 - t2 : 1) * 1e9;
		share = (double)(fo_thread_cpu_ns() - cpu) / (double)(fo_now_ns() - t0);
	}
	m->last = (struct fo_burst){ flop_s, byte_s, share };
	m->warm = true;
	fo_burst_raise(&m->best, &m->last);
}

/* ---- time that threads waited for a processor ---- */

static void detach(struct fo_meter *m)
{
	for (int i = 0; i < m->nwaits; i++)
		if (m->waits[i] >= 0)
			close(m->waits[i]);
	m->nwaits = 0;
}

void fo_meter_attach(struct fo_meter *m)
{
	detach(m);
	m->nwaits = m->threads;
#pragma omp parallel num_threads(m->threads)
	{
		char path[64];
		snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", (long)syscall(SYS_gettid));
		m->waits[omp_get_thread_num()] = fo_open(path, O_RDONLY | O_CLOEXEC, 0);
	}
	m->warm = false;
}

/* Nanoseconds on the run queue, per thread: the second number of schedstat (Documentation/scheduler/sched-stats). */
static void read_waited(const struct fo_meter *m, double *out)
{
	for (int i = 0; i < m->nwaits; i++) {
		char text[96];
		unsigned long long ran, waited = 0;
		ssize_t n = m->waits[i] >= 0 ? pread(m->waits[i], text, sizeof text - 1, 0) : -1;
		text[n > 0 ? n : 0] = 0;
		out[i] = n > 0 && sscanf(text, "%llu %llu", &ran, &waited) == 2 ? (double)waited : 0;
	}
}

void fo_meter_span(struct fo_meter *m, void (*fn)(void *arg), void *arg, struct fo_quiet_span *out)
{
	if (!m->warm)
		fo_meter_burst(m);
	struct fo_quiet_span s = { .before = m->last };
	read_waited(m, m->waited);
	int64_t t0 = fo_now_ns();
	fn(arg);
	int64_t ns = fo_now_ns() - t0;
	read_waited(m, m->again);
	for (int i = 0; i < m->nwaits; i++) {
		double lost = (m->again[i] - m->waited[i]) / (double)(ns > 0 ? ns : 1);
		s.lost = lost > s.lost ? lost : s.lost;
	}
	fo_meter_burst(m);
	s.after = m->last;
	s.seconds = (double)(ns > 0 ? ns : 1) * 1e-9;
	*out = s;
}

struct fo_measured fo_measure_work(struct fo_meter *m, void (*fn)(void *arg), void *arg, double flop, double seconds,
				   int least)
{
	struct fo_measured r = { .quiet_ratio_median = NAN };
	struct fo_quiet_span *span = NULL;
	size_t cap = 0, n = 0, quiet = 0;
	fn(arg);
	fo_meter_idle(m);
	int64_t end = fo_now_ns() + (int64_t)(seconds * 1e9);
	do {
		fo_array_room(&span, &cap, n, sizeof *span);
		fo_meter_span(m, fn, arg, &span[n++]);
	} while (n < (size_t)least || fo_now_ns() < end);
	double *ratio = fo_xmalloc(3 * n * sizeof *ratio), *calm = ratio + n, *burst = calm + n;
	for (size_t i = 0; i < n; i++) {
		burst[i] = (span[i].before.flop_s + span[i].after.flop_s) / 2;
		ratio[i] = flop / span[i].seconds / burst[i];
		if (fo_quiet_is(&span[i], &m->best))
			calm[quiet++] = ratio[i];
	}
	r.time = fo_quiet_stats(span, n, &m->best);
	r.ratio_median = fo_stats_quantile(ratio, n, 0.5);
	r.ratio_best = fo_stats_quantile(ratio, n, 1);
	r.quiet_ratio_median = quiet ? fo_stats_quantile(calm, quiet, 0.5) : NAN;
	r.burst_flop_s_median = fo_stats_quantile(burst, n, 0.5);
	r.burst_flop_s_best = fo_stats_quantile(burst, n, 1);
	free(ratio);
	free(span);
	return r;
}

fo_status fo_meter_init(struct fo_meter *m, const struct fo_kernel_set *set, int dtype, int threads)
{
	*m = (struct fo_meter){ .set = set, .dtype = dtype, .threads = threads };
	if (set->peak_burst)
		m->rounds = fo_measure_rounds(set, dtype, BURST_NS);
	/* A set without a unit of its own for this type runs it on the unit of one below. */
	for (int i = set->isa - 1; !m->rounds && set->peak_burst && i >= 0; i--)
		if (fo_kernel_sets[i] && fo_kernel_sets[i]->peak_burst) {
			m->set = fo_kernel_sets[i];
			m->rounds = fo_measure_rounds(m->set, dtype, BURST_NS);
		}
	if (!m->rounds)
		return fo_fail(FO_EUNSUPPORTED, "kernel set '%s' has no register-only loop for %s", set->name,
			       fo_dtype_name[dtype]);
	size_t n = (size_t)threads;
	m->waits = fo_xmalloc(n * sizeof *m->waits);
	m->waited = fo_xmalloc(2 * n * sizeof *m->waited);
	m->again = m->waited + n;
	m->lines = aligned_alloc(LINE, n * LINES_BYTES);
	if (!m->lines) {
		fo_meter_fini(m);
		return fo_fail(FO_ENOMEM, "no %zu bytes for the cache probe", n * LINES_BYTES);
	}
	memset(m->lines, 1, n * LINES_BYTES); /* else every page is the one page of zeros */
	fo_meter_attach(m);
	return FO_OK;
}

void fo_meter_fini(struct fo_meter *m)
{
	detach(m);
	free(m->waits);
	free(m->waited);
	free(m->lines);
	*m = (struct fo_meter){ 0 };
}
