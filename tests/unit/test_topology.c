/* Ranks of a host share its processors: made-up machines, as text of the shares and by what must hold of any. */
#include "base/fs.h"
#include "base/rng.h"
#include "hw/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A machine of `nodes` nodes x `cores` cores x `threads` hardware threads. Linux numbers the second threads of all
 * cores behind the first ones of all (`apart`), or those of a core beside each other. */
static void make(struct fo_topology *t, int nodes, int cores, int threads, bool apart)
{
	const int all = nodes * cores;
	for (int i = 0; i < FO_CPUS_MAX; i++)
		t->core[i] = t->node[i] = -1;
	for (int c = 0; c < all; c++)
		for (int k = 0; k < threads; k++) {
			int cpu = apart ? k * all + c : c * threads + k;
			t->core[cpu] = apart ? c : c * threads;
			t->node[cpu] = c / cores;
		}
}

static const struct {
	int nodes, cores, threads;
	bool apart;
	const char *allowed;
	int ranks, least;
	const char *share; /* of all ranks */
} row[] = {
	/* One rank has all; nothing is divided among more ranks than hardware threads. */
	{ 2, 4, 1, true, "0-7", 1, 8, "0-7" },
	{ 1, 2, 1, true, "0-1", 3, 1, "0-1 | 0-1 | 0-1" },
	{ 1, 2, 1, true, "0-1", 2, 1, "0 | 1" },
	/* A node each, two nodes each, a part of a node each. */
	{ 2, 4, 2, true, "0-15", 2, 8, "0-3,8-11 | 4-7,12-15" },
	{ 4, 2, 2, false, "0-15", 2, 8, "0-7 | 8-15" },
	{ 2, 4, 2, true, "0-15", 4, 4, "0-1,8-9 | 2-3,10-11 | 4-5,12-13 | 6-7,14-15" },
	/* Siblings stay together, however they are numbered. */
	{ 1, 4, 2, false, "0-7", 4, 2, "0-1 | 2-3 | 4-5 | 6-7" },
	{ 1, 4, 2, true, "0-7", 4, 2, "0,4 | 1,5 | 2,6 | 3,7" },
	/* Fewer cores than ranks: siblings are divided. */
	{ 1, 2, 2, true, "0-3", 3, 1, "0 | 2 | 1" },
	{ 1, 2, 2, true, "0-3", 4, 1, "0 | 2 | 1 | 3" },
	/* Three ranks on two nodes: one of them is in both, and none has less for that. */
	{ 2, 8, 1, true, "0-15", 3, 5, "0-4 | 8-12,15 | 5-7,13-14" },
	/* Whole nodes first, then cores of the one that is left. */
	{ 4, 4, 1, true, "0-15", 3, 5, "0-3,12,15 | 4-7,13 | 8-11,14" },
	/* A control group took half of one node: both ranks have as many cores, one of them all of that node. */
	{ 2, 4, 1, true, "0-5", 2, 3, "0,4-5 | 1-3" },
	/* One sibling alone may be used. */
	{ 1, 4, 2, true, "0-4", 2, 2, "0-1,4 | 2-3" },
	/* What a launcher left: numbers that nothing is known about are cores of node 0. */
	{ 1, 2, 1, true, "0-1,100-101", 2, 2, "0-1 | 100-101" },
};

static void shares_text(const struct fo_cpus *share, int ranks, char *out, size_t size)
{
	size_t n = 0;
	for (int i = 0; i < ranks; i++) {
		char one[200];
		fo_cpus_text(&share[i], one, sizeof one);
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? " | " : "", one);
		assert_true(n < size);
	}
}

static void test_shares(void **state)
{
	(void)state;
	struct fo_topology *t = malloc(sizeof *t);
	struct fo_cpus share[8], allowed;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		char text[800];
		make(t, row[i].nodes, row[i].cores, row[i].threads, row[i].apart);
		assert_true(fo_cpus_parse(row[i].allowed, &allowed));
		int least = fo_topology_share(t, &allowed, row[i].ranks, share);
		shares_text(share, row[i].ranks, text, sizeof text);
		if (strcmp(text, row[i].share) != 0 || least != row[i].least)
			fail_msg("row %zu: %s, least %d; expected %s, %d", i, text, least, row[i].share, row[i].least);
	}
	free(t);
}

static int count_nodes(const struct fo_topology *t, const struct fo_cpus *s)
{
	int n = 0, node[64] = { 0 };
	for (int cpu = 0; cpu < 1024; cpu++)
		if (fo_cpus_have(s, cpu) && !node[t->node[cpu]]++)
			n++;
	return n;
}

/* What must hold of every division, counted by hardware threads and cores. */
static void check(const struct fo_topology *t, const struct fo_cpus *allowed, int ranks, const struct fo_cpus *share,
		  int least)
{
	int cores = 0, threads = fo_cpus_count(allowed), fewest = FO_CPUS_MAX;
	static int core_owner[1024];
	memset(core_owner, 0xff, sizeof core_owner);
	for (int cpu = 0; cpu < 1024; cpu++) {
		int owners = 0;
		for (int r = 0; r < ranks; r++)
			owners += fo_cpus_have(&share[r], cpu);
		assert_true(owners == 0 || fo_cpus_have(allowed, cpu));
		if (threads >= ranks)
			assert_true(owners <= 1);
		if (fo_cpus_have(allowed, cpu) && core_owner[t->core[cpu]] == -1) {
			cores++;
			core_owner[t->core[cpu]] = -2;
		}
	}
	for (int r = 0; r < ranks; r++) {
		int own = 0;
		fewest = fo_cpus_count(&share[r]) < fewest ? fo_cpus_count(&share[r]) : fewest;
		for (int cpu = 0; cores >= ranks && cpu < 1024; cpu++) {
			if (!fo_cpus_have(&share[r], cpu))
				continue;
			int *owner = &core_owner[t->core[cpu]];
			assert_true(*owner == -2 || *owner == r); /* no core is split */
			own += *owner == -2;
			*owner = r;
		}
		if (cores >= ranks) /* equally many, and at most one more */
			assert_true(own == cores / ranks || own == cores / ranks + 1);
	}
	assert_int_equal(least, threads >= ranks ? fewest : 1);
}

static void test_any_machine(void **state)
{
	(void)state;
	enum { CASES = 3000 };
	struct fo_topology *t = malloc(sizeof *t);
	struct fo_cpus share[40], allowed;
	uint64_t at = 0;
#define DRAW(n) ((int)(fo_rng_u64(19, at++) % (uint64_t)(n)))
	for (int i = 0; i < CASES; i++) {
		const int nodes = 1 + DRAW(6), cores = 1 + DRAW(9), threads = 1 + DRAW(2), ranks = 1 + DRAW(40);
		make(t, nodes, cores, threads, DRAW(2));
		bool some = DRAW(2);
		allowed = (struct fo_cpus){ { 0 } };
		for (int cpu = 0; cpu < nodes * cores * threads; cpu++)
			if (!some || DRAW(3))
				allowed.word[cpu / 64] |= (uint64_t)1 << (cpu % 64);
		if (!fo_cpus_count(&allowed))
			allowed.word[0] = 1;
		int least = fo_topology_share(t, &allowed, ranks, share);
		check(t, &allowed, ranks, share, least);
		for (int r = 0; r < ranks && !some; r++) {
			if (ranks % nodes == 0 && cores % (ranks / nodes) == 0)
				assert_int_equal(count_nodes(t, &share[r]), 1);
			if (nodes % ranks == 0) {
				assert_int_equal(count_nodes(t, &share[r]), nodes / ranks);
				assert_int_equal(fo_cpus_count(&share[r]), nodes / ranks * cores * threads);
			}
		}
	}
	free(t);
}

/* ---- reading ---- */

static char root[64];

static void put(const char *path, const char *text)
{
	char full[300], folder[300];
	snprintf(full, sizeof full, "%s%s", root, path);
	snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(full, '/') - full), full);
	assert_int_equal(fo_fs_mkdirs(folder), FO_OK);
	assert_int_equal(fo_fs_write_atomic(full, text, strlen(text)), FO_OK);
}

static void test_read(void **state)
{
	(void)state;
	struct fo_topology *t = malloc(sizeof *t);
	strcpy(root, "/tmp/flatout-topology-XXXXXX");
	assert_non_null(mkdtemp(root));
	fo_topology_read(t, root); /* nothing is known */
	for (int i = 0; i < FO_CPUS_MAX; i++)
		assert_true(t->core[i] == -1 && t->node[i] == -1);
	put("/sys/devices/system/cpu/online", "0-3,6\n");
	fo_topology_read(t, root); /* each is a core of its own */
	assert_true(t->core[3] == 3 && t->node[3] == 0 && t->core[6] == 6 && t->core[4] == -1);
	static const char *const siblings[] = { "0,2", "1,3", "0,2", "1,3" };
	for (int i = 0; i < 4; i++) {
		char path[100];
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
		put(path, siblings[i]);
	}
	put("/sys/devices/system/cpu/cpu6/topology/thread_siblings_list", "0-1\n"); /* which it is not in */
	put("/sys/devices/system/node/online", "0,2\n");
	put("/sys/devices/system/node/node0/cpulist", "0,2\n");
	put("/sys/devices/system/node/node2/cpulist", "1,3,9\n"); /* 9 is not there */
	fo_topology_read(t, root);
	assert_true(t->core[2] == 0 && t->core[3] == 1 && t->core[6] == 6);
	assert_true(t->node[0] == 0 && t->node[2] == 0 && t->node[1] == 2 && t->node[3] == 2 && t->node[6] == 0);
	assert_true(t->core[9] == -1 && t->node[9] == -1);
	put("/sys/devices/system/node/node2/cpulist", "nonsense\n");
	fo_topology_read(t, root);
	assert_int_equal(t->node[1], 0);
	assert_int_equal(fo_fs_remove_tree(root), FO_OK);
	free(t);
}

static void test_text(void **state)
{
	(void)state;
	struct fo_cpus s;
	char text[40];
	fo_cpus_parse("", &s);
	fo_cpus_text(&s, text, sizeof text);
	assert_string_equal(text, "");
	fo_cpus_parse("0,2-3,4095", &s);
	fo_cpus_text(&s, text, sizeof text);
	assert_string_equal(text, "0,2-3,4095");
	fo_cpus_parse("0,2,4,6,8,10,12,14,16,18,20,22,24,26", &s);
	fo_cpus_text(&s, text, 16);
	assert_true(strlen(text) < 16 && !strcmp(text + strlen(text) - 3, "..."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_any_machine),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
