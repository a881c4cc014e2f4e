/* src/score: tables of published runs, and how far predictions are from them without the rows' own models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hw/catalogue.h"
#include "predict/predict_int.h"
#include "score/score.h"

static struct fo_catalogue catalogue;

static int load(void **state)
{
	(void)state;
	return fo_catalogue_load(&catalogue, NULL) != FO_OK;
}
static int unload(void **state)
{
	(void)state;
	fo_catalogue_fini(&catalogue);
	return 0;
}

/* docs/accuracy.md's figures, with room for another compiler's rounding. */
static void test_own(void **state)
{
	(void)state;
	static struct fo_score s;
	struct fo_score_table t;
	struct fo_score_options o = { .fit = true };
	assert_int_equal(fo_score_read_own(&catalogue, &t), FO_OK);
	assert_int_equal(fo_score_of(&t, NULL, &o, &s), FO_OK);
	assert_true(s.overall.covered >= .9 * s.overall.rows && s.overall.rows > 600);
	assert_true(s.overall.mean < .06 && s.overall.median < .042);
	assert_true(s.overall.inside > .72 && s.overall.inside < .88 && s.overall.width < .10);
	assert_true(s.overall.memory < .04 && s.overall.memory_median < .02);
	assert_true(s.moe.rows == 123 && s.moe.mean < .18);
	for (int i = 0; i < s.groups; i++)
		if (s.group[i].rows >= 20)
			assert_true(s.group[i].mean < s.group[i].guess);
	/* Constants stay within their bounds, and the built-in ones are those of this fit. */
	for (int i = 0; i < fo_predict_constant_count; i++) {
		const struct fo_predict_constant_row *c = &fo_predict_constant_row[i];
		assert_true(s.x[i] >= c->low * .999 && s.x[i] <= c->high * 1.001);
		if (fabs(s.x[i] / c->value - 1) > .02)
			fail_msg("%s: %g built in, %g fitted: copy flatout score --constants", c->id, c->value, s.x[i]);
	}
	fo_score_fini(&t);
}

static fo_status read(const char *text, struct fo_score_table *t)
{
	return fo_score_read_text(text, strlen(text), "runs.csv", &catalogue, t);
}

/* A table of one run with the least of columns: the rest is inferred, and said. */
static void test_inferred(void **state)
{
	(void)state;
	static struct fo_score s;
	struct fo_score_table t, own;
	struct fo_score_options o = { .fit = true };
	assert_int_equal(
		read("model,gpu,gpus,seq_len,step_time_s,global_batch_seqs\n"
		     "Llama-3.1-8B,H100,8,8192,10,128\nnobody-7b,H100,8,8192,10,128\nLlama-3.1-8B,TPUv5p,8,8192,1,8\n"
		     "Llama-3.1-8B,no-such-gpu,8,8192,1,8\nLlama-3.1-8B,H100,0,8192,1,8\n",
		     &t),
		FO_OK);
	assert_int_equal(t.rows, 5);
	assert_int_equal(fo_score_read_own(&catalogue, &own), FO_OK);
	assert_int_equal(fo_score_of(&t, &own, &o, &s), FO_OK);
	assert_true(t.row[0].covered && t.row[0].predicted > 3000 && t.row[0].predicted < 30000);
	assert_true(fabs(t.row[0].tokens_s - 128 * 8192 / 10. / 8) < 1);
	assert_non_null(strstr(t.row[0].inferred, "shape, by its name"));
	assert_non_null(strstr(t.row[0].inferred, "micro_batch"));
	/* Nobody saw this publisher: a neutral stack, and a wide interval. */
	assert_int_equal(t.row[0].job.style, FO_PREDICT_STYLE_EAGER);
	assert_true(t.row[0].half_width > .12);
	for (int i = 1; i < 5; i++)
		assert_true(!t.row[i].covered && (t.row[i].out || t.row[i].refused));
	assert_int_equal(s.overall.rows, 3); /* not the TPU, not the row without devices */
	fo_score_fini(&own);
	fo_score_fini(&t);
}

/* Other headings, spellings and separators than ours: the same fit, the same prediction. */
static void test_spellings(void **state)
{
	(void)state;
	static struct fo_score s;
	struct fo_score_table t;
	struct fo_score_options o = { .fit = true };
	assert_int_equal(read("source_group,model,gpu,gpus,seq_len,precision,tp,global_batch_seqs,"
			      "tokens_per_s_per_gpu,framework\n"
			      "a,Llama-3.1-8B,H100,8,8192,fp8,1,1280,14000,nemo\n"
			      "a,Llama-3.1-8B,GB300,64,8192,nvfp4,1,1280,14000,nemo\n"
			      "a,Llama-3.1-8B,B200,64,8192,mxfp8,1,1280,14000,nemo\n",
			      &t),
			 FO_OK);
	assert_int_equal(fo_score_of(&t, NULL, &o, &s), FO_OK);
	double want[3];
	for (int i = 0; i < 3; i++)
		want[i] = t.row[i].predicted;
	fo_score_fini(&t);
	assert_int_equal(read("Tokens / sec / GPU,GBS,TP,dtype,Sequence Length,#-GPUs,Accelerator,Model,Framework,"
			      "Publisher\n"
			      "\"14,000\",\"1,280\",n/a,fp8_hybrid,8k,8,NVIDIA H100 SXM5 80GB,Llama-3.1-8B,"
			      "NeMo 25.09,a\n"
			      "14k,1280,,NVFP4,8192 (packed),64,GB300-NVL72,llama3.1_8b,NVIDIA NeMo,a\n"
			      "14e3,1_280,-,FP8-MX,8K,64,8xB200 180GB,LLAMA3_8B,nemo,a\n",
			      &t),
			 FO_OK);
	assert_int_equal(fo_score_of(&t, NULL, &o, &s), FO_OK);
	for (int i = 0; i < 3; i++)
		assert_true(t.row[i].covered && fabs(t.row[i].predicted / want[i] - 1) < 1e-12 &&
			    t.row[i].tokens_s == 14000);
	fo_score_fini(&t);
}

static void test_wrong(void **state)
{
	(void)state;
	const struct {
		const char *text, *says;
	} of[] = { { "", "empty" },
		   { "a,b\n1,2\n", "no column 'model'" },
		   { "model,gpu,gpus\nx,H100,8\n", "no column 'seq_len'" },
		   { "model,gpu,gpus,seq_len\nx,H100\n", "runs.csv:2" },
		   { "model,gpu,gpus,seq_len,gpus\nx,H100,8,1,8\n", "'gpus' stands twice" },
		   { "model,gpu,gpus,seq_len\n\"x,H100,8,1\n", "runs.csv:2" } };
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		struct fo_score_table t;
		assert_int_equal(read(of[i].text, &t), FO_EFORMAT);
		assert_non_null(strstr(fo_err_text(), of[i].says));
		fo_err_clear();
		fo_score_fini(&t);
	}
	static struct fo_score s;
	struct fo_score_table t;
	struct fo_score_options o = { .fit = true };
	assert_int_equal(read("model,gpu,gpus,seq_len\n", &t), FO_OK);
	assert_int_equal(fo_score_of(&t, NULL, &o, &s), FO_EARG);
	fo_err_clear();
	fo_score_fini(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own),
		cmocka_unit_test(test_inferred),
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_wrong),
	};
	return cmocka_run_group_tests(tests, load, unload);
}
