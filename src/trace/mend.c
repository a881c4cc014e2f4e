/* Adds what some profilers leave out or number otherwise: which call launched an operation, what a device is called. */
#include "trace/trace_int.h"

#include "base/count.h"
#include "base/mem.h"
#include "base/text.h"

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
	if (x->external != y->external)
		return fo_order(x->external, y->external);
	if (x->copies != y->copies)
		return fo_order(x->copies, y->copies);
	if (x->of != y->of)
		return fo_order(x->of, y->of);
	return x->begin_ns != y->begin_ns ? fo_order(x->begin_ns, y->begin_ns) : fo_order(x->at, y->at);
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

static int by_int32(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return fo_order(x, y);
}

/* The numbers of these pieces, ascending, for a search: of millions of operators only these few are kept. */
static int32_t *numbers_of(const struct pieces *p)
{
	int32_t *v = fo_xmalloc(p->n * sizeof *v);
	for (size_t i = 0; i < p->n; i++)
		v[i] = p->v[i].external;
	qsort(v, p->n, sizeof *v, by_int32);
	return v;
}

static bool among(const int32_t *v, size_t n, int32_t number)
{
	return number >= 0 && bsearch(&number, v, n, sizeof *v, by_int32) != NULL;
}

/* GPU operations without a launch, and the calls and operators that may have launched them. False: no such operation
 * has a number. */
static bool gather(const struct fo_trace *t, struct pieces *p)
{
	bool *used = fo_xmalloc((size_t)t->launch_count * sizeof *used + 1);
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->launch >= 0)
			used[g->launch] = true;
		else
			add(p, PIECE_GPU, g->external, g->kind != FO_GPU_KERNEL, g->begin_ns, i);
	}
	if (!p->n) {
		free(used);
		return false;
	}
	size_t n = p->n;
	int32_t *asked = numbers_of(p);
	for (int64_t i = 0; i < t->launch_count; i++)
		if (!used[i] && among(asked, n, t->launch[i].external))
			add(p, PIECE_CALL, t->launch[i].external, copies(t, t->launch[i].name), t->launch[i].begin_ns,
			    i);
	for (int64_t i = 0; i < t->op_count; i++)
		if (t->op[i].kind == FO_HOST_OP && among(asked, n, t->op[i].external))
			for (int c = 0; c < 2; c++) /* an operator launches kernels and copies */
				add(p, PIECE_OP, t->op[i].external, c, t->op[i].begin_ns, i);
	free(used);
	free(asked);
	qsort(p->v, p->n, sizeof *p->v, by_number);
	return true;
}

static void tie(struct fo_trace *t, int64_t gpu, int64_t call, int64_t *made)
{
	struct fo_launch *l = &t->launch[call];
	if (l->correlation < 0)
		l->correlation = FO_MADE_CORRELATION + (*made)++;
	t->gpu[gpu].correlation = l->correlation;
}

/* No call is recorded: the operator launched, at the latest when it ended. That it was at work until then is the host's
 * time. */
static void launch_from(struct fo_trace_build *b, int64_t gpu, int64_t op, int64_t *made)
{
	static const char text[] = "(launch not recorded)";
	struct fo_gpu_op *g = &b->t->gpu[gpu];
	const struct fo_host_op *o = &b->t->op[op];
	int64_t at = g->begin_ns < o->end_ns - 1 ? g->begin_ns : o->end_ns - 1; /* inside the operator */
	if (g->begin_ns < o->begin_ns)
		return; /* it began before the operator, which so did not launch it */
	at = fo_max(at, o->begin_ns);
	int32_t thread = o->thread, name = fo_trace_intern(b, text, sizeof text - 1);
	struct fo_launch *l = fo_trace_add_launch(b);
	l->begin_ns = l->end_ns = at;
	l->name = name;
	l->thread = thread;
	l->external = g->external;
	l->correlation = g->correlation = FO_MADE_CORRELATION + (*made)++;
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
	if (gather(b->t, &p))
		for (size_t i = 0, to; i < p.n; i = to) {
			for (to = i;
			     to < p.n && p.v[to].external == p.v[i].external && p.v[to].copies == p.v[i].copies;)
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
	if (x->id != y->id)
		return fo_order(x->id, y->id);
	return (x->thread < 0) - (y->thread < 0); /* the begin first */
}

struct place {
	int64_t at_ns, index;
	int32_t where; /* thread or stream */
};
static int by_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	if (x->at_ns != y->at_ns)
		return fo_order(x->at_ns, y->at_ns);
	return fo_order(x->where, y->where);
}

static int64_t find(const struct place *v, size_t n, int64_t at_ns, int32_t where)
{
	struct place key = { at_ns, 0, where };
	const struct place *p = n ? bsearch(&key, v, n, sizeof *v, by_place) : NULL;
	return p ? p->index : -1;
}

/* An arrow's begin has the time of the call, its end that of the operation. Without a call the arrow itself is the
 * launch. */
static void follow(struct fo_trace_build *b, const struct fo_trace_arrow *from, struct fo_gpu_op *g,
		   const struct place *calls, size_t n, int64_t *made)
{
	static const char text[] = "(launch not recorded)";
	int64_t call = find(calls, n, from->at_ns, from->thread);
	if (call >= 0) {
		tie(b->t, g - b->t->gpu, call, made);
		return;
	}
	int32_t name = fo_trace_intern(b, text, sizeof text - 1);
	struct fo_launch *l = fo_trace_add_launch(b);
	l->begin_ns = l->end_ns = from->at_ns;
	l->name = name;
	l->thread = from->thread;
	l->correlation = g->correlation = FO_MADE_CORRELATION + (*made)++;
}

void fo_trace_link_by_arrow(struct fo_trace_build *b, struct fo_trace_arrow *v, size_t n)
{
	struct fo_trace *t = b->t;
	int64_t made = (int64_t)1 << 40; /* apart from those that are made by operators */
	size_t gpus = 0, calls = (size_t)t->launch_count;
	struct place *gpu = fo_xmalloc((size_t)t->gpu_count * sizeof *gpu + 1),
		     *call = fo_xmalloc(calls * sizeof *call + 1);
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].correlation < 0)
			gpu[gpus++] = (struct place){ t->gpu[i].begin_ns, i, t->gpu[i].stream };
	for (size_t i = 0; i < calls; i++)
		call[i] = (struct place){ t->launch[i].begin_ns, (int64_t)i, t->launch[i].thread };
	qsort(gpu, gpus, sizeof *gpu, by_place);
	qsort(call, calls, sizeof *call, by_place);
	if (n)
		qsort(v, n, sizeof *v, by_arrow);
	for (size_t i = 0; i + 1 < n; i++) {
		const struct fo_trace_arrow *from = &v[i];
		/* Two arrows begin with one number: which of them ends here is unknown. */
		if (i > 0 && v[i - 1].id == from->id && v[i - 1].thread >= 0)
			continue;
		for (size_t k = i + 1; from->thread >= 0 && k < n && v[k].id == from->id && v[k].thread < 0; k++) {
			int64_t at = find(gpu, gpus, v[k].at_ns, v[k].stream);
			if (at >= 0 && t->gpu[at].correlation < 0)
				follow(b, from, &t->gpu[at], call, calls, &made);
		}
	}
	free(gpu);
	free(call);
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

/* Device i into v[0..n), which is in the order of ids. */
static void insert(const struct fo_trace *t, int64_t *v, int64_t n, int64_t i)
{
	for (; n > 0 && t->device[v[n - 1]].id > t->device[i].id; n--)
		v[n] = v[n - 1];
	v[n] = i;
}

/* ROCm numbers agents, processors among them, so that GPU 0 does its work as device 2 or 9. Where all that are named
 * are of one model, all are it. Else, where as many without work are named as work without a name, they belong together
 * in their order; else nothing is known. */
void fo_trace_name_devices(struct fo_trace *t)
{
	enum { MOST = 1024 }; /* fo_trace_device makes no more */
	bool works[MOST] = { false }, one_model = true;
	int64_t nameless[MOST], idle[MOST], nameless_n = 0, idle_n = 0;
	const struct fo_trace_device *named = NULL;
	if (t->device_count > MOST)
		return;
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].device >= 0)
			works[t->gpu[i].device] = true;
	for (int64_t i = 0; i < t->device_count; i++) {
		const struct fo_trace_device *d = &t->device[i];
		if (d->name < 0 && works[i]) {
			insert(t, nameless, nameless_n++, i);
		} else if (d->name >= 0) {
			one_model &= !named || same_model(t, named, d);
			named = named ? named : d;
			if (!works[i])
				insert(t, idle, idle_n++, i);
		}
	}
	for (int64_t i = 0; named && i < nameless_n && (one_model || nameless_n == idle_n); i++)
		take_over(&t->device[nameless[i]], one_model ? named : &t->device[idle[i]]);
}
