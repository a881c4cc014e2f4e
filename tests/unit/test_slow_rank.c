/* Who is slower than all others: by made-up work of ranks, by the marks that ranks leave while a made-up clock goes on,
 * and by recorded timelines. Nothing here is timed. */
#include "base/count.h"
#include "base/rng.h"
#include "record/rank_state_int.h"
#include "record/rank_where.h"
#include "timeline/ranks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS_MOST = 16, WINDOWS_MOST = 64 };
static double own[RANKS_MOST * WINDOWS_MOST], step[WINDOWS_MOST];
static uint64_t drawn;
static double uniform(void) { return (double)(fo_rng_u64(20261128, drawn++) >> 11) * 0x1p-53; }

/* Ranks that are alike: each works 10 ms, and noise of `spread` of that. */
static void alike(int ranks, int windows, double spread)
{
	for (int i = 0; i < ranks * windows; i++)
		own[i] = 0.010 * (1 + spread * uniform());
	for (int w = 0; w < windows; w++) {
		step[w] = 0;
		for (int r = 0; r < ranks; r++)
			step[w] = fmax(step[w], own[r * windows + w]);
	}
}

static struct fo_slow_rank find(int ranks, int windows)
{
	struct fo_slow_rank s;
	fo_slow_rank_find(&s, own, step, ranks, windows);
	return s;
}

static void test_named(void **state)
{
	(void)state;
	struct fo_slow_rank s;
	alike(4, 20, 0.05);
	for (int w = 0; w < 20; w++) {
		own[2 * 20 + w] = 0.016;
		step[w] = 0.020;
	}
	s = find(4, 20);
	assert_true(s.known && s.rank == 2 && s.slowest == 20 && s.windows == 20);
	assert_true(s.own_s == 0.016 && s.step_s == 0.020);
	assert_true(s.other_s > 0.010 && s.other_s < 0.0106 && fabs(s.lost_s - (0.016 - s.other_s)) < 1e-4);
	/* Two that are as slow as each other: neither is slower than all others. */
	for (int w = 0; w < 20; w++)
		own[1 * 20 + w] = 0.016;
	s = find(4, 20);
	assert_true(s.known && s.rank == -1 && s.lost_s <= 0);
	/* In most windows, by chance in some not: a rank whose work comes in fits, as under a quota. */
	alike(2, 30, 0.3);
	for (int w = 0; w < 30; w++) {
		own[30 + w] = w % 6 ? 0.030 : 0.009;
		step[w] = 0.040;
	}
	s = find(2, 30);
	assert_true(s.known && s.rank == 1 && s.slowest == 25);
}

static void test_small(void **state)
{
	(void)state;
	struct fo_slow_rank s;
	/* Always the slowest, by too little. */
	alike(3, 40, 0.01);
	for (int w = 0; w < 40; w++)
		own[w] = 0.0106, step[w] = 0.0110;
	s = find(3, 40);
	assert_true(s.known && s.rank == -1 && s.slowest == 40 && s.lost_s > 0);
	/* The border is a step that is 1.1 times as long for it. */
	for (int w = 0; w < 40; w++)
		own[40 + w] = own[80 + w] = 0.0100;
	for (int w = 0; w < 40; w++)
		own[w] = step[w] = 0.01099;
	assert_true(find(3, 40).rank == -1);
	for (int w = 0; w < 40; w++)
		own[w] = step[w] = 0.01101;
	assert_true(find(3, 40).rank == 0);
}

static void test_too_little(void **state)
{
	(void)state;
	for (int ranks = 2; ranks <= RANKS_MOST; ranks *= 2) {
		int needed = 0;
		for (int windows = 0; windows <= 20; windows++) {
			alike(ranks, windows, 0);
			for (int w = 0; w < windows; w++)
				own[w] = step[w] = 0.1;
			struct fo_slow_rank s = find(ranks, windows);
			assert_true(s.known == (s.rank == 0) && s.windows == windows);
			assert_true(s.known == (windows >= s.needed));
			needed = s.needed;
		}
		/* All of n fair coins, for any of the ranks: ranks / 2^n. */
		assert_int_equal(needed, (int)floor(log2(ranks / FO_SLOW_RANK_CHANCE)) + 1);
	}
	/* One rank has no others. */
	assert_true(find(1, 0).known && find(1, 0).rank == -1);
	/* Nothing but zeros. */
	memset(own, 0, sizeof own);
	memset(step, 0, sizeof step);
	assert_true(find(4, 30).known && find(4, 30).rank == -1);
}

/* Ranks that are alike, with noise that is as large as it gets: seldom is one named. */
static void test_nobody(void **state)
{
	(void)state;
	enum { TRIALS = 20000 };
	int named = 0;
	for (int t = 0; t < TRIALS; t++) {
		const int ranks = 2 + (int)(7 * uniform()), windows = 12 + (int)(50 * uniform());
		alike(ranks, windows, 3 * uniform());
		named += find(ranks, windows).rank >= 0;
	}
	/* At most one in a thousand is expected; of 20000, 37 or more would come once in ten thousand times. */
	print_message("of %d jobs without a straggler %d named one\n", TRIALS, named);
	assert_true(named < 37);
}

/* ---- marks ---- */

struct fake {
	struct fo_rank_pace_writer w;
	struct fo_rank_pace_bytes b;
};
static struct fake fake[4];
static struct fo_rank_seen seen[4];
static struct fo_ranks_seen all = { .rank = seen };

/* A step of all ranks: each works, waits for the last one, and `between` passes before the next. Their clocks
 * differ. */
static void fake_step(int ranks, int64_t number, const int64_t *work_ns, int64_t between_ns, int64_t *now, bool metered)
{
	int64_t last = 0;
	for (int r = 0; r < ranks; r++)
		last = work_ns[r] > last ? work_ns[r] : last;
	for (int r = 0; r < ranks; r++) {
		struct fake *f = &fake[r];
		const int64_t begin = now[r];
		fo_rank_pace_begin(&f->w, begin);
		if (!metered) {
			fo_rank_pace_lane(&f->w, FO_LANE_RUNS, false, begin);
			fo_rank_pace_late(&f->w, 5000000); /* it runs: that is in its work already */
			fo_rank_pace_lane(&f->w, FO_LANE_WAITS, true, begin + work_ns[r] / 2);
			fo_rank_pace_lane(&f->w, FO_LANE_RUNS, false, begin + work_ns[r] / 2 + last - work_ns[r]);
			fo_rank_pace_lane(&f->w, FO_LANE_IDLE, false, begin + last);
		}
		fo_rank_pace_end(&f->w, &f->b, number, begin + last + 1000000);
		now[r] = begin + last + 1000000 + between_ns;
	}
}

static struct fo_slow_rank look(int ranks, bool recent)
{
	struct fo_slow_rank s;
	for (int r = 0; r < ranks; r++) {
		memset(&seen[r], 0, sizeof seen[r]);
		seen[r].rank = r;
		fo_rank_pace_take(&fake[r].b, &seen[r]);
	}
	all.ranks = ranks;
	fo_ranks_slow(&all, recent, &s);
	return s;
}

static void test_marks(void **state)
{
	(void)state;
	int64_t now[3] = { 5000000000, 1, 777000000000 };
	memset(fake, 0, sizeof fake);
	/* 5 ms a step: too soon to say. */
	const int64_t even[3] = { 5000000, 5000000, 5000000 }, odd[3] = { 5000000, 8000000, 5500000 };
	for (int s = 1; s <= 300; s++)
		fake_step(3, s, even, 500000, now, false);
	struct fo_slow_rank k = look(3, true);
	assert_true(!k.known && k.windows < k.needed);
	/* Rank 1 becomes slow; the recent marks show it, those of the whole run do where it is most of the run. */
	for (int s = 301; s <= 6000; s++)
		fake_step(3, s, odd, 500000, now, false);
	k = look(3, true);
	assert_true(k.known && k.rank == 1 && k.last > 5800 && k.windows >= k.needed);
	assert_true(fabs(k.own_s - 0.008) < 1e-9 && fabs(k.other_s - 0.0055) < 1e-9 && fabs(k.lost_s - 0.0025) < 1e-9);
	assert_true(fabs(k.step_s - 0.0095) < 1e-9);
	k = look(3, false);
	assert_true(k.known && k.rank == 1 && k.first <= 129 && k.last > 5800 && k.windows >= 30);
	/* It recovers: soon nobody is named live, but the run was held up most of its time. */
	for (int s = 6001; s <= 12000; s++)
		fake_step(3, s, even, 500000, now, false);
	assert_true(look(3, true).known && look(3, true).rank == -1);
	for (int s = 12001; s <= 40000; s++)
		fake_step(3, s, even, 500000, now, false);
	assert_true(look(3, false).known && look(3, false).rank == -1);
	/* The run goes back: what was says nothing any more. */
	fake_step(3, 10, even, 0, now, false);
	assert_true(!look(3, true).known && look(3, true).windows == 0 && look(3, false).windows == 0);
}

/* Ranks whose marks do not lie at the same steps: one that thinks its steps short. */
static void test_marks_apart(void **state)
{
	(void)state;
	int64_t now[2] = { 1000, 1000 };
	memset(fake, 0, sizeof fake);
	const int64_t work[2] = { 40000000, 90000000 };
	for (int s = 7; s <= 700; s++) {
		fake_step(2, s, work, 0, now, false);
		if (s == 100)
			fake[1].w.every = 1, fake[0].w.every = 8;
	}
	struct fo_slow_rank k = look(2, true);
	assert_true(k.known && k.rank == 1 && fabs(k.lost_s - 0.050) < 1e-9);
}

/* What its thread of communication is late while nothing is computed is the rank's own. */
static void test_late(void **state)
{
	(void)state;
	struct fo_rank_pace_writer w = { 0 };
	struct fo_rank_pace_bytes b;
	memset((void *)&b, 0, sizeof b);
	fo_rank_pace_begin(&w, 1000);
	fo_rank_pace_late(&w, 7); /* before lane 0 has said anything it may do anything */
	fo_rank_pace_lane(&w, FO_LANE_RUNS, false, 1000);
	fo_rank_pace_lane(&w, FO_LANE_WAITS, true, 1100);
	fo_rank_pace_late(&w, 30);
	fo_rank_pace_lane(&w, FO_LANE_RUNS, false, 1200);
	fo_rank_pace_late(&w, 500);
	fo_rank_pace_lane(&w, FO_LANE_IDLE, false, 1300);
	fo_rank_pace_late(&w, 4);
	fo_rank_pace_end(&w, &b, 1, 1400);
	assert_true(w.own_ns == 100 + 30 + 100 + 4 && w.counted == 1);
	/* A wait for another lane of this rank, such as one that reads from host memory, is its own. */
	fo_rank_pace_begin(&w, 2000);
	fo_rank_pace_lane(&w, FO_LANE_WAITS, false, 2000);
	fo_rank_pace_lane(&w, FO_LANE_IDLE, false, 2050);
	fo_rank_pace_end(&w, &b, 2, 2100);
	assert_true(w.own_ns == 234 + 50 && w.counted == 2);
}

/* Metered steps are in nobody's figures; where most are metered, nothing is known. */
static void test_metered(void **state)
{
	(void)state;
	int64_t now[2] = { 1000, 1000 };
	const int64_t work[2] = { 5000000, 9000000 };
	memset(fake, 0, sizeof fake);
	for (int s = 1; s <= 3000; s++)
		fake_step(2, s, work, 0, now, s % 50 == 0);
	assert_true(look(2, true).known && look(2, true).rank == 1);
	memset(fake, 0, sizeof fake);
	for (int s = 1; s <= 3000; s++)
		fake_step(2, s, work, 0, now, s % 2 == 0);
	assert_true(!look(2, true).known && !look(2, false).known && look(2, true).windows == 0);
}

/* Files may hold anything. */
static void test_hostile(void **state)
{
	(void)state;
	int64_t now[2] = { 1000, 1000 };
	const int64_t work[2] = { 5000000, 9000000 };
	memset(fake, 0, sizeof fake);
	for (int s = 1; s <= 3000; s++)
		fake_step(2, s, work, 0, now, false);
	const struct fo_rank_pace_bytes whole = fake[0].b;
	for (int t = 0; t < 5000; t++) {
		unsigned char *bytes = (unsigned char *)&fake[0].b;
		memcpy((void *)&fake[0].b, (const void *)&whole, sizeof whole);
		for (int k = 0; k < 1 + t % 40; k++)
			bytes[(size_t)(uniform() * sizeof whole)] = (unsigned char)(256 * uniform());
		for (int recent = 0; recent < 2; recent++) {
			struct fo_slow_rank s = look(2, recent);
			assert_true(s.windows >= 0 && s.windows < FO_RANK_WHOLE && s.rank >= -1 && s.rank < 2);
		}
	}
	/* The writer does not believe its file either. */
	memset((void *)&fake[0].b, 0xff, sizeof fake[0].b);
	for (int s = 3001; s <= 9000; s++)
		fake_step(2, s, work, 0, now, false);
	assert_true(look(2, true).known && look(2, true).rank == 1);
}

/* ---- recorded timelines ---- */

/* Three steps are a window: they begin a quarter of a second apart. */
enum { WINDOWS = 30, STEPS = 3 * WINDOWS, SPANS = 4 * STEPS };
static struct fo_span spans[2][2][SPANS];
static struct fo_timeline_collective collective[2];
static struct fo_timeline_file file[2];

static void record(int steps, int64_t apart_ns, const int64_t *work)
{
	memset(spans, 0, sizeof spans);
	for (int r = 0; r < 2; r++) {
		collective[r] = (struct fo_timeline_collective){
			1, FO_WIRE_ALL_REDUCE, FO_GROUP_DATA, FO_LANE_REDUCE, 0, 2, 0, r, -1, 100
		};
		file[r] = (struct fo_timeline_file){
			.rank = r, .ranks = 2, .collective = &collective[r], .collectives = 1
		};
		file[r].t.lane[FO_LANE_COMPUTE] = (struct fo_ring){ spans[r][0], SPANS, 0 };
		file[r].t.lane[FO_LANE_REDUCE] = (struct fo_ring){ spans[r][1], SPANS, 0 };
		for (int s = 0; s < steps; s++) {
			const int64_t b = apart_ns * s, all = fo_max(work[0], work[1]) + 100;
			fo_timeline_record(&file[r].t, FO_LANE_COMPUTE, s, 0, b, b + work[r]);
			fo_timeline_record(&file[r].t, FO_LANE_REDUCE, s, 1, b + work[r], b + all);
			fo_timeline_record(&file[r].t, FO_LANE_COMPUTE, s, 2, b + all, b + all + 50);
		}
	}
}

static void test_timelines(void **state)
{
	(void)state;
	struct fo_ranks o;
	const struct fo_timeline_file *given[2] = { &file[0], &file[1] };
	const int64_t apart_ns = 250000000;
	record(STEPS, apart_ns, (const int64_t[]){ 1000, 1800 });
	fo_ranks_merge(&o, given, 2);
	assert_true(o.slow.known && o.slow.rank == 1 && o.slow.windows == WINDOWS && o.slow.slowest == WINDOWS);
	assert_true(o.slow.first == 1 && o.slow.last == STEPS);
	assert_true(fabs(o.slow.own_s - 1850e-9) < 1e-15 && fabs(o.slow.other_s - 1050e-9) < 1e-15);
	assert_true(fabs(o.slow.step_s - 1950e-9) < 1e-15 && fabs(o.slow.lost_s - 800e-9) < 1e-15);
	fo_ranks_fini(&o);
	/* Alike; too few steps; a rank without a file. */
	record(STEPS, apart_ns, (const int64_t[]){ 1000, 1000 });
	fo_ranks_merge(&o, given, 2);
	assert_true(o.slow.known && o.slow.rank == -1);
	fo_ranks_fini(&o);
	record(3 * 10 + 2, apart_ns, (const int64_t[]){ 1000, 1800 });
	fo_ranks_merge(&o, given, 2);
	assert_true(!o.slow.known && o.slow.windows == 10 && o.slow.needed == 11 && o.slow.rank == -1);
	fo_ranks_fini(&o);
	/* Many steps that a burst of a neighbour covers are not many windows. */
	record(STEPS, 1000000, (const int64_t[]){ 1000, 1800 });
	fo_ranks_merge(&o, given, 2);
	assert_true(!o.slow.known && o.slow.windows == 0 && o.slow.rank == -1);
	fo_ranks_fini(&o);
	given[1] = NULL;
	record(STEPS, apart_ns, (const int64_t[]){ 1000, 1800 });
	fo_ranks_merge(&o, given, 2);
	assert_true(!o.slow.known && o.slow.rank == -1);
	fo_ranks_fini(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_named),      cmocka_unit_test(test_small),
					    cmocka_unit_test(test_too_little), cmocka_unit_test(test_nobody),
					    cmocka_unit_test(test_marks),      cmocka_unit_test(test_marks_apart),
					    cmocka_unit_test(test_late),       cmocka_unit_test(test_metered),
					    cmocka_unit_test(test_hostile),    cmocka_unit_test(test_timelines) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
