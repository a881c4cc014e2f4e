/* The meter, the work it times and the traffic: what they claim to do is what they do. */
#include "base/clock.h"
#include "base/mem.h"
#include "kernel/measure.h"
#include "kernel/memory.h"
#include "kernel/work.h"
#include "pass/pass.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Threads that run one after the other keep their processor all the time and yet say nothing about all processors
 * together: such a burst is not clean. (It once was, and half the peak was kept as the machine's.) */
static void test_share(void **state)
{
	(void)state;
	int threads = 4 * (int)sysconf(_SC_NPROCESSORS_ONLN); /* a quota would not keep them apart */
	int64_t n = fo_measure_rounds(&fo_kernels_ref, FO_F32, 500000);
	for (int i = 0; i < 8; i++) {
		double share;
		assert_true(fo_measure_peak(&fo_kernels_ref, FO_F32, threads, n, &share) > 0);
		assert_true(share < FO_QUIET_SHARE);
	}
}

static void spin(void *arg)
{
	for (int64_t end = fo_now_ns() + *(int64_t *)arg; fo_now_ns() < end;)
		;
}

static void test_meter(void **state)
{
	(void)state;
	struct fo_meter m;
	int64_t ns = 2000000;
	assert_int_equal(fo_meter_init(&m, &fo_kernels_ref, FO_F32, 1), FO_OK);
	struct fo_measured r = fo_measure_work(&m, spin, &ns, 1e6, 0, 5);
	assert_int_equal(r.time.spans, 5);
	assert_true(r.time.best_s >= 2e-3 && r.time.median_s >= r.time.best_s);
	assert_true(r.time.quiet <= 5 && (r.time.quiet > 0) == !isnan(r.quiet_ratio_median));
	assert_true(m.best.flop_s > 0 && m.best.byte_s > 0 && m.best.share > 0);
	assert_true(r.burst_flop_s_best >= r.burst_flop_s_median && r.ratio_best >= r.ratio_median);
	/* A ratio is a rate over the rate of the bursts beside it, which one span alone shows. */
	r = fo_measure_work(&m, spin, &ns, 1e6, 0, 1);
	assert_int_equal(r.time.spans, 1);
	assert_true(fabs(r.ratio_best * r.burst_flop_s_best * r.time.best_s / 1e6 - 1) < 1e-9);
	fo_meter_attach(&m);
	assert_false(m.warm);
	fo_meter_fini(&m);
	assert_int_equal(fo_meter_init(&m, &fo_kernels_null, FO_F32, 1), FO_EUNSUPPORTED);
}

/* FLOP against the multiply-adds that the reference kernels count while they run; results against plain loops. */
static void counted(struct fo_work *w, int64_t docs)
{
	struct fo_work_data d = { 0 };
	double mac = 0;
	fo_work_data_need(&d, w);
	assert_int_equal(fo_work_data_new(&d), FO_OK);
	fo_work_bind(w, &d, docs);
	w->call.mac = &mac;
	w->call.threads = 1;
	fo_work_run(w);
	assert_true(fabs(2 * mac / w->flop - 1) < 1e-12);
	fo_work_data_free(&d);
}

static double get(const struct fo_tensor *t, int64_t r, int64_t c) { return ((const float *)t->data)[r * t->ld + c]; }

static void test_work(void **state)
{
	(void)state;
	struct fo_work w;
	int64_t tokens = 24, out = 10, in = 17;
	for (int pass = 0; pass < FO_WORK_PASSES; pass++) {
		struct fo_work_data d = { 0 };
		fo_work_linear(&w, FO_ISA_REF, pass, tokens, out, in, FO_F32, 2);
		assert_ptr_equal(w.set, &fo_kernels_ref);
		assert_true(w.flop == 2. * 24 * 10 * 17);
		assert_true(w.bytes == 4. * (24 * 10 + 24 * 17 + 10 * 17));
		fo_work_data_need(&d, &w);
		assert_int_equal(fo_work_data_new(&d), FO_OK);
		fo_work_bind(&w, &d, 1);
		fo_work_run(&w);
		const struct fo_tensor *a = &w.call.arg[0], *b = &w.call.arg[1], *c = &w.call.arg[2];
		for (int64_t i = 0; i < c->rows; i++)
			for (int64_t j = 0; j < c->cols; j++) {
				double sum = 0;
				for (int64_t k = 0; k < (pass == 0 ? in : pass == 1 ? out : tokens); k++)
					sum += pass == 0   ? get(a, i, k) * get(b, j, k)
					       : pass == 1 ? get(a, i, k) * get(b, k, j)
							   : get(a, k, i) * get(b, k, j);
				assert_true(fabs(get(c, i, j) - sum) < 1e-5);
			}
		fo_work_data_free(&d);
		counted(&w, 1);
	}
	for (int backward = 0; backward < 2; backward++)
		for (int docs = 1; docs <= 3; docs++) {
			fo_work_attention(&w, FO_ISA_REF, backward, 20, docs, 4, 2, 8, FO_BF16, 1);
			counted(&w, docs);
		}
}

static void test_traffic(void **state)
{
	(void)state;
	struct fo_traffic_data d;
	if (fo_traffic_data_new(&d, 0, 2) != FO_OK)
		skip();
	assert_true(d.bytes % 64 == 0 && d.next == 0);
	for (int past = 0; past < 2; past++)
		for (int kind = 0; kind < FO_MEMORY_KINDS; kind++) {
			struct fo_traffic t = { .data = &d, .kind = kind, .past_caches = past, .threads = 2 };
			if (!fo_traffic_can(&t))
				continue;
			size_t piece = (size_t)fo_traffic_bytes(&t) / (kind == FO_MEMORY_COPY ? 2 : 1), at = d.next;
			assert_true(piece > 0 && at + piece <= d.bytes);
			memset(d.to + at, 0xee, piece);
			fo_traffic_run(&t);
			assert_true(d.next == (at + piece) % d.bytes);
			size_t untouched = 0;
			for (size_t i = 0; i < piece; i += 8)
				untouched += *(uint64_t *)(d.to + at + i) == 0xeeeeeeeeeeeeeeeeu;
			assert_int_equal(untouched, kind == FO_MEMORY_READ ? piece / 8 : 0);
			if (kind == FO_MEMORY_COPY)
				assert_memory_equal(d.to + at, d.from + at, piece);
		}
	fo_traffic_data_free(&d);
	assert_true(fo_cache_bytes() >= 0);
}

/* What the first micro-batch does: the embedding's gradient is cleared as a whole and 64 rows of it are added to. */
static void test_embedding_bytes(void **state)
{
	(void)state;
	struct fo_model m;
	struct fo_program p;
	int seen = 0;
	assert_int_equal(fo_model_load("flatout-134m", &m), FO_OK);
	m.layers = 1;
	assert_int_equal(fo_program_lower(&p, &m, &(struct fo_lowering){ .seq = 64, .rows = 1, .micro_batches = 1 }),
			 FO_OK);
	for (int b = 0; b < p.nblock; b++)
		for (int i = 0; i < p.block[b].n; i++) {
			struct fo_work w;
			const struct fo_op *o = &p.block[b].op[i];
			if (o->kind != FO_OP_embed && o->kind != FO_OP_embed_bwd)
				continue;
			fo_work_of_op(&w, FO_ISA_REF, &p, o, UINT32_MAX, 1);
			double wide = (double)m.hidden *
				      (double)fo_dtype_bytes(w.call.arg[o->kind == FO_OP_embed ? 2 : 1].dtype),
			       table = (double)m.hidden *
				       (double)fo_dtype_bytes(w.call.arg[o->kind == FO_OP_embed ? 1 : 2].dtype);
			/* ids, the rows of x, and of the table: read once; or cleared whole, then 64 read and written
			 */
			double bytes = 64 * 4 + 64 * wide +
				       (o->kind == FO_OP_embed ? 64 : (double)m.vocab + 2 * 64) * table;
			assert_true(fabs(w.bytes / bytes - 1) < 1e-12);
			seen++;
		}
	assert_int_equal(seen, 2);
	fo_program_fini(&p);
}

/* Every operation that training has under any pass can be measured: its operands have their places and it runs,
 * whatever the caches hold. */
static void measure_all(const struct fo_passes *pass, struct fo_mesh mesh, enum fo_numerics precision, bool bias,
			uint8_t *seen)
{
	struct fo_model m = { .name = "tiny",
			      .layers = 2,
			      .hidden = 64,
			      .heads = 4,
			      .kv_heads = 2,
			      .head_dim = 16,
			      .ffn = 96,
			      .vocab = 48,
			      .gated = true,
			      .qk_norm = !bias,
			      .attention_bias = bias,
			      .norm_eps = 1e-5,
			      .rope = { .theta = 10000 } };
	struct fo_lowering low = {
		.seq = 40, .rows = 2, .micro_batches = 2, .precision = precision, .mesh = mesh, .pass = *pass
	};
	struct fo_program p;
	struct fo_unrolled u;
	enum fo_isa best;
	assert_int_equal(fo_isa_choose(&best), FO_OK);
	if (fo_pass_build(&p, &m, &low) != FO_OK)
		fail_msg("%s", fo_err_text());
	assert_int_equal(fo_unroll(&p, &u), FO_OK);
	for (int i = 0; i < u.n; i++) {
		const struct fo_op *o = fo_instance_op(&p, &u, i);
		struct fo_work w;
		struct fo_work_data d = { 0 };
		seen[o->kind] = 1;
		if (fo_op_info(o->kind)->cls == FO_CLASS_HOST || fo_op_info(o->kind)->cls == FO_CLASS_COMM)
			continue;
		fo_work_of_op(&w, i % 2 ? FO_ISA_REF : best, &p, o, u.first[i], 1);
		assert_int_equal(w.call.first & u.first[i], u.first[i]);
		fo_work_data_need(&d, &w);
		assert_int_equal(fo_work_data_new(&d), FO_OK);
		fo_work_bind(&w, &d, p.run.rows);
		for (int k = 0; k < w.call.n; k++)
			assert_non_null(w.call.arg[k].data);
		(void)fo_work_arrange(&w, (uint32_t)i * 2654435761u,
				      1 << 20); /* any mask; nothing to evict with is no mistake */
		fo_work_run(&w);
		fo_work_data_free(&d);
	}
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
}

static void test_every_operation(void **state)
{
	(void)state;
	static const struct fo_passes pass[] = {
		{ .previous_norm = 0 },
		{ .merge_qkv = 1, .merge_gate_up = 1, .fuse_loss = 16, .fuse_elementwise = 1, .fused_optimizer = 1 },
		{ .recompute = FO_RECOMPUTE_FULL, .optimizer_in_backward = 1, .previous_norm = 1 },
		{ .master = FO_MASTER_SPLIT,
		  .moments = FO_MOMENTS_BF16,
		  .rounding = FO_ROUND_STOCHASTIC,
		  .fused_optimizer = 1 },
		{ .master = FO_MASTER_NONE, .moments = FO_MOMENTS_BF16, .rounding = FO_ROUND_STOCHASTIC },
		{ .fp8 = FO_FP8_DELAYED, .fp8_history = 16, .fp8_precompute = 1 },
		{ .fp8 = FO_FP8_DELAYED, .fp8_history = 16, .fp8_precompute = 1, .fp8_transposed = 1 },
		{ .fp8 = FO_FP8_CURRENT, .fuse_elementwise = 1, .fuse_rope = 1 },
		{ .fp8 = FO_FP8_DELAYED, .fp8_history = 16, .fp8_first = 1 },
		{ .merge_gate_up = 1, .fuse_elementwise = 1, .fp8 = FO_FP8_DELAYED, .fp8_history = 16, .fp8_fuse = 1 },
		{ .attention = 1, .offload = 1 },
		{ .fp8 = FO_FP8_ROWWISE, .fuse_elementwise = 1, .recompute = FO_RECOMPUTE_SELECTIVE },
	};
	uint8_t seen[FO_OP_COUNT] = { 0 };
	for (size_t k = 0; k < sizeof pass / sizeof *pass; k++)
		measure_all(&pass[k], (struct fo_mesh){ 0 }, FO_PRECISION_BF16, k % 2, seen);
	measure_all(&pass[0], (struct fo_mesh){ 0 }, FO_PRECISION_F32, false, seen);
	measure_all(&pass[1], (struct fo_mesh){ 0 }, FO_PRECISION_F32, false, seen);
	measure_all(&(struct fo_passes){ .tp = FO_TP_SEQUENCE, .ddp = 25 }, (struct fo_mesh){ .tp = 2 },
		    FO_PRECISION_BF16, true, seen);
	measure_all(&(struct fo_passes){ .cp = FO_CP_RING, .ddp = 25 }, (struct fo_mesh){ .cp = 2 }, FO_PRECISION_BF16,
		    false, seen);
	measure_all(&(struct fo_passes){ .cp = FO_CP_HEADS, .ddp = 25 }, (struct fo_mesh){ .cp = 2 }, FO_PRECISION_BF16,
		    false, seen);
	/* All kinds but those of evaluation and generation, and what several ranks do together. */
	for (int k = 0; k < FO_OP_COUNT; k++)
		if (!seen[k] && fo_op_info(k)->cls != FO_CLASS_COMM && k != FO_OP_xent_fwd &&
		    k != FO_OP_attention_cached && k != FO_OP_cache_put && k != FO_OP_last_row)
			fail_msg("no program here has %s", fo_op_info((enum fo_op_kind)k)->name);
}

/* What was put out of the caches takes longer to read than what was fetched into them: 256 KiB, which a core's own
 * cache holds. A neighbour may slow any trial, so one quiet trial of each kind is waited for. */
static void test_arrange(void **state)
{
	(void)state;
	enum { BYTES = 256 << 10, TRIALS = 5000 };
	unsigned char *p = malloc(BYTES);
	int64_t best[2] = { INT64_MAX / 2, INT64_MAX / 2 };
	memset(p, 1, BYTES);
	if (!fo_cache_evict(p, 1, BYTES, BYTES, 1) || fo_cache_bytes() < 2 * BYTES) {
		free(p);
		skip();
	}
	for (int k = 0; k < 10 || (k < 2 * TRIALS && best[1] < best[0] + best[0] / 5); k++) {
		fo_cache_fetch(p, 128, BYTES / 128, BYTES / 128, 1);
		if (k % 2)
			fo_cache_evict(p, 128, BYTES / 128, BYTES / 128, 1);
		int64_t t = fo_now_ns();
		fo_cache_fetch(p, 1, BYTES, BYTES, 1);
		t = fo_now_ns() - t;
		best[k % 2] = t < best[k % 2] ? t : best[k % 2];
	}
	free(p);
	if (best[1] < best[0] + best[0] / 5)
		fail_msg("256 KiB read in %lld ns from the caches, in %lld from memory", (long long)best[0],
			 (long long)best[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_share),
					    cmocka_unit_test(test_meter),
					    cmocka_unit_test(test_work),
					    cmocka_unit_test(test_traffic),
					    cmocka_unit_test(test_embedding_bytes),
					    cmocka_unit_test(test_every_operation),
					    cmocka_unit_test(test_arrange) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
