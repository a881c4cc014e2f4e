/* The dependencies of one recorded step, and running it again with other durations. The rules: straggler.h. */
#include "diagnose/straggler.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Clocks of workers differ by some microseconds when a transfer is compared with a pass (the recordings' own
 * tolerance). */
static const int64_t CLOCK_NS = 50000;
/* A member that ended this long before the last one began did not take part: it counts as no transfer. */
static const int64_t ABSENT_NS = 10000000;

struct edge {
	int32_t from, to;
};
struct fo_step_graph {
	struct fo_arena arena, work; /* work: while it is built */
	const struct fo_schedule_log *s;
	const struct fo_schedule_op *op;
	int32_t n;
	struct edge *edge;
	size_t edges, edge_cap;
	int32_t *group, groups; /* by operation; -1: alone */
	int32_t *first;         /* by operation: its predecessors in before[] */
	int32_t *before;
	int32_t *order; /* topological */
	double *end, *group_begin;
	int32_t *waiting;               /* by group: members that have not begun */
	int32_t *member, *member_first; /* by group */
	double *own;
};

/* ---- one worker's operations ---- */

struct list {
	int32_t *v;
	size_t n, cap;
};
struct worker {
	struct list kind[FO_SCHED_COUNT]; /* by begin */
	struct list passes;
	int32_t *feeds[4];      /* by transfer of forward-send + k: the number of its pass; -1 none */
	struct list between[4]; /* transfers that have a partner on another stage, in order */
};

static int32_t *numbers(struct fo_arena *a, size_t n) { return fo_arena_alloc(a, (n + 1) * sizeof(int32_t)); }
static void list_add(struct fo_step_graph *g, struct list *l, int32_t v)
{
	if (l->n == l->cap) {
		int32_t *more = numbers(&g->work, l->cap = 2 * l->cap + 8);
		if (l->n)
			memcpy(more, l->v, l->n * sizeof *more);
		l->v = more;
	}
	l->v[l->n++] = v;
}
static void depend(struct fo_step_graph *g, int32_t to, int32_t from)
{
	fo_array_room(&g->edge, &g->edge_cap, g->edges, sizeof *g->edge);
	g->edge[g->edges++] = (struct edge){ from, to };
}
static void chain(struct fo_step_graph *g, const struct list *l)
{
	for (size_t i = 1; i < l->n; i++)
		depend(g, l->v[i], l->v[i - 1]);
}
static bool is_pass(int kind) { return kind <= FO_SCHED_WEIGHT; }

/* The stage and chunk that the data of chunk `c` on stage `st` goes to or comes from; false: outside the model. */
static bool neighbour(const struct fo_schedule_log *s, const struct fo_schedule_op *pass, int step, int *chunk,
		      int *stage)
{
	int64_t at = (int64_t)pass->chunk * s->stages + pass->stage + step;
	if (at < 0 || at >= (int64_t)s->chunks * s->stages)
		return false;
	*chunk = (int)(at / s->stages);
	*stage = (int)(at % s->stages);
	return true;
}

/* Pairs the transfers of one kind with the passes they feed or come from: the i-th with the i-th, except that some
 * profilers record transfers which were never launched (receives after the last pass has begun, sends before the first
 * has ended) and leave out the very first receive. */
static fo_status pair_with_passes(struct fo_step_graph *g, struct worker *w, int k)
{
	int kind = FO_SCHED_FORWARD_SEND + k;
	bool forward = k < 2, recv = k % 2 == 1;
	const struct list *moves = &w->kind[kind], *passes = &w->kind[forward ? FO_SCHED_FORWARD : FO_SCHED_BACKWARD];
	w->feeds[k] = numbers(&g->work, moves->n);
	for (size_t i = 0; i < moves->n; i++)
		w->feeds[k][i] = -1;
	if (!moves->n || !passes->n)
		return FO_OK;
	int64_t last_begin = g->op[passes->v[passes->n - 1]].begin_ns, first_end = INT64_MAX;
	for (size_t i = 0; i < passes->n; i++)
		if (g->op[passes->v[i]].end_ns < first_end)
			first_end = g->op[passes->v[i]].end_ns;
	size_t real = 0;
	for (size_t i = 0; i < moves->n; i++) {
		const struct fo_schedule_op *o = &g->op[moves->v[i]];
		bool launched = recv ? o->begin_ns <= last_begin + CLOCK_NS : o->end_ns >= first_end - CLOCK_NS;
		w->feeds[k][i] = launched ? 0 : -1;
		real += launched;
	}
	if (real != passes->n && real + 1 != passes->n && real != 0)
		return fo_fail(FO_EFORMAT, "stage %d has %zu passes and %zu of '%s'", g->op[moves->v[0]].stage,
			       passes->n, real, fo_schedule_kind_name[kind]);
	int32_t next = recv && real + 1 == passes->n ? 1 : 0;
	for (size_t i = 0; i < moves->n; i++)
		if (w->feeds[k][i] == 0)
			w->feeds[k][i] = next++;
	return FO_OK;
}

static void transfers(struct fo_step_graph *g, struct worker *w, int k)
{
	bool recv = k % 2 == 1, forward = k < 2;
	const struct list *moves = &w->kind[FO_SCHED_FORWARD_SEND + k],
			  *passes = &w->kind[forward ? FO_SCHED_FORWARD : FO_SCHED_BACKWARD];
	chain(g, moves);
	for (size_t i = 0; i < moves->n; i++) {
		int32_t number = w->feeds[k][i];
		if (number < 0)
			continue;
		int32_t pass = passes->v[number];
		if (recv) {
			depend(g, pass, moves->v[i]);
			if (number > 0)
				depend(g, moves->v[i], passes->v[number - 1]);
		} else {
			depend(g, moves->v[i], pass);
		}
		int chunk, stage;
		if (neighbour(g->s, &g->op[pass], forward == recv ? -1 : 1, &chunk, &stage))
			list_add(g, &w->between[k], moves->v[i]);
	}
}

/* The first backward transfers are posted after the last forward pass but one before the first backward pass. */
static void first_backward(struct fo_step_graph *g, const struct worker *w)
{
	size_t i = 0;
	while (i < w->passes.n && g->op[w->passes.v[i]].kind != FO_SCHED_BACKWARD)
		i++;
	if (i < 2 || i == w->passes.n)
		return;
	for (int kind = FO_SCHED_BACKWARD_SEND; kind <= FO_SCHED_BACKWARD_RECV; kind++)
		if (w->kind[kind].n)
			depend(g, w->kind[kind].v[0], w->passes.v[i - 2]);
}

static int32_t first_of_chunk(const struct fo_step_graph *g, const struct list *l, int chunk)
{
	for (size_t i = 0; i < l->n; i++)
		if (g->op[l->v[i]].chunk == chunk)
			return l->v[i];
	return -1;
}
static int32_t last_of_chunk(const struct fo_step_graph *g, const struct list *l, int chunk)
{
	int32_t last = -1;
	for (size_t i = 0; i < l->n; i++)
		if (g->op[l->v[i]].chunk == chunk && (last < 0 || g->op[l->v[i]].end_ns > g->op[last].end_ns))
			last = l->v[i];
	return last;
}

/* Sharded parameters arrive before a chunk's first pass; its gradients leave after its last, where that overlaps. */
static void sharded(struct fo_step_graph *g, const struct worker *w, bool overlapped)
{
	const struct list *in = &w->kind[FO_SCHED_PARAMS_GATHER], *out = &w->kind[FO_SCHED_GRADS_SCATTER];
	struct list both = { 0 };
	for (size_t i = 0, k = 0; i < in->n || k < out->n;) {
		bool first = k == out->n || (i < in->n && g->op[in->v[i]].begin_ns <= g->op[out->v[k]].begin_ns);
		list_add(g, &both, first ? in->v[i++] : out->v[k++]);
	}
	chain(g, &both);
	for (int c = 0; c < g->s->chunks; c++) {
		int32_t last_in = -1, first_out = first_of_chunk(g, out, c);
		for (size_t i = 0; i < in->n; i++)
			if (g->op[in->v[i]].chunk == c)
				last_in = in->v[i];
		int32_t pass = first_of_chunk(g, &w->kind[FO_SCHED_FORWARD], c),
			back = last_of_chunk(g, &w->kind[FO_SCHED_BACKWARD], c);
		if (last_in >= 0 && pass >= 0)
			depend(g, pass, last_in);
		if (overlapped && first_out >= 0 && back >= 0)
			depend(g, first_out, back);
	}
}

static void tail(struct fo_step_graph *g, const struct worker *w, bool overlapped)
{
	static const uint8_t order[] = { FO_SCHED_PAUSE,          FO_SCHED_GRADS_NORM,    FO_SCHED_GRADS_EMBEDDING,
					 FO_SCHED_GRADS_SEPARATE, FO_SCHED_GRADS_SCATTER, FO_SCHED_CLIP,
					 FO_SCHED_OPTIMIZER };
	int32_t last = -1;
	for (size_t i = 0; i < w->passes.n; i++)
		if (last < 0 || g->op[w->passes.v[i]].end_ns > g->op[last].end_ns)
			last = w->passes.v[i];
	const struct list *scatter = &w->kind[FO_SCHED_GRADS_SCATTER];
	for (size_t k = 0; k < sizeof order; k++) {
		const struct list *l = &w->kind[order[k]];
		if (overlapped && order[k] == FO_SCHED_GRADS_SCATTER)
			continue;
		for (size_t i = 0; i < l->n; i++) {
			if (last >= 0)
				depend(g, l->v[i], last);
			if (overlapped && scatter->n && order[k] == FO_SCHED_GRADS_NORM)
				depend(g, l->v[i], scatter->v[scatter->n - 1]);
			last = l->v[i];
		}
	}
}

static fo_status wire(struct fo_step_graph *g, struct worker *w, bool overlapped)
{
	chain(g, &w->passes);
	for (int k = 0; k < 4; k++) {
		FO_TRY(pair_with_passes(g, w, k));
		transfers(g, w, k);
	}
	first_backward(g, w);
	sharded(g, w, overlapped);
	tail(g, w, overlapped);
	return FO_OK;
}

/* ---- between workers ---- */

static void together(struct fo_step_graph *g, const int32_t *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		g->group[v[i]] = g->groups;
	g->groups++;
}

static fo_status pair_transfers(struct fo_step_graph *g, const struct worker *w)
{
	const struct fo_schedule_log *s = g->s;
	for (int r = 0; r < s->replicas; r++) {
		for (int st = 0; st < s->stages; st++) {
			for (int k = 0; k < 4; k += 2) {
				int to = k == 0 ? (st + 1) % s->stages : (st + s->stages - 1) % s->stages;
				const struct list *send = &w[r * s->stages + st].between[k],
						  *recv = &w[r * s->stages + to].between[k + 1];
				if (send->n != recv->n)
					return fo_fail(FO_EFORMAT,
						       "replica %d: stage %d sends %zu times to stage %d, which "
						       "receives %zu times",
						       r, st, send->n, to, recv->n);
				for (size_t i = 0; i < send->n; i++)
					together(g, (int32_t[]){ send->v[i], recv->v[i] }, 2);
			}
		}
	}
	return FO_OK;
}

/* The operations `kind` number i of every replica's stages first, first + step, ... are one collective. */
static void gather(struct fo_step_graph *g, const struct worker *w, int kind, size_t i, int r0, int r1, int first,
		   int last, int step)
{
	struct list l = { 0 };
	for (int r = r0; r < r1; r++)
		for (int st = first; st <= last; st += step)
			if (w[r * g->s->stages + st].kind[kind].n > i)
				list_add(g, &l, w[r * g->s->stages + st].kind[kind].v[i]);
	if (l.n)
		together(g, l.v, l.n);
}

static size_t most(const struct fo_step_graph *g, const struct worker *w, int kind)
{
	size_t n = 0;
	for (int i = 0; i < g->s->replicas * g->s->stages; i++)
		n = fo_max(w[i].kind[kind].n, n);
	return n;
}

static void collectives(struct fo_step_graph *g, const struct worker *w)
{
	static const uint8_t over_replicas[] = { FO_SCHED_PARAMS_GATHER, FO_SCHED_GRADS_SCATTER,
						 FO_SCHED_GRADS_SEPARATE };
	int last = g->s->stages - 1, all = g->s->replicas;
	for (size_t k = 0; k < sizeof over_replicas; k++)
		for (size_t i = 0, n = most(g, w, over_replicas[k]); i < n; i++)
			for (int st = 0; st <= last; st++)
				gather(g, w, over_replicas[k], i, 0, all, st, st, 1);
	for (size_t i = 0, n = most(g, w, FO_SCHED_CLIP); i < n; i++)
		gather(g, w, FO_SCHED_CLIP, i, 0, all, 0, last, 1);
	for (size_t i = 0, n = most(g, w, FO_SCHED_GRADS_EMBEDDING); i < n; i++)
		for (int r = 0; r < all; r++)
			gather(g, w, FO_SCHED_GRADS_EMBEDDING, i, r, r + 1, 0, last, last ? last : 1);
}

struct pass_key {
	int32_t replica, kind, microbatch, chunk, stage, op;
};
static int by_pass(const void *a, const void *b)
{
	const struct pass_key *x = a, *y = b;
	if (x->replica != y->replica)
		return fo_order(x->replica, y->replica);
	if (x->kind != y->kind)
		return fo_order(x->kind, y->kind);
	if (x->microbatch != y->microbatch)
		return fo_order(x->microbatch, y->microbatch);
	if (x->chunk != y->chunk)
		return fo_order(x->chunk, y->chunk);
	return fo_order(x->stage, y->stage);
}

/* Edges without recorded transfers: forward after the stage before, backward after the stage behind, the first backward
 * after its forward. */
static void data_flow(struct fo_step_graph *g)
{
	struct pass_key *v = fo_arena_alloc(&g->work, ((size_t)g->n + 1) * sizeof *v);
	size_t n = 0;
	for (int32_t i = 0; i < g->n; i++)
		if (g->op[i].kind <= FO_SCHED_BACKWARD)
			v[n++] = (struct pass_key){ g->op[i].replica, g->op[i].kind,  g->op[i].microbatch,
						    g->op[i].chunk,   g->op[i].stage, i };
	qsort(v, n, sizeof *v, by_pass);
	for (size_t i = 0; i < n; i++) {
		struct pass_key key = v[i];
		bool forward = key.kind == FO_SCHED_FORWARD;
		if (!neighbour(g->s, &g->op[v[i].op], forward ? -1 : 1, &key.chunk, &key.stage)) {
			if (forward)
				continue;
			key.kind = FO_SCHED_FORWARD;
		}
		const struct pass_key *from = bsearch(&key, v, n, sizeof *v, by_pass);
		if (from)
			depend(g, v[i].op, from->op);
	}
}

/* ---- order ---- */

/* v[first[k] .. first[k + 1]): the values of those whose key is k. */
static void bucket(struct fo_step_graph *g, const int32_t *key, const int32_t *value, size_t n, int32_t keys,
		   int32_t *first, int32_t *v)
{
	memset(first, 0, ((size_t)keys + 1) * sizeof *first);
	for (size_t i = 0; i < n; i++)
		if (key[i] >= 0)
			first[key[i] + 1]++;
	for (int32_t k = 0; k < keys; k++)
		first[k + 1] += first[k];
	int32_t *at = numbers(&g->work, (size_t)keys);
	memcpy(at, first, ((size_t)keys + 1) * sizeof *at);
	for (size_t i = 0; i < n; i++)
		if (key[i] >= 0)
			v[at[key[i]]++] = value[i];
}

struct sorting {
	int32_t *missing, *after_first, *after, *queue;
	int32_t queued;
};

static void ended(struct sorting *k, int32_t op)
{
	for (int32_t i = k->after_first[op]; i < k->after_first[op + 1]; i++)
		if (--k->missing[k->after[i]] == 0)
			k->queue[k->queued++] = k->after[i];
}

static fo_status sort(struct fo_step_graph *g)
{
	size_t n = (size_t)g->n, groups = (size_t)g->groups;
	int32_t *from = numbers(&g->work, g->edges), *to = numbers(&g->work, g->edges), *every = numbers(&g->work, n);
	for (size_t i = 0; i < g->edges; i++) {
		from[i] = g->edge[i].from;
		to[i] = g->edge[i].to;
	}
	g->first = numbers(&g->arena, n);
	g->before = numbers(&g->arena, g->edges);
	bucket(g, to, from, g->edges, g->n, g->first, g->before);
	struct sorting k = { .missing = numbers(&g->work, n),
			     .after_first = numbers(&g->work, n),
			     .after = numbers(&g->work, g->edges) };
	bucket(g, from, to, g->edges, g->n, k.after_first, k.after);
	g->member_first = numbers(&g->arena, groups);
	g->member = numbers(&g->arena, n);
	g->waiting = numbers(&g->arena, groups);
	k.queue = g->order = numbers(&g->arena, n);
	for (int32_t i = 0; i < g->n; i++) {
		every[i] = i;
		k.missing[i] = g->first[i + 1] - g->first[i];
		if (!k.missing[i])
			k.queue[k.queued++] = i;
	}
	bucket(g, g->group, every, (size_t)g->n, g->groups, g->member_first, g->member);
	for (int32_t i = 0; i < g->groups; i++)
		g->waiting[i] = g->member_first[i + 1] - g->member_first[i];
	for (int32_t i = 0; i < k.queued; i++) {
		int32_t op = k.queue[i], group = g->group[op];
		if (group < 0)
			ended(&k, op);
		else if (--g->waiting[group] == 0)
			for (int32_t m = g->member_first[group]; m < g->member_first[group + 1]; m++)
				ended(&k, g->member[m]);
	}
	return k.queued == g->n ? FO_OK
				: fo_fail(FO_EFORMAT, "%d of %d operations wait for each other", g->n - k.queued, g->n);
}

/* ---- */

static void own_times(struct fo_step_graph *g)
{
	int64_t *begin = fo_arena_alloc(&g->work, ((size_t)g->groups + 1) * sizeof *begin);
	for (int32_t i = 0; i < g->groups; i++)
		begin[i] = INT64_MIN;
	for (int32_t i = 0; i < g->n; i++)
		if (g->group[i] >= 0 && g->op[i].begin_ns > begin[g->group[i]])
			begin[g->group[i]] = g->op[i].begin_ns;
	for (int32_t i = 0; i < g->n; i++) {
		int64_t own = g->op[i].end_ns - (g->group[i] >= 0 ? begin[g->group[i]] : g->op[i].begin_ns);
		g->own[i] = own <= -ABSENT_NS ? 0 : (double)own;
	}
}

static fo_status build(struct fo_step_graph *g, struct worker *w)
{
	bool overlapped = false;
	for (int32_t i = 0; i < g->n; i++) {
		const struct fo_schedule_op *o = &g->op[i];
		struct worker *own = &w[o->replica * g->s->stages + o->stage];
		g->group[i] = -1;
		list_add(g, &own->kind[o->kind], i);
		if (is_pass(o->kind))
			list_add(g, &own->passes, i);
		overlapped |= o->kind == FO_SCHED_GRADS_SEPARATE;
	}
	for (int i = 0; i < g->s->replicas * g->s->stages; i++)
		FO_TRY(wire(g, &w[i], overlapped));
	if (g->s->has_transfers)
		FO_TRY(pair_transfers(g, w));
	else
		data_flow(g);
	collectives(g, w);
	own_times(g);
	return sort(g);
}

fo_status fo_step_graph_new(struct fo_step_graph **out, const struct fo_schedule_log *s, int64_t step)
{
	struct fo_step_graph *g = fo_xmalloc(sizeof *g);
	*g = (struct fo_step_graph){ .s = s, .op = s->op + s->step[step].first, .n = (int32_t)s->step[step].ops };
	size_t room = (size_t)g->n + 1;
	g->group = numbers(&g->arena, room);
	g->own = fo_arena_alloc(&g->arena, room * sizeof *g->own);
	g->end = fo_arena_alloc(&g->arena, room * sizeof *g->end);
	fo_status st = build(g,
			     fo_arena_alloc(&g->work, (size_t)s->replicas * (size_t)s->stages * sizeof(struct worker)));
	g->group_begin = fo_arena_alloc(&g->arena, ((size_t)g->groups + 1) * sizeof *g->group_begin);
	fo_arena_fini(&g->work);
	if (st == FO_OK)
		*out = g;
	else
		fo_step_graph_free(g);
	return st;
}

void fo_step_graph_free(struct fo_step_graph *g)
{
	if (!g)
		return;
	fo_arena_fini(&g->arena);
	free(g->edge);
	free(g);
}

double fo_step_graph_own_ns(const struct fo_step_graph *g, int64_t op) { return g->own[op]; }

double fo_step_graph_run(struct fo_step_graph *g, const double *own_ns)
{
	double last = 0;
	for (int32_t i = 0; i < g->groups; i++) {
		g->waiting[i] = g->member_first[i + 1] - g->member_first[i];
		g->group_begin[i] = 0;
	}
	for (int32_t i = 0; i < g->n; i++) {
		int32_t op = g->order[i], group = g->group[op];
		double begin = 0;
		for (int32_t k = g->first[op]; k < g->first[op + 1]; k++)
			begin = g->end[g->before[k]] > begin ? g->end[g->before[k]] : begin;
		if (group < 0) {
			g->end[op] = begin + own_ns[op];
			last = fmax(g->end[op], last);
			continue;
		}
		g->group_begin[group] = fmax(begin, g->group_begin[group]);
		if (--g->waiting[group])
			continue;
		for (int32_t m = g->member_first[group]; m < g->member_first[group + 1]; m++) {
			g->end[g->member[m]] = g->group_begin[group] + own_ns[g->member[m]];
			last = g->end[g->member[m]] > last ? g->end[g->member[m]] : last;
		}
	}
	return last;
}
