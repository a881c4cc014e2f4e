#define _GNU_SOURCE /* sched_setaffinity */
#include "kernel/place.h"

#include "base/str.h"
#include "hw/topology.h"

#include <errno.h>
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

static struct fo_cpus only(int cpu)
{
	struct fo_cpus s = { { 0 } };
	fo_cpus_add(&s, cpu);
	return s;
}

static void remove_cpu(struct fo_cpus *s, int cpu) { s->word[cpu / 64] &= ~((uint64_t)1 << (cpu % 64)); }

#ifdef FO_HAVE_HWLOC
#include <hwloc.h>

/* The n-th hardware thread of this core that may be used; -1. */
static int pu_of_core(hwloc_obj_t core, const struct fo_cpus *allowed, int n)
{
	int os = hwloc_bitmap_first(core->cpuset);
	for (; os >= 0; os = hwloc_bitmap_next(core->cpuset, os))
		if (fo_cpus_have(allowed, os) && n-- == 0)
			return os;
	return -1;
}

/* Cores in hwloc's logical order: those of one package and NUMA node stand together. First a thread on each core, then
 * the second ones. */
static void spread(struct fo_place *p, int threads, hwloc_topology_t t)
{
	int cores = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
	int kind = cores > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU, before = -1;
	cores = hwloc_get_nbobjs_by_type(t, kind);
	for (int round = 0; p->threads < threads && p->threads != before; round++) {
		before = p->threads;
		for (int c = 0; c < cores && p->threads < threads; c++) {
			int os = pu_of_core(hwloc_get_obj_by_type(t, kind, (unsigned)c), &p->allowed, round);
			if (os >= 0)
				p->cpu[p->threads++] = os;
		}
	}
}

static fo_status plan_cores(struct fo_place *p, int threads, const char *synthetic)
{
	hwloc_topology_t t;
	if (hwloc_topology_init(&t))
		return fo_fail(FO_ENOMEM, "hwloc cannot describe this machine");
	/* The topology stays whole: the processors that may be used are known already. */
	hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
	if ((synthetic && hwloc_topology_set_synthetic(t, synthetic)) || hwloc_topology_load(t)) {
		hwloc_topology_destroy(t);
		return fo_fail(FO_EUNSUPPORTED, "hwloc cannot describe this machine");
	}
	spread(p, threads, t);
	hwloc_topology_destroy(t);
	return FO_OK;
}
#else
static fo_status plan_cores(struct fo_place *p, int threads, const char *synthetic)
{
	(void)p, (void)threads, (void)synthetic;
	return fo_hint(fo_fail(FO_EUNSUPPORTED, "run.affinity is 'cores', but this build has no hwloc"),
		       "build with the Debian package 'libhwloc-dev', or give a list of hardware threads: "
		       "run.affinity=0,2");
}
#endif

/* Takes processors by number: the first thread gets the lowest. */
static fo_status plan_list(struct fo_place *p, const char *list, int threads)
{
	struct fo_cpus all;
	char shown[128];
	fo_str_visible(shown, sizeof shown, list);
	if (!fo_cpus_parse(list, &all) || !fo_cpus_count(&all))
		return fo_hint(fo_fail(FO_EARG, "run.affinity is '%s', which is no list of hardware threads", shown),
			       "it may be auto, none, cores, or a list like 0,2,4-7");
	for (int cpu = 0; cpu < FO_CPUS_MAX; cpu++) {
		if (!fo_cpus_have(&all, cpu))
			continue;
		if (!fo_cpus_have(&p->allowed, cpu))
			return fo_hint(
				fo_fail(FO_EARG, "run.affinity is '%s', but this process may not use %d", shown, cpu),
				"'flatout machine' tells how many it may use");
		if (p->threads < threads)
			p->cpu[p->threads++] = cpu;
	}
	return FO_OK;
}

fo_status fo_place_plan(struct fo_place *p, const char *how, int threads, const struct fo_cpus *allowed,
			const char *synthetic)
{
	*p = (struct fo_place){ 0 };
	if (!strcmp(how, "none") || !strcmp(how, "auto"))
		return FO_OK;
	if (allowed)
		p->allowed = *allowed;
	else if (sched_getaffinity(0, sizeof p->allowed.word, (cpu_set_t *)p->allowed.word))
		return fo_fail(FO_EUNSUPPORTED, "the system does not tell which processors may be used: %s",
			       strerror(errno));
	fo_status st = strcmp(how, "cores") ? plan_list(p, how, threads) : plan_cores(p, threads, synthetic);
	if (st == FO_OK && p->threads < threads)
		st = fo_hint(fo_fail(FO_EARG, "run.affinity has %d hardware threads for %d compute threads", p->threads,
				     threads),
			     "lower run.threads or set run.affinity=none");
	p->others = p->allowed;
	for (int i = 0; i < p->threads; i++)
		remove_cpu(&p->others, p->cpu[i]);
	if (!fo_cpus_count(&p->others))
		p->others = p->allowed;
	if (st != FO_OK)
		p->threads = 0;
	return st;
}

void fo_place_share(struct fo_place *p, const struct fo_cpus *share, int threads)
{
	*p = (struct fo_place){ .shared = true, .share = *share };
	fo_cpus_here(&p->allowed);
	p->others = p->allowed;
	if (fo_cpus_count(share) && fo_cpus_count(&p->allowed))
		p->threads = threads;
}

struct fo_cpus fo_place_cpus(const struct fo_place *p)
{
	struct fo_cpus all = { { 0 } };
	if (p->threads && p->shared)
		return p->share;
	if (!p->threads)
		fo_cpus_here(&all);
	for (int i = 0; i < p->threads; i++)
		fo_cpus_add(&all, p->cpu[i]);
	return all;
}

static fo_status refused(int reason)
{
	return fo_hint(fo_fail(FO_EUNSUPPORTED, "the system refuses to bind a thread: %s", strerror(reason)),
		       "set run.affinity=none");
}

fo_status fo_place_others(const struct fo_place *p)
{
	const int reason = p->threads ? fo_cpus_bind(&p->others) : 0;
	/* A share is a wish of ours and not of the user's. */
	return reason && !p->shared ? refused(reason) : FO_OK;
}

/* Binds each thread of the team to its own processor, or to every allowed one. */
static int bind_team(const struct fo_place *p, bool free)
{
	atomic_int reason = 0;
#pragma omp parallel num_threads(p->threads)
	{
		struct fo_cpus one = p->allowed;
		if (!free)
			one = p->shared ? p->share : only(p->cpu[omp_get_thread_num()]);
		const int why = fo_cpus_bind(&one);
		if (why)
			atomic_store(&reason, why);
	}
	return atomic_load(&reason);
}

fo_status fo_place_compute(const struct fo_place *p)
{
	int reason = p->threads ? bind_team(p, false) : 0;
	return reason && !p->shared ? refused(reason) : FO_OK;
}

void fo_place_undo(const struct fo_place *p)
{
	if (p->threads)
		bind_team(p, true);
}
