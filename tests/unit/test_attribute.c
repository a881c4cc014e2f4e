/* Classes by operator and module, the backward pass and what it repeats, on traces built by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace/trace_int.h"

/* Builds one thread after the other: in() opens a range, out() closes it, run() is an operator that launches one
 * kernel. */
static struct fo_trace_build b;
static int64_t now, open_at[32];
static int depth, thread;
static struct {
	const char *name;
	enum fo_host_kind kind;
	int64_t sequence;
	bool other;
} open_op[32];

static void start(void)
{
	fo_trace_build_init(&b, "made by hand");
	now = 1000;
	depth = 0;
	thread = 1;
}

static int32_t text(const char *s) { return fo_trace_intern(&b, s, strlen(s)); }

static void in(const char *name, enum fo_host_kind kind, int64_t sequence, bool other)
{
	open_op[depth].name = name;
	open_op[depth].kind = kind;
	open_op[depth].sequence = sequence;
	open_op[depth].other = other;
	open_at[depth++] = now++;
}

static void out(void)
{
	depth--;
	struct fo_host_op *o = fo_trace_add_op(&b, open_at[depth], now++);
	o->name = text(open_op[depth].name);
	o->kind = (uint8_t)open_op[depth].kind;
	o->sequence = open_op[depth].sequence;
	o->other_thread = open_op[depth].other;
	o->thread = fo_trace_thread(&b, 1, thread);
}

static const char add_kernel[] = "void at::native::vectorized_elementwise_kernel<4, "
				 "at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >";
static const char copy_kernel[] = "void "
				  "at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::"
				  "TensorIteratorBase&)::{lambda()#1}>";
static const char reduce_kernel[] = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
				    "at::native::MeanOps<float, float, float, float> > >";

static void launch(const char *kernel)
{
	struct fo_launch *l = fo_trace_add_launch(&b, now, now + 1);
	now += 2;
	l->correlation = b.t->launch_count;
	l->thread = fo_trace_thread(&b, 1, thread);
	l->name = text("cudaLaunchKernel");
	struct fo_gpu_op *g = fo_trace_add_gpu(&b, now + 100000, now + 100001);
	g->correlation = b.t->launch_count;
	g->kind = FO_GPU_KERNEL;
	g->name = text(kernel);
	g->device = fo_trace_device(&b, 0);
	g->stream = 7;
}

static void run(const char *op, int64_t sequence, const char *kernel)
{
	in(op, FO_HOST_OP, sequence, false);
	launch(kernel);
	out();
}

static struct fo_trace *done(void)
{
	struct fo_trace *t = NULL;
	if (fo_trace_build_finish(&b, &t) != FO_OK)
		fail_msg("%s", fo_err_text());
	return t;
}

static void classes(const char *expected) /* by launch: "norm norm elementwise" */
{
	struct fo_trace *t = done();
	char got[1024] = "";
	for (int64_t i = 0; i < t->gpu_count; i++)
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", i ? " " : "",
			 fo_kernel_class_name[t->gpu[i].class]);
	fo_trace_free(t);
	assert_string_equal(got, expected);
}

/* "." forward, "b" backward, "r" recomputed. */
static void passes(const char *expected)
{
	struct fo_trace *t = done();
	char got[64] = "";
	for (int64_t i = 0; i < t->gpu_count; i++)
		got[i] = t->gpu[i].flags & FO_GPU_RECOMPUTED ? 'r' : t->gpu[i].flags & FO_GPU_BACKWARD ? 'b' : '.';
	fo_trace_free(t);
	assert_string_equal(got, expected);
}

static void eager_norm(int64_t sequence)
{
	run("aten::to", -1, copy_kernel);
	run("aten::pow", sequence, add_kernel);
	run("aten::mean", sequence + 1, reduce_kernel);
	run("aten::add", sequence + 2, add_kernel);
	run("aten::rsqrt", sequence + 3, add_kernel);
	run("aten::mul", sequence + 4, add_kernel);
	run("aten::to", sequence + 5, copy_kernel);
	run("aten::mul", sequence + 6, add_kernel);
}

static void test_eager_norm(void **state)
{
	(void)state;
	start(); /* no module is recorded: the order of the operators tells, and views between them do not disturb */
	run("aten::add", -1, add_kernel);
	run("aten::slice", -1, add_kernel);
	eager_norm(10);
	run("aten::mul", -1, add_kernel);
	classes("elementwise elementwise norm norm norm norm norm norm norm norm elementwise");
	start(); /* the same words in another order are no norm */
	run("aten::mean", -1, reduce_kernel);
	run("aten::pow", -1, add_kernel);
	run("aten::rsqrt", -1, add_kernel);
	run("aten::mul", -1, add_kernel);
	classes("reduce elementwise elementwise elementwise");
	start(); /* of different parents neither */
	run("aten::pow", -1, add_kernel);
	in("aten::other", FO_HOST_OP, -1, false);
	run("aten::mean", -1, reduce_kernel);
	run("aten::rsqrt", -1, add_kernel);
	out();
	run("aten::mul", -1, add_kernel);
	classes("elementwise reduce elementwise elementwise");
	start();
	run("aten::mul", -1, add_kernel);
	run("aten::neg", -1, add_kernel);
	run("aten::cat", -1, copy_kernel);
	run("aten::mul", -1, add_kernel);
	run("aten::add", -1, add_kernel);
	run("aten::neg", -1, add_kernel);
	classes("rope rope rope rope rope elementwise");
}

static void test_modules(void **state)
{
	(void)state;
	start();
	in("nn.Module: LlamaModelWithEmbeddings_0", FO_HOST_MODULE, -1, false);
	in("nn.Module: LlamaRMSNorm_3", FO_HOST_MODULE, -1, false);
	run("aten::pow", 5, add_kernel);
	run("aten::linear", -1, "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"); /* a name that tells stays */
	run("aten::mul", -1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
	out();
	in("nn.Module: LlamaRotaryEmbedding_0", FO_HOST_MODULE, -1, false);
	run("aten::cos", -1, add_kernel);
	out();
	in("nn.Module: LlamaMLP_0", FO_HOST_MODULE, -1, false);
	run("aten::mul", 6, add_kernel); /* not of the module around its own */
	out();
	out();
	/* The backward pass finds the module by the sequence number of the node. */
	thread = 2;
	in("autograd::engine::evaluate_function: PowBackward0", FO_HOST_OP, 5, true);
	in("PowBackward0", FO_HOST_OP, 5, true);
	run("aten::mul", -1, add_kernel);
	out();
	out();
	in("autograd::engine::evaluate_function: MulBackward0", FO_HOST_OP, 6, true);
	run("aten::mul", -1, add_kernel);
	out();
	classes("norm gemm communication rope elementwise norm elementwise");
}

static void test_operators(void **state)
{
	(void)state;
	start();
	in("aten::cross_entropy_loss", FO_HOST_OP, -1, false);
	run("aten::_log_softmax", -1,
	    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, "
	    "at::native::SoftMaxForwardEpilogue>");
	run("aten::nll_loss_forward", -1, reduce_kernel);
	out();
	run("aten::_softmax", -1,
	    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, "
	    "at::native::SoftMaxForwardEpilogue>");
	in("aten::native_layer_norm", FO_HOST_OP, -1, false);
	run("aten::_to_copy", -1, copy_kernel); /* a norm's cast is the norm's */
	out();
	run("aten::_to_copy", -1, copy_kernel);
	run("aten::contiguous", -1, copy_kernel);
	run("aten::contiguous", -1, add_kernel);
	in("Optimizer.step#AdamW.step", FO_HOST_NOTE, -1, false);
	run("aten::mul", -1, add_kernel);
	run("aten::mm", -1, "nvjet_tst_128x64"); /* Muon's */
	in("aten::_foreach_copy_", FO_HOST_OP, -1, false);
	launch("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
	out();
	out();
	in("layers.3.input_layernorm", FO_HOST_NOTE, -1, false); /* NVTX of a module */
	run("aten::mul", -1, add_kernel);
	out();
	in("autograd::engine::evaluate_function: ScaledDotProductFlashAttentionBackward0", FO_HOST_OP, 3, true);
	run("aten::fill_", -1, add_kernel); /* a kernel's own clear class stays */
	run("aten::_flash_attention_backward", -1, "_bwd_kernel");
	out();
	classes("loss loss softmax norm cast copy elementwise optimizer optimizer communication norm elementwise "
		"attention_backward");
}

/* What prepares operands is no attention, convolution or product, whatever the operator around it is called. */
static void test_preparing(void **state)
{
	(void)state;
	start();
	in("myflash::FlashAttnFunc", FO_HOST_OP, -1, false);
	run("aten::_to_copy", -1,
	    "void at::native::vectorized_elementwise_kernel<8, "
	    "at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>");
	run("aten::contiguous", -1, copy_kernel);
	run("aten::mul", -1, add_kernel);
	launch("_fwd_kernel");
	out();
	in("aten::cudnn_convolution", FO_HOST_OP, -1, false);
	launch(copy_kernel);
	launch("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)0>(int)");
	launch("some_engine");
	out();
	run("aten::add_", -1, add_kernel);
	in("aten::linear", FO_HOST_OP, -1, false);
	in("aten::to", FO_HOST_OP, -1, false); /* autocast */
	run("aten::_to_copy", -1, copy_kernel);
	out();
	in("aten::reshape", FO_HOST_OP, -1, false);
	run("aten::clone", -1, copy_kernel);
	out();
	in("aten::addmm", FO_HOST_OP, -1, false);
	launch("void transpose_kernel<float>(float*)");
	launch("ampere_sgemm_64x32_sliced1x4_tn");
	out();
	out();
	run("aten::clone", -1, copy_kernel);
	classes("cast copy elementwise attention_forward layout layout conv elementwise cast layout layout gemm copy");
}

static void node(const char *name, int64_t sequence) { in(name, FO_HOST_OP, sequence, true); }

static void test_passes(void **state)
{
	(void)state;
	/* Reentrant checkpoints: the forward runs again in one node, and its backward as nodes inside it. */
	start();
	run("aten::mul", 1, add_kernel);
	thread = 2;
	node("autograd::engine::evaluate_function: CheckpointFunctionBackward", 9);
	node("CheckpointFunctionBackward", 9);
	run("aten::mul", -1, add_kernel);
	node("autograd::engine::evaluate_function: MulBackward0", 2);
	run("aten::mul", -1, add_kernel);
	out();
	out();
	out();
	node("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", -1);
	run("aten::add_", -1, add_kernel);
	out();
	passes(".rbb");
	/* The others: an operator that makes nodes inside a node. */
	start();
	thread = 2;
	for (int i = 0; i < 4; i++) {
		node("autograd::engine::evaluate_function: MulBackward0", 20 - i);
		node("MulBackward0", 20 - i);
		if (i == 1) {
			in("aten::conv2d", FO_HOST_OP, 3, false);
			run("aten::convolution", -1, "sm80_xmma_fprop_implicit_gemm_bf16bf16");
			out();
		}
		run("aten::mul", -1, add_kernel);
		out();
		out();
	}
	passes("brbbb");
	/* create_graph: every node makes nodes; nothing is repeated. */
	start();
	thread = 2;
	for (int i = 0; i < 4; i++) {
		node("autograd::engine::evaluate_function: MulBackward0", 20 - i);
		run("aten::mul", 30 + i, add_kernel);
		out();
	}
	passes("bbbb");
}

/* Two threads that count for themselves: a number that both have tells nothing. */
static void test_ambiguous(void **state)
{
	(void)state;
	start();
	thread = 3;
	run("aten::mul", 5, add_kernel);
	thread = 1;
	in("nn.Module: RMSNorm_0", FO_HOST_MODULE, -1, false);
	run("aten::mul", 5, add_kernel);
	out();
	thread = 2;
	node("autograd::engine::evaluate_function: MulBackward0", 5);
	run("aten::mul", -1, add_kernel);
	out();
	classes("elementwise norm elementwise");
}

struct interval {
	int64_t begin, end;
};

static int by_begin(const void *a, const void *c)
{
	const struct interval *x = a, *y = c;
	return (x->begin > y->begin) - (x->begin < y->begin);
}

/* TraceLens' golden figures of a trace with checkpoints that are not reentrant: 4.12224 ms of computation
 * recomputed, 15.1119 not. They are sums of doubles that hold microseconds since 1970, so the last of their digits is
 * rounding. */
static void test_real(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_TRACES");
	char path[512];
	if (!root)
		skip();
	snprintf(path, sizeof(path), "%s/tl_resnet_actckpt_ddp8_mi300x/resnet_act_checkpoint.json.gz", root);
	struct fo_trace *t = NULL;
	assert_int_equal(fo_trace_open(&t, path), FO_OK);
	for (int recomputed = 0; recomputed < 2; recomputed++) {
		struct interval *v = malloc((size_t)t->gpu_count * sizeof(*v));
		assert_non_null(v);
		size_t n = 0;
		int64_t sum = 0, end = INT64_MIN;
		for (int64_t i = 0; i < t->gpu_count; i++) {
			const struct fo_gpu_op *g = &t->gpu[i];
			if (g->kind == FO_GPU_KERNEL && g->class != FO_K_COMMUNICATION && g->launch >= 0 &&
			    !!(g->flags & FO_GPU_RECOMPUTED) == recomputed)
				v[n++] = (struct interval){ g->begin_ns, g->end_ns };
		}
		qsort(v, n, sizeof(*v), by_begin);
		for (size_t i = 0; i < n; i++) {
			int64_t from = v[i].begin > end ? v[i].begin : end;
			sum += v[i].end > from ? v[i].end - from : 0;
			end = v[i].end > end ? v[i].end : end;
		}
		free(v);
		assert_in_range(sum, recomputed ? 4122200 : 15111800, recomputed ? 4122260 : 15111950);
	}
	fo_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_eager_norm), cmocka_unit_test(test_modules), cmocka_unit_test(test_operators),
		cmocka_unit_test(test_preparing),  cmocka_unit_test(test_passes),  cmocka_unit_test(test_ambiguous),
		cmocka_unit_test(test_real),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
