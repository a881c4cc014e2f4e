#define _GNU_SOURCE /* sched_getaffinity */
#include "hw/topology.h"

#include "base/mem.h"
#include "hw/profile.h"
#include "hw/state_int.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- the machine ---- */

void fo_topology_read(struct fo_topology *t, const char *root)
{
	char text[4096];
	struct fo_cpus online, set, nodes;
	for (int cpu = 0; cpu < FO_CPUS_MAX; cpu++)
		t->core[cpu] = t->node[cpu] = -1;
	if (!fo_state_text(text, sizeof text, root, "/sys/devices/system/cpu/online") || !fo_cpus_parse(text, &online))
		return;
	for (int cpu = 0; cpu < FO_CPUS_MAX; cpu++) {
		if (!fo_cpus_have(&online, cpu))
			continue;
		bool told = fo_state_text(text, sizeof text, root,
					  "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu) &&
			    fo_cpus_parse(text, &set) && fo_cpus_have(&set, cpu);
		t->core[cpu] = told ? fo_cpus_first(&set) : cpu;
		t->node[cpu] = 0;
	}
	if (!fo_state_text(text, sizeof text, root, "/sys/devices/system/node/online") || !fo_cpus_parse(text, &nodes))
		return;
	for (int node = 0; node < FO_CPUS_MAX; node++) {
		if (!fo_cpus_have(&nodes, node) ||
		    !fo_state_text(text, sizeof text, root, "/sys/devices/system/node/node%d/cpulist", node) ||
		    !fo_cpus_parse(text, &set))
			continue;
		for (int cpu = 0; cpu < FO_CPUS_MAX; cpu++)
			if (fo_cpus_have(&set, cpu) && t->core[cpu] >= 0)
				t->node[cpu] = node;
	}
}

/* ---- sharing ---- */

/* What is given away whole: a core, or a hardware thread where there are fewer cores than ranks. */
struct unit {
	int node, core, cpu; /* cpu: the lowest */
	int owner;           /* -1: nobody's */
};

struct division {
	struct unit *unit; /* those of one node stand together */
	int units, ranks;
	bool cores; /* units are cores */
	int *need;  /* units that a rank still lacks; -1: it has one more than it needs */
};

static int by_node(const void *a, const void *b)
{
	const struct unit *x = a, *y = b;
	if (x->node != y->node)
		return x->node < y->node ? -1 : 1;
	if (x->core != y->core)
		return x->core < y->core ? -1 : 1;
	return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

/* The hardware threads in order, or those that are the first of their core. */
static int list_units(const struct fo_topology *t, const struct fo_cpus *allowed, bool cores, struct unit *out)
{
	int n = 0, kept = 0;
	for (int cpu = 0; cpu < FO_CPUS_MAX; cpu++)
		if (fo_cpus_have(allowed, cpu)) {
			const bool known = t->core[cpu] >= 0;
			out[n] = (struct unit){ .core = known ? t->core[cpu] : cpu, .cpu = cpu, .owner = -1 };
			out[n++].node = known ? t->node[cpu] : 0;
		}
	qsort(out, (size_t)n, sizeof *out, by_node);
	for (int i = 0; i < n; i++)
		if (!cores || !kept || out[kept - 1].core != out[i].core || out[kept - 1].node != out[i].node)
			out[kept++] = out[i];
	return kept;
}

static int node_end(const struct division *d, int from)
{
	int to = from;
	while (to < d->units && d->unit[to].node == d->unit[from].node)
		to++;
	return to;
}

static int free_in(const struct division *d, int from, int to)
{
	int n = 0;
	for (int i = from; i < to; i++)
		n += d->unit[i].owner < 0;
	return n;
}

static void give(struct division *d, int rank, int from, int to)
{
	for (int i = from; i < to && d->need[rank]; i++) {
		if (d->unit[i].owner >= 0)
			continue;
		d->unit[i].owner = rank;
		d->need[rank]--;
	}
}

static void give_whole_nodes(struct division *d)
{
	for (int from = 0, to; from < d->units; from = to) {
		int rank = 0;
		to = node_end(d, from);
		while (rank < d->ranks && d->need[rank] < to - from)
			rank++;
		if (rank < d->ranks)
			give(d, rank, from, to);
	}
}

/* From the node that has just enough, else from the one that has most. */
static void give_parts(struct division *d, int rank)
{
	while (d->need[rank]) {
		int best = -1, most = -1, best_free = 0, most_free = 0;
		for (int from = 0; from < d->units; from = node_end(d, from)) {
			const int n = free_in(d, from, node_end(d, from));
			if (n >= d->need[rank] && (best < 0 || n < best_free))
				best = from, best_free = n;
			if (most < 0 || n > most_free)
				most = from, most_free = n;
		}
		const int from = best >= 0 ? best : most;
		give(d, rank, from, node_end(d, from));
	}
}

/* Units that are left: one each at most, within a node. */
static void give_rest(struct division *d)
{
	for (int from = 0, to; from < d->units; from = to) {
		to = node_end(d, from);
		for (int rank = 0; rank < d->ranks; rank++) {
			bool here = false;
			for (int i = from; i < to; i++)
				here |= d->unit[i].owner == rank;
			if (!here || d->need[rank] < 0)
				continue;
			for (int i = from; i < to; i++)
				if (d->unit[i].owner < 0) {
					d->unit[i].owner = rank;
					d->need[rank] = -1;
					break;
				}
		}
	}
}

/* The unit's hardware threads: those of its core, or itself. */
static void add_unit(const struct fo_topology *t, const struct fo_cpus *allowed, const struct unit *u, bool cores,
		     struct fo_cpus *share)
{
	fo_cpus_add(share, u->cpu);
	for (int cpu = 0; cores && cpu < FO_CPUS_MAX; cpu++)
		if (fo_cpus_have(allowed, cpu) && t->core[cpu] == u->core && t->node[cpu] == u->node)
			fo_cpus_add(share, cpu);
}

/* Every rank needs at least one unit. */
static void divide(struct division *d)
{
	for (int i = 0; i < d->ranks; i++)
		d->need[i] = d->units / d->ranks;
	give_whole_nodes(d);
	for (int i = 0; i < d->ranks; i++)
		give_parts(d, i);
	if (d->cores)
		give_rest(d);
}

int fo_topology_share(const struct fo_topology *t, const struct fo_cpus *allowed, int ranks, struct fo_cpus *share)
{
	struct division d = { .ranks = ranks };
	int least = FO_CPUS_MAX;
	d.unit = fo_xmalloc(FO_CPUS_MAX * sizeof *d.unit);
	d.need = fo_xmalloc((size_t)ranks * sizeof *d.need);
	d.units = list_units(t, allowed, true, d.unit);
	d.cores = d.units >= ranks;
	if (!d.cores)
		d.units = list_units(t, allowed, false, d.unit);
	const bool divided = d.units >= ranks;
	if (divided)
		divide(&d);
	for (int i = 0; i < ranks; i++)
		share[i] = divided ? (struct fo_cpus){ { 0 } } : *allowed;
	for (int i = 0; i < d.units; i++)
		if (d.unit[i].owner >= 0)
			add_unit(t, allowed, &d.unit[i], d.cores, &share[d.unit[i].owner]);
	for (int i = 0; divided && i < ranks; i++)
		least = fo_cpus_count(&share[i]) < least ? fo_cpus_count(&share[i]) : least;
	free(d.unit);
	free(d.need);
	return divided ? least : 1;
}

void fo_cpus_here(struct fo_cpus *set)
{
	*set = (struct fo_cpus){ { 0 } };
	if (sched_getaffinity(0, sizeof set->word, (cpu_set_t *)set->word))
		*set = (struct fo_cpus){ { 0 } };
}

/* The system's own form: a bit per hardware thread, least first (sched_setaffinity(2)). */
int fo_cpus_bind(const struct fo_cpus *set)
{
	return sched_setaffinity(0, sizeof set->word, (const cpu_set_t *)set->word) ? errno : 0;
}

/* It does not change, and is hundreds of files on a large machine. */
static struct fo_topology machine;
static pthread_once_t machine_read = PTHREAD_ONCE_INIT;
static void read_machine(void) { fo_topology_read(&machine, ""); }

int fo_topology_share_here(int ranks, struct fo_cpus *share)
{
	struct fo_cpus allowed;
	int granted = fo_cpu_threads() / ranks;
	granted = granted > 1 ? granted : 1;
	fo_cpus_here(&allowed);
	if (!fo_cpus_count(&allowed)) {
		memset(share, 0, (size_t)ranks * sizeof *share);
		return granted;
	}
	pthread_once(&machine_read, read_machine);
	const int least = fo_topology_share(&machine, &allowed, ranks, share);
	return least < granted ? least : granted;
}
