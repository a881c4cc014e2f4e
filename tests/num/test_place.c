/* Where compute threads go: planned on machines in hwloc's words, bound on this one. */
#define _GNU_SOURCE
#include "kernel/place.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct fo_cpus cpus(const char *list)
{
	struct fo_cpus s;
	assert_true(fo_cpus_parse(list, &s));
	return s;
}

static void expect(const struct fo_place *p, int n, const int *cpu)
{
	assert_int_equal(p->threads, n);
	for (int i = 0; i < n; i++)
		assert_int_equal(p->cpu[i], cpu[i]);
}

#ifdef FO_HAVE_HWLOC
/* Two NUMA nodes of two cores of two threads: 0-3 and 4-7, neighbours share a core. */
#define MACHINE "numa:2 core:2 pu:2"

static void test_cores(void **state)
{
	struct fo_cpus all = cpus("0-7"), some = cpus("1,4-7");
	struct fo_place p;
	(void)state;
	assert_int_equal(fo_place_plan(&p, "cores", 2, &all, MACHINE), FO_OK);
	expect(&p, 2, (const int[]){ 0, 2 }); /* one node, two cores */
	assert_int_equal(fo_cpus_count(&p.others), 6);
	assert_false(fo_cpus_have(&p.others, 0) || fo_cpus_have(&p.others, 2));
	assert_int_equal(fo_place_plan(&p, "cores", 5, &all, MACHINE), FO_OK);
	expect(&p, 5, (const int[]){ 0, 2, 4, 6, 1 }); /* every core before the second threads */
	assert_int_equal(fo_place_plan(&p, "cores", 8, &all, MACHINE), FO_OK);
	assert_int_equal(fo_cpus_count(&p.others), 8); /* nothing is left: all */
	/* A core of which only the second thread is allowed, and a node that is allowed whole. */
	assert_int_equal(fo_place_plan(&p, "cores", 4, &some, MACHINE), FO_OK);
	expect(&p, 4, (const int[]){ 1, 4, 6, 5 });
	assert_int_equal(fo_place_plan(&p, "cores", 6, &some, MACHINE), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "has 5 hardware threads for 6"));
	assert_int_equal(p.threads, 0);
}
#else
static void test_cores(void **state)
{
	struct fo_place p;
	(void)state;
	assert_int_equal(fo_place_plan(&p, "cores", 1, NULL, NULL), FO_EUNSUPPORTED);
	assert_non_null(strstr(fo_err_text(), "hwloc"));
}
#endif

static void test_lists(void **state)
{
	struct fo_cpus all = cpus("0-3");
	struct fo_place p;
	(void)state;
	assert_int_equal(fo_place_plan(&p, "none", 99, &all, NULL), FO_OK);
	assert_int_equal(p.threads, 0);
	assert_int_equal(fo_place_plan(&p, "1,3", 2, &all, NULL), FO_OK);
	expect(&p, 2, (const int[]){ 1, 3 });
	assert_true(fo_cpus_have(&p.others, 0) && fo_cpus_have(&p.others, 2) && fo_cpus_count(&p.others) == 2);
	static const struct {
		const char *how, *says;
	} bad[] = { { "", "no list" },
		    { "core", "no list" },
		    { "1-", "no list" },
		    { "0,9", "may not use 9" },
		    { "2", "1 hardware threads for 2" },
		    { "\x1b[2J", "no list" } };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(fo_place_plan(&p, bad[i].how, 2, &all, NULL), FO_EARG);
		if (!strstr(fo_err_text(), bad[i].says) || strchr(fo_err_text(), '\x1b'))
			fail_msg("'%s': %s", bad[i].how, fo_err_text());
		assert_int_equal(p.threads, 0);
	}
}

static struct fo_cpus mine(void)
{
	struct fo_cpus s = { { 0 } };
	assert_int_equal(sched_getaffinity(0, sizeof s.word, (cpu_set_t *)s.word), 0);
	return s;
}

static void *look(void *out)
{
	*(struct fo_cpus *)out = mine();
	return NULL;
}

static void test_bind(void **state)
{
	struct fo_cpus before = mine(), started;
	int n = fo_cpus_count(&before) < 2 ? 1 : 2, first = 0;
	char list[16];
	struct fo_place p;
	pthread_t t;
	(void)state;
	while (!fo_cpus_have(&before, first))
		first++;
	snprintf(list, sizeof list, "%d", first);
	/* One compute thread: what the caller starts before it is bound goes elsewhere, and stays there. */
	assert_int_equal(fo_place_plan(&p, list, 1, NULL, NULL), FO_OK);
	assert_int_equal(fo_place_others(&p), FO_OK);
	assert_int_equal(pthread_create(&t, NULL, look, &started), 0);
	pthread_join(t, NULL);
	assert_int_equal(fo_cpus_have(&started, first), n == 1);
	assert_int_equal(fo_place_compute(&p), FO_OK);
	started = mine();
	assert_true(fo_cpus_count(&started) == 1 && fo_cpus_have(&started, first));
	fo_place_undo(&p);
	started = mine();
	assert_memory_equal(&started, &before, sizeof before);
#ifdef FO_HAVE_HWLOC
	struct fo_cpus inner[2];
	assert_int_equal(fo_place_plan(&p, "cores", n, NULL, NULL), FO_OK);
	assert_int_equal(fo_place_compute(&p), FO_OK);
	/* The team of a later region is the same. */
#pragma omp parallel num_threads(n)
	inner[omp_get_thread_num()] = mine();
	for (int i = 0; i < n; i++)
		assert_true(fo_cpus_count(&inner[i]) == 1 && fo_cpus_have(&inner[i], p.cpu[i]));
	fo_place_undo(&p);
#pragma omp parallel num_threads(n)
	inner[omp_get_thread_num()] = mine();
	for (int i = 0; i < n; i++)
		assert_memory_equal(&inner[i], &before, sizeof before);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cores),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_bind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
