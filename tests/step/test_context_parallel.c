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

static struct fo_lowering by_heads(int cp)
{
	struct fo_lowering low = lowering(cp);
	low.pass.cp = FO_CP_HEADS;
	return low;
}

/* Ulysses: an all-to-all of queries, keys and values and one of the output, backward as well. Of an all-to-all of a
 * tensor of N tokens and h columns on P ranks each receives N h / P (P - 1) / P numbers: with as many key and value
 * heads as heads 4 N h / P (P - 1) / P forward. Fewer of them than ranks travel once to each rank. */
static void test_wire_of_heads_is_that_of_the_paper(void **state)
{
	(void)state;
	for (int kv = 1; kv <= HEADS; kv *= 2)
		for (int cp = 2; cp <= HEADS; cp *= 2) {
			const struct fo_model m = step_model(LAYERS, HIDDEN, HEADS, kv, FFN, VOCAB, false);
			const double n = 2.0 * SEQ, h = (double)(m.heads * m.head_dim), d = (double)m.head_dim,
				     keys = d * (kv > cp ? kv : cp),
				     forward = 4 * LAYERS * (2 * n * h + 2 * n * keys) / cp * (cp - 1) / cp;
			static const int repeated[] = { 0, FO_RECOMPUTE_SELECTIVE, FO_RECOMPUTE_FULL };
			if (kv == HEADS)
				assert_true(forward == 4 * LAYERS * 4 * n * h / cp * (cp - 1) / cp);
			for (int i = 0; i < 3; i++) {
				struct fo_lowering low = by_heads(cp);
				struct step_built b;
				low.pass.recompute = repeated[i];
				step_build(&b, &m, &low);
				assert_true(wire_of(&b.p, FO_LANE_CP) == (i == 2 ? 3 : 2) * forward);
				step_built_free(&b);
			}
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
	for (int k = 0; k < 4; k++) {
		const int w = k % 2;
		const bool heads = k > 1;
		struct fo_model m = step_model(LAYERS, HIDDEN, HEADS, KV, FFN, VOCAB, false);
		m.sliding_window = windows[w];
		struct fo_lowering low = lowering(1);
		struct step_built one;
		double exec = 0, model = 0;
		step_build(&one, &m, &low);
		for (int rank = 0; rank < 4; rank++) {
			struct step_built b;
			low = heads ? by_heads(4) : lowering(4);
			low.mesh.rank = rank;
			step_build(&b, &m, &low);
			assert_int_equal(b.p.tokens, one.p.tokens / 4);
			if (heads || !windows[w])
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

/* Attention of what was not exchanged yet. */
static void too_early(struct fo_program *p)
{
	const int apart = nth(p, "layer.f", FO_OP_all_to_all, 0)->arg[FO_ALL_TO_ALL_X].buf;
	struct fo_op *o = nth(p, "layer.f", FO_OP_attention, 0);
	for (int i = FO_ATTENTION_Q; i <= FO_ATTENTION_V; i++)
		o->arg[i].buf = (int16_t)apart;
}
/* The output is put together without having come back. */
static void not_back(struct fo_program *p)
{
	nth(p, "layer.f", FO_OP_heads_together, 0)->arg[FO_HEADS_TOGETHER_X].buf =
		nth(p, "layer.f", FO_OP_all_to_all, 1)->arg[FO_ALL_TO_ALL_X].buf;
}
static void among_others(struct fo_program *p) { nth(p, "layer.b", FO_OP_all_to_all, 1)->group = FO_GROUP_ALL; }
/* Own tokens of all heads are exchanged, whose rows no rank has sorted. */
static void unsorted(struct fo_program *p)
{
	const struct fo_operand q = nth(p, "layer.b", FO_OP_heads_together, 0)->arg[FO_HEADS_TOGETHER_Y];
	const int block = fo_block_find(p, "layer.b"), other = fo_buffer_like(p, "other", &p->buf[q.buf]);
	struct fo_op *o = fo_op_insert(p, block, p->block[block].n, FO_OP_all_to_all, FO_TRANSFER, FO_LANE_CP);
	o->group = FO_GROUP_CP;
	fo_op_arg(p, o, q.buf, 0, FO_READ);
	fo_op_arg(p, o, other, 0, FO_DEF);
}

static void test_verifier(void **state)
{
	(void)state;
	const struct {
		enum fo_cp by;
		void (*spoil)(struct fo_program *p);
		const char *says;
	} row[] = { { FO_CP_RING, NULL, NULL },
		    { FO_CP_RING, twice, "tokens of another rank" },
		    { FO_CP_RING, stale, "tokens of another rank" },
		    { FO_CP_RING, astray, "tokens of another rank" },
		    { FO_CP_RING, around_others, "around other ranks" },
		    { FO_CP_HEADS, NULL, NULL },
		    { FO_CP_HEADS, too_early, "attention has not all tokens" },
		    { FO_CP_HEADS, not_back, "tokens of another rank" },
		    { FO_CP_HEADS, among_others, "among other ranks than a cp group's" },
		    { FO_CP_HEADS, unsorted, "not sorted by the ranks" } };
	const struct fo_model m = step_model(LAYERS, HIDDEN, HEADS, KV, FFN, VOCAB, false);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct fo_lowering low = row[i].by == FO_CP_HEADS ? by_heads(4) : lowering(4);
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
	low = by_heads(3);
	refused(low, "3 ranks of a cp group cannot share the 8 attention heads evenly");
	low = by_heads(16);
	refused(low, "16 ranks of a cp group cannot share the 8 attention heads evenly");
	low = by_heads(8);
	low.seq = 33;
	refused(low, "8 ranks of a cp group cannot share the 66 tokens of a micro-batch evenly");
	low = by_heads(4);
	low.mesh.tp = 4;
	low.pass.tp = FO_TP_SEQUENCE;
	refused(low, "4 ranks of a cp group cannot share the 2 attention heads that each of 4 tp ranks has evenly");
}

/* The numbers of ranks that a refusal names can be had. */
static void test_nearest(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 96, 12, 6, FFN, VOCAB, false);
	static const struct {
		int64_t tokens;
		int cp, tp;
		const char *says;
	} row[] = {
		{ 96, 4, 1, "mesh.cp=3 or 6;" },  /* 6 key and value heads: neither 4 of 6 nor 6 of 4 */
		{ 96, 5, 1, "mesh.cp=3 or 6;" },  /* heads */
		{ 96, 8, 1, "mesh.cp=6 or 12;" }, /* 12 heads */
		{ 90, 12, 1, "mesh.cp=6;" },      /* tokens */
		{ 96, 4, 2, "mesh.cp=3 or 6;" },  /* 6 and 3 heads of a tp rank */
		{ 96, 24, 1, "mesh.cp=12;" },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		assert_int_equal(fo_mesh_cp_heads_legal(&m, row[i].tokens, row[i].cp, row[i].tp), FO_EARG);
		if (!strstr(fo_err_hint(), row[i].says))
			fail_msg("'%s', '%s' does not say '%s'", fo_err_text(), fo_err_hint(), row[i].says);
		fo_err_clear();
	}
	m.kv_heads = 4;
	assert_int_equal(fo_mesh_cp_heads_legal(&m, 96, 3, 4), FO_OK);
	assert_int_equal(fo_mesh_cp_heads_legal(&m, 96, 4, 3), FO_OK); /* pass tp refuses it */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire_is_that_of_the_paper),
		cmocka_unit_test(test_wire_of_heads_is_that_of_the_paper),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_work_is_divided),
		cmocka_unit_test(test_verifier),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_nearest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
