/* Times of operations from a machine profile: exact rows by signature, interpolation between others, and what is said
 * of how sure each is; what the caches still hold. */
#include "cost/cost.h"
#include "pass/pass.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-9 * fabs(want)))
		fail_msg("got %.12g, expected %.12g", got, want);
}

/* A row of so many seconds, all spans alike and quiet. */
static void row(struct fo_limits *m, const char *kind, const char *variant, const char *dtype, int threads, double flop,
		double bytes, double seconds, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
	struct fo_limits_row r = { .threads = threads,
				   .dim = { d0, d1, d2, d3 },
				   .flop = flop,
				   .bytes = bytes,
				   .cold = NAN,
				   .time = { 40, 40, seconds, seconds, seconds, seconds } };
	snprintf(r.kind, sizeof r.kind, "%s", kind);
	snprintf(r.variant, sizeof r.variant, "%s", variant);
	snprintf(r.dtype, sizeof r.dtype, "%s", dtype);
	fo_limits_row_add(m, &r);
}

/* 1 thread: products at 100 GFLOP/s of 256^3, 50 of 64^3; copying at 10 GB/s. */
static struct fo_limits machine(void)
{
	struct fo_limits m = { .cache_bytes = 1 << 20 };
	double big = 2.0 * 256 * 256 * 256, small = 2.0 * 64 * 64 * 64;
	row(&m, "matmul", "forward", "bf16", 1, big, 1e5, big / 100e9, 256, 256, 256, 0);
	row(&m, "matmul", "forward", "bf16", 1, small, 1e5, small / 50e9, 64, 64, 64, 0);
	row(&m, "matmul", "forward", "bf16", 2, big, 1e5, big / 200e9, 256, 256, 256, 0);
	row(&m, "copy", "plain", "-", 1, 0, 1e8, 1e-2, 100000000, 0, 0, 0);
	row(&m, "copy", "plain", "-", 2, 0, 1e8, 5e-3, 100000000, 0, 0, 0);
	row(&m, "overhead", "executor", "-", 1, 0, 0, 3e-7, 0, 0, 0, 0);
	return m;
}

static struct fo_program program(int64_t hidden, int64_t seq, int64_t rows, struct fo_passes pass)
{
	struct fo_program p;
	struct fo_model m = { .name = "tiny",
			      .layers = 2,
			      .hidden = hidden,
			      .heads = 4,
			      .kv_heads = 2,
			      .head_dim = 16,
			      .ffn = 128,
			      .vocab = 128,
			      .gated = true,
			      .norm_eps = 1e-5,
			      .rope = { .theta = 10000 } };
	struct fo_lowering low = {
		.seq = seq, .rows = rows, .micro_batches = 2, .precision = FO_PRECISION_BF16, .pass = pass
	};
	must(fo_pass_build(&p, &m, &low));
	return p;
}

static const struct fo_op *find(const struct fo_program *p, int kind, int nth)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			if (p->block[b].op[i].kind == kind && nth-- == 0)
				return &p->block[b].op[i];
	fail_msg("no operation %s", fo_op_info((enum fo_op_kind)kind)->name);
	return NULL;
}

static const struct fo_op_use whole = { .pairs = -1 };

static void test_machine(void **state)
{
	(void)state;
	struct fo_limits m = machine(), none = { 0 };
	struct fo_rates r;
	must(fo_rates_init(&r, &m, 2));
	near(r.copy_byte_s, 2e10);
	near(r.overhead_s, 3e-7);
	assert_int_equal(fo_rates_threads(&m), 2);
	assert_int_equal(fo_rates_init(&r, &m, 3), FO_EUNSUPPORTED);
	assert_non_null(strstr(fo_err_text(), "3 threads"));
	assert_int_equal(fo_rates_init(&r, &none, 1), FO_EUNSUPPORTED);
	assert_int_equal(fo_rates_threads(&none), 0);
	assert_int_equal(fo_rates_cores(&none), 0);
	assert_int_equal(fo_rates_cores(&m), 2);
	/* Ranks of two threads each were measured, and the peak of all four. */
	fo_limits_peak_put(&m, &(struct fo_limits_peak){ .dtype = "bf16", .threads = 4 });
	assert_int_equal(fo_rates_threads(&m), 2);
	assert_int_equal(fo_rates_cores(&m), 4);
	fo_limits_fini(&m);
}

/* What decides the time of a call is in its signature, and nothing else. */
static void test_signature(void **state)
{
	(void)state;
	struct fo_program p = program(64, 32, 1, (struct fo_passes){ 0 }),
			  q = program(128, 32, 1, (struct fo_passes){ 0 });
	const struct fo_op *a = find(&p, FO_OP_matmul, 0), *w = NULL;
	struct fo_op o = *a;
	uint64_t key = fo_op_signature(&p, a, 0);
	assert_true(key != 0);
	o.id = o.origin = 999;
	o.phase = FO_RECOMPUTE;
	o.arg[0].dlayer = 1;
	assert_true(fo_op_signature(&p, &o, 0) == key);
	o.attr.tb = !o.attr.tb;
	assert_true(fo_op_signature(&p, &o, 0) != key);
	o = *a;
	o.kind = FO_OP_add;
	assert_true(fo_op_signature(&p, &o, 0) != key);
	assert_true(fo_op_signature(&q, find(&q, FO_OP_matmul, 0), 0) != key);
	/* Storing or adding, of what is accumulated alone. */
	assert_true(fo_op_signature(&p, a, 4) == key);
	for (int i = 0; !w; i++)
		if (find(&p, FO_OP_matmul, i)->arg[2].access == FO_ACC)
			w = find(&p, FO_OP_matmul, i);
	assert_true(fo_op_signature(&p, w, 4) != fo_op_signature(&p, w, 0));
	/* A rectangle of a wider buffer is another walk. */
	struct fo_program merged = program(64, 32, 1, (struct fo_passes){ .merge_qkv = 1 });
	const struct fo_op *r0 = find(&p, FO_OP_rope, 0), *r1 = find(&merged, FO_OP_rope, 0);
	if (r0->arg[0].nc == r1->arg[0].nc)
		assert_true(fo_op_signature(&p, r0, 0) != fo_op_signature(&merged, r1, 0));
	/* The number is in files: it may not change. */
	struct fo_program fixed = program(64, 32, 1, (struct fo_passes){ 0 });
	assert_true(fo_op_signature(&fixed, find(&fixed, FO_OP_matmul, 0), 0) == key);
	fo_program_fini(&p);
	fo_program_fini(&q);
	fo_program_fini(&merged);
	fo_program_fini(&fixed);
}

/* Between 64^3 and 256^3, three doublings from either: the geometric mean of both rates. */
static void test_products(void **state)
{
	(void)state;
	struct fo_limits m = machine();
	struct fo_rates r;
	struct fo_program p = program(64, 32, 1, (struct fo_passes){ 0 });
	struct fo_op o = *find(&p, FO_OP_matmul, 0);
	must(fo_rates_init(&r, &m, 1));
	o.attr.ta = 0;
	o.attr.tb = 1;
	o.arg[0].nr = o.arg[0].nc = o.arg[1].nr = o.arg[1].nc = o.arg[2].nr = o.arg[2].nc = 128;
	struct fo_op_time t = fo_rates_op(&r, &p, &o, &whole);
	near(t.seconds, 2.0 * 128 * 128 * 128 / sqrt(100e9 * 50e9));
	assert_int_equal(t.sure, FO_SURE_GUESS); /* three doublings */
	o.arg[0].nr = o.arg[2].nr = 256, o.arg[0].nc = o.arg[1].nc = 256;
	t = fo_rates_op(&r, &p, &o, &whole); /* one doubling from the one, five from the other */
	double w1 = pow(1.0625, -4), w5 = pow(5.0625, -4);
	near(t.seconds, 2.0 * 256 * 128 * 256 / exp((w1 * log(100e9) + w5 * log(50e9)) / (w1 + w5)));
	assert_int_equal(t.sure, FO_SURE_NEAR);
	/* Another number of threads has its own rows. */
	must(fo_rates_init(&r, &m, 2));
	near(fo_rates_op(&r, &p, &o, &whole).seconds, 2.0 * 256 * 128 * 256 / 200e9);
	/* Of another pass there is none, so another stands in. */
	o.attr.tb = 0;
	assert_int_equal(fo_rates_op(&r, &p, &o, &whole).sure, FO_SURE_GUESS);
	fo_program_fini(&p);
	fo_limits_fini(&m);
}

static void measured(struct fo_limits *m, const struct fo_program *p, const struct fo_op *o, uint32_t first,
		     double pairs, double cold, double seconds)
{
	struct fo_limits_row w;
	must(fo_op_row(p, o, first, pairs, &w));
	w.threads = 1;
	w.cold = cold;
	w.time = (struct fo_quiet_stats){ 40, 40, seconds, seconds, seconds, seconds };
	fo_limits_row_add(m, &w);
}

static void test_exact(void **state)
{
	(void)state;
	struct fo_limits m = machine();
	struct fo_rates r;
	struct fo_program p = program(64, 32, 1, (struct fo_passes){ 0 });
	const struct fo_op *mm = find(&p, FO_OP_matmul, 0), *add = find(&p, FO_OP_add, 0),
			   *at = find(&p, FO_OP_attention, 0);
	must(fo_rates_init(&r, &m, 1));
	measured(&m, &p, mm, 0, -1, 0, 7e-3);
	struct fo_op_time t = fo_rates_op(&r, &p, mm, &whole);
	near(t.seconds, 7e-3);
	assert_int_equal(t.sure, FO_SURE_EXACT);
	/* By what is cold: a third of an addition's bytes is one operand; between the rows of none and of all. */
	measured(&m, &p, add, 0, -1, 0, 1e-3);
	t = fo_rates_op(&r, &p, add, &(struct fo_op_use){ .cold = 1, .pairs = -1 });
	near(t.seconds, 1e-3); /* nothing else is known yet, and said */
	assert_int_equal(t.sure, FO_SURE_NEAR);
	measured(&m, &p, add, 0, -1, 1, 4e-3);
	t = fo_rates_op(&r, &p, add, &(struct fo_op_use){ .cold = 1, .pairs = -1 });
	near(t.seconds, 2e-3);
	assert_int_equal(t.sure, FO_SURE_NEAR);
	t = fo_rates_op(&r, &p, add, &(struct fo_op_use){ .cold = 7, .pairs = -1 });
	near(t.seconds, 4e-3);
	assert_int_equal(t.sure, FO_SURE_EXACT);
	measured(&m, &p, add, 0, -1, 1.0 / 3, 2.5e-3);
	t = fo_rates_op(&r, &p, add, &(struct fo_op_use){ .cold = 2, .pairs = -1 });
	near(t.seconds, 2.5e-3);
	assert_int_equal(t.sure, FO_SURE_EXACT);
	/* Attention by the pairs that see each other: 32 x 33 / 2 = 528 unbroken, 144 in documents of 8. */
	measured(&m, &p, at, 0, -1, 0, 5.28e-3);
	t = fo_rates_op(&r, &p, at, &(struct fo_op_use){ .pairs = 264 });
	near(t.seconds, 2.64e-3);
	assert_int_equal(t.sure, FO_SURE_NEAR);
	measured(&m, &p, at, 0, 144, 0, 3.36e-3);
	t = fo_rates_op(&r, &p, at, &(struct fo_op_use){ .pairs = 336 }); /* half way */
	near(t.seconds, (5.28e-3 + 3.36e-3) / 2);
	assert_int_equal(t.sure, FO_SURE_NEAR);
	assert_int_equal(fo_rates_op(&r, &p, at, &(struct fo_op_use){ .pairs = 144 }).sure, FO_SURE_EXACT);
	fo_program_fini(&p);
	fo_limits_fini(&m);
}

/* Bytes per second of what moves memory, of the sizes and cache states at hand; a kind without rows copies. */
static void test_memory(void **state)
{
	(void)state;
	struct fo_limits m = machine();
	struct fo_rates r;
	struct fo_program p = program(64, 32, 1, (struct fo_passes){ .fuse_elementwise = 1, .fused_optimizer = 1 });
	const struct fo_op *add = find(&p, FO_OP_add_rmsnorm, 0), *step = find(&p, FO_OP_adamw_master_many, 0);
	double bytes = fo_op_cost(&p, add, -1).bytes;
	must(fo_rates_init(&r, &m, 1));
	struct fo_op_time t = fo_rates_op(&r, &p, add, &whole);
	near(t.seconds, bytes / 1e10);
	assert_int_equal(t.sure, FO_SURE_GUESS);
	/* A row in the caches (64 kB of 1 MiB), one of memory, which older profiles do not say. */
	row(&m, "add_rmsnorm", "-", "bf16", 1, 0, 64e3, 64e3 / 40e9, 100, 100, 0, 0);
	t = fo_rates_op(&r, &p, add, &whole);
	near(t.seconds, bytes / 40e9);
	row(&m, "add_rmsnorm", "-", "bf16", 1, 0, 64e6, 64e6 / 10e9, 1000, 1000, 0, 0);
	double warm = fabs(log2(bytes / 64e3)), cold = fabs(log2(bytes / 64e6)), half = 0;
	uint32_t mask = 0;
	for (int i = 0; half < 0.3; i++)
		half = fo_reuse_share(&p, add, mask |= 1u << i);
	double a = pow(warm + 2 * half + 0.0625, -4), b = pow(cold + 2 * (1 - half) + 0.0625, -4);
	t = fo_rates_op(&r, &p, add, &(struct fo_op_use){ .cold = mask, .pairs = -1 });
	near(t.seconds, bytes / exp((a * log(40e9) + b * log(10e9)) / (a + b)));
	/* What steps many tensors goes by what steps one. */
	row(&m, "adamw", "-", "bf16", 1, 0, fo_op_cost(&p, step, -1).bytes, 3e-3, 10, 10, 0, 0);
	t = fo_rates_op(&r, &p, step, &whole);
	near(t.seconds, 3e-3);
	assert_int_equal(t.sure, FO_SURE_NEAR);
	/* The host's work is the loop's; what no kernel computes has no row. */
	t = fo_rates_op(&r, &p, find(&p, FO_OP_host_in, 0), &whole);
	assert_true(t.seconds == 0 && t.sure == FO_SURE_EXACT);
	struct fo_limits_row w;
	assert_int_equal(fo_op_row(&p, find(&p, FO_OP_host_in, 0), 0, -1, &w), FO_EARG);
	fo_program_fini(&p);
	fo_limits_fini(&m);
}

/* Every operation that passes build has a positive time, of whatever sureness, with the poorest profile. */
static void test_all_passes(void **state)
{
	(void)state;
	static const struct fo_passes pass[] = {
		{ 0 },
		{ .merge_qkv = 1, .merge_gate_up = 1, .fuse_loss = 16, .fuse_elementwise = 1, .fused_optimizer = 1 },
		{ .recompute = FO_RECOMPUTE_FULL, .optimizer_in_backward = 1, .previous_norm = 1 },
		{ .master = FO_MASTER_SPLIT,
		  .moments = FO_MOMENTS_BF16,
		  .rounding = FO_ROUND_STOCHASTIC,
		  .fused_optimizer = 1 },
		{ .fp8 = FO_FP8_DELAYED, .fp8_history = 16, .fp8_precompute = 1 },
		{ .fp8 = FO_FP8_ROWWISE, .fuse_elementwise = 1, .recompute = FO_RECOMPUTE_SELECTIVE },
	};
	struct fo_limits m = machine();
	struct fo_rates r;
	must(fo_rates_init(&r, &m, 1));
	for (size_t k = 0; k < sizeof pass / sizeof *pass; k++) {
		struct fo_program p = program(64, 32, 2, pass[k]);
		for (int b = 0; b < p.nblock; b++)
			for (int i = 0; i < p.block[b].n; i++) {
				const struct fo_op *o = &p.block[b].op[i];
				struct fo_op_time t = fo_rates_op(&r, &p, o, &whole);
				bool host = fo_op_info(o->kind)->cls == FO_CLASS_HOST;
				if (host ? t.seconds != 0 : !(t.seconds > 0 && isfinite(t.seconds)))
					fail_msg("%s takes %g s", fo_op_info(o->kind)->name, t.seconds);
			}
		fo_program_fini(&p);
	}
	fo_limits_fini(&m);
}

/* ---- what the caches hold ---- */

static uint32_t *cold_of(struct fo_program *p, struct fo_unrolled *u, int64_t cache)
{
	must(fo_unroll(p, u));
	fo_plan(p, u);
	return fo_reuse_cold(p, u, cache);
}

static void test_reuse(void **state)
{
	(void)state;
	struct fo_unrolled u;
	struct fo_program p = program(512, 256, 1, (struct fo_passes){ 0 });
	uint32_t *c = cold_of(&p, &u, 0);
	for (int i = 0; i < u.n; i++) /* no cache: all is cold */
		assert_true(c[i] == (uint32_t)((UINT64_C(1) << fo_instance_op(&p, &u, i)->n) - 1));
	free(c);
	fo_unrolled_fini(&u);
	c = cold_of(&p, &u, INT64_C(1) << 40);
	for (int i = 0; i < u.n; i++) /* a cache for everything: nothing is, from the second step on, */
		for (int k = 0; k < fo_instance_op(&p, &u, i)->n; k++)
			if (c[i] >> k & 1)
				fail_msg("operand %d of %s is cold", k,
					 fo_op_info(fo_instance_op(&p, &u, i)->kind)->name);
	free(c);
	fo_unrolled_fini(&u);
	/* 1 MiB: what was made just now is there; the weights of layer 1 are not, for since its backward that of layer
	 * 0 was. */
	c = cold_of(&p, &u, 1 << 20);
	int weights = 0, made = 0;
	for (int i = 1; i < u.n; i++) {
		const struct fo_op *o = fo_instance_op(&p, &u, i), *before = fo_instance_op(&p, &u, i - 1);
		const struct fo_slot *slot = &p.slot[u.slot[i]];
		if (o->kind == FO_OP_matmul && o->phase == FO_FORWARD && slot->layer == 1 && slot->mb == 1 &&
		    o->arg[1].nr * o->arg[1].nc >= 128 * 512 && p.block[slot->block].unit == FO_UNIT_LAYER) {
			assert_true(c[i] >> 1 & 1);
			weights++;
		}
		if (o->kind == FO_OP_matmul && before->kind == FO_OP_swiglu && o->phase == FO_FORWARD) {
			assert_false(c[i] & 1);
			made++;
		}
	}
	assert_true(weights > 0 && made > 0);
	free(c);
	fo_unrolled_fini(&u);
	/* A look-up touches a row per token. */
	const struct fo_op *e = find(&p, FO_OP_embed, 0);
	near(fo_reuse_touched(&p, e, 1), 128.0 * 512 * 2); /* the table has fewer rows than there are tokens */
	assert_true(fo_reuse_share(&p, e, 0) == 0);
	near(fo_reuse_share(&p, e, 7), 1);
	fo_program_fini(&p);
}

static void left_alone(struct fo_limits *m, const char *variant, int64_t us, double seconds)
{
	struct fo_limits_row r = { .kind = FO_KEPT_ROW, .dtype = "-", .set = "-", .threads = 1, .cold = NAN };
	snprintf(r.variant, sizeof r.variant, "%s", variant);
	r.dim[0] = us;
	r.dim[1] = 1 << 20;
	r.time = (struct fo_quiet_stats){ 5, 0, seconds, seconds, NAN, NAN };
	fo_limits_row_add(m, &r);
}

/* Others empty the last level: a step that takes long finds its weights in memory, what it just wrote still in the
 * core's own cache; the rows of an operation with and without its operands say what that costs. */
static void test_lost(void **state)
{
	(void)state;
	struct fo_limits m = machine();
	struct fo_rates r;
	struct fo_unrolled u;
	struct fo_program p = program(512, 256, 1, (struct fo_passes){ 0 });
	struct fo_caches c;
	m.cache_bytes = INT64_C(1) << 40;
	fo_caches_of(&c, &m);
	assert_true(c.gaps == 0 && fo_caches_lost(&c, 1e9) == 0);
	left_alone(&m, FO_KEPT_LEFT, 10000, 3e-4);
	fo_caches_of(&c, &m);
	assert_int_equal(c.gaps, 0); /* nothing to compare with */
	left_alone(&m, FO_KEPT_NOT, 1, 5e-4);
	left_alone(&m, FO_KEPT_LEFT, 1000, 1e-4);
	left_alone(&m, FO_KEPT_LEFT, 100000, 9e-4);
	left_alone(&m, FO_KEPT_LEFT, 1, 2e-4); /* noise: nothing was lost after longer */
	fo_caches_of(&c, &m);
	assert_int_equal(c.gaps, 4);
	near(c.second, 1 << 20);
	assert_true(fo_caches_lost(&c, -1) == 0 && fo_caches_lost(&c, 1e-6) == 0 && fo_caches_lost(&c, 1e-3) == 0);
	near(fo_caches_lost(&c, 1e-2), 0.5);
	near(fo_caches_lost(&c, 5.5e-3), 0.25);
	near(fo_caches_lost(&c, 1), 1);
	/* One instance a millisecond, and a pause between steps. */
	must(fo_unroll(&p, &u));
	fo_plan(&p, &u);
	double *at = fo_xmalloc((size_t)(u.n + 1) * sizeof *at);
	for (int i = 0; i <= u.n; i++)
		at[i] = 1e-3 * i;
	const struct fo_step_when when = { at, at + 1, at[u.n] + 1 }, soon = { at, at + 1, at[u.n] };
	double *lost = fo_reuse_lost(&p, &u, &c, &when), *less = fo_reuse_lost(&p, &u, &c, &soon);
	const struct fo_op *mm = find(&p, FO_OP_matmul, 0);
	int weights = 0;
	for (int i = 0; i < u.n; i++) {
		assert_true(lost[i] > less[i] - 1e-9 && lost[i] < 1 + 1e-9);
		if (fo_instance_op(&p, &u, i) != mm || p.slot[u.slot[i]].mb || p.slot[u.slot[i]].layer)
			continue;
		/* Of the weights, though pieces of memory that they share with others may be newer. */
		assert_true(lost[i] > 0 && lost[i] <= fo_reuse_share(&p, mm, 1 << 1));
		weights++;
	}
	assert_int_equal(weights, 1);
	measured(&m, &p, mm, 0, -1, 0, 1e-3);
	measured(&m, &p, mm, 0, -1, 1, 3e-3);
	must(fo_rates_init(&r, &m, 1));
	struct fo_op_time *hot = fo_rates_step(&r, &p, &u, -1, NULL), *cold = fo_rates_step(&r, &p, &u, -1, &when);
	for (int i = 0; i < u.n; i++)
		if (fo_instance_op(&p, &u, i) == mm) {
			near(hot[i].seconds, 1e-3);
			assert_int_equal(cold[i].sure, FO_SURE_EXACT);
			assert_true(fabs(cold[i].seconds - (1e-3 + 2e-3 * lost[i])) < 2e-3 * 0.011);
		}
	free(hot);
	free(cold);
	free(lost);
	free(less);
	free(at);
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
	fo_limits_fini(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_machine), cmocka_unit_test(test_signature), cmocka_unit_test(test_products),
		cmocka_unit_test(test_exact),   cmocka_unit_test(test_memory),    cmocka_unit_test(test_all_passes),
		cmocka_unit_test(test_reuse),   cmocka_unit_test(test_lost),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
