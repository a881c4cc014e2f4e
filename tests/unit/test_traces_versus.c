/* Two jobs' traces beside each other: parts sum, what explains the difference, what is not resolved, kernels that came
 * and went. */
#include "report/traces_versus.h"

#include "trace/trace_int.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { US = 1000, MS = 1000 * US, STEPS = 6 };

static int32_t text(struct fo_trace_build *b, const char *s) { return fo_trace_intern(b, s, strlen(s)); }

static void kernel(struct fo_trace_build *b, const char *name, int64_t launched, int64_t begin, int64_t length,
		   int64_t id)
{
	int16_t device = fo_trace_device(b, 0);
	int32_t thread = fo_trace_thread(b, 1, 1), call = text(b, "cudaLaunchKernel"), own = text(b, name);
	struct fo_launch *l = fo_trace_add_launch(b, 0, 0);
	*l = (struct fo_launch){ .begin_ns = launched,
				 .end_ns = launched + US,
				 .correlation = id,
				 .name = call,
				 .thread = thread,
				 .op = -1 };
	struct fo_gpu_op *o = fo_trace_add_gpu(b, 0, 0);
	*o = (struct fo_gpu_op){ .begin_ns = begin,
				 .end_ns = begin + length,
				 .bytes = -1,
				 .correlation = id,
				 .name = own,
				 .stream = 7,
				 .launch = -1,
				 .op = -1,
				 .collective = -1,
				 .device = device,
				 .kind = FO_GPU_KERNEL };
}

struct job {
	struct fo_trace *trace;
	struct fo_rank_ledger rank;
	struct fo_diagnosis d;
};

/* Steps of 10 ms + i * drift: 6 ms of product, `loader` of data loading, an elementwise kernel named `tail`. */
static void make(struct job *j, bool steps, int64_t loader, int64_t drift, const char *tail)
{
	struct fo_trace_build b;
	int64_t at = 0, id = 1;
	memset(j, 0, sizeof *j);
	fo_trace_build_init(&b, "trace.json");
	for (int i = 0; i <= STEPS; i++) {
		int64_t begin = at, load = loader + i * drift;
		int32_t thread = fo_trace_thread(&b, 1, 1), name = text(&b, "enumerate(DataLoader)#next");
		if (load > 0) {
			struct fo_host_op *o = fo_trace_add_op(&b, 0, 0);
			*o = (struct fo_host_op){
				at,           at + load,   .name = name,   .thread = thread,    .parent = -1,
				.shapes = -1, .types = -1, .sequence = -1, .kind = FO_HOST_DATA
			};
		}
		at += load;
		kernel(&b, "ampere_sgemm_128x64_nn", at, at + 5 * US, 6 * MS, id++);
		kernel(&b, tail, at + 2 * US, at + 5 * US + 6 * MS, 1 * MS, id++);
		at += 7 * MS + 5 * US;
		if (steps) {
			fo_trace_add_step(&b, i, begin, at - 1)->thread = thread;
		}
	}
	assert_int_equal(fo_trace_build_finish(&b, &j->trace), FO_OK);
	fo_ledger_rank(&j->rank, j->trace, &(struct fo_ledger_options){ .whole_trace = false }, NULL);
	j->d = (struct fo_diagnosis){ .rank = &j->rank, .ranks = 1 };
}

static void drop(struct job *j)
{
	fo_ledger_rank_fini(&j->rank);
	fo_trace_free(j->trace);
}

static const struct fo_traces_part *part(const struct fo_traces_versus *v, const char *id)
{
	for (int i = 0; i < v->parts; i++)
		if (!strcmp(v->part[i].id, id))
			return &v->part[i];
	return NULL;
}

static const struct fo_traces_kernel *named(const struct fo_traces_versus *v, const char *name)
{
	for (int64_t i = 0; i < v->kernels; i++)
		if (!strcmp(v->kernel[i].name, name))
			return &v->kernel[i];
	return NULL;
}

static bool says(const struct fo_traces_versus *v, const char *what)
{
	for (int64_t i = 0; i < v->causes; i++)
		if (strstr(v->cause[i], what))
			return true;
	return false;
}

/* On both sides leaves sum to the step, as do their differences. */
static void assert_sums(const struct fo_traces_versus *v)
{
	double leaf[3] = { 0 }, middle[3] = { 0 }, ordered = 0;
	for (int i = 1; i < v->parts; i++) {
		double *to = v->part[i].leaf ? leaf : middle;
		to[0] += v->part[i].f.mean[0];
		to[1] += v->part[i].f.mean[1];
		to[2] += v->part[i].f.difference;
	}
	for (int i = 0; i < v->ordered; i++)
		ordered += v->part[v->order[i]].f.difference;
	const struct fo_traces_figure *step = &v->part[0].f;
	const double want[] = { step->mean[0], step->mean[1], step->difference };
	for (int k = 0; k < 3; k++) {
		assert_true(fabs(leaf[k] - want[k]) < 1e-12);
		assert_true(fabs(middle[k] - want[k]) < 1e-12);
	}
	assert_true(fabs(ordered - step->difference) < 1e-12);
}

static void test_loader(void **state)
{
	(void)state;
	struct job a, b;
	struct fo_traces_versus v;
	make(&a, true, 4 * MS, 0, "void vectorized_elementwise_kernel<4, float>(int)");
	make(&b, true, 1 * MS, 0, "triton_poi_fused_add_0");
	fo_traces_versus_make(&v, &a.d, &b.d);
	assert_true(v.windows);
	assert_sums(&v);
	assert_true(fabs(v.part[0].f.mean[0] - 11.005e-3) < 1e-9 && fabs(v.part[0].f.mean[1] - 8.005e-3) < 1e-9);
	assert_true(v.part[0].f.resolved);
	/* Three of four milliseconds of data loading went, and nothing else but the name of a kernel and its class. */
	assert_string_equal(v.part[v.order[0]].id, "idle.host_data");
	assert_true(fabs(part(&v, "idle.host_data")->f.difference + 3e-3) < 1e-9);
	assert_true(part(&v, "idle.host_data")->f.resolved);
	assert_true(fabs(part(&v, "compute.elementwise")->f.difference + 1e-3) < 1e-9);
	assert_true(fabs(part(&v, "compute.fused")->f.difference - 1e-3) < 1e-9);
	assert_false(part(&v, "compute.gemm")->f.resolved);
	assert_true(part(&v, "compute.gemm")->f.difference == 0);
	assert_null(part(&v, "exposed_comm.wait"));
	const struct fo_traces_kernel *gone = named(&v, "vectorized_elementwise_kernel"),
				      *came = named(&v, "triton_poi_fused_add_0"),
				      *same = named(&v, "ampere_sgemm_128x64_nn");
	assert_true(gone && gone->calls[0] > 0.99 && gone->calls[0] < 1.01 && gone->calls[1] == 0 && gone->f.resolved);
	assert_true(came && came->calls[0] == 0 && came->f.resolved && fabs(came->f.mean[1] - 1e-3) < 1e-9);
	assert_true(same && same->f.difference == 0 && !same->f.resolved);
	assert_true(says(&v, "1 name of kernels that only A runs: 1.000 ms"));
	fo_traces_versus_fini(&v);
	drop(&a);
	drop(&b);
}

/* Where steps vary by more than they differ, nothing is resolved, though the means differ. */
static void test_not_resolved(void **state)
{
	(void)state;
	struct job a, b;
	struct fo_traces_versus v;
	make(&a, true, 1 * MS, 1 * MS, "k");
	make(&b, true, 1500 * US, 1 * MS, "k");
	fo_traces_versus_make(&v, &a.d, &b.d);
	assert_sums(&v);
	assert_true(v.part[0].f.difference > 0);
	assert_false(v.part[0].f.resolved);
	assert_false(part(&v, "idle.host_data")->f.resolved);
	fo_traces_versus_fini(&v);
	drop(&b);
	/* The same against itself: nothing differs. */
	fo_traces_versus_make(&v, &a.d, &a.d);
	assert_int_equal(v.ordered, 0);
	assert_int_equal(v.causes, 0);
	fo_traces_versus_fini(&v);
	drop(&a);
}

/* Without steps windows are compared, and said to be no steps. */
static void test_whole(void **state)
{
	(void)state;
	struct job a, b;
	struct fo_traces_versus v;
	make(&a, false, 4 * MS, 0, "k");
	make(&b, true, 1 * MS, 0, "k");
	fo_traces_versus_make(&v, &a.d, &b.d);
	assert_false(v.windows);
	assert_sums(&v);
	for (int i = 0; i < v.parts; i++)
		assert_false(v.part[i].f.resolved);
	assert_true(says(&v, "A has no steps"));
	fo_traces_versus_fini(&v);
	/* A side without GPU operations is told by its missing rank. */
	b.d.ranks = 0;
	b.d.worst = -1;
	fo_traces_versus_make(&v, &a.d, &b.d);
	assert_null(v.side[1].rank);
	assert_int_equal(v.parts, 0);
	fo_traces_versus_fini(&v);
	drop(&a);
	drop(&b);
}

static void test_products(void **state)
{
	(void)state;
	struct job a, b;
	struct fo_traces_versus v;
	struct fo_product x[2] = { 0 }, y[2] = { 0 };
	for (int i = 0; i < 2; i++) { /* a large one and a small one, of another type in the second job */
		struct fo_product *large = i ? &y[1] : &x[0], *small = i ? &y[0] : &x[1];
		large->m = large->n = large->k = 64;
		small->m = small->n = small->k = 8;
		large->batch = small->batch = small->calls = 1;
		large->calls = i ? 20 : 10;
		large->time_ns = 10 * MS;
		small->time_ns = 1 * MS;
		snprintf(large->dtype, sizeof large->dtype, "bf16");
		snprintf(small->dtype, sizeof small->dtype, i ? "fp8" : "bf16");
	}
	make(&a, true, 1 * MS, 0, "k");
	make(&b, true, 1 * MS, 0, "k");
	a.d.product = x, a.d.products = 2;
	b.d.product = y, b.d.products = 2;
	fo_traces_versus_make(&v, &a.d, &b.d);
	assert_int_equal(v.products, 3);
	/* The same time in all, half of it a call. */
	const struct fo_traces_product *same = &v.product[2];
	assert_true(same->in[0] == &x[0] && same->in[1] == &y[1]);
	assert_true(fabs(same->call_s[0] - 1e-3) < 1e-12 && fabs(same->call_s[1] - 0.5e-3) < 1e-12);
	for (int i = 0; i < 2; i++)
		assert_true(!v.product[i].in[0] != !v.product[i].in[1]);
	fo_traces_versus_fini(&v);
	drop(&a);
	drop(&b);
}

/* Another batch size changes one size of each product, another model at least two. */
static void test_other_job(void **state)
{
	(void)state;
	for (int other = 0; other < 2; other++) {
		struct job a, b;
		struct fo_traces_versus v;
		struct fo_product x = { .m = 4096, .n = 1024, .k = 2048, .batch = 1, .calls = 1, .time_ns = MS }, y = x;
		y.m = 8192;
		y.n = other ? 768 : x.n;
		make(&a, true, 1 * MS, 0, "k");
		make(&b, true, 1 * MS, 0, "k");
		a.d.product = &x, a.d.products = 1;
		b.d.product = &y, b.d.products = 1;
		fo_traces_versus_make(&v, &a.d, &b.d);
		assert_int_equal(says(&v, "these look like different jobs: matmuls"), other);
		fo_traces_versus_fini(&v);
		drop(&a);
		drop(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loader),   cmocka_unit_test(test_not_resolved), cmocka_unit_test(test_whole),
		cmocka_unit_test(test_products), cmocka_unit_test(test_other_job),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
