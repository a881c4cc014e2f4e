/* include/flatout.h: against figures worked out by hand and against the modules behind it; every refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>

#include "base/fs.h"
#include "flatout.h"
#include "model/model.h"
#include "program/program.h"
#include "timeline/timeline.h"

/* A Llama small enough to count by hand: L 2, D 8, H 2, K 1, Q 4, F 16, V 10, untied. */
static const char config[] = "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 8, "
			     "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 16, "
			     "\"vocab_size\": 10, \"tie_word_embeddings\": false}";
/* q, o: 64 each; k, v: 32 each; three of 128; two norms of 8 */
#define LAYER (64 + 64 + 32 + 32 + 3 * 128 + 16)
#define N_MM (2 * LAYER + 8 + 80) /* with the last norm and the head */

static flatout_model *model(void)
{
	flatout_model *m;
	if (flatout_model_parse(config, sizeof(config) - 1, &m) != FLATOUT_OK)
		fail_msg("%s", flatout_error());
	return m;
}

static void says(const char *words)
{
	if (!strstr(flatout_error(), words))
		fail_msg("the error is '%s', expected '%s' in it", flatout_error(), words);
}

static void near(double got, double expected)
{
	if (!(fabs(got - expected) <= 1e-12 * fabs(expected)))
		fail_msg("got %.17g, expected %.17g", got, expected);
}

static void version_is_that_of_the_tree(void **state)
{
	(void)state;
	char path[512], *text;
	size_t n;
	struct fo_arena a = { 0 };
	const char *root = getenv("FLATOUT_SOURCE");
	snprintf(path, sizeof(path), "%s/VERSION", root ? root : ".");
	assert_int_equal(fo_fs_read(&a, path, 100, &text, &n), FO_OK);
	text[strcspn(text, "\n")] = 0;
	assert_string_equal(flatout_version(), text);
	fo_arena_fini(&a);
}

static void counts_match_the_hand(void **state)
{
	(void)state;
	flatout_model *m = model();
	assert_string_equal(flatout_model_name(m), "config.json");
	near(flatout_model_parameters(m, FLATOUT_TOTAL), N_MM + 80);
	near(flatout_model_parameters(m, FLATOUT_ACTIVE), N_MM + 80);
	near(flatout_model_parameters(m, FLATOUT_MATMUL), N_MM);
	near(flatout_model_parameters(m, FLATOUT_EMBEDDING), 80);
	near(flatout_model_flop_per_token(m, 6, FLATOUT_MFU_6N), 6 * N_MM);
	near(flatout_model_flop_per_token(m, 6, FLATOUT_MFU), 6 * N_MM + 12 * 2 * 2 * 4 * 6);
	near(flatout_model_flop_per_token(m, 6, FLATOUT_MFU_CAUSAL), 6 * N_MM + 6 * 2 * 2 * 4 * 6);
	flatout_model_free(m);
	/* Llama 3.1 8B has 8,030,261,248 weights by its checkpoint's index. */
	assert_int_equal(flatout_model_load("llama-3.1-8b", &m), FLATOUT_OK);
	near(flatout_model_parameters(m, FLATOUT_TOTAL), 8030261248.0);
	flatout_model_free(m);
}

static void presets_load_by_name(void **state)
{
	(void)state;
	int n = flatout_preset_count();
	assert_true(n > 20);
	assert_null(flatout_preset_name(-1));
	assert_null(flatout_preset_name(n));
	for (int i = 0; i < n; i++) {
		flatout_model *m;
		assert_int_equal(flatout_model_load(flatout_preset_name(i), &m), FLATOUT_OK);
		assert_string_equal(flatout_model_name(m), flatout_preset_name(i));
		assert_true(flatout_model_parameters(m, FLATOUT_ACTIVE) <= flatout_model_parameters(m, FLATOUT_TOTAL));
		flatout_model_free(m);
	}
}

static void meter_figures(void **state)
{
	(void)state;
	flatout_model *m = model();
	flatout_meter *meter;
	double flop = flatout_model_flop_per_token(m, 6, FLATOUT_MFU);
	/* Two devices of 1000 FLOP per token and second: the MFU is tokens per second over 2000. */
	assert_int_equal(flatout_meter_create(m, 6, 1000 * flop, 2, &meter), FLATOUT_OK);
	flatout_model_free(m); /* the meter keeps nothing of it */
	assert_int_equal(flatout_meter_steps(meter), 0);
	assert_true(isnan(flatout_meter_mfu(meter, FLATOUT_MFU, FLATOUT_MEAN)));
	says("no step yet");
	assert_true(isnan(flatout_meter_tokens_per_second(meter, FLATOUT_LAST)));
	static const double tokens[] = { 100, 400, 200, 900 }, seconds[] = { 1, 2, 0.5, 1 };
	double sum_tokens = 0, sum_seconds = 0;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(flatout_meter_step(meter, tokens[i], seconds[i]), FLATOUT_OK);
		sum_tokens = 0.95 * sum_tokens + tokens[i];
		sum_seconds = 0.95 * sum_seconds + seconds[i];
		if (i == 2) /* rates 100, 200, 400 */
			near(flatout_meter_tokens_per_second(meter, FLATOUT_MEDIAN), 200);
	}
	assert_int_equal(flatout_meter_steps(meter), 4);
	near(flatout_meter_mfu(meter, FLATOUT_MFU, FLATOUT_LAST), 900.0 / 2000);
	near(flatout_meter_mfu(meter, FLATOUT_MFU, FLATOUT_MEAN), 1600 / 4.5 / 2000);
	near(flatout_meter_mfu(meter, FLATOUT_MFU, FLATOUT_MEDIAN), 300.0 / 2000);
	near(flatout_meter_mfu(meter, FLATOUT_MFU, FLATOUT_SMOOTH), sum_tokens / sum_seconds / 2000);
	double share = 6.0 * N_MM / flop;
	near(flatout_meter_mfu(meter, FLATOUT_MFU_6N, FLATOUT_LAST), share * 900 / 2000);
	near(flatout_meter_mfu(meter, FLATOUT_MFU_CAUSAL, FLATOUT_LAST), (1 + share) / 2 * 900 / 2000);
	assert_true(isnan(flatout_meter_mfu(meter, (flatout_rule)7, FLATOUT_LAST)));
	says("7 is no flatout_rule");
	assert_true(isnan(flatout_meter_mfu(meter, FLATOUT_MFU, (flatout_figure)9)));
	says("9 is no flatout_figure");
	flatout_meter_reset(meter);
	assert_int_equal(flatout_meter_steps(meter), 0);
	assert_int_equal(flatout_meter_step(meter, 60, 1), FLATOUT_OK);
	for (int figure = FLATOUT_LAST; figure <= FLATOUT_MEDIAN; figure++)
		near(flatout_meter_tokens_per_second(meter, (flatout_figure)figure), 60);
	flatout_meter_free(meter);
}

/* Many steps, of which the median must not fall out of order or run out of room. */
static void meter_keeps_every_step(void **state)
{
	(void)state;
	flatout_model *m = model();
	flatout_meter *meter;
	assert_int_equal(flatout_meter_create(m, 6, 1e9, 1, &meter), FLATOUT_OK);
	for (int i = 0; i < 10001; i++)
		assert_int_equal(flatout_meter_step(meter, 1 + (i * 7919) % 10001, 1),
				 FLATOUT_OK); /* 1 to 10001, once each */
	near(flatout_meter_tokens_per_second(meter, FLATOUT_MEDIAN), 5001);
	near(flatout_meter_tokens_per_second(meter, FLATOUT_MEAN), 5001);
	flatout_meter_free(meter);
	flatout_model_free(m);
}

static void peaks_come_with_their_source(void **state)
{
	(void)state;
	double peak = 0;
	char source[200], cut[8];
	assert_int_equal(flatout_device_peak("H100", "BF16", &peak, source, sizeof(source)), FLATOUT_OK);
	near(peak, 989e12);
	assert_non_null(strstr(source, ", 20"));
	assert_int_equal(flatout_device_peak("h100", "fp8", &peak, cut, sizeof(cut)), FLATOUT_OK);
	near(peak, 1979e12);
	assert_int_equal(strlen(cut), 7);
	assert_memory_equal(cut, source, 7);
	assert_int_equal(flatout_device_peak("h100", "bf16", &peak, NULL, 0), FLATOUT_OK);
	peak = -1;
	assert_int_equal(flatout_device_peak("h1000\x1b", "bf16", &peak, NULL, 0), FLATOUT_EARG);
	says("unknown device 'h1000\\x1b'");
	assert_true(strlen(flatout_hint()) > 0);
	assert_int_equal(flatout_device_peak("v100", "bf16", &peak, NULL, 0), FLATOUT_EARG);
	says("no published dense peak");
	assert_int_equal(flatout_device_peak("h100", "int3", &peak, NULL, 0), FLATOUT_EARG);
	says("unknown precision");
	assert_int_equal(flatout_device_peak(NULL, "bf16", &peak, NULL, 0), FLATOUT_EARG);
	assert_int_equal(flatout_device_peak("h100", NULL, &peak, NULL, 0), FLATOUT_EARG);
	assert_int_equal(flatout_device_peak("h100", "bf16", NULL, NULL, 0), FLATOUT_EARG);
	says("'peak_flop_s' is NULL");
	assert_true(peak == -1);
}

static void models_are_refused_with_a_sentence(void **state)
{
	(void)state;
	flatout_model *m = (flatout_model *)&m;
	assert_int_equal(flatout_model_load("lama-3.1-8b", &m), FLATOUT_EARG);
	assert_null(m);
	assert_non_null(strstr(flatout_hint(), "llama-3.1-8b"));
	assert_int_equal(flatout_model_parse("{", 1, &m), FLATOUT_EFORMAT);
	assert_null(m);
	assert_int_equal(flatout_model_parse(config, sizeof(config) / 2, &m), FLATOUT_EFORMAT);
	assert_int_equal(flatout_model_load(NULL, &m), FLATOUT_EARG);
	assert_int_equal(flatout_model_parse(NULL, 0, &m), FLATOUT_EARG);
	says("'json' is NULL");
	assert_int_equal(flatout_model_load("llama-3.1-8b", NULL), FLATOUT_EARG);
	assert_int_equal(flatout_model_parse(config, sizeof(config) - 1, NULL), FLATOUT_EARG);
	assert_null(flatout_model_name(NULL));
	assert_true(isnan(flatout_model_parameters(NULL, FLATOUT_TOTAL)));
	assert_true(isnan(flatout_model_flop_per_token(NULL, 1, FLATOUT_MFU)));
	flatout_model_free(NULL);
	m = model();
	assert_true(isnan(flatout_model_parameters(m, (flatout_parameters)4)));
	says("4 is none of");
	assert_true(isnan(flatout_model_flop_per_token(m, 0, FLATOUT_MFU)));
	says("seq is 0");
	assert_true(isnan(flatout_model_flop_per_token(m, ((int64_t)1 << 30) + 1, FLATOUT_MFU)));
	assert_true(isnan(flatout_model_flop_per_token(m, 1, (flatout_rule)-1)));
	flatout_model_free(m);
}

static void meters_are_refused_with_a_sentence(void **state)
{
	(void)state;
	flatout_model *m = model();
	flatout_meter *meter = (flatout_meter *)&meter;
	static const struct {
		int64_t seq;
		double peak;
		int64_t devices;
		const char *words;
	} bad[] = {
		{ 0, 1, 1, "seq is 0" },     { INT64_MAX, 1, 1, "seq is" },     { 1, 0, 1, "peak is 0" },
		{ 1, -1, 1, "peak is -1" },  { 1, NAN, 1, "peak is" },          { 1, INFINITY, 1, "peak is inf" },
		{ 1, 1, 0, "devices is 0" }, { 1, 1, INT64_MIN, "devices is" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(flatout_meter_create(m, bad[i].seq, bad[i].peak, bad[i].devices, &meter),
				 FLATOUT_EARG);
		assert_null(meter);
		says(bad[i].words);
	}
	assert_int_equal(flatout_meter_create(NULL, 1, 1, 1, &meter), FLATOUT_EARG);
	assert_int_equal(flatout_meter_create(m, 1, 1, 1, NULL), FLATOUT_EARG);
	assert_int_equal(flatout_meter_create(m, 1, 1, 1, &meter), FLATOUT_OK);
	static const double wrong[] = { 0, -1, NAN, INFINITY, -INFINITY, 1.1e18 };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(flatout_meter_step(meter, wrong[i], 1), FLATOUT_EARG);
		says("tokens, expected");
		assert_int_equal(flatout_meter_step(meter, 1, wrong[i]), FLATOUT_EARG);
		says("seconds, expected");
	}
	assert_int_equal(flatout_meter_steps(meter), 0); /* a refused step leaves no trace */
	assert_int_equal(flatout_meter_step(NULL, 1, 1), FLATOUT_EARG);
	assert_int_equal(flatout_meter_steps(NULL), -1);
	assert_true(isnan(flatout_meter_mfu(NULL, FLATOUT_MFU, FLATOUT_LAST)));
	says("flatout_meter_mfu: 'meter' is NULL");
	flatout_meter_reset(NULL);
	flatout_meter_free(NULL);
	flatout_meter_free(meter);
	flatout_model_free(m);
}

static void *fails_elsewhere(void *unused)
{
	(void)unused;
	flatout_model *m;
	assert_string_equal(flatout_error(), "");
	assert_int_equal(flatout_model_load("nothing-like-it", &m), FLATOUT_EARG);
	return NULL;
}

static void errors_belong_to_their_thread(void **state)
{
	(void)state;
	pthread_t thread;
	flatout_model *m;
	assert_int_equal(flatout_model_load(NULL, &m), FLATOUT_EARG);
	assert_int_equal(pthread_create(&thread, NULL, fails_elsewhere, NULL), 0);
	pthread_join(thread, NULL);
	says("'name' is NULL");
	/* Success leaves the text alone. */
	m = model();
	flatout_model_free(m);
	says("'name' is NULL");
}

/* The training loop's own meter and this one give the same number. */
static void agrees_with_the_step_meter(void **state)
{
	(void)state;
	struct fo_program p = { 0 };
	const struct fo_model *preset = NULL;
	for (int i = 0; i < fo_model_preset_count(); i++)
		if (!strcmp(fo_model_preset(i)->name, "flatout-134m"))
			preset = fo_model_preset(i);
	assert_non_null(preset);
	p.model = *preset;
	p.run.seq = 64;
	p.run.micro_batches = 2;
	struct fo_mfu step = fo_mfu_of_step(&p, 200, 1000, 0.25, 5e12);
	flatout_model *m;
	flatout_meter *meter;
	assert_int_equal(flatout_model_load("flatout-134m", &m), FLATOUT_OK);
	assert_int_equal(flatout_meter_create(m, 64, 5e12, 1, &meter), FLATOUT_OK);
	assert_int_equal(flatout_meter_step(meter, 200, 0.25), FLATOUT_OK);
	near(flatout_meter_mfu(meter, FLATOUT_MFU, FLATOUT_LAST), step.mfu);
	near(flatout_meter_mfu(meter, FLATOUT_MFU_CAUSAL, FLATOUT_LAST), step.mfu_causal);
	near(flatout_meter_mfu(meter, FLATOUT_MFU_6N, FLATOUT_LAST), step.mfu_6n);
	flatout_meter_free(meter);
	flatout_model_free(m);
}

int main(void)
{
	char path[512];
	const char *root = getenv("FLATOUT_SOURCE");
	snprintf(path, sizeof(path), "%s/data", root ? root : ".");
	setenv("FLATOUT_DATA", path, 1);
	unsetenv("FLATOUT_DEVICES");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(version_is_that_of_the_tree),
		cmocka_unit_test(counts_match_the_hand),
		cmocka_unit_test(presets_load_by_name),
		cmocka_unit_test(meter_figures),
		cmocka_unit_test(meter_keeps_every_step),
		cmocka_unit_test(peaks_come_with_their_source),
		cmocka_unit_test(models_are_refused_with_a_sentence),
		cmocka_unit_test(meters_are_refused_with_a_sentence),
		cmocka_unit_test(errors_belong_to_their_thread),
		cmocka_unit_test(agrees_with_the_step_meter),
	};
	return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
