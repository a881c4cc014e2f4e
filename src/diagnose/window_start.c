/* The begin of a window without marked steps. The GPU's first operation is not always the answer: the host may have
 * worked for it in the trace, and that is a part of what is looked at; or the profiler, the driver or the job was
 * starting up, and that is not. */
#include "diagnose/ledger_int.h"

#include "base/count.h"
#include "base/text.h"

/* The time in [from, to) that a thread spent in what shows work for the GPU: operators, the data loader, annotations,
 * each over before `to` (one that goes on is what launches, and its time before is often a library's own start),
 * without calls in which it waits or loads code. */
static int64_t recorded_work(const struct fo_idle *h, int32_t thread, int64_t from, int64_t to, int64_t *first)
{
	const struct fo_trace *t = h->t;
	struct fo_intervals work = { 0 }, left = { 0 }, rest = { 0 };
	*first = to;
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		bool counts = o->kind == FO_HOST_OP || o->kind == FO_HOST_DATA || o->kind == FO_HOST_NOTE;
		if (!counts || o->thread != thread || o->begin_ns < from || o->end_ns > to)
			continue;
		*first = o->begin_ns < *first ? o->begin_ns : *first;
		fo_intervals_add(&work, o->begin_ns, o->end_ns);
	}
	fo_intervals_unite(&work);
	fo_intervals_subtract(&left, &work, &h->load[thread]);
	fo_intervals_subtract(&rest, &left, &h->sync[thread]);
	int64_t ns = fo_intervals_length(&rest);
	fo_intervals_fini(&work);
	fo_intervals_fini(&left);
	fo_intervals_fini(&rest);
	return ns;
}

/* Is the part at least half of the whole? */
static bool mostly(int64_t part, int64_t whole) { return part >= whole - part; }

static void lead_in(struct fo_window *v, const struct fo_device_ops *d, const struct fo_idle *h,
		    struct fo_device_ledger *out)
{
	const struct fo_trace *t = d->t;
	int64_t first;
	for (int64_t i = 0; i < d->n; i++) {
		const struct fo_gpu_op *g = &d->op[i];
		if (g->begin_ns != v->begin || g->launch < 0)
			continue;
		const struct fo_launch *l = &t->launch[g->launch];
		int64_t to = fo_min(l->begin_ns, v->begin), work = recorded_work(h, l->thread, t->begin_ns, to, &first);
		if (work <= FO_LAUNCH_LATENCY_NS || !mostly(work, to - first))
			return;
		out->lead_ns = v->begin - first;
		v->begin = first;
		return;
	}
}

static void keep_longest(struct fo_device_ledger *out, int32_t name, int64_t begin, int64_t end, int64_t from,
			 int64_t to)
{
	int64_t ns = fo_min(end, to) - fo_max(begin, from);
	if (ns <= out->start_call_ns)
		return;
	out->start_call_ns = ns;
	out->start_call = name;
}

/* The one operator or call that takes most of [from, to) on a thread (-1: on any): what waits there is no work for the
 * job, and is recorded all the same. Annotations are no such thing: they may lie around anything. */
static void longest_call(const struct fo_trace *t, int32_t thread, int64_t from, int64_t to,
			 struct fo_device_ledger *out)
{
	out->start_call_ns = 0;
	for (int64_t i = 0; i < t->launch_count; i++)
		if (thread < 0 || t->launch[i].thread == thread)
			keep_longest(out, t->launch[i].name, t->launch[i].begin_ns, t->launch[i].end_ns, from, to);
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		bool call = o->kind == FO_HOST_OP || o->kind == FO_HOST_DATA || o->kind == FO_HOST_CALL ||
			    o->kind == FO_HOST_SYNC;
		if (call && (thread < 0 || o->thread == thread))
			keep_longest(out, o->name, o->begin_ns, o->end_ns, from, to);
	}
}

/* A gap is the start of something where next to nothing ran before it, it would be named as a bottleneck, and for most
 * of it nothing is recorded of what the host did for the job. */
static void skip_start(struct fo_window *v, const struct fo_device_ops *d, const struct fo_idle *h,
		       struct fo_device_ledger *out)
{
	enum { HUNDREDTH = 100, TENTH = 10 };
	const struct fo_trace *t = d->t;
	int64_t until = v->begin, ops = 0, first;
	double busy = 0, before = 0;
	for (int64_t i = 0; i < d->n; i++)
		if (d->op[i].begin_ns >= v->begin && fo_device_op_counts(d, &d->op[i]))
			busy += (double)(d->op[i].end_ns - d->op[i].begin_ns);
	for (int64_t i = 0; i < d->n && before <= busy / HUNDREDTH; i++) {
		const struct fo_gpu_op *g = &d->op[i];
		if (g->begin_ns < v->begin || g->end_ns <= g->begin_ns || !fo_device_op_counts(d, g))
			continue;
		int64_t gap = g->begin_ns - until;
		const struct fo_launch *l = g->launch >= 0 ? &t->launch[g->launch] : NULL;
		bool late = l && l->begin_ns > until; /* what is launched in time waits for something of the job */
		int64_t to = late && l->begin_ns < g->begin_ns ? l->begin_ns : g->begin_ns;
		if (ops && gap > FO_LAUNCH_LATENCY_NS && gap > (v->end - v->begin) / TENTH && (late || !l) &&
		    !(late && mostly(recorded_work(h, l->thread, until, to, &first), gap))) {
			out->start_ns = g->begin_ns - v->begin;
			out->start_ops = ops;
			longest_call(t, l ? l->thread : -1, v->begin, g->begin_ns, out);
		}
		until = fo_max(g->end_ns, until);
		before += (double)(g->end_ns - g->begin_ns);
		ops++;
	}
	v->begin += out->start_ns;
}

void fo_window_start(struct fo_window *v, const struct fo_device_ops *d, const struct fo_idle *idle,
		     struct fo_device_ledger *out)
{
	lead_in(v, d, idle, out);
	if (!out->lead_ns)
		skip_start(v, d, idle, out);
}
