/* Ranks of a tp group, by what their programs say: bytes on the wire are those of the published formulas, FLOP and
 * weights are divided, and what cannot be divided is refused with what can. That they train as one rank does is in
 * test_data_parallel.c. */
#include "pass/pass.h"
#include "support/must.h"
#include "support/ranks.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 3, MICRO = 2, SEQ = 16, HIDDEN = 64, VOCAB = 512 };

static struct fo_lowering lowering_of(int tp, int how, int64_t recompute)
{
	return (struct fo_lowering){ .seq = SEQ,
				     .rows = 2,
				     .micro_batches = MICRO,
				     .precision = FO_PRECISION_BF16,
				     .mesh = { .tp = tp },
				     .pass = { .ddp = 25, .tp = how, .recompute = recompute } };
}

/* Bytes that a rank receives in a step on lane tp, in blocks of one unit. */
static double received(const struct fo_program *p, int unit)
{
	double bytes = 0;
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		for (int i = 0; b->unit == unit && i < b->n; i++)
			if (b->op[i].lane == FO_LANE_TP) {
				assert_int_equal(b->op[i].group, FO_GROUP_TP);
				bytes += fo_op_cost(p, &b->op[i], -1).wire;
			}
	}
	return bytes;
}

/* Shoeybi et al. 2019: two all-reduces of the residual stream forward and two backward in each layer. Korthikanti et
 * al. 2022: with sequence parallel as many all-gathers and reduce-scatters, which together move the same bytes, and two
 * more gathers where backward gathers norms' outputs again instead of keeping all tokens of them. Of t ranks each
 * receives (t - 1) / t of the stream in a gather or a scatter, twice that in an all-reduce. Full recomputation stops
 * early: of the second half's sum nothing is needed.
 *
 * Vocabulary: Megatron-LM adds up looked-up rows forward, and backward the gradient of what the head reads; with
 * sequence parallel these are a scatter and a gather at each end. Of each token's logits three fp32 numbers are
 * all-reduced: a maximum, a sum of exponentials, the target's. */
static void test_wire(void **state)
{
	(void)state;
	static const struct {
		int how;
		int64_t recompute;
		double gathers; /* or scatters, of a layer and micro-batch; an all-reduce is two of them */
	} row[] = {
		{ FO_TP_REPLICATED, 0, 8 },
		{ FO_TP_REPLICATED, FO_RECOMPUTE_SELECTIVE, 8 },
		{ FO_TP_REPLICATED, FO_RECOMPUTE_FULL, 8 + 2 },
		{ FO_TP_SEQUENCE, 0, 8 },
		{ FO_TP_SEQUENCE, FO_RECOMPUTE_SELECTIVE, 8 + 2 },
		{ FO_TP_SEQUENCE, FO_RECOMPUTE_FULL, 8 + 2 + 1 },
	};
	const struct fo_model m = step_model(LAYERS, HIDDEN, 8, 8, 128, VOCAB, false);
	const double stream = 2.0 * SEQ * HIDDEN * 2; /* rows, bytes of bf16 */
	for (int tp = 2; tp <= 8; tp *= 2)
		for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
			struct fo_lowering low = lowering_of(tp, row[i].how, row[i].recompute);
			low.pass.fuse_loss = i % 2 ? 8 : 0; /* chunks change nothing */
			const double gather = stream * (tp - 1) / tp;
			struct step_built b;
			step_build(&b, &m, &low);
			assert_true(received(&b.p, FO_UNIT_LAYER) == LAYERS * MICRO * row[i].gathers * gather);
			const double tokens = 2.0 * SEQ, numbers = 2 * 3 * tokens * 4 * (tp - 1) / tp;
			assert_true(received(&b.p, FO_UNIT_HEAD) == MICRO * (2 * gather + numbers));
			assert_true(received(&b.p, FO_UNIT_EMBED) == MICRO * 2 * gather);
			step_built_free(&b);
		}
}

/* Once a step: gradients of what each rank has whole and makes a term of. */
static void test_sums(void **state)
{
	(void)state;
	enum { TP = 4 };
	const struct fo_model m = step_model(LAYERS, HIDDEN, 8, 8, 128, VOCAB, false);
	for (int how = FO_TP_REPLICATED; how < FO_TP_COUNT; how++) {
		const struct fo_lowering low = lowering_of(TP, how, 0);
		const double norms = how == FO_TP_SEQUENCE ? (2 * LAYERS + 1) * HIDDEN : 0, each = 2.0 * (TP - 1) / TP;
		struct step_built b;
		double bytes = 0;
		step_build(&b, &m, &low);
		for (int s = 0; s < b.p.nslot; s++) {
			const struct fo_block *k = &b.p.block[b.p.slot[s].block];
			for (int i = 0; i < k->n; i++)
				if (k->op[i].group == FO_GROUP_ALL)
					bytes += fo_op_cost(&b.p, &k->op[i], -1).wire;
		}
		assert_true(bytes == 4 * each * norms);
		step_built_free(&b);
	}
}

/* What t ranks have together is what one has: weights of the layers, heads, columns, words; norms are on each. Their
 * FLOP are the closed formula's. */
static void test_divided(void **state)
{
	(void)state;
	const struct fo_model m = step_model(LAYERS, HIDDEN, 8, 4, 128, VOCAB, false);
	const double norms = (2 * LAYERS + 1) * HIDDEN, divided = (double)fo_model_params(&m).total - norms;
	const double flop = fo_model_flop_per_token(&m, SEQ).mfu * 2 * SEQ * MICRO;
	double table = 4.0 * SEQ * (HIDDEN / 8);
	for (int tp = 2; tp <= 4; tp *= 2)
		for (int how = FO_TP_REPLICATED; how < FO_TP_COUNT; how++) {
			struct fo_lowering low = lowering_of(tp, how, 0);
			struct step_built b;
			struct fo_pass_ranks all;
			low.precision = FO_PRECISION_F32;
			step_build(&b, &m, &low);
			assert_true((double)b.u.persistent_bytes ==
				    3 * 4 * (divided / tp + norms) + table); /* weights and two moments */
			assert_true(fabs(b.cost.model * tp / flop - 1) < 1e-12);
			must(fo_pass_build_ranks(&all, &b.p));
			assert_int_equal(all.n, 1); /* one role */
			fo_pass_ranks_fini(&all);
			step_built_free(&b);
		}
}

/* Words that cannot be shared evenly: ranks have all of them between them, and no others. */
static void test_words(void **state)
{
	(void)state;
	enum { WORDS = 509 };
	const struct fo_model m = step_model(LAYERS, HIDDEN, 8, 8, 128, WORDS, false);
	for (int tp = 2; tp <= 8; tp *= 2) {
		struct fo_lowering low = lowering_of(tp, FO_TP_SEQUENCE, 0);
		struct fo_pass_ranks all;
		struct step_built b;
		double flop = 0;
		int64_t next = 0;
		low.pass.fuse_loss = 8;
		for (int r = 0; r < tp; r++) {
			low.mesh.rank = r;
			step_build(&b, &m, &low);
			const int wte = fo_buffer_find(&b.p, "wte"), logits = fo_buffer_find(&b.p, "logits");
			for (int q = 0; q < b.p.nparam; q++) {
				if (b.p.param[q].weight != wte)
					continue;
				assert_int_equal(b.p.param[q].global_r0, next);
				next += b.p.param[q].nr;
				assert_int_equal(b.p.buf[wte].rows, b.p.param[q].nr);
				assert_int_equal(b.p.buf[logits].cols, b.p.param[q].nr);
				assert_int_equal(b.p.buf[logits].rows, 8);
			}
			flop += b.cost.model;
			if (r == 0) {
				must(fo_pass_build_ranks(&all, &b.p));
				fo_pass_ranks_fini(&all);
			}
			step_built_free(&b);
		}
		assert_int_equal(next, WORDS);
		assert_true(fabs(flop / (fo_model_flop_per_token(&m, SEQ).mfu * 2 * SEQ * MICRO) - 1) < 1e-12);
	}
}

/* Fewer key and value heads than ranks: neighbours have the same one, and its gradients are added up over them once a
 * step. */
static void test_kv(void **state)
{
	(void)state;
	enum { HEADS = 8, DIM = HIDDEN / HEADS };
	for (int kv = 1; kv <= 4; kv *= 2)
		for (int how = FO_TP_REPLICATED; how < FO_TP_COUNT; how++) {
			const struct fo_model m = step_model(LAYERS, HIDDEN, HEADS, kv, 128, VOCAB, false);
			const double head = 2.0 * LAYERS * DIM * HIDDEN, norms = (2 * LAYERS + 1) * HIDDEN,
				     divided = (double)fo_model_params(&m).total - norms - kv * head;
			const int copies = HEADS / kv;
			struct fo_lowering low = lowering_of(HEADS, how, 0);
			struct fo_pass_ranks all;
			struct step_built b;
			double bytes = 0;
			low.precision = FO_PRECISION_F32;
			low.pass.merge_qkv = 1;
			step_build(&b, &m, &low);
			assert_int_equal(fo_mesh_kv(&b.p.run.mesh), copies);
			assert_true((double)b.u.persistent_bytes ==
				    3 * 4 * (divided / HEADS + norms + head) + 4.0 * SEQ * DIM);
			for (int s = 0; s < b.p.nslot; s++) {
				const struct fo_block *k = &b.p.block[b.p.slot[s].block];
				for (int i = 0; i < k->n; i++)
					if (k->op[i].group == FO_GROUP_KV)
						bytes += fo_op_cost(&b.p, &k->op[i], -1).wire;
			}
			assert_true(bytes == 4 * head * 2 * (copies - 1) / copies);
			assert_true(
				fabs(b.cost.model * HEADS / (fo_model_flop_per_token(&m, SEQ).mfu * 2 * SEQ * MICRO) -
				     1) < 1e-12);
			must(fo_pass_build_ranks(&all, &b.p));
			fo_pass_ranks_fini(&all);
			step_built_free(&b);
		}
}

/* Sequence parallel keeps a rank's own tokens of what the other way keeps of all. */
static void test_kept(void **state)
{
	(void)state;
	const struct fo_model m = step_model(8, HIDDEN, 8, 8, 128, VOCAB, false);
	int64_t arena[FO_TP_COUNT] = { 0 };
	for (int how = FO_TP_REPLICATED; how < FO_TP_COUNT; how++) {
		const struct fo_lowering low = lowering_of(8, how, FO_RECOMPUTE_SELECTIVE);
		struct step_built b;
		step_build(&b, &m, &low);
		arena[how] = b.u.arena_bytes;
		step_built_free(&b);
	}
	/* At least the two stream tensors that each of the layers keeps, of the other 7/8 of the tokens. */
	const int64_t saved = 8 * 2 * 2 * SEQ * HIDDEN * 2 * 7 / 8;
	assert_true(arena[FO_TP_REPLICATED] - arena[FO_TP_SEQUENCE] >= saved);
}

static bool moves_tokens(const struct fo_op *o)
{
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	return o->lane == FO_LANE_TP && (wire == FO_WIRE_ALL_GATHER || wire == FO_WIRE_REDUCE_SCATTER);
}

static int calls_of(const struct step_built *b)
{
	int n = 0;
	for (int i = 0; i < b->u.n; i++)
		n += moves_tokens(fo_instance_op(&b->p, &b->u, i));
	return n;
}

/* Pieces: as many bytes in k times as many calls on lane tp, FLOP and the rest as before, and all ranks are one role
 * that never waits for ever. */
static void test_pieces(void **state)
{
	(void)state;
	const struct fo_model m = step_model(LAYERS, HIDDEN, 8, 8, 128, VOCAB, false);
	static const int64_t recompute[] = { 0, FO_RECOMPUTE_SELECTIVE, FO_RECOMPUTE_FULL };
	for (int tp = 2; tp <= 4; tp *= 2)
		for (int i = 0; i < 3; i++) {
			struct fo_lowering low = lowering_of(tp, FO_TP_SEQUENCE, recompute[i]);
			struct step_built plain;
			step_build(&plain, &m, &low);
			const int calls = calls_of(&plain);
			for (int pieces = 2; pieces <= 8; pieces *= 2) {
				struct step_built b;
				struct fo_pass_ranks all;
				low.pass.tp_async = pieces;
				step_build(&b, &m, &low);
				assert_int_equal(calls_of(&b), pieces * calls);
				assert_true(b.cost.wire == plain.cost.wire && b.cost.exec == plain.cost.exec &&
					    b.cost.model == plain.cost.model);
				assert_int_equal(b.u.persistent_bytes, plain.u.persistent_bytes);
				must(fo_pass_build_ranks(&all, &b.p));
				assert_int_equal(all.n, 1);
				fo_pass_ranks_fini(&all);
				step_built_free(&b);
			}
			low.pass.tp_async = 0;
			step_built_free(&plain);
		}
}

/* Behind the first piece of what is gathered comes a matmul of that piece, before the last piece has come; backward a
 * gradient of weights stands between the last piece of a sum and what reads the sum. */
static void test_order(void **state)
{
	(void)state;
	const struct fo_model m = step_model(LAYERS, HIDDEN, 8, 8, 128, VOCAB, false);
	struct fo_lowering low = lowering_of(2, FO_TP_SEQUENCE, 0);
	struct step_built b;
	low.pass.tp_async = 4;
	step_build(&b, &m, &low);
	for (int k = 0; k < b.p.nblock; k++) {
		const struct fo_block *v = &b.p.block[k];
		int gathers = 0, matmuls = 0, early = 0, sums = 0, behind = 0;
		for (int i = 0; v->unit == FO_UNIT_LAYER && i < v->n; i++) {
			const enum fo_wire wire = fo_op_info(v->op[i].kind)->wire;
			matmuls += fo_op_family(v->op[i].kind) == FO_OPS_MATMUL;
			if (wire == FO_WIRE_ALL_GATHER)
				early += gathers++ > 0 && matmuls > 0;
			sums += wire == FO_WIRE_REDUCE_SCATTER;
			behind += v->op[i].phase == FO_WGRAD && fo_op_family(v->op[i].kind) == FO_OPS_MATMUL && sums;
		}
		assert_true(!gathers || early > 0);
		assert_true(v->role != FO_ROLE_BACKWARD || !gathers || behind > 0);
	}
	step_built_free(&b);
}

static void refused(const struct fo_model *m, struct fo_lowering low, const char *why)
{
	struct fo_program p;
	struct fo_err e;
	assert_int_equal(fo_pass_build(&p, m, &low), FO_EARG);
	fo_err_save(&e, FO_EARG);
	if (!strstr(e.text, why))
		fail_msg("'%s' does not say '%s'", e.text, why);
	fo_err_clear();
}

static void test_refused(void **state)
{
	(void)state;
	const struct fo_model m = step_model(LAYERS, 96, 12, 4, 128, VOCAB, false);
	struct fo_lowering low = lowering_of(3, FO_TP_SEQUENCE, 0);
	refused(&m, low, "3 ranks of a tp group cannot share 4 key and value heads evenly");
	low.mesh.tp = 8;
	refused(&m, low, "8 ranks of a tp group cannot share 12 attention heads evenly");
	low.mesh.tp = 4;
	low.seq = 7;
	low.rows = 1;
	refused(&m, low, "4 ranks of a tp group cannot share 7 tokens of a micro-batch evenly");
	const struct fo_model few = step_model(LAYERS, 96, 12, 4, 128, 3, false);
	low = lowering_of(4, FO_TP_SEQUENCE, 0);
	refused(&few, low, "4 ranks of a tp group cannot share 3 words of the vocabulary");
	low.mode = FO_MODE_LOGITS;
	low.micro_batches = 1;
	refused(&m, low, "they do not write text");
	low = lowering_of(4, FO_TP_SEQUENCE, 0);
	low.pass.tp_async = 3;
	refused(&m, low, "8 tokens of a rank cannot be 3 equal pieces");
	low.pass.tp_async = 2;
	low.pass.tp = FO_TP_REPLICATED;
	refused(&m, low, "only the gathers and scatters of sequence parallel are done in pieces");
	low.pass.tp_async = FO_TP_ASYNC_MOST + 1;
	refused(&m, low, "tp-async is a number of pieces up to 64, not 65");
	low = lowering_of(4, FO_TP_SEQUENCE, 0);
	low.pass.tp = FO_TP_COUNT;
	refused(&m, low, "tp is 1 (replicated) or 2 (sequence)");
	/* Every number of ranks is legal or names one below it that is. */
	for (int tp = 2; tp <= 16; tp++) {
		if (fo_mesh_tp_legal(&m, 32, tp) == FO_OK)
			assert_true(tp == 2 || tp == 4);
		else
			assert_true(tp != 2 && tp != 4);
		fo_err_clear();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_wire),    cmocka_unit_test(test_sums),
					    cmocka_unit_test(test_divided), cmocka_unit_test(test_words),
					    cmocka_unit_test(test_kv),      cmocka_unit_test(test_kept),
					    cmocka_unit_test(test_pieces),  cmocka_unit_test(test_order),
					    cmocka_unit_test(test_refused) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
