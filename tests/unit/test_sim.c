/* The simulator on programs small enough to be computed by hand: lanes, waits, parts, the timeline, and a step beside a
 * measured one. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "pass/pass.h"
#include "sim/compare.h"
#include "sim/sim.h"
#include "support/must.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-12 + 1e-9 * fabs(want)))
		fail_msg("got %.12g, expected %.12g", got, want);
}

static void row(struct fo_limits *m, const struct fo_limits_row *like, const char *kind, double flop, double bytes,
		double seconds)
{
	struct fo_limits_row r =
		like ? *like : (struct fo_limits_row){ .cold = NAN, .dim = { 8 }, .flop = flop, .bytes = bytes };
	r.threads = 1;
	r.time = (struct fo_quiet_stats){ 40, 40, seconds, seconds, seconds, seconds };
	if (kind) {
		snprintf(r.kind, sizeof r.kind, "%s", kind);
		snprintf(r.variant, sizeof r.variant, "-");
		snprintf(r.dtype, sizeof r.dtype, "bf16");
	}
	fo_limits_row_add(m, &r);
}
static struct fo_limits machine(double overhead)
{
	struct fo_limits m = { .cache_bytes = 1 << 20 };
	row(&m, NULL, "matmul", 1e9, 1e6, 1e-2);
	row(&m, NULL, "copy", 0, 1e8, 1e-2);
	if (overhead > 0)
		row(&m, NULL, "overhead", 0, 0, overhead);
	return m;
}

/* One block of additions in two lanes, by hand; sizes tell the operations apart. */
struct rig {
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_limits m;
	struct fo_rates r;
	struct fo_sim s;
	int block;
};

static int buffer(struct rig *g, const char *name, int64_t rows)
{
	return fo_buffer_add(&g->p, name, FO_BF16, FO_HOME_ACT, 0, rows, FO_AXIS_ONE, 64, FO_AXIS_ONE);
}
static void known(struct rig *g, const struct fo_op *o, double ms)
{
	struct fo_limits_row w;
	must(fo_op_row(&g->p, o, 0, -1, &w));
	w.cold = NAN; /* whatever the caches hold */
	row(&g->m, &w, NULL, 0, 0, ms * 1e-3);
}
/* c = a + b of `rows` rows; takes so many milliseconds. */
static void add(struct rig *g, int lane, int a, int b, int c, int rows, double ms)
{
	struct fo_op *o = fo_op_insert(&g->p, g->block, g->p.block[g->block].n, FO_OP_add, FO_FORWARD, lane);
	fo_op_arg(&g->p, o, a, 0, FO_READ);
	fo_op_arg(&g->p, o, b, 0, FO_READ);
	fo_op_arg(&g->p, o, c, 0, FO_DEF);
	for (int i = 0; i < 3; i++)
		o->arg[i].nr = rows;
	known(g, o, ms);
}
/* x = rows of a table that the batch names; the loop hands the batch in. */
static int embed(struct rig *g, double ms)
{
	int token = fo_buffer_add(&g->p, "token", FO_I32, FO_HOME_ACT, 0, 64, FO_AXIS_TOKENS, 1, FO_AXIS_ONE),
	    x = buffer(g, "x", 64);
	int table = fo_buffer_add(&g->p, "table", FO_BF16, FO_HOME_PARAM, 0, 64, FO_AXIS_ONE, 64, FO_AXIS_ONE);
	struct fo_op *o = fo_op_insert(&g->p, g->block, 0, FO_OP_host_in, FO_TRANSFER, FO_LANE_HOST);
	o->attr.port = FO_PORT_BATCH;
	fo_op_arg(&g->p, o, token, 0, FO_DEF);
	o = fo_op_insert(&g->p, g->block, 1, FO_OP_embed, FO_FORWARD, FO_LANE_COMPUTE);
	fo_op_arg(&g->p, o, token, 0, FO_READ);
	fo_op_arg(&g->p, o, table, 0, FO_READ);
	fo_op_arg(&g->p, o, x, 0, FO_DEF);
	known(g, o, ms);
	return x;
}
static void out(struct rig *g, int y)
{
	struct fo_op *o = fo_op_insert(&g->p, g->block, g->p.block[g->block].n, FO_OP_host_out, FO_TRANSFER,
				       FO_LANE_HOST);
	o->attr.port = FO_PORT_LOGITS;
	fo_op_arg(&g->p, o, y, 0, FO_READ);
}
static void simulate(struct rig *g)
{
	fo_slot_add(&g->p, g->block, 0, 0);
	must(fo_unroll(&g->p, &g->u));
	fo_plan(&g->p, &g->u);
	fo_prune_waits(&g->p, &g->u);
	must(fo_rates_init(&g->r, &g->m, 1));
	fo_sim_step(&g->s, &g->p, &g->u, &g->r, -1);
}
static void begin(struct rig *g, double overhead)
{
	memset(g, 0, sizeof *g);
	g->m = machine(overhead);
	g->p.run = (struct fo_lowering){ .seq = 64, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_BF16 };
	g->p.tokens = g->p.model.vocab = 64;
	g->p.ranks = 1;
	g->p.model.layers = g->p.layer_end = 1;
	g->block = fo_block_add(&g->p, "all", FO_ROLE_FORWARD, FO_UNIT_STEP);
}
static void end(struct rig *g)
{
	fo_sim_fini(&g->s);
	fo_unrolled_fini(&g->u);
	fo_program_fini(&g->p);
	fo_limits_fini(&g->m);
}
static double sum_parts(const struct fo_sim *s)
{
	double sum = 0;
	for (int i = 0; i < FO_PART_COUNT; i++)
		sum += s->part_s[i];
	return sum;
}

/* x (2 ms), then x2 (1 ms) on compute, c on the copy lane from x (4 ms: 2 to 6), y on compute from c (6 to 9),
 * z on compute from x and x2, so that their bytes are nobody else's before (9 to 10): the compute lane waits from 3 to
 * 6, for compute of another lane. */
static void test_lanes(void **state)
{
	(void)state;
	struct rig g;
	begin(&g, 0);
	int x = embed(&g, 2), x2 = buffer(&g, "x2", 64), c = buffer(&g, "c", 64), y = buffer(&g, "y", 64),
	    z = buffer(&g, "z", 64);
	add(&g, FO_LANE_COMPUTE, x, x, x2, 8, 1);
	add(&g, FO_LANE_COPY, x, x, c, 16, 4);
	add(&g, FO_LANE_COMPUTE, c, c, y, 12, 3);
	add(&g, FO_LANE_COMPUTE, x, x2, z, 4, 1);
	simulate(&g);
	static const double at[] = { 0, 0, 2e-3, 2e-3, 6e-3, 9e-3 };
	for (int i = 0; i < 6; i++)
		near(g.s.begin_s[i], at[i]);
	near(g.s.step_s, 10e-3);
	near(g.s.part_s[FO_PART_ELEMENTWISE], 7e-3);
	near(g.s.part_s[FO_PART_UNATTRIBUTED], 3e-3);
	near(sum_parts(&g.s), g.s.step_s);
	near(g.s.sure_s[FO_SURE_EXACT], 7e-3);
	assert_int_equal(g.s.waited[4], 3);
	assert_int_equal(g.s.waited[5], -1);
	assert_int_equal(g.s.unknown, 0);
	/* The same as spans: what the profile of a recorded step says. */
	struct fo_timeline t;
	struct fo_profile f = { 0 };
	must(fo_sim_timeline(&g.s, &g.p, &g.u, &t));
	fo_profile_add_step(&f, &t, &g.p, &g.u, 0, 0, 10000000, 0);
	for (int i = 0; i < FO_PART_COUNT; i++)
		near(f.part_ns[i] * 1e-9, g.s.part_s[i]);
	fo_timeline_fini(&t);
	end(&g);
	/* c takes the bytes of x, which nobody reads later: it waits until x2 has read them. */
	begin(&g, 0);
	x = embed(&g, 2), x2 = buffer(&g, "x2", 64), c = buffer(&g, "c", 64);
	add(&g, FO_LANE_COMPUTE, x, x, x2, 8, 1);
	add(&g, FO_LANE_COPY, x, x, c, 16, 4);
	simulate(&g);
	near(g.s.begin_s[3], 3e-3);
	near(g.s.step_s, 7e-3);
	near(sum_parts(&g.s), g.s.step_s);
	end(&g);
}

/* Two lanes that compute share the cores. x (2 ms), then a (4 ms of work) on compute beside w (2 ms of work) on the
 * second lane, both from x: w has had its 2 ms after 4 (2 to 6), a the rest of its own alone (6 to 8). A third lane
 * that copies is not slowed. y on compute waits for both (8 to 9). */
static void test_shared_cores(void **state)
{
	(void)state;
	struct rig g;
	begin(&g, 0);
	int x = embed(&g, 2), a = buffer(&g, "a", 64), w = buffer(&g, "w", 64), c = buffer(&g, "c", 64),
	    y = buffer(&g, "y", 64), z = buffer(&g, "z", 64);
	add(&g, FO_LANE_COMPUTE, x, x, a, 8, 4);
	add(&g, FO_LANE_WGRAD, x, x, w, 16, 2);
	add(&g, FO_LANE_COPY, x, x, c, 12, 5);
	add(&g, FO_LANE_COMPUTE, a, w, y, 4, 1);
	add(&g, FO_LANE_COMPUTE, x, c, z, 2, 1);
	simulate(&g);
	static const double begin_at[] = { 0, 0, 2e-3, 2e-3, 2e-3, 8e-3, 9e-3 },
			    end_at[] = { 0, 2e-3, 8e-3, 6e-3, 7e-3, 9e-3, 10e-3 };
	for (int i = 0; i < 7; i++) {
		near(g.s.begin_s[i], begin_at[i]);
		near(g.s.end_s[i], end_at[i]);
	}
	near(g.s.step_s, 10e-3); /* the sum of what computes: 2 + 4 + 2 + 1 + 1 */
	near(g.s.part_s[FO_PART_ELEMENTWISE], 10e-3);
	near(sum_parts(&g.s), g.s.step_s);
	near(g.s.sure_s[FO_SURE_EXACT], 10e-3);
	struct fo_timeline t;
	struct fo_profile f = { 0 };
	must(fo_sim_timeline(&g.s, &g.p, &g.u, &t));
	fo_profile_add_step(&f, &t, &g.p, &g.u, 0, 0, 10000000, 0);
	for (int i = 0; i < FO_PART_COUNT; i++)
		near(f.part_ns[i] * 1e-9, g.s.part_s[i]);
	fo_timeline_fini(&t);
	/* Beside a recorded step: each operation counts with its own time, which is its work. The first step does not
	 * count. */
	struct fo_timeline_file file = { .program_hash = fo_program_hash(&g.p) };
	struct fo_sim_table table;
	must(fo_timeline_init(&file.t, &g.p, &g.u, 2));
	for (int step = 0; step < 2; step++)
		for (int i = 0; i < g.u.n; i++)
			fo_timeline_record(&file.t, fo_instance_op(&g.p, &g.u, i)->lane, step, i,
					   step * 20000000 + llround(g.s.begin_s[i] * 1e9),
					   step * 20000000 + llround(g.s.end_s[i] * 1e9));
	fo_sim_table_init(&table, &g.s, &g.p, &g.u);
	must(fo_sim_table_timeline(&table, &g.p, &file, "here"));
	assert_true(table.steps == 1 && table.lines == 5); /* not the copy */
	near(table.measured_s, 10e-3);
	near(table.predicted_s, 10e-3);
	for (int i = 0; i < table.lines; i++)
		near(table.line[i].measured_s, table.line[i].predicted_s);
	fo_sim_table_fini(&table);
	fo_timeline_fini(&file.t);
	end(&g);
}

/* Each operation has the executor's overhead, and nothing else costs: a step of null kernels. */
static void test_overhead(void **state)
{
	(void)state;
	struct rig g;
	begin(&g, 1e-6);
	simulate(&g); /* a block without operations */
	assert_int_equal(g.s.n, 0);
	near(g.s.step_s, 0);
	near(sum_parts(&g.s), 0);
	end(&g);
	begin(&g, 1e-6);
	int x = embed(&g, 0), y = buffer(&g, "y", 64);
	add(&g, FO_LANE_COMPUTE, x, x, y, 64, 0);
	out(&g, y);
	simulate(&g);
	near(g.s.step_s, 4e-6);                       /* in, x, y, out: one behind the other */
	near(g.s.part_s[FO_PART_DATA], 2e-6);         /* in front of x; behind y */
	near(g.s.part_s[FO_PART_UNATTRIBUTED], 2e-6); /* dispatch of x and y */
	near(sum_parts(&g.s), g.s.step_s);
	end(&g);
}

/* A whole training step with its passes: parts sum to the step, work on one lane is its sum, and twice as fast a
 * machine takes half the time. */
static void test_step(void **state)
{
	(void)state;
	struct fo_model m = { .name = "tiny",
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
	struct fo_passes pass = { .merge_qkv = 1,
				  .merge_gate_up = 1,
				  .fuse_loss = 16,
				  .fuse_elementwise = 1,
				  .fused_optimizer = 1,
				  .recompute = FO_RECOMPUTE_SELECTIVE };
	struct fo_lowering low = {
		.seq = 32, .rows = 2, .micro_batches = 3, .precision = FO_PRECISION_BF16, .pass = pass
	};
	struct fo_program p;
	struct fo_unrolled u;
	double step[4];
	for (int k = 0; k < 4;
	     k++) { /* 0, 1: on one lane; then weight gradients on a second: neither faster nor slower */
		low.pass.wgrad_lane = k > 1;
		must(fo_pass_build(&p, &m, &low));
		must(fo_unroll(&p, &u));
		fo_plan(&p, &u);
		fo_prune_waits(&p, &u);
		struct fo_limits l = machine(k % 2 ? 1e-6 : 2e-6);
		struct fo_rates r;
		struct fo_sim s;
		for (size_t i = 0; k % 2 && i < l.rows; i++)
			l.row[i].time = (struct fo_quiet_stats){ 40,
								 40,
								 l.row[i].time.best_s / (i < 2 ? 2 : 1),
								 l.row[i].time.median_s / (i < 2 ? 2 : 1),
								 l.row[i].time.best_s / (i < 2 ? 2 : 1),
								 l.row[i].time.median_s / (i < 2 ? 2 : 1) };
		must(fo_rates_init(&r, &l, 1));
		fo_sim_step(&s, &p, &u, &r, -1);
		double kernels = 0;
		for (int i = 0; i < u.n; i++)
			kernels += s.seconds[i];
		near(sum_parts(&s), s.step_s);
		near(s.sure_s[FO_SURE_GUESS] + s.sure_s[FO_SURE_NEAR] + s.sure_s[FO_SURE_EXACT], kernels);
		assert_true(s.step_s > kernels && s.step_s < kernels + 2e-6 * u.n + 1e-9);
		step[k] = s.step_s;
		fo_sim_fini(&s);
		fo_limits_fini(&l);
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
	near(step[0], 2 * step[1]);
	near(step[2], 2 * step[3]);
	near(step[2], step[0]);
}

/* Against counting: documents end to end at every place a row can be cut out of them. */
static void test_pairs(void **state)
{
	(void)state;
	near(fo_sim_pairs(8, 1e15), 8.0 * 9 / 2);
	near(fo_sim_pairs(8, 1), 8 + 7 * 0.5);
	for (int n = 2; n <= 40; n += 19) {
		double sum = 0;
		enum { S = 24, STEPS = 2000 };
		for (int k = 0; k < STEPS; k++) { /* offsets in a continuous document, the middle of each step */
			double offset = (k + 0.5) * n / STEPS;
			for (int i = 0; i < S; i++) {
				double o = fmod(offset + i, n);
				sum += 1 + (o < i ? o : i);
			}
		}
		double got = fo_sim_pairs(S, n), want = sum / STEPS;
		if (fabs(got - want) > 0.01 * want)
			fail_msg("documents of %d: got %g, expected %g", n, got, want);
	}
}

/* ---- beside a measured step ---- */

static void record(struct fo_timeline *t, const struct rig *g, int step, int64_t scale)
{
	int64_t at = 1000000 * (int64_t)step;
	for (int i = 0; i < g->u.n; i++) {
		int64_t ns = llround(g->s.seconds[i] * 1e9) * scale;
		fo_timeline_record(t, fo_instance_op(&g->p, &g->u, i)->lane, step, i, at, at + ns);
		at += ns;
	}
}

static void test_compare(void **state)
{
	(void)state;
	struct rig g;
	struct fo_sim_table t;
	struct fo_timeline line;
	struct fo_timeline_file f = { 0 };
	char dir[] = "test_sim.XXXXXX", path[64];
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/timeline.fot", dir);
	begin(&g, 0);
	int x = embed(&g, 0.02), y = buffer(&g, "y", 64);
	add(&g, FO_LANE_COMPUTE, x, x, y, 64, 0.01);
	out(&g, y);
	simulate(&g);
	/* Four steps, one in between was not recorded: the first does not count; the others took twice, four and three
	 * times what is predicted. */
	static const int64_t scale[] = { 9, 2, 4, 3 };
	must(fo_timeline_init(&line, &g.p, &g.u, 4));
	for (int k = 0; k < 4; k++)
		record(&line, &g, k < 2 ? k : k + 1, scale[k]);
	must(fo_timeline_write(&line, &g.p, path));
	must(fo_timeline_read(&f, path));
	fo_sim_table_init(&t, &g.s, &g.p, &g.u);
	assert_int_equal(t.lines, 2);
	near(t.predicted_s, 0.03e-3);
	must(fo_sim_table_timeline(&t, &g.p, &f, path));
	assert_int_equal(t.steps, 3);
	near(t.measured_s, 0.09e-3);
	fo_sim_table_sort(&t);
	near(t.line[0].measured_s, 0.06e-3);
	near(t.line[0].predicted_s, 0.02e-3);
	near(t.line[1].measured_s, 0.03e-3);
	assert_int_equal(t.line[0].times, 1);
	assert_int_equal(t.line[0].sure, FO_SURE_EXACT);
	/* Of another program; and a timeline of one step. */
	f.program_hash++;
	assert_int_equal(fo_sim_table_timeline(&t, &g.p, &f, path), FO_EFORMAT);
	fo_timeline_fini(&f.t);
	fo_timeline_fini(&line);
	must(fo_timeline_init(&line, &g.p, &g.u, 4));
	record(&line, &g, 0, 1);
	f = (struct fo_timeline_file){ .program_hash = fo_program_hash(&g.p), .t = line };
	assert_int_equal(fo_sim_table_timeline(&t, &g.p, &f, path), FO_EARG);
	fo_timeline_fini(&line);
	fo_sim_table_fini(&t);
	/* By operation from metered steps; one was never measured. */
	struct fo_composed_op op[] = { { .block = 0, .op = 1, .per_step = 1, .time.spans = 3, .seconds = 0.05e-3 },
				       { .block = 0, .op = 2, .per_step = 1 } };
	struct fo_composed c = { .op = op, .ops = 2, .steps = 5 };
	fo_sim_table_init(&t, &g.s, &g.p, &g.u);
	fo_sim_table_composed(&t, &c);
	assert_int_equal(t.steps, 5);
	near(t.measured_s, 0.05e-3);
	near(t.predicted_s, 0.02e-3);
	fo_sim_table_sort(&t);
	near(t.line[0].measured_s, 0.05e-3);
	assert_true(isnan(t.line[1].measured_s));
	fo_sim_table_fini(&t);
	end(&g);
	unlink(path);
	rmdir(dir);
}

/* A run that was gone on with after its peak was measured anew: 6N of all tokens, half of a row's pairs, whoever did
 * the step. */
static void test_load(void **state)
{
	(void)state;
	struct fo_model m = tiny_model();
	struct fo_lowering low = {
		.seq = 16, .rows = 2, .micro_batches = 1, .precision = FO_PRECISION_F32, .mode = FO_MODE_TRAIN
	};
	struct fo_record r = { .peak_flop_s = 4e6 };
	must(fo_program_lower(&r.program, &m, &low));
	double pairs = 16 * 17 / 2, tokens = 30, seconds[] = { 0.5, 2 }, value[2][2];
	struct fo_record_start start[] = { { .step = 0, .peak_flop_s = 1e6 }, { .step = 1, .peak_flop_s = 4e6 } };
	int64_t step[] = { 1, 2 };
	int32_t by[] = { 0, 1 };
	for (int i = 0; i < 2; i++) {
		value[0][i] = tokens * fo_model_flop_per_token(&m, 16).mfu_6n / seconds[i] / start[i].peak_flop_s;
		value[1][i] = fo_program_cost(&r.program, pairs).exec / seconds[i] / start[i].peak_flop_s;
	}
	r.start = start;
	r.starts = 2;
	r.step = (struct fo_record_steps){
		.n = 2,
		.step = step,
		.start = by,
		.value = { [FO_STEP_SECONDS] = seconds, [FO_STEP_MFU_6N] = value[0], [FO_STEP_HFU] = value[1] }
	};
	struct fo_sim_load load = fo_sim_load_of_run(&r);
	near(load.tokens, tokens);
	near(load.pairs, pairs);
	fo_program_fini(&r.program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lanes), cmocka_unit_test(test_shared_cores), cmocka_unit_test(test_overhead),
		cmocka_unit_test(test_step),  cmocka_unit_test(test_pairs),        cmocka_unit_test(test_compare),
		cmocka_unit_test(test_load),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
