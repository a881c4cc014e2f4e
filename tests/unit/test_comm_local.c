/* Ranks as threads (src/comm/local.c): every kind of call against a serial computation, many calls under way at once,
 * with delays at random; bytes received against the formula; meshes by splits; links with a rate; ranks that disagree
 * and ranks that end. */
#include "comm/local.h"
#include "comm/measure.h"
#include "cost/links.h"

#include "base/clock.h"
#include "base/rng.h"
#include "base/thread.h"
#include "kernel/kernel.h"
#include "support/calls.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 8, AT_ONCE = 6, ROUNDS = 12 };

/* Also in threads, where cmocka cannot jump. */
static void need(bool good, const char *what, int line)
{
	if (good)
		return;
	fprintf(stderr, "line %d: not so: %s (%s)\n", line, what, fo_err_text());
	abort();
}
#define NEED(x) need(x, #x, __LINE__)

/* Runs fn for each rank of a new group, each in a thread. */
struct rank {
	struct fo_comm *c;
	uint64_t seed;
	void *with;
	void (*fn)(struct rank *);
	pthread_t thread;
};
static void *run_rank(void *arg)
{
	struct rank *r = arg;
	r->fn(r);
	fo_comm_close(r->c);
	return NULL;
}
static void with_ranks(int ranks, const struct fo_comm_local *options, uint64_t seed, void (*fn)(struct rank *),
		       void *with)
{
	struct fo_comm *c[RANKS_MOST];
	struct rank rank[RANKS_MOST];
	NEED(fo_comm_local_open(ranks, options, c) == FO_OK);
	for (int r = 0; r < ranks; r++) {
		rank[r] = (struct rank){ .c = c[r], .seed = seed, .with = with, .fn = fn };
		NEED(fo_thread_start(&rank[r].thread, run_rank, &rank[r], "a rank") == FO_OK);
	}
	for (int r = 0; r < ranks; r++)
		pthread_join(rank[r].thread, NULL);
}

/* ---- one call, and what it must give ---- */

static double input(uint64_t salt, int rank, int64_t i) { return drawn_input(salt, rank, i, false); }

static double get(const char *at, int dtype, int64_t i)
{
	switch (dtype) {
	case FO_F64: return ((const double *)(const void *)at)[i];
	case FO_F32: return ((const float *)(const void *)at)[i];
	case FO_BF16: return fo_bf16_to_f32(((const uint16_t *)(const void *)at)[i]);
	case FO_I32: return ((const int32_t *)(const void *)at)[i] / 8.0;
	default: return at[i] / 8.0;
	}
}

static double rounded(double v) { return (double)fo_bf16_to_f32(fo_bf16_from_f32((float)v)); }

/* What a reduce-scatter adds to. */
static double before(const struct drawn_call *o, int64_t i) { return drawn_before(o, i, false); }

/* `at`: of the output. */
static double reduced(const struct drawn_call *o, int ranks, int64_t i, int64_t at)
{
	if (o->call.narrow) { /* numbers of more bits than bf16 has */
		float v = o->call.accumulate ? (float)before(o, at) : 0;
		for (int r = 0; r < ranks; r++)
			v += (float)rounded(input(o->salt, r, i) * DRAWN_FINE);
		return o->call.kind == FO_COMM_ALL_REDUCE ? rounded(v) : v;
	}
	double v = input(o->salt, 0, i);
	for (int r = 1; r < ranks; r++) {
		double x = input(o->salt, r, i);
		v = o->call.op == FO_COMM_SUM ? v + x : fmax(v, x);
	}
	if (o->call.accumulate)
		v += before(o, at);
	return o->call.dtype == FO_BF16 ? rounded(v) : v;
}

/* What element i of the output of this rank is. */
static double expected(const struct drawn_call *o, int rank, int ranks, int64_t i)
{
	int64_t begin, from = 0;
	switch (o->call.kind) {
	case FO_COMM_ALL_REDUCE: return reduced(o, ranks, i, i);
	case FO_COMM_REDUCE_SCATTER:
		fo_comm_part(&o->call, rank, ranks, &begin);
		return reduced(o, ranks, begin + i, i);
	case FO_COMM_ALL_GATHER:
		for (int r = 0;; r++) {
			int64_t n = fo_comm_part(&o->call, r, ranks, &begin);
			if (i < begin + n)
				return input(o->salt, r, i - begin);
		}
	case FO_COMM_ALL_TO_ALL:
		from = i / o->call.n;
		return input(o->salt, (int)from, rank * o->call.n + i % o->call.n);
	case FO_COMM_BROADCAST: return input(o->salt, o->call.peer, i);
	case FO_COMM_RECV: return input(o->salt, o->call.peer, i);
	case FO_COMM_SHIFT: return input(o->salt, (rank + ranks - 1) % ranks, i);
	default: return NAN;
	}
}

static void check_one(struct drawn_call *o, int rank, int ranks)
{
	for (size_t i = 0; i < o->to_n; i++) {
		double got = get(o->to, o->call.dtype, (int64_t)i), want = expected(o, rank, ranks, (int64_t)i);
		if (o->call.dtype == FO_I32 || o->call.dtype == FO_E4M3)
			want = (int)(8 * want) / 8.0;
		if (got != want)
			fprintf(stderr, "%s, element %zu of %zu: %g, not %g\n", fo_comm_kind_name(o->call.kind), i,
				o->to_n, got, want);
		NEED(got == want);
	}
	drawn_free(o);
}

/* Several calls are under way at once and are tested in an order that differs from rank to rank. */
static void many_calls(struct rank *r)
{
	int rank = fo_comm_rank(r->c), ranks = fo_comm_ranks(r->c);
	int64_t bytes = fo_comm_received(r->c);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct drawn_call one[AT_ONCE];
		for (uint64_t i = 0; i < AT_ONCE; i++) {
			draw_call(&one[i], r->seed, round * AT_ONCE + i, rank, ranks, false);
			bytes += fo_comm_wire_bytes(&one[i].call, rank, ranks);
			NEED(fo_comm_start(r->c, &one[i].call, &one[i].request) == FO_OK);
		}
		for (uint64_t open = AT_ONCE, turn = round; open; turn++) {
			open = 0;
			for (uint64_t i = 0; i < AT_ONCE; i++) {
				bool done;
				uint64_t which = (i + turn * (uint64_t)(rank + 1)) % AT_ONCE;
				NEED(fo_comm_test(r->c, &one[which].request, &done) == FO_OK);
				open += !done;
			}
			sched_yield(); /* eight ranks on two processors: the others have to test, too */
		}
		for (int i = 0; i < AT_ONCE; i++)
			check_one(&one[i], rank, ranks);
	}
	NEED(fo_comm_received(r->c) == bytes);
}

static void test_kinds(void **state)
{
	(void)state;
	for (int ranks = 1; ranks <= RANKS_MOST; ranks++)
		for (uint64_t seed = 1; seed <= 3; seed++)
			with_ranks(ranks, &(struct fo_comm_local){ .shake = seed > 1 ? seed : 0 }, seed, many_calls,
				   NULL);
}

/* ---- point to point ---- */

/* Everybody sends to everybody, several times, the receives started in another order than the sends. */
static void exchange(struct rank *r)
{
	int rank = fo_comm_rank(r->c), ranks = fo_comm_ranks(r->c);
	enum { TIMES = 3, N = 100 };
	float to[RANKS_MOST][TIMES][N], from[RANKS_MOST][TIMES][N];
	struct fo_comm_request q[2 * RANKS_MOST * TIMES] = { 0 };
	int n = 0;
	for (int t = 0; t < TIMES; t++)
		for (int p = 0; p < ranks; p++) {
			if (p == rank)
				continue;
			for (int i = 0; i < N; i++)
				from[p][t][i] = (float)(10000 * rank + 1000 * p + 100 * t + i);
			NEED(fo_comm_start(r->c,
					   &(struct fo_comm_call){ .kind = FO_COMM_SEND,
								   .from = from[p][t],
								   .n = N,
								   .dtype = FO_F32,
								   .peer = p },
					   &q[n++]) == FO_OK);
		}
	for (int p = ranks - 1; p >= 0; p--)
		for (int t = 0; t < TIMES && p != rank; t++)
			NEED(fo_comm_start(
				     r->c,
				     &(struct fo_comm_call){
					     .kind = FO_COMM_RECV, .to = to[p][t], .n = N, .dtype = FO_F32, .peer = p },
				     &q[n++]) == FO_OK);
	for (int open = n; open;) {
		open = 0;
		for (int i = n - 1; i >= 0; i--) {
			bool done;
			NEED(fo_comm_test(r->c, &q[i], &done) == FO_OK);
			open += !done;
		}
		sched_yield();
	}
	for (int p = 0; p < ranks; p++)
		for (int t = 0; t < TIMES && p != rank; t++)
			for (int i = 0; i < N; i++)
				NEED(to[p][t][i] == (float)(10000 * p + 1000 * rank + 100 * t + i));
}

static void test_point_to_point(void **state)
{
	(void)state;
	for (int ranks = 2; ranks <= 5; ranks++)
		for (uint64_t shake = 0; shake < 3; shake++)
			with_ranks(ranks, &(struct fo_comm_local){ .shake = shake }, 0, exchange, NULL);
}

/* ---- meshes ---- */

/* Ranks of a 2 x n mesh: sums along either axis. */
static void mesh(struct rank *r)
{
	int rank = fo_comm_rank(r->c), ranks = fo_comm_ranks(r->c), width = ranks / 2;
	struct fo_comm *row, *column;
	NEED(fo_comm_split(r->c, rank / width, &row) == FO_OK);
	NEED(fo_comm_split(r->c, rank % width, &column) == FO_OK);
	NEED(fo_comm_ranks(row) == width && fo_comm_rank(row) == rank % width);
	NEED(fo_comm_ranks(column) == 2 && fo_comm_rank(column) == rank / width);
	double v = rank, along = 0;
	struct fo_comm_call k = { .kind = FO_COMM_ALL_REDUCE, .from = &v, .to = &along, .n = 1, .dtype = FO_F64 };
	NEED(fo_comm_call(row, &k) == FO_OK);
	int first = rank / width * width;
	NEED(along == width * first + width * (width - 1) / 2.0);
	NEED(fo_comm_call(column, &k) == FO_OK);
	NEED(along == 2 * (rank % width) + width);
	many_calls(&(struct rank){ .c = row, .seed = r->seed + (uint64_t)(rank / width) });
	fo_comm_close(column);
	fo_comm_close(row);
}

static void test_mesh(void **state)
{
	(void)state;
	for (int ranks = 2; ranks <= RANKS_MOST; ranks += 2)
		with_ranks(ranks, &(struct fo_comm_local){ .shake = (uint64_t)ranks / 4 }, 7, mesh, NULL);
}

/* ---- links ---- */

/* A call over a slow link takes at least its bytes over the rate, and two calls over one link twice that. Only lower
 * bounds are held: a busy machine may take longer. */
static void slow(struct rank *r)
{
	enum { N = 20000 };
	int ranks = fo_comm_ranks(r->c);
	static float from[RANKS_MOST][N], to[RANKS_MOST][2][N];
	int rank = fo_comm_rank(r->c);
	struct fo_comm_request q[2];
	struct fo_comm_call k = { .kind = FO_COMM_ALL_REDUCE, .from = from[rank], .n = N, .dtype = FO_F32 };
	double least = (double)fo_comm_wire_bytes(&k, 0, ranks) / *(double *)r->with;
	int64_t begin = fo_now_ns();
	for (int i = 0; i < 2; i++) {
		k.to = to[rank][i];
		NEED(fo_comm_start(r->c, &k, &q[i]) == FO_OK);
	}
	for (int i = 0; i < 2; i++)
		for (bool done = false; !done;)
			NEED(fo_comm_test(r->c, &q[i], &done) == FO_OK);
	NEED((double)(fo_now_ns() - begin) * 1e-9 >= 2 * least);
}

static void test_links(void **state)
{
	(void)state;
	double rate = 8e6; /* 120 kB in 15 ms */
	with_ranks(4, &(struct fo_comm_local){ .bytes_s = rate, .latency_s = 1e-3 }, 0, slow, &rate);
}

/* ---- what goes wrong ---- */

static void unlike(struct rank *r)
{
	float a[4] = { 0 }, b[4];
	struct fo_comm_call k = { .kind = FO_COMM_ALL_REDUCE, .from = a, .to = b, .n = 3, .dtype = FO_F32 };
	if (fo_comm_rank(r->c) == 1)
		k.n = 4;
	NEED(fo_comm_call(r->c, &k) == FO_ECOMM);
	NEED(strstr(fo_err_text(), "all-reduce of 4 f32") && strstr(fo_err_text(), "all-reduce of 3 f32"));
	NEED(fo_comm_check(r->c) == FO_ECOMM);
}

static void given_up(struct rank *r)
{
	float a = 0, b;
	struct fo_comm_call k = { .kind = FO_COMM_ALL_REDUCE, .from = &a, .to = &b, .n = 1, .dtype = FO_F32 };
	if (fo_comm_rank(r->c) == 2) {
		fo_comm_abort(r->c);
		return;
	}
	NEED(fo_comm_call(r->c, &k) == FO_ECOMM);
	NEED(strstr(fo_err_text(), "rank 2 ended the job") != NULL);
}

static void refused(struct rank *r)
{
	float a = 0;
	int64_t part[2] = { 1, 1 };
	struct fo_comm *c = r->c, *out;
	struct fo_comm_call k = { .kind = FO_COMM_SEND, .from = &a, .n = 1, .dtype = FO_F32, .peer = fo_comm_rank(c) };
	NEED(fo_comm_call(c, &k) == FO_EARG);
	k = (struct fo_comm_call){ .kind = FO_COMM_ALL_REDUCE, .from = &a, .to = &a, .n = 1, .dtype = FO_I32 };
	NEED(fo_comm_call(c, &k) == FO_EARG);
	k = (struct fo_comm_call){
		.kind = FO_COMM_ALL_TO_ALL, .from = &a, .to = &a, .n = 1, .dtype = FO_F32, .part = part
	};
	NEED(fo_comm_call(c, &k) == FO_EARG);
	k = (struct fo_comm_call){
		.kind = FO_COMM_ALL_REDUCE, .from = &a, .to = &a, .n = 1, .dtype = FO_F32, .accumulate = true
	};
	NEED(fo_comm_call(c, &k) == FO_EARG);
	k.accumulate = false;
	k.narrow = true;
	k.op = FO_COMM_MAX;
	NEED(fo_comm_call(c, &k) == FO_EARG);
	k.op = FO_COMM_SUM;
	k.dtype = FO_F64;
	NEED(fo_comm_call(c, &k) == FO_EARG);
	NEED(fo_comm_split(c, -1, &out) == FO_EARG);
}

static void test_faults(void **state)
{
	(void)state;
	struct fo_comm *c[1];
	with_ranks(3, NULL, 0, unlike, NULL);
	with_ranks(3, NULL, 0, given_up, NULL);
	with_ranks(2, NULL, 0, refused, NULL);
	assert_int_equal(fo_comm_local_open(0, NULL, c), FO_EARG);
	assert_int_equal(fo_comm_local_open(FO_COMM_LOCAL_MOST + 1, NULL, c), FO_EARG);
}

/* Two of three ranks that wait for each other end the job as soon as both say that they do nothing else, whatever the
 * third does; before, a rank that may still come is waited for. */
static void test_stuck(void **state)
{
	(void)state;
	struct fo_comm *c[3];
	struct fo_comm_request first, second, sent, more;
	float x = 1, got[3];
	bool done;
	const struct fo_comm_call from1 = { .kind = FO_COMM_RECV, .to = &got[0], .n = 1, .dtype = FO_F32, .peer = 1 },
				  from2 = { .kind = FO_COMM_RECV, .to = &got[1], .n = 1, .dtype = FO_F32, .peer = 2 },
				  from0 = { .kind = FO_COMM_RECV, .to = &got[2], .n = 1, .dtype = FO_F32, .peer = 0 },
				  to1 = { .kind = FO_COMM_SEND, .from = &x, .n = 1, .dtype = FO_F32, .peer = 1 };
	NEED(fo_comm_local_open(3, NULL, c) == FO_OK);
	NEED(fo_comm_start(c[0], &from1, &first) == FO_OK);
	NEED(fo_comm_start(c[1], &from2, &second) == FO_OK);
	fo_comm_idle(c[0], true);
	fo_comm_idle(c[1], true);
	NEED(fo_comm_test(c[0], &first, &done) == FO_OK && !done);
	NEED(fo_comm_start(c[2], &to1, &sent) == FO_OK);
	fo_comm_idle(c[2], true); /* all wait, but what two of them wait for has come */
	for (int i = 0; i < 2; i++) {
		if (second.state)
			NEED(fo_comm_test(c[1], &second, &done) == FO_OK);
		if (sent.state)
			NEED(fo_comm_test(c[2], &sent, &done) == FO_OK);
	}
	NEED(!second.state && !sent.state && got[1] == 1);
	NEED(fo_comm_start(c[1], &from0, &more) == FO_OK);
	NEED(fo_comm_test(c[1], &more, &done) == FO_OK && !done);
	fo_comm_idle(c[1], true);
	NEED(fo_comm_test(c[0], &first, &done) == FO_ECOMM);
	NEED(strstr(fo_err_text(), "rank 0 waits for rank 1, which never calls it: it waits for rank 0 in receive of 1 "
				   "f32") != NULL);
	NEED(fo_comm_test(c[1], &more, &done) == FO_ECOMM);
	NEED(fo_comm_check(c[2]) == FO_ECOMM);
	for (int r = 0; r < 3; r++)
		fo_comm_close(c[r]);
}

static void count_told(void *ctx) { ++*(int *)ctx; }

/* A rank that listens is told when the last rank has come to a call of its own, when that one's part is done, and when
 * the job ends; not of calls of others, and of nothing once it stopped listening. */
static void test_listen(void **state)
{
	(void)state;
	struct fo_comm *c[3];
	struct fo_comm_request q[3], other[2];
	int told[3] = { 0 };
	bool done;
	float x[3] = { 1, 2, 3 }, got = 0;
	const struct fo_comm_call send = { .kind = FO_COMM_SEND, .from = x, .n = 1, .dtype = FO_F32, .peer = 2 },
				  receive = { .kind = FO_COMM_RECV, .to = &got, .n = 1, .dtype = FO_F32, .peer = 1 };
	NEED(fo_comm_local_open(3, NULL, c) == FO_OK);
	for (int r = 0; r < 3; r++)
		NEED(fo_comm_listen(c[r], count_told, &told[r]));
	NEED(fo_comm_start(c[1], &send, &other[0]) == FO_OK);
	NEED(fo_comm_start(c[2], &receive, &other[1]) == FO_OK);
	NEED(!told[0] && told[1] == 1 && !told[2]);
	for (int r = 0; r < 3; r++) {
		const struct fo_comm_call sum = {
			.kind = FO_COMM_ALL_REDUCE, .from = &x[r], .to = &x[r], .n = 1, .dtype = FO_F32
		};
		NEED(fo_comm_start(c[r], &sum, &q[r]) == FO_OK);
	}
	NEED(told[0] == 1 && told[1] == 2 && told[2] == 0);
	for (int r = 0; r < 3; r++)
		NEED(fo_comm_test(c[r], &q[r], &done) == FO_OK && !done);
	NEED(told[0] == 2 && told[1] == 3 && told[2] == 0); /* rank 2 was the last to add its part */
	NEED(fo_comm_listen(c[0], NULL, NULL));
	fo_comm_abort(c[1]);
	NEED(told[0] == 2 && told[1] == 4 && told[2] == 1);
	for (int r = 0; r < 3; r++)
		fo_comm_close(c[r]);
}

/* Six kinds of calls at four sizes; measured again they replace themselves, and a profile holds them. */
static void test_measure(void **state)
{
	(void)state;
	struct fo_limits m = { .cpu = "here" }, again;
	struct fo_str text = { 0 };
	for (int k = 0; k < 2; k++)
		assert_int_equal(fo_comm_measure(2, 0.1, &m, NULL, NULL), FO_OK);
	assert_int_equal(m.rows, 24);
	for (size_t i = 0; i < m.rows; i++) {
		const struct fo_limits_row *r = &m.row[i];
		assert_true(fo_link_is_row(r) && r->dim[0] == 2 && r->bytes > 0 && r->dim[1] == (int64_t)r->bytes);
		assert_true(r->time.spans >= 7 && r->time.best_s > 0 && r->time.best_s <= r->time.median_s);
		assert_true(!i || strcmp(r->kind, r[-1].kind) || r->bytes > r[-1].bytes);
	}
	fo_limits_json(&m, &text);
	assert_int_equal(fo_limits_parse(text.data, text.len, "here", &again), FO_OK);
	assert_int_equal(again.rows, 24);
	fo_limits_fini(&again);
	fo_limits_fini(&m);
	fo_str_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_measure), cmocka_unit_test(test_kinds),  cmocka_unit_test(test_point_to_point),
		cmocka_unit_test(test_mesh),    cmocka_unit_test(test_links),  cmocka_unit_test(test_faults),
		cmocka_unit_test(test_stuck),   cmocka_unit_test(test_listen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
