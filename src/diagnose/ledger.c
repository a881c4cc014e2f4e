/* The ledger: one walk over a device's operations in order of time, in which every nanosecond of every window goes to
 * exactly one row. */
#include "diagnose/ledger_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"
#include "base/thread.h"
#include "program/program.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const fo_window_origin_name[FO_WINDOW_ORIGIN_COUNT] = {
	[FO_WINDOW_LAUNCHED_STEPS] = "launched_steps", [FO_WINDOW_HOST_STEP] = "host_step",
	[FO_WINDOW_GPU_STEPS] = "gpu_steps",           [FO_WINDOW_NVTX] = "nvtx",
	[FO_WINDOW_OPTIMIZER] = "optimizer",           [FO_WINDOW_WHOLE] = "whole",
};

/* ---- what operations count as ---- */

/* Is this operation of class FO_K_MEMORY a fill? */
static bool fills(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	if (g->kind != FO_GPU_KERNEL)
		return g->kind == FO_GPU_MEMSET;
	for (const char *name = fo_trace_text(t, g->name); *name; name++)
		if (!strncasecmp(name, "fill", 4) || !strncasecmp(name, "set", 3))
			return true;
	return false;
}

static uint8_t class_of(const struct fo_trace *t, const struct fo_gpu_op *g, enum fo_kinds kinds)
{
	if (kinds == FO_KINDS_BY_NAME)
		return g->class;
	if (kinds == FO_KINDS_LINKED && (g->kind != FO_GPU_KERNEL || g->class_by_name == FO_K_MEMORY))
		return fills(t, g) ? FO_K_COPY : FO_K_MEMORY;
	if (g->kind != FO_GPU_KERNEL)
		return FO_K_MEMORY;
	if (g->class_by_name == FO_K_COMMUNICATION)
		return FO_K_COMMUNICATION;
	return g->class < FO_K_COMPUTE_COUNT ? g->class : FO_K_COPY;
}

/* FO_COPY_NONE: a fill; FO_COPY_OTHER: the direction is not told. */
static uint8_t copy_of(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	if (fills(t, g))
		return FO_COPY_NONE;
	return g->copy != FO_COPY_NONE && g->copy < FO_COPY_COUNT ? g->copy : FO_COPY_OTHER;
}

/* ---- what runs at one moment ---- */

/* A running operation, in a heap by end. */
struct running {
	int64_t end;
	uint8_t class, copy, flags;
	bool kernel;
};

struct walk {
	const struct fo_device_ops *d;
	const struct fo_idle *idle;
	struct running *heap;
	size_t n, cap;
	int64_t active[FO_K_COUNT], copy[FO_COPY_COUNT], pageable, kernels, backward, recomputed, forward;
	uint32_t mask; /* of the classes in `active` */
	struct fo_step_ledger *step;
	const struct fo_window *window;
	size_t windows, at;             /* the first window that ends behind the present */
	int64_t (*filling)[FO_K_COUNT]; /* by window: how many operations more than in the one before fill it wholly;
					   one more than windows */
	/* The exposed communication that a computation may be waiting for. */
	int64_t run_begin, run_end, comm_end;
	struct fo_intervals blocking;
};

enum { MARKED = FO_GPU_BACKWARD | FO_GPU_RECOMPUTED };

static void count(struct walk *w, const struct running *r, int by)
{
	w->active[r->class] += by;
	if (w->active[r->class])
		w->mask |= UINT32_C(1) << r->class;
	else
		w->mask &= ~(UINT32_C(1) << r->class);
	w->kernels += r->kernel ? by : 0;
	if (r->class == FO_K_MEMORY) {
		w->copy[r->copy] += by;
		w->pageable += r->flags & FO_GPU_PAGEABLE ? by : 0;
	} else if (r->class < FO_K_COMPUTE_COUNT) {
		w->backward += r->flags & FO_GPU_BACKWARD ? by : 0;
		w->recomputed += r->flags & FO_GPU_RECOMPUTED ? by : 0;
		w->forward += r->flags & MARKED ? 0 : by;
	}
}

static void push(struct walk *w, struct running r)
{
	fo_array_room(&w->heap, &w->cap, w->n, sizeof *w->heap);
	size_t i = w->n++;
	for (; i && w->heap[(i - 1) / 2].end > r.end; i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = r;
	count(w, &r, 1);
}

static struct running pop(struct walk *w)
{
	struct running top = w->heap[0], last = w->heap[--w->n];
	size_t i = 0;
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= w->n)
			break;
		if (child + 1 < w->n && w->heap[child + 1].end < w->heap[child].end)
			child++;
		if (w->heap[child].end >= last.end)
			break;
		w->heap[i] = w->heap[child];
		i = child;
	}
	if (w->n)
		w->heap[i] = last;
	count(w, &top, -1);
	return top;
}

/* ---- rows ---- */

static const uint32_t compute_classes = (UINT32_C(1) << FO_K_COMPUTE_COUNT) - 1;
_Static_assert(FO_K_COUNT <= 32, "classes are bits of a word");

static void charge_copy(const struct walk *w, struct fo_ledger *l, int64_t ns)
{
	static const uint8_t order[] = {
		FO_COPY_H2D, FO_COPY_D2H, FO_COPY_D2D, FO_COPY_P2P, FO_COPY_OTHER, FO_COPY_NONE
	};
	l->exposed_mem_ns += ns;
	l->exposed_pageable_ns += w->pageable ? ns : 0;
	for (size_t i = 0; i < sizeof order; i++)
		if (w->copy[order[i]]) {
			l->copy_ns[order[i]] += ns;
			return;
		}
}

/* `ns` of one window in which what runs stays the same; something does. */
static void charge(const struct walk *w, struct fo_ledger *l, int64_t ns)
{
	uint32_t compute = w->mask & compute_classes;
	bool comm = w->active[FO_K_COMMUNICATION] > 0;
	l->busy_ns += ns;
	l->resident_ns += w->kernels ? ns : 0;
	l->comm_ns += comm ? ns : 0;
	l->mem_ns += w->active[FO_K_MEMORY] ? ns : 0;
	if (compute) {
		l->comp_ns += ns;
		l->class_ns[__builtin_ctz(compute)] += ns;
		l->recompute_ns += w->recomputed ? ns : 0;
		l->backward_ns += w->backward ? ns : 0;
		l->forward_ns += w->forward && !w->backward && !w->recomputed ? ns : 0;
	} else if (comm) {
		l->exposed_comm_ns += ns;
	} else {
		charge_copy(w, l, ns);
	}
}

/* Remembers the present run of exposed communication. When a computation begins at `from`, right after a collective
 * ended, the run up to that end held it up. */
static void follow_blocking(struct walk *w, int64_t from, int64_t to)
{
	bool compute = w->mask & compute_classes;
	if (!compute && w->active[FO_K_COMMUNICATION]) {
		if (w->run_end != from)
			w->run_begin = from;
		w->run_end = to;
	} else if (compute) {
		/* A collective ended just before: compute may have waited for it since the run began. */
		if (w->comm_end > w->run_begin && from - w->comm_end <= FO_KERNEL_GAP_NS)
			fo_intervals_add(&w->blocking, w->run_begin, fo_min(w->run_end, w->comm_end));
		w->run_begin = w->run_end = INT64_MAX;
	}
}

/* Everything in [from, to), in which what runs stays the same; `first`: the operation at its end, where nothing runs.
 */
static void pass(struct walk *w, int64_t from, int64_t to, const struct fo_gpu_op *first)
{
	if (w->mask)
		follow_blocking(w, from, to);
	while (w->at < w->windows && w->window[w->at].end <= from)
		w->at++;
	for (size_t i = w->at; i < w->windows && w->window[i].begin < to; i++) {
		int64_t a = fo_max(from, w->window[i].begin), b = fo_min(to, w->window[i].end);
		if (a >= b)
			continue;
		struct fo_ledger *l = &w->step[i].l;
		if (w->mask)
			charge(w, l, b - a);
		else
			fo_idle_divide(w->idle, w->d->device, first, from, to, a, b, l->idle_ns);
	}
}

/* Ends what ends until `to`; *now is the present. */
static void advance(struct walk *w, int64_t *now, int64_t to)
{
	while (w->n && w->heap[0].end <= to) {
		if (w->heap[0].end > *now) {
			pass(w, *now, w->heap[0].end, NULL);
			*now = w->heap[0].end;
		}
		struct running r = pop(w);
		if (r.class == FO_K_COMMUNICATION)
			w->comm_end = r.end;
	}
	if (w->n && to > *now) {
		pass(w, *now, to, NULL);
		*now = to;
	}
}

/* The first window that ends behind `at`; their number if there is none. */
static size_t window_at(const struct walk *w, int64_t at)
{
	return (size_t)FO_FIRST(i, w->windows, w->window[i].end > at);
}

static void tally_part(struct walk *w, const struct fo_gpu_op *g, uint8_t class, size_t i)
{
	const struct fo_window *v = &w->window[i];
	int64_t a = fo_max(g->begin_ns, v->begin), b = fo_min(g->end_ns, v->end);
	int64_t *sum = &w->step[i].l.class_sum_ns[class];
	*sum = b > a ? fo_plus(*sum, b - a) : *sum;
}

/* Counts an operation where it begins, its duration clipped to that window, added up whether or not others ran beside
 * it. The windows that it fills wholly are only noted: every operation may fill every window. */
static void tally(struct walk *w, const struct fo_gpu_op *g, uint8_t class)
{
	size_t first = window_at(w, g->begin_ns);
	if (first == w->windows)
		return;
	if (g->begin_ns >= w->window[first].begin) {
		w->step[first].l.ops++;
		w->step[first].l.class_ops[class]++;
	}
	tally_part(w, g, class, first);
	size_t last = first + 1 < w->windows && g->end_ns > w->window[first].end ? window_at(w, g->end_ns) : first;
	if (last == first)
		return;
	w->filling[first + 1][class]++;
	w->filling[last][class]--;
	if (last < w->windows)
		tally_part(w, g, class, last);
}

/* Adds what tally noted. */
static void tally_filled(struct walk *w)
{
	int64_t running[FO_K_COUNT] = { 0 };
	for (size_t i = 0; i < w->windows; i++)
		for (int k = 0; k < FO_K_COUNT; k++) {
			int64_t ns, *sum = &w->step[i].l.class_sum_ns[k];
			running[k] += w->filling[i][k];
			if (__builtin_mul_overflow(running[k], w->window[i].end - w->window[i].begin, &ns))
				ns = INT64_MAX;
			*sum = fo_plus(*sum, ns);
		}
}

/* Several operations may begin with op[i]. The one that ends first, even after no time, and of those the one launched
 * first, tells why nothing began before. */
static const struct fo_gpu_op *first_at(const struct fo_device_ops *d, int64_t i)
{
	const struct fo_gpu_op *first = &d->op[i];
	int64_t begin = first->begin_ns;
	for (int64_t k = i - 1; k >= 0 && d->op[k].begin_ns == begin; k--)
		if (fo_device_op_counts(d, &d->op[k]))
			first = &d->op[k];
	for (int64_t k = first - d->op + 1; k < d->n && d->op[k].begin_ns == begin && d->op[k].end_ns == first->end_ns;
	     k++)
		if (fo_device_op_counts(d, &d->op[k]) && d->op[k].correlation < first->correlation)
			first = &d->op[k];
	return first;
}

static void walk_ops(struct walk *w)
{
	const struct fo_device_ops *d = w->d;
	int64_t now = w->windows ? w->window[0].begin : 0;
	for (int64_t i = 0; i < d->n; i++) {
		const struct fo_gpu_op *g = &d->op[i];
		if (!fo_device_op_counts(d, g))
			continue;
		uint8_t class = class_of(d->t, g, d->kinds);
		tally(w, g, class);
		if (g->end_ns <= g->begin_ns)
			continue;
		advance(w, &now, g->begin_ns);
		if (!w->n && g->begin_ns > now)
			pass(w, now, g->begin_ns, first_at(d, i));
		now = fo_max(g->begin_ns, now);
		push(w, (struct running){ .end = g->end_ns,
					  .class = class,
					  .copy = class == FO_K_MEMORY ? copy_of(d->t, g) : FO_COPY_NONE,
					  .flags = g->flags,
					  .kernel = g->kind == FO_GPU_KERNEL });
	}
	tally_filled(w);
	advance(w, &now, INT64_MAX);
	if (w->windows && now < w->window[w->windows - 1].end)
		pass(w, now, w->window[w->windows - 1].end, NULL);
}

/* ---- exposed communication ---- */

/* Does this operation of our own engine wait for other stages of a pipeline? */
static bool is_between_stages(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	static const enum fo_group stages[] = { FO_GROUP_PP, FO_GROUP_ENDS };
	if (t->format != FO_TRACE_OWN || g->collective < 0 || g->collective >= t->collective_count)
		return false;
	const char *group = fo_trace_text(t, t->collective[g->collective].group);
	for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
		const size_t n = strlen(fo_group_name[stages[i]]);
		if (!strncmp(group, fo_group_name[stages[i]], n) && (!group[n] || group[n] == ','))
			return true;
	}
	return false;
}

/* Divides each step's exposed communication. An instant in which any kernel transfers is transfer, else waiting where
 * one is known to wait, else unknown: alone, a rank cannot tell waiting from transferring. Receives of a pipeline wait
 * from early on, so where somebody else is waited for, too, it is not the pipeline that holds the step up. */
static void divide_exposed(struct fo_step_ledger *step, int64_t steps, const struct fo_device_ops *d)
{
	struct fo_intervals compute = { 0 }, waiting = { 0 }, moving = { 0 }, bare = { 0 }, exposed_wait = { 0 },
			    exposed_move = { 0 }, others = { 0 }, bubble = { 0 };
	for (int64_t i = 0; d->wait && i < d->n; i++) {
		const struct fo_gpu_op *g = &d->op[i];
		if (!fo_ledger_counts(d->t, g, d->kinds))
			continue;
		uint8_t class = class_of(d->t, g, d->kinds);
		if (class < FO_K_COMPUTE_COUNT) {
			fo_intervals_add(&compute, g->begin_ns, g->end_ns);
		} else if (class == FO_K_COMMUNICATION && d->wait[i] >= 0) {
			fo_intervals_add(&waiting, g->begin_ns, g->begin_ns + d->wait[i]);
			if (!is_between_stages(d->t, g))
				fo_intervals_add(&others, g->begin_ns, g->begin_ns + d->wait[i]);
			fo_intervals_add(&moving, g->begin_ns + d->wait[i], g->end_ns);
		}
	}
	fo_intervals_unite(&compute);
	fo_intervals_unite(&waiting);
	fo_intervals_unite(&moving);
	fo_intervals_unite(&others);
	fo_intervals_subtract(&exposed_move, &moving, &compute);
	fo_intervals_subtract(&bare, &waiting, &compute);
	fo_intervals_subtract(&exposed_wait, &bare, &moving);
	fo_intervals_subtract(&bubble, &exposed_wait, &others);
	for (int64_t i = 0; i < steps; i++) {
		struct fo_ledger *k = &step[i].l;
		k->exposed_transfer_ns = fo_intervals_within(&exposed_move, k->begin_ns, k->end_ns);
		k->exposed_wait_ns = fo_intervals_within(&exposed_wait, k->begin_ns, k->end_ns);
		k->exposed_bubble_ns = fo_intervals_within(&bubble, k->begin_ns, k->end_ns);
		k->exposed_comm_unknown_ns = k->exposed_comm_ns - k->exposed_transfer_ns - k->exposed_wait_ns;
	}
	fo_intervals_fini(&compute);
	fo_intervals_fini(&waiting);
	fo_intervals_fini(&moving);
	fo_intervals_fini(&bare);
	fo_intervals_fini(&exposed_wait);
	fo_intervals_fini(&exposed_move);
	fo_intervals_fini(&others);
	fo_intervals_fini(&bubble);
}

/* ---- windows to ledgers ---- */

static void close_ledger(struct fo_ledger *l, const struct fo_window *v, const struct fo_intervals *blocking,
			 bool marked)
{
	l->begin_ns = v->begin;
	l->end_ns = v->end;
	l->span_ns = v->end - v->begin;
	l->idle_total_ns = l->span_ns - l->busy_ns;
	l->blocking_comm_ns = fo_intervals_within(blocking, v->begin, v->end);
	if (!marked)
		l->forward_ns = -1;
}

static struct fo_ledger total_of(const struct fo_step_ledger *step, int64_t steps)
{
	int64_t sum[FO_LEDGER_FIGURES] = { 0 }, one[FO_LEDGER_FIGURES];
	struct fo_ledger total = { 0 };
	if (!steps)
		return total;
	for (int64_t i = 0; i < steps; i++) {
		memcpy(one, &step[i].l, sizeof one);
		for (size_t k = 0; k < FO_LEDGER_FIGURES; k++)
			sum[k] = fo_plus(sum[k], one[k]);
	}
	memcpy(&total, sum, sizeof total);
	total.begin_ns = step[0].l.begin_ns;
	total.end_ns = step[steps - 1].l.end_ns;
	total.forward_ns = step[0].l.forward_ns < 0 ? -1 : total.forward_ns;
	return total;
}

struct spanned {
	int64_t span, at;
};
static int by_span(const void *a, const void *b)
{
	const struct spanned *x = a, *y = b;
	return x->span != y->span ? fo_order(x->span, y->span) : fo_order(x->at, y->at);
}

int64_t fo_device_ledger_median(const struct fo_device_ledger *d)
{
	struct spanned *s = fo_xmalloc((size_t)(d->steps + 1) * sizeof *s);
	int64_t n = 0;
	bool all = d->empty_steps == d->steps;
	for (int64_t i = 0; i < d->steps; i++)
		if (all || !d->empty_steps || d->step[i].l.ops)
			s[n++] = (struct spanned){ d->step[i].l.span_ns, i };
	qsort(s, (size_t)n, sizeof *s, by_span);
	int64_t at = n ? s[(n - 1) / 2].at : -1;
	free(s);
	return at;
}

/* Counts the operations that are in no window. */
static void count_outside(struct fo_device_ledger *out, const struct fo_device_ops *d, const struct fo_windows *w)
{
	int64_t begin = INT64_MAX, end = INT64_MIN;
	if (w->n) {
		begin = w->v[0].begin;
		end = w->v[w->n - 1].end;
	}
	for (int64_t i = 0; i < d->n; i++) {
		const struct fo_gpu_op *g = &d->op[i];
		if (!fo_device_op_counts(d, g))
			out->excluded_ops++;
		else if (g->begin_ns < begin && g->launch < 0)
			out->leftover_ops++;
		else if (g->begin_ns < begin || g->begin_ns >= end)
			out->outside_ops++;
	}
}

/* Finds windows and fills the steps that *out will own, all but the time of the launching threads. */
static struct fo_step_ledger *make_steps(struct fo_device_ledger *out, const struct fo_device_ops *d,
					 const struct fo_idle *idle)
{
	struct fo_windows w;
	bool marked = false;
	fo_windows_find(&w, d, d->kinds != FO_KINDS_BY_NAME);
	*out = (struct fo_device_ledger){ .device = d->device,
					  .from = w.from,
					  .steps = (int64_t)w.n,
					  .dropped_steps = w.dropped,
					  .unseen_steps = w.unseen };
	if (w.from == FO_WINDOW_WHOLE && w.n == 1 && d->kinds == FO_KINDS_BY_NAME)
		fo_window_start(&w.v[0], d, idle, out);
	struct fo_step_ledger *step = fo_xmalloc((w.n + 1) * sizeof *step);
	struct walk k = { .d = d,
			  .idle = idle,
			  .step = step,
			  .window = w.v,
			  .windows = w.n,
			  .run_begin = INT64_MAX,
			  .run_end = INT64_MAX,
			  .comm_end = INT64_MIN,
			  .filling = fo_xmalloc((w.n + 1) * sizeof *k.filling) };
	walk_ops(&k);
	free(k.filling);
	fo_intervals_unite(&k.blocking);
	for (int64_t i = 0; i < d->n; i++)
		marked |= (d->op[i].flags & MARKED) != 0;
	for (size_t i = 0; i < w.n; i++) {
		struct fo_step_ledger *s = &step[i];
		s->number = w.v[i].number;
		s->host_begin_ns = w.v[i].host_begin;
		s->host_end_ns = w.v[i].host_end;
		s->launch_busy_ns = -1;
		close_ledger(&s->l, &w.v[i], &k.blocking, marked);
		out->empty_steps += s->l.ops == 0;
	}
	divide_exposed(step, out->steps, d);
	count_outside(out, d, &w);
	fo_intervals_fini(&k.blocking);
	free(k.heap);
	fo_windows_fini(&w);
	return step;
}

/* Adds what the threads that launch for the device did on the host in each step. */
static void add_launching(struct fo_step_ledger *step, int64_t steps, const struct fo_device_ops *d,
			  const struct fo_idle *idle)
{
	bool *launches = fo_xmalloc((size_t)d->t->thread_count + 1);
	for (int64_t i = 0; i < d->n; i++)
		if (d->op[i].launch >= 0)
			launches[d->t->launch[d->op[i].launch].thread] = true;
	for (struct fo_step_ledger *s = step; s < step + steps; s++) {
		/* The host's step says what the thread needs for one, unless its length differs from that of the step
		 * on the GPU: then no part of it can be told to be this step's. */
		int64_t host = s->host_end_ns - s->host_begin_ns;
		struct fo_interval of = { s->l.begin_ns, s->l.end_ns };
		if (host > 0 && (double)host <= FO_STEP_MATCHES * (double)s->l.span_ns)
			of = (struct fo_interval){ s->host_begin_ns, s->host_end_ns };
		s->launch_busy_ns = fo_idle_launch_busy(idle, launches, of.begin, of.end, &s->loader_ns,
							&s->loader_busy_ns);
	}
	free(launches);
}

static void one_device(struct fo_device_ledger *out, struct fo_device_ops *d, const struct fo_idle *idle)
{
	struct fo_step_ledger *step = make_steps(out, d, idle);
	add_launching(step, out->steps, d, idle);
	out->step = step;
	out->total = total_of(step, out->steps);
	out->median = out->steps ? step[fo_device_ledger_median(out)] : (struct fo_step_ledger){ .number = -1 };
	if (d->kinds != FO_KINDS_LINKED || !out->total.recompute_ns)
		return;
	struct fo_device_ledger once;
	d->once = true;
	d->wait = NULL; /* TraceLens, whose figure this is, does not divide communication */
	step = make_steps(&once, d, idle);
	out->once = total_of(step, once.steps);
	free(step);
}

void fo_ledger_rank(struct fo_rank_ledger *r, const struct fo_trace *t, const struct fo_ledger_options *o,
		    const int64_t *wait)
{
	struct fo_idle idle;
	struct fo_device_ledger *device = fo_xmalloc((size_t)(t->device_count + 1) * sizeof *device);
	*r = (struct fo_rank_ledger){ .trace = t, .rank = t->rank, .device = device };
	fo_idle_init(&idle, t, fo_kinds_of(o) != FO_KINDS_BY_NAME);
	for (int64_t i = 0; i < t->gpu_count;) {
		struct fo_device_ops d = { .t = t,
					   .op = &t->gpu[i],
					   .wait = wait ? &wait[i] : NULL,
					   .device = t->gpu[i].device,
					   .kinds = fo_kinds_of(o) };
		while (i < t->gpu_count && t->gpu[i].device == d.device) {
			i++;
			d.n++;
		}
		one_device(&device[r->devices++], &d, &idle);
	}
	fo_idle_fini(&idle);
	r->host = fo_host_steps(t, &r->hosts);
}

/* ---- all ranks ---- */

struct rank_work {
	struct fo_rank_ledger *rank;
	struct fo_trace *const *trace;
	const struct fo_ledger_options *o;
	const struct fo_op_waits *waits;
};

static void work_on_rank(void *ctx, size_t i)
{
	const struct rank_work *w = ctx;
	fo_ledger_rank(&w->rank[i], w->trace[i], w->o, w->waits ? w->waits->ns[i] : NULL);
}

void fo_ledger_ranks(struct fo_rank_ledger *r, struct fo_trace *const *t, size_t n, const struct fo_ledger_options *o,
		     const struct fo_op_waits *waits)
{
	fo_thread_share(n, work_on_rank, &(struct rank_work){ .rank = r, .trace = t, .o = o, .waits = waits });
}

void fo_ledger_rank_fini(struct fo_rank_ledger *r)
{
	for (int64_t i = 0; i < r->devices; i++)
		free((void *)r->device[i].step); /* const for readers; the ledger owns them */
	free((void *)r->device);
	free((void *)r->host);
	*r = (struct fo_rank_ledger){ 0 };
}
