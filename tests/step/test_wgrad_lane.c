/* Weight gradients on a lane of their own: which operations change lanes, what that costs in memory, and that the
 * compute lane is never made to wait for a product that was just begun. That every bit stays is in test_offload,
 * test_lanes and, on a device, in tests/cuda/test_cuda_lanes. */
#include "pass/pass.h"
#include "support/step.h"
#include "support/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void build(struct step_built *b, struct fo_passes passes, int micro_batches, bool biases)
{
	struct fo_model m = step_model(12, 768, 12, 12, 2048, 32000, false);
	m.attention_bias = biases;
	struct fo_lowering low = {
		.seq = 2048, .rows = 4, .micro_batches = micro_batches, .precision = FO_PRECISION_BF16, .pass = passes
	};
	step_build(b, &m, &low);
}

static const struct {
	const char *name;
	struct fo_passes pass;
} others[] = {
	{ "merged",
	  { .merge_qkv = 1, .merge_gate_up = 1, .fuse_elementwise = 1, .fuse_loss = 1024, .fused_optimizer = 1 } },
	{ "plain", { 0 } },
	{ "recomputing", { .merge_qkv = 1, .recompute = FO_RECOMPUTE_FULL, .fuse_loss = 1024 } },
	{ "fp8",
	  { .merge_qkv = 1,
	    .merge_gate_up = 1,
	    .fuse_loss = 1024,
	    .fp8 = FO_FP8_DELAYED,
	    .fp8_history = 4,
	    .fp8_precompute = 1,
	    .fp8_transposed = 1 } },
	{ "fused casts",
	  { .merge_qkv = 1,
	    .merge_gate_up = 1,
	    .fuse_elementwise = 1,
	    .fuse_rope = 1,
	    .fuse_loss = 1024,
	    .fp8 = FO_FP8_DELAYED,
	    .fp8_history = 4,
	    .fp8_precompute = 1,
	    .fp8_transposed = 1,
	    .fp8_fuse = 1 } },
	{ "optimizer in backward",
	  { .merge_qkv = 1, .fuse_loss = 1024, .optimizer_in_backward = 1, .previous_norm = 1 } },
};
enum { OTHERS = sizeof others / sizeof *others };

/* Every product that adds to a gradient, and what sums a bias's, is there; nothing else is; costs are the same. */
static void test_which(void **state)
{
	(void)state;
	for (int k = 0; k < OTHERS; k++) {
		struct step_built none, with;
		struct fo_passes passes = others[k].pass;
		int products = 0, biases = 0;
		build(&none, passes, 2, true);
		passes.wgrad_lane = 1;
		build(&with, passes, 2, true);
		for (int i = 0; i < with.u.n; i++) {
			const struct fo_op *o = fo_instance_op(&with.p, &with.u, i);
			bool product = o->kind == FO_OP_matmul, adds = false;
			for (int a = 0; a < o->n; a++)
				adds |= with.p.buf[o->arg[a].buf].home == FO_HOME_GRAD && o->arg[a].access == FO_ACC;
			assert_int_equal(o->lane == FO_LANE_WGRAD, adds && (product || o->kind == FO_OP_bias_grad));
			products += product && o->lane == FO_LANE_WGRAD;
			biases += o->kind == FO_OP_bias_grad && o->lane == FO_LANE_WGRAD;
		}
		assert_true(products >= 2 * (12 * 4 + 1) && biases > 0);
		assert_true(with.u.n == none.u.n && with.u.persistent_bytes == none.u.persistent_bytes);
		assert_memory_equal(&with.cost, &none.cost, sizeof none.cost);
		step_built_free(&none);
		step_built_free(&with);
	}
}

/* What the lane reads stays for two more operations of the compute lane that multiply: what overwrites it, or stands in
 * its place, is listed behind them. Two, so that each lane has a product waiting behind the one that runs
 * (src/program/plan.c). Not so for who reads the gradients, and what shares a generation with them. */
static void test_slack(void **state)
{
	(void)state;
	for (int k = 0; k < OTHERS; k++) {
		struct step_built b;
		struct fo_passes passes = others[k].pass;
		int waits = 0;
		passes.wgrad_lane = 1;
		build(&b, passes, 2, k % 2);
		fo_prune_waits(&b.p, &b.u);
		for (int i = 0; i < b.u.n; i++) {
			const struct fo_op *o = fo_instance_op(&b.p, &b.u, i);
			int need = b.u.wait[i][FO_LANE_WGRAD], between = 0;
			bool gradient = false;
			if (need < 0 || o->lane != FO_LANE_COMPUTE)
				continue;
			for (int a = 0; a < o->n; a++)
				gradient |= b.p.buf[o->arg[a].buf].home == FO_HOME_GRAD;
			for (int j = need + 1; j < i; j++) {
				const struct fo_op *x = fo_instance_op(&b.p, &b.u, j);
				between += x->lane == FO_LANE_COMPUTE &&
					   fo_op_info((enum fo_op_kind)x->kind)->cls == FO_CLASS_TENSOR;
			}
			waits += !gradient;
			if (!gradient && between < 2)
				fail_msg("%s: %s (%d) waits for weight gradient %d, with %d operations between that "
					 "multiply",
					 others[k].name, fo_op_info((enum fo_op_kind)o->kind)->name, i, need, between);
		}
		assert_true(waits > 12); /* the lane cannot fall behind without bound */
		step_built_free(&b);
	}
}

/* Memory grows by what three products read at most: the one that has been listed last and those that ran into the two
 * further ones. The largest such reads are the logits of three chunks, or gate and up with what lies around them. */
static void test_memory(void **state)
{
	(void)state;
	const double T = 4 * 2048, D = 768, F = 2048, V = 32000, bf16 = 2;
	for (int k = 0; k < 2; k++) {
		struct step_built none, with;
		struct fo_passes passes = others[k].pass;
		double chunk = passes.fuse_loss ? (double)passes.fuse_loss : T;
		build(&none, passes, 3, false);
		passes.wgrad_lane = 1;
		build(&with, passes, 3, false);
		double logits = 3 * chunk * (V + D) * bf16, layer = T * (2 * F + F + 6 * D) * bf16;
		double grown = (double)(with.u.max_live_bytes - none.u.max_live_bytes);
		assert_true(grown >= 0 && grown <= (logits > layer ? logits : layer));
		assert_true((double)with.u.arena_bytes <= 1.1 * (double)with.u.max_live_bytes);
		print_message("%s: %.0f MB more of %.0f live, arena %.0f MB\n", others[k].name, grown / 1e6,
			      (double)none.u.max_live_bytes / 1e6, (double)with.u.arena_bytes / 1e6);
		step_built_free(&none);
		step_built_free(&with);
	}
}

/* The choice travels in dumps; programs that do not train are as they were. */
static void test_dump_and_modes(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct fo_lowering low = { .seq = 8, .rows = 1, .micro_batches = 1, .pass = { .wgrad_lane = 1 } };
	struct fo_program p, q;
	struct fo_str text = { 0 }, again = { 0 };
	must(fo_pass_build(&p, &m, &low));
	fo_program_dump(&p, &text);
	must(fo_program_parse(&q, text.data, text.len, "dump"));
	fo_program_dump(&q, &again);
	assert_string_equal(text.data, again.data);
	assert_non_null(strstr(text.data, " wgrad wgrad "));
	fo_str_fini(&text);
	fo_str_fini(&again);
	fo_program_fini(&q);
	fo_program_fini(&p);
	for (int mode = FO_MODE_EVAL; mode <= FO_MODE_DECODE; mode++) {
		low.mode = (enum fo_mode)mode;
		low.context = mode == FO_MODE_DECODE ? 16 : 0;
		must(fo_pass_build(&p, &m, &low));
		for (int b = 0; b < p.nblock; b++)
			for (int i = 0; i < p.block[b].n; i++)
				assert_true(p.block[b].op[i].lane != FO_LANE_WGRAD);
		fo_program_fini(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_which),
		cmocka_unit_test(test_slack),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_dump_and_modes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
