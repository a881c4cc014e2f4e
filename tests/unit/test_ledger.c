/* The ledger of a device on traces made by hand, and on random ones against a count of every single nanosecond. */
#include "diagnose/diagnose.h"
#include "trace/trace_int.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a trace by hand: arrays in the order that readers leave them in ---- */

enum { MOST = 256 };
struct made {
	struct fo_trace t;
	struct fo_gpu_op gpu[MOST];
	struct fo_launch launch[MOST];
	struct fo_host_op op[MOST];
	struct fo_thread thread[4];
	struct fo_trace_step step[16];
	struct fo_trace_device device[2];
};

static void make(struct made *m)
{
	memset(m, 0, sizeof *m);
	m->t = (struct fo_trace){ .gpu = m->gpu,
				  .launch = m->launch,
				  .op = m->op,
				  .thread = m->thread,
				  .step = m->step,
				  .device = m->device,
				  .rank = -1,
				  .thread_count = 4,
				  .device_count = 2 };
	m->t.texts = fo_trace_texts_new();
	m->device[1].id = 1;
}

static void unmake(struct made *m) { fo_trace_texts_free(m->t.texts); }

static int32_t text(struct made *m, const char *s) { return fo_trace_texts_add(m->t.texts, s, strlen(s)); }

static struct fo_gpu_op *gpu(struct made *m, int class, int64_t begin, int64_t end)
{
	struct fo_gpu_op *g = &m->gpu[m->t.gpu_count++];
	*g = (struct fo_gpu_op){ .begin_ns = begin,
				 .end_ns = end,
				 .name = -1,
				 .launch = -1,
				 .op = -1,
				 .collective = -1,
				 .correlation = -1,
				 .kind = class == FO_K_MEMORY ? FO_GPU_MEMCPY : FO_GPU_KERNEL,
				 .class = (uint8_t) class,
				 .class_by_name = (uint8_t) class };
	return g;
}

/* Launched by thread `thread` in [begin, end). */
static void launched(struct made *m, struct fo_gpu_op *g, int32_t thread, int64_t begin, int64_t end)
{
	g->launch = (int32_t)m->t.launch_count;
	m->launch[m->t.launch_count++] = (struct fo_launch){
		.begin_ns = begin, .end_ns = end, .name = text(m, "cudaLaunchKernel"), .thread = thread, .op = -1
	};
}

static void host(struct made *m, int kind, const char *name, int32_t thread, int64_t begin, int64_t end)
{
	m->op[m->t.op_count++] = (struct fo_host_op){ .begin_ns = begin,
						      .end_ns = end,
						      .name = text(m, name),
						      .thread = thread,
						      .parent = -1,
						      .shapes = -1,
						      .types = -1,
						      .sequence = -1,
						      .collective = -1,
						      .kind = (uint8_t)kind };
	m->t.defect.has_host_ops |= kind == FO_HOST_OP;
}

static void step(struct made *m, int64_t number, int64_t begin, int64_t end)
{
	m->step[m->t.step_count++] = (struct fo_trace_step){
		.number = number, .begin_ns = begin, .end_ns = end, .device = -1
	};
}

static void divide(struct made *m, struct fo_rank_ledger *r, bool whole)
{
	const struct fo_ledger_options o = { .whole_trace = whole };
	fo_ledger_rank(r, &m->t, &o, NULL);
}

/* Every sum that diagnose.h promises. */
static void adds_up(const struct fo_ledger *l)
{
	int64_t class = 0, copy = 0, idle = 0;
	for (int k = 0; k < FO_K_COMPUTE_COUNT; k++)
		class += l->class_ns[k];
	for (int k = 0; k < FO_COPY_COUNT; k++)
		copy += l->copy_ns[k];
	for (int k = 0; k < FO_IDLE_COUNT; k++)
		idle += l->idle_ns[k];
	assert_int_equal(l->comp_ns + l->exposed_comm_ns + l->exposed_mem_ns + l->idle_total_ns, l->span_ns);
	assert_int_equal(l->busy_ns + l->idle_total_ns, l->span_ns);
	assert_int_equal(class, l->comp_ns);
	assert_int_equal(copy, l->exposed_mem_ns);
	assert_int_equal(idle, l->idle_total_ns);
	assert_int_equal(l->exposed_wait_ns + l->exposed_transfer_ns + l->exposed_comm_unknown_ns, l->exposed_comm_ns);
}

/* ---- sets ---- */

static void expect_set(const struct fo_intervals *s, const int64_t (*v)[2], size_t n)
{
	assert_int_equal(s->n, n);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(s->v[i].begin, v[i][0]);
		assert_int_equal(s->v[i].end, v[i][1]);
	}
}

static void test_sets(void **state)
{
	(void)state;
	struct fo_intervals a = { 0 }, b = { 0 }, c = { 0 };
	fo_intervals_add(&a, 20, 30);
	fo_intervals_add(&a, 5, 5);
	fo_intervals_add(&a, 0, 10);
	fo_intervals_add(&a, 10, 12);
	fo_intervals_add(&a, 22, 25);
	fo_intervals_unite(&a);
	expect_set(&a, (const int64_t[][2]){ { 0, 12 }, { 20, 30 } }, 2);
	fo_intervals_add(&b, 8, 22);
	fo_intervals_add(&b, 24, 26);
	fo_intervals_add(&b, 40, 41);
	fo_intervals_unite(&b);
	fo_intervals_intersect(&c, &a, &b);
	expect_set(&c, (const int64_t[][2]){ { 8, 12 }, { 20, 22 }, { 24, 26 } }, 3);
	fo_intervals_subtract(&c, &a, &b);
	expect_set(&c, (const int64_t[][2]){ { 0, 8 }, { 22, 24 }, { 26, 30 } }, 3);
	fo_intervals_subtract(&c, &b, &a);
	expect_set(&c, (const int64_t[][2]){ { 12, 20 }, { 40, 41 } }, 2);
	assert_int_equal(fo_intervals_length(&a), 22);
	assert_int_equal(fo_intervals_within(&a, 11, 21), 2);
	assert_int_equal(fo_intervals_within(&a, 12, 20), 0);
	assert_int_equal(fo_intervals_find(&a, 12), 1);
	assert_int_equal(fo_intervals_find(&a, 30), 2);
	fo_intervals_close(&a, 7);
	assert_int_equal(a.n, 2);
	fo_intervals_close(&a, 8);
	expect_set(&a, (const int64_t[][2]){ { 0, 30 } }, 1);
	fo_intervals_fini(&a);
	fo_intervals_fini(&b);
	fo_intervals_fini(&c);
}

/* ---- sets of a device ---- */

static void test_priority(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	gpu(&m, FO_K_ELEMENTWISE, 0, 50);
	gpu(&m, FO_K_COMMUNICATION, 10, 90); /* under two kernels until 60, then alone; a copy beside it is hidden */
	gpu(&m, FO_K_GEMM, 20, 60);          /* goes before elementwise */
	gpu(&m, FO_K_MEMORY, 80, 100)->copy = FO_COPY_D2H;
	struct fo_gpu_op *g = gpu(&m, FO_K_MEMORY, 95, 110);
	g->copy = FO_COPY_H2D; /* of two copies the one from the host counts */
	g->flags = FO_GPU_PAGEABLE;
	gpu(&m, FO_K_MEMORY, 112, 113)->kind = FO_GPU_MEMSET;
	gpu(&m, FO_K_GEMM, 150, 150); /* lasts no time: counts as an operation only, and does not lengthen the window */
	divide(&m, &r, true);
	assert_int_equal(r.devices, 1);
	assert_int_equal(r.device[0].from, FO_WINDOW_WHOLE);
	const struct fo_ledger *l = &r.device[0].total;
	adds_up(l);
	assert_int_equal(l->span_ns, 113);
	assert_int_equal(l->comp_ns, 60);
	assert_int_equal(l->class_ns[FO_K_ELEMENTWISE], 20);
	assert_int_equal(l->class_ns[FO_K_GEMM], 40);
	assert_int_equal(l->class_sum_ns[FO_K_ELEMENTWISE], 50);
	assert_int_equal(l->comm_ns, 80);
	assert_int_equal(l->exposed_comm_ns, 30);
	assert_int_equal(l->exposed_comm_unknown_ns, 30);
	assert_int_equal(l->mem_ns, 31);
	assert_int_equal(l->exposed_mem_ns, 21);
	assert_int_equal(l->copy_ns[FO_COPY_D2H], 5);
	assert_int_equal(l->copy_ns[FO_COPY_H2D], 15);
	assert_int_equal(l->copy_ns[FO_COPY_NONE], 1);
	assert_int_equal(l->exposed_pageable_ns, 15);
	assert_int_equal(l->idle_total_ns, 2);
	assert_int_equal(l->idle_ns[FO_IDLE_UNKNOWN], 2);
	assert_int_equal(l->resident_ns, 90);
	assert_int_equal(l->forward_ns, -1);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

/* A copy that runs as a kernel: a kernel as recorded, a copy by its name. */
static void test_recorded(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	gpu(&m, FO_K_MEMORY, 0, 10)->kind = FO_GPU_KERNEL;
	m.gpu[0].name = text(&m, "__amd_rocclr_fillBufferAligned");
	gpu(&m, FO_K_MEMORY, 10, 30)->kind = FO_GPU_KERNEL;
	m.gpu[1].name = text(&m, "__amd_rocclr_copyBuffer");
	divide(&m, &r, true);
	assert_int_equal(r.device[0].total.comp_ns, 30);
	assert_int_equal(r.device[0].total.class_ns[FO_K_COPY], 30);
	adds_up(&r.device[0].total);
	fo_ledger_rank_fini(&r);
	divide(&m, &r, false);
	assert_int_equal(r.device[0].total.comp_ns, 0);
	assert_int_equal(r.device[0].total.exposed_mem_ns, 30);
	assert_int_equal(r.device[0].total.copy_ns[FO_COPY_NONE], 10);
	assert_int_equal(r.device[0].total.copy_ns[FO_COPY_OTHER], 20);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

/* As TraceLens has it: only what is linked, fills as computation, ROCm's left out; repeated work also left out in a
 * second ledger. */
static void test_linked(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	const struct fo_ledger_options o = { .exclude_unlinked = true };
	make(&m);
	launched(&m, gpu(&m, FO_K_GEMM, 0, 10), 0, -10, -9);
	launched(&m, gpu(&m, FO_K_MEMORY, 20, 30), 0, -8, -7);
	m.gpu[1].kind = FO_GPU_MEMSET;
	launched(&m, gpu(&m, FO_K_MEMORY, 30, 50), 0, -6, -5);
	m.gpu[2].kind = FO_GPU_MEMSET;
	m.launch[2].name = text(&m, "hipMemsetAsync");
	launched(&m, gpu(&m, FO_K_MEMORY, 50, 60), 0, -4, -3);
	launched(&m, gpu(&m, FO_K_GEMM, 60, 90), 0, -2, -1);
	m.gpu[4].flags = FO_GPU_RECOMPUTED | FO_GPU_BACKWARD;
	launched(&m, gpu(&m, FO_K_COMMUNICATION, 70, 100), 0, -1, 0);
	gpu(&m, FO_K_GEMM, 90, 200);
	fo_ledger_rank(&r, &m.t, &o, NULL);
	const struct fo_device_ledger *d = &r.device[0];
	adds_up(&d->total);
	assert_int_equal(d->excluded_ops, 2);
	assert_int_equal(d->total.span_ns, 100);
	assert_int_equal(d->total.comp_ns, 10 + 10 + 30);
	assert_int_equal(d->total.exposed_mem_ns, 10);
	assert_int_equal(d->total.exposed_comm_ns, 10);
	assert_int_equal(d->total.recompute_ns, 30);
	adds_up(&d->once);
	assert_int_equal(d->once.comp_ns, 20);
	assert_int_equal(d->once.exposed_comm_ns, 30);
	assert_int_equal(d->once.idle_total_ns, 40);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

static void test_overlays(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	gpu(&m, FO_K_GEMM, 0, 10);
	gpu(&m, FO_K_GEMM, 10, 30)->flags = FO_GPU_BACKWARD;
	gpu(&m, FO_K_GEMM, 20, 40)->flags = FO_GPU_RECOMPUTED | FO_GPU_BACKWARD;
	gpu(&m, FO_K_COMMUNICATION, 40, 100); /* blocks: a kernel begins 10 us behind its end */
	gpu(&m, FO_K_GEMM, 10100, 10200);
	gpu(&m, FO_K_COMMUNICATION, 10200, 10300); /* does not: 1 ns more */
	gpu(&m, FO_K_GEMM, 20301, 20400);
	gpu(&m, FO_K_COMMUNICATION, 20400, 20500); /* goes on under the kernel that begins: does not */
	gpu(&m, FO_K_GEMM, 20450, 20600);
	divide(&m, &r, true);
	const struct fo_ledger *l = &r.device[0].total;
	adds_up(l);
	assert_int_equal(l->backward_ns, 30);
	assert_int_equal(l->recompute_ns, 20);
	assert_int_equal(l->forward_ns, l->comp_ns - 30);
	assert_int_equal(l->blocking_comm_ns, 60);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

/* ---- idle causes ---- */

static void test_idle(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	/* Thread 0 launches. Times in units of 1 us, so that the bounds of 10 and 50 us matter. */
	enum { US = 1000 };
	host(&m, FO_HOST_OP, "aten::mm", 0, 100 * US, 130 * US);
	host(&m, FO_HOST_SYNC, "cudaStreamSynchronize", 0, 140 * US, 160 * US);
	host(&m, FO_HOST_SYNC, "cudaMalloc", 0, 170 * US, 175 * US);
	host(&m, FO_HOST_OP, "aten::mm", 0, 300 * US, 310 * US);
	host(&m, FO_HOST_DATA, "enumerate(DataLoader)#Iter.__next__", 1, 180 * US, 200 * US);
	host(&m, FO_HOST_DATA, "next_batch", 1, 210 * US, 215 * US);
	launched(&m, gpu(&m, FO_K_GEMM, 0, 50 * US), 0, -5 * US, -4 * US);
	launched(&m, gpu(&m, FO_K_GEMM, 60 * US, 80 * US), 0, 10 * US, 11 * US); /* launched before the gap of 10 us */
	launched(&m, gpu(&m, FO_K_GEMM, 80 * US + 10001, 91 * US), 0, 20 * US, 21 * US); /* 1 ns more */
	launched(&m, gpu(&m, FO_K_GEMM, 320 * US, 400 * US), 0, 305 * US, 306 * US);     /* a gap of the host */
	launched(&m, gpu(&m, FO_K_GEMM, 500 * US, 510 * US), 0, 505 * US,
		 506 * US);                     /* "launched" behind its begin: no latency */
	gpu(&m, FO_K_GEMM, 520 * US, 530 * US); /* no launch record */
	launched(&m, gpu(&m, FO_K_GEMM, 540 * US, 550 * US), 0, 531 * US, 532 * US);
	m.launch[m.t.launch_count - 1].graph = true;
	divide(&m, &r, false);
	const struct fo_ledger *l = &r.device[0].total;
	adds_up(l);
	assert_int_equal(l->idle_ns[FO_IDLE_KERNEL_GAP], 10 * US);
	assert_int_equal(l->idle_ns[FO_IDLE_DEPENDENCY], 10001);
	assert_int_equal(l->idle_ns[FO_IDLE_UNKNOWN], 10 * US);
	assert_int_equal(l->idle_ns[FO_IDLE_LAUNCH_LATENCY],
			 (15 + 9) * US); /* the graph's launch is what it waited for */
	assert_int_equal(l->idle_ns[FO_IDLE_HOST_DATA], 25 * US);
	assert_int_equal(l->idle_ns[FO_IDLE_HOST_SYNC], 25 * US);
	/* 100 to 130 and, a short hole away, the waits until 175; 300 to the launch at 305; 530 to that at 531, after
	 * short holes. */
	assert_int_equal(l->idle_ns[FO_IDLE_HOST_LAUNCH_BOUND], (30 + 10 + 10 + 5 + 1) * US);
	/* 91 to 100, 175 to 300 but for the loader, 400 to 500. */
	assert_int_equal(l->idle_ns[FO_IDLE_HOST_OTHER], (9 + 5 + 10 + 85 + 100) * US);
	fo_ledger_rank_fini(&r);
	/* As the reference programs have it: neither an allocation nor a loader of another name. */
	divide(&m, &r, true);
	assert_int_equal(r.device[0].total.idle_ns[FO_IDLE_HOST_DATA], 20 * US);
	assert_int_equal(r.device[0].total.idle_ns[FO_IDLE_HOST_SYNC], 20 * US);
	adds_up(&r.device[0].total);
	fo_ledger_rank_fini(&r);
	/* Without operators nobody can say that a thread was busy. */
	m.t.defect.has_host_ops = false;
	divide(&m, &r, true);
	assert_int_equal(r.device[0].total.idle_ns[FO_IDLE_HOST_LAUNCH_BOUND], 0);
	assert_int_equal(r.device[0].median.launch_busy_ns, -1);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

/* ---- windows ---- */

static void expect_steps(const struct fo_device_ledger *d, int from, const int64_t (*v)[3], int64_t n)
{
	assert_int_equal(d->from, from);
	assert_int_equal(d->steps, n);
	for (int64_t i = 0; i < n; i++) {
		assert_int_equal(d->step[i].number, v[i][0]);
		assert_int_equal(d->step[i].l.begin_ns, v[i][1]);
		assert_int_equal(d->step[i].l.end_ns, v[i][2]);
		adds_up(&d->step[i].l);
	}
	adds_up(&d->total);
	assert_int_equal(d->total.span_ns, d->step[n - 1].l.end_ns - d->step[0].l.begin_ns);
}

static void test_launched_steps(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	step(&m, 7, 100, 200);
	step(&m, 8, 200, 300);
	step(&m, 9, 300, 400);
	gpu(&m, FO_K_GEMM, 20, 90);                              /* left over */
	launched(&m, gpu(&m, FO_K_GEMM, 100, 140), 0, 90, 95);   /* launched before the first step */
	launched(&m, gpu(&m, FO_K_GEMM, 150, 190), 0, 110, 111); /* step 7 begins here */
	launched(&m, gpu(&m, FO_K_GEMM, 200, 260), 1, 190, 191); /* another thread's launch belongs to it too */
	launched(&m, gpu(&m, FO_K_GEMM, 280, 350), 0, 210, 211); /* step 8 */
	launched(&m, gpu(&m, FO_K_GEMM, 500, 700), 0, 390, 391); /* step 9, of which nobody knows the end */
	divide(&m, &r, false);
	expect_steps(&r.device[0], FO_WINDOW_LAUNCHED_STEPS, (const int64_t[][3]){ { 7, 150, 280 }, { 8, 280, 500 } },
		     2);
	assert_int_equal(r.device[0].leftover_ops, 1);
	assert_int_equal(r.device[0].outside_ops, 2);
	assert_int_equal(r.device[0].dropped_steps, 1);
	assert_int_equal(r.device[0].step[0].host_begin_ns, 100);
	assert_int_equal(r.device[0].step[0].l.ops, 2);
	assert_int_equal(r.device[0].median.number, 7);
	fo_ledger_rank_fini(&r);
	/* Something launched behind the last step tells where it ends. */
	launched(&m, gpu(&m, FO_K_GEMM, 900, 950), 0, 405, 406);
	divide(&m, &r, false);
	expect_steps(&r.device[0], FO_WINDOW_LAUNCHED_STEPS,
		     (const int64_t[][3]){ { 7, 150, 280 }, { 8, 280, 500 }, { 9, 500, 900 } }, 3);
	assert_int_equal(r.device[0].dropped_steps, 0);
	fo_ledger_rank_fini(&r);
	/* --whole-trace takes all, leftovers too. */
	divide(&m, &r, true);
	expect_steps(&r.device[0], FO_WINDOW_WHOLE, (const int64_t[][3]){ { -1, 20, 950 } }, 1);
	fo_ledger_rank_fini(&r);
	/* One step that nothing follows: the whole trace, from the first operation that was launched in it. */
	m.t.step_count = 0;
	divide(&m, &r, false);
	expect_steps(&r.device[0], FO_WINDOW_WHOLE, (const int64_t[][3]){ { -1, 100, 950 } }, 1);
	assert_int_equal(r.device[0].leftover_ops, 1);
	fo_ledger_rank_fini(&r);
	const struct fo_ledger_options linked = { .exclude_unlinked = true };
	fo_ledger_rank(&r, &m.t, &linked, NULL);
	expect_steps(&r.device[0], FO_WINDOW_WHOLE, (const int64_t[][3]){ { -1, 100, 950 } }, 1);
	assert_int_equal(r.device[0].excluded_ops, 1);
	assert_int_equal(r.device[0].leftover_ops, 0);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

/* Two devices have their own windows. */
static void test_devices(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	step(&m, 0, 0, 100);
	step(&m, 1, 100, 200);
	for (int d = 0; d < 2; d++)
		for (int k = 0; k < 2; k++) {
			struct fo_gpu_op *g = gpu(&m, FO_K_GEMM, 100 * k + 10 + d, 100 * k + 60 + 2 * d);
			g->device = (int16_t)d;
			launched(&m, g, 0, 100 * k + 5, 100 * k + 6);
		}
	divide(&m, &r, false);
	assert_int_equal(r.devices, 2);
	expect_steps(&r.device[0], FO_WINDOW_LAUNCHED_STEPS, (const int64_t[][3]){ { 0, 10, 110 } }, 1);
	expect_steps(&r.device[1], FO_WINDOW_LAUNCHED_STEPS, (const int64_t[][3]){ { 0, 11, 111 } }, 1);
	assert_int_equal(r.device[1].total.idle_total_ns, 49);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

/* A step that launched nothing does not make the one before it longer, and is not the one that is spoken of. */
static void test_empty_steps(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	for (int k = 0; k < 7; k++)
		step(&m, k, 100 * k, 100 * k + 100);
	for (int k = 0; k < 7; k++)
		if (k != 2 && k != 3 && k != 5)
			launched(&m, gpu(&m, FO_K_GEMM, 100 * k + 10, k == 4 ? 610 : 100 * k + 80), 0, 100 * k + 5,
				 100 * k + 6);
	divide(&m, &r, false);
	/* 2 and 3 begin when the host does, for the device idles; at 5 it is busy with 4 until 6 begins. */
	expect_steps(&r.device[0], FO_WINDOW_LAUNCHED_STEPS,
		     (const int64_t[][3]){
			     { 0, 10, 110 }, { 1, 110, 200 }, { 2, 200, 300 }, { 3, 300, 410 }, { 4, 410, 610 } },
		     5);
	assert_int_equal(r.device[0].empty_steps, 2);
	assert_int_equal(r.device[0].unseen_steps, 1);
	assert_int_equal(r.device[0].step[2].host_begin_ns, 200);
	assert_int_equal(r.device[0].median.number, 0); /* 90, 100 and 200 */
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

/* An operation that fills windows wholly counts in each; so do many, whose sum ends at the greatest number. */
static void test_long_operations(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	for (int k = 0; k < 6; k++) {
		step(&m, k, 100 * k, 100 * k + 100);
		launched(&m, gpu(&m, FO_K_GEMM, 100 * k + 10, 100 * k + 20), 0, 100 * k + 5, 100 * k + 6);
		if (k == 1) {
			gpu(&m, FO_K_NORM, 150, 460);
			gpu(&m, FO_K_NORM, 160, 410);
			gpu(&m, FO_K_NORM, 170, 210);
			gpu(&m, FO_K_NORM, 180, 900);
		}
	}
	divide(&m, &r, false);
	const int64_t want[] = { 0, 60 + 50 + 40 + 30, 300, 300, 50 + 100 };
	assert_int_equal(r.device[0].steps, 5);
	for (int k = 0; k < 5; k++) {
		assert_int_equal(r.device[0].step[k].l.class_sum_ns[FO_K_NORM], want[k]);
		assert_int_equal(r.device[0].step[k].l.class_ops[FO_K_NORM], k == 1 ? 4 : 0);
	}
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

static void test_gpu_steps(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	const int64_t begin[][2] = {
		{ 3, 9 }, { 3, 10 }, { 4, 99 }, { 5, 200 }
	}; /* one twice, one a nanosecond early */
	for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
		m.step[m.t.step_count++] = (struct fo_trace_step){ .number = begin[i][0],
								   .begin_ns = begin[i][1],
								   .end_ns = begin[i][1] + 3,
								   .thread = -1,
								   .device = 0 };
	for (int k = 0; k < 3; k++)
		gpu(&m, FO_K_GEMM, k ? 100 * k : 10, 100 * k + 50);
	divide(&m, &r, false);
	expect_steps(&r.device[0], FO_WINDOW_GPU_STEPS, (const int64_t[][3]){ { 3, 10, 100 }, { 4, 100, 200 } }, 2);
	assert_int_equal(r.device[0].dropped_steps, 1);
	fo_ledger_rank_fini(&r);
	m.step[2].number = 2; /* numbers that go back are not believed */
	divide(&m, &r, false);
	assert_int_equal(r.device[0].from, FO_WINDOW_WHOLE);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

static void test_notes(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	char name[32];
	make(&m);
	for (int k = 0; k < 3; k++) {
		snprintf(name, sizeof name, "iteration %d", 40 + k);
		host(&m, FO_HOST_NOTE, name, 0, 1000 * k, 1000 * k + 900);
		host(&m, FO_HOST_NOTE, "Optimizer.step#Lion.step", 0, 1000 * k + 1,
		     1000 * k + 950); /* a part of a step, however long */
		launched(&m, gpu(&m, FO_K_GEMM, 1000 * k + 500, 1000 * k + 1100), 0, 1000 * k + 10, 1000 * k + 11);
	}
	divide(&m, &r, false);
	expect_steps(&r.device[0], FO_WINDOW_NVTX, (const int64_t[][3]){ { 40, 500, 1500 }, { 41, 1500, 2500 } }, 2);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

static void test_optimizer_steps(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	int64_t at = 0;
	gpu(&m, FO_K_OPTIMIZER, at, at + 5); /* of a step that began before the trace */
	for (int k = 0; k < 4; k++) {
		gpu(&m, FO_K_ELEMENTWISE, at + 10, at + 20); /* the first of a step */
		gpu(&m, FO_K_GEMM, at + 20, at + 80);
		gpu(&m, FO_K_REDUCE, at + 80, at + 85);
		gpu(&m, FO_K_OPTIMIZER, at + 90, at + 95);
		gpu(&m, FO_K_ELEMENTWISE, at + 95, at + 96); /* between two of its kernels */
		gpu(&m, FO_K_OPTIMIZER, at + 96, at + 100);
		at += 100;
	}
	divide(&m, &r, false);
	expect_steps(&r.device[0], FO_WINDOW_OPTIMIZER, (const int64_t[][3]){ { 0, 110, 210 }, { 1, 210, 310 } }, 2);
	fo_ledger_rank_fini(&r);
	unmake(&m);
	/* Updates inside the backward pass: between two of them lies now much, now little. */
	make(&m);
	at = 0;
	for (int k = 0; k < 12; k++) {
		for (int i = 0; i < (k % 3 ? 2 : 9); i++, at += 10)
			gpu(&m, FO_K_GEMM, at, at + 9);
		gpu(&m, FO_K_OPTIMIZER, at, at + 9);
		at += 10;
	}
	divide(&m, &r, false);
	assert_int_equal(r.device[0].from, FO_WINDOW_WHOLE);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

/* ---- the host's step ---- */

static void test_host_steps(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	step(&m, 1, 1000, 2000);
	step(&m, 2, 2000, 3000);
	step(&m, 3, 3000, 4000);
	host(&m, FO_HOST_DATA, "enumerate(DataLoader)#Iter.__next__", 0, 1050, 1200);
	host(&m, FO_HOST_OP, "aten::mm", 0, 1200, 1500);
	host(&m, FO_HOST_SYNC, "cudaDeviceSynchronize", 0, 1600, 1700);
	host(&m, FO_HOST_NOTE, "ProfilerStep#2", 0, 2000, 3000); /* the step itself is no operator */
	host(&m, FO_HOST_NOTE, "gloo:all_reduce", 0, 2500, 2600);
	gpu(&m, FO_K_GEMM, 900, 1020); /* before the first step's own operations: its time is not the step's */
	launched(&m, gpu(&m, FO_K_GEMM, 1450, 1550), 0, 1300, 1310);
	launched(&m, gpu(&m, FO_K_MEMORY, 2080, 2090), 0, 1710, 1715); /* step 1 lasts as long as this */
	launched(&m, gpu(&m, FO_K_GEMM, 2200, 2300), 0, 2100, 2110);
	for (int k = 0; k < 2; k++)
		launched(&m, gpu(&m, FO_K_COMMUNICATION, 2400 + 100 * k, 2420 + 100 * k), 0, 2350, 2360);
	launched(&m, gpu(&m, FO_K_GEMM, 3100, 3200), 0, 3050, 3060); /* one where the step before had three: cut off */
	divide(&m, &r, false);
	assert_int_equal(r.hosts, 2);
	static const struct fo_host_step want[] = {
		{ 1, 1020, 2090, { 100, 10, 0, 0, 10 + 100 + 5, 150, 300 - 10 - 50, 0 } },
		{ 2, 2090, 3000, { 100, 0, 0, 20 + 100, 10 + 10, 0, 0, 0 } },
	};
	for (int i = 0; i < 2; i++) {
		int64_t other = want[i].end_ns - want[i].begin_ns;
		assert_int_equal(r.host[i].number, want[i].number);
		assert_int_equal(r.host[i].begin_ns, want[i].begin_ns);
		assert_int_equal(r.host[i].end_ns, want[i].end_ns);
		for (int k = 0; k < FO_HOST_PART_OTHER; k++) {
			assert_int_equal(r.host[i].part_ns[k], want[i].part_ns[k]);
			other -= want[i].part_ns[k];
		}
		assert_int_equal(r.host[i].part_ns[FO_HOST_PART_OTHER], other);
	}
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

/* ---- random traces, nanosecond by nanosecond ---- */

static uint64_t seed;
static int64_t below(int64_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((seed >> 33) % (uint64_t)n);
}

static bool covers(int64_t begin, int64_t end, int64_t at) { return begin <= at && at < end; }

/* What the operations of a trace are at one moment, counted anew for each. */
struct moment {
	int class; /* the first computation; FO_K_COUNT: none */
	bool comm, mem, kernel, recomputed, backward, pageable;
	int copy; /* rank in the order of directions; 9: none */
};

static struct moment look(const struct made *m, int64_t at)
{
	static const int rank[FO_COPY_COUNT] = { [FO_COPY_H2D] = 0, [FO_COPY_D2H] = 1,   [FO_COPY_D2D] = 2,
						 [FO_COPY_P2P] = 3, [FO_COPY_OTHER] = 4, [FO_COPY_NONE] = 5 };
	struct moment now = { .class = FO_K_COUNT, .copy = 9 };
	for (int64_t i = 0; i < m->t.gpu_count; i++) {
		const struct fo_gpu_op *g = &m->gpu[i];
		if (!covers(g->begin_ns, g->end_ns, at))
			continue;
		now.kernel |= g->kind == FO_GPU_KERNEL;
		if (g->class == FO_K_MEMORY) {
			now.mem = true;
			now.pageable |= (g->flags & FO_GPU_PAGEABLE) != 0;
			now.copy = rank[g->copy] < now.copy ? rank[g->copy] : now.copy;
		} else if (g->class == FO_K_COMMUNICATION) {
			now.comm = true;
		} else {
			now.class = g->class < now.class ? g->class : now.class;
			now.recomputed |= (g->flags & FO_GPU_RECOMPUTED) != 0;
			now.backward |= (g->flags & FO_GPU_BACKWARD) != 0;
		}
	}
	return now;
}

static bool inside(const struct made *m, int kind, int32_t thread, int64_t at)
{
	for (int64_t i = 0; i < m->t.op_count; i++)
		if (m->op[i].kind == kind && (thread < 0 || m->op[i].thread == thread) &&
		    covers(m->op[i].begin_ns, m->op[i].end_ns, at))
			return true;
	return false;
}

/* Is the thread in an operator or call, or within 50 us between two? Times here are so short that any hole between two
 * is. */
static bool busy(const struct made *m, int32_t thread, int64_t at)
{
	int64_t first = INT64_MAX, last = INT64_MIN;
	for (int64_t i = 0; i < m->t.op_count; i++)
		if (m->op[i].thread == thread && m->op[i].kind != FO_HOST_DATA && m->op[i].end_ns > m->op[i].begin_ns) {
			first = m->op[i].begin_ns < first ? m->op[i].begin_ns : first;
			last = m->op[i].end_ns > last ? m->op[i].end_ns : last;
		}
	for (int64_t i = 0; i < m->t.launch_count; i++)
		if (m->launch[i].thread == thread && m->launch[i].end_ns > m->launch[i].begin_ns) {
			first = m->launch[i].begin_ns < first ? m->launch[i].begin_ns : first;
			last = m->launch[i].end_ns > last ? m->launch[i].end_ns : last;
		}
	return covers(first, last, at);
}

/* The cause of an idle nanosecond: the gap around it is sought anew. */
static int cause(const struct made *m, int64_t at, int64_t window_begin)
{
	int64_t g0 = at, g1 = INT64_MAX;
	const struct fo_gpu_op *first = NULL;
	while (g0 > window_begin) {
		struct moment before = look(m, g0 - 1);
		if (before.class < FO_K_COUNT || before.comm || before.mem)
			break;
		g0--;
	}
	for (int64_t i = 0; i < m->t.gpu_count; i++)
		if (m->gpu[i].begin_ns > at && m->gpu[i].end_ns > m->gpu[i].begin_ns && m->gpu[i].begin_ns < g1)
			g1 = m->gpu[i].begin_ns;
	for (int64_t i = m->t.gpu_count - 1; i >= 0; i--)
		if (m->gpu[i].begin_ns == g1 && (!first || m->gpu[i].end_ns <= first->end_ns))
			first = &m->gpu[i];
	if (first && first->launch < 0)
		return FO_IDLE_UNKNOWN;
	const struct fo_launch *l = first ? &m->launch[first->launch] : NULL;
	for (int64_t i = 0; !first && i < m->t.gpu_count;
	     i++) /* nothing more was launched: whoever launched last tells */
		if (m->gpu[i].launch >= 0 && (!l || m->launch[m->gpu[i].launch].begin_ns > l->begin_ns))
			l = &m->launch[m->gpu[i].launch];
	if (!l)
		return FO_IDLE_UNKNOWN;
	if (first && l->begin_ns <= g0)
		return g1 - g0 <= 10000 ? FO_IDLE_KERNEL_GAP : FO_IDLE_DEPENDENCY;
	if (first && at >= l->begin_ns)
		return FO_IDLE_LAUNCH_LATENCY;
	return inside(m, FO_HOST_DATA, -1, at)          ? FO_IDLE_HOST_DATA
	       : inside(m, FO_HOST_SYNC, l->thread, at) ? FO_IDLE_HOST_SYNC
	       : busy(m, l->thread, at)                 ? FO_IDLE_HOST_LAUNCH_BOUND
							: FO_IDLE_HOST_OTHER;
}

static int gpu_order(const void *a, const void *b)
{
	const struct fo_gpu_op *x = a, *y = b;
	return x->begin_ns != y->begin_ns ? (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns)
					  : (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

/* `sparse`: few operations, far apart. */
static void make_random(struct made *m, int64_t span, bool sparse)
{
	static const int classes[] = { FO_K_GEMM,  FO_K_ATTENTION_FORWARD, FO_K_NORM,          FO_K_ELEMENTWISE,
				       FO_K_OTHER, FO_K_COMMUNICATION,     FO_K_COMMUNICATION, FO_K_MEMORY,
				       FO_K_MEMORY };
	make(m);
	m->t.defect.has_host_ops = true;
	for (int64_t n = sparse ? 6 : 30; n > 0; n--) {
		int64_t begin = 100 + below(span), length = below(sparse ? 10 : 40) * (below(8) > 0);
		struct fo_gpu_op *g = gpu(m, classes[below(9)], begin, begin + length);
		g->flags = (uint8_t)below(8);
		g->flags &= (uint8_t)~FO_GPU_GRAPH;
		if (g->class == FO_K_MEMORY) {
			g->copy = (uint8_t)below(FO_COPY_COUNT);
			g->kind = g->copy == FO_COPY_NONE ? FO_GPU_MEMSET : FO_GPU_MEMCPY;
			g->flags = below(2) ? FO_GPU_PAGEABLE : 0;
		}
	}
	qsort(m->gpu, (size_t)m->t.gpu_count, sizeof *m->gpu, gpu_order);
	for (int64_t i = 0; i < m->t.gpu_count; i++)
		if (below(6)) {
			int64_t begin = m->gpu[i].begin_ns - below(60);
			launched(m, &m->gpu[i], (int32_t)below(2), begin, begin + below(6));
			m->launch[m->t.launch_count - 1].graph = below(12) == 0;
		}
	for (int n = 0; n < 12; n++) {
		static const int kinds[] = { FO_HOST_OP, FO_HOST_OP, FO_HOST_SYNC, FO_HOST_CALL, FO_HOST_DATA };
		int64_t begin = 100 + below(span);
		host(m, kinds[below(5)], "DataLoader, cudaStreamSynchronize", (int32_t)below(2), begin,
		     begin + below(30));
	}
	if (below(2))
		for (int k = 0; k < 4; k++)
			step(m, k, 60 + k * span / 4, 60 + (k + 1) * span / 4);
}

static void check_random(struct made *m, bool whole)
{
	static const int rank_copy[] = {
		FO_COPY_H2D, FO_COPY_D2H, FO_COPY_D2D, FO_COPY_P2P, FO_COPY_OTHER, FO_COPY_NONE
	};
	struct fo_rank_ledger r;
	divide(m, &r, whole);
	assert_int_equal(r.devices, 1);
	const struct fo_device_ledger *d = &r.device[0];
	for (int64_t i = 0; i < d->steps; i++) {
		const struct fo_ledger *l = &d->step[i].l;
		struct fo_ledger want = { 0 };
		for (int64_t at = l->begin_ns; at < l->end_ns; at++) {
			struct moment now = look(m, at);
			bool compute = now.class < FO_K_COUNT;
			want.span_ns++;
			want.comm_ns += now.comm;
			want.mem_ns += now.mem;
			want.resident_ns += now.kernel;
			want.busy_ns += compute || now.comm || now.mem;
			if (compute) {
				want.class_ns[now.class]++;
				want.recompute_ns += now.recomputed;
				want.backward_ns += now.backward;
			} else if (now.comm) {
				want.exposed_comm_ns++;
			} else if (now.mem) {
				want.copy_ns[rank_copy[now.copy]]++;
				want.exposed_pageable_ns += now.pageable;
			} else {
				want.idle_ns[cause(m, at, d->step[0].l.begin_ns)]++;
			}
		}
		adds_up(l);
		assert_int_equal(l->span_ns, want.span_ns);
		assert_int_equal(l->busy_ns, want.busy_ns);
		assert_int_equal(l->comm_ns, want.comm_ns);
		assert_int_equal(l->mem_ns, want.mem_ns);
		assert_int_equal(l->resident_ns, want.resident_ns);
		assert_int_equal(l->exposed_comm_ns, want.exposed_comm_ns);
		assert_int_equal(l->exposed_pageable_ns, want.exposed_pageable_ns);
		assert_int_equal(l->recompute_ns, want.recompute_ns);
		assert_int_equal(l->backward_ns, want.backward_ns);
		assert_memory_equal(l->class_ns, want.class_ns, sizeof want.class_ns);
		assert_memory_equal(l->copy_ns, want.copy_ns, sizeof want.copy_ns);
		assert_memory_equal(l->idle_ns, want.idle_ns, sizeof want.idle_ns);
		if (i)
			assert_int_equal(l->begin_ns, d->step[i - 1].l.end_ns);
	}
	if (d->steps)
		adds_up(&d->total);
	fo_ledger_rank_fini(&r);
}

static void test_random(void **state)
{
	(void)state;
	static struct made m;
	for (int n = 0; n < 600; n++) {
		seed = (uint64_t)n * 7919 + 1;
		make_random(&m, n % 2 ? 300 : 600, n % 2);
		check_random(&m, n % 3 == 0);
		unmake(&m);
	}
}

/* Ranks divided beside each other are what each is by itself. */
static void test_ranks(void **state)
{
	(void)state;
	enum { RANKS = 40 };
	static struct made m[RANKS];
	struct fo_trace *t[RANKS];
	struct fo_rank_ledger all[RANKS], one;
	const struct fo_ledger_options o = { .whole_trace = false };
	for (int i = 0; i < RANKS; i++) {
		seed = (uint64_t)i * 104729 + 3;
		make_random(&m[i], 300 + i, i % 2);
		m[i].t.rank = i;
		t[i] = &m[i].t;
	}
	fo_ledger_ranks(all, t, RANKS, &o, NULL);
	for (int i = 0; i < RANKS; i++) {
		fo_ledger_rank(&one, t[i], &o, NULL);
		assert_int_equal(all[i].rank, i);
		assert_ptr_equal(all[i].trace, t[i]);
		assert_int_equal(all[i].devices, one.devices);
		assert_int_equal(all[i].device[0].steps, one.device[0].steps);
		assert_memory_equal(&all[i].device[0].total, &one.device[0].total, sizeof one.device[0].total);
		for (int64_t k = 0; k < one.device[0].steps; k++)
			assert_memory_equal(&all[i].device[0].step[k].l, &one.device[0].step[k].l,
					    sizeof one.device[0].step[k].l);
		fo_ledger_rank_fini(&one);
		fo_ledger_rank_fini(&all[i]);
		unmake(&m[i]);
	}
	fo_ledger_ranks(all, t, 0, &o, NULL);
}

/* Nothing to divide is no error. */
static void test_empty(void **state)
{
	(void)state;
	static struct made m;
	struct fo_rank_ledger r;
	make(&m);
	divide(&m, &r, false);
	assert_int_equal(r.devices, 0);
	assert_int_equal(r.hosts, 0);
	fo_ledger_rank_fini(&r);
	gpu(&m, FO_K_GEMM, 5, 5);
	divide(&m, &r, false);
	assert_int_equal(r.devices, 1);
	assert_int_equal(r.device[0].steps, 0);
	assert_int_equal(r.device[0].total.span_ns, 0);
	fo_ledger_rank_fini(&r);
	unmake(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sets),
		cmocka_unit_test(test_priority),
		cmocka_unit_test(test_recorded),
		cmocka_unit_test(test_overlays),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_launched_steps),
		cmocka_unit_test(test_devices),
		cmocka_unit_test(test_empty_steps),
		cmocka_unit_test(test_long_operations),
		cmocka_unit_test(test_gpu_steps),
		cmocka_unit_test(test_notes),
		cmocka_unit_test(test_optimizer_steps),
		cmocka_unit_test(test_host_steps),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_linked),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_ranks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
