/* Timelines of several ranks side by side: made-up ones with figures that are known, against a count of every
 * nanosecond; files that say whose they are, and damaged ones. */
#include "timeline/ranks.h"
#include "base/fs.h"
#include "base/rng.h"
#include "pass/pass.h"
#include "support/must.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { RANKS = 4, STEPS = 3, SPANS = 64, LENGTH = 400 /* ns of a step */ };
static char dir[] = "test_timeline_ranks.XXXXXX";

/* A job of RANKS ranks: 2 x 2; operations 0 to 3 compute, 4 adds up over all ranks, 5 gathers in the shard group, 6 is
 * a transfer from the first to the second of each replicate group. */
struct job {
	struct fo_timeline_collective collective[RANKS][3];
	struct fo_span span[RANKS][FO_LANE_COUNT][SPANS];
	struct fo_timeline_file file[RANKS];
	const struct fo_timeline_file *given[RANKS];
};

static void begin(struct job *j)
{
	memset(j, 0, sizeof *j);
	for (int r = 0; r < RANKS; r++) {
		bool sends = r / 2 == 0;
		j->collective[r][0] = (struct fo_timeline_collective){
			4, FO_WIRE_ALL_REDUCE, FO_GROUP_DATA, FO_LANE_REDUCE, 0, RANKS, 0, r, -1, 100 + r
		};
		j->collective[r][1] = (struct fo_timeline_collective){
			5, FO_WIRE_ALL_GATHER, FO_GROUP_SHARD, FO_LANE_GATHER, 0, 2, r / 2, r % 2, -1, 10
		};
		j->collective[r][2] = (struct fo_timeline_collective){ 6,
								       sends ? FO_WIRE_SEND : FO_WIRE_RECEIVE,
								       FO_GROUP_REPLICATE,
								       sends ? FO_LANE_SEND_FORWARD
									     : FO_LANE_RECV_FORWARD,
								       0,
								       2,
								       r % 2,
								       r / 2,
								       sends,
								       sends ? 0 : 7 };
		j->file[r] = (struct fo_timeline_file){
			.rank = r, .ranks = RANKS, .collective = j->collective[r], .collectives = 3
		};
		for (int l = 0; l < FO_LANE_COUNT; l++)
			j->file[r].t.lane[l] = (struct fo_ring){ j->span[r][l], SPANS, 0 };
		j->given[r] = &j->file[r];
	}
}

static void put(struct job *j, int rank, int lane, int step, int instance, int64_t from, int64_t to)
{
	fo_timeline_record(&j->file[rank].t, lane, step, instance, from, to);
}

/* Three steps of one all-reduce in which rank 2 comes 40 ns late. */
static void test_known(void **state)
{
	(void)state;
	static struct job j;
	struct fo_ranks o;
	static const int late[RANKS] = { 0, 10, 40, 20 };
	begin(&j);
	for (int s = 0; s < STEPS; s++)
		for (int r = 0; r < RANKS; r++) {
			int64_t b = 1000 * s - (r == 3 ? 5000 : 0); /* rank 3's clock is behind */
			put(&j, r, FO_LANE_COMPUTE, s, 0, b, b + 100);
			put(&j, r, FO_LANE_COMPUTE, s, 1, b + 150, b + 250);
			put(&j, r, FO_LANE_REDUCE, s, 4, b + 100 + late[r], b + 180);
			put(&j, r, FO_LANE_COMPUTE, s, ~4, b + 255, b + 260);
		}
	j.file[3].t.whose.clock_offset_ns = 5000;
	fo_ranks_merge(&o, j.given, RANKS);
	assert_true(o.ranks == RANKS && o.known == RANKS && o.steps == STEPS && o.first_step == 1 &&
		    o.last_step == STEPS);
	for (int r = 0; r < RANKS; r++) {
		const struct fo_rank_times *t = &o.rank[r];
		const struct fo_rank_group *g = &o.group[r];
		assert_true(t->step_ns == STEPS * 260 && t->compute_ns == STEPS * 200);
		assert_true(t->exposed_ns[FO_RANK_WAIT] == STEPS * (40 - late[r]) && !t->hidden_ns[FO_RANK_WAIT]);
		assert_true(t->exposed_ns[FO_RANK_TRANSFER] == STEPS * 10 &&
			    t->hidden_ns[FO_RANK_TRANSFER] == STEPS * 30);
		assert_int_equal(t->other_ns, STEPS * (10 + late[r]));
		assert_true(g->rank == r && g->group == FO_GROUP_DATA && g->members == RANKS && g->calls == STEPS);
		assert_true(g->bytes == STEPS * (100 + r) && !g->unmatched && g->transfer_ns == STEPS * 40);
		assert_true(g->wait_ns == STEPS * (40 - late[r]) && g->last == (r == 2 ? STEPS : 0));
		assert_true(t->last == g->last && t->caused_ns == (r == 2 ? STEPS * (40 + 30 + 20) : 0));
	}
	assert_true(o.groups == RANKS && o.late == 2 && o.calls == RANKS * STEPS && !o.unmatched &&
		    o.waited_ns == STEPS * 90);
	fo_ranks_fini(&o);
	/* A rank without a timeline: what waiting is cannot be said, and is not. */
	j.given[2] = NULL;
	fo_ranks_merge(&o, j.given, RANKS);
	assert_true(o.known == RANKS - 1 && !o.rank[2].known && o.unmatched == o.calls && o.late == -1);
	assert_true(o.rank[0].exposed_ns[FO_RANK_UNKNOWN] == STEPS * 50 && !o.rank[0].exposed_ns[FO_RANK_WAIT] &&
		    o.rank[0].hidden_ns[FO_RANK_UNKNOWN] == STEPS * 30 && o.group[0].unknown_ns == STEPS * 80);
	fo_ranks_fini(&o);
	/* A rank that did not finish its last step: the steps that all have are looked at. */
	j.given[2] = &j.file[2];
	j.file[1].t.lane[FO_LANE_REDUCE].n--;
	fo_ranks_merge(&o, j.given, RANKS);
	assert_true(o.steps == STEPS - 1 && o.last_step == STEPS - 1 && !o.unmatched && o.late == 2 &&
		    o.waited_ns == (STEPS - 1) * 90);
	fo_ranks_fini(&o);
	/* No step in common. */
	for (int s = 0; s < STEPS; s++)
		j.span[1][FO_LANE_COMPUTE][3 * s].step += 50, j.span[1][FO_LANE_COMPUTE][3 * s + 1].step += 50,
			j.span[1][FO_LANE_COMPUTE][3 * s + 2].step += 50;
	fo_ranks_merge(&o, j.given, RANKS);
	assert_true(!o.steps && !o.calls && !o.groups && o.late == -1 && !o.rank[0].step_ns);
	fo_ranks_fini(&o);
}

/* The run went back from step 2 to step 1: the second time counts. */
static void test_went_back(void **state)
{
	(void)state;
	static struct job j;
	struct fo_ranks o;
	static const int order[] = { 0, 1, 2, 1, 2 };
	begin(&j);
	for (int k = 0; k < 5; k++)
		for (int r = 0; r < RANKS; r++) {
			int64_t b = 1000 * k;
			put(&j, r, FO_LANE_COMPUTE, order[k], 0, b, b + 50);
			put(&j, r, FO_LANE_REDUCE, order[k], 4, b + 10 * r * (k > 2), b + 60);
		}
	fo_ranks_merge(&o, j.given, RANKS);
	assert_true(o.steps == 2 && o.first_step == 2 && o.last_step == 3 && o.late == 3 && o.rank[3].last == 2);
	assert_true(o.waited_ns == 2 * (30 + 20 + 10) && o.rank[0].step_ns == 2 * 60);
	fo_ranks_fini(&o);
}

/* ---- against a count of every nanosecond ---- */

struct counted {
	int64_t compute, exposed[FO_RANK_COMM_COUNT], hidden[FO_RANK_COMM_COUNT];
	int64_t lane[2][FO_LANE_COUNT]; /* exposed and hidden */
};

/* arrived[c]: when the last member of this rank's collective c came in step s. */
static void count(const struct job *j, int rank, int s, const int64_t *arrived, struct counted *out)
{
	for (int64_t ns = 0; ns < STEPS * 1000; ns++) {
		bool computes = false, does[FO_RANK_COMM_COUNT] = { false };
		int first = -1; /* lane that communicates */
		for (int l = 0; l < FO_LANE_COUNT; l++)
			for (uint64_t i = 0; i < j->file[rank].t.lane[l].n; i++) {
				const struct fo_span *x = &j->span[rank][l][i];
				if (x->step != s || ns < x->begin_ns || ns >= x->end_ns || x->instance < 0)
					continue;
				computes |= x->instance < 4;
				if (x->instance >= 4)
					first = first < 0 ? l : first;
				if (x->instance >= 4)
					does[ns < arrived[x->instance - 4] ? FO_RANK_WAIT : FO_RANK_TRANSFER] = true;
			}
		out->compute += computes;
		if (first >= 0)
			out->lane[computes][first]++;
		for (int k = 0; k < FO_RANK_COMM_COUNT; k++)
			if (does[k]) {
				(computes ? out->hidden : out->exposed)[k]++;
				break;
			}
	}
}

static void test_random(void **state)
{
	(void)state;
	static struct job j;
	uint64_t draws = 0;
	for (int round = 0; round < 40; round++) {
		struct counted want[RANKS] = { 0 };
		int64_t wait[RANKS] = { 0 };
		begin(&j);
		for (int s = 0; s < STEPS; s++) {
			int64_t from[RANKS][3], to[RANKS][3], arrived[RANKS][3];
			for (int r = 0; r < RANKS; r++) {
				int64_t at = 1000 * s;
				for (int i = 0; i < 4; i++) {
					int lane = fo_rng_u64(round, draws++) % 2 ? FO_LANE_WGRAD : FO_LANE_COMPUTE;
					int64_t b = at + (int64_t)(fo_rng_u64(round, draws++) % 60);
					at = b + (int64_t)(fo_rng_u64(round, draws++) % 80);
					put(&j, r, i ? lane : FO_LANE_COMPUTE, s, i, b, at);
				}
				for (int c = 0; c < 3; c++) {
					from[r][c] = 1000 * s + (int64_t)(fo_rng_u64(round, draws++) % LENGTH);
					to[r][c] = 1000 * s + LENGTH + (int64_t)(fo_rng_u64(round, draws++) % 100);
				}
			}
			for (int r = 0; r < RANKS; r++)
				for (int c = 0; c < 3; c++) {
					int64_t last = from[r][c];
					for (int o = 0; o < RANKS; o++)
						if (c == 0 || (c == 1 ? o / 2 == r / 2 : o % 2 == r % 2))
							last = from[o][c] > last ? from[o][c] : last;
					arrived[r][c] = last;
					wait[r] += last - from[r][c];
					put(&j, r, j.collective[r][c].lane, s, 4 + c, from[r][c], to[r][c]);
				}
			for (int r = 0; r < RANKS; r++)
				count(&j, r, s, arrived[r], &want[r]);
		}
		struct fo_ranks o;
		fo_ranks_merge(&o, j.given, RANKS);
		assert_true(o.steps == STEPS && o.calls == 3 * STEPS * RANKS && !o.unmatched && o.groups == 3 * RANKS);
		int64_t caused = 0, waited = 0;
		for (int r = 0; r < RANKS; r++) {
			const struct fo_rank_times *t = &o.rank[r];
			int64_t own = 0, by_step = 0;
			for (int s = 0; s < STEPS; s++)
				by_step += fo_rank_step_exposed(j.given[r], s, NULL);
			assert_int_equal(by_step, fo_rank_exposed(t));
			assert_int_equal(t->compute_ns, want[r].compute);
			for (int k = 0; k < FO_RANK_COMM_COUNT; k++) {
				assert_int_equal(t->exposed_ns[k], want[r].exposed[k]);
				assert_int_equal(t->hidden_ns[k], want[r].hidden[k]);
			}
			assert_memory_equal(t->lane_exposed_ns, want[r].lane[0], sizeof t->lane_exposed_ns);
			assert_memory_equal(t->lane_hidden_ns, want[r].lane[1], sizeof t->lane_hidden_ns);
			for (int64_t g = 0; g < o.groups; g++)
				own += o.group[g].rank == r ? o.group[g].wait_ns : 0;
			assert_int_equal(own, wait[r]);
			caused += t->caused_ns;
			waited += wait[r];
		}
		assert_true(caused == waited && waited == o.waited_ns);
		fo_ranks_fini(&o);
	}
}

/* ---- files ---- */

static struct fo_program program_of(int rank, int ranks)
{
	struct fo_program p;
	struct fo_model m = tiny_model();
	struct fo_lowering low = {
		.seq = 8, .rows = 2, .micro_batches = 2, .precision = FO_PRECISION_F32, .mode = FO_MODE_TRAIN
	};
	low.mesh = (struct fo_mesh){ .rank = rank, .replicate = ranks / 2, .shard = 2 };
	low.pass.ddp = 1;
	must(fo_pass_build(&p, &m, &low));
	return p;
}

static void test_files(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	struct fo_program p = program_of(2, 4), first = program_of(0, 4), back;
	struct fo_unrolled u;
	struct fo_timeline t;
	struct fo_timeline_file f;
	struct fo_str text = { 0 };
	const char *path = fo_timeline_rank_path(&a, dir, 2);
	must(fo_unroll(&p, &u));
	must(fo_timeline_init(&t, &p, &u, 1));
	t.whose = (struct fo_timeline_whose){ .begun_unix_ns = 77, .clock_offset_ns = -5, .host = "there" };
	for (int i = 0; i < u.n; i++)
		fo_timeline_record(&t, fo_instance_op(&p, &u, i)->lane, 0, i, 10 * i, 10 * i + 5);
	must(fo_timeline_write(&t, &p, path));
	must(fo_timeline_read(&f, path));
	assert_true(f.rank == 2 && f.ranks == 4 && f.t.whose.begun_unix_ns == 77 && f.t.whose.clock_offset_ns == -5);
	assert_string_equal(f.t.whose.host, "there");
	/* Each collective with its group and its bytes, which add up to those of the step. */
	int64_t bytes = 0;
	for (int i = 0; i < u.n; i++) {
		const struct fo_op *o = fo_instance_op(&p, &u, i);
		const struct fo_timeline_collective *c = fo_timeline_collective_of(&f, i);
		assert_int_equal(c != NULL, fo_op_info(o->kind)->cls == FO_CLASS_COMM);
		if (!c)
			continue;
		assert_true(c->group == FO_GROUP_DATA && c->members == 4 && c->place == 2 && c->lane == o->lane);
		bytes += c->bytes;
	}
	assert_true(f.collectives > 0 && (double)bytes == fo_program_wire(&p));
	/* Its program: rank 0's with another number, or its own. */
	assert_int_equal(fo_timeline_program(&back, &f, path), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "there is no"));
	fo_program_dump(&first, &text);
	must(fo_fs_write_atomic(fo_arena_printf(&a, "%s/program.txt", dir), text.data, text.len));
	must(fo_timeline_program(&back, &f, path));
	assert_true(back.rank == 2 && fo_program_hash(&back) == fo_program_hash(&p));
	fo_program_fini(&back);
	must(fo_timeline_write_program(&p, &first, dir));
	assert_false(fo_fs_exists(fo_arena_printf(&a, "%s/program-rank2.txt", dir)));
	p.block[0].name[0]++;
	t.origin_ns = 0;
	must(fo_timeline_write_program(&p, &first, dir));
	must(fo_timeline_write(&t, &p, path));
	fo_timeline_fini(&f.t);
	must(fo_timeline_read(&f, path));
	must(fo_timeline_program(&back, &f, path));
	fo_program_fini(&back);
	must(fo_timeline_write_program(&first, &first, dir));
	fo_timeline_fini(&f.t);
	fo_timeline_fini(&t);
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
	fo_program_fini(&first);
	fo_str_fini(&text);
	fo_arena_fini(&a);
	assert_true(fo_timeline_rank_of_path("a/timeline.fot") == 0 &&
		    fo_timeline_rank_of_path("timeline-rank12.fot") == 12);
	assert_true(fo_timeline_rank_of_path("timeline-rank0.fot") == -1 &&
		    fo_timeline_rank_of_path("timeline-rank1.fot.gz") == -1 &&
		    fo_timeline_rank_of_path("rank/x.fot") == -1 &&
		    fo_timeline_rank_of_path("timeline-rank01.fot") == -1);
}

/* Every cut and every changed byte is noticed; so is nonsense under a right checksum. */
static void test_hostile(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	struct fo_program p = program_of(1, 2);
	struct fo_unrolled u;
	struct fo_timeline t;
	struct fo_timeline_file f;
	struct fo_map m;
	const char *path = fo_timeline_rank_path(&a, dir, 1);
	must(fo_unroll(&p, &u));
	must(fo_timeline_init(&t, &p, &u, 1));
	fo_timeline_record(&t, FO_LANE_COMPUTE, 0, 1, 10, 15);
	must(fo_timeline_write(&t, &p, path));
	must(fo_map_open(&m, path));
	size_t n = m.len, head = 24 + FO_LANE_COUNT * 8;
	unsigned char *good = malloc(n), *bad = malloc(n);
	memcpy(good, m.data, n);
	fo_map_close(&m);
	/* The form before it, without the count of lane cp, is still read. */
	memcpy(bad, "FOTIMEL3", 8);
	memcpy(bad + 8, good + 8, head - 16);
	memcpy(bad + head - 8, good + head, n - head);
	must(fo_fs_write_atomic(path, bad, n - 8));
	must(fo_timeline_read(&f, path));
	assert_true(f.rank == 1 && f.ranks == 2 && f.t.lane[FO_LANE_COMPUTE].n == 1 &&
		    f.t.lane[FO_LANE_COMPUTE].span[0].end_ns == 15);
	fo_timeline_fini(&f.t);
	for (size_t cut = 0; cut < n; cut += 7) {
		must(fo_fs_write_atomic(path, good, cut));
		assert_int_equal(fo_timeline_read(&f, path), FO_EFORMAT);
	}
	for (size_t i = 0; i < n; i += i < head ? 1 : 5) {
		memcpy(bad, good, n);
		bad[i] ^= 0x81;
		must(fo_fs_write_atomic(path, bad, n));
		fo_status st = fo_timeline_read(&f, path);
		assert_true(st == FO_EFORMAT || (i >= 8 && i < 16));
		if (st == FO_OK)
			fo_timeline_fini(&f.t);
	}
	/* rank, ranks, the host's name, the number of collectives, the clock's offset; a collective's instance, kind,
	 * group, lane, members, colour, place, peer, bytes. */
	static const size_t at[] = { 3,      7,      0,       88,      23,      96 + 3,  96 + 4,
				     96 + 5, 96 + 6, 96 + 11, 96 + 15, 96 + 19, 96 + 23, 96 + 31 };
	for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
		memcpy(bad, good, n);
		if (k == 2)
			memset(bad + head + 24, 'x', 64);
		else
			bad[head + at[k]] = 0x7f;
		if (k > 11) /* a peer of -1 is none, other negative ones are wrong */
			bad[head + at[k]] = 0x80;
		uint64_t sum = XXH3_64bits(bad + head, n - head);
		memcpy(bad + 16, &sum, 8);
		must(fo_fs_write_atomic(path, bad, n));
		if (fo_timeline_read(&f, path) != FO_EFORMAT)
			fail_msg("nonsense number %zu was read", k);
	}
	free(good);
	free(bad);
	fo_timeline_fini(&t);
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
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
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known), cmocka_unit_test(test_went_back), cmocka_unit_test(test_random),
		cmocka_unit_test(test_files), cmocka_unit_test(test_hostile),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
