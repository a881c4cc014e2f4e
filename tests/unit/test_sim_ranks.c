/* The simulator of many ranks: programs small enough to be computed by hand, the cost of calls between ranks, and whole
 * steps against accounting and against one rank's. */
#include "pass/pass.h"
#include "sim/ranks.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-12 + 1e-9 * fabs(want)))
		fail_msg("got %.12g, expected %.12g", got, want);
}

/* ---- by hand: a rank's program is one block of operations whose times are set ---- */

enum { MOST = 16 };
struct hand {
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_sim s;
	int block, n;
	double ms[MOST], hold_ms[MOST];
};

static int buffer(struct hand *g, const char *name)
{
	return fo_buffer_add(&g->p, name, FO_F32, FO_HOME_ACT, 0, 64, FO_AXIS_ONE, 64, FO_AXIS_ONE);
}

static void begin(struct hand *g, int replicate, int shard)
{
	memset(g, 0, sizeof *g);
	g->p.run = (struct fo_lowering){ .seq = 64, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_F32 };
	g->p.run.mesh = (struct fo_mesh){ .replicate = replicate, .shard = shard };
	g->p.tokens = g->p.model.vocab = 64;
	g->p.ranks = replicate * shard;
	g->p.model.layers = g->p.layer_end = 1;
	g->block = fo_block_add(&g->p, "all", FO_ROLE_FORWARD, FO_UNIT_STEP);
}

static struct fo_op *op(struct hand *g, int kind, int lane, double ms, double hold_ms)
{
	g->ms[g->n] = ms;
	g->hold_ms[g->n++] = hold_ms;
	return fo_op_insert(&g->p, g->block, g->p.block[g->block].n, kind, FO_FORWARD, lane);
}

/* The batch, at 0 s. */
static int input(struct hand *g)
{
	int token = fo_buffer_add(&g->p, "token", FO_I32, FO_HOME_ACT, 0, 64, FO_AXIS_TOKENS, 1, FO_AXIS_ONE),
	    x = buffer(g, "x"),
	    table = fo_buffer_add(&g->p, "table", FO_F32, FO_HOME_PARAM, 0, 64, FO_AXIS_ONE, 64, FO_AXIS_ONE);
	struct fo_op *o = op(g, FO_OP_host_in, FO_LANE_HOST, 0, 0);
	o->attr.port = FO_PORT_BATCH;
	fo_op_arg(&g->p, o, token, 0, FO_DEF);
	o = op(g, FO_OP_embed, FO_LANE_COMPUTE, 0, 0);
	fo_op_arg(&g->p, o, token, 0, FO_READ);
	fo_op_arg(&g->p, o, table, 0, FO_READ);
	fo_op_arg(&g->p, o, x, 0, FO_DEF);
	return x;
}

static int compute(struct hand *g, int from, const char *name, double ms)
{
	int to = buffer(g, name);
	struct fo_op *o = op(g, FO_OP_add, FO_LANE_COMPUTE, ms, 0);
	fo_op_arg(&g->p, o, from, 0, FO_READ);
	fo_op_arg(&g->p, o, from, 0, FO_READ);
	fo_op_arg(&g->p, o, to, 0, FO_DEF);
	return to;
}

static void reduce(struct hand *g, int x, int group, int lane, double ms, double hold_ms)
{
	struct fo_op *o = op(g, FO_OP_all_reduce, lane, ms, hold_ms);
	o->group = (uint8_t)group;
	fo_op_arg(&g->p, o, x, 0, FO_UPDATE);
}

static void finish(struct hand *g)
{
	fo_slot_add(&g->p, g->block, 0, 0);
	must(fo_unroll(&g->p, &g->u));
	fo_plan(&g->p, &g->u);
	fo_prune_waits(&g->p, &g->u);
	fo_sim_init(&g->s, &g->u, 0);
	assert_int_equal(g->u.n, g->n);
	for (int i = 0; i < g->n; i++) {
		g->s.seconds[i] = 1e-3 * g->ms[i];
		g->s.hold_s[i] = 1e-3 * g->hold_ms[i];
	}
}

static fo_status walk(struct hand *g, int ranks)
{
	struct fo_sim_rank r[MOST];
	for (int i = 0; i < ranks; i++)
		r[i] = (struct fo_sim_rank){ &g[i].p, &g[i].u, &g[i].s, NULL };
	return fo_sim_walk_ranks(r, ranks, false);
}

static void end(struct hand *g, int ranks)
{
	for (int i = 0; i < ranks; i++) {
		fo_sim_fini(&g[i].s);
		fo_unrolled_fini(&g[i].u);
		fo_program_fini(&g[i].p);
	}
}

/* Both compute a, which is added up, and b beside that; then c reads the sum. Rank 0's a takes 1 ms, rank 1's 4: the
 * call begins at 4 and takes links 3 ms (4 to 7). b takes 2 ms: rank 0 is idle from 3 to 7, of which 3 to 4 is waiting
 * for rank 1; rank 1 from 6 to 7, all transfer. c takes 1 ms: both end at 8. */
static void test_late(void **state)
{
	(void)state;
	struct hand g[2];
	for (int r = 0; r < 2; r++) {
		begin(&g[r], 2, 1);
		int x = input(&g[r]), a = compute(&g[r], x, "a", r ? 4 : 1);
		reduce(&g[r], a, FO_GROUP_DATA, FO_LANE_REDUCE, 0.5, 3);
		compute(&g[r], x, "b", 2);
		compute(&g[r], a, "c", 1);
		finish(&g[r]);
	}
	must(walk(g, 2));
	for (int r = 0; r < 2; r++) {
		near(g[r].s.step_s, 8e-3);
		near(g[r].s.end_s[3], 7e-3);
		near(g[r].s.exposed_s, r ? 1e-3 : 4e-3);
		near(g[r].s.exposed_late_s, r ? 0 : 1e-3);
		near(g[r].s.comm_s, r ? 3e-3 : 6e-3);
		near(g[r].s.late_s[3], r ? 0 : 3e-3);
		near(g[r].s.part_s[FO_PART_COMMUNICATION], g[r].s.exposed_s);
	}
	end(g, 2);
}

/* Two calls on two lanes share a rank's link: the second waits for it. The ranks' own work begins at once, so the call
 * that takes the ranks longer than the links ends with them. */
static void test_links(void **state)
{
	(void)state;
	struct hand g[2];
	for (int r = 0; r < 2; r++) {
		begin(&g[r], 2, 1);
		int x = input(&g[r]), a = compute(&g[r], x, "a", 1), b = compute(&g[r], x, "b", 1);
		reduce(&g[r], a, FO_GROUP_DATA, FO_LANE_REDUCE, 1, 4); /* 1 to 5 */
		reduce(&g[r], b, FO_GROUP_DATA, FO_LANE_GATHER, 1, 2); /* from 2: links 5 to 7 */
		finish(&g[r]);
	}
	must(walk(g, 2));
	near(g->s.end_s[4], 5e-3);
	near(g->s.end_s[5], 7e-3);
	near(g->s.step_s, 7e-3);
	near(g->s.exposed_s, 5e-3); /* behind b */
	end(g, 2);
	begin(g, 2, 1);
	int a = compute(g, input(g), "a", 1);
	reduce(g, a, FO_GROUP_DATA, FO_LANE_REDUCE, 6, 4);
	finish(g);
	struct fo_sim_rank one = { &g->p, &g->u, &g->s, NULL };
	must(fo_sim_walk_ranks(&one, 2, true)); /* both alike */
	near(g->s.end_s[3], 7e-3);
	end(g, 1);
}

/* A mesh of 2 x 2: groups of neighbours (shard) do not wait for each other, those across (replicate) do. Rank 3 is late
 * by 5 ms: its neighbour 2 waits in the first call, and its partner 1 in the second; rank 0 with 2. */
static void test_groups(void **state)
{
	(void)state;
	struct hand g[4];
	for (int r = 0; r < 4; r++) {
		begin(&g[r], 2, 2);
		int a = compute(&g[r], input(&g[r]), "a", r == 3 ? 6 : 1);
		reduce(&g[r], a, FO_GROUP_SHARD, FO_LANE_REDUCE, 1, 1);
		reduce(&g[r], a, FO_GROUP_REPLICATE, FO_LANE_REDUCE, 1, 1);
		finish(&g[r]);
	}
	must(walk(g, 4));
	for (int r = 0; r < 4; r++) {
		near(g[r].s.end_s[3], r < 2 ? 2e-3 : 7e-3);
		near(g[r].s.end_s[4], 8e-3);
		near(g[r].s.late_s[4], r < 2 ? 5e-3 : 0);
	}
	near(g[2].s.late_s[3], 5e-3);
	end(g, 4);
}

/* Rank 0 comes to its neighbour's call at 1, and the neighbour at 3. Meanwhile, from 2 on, a call with its partner has
 * rank 0's link for 4 ms: there the first call is carried from 6 to 7, and is over. The neighbour's link has carried it
 * from 3 to 4, and carries what is called there at 4 at once. */
static void test_link_taken(void **state)
{
	(void)state;
	struct hand g[4];
	for (int r = 0; r < 4; r++) {
		begin(&g[r], 2, 2);
		int x = input(&g[r]), a = compute(&g[r], x, "a", r == 1 ? 3 : 1), b = compute(&g[r], x, "b", 1);
		reduce(&g[r], a, FO_GROUP_SHARD, FO_LANE_REDUCE, 0.5, 1);
		reduce(&g[r], b, FO_GROUP_REPLICATE, FO_LANE_GATHER, 0.5, 4);
		finish(&g[r]);
	}
	must(walk(g, 4));
	near(g[2].s.end_s[4], 2e-3);
	near(g[0].s.end_s[5], 6e-3);
	near(g[0].s.end_s[4], 7e-3);
	near(g[1].s.end_s[4], 7e-3);
	near(g[1].s.end_s[5], 8e-3);
	end(g, 4);
}

static void transfer(struct hand *g, int x, bool sends, int peer)
{
	struct fo_op *o = op(g, sends ? FO_OP_send : FO_OP_receive, sends ? FO_LANE_SEND_FORWARD : FO_LANE_RECV_FORWARD,
			     1, 2);
	o->group = FO_GROUP_DATA;
	o->attr.peer = peer;
	g->p.rank = g->p.run.mesh.rank = !peer; /* of two */
	fo_op_arg(&g->p, o, x, 0, sends ? FO_READ : FO_DEF);
}

/* Rank 0 sends a at 3 ms, rank 1 waits for it: 3 to 5. What both wait for, or one calls alone, never ends. */
static void test_pairs_and_hangs(void **state)
{
	(void)state;
	struct hand g[2];
	for (int r = 0; r < 2; r++) {
		begin(&g[r], 2, 1);
		int x = input(&g[r]);
		int y = r ? buffer(&g[r], "y") : compute(&g[r], x, "a", 3);
		transfer(&g[r], y, !r, !r);
		if (r)
			compute(&g[r], y, "b", 1);
		finish(&g[r]);
	}
	must(walk(g, 2));
	near(g[0].s.step_s, 5e-3);
	near(g[1].s.step_s, 6e-3);
	near(g[1].s.exposed_s, 5e-3);
	near(g[1].s.exposed_late_s, 3e-3);
	end(g, 2);
	/* One calls and the other does not. */
	for (int r = 0; r < 2; r++) {
		begin(&g[r], 2, 1);
		int a = compute(&g[r], input(&g[r]), "a", 1);
		if (r)
			reduce(&g[r], a, FO_GROUP_DATA, FO_LANE_REDUCE, 1, 1);
		finish(&g[r]);
	}
	assert_int_equal(walk(g, 2), FO_EBUG);
	assert_non_null(strstr(fo_err_text(), "rank 1 waits in all_reduce of all on lane reduce"));
	end(g, 2);
	/* Each receives before it sends. */
	for (int r = 0; r < 2; r++) {
		begin(&g[r], 2, 1);
		input(&g[r]);
		int y = buffer(&g[r], "y");
		transfer(&g[r], y, false, !r);
		int a = compute(&g[r], y, "a", 1);
		transfer(&g[r], a, true, !r);
		finish(&g[r]);
	}
	assert_int_equal(walk(g, 2), FO_EBUG);
	end(g, 2);
	/* In another order: the second call of one is the first of the other. */
	for (int r = 0; r < 2; r++) {
		begin(&g[r], 2, 1);
		int x = input(&g[r]), a = compute(&g[r], x, "a", 1);
		reduce(&g[r], a, FO_GROUP_DATA, FO_LANE_REDUCE, 1, 1);
		if (r)
			g[r].p.block[g[r].block].op[3].arg[0].nr = 32;
		finish(&g[r]);
	}
	assert_int_equal(walk(g, 2), FO_EBUG);
	assert_non_null(strstr(fo_err_text(), "rank 1 calls all_reduce of 2048 f32 in all where rank 0 calls "
					      "all_reduce of 4096 f32"));
	end(g, 2);
}

/* ---- the cost of a call ---- */

static void row(struct fo_limits *m, const char *kind, const char *variant, int threads, int64_t ranks, double bytes,
		double seconds)
{
	struct fo_limits_row r = { .cold = NAN, .threads = threads, .bytes = bytes, .flop = 1e9 };
	r.dim[0] = ranks;
	r.time = (struct fo_quiet_stats){ 40, 40, seconds, seconds, seconds, seconds };
	snprintf(r.kind, sizeof r.kind, "%s", kind);
	snprintf(r.variant, sizeof r.variant, "%s", variant);
	snprintf(r.dtype, sizeof r.dtype, "f32");
	snprintf(r.set, sizeof r.set, FO_LINK_THREADS);
	fo_limits_row_add(m, &r);
}

static void peak(struct fo_limits *m, int threads, double flop_s)
{
	struct fo_limits_peak p = { .threads = threads, .best_flop_s = flop_s, .median_flop_s = flop_s };
	snprintf(p.dtype, sizeof p.dtype, "f32");
	fo_limits_peak_put(m, &p);
}

/* A sum over four ranks, as part of a program. */
static const struct fo_op *a_sum(struct hand *g)
{
	begin(g, 4, 1);
	int a = compute(g, input(g), "a", 1);
	reduce(g, a, FO_GROUP_DATA, FO_LANE_REDUCE, 0, 0);
	finish(g);
	return fo_instance_op(&g->p, &g->u, 3);
}

static void test_cost(void **state)
{
	(void)state;
	struct hand g;
	struct fo_limits m = { 0 };
	const struct fo_op *o = a_sum(&g);
	struct fo_link_rates l = { .limits = &m };
	assert_int_equal(fo_link_op(&l, &g.p, o, 1000).sure, FO_SURE_NONE);
	l.copy_byte_s = 1e9;
	near(fo_link_op(&l, &g.p, o, 1000).own_s, 1e-6);
	/* Of two ranks: a guess for four; of another kind: as well. */
	row(&m, "all_gather", FO_LINK_VARIANT, 2, 2, 1000, 3e-5);
	assert_int_equal(fo_link_op(&l, &g.p, o, 1000).sure, FO_SURE_GUESS);
	near(fo_link_op(&l, &g.p, o, 1000).own_s, 3e-5);
	row(&m, "all_reduce", FO_LINK_VARIANT, 4, 4, 1000, 1e-5);
	row(&m, "all_reduce", FO_LINK_VARIANT, 4, 4, 101000, 11e-5);
	static const struct {
		double bytes, seconds;
		enum fo_sure sure;
	} want[] = { { 10, 1e-5, FO_SURE_EXACT },
		     { 1000, 1e-5, FO_SURE_EXACT },
		     { 51000, 6e-5, FO_SURE_EXACT },
		     { 101000, 11e-5, FO_SURE_EXACT },
		     { 201000, 21e-5, FO_SURE_NEAR } };
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		struct fo_link_time t = fo_link_op(&l, &g.p, o, want[i].bytes);
		near(t.own_s, want[i].seconds);
		near(t.hold_s, want[i].seconds);
		assert_int_equal(t.sure, want[i].sure);
	}
	/* Processes know nothing of threads. */
	l.over = FO_LINK_MPI;
	near(fo_link_op(&l, &g.p, o, 51000).own_s, 51e-6);
	assert_int_equal(fo_link_op(&l, &g.p, o, 51000).sure, FO_SURE_GUESS);
	row(&m, "all_reduce", FO_LINK_VARIANT, 4, 4, 51000, 4e-5);
	snprintf(m.row[m.rows - 1].set, sizeof m.row->set, FO_LINK_MPI);
	near(fo_link_op(&l, &g.p, o, 51000).own_s, 4e-5);
	l.over = NULL;
	near(fo_link_op(&l, &g.p, o, 51000).own_s, 6e-5);
	/* A link of 1 MB/s and 2 ms. */
	l.byte_s = 1e6;
	l.latency_s = 2e-3;
	near(fo_link_op(&l, &g.p, o, 51000).hold_s, 53e-3);
	near(fo_link_op(&l, &g.p, o, 51000).own_s, 6e-5);
	/* Ranks that compute at once: four threads reach three times what one does; on two cores they take turns. */
	row(&m, "matmul", "-", 1, 0, 1e6, 1e-2);
	row(&m, "copy", "plain", 1, 0, 1e8, 1e-2);
	row(&m, "copy", "plain", 4, 0, 1e8, 5e-3);
	peak(&m, 1, 1e11);
	struct fo_rates r;
	must(fo_rates_init(&r, &m, 1));
	struct fo_crowd c = fo_rates_crowd(&r, 4, 2);
	assert_false(c.known);
	near(c.tensor, 2);
	peak(&m, 4, 3e11);
	c = fo_rates_crowd(&r, 4, 4);
	assert_true(c.known);
	near(c.tensor, 4.0 / 3);
	near(c.memory, 2);
	c = fo_rates_crowd(&r, 1, 4);
	near(c.tensor, 1);
	fo_limits_fini(&m);
	end(&g, 1);
}

/* On several hosts it matters how far apart a group's ranks are numbered. */
static void test_apart(void **state)
{
	(void)state;
	struct hand g;
	struct fo_limits m = { 0 };
	const struct fo_op *o = a_sum(&g);
	struct fo_link_rates l = { .limits = &m, .over = FO_LINK_MPI };
	/* These four are neighbours, and only others were measured: a guess. */
	row(&m, "all_reduce", FO_LINK_VARIANT, 4, 4, 51000, 4e-5);
	snprintf(m.row[m.rows - 1].set, sizeof m.row->set, FO_LINK_MPI);
	m.row[m.rows - 1].dim[2] = 2;
	near(fo_link_op(&l, &g.p, o, 51000).own_s, 4e-5);
	assert_int_equal(fo_link_op(&l, &g.p, o, 51000).sure, FO_SURE_GUESS);
	row(&m, "all_reduce", FO_LINK_VARIANT, 4, 4, 51000, 5e-5);
	snprintf(m.row[m.rows - 1].set, sizeof m.row->set, FO_LINK_MPI);
	m.row[m.rows - 1].dim[2] = 1;
	near(fo_link_op(&l, &g.p, o, 51000).own_s, 5e-5);
	assert_int_equal(fo_link_op(&l, &g.p, o, 51000).sure, FO_SURE_EXACT);
	/* As replicas of two that share weights they are two apart. */
	g.p.run.mesh.shard = 2;
	struct fo_op replicas = *o;
	replicas.group = FO_GROUP_REPLICATE;
	near(fo_link_op(&l, &g.p, &replicas, 51000).own_s, 4e-5);
	assert_int_equal(fo_link_op(&l, &g.p, &replicas, 51000).sure, FO_SURE_EXACT);
	/* Measured on one host: it makes no difference. */
	m.row[1].dim[2] = 0;
	m.row[0].dim[0] = 2;
	near(fo_link_op(&l, &g.p, &replicas, 51000).own_s, 5e-5);
	assert_int_equal(fo_link_op(&l, &g.p, &replicas, 51000).sure, FO_SURE_EXACT);
	fo_limits_fini(&m);
	end(&g, 1);
}

/* ---- whole steps ---- */

static const struct fo_model tiny = { .name = "tiny",
				      .layers = 3,
				      .hidden = 64,
				      .heads = 4,
				      .kv_heads = 2,
				      .head_dim = 16,
				      .ffn = 128,
				      .vocab = 129,
				      .gated = true,
				      .norm_eps = 1e-5,
				      .rope = { .theta = 10000 } };

static struct fo_limits machine(void)
{
	struct fo_limits m = { .cache_bytes = 1 << 20 };
	row(&m, "matmul", "-", 1, 0, 1e6, 1e-2);
	row(&m, "copy", "plain", 1, 0, 1e8, 1e-2);
	row(&m, "overhead", "executor", 1, 0, 0, 1e-6);
	return m;
}

static void build(struct fo_program *p, struct fo_unrolled *u, int ranks, int bucket, int wgrad)
{
	struct fo_lowering low = { .seq = 32,
				   .rows = 2,
				   .micro_batches = 3,
				   .precision = FO_PRECISION_BF16,
				   .pass = { .merge_qkv = 1, .fused_optimizer = 1, .ddp = bucket, .wgrad_lane = wgrad },
				   .mesh = { .replicate = ranks } };
	must(fo_pass_build(p, &tiny, &low));
	must(fo_unroll(p, u));
	fo_plan(p, u);
	fo_prune_waits(p, u);
}

/* One rank: the same digits as without ranks. */
static void test_one_rank(void **state)
{
	(void)state;
	for (int wgrad = 0; wgrad < 2; wgrad++) {
		struct fo_program p;
		struct fo_unrolled u;
		struct fo_limits m = machine();
		struct fo_rates r;
		struct fo_sim s;
		struct fo_sim_ranks x;
		struct fo_link_rates l = { .limits = &m };
		build(&p, &u, 1, 25, wgrad);
		must(fo_rates_init(&r, &m, 1));
		fo_sim_step(&s, &p, &u, &r, -1);
		must(fo_sim_ranks_init(&x, &p));
		must(fo_sim_ranks_step(&x, &r, &l, 1, -1));
		assert_true(x.step_s.mid == s.step_s && x.alike);
		assert_memory_equal(x.rank->end_s, s.end_s, (size_t)u.n * sizeof *s.end_s);
		assert_memory_equal(x.rank->part_s, s.part_s, sizeof s.part_s);
		near(x.exposed_s.high, 0);
		assert_true(x.step_s.low < s.step_s && x.step_s.high > s.step_s);
		fo_sim_ranks_fini(&x);
		fo_sim_fini(&s);
		fo_limits_fini(&m);
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
}

/* Ranks that are alike: one walked for all says what all of them walked say, to the bit. Bytes are the accounting's. On
 * slow links a step ends with the communication: its latest time is known by hand. */
static void test_step(void **state)
{
	(void)state;
	for (int ranks = 2; ranks <= 4; ranks++) {
		struct fo_program p;
		struct fo_unrolled u;
		struct fo_limits m = machine();
		struct fo_rates r;
		struct fo_sim_ranks x;
		struct fo_link_rates l = { .limits = &m, .byte_s = 1e6, .latency_s = 1e-3, .copy_byte_s = 1e10 };
		build(&p, &u, ranks, 25, ranks == 3);
		must(fo_rates_init(&r, &m, 1));
		must(fo_sim_ranks_init(&x, &p));
		assert_int_equal(x.roles, 1);
		must(fo_sim_ranks_step(&x, &r, &l, ranks, -1));
		assert_true(x.alike);
		double held = 0, calls = 0, wire = 0;
		for (int i = 0; i < u.n; i++) {
			const struct fo_op *o = fo_instance_op(&p, &u, i);
			if (fo_op_info(o->kind)->cls != FO_CLASS_COMM)
				continue;
			calls += fo_op_tensors(o->kind, o->n);
			held += x.rank->hold_s[i];
			wire += fo_op_cost(&p, o, -1).wire;
		}
		near(fo_sim_ranks_wire(&x, 0), wire);
		struct fo_lowering low = p.run;
		struct fo_program last;
		low.mesh.rank = ranks - 1;
		must(fo_pass_build(&last, &tiny, &low));
		near(fo_sim_ranks_wire(&x, ranks - 1), fo_program_wire(&last));
		fo_program_fini(&last);
		/* Some tensors do not divide evenly: the rank that receives most decides. */
		assert_true(held >= calls * 1e-3 + wire / 1e6 - 1e-9 &&
			    held <= calls * 1e-3 + (wire + calls * 8 * ranks) / 1e6);
		assert_true(x.step_s.mid > held && x.step_s.low <= x.step_s.mid && x.step_s.mid <= x.step_s.high);
		near(x.exposed_s.mid + x.hidden_s.mid, x.rank->comm_s);
		/* All of them. */
		struct fo_sim s[4];
		struct fo_sim_rank rank[4];
		for (int k = 0; k < ranks; k++) {
			fo_sim_init(&s[k], &x.role->u, x.rank->overhead_s);
			memcpy(s[k].seconds, x.rank->seconds, (size_t)u.n * sizeof *s[k].seconds);
			memcpy(s[k].hold_s, x.rank->hold_s, (size_t)u.n * sizeof *s[k].hold_s);
			rank[k] = (struct fo_sim_rank){ &x.role->p, &x.role->u, &s[k], NULL };
		}
		must(fo_sim_walk_ranks(rank, ranks, false));
		for (int k = 0; k < ranks; k++) {
			assert_memory_equal(s[k].end_s, x.rank->end_s, (size_t)u.n * sizeof *s[k].end_s);
			assert_true(s[k].exposed_s == x.rank->exposed_s && s[k].comm_s == x.rank->comm_s);
			fo_sim_fini(&s[k]);
		}
		fo_sim_ranks_fini(&x);
		fo_limits_fini(&m);
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_link_taken),
		cmocka_unit_test(test_pairs_and_hangs),
		cmocka_unit_test(test_cost),
		cmocka_unit_test(test_apart),
		cmocka_unit_test(test_one_rank),
		cmocka_unit_test(test_step),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
