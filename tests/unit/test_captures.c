/* What a trace shows and is easily taken for something else: graphs that are captured, operators that prepare their own
 * launch, frames of Python, devices whose driver has no name for them. */
#include "support/hand_trace.h"
#include "support/made_trace.h"

#include "base/fs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct made m;
static struct made_diagnosis v;

static const char product[] = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64";

static void diagnose(void) { made_run(&m, &v); }

static const struct fo_finding *finding(const char *id) { return hand_finding(&v.d, id); }

static bool advised(const struct fo_finding *f, const char *name)
{
	for (int i = 0; i < f->settings; i++)
		if (strstr(f->setting[i].key, name))
			return true;
	return false;
}

static bool unknown(const char *what, const char *how)
{
	for (int64_t i = 0; i < v.d.unknowns; i++)
		if (strstr(v.d.unknown[i].what, what) && strstr(v.d.unknown[i].flag, how))
			return true;
	return false;
}

static const struct fo_ledger *ledger(void) { return &v.d.rank[0].device[0].median.l; }

/* Products one after the other, each launched in time; returns the last end. */
static double products(double at, double us, int n)
{
	for (int i = 0; i < n; i++) {
		made_op(&m, "aten::mm", at + 20 * i, at + 20 * i + 15);
		made_kernel(&m, product, at + 20 * i + 5, at + 20 + us * i, at + 20 + us * (i + 1));
	}
	return at + 20 + us * n;
}

/* 10 ms of work, then 50 ms in which 400 launches are captured, then the graph's replay. */
static void capture(bool captured)
{
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	double at = products(1000, 1000, 10);
	made_op(&m, "Torch-Compiled Region: 0/0", at, at + 52000);
	if (captured)
		made_call(&m, "cudaStreamBeginCapture", at + 10, at + 20);
	for (int i = 0; i < 400; i++) {
		m.args = NULL;
		made_call(&m, "cudaLaunchKernel", at + 100 + 120 * i, at + 110 + 120 * i);
	}
	if (captured) {
		made_call(&m, "cudaStreamEndCapture", at + 49000, at + 49010);
		made_call(&m, "cudaGraphInstantiate", at + 49020, at + 51000);
	}
	products(at + 52000, 1000, 10);
	diagnose();
}

static void test_capture(void **state)
{
	(void)state;
	capture(true);
	assert_int_equal(v.set.rank[0]->defect.unanswered, 0); /* they belong to the graph: nothing is missing */
	assert_true(ledger()->idle_ns[FO_IDLE_LONG_CALL] > 50000000);
	assert_int_equal(v.d.judged, FO_JUDGED_WARM_UP);
	assert_non_null(strstr(v.d.cannot, "graphs were captured"));
	assert_null(finding("host-work"));
	made_close(&v);
	capture(false);
	assert_int_equal(v.d.judged, FO_JUDGED_SERIOUS);
	assert_null(strstr(v.d.cannot, "captured"));
	made_close(&v);
}

/* An operator that launches is not one on tensors of the host, however long it takes before. */
static void test_prepares(void **state)
{
	(void)state;
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	double at = products(1000, 1000, 10);
	made_op(&m, "aten::ones", at, at + 30000);
	made_kernel(&m, product, at + 29900, at + 29910, at + 30910);
	products(at + 30000, 1000, 10);
	diagnose();
	const struct fo_finding *f = finding("host-work");
	assert_non_null(f);
	assert_non_null(strstr(f->title, "aten::ones"));
	assert_null(strstr(f->why, "host's memory"));
	assert_null(strstr(f->why, "Move that work"));
	assert_non_null(strstr(f->why, "launches work itself"));
	assert_true(!(f->gain_low > 1)); /* how much of it can go is not known */
	made_close(&v);
}

static void gap(bool frames)
{
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	double at = products(1000, 1000, 10);
	if (frames)
		made_event(&m, "python_function", "train.py(12): preprocess", 1, 1, at, 20000);
	products(at + 20000, 1000, 10);
	diagnose();
}

static void test_frames(void **state)
{
	(void)state;
	gap(false);
	const struct fo_finding *f = finding("host-other");
	assert_true(f && advised(f, "with_stack"));
	assert_false(advised(f, "compile")); /* 20 ms outside all operators are no frames between two kernels */
	assert_true(unknown("which Python code", "with_stack=True"));
	made_close(&v);
	gap(true); /* recorded: one more trace of the same kind shows no more */
	f = finding("host-other");
	assert_true(f && !advised(f, "with_stack"));
	assert_non_null(strstr(f->why, "Perfetto"));
	assert_false(unknown("which Python code", "with_stack=True"));
	assert_true(unknown("which Python code", "Perfetto"));
	made_close(&v);
}

/* Casts that stand alone between products: a compiler has nothing to merge, and is not proposed. Written out beside
 * each other it is. */
static void moving(int beside)
{
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	double at = 2000, launch = 1000;
	for (int i = 0; i < 20; i++, launch += 20) {
		made_op(&m, "aten::mm", launch, launch + 9);
		made_kernel(&m, product, launch + 5, at, at + 1000);
		at += 1000;
		for (int k = 0; k < beside; k++, at += 600) {
			made_op(&m, "aten::mul", launch + 10 + 4 * k, launch + 13 + 4 * k);
			made_kernel(&m,
				    "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> "
				    ">(int)",
				    launch + 10.5 + 4 * k, at, at + 600);
		}
	}
	diagnose();
}

static void test_nothing_to_merge(void **state)
{
	(void)state;
	moving(1);
	const struct fo_finding *f = finding("memory-bound");
	assert_non_null(f);
	assert_non_null(strstr(f->why, "nothing to merge"));
	assert_false(fo_finding_worth(f) || advised(f, "torch.compile"));
	made_close(&v);
	moving(2);
	f = finding("memory-bound");
	assert_true(f && fo_finding_worth(f) && advised(f, "torch.compile"));
	made_close(&v);
}

/* 150 products of which every `operators`-th operator and every `calls`-th call of the driver were left in the file. */
static void sampled(int operators, int calls)
{
	char args[64];
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	for (int i = 0; i < 150; i++) {
		double at = 1000 + 2000 * i;
		snprintf(args, sizeof(args), "\"External id\": %d", 1 + operators * i);
		m.args = args;
		made_op(&m, "aten::mm", at, at + 15);
		m.correlation += calls - 1;
		made_kernel(&m, product, at + 5, at + 20, at + 900);
	}
	diagnose();
}

/* Operators filtered by length; the profiler numbered half of the launches, the other half is tied by the operator's
 * number. */
static void half_numbered(void)
{
	char args[96];
	made_begin(&m);
	made_device(&m, "AMD Instinct MI300X", 304, 9, 4, 192);
	for (int i = 0; i < 300; i++) {
		double at = 1000 + 2000 * i;
		snprintf(args, sizeof(args), "\"External id\": %d", 1 + 70 * i);
		m.args = args;
		made_op(&m, "aten::mm", at, at + 15);
		if (i % 2) {
			made_kernel(&m, product, at + 5, at + 20, at + 900);
			continue;
		}
		snprintf(args, sizeof(args), "\"device\": 0, \"stream\": 7, \"External id\": %d", 1 + 70 * i);
		m.args = args;
		made_event(&m, "kernel", product, 0, 7, at + 20, 880);
	}
	diagnose();
}

static void test_sampled(void **state)
{
	(void)state;
	sampled(70, 200);
	assert_int_equal(v.d.judged, FO_JUDGED_THINNED);
	assert_int_equal(v.set.rank[0]->defect.numbers, 150);
	assert_int_equal(v.set.rank[0]->defect.numbers_of, 1 + 70 * 149);
	assert_non_null(strstr(v.d.cannot, "it holds 150 of 10431 numbered operators"));
	assert_non_null(finding("taken-out"));
	assert_null(finding("host-other"));
	made_close(&v);
	sampled(8, 200); /* a graph's few launches among many calls */
	assert_int_equal(v.d.judged, FO_JUDGED_SERIOUS);
	made_close(&v);
	half_numbered(); /* the correlations that we make ourselves say nothing of a file that was thinned */
	assert_int_equal(v.set.rank[0]->defect.unlinked, 0);
	assert_int_equal(v.set.rank[0]->defect.numbers_of, 0);
	made_close(&v);
	sampled(70, 30); /* operators filtered by length */
	assert_int_equal(v.d.judged, FO_JUDGED_SERIOUS);
	assert_null(finding("taken-out"));
	made_close(&v);
}

/* Times that nobody can use are why a trace holds no GPU work, or too little: the headline says so first. */
static void test_unusable_times(void **state)
{
	(void)state;
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	for (int i = 0; i < 8; i++)
		made_kernel(&m, product, 100 * i, 100 * i + 20, 100 * i - 30); /* ends before it begins */
	diagnose();
	assert_false(fo_diagnosed(&v.d));
	assert_int_equal(
		strncmp(v.d.cannot, "8 of 8 GPU operations have negative or unreadable times, which leaves ", 70), 0);
	made_close(&v);
	made_begin(&m);
	for (int i = 0; i < 8; i++)
		made_kernel(&m, product, 100 * i, 1e16 + 100 * i, 1e16 + 100 * i + 5); /* no time of this world */
	made_op(&m, "aten::mm", 0, 900);
	made_kernel(&m, product, 900, 910, 940);
	diagnose();
	assert_int_equal(v.set.rank[0]->defect.malformed_gpu, 8);
	assert_string_equal(v.d.cannot, "8 of 9 GPU operations have negative or unreadable times, which leaves too "
					"little GPU work to diagnose: 1 operation, 30 us");
	made_close(&v);
	/* One host event among many that cannot be read is not the reason. */
	made_begin(&m);
	for (int i = 0; i < 8; i++)
		made_op(&m, "aten::mm", 100 * i, 100 * i + 50);
	made_op(&m, "aten::mm", 1e16, 1e16 + 5);
	diagnose();
	assert_string_equal(v.d.cannot, "no GPU work in this trace");
	made_close(&v);
}

/* Five operations are as little as four where they take as little time. */
static void test_little_time(void **state)
{
	(void)state;
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	for (int i = 0; i < 5; i++)
		made_kernel(&m, product, 100 * i, 100 * i + 20, 100 * i + 30.2);
	diagnose();
	assert_string_equal(v.d.cannot, "too little GPU work to diagnose: 5 operations, 51 us");
	made_close(&v);
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	for (int i = 0; i < 5; i++)
		made_kernel(&m, product, 100 * i, 100 * i + 20, 100 * i + 50);
	diagnose();
	assert_true(fo_diagnosed(&v.d));
	made_close(&v);
}

/* Of a handful of operators the numbers tell as well, but one jump among them is no sampling. */
static void few_left(int n, int apart, bool jump)
{
	char args[64];
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	for (int i = 0; i < n; i++) {
		double at = 1000 + 2000 * i;
		snprintf(args, sizeof(args), "\"External id\": %d", 1 + apart * i + (jump && i == n - 1 ? 100000 : 0));
		m.args = args;
		made_op(&m, "aten::mm", at, at + 15);
		m.correlation += 200 + (jump && i == n - 1 ? 100000 : 0);
		made_kernel(&m, product, at + 5, at + 20, at + 900);
	}
	diagnose();
}

static void test_few_left(void **state)
{
	(void)state;
	few_left(6, 70, false);
	assert_int_equal(v.d.judged, FO_JUDGED_THINNED);
	assert_non_null(strstr(v.d.cannot, "it holds 6 of 351 numbered operators"));
	made_close(&v);
	few_left(6, 1, true);
	assert_true(fo_diagnosed(&v.d));
	made_close(&v);
	few_left(6, 10, false); /* one in ten: filtered by length */
	assert_true(fo_diagnosed(&v.d));
	made_close(&v);
	few_left(4, 70, false); /* too few to tell */
	assert_int_not_equal(v.d.judged, FO_JUDGED_THINNED);
	made_close(&v);
}

/* Durations that add up beyond 64 bits stop there, and do not turn negative. */
static void test_endless(void **state)
{
	(void)state;
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	for (int i = 0; i < 8; i++) { /* all alike: none of them stands out as impossible */
		made_shapes(&m, "[[512, 512], [512, 512]]", "[\"c10::BFloat16\", \"c10::BFloat16\"]");
		made_op(&m, "aten::mm", 100 + 20 * i, 115 + 20 * i);
		made_kernel(&m, product, 105 + 20 * i, 200 + 20 * i, 4.5e15);
	}
	diagnose();
	assert_int_equal(v.d.products, 1);
	assert_true(v.d.product[0].time_ns == INT64_MAX);
	struct fo_kernels k;
	fo_kernels_of(&v.d, &k);
	assert_true(k.n == 1 && k.v[0].ns > 0);
	fo_kernels_fini(&k);
	made_close(&v);
}

/* A share that is known is not shown as none. */
static void test_small_mfu(void **state)
{
	(void)state;
	assert_int_equal(fo_mfu_decimals(0.33), 1);
	assert_int_equal(fo_mfu_decimals(0), 1);
	assert_int_equal(fo_mfu_decimals(0.0005), 1);
	assert_int_equal(fo_mfu_decimals(0.0002), 2);
	assert_int_equal(fo_mfu_decimals(0.000004), 4);
	assert_int_equal(fo_mfu_decimals(1e-30), 6);
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	double at = 1000;
	for (int i = 0; i < 200; i++, at += 1000) { /* 8 GFLOP of 200 ms at 989 TFLOP/s */
		made_shapes(&m, "[[272, 272], [272, 272]]", "[\"c10::BFloat16\", \"c10::BFloat16\"]");
		made_op(&m, "aten::mm", at, at + 15);
		made_kernel(&m, product, at + 5, at + 20, at + 500);
	}
	diagnose();
	assert_true(v.d.bridge.known);
	assert_null(strstr(v.d.utilisation.sentence, "MFU is 0.0 %"));
	assert_non_null(strstr(v.d.utilisation.sentence, "MFU is 0.00"));
	made_close(&v);
}

static void test_nameless(void **state)
{
	(void)state;
	for (int blank = 0; blank < 2; blank++) {
		made_begin(&m);
		made_device(&m, blank ? " " : "", 132, 9, 0, 80);
		made_shapes(&m, "[[512, 512], [512, 512]]", "[\"c10::BFloat16\", \"c10::BFloat16\"]");
		products(1000, 1000, 10);
		diagnose();
		assert_non_null(strstr(v.d.bridge.why_not, "does not name its device"));
		made_close(&v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_capture),     cmocka_unit_test(test_prepares),
		cmocka_unit_test(test_frames),      cmocka_unit_test(test_nothing_to_merge),
		cmocka_unit_test(test_sampled),     cmocka_unit_test(test_unusable_times),
		cmocka_unit_test(test_little_time), cmocka_unit_test(test_few_left),
		cmocka_unit_test(test_endless),     cmocka_unit_test(test_small_mfu),
		cmocka_unit_test(test_nameless),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
