/* fp8 in whole training steps: which operations the passes insert and what they move, gradients against the plain
 * program within what the formats' rounding allows, weights cast once per step to the same bits, histories, refused
 * steps, resuming. */
#include "base/clock.h"
#include "pass/pass.h"
#include "support/step.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum fo_isa best_isa(void)
{
	enum fo_isa isa;
	must(fo_isa_choose(&isa));
	return isa;
}

enum { HISTORY = 3 };
static struct fo_passes passes(int recipe, bool precompute, bool merges)
{
	return (struct fo_passes){ .merge_qkv = merges,
				   .merge_gate_up = merges,
				   .fp8 = recipe,
				   .fp8_history = recipe == FO_FP8_DELAYED ? HISTORY : 0,
				   .fp8_precompute = precompute };
}

/* The same with weight gradients of factors as they are, and layers that keep their precision. */
static struct fo_passes apart(struct fo_passes p, bool plain_wgrad, int64_t first, int64_t last)
{
	p.fp8_wgrad = plain_wgrad;
	p.fp8_first = first, p.fp8_last = last;
	return p;
}

static uint64_t seed = 8, draws;
static int64_t draw(int64_t n) { return (int64_t)(fo_rng_u64(seed, draws++) % (uint64_t)n); }

static struct fo_model random_model(void)
{
	int64_t kv = 1 + draw(2), heads = kv * (1 + draw(2)), dim = 8 * (1 + draw(2));
	struct fo_model m = step_model(1 + draw(3), heads * dim, heads, kv, 8 + draw(40), 30 + draw(40), draw(2));
	do { /* what some architecture has together */
		m.attention_bias = draw(2), m.output_bias = draw(2), m.mlp_bias = draw(2);
		m.qk_norm = draw(2);
	} while (fo_model_trainable(&m) != FO_OK);
	return m;
}

static void begin(struct step_rig *r, const struct fo_model *m, const struct step_batch *b, enum fo_numerics precision,
		  struct fo_passes p, enum fo_isa isa, double *mac)
{
	struct fo_exec_options o = { .isa = isa, .threads = 2, .timeline_steps = 1, .mac = mac, .poison = true };
	struct fo_lowering low = step_lowering(b, precision, FO_MODE_TRAIN);
	low.pass = p;
	step_rig_lower(r, m, &low, b, &o);
}

static void step(struct step_rig *r, int s)
{
	step_rig_at(r, s + 1);
	must(fo_exec_step(r->exec, s));
}

/* ---- programs ---- */

static void test_programs(void **state)
{
	(void)state;
	for (int round = 0; round < 12; round++) {
		struct fo_model m = random_model();
		for (int recipe = FO_FP8_CURRENT; recipe < FO_FP8_COUNT; recipe++)
			for (int precompute = 0; precompute < 2; precompute++) {
				struct fo_program p, q;
				struct fo_lowering low = { .seq = 8,
							   .rows = 2,
							   .micro_batches = 2,
							   .precision = draw(2) ? FO_PRECISION_BF16
										: FO_PRECISION_F32 };
				low.pass = passes(recipe, precompute, draw(2));
				bool plain_wgrad = (round + precompute) & 1;
				int64_t first = m.layers > 1 ? round / 2 % m.layers : 0,
					last = first + 1 < m.layers ? round / 4 % 2 : 0;
				low.pass = apart(low.pass, plain_wgrad, first, last);
				must(fo_pass_build(&p, &m, &low));
				/* Every product of a layer is one of fp8 factors, but where layers or weight gradients
				 * are apart; no other is. */
				for (int s = 0; s < p.nslot; s++) {
					const struct fo_block *b = &p.block[p.slot[s].block];
					bool fp8 = b->unit == FO_UNIT_LAYER && p.slot[s].layer >= first &&
						   p.slot[s].layer < m.layers - last;
					for (int i = 0; i < b->n; i++) {
						const struct fo_op *o = &b->op[i];
						bool wgrad = o->phase == FO_WGRAD &&
							     (plain_wgrad || recipe == FO_FP8_ROWWISE_HP);
						if (o->kind == FO_OP_matmul)
							assert_int_equal(o->n, fp8 && !wgrad ? 5 : 3);
						/* Nothing is cast for nobody. */
						assert_true(fp8 ||
							    (o->kind != FO_OP_fp8_cast && o->kind != FO_OP_amax &&
							     o->kind != FO_OP_fp8_push));
					}
				}
				/* A dump holds all of it. */
				struct fo_str text = { 0 }, again = { 0 };
				fo_program_dump(&p, &text);
				must(fo_program_parse(&q, text.data, text.len, "dump"));
				fo_program_dump(&q, &again);
				assert_string_equal(text.data, again.data);
				fo_str_fini(&text);
				fo_str_fini(&again);
				fo_program_fini(&q);
				fo_program_fini(&p);
				/* Evaluation and generation are what they are without fp8. */
				for (int mode = FO_MODE_EVAL; mode <= FO_MODE_DECODE; mode++) {
					low.mode = (enum fo_mode)mode;
					low.rows = low.micro_batches = 1;
					low.context = mode == FO_MODE_DECODE ? 16 : 0;
					struct fo_lowering plain = low;
					plain.pass.fp8 = plain.pass.fp8_history = plain.pass.fp8_precompute = 0;
					plain.pass = apart(plain.pass, false, 0, 0);
					must(fo_pass_build(&p, &m, &low));
					must(fo_pass_build(&q, &m, &plain));
					p.run.pass = q.run.pass;
					assert_true(fo_program_hash(&p) == fo_program_hash(&q));
					fo_program_fini(&p);
					fo_program_fini(&q);
				}
			}
	}
}

static void test_refusals(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 16, 2, 1, 24, 30, false);
	struct fo_program p;
	struct fo_lowering low = { .seq = 8, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_BF16 };
	low.pass = (struct fo_passes){ .fp8_precompute = 1 };
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "fp8-scale-precompute"));
	low.pass = (struct fo_passes){ .fp8 = FO_FP8_COUNT };
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	low.pass = (struct fo_passes){ .fp8 = FO_FP8_DELAYED };
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "history"));
	low.pass = apart(passes(FO_FP8_CURRENT, false, true), false, 1, 0);
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	assert_non_null(strstr(fo_err_text(),
			       "the first 1 and the last 0 of 1 layers keep their precision: none is left for fp8"));
	low.pass.fp8_first = -1;
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	low.pass = passes(FO_FP8_CURRENT, false, true);
	low.pass.fp8_wgrad = FO_FP8_WGRAD_COUNT;
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "factors of weight gradients"));
}

/* What programs from files could ask of kernels: fp8 numbers without scales, or where no kernel takes them. */
static void test_checks(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 16, 2, 1, 24, 30, false);
	struct fo_lowering low = { .seq = 8, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_BF16 };
	struct fo_program p;
	low.pass = passes(FO_FP8_DELAYED, false, true);
	must(fo_pass_build(&p, &m, &low));
	int changed = 0;
	for (int b = 0; b < p.nblock; b++)
		for (int i = 0; i < p.block[b].n; i++) {
			struct fo_op o = p.block[b].op[i];
			assert_null(fo_op_check(&p, &o));
			for (int k = 0; k < o.n;
			     k++) { /* any operand in fp8 where it was not, or wide where it was fp8 */
				uint8_t *type = &p.buf[o.arg[k].buf].dtype, keep = *type;
				if (o.kind == FO_OP_matmul && k < 2 && fo_dtype_fp8(keep))
					continue; /* wide factors with scales are the next check */
				*type = fo_dtype_fp8(keep) ? FO_F32 : FO_E4M3;
				assert_non_null(fo_op_check(&p, &o));
				*type = keep;
				changed++;
			}
			if (o.kind != FO_OP_matmul || o.n < 5)
				continue;
			o.n = 3;
			assert_non_null(fo_op_check(&p, &o));
			o.n = 4;
			assert_non_null(fo_op_check(&p, &o));
			o.n = 5;
			for (int k = 3; k < 5; k++) {
				struct fo_operand keep = o.arg[k];
				o.arg[k] = o.arg[k - 3];
				assert_non_null(fo_op_check(&p, &o));
				o.arg[k] = keep;
			}
			uint8_t *ta = &p.buf[o.arg[0].buf].dtype, *tb = &p.buf[o.arg[1].buf].dtype, a = *ta, c = *tb;
			*ta = *tb = FO_E5M2;
			assert_non_null(fo_op_check(&p, &o));
			*ta = FO_BF16, *tb = FO_E4M3;
			assert_non_null(fo_op_check(&p, &o));
			*ta = a, *tb = c;
		}
	assert_true(changed > 100);
	p.buf[p.param[0].weight].dtype =
		FO_E4M3; /* of an embedding alone: no operation may read it, no store could fill it */
	assert_int_equal(fo_program_verify(&p, "a change"), FO_EBUG);
	fo_program_fini(&p);
}

/* ---- numbers ---- */

struct gradients {
	struct grad {
		char name[96];
		int64_t n;
		double *v;
	} g[256];
	int n;
	double loss;
};

static fo_status keep_moment(void *ctx, const struct fo_store_tensor *t)
{
	struct gradients *o = ctx;
	if (t->which != 2) /* after the first step m is (1 - beta1) of the clipped gradient */
		return FO_OK;
	struct grad *g = &o->g[o->n++];
	*g = (struct grad){ .n = t->rows * t->cols };
	snprintf(g->name, sizeof g->name, "%s", t->name);
	g->v = malloc((size_t)g->n * sizeof *g->v);
	for (int64_t i = 0; i < g->n; i++)
		g->v[i] = step_get(t->data, t->dtype, i / t->cols * t->ld + i % t->cols);
	return FO_OK;
}

static void gradients_of(struct gradients *o, const struct fo_model *m, const struct step_batch *b,
			 enum fo_numerics precision, struct fo_passes p, enum fo_isa isa)
{
	struct step_rig r;
	*o = (struct gradients){ 0 };
	begin(&r, m, b, precision, p, isa, NULL);
	r.hyper[FO_HYPER_CLIP] = 0;
	step(&r, 0);
	o->loss = r.loss[0];
	must(fo_store_visit(r.store, &r.program, keep_moment, o));
	step_rig_free(&r);
}

static void gradients_free(struct gradients *o)
{
	for (int i = 0; i < o->n; i++)
		free(o->g[i].v);
}

/* A factor in E4M3 is off by at most 2^-4 of itself, in E5M2 by 2^-3. A weight gradient is a product of a gradient and
 * an activation: to first order 2^-3 + 2^-4 from its own factors (2 x 2^-4 rowwise), and as much as the products before
 * it have left in them: forward 2 x 2^-4 per product, backward 2^-3 + 2^-4. Errors of elements are independent, so over
 * a tensor they add in squares: with d products on the way, at most sqrt(d) of one. The way through a layer has 4
 * products forward and 4 backward. */
static double allowed(const struct fo_model *m, int recipe)
{
	double forward = 2 * 0x1p-4, backward = recipe >= FO_FP8_ROWWISE ? 2 * 0x1p-4 : 0x1p-3 + 0x1p-4;
	return sqrt((double)m->layers * 4 * (forward * forward + backward * backward));
}

/* Returns the mean of the tensors' errors. */
static double compare(const char *label, const struct gradients *got, const struct gradients *want, double bound,
		      double *worst)
{
	double all = 0, mean = 0;
	assert_int_equal(got->n, want->n);
	for (int i = 0; i < want->n; i++)
		for (int64_t k = 0; k < want->g[i].n; k++)
			all += want->g[i].v[k] * want->g[i].v[k];
	for (int i = 0; i < want->n; i++) {
		const struct grad *a = &got->g[i], *b = &want->g[i];
		double off = 0, size = 0;
		assert_string_equal(a->name, b->name);
		for (int64_t k = 0; k < b->n; k++) {
			off += (a->v[k] - b->v[k]) * (a->v[k] - b->v[k]);
			size += b->v[k] * b->v[k];
		}
		/* Gradients that are 0 in exact arithmetic (a key's bias) or nearly (queries and keys of a fresh model)
		 * have no relative error: a hundredth of all counts at least. */
		double e = sqrt(off / fmax(size, 1e-4 * all));
		*worst = fmax(*worst, e);
		mean += e / want->n;
		if (!(e <= bound))
			fail_msg("%s: the gradient of '%s' is off by %.3g, at most %.3g", label, a->name, e, bound);
	}
	return mean;
}

static void test_gradients(void **state)
{
	(void)state;
	static struct gradients plain, got;
	double worst[FO_FP8_COUNT] = { 0 }, worst_apart = 0, fp8[FO_FP8_COUNT] = { 0 }, less[FO_FP8_COUNT] = { 0 };
	for (int round = 0; round < 16; round++) {
		struct fo_model m = random_model();
		struct step_batch b;
		enum fo_numerics precision = round & 1 ? FO_PRECISION_BF16 : FO_PRECISION_F32;
		step_batch_random(&b, 8 + draw(24), 1 + draw(2), 1 + draw(2), m.vocab, (int)draw(3), 99 + draws);
		gradients_of(&plain, &m, &b, precision, (struct fo_passes){ 0 }, best_isa());
		for (int recipe = FO_FP8_CURRENT; recipe < FO_FP8_COUNT; recipe++) {
			char label[64];
			snprintf(label, sizeof label, "round %d, recipe %d, %s", round, recipe,
				 fo_numerics_name[precision]);
			gradients_of(&got, &m, &b, precision, passes(recipe, draw(2), draw(2)),
				     draw(2) ? best_isa() : FO_ISA_REF);
			double part = compare(label, &got, &plain, allowed(&m, recipe), &worst[recipe]);
			double off = fabs(got.loss / plain.loss - 1);
			assert_true(off <= 2 * 0x1p-4);
			assert_true(off > 0); /* fp8 takes part */
			gradients_free(&got);
			/* Weight gradients of factors as they are: what forward and the way back have lost, no more. */
			bool ends = m.layers > 1 && round & 2;
			gradients_of(&got, &m, &b, precision,
				     apart(passes(recipe, round & 1, round & 4), true, ends && round & 4,
					   ends && !(round & 4)),
				     best_isa());
			fp8[recipe] += part;
			less[recipe] += compare(label, &got, &plain, allowed(&m, recipe), &worst_apart);
			gradients_free(&got);
		}
		gradients_free(&plain);
		step_batch_free(&b);
	}
	print_message(
		"largest relative error of a gradient: current %.3f, delayed %.3f, rowwise %.3f, rowwise-hp %.3f\n",
		worst[1], worst[2], worst[3], worst[4]);
	print_message("largest with plain weight gradients %.3f; mean error with and without them:", worst_apart);
	for (int recipe = FO_FP8_CURRENT; recipe < FO_FP8_COUNT; recipe++) {
		print_message(" %.4f %.4f", less[recipe] / 16, fp8[recipe] / 16);
		assert_true(recipe == FO_FP8_ROWWISE_HP || less[recipe] < 0.95 * fp8[recipe]);
	}
	print_message("\n");
}

/* `ref` counts what it multiplies: exactly the program's FLOP, and these are the plain program's. */
static void test_flop(void **state)
{
	(void)state;
	for (int recipe = FO_FP8_CURRENT; recipe < FO_FP8_COUNT; recipe++) {
		struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
		struct step_rig r;
		struct step_batch b;
		struct fo_program plain;
		struct fo_lowering low;
		double mac = 0;
		step_batch_random(&b, 16, 2, 2, m.vocab, 1, 5);
		low = step_lowering(&b, FO_PRECISION_BF16, FO_MODE_TRAIN);
		must(fo_program_lower(&plain, &m, &low));
		begin(&r, &m, &b, FO_PRECISION_BF16, apart(passes(recipe, recipe & 1, true), recipe & 1, recipe & 1, 0),
		      FO_ISA_REF, &mac);
		step(&r, 0);
		struct fo_cost have = fo_program_cost(&r.program, -1), want = fo_program_cost(&plain, -1);
		assert_true(2 * mac == have.exec);
		assert_true(have.exec == want.exec && have.model == want.model &&
			    have.model_causal == want.model_causal);
		step_rig_free(&r);
		fo_program_fini(&plain);
		step_batch_free(&b);
	}
}

/* Weights that are cast behind their optimizer step are those that forward and backward would have cast. */
static void test_precompute(void **state)
{
	(void)state;
	for (int round = 0; round < 12; round++) {
		struct fo_model m = random_model();
		struct step_batch b;
		int recipe = FO_FP8_CURRENT + round % 4;
		enum fo_numerics precision = draw(2) ? FO_PRECISION_BF16 : FO_PRECISION_F32;
		bool merges = draw(2);
		uint64_t hash[2], more[2];
		double loss[2];
		step_batch_random(&b, 8 + draw(8), 1, 1 + draw(3), m.vocab, 1, 17 + draws);
		for (int pre = 0; pre < 2; pre++) {
			struct step_rig r;
			bool ends = m.layers > 1 && round & 4;
			begin(&r, &m, &b, precision, apart(passes(recipe, pre, merges), round & 8, ends, 0), best_isa(),
			      NULL);
			void *start = step_rig_save(&r);
			for (int s = 0; s < 3; s++)
				step(&r, s);
			hash[pre] = step_rig_hash(&r);
			loss[pre] = r.loss[0];
			/* Weights from outside are cast anew. */
			step_rig_restore(&r, start);
			step(&r, 0);
			more[pre] = step_rig_hash(&r);
			free(start);
			step_rig_free(&r);
		}
		assert_true(hash[0] == hash[1] && loss[0] == loss[1] && more[0] == more[1] && more[0] != hash[0]);
		step_batch_free(&b);
	}
}

/* Transposed copies: the same bits, whatever is repeated and wherever activations wait; every fp8 product sums along
 * rows; the forms that nobody reads are not kept. */
static void test_transposed(void **state)
{
	(void)state;
	static const int64_t sets[] = { 0, FO_RECOMPUTE_SELECTIVE, FO_RECOMPUTE_FULL };
	for (int round = 0; round < 12; round++) {
		struct fo_model m = random_model();
		struct step_batch b;
		uint64_t hash[2];
		double loss[2];
		enum fo_numerics precision = round & 1 ? FO_PRECISION_BF16 : FO_PRECISION_F32;
		step_batch_random(&b, 8 + draw(8), 1 + draw(2), 1 + draw(2), m.vocab, 1, 41 + draws);
		struct fo_passes p = apart(passes(FO_FP8_CURRENT + round % 2, true, round & 4), round % 3 == 2, 0, 0);
		p.recompute = sets[round % 3];
		p.offload = m.layers > 1 ? round & 1 : 0;
		for (int t = 0; t < 2; t++) {
			struct step_rig r;
			p.fp8_transposed = t;
			begin(&r, &m, &b, precision, p, round & 2 ? best_isa() : FO_ISA_REF, NULL);
			int products = 0, both = 0;
			for (int k = 0; k < r.program.nblock; k++)
				for (int i = 0; i < r.program.block[k].n; i++) {
					const struct fo_op *o = &r.program.block[k].op[i];
					bool fp8 = o->kind == FO_OP_matmul && o->n == 5;
					products += fp8;
					both += o->kind == FO_OP_fp8_cast_t;
					if (fp8 && t)
						assert_true(!o->attr.ta && o->attr.tb);
				}
			assert_true(products >= 8 && (both > 0) == (t == 1));
			for (int s = 0; s < 3; s++)
				step(&r, s);
			hash[t] = step_rig_hash(&r);
			loss[t] = r.loss[0];
			step_rig_free(&r);
		}
		if (hash[0] != hash[1] || loss[0] != loss[1])
			fail_msg("round %d: other bits with transposed copies: loss %.17g, not %.17g", round, loss[1],
				 loss[0]);
		step_batch_free(&b);
	}
	struct fo_model m = step_model(1, 16, 2, 1, 24, 30, false);
	struct fo_program p;
	struct fo_lowering low = { .seq = 8, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_BF16 };
	for (int k = 0; k < 2; k++) {
		low.pass = passes(k ? FO_FP8_ROWWISE : FO_FP8_CURRENT, k, true);
		low.pass.fp8_transposed = 1;
		assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
		assert_non_null(strstr(fo_err_text(), k ? "pass fp8-transposed: transposed copies"
							: "pass fp8-transposed: without fp8-scale-precompute"));
	}
}

static int count(const struct fo_program *p, enum fo_op_kind kind)
{
	int n = 0;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			n += p->block[b].op[i].kind == kind;
	return n;
}

/* Every operation that makes what is cast and casts it does both as the two by themselves do: the same bits, with
 * whatever else is chosen, when a run goes on in the middle of a history too. A dump holds all of it. */
static void test_fuse(void **state)
{
	(void)state;
	int seen[5] = { 0 };
	for (int round = 0; round < 24; round++) {
		struct fo_model m = random_model();
		struct step_batch b;
		enum fo_numerics precision = round & 1 ? FO_PRECISION_BF16 : FO_PRECISION_F32;
		bool plain_wgrad = draw(3) == 0, ends = m.layers > 1 && draw(2), both = !plain_wgrad && draw(2);
		struct fo_passes p = apart(passes(FO_FP8_DELAYED, both || draw(2), true), plain_wgrad,
					   ends && round & 2, ends && !(round & 2));
		uint64_t hash[2];
		double loss[2];
		enum fo_isa isa = draw(2) ? best_isa() : FO_ISA_REF;
		p.fp8_transposed = both;
		p.fuse_elementwise = draw(2);
		p.recompute = draw(2) ? draw(FO_RECOMPUTE_FULL + 1) : 0;
		p.recompute_layers = p.recompute ? draw(m.layers + 1) : 0;
		p.offload = m.layers > 1 ? draw(2) : 0;
		p.optimizer_in_backward = p.previous_norm = draw(2);
		step_batch_random(&b, 8 + draw(8), 1, 1 + draw(3), m.vocab, 1, 17 + draws);
		for (int fused = 0; fused < 2; fused++) {
			static const enum fo_op_kind kind[] = { FO_OP_rmsnorm_fp8, FO_OP_add_rmsnorm_fp8,
								FO_OP_swiglu_fp8, FO_OP_swiglu_bwd_fp8 };
			struct step_rig r, q;
			struct fo_program again;
			struct fo_str text = { 0 };
			p.fp8_fuse = fused;
			begin(&r, &m, &b, precision, p, isa, NULL);
			begin(&q, &m, &b, precision, p, isa, NULL);
			for (int k = 0; k < 4; k++) {
				int n = count(&r.program, kind[k]);
				assert_true(!n || fused);
				seen[k] += n;
				/* Norms and SwiGLU in front of products are made for them alone. */
				assert_true(!fused || k > 2 || n || k == !p.fuse_elementwise);
			}
			fo_program_dump(&r.program, &text);
			must(fo_program_parse(&again, text.data, text.len, "dump"));
			assert_true(fo_program_hash(&again) == fo_program_hash(&r.program));
			fo_program_fini(&again);
			fo_str_fini(&text);
			for (int s = 0; s < 2; s++)
				step(&r, s);
			void *saved = step_rig_save(&r);
			step(&q, 0);
			step_rig_restore(&q, saved);
			free(saved);
			for (int s = 2; s < 5; s++)
				step(&r, s), step(&q, s);
			hash[fused] = step_rig_hash(&r);
			assert_true(hash[fused] == step_rig_hash(&q));
			loss[fused] = r.loss[0];
			step_rig_free(&r);
			step_rig_free(&q);
		}
		if (hash[0] != hash[1] || loss[0] != loss[1])
			fail_msg("round %d: other bits where casts are fused: loss %.17g, not %.17g", round, loss[1],
				 loss[0]);
		step_batch_free(&b);
	}
	assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
	struct fo_model m = step_model(1, 16, 2, 1, 24, 30, false);
	struct fo_program p;
	struct fo_lowering low = { .seq = 8, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_BF16 };
	low.pass = passes(FO_FP8_CURRENT, false, true);
	low.pass.fp8_fuse = 1;
	assert_int_equal(fo_pass_build(&p, &m, &low), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "pass fp8-fuse: only delayed scales"));
}

/* Activations, casts with them, that backward makes again are the same bits, and a maximum that is taken twice is the
 * same maximum. */
static void test_recompute(void **state)
{
	(void)state;
	static const int64_t sets[] = { 0, FO_RECOMPUTE_SELECTIVE, FO_RECOMPUTE_FULL };
	for (int recipe = FO_FP8_CURRENT; recipe < FO_FP8_COUNT; recipe++) {
		struct fo_model m = step_model(3, 32, 4, 2, 40, 50, false);
		struct step_batch b;
		uint64_t hash[3];
		step_batch_random(&b, 16, 1, 2, m.vocab, 1, 5);
		for (int k = 0; k < 3; k++) {
			struct step_rig r;
			struct fo_passes p = passes(recipe, k & 1, true);
			p.recompute = sets[k];
			p = apart(p, recipe & 1, recipe & 1, recipe >> 1 & 1);
			p.recompute_layers = k == 2 ? 2 : 0; /* blocks are split twice over */
			begin(&r, &m, &b, FO_PRECISION_BF16, p, best_isa(), NULL);
			for (int s = 0; s < 3; s++)
				step(&r, s);
			hash[k] = step_rig_hash(&r);
			step_rig_free(&r);
		}
		if (hash[0] != hash[1] || hash[0] != hash[2])
			fail_msg("recipe %d: other bits with recompute", recipe);
		step_batch_free(&b);
	}
}

/* ---- delayed scaling ---- */

static float *history_of(struct step_rig *r, int layer, int64_t *sites)
{
	const struct fo_buffer *b;
	float *h = fo_store_find(r->store, "fp8.history", layer, &b);
	assert_non_null(h);
	assert_int_equal(b->cols, HISTORY);
	*sites = b->rows;
	return h;
}

/* The first step has no history: its scales are of its own numbers, so it is a step of `current` scaling. Each step
 * then moves in front; the oldest leaves. */
static void test_delayed(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	struct step_rig now, r;
	int64_t sites;
	step_batch_random(&b, 16, 2, 2, m.vocab, 1, 5);
	begin(&now, &m, &b, FO_PRECISION_BF16, passes(FO_FP8_CURRENT, false, true), best_isa(), NULL);
	begin(&r, &m, &b, FO_PRECISION_BF16, passes(FO_FP8_DELAYED, false, true), best_isa(), NULL);
	now.hyper[FO_HYPER_LR] = r.hyper[FO_HYPER_LR] = 0.05; /* the tensors' sizes change */
	step(&now, 0);
	step(&r, 0);
	assert_true(now.loss[0] == r.loss[0] && now.scale[1] == r.scale[1]);
	float newest[HISTORY + 3][32];
	for (int s = 0; s < HISTORY + 3; s++) {
		if (s)
			step(&r, s);
		const float *h = history_of(&r, 1, &sites);
		assert_true(sites == 8); /* n1, o, n2, s; gradients of qkv, o, gate-up, down */
		for (int64_t i = 0; i < sites; i++) {
			newest[s][i] = h[i * HISTORY];
			assert_true(isfinite(newest[s][i]) && newest[s][i] > 0);
			for (int k = 0; k < HISTORY; k++)
				assert_true(h[i * HISTORY + k] == (k <= s ? newest[s - k][i] : 0));
		}
	}
	bool moved = false;
	for (int64_t i = 0; i < sites; i++)
		moved |= newest[0][i] != newest[1][i];
	assert_true(moved);
	/* From the second step on scales are another recipe's. */
	step(&now, 1);
	assert_true(now.loss[0] != r.loss[0]);
	/* A history that is far too small: numbers saturate, and the step says nothing that is not finite; one step
	 * later it has grown. */
	for (int l = 0; l < 2; l++) {
		float *h = history_of(&r, l, &sites);
		for (int64_t i = 0; i < sites * HISTORY; i++)
			h[i] *= 0x1p-6f;
	}
	step(&r, HISTORY + 3);
	assert_true(isfinite(r.loss[0]) && r.scale[0] > 0);
	/* What a norm makes is as large as ever; what products of saturated numbers make is not. */
	assert_true(*history_of(&r, 1, &sites) > newest[HISTORY + 2][0] * 0.5f);
	step_rig_free(&r);
	step_rig_free(&now);
	step_batch_free(&b);
}

/* The larger of two micro-batches enters the history, whichever comes first. */
static void test_micro_batches(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 32, 4, 2, 40, 50, false);
	struct step_batch both, one;
	float top[16] = { 0 };
	step_batch_random(&both, 16, 1, 2, m.vocab, 1, 5);
	for (int k = 0; k < 3; k++) { /* each alone, then together */
		struct step_rig r;
		int64_t sites, at = k == 1 ? 16 : 0;
		one = both;
		if (k < 2) {
			one.micro_batches = 1;
			one.token += at, one.target += at, one.position += at, one.doc_start += at;
			one.loss_tokens = both.loss_tokens; /* the same gradients as together */
		}
		begin(&r, &m, &one, FO_PRECISION_F32, passes(FO_FP8_DELAYED, false, true), best_isa(), NULL);
		step(&r, 0);
		const float *h = history_of(&r, 0, &sites);
		for (int64_t i = 0; i < sites; i++) {
			if (k == 2)
				assert_true(h[i * HISTORY] == top[i]);
			top[i] = fmaxf(top[i], h[i * HISTORY]);
		}
		step_rig_free(&r);
	}
	step_batch_free(&both);
}

/* Half way saved and gone on elsewhere: the same bits, history included. */
static void test_resume(void **state)
{
	(void)state;
	for (int recipe = FO_FP8_CURRENT; recipe < FO_FP8_COUNT; recipe++)
		for (int pre = 0; pre < 2; pre++) {
			struct fo_model m = step_model(2, 32, 4, 2, 40, 50, true);
			struct step_batch b;
			struct step_rig r, q;
			step_batch_random(&b, 16, 1, 2, m.vocab, 1, 5);
			begin(&r, &m, &b, FO_PRECISION_BF16, passes(recipe, pre, true), best_isa(), NULL);
			begin(&q, &m, &b, FO_PRECISION_BF16, passes(recipe, pre, true), best_isa(), NULL);
			for (int s = 0; s < 2; s++)
				step(&r, s);
			void *saved = step_rig_save(&r);
			step(&q, 0); /* what it had before is gone */
			step_rig_restore(&q, saved);
			for (int s = 2; s < 5; s++)
				step(&r, s), step(&q, s);
			assert_true(step_rig_hash(&r) == step_rig_hash(&q));
			free(saved);
			step_rig_free(&r);
			step_rig_free(&q);
			step_batch_free(&b);
		}
}

/* ---- what is not finite ---- */

struct spoil {
	const char *name;
	float value;
	bool done;
};

static fo_status spoil_weight(void *ctx, const struct fo_store_tensor *t)
{
	struct spoil *s = ctx;
	if (t->which == 0 && strstr(t->name, s->name) && !s->done) {
		((uint16_t *)t->data)[3] = fo_bf16_from_f32(s->value);
		s->done = true;
	}
	return FO_OK;
}

/* A number that is not finite does not vanish in a cast or a scale: the step is refused, state and history stay, and
 * the search finds where it came from. */
static void test_not_finite(void **state)
{
	(void)state;
	static const char *const weight[] = { "input_layernorm", "q_proj", "o_proj", "down_proj" };
	for (int recipe = FO_FP8_CURRENT; recipe < FO_FP8_COUNT; recipe++)
		for (int w = 0; w < 8; w++) {
			struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
			struct step_batch b;
			struct step_rig r;
			struct fo_exec_fault fault;
			struct spoil s = { weight[w % 4], w < 4 ? NAN : -INFINITY, false };
			step_batch_random(&b, 16, 1, 2, m.vocab, 1, 5);
			begin(&r, &m, &b, FO_PRECISION_BF16, passes(recipe, w & 1, true), best_isa(), NULL);
			step(&r, 0);
			must(fo_store_visit(r.store, &r.program, spoil_weight, &s));
			fo_exec_weights_changed(r.exec);
			assert_true(s.done);
			uint64_t before = step_rig_hash(&r);
			step(&r, 1);
			assert_true(!isfinite(r.loss[0]) || !isfinite(r.scale[1]));
			assert_true(r.scale[0] == -1);
			assert_true(step_rig_hash(&r) == before);
			must(fo_exec_find_fault(r.exec, &fault));
			assert_true(fault.instance >= 0);
			step_rig_free(&r);
			step_batch_free(&b);
		}
}

/* ---- promises about memory and traffic, on a real model ---- */

struct size {
	struct fo_cost cost, matmul, elementwise, optimizer;
	int64_t live, persistent;
	int operations;
};

static struct size size_of(struct fo_passes passes, int micro_batches)
{
	struct fo_model m = step_model(12, 768, 12, 12, 2048, 32000, false);
	struct fo_lowering low = {
		.seq = 2048, .rows = 1, .micro_batches = micro_batches, .precision = FO_PRECISION_BF16, .pass = passes
	};
	struct fo_program p;
	struct fo_unrolled u;
	must(fo_pass_build(&p, &m, &low));
	must(fo_unroll(&p, &u));
	fo_plan(&p, &u);
	struct size s = { .cost = fo_program_cost(&p, -1),
			  .matmul = fo_program_category_cost(&p, FO_CAT_MATMUL, -1),
			  .elementwise = fo_program_category_cost(&p, FO_CAT_ELEMENTWISE, -1),
			  .optimizer = fo_program_category_cost(&p, FO_CAT_OPTIMIZER, -1),
			  .live = u.max_live_bytes,
			  .persistent = u.persistent_bytes,
			  .operations = u.n };
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
	return s;
}

static void test_promises(void **state)
{
	(void)state;
	const double L = 12, T = 2048, D = 768, F = 2048;
	const double weights = 4 * D * D + 3 * D * F, acts = 3 * D + F,
		     grads = 3 * D + D + 2 * F + D; /* elements; columns */
	struct size plain = size_of(passes(0, false, true), 1), now = size_of(passes(FO_FP8_CURRENT, false, true), 1);
	struct size late = size_of(passes(FO_FP8_DELAYED, false, true), 1),
		    pre = size_of(passes(FO_FP8_CURRENT, true, true), 1);
	assert_true(now.cost.model == plain.cost.model && now.cost.exec == plain.cost.exec);
	assert_true(pre.cost.model == plain.cost.model && late.cost.exec == plain.cost.exec);
	/* Factors take one byte instead of two, in forward, both gradients: each is read twice of three; 12 products
	 * have two scales. */
	double read = 2 * (T * acts + T * grads + weights);
	assert_true(plain.matmul.bytes - now.matmul.bytes == L * (read - 12 * 8));
	/* A cast reads twice and writes once: 5 bytes per number; weights twice. 16 casts of 16 bytes of maxima and
	 * scales. */
	assert_true(now.elementwise.bytes - plain.elementwise.bytes ==
		    L * (5 * (T * (acts + grads) + 2 * weights) + 16 * 16));
	/* Delayed: activations and gradients are read once, by one operation instead of three, with a scale and maxima
	 * of 4 numbers that it adds to instead of 16 bytes. Histories are looked at once per step, by one operation for
	 * up to 16 layers. */
	assert_true(now.elementwise.bytes - late.elementwise.bytes ==
		    L * (2 * T * (acts + grads) + 8 * 16 - 8 * (4 + 2 * 16) - 8 * (4 * HISTORY + 16)));
	struct size late4 = size_of(passes(FO_FP8_DELAYED, false, true), 4),
		    now4l = size_of(passes(FO_FP8_CURRENT, false, true), 4);
	assert_int_equal(now.operations - late.operations, 12 * 8 * 2 - 1 - 12);
	assert_int_equal(now4l.operations - late4.operations, 4 * 12 * 8 * 2 - 1 - 12);
	assert_true(late.optimizer.bytes - plain.optimizer.bytes == L * (8 * 4 + 2 * 8 * 4 * HISTORY + 16));
	/* Precomputed: once instead of twice a micro-batch, and the weights' fp8 copies stay, with a scale in 64 bytes
	 * each. */
	assert_true(now.elementwise.bytes - pre.elementwise.bytes == L * (5 * weights + 4 * 16));
	assert_true(pre.persistent - now.persistent == (int64_t)(L * (weights + 4 * 64)));
	struct size now4 = size_of(passes(FO_FP8_CURRENT, false, true), 4),
		    pre4 = size_of(passes(FO_FP8_CURRENT, true, true), 4);
	assert_true(now4.elementwise.bytes - pre4.elementwise.bytes == 7 * L * (5 * weights + 4 * 16));
	assert_int_equal(now4.operations - pre4.operations, 12 * 7 * 4 * 3);
	assert_true(late.persistent - now.persistent == (int64_t)(L * ((8 * 4 * HISTORY + 63) / 64 * 64)));
	/* Between forward and backward norms and SwiGLU's product are kept in fp8 alone, what attention made in both.
	 */
	assert_true(plain.live - now.live == (int64_t)(L * (T * (D + F) - 4 * 64)));
	/* Weight gradients of plain factors: their 4 products read two bytes per number, no scale; casts are the same;
	 * what forward keeps is what it keeps without fp8. */
	struct size wide = size_of(apart(passes(FO_FP8_CURRENT, false, true), true, 0, 0), 1);
	assert_true(wide.matmul.bytes - now.matmul.bytes == L * (T * (acts + grads) - 4 * 8));
	assert_true(wide.elementwise.bytes == now.elementwise.bytes && wide.cost.exec == plain.cost.exec);
	assert_true(wide.operations == now.operations && wide.live == plain.live);
	/* Transposed copies: a byte more for each number that is cast, no operation more, and between forward and
	 * backward one form. */
	struct fo_passes with = passes(FO_FP8_CURRENT, true, true);
	with.fp8_transposed = 1;
	struct size both = size_of(with, 1);
	assert_true(both.elementwise.bytes - pre.elementwise.bytes == L * (T * (acts + grads) + weights));
	assert_true(both.matmul.bytes == pre.matmul.bytes && both.operations == pre.operations);
	assert_true(both.persistent - pre.persistent == (int64_t)(L * weights));
	assert_true(both.live == pre.live);
	/* Two layers that keep their precision are two layers of the plain program. */
	struct size ends = size_of(apart(passes(FO_FP8_CURRENT, true, true), false, 1, 1), 1);
	assert_true(ends.matmul.bytes - plain.matmul.bytes == (pre.matmul.bytes - plain.matmul.bytes) * (L - 2) / L);
	assert_true(ends.elementwise.bytes - plain.elementwise.bytes ==
		    (pre.elementwise.bytes - plain.elementwise.bytes) * (L - 2) / L);
	/* The store has an instance of each layer, the two that nothing reads among them: fo_plan counts what is
	 * taken. */
	assert_true(ends.persistent == pre.persistent);
	assert_true(ends.cost.model == plain.cost.model && ends.cost.exec == plain.cost.exec);
	/* Per layer 16 casts of three operations. */
	assert_int_equal(now.operations - plain.operations, 12 * 16 * 3);
}

/* A layer of Llama-3.1-8B on one row of 8,192 tokens: what fp8-fuse saves is one write and one read of two bytes for
 * each number that norms, SwiGLU and its backward make, and the figures are those of docs/passes/fp8-fuse.md. */
static void test_fuse_bytes(void **state)
{
	(void)state;
	const double T = 8192, D = 4096, F = 14336, KV = 1024;
	double bytes[2], casts = 0, made = 0;
	for (int fused = 0; fused < 2; fused++) {
		struct fo_model m = step_model(2, 4096, 32, 8, 14336, 128256, false);
		struct fo_lowering low = { .seq = 8192, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_BF16 };
		struct fo_program p;
		low.pass = passes(FO_FP8_DELAYED, true, true);
		low.pass.fp8_transposed = 1;
		low.pass.fuse_elementwise = 1;
		low.pass.fp8_fuse = fused;
		must(fo_pass_build(&p, &m, &low));
		bytes[fused] = fo_program_category_cost(&p, FO_CAT_ELEMENTWISE, -1).bytes;
		for (int s = 0; s < p.nslot && !fused; s++)
			for (int i = 0; i < p.block[p.slot[s].block].n; i++) {
				const struct fo_op *o = &p.block[p.slot[s].block].op[i];
				double moved = fo_op_cost(&p, o, -1).bytes;
				casts += o->kind == FO_OP_fp8_cast_step ? moved : 0;
				made += p.slot[s].layer < 2 &&
							(o->kind == FO_OP_rmsnorm || o->kind == FO_OP_add_rmsnorm ||
							 o->kind == FO_OP_swiglu || o->kind == FO_OP_swiglu_bwd)
						? moved
						: 0;
			}
		fo_program_fini(&p);
	}
	double saved = (bytes[0] - bytes[1]) / 2;
	print_message("per layer: casts %.3f GB, what makes their numbers %.3f GB, saved %.3f GB\n", casts / 2e9,
		      made / 2e9, saved / 1e9);
	assert_true(saved == 4 * T * (2 * D + F + 2 * F));
	assert_true(fabs((casts + made) / 2e9 - 4.63) < 0.005 &&
		    fabs((casts + made) / 2e9 - saved / 1e9 - 2.95) < 0.005);
	assert_true(fabs(casts / 2 / (4 * T * (5 * D + 2 * KV + D + F + 2 * F)) - 1) < 1e-6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs),  cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_checks),    cmocka_unit_test(test_gradients),
		cmocka_unit_test(test_flop),      cmocka_unit_test(test_precompute),
		cmocka_unit_test(test_recompute), cmocka_unit_test(test_transposed),
		cmocka_unit_test(test_fuse),      cmocka_unit_test(test_fuse_bytes),
		cmocka_unit_test(test_delayed),   cmocka_unit_test(test_micro_batches),
		cmocka_unit_test(test_resume),    cmocka_unit_test(test_not_finite),
		cmocka_unit_test(test_promises),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
