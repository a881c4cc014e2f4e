/* What holds of every estimate, whatever the trace: two thousand random traces, each from its own seed. Then the parts
 * of findings that need no trace: the solver, evidence, the table of settings. */
#define _GNU_SOURCE /* setenv */
#include "support/finding_rows.h"
#include "support/hand_trace.h"
#include "support/random.h"

#include "diagnose/findings_int.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct hand hand;
static struct fo_diagnosis diag;
static struct fo_trace_set set;

/* ---- a random trace ---- */

static const char *const kernel[] = {
	"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas",
	"ampere_sgemm_128x64_nn",
	"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
	"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(int)",
	"void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)",
	"void (anonymous namespace)::softmax_warp_backward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)",
	"void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(int)",
	"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<AdamFunctor>(int)",
	"triton_poi_fused_add_mul_0",
	"void vllm::act_and_mul_kernel<c10::BFloat16>(int)",
	"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
	"sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32",
	"void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(int)",
	"nobody_knows_this",
};
enum { KERNELS = sizeof(kernel) / sizeof(*kernel) };
static const char *const operator[] = { "aten::mm",
					"aten::bmm",
					"aten::_scaled_dot_product_flash_attention",
					"aten::mm",
					"aten::add",
					"aten::_foreach_add_",
					"aten::native_layer_norm",
					"Optimizer.step#AdamW.step" };

/* What of all this a trace has, it has often: half of the traces are about one or two things. */
struct taste {
	double scale, idle, launched, operators, sync, data, copies, shapes, graph;
	int favourite[3];
	bool steps;
};

static struct taste taste(void)
{
	static const double scale[] = { 1, 10, 300, 5000 };
	struct taste t = { .scale = scale[below(4)],
			   .idle = chance(0.4) ? real(0, 5) : real(0, 0.3),
			   .launched = chance(0.2) ? 0 : real(0.5, 1),
			   .operators = chance(0.3) ? 0 : 1,
			   .sync = chance(0.3) ? 0.3 : 0.02,
			   .data = chance(0.3) ? 0.2 : 0.01,
			   .copies = chance(0.3) ? 0.3 : 0.05,
			   .shapes = chance(0.5) ? 0.8 : 0,
			   .graph = chance(0.1) ? 0.5 : 0,
			   .steps = chance(0.8) };
	for (int i = 0; i < 3; i++)
		t.favourite[i] = below(KERNELS);
	return t;
}

static void one(const struct taste *t, double *gpu, double *host)
{
	double length = t->scale * real(0.1, 3), gap = chance(0.5) ? 0 : t->scale * t->idle * real(0, 1);
	double begin = *gpu + gap, at = chance(t->launched) ? fmin(*host, begin) : -1;
	const char *name = kernel[chance(0.7) ? t->favourite[below(3)] : below(KERNELS)];
	if (t->operators > 0 && at >= 0) {
		struct fo_host_op *o = hand_op(&hand, FO_HOST_OP, operator[below(8)], at - 1, at + 4);
		if (chance(t->shapes)) {
			static const char *const dims[] = { "[[16, 512, 64], [16, 64, 512]]",
							    "[[4096, 4096], [4096, 4096]]",
							    "[[4096, 4097], [4097, 1025]]",
							    "[[64, 32768], [32768, 64]]",
							    "[[8, 16, 513, 65], [8, 16, 513, 65], [8, 16, 513, 65]]" };
			o->shapes = hand_text(&hand, dims[below(5)]);
			o->types = hand_text(&hand, chance(0.7) ? "[\"c10::BFloat16\", \"c10::BFloat16\"]"
								: "[\"float\", \"float\"]");
		}
	}
	if (chance(t->sync))
		hand_op(&hand, FO_HOST_SYNC, chance(0.5) ? "cudaStreamSynchronize" : "cudaFree", at + 5,
			begin + real(0, 5));
	if (chance(t->sync))
		hand_op(&hand, FO_HOST_NOTE, chance(0.5) ? "gc.collect" : "save_checkpoint", at + 5,
			begin + real(0, 5));
	if (chance(t->data))
		hand_op(&hand, FO_HOST_DATA, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 5,
			begin + real(0, 5));
	struct fo_gpu_op *g = chance(t->copies) ? hand_copy(&hand, FO_COPY_H2D, chance(0.5), at, begin, begin + length)
						: hand_kernel(&hand, name, at, begin, begin + length);
	g->stream = chance(0.8) ? 7 : 7 + below(3);
	if (chance(t->graph))
		g->flags |= FO_GPU_GRAPH;
	if (chance(0.05))
		g->flags |= FO_GPU_RECOMPUTED;
	*gpu = chance(0.85) ? begin + length : begin + length / 2;
	*host = fmax(*host, at) + (chance(0.5) ? 6 : real(6, 60));
}

static void make(uint64_t seed)
{
	fo_random_state = seed;
	struct taste t = taste();
	int n = 4 + below(60);
	double gpu = 20, host = 10, begin = 0;
	hand_begin(&hand, 0, 1);
	if (chance(0.8))
		hand_device(&hand, "NVIDIA H100 80GB HBM3", 132, 9, 0, 79.1);
	for (int step = 0; step < 4; step++) {
		for (int i = 0; i < n; i++)
			one(&t, &gpu, &host);
		double end = fmax(host, gpu * chance(0.5));
		if (t.steps)
			hand_step(&hand, step + 1, begin, end);
		begin = host = end + 2;
	}
	hand_finish(&hand);
}

/* ---- what holds ---- */

#define HOLDS(condition)                                                                                      \
	do {                                                                                                  \
		if (!(condition))                                                                             \
			fail_msg("seed %llu, %s: not so: %s (loss %lld of %lld, x %g, %g to %g, at best %g)", \
				 (unsigned long long)seed, f->id, #condition, (long long)f->loss_ns,          \
				 (long long)l->span_ns, f->gain, f->gain_low, f->gain_high, f->ceiling);      \
	} while (0)

/* Returns the number of findings with a gain. */
static int check(uint64_t seed)
{
	struct fo_subject s;
	int64_t sum = 0;
	int gains = 0;
	if (!fo_subject_of(&diag, &s))
		return 0;
	const struct fo_ledger *l = &s.l;
	for (int64_t i = 0; i < diag.findings; i++) {
		const struct fo_finding *f = &diag.finding[i];
		bool alone = false,
		     nothing = isnan(f->gain) && isnan(f->gain_low) && isnan(f->gain_high) && isnan(f->ceiling);
		if (f->kind == FO_FIND_VALIDITY) {
			HOLDS(nothing && f->loss_ns == 0);
			continue;
		}
		int64_t rows = finding_rows(f->id, l, &alone);
		HOLDS(f->loss_ns >= 0 && f->loss_ns <= rows);
		sum += alone ? f->loss_ns : 0;
		if (nothing) {
			HOLDS(!f->up_to && isnan(f->dollars));
			continue;
		}
		gains++;
		HOLDS(isfinite(f->gain) && isfinite(f->gain_low) && isfinite(f->gain_high) && isfinite(f->ceiling));
		HOLDS(1 <= f->gain_low && f->gain_low <= f->gain && f->gain <= f->gain_high &&
		      f->gain_high <= f->ceiling);
		HOLDS(f->ceiling == (double)l->span_ns / (double)(l->span_ns - f->loss_ns));
		HOLDS(f->ceiling <= FO_CEILING_MOST && f->gain_high >= FO_GAIN_NONE);
		HOLDS(!f->nearly_all && !f->later);
	}
	for (int64_t i = 0; sum > l->span_ns && i < diag.findings; i++)
		print_message("%s: %lld\n", diag.finding[i].id, (long long)diag.finding[i].loss_ns);
	if (sum > l->span_ns)
		fail_msg("seed %llu: findings that exclude each other lose %lld of %lld", (unsigned long long)seed,
			 (long long)sum, (long long)l->span_ns);
	return gains;
}

#ifdef FO_DEBUG /* sanitizers make it slow */
enum { TRACES = 400 };
#else
enum { TRACES = 2000 };
#endif

static void test_random(void **unused)
{
	(void)unused;
	static const struct fo_diagnose_options priced = { .price_per_hour = 2 };
	int gains = 0, with = 0;
	for (uint64_t seed = 1; seed <= TRACES; seed++) {
		make(seed);
		hand_diagnose(&hand, &diag, &set, &priced);
		int n = check(seed);
		gains += n;
		with += n > 0;
		hand_done(&hand, &diag);
	}
	/* So that the traces are worth something: most of them have a finding with a gain. */
	if (with < TRACES / 2 || gains < TRACES)
		fail_msg("only %d of %d traces have a gain, %d in all", with, TRACES, gains);
}

/* Kernels of one template are one; those of other operators are worth more than its longest again. */
static void test_evidence(void **unused)
{
	(void)unused;
	struct fo_finding f = { 0 };
	for (int i = 0; i < 6; i++)
		fo_evidence_add(&f, 0, 0, i, 100 - i, i % 2 ? "kernel<a>" : "kernel<b>", "aten::mul");
	assert_int_equal(f.evidences, 2);
	for (int i = 0; i < 4; i++) {
		char of[16];
		snprintf(of, sizeof(of), "aten::op%d", i);
		fo_evidence_add(&f, 0, 0, 10 + i, 10 - i, "kernel<a>", of);
	}
	assert_int_equal(f.evidences, 5);
	for (int i = 0; i < 5; i++)
		for (int k = 0; k < i; k++)
			assert_string_not_equal(f.evidence[i].of, f.evidence[k].of);
	assert_int_equal(f.evidence[0].duration_ns, 100);
	fo_evidence_add(&f, 0, 0, 99, 500, "kernel<c>", "aten::mul");
	assert_true(f.evidences == 5 && f.evidence[0].duration_ns == 500 && f.evidence[1].duration_ns == 10);
}

static void test_worth(void **unused)
{
	(void)unused;
	struct fo_finding f = { 0 };
	fo_gain_solve(&(struct fo_gain){ .step_ns = 1000, .removable_ns = 900, .least = 0, .most = 1 }, &f);
	assert_true(f.up_to && fabs(f.gain_high - 10) < 1e-9);
	fo_gain_solve(&(struct fo_gain){ .step_ns = 1000, .removable_ns = 600, .least = 0, .most = 1 }, &f);
	assert_false(f.up_to);
	/* Nearly all of the step: what is left is not known well enough for a factor. */
	fo_gain_solve(&(struct fo_gain){ .step_ns = 1000000, .removable_ns = 999999, .least = 1, .most = 1 }, &f);
	assert_true(f.nearly_all && isnan(f.gain) && isnan(f.ceiling) && f.loss_ns == 999999 && fo_finding_worth(&f));
	/* What no change removes is in no ceiling. */
	fo_gain_solve(&(struct fo_gain){ .step_ns = 1000, .removable_ns = 600, .least = 0, .most = 0.5 }, &f);
	assert_true(f.loss_ns == 300 && fabs(f.ceiling - 1 / 0.7) < 1e-9);
}

static const struct fo_rule_row *const rules[] = { fo_rules_host, fo_rules_marked,  fo_rules_comm,
						   fo_rules_gpu,  fo_rules_compute, fo_rules_shape };
static const char *const framework[] = { "PyTorch", "TorchTitan", "Megatron-LM", "DeepSpeed", "vLLM" };

/* Every row can be read, whatever holds of the trace (an unknown test in the table would end the program here), and no
 * word is cut. */
static void test_table(void **unused)
{
	(void)unused;
	for (size_t r = 0; r < sizeof(rules) / sizeof(*rules); r++)
		for (const struct fo_rule_row *row = rules[r]; row->id; row++)
			for (int k = 0; k < 20 * FO_VENDOR_COUNT; k++) {
				struct fo_facts f;
				struct fo_pipeline p = { .stages = 2 };
				struct fo_finding x = { 0 };
				memset(&f, 0, sizeof(f));
				f.framework = framework[k / 4 % 5];
				f.words = fo_vendor_words((enum fo_vendor)(k / 20));
				f.before_pytorch_2 = k % 4 > 1;
				if (k % 2) {
					f.loader = f.loader_inline = f.pageable = f.blocking_copies = f.sync_calls =
						f.alloc_calls = true;
					f.ddp = f.fsdp = f.moe = f.nccl = f.uploads = f.offloads = f.gc = f.loss =
						f.transformers = true;
					f.norm_written_out = f.hidden_ragged = f.tokens_ragged = f.optimizer_loop =
						f.merges = true;
					f.comm = (struct fo_comm_kinds){
						.reduces = 9,
						.all_ns = 9,
						.tensor_parallel = true,
						.ns = { [FO_COMM_ALL_REDUCE] = 6, [FO_COMM_ALL_GATHER] = 3 }
					};
					f.compiled = k % 4 == 1;
					f.capability = 90;
					f.fp32_product_share = 1;
				}
				fo_settings_add(&x, row->id, &f, &p);
				for (int i = 0; i < x.settings; i++) {
					assert_true(strlen(x.setting[i].key) < sizeof(x.setting[i].key) - 1);
					assert_true(strlen(x.setting[i].proposed) < sizeof(x.setting[i].proposed) - 1);
					assert_true(strlen(x.setting[i].paste) < sizeof(x.setting[i].paste) - 1);
				}
			}
}

/* Each row of the table is of a finding that some rule makes, for a framework that a trace can have. */
static void test_rows_are_reached(void **unused)
{
	(void)unused;
	char path[512], line[1024], id[64], of[64];
	int seen = 0;
	const char *root = getenv("FLATOUT_SOURCE");
	snprintf(path, sizeof(path), "%s/data/settings.tsv", root ? root : ".");
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		bool made = false, known = false;
		if (line[0] == '#' || sscanf(line, "%63[^\t]\t%63[^\t]", id, of) != 2 || !strcmp(id, "finding"))
			continue; /* comments and the header */
		for (size_t r = 0; r < sizeof(rules) / sizeof(*rules); r++)
			for (const struct fo_rule_row *row = rules[r]; row->id; row++)
				made |= strcmp(row->id, id) == 0;
		for (size_t i = 0; i < sizeof(framework) / sizeof(*framework); i++)
			known |= strcmp(framework[i], of) == 0;
		for (int v = 0; v < FO_VENDOR_COUNT; v++)
			known |= strcmp(fo_vendor_words((enum fo_vendor)v)->tool, of) == 0;
		if (!made || !(known || strcmp(of, "NCCL") == 0))
			fail_msg("no trace leads to the settings of '%s' for '%s'", id, of);
		seen++;
	}
	fclose(f);
	assert_true(seen > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),           cmocka_unit_test(test_worth),
		cmocka_unit_test(test_evidence),         cmocka_unit_test(test_table),
		cmocka_unit_test(test_rows_are_reached),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
