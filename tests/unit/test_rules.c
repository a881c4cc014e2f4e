/* Advice only where the trace shows what it would change: settings, words and estimates of findings, each beside a
 * trace that is alike but for that. Every rule on and off: test_findings. */
#define _GNU_SOURCE /* setenv */
#include "support/hand_trace.h"

#include "diagnose/findings_int.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char product[] = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas";
static const char adding[] =
	"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)";
static const char softmax[] =
	"void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)";
static const char reducing[] = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
static const char exchanging[] = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
static const struct fo_diagnose_options plain = { .price_per_hour = NAN };

static struct hand hand;
static struct fo_diagnosis diag;
static struct fo_trace_set set;

typedef void scene(struct hand *h, double at);
static void run_on(scene *make, double length, const char *device, int major, int minor)
{
	hand_begin(&hand, 0, 8);
	hand_device(&hand, device, 132, major, minor, 79.1);
	hand_steps(&hand, 4, length);
	for (int i = 0; i < 4; i++)
		make(&hand, i * length);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
}
static void run(scene *make, double length) { run_on(make, length, "NVIDIA H100 80GB HBM3", 9, 0); }
static void done(void) { hand_done(&hand, &diag); }

static const struct fo_finding *there(const char *id)
{
	const struct fo_finding *f = hand_finding(&diag, id);
	if (!f)
		fail_msg("no finding '%s'", id);
	return f;
}
static const struct fo_setting *setting(const struct fo_finding *f, const char *part)
{
	for (int i = 0; i < f->settings; i++)
		if (strstr(f->setting[i].key, part) || strstr(f->setting[i].paste, part))
			return &f->setting[i];
	return NULL;
}

/* ---- optimizers ---- */

static const char *optimizer;
static void updates(struct hand *h, double at)
{
	hand_op(h, FO_HOST_NOTE, optimizer, at + 1, at + 9);
	hand_op(h, FO_HOST_OP, "aten::_foreach_add_", at + 2, at + 8);
	hand_kernel(h, "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<AdamFunctor>(int)", at + 3,
		    at + 10, at + 310);
	hand_kernel(h, product, at + 5, at + 310, at + 1010);
}

static void test_fused(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		bool has;
	} known[] = { { "Optimizer.step#Adam.step", true },     { "Optimizer.step#AdamW.step", true },
		      { "Optimizer.step#SGD.step", true },      { "Optimizer.step#Adagrad.step", false },
		      { "Optimizer.step#RMSprop.step", false }, { "Optimizer.step#Muon.step", false } };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		optimizer = known[i].name;
		run(updates, 1000);
		const struct fo_finding *f = there("optimizer-unfused");
		assert_int_equal(setting(f, "fused=True") != NULL, known[i].has);
		assert_int_equal(!isnan(f->gain), known[i].has); /* no cure is known, so none is promised */
		for (int64_t k = 0; k < diag.findings; k++)
			assert_true(known[i].has || !setting(&diag.finding[k], "fused=True"));
		done();
	}
	/* Without a name it is proposed with the condition, and not as a line to be pasted. */
	optimizer = "step";
	run(updates, 1000);
	const struct fo_setting *s = setting(there("optimizer-unfused"), "fused=");
	assert_true(s && strstr(s->proposed, "where it is Adam") && !s->paste[0]);
	done();
}

/* ---- collectives ---- */

static int reduces;
static const char *kind;
static void communicates(struct hand *h, double at)
{
	hand_op(h, FO_HOST_NOTE, "DistributedDataParallel.forward", at + 1, at + 4);
	hand_op(h, FO_HOST_OP, "aten::mm", at + 5, at + 9);
	hand_kernel(h, product, at + 6, at + 10, at + 510);
	for (int i = 0; i < reduces; i++)
		hand_kernel(h, kind, at + 11 + 3 * i, at + 510 + 500.0 / reduces * i,
			    at + 510 + 500.0 / reduces * (i + 1));
}
static void small_ones(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "autograd::engine::evaluate_function: MmBackward0", at + 1, at + 9);
	hand_kernel(h, product, at + 2, at + 10, at + 510);
	for (int i = 0; i < 40; i++)
		hand_kernel(h, reducing, at + 11 + 3 * i, at + 510 + 12 * i, at + 520 + 12 * i);
}

static void test_buckets(void **state)
{
	(void)state;
	kind = reducing;
	reduces = 10;
	run(communicates, 1010);
	const struct fo_finding *f = there("comm-unknown");
	const struct fo_setting *s = setting(f, "bucket_cap_mb");
	assert_true(s && strcmp(s->paste, "DistributedDataParallel(model, bucket_cap_mb=50, static_graph=True, "
					  "gradient_as_bucket_view=True)") == 0);
	/* One constructor, once. */
	int pasted = 0;
	for (int i = 0; i < f->settings; i++)
		pasted += strncmp(f->setting[i].paste, "DistributedDataParallel(", 24) == 0;
	assert_int_equal(pasted, 1);
	assert_non_null(strstr(f->title, "all-reduces"));
	done();
	/* Two a step: there is nothing to be made fewer. */
	reduces = 2;
	run(communicates, 1010);
	assert_null(setting(there("comm-unknown"), "bucket_cap_mb"));
	done();
	/* All-to-all goes by no bucket. */
	kind = exchanging;
	reduces = 10;
	run(communicates, 1010);
	f = there("comm-unknown");
	assert_true(!setting(f, "bucket_cap_mb") && !setting(f, "static_graph") && !setting(f, "no_sync") &&
		    strstr(f->title, "sends"));
	done();
}

static void test_small_reduces(void **state)
{
	(void)state;
	run(small_ones, 1000);
	const struct fo_finding *f = there("comm-small");
	assert_true(f->is_bottleneck && strstr(f->title, "40 small all-reduces") &&
		    strstr(f->why, "No DistributedDataParallel"));
	assert_true(setting(f, "DistributedDataParallel") && !hand_finding(&diag, "comm-unknown")); /* said once */
	done();
	kind = reducing;
	reduces = 10;
	run(communicates, 1010);
	assert_null(hand_finding(&diag, "comm-small"));
	done();
}

/* ---- copies ---- */

static double pageable;
static void copies(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 1, at + 9);
	hand_copy(h, FO_COPY_H2D, false, at + 2, at + 10, at + 310 - pageable);
	hand_copy(h, FO_COPY_H2D, true, at + 3, at + 310 - pageable, at + 310);
	hand_kernel(h, product, at + 5, at + 310, at + 1010);
}

static void test_pageable(void **state)
{
	(void)state;
	pageable = 1; /* us of 300 */
	run(copies, 1000);
	const struct fo_finding *f = there("copies");
	assert_true(!strstr(f->why, "pageable") && !strstr(f->title, "pageable") && !setting(f, "pin_memory"));
	done();
	pageable = 200;
	run(copies, 1000);
	f = there("copies");
	assert_true(strstr(f->why, "67 % of it is from or to pageable") && strstr(f->title, "pageable") &&
		    setting(f, "pin_memory"));
	done();
}

/* ---- compilers ---- */

static double compiled_us;
static void partly_compiled(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::add", at + 1, at + 9);
	hand_kernel(h, adding, at + 2, at + 10, at + 60);
	hand_kernel(h, adding, at + 3, at + 60, at + 510 - compiled_us);
	hand_kernel(h, "triton_poi_fused_add_mul_0", at + 4, at + 510 - compiled_us, at + 510);
	hand_kernel(h, product, at + 5, at + 510, at + 1010);
}

static void test_compiled(void **state)
{
	(void)state;
	/* One kernel of a compiler is no compiled program. */
	compiled_us = 5;
	run(partly_compiled, 1000);
	const struct fo_finding *f = there("memory-bound");
	const struct fo_setting *s = setting(f, "torch.compile");
	assert_true(f->serious && f->gain_low > 1 && s && strstr(s->now, "compiled in part: 1 %"));
	done();
	/* Most of it is: what is left merges perhaps, and the least gain is none. */
	compiled_us = 330;
	run(partly_compiled, 1000);
	f = there("memory-bound");
	assert_true(!f->serious && (isnan(f->gain) || f->gain_low == 1));
	done();
}

static void one_operator_told(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 20, at + 29);
	hand_kernel(h, adding, at + 2, at + 10, at + 260);
	hand_kernel(h, adding, at + 3, at + 260, at + 510);
	hand_kernel(h, product, at + 22, at + 510, at + 1010);
}

/* That some operator is recorded says nothing of kernels that have none. */
static void test_evidence(void **state)
{
	(void)state;
	run(one_operator_told, 1000);
	const struct fo_finding *f = there("memory-bound");
	assert_true(!f->serious && f->up_to && f->gain_low == 1);
	done();
}

static void serial(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::add", at + 5, at + 99);
	hand_kernel(h, adding, at + 90, at + 95, at + 135);
}

static void apart(struct hand *h, double at)
{
	for (int i = 0; i < 40; i++)
		hand_kernel(h, product, at + 0.1 * i, at + 20 + 24 * i, at + 35 + 24 * i);
}

/* Kernels that were launched in time with much between them, and nothing to merge: "none above the mark" would be
 * untrue. */
static void test_much_between(void **state)
{
	(void)state;
	run(apart, 1000);
	const struct fo_finding *f = there("compute-bound");
	assert_true(f->is_bottleneck && strstr(f->title, "no sure cure"));
	assert_null(strstr(f->title, "stand in its way"));
	assert_null(strstr(f->why, "none of them above"));
	done();
}

/* No step is marked: title and text speak of the trace. */
static void test_words_of_window(void **state)
{
	(void)state;
	hand_begin(&hand, 0, 8);
	hand_device(&hand, "NVIDIA H100 80GB HBM3", 132, 9, 0, 79.1);
	for (int i = 0; i < 400; i++)
		serial(&hand, 100.0 * i);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	const struct fo_finding *f = there("host-launch");
	assert_true(strstr(f->title, "of the trace") && strstr(f->why, "The trace has 400 compute kernels"));
	assert_null(strstr(f->title, "of the step"));
	assert_null(strstr(f->why, "The step"));
	done();
}

/* ---- attention ---- */

static const char *beside;
static void attends(struct hand *h, double at)
{
	struct fo_host_op *o = hand_op(h, FO_HOST_OP, beside, at + 1, at + 4);
	o->shapes = hand_text(h, "[[64, 2048, 128], [64, 128, 2048]]");
	o->types = hand_text(h, "[\"c10::BFloat16\", \"c10::BFloat16\"]");
	hand_kernel(h, product, at + 2, at + 10, at + 310);
	hand_op(h, FO_HOST_OP, "aten::softmax", at + 5, at + 8);
	hand_kernel(h, softmax, at + 6, at + 310, at + 610);
	o = hand_op(h, FO_HOST_OP, beside, at + 9, at + 12);
	o->shapes = hand_text(h, "[[64, 2048, 2048], [64, 2048, 128]]");
	o->types = hand_text(h, "[\"c10::BFloat16\", \"c10::BFloat16\"]");
	hand_kernel(h, product, at + 10, at + 610, at + 910);
	hand_op(h, FO_HOST_OP, "aten::mm", at + 13, at + 16);
	hand_kernel(h, product, at + 14, at + 910, at + 1010);
}

static void test_attention(void **state)
{
	(void)state;
	beside = "aten::bmm";
	run(attends, 1000);
	const struct fo_finding *f = there("attention-eager");
	/* 300 us of softmax go, and of 600 us of products what half of 2 x 2 x 64 x 2048 x 2048 x 128 FLOP do not take
	 * at 75 % of 989. */
	double stays = 2 * 64.0 * 2048 * 2048 * 128 / (0.75 * 989e12) * 1e9;
	assert_true(fabs((double)f->loss_ns - (900000 - stays)) < 2000);
	assert_true(f->serious && f->gain_low > 1.15 && f->gain_low < 1.2);
	assert_true(setting(f, "scaled_dot_product_attention") && !setting(f, "attn_implementation"));
	done();
	/* A softmax after an ordinary product routes tokens or samples them: no attention. */
	beside = "aten::mm";
	run(attends, 1000);
	assert_null(hand_finding(&diag, "attention-eager"));
	done();
}

/* ---- devices ---- */

static void single_precision(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 1, at + 9);
	hand_kernel(h, "void cutlass::Kernel2<cutlass_simt_sgemm_128x64>(int)", at + 2, at + 10, at + 1010);
}

static void test_device(void **state)
{
	(void)state;
	/* An export that does not know the compute capability names the device. */
	run_on(single_precision, 1000, "NVIDIA H100 80GB HBM3", 0, 0);
	const struct fo_setting *s = setting(there("precision"), "torch.autocast");
	assert_true(s && strcmp(s->proposed, "torch.bfloat16") == 0);
	for (int64_t i = 0; i < diag.findings; i++)
		for (int k = 0; k < diag.finding[i].settings; k++)
			assert_null(strstr(diag.finding[i].setting[k].proposed, "GradScaler"));
	done();
	run_on(single_precision, 1000, "Tesla V100-SXM2-16GB", 0, 0);
	s = setting(there("precision"), "torch.autocast");
	assert_true(s && strstr(s->proposed, "GradScaler"));
	done();
	/* Nobody knows it: nothing is said of matrix units. */
	run_on(single_precision, 1000, "Device 1234", 0, 0);
	assert_null(hand_finding(&diag, "precision"));
	done();
	static const struct {
		const char *name;
		int capability;
	} known[] = { { "NVIDIA A100-SXM4-80GB", 80 },
		      { "NVIDIA H100 PCIe", 90 },
		      { "NVIDIA GH200 480GB", 90 },
		      { "Tesla V100-DGXS-32GB", 70 },
		      { "NVIDIA GeForce RTX 4090", 89 },
		      { "NVIDIA L4", 89 },
		      { "NVIDIA L40S", 89 },
		      { "NVIDIA A10G", 86 },
		      { "Tesla T4", 75 },
		      { "NVIDIA B200", 100 },
		      { "AMD Instinct MI300X", 94 },
		      { "AMD Instinct MI250X / MI250", 90 },
		      { "NVIDIA GeForce RTX 2080 Ti", 75 },
		      { "Processor A1000", 0 },
		      { "", 0 } };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (fo_capability_of_name(known[i].name) != known[i].capability)
			fail_msg("%s: %d", known[i].name, fo_capability_of_name(known[i].name));
}

/* ---- convolutions ---- */

static double turning;
static void convolves(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::cudnn_convolution", at + 1, at + 9);
	hand_kernel(
		h,
		"void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(int)",
		at + 2, at + 10, at + 10 + turning);
	hand_kernel(h, "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32", at + 4,
		    at + 10 + turning, at + 1010);
}

static void test_layout(void **state)
{
	(void)state;
	turning = 150;
	run(convolves, 1000);
	const struct fo_finding *f = there("conv-layout");
	assert_true(f->serious && f->loss_ns == 150000 && setting(f, "channels_last"));
	done();
	turning = 10;
	run(convolves, 1000);
	assert_null(hand_finding(&diag, "conv-layout"));
	done();
}

/* ---- vLLM ---- */

static void serves(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "vllm::unified_attention_with_output", at + 1, at + 4);
	for (int i = 0; i < 10; i++) {
		hand_op(h, FO_HOST_OP, "aten::add", at + 100 * i + 5, at + 100 * i + 99);
		hand_kernel(h, adding, at + 100 * i + 90, at + 100 * i + 95, at + 100 * i + 103);
	}
}

static void test_vllm(void **state)
{
	(void)state;
	run(serves, 1000);
	assert_string_equal(diag.framework, "vLLM");
	const struct fo_setting *s = setting(there("host-launch"), "enforce_eager");
	assert_true(s && strcmp(s->framework, "vLLM") == 0);
	for (int64_t i = 0; i < diag.findings; i++)
		assert_null(setting(&diag.finding[i], "torch.compile"));
	done();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fused),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_small_reduces),
		cmocka_unit_test(test_pageable),
		cmocka_unit_test(test_compiled),
		cmocka_unit_test(test_attention),
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_vllm),
		cmocka_unit_test(test_evidence),
		cmocka_unit_test(test_words_of_window),
		cmocka_unit_test(test_much_between),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
