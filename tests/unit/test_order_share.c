/* The order of documents once for several processes: their batches are those of loaders with an order each, it takes
 * the memory of one, and a process that is killed at any moment leaves nothing behind and holds nobody up. */
#define _GNU_SOURCE
#include "data/data_int.h"

#include "base/rng.h"
#include "support/must.h"
#include "support/shard.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { USERS = 3 };

/* Reads steps from `step` on, and compares them with those of a loader that has an order of its own. */
static bool same_batches(const struct fo_shard *s, struct fo_batch_shape shape, int64_t step, int64_t steps,
			 struct fo_order_share *order)
{
	const struct fo_loader_state from = { .next_step = step, .seed = 5 };
	const size_t bytes = (size_t)(fo_batch_own_rows(&shape) * shape.seq * shape.micro_batches) * sizeof(int32_t);
	struct fo_loader *own, *shared;
	bool same = true;
	must(fo_loader_open(&own, s, &shape, &from, 0));
	must(fo_loader_open_shared(&shared, s, &shape, &from, 0, order));
	for (int64_t i = 0; i < steps && same; i++) {
		const struct fo_batch *a, *b;
		int64_t wait_ns;
		must(fo_loader_next(own, &a, &wait_ns));
		must(fo_loader_next(shared, &b, &wait_ns));
		same = !memcmp(a->token, b->token, bytes) && !memcmp(a->target, b->target, bytes) &&
		       !memcmp(a->position, b->position, bytes) && a->loss_tokens == b->loss_tokens;
	}
	fo_loader_close(own);
	fo_loader_close(shared);
	return same;
}

static int wait_for(pid_t pid)
{
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_batches_of_processes(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(60, 40, 3);
	for (int packing = 0; packing < FO_PACK_COUNT; packing++) {
		/* A batch has most of an epoch, so that epochs change all the time. */
		struct fo_batch_shape shape = { 16, 2 * USERS, 4, (enum fo_packing)packing, 0, 0, 2 };
		struct fo_order_place place;
		struct fo_order_share *order = fo_order_share_make(fo_order_bytes(&s, &shape), USERS, &place);
		assert_non_null(order);
		pid_t pid[USERS];
		for (int u = 1; u < USERS; u++) {
			pid[u] = fork();
			assert_true(pid[u] >= 0);
			if (pid[u])
				continue;
			shape.first_row = 2 * u;
			struct fo_order_share *joined = fo_order_share_join(fo_order_bytes(&s, &shape), u, &place);
			_exit(joined && same_batches(&s, shape, 3, 60 + 20 * u, joined) ? 0 : 1);
		}
		assert_true(same_batches(&s, shape, 3, 70, order));
		for (int u = 1; u < USERS; u++)
			assert_int_equal(wait_for(pid[u]), 0);
		fo_order_share_close(order);
	}
	drop_shard(&s);
}

static void test_memory(void **state)
{
	(void)state;
	enum { DOCS = 20000, EPOCHS = 12, PAGES = 8 * 4096 };
	struct fo_shard s = make_shard(DOCS, 6, 3);
	struct fo_batch_shape shape = { .seq = 64, .rows = 64, .micro_batches = 1, .packing = FO_PACK_PACKED };
	struct fo_order_place place;
	struct fo_order_share *order[USERS];
	const struct fo_loader_state from = { .seed = 5 };
	struct fo_loader *l[USERS];
	order[0] = fo_order_share_make(fo_order_bytes(&s, &shape), USERS, &place);
	assert_non_null(order[0]);
	for (int u = 0; u < USERS; u++) {
		if (u)
			order[u] = fo_order_share_join(fo_order_bytes(&s, &shape), u, &place);
		assert_non_null(order[u]);
		must(fo_loader_open_shared(&l[u], &s, &shape, &from, 0, order[u]));
	}
	const int64_t steps = EPOCHS * s.tokens / (shape.seq * shape.rows);
	int64_t most = 0, two = fo_loader_order_bytes(&s, &shape, 1);
	assert_int_equal(two, 2 * (2 * DOCS + 1) * 8);
	assert_int_equal(fo_loader_order_bytes(&s, &shape, USERS), (two + USERS - 1) / USERS);
	for (int64_t i = 0; i < steps; i++)
		for (int u = 0; u < USERS; u++) {
			const struct fo_batch *b;
			int64_t wait_ns;
			must(fo_loader_next(l[u], &b, &wait_ns));
			const int64_t now = fo_order_share_bytes(order[u]);
			most = now > most ? now : most;
		}
	/* At an epoch's end one loader has two orders and another one still those before. */
	assert_in_range(most, two, two / 2 * 3 + PAGES);
	for (int u = 0; u < USERS; u++)
		fo_loader_close(l[u]);
	/* What nobody has any more is given back when the next one is made. */
	assert_true(fo_order_share_bytes(order[0]) <= two / 2 * 3 + PAGES);
	for (int u = 0; u < USERS; u++)
		fo_order_share_close(order[u]);
	drop_shard(&s);
}

/* ---- kills ---- */

static fo_status ends_here(void *ctx, void *memory)
{
	memset(memory, 0xee, 1024);
	raise(*(int *)ctx);
	return FO_OK;
}

static fo_status number(void *ctx, void *memory)
{
	*(int64_t *)memory = *(int64_t *)ctx;
	return FO_OK;
}

/* A process that is killed while it makes a segment: the next one makes it. */
static void test_killed_in_the_middle(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(200, 40, 3);
	struct fo_batch_shape shape = { .seq = 16, .rows = 2, .micro_batches = 1 };
	struct fo_order_place place;
	struct fo_order_share *order = fo_order_share_make(fo_order_bytes(&s, &shape), 2, &place);
	assert_non_null(order);
	for (int64_t i = 0; i < 6; i++) {
		int signal = SIGKILL;
		const void *memory;
		pid_t pid = fork();
		if (!pid) {
			struct fo_order_share *joined = fo_order_share_join(fo_order_bytes(&s, &shape), 1, &place);
			if (joined && order_share_get(joined, i, ends_here, &signal, &memory) == FO_OK)
				_exit(1);
			_exit(2);
		}
		const int status = wait_for(pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		must(order_share_get(order, i, number, &i, &memory));
		assert_int_equal(*(const int64_t *)memory, i);
		must(order_share_get(order, i, ends_here, &signal, &memory)); /* it is there */
	}
	fo_order_share_close(order);
	drop_shard(&s);
}

/* A stopped process that makes a segment holds the others up, and these can give up. */
static void test_gives_up(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(200, 40, 3);
	struct fo_batch_shape shape = { .seq = 16, .rows = 2, .micro_batches = 1 };
	struct fo_order_place place;
	struct fo_order_share *order = fo_order_share_make(fo_order_bytes(&s, &shape), 2, &place);
	assert_non_null(order);
	pid_t pid = fork();
	if (!pid) {
		int signal = SIGSTOP;
		const void *memory;
		struct fo_order_share *joined = fo_order_share_join(fo_order_bytes(&s, &shape), 1, &place);
		_exit(joined && order_share_get(joined, 0, ends_here, &signal, &memory) == FO_OK ? 0 : 1);
	}
	int status = 0;
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	const struct fo_loader_state from = { .seed = 5 };
	struct fo_loader *l;
	must(fo_loader_open_shared(&l, &s, &shape, &from, 0, order));
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	fo_loader_close(l); /* returns */
	kill(pid, SIGCONT);
	assert_int_equal(wait_for(pid), 0);
	fo_order_share_close(order);
	drop_shard(&s);
}

/* What cannot be joined is no error: the loader has an order of its own. */
static void test_not_joined(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(50, 10, 3), other = make_shard(51, 10, 3);
	struct fo_batch_shape shape = { .seq = 16, .rows = 2, .micro_batches = 1 };
	struct fo_order_place place;
	struct fo_order_share *order = fo_order_share_make(fo_order_bytes(&s, &shape), 2, &place);
	assert_non_null(order);
	assert_null(fo_order_share_join(fo_order_bytes(&other, &shape), 1, &place));
	assert_null(fo_order_share_join(fo_order_bytes(&s, &shape), 2, &place));
	assert_null(fo_order_share_join(fo_order_bytes(&s, &shape), -1, &place));
	struct fo_order_place bad[] = { place, place, place, place };
	bad[0].token++;
	bad[1].fd = -1;
	bad[2].fd = 2; /* a terminal, a pipe or a file of somebody's */
	bad[3].pid = 0;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_null(fo_order_share_join(fo_order_bytes(&s, &shape), 1, &bad[i]));
	assert_null(fo_order_share_make(fo_order_bytes(&s, &shape), 0, &place));
	assert_int_equal(place.fd, -1);
	assert_true(same_batches(&s, shape, 0, 10, NULL));
	fo_order_share_quit(NULL);
	fo_order_share_close(NULL);
	fo_order_share_close(order);
	drop_shard(&s);
	drop_shard(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_batches_of_processes), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_killed_in_the_middle), cmocka_unit_test(test_gives_up),
		cmocka_unit_test(test_not_joined),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
