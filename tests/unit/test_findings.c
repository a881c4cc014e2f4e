/* Findings: for each rule a trace built by hand on which it holds and one on which it does not; evidence, settings,
 * money, the bottleneck. Real traces under FLATOUT_TRACES. */
#define _GNU_SOURCE /* popen, setenv */
#include "support/hand_trace.h"

#include "base/fs.h"

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
static const char reducing[] = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
static const struct fo_diagnose_options plain = { .price_per_hour = NAN }, priced = { .price_per_hour = 2 };

/* What holds of every finding, whatever the trace. */
static void check_all(const struct fo_diagnosis *d)
{
	int bottlenecks = 0, second = 0;
	for (int64_t i = 0; i < d->findings; i++) {
		const struct fo_finding *f = &d->finding[i];
		assert_true(f->evidences > 0);
		assert_true(f->title[0] && f->why[0]);
		bottlenecks += f->is_bottleneck;
		second += f->is_runner_up;
		assert_false(f->is_bottleneck && f->is_runner_up);
		for (int k = 0; k < f->evidences; k++) {
			assert_true(f->evidence[k].name[0] && f->evidence[k].duration_ns >= 0);
			assert_true(k == 0 || strcmp(f->id, "gemm-efficiency") == 0 || /* by the loss of its product */
				    f->evidence[k].duration_ns <= f->evidence[k - 1].duration_ns);
		}
		for (int k = 0; k < f->settings; k++)
			assert_true(f->setting[k].key[0] && f->setting[k].proposed[0]);
		if (f->kind == FO_FIND_VALIDITY) {
			assert_false(f->serious);
			assert_true(isnan(f->gain));
			assert_true(i == 0 || d->finding[i - 1].kind == FO_FIND_VALIDITY);
		} else if (!isnan(f->gain)) {
			assert_true(f->gain_low >= 1 && f->gain_low <= f->gain + 1e-9 &&
				    f->gain <= f->gain_high + 1e-9);
			assert_true(f->gain_high <= f->ceiling + 1e-9);
		}
	}
	assert_true(bottlenecks <= 1 && second <= bottlenecks);
}

/* Runs one scene: `make` fills steps 1 .. 4 of `length` us; three windows come out of it. */
typedef void scene(struct hand *h, double at);
static struct hand hand;
static struct fo_diagnosis diag;
static struct fo_trace_set set;

static void run(scene *make, double length, const struct fo_diagnose_options *o)
{
	hand_begin(&hand, 0, 1);
	hand_device(&hand, "NVIDIA H100 80GB HBM3", 132, 9, 0, 79.1);
	hand_steps(&hand, 4, length);
	for (int i = 0; i < 4; i++)
		make(&hand, i * length);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, o);
	check_all(&diag);
}
static void done(void) { hand_done(&hand, &diag); }

/* The finding is there, alone serious where `serious` says so. */
static const struct fo_finding *there(const char *id, bool serious)
{
	const struct fo_finding *f = hand_finding(&diag, id);
	if (!f)
		fail_msg("no finding '%s'", id);
	if (f->serious != serious)
		fail_msg("'%s' is %sserious", id, serious ? "not " : "");
	return f;
}
static void absent(const char *id)
{
	if (hand_finding(&diag, id))
		fail_msg("there is a finding '%s': %s", id, hand_finding(&diag, id)->title);
}
static bool has_setting(const struct fo_finding *f, const char *key, const char *now)
{
	for (int i = 0; i < f->settings; i++)
		if (strcmp(f->setting[i].key, key) == 0 && strcmp(f->setting[i].now, now) == 0)
			return true;
	return false;
}

/* ---- the host ---- */

static void busy(struct hand *h, double at) /* a product over the whole step, launched ahead */
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 1, at + 9);
	hand_kernel(h, product, at + 2, at + 10, at + 1010);
}

static void loads(struct hand *h, double at)
{
	hand_op(h, FO_HOST_DATA, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 5, at + 305);
	hand_op(h, FO_HOST_OP, "aten::mm", at + 306, at + 320);
	hand_kernel(h, product, at + 310, at + 314, at + 1000);
}
static void loads_with_workers(struct hand *h, double at)
{
	hand_op(h, FO_HOST_DATA, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 5, at + 305);
	hand_op(h, FO_HOST_OP, "aten::mm", at + 306, at + 320);
	hand_kernel(h, product, at + 310, at + 314, at + 1000);
}
static void loads_quickly(struct hand *h, double at)
{
	hand_op(h, FO_HOST_DATA, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 5, at + 35);
	hand_op(h, FO_HOST_OP, "aten::mm", at + 36, at + 50);
	hand_kernel(h, product, at + 40, at + 44, at + 1000);
}

static void test_data(void **state)
{
	(void)state;
	run(loads, 1000, &priced);
	const struct fo_finding *f = there("data-loading", true);
	assert_true(f->is_bottleneck && f->kind == FO_FIND_DATA);
	assert_true(has_setting(f, "DataLoader(num_workers=)", "0"));
	assert_string_equal(f->evidence[0].name, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
	assert_int_equal(f->evidence[0].duration_ns, 300000);
	assert_int_equal(f->evidence[0].rank, 0);
	/* One device at 2 dollars: what the estimate saves of it. */
	assert_true(fabs(f->dollars - 2 * (1 - 1 / f->gain)) < 1e-12);
	assert_true(f->ceiling > 1.42 && f->ceiling < 1.46);
	assert_non_null(strstr(f->why, "of the host's step"));
	assert_string_equal(f->setting[0].paste,
			    "DataLoader(dataset, num_workers=4, prefetch_factor=4, persistent_workers=True)");
	/* At worst what the host's other work shows already comes again. */
	const struct fo_ledger *l = &diag.rank[0].device[0].median.l;
	int64_t other = l->idle_ns[FO_IDLE_HOST_LAUNCH_BOUND] + l->idle_ns[FO_IDLE_HOST_OTHER] +
			l->idle_ns[FO_IDLE_LAUNCH_LATENCY];
	assert_true(other > 0 && fabs((double)l->span_ns / f->gain_low -
				      (double)(l->span_ns - l->idle_ns[FO_IDLE_HOST_DATA] + other)) < 1);
	done();
	run(loads_with_workers, 1000, &plain);
	f = there("data-loading", true);
	assert_true(has_setting(f, "DataLoader(num_workers=)", ">= 1") && isnan(f->dollars));
	done();
	run(loads_quickly, 1000, &plain);
	absent("data-loading");
	done();
}

static void launches_slowly(struct hand *h, double at)
{
	for (int i = 0; i < 10; i++) {
		hand_op(h, FO_HOST_OP, "aten::add", at + 100 * i, at + 100 * i + 99);
		hand_kernel(h, adding, at + 100 * i + 90, at + 100 * i + 95, at + 100 * i + 103);
	}
}
static void launches_and_waits(struct hand *h,
			       double at) /* and a collective in between, which is no kernel that could be larger */
{
	launches_slowly(h, at);
	hand_kernel(h, reducing, at + 195, at + 204, at + 290);
}
static void computes_on_the_host(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::sort", at + 10, at + 6000);
	hand_op(h, FO_HOST_OP, "aten::mm", at + 6001, at + 6020);
	hand_kernel(h, product, at + 6010, at + 6015, at + 10000);
}
static void test_launches(void **state)
{
	(void)state;
	run(busy, 1000, &plain);
	absent("host-launch");
	there("compute-bound", false);
	assert_false(diag.serious);
	done();
	run(launches_slowly, 1000, &plain);
	const struct fo_finding *f = there("host-launch", true);
	assert_true(f->is_bottleneck && f->kind == FO_FIND_HOST);
	assert_true(has_setting(f, "torch.compile(model, mode=)", "not compiled"));
	assert_non_null(strstr(f->evidence[0].name, "idle"));
	done();
	run(launches_and_waits, 1000, &plain);
	f = there("host-launch", true);
	assert_non_null(strstr(f->why, "The step has 10 compute kernels of 8.0 us on average."));
	done();
	run(computes_on_the_host, 10000, &plain);
	f = there("host-work", true);
	assert_non_null(strstr(f->title, "aten::sort"));
	assert_true(f->settings == 0); /* neither a compiler nor graphs touch it */
	absent("host-launch");
	done();
}

static void synchronises(struct hand *h, double at)
{
	hand_op(h, FO_HOST_SYNC, "cudaStreamSynchronize", at + 5, at + 400);
	hand_op(h, FO_HOST_OP, "aten::mm", at + 401, at + 420);
	hand_kernel(h, product, at + 405, at + 410, at + 1000);
}
static void thinks(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 4001, at + 4020);
	hand_kernel(h, product, at + 4005, at + 4010, at + 10000);
}
static void test_host(void **state)
{
	(void)state;
	run(synchronises, 1000, &plain);
	const struct fo_finding *f = there("host-sync", true);
	assert_true(f->is_bottleneck);
	assert_string_equal(f->evidence[0].name, "cudaStreamSynchronize");
	absent("host-other");
	done();
	run(thinks, 10000, &plain);
	f = there("host-other", true);
	assert_int_equal(f->evidence[0].duration_ns, 4010000);
	absent("host-sync");
	done();
	/* Nothing is said of the host's steps where none are marked. */
	hand_begin(&hand, 0, 1);
	for (int i = 0; i < 4; i++)
		loads(&hand, 1000 * i);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	assert_null(strstr(there("data-loading", true)->why, "host's step"));
	done();
	/* The same in gaps of less than a millisecond is Python between operators: launching. */
	hand_begin(&hand, 0, 1);
	hand_steps(&hand, 4, 1000);
	for (int i = 0; i < 40; i++) {
		hand_op(&hand, FO_HOST_OP, "aten::add", 100 * i + 90, 100 * i + 95);
		hand_kernel(&hand, adding, 100 * i + 91, 100 * i + 94, 100 * i + 104);
	}
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	assert_non_null(strstr(there("host-launch", true)->why, "was in Python"));
	absent("host-other");
	done();
	/* And where no operator is recorded nothing is said of what the thread was busy with. */
	hand_begin(&hand, 0, 1);
	for (int i = 0; i < 40; i++)
		hand_kernel(&hand, adding, 100 * i + 91, 100 * i + 94, 100 * i + 104);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	assert_non_null(strstr(there("host-launch", true)->why, "No operator is recorded"));
	done();
}

static void many_small(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::add", at, at + 60);
	for (int i = 0; i < 25; i++)
		hand_kernel(h, adding, at + 2 * i, at + 60 + 36 * i, at + 60 + 36 * i + 29);
}
static void waits_on_device(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 1, at + 9);
	hand_kernel(h, product, at + 2, at + 10, at + 400);
	hand_kernel(h, product, at + 5, at + 700, at + 1010);
}
static void test_device_idle(void **state)
{
	(void)state;
	run(many_small, 1000, &plain);
	there("kernel-gaps", true);
	done();
	run(waits_on_device, 1000, &plain);
	const struct fo_finding *f = there("dependency", true);
	assert_int_equal(f->evidence[0].duration_ns, 300000);
	done();
	/* What ends the gap has no launch of its own. */
	hand_begin(&hand, 0, 1);
	hand_kernel(&hand, product, 1, 10, 500);
	hand_kernel(&hand, product, -1, 900, 1400);
	hand_kernel(&hand, product, -1, 1400, 1500);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	assert_true(isnan(there("idle-unknown", true)->gain) && hand_finding(&diag, "idle-unknown")->is_bottleneck);
	absent("host-launch");
	absent("dependency");
	there("unlinked", false);
	there("steps", false);
	assert_true(diag.unknowns > 0);
	done();
	/* Launched into an idle device, the call returned, and nothing for 400 ms: that is no latency, it waited on the
	 * device. */
	hand_begin(&hand, 0, 1);
	hand_kernel(&hand, product, 1, 10, 500);
	hand_kernel(&hand, product, 510, 400000, 401000);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	there("dependency", true);
	absent("idle-unknown");
	absent("host-launch");
	done();
}

/* ---- communication and copies ---- */

static void reduces(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 1, at + 9);
	hand_kernel(h, product, at + 2, at + 10, at + 710);
	hand_kernel(h, reducing, at + 5, at + 710, at + 1010);
}
static void copies_in(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 1, at + 9);
	hand_copy(h, FO_COPY_H2D, true, at + 2, at + 10, at + 310);
	hand_kernel(h, product, at + 5, at + 310, at + 1010);
}

static void copies_pinned(struct hand *h, double at)
{
	copies_in(h, at);
	hand_copy(h, FO_COPY_H2D, false, at + 3, at + 310, at + 800)->stream = 9;
}

/* What several ranks would have shown: the same ledger with its exposed communication divided. */
static void divide(struct fo_ledger *l, double wait, double transfer)
{
	l->exposed_wait_ns = (int64_t)(wait * (double)l->exposed_comm_ns);
	l->exposed_transfer_ns = (int64_t)(transfer * (double)l->exposed_comm_ns);
	l->exposed_comm_unknown_ns = l->exposed_comm_ns - l->exposed_wait_ns - l->exposed_transfer_ns;
}
static void again(double wait, double transfer)
{
	struct fo_device_ledger *v = (void *)&diag.rank[0].device[0]; /* stands in for more ranks */
	free(diag.finding);
	free(diag.unknown);
	diag.finding = NULL;
	diag.unknown = NULL;
	diag.findings = diag.unknowns = 0;
	diag.serious = false;
	divide(&v->median.l, wait, transfer);
	fo_diagnose_findings(&diag);
	check_all(&diag);
}

static void test_communication(void **state)
{
	(void)state;
	run(busy, 1000, &plain);
	absent("comm-unknown");
	absent("copies");
	done();
	run(reduces, 1000, &priced);
	const struct fo_finding *f = there("comm-unknown", true);
	assert_true(f->is_bottleneck && f->kind == FO_FIND_COMM);
	assert_non_null(strstr(f->why, "other ranks"));
	assert_true(strncmp(f->evidence[0].name, "ncclDevKernel", 13) == 0);
	absent("comm-wait");
	absent("comm-transfer");
	again(0.8, 0.2);
	f = there("comm-wait", true);
	assert_true(f->is_bottleneck && f->kind == FO_FIND_COMM_WAIT);
	assert_true(hand_finding(&diag, "comm-transfer") && !hand_finding(&diag, "comm-transfer")->serious);
	absent("comm-unknown");
	for (int i = 0; i < f->settings; i++)
		assert_null(strstr(f->setting[i].key, "bucket")); /* a faster network would not help */
	again(0, 1);
	f = there("comm-transfer", true);
	bool nccl = false;
	for (int i = 0; i < f->settings; i++)
		nccl |= strcmp(f->setting[i].framework, "NCCL") == 0;
	assert_true(nccl);
	absent("comm-wait");
	done();
	run(copies_in, 1000, &plain);
	f = there("copies", true);
	assert_true(f->kind == FO_FIND_COPIES && has_setting(f, "DataLoader(pin_memory=)", "False"));
	assert_non_null(strstr(f->why, "pageable"));
	assert_true(f->gain_low > 1); /* pinning alone saves half */
	done();
	run(copies_pinned, 1000, &plain);
	assert_false(has_setting(there("copies", true), "DataLoader(pin_memory=)", "False"));
	done();
}

static void test_old_advice(void **state)
{
	(void)state;
	/* gloo with GPUs, DataParallel. */
	hand_begin(&hand, 0, 2);
	hand_steps(&hand, 4, 1000);
	hand.b.t->backend = hand_text(&hand, "gloo");
	for (int i = 0; i < 4; i++) {
		busy(&hand, 1000 * i);
		hand_op(&hand, FO_HOST_NOTE, "gloo:all_reduce", 1000 * i + 100, 1000 * i + 300);
	}
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	assert_true(has_setting(there("comm-backend", false), "torch.distributed.init_process_group(backend=)", ""));
	absent("data-parallel");
	done();
	hand_begin(&hand, -1, -1);
	for (int i = 0; i < 4; i++) {
		hand_op(&hand, FO_HOST_NOTE, "DataParallel.forward", 1000 * i, 1000 * i + 50);
		for (int k = 0; k < 2; k++) {
			struct fo_gpu_op *g = hand_kernel(&hand, product, 1000 * i + 10 + k, 1000 * i + 20,
							  1000 * i + 900);
			g->device = fo_trace_device(&hand.b, k);
		}
	}
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	there("data-parallel", false);
	done();
}

/* ---- kernels ---- */

static void mostly_adds(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::add", at + 1, at + 9);
	hand_kernel(h, adding, at + 2, at + 10, at + 260);
	hand_kernel(h, adding, at + 3, at + 260, at + 510);
	hand_kernel(h, product, at + 5, at + 510, at + 1010);
}
static void adds_alone(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::add", at + 1, at + 9);
	hand_kernel(h, adding, at + 2, at + 10, at + 510);
	hand_kernel(h, product, at + 5, at + 510, at + 1010);
}
static void adds_without_operators(struct hand *h, double at)
{
	hand_kernel(h, adding, at + 2, at + 10, at + 260);
	hand_kernel(h, adding, at + 3, at + 260, at + 510);
	hand_kernel(h, product, at + 5, at + 510, at + 1010);
}
static void fused_by_hand(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "_C::silu_and_mul", at + 1, at + 9);
	hand_kernel(h, "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(int)",
		    at + 2, at + 10, at + 260);
	hand_kernel(h, "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(int)", at + 3, at + 260, at + 510);
	hand_kernel(h, product, at + 5, at + 510, at + 1010);
}
static void compiled(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 1, at + 9);
	hand_kernel(h, "triton_poi_fused_add_mul_0", at + 2, at + 10, at + 510);
	hand_kernel(h, product, at + 5, at + 510, at + 1010);
}
static void eager_attention(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::bmm", at + 1, at + 9);
	hand_kernel(h,
		    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, "
		    "false>(int)",
		    at + 2, at + 10, at + 310);
	hand_kernel(h, product, at + 5, at + 310, at + 1010);
}
static void steps_foreach(struct hand *h, double at)
{
	hand_op(h, FO_HOST_NOTE, "Optimizer.step#AdamW.step", at + 1, at + 9);
	hand_op(h, FO_HOST_OP, "aten::_foreach_lerp_", at + 2, at + 8);
	hand_kernel(h, "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<AdamFunctor>(int)", at + 3,
		    at + 10, at + 310);
	hand_kernel(h, product, at + 5, at + 310, at + 1010);
}
static void single_precision(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 1, at + 9);
	hand_kernel(h, "ampere_sgemm_128x64_nn", at + 2, at + 10, at + 1010);
}

static void test_kernels(void **state)
{
	(void)state;
	run(mostly_adds, 1000, &plain);
	const struct fo_finding *f = there("memory-bound", true);
	assert_true(f->is_bottleneck && has_setting(f, "torch.compile(model)", "not compiled"));
	assert_int_equal(f->loss_ns, 444444); /* eight ninths of 500 us: the most that merging saves */
	done();
	/* One kernel with a product on either side has nothing to be merged with, and what somebody fused already has
	 * neither. */
	run(adds_alone, 1000, &plain);
	f = there("memory-bound", false);
	assert_true(isnan(f->gain) && isnan(f->ceiling) && f->loss_ns == 500000);
	there("compute-bound", false);
	done();
	run(fused_by_hand, 1000, &plain);
	assert_true(isnan(there("memory-bound", false)->gain));
	done();
	/* Names alone: at most, and never serious. */
	run(adds_without_operators, 1000, &plain);
	f = there("memory-bound", false);
	assert_true(f->up_to && f->gain_low == 1);
	done();
	run(compiled, 1000, &plain);
	absent("memory-bound");
	done();
	run(eager_attention, 1000, &plain);
	f = there("attention-eager", true);
	assert_true(f->settings > 0);
	assert_null(strstr(f->setting[0].paste,
			   "is_causal")); /* the trace does not show the mask: pasted, it would change the model */
	absent("memory-bound");           /* each nanosecond is promised once */
	done();
	run(steps_foreach, 1000, &plain);
	f = there("optimizer-unfused", true);
	assert_true(has_setting(f, "torch.optim optimizer (fused=)", "False"));
	absent("memory-bound");
	done();
	run(single_precision, 1000, &plain);
	f = there("precision", true);
	assert_true(has_setting(f, "torch.autocast(device_type=\"cuda\", dtype=)", "fp32"));
	assert_true(strcmp(f->setting[0].proposed, "torch.bfloat16") == 0);
	done();
	run(busy, 1000, &plain);
	absent("precision");
	absent("memory-bound");
	absent("recompute");
	done();
	/* Nothing is promised of kernels that nobody waits for. */
	hand_begin(&hand, 0, 1);
	hand_device(&hand, "NVIDIA H100 80GB HBM3", 132, 9, 0, 79.1);
	hand_steps(&hand, 4, 1000);
	for (int i = 0; i < 40; i++) {
		hand_op(&hand, FO_HOST_OP, "aten::mm", 100 * i, 100 * i + 99.5);
		hand_kernel(&hand, "ampere_sgemm_128x64_nn", 100 * i + 80, 100 * i + 85, 100 * i + 150);
	}
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	f = there("precision", false);
	assert_non_null(strstr(f->why, "gains nothing yet"));
	assert_true(f->later && isnan(f->gain) && f->loss_ns > 0);
	there("host-launch", true);
	done();
}

static void recomputes(struct hand *h, double at)
{
	hand_op(h, FO_HOST_OP, "aten::mm", at + 1, at + 9);
	hand_kernel(h, product, at + 2, at + 10, at + 710);
	hand_kernel(h, product, at + 5, at + 710, at + 910);
}
static void test_marks(void **state)
{
	(void)state;
	hand_begin(&hand, 0, 1);
	hand_steps(&hand, 4, 1000);
	for (int i = 0; i < 4; i++)
		recomputes(&hand, 1000 * i);
	hand_finish(&hand);
	for (int64_t i = 1; i < hand.t->gpu_count; i += 2)
		hand.t->gpu[i].flags |= FO_GPU_RECOMPUTED;
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	const struct fo_finding *f = there("recompute", false);
	assert_int_equal(f->loss_ns, 200000);
	/* Stages that stand still: two of them, a third of the step each. */
	static double bubble[2] = { 0.3, 0.36 };
	free(diag.pipeline.bubble);
	diag.pipeline = (struct fo_pipeline){
		.stages = 2, .chunks = 1, .microbatches = 4, .bubble = bubble, .ideal = 0.25
	};
	again(0, 0);
	f = there("pipeline", true);
	assert_true(fabs(f->ceiling - 1 / (1 - 0.23)) <
		    1e-3); /* all but half of the ideal bubble, which is a fifth of the step */
	diag.pipeline = (struct fo_pipeline){ .ideal = NAN };
	done();
	/* The same said of a trace in which nothing stands still: no event shows it, so it is not printed. */
	run(busy, 1000, &plain);
	free(diag.pipeline.bubble);
	diag.pipeline = (struct fo_pipeline){
		.stages = 2, .chunks = 1, .microbatches = 4, .bubble = bubble, .ideal = 0.25
	};
	again(0, 0);
	absent("pipeline");
	diag.pipeline = (struct fo_pipeline){ .ideal = NAN };
	done();
}

/* ---- products by shape ---- */

static void shaped(struct hand *h, double at, const char *name, const char *shapes, double takes)
{
	struct fo_host_op *o = hand_op(h, FO_HOST_OP, name, at + 1, at + 9);
	o->shapes = hand_text(h, shapes);
	o->types = hand_text(h, "[\"c10::BFloat16\", \"c10::BFloat16\"]");
	hand_kernel(h, product, at + 2, at + 10, at + 10 + takes);
}
static void slow_product(struct hand *h, double at) { shaped(h, at, "aten::mm", "[[4096, 4096], [4096, 4096]]", 1000); }
static void fast_product(struct hand *h, double at) { shaped(h, at, "aten::mm", "[[8192, 8192], [8192, 8192]]", 2000); }

static void test_products(void **state)
{
	(void)state;
	run(slow_product, 1000, &plain);
	assert_int_equal(diag.products, 1);
	const struct fo_product *p = &diag.product[0];
	assert_true(p->m == 4096 && p->n == 4096 && p->k == 4096 && p->calls == 4);
	assert_string_equal(p->dtype, "bf16");
	/* 2 x 4096^3 in 1 ms; 1,024 tiles of 128 x 128 fill 8 waves of 132 units to 97 %; the best measured product
	 * reaches 794.5. */
	assert_true(fabs(p->flop_s / 1e12 - 137.4) < 0.1);
	assert_true(fabs(p->fill - 1024.0 / (8 * 132)) < 1e-9);
	assert_true(fabs(p->attainable_flop_s / 1e12 - 794.5 * 1024 / (8 * 132)) < 0.1);
	assert_false(p->memory_bound);
	const struct fo_finding *f = there("gemm-efficiency", true);
	assert_true(f->is_bottleneck && strstr(f->why, "4096 x 4096 x 4096"));
	/* MFU from the shapes. */
	assert_true(diag.bridge.known && fabs(diag.bridge.mfu - 137.4 / 989) < 1e-3);
	assert_string_equal(diag.bridge.device, "H100-SXM5-80GB");
	done();
	run(fast_product, 2000, &plain);
	absent("gemm-efficiency");
	done();
}

/* ---- validity ---- */

static void test_validity(void **state)
{
	(void)state;
	run(busy, 1000, &plain);
	static const char *const all[] = { "steps",    "empty-steps",          "unsteady-steps",    "lost-events",
					   "unlinked", "impossible-durations", "profiler-overhead", "host-step" };
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		absent(all[i]);
	done();
	hand_begin(&hand, 0, 1);
	hand_steps(&hand, 2, 1000);
	for (int i = 0; i < 2; i++)
		busy(&hand, 1000 * i);
	hand.b.t->defect.truncated = true;
	for (int i = 0; i < 4; i++) /* four threads at once: 40 % of the step, not 160 % */
		fo_trace_add_overhead(&hand.b, 200000, 600000);
	fo_trace_add_overhead(&hand.b, 1500000, 90000000); /* outside the window */
	hand_finish(&hand);
	hand.t->gpu[0].flags |= FO_GPU_CLIPPED;
	hand.t->defect.clipped = 1;
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	there("steps", false);
	there("lost-events", false);
	assert_string_equal(there("profiler-overhead", false)->title,
			    "the profiler's own work goes on for 40 % of the window");
	there("impossible-durations", false);
	assert_false(diag.serious);
	done();
	/* A loader that is late in one step of four: the mean tells, the median would not. */
	hand_begin(&hand, 0, 1);
	hand_step(&hand, 1, 0, 999);
	hand_step(&hand, 2, 1000, 1999);
	hand_step(&hand, 3, 2000, 4999);
	hand_step(&hand, 4, 5000, 5999);
	busy(&hand, 0);
	busy(&hand, 1000);
	hand_op(&hand, FO_HOST_DATA, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 2000, 3999);
	hand_op(&hand, FO_HOST_OP, "aten::mm", 4000, 4009);
	hand_kernel(&hand, product, 4001, 4010, 5010);
	busy(&hand, 5000);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	there("unsteady-steps", false);
	const struct fo_finding *f = there("data-loading", true);
	assert_true(f->is_bottleneck && llabs(f->loss_ns - 663000) < 10000); /* of a step: a third of it */
	done();
	/* A step that skips its work disturbs nothing else. */
	hand_begin(&hand, 0, 1);
	hand_steps(&hand, 6, 1000);
	for (int i = 0; i < 6; i++)
		if (i != 3)
			busy(&hand, 1000 * i);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	assert_string_equal(there("empty-steps", false)->title, "1 step launched nothing on the GPU");
	absent("unsteady-steps");
	absent("host-step");
	done();
	/* One step is marked: it is taken as marked on the host, and said so. */
	hand_begin(&hand, 0, 1);
	hand_step(&hand, 1, 0, 999);
	busy(&hand, 0);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	assert_string_equal(there("steps", false)->title, "one complete step: too few for a median");
	assert_non_null(strstr(there("steps", false)->why, "active=5"));
	assert_int_equal(diag.rank[0].device[0].from, FO_WINDOW_HOST_STEP);
	done();
}

/* ---- nothing to diagnose ---- */

static void test_cannot(void **state)
{
	(void)state;
	/* No GPU work at all, and the file is cut. */
	hand_begin(&hand, 0, 1);
	hand_step(&hand, 1, 0, 100);
	hand_step(&hand, 2, 100, 200);
	hand_op(&hand, FO_HOST_OP, "aten::mm", 0, 10);
	hand_op(&hand, FO_HOST_DATA, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 80);
	hand.b.t->defect.truncated = true;
	hand.b.t->defect.events = 5;
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	assert_int_equal(diag.findings, 2);
	assert_string_equal(diag.finding[0].title, "the file ends inside an event: 5 events read, the rest is lost");
	assert_string_equal(diag.finding[1].id, "no-gpu-work");
	assert_non_null(strstr(diag.finding[1].why, "ProfilerActivity.CUDA"));
	assert_non_null(strstr(diag.finding[1].why, "data loading is 30.0 %"));
	assert_string_equal(diag.cannot, "the file ends inside its events, and what is left holds no GPU work");
	assert_false(diag.serious || diag.bridge.known);
	done();
	/* Two microseconds of a step of a second. */
	hand_begin(&hand, 0, 1);
	hand_steps(&hand, 4, 1e6);
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++) {
			hand_op(&hand, FO_HOST_OP, "aten::mm", 1e6 * i + 100 * k, 1e6 * i + 100 * k + 50);
			hand_kernel(&hand, product, i == 0 || i == 3 ? 1e6 * i + 100 * k : -1, 100 + k, 101 + k);
		}
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	assert_true(strncmp(diag.cannot, "too little GPU work", 19) == 0);
	there("too-little-gpu-work", false);
	absent("compute-bound");
	assert_false(diag.serious);
	done();
	/* One kernel. */
	hand_begin(&hand, 0, 1);
	hand_kernel(&hand, product, 1, 10, 10.02);
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &plain);
	check_all(&diag);
	assert_string_equal(diag.cannot, "too little GPU work to diagnose: 1 operation, 0.0 us");
	done();
	/* Weights are loaded: copies, and hardly a kernel. */
	hand_begin(&hand, 0, 1);
	for (int i = 0; i < 10; i++) {
		hand_copy(&hand, FO_COPY_H2D, true, 1000 * i + 1, 1000 * i + 10, 1000 * i + 800);
		hand_kernel(&hand, adding, 1000 * i + 801, 1000 * i + 810, 1000 * i + 815);
	}
	hand_finish(&hand);
	hand_diagnose(&hand, &diag, &set, &priced);
	check_all(&diag);
	there("no-training-step", false);
	const struct fo_finding *f = there("copies", true);
	assert_true(isnan(f->gain) && isnan(f->ceiling) && isnan(f->dollars) && f->settings == 0);
	assert_string_equal(diag.cannot, "");
	done();
}

/* ---- what the texts say ---- */

static void norm(struct hand *h, double at, const char *op)
{
	hand_op(h, FO_HOST_MODULE, "nn.Module: LlamaRMSNorm_0", at, at + 20);
	hand_op(h, FO_HOST_OP, op, at + 1, at + 9);
	hand_kernel(h, adding, at + 2, at + 10, at + 260);
	hand_kernel(h, adding, at + 3, at + 260, at + 510);
	hand_kernel(h, product, at + 30, at + 510, at + 1010);
}
static void norm_written(struct hand *h, double at) { norm(h, at, "aten::mul"); }
static void norm_fused(struct hand *h, double at) { norm(h, at, "aten::native_layer_norm"); }

static void test_norms(void **state)
{
	(void)state;
	run(norm_written, 1000, &plain);
	const struct fo_finding *f = there("memory-bound", true);
	assert_non_null(strstr(f->why, "Normalisation is written out: elementwise operators take 100 %"));
	assert_true(has_setting(f, "torch.nn.functional.rms_norm / layer_norm", "written out"));
	assert_string_equal(f->evidence[0].of, "aten::mul in LlamaRMSNorm_0");
	done();
	run(norm_fused, 1000, &plain);
	f = there("memory-bound", true);
	assert_null(strstr(f->why, "written out"));
	assert_false(has_setting(f, "torch.nn.functional.rms_norm / layer_norm", "written out"));
	done();
}

/* What the late rank has more of decides the cure. */
static void test_culprit(void **state)
{
	(void)state;
	static const struct {
		const char *row, *says, *key;
	} known[] = {
		{ "late_begin", "Its step began 2.00 ms after", NULL },
		{ "host_data", "in: data loading", "DataLoader(num_workers=)" },
		{ "host_launch_bound", "in: host busy launching", "torch.compile(model, mode=)" },
		{ "host_other", "in: host, not in the trace", "gc.disable(), gc.collect() every N steps" },
		{ "norm", "in: norms", "batches per rank" },
		{ "dependency", "in: another stream or event", NULL },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		run(reduces, 1000, &plain);
		struct fo_rank_wait *w = calloc(1, sizeof(*w));
		assert_non_null(w);
		*w = (struct fo_rank_wait){ .rank = 3,
					    .last = 4,
					    .matched = 5 }; /* of no trace that was given: one step at most */
		free(diag.wait);
		diag.wait = w;
		diag.waits = 1;
		diag.culprit = (struct fo_culprit){ .at = 0, .share = 0.6, .row = known[i].row, .excess_ns = 2000000 };
		again(1, 0);
		const struct fo_finding *f = there("comm-wait", true);
		if (!strstr(f->why, known[i].says))
			fail_msg("%s: %s", known[i].row, f->why);
		assert_null(strchr(f->why, '_'));
		assert_int_equal(f->settings, known[i].key != NULL);
		if (known[i].key)
			assert_string_equal(f->setting[0].key, known[i].key);
		assert_true(i > 0 || strstr(f->why, "record several steps"));
		done();
	}
}

/* ---- the frameworks' settings ---- */

static void test_frameworks(void **state)
{
	(void)state;
	static const struct {
		const char *note, *framework, *key;
	} known[] = {
		{ "megatron.core.pipeline_parallel.schedules.forward_step", "Megatron-LM", "--overlap-grad-reduce" },
		{ "torchtitan/trainer.py(300): FSDP::forward", "TorchTitan", "parallelism.enable_fsdp_symm_mem" },
		{ "DeepSpeedEngine.backward", "DeepSpeed", "zero_optimization.overlap_comm" },
		{ "DistributedDataParallel.forward", "PyTorch", "no_sync() / set_requires_gradient_sync(False)" },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		hand_begin(&hand, 0, 1);
		hand_steps(&hand, 4, 1000);
		for (int k = 0; k < 4; k++) {
			hand_op(&hand, FO_HOST_NOTE, known[i].note, 1000 * k, 1000 * k + 20);
			reduces(&hand, 1000 * k);
		}
		hand_finish(&hand);
		hand_diagnose(&hand, &diag, &set, &plain);
		assert_string_equal(diag.framework, known[i].framework);
		const struct fo_finding *f = there("comm-unknown", true);
		assert_true(has_setting(f, known[i].key, ""));
		for (int k = 0; k < f->settings; k++)
			assert_true(strcmp(f->setting[k].framework, known[i].framework) == 0 ||
				    strcmp(f->setting[k].framework, "NCCL") == 0);
		done();
	}
}

/* What needs PyTorch 2 says so where the trace is older than that. */
static void test_version(void **state)
{
	(void)state;
	for (int old = 0; old < 2; old++) {
		hand_begin(&hand, 0, 1);
		hand_steps(&hand, 4, 1000);
		for (int i = 0; i < 4; i++)
			mostly_adds(&hand, 1000 * i);
		hand_finish(&hand);
		hand.t->origin_unix_ns = INT64_C(1000000000) * (old ? 1623143089 : 1763143089);
		hand_diagnose(&hand, &diag, &set, &plain);
		const struct fo_finding *f = there("memory-bound", true);
		assert_int_equal(strstr(f->setting[0].proposed, "needs PyTorch 2") != NULL, old);
		assert_string_equal(f->setting[0].paste, "model = torch.compile(model)");
		done();
	}
}

/* ---- real traces ---- */

static char *find(const char *folder, const char *part)
{
	static char path[512];
	const char *root = getenv("FLATOUT_TRACES");
	char command[600];
	snprintf(command, sizeof(command), "ls -d '%s'/%s/*%s* 2>/dev/null | head -1", root, folder, part);
	FILE *p = popen(command, "r");
	path[0] = '\0';
	if (p && fgets(path, sizeof(path), p))
		path[strcspn(path, "\n")] = '\0';
	if (p)
		pclose(p);
	return path[0] ? path : NULL;
}
static void open_real(const char *folder, const char *part)
{
	const char *path = find(folder, part);
	if (!path)
		fail_msg("no trace %s/*%s*", folder, part);
	if (fo_trace_set_open(&set, &path, 1) != FO_OK || fo_diagnose(&diag, &set, &priced) != FO_OK)
		fail_msg("%s", fo_err_text());
	check_all(&diag);
}
static void close_real(void)
{
	fo_diagnosis_fini(&diag);
	fo_trace_set_fini(&set);
}

static void test_real(void **state)
{
	(void)state;
	if (!getenv("FLATOUT_TRACES"))
		skip();
	/* The fix that somebody made: workers 0 -> 4 gave 177592 / 141068. */
	open_real("kineto_resnet50_v100_2021", "workers_0");
	const struct fo_finding *f = there("data-loading", true);
	/* As the ledger has it; that the loader takes a third of the host's step is in the text. */
	assert_true(f->is_bottleneck && f->ceiling > 1.47 && f->ceiling < 1.49 &&
		    strstr(f->why, "33.4 % of the host's step"));
	double real = 177592.0 / 141068;
	assert_true(f->gain_low < real && real < f->gain_high && f->gain < 1.4);
	assert_true(has_setting(f, "DataLoader(num_workers=)", "0"));
	assert_non_null(hand_finding(&diag, "precision")); /* AMP: the old plug-in's other advice */
	close_real();
	open_real("kineto_resnet50_v100_2021", "workers_4");
	absent("data-loading");
	assert_true(there("host-launch", true)->is_bottleneck);
	close_real();
	open_real("tl_torch_compile_llm_block_mi300x", "json");
	for (int64_t i = 0; i < diag.findings; i++)
		assert_true(!diag.finding[i].serious &&
			    (diag.finding[i].kind == FO_FIND_VALIDITY || diag.finding[i].kind == FO_FIND_COMPUTE));
	close_real();
	open_real("tl_bert_h100", "json");
	assert_true(there("host-launch", true)->is_bottleneck);
	close_real();
	open_real("nsys_h100_mfu_after", "sqlite");
	f = hand_finding(&diag, "comm-wait");
	assert_true(f && strstr(f->why, "faster network"));
	absent("comm-transfer");
	close_real();
	open_real("tl_resnet_actckpt_ddp8_mi300x", "json");
	assert_true(there("comm-unknown", true)->is_bottleneck);
	assert_non_null(hand_finding(&diag, "recompute"));
	close_real();
	open_real("param_resnet_ddp_2080ti", "json");
	assert_true(there("data-loading", true)->is_bottleneck);
	close_real();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_data),          cmocka_unit_test(test_launches),
		cmocka_unit_test(test_host),          cmocka_unit_test(test_device_idle),
		cmocka_unit_test(test_communication), cmocka_unit_test(test_old_advice),
		cmocka_unit_test(test_kernels),       cmocka_unit_test(test_marks),
		cmocka_unit_test(test_products),      cmocka_unit_test(test_validity),
		cmocka_unit_test(test_frameworks),    cmocka_unit_test(test_cannot),
		cmocka_unit_test(test_norms),         cmocka_unit_test(test_version),
		cmocka_unit_test(test_culprit),       cmocka_unit_test(test_real),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
