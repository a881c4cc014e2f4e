/* Context parallel programs (pass cp). That they compute what one rank does is test_data_parallel.c's affair; here are
 * the published formulas: bytes that travel, pairs that are computed, and what is refused. */
#include "pass/pass.h"
#include "program/ring.h"
#include "support/must.h"
#include "support/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HIDDEN = 64, HEADS = 8, KV = 4, FFN = 192, VOCAB = 512, LAYERS = 3, SEQ = 96 };

static struct fo_lowering lowering(int cp)
{
	return (struct fo_lowering){ .seq = SEQ,
				     .rows = 2,
				     .micro_batches = 1,
				     .precision = FO_PRECISION_F32,
				     .mesh = { .replicate = 1, .shard = 1, .cp = cp },
				     .pass = { .ddp = 25, .cp = FO_CP_RING } };
}

static double wire_of(const struct fo_program *p, enum fo_lane lane)
{
	double bytes = 0;
	for (int s = 0; s < p->nslot; s++)
		for (int i = 0; i < p->block[p->slot[s].block].n; i++) {
			const struct fo_op *o = &p->block[p->slot[s].block].op[i];
			bytes += o->lane == lane ? fo_op_cost(p, o, -1).wire : 0;
		}
	return bytes;
}

/* Ring attention: keys and values of a rank go to each other rank, forward and backward, and so do the sums of their
 * gradients: 6 (n - 1) blocks of T / n x KV columns. Repeating attention sends keys and values once more. */
static void test_wire_is_that_of_the_paper(void **state)
{
	(void)state;
	const struct fo_model m = step_model(LAYERS, HIDDEN, HEADS, KV, FFN, VOCAB, false);
	for (int cp = 2; cp <= 8; cp++) {
		struct fo_lowering low = lowering(cp);
		struct step_built b;
		if (SEQ % (2 * cp))
			continue;
		const double block = 2.0 * SEQ / cp * (double)(m.kv_heads * m.head_dim) * 4;
		step_build(&b, &m, &low);
		assert_true(wire_of(&b.p, FO_LANE_CP) == LAYERS * 6 * (cp - 1) * block);
		step_built_free(&b);
		low.pass.recompute = FO_RECOMPUTE_FULL;
		step_build(&b, &m, &low);
		assert_true(wire_of(&b.p, FO_LANE_CP) == LAYERS * 8 * (cp - 1) * block);
		step_built_free(&b);
		low.pass.recompute = FO_RECOMPUTE_SELECTIVE;
		step_build(&b, &m, &low);
		assert_true(wire_of(&b.p, FO_LANE_CP) == LAYERS * 6 * (cp - 1) * block);
		step_built_free(&b);
	}
}

/* Every query sees what it sees in a whole row, each key on one rank, and ranks have equally many pairs. */
static void test_ranges(void **state)
{
	(void)state;
	for (int cp = 1; cp <= 6; cp++)
		for (int chunk = 1; chunk <= 4; chunk++)
			for (int window = 0; window <= 2 * cp * chunk; window += 3) {
				const int seq = 2 * cp * chunk;
				int64_t of[6] = { 0 };
				for (int rank = 0; rank < cp; rank++)
					for (int i = 0; i < 2 * 2 * chunk; i++) { /* two rows */
						const int64_t row = i / (2 * chunk),
							      at = fo_ring_place(cp, rank, chunk, i);
						const int64_t doc = row * seq + at / 3 * 2; /* at or before it */
						bool seen[64] = { false };
						assert_in_range(at, 0, seq - 1);
						for (int step = 0; step < cp; step++) {
							const struct fo_attr a = { .cp = cp,
										   .place = rank,
										   .peer = step,
										   .chunk = chunk,
										   .window = window };
							const struct fo_ring_keys k = fo_ring_keys(&a, i, doc);
							for (int64_t j = k.first; j < k.end; j++) {
								int64_t from = fo_ring_place(
									cp, (rank - step + cp) % cp, chunk, j);
								assert_int_equal(j / (2 * chunk), row);
								assert_false(seen[from]);
								seen[from] = true;
							}
							of[rank] += fo_ring_keys(&a, i, 0).end -
								    fo_ring_keys(&a, i, 0).first;
						}
						for (int64_t j = 0; j < seq; j++) {
							bool sees = j <= at && row * seq + j >= doc &&
								    (!window || j > at - window);
							assert_true(seen[j] == sees);
						}
					}
				for (int rank = 1; rank < cp && !window; rank++)
					assert_true(of[rank] == of[0]);
			}
}

/* What is run is the same on each rank, and all ranks' together what one rank runs. */
static void test_work_is_divided(void **state)
{
	(void)state;
	const int windows[] = { 0, 20 };
	for (int w = 0; w < 2; w++) {
		struct fo_model m = step_model(LAYERS, HIDDEN, HEADS, KV, FFN, VOCAB, false);
		m.sliding_window = windows[w];
		struct fo_lowering low = lowering(1);
		struct step_built one;
		double exec = 0, model = 0;
		step_build(&one, &m, &low);
		for (int rank = 0; rank < 4; rank++) {
			struct step_built b;
			low = lowering(4);
			low.mesh.rank = rank;
			step_build(&b, &m, &low);
			assert_int_equal(b.p.tokens, one.p.tokens / 4);
			if (!windows[w])
				assert_true(b.cost.exec == one.cost.exec / 4);
			exec += b.cost.exec;
			model += b.cost.model;
			step_built_free(&b);
		}
		assert_true(exec == one.cost.exec);
		assert_true(fabs(model - one.cost.model) <= 1e-12 * model);
		step_built_free(&one);
	}
}

/* ---- what the verifier sees ---- */

static struct fo_op *nth(struct fo_program *p, const char *block, int kind, int n)
{
	struct fo_block *b = &p->block[fo_block_find(p, block)];
	for (int i = 0; i < b->n; i++)
		if (b->op[i].kind == kind && n-- == 0)
			return &b->op[i];
	fail_msg("no such operation");
	return NULL;
}

/* Keys of a rank that come twice while another's are missing. */
static void twice(struct fo_program *p) { nth(p, "layer.f", FO_OP_attention_block, 2)->attr.peer = 1; }
/* The keys are handed on from where they were a step before. */
static void stale(struct fo_program *p)
{
	nth(p, "layer.f", FO_OP_shift, 4)->arg[FO_SHIFT_X].buf = nth(p, "layer.f", FO_OP_shift, 0)->arg[FO_SHIFT_X].buf;
}
/* A gradient goes to the rank whose keys it is not of. */
static void astray(struct fo_program *p)
{
	struct fo_block *b = &p->block[fo_block_find(p, "layer.b")];
	for (int i = b->n - 1; i > 0; i--)
		if (b->op[i].kind == FO_OP_add) {
			b->op[i].arg[FO_ADD_A].buf = nth(p, "layer.b", FO_OP_shift, 4)->arg[FO_SHIFT_X].buf;
			return;
		}
}
static void around_others(struct fo_program *p) { nth(p, "layer.b", FO_OP_shift, 1)->group = FO_GROUP_ALL; }

static void test_verifier(void **state)
{
	(void)state;
	const struct {
		void (*spoil)(struct fo_program *p);
		const char *says;
	} row[] = { { NULL, NULL },
		    { twice, "tokens of another rank" },
		    { stale, "tokens of another rank" },
		    { astray, "tokens of another rank" },
		    { around_others, "around other ranks" } };
	const struct fo_model m = step_model(LAYERS, HIDDEN, HEADS, KV, FFN, VOCAB, false);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct fo_lowering low = lowering(4);
		struct fo_program p;
		struct fo_unrolled u;
		must(fo_pass_build(&p, &m, &low));
		if (row[i].spoil)
			row[i].spoil(&p);
		must(fo_unroll(&p, &u));
		fo_status st = fo_sums_verify(&p, &u);
		assert_int_equal(st, row[i].spoil ? FO_EBUG : FO_OK);
		if (row[i].spoil && !strstr(fo_err_text(), row[i].says))
			fail_msg("'%s' does not say '%s'", fo_err_text(), row[i].says);
		fo_err_clear();
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
}

static void refused(struct fo_lowering low, const char *says)
{
	const struct fo_model m = step_model(LAYERS, HIDDEN, HEADS, KV, FFN, VOCAB, false);
	struct fo_program p;
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	if (!strstr(fo_err_text(), says))
		fail_msg("'%s' does not say '%s'", fo_err_text(), says);
	fo_err_clear();
}

static void test_refusals(void **state)
{
	(void)state;
	struct fo_lowering low = lowering(5);
	refused(low, "5 ranks of a cp group cannot share rows of 96 tokens evenly");
	low = lowering(32);
	refused(low, "must be a multiple of 64");
	low = lowering(2);
	low.pass.attention = FO_ATTENTION_EAGER;
	refused(low, "eager attention has the probabilities of whole rows");
	low = lowering(2);
	low.mode = FO_MODE_LOGITS;
	refused(low, "they do not write text");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire_is_that_of_the_paper),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_work_is_divided),
		cmocka_unit_test(test_verifier),
		cmocka_unit_test(test_refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
