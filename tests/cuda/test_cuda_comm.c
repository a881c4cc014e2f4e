/* Groups of devices over NCCL (src/comm): a rank alone on any device, several as threads where the device and NCCL are
 * the software ones. */
#include "comm/nccl.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/local.h"
#include "support/cuda.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, N = 1000 /* no multiple of anything */ };

static struct fo_cuda *cuda;
static const struct fo_test_soft *soft;
static char folder[] = "/tmp/fo-test-comm-XXXXXX", meet_path[128];

/* Also in threads, where cmocka cannot jump: says what is wrong and ends the test. */
static void ok(fo_status st)
{
	if (st == FO_OK)
		return;
	fprintf(stderr, "%s; %s\n", fo_err_text(), fo_err_hint());
	abort();
}
static void need(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "not so: %s\n", what);
	abort();
}
#define NEED(x) need(x, #x)
/* CALL(communicator, kind, op, from, to, elements, type, peer, stream) */
#define CALL(c, kind, op, ...) \
	fo_comm_call(c, &(struct fo_comm_call){ FO_COMM_##kind, FO_COMM_##op, __VA_ARGS__, NULL, false, false, NULL })

/* A buffer on the device and its copy in page-locked memory. */
struct pair {
	void *device, *host;
	size_t bytes;
};
static struct pair pair_new(struct fo_cuda *c, size_t bytes)
{
	struct pair p = { .bytes = bytes };
	ok(fo_cuda_alloc(c, bytes, &p.device));
	ok(fo_cuda_host_alloc(c, bytes, &p.host));
	return p;
}
static void pair_free(struct fo_cuda *c, struct pair *p)
{
	fo_cuda_free(c, p->device);
	fo_cuda_host_free(c, p->host);
}
static void in(struct fo_cuda *c, struct pair *p, fo_cuda_stream s)
{
	ok(fo_cuda_copy_in(c, p->device, p->host, p->bytes, s));
}
static void out(struct fo_cuda *c, struct pair *p, fo_cuda_stream s)
{
	memset(p->host, 0x77, p->bytes);
	ok(fo_cuda_copy_out(c, p->host, p->device, p->bytes, s));
	ok(fo_cuda_stream_wait(c, s));
}

/* ---- one rank: every collective is the identity, bit by bit ---- */

static void noise(unsigned char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = (unsigned char)(i * 2654435761u >> 13); /* NaNs and denormals among them */
}

static void one_round(struct fo_comm *comm, struct pair *a, struct pair *b, int dtype, int64_t n, fo_cuda_stream s)
{
	ok(CALL(comm, ALL_REDUCE, SUM, a->device, b->device, n, dtype, 0, s));
	ok(CALL(comm, ALL_REDUCE, MAX, b->device, b->device, n, dtype, 0, s));
	ok(CALL(comm, BROADCAST, SUM, b->device, b->device, n, dtype, 0, s));
	ok(CALL(comm, ALL_GATHER, SUM, b->device, b->device, n, dtype, 0, s));
	ok(CALL(comm, REDUCE_SCATTER, SUM, b->device, b->device, n, dtype, 0, s));
}

static void test_alone(void **state)
{
	const int dtype[] = { FO_F32, FO_BF16, FO_F64 };
	const struct fo_comm_place place = { .ranks = 1 };
	struct fo_comm *comm;
	fo_cuda_stream s;
	fo_cuda_graph g;
	(void)state;
	ok(fo_comm_nccl_open(&comm, cuda, &place));
	assert_int_equal(fo_comm_rank(comm), 0);
	assert_int_equal(fo_comm_ranks(comm), 1);
	ok(fo_cuda_stream_new(cuda, &s));
	for (int t = 0; t < 3; t++) {
		struct pair a = pair_new(cuda, N * fo_dtype_bytes(dtype[t])), b = pair_new(cuda, a.bytes);
		noise(a.host, a.bytes);
		in(cuda, &a, s);
		one_round(comm, &a, &b, dtype[t], N, s);
		out(cuda, &b, s);
		assert_memory_equal(a.host, b.host, a.bytes);
		ok(fo_cuda_fill(cuda, b.device, 0, b.bytes, s));
		ok(fo_cuda_capture_begin(cuda, s));
		one_round(comm, &a, &b, dtype[t], N, s);
		ok(fo_cuda_capture_end(cuda, s, &g));
		ok(fo_cuda_graph_launch(cuda, g, s));
		out(cuda, &b, s);
		assert_memory_equal(a.host, b.host, a.bytes);
		fo_cuda_graph_free(cuda, g);
		pair_free(cuda, &a);
		pair_free(cuda, &b);
	}
	ok(fo_comm_check(comm));
	fo_cuda_stream_free(cuda, s);
	fo_comm_close(comm);
}

static void test_memory(void **state)
{
	const struct fo_comm_place place = { .ranks = 1 };
	struct fo_comm *comm;
	void *p, *q;
	fo_cuda_stream s;
	(void)state;
	ok(fo_comm_nccl_open(&comm, cuda, &place));
	ok(fo_cuda_stream_new(cuda, &s));
	ok(fo_comm_alloc(comm, 100, &p));
	ok(fo_comm_alloc(comm, 0, &q));
	ok(fo_cuda_fill(cuda, p, 1, 100, s));
	ok(CALL(comm, ALL_REDUCE, SUM, p, p, 25, FO_F32, 0, s));
	ok(fo_cuda_stream_wait(cuda, s));
	if (soft)
		assert_int_equal(fo_comm_nccl_windows(comm), 2);
	fo_comm_release(comm, p);
	fo_comm_release(comm, NULL);
	if (soft) {
		assert_int_equal(fo_comm_nccl_windows(comm), 1);
		/* devices that cannot share a window: memory all the same */
		setenv("FLATOUT_SOFT_NCCL_NO_WINDOWS", "1", 1);
		ok(fo_comm_alloc(comm, 4096, &p));
		unsetenv("FLATOUT_SOFT_NCCL_NO_WINDOWS");
		assert_int_equal(fo_comm_nccl_windows(comm), 1);
		ok(fo_cuda_fill(cuda, p, 1, 4096, s));
	}
	ok(fo_cuda_stream_wait(cuda, s));
	fo_cuda_stream_free(cuda, s);
	fo_comm_close(comm); /* what was not released goes too */
}

#define REFUSED(call, text)                                   \
	do {                                                  \
		assert_int_equal(call, FO_EARG);              \
		assert_non_null(strstr(fo_err_text(), text)); \
	} while (0)

static void test_refused(void **state)
{
	const struct fo_comm_place place = { .ranks = 1 }, odd = { .rank = 3, .ranks = 2 };
	struct fo_comm *comm;
	float x[4];
	(void)state;
	REFUSED(fo_comm_nccl_open(&comm, cuda, &odd), "no rank 3 among 2");
	ok(fo_comm_nccl_open(&comm, cuda, &place));
	REFUSED(CALL(comm, ALL_REDUCE, SUM, x, x, -1, FO_F32, 0, NULL), "-1 elements");
	REFUSED(CALL(comm, ALL_REDUCE, SUM, x, x, 4, FO_E4M3, 0, NULL), "not e4m3");
	REFUSED(CALL(comm, REDUCE_SCATTER, MAX, x, x, 4, FO_I32, 0, NULL), "not i32");
	REFUSED(CALL(comm, ALL_GATHER, SUM, NULL, x, 4, FO_F32, 0, NULL), "without memory");
	REFUSED(CALL(comm, BROADCAST, SUM, x, x, 4, FO_F32, 1, NULL), "no rank 1 among 1");
	REFUSED(CALL(comm, SEND, SUM, x, NULL, 4, FO_F32, 0, NULL), "no other rank 0");
	REFUSED(CALL(comm, RECV, SUM, NULL, x, 4, FO_F32, -1, NULL), "no other rank -1");
	REFUSED(fo_comm_group_end(comm), "was not begun");
	ok(CALL(comm, ALL_REDUCE, SUM, NULL, NULL, 0, FO_F32, 0, NULL));
	if (soft) { /* host memory: the library's own refusal */
		assert_int_equal(CALL(comm, ALL_REDUCE, SUM, x, x, 4, FO_F32, 0, NULL), FO_ECOMM);
		assert_non_null(strstr(fo_err_text(), "rank 0 of 1: all-reduce: NCCL says \"invalid argument\""));
	}
	fo_comm_abort(comm);
	assert_int_equal(fo_comm_check(comm), FO_ECOMM);
	assert_int_equal(CALL(comm, BROADCAST, SUM, x, x, 4, FO_F32, 0, NULL), FO_ECOMM);
	fo_comm_close(comm);
}

/* ---- several ranks, each a thread with the device opened for itself ---- */

struct member {
	pthread_t thread;
	int rank;
	struct fo_cuda *cuda;
	struct fo_comm *comm;
	fo_cuda_stream s;
	void (*run)(struct member *m);
};

static void *member_main(void *arg)
{
	struct member *m = arg;
	struct fo_comm_place place = { .rank = m->rank, .ranks = RANKS, .job = "test.1", .wait_s = 20 };
	snprintf(place.meet, sizeof place.meet, "%s", meet_path);
	ok(fo_cuda_open(&m->cuda, m->rank));
	ok(fo_comm_nccl_open(&m->comm, m->cuda, &place));
	ok(fo_cuda_stream_new(m->cuda, &m->s));
	m->run(m);
	fo_cuda_stream_free(m->cuda, m->s);
	fo_comm_close(m->comm);
	fo_cuda_close(m->cuda);
	return NULL;
}

static void among(void (*run)(struct member *m))
{
	struct member m[RANKS];
	if (!soft)
		skip();
	setenv("FLATOUT_SOFT_DEVICES", "4", 1); /* one each */
	for (int r = 0; r < RANKS; r++) {
		m[r] = (struct member){ .rank = r, .run = run };
		assert_int_equal(pthread_create(&m[r].thread, NULL, member_main, &m[r]), 0);
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(m[r].thread, NULL);
	assert_int_not_equal(access(meet_path, F_OK), 0); /* rank 0 has cleaned up */
}

/* Exact in bf16 as sums of four. */
static float number(int rank, int i) { return (float)((rank + 1) * (i % 13 - 6)); }
static void fill(struct pair *p, int dtype, int rank, int n)
{
	for (int i = 0; i < n; i++)
		if (dtype == FO_F32)
			((float *)p->host)[i] = number(rank, i);
		else
			((uint16_t *)p->host)[i] = fo_bf16_from_f32(number(rank, i));
}
static float get(const struct pair *p, int dtype, int i)
{
	return dtype == FO_F32 ? ((float *)p->host)[i] : fo_bf16_to_f32(((uint16_t *)p->host)[i]);
}

/* Parts of unlike size, one of them empty: rank 0's bits and ends of others are not touched. The sum is also added to
 * what is there. */
static void uneven(struct member *m, int dtype)
{
	static const int64_t part[RANKS] = { 7, 0, 30, 3 }, begin[RANKS] = { 0, 7, 7, 37 };
	const size_t size = fo_dtype_bytes(dtype);
	struct pair all = pair_new(m->cuda, 40 * size), own = pair_new(m->cuda, 40 * size), room = own;
	struct fo_comm_call k = { .kind = FO_COMM_REDUCE_SCATTER,
				  .from = all.device,
				  .to = own.device,
				  .dtype = dtype,
				  .part = part,
				  .stream = m->s };
	room = pair_new(m->cuda, 40 * size);
	fill(&all, dtype, m->rank, 40);
	in(m->cuda, &all, m->s);
	ok(fo_comm_call(m->comm, &k));
	k.accumulate = true;
	k.scratch = room.device;
	ok(fo_comm_call(m->comm, &k));
	out(m->cuda, &own, m->s);
	for (int i = 0; i < part[m->rank]; i++)
		NEED(get(&own, dtype, i) == number(9, (int)begin[m->rank] + i) * 2);
	k = (struct fo_comm_call){ .kind = FO_COMM_ALL_GATHER,
				   .from = own.device,
				   .to = all.device,
				   .dtype = dtype,
				   .part = part,
				   .stream = m->s };
	ok(fo_comm_call(m->comm, &k));
	out(m->cuda, &all, m->s);
	for (int i = 0; i < 40; i++)
		NEED(get(&all, dtype, i) == number(9, i) * 2);
	pair_free(m->cuda, &all);
	pair_free(m->cuda, &own);
	pair_free(m->cuda, &room);
}

static void collectives(struct member *m)
{
	for (int t = 0; t < 2; t++) {
		int dtype = t ? FO_BF16 : FO_F32;
		size_t size = fo_dtype_bytes(dtype);
		struct pair part = pair_new(m->cuda, N * size), all = pair_new(m->cuda, N * RANKS * size);
		char *own = (char *)all.device + (size_t)m->rank * N * size;
		fill(&part, dtype, m->rank, N);
		in(m->cuda, &part, m->s);
		ok(CALL(m->comm, ALL_REDUCE, SUM, part.device, all.device, N, dtype, 0, m->s));
		out(m->cuda, &all, m->s);
		for (int i = 0; i < N; i++)
			NEED(get(&all, dtype, i) == number(9, i)); /* 1 + 2 + 3 + 4 */
		ok(CALL(m->comm, ALL_REDUCE, MAX, part.device, all.device, N, dtype, 0, m->s));
		out(m->cuda, &all, m->s);
		for (int i = 0; i < N; i++)
			NEED(get(&all, dtype, i) == number(number(0, i) > 0 ? RANKS - 1 : 0, i));
		/* gathered in place */
		ok(fo_cuda_copy(m->cuda, own, part.device, part.bytes, m->s));
		ok(CALL(m->comm, ALL_GATHER, SUM, own, all.device, N, dtype, 0, m->s));
		out(m->cuda, &all, m->s);
		for (int i = 0; i < N * RANKS; i++)
			NEED(get(&all, dtype, i) == number(i / N, i % N));
		/* rank r's part of the sum of what all have: four times what rank r gave */
		ok(CALL(m->comm, REDUCE_SCATTER, SUM, all.device, own, N, dtype, 0, m->s));
		out(m->cuda, &all, m->s);
		for (int i = 0; i < N; i++)
			NEED(get(&all, dtype, m->rank * N + i) == RANKS * number(m->rank, i));
		uneven(m, dtype);
		ok(CALL(m->comm, BROADCAST, SUM, part.device, part.device, N, dtype, 2, m->s));
		out(m->cuda, &part, m->s);
		for (int i = 0; i < N; i++)
			NEED(get(&part, dtype, i) == number(2, i));
		pair_free(m->cuda, &part);
		pair_free(m->cuda, &all);
	}
	ok(fo_comm_check(m->comm));
}
static void test_collectives(void **state)
{
	(void)state;
	among(collectives);
}

/* Everybody sends to the next and receives from the one before: in a group, or nobody would come to receive. */
static void ring(struct member *m)
{
	struct pair mine = pair_new(m->cuda, N * 4), theirs = pair_new(m->cuda, N * 4);
	int next = (m->rank + 1) % RANKS, before = (m->rank + RANKS - 1) % RANKS;
	fill(&mine, FO_F32, m->rank, N);
	in(m->cuda, &mine, m->s);
	ok(fo_comm_group_begin(m->comm));
	ok(CALL(m->comm, SEND, SUM, mine.device, NULL, N, FO_F32, next, m->s));
	ok(CALL(m->comm, RECV, SUM, NULL, theirs.device, N, FO_F32, before, m->s));
	ok(fo_comm_group_end(m->comm));
	out(m->cuda, &theirs, m->s);
	for (int i = 0; i < N; i++)
		NEED(get(&theirs, FO_F32, i) == number(before, i));
	/* types that only travel go as bytes: fp8 */
	ok(CALL(m->comm, BROADCAST, SUM, mine.device, mine.device, N, FO_E4M3, 1, m->s));
	pair_free(m->cuda, &mine);
	pair_free(m->cuda, &theirs);
}
static void test_ring(void **state)
{
	(void)state;
	among(ring);
}

/* Two ranks that each list their receive first, on streams of their own. A communicator does its calls one by one, so
 * with one for both directions neither ends; with one for each direction both do. */
static struct fo_comm *host[2][2];
static bool ends(struct member *m, struct fo_comm *from, struct fo_comm *to, struct pair *mine, struct pair *theirs)
{
	const int64_t until = fo_now_ns() + 20000000;
	fo_cuda_stream other;
	fo_cuda_event over;
	bool done = false;
	ok(fo_cuda_stream_new(m->cuda, &other));
	ok(fo_cuda_event_new(m->cuda, false, &over));
	fill(mine, FO_F32, m->rank, N);
	in(m->cuda, mine, m->s);
	ok(CALL(from, RECV, SUM, NULL, theirs->device, N, FO_F32, 1 - m->rank, other));
	ok(CALL(to, SEND, SUM, mine->device, NULL, N, FO_F32, 1 - m->rank, m->s));
	ok(fo_cuda_event_record(m->cuda, over, other, false));
	while (!done && (from != to || fo_now_ns() < until))
		ok(fo_cuda_event_done(m->cuda, over, &done));
	done &= fo_comm_check(to) == FO_OK; /* what ends because the other rank has given up has not been done */
	if (!done)
		fo_comm_abort(to);
	ok(fo_cuda_stream_wait(m->cuda, m->s));
	fo_cuda_event_free(m->cuda, over);
	ok(fo_cuda_stream_wait(m->cuda, other));
	fo_cuda_stream_free(m->cuda, other);
	return done;
}
static void directions(struct member *m)
{
	struct fo_comm *way[2], *from, *to;
	if (m->rank > 1)
		return;
	struct pair mine = pair_new(m->cuda, N * 4), theirs = pair_new(m->cuda, N * 4);
	for (int k = 0; k < 2; k++)
		ok(fo_comm_nccl_pair(&way[k], m->cuda, host[k][m->rank], m->rank == k));
	from = way[1 - m->rank], to = way[m->rank];
	NEED(ends(m, from, to, &mine, &theirs));
	out(m->cuda, &theirs, m->s);
	for (int i = 0; i < N; i++)
		NEED(get(&theirs, FO_F32, i) == number(1 - m->rank, i));
	NEED(fo_comm_received(from) == N * 4 && fo_comm_received(to) == 0);
	NEED(!ends(m, way[0], way[0], &mine, &theirs));
	pair_free(m->cuda, &mine);
	pair_free(m->cuda, &theirs);
	for (int k = 0; k < 2; k++)
		fo_comm_close(way[k]);
}
static void test_directions(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++)
		ok(fo_comm_local_open(2, &(struct fo_comm_local){ 0 }, host[k]));
	among(directions);
	for (int k = 0; k < 4; k++)
		fo_comm_close(host[k / 2][k % 2]);
}

/* Every rank sends a part of its own to each, itself included. */
static void all_to_all(struct member *m)
{
	struct pair mine = pair_new(m->cuda, N * RANKS * 4), theirs = pair_new(m->cuda, N * RANKS * 4);
	for (int i = 0; i < N * RANKS; i++)
		((float *)mine.host)[i] = number(m->rank, i);
	in(m->cuda, &mine, m->s);
	ok(CALL(m->comm, ALL_TO_ALL, SUM, mine.device, theirs.device, N, FO_F32, 0, m->s));
	out(m->cuda, &theirs, m->s);
	for (int i = 0; i < N * RANKS; i++)
		NEED(get(&theirs, FO_F32, i) == number(i / N, m->rank * N + i % N));
	pair_free(m->cuda, &mine);
	pair_free(m->cuda, &theirs);
}
static void test_all_to_all(void **state)
{
	(void)state;
	among(all_to_all);
}

/* A rank with another count: an error in all of them, no wrong sum and no hanging. */
static void disagree(struct member *m)
{
	struct pair p = pair_new(m->cuda, N * 4);
	int64_t n = m->rank == 3 ? N - 1 : N;
	fill(&p, FO_F32, m->rank, N);
	in(m->cuda, &p, m->s);
	ok(CALL(m->comm, ALL_REDUCE, SUM, p.device, p.device, n, FO_F32, 0, m->s));
	ok(fo_cuda_stream_wait(m->cuda, m->s));
	NEED(fo_comm_check(m->comm) == FO_ECOMM);
	NEED(strstr(fo_err_text(), "invalid usage") != NULL);
	fo_comm_abort(m->comm);
	pair_free(m->cuda, &p);
}
static void test_disagree(void **state)
{
	(void)state;
	among(disagree);
}

/* One gives up: the others' calls end and say so. */
static void give_up(struct member *m)
{
	struct pair p = pair_new(m->cuda, N * 4);
	fill(&p, FO_F32, m->rank, N);
	in(m->cuda, &p, m->s);
	if (m->rank == 1) {
		fo_comm_abort(m->comm);
		NEED(fo_comm_check(m->comm) == FO_ECOMM);
	} else {
		ok(CALL(m->comm, ALL_REDUCE, SUM, p.device, p.device, N, FO_F32, 0, m->s));
		ok(fo_cuda_stream_wait(m->cuda, m->s));
		NEED(fo_comm_check(m->comm) == FO_ECOMM);
	}
	ok(fo_cuda_stream_wait(m->cuda, m->s));
	pair_free(m->cuda, &p);
}
static void test_give_up(void **state)
{
	(void)state;
	among(give_up);
}

/* ---- meeting ---- */

static const char *const variables[] = { "FLATOUT_RANK",  "FLATOUT_RANKS",      "FLATOUT_MEET", "FLATOUT_JOB",
					 "FLATOUT_WAIT",  "SLURM_PROCID",       "SLURM_NTASKS", "SLURM_JOB_ID",
					 "SLURM_STEP_ID", "SLURM_RESTART_COUNT" };
static void forget(void)
{
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
		unsetenv(variables[i]);
}

static void test_env(void **state)
{
	struct fo_comm_place p;
	(void)state;
	forget();
	ok(fo_comm_place_env(&p));
	assert_int_equal(p.rank, 0);
	assert_int_equal(p.ranks, 1);
	setenv("FLATOUT_RANKS", "8", 1);
	REFUSED(fo_comm_place_env(&p), "FLATOUT_RANK is not set");
	setenv("FLATOUT_RANK", "8", 1);
	REFUSED(fo_comm_place_env(&p), "FLATOUT_RANK is '8': expected a number from 0 to 7");
	setenv("FLATOUT_RANK", "7", 1);
	REFUSED(fo_comm_place_env(&p), "FLATOUT_MEET is not set");
	setenv("FLATOUT_MEET", meet_path, 1);
	ok(fo_comm_place_env(&p));
	assert_int_equal(p.rank, 7);
	assert_int_equal(p.ranks, 8);
	assert_string_equal(p.meet, meet_path);
	setenv("FLATOUT_JOB", "a b", 1);
	REFUSED(fo_comm_place_env(&p), "FLATOUT_JOB is 'a b'");
	unsetenv("FLATOUT_JOB");
	setenv("FLATOUT_WAIT", "soon", 1);
	REFUSED(fo_comm_place_env(&p), "FLATOUT_WAIT is 'soon'");
	setenv("FLATOUT_RANKS", "0", 1);
	REFUSED(fo_comm_place_env(&p), "FLATOUT_RANKS is '0'");
	forget();
	setenv("SLURM_PROCID", "2", 1);
	setenv("SLURM_NTASKS", "3", 1);
	setenv("SLURM_JOB_ID", "77", 1);
	setenv("FLATOUT_MEET", meet_path, 1);
	ok(fo_comm_place_env(&p));
	assert_int_equal(p.rank, 2);
	assert_string_equal(p.job, "77.0.0");
	forget();
}

static void test_meet(void **state)
{
	struct fo_comm_place zero = { .rank = 0, .ranks = 2, .job = "a", .wait_s = 0.05 }, one = zero;
	unsigned char given[128], got[128];
	(void)state;
	snprintf(zero.meet, sizeof zero.meet, "%s", meet_path);
	snprintf(one.meet, sizeof one.meet, "%s", meet_path);
	one.rank = 1;
	noise(given, sizeof given);
	assert_int_equal(fo_comm_meet(&one, got, sizeof got), FO_ECOMM);
	assert_non_null(strstr(fo_err_text(), "rank 0 did not write it"));
	ok(fo_comm_meet(&zero, given, sizeof given));
	ok(fo_comm_meet(&one, got, sizeof got));
	assert_memory_equal(given, got, sizeof given);
	/* a file of another job, of another number of ranks, with less in it: not ours */
	snprintf(one.job, sizeof one.job, "b");
	assert_int_equal(fo_comm_meet(&one, got, sizeof got), FO_ECOMM);
	assert_non_null(strstr(fo_err_text(), "of another job"));
	snprintf(one.job, sizeof one.job, "a");
	one.ranks = 3;
	assert_int_equal(fo_comm_meet(&one, got, sizeof got), FO_ECOMM);
	one.ranks = 2;
	assert_int_equal(fo_comm_meet(&one, got, 64), FO_ECOMM);
	FILE *f = fopen(meet_path, "a");
	assert_non_null(f);
	fputs("more\n", f);
	fclose(f);
	assert_int_equal(fo_comm_meet(&one, got, sizeof got), FO_ECOMM);
	/* rank 0 of the next start replaces what it finds */
	noise(given, sizeof given / 2);
	ok(fo_comm_meet(&zero, given, sizeof given));
	ok(fo_comm_meet(&one, got, sizeof got));
	assert_memory_equal(given, got, sizeof given);
	fo_comm_met(&zero);
	assert_int_not_equal(access(meet_path, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_alone),      cmocka_unit_test(test_memory),
					    cmocka_unit_test(test_refused),    cmocka_unit_test(test_collectives),
					    cmocka_unit_test(test_ring),       cmocka_unit_test(test_directions),
					    cmocka_unit_test(test_all_to_all), cmocka_unit_test(test_disagree),
					    cmocka_unit_test(test_give_up),    cmocka_unit_test(test_env),
					    cmocka_unit_test(test_meet) };
	const struct fo_comm_place place = { .ranks = 1 };
	struct fo_comm *comm;
	int status;
	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	soft = fo_test_soft(cuda);
	if (!soft && fo_comm_nccl_open(&comm, cuda, &place) != FO_OK) {
		printf("skipped: no NCCL: %s\n", fo_err_text());
		return 77;
	}
	if (!soft)
		fo_comm_close(comm);
	if (!mkdtemp(folder))
		return 1;
	snprintf(meet_path, sizeof meet_path, "%s/meet", folder);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(folder);
	fo_cuda_close(cuda);
	return failed;
}
