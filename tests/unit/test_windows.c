/* Which window is diagnosed: traces with one marked step or none, with a cause planted before the first kernel. */
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

enum { HOST = 100 };
static struct made m;
static struct made_diagnosis v;

static const char product[] = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64";
static const char softmax[] =
	"void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*, float const*)";

static void diagnose(void) { made_run(&m, &v); }

static const struct fo_finding *finding(const char *id) { return hand_finding(&v.d, id); }

static const struct fo_finding *bottleneck(void)
{
	for (int64_t i = 0; i < v.d.findings; i++)
		if (v.d.finding[i].is_bottleneck)
			return &v.d.finding[i];
	return NULL;
}

static const struct fo_device_ledger *device(void) { return &v.d.rank[0].device[0]; }
static const struct fo_ledger *ledger(void) { return &v.d.rank[0].device[0].median.l; }

/* Launches of product and softmax in turn, each of `us`, from `at` on; 20 of them behind each other. Returns the last
 * end. */
static double kernels(double at, double us, int n)
{
	for (int i = 0; i < n; i++) {
		made_op(&m, i % 2 ? "aten::softmax" : "aten::mm", at + 20 * i, at + 20 * i + 15);
		made_kernel(&m, i % 2 ? softmax : product, at + 20 * i + 5, at + 20 + us * i, at + 20 + us * (i + 1));
	}
	return at + 20 + us * n;
}

/* Of 391 ms on the host 267 ms are preprocessing on the launching thread, before the first kernel; kernels take 117 ms.
 */
static void preprocessing(bool step)
{
	made_begin(&m);
	made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	if (step)
		made_step(&m, 7, 1000, 392000);
	for (int i = 0; i < 267; i++)
		made_op(&m, "aten::grid_sampler_2d", 1100 + 1000 * i, 1100 + 1000 * i + 995);
	double last = kernels(268200, 1170, 100);
	made_call(&m, "cudaDeviceSynchronize", 268200 + 20 * 100, last);
	made_op(&m, "aten::item", last + 10, 391900);
	diagnose();
}

static void check_preprocessing(void)
{
	const struct fo_finding *f = bottleneck();
	assert_non_null(f);
	assert_string_equal(f->id, "host-work");
	assert_non_null(strstr(f->title, "aten::grid_sampler_2d"));
	assert_true(f->ceiling > 2.5 && f->ceiling < 3.5);
	assert_null(finding("host-launch")); /* graphs and compilers would change nothing */
	/* Utilisation, ceilings and bridge are of the ledger's window. */
	assert_true(fabs(v.d.utilisation.resident - 0.30) < 0.01);
	for (int64_t i = 0; i < v.d.findings; i++)
		assert_false(v.d.finding[i].kind == FO_FIND_COMPUTE && v.d.finding[i].gain > 1.3);
	made_close(&v);
}

static void test_one_step(void **state)
{
	(void)state;
	preprocessing(true);
	assert_int_equal(device()->from, FO_WINDOW_HOST_STEP);
	assert_int_equal(ledger()->span_ns, 391000000);
	assert_int_equal(device()->median.number, 7);
	char words[160];
	assert_string_equal(fo_window_words(words, &v.d), "step 7 as marked on the host, 391 ms");
	assert_non_null(strstr(bottleneck()->title, "of the step"));
	check_preprocessing();
	/* No step is marked: what the host did before its first launch is recorded all the same. */
	preprocessing(false);
	assert_int_equal(device()->from, FO_WINDOW_WHOLE);
	assert_non_null(finding("host-lead-in"));
	assert_non_null(strstr(fo_window_words(words, &v.d), "the whole trace from the host's first work"));
	assert_non_null(strstr(bottleneck()->title, "of the trace"));
	assert_true(llabs(device()->lead_ns - 267120000) < 1000000);
	check_preprocessing();
}

/* What a step before left over lies in front of the marked one and is none of its work; what runs on behind the host's
 * end is. */
static void test_leftovers(void **state)
{
	(void)state;
	made_begin(&m);
	made_kernel(&m, product, -1, 900, 1500);
	made_kernel(&m, product, -1, 1500, 2000);
	made_step(&m, 3, 1000, 9000);
	kernels(2500, 900, 10);
	diagnose();
	assert_int_equal(device()->from, FO_WINDOW_HOST_STEP);
	assert_int_equal(ledger()->begin_ns, 2000000);
	assert_int_equal(ledger()->end_ns, 11520000);
	assert_int_equal(v.d.rank[0].host[0].begin_ns, ledger()->begin_ns); /* the host's own step agrees */
	assert_int_equal(v.d.rank[0].host[0].end_ns, ledger()->end_ns);
	made_close(&v);
	/* The rest of the host's step behind the last kernel is the host's: here its loader's. */
	made_begin(&m);
	made_step(&m, 3, 1000, 30000);
	double last = kernels(1100, 900, 10);
	made_range(&m, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", last + 10, 29990);
	diagnose();
	assert_int_equal(ledger()->span_ns, 29000000);
	assert_true(ledger()->idle_ns[FO_IDLE_HOST_DATA] > 19500000 && ledger()->idle_ns[FO_IDLE_UNKNOWN] == 0);
	assert_string_equal(bottleneck()->id, "data-loading");
	/* The floor is of this window: the loader's share cannot make it longer than the step. */
	assert_true(bottleneck()->gain_low > 2 && bottleneck()->gain_high <= bottleneck()->ceiling + 1e-9);
	made_close(&v);
}

/* Two marked steps, of which one is complete on the GPU: a host's step of another length is told. */
static void test_host_step_note(void **state)
{
	(void)state;
	made_begin(&m);
	made_step(&m, 1, 0, 50000);
	made_step(&m, 2, 50000, 60000);
	kernels(40000, 900, 10);
	kernels(50100, 900, 10);
	diagnose();
	assert_int_equal(device()->steps, 1);
	assert_non_null(finding("host-step"));
	made_close(&v);
}

/* ---- what is a start ---- */

static void launch_of(const char *call, int correlation, double begin, double duration)
{
	static char args[40];
	snprintf(args, sizeof args, "\"correlation\": %d", correlation);
	m.args = args;
	made_event(&m, "cuda_runtime", call, HOST, 1, begin, duration);
}

static void kernel_of(const char *name, int correlation, double begin, double end)
{
	static char args[80];
	snprintf(args, sizeof args, "\"device\": 0, \"stream\": 7, \"correlation\": %d", correlation);
	m.args = args;
	made_event(&m, "kernel", name, 0, 7, begin, end - begin);
}

static void copy_of(int correlation, double begin, double duration)
{
	static char args[80];
	snprintf(args, sizeof args, "\"device\": 0, \"stream\": 7, \"bytes\": 4096, \"correlation\": %d", correlation);
	m.args = args;
	made_event(&m, "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 0, 7, begin, duration);
}

static void test_start(void **state)
{
	(void)state;
	/* One long gap at the front, in which nothing is recorded: left out, and said. */
	made_begin(&m);
	made_kernel(&m, softmax, 43, 100, 110);
	kernels(500000, 900, 50);
	diagnose();
	assert_int_equal(device()->from, FO_WINDOW_WHOLE);
	assert_non_null(finding("start-left-out"));
	assert_true(llabs(device()->start_ns - 499920000) < 1000 && device()->start_ops == 1);
	assert_int_equal(ledger()->span_ns, 45000000);
	assert_true(v.d.judged == FO_JUDGED_SERIOUS || v.d.judged == FO_JUDGED_HEALTHY);
	assert_null(finding("host-other"));
	assert_null(finding("idle-unknown"));
	assert_non_null(strstr(finding("start-left-out")->why, "no operator or call of the host is recorded"));
	made_close(&v);
	/* A blocking call fills half of it, which is no work for the job; it is recorded, so it is named. */
	made_begin(&m);
	made_kernel(&m, softmax, 43, 100, 110);
	launch_of("hipMemcpyWithStream", 900, 1000, 249000);
	copy_of(900, 250010, 10);
	kernels(500000, 900, 50);
	diagnose();
	assert_non_null(finding("start-left-out"));
	assert_non_null(strstr(finding("start-left-out")->why,
			       "for 249 ms of these 500 ms the host was in hipMemcpyWithStream"));
	assert_null(strstr(finding("start-left-out")->why, "no operator or call"));
	made_close(&v);
	made_begin(&m);
	made_kernel(&m, softmax, 43, 100, 110);
	made_call(&m, "cudaDeviceSynchronize", 1000, 400000);
	kernels(500000, 900, 50);
	diagnose();
	assert_non_null(strstr(finding("start-left-out")->why,
			       "for 399 ms of these 500 ms the host was in cudaDeviceSynchronize"));
	made_close(&v);
	/* The same gap full of operators is work of the job: it stays. */
	made_begin(&m);
	made_kernel(&m, softmax, 43, 100, 110);
	for (int i = 0; i < 490; i++)
		made_op(&m, "aten::index", 1000 + 1000 * i, 1990 + 1000 * i);
	kernels(500000, 900, 50);
	diagnose();
	assert_null(finding("start-left-out"));
	assert_string_equal(bottleneck()->id, "host-work");
	made_close(&v);
	/* And one in the middle of the work stays too. */
	made_begin(&m);
	kernels(0, 900, 25);
	kernels(500000, 900, 25);
	diagnose();
	assert_null(finding("start-left-out"));
	assert_string_equal(bottleneck()->id, "host-other");
	made_close(&v);
}

/* Launch calls that last: the driver loads code. */
static void loading(int steps, double load)
{
	made_begin(&m);
	for (int k = 0; k < steps; k++) {
		double at = 1000 + k * (load + 20000);
		if (steps > 1)
			made_step(&m, k, at, at + load + 20000);
		made_op(&m, "aten::mm", at, at + load + 20);
		launch_of("cudaLaunchKernel", 100 + k, at + 10, load);
		kernel_of(product, 100 + k, at + load + 15, at + load + 900);
		m.correlation = 1000 + 100 * k;
		kernels(at + load + 100, 900, 20);
	}
	diagnose();
}

static void test_loading(void **state)
{
	(void)state;
	/* In a trace without steps it is a warm-up; for most of it nothing else can be said. */
	made_begin(&m);
	made_kernel(&m, softmax, 1, 10, 900);
	made_op(&m, "aten::mm", 1000, 100000);
	launch_of("cudaLaunchKernel", 77, 1010, 98000);
	kernel_of(product, 77, 99020, 99900);
	m.correlation = 1000;
	kernels(100100, 900, 10);
	diagnose();
	assert_int_equal(v.d.judged, FO_JUDGED_WARM_UP);
	assert_true(strncmp(v.d.cannot, "a warm-up is recorded", 21) == 0);
	assert_non_null(finding("warm-up"));
	assert_null(bottleneck());
	assert_true(llabs(ledger()->idle_ns[FO_IDLE_LONG_CALL] - 98000000) < 200000);
	made_close(&v);
	/* In every one of several steps it is the bottleneck. */
	loading(6, 40000);
	assert_int_equal(device()->from, FO_WINDOW_LAUNCHED_STEPS);
	assert_string_equal(bottleneck()->id, "code-loading");
	assert_int_equal(v.d.judged, FO_JUDGED_SERIOUS);
	made_close(&v);
}

/* ---- the trace can say why ---- */

static void test_graph(void **state)
{
	(void)state;
	/* A graph is launched 48 ms before a gap between its kernels: the host was not late. */
	made_begin(&m);
	launch_of("cudaGraphLaunch", 9, 1000, 50);
	kernel_of(product, 9, 1100, 49100);
	kernel_of(product, 9, 69100, 99100);
	kernel_of(product, 9, 99105, 119100);
	diagnose();
	assert_int_equal(ledger()->idle_ns[FO_IDLE_DEPENDENCY], 20000000);
	assert_int_equal(ledger()->idle_ns[FO_IDLE_KERNEL_GAP], 5000);
	assert_int_equal(ledger()->idle_ns[FO_IDLE_UNKNOWN], 0);
	assert_string_equal(bottleneck()->id, "dependency");
	assert_non_null(strstr(bottleneck()->why, "graph"));
	made_close(&v);
	/* A kernel with a launch of its own, 43 us into the trace, is neither shared nor missing. */
	made_begin(&m);
	made_kernel(&m, product, 1, 5, 20);
	made_kernel(&m, product, 43, 60000, 60900);
	made_kernel(&m, product, 60800, 60900, 62000);
	diagnose();
	assert_int_equal(ledger()->idle_ns[FO_IDLE_UNKNOWN], 0);
	assert_null(finding("idle-unknown"));
	made_close(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_step),       cmocka_unit_test(test_leftovers),
		cmocka_unit_test(test_host_step_note), cmocka_unit_test(test_start),
		cmocka_unit_test(test_loading),        cmocka_unit_test(test_graph),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
