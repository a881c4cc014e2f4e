/* Recomputation: the same bits with less memory, work that runs and is no model work, and the choice of it. */
#include "base/clock.h"
#include "pass/pass.h"
#include "support/step.h"
#include "support/must.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the same bits ---- */

static uint64_t hash_of(const struct fo_model *m, const struct step_batch *b, enum fo_numerics precision,
			struct fo_passes passes, double *loss)
{
	struct step_rig r;
	struct fo_exec_options o = { .threads = 1, .timeline_steps = 1, .poison = precision == FO_PRECISION_BF16 };
	struct fo_lowering low = step_lowering(b, precision, FO_MODE_TRAIN);
	must(fo_isa_choose(&o.isa));
	low.pass = passes;
	step_rig_lower(&r, m, &low, b, &o);
	for (int s = 0; s < 2; s++) {
		step_rig_at(&r, s + 1);
		must(fo_exec_step(r.exec, s));
	}
	uint64_t hash = step_rig_hash(&r);
	*loss = r.loss[0];
	step_rig_free(&r);
	return hash;
}

/* A kernel that runs again on what it had the first time gives what it gave: not one bit changes. */
static void test_same_bits(void **state)
{
	(void)state;
	for (int k = 0; k < 4; k++) {
		struct fo_model m = step_model(3, 32, 4, 2, 40, 50, k & 1);
		struct step_batch b;
		m.qk_norm = k == 2;
		m.attention_bias = m.output_bias = m.mlp_bias = k == 1;
		m.sliding_window = k == 3 ? 5 : 0;
		step_batch_random(&b, 16, 2, 2, m.vocab, 2, 7 + (uint64_t)k);
		for (int merged = k & 1, precision = 0; precision < FO_PRECISION_COUNT; precision++) {
			struct fo_passes c = { .merge_qkv = merged, .merge_gate_up = merged };
			double plain_loss, loss;
			uint64_t plain = hash_of(&m, &b, (enum fo_numerics)precision, c, &plain_loss);
			static const int64_t sets[][3] = {
				/* in the first layers, how many, in the rest */
				{ FO_RECOMPUTE_NORM, 0, 0 },
				{ FO_RECOMPUTE_SWIGLU, 0, 0 },
				{ FO_RECOMPUTE_GATE_UP, 0, 0 },
				{ FO_RECOMPUTE_QKV, 0, 0 },
				{ FO_RECOMPUTE_ATTENTION, 0, 0 },
				{ FO_RECOMPUTE_OUT, 0, 0 },
				{ FO_RECOMPUTE_FULL, 0, 0 },
				{ FO_RECOMPUTE_FULL, 1, 0 },
				{ FO_RECOMPUTE_FULL, 2, FO_RECOMPUTE_SELECTIVE },
				{ 63 - FO_RECOMPUTE_ATTENTION, 0, 0 },
			};
			for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
				c.recompute = sets[i][0], c.recompute_layers = sets[i][1],
				c.recompute_rest = sets[i][2];
				uint64_t hash = hash_of(&m, &b, (enum fo_numerics)precision, c, &loss);
				if (hash != plain || loss != plain_loss)
					fail_msg("model %d, %s, merged %d: recompute %d in %d layers, %d in the rest "
						 "changes bits",
						 k, fo_numerics_name[precision], merged, (int)c.recompute,
						 (int)c.recompute_layers, (int)c.recompute_rest);
			}
		}
		step_batch_free(&b);
	}
}

/* ---- promises ---- */

struct built {
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_cost cost;
};

static void build(struct built *b, const struct fo_model *m, struct fo_lowering low)
{
	must(fo_pass_build(&b->p, m, &low));
	must(fo_unroll(&b->p, &b->u));
	fo_plan(&b->p, &b->u);
	b->cost = fo_program_cost(&b->p, -1);
}

static void built_free(struct built *b)
{
	fo_unrolled_fini(&b->u);
	fo_program_fini(&b->p);
}

/* Bytes that wait for layer `l`'s backward while the head runs, and over how many buffers they lie. */
static int64_t waiting(const struct built *b, int l, int *buffers)
{
	int64_t sum = 0;
	int head = 0;
	for (int s = 0; s < b->p.nslot && !head; s++)
		if (b->p.block[b->p.slot[s].block].unit == FO_UNIT_HEAD)
			head = b->u.slot_begin[s];
	*buffers = 0;
	for (int i = 0; i < b->u.nlife; i++) {
		const struct fo_life *v = &b->u.life[i];
		if (v->persists || v->layer != l || !(b->p.buf[v->buf].axes & FO_PER_LAYER) || v->first >= head ||
		    v->last <= head)
			continue;
		sum += v->bytes;
		++*buffers;
	}
	return sum;
}

static struct fo_lowering lowering_134m(int64_t recompute, int64_t layers)
{
	return (struct fo_lowering){ .seq = 2048,
				     .rows = 4,
				     .micro_batches = 1,
				     .precision = FO_PRECISION_BF16,
				     .pass = { .recompute = recompute, .recompute_layers = layers } };
}

/* What runs once more, counted by hand: m n k of products, pairs of attention, elements of norms. */
static void test_promises(void **state)
{
	(void)state;
	struct fo_model m = step_model(12, 768, 12, 12, 2048, 32000, false);
	const double T = 4 * 2048, D = 768, F = 2048, bf16 = 2, f32 = 4;
	const double norms = 2 * 2 * T * D, qkv = 2 * T * D * 3 * D, out = 2 * T * D * D, gate_up = 2 * T * D * 2 * F,
		     attention = 4 * D * 4 * (2048 * 2049.0 / 2);
	const double dropped = T * (2 * D + F) * bf16 + 2 * T * f32; /* n1, n2, s and two rstd */
	struct built none, some, selective, full;
	int n;
	build(&none, &m, lowering_134m(0, 0));
	build(&selective, &m, lowering_134m(FO_RECOMPUTE_SELECTIVE, 0));
	build(&some, &m, lowering_134m(FO_RECOMPUTE_SELECTIVE, 5));
	build(&full, &m, lowering_134m(FO_RECOMPUTE_FULL, 0));
	/* The peak is where the head runs and everything waits: it falls by what does not wait any more. */
	assert_true((double)(none.u.max_live_bytes - selective.u.max_live_bytes) == 12 * dropped);
	assert_true((double)(none.u.arena_bytes - selective.u.arena_bytes) == 12 * dropped);
	assert_true((double)(none.u.max_live_bytes - some.u.max_live_bytes) == 5 * dropped);
	for (int l = 0; l < 12; l++) {
		assert_true((double)(waiting(&none, l, &n) - waiting(&selective, l, &n)) == dropped);
		assert_true((double)(waiting(&none, l, &n) - waiting(&some, l, &n)) == (l < 5 ? dropped : 0));
		assert_true((double)waiting(&full, l, &n) == T * D * bf16); /* the layer's input alone */
		assert_int_equal(n, 1);
	}
	assert_true(selective.cost.exec - none.cost.exec == 12 * norms);
	assert_true(some.cost.exec - none.cost.exec == 5 * norms);
	assert_true(full.cost.exec - none.cost.exec ==
		    12 * (norms + qkv + attention + out + gate_up)); /* no down product */
	assert_true(full.cost.model == none.cost.model && full.cost.model_causal == none.cost.model_causal);
	assert_true(selective.cost.model == none.cost.model && some.cost.model == none.cost.model);
	assert_true(full.u.persistent_bytes == none.u.persistent_bytes);
	built_free(&none), built_free(&some), built_free(&selective), built_free(&full);
	/* Numbers that mean nothing are refused. */
	struct fo_program p;
	struct fo_lowering bad = lowering_134m(FO_RECOMPUTE_FULL + 1, 0);
	assert_int_equal(fo_pass_build(&p, &m, &bad), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "pass recompute"));
}

/* ---- the choice ---- */

struct plan {
	double seconds;
	int64_t bytes;
};

static struct plan plan_of(const struct fo_model *m, struct fo_lowering low)
{
	struct built b;
	build(&b, m, low);
	struct plan p = { fo_program_seconds(&b.p, &fo_choose_processor, false),
			  b.u.arena_bytes + b.u.persistent_bytes };
	built_free(&b);
	return p;
}

/* Every plan that there is, planned in full. */
static int all_plans(const struct fo_model *m, const struct fo_lowering *low, struct plan *plan)
{
	int n = 0;
	for (int a = 0; a < 64; a++)
		for (int b = 0; b <= a; b++) {
			struct fo_lowering run = *low;
			if (b & ~a)
				continue;
			run.pass.recompute = a == 63 ? FO_RECOMPUTE_FULL : a;
			run.pass.recompute_layers = a == b ? 0 : 1;
			run.pass.recompute_rest = a == b ? 0 : b;
			plan[n++] = plan_of(m, run);
		}
	return n;
}

static int by_bytes(const void *a, const void *b)
{
	const struct plan *x = a, *y = b;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Against all plans of two layers: the same time whatever the budget, which fits, and which never grows with memory. */
static void test_best(void **state)
{
	(void)state;
	static struct plan plan[1024];
	for (int k = 0; k < 2; k++) { /* activations decide; gradients do */
		struct fo_model m = k ? step_model(2, 64, 4, 2, 160, 96, false) : step_model(2, 32, 4, 2, 80, 64, true);
		struct fo_lowering low = { .seq = k ? 32 : 256,
					   .rows = 1,
					   .micro_batches = 2,
					   .precision = FO_PRECISION_BF16,
					   .pass = { .merge_qkv = 1, .merge_gate_up = 1 } };
		const struct fo_ask ask = { .run = low };
		int n = all_plans(&m, &low, plan);
		double last = INFINITY;
		qsort(plan, (size_t)n, sizeof *plan, by_bytes);
		for (int i = 0; i < n; i += i < n - 1 && i + 60 >= n ? n - 1 - i : 60) {
			struct fo_choose want = { .budget_bytes = plan[i].bytes, .recompute = true };
			struct fo_choice got;
			double best = INFINITY;
			for (int x = 0; x < n && plan[x].bytes <= want.budget_bytes; x++)
				best = fmin(best, plan[x].seconds);
			must(fo_pass_choose(&m, &ask, 1, &want, &got));
			struct plan have = plan_of(&m, got.run);
			assert_true(have.bytes == got.bytes && have.bytes <= want.budget_bytes);
			assert_true(fabs(have.seconds / best - 1) < 1e-12 && fabs(got.seconds / best - 1) < 1e-12);
			assert_true(have.seconds <= last * (1 + 1e-12));
			last = have.seconds;
			if (i == n - 1)
				break;
		}
		struct fo_choose want = { .budget_bytes = plan[0].bytes - 1, .recompute = true };
		struct fo_choice got;
		assert_int_equal(fo_pass_choose(&m, &ask, 1, &want, &got), FO_ENOMEM);
		assert_non_null(strstr(fo_err_text(), k ? "no shorter rows would fit" : "data.seq=128 would fit"));
	}
}

/* A step's rows in micro-batches: the best of all splits, each chosen alone; and a third micro-batch stands for all. */
static void test_split(void **state)
{
	(void)state;
	struct fo_model m = step_model(3, 32, 4, 2, 80, 64, true);
	struct fo_lowering low = { .seq = 64, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_BF16 };
	const struct fo_ask ask = { .run = low };
	struct fo_lowering one = low;
	one.rows = 12;
	int64_t most = plan_of(&m, one).bytes, least = 0;
	double last = INFINITY;
	int splits = 0;
	for (int64_t mb = 1; mb <= 12; mb++) {
		if (12 % mb)
			continue;
		one.rows = 12 / mb, one.micro_batches = mb;
		one.pass.recompute = FO_RECOMPUTE_FULL;
		int64_t bytes = plan_of(&m, one).bytes;
		least = least && least < bytes ? least : bytes;
	}
	for (int i = 0; i <= 10; i++) {
		struct fo_choose want = { .budget_bytes = least + (most - least) * i / 10,
					  .recompute = true,
					  .batch_rows = 12 };
		struct fo_choice got, alone;
		double best = INFINITY;
		must(fo_pass_choose(&m, &ask, 1, &want, &got));
		assert_true(got.run.rows * got.run.micro_batches == 12);
		struct plan have = plan_of(&m, got.run);

		assert_true(have.bytes == got.bytes && got.bytes <= want.budget_bytes && got.seconds <= last);
		splits += got.run.micro_batches > 1;
		last = got.seconds;
		for (int64_t mb = 1; mb <= 12; mb++) {
			struct fo_ask fixed = ask;
			struct fo_choose same = want;
			if (12 % mb)
				continue;
			fixed.run.rows = 12 / mb, fixed.run.micro_batches = mb, same.batch_rows = 0;
			if (fo_pass_choose(&m, &fixed, 1, &same, &alone) == FO_OK)
				best = fmin(best, alone.seconds);
		}
		assert_true(fabs(got.seconds / best - 1) < 1e-12);
	}
	assert_true(splits > 1 && splits < 11);
	/* Without a limit: one micro-batch, nothing again. */
	struct fo_choose free = { .recompute = true, .batch_rows = 12 };
	struct fo_choice got;
	must(fo_pass_choose(&m, &ask, 1, &free, &got));
	assert_true(got.run.rows == 12 && got.run.pass.recompute == 0 && got.repeat_seconds == 0);
	/* A lower tier comes first whatever it costs; the next one only where it does not fit. */
	struct fo_ask tiers[2] = { { .run = one, .tier = 0 }, { .run = low, .tier = 1 } };
	free.batch_rows = 0;
	tiers[0].run.pass.recompute = 0;
	must(fo_pass_choose(&m, tiers, 2, &free, &got));
	assert_int_equal(got.run.micro_batches, 12);
	tiers[0].run.rows = 100;
	free.budget_bytes = least;
	must(fo_pass_choose(&m, tiers, 2, &free, &got));
	assert_true(got.run.rows == 1 && got.run.micro_batches == 1);
}

/* ---- what a device changes ---- */

/* A head that is large against its one layer, on a device. */
static struct fo_lowering large_head(struct fo_model *m)
{
	*m = step_model(1, 64, 4, 2, 96, 6000, false);
	return (struct fo_lowering){ .seq = 3000,
				     .rows = 1,
				     .micro_batches = 2,
				     .precision = FO_PRECISION_BF16,
				     .pass = { .merge_qkv = 1, .merge_gate_up = 1, .fuse_loss = FO_RUN_FUSE_LOSS } };
}

/* The chunk grows while memory allows, up to the whole micro-batch; nothing is recomputed for it; its gain is what the
 * plans' times say. */
static void test_chunk(void **state)
{
	(void)state;
	const struct fo_choose_rates rates = fo_choose_device(NULL, FO_PRECISION_BF16);
	static const int64_t chunk[] = { 512, 1024, 2048, 3000 };
	struct fo_model m;
	struct fo_lowering low = large_head(&m);
	const struct fo_ask ask = { .run = low };
	struct fo_choose want = { .recompute = true, .fuse_loss = true, .host_apart = true, .rates = &rates };
	struct fo_choice got;
	double seconds[4];
	int64_t bytes[4];
	for (int i = 0; i < 4; i++) {
		struct fo_lowering run = low;
		struct built b;
		run.pass.fuse_loss = chunk[i];
		build(&b, &m, run);
		seconds[i] = fo_program_seconds(&b.p, &rates, false);
		bytes[i] = b.u.arena_bytes + b.u.persistent_bytes;
		built_free(&b);
		assert_true(!i || (seconds[i] < seconds[i - 1] * (1 - 1e-3) && bytes[i] > bytes[i - 1]));
	}
	for (int i = 0; i < 4; i++)
		for (int less = 0; less < 2; less++) {
			int fits = i - less;
			if (fits < 0)
				continue;
			want.budget_bytes = bytes[i] - less;
			must(fo_pass_choose(&m, &ask, 1, &want, &got));
			assert_int_equal(got.run.pass.fuse_loss, chunk[fits]);
			assert_true(got.bytes == bytes[fits] && got.run.pass.recompute == 0 && got.fuse_loss);
			assert_true(fabs(got.fuse_loss_gain - (1 - seconds[fits] / seconds[0])) < 1e-9);
			assert_true(fabs(got.seconds / seconds[fits] - 1) < 1e-9);
		}
	/* Where something has to be recomputed even with the smallest, the chunk takes only what that leaves. */
	want.budget_bytes = bytes[0] - 1;
	must(fo_pass_choose(&m, &ask, 1, &want, &got));
	assert_true(got.run.pass.recompute && got.bytes <= want.budget_bytes);
	/* No limit: the whole micro-batch. A doubling that saves less than a thousandth of the step is left: here the
	 * head is next to nothing. */
	want.budget_bytes = 0;
	must(fo_pass_choose(&m, &ask, 1, &want, &got));
	assert_int_equal(got.run.pass.fuse_loss, 3000);
	struct fo_model deep = step_model(40, 256, 4, 2, 1024, 64, false);
	must(fo_pass_choose(&deep, &ask, 1, &want, &got));
	assert_int_equal(got.run.pass.fuse_loss, FO_RUN_FUSE_LOSS);
}

/* A step's rows: of all splits, each with the chunk that it leaves room for, the fastest is chosen. */
static void test_chunk_and_split(void **state)
{
	(void)state;
	const struct fo_choose_rates rates = fo_choose_device(NULL, FO_PRECISION_BF16);
	struct fo_model m;
	struct fo_lowering low = large_head(&m);
	struct fo_choice got;
	int with_chunk = 0;
	m = step_model(4, 64, 4, 2, 96, 4000, false);
	for (int i = 1; i <= 12; i++) {
		struct fo_ask rows = { .run = low };
		struct fo_choose split = { .recompute = true,
					   .fuse_loss = true,
					   .host_apart = true,
					   .rates = &rates,
					   .batch_rows = 4,
					   .budget_bytes = (int64_t)i << 23 };
		double best = INFINITY;
		rows.run.seq = 1024;
		rows.run.rows = 4, rows.run.micro_batches = 1;
		bool fits = fo_pass_choose(&m, &rows, 1, &split, &got) == FO_OK;
		split.batch_rows = 0;
		for (int64_t mb = 1; mb <= 4; mb *= 2) {
			struct fo_choice alone;
			rows.run.rows = 4 / mb, rows.run.micro_batches = mb;
			if (fo_pass_choose(&m, &rows, 1, &split, &alone) == FO_OK)
				best = fmin(best, alone.seconds);
		}
		assert_true(fits == isfinite(best) && (!fits || fabs(got.seconds / best - 1) < 1e-12));
		with_chunk += fits && got.run.pass.fuse_loss > FO_RUN_FUSE_LOSS && got.run.micro_batches > 1;
	}
	assert_true(with_chunk > 0);
}

/* A run on a processor takes 512 whatever memory there is, on a device what was given. */
static void test_chunk_of_run(void **state)
{
	(void)state;
	const struct fo_choose_rates rates = fo_choose_device(NULL, FO_PRECISION_BF16);
	const struct fo_model m = step_model(1, 64, 4, 2, 96, 6000, false);
	struct fo_choice got;
	struct fo_run r = { .seq = 3000,
			    .rows = 1,
			    .micro_batches = 2,
			    .merge_qkv = true,
			    .merge_gate_up = true,
			    .fuse_loss = FO_RUN_FUSE_LOSS_AUTO,
			    .fuse_elementwise = true,
			    .recompute = FO_RUN_RECOMPUTE_NONE,
			    .fused_optimizer = true };
	must(fo_pass_choose_run(&r, &m, 0, 0, NULL, &got));
	assert_true(got.run.pass.fuse_loss == FO_RUN_FUSE_LOSS && !got.fuse_loss);
	must(fo_pass_choose_run(&r, &m, 0, 0, &rates, &got));
	assert_true(got.run.pass.fuse_loss == 3000 && got.fuse_loss);
	r.fuse_loss = 1024;
	must(fo_pass_choose_run(&r, &m, 0, 0, &rates, &got));
	assert_true(got.run.pass.fuse_loss == 1024 && !got.fuse_loss);
}

/* The catalogue's rows: an H200 as what is taken where there is none, others in the ratio of their published peaks. */
static void test_rates(void **state)
{
	(void)state;
	struct fo_catalogue c;
	const struct fo_device *row;
	must(fo_catalogue_load(&c, NULL));
	must(fo_catalogue_find(&c, "h200", &row));
	struct fo_choose_rates none = fo_choose_device(NULL, FO_PRECISION_BF16),
			       h200 = fo_choose_device(row, FO_PRECISION_BF16),
			       fp32 = fo_choose_device(row, FO_PRECISION_F32);
	assert_memory_equal(&none, &h200, sizeof none);
	assert_true(h200.on_device && h200.product_flop_s == h200.device.rate[FO_DEVICE_PRODUCT].mid);
	assert_true(h200.product_flop_s > 700e12 &&
		    h200.product_flop_s < 798e12); /* bursts on such a card: 769 to 798 */
	assert_true(h200.memory_bytes_s > 3.7e12 && h200.memory_bytes_s < 4.2e12 &&
		    h200.attention_flop_s < h200.product_flop_s);
	assert_true(fp32.product_flop_s < h200.product_flop_s / 10 && fp32.memory_bytes_s == h200.memory_bytes_s);
	must(fo_catalogue_find(&c, "a100", &row));
	struct fo_choose_rates a100 = fo_choose_device(row, FO_PRECISION_BF16);
	struct fo_device_rates own;
	must(fo_device_rates_init(&own, row));
	assert_true(a100.product_flop_s == own.rate[FO_DEVICE_PRODUCT].mid &&
		    a100.memory_bytes_s == own.rate[FO_DEVICE_FUSED].mid);
	assert_true(a100.product_flop_s < h200.product_flop_s / 2 && a100.memory_bytes_s < h200.memory_bytes_s / 2);
	fo_catalogue_fini(&c);
	/* A byte costs a device far more FLOP than it costs a processor: what only moves memory weighs more there. */
	struct fo_model m;
	struct fo_lowering low = large_head(&m);
	struct built b;
	build(&b, &m, low);
	const struct fo_op *norm = NULL;
	for (int k = 0; k < b.p.nblock; k++)
		for (int i = 0; i < b.p.block[k].n; i++)
			if (b.p.block[k].op[i].kind == FO_OP_swiglu)
				norm = &b.p.block[k].op[i];
	assert_non_null(norm);
	assert_true(fo_op_seconds(&b.p, norm, &h200) / fo_program_seconds(&b.p, &h200, false) >
		    2 * fo_op_seconds(&b.p, norm, &fo_choose_processor) /
			    fo_program_seconds(&b.p, &fo_choose_processor, false));
	/* More micro-batches share the optimizer: of m of them a step 1 - m/32 of its time is saved, and nothing from
	 * 32 on. */
	double two = fo_program_gain_of_more(&b.p, &h200, 32), most = fo_program_gain_of_more(&b.p, &h200, 2);
	assert_true(two > 0 && two < 1 && most == 0);
	built_free(&b);
}

/* ---- the same rows however they are split ---- */

static void test_split_is_invariant(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	double loss[3], plain = 0;
	int64_t n = 0;
	double *first = NULL;
	step_batch_random(&b, 16, 4, 1, m.vocab, 2, 9);
	for (int k = 0; k < 3; k++) {
		struct step_batch s = b;
		struct step_rig r;
		struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 1, .timeline_steps = 1 };
		s.micro_batches = 1 << k, s.rows = 4 >> k;
		s.doc_start = fo_xmalloc(64 * sizeof *s.doc_start);
		for (int64_t i = 0; i < 64; i++)
			s.doc_start[i] = b.doc_start[i] - (int32_t)(i / (s.rows * 16) * s.rows * 16);
		struct fo_lowering low = step_lowering(&s, FO_PRECISION_F64, FO_MODE_TRAIN);
		step_rig_lower(&r, &m, &low, &s, &o);
		step_rig_at(&r, 1);
		must(fo_exec_step(r.exec, 0));
		loss[k] = r.loss[0];
		plain = k ? plain : loss[0];
		assert_true(fabs(loss[k] / plain - 1) < 1e-13);
		const struct fo_buffer *w;
		const double *v = fo_store_find(r.store, "m.wq", 1, &w);
		n = w->rows * w->cols;
		if (!first) {
			first = fo_xmalloc((size_t)n * sizeof *first);
			memcpy(first, v, (size_t)n * sizeof *first);
		}
		for (int64_t i = 0; i < n; i++)
			assert_true(fabs(v[i] - first[i]) <= 1e-14 + 1e-10 * fabs(first[i]));
		free(s.doc_start);
		step_rig_free(&r);
	}
	free(first);
	step_batch_free(&b);
}

/* ---- planned and touched ---- */

static void test_measured(void **state)
{
	(void)state;
	static const int64_t sets[] = { FO_RECOMPUTE_SELECTIVE, FO_RECOMPUTE_FULL };
	struct fo_model m = step_model(4, 64, 4, 2, 160, 256, false);
	struct step_batch b;
	size_t before = SIZE_MAX;
	step_batch_random(&b, 64, 4, 1, 256, 2, 8);
	for (int k = -1; k < 2; k++) {
		struct step_rig r;
		struct fo_exec_options o = { .threads = 1, .timeline_steps = 1 };
		struct fo_lowering low = step_lowering(&b, FO_PRECISION_BF16, FO_MODE_TRAIN);
		must(fo_isa_choose(&o.isa));
		low.pass.recompute = k < 0 ? 0 : sets[k];
		step_rig_lower(&r, &m, &low, &b, &o);
		must(fo_exec_step(r.exec, 0));
		size_t planned = (size_t)fo_exec_unrolled(r.exec)->arena_bytes, touched = 0;
		memset(r.arena, 0x5b, planned); /* what keeps it was never written */
		must(fo_exec_step(r.exec, 1));
		for (size_t i = 0; i < planned; i += 64) {
			bool same = true;
			for (size_t x = i; x < i + 64 && x < planned; x++)
				same &= r.arena[x] == 0x5b;
			touched += same ? 0 : 64;
		}
		print_message("recompute %d: planned %zu bytes, touched %zu\n", (int)low.pass.recompute, planned,
			      touched);
		assert_true((double)touched >= 0.97 * (double)planned && touched <= planned + 63);
		assert_true(planned < before);
		before = planned;
		step_rig_free(&r);
	}
	step_batch_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_promises),
		cmocka_unit_test(test_best),
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_chunk),
		cmocka_unit_test(test_chunk_and_split),
		cmocka_unit_test(test_chunk_of_run),
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_split_is_invariant),
		cmocka_unit_test(test_measured),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
