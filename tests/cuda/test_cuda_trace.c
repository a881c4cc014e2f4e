/* Times of kernels and whose they are (src/kernel/cuda/cupti.c), from records that the test makes up. */
#include "base/clock.h"
#include "cuda/soft_cupti.h"
#include "kernel/cuda/cuda.h"
#include "support/cuda.h"
#include "support/must.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __typeof__(fo_software_cupti_kernel) *kernel;
static __typeof__(fo_software_cupti_node) *node;
static __typeof__(fo_software_cupti_lose) *lose;
static int64_t start_ns; /* of the test: kernels' times count from here */

static void ran(const char *name, int64_t begin, int64_t end, uint64_t of)
{
	kernel(name, start_ns + begin, start_ns + end, of);
}

/* Between two readings of the clock a busy machine may do other things for long; the clocks are much further apart. */
#define SLACK_NS 60000000000LL
static void is(const struct fo_cuda_traced *t, int64_t instance, const char *name, int64_t begin, int64_t end)
{
	assert_int_equal(t->instance, instance);
	assert_string_equal(t->name, name);
	assert_true(llabs(t->begin_ns - start_ns - begin) < SLACK_NS);
	assert_int_equal(t->end_ns - t->begin_ns, end - begin);
	assert_int_equal(t->stream, 3);
}

static void test_launches(void **state)
{
	struct fo_cuda_trace t;
	(void)state;
	start_ns = fo_now_ns();
	must(fo_cuda_trace_start());
	assert_int_equal(fo_cuda_trace_start(), FO_EARG);
	ran("nobody's", 0, 5, 0);
	fo_cuda_trace_push(7);
	ran("gemm", 3000, 4000, 0);
	ran("splitk_reduce", 4100, 4200, 0);
	fo_cuda_trace_pop();
	fo_cuda_trace_push(0);
	ran("add", 100, 300, 0); /* another stream: it began earlier */
	fo_cuda_trace_pop();
	fo_cuda_trace_pop(); /* once too often */
	lose(2);
	must(fo_cuda_trace_take(&t));
	assert_int_equal(t.n, 4);
	assert_int_equal(t.unknown, 1);
	assert_int_equal(t.dropped, 2);
	is(&t.kernel[0], -1, "nobody's", 0, 5);
	is(&t.kernel[1], 0, "add", 100, 300);
	is(&t.kernel[2], 7, "gemm", 3000, 4000);
	is(&t.kernel[3], 7, "splitk_reduce", 4100, 4200);
	fo_cuda_trace_fini(&t);
	must(fo_cuda_trace_take(&t));
	assert_int_equal(t.n + t.dropped, 0);
	fo_cuda_trace_fini(&t);
	fo_cuda_trace_stop();
	assert_int_equal(fo_cuda_trace_take(&t), FO_EARG);
	fo_cuda_trace_push(1); /* nobody traces: nothing happens */
	fo_cuda_trace_pop();
	fo_cuda_trace_stop();
}

/* Operations captured into a graph, which is copied as it is made ready; each launch's kernels belong to them. */
static void test_graph(void **state)
{
	struct fo_cuda_trace t;
	(void)state;
	start_ns = fo_now_ns();
	must(fo_cuda_trace_start());
	for (int i = 0; i < 3; i++) {
		fo_cuda_trace_push(10 + i);
		node(100 + (uint64_t)i, 0);
		fo_cuda_trace_pop();
	}
	node(103, 0); /* an event's, of no operation */
	for (uint64_t i = 0; i < 4; i++)
		node(200 + i, 100 + i);
	for (int launch = 0; launch < 2; launch++) {
		for (int i = 0; i < 4; i++)
			ran("k", 1000 * launch + 10 * i, 1000 * launch + 10 * i + 9, 200 + (uint64_t)i);
		must(fo_cuda_trace_take(&t));
		assert_int_equal(t.n, 4);
		for (int i = 0; i < 4; i++)
			is(&t.kernel[i], i < 3 ? 10 + i : -1, "k", 1000 * launch + 10 * i, 1000 * launch + 10 * i + 9);
		fo_cuda_trace_fini(&t);
	}
	fo_cuda_trace_stop();
}

/* More than fits into a buffer, with names that are gone by then. */
static void test_many(void **state)
{
	enum { N = 50000 };
	struct fo_cuda_trace t;
	char name[16];
	(void)state;
	start_ns = fo_now_ns();
	must(fo_cuda_trace_start());
	for (int i = 0; i < N; i++) {
		fo_cuda_trace_push(i);
		ran("steady", i, i + 1, 0);
		fo_cuda_trace_pop();
	}
	snprintf(name, sizeof name, "passing");
	ran(name, N, N + 1, 0);
	must(fo_cuda_trace_take(&t));
	snprintf(name, sizeof name, "other");
	assert_int_equal(t.n, N + 1);
	for (int i = 0; i < N; i++)
		assert_int_equal(t.kernel[i].instance, i);
	is(&t.kernel[N], -1, "passing", N, N + 1);
	fo_cuda_trace_fini(&t);
	fo_cuda_trace_stop();
}

static void test_busy(void **state)
{
	(void)state;
	setenv("FLATOUT_SOFT_CUPTI_BUSY", "1", 1);
	assert_int_equal(fo_cuda_trace_start(), FO_EDEVICE);
	assert_non_null(strstr(fo_err_text(), "MULTIPLE_SUBSCRIBERS"));
	unsetenv("FLATOUT_SOFT_CUPTI_BUSY");
	must(fo_cuda_trace_start());
	fo_cuda_trace_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_launches), cmocka_unit_test(test_graph),
					    cmocka_unit_test(test_many), cmocka_unit_test(test_busy) };
	struct fo_cuda_survey s;
	fo_cuda_survey(&s);
	const struct fo_cuda_found *f = &s.lib[FO_CUDA_CUPTI];
	void *h = f->loaded ? dlopen(f->file, RTLD_NOW | RTLD_NOLOAD) : NULL;
	*(void **)&kernel = h ? dlsym(h, "fo_software_cupti_kernel") : NULL;
	*(void **)&node = h ? dlsym(h, "fo_software_cupti_node") : NULL;
	*(void **)&lose = h ? dlsym(h, "fo_software_cupti_lose") : NULL;
	if (!kernel || !node || !lose) {
		printf("skipped: no software CUPTI: %s\n", f->why);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
