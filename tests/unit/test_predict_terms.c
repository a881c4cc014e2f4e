/* src/predict: terms against values worked out by hand and against published formulas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hw/catalogue.h"
#include "predict/predict_int.h"

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

static struct fo_predict_job job_of(const char *model, const char *device, enum fo_predict_style_id style)
{
	const struct fo_device *d;
	struct fo_model m;
	struct fo_predict_job j = { .style = style, .type = FO_PREDICT_BF16, .seq = 8192 };
	assert_int_equal(fo_catalogue_find(&catalogue, device, &d), FO_OK);
	assert_int_equal(fo_predict_machine_of(d, &j.machine), FO_OK);
	assert_int_equal(fo_model_load(model, &m), FO_OK);
	fo_predict_model_of(&m, &j.model);
	return j;
}

static struct fo_predict_step point(const struct fo_predict_job *j, struct fo_predict_layout l)
{
	static struct fo_predict_base b;
	struct fo_predict_step s;
	assert_null(fo_predict_prepare(j, &b));
	fo_predict_point(&b, &l, &s);
	return s;
}

#define near(a, b, share) assert_true(fabs((a) / (b)-1) <= (share))

/* 8,030,261,248 weights; FLOP of a token by the rules of docs/metrics.md. */
static void test_counts(void **state)
{
	(void)state;
	struct fo_predict_job j = job_of("llama-3.1-8b", "h100", FO_PREDICT_STYLE_MCORE);
	near(fo_predict_params(&j.model), 8030261248., 1e-6);
	static struct fo_predict_base b;
	assert_null(fo_predict_prepare(&j, &b));
	near(b.flops_full, 6 * (8030261248. - 2. * 32 * 4096 - 4096 - 128256. * 4096) + 12. * 32 * 4096 * 8192, 1e-6);
	near(b.flops_full - b.flops_causal, 6. * 32 * 4096 * 8192, 1e-9);
}

static void near_range(struct fo_range got, double low, double high)
{
	near(got.low, low, 1e-6);
	near(got.high, high, 1e-6);
}

/* Megatron's distributed optimizer: 2 + 4 (fp32 sums) + 12 / dp bytes a weight; Llama without recomputation 12 h + 4 k
 * + 6 F bytes of a token and layer, and 4 for the sum of each row of scores. Logits of a fused loss are more than a
 * layer's backward works on. */
static void test_memory(void **state)
{
	(void)state;
	struct fo_predict_job j = job_of("llama-3.1-8b", "h100", FO_PREDICT_STYLE_MLM);
	struct fo_predict_step s = point(
		&j, (struct fo_predict_layout){
			    .devices = 8, .zero = 1, .sp = true, .micro_batch = 1, .global_batch = 64 });
	double weights = 8030261248., tokens = 8192, kept = tokens * 32 * (12 * 4096. + 4 * 1024. + 6 * 14336. + 128);
	near_range(s.memory_range[FO_PREDICT_WEIGHTS], 2 * weights, 2 * weights);
	near_range(s.memory_range[FO_PREDICT_GRADIENTS], 4 * weights, 4 * weights);
	near_range(s.memory_range[FO_PREDICT_STATES], 12 * weights / 8, 12 * weights / 8);
	near_range(s.memory_range[FO_PREDICT_ACTIVATIONS], .97 * kept, 1.06 * kept);
	near_range(s.memory_range[FO_PREDICT_LOGITS], 2 * tokens * 128256, 4 * tokens * 128256);
	/* Full recomputation keeps a layer's input. */
	s = point(&j, (struct fo_predict_layout){
			      .devices = 8, .zero = 1, .micro_batch = 1, .global_batch = 64, .recompute = 1 });
	kept = tokens * 32 * 2 * 4096.;
	near_range(s.memory_range[FO_PREDICT_ACTIVATIONS], .97 * kept, 1.06 * kept);
	/* PyTorch FSDP: 16 bytes of a weight over all ranks. */
	j.style = FO_PREDICT_STYLE_TITAN;
	s = point(&j, (struct fo_predict_layout){ .devices = 8, .zero = 3, .micro_batch = 1, .global_batch = 8 });
	near(s.memory[FO_PREDICT_WEIGHTS] + s.memory[FO_PREDICT_GRADIENTS] + s.memory[FO_PREDICT_STATES],
	     16 * weights / 8, 1e-6);
}

/* SimuMax's measured peaks in tensors (Megatron-LM, 8 x B200, Llama 70B of 12 layers): 66.55, 60.68, 39.07, 28.29. */
static void test_memory_measured(void **state)
{
	(void)state;
	struct fo_predict_job j = job_of("llama-3.1-70b", "b200", FO_PREDICT_STYLE_MLM);
	j.model.layers = 12, j.seq = 4096;
	const struct {
		double tp, pp, gib;
	} of[] = { { 1, 2, 66.55 }, { 2, 1, 60.68 }, { 4, 1, 39.07 }, { 8, 1, 28.29 } };
	for (int i = 0; i < 4; i++) {
		struct fo_predict_step s = point(
			&j, (struct fo_predict_layout){ .devices = 8,
							.tp = of[i].tp,
							.pp = of[i].pp,
							.zero = 1,
							.sp = true,
							.micro_batch = 1,
							.global_batch = 4 * 8 / of[i].tp / of[i].pp });
		near((s.bytes - s.memory[FO_PREDICT_OVERHEAD]) / 1073741824., of[i].gib, .015);
	}
}

static void test_parts(void **state)
{
	(void)state;
	struct fo_predict_job j = job_of("llama-3.1-70b", "h100", FO_PREDICT_STYLE_MCORE);
	struct fo_predict_layout l = { .devices = 512,
				       .tp = 8,
				       .pp = 4,
				       .chunks = 5,
				       .zero = 1,
				       .sp = true,
				       .micro_batch = 1,
				       .global_batch = 512 };
	struct fo_predict_step s = point(&j, l);
	double sum = 0;
	for (int i = 0; i < FO_PREDICT_PARTS; i++) {
		assert_true(s.part[i] >= 0);
		sum += s.part[i];
	}
	near(sum, s.seconds, 1e-12);
	near(s.tokens_s, 512. * 8192 / s.seconds / 512, 1e-12);
	/* 1F1B idles (p - 1) / m of a stage's work, interleaving a chunk's share of it; the constant is near 1. */
	l.chunks = 1;
	/* Stages wait for the one with the head beside that. */
	double head = (l.pp - 1) * s.part[FO_PREDICT_LOSS];
	double one = point(&j, l).part[FO_PREDICT_BUBBLE] - head, five = s.part[FO_PREDICT_BUBBLE] - head;
	assert_true(one / five > 4.5 && one / five < 5.2);
	l.schedule = FO_PREDICT_ZERO_BUBBLE;
	assert_true(point(&j, l).part[FO_PREDICT_BUBBLE] - head < .6 * one);
	/* Whole recomputation costs a forward: a third to a half of what forward and backward take. */
	l.recompute = 1;
	double again = point(&j, l).part[FO_PREDICT_RECOMPUTE] /
		       (s.part[FO_PREDICT_MATMUL] + s.part[FO_PREDICT_ATTENTION]);
	assert_true(again > .3 && again < .55);
}

/* What must grow or shrink, whatever the constants are. */
static void test_directions(void **state)
{
	(void)state;
	struct fo_predict_job j = job_of("llama-3.1-70b", "h100", FO_PREDICT_STYLE_MCORE);
	struct fo_predict_layout l = {
		.devices = 128, .tp = 8, .pp = 4, .zero = 1, .sp = true, .micro_batch = 1, .global_batch = 128
	};
	double base = point(&j, l).seconds;
	j.machine.net_byte_s /= 20;
	assert_true(point(&j, l).seconds > base);
	j.machine.net_byte_s *= 20;
	l.dp_overlap = -1;
	assert_true(point(&j, l).seconds > base);
	l.dp_overlap = 0;
	l.tp = 16, l.pp = 2; /* over nodes */
	assert_true(point(&j, l).seconds > 1.1 * base);
	j = job_of("llama-3.1-8b", "b200", FO_PREDICT_STYLE_MCORE);
	l = (struct fo_predict_layout){ .devices = 8, .zero = 1, .micro_batch = 1, .global_batch = 64 };
	base = point(&j, l).part[FO_PREDICT_MATMUL];
	fo_predict_power_limit(&j.machine, 700);
	near(point(&j, l).part[FO_PREDICT_MATMUL] / base, 1000 / 700., .05);
}

/* ZeRO 3 shards experts over the ranks that share them: DeepSeek V3's 671 billion weights of 16 bytes over 256 ranks,
 * whether expert parallelism divides them first or not. */
static void test_memory_experts(void **state)
{
	(void)state;
	struct fo_predict_job j = job_of("deepseek-v3", "h100", FO_PREDICT_STYLE_EAGER);
	for (double ep = 1; ep <= 64; ep *= 8) {
		struct fo_predict_step s = point(
			&j, (struct fo_predict_layout){
				    .devices = 256, .zero = 3, .ep = ep, .micro_batch = 1, .global_batch = 256 });
		assert_null(s.wrong);
		near(s.memory[FO_PREDICT_WEIGHTS] + s.memory[FO_PREDICT_GRADIENTS] + s.memory[FO_PREDICT_STATES],
		     16 * fo_predict_params(&j.model) / 256, .01);
	}
}

/* A sum of memory has the ends of its parts. */
static void test_memory_interval(void **state)
{
	(void)state;
	static struct fo_predict_base b;
	for (int style = 0; style < FO_PREDICT_STYLES; style++)
		for (double zero = 0; zero <= 3; zero++) {
			struct fo_predict_job j = job_of("llama-3.1-70b", "h100", (enum fo_predict_style_id)style);
			struct fo_predict_layout l = { .devices = 64,
						       .tp = 4,
						       .pp = zero < 2 ? 4 : 1,
						       .zero = zero,
						       .sp = true,
						       .micro_batch = 1,
						       .global_batch = 64 };
			struct fo_predict_step s;
			struct fo_predict_certainty c;
			struct fo_range sum = { 0, 0 };
			assert_null(fo_predict_prepare(&j, &b));
			fo_predict_point(&b, &l, &s);
			fo_predict_certainty_of(&b, &l, &s, &c);
			for (int i = 0; i < FO_PREDICT_MEMORIES; i++) {
				assert_true(0 <= c.memory[i].low && c.memory[i].low <= s.memory[i] &&
					    s.memory[i] <= c.memory[i].high);
				sum = fo_range_plus(sum, c.memory[i]);
			}
			near_range(c.bytes, sum.low, sum.high);
			near(s.bytes, fo_range_middle(sum), 1e-6);
			assert_true(fo_predict_upper_bytes(&s) == c.bytes.high);
		}
}

/* No step is faster than its work at the dense peak. */
static void test_bounded(void **state)
{
	(void)state;
	static struct fo_predict_base b;
	struct fo_predict_job j = job_of("deepseek-v3", "h100", FO_PREDICT_STYLE_MLM);
	struct fo_predict_layout l = { .devices = 64, .ep = 8, .micro_batch = 1, .global_batch = 512 };
	int bounded = 0;
	j.machine.sustained = 1.3; /* more than can be */
	for (int type = 0; type < FO_PREDICT_TYPES; type++) {
		struct fo_predict_step s;
		struct fo_predict_certainty c;
		j.type = (enum fo_predict_type)type;
		if (fo_predict_prepare(&j, &b))
			continue;
		fo_predict_point(&b, &l, &s);
		fo_predict_certainty_of(&b, &l, &s, &c);
		assert_true(s.mfu_causal * s.seconds / c.seconds.low <= 1 + 1e-12);
		bounded += c.bounded;
	}
	assert_true(bounded > 0);
}

static void test_certainty(void **state)
{
	(void)state;
	static struct fo_predict_base b;
	struct fo_predict_certainty c, d;
	struct fo_predict_step s;
	struct fo_predict_job j = job_of("llama-3.1-70b", "h100", FO_PREDICT_STYLE_MCORE);
	struct fo_predict_layout l = {
		.devices = 512, .tp = 8, .pp = 4, .zero = 1, .sp = true, .micro_batch = 1, .global_batch = 512
	};
	assert_null(fo_predict_prepare(&j, &b));
	fo_predict_point(&b, &l, &s);
	fo_predict_certainty_of(&b, &l, &s, &c);
	assert_true(c.seconds.low < s.seconds && s.seconds < c.seconds.high);
	assert_int_equal(c.terms, 3);
	assert_true(c.term[0].seconds >= c.term[1].seconds && c.term[1].seconds >= c.term[2].seconds);
	assert_true(c.rests > 3);
	assert_null(c.flag);
	/* A stack that nobody measured is less certain. */
	j.style = FO_PREDICT_STYLE_DEEPSPEED;
	assert_null(fo_predict_prepare(&j, &b));
	fo_predict_point(&b, &l, &s);
	fo_predict_certainty_of(&b, &l, &s, &d);
	assert_true(d.sd > 1.15 * c.sd);
	/* V100: nothing of it is fitted, and what was published on it, 31 to 38 %, lies within. */
	j = job_of("llama-3.1-8b", "v100", FO_PREDICT_STYLE_MCORE);
	l = (struct fo_predict_layout){ .devices = 64, .tp = 8, .sp = true, .micro_batch = 1, .global_batch = 64 };
	assert_null(fo_predict_prepare(&j, &b));
	fo_predict_point(&b, &l, &s);
	fo_predict_certainty_of(&b, &l, &s, &d);
	assert_true(d.flag && strstr(d.flag, "no run on a V100 is fitted"));
	assert_true(s.mfu_causal * s.seconds / d.seconds.high < .31);
}

/* One table says what the best published run of a device is; a prediction above it is doubted, whatever the device. */
static void test_best(void **state)
{
	(void)state;
	assert_true(fo_predict_best_of("H100-SXM5-80GB", FO_PREDICT_BF16)->causal == .610);
	assert_ptr_equal(fo_predict_best_of("H200-SXM-141GB", FO_PREDICT_MXFP8),
			 fo_predict_best_of("H200-SXM-141GB", FO_PREDICT_FP8));
	assert_null(fo_predict_best_of("MI300X", FO_PREDICT_BF16));
	static const char *const device[] = { "a100", "h100", "b200", "b300", "mi300x", "rtx-5090" };
	for (size_t i = 0; i < sizeof device / sizeof *device; i++) {
		static struct fo_predict_base b;
		struct fo_predict_certainty c;
		struct fo_predict_step s;
		struct fo_predict_job j = job_of("llama-3.2-1b", device[i], FO_PREDICT_STYLE_MCORE);
		const struct fo_predict_layout l = { .devices = 1, .micro_batch = 1, .global_batch = 1 };
		assert_null(fo_predict_prepare(&j, &b));
		fo_predict_point(&b, &l, &s);
		s.mfu_causal = .99;
		fo_predict_certainty_of(&b, &l, &s, &c);
		assert_true(c.flag && strstr(c.flag, "best MFU that anyone published"));
	}
}

static void test_refusals(void **state)
{
	(void)state;
	struct fo_predict_machine m;
	const struct fo_device *d;
	assert_int_equal(fo_catalogue_find(&catalogue, "tpuv5p", &d), FO_OK);
	assert_int_equal(fo_predict_machine_of(d, &m), FO_EUNSUPPORTED);
	assert_non_null(strstr(fo_err_text(), "TPU-v5p"));
	fo_err_clear();
	static struct fo_predict_base b;
	struct fo_predict_job j = job_of("llama-3.1-8b", "a100", FO_PREDICT_STYLE_MCORE);
	j.type = FO_PREDICT_FP8;
	assert_non_null(fo_predict_prepare(&j, &b));
	j.type = FO_PREDICT_BF16;
	const struct fo_predict_layout wrong[] = {
		{ .devices = 0 }, { .devices = 4, .tp = 8 }, { .devices = 64, .pp = 64 }, { .devices = 64, .tp = 64 }
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_non_null(point(&j, wrong[i]).wrong);
}

static void test_styles(void **state)
{
	(void)state;
	assert_int_equal(fo_predict_style_of("NVIDIA NeMo/Megatron-Core"), FO_PREDICT_STYLE_MCORE);
	assert_int_equal(fo_predict_style_of("NVIDIA Megatron-Bridge/Megatron-Core+TE"), FO_PREDICT_STYLE_MCORE);
	assert_int_equal(fo_predict_style_of("Megatron-LM + TE 2.11"), FO_PREDICT_STYLE_MLM);
	assert_int_equal(fo_predict_style_of("torchtitan"), FO_PREDICT_STYLE_TITAN);
	assert_int_equal(fo_predict_style_of("a stack of our own"), FO_PREDICT_STYLE_EAGER);
	assert_int_equal(fo_predict_style_of(NULL), FO_PREDICT_STYLE_EAGER);
	for (int i = 0; i < fo_predict_constant_count; i++) { /* every constant within its bounds, and said */
		const struct fo_predict_constant_row *c = &fo_predict_constant_row[i];
		assert_true(c->low <= c->start && c->start <= c->high && c->spread > 0);
		assert_true(c->low * .999 <= c->value && c->value <= c->high * 1.001);
		assert_true(*c->meaning && *c->origin && *c->unit);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_memory_measured),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_directions),
		cmocka_unit_test(test_certainty),
		cmocka_unit_test(test_best),
		cmocka_unit_test(test_memory_experts),
		cmocka_unit_test(test_memory_interval),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_styles),
	};
	return cmocka_run_group_tests(tests, load, unload);
}
