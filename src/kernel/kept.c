#include "kernel/kept.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cost/cost.h"
#include "kernel/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The memory that is left alone: four times the second level, so that its first half is in that no more when its end
 * was read. Of that half some lines are read again, each by what the one before says, in no order that a prefetcher
 * could guess: so it is the latency that tells where they are, also where memory streams as fast as a cache. */
enum { TIMES_SECOND = 4, LINE = 64, LINES = 2048, GAPS = 7, SPANS_LEAST = 3, SPANS_MOST = 40 };
static const int64_t gap_us[GAPS] = { 1, 1000, 3000, 10000, 30000, 100000, 300000 };

struct kept {
	unsigned char *memory;
	size_t bytes;
	double taken[GAPS + 1][SPANS_MOST]; /* the last: out of all caches */
	int spans[GAPS + 1];
};

static double now_s(void) { return (double)fo_now_ns() * 1e-9; }

/* Every line of the chain holds where the next one is; the chain ends where it began. */
static void link_lines(struct kept *k)
{
	const size_t lines = k->bytes / 2 / LINE, every = lines / LINES;
	size_t order[LINES];
	for (size_t i = 0; i < LINES; i++)
		order[i] = i * every + fo_rng_u64(5, i) % every;
	for (size_t i = LINES; i > 1; i--) { /* Fisher and Yates */
		const size_t j = (size_t)(fo_rng_u64(6, i) % i), x = order[i - 1];
		order[i - 1] = order[j];
		order[j] = x;
	}
	for (size_t i = 0; i < LINES; i++) {
		const size_t next = order[(i + 1) % LINES] * LINE;
		memcpy(k->memory + order[i] * LINE, &next, sizeof next);
	}
	memcpy(k->memory + k->bytes - LINE, &(size_t){ order[0] * LINE }, sizeof(size_t));
}

/* Seconds of the chain. gap: place in gap_us, GAPS: out of all caches. */
static double span(const struct kept *k, int gap)
{
	size_t at;
	memcpy(&at, k->memory + k->bytes - LINE, sizeof at);
	fo_cache_fetch(k->memory, 1, k->bytes, k->bytes, 1);
	if (gap == GAPS)
		(void)fo_cache_evict(k->memory, 1, k->bytes, k->bytes, 1);
	else
		nanosleep(&(struct timespec){ .tv_nsec = (long)(gap_us[gap] * 1000) }, NULL);
	const double begin = now_s();
	for (int i = 0; i < LINES; i++)
		memcpy(&at, k->memory + at, sizeof at);
	__asm__ volatile("" : : "r"(at));
	return now_s() - begin;
}

static void keep_rows(struct kept *k, int64_t second, struct fo_limits *m)
{
	size_t kept = 0;
	for (size_t i = 0; i < m->rows; i++)
		if (strcmp(m->row[i].kind, FO_KEPT_ROW) != 0)
			m->row[kept++] = m->row[i];
	m->rows = kept;
	for (int g = 0; g <= GAPS; g++) {
		struct fo_limits_row row = { .threads = 1, .cold = NAN };
		if (!k->spans[g])
			continue;
		snprintf(row.kind, sizeof row.kind, FO_KEPT_ROW);
		snprintf(row.variant, sizeof row.variant, "%s", g < GAPS ? FO_KEPT_LEFT : FO_KEPT_NOT);
		snprintf(row.dtype, sizeof row.dtype, "-");
		snprintf(row.set, sizeof row.set, "-");
		fo_clock_utc(row.date);
		row.dim[0] = g < GAPS ? gap_us[g] : 1;
		row.dim[1] = second;
		row.time = (struct fo_quiet_stats){ .spans = k->spans[g], .quiet_best_s = NAN, .quiet_median_s = NAN };
		row.time.best_s = fo_stats_quantile(k->taken[g], (size_t)k->spans[g], 0);
		row.time.median_s = fo_stats_quantile(k->taken[g], (size_t)k->spans[g], 0.5);
		fo_limits_row_add(m, &row);
	}
}

fo_status fo_kept_measure(double seconds, struct fo_limits *m)
{
	const int64_t second = fo_cache_second_bytes();
	/* Memory that does not fit into the last level is not kept there. Half of it has room for the whole chain. */
	if (TIMES_SECOND * second / 2 < LINES * LINE || 2 * TIMES_SECOND * second > fo_cache_bytes())
		return FO_OK;
	struct kept *k = fo_xmalloc(sizeof *k);
	k->bytes = TIMES_SECOND * (size_t)second;
	fo_status st = fo_pages_new(k->bytes, (void **)&k->memory);
	if (st == FO_OK && fo_cache_evict(k->memory, 1, LINE, LINE, 1)) {
		memset(k->memory, 1, k->bytes); /* pages that nobody wrote are all the same one */
		link_lines(k);
		const double begin = now_s();
		/* The longest waits as often as there is time for, all others at least some times. */
		for (int round = 0; round < SPANS_MOST; round++)
			for (int g = 0; g <= GAPS; g++) {
				const double gap = g < GAPS ? (double)gap_us[g] * 1e-6 : 0, spent = now_s() - begin;
				if (spent + gap > seconds && (round >= SPANS_LEAST || SPANS_LEAST * gap > seconds))
					continue;
				k->taken[g][k->spans[g]++] = span(k, g);
			}
		keep_rows(k, second, m);
	}
	if (st == FO_OK)
		fo_pages_free(k->memory, k->bytes);
	free(k);
	return st;
}
