/* Streams, events, graphs and memory of a CUDA device: what the program builds on (src/kernel/cuda/stream.c), on a real
 * device or the software one. Where it is the software one, also that it notices what it is there for: a forgotten
 * event, a copy whose source is used again too early. */
#include "support/cuda.h"
#include "support/must.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4096 /* numbers in a buffer */ };

static struct fo_cuda *cuda;
static const struct fo_test_soft *soft;

struct rig {
	fo_cuda_stream s[3];
	fo_cuda_event e[4];
	float *a, *b, *c, *host, *out;
};
static void begin(struct rig *r)
{
	for (int i = 0; i < 3; i++)
		must(fo_cuda_stream_new(cuda, &r->s[i]));
	for (int i = 0; i < 4; i++)
		must(fo_cuda_event_new(cuda, i >= 2, &r->e[i]));
	float **const device[] = { &r->a, &r->b, &r->c };
	for (int i = 0; i < 3; i++)
		must(fo_cuda_alloc(cuda, N * sizeof(float), (void **)device[i]));
	must(fo_cuda_host_alloc(cuda, N * sizeof(float), (void **)&r->host));
	must(fo_cuda_host_alloc(cuda, N * sizeof(float), (void **)&r->out));
}
static void end(struct rig *r)
{
	for (int i = 0; i < 3; i++)
		fo_cuda_stream_free(cuda, r->s[i]);
	for (int i = 0; i < 4; i++)
		fo_cuda_event_free(cuda, r->e[i]);
	fo_cuda_free(cuda, r->a);
	fo_cuda_free(cuda, r->b);
	fo_cuda_free(cuda, r->c);
	fo_cuda_host_free(cuda, r->host);
	fo_cuda_host_free(cuda, r->out);
}

static void fill(float *p, float x)
{
	for (int i = 0; i < N; i++)
		p[i] = x + (float)i;
}

/* c = a + b by the program's own kernel. */
static void add(fo_cuda_stream s, float *a, float *b, float *c)
{
	struct fo_cuda_queue q = { .cuda = cuda, .stream = s };
	struct fo_call call = { .kind = FO_OP_add, .n = 3, .first = 4 };
	float *const p[] = { a, b, c };
	for (int i = 0; i < 3; i++)
		call.arg[i] = (struct fo_tensor){ .data = p[i], .rows = N / 64, .cols = 64, .ld = 64, .dtype = FO_F32 };
	must(fo_cuda_kernel_of(FO_OP_add)->run(&q, &call, 0));
}

/* It failed, for the reason that the driver gives in these words. */
static void refused(fo_status st, const char *words)
{
	if (st == FO_OK || !strstr(fo_err_text(), words))
		fail_msg("status %d, '%s' does not say '%s'", (int)st, st == FO_OK ? "" : fo_err_text(), words);
}

static bool all_are(const float *p, float x, float slope)
{
	for (int i = 0; i < N; i++)
		if (p[i] != x + slope * (float)i)
			return false;
	return true;
}

/* ---- one stream ---- */

static void test_stream(void **state)
{
	struct rig r;
	(void)state;
	begin(&r);
	fill(r.host, 1);
	must(fo_cuda_copy_in(cuda, r.a, r.host, N * sizeof(float), r.s[0]));
	must(fo_cuda_copy(cuda, r.b, r.a, N * sizeof(float), r.s[0]));
	must(fo_cuda_fill(cuda, r.c, 0, N * sizeof(float), r.s[0]));
	add(r.s[0], r.a, r.b, r.c);
	add(r.s[0], r.c, r.b, r.c);
	must(fo_cuda_copy_out(cuda, r.out, r.c, N * sizeof(float), r.s[0]));
	must(fo_cuda_stream_wait(cuda, r.s[0]));
	assert_true(all_are(r.out, 3, 3));
	end(&r);
}

/* ---- several ---- */

/* s0 copies in, s1 adds, s0 copies out; with the events left out that are not in `events`. */
static bool two_streams(struct rig *r, int events, float x)
{
	fill(r->host, x);
	must(fo_cuda_fill(cuda, r->c, 0, N * sizeof(float), r->s[0]));
	must(fo_cuda_copy_in(cuda, r->a, r->host, N * sizeof(float), r->s[0]));
	must(fo_cuda_event_record(cuda, r->e[0], r->s[0], false));
	if (events & 1)
		must(fo_cuda_event_after(cuda, r->s[1], r->e[0]));
	add(r->s[1], r->a, r->a, r->c);
	must(fo_cuda_event_record(cuda, r->e[1], r->s[1], false));
	if (events & 2)
		must(fo_cuda_event_after(cuda, r->s[0], r->e[1]));
	must(fo_cuda_copy_out(cuda, r->out, r->c, N * sizeof(float), r->s[0]));
	for (int i = 0; i < 2; i++)
		must(fo_cuda_stream_wait(cuda, r->s[i]));
	return all_are(r->out, 2 * x, 2);
}

static void test_events(void **state)
{
	struct rig r;
	(void)state;
	begin(&r);
	for (int i = 0; i < 50; i++)
		assert_true(two_streams(&r, 3, (float)i));
	/* The software device runs what nothing orders in any order: an event that is forgotten shows. */
	for (int events = 0; soft && events < 3; events++) {
		int wrong = 0;
		for (int i = 0; i < 50; i++)
			wrong += !two_streams(&r, events, (float)(100 * events + i));
		if (!wrong)
			fail_msg("without event %d all is well", 3 - events);
	}
	end(&r);
}

/* Host memory that is filled again before the copy was waited for. */
static void test_early_reuse(void **state)
{
	struct rig r;
	int wrong = 0;
	(void)state;
	if (!soft)
		skip();
	begin(&r);
	for (int i = 0; i < 50; i++) {
		fill(r.host, (float)i);
		must(fo_cuda_copy_in(cuda, r.a, r.host, N * sizeof(float), r.s[0]));
		fill(r.host, -1);
		must(fo_cuda_copy_out(cuda, r.out, r.a, N * sizeof(float), r.s[0]));
		must(fo_cuda_stream_wait(cuda, r.s[0]));
		wrong += !all_are(r.out, (float)i, 1);
	}
	assert_true(wrong > 0 && wrong < 50); /* a device is neither always late nor always early */
	end(&r);
}

/* Waiting for an event that was never recorded is no wait; an event stands for its last record. */
static void test_event_records(void **state)
{
	struct rig r;
	float ms = -1;
	(void)state;
	begin(&r);
	must(fo_cuda_event_after(cuda, r.s[0], r.e[0]));
	must(fo_cuda_event_record(cuda, r.e[2], r.s[0], false));
	must(fo_cuda_fill(cuda, r.a, 0, N * sizeof(float), r.s[0]));
	add(r.s[0], r.a, r.a, r.b);
	must(fo_cuda_event_record(cuda, r.e[3], r.s[0], true)); /* no capture: a record like any */
	must(fo_cuda_stream_wait(cuda, r.s[0]));
	must(fo_cuda_event_ms(cuda, r.e[2], r.e[3], &ms));
	assert_true(ms >= 0 && ms < 60000);
	refused(fo_cuda_event_ms(cuda, r.e[0], r.e[3], &ms), "invalid resource handle"); /* it has no time */
	for (int i = 0; i < 20; i++) { /* e[0] of the second record, not of the first */
		fill(r.host, (float)i);
		must(fo_cuda_event_record(cuda, r.e[0], r.s[1], false));
		must(fo_cuda_copy_in(cuda, r.a, r.host, N * sizeof(float), r.s[1]));
		must(fo_cuda_event_record(cuda, r.e[0], r.s[1], false));
		must(fo_cuda_event_after(cuda, r.s[2], r.e[0]));
		must(fo_cuda_copy_out(cuda, r.out, r.a, N * sizeof(float), r.s[2]));
		must(fo_cuda_stream_wait(cuda, r.s[2]));
		assert_true(all_are(r.out, (float)i, 1));
	}
	end(&r);
}

/* ---- graphs ---- */

/* In: a; s1: b = a + a, s2: c = a + a; joined: c = b + c; out: c = 4 a. `joins` leaves events out. */
static void put_diamond(struct rig *r, int joins)
{
	must(fo_cuda_copy_in(cuda, r->a, r->host, N * sizeof(float), r->s[0]));
	must(fo_cuda_event_record(cuda, r->e[0], r->s[0], false));
	must(fo_cuda_event_after(cuda, r->s[1], r->e[0]));
	must(fo_cuda_event_after(cuda, r->s[2], r->e[0]));
	must(fo_cuda_event_record(cuda, r->e[2], r->s[1], true));
	add(r->s[1], r->a, r->a, r->b);
	must(fo_cuda_event_record(cuda, r->e[3], r->s[1], true));
	must(fo_cuda_event_record(cuda, r->e[0], r->s[1], false));
	add(r->s[2], r->a, r->a, r->c);
	must(fo_cuda_event_record(cuda, r->e[1], r->s[2], false));
	if (joins & 1)
		must(fo_cuda_event_after(cuda, r->s[0], r->e[0]));
	if (joins & 2)
		must(fo_cuda_event_after(cuda, r->s[0], r->e[1]));
	add(r->s[0], r->b, r->c, r->c);
	must(fo_cuda_copy_out(cuda, r->out, r->c, N * sizeof(float), r->s[0]));
}

static bool launch(struct rig *r, fo_cuda_graph g, float x)
{
	fill(r->host, x);
	must(fo_cuda_fill(cuda, r->b, 0, N * sizeof(float), r->s[0]));
	must(fo_cuda_fill(cuda, r->c, 0, N * sizeof(float), r->s[0]));
	must(fo_cuda_graph_launch(cuda, g, r->s[0]));
	must(fo_cuda_stream_wait(cuda, r->s[0]));
	return all_are(r->out, 4 * x, 4);
}

static void test_graph(void **state)
{
	struct rig r;
	fo_cuda_graph g;
	float ms = -1;
	(void)state;
	begin(&r);
	fill(r.out, -7);
	must(fo_cuda_capture_begin(cuda, r.s[0]));
	put_diamond(&r, 3);
	assert_true(all_are(r.out, -7, 1)); /* nothing has run */
	must(fo_cuda_capture_end(cuda, r.s[0], &g));
	for (int i = 0; i < 30; i++) {
		assert_true(launch(&r, g, (float)i));
		must(fo_cuda_event_ms(cuda, r.e[2], r.e[3],
				      &ms)); /* events that are nodes have the time of this launch */
		assert_true(ms >= 0 && ms < 60000);
	}
	/* Launches of one graph follow each other, in whatever streams. */
	fill(r.host, 5);
	for (int i = 0; i < 10; i++)
		must(fo_cuda_graph_launch(cuda, g, r.s[i % 3]));
	fo_cuda_graph_free(cuda, g); /* what is under way goes on */
	for (int i = 0; i < 3; i++)
		must(fo_cuda_stream_wait(cuda, r.s[i]));
	assert_true(all_are(r.out, 20, 4));
	/* The streams are as before the capture. */
	assert_true(two_streams(&r, 3, 9));
	end(&r);
}

/* What is captured and not waited for at the end is an error; an order that is not captured is none. */
static void test_graph_joins(void **state)
{
	struct rig r;
	fo_cuda_graph g = NULL;
	int wrong = 0;
	(void)state;
	begin(&r);
	must(fo_cuda_capture_begin(cuda, r.s[0]));
	put_diamond(&r, 1);
	refused(fo_cuda_capture_end(cuda, r.s[0], &g), "unjoined work");
	for (int left_out = 1; soft && left_out < 3; left_out++) {
		must(fo_cuda_capture_begin(cuda, r.s[0]));
		put_diamond(&r, 3 - left_out);
		/* Too late: after the sum. */
		must(fo_cuda_event_after(cuda, r.s[0], r.e[left_out - 1]));
		add(r.s[0], r.a, r.a, r.a);
		must(fo_cuda_capture_end(cuda, r.s[0], &g));
		wrong = 0;
		for (int i = 0; i < 50; i++)
			wrong += !launch(&r, g, (float)i);
		fo_cuda_graph_free(cuda, g);
		if (!wrong)
			fail_msg("without event %d all is well", left_out);
	}
	end(&r);
}

/* What a thread that captures may not do: it is told so, and the capture is lost, but not the stream. */
static void test_capture_refuses(void **state)
{
	struct rig r;
	fo_cuda_graph g = NULL;
	void *p;
	(void)state;
	begin(&r);
	must(fo_cuda_capture_begin(cuda, r.s[0]));
	add(r.s[0], r.a, r.a, r.b);
	refused(fo_cuda_stream_wait(cuda, r.s[0]), "not permitted when stream is capturing");
	refused(fo_cuda_capture_end(cuda, r.s[0], &g), "previous error during capture");
	must(fo_cuda_capture_begin(cuda, r.s[0]));
	refused(fo_cuda_alloc(cuda, 1 << 20, &p), "not permitted when stream is capturing");
	refused(fo_cuda_capture_end(cuda, r.s[0], &g), "previous error during capture");
	/* An event from outside. */
	must(fo_cuda_event_record(cuda, r.e[0], r.s[1], false));
	must(fo_cuda_capture_begin(cuda, r.s[0]));
	refused(fo_cuda_event_after(cuda, r.s[0], r.e[0]), "uncaptured work");
	refused(fo_cuda_capture_end(cuda, r.s[0], &g), "previous error during capture");
	/* Another stream, meanwhile, runs. */
	fill(r.host, 2);
	must(fo_cuda_capture_begin(cuda, r.s[0]));
	must(fo_cuda_copy_in(cuda, r.a, r.host, N * sizeof(float), r.s[1]));
	must(fo_cuda_copy_out(cuda, r.out, r.a, N * sizeof(float), r.s[1]));
	must(fo_cuda_stream_wait(cuda, r.s[1]));
	assert_true(all_are(r.out, 2, 1));
	add(r.s[0], r.a, r.a, r.b);
	must(fo_cuda_capture_end(cuda, r.s[0], &g));
	fo_cuda_graph_free(cuda, g);
	assert_true(two_streams(&r, 3, 9));
	end(&r);
}

/* ---- memory ---- */

static void test_memory(void **state)
{
	int64_t have, all, less, again;
	void *p, *q;
	(void)state;
	must(fo_cuda_memory(cuda, &have, &all));
	assert_true(have > 0 && have <= all && all == fo_cuda_info(cuda)->memory_bytes);
	must(fo_cuda_alloc(cuda, 64 << 20, &p));
	must(fo_cuda_alloc(cuda, 0, &q));
	assert_true((uintptr_t)p % 256 == 0 && (uintptr_t)q % 256 == 0 && p != q);
	must(fo_cuda_memory(cuda, &less, &all));
	assert_true(have - less >= 64 << 20);
	fo_cuda_free(cuda, p);
	fo_cuda_free(cuda, q);
	fo_cuda_free(cuda, NULL);
	must(fo_cuda_memory(cuda, &again, &all));
	assert_true(!soft || again == have);
	assert_int_equal(fo_cuda_alloc(cuda, (size_t)all * 2, &p), FO_ENOMEM);
	assert_non_null(strstr(fo_err_text(), "the device cannot hold"));
}

/* Addresses that a device would stumble over, or worse would not. */
static void test_addresses(void **state)
{
	struct rig r;
	float *gone, *ordinary = malloc(N * sizeof *ordinary);
	(void)state;
	if (!soft) {
		free(ordinary);
		skip();
	}
	begin(&r);
	must(fo_cuda_alloc(cuda, N * sizeof(float), (void **)&gone));
	fo_cuda_free(cuda, gone);
	struct fo_cuda_queue q = { .cuda = cuda, .stream = r.s[0] };
	struct fo_call call = { .kind = FO_OP_add, .n = 3, .first = 4 };
	float *const wrong[] = { gone, r.host };
	for (int k = 0; k < 2; k++) {
		float *const p[] = { r.a, wrong[k], r.c };
		for (int i = 0; i < 3; i++)
			call.arg[i] = (struct fo_tensor){
				.data = p[i], .rows = N / 64, .cols = 64, .ld = 64, .dtype = FO_F32
			};
		refused(fo_cuda_kernel_of(FO_OP_add)->run(&q, &call, 0), "illegal memory access");
	}
	refused(fo_cuda_copy_in(cuda, r.a, ordinary, N * sizeof(float), r.s[0]),
		"invalid argument"); /* not page-locked */
	refused(fo_cuda_copy_in(cuda, r.a + 1, r.host, N * sizeof(float), r.s[0]),
		"invalid argument"); /* beyond its end */
	refused(fo_cuda_fill(cuda, gone, 0, 1, r.s[0]), "invalid argument");
	refused(fo_cuda_copy(cuda, r.a, ordinary, 4, r.s[0]), "invalid argument");
	must(fo_cuda_stream_wait(cuda, r.s[0]));
	end(&r);
	free(ordinary);
}

/* ---- threads ---- */

struct worker {
	pthread_t thread;
	float x;
	bool attached, well;
};
static void *work(void *arg)
{
	struct worker *w = arg;
	struct rig r;
	void *p = NULL;
	/* The device belongs to whom it was opened by. */
	w->attached = fo_cuda_alloc(cuda, 64, &p) == FO_OK;
	if (fo_cuda_attach(cuda) != FO_OK)
		return NULL;
	begin(&r);
	w->well = true;
	for (int i = 0; i < 20; i++)
		w->well &= two_streams(&r, 3, w->x + (float)i);
	end(&r);
	return NULL;
}
static void test_threads(void **state)
{
	struct worker w[3] = { { .x = 1 }, { .x = 1000 }, { .x = 2000 } };
	fo_cuda_graph g;
	struct rig r;
	(void)state;
	begin(&r);
	must(fo_cuda_capture_begin(cuda, r.s[0])); /* captures are a thread's own: others may allocate */
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	put_diamond(&r, 3);
	for (int i = 0; i < 3; i++)
		pthread_join(w[i].thread, NULL);
	must(fo_cuda_capture_end(cuda, r.s[0], &g));
	for (int i = 0; i < 3; i++)
		assert_true(w[i].well && !w[i].attached);
	assert_true(launch(&r, g, 3));
	fo_cuda_graph_free(cuda, g);
	end(&r);
}

/* What is counted is what was done. */
static void test_counters(void **state)
{
	struct fo_soft_counters before, after;
	struct rig r;
	fo_cuda_graph g;
	(void)state;
	if (!soft)
		skip();
	begin(&r);
	must(fo_cuda_capture_begin(cuda, r.s[0]));
	put_diamond(&r, 3);
	must(fo_cuda_capture_end(cuda, r.s[0], &g));
	soft->counters(&before, true);
	assert_true(launch(&r, g, 1));
	soft->counters(&after, false);
	assert_true(after.graph_launches == 1 && after.graph_nodes == 7 && after.launches == 3 && after.fills == 2 &&
		    after.synchronisations == 1);
	assert_true(after.live_bytes == before.live_bytes && after.allocations == 0);
	fo_cuda_graph_free(cuda, g);
	end(&r);
}

/* Whatever the order: at once, as late as can be, and many random ones. */
static void test_orders(void **state)
{
	struct rig r;
	fo_cuda_graph g;
	(void)state;
	if (!soft)
		skip();
	begin(&r);
	must(fo_cuda_capture_begin(cuda, r.s[0]));
	put_diamond(&r, 3);
	must(fo_cuda_capture_end(cuda, r.s[0], &g));
	for (uint64_t seed = 1; seed < 20; seed++) {
		soft->seed(seed);
		soft->order((int)(seed % 3));
		assert_true(launch(&r, g, (float)seed));
		assert_true(two_streams(&r, 3, (float)seed));
	}
	soft->order(FO_SOFT_RANDOM);
	fo_cuda_graph_free(cuda, g);
	end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream),          cmocka_unit_test(test_events),
		cmocka_unit_test(test_early_reuse),     cmocka_unit_test(test_event_records),
		cmocka_unit_test(test_graph),           cmocka_unit_test(test_graph_joins),
		cmocka_unit_test(test_capture_refuses), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_addresses),       cmocka_unit_test(test_threads),
		cmocka_unit_test(test_counters),        cmocka_unit_test(test_orders),
	};
	int status;
	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	soft = fo_test_soft(cuda);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_cuda_close(cuda);
	return failed;
}
