/* A step on an accelerator by parts: the arithmetic of one row of Llama-3.1-8B on an H200, published runs as a sanity
 * check, how operations and lanes count, and what bench_gpu measured. */
#include "support/device_step.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void within(const char *what, double got, double want, double share)
{
	if (!(fabs(got - want) <= share * want))
		fail_msg("%s: got %.6g, expected %.6g within %g %%", what, got, want, 100 * share);
}

/* The run of these options behind those that all tests here share. */
static void build(struct device_rig *g, const char *options)
{
	char text[1024];
	snprintf(text, sizeof text,
		 "--optim.master=split --optim.moments=bf16 --train.rows=1 --pass.fuse-loss=2048 --pass.recompute=none "
		 "%s",
		 options);
	device_rig_build(g, text);
}
static void step(struct device_rig *g, const char *name, const char *options)
{
	device_rig_rates(g, name);
	build(g, options);
	must(fo_device_step(&g->s, &g->p, &g->u, &g->rates, -1));
}
static double mfu(const struct device_rig *g, double seconds)
{
	return fo_model_flop_per_token(&g->p.model, g->p.run.seq).mfu * (double)g->p.tokens *
	       (double)g->p.run.micro_batches / seconds / g->rates.peak_flop_s;
}
/* Milliseconds of a micro-batch. */
static struct fo_interval ms(const struct device_rig *g, struct fo_interval x)
{
	double by = 1e3 / (double)g->p.run.micro_batches;
	return (struct fo_interval){ x.low * by, x.mid * by, x.high * by };
}
static void part(const struct device_rig *g, const char *what, enum fo_device_part p, double low, double mid,
		 double high)
{
	struct fo_interval x = ms(g, g->s.part_s[p]);
	within(what, x.mid, mid, 0.03);
	if (low > 0)
		within(what, x.low, low, 0.03);
	if (high > 0)
		within(what, x.high, high, 0.03);
}

/* The budget of a row of 8,192 tokens that was computed by hand (November 2026): 434 / 460 / 490 ms of linear matmuls
 * at 790 / 745 / 700 TFLOP/s, sums of weight gradients 5 to 8, head 33 to 37 and 2 to 3, attention 109 to 116, kernels
 * bound by memory 27 to 29, loss 1.5, a 16th of the optimizer 2.9, gaps 2 to 3: 622 / 651 / 690 ms, 77 / 73.6 / 69.5 %
 * mfu. */
static void test_8k(void **state)
{
	(void)state;
	struct device_rig g;
	step(&g, "h200", "--model.name=llama-3.1-8b --data.seq=8192 --train.micro-batches=16");
	part(&g, "linear", FO_DEVICE_PART_LINEAR, 434, 460, 490);
	part(&g, "sums", FO_DEVICE_PART_WGRAD, 5, 6.5, 8);
	part(&g, "head", FO_DEVICE_PART_HEAD, 33 + 2, 35 + 2.5, 37 + 3);
	part(&g, "attention", FO_DEVICE_PART_ATTENTION, 109, 112.5, 116);
	part(&g, "fused", FO_DEVICE_PART_FUSED, 27, 28, 29);
	part(&g, "loss", FO_DEVICE_PART_LOSS, 0, 1.5, 0);
	part(&g, "optimizer", FO_DEVICE_PART_OPTIMIZER, 0, 2.9, 0);
	part(&g, "gaps", FO_DEVICE_PART_GAPS, 2, 2.5, 3);
	struct fo_interval sum = ms(&g, g.s.step_s);
	within("sum", sum.low, 622, 0.03);
	within("sum", sum.mid, 651, 0.03);
	within("sum", sum.high, 690, 0.03);
	within("mfu", mfu(&g, g.s.step_s.low), 0.77, 0.03);
	within("mfu", mfu(&g, g.s.step_s.mid), 0.736, 0.03);
	within("mfu", mfu(&g, g.s.step_s.high), 0.695, 0.03);
	/* Parts are the step. */
	double parts = 0;
	for (int i = 0; i < FO_DEVICE_PARTS; i++)
		parts += g.s.part_s[i].mid;
	within("parts", parts, g.s.step_s.mid, 1e-9);
	assert_true(g.s.measured_share == 0);
	device_rig_end(&g);
	/* fp8, delayed, all products, transposed copies: 489 ms at 1,250 TFLOP/s. */
	step(&g, "h200",
	     "--model.name=llama-3.1-8b --data.seq=8192 --train.micro-batches=16 --pass.fp8=delayed "
	     "--pass.fp8-scale-precompute=yes --pass.fp8-transposed=yes");
	within("fp8", ms(&g, g.s.step_s).mid, 489, 0.03);
	device_rig_end(&g);
}

/* Longer rows without recomputation, whose rows of the same arithmetic at 760 TFLOP/s and more end at 3,780 ms (32k)
 * and 1,402 ms (16k, 790): the middle at 745 must lie behind them, the fast end not before the best imaginable (3,532
 * at 820). */
static void test_long(void **state)
{
	(void)state;
	struct device_rig g;
	step(&g, "h200", "--model.name=llama-3.1-8b --data.seq=32768 --train.micro-batches=4");
	assert_true(ms(&g, g.s.step_s).low > 3532 && ms(&g, g.s.step_s).low < 3780);
	assert_true(ms(&g, g.s.step_s).mid > 3608 && ms(&g, g.s.step_s).mid < 1.03 * 3780);
	device_rig_end(&g);
	step(&g, "h200", "--model.name=llama-3.1-8b --data.seq=16384 --train.micro-batches=8");
	within("16k", ms(&g, g.s.step_s).low, 1402, 0.03);
	device_rig_end(&g);
}

/* Steps that others measured lie inside the interval. */
static void test_anchors(void **state)
{
	(void)state;
	struct device_rig g;
	static const struct {
		const char *device, *options;
		double mfu; /* rule mfu, of the device's dense bf16 peak */
	} anchor[] = {
		/* ml_dataflow: states in host memory, the rest as here. */
		{ "h100", "--model.name=llama-3.1-8b --data.seq=8192 --train.micro-batches=8", 0.668 },
		{ "h100", "--model.name=llama-3.1-8b --data.seq=32768 --train.micro-batches=2", 0.772 },
		/* KempnerForge, April 2026: PyTorch, 10,471 tokens/s, everything computed again. */
		{ "h200", "--model.name=llama-3.1-8b --data.seq=4096 --train.micro-batches=8 --pass.recompute=full",
		  0.545 },
		/* LLM.Q on Qwen2.5-7B at 1,024 tokens: 13,850 tokens/s, about 605 TFLOP/s. */
		{ "h100", "--model.name=qwen2.5-7b --data.seq=1024 --train.rows=16 --train.micro-batches=8", 0.61 },
	};
	for (size_t i = 0; i < sizeof anchor / sizeof *anchor; i++) {
		step(&g, anchor[i].device, anchor[i].options);
		double slow = mfu(&g, g.s.step_s.high), fast = mfu(&g, g.s.step_s.low);
		if (!(anchor[i].mfu > slow && anchor[i].mfu < fast))
			fail_msg("%s, %s: measured %.3f, predicted %.3f to %.3f", anchor[i].device, anchor[i].options,
				 anchor[i].mfu, slow, fast);
		device_rig_end(&g);
	}
}

/* Two compute lanes: products of backward are shorter by what is saved, most at the fast end, and nothing else is. */
static void test_overlap(void **state)
{
	(void)state;
	const struct fo_interval saved = { 0.01, 0.02, 0.03 };
	struct fo_device_time t = { .seconds = { 1, 2, 3 }, .sums = { 0.1, 0.2, 0.3 } };
	struct fo_op o = { .kind = FO_OP_matmul, .phase = FO_WGRAD };
	struct fo_device_time x = fo_device_beside(t, &o, saved);
	within("low", x.seconds.low, 0.97, 1e-9);
	within("mid", x.seconds.mid, 1.96, 1e-9);
	within("high", x.seconds.high, 2.97, 1e-9);
	within("sums", x.sums.mid, 0.196, 1e-9);
	o.phase = FO_FORWARD;
	within("forward", fo_device_beside(t, &o, saved).seconds.mid, 2, 1e-9);
	o = (struct fo_op){ .kind = FO_OP_swiglu_bwd, .phase = FO_BACKWARD };
	within("no product", fo_device_beside(t, &o, saved).seconds.mid, 2, 1e-9);
	struct device_rig g;
	step(&g, "h200", "--model.name=llama-3.2-1b --data.seq=2048 --train.micro-batches=2");
	assert_true(fo_device_overlap(&g.p).high == 0); /* one lane computes */
	device_rig_end(&g);
	/* A second lane shares the device and fills tails: 0.7 to 1.2 points of the budget's row. */
	const char *run = "--model.name=llama-3.1-8b --data.seq=8192 --train.micro-batches=4 --pass.wgrad-lane";
	char text[256];
	snprintf(text, sizeof text, "%s=no", run);
	step(&g, "h200", text);
	double one = mfu(&g, g.s.step_s.mid);
	device_rig_end(&g);
	snprintf(text, sizeof text, "%s=yes", run);
	step(&g, "h200", text);
	double two = mfu(&g, g.s.step_s.mid);
	if (!(two - one > 0.007 && two - one < 0.012))
		fail_msg("one lane %.4f, two %.4f", one, two);
	device_rig_end(&g);
}

/* What a pass changes in the program changes the prediction; what no source knows is refused. */
static void test_passes(void **state)
{
	(void)state;
	struct device_rig g;
	const char *tiny = "--model.name=llama-3.2-1b --data.seq=2048 --train.micro-batches=2";
	char text[512];
	double plain, chunk;
	step(&g, "h200", tiny);
	plain = g.s.step_s.mid;
	chunk = g.s.part_s[FO_DEVICE_PART_HEAD].mid;
	assert_true(g.s.part_s[FO_DEVICE_PART_REPEATED].mid == 0 && g.s.part_s[FO_DEVICE_PART_FP8].mid == 0);
	struct fo_interval program;
	must(fo_device_program_seconds(&g.rates, &g.p, -1, &program));
	within("without the walk", program.mid, plain, 0.02);
	device_rig_end(&g);
	snprintf(text, sizeof text, "%s --pass.recompute=full", tiny);
	step(&g, "h200", text);
	assert_true(g.s.part_s[FO_DEVICE_PART_REPEATED].mid > 0 && g.s.step_s.mid > 1.1 * plain);
	device_rig_end(&g);
	snprintf(text, sizeof text, "%s --pass.fuse-loss=128", tiny);
	step(&g, "h200", text);
	assert_true(g.s.part_s[FO_DEVICE_PART_HEAD].mid > chunk); /* each chunk adds to the whole gradient */
	device_rig_end(&g);
	snprintf(text, sizeof text, "%s --pass.fp8=current --pass.fp8-scale-precompute=yes", tiny);
	step(&g, "h200", text);
	assert_true(g.s.part_s[FO_DEVICE_PART_FP8].mid > 0);
	double turned = g.s.part_s[FO_DEVICE_PART_LINEAR].mid;
	device_rig_end(&g);
	snprintf(text, sizeof text, "%s --pass.fp8=current --pass.fp8-scale-precompute=yes --pass.fp8-transposed=yes",
		 tiny);
	step(&g, "h200", text);
	assert_true(g.s.part_s[FO_DEVICE_PART_LINEAR].mid < turned);
	device_rig_end(&g);
	static const struct {
		const char *device, *options, *says;
	} refused[] = {
		{ "h200", "--train.precision=fp32 --optim.master=fp32 --optim.moments=fp32",
		  "only rates of bf16 and fp8" },
		{ "a100", "--pass.fp8=current", "no dense fp8 peak" },
		{ "h200", "--pass.offload=1", "no source has the rate of that link" },
		{ "h200", "--pass.attention=eager", "no kernels on a device" },
	};
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		snprintf(text, sizeof text, "%s %s", tiny, refused[i].options);
		device_rig_rates(&g, refused[i].device);
		build(&g, text);
		assert_int_equal(fo_device_step(&g.s, &g.p, &g.u, &g.rates, -1), FO_EUNSUPPORTED);
		if (!strstr(fo_err_text(), refused[i].says))
			fail_msg("'%s' does not say '%s'", fo_err_text(), refused[i].says);
		device_rig_end(&g);
	}
}

static void test_devices(void **state)
{
	(void)state;
	struct device_rig g;
	const char *run = "--model.name=llama-3.2-1b --data.seq=8192 --train.micro-batches=2";
	double width = 0;
	static const char *const name[] = { "h200", "h100", "a100", "b200", "l40s" };
	for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
		step(&g, name[i], run);
		assert_true(g.s.step_s.low < g.s.step_s.mid && g.s.step_s.mid < g.s.step_s.high &&
			    mfu(&g, g.s.step_s.low) < 1);
		for (int c = 0; c < FO_DEVICE_CLASSES; c++)
			assert_true(*g.rates.origin[c]);
		/* Where nothing is published the interval is wider than where something is. */
		double w = g.s.step_s.high / g.s.step_s.low;
		assert_true(g.rates.published ? i < 2 : w > width);
		width = g.rates.published ? fmax(w, width) : width;
		device_rig_end(&g);
	}
	const struct fo_device *d;
	static const struct {
		const char *name, *says;
		fo_status st;
	} none[] = {
		{ "v100", "no published dense peak for bf16", FO_EARG },
		{ "mi300", "a GPU without CUDA", FO_EUNSUPPORTED },
		{ "tpu-v5p", "no kernels for a TPU", FO_EUNSUPPORTED },
		{ "bare", "no memory bandwidth", FO_EUNSUPPORTED },
	};
	memset(&g, 0, sizeof g);
	must(fo_catalogue_load(&g.catalogue, NULL));
	const char *bare = "name,aliases,kind,bf16_dense_tflops,source,date\nBare,bare,gpu,100,test,2026-11-22\n";
	must(fo_catalogue_add(&g.catalogue, bare, strlen(bare), "test"));
	for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
		must(fo_catalogue_find(&g.catalogue, none[i].name, &d));
		assert_int_equal(fo_device_rates_init(&g.rates, d), none[i].st);
		if (!strstr(fo_err_text(), "not known from this") || !strstr(fo_err_text(), none[i].says))
			fail_msg("'%s' does not say '%s'", fo_err_text(), none[i].says);
	}
	fo_catalogue_fini(&g.catalogue);
}

/* Rows of a measurement: the very operation takes its row's time, others the rate of their class. */
static void test_profile(void **state)
{
	(void)state;
	struct device_rig g;
	struct fo_device_profile f;
	struct fo_str text = { 0 };
	const char *run = "--model.name=llama-3.2-1b --data.seq=2048 --train.micro-batches=2";
	step(&g, "h200", run);
	/* Every product at 500 TFLOP/s but the first one, which takes a millisecond. */
	int product = -1;
	for (int i = 0; i < g.u.n && product < 0; i++)
		product = fo_instance_op(&g.p, &g.u, i)->kind == FO_OP_matmul ? i : -1;
	const struct fo_op *o = fo_instance_op(&g.p, &g.u, product);
	fo_str_printf(&text, "{\"label\":\"x\",\"command\":\"y\"}\n{\"device\":\"NVIDIA "
			     "H200\",\"model\":\"m\",\"seq\":2048,\"distinct_operations\":2}\n"
			     "{\"ceiling\":\"copy\",\"unit\":\"GB/s\",\"median\":4300,\"best\":4310,\"times\":9}\n");
	fo_str_printf(&text,
		      "{\"operation\":\"matmul\",\"key\":\"%016llx\",\"category\":\"matmul\",\"count\":1,\"us_median\":"
		      "1000,\"us_best\":900,\"times\":9,"
		      "\"operands\":\"1x1 bf16\"}\n",
		      (unsigned long long)fo_op_signature(&g.p, o, g.u.first[product]));
	fo_str_printf(&text, "{\"operation\":\"matmul\",\"key\":\"1\",\"category\":\"matmul\",\"count\":4,\"us_"
			     "median\":2000,\"us_best\":2000,\"times\":9,"
			     "\"tflop_s\":500,\"operands\":\"1x1 bf16\"}\n");
	must(fo_device_profile_parse(text.data, text.len, "text", &f));
	assert_true(f.rows == 2 && f.expected == 2 && f.seq == 2048);
	must(fo_device_rates_measured(&g.rates, &g.catalogue, &f));
	within("rate", g.rates.rate[FO_DEVICE_PRODUCT].mid, 500e12, 1e-9);
	assert_true(g.rates.rate[FO_DEVICE_PRODUCT].low < 500e12);
	struct fo_device_time t = fo_device_op_seconds(&g.rates, &g.p, o, g.u.first[product], -1);
	assert_true(t.measured && t.known);
	within("row", t.seconds.mid, 1e-3, 1e-9);
	within("row", t.seconds.low, 9e-4, 1e-9);
	assert_true(t.seconds.high > 1e-3 && t.seconds.high < 1.1e-3);
	fo_device_step_fini(&g.s);
	must(fo_device_step(&g.s, &g.p, &g.u, &g.rates, -1));
	assert_true(g.s.measured_share > 0 && g.s.measured_share < 1);
	/* Of another device; of a device that no catalogue has. */
	static const char *const other[] = { "NVIDIA H100 80GB HBM3", "software CUDA device" };
	for (size_t i = 0; i < 2; i++) {
		snprintf(f.device, sizeof f.device, "%s", other[i]);
		assert_int_equal(fo_device_rates_measured(&g.rates, &g.catalogue, &f), FO_EARG);
		assert_non_null(strstr(fo_err_text(), other[i]));
	}
	fo_device_profile_fini(&f);
	fo_str_fini(&text);
	device_rig_end(&g);
}

/* A product's time without a pause is what a step sees; a kernel bound by memory finds its operands in no cache. */
static void test_blocks(void **state)
{
	(void)state;
	struct fo_device_profile blocks;
	const char *both = "{\"device\":\"NVIDIA H200\"}\n"
			   "{\"operation\":\"matmul\",\"key\":\"a\",\"category\":\"matmul\",\"count\":1,\"us_median\":"
			   "100,\"us_best\":90,"
			   "\"us_block\":110,\"operands\":\"1x1 bf16\"}\n"
			   "{\"operation\":\"swiglu\",\"key\":\"b\",\"category\":\"elementwise\",\"count\":1,\"us_"
			   "median\":100,\"us_best\":90,"
			   "\"us_block\":50,\"operands\":\"1x1 bf16\"}\n";
	struct fo_interval x;
	must(fo_device_profile_parse(both, strlen(both), "both", &blocks));
	assert_true(fo_device_profile_find(&blocks, 10, &x) &&
		    !fo_device_profile_find(&blocks, 12, &(struct fo_interval){ 0 }));
	within("product", x.mid, 110e-6, 1e-9);
	within("product", x.low, 90e-6, 1e-9);
	assert_true(fo_device_profile_find(&blocks, 11, &x));
	within("memory", x.mid, 100e-6, 1e-9);
	fo_device_profile_fini(&blocks);
}

/* Cut anywhere a file is refused, unless at the end of a line behind an operation; and what is wrong in other ways. */
static void test_wrong_files(void **state)
{
	(void)state;
	struct fo_device_profile f;
	const char *text =
		"{\"device\":\"NVIDIA H200\",\"model\":\"m\",\"seq\":2048,\"distinct_operations\":2}\n"
		"{\"ceiling\":\"copy\",\"unit\":\"GB/s\",\"median\":4300,\"best\":4310,\"times\":9}\n"
		"{\"operation\":\"matmul\",\"key\":\"a\",\"category\":\"matmul\",\"count\":1,\"us_median\":100,"
		"\"us_best\":90,\"operands\":\"\"}\n"
		"{\"operation\":\"swiglu\",\"key\":\"b\",\"category\":\"elementwise\",\"count\":1,"
		"\"us_median\":100,\"us_best\":90,\"operands\":\"\"}\n";
	size_t first_row = (size_t)(strstr(text, "{\"operation\"") - text);
	for (size_t len = 0; len < strlen(text); len++) {
		bool whole = len > first_row && (text[len - 1] == '\n' || text[len] == '\n');
		fo_status st = fo_device_profile_parse(text, len, "cut", &f);
		if ((st == FO_OK) != whole)
			fail_msg("%zu bytes: %s", len, st == FO_OK ? "taken" : fo_err_text());
		if (st == FO_OK)
			fo_device_profile_fini(&f);
	}
	static const char *const bad[] = {
		"",
		"[]",
		"null",
		"{\"device\":\"\"}",
		"{\"operation\":\"matmul\"}",
		"{\"ceiling\":\"copy\"}",
		"{\"device\":\"a\"}\n{\"device\":\"b\"}",
		"{\"device\":\"a\"}\n{\"operation\":\"matmul\",\"category\":\"matmul\",\"count\":1,\"us_median\":1,"
		"\"us_best\":1,\"operands\":\"\"}",
		"{\"device\":\"a\"}\n{\"operation\":\"matmul\",\"key\":\"1\",\"category\":\"matmul\",\"count\":1,\"us_"
		"median\":-1,\"us_best\":1,\"operands\":\"\"}",
		"{\"device\":\"a\"}\n{\"operation\":\"matmul\",\"key\":\"1\",\"category\":\"matmul\",\"count\":1,\"us_"
		"median\":1e999,\"us_best\":1,\"operands\":\"\"}",
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(fo_device_profile_parse(bad[i], strlen(bad[i]), "bad", &f), FO_EFORMAT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_8k),      cmocka_unit_test(test_long),    cmocka_unit_test(test_anchors),
		cmocka_unit_test(test_passes),  cmocka_unit_test(test_overlap), cmocka_unit_test(test_devices),
		cmocka_unit_test(test_profile), cmocka_unit_test(test_blocks),  cmocka_unit_test(test_wrong_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
