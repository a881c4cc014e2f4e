/* What the optimizer keeps, in fewer bytes: the memory plan falls by exactly what is promised, a split master is the
 * fp32 master, rounding at random gives the same bits whatever the threads, the merges and the interruptions, foreign
 * weights fill every format alike, and a small training run ends where it does with an fp32 master. */
#include "kernel/round.h"
#include "pass/pass.h"
#include "support/step.h"
#include "train/train.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT(m, s, r)                                                                      \
	{                                                                                    \
		.master = FO_MASTER_##m, .moments = FO_MOMENTS_##s, .rounding = FO_ROUND_##r \
	}
static const struct format {
	struct fo_passes pass;
	int bytes; /* per parameter: weight, master, moments */
	int moved; /* by adamw, gradient included; what is updated moves twice */
} format[] = {
	{ FORMAT(FP32, FP32, NEAREST), 14, 30 },    { FORMAT(SPLIT, FP32, NEAREST), 12, 28 },
	{ FORMAT(FP32, BF16, STOCHASTIC), 10, 22 }, { FORMAT(NONE, FP32, STOCHASTIC), 10, 24 },
	{ FORMAT(SPLIT, BF16, STOCHASTIC), 8, 20 }, { FORMAT(NONE, BF16, STOCHASTIC), 6, 16 },
	{ FORMAT(NONE, BF16, NEAREST), 6, 16 },
};
enum { FORMATS = sizeof format / sizeof *format };

/* ---- promises ---- */

static void test_promises(void **state)
{
	(void)state;
	/* Every tensor is a multiple of the store's 64 bytes in every format. */
	struct fo_model m = step_model(3, 128, 4, 2, 256, 512, false);
	double n = fo_model_params(&m).total;
	int64_t arena = 0, table = 0;
	for (int i = 0; i < FORMATS; i++) {
		struct fo_lowering low = {
			.seq = 64, .rows = 1, .micro_batches = 2, .precision = FO_PRECISION_BF16, .pass = format[i].pass
		};
		struct fo_program p;
		struct fo_unrolled u;
		struct fo_store *s;
		must(fo_pass_build(&p, &m, &low));
		must(fo_unroll(&p, &u));
		fo_plan(&p, &u);
		double moved = 0;
		for (int b = 0; b < p.nblock; b++)
			for (int k = 0; k < p.block[b].n; k++)
				if (p.block[b].op[k].kind == FO_OP_adamw) /* hyper and scale beside the numbers */
					moved += (double)(p.block[b].unit == FO_UNIT_LAYER ? m.layers : 1) *
						 (fo_op_cost(&p, &p.block[b].op[k], -1).bytes -
						  (FO_HYPER_COUNT + 2) * 8.0);
		assert_true(moved == format[i].moved * n);
		if (!i) {
			arena = u.arena_bytes;
			table = u.persistent_bytes - (int64_t)(14 * n);
			assert_true(table > 0 && table < 100000); /* of the rotation */
		}
		assert_true(u.persistent_bytes == (int64_t)(format[i].bytes * n) + table);
		assert_true(u.arena_bytes == arena); /* gradients are fp32 as ever */
		must(fo_store_new(&s, &p));
		assert_true(fo_store_bytes(s) == u.persistent_bytes);
		fo_store_free(s);
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
}

/* ---- what is legal, and in which mode ---- */

static void refused(struct fo_model *m, enum fo_numerics precision, struct fo_passes pass, const char *says)
{
	struct fo_lowering low = { .seq = 8, .rows = 1, .micro_batches = 1, .precision = precision, .pass = pass };
	struct fo_program p;
	assert_int_equal(fo_pass_build(&p, m, &low), FO_EARG);
	if (!strstr(fo_err_text(), says))
		fail_msg("'%s' does not say '%s'", fo_err_text(), says);
}

static void test_legal(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 32, 2, 2, 48, 64, false);
	refused(&m, FO_PRECISION_F32, (struct fo_passes){ .master = FO_MASTER_SPLIT },
		"pass master: weights in fp32 are the master");
	refused(&m, FO_PRECISION_F64, (struct fo_passes){ .master = FO_MASTER_NONE },
		"pass master: weights in fp64 are the master");
	refused(&m, FO_PRECISION_F64, (struct fo_passes){ .moments = FO_MOMENTS_BF16 },
		"pass moments: moments of a program in fp64");
	refused(&m, FO_PRECISION_BF16, (struct fo_passes){ .master = 3 }, "3 names no format of master weights");
	refused(&m, FO_PRECISION_BF16, (struct fo_passes){ .moments = 7 }, "7 names no format of moments");
	/* 2^32 elements can be numbered, more cannot; without rounding at random it does not matter. */
	struct fo_passes none = FORMAT(NONE, BF16, STOCHASTIC);
	m = step_model(1, 1 << 14, 2, 2, 1 << 16, 64, false);
	refused(&m, FO_PRECISION_BF16, none, "cannot be numbered");
	for (int mode = FO_MODE_TRAIN; mode <= FO_MODE_DECODE; mode++)
		for (int i = 0; i < FORMATS; i++) {
			struct fo_lowering low = {
				.seq = 8, .rows = 1, .micro_batches = 1, .mode = (enum fo_mode)mode
			};
			struct fo_program p, plain;
			low.precision = FO_PRECISION_BF16;
			low.context = mode == FO_MODE_DECODE ? 16 : 0;
			m = step_model(2, 32, 2, 2, 48, 64, i % 2);
			must(fo_pass_build(&plain, &m, &low));
			low.pass = format[i].pass;
			low.pass.merge_qkv = mode % 2;
			must(fo_pass_build(&p, &m, &low));
			/* Weights are the same buffers in every mode and format. */
			for (int k = 0; k < plain.nbuf && !low.pass.merge_qkv; k++) {
				int same = fo_buffer_find(&p, plain.buf[k].name);
				if (plain.buf[k].home == FO_HOME_PARAM)
					assert_true(same >= 0 &&
						    !memcmp(&p.buf[same], &plain.buf[k], sizeof plain.buf[k]));
			}
			fo_program_fini(&p);
			fo_program_fini(&plain);
		}
}

/* Dumped and read back it is the same program; operands of formats where they do not belong are refused. */
static void test_dump(void **state)
{
	(void)state;
	static const struct {
		const char *from, *to;
	} damage[] = {
		{ "buffer low.wo i16", "buffer low.wo bf16" }, /* that is another master: then the weight is not defined
								*/
		{ "buffer wo bf16", "buffer wo f32" },         { "buffer m.wo bf16", "buffer m.wo i16" },
		{ "buffer d.wo f32", "buffer d.wo i16" },      { "arg wo 0 update", "arg wo 0 def" },
	};
	struct fo_model m = step_model(2, 32, 2, 2, 48, 64, false);
	for (int i = 0; i < FORMATS; i++) {
		struct fo_lowering low = {
			.seq = 8, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_BF16, .pass = format[i].pass
		};
		struct fo_program p, q;
		struct fo_str s = { 0 };
		must(fo_pass_build(&p, &m, &low));
		fo_program_dump(&p, &s);
		must(fo_program_parse(&q, s.data, s.len, "dump"));
		assert_true(fo_program_hash(&p) == fo_program_hash(&q));
		assert_memory_equal(&p.run.pass, &q.run.pass, sizeof p.run.pass);
		fo_program_fini(&q);
		bool all = format[i].pass.master == FO_MASTER_SPLIT && format[i].pass.moments;
		for (size_t d = 0; all && d < sizeof damage / sizeof *damage; d++) {
			struct fo_str bad = { 0 };
			char *at = strstr(s.data, damage[d].from);
			assert_non_null(at);
			fo_str_append(&bad, s.data, (size_t)(at - s.data));
			fo_str_puts(&bad, damage[d].to);
			fo_str_puts(&bad, at + strlen(damage[d].from));
			assert_int_equal(fo_program_parse(&q, bad.data, bad.len, "dump"), FO_EFORMAT);
			fo_str_fini(&bad);
		}
		fo_str_fini(&s);
		fo_program_fini(&p);
	}
}

/* ---- training ---- */

struct tensor {
	char name[96];
	int which, dtype;
	int64_t n;
	void *data;
};
struct tensors {
	struct tensor t[256];
	int n;
};

static fo_status keep(void *ctx, const struct fo_store_tensor *s)
{
	struct tensors *l = ctx;
	size_t item = fo_dtype_bytes(s->dtype);
	assert_true(l->n < 256);
	struct tensor *t = &l->t[l->n++];
	*t = (struct tensor){ .which = s->which, .dtype = s->dtype, .n = s->rows * s->cols };
	snprintf(t->name, sizeof t->name, "%s", s->name);
	t->data = malloc((size_t)t->n * item);
	assert_non_null(t->data);
	for (int64_t r = 0; r < s->rows; r++)
		memcpy((char *)t->data + (size_t)(r * s->cols) * item, (char *)s->data + (size_t)(r * s->ld) * item,
		       (size_t)s->cols * item);
	return FO_OK;
}

static void tensors_take(struct tensors *l, struct step_rig *r)
{
	l->n = 0;
	must(fo_store_visit(r->store, &r->program, keep, l));
}

static void tensors_free(struct tensors *l)
{
	for (int i = 0; i < l->n; i++)
		free(l->t[i].data);
	l->n = 0;
}

static const struct tensor *find(const struct tensors *l, const char *name, int which)
{
	for (int i = 0; i < l->n; i++)
		if (l->t[i].which == which && !strcmp(l->t[i].name, name))
			return &l->t[i];
	return NULL;
}

/* The rig after `steps` steps of the format; merges as in `pass`. */
static void train(struct step_rig *r, const struct fo_model *m, const struct step_batch *b, struct fo_passes pass,
		  enum fo_isa isa, int threads, int steps)
{
	struct fo_exec_options o = { .isa = isa, .threads = threads, .timeline_steps = 1 };
	struct fo_lowering low = step_lowering(b, FO_PRECISION_BF16, FO_MODE_TRAIN);
	low.pass = pass;
	step_rig_lower(r, m, &low, b, &o);
	for (int s = 0; s < steps; s++) {
		step_rig_at(r, s + 1);
		must(fo_exec_step(r->exec, s));
	}
}

/* Of two runs, one with an fp32 master and one with a split one: the number of weights at a tie. Everything else is the
 * same bits. */
static int compare_split(const struct tensors *copy, const struct tensors *split)
{
	int ties = 0;
	assert_int_equal(copy->n, split->n);
	for (int i = 0; i < copy->n; i++) {
		const struct tensor *t = &copy->t[i], *s = find(split, t->name, t->which), *w = find(split, t->name, 0);
		for (int64_t k = 0; k < t->n; k++) {
			if (t->which == 1) {
				float master = ((const float *)t->data)[k];
				assert_int_equal(s->dtype, FO_I16);
				assert_true(fo_f32_bits(fo_split_join(((const uint16_t *)w->data)[k],
								      ((const int16_t *)s->data)[k])) ==
					    fo_f32_bits(master));
				ties += (fo_f32_bits(master) & 0x1ffff) == 0x8000; /* half-way above an even number */
			} else if (t->which > 1) {
				assert_true(((const float *)t->data)[k] == ((const float *)s->data)[k]);
			}
		}
	}
	for (int i = 0; i < copy->n && !ties; i++)
		if (!copy->t[i].which)
			assert_memory_equal(copy->t[i].data, find(split, copy->t[i].name, 0)->data,
					    (size_t)copy->t[i].n * 2);
	return ties;
}

static void test_split_trains_alike(void **state)
{
	(void)state;
	static struct tensors a, b;
	enum fo_isa isa;
	int64_t compared = 0;
	must(fo_isa_choose(&isa));
	for (int round = 0; round < 8; round++) {
		struct fo_model m = step_model(1 + round % 2, 16, 2, 1, 24, 32, round % 2);
		struct fo_passes copy = { .merge_qkv = round & 1, .merge_gate_up = round >> 1 & 1 }, split = copy;
		struct step_batch batch;
		struct step_rig r, s;
		split.master = FO_MASTER_SPLIT;
		step_batch_random(&batch, 12, 2, 2, m.vocab, 2, 7 + (uint64_t)round);
		train(&r, &m, &batch, copy, round == 7 ? FO_ISA_REF : isa, 1, 0);
		train(&s, &m, &batch, split, round == 7 ? FO_ISA_REF : isa, 1, 0);
		/* Until the first weight lies at a tie: then the two forward passes differ. */
		for (int step = 0;; step++) {
			tensors_take(&a, &r), tensors_take(&b, &s);
			int ties = compare_split(&a, &b);
			tensors_free(&a), tensors_free(&b);
			if (ties || step == 4)
				break;
			step_rig_at(&r, step + 1), step_rig_at(&s, step + 1);
			must(fo_exec_step(r.exec, step));
			must(fo_exec_step(s.exec, step));
			assert_true(r.loss[0] == s.loss[0] && r.scale[1] == s.scale[1]);
			compared++;
		}
		step_rig_free(&r), step_rig_free(&s);
		step_batch_free(&batch);
	}
	print_message("%d of 32 steps before a tie\n", (int)compared);
	assert_true(compared >= 20); /* one number in 131,072 lies there: most runs meet none */
}

/* The bits of a run do not depend on the threads, and not on being stopped and taken up by another process. */
static void test_same_bits(void **state)
{
	(void)state;
	/* The tables are large enough that threads share their rows. */
	struct fo_model m = step_model(1, 128, 4, 2, 64, 256, false);
	struct step_batch batch;
	enum fo_isa isa;
	must(fo_isa_choose(&isa));
	step_batch_random(&batch, 8, 1, 1, m.vocab, 2, 3);
	for (int i = 0; i < FORMATS; i++) {
		struct step_rig a, b;
		train(&a, &m, &batch, format[i].pass, isa, 1, 4);
		uint64_t want = step_rig_hash(&a);
		train(&b, &m, &batch, format[i].pass, isa, 2, 2);
		void *saved = step_rig_save(&b);
		step_rig_free(&b);
		train(&b, &m, &batch, format[i].pass, isa, 1, 0);
		step_rig_restore(&b, saved);
		for (int s = 2; s < 4; s++) {
			step_rig_at(&b, s + 1);
			must(fo_exec_step(b.exec, s));
		}
		assert_true(step_rig_hash(&b) == want);
		/* Another seed is other noise, where there is any. */
		step_rig_restore(&b, saved);
		b.hyper[FO_HYPER_SEED]++;
		for (int s = 2; s < 4; s++) {
			step_rig_at(&b, s + 1);
			must(fo_exec_step(b.exec, s));
		}
		assert_int_equal(step_rig_hash(&b) != want, format[i].pass.rounding);
		free(saved);
		step_rig_free(&a), step_rig_free(&b);
	}
	step_batch_free(&batch);
}

/* Merged tensors are rounded with the noise of those they were merged from. In `ref` sums do not depend on the width of
 * a product, so after one step without clipping every tensor whose gradient does not come through the merged product
 * has the same bits: all of a one-layer model but what lies before it. */
static void test_merged(void **state)
{
	(void)state;
	static const char *const before[2][7] = { { "embed_tokens", "input_layernorm" },
						  { "embed_tokens", "input_layernorm", "self_attn",
						    "post_attention" } };
	static struct tensors plain, merged;
	struct fo_model m = step_model(1, 32, 4, 2, 48, 64, false);
	struct fo_passes pass = FORMAT(NONE, BF16, STOCHASTIC);
	struct step_batch batch;
	m.attention_bias = m.output_bias = m.mlp_bias = true;
	step_batch_random(&batch, 12, 2, 1, m.vocab, 2, 3);
	for (int form = 0; form < 3; form++) {
		struct step_rig r;
		pass.merge_qkv = form == 1;
		pass.merge_gate_up = form == 2;
		train(&r, &m, &batch, pass, FO_ISA_REF, 1, 0);
		r.hyper[FO_HYPER_CLIP] = 0;
		must(fo_exec_step(r.exec, 0));
		tensors_take(form ? &merged : &plain, &r);
		step_rig_free(&r);
		int same = 0;
		for (int i = 0; form && i < plain.n; i++) {
			const struct tensor *t = &plain.t[i];
			bool skip = false;
			for (int k = 0; k < 7 && before[form - 1][k]; k++)
				skip |= strstr(t->name, before[form - 1][k]) != NULL;
			if (skip)
				continue;
			if (memcmp(t->data, find(&merged, t->name, t->which)->data, (size_t)t->n * 2))
				fail_msg("'%s' (%d) has other bits with merge %d", t->name, t->which, form);
			same++;
		}
		/* 4 projections with biases, 3 of the feed-forward, its norm, the last norm, the head: weight, m and v.
		 */
		if (form)
			assert_int_equal(same, 3 * (form == 1 ? 8 + 6 + 3 : 6 + 2));
		tensors_free(&merged);
	}
	tensors_free(&plain);
	step_batch_free(&batch);
}

/* ---- filling ---- */

/* From a seed or a folder: an fp32 master, its halves, and weights without one come from the same numbers. */
static void test_filled_alike(void **state)
{
	(void)state;
	static struct tensors copy, other;
	struct step_batch batch;
	struct fo_model m;
	char dir[512];
	must(fo_model_load(step_golden(dir, "bf16", ""), &m));
	step_batch_random(&batch, 8, 1, 1, m.vocab, 0, 3);
	for (int from = 0; from < 2; from++) {
		struct step_rig r;
		train(&r, &m, &batch, format[0].pass, FO_ISA_REF, 1, 0);
		if (from)
			step_rig_load(&r, dir);
		tensors_take(&copy, &r);
		step_rig_free(&r);
		for (int i = 1; i < 4; i++) {
			struct fo_passes pass = format[i].pass;
			pass.merge_qkv = pass.merge_gate_up = i & 1;
			train(&r, &m, &batch, pass, FO_ISA_REF, 1, 0);
			if (from)
				step_rig_load(&r, dir);
			tensors_take(&other, &r);
			for (int k = 0; k < copy.n; k++) {
				const struct tensor *t = &copy.t[k], *w = find(&other, t->name, 0),
						    *low = find(&other, t->name, 1);
				assert_non_null(w);
				if (t->which != 1)
					continue;
				assert_int_equal(!low, pass.master == FO_MASTER_NONE);
				for (int64_t e = 0; e < t->n; e++) {
					float f = ((const float *)t->data)[e];
					uint16_t h = ((const uint16_t *)w->data)[e];
					if (pass.master == FO_MASTER_SPLIT)
						assert_true(fo_split_join(h, ((const int16_t *)low->data)[e]) == f);
					else
						assert_true(h == fo_bf16_from_f32(f));
				}
			}
			tensors_free(&other);
			step_rig_free(&r);
		}
		tensors_free(&copy);
	}
	step_batch_free(&batch);
}

/* Ties in a file: halves agree there too. */
static void test_ties_are_loaded(void **state)
{
	(void)state;
	float value[] = { 1.00390625f, -1.00390625f, 1.01171875f, 1, 0, -0.0f, 0x1p-130f, 3.3895314e38f };
	enum { N = sizeof value / sizeof *value };
	uint16_t high[N];
	int16_t low[N];
	uint64_t sum;
	struct fo_st_file f;
	struct fo_st_tensor t = { .name = "x", .dtype = FO_F32, .rows = 2, .cols = N / 2, .ld = N / 2, .data = value };
	must(fo_st_write("ties.safetensors", &t, 1, NULL, &sum));
	must(fo_st_open(&f, "ties.safetensors"));
	t.dtype = FO_BF16;
	t.data = high;
	t.low = low;
	must(fo_st_copy(&f, "ties.safetensors", &t));
	for (int i = 0; i < N; i++)
		assert_true(fo_f32_bits(fo_split_join(high[i], low[i])) == fo_f32_bits(value[i]));
	assert_int_equal(low[0], INT16_MIN);
	fo_st_close(&f);
	/* Low halves are read as they are, and as nothing else. */
	t = (struct fo_st_tensor){ .name = "x", .dtype = FO_I16, .rows = 2, .cols = N / 2, .ld = N / 2, .data = low };
	must(fo_st_write("ties.safetensors", &t, 1, NULL, &sum));
	must(fo_st_open(&f, "ties.safetensors"));
	int16_t again[N];
	t.data = again;
	must(fo_st_copy(&f, "ties.safetensors", &t));
	assert_memory_equal(again, low, sizeof low);
	t.dtype = FO_BF16;
	assert_int_equal(fo_st_copy(&f, "ties.safetensors", &t), FO_EFORMAT);
	fo_st_close(&f);
	remove("ties.safetensors");
}

/* ---- where training ends ---- */

/* 24 steps on one batch: the loss with each format, against the fp32 master's. */
static void test_training(void **state)
{
	(void)state;
	enum { STEPS = 24 };
	struct fo_model m = step_model(2, 64, 4, 2, 96, 128, false);
	struct step_batch batch;
	enum fo_isa isa;
	double want = 0;
	must(fo_isa_choose(&isa));
	step_batch_random(&batch, 32, 2, 1, m.vocab, 2, 3);
	for (int i = 0; i < FORMATS; i++) {
		struct step_rig r;
		double first = 0;
		train(&r, &m, &batch, format[i].pass, isa, 1, 0);
		r.hyper[FO_HYPER_LR] = 3e-3;
		for (int s = 0; s < STEPS; s++) {
			step_rig_at(&r, s + 1);
			must(fo_exec_step(r.exec, s));
			first = s ? first : r.loss[0];
		}
		want = i ? want : r.loss[0];
		print_message("master %s, moments %s%s: loss %.5f after %.5f\n", fo_master_name[format[i].pass.master],
			      fo_moments_name[format[i].pass.moments], format[i].pass.rounding ? ", at random" : "",
			      r.loss[0], first);
		/* Formats that round at random are within a fiftieth of the way that the fp32 master went. */
		assert_true(want < 0.5 * first);
		if (i < FORMATS - 1)
			assert_true(fabs(r.loss[0] - want) < 0.02 * (first - want));
		step_rig_free(&r);
	}
	step_batch_free(&batch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_promises),     cmocka_unit_test(test_legal),
		cmocka_unit_test(test_dump),         cmocka_unit_test(test_split_trains_alike),
		cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_merged),
		cmocka_unit_test(test_filled_alike), cmocka_unit_test(test_ties_are_loaded),
		cmocka_unit_test(test_training),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
