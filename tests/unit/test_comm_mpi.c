/* Ranks as processes over MPI (src/comm/mpi.c): the test starts itself as four processes by the mpirun of the MPI
 * that the plugin was made for. Each kind of call, type, parts of unlike size, in place, groups of a split, in
 * pieces small and large, with delays at random: the bits are those of ranks that are threads (comm/local.h), and so
 * are the bytes counted. Two communicators are driven at once by two threads; a rank that gives up ends its own
 * world alone, and what it had under way; calls that disagree. Without the plugin or mpirun the test is skipped. */
#include "comm/local.h"
#include "comm/mpi.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "program/program.h"
#include "support/calls.h"
#include "support/mpirun.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { RANKS = 4, AT_ONCE = 6, ROUNDS = 6 };
static int self;

/* Also in threads, where cmocka cannot jump. */
static void need(bool good, const char *what, int line)
{
	if (good)
		return;
	fprintf(stderr, "rank %d, line %d: not so: %s (%s)\n", self, line, what, fo_err_text());
	abort();
}
#define NEED(x) need(x, #x, __LINE__)

static struct fo_comm *open_world(int64_t piece, uint64_t shake)
{
	struct fo_comm *c;
	NEED(fo_comm_mpi_open(&(struct fo_comm_mpi){ .piece = piece, .shake = shake }, &c) == FO_OK);
	return c;
}

static void barrier(struct fo_comm *c)
{
	float x[RANKS] = { 0 };
	NEED(fo_comm_call(c,
			  &(struct fo_comm_call){
				  .kind = FO_COMM_ALL_REDUCE, .from = x, .to = x, .n = RANKS, .dtype = FO_F32 }) ==
	     FO_OK);
}

/* ---- against threads ---- */

/* What all ranks get over comm/local.h, all driven by this thread; the output of `rank` is compared. */
static void compare(const struct drawn_call *mine, uint64_t seed, uint64_t number, int rank, int ranks)
{
	struct fo_comm *c[DRAWN_RANKS_MOST];
	struct drawn_call o[DRAWN_RANKS_MOST];
	NEED(fo_comm_local_open(ranks, NULL, c) == FO_OK);
	for (int r = 0; r < ranks; r++) {
		draw_call(&o[r], seed, number, r, ranks, true);
		NEED(fo_comm_start(c[r], &o[r].call, &o[r].request) == FO_OK);
	}
	for (int left = ranks; left;) {
		left = 0;
		for (int r = 0; r < ranks; r++) {
			bool done;
			NEED(fo_comm_test(c[r], &o[r].request, &done) == FO_OK);
			left += !done;
		}
	}
	const size_t size = fo_dtype_bytes(mine->call.dtype);
	if (memcmp(mine->to, o[rank].to, mine->to_n * size)) {
		size_t at = 0;
		while (mine->to[at] == o[rank].to[at])
			at++;
		fprintf(stderr, "%s of %s among %d, element %zu of %zu differs\n", fo_comm_kind_name(mine->call.kind),
			fo_dtype_name[mine->call.dtype], ranks, at / size, mine->to_n);
		NEED(!"the bits of ranks that are threads");
	}
	for (int r = 0; r < ranks; r++) {
		drawn_free(&o[r]);
		fo_comm_close(c[r]);
	}
}

/* Several calls are under way at once and are tested in an order that differs from rank to rank. */
static void many_calls(struct fo_comm *c, uint64_t seed, int rounds)
{
	const int rank = fo_comm_rank(c), ranks = fo_comm_ranks(c);
	int64_t bytes = fo_comm_received(c);
	for (uint64_t round = 0; round < (uint64_t)rounds; round++) {
		struct drawn_call one[AT_ONCE];
		for (uint64_t i = 0; i < AT_ONCE; i++) {
			draw_call(&one[i], seed, round * AT_ONCE + i, rank, ranks, true);
			bytes += fo_comm_wire_bytes(&one[i].call, rank, ranks);
			NEED(fo_comm_start(c, &one[i].call, &one[i].request) == FO_OK);
		}
		for (uint64_t open = AT_ONCE, turn = round; open; turn++) {
			open = 0;
			for (uint64_t i = 0; i < AT_ONCE; i++) {
				bool done;
				uint64_t which = (i + turn * (uint64_t)(rank + 1)) % AT_ONCE;
				NEED(fo_comm_test(c, &one[which].request, &done) == FO_OK);
				open += !done;
			}
			sched_yield();
		}
		for (uint64_t i = 0; i < AT_ONCE; i++) {
			compare(&one[i], seed, round * AT_ONCE + i, rank, ranks);
			drawn_free(&one[i]);
		}
	}
	NEED(fo_comm_received(c) == bytes);
}

/* Pieces of a few elements, so that parts have many, and more than slots; as large as they are made; and delays. */
static void test_bits(void **state)
{
	(void)state;
	static const struct {
		int64_t piece;
		uint64_t shake;
	} way[] = { { 0, 0 }, { 96, 0 }, { 1000, 7 }, { 40, 0 } };
	for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
		struct fo_comm *c = open_world(way[i].piece, way[i].shake);
		many_calls(c, 100 + i, ROUNDS);
		barrier(c);
		fo_comm_close(c);
	}
}

/* A group of one and one of three, halves and odd against even. */
static void test_groups(void **state)
{
	(void)state;
	static const int colour[][RANKS] = { { 0, 1, 1, 1 }, { 0, 0, 1, 1 }, { 5, 3, 5, 3 }, { 2, 2, 2, 2 } };
	struct fo_comm *c = open_world(128, 0);
	for (int s = 0; s < 4; s++) {
		struct fo_comm *group;
		NEED(fo_comm_split(c, colour[s][self], &group) == FO_OK);
		int place = 0, ranks = 0;
		for (int r = 0; r < RANKS; r++) {
			place += r < self && colour[s][r] == colour[s][self];
			ranks += colour[s][r] == colour[s][self];
		}
		NEED(fo_comm_rank(group) == place && fo_comm_ranks(group) == ranks);
		many_calls(group, (uint64_t)(10 * s + colour[s][self]), 4);
		fo_comm_close(group);
	}
	barrier(c);
	fo_comm_close(c);
}

/* ---- point to point ---- */

/* Everybody sends to everybody, several times, the receives started in another order than the sends; the last with more
 * bytes than a message holds. */
static void test_point_to_point(void **state)
{
	(void)state;
	enum { TIMES = 3, N = 3000 };
	static float to[RANKS][TIMES][N], from[RANKS][TIMES][N];
	struct fo_comm *c = open_world(1000, 3);
	struct fo_comm_request q[2 * RANKS * TIMES] = { 0 };
	int n = 0;
	for (int t = 0; t < TIMES; t++)
		for (int p = 0; p < RANKS; p++) {
			if (p == self)
				continue;
			for (int i = 0; i < N; i++)
				from[p][t][i] = (float)(100000 * self + 10000 * p + 4000 * t + i);
			struct fo_comm_call k = {
				.kind = FO_COMM_SEND, .from = from[p][t], .n = t ? N : 1, .dtype = FO_F32, .peer = p
			};
			NEED(fo_comm_start(c, &k, &q[n++]) == FO_OK);
		}
	for (int p = RANKS - 1; p >= 0; p--)
		for (int t = 0; t < TIMES && p != self; t++) {
			struct fo_comm_call k = {
				.kind = FO_COMM_RECV, .to = to[p][t], .n = t ? N : 1, .dtype = FO_F32, .peer = p
			};
			NEED(fo_comm_start(c, &k, &q[n++]) == FO_OK);
		}
	for (int open = n; open;) {
		open = 0;
		for (int i = n - 1; i >= 0; i--) {
			bool done;
			NEED(fo_comm_test(c, &q[i], &done) == FO_OK);
			open += !done;
		}
		sched_yield();
	}
	for (int p = 0; p < RANKS; p++)
		for (int t = 0; t < TIMES && p != self; t++)
			for (int i = 0; i < (t ? N : 1); i++)
				NEED(to[p][t][i] == (float)(100000 * p + 10000 * self + 4000 * t + i));
	barrier(c);
	fo_comm_close(c);
}

/* ---- large calls ---- */

/* Two sums of more pieces than there are places for at once, beside a third: who waits for the last alone ends all. */
static void test_places(void **state)
{
	(void)state;
	enum { N = 3 << 20, CALLS = 3 };
	struct fo_comm *c = open_world(0, 0);
	float *x[CALLS];
	struct fo_comm_request q[CALLS];
	for (int k = 0; k < CALLS; k++) {
		x[k] = malloc(N * sizeof *x[k]);
		for (int i = 0; i < N; i++)
			x[k][i] = (float)((i + self * 7 + k) % 1000);
		struct fo_comm_call call = {
			.kind = FO_COMM_ALL_REDUCE, .from = x[k], .to = x[k], .n = N, .dtype = FO_F32
		};
		if (k < CALLS - 1)
			NEED(fo_comm_start(c, &call, &q[k]) == FO_OK);
		else
			NEED(fo_comm_call(c, &call) == FO_OK);
	}
	for (int k = 0; k < CALLS - 1; k++)
		for (bool done = false; !done;)
			NEED(fo_comm_test(c, &q[k], &done) == FO_OK);
	for (int k = 0; k < CALLS; k++) {
		for (int i = 0; i < N; i++) {
			float sum = 0;
			for (int r = 0; r < RANKS; r++)
				sum += (float)((i + r * 7 + k) % 1000);
			NEED(x[k][i] == sum);
		}
		free(x[k]);
	}
	barrier(c);
	fo_comm_close(c);
}

/* ---- two threads ---- */

struct side {
	struct fo_comm *c;
	uint64_t seed;
};
static void *run_side(void *arg)
{
	struct side *s = arg;
	many_calls(s->c, s->seed, ROUNDS);
	return NULL;
}

/* Two communicators of the same ranks, each driven by a thread of its own. */
static void test_two_threads(void **state)
{
	(void)state;
	struct fo_comm *c = open_world(256, 0), *other;
	pthread_t thread;
	NEED(fo_comm_split(c, 0, &other) == FO_OK);
	struct side side = { .c = other, .seed = 51 };
	NEED(fo_thread_start(&thread, run_side, &side, "a thread") == FO_OK);
	many_calls(c, 52, ROUNDS);
	pthread_join(thread, NULL);
	fo_comm_close(other);
	barrier(c);
	fo_comm_close(c);
}

/* ---- what goes wrong ---- */

static fo_status test_until_over(struct fo_comm *c, struct fo_comm_request *q)
{
	fo_status st = FO_OK;
	for (bool done = false; !done && st == FO_OK;)
		st = fo_comm_test(c, q, &done);
	return st;
}

/* A rank gives up while the others wait for it, with large messages under way: they are told, and another world
 * works. Memory that rank 0 receives into is gone when rank 3, which has not looked yet, sends to it: MPI must not use
 * it any more. */
static void test_given_up(void **state)
{
	(void)state;
	enum { N = 1 << 20, BYTES = N * sizeof(float), CALLS = 4 };
	static const enum fo_comm_kind kind[CALLS] = { FO_COMM_ALL_GATHER, FO_COMM_ALL_REDUCE, FO_COMM_RECV,
						       FO_COMM_RECV };
	char *x = mmap(NULL, (size_t)2 * CALLS * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct fo_comm *good = open_world(0, 0), *bad = open_world(0, 0), *group;
	struct fo_comm_request q[CALLS];
	struct fo_comm_call k[CALLS];
	bool done;
	NEED(x != MAP_FAILED);
	NEED(fo_comm_split(bad, 0, &group) == FO_OK);
	for (int i = 0; i < CALLS; i++) {
		k[i] = (struct fo_comm_call){ .kind = kind[i], .dtype = FO_F32, .n = N, .peer = 3 };
		if (i == 0)
			k[i].n = N / RANKS;
		else if (i == 2)
			k[i].n = 16;
		k[i].from = x + (size_t)(2 * i) * BYTES;
		k[i].to = x + (size_t)(2 * i + 1) * BYTES;
	}
	static const int begins[RANKS] = { CALLS, 2, 1, 0 };
	for (int i = 0; i < begins[self]; i++) {
		NEED(fo_comm_start(group, &k[i], &q[i]) == FO_OK);
		NEED(fo_comm_test(group, &q[i], &done) == FO_OK);
	}
	barrier(good); /* a rank that splits still would be told there */
	if (self == 2) {
		fo_comm_abort(bad);
		NEED(fo_comm_start(group, &k[1], &q[1]) == FO_ECOMM);
		NEED(fo_comm_check(bad) == FO_ECOMM);
	} else if (self < 2) {
		NEED(test_until_over(group, &q[1]) == FO_ECOMM);
		NEED(strstr(fo_err_text(), "rank 2 ended the job") != NULL);
		if (self == 0)
			fo_comm_abort(bad); /* rank 1 only closes */
		NEED(fo_comm_check(bad) == FO_ECOMM);
	}
	if (self == 0)
		munmap(x, (size_t)2 * CALLS * BYTES);
	barrier(good);
	for (int i = 2; i < CALLS && self == 3; i++) {
		k[i].kind = FO_COMM_SEND;
		k[i].peer = 0;
		NEED(fo_comm_start(group, &k[i], &q[i]) == FO_OK);
	}
	many_calls(good, 61, 2);
	while (self == 3 && fo_comm_check(bad) == FO_OK)
		sched_yield();
	fo_comm_close(group);
	fo_comm_close(bad);
	if (self)
		munmap(x, (size_t)2 * CALLS * BYTES);
	NEED(fo_comm_check(good) == FO_OK);
	many_calls(good, 62, 2);
	barrier(good);
	fo_comm_close(good);
}

/* One rank calls something else, of as many bytes in as many messages, or of others. */
static void test_unlike(void **state)
{
	(void)state;
	static const struct {
		struct fo_comm_call all, one;
		const char *says; /* of the rank behind the one that differs */
	} row[] = {
		{ { .kind = FO_COMM_ALL_GATHER, .n = 8, .dtype = FO_F32 },
		  { .kind = FO_COMM_ALL_TO_ALL, .n = 8, .dtype = FO_F32 },
		  "rank 2 calls all-gather of 32 f32 where rank 1 calls all-to-all of 32 f32" },
		{ { .kind = FO_COMM_ALL_REDUCE, .n = 8, .dtype = FO_F32 },
		  { .kind = FO_COMM_ALL_REDUCE, .n = 16, .dtype = FO_BF16 },
		  "rank 2 calls all-reduce of 8 f32 where rank 1 calls all-reduce of 16 bf16" },
		{ { .kind = FO_COMM_ALL_REDUCE, .n = 8, .dtype = FO_F32 },
		  { .kind = FO_COMM_ALL_REDUCE, .n = 8, .dtype = FO_F32, .op = FO_COMM_MAX },
		  "rank 2 calls all-reduce of 8 f32 where rank 1 calls all-reduce of 8 f32" },
		{ { .kind = FO_COMM_REDUCE_SCATTER, .n = 2, .dtype = FO_F32, .accumulate = true },
		  { .kind = FO_COMM_REDUCE_SCATTER, .n = 2, .dtype = FO_F32 },
		  "rank 2 calls reduce-scatter of 8 f32 where rank 1 calls reduce-scatter of 8 f32" },
		{ { .kind = FO_COMM_BROADCAST, .n = 8, .dtype = FO_F32, .peer = 1 },
		  { .kind = FO_COMM_BROADCAST, .n = 4, .dtype = FO_F64, .peer = 1 },
		  "rank 2 calls broadcast of 8 f32 where rank 1 calls broadcast of 4 f64" },
		{ { .kind = FO_COMM_RECV, .n = 4, .dtype = FO_F32, .peer = 1 },
		  { .kind = FO_COMM_SEND, .n = 8, .dtype = FO_BF16, .peer = 2 },
		  "rank 2 calls receive of 4 f32 where rank 1 calls send of 8 bf16" },
		{ { .kind = FO_COMM_RECV, .n = 5, .dtype = FO_F32, .peer = 1 },
		  { .kind = FO_COMM_SEND, .n = 4, .dtype = FO_F32, .peer = 2 },
		  "rank 2 calls receive of 5 f32 where rank 1 calls send of 4 f32" },
		{ { .kind = FO_COMM_RECV, .n = 3, .dtype = FO_F32, .peer = 1 },
		  { .kind = FO_COMM_SEND, .n = 4, .dtype = FO_F32, .peer = 2 },
		  "rank 2 calls receive of 3 f32 where rank 1 calls send of 4 f32" },
	};
	struct fo_comm *good = open_world(0, 0);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		float x[64] = { 0 }, y[64] = { 0 };
		struct fo_comm *bad = open_world(0, 0);
		struct fo_comm_request q;
		struct fo_comm_call k = self == 1 ? row[i].one : row[i].all;
		k.from = x;
		k.to = k.kind == FO_COMM_BROADCAST ? x : y;
		if (k.kind != FO_COMM_RECV || self == 2) {
			NEED(fo_comm_start(bad, &k, &q) == FO_OK);
			/* The others have the same on both sides, and would wait. */
			fo_status st = self == 2 ? test_until_over(bad, &q) : FO_OK;
			NEED(self != 2 || st == FO_ECOMM);
			if (self == 2 && !strstr(fo_err_text(), row[i].says))
				fprintf(stderr, "not '%s'\n", row[i].says);
			NEED(self != 2 || strstr(fo_err_text(), row[i].says));
			for (bool done = false, more = true; self != 2 && more && !done;)
				more = fo_comm_test(bad, &q, &done) == FO_OK && !done && k.kind != FO_COMM_SEND;
		}
		if (self == 2)
			fo_comm_abort(bad);
		barrier(good);
		fo_comm_close(bad);
	}
	fo_comm_close(good);
}

static void test_where(void **state)
{
	(void)state;
	struct fo_comm *c = open_world(0, 0);
	struct fo_comm_launch l;
	struct fo_comm_where w = fo_comm_mpi_where(c);
	NEED(fo_comm_launched(&l) == FO_OK && l.by && l.ranks == RANKS && l.rank == fo_comm_rank(c));
	NEED(w.local_rank == self && w.local_ranks == RANKS && w.node == 0 && w.nodes == 1 && *w.host);
	NEED(l.local_rank < 0 || l.local_rank == w.local_rank);
	NEED(l.local_ranks < 0 || l.local_ranks == RANKS);
	NEED(fo_comm_mpi_reserve(RANKS) > 0 && fo_comm_mpi_reserve(5000) > fo_comm_mpi_reserve(RANKS));
	/* Nothing for what is small, all of it for what is large. */
	NEED(fo_comm_mpi_touches(1000, 4, RANKS) == 0);
	NEED(fo_comm_mpi_touches(100000, 4, RANKS) >= 2 * 400000);
	NEED(fo_comm_mpi_touches(100000, 4, RANKS) < fo_comm_mpi_reserve(RANKS));
	NEED(fo_comm_mpi_touches((int64_t)1 << 30, 4, RANKS) == fo_comm_mpi_reserve(RANKS));
	fo_comm_idle(c, true);
	NEED(fo_comm_check(c) == FO_OK);
	barrier(c);
	fo_comm_close(c);
}

/* ---- starting ---- */

int main(int argc, char **argv)
{
	struct fo_comm_launch l;
	(void)argc;
	NEED(fo_comm_launched(&l) == FO_OK);
	self = l.rank;
	if (l.ranks == 1)
		return mpirun_self(argv[0], RANKS);
	/* One rank's lines are enough; a failure speaks for itself. */
	if (l.rank && !freopen("/dev/null", "w", stdout))
		return 1;
	struct fo_comm *all = open_world(0, 0); /* MPI stays until the last test */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_where),  cmocka_unit_test(test_bits),
		cmocka_unit_test(test_groups), cmocka_unit_test(test_point_to_point),
		cmocka_unit_test(test_places), cmocka_unit_test(test_two_threads),
		cmocka_unit_test(test_unlike), cmocka_unit_test(test_given_up),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_comm_close(all);
	return failed;
}
