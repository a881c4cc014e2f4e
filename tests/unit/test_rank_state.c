/* What ranks say of themselves: round trip, files that are cut, torn, of others; who holds a job up. */
#define _DEFAULT_SOURCE
#include "base/clock.h"
#include "base/fs.h"
#include "record/rank_state_int.h"
#include "record/rank_where.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];
static struct fo_arena arena;

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/flatout-test-rank-XXXXXX");
	unsetenv(FO_RANK_JOB_VARIABLE);
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	fo_arena_fini(&arena);
	return fo_fs_remove_tree(dir) == FO_OK ? 0 : -1;
}

static const struct fo_rank_op gather = { "all_gather", "layer.f", "forward", "shard", 7, 3, 1 },
			       matmul = { "matmul", "layer.f", "forward", NULL, 5, 2, 0 };

static struct fo_rank_state *new_state(int rank, int ranks)
{
	struct fo_rank_state *s;
	assert_int_equal(fo_rank_state_open(&s, dir, rank, ranks), FO_OK);
	return s;
}

static struct fo_rank_seen see(int rank)
{
	struct fo_rank_seen r;
	fo_rank_state_read(fo_rank_state_path(&arena, dir, rank), &r);
	return r;
}

/* Changes bytes of a rank's file. */
static void put(int rank, size_t at, const void *bytes, size_t n)
{
	int fd = open(fo_rank_state_path(&arena, dir, rank), O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
	close(fd);
}
#define PUT(rank, member, v) put(rank, offsetof(struct fo_rank_bytes, member), (const void *)&(v), sizeof(v))

static void test_round_trip(void **state)
{
	(void)state;
	char text[400];
	struct fo_rank_state *s = new_state(2, 4);
	struct fo_rank_seen r = see(2);
	assert_int_equal(r.file, FO_RANK_FILE_WHOLE);
	assert_int_equal(r.phase, FO_RANK_STARTING);
	assert_int_equal(r.pid, getpid());
	assert_true(r.here && r.alive == FO_RANK_ALIVE && r.age < 5);
	fo_rank_state_step(s, 12, 100);
	fo_rank_state_lane(s, 0, "compute", FO_LANE_WAITS, &gather, fo_now_ns() - 2000000000);
	r = see(2);
	fo_rank_doing(&r, text, sizeof text);
	assert_string_equal(text, "step 12: waits for all_gather of layer 3 (forward, micro-batch 2)");
	assert_true(r.lane[0].seconds >= 2 && r.lane[0].seconds < 60);
	assert_string_equal(r.lane[0].group, "shard");
	fo_rank_state_failed(s, FO_EIO, "no room\nmore lines");
	fo_rank_state_failed(s, FO_ECOMM, "later");
	fo_rank_state_close(s, FO_OK);
	r = see(2);
	assert_int_equal(r.phase, FO_RANK_FAILED);
	assert_int_equal(r.error, FO_EIO);
	assert_string_equal(r.text, "no room");
	assert_int_equal(fo_rank_health(&r, 15), FO_HEALTH_FAILED);
}

static void test_how_it_ends(void **state)
{
	(void)state;
	fo_rank_state_close(new_state(0, 2), FO_OK);
	assert_int_equal(see(0).phase, FO_RANK_DONE);
	fo_rank_state_close(new_state(0, 2), FO_EINTERRUPT);
	assert_int_equal(see(0).phase, FO_RANK_INTERRUPTED);
	fo_rank_state_close(new_state(1, 2), FO_OK);
	assert_int_equal(fo_rank_state_clean(dir, 1), FO_OK);
	assert_int_equal(see(1).file, FO_RANK_FILE_ABSENT);
	assert_int_equal(see(0).file, FO_RANK_FILE_WHOLE);
	fo_rank_state_close(NULL, FO_OK); /* as all of them, it takes none */
	fo_rank_state_step(NULL, 1, 2);
}

/* A hand that beats, and one that has stopped: another process, which is stopped and killed. */
static void test_alive(void **state)
{
	(void)state;
	pid_t pid = fork();
	if (!pid) {
		struct fo_rank_state *s = NULL;
		/* A check that fails must not leave it behind: it holds the test's output open. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || fo_rank_state_open(&s, dir, 0, 1) != FO_OK)
			_exit(1);
		for (;;)
			pause();
	}
	struct fo_rank_seen r;
	for (int i = 0; i < 1000 && (r = see(0), r.file == FO_RANK_FILE_ABSENT || r.beats < 3); i++)
		usleep(10000);
	assert_true(r.beats >= 3); /* it beats by itself */
	assert_int_equal(fo_rank_health(&r, 1e3), FO_HEALTH_FINE);
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	r = see(0);
	assert_int_equal(fo_rank_health(&r, 1e3), FO_HEALTH_STOPPED);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	r = see(0);
	assert_int_equal(fo_rank_health(&r, 1e3), FO_HEALTH_GONE);
	/* What its parent saw goes with it, if it is of the same job. */
	struct fo_rank_end end = { .known = true, .signal = SIGKILL };
	setenv(FO_RANK_JOB_VARIABLE, r.job, 1);
	assert_int_equal(fo_rank_state_ended(dir, 0, 1, &end), FO_OK);
	struct fo_ranks_seen all;
	char text[600];
	assert_int_equal(fo_ranks_seen_read(&all, dir, NULL), FO_OK);
	assert_int_equal(fo_ranks_cause(&all, 15, 1, text, sizeof text), 0);
	assert_non_null(strstr(text, "was killed by signal 9"));
	fo_ranks_seen_fini(&all);
	end.told = true;
	assert_int_equal(fo_rank_state_ended(dir, 0, 1, &end), FO_OK);
	r = see(0);
	assert_int_equal(fo_rank_health(&r, 15), FO_HEALTH_ECHO);
}

/* Readers trust nothing. */
static void test_damage(void **state)
{
	(void)state;
	struct fo_rank_bytes whole;
	char *text;
	size_t len;
	fo_rank_state_close(new_state(0, 1), FO_OK);
	assert_int_equal(fo_fs_read(&arena, fo_rank_state_path(&arena, dir, 0), 1 << 20, &text, &len), FO_OK);
	assert_int_equal(len, sizeof whole);
	memcpy((void *)&whole, text, len);
	for (size_t cut = 0; cut < sizeof whole; cut += 61) {
		assert_int_equal(fo_fs_write_atomic(fo_rank_state_path(&arena, dir, 0), text, cut), FO_OK);
		assert_int_equal(see(0).file, FO_RANK_FILE_DAMAGED);
	}
	uint64_t x = 88172645463325252u; /* xorshift: any bytes behind the head */
	for (int i = 0; i < 2000; i++) {
		struct fo_rank_seen r;
		char *b = fo_arena_alloc(&arena, len);
		memcpy(b, text, len);
		for (size_t k = i % 2 ? 24 : 0; k < len; k++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			b[k] = (char)(x >> 32);
		}
		assert_int_equal(fo_fs_write_atomic(fo_rank_state_path(&arena, dir, 0), b, len), FO_OK);
		r = see(0);
		assert_int_equal(r.file, i % 2 ? FO_RANK_FILE_WHOLE : FO_RANK_FILE_DAMAGED);
		char doing[600];
		if (i % 2)
			fo_rank_doing(&r, doing, sizeof doing);
	}
	assert_int_equal(mkdir(fo_arena_printf(&arena, "%s/ranks/00003.state", dir), 0700), 0);
	assert_int_equal(see(3).file, FO_RANK_FILE_DAMAGED);
}

/* A lane that stands in the middle of a change is not believed. */
static void test_torn(void **state)
{
	(void)state;
	struct fo_rank_state *s = new_state(0, 1);
	fo_rank_state_step(s, 1, 2);
	fo_rank_state_lane(s, 0, "compute", FO_LANE_RUNS, &matmul, fo_now_ns());
	uint32_t odd = 3;
	PUT(0, lane[0].turn, odd);
	struct fo_rank_seen r = see(0);
	char text[600];
	assert_true(r.lane[0].torn && !*r.lane[0].op);
	fo_rank_doing(&r, text, sizeof text);
	assert_string_equal(text, "step 1");
	fo_rank_state_close(s, FO_OK);
}

/* The file is cut below the map: the rank goes on. */
static void test_cut_below(void **state)
{
	(void)state;
	struct fo_rank_state *s = new_state(0, 1);
	assert_int_equal(truncate(fo_rank_state_path(&arena, dir, 0), 0), 0);
	for (int i = 0; i < 3; i++)
		fo_rank_state_lane(s, i, "lane", FO_LANE_RUNS, &matmul, fo_now_ns());
	fo_rank_state_step(s, 5, 6);
	fo_rank_state_close(s, FO_OK);
}

/* Under another system only new heartbeats count, whatever its clocks say. */
static void test_elsewhere(void **state)
{
	(void)state;
	struct fo_ranks_watch w = { 0 };
	struct fo_rank_state *s = new_state(0, 1);
	char boot[40] = "another system";
	PUT(0, boot, boot);
	int64_t far = INT64_MAX / 2; /* a clock that is centuries ahead */
	PUT(0, begun_ns, far);
	assert_int_equal(fo_ranks_watch_look(&w, dir, NULL), FO_OK);
	assert_true(isnan(w.seen.rank[0].age));
	assert_true(fo_ranks_need_watch(&w.seen));
	assert_int_equal(fo_rank_health(&w.seen.rank[0], 15), FO_HEALTH_UNKNOWN);
	usleep(600000);
	assert_int_equal(fo_ranks_watch_look(&w, dir, NULL), FO_OK);
	assert_int_equal(fo_rank_health(&w.seen.rank[0], 15), FO_HEALTH_FINE);
	fo_rank_state_close(s, FO_OK);
	/* It has stopped beating, and did not say that it ended. */
	uint32_t phase = FO_RANK_STEP;
	PUT(0, phase, phase);
	assert_int_equal(fo_ranks_watch_look(&w, dir, NULL), FO_OK); /* its last beat arrives */
	usleep(50000);
	assert_int_equal(fo_ranks_watch_look(&w, dir, NULL), FO_OK);
	assert_int_equal(fo_rank_health(&w.seen.rank[0], 0.04), FO_HEALTH_SILENT);
	fo_ranks_watch_fini(&w);
}

/* Ranks of a job by hand: all are threads of this process. */
static void test_cause(void **state)
{
	(void)state;
	char text[1400];
	struct fo_ranks_seen all;
	struct fo_rank_state *s[4];
	for (int i = 0; i < 3; i++) {
		if (i)
			assert_int_equal(fo_rank_state_open_beside(&s[i], s[0], i, 4), FO_OK);
		else
			s[0] = new_state(0, 4);
		fo_rank_state_step(s[i], 9, 10);
		fo_rank_state_lane(s[i], 0, "compute", i == 1 ? FO_LANE_RUNS : FO_LANE_WAITS,
				   i == 1 ? &matmul : &gather, fo_now_ns() - 5000000000);
	}
	assert_int_equal(fo_ranks_seen_read(&all, dir, NULL), FO_OK);
	assert_int_equal(all.ranks, 4);
	assert_int_equal(fo_ranks_cause(&all, 15, 2, text, sizeof text), 3); /* it never came */
	assert_non_null(strstr(text, "left no file"));
	fo_ranks_seen_fini(&all);
	assert_int_equal(fo_rank_state_open_beside(&s[3], s[0], 3, 4), FO_OK);
	fo_rank_state_step(s[3], 9, 10);
	fo_rank_state_lane(s[3], 0, "compute", FO_LANE_WAITS, &gather, fo_now_ns() - 5000000000);
	assert_int_equal(fo_ranks_seen_read(&all, dir, NULL), FO_OK);
	assert_int_equal(fo_ranks_cause(&all, 15, 2, text, sizeof text), 1); /* it computes, all others wait */
	assert_non_null(strstr(text, "what the others wait for"));
	assert_non_null(strstr(text, "matmul of layer 2"));
	assert_int_equal(fo_ranks_cause(&all, 15, 60, text, sizeof text), -1); /* nobody has waited for long */
	fo_ranks_seen_fini(&all);
	/* The cause comes before its echoes. */
	fo_rank_state_failed(s[0], FO_ECOMM, "rank 2 ended the job");
	fo_rank_state_failed(s[2], FO_EIO, "the disk is full");
	assert_int_equal(fo_ranks_seen_read(&all, dir, NULL), FO_OK);
	assert_int_equal(fo_ranks_cause(&all, 15, 2, text, sizeof text), 2);
	assert_non_null(strstr(text, "the disk is full"));
	fo_ranks_seen_fini(&all);
	/* Files of an earlier job do not count. */
	for (int i = 0; i < 4; i++)
		fo_rank_state_close(s[i], FO_OK);
	setenv(FO_RANK_JOB_VARIABLE, "the next one", 1);
	s[0] = new_state(0, 2);
	assert_int_equal(fo_ranks_seen_read(&all, dir, NULL), FO_OK);
	assert_int_equal(all.ranks, 2);
	assert_int_equal(all.strangers, 3);
	assert_int_equal(all.rank[1].file, FO_RANK_FILE_ABSENT);
	fo_ranks_seen_fini(&all);
	fo_rank_state_close(s[0], FO_OK);
}

static void test_lists(void **state)
{
	(void)state;
	static const bool in[] = { true, true, false, true, true, true, false, true };
	char text[80];
	fo_ranks_text(in, 8, text, sizeof text);
	assert_string_equal(text, "0, 1, 3-5, 7");
	fo_ranks_text(in, 0, text, sizeof text);
	assert_string_equal(text, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = { TEST(test_round_trip), TEST(test_how_it_ends), TEST(test_alive),
					    TEST(test_damage),     TEST(test_torn),        TEST(test_cut_below),
					    TEST(test_elsewhere),  TEST(test_cause),       TEST(test_lists) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
