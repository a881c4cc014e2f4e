/* The waits are enough, and each is needed.
 *
 * Programs whose operations are scattered at random over four lanes, with random delays, give the bits of the plain
 * program. An oracle of this file, which knows nothing of unroll and plan, lists every pair of instances that touch the
 * same bytes and checks that lane order and waits put each in order. Then each wait is dropped in turn: instances run
 * in the worst order that is legal without it, and the numbers must change. */
#include "support/step.h"
#include "base/clock.h"
#include "pass/pass.h"
#include "support/must.h"
#include "support/waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fo_exec_options options(int isa, uint64_t delays)
{
	/* One thread: a kernel's bits may depend on its number of threads, and lanes beside compute have one. */
	return (struct fo_exec_options){
		.isa = (enum fo_isa)isa, .threads = 1, .poison = true, .delay_seed = delays, .timeline_steps = 1
	};
}

/* Host operations stay where they are: ports are served in order. */
static void scatter(struct fo_program *p, uint64_t seed)
{
	static const uint8_t lane[] = { FO_LANE_COMPUTE, FO_LANE_COPY, FO_LANE_TP, FO_LANE_WGRAD };
	uint64_t k = 0;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			if (fo_op_info(p->block[b].op[i].kind)->cls != FO_CLASS_HOST)
				p->block[b].op[i].lane = lane[fo_rng_u64(seed, k++) % 4];
}

/* The plain program never writes what others only read, but for weights, and those are ordered through the norm of all
 * gradients. A second rotation of the keys after attention has read them must wait for a reader. */
static void rotate_again(struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++) {
		int rope = 0, attention = 0;
		if (p->block[b].unit != FO_UNIT_LAYER || p->block[b].role != FO_ROLE_FORWARD)
			continue;
		for (int i = 0; i < p->block[b].n; i++) {
			rope = p->block[b].op[i].kind == FO_OP_rope ? i : rope;
			attention = p->block[b].op[i].kind == FO_OP_attention ? i : attention;
		}
		struct fo_op *o = fo_op_insert(p, b, attention + 1, FO_OP_rope, FO_FORWARD, FO_LANE_COMPUTE);
		uint32_t id = o->id;
		*o = p->block[b].op[rope];
		o->id = id;
	}
	must(fo_program_verify(p, "a second rotation"));
}

/* seed 0: operations stay on their lanes. */
static void make(struct step_rig *r, const struct step_batch *b, const struct fo_model *m, enum fo_numerics precision,
		 uint64_t seed, struct fo_passes pass, const struct fo_exec_options *o)
{
	struct fo_program p;
	struct fo_lowering low = step_lowering(b, precision, FO_MODE_TRAIN);
	low.pass = pass;
	must(fo_pass_build(&p, m, &low));
	rotate_again(&p);
	if (seed)
		scatter(&p, seed);
	step_rig_new(r, &p, b, o);
}

struct outcome {
	double loss[3];
	uint64_t hash;
};

static void run_steps(struct step_rig *r, struct outcome *out)
{
	memset(out, 0, sizeof *out);
	for (int i = 0; i < 3; i++) {
		step_rig_at(r, i + 1);
		must(fo_exec_step(r->exec, i));
		out->loss[i] = r->loss[0];
	}
	out->hash = step_rig_hash(r);
}

static void test_scattered(void **state)
{
	(void)state;
	struct step_batch b;
	struct fo_model m = step_model(2, 32, 4, 2, 48, 64, false), tied = step_model(2, 32, 4, 1, 48, 64, true);
	step_batch_random(&b, 12, 2, 2, 64, 2, 5);
	for (int k = 0; k < 3; k++) {
		int isa = k == 1 ? FO_ISA_REF : FO_ISA_COUNT - 1;
		while (!fo_isa_have((enum fo_isa)isa))
			isa--;
		enum fo_numerics precision = k == 2 ? FO_PRECISION_BF16 : FO_PRECISION_F32;
		const struct fo_model *model = k == 1 ? &tied : &m;
		struct step_rig r;
		struct outcome plain, other;
		struct fo_exec_options o = options(isa, 0);
		make(&r, &b, model, precision, 0, (struct fo_passes){ 0 }, &o);
		run_steps(&r, &plain);
		assert_true(plain.loss[2] < plain.loss[0]); /* it learns this batch: the numbers mean something */
		step_rig_free(&r);
		for (uint64_t seed = 1; seed <= 20; seed++) {
			o.delay_seed = seed;
			/* Every fifth time only delays: the host lane alone runs beside compute. */
			make(&r, &b, model, precision, seed % 5 ? seed : 0,
			     (struct fo_passes){ .offload = seed % 2, .wgrad_lane = seed % 3 == 0 }, &o);
			run_steps(&r, &other);
			if (memcmp(&plain, &other, sizeof plain))
				fail_msg("case %d seed %d: losses %.17g %.17g, expected %.17g %.17g, or other weights",
					 k, (int)seed, other.loss[0], other.loss[2], plain.loss[0], plain.loss[2]);
			step_rig_free(&r);
		}
	}
	step_batch_free(&b);
}

/* ---- waits and what they order (support/waits.h) ---- */

static void test_enough(void **state)
{
	(void)state;
	struct step_batch b;
	struct fo_model m = step_model(3, 32, 4, 2, 48, 64, true);
	step_batch_random(&b, 8, 1, 3, 64, 1, 6);
	for (uint64_t seed = 0; seed <= 20; seed++) {
		struct fo_program p;
		struct fo_unrolled u;
		struct waits g;
		struct fo_lowering low = step_lowering(&b, FO_PRECISION_BF16, FO_MODE_TRAIN);
		low.pass.offload = (int64_t)seed % 3;
		low.pass.wgrad_lane = seed % 4 == 0;
		must(fo_pass_build(&p, &m, &low));
		rotate_again(&p);
		if (seed)
			scatter(&p, seed);
		must(fo_unroll(&p, &u));
		fo_plan(&p, &u);
		fo_prune_waits(&p, &u);
		waits_make(&g, &p, &u);
		waits_order_known(&g, -1, -1);
		for (int k = 0; k < g.pairs; k++)
			if (!waits_ordered(&g, &g.pair[k]))
				fail_msg("seed %d: instances %d and %d touch the same bytes and nothing orders them",
					 (int)seed, g.pair[k].i, g.pair[k].j);
		assert_true(g.pairs > u.n / 2);
		waits_free(&g);
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
	step_batch_free(&b);
}

struct dropping {
	struct step_rig *r;
	void *start;
};

static void run_order(void *ctx, const int *order, struct waits_result *out)
{
	struct step_rig *r = ((struct dropping *)ctx)->r;
	memset(out, 0, sizeof *out);
	memset(r->loss, 0, sizeof r->loss);
	memset(r->scale, 0, sizeof r->scale);
	step_rig_restore(r, ((struct dropping *)ctx)->start);
	memset(r->arena, 0xff, (size_t)fo_exec_unrolled(r->exec)->arena_bytes);
	if (fo_exec_step_in_order(r->exec, order) != FO_OK)
		return;
	memcpy(out->loss, r->loss, sizeof out->loss);
	memcpy(out->scale, r->scale, sizeof out->scale);
	out->hash = step_rig_hash(r);
	out->finished = true;
}

static void drop_each(uint64_t seed, struct fo_passes pass, const struct fo_model *m, struct waits_tally *t)
{
	struct step_batch b;
	struct step_rig r;
	struct waits g;
	struct fo_exec_options o = options(FO_ISA_REF, 0);
	char label[32];
	snprintf(label, sizeof label, "seed %d", (int)seed);
	step_batch_random(&b, 6, 2, 2, 24, 2, seed);
	make(&r, &b, m, FO_PRECISION_F32, seed, pass, &o);
	struct dropping d = { &r, step_rig_save(&r) };
	must(fo_exec_step(r.exec, 0));
	waits_make(&g, &r.program, fo_exec_unrolled(r.exec));
	waits_drop_each(&g, false, run_order, &d, label, t);
	waits_free(&g);
	free(d.start);
	step_rig_free(&r);
	step_batch_free(&b);
}

static void test_each_needed(void **state)
{
	(void)state;
	struct waits_tally t = { 0 };
	struct fo_model m = step_model(2, 16, 2, 1, 24, 24, false), tied = step_model(1, 16, 2, 2, 24, 24, true);
	const struct fo_passes none = { 0 };
	drop_each(1, none, &m, &t);
	drop_each(2, none, &tied, &t);
	drop_each(3, none, &tied, &t);
	waits_print(&t);
	assert_true(t.data > 50 && t.reuse > 5);
	/* A sum of doubles may come out the same in another order (the oracle of test_enough still misses its order). A
	 * free range carries the accesses of all the generations that it was made of, so a small one placed there may
	 * wait for neighbours that it does not touch. Both must stay rare. */
	assert_true(t.commuting * 10 <= t.waits);
	assert_true(t.idle * 5 <= t.waits);
}

/* Copies to host memory and back beside compute, as the pass made them. */
static void test_offload_needed(void **state)
{
	(void)state;
	struct waits_tally t = { 0 };
	struct fo_model m = step_model(4, 16, 2, 1, 24, 24, false);
	drop_each(0, (struct fo_passes){ .offload = 3 }, &m, &t);
	waits_print(&t);
	assert_true(t.data > 20 && t.reuse > 0 && t.stale * 5 <= t.waits && t.idle * 5 <= t.waits);
}

/* Weight gradients beside the rest of backward, as the pass and the plan have them. */
static void test_wgrad_needed(void **state)
{
	(void)state;
	struct fo_model m = step_model(3, 16, 2, 1, 24, 24, true);
	m.attention_bias = true;
	for (int k = 0; k < 2; k++) {
		struct waits_tally t = { 0 };
		drop_each(0,
			  (struct fo_passes){ .wgrad_lane = 1,
					      .merge_qkv = 1,
					      .merge_gate_up = k,
					      .fuse_loss = 5 * k,
					      .fuse_elementwise = k },
			  &m, &t);
		waits_print(&t);
		assert_true(t.data - t.commuting > 10 && t.reuse > 10 && t.commuting * 10 <= t.waits &&
			    t.idle * 5 <= t.waits);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_scattered), cmocka_unit_test(test_enough),
					    cmocka_unit_test(test_each_needed), cmocka_unit_test(test_offload_needed),
					    cmocka_unit_test(test_wgrad_needed) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
