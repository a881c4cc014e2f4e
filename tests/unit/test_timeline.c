/* Spans, the step profile, the meter, and timeline files from anywhere. */
#include "timeline/timeline.h"
#include "pass/pass.h"
#include "base/fs.h"
#include "support/must.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static char dir[] = "test_timeline.XXXXXX", path[64];
static struct fo_program p;
static struct fo_unrolled u;

static double sum_parts(const struct fo_profile *f)
{
	double s = 0;
	for (int i = 0; i < FO_PART_COUNT; i++)
		s += f->part_ns[i];
	return s;
}

static int instance_of(int kind)
{
	for (int i = 0; i < u.n; i++)
		if (fo_instance_op(&p, &u, i)->kind == kind)
			return i;
	fail_msg("no such operation");
	return -1;
}

static void test_profile(void **state)
{
	(void)state;
	struct fo_timeline t;
	struct fo_profile f = { 0 };
	must(fo_timeline_init(&t, &p, &u, 4));
	int mm = instance_of(FO_OP_matmul), at = instance_of(FO_OP_attention), ab = instance_of(FO_OP_attention_bwd),
	    in = instance_of(FO_OP_host_in), ad = instance_of(FO_OP_adamw);
	for (int step = 0; step < 2; step++) {
		int64_t b = 1000 * step;
		fo_timeline_record(&t, FO_LANE_COMPUTE, step, ~in, b, b + 50); /* waits for the batch */
		fo_timeline_record(&t, FO_LANE_COMPUTE, step, mm, b + 50, b + 350);
		fo_timeline_record(&t, FO_LANE_COMPUTE, step, at, b + 350, b + 450);
		fo_timeline_record(&t, FO_LANE_COMPUTE, step, ab, b + 460, b + 660);
		fo_timeline_record(&t, FO_LANE_COMPUTE, step, ad, b + 660, b + 700);
		fo_timeline_record(&t, FO_LANE_COMPUTE, step, ~mm, b + 700,
				   b + 730); /* waits for a product of another lane */
		fo_timeline_record(&t, FO_LANE_HOST, step, in, b, b + 50);
		fo_profile_add_step(&f, &t, &p, &u, step, b - 25, b + 800, 25);
	}
	assert_int_equal(f.steps, 2);
	assert_true(f.total_ns == 2 * 825 && sum_parts(&f) == f.total_ns);
	assert_true(f.part_ns[FO_PART_MATMUL] == 600 && f.part_ns[FO_PART_ATTENTION_FORWARD] == 200 &&
		    f.part_ns[FO_PART_ATTENTION_BACKWARD] == 400);
	assert_true(f.part_ns[FO_PART_OPTIMIZER] == 80 && f.part_ns[FO_PART_DATA] == 2 * 75 &&
		    f.part_ns[FO_PART_COMMUNICATION] == 0);
	/* 80 of each step that no span covers, 30 of waiting for a product of another lane: that is not communication.
	 */
	assert_true(f.part_ns[FO_PART_UNATTRIBUTED] == 2 * 110);
	/* A step that was not timed: apart, in no part. */
	fo_profile_add_step(&f, &t, &p, &u, 99, 9000, 9900, 25);
	assert_true(f.steps == 2 && f.total_ns == 2 * 825 && sum_parts(&f) == f.total_ns);
	assert_true(f.untimed_steps == 1 && f.untimed_ns == 900);
	/* A step that comes again after the run went back: the earlier one's spans are not its own, timed or not. */
	fo_profile_add_step(&f, &t, &p, &u, 1, 9900, 10000, 0);
	assert_true(f.steps == 2 && f.untimed_steps == 2);
	fo_timeline_record(&t, FO_LANE_COMPUTE, 1, mm, 10000, 10100);
	fo_profile_add_step(&f, &t, &p, &u, 1, 10000, 10200, 0);
	assert_true(f.steps == 3 && f.part_ns[FO_PART_MATMUL] == 700 && sum_parts(&f) == f.total_ns);
	fo_timeline_fini(&t);
}

/* Two lanes that compute share a moment in which both run: a half each. One that waits leaves it to the one that runs;
 * other lanes have no part in it. */
static void test_shared(void **state)
{
	(void)state;
	struct fo_program q;
	struct fo_unrolled v;
	struct fo_timeline t;
	struct fo_timeline_file file;
	struct fo_lowering low = p.run;
	low.pass.wgrad_lane = 1;
	must(fo_pass_build(&q, &p.model, &low));
	must(fo_unroll(&q, &v));
	must(fo_timeline_init(&t, &q, &v, 2));
	int mm = -1, wg = -1, ad = -1, at = -1, computing = 0;
	for (int i = 0; i < v.n; i++) {
		const struct fo_op *o = fo_instance_op(&q, &v, i);
		computing += o->lane == FO_LANE_COMPUTE || o->lane == FO_LANE_WGRAD;
		wg = o->lane == FO_LANE_WGRAD ? i : wg;
		mm = o->lane == FO_LANE_COMPUTE && o->kind == FO_OP_matmul ? i : mm;
		ad = o->kind == FO_OP_adamw ? i : ad;
		at = o->kind == FO_OP_attention_bwd ? i : at;
	}
	assert_true(wg >= 0 && fo_instance_op(&q, &v, wg)->phase == FO_WGRAD &&
		    computing == fo_instances_computing(&q, &v));
	for (int step = 0; step < 2; step++) {
		struct fo_profile f = { 0 };
		int64_t b = 1000 * step;
		fo_timeline_record(&t, FO_LANE_COMPUTE, step, mm, b, b + 100);
		fo_timeline_record(&t, FO_LANE_WGRAD, step, ~mm, b, b + 100);        /* nobody's: the other lane runs */
		fo_timeline_record(&t, FO_LANE_COMPUTE, step, at, b + 100, b + 300); /* beside a product from 150 on */
		fo_timeline_record(&t, FO_LANE_WGRAD, step, wg, b + 150, b + 350);
		fo_timeline_record(&t, FO_LANE_WGRAD, step, wg, b + 350, b + 450);
		fo_timeline_record(&t, FO_LANE_COMPUTE, step, ~wg, b + 320, b + 470); /* 20 of it: nothing runs */
		fo_timeline_record(&t, FO_LANE_COMPUTE, step, ad, b + 470, b + 500);
		fo_profile_add_step(&f, &t, &q, &v, step, b - 10, b + 510, 0);
		assert_true(f.steps == 1 && f.total_ns == 520 && sum_parts(&f) == 520);
		assert_true(f.part_ns[FO_PART_ATTENTION_BACKWARD] == 50 + 150 / 2.0 &&
			    f.part_ns[FO_PART_OPTIMIZER] == 30);
		assert_true(f.part_ns[FO_PART_MATMUL] == 100 + 150 / 2.0 + 150 &&
			    f.part_ns[FO_PART_UNATTRIBUTED] == 10 + 10 + 20);
		assert_int_equal(fo_timeline_ran(&t, step, b, b + 500), 5);
		assert_int_equal(fo_timeline_ran(&t, step + 7, b, b + 500), 0);
	}
	/* The file has the lane, and one of the version before it is still read. */
	must(fo_timeline_write(&t, &q, path));
	must(fo_timeline_read(&file, path));
	assert_int_equal(file.t.lane[FO_LANE_WGRAD].n, t.lane[FO_LANE_WGRAD].n);
	assert_true(file.t.lane[FO_LANE_WGRAD].span[1].begin_ns == 150 && fo_timeline_begins("FOTIMEL2", 8));
	fo_timeline_fini(&file.t);
	t.lane[FO_LANE_WGRAD].n = 0;
	must(fo_timeline_write(&t, &q, path));
	struct fo_map m;
	must(fo_map_open(&m, path));
	enum { COUNTS = 24, LANES = 10 }; /* where the spans of each lane stand, and how many lanes there were */
	size_t n = m.len - 8;
	unsigned char *old = malloc(n);
	memcpy(old, m.data, COUNTS + LANES * 8);
	memcpy(old + COUNTS + LANES * 8, m.data + COUNTS + (LANES + 1) * 8, n - COUNTS - LANES * 8);
	memcpy(old, "FOTIMEL1", 8);
	fo_map_close(&m);
	must(fo_fs_write_atomic(path, old, n));
	must(fo_timeline_read(&file, path));
	assert_true(file.t.lane[FO_LANE_COMPUTE].n == t.lane[FO_LANE_COMPUTE].n && file.t.lane[FO_LANE_WGRAD].n == 0);
	assert_memory_equal(file.t.lane[FO_LANE_COMPUTE].span, t.lane[FO_LANE_COMPUTE].span,
			    t.lane[FO_LANE_COMPUTE].n * sizeof(struct fo_span));
	assert_true(fo_timeline_begins("FOTIMEL1", 8) && fo_timeline_begins("FOTIMEL4", 8) &&
		    !fo_timeline_begins("FOTIMEL5", 8) && !fo_timeline_begins("FOTIMEL1", 7));
	free(old);
	fo_timeline_fini(&file.t);
	fo_timeline_fini(&t);
	fo_unrolled_fini(&v);
	fo_program_fini(&q);
}

/* A ring keeps the newest spans. */
static void test_ring(void **state)
{
	(void)state;
	struct fo_timeline t;
	must(fo_timeline_init(&t, &p, &u, 2));
	struct fo_ring *r = &t.lane[FO_LANE_COMPUTE];
	int64_t n = 3 * (int64_t)r->cap + 5;
	for (int64_t i = 0; i < n; i++)
		fo_timeline_record(&t, FO_LANE_COMPUTE, (int32_t)(i / 10), 0, i, i + 1);
	assert_true((int64_t)r->n == n);
	for (int64_t i = n - r->cap; i < n; i++)
		assert_true(r->span[i % r->cap].begin_ns == i);
	assert_int_equal(t.lane[FO_LANE_TP].cap, 0); /* an unused lane costs nothing */
	fo_timeline_fini(&t);
}

static void test_round_trip(void **state)
{
	(void)state;
	struct fo_timeline t;
	struct fo_timeline_file f;
	must(fo_timeline_init(&t, &p, &u, 1));
	t.origin_ns = 1000000;
	must(fo_timeline_write(&t, &p, path)); /* nothing recorded yet */
	must(fo_timeline_read(&f, path));
	assert_int_equal(f.t.lane[FO_LANE_COMPUTE].n, 0);
	fo_timeline_fini(&f.t);
	uint32_t cap = t.lane[FO_LANE_COMPUTE].cap;
	for (uint32_t i = 0; i < cap + 7; i++)
		fo_timeline_record(&t, FO_LANE_COMPUTE, (int32_t)i, i % 2 ? (int32_t)i : ~(int32_t)i, t.origin_ns + i,
				   t.origin_ns + i + 1);
	fo_timeline_record(&t, FO_LANE_HOST, 3, 4, t.origin_ns + 5, t.origin_ns + 5);
	must(fo_timeline_write(&t, &p, path));
	must(fo_timeline_read(&f, path));
	assert_int_equal(f.t.lane[FO_LANE_COMPUTE].n, cap);
	for (uint32_t i = 0; i < cap; i++) {
		const struct fo_span *s = &f.t.lane[FO_LANE_COMPUTE].span[i];
		uint32_t k = i + 7;
		assert_true(s->begin_ns == k && s->end_ns == k + 1 && s->step == (int32_t)k &&
			    s->instance == (k % 2 ? (int32_t)k : ~(int32_t)k));
	}
	assert_true(f.t.lane[FO_LANE_HOST].n == 1 && f.t.lane[FO_LANE_HOST].span[0].begin_ns == 5);
	/* Another program's instances do not lead outside this one. */
	struct fo_profile prof = { 0 };
	f.t.lane[FO_LANE_COMPUTE].span[cap - 1].instance = INT32_MAX;
	f.t.lane[FO_LANE_COMPUTE].span[cap - 2].instance = INT32_MIN;
	f.t.lane[FO_LANE_COMPUTE].span[cap - 2].step = (int32_t)(cap + 6);
	fo_profile_add_step(&prof, &f.t, &p, &u, (int32_t)(cap + 6), 0, 100, 0);
	assert_true(sum_parts(&prof) == 100);
	fo_timeline_fini(&f.t);
	fo_timeline_fini(&t);
}

static fo_status read_bytes(const void *bytes, size_t n)
{
	struct fo_timeline_file f;
	FILE *out = fopen(path, "wb");
	assert_int_equal(fwrite(bytes, 1, n, out), n);
	fclose(out);
	fo_err_clear();
	fo_status st = fo_timeline_read(&f, path);
	if (st == FO_OK)
		fo_timeline_fini(&f.t);
	else
		assert_non_null(strstr(fo_err_text(), path));
	return st;
}

static void test_hostile(void **state)
{
	(void)state;
	struct fo_timeline t;
	struct fo_map m;
	must(fo_timeline_init(&t, &p, &u, 1));
	for (int i = 0; i < 9; i++)
		fo_timeline_record(&t, FO_LANE_COMPUTE, 0, i, i * 10, i * 10 + 5);
	must(fo_timeline_write(&t, &p, path));
	fo_timeline_fini(&t);
	must(fo_map_open(&m, path));
	size_t n = m.len;
	unsigned char *good = malloc(n + 64), *bad = malloc(n + 64);
	memcpy(good, m.data, n);
	fo_map_close(&m);
	assert_int_equal(read_bytes(good, n), FO_OK);
	for (size_t cut = 0; cut < n; cut += 3)
		assert_int_equal(read_bytes(good, cut), FO_EFORMAT);
	for (size_t i = 0; i < n; i++) {
		memcpy(bad, good, n);
		bad[i] ^= 0x81;
		fo_status st = read_bytes(bad, n);
		assert_true(st == FO_EFORMAT || (i >= 8 && i < 16)); /* those are the program's hash: any will do */
	}
	memcpy(bad, good, n);
	memset(bad + n, 0, 64);
	assert_int_equal(read_bytes(bad, n + 24), FO_EFORMAT);
	/* A right checksum over wrong content: spans that end before they begin, or run backwards; counts that
	 * overflow. */
	size_t head = n - 9 * sizeof(struct fo_span);
	for (int how = 0; how < 4; how++) {
		memcpy(bad, good, n);
		int64_t v = how == 0 ? -1 : how == 1 ? INT64_MIN : INT64_MAX;
		if (how < 3)
			memcpy(bad + head + 4 * sizeof(struct fo_span) + (how == 2 ? 0 : 8), &v, 8);
		else
			memset(bad + 24, 0xff, 8); /* spans of the first lane */
		uint64_t sum = XXH3_64bits(bad + head, n - head);
		memcpy(bad + 16, &sum, 8);
		assert_int_equal(read_bytes(bad, n), FO_EFORMAT);
	}
	assert_int_equal(fo_timeline_read(&(struct fo_timeline_file){ 0 }, "no/such/file"), FO_EIO);
	free(good);
	free(bad);
}

static void test_meter(void **state)
{
	(void)state;
	double tokens = (double)(p.tokens * p.run.micro_batches), pairs = (double)p.run.micro_batches *
									  (double)p.run.rows * (double)p.run.seq *
									  (double)(p.run.seq + 1) / 2;
	struct fo_flop f = fo_model_flop_per_token(&p.model, p.run.seq);
	struct fo_mfu m = fo_mfu_of_step(&p, tokens, pairs, 0.5, 1e9);
	assert_true(fabs(m.mfu / (f.mfu * tokens / 0.5e9) - 1) < 1e-14);
	assert_true(fabs(m.mfu_causal / (f.mfu_causal * tokens / 0.5e9) - 1) < 1e-14);
	assert_true(fabs(m.mfu_6n / (f.mfu_6n * tokens / 0.5e9) - 1) < 1e-14);
	assert_true(fabs(m.hfu / (fo_program_cost(&p, -1).exec / 0.5e9) - 1) < 1e-14);
	/* Unbroken rows have (S + 1)/2 visible keys per query where the causal rule takes S/2. */
	assert_true(m.mfu_document > m.mfu_causal && m.mfu_document < m.mfu);
	struct fo_mfu half = fo_mfu_of_step(&p, tokens, pairs / 2, 0.5, 1e9);
	assert_true(fabs((m.mfu_document - half.mfu_document) / ((m.mfu_document - m.mfu_6n) / 2) - 1) < 1e-9);
}

static int set_up(void **state)
{
	(void)state;
	struct fo_model m = tiny_model();
	struct fo_lowering low = {
		.seq = 8, .rows = 2, .micro_batches = 2, .precision = FO_PRECISION_BF16, .mode = FO_MODE_TRAIN
	};
	if (!mkdtemp(dir) || fo_program_lower(&p, &m, &low) != FO_OK || fo_unroll(&p, &u) != FO_OK)
		return 1;
	fo_plan(&p, &u);
	snprintf(path, sizeof path, "%s/x.fot", dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
	return fo_fs_remove_tree(dir) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_profile),    cmocka_unit_test(test_shared),  cmocka_unit_test(test_ring),
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_hostile), cmocka_unit_test(test_meter),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
