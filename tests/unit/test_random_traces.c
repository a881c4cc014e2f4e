/* What must hold of every diagnosis, whatever the trace: random ones, through the file. */
#include "support/finding_rows.h"
#include "support/made_trace.h"
#include "support/random.h"

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

enum { HOST = 100, TRACES = 200 };
static struct made m;
static struct made_diagnosis v;
static int only; /* of what the host does between launches; -1: anything */

/* ---- traces ---- */

static void some_kernel(double launch, double begin, double end)
{
	static const char *const name[] = {
		"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
		"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
		"void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
		"cutlass::half_t>>(Flash_fwd_params)",
		"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)",
		"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
		"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
		"namespace)::TensorListMetadata<4>>(int)",
		"volta_sgemm_128x64_nn",
		"what_nobody_knows"
	};
	static const char *const copy[] = { "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)",
					    "Memcpy DtoH (Device -> Pinned)" };
	m.stream = 7 + below(3);
	if (below(6))
		made_kernel(&m, name[below(8)], launch, begin, end);
	else
		made_copy(&m, copy[below(3)], 1 << below(28), launch, begin, end);
}

/* What the host does between two launches, which takes up to `most` us. */
static double host(double at, int most)
{
	double took = below(most) + 1, end = at + took;
	switch (only >= 0 ? only : below(9)) {
	case 0: made_range(&m, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, end); break;
	case 1: made_call(&m, "cudaStreamSynchronize", at, end); break;
	case 2: made_call(&m, "cudaMalloc", at, end); break;
	case 3: made_op(&m, "aten::index", at, end); break;
	case 4: made_op(&m, "aten::mm", at, end); break;
	case 5: made_event(&m, "overhead", "Activity Buffer Request", -1, below(4), at - below(2000), 4 * took); break;
	case 6: made_call(&m, "cuModuleLoadData", at, end); break;
	default: break; /* nothing that is recorded */
	}
	return end;
}

static void graph(double at, double begin, int kernels, int length)
{
	static char args[80];
	int64_t id = 1000000 + m.correlation++;
	snprintf(args, sizeof args, "\"correlation\": %lld", (long long)id);
	m.args = args;
	made_event(&m, "cuda_runtime", "cudaGraphLaunch", HOST, 1, at, 5 + below(30));
	for (int i = 0; i < kernels; i++) {
		double end = begin + 1 + below(length);
		snprintf(args, sizeof args, "\"device\": 0, \"stream\": 7, \"correlation\": %lld", (long long)id);
		m.args = args;
		made_event(&m, "kernel", "volta_sgemm_128x64_nn", 0, 7, begin, end - begin);
		begin = end + below(length) * below(2);
	}
}

/* One to five steps, marked or not; the host may be slow or run ahead, launches may be lost or last. */
static void random_trace(void)
{
	int steps = 1 + below(5), marked = below(3), ops = 5 + below(40), length = 1 << (3 + below(9)),
	    most = 1 << (2 + below(11));
	double now = below(3) ? 100 : 100000, gpu = now;
	only = below(4) ? -1 : below(9);
	made_begin(&m);
	if (below(4))
		made_device(&m, "NVIDIA H100 80GB HBM3", 132, 9, 0, 80);
	if (now > 1000 && below(2))
		some_kernel(43, 60, 61 + below(20));
	for (int i = below(4); i > 0; i--)
		some_kernel(-1, now - 50 * i, now - 50 * i + below(60));
	for (int k = 0; k < steps; k++) {
		double begin = now;
		if (!below(4)) /* work before the first launch */
			for (int i = below(30); i > 0; i--)
				now = host(now, 4 * most);
		for (int i = 0; i < ops; i++) {
			now = host(now, most);
			double from = (gpu > now ? gpu : now + 5) + below(3) * below(length);
			if (!below(30)) {
				graph(now, from, 1 + below(5), length);
				gpu = from + 5.0 * length;
				continue;
			}
			gpu = from + 1 + below(length);
			some_kernel(below(20) ? now : -1, from, gpu);
			now += 2;
		}
		if (below(2))
			now = gpu > now ? gpu : now;
		if (marked)
			made_step(&m, k, begin, now);
		now += below(20);
	}
}

/* ---- what must hold ---- */

static void sums(const struct fo_ledger *l)
{
	int64_t classes = 0, copies = 0, idle = 0;
	for (int i = 0; i < FO_K_COMPUTE_COUNT; i++)
		classes += l->class_ns[i];
	for (int i = 0; i < FO_COPY_COUNT; i++)
		copies += l->copy_ns[i];
	for (int i = 0; i < FO_IDLE_COUNT; i++) {
		assert_true(l->idle_ns[i] >= 0);
		idle += l->idle_ns[i];
	}
	assert_int_equal(l->span_ns, l->comp_ns + l->exposed_comm_ns + l->exposed_mem_ns + l->idle_total_ns);
	assert_int_equal(l->comp_ns, classes);
	assert_int_equal(l->exposed_mem_ns, copies);
	assert_int_equal(l->idle_total_ns, idle);
	assert_int_equal(l->exposed_comm_ns, l->exposed_wait_ns + l->exposed_transfer_ns + l->exposed_comm_unknown_ns);
	assert_true(l->resident_ns <= l->busy_ns && l->busy_ns <= l->span_ns);
	assert_true(l->recompute_ns <= l->comp_ns && l->blocking_comm_ns <= l->exposed_comm_ns &&
		    l->exposed_pageable_ns <= l->exposed_mem_ns);
}

/* "57.3 %": of anything, at most all of it. */
static void shares_in(const char *text)
{
	for (const char *p = strstr(text, " %"); p; p = strstr(p + 1, " %")) {
		const char *from = p;
		while (from > text && ((from[-1] >= '0' && from[-1] <= '9') || from[-1] == '.'))
			from--;
		if (from == p)
			continue;
		double share = strtod(from, NULL);
		if (!(share >= 0 && share <= 100) || (from > text && from[-1] == '-'))
			fail_msg("a share above all there is: %s", text);
	}
}

static void check(void)
{
	const struct fo_diagnosis *d = &v.d;
	bool serious = false;
	for (int r = 0; r < d->ranks; r++)
		for (int64_t i = 0; i < d->rank[r].devices; i++) {
			const struct fo_device_ledger *x = &d->rank[r].device[i];
			for (int64_t k = 0; k < x->steps; k++)
				sums(&x->step[k].l);
			sums(&x->total);
		}
	const struct fo_device_ledger *x = fo_shown_device(d, d->worst);
	if (!x) {
		assert_int_equal(d->judged, FO_JUDGED_NO_GPU);
		return;
	}
	struct fo_subject s;
	fo_shown_step_of(x, &s);
	sums(&s.l);
	assert_true(d->utilisation.resident >= 0 && d->utilisation.resident <= 1 &&
		    d->utilisation.computing <= d->utilisation.resident);
	shares_in(d->utilisation.sentence);
	for (int64_t i = 0; i < d->findings; i++) {
		const struct fo_finding *f = &d->finding[i];
		serious |= f->serious;
		shares_in(f->title);
		shares_in(f->why);
		bool alone;
		if (f->kind != FO_FIND_VALIDITY)
			assert_true(f->loss_ns <= finding_rows(f->id, &s.l, &alone));
		if (isnan(f->gain))
			continue;
		double most = (double)s.l.span_ns / (double)(s.l.span_ns - f->loss_ns);
		if (!(f->ceiling <= most + 1e-9))
			fail_msg("'%s': a ceiling of %g, and the ledger allows %g", f->id, f->ceiling, most);
		assert_true(f->gain_low >= 1 && f->gain_low <= f->gain + 1e-9 && f->gain <= f->gain_high + 1e-9 &&
			    f->gain_high <= f->ceiling + 1e-9);
	}
	assert_int_equal(serious, d->judged == FO_JUDGED_SERIOUS);
	assert_int_equal(fo_diagnosed(d), d->cannot[0] == '\0');
	if (d->bridge.known) {
		double sum = 0;
		for (int i = 0; i < d->bridge.rows; i++)
			sum += d->bridge.row[i].share;
		assert_true(fabs(sum - 1) < 1e-9 && d->bridge.mfu <= 1.01);
	}
}

static void test_any(void **state)
{
	(void)state;
	int judged[FO_JUDGED_COUNT] = { 0 }, from[FO_WINDOW_ORIGIN_COUNT] = { 0 }, started = 0, led = 0;
	for (int n = 0; n < TRACES; n++) {
		fo_random_state = 1000003 *
				  (uint64_t)n; /* far apart: neighbours would draw the same numbers, one later */
		random_trace();
		made_run(&m, &v);
		check();
		judged[v.d.judged]++;
		const struct fo_device_ledger *x = fo_shown_device(&v.d, v.d.worst);
		if (x) {
			from[x->from]++;
			started += x->start_ns > 0;
			led += x->lead_ns > 0;
		}
		made_close(&v);
	}
	/* The traces are of every kind. */
	assert_true(judged[FO_JUDGED_SERIOUS] && judged[FO_JUDGED_WARM_UP] && from[FO_WINDOW_LAUNCHED_STEPS] &&
		    from[FO_WINDOW_HOST_STEP] && from[FO_WINDOW_WHOLE] && started && led);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_any) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
