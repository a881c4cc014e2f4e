/* Nsight Systems' SQLite exports, schemas 3.17 to 3.25 (docs: "Nsight Systems User Guide", SQLite schema reference).
 *
 * A file holds every process that was watched. Those that share a GPU become one trace, the others one each, linked by
 * `next`, in the order of their GPUs. Host events of processes without GPU work are left out, unless none has any. */
#include "trace/nsys_int.h"

#include "base/mem.h"
#include "base/count.h"

#include <stdlib.h>

/* ---- which process works on which GPU ---- */

static void take_pair(struct nsys *x, const struct nsys_row *r)
{
	size_t n;
	/* Without the process nothing tells whose an operation is: all is one process then. */
	x->one_process |= !nsys_has(r, 1);
	int64_t process = x->one_process ? 0 : nsys_process(nsys_int(r, 1, 0)), device = nsys_int(r, 0, 0);
	struct pair *p = nsys_pair_of(x, process, device);
	x->too_many_pairs |= !p && x->pairs == MOST_PAIRS;
	if (x->too_many_pairs)
		return;
	if (!p) {
		fo_array_room(&x->pair, &x->pair_cap, x->pairs, sizeof(*x->pair));
		x->last = x->pairs++;
		p = &x->pair[x->last];
		*p = (struct pair){ .process = process, .device = device, .board = -1, .group = -1 };
	}
	const char *name = nsys_string(x, nsys_int(r, 2, nsys_int(r, 3, -1)), &n);
	p->communicates |= name && fo_kernel_class_of(name) == FO_K_COMMUNICATION;
}

/* CUDA numbers the GPUs that a process may see from 0; this table says which GPU that is. */
static void take_cuda_device(struct nsys *x, const struct nsys_row *r)
{
	for (size_t i = 0; i < x->pairs; i++)
		if ((x->pair[i].process & 0xffffff) == nsys_int(r, 2, -1) && x->pair[i].device == nsys_int(r, 1, -1))
			x->pair[i].board = nsys_int(r, 0, -1);
}

static int by_process(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	return x->process != y->process ? fo_order(x->process, y->process) : fo_order(x->device, y->device);
}

static int by_group(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	return x->gpu != y->gpu ? fo_order(x->gpu, y->gpu) : by_process(a, b);
}

/* Sets gpu of every pair: the number by which its GPU is told from others in this file. That is the process's own
 * number unless two processes mean different GPUs by one. Where no table tells, two that both communicate do: NCCL
 * refuses two ranks on one GPU. */
static void tell_gpus(struct nsys *x)
{
	bool told = true, ambiguous = false;
	if (!x->pairs) /* no GPU work: an array that was never made */
		return;
	qsort(x->pair, x->pairs, sizeof(*x->pair), by_process);
	for (size_t i = 0; i < x->pairs; i++)
		told &= x->pair[i].board >= 0;
	for (size_t i = 0; i < x->pairs; i++)
		for (size_t j = 0; j < i; j++)
			if (x->pair[i].device == x->pair[j].device && x->pair[i].process != x->pair[j].process)
				ambiguous |= told ? x->pair[i].board != x->pair[j].board
						  : x->pair[i].communicates && x->pair[j].communicates;
	for (size_t i = 0; i < x->pairs; i++) {
		struct pair *p = &x->pair[i];
		p->gpu = p->device;
		if (ambiguous)
			p->gpu = told ? p->board : (int64_t)i;
		p->number = i && p[-1].process == p->process ? p[-1].number : (int)i;
		if (p->board < 0)
			p->board = p->device;
	}
}

/* Processes that share a GPU are one group. */
static void group_pairs(struct nsys *x)
{
	if (x->pairs)
		qsort(x->pair, x->pairs, sizeof(*x->pair), by_group);
	for (size_t i = 0; i < x->pairs; i++)
		x->pair[i].group = (int)i;
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < x->pairs; i++)
			for (size_t j = 0; j < i; j++) {
				struct pair *a = &x->pair[i], *b = &x->pair[j];
				if (a->group == b->group || (a->gpu != b->gpu && a->process != b->process))
					continue;
				a->group = b->group = (int)fo_min(a->group, b->group);
				more = true;
			}
	}
	/* A group has the number of its first pair: numbers without holes, in the order of the GPUs. */
	int *now = fo_xmalloc((x->pairs + 1) * sizeof(*now));
	for (size_t i = 0; i < x->pairs; i++) {
		if (x->pair[i].group == (int)i)
			now[i] = x->groups++;
		x->pair[i].group = now[x->pair[i].group];
	}
	free(now);
}

static fo_status find_groups(struct nsys *x)
{
#define PAIRS(table)                                                                           \
	{                                                                                      \
		table, 0, take_pair, { "deviceId", "globalPid", "demangledName", "shortName" } \
	}
	static const struct nsys_table work[] = {
		PAIRS("CUPTI_ACTIVITY_KIND_KERNEL"),
		PAIRS("CUPTI_ACTIVITY_KIND_MEMCPY"),
		PAIRS("CUPTI_ACTIVITY_KIND_MEMSET"),
		PAIRS("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
	};
	static const struct nsys_table cuda = {
		"TARGET_INFO_CUDA_DEVICE", 3, take_cuda_device, { "gpuId", "cudaId", "pid" }
	};
	enum { TABLES = sizeof(work) / sizeof(*work) };
	FO_TRY(nsys_read_tables(x, work, TABLES));
	if (x->one_process) { /* a later table may say so of the earlier ones too */
		x->pairs = 0;
		FO_TRY(nsys_read_tables(x, work, TABLES));
	}
	if (x->too_many_pairs)
		return fo_fail(FO_EFORMAT, "'%s' has more than %d processes with GPUs", x->db.path, MOST_PAIRS);
	if (!x->one_process)
		FO_TRY(nsys_read_tables(x, &cuda, 1));
	tell_gpus(x);
	group_pairs(x);
	if (!x->groups)
		x->groups = 1;
	x->group = fo_xmalloc((size_t)x->groups * sizeof(*x->group));
	for (int i = 0; i < x->groups; i++) {
		fo_trace_build_init(&x->group[i].b, x->db.path);
		x->group[i].b.t->format = FO_TRACE_NSYS;
		x->group[i].diagnostics = -1;
	}
	return FO_OK;
}

/* ---- the file ---- */

static fo_status check(const struct nsys *x)
{
	static const char *const signs[] = { "META_DATA_EXPORT", "CUPTI_ACTIVITY_KIND_KERNEL",
					     "CUPTI_ACTIVITY_KIND_RUNTIME", "TARGET_INFO_SESSION_START_TIME", NULL };
	bool some = false;
	for (int i = 0; signs[i]; i++)
		some |= nsys_db_table(&x->db, signs[i]) != NULL;
	if (some && nsys_db_table(&x->db, "StringIds"))
		return FO_OK;
	return fo_hint(fo_fail(FO_EFORMAT,
			       "'%s' is an SQLite database, but no export of Nsight Systems: it has no table '%s'",
			       x->db.path, some ? "StringIds" : "META_DATA_EXPORT"),
		       "make one with: nsys export --type=sqlite --output=REPORT.sqlite REPORT.nsys-rep");
}

static fo_status read_all(struct nsys *x)
{
	static const struct nsys_table strings = { "StringIds", 2, nsys_take_string, { "id", "value" } };
	FO_TRY(check(x));
	FO_TRY(nsys_read_tables(x, &strings, 1));
	FO_TRY(find_groups(x));
	FO_TRY(nsys_read_gpu(x));
	return nsys_read_host(x);
}

/* The first group's build becomes b; the others are finished here and linked to it. */
static fo_status hand_over(struct nsys *x, struct fo_trace_build *b)
{
	struct fo_trace *next = NULL;
	fo_status st = FO_OK;
	for (int i = x->groups - 1; i > 0 && st == FO_OK; i--) {
		struct fo_trace *t;
		st = fo_trace_build_finish(&x->group[i].b, &t);
		if (st == FO_OK) {
			t->next = next;
			next = t;
		}
	}
	if (st != FO_OK) {
		fo_trace_free(next);
		return st;
	}
	fo_trace_build_drop(b);
	*b = x->group[0].b;
	x->group[0].b = (struct fo_trace_build){ 0 };
	b->t->next = next;
	return FO_OK;
}

fo_status fo_trace_read_nsys(struct fo_trace_build *b, const char *path)
{
	struct nsys x = { 0 };
	FO_TRY(nsys_db_open(&x.db, path));
	fo_status st = read_all(&x);
	if (st == FO_OK)
		st = hand_over(&x, b);
	for (int i = 0; i < x.groups && x.group; i++) {
		fo_trace_build_drop(&x.group[i].b);
		free(x.group[i].candidate);
	}
	free(x.group);
	free(x.pair);
	fo_index_fini(&x.contexts);
	fo_index_fini(&x.events);
	fo_index_fini(&x.string_ids);
	free(x.string);
	fo_arena_fini(&x.arena);
	nsys_db_close(&x.db);
	return st;
}
