/* A simulated job diagnosed as a real one: what `report` and `diagnose` make of its timelines equals the simulator's
 * sums to the nanosecond, rank by rank, with and without a rank that is late. */
#include "base/fs.h"
#include "pass/pass.h"
#include "sim/ranks.h"
#include "sim/replay.h"
#include "sim/walk.h"
#include "support/ledgers.h"
#include "support/must.h"
#include "support/scratch.h"
#include "timeline/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };
static const struct fo_model tiny = { .name = "tiny",
				      .layers = 3,
				      .hidden = 64,
				      .heads = 4,
				      .kv_heads = 2,
				      .head_dim = 16,
				      .ffn = 128,
				      .vocab = 128,
				      .gated = true,
				      .norm_eps = 1e-5,
				      .rope = { .theta = 10000 } };

/* Data parallel in shard groups, or stages of a pipeline and nothing else. */
static void build(struct fo_program *p, int rank, bool stages)
{
	struct fo_model m = tiny;
	struct fo_lowering low = { .seq = 32,
				   .rows = 2,
				   .micro_batches = 2,
				   .precision = FO_PRECISION_BF16,
				   .pass = { .merge_qkv = 1, .ddp = 1, .zero = 3, .zero_prefetch = 1, .wgrad_lane = 1 },
				   .mesh = { .rank = rank, .replicate = 2, .shard = 2 } };
	if (stages) {
		m.layers = RANKS;
		low.micro_batches = 6;
		low.pass = (struct fo_passes){ .merge_qkv = 1, .ddp = 1, .pp = 1 + FO_PP_1F1B };
		low.mesh = (struct fo_mesh){ .rank = rank, .replicate = 1, .shard = 1, .pp = RANKS };
	}
	must(fo_pass_build(p, &m, &low));
}

struct job {
	struct fo_program p[RANKS];
	struct fo_unrolled u[RANKS];
	struct fo_sim sim[RANKS];
	struct fo_sim_rank rank[RANKS];
	struct fo_fleet fleet;
	struct fo_fleet_run run;
	char dir[64];
	bool stages;
};

/* Times that no two operations share. links: calls share links; else they take their time. */
static void simulate(struct job *j, double slow, double overhead_s, bool links)
{
	static const int32_t role_of[RANKS] = { 0, 1, 2, 3 };
	for (int r = 0; r < RANKS; r++) {
		build(&j->p[r], r, j->stages);
		must(fo_unroll(&j->p[r], &j->u[r]));
		fo_plan(&j->p[r], &j->u[r]);
		fo_prune_waits(&j->p[r], &j->u[r]);
		fo_sim_init(&j->sim[r], &j->u[r], overhead_s);
		for (int i = 0; i < j->u[r].n; i++) {
			const struct fo_op *o = fo_instance_op(&j->p[r], &j->u[r], i);
			const bool comm = fo_op_info(o->kind)->cls == FO_CLASS_COMM;
			const double call = 1e-6 * (11 + 0.77 * (i % 5));
			j->sim[r].seconds[i] = 1e-6 * (3 + 1.37 * (i % 7)) * (r == 3 ? slow : 1);
			if (comm)
				j->sim[r].seconds[i] = links ? 1e-6 : call;
			j->sim[r].hold_s[i] = comm && links ? call : 0;
		}
		j->rank[r] = (struct fo_sim_rank){ &j->p[r], &j->u[r], &j->sim[r], NULL };
	}
	const struct fo_sim_job job = { .role = j->rank, .roles = RANKS, .role_of = role_of, .meets = true };
	fo_sim_fleet(&j->fleet, &job);
	must(fo_fleet_simulate(&j->run, &j->fleet));
	for (int r = 0; r < RANKS; r++)
		fo_sim_take(&j->sim[r], &j->rank[r], &j->run, j->run.class_of[r]);
}

static void write_files(const struct job *j)
{
	char path[160];
	struct fo_str text = { 0 };
	must(fo_fs_mkdirs(j->dir));
	fo_program_dump(&j->p[0], &text);
	snprintf(path, sizeof path, "%s/program.txt", j->dir);
	must(fo_fs_write_atomic(path, text.data, text.len));
	fo_str_fini(&text);
	for (int r = 0; r < RANKS; r++) {
		struct fo_timeline t;
		struct fo_arena a = { 0 };
		must(fo_sim_timeline(&j->sim[r], &j->p[r], &j->u[r], &t));
		t.whose.begun_unix_ns = 12345;
		must(fo_timeline_write(&t, &j->p[r], fo_timeline_rank_path(&a, j->dir, r)));
		if (r)
			must(fo_timeline_write_program(&j->p[r], &j->p[0], j->dir));
		fo_timeline_fini(&t);
		fo_arena_fini(&a);
	}
}

/* The words of report. */
static void check_report(const struct job *j)
{
	struct fo_timeline_file file[RANKS];
	const struct fo_timeline_file *given[RANKS];
	struct fo_ranks x;
	for (int r = 0; r < RANKS; r++) {
		struct fo_arena a = { 0 };
		must(fo_timeline_read(&file[r], fo_timeline_rank_path(&a, j->dir, r)));
		given[r] = &file[r];
		fo_arena_fini(&a);
	}
	fo_ranks_merge(&x, given, RANKS);
	assert_int_equal(x.steps, 1);
	assert_int_equal(x.unmatched, 0);
	assert_true(x.calls > 0);
	for (int r = 0; r < RANKS; r++) {
		struct fo_fleet_sums s;
		const struct fo_rank_times *t = &x.rank[r];
		fo_fleet_sums_of(&s, &j->run, j->run.class_of[r]);
		assert_int_equal(t->step_ns, s.step_ns);
		assert_int_equal(t->compute_ns, s.compute_ns);
		assert_int_equal(t->exposed_ns[FO_RANK_TRANSFER], s.transfer_ns);
		assert_int_equal(t->exposed_ns[FO_RANK_WAIT], s.wait_ns);
		assert_int_equal(t->hidden_ns[FO_RANK_TRANSFER], s.hidden_transfer_ns);
		assert_int_equal(t->hidden_ns[FO_RANK_WAIT], s.hidden_wait_ns);
		assert_int_equal(t->other_ns, s.other_ns);
		assert_memory_equal(t->lane_exposed_ns, s.lane_exposed_ns, sizeof s.lane_exposed_ns);
		assert_memory_equal(t->lane_hidden_ns, s.lane_hidden_ns, sizeof s.lane_hidden_ns);
		fo_timeline_fini(&file[r].t);
	}
	fo_ranks_fini(&x);
}

/* The ledger of diagnose. */
static void check_ledger(const struct job *j)
{
	struct ledger_of_rank l[RANKS];
	ledgers_of(j->dir, l, RANKS);
	for (int r = 0; r < RANKS; r++) {
		struct fo_fleet_sums s;
		fo_fleet_sums_of(&s, &j->run, j->run.class_of[r]);
		assert_int_equal(l[r].compute_ns, s.compute_ns);
		assert_int_equal(l[r].exposed_ns, s.transfer_ns + s.wait_ns);
		assert_int_equal(l[r].wait_ns, s.wait_ns);
		assert_int_equal(l[r].transfer_ns, s.transfer_ns);
		/* Stages wait for each other alone; shard groups have no bubble. */
		assert_int_equal(l[r].bubble_ns, j->stages ? s.wait_ns : 0);
		assert_true(!j->stages || s.wait_ns > 0);
	}
}

static void near(double got, double want, double by)
{
	if (!(fabs(got - want) <= by))
		fail_msg("got %.12g, expected %.12g", got, want);
}

/* The same steps run again: without a change they are what was simulated, to the rounding of nanoseconds; changes are
 * what the simulator says of them. */
static void check_replay(const struct job *j, const struct job *even, bool links)
{
	struct fo_replay x;
	struct fo_replay_step s;
	struct fo_replay_changes c = { .without = -1 };
	must(fo_replay_open(&x, j->dir));
	assert_int_equal(x.known, RANKS);
	assert_int_equal(x.steps, 1);
	const double exact = 1e-9 * j->u[0].n; /* a nanosecond each */
	must(fo_replay_step(&s, &x, 0, NULL));
	/* Nothing is recorded of the dispatch behind the last operation. */
	const double step = j->run.step_s - j->sim[0].overhead_s;
	near(s.run.step_s, step, exact);
	near(x.measured_s[0], step, exact);
	fo_replay_step_fini(&s);
	c.without = 3;
	must(fo_replay_step(&s, &x, 0, &c));
	/* Calls take what they took, though links would be less in demand at other times. */
	near(s.run.step_s, even->run.step_s, links ? 0.01 * even->run.step_s : exact);
	fo_replay_step_fini(&s);
	c.without = -1;
	must(fo_replay_parse(&c, &x, "lane:compute=0,lane:wgrad=0,lane:reduce=0"));
	c.links = 1e6;
	must(fo_replay_step(&s, &x, 0, &c));
	assert_true(s.run.step_s < step);
	fo_replay_step_fini(&s);
	assert_int_equal(fo_replay_parse(&c, &x, "nothing=1"), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "no operation 'nothing'"));
	assert_int_equal(fo_replay_parse(&c, &x, "matmul=-1"), FO_EARG);
	assert_int_equal(fo_replay_parse(&c, &x, "=1"), FO_EARG);
	assert_int_equal(fo_replay_parse(&c, &x, "matmul=1x"), FO_EARG);
	fo_replay_fini(&x);
}

static void end(struct job *j)
{
	fo_fleet_run_fini(&j->run);
	fo_fleet_fini(&j->fleet);
	for (int r = 0; r < RANKS; r++) {
		fo_sim_fini(&j->sim[r]);
		fo_unrolled_fini(&j->u[r]);
		fo_program_fini(&j->p[r]);
	}
}

static void test_job(void **state)
{
	(void)state;
	static struct job late, even;
	for (int k = 0; k < 2; k++) {
		const double overhead_s = k ? 0.4e-6 : 0;
		const bool links = k;
		memset(&late, 0, sizeof late);
		memset(&even, 0, sizeof even);
		snprintf(late.dir, sizeof late.dir, "%s/late%d", fo_scratch, k);
		snprintf(even.dir, sizeof even.dir, "%s/even%d", fo_scratch, k);
		simulate(&late, 1.5, overhead_s, links);
		simulate(&even, 1, overhead_s, links);
		write_files(&late);
		write_files(&even);
		struct fo_fleet_sums s;
		fo_fleet_sums_of(&s, &late.run, late.run.class_of[0]);
		assert_true(s.wait_ns > 0 && s.transfer_ns > 0 && s.hidden_transfer_ns > 0);
		check_report(&late);
		check_report(&even);
		check_ledger(&late);
		check_ledger(&even);
		check_replay(&late, &even, links);
		end(&late);
		end(&even);
	}
}

/* The bubble is a row of its own. Where a stage left no timeline, what its neighbours did meanwhile is not known, and
 * no bubble is claimed for it. */
static void test_stages(void **state)
{
	(void)state;
	static struct job j;
	struct ledger_of_rank all[RANKS], some[RANKS - 1];
	struct fo_arena a = { 0 };
	j.stages = true;
	snprintf(j.dir, sizeof j.dir, "%s/stages", fo_scratch);
	simulate(&j, 1, 0, false);
	write_files(&j);
	check_report(&j);
	check_ledger(&j);
	ledgers_of(j.dir, all, RANKS);
	must(fo_fs_remove_tree(fo_timeline_rank_path(&a, j.dir, RANKS - 1)));
	ledgers_of(j.dir, some, RANKS - 1);
	for (int r = 0; r < RANKS - 1; r++) {
		assert_int_equal(some[r].exposed_ns, all[r].exposed_ns);
		assert_true(some[r].bubble_ns <= all[r].bubble_ns);
	}
	assert_true(some[RANKS - 2].bubble_ns < all[RANKS - 2].bubble_ns);
	fo_arena_fini(&a);
	end(&j);
}

/* Rank 0 alone, a folder without timelines, one cut off, one of another program: a sentence each. */
static void test_foreign(void **state)
{
	(void)state;
	struct fo_replay x;
	static struct job j;
	char path[160], cut[160];
	memset(&j, 0, sizeof j);
	snprintf(j.dir, sizeof j.dir, "%s/job", fo_scratch);
	simulate(&j, 1, 0, true);
	write_files(&j);
	assert_int_equal(fo_replay_open(&x, fo_scratch), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "has no timeline.fot"));
	snprintf(path, sizeof path, "%s/timeline.fot", j.dir);
	must(fo_replay_open(&x, path));
	assert_int_equal(x.alone, 0);
	assert_int_equal(x.known, 1);
	struct fo_replay_step s;
	must(fo_replay_step(&s, &x, 0, NULL));
	near(s.run.step_s, j.run.class[j.run.class_of[0]].step_s, 1e-9 * j.u[0].n);
	fo_replay_step_fini(&s);
	fo_replay_fini(&x);
	struct fo_map m;
	must(fo_map_open(&m, path));
	snprintf(cut, sizeof cut, "%s/timeline-rank2.fot", j.dir);
	must(fo_fs_write_atomic(cut, m.data, m.len / 2));
	assert_int_equal(fo_replay_open(&x, j.dir), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "timeline-rank2.fot' is cut off"));
	must(fo_fs_write_atomic(cut, m.data, m.len));
	assert_int_equal(fo_replay_open(&x, j.dir), FO_EFORMAT);
	fo_map_close(&m);
	snprintf(cut, sizeof cut, "%s/program.txt", j.dir);
	must(fo_fs_remove_tree(cut));
	assert_int_equal(fo_replay_open(&x, j.dir), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "without its program"));
	end(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_job), cmocka_unit_test(test_stages),
					    cmocka_unit_test(test_foreign) };
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
