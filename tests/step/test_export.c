/* Checkpoints are models in Hugging Face's layout: for every architecture, a few steps are trained, the checkpoint is
 * saved, read back by its config.json as a folder of anybody's would be, and holds the same weights and model. With
 * FLATOUT_EXPORT_DIR the checkpoints stay there, each beside the tokens and logits that tests/golden/check_export.py
 * holds transformers to. */
#include "support/step.h"
#include "base/fs.h"
#include "train/train.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEQ = 24, ROWS = 2, STEPS = 3, VOCAB = 48 };

static char root[256];

struct tensors {
	struct fo_st_tensor *t;
	size_t n, cap;
	int lo, hi; /* which: 0 weight, 1 master, 2 and 3 moments */
};

static fo_status collect(void *ctx, const struct fo_store_tensor *s)
{
	static const char *const prefix[] = { "", "master.", "m.", "v." };
	struct tensors *l = ctx;
	if (s->which < l->lo || s->which > l->hi)
		return FO_OK;
	fo_array_room(&l->t, &l->cap, l->n, sizeof *l->t);
	struct fo_st_tensor *t = &l->t[l->n++];
	*t = (struct fo_st_tensor){ .dtype = s->dtype,
				    .vector = s->rows == 1,
				    .rows = s->rows,
				    .cols = s->cols,
				    .ld = s->ld,
				    .data = s->data };
	snprintf(t->name, sizeof t->name, "%s%s", prefix[s->which], s->name);
	return FO_OK;
}

/* Every weight of `a` is in `b` with the same values; returns how many there are. */
static size_t same_weights(struct step_rig *a, struct step_rig *b)
{
	struct tensors x = { 0 }, y = { 0 };
	must(fo_store_visit(a->store, &a->program, collect, &x));
	must(fo_store_visit(b->store, &b->program, collect, &y));
	assert_int_equal(x.n, y.n);
	for (size_t i = 0; i < x.n; i++) {
		assert_string_equal(x.t[i].name, y.t[i].name);
		assert_true(x.t[i].rows == y.t[i].rows && x.t[i].cols == y.t[i].cols);
		for (int64_t r = 0; r < x.t[i].rows; r++)
			for (int64_t c = 0; c < x.t[i].cols; c++)
				assert_true(step_get(x.t[i].data, x.t[i].dtype, r * x.t[i].ld + c) ==
					    step_get(y.t[i].data, y.t[i].dtype, r * y.t[i].ld + c));
	}
	size_t n = x.n;
	free(x.t), free(y.t);
	return n;
}

/* Tokens and fp32 logits of the batch, for check_export.py. */
static void write_expected(const struct step_rig *r, const char *path)
{
	int64_t n = (int64_t)ROWS * SEQ * VOCAB;
	float *logits = fo_xmalloc((size_t)n * sizeof *logits);
	for (int64_t i = 0; i < n; i++)
		logits[i] = (float)r->logits[i];
	const struct fo_st_tensor t[] = {
		{ .name = "tokens", .dtype = FO_I32, .rows = ROWS, .cols = SEQ, .ld = SEQ, .data = r->batch->token },
		{ .name = "logits", .dtype = FO_F32, .rows = ROWS * SEQ, .cols = VOCAB, .ld = VOCAB, .data = logits },
	};
	uint64_t sum;
	must(fo_st_write(path, t, 2, NULL, &sum));
	free(logits);
}

static void export_one(const char *name, const struct fo_model *m, enum fo_numerics precision)
{
	struct step_batch b;
	struct step_rig r, back;
	struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 2, .timeline_steps = 1 };
	struct fo_arena a = { 0 };
	must(fo_isa_choose(&o.isa));
	step_batch_random(&b, SEQ, ROWS, 1, VOCAB, 0, 5);
	struct fo_lowering low = step_lowering(&b, precision, FO_MODE_TRAIN);
	step_rig_lower(&r, m, &low, &b, &o);
	r.hyper[FO_HYPER_LR] = 0.02; /* far enough from zeros (biases) and ones (norms) that every tensor matters */
	for (int i = 0; i < STEPS; i++) {
		step_rig_at(&r, i + 1);
		must(fo_exec_step(r.exec, i));
	}
	struct tensors weight = { 0 }, state = { .lo = 1, .hi = 3 };
	must(fo_store_visit(r.store, &r.program, collect, &weight));
	must(fo_store_visit(r.store, &r.program, collect, &state));
	const struct fo_ckpt_content c = { .model = m,
					   .weight_dtype = precision == FO_PRECISION_BF16 ? "bfloat16" : "float32",
					   .weight = weight.t,
					   .weights = weight.n,
					   .state = state.t,
					   .states = state.n };
	const struct fo_ckpt_meta meta = { .step = STEPS, .precision = "x" };
	char *dir = fo_arena_printf(&a, "%s/%s-%s", root, name, fo_numerics_name[precision]);
	must(fo_ckpt_save(dir, &c, &meta, 1));

	char *path = fo_arena_printf(&a, "%s/step-%08d", dir, STEPS);
	struct fo_model again;
	must(fo_model_load(path, &again));
	assert_string_equal(fo_model_type(&again), fo_model_type(m));
	low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_LOGITS);
	step_rig_lower(&back, &again, &low, &b, &o);
	step_rig_load(&back, path);
	assert_int_equal(same_weights(&r, &back), weight.n);
	must(fo_exec_step(back.exec, 0));
	for (int64_t i = 0; i < (int64_t)ROWS * SEQ * VOCAB; i++)
		assert_true(isfinite(back.logits[i]));
	write_expected(&back, fo_arena_printf(&a, "%s/expected.safetensors", dir));
	free(weight.t), free(state.t);
	step_rig_free(&back);
	step_rig_free(&r);
	step_batch_free(&b);
	fo_arena_fini(&a);
}

static void test_export(void **state)
{
	(void)state;
	const struct fo_rope llama3 = { 500000, FO_ROPE_LLAMA3, 8, 1, 4, 16, "" };
	struct {
		const char *name, *type;
		struct fo_model m;
	} c[] = {
		{ "llama2", "llama", step_model(2, 32, 4, 4, 40, VOCAB, false) },
		{ "llama3", "llama", step_model(2, 32, 4, 2, 40, VOCAB, false) },
		{ "llama31", "llama", step_model(2, 32, 4, 2, 40, VOCAB, false) },
		{ "llama32", "llama", step_model(2, 32, 4, 1, 40, VOCAB, true) },
		{ "llama_bias", "llama", step_model(2, 32, 4, 2, 40, VOCAB, false) },
		{ "mistral", "mistral", step_model(2, 32, 4, 2, 40, VOCAB, false) },
		{ "qwen2", "qwen2", step_model(2, 32, 4, 2, 40, VOCAB, true) },
		{ "qwen2_window", "qwen2", step_model(2, 32, 4, 2, 40, VOCAB, false) },
		{ "qwen3", "qwen3", step_model(2, 32, 4, 2, 40, VOCAB, false) },
		{ "qwen3_bias_window", "qwen3", step_model(2, 32, 4, 2, 40, VOCAB, true) },
	};
	c[2].m.rope = c[3].m.rope = llama3;
	c[3].m.head_dim = 12; /* not hidden / heads */
	c[4].m.attention_bias = c[4].m.output_bias = c[4].m.mlp_bias = true;
	c[4].m.rope = (struct fo_rope){ .theta = 10000, .type = FO_ROPE_LINEAR, .factor = 3 };
	c[5].m.sliding_window = 6;
	c[6].m.attention_bias = c[7].m.attention_bias = true;
	c[7].m.sliding_window = 5;
	c[8].m.qk_norm = c[9].m.qk_norm = true;
	c[8].m.head_dim = 10;
	c[9].m.attention_bias = c[9].m.output_bias = true;
	c[9].m.sliding_window = 9;
	for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
		assert_string_equal(fo_model_type(&c[i].m), c[i].type);
		export_one(c[i].name, &c[i].m, FO_PRECISION_F32);
		export_one(c[i].name, &c[i].m, FO_PRECISION_BF16);
	}
}

static int make_root(void **state)
{
	(void)state;
	const char *keep = getenv("FLATOUT_EXPORT_DIR");
	snprintf(root, sizeof root, "%s", keep && *keep ? keep : "test_export.XXXXXX");
	return keep && *keep ? fo_fs_mkdirs(root) != FO_OK : !mkdtemp(root);
}

static int remove_root(void **state)
{
	(void)state;
	const char *keep = getenv("FLATOUT_EXPORT_DIR");
	return keep && *keep ? 0 : fo_fs_remove_tree(root) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_export) };
	return cmocka_run_group_tests(tests, make_root, remove_root);
}
