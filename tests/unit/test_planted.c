/* Traces with one planted thing each, from the file to the findings: classes by what stands beside a kernel, rates from
 * recorded shapes, types. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/hand_trace.h"
#include "support/made_trace.h"

#include "report/diagnose_doc.h"

static const char softmax_name[] = "void softmax_warp_forward<float, float, float, 10, true, false>(float*, float "
				   "const*, int)"; /* log, says a flag */
static const char gemm_name[] = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn";
static const char mul_name[] = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)";

static double at; /* of the next operator, us */

static void begin(struct made *m)
{
	made_begin(m);
	made_device(m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	at = 100;
}

/* An operator that launches one kernel of so many us; shapes NULL: none recorded. */
static void run(struct made *m, const char *op, const char *kernel, double us, const char *shapes, const char *types)
{
	if (shapes)
		made_shapes(m, shapes, types);
	made_op(m, op, at, at + 8);
	made_kernel(m, kernel, at + 2, at + 6, at + 6 + us);
	at += us + 8;
}

static const struct fo_trace *trace_of(const struct made_diagnosis *v) { return v->set.rank[0]; }

static void classes(const struct made_diagnosis *v, const char *expected)
{
	char got[400] = "";
	const struct fo_trace *t = trace_of(v);
	for (int64_t i = 0; i < t->gpu_count; i++)
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s%s", i ? " " : "",
			 fo_kernel_class_name[t->gpu[i].class], t->gpu[i].flags & FO_GPU_SCORES ? "!" : "");
	assert_string_equal(got, expected);
}

#define FLOATS "[\"float\", \"float\"]"

/* The operator says softmax, two batched products stand around it: a template flag does not make it the loss. */
static void test_softmax_of_attention(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	for (int i = 0; i < 4; i++) {
		run(&m, "aten::bmm", gemm_name, 100, "[[32, 512, 64], [32, 64, 512]]", FLOATS);
		run(&m, "aten::div", mul_name, 20, NULL, NULL);
		run(&m, "aten::_softmax", softmax_name, 200, "[[32, 512, 512], [], []]", FLOATS);
		run(&m, "aten::bmm", gemm_name, 100, "[[32, 512, 512], [32, 512, 64]]", FLOATS);
	}
	made_run(&m, &v);
	assert_int_equal(trace_of(&v)->gpu[2].class_by_name, FO_K_LOSS);
	assert_int_equal(trace_of(&v)->gpu[2].class, FO_K_SOFTMAX);
	assert_true(trace_of(&v)->gpu[2].flags & FO_GPU_SCORES);
	assert_non_null(hand_finding(&v.d, "attention-eager"));
	made_close(&v);
}

/* The loss's stays the loss's; a router's is no attention. */
static void test_other_softmaxes(void **state)
{
	(void)state;
	static const char plain[] =
		"void softmax_warp_forward<float, float, float, 7, false, false>(float*, float const*, int)";
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	run(&m, "aten::mm", gemm_name, 100, "[[512, 64], [64, 512]]", FLOATS);
	run(&m, "aten::_log_softmax", plain, 50, "[[512, 512], [], []]", FLOATS);
	run(&m, "aten::nll_loss_forward", "nll_loss_forward_reduce_cuda_kernel_2d", 5, NULL, NULL);
	run(&m, "aten::mm", gemm_name, 100, "[[512, 64], [64, 8]]", FLOATS);
	run(&m, "aten::_softmax", plain, 50, "[[512, 8], [], []]", FLOATS);
	run(&m, "aten::topk", "void at::native::sbtopk::gatherTopK<float>(int)", 5, NULL, NULL);
	run(&m, "aten::bmm", gemm_name, 100, "[[8, 128, 64], [8, 64, 64]]", FLOATS);
	made_event(&m, "python_function", "nn.Module: SelfAttention_0", 100, 1, at - 1, 20);
	run(&m, "aten::_softmax", plain, 50, NULL, NULL);
	made_run(&m, &v);
	classes(&v, "gemm loss loss gemm softmax moe gemm softmax!");
	made_close(&v);
}

/* Without operators the order of the kernels tells. */
static void test_softmax_by_order(void **state)
{
	(void)state;
	static const char plain[] =
		"void softmax_warp_forward<float, float, float, 7, false, false>(float*, float const*, int)";
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	const char *const kernel[] = { gemm_name, mul_name, plain, gemm_name, plain, "reduce_kernel", gemm_name };
	for (int i = 0; i < 7; i++)
		made_kernel(&m, kernel[i], -1, 100 + 20 * i, 110 + 20 * i);
	made_run(&m, &v);
	classes(&v, "gemm elementwise softmax! gemm softmax reduce gemm");
	made_close(&v);
	begin(&m); /* as many keys as queries */
	run(&m, "aten::_softmax", plain, 50, "[[2, 8, 512, 512], [], []]", FLOATS);
	run(&m, "aten::_softmax", plain, 50, "[[2, 8, 512, 100], [], []]", FLOATS);
	made_run(&m, &v);
	classes(&v, "softmax! softmax");
	made_close(&v);
}

/* Nothing but attention, with shapes and type: its rate is known. */
static void test_attention_alone(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	for (int i = 0; i < 8; i++)
		run(&m, "aten::_scaled_dot_product_flash_attention",
		    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(int)", 1000,
		    "[[4, 16, 4096, 128], [4, 16, 4096, 128], [4, 16, 4096, 128]]",
		    "[\"c10::BFloat16\", \"c10::BFloat16\", \"c10::BFloat16\"]");
	made_run(&m, &v);
	/* 4 x 4 x 16 x 4096^2 x 128 FLOP in 1 ms, of 989 TFLOP/s */
	double flop = 4.0 * 4 * 16 * 4096 * 4096 * 128;
	assert_true(fabs(v.d.attention.flop - 8 * flop) < 1e-6 * flop);
	assert_true(fabs(v.d.attention.efficiency - flop / 1e-3 / 989.4e12) < 0.01);
	assert_true(v.d.bridge.known);
	assert_string_equal(v.d.bridge.dtype, "bf16");
	assert_null(hand_finding(&v.d, "attention-unknown"));
	made_close(&v);
}

/* The operand's recorded type decides, however it is spelled and whatever the kernel is called. */
static void precision_of(const char *types, const char *kernel, const char *dtype, bool finding)
{
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	for (int i = 0; i < 8; i++)
		run(&m, "aten::mm", kernel, 1000, "[[4096, 4096], [4096, 4096]]", types);
	made_run(&m, &v);
	assert_string_equal(v.d.products ? v.d.product[0].dtype : "none", dtype);
	if ((hand_finding(&v.d, "precision") != NULL) != finding)
		fail_msg("%s on %s: precision %sexpected", types, kernel, finding ? "" : "not ");
	made_close(&v);
}

static void test_types(void **state)
{
	(void)state;
	precision_of("[\"bfloat16\", \"bfloat16\"]", "ampere_sgemm_128x128_nn", "bf16", false);
	precision_of("[\"c10::BFloat16\", \"c10::BFloat16\"]", "void gemm_kernel<float, float>(float*)", "bf16", false);
	precision_of("[\"torch.float16\", \"torch.float16\"]", "volta_sgemm_128x64_nn", "fp16", false);
	precision_of("[\"float\", \"float\"]", "ampere_sgemm_128x128_nn", "fp32", true);
	precision_of("[\"float\", \"float\"]", "cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4", "tf32", false);
	precision_of("[\"\", \"\"]", "a_gemm_of_somebody", "", false); /* nobody says: no finding */
}

/* Experts' weights fetched for every token before products of one row: no embedding. */
static void test_gathered_experts(void **state)
{
	(void)state;
	static const char gather[] = "void at::native::index_elementwise_kernel<128, 4, "
				     "at::native::gpu_index_kernel<at::native::index_kernel_impl>>";
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	run(&m, "aten::embedding", "void at::native::(anonymous namespace)::indexSelectLargeIndex<float>(int)", 20,
	    "[[32000, 512], [64]]", FLOATS);
	run(&m, "aten::mm", gemm_name, 100, "[[64, 512], [512, 512]]", FLOATS);
	run(&m, "aten::index", gather, 500, "[[8, 512, 1024], []]", FLOATS);
	run(&m, "aten::bmm", gemm_name, 100, "[[64, 1, 512], [64, 512, 1024]]", FLOATS);
	made_run(&m, &v);
	classes(&v, "embedding gemm moe gemm");
	assert_true(trace_of(&v)->gpu[2].flags & FO_GPU_GATHERED);
	made_close(&v);
}

/* The driver holds the thread inside an operator: the time is the call's, not the operator's. */
static void test_driver(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	struct fo_gap g;
	struct fo_str words = { 0 };
	begin(&m);
	made_op(&m, "aten::mm", 100, 108);
	made_kernel(&m, gemm_name, 102, 110, 210);
	made_op(&m, "aten::mul", 110, 1160);
	m.args = "\"correlation\": 900";
	made_call(&m, "cudaLaunchKernel", 120, 1060); /* its kernel is not in the trace: another device's */
	made_kernel(&m, mul_name, 1140, 1150, 1300);
	made_op(&m, "aten::add", 1161, 1169);
	made_kernel(&m, mul_name, 1163, 1300, 1400);
	made_run(&m, &v);
	fo_gap_worst(&g, &v.d.rank[0], fo_shown_device(&v.d, 0), FO_GAP_IDLE);
	assert_true(g.dids >= 1);
	assert_string_equal(fo_trace_text(trace_of(&v), g.did[0].name), "cudaLaunchKernel");
	assert_true(g.did[0].call);
	fo_gap_words(&g, &words);
	assert_non_null(strstr(words.data, "'cudaLaunchKernel', a call of the driver, for"));
	for (int i = 0; i < g.dids; i++)
		if (strcmp(fo_trace_text(trace_of(&v), g.did[i].name), "aten::mul") == 0)
			assert_true(g.did[i].ns < 200000); /* of 1050 us */
	const struct fo_finding *f = hand_finding(&v.d, "host-launch");
	assert_non_null(f);
	assert_non_null(strstr(f->why, "calls of the driver"));
	assert_non_null(strstr(f->evidence[0].name, "driver in cudaLaunchKernel"));
	fo_str_fini(&words);
	made_close(&v);
}

#define BF16 "[\"c10::BFloat16\", \"c10::BFloat16\", \"c10::BFloat16\"]"

static void products(struct made *m, struct made_diagnosis *v, const char *shapes, const char *kernel, double us)
{
	begin(m);
	for (int i = 0; i < 8; i++)
		run(m, "aten::mm", kernel, us, shapes, BF16);
	run(m, "aten::mm", gemm_name, 250, "[[4096, 4096], [4096, 4096]]", BF16); /* a healthy one: 550 TFLOP/s */
	made_run(m, v);
}

static void expect(const struct made_diagnosis *v, const char *id, const char *in_why)
{
	const struct fo_finding *f = hand_finding(&v->d, id);
	if (!f)
		fail_msg("no finding '%s'", id);
	if (in_why && !strstr(f->why, in_why))
		fail_msg("'%s' does not say '%s': %s", id, in_why, f->why);
}

static void expect_none(const struct made_diagnosis *v, const char *id)
{
	const struct fo_finding *f = hand_finding(&v->d, id);
	if (f)
		fail_msg("'%s' not expected: %s. %s", id, f->title, f->why);
}

/* What is shown is what is judged: neither kernels without shapes, nor those at their limit, nor those of another type.
 * The product that loses most comes first, however long the others' kernels are. */
static void test_judged_products(void **state)
{
	(void)state;
	static const char slow[] = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_slow";
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	run(&m, "aten::mm", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_unknown", 9000, NULL, NULL);
	run(&m, "aten::mm", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_fast", 1400,
	    "[[8192, 8192], [8192, 8192]]", BF16);
	run(&m, "aten::mm", "cublas_dgemm_128x128", 8000, "[[4096, 4096], [4096, 4096]]", "[\"double\", \"double\"]");
	run(&m, "aten::mm", gemm_name, 1500, "[[8192, 4096], [4096, 4096]]", BF16);
	for (int i = 0; i < 8; i++)
		run(&m, "aten::mm", slow, 1000, "[[4096, 4096], [4096, 4096]]", BF16);
	made_run(&m, &v);
	expect(&v, "gemm-efficiency", "Most is lost in 4096 x 4096 x 4096 in bf16");
	const struct fo_finding *f = hand_finding(&v.d, "gemm-efficiency");
	assert_int_equal(f->evidences, 2);
	assert_string_equal(f->evidence[0].name, slow);
	assert_string_equal(f->evidence[1].name, gemm_name);
	made_close(&v);
}

/* A vocabulary of 50257: rows are no whole 16 bytes. Not the device's limit, and not the tokens' number. */
static void test_ragged(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	products(&m, &v, "[[8192, 1024], [1024, 50257]]", gemm_name, 6000); /* 141 TFLOP/s */
	expect(&v, "shape-padding", "n 50257 -> 50304 (hidden, feed-forward or vocabulary size)");
	assert_true(hand_finding(&v.d, "shape-padding")->gain_high > 1.5);
	assert_int_equal(hand_finding(&v.d, "shape-padding")->settings, 1); /* not the tokens */
	assert_non_null(strstr(hand_finding(&v.d, "shape-padding")->setting[0].key, "vocabulary"));
	expect_none(&v, "gemm-efficiency");
	expect_none(&v, "product-ceiling");
	made_close(&v);
	products(&m, &v, "[[8192, 1024], [1024, 50304]]", gemm_name, 6000);
	expect_none(&v, "shape-padding");
	expect(&v, "gemm-efficiency", NULL);
	for (int i = 0; i < hand_finding(&v.d, "gemm-efficiency")->settings; i++) /* sizes that fit need no advice */
		assert_null(strstr(hand_finding(&v.d, "gemm-efficiency")->setting[i].key, "hidden"));
	made_close(&v);
	products(&m, &v, "[[8192, 1024], [1024, 50257]]", gemm_name, 1400); /* as fast as can be */
	expect_none(&v, "shape-padding");
	made_close(&v);
	/* 129 rows in tiles of 128: tokens, and cut rather than padded */
	products(&m, &v, "[[129, 8192], [8192, 16384]]", gemm_name, 140);
	expect(&v, "shape-padding", "m 129 -> 128 (tokens: batch x sequence)");
	assert_int_equal(hand_finding(&v.d, "shape-padding")->settings, 1);
	assert_non_null(strstr(hand_finding(&v.d, "shape-padding")->setting[0].key, "tokens"));
	made_close(&v);
}

/* In the backward pass rows and columns change places: the tokens stay the tokens. */
static void test_tokens_in_backward(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	run(&m, "aten::mm", gemm_name, 250, "[[4095, 4096], [4096, 4096]]", BF16);
	made_op(&m, "autograd::engine::evaluate_function: MmBackward0", at - 1, at + 100000);
	for (int i = 0; i < 8; i++)
		run(&m, "aten::mm", gemm_name, 1500, "[[4096, 4095], [4095, 4096]]",
		    BF16); /* the weight's gradient: k is the tokens */
	made_run(&m, &v);
	expect(&v, "shape-padding", "k 4095 -> 4096 (tokens: batch x sequence)");
	made_close(&v);
}

/* Head size 65 and a sequence of 129, in attention that is written out and in a fused kernel. */
static void test_ragged_attention(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	for (int i = 0; i < 8; i++)
		run(&m, "aten::bmm", gemm_name, 3000, "[[64, 2048, 65], [64, 65, 2048]]", BF16);
	made_run(&m, &v);
	expect(&v, "shape-padding", "k 65 -> 128 (head size)");
	made_close(&v);
	begin(&m);
	for (int i = 0; i < 8; i++)
		run(&m, "aten::_flash_attention_forward", "void flash_fwd_kernel<int>(int)", 100,
		    "[[64, 129, 16, 128], [64, 129, 16, 128], [64, 129, 16, 128]]", BF16);
	made_run(&m, &v);
	expect(&v, "attention-padding", "With 128 none");
	made_close(&v);
	begin(&m);
	for (int i = 0; i < 8; i++)
		run(&m, "aten::_flash_attention_forward", "void flash_fwd_kernel<int>(int)", 100,
		    "[[64, 128, 16, 128], [64, 128, 16, 128], [64, 128, 16, 128]]", BF16);
	made_run(&m, &v);
	expect_none(&v, "attention-padding");
	made_close(&v);
}

/* Four tiles for 132 units and a k of 65536: a kernel that divides k is what is missing. */
static void test_few_tiles(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	products(&m, &v, "[[256, 65536], [65536, 256]]", gemm_name, 400);
	expect(&v, "split-k", "4 tiles");
	expect_none(&v, "gemm-efficiency");
	made_close(&v);
	products(&m, &v, "[[256, 65536], [65536, 256]]",
		 "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn_splitK", 400);
	expect_none(&v, "split-k");
	made_close(&v);
}

/* Operands that are rearranged inside the product's operator are no product. */
static void test_layout(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	for (int i = 0; i < 8; i++) {
		made_shapes(&m, "[[4096, 4096], [4096, 4096]]", BF16);
		made_op(&m, "aten::mm", at, at + 12);
		made_kernel(&m, "void transpose_kernel<__nv_bfloat16>(int)", at + 2, at + 6, at + 106);
		made_kernel(&m, gemm_name, at + 6, at + 106, at + 356);
		at += 370;
	}
	made_run(&m, &v);
	assert_int_equal(v.d.rank[0].device[0].total.class_sum_ns[FO_K_LAYOUT], 800000);
	assert_int_equal(v.d.product[0].time_ns, 8 * 250000);
	expect(&v, "product-layout", "8 kernels");
	expect_none(&v, "conv-layout");
	made_close(&v);
	begin(&m); /* around a convolution it is the images' layout */
	for (int i = 0; i < 8; i++) {
		made_op(&m, "aten::cudnn_convolution", at, at + 12);
		made_kernel(&m, "void cudnn::ops::nchwToNhwcKernel<__half, __half, float>(int)", at + 2, at + 6,
			    at + 106);
		made_kernel(&m, "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", at + 6, at + 106,
			    at + 356);
		at += 370;
	}
	made_run(&m, &v);
	expect(&v, "conv-layout", "channels last");
	expect_none(&v, "product-layout");
	made_close(&v);
}

/* The grouped product is what is missing. */
static void test_gather_finding(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	for (int i = 0; i < 8; i++) {
		run(&m, "aten::index", "void at::native::index_elementwise_kernel<128, 4>(int)", 500,
		    "[[8, 512, 1024], []]", BF16);
		run(&m, "aten::bmm", gemm_name, 100, "[[64, 1, 512], [64, 512, 1024]]", BF16);
	}
	made_run(&m, &v);
	expect(&v, "expert-gather", "grouped matmul");
	made_close(&v);
}

/* Experts one after the other: as many numbers of rows as experts. The same sizes in a dense model are layers. */
static void test_expert_loop(void **state)
{
	(void)state;
	for (int routed = 0; routed < 2; routed++) {
		struct made m;
		struct made_diagnosis v;
		begin(&m);
		for (int i = 0; i < 8; i++) {
			char shapes[64];
			snprintf(shapes, sizeof shapes, "[[%d, 1024], [1024, 4096]]", 256 + 64 * i);
			run(&m, "aten::mm", gemm_name, 100, shapes, BF16);
			if (routed)
				run(&m, "aten::topk", "void cuda::topk_sum_and_topk_idx<16, 64>(int)", 5, NULL, NULL);
		}
		made_run(&m, &v);
		if (routed)
			expect(&v, "expert-loop",
			       "8 matmuls with weights of 1024 x 4096 have 8 different numbers of rows");
		else
			expect_none(&v, "expert-loop");
		made_close(&v);
	}
}

/* 3 x 64 MiB in 1 ms are 201 GB/s of 3350; in 70 us they are 2876. */
static void test_elementwise(void **state)
{
	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		struct made m;
		struct made_diagnosis v;
		begin(&m);
		for (int i = 0; i < 20; i++)
			run(&m, "aten::add", mul_name, slow ? 1000 : 70, "[[8192, 4096], [8192, 4096], []]",
			    "[\"c10::BFloat16\", \"c10::BFloat16\", \"Scalar\"]");
		made_run(&m, &v);
		double rate = v.d.moving.bytes / ((double)v.d.moving.time_ns * 1e-9);
		assert_true(fabs(rate / (3 * 67108864.0 / (slow ? 1e-3 : 70e-6)) - 1) < 1e-6);
		if (slow)
			expect(&v, "elementwise-rate", "201 GB/s");
		else
			expect_none(&v, "elementwise-rate");
		expect(&v, "memory-bound", slow ? "201 GB/s, 6 %" : "2876 GB/s, 86 %");
		made_close(&v);
	}
}

/* No step is marked, and the first call of each shape takes long: it is no part of a rate. */
static void test_warm_up(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	for (int i = 0; i < 4; i++) /* the window has begun */
		run(&m, "aten::add", mul_name, 1000, NULL, NULL);
	made_shapes(&m, "[[4096, 4096], [4096, 4096]]", BF16);
	made_op(&m, "aten::mm", at, at + 40000); /* the library is loaded */
	made_kernel(&m, gemm_name, at + 39990, at + 39995, at + 44000);
	at += 44100;
	for (int i = 0; i < 9; i++)
		run(&m, "aten::mm", gemm_name, 250, "[[4096, 4096], [4096, 4096]]", BF16);
	made_run(&m, &v);
	assert_true(v.d.product[0].warm_up == 1 && v.d.product[0].calls == 9 && v.d.product[0].time_ns == 9 * 250000);
	expect(&v, "first-calls", "1 matmul shape");
	assert_non_null(strstr(hand_finding(&v.d, "first-calls")->title, "first calls of 1 operator take"));
	made_close(&v);
	begin(&m); /* with steps nothing is left out: the profiler's schedule had its own warm-up */
	for (int step = 0; step < 4; step++) {
		made_step(&m, step, at, at + 2000);
		at += 10;
		for (int i = 0; i < 4; i++)
			run(&m, "aten::mm", gemm_name, step + i == 0 ? 900 : 250, "[[4096, 4096], [4096, 4096]]", BF16);
		at += 2000;
	}
	made_run(&m, &v);
	assert_int_equal(v.d.product[0].warm_up, 0);
	expect_none(&v, "first-calls");
	made_close(&v);
}

/* Too little arithmetic for a rate: nothing is said, in particular no 0 %. */
static void test_silly_rates(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	for (int i = 0; i < 50; i++) {
		run(&m, "aten::mm", gemm_name, 3, "[[8, 16], [16, 8]]", BF16);
		run(&m, "aten::_flash_attention_forward", "void flash_fwd_kernel<int>(int)", 20,
		    "[[1, 1, 4, 64], [1, 16, 4, 64], [1, 16, 4, 64]]", BF16);
	}
	made_run(&m, &v);
	for (int64_t i = 0; i < v.d.findings; i++)
		if (strstr(v.d.finding[i].title, " 0 %") || strstr(v.d.finding[i].why, " 0 %"))
			fail_msg("%s: %s. %s", v.d.finding[i].id, v.d.finding[i].title, v.d.finding[i].why);
	expect_none(&v, "gemm-efficiency");
	expect_none(&v, "attention-efficiency");
	assert_true(v.d.product[0].tiny && isnan(v.d.product[0].attainable_flop_s));
	made_close(&v);
}

/* An export without compute capability: the name suffices, and an H100 is not advised to use float16. */
static void test_capability_by_name(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 0, 0, 80);
	at = 100;
	for (int i = 0; i < 8; i++)
		run(&m, "aten::mm", "sgemm_128x128_nn", 1000, "[[4096, 4096], [4096, 4096]]", FLOATS);
	made_run(&m, &v);
	const struct fo_finding *f = hand_finding(&v.d, "precision");
	assert_non_null(f);
	for (int i = 0; i < f->settings; i++)
		assert_null(strstr(f->setting[i].proposed, "GradScaler"));
	made_close(&v);
}

/* A float among a name's template arguments may be that of the sum, or of operands that run as TF32: it is no sure
 * fp32. */
static void test_float_in_name(void **state)
{
	(void)state;
	static const char named[] = "void gemmSN_NN_kernel<float, 256, 4, 2, 8, 4, 4, false>(int)";
	static const struct {
		const char *kernel, *types;
		bool sure;
	} known[] = { { named, NULL, false }, { named, FLOATS, true }, { "ampere_sgemm_128x128_nn", NULL, true } };
	for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++) {
		struct made m;
		struct made_diagnosis v;
		begin(&m);
		for (int i = 0; i < 8; i++)
			run(&m, "aten::mm", known[k].kernel, 1000,
			    known[k].types ? "[[4096, 4096], [4096, 4096]]" : NULL, known[k].types);
		made_run(&m, &v);
		const struct fo_finding *f = hand_finding(&v.d, "precision");
		assert_non_null(f);
		if (f->serious != known[k].sure || (strstr(f->title, "names") == NULL) != known[k].sure)
			fail_msg("%s: %s", known[k].kernel, f->title);
		assert_true(known[k].sure || (!f->is_bottleneck && (f->up_to || isnan(f->gain))));
		made_close(&v);
	}
}

/* Copies say how fast they were, and what the link can do. */
static void test_copies(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	for (int i = 0; i < 8; i++) {
		run(&m, "aten::mm", gemm_name, 250, "[[4096, 4096], [4096, 4096]]", BF16);
		made_copy(&m, "Memcpy HtoD (Pinned -> Device)", 27700000, at, at + 5, at + 1005);
		at += 1010;
	}
	made_run(&m, &v);
	expect(&v, "copies", "host to device 27.7 GB/s of 63 that a link of its generation can do");
	made_close(&v);
}

/* Healthy attention: what it is of the step, and its rate. */
static void test_healthy(void **state)
{
	(void)state;
	struct made m;
	struct made_diagnosis v;
	begin(&m);
	for (int i = 0; i < 8; i++) {
		run(&m, "aten::mm", gemm_name, 250, "[[4096, 4096], [4096, 4096]]", BF16);
		run(&m, "aten::_flash_attention_forward", "void flash_fwd_kernel<int>(int)", 250,
		    "[[1, 4096, 16, 128], [1, 4096, 16, 128], [1, 4096, 16, 128]]", BF16);
	}
	made_run(&m, &v);
	expect(&v, "compute-bound", "of the trace is attention, at 56 % of the peak");
	made_close(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_softmax_of_attention),
		cmocka_unit_test(test_other_softmaxes),
		cmocka_unit_test(test_softmax_by_order),
		cmocka_unit_test(test_attention_alone),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_gathered_experts),
		cmocka_unit_test(test_driver),
		cmocka_unit_test(test_judged_products),
		cmocka_unit_test(test_ragged),
		cmocka_unit_test(test_ragged_attention),
		cmocka_unit_test(test_tokens_in_backward),
		cmocka_unit_test(test_capability_by_name),
		cmocka_unit_test(test_expert_loop),
		cmocka_unit_test(test_few_tiles),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_gather_finding),
		cmocka_unit_test(test_elementwise),
		cmocka_unit_test(test_warm_up),
		cmocka_unit_test(test_silly_rates),
		cmocka_unit_test(test_float_in_name),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_healthy),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
