/* Passes keep the mathematics: random small models x random legal subsets of passes x precisions against the plain
 * program.
 *
 * In fp64 nothing but the order of sums may differ; in fp32 and bf16 the error against the plain fp64 program is at
 * most twice the plain program's own in that precision. Compared are the loss of each of three steps, the global
 * gradient norm, every gradient (through the first moment after the first step, which is (1 - beta1) scale gradient),
 * and every weight and moment after three steps. */
#include "base/clock.h"
#include "pass/pass.h"
#include "support/choices.h"
#include "support/outcome.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- three steps of training ---- */

enum { STEPS = OUTCOME_STEPS };

static void train(struct outcome *out, const struct fo_model *m, const struct fo_lowering *low,
		  const struct step_batch *b, enum fo_isa isa)
{
	struct step_rig r;
	struct fo_exec_options o = { .isa = isa, .threads = 2, .timeline_steps = 1 };
	*out = (struct outcome){ 0 };
	step_rig_lower(&r, m, low, b, &o);
	r.hyper[FO_HYPER_CLIP] = 0.5; /* below the norm of a fresh model: clipping takes part */
	r.hyper[FO_HYPER_EPS] = 1e-4; /* a step does not blow rounding up to the size of a gradient */
	for (int s = 0; s < STEPS; s++) {
		step_rig_at(&r, s + 1);
		must(fo_exec_step(r.exec, s));
		outcome_step(out, &r, s);
	}
	outcome_end(out, &r);
	step_rig_free(&r);
}

/* attention: of the plain program in bf16. The others have flash. */
static void check(const struct fo_model *m, const struct step_batch *b, struct fo_passes passes, int64_t attention,
		  enum fo_isa isa)
{
	static struct outcome truth, plain, got;
	char label[512];
	struct fo_lowering low = step_lowering(b, FO_PRECISION_F64, FO_MODE_TRAIN);
	struct fo_passes none = { .previous_norm = passes.previous_norm }; /* other mathematics, not a pass */
	low.pass = none;
	train(&truth, m, &low, b, FO_ISA_REF);
	for (int precision = 0; precision < FO_PRECISION_COUNT; precision++) {
		low.precision = (enum fo_numerics)precision;
		none.attention = precision == FO_PRECISION_BF16 ? attention : FO_ATTENTION_FLASH;
		low.pass = none;
		train(&plain, m, &low, b, isa);
		low.pass = passes;
		choices_describe(label, sizeof label, m, &low);
		train(&got, m, &low, b, isa);
		/* fp64: sums in another order. Narrower: twice the plain program's error; eps is where chance decides
		 * it. */
		outcome_compare(label, &got, &plain, &truth, 2,
				precision == FO_PRECISION_F64   ? 1e-11
				: precision == FO_PRECISION_F32 ? 2e-6
								: 2e-2);
		outcome_free(&got);
		outcome_free(&plain);
	}
	outcome_free(&truth);
}

static void test_each_alone(void **state)
{
	(void)state;
	enum fo_isa isa;
	must(fo_isa_choose(&isa));
	for (int i = 0; i < CHOICES_PASSES; i++) {
		struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
		struct fo_passes p = { 0 };
		struct step_batch b;
		*(int64_t *)((char *)&p + choices_pass[i].field) = choices_pass[i].value[0];
		p.previous_norm = p.optimizer_in_backward;
		step_batch_random(&b, 16, 2, 2, m.vocab, 2, 7);
		check(&m, &b, p, FO_ATTENTION_FLASH, isa);
		check(&m, &b, p, FO_ATTENTION_FLASH, FO_ISA_REF);
		step_batch_free(&b);
	}
}

/* Eager attention rounds probabilities and the gradients of scores to bf16 where flash does not, which a bias of eight
 * numbers can feel: there a subset with it is held to the program with it alone. */
static void test_random_subsets(void **state)
{
	(void)state;
	enum fo_isa isa;
	must(fo_isa_choose(&isa));
	for (int round = 0; round < 24; round++) {
		struct fo_model m = choices_model();
		struct step_batch b;
		step_batch_random(&b, 6 + choices_draw(14), 1 + choices_draw(2), 1 + choices_draw(3), m.vocab,
				  (int)choices_draw(4), choices_seed + choices_draws);
		step_batch_window(&b, m.sliding_window);
		struct fo_passes passes = choices_passes(&m);
		check(&m, &b, passes, passes.attention, isa);
		step_batch_free(&b);
	}
}

/* The same choice in evaluation, logits and decoding gives programs that verify and share the weights' buffers. */
static void test_other_modes(void **state)
{
	(void)state;
	for (int round = 0; round < 24; round++) {
		struct fo_model m = choices_model();
		struct fo_program p, q;
		struct fo_lowering low = { .seq = 8, .rows = 1, .micro_batches = 1, .pass = choices_passes(&m) };
		must(fo_pass_build(&p, &m, &low));
		for (int mode = FO_MODE_EVAL; mode <= FO_MODE_DECODE; mode++) {
			low.mode = (enum fo_mode)mode;
			low.context = mode == FO_MODE_DECODE ? 16 : 0;
			must(fo_pass_build(&q, &m, &low));
			for (int i = 0; i < q.nbuf; i++) {
				int same = fo_buffer_find(&p, q.buf[i].name);
				if (q.buf[i].home != FO_HOME_PARAM)
					continue;
				assert_true(same >= 0);
				assert_int_equal(p.buf[same].rows, q.buf[i].rows);
				assert_int_equal(p.buf[same].cols, q.buf[i].cols);
				assert_int_equal(p.buf[same].dtype, q.buf[i].dtype);
			}
			fo_program_fini(&q);
		}
		fo_program_fini(&p);
	}
}

/* ---- promises about memory and work, on a real model ---- */

struct size {
	struct fo_cost cost;
	int64_t arena, persistent;
	int operations; /* instances per step */
};

static struct size size_of_run(struct fo_passes passes, int layers, bool tied, int seq, int micro_batches)
{
	struct fo_model m = step_model(layers, 768, 12, 12, 2048, 32000, tied);
	struct fo_lowering low = {
		.seq = seq, .rows = 1, .micro_batches = micro_batches, .precision = FO_PRECISION_BF16, .pass = passes
	};
	struct fo_program p;
	struct fo_unrolled u;
	must(fo_pass_build(&p, &m, &low));
	must(fo_unroll(&p, &u));
	fo_plan(&p, &u);
	struct size s = { fo_program_cost(&p, -1), u.arena_bytes, u.persistent_bytes, u.n };
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
	return s;
}

static struct size size_of_model(struct fo_passes passes, int layers, bool tied)
{
	return size_of_run(passes, layers, tied, 2048, 1);
}
static struct size size_of(struct fo_passes passes) { return size_of_model(passes, 12, false); }

static void test_merge_promises(void **state)
{
	(void)state;
	struct size plain = size_of((struct fo_passes){ 0 });
	struct size qkv = size_of((struct fo_passes){ .merge_qkv = 1 });
	struct size gate = size_of((struct fo_passes){ .merge_gate_up = 1 });
	const double token = 2048 * 768 * 2.0; /* bytes of one (T,D) tensor */
	const double rope = 2048 * (64 * 4 + 4.0), step = (FO_HYPER_COUNT + 2) * 8.0,
		     sum = 2 * 8.0; /* table and positions; hyper and scale; sumsq */
	/* qkv: the input is read once instead of three times in the product and in the weight gradient; its gradient is
	 * written once instead of written once and updated twice (an update reads and writes). gate-up: two instead of
	 * three. */
	assert_true(plain.cost.bytes - qkv.cost.bytes == 12 * (8 * token + 2 * rope + 2 * step + 2 * sum));
	assert_true(plain.cost.bytes - gate.cost.bytes == 12 * (4 * token + step + sum));
	assert_true(qkv.cost.model == plain.cost.model && qkv.cost.exec == plain.cost.exec);
	assert_true(gate.cost.model == plain.cost.model && gate.cost.exec == plain.cost.exec);
	assert_true(qkv.persistent == plain.persistent && gate.persistent == plain.persistent);
	assert_true(qkv.arena <= plain.arena && gate.arena <= plain.arena);
	/* Per layer: two products forward, two backward, two weight gradients, two rotations, two norms and steps each.
	 */
	assert_int_equal(plain.operations - qkv.operations, 12 * (2 + 2 + 2 + 1 + 1 + 2 + 2));
	assert_int_equal(plain.operations - gate.operations, 12 * (1 + 1 + 1 + 1 + 1));
}

/* Chunk after chunk uses the same bytes: logits shrink to one chunk's, and where the peak is at the head (one layer,
 * tied) it falls by just that. The head's weights are read, and their gradient is added to, once per chunk. */
static void test_fuse_loss_promises(void **state)
{
	(void)state;
	const double tokens = 2048, vocab = 32000, weight = vocab * 768;
	struct size plain = size_of_model((struct fo_passes){ 0 }, 1, true);
	for (int chunk = 256; chunk < 2048; chunk += 128) {
		struct size s = size_of_model((struct fo_passes){ .fuse_loss = chunk }, 1, true);
		double again = ceil(tokens / chunk) - 1;
		assert_int_equal(plain.arena - s.arena, (2048 - chunk) * 32000 * 2);
		assert_true(s.persistent == plain.persistent);
		assert_true(s.cost.model == plain.cost.model && s.cost.exec == plain.cost.exec);
		/* Forward and input gradient read bf16 weights, fp32 sums are read and written; hyper-parameters and
		 * the loss. */
		assert_true(s.cost.bytes - plain.cost.bytes ==
			    again * (2 * 2 * weight + 2 * 4 * weight + 8 * FO_HYPER_COUNT + 16));
		assert_int_equal(s.operations - plain.operations, 4 * (int)again);
	}
	/* Twelve layers, as `flatout train` runs them. */
	struct fo_passes usual = { .merge_qkv = 1, .merge_gate_up = 1 };
	int64_t deep = size_of(usual).arena;
	usual.fuse_loss = 512;
	assert_int_equal(deep - size_of(usual).arena, (2048 - 512) * 32000 * 2);
	struct size whole = size_of_model((struct fo_passes){ .fuse_loss = 2048 }, 1, true);
	assert_true(whole.arena == plain.arena && whole.operations == plain.operations);
}

/* What cannot be divided says so and leaves no program behind. */
static void test_fuse_loss_refuses(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 16, 2, 1, 24, 30, false);
	struct fo_lowering low = { .seq = 1 << 16, .rows = 1, .micro_batches = 1, .pass = { .fuse_loss = 1 } };
	struct fo_program p;
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "pass fuse-loss: 65536 tokens make 65536 chunks of 1"));
	low.pass.fuse_loss = 16;
	must(fo_pass_build(&p, &m, &low));
	/* A second time: the logits are in pieces. */
	assert_int_equal(fo_passes_apply(&p), FO_EARG);
	assert_non_null(strstr(fo_err_text(),
			       "pass fuse-loss: the loss cannot be computed by chunks: the program has more than one"));
	assert_int_equal(p.nblock, 0);
}

static int count_kind(const struct fo_program *p, int block, int kind)
{
	int n = 0;
	for (int i = 0; i < p->block[block].n; i++)
		n += p->block[block].op[i].kind == kind;
	return n;
}

/* Of each layer T x H x S probabilities wait for backward, in the place of T x H log sums; backward reads them instead
 * of these and of its output, and no documents. Whole squares run, which is what rule mfu counts; recomputation keeps
 * one layer's at a time. */
static void test_attention_promises(void **state)
{
	(void)state;
	const double square = 2048.0 * 12 * 2048 * 64,
		     seen = 2048.0 * 2049 / 2 * 12 * 64; /* multiply-adds of a layer's product */
	const int64_t prob = 2048LL * 12 * 2048 * 2, lse = 2048 * 12 * 4, token = 2048 * 768 * 2, doc = 2048 * 4;
	struct fo_passes passes = { .fuse_loss = 512 };
	struct size flash = size_of_model(passes, 12, true),
		    s; /* tied: the peak is at the head in every one of these */
	passes.attention = FO_ATTENTION_EAGER;
	s = size_of_model(passes, 12, true);
	assert_int_equal(s.arena - flash.arena, 12 * (prob - lse) - doc); /* nobody asks for documents any more */
	assert_true(s.persistent == flash.persistent && s.operations == flash.operations);
	assert_true(s.cost.model == flash.cost.model && s.cost.model_causal == flash.cost.model_causal);
	assert_true(s.cost.exec - flash.cost.exec == 12 * 2 * (6 * square - 7 * seen));
	assert_true(s.cost.bytes - flash.cost.bytes == 12.0 * (2 * (double)(prob - lse) - (double)(token + doc)));
	/* Full recomputation: the products of forward run again, and no layer's probabilities wait. */
	struct fo_passes full = passes;
	full.recompute = FO_RECOMPUTE_FULL;
	struct size again = size_of_model(full, 12, true);
	assert_true(again.cost.model == s.cost.model && again.arena < s.arena - 11 * (prob - lse));
	full.attention = FO_ATTENTION_FLASH;
	flash = size_of_model(full, 12, true);
	assert_true(again.cost.exec - flash.cost.exec == 12 * 2 * (8 * square - 9 * seen));
	assert_true(again.arena - flash.arena <= prob);
}

/* What cannot be addressed is refused by name; a text's cached attention stays as it is. */
static void test_attention_refuses(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 4096, 256, 1, 24, 30, false);
	struct fo_lowering low = {
		.seq = 1 << 23, .rows = 1, .micro_batches = 1, .pass = { .attention = FO_ATTENTION_EAGER }
	};
	struct fo_program p;
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	assert_non_null(strstr(fo_err_text(),
			       "pass attention: probabilities of 256 heads x 8388608 tokens are 2147483648 columns"));
	low.seq = 8;
	low.pass.attention = FO_ATTENTION_COUNT;
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "pass attention: attention is 0 (flash) or 1 (eager), not 2"));
	low.pass.attention = FO_ATTENTION_EAGER;
	for (int mode = FO_MODE_TRAIN; mode <= FO_MODE_DECODE; mode++) {
		low.mode = (enum fo_mode)mode;
		low.context = mode == FO_MODE_DECODE ? 16 : 0;
		must(fo_pass_build(&p, &m, &low));
		int layer = fo_block_find(&p, "layer.f");
		assert_int_equal(count_kind(&p, layer, FO_OP_attention), 0);
		assert_int_equal(count_kind(&p, layer, FO_OP_attention_eager), mode != FO_MODE_DECODE);
		assert_int_equal(count_kind(&p, layer, FO_OP_attention_cached), mode == FO_MODE_DECODE);
		assert_true(fo_buffer_find(&p, "lse") < 0 &&
			    (fo_buffer_find(&p, "prob") >= 0) == (mode != FO_MODE_DECODE));
		fo_program_fini(&p);
	}
}

/* Neither the number of threads nor recomputation changes a bit: heads go to threads one by one or each to all of them.
 */
static void test_attention_bits(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	step_batch_random(&b, 21, 3, 2, m.vocab, 3, 9);
	for (int precision = 0; precision < FO_PRECISION_COUNT; precision++) {
		uint64_t hash[5];
		for (int k = 0; k < 5; k++) {
			struct step_rig r;
			struct fo_exec_options o = { .threads = k == 0 ? 1 : k == 2 ? 13 : 2, .timeline_steps = 1 };
			struct fo_lowering low = step_lowering(&b, (enum fo_numerics)precision, FO_MODE_TRAIN);
			must(fo_isa_choose(&o.isa));
			low.pass.attention = FO_ATTENTION_EAGER;
			low.pass.recompute = k < 3 ? 0 : k == 3 ? FO_RECOMPUTE_ATTENTION : FO_RECOMPUTE_FULL;
			step_rig_lower(&r, &m, &low, &b, &o);
			for (int s = 0; s < 2; s++) {
				step_rig_at(&r, s + 1);
				must(fo_exec_step(r.exec, s));
			}
			hash[k] = step_rig_hash(&r);
			step_rig_free(&r);
			assert_true(hash[k] == hash[0]);
		}
	}
	step_batch_free(&b);
}

static void test_fuse_promises(void **state)
{
	(void)state;
	struct size plain = size_of((struct fo_passes){ 0 });
	struct size fused = size_of((struct fo_passes){ .fuse_elementwise = 1 });
	const double token = 2048 * 768 * 2.0, rstd = 2048 * 4.0;
	/* Forward the sum of each of 24 additions is not read again by its norm; backward x, rstd and the norm's
	 * gradient are read once instead of twice by 25 norms. */
	assert_true(plain.cost.bytes - fused.cost.bytes == 24 * token + 25 * (2 * token + rstd));
	assert_true(fused.cost.model == plain.cost.model && fused.cost.exec == plain.cost.exec);
	assert_true(fused.persistent == plain.persistent && fused.arena <= plain.arena);
	assert_int_equal(plain.operations - fused.operations, 24 + 25);
}

/* dq and dk are not read and written again; positions and the table are read once instead of twice, or, merged, as
 * often. */
static void test_fuse_rope_promises(void **state)
{
	(void)state;
	const double token = 2048 * 768 * 2.0, rope = 2048 * (64 * 4 + 4.0);
	for (int merged = 0; merged < 2; merged++) {
		struct size plain = size_of((struct fo_passes){ .merge_qkv = merged });
		struct size fused = size_of((struct fo_passes){ .merge_qkv = merged, .fuse_rope = 1 });
		assert_true(plain.cost.bytes - fused.cost.bytes == 12 * (4 * token + (merged ? 0 : rope)));
		assert_true(fused.cost.model == plain.cost.model && fused.cost.exec == plain.cost.exec);
		assert_true(fused.persistent == plain.persistent && fused.arena <= plain.arena);
		assert_int_equal(plain.operations - fused.operations, merged ? 12 : 24);
	}
}

/* The reference kernels give the bits of the two operations, norms of heads behind them and biases or not. */
static void test_fuse_rope_bits(void **state)
{
	static struct outcome plain, fused;
	(void)state;
	for (int i = 0; i < 8; i++) {
		struct fo_model m = choices_model();
		struct step_batch b;
		step_batch_random(&b, 12, 2, 1, m.vocab, STEPS, 11);
		struct fo_lowering low = step_lowering(&b, (enum fo_numerics)(i % FO_PRECISION_COUNT), FO_MODE_TRAIN);
		low.pass.merge_qkv = i / 4;
		train(&plain, &m, &low, &b, FO_ISA_REF);
		low.pass.fuse_rope = 1;
		train(&fused, &m, &low, &b, FO_ISA_REF);
		assert_int_equal(plain.n, fused.n);
		for (int k = 0; k < plain.n; k++)
			assert_memory_equal(plain.item[k].v, fused.item[k].v, (size_t)plain.item[k].n * sizeof(double));
		outcome_free(&plain);
		outcome_free(&fused);
		step_batch_free(&b);
	}
}

/* Across layers an addition moves where the next slot norms its sum in every case, and stays where it does not. */
static void test_fuse_across(void **state)
{
	(void)state;
	struct fo_model m = step_model(3, 32, 4, 2, 40, 50, false);
	struct fo_lowering low = { .seq = 8, .rows = 1, .micro_batches = 2, .pass = { .fuse_elementwise = 1 } };
	struct fo_program p;
	for (int mode = FO_MODE_TRAIN; mode <= FO_MODE_DECODE; mode++) {
		bool decode = mode == FO_MODE_DECODE;
		low.mode = (enum fo_mode)mode;
		low.context = decode ? 16 : 0;
		low.micro_batches = decode ? 1 : 2;
		must(fo_pass_build(&p, &m, &low));
		int layer = fo_block_find(&p, "layer.f"), first = fo_block_find(&p, "layer.f.first"), slots = 0;
		assert_int_equal(first >= 0, !decode);
		assert_int_equal(count_kind(&p, layer, FO_OP_add), decode);
		assert_int_equal(count_kind(&p, layer, FO_OP_add_rmsnorm), decode ? 1 : 2);
		assert_int_equal(count_kind(&p, fo_block_find(&p, "head.f"), FO_OP_add_rmsnorm), !decode);
		for (int s = 0; s < p.nslot; s++)
			slots += p.slot[s].block == first && p.slot[s].layer == 0;
		assert_int_equal(slots, decode ? 0 : 2);
		if (!decode) {
			assert_int_equal(count_kind(&p, first, FO_OP_add), 0);
			assert_int_equal(count_kind(&p, first, FO_OP_rmsnorm), 1);
		}
		fo_program_fini(&p);
	}
	/* One layer out of three does not end with the addition: nobody can take it from there, nor from the block of
	 * the others unless all of its slots are followed by one who does. */
	low.mode = FO_MODE_TRAIN, low.context = 0, low.micro_batches = 2;
	low.pass.fuse_elementwise = 0;
	must(fo_pass_build(&p, &m, &low));
	int layer = fo_block_find(&p, "layer.f"), odd = fo_block_clone(&p, layer, "odd"), x = fo_buffer_find(&p, "x");
	struct fo_op *o = fo_op_insert(&p, odd, p.block[odd].n, FO_OP_add, FO_FORWARD, FO_LANE_COMPUTE);
	int down = fo_buffer_find(&p, "down");
	fo_op_arg(&p, o, x, 1, FO_READ), fo_op_arg(&p, o, x, 1, FO_READ), fo_op_arg(&p, o, down, 0, FO_PART);
	for (int s = 0; s < p.nslot; s++)
		if (p.slot[s].block == layer && p.slot[s].layer == 1)
			p.slot[s].block = (int16_t)odd;
	p.run.pass.fuse_elementwise = 1;
	must(fo_passes_apply(&p));
	assert_int_equal(count_kind(&p, odd, FO_OP_add), 2);
	assert_int_equal(count_kind(&p, odd, FO_OP_add_rmsnorm), 2);
	fo_program_fini(&p);
}

/* Forward alone. Additions and norms fused give the very bits of the plain pair, in every precision: what recomputation
 * makes with the plain operations in backward is then what forward had. */
static void test_fuse_bits(void **state)
{
	(void)state;
	struct fo_model m = step_model(3, 96, 4, 2, 40, 50, false);
	struct step_batch b;
	struct fo_exec_options o = { .threads = 2, .timeline_steps = 1 };
	must(fo_isa_choose(&o.isa));
	step_batch_random(&b, 12, 2, 1, m.vocab, 2, 11);
	for (int precision = 0; precision < FO_PRECISION_COUNT; precision++) {
		struct step_rig plain, fused;
		struct fo_lowering low = step_lowering(&b, (enum fo_numerics)precision, FO_MODE_LOGITS);
		step_rig_lower(&plain, &m, &low, &b, &o);
		low.pass.fuse_elementwise = 1;
		step_rig_lower(&fused, &m, &low, &b, &o);
		must(fo_exec_step(plain.exec, 0));
		must(fo_exec_step(fused.exec, 0));
		assert_memory_equal(plain.logits, fused.logits,
				    (size_t)(b.rows * b.seq * m.vocab) * sizeof *plain.logits);
		step_rig_free(&plain);
		step_rig_free(&fused);
	}
	step_batch_free(&b);
}

/* Forward alone, in fp64: what the head sees is the same with everything on. */
static void test_logits(void **state)
{
	(void)state;
	struct fo_model m = step_model(3, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	struct step_rig plain, fused;
	struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 2, .timeline_steps = 1 };
	step_batch_random(&b, 12, 2, 2, m.vocab, 2, 11);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_F64, FO_MODE_LOGITS);
	step_rig_lower(&plain, &m, &low, &b, &o);
	for (int i = 0; i < CHOICES_PASSES; i++)
		*(int64_t *)((char *)&low.pass + choices_pass[i].field) = choices_pass[i].value[0];
	step_rig_lower(&fused, &m, &low, &b, &o);
	must(fo_exec_step(plain.exec, 0));
	must(fo_exec_step(fused.exec, 0));
	for (int64_t i = 0; i < b.micro_batches * b.rows * b.seq * m.vocab; i++)
		assert_true(fabs(plain.logits[i] - fused.logits[i]) <= 1e-12);
	step_rig_free(&plain);
	step_rig_free(&fused);
	step_batch_free(&b);
}

/* Bit for bit what one operation per tensor gives; of a Llama's layer one operation per kind of tensor is left, no byte
 * moves twice, and the step's numbers are read once. */
static void test_fused_optimizer_promises(void **state)
{
	(void)state;
	enum fo_isa isa;
	must(fo_isa_choose(&isa));
	for (int k = 0; k < 12; k++) {
		struct fo_model m = choices_model();
		struct step_batch b;
		uint64_t hash[2];
		step_batch_random(&b, 8, 1, 2, m.vocab, 2, 3);
		struct fo_lowering low = step_lowering(&b, (enum fo_numerics)(k % 3), FO_MODE_TRAIN);
		for (int fused = 0; fused < 2; fused++) {
			struct step_rig r;
			struct fo_exec_options o = { .isa = k % 2 ? isa : FO_ISA_REF,
						     .threads = 2,
						     .timeline_steps = 1 };
			low.pass.fused_optimizer = fused;
			step_rig_lower(&r, &m, &low, &b, &o);
			for (int s = 0; s < 3; s++) {
				step_rig_at(&r, s + 1);
				must(fo_exec_step(r.exec, s));
			}
			hash[fused] = step_rig_hash(&r);
			step_rig_free(&r);
		}
		assert_true(hash[0] == hash[1]);
		step_batch_free(&b);
	}
	struct fo_passes usual = { .merge_qkv = 1, .merge_gate_up = 1 };
	struct size plain = size_of(usual), s;
	usual.fused_optimizer = 1;
	s = size_of(usual);
	/* Per layer 4 matrices and 2 norms: two steps and one sum of squares are left; in the head one sum of two. */
	assert_int_equal(plain.operations - s.operations, 12 * (4 + 5) + 1);
	assert_true(plain.cost.bytes - s.cost.bytes == 12 * (4 * (8 * FO_HYPER_COUNT + 16) + 5 * 16) + 16);
	assert_true(s.cost.model == plain.cost.model && s.arena == plain.arena && s.persistent == plain.persistent);
}

/* Of one micro-batch one layer's gradients live at a time, beside the head's or the embedding's; of several all of
 * them, until the last one's backward. */
static void test_optimizer_in_backward_promises(void **state)
{
	(void)state;
	struct fo_passes passes = { .merge_qkv = 1, .merge_gate_up = 1, .previous_norm = 1 };
	const int64_t table = 32000 * 768 * 4, layer = (4 * 768 * 768 + 3 * 768 * 2048 + 2 * 768) * 4;
	for (int micro_batches = 1; micro_batches < 3; micro_batches++)
		for (int layers = 4; layers <= 12; layers += 8) {
			passes.optimizer_in_backward = 0;
			struct size plain = size_of_run(passes, layers, false, 64, micro_batches), s;
			passes.optimizer_in_backward = 1;
			s = size_of_run(passes, layers, false, 64, micro_batches);
			assert_true(s.cost.model == plain.cost.model && s.cost.exec == plain.cost.exec &&
				    s.persistent == plain.persistent);
			assert_int_equal(s.operations, plain.operations + 1);
			/* A row of 64 tokens: activations are less than a layer's gradients. */
			assert_true(plain.arena > 2 * table + layers * layer &&
				    plain.arena < 2 * table + (layers + 1) * layer);
			if (micro_batches > 1)
				assert_true(s.arena <= plain.arena);
			else
				assert_true(s.arena < table + 2 * layer);
		}
}

/* Exact clipping is refused, with what to do; other modes have no optimizer and the same weights. */
static void test_optimizer_in_backward_refuses(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 16, 2, 1, 24, 30, false);
	struct fo_lowering low = { .seq = 8, .rows = 1, .micro_batches = 1, .pass = { .optimizer_in_backward = 1 } };
	struct fo_program p;
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	assert_non_null(
		strstr(fo_err_text(), "pass optimizer-in-backward: clipping by the norm of all gradients needs"));
	low.pass.previous_norm = 1;
	must(fo_pass_build(&p, &m, &low));
	assert_int_equal(fo_passes_apply(&p), FO_EARG); /* what is moved already */
}

/* A loss that is refused leaves every weight as it was, though updates begin before the gradient norm is known; and the
 * norm that is logged is the step's own. */
static void test_optimizer_in_backward_steps(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	struct step_rig r;
	struct fo_exec_options o = { .threads = 2, .timeline_steps = 1 };
	must(fo_isa_choose(&o.isa));
	step_batch_random(&b, 16, 1, 3, m.vocab, 2, 5);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN);
	low.pass = (struct fo_passes){ .optimizer_in_backward = 1, .previous_norm = 1 };
	step_rig_lower(&r, &m, &low, &b, &o);
	step_rig_at(&r, 1);
	r.hyper[FO_HYPER_LAST_NORM] = 4;
	r.hyper[FO_HYPER_CLIP] = 2;
	uint64_t before = step_rig_hash(&r);
	must(fo_exec_step(r.exec, 0));
	uint64_t after = step_rig_hash(&r);
	double norm = r.scale[1], loss = r.loss[0];
	assert_true(after != before && norm > 0);
	assert_true(fabs(r.scale[0] - 0.5) < 1e-6); /* by the norm given, not by its own */
	r.hyper[FO_HYPER_LOSS_LIMIT] = loss / 2;
	must(fo_exec_step(r.exec, 1));
	assert_true(r.scale[0] == -1 && r.scale[1] > 0 && r.scale[1] != norm);
	assert_true(step_rig_hash(&r) == after);
	step_rig_free(&r);
	step_batch_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_alone),
		cmocka_unit_test(test_random_subsets),
		cmocka_unit_test(test_other_modes),
		cmocka_unit_test(test_merge_promises),
		cmocka_unit_test(test_fuse_loss_promises),
		cmocka_unit_test(test_fuse_loss_refuses),
		cmocka_unit_test(test_attention_promises),
		cmocka_unit_test(test_attention_refuses),
		cmocka_unit_test(test_attention_bits),
		cmocka_unit_test(test_fuse_promises),
		cmocka_unit_test(test_fuse_rope_promises),
		cmocka_unit_test(test_fuse_rope_bits),
		cmocka_unit_test(test_fuse_across),
		cmocka_unit_test(test_fuse_bits),
		cmocka_unit_test(test_logits),
		cmocka_unit_test(test_fused_optimizer_promises),
		cmocka_unit_test(test_optimizer_in_backward_promises),
		cmocka_unit_test(test_optimizer_in_backward_refuses),
		cmocka_unit_test(test_optimizer_in_backward_steps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
