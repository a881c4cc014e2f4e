/* Activations that wait in host memory, and weight gradients on a lane of their own: the same bits whatever else is on
 * and however late other lanes run. Of the first: memory that falls by exactly what waits elsewhere, copies that have a
 * layer's time, programs from files that reach for host memory. */
#include "support/step.h"
#include "base/clock.h"
#include "pass/pass.h"
#include "support/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 31, draws;
static int64_t draw(int64_t n) { return (int64_t)(fo_rng_u64(seed, draws++) % (uint64_t)n); }

/* ---- the same bits ---- */

struct outcome {
	double loss[2], norm;
	uint64_t hash;
};

static void train(struct outcome *out, const struct fo_model *m, const struct step_batch *b, enum fo_numerics precision,
		  struct fo_passes passes, int threads, uint64_t delays)
{
	struct step_rig r;
	struct fo_exec_options o = { .threads = threads, .poison = true, .delay_seed = delays, .timeline_steps = 1 };
	struct fo_lowering low = step_lowering(b, precision, FO_MODE_TRAIN);
	must(fo_isa_choose(&o.isa));
	low.pass = passes;
	memset(out, 0, sizeof *out);
	struct fo_program p;
	fo_status st = fo_pass_build(&p, m, &low);
	if (st != FO_OK) {
		struct fo_str text = { 0 };
		fo_passes_text(&passes, &text);
		fail_msg("%d layers, %s: %s", (int)m->layers, text.data, fo_err_text());
	}
	step_rig_new(&r, &p, b, &o);
	for (int s = 0; s < 2; s++) {
		step_rig_at(&r, s + 1);
		must(fo_exec_step(r.exec, s));
		out->loss[s] = r.loss[0];
	}
	out->norm = r.scale[1];
	out->hash = step_rig_hash(&r);
	step_rig_free(&r);
}

static struct fo_passes random_passes(int layers)
{
	static const int64_t sets[] = { 0, FO_RECOMPUTE_SELECTIVE, FO_RECOMPUTE_FULL,
					FO_RECOMPUTE_QKV | FO_RECOMPUTE_ATTENTION };
	struct fo_passes p = { .merge_qkv = draw(2),
			       .merge_gate_up = draw(2),
			       .fuse_loss = draw(2) * 5,
			       .fuse_elementwise = draw(2),
			       .fused_optimizer = draw(2) };
	p.recompute = sets[draw(4)];
	p.recompute_layers = draw(2) * (1 + draw(layers));
	p.recompute_rest = draw(2) ? FO_RECOMPUTE_NORM : 0;
	p.optimizer_in_backward = p.previous_norm = draw(2);
	p.attention = draw(2);
	p.fp8 = draw(2) ? draw(FO_FP8_COUNT) : 0;
	p.fp8_history = p.fp8 == FO_FP8_DELAYED ? 3 : 0;
	p.fp8_precompute = p.fp8 && draw(2);
	p.fp8_wgrad = p.fp8 && draw(2);
	p.fp8_first = p.fp8 ? draw(2) : 0;
	return p;
}

static void test_same_bits(void **state)
{
	(void)state;
	for (int round = 0; round < 16; round++) {
		int layers = 2 + (int)draw(4), threads = 1 + round % 2;
		struct fo_model m = step_model(layers, 32, 4, 2, 40, 50, draw(2));
		m.qk_norm = draw(2);
		struct step_batch b;
		struct outcome plain, got;
		struct fo_passes passes = random_passes(layers);
		enum fo_numerics precision = draw(2) ? FO_PRECISION_BF16 : FO_PRECISION_F32;
		step_batch_random(&b, 12, 1 + draw(2), 1 + draw(3), m.vocab, 2, 70 + draws);
		train(&plain, &m, &b, precision, passes, threads, 0);
		assert_true(plain.loss[1] == plain.loss[1] && plain.loss[1] != plain.loss[0]);
		for (int k = 1; k < 2 * layers; k++) {
			passes.offload = k / 2;
			passes.wgrad_lane = k % 2;
			train(&got, &m, &b, precision, passes, threads, (uint64_t)k + 1);
			if (memcmp(&got, &plain, sizeof plain)) {
				struct fo_str text = { 0 };
				fo_passes_text(&passes, &text);
				fail_msg("round %d, %d layers, %s: losses %.17g %.17g, expected %.17g %.17g, or other "
					 "weights",
					 round, layers, text.data, got.loss[0], got.loss[1], plain.loss[0],
					 plain.loss[1]);
			}
		}
		step_batch_free(&b);
	}
}

/* ---- promises, on a real model ---- */

static void build(struct step_built *b, struct fo_passes passes, int micro_batches)
{
	struct fo_model m = step_model(12, 768, 12, 12, 2048, 32000, false);
	struct fo_lowering low = {
		.seq = 2048, .rows = 4, .micro_batches = micro_batches, .precision = FO_PRECISION_BF16, .pass = passes
	};
	step_build(b, &m, &low);
}

/* The peak is where the head runs and every layer's activations are there: it falls by those that are elsewhere. Norms'
 * reciprocal deviations and attention's log sums stay, one number per row and head. */
static void test_promises(void **state)
{
	(void)state;
	const double T = 4 * 2048, D = 768, F = 2048, bf16 = 2;
	const double moved = T * (8 * D + 3 * F) * bf16; /* x, n1, q, k, v, o, xm, n2; gate, up, s */
	struct fo_passes passes = { 0 };
	struct step_built none, some;
	build(&none, passes, 1);
	for (passes.offload = 1; passes.offload < 12; passes.offload += 5) {
		double n = (double)passes.offload;
		build(&some, passes, 1);
		assert_true((double)(none.u.max_live_bytes - some.u.max_live_bytes) == n * moved);
		assert_true((double)some.u.arena_bytes <= 1.1 * (double)some.u.max_live_bytes); /* few holes */
		assert_true((double)some.u.host_arena_bytes == n * moved && none.u.host_arena_bytes == 0);
		assert_true(some.u.persistent_bytes == none.u.persistent_bytes);
		assert_true(some.u.n - none.u.n == 2 * 11 * passes.offload);
		/* Each way one read and one write; the link is passed once each way. */
		assert_true(some.cost.bytes - none.cost.bytes == 4 * n * moved);
		assert_true(some.cost.wire == 2 * n * moved && none.cost.wire == 0);
		assert_true(some.cost.exec == none.cost.exec && some.cost.model == none.cost.model);
		struct fo_cost link = fo_program_category_cost(&some.p, FO_CAT_COMMUNICATION, -1);
		assert_true(link.wire == some.cost.wire && link.exec == 0);
		step_built_free(&some);
	}
	step_built_free(&none);
	/* With full recomputation the layer's input alone is kept, and moves. Micro-batches one after the other take
	 * the same bytes. */
	passes = (struct fo_passes){ .recompute = FO_RECOMPUTE_FULL, .offload = 6 };
	build(&some, passes, 3);
	assert_true((double)some.u.host_arena_bytes == 6 * T * D * bf16);
	assert_true(some.cost.wire == 3 * 2 * 6 * T * D * bf16);
	step_built_free(&some);
}

static bool transfers(const struct fo_op *o) { return o->kind == FO_OP_offload || o->kind == FO_OP_fetch; }

/* A copy waits for nothing that its own layer's neighbour computes, and no layer waits for a copy that was listed in
 * its own slot: so each has at least the time of one layer. Copies alone are on their lane. */
static void test_overlap(void **state)
{
	(void)state;
	struct step_built b;
	int copies = 0, waits = 0;
	build(&b, (struct fo_passes){ .merge_qkv = 1, .merge_gate_up = 1, .fuse_elementwise = 1, .offload = 9 }, 2);
	fo_prune_waits(&b.p, &b.u);
	for (int i = 0; i < b.u.n; i++) {
		const struct fo_op *o = fo_instance_op(&b.p, &b.u, i);
		int begin = b.u.slot_begin[b.u.slot[i]];
		assert_true(transfers(o) == (o->lane == FO_LANE_COPY));
		assert_true(!transfers(o) || b.u.wait[i][FO_LANE_COMPUTE] < begin);
		assert_true(transfers(o) || b.u.wait[i][FO_LANE_COPY] < begin);
		copies += transfers(o);
		waits += !transfers(o) && b.u.wait[i][FO_LANE_COPY] >= 0;
	}
	assert_int_equal(copies, 2 * 2 * 9 * 8); /* x, n1, q k v, o, xm, n2, gate up, s */
	assert_true(waits > 2 * 9);
	step_built_free(&b);
}

static void test_refuses(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct fo_lowering low = { .seq = 8, .rows = 1, .micro_batches = 1, .pass = { .offload = 2 } };
	struct fo_program p, q;
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "pass offload: activations of 2 of 2 layers: backward begins with the "
					      "last layer's, so at most those of 1"));
	low.pass.offload = -1;
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	low.pass.offload = 1;
	must(fo_pass_build(&p, &m, &low));
	struct fo_str text = { 0 }, again = { 0 };
	fo_program_dump(&p, &text);
	must(fo_program_parse(&q, text.data, text.len, "dump"));
	fo_program_dump(&q, &again);
	assert_string_equal(text.data, again.data);
	fo_str_fini(&text);
	fo_str_fini(&again);
	fo_program_fini(&q);
	/* Host memory is no operand of anything else, and a copy goes from one memory to the other. */
	int checked = 0;
	for (int b = 0; b < p.nblock; b++)
		for (int i = 0; i < p.block[b].n; i++) {
			struct fo_op o = p.block[b].op[i];
			assert_null(fo_op_check(&p, &o));
			for (int k = 0; k < o.n; k++) {
				uint8_t *home = &p.buf[o.arg[k].buf].home, keep = *home;
				*home = keep == FO_HOME_HOST ? FO_HOME_ACT : FO_HOME_HOST;
				assert_non_null(fo_op_check(&p, &o));
				*home = keep;
			}
			if (!transfers(&o))
				continue;
			o.arg[0].nr--;
			assert_non_null(fo_op_check(&p, &o));
			o.arg[1].nr--;
			assert_null(fo_op_check(&p, &o)); /* fewer rows are rows */
			o.arg[0].nc--, o.arg[1].nc--;
			assert_non_null(fo_op_check(&p, &o));
			checked++;
		}
	assert_true(checked >= 2 * 8);
	fo_program_fini(&p);
	/* Other modes keep nothing for backward. */
	for (int mode = FO_MODE_EVAL; mode <= FO_MODE_DECODE; mode++) {
		low.mode = (enum fo_mode)mode;
		low.context = mode == FO_MODE_DECODE ? 16 : 0;
		must(fo_pass_build(&p, &m, &low));
		for (int i = 0; i < p.nbuf; i++)
			assert_true(p.buf[i].home != FO_HOME_HOST);
		fo_program_fini(&p);
	}
}

/* What waits in host memory counts in a budget of one memory and not in a device's; auto takes the layers as it was
 * told. */
static void test_choice(void **state)
{
	(void)state;
	struct fo_model m = step_model(4, 64, 4, 2, 160, 256, false);
	struct fo_ask ask = { .run = { .seq = 256,
				       .rows = 2,
				       .micro_batches = 1,
				       .precision = FO_PRECISION_BF16,
				       .pass = { .offload = 3 } } };
	int64_t bytes[2];
	for (int apart = 0; apart < 2; apart++) {
		struct fo_choose want = { .budget_bytes = (int64_t)1 << 40, .recompute = true, .host_apart = apart };
		struct fo_choice c;
		struct step_built b;
		must(fo_pass_choose(&m, &ask, 1, &want, &c));
		assert_int_equal(c.run.pass.offload, 3);
		assert_int_equal(c.run.pass.recompute, 0);
		bytes[apart] = c.bytes;
		step_build(&b, &m, &c.run);
		assert_true(c.bytes == b.u.arena_bytes + b.u.persistent_bytes + (apart ? 0 : b.u.host_arena_bytes));
		step_built_free(&b);
		/* Just less than that: something is repeated, and it fits. */
		want.budget_bytes = c.bytes - 1;
		must(fo_pass_choose(&m, &ask, 1, &want, &c));
		assert_true(c.run.pass.recompute && c.run.pass.offload == 3 && c.bytes <= want.budget_bytes);
	}
	assert_true(bytes[0] > bytes[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_bits), cmocka_unit_test(test_promises), cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_refuses),   cmocka_unit_test(test_choice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
