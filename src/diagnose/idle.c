/* Why a device idled. The operation that ends the gap tells: when it was launched, and what its thread did until then.
 */
#include "diagnose/ledger_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* Holes between two operators of a busy thread are the interpreter's. On the public traces of docs/traces.md most are
 * shorter than this, and longer ones (a logger, garbage collection, a checkpoint) mostly exceed it many times. */
#define HOLE_NS INT64_C(50000)

/* Does the host wait inside this call until the GPU has done something? */
static bool waits(const char *name)
{
	return strstr(name, "StreamSynchronize") || strstr(name, "DeviceSynchronize") ||
	       strstr(name, "EventSynchronize") || strstr(name, "CtxSynchronize") || strstr(name, "StreamWaitValue") ||
	       fo_text_ends(name, "cudaMemcpy") || fo_text_ends(name, "hipMemcpy") ||
	       fo_text_ends(name, "hipMemcpyWithStream") || fo_text_ends(name, "cudaFree");
}

/* Calls that load code onto the device: cuModuleLoadData, cuLibraryLoadData, hipModuleLoad, cuLinkComplete,
 * cudaGraphInstantiate. */
static bool loads(const char *name)
{
	return strstr(name, "ModuleLoad") || strstr(name, "LibraryLoad") || strstr(name, "cuLink") ||
	       strstr(name, "GraphInstantiate");
}

/* Capturing a graph runs nothing on the GPU: it is a preparation, as loading is. op[] is by thread, then begin. */
static void captures(struct fo_idle *h)
{
	const struct fo_trace *t = h->t;
	const struct fo_host_op *begin = NULL;
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		if (o->kind != FO_HOST_CALL)
			continue;
		const char *name = fo_trace_text(t, o->name);
		if (fo_trace_begins_capture(name))
			begin = o;
		else if (begin && begin->thread == o->thread && fo_trace_ends_capture(name)) {
			fo_intervals_add(&h->load[o->thread], begin->begin_ns, o->end_ns);
			begin = NULL;
		}
	}
}

static void collect(struct fo_idle *h, bool recorded)
{
	const struct fo_trace *t = h->t;
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		if (o->kind == FO_HOST_DATA && (!recorded || strstr(fo_trace_text(t, o->name), "DataLoader")))
			fo_intervals_add(&h->data, o->begin_ns, o->end_ns);
		else if (o->kind == FO_HOST_CALL && !recorded && loads(fo_trace_text(t, o->name)))
			fo_intervals_add(&h->load[o->thread], o->begin_ns, o->end_ns);
		else if (o->kind == FO_HOST_SYNC && (!recorded || waits(fo_trace_text(t, o->name))))
			fo_intervals_add(&h->sync[o->thread], o->begin_ns, o->end_ns);
		if (o->kind == FO_HOST_OP || o->kind == FO_HOST_CALL || o->kind == FO_HOST_SYNC)
			fo_intervals_add(&h->busy[o->thread], o->begin_ns, o->end_ns);
	}
	for (int64_t i = 0; i < t->launch_count; i++) {
		const struct fo_launch *l = &t->launch[i];
		if (recorded ? waits(fo_trace_text(t, l->name)) : l->blocking)
			fo_intervals_add(&h->sync[l->thread], l->begin_ns, l->end_ns);
		else if (!recorded && l->end_ns - l->begin_ns > FO_LAUNCH_LATENCY_NS)
			fo_intervals_add(&h->load[l->thread], l->begin_ns, l->end_ns);
		fo_intervals_add(&h->busy[l->thread], l->begin_ns, l->end_ns);
	}
	int64_t *latest = fo_xmalloc((size_t)(t->device_count + 1) * sizeof *latest);
	for (int64_t i = 0; i < t->device_count; i++)
		h->last_thread[i] = -1;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->launch < 0 || g->device < 0 || g->device >= t->device_count)
			continue;
		if (h->last_thread[g->device] < 0 || t->launch[g->launch].begin_ns > latest[g->device]) {
			latest[g->device] = t->launch[g->launch].begin_ns;
			h->last_thread[g->device] = t->launch[g->launch].thread;
		}
	}
	free(latest);
}

void fo_idle_init(struct fo_idle *h, const struct fo_trace *t, bool recorded)
{
	size_t n = (size_t)t->thread_count + 1; /* + 1: none is empty */
	*h = (struct fo_idle){ .t = t,
			       .recorded = recorded,
			       .sync = fo_xmalloc(n * sizeof *h->sync),
			       .busy = fo_xmalloc(n * sizeof *h->busy),
			       .load = fo_xmalloc(n * sizeof *h->load),
			       .last_thread = fo_xmalloc((size_t)(t->device_count + 1) * sizeof *h->last_thread) };
	collect(h, recorded);
	if (!recorded)
		captures(h);
	fo_intervals_unite(&h->data);
	for (int64_t i = 0; i < t->thread_count; i++) {
		fo_intervals_unite(&h->sync[i]);
		fo_intervals_unite(&h->load[i]);
		fo_intervals_unite(&h->busy[i]);
		fo_intervals_close(&h->busy[i], HOLE_NS);
	}
}

void fo_idle_fini(struct fo_idle *h)
{
	for (int64_t i = 0; h->t && i < h->t->thread_count; i++) {
		fo_intervals_fini(&h->sync[i]);
		fo_intervals_fini(&h->busy[i]);
		fo_intervals_fini(&h->load[i]);
	}
	fo_intervals_fini(&h->data);
	free(h->sync);
	free(h->busy);
	free(h->load);
	free(h->last_thread);
	*h = (struct fo_idle){ 0 };
}

/* A walk over one set at ascending times. */
struct cursor {
	const struct fo_intervals *s;
	size_t i;
};
static struct cursor cursor_at(const struct fo_intervals *s, int64_t at)
{
	return (struct cursor){ s, fo_intervals_find(s, at) };
}
/* Is `at` inside? *until is lowered to the next time at which the answer changes. */
static bool cursor_inside(struct cursor *c, int64_t at, int64_t *until)
{
	while (c->i < c->s->n && c->s->v[c->i].end <= at)
		c->i++;
	if (c->i == c->s->n)
		return false;
	bool inside = c->s->v[c->i].begin <= at;
	int64_t change = inside ? c->s->v[c->i].end : c->s->v[c->i].begin;
	*until = change < *until ? change : *until;
	return inside;
}

/* [from, to) before the launch on thread `thread`. */
static void divide_host(const struct fo_idle *h, int32_t thread, int64_t from, int64_t to,
			int64_t idle_ns[FO_IDLE_COUNT])
{
	struct cursor data = cursor_at(&h->data, from), sync = cursor_at(&h->sync[thread], from),
		      load = cursor_at(&h->load[thread], from), busy = cursor_at(&h->busy[thread], from);
	while (from < to) {
		int64_t until = to;
		bool in_data = cursor_inside(&data, from, &until), in_sync = cursor_inside(&sync, from, &until),
		     in_load = cursor_inside(&load, from, &until),
		     in_busy = cursor_inside(&busy, from, &until) && h->t->defect.has_host_ops;
		enum fo_idle_cause cause = FO_IDLE_HOST_OTHER;
		if (in_data)
			cause = FO_IDLE_HOST_DATA;
		else if (in_sync)
			cause = FO_IDLE_HOST_SYNC;
		else if (in_load)
			cause = FO_IDLE_LONG_CALL;
		else if (in_busy)
			cause = FO_IDLE_HOST_LAUNCH_BOUND;
		idle_ns[cause] += until - from;
		from = until;
	}
}

/* [from, to) between the begin of a call and that of the operation which it launched. */
static void divide_launch(const struct fo_idle *h, const struct fo_launch *l, int64_t from, int64_t to, int64_t end,
			  int64_t idle_ns[FO_IDLE_COUNT])
{
	/* The published values (h->recorded) count all of it as launch latency. */
	bool lasts = !h->recorded && l->end_ns - l->begin_ns > FO_LAUNCH_LATENCY_NS;
	int64_t left = lasts ? fo_min(l->end_ns, end) : l->begin_ns; /* when the call returned, or should have */
	if (lasts && from < left)
		idle_ns[l->blocking ? FO_IDLE_HOST_SYNC : FO_IDLE_LONG_CALL] += fo_min(to, left) - from;
	if (to > left)
		idle_ns[h->recorded || end - left <= FO_LAUNCH_LATENCY_NS ? FO_IDLE_LAUNCH_LATENCY
									  : FO_IDLE_DEPENDENCY] += to -
												   fo_max(from, left);
}

void fo_idle_divide(const struct fo_idle *h, int16_t device, const struct fo_gpu_op *first, int64_t begin, int64_t end,
		    int64_t from, int64_t to, int64_t idle_ns[FO_IDLE_COUNT])
{
	const struct fo_launch *l = first && first->launch >= 0 ? &h->t->launch[first->launch] : NULL;
	int32_t last = device >= 0 && device < h->t->device_count ? h->last_thread[device] : -1;
	if (!first && last >= 0) {
		divide_host(h, last, from, to, idle_ns);
	} else if (!l) {
		idle_ns[FO_IDLE_UNKNOWN] += to - from;
	} else if (l->begin_ns <= begin) { /* the host was not late; this holds for a graph's launch too */
		idle_ns[end - begin <= FO_KERNEL_GAP_NS ? FO_IDLE_KERNEL_GAP : FO_IDLE_DEPENDENCY] += to - from;
	} else {
		int64_t launched = fo_min(l->begin_ns, end); /* clocks of host and device may disagree a little */
		if (from < launched)
			divide_host(h, l->thread, from, fo_min(to, launched), idle_ns);
		if (to > launched)
			divide_launch(h, l, fo_max(from, launched), to, end, idle_ns);
	}
}

int64_t fo_idle_launch_busy(const struct fo_idle *h, const bool *launches, int64_t begin, int64_t end, int64_t *loader,
			    int64_t *both)
{
	struct fo_intervals all = { 0 }, one = { 0 };
	*loader = begin < end ? fo_intervals_within(&h->data, begin, end) : 0;
	*both = 0;
	if (!h->t->defect.has_host_ops || begin >= end)
		return -1;
	/* Threads that launch take turns (forward, backward), so their union is the time of the chain. */
	for (int64_t k = 0; k < h->t->thread_count; k++) {
		if (!launches[k])
			continue;
		struct fo_intervals busy = { 0 };
		for (size_t i = fo_intervals_find(&h->busy[k], begin); i < h->busy[k].n && h->busy[k].v[i].begin < end;
		     i++)
			fo_intervals_add(&busy, fo_max(begin, h->busy[k].v[i].begin), fo_min(end, h->busy[k].v[i].end));
		fo_intervals_subtract(&one, &busy, &h->sync[k]);
		for (size_t i = 0; i < one.n; i++)
			fo_intervals_add(&all, one.v[i].begin, one.v[i].end);
		fo_intervals_fini(&busy);
	}
	fo_intervals_unite(&all);
	int64_t ns = fo_intervals_length(&all);
	fo_intervals_intersect(&one, &all, &h->data);
	*both = fo_intervals_length(&one);
	fo_intervals_fini(&all);
	fo_intervals_fini(&one);
	return ns;
}
