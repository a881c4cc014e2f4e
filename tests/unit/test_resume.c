/* What a resumed run is compared in: every row of the table alone, every option of a run in it, no false alarm on any
 * model. */
#include "program/run.h"
#include "train/resume.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct both {
	struct fo_model model;
	struct fo_ckpt_meta meta;
	struct fo_passes passes;
	uint64_t val;
	const char *kernels;
};

static struct both sample(void)
{
	struct both b = {
		.meta = { .step = 90,
			  .seq = 32,
			  .rows_per_step = 4,
			  .precision = "bf16",
			  .master = "fp32",
			  .moments = "fp32",
			  .tokenizer_checksum = 11,
			  .loader = { 90, 1, 12 } },
		.passes = { .fp8 = FO_FP8_DELAYED, .fp8_history = 16, .fp8_first = 1, .fp8_last = 2, .fuse_loss = 512 },
		.val = 13,
		.kernels = "avx2"
	};
	if (fo_model_load("llama-3.1-8b", &b.model) != FO_OK)
		fail_msg("%s", fo_err_text());
	return b;
}

static void compare(const struct both *was, const struct both *is, struct fo_resume_differences *d)
{
	struct fo_str passes[2] = { { 0 }, { 0 } };
	fo_passes_text(&was->passes, &passes[0]);
	fo_passes_text(&is->passes, &passes[1]);
	const struct fo_resume_side a = { &was->model, &was->meta, passes[0].data, &was->val, was->kernels },
				    b = { &is->model, &is->meta, passes[1].data, &is->val, is->kernels };
	fo_resume_compare(&a, &b, d);
	fo_str_fini(&passes[0]);
	fo_str_fini(&passes[1]);
}

/* Changes what the row is about, and nothing else. */
static void change(const struct fo_resume_row *row, struct both *b)
{
	char *model = (char *)&b->model + row->offset, *meta = (char *)&b->meta + row->offset;
	switch (row->kind) {
	case FO_RESUME_MODEL_INT: ++*(int64_t *)(void *)model; break;
	case FO_RESUME_MODEL_FLAG: *(bool *)model = !*(bool *)model; break;
	case FO_RESUME_MODEL_REAL: *(double *)(void *)model *= 1 + 1e-12; break;
	case FO_RESUME_MODEL_TYPE: b->model.qk_norm = true; break;
	case FO_RESUME_ROPE_TYPE: b->model.rope.type = FO_ROPE_DEFAULT; break;
	case FO_RESUME_META_INT:
	case FO_RESUME_META_PACKING: ++*(int64_t *)(void *)meta; break;
	case FO_RESUME_META_TEXT: strcpy(meta, strcmp(meta, "none") ? "none" : "bf16"); break;
	case FO_RESUME_META_SEED:
	case FO_RESUME_META_CHECKSUM: ++*(uint64_t *)(void *)meta; break;
	case FO_RESUME_PASS:
		fo_passes_set(&b->passes, row->offset, fo_passes_get(&b->passes, row->offset) == 1 ? 0 : 1);
		break;
	case FO_RESUME_VAL_CHECKSUM: b->val++; break;
	case FO_RESUME_KERNELS: b->kernels = "ref"; break;
	}
}

/* Is `name` said with both values? */
static bool names(const char *text, const char *name, const char *there, const char *here)
{
	char want[256];
	snprintf(want, sizeof want, "%s is %s there and %s here", name, there, here);
	return text && strstr(text, want);
}

static void test_each_row_alone(void **state)
{
	(void)state;
	for (int i = 0; i < fo_resume_rows(); i++) {
		const struct fo_resume_row row = fo_resume_row(i);
		struct both was = sample(), is = sample();
		struct fo_resume_differences d;
		change(&row, &is);
		compare(&was, &is, &d);
		bool refused = d.refused.len, warned = d.warned.len;
		if (refused != (row.rule == FO_RESUME_SAME) || warned != (row.rule == FO_RESUME_WARNED) ||
		    d.unknown.len)
			fail_msg("%s: refused '%s', warned '%s', unknown '%s'", row.name,
				 d.refused.len ? d.refused.data : "", d.warned.len ? d.warned.data : "",
				 d.unknown.len ? d.unknown.data : "");
		const struct fo_resume_side a = { &was.model, &was.meta, "fp8=delayed", &was.val, was.kernels },
					    b = { &is.model, &is.meta, "fp8=delayed", &is.val, is.kernels };
		char there[80], here[80];
		if (refused && row.kind != FO_RESUME_PASS) {
			assert_true(fo_resume_value(&row, &a, there, sizeof there) &&
				    fo_resume_value(&row, &b, here, sizeof here));
			if (!strcmp(there, here) || !names(d.refused.data, row.name, there, here))
				fail_msg("%s: %s", row.name, d.refused.data);
		}
		if (warned)
			assert_non_null(strstr(d.warned.data, row.name));
		/* One change is one difference, but that biases and norms are the type, too, and one scaling has other
		 * numbers than another. */
		bool one = row.kind != FO_RESUME_MODEL_TYPE && row.kind != FO_RESUME_ROPE_TYPE &&
			   row.kind != FO_RESUME_MODEL_FLAG && strcmp(row.name, "sliding_window") != 0;
		if (refused && one && strchr(d.refused.data, ';'))
			fail_msg("%s: %s", row.name, d.refused.data);
		fo_resume_differences_fini(&d);
	}
}

/* All differences stand in one text, with what sets them right. */
static void test_several(void **state)
{
	(void)state;
	struct both was = sample(), is = sample();
	struct fo_resume_differences d;
	is.model.heads = 64;
	is.model.norm_eps = 1e-6;
	is.model.rope.theta = 10000;
	is.passes.fp8 = FO_FP8_OFF;
	is.passes.fp8_history = is.passes.fp8_first = is.passes.fp8_last = 0;
	is.val = 14;
	is.meta.rows_per_step = 8;
	compare(&was, &is, &d);
	assert_true(names(d.refused.data, "model.heads", "32", "64"));
	assert_true(names(d.refused.data, "rms_norm_eps", "1e-05", "1e-06"));
	assert_true(names(d.refused.data, "rope_theta", "500000", "10000"));
	assert_true(names(d.refused.data, "pass.fp8", "delayed", "off"));
	assert_true(names(d.refused.data, "pass.fp8-skip-first", "1", "0"));
	assert_true(names(d.refused.data, "checksum of val.shard", "000000000000000d", "000000000000000e"));
	assert_non_null(strstr(d.set.data, "model.heads=32, pass.fp8=delayed"));
	assert_null(strstr(d.set.data, "rope_theta")); /* no option: the model's own file says it */
	assert_true(d.model);
	assert_true(d.data);
	assert_non_null(strstr(d.warned.data, "rows in a step: 4 in the checkpoint, 8 from here on"));
	fo_resume_differences_fini(&d);
}

/* What an old checkpoint does not say is named and never called different. */
static void test_not_recorded(void **state)
{
	(void)state;
	struct both b = sample();
	struct fo_resume_differences d;
	struct fo_ckpt_meta old = b.meta;
	old.seq = old.rows_per_step = 0;
	const struct fo_resume_side is = { &b.model, &b.meta, "none", &b.val, b.kernels }, none = { .meta = &old };
	fo_resume_compare(&none, &is, &d);
	assert_true(!d.refused.len && !d.warned.len);
	static const char *const want[] = { "model.heads",           "rope_theta",    "pass.fp8", "data.seq",
					    "checksum of val.shard", "rows in a step" };
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		assert_non_null(strstr(d.unknown.data, want[i]));
	assert_null(strstr(d.unknown.data, "train.precision"));
	fo_resume_differences_fini(&d);
}

/* A model that went through its checkpoint's config.json is itself. */
static void test_models_come_back(void **state)
{
	(void)state;
	int tried = 0;
	for (int i = 0; i < fo_model_preset_count(); i++) {
		struct fo_arena a = { 0 };
		struct both was = sample(), is = sample();
		struct fo_resume_differences d;
		is.model = *fo_model_preset(i);
		if (fo_model_trainable(&is.model) == FO_OK) {
			const char *text = fo_model_config_json(&a, &is.model, "bfloat16", 1, 2);
			if (fo_model_parse(text, strlen(text), "config.json", &was.model) != FO_OK)
				fail_msg("%s: %s", is.model.name, fo_err_text());
			compare(&was, &is, &d);
			if (d.refused.len || d.warned.len || d.unknown.len)
				fail_msg("%s: %s", is.model.name, d.refused.len ? d.refused.data : "a warning");
			fo_resume_differences_fini(&d);
			tried++;
		}
		fo_arena_fini(&a);
	}
	assert_true(tried > 5);
}

/* Is key one of the words of list? */
static bool has_word(const char *list, const char *key)
{
	size_t n = strlen(key);
	for (const char *p = list; *p; p += strspn(p, " ")) {
		size_t len = strcspn(p, " ");
		if (len == n && !strncmp(p, key, n))
			return true;
		p += len;
	}
	return false;
}

/* Every option of a run is compared or listed as free, once: a new one cannot be forgotten. */
static void test_every_option(void **state)
{
	(void)state;
	for (const struct fo_opt *o = fo_run_options; o->key; o++) {
		int times = 0;
		for (int i = 0; i < fo_resume_rows(); i++) {
			const struct fo_resume_row row = fo_resume_row(i);
			times += has_word(row.options ? row.options : row.name, o->key);
		}
		for (const char *const *f = fo_resume_free; *f; f++)
			times += !strcmp(*f, o->key);
		if (times != 1)
			fail_msg("%s stands %d times in the tables of src/train/resume.c, expected once", o->key,
				 times);
	}
	for (const char *const *f = fo_resume_free; *f; f++) {
		bool known = false;
		for (const struct fo_opt *o = fo_run_options; o->key; o++)
			known |= !strcmp(o->key, *f);
		if (!known)
			fail_msg("%s is no option of a run", *f);
	}
}

/* Every byte of a model that a trainable one may set is under a row: a new field shows here. */
static void test_every_field(void **state)
{
	(void)state;
	unsigned char under[sizeof(struct fo_model)] = { 0 };
	const struct {
		size_t at, bytes;
	} apart[] = {
		/* The name, what says the type, and what only models have that are not trained. */
		{ offsetof(struct fo_model, name), sizeof(((struct fo_model *)0)->name) },
		{ offsetof(struct fo_model, family), sizeof(enum fo_family) },
		{ offsetof(struct fo_model, norm_bias), sizeof(bool) },
		{ offsetof(struct fo_model, learned_position), sizeof(bool) },
		{ offsetof(struct fo_model, rope.type), sizeof(enum fo_rope_type) }, /* has a row of its own */
		{ offsetof(struct fo_model, rope.other), sizeof(((struct fo_model *)0)->rope.other) },
		{ offsetof(struct fo_model, experts), sizeof(struct fo_model) - offsetof(struct fo_model, experts) },
	};
	for (int i = 0; i < fo_model_fields; i++)
		memset(under + fo_model_field[i].offset, 1, fo_model_field[i].type == 'b' ? sizeof(bool) : 8);
	for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
		memset(under + apart[i].at, 1, apart[i].bytes);
	size_t bare = 0;
	for (size_t i = 0; i < sizeof under; i++)
		bare += !under[i];
	/* Padding: 4 bytes behind the family, 4 behind the rope's type. */
	if (bare > 8)
		fail_msg("%zu bytes of struct fo_model are under no row of fo_model_field", bare);
}

static void test_place_in_the_text(void **state)
{
	(void)state;
	int64_t left_out;
	assert_int_equal(fo_resume_next_step(90, 4, 4, &left_out), 90);
	assert_int_equal(left_out, 0);
	assert_int_equal(fo_resume_next_step(90, 4, 8, &left_out), 45);
	assert_int_equal(left_out, 0);
	assert_int_equal(fo_resume_next_step(90, 4, 2, &left_out), 180);
	assert_int_equal(fo_resume_next_step(7, 4, 8, &left_out),
			 4); /* 28 rows were seen, the fifth step of 8 begins at 32 */
	assert_int_equal(left_out, 4);
	assert_int_equal(fo_resume_next_step(7, 0, 8, &left_out), 7); /* not recorded */
	assert_int_equal(fo_resume_next_step(INT64_MAX / 2, 4, 8, &left_out), INT64_MAX / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_row_alone),    cmocka_unit_test(test_several),
		cmocka_unit_test(test_not_recorded),      cmocka_unit_test(test_models_come_back),
		cmocka_unit_test(test_every_option),      cmocka_unit_test(test_every_field),
		cmocka_unit_test(test_place_in_the_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
