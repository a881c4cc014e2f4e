/* Adds what some profilers leave out or number otherwise: which call launched an operation, what a device is called. */
#include "trace/trace_int.h"

#include "base/count.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- launches by the operator's number ---- */

enum piece_of { PIECE_GPU, PIECE_CALL, PIECE_OP };

/* Something that carries an operator's number. */
struct piece {
	int32_t external;
	uint8_t copies; /* 0: kernels and their launches, 1: copies and fills and theirs */
	uint8_t of;     /* enum piece_of */
	int64_t begin_ns, at;
};

static int by_number(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;
	return FO_ORDER_BY(fo_order(x->external, y->external), fo_order(x->copies, y->copies), fo_order(x->of, y->of),
			   fo_order(x->begin_ns, y->begin_ns), fo_order(x->at, y->at));
}

struct pieces {
	struct piece *v;
	size_t n, cap;
};

static void add(struct pieces *p, enum piece_of of, int32_t external, bool copies, int64_t begin_ns, int64_t at)
{
	if (external < 0)
		return;
	fo_array_room(&p->v, &p->cap, p->n, sizeof *p->v);
	p->v[p->n++] = (struct piece){ external, copies, (uint8_t)of, begin_ns, at };
}

static bool copies(const struct fo_trace *t, int32_t name)
{
	const char *call = fo_trace_text(t, name);
	return strstr(call, "Memcpy") || strstr(call, "Memset");
}

/* GPU operations without a launch, and the calls and operators that may have launched them. */
static void gather(const struct fo_trace *t, struct pieces *p)
{
	bool *used = fo_xmalloc((size_t)t->launch_count * sizeof *used + 1);
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->launch >= 0)
			used[g->launch] = true;
		else
			add(p, PIECE_GPU, g->external, g->kind != FO_GPU_KERNEL, g->begin_ns, i);
	}
	struct fo_index asked = { 0 }; /* of millions of operators these few are kept */
	for (size_t i = 0; i < p->n; i++)
		fo_index_add(&asked, p->v[i].external, 0, 0);
	for (int64_t i = 0; i < t->launch_count; i++)
		if (!used[i] && fo_index_find(&asked, t->launch[i].external, 0) >= 0)
			add(p, PIECE_CALL, t->launch[i].external, copies(t, t->launch[i].name), t->launch[i].begin_ns,
			    i);
	for (int64_t i = 0; i < t->op_count; i++)
		if (t->op[i].kind == FO_HOST_OP && fo_index_find(&asked, t->op[i].external, 0) >= 0)
			for (int c = 0; c < 2; c++) /* an operator launches kernels and copies */
				add(p, PIECE_OP, t->op[i].external, c, t->op[i].begin_ns, i);
	free(used);
	fo_index_fini(&asked);
	if (p->n)
		qsort(p->v, p->n, sizeof *p->v, by_number);
}

static void tie(struct fo_trace *t, int64_t gpu, int64_t call, int64_t *made)
{
	struct fo_launch *l = &t->launch[call];
	if (l->correlation < 0)
		l->correlation = FO_MADE_CORRELATION + (*made)++;
	t->gpu[gpu].correlation = l->correlation;
}

/* A launch of g that no call recorded. */
static void make_launch(struct fo_trace_build *b, int64_t gpu, int32_t thread, int64_t at_ns, int64_t *made)
{
	static const char text[] = "(launch not recorded)";
	struct fo_gpu_op *g = &b->t->gpu[gpu];
	struct fo_launch *l = fo_trace_add_launch(b, at_ns, at_ns);
	l->name = fo_trace_intern(b, text, sizeof text - 1);
	l->thread = thread;
	l->external = g->external;
	l->correlation = g->correlation = FO_MADE_CORRELATION + (*made)++;
}

/* No call is recorded: the operator launched, at the latest when it ended. That it was at work until then is the host's
 * time. */
static void launch_from(struct fo_trace_build *b, int64_t gpu, int64_t op, int64_t *made)
{
	const struct fo_host_op *o = &b->t->op[op];
	int64_t begin_ns = b->t->gpu[gpu].begin_ns;
	if (begin_ns >= o->begin_ns) /* else the operator did not launch it */
		make_launch(b, gpu, o->thread, fo_max(fo_min(begin_ns, o->end_ns - 1), o->begin_ns), made);
}

/* One operator's kernels, or its copies: v[0..n) are GPU operations, then calls, then the operator. As many calls as
 * operations: each its own, in their order. Fewer or more: which is whose is unknown, all share the first
 * (FO_GPU_SHARED says so). */
static void tie_group(struct fo_trace_build *b, const struct piece *v, size_t n, int64_t *made)
{
	size_t gpu = 0, calls = 0;
	while (gpu < n && v[gpu].of == PIECE_GPU)
		gpu++;
	while (gpu + calls < n && v[gpu + calls].of == PIECE_CALL)
		calls++;
	for (size_t i = 0; i < gpu; i++) {
		if (calls)
			tie(b->t, v[i].at, v[gpu + (calls == gpu ? i : 0)].at, made);
		else if (gpu < n)
			launch_from(b, v[i].at, v[gpu].at, made);
	}
}

bool fo_trace_link_by_operator(struct fo_trace_build *b)
{
	struct pieces p = { 0 };
	int64_t made = 0, launches = b->t->launch_count;
	bool any = false;
	b->launch_cap = (size_t)launches; /* sorting may have allocated exactly that much */
	gather(b->t, &p);
	for (size_t i = 0, to; i < p.n; i = to) {
		for (to = i; to < p.n && p.v[to].external == p.v[i].external && p.v[to].copies == p.v[i].copies;)
			to++;
		any |= p.v[i].of == PIECE_GPU && to - i > 1;
		tie_group(b, p.v + i, to - i, &made);
	}
	free(p.v);
	return any || launches != b->t->launch_count;
}

/* ---- launches by arrows ---- */

static int by_arrow(const void *a, const void *b)
{
	const struct fo_trace_arrow *x = a, *y = b;
	return FO_ORDER_BY(fo_order(x->id, y->id), fo_order(x->thread < 0, y->thread < 0)); /* the begin first */
}

/* An arrow's begin has the time of the call, its end that of the operation. Without a call the arrow itself is the
 * launch. */
void fo_trace_link_by_arrow(struct fo_trace_build *b, struct fo_trace_arrow *v, size_t n)
{
	struct fo_trace *t = b->t;
	int64_t made = (int64_t)1 << 40;           /* apart from those that are made by operators */
	struct fo_index gpu = { 0 }, call = { 0 }; /* (begin, stream) and (begin, thread) of the first with them */
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].correlation < 0)
			fo_index_add(&gpu, t->gpu[i].begin_ns, t->gpu[i].stream, (int32_t)i);
	for (int64_t i = 0; i < t->launch_count; i++)
		fo_index_add(&call, t->launch[i].begin_ns, t->launch[i].thread, (int32_t)i);
	if (n)
		qsort(v, n, sizeof *v, by_arrow);
	for (size_t i = 0; i + 1 < n; i++) {
		const struct fo_trace_arrow *from = &v[i];
		/* Two arrows begin with one number: which of them ends here is unknown. */
		if (i > 0 && v[i - 1].id == from->id && v[i - 1].thread >= 0)
			continue;
		int32_t launch = fo_index_find(&call, from->at_ns, from->thread);
		for (size_t k = i + 1; from->thread >= 0 && k < n && v[k].id == from->id && v[k].thread < 0; k++) {
			int32_t at = fo_index_find(&gpu, v[k].at_ns, v[k].stream);
			if (at < 0 || t->gpu[at].correlation >= 0)
				continue;
			if (launch >= 0)
				tie(t, at, launch, &made);
			else
				make_launch(b, at, from->thread, from->at_ns, &made);
		}
	}
	fo_index_fini(&gpu);
	fo_index_fini(&call);
}

/* ---- devices ---- */

static bool same_model(const struct fo_trace *t, const struct fo_trace_device *a, const struct fo_trace_device *b)
{
	return strcmp(fo_trace_text(t, a->name), fo_trace_text(t, b->name)) == 0;
}

static void take_over(struct fo_trace_device *to, const struct fo_trace_device *from)
{
	int64_t id = to->id;
	*to = *from;
	to->id = id;
}

/* ROCm numbers agents, processors among them, so that GPU 0 does its work as device 2 or 9. Where all that are named
 * are of one model, all are it. Else, where as many without work are named as work without a name, they belong together
 * in their order; else nothing is known. */
void fo_trace_name_devices(struct fo_trace *t)
{
	int64_t working = 0, nameless = 0, idle = 0; /* idle: named, without work */
	const struct fo_trace_device *named = NULL;
	bool one_model = true;
	for (int64_t i = 0; i < t->gpu_count; i++)
		working = fo_max(t->gpu[i].device + 1, working);
	for (int64_t i = 0; i < t->device_count; i++) {
		const struct fo_trace_device *d = &t->device[i];
		nameless += d->name < 0 && i < working;
		idle += d->name >= 0 && i >= working;
		one_model &= d->name < 0 || !named || same_model(t, named, d);
		named = d->name >= 0 && !named ? d : named;
	}
	if (!named || (!one_model && nameless != idle))
		return;
	struct fo_trace_device *next = &t->device[working];
	for (int64_t i = 0; i < working; i++) {
		if (t->device[i].name >= 0)
			continue;
		while (!one_model && next->name < 0)
			next++;
		take_over(&t->device[i], one_model ? named : next++);
	}
}
