/* ladder.html of a ladder with every kind of rung. `test_ladder_html FILE` writes the page there instead, for
 * tests/cli/html.sh. */
#include "ladder/ladder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 120, RUNGS = 9 };

static void spread(struct fo_spread *s, double v) { *s = (struct fo_spread){ v, v * 0.96, v * 1.02, 1 }; }

/* speed: times that of the baseline. */
static void rung(struct fo_ladder_rung *r, const char *name, int from, enum fo_ladder_verdict verdict, double speed,
		 double gain)
{
	static double loss[RUNGS][STEPS], rate[RUNGS][5];
	static const struct fo_ladder_change change = { "pass.merge-qkv", "yes", "no" };
	static int n;
	int k = n++ % RUNGS;
	*r = (struct fo_ladder_rung){
		.name = name,
		.what = "one sentence on what this rung changes, long enough that it takes two lines on a telephone",
		.from = from,
		.change = from < 0 ? NULL : &change,
		.changes = from >= 0,
		.options = "--data.packing=padded --pass.merge-qkv=yes --pass.recompute=full",
		.dir = "ladder/a",
		.steps_done = STEPS,
		.rounds_done = 5,
		.peak_flop_s = 63e9,
		.round_tokens_s = rate[k],
		.peak_dtype = "bf16",
		.peak_source = "calibrated: avx2 loop, 2 threads, best of 400 bursts",
		.timed_steps = 110,
		.step_tokens = 2000,
		.padding = from < 0 ? 0.31 : 0.002,
		.text_seen = from < 0 ? 0.124 : 0.18,
		.text_passes = from < 0 ? 0.124 : 0.18,
		.text_reached = 1,
		.quiet_s = 0.9 / speed,
		.measured_bytes = 300 << 20,
		.verdict = verdict,
		.gain = gain,
		.gain_low = gain - 0.03,
		.gain_high = gain + 0.02,
		.gain_level = 0.9375,
		.predicted_gain = from < 0 ? NAN : gain * 1.01,
		.val_loss = 4.5,
		.reference = from < 0 ? k : 0,
		.check = from < 0 ? FO_LADDER_REFERENCE : FO_LADDER_HELD,
		.deviation = 3e-4,
		.tolerance = 1e-2
	};
	for (int i = 0; i < FO_LADDER_RULES; i++) {
		spread(&r->mfu[i], 0.12 * speed * (1 - 0.05 * i));
		r->quiet_mfu[i] = 0.16 * speed;
	}
	for (int i = 0; i < 5; i++)
		rate[k][i] = 2048 * speed * (1 + (from < 0 ? 0.01 : 0.02) * i);
	spread(&r->step_s, 1 / speed);
	spread(&r->tokens_s, 2048 * speed);
	for (int p = 0; p < FO_PART_COUNT; p++)
		r->part_s[p] = (p == FO_PART_MATMUL ? 0.6 : p == FO_PART_COMMUNICATION ? 0 : 0.057) / speed;
	for (int i = 0; i < STEPS; i++)
		loss[k][i] = 4 + 4.0 / (1 + i * 0.05) + 0.001 * k;
	loss[k][STEPS - 1 - k] = NAN;
	r->loss = loss[k];
}

static void sample(struct fo_ladder *l)
{
	static struct fo_ladder_rung r[RUNGS];
	*l = (struct fo_ladder){ .dir = "ladder",
				 .started = "2026-11-21T20:00:00Z",
				 .version = "0.1.0",
				 .model = "flatout-134m",
				 .params = 134e6,
				 .flop_per_token = 0.8e9,
				 .seq = 512,
				 .tokens_per_step = 4096,
				 .cpu = "AMD EPYC (Zen 3)",
				 .isa = "avx2",
				 .threads = 2,
				 .run_file = "run.yaml",
				 .steps = STEPS,
				 .rounds = 5,
				 .seed = 7,
				 .rung = r,
				 .rungs = RUNGS };
	rung(&r[0], "baseline", -1, FO_LADDER_BASELINE, 1, NAN);
	rung(&r[1], "packing", 0, FO_LADDER_GAIN, 1.4, 1.4);
	rung(&r[2], "merge-qkv", 1, FO_LADDER_UNRESOLVED, 1.41, 1.01);
	rung(&r[3], "fuse-elementwise", 2, FO_LADDER_GAIN, 1.6, 1.12);
	rung(&r[4], "no-recompute", 3, FO_LADDER_GAIN, 2, 1.25);
	rung(&r[5], "fused-optimizer", 4, FO_LADDER_LOSS, 1.8, 0.91);
	rung(&r[6], "fp8-emulated", 4, FO_LADDER_NUMERICS_ONLY, 0.5, NAN);
	r[6].numerics_only = true;
	rung(&r[7], "fp32", 4, FO_LADDER_FAILED, NAN, NAN);
	r[7].reason = "no plan of this step fits into 1.00 MiB";
	r[7].loss = NULL;
	rung(&r[8], "eager-attention", 4, FO_LADDER_UNMEASURED, NAN, NAN);
	r[8].check = FO_LADDER_UNCHECKED;
}

static void page(const struct fo_ladder *l, struct fo_str *out)
{
	struct fo_doc d = { 0 };
	fo_ladder_doc(l, false, &d);
	fo_doc_to_html(&d, out);
	fo_doc_fini(&d);
}

static bool has(const struct fo_str *s, const char *what)
{
	if (strstr(s->data, what))
		return true;
	print_error("the page does not say '%s'\n", what);
	return false;
}

static void test_page(void **state)
{
	(void)state;
	struct fo_ladder l;
	struct fo_str out = { 0 };
	sample(&l);
	page(&l, &out);
	assert_true(has(&out, "not resolved: the interval contains 1 (against packing)"));
	assert_true(has(&out, "LOSS against no-recompute"));
	assert_true(has(&out, "failed: no plan of this step fits"));
	assert_true(has(&out, "not measured yet"));
	assert_true(has(&out, "numerics only: its time says nothing"));
	assert_true(has(&out, "before: baseline"));
	assert_true(has(&out, "after: no-recompute")); /* what others start from; they are beside it */
	assert_true(has(&out, "2.04\u00a0x"));
	assert_true(has(&out, "between 2.00 and 2.08 (about 94\u00a0%, five rounds)"));
	assert_true(has(&out, "1.250 (1.22-1.27); predicted 1.262"));
	assert_true(has(&out, "134\u00a0M weights, 800 MFLOP per token"));
	assert_true(has(&out, "allowed: 1\u00a0%"));
	assert_true(has(&out, "100\u00a0%</span>")); /* the axis ends at peak */
	assert_true(has(&out, "63.0\u00a0GFLOP/s bf16 (calibrated: avx2 loop"));
	assert_true(has(&out, "the interval of the gain: about 94\u00a0%, five rounds"));
	assert_true(strstr(out.data, "Gain over the baseline") <
		    strstr(out.data, "ll changes together")); /* the first tile */
	assert_true(strstr(out.data, "class=\"wh\"") <
		    strstr(out.data, "class=\"w\"")); /* below the whisker, so that it shows on its bar */
	assert_true(has(&out, "flatout train run.yaml <span class=\"k\">--run.dir=packing</span> <"));
	assert_true(has(&out, "<span class=\"k\">--data.packing=padded</span>"));
	assert_null(strstr(out.data, "nan"));
	fo_str_fini(&out);
}

/* What the rungs were trained on stands in the page's lead and in the titles; losses of other amounts of text stand
 * over tokens. */
static void test_text(void **state)
{
	(void)state;
	struct fo_ladder l;
	struct fo_str out = { 0 };
	sample(&l);
	page(&l, &out);
	assert_true(
		has(&out, "2 threads; baseline saw 12.4\u00a0% of the text; the others saw 18.0\u00a0% of the text."));
	assert_true(has(&out, "Training losses: baseline saw 12.4\u00a0% of the text; the others saw 18.0\u00a0%"));
	assert_true(has(&out, "steps hold: baseline saw 12.4\u00a0%"));
	assert_true(has(&out, "tokens trained on"));
	assert_null(strstr(out.data, "cut documents off"));
	fo_str_fini(&out);
	/* All alike: over steps. */
	for (int i = 0; i < l.rungs; i++)
		l.rung[i].text_seen = l.rung[i].text_passes = 0.18;
	page(&l, &out);
	assert_true(has(&out, "Training losses: each rung saw 18.0\u00a0% of the text"));
	assert_null(strstr(out.data, "tokens trained on"));
	fo_str_fini(&out);
	/* A baseline that learns beginnings by heart. */
	l.rung[0].text_seen = l.rung[0].text_reached = 0.015;
	page(&l, &out);
	assert_true(has(&out, "baseline saw 1.5\u00a0% of the text, 12 times over (its rows cut 98.5\u00a0% off); the "
			      "others saw 18.0\u00a0%"));
	assert_true(has(&out, "Rows of baseline cut documents off"));
	fo_str_fini(&out);
	/* Of an older folder nothing is known, and nothing is said. */
	for (int i = 0; i < l.rungs; i++)
		l.rung[i].text_seen = l.rung[i].text_passes = l.rung[i].text_reached = NAN;
	page(&l, &out);
	assert_true(has(&out, ">Training losses<"));
	assert_null(strstr(out.data, " saw "));
	fo_str_fini(&out);
}

/* Rounds that differ too much: no verdict on any place of the page, and the head says why. */
static void test_unsteady(void **state)
{
	(void)state;
	struct fo_ladder l;
	struct fo_str out = { 0 };
	sample(&l);
	l.load = 6.2;
	l.processors = 2;
	l.rung[5].verdict = FO_LADDER_UNSTEADY;
	for (int i = 0; i < 5; i++)
		l.rung[4].round_tokens_s[i] *= i + 1;
	page(&l, &out);
	assert_true(has(&out, "not known (unsteady): the rounds differ too much (against no-recompute)"));
	assert_true(has(&out, "the machine was not quiet (load 6.2 on 2 processors: other programs ran too): the "
			      "rounds of 1 rung differ"));
	assert_true(has(&out, "five rounds): unsteady"));
	assert_null(strstr(out.data, "LOSS"));
	fo_str_fini(&out);
	sample(&l);
	page(&l, &out);
	assert_null(strstr(out.data, "not quiet"));
	fo_str_fini(&out);
}

/* A ladder that has only begun, and one of hostile strings. */
static void test_bare(void **state)
{
	(void)state;
	static const char evil[] = "</summary><script>alert(1)</script>";
	struct fo_ladder l;
	struct fo_str out = { 0 };
	l = (struct fo_ladder){ .params = NAN, .flop_per_token = NAN };
	page(&l, &out);
	assert_true(has(&out, "</html>"));
	fo_str_fini(&out);
	sample(&l);
	l.model = l.cpu = l.isa = l.started = l.version = l.run_file = evil;
	l.predict_hint = evil;
	for (int i = 0; i < l.rungs; i++) {
		struct fo_ladder_rung *r = &l.rung[i];
		r->name = r->what = r->options = r->dir = r->peak_source = r->peak_dtype = r->reason = evil;
		r->loss = NULL;
		r->from = i % 3 ? 99 : -7;
		r->reference = 1000;
	}
	page(&l, &out);
	assert_null(strstr(out.data, "<script"));
	fo_str_fini(&out);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_page), cmocka_unit_test(test_text),
					    cmocka_unit_test(test_unsteady), cmocka_unit_test(test_bare) };
	if (argc == 2) {
		struct fo_ladder l;
		struct fo_str out = { 0 };
		FILE *f = fopen(argv[1], "w");
		sample(&l);
		page(&l, &out);
		bool written = f && fwrite(out.data, 1, out.len, f) == out.len;
		fo_str_fini(&out);
		return (f && fclose(f)) || !written;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
