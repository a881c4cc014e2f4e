/* The accounting is what runs: `ref` counts its multiply-accumulates while it computes, and twice that is exactly the
 * program's executed FLOP; the program's model FLOP is exactly the closed formula. */
#include "support/step.h"
#include "support/must.h"

#include <string.h>

static void check_counted(const struct fo_model *m, const struct step_batch *b, enum fo_mode mode,
			  enum fo_numerics precision, struct fo_passes pass)
{
	struct step_rig r;
	double mac = 0;
	struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 2, .mac = &mac, .timeline_steps = 1 };
	struct fo_lowering low = step_lowering(b, precision, mode);
	low.pass = pass;
	step_rig_lower(&r, m, &low, b, &o);
	must(fo_exec_step(r.exec, 0));
	double want = fo_program_cost(&r.program, b->pairs / (double)b->micro_batches).exec;
	if (2 * mac != want)
		fail_msg("%s %s mode %d: counted %.17g FLOP, the program says %.17g", m->name,
			 fo_numerics_name[precision], (int)mode, 2 * mac, want);
	mac = 0;
	must(fo_exec_step(r.exec, 1)); /* every step the same */
	assert_true(2 * mac == want);
	step_rig_free(&r);
}

/* Pairs that are not given are those of unbroken rows. */
static void check_unbroken(const struct fo_model *m, const struct step_batch *b)
{
	struct fo_program p;
	struct fo_lowering low = step_lowering(b, FO_PRECISION_F32, FO_MODE_TRAIN);
	must(fo_program_lower(&p, m, &low));
	assert_true(fo_program_cost(&p, -1).exec == fo_program_cost(&p, b->pairs / (double)b->micro_batches).exec);
	fo_program_fini(&p);
}

static void test_counted(void **state)
{
	(void)state;
	struct fo_model model[] = {
		step_model(2, 32, 4, 4, 48, 64, false), step_model(3, 32, 4, 2, 40, 50, true),
		step_model(1, 24, 2, 1, 33, 37, false), step_model(2, 24, 2, 1, 33, 37, false),
		step_model(2, 32, 4, 2, 40, 50, true),  step_model(2, 32, 4, 2, 40, 50, false),
		step_model(1, 24, 2, 2, 33, 37, false),
	};
	model[2].head_dim = 10; /* not hidden / heads */
	model[3].attention_bias = model[3].output_bias = model[3].mlp_bias = true;
	model[4].attention_bias = true, model[4].sliding_window = 6;
	model[5].qk_norm = true, model[5].sliding_window = 5;
	model[6].sliding_window = 3;
	for (size_t i = 0; i < sizeof model / sizeof *model; i++)
		for (int documents = 1; documents <= 4; documents += 3) {
			struct step_batch b;
			step_batch_random(&b, 13 + 4 * (int64_t)i, 2, 2, model[i].vocab, documents, 7 + i);
			double unbroken = 0; /* token by token */
			for (int64_t k = 0; k < b.seq; k++)
				unbroken += (double)(model[i].sliding_window && model[i].sliding_window < k + 1
							     ? model[i].sliding_window
							     : k + 1);
			unbroken *= (double)(b.micro_batches * b.rows);
			step_batch_window(&b, model[i].sliding_window);
			if (documents == 1)
				check_unbroken(&model[i], &b);
			assert_true(documents == 1 ? b.pairs == unbroken : b.pairs < unbroken);
			for (int mode = FO_MODE_TRAIN; mode <= FO_MODE_LOGITS; mode++)
				for (int precision = 0; precision < FO_PRECISION_COUNT; precision++)
					check_counted(&model[i], &b, (enum fo_mode)mode, (enum fo_numerics)precision,
						      (struct fo_passes){ 0 });
			check_counted(&model[i], &b, FO_MODE_TRAIN, FO_PRECISION_F32,
				      (struct fo_passes){ .fuse_elementwise = 1 });
			for (int mode = FO_MODE_TRAIN; mode <= FO_MODE_LOGITS; mode++)
				check_counted(&model[i], &b, (enum fo_mode)mode, FO_PRECISION_BF16,
					      (struct fo_passes){ .attention = FO_ATTENTION_EAGER });
			check_counted(
				&model[i], &b, FO_MODE_TRAIN, FO_PRECISION_F32,
				(struct fo_passes){ .attention = FO_ATTENTION_EAGER, .recompute = FO_RECOMPUTE_FULL });
			step_batch_free(&b);
		}
}

/* Written down a second time, from the definitions of docs/metrics.md: weights that multiply a token, and attention. */
static double closed(const struct fo_model *m, double seq, double per_weight, double per_attention)
{
	double d = (double)m->hidden, hq = (double)(m->heads * m->head_dim), kq = (double)(m->kv_heads * m->head_dim);
	double layer = d * hq * 2 + d * kq * 2 + 3 * d * (double)m->ffn + 2 * d;
	layer += (m->attention_bias ? hq + 2 * kq : 0) + (m->output_bias ? d : 0);
	layer += m->mlp_bias ? 2 * (double)m->ffn + d : 0;
	layer += m->qk_norm ? 2 * (double)m->head_dim : 0;
	double weights = (double)m->layers * layer + d + (double)m->vocab * d;
	return per_weight * weights + per_attention * (double)m->layers * hq * seq;
}

/* What runs beyond the weights' convention: a q/k norm's weight works once per head, a bias is added up once, not
 * twice. */
static double beyond(const struct fo_model *m, int mode)
{
	double hq = (double)(m->heads * m->head_dim), kq = (double)(m->kv_heads * m->head_dim), q = (double)m->head_dim;
	double reductions = mode == FO_MODE_TRAIN ? 3 : 1;
	double norm = m->qk_norm ? 2 * reductions * (hq - q + kq - q) : 0;
	double bias = (m->attention_bias ? hq + 2 * kq : 0) + (m->output_bias ? (double)m->hidden : 0) +
		      (m->mlp_bias ? 2 * (double)m->ffn + (double)m->hidden : 0);
	return (double)m->layers * (norm - (mode == FO_MODE_TRAIN ? 2 * bias : 0));
}

/* W keys per query, W - W^2 / 2S under the causal rule; and what runs, pair by pair. */
static void check_window(const struct fo_model *m, int64_t seq)
{
	struct fo_program p;
	struct fo_lowering low = { .seq = seq, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_BF16 };
	double tokens = (double)seq, w = (double)m->sliding_window, pairs = 0, per_key;
	for (int64_t i = 0; i < seq; i++)
		pairs += (double)(i + 1 < m->sliding_window ? i + 1 : m->sliding_window);
	must(fo_program_lower(&p, m, &low));
	struct fo_cost c = fo_program_cost(&p, -1);
	per_key = 12 * (double)(m->layers * m->heads * m->head_dim);
	double weights = closed(m, 0, 6, 0) * tokens;
	assert_true(c.model == weights + per_key * w * tokens);
	assert_true(c.model_causal == weights + per_key * (w - w * w / (2 * tokens)) * tokens);
	assert_true(c.exec == weights + beyond(m, FO_MODE_TRAIN) * tokens + per_key / 6 * 7 * pairs);
	fo_program_fini(&p);
}

static void test_closed_formula(void **state)
{
	(void)state;
	int trained = 0, windows = 0;
	for (int i = 0; i < fo_model_preset_count(); i++) {
		const struct fo_model *m = fo_model_preset(i);
		if (fo_model_trainable(m) != FO_OK)
			continue;
		trained++;
		/* A row of 2048 lies inside every published window; a quarter of it is a case too. */
		struct fo_model narrow = *m;
		if (m->sliding_window) {
			narrow.sliding_window = 512;
			check_window(&narrow, 2048);
			windows++;
		}
		for (int micro = 1; micro <= 3; micro += 2)
			for (int mode = FO_MODE_TRAIN; mode <= FO_MODE_LOGITS; mode++) {
				struct fo_program p;
				struct fo_lowering low = { .seq = 2048,
							   .rows = 2,
							   .micro_batches = micro,
							   .precision = FO_PRECISION_BF16,
							   .mode = (enum fo_mode)mode };
				double tokens = 2048.0 * 2 * micro, share = mode == FO_MODE_TRAIN ? 3 : 1;
				must(fo_program_lower(&p, m, &low));
				struct fo_cost c = fo_program_cost(&p, -1);
				struct fo_flop f = fo_model_flop_per_token(m, 2048);
				assert_true(c.model == closed(m, 2048, 2 * share, 4 * share) * tokens);
				assert_true(c.model_causal == closed(m, 2048, 2 * share, 2 * share) * tokens);
				assert_true(f.mfu == closed(m, 2048, 6, 12) && f.mfu_causal == closed(m, 2048, 6, 6) &&
					    f.mfu_6n == closed(m, 2048, 6, 0));
				/* Backward recomputes the scores: a fifth product of visible pairs beside four. */
				double pairs = 2.0 * 2048 * 2049 / 2 * micro, products = mode == FO_MODE_TRAIN ? 7 : 2;
				assert_true(c.exec == (closed(m, 2048, 2 * share, 0) + beyond(m, mode)) * tokens +
							      2 * products * pairs *
								      (double)(m->layers * m->heads * m->head_dim));
				fo_program_fini(&p);
			}
	}
	assert_true(trained >= 20 && windows >= 1);
}

/* Blocks once times their slots, instance by instance, and category by category: the same sums. */
static void test_sums(void **state)
{
	(void)state;
	struct fo_model m = step_model(3, 32, 4, 2, 40, 50, true);
	struct fo_lowering low = {
		.seq = 16, .rows = 2, .micro_batches = 4, .precision = FO_PRECISION_BF16, .mode = FO_MODE_TRAIN
	};
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_cost all, each = { 0 }, parts = { 0 };
	must(fo_program_lower(&p, &m, &low));
	must(fo_unroll(&p, &u));
	all = fo_program_cost(&p, 100);
	for (int i = 0; i < u.n; i++) {
		struct fo_cost c = fo_op_cost(&p, fo_instance_op(&p, &u, i), 100);
		each.model += c.model, each.exec += c.exec, each.bytes += c.bytes;
	}
	for (int k = 0; k < FO_CAT_COUNT; k++) {
		struct fo_cost c = fo_program_category_cost(&p, (enum fo_category)k, 100);
		parts.model += c.model, parts.exec += c.exec, parts.bytes += c.bytes;
	}
	assert_true(all.model == each.model && all.exec == each.exec && all.bytes == each.bytes);
	assert_true(all.model == parts.model && all.exec == parts.exec && all.bytes == parts.bytes);
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_counted), cmocka_unit_test(test_closed_formula),
					    cmocka_unit_test(test_sums) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
