/* A rank that is late on purpose: four ranks train over links with a rate, one of them sleeps before each step but the
 * first. Their timelines, written and read again, say who it was and for how long the others waited, apart from the
 * transfer that the links take. Times are held to what the sleeper measured and to the links' rate, never to a clock's
 * absolute time. */
#include "base/clock.h"
#include "base/fs.h"
#include "pass/pass.h"
#include "support/choices.h"
#include "support/must.h"
#include "support/ranks.h"
#include "timeline/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 4, LATE = 2, STEPS = 5, SLEEP_MS = 40 };
#define RATE 4e6 /* bytes/s of a link */

static char dir[] = "test_late_rank.XXXXXX";
static int64_t slept_ns; /* by the late rank, which alone writes it */

static void after(struct ranks_rank *r, int s)
{
	struct fo_arena a = { 0 };
	if (r->rank == LATE && s + 1 < STEPS) {
		int64_t begin = fo_now_ns();
		nanosleep(&(struct timespec){ .tv_nsec = SLEEP_MS * 1000000 }, NULL);
		slept_ns += fo_now_ns() - begin;
	}
	if (s + 1 < STEPS)
		return;
	struct fo_timeline *t = fo_exec_timeline(r->rig.exec);
	t->origin_ns = 0;
	t->whose.begun_unix_ns = 1;
	must(fo_timeline_write(t, &r->rig.program, fo_timeline_rank_path(&a, dir, r->rank)));
	fo_arena_fini(&a);
}

static void test_late(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	struct fo_model m = choices_model();
	struct step_batch b;
	step_batch_random(&b, 8, RANKS, 2, m.vocab, 2, choices_seed);
	struct ranks_job j = { .model = m,
			       .batch = &b,
			       .options = { .isa = FO_ISA_REF, .threads = 1, .timeline_steps = STEPS },
			       .transport = { .bytes_s = RATE },
			       .clip = 0.5,
			       .eps = 1e-4,
			       .after = after,
			       .steps = STEPS };
	j.low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN);
	j.low.rows = b.rows / RANKS;
	j.low.pass.ddp = 1;
	j.low.mesh.replicate = RANKS;
	ranks_run(&j);

	struct fo_timeline_file file[RANKS];
	const struct fo_timeline_file *given[RANKS];
	for (int r = 0; r < RANKS; r++) {
		if (j.rank[r].error.st != FO_OK)
			fail_msg("rank %d: %s", r, j.rank[r].error.text);
		must(fo_timeline_read(&file[r], fo_timeline_rank_path(&a, dir, r)));
		given[r] = &file[r];
	}
	struct fo_ranks o;
	fo_ranks_merge(&o, given, RANKS);
	assert_true(o.steps == STEPS && o.known == RANKS && !o.unmatched && o.calls > 0);
	assert_int_equal(o.late, LATE);
	/* What each of the others waited, and that it was for this one. A loaded machine may delay the others, too. */
	for (int64_t g = 0; g < o.groups; g++) {
		const struct fo_rank_group *k = &o.group[g];
		assert_true((double)k->bytes == STEPS * j.rank[k->rank].wire);
		if (k->rank != LATE && !((double)k->wait_ns >= 0.5 * (double)slept_ns))
			fail_msg("rank %d waited %lld ns for one that slept %lld ns", k->rank, (long long)k->wait_ns,
				 (long long)slept_ns);
		if (!((double)k->transfer_ns >= 0.99e9 * (double)k->bytes / RATE))
			fail_msg("rank %d transferred %lld bytes in %lld ns, which the link cannot", k->rank,
				 (long long)k->bytes, (long long)k->transfer_ns);
		const struct fo_rank_times *t = &o.rank[k->rank];
		assert_true(t->step_ns == t->compute_ns + fo_rank_exposed(t) + t->other_ns && t->other_ns >= 0);
		print_message("rank %d: waited %.1f ms, transfer %.1f ms (the links take %.1f ms), last %lld times\n",
			      k->rank, (double)k->wait_ns * 1e-6, (double)k->transfer_ns * 1e-6,
			      (double)k->bytes / RATE * 1e3, (long long)k->last);
	}
	print_message("rank %d slept %.1f ms; the others waited %.1f ms each for it\n", LATE, (double)slept_ns * 1e-6,
		      (double)o.rank[LATE].caused_ns * 1e-6 / (RANKS - 1));
	assert_true((double)o.rank[LATE].caused_ns >= 0.5 * (RANKS - 1) * (double)slept_ns);
	assert_true(o.rank[LATE].last >= STEPS - 1);
	for (int r = 0; r < RANKS; r++)
		fo_timeline_fini(&file[r].t);
	fo_ranks_fini(&o);
	ranks_free(&j);
	step_batch_free(&b);
	fo_arena_fini(&a);
}

static int set_up(void **state)
{
	(void)state;
	return !mkdtemp(dir);
}

static int tear_down(void **state)
{
	(void)state;
	return fo_fs_remove_tree(dir) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_late) };
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
