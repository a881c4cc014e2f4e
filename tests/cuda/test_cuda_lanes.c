/* Two lanes that compute, on a CUDA device: streams and events keep every bit, whatever else the program does and
 * however the device takes work up; without one of the waits between them numbers change. On the software device under
 * many seeds. */
#include "base/mem.h"
#include "pass/pass.h"
#include "support/cuda.h"
#include "support/step.h"
#include "support/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, SEEDS = 4, DROP_SEEDS = 15 };

static struct fo_cuda *cuda;
static const struct fo_test_soft *soft;

struct outcome {
	double loss[STEPS], norm[STEPS];
	uint64_t hash;
};

static const struct {
	const char *name;
	struct fo_passes pass;
} cases[] = {
	{ "plain", { 0 } },
	{ "fused",
	  { .merge_qkv = 1, .merge_gate_up = 1, .fuse_elementwise = 1, .fuse_loss = 7, .fused_optimizer = 1 } },
	{ "recomputing",
	  { .merge_qkv = 1,
	    .merge_gate_up = 1,
	    .fuse_elementwise = 1,
	    .fuse_loss = 8,
	    .recompute = FO_RECOMPUTE_FULL } },
	{ "offloading", { .merge_qkv = 1, .fuse_elementwise = 1, .offload = 1, .recompute = FO_RECOMPUTE_SELECTIVE } },
	{ "optimizer in backward",
	  { .merge_gate_up = 1, .fused_optimizer = 1, .optimizer_in_backward = 1, .previous_norm = 1 } },
	{ "norm of the step before",
	  { .merge_qkv = 1, .fused_optimizer = 1, .previous_norm = 1, .master = FO_MASTER_SPLIT } },
	{ "fp8",
	  { .merge_gate_up = 1, .fp8 = FO_FP8_DELAYED, .fp8_history = 4, .fp8_precompute = 1, .fp8_transposed = 1 } },
	{ "fused casts",
	  { .merge_qkv = 1,
	    .fuse_elementwise = 1,
	    .fuse_rope = 1,
	    .fp8 = FO_FP8_DELAYED,
	    .fp8_history = 4,
	    .fp8_precompute = 1,
	    .fp8_transposed = 1,
	    .fp8_fuse = 1,
	    .recompute = FO_RECOMPUTE_SELECTIVE } },
	{ "fp8 rows", { .merge_qkv = 1, .fp8 = FO_FP8_ROWWISE } },
};
enum { CASES = sizeof cases / sizeof *cases };

static void make(struct step_rig *r, struct fo_passes pass, bool tied, const struct step_batch *b,
		 const struct fo_exec_options *o)
{
	struct fo_model m = step_model(2, 32, 2, 1, 48, 48, tied);
	struct fo_lowering low = step_lowering(b, FO_PRECISION_BF16, FO_MODE_TRAIN);
	m.attention_bias = tied;
	low.pass = pass;
	step_rig_lower(r, &m, &low, b, o);
}

/* Batches in turn: their documents ask for other plans, which graphs hold. */
static struct outcome run_steps(struct step_rig *r, const struct step_batch *b, int batches)
{
	struct outcome out = { 0 };
	for (int i = 0; i < STEPS; i++) {
		r->batch = &b[i % batches];
		step_rig_at(r, i + 1);
		must(fo_exec_step(r->exec, i));
		out.loss[i] = r->loss[0];
		out.norm[i] = r->hyper[FO_HYPER_LAST_NORM] = r->scale[1];
	}
	must(fo_exec_fetch(r->exec));
	out.hash = step_rig_hash(r);
	return out;
}

static struct outcome outcome_of(struct fo_passes pass, bool tied, const struct step_batch *b, int batches,
				 uint64_t seed, const struct fo_exec_options *o)
{
	struct step_rig r;
	if (soft)
		soft->seed(seed);
	make(&r, pass, tied, b, o);
	struct outcome out = run_steps(&r, b, batches);
	step_rig_free(&r);
	return out;
}

static void test_same_bits(void **state)
{
	(void)state;
	enum { BATCHES = 2 };
	struct step_batch b[BATCHES];
	for (int i = 0; i < BATCHES; i++)
		step_batch_random(&b[i], 16, 1, 2, 48, 1 + 4 * i, 5 + (uint64_t)i);
	for (int k = 0; k < CASES; k++) {
		struct fo_exec_options o = { .cuda = cuda, .timeline_steps = 4, .eager = true };
		struct fo_passes pass = cases[k].pass;
		bool tied = k % 2;
		int batches = k % 3 ? 1 : BATCHES;
		struct outcome want = outcome_of(pass, tied, b, batches, 1, &o);
		assert_true(want.loss[0] == want.loss[0] && want.loss[0] != want.loss[STEPS - 1]);
		pass.wgrad_lane = 1;
		for (uint64_t seed = 0; seed < SEEDS; seed++)
			for (int eager = 0; eager < 2; eager++) {
				o.eager = eager;
				o.timed_every = (int)(seed + (uint64_t)k) % 3; /* none, every step, every other one */
				o.poison = seed % 2 == 0;
				struct outcome got = outcome_of(pass, tied, b, batches, 100 + seed, &o);
				if (memcmp(&got, &want, sizeof got))
					fail_msg("%s, seed %d, %s, timed every %d: losses %.17g %.17g, expected %.17g "
						 "%.17g, or other weights",
						 cases[k].name, (int)seed, eager ? "eager" : "replayed", o.timed_every,
						 got.loss[0], got.loss[STEPS - 1], want.loss[0], want.loss[STEPS - 1]);
			}
	}
	for (int i = 0; i < BATCHES; i++)
		step_batch_free(&b[i]);
}

/* Each wait between the two lanes, gone: some seed shows it. Every operand is initialised memory at any time, so
 * nothing can lead outside, as a missing batch could. */
static void test_waits_are_needed(void **state)
{
	(void)state;
	if (!soft) {
		skip();
		return;
	}
	struct step_batch b;
	struct fo_exec_options o = { .cuda = cuda, .timeline_steps = 1, .poison = true };
	struct fo_passes pass = cases[1].pass;
	step_batch_random(&b, 16, 2, 1, 48, 2, 5);
	pass.wgrad_lane = 1;
	struct outcome want = outcome_of(pass, false, &b, 1, 1, &o);
	int waits = 0, noticed = 0;
	for (int drop = 0, there = 1; there; drop++) {
		bool other = false;
		there = 0;
		for (uint64_t seed = 0; seed < DROP_SEEDS && !other; seed++) {
			struct step_rig r;
			soft->seed(1000 + seed);
			make(&r, pass, false, &b, &o);
			struct fo_unrolled *u = (struct fo_unrolled *)(uintptr_t)fo_exec_unrolled(r.exec);
			int k = 0;
			for (int i = 0; i < u->n; i++) {
				int lane = fo_instance_op(&r.program, u, i)->lane,
				    of = lane == FO_LANE_COMPUTE ? FO_LANE_WGRAD : FO_LANE_COMPUTE;
				if (fo_lane_computes(lane) && u->wait[i][of] >= 0 && k++ == drop)
					u->wait[i][of] = -1, there = 1;
			}
			struct outcome got = run_steps(&r, &b, 1);
			other = memcmp(&got, &want, sizeof got);
			step_rig_free(&r);
			if (!there)
				break;
		}
		if (!there && other)
			fail_msg("with all its waits the step gives other numbers");
		waits += there;
		noticed += there && other;
	}
	print_message("%d of %d dropped waits between the lanes changed the numbers\n", noticed, waits);
	assert_true(waits > 10 && 2 * noticed > waits);
	step_batch_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_bits), cmocka_unit_test(test_waits_are_needed) };
	int status;
	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	soft = fo_test_soft(cuda);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_cuda_close(cuda);
	return failed;
}
