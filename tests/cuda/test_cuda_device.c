/* Streams, events, graphs and memory of a CUDA device: what the program builds on (src/kernel/cuda/device.c), on a real device or the
 * software one. Where it is the software one, also that it notices what it is there for: a forgotten event, a copy whose source is used
 * again too early. */
#include "support/cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 4096 /* numbers in a buffer */ };

static struct fo_cuda *cuda;
static const struct fo_test_soft *soft;

static void ok(fo_status st)
{
	if (st != FO_OK)
		fail_msg("%s; %s", fo_err_text(), fo_err_hint());
}

struct rig {
	fo_cuda_stream s[3];
	fo_cuda_event e[4];
	float *a, *b, *c, *host, *out;
};
static void begin(struct rig *r)
{
	for (int i = 0; i < 3; i++)
		ok(fo_cuda_stream_new(cuda, &r->s[i]));
	for (int i = 0; i < 4; i++)
		ok(fo_cuda_event_new(cuda, i >= 2, &r->e[i]));
	float **const device[] = { &r->a, &r->b, &r->c };
	for (int i = 0; i < 3; i++)
		ok(fo_cuda_alloc(cuda, N * sizeof(float), (void **)device[i]));
	ok(fo_cuda_host_alloc(cuda, N * sizeof(float), (void **)&r->host));
	ok(fo_cuda_host_alloc(cuda, N * sizeof(float), (void **)&r->out));
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
	ok(fo_cuda_kernel_of(FO_OP_add)->run(&q, &call, 0));
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
	ok(fo_cuda_copy_in(cuda, r.a, r.host, N * sizeof(float), r.s[0]));
	ok(fo_cuda_copy(cuda, r.b, r.a, N * sizeof(float), r.s[0]));
	ok(fo_cuda_fill(cuda, r.c, 0, N * sizeof(float), r.s[0]));
	add(r.s[0], r.a, r.b, r.c);
	add(r.s[0], r.c, r.b, r.c);
	ok(fo_cuda_copy_out(cuda, r.out, r.c, N * sizeof(float), r.s[0]));
	ok(fo_cuda_stream_wait(cuda, r.s[0]));
	assert_true(all_are(r.out, 3, 3));
	end(&r);
}

/* ---- several ---- */

/* s0 copies in, s1 adds, s0 copies out; with the events left out that are not in `events`. */
static bool two_streams(struct rig *r, int events, float x)
{
	fill(r->host, x);
	ok(fo_cuda_fill(cuda, r->c, 0, N * sizeof(float), r->s[0]));
	ok(fo_cuda_copy_in(cuda, r->a, r->host, N * sizeof(float), r->s[0]));
	ok(fo_cuda_event_record(cuda, r->e[0], r->s[0], false));
	if (events & 1)
		ok(fo_cuda_event_after(cuda, r->s[1], r->e[0]));
	add(r->s[1], r->a, r->a, r->c);
	ok(fo_cuda_event_record(cuda, r->e[1], r->s[1], false));
	if (events & 2)
		ok(fo_cuda_event_after(cuda, r->s[0], r->e[1]));
	ok(fo_cuda_copy_out(cuda, r->out, r->c, N * sizeof(float), r->s[0]));
	for (int i = 0; i < 2; i++)
		ok(fo_cuda_stream_wait(cuda, r->s[i]));
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
		ok(fo_cuda_copy_in(cuda, r.a, r.host, N * sizeof(float), r.s[0]));
		fill(r.host, -1);
		ok(fo_cuda_copy_out(cuda, r.out, r.a, N * sizeof(float), r.s[0]));
		ok(fo_cuda_stream_wait(cuda, r.s[0]));
		wrong += !all_are(r.out, (float)i, 1);
	}
	assert_true(wrong > 0 && wrong < 50); /* a device is neither always late nor always early */
	end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_early_reuse),
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
