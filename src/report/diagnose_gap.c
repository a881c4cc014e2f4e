/* The worst gap of a step: where it lies, who launched late and what that thread did meanwhile, and the picture of it.
 */
#include "report/diagnose_doc.h"

#include "base/mem.h"
#include "base/str.h"
#include "draw/doc.h"
#include "report/ledger_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	STREAMS = 8,   /* lanes of a picture, the busiest */
	SPANS = 20000, /* of one lane: what is beyond is left out (a pixel holds a hundred) */
	OP_DEPTH = 2,  /* operators inside operators that a lane shows */
};

static char *seconds(char buf[32], int64_t ns) { return fo_draw_number(buf, (double)ns * 1e-9, FO_DRAW_SECONDS); }

/* ---- finding it ---- */

static bool is_communication(const struct fo_gpu_op *o) { return o->class == FO_K_COMMUNICATION; }

/* [begin, end) without operations (of other classes than communication, where that may run) and what lies at its ends.
 */
struct stretch {
	int64_t begin, end, before, after;
};

static void longest(struct stretch *best, int64_t begin, int64_t end, int64_t before, int64_t after)
{
	if (end - begin > best->end - best->begin)
		*best = (struct stretch){ begin, end, before, after };
}

static void sweep(const struct fo_trace *t, int16_t device, int64_t from, int64_t to, struct stretch *idle,
		  struct stretch *alone)
{
	int64_t end[2] = { from, from }, before[2] = { -1, -1 };
	bool any = false;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *o = &t->gpu[i];
		if (o->device != device || o->end_ns <= from)
			continue;
		/* An operation that begins at the end of the window ends its last gap. */
		bool last = o->begin_ns >= to;
		int64_t begin = last ? to : o->begin_ns;
		any = any || !last;
		longest(idle, end[0], begin, before[0], i);
		if (!is_communication(o) || last)
			longest(alone, end[1], begin, before[1], i);
		if (last)
			return;
		if (o->end_ns > end[0])
			end[0] = o->end_ns, before[0] = i;
		if (!is_communication(o) && o->end_ns > end[1])
			end[1] = o->end_ns, before[1] = i;
	}
	if (any) {
		longest(idle, end[0], to, before[0], -1);
		longest(alone, end[1], to, before[1], -1);
	} else {
		*idle = *alone = (struct stretch){ 0, 0, -1, -1 };
	}
}

static int64_t overlap(int64_t a, int64_t b, int64_t from, int64_t to)
{
	int64_t lo = a > from ? a : from;
	int64_t hi = b < to ? b : to;
	return hi > lo ? hi - lo : 0;
}

/* A thread's time by the name of what it did. */
struct doings {
	struct doing {
		int32_t name;
		bool call;
		int64_t ns;
	} * v;
	size_t n, cap;
};

static void did(struct doings *d, struct fo_gap *g, int32_t name, bool call, int64_t own)
{
	size_t k = 0;
	if (own <= 0)
		return;
	g->did_ns += own;
	while (k < d->n && d->v[k].name != name)
		k++;
	if (k == d->n) {
		fo_array_room(&d->v, &d->cap, d->n, sizeof *d->v);
		d->v[d->n++] = (struct doing){ name, call, 0 };
	}
	d->v[k].ns += own;
}

static void keep_longest(struct fo_gap *g, struct doings *d)
{
	for (; g->dids < FO_GAP_DID; g->dids++) {
		size_t best = d->n;
		for (size_t k = 0; k < d->n; k++)
			if (d->v[k].ns > 0 && (best == d->n || d->v[k].ns > d->v[best].ns))
				best = k;
		if (best == d->n)
			break;
		g->did[g->dids].name = d->v[best].name;
		g->did[g->dids].call = d->v[best].call;
		g->did[g->dids].ns = d->v[best].ns;
		d->v[best].ns = 0;
	}
}

/* Fills what the thread did by own time, without the operators and calls that lie inside: a launch that does not return
 * is the driver's doing, not the operator's. */
static void what_thread_did(struct fo_gap *g, int32_t thread, int64_t from, int64_t to)
{
	const struct fo_trace *t = g->trace;
	struct doings all = { 0 };
	int64_t *inside = fo_xmalloc((size_t)(t->op_count + 1) * sizeof *inside);
	for (int64_t i = 0; i < t->op_count; i++)
		if (t->op[i].thread == thread && t->op[i].parent >= 0 && t->op[i].parent < t->op_count)
			inside[t->op[i].parent] += overlap(t->op[i].begin_ns, t->op[i].end_ns, from, to);
	for (int64_t i = 0; i < t->launch_count; i++) {
		const struct fo_launch *l = &t->launch[i];
		int64_t ns = l->thread == thread ? overlap(l->begin_ns, l->end_ns, from, to) : 0;
		if (l->op >= 0 && l->op < t->op_count)
			inside[l->op] += ns;
		did(&all, g, l->name, true, ns);
	}
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		/* Frames and annotations say where, not what. */
		if (o->thread == thread && o->kind != FO_HOST_MODULE && o->kind != FO_HOST_NOTE)
			did(&all, g, o->name, o->kind == FO_HOST_SYNC || o->kind == FO_HOST_CALL,
			    overlap(o->begin_ns, o->end_ns, from, to) - inside[i]);
	}
	keep_longest(g, &all);
	g->meanwhile_ns = to - from;
	g->did_ns = g->did_ns < g->meanwhile_ns ? g->did_ns : g->meanwhile_ns;
	free(inside);
	free(all.v);
}

/* The thread of the device's last launch; -1: none is recorded. */
static int32_t last_thread(const struct fo_trace *t, int16_t device)
{
	int32_t last = -1;
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].device == device && t->gpu[i].launch >= 0 &&
		    (last < 0 || t->launch[t->gpu[i].launch].begin_ns > t->launch[last].begin_ns))
			last = t->gpu[i].launch;
	return last < 0 ? -1 : t->launch[last].thread;
}

void fo_gap_worst(struct fo_gap *g, const struct fo_rank_ledger *r, const struct fo_device_ledger *d,
		  enum fo_gap_kind kind)
{
	struct fo_subject shown;
	struct stretch idle = { 0, 0, -1, -1 }, alone = idle;
	*g = (struct fo_gap){ .trace = r->trace, .before = -1, .after = -1, .launch = -1, .thread = -1 };
	if (!d || !r->trace)
		return;
	g->device = d->device;
	fo_shown_step_of(d, &shown);
	sweep(r->trace, d->device, shown.begin_ns, shown.end_ns, &idle, &alone);
	/* A stretch with communication in it holds the idle ones beside it, so it is never shorter: it counts when most
	 * of it is. */
	g->communication = kind != FO_GAP_IDLE &&
			   alone.end - alone.begin > (kind == FO_GAP_ANY ? 2 : 1) * (idle.end - idle.begin);
	const struct stretch *s = g->communication ? &alone : &idle;
	g->begin_ns = s->begin;
	g->end_ns = s->end;
	g->before = s->before;
	g->after = s->after;
	if (s->end <= s->begin)
		return;
	if (s->after < 0) {
		g->thread = last_thread(r->trace, d->device);
		if (g->thread >= 0)
			what_thread_did(g, g->thread, s->begin, s->end);
		return;
	}
	g->launch = r->trace->gpu[s->after].launch;
	if (g->launch < 0 || g->launch >= r->trace->launch_count) {
		g->launch = -1;
		return;
	}
	const struct fo_launch *l = &r->trace->launch[g->launch];
	g->thread = l->thread;
	/* An operation that was launched in the gap's first half was not late: the device kept it waiting. */
	if (l->begin_ns - s->begin >= s->end - l->begin_ns)
		what_thread_did(g, l->thread, s->begin, l->begin_ns < s->end ? l->begin_ns : s->end);
}

/* ---- in words ---- */

static const char *thread_name(const struct fo_trace *t, int32_t thread, char *buf, size_t size)
{
	if (thread < 0 || thread >= t->thread_count)
		snprintf(buf, size, "a thread that is not known");
	else if (!strncmp(fo_trace_text(t, t->thread[thread].name), "thread ",
			  7)) /* Kineto's own: "thread 17 (python)" */
		snprintf(buf, size, "%.80s", fo_trace_text(t, t->thread[thread].name));
	else if (*fo_trace_text(t, t->thread[thread].name))
		snprintf(buf, size, "thread %lld (%.60s)", (long long)t->thread[thread].tid,
			 fo_trace_text(t, t->thread[thread].name));
	else
		snprintf(buf, size, "thread %lld", (long long)t->thread[thread].tid);
	return buf;
}

/* Says what the thread did; `first` comes before the longest. */
static void meanwhile(const struct fo_gap *g, const char *first, struct fo_str *out)
{
	char b[32];
	for (int i = 0; i < g->dids && i < 2; i++) {
		const char *call = g->did[i].call ? ", a call of the driver," : "";
		fo_str_printf(out, "%s'%.80s'%s for %s", i ? " and in " : first,
			      fo_trace_text(g->trace, g->did[i].name), call, seconds(b, g->did[i].ns));
	}
	if (g->meanwhile_ns - g->did_ns > g->meanwhile_ns / 10)
		fo_str_printf(out,
			      "%s for %s of it nothing is recorded of that thread (Python, another program, a lock)",
			      g->dids ? ";" : ":", seconds(b, g->meanwhile_ns - g->did_ns));
}

void fo_gap_words(const struct fo_gap *g, struct fo_str *out)
{
	char a[32], b[32], name[96], thread[128];
	const struct fo_trace *t = g->trace;
	if (g->end_ns <= g->begin_ns) {
		fo_str_puts(out, "The GPU was never without work in this step.");
		return;
	}
	fo_str_printf(out, "For %s, from %s after the trace's start, %s. ", seconds(a, g->end_ns - g->begin_ns),
		      seconds(b, g->begin_ns - t->begin_ns),
		      g->communication ? "only communication ran" : "the GPU did nothing");
	if (g->after < 0) {
		fo_str_puts(out, "Nothing came after it");
		if (g->thread >= 0)
			fo_str_printf(out, ": %s had launched nothing more",
				      thread_name(t, g->thread, thread, sizeof thread));
		meanwhile(g, ", and was in ", out);
		fo_str_puts(out, ".");
		return;
	}
	fo_kernel_short_name(name, sizeof name, fo_trace_text(t, t->gpu[g->after].name));
	if (g->launch < 0) {
		fo_str_printf(out,
			      "What ended it, '%s', has no record of its launch: the trace cannot tell who was late.",
			      name);
		return;
	}
	const struct fo_launch *l = &t->launch[g->launch];
	const char *waits_for = g->communication ? "the communication" : "another stream, an event or the queue";
	if (l->begin_ns <= g->begin_ns) {
		fo_str_printf(out, "What ended it, '%s', had been launched %s before: it waited on the GPU, for %s.",
			      name, seconds(a, g->begin_ns - l->begin_ns), waits_for);
		return;
	}
	if (t->gpu[g->after].flags & (FO_GPU_SHARED | FO_GPU_GRAPH)) {
		fo_str_printf(out,
			      "What ended it, '%s', was replayed from a graph or shares its launch with others: the "
			      "trace cannot tell who was late.",
			      name);
		return;
	}
	int64_t calling = overlap(l->begin_ns, l->end_ns, g->begin_ns, g->end_ns);
	if (2 * calling > g->end_ns - g->begin_ns) {
		fo_str_printf(out,
			      "What ended it, '%s', was launched %s after its begin by '%.80s', a call of the driver "
			      "that took %s of it to return.",
			      name, seconds(a, l->begin_ns - g->begin_ns), fo_trace_text(t, l->name),
			      seconds(b, calling));
		return;
	}
	if (g->end_ns - l->begin_ns > l->begin_ns - g->begin_ns) {
		fo_str_printf(out,
			      "What ended it, '%s', was launched %s after its begin, but began only %s later: it "
			      "waited on the GPU, for %s.",
			      name, seconds(a, l->begin_ns - g->begin_ns), seconds(b, g->end_ns - l->begin_ns),
			      waits_for);
		return;
	}
	fo_str_printf(out, "What ended it, '%s', was launched only %s after the gap began, by %s", name,
		      seconds(a, l->begin_ns - g->begin_ns), thread_name(t, l->thread, thread, sizeof thread));
	meanwhile(g, ", which until then was in ", out);
	fo_str_puts(out, ".");
}

/* ---- the picture ---- */

struct view {
	const struct fo_trace *t;
	struct fo_doc *doc;
	int64_t from, to;
	struct fo_draw_lane *lane;
	size_t lanes;
};

static double at(int64_t ns) { return (double)ns * 1e-9; }

static const char *short_text(struct view *v, int32_t name)
{
	char text[128];
	return fo_doc_printf(v->doc, "%s", fo_kernel_short_name(text, sizeof text, fo_trace_text(v->t, name)));
}

static void add_lane(struct view *v, const char *name, struct fo_draw_span *span, size_t n)
{
	v->lane[v->lanes++] = (struct fo_draw_lane){ name, span, n };
}

static int by_begin(const void *a, const void *b)
{
	const struct fo_draw_span *x = a, *y = b;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return (x->to < y->to) - (x->to > y->to);
}

static int tone_of_host(uint8_t kind)
{
	switch (kind) {
	case FO_HOST_DATA: return FO_LEDGER_TONE_DATA;
	case FO_HOST_SYNC: return FO_LEDGER_TONE_SYNC;
	case FO_HOST_NOTE: return FO_LEDGER_TONE_NOTE;
	default: return FO_LEDGER_TONE_OP;
	}
}

/* Returns how many operators lie around op[i]. */
static int depth_of(const struct fo_trace *t, int64_t i)
{
	int depth = 0;
	for (int64_t p = t->op[i].parent, left = 64; p >= 0 && p < t->op_count && left; p = t->op[p].parent, left--)
		depth += t->op[p].kind == FO_HOST_OP;
	return depth;
}

static void host_lane(struct view *v, int32_t thread, int64_t gap_ns)
{
	const struct fo_trace *t = v->t;
	struct fo_draw_span *span = fo_doc_alloc(v->doc, SPANS * sizeof *span);
	size_t n = 0;
	char name[128];
	for (int64_t i = 0; i < t->op_count && n < SPANS; i++) {
		const struct fo_host_op *o = &t->op[i];
		bool deep = o->kind == FO_HOST_OP && depth_of(t, i) >= OP_DEPTH;
		/* An annotation around the whole picture says nothing about a part of it. */
		bool around = o->kind == FO_HOST_NOTE && o->end_ns - o->begin_ns > 4 * gap_ns;
		if (o->thread != thread || o->kind == FO_HOST_MODULE || deep || around ||
		    !overlap(o->begin_ns, o->end_ns, v->from, v->to))
			continue;
		span[n++] = (struct fo_draw_span){ at(o->begin_ns), at(o->end_ns), tone_of_host(o->kind),
						   fo_doc_printf(v->doc, "%s", fo_trace_text(t, o->name)) };
	}
	for (int64_t i = 0; i < t->launch_count && n < SPANS; i++)
		if (t->launch[i].thread == thread &&
		    overlap(t->launch[i].begin_ns, t->launch[i].end_ns, v->from, v->to))
			span[n++] = (struct fo_draw_span){
				at(t->launch[i].begin_ns), at(t->launch[i].end_ns), FO_LEDGER_TONE_LAUNCH,
				fo_doc_printf(v->doc, "%s", fo_trace_text(t, t->launch[i].name))
			};
	qsort(span, n, sizeof *span, by_begin);
	add_lane(v, fo_doc_printf(v->doc, "host, %s", thread_name(t, thread, name, sizeof name)), span, n);
}

struct stream {
	int32_t id;
	int64_t busy_ns, ops;
};

static int busier(const void *a, const void *b)
{
	const struct stream *x = a, *y = b;
	int busy = (x->busy_ns < y->busy_ns) - (x->busy_ns > y->busy_ns);
	return busy ? busy : (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b)
{
	const struct stream *x = a, *y = b;
	return (x->id > y->id) - (x->id < y->id);
}

/* The device's streams that work in view, the busiest STREAMS of them by id. */
static struct stream *streams_of(struct view *v, int16_t device, size_t *n)
{
	struct stream *s = NULL;
	size_t cap = 0, k;
	*n = 0;
	for (int64_t i = 0; i < v->t->gpu_count; i++) {
		const struct fo_gpu_op *o = &v->t->gpu[i];
		if (o->device != device || !overlap(o->begin_ns, o->end_ns, v->from, v->to))
			continue;
		for (k = 0; k < *n && s[k].id != o->stream; k++)
			;
		if (k == *n) {
			fo_array_room(&s, &cap, *n, sizeof *s);
			s[(*n)++] = (struct stream){ .id = o->stream };
		}
		s[k].busy_ns += overlap(o->begin_ns, o->end_ns, v->from, v->to);
		s[k].ops++;
	}
	if (*n)
		qsort(s, *n, sizeof *s, busier);
	*n = *n < STREAMS ? *n : STREAMS;
	if (*n)
		qsort(s, *n, sizeof *s, by_id);
	return s;
}

static void stream_lane(struct view *v, int16_t device, const struct stream *s)
{
	size_t n = 0, most = s->ops < SPANS ? (size_t)s->ops : SPANS;
	struct fo_draw_span *span = fo_doc_alloc(v->doc, (most + 1) * sizeof *span);
	for (int64_t i = 0; i < v->t->gpu_count && n < most; i++) {
		const struct fo_gpu_op *o = &v->t->gpu[i];
		if (o->device == device && o->stream == s->id && overlap(o->begin_ns, o->end_ns, v->from, v->to))
			span[n++] = (struct fo_draw_span){
				at(o->begin_ns), at(o->end_ns),
				fo_ledger_part_tone[fo_ledger_part_of((enum fo_kernel_class)o->class)],
				short_text(v, o->name)
			};
	}
	add_lane(v, fo_doc_printf(v->doc, "GPU %lld, stream %d", (long long)v->t->device[device].id, s->id), span, n);
}

static int lane_of_stream(const struct stream *s, size_t n, int32_t id)
{
	for (size_t k = 0; k < n; k++)
		if (s[k].id == id)
			return (int)k;
	return -1;
}

/* Names the tones as the ledger's picture does. */
static void name_tones(const char *name[FO_DRAW_PARTS])
{
	for (int i = 0; i < FO_LEDGER_PARTS; i++)
		name[fo_ledger_part_tone[i]] = fo_ledger_part_name[i];
	name[fo_ledger_part_tone[FO_LEDGER_TRANSFER]] = "communication";
	name[FO_LEDGER_TONE_OP] = "host: operators";
	name[FO_LEDGER_TONE_NOTE] = "host: annotations";
	name[FO_LEDGER_TONE_SYNC] = "host: waits";
	name[FO_LEDGER_TONE_DATA] = "host: data loading";
	name[FO_LEDGER_TONE_LAUNCH] = "host: launches";
}

void fo_gap_picture(struct fo_doc *doc, const struct fo_gap *g, const char *title)
{
	const struct fo_trace *t = g->trace;
	struct fo_draw_lanes c = { .title = title ? fo_doc_printf(doc, "%s", title) : NULL };
	struct fo_str words = { 0 };
	size_t n = 0;
	if (g->end_ns <= g->begin_ns) {
		fo_doc_lanes(doc, &c);
		return;
	}
	int64_t gap = g->end_ns - g->begin_ns,
		beside = gap / 2 > 10000 ? gap / 2 : 10000; /* 10 us: a few short kernels */
	struct view v = { .t = t, .doc = doc, .from = g->begin_ns - beside, .to = g->end_ns + beside };
	v.lane = fo_doc_alloc(doc, (STREAMS + 2) * sizeof *v.lane);
	v.from = v.from < t->begin_ns ? t->begin_ns : v.from; /* nothing is known of what lies outside */
	v.to = v.to > t->end_ns ? t->end_ns : v.to;
	if (g->thread >= 0)
		host_lane(&v, g->thread, gap);
	struct stream *s = streams_of(&v, g->device, &n);
	size_t first = v.lanes;
	for (size_t k = 0; k < n; k++)
		stream_lane(&v, g->device, &s[k]);
	int to = g->after >= 0 ? lane_of_stream(s, n, t->gpu[g->after].stream) : -1;
	if (g->launch >= 0 && to >= 0 && t->launch[g->launch].begin_ns >= v.from) {
		struct fo_draw_arrow *arrow = fo_doc_alloc(doc, sizeof *arrow);
		*arrow = (struct fo_draw_arrow){ 0, first + (size_t)to, at(t->launch[g->launch].begin_ns),
						 at(t->gpu[g->after].begin_ns) };
		c.arrow = arrow;
		c.arrows = 1;
	}
	free(s);
	struct fo_draw_mark *mark = fo_doc_alloc(doc, sizeof *mark);
	*mark = (struct fo_draw_mark){ at(g->begin_ns), at(g->end_ns),
				       fo_doc_printf(doc, "%s %s", g->communication ? "exposed" : "idle",
						     fo_doc_ns(doc, gap)) };
	fo_gap_words(g, &words);
	c.desc = fo_doc_printf(doc, "%s", words.data);
	c.from = at(v.from);
	c.to = at(v.to);
	c.lane = v.lane;
	c.lanes = v.lanes;
	c.mark = mark;
	name_tones(c.tone_name);
	fo_doc_lanes(doc, &c);
	fo_str_fini(&words);
}
