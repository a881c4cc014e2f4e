/* Makes a trace of what a reader collected: sorts and links it, and leaves out what tells nothing. */
#include "trace/trace_int.h"

#include "base/mem.h"
#include "base/count.h"

#include <stdlib.h>
#include <string.h>

/* ---- sorting ----
 *
 * A stable merge sort of indices: what is in order already, as most of a profiler's output is, costs one comparison per
 * element and no memory for a second copy of the elements. */

struct order {
	uint32_t *v, *half;
};

#define FO_DEFINE_ORDER(function, type, less)                                                       \
	static bool function(struct order *o, const type *x, size_t n)                              \
	{                                                                                           \
		size_t at = 1;                                                                      \
		while (at < n && !less(&x[at], &x[at - 1]))                                         \
			at++;                                                                       \
		*o = (struct order){ NULL, NULL };                                                  \
		if (at >= n)                                                                        \
			return false;                                                               \
		o->v = fo_xrealloc(NULL, n * sizeof(*o->v));                                        \
		o->half = fo_xrealloc(NULL, (n / 2 + 1) * sizeof(*o->half) * 2);                    \
		for (size_t i = 0; i < n; i++)                                                      \
			o->v[i] = (uint32_t)i;                                                      \
		for (size_t width = 1; width < n; width *= 2)                                       \
			for (size_t low = 0; low + width < n; low += 2 * width) {                   \
				size_t mid = low + width, high = mid + width < n ? mid + width : n; \
				if (!less(&x[o->v[mid]], &x[o->v[mid - 1]]))                        \
					continue;                                                   \
				memcpy(o->half, o->v + low, width * sizeof(*o->v));                 \
				size_t a = 0, b = mid, to = low;                                    \
				while (a < width && b < high)                                       \
					if (less(&x[o->v[b]], &x[o->half[a]]))                      \
						o->v[to++] = o->v[b++];                             \
					else                                                        \
						o->v[to++] = o->half[a++];                          \
				while (a < width)                                                   \
					o->v[to++] = o->half[a++];                                  \
			}                                                                           \
		free(o->half);                                                                      \
		o->half = NULL;                                                                     \
		return true;                                                                        \
	}

/* Gathers *array by the order into a new array of exactly n. */
static void gather(void *array, const struct order *o, size_t n, size_t size)
{
	char **old = array, *new = fo_xrealloc(NULL, n * size + 1);
	for (size_t i = 0; i < n; i++)
		memcpy(new + i *size, *old + (size_t)o->v[i] * size, size);
	free(*old);
	*old = new;
}

#define FO_DEFINE_SORT(function, type, less)                        \
	FO_DEFINE_ORDER(function##_order, type, less)               \
	static void function(type **array, int64_t n)               \
	{                                                           \
		struct order o;                                     \
		if (function##_order(&o, *array, (size_t)n)) {      \
			gather(array, &o, (size_t)n, sizeof(type)); \
			free(o.v);                                  \
		}                                                   \
	}

static inline bool gpu_less(const struct fo_gpu_op *a, const struct fo_gpu_op *b)
{
	if (a->device != b->device)
		return a->device < b->device;
	if (a->begin_ns != b->begin_ns)
		return a->begin_ns < b->begin_ns;
	return a->end_ns < b->end_ns;
}
FO_DEFINE_SORT(sort_gpu, struct fo_gpu_op, gpu_less)

static inline bool stream_less(const struct fo_gpu_op *a, const struct fo_gpu_op *b)
{
	if (a->device != b->device)
		return a->device < b->device;
	if (a->stream != b->stream)
		return a->stream < b->stream;
	return a->begin_ns < b->begin_ns;
}
FO_DEFINE_ORDER(order_streams, struct fo_gpu_op, stream_less)

static inline bool launch_less(const struct fo_launch *a, const struct fo_launch *b)
{
	return a->thread != b->thread ? a->thread < b->thread : a->begin_ns < b->begin_ns;
}
FO_DEFINE_SORT(sort_launches, struct fo_launch, launch_less)

static inline bool op_less(const struct fo_host_op *a, const struct fo_host_op *b)
{
	if (a->thread != b->thread)
		return a->thread < b->thread;
	if (a->begin_ns != b->begin_ns)
		return a->begin_ns < b->begin_ns;
	return a->end_ns > b->end_ns;
}
FO_DEFINE_ORDER(order_ops, struct fo_host_op, op_less)

static inline bool wait_less(const struct fo_gpu_wait *a, const struct fo_gpu_wait *b)
{
	return a->device != b->device ? a->device < b->device : a->begin_ns < b->begin_ns;
}
FO_DEFINE_SORT(sort_waits, struct fo_gpu_wait, wait_less)

static inline bool step_less(const struct fo_trace_step *a, const struct fo_trace_step *b)
{
	return FO_ORDER_BY(fo_order(a->thread < 0, b->thread < 0), fo_order(a->device, b->device),
			   fo_order(a->begin_ns, b->begin_ns), fo_order(a->number, b->number)) < 0;
}
FO_DEFINE_SORT(sort_steps, struct fo_trace_step, step_less)

/* ---- devices ---- */

/* Devices with GPU operations come first, by id. */
static void place_devices(struct fo_trace *t)
{
	size_t n = (size_t)t->device_count;
	struct fo_trace_device *old = t->device;
	bool *works = fo_xmalloc(n + 1);
	int16_t *now = fo_xmalloc((n + 1) * sizeof(*now)); /* by the old place + 1 */
	now[0] = -1;
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].device >= 0)
			works[t->gpu[i].device] = true;
	t->device = fo_xmalloc((n + 1) * sizeof(*old));
	for (size_t i = 0; i < n; i++) { /* at most 1,024 (fo_trace_device) */
		for (size_t k = 0; k < n; k++)
			now[i + 1] += FO_ORDER_BY(fo_order(works[i], works[k]), fo_order(old[k].id, old[i].id)) < 0;
		t->device[now[i + 1]] = old[i];
	}
#define PLACE(name)                                   \
	for (int64_t i = 0; i < t->name##_count; i++) \
		t->name[i].device = now[t->name[i].device + 1];
	PLACE(gpu) PLACE(wait) PLACE(step) free(old);
	free(works);
	free(now);
}

/* ---- durations ---- */

static int less_int64(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return fo_order(x, y);
}

/* The median of the positive durations of one device; 0 without any. */
static int64_t median_duration(const struct fo_trace *t, int16_t device)
{
	int64_t *d = fo_xrealloc(NULL, (size_t)t->gpu_count * sizeof(*d) + 1), n = 0;
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].device == device && t->gpu[i].end_ns > t->gpu[i].begin_ns)
			d[n++] = t->gpu[i].end_ns - t->gpu[i].begin_ns;
	qsort(d, (size_t)n, sizeof(*d), less_int64);
	int64_t median = n ? d[n / 2] : 0;
	free(d);
	return median;
}

enum {
	CLIP_MEDIANS = 10, /* facts: docs/metrics.md, "the ledger": beyond this many medians an overlap on one stream is
			      no overlap */
};
/* Nothing on a GPU runs a day: communication gives up after 10 to 30 minutes. For an operation without a successor on
 * its stream. */
#define ABSURD_NS (24 * 3600 * (int64_t)1000000000)

/* An end so many times the length of the rest of the trace behind that rest was not measured in the same run. */
enum { FAR_LENGTHS = 10 };

struct reach {
	int64_t first, last;
};
static void reach_to(struct reach *r, int64_t begin, int64_t last)
{
	r->first = fo_min(begin, r->first);
	r->last = fo_max(last, r->last);
}

/* The last end of a GPU operation that is believed: INT64_MAX where none lies far behind everything else. Of a handful
 * of operations one that lasts may be what was measured: those that are not believed are at most a tenth of all. */
static int64_t last_believed(const struct fo_trace *t)
{
	struct reach r = { INT64_MAX, INT64_MIN };
	for (int64_t i = 0; i < t->launch_count; i++)
		reach_to(&r, t->launch[i].begin_ns, t->launch[i].end_ns);
	for (int64_t i = 0; i < t->op_count; i++)
		reach_to(&r, t->op[i].begin_ns, t->op[i].end_ns);
	for (int64_t i = 0; i < t->step_count; i++)
		reach_to(&r, t->step[i].begin_ns, t->step[i].thread < 0 ? t->step[i].begin_ns : t->step[i].end_ns);
	for (int64_t i = 0; i < t->gpu_count; i++)
		reach_to(&r, t->gpu[i].begin_ns, t->gpu[i].begin_ns);
	int64_t *end = fo_xrealloc(NULL, (size_t)t->gpu_count * sizeof(*end) + 1), late = 0, believed = INT64_MAX;
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].end_ns > r.last)
			end[late++] = t->gpu[i].end_ns;
	qsort(end, (size_t)late, sizeof(*end), less_int64);
	for (int64_t i = 0; i < late; i++) {
		if (r.last > r.first && (end[i] - r.last) / FAR_LENGTHS > r.last - r.first) {
			believed = 10 * (late - i) <= t->gpu_count ? r.last : INT64_MAX;
			break;
		}
		r.last = end[i];
	}
	free(end);
	return believed;
}

/* The end of an operation cannot lie far behind the begin of the next on its stream. What a graph replays keeps its
 * stream's number though it runs on others. */
static void clip(struct fo_trace *t)
{
	struct order o;
	int64_t believed = last_believed(t);
	bool moved = order_streams(&o, t->gpu, (size_t)t->gpu_count);
	int16_t device = -1;
	int64_t median = 0;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		struct fo_gpu_op *g = &t->gpu[moved ? o.v[i] : i];
		struct fo_gpu_op *next = NULL;
		if (i + 1 < t->gpu_count)
			next = &t->gpu[moved ? o.v[i + 1] : i + 1];
		if (g->device != device || !i) {
			device = g->device;
			median = median_duration(t, device);
		}
		if (next && (next->device != g->device || next->stream != g->stream))
			next = NULL;
		int64_t end = g->end_ns;
		if (next && !(g->flags & FO_GPU_GRAPH) && g->end_ns > next->begin_ns &&
		    (g->end_ns - next->begin_ns) / CLIP_MEDIANS > median)
			end = next->begin_ns;
		else if (g->end_ns > believed ||
			 (!next && (g->end_ns == FO_TRACE_TIME_MAX || g->end_ns - g->begin_ns > ABSURD_NS)))
			end = g->begin_ns; /* how long it ran nobody knows */
		if (end != g->end_ns) {
			g->end_ns = end;
			g->flags |= FO_GPU_CLIPPED;
			t->defect.clipped++;
		}
	}
	free(o.v);
}

static void bound(int64_t *begin, int64_t *end)
{
	*begin = fo_clamp(*begin, FO_TRACE_TIME_MIN, FO_TRACE_TIME_MAX);
	*end = fo_clamp(*end, *begin, FO_TRACE_TIME_MAX);
}

static void straighten(struct fo_trace *t)
{
	for (int64_t i = 0; i < t->gpu_count; i++) {
		struct fo_gpu_op *g = &t->gpu[i];
		t->defect.negative_duration += g->end_ns < g->begin_ns;
		t->defect.zero_duration += g->end_ns == g->begin_ns;
		t->defect.out_of_order += i && g->begin_ns < g[-1].begin_ns && g->device == g[-1].device &&
					  g->stream == g[-1].stream;
	}
#define BOUND(name)                                   \
	for (int64_t i = 0; i < t->name##_count; i++) \
		bound(&t->name[i].begin_ns, &t->name[i].end_ns);
	FO_TRACE_SPANS(BOUND)
}

/* ---- launches ---- */

/* A correlation that GPU operations carry: how many do, and the launch that it means. */
struct tie {
	int32_t operations, launch;
};
struct ties {
	struct fo_index index; /* (correlation, 0) */
	struct tie *v;
	size_t cap;
};

static void ties_init(struct ties *m, const struct fo_trace *t)
{
	*m = (struct ties){ 0 };
	for (int64_t i = 0; i < t->gpu_count; i++) {
		if (t->gpu[i].correlation < 0)
			continue;
		size_t known = m->index.n,
		       at = (size_t)fo_index_add(&m->index, t->gpu[i].correlation, 0, (int32_t)known);
		fo_array_room(&m->v, &m->cap, at, sizeof(*m->v));
		m->v[at] = (struct tie){ at < known ? m->v[at].operations + 1 : 1, -1 };
	}
}

static void ties_fini(struct ties *m)
{
	fo_index_fini(&m->index);
	free(m->v);
}

/* NULL: no operation carries it. */
static struct tie *tie_of(const struct ties *m, int64_t correlation)
{
	int32_t at = correlation < 0 ? -1 : fo_index_find(&m->index, correlation, 0);
	return at < 0 ? NULL : &m->v[at];
}

static bool is_launch(int32_t name, const uint8_t *calls)
{
	return name >= 0 && calls[name] != FO_CALL_OTHER && calls[name] != FO_CALL_SYNC;
}

/* Calls that launched stay; the others become host operations. calls[]: fo_trace_call by name, filled here. */
static void sort_out_calls(struct fo_trace_build *b, const struct ties *m, uint8_t *calls)
{
	struct fo_trace *t = b->t;
	int64_t kept = 0;
	for (int64_t i = 0; i < t->launch_count; i++) {
		struct fo_launch l = t->launch[i];
		uint8_t none = FO_CALL_OTHER, *known = l.name < 0 ? &none : &calls[l.name];
		if (*known == UINT8_MAX)
			*known = (uint8_t)fo_trace_call(fo_trace_text(t, l.name));
		if (tie_of(m, l.correlation) || is_launch(l.name, calls)) {
			l.graph |= *known == FO_CALL_LAUNCH_GRAPH;
			l.blocking |= *known == FO_CALL_LAUNCH_BLOCKING;
			t->launch[kept++] = l;
			continue;
		}
		struct fo_host_op *o = fo_trace_add_op(b, l.begin_ns, l.end_ns);
		o->name = l.name;
		o->thread = l.thread;
		o->kind = *known == FO_CALL_SYNC ? FO_HOST_SYNC : FO_HOST_CALL;
	}
	t->launch_count = kept;
}

static void link_launches(struct fo_trace *t, const struct ties *m, const uint8_t *calls)
{
	for (int64_t i = 0; i < t->launch_count; i++) {
		const struct fo_launch *l = &t->launch[i];
		struct tie *tie = tie_of(m, l->correlation);
		if (!tie)
			continue;
		/* Two calls of one correlation: the one that launches by its name, else the later. */
		const struct fo_launch *old = tie->launch < 0 ? NULL : &t->launch[tie->launch];
		bool launches = is_launch(l->name, calls), old_launches = old && is_launch(old->name, calls);
		if (!old || launches > old_launches || (launches == old_launches && l->begin_ns >= old->begin_ns))
			tie->launch = (int32_t)i;
	}
	t->defect.unlinked = t->defect.shared_correlations = 0;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		struct fo_gpu_op *g = &t->gpu[i];
		const struct tie *tie = tie_of(m, g->correlation);
		if (tie && tie->launch >= 0) {
			g->launch = tie->launch;
			if (t->launch[g->launch].graph)
				g->flags |= FO_GPU_GRAPH;
		}
		t->defect.unlinked += g->launch < 0;
		if (tie && tie->operations > 1) {
			g->flags |= FO_GPU_SHARED;
			t->defect.shared_correlations++;
		}
	}
}

/* Is the launch made while its thread captures a graph? It then runs nothing. Called with launches in their order:
 * *next and *open keep the place in op[], which has the same order. */
static bool captured(const struct fo_trace *t, const struct fo_launch *l, int64_t *next, int32_t *open)
{
	for (; *next < t->op_count; ++*next) {
		const struct fo_host_op *o = &t->op[*next];
		if (o->thread > l->thread || (o->thread == l->thread && o->begin_ns > l->begin_ns))
			break;
		const char *name = o->kind == FO_HOST_CALL ? fo_trace_text(t, o->name) : "";
		if (fo_trace_begins_capture(name))
			*open = o->thread;
		else if (fo_trace_ends_capture(name))
			*open = -1;
	}
	return *open == l->thread;
}

/* Launches of kernels that lie between launches with operations, and have none: what was recorded of the GPU was
 * thinned, or lost. */
static void count_unanswered(struct fo_trace *t, const struct ties *m)
{
	int64_t first = INT64_MAX, last = INT64_MIN, next = 0;
	int32_t open = -1;
	t->defect.unanswered = 0;
	for (int64_t i = 0; i < t->launch_count; i++) {
		const struct fo_launch *l = &t->launch[i];
		if (!tie_of(m, l->correlation))
			continue;
		first = fo_min(l->begin_ns, first);
		last = fo_max(l->begin_ns, last);
	}
	for (int64_t i = 0; i < t->launch_count; i++) {
		const struct fo_launch *l = &t->launch[i];
		if (captured(t, l, &next, &open))
			continue;
		t->defect.unanswered += l->correlation >= 0 && l->begin_ns > first && l->begin_ns < last &&
					!tie_of(m, l->correlation) && strstr(fo_trace_text(t, l->name), "LaunchKernel");
	}
}

enum { TAKEN_MANY = 100, TAKEN_LEAST = 5, TAKEN_OPERATORS = 20, TAKEN_OPERATIONS = 100 };

/* Numbers that a recorder gave one after the other: how many are left, and of which span. */
struct numbers {
	int64_t n, first, last;
	int64_t few[TAKEN_MANY]; /* the first of them */
};

static void add_number(struct numbers *v, int64_t number)
{
	v->first = fo_min(number, v->first);
	v->last = fo_max(number, v->last);
	if (v->n < TAKEN_MANY)
		v->few[v->n] = number;
	v->n++;
}

/* Are there holes nearly everywhere, as in a sampled file? Few numbers are thin after one jump too (another thread's
 * work, a part that was not recorded). A hole is half of the mean step at which operators count as thin. */
static bool holes_everywhere(struct numbers *v)
{
	int64_t holes = 0;
	qsort(v->few, (size_t)v->n, sizeof(*v->few), less_int64);
	for (int64_t i = 1; i < v->n; i++)
		holes += v->few[i] - v->few[i - 1] >= TAKEN_OPERATORS / 2;
	return 4 * holes >= 3 * (v->n - 1);
}

/* Is at most one number in `ratio` left? */
static bool are_thin(struct numbers *v, int64_t ratio)
{
	return v->n >= TAKEN_LEAST && (v->last - v->first) / ratio >= v->n &&
	       (v->n >= TAKEN_MANY || holes_everywhere(v));
}

/* The profiler numbers operators one after the other: of 50 public traces none holds fewer than one in eight. CUPTI
 * numbers every call, and where there are a hundred operations on the GPU they are one in 32 of these at least. Where
 * both are far thinner, somebody sampled the file. (Operators alone may be filtered by their length; that leaves the
 * GPU's time whole.) */
static void count_taken_out(struct fo_trace *t)
{
	struct numbers op = { .first = INT64_MAX, .last = INT64_MIN }, gpu = op;
	for (int64_t i = 0; i < t->op_count; i++)
		if (t->op[i].kind == FO_HOST_OP && t->op[i].external > 0)
			add_number(&op, t->op[i].external);
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].correlation >= 0 && t->gpu[i].correlation < FO_MADE_CORRELATION) /* the profiler's own */
			add_number(&gpu, t->gpu[i].correlation);
	if (!are_thin(&op, TAKEN_OPERATORS) || !are_thin(&gpu, TAKEN_OPERATIONS))
		return;
	t->defect.numbers = op.n;
	t->defect.numbers_of = op.last - op.first + 1;
}

/* ---- host operators ---- */

/* Sorts them; keeps what launches, what is no operator of the framework, and the outermost operators: the time in which
 * a thread is inside any operator stays the same. */
static void keep_ops(struct fo_trace *t)
{
	struct order o;
	size_t n = (size_t)t->op_count;
	bool moved = order_ops(&o, t->op, n);
	uint32_t *kept = fo_xrealloc(NULL, n * sizeof(*kept) + 1);
	size_t keep = 0;
	int64_t at = 0, covered = INT64_MIN;
	int32_t thread = -1;
	for (size_t i = 0; i < n; i++) {
		uint32_t index = moved ? o.v[i] : (uint32_t)i;
		const struct fo_host_op *p = &t->op[index];
		if (p->thread != thread)
			covered = INT64_MIN;
		thread = p->thread;
		while (at < t->launch_count &&
		       (t->launch[at].thread < thread ||
			(t->launch[at].thread == thread && t->launch[at].begin_ns < p->begin_ns)))
			at++;
		bool launches = at < t->launch_count && t->launch[at].thread == thread &&
				t->launch[at].begin_ns <= p->end_ns;
		if (launches || p->kind != FO_HOST_OP || p->collective >= 0 || p->end_ns > covered)
			kept[keep++] = index;
		if (p->kind == FO_HOST_OP && p->end_ns > covered)
			covered = p->end_ns;
	}
	free(o.v);
	if (keep < n || moved) {
		struct order only = { kept, NULL };
		gather(&t->op, &only, keep, sizeof(*t->op));
	}
	free(kept);
	t->op_count = (int64_t)keep;
}

enum {
	ROUNDING_NS = 1000, /* begin and duration were each cut to whole microseconds until 2023: an inner end may lie
			       so much behind the outer one */
};

/* The open operations of one thread, outermost first, each ending before the one around it. */
struct nest {
	int32_t *v;
	size_t n, cap;
};

/* The innermost of the nest that is open at begin and, but for rounding, until end; -1 without. Closes what is over. */
static int32_t innermost(const struct fo_trace *t, struct nest *s, int64_t begin, int64_t end)
{
	while (s->n && t->op[s->v[s->n - 1]].end_ns <= begin)
		s->n--;
	for (size_t i = s->n; i-- > 0;)
		if (t->op[s->v[i]].end_ns > begin && t->op[s->v[i]].end_ns >= end - ROUNDING_NS)
			return s->v[i];
	return -1;
}

static void open_op(struct fo_trace *t, struct nest *s, int32_t i)
{
	struct fo_host_op *p = &t->op[i];
	p->parent = innermost(t, s, p->begin_ns, p->end_ns);
	/* Whatever an operation that ends no later than p is still around, p is around too. Without them each is looked
	 * at once. */
	while (s->n && t->op[s->v[s->n - 1]].end_ns <= p->end_ns)
		s->n--;
	fo_array_room(&s->v, &s->cap, s->n, sizeof(*s->v));
	s->v[s->n++] = i;
}

/* The innermost operator of the framework among i and what is around it; without one, the innermost module or
 * annotation. */
static int32_t operator_around(const struct fo_trace *t, int32_t i)
{
	int32_t other = -1;
	for (; i >= 0; i = t->op[i].parent) {
		if (t->op[i].kind == FO_HOST_OP)
			return i;
		if (other < 0 && t->op[i].kind != FO_HOST_CALL && t->op[i].kind != FO_HOST_SYNC)
			other = i;
	}
	return other;
}

static void nest_ops(struct fo_trace *t)
{
	struct nest s = { 0 };
	int32_t at = 0, thread = -1;
	for (int64_t i = 0; i <= t->launch_count; i++) {
		struct fo_launch *l = i < t->launch_count ? &t->launch[i] : NULL;
		for (; at < t->op_count && (!l || t->op[at].thread < l->thread ||
					    (t->op[at].thread == l->thread && t->op[at].begin_ns <= l->begin_ns));
		     at++) {
			if (t->op[at].thread != thread)
				s.n = 0;
			thread = t->op[at].thread;
			open_op(t, &s, at);
		}
		if (l && l->thread == thread)
			l->op = operator_around(t, innermost(t, &s, l->begin_ns, l->begin_ns));
	}
	free(s.v);
}

/* ---- GPU operations: class, operator, collective ---- */

static void complete_gpu(struct fo_trace *t)
{
	int32_t texts = fo_trace_texts_count(t->texts);
	uint8_t *class = fo_xrealloc(NULL, (size_t)texts + 1);
	memset(class, UINT8_MAX, (size_t)texts + 1);
	for (int64_t i = 0; i < t->gpu_count; i++) {
		struct fo_gpu_op *g = &t->gpu[i];
		if (g->kind != FO_GPU_KERNEL) {
			g->class_by_name = g->class = FO_K_MEMORY;
		} else if (t->format != FO_TRACE_OWN) { /* whose reader knows the operations themselves */
			uint8_t *known = &class[g->name < 0 ? texts : g->name];
			if (*known == UINT8_MAX)
				*known = (uint8_t)fo_kernel_class_of(fo_trace_text(t, g->name));
			g->class_by_name = g->class = *known;
		}
		g->op = g->launch < 0 ? -1 : t->launch[g->launch].op;
		if (g->class == FO_K_COMMUNICATION && g->collective < 0)
			for (int32_t o = g->op; o >= 0 && g->collective < 0; o = t->op[o].parent)
				g->collective = t->op[o].collective;
	}
	free(class);
}

/* ---- steps ---- */

/* A step that is annotated twice at one place: the longer one stays. */
static void one_of_each_step(struct fo_trace *t)
{
	int64_t kept = 0;
	for (int64_t i = 0; i < t->step_count; i++) {
		struct fo_trace_step *s = &t->step[i], *last = kept ? &t->step[kept - 1] : NULL;
		if (!last || last->number != s->number || (last->thread < 0) != (s->thread < 0) ||
		    last->device != s->device) {
			t->step[kept++] = *s;
			continue;
		}
		t->defect.duplicates++;
		if (s->end_ns - s->begin_ns > last->end_ns - last->begin_ns)
			*last = *s;
	}
	t->step_count = kept;
}

static void widen(struct fo_trace *t, int64_t begin, int64_t end)
{
	if (end <= begin) /* "ts": 0, "dur": 0 */
		return;
	t->begin_ns = fo_min(begin, t->begin_ns);
	t->end_ns = fo_max(end, t->end_ns);
}

static void measure(struct fo_trace *t)
{
	t->begin_ns = INT64_MAX;
	t->end_ns = INT64_MIN;
#define WIDEN(name)                                   \
	for (int64_t i = 0; i < t->name##_count; i++) \
		widen(t, t->name[i].begin_ns, t->name[i].end_ns);
	FO_TRACE_EVENTS(WIDEN) WIDEN(step) if (t->end_ns < t->begin_ns) t->begin_ns = t->end_ns = 0;
}

static void note_what_there_is(struct fo_trace *t)
{
	struct fo_trace_defects *d = &t->defect;
	d->has_launches = t->launch_count > 0;
	d->has_gpu_waits = t->wait_count > 0;
	d->has_collective_args = t->collective_count > 0;
	for (int64_t i = 0; i < t->op_count; i++) {
		d->has_host_ops |= t->op[i].kind == FO_HOST_OP;
		d->has_modules |= t->op[i].kind == FO_HOST_MODULE;
		d->has_shapes |= t->op[i].shapes >= 0;
	}
}

fo_status fo_trace_build_finish(struct fo_trace_build *b, struct fo_trace **out)
{
	struct fo_trace *t = b->t;
	/* Indices are 32 bits wide. */
	if (t->gpu_count > INT32_MAX || t->launch_count > INT32_MAX || t->op_count > INT32_MAX - t->launch_count) {
		fo_status st = fo_fail(FO_EUNSUPPORTED, "'%s' has more than %d events of one kind", t->path, INT32_MAX);
		fo_trace_build_drop(b);
		return st;
	}
	place_devices(t);
	fo_trace_name_devices(t);
	straighten(t);
	if (t->format == FO_TRACE_KINETO) /* a database and our own timelines are not put together from parts */
		fo_trace_drop_doubled(t);
	struct ties ties;
	ties_init(&ties, t);
	int32_t texts = fo_trace_texts_count(t->texts);
	uint8_t *calls = fo_xrealloc(NULL, (size_t)texts + 1);
	memset(calls, UINT8_MAX, (size_t)texts + 1);
	sort_out_calls(b, &ties, calls);
	sort_launches(&t->launch, t->launch_count);
	link_launches(t, &ties, calls);
	if (t->defect.unlinked && fo_trace_link_by_operator(b)) {
		ties_fini(&ties);
		ties_init(&ties, t);
		calls = fo_xrealloc(calls, (size_t)fo_trace_texts_count(t->texts) + 1);
		for (int32_t i = texts; i < fo_trace_texts_count(t->texts); i++)
			calls[i] = FO_CALL_LAUNCH; /* the text of launches that no call recorded */
		sort_launches(&t->launch, t->launch_count);
		link_launches(t, &ties, calls);
	}
	free(calls);
	clip(t);
	sort_gpu(&t->gpu, t->gpu_count);
	count_taken_out(t);
	keep_ops(t);
	count_unanswered(t, &ties);
	ties_fini(&ties);
	nest_ops(t);
	complete_gpu(t);
	sort_waits(&t->wait, t->wait_count);
	sort_steps(&t->step, t->step_count);
	one_of_each_step(t);
	measure(t);
	note_what_there_is(t);
	fo_trace_attribute(t);
	fo_trace_place(t);
	*out = t;
	b->t = NULL;
	fo_trace_build_drop(b);
	return FO_OK;
}
