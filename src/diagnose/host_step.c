/* The step as the host sees it, divided as the PyTorch profiler's TensorBoard view divided it. */
#include "diagnose/ledger_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* A step and the GPU operations whose launch lies wholly inside it. */
struct step {
	int64_t number, begin, end, gpu_begin, gpu_end, launched;
};

static int by_begin(const void *a, const void *b)
{
	const struct step *x = a, *y = b;
	return fo_order(x->begin, y->begin);
}

static struct step *around(struct step *s, int64_t n, const struct fo_launch *l)
{
	int64_t next = FO_FIRST(i, n, s[i].begin > l->begin_ns);
	return next && l->end_ns <= s[next - 1].end ? &s[next - 1] : NULL;
}

/* A step lasts until its last GPU operation ends, and the next one begins then if that is behind the host's begin.
 * Returns how many steps are whole: of the last one the profiler may have missed operations. */
static int64_t stretch(const struct fo_trace *t, struct step *s, int64_t n)
{
	int64_t matched = 0;
	for (int64_t i = 0; i < n; i++) {
		s[i].gpu_begin = INT64_MAX;
		s[i].gpu_end = INT64_MIN;
	}
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		struct step *k = g->launch < 0 ? NULL : around(s, n, &t->launch[g->launch]);
		if (!k)
			continue;
		k->gpu_begin = fo_min(g->begin_ns, k->gpu_begin);
		k->gpu_end = fo_max(g->end_ns, k->gpu_end);
		k->launched++;
		matched++;
	}
	if (!matched)
		return n;
	int64_t before = s[0].begin;
	/* Operations that were launched in no step and ended before the first step's operations began belong to no
	 * step. */
	for (int64_t i = 0; s[0].launched && i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->end_ns < s[0].gpu_begin && g->end_ns > before &&
		    (g->launch < 0 || !around(s, n, &t->launch[g->launch])))
			before = g->end_ns;
	}
	for (int64_t i = 0; i < n; i++) {
		s[i].begin = fo_max(s[i].begin, before);
		s[i].end = fo_max(s[i].gpu_end, s[i].end);
		s[i].end = fo_max(s[i].end, s[i].begin);
		before = s[i].end;
	}
	int64_t last = n - 1;
	while (last > 0 && !s[last].launched)
		last--;
	/* Four fifths of the step before: the view's own bound for a step that was cut off. */
	if (last > 0 && 5 * s[last].launched < 4 * s[last - 1].launched)
		last--;
	return n > 1 ? last + 1 : n;
}

static bool is_collective(const char *name)
{
	static const char *const kind[] = { "broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter" };
	if (strncmp(name, "nccl:", 5) && strncmp(name, "gloo:", 5))
		return false;
	for (size_t i = 0; i < sizeof kind / sizeof *kind; i++)
		if (!strcmp(name + 5, kind[i]))
			return true;
	return false;
}

static int part_of_gpu(const struct fo_gpu_op *g)
{
	switch (g->kind) {
	case FO_GPU_MEMCPY: return FO_HOST_PART_MEMCPY;
	case FO_GPU_MEMSET: return FO_HOST_PART_MEMSET;
	default: return g->class_by_name == FO_K_COMMUNICATION ? FO_HOST_PART_COMMUNICATION : FO_HOST_PART_KERNEL;
	}
}

/* FO_HOST_PART_OTHER: none. */
static int part_of_host(const struct fo_trace *t, const struct fo_host_op *o)
{
	const char *name = fo_trace_text(t, o->name);
	switch (o->kind) {
	case FO_HOST_DATA: return FO_HOST_PART_DATA;
	case FO_HOST_SYNC:
	case FO_HOST_CALL: return FO_HOST_PART_RUNTIME;
	case FO_HOST_OP:
	case FO_HOST_NOTE:
		if (!strncmp(name, "ProfilerStep#", 13))
			return FO_HOST_PART_OTHER;
		return is_collective(name) ? FO_HOST_PART_COMMUNICATION : FO_HOST_PART_CPU;
	default: return FO_HOST_PART_OTHER;
	}
}

static void collect(const struct fo_trace *t, struct fo_intervals part[FO_HOST_PART_COUNT])
{
	for (int64_t i = 0; i < t->gpu_count; i++)
		fo_intervals_add(&part[part_of_gpu(&t->gpu[i])], t->gpu[i].begin_ns, t->gpu[i].end_ns);
	for (int64_t i = 0; i < t->launch_count; i++)
		fo_intervals_add(&part[FO_HOST_PART_RUNTIME], t->launch[i].begin_ns, t->launch[i].end_ns);
	for (int64_t i = 0; i < t->op_count; i++) {
		int k = part_of_host(t, &t->op[i]);
		if (k != FO_HOST_PART_OTHER)
			fo_intervals_add(&part[k], t->op[i].begin_ns, t->op[i].end_ns);
	}
}

struct fo_host_step *fo_host_steps(const struct fo_trace *t, int64_t *count)
{
	struct step *s = fo_xmalloc((size_t)(t->step_count + 1) * sizeof *s);
	int64_t n = 0;
	for (int64_t i = 0; i < t->step_count; i++)
		if (t->step[i].thread >= 0)
			s[n++] = (struct step){ .number = t->step[i].number,
						.begin = t->step[i].begin_ns,
						.end = t->step[i].end_ns };
	qsort(s, (size_t)n, sizeof *s, by_begin);
	n = n ? stretch(t, s, n) : 0;
	struct fo_host_step *host = fo_xmalloc((size_t)(n + 1) * sizeof *host);
	struct fo_intervals part[FO_HOST_PART_COUNT] = { 0 }, left = { 0 }, mine = { 0 }, rest = { 0 };
	if (n)
		collect(t, part);
	for (int64_t i = 0; i < n; i++) {
		host[i] = (struct fo_host_step){ .number = s[i].number, .begin_ns = s[i].begin, .end_ns = s[i].end };
		fo_intervals_add(&left, s[i].begin, s[i].end);
	}
	fo_intervals_unite(&left);
	for (int k = 0; n && k < FO_HOST_PART_COUNT; k++) {
		fo_intervals_unite(&part[k]);
		fo_intervals_intersect(&mine, &left, k == FO_HOST_PART_OTHER ? &left : &part[k]);
		for (int64_t i = 0; i < n; i++)
			host[i].part_ns[k] = fo_intervals_within(&mine, s[i].begin, s[i].end);
		fo_intervals_subtract(&rest, &left, &mine);
		struct fo_intervals swap = left;
		left = rest;
		rest = swap;
	}
	for (int k = 0; k < FO_HOST_PART_COUNT; k++)
		fo_intervals_fini(&part[k]);
	fo_intervals_fini(&left);
	fo_intervals_fini(&mine);
	fo_intervals_fini(&rest);
	free(s);
	*count = n;
	return host;
}
